"""Tests of results.py and client_data.py on small result files made here in the documented format.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import os
import subprocess
import sys
import time
import unittest

import h5py
import numpy as np
from tool_support import PYTHON, Folder, add_clients, write_run

from fedhpc.tools import client_data, results


class Results(Folder):
    def test_complete_file(self):
        run = results.load(write_run(self.folder / "run.h5"))
        self.assertEqual((run.status, len(run.rounds), run.attributes["seed"]), ("complete", 40, 1))
        self.assertEqual(run.config, {"algorithm.name": "fedavg"})
        self.assertEqual(list(run.evaluated("global_accuracy").index), [10, 20, 30, 40])
        self.assertAlmostEqual(run.pick("global_accuracy"), 0.9 - 0.5 / 40)
        self.assertTrue(np.isnan(run.rounds["global_accuracy"][11]))
        self.assertTrue(np.isnan(run.pick("personal_accuracy")))
        self.assertEqual(run.units, {"wall_seconds": "s"})

    def test_best_is_not_last(self):
        falling = np.where(np.arange(1, 41) % 10 == 0, np.linspace(0.9, 0.5, 40), np.nan)
        run = results.load(write_run(self.folder / "run.h5", global_accuracy=falling))
        self.assertEqual(run.pick("global_accuracy", "best"), falling[9])
        self.assertEqual(run.pick("global_accuracy", "last"), falling[39])

    def test_a_loss_that_is_none_any_more_is_the_last(self):
        """Of rounds that were evaluated; accuracies stay numbers, and what was never a loss is none."""
        t = np.arange(1, 41)
        loss, nothing = np.where(t == 10, 6e20, np.nan), np.full(40, np.nan)
        path = write_run(self.folder / "run.h5", status="diverged", global_loss=loss, personal_loss=nothing,
                         train_loss=np.where(t == 1, 1e31, np.nan))
        run = results.load(add_clients(path, np.zeros((3, 2)), [10, 20, 30]))
        self.assertTrue(np.isnan(run.pick("global_loss")) and np.isnan(run.pick("train_loss")))
        self.assertEqual((run.pick("global_loss", "least"), run.pick("train_loss", "least")), (6e20, 1e31))
        self.assertEqual(list(run.evaluated("global_loss").index), [10, 20, 30])
        self.assertTrue(run.evaluated("personal_loss").empty)
        self.assertAlmostEqual(run.pick("global_accuracy"), 0.9 - 0.5 / 40)

    def test_large_configuration_is_a_data_set(self):
        config = "[data]\nname=csv\n" + "".join(f"key{i}=value\n" for i in range(6000))
        run = results.load(write_run(self.folder / "run.h5", config=config))
        self.assertEqual((run.config["data.name"], run.config["data.key5999"]), ("csv", "value"))

    def test_live_and_killed_files_show_the_committed_rounds(self):
        for ending in ("half", "kill"):
            with self.subTest(ending):
                path, _ = self.writer(f"{ending}.h5", *["round"] * 7, ending)
                run = results.load(path)
                self.assertEqual((run.status, run.config["run.rounds"]), ("running", "50"))
                np.testing.assert_array_equal(run.rounds["train_loss"], 1 / np.arange(1.0, 8.0))

    def test_damaged_files_end_in_an_error_within_the_time_out(self):
        path, _ = self.writer("run.h5", *["round"] * 7, "kill")
        content = path.read_bytes()
        for size in (600, len(content) // 3, len(content) // 2):  # the first makes an SWMR reader hang
            with self.subTest(size):
                damaged = self.folder / f"damaged{size}.h5"
                damaged.write_bytes(content[:size])
                start = time.monotonic()
                with self.assertRaisesRegex(results.ResultError, "damaged|cannot be read"):
                    results.load(damaged, timeout=4.0)
                self.assertLess(time.monotonic() - start, 15.0)

    def test_the_probe_starts_without_what_it_does_not_need(self):
        code = ("import sys; import fedhpc.tools.result_file; "
                "sys.exit(sum(m in sys.modules for m in ('pandas', 'matplotlib')))")
        self.assertEqual(subprocess.run([sys.executable, "-c", code], cwd=PYTHON).returncode, 0)


class Status(Folder):
    def test_what_the_file_says_stands(self):
        for status in ("complete", "interrupted", "failed"):
            path = write_run(self.folder / "run.h5", status=status)
            os.utime(path, (1, 1))  # long ago
            self.assertEqual(results.load(path).status, status)

    def test_silent_for_ten_rounds(self):
        path = write_run(self.folder / "run.h5", status="running", wall_seconds=np.full(40, 30.0))
        for age, status in ((5.0, "running"), (280.0, "running"), (330.0, "running or killed")):
            now = time.time()
            os.utime(path, (now - age, now - age))
            run = results.load(path)
            self.assertEqual(run.status, status, age)
            self.assertIn(f"40 rounds, {status},", run.summary())

    def test_patience(self):
        of = results.status_of
        self.assertEqual(of("running", [], 1e9), "running")  # no round: nothing to measure by
        self.assertEqual(of("running", [np.nan], 1e9), "running")
        self.assertEqual(of("running", [0.01] * 9, 1.9), "running")  # coarse clocks
        self.assertEqual(of("running", [0.01] * 9, 2.1), "running or killed")
        # One round in ten evaluates and takes a minute: such a silence says nothing.
        self.assertEqual(of("running", [1.0] * 9 + [60.0], 110.0), "running")
        self.assertEqual(of("running", [1.0] * 9 + [60.0], 130.0), "running or killed")

    def test_a_killed_run_is_found_out(self):
        path, writer = self.writer("run.h5", *["round"] * 3, seconds=0.01)
        self.assertEqual(results.load(path).status, "running")
        writer.tell("kill")
        now = time.time()
        os.utime(path, (now - 3.0, now - 3.0))
        self.assertEqual(results.load(path).status, "running or killed")


class Unusable(Folder):
    def refusal(self, path):
        with self.assertRaises(results.ResultError) as caught:
            results.load(path, timeout=4.0)
        message = str(caught.exception)
        self.assertTrue(message.startswith(f"{path}: ") and "\n" not in message, message)
        return message

    def test_missing_empty_and_foreign(self):
        self.assertIn("no such file", self.refusal(self.folder / "none.h5"))
        self.assertIn("a folder", self.refusal(self.folder))
        empty, text, foreign, counting = (self.folder / name for name in ("empty.h5", "a.txt", "foreign.h5", "c.h5"))
        empty.touch()
        text.write_text("no", encoding="utf-8")
        with h5py.File(foreign, "w") as file:
            file["x"] = 1
        self.assertIn("empty file", self.refusal(empty))
        self.assertIn("not an HDF5 file", self.refusal(text))
        self.assertIn("not a fedhpc result file", self.refusal(foreign))
        write_run(counting)
        with h5py.File(counting, "a") as file:
            file["rounds/round"][3] = 7
        self.assertIn("does not count from 1", self.refusal(counting))

    def test_truncated(self):
        path = write_run(self.folder / "run.h5", more=np.zeros(40000))
        size = path.stat().st_size
        os.truncate(path, size // 2)
        message = self.refusal(path)
        self.assertRegex(message, "truncated|damaged")
        self.assertIn("fedhpc resume", message)

    def test_a_truncated_file_of_a_killed_run_gives_no_wrong_numbers(self):
        path, _ = self.writer("run.h5", *["round"] * 40, "kill")
        content = path.read_bytes()
        refused = 0
        for lost in (1, 100, 1000, 1500, 2000):
            cut = self.folder / f"cut{lost}.h5"
            cut.write_bytes(content[:-lost])
            try:
                loss = results.load(cut, timeout=4.0).rounds["train_loss"]
            except results.ResultError:
                refused += 1
            else:
                np.testing.assert_array_equal(loss, 1 / np.arange(1.0, 41.0))
        self.assertGreater(refused, 0)

    def test_other_shapes_and_types(self):
        damages = {"rounds": 3.0, "rounds/round": 1, "rounds/train_loss": np.ones((2, 2)), "rounds/global_loss": 0.5,
                   "rounds/wall_seconds": [b"a", b"b"], "config": np.arange(3)}
        for name, value in damages.items():
            with self.subTest(name):
                path = write_run(self.folder / "run.h5")
                with h5py.File(path, "a") as file:
                    if name == "config":
                        del file.attrs["config"]
                    else:
                        del file[name]
                    file[name] = value
                self.assertRegex(self.refusal(path), "damaged|not a fedhpc result file")
        for name in ("status", "config"):
            with self.subTest(name):
                path = write_run(self.folder / "run.h5")
                with h5py.File(path, "a") as file:
                    file.attrs[name] = np.arange(3)
                self.assertIn(f"damaged ({name} is no text)", self.refusal(path))

    def test_configuration_that_is_none(self):
        with self.assertRaisesRegex(results.ResultError, "neither a .section. nor key=value"):
            results.load(write_run(self.folder / "run.h5", config="nonsense\n"))

    def test_locked_by_a_writer(self):
        """A file that another program holds open for writing is read if its content is sound, else refused."""
        path = write_run(self.folder / "run.h5")
        code = "import h5py, sys; file = h5py.File(sys.argv[1], 'r+'); print('ready', flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            try:
                self.assertEqual(len(results.load(path).rounds), 40)
            except results.ResultError as error:
                self.assertNotIn("\n", str(error))
            process.stdin.close()


class Clients(Folder):
    def test_quantiles(self):
        accuracy = [[0.0, np.nan, 1.0, 0.5], [0.2, np.nan, 0.4, 0.6], [9.0] * 4]
        path = add_clients(write_run(self.folder / "run.h5"), accuracy, [10, 20, 50])  # round 50 is not committed
        spread = client_data.load_accuracy(path, (0.0, 0.5, 0.75, 1.0))
        np.testing.assert_array_equal(spread.rounds, [10, 20])
        np.testing.assert_allclose(spread.values, [[0.0, 0.2], [0.5, 0.4], [0.75, 0.5], [1.0, 0.6]], rtol=1e-6)
        np.testing.assert_allclose(spread.last, [0.2, 0.4, 0.6], rtol=1e-6)

    def test_no_more_rows_than_a_figure_shows(self):
        path = add_clients(write_run(self.folder / "run.h5", rounds=1000), np.arange(1000.0)[:, None] / 1000,
                           np.arange(1, 1001))
        spread = client_data.load_accuracy(path, (0.5,), most=10)
        self.assertEqual((len(spread.rounds), spread.rounds[0], spread.rounds[-1]), (10, 1, 1000))
        np.testing.assert_allclose(spread.values[0], (spread.rounds - 1) / 1000, atol=1e-6)

    def test_table(self):
        path = add_clients(write_run(self.folder / "run.h5"), [[0.5, 0.5]], [10])
        np.testing.assert_array_equal(client_data.load_clients(path).label_histogram, [[3, 0], [1, 2]])

    def test_names_that_are_no_utf8(self):
        path = add_clients(write_run(self.folder / "run.h5"), [[0.5, 0.5]], [10])
        with h5py.File(path, "a") as file:
            file["names/clients"] = np.array([b"Jos\xe9", "Jos\u00e9".encode()], h5py.string_dtype())
        self.assertEqual(client_data.load_clients(path).others["name"].tolist(), ["Jos\ufffd", "Jos\u00e9"])

    def test_other_shapes(self):
        for name in ("accuracy", "evaluated_rounds", "edge", "label_histogram"):
            for value in (1.0, np.ones(3), np.ones((2, 2, 2)), [b"text"]):
                path = add_clients(write_run(self.folder / "run.h5"), [[0.5, 0.5]], [10])
                with self.subTest(name, value=value), h5py.File(path, "a") as file:
                    del file[f"clients/{name}"]
                    file[f"clients/{name}"] = value
                with self.subTest(name, value=value), self.assertRaises(results.ResultError):
                    client_data.load_clients(path)
                    client_data.load_accuracy(path, (0.5,))

    def test_rounds_are_read_without_touching_clients(self):
        """The accuracies may be damaged, or enormous: what /rounds holds is read all the same."""
        path = add_clients(write_run(self.folder / "run.h5"), np.random.default_rng(1).random((40, 5000)), range(1, 41))
        with h5py.File(path, "r") as file:
            place = file["clients/accuracy"].id.get_chunk_info(39)
        with open(path, "r+b") as file:
            file.seek(place.byte_offset)
            file.write(b"\xff" * place.size)
        self.assertEqual(len(results.load(path).rounds), 40)
        with self.assertRaisesRegex(results.ResultError, "damaged in row 39 of /clients/accuracy"):
            client_data.load_accuracy(path, (0.5,))

    def test_none(self):
        path = write_run(self.folder / "run.h5")
        for reader in (client_data.load_clients, lambda p: client_data.load_accuracy(p, (0.5,))):
            with self.assertRaisesRegex(results.ResultError, "no data set /clients/"):
                reader(path)
        early = add_clients(write_run(self.folder / "early.h5"), np.empty((0, 2)), np.empty(0, dtype=int))
        official = add_clients(write_run(self.folder / "official.h5"), [[np.nan, np.nan]], [10])
        for path, reason in ((early, "not evaluated yet"),
                             (official, "no client has test samples of its own; leave out --panel clients$")):
            with self.assertRaisesRegex(results.ResultError, reason):
                client_data.load_accuracy(path, (0.5,))


if __name__ == "__main__":
    unittest.main()
