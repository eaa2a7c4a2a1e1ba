"""The result file: names, shapes, types and rules; runs repeated from it; reading it while it grows
and after a kill.
"""

import os
import re
import signal
import time

import h5py
import numpy as np
from app_support import AppCase, contents, fedhpc, finish, main, rounds_in, start, wait_until

METRICS = """round train_loss global_accuracy global_loss edge_accuracy personal_accuracy
personal_accuracy_weighted personal_accuracy_std personal_accuracy_p10 personal_loss
participant_accuracy best_personal_accuracy validation_global_accuracy validation_global_loss
validation_personal_accuracy validation_personal_loss participants bytes_up_client_edge bytes_down_client_edge
bytes_up_edge_cloud bytes_down_edge_cloud bytes_up_client_cloud bytes_down_client_cloud
simulated_seconds wall_seconds seconds_cpu seconds_train seconds_wait balance bytes_moved seconds_aggregate seconds_evaluate
seconds_io""".split()
EVALUATED = [name for name in METRICS if re.search("accuracy|_loss", name)
             and name not in ("train_loss", "edge_accuracy") and not name.startswith("validation_")]
TEXTS = "fedhpc_version git_commit config command_line processor device run_id started finished status data_digest".split()
NUMBERS = "seed ranks block".split()
SHAPES = {"fc1.weight": (8, 30), "fc1.bias": (8,), "fc2.weight": (10, 8), "fc2.bias": (10,)}
PARAMETERS = sum(int(np.prod(shape)) for shape in SHAPES.values())
CONFIG = """[run]
rounds = 5
seed = 9
progress = none
[data]
name = mnist
dir = {data}
clients = 6
partition = dirichlet
min_samples = 4
[model]
name = dnn
hidden = 8
[topology]
participation = 0.5
[train]
batch_size = 8
lr = 0.1
block = 2
"""


