"""FedAvg repeated with numpy alone, from what a run writes: its initial model, its partition and the
published formula of its random numbers. Round numbers in a generator's counter count from 1.
"""

import unittest

import h5py
import numpy as np
from app_support import main
from numpy_support import INIT, NumpyCase, Outcome, apply, gradients, read_model, uniform


def fedavg(run, file):
    model = read_model(file, "model/init/global")
    lr = run.keys["train.lr"]
    for round_, chosen in run.rounds():
        received = []
        for client in chosen:
            local = model
            for x, y in run.batches(client, round_):
                loss, gradient = gradients(local, x, y)
                run.note(loss, len(y))
                local = apply(lambda w, g: w - lr * g, local, gradient)
            received.append(local)
        model = run.mean(chosen, received)
        yield Outcome(chosen, run.train_loss(), model, personal=lambda client, own=model: own)


# name: (keys, 1-rank and 2-rank runs both); rounds, seed and learning rate differ on purpose.
CASES = {
    "two hidden layers, epochs, partial batches": {
        "model.name": "dnn", "model.hidden": "11,7", "data.partition": "dirichlet", "data.alpha": 0.4,
        "data.min_samples": 3, "data.clients": 9, "topology.participation": 0.6,
        "train.batch_size": 4, "train.local_epochs": 2, "train.lr": 0.2,
        "algorithm.weighting": "samples", "run.rounds": 4, "run.seed": 11},
    "linear model, steps over epochs, uniform weights": {
        "model.name": "mlr", "data.partition": "labels", "data.labels_per_client": 2,
        "data.clients": 7, "topology.participation": 0.5, "train.batch_size": 9,
        "train.local_steps": 11, "train.lr": 0.3, "algorithm.weighting": "uniform",
        "run.rounds": 3, "run.seed": 0},
    "full batch, steps": {
        "model.name": "dnn", "model.hidden": "8", "data.partition": "iid", "data.clients": 8,
        "topology.participation": 1, "train.batch_size": 0, "train.local_steps": 3, "train.lr": 0.5,
        "algorithm.weighting": "samples", "run.rounds": 4, "run.seed": 3},
    "full batch, epochs, uniform weights": {
        "model.name": "dnn", "model.hidden": "6,5", "data.partition": "dirichlet", "data.alpha": 0.3,
        "data.min_samples": 1, "data.clients": 6, "topology.participation": 0.5,
        "train.batch_size": 0, "train.local_epochs": 2, "train.lr": 0.1,
        "algorithm.weighting": "uniform", "run.rounds": 3, "run.seed": 5},
    "batches of one, half pixels": {
        "model.name": "mlr", "data.partition": "dirichlet", "data.alpha": 0.2,
        "data.min_samples": 0, "data.clients": 20, "topology.participation": 0.4,
        "data.standardize": "half", "train.batch_size": 1, "train.local_epochs": 1, "train.lr": 0.02,
        "algorithm.weighting": "samples", "run.rounds": 5, "run.seed": 2},
    "official test set": {
        "model.name": "dnn", "model.hidden": "7", "data.partition": "labels", "data.split": "official",
        "data.clients": 5, "topology.participation": 0.3, "train.batch_size": 16,
        "train.local_steps": 5, "train.lr": 0.2, "algorithm.weighting": "samples",
        "run.rounds": 3, "run.seed": 8},
}


class NumpyFedAvg(NumpyCase):
    always = {"algorithm.name": "fedavg"}

    def test_cases(self):
        ragged = set()
        for name, keys in CASES.items():
            for dtype, ranks in (("float64", 0), ("float64", 2), ("float32", 2)):
                with self.subTest(name, dtype=dtype, ranks=ranks), \
                        self.run_case(keys, dtype, ranks) as file:
                    run, _ = self.check(keys, file, dtype, fedavg)
                    ragged |= set(map(len, run.lists))
        self.assertGreater(len(ragged), 8, "the cases have clients of many sizes")

    def test_sizes_planted_on_purpose(self):
        """Clients with 0, 1, a batch, a batch and one, and shared samples; some without test samples."""
        train = [[], [5], list(range(10, 14)), list(range(20, 25)), [5, 7, 231, 7], list(range(40, 90))]
        test = [[0, 1], [], [100], list(range(110, 130)), [], [2, 2, 3]]
        with h5py.File(self.folder / "parts.h5", "w") as parts:
            for half, lists in (("train", train), ("test", test)):
                parts[f"{half}_offsets"] = np.cumsum([0, *map(len, lists)])
                parts[f"{half}_samples"] = np.concatenate(lists).astype(np.int64)
        keys = {"data.partition": "file", "data.partition_file": self.folder / "parts.h5",
                "model.name": "dnn", "model.hidden": "5,4", "train.batch_size": 4,
                "train.local_epochs": 2, "train.lr": 0.2, "topology.participation": 0.5,
                "run.rounds": 6, "run.seed": 4}
        for weighting in ("samples", "uniform"):
            for ranks in (0, 3):
                case = {**keys, "algorithm.weighting": weighting}
                with self.subTest(weighting, ranks=ranks), \
                        self.run_case(case, "float64", ranks) as file:
                    self.check(case, file, "float64", fedavg)
                    np.testing.assert_array_equal(file["clients/train_samples"], list(map(len, train)))

    def test_initial_weights(self):
        """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), drawn per parameter in order of the row."""
        keys = {**CASES["two hidden layers, epochs, partial batches"], "run.rounds": 1}
        with self.run_case(keys, "float64", 0) as file:
            index = 0
            for weight, bias in read_model(file, "model/init/global"):
                for parameter in (weight, bias):
                    drawn = uniform(parameter.size, keys["run.seed"], INIT, client=index)
                    expected = (2 * drawn - 1) / np.sqrt(weight.shape[1])
                    np.testing.assert_allclose(parameter.ravel(), expected, rtol=1e-15)
                    index += 1
            self.assertEqual(index, 6)


if __name__ == "__main__":
    main()
