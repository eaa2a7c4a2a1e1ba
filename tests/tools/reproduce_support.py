"""What the tests of reproduce.py share: the tools copied beside a paper of our own and a stand-in for fedhpc."""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS, PYTHON = (HERE.parent.parent / name for name in ("tools", "python"))
sys.path.insert(0, str(PYTHON))
from fedhpc.tools import paper_table  # noqa: E402


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class ReproduceCase(unittest.TestCase):
    """tools/ copied beside a paper of our own and the stand-in for the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "tools" / "papers").mkdir(parents=True)
        self.configs = self.folder / "configs" / "papers" / "toy"
        self.configs.mkdir(parents=True)
        shutil.copy(TOOLS / "reproduce.py", self.folder / "tools")
        shutil.copytree(TOOLS.parent / "jobs", self.folder / "jobs")
        shutil.copytree(PYTHON / "fedhpc", self.folder / "python" / "fedhpc",
                        ignore=shutil.ignore_patterns("__pycache__"))
        self.program = self.folder / "fedhpc"
        self.program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{HERE / 'fake_planner.py'}' \"$@\"\n")
        self.program.chmod(0o755)
        self.results = self.folder / "out" / "toy"
        self.variables = {}  # more of the environment of the next calls

    def paper(self, *kinds, rounds=20, state="ready", value="88.00", spread="0.10", prefix="", optional=None,
              name="toy", data=""):
        """A table with one row and one configuration per kind of stand-in run; `optional`: by kind, the
        values of the optional columns; `data`: data.name, none without."""
        configs = self.folder / "configs" / "papers" / name
        configs.mkdir(exist_ok=True)
        with open(self.folder / "tools" / "papers" / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(paper_table.COLUMNS + (paper_table.OPTIONAL_COLUMNS if optional else ()))
            for kind in kinds:
                out.writerow(["I", "toy", "s", kind, "", f"{prefix}{kind}.ini", "", "global_accuracy", value, spread,
                              "last", state, *(optional[kind] if optional else ())])
                (configs / f"{prefix}{kind}.ini").write_text(
                    f"# {name}\n[run]\nrounds={rounds}\n[train]\nlr=0.05\n[algorithm]\nname={kind}\n"
                    + (f"[data]\nname={data}\n" if data else ""))

    def command(self, *arguments):
        return [sys.executable, str(self.folder / "tools" / "reproduce.py"), "toy", "--ranks", "1", "--output-dir",
                str(self.folder / "out"), "--fedhpc", str(self.program), *arguments]

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if name != "FEDHPC_DATA"}
        return dict(kept, FAKE_LOG=str(self.folder / "calls"), FAKE_PYTHON=str(PYTHON), FAKE_MEMORY="1000",
                    **self.variables)

    def call(self, *arguments):
        return self.run_command(self.command(*arguments))

    def of_all(self, *arguments):
        """A call without a paper."""
        command = self.command(*arguments)
        return self.run_command([argument for argument in command if argument != "toy"])

    def run_command(self, command):
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120)

    def wait_for(self, ready, what, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not ready():
            self.assertLess(time.monotonic(), deadline, f"{what}: not within {seconds} s")
            time.sleep(0.05)

    def logged(self):
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def calls(self):
        """Calls that run or resume."""
        return [line for line in self.logged() if not line.startswith("plan ")]

    def plans(self):
        return [line for line in self.logged() if line.startswith("plan ")]
