"""Every command of README and docs is run as it stands there.

commands_test.py --fedhpc PROGRAM [unittest's arguments]

A page's commands run in order in one folder, where tools, configurations and pages are copies. `build/release/fedhpc` and
`fedhpc` there are a script that shortens runs and then calls the real program. A block without a language, or with `sh`, is
commands; `python` is a script; what a command prints is `text`. `# exit code N` behind a command is what it ends with.
`PATH`: above a block says that the block is that file. DIR holds files like MNIST's, with fewer images. What cannot run here
stands in NOT_RUN.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "app"))
from app_support import environment_of_ranks, write_mnist  # noqa: E402
from pages import ROOT, all_pages  # noqa: E402

program = None
OTHER_LANGUAGES = ("text", "ini", "csv", "cpp", "math", "cmake", "bibtex", "json", "mermaid")

# Pattern of a whole command, and why it is not run.
NOT_RUN = [
    (r"tools/(quickstart|test|try_on|setup|build|docs)\.sh( .*)?", "installs packages and builds"),
    (r"FEDHPC_PRESET=\w+ tools/test\.sh", "installs packages and builds"),
    (r"(cmake|ctest|cpack) .*", "builds, or runs this test"),
    (r"PREFIX/.*", "tests/install has an installation"),
    (r"build/\w+/tests/.*", "a test's own binary"),
    (r"build/cpu/fedhpc .*|ASAN_OPTIONS=\S+ build/asan/fedhpc .*", "another build"),
    (r"module load .*", "modules of a cluster"),
    (r"sbatch .*|srun .*", "needs a cluster; tests/slurm has one"),
    (r"FEDHPC_RUN=.* qsub .*|flux batch .*", "needs a cluster; tests/tools has stand-ins"),
    (r"tools/submit\.py .* --submit", "needs a cluster; tests/slurm has one"),
    (r"tools/sweep\.py .* --submit .*", "needs a cluster; tests/slurm has one"),
    (r"FEDHPC_DATA=DIR tools/sweep\.py configs/sweeps/compressors\.ini .*", "ninety runs; tests/tools has sweeps"),
    (r"FEDHPC_DATA=DIR python3 examples/pfedsop_start\.py .*", "minutes of training; tests/python has its method"),
    (r"tools/reproduce\.py .* (--quick|--background|--slurm) .*", "hours of training; tests/tools has it with a toy"),
    (r"apptainer .*", "needs Apptainer"),
    (r"pip install .*|tools/wheel\.sh .*", "builds; tests/install has a wheel"),
    (r"python3 -m venv .*|\.deps/venv/bin/pip .*", "changes the project's Python, and needs the network"),
    (r"tools/fetch_data\.py .*", "needs the network"),
    (r"python3 examples/benchmarks\.py .*", "needs the network"),
    (r"python3 examples/lora\.py .*", "needs PyTorch; tests/python/test_imported_models.py runs a short one"),
    (r"fedhpc run configs/benchmarks/.*", "needs fetched data; tests/python/test_problems.py has small ones"),
    (r"mpirun .* --run\.device=cuda .*", "needs GPUs"),
    (r".*--dataset cifar100 .*", "needs CIFAR-100, which is not among the data sets that tests look for"),
    (r"for pid in .*", "looks into processes of others"),
    (r"ulimit -c .*|gdb .* core|addr2line .*", "needs a crash of the real program"),
]

# What shortens a run, after its own arguments, which a later one overrides.
WRAPPER = """#!/usr/bin/env bash
command=$1
case " $* " in
  *million_clients*) few="--run.rounds=1 --data.clients=2000" ;;
  *results/sweeps*) few= ;;
  *partition=pfedme*|*partition=file*) few="--run.rounds=1" ;;
  *pfedsop*) few="--run.rounds=2 --data.train_per_class=20 --data.test_per_class=5" ;;
  *mnist*) few="--run.rounds=1 --data.train_per_class=20 --data.test_per_class=5" ;;
  *diverged*|*alone*) few="--run.rounds=1" ;;
  *) few="--run.rounds=2" ;;
esac
case $command in
  run) exec PROGRAM "$@" $few ;;
  resume) exec PROGRAM "$@" ${few:+--run.rounds=3} ;;
  *) exec PROGRAM "$@" ;;
esac
"""


def commands(lines):
    """A block's commands, each with its lines joined where the shell needs more of them."""
    found, text = [], ""
    for line in lines:
        if not text and not line.strip():
            continue
        text += line + "\n"
        if line.endswith("\\"):
            continue
        if subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).returncode == 0:
            found.append(text.strip())
            text = ""
    return found + ([text.strip()] if text else [])


def bare(command):
    """A command in one line, without its comment."""
    return re.sub(r"\s+#\s.*", "", re.sub(r"\\\n\s*", "", command)).strip()


def fits(pattern, command):
    """Whether a pattern of NOT_RUN is of a command, which may have lines."""
    return re.fullmatch(pattern, bare(command), re.DOTALL)


def reason_not_to(command):
    return next((reason for pattern, reason in NOT_RUN if fits(pattern, command)), None)


