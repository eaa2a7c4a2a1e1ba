"""What lies in examples/ runs as it says."""

import os
import shutil
import subprocess
import sys
import unittest

import nbclient
import nbformat

import fedhpc
from python_support import SOURCE, InFolder

EXAMPLES = SOURCE / "examples"


class Notebook(InFolder):
    def test_runs_from_top_to_bottom(self):
        path = EXAMPLES / "first_steps.ipynb"
        notebook = nbformat.read(path, as_version=4)
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(self.folder)}}).execute()
        texts = [output.get("data", {}).get("text/plain", output.get("text", ""))
                 for cell in notebook.cells for output in cell.get("outputs", [])]
        self.assertIn("True", texts)  # one rank and two gave the same model
        self.assertTrue(any("algorithm.beta" in text for text in texts), texts)
        pictures = [output for cell in notebook.cells for output in cell.get("outputs", [])
                    if "image/png" in output.get("data", {})]
        self.assertEqual(len(pictures), 1)
        table = fedhpc.load("*_[123].h5").table("global_accuracy")
        self.assertEqual(sorted(table["n"]), [3, 3])

    def test_is_kept_without_what_it_printed(self):
        notebook = nbformat.read(EXAMPLES / "first_steps.ipynb", as_version=4)
        self.assertFalse(any(cell.get("outputs") for cell in notebook.cells))


class Scripts(InFolder):
    def script(self, name, *arguments):
        shutil.copy(EXAMPLES / name, self.folder)
        done = subprocess.run([sys.executable, name, *arguments], capture_output=True, text=True, timeout=300,
                              env=dict(os.environ), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_methods(self):
        for name in ("fedadam", "fedavg", "server_momentum", "scaffold"):
            self.assertIn("global_accuracy", self.script(f"{name}.py"))

    def test_benchmarks_without_an_installed_package(self):
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FEDHPC_MODULE")}
        done = subprocess.run([sys.executable, EXAMPLES / "benchmarks.py", "--help"], capture_output=True, text=True,
                              timeout=60, env=environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("femnist_flute", done.stdout)

    def test_own_data(self):
        self.assertRegex(self.script("own_data.py", "."), r"pfedme +is right about")


if __name__ == "__main__":
    unittest.main()
