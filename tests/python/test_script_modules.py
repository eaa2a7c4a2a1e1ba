"""Modules whose tensors are of many kinds, by model.backend = autograd: lists, masks, frozen ones, norms, tables."""

import copy
import unittest
from pathlib import Path
from typing import Dict, List, Tuple

import h5py
import numpy as np

import fedhpc
from python_support import InFolder, python, skip_without_torch

skip_without_torch()

import torch  # noqa: E402
from torch import nn  # noqa: E402

from script_steps import KEYS, example_of, ten_steps  # noqa: E402


class Sequence(nn.Module):
    """A recurrent layer of two levels, whose forward computes from a list of the parameters."""

    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(6, 7, num_layers=2, batch_first=True)
        self.head = nn.Linear(7, 4)

    def forward(self, x):
        return self.head(self.rnn(x.reshape(x.shape[0], 5, 6))[0][:, -1])


class Masked(nn.Module):
    """Attention that sees no later place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((5, 5), -torch.inf).triu(1))
        self.shift = torch.full((6,), 0.5)  # no buffer, and float32
        self.query = nn.Linear(6, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = x.reshape(x.shape[0], 5, 6)
        scores = torch.matmul(self.query(x), x.transpose(1, 2)) + self.mask
        return self.head(torch.matmul(torch.softmax(scores, 2), x + self.shift)[:, -1])


class Normed(nn.Module):
    """One norm of every kind that has no statistics."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(5, 4, 3)
        self.group = nn.GroupNorm(2, 4)
        self.instance = nn.InstanceNorm1d(4, affine=True)
        self.layer = nn.LayerNorm([4, 4])
        self.squares = nn.RMSNorm([4, 4])
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.squares(self.first(x.reshape(x.shape[0], 5, 6)))
        return self.head(torch.tanh(self.layer(self.instance(self.group(x)))).flatten(1))


class Wide(nn.Module):
    """A buffer that training moves, and no batch norm."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.head(x - self.mean)


class Statistics(nn.Module):
    """Batch norm with neither buffers nor parameters."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6, affine=False, track_running_stats=False)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.first(x))))


class Counting(nn.Module):
    """Has attributes of many types, and changes the one that `moved` names."""

    calls: int
    rate: float
    name: str
    sizes: List[int]
    rest: Dict[str, torch.Tensor]
    pair: Tuple[int, float]

    def __init__(self, moved):
        super().__init__()
        self.moved = moved
        self.calls, self.rate, self.name, self.sizes, self.pair = 0, float("nan"), "a", [1], (1, 2.0)
        self.rest = {"mean": torch.zeros(1)}
        self.last = torch.zeros(0)
        self.all = [torch.zeros(2)]
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        if self.moved == "calls":
            self.calls += 1
        if self.moved == "rate":
            self.rate = 0.5
        if self.moved == "name" and not self.training:
            self.name = self.name + "b"
        if self.moved == "sizes":
            self.sizes.append(x.shape[0])
        if self.moved == "rest":
            self.rest["mean"].add_(1)
        if self.moved == "pair":
            self.pair = (2, 2.0)
        if self.moved == "last":
            self.last = x
        if self.moved == "all":
            self.all.append(x)
        return self.fc(x)


