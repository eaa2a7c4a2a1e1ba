"""The container's definition: what it copies exists, and its scripts are shell scripts."""

import re
import subprocess
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
DEFINITION = PROJECT / "tools" / "apptainer" / "fedhpc.def"
SCRIPTS = ("post", "environment", "runscript", "test")


def stages():
    """The definition's stages by name: {stage: {section with its arguments: lines}}."""
    found = {}
    for text in re.split(r"^Bootstrap:", DEFINITION.read_text(encoding="utf-8"), flags=re.M)[1:]:
        header, *sections = re.split(r"^%", text, flags=re.M)
        name = re.search(r"^Stage: (\w+)$", header, flags=re.M)[1]
        found[name] = {title.strip(): body.splitlines()
                       for title, _, body in (section.partition("\n") for section in sections)}
    return found


class Container(unittest.TestCase):
    def test_what_is_copied_exists(self):
        copied = [line.split() for line in stages()["build"]["files"] if line.strip()]
        for source, target in copied:
            self.assertTrue((PROJECT / source).exists(), source)
            self.assertEqual(target, "/opt/src/", "a folder keeps its name")
        # All that a build without tests and benchmarks reads.
        needed = {line.split("(", 1)[1].split(")")[0].split()[0]
                  for line in (PROJECT / "CMakeLists.txt").read_text(encoding="utf-8").splitlines()
                  if line.strip().startswith("add_subdirectory(")} - {"tests", "tests/fuzz", "bench"}
        self.assertLessEqual(needed | {"CMakeLists.txt", "CMakePresets.json", "VERSION", "cmake", "include", "tools"},
                             {source for source, _ in copied})

    def test_the_final_stage_takes_what_the_first_one_leaves(self):
        post = "\n".join(stages()["build"]["post"])
        for line in stages()["final"]["files from build"]:
            if line.strip():
                self.assertIn(line.split()[0] + "/", post)

    def test_scripts_parse(self):
        for stage, sections in stages().items():
            for section in SCRIPTS:
                if section in sections:
                    with self.subTest(stage=stage, section=section):
                        checked = subprocess.run(["sh", "-n"], input="\n".join(sections[section]), text=True,
                                                 capture_output=True, check=False)
                        self.assertEqual(checked.returncode, 0, checked.stderr)


if __name__ == "__main__":
    unittest.main()
