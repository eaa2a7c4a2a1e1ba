"""Tests of sweep.py's random trials and of successive halving."""

import fcntl
import math
import os
import subprocess
import sys
import time
from unittest import main, mock, skipIf

import h5py
import pandas as pd
from jobs_case import ROOT
from test_sweep import Case

from fedhpc.tools import sweep_runs  # noqa: E402
from fedhpc.tools.paper_table import JobState  # noqa: E402
from fedhpc.tools.results import Run, load  # noqa: E402
from fedhpc.tools.sweep_report import report  # noqa: E402
from fedhpc.tools.sweep_rungs import kept, standing  # noqa: E402
from fedhpc.tools.sweep_spaces import Space, draw, read_space  # noqa: E402

SHORT = os.environ.get("FEDHPC_TESTS") == "short"

BASE = "[sweep]\nbase = run.ini\n"
RANDOM = BASE + "train.lr = log_uniform(0.001, 1)\ntrain.momentum = uniform(0, 0.5)\ntrain.batch_size = integer(1, 3)\n" \
                "model.name = dnn, cnn2\n"
# The stand-in's accuracy is lr - lr/2t, so that the largest learning rate is best on every rung.
HALVING = BASE + "algorithm.name = rated\nrun.rounds = 9\nleast_rounds = 1\n"
FOLDER = "results/sweeps/sweep"


