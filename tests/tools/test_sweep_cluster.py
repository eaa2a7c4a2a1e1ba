"""Tests of sweep.py --submit: what an array is given, what is left out, and what its tasks do."""

import contextlib
import fcntl
import subprocess
import unittest

from jobs_case import directives
from test_sweep import SWEEP, Case

FOLDER = "results/sweeps/sweep"
SRUN = '#!/bin/bash\nif [ "$1" = --mpi=list ]; then echo pmix; exit 0; fi\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'


class ArrayCase(Case):
    def setUp(self):
        super().setUp()
        self.script("srun", SRUN)

    def sweep(self, *arguments, code=0, **variables):
        return self.tool("sweep", "sweep.ini", *arguments, code=code, **variables)

    def task(self, number, script="submitted.sbatch", **variables):
        variables = {"SLURM_NTASKS": "1", "SLURM_ARRAY_TASK_ID": str(number), "SLURM_JOB_ID": "7",
                     "SLURM_ARRAY_JOB_ID": "7", **variables}
        return subprocess.run(["bash", script], cwd=self.folder, env=self.environment(**variables), text=True,
                              capture_output=True, check=False)

    @contextlib.contextmanager
    def at_work(self, name):
        """A run of this name holds its lock and writes into its log."""
        folder = self.folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.log").write_text("round 1\n")
        with open(folder / f"{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Indices(ArrayCase):
    def test_each_submission_has_an_index_that_nothing_rewrites(self):
        self.ini(SWEEP)
        self.assertEqual(self.sweep("--submit"), f"submitted job 42: 6 of 6 runs ({FOLDER}/runs.1.tsv)\n")
        first = (self.folder / FOLDER / "runs.1.tsv").read_text()
        (self.folder / "submitted.sbatch").rename(self.folder / "first.sbatch")
        self.ini(SWEEP.replace("0.25", "0.25, 0.5"))
        self.assertEqual(self.sweep("--submit"), f"submitted job 42: 12 of 12 runs ({FOLDER}/runs.2.tsv)\n")
        self.assertIn(f"{FOLDER}/runs.3.tsv", self.sweep())
        self.assertEqual((self.folder / FOLDER / "runs.1.tsv").read_text(), first)
        self.task(3, "first.sbatch")  # put back into the queue since
        self.assertIn("--run.output=results/sweeps/sweep/rounds5_seed2.h5", self.calls("run ")[-1])

    def test_printing_sets_nothing_aside(self):
        self.ini(SWEEP)
        self.tool("sweep", "sweep.ini", "--local", "--ranks", "1")
        self.ini(SWEEP.replace("0.25", "0.5"))
        before = sorted(path.name for path in (self.folder / FOLDER).glob("*.h5"))
        self.assertIn("#SBATCH --array=0-5\n", self.sweep())
        self.assertEqual(sorted(path.name for path in (self.folder / FOLDER).glob("*.h5")), before)
        self.assertIn("6 results are of other settings; --submit sets them aside", self.warned)
        self.sweep("--submit")
        self.assertEqual(len(list((self.folder / FOLDER).glob("*.old1.h5"))), 6)


    def test_what_one_array_may_not_hold_is_several(self):
        self.script("scontrol", "#!/bin/sh\n[ \"$*\" != 'show config' ] || echo 'MaxArraySize            = 4'\n")
        self.ini(SWEEP)
        self.assertEqual(directives(self.sweep("--at-once", "2"))["array"], "0-3%2")
        self.assertIn("sweep: 6 runs are 2 arrays, as one has 4 tasks at most; this is the first, --submit submits all\n",
                      self.warned)
        self.assertEqual(self.sweep("--submit"), f"submitted job 42: 4 of 6 runs ({FOLDER}/runs.2.tsv)\n"
                                                 f"submitted job 42: 2 of 6 runs ({FOLDER}/runs.3.tsv)\n")
        self.assertEqual(directives((self.folder / "submitted.sbatch").read_text())["array"], "0-1")
        names = [(self.folder / FOLDER / f"runs.{number}.tsv").read_text().split("\t", 1)[0] for number in (2, 3)]
        self.assertEqual(names, ["rounds5_seed1", "rounds20_seed2"])

    def test_a_folder_s_per_cent_signs_are_no_placeholders(self):
        self.ini(SWEEP + "output = 50%a\n")
        self.assertEqual(directives(self.sweep())["output"], "50%%a/%A_%a.out")


class AtWork(ArrayCase):
    def test_runs_at_work_are_not_submitted_again(self):
        self.ini(SWEEP)
        with self.at_work("rounds20_seed1"), self.at_work("rounds5_seed2"):
            said = self.sweep("--submit")
            self.assertIn("submitted job 42: 4 of 6 runs", said)
            self.assertIn("sweep: 2 runs are at work and left out: rounds20_seed1, rounds5_seed2\n", self.warned)
            self.assertEqual(self.sweep("--report").count("at work"), 2)
            self.assertEqual(directives((self.folder / "submitted.sbatch").read_text())["array"], "0-3")
            for number in range(4):
                self.task(number)
            self.assertEqual(self.sweep("--submit"), "nothing is left of 6 runs but 2 at work; --report names the best\n")
        self.assertIn("2 of 6 runs", self.sweep("--submit"))

    def test_a_task_leaves_the_log_of_a_run_at_work_alone(self):
        self.ini(SWEEP)
        self.sweep("--submit")
        with self.at_work("rounds5_seed1"):
            done = self.task(0)
            self.assertEqual((done.returncode, self.calls("run ")), (2, []), done.stdout)
            self.assertIn("rounds5_seed1: another run is writing it; nothing is run", done.stdout)
            self.assertEqual((self.folder / FOLDER / "rounds5_seed1.log").read_text(), "round 1\n")
        done = self.task(0)  # the lock is still there, and nobody holds it
        self.assertEqual((done.returncode, len(self.calls("run "))), (0, 1), done.stderr)
        self.assertNotIn("round 1\n", (self.folder / FOLDER / "rounds5_seed1.log").read_text())


class Refused(ArrayCase):
    def test_refused_trials_are_left_out_and_named(self):
        """The planner refuses learning rates of 9 and above."""
        self.ini("[sweep]\nbase = run.ini\nrun.rounds = 5\ntrain.lr = integer(7, 10)\ntrials = 12\nseeds = 1-2\n")
        self.assertIn("4 of 8 runs", self.sweep("--submit"))
        self.assertRegex(self.warned, r"sweep: 2 trials are refused and left out: trial\d+, trial\d+; --report says why\n")
        self.assertEqual(directives((self.folder / "submitted.sbatch").read_text())["array"], "0-3")
        for number in range(4):
            self.assertEqual(self.task(number).returncode, 0)
        self.assertEqual(self.sweep("--submit"), "nothing is left of 8 runs but 4 of refused trials; --report names the best\n")
        report = self.sweep("--report")
        self.assertEqual(report.count("| failed: refused on purpose"), 2, report)
        self.assertIn("| best ", report)

    def test_a_trial_that_is_refused_no_longer_is_run(self):
        self.ini("[sweep]\nbase = run.ini\nrun.rounds = 3\nleast_rounds = 1\ntrain.lr = 1, 9\ntrials = 8\n"
                 "algorithm.name = rated\n")
        self.assertIn("1 of 2 runs of rung 1 of 2", self.sweep("--submit"))
        self.assertIn("2 of 2 runs of rung 1 of 2", self.sweep("--submit", FAKE_LIMIT="20"))

    def test_a_trial_that_an_array_has_left_out_is_tried_here(self):
        self.ini("[sweep]\nbase = run.ini\nrun.rounds = 3\nleast_rounds = 1\ntrain.lr = 1, 9\ntrials = 8\n"
                 "algorithm.name = rated\n")
        self.sweep("--submit")
        self.task(directives((self.folder / "submitted.sbatch").read_text())["array"])
        self.sweep("--local", "--ranks", "1", code=1, FAKE_LIMIT="20")  # it diverges in the next rung
        self.assertEqual(["--go-on" in call for call in self.calls("run ") if "train.lr=9" in call], [False, True])

    def test_a_halved_sweep_does_not_wait_for_a_refused_trial(self):
        self.ini("[sweep]\nbase = run.ini\nrun.rounds = 3\nleast_rounds = 1\ntrain.lr = 1, 9\ntrials = 8\n"
                 "algorithm.name = rated\n")
        for rung in (1, 2):
            self.assertIn(f"runs of rung {rung} of 2", self.sweep("--submit"))
            self.task(directives((self.folder / "submitted.sbatch").read_text())["array"])
        self.assertIn("nothing is left", self.sweep("--submit"))
        self.assertIn("best (", self.sweep("--report"))


class Metrics(ArrayCase):
    def test_one_that_no_run_will_record_ends_the_sweep(self):
        for metric, hint, key in (("validation_global_accuracy", "set data.validation_fraction", "data.validation_fraction = 0.2"),
                                  ("simulated_seconds", "set a key of network", "network.latency_ms = 5")):
            self.ini(SWEEP + f"metric = {metric}\n")
            for how in ((), ("--submit",), ("--local", "--ranks", "1")):
                said = self.sweep(*how, code=2)
                self.assertIn(f"sweep: sweep.ini:6: no run will have a series '{metric}' ({hint}); there are train_loss, ", said)
                self.assertNotIn(metric, said.split("; there are ")[1])
            self.ini(SWEEP + f"metric = {metric}\n{key}\n")
            self.assertIn("#SBATCH --array=0-5", self.sweep())
        self.ini(SWEEP + "metric = validation_global_accuracy\ndata.partition = file\n")
        self.assertIn("#SBATCH --array=0-5", self.sweep(), "the file says who sets aside what")
        self.assertEqual(self.calls("run "), [])


if __name__ == "__main__":
    unittest.main()
