"""Whether the list of planted defects is still one of these sources: each can be planted, and each room has one. And what
counts as caught."""

import collections
import contextlib
import io
import subprocess
import unittest
from unittest import mock

import mutants
from mutants import MUTANTS, SOURCE, places


class TheList(unittest.TestCase):
    def test_the_text_of_each_is_in_its_file_once(self):
        for mutant in MUTANTS:
            with self.subTest(mutant.name):
                self.assertTrue((SOURCE / mutant.file).is_file(), f"there is no {mutant.file}")
                self.assertEqual(places(mutant), 1, f"{mutant.right!r} in {mutant.file}: the source has moved on; mend the mutant")
                self.assertNotEqual(mutant.right, mutant.wrong)

    def test_names_are_of_one_each(self):
        names = collections.Counter(mutant.name for mutant in MUTANTS)
        self.assertEqual([name for name, count in names.items() if count > 1], [])

    def test_each_room_has_one(self):
        folders = [folder for folder in (SOURCE / "src").iterdir() if any(folder.glob("*.cpp"))]
        self.assertGreater(len(folders), 10)
        for folder in [*folders, SOURCE / "python" / "src", SOURCE / "python" / "fedhpc"]:
            with self.subTest(folder.name):
                self.assertTrue(any((SOURCE / mutant.file).is_relative_to(folder) for mutant in MUTANTS),
                                f"no mutant below {folder}")


# What ctest prints at its end, by what has become of one test; another one asked to be skipped.
NONE = """
100% tests passed, 0 tests failed out of 2

The following tests did not run:
\t  2 - rounds_test.ranks_4 (Skipped)
"""
LIST = NONE + """
The following tests FAILED:
\t  3 - rounds_test.ranks_1 ({})
Errors while running CTest
"""


class Verdicts(unittest.TestCase):
    def program(self, *ends):
        """main() with ctest's runs ending so, one after the other: its exit code and what it prints."""
        left = [LIST.format(end) if end else NONE for end in ends]

        def run(*command, **_):
            return subprocess.CompletedProcess(command, 0, left.pop(0) if command[0] == "ctest" else "", "")

        out, error = io.StringIO(), io.StringIO()
        text = (SOURCE / MUTANTS[0].file).read_text()
        with mock.patch.object(mutants, "run", run), mock.patch.object(mutants.sys, "argv", ["", MUTANTS[0].name]), \
                mock.patch.object(mutants.pathlib.Path, "write_text"), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = mutants.main()
        self.assertEqual((SOURCE / MUTANTS[0].file).read_text(), text)
        self.assertEqual(left, [])
        return code, out.getvalue() + error.getvalue()

    def test_what_fails_or_crashes_has_caught_it(self):
        for end in ("Failed", "SEGFAULT", "Subprocess aborted"):
            self.assertEqual(self.program("", end), (0, "core_generator: caught by rounds_test.ranks_1\n1 of 1 caught\n"))

    def test_what_did_not_run_or_to_no_end_has_not(self):
        self.assertEqual(self.program("", ""), (1, "core_generator: not caught\n0 of 1 caught\n"))
        for end in ("Not Run", "Timeout", "Subprocess killed"):
            self.assertEqual(self.program("", end), (1, f"core_generator: not caught: rounds_test.ranks_1 ({end})\n"
                                                        "0 of 1 caught\n"))

    def test_tests_that_fail_by_themselves_are_told_first(self):
        self.assertEqual(self.program("Failed"), (2, "without any defect: rounds_test.ranks_1\n"))
        self.assertEqual(self.program("Not Run"), (2, "without any defect: rounds_test.ranks_1 (Not Run)\n"))


if __name__ == "__main__":
    unittest.main()