class Spaces(Case):
    def test_draws_are_spread_as_their_space_says(self):
        n = 4000
        for text, of, mean in (("uniform(-1, 3)", float, 1.0), ("integer(1, 5)", int, 3.0),
                               ("log_uniform(0.001, 10)", lambda value: math.log10(float(value)), -1.0)):
            space = read_space(text)
            values = [of(draw(space, 1, trial, "a.b")) for trial in range(n)]
            low, high = (math.log10(end) if "log" in text else end for end in (space.low, space.high))
            self.assertTrue(all(low <= value <= high for value in values), text)
            self.assertLess(abs(sum(values) / n - mean), 4 * (high - low) / math.sqrt(12 * n) + 0.01, text)
        counts = [[draw(["a", "b", "c"], 1, trial, "a.b") for trial in range(n)].count(one) for one in "abc"]
        self.assertTrue(all(abs(count - n / 3) < 150 for count in counts), counts)
        self.assertEqual({draw(Space("integer", 1, 3), 1, trial, "x.y") for trial in range(50)}, {"1", "2", "3"})

    def test_a_draw_is_a_function_of_seed_trial_and_key(self):
        few, more = (self.read(RANDOM + f"trials = {n}\n").points for n in (5, 12))
        self.assertEqual([point.values for point in more[:5]], [point.values for point in few])
        self.assertEqual([point.name for point in few], [f"trial{n}" for n in range(1, 6)])
        lr = [point.values["train.lr"] for point in few]
        self.assertEqual(len(set(lr)), 5)
        # As they were when results of such sweeps were first made.
        self.assertEqual(lr[:2], ["0.00131928", "0.112524"])
        narrow = self.read(BASE + "train.lr = log_uniform(0.001, 1)\ntrials = 5\n").points
        self.assertEqual([point.values["train.lr"] for point in narrow], lr)
        other = self.read(RANDOM + "trials = 5\ndraw_seed = 2\n").points
        self.assertFalse(set(lr) & {point.values["train.lr"] for point in other})

    def test_trials_that_repeat_earlier_ones_are_left_out(self):
        points = self.read(BASE + "train.batch_size = integer(1, 3)\ntrials = 40\n").points
        self.assertEqual(sorted(point.values["train.batch_size"] for point in points), ["1", "2", "3"])

    def test_a_key_of_one_method_is_drawn_for_that_method(self):
        points = self.read(BASE + "algorithm.name = fedavg, fedprox\nalgorithm.fedprox.mu = uniform(0, 1)\n"
                                  "trials = 12\n").points
        methods = [point.values["algorithm.name"] for point in points]
        self.assertEqual(methods.count("fedavg"), 1)
        self.assertGreater(methods.count("fedprox"), 2)
        self.assertTrue(all(("algorithm.fedprox.mu" in point.values) == (method == "fedprox")
                            for point, method in zip(points, methods)))

    def test_refusals(self):
        rounds = "run.rounds = 9\n"
        cases = [
            ("train.lr = loguniform(0.1, 1)\ntrials = 3\n", ":3: train.lr = loguniform(0.1, 1): has an unknown space "
             "'loguniform'; allowed: uniform(LOW, HIGH), log_uniform("),
            ("train.lr = uniform(0.1, 1)\n", ":3: train.lr is a space to draw from; say how often by trials = N"),
            ("train.lr = uniform(1, 0.1)\ntrials = 3\n", ":3: train.lr = uniform(1, 0.1): must go from a smaller"),
            ("train.lr = uniform(1)\ntrials = 3\n", "needs two numbers, as in uniform(1, 10)"),
            ("train.batch_size = integer(1, 2.5)\ntrials = 3\n", "needs two whole numbers, as in integer(1, 10)"),
            ("train.lr = log_uniform(0, 1)\ntrials = 3\n", "must begin above 0"),
            ("train.lr = uniform(0, 1), 2\ntrials = 3\n", "is no space; allowed"),
            ("train.lr = 0.1\ntrials = 3\n", ":4: trials = 3: no key varies"),
            ("train.lr = uniform(0, 1)\ntrials = none\n", ":4: trials = none: must be a whole number of at least 1"),
            ("train.lr = 1, 2\ndraw_seed = 3\n", "draw_seed is for random trials"),
            ("train.lr = uniform(0, 1)\ntrails = 3\n", ":4: unknown key 'trails' (did you mean 'trials'?)"),
            ("eta = 3\n" + rounds, ":3: eta is for halving; give least_rounds"),
            ("least_rounds = 1\neta = 1\n" + rounds, "eta = 1: must be a whole number of at least 2"),
            ("least_rounds = 4\n" + rounds, ":3: least_rounds = 4: no rung below run.rounds = 9 with eta = 3; allowed: "
             "at most 3"),
            ("least_rounds = 2\nrun.rounds = 9, 18\n", ":4: least_rounds = 2: halving needs one run.rounds"),
            ("least_rounds = 1\nrun.checkpoint_every = 0\n" + rounds, ":4: run.checkpoint_every = 0 leaves nothing"),
            ("least_rounds = 1\nrun.checkpoint_every = 00\n" + rounds, ":4: run.checkpoint_every = 00 leaves nothing"),
            ("least_rounds = 1\nrun.checkpoint_every = 5, 0\n" + rounds, "run.checkpoint_every = 5, 0 leaves nothing"),
            ("least_rounds = 1\nrun.checkpoint_every = integer(0, 5)\ntrials = 3\n" + rounds,
             ":4: run.checkpoint_every = integer(0, 5) leaves nothing"),
        ]
        for text, expected in cases:
            with self.subTest(text), self.assertRaises(sweep_runs.SweepError) as caught:
                self.read(BASE + text)
            self.assertIn(expected, str(caught.exception))

    def test_refused_trials_are_named_and_the_others_go_on(self):
        # The planner refuses 9 and above, the stand-in fails where the name of the method is typo.
        self.ini(BASE + "algorithm.name = good, typo\nrun.rounds = 5\ntrials = 8\n")
        said = self.tool("sweep", "sweep.ini", "--local", "--ranks", "1", code=1)
        self.assertRegex(said, r"\| typo +\| - +\| 0 of 1 \| failed: typo on purpose +\|")
        self.assertRegex(said, r"\| good .*\| best ")
        self.assertIn("failed: typo on purpose", self.tool("sweep", "sweep.ini", "--report"))
        self.ini(BASE + "train.lr = uniform(9, 20)\ntrials = 3\n", "all.ini")
        self.assertIn("refused on purpose", self.tool("sweep", "all.ini", "--local", "--ranks", "1", code=2))
        self.ini(BASE + "train.lr = uniform(5, 13)\ntrials = 6\n", "some.ini")
        lr = [float(point.values["train.lr"]) for point in self.read((self.folder / "some.ini").read_text()).points]
        taken = [number for number, value in enumerate(lr) if value < 9]
        self.assertTrue(0 < len(taken) < 6)
        self.assertIn(f"#SBATCH --array=0-{len(taken) - 1}\n", self.tool("sweep", "some.ini"))


