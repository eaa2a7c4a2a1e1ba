"""How runs end: when they diverge, when nobody trains, when a signal comes late or their folder goes; and what they
say on the way.
"""

import json
import os
import re
import shutil
import signal
import time

import h5py
import numpy as np
from app_support import SMALL_RUN, AppCase, contents, fedhpc, finish, main, rounds_in, start, wait_until

CONFIG = """[run]
rounds = 6
""" + SMALL_RUN
PICTURES = """[run]
rounds = 2
[data]
name = glyphs
clients = 3
samples_per_client = 20
[model]
name = cnn2
[train]
batch_size = 1
"""


def status(path):
    with h5py.File(path) as file:
        return file.attrs["status"].decode(), len(file["rounds/round"])


def warnings(done):
    return [line for line in done.stderr.splitlines() if "fedhpc: warning:" in line]


class Divergence(AppCase):
    def setUp(self):
        super().setUp()
        self.config = self.ini(CONFIG, "run.ini")

    def test_is_a_status_and_one_warning(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                done = self.run_ok("run", self.config, "--train.lr=1e6", "--force", ranks=ranks)
                self.assertEqual(status(self.folder / "run.h5"), ("diverged", 6))
                self.assertRegex(done.stdout, r"\ndiverged since round 1, at its end after round 6: run\.h5;")
                self.assertEqual(len(warnings(done)), 1, done.stderr)
                self.assertRegex(warnings(done)[0], r"diverges since round 1: .*train\.lr")
                self.assertIn("loss nan", done.stdout)
        done = self.run_ok("resume", "run.h5")
        self.assertIn("nothing to do: run.h5 has diverged after 6 rounds", done.stdout)

    def test_may_stop_a_run(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                keys = ("--train.lr=1e6", "--run.stop_on_divergence=true", "--run.eval_every=3", "--force")
                done = fedhpc("run", self.config, *keys, ranks=ranks, cwd=self.folder)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(status(self.folder / "run.h5"), ("diverged", 1))
                self.assertIn("diverged since round 1, stopped after round 1: run.h5", done.stdout)

    def test_is_known_where_nothing_is_left_to_do(self):
        keys = ("--train.lr=1e6", "--run.eval_every=3", "--run.checkpoint_every=6", "--force")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                self.run_ok("run", self.config, *keys, ranks=ranks)
                done = self.run_ok("resume", "run.ckpt.6.h5", f"--run.output=copy{ranks}.h5", ranks=ranks)
                self.assertIn(f"diverged since round 1, at its end after round 6: copy{ranks}.h5", done.stdout)
                self.assertEqual(status(self.folder / f"copy{ranks}.h5"), ("diverged", 6))

    def test_since_when_is_known_after_a_resume(self):
        self.run_ok("run", self.config, "--train.lr=1e6", "--run.rounds=4")
        done = self.run_ok("resume", "run.h5", "--run.rounds=6")
        self.assertIn("diverged since round 1, at its end after round 6", done.stdout)

    def test_models_of_clients_are_those_of_the_last_round(self):
        keys = ("--algorithm.name=ditto", "--run.save=personal", "--train.lr=1e6", "--run.stop_on_divergence=true")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                done = fedhpc("run", self.config, *keys, "--force", ranks=ranks, cwd=self.folder)
                self.assertEqual(done.returncode, 1, done.stderr)
                with h5py.File(self.folder / "run.h5") as file:
                    personal = file["model/personal"]
                    self.assertGreater(len(personal), 0)
                    for name, models in personal.items():
                        self.assertTrue(models[()].reshape(len(models), -1).any(axis=1).all(), name)

    def test_is_no_matter_of_a_sound_run(self):
        done = self.run_ok("run", self.config, "--run.stop_on_divergence=true")
        self.assertEqual(status(self.folder / "run.h5"), ("complete", 6))
        self.assertEqual(warnings(done), [])


class NobodyTrains(AppCase):
    def test_batch_normalisation_of_single_samples(self):
        done = self.run_ok("run", self.ini(PICTURES, "run.ini"))
        self.assertEqual(len(warnings(done)), 2, done.stderr)
        self.assertIn("3 of 3 clients have only batches of one sample", warnings(done)[0])
        self.assertRegex(warnings(done)[1], r"no sample trained in round 1.*batch normalisation.*train\.batch_size")

    def test_clients_without_samples(self):
        with h5py.File(self.folder / "parts.h5", "w") as parts:
            parts["train_offsets"], parts["train_samples"] = [0, *[8] * 20], np.arange(8)
            parts["test_offsets"], parts["test_samples"] = np.arange(21), np.arange(8, 28)
        keys = ["--data.partition=file", f"--data.partition_file={self.folder / 'parts.h5'}",
                "--topology.participation=0.05", "--run.rounds=30"]
        done = self.run_ok("run", self.ini(CONFIG, "run.ini"), *keys)
        self.assertEqual(len(warnings(done)), 2, done.stderr)
        self.assertIn("19 of 20 clients have no training samples", warnings(done)[0])
        self.assertIn("the clients drawn have no training samples", warnings(done)[1])
        self.assertEqual(status(self.folder / "run.h5"), ("complete", 30))


class Ends(AppCase):
    def test_a_signal_after_the_end_changes_nothing(self):
        for _ in range(3):
            process = start("run", self.ini(CONFIG, "run.ini"), "--run.rounds=50", "--force", cwd=self.folder)
            self.addCleanup(lambda one=process: (one.kill(), one.communicate()))
            path = self.folder / "run.h5"

            def written():
                try:
                    with h5py.File(path, "r", libver="latest", swmr=True) as file:
                        return file.attrs["status"] == b"complete"
                except OSError:
                    return False

            while process.poll() is None and not written():
                pass
            while process.poll() is None:
                process.send_signal(signal.SIGTERM)
                time.sleep(0.001)
            self.assertEqual(process.returncode, 0)
            path.unlink()

    def test_a_folder_that_goes_is_an_error(self):
        place = self.folder / "place"
        for act in (shutil.rmtree, lambda folder: folder.rename(self.folder / "elsewhere")):
            place.mkdir()
            process = start("run", self.ini(CONFIG, "run.ini"), "--run.rounds=1000000", "--run.output=place/run.h5",
                            cwd=self.folder)
            self.addCleanup(lambda one=process: (one.kill(), one.communicate()))
            wait_until(process, lambda: rounds_in(place / "run.h5") > 0)
            act(place)
            done = finish(process)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("'place/run.h5' cannot be written: the file or its folder was removed or renamed",
                          done.stderr)

    def test_a_file_that_is_cut_is_an_error(self):
        """A checkpoint would copy what is left of it."""
        path = self.folder / "run.h5"
        process = start("run", self.ini(CONFIG, "run.ini"), "--run.rounds=1000000", "--train.local_steps=4000",
                        "--run.output=run.h5", cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, lambda: rounds_in(path) > 1)
        while process.poll() is None:  # once may be just while a round is written, which makes it longer again
            os.truncate(path, 20000)
            time.sleep(0.02)
        done = finish(process)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("'run.h5' cannot be written: the file was cut off or written over meanwhile", done.stderr)

    def test_a_resumed_run_has_no_models_until_it_ends(self):
        config = self.ini(CONFIG, "run.ini")
        keys = ("--algorithm.name=ditto", "--run.save=personal", "--run.checkpoint_every=2")
        self.run_ok("run", config, *keys)
        process = start("resume", "run.h5", "--run.rounds=1000000", cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, lambda: rounds_in(self.folder / "run.h5") > 20)
        process.kill()
        process.wait()
        newest = max(self.folder.glob("run.ckpt.*.h5"), key=lambda path: int(path.name.split(".")[2]))
        with h5py.File(self.folder / "run.h5", "r", libver="latest", swmr=True) as file, h5py.File(newest) as checkpoint:
            for group in (file["model/global"], file["model/personal"], checkpoint["model/personal"]):
                self.assertEqual({item.id.get_storage_size() for item in group.values()}, {0}, group)
            self.assertTrue(all(item.id.get_storage_size() for item in checkpoint["model/global"].values()))


class OnTheWay(AppCase):
    def test_traffic_goes_on_after_resume(self):
        config = self.ini(CONFIG, "run.ini")

        def traffic(done):
            return re.search(r"round 6/6 .*  ([\d.]+ \w?B)  ", done.stdout).group(1)

        straight = traffic(self.run_ok("run", config, "--run.output=straight.h5"))
        self.run_ok("run", config, "--run.rounds=4")
        self.assertEqual(traffic(self.run_ok("resume", "run.h5", "--run.rounds=6")), straight)

    def test_the_same_command_gives_the_same_bits(self):
        config = self.ini(CONFIG, "run.ini")
        for name in ("a.h5", "b.h5"):
            self.run_ok("run", config, f"--run.output={name}")
        self.assertEqual(contents(self.folder / "a.h5"), contents(self.folder / "b.h5"))

    def test_a_plan_counts_evaluations(self):
        config = self.ini(CONFIG, "run.ini")
        keys = ("--json", "--data.train_fraction=0.05", "--data.samples_per_client=4000", "--model.hidden=200")
        seconds, blocks = {1: [], 100000: []}, set()
        for n in 3 * list(seconds):  # a loaded machine may take long over any of them
            plan = json.loads(self.run_ok("plan", config, *keys, f"--run.eval_every={n}").stdout)
            seconds[n].append(plan["seconds_per_round"])
            blocks.add(plan["block"])
        self.assertGreater(min(seconds[1]), min(seconds[100000]))
        self.assertEqual(len(blocks), 1)

    def test_a_plan_counts_the_clients_of_drawn_edges(self):
        config = self.ini(CONFIG, "run.ini")
        keys = ("--json", "--algorithm.name=hierfavg", "--topology.edges=6", "--run.eval_every=100000",
                "--train.local_steps=5000")
        all_edges, one = (json.loads(self.run_ok("plan", config, *keys, f"--topology.edge_participation={share}").stdout)
                          for share in (1, 0.17))
        self.assertLess(one["seconds_per_round"], 0.5 * all_edges["seconds_per_round"])


if __name__ == "__main__":
    main()
