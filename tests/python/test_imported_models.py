"""Models made by export_model train as PyTorch trains them, on any ranks, with every method; files that do not fit."""

import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

import fedhpc
from python_support import SOURCE, InFolder, same_numbers, skip_without_torch

skip_without_torch()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import models_of_others as others  # noqa: E402
from torch_training import Training  # noqa: E402

SHORT = os.environ.get("FEDHPC_TESTS") == "short"
PROGRAM = os.environ.get("FEDHPC") or SOURCE / "build" / "release" / "fedhpc"
CLIENTS = 4
KEYS = {"run.rounds": 2, "run.seed": 11, "run.dtype": "float64", "run.reproducible": True, "run.save": "init,partition",
        "run.output": "run.h5", "topology.participation": 0.8, "train.local_steps": 10, "train.batch_size": 6,
        "train.lr": 0.05, "train.optimizer": "sgd"}


class CNN(nn.Module):
    """Two convolutions, dropout and two linear layers, as benchmarks of federated learning have it."""

    def __init__(self, dropout=True):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 8, 3)
        self.fc1, self.fc2 = nn.Linear(8 * 4 * 4, 16), nn.Linear(16, 5)
        self.drop1, self.drop2 = (nn.Dropout(0.25), nn.Dropout(0.5)) if dropout else (nn.Identity(), nn.Identity())

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(self.drop2(F.relu(self.fc1(torch.flatten(self.drop1(x), 1)))))


class Net(nn.Module):
    """Batch norm, average pooling, a residual sum and layer norm."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 6, 5, 2, 2, bias=False), nn.BatchNorm2d(6)
        self.conv, self.pool, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.AvgPool2d(2), nn.LayerNorm(54)
        self.fc = nn.Linear(54, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        return self.fc(self.last(torch.flatten(self.pool(x + F.relu(self.conv(x))), 1)))


# name -> what makes it, shape of a sample, whole numbers below which the input is, or None
MODELS = {
    "CNN": (lambda: CNN(dropout=False), (1, 12, 12), None),
    "batch norm": (Net, (1, 12, 12), None),
    "ResNet18 with group norm": (lambda: others.ResNet18(lambda width: nn.GroupNorm(2, width), width=4), (3, 16, 16),
                                 None),
}


class Imported(InFolder):
    """A test with a module, its file and data for it."""

    def setUp(self):
        super().setUp()
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(5)

    def prepare(self, name):
        """Makes a model and its data; returns the module, x, y and the keys of a run."""
        make, shape, words = MODELS[name]
        module, numbers = make(), np.random.default_rng(3)
        # Clients of several sizes, so that their last batches have, too.
        count, clients = 23 * CLIENTS, np.sort(numbers.integers(0, CLIENTS, 23 * CLIENTS))
        if words:
            x = numbers.integers(0, words, (count, *shape))
        else:
            x = numbers.standard_normal((count, *shape))
        outputs = module(torch.from_numpy(x[:2])).shape[1:]
        y = numbers.integers(0, outputs[-1], (count, *outputs[:-1]))
        y.flat[0] = outputs[-1] - 1
        keys = fedhpc.write_dataset("data.h5", x, y, clients=clients, channels="first")
        keys |= fedhpc.export_model(module, torch.from_numpy(x[:1]), "net.h5")
        return module, torch.from_numpy(x), torch.from_numpy(y), {**KEYS, **keys}

    def run_model(self, keys, **others):
        return fedhpc.run({**keys, **others}, progress=False, force=True)


class Trains(Imported):
    def check(self, module, x, y, keys, **changes):
        """The run with these keys is what PyTorch makes of the same module, and comes back into it."""
        keys = {**keys, **changes}
        results = self.run_model(keys)
        training = Training("run.h5", "net.h5", module, x, y)
        self.assertGreater(len({len(one) % keys["train.batch_size"] for one in training.lists}), 1)
        model, losses = training.run(keys)
        ours = results.model()
        self.assertEqual(sorted(ours), sorted(model))
        apart = 0
        for name, values in model.items():
            self.assertFalse(torch.equal(values, training.initial[name]), name)
            distance = float((torch.from_numpy(ours[name]) - values).norm())
            # Rounding grows where batch norm divides by a small deviation.
            self.assertLessEqual(distance, 1e-8 * float(values.norm()), name)
            apart += distance**2
        self.assertLessEqual(apart**0.5, 1e-9 * sum(float(values.norm())**2 for values in model.values())**0.5)
        np.testing.assert_allclose(results.rounds["train_loss"], losses, rtol=1e-9)
        fedhpc.load_weights(module, results)
        accuracy, loss = training.evaluate()
        self.assertAlmostEqual(results.rounds["global_accuracy"].iloc[-1], accuracy, 12)
        self.assertLessEqual(abs(results.rounds["global_loss"].iloc[-1] - loss), 1e-9 * loss)

    def test_as_in_torch(self):
        for name in MODELS:
            with self.subTest(name):
                self.check(*self.prepare(name))

    def test_optimizers(self):
        for optimizer in ("momentum", "nesterov", "adam"):
            for name in list(MODELS)[:1] if SHORT else MODELS:
                with self.subTest(name, optimizer=optimizer):
                    rate = 0.002 if optimizer == "adam" else 0.02
                    self.check(*self.prepare(name), **{"train.optimizer": optimizer, "train.lr": rate})


class SameBits(Imported):
    def test_ranks_and_blocks(self):
        for name in MODELS:
            keys = self.prepare(name)[-1]
            self.run_model(keys, **{"run.output": "one.h5"})
            for ranks, block in ((1, 1), (1, 3), (1, CLIENTS), (2, 2), (4, 1)):
                with self.subTest(name, ranks=ranks, block=block):
                    fedhpc.run({**keys, "train.block": block, "run.output": "other.h5"}, ranks=ranks, progress=False,
                               force=True)
                    same_numbers(self, "one.h5", "other.h5")

    def test_killed_and_resumed(self):
        keys = {**self.prepare(list(MODELS)[-1])[-1], "run.rounds": 6, "run.checkpoint_every": 2}
        script = Path("killed.py")
        script.write_text(f"import fedhpc, os, signal\nfedhpc.run({ {**keys, 'run.output': 'killed.h5'} !r}, "
                          "progress=False, on_round=lambda one: one['round'] == 4 and "
                          "os.kill(os.getpid(), signal.SIGKILL))\n", encoding="utf-8")
        killed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        resumed = fedhpc.resume("killed.h5", progress=False)
        self.assertEqual((resumed.status, len(resumed.rounds)), ("complete", 6))
        self.run_model(keys)
        same_numbers(self, "killed.h5", "run.h5")


class OneLibTorch(InFolder):
    def test_imports_in_either_order(self):
        for first, second in (("torch", "fedhpc"), ("fedhpc", "torch")):
            with self.subTest(first=first):
                script = (f"import {first}\n"
                          "if 'fedhpc' in globals():\n    fedhpc.version()\n"  # loads the compiled module
                          f"import {second}\n"
                          "results = fedhpc.run({'run.rounds': 1, 'run.output': 'run.h5'}, progress=False, force=True)\n"
                          "assert torch.ones(3).mul(2).sum() == 6 and len(results.rounds) == 1\n"
                          "maps = open('/proc/self/maps').read().split()\n"
                          "found = {one for one in maps if one.endswith('/libtorch_cpu.so')}\n"
                          "assert len(found) == 1, found\n")
                done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