class ResultFile(AppCase):
    def run_file(self, *arguments, name="run.h5", text=None, ranks=0):
        ini = self.ini(text or CONFIG.format(data=self.data), name.replace(".h5", ".ini"))
        self.run_ok("run", ini, f"--run.output={name}", *arguments, ranks=ranks)
        return h5py.File(self.folder / name)

    def equal_models(self, a, b, group="model/global"):
        self.assertEqual(list(a[group]), list(b[group]))
        for name in a[group]:
            self.assertEqual(a[group][name][...].tobytes(), b[group][name][...].tobytes(), name)

    def test_layout(self):
        for dtype, ranks in (("float32", 0), ("float64", 2)):
            with self.subTest(dtype), self.run_file(f"--run.dtype={dtype}", "--run.eval_every=2",
                                                    "--run.save=init,partition,draws", ranks=ranks) as file:
                self.assertEqual(set(file.attrs), {*TEXTS, *NUMBERS})
                texts = {name: file.attrs[name].decode() for name in TEXTS}
                self.assertEqual((texts["status"], texts["device"]), ("complete", "cpu"))
                self.assertIn("run.ini --run.output=run.h5", texts["command_line"])
                self.assertRegex(texts["processor"], r"(family|implementer) \w+, (model|part) \w+$")
                for name in ("started", "finished"):
                    self.assertRegex(texts[name], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
                self.assertLessEqual(texts["started"], texts["finished"])
                self.assertEqual([file.attrs[name] for name in NUMBERS], [9, max(ranks, 1), 2])
                self.assertRegex(texts["data_digest"], r"^[0-9a-f]{32}$")
                self.assertEqual((list(file["starts/first_round"]), list(file["starts/ranks"])), ([1], [max(ranks, 1)]))
                self.assertEqual(file["hostnames"].shape, (max(ranks, 1),))
                self.assertEqual(set(file), {"clients", "draws", "hostnames", "model", "partition", "rounds", "starts"})
                self.assertEqual(set(file["model"]), {"global", "init"})

                self.assertEqual(sorted(file["rounds"]), sorted(METRICS))
                for name, column in file["rounds"].items():
                    self.assertEqual(column.shape, (5,), name)
                    self.assertEqual((column.maxshape, column.chunks is not None), ((None,), True), name)
                    self.assertEqual(column.dtype, np.int64 if name == "round" else np.float64, name)
                    self.assertTrue(column.attrs["unit"] and column.attrs["meaning"], name)
                np.testing.assert_array_equal(file["rounds/round"], [1, 2, 3, 4, 5])

                clients = file["clients"]
                self.assertEqual(set(clients), {"edge", "train_samples", "test_samples", "label_histogram",
                                                "best_accuracy", "accuracy", "evaluated_rounds"})
                accuracy = clients["accuracy"]
                self.assertEqual((accuracy.shape, accuracy.dtype), ((3, 6), np.float64))
                self.assertIsNotNone(accuracy.compression)
                np.testing.assert_array_equal(clients["evaluated_rounds"], [2, 4, 5])
                np.testing.assert_array_equal(clients["best_accuracy"], np.max(accuracy, axis=0))
                np.testing.assert_allclose(file["rounds/personal_accuracy"][[1, 3, 4]],
                                           np.mean(accuracy, axis=1), rtol=1e-6)
                self.assertEqual(clients["label_histogram"].shape, (6, 10))
                np.testing.assert_array_equal(
                    np.sum(clients["label_histogram"], axis=1),
                    clients["train_samples"][...] + clients["test_samples"][...])
                for half in ("train", "test"):
                    np.testing.assert_array_equal(np.diff(file[f"partition/{half}_offsets"]),
                                                  clients[f"{half}_samples"])
                    self.assertEqual(file[f"partition/{half}_samples"].dtype, np.int64)
                self.assertEqual(file["draws/cohort"].shape, (5, 3))
                for group in ("model/init/global", "model/global"):
                    self.assertEqual({name: data.shape for name, data in file[group].items()}, SHAPES)
                    self.assertTrue(all(data.dtype == dtype for data in file[group].values()))

    def test_personal_models(self):
        text = CONFIG.format(data=self.data) + "[algorithm]\nname = localonly\n"
        save = "--run.save=init,personal"
        files = [self.run_file(save, name=f"of{ranks}.h5", text=text, ranks=ranks) for ranks in (0, 3)]
        still = self.run_file(save, "--train.lr=0", name="still.h5", text=text)
        for file in (*files, still):
            self.assertEqual(set(file["model"]), {"init", "personal"}, "there is no global model")
            self.assertEqual({name: data.shape for name, data in file["model/personal"].items()},
                             {name: (6, *shape) for name, shape in SHAPES.items()})
            self.assertTrue(np.isnan(file["rounds/global_accuracy"]).all())
            self.assertTrue(np.isfinite(file["rounds/personal_accuracy"]).all())
        for name in SHAPES:
            np.testing.assert_allclose(files[0]["model/personal"][name][...],
                                       files[1]["model/personal"][name][...], rtol=1e-4, atol=1e-6)
            initial = still["model/init/global"][name][...]
            np.testing.assert_array_equal(still["model/personal"][name][...],
                                          np.broadcast_to(initial, (6, *initial.shape)))
            own = files[0]["model/personal"][name][...].reshape(6, -1)
            trained = {tuple(row) for row in own}
            self.assertGreaterEqual(len(trained), 3, "three clients a round, each with a model of its own")

    def test_rules_of_nan_and_evaluation(self):
        with self.run_file("--run.eval_every=2") as file:
            rounds = {name: column[...] for name, column in file["rounds"].items()}
        for name in EVALUATED:
            np.testing.assert_array_equal(np.isnan(rounds[name]), [True, False, True, False, False], name)
        for name in METRICS:
            if re.search("client_edge|edge_cloud|simulated|edge_accuracy|validation", name):
                self.assertTrue(np.isnan(rounds[name]).all(), name)
            elif name not in EVALUATED:
                self.assertTrue(np.isfinite(rounds[name]).all(), name)
        np.testing.assert_array_equal(rounds["participants"], 3)
        self.assertTrue((rounds["wall_seconds"] > 0).all())
        self.assertTrue((rounds["seconds_cpu"] > 0).all())
        best = rounds["best_personal_accuracy"][[1, 3, 4]]
        self.assertTrue((np.diff(best) >= 0).all())
        with self.run_file("--run.eval_every=100") as file:  # the last round is always evaluated
            np.testing.assert_array_equal(file["clients/evaluated_rounds"], [5])
        with self.run_file("--data.split=official") as file:
            self.assertTrue(np.isnan(file["rounds/personal_accuracy"]).all())
            self.assertTrue(np.isnan(file["clients/accuracy"]).all())
            self.assertTrue(np.isfinite(file["rounds/global_accuracy"]).all())
            self.assertTrue(np.isnan(file["rounds/bytes_up_client_edge"]).all())
        with self.run_file("--algorithm.name=hierfavg", "--topology.edges=2") as file:
            np.testing.assert_array_equal(file["clients/edge"], [0, 0, 0, 1, 1, 1])

    def test_bytes(self):
        for dtype, width in (("float32", 4), ("float64", 8)):
            for ranks in (0, 2):
                with self.subTest(dtype, ranks=ranks), \
                        self.run_file(f"--run.dtype={dtype}", ranks=ranks) as file:
                    for way in ("up", "down"):
                        np.testing.assert_array_equal(file[f"rounds/bytes_{way}_client_cloud"],
                                                      3 * PARAMETERS * width)

    def test_what_is_saved(self):
        for save, groups in {"init": {"model/init"}, "partition": {"partition"}, "draws": {"draws"},
                             "draws, init": {"model/init", "draws"}}.items():
            with self.subTest(save), self.run_file(f"--run.save={save}", "--run.rounds=1") as file:
                held = {group for group in ("model/init", "partition", "draws") if group in file}
                self.assertEqual(held, groups)

    def test_config_reruns_to_the_same_model(self):
        for dtype in ("float32", "float64"):
            with self.subTest(dtype), self.run_file(f"--run.dtype={dtype}", "--train.local_steps=3",
                                                    "--data.seed=4") as first:
                config = first.attrs["config"].decode()
                with self.run_file(name="again.h5", text=config) as again:
                    self.equal_models(first, again)
                    self.assertEqual(again.attrs["config"].decode(), config.replace("run.h5", "again.h5"))
                    np.testing.assert_array_equal(first["rounds/train_loss"], again["rounds/train_loss"])

    def test_start_from_exported_model_and_partition(self):
        with self.run_file("--run.save=init,partition", "--run.dtype=float64") as first:
            carried = ["--run.dtype=float64", "--model.init_file=run.h5", "--data.partition=file",
                       "--data.partition_file=run.h5", "--run.save=init,partition"]
            # data.clients is the file's: the command line may repeat it, and not contradict it.
            ini = self.ini(CONFIG.format(data=self.data), "second.ini")
            done = fedhpc("run", ini, *carried, "--data.clients=2", cwd=self.folder)
            self.assertEqual((done.returncode, "has 6 clients" in done.stderr), (2, True), done.stderr)
            for clients in ([], ["--data.clients=6"]):
                with self.run_file(*carried, *clients, name="second.h5") as second:
                    self.equal_models(first, second)
                    self.equal_models(first, second, "model/init/global")
                    for name in first["partition"]:
                        np.testing.assert_array_equal(first["partition"][name], second["partition"][name])
                    self.assertIn("clients = 6\n", second.attrs["config"].decode())
            # Without /model/init the final model is where a run goes on.
            with self.run_file("--run.save=partition", "--run.dtype=float64", name="bare.h5") as bare, \
                    self.run_file("--model.init_file=bare.h5", "--run.dtype=float64", "--train.lr=0",
                                  name="still.h5") as still:
                self.equal_models(bare, still)
                self.equal_models(still, first)

    def start_long(self, *arguments):
        ini = self.ini(CONFIG.format(data=self.data), "long.ini")
        running = start("run", ini, "--run.rounds=1000000", "--run.save=init,partition,draws", *arguments,
                        cwd=self.folder)
        self.addCleanup(lambda: (running.kill(), running.communicate()))
        return running, self.folder / "long.h5"

    def grow(self, *arguments):
        """Starts a long run and waits until 5 rounds can be read."""
        running, path = self.start_long(*arguments)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and running.poll() is None:
            try:
                if len(h5py.File(path, "r", swmr=True)["rounds/round"]) >= 5:
                    return running, path
            except OSError:
                pass  # not yet there, or not yet open to readers
            time.sleep(0.05)
        raise AssertionError(f"no rounds to read: {finish(running).stderr if running.poll() else path}")

    def intact(self, file):
        done = len(file["rounds/round"])
        np.testing.assert_array_equal(file["rounds/round"], np.arange(1, done + 1))
        for name in ("train_loss", "global_accuracy", "participants", "bytes_up_client_cloud"):
            column = file[f"rounds/{name}"][:done]
            self.assertEqual(len(column), done)
            self.assertTrue(np.isfinite(column).all(), name)
        self.assertTrue((file["rounds/participants"][:done] == 3).all())
        self.assertGreaterEqual(len(file["draws/cohort"]), done)
        self.assertGreaterEqual(len(file["clients/accuracy"]), done)
        return done

    def test_a_file_for_ordinary_readers_holds_the_same(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                for live in ("swmr", "flush"):
                    self.run_file(f"--run.live={live}", "--run.reproducible=true", "--run.save=init,partition,draws",
                                  name=f"{live}.h5", ranks=ranks).close()
                swmr, flush = (contents(self.folder / f"{live}.h5") for live in ("swmr", "flush"))
                self.assertEqual(swmr, flush)
                self.run_ok("resume", "flush.h5", "--run.rounds=8", ranks=ranks)
                with h5py.File(self.folder / "flush.h5") as file:
                    self.assertEqual((self.intact(file), file.attrs["status"]), (8, b"complete"))

    def test_a_file_for_ordinary_readers_is_whole_after_a_kill(self):
        running, path = self.start_long("--run.live=flush", "--run.checkpoint_every=1")
        wait_until(running, lambda: list(self.folder.glob("long.ckpt.*.h5")))
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        with h5py.File(path) as file:
            self.assertGreaterEqual(self.intact(file), 1)
            self.assertEqual(file.attrs["status"], b"running")

    def test_without_being_told_a_short_run_has_a_checkpoint_of_its_end_alone(self):
        self.run_file("--run.rounds=40").close()
        self.assertEqual([path.name for path in self.folder.glob("*.ckpt.*")], ["run.ckpt.40.h5"])
        running, _ = self.start_long()
        wait_until(running, lambda: rounds_in(self.folder / "long.h5") > 40)
        self.assertEqual(list(self.folder.glob("long.ckpt.*")), [])

    def test_readable_while_it_runs_and_after_a_kill(self):
        running, path = self.grow()
        with h5py.File(path, "r", swmr=True) as file:
            self.assertEqual(file.attrs["status"], b"running")
            self.assertEqual(file.attrs["finished"], b"")
            before = self.intact(file)
            deadline = time.monotonic() + 30
            while len(file["rounds/round"]) < before + 5 and time.monotonic() < deadline:
                time.sleep(0.05)
                file["rounds/round"].id.refresh()
            after = len(file["rounds/round"])
            self.assertGreaterEqual(after, before + 5, "the open file grows under the reader")

        # Others use it meanwhile: an export, a run that starts from its initial model; not as output.
        self.run_ok("export", path, "--csv", "csv")
        self.assertGreater(len((self.folder / "csv/rounds.csv").read_text().splitlines()), after)
        short = ["run", self.folder / "long.ini", "--run.rounds=1"]
        self.run_ok(*short, f"--model.init_file={path}", "--data.partition=file",
                    f"--data.partition_file={path}", "--run.output=from_running.h5")
        refused = fedhpc(*short, cwd=self.folder)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("another run", refused.stderr)
        self.assertIsNone(running.poll(), "the first run goes on")

        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        with h5py.File(path, "r", swmr=True) as file:
            self.assertGreaterEqual(self.intact(file), after)
            self.assertEqual(file.attrs["status"], b"running")
        self.run_ok("export", path, "--csv", "csv")
        self.run_ok(*short, f"--model.init_file={path}", "--run.output=from_killed.h5")
        final = fedhpc(*short, f"--model.init_file={path}", "--model.init_state=final", "--run.output=f.h5", cwd=self.folder)
        self.assertEqual(final.returncode, 2, final.stderr)
        self.assertIn("none of its numbers were written; give the file of a run that has ended", final.stderr)
        with h5py.File(self.folder / "from_running.h5") as a, h5py.File(self.folder / "from_killed.h5") as b:
            self.equal_models(a, b)
        self.run_ok(*short)  # nobody writes it any more: a new run may have it
        with h5py.File(path) as file:
            self.assertEqual(len(file["rounds/round"]), 1)


if __name__ == "__main__":
    main()
