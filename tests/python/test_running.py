"""fedhpc.run, resume and plan: as the program, and with what Python adds."""

import contextlib
import functools
import importlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

import fedhpc
from fedhpc import launching
from python_support import SOURCE, TINY, InFolder, python, same_numbers

PROGRAM = os.environ.get("FEDHPC", str(SOURCE / "build" / "release" / "fedhpc"))


def quietly(*arguments, **keys):
    return fedhpc.run(*arguments, progress=False, **keys)


class Run(InFolder):
    def test_is_the_run_of_the_program(self):
        arguments = [f"--{key}={fedhpc.running._text(key, value)}" for key, value in TINY.items()]
        Path("empty.ini").write_text("", encoding="utf-8")
        subprocess.run([PROGRAM, "run", "empty.ini", "--run.progress=none", *arguments, "--run.output=program.h5"],
                       check=True)
        results = quietly(TINY, **{"run.output": "here.h5"})
        same_numbers(self, "program.h5", "here.h5")
        self.assertEqual(results.status, "complete")
        quietly("empty.ini", **TINY, **{"run.output": "file.h5"})
        same_numbers(self, "program.h5", "file.h5")

    def test_sections_are_keys_and_keywords_win(self):
        results = quietly({"train": {"lr": 0.5, "batch_size": 10}, "run": {"rounds": 1}, "data.clients": 3},
                          **{"train.lr": np.float32(0.25), "train.momentum": None})
        self.assertEqual(results.config["train.lr"], "0.25")
        self.assertEqual(results.config["train.batch_size"], "10")
        self.assertEqual(Path(results.path).name, "run.h5")
        twice = {"train.lr": 0.5, "train": {"lr": 0.25}}
        for call in (lambda: quietly(twice), lambda: quietly(TINY, **twice), lambda: fedhpc.plan(twice),
                     lambda: fedhpc.resume("run.h5", **twice)):
            with self.assertRaisesRegex(fedhpc.ConfigError, "'train.lr' is given twice, as '0.5' and as '0.25'; keep"):
                call()

    def test_values_of_python_are_texts(self):
        for value, text in ((True, "true"), (np.bool_(False), "false"), (3, "3"), (0.1, "0.1"), (1e-7, "1e-07"),
                            (2.0, "2"), (np.float64(0.5), "0.5"), (np.int32(4), "4"), ([3, 4], "3,4"),
                            (("init", "draws"), "init,draws"), (set("gfedcba"), "a,b,c,d,e,f,g"), (Path("a/b"), "a/b")):
            self.assertEqual(fedhpc.running._text("a.key", value), text)
        with self.assertRaisesRegex(fedhpc.ConfigError, r"key 'a.key' cannot be \[\[1, 2\], \[3\]\], a list of lists"):
            fedhpc.running._text("a.key", [[1, 2], [3]])
        with self.assertRaisesRegex(fedhpc.ConfigError, "key 'a.key' cannot be .* of type object"):
            fedhpc.running._text("a.key", object())

    def test_refusals_are_the_sentences_of_the_program(self):
        with self.assertRaisesRegex(fedhpc.ConfigError, "keyword: unknown key 'train.lrr'.*did you mean 'train.lr'"):
            quietly(**{"train.lrr": 1})
        with self.assertRaisesRegex(fedhpc.ConfigError, "configuration: key 'train.lr' cannot be 'big'"):
            quietly({"train.lr": "big"})
        with self.assertRaisesRegex(fedhpc.ConfigError, "no_such.ini"):
            quietly("no_such.ini")
        with self.assertRaisesRegex(fedhpc.ConfigError, "path of an INI file or a dictionary, not 3"):
            quietly(3)
        for call in (fedhpc.run, functools.partial(fedhpc.resume, "run.h5")):
            with self.assertRaisesRegex(fedhpc.ConfigError, "progress cannot be 'none'; give True, False or None"):
                call(progress="none")
        for count in (0, -1, True, 1.5, "2", np.array([1, 2])):
            with self.assertRaisesRegex(fedhpc.ConfigError, "ranks cannot be "):
                quietly(TINY, ranks=count)
        with self.assertRaisesRegex(fedhpc.DataError, "nothing.h5"):
            fedhpc.resume("nothing.h5")
        Path("junk.h5").write_bytes(b"junk" * 100)
        with self.assertRaises(fedhpc.Error):
            quietly(TINY, **{"data.name": "hdf5", "data.file": "junk.h5"})
        self.assertFalse(Path("run.h5").exists())

    def test_an_earlier_result_is_set_aside(self):
        quietly(TINY)
        quietly(TINY)
        self.assertTrue(Path("run.old1.h5").exists())
        quietly(TINY, force=True)
        self.assertFalse(Path("run.old2.h5").exists())

    def test_one_call_begins_goes_on_and_ends(self):
        for ranks in (None, 2):
            for config in ({**TINY, "run.output": f"{ranks}.h5"}, "run.ini"):
                Path("run.ini").write_text(f"[run]\noutput = {ranks}_of_a_file.h5\n", encoding="utf-8")
                keys = {"ranks": ranks, "progress": False, "go_on": True, **(TINY if config == "run.ini" else {})}
                with self.subTest(ranks=ranks, config=config):
                    self.assertEqual(len(fedhpc.run(config, **{**keys, "run.rounds": 2}).rounds), 2)
                    self.assertEqual(len(fedhpc.run(config, **keys).rounds), 3)
                    last = fedhpc.run(config, **keys)
                    self.assertEqual((len(last.rounds), last.status), (3, "complete"))
                    with self.assertRaisesRegex(fedhpc.ConfigError, "is not that of checkpoint .*train.lr = 0.7 .was 0.1"):
                        fedhpc.run(config, **{**keys, "train.lr": 0.7})
        self.assertEqual(list(self.folder.glob("*.old*")), [])
        with self.assertRaisesRegex(fedhpc.ConfigError, "force replaces a result and go_on keeps it"):
            fedhpc.run(TINY, force=True, go_on=True)

    def test_a_result_stays_that_of_its_run(self):
        first = quietly(TINY)
        second = quietly({**TINY, "train.lr": 0.2})
        self.assertEqual([(one.config["train.lr"], one.path.name) for one in (first, second)],
                         [("0.1", "run.old1.h5"), ("0.2", "run.h5")])
        quietly({**TINY, "train.lr": 0.3}, force=True)
        for read in (second.model, lambda: second.config):
            with self.assertRaisesRegex(fedhpc.DataError, "another run has replaced the file of these results"):
                read()

    def test_signals_go_back_to_whose_they_were(self):
        before = signal.getsignal(signal.SIGINT)
        quietly(TINY)
        self.assertIs(signal.getsignal(signal.SIGINT), before)

    def test_a_run_inside_of_a_run_is_refused(self):
        def again(record):
            with self.assertRaisesRegex(fedhpc.ConfigError, "a run of this process is under way"):
                quietly(TINY, **{"run.output": "inner.h5"})
            with self.assertRaisesRegex(fedhpc.ConfigError, "a run of this process is under way"):
                fedhpc.plan(TINY)
            self.assertIn("fedavg", fedhpc.list("algorithms"))

        self.assertEqual(quietly(TINY, on_round=again).status, "complete")
        with self.assertRaises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

    def test_the_programs_lines_are_a_key(self):
        for config in ({**TINY, "run.progress": "plain"}, TINY):
            shown = python(f"import fedhpc\nfedhpc.run({config!r}, force=True)\n")
            self.assertEqual("round 3/3" in shown.stdout, config is not TINY, shown.stdout)


