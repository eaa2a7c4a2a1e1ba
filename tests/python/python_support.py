"""What the tests of the Python package share."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py

SOURCE = Path(os.environ.get("FEDHPC_SOURCE_DIR", Path(__file__).resolve().parents[2]))
TINY = {"run.rounds": 3, "run.seed": 7, "data.clients": 5, "data.samples_per_client": 60, "model.hidden": 12,
        "train.lr": 0.1, "run.reproducible": True}


def skip_without_torch():
    """Skips the module of tests that calls it where `import torch` cannot be meant."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torch.nn") is None:
        raise unittest.SkipTest("this Python has no torch; tools/setup.sh --torch fetches it")


class InFolder(unittest.TestCase):
    """A test in a folder of its own, which is the working directory."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        self.folder = Path(folder.name)


def read(path, *names):
    """The arrays of these names, and texts as lists, or the only one."""
    with h5py.File(path) as file:
        found = [file[name].asstr()[()].tolist() if h5py.check_string_dtype(file[name].dtype) else file[name][()]
                 for name in names]
        return found[0] if len(found) == 1 else found


def python(script, *arguments, ranks=None, timeout=120, **environment):
    """A script's text, carried out by a Python of its own, under mpirun where `ranks` is given.

    A printed line is one write, so that lines of two ranks do not mix. PYTHONUNBUFFERED would write it in pieces.
    """
    Path("script.py").write_text(script, encoding="utf-8")
    launcher = ["mpirun", "-n", str(ranks)] if ranks else []
    return subprocess.run([*launcher, sys.executable, "script.py", *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, "PYTHONUNBUFFERED": "", **environment}, check=False)


def numbers(path):
    """All that a result file says of models and rounds but the seconds it took: {name: array}."""
    found = {}
    with h5py.File(path, "r") as file:
        def visit(name, item):
            of_clock = "seconds" in name and "simulated" not in name
            of_machine = of_clock or name in ("rounds/balance", "rounds/bytes_moved")
            if isinstance(item, h5py.Dataset) and name.startswith(("model", "rounds", "clients")) and not of_machine:
                found[name] = item[()]
        file.visititems(visit)
    return found


def same_numbers(case, a, b, but=()):
    """Fails `case` unless two result files have the same models and rounds, to the last bit.

    Series whose names begin with one of `but` are left out.
    """
    a, b = ({name: values for name, values in numbers(path).items()
             if not name.removeprefix("rounds/").startswith(tuple(but))} for path in (a, b))
    case.assertEqual(sorted(a), sorted(b))
    case.assertTrue(a)
    for name, values in a.items():
        case.assertEqual(values.tobytes(), b[name].tobytes(), name)
