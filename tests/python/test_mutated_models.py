"""Model files with lines or bytes changed at random are read, or refused with a sentence: nothing else happens."""

import os
import random
import unittest
from pathlib import Path

import h5py
import numpy as np

import fedhpc
from python_support import skip_without_torch

skip_without_torch()

from test_imported_models import OTHERS, Imported  # noqa: E402

FILES = 100 if os.environ.get("FEDHPC_TESTS") == "short" else 300
SEED = int(os.environ.get("FEDHPC_SEED", random.randrange(10**6)))
NUMBERS = ["-1", "0", "1", "2", "3", "4", "5", "8", "0.5", "1e9", "2147483647", "2147483648", "9223372036854775807",
           "1e308", "nan", "inf", "1e-320", "", "x"]


def changed_line(random_, lines, words):
    """A line with another op, key, number or input."""
    kind, last = random_.randrange(5), random_.randrange(1, len(words)) if len(words) > 1 else 0
    key, _, values = words[last].partition("=")
    values = values.split(",")
    if kind == 0:
        words[0] = random_.choice(lines).split(" ")[0]
    elif kind == 1 and last:
        words.pop(last)
    elif kind == 2 and last:
        values[random_.randrange(len(values))] = random_.choice(NUMBERS)
        words[last] = f"{key}={','.join(values)}"
    elif kind == 3 and last:
        values = values[:-1] or [*values, random_.choice(NUMBERS)]
        words[last] = f"{key}={','.join(values)}"
    else:
        inputs = [str(random_.randrange(len(lines))) for _ in range(random_.randrange(1, 5))]
        words = [f"inputs={','.join(inputs)}" if one.startswith("inputs=") else one for one in words]
    return " ".join(words)


class Mutated(Imported):
    MODELS = ("DenseNet", "GPT", "LSTM, every character", "ViT", "Swin", "MobileNetV3", "Transformer", "Llama")

    def setUp(self):
        super().setUp()
        self.random, self.files = random.Random(SEED), []
        for name in self.MODELS:
            os.mkdir(name)
            os.chdir(name)
            keys = self.prepare(name)[-1]
            os.chdir("..")
            whole = Path(keys["model.file"]).read_bytes()
            with h5py.File(keys["model.file"]) as file:
                lines = [one.decode() for one in file["layers"]]
            keys |= {"model.file": "net.h5", "run.rounds": 1, "train.local_steps": 1}
            self.files.append((keys, whole, lines))

    def read_or_refused(self, keys):
        """Whether a run takes the file."""
        try:
            self.run_model(keys)
            return True
        except fedhpc.Error as error:
            self.assertNotIn("\n", str(error))
            if not isinstance(error, (fedhpc.ConfigError, fedhpc.DataError)):  # what a round alone sees
                self.assertRegex(str(error), r"training client .*\(embedding.*\): the input holds .*; allowed: ")
            return False

    def mutations(self, change):
        taken = 0
        for number in range(FILES):
            keys, whole, lines = self.random.choice(self.files)
            with self.subTest(seed=SEED, number=number):
                change(whole, list(lines))
                taken += self.read_or_refused(keys)
        self.assertGreater(taken, 0)
        self.assertLess(taken, FILES)

    def test_lines(self):
        def change(whole, lines):
            for _ in range(self.random.choice((1, 1, 1, 2, 4))):
                at, kind = self.random.randrange(len(lines)), self.random.randrange(8)
                if kind == 0:
                    lines.insert(at, self.random.choice(self.random.choice(self.files)[2]))
                elif kind == 1 and len(lines) > 2:
                    lines.pop(at)
                else:
                    lines[at] = changed_line(self.random, lines, lines[at].split(" "))
            Path("net.h5").write_bytes(whole)
            with h5py.File("net.h5", "a") as file:
                del file["layers"], file["model"]  # without weights, so that more is built
                file["layers"] = np.array([one.encode() for one in lines])
        self.mutations(change)

    def test_bytes(self):
        def change(whole, _):
            data = bytearray(whole)
            for _ in range(self.random.choice((1, 2, 4, 16))):
                # Most of what HDF5 says of itself stands in front.
                at = self.random.randrange(len(data) if self.random.random() < 0.4 else 4096)
                data[at] = self.random.choice((0, 255, self.random.randrange(256)))
            Path("net.h5").write_bytes(data)
        self.mutations(change)


if __name__ == "__main__":
    unittest.main()
