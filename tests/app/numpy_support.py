"""What the scripts share that repeat runs with numpy alone, from what a run writes: its initial model,
its partition and the published formula of its random numbers. Round numbers in a generator's counter
count from 1.

A model is a list of layers, a layer a tuple of arrays: (weight, bias) of a full one.
"""

from dataclasses import dataclass, field
from typing import Callable

import h5py
import numpy as np
from app_support import IDX_FILES, AppCase, read_idx

INIT, COHORT, BATCHES, EVALUATE, FACTORS = 1, 4, 5, 6, 7  # purposes of draws
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}  # norm-wise per tensor


def draws(count, seed, purpose, client=0, round_=0, epoch=0):
    """The generator: Philox4x64-10 as numpy has it."""
    return np.random.Philox(key=[seed, purpose], counter=[0, epoch, client, round_]).random_raw(count)


def uniform(*key, **counter):
    return (draws(*key, **counter) >> np.uint64(11)) * 2.0**-53


def normal(count, *key, **counter):
    """Standard normals by Box-Muller."""
    u, v = uniform(2 * -(-count // 2), *key, **counter).reshape(-1, 2).T
    length, angle = np.sqrt(-2 * np.log(1 - u)), 2 * np.pi * v
    return np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1).ravel()[:count]


def permutation(count, *key, **counter):
    return np.argsort(draws(count, *key, **counter), kind="stable")


def cohort(seed, round_, clients, participation):
    size = max(1, int(np.floor(participation * clients + 0.5)))
    return np.sort(permutation(clients, seed, COHORT, round_=round_)[:size])


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


def gradients(model, x, y):
    """The mean cross-entropy and its gradient, shaped as the model."""
    inputs, logits = forward(model, x)
    logp = log_softmax(logits)
    rows = np.arange(len(y))
    delta = np.exp(logp)
    delta[rows, y] -= 1
    delta /= len(y)
    layers = []
    for (weight, _), fed in zip(reversed(model), reversed(inputs)):
        layers.append((delta.T @ fed, delta.sum(axis=0)))
        delta = (delta @ weight) * (fed > 0)
    return -logp[rows, y].mean(), layers[::-1]


def apply(function, *models):
    """The function of the models' arrays, one by one: again a model."""
    return [tuple(function(*arrays) for arrays in zip(*layers)) for layers in zip(*models)]


def score(model, x, y):
    """Correct samples, summed loss."""
    logits = forward(model, x)[1]
    return np.sum(logits.argmax(axis=1) == y), -log_softmax(logits)[np.arange(len(y)), y].sum()


def read_model(file, group):
    """Layers fc1, fc2, ... of an exported model."""
    names = list(file[group])
    return [(file[f"{group}/fc{i + 1}.weight"][...].astype(float),
             file[f"{group}/fc{i + 1}.bias"][...].astype(float)) for i in range(len(names) // 2)]


def read_lists(file, half):
    offsets, samples = file[f"partition/{half}_offsets"][...], file[f"partition/{half}_samples"][...]
    return [samples[a:b] for a, b in zip(offsets, offsets[1:])]


class Run:
    """What a run's settings decide for every method; x, y: all samples."""

    def __init__(self, keys, lists, x, y):
        self.keys, self.lists, self.x, self.y = keys, lists, x, y
        self.losses = []

    def rounds(self):
        """Numbers and cohorts."""
        for round_ in range(1, self.keys["run.rounds"] + 1):
            self.losses = []
            yield round_, cohort(self.keys["run.seed"], round_, len(self.lists),
                                 self.keys["topology.participation"])

    def batches(self, client, round_, pass_=0, purpose=BATCHES):
        """The inputs and labels of one client's local steps in one pass of a round."""
        mine = self.lists[client]
        if len(mine) == 0:
            return
        size = self.keys["train.batch_size"] or len(mine)
        per_epoch = -(-len(mine) // size)
        steps = self.keys.get("train.local_steps") or self.keys["train.local_epochs"] * per_epoch
        for step in range(steps):
            epoch, s = divmod(step, per_epoch)
            batch = mine
            if self.keys["train.batch_size"] > 0:
                order = permutation(len(mine), self.keys["run.seed"], purpose, client=client,
                                    round_=round_, epoch=pass_ << 32 | epoch)
                batch = mine[order[s * size:(s + 1) * size]]
            yield self.x[batch], self.y[batch]

    def note(self, loss, count):
        """The mean loss of `count` samples counts into the round's train_loss."""
        self.losses.append((loss, count))

    def train_loss(self):
        losses, counts = np.array(self.losses).T
        return losses @ counts / counts.sum()

    def mean(self, chosen, models):
        """The mean of the chosen clients' models."""
        samples = np.array([len(self.lists[client]) for client in chosen], float)
        weights = samples if self.keys["algorithm.weighting"] == "samples" else np.sign(samples)
        return apply(lambda *arrays: sum(w * a for w, a in zip(weights, arrays)) / weights.sum(),
                     *models)


@dataclass
class Outcome:
    """What a repeated round ends with."""
    cohort: np.ndarray
    train_loss: float
    model: list  # None: the method has no global one
    personal: Callable  # client -> its own model
    factors: list = None
    notes: dict = field(default_factory=dict)  # the method's own metrics


class NumpyCase(AppCase):
    """A test with the data in numpy's hands."""

    always = {}  # keys of every run

    def setUp(self):
        super().setUp()
        images = [read_idx(self.data / name) for name in IDX_FILES[::2]]
        self.pixels = np.concatenate([half.reshape(len(half), -1) for half in images]).astype(float)
        self.labels = np.concatenate([read_idx(self.data / name) for name in IDX_FILES[1::2]]).astype(int)
        self.official_train = len(images[0])

    def run_case(self, keys, dtype, ranks, name="run.h5"):
        arguments = {"data.name": "mnist", "data.dir": self.data, "run.dtype": dtype,
                     "run.save": "init,partition,draws",
                     "run.output": self.folder / name, "run.progress": "none", **self.always,
                     **keys}
        self.run_ok("run", self.ini(""), *(f"--{key}={value}" for key, value in arguments.items()),
                    ranks=ranks)
        return h5py.File(self.folder / name)

    def check(self, keys, file, dtype, method):
        """Compares every round with those that the method's generator yields, given the run and the
        file; returns the run and the last round."""
        standardised = (self.pixels / 255 - 0.5) / 0.5 if keys.get("data.standardize") == "half" \
            else self.pixels / 255
        test = read_lists(file, "test")
        official = keys.get("data.split") == "official"
        tested = np.arange(self.official_train, len(self.labels)) if official else np.concatenate(test)
        self.assertGreater(len(tested), 0)
        bound = TOLERANCE[dtype]
        run = Run(keys, read_lists(file, "train"), standardised, self.labels)
        rounds = {metric: values[...] for metric, values in file["rounds"].items()}
        outcome = None
        for i, outcome in enumerate(method(run, file)):
            np.testing.assert_array_equal(file["draws/cohort"][i], outcome.cohort)
            np.testing.assert_allclose(rounds["train_loss"][i], outcome.train_loss, rtol=bound)
            if outcome.model is None:
                self.assertTrue(np.isnan(rounds["global_loss"][i]))
            else:
                correct, loss = score(outcome.model, standardised[tested], self.labels[tested])
                np.testing.assert_allclose(rounds["global_loss"][i], loss / len(tested), rtol=bound)
                # A float32 run may see a tie the other way round.
                slack = 1 / len(tested) if dtype == "float32" else 0
                np.testing.assert_allclose(rounds["global_accuracy"][i], correct / len(tested),
                                           atol=slack + 1e-15)
            for metric, value in outcome.notes.items():
                np.testing.assert_allclose(rounds[metric][i], value, rtol=bound, err_msg=metric)
            own = [score(outcome.personal(client), standardised[ids], self.labels[ids])[0] / len(ids)
                   for client, ids in enumerate(test) if len(ids)]
            if official:
                self.assertTrue(np.isnan(rounds["personal_accuracy"][i]))
            elif dtype == "float64":
                np.testing.assert_allclose(rounds["personal_accuracy"][i], np.mean(own), rtol=1e-14)
                np.testing.assert_allclose(rounds["personal_accuracy_std"][i], np.std(own), atol=1e-14)
                np.testing.assert_allclose(rounds["personal_accuracy_p10"][i],
                                           np.percentile(own, 10), atol=1e-14)
        self.assertEqual(len(rounds["round"]), keys["run.rounds"])
        if outcome.model is not None:
            self.assert_close(read_model(file, "model/global"), outcome.model, bound)
        return run, outcome

    def check_personal(self, file, personal, bound):
        """Every client's own model of the last round."""
        stored = read_model(file, "model/personal")
        for client in range(len(stored[0][0])):
            own = [(weight[client], bias[client]) for weight, bias in stored]
            self.assert_close(own, personal(client), bound, f"client {client}, layer")

    def assert_close(self, ours, theirs, bound, what="layer"):
        """Norm-wise, array by array."""
        self.assertEqual(len(ours), len(theirs))
        for layer, pair in enumerate(zip(ours, theirs)):
            for array, (a, b) in enumerate(zip(*pair)):
                self.assertEqual(a.shape, b.shape)
                self.assertLessEqual(np.linalg.norm(a - b), bound * np.linalg.norm(b),
                                     f"{what} {layer + 1}, array {array + 1}")