class OnRound(InFolder):
    def test_gets_what_was_evaluated(self):
        records = []
        results = quietly(TINY, on_round=records.append, **{"run.eval_every": 2})
        self.assertEqual([record["round"] for record in records], [1, 2, 3])
        self.assertNotIn("global_accuracy", records[0])
        self.assertEqual(records[1]["global_accuracy"], results.rounds.loc[2, "global_accuracy"])
        self.assertEqual(records[2]["train_loss"], results.rounds.loc[3, "train_loss"])

    def test_true_ends_the_run_after_the_next_round(self):
        results = quietly(TINY, on_round=lambda record: np.bool_(record["round"] == 2), **{"run.rounds": 50})
        self.assertEqual((results.status, len(results.rounds)), ("interrupted", 3))
        results = fedhpc.resume(results.path, progress=False, **{"run.rounds": 5})
        self.assertEqual((results.status, len(results.rounds)), ("complete", 5))
        quietly(TINY, **{"run.rounds": 5, "run.output": "straight.h5"})
        same_numbers(self, results.path, "straight.h5")

    def test_a_pipe_is_a_configuration(self):
        os.mkfifo("pipe.ini")
        writer = threading.Thread(target=Path("pipe.ini").write_text, args=("[run]\nrounds = 2\n",))
        writer.start()
        results = quietly("pipe.ini", **{**TINY, "run.rounds": None})
        writer.join()
        self.assertEqual(len(results.rounds), 2)

    def test_its_exception_is_raised_itself(self):
        class Mine(Exception):
            pass

        class Fails:
            def __call__(self, record):
                self.heard = [record["round"]]
                raise Mine("said")

            def end(self, status):
                self.heard.append(status)

        quietly(TINY, **{"run.output": "straight.h5"})
        for ranks in (None, 2):
            fails = Fails()
            with self.assertRaisesRegex(Mine, "^said$") as caught:
                quietly(TINY, on_round=fails, ranks=ranks, force=True)
            # Nothing is lost: the run has ended after its next round, with a checkpoint.
            self.assertEqual((fails.heard, fedhpc.Results("run.h5").status), ([1, "interrupted"], "interrupted"))
            if sys.version_info >= (3, 11):
                self.assertRegex(caught.exception.__notes__[0], "with a checkpoint; fedhpc.resume.'.*run.h5'. goes on")
            fedhpc.resume("run.h5", progress=False)
            same_numbers(self, "run.h5", "straight.h5")
        with self.assertRaisesRegex(Mine, "said"):
            quietly({**TINY, "run.rounds": 1}, on_round=Fails(), force=True)
        self.assertEqual(fedhpc.Results("run.h5").status, "complete")
        self.assertEqual(quietly(TINY, force=True).status, "complete")  # nothing is left behind

    def test_followers_hear_begin_and_end(self):
        class Follower:
            heard = []

            def begin(self, config):
                self.heard.append(config["train.lr"])

            def __call__(self, record):
                self.heard.append(record["round"])

            def end(self, status):
                self.heard.append(status)

        for ranks in (None, 2):
            Follower.heard = []
            follower = Follower()
            quietly(TINY, on_round=follower, ranks=ranks, force=True)
            self.assertEqual(Follower.heard, ["0.1", 1, 2, 3, "complete"])

    def test_an_end_that_raises_is_called_once_and_hides_no_other_error(self):
        class Follower:
            def __init__(self):
                self.heard = []

            def __call__(self, record):
                pass

            def end(self, status):
                self.heard.append(status)
                raise OSError("no log")

        @fedhpc.algorithm("fails_in_round", "a method that fails")
        class Failing(fedhpc.Algorithm):
            def initialise(self, setup):
                self.model = setup.initial_model()

            def round(self, round):
                raise KeyError("mine")

            def evaluate(self, evaluation):
                evaluation.global_model(self.model)

        for ranks in (None, 2):
            follower = Follower()
            with self.assertRaisesRegex(OSError, "no log"):
                quietly(TINY, on_round=follower, ranks=ranks, force=True)
            self.assertEqual(follower.heard, ["complete"])
            follower = Follower()
            with self.assertRaisesRegex(KeyError, "mine"), self.assertWarnsRegex(UserWarning, "OSError: no log"):
                quietly({**TINY, "algorithm.name": "fails_in_round"}, on_round=follower, ranks=ranks, force=True)
            self.assertEqual(follower.heard, ["failed"])

    def test_followers_hear_that_a_run_has_diverged(self):
        class Follower:
            def __call__(self, record):
                pass

            def end(self, status):
                self.heard = status

        for ranks in (None, 2):
            for stops in (False, True):
                follower = Follower()
                results = quietly({**TINY, "train.lr": 1e6, "run.stop_on_divergence": stops}, on_round=follower,
                                  ranks=ranks, force=True)
                self.assertEqual((follower.heard, results.status), ("diverged", "diverged"))

    def test_a_bar_is_drawn_where_it_is_wanted(self):
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            fedhpc.run(TINY, progress=True)
        self.assertIn("fedavg: 100%", text.getvalue())
        self.assertIn("loss=", text.getvalue())


