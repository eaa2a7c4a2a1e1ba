"""Tests of fedhpc.Results and fedhpc.load on files that the program writes here: FEDHPC names it.

With the project's Python: python -m unittest discover -s tests/python
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings
from pathlib import Path

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import fedhpc  # noqa: E402
from fedhpc.tools import commands, project, start  # noqa: E402
from fedhpc.tools.reproduction import find_program  # noqa: E402

PATIENCE = 60.0  # s
CLIENTS, CLASSES, FEATURES = 6, 3, 8
SETTINGS = {"data.name": "hdf5", "data.file": "data.h5", "data.clients": CLIENTS, "data.partition": "dirichlet",
            "data.standardize": "none", "model.name": "mlr", "train.batch_size": 10, "train.lr": 0.1, "run.rounds": 4,
            "run.eval_every": 2, "run.progress": "none"}


def start_run(output, **settings):
    """A run of the program in the folder of its output; `section_key` names a key, None leaves it out."""
    named = {key.replace("_", ".", 1): value for key, value in settings.items()}
    values = {**SETTINGS, "run.output": output.name, **named}
    (output.parent / "empty.ini").touch()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    keys = [f"--{key}={value}" for key, value in values.items() if value is not None]
    return subprocess.Popen([find_program(None), "run", "empty.ini", *keys], cwd=output.parent, env=environment,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def carry_out(output, **settings):
    """The path of the result file of a run that has ended."""
    process = start_run(output, **settings)
    _, said = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise AssertionError(said)
    return output


def accuracy_of(model, x, y):
    """Of multinomial logistic regression."""
    return np.mean((x @ model["fc1.weight"].T + model["fc1.bias"]).argmax(axis=1) == y)


class ResultsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        rng = np.random.default_rng(1)
        cls.y = np.arange(240) % CLASSES
        cls.x = (rng.normal(size=(CLASSES, FEATURES))[cls.y] + rng.normal(size=(240, FEATURES))).astype(np.float32)
        with h5py.File(cls.folder / "data.h5", "w") as file:
            file["x_train"], file["y_train"] = cls.x, cls.y
        cls.own = carry_out(cls.folder / "own.h5", algorithm_name="ditto", run_save="init,personal,partition")
        cls.tiers = carry_out(cls.folder / "tiers.h5", algorithm_name="hierfavg", topology_edges=2,
                              run_save="draws")

    def refused(self, words, call, *arguments):
        """A DataError of one sentence."""
        with self.assertRaisesRegex(fedhpc.DataError, words) as caught:
            call(*arguments)
        self.assertNotIn("\n", str(caught.exception))
        self.assertNotIn("damaged", str(caught.exception))


class OneRun(ResultsCase):
    def test_rounds(self):
        run = fedhpc.Results(self.own)
        rounds = run.rounds
        self.assertEqual((run.status, run.path, run.config["algorithm.name"], run.attributes["ranks"]),
                         ("complete", self.own, "ditto", 1))
        self.assertEqual((list(rounds.index), rounds.index.name), ([1, 2, 3, 4], "round"))
        self.assertTrue((rounds.dtypes == float).all())
        self.assertEqual(list(rounds["global_accuracy"].dropna().index), [2, 4])
        self.assertEqual(rounds.attrs["units"]["wall_seconds"], "s")
        self.assertIn("all test samples", rounds.attrs["meanings"]["global_accuracy"])
        with h5py.File(self.own) as file:
            np.testing.assert_array_equal(rounds["train_loss"], file["rounds/train_loss"][()])
        rounds["train_loss"] = 0.0  # what a user does to a table stays in that table
        self.assertGreater(run.rounds["train_loss"].min(), 0.0)

    def test_models_are_those_that_were_tested(self):
        run = fedhpc.Results(self.own)
        model, partition, clients = run.model(), run.partition, run.clients
        self.assertEqual({name: values.shape for name, values in model.items()},
                         {"fc1.weight": (CLASSES, FEATURES), "fc1.bias": (CLASSES,)})
        tested = np.concatenate([partition.test(client) for client in range(CLIENTS)])
        self.assertAlmostEqual(accuracy_of(model, self.x[tested], self.y[tested]), run.rounds["global_accuracy"][4])
        for client in range(CLIENTS):
            samples = partition.test(client)
            if len(samples):
                found = accuracy_of(run.personal(client), self.x[samples], self.y[samples])
                self.assertAlmostEqual(found, clients["accuracy"][client])
        self.assertNotEqual(model["fc1.weight"].tolist(), run.model("initial")["fc1.weight"].tolist())
        self.assertEqual(model["fc1.weight"].dtype, np.float32)

    def test_one_client_without_the_others(self):
        read, whole = [], h5py.Dataset.__getitem__

        def watched(data, index, *more):
            values = whole(data, index, *more)
            if "/personal/" in data.name:
                read.append(values.size)
            return values

        with unittest.mock.patch.object(h5py.Dataset, "__getitem__", watched):
            fedhpc.Results(self.own).personal(CLIENTS - 1)
        self.assertEqual(sorted(read), [CLASSES, CLASSES * FEATURES])

    def test_a_client_is_a_whole_number(self):
        run = fedhpc.Results(self.own)
        self.assertEqual(run.personal(np.int64(1))["fc1.bias"].tolist(), run.personal(1)["fc1.bias"].tolist())
        self.assertEqual(run.partition.train(np.int64(1)).tolist(), run.partition.train(1).tolist())
        self.assertEqual(run.partition.test(np.array(1)).tolist(), run.partition.test(1).tolist())
        for client in (1.0, True, "1", np.array([0, 1])):
            for call in (run.personal, run.partition.train, run.partition.test):
                with self.assertRaisesRegex(TypeError, "a client is a whole number, and not "):
                    call(client)

    def test_partition_and_clients(self):
        run = fedhpc.Results(self.own)
        partition, clients = run.partition, run.clients
        for client in range(CLIENTS):
            samples = partition.train(client)
            self.assertEqual(len(samples), partition.train_samples[client])
            samples = np.concatenate([samples, partition.test(client)])
            self.assertEqual(np.bincount(self.y[samples], minlength=CLASSES).tolist(),
                             partition.histogram.loc[client].tolist())
        self.assertEqual((clients.index.name, len(clients), clients.attrs["round"]), ("client", CLIENTS, 4))
        self.assertEqual(clients["train_samples"].sum() + clients["test_samples"].sum(), len(self.y))
        self.assertEqual(clients["labels"].tolist(), (partition.histogram > 0).sum(axis=1).tolist())
        self.assertTrue((clients["best_accuracy"].dropna() >= clients["accuracy"].dropna()).all())
        self.assertTrue(run.edges.empty)

    def test_edges(self):
        run = fedhpc.Results(self.tiers)
        self.assertEqual(run.clients["edge"].tolist(), [0, 0, 0, 1, 1, 1])
        self.assertEqual(run.edges["clients"].tolist(), [3, 3])
        self.assertAlmostEqual(run.edges["accuracy"][1], run.clients["accuracy"][3:].mean())

    def test_factors_and_buffers(self):
        made = fedhpc.Results(carry_out(self.folder / "factors.h5", algorithm_name="fedlmt", model_name="dnn",
                                        model_hidden=20, model_exclude="none"))
        with h5py.File(made.path) as file:
            self.assertEqual(set(made.factors()), set(file["model/factors"]))
        deep = fedhpc.Results(carry_out(self.folder / "deep.h5", data_name="glyphs", data_file=None, data_clients=2,
                                        data_samples_per_client=10, data_partition="iid", model_name="resnet9",
                                        run_rounds=1))
        model = deep.model()
        self.assertEqual(model["res1.bn1.running_var"].shape, model["res1.bn1.weight"].shape)

    def test_what_is_not_there(self):
        own, tiers = fedhpc.Results(self.own), fedhpc.Results(self.tiers)
        self.refused("run.save=personal", tiers.personal, 0)
        self.refused("run.save=init", tiers.model, "initial")
        self.refused("run.save=partition", tiers.partition.train, 0)
        self.refused("not made of any", tiers.factors)
        self.refused("clients are 0 to 5", own.personal, CLIENTS)
        self.refused("clients are 0 to 5", own.partition.test, -1)
        self.refused("there are final and initial", own.model, "best")
        self.refused("no such file", fedhpc.Results, self.folder / "none.h5")
        self.refused("a folder", fedhpc.Results, self.folder)
        self.refused("not a fedhpc result file", fedhpc.Results, self.folder / "data.h5")

    def test_while_it_grows(self):
        path = self.folder / "live.h5"
        process = start_run(path, run_rounds=1000000, run_eval_every=50)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + PATIENCE
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        run = fedhpc.Results(path)
        seen = [len(run.rounds)]
        while len(seen) < 4 and time.monotonic() < deadline:
            rounds = run.rounds
            self.assertFalse(rounds["train_loss"].isna().any())
            if len(rounds) > seen[-1]:
                seen.append(len(rounds))
        self.assertEqual((len(seen), run.status), (4, "running"))
        self.assertEqual(len(run.clients), CLIENTS)
        self.refused("at the end of a run, and this one is running", run.model)
        process.send_signal(signal.SIGUSR1)
        process.wait(PATIENCE)
        self.assertEqual(run.status, "interrupted")
        self.assertGreaterEqual(len(run.rounds), seen[-1])
        self.assertEqual(run.model()["fc1.bias"].shape, (CLASSES,))

    def test_a_file_that_is_written_anew(self):
        path = carry_out(self.folder / "anew.h5", run_rounds=2)
        run = fedhpc.Results(path)
        with unittest.mock.patch("h5py.File", side_effect=AssertionError):
            self.assertEqual(len(run.rounds), 2)  # it has ended: nothing is read again
        path.unlink()
        self.refused("no such file", lambda: run.rounds)
        carry_out(path, run_rounds=3)
        self.refused("another run has replaced the file of these results; read it anew by fedhpc.Results",
                     lambda: run.rounds)
        self.refused("another run has replaced", run.model)
        self.assertEqual(len(fedhpc.Results(path).rounds), 3)

    def test_a_later_run_takes_the_name(self):
        path, link = self.folder / "named.h5", self.folder / "link.h5"
        saved = {"run_save": "init,personal,partition", "algorithm_name": "ditto"}
        carry_out(path, train_lr=0.2, run_rounds=3, **saved)
        link.symlink_to(path.name)
        first, linked = fedhpc.Results(path), fedhpc.Results(link)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        near = fedhpc.Results("named.h5")
        os.chdir("/")
        rounds, model, personal = first.rounds, first.model(), first.personal(0)
        clients, partition, train = first.clients, first.partition, first.partition.train(0)
        for seed in (8, 9):
            carry_out(path, train_lr=0.001, run_rounds=2, run_seed=seed, **saved)
            for old in (first, near, linked):
                self.assertEqual((old.config["train.lr"], len(old.rounds)), ("0.2", 3))
                self.assertEqual(old.path, self.folder / "named.old1.h5")
                np.testing.assert_array_equal(old.rounds, rounds)
                np.testing.assert_array_equal(old.clients, clients)
                for found, before in ((old.model(), model), (old.personal(0), personal)):
                    np.testing.assert_array_equal(found["fc1.weight"], before["fc1.weight"])
                np.testing.assert_array_equal(old.partition.train(0), train)
            np.testing.assert_array_equal(partition.train(0), train)
        self.assertEqual(fedhpc.Results(path).config["train.lr"], "0.001")

    def test_a_later_run_takes_the_name_before_the_file_is_read(self):
        saved = {"run_save": "init,personal,partition", "algorithm_name": "ditto"}
        for number, (reads, ask) in enumerate((
                ("load_model", lambda run: run.model()["fc1.weight"]),
                ("load_model", lambda run: run.personal(0)["fc1.weight"]),
                ("load_clients", lambda run: run.clients),
                ("load_samples", lambda run: run.partition.train(0)))):
            path = carry_out(self.folder / f"between{number}.h5", train_lr=0.2, run_rounds=3, **saved)
            run = fedhpc.Results(path)
            before = ask(run)
            taken = []

            def late(where, *arguments, read=getattr(fedhpc.results, reads), path=path, taken=taken, **keys):
                if not taken:
                    taken.append(carry_out(path, train_lr=0.001, run_rounds=2, run_seed=8, **saved))
                return read(where, *arguments, **keys)

            with self.subTest(reads), unittest.mock.patch.object(fedhpc.results, reads, late):
                np.testing.assert_array_equal(ask(run), before)
                self.assertEqual((taken, run.path.name), ([path], f"between{number}.old1.h5"))

    def test_a_run_that_is_gone_on_with(self):
        path = carry_out(self.folder / "further.h5", run_rounds=2, run_checkpoint_every=1)
        run = fedhpc.Results(path)
        subprocess.run([find_program(None), "resume", path, "--run.rounds=4"], check=True, capture_output=True,
                       cwd=self.folder)
        self.assertEqual((len(run.rounds), run.config["run.rounds"], run.path), (4, "4", path))
        self.assertFalse((self.folder / "further.old1.h5").exists())

    def test_in_words(self):
        run = fedhpc.Results(self.own)
        self.assertRegex(repr(run), r"^<fedhpc.Results own.h5: 4 rounds, complete, .*>$")
        self.assertRegex(run._repr_html_(), r"(?s)<table.*own\.h5.*complete.*4 of 4.*global_accuracy.*after round 4")


class Figures(ResultsCase):
    def test_as_the_tool_draws_them(self):
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        run = fedhpc.Results(self.own)
        figure = run.plot()
        self.assertEqual([axes.get_ylabel() for axes in figure.axes], ["test accuracy [%]", "cross-entropy loss"])
        loss, = run.plot("train_loss", against="bytes").axes
        self.assertRegex(loss.get_xlabel(), "traffic of all links")
        self.assertEqual(loss.lines[0].get_ydata().tolist(), run.rounds["train_loss"].tolist())
        self.assertEqual(len(run.plot(panels=["clients"]).axes), 3)
        self.assertEqual(len(run.plot(panels="clients").axes), 3)
        with self.assertRaisesRegex(ValueError, r"leave out \['loss'\] or global_accuracy"):
            run.plot("global_accuracy", panels=["loss"])
        self.assertEqual(plt.get_fignums(), [])  # none is shown twice, none is left open
        figure, (left, right) = plt.subplots(1, 2)
        self.addCleanup(plt.close, figure)
        self.assertIs(run.plot("global_accuracy", ax=right), figure)
        self.assertEqual((len(left.lines), len(right.lines)), (0, 1))
        for words, arguments in (("2 panels do not fit", {"ax": left}),
                                 ("no horizontal axis 'time'", {"against": "time"}),
                                 ("no panel 'edges'", {"panels": ["edges"]}),
                                 ("simulated_seconds is NaN", {"against": "seconds"})):
            with self.assertRaisesRegex(fedhpc.Error, words):
                run.plot(**arguments)


class ManyRuns(ResultsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "many").mkdir()
        (cls.folder / "many" / "data.h5").symlink_to(cls.folder / "data.h5")
        for lr in (0.01, 0.1):
            for seed in (1, 2, 3):
                carry_out(cls.folder / "many" / f"{lr}_{seed}.h5", train_lr=lr, run_seed=seed, data_seed=1)

    def load(self, files):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            return fedhpc.load(files), [str(one.message) for one in told]

    def test_what_is_loaded(self):
        many = self.folder / "many"
        for files in (many, str(many), f"{many}/*.h5"):  # the data of the runs is no result file
            runs, told = self.load(files)
            self.assertEqual((len(runs), len(told)), (6, 1))
            self.assertIn("data.h5: not a fedhpc result file", told[0])
        runs, told = self.load([many / "0.1_2.h5", str(many / "0.1_1.h5")])
        self.assertEqual(([run.path.name for run in runs], told), (["0.1_2.h5", "0.1_1.h5"], []))
        self.assertIsInstance(runs[0], fedhpc.Results)
        self.assertEqual(len(runs[:1]), 1)
        for words, files in (("not a fedhpc", [many / "data.h5"]), ("no such file", "none.h5"), ("no such", "none*.h5"),
                             ("no such file", [many / "0.1_1.h5", many / "4.h5"])):
            self.refused(words, fedhpc.load, files)

    def test_rounds(self):
        runs, _ = self.load(f"{self.folder}/many/0*.h5")
        rounds = runs.rounds
        self.assertEqual((rounds.index.names, len(rounds)), (["run", "seed", "round"], 24))
        self.assertEqual(list(rounds.index.levels[0]), ["lr = 0.01", "lr = 0.1"])
        one = fedhpc.Results(self.folder / "many" / "0.1_2.h5").rounds
        self.assertEqual(rounds.loc["lr = 0.1", 2]["train_loss"].tolist(), one["train_loss"].tolist())

    def test_no_run_is_lost_where_only_the_data_are_drawn_anew(self):
        paths = [self.folder / f"data_seed{seed}.h5" for seed in (1, 2)]
        for seed, path in enumerate(paths, 1):
            carry_out(path, run_seed=1, data_seed=seed)
            self.addCleanup(os.remove, path)
        runs, _ = self.load(paths)
        table = runs.table()
        self.assertEqual((table["n"].tolist(), table["seeds"].tolist(), len(runs.rounds)), ([2], ["1/1,1/2"], 8))
        self.assertEqual(sorted(set(runs.rounds.index.get_level_values("seed"))), ["1/1", "1/2"])

    def test_table(self):
        runs, _ = self.load(f"{self.folder}/many/0*.h5")
        table = runs.table("global_accuracy", target=0.01)
        last = runs.rounds["global_accuracy"].unstack("round")[4].unstack("seed")
        self.assertEqual((table.index.name, table.attrs["metric"]), ("run", "global_accuracy"))
        self.assertEqual((table["n"].tolist(), table["seeds"].tolist()), ([3, 3], ["1-3", "1-3"]))
        np.testing.assert_allclose(table["last_mean"], last.mean(axis=1))
        np.testing.assert_allclose(table["last_std"], last.std(axis=1))
        self.assertEqual((table["target_n"].tolist(), table["target_rounds_mean"].tolist()), ([3, 3], [2.0, 2.0]))
        self.assertTrue((runs.table("global_loss")["best_mean"] <= runs.table("global_loss")["last_mean"]).all())
        self.assertIn("lr = 0.01", runs._repr_html_())
        self.refused("metric no was never evaluated", runs.table, "no")

    def test_figure(self):
        runs, _ = self.load(f"{self.folder}/many/0*.h5")
        for seeds, curves in (("band", 2), ("each", 6)):
            self.assertEqual(len(runs.plot("train_loss", seeds=seeds).axes[0].lines), curves)
        again = shutil.copy(self.folder / "many" / "0.1_2.h5", self.folder / "many" / "once_more.h5")
        self.addCleanup(os.remove, again)
        twice = fedhpc.load([*(run.path for run in runs), again])
        with self.assertWarnsRegex(UserWarning, "left out: .*0.1_2.h5: seed 2 as .*once_more.h5"):
            legend = twice.plot("train_loss").axes[0].get_legend()
        self.assertEqual([text.get_text() for text in legend.get_texts()],
                         ["lr = 0.01 (3 seeds)", "lr = 0.1 (3 seeds)"])


class WithoutTheProject(unittest.TestCase):
    """The package alone, as a wheel installs it."""

    def test_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "lib" / "python3" / "site-packages"
            home.mkdir(parents=True)
            (home / "fedhpc").symlink_to(ROOT / "python" / "fedhpc")
            copied = home.with_name("copied")
            subprocess.run(["cp", "-rL", home, copied], check=True)
            bare = {name: value for name, value in os.environ.items() if not name.startswith("FEDHPC")}

            def tool(*arguments, **variables):
                return subprocess.run([sys.executable, "-m", "fedhpc.tools", *arguments], capture_output=True,
                                      text=True, env={**bare, "PYTHONPATH": str(copied), **variables}, cwd=folder)

            for arguments in (["reproduce"], ["reproduce", "tdpfed"], ["docs_site", "site"]):
                done = tool(*arguments)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn("set FEDHPC_HOME", done.stderr)
            self.assertIn("tdpfed", tool("reproduce", "--list", FEDHPC_HOME=str(ROOT)).stdout)
            self.assertEqual(tool("plot", "--help").returncode, 0)
            done = tool("no")
            self.assertEqual((done.returncode, "plot" in done.stderr), (1, True))

    def test_commands(self):
        for name in ("plot", "summarize", "watch", "compare", "export", "sweep", "submit", "fetch_data"):
            out = tempfile.TemporaryFile("w+")
            with unittest.mock.patch.object(sys, "argv", [f"fedhpc-{name}", "--help"]), \
                    contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as ended:
                getattr(commands, name)()
            out.seek(0)
            self.assertEqual(ended.exception.code, 0)
            self.assertTrue(re.match("usage: ", out.read()), name)
            out.close()

    def test_every_tool_has_a_home(self):
        for script in (ROOT / "tools").glob("*.py"):
            if named := re.search(r'^start\("(\w+)"\)$', script.read_text(), re.MULTILINE):
                self.assertEqual(named[1], script.stem)
                self.assertIn(named[1], start.TOOLS)

    def test_the_program_beside_this_python(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "fedhpc"
            with unittest.mock.patch.object(project.sysconfig, "get_path", {"scripts": folder}.get):
                self.assertIn(program, project.programs())


if __name__ == "__main__":
    unittest.main()
