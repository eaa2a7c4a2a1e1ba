"""Tests of reproduce.py in the background: start, status, stop, resumption and what is refused."""

import fcntl
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduce_support import ReproduceCase  # noqa: E402

from fedhpc.tools import results, work_folder  # noqa: E402
from fedhpc.tools.paper_table import PaperError  # noqa: E402


class Background(ReproduceCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.end)

    def end(self):
        """No test leaves a process behind."""
        if work_folder.holder(self.results) == "alone":
            self.call("--stop")

    def pid(self):
        return work_folder.process_id(self.results)

    def idle(self):
        return not work_folder.holder(self.results)

    def test_start_status_stop_and_resumption(self):
        self.paper("slow", "good", rounds=600)
        self.assertIn("nothing was ever run here", self.call("--status").stdout)
        start = self.call("--seeds", "1", "--background")
        self.assertEqual(start.returncode, 0, start.stderr)
        pid = self.pid()
        self.assertIn(f"process {pid} works in the background", start.stdout)
        self.assertEqual(os.getsid(pid), pid)  # in a session of its own
        self.assertNotEqual(os.getsid(pid), os.getsid(0))
        self.wait_for(lambda: (self.results / "slow_seed1.h5").exists(), "the first run")

        status = self.call("--status").stdout
        self.assertRegex(status, rf"at work since \S+, process {pid} on \S+")
        self.assertRegex(status, r"run 1 of 2: slow_seed1 round \d+ of 600")
        self.assertIn("toy: 2 rows, 0 % done: 2 pending (seeds: 1)", status)
        for second in (self.call("--seeds", "1", "--background"), self.call("--seeds", "1")):
            self.assertEqual(second.returncode, 2)
            self.assertIn("another reproduce.py is at work there; --status tells what it does", second.stderr)
        self.assertEqual(len(self.calls()), 1)

        stop = self.call("--stop")
        self.assertEqual(stop.returncode, 0, stop.stdout)
        self.assertEqual(stop.stdout, f"process {pid} has ended: stopped: 1 of 2 runs are left\n")
        self.assertIsNone(self.pid())
        self.assertEqual(results.load(self.results / "slow_seed1.h5").status, "interrupted")
        status = self.call("--status").stdout
        self.assertRegex(status, r"nobody is at work; last started \S+, ended \S+: stopped: 1 of 2 runs are left")
        self.assertEqual(self.call("--stop").stdout, "nobody is at work\n")

        self.paper("slow", "good", rounds=600)
        again = self.call("--seeds", "1", "--background", "--budget", "0.1")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.wait_for(self.idle, "the end of the budget")
        self.assertTrue(self.calls()[1].startswith("resume "))
        log = (self.results / "reproduce.log").read_text()
        self.assertEqual(log.count("to be resumed by the next call"), 2)
        self.assertIn("--budget 0.1", log)
        self.assertTrue((self.results / "table.csv").exists())

    def test_failures_before_the_first_run_are_told_at_once(self):
        self.paper("good")
        for arguments, message in ((["--fedhpc", "none"], "none: no such program"),
                                   (["--only", "x"], "no row contains")):
            done = self.call("--background", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(message, done.stderr)
        self.assertFalse((self.results / "reproduce.log").exists())

    def test_nothing_to_do(self):
        self.paper("good")
        self.call("--seeds", "1")
        done = self.call("--seeds", "1", "--background")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_for(self.idle, "its end")
        self.assertEqual(len(self.calls()), 1)
        status = self.call("--status").stdout
        self.assertIn("nothing was left to do", status)
        self.assertIn("toy: 1 rows, 100 % done: 1 done (seeds: 1)", status)
        self.assertIn("toy: 1 rows, 0 % done: 1 pending (seeds: 2)", self.call("--status", "--seeds", "2").stdout)

    def test_a_killed_reproduce_is_no_obstacle(self):
        """Its lock goes with it; a process id that stays behind is nobody's."""
        self.paper("slow", rounds=600)
        with subprocess.Popen(self.command("--seeds", "1"), env=self.environment(),
                              stdout=subprocess.DEVNULL) as process:
            self.wait_for(lambda: (self.results / "slow_seed1.h5").exists(), "the first run")
            self.wait_for(lambda: self.pid() == process.pid, "its process id")
            program = int(subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout)
            process.kill()
        os.kill(program, signal.SIGUSR1)  # mpirun, which the kill has left behind, ends with a checkpoint
        self.wait_for(lambda: results.load(self.results / "slow_seed1.h5").status == "interrupted", "its checkpoint")
        self.assertEqual(self.pid(), process.pid)
        self.assertIn("ended without a word (killed?)", self.call("--status").stdout)
        self.assertEqual(self.call("--stop").stdout, "nobody is at work\n")
        self.assertIn("to be resumed", self.call("--seeds", "1", "--budget", "0.02").stdout)

    def test_a_run_that_a_killed_call_has_left_is_waited_for(self):
        self.paper("good")
        self.results.mkdir(parents=True)
        work_folder.Notice(self.results, "reproduce.py toy", 1).note(job="good_seed1")
        with open(self.results / "good_seed1.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("(killed?); its run good_seed1 is still at work, the next call waits for it\n",
                          self.call("--status").stdout)
            short = self.call("--seeds", "1", "--budget", "0.01")
            self.assertIn("    left to the run that is writing it\n", short.stdout)
            self.assertIn("pending (0 of 1 seeds)", short.stdout)
            said = ""
            with subprocess.Popen(self.command("--seeds", "1", "--budget", "1"), env=self.environment(), stdout=subprocess.PIPE,
                                  text=True) as process:
                for line in process.stdout:
                    said += line
                    if "waits for" in line:
                        self.assertEqual(self.calls(), [])
                        fcntl.flock(lock, fcntl.LOCK_UN)
        self.assertEqual((short.returncode, process.returncode), (0, 0))
        self.assertIn("    waits for the run that is writing it\n    finished in ", said)
        self.assertEqual(len(self.calls()), 1)

    def test_one_on_another_host_is_left_alone(self):
        self.results.mkdir(parents=True)
        with work_folder.at_work(self.results):
            work_folder.Notice(self.results, "reproduce.py toy", 1).note(host="elsewhere")
            with self.assertRaisesRegex(PaperError, "works on elsewhere; use --stop there"):
                work_folder.stop(self.results)

    def test_tasks_share_the_folder_and_exclude_one_that_works_for_all_rows(self):
        self.results.mkdir(parents=True)
        with work_folder.task_at_work(self.results, "a_seed1"), work_folder.task_at_work(self.results, "a_seed2"):
            self.assertEqual(work_folder.holder(self.results), "tasks")
            self.assertEqual(work_folder.stop(self.results), ("tasks of SLURM are at work; scancel ends them", False))
            for other in (work_folder.at_work(self.results), work_folder.task_at_work(self.results, "a_seed1")):
                with self.assertRaisesRegex(PaperError, "another reproduce.py is at work"), other:
                    pass
        self.assertEqual(work_folder.holder(self.results), "")
        with work_folder.at_work(self.results):
            self.assertEqual(work_folder.holder(self.results), "alone")


if __name__ == "__main__":
    unittest.main()
