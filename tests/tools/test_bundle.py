"""bundle.py packs a build that its `run` starts elsewhere; on_a_card.sh goes on after failures and says what was what."""

import importlib.util
import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

PROJECT = Path(__file__).resolve().parent.parent.parent

SCRIPTS = {
    "fedhpc": "echo program; exit 0",
    "tests/kernels_test": "echo '[  PASSED  ] 3 tests.'",
    "tests/device_test": "echo '[  FAILED  ] Some.Test (3 ms)'; exit 1",
    "tests/comm_test": "printf 'a.cpp:1: Skipped\\nno card here\\n'; exit 77",
    "bench/device_training": "sleep 60",
}


class Bundle(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.build = self.folder / "release"
        self.build.mkdir()

    def bundle(self, *options):
        return subprocess.run([PROJECT / "tools/bundle.py", self.build, self.folder / "out.tar.gz", "--no-mpi", *options],
                              capture_output=True, text=True, check=False)

    def test_what_is_packed_runs_elsewhere(self):
        shutil.copy(shutil.which("git"), self.build / "fedhpc")  # a program with a library of the system
        for name in ("libfedhpc.so", "libfedhpc_gpu.so"):
            shutil.copy(shutil.which("git"), self.build / name)
        with_rpath = [os.environ.get("CC", "cc"), "-shared", "-Wl,-rpath,/opt/elsewhere:", "-x", "c", "-"]
        subprocess.run([*with_rpath, "-o", self.build / "libfedhpc_kernels.so"], input="", text=True, check=True)
        told = self.bundle()
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("tests/device_test is not built: left out", told.stdout)
        with tarfile.open(self.folder / "out.tar.gz") as archive:
            archive.extractall(self.folder)
        unpacked = self.folder / "fedhpc"
        self.assertTrue((unpacked / "lib/libz.so.1").exists())
        self.assertEqual([file.name for file in (unpacked / "lib").glob("lib*.so*") if file.name.startswith("libc.")], [])
        for program in ("build/fedhpc", "build/libfedhpc.so", "build/libfedhpc_gpu.so", "bench/on_a_card.sh"):
            self.assertTrue((unpacked / program).exists(), program)
        kernels = [path / "libfedhpc_kernels.so" for path in (self.build, unpacked / "build")]
        sections = [subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout for path in kernels]
        self.assertEqual(["/opt/elsewhere" in text for text in sections], [True, False])
        environment = {"PATH": "/usr/bin:/bin", "FEDHPC_TORCH": "/nowhere"}
        used = subprocess.run([unpacked / "run", "ldd", unpacked / "build/fedhpc"], capture_output=True, text=True,
                              check=True, env=environment).stdout
        self.assertIn(str(unpacked / "lib/libz.so.1"), used)
        version = subprocess.run([unpacked / "run", unpacked / "build/fedhpc", "--version"], capture_output=True,
                                 text=True, check=True, env=environment).stdout
        self.assertIn("git version", version)
        folders = subprocess.run([unpacked / "run", "sh", "-c", "echo $LD_LIBRARY_PATH"], capture_output=True, text=True,
                                 check=True, env=environment).stdout
        self.assertIn(str(unpacked / "build"), folders.split(":"))  # where a program finds libfedhpc.so

    def test_nothing_or_too_much_is_refused(self):
        told = self.bundle()
        self.assertEqual(told.returncode, 1)
        self.assertIn("nothing is built", told.stderr)
        shutil.copy(shutil.which("git"), self.build / "fedhpc")
        told = self.bundle("--most", "0.001")
        self.assertEqual(told.returncode, 1)
        self.assertIn("more than 0.001 MB", told.stderr)

    def test_a_build_of_other_sources_is_refused(self):
        program = self.build / "fedhpc"
        head = subprocess.run(["git", "-C", PROJECT, "rev-parse", "HEAD"], capture_output=True, text=True,
                              check=False).stdout
        if not head:
            self.skipTest("no repository")
        shutil.copy(shutil.which("git"), self.build / "libfedhpc.so")
        for commit, refused in ((head[:12], False), ("0123456789ab", True)):
            program.write_text(f"#!/bin/sh\necho 'fedhpc 0.1.0 ({commit}-modified, torch-2.11.0)'\n", encoding="utf-8")
            program.chmod(0o755)
            told = self.bundle()
            self.assertEqual(told.returncode, int(refused), told.stderr)
            if refused:
                self.assertIn(f"is of 0123456789ab, the sources are at {head[:12]}: build first", told.stderr)
                self.assertEqual(self.bundle("--older").returncode, 0)
            else:
                self.assertIn(f"has changes that are not in {commit}", told.stdout)

    def test_where_there_is_no_git_no_commit_is_asked_for(self):
        program = self.build / "fedhpc"
        program.write_text("#!/bin/sh\necho 'fedhpc 0.1.0 (0123456789ab, torch-2.11.0)'\n", encoding="utf-8")
        program.chmod(0o755)
        spec = importlib.util.spec_from_file_location("bundle", PROJECT / "tools/bundle.py")
        bundle = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bundle)
        with mock.patch.dict("os.environ", {"PATH": "/nowhere"}):
            bundle.check_age(self.build)

    def on_a_card(self, parts, **environment):
        """The command of these parts of a card's script, with scripts in place of programs, and its environment."""
        for name, text in SCRIPTS.items():
            script = self.build / name
            script.parent.mkdir(exist_ok=True)
            script.write_text("#!/bin/sh\n" + text + "\n", encoding="utf-8")
            script.chmod(0o755)
        return {"args": [PROJECT / "bench/on_a_card.sh", self.build, self.folder / "out", *parts],
                "env": {"PATH": "/usr/bin:/bin", "FEDHPC_TORCH": "/nowhere", "CUDA_HOME": "/nowhere", **environment}}

    def came_back(self):
        """{name: text} of what is in the archive."""
        with tarfile.open(self.folder / "out.tar.gz") as archive:
            return {Path(member.name).name: archive.extractfile(member).read().decode()
                    for member in archive if member.isfile()}

    def test_a_card_s_parts_have_verdicts_of_their_own(self):
        parts = ["smoke_run", "kernels_test", "device_test", "nccl", "memcheck_kernels"]
        told = subprocess.run(**self.on_a_card(parts, FEDHPC_SHARDS="2"), capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 1, told.stdout + told.stderr)
        files = self.came_back()
        table = files["table.txt"].splitlines()
        self.assertEqual([line.split()[0] for line in table], parts)
        for part, verdict in zip(parts, ["PASS", "PASS", "FAIL", "NOT RUN", "NOT RUN"]):
            self.assertIn(f" {verdict} ", next(line for line in table if line.startswith(part)))
        self.assertIn("no card here", told.stdout)
        self.assertEqual(files["kernels_test.log"].count("PASSED"), 2)  # by both processes

    def test_smoke_comes_first_and_is_all_that_begins_so(self):
        how = self.on_a_card(["nccl", "smoke"])
        (self.build / "bench/device_training").write_text("#!/bin/sh\nhead -c 5000000 /dev/zero > \"$OUT/large\"; exit 0\n")
        told = subprocess.run(**{**how, "env": {**how["env"], "OUT": str(self.folder / "out")}}, capture_output=True, text=True,
                              check=False)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        files = self.came_back()
        self.assertEqual([line.split()[0] for line in files["table.txt"].splitlines()],
                         ["smoke_libraries", "smoke_run", "smoke_step", "nccl"])
        self.assertEqual((files["left_out.txt"], "large" in files), ("out/large\n", False))

    def test_a_card_s_time_is_kept(self):
        told = subprocess.run(**self.on_a_card(["device_training", "smoke_run"], FEDHPC_CARD_SECONDS="2"), capture_output=True,
                              text=True, check=False, timeout=50)
        self.assertEqual(told.returncode, 1, told.stdout + told.stderr)
        self.assertRegex(self.came_back()["table.txt"], "device_training +FAIL +more than [12] s")

    def test_logs_of_shards_come_back_when_their_time_is_over(self):
        """timeout sends its signal twice, to the script and to all that it has started."""
        one = ["timeout", "6", PROJECT / "bench/on_a_card.sh", "--shards", "2", "sh", "-c", "echo begun; sleep 60"]
        scripts = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for _ in range(10)]
        self.assertEqual([script.communicate(timeout=50)[0] for script in scripts], ["begun\nbegun\n"] * 10)

    def test_what_a_card_has_shown_comes_back_from_a_script_that_is_stopped(self):
        with subprocess.Popen(**self.on_a_card(["smoke_run", "device_training"]), stdout=subprocess.PIPE, text=True) as script:
            for line in script.stdout:
                if line.startswith("smoke_run "):
                    break
            script.terminate()
            script.communicate(timeout=30)
        self.assertIn("PASS", self.came_back()["table.txt"])


if __name__ == "__main__":
    unittest.main()
