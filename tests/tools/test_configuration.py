"""Tests of how the tools read configurations: INI text, and files that start from others."""

import tempfile
import unittest
from pathlib import Path

import tool_support  # noqa: F401  (the package on the path)
from fedhpc.tools import configuration, results
from fedhpc.tools.method_keys import acting


class Text(unittest.TestCase):
    def test_configuration_text(self):
        config = configuration.parse_config("# head\n[train]\nlr = 0.05  # rate\n\n[a]\nb=c=d\n")
        self.assertEqual(config, {"train.lr": "0.05", "a.b": "c=d"})
        with self.assertRaises(results.ResultError):
            configuration.parse_config("[train]\nnonsense\n")
        for text in ("[a]\nb = 1\nc = 2\n b=3\n", '[a]\nb = 1\n[c]\n[a]\nb = "3"\n', "b = 1\n\n\n\nb = 2\n[a]\n"):
            with self.subTest(text), self.assertRaisesRegex(
                    results.ResultError, r"line [45]: key '(a\.)?b' is given twice \(first in line [12]\); keep one"):
                configuration.parse_config(text)

    def test_quoted_values_of_the_configuration(self):
        text = '[run]\noutput = "a #3 \\"b\\" \\\\ \\n.h5" # mine\nplain = x "y" # "z"\nodd = a\v\u2028b\n'
        self.assertEqual(configuration.parse_config(text), {"run.output": 'a #3 "b" \\ \n.h5', "run.plain": 'x "y"',
                                                      "run.odd": "a\v\u2028b"})


class Bases(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        (self.folder / "bases").mkdir()

    def read(self, **files):
        """What run.ini says, beside bases/NAME.ini."""
        for name, text in files.items():
            (self.folder / ("run.ini" if name == "run" else f"bases/{name}.ini")).write_text(text)
        return configuration.read_config(self.folder / "run.ini")

    def test_the_file_wins(self):
        said = self.read(far="[run]\nseed = 1\nrounds = 1\n", near="base = far.ini\n[run]\nseed = 2\n[train]\nlr = 2\n",
                         run="# head\nbase = \"bases/near.ini\" # y\n[train]\nlr = 3\n")
        self.assertEqual(said, {"run.seed": "2", "run.rounds": "1", "train.lr": "3"})

    def test_rivals(self):
        said = self.read(near="[train]\nlocal_epochs = 2\nlr = 1\n",
                         run="base = bases/near.ini\n[train]\nlocal_steps = 3\n")
        self.assertEqual(said, {"train.local_steps": "3", "train.lr": "1"})

    def test_keys_of_methods(self):
        near = "[algorithm]\nname = ditto\nmu = 0.5\ncodec = bf16\n[algorithm.fedprox]\nmu = 0.25\n"
        of_ditto = {"algorithm.name": "ditto", "algorithm.mu": "0.5", "algorithm.codec": "bf16"}
        self.assertEqual(acting(self.read(near=near, run="base = bases/near.ini\n"), {}), of_ditto)
        prox = self.read(run="base = bases/near.ini\n[algorithm]\nname = fedprox\n")
        self.assertEqual(acting(prox, {}), {**of_ditto, "algorithm.name": "fedprox", "algorithm.mu": "0.25"})
        self.assertEqual(acting(prox, {"algorithm.name": "ditto"}), of_ditto)
        own = self.read(run="base = bases/near.ini\n[algorithm]\nname = fedprox\nmu = 0.125\n")
        self.assertEqual(acting(own, {})["algorithm.mu"], "0.125")
        self.assertEqual(acting(own, {"algorithm.name": "ditto"}), of_ditto)

    def test_what_cannot_be_read(self):
        for files, words in (({"run": "base = bases/none.ini\n"}, "none.ini: No such file.*the base of .*run.ini"),
                             ({"run": "base = bases/near.ini\n", "near": "base = ../run.ini\n"}, "near.ini.*circle"),
                             ({"run": "base = bases/near.ini\n", "near": "[run]\nrounds 5\n"}, "near.ini: line 2")):
            with self.subTest(words), self.assertRaisesRegex(results.ResultError, words):
                self.read(**files)


if __name__ == "__main__":
    unittest.main()
