"""Whether the list of planted defects is still one of these sources: each can be planted, and each room has one."""

import collections
import unittest

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


if __name__ == "__main__":
    unittest.main()
