"""Tests of what the tools say of a run that has failed, by its log."""

import unittest

from tool_support import Folder

from fedhpc.tools import launch, plan, sweep_rungs
from fedhpc.tools.paper_table import Job

WARNING = "fedhpc: warning: 3 clients have no test samples\n"
RULE = "-" * 74 + "\n"
OPEN_MPI = f"{RULE}mpirun noticed that process rank 1 with PID 7 on node a exited on signal 9 (Killed).\n{RULE}"
MPICH = "=   EXIT CODE: 9\n=====\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis may be\n"


class Reasons(Folder):
    def reason(self, text):
        log = self.folder / "run.log"
        log.write_text(text)
        return launch.error_message(log, 137)

    def test_a_warning_is_no_reason(self):
        for text, reason in ((OPEN_MPI, OPEN_MPI.splitlines()[1]), (MPICH, MPICH.splitlines()[2])):
            self.assertEqual(self.reason(f"round 1\n{WARNING}{text}"), f"{reason} (exit code 137)")
        self.assertEqual(self.reason(f"a.out: no such library\n{WARNING}{RULE}the job ends\n"),
                         "a.out: no such library (exit code 137)")
        self.assertEqual(self.reason(WARNING), "no output (exit code 137)")

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


if __name__ == "__main__":
    unittest.main()
