"""Under srun: signals, which the ranks get straight from SLURM, with time to end their round; and srun without PMIx.

    python3 signals_test.py --fedhpc build/release/fedhpc [unittest arguments]
"""

import shutil
import sys
import tempfile
import time
import unittest
from pathlib import Path

from slurm_support import Cluster, missing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "app"))
import app_support  # noqa: E402
from app_support import SMALL_RUN, finish, rounds_in, wait_until  # noqa: E402

TIME_LIMIT = 150.0  # s, by which a job of one minute has ended
CONFIG = """[run]
rounds = 100000
checkpoint_every = 0
collective_timeout = 60
""" + SMALL_RUN + "block = 2\n"
# Local steps of a round: one that takes about a second, one that takes minutes.
SECOND = "--train.local_steps=20000"
MINUTES = "--train.local_steps=2000000"
SHORT = "--train.local_steps=500"


class SrunSignals(unittest.TestCase):
    cluster: Cluster

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fedhpc_srun_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "run.ini").write_text(CONFIG)
        self.path = self.folder / "run.h5"

    def srun(self, *command, options=()):
        """Starts the program on two ranks."""
        process = self.cluster.start("srun", "--mpi=pmix", "-n", "2", *options, app_support.options.fedhpc,
                                     *command, cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def begin(self, *arguments, until="round", options=()):
        """Starts a run and waits until it has done a round (or has its file): srun and the job's id."""
        process = self.srun("run", "run.ini", *arguments, options=options)
        wait_until(process, lambda: self.path.exists() and (until == "file" or rounds_in(self.path) > 0))
        job, = self.cluster.jobs()
        return process, job

    def interrupted(self, process):
        """Waits for the end of a run that a signal has reached and takes it up again.

        Its rounds and what srun said.
        """
        done = finish(process)
        self.assertEqual(done.returncode, 75, done.stderr)
        rounds = rounds_in(self.path)
        self.assertIn(f"interrupted after round {rounds}/100000; to go on: fedhpc resume run.h5", done.stdout)
        self.assertNotIn("fedhpc:", done.stderr)
        self.assertEqual([p.name for p in self.folder.glob("run.ckpt.*")], [f"run.ckpt.{rounds}.h5"])
        self.no_jobs()
        resumed = finish(self.srun("resume", "run.h5", f"--run.rounds={rounds + 2}"))
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn(f"going on after round {rounds} from run.ckpt.{rounds}.h5", resumed.stdout)
        self.assertEqual(rounds_in(self.path), rounds + 2)
        return rounds, done.stderr

    def no_jobs(self):
        self.cluster.wait(lambda: not self.cluster.jobs())

    def test_a_signal_ends_the_run_after_its_round(self):
        for name in ("TERM", "INT", "USR1"):
            with self.subTest(name):
                process, job = self.begin(SECOND)
                self.cluster.call("scancel", f"--signal={name}", job)
                sent_in = rounds_in(self.path) + 1
                # One more where the signal came as the round was ending.
                rounds, _ = self.interrupted(process)
                self.assertLessEqual(rounds, sent_in + 1)
                self.no_jobs()
                for file in self.folder.glob("*.h5"):
                    file.unlink()

    def test_ranks_that_do_not_find_each_other_are_refused(self):
        process = self.cluster.start("srun", "--mpi=none", "--quiet", "-n", "2", app_support.options.fedhpc, "run", "run.ini",
                                     cwd=self.folder)
        done = finish(process)
        self.assertEqual(done.returncode, 2, done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("fedhpc: ")]
        self.assertRegex("\n".join(said), r"\Afedhpc: error: srun has started 2 tasks, but MPI \(\S+\) knows of 1 rank: .*"
                                          r"srun --mpi=pmix[^\n]*\Z")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run.ini"])

    def test_a_cancelled_job_can_be_taken_up(self):
        """scancel sends SIGTERM, and SIGKILL when KillWait has passed."""
        process, job = self.begin(SHORT)
        self.cluster.call("scancel", job)
        self.interrupted(process)

    def test_a_job_is_told_before_its_time_is_up(self):
        # SLURM looks every 30 s; a limit is a whole number of minutes.
        process, _ = self.begin(SECOND, options=("--time=1", "--signal=USR1@55"))
        self.interrupted(process)

    def test_a_job_whose_time_is_up_can_be_taken_up(self):
        """Every rank gets SIGTERM twice within milliseconds, and SIGKILL when KillWait has passed."""
        process, _ = self.begin(SECOND, options=("--time=1",))
        self.cluster.wait(lambda: process.poll() is not None, TIME_LIMIT)
        _, said = self.interrupted(process)
        self.assertIn("DUE TO TIME LIMIT", said)

    def test_a_second_signal_ends_at_once(self):
        process, job = self.begin(MINUTES, until="file")
        self.cluster.call("scancel", "--signal=TERM", job)
        time.sleep(2)
        self.assertIsNone(process.poll(), "the round goes on")
        self.cluster.call("scancel", "--signal=TERM", job)
        began = time.monotonic()
        self.assertEqual(finish(process).returncode, 1)
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual(list(self.folder.glob("run.ckpt.*")), [])
        self.no_jobs()


def skip(reason):
    print(f"skipped: SLURM {reason}")
    sys.exit(app_support.SKIPPED)


if __name__ == "__main__":
    if missing():
        skip(missing())
    with Cluster() as SrunSignals.cluster:
        if not SrunSignals.cluster.has_mpi("pmix"):
            skip("cannot start MPI programs: srun --mpi=list does not name pmix")
        app_support.main()