class Halving(Case):
    def run_sweep(self, text, *more, code=0):
        self.ini(text)
        return self.tool("sweep", "sweep.ini", *(more or ("--local", "--ranks", "1")), code=code)

    def rows(self, said):
        """{learning rate: (rung, rounds, note)} of a table."""
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines()
                if line.startswith("|") and not line.startswith("|-")]
        head = rows[0]
        return {row[head.index("train.lr")]: (*row[head.index("rung"):head.index("rung") + 2], row[-1])
                for row in rows[1:]}

    def test_rungs(self):
        for rounds, least, eta, expected in ((81, 3, 3, (3, 9, 27, 81)), (100, 10, 3, (11, 33, 100)),
                                             (100, 1, 10, (1, 10, 100)), (5, 2, 2, (2, 5))):
            text = f"{BASE}run.rounds = {rounds}\nleast_rounds = {least}\neta = {eta}\n"
            self.assertEqual(self.read(text).rungs, expected)

    def test_a_rung_is_decided_by_its_own_rounds(self):
        given = self.read(HALVING + "rule = last\ntrain.lr = 1, 2, 3\n")
        curves = {"lr1_seed1": [.5, .1, .1], "lr2_seed1": [.4], "lr3_seed1": [.3]}
        states = {job.name: JobState("finished", Run(job.output, {"status": "complete"}, {}, pd.DataFrame(
            {"global_accuracy": curves[job.name]}, index=range(1, len(curves[job.name]) + 1)), {})) for job in given.jobs}
        rungs = standing(given, states)
        self.assertEqual([[point.name for point in rung.points] for rung in rungs], [["lr1", "lr2", "lr3"]] + [["lr1"]] * 2)
        self.assertEqual([job.name for job in rungs[-1].due], ["lr1_seed1"])

    def test_a_rung_cuts_what_had_diverged_by_its_end_and_nothing_else(self):
        given = self.read(HALVING + f"output = {self.folder}\nrule = last\n" + "train.lr = 1, 2, 3, 4, 5, 6\n")
        losses = {"lr1_seed1": [math.nan, 1.0], "lr6_seed1": [1.0, 1.0]}  # those of others are huge
        states = {job.name: JobState("finished", Run(job.output, {"status": "diverged"}, {}, pd.DataFrame(
            {"global_accuracy": [1 - number / 10, .1], "global_loss": losses.get(job.name, [1e9, 1e9])}, index=(1, 2)),
            {}, tested=(1, 2))) for number, job in enumerate(given.jobs)}
        for number, since, round_of_it in ((2, 1, 2), (3, 2, 2), (4, 0, 2)):
            with h5py.File(self.folder / f"lr{number}_seed1.ckpt.2.h5", "w") as file:
                file.create_group("state").attrs.update(diverged_since=since, round=round_of_it)
        (self.folder / "lr5_seed1.ckpt.2.h5").touch()  # one that is being written
        first = standing(given, states)[0]
        self.assertEqual([job.name for job in given.jobs if first.states[job.name].run.status == "diverged"],
                         ["lr1_seed1", "lr2_seed1"])
        self.assertEqual([point.name for point in kept(given, first)], ["lr3", "lr4"])

    def test_a_report_reads_so_many_values_as_there_are_points(self):
        calls = []
        for n in (9, 18, 36):
            given = self.read(HALVING + "rule = last\nseeds = 1-2\ntrain.lr = " + ", ".join(map(str, range(n))) + "\n")
            states = {job.name: JobState("finished", Run(job.output, {"status": "complete"}, {}, pd.DataFrame(
                {"global_accuracy": [number % n / 99] * 9}, index=range(1, 10)), {}))
                for number, job in enumerate(given.jobs)}
            with mock.patch.object(Run, "pick", autospec=True, side_effect=Run.pick) as pick:
                table = report(given, states)
            self.assertEqual((table.count("| cut "), table.count("| best ")), (n - n // 9, 1))
            calls.append(pick.call_count)
        of_best = len(given.seeds)  # the line below the table reads these once more
        self.assertEqual([count - of_best for count in calls], [n * (calls[0] - of_best) for n in (1, 2, 4)])

    def test_a_whole_run_that_was_not_evaluated_at_a_rungs_end_is_trained_anew(self):
        grid = HALVING.replace("least_rounds = 1\n", "") + "train.lr = 0.1, 0.2, 0.3\n"
        said = self.run_sweep(grid)
        rounds = {"0.1": [1, 3, 9], "0.2": [7, 9], "0.3": [7, 9]}
        for lr, evaluated in rounds.items():
            with h5py.File(self.folder / FOLDER / f"lr{lr}_seed1.h5", "a") as file:
                file["clients/evaluated_rounds"] = evaluated
                never = [t not in evaluated for t in range(1, 10)]
                file["rounds/global_accuracy"][...] = [math.nan if one else .01 for one in never]
        self.assertRegex(self.run_sweep(grid + "least_rounds = 1\n", "--report"),
                         r"\| 0.2 +\| 1 .*\| outdated: not evaluated after round 1, where a rung ends "
                         r"\(run.eval_every=\?\)")
        said = self.run_sweep(grid + "least_rounds = 1\n")
        self.assertEqual(self.rows(said), {"0.1": ("1", "1", "cut"), "0.2": ("1", "1", "cut"),
                                           "0.3": ("3", "9", "best")})
        self.assertIn(f"{FOLDER}/lr0.3_seed1.h5 is set aside: not evaluated after round 1", self.warned)
        self.assertEqual(sorted(path.name for path in (self.folder / FOLDER).glob("*.old1.h5")),
                         ["lr0.2_seed1.old1.h5", "lr0.3_seed1.old1.h5"])

    def test_an_infinite_value_is_no_result(self):
        given = self.read(BASE + "train.lr = 1, 2\nseeds = 1-2\nmetric = global_perplexity\nrule = last\n")
        states = {job.name: JobState("finished", Run(job.output, {"status": "complete"}, {}, pd.DataFrame(
            {"global_perplexity": [math.inf if job.name == "lr1_seed1" else 2.0]}, index=[1]), {}))
            for job in given.jobs}
        self.assertEqual([sweep_runs.result_of(given, point, states) for point in given.points],
                         [(None, None, 2), (2.0, 0.0, 2)])
        self.assertIn("| global_perplexity is not finite |", report(given, states))

    def test_the_best_go_on_from_their_checkpoints(self):
        text = HALVING + "train.lr = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9\n"
        said = self.run_sweep(text)
        self.assertEqual(self.rows(said), {
            **{f"0.{n}": ("1", "1", "cut") for n in range(1, 7)},
            "0.7": ("2", "3", "cut"), "0.8": ("2", "3", "cut"), "0.9": ("3", "9", "best")})
        self.assertIn("9 of 9 runs of rung 1 of 3 (to round 1) are left\n", said)
        self.assertIn("3 of 3 runs of rung 2 of 3 (to round 3) are left\n", said)
        self.assertIn("best (highest global_accuracy, best evaluated round of 9): --train.lr=0.9 (85)", said)
        begun, gone_on = self.gone_on()
        self.assertEqual((begun, len(gone_on)), (9, 4))
        self.assertTrue(all("--run.rounds=1 " in call for call in self.calls("run ")[:9]))
        self.assertEqual(gone_on[-1].split(),
                         ["run", "run.ini", "--go-on", "--algorithm.name=rated", "--train.lr=0.9", "--run.seed=1",
                          "--run.rounds=9", f"--run.output={FOLDER}/lr0.9_seed1.h5", "--run.progress=plain"])
        again = self.run_sweep(text)
        self.assertIn("0 of 1 runs of rung 3 of 3 (to round 9) are left\n", again)
        self.assertEqual(again.split("\n|", 1)[1], said.split("\n|", 1)[1])
        self.assertEqual(self.gone_on(), (begun, gone_on))
        self.assertEqual(self.tool("sweep", "sweep.ini", "--report"), "|" + said.split("\n|", 1)[1])

    @skipIf(SHORT, "half a minute; in the whole suite")
    def test_trials_may_be_random(self):
        said = self.run_sweep(HALVING + "train.lr = uniform(0.1, 1)\ntrials = 9\nseeds = 1-2\n")
        given = self.read(HALVING + "train.lr = uniform(0.1, 1)\ntrials = 9\n")
        best = max(given.points, key=lambda point: float(point.values["train.lr"]))
        self.assertIn(f"--train.lr={best.values['train.lr']} (", said)
        self.assertRegex(said, rf"\| {best.name.removeprefix('trial')} .*\| 3 +\| 9 .*\| 2 of 2 \| best")

    def test_the_earlier_of_two_that_tie_goes_on(self):
        said = self.run_sweep(HALVING + "train.lr = 0.5\ntrain.batch_size = 7, 8, 9\n".replace("train.batch_size", "x.y"))
        notes = [line.split("|")[-2].strip() for line in said.splitlines() if line.startswith("| ")][1:]
        self.assertEqual(notes, ["best", "cut, tied with y7", "cut, tied with y7"])

    def test_failed_and_diverged_trials_are_cut_and_named(self):
        said = self.run_sweep(HALVING + "train.lr = 4, 5, 0.1, 0.2, 0.3, 0.4\neta = 3\n", code=1)
        self.assertEqual(self.rows(said), {
            "4": ("1", "1", "failed: fail on purpose"), "5": ("2", "3", "diverged, at its end after round 2"), "0.1": ("1", "1", "cut"),
            "0.2": ("1", "1", "cut"), "0.3": ("1", "1", "cut"), "0.4": ("3", "9", "best")})
        self.assertIn("1 of 6 runs failed: lr4_seed1", said)
        # A trial that has failed is not tried again, and changes nothing.
        runs = len(self.calls("run "))
        self.assertEqual(self.rows(self.run_sweep(HALVING + "train.lr = 4, 5, 0.1, 0.2, 0.3, 0.4\neta = 3\n")),
                         self.rows(said))
        self.assertEqual(len(self.calls("run ")), runs)

    def test_where_all_have_failed_the_same_command_tries_again(self):
        text = HALVING + "train.lr = 4\nx.y = 1, 2\n"
        self.assertIn("no point is complete; 2 of 2 runs of rung 1 of 3 are not finished", self.run_sweep(text, code=1))
        self.run_sweep(text, code=1)
        self.assertEqual(len(self.calls("run ")), 4)

    def test_a_killed_sweep_goes_on_as_if_it_had_not_been(self):
        text = HALVING + "train.lr = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9\n"
        whole = self.run_sweep(text, "--local", "--ranks", "1", "--output", "whole")
        ended = {path.name: load(path).rounds for path in (self.folder / "whole").glob("*.h5") if "ckpt" not in path.name}
        self.ini(text)
        command = ["sweep.ini", "--local", "--ranks", "1"]
        for kill in range(5):
            process = subprocess.Popen([sys.executable, ROOT / "tools/sweep.py", *command],
                                       cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True)
            for _ in range(2 * kill + 2):  # lines it says
                process.stdout.readline()
            process.kill()
            process.communicate()
            time.sleep(0.5)  # the run that it has left
        said = self.tool("sweep", *command)
        self.assertEqual(self.rows(said), self.rows(whole))
        for name, rounds in ended.items():
            found = load(self.folder / FOLDER / name).rounds
            self.assertEqual(found["global_accuracy"].tolist(), rounds["global_accuracy"].tolist(), name)

    def test_a_run_that_a_killed_sweep_has_left_is_waited_for(self):
        text = HALVING + "train.lr = 0.1, 0.2, 0.3\n"
        folder = self.folder / FOLDER
        folder.mkdir(parents=True)
        with open(folder / "lr0.2_seed1.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.ini(text)
            said = ""
            with subprocess.Popen([sys.executable, ROOT / "tools/sweep.py", "sweep.ini", "--local", "--ranks", "1"],
                                  cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True) as process:
                for line in process.stdout:
                    said += line
                    if "waits for" in line:
                        fcntl.flock(lock, fcntl.LOCK_UN)
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(said.count("lr0.2_seed1: waits for the run that is writing it\n"), 1)
        self.assertIn("[2/3] lr0.2_seed1: finished", said)
        self.assertEqual(self.rows(said)["0.3"], ("3", "9", "best"))

    def test_more_rounds_or_another_eta_use_what_is_there(self):
        text = HALVING + "train.lr = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9\n"
        self.run_sweep(text)
        said = self.run_sweep(text.replace("rounds = 9", "rounds = 27"))
        self.assertEqual((self.gone_on()[0], len(self.gone_on()[1])), (9, 5))
        self.assertEqual(self.rows(said)["0.9"], ("4", "27", "best"))

    @skipIf(SHORT, "half a minute; in the whole suite")
    def test_an_array_is_a_rung(self):
        text = HALVING + "train.lr = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 4\n"
        self.script("srun", '#!/bin/bash\nif [ "$1" = --mpi=list ]; then echo pmix; exit 0; fi\n'
                            'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n')
        said = self.run_sweep(text, "--submit")
        self.assertEqual(said, f"submitted job 42: 9 of 9 runs of rung 1 of 3 (to round 1) ({FOLDER}/runs.1.tsv)\n"
                               "the same command submits the next rung, when these have ended\n")
        self.tasks(range(9))
        said = self.run_sweep(text, "--submit")
        self.assertIn("3 of 3 runs of rung 2 of 3 (to round 3)", said)
        self.tasks(range(3))
        self.assertIn("1 of 1 runs of rung 3 of 3 (to round 9)", self.run_sweep(text, "--submit"))
        self.tasks(range(1))
        self.assertEqual(self.run_sweep(text, "--submit"), "nothing is left of 1 runs of rung 3 of 3 (to round 9); "
                                                           "--report names the best\n")
        rows = self.rows(self.tool("sweep", "sweep.ini", "--report"))
        self.assertEqual((rows["0.8"], rows["4"]), (("3", "9", "best"), ("1", "1", "failed: fail on purpose")))
        self.assertEqual(len(self.calls("run ")), 13)  # 4 of them go on

    def tasks(self, numbers):
        for number in numbers:
            variables = {"SLURM_NTASKS": "1", "SLURM_ARRAY_TASK_ID": str(number), "SLURM_JOB_ID": "7",
                         "SLURM_ARRAY_JOB_ID": "7"}
            subprocess.run(["bash", "submitted.sbatch"], cwd=self.folder, env=self.environment(**variables),
                           capture_output=True, check=False)

    def test_a_cosine_is_that_of_the_whole_run(self):
        text = HALVING + "train.lr_warmup = 2\ntrain.lr_schedule = cosine, constant\n"
        one, other = self.read(text).jobs
        self.assertIn("train.lr_period=7", one.overrides)
        self.assertFalse([text for text in other.overrides if "period" in text])
        one, _ = self.read(text + "train.lr_period = 5\n").jobs
        self.assertIn("train.lr_period=5", one.overrides)
        for unchanged in ("train.lr_warmup = 9\n", "train.lr_unit = epoch\n"):
            one, _ = self.read(text.replace("train.lr_warmup = 2\n", unchanged)).jobs
            self.assertFalse([text for text in one.overrides if "period" in text])


if __name__ == "__main__":
    main()
