"""Tests of results.py and plot.py on small result files made here in the documented format.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import contextlib
import io
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))
from fedhpc_tools import results  # noqa: E402
from fedhpc_tools import plot  # noqa: E402

# A SWMR writer: 7 committed rounds, an eighth value not yet committed, then it waits or kills itself.
WRITER = """
import os, signal, sys, time, h5py
file = h5py.File(sys.argv[1], "w", libver="latest")
file.attrs["status"], file.attrs["config"] = "running", "[run]\\nrounds=50\\n"
grow = dict(shape=(0,), maxshape=(None,), chunks=(16,))
count = file.create_dataset("rounds/round", dtype="i8", **grow)
loss = file.create_dataset("rounds/train_loss", dtype="f8", **grow)
file.swmr_mode = True
for t in range(1, 9):
    loss.resize((t,)); loss[t - 1] = 1 / t; loss.flush()
    if t < 8:
        count.resize((t,)); count[t - 1] = t; count.flush()
print("ready", flush=True)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""


def write_run(path, rounds=40, config="[algorithm]\nname=fedavg\n", status="complete", **columns):
    """A complete result file; evaluated every 10 rounds unless columns say otherwise."""
    t = np.arange(1, rounds + 1)
    values = {"global_accuracy": np.where(t % 10 == 0, 0.9 - 0.5 / t, np.nan),
              "global_loss": np.where(t % 10 == 0, 1.0 / t, np.nan), "train_loss": 2.0 / t,
              "bytes_up_client_cloud": np.full(rounds, 100.0), "bytes_up_client_edge": np.full(rounds, np.nan),
              "wall_seconds": np.full(rounds, 0.5), **columns}
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["status"], file.attrs["seed"] = status, 1
        if len(config) < 60 * 1024:
            file.attrs["config"] = config
        else:
            file["config"] = config
        file["rounds/round"] = t
        for name, column in values.items():
            file[f"rounds/{name}"] = column
        file["rounds/wall_seconds"].attrs["units"] = "s"
    return path


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def writer(self, name, ending):
        """(path, process) of a SWMR writer that has committed seven rounds."""
        path = self.folder / name
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), ending], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline().strip(), b"ready")
        if ending == "kill":
            process.wait()
        return path, process


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

    def test_large_configuration_is_a_data_set(self):
        config = "[data]\nname=csv\n" + "".join(f"key{i}=value\n" for i in range(6000))
        run = results.load(write_run(self.folder / "run.h5", config=config))
        self.assertEqual((run.config["data.name"], run.config["data.key5999"]), ("csv", "value"))

    def test_live_and_killed_files_show_the_committed_rounds(self):
        for ending in ("wait", "kill"):
            with self.subTest(ending):
                path, _ = self.writer(f"{ending}.h5", ending)
                run = results.load(path)
                self.assertEqual((run.status, run.config["run.rounds"]), ("running", "50"))
                np.testing.assert_array_equal(run.rounds["train_loss"], 1 / np.arange(1.0, 8.0))

    def test_damaged_files_end_in_an_error_within_the_time_out(self):
        path, _ = self.writer("run.h5", "kill")
        content = path.read_bytes()
        for size in (600, len(content) // 3, len(content) // 2):  # the first makes an SWMR reader hang
            with self.subTest(size):
                damaged = self.folder / f"damaged{size}.h5"
                damaged.write_bytes(content[:size])
                start = time.monotonic()
                with self.assertRaisesRegex(results.ResultError, "damaged|cannot be read"):
                    results.load(damaged, timeout=4.0)
                self.assertLess(time.monotonic() - start, 15.0)

    def test_configuration_text(self):
        config = results.parse_config("# head\n[train]\nlr = 0.05  # rate\n\n[a]\nb=c=d\n")
        self.assertEqual(config, {"train.lr": "0.05", "a.b": "c=d"})
        with self.assertRaises(results.ResultError):
            results.parse_config("[train]\nnonsense\n")


class Plot(Folder):
    def call(self, *arguments):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = plot.main([str(argument) for argument in arguments])
        return code, out.getvalue(), error.getvalue()

    def assert_picture(self, path):
        content = path.read_bytes()
        self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", content[16:24])
        self.assertTrue(600 < width < 4000 and 400 < height < 2000, (width, height))
        self.assertGreater(len(content), 8000)

    def test_default_figure(self):
        code, out, _ = self.call(write_run(self.folder / "run.h5"))
        self.assertEqual(code, 0)
        self.assert_picture(self.folder / "run.png")
        self.assertIn("40 rounds, complete, global accuracy 88.75 % last", out)
        self.assertIn(str(self.folder / "run.png"), out)

    def test_several_runs_and_every_axis(self):
        runs = [write_run(self.folder / f"{n}.h5", config=f"[algorithm]\nname=pfedme\nlambda={n}\n",
                          personal_accuracy=np.full(40, 0.99)) for n in (5, 15)]
        for against in ("rounds", "bytes", "cloud", "wall"):
            output = self.folder / f"{against}.png"
            self.assertEqual(self.call(*runs, "--against", against, "--output", output)[0], 0)
            self.assert_picture(output)
        loaded = [results.load(path) for path in runs]
        self.assertEqual(plot.labels_of(loaded), ["lambda = 5", "lambda = 15"])
        self.assertEqual(plot.default_panels(loaded)[0][1], ["global_accuracy", "personal_accuracy"])
        np.testing.assert_array_equal(plot.horizontal(loaded[0], "rounds")[0], np.arange(1.0, 41.0))
        np.testing.assert_array_equal(plot.horizontal(loaded[0], "bytes")[0][[0, 39]], [100.0, 4000.0])
        self.assertEqual(plot.horizontal(loaded[0], "wall")[0][39], 20.0)
        mask = plot.evaluated_rounds(loaded[0], "train_loss")
        self.assertEqual(mask.sum(), 40)  # personal accuracy is there in every round

    def test_labels(self):
        runs = [write_run(self.folder / f"{n}.h5", personal_accuracy_weighted=np.full(40, n / 10)) for n in (8, 9)]
        metrics = ["personal_accuracy_weighted", "train_loss"]
        with unittest.mock.patch.object(plot, "draw_legend") as draw_legend:
            code, _, _ = self.call(*runs, "--metric", ",".join(metrics), "--labels", "FedAvg, TDPFed (x2)")
        self.assertEqual(code, 0)
        drawn = [call.args[1:] for call in draw_legend.call_args_list]
        both = list(zip(["FedAvg", "TDPFed (x2)"], plot.COLOURS))
        self.assertEqual(drawn, [(both, [metric]) for metric in metrics])

    def test_a_panel_names_the_runs_it_shows(self):
        plain = write_run(self.folder / "plain.h5")
        sparse = write_run(self.folder / "sparse.h5", density_global=np.full(40, 0.2))
        with unittest.mock.patch.object(plot, "draw_legend") as draw_legend:
            self.assertEqual(self.call(plain, sparse, "--metric", "train_loss,density_global", "--labels", "a,b")[0], 0)
        first, second = (call.args[1] for call in draw_legend.call_args_list)
        self.assertEqual(first, [("a", plot.COLOURS[0]), ("b", plot.COLOURS[1])])
        self.assertEqual(second, [("b", plot.COLOURS[1])])

    def test_bytes_are_those_of_all_links_and_directions(self):
        links = {"bytes_up_client_edge": 1.0, "bytes_down_client_edge": 20.0, "bytes_up_edge_cloud": 300.0,
                 "bytes_down_edge_cloud": 4000.0, "bytes_up_client_cloud": np.nan, "bytes_down_client_cloud": np.nan}
        path = write_run(self.folder / "run.h5", bytes_saved=np.full(40, 5e9),
                         **{name: np.full(40, value) for name, value in links.items()})
        values, label = plot.horizontal(results.load(path), "bytes")
        np.testing.assert_array_equal(values, 4321.0 * np.arange(1, 41))
        self.assertIn("[B]", label)
        # In one figure with a run over other links.
        other = write_run(self.folder / "other.h5")
        cloud, label = plot.horizontal(results.load(path), "cloud")
        np.testing.assert_array_equal(cloud[[0, 39]], [4300.0, 40 * 4300.0])
        self.assertIn("of the cloud", label)
        self.assertEqual(self.call(path, other, "--against", "bytes", "--output", self.folder / "both.png")[0], 0)
        self.assert_picture(self.folder / "both.png")

    def test_simulated_seconds(self):
        path = write_run(self.folder / "run.h5", simulated_seconds=np.linspace(1.0, 40.0, 40))
        values, label = plot.horizontal(results.load(path), "seconds")
        np.testing.assert_allclose(values[[0, 1, 39]], [1.0, 3.0, 820.0])
        self.assertEqual(label, "simulated time [s]")
        self.assertEqual(self.call(path, "--against", "seconds")[0], 0)
        self.assert_picture(self.folder / "run.png")

    def test_simulated_seconds_without_a_network_model(self):
        good = write_run(self.folder / "good.h5", simulated_seconds=np.ones(40))
        off = write_run(self.folder / "off.h5", simulated_seconds=np.full(40, np.nan))
        old = write_run(self.folder / "old.h5")
        gap = write_run(self.folder / "gap.h5", simulated_seconds=np.where(np.arange(40) < 3, np.nan, 1.0))
        for path, word in ((off, "is NaN: "), (old, "is NaN: "), (gap, "is NaN in 3 of 40 rounds: ")):
            code, out, error = self.call(good, path, "--against", "seconds")
            self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)
            self.assertTrue(error.startswith(f"plot: {path}: simulated_seconds {word}"), error)
            self.assertIn("network.client_cloud_mbps", error)
        self.assertFalse((self.folder / "good.png").exists())

    def test_training_loss_only_at_evaluated_rounds(self):
        run = results.load(write_run(self.folder / "run.h5"))
        self.assertEqual(list(np.flatnonzero(plot.evaluated_rounds(run, "train_loss")) + 1), [10, 20, 30, 40])

    def test_live_run(self):
        path, _ = self.writer("live.h5", "wait")
        self.assertEqual(self.call(path)[0], 0)
        self.assert_picture(self.folder / "live.png")

    def test_errors_are_one_line_and_exit_code_2(self):
        foreign = self.folder / "foreign.h5"
        with h5py.File(foreign, "w") as file:
            file["x"] = 1
        text = self.folder / "text.h5"
        text.write_text("no")
        good = write_run(self.folder / "run.h5")
        empty = write_run(self.folder / "empty.h5", rounds=0)
        for arguments in ([foreign], [text], [self.folder / "none.h5"], [self.folder], [empty], [good, foreign],
                          [good, "--metric", "nonsense"], [good, "--labels", "one,two"], [good, "--against", "seconds"],
                          [good, "--output", self.folder / "no" / "such.png"]):
            with self.subTest(arguments):
                code, out, error = self.call(*arguments)
                self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)
                self.assertTrue(error.startswith("plot: "))


if __name__ == "__main__":
    unittest.main()
