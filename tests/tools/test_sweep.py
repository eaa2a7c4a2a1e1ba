"""Tests of sweep.py: its INI file, the runs it stands for, what is left of them, and the best."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import h5py
import pandas as pd

from jobs_case import CONFIG, HERE, ROOT, FakeCluster, directives

from fedhpc.tools import launch, paper_table, sweep, sweep_report, sweep_runs  # noqa: E402
from fedhpc.tools.paper_table import JobState  # noqa: E402
from fedhpc.tools.results import Run, load  # noqa: E402
from fedhpc.tools.sweep_rungs import standing  # noqa: E402

# The stand-in's accuracy after the last round is 0.9 + seed/1000 - 0.1/rounds.
SWEEP = "[sweep]\nbase = run.ini\nrun.rounds = 5, 20, 10\ntrain.lr = 0.25\nseeds = 1-2\n"


class Case(FakeCluster):
    def ini(self, text, name="sweep.ini"):
        path = self.folder / name
        path.write_text(text)
        return path

    def read(self, text):
        return sweep_runs.read_sweep(self.ini(text.replace("base = run.ini", f"base = {self.folder}/run.ini")))


class Reading(Case):
    def test_points_and_runs(self):
        given = self.read("[sweep]\nbase = run.ini\ntrain.lr = 0.1, 0.2\nmodel.hidden = 100,50; 200\nrun.rounds = 7\n"
                          "seeds = 1,4-5\noutput = here\n")
        self.assertEqual([point.values for point in given.points],
                         [{"train.lr": lr, "model.hidden": hidden}
                          for lr in ("0.1", "0.2") for hidden in ("100,50", "200")])
        self.assertEqual(given.seeds, (1, 4, 5))
        self.assertEqual([job.name for job in given.jobs][:5],
                         ["lr0.1_hidden100-50_seed1", "lr0.1_hidden200_seed1", "lr0.2_hidden100-50_seed1",
                          "lr0.2_hidden200_seed1", "lr0.1_hidden100-50_seed4"])
        job = given.jobs[4]
        self.assertEqual(sweep.arguments_of(job),
                         ["--run.rounds=7", "--train.lr=0.1", "--model.hidden=100,50", "--run.seed=4",
                          "--run.output=here/lr0.1_hidden100-50_seed4.h5"])
        self.assertEqual(job.expected["algorithm.name"], "good")
        self.assertEqual(job.expected["run.seed"], "4")

    def test_a_base_that_starts_from_another(self):
        self.ini("base = run.ini\n[train]\nlocal_epochs = 2\n[model]\nhidden = 7\n", "near.ini")
        job, = self.read(f"[sweep]\nbase = {self.folder}/near.ini\ntrain.local_steps = 3\n").jobs
        self.assertEqual([job.expected.get(key) for key in ("algorithm.name", "model.hidden", "train.local_steps",
                                                            "train.local_epochs")], ["good", "7", "3", None])
        self.ini("base = none.ini\n", "near.ini")
        with self.assertRaisesRegex(sweep_runs.SweepError, "none.ini: No such file.*the base of .*near.ini"):
            self.read(f"[sweep]\nbase = {self.folder}/near.ini\n")

    def test_methods_with_keys_of_their_own(self):
        base = self.folder / "run.ini"
        base.write_text(base.read_text().replace("name=good\n", "name = fedprox\nmu = 3\ncodec = bf16\n")
                        + "[algorithm.ditto]\nlambda = 2\n")
        given = self.read("[sweep]\nbase = run.ini\nalgorithm.name = fedavg, fedprox, ditto\n"
                          "algorithm.fedprox.mu = 0.1, 1\ntrain.lr = 0.2\n")
        mu = "algorithm.fedprox.mu"
        self.assertEqual([point.values for point in given.points],
                         [{"algorithm.name": "fedavg"}, {"algorithm.name": "fedprox", mu: "0.1"},
                          {"algorithm.name": "fedprox", mu: "1"}, {"algorithm.name": "ditto"}])
        self.assertEqual([job.name for job in given.jobs],
                         ["namefedavg_seed1", "namefedprox_mu0.1_seed1", "namefedprox_mu1_seed1", "nameditto_seed1"])
        own = [{key: value for key, value in job.expected.items() if key.startswith("algorithm.")}
               for job in given.jobs]
        self.assertEqual(own, [{"algorithm.name": "fedavg", "algorithm.codec": "bf16"},
                               {"algorithm.name": "fedprox", "algorithm.codec": "bf16", "algorithm.mu": "0.1"},
                               {"algorithm.name": "fedprox", "algorithm.codec": "bf16", "algorithm.mu": "1"},
                               {"algorithm.name": "ditto", "algorithm.codec": "bf16", "algorithm.lambda": "2"}])
        for name, words in (("dito", r":4: key 'algorithm.dito.lambda' is of the method dito, and the runs have "
                                     r"fedavg, ditto \(did you mean ditto\?\)"),
                            ("fedrep", "is of the method fedrep, and the runs have fedavg, ditto$")):
            with self.assertRaisesRegex(sweep_runs.SweepError, words):
                self.read(f"[sweep]\nbase = run.ini\nalgorithm.name = fedavg, ditto\nalgorithm.{name}.lambda = 1, 2\n")
        # A method may lack a key that the others share.
        self.assertEqual(paper_table.differences(own[0], {"algorithm.name": "fedavg"}), "")
        self.assertIn("mu", paper_table.differences(own[1], {"algorithm.name": "fedprox"}))
        states = {job.name: JobState("missing") for job in given.jobs}
        self.assertIn("| fedavg         | -  ", sweep_report.report(given, states))

    def test_names_are_different_files(self):
        long = "; ".join(str(value) * 120 for value in (1, 2))
        for keys in ("train.lr = 0.1, 0.2\nnetwork.lr = 1, 2", f"data.file = {long}", "data.dir = a/b; a-b"):
            names = [job.name for job in self.read(f"[sweep]\nbase = run.ini\n{keys}\n").jobs]
            self.assertEqual(len(set(names)), len(names))
            self.assertLess(max(map(len, names)), 130)

    def test_a_point_keeps_its_name_where_a_value_is_added(self):
        long = [str(value) * 120 for value in (1, 2, 3)]
        for key, values in (("data.file", long), ("data.dir", ["a/b", "c", "a-b"])):
            few, more = ({point.values[key]: point.name for point in
                          self.read(f"[sweep]\nbase = run.ini\n{key} = {'; '.join(some)}\ntrain.lr = 0.1\n").points}
                         for some in (values[::2], values))
            self.assertEqual({value: more[value] for value in few}, few)
            self.assertEqual(len(set(more.values())), 3)
        self.assertRegex(more["a-b"], "^dira-b_[0-9a-f]{8}$")

    def test_defaults(self):
        given = self.read("[sweep]\nbase = run.ini\n")
        self.assertEqual((given.seeds, given.metric, given.rule, given.aim), ((1,), "global_accuracy", "best", "max"))
        self.assertEqual([job.output for job in given.jobs], [Path("results/sweeps/sweep/run_seed1.h5")])
        self.assertEqual(self.read("[sweep]\nbase = run.ini\nmetric = global_loss\n").aim, "min")

    def test_local_epochs_take_the_place_of_the_bases_local_steps(self):
        with open(self.folder / "run.ini", "a", encoding="utf-8") as file:
            file.write("[train]\nlocal_steps=3\n")
        job, = self.read("[sweep]\nbase = run.ini\ntrain.local_epochs = 2\n").jobs
        self.assertNotIn("train.local_steps", job.expected)

    def test_the_projects_own_sweeps(self):
        with contextlib.chdir(ROOT):
            paths = sorted((ROOT / "configs" / "sweeps").glob("*.ini"))
            self.assertNotEqual(paths, [])
            for path in paths:
                given = sweep_runs.read_sweep(path)
                self.assertEqual(len({job.output for job in given.jobs}), len(given.points) * len(given.seeds))
                self.assertGreater(len(given.points), 1)

    def test_refusals(self):
        base = "[sweep]\nbase = run.ini\n"
        cases = [
            ("[sweep]\ntrain.lr = 1\n", "no key 'base' in [sweep]"),
            ("[sweep]\nbase = none.ini\n", "base = none.ini: no such file here or beside the sweep"),
            (base + "sedes = 1\n", "sweep.ini:3: unknown key 'sedes' (did you mean 'seeds'?); [sweep] takes base, seeds, trials"),
            ("base = run.ini\ntrain.lr = 1\n", "sweep.ini:1: no line [sweep] ahead of the keys; add it"),
            ("base = run.ini\n[sweep]\ntrain.lr = 1\n", "sweep.ini:1: key 'base' stands ahead of the line [sweep]; move it below"),
            (base + "[train]\nlr = 1\n", "unknown key 'train.lr'; [sweep] takes"),
            (base + "train.lr =\n", "key 'train.lr' is empty"),
            (base + "train.lr = 1, 1\n", "train.lr = 1, 1: a value stands there twice"),
            (base + "train.lr = 0.1, 1, 0.10, 1e-1\n", "a value stands there twice (0.1 and 0.10 are equal); take it out"),
            (base + "model.hidden = 100,50; 1e2, 50\n", "(100,50 and 1e2, 50 are equal)"),
            (base + "run.live = true, 1\n", "(true and 1 are equal)"),
            (base + "model.name = ,\n", "model.name = ,: no value stands there"),
            (base + "run.seed = 1, 2\n", "the sweep sets run.seed of every run itself"),
            (base + "seeds = 3-1\n", "seeds = 3-1: not a list such as 1-3,7"),
            (base + "seeds = 1-3,2\n", "a seed stands there twice"),
            (base + "train.lr = 1\ntrain.lr = 2\n", "key 'sweep.train.lr' is given twice"),
            (base + "rule = final\n", "rule = final: must be best or last"),
            (base + "aim = up\n", "aim = up: must be max or min"),
            (base + "select = all\n", "select = all: must be test or validation"),
            (base + "select = validation\n", "select = validation needs samples that clients set aside; set data."),
            (base + "data.validation_fraction = 0.1\nselect = validation\nmetric = validation_global_loss\n",
             "validation_global_loss is one of them already"),
        ]
        for text, expected in cases:
            with self.subTest(text), self.assertRaises(sweep_runs.SweepError) as caught:
                self.read(text)
            self.assertIn(expected, str(caught.exception))


class Best(Case):
    def states(self, given, results):
        """JobStates of finished runs; results: run's name -> the metric's values, or a JobState."""
        states = {}
        for job in given.jobs:
            values = results[job.name]
            if not isinstance(values, JobState):
                series = values if isinstance(values, dict) else {given.metric: values}
                length = len(next(iter(series.values())))
                rounds = pd.DataFrame(series, index=range(1, length + 1), dtype=float)
                values = JobState("finished", Run(job.output, {"status": "complete"}, {}, rounds, {}))
            states[job.name] = values
        return states

    def best(self, extra, results):
        given = self.read(f"[sweep]\nbase = run.ini\ntrain.lr = 1, 2\nseeds = 1-2\n{extra}")
        states = self.states(given, results)
        best = sweep_report.best_of(given, standing(given, states))
        return (best and (best.text, *sweep_runs.result_of(given, best, states)[:2])), sweep_report.report(given, states)

    def test_mean_over_seeds_of_the_best_or_the_last_round(self):
        results = {"lr1_seed1": [.5, .9, .2], "lr1_seed2": [.1, .7, None], "lr2_seed1": [.4, .5, .6], "lr2_seed2": [.8]}
        (text, mean, spread), table = self.best("", results)
        self.assertEqual(text, "train.lr=1")
        self.assertAlmostEqual(mean, 80.0)
        self.assertAlmostEqual(spread, 10 * 2**.5)
        self.assertIn("best (highest global_accuracy, best evaluated round, mean over 2 seeds): --train.lr=1 (80",
                      table)
        (text, mean, _), table = self.best("rule = last\n", results)
        self.assertEqual((text, round(mean, 6)), ("train.lr=2", 70.0))
        self.assertIn("| 1        | 45.00 ± 35.36       | 2 of 2 |", table)

    def test_a_loss_is_best_where_it_is_lowest(self):
        results = {"lr1_seed1": [3, .1, 2], "lr1_seed2": [.3], "lr2_seed1": [.25], "lr2_seed2": [.25]}
        (text, mean, _), table = self.best("metric = global_loss\n", results)
        self.assertEqual((text, round(mean, 6)), ("train.lr=1", 0.2))
        self.assertIn("best (lowest global_loss, best evaluated round", table)

    def test_only_points_with_all_seeds_compete(self):
        results = {"lr1_seed1": [.9], "lr1_seed2": JobState("missing", None, "status running"),
                   "lr2_seed1": [.4], "lr2_seed2": [.5]}
        (text, _, _), table = self.best("", results)
        self.assertEqual(text, "train.lr=2")
        self.assertIn("| missing; status running |", table)
        self.assertIn("; 1 of 4 runs are not finished", table)
        results["lr1_seed2"] = JobState("outdated", None, "the result has train.lr=3")
        self.assertIn("| outdated: the result has train.lr=3 |", self.best("", results)[1])
        results["lr1_seed2"] = JobState("interrupted", None, "after round 5")
        self.assertIn("| interrupted after round 5 |", self.best("", results)[1])
        results["lr2_seed1"] = JobState("missing")
        best, table = self.best("", results)
        self.assertIsNone(best)
        self.assertIn("no point is complete; 2 of 4 runs are not finished", table)

    def test_validation_chooses_the_round_and_the_point(self):
        def run(test, validation):
            return {"global_accuracy": test, "validation_global_accuracy": validation}

        results = {"lr1_seed1": run([.5, .9], [.6, .4]), "lr1_seed2": run([.3, .9], [.5, .1]),
                   "lr2_seed1": run([.6, .2], [.3, .2]), "lr2_seed2": run([.8, .1], [.3, .2])}
        self.assertEqual(self.best("", {name: one["global_accuracy"] for name, one in results.items()})[0][0],
                         "train.lr=1")
        (text, mean, _), table = self.best("data.validation_fraction = 0.2\nselect = validation\n", results)
        self.assertEqual((text, round(mean, 6)), ("train.lr=1", 40.0))
        self.assertIn("| train.lr | validation_global_accuracy [%] | global_accuracy [%] | seeds  |      |", table)
        self.assertIn("| 1        | 55.00 ± 7.07                   | 40.00 ± 14.14       | 2 of 2 | best |", table)
        self.assertIn("best (highest validation_global_accuracy, best evaluated round, mean over 2 seeds): --train.lr=1 "
                      "(55 ± 7.1; global_accuracy 40 ± 14)", table)
        results["lr1_seed1"] = run([.5, .9], [.1, .2])
        results["lr1_seed2"] = run([.5, .9], [.1, .2])
        (text, mean, _), _ = self.best("data.validation_fraction = 0.2\nselect = validation\n", results)
        self.assertEqual((text, round(mean, 6)), ("train.lr=2", 70.0))
        best, table = self.best("data.validation_fraction = 0.2\nselect = validation\n",
                                dict.fromkeys(results, [.5]))
        self.assertIsNone(best)
        self.assertIn("metric validation_global_accuracy was never evaluated", table)

    def test_a_metric_nobody_evaluated_is_named(self):
        results = dict.fromkeys(("lr1_seed1", "lr1_seed2", "lr2_seed1", "lr2_seed2"), [None])
        best, table = self.best("metric = global_acuracy\n", results)
        self.assertIsNone(best)
        self.assertIn("metric global_acuracy was never evaluated; the runs have ", table)


class Running(Case):
    def test_local_runs_are_resumable(self):
        self.ini(SWEEP)
        said = self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.assertEqual(len(self.calls("plan")), 3)
        self.assertEqual(len(self.calls("run ")), 6)
        self.assertIn("[6/6] rounds10_seed2: finished in ", said)
        self.assertIn("| 20         | 89.65 ± 0.07        | 2 of 2 | best |\n", said)
        self.assertIn("--run.rounds=20 (89.65 ± 0.071)\nresults/sweeps/sweep/table.md\n", said)
        self.assertIn("--run.rounds=20 (89.65", (self.folder / "results/sweeps/sweep/table.md").read_text())
        (self.folder / "results/sweeps/sweep/rounds5_seed2.h5").unlink()
        said = self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.assertIn("1 of 6 runs are left\n[1/1] rounds5_seed2: finished", said)
        self.assertEqual(len(self.calls("run ")), 7)
        self.assertIn("--run.rounds=20", self.tool("sweep", "sweep.ini", "--report"))
        self.assertEqual(len(self.calls("run ")), 7)

    def test_an_interrupted_run_goes_on(self):
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = slow\nrun.rounds = 40\n")
        command = [sys.executable, ROOT / "tools" / "sweep.py", "sweep.ini", "--local", "--ranks", "1"]
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        output = self.folder / "results/sweeps/sweep/run_seed1.h5"
        deadline = time.monotonic() + 60
        while not output.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, launch.INTERRUPTED, said)
        self.assertIn("run_seed1: interrupted, the same command goes on", said)
        self.assertEqual(len(list(output.parent.glob("run_seed1.ckpt.*.h5"))), 1)
        # The stand-in trains 0.1 s a round.
        self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        begun, (resumed,) = self.gone_on()
        self.assertIn("run run.ini --go-on --algorithm.name=slow --run.rounds=40", resumed)
        self.assertEqual(begun, 1)

    def test_results_of_other_settings_are_set_aside(self):
        self.ini(SWEEP)
        self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.ini(SWEEP.replace("0.25", "0.5"))
        self.assertIn("6 of 6 runs are left", self.tool("sweep", "sweep.ini", "--local", "--ranks", "1"))
        self.assertEqual(len(list((self.folder / "results/sweeps/sweep").glob("*.old1.h5"))), 6)

    def test_what_ends_while_another_run_is_waited_for_is_not_run_again(self):
        how = ("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.ini(SWEEP)
        self.tool(*how)
        folder, launched = self.folder / "results/sweeps/sweep", sweep.LocalRuns._launch
        for name in ("rounds5_seed1", "rounds20_seed1"):
            (folder / f"{name}.h5").rename(folder / name)

        def launch_and_end(*arguments):
            (folder / "rounds20_seed1").rename(folder / "rounds20_seed1.h5")  # as a run that a killed sweep has left
            return launched(*arguments)

        with mock.patch.object(sweep.LocalRuns, "_launch", launch_and_end):
            said = self.tool(*how)
        self.assertIn("2 of 6 runs are left\n", said)
        self.assertIn("[2/2] rounds20_seed1: finished by an earlier call\n", said)
        self.assertEqual(len(self.calls("run ")), 7)
        self.assertEqual(list(folder.glob("*.old1.h5")), [])

    def test_a_run_has_the_seconds_of_its_configuration_to_end(self):
        for more, patience in (("", 60.0), ("run.grace_seconds = 90\n", 130.0)):
            self.ini("[sweep]\nbase = run.ini\nrun.rounds = 5\n" + more + f"output = of{patience}\n")
            with mock.patch.object(launch, "run", side_effect=launch.run) as run:
                self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
            self.assertEqual(run.call_args.args[-1], patience)

    def test_more_rounds_go_on_from_the_checkpoints(self):
        grid = "[sweep]\nbase = run.ini\nalgorithm.name = rated\ntrain.lr = 0.25, 0.5, 6\nrun.rounds = "
        how = ("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.ini(grid + "6\n")
        self.tool(*how)
        folder = self.folder / "results/sweeps/sweep"
        (folder / "lr0.5_seed1.ckpt.6.h5").unlink()
        self.ini(grid + "12\n")
        report = self.tool("sweep", "sweep.ini", "--report")
        for said in ("interrupted after round 6", "outdated: the result has run.rounds=6, not 12",
                     "diverged, at its end after round 2"):
            self.assertIn(f"| {said} ", report)
        self.assertIn("submitted job 42: 2 of 3 runs", self.tool("sweep", "sweep.ini", "--submit"))
        self.assertIn("lr0.5_seed1.h5 is set aside: the result has run.rounds=6, not 12\n", self.warned)
        said = self.tool(*how)
        self.assertIn("2 of 3 runs are left", said)
        gone_on, = self.gone_on()[1]
        self.assertIn("--train.lr=0.25 ", gone_on)
        self.assertEqual(sorted(path.name for path in folder.glob("*.old1.h5")), ["lr0.5_seed1.old1.h5"])
        self.assertEqual([len(load(folder / f"lr{lr}_seed1.h5").rounds) for lr in ("0.25", "0.5", "6")], [12, 12, 2])
        self.ini(grid + "12\ntrain.momentum = 0.5\n")  # more than the rounds is other
        self.assertIn("3 of 3 runs are left", self.tool(*how))

    def test_a_run_that_stops_at_a_divergence_is_finished_in_every_call(self):
        self.script("fedhpc", f'#!/bin/bash\n"{sys.executable}" "{HERE}/fake_planner.py" "$@" || exit\n'
                              'case "$*" in run*train.lr=6*) exit 1 ;; esac\n')
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = rated\nrun.rounds = 3\ntrain.lr = 0.5, 6\n")
        said = [self.tool("sweep", "sweep.ini", "--local", "--ranks", "1") for _ in range(2)]
        self.assertRegex(said[0], r"\[2/2\] lr6_seed1: finished in \d+ s, diverged\n")
        self.assertIn("0 of 2 runs are left\n", said[1])

    def test_a_report_of_a_folder_of_somebody_else(self):
        self.ini(SWEEP)
        told = self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        table = self.folder / "results/sweeps/sweep/table.md"
        table.unlink()
        table.mkdir()  # it cannot be written, not even by root
        report = self.tool("sweep", "sweep.ini", "--report")
        self.assertIn("best (highest global_accuracy", report)
        self.assertTrue(told.endswith(f"{report}{table.relative_to(self.folder)}\n"), (report, told))

    def test_a_setting_taken_out_is_another_setting(self):
        how = ("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.ini(SWEEP + "train.weight_decay = 0.5\n")
        self.tool(*how)
        self.assertIn("0 of 6 runs are left", self.tool(*how))
        self.ini(SWEEP)
        self.assertIn("6 of 6 runs are left", self.tool(*how))
        aside = [load(path) for path in (self.folder / "results/sweeps/sweep").glob("*.old1.h5")]
        self.assertEqual([run.config["train.weight_decay"] for run in aside], ["0.5"] * 6)
        self.assertIn("0 of 6 runs are left", self.tool(*how))
        with open(self.folder / "run.ini", "a", encoding="utf-8") as file:  # the base has a key more, then less
            file.write("[server]\nlr = 2\n")
        self.assertIn("6 of 6 runs are left", self.tool(*how))
        (self.folder / "run.ini").write_text(CONFIG)
        self.assertTrue(self.tool("sweep", "sweep.ini", "--submit").startswith("submitted job 42: 6 of 6 runs"))

    def test_a_report_compares_whole_configurations(self):
        self.ini(SWEEP + "train.weight_decay = 0.5\n")
        self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        plans = len(self.calls("plan"))
        self.ini(SWEEP.replace("20, 10", "20, 10, 40"))
        report = self.tool("sweep", "sweep.ini", "--report")
        self.assertEqual(report.count("| outdated: the result has train.weight_decay=0.5, which is no longer set |"), 3)
        self.assertIn("no point is complete", report)
        self.assertEqual(len(self.calls("plan")), plans + 3, "none of a point without results")
        note = "results are compared in the keys that are set only, not in others nor in their data\n"
        self.assertNotIn(note, report)
        report = self.tool("sweep", "sweep.ini", "--report", FEDHPC="none")
        self.assertIn("no fedhpc program is found; " + note, report)
        self.assertIn("| best ", report)
        self.assertIn(note, (self.folder / "results/sweeps/sweep/table.md").read_text())
        self.script("fedhpc", "#!/bin/sh\necho 'fedhpc: error: no plan today' >&2\nexit 2\n")
        self.assertIn("no plan of rounds5, rounds20, rounds10 (no plan today); " + note,
                      self.tool("sweep", "sweep.ini", "--report"))

    def test_an_interrupted_run_of_a_setting_taken_out_begins_anew(self):
        folder = self.folder / "results/sweeps/sweep"
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = killed\ntrain.weight_decay = 0.5\n")
        with mock.patch.object(sweep.LocalRuns, "run_all", lambda runs: runs._launch(
                runs.sweep.jobs[0], ["run", "run.ini", *sweep.arguments_of(runs.sweep.jobs[0])])):
            self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.assertTrue((folder / "run_seed1.ckpt.5.h5").exists())
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = good\n")
        (folder / "run_seed1.h5").rename(folder / "kept")
        with h5py.File(folder / "kept", "r+") as file:
            file.attrs["config"] = file.attrs["config"].replace("name=killed", "name=good")
        (folder / "kept").rename(folder / "run_seed1.h5")
        self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.assertEqual(self.gone_on()[1], [])
        self.assertNotIn("train.weight_decay", load(folder / "run_seed1.h5").config)
        self.assertTrue((folder / "run_seed1.old1.ckpt.5.h5").exists())

    def test_results_of_other_data(self):
        self.ini(SWEEP)
        how = ("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.tool(*how)
        for digest, left in (("aa", 0), ("bb", 0)):  # the results do not say what data they are of
            self.assertIn(f"{left} of 6 runs are left", self.tool(*how, FAKE_DIGEST=digest))
        for path in (self.folder / "results/sweeps/sweep").glob("*.h5"):
            path.unlink()
        for digest, left in (("aa", 6), ("aa", 0), ("bb", 6)):
            self.assertIn(f"{left} of 6 runs are left", self.tool(*how, FAKE_DIGEST=digest))
        self.assertIn("0 of 6 runs are left", self.tool(*how))

    def test_results_of_other_code(self):
        self.ini(SWEEP)
        how = ("sweep", "sweep.ini", "--local", "--ranks", "1")
        for digest, left in (("aa", 6), ("aa", 0), ("bb", 6)):
            self.assertIn(f"{left} of 6 runs are left", self.tool(*how, FAKE_CODE=digest))

    def test_a_metric_that_no_run_has_ends_the_sweep_before_anything_runs(self):
        validated = "data.validation_fraction = 0.1\nselect = validation\n"
        for more, expected in (
                ("metric = global_acuracy\n", "sweep: sweep.ini:6: no run will have a series 'global_acuracy' (did you "
                 "mean 'global_accuracy'?); there are train_loss, global_accuracy"),
                (validated + "metric = global_loss\n", "sweep: sweep.ini:7: no run will have a series "
                 "'validation_global_loss' (did you mean 'validation_global_accuracy'?); there are train_loss")):
            self.ini(SWEEP + more)
            for how in ((), ("--submit",), ("--local", "--ranks", "1")):
                self.assertIn(expected, self.tool("sweep", "sweep.ini", *how, code=2))
        self.assertEqual(self.calls("run "), [])
        self.ini(SWEEP + validated)
        self.assertIn("#SBATCH --array=0-5", self.tool("sweep", "sweep.ini"))

    def test_runs_of_which_none_can_be_ranked_are_a_failure(self):
        said = "no point can be ranked: every one has diverged or has no global_accuracy of all its seeds"
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = rated\nrun.rounds = 3\ntrain.lr = 5, 6\n")
        for _ in range(2):
            self.assertIn(said, self.tool("sweep", "sweep.ini", "--local", "--ranks", "1", code=1))
        self.assertIn(said, self.tool("sweep", "sweep.ini", "--report", code=1))
        self.ini("[sweep]\nbase = run.ini\nrun.rounds = 3\n")  # the stand-in evaluates every fifth round
        self.assertIn("metric global_accuracy was never evaluated",
                      self.tool("sweep", "sweep.ini", "--local", "--ranks", "1", code=1))
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = rated\nrun.rounds = 3\ntrain.lr = 0.5, 6\n")
        self.assertIn("best (", self.tool("sweep", "sweep.ini", "--local", "--ranks", "1"))

    def test_a_failed_run_is_named_and_the_others_go_on(self):
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = fail, good\n")
        said = self.tool("sweep", "sweep.ini", "--local", "--ranks", "1", code=1)
        self.assertIn("[1/2] namefail_seed1: failed: fail on purpose (namefail_seed1.log)\n", said)
        self.assertIn("[2/2] namegood_seed1: finished", said)

    def test_several_at_a_time(self):
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = slow\nrun.rounds = 10, 11, 12, 13\n")
        at_work, most = [], []
        launched = launch.run

        def counted(command, *rest):
            at_work.append(command)
            most.append(len(at_work))
            try:
                return launched(command, *rest)
            finally:
                at_work.remove(command)

        with mock.patch.object(launch, "run", counted), mock.patch.object(launch, "cores", lambda: 3):
            said = self.tool("sweep", "sweep.ini", "--local", "3", "--ranks", "1")
        self.assertEqual(max(most), 3)
        for number in range(1, 5):
            self.assertRegex(said, rf"(?m)^\[{number}/4\] rounds1\d_seed1: finished in \d+ s$")
        self.assertIn("| 13         |", said)

    def test_a_failure_among_several_is_named_and_the_others_go_on(self):
        self.ini("[sweep]\nbase = run.ini\nalgorithm.name = fail, good, typo, slow\nrun.rounds = 5\n")
        with mock.patch.object(launch, "cores", lambda: 2):
            said = self.tool("sweep", "sweep.ini", "--local", "2", code=1)
        for text in ("namefail_seed1: failed: fail on purpose (namefail_seed1.log)", "namegood_seed1: finished",
                     "nametypo_seed1: failed: typo on purpose (nametypo_seed1.log)", "nameslow_seed1: finished"):
            self.assertRegex(said, rf"(?m)^\[\d/4\] {re.escape(text)}")
        self.assertIn("2 of 4 runs failed: namefail_seed1, nametypo_seed1; each has its reason in "
                      "results/sweeps/sweep/NAME.log\n", said)

    def stopped(self, method, folder):
        """What a sweep of three runs says that is stopped as two of them are at work."""
        self.ini(f"[sweep]\nbase = run.ini\nalgorithm.name = {method}\nrun.rounds = 400, 401, 402\n")

        def stop_both():
            deadline = time.monotonic() + 60
            while len(list(folder.glob("*.h5"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        other = threading.Thread(target=stop_both)
        other.start()
        with mock.patch.object(launch, "cores", lambda: 2):
            said = self.tool("sweep", "sweep.ini", "--local", "2", code=launch.INTERRUPTED)
        other.join()
        return said

    def test_a_run_that_leaves_no_checkpoint_begins_anew(self):
        said = self.stopped("stubborn", self.folder / "results/sweeps/sweep")
        self.assertEqual(said.count(": stopped without a checkpoint, the same command begins it anew\n"), 2)
        self.assertNotIn("goes on", said)

    def test_a_signal_interrupts_all_that_are_at_work(self):
        folder = self.folder / "results/sweeps/sweep"
        said = self.stopped("slow", folder)
        self.assertEqual(said.count(": interrupted, the same command goes on\n"), 2)
        self.assertIn("stopped: 1 runs are left\n", said)
        self.assertEqual(len(list(folder.glob("*.ckpt.*.h5"))), 2)

    def test_more_ranks_than_cores_are_refused(self):
        self.ini(SWEEP)
        with mock.patch.object(launch, "cores", lambda: 4):
            self.assertIn("--local 3 --ranks 2: 3 x 2 ranks at a time must be 1 to 4, the cores of this machine",
                          self.tool("sweep", "sweep.ini", "--local", "3", "--ranks", "2", code=2))
            self.assertIn("--local 0: must be at least 1", self.tool("sweep", "sweep.ini", "--local", "0", code=2))

    def test_an_array_has_the_runs_that_are_left(self):
        self.ini(SWEEP)
        script = self.tool("sweep", "sweep.ini", "--at-once", "2", "--partition", "fast")
        self.assertEqual(directives(script)["array"], "0-5%2")
        self.assertEqual(directives(script)["partition"], "fast")
        index = (self.folder / "results/sweeps/sweep/runs.1.tsv").read_text().splitlines()
        self.assertEqual(index[3].split("\t"), ["rounds5_seed2", "run.ini", "--train.lr=0.25", "--run.rounds=5",
                                                "--run.seed=2", "--run.output=results/sweeps/sweep/rounds5_seed2.h5"])
        self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.assertEqual(self.tool("sweep", "sweep.ini", "--submit"),
                         "nothing is left of 6 runs; --report names the best\n")
        for name in ("rounds5_seed1", "rounds10_seed1", "rounds5_seed2", "rounds20_seed2"):
            (self.folder / f"results/sweeps/sweep/{name}.h5").unlink()
        self.assertEqual(self.tool("sweep", "sweep.ini", "--submit"),
                         "submitted job 42: 4 of 6 runs (results/sweeps/sweep/runs.2.tsv)\n")
        submitted = directives((self.folder / "submitted.sbatch").read_text())
        self.assertEqual(submitted["array"], "0-3")
        index = (self.folder / "results/sweeps/sweep/runs.2.tsv").read_text().splitlines()
        self.assertEqual([line.split("\t")[0] for line in index],
                         ["rounds5_seed1", "rounds10_seed1", "rounds5_seed2", "rounds20_seed2"])
        # 20 rounds of 2 s are the longest.
        self.assertEqual(submitted["time"], "16")

    def test_a_task_runs_its_line(self):
        self.ini(SWEEP)
        (self.folder / "job.sh").write_text(self.tool("sweep", "sweep.ini"))
        self.script("srun", '#!/bin/bash\nif [ "$1" = --mpi=list ]; then echo pmix; exit 0; fi\n'
                            'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n')
        variables = {"SLURM_NTASKS": "1", "SLURM_ARRAY_TASK_ID": "4", "SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7"}
        done = subprocess.run(["bash", "job.sh"], cwd=self.folder, env=self.environment(**variables), text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.calls("run "), ["run run.ini --go-on --train.lr=0.25 --run.rounds=20 --run.seed=2 "
                                              "--run.output=results/sweeps/sweep/rounds20_seed2.h5"])
        variables["SLURM_ARRAY_TASK_ID"] = "6"
        done = subprocess.run(["bash", "job.sh"], cwd=self.folder, env=self.environment(**variables), text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no line 7 with a name and a configuration", done.stderr)

    def test_a_refused_point_ends_the_sweep_before_anything_runs(self):
        self.ini("[sweep]\nbase = run.ini\ntrain.lr = 0.1, 10\nrun.rounds = 5, 6\n")
        for how in ((), ("--submit",), ("--local", "--ranks", "1")):
            self.assertIn("sweep: sweep.ini: train.lr=10 run.rounds=5: refused on purpose\n",
                          self.tool("sweep", "sweep.ini", *how, code=2))
        self.assertEqual(self.calls("run "), [])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["bin", "calls.log", "run.ini", "sweep.ini"])

    def test_a_misspelt_key_of_a_run_is_named_with_its_line(self):
        self.ini("[sweep]\nbase = run.ini\nrun.rounds = 5, 6\ntrain.lrr = 0.1\n")
        self.assertIn("sweep: sweep.ini:4: run.rounds=5: unknown key 'train.lrr', refused",
                      self.tool("sweep", "sweep.ini", "--local", code=2))

    def test_the_script_starts_the_tool(self):
        for name in ("sweep", "submit"):
            done = subprocess.run([sys.executable, ROOT / "tools" / f"{name}.py", "--help"], text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"usage: tools/{name}.py ", done.stdout)

    def test_unusable_command_lines(self):
        self.ini(SWEEP)
        self.assertIn("sweep: none.ini: No such file", self.tool("sweep", "none.ini", code=2))
        self.assertIn("--submit goes with neither", self.tool("sweep", "sweep.ini", "--submit", "--local", code=2))
        self.assertIn("--at-once 0: must be at least 1", self.tool("sweep", "sweep.ini", "--at-once", "0", code=2))
        for where in ("--local", "--report"):
            for option, value in (("--at-once", "2"), ("--gpus", "1"), ("--time", "90"), ("--sbatch", "--qos=long")):
                self.assertIn(f"{option} is for jobs of a cluster; leave it out",
                              self.tool("sweep", "sweep.ini", where, f"{option}={value}", code=2))
        self.assertIn("--local 1 --ranks 0: 1 x 0 ranks",
                      self.tool("sweep", "sweep.ini", "--local", "--ranks", "0", code=2))
        self.assertIn("no such folder; nothing of this sweep has run",
                      self.tool("sweep", "sweep.ini", "--report", code=2))


if __name__ == "__main__":
    unittest.main()
