"""Local training is what torch.optim does: clipped steps, and schedules of the learning rate."""

import sys
import unittest
import warnings

import h5py
import numpy as np

import fedhpc
from python_support import SOURCE, InFolder, skip_without_torch

skip_without_torch()

import torch  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

sys.path.insert(0, str(SOURCE / "examples"))
import fedavg  # noqa: E402

ROUNDS = 24
FACTORS = []


@fedhpc.algorithm("told_rates", "FedAvg that tells the factor on train.lr of each round")
class ToldRates(fedavg.FedAvg):
    def round(self, round):
        FACTORS.append(round.lr_factor)
        super().round(round)


def chain(warmup, start, rest):
    """Makes a scheduler as a script does: LinearLR for `warmup` epochs, then `rest`."""
    def of(optimizer):
        first = lr_scheduler.LinearLR(optimizer, start_factor=start, total_iters=warmup)
        return lr_scheduler.SequentialLR(optimizer, [first, rest(optimizer)], milestones=[warmup])
    return of


# name -> keys behind train.lr_, a scheduler of an optimizer
SCHEDULES = {
    "exponential": ({"schedule": "exponential", "decay": 0.8}, lambda o: lr_scheduler.ExponentialLR(o, 0.8)),
    "step": ({"schedule": "step", "every": 5, "decay": 0.3}, lambda o: lr_scheduler.StepLR(o, 5, gamma=0.3)),
    "milestones": ({"schedule": "milestones", "milestones": [4, 9, 20], "decay": 0.5},
                   lambda o: lr_scheduler.MultiStepLR(o, [4, 9, 20], gamma=0.5)),
    "cosine": ({"schedule": "cosine", "final": 0.1},
               lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=ROUNDS, eta_min=0.1 * 0.1)),
    "cosine to 0": ({"schedule": "cosine"}, lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=ROUNDS)),
    "warm-up": ({"warmup": 6, "warmup_start": 1 / 3},
                lambda o: lr_scheduler.LinearLR(o, start_factor=1 / 3, total_iters=6)),
    "warm-up and cosine": ({"warmup": 5, "schedule": "cosine", "final": 0.2},
                           chain(5, 0.1, lambda o: lr_scheduler.CosineAnnealingLR(
                               o, T_max=ROUNDS - 5, eta_min=0.2 * 0.1))),
    "warm-up and steps": ({"warmup": 4, "schedule": "step", "every": 3, "decay": 0.5},
                          chain(4, 0.1, lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5))),
    "warm-up and milestones": ({"warmup": 3, "schedule": "milestones", "milestones": [7, 11], "decay": 0.5},
                               chain(3, 0.1, lambda o: lr_scheduler.MultiStepLR(o, [7, 11], gamma=0.5))),
}
# name -> keys behind train., an optimizer of parameters
OPTIMIZERS = {
    "sgd": ({"lr": 0.1}, lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": ({"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
                 lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)),
    "nesterov": ({"lr": 0.1, "optimizer": "nesterov"},
                 lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)),
    "adam": ({"lr": 0.02, "optimizer": "adam"}, lambda p: torch.optim.Adam(p, lr=0.02)),
}