class Ranks(InFolder):
    def test_ranks_of_their_own_give_the_same_bits(self):
        records = []
        alone = quietly(TINY, **{"run.output": "one.h5"})
        for ranks in (2, 4):
            results = quietly(TINY, ranks=ranks, on_round=records.append, **{"run.output": f"{ranks}.h5"})
            same_numbers(self, alone.path, results.path)
        self.assertEqual([record["round"] for record in records], [1, 2, 3] * 2)
        resumed = fedhpc.resume("2.h5", ranks=2, progress=False, **{"run.rounds": 5})
        straight = quietly(TINY, **{"run.rounds": 5, "run.output": "five.h5"})
        same_numbers(self, resumed.path, straight.path)

    def test_refusals_come_back(self):
        with self.assertRaisesRegex(fedhpc.ConfigError, "did you mean 'train.lr'"):
            quietly(ranks=2, **{"train.lrr": 1})

    def test_an_exception_that_cannot_travel_comes_back_as_its_sentence(self):
        sys.path.insert(0, str(SOURCE / "examples"))
        self.addCleanup(sys.path.remove, str(SOURCE / "examples"))
        from fedavg import FedAvg

        class TwoWords(Exception):
            def __init__(self, one, other):
                super().__init__(f"{one} and {other}")

        class FailsLate(FedAvg):
            def round(self, round):
                raise TwoWords("this", "that")

        class FailsEarly(FedAvg):
            def declare(self, options):
                raise TwoWords("this", "that")

        for name, method in (("fails_late", FailsLate), ("fails_early", FailsEarly)):
            fedhpc.algorithm(name, "a method that fails")(method)
            with self.subTest(name), self.assertRaisesRegex(fedhpc.Error, "TwoWords: this and that"):
                quietly(TINY, ranks=2, force=True, **{"algorithm.name": name})

    def test_a_script_under_mpirun_shares_one_run(self):
        done = python("import fedhpc, sys\n"
                      f"r = fedhpc.run({TINY!r}, progress=False)\n"
                      "sys.stdout.write(f'{fedhpc.rank()} of {fedhpc.ranks()}: {r.status}, {len(r.rounds)}\\n')\n",
                      ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 of 2: complete, 3", "1 of 2: complete, 3"])

    def test_an_error_on_one_rank_ends_all(self):
        for script in ("import fedhpc\n"
                       "def fails(record): raise ValueError('of mine')\n"
                       f"fedhpc.run({TINY!r}, progress=False, on_round=fails)\n",
                       "import fedhpc\n"
                       f"fedhpc.run({TINY!r}, progress=False)\n"
                       "if fedhpc.rank() == 1: raise ValueError('of mine')\n"
                       f"fedhpc.run({TINY!r}, progress=False, force=True)\n"):
            done = python(script, ranks=2)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(re.findall("^ValueError: of mine$", done.stderr, re.MULTILINE)), 1, done.stderr)
            self.assertRegex(done.stderr, r'script.py", line [23]')

    def test_ranks_with_other_keys_are_refused(self):
        done = python(f"import fedhpc\nkeys = {TINY!r} | {{'train.lr': 0.1 + fedhpc.rank()}}\n"
                      "try:\n    fedhpc.run(keys, progress=False)\nexcept fedhpc.ConfigError as error:\n"
                      "    print(error)\n", ranks=2)
        self.assertEqual(done.stdout.count("rank 0 has 'train.lr = 0.1' and rank 1 'train.lr = 1.1'"), 2, done.stdout)

    def test_a_killed_rank_is_named_as_one(self):
        def kills(record):
            children = subprocess.run(["pgrep", "-f", "fedhpc.launchin[g]"], capture_output=True, text=True, check=True)
            ranks = [int(one) for one in children.stdout.split()
                     if f"{self.folder}" == os.readlink(f"/proc/{one}/cwd")]
            os.kill(max(ranks), signal.SIGKILL)

        with self.assertRaisesRegex(fedhpc.Error, "a rank was killed by signal 9; fedhpc.resume goes on"):
            quietly(TINY, ranks=2, on_round=kills, **{"run.rounds": 10**6})

    def test_exit_codes_of_launchers(self):
        for said, expected in (("HYDRA build details:", {9: 9, 15: 15, 137: 9, 1: 0, 75: 0}),
                               ("mpirun (Open MPI) 4.1.4", {9: 0, 15: 0, 137: 9, 1: 0, 75: 0})):
            Path("mpiexec").write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{said}'\n", encoding="utf-8")
            os.chmod("mpiexec", 0o755)
            found = {code: launching._signal_in(code, str(self.folder / "mpiexec")) for code in expected}
            self.assertEqual(found, expected, said)

    def test_after_a_plug_in_ranks_of_their_own_run(self):
        Path("plug.py").write_text("import fedhpc, fedavg\nfedhpc.algorithm('plugged', 'a plug-in')(fedavg.FedAvg)\n",
                                   encoding="utf-8")
        sys.path.insert(0, str(SOURCE / "examples"))
        self.addCleanup(sys.path.remove, str(SOURCE / "examples"))
        keys = {**TINY, "run.plugin": "plug.py", "algorithm.name": "plugged"}
        quietly(keys, **{"run.output": "alone.h5"})
        quietly(TINY, ranks=2, force=True)
        quietly(keys, ranks=2, **{"run.output": "two.h5"})
        same_numbers(self, "alone.h5", "two.h5")
        del sys.modules["fedavg"]
        Path("sub").mkdir()
        Path("sub/gone.py").write_text("import fedhpc\nfrom fedavg import FedAvg\nclass Gone(FedAvg): pass\n",
                                   encoding="utf-8")
        sys.path.insert(0, str(self.folder / "sub"))
        fedhpc.algorithm("gone", "of a module that ranks cannot import")(importlib.import_module("gone").Gone)
        sys.path.remove(str(self.folder / "sub"))
        quietly(TINY, ranks=2, force=True)
        with self.assertRaisesRegex(fedhpc.Error, "gone cannot go to other processes: .*No module named 'gone'"):
            quietly(TINY, ranks=2, force=True, **{"algorithm.name": "gone"})

    def test_tasks_that_mpi_does_not_join_are_refused(self):
        """Processes of one launcher that know nothing of each other make no run, and start none on ranks of their own."""
        counted = {"SLURM_PROCID": "{0}", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        others = {name: value for name, value in os.environ.items()
                  if not name.startswith(("OMPI_COMM_", "SLURM_", "PMI", "PALS_", "FLUX_"))}
        a_host = {"PALS_RANKID": "{0}", "PALS_LOCAL_SIZE": "1"}
        for name, variables, first in (("srun", counted, 2), ("PMIx", {"PMIX_RANK": "{0}"}, None), ("PALS", a_host, None)):
            for ranks in (None, 2):
                with self.subTest(name, ranks=ranks):
                    script = ("import fedhpc\n"
                              f"try:\n    fedhpc.run({TINY!r}, ranks={ranks}, progress=False)\n"
                              "except fedhpc.ConfigError as error:\n    print(error)\n")
                    Path("script.py").write_text(script, encoding="utf-8")
                    for path in self.folder.glob("*.h5"):
                        path.unlink()
                    done = [subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=120,
                                           env={**others, **{key: text.format(rank) for key, text in variables.items()}},
                                           check=False) for rank in (0, 1)]
                    self.assertEqual([one.returncode for one in done], [0, 0], [one.stderr for one in done])
                    self.assertIn(f"{name} has started 2 ", done[1].stdout)
                    if first == 2:
                        self.assertIn("srun has started 2 tasks, but MPI", done[0].stdout)
                    elif ranks:
                        self.assertIn("ranks=2, but a launcher has started this process, and MPI", done[0].stdout)
                    written = sorted(path.name for path in self.folder.glob("*.h5"))
                    self.assertEqual(written, [] if first == 2 or ranks else ["run.ckpt.3.h5", "run.h5"])

    def test_an_mpi_that_was_there_before_is_no_launcher(self):
        """Open MPI, started by another module without a launcher, sets PMIX_RANK in C's environment."""
        python("import ctypes\nctypes.CDLL(None).setenv(b'PMIX_RANK', b'0', 1)\nimport fedhpc\n"
               f"fedhpc.run({TINY!r}, ranks=2, progress=False)\n")
        with h5py.File("run.h5") as file:
            self.assertEqual(file.attrs["ranks"], 2)

    def test_other_numbers_of_ranks_than_the_launchers_are_refused(self):
        done = python("import fedhpc\ntry:\n    fedhpc.run(ranks=3)\nexcept fedhpc.ConfigError as error:\n"
                      "    print(error)\n", ranks=2)
        self.assertIn("ranks=3, but a launcher has started 2 processes", done.stdout)