def expected_code(command):
    match = re.search(r"# .*exit code (\d+)", command)
    return int(match[1]) if match and not re.search(r"exit code 0 where", command) else 0


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="fedhpc_docs_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for name in ("tools", "python", "configs", "docs", "examples", "results/papers", "jobs", "tests/tools"):
            shutil.copytree(ROOT / name, cls.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        # A sweep takes a run of fewer rounds than it asked for as one that is to go on.
        swept = cls.folder / "configs/algorithms/fedprox.ini"
        swept.write_text(re.sub(r"(?m)^rounds = \d+$", "rounds = 2", swept.read_text()))
        for name in ("CMakeLists.txt", "README.md", "VERSION"):
            shutil.copy(ROOT / name, cls.folder)
        for name in (".deps", "src", "include"):
            (cls.folder / name).symlink_to(ROOT / name)
        script = cls.folder / "build/release/fedhpc"
        script.parent.mkdir(parents=True)
        script.write_text(WRAPPER.replace("PROGRAM", f"'{Path(program).resolve()}'"))
        script.chmod(0o755)
        (cls.folder / "bin").mkdir()
        (cls.folder / "bin/fedhpc").symlink_to(script)
        python = cls.folder / "bin/python3"  # the one that has the package's libraries
        python.write_text(f"#!/usr/bin/env bash\nexec '{sys.executable}' \"$@\"\n")
        python.chmod(0o755)
        write_mnist(cls.folder / "DIR/mnist", train=6000, test=1000, side=(28, 28))
        cls.environment = environment_of_ranks({
            name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "PRTE_", "FEDHPC_")) or name == "FEDHPC_CACHE"})
        cls.environment |= {"PATH": f"{cls.folder}/bin:{os.environ['PATH']}",
                            "PYTHONPATH": str(cls.folder / "python"),
                            "FEDHPC_MODULE": str(Path(program).resolve().parent / "python/fedhpc")}
        # What pages call RUN.h5, CONFIG.ini, A.h5 and B.h5, and what the quick start leaves.
        shutil.copy(ROOT / "configs/quickstart.ini", cls.folder / "CONFIG.ini")
        for name in ("RUN", "A", "results/quickstart"):
            (cls.folder / name).parent.mkdir(exist_ok=True)
            subprocess.run([script, "run", "CONFIG.ini", f"--run.output={name}.h5"], cwd=cls.folder, check=True,
                           env=cls.environment, capture_output=True)
        shutil.copy(cls.folder / "A.h5", cls.folder / "B.h5")

    def run_page(self, page):
        script, wanted = "", []
        for fence in page.fences:
            language = fence.info.split(" ")[0]
            above = re.search(r"`([^`]+)`:$", fence.above)
            if above and language in ("text", "ini", "csv"):
                path = self.folder / above[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(fence.lines) + "\n")
            if language in OTHER_LANGUAGES:
                continue
            if "import torch" in fence.lines and importlib.util.find_spec("torch") is None:
                continue  # nothing else of the project needs PyTorch in Python
            if language == "python":
                units = [f"'{sys.executable}' - <<'END_OF_SCRIPT'\n" + "\n".join(fence.lines) + "\nEND_OF_SCRIPT"]
            else:
                self.assertIn(language, ("", "sh", "bash"), f"{page.name}:{fence.line}: no test knows this language")
                units = commands(fence.lines)
            for unit in units:
                if reason_not_to(unit):
                    continue
                script += f"echo @@ {len(wanted)} $SECONDS >&2\n{unit}\n_code=$?; echo @@= $_code >&2\n"
                wanted.append((f"{page.name}:{fence.line}: {unit}", expected_code(unit)))
        if not wanted:
            return
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=600)
        told = re.findall(r"^@@ (\d+) \d+\n(.*?)^@@= (\d+)$", done.stderr, re.M | re.S)
        self.assertEqual(len(told), len(wanted), done.stderr[-2000:])
        failed = [f"{wanted[int(number)][0]}\nended with {code}, not {wanted[int(number)][1]}:\n{words[-600:]}"
                  for number, words, code in told if int(code) != wanted[int(number)][1]]
        self.assertEqual(failed, [], "\n".join(failed))

    def test_every_page(self):
        for page in all_pages():
            if page.name == "README.md" or page.name.startswith("docs/"):
                with self.subTest(page.name):
                    start = time.monotonic()
                    self.run_page(page)
                    if options.times:
                        print(f"{time.monotonic() - start:6.1f} s  {page.name}", file=sys.stderr)

    def test_commands_are_told_apart(self):
        lines = ["a b \\", "  c   # says c", "", "for x in 1 2; do", "  d $x", "done", "! e  # exit code 1: as it should", "f"]
        found = commands(lines)
        self.assertEqual([bare(one) for one in found], ["a b c", "for x in 1 2; do\n  d $x\ndone", "! e", "f"])
        self.assertEqual([expected_code(one) for one in found], [0, 0, 1, 0])
        self.assertIsNone(reason_not_to("tools/plot.py x.h5"))
        self.assertIsNotNone(reason_not_to("cmake --preset release   # builds"))
        self.assertIsNotNone(reason_not_to("tools/build.sh cpu 'a &&\n  b'"))

    def test_no_reason_is_left_over(self):
        """Each line of NOT_RUN is of some command."""
        all_commands = [unit for page in all_pages() for fence in page.fences
                        if fence.info in ("", "sh", "bash") for unit in commands(fence.lines)]
        self.assertEqual([pattern for pattern, _ in NOT_RUN
                          if not any(fits(pattern, one) for one in all_commands)], [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedhpc", required=True)
    parser.add_argument("--times", action="store_true", help="how long each page takes")
    options, rest = parser.parse_known_args()
    program = options.fedhpc
    unittest.main(argv=[sys.argv[0], *rest])
