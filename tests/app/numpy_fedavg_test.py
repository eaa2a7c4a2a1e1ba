"""FedAvg repeated with numpy alone, from what a run writes: its initial model, its partition and the
published formula of its random numbers. Round numbers in a generator's counter count from 1.
"""

import unittest

import h5py
import numpy as np
from app_support import IDX_FILES, AppCase, main, read_idx

INIT, COHORT, BATCHES = 1, 4, 5  # purposes of draws
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}  # norm-wise per tensor


def draws(count, seed, purpose, client=0, round_=0, epoch=0):
    """The generator: Philox4x64-10 as numpy has it."""
    return np.random.Philox(key=[seed, purpose], counter=[0, epoch, client, round_]).random_raw(count)


def permutation(count, *key, **counter):
    return np.argsort(draws(count, *key, **counter), kind="stable")


def cohort(seed, round_, clients, participation):
    size = max(1, int(np.floor(participation * clients + 0.5)))
    return np.sort(permutation(clients, seed, COHORT, round_=round_)[:size])


def batches_of(seed, client, round_, samples, batch_size, local_steps, local_epochs):
    """The batches of one client in one round: positions in its list of training samples."""
    if samples == 0:
        return []
    size = batch_size or samples
    per_epoch = -(-samples // size)
    steps = local_steps or local_epochs * per_epoch
    batches = []
    for step in range(steps):
        if batch_size == 0:
            batches.append(np.arange(samples))
            continue
        epoch, s = divmod(step, per_epoch)
        order = permutation(samples, seed, BATCHES, client=client, round_=round_, epoch=epoch)
        batches.append(order[s * size:(s + 1) * size])
    return batches


def forward(model, x):
    """Inputs of every layer and the logits; a model is a list of (weight, bias)."""
    inputs = []
    for i, (weight, bias) in enumerate(model):
        inputs.append(x)
        x = x @ weight.T + bias
        if i + 1 < len(model):
            x = np.maximum(x, 0)
    return inputs, x


def log_softmax(z):
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def sgd_step(model, x, y, lr):
    """One step in place of the mean cross-entropy; returns the loss before it."""
    inputs, logits = forward(model, x)
    logp = log_softmax(logits)
    rows = np.arange(len(y))
    delta = np.exp(logp)
    delta[rows, y] -= 1
    delta /= len(y)
    for i in reversed(range(len(model))):
        weight, bias = model[i]
        gradient = delta.T @ inputs[i], delta.sum(axis=0)
        delta = (delta @ weight) * (inputs[i] > 0)
        model[i] = weight - lr * gradient[0], bias - lr * gradient[1]
    return -logp[rows, y].mean()


def score(model, x, y):
    """Correct samples, summed loss."""
    logits = forward(model, x)[1]
    return np.sum(logits.argmax(axis=1) == y), -log_softmax(logits)[np.arange(len(y)), y].sum()


def fedavg(model, lists, x, y, seed, rounds, batch_size, local_steps, local_epochs, lr,
           participation, weighting):
    """Yields the cohort, training loss and model of every round."""
    for round_ in range(1, rounds + 1):
        chosen = cohort(seed, round_, len(lists), participation)
        total, weights, losses, seen = None, 0.0, 0.0, 0
        for client in chosen:
            mine = lists[client]
            local = list(model)
            for batch in batches_of(seed, client, round_, len(mine), batch_size, local_steps,
                                    local_epochs):
                losses += len(batch) * sgd_step(local, x[mine[batch]], y[mine[batch]], lr)
                seen += len(batch)
            weight = len(mine) if weighting == "samples" else float(len(mine) > 0)
            change = [[weight * (a - b) for a, b in zip(new, old)] for new, old in zip(local, model)]
            total = change if total is None else [[a + b for a, b in zip(*pair)]
                                                  for pair in zip(total, change)]
            weights += weight
        model = [tuple(p + t / weights for p, t in zip(*pair)) for pair in zip(model, total)]
        yield chosen, losses / seen, model


def read_model(file, group):
    """Layers fc1, fc2, ... of an exported model."""
    names = list(file[group])
    return [(file[f"{group}/fc{i + 1}.weight"][...].astype(float),
             file[f"{group}/fc{i + 1}.bias"][...].astype(float)) for i in range(len(names) // 2)]


def read_lists(file, half):
    offsets, samples = file[f"partition/{half}_offsets"][...], file[f"partition/{half}_samples"][...]
    return [samples[a:b] for a, b in zip(offsets, offsets[1:])]


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


class NumpyFedAvg(AppCase):
    def setUp(self):
        super().setUp()
        images = [read_idx(self.data / name) for name in IDX_FILES[::2]]
        self.pixels = np.concatenate([half.reshape(len(half), -1) for half in images]).astype(float)
        self.labels = np.concatenate([read_idx(self.data / name) for name in IDX_FILES[1::2]]).astype(int)
        self.official_train = len(images[0])

    def run_case(self, keys, dtype, ranks, name="run.h5"):
        arguments = {"data.name": "mnist", "data.dir": self.data, "run.dtype": dtype,
                     "run.save": "init,partition,draws", "run.output": self.folder / name,
                     "run.progress": "none", "algorithm.name": "fedavg", **keys}
        self.run_ok("run", self.ini(""), *(f"--{key}={value}" for key, value in arguments.items()),
                    ranks=ranks)
        return h5py.File(self.folder / name)

    def check(self, keys, file, dtype):
        standardised = (self.pixels / 255 - 0.5) / 0.5 if keys.get("data.standardize") == "half" \
            else self.pixels / 255
        train, test = read_lists(file, "train"), read_lists(file, "test")
        official = keys.get("data.split") == "official"
        tested = np.arange(self.official_train, len(self.labels)) if official else np.concatenate(test)
        self.assertGreater(len(tested), 0)
        bound = TOLERANCE[dtype]
        reference = fedavg(read_model(file, "model/init/global"), train, standardised, self.labels,
                           seed=keys["run.seed"], rounds=keys["run.rounds"],
                           batch_size=keys["train.batch_size"],
                           local_steps=keys.get("train.local_steps", 0),
                           local_epochs=keys.get("train.local_epochs", 0), lr=keys["train.lr"],
                           participation=keys["topology.participation"],
                           weighting=keys["algorithm.weighting"])
        rounds = {metric: values[...] for metric, values in file["rounds"].items()}
        for i, (chosen, train_loss, model) in enumerate(reference):
            np.testing.assert_array_equal(file["draws/cohort"][i], chosen)
            np.testing.assert_allclose(rounds["train_loss"][i], train_loss, rtol=bound)
            correct, loss = score(model, standardised[tested], self.labels[tested])
            np.testing.assert_allclose(rounds["global_loss"][i], loss / len(tested), rtol=bound)
            # A float32 run may see a tie the other way round.
            slack = 1 / len(tested) if dtype == "float32" else 0
            np.testing.assert_allclose(rounds["global_accuracy"][i], correct / len(tested),
                                       atol=slack + 1e-15)
            own = [score(model, standardised[ids], self.labels[ids])[0] / len(ids)
                   for ids in test if len(ids)]
            if official:
                self.assertTrue(np.isnan(rounds["personal_accuracy"][i]))
            elif dtype == "float64":
                np.testing.assert_allclose(rounds["personal_accuracy"][i], np.mean(own), rtol=1e-14)
                np.testing.assert_allclose(rounds["personal_accuracy_std"][i], np.std(own), atol=1e-14)
                np.testing.assert_allclose(rounds["personal_accuracy_p10"][i],
                                           np.percentile(own, 10), atol=1e-14)
        self.assertEqual(len(rounds["round"]), keys["run.rounds"])
        for layer, (ours, theirs) in enumerate(zip(read_model(file, "model/global"), model)):
            for what, a, b in zip(("weight", "bias"), ours, theirs):
                self.assertLessEqual(np.linalg.norm(a - b), bound * np.linalg.norm(b),
                                     f"fc{layer + 1}.{what}")
        return train

    def test_cases(self):
        ragged = set()
        for name, keys in CASES.items():
            for dtype, ranks in (("float64", 0), ("float64", 2), ("float32", 2)):
                with self.subTest(name, dtype=dtype, ranks=ranks), \
                        self.run_case(keys, dtype, ranks) as file:
                    ragged |= {len(mine) for mine in self.check(keys, file, dtype)}
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
                    self.check(case, file, "float64")
                    np.testing.assert_array_equal(file["clients/train_samples"], list(map(len, train)))

    def test_initial_weights(self):
        """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), drawn per parameter in order of the row."""
        keys = {**CASES["two hidden layers, epochs, partial batches"], "run.rounds": 1}
        with self.run_case(keys, "float64", 0) as file:
            index = 0
            for weight, bias in read_model(file, "model/init/global"):
                for parameter in (weight, bias):
                    raw = draws(parameter.size, keys["run.seed"], INIT, client=index)
                    uniform = (raw >> np.uint64(11)) * 2.0**-53
                    expected = (2 * uniform - 1) / np.sqrt(weight.shape[1])
                    np.testing.assert_allclose(parameter.ravel(), expected, rtol=1e-15)
                    index += 1
            self.assertEqual(index, 6)


if __name__ == "__main__":
    main()
