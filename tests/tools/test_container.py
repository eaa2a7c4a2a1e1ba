"""The containers' definitions: what they copy exists, and their scripts are shell scripts."""

import os
import re
import shutil
import subprocess
import tempfile
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
                self.assertIn(target, ("/opt/src/", f"/opt/src/{source}"), "a folder keeps its place and name")
                self.assertTrue("/" not in source or target.endswith(source), f"{source} would lose its folder")
            self.assertLessEqual(read_by_cmake(), {source.split("/")[0] for source, _ in copied})
            self.assertIn("results/papers", {source for source, _ in copied}, "results holds whatever was run there")

    def test_the_final_stage_takes_what_the_first_one_leaves(self):
        for definition in DEFINITIONS:
            post = "\n".join(stages(definition)["build"]["post"])
            for line in stages(definition)["final"]["files from build"]:
                if line.strip():
                    self.assertIn(line.split()[0], post)

    def test_the_commit_is_not_called_modified(self):
        for definition in DEFINITIONS:
            with self.subTest(definition.name), tempfile.TemporaryDirectory() as folder:
                def git(*words, folder=folder):
                    return subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], text=True,
                                          check=True, capture_output=True).stdout

                for name in ("kept", "left out/a b", "left out/c"):
                    path = Path(folder, name)
                    path.parent.mkdir(exist_ok=True)
                    path.touch()
                git("init", "-q")
                git("add", "-A")
                git("commit", "-q", "-m", "all")
                shutil.rmtree(Path(folder, "left out"))
                self.assertTrue(git("status", "--porcelain", "--untracked-files=no"))
                lines = stages(definition)["build"]["post"]
                commands = [number for number, line in enumerate(lines) if line.strip().startswith(("git ", "cmake --preset"))]
                self.assertEqual(len(commands), 2)
                subprocess.run(["sh", "-e"], input=lines[commands[0]], text=True, cwd=folder, check=True)
                self.assertEqual(git("status", "--porcelain", "--untracked-files=no"), "")
                Path(folder, "kept").write_text("changed")
                self.assertIn("kept", git("status", "--porcelain", "--untracked-files=no"), "a change still is one")

    def test_an_image_whose_modules_lack_a_library_fails_its_test(self):
        checks = "\n".join(stages(PROJECT / "tools/apptainer/fedhpc-gpu.def")["final"]["test"])
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("fedhpc", "exit 0"), ("ldd", 'echo "  $LOADS => not found"; exit $CODE')):
                Path(folder, name).write_text(f"#!/bin/sh\n{text}\n")
                Path(folder, name).chmod(0o755)
            for library, code, passes in (("libcuda.so.1", 0, True), ("libcudnn.so.9", 0, False), ("libcuda.so.1", 1, False)):
                done = subprocess.run(["sh", "-e"], input=checks, text=True, check=False, capture_output=True,
                                      env={"PATH": f"{folder}:{os.environ['PATH']}", "LOADS": library, "CODE": str(code)})
                self.assertEqual(done.returncode == 0, passes, (library, code, done.stdout + done.stderr))

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
