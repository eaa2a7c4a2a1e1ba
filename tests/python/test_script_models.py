"""fedhpc.script_model: any module of PyTorch trains by model.backend = autograd as torch trains it."""

import unittest
from unittest import mock

import h5py
import numpy as np

import fedhpc
from python_support import InFolder, python, same_numbers, skip_without_torch

skip_without_torch()

import torch  # noqa: E402
from torch import nn  # noqa: E402

from script_steps import KEYS, ten_steps  # noqa: E402


class Odd(nn.Module):
    """What no file of layers holds: a decision by values of the input, and a layer that is used several times."""

    def __init__(self, p: float = 0.0):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 4)
        self.p = p

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.first(x)) if bool(x.abs().max() > 1) else self.first(x)
        x = nn.functional.dropout(self.norm(x), self.p, self.training)
        return self.head(x)


class Trained(InFolder):
    def setUp(self):
        super().setUp()
        torch.manual_seed(2)
        draw = np.random.default_rng(3)
        self.x, self.y = draw.normal(size=(90, 6)), draw.integers(0, 4, 90)
        self.data = fedhpc.write_dataset("mine.h5", self.x, self.y, clients=np.arange(90) % 3)

    def test_ten_steps_are_those_of_torch(self):
        self.assertEqual(ten_steps(self, Odd(), self.x, self.y) ^ set(Odd().state_dict()), {"norm.num_batches_tracked"})

    def test_same_bits_on_ranks(self):
        keys = {**KEYS, **self.data, **fedhpc.script_model(Odd(0.3), torch.zeros(2, 6), "net.pt"), "run.rounds": 3,
                "run.dtype": "float32", "run.reproducible": True, "train.batch_size": 7}
        fedhpc.run({**keys, "run.output": "one.h5", "train.block": 1}, progress=False)
        fedhpc.run({**keys, "run.output": "wide.h5", "train.block": 3}, progress=False)
        same_numbers(self, "wide.h5", "one.h5")
        keys["run.save"] = "init,partition"
        done = python(f"import fedhpc\nfedhpc.run({ {**keys, 'run.output': 'two.h5'} !r}, progress=False)\n", ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        same_numbers(self, "two.h5", "one.h5")

    def test_the_callers_draws_stay(self):
        keys = {**KEYS, **self.data, **fedhpc.script_model(Odd(0.3), torch.zeros(2, 6), "net.pt"), "run.rounds": 1}
        torch.manual_seed(5)
        before = torch.get_rng_state()
        fedhpc.run({**keys, "run.output": "run.h5"}, progress=False)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_what_cannot_be_written_is_refused(self):
        class TwoOutputs(Odd):
            def forward(self, x):
                return self.first(x), x

        class FixedBatch(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 4)

            def forward(self, x):
                return self.fc(x.reshape(2, 6))

        class Untraced(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 4)
                self.drop = nn.Dropout(0.5)

            def forward(self, x, **ignored):  # torch.jit.script takes no **
                return self.fc(self.drop(x))

        for module, words in ((TwoOutputs(), "return one tensor"), (FixedBatch(), "other sizes"),
                              (Untraced(), "something else than the module")):
            with self.subTest(words):
                with self.assertRaisesRegex(fedhpc.ConfigError, words) as caught:
                    fedhpc.script_model(module, torch.zeros(2, 6), "net.pt")
                self.assertNotIn("\n", str(caught.exception))
                self.assertEqual([path.name for path in self.folder.iterdir()], ["mine.h5"])

    def test_gradients_are_compared(self):
        class Partly(nn.Module):  # torch.jit.script takes no **
            def __init__(self):
                super().__init__()
                self.first, self.fc = nn.Linear(6, 6), nn.Linear(6, 4)

            def forward(self, x, **ignored):
                with torch.no_grad():
                    gate = torch.sigmoid(self.first(x))
                return self.fc(x * gate) + self.first(x)[:, :4]

        class Straight(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sign()

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        class Signs(nn.Linear):
            def forward(self, x):
                return Straight.apply(super().forward(x))

        hooked = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))
        hooked[0].register_full_backward_hook(lambda module, inputs, outputs: tuple(
            None if one is None else 3 * one for one in inputs))
        hooked[1].register_full_backward_hook(lambda module, inputs, outputs: (3 * inputs[0],))
        of_parameter = nn.Linear(6, 4)
        of_parameter.weight.register_hook(lambda gradient: 3 * gradient)
        for module, words in ((Partly(), "other gradients than the module"), (hooked, "other gradients"),
                              (of_parameter, "a hook of its gradient"), (Signs(6, 4), "a part that no file holds")):
            with self.subTest(words):
                with self.assertRaisesRegex(fedhpc.ConfigError, words) as caught:
                    fedhpc.script_model(module, torch.zeros(2, 6), "net.pt")
                self.assertNotIn("\n", str(caught.exception))
                self.assertEqual([path.name for path in self.folder.iterdir()], ["mine.h5"])
        frozen = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))
        frozen[0].requires_grad_(False)
        self.assertIn("model.file", fedhpc.script_model(frozen, torch.zeros(2, 6), "net.pt"))

    def test_a_refusal_leaves_an_earlier_file(self):
        class OnlyOneSize(nn.Linear):
            def forward(self, x):
                return super().forward(x.reshape(2, 6))

        fedhpc.script_model(nn.Linear(6, 4), torch.zeros(2, 6), "net.pt")
        before = (self.folder / "net.pt").read_bytes()
        with self.assertRaisesRegex(fedhpc.ConfigError, "other sizes"):
            fedhpc.script_model(OnlyOneSize(6, 4), torch.zeros(2, 6), "net.pt")
        self.assertEqual((self.folder / "net.pt").read_bytes(), before)
        fedhpc.script_model(nn.Linear(6, 5), torch.zeros(2, 6), "net.pt")
        self.assertNotEqual((self.folder / "net.pt").read_bytes(), before)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"mine.h5", "net.pt"})

    def test_what_is_replaced_is_no_result(self):
        with h5py.File("net.pt", "w") as file:
            file.attrs["status"] = "complete"
        with self.assertRaisesRegex(fedhpc.DataError, "net.pt is a result file or a checkpoint of a run; give another"):
            fedhpc.script_model(Odd(), torch.zeros(1, 6), "net.pt")
        for name, words in ((".", "is a folder"), ("no/net.pt", "there is no folder .*no; make it first")):
            with self.assertRaisesRegex(fedhpc.DataError, words):
                fedhpc.script_model(Odd(), torch.zeros(1, 6), name)

    def test_a_full_disk_is_an_error(self):
        """A limit of the size of files ends a write as a full disk does, but for the number of the error."""
        script = ("import os, resource, signal, fedhpc, torch\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
                  "resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))\n"
                  "try:\n    fedhpc.script_model(torch.nn.Linear(100, 100), torch.zeros(1, 100), 'net.pt')\n"
                  "except fedhpc.DataError as error:\n    print(error)\n")
        before = sorted(self.folder.iterdir())
        done = python(script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "net.pt. cannot be written: File too large")
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1000)):
            with self.assertRaisesRegex(fedhpc.DataError, "net.pt cannot be written: .* MB are free; make room"):
                fedhpc.script_model(Odd(), torch.zeros(1, 6), "net.pt")
        self.assertEqual({one.name for one in self.folder.iterdir()} - {one.name for one in before}, {"script.py"})

    def test_weights_are_finite(self):
        net = Odd()
        with torch.no_grad():
            net.head.bias[2] = float("nan")
        with self.assertRaisesRegex(fedhpc.ConfigError, "^head.bias holds NaN or infinite numbers; give a module"):
            fedhpc.script_model(net, torch.zeros(1, 6), "net.pt")

    def test_a_mean_over_all_steps_is_refused(self):
        class Traced(nn.Sequential):
            def forward(self, x, **ignored):  # torch.jit.script takes no **
                return super().forward(x)

        layers = nn.Linear(6, 4), nn.Sequential(nn.BatchNorm1d(4, momentum=None))
        for net in (nn.Sequential(*layers), torch.jit.script(nn.Sequential(*layers)), Traced(*layers)):
            with self.assertRaisesRegex(fedhpc.ConfigError, "^batch norm 1.0 has momentum=None, a mean over all steps"):
                fedhpc.script_model(net, torch.randn(2, 6), "net.pt")
        layers[1][0].momentum = 0.2
        fedhpc.script_model(nn.Sequential(*layers), torch.randn(2, 6), "net.pt")

    def test_an_example_of_another_type_is_named(self):
        class Casts(nn.Linear):
            def forward(self, x):
                return super().forward(x.float())

        for net, example, words in (
                (nn.Linear(6, 4), torch.zeros(2, 6).double(), "type float64 and the weights are float32: .* float32"),
                (nn.Linear(6, 4).double(), torch.zeros(2, 6), "type float32 and the weights are float64: .* float64")):
            with self.assertRaisesRegex(fedhpc.ConfigError, f"with such an example: .*; the example is of {words}$"):
                fedhpc.script_model(net, example, "net.pt")
        fedhpc.script_model(Casts(6, 4), torch.zeros(2, 6).double(), "net.pt")
        with self.assertRaisesRegex(fedhpc.ConfigError, r"arrive as \[batch, 1, H, W\]"):
            fedhpc.script_model(nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), torch.zeros(2, 3, 2), "net.pt")

    def test_other_files_are_refused(self):
        net = nn.Linear(6, 4)
        torch.save(net, "pickle.pt")
        torch.export.save(torch.export.export(net, (torch.zeros(2, 6),)), "net.pt2")
        library = torch.library.Library("mine", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")

        class Own(nn.Linear):
            def forward(self, x):
                return torch.ops.mine.twice(super().forward(x))

        class OnCuda(nn.Linear):
            def forward(self, x):
                return nn.functional.linear(x.cuda(), self.weight, self.bias)

        torch.jit.save(torch.jit.trace(Own(6, 4), torch.zeros(2, 6)), "own.pt")
        torch.jit.save(torch.jit.script(OnCuda(6, 4)), "cuda.pt")
        for name, words in (("pickle.pt", "no TorchScript file"), ("net.pt2", "no TorchScript file"),
                            ("cuda.pt", "cannot be run")):
            with self.subTest(name):
                with self.assertRaisesRegex(fedhpc.DataError, words) as caught:
                    fedhpc.run(self.keys_of(name), progress=False)
                self.assertNotIn("\n", str(caught.exception))
        # This process knows the operation; another does not.
        done = python(f"import fedhpc\nfedhpc.run({self.keys_of('own.pt')!r}, progress=False)\n")
        self.assertRegex(done.stderr, "DataError: model.file .*Unknown builtin op: mine::twice.*torch.export\n")

    def keys_of(self, name):
        return {**KEYS, **self.data, "model.name": "file", "model.file": name, "model.backend": "autograd"}


if __name__ == "__main__":
    unittest.main()