class Modules(InFolder):
    def setUp(self):
        super().setUp()
        torch.manual_seed(2)
        draw = np.random.default_rng(3)
        self.x, self.y = draw.normal(size=(90, 6)), draw.integers(0, 4, 90)
        self.sequences = draw.normal(size=(90, 5, 6))

    def run_of(self, module, x, y=None, **keys):
        """The results of two rounds of three clients of 30 samples, 23 of them to train with."""
        data = fedhpc.write_dataset("mine.h5", x, self.y if y is None else y, clients=np.arange(90) % 3)
        of_model = fedhpc.script_model(module, example_of(x).float(), "net.pt")
        return fedhpc.run({**KEYS, "run.dtype": "float32", **data, **of_model, "run.rounds": 2, **keys},
                          progress=False, force=True)

    def test_recurrent_layers_train_as_those_of_torch(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            with self.subTest(kind.__name__):
                net = Sequence(kind)
                self.assertEqual(ten_steps(self, net, self.sequences, self.y), set(net.state_dict()))
                found = self.run_of(net.float(), self.sequences).model()
                for name, values in net.state_dict().items():
                    self.assertFalse(np.array_equal(found[name], values.numpy()), name)

    def test_what_shares_a_parameters_memory_otherwise_is_refused(self):
        class Kept(nn.Module):
            def __init__(self, turned):
                super().__init__()
                self.fc = nn.Linear(6, 4)
                weight = self.fc.weight.detach()
                self.kept = weight.t() if turned else {"weight": weight}

            def forward(self, x):
                return self.fc(x)

        for turned in (False, True):
            with self.subTest(turned=turned):
                with self.assertRaisesRegex(fedhpc.DataError, "'kept' shares memory with the parameter 'fc.weight'"):
                    self.run_of(torch.jit.script(Kept(turned)), self.x)

    def test_a_state_that_no_row_holds_is_refused(self):
        data = fedhpc.write_dataset("mine.h5", self.x, self.y, clients=np.arange(90) % 3)
        for moved in ("", "calls", "rate", "name", "sizes", "rest", "pair", "last", "all"):
            with self.subTest(moved=moved):
                torch.jit.script(Counting(moved)).save("net.pt")
                keys = {**KEYS, **data, "model.name": "file", "model.file": "net.pt", "model.backend": "autograd",
                        "run.dtype": "float32", "run.rounds": 1}
                if not moved:
                    self.assertEqual(fedhpc.run(keys, progress=False, force=True).status, "complete")
                    continue
                with self.assertRaisesRegex(fedhpc.DataError, f"forward changes '{moved}', which is no buffer"):
                    fedhpc.run(keys, progress=False, force=True)

    def test_batch_norm_of_a_file_has_a_momentum(self):
        torch.jit.script(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None))).save("net.pt")
        data = fedhpc.write_dataset("mine.h5", self.x, self.y, clients=np.arange(90) % 3)
        with self.assertRaisesRegex(fedhpc.DataError, "batch norm '1' has momentum=None"):
            fedhpc.run({**KEYS, **data, "model.name": "file", "model.file": "net.pt", "model.backend": "autograd"},
                       progress=False, force=True)

    def test_a_parameter_that_forward_does_not_use_is_named(self):
        class Idle(nn.Linear):
            def __init__(self):
                super().__init__(6, 4)
                self.idle = nn.Parameter(torch.ones(3))

        keys = fedhpc.script_model(Idle(), torch.zeros(2, 6), "net.pt")
        data = fedhpc.write_dataset("mine.h5", self.x, self.y, clients=np.arange(90) % 3)
        done = python(f"import fedhpc\nfedhpc.run({ {**KEYS, **data, **keys, 'run.rounds': 1} !r}, progress=False)\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "warning: .*no gradient came to 1 parameter, 'idle'")

    def test_a_mask_stays_and_is_no_row(self):
        net = Masked()
        self.assertEqual(ten_steps(self, net, self.sequences, self.y), {name for name, _ in net.named_parameters()})
        results = self.run_of(net.float(), self.sequences)
        self.assertTrue(np.isfinite(results.rounds["train_loss"].dropna()).all())
        self.assertEqual(set(results.model()), {name for name, _ in net.named_parameters()})

    def test_what_was_held_constant_and_moves_is_an_error(self):
        class Peak(nn.Linear):
            def __init__(self, least: float):
                super().__init__(6, 4)
                self.register_buffer("peaks", torch.zeros(1))
                self.teacher = nn.Parameter(torch.zeros(1), requires_grad=least < 0)
                self.least = least

            def forward(self, x):
                if self.training and bool(x.max() > self.least):
                    self.peaks += 1
                return nn.functional.linear(x, self.weight, self.bias)

        class Teacher(Peak):
            def forward(self, x):
                if self.training:
                    self.teacher += 1
                return nn.functional.linear(x, self.weight, self.bias)

        with self.assertRaisesRegex(fedhpc.DataError, "training moves 'teacher', which is frozen"):
            self.run_of(Teacher(1.5), self.x)
        self.assertFalse(Path("run.h5").exists())
        with self.assertRaisesRegex(fedhpc.Error, "in round 1.*training moves 'peaks', which"):
            self.run_of(Peak(1.5), self.x)  # no sample that the script is tried on has such a value
        self.assertGreater(self.run_of(Peak(0.5), self.x).model()["peaks"][0], 0)

    def test_frozen_parameters_stay(self):
        net = Sequence(nn.GRU)
        for parameter in net.rnn.parameters():
            parameter.requires_grad_(False)
        self.assertEqual(ten_steps(self, net, self.sequences, self.y), {"head.weight", "head.bias"})
        results = self.run_of(net.float(), self.sequences)
        loaded = fedhpc.load_weights(copy.deepcopy(net), results)
        for name, values in loaded.rnn.state_dict().items():
            self.assertTrue(torch.equal(values, net.rnn.state_dict()[name]), name)
        self.assertFalse(torch.equal(loaded.head.weight, net.head.weight))

    def test_batches_of_one_train_without_batch_norm(self):
        results = self.run_of(Wide(), self.x, **{"train.batch_size": 1})
        self.assertEqual(set(results.model()), {"mean", "head.weight", "head.bias"})
        self.assertGreater(np.abs(results.model()["mean"]).max(), 0)

    def test_batches_of_one_are_left_out_with_batch_norm_without_buffers(self):
        for size in (22, 1):  # of 23 samples
            with self.subTest(size):
                results = self.run_of(Statistics(), self.x, **{"train.batch_size": size})
                with h5py.File("run.h5") as file:
                    moves = file["model/global/head.weight"][()] != file["model/init/global/head.weight"][()]
                self.assertEqual(moves.any(), size > 1)
                self.assertEqual(results.status, "complete")

    def uploads(self, net, **keys):
        """The bytes of an upload in every round: {those of the script, those of the exported model}."""
        found = list(self.run_of(net, self.sequences, **keys).rounds["bytes_up_client_cloud"])
        data = fedhpc.write_dataset("mine.h5", self.sequences, self.y, clients=np.arange(90) % 3)
        exported = fedhpc.export_model(net, torch.zeros(2, 1, 5, 6), "net.h5")
        results = fedhpc.run({**KEYS, "run.dtype": "float32", **data, **exported, "run.rounds": 2, **keys,
                              "run.output": "layers.h5"}, progress=False)
        return {sent / 3 for sent in [*found, *results.rounds["bytes_up_client_cloud"]]}

    def test_fedbn_keeps_norms_of_all_kinds(self):
        net = Normed()
        travels = sum(values.numel() for name, values in net.state_dict().items() if name.startswith(("first.", "head.")))
        self.assertEqual(self.uploads(net, **{"algorithm.name": "fedbn"}), {4 * travels})

    def test_a_level_of_a_recurrent_layer_is_one_layer(self):
        net = Sequence(nn.LSTM)
        travels = sum(values.numel() for name, values in net.state_dict().items() if name.endswith("_l0"))
        self.assertEqual(self.uploads(net, **{"algorithm.name": "fedper", "algorithm.layers": 2}), {4 * travels})

    def test_sequences_come_out(self):
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        labels = np.random.default_rng(4).integers(0, 4, (90, 5))
        results = self.run_of(net, self.sequences, labels)
        self.assertEqual(results.status, "complete")

    def test_constants_of_another_number_type_are_refused_before_round_1(self):
        class Inline(nn.Linear):
            def forward(self, x):
                return super().forward(torch.matmul(x, torch.ones(6, 6)))

        self.assertEqual(self.run_of(Inline(6, 4), self.x).status, "complete")
        Path("run.h5").unlink()
        with self.assertRaisesRegex(fedhpc.DataError, "cannot be run on samples of .* in run.dtype = float64"):
            self.run_of(Inline(6, 4), self.x, **{"run.dtype": "float64"})
        self.assertFalse(Path("run.h5").exists())


if __name__ == "__main__":
    unittest.main()