class Interrupt(InFolder):
    def interrupted(self, ranks):
        threading.Timer(3 if ranks else 1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt) as caught:
            quietly(TINY, ranks=ranks, **{"run.rounds": 10**6, "run.eval_every": 1000})
        self.assertIsInstance(caught.exception, fedhpc.Interrupted)
        done = len(fedhpc.Results("run.h5").rounds)
        self.assertGreater(done, 0)
        results = fedhpc.resume(caught.exception.path, ranks=ranks, progress=False, **{"run.rounds": done + 2})
        self.assertEqual((results.status, len(results.rounds)), ("complete", done + 2))

    def test_leaves_a_checkpoint(self):
        self.interrupted(None)

    def test_leaves_a_checkpoint_on_ranks_of_their_own(self):
        self.interrupted(2)

    def test_in_the_last_round_it_is_not_lost(self):
        def ask(record):
            if record["round"] == 3:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(fedhpc.Interrupted):
            quietly(TINY, on_round=ask)
        self.assertEqual(fedhpc.Results("run.h5").status, "complete")

    def test_of_one_rank_ends_all_alike(self):
        done = python("import fedhpc, os, signal\n"
                      "def ask(record): record['round'] == 2 and os.kill(os.getpid(), signal.SIGUSR1)\n"
                      f"fedhpc.run({TINY!r}, progress=False, on_round=ask, **{{'run.rounds': 10**6}})\n"
                      "print('never')\n", ranks=2)
        self.assertNotIn("never", done.stdout)
        self.assertEqual(done.returncode, 75, done.stderr)

    def test_ranks_do_not_outlive_who_asked_for_them(self):
        script = f"import fedhpc\nfedhpc.run({TINY!r}, ranks=2, progress=False, **{{'run.rounds': 10**6}})\n"
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not Path("run.h5").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.kill()
        process.wait()
        while fedhpc.Results("run.h5").status != "interrupted" and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(fedhpc.Results("run.h5").status, "interrupted")

    def test_a_batch_systems_signal_ends_the_script(self):
        script = ("import fedhpc, os, signal\n"
                  "def ask(record): record['round'] == 2 and os.kill(os.getpid(), signal.SIGTERM)\n"
                  f"fedhpc.run({TINY!r}, progress=False, on_round=ask, **{{'run.rounds': 10**6}})\n"
                  "print('never')\n")
        done = python(script)
        self.assertEqual((done.returncode, done.stdout), (75, ""), done.stderr)


class Plan(InFolder):
    def test_counts_as_the_program_does(self):
        planned = fedhpc.plan(TINY)
        results = quietly(TINY)
        self.assertEqual(planned["bytes_up_per_client"] * 5, results.rounds["bytes_up_client_cloud"].iloc[0])
        self.assertEqual([fedhpc.plan(TINY, ranks=count)["ranks"] for count in (2, np.int64(1))], [2, 1])


class Command(InFolder):
    def test_is_the_program(self):
        command = [sys.executable, "-m", "fedhpc"]
        self.assertIn("usage: fedhpc run", subprocess.run([*command, "help"], capture_output=True, text=True,
                                                          check=True).stdout)
        done = subprocess.run([*command, "run", "none.ini"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("none.ini", done.stderr)


if __name__ == "__main__":
    unittest.main()