def rates_of_torch(make, lr=0.1):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SequentialLR calls step() of its own schedulers by an old way
        scheduler, rates = make(optimizer), []
        for _ in range(ROUNDS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return np.array(rates) / lr


class Schedules(InFolder):
    def test_rates_are_those_of_torch(self):
        for name, (keys, make) in SCHEDULES.items():
            with self.subTest(name):
                FACTORS.clear()
                fedhpc.run({"algorithm.name": "told_rates", "run.rounds": ROUNDS, "run.output": "rates.h5",
                            "run.checkpoint_every": 0, "data.clients": 2, "data.samples_per_client": 8,
                            "model.name": "mlr", **{f"train.lr_{key}": value for key, value in keys.items()}},
                           progress=False, force=True)
                self.assertEqual(len(FACTORS), ROUNDS)
                np.testing.assert_allclose(FACTORS, rates_of_torch(make), rtol=1e-12, atol=1e-15)


class ClippedSteps(InFolder):
    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(3)
        self.x, self.y = draw.normal(size=(30, 6)), draw.integers(0, 4, 30)
        self.data = fedhpc.write_dataset("mine.h5", self.x, self.y, clients=[0] * 30)

    def of_fedhpc(self, keys):
        """(initial, trained) parameters, and the samples of the only client, after ten full batches."""
        fedhpc.run({**self.data, "algorithm.name": "fedavg", "run.rounds": 1, "run.dtype": "float64",
                    "run.output": "run.h5", "run.save": ["init", "partition"], "run.checkpoint_every": 0,
                    "model.name": "dnn", "model.hidden": 5, "train.batch_size": 0, "train.local_epochs": 10,
                    **{f"train.{key}": value for key, value in keys.items()}}, progress=False, force=True)
        with h5py.File("run.h5") as file:
            both = [{name: torch.from_numpy(values[()]) for name, values in file[f"model/{group}"].items()}
                    for group in ("init/global", "global")]
            return *both, file["partition/train_samples"][()]

    def of_torch(self, initial, samples, make, clip):
        net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4)).double()
        parameters = [initial[name].clone().requires_grad_() for name in sorted(initial)]
        names = dict(zip([name for name, _ in sorted(net.named_parameters())], parameters))
        optimizer, norms = make(parameters), []
        x, y = torch.from_numpy(self.x[samples]), torch.from_numpy(self.y[samples])
        for _ in range(10):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(torch.func.functional_call(net, names, x), y).backward()
            if clip:
                norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, clip)))
            optimizer.step()
        return dict(zip(sorted(initial), parameters)), norms

    def test_ten_steps_equal_torch(self):
        for name, (keys, make) in OPTIMIZERS.items():
            for clip in (0, 0.1):
                with self.subTest(name, clip=clip):
                    initial, trained, samples = self.of_fedhpc({**keys, "clip_norm": clip})
                    expected, norms = self.of_torch(initial, samples, make, clip)
                    self.assertGreater(max(norms, default=1), clip)
                    for field, values in expected.items():
                        torch.testing.assert_close(trained[field], values.detach(), rtol=0, atol=1e-9)
                        self.assertGreater(float((trained[field] - initial[field]).abs().max()), 1e-3)

    def test_a_length_that_none_reaches_changes_no_bit(self):
        for name in ("momentum", "nesterov", "adam"):
            with self.subTest(name):
                _, clipped, _ = self.of_fedhpc({**OPTIMIZERS[name][0], "clip_norm": 1e6})
                _, plain, _ = self.of_fedhpc(OPTIMIZERS[name][0])
                for field, values in plain.items():
                    self.assertTrue(torch.equal(clipped[field], values))


class Refusals(InFolder):
    def refused(self, words, **keys):
        with self.assertRaisesRegex(fedhpc.ConfigError, words) as caught:
            fedhpc.run({"data.clients": 2, "data.samples_per_client": 8, "run.output": "run.h5",
                        **{key.replace("__", "."): value for key, value in keys.items()}}, progress=False, force=True)
        self.assertNotIn("\n", str(caught.exception))

    def test_keys_without_effect(self):
        for key in ("lr_every", "lr_period", "lr_unit", "lr_warmup_start", "lr_milestones"):
            with self.subTest(key):
                self.refused(f"train.{key}", **{f"train__{key}": "epoch" if key == "lr_unit" else 5})
        self.refused("train.clip_norm", algorithm__name="pfedgp", train__clip_norm=1)
        self.refused("train.clip_norm", algorithm__name="tdpfed", train__clip_norm=1)

    def test_a_cosine_to_zero_ends_with_its_run(self):
        keys = {"data.clients": 2, "data.samples_per_client": 8, "run.rounds": 2, "run.output": "run.h5",
                "train.lr_schedule": "cosine"}
        fedhpc.run(keys, progress=False)
        with self.assertRaisesRegex(fedhpc.ConfigError, "run.rounds.*cosine"):
            fedhpc.resume("run.h5", progress=False, **{"run.rounds": 4})
        fedhpc.run({**keys, "train.lr_final": 0.1}, progress=False, force=True)
        fedhpc.resume("run.h5", progress=False, **{"run.rounds": 4})
        with h5py.File("run.h5") as file:
            self.assertEqual(len(file["rounds/round"]), 4)


if __name__ == "__main__":
    unittest.main()
