"""The containers' definitions: what they copy exists, and their scripts are shell scripts."""

import re
import subprocess
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
DEFINITIONS = sorted((PROJECT / "tools" / "apptainer").glob("*.def"))
SCRIPTS = ("post", "environment", "runscript", "test")


def stages(definition):
    """The definition's stages by name: {stage: {section with its arguments: lines}}."""
    found = {}
    for text in re.split(r"^Bootstrap:", definition.read_text(encoding="utf-8"), flags=re.M)[1:]:
        header, *sections = re.split(r"^%", text, flags=re.M)
        name = re.search(r"^Stage: (\w+)$", header, flags=re.M)[1]
        found[name] = {title.strip(): body.splitlines()
                       for title, _, body in (section.partition("\n") for section in sections)}
    return found


def read_by_cmake():
    """Folders and files that configuring, building and installing read, tests and benchmarks aside."""
    needed = {"CMakeLists.txt", "CMakePresets.json", "cmake", "tools"}
    lists = (PROJECT / "CMakeLists.txt").read_text(encoding="utf-8")
    needed |= set(re.findall(r"^\s*add_subdirectory\((\w+)\)", lists, flags=re.M)) - {"tests", "bench"}
    install = (PROJECT / "cmake/FedhpcInstall.cmake").read_text(encoding="utf-8")
    for names in re.findall(r"install\((?:DIRECTORY|FILES) ([\w/. ]+?) (?:DESTINATION|\n)", install):
        needed |= {name.split("/")[0] for name in names.split()}
    return needed


class Container(unittest.TestCase):
    def test_what_is_copied_exists(self):
        self.assertEqual(len(DEFINITIONS), 2)
        for definition in DEFINITIONS:
            copied = [line.split() for line in stages(definition)["build"]["files"] if line.strip()]
            for source, target in copied:
                if source != ".git":  # an archive has none
                    self.assertTrue((PROJECT / source).exists(), source)
                self.assertEqual(target, "/opt/src/", "a folder keeps its name")
            self.assertLessEqual(read_by_cmake(), {source for source, _ in copied})

    def test_the_final_stage_takes_what_the_first_one_leaves(self):
        for definition in DEFINITIONS:
            post = "\n".join(stages(definition)["build"]["post"])
            for line in stages(definition)["final"]["files from build"]:
                if line.strip():
                    self.assertIn(line.split()[0], post)

    def test_scripts_parse(self):
        for definition in DEFINITIONS:
            for stage, sections in stages(definition).items():
                for section in SCRIPTS:
                    if section in sections:
                        with self.subTest(definition.name, stage=stage, section=section):
                            checked = subprocess.run(["sh", "-n"], input="\n".join(sections[section]), text=True,
                                                     capture_output=True, check=False)
                            self.assertEqual(checked.returncode, 0, checked.stderr)


if __name__ == "__main__":
    unittest.main()
