"""bundle.py packs a build that its `run` starts elsewhere; on_a_card.sh goes on after failures and says what was what."""

import importlib.util
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

PROJECT = Path(__file__).resolve().parent.parent.parent

ARGUMENTS = 'echo "$@"'
SCRIPTS = {
    "fedhpc": "echo program; exit 0",
    "tests/kernels_test": "echo '[  PASSED  ] 3 tests.'",
    "tests/device_test": "echo '[  FAILED  ] Some.Test (3 ms)'; exit 1",
    "tests/comm_test": "printf 'a.cpp:1: Skipped\\nno card here\\n'; exit 77",
    "bench/device_training": "sleep 60",
    "../bin/mpirun": ARGUMENTS,
}
# In its order; all of them pass with CARD in the place of a card's tools.
PARTS = ["smoke_libraries", "smoke_run", "smoke_step", "convolutions", "kernels_test", "device_training",
         "device_training_reproducible", "memcheck_kernels", "memcheck_tensors", "racecheck_kernels",
         "synccheck_kernels", "device_test", "comm_test_2_ranks", "device_test_2_ranks", "nccl", "memcheck_training",
         "racecheck_training", "device_training_py", "nsys", "nsys_kernels", "ncu"]
CARD = {"tests/device_test": ARGUMENTS, "tests/comm_test": ARGUMENTS, "bench/device_training": ARGUMENTS,
        "../bin/timeout": 'echo "$*" >> "$0.log"; exec /usr/bin/timeout "$@"',
        "../bin/python3": f'[ "$1" = -c ] && echo python3: torch 2 CUDA 13 on a card || {ARGUMENTS}',
        **{f"../bin/{name}": ARGUMENTS for name in ("nvidia-smi", "compute-sanitizer", "nsys", "ncu")}}


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

    def started(self, *command, **variables):
        done = subprocess.run([PROJECT / "tools/with_libraries.sh", *command], capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "FEDHPC_TORCH": "/nowhere", **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_a_program_starts_without_folders_and_without_ldconfig_in_the_path(self):
        says = ("sh", "-c", "echo $LD_LIBRARY_PATH")
        self.assertEqual(self.started(*says, LD_LIBRARY_PATH="/there"), "/there")
        (self.folder / "lib/libstdc++").mkdir(parents=True)
        version = self.folder / "lib/libstdc++/version"
        for wanted, added in (("GLIBCXX_3.4\n", False), ("GLIBCXX_99\n", True)):
            version.write_text(wanted, encoding="utf-8")
            folders = self.started(*says, FEDHPC_PREFIX=str(self.folder)).split(":")
            self.assertEqual(f"{self.folder}/lib/libstdc++" in folders, added, folders)

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

    def on_a_card(self, parts, scripts=None, **environment):
        """The command of these parts of a card's script, with scripts in place of programs, and its environment."""
        for name, text in {**SCRIPTS, **(scripts or {})}.items():
            script = self.build / name
            script.parent.mkdir(exist_ok=True)
            script.write_text("#!/bin/sh\n" + text + "\n", encoding="utf-8")
            script.chmod(0o755)
        return {"args": [PROJECT / "bench/on_a_card.sh", self.build, self.folder / "out", *parts],
                "env": {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "FEDHPC_TORCH": "/nowhere", "CUDA_HOME": "/nowhere",
                        "FEDHPC_SHARDS": "2", **environment}}

    def verdicts(self, code, *how, **environment):
        """{part: line of the table} of a call of on_a_card that ends with `code`."""
        told = subprocess.run(**self.on_a_card(*how, **environment), capture_output=True, text=True, check=False,
                              timeout=50)
        self.assertEqual(told.returncode, code, told.stdout + told.stderr)
        return {line.split()[0]: line for line in self.came_back()["table.txt"].splitlines()}

    def came_back(self):
        """{name: text} of what is in the archive."""
        with tarfile.open(self.folder / "out.tar.gz") as archive:
            return {Path(member.name).name: archive.extractfile(member).read().decode()
                    for member in archive if member.isfile()}

    @staticmethod
    def wait_for(file, seconds=20):
        end = time.monotonic() + seconds
        while not file.exists() and time.monotonic() < end:
            time.sleep(.05)

    def test_a_card_s_parts_have_verdicts_of_their_own(self):
        parts = ["smoke_run", "kernels_test", "memcheck_kernels", "device_test", "nccl"]
        told = subprocess.run(**self.on_a_card(parts), capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 1, told.stdout + told.stderr)
        files = self.came_back()
        table = files["table.txt"].splitlines()
        self.assertEqual([line.split()[0] for line in table], parts)
        for part, verdict in zip(parts, ["PASS", "PASS", "NOT RUN", "FAIL", "NOT RUN"]):
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
        told = subprocess.run(**self.on_a_card(["device_training", "smoke_run"], FEDHPC_CARD_SECONDS="5"), capture_output=True,
                              text=True, check=False, timeout=50)
        self.assertEqual(told.returncode, 1, told.stdout + told.stderr)
        self.assertRegex(self.came_back()["table.txt"], "device_training +FAIL +more than [1-5] s")

    def test_logs_of_shards_come_back_when_their_time_is_over(self):
        """timeout sends its signal twice, to the script and to all that it has started."""
        one = ["timeout", "6", PROJECT / "bench/on_a_card.sh", "--shards", "2", "sh", "-c", "echo begun; sleep 60"]
        scripts = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for _ in range(10)]
        self.assertEqual([script.communicate(timeout=50)[0] for script in scripts], ["begun\nbegun\n"] * 10)

    def test_what_a_card_has_shown_comes_back_from_a_script_that_is_stopped(self):
        part = self.folder / "part"  # its process, once it runs
        how = self.on_a_card(["smoke_run", "device_training"], {
            "bench/device_training": f"echo $$ > {part}.new; mv {part}.new {part}; while echo shown; do :; done"},
            FEDHPC_PART_SECONDS="20")
        with subprocess.Popen(**how, stdout=subprocess.DEVNULL) as script:
            self.wait_for(part)
            script.terminate()
            self.assertEqual(script.wait(timeout=30), 124)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(part.read_text(encoding="utf-8")), 0)
        files = self.came_back()
        self.assertIn("PASS", files["table.txt"])
        log = files.get("device_training.log") or files["device_training.log.end"]  # its end where it is long
        self.assertTrue(log.endswith("shown\n"), log[-100:])

    def test_an_archive_has_a_log_that_something_still_writes_to(self):
        writes = "timeout 3 sh -c 'while echo shown; do :; done' & sleep .2; exit 0"
        self.assertIn(" PASS ", self.verdicts(0, ["smoke_run"], {"fedhpc": writes})["smoke_run"])

    def test_no_failure_is_lost_of_a_shard_that_ends_before_the_next_begins(self):
        one = 'test "$GTEST_SHARD_INDEX" != 0 || exit 1; sleep .2'
        codes = {subprocess.run([PROJECT / "bench/on_a_card.sh", "--shards", "12", "sh", "-c", one], check=False).returncode
                 for _ in range(10)}
        self.assertEqual(codes, {1})

    def test_what_a_card_has_shown_is_packed_after_every_part(self):
        how = self.on_a_card(["smoke_run", "device_training"], {"bench/device_training": "sleep 5"})
        with subprocess.Popen(**how, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as script:
            self.wait_for(self.folder / "out.tar.gz", 4)
            script.kill()
        self.assertRegex(self.came_back()["table.txt"], "^smoke_run +PASS [^\n]*\n$")

    def test_all_parts_of_a_card_come_in_order_with_the_options_of_the_results(self):
        table = self.verdicts(0, [], CARD, FEDHPC_BENCH_OPTIONS="--models dnn")
        self.assertEqual(list(table), PARTS)
        self.assertEqual([line for line in table.values() if " PASS " not in line], [])
        files = self.came_back()
        common = "--models dnn,cnn4 --clients 1,10,100 --precision fp32,tf32 --seconds 0.3"
        for part, begin, end in (
                ("device_training", f"{common} --loop_clients 3 --csv ", " --models dnn"),
                ("device_training_reproducible", f"{common} --loop_clients 3 --precision fp32 ", " --models dnn"),
                ("device_training_py", f"{PROJECT}/bench/device_training.py {common} --clients 10 ", ".csv")):
            self.assertRegex(files[part + ".log"], f"^{begin}.*{end}\n$")
        self.assertIn(" --cuda-graph-trace node ", files["nsys.log"])  # else no kernel of a captured step has a line
        limited = (self.folder / "bin/timeout.log").read_text(encoding="utf-8")
        for program in ("nvidia-smi --query", f"{PROJECT}/tools/with_libraries.sh {self.build}/fedhpc --version",
                        f"{PROJECT}/tools/with_libraries.sh mpirun --version", "python3 -c import torch"):
            self.assertEqual(limited.count(f"60 {program}"), 1, program)

    def test_python_s_torch_is_asked_only_for_its_part(self):
        self.verdicts(0, ["smoke_run", "nsys"], CARD)
        self.assertNotIn("torch", self.came_back()["machine.txt"])

    def test_counters_that_a_user_may_not_read_are_not_run(self):
        refusal = "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters.'; exit 1"
        told = self.verdicts(0, ["smoke_run", "ncu"], {**CARD, "../bin/ncu": refusal})
        self.assertRegex(told["ncu"], "NOT RUN +ERR_NVGPUCTRPERM: this user may not read")
        shutil.rmtree(self.folder / "out")
        self.assertIn(" FAIL ", self.verdicts(1, ["smoke_run", "ncu"], {**CARD, "../bin/ncu": "exit 1"})["ncu"])

    def test_a_card_s_parts_go_by_their_name_or_what_it_begins_with(self):
        skipped = self.verdicts(1, ["device_training_py", "memcheck", "device_test"])
        self.assertEqual(list(skipped), ["memcheck_kernels", "memcheck_tensors", "device_test", "memcheck_training",
                                         "device_training_py"])
        shutil.rmtree(self.folder / "out")
        for unknown in ("memchek", "smoke_", "mem"):
            told = subprocess.run(**self.on_a_card(["nccl", unknown]), capture_output=True, text=True, check=False)
            self.assertEqual((told.returncode, told.stdout, (self.folder / "out").exists()), (2, "", False))
            self.assertIn(f"no part is '{unknown}' or begins so; there are: {' '.join(PARTS)}\n", told.stderr)

    def test_what_was_not_measured_or_not_captured_is_a_failure(self):
        broken = "not measured: CUDA error: an illegal memory access was encountered"
        no_room = "printf '| not measured: %s |\\n' 'needs 9 MB, of which 3 are free' 'CUDA out of memory. Tried to'"
        table = self.verdicts(1, ["convolutions", "device_training", "device_training_reproducible"], {
            "fedhpc": "echo 'warning: local steps are not captured as CUDA graphs: no'; exit 0",
            "bench/device_training": f"{no_room}; case \"$*\" in *reproducible*) ;; *) echo '| {broken} |'; esac"})
        self.assertRegex(table["convolutions"], " FAIL .*local steps are not captured")
        self.assertRegex(table["device_training"], f" FAIL .*{broken}")
        self.assertIn(" PASS ", table["device_training_reproducible"])

    def test_nothing_follows_a_smoke_that_fails(self):
        table = self.verdicts(1, ["smoke", "kernels_test", "nccl"],
                              {"bench/device_training": "echo 'No step of the line above was captured.'"})
        self.assertRegex(table["smoke_step"], " FAIL .*No step of the line above was captured")
        for part in ("kernels_test", "nccl"):
            self.assertRegex(table[part], " NOT RUN +a smoke part has failed")

    def test_a_part_that_was_killed_is_not_one_whose_time_is_over(self):
        table = self.verdicts(1, ["kernels_test", "device_test"], {
            "tests/kernels_test": "kill -9 $$",
            "tests/device_test": "echo; echo no memory for the host; echo; exit 124"})
        self.assertRegex(table["kernels_test"], r" FAIL +\d s, killed, code 137: ")
        self.assertRegex(table["device_test"], r" FAIL +\d s, code 124: no memory for the host$")

    def test_pytorch_s_figures_are_written_as_they_come(self):
        torch = mock.MagicMock()
        torch.nn.Module, torch.__version__ = object, "2"
        spec = importlib.util.spec_from_file_location("device_training", PROJECT / "bench/device_training.py")
        script = importlib.util.module_from_spec(spec)
        figures = self.folder / "figures.csv"
        lines = []  # of the file before every case

        def measure(*_):
            lines.append(figures.read_text(encoding="utf-8").count("\n"))
            return ["PyTorch loop"]

        with mock.patch.dict("sys.modules", {"torch": torch, "torch.nn": torch.nn}):
            spec.loader.exec_module(script)
        with mock.patch.multiple(script, measure=measure, measured_peak=lambda *_: 1.), mock.patch("builtins.print"), \
                mock.patch("sys.argv", ["it", "--models", "dnn", "--clients", "1", "--csv", str(figures)]):
            script.main()
        self.assertEqual(lines, [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
