"""Tests of how the tools end a run, and of what they say of one that has failed, by its log."""

import os
import unittest

from tool_support import Folder

from fedhpc.tools import launch, plan, sweep_rungs
from fedhpc.tools.paper_table import Job

WARNING = "fedhpc: warning: 3 clients have no test samples\n"
RULE = "-" * 74 + "\n"
OPEN_MPI = f"{RULE}mpirun noticed that process rank 1 with PID 7 on node a exited on signal 9 (Killed).\n{RULE}"
MPICH = "=   EXIT CODE: 9\n=====\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis may be\n"


class Reasons(Folder):
    def reason(self, text, code=137):
        log = self.folder / "run.log"
        log.write_text(text)
        return launch.error_message(log, code)

    def test_a_warning_is_no_reason(self):
        for text, reason in ((OPEN_MPI, OPEN_MPI.splitlines()[1]), (MPICH, MPICH.splitlines()[2])):
            self.assertEqual(self.reason(f"round 1\n{WARNING}{text}"), f"{reason} (exit code 137)")
        self.assertEqual(self.reason(f"a.out: no such library\n{WARNING}{RULE}the job ends\n", 127),
                         "a.out: no such library (exit code 127)")
        self.assertEqual(self.reason(WARNING, 1), "no output (exit code 1)")

    def test_progress_is_no_reason_of_a_run_that_a_signal_has_ended(self):
        progress = "round 7/120  loss 0.3710\nround 8/120  loss 0.3631\n"
        for code, signal in ((137, "signal 9, SIGKILL"), (139, "signal 11, SIGSEGV"), (165, "signal 37")):
            self.assertEqual(self.reason(progress, code), f"killed by {signal} (exit code {code})")
        for code in (1, 128, 213, 255):  # of no signal
            self.assertEqual(self.reason(progress, code), f"round 8/120  loss 0.3631 (exit code {code})")

    def test_the_programs_own_words(self):
        for zero in ("", "\0"):  # of Open MPI 5
            text = f"{WARNING}{zero}fedhpc: error: no such key\nfedhpc: error: another\n{OPEN_MPI}"
            self.assertEqual(self.reason(text), "no such key")
            job = Job("run", None, (), {}, self.folder / "run.h5")
            self.assertEqual(sweep_rungs._last_words(job), "no such key")

    def test_those_of_a_plan(self):
        program = self.folder / "fedhpc"
        program.write_text(f"#!/bin/sh\nprintf '{WARNING.strip()}\\n\\0fedhpc: error: no such key\\n' >&2\nexit 2\n")
        program.chmod(0o755)
        with self.assertRaisesRegex(plan.PlanError, "^no such key$"):
            plan.make_plan(program, "a.ini", [], 1)


class Ends(Folder):
    def end(self, more, patience):
        """The Outcome of a program that takes two seconds to end after a signal, and ends at once at another."""
        script = f"trap 'sleep 2 & wait $!; {more}exit 75' USR1; trap 'exit 9' TERM; touch ready; while :; do sleep .1; done"
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        return launch.run(["bash", "-c", f"cd '{self.folder}'; {script}"], os.environ, self.folder / "run.log", float("inf"),
                          ready.exists, patience)

    def test_a_run_has_the_time_that_it_is_given(self):
        outcome = self.end("", 30.0)
        self.assertEqual((outcome.code, outcome.stopped), (launch.INTERRUPTED, True))
        self.assertNotEqual(self.end("", 0.2).code, launch.INTERRUPTED)

    def test_the_time_is_that_of_the_configuration(self):
        self.assertEqual([launch.patience_of({"run.grace_seconds": text}) for text in ("0", "20", "21", "300", "none")],
                         [60.0, 60.0, 61.0, 340.0, 60.0])
        self.assertEqual(launch.patience_of({}), 60.0)


if __name__ == "__main__":
    unittest.main()
