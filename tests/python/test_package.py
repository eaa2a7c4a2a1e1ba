"""The package as a whole: its names, its stubs, what an import costs."""

import importlib
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import fedhpc
from python_support import SOURCE


class Names(unittest.TestCase):
    def test_are_all_there(self):
        for name in fedhpc.__all__:
            self.assertIsNotNone(getattr(fedhpc, name), name)
            self.assertIn(name, dir(fedhpc))
        self.assertEqual(fedhpc.__version__, fedhpc.version())
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            fedhpc.nothing

    def test_have_docstrings(self):
        for name in fedhpc.__all__:
            self.assertTrue((getattr(fedhpc, name).__doc__ or "").strip(), name)

    def test_are_those_that_type_checkers_read(self):
        stub = (SOURCE / "python/fedhpc/__init__.pyi").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"\w+ as (\w+)", stub)), sorted(fedhpc.__all__))
        module = importlib.import_module("fedhpc._core")
        compiled = Path(module.__file__).with_name("_core.pyi").read_text(encoding="utf-8")
        for name in ("Block", "Rows", "Round", "LocalStep"):
            self.assertIn(f"class {name}:", compiled)
        for line in ("__iadd__(self, arg: Rows, /) -> Rows", "__imul__(self, arg: float, /) -> Rows",
                     "__iadd__(self, arg: EdgeRows, /) -> EdgeRows", "edges(self) -> EdgeTier",
                     "coupling(self, ids: object) -> Coupling", "rows(self, name: str, value: Rows) -> Rows",
                     "optimizer(self, name: str, value: Optimizer) -> Optimizer"):
            self.assertIn(f"    def {line}:", compiled)


class Imports(unittest.TestCase):
    def loaded(self, use):
        script = f"import sys, fedhpc; {use}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_keep_one_order_of_sums_unless_another_one_is_chosen(self):
        others = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
        for own, kept in (({}, "AUTO"), ({"MKL_CBWR": "COMPATIBLE"}, "COMPATIBLE")):
            done = subprocess.run([sys.executable, "-c", "import fedhpc, os; print(os.environ['MKL_CBWR'])"],
                                  capture_output=True, text=True, check=True, env=others | own)
            self.assertEqual(done.stdout.strip(), kept)

    def test_come_when_they_are_used(self):
        self.assertNotIn("numpy", self.loaded("None"))
        self.assertNotIn("fedhpc._core", self.loaded("fedhpc.Results"))
        self.assertNotIn("pandas", self.loaded("fedhpc.run"))


if __name__ == "__main__":
    unittest.main()
