"""A folder with stand-ins for the program and for sbatch, for the tests of submit.py and sweep.py."""

import contextlib
import importlib
import io
import os
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIB = 2**20
sys.path.insert(0, str(ROOT / "python"))
# Keeps the script it is given and the environment's refusal, if there is one.
SBATCH = """#!/bin/bash
if [ -n "${FAKE_REFUSAL:-}" ]; then echo "sbatch: error: $FAKE_REFUSAL" >&2; exit 1; fi
cat > submitted.sbatch
echo "42;cluster"
"""
CONFIG = "[run]\nrounds=60\nseed=1\n[train]\nlr=0.1\n[algorithm]\nname=good\n"


class FakeCluster(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name).resolve()
        (self.folder / "run.ini").write_text(CONFIG)
        self.program = self.script("fedhpc", f'#!/bin/bash\nexec "{sys.executable}" "{HERE}/fake_planner.py" "$@"\n')
        self.script("sbatch", SBATCH)

    def script(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def environment(self, **variables):
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "FEDHPC": str(self.program),
                "FAKE_PYTHON": str(ROOT / "python"), "FAKE_LOG": str(self.folder / "calls.log"),
                "FAKE_MEMORY": str(100 * MIB), **variables}

    def tool(self, name, *arguments, code=0, **variables):
        """Calls a tool in the folder; what it prints, on stderr where it fails. self.warned is all of stderr."""
        out, err = io.StringIO(), io.StringIO()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with mock.patch.dict(os.environ, self.environment(**variables)), contextlib.chdir(self.folder), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                ended = importlib.import_module(f"fedhpc.tools.{name}").main(list(arguments))
            except SystemExit as refused:  # argparse's way
                ended = refused.code
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        self.assertEqual(ended, code, out.getvalue() + err.getvalue())
        self.warned = err.getvalue()
        if code == 2:
            self.assertEqual(out.getvalue(), "")
        return err.getvalue() if code == 2 else out.getvalue()

    def calls(self, command=""):
        """The calls of the program so far, those of one of its commands."""
        path = self.folder / "calls.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(command)]

    def gone_on(self):
        """(how many runs were begun, the calls of those that went on from what was there)"""
        runs = self.calls("run ")
        found = [line for line in runs if "--go-on" in line]
        return len(runs) - len(found), found


def directives(script):
    """The sbatch options of a script."""
    prefix = "#SBATCH --"
    lines = [line.removeprefix(prefix).split("=", 1) for line in script.splitlines() if line.startswith(prefix)]
    return {name: "".join(value) for name, *value in lines}
