"""pFedMe and TDPFed repeated with numpy alone, from what a run writes: its initial model and factors,
its partition and the published formula of its random numbers.

The factors of a model are a list of layers (A1 [in, R], A2 [out, R], bias) with weight^T = A1 A2^T.
"""

import unittest

import numpy as np
from app_support import main
from numpy_support import (FACTORS, TOLERANCE, NumpyCase, Outcome, apply, gradients, normal,
                           read_model)

SAVED = "init,partition,draws,personal"


def nesterov(theta, centre, x, y, run, mu):
    """Steps on f(theta; batch) + lambda/2 ||theta - centre||^2 from rest; notes the loss
    before the first."""
    keys = run.keys
    lr, pull = keys["algorithm.personal_lr"], keys["algorithm.lambda"]
    velocity, first = apply(np.zeros_like, theta), None
    for _ in range(keys["algorithm.inner_steps"]):
        loss, gradient = gradients(theta, x, y)
        first = loss if first is None else first
        gradient = apply(lambda g, w, c: g + pull * (w - c), gradient, theta, centre)
        velocity = apply(lambda v, g: mu * v + g, velocity, gradient)
        theta = apply(lambda w, g, v: w - lr * (g + mu * v), theta, gradient, velocity)
    run.note(first, len(y))
    return theta


def towards(model, mean, beta):
    return apply(lambda old, new: (1 - beta) * old + beta * new, model, mean)


def pfedme(run, file):
    """theta goes on from batch to batch within a round."""
    model = read_model(file, "model/init/global")
    share = run.keys["train.lr"] * run.keys["algorithm.lambda"]
    kept = {}
    for round_, chosen in run.rounds():
        received = []
        for client in chosen:
            local = theta = model
            for x, y in run.batches(client, round_):
                theta = nesterov(theta, local, x, y, run, run.keys["train.momentum"])
                local = apply(lambda w, t: w - share * (w - t), local, theta)
                kept[client] = theta
            received.append(local)
        model = towards(model, run.mean(chosen, received), run.keys["algorithm.beta"])
        yield Outcome(chosen, run.train_loss(), model,
                      personal=lambda client, start=model: kept.get(client, start))


def compose(factors):
    return [(a2 @ a1.T, bias) for a1, a2, bias in factors]


def distance_gradient(factors, theta, scale):
    """Of scale/2 ||theta - compose(factors)||^2."""
    layers = []
    for (a1, a2, bias), (weight, full) in zip(factors, theta):
        residual = (a2 @ a1.T - weight).T
        layers.append((scale * residual @ a2, scale * residual.T @ a1, scale * (bias - full)))
    return layers


class Adam:
    """With the usual constants: .9, .999, 1e-8."""

    def __init__(self, lr, like):
        self.lr, self.t = lr, 0
        self.m, self.s = apply(np.zeros_like, like), apply(np.zeros_like, like)

    def step(self, at, gradient):
        self.t += 1
        self.m = apply(lambda m, g: 0.9 * m + 0.1 * g, self.m, gradient)
        self.s = apply(lambda s, g: 0.999 * s + 0.001 * g * g, self.s, gradient)
        first, second = 1 - 0.9**self.t, 1 - 0.999**self.t
        return apply(lambda a, m, s: a - self.lr * (m / first) / (np.sqrt(s / second) + 1e-8), at,
                     self.m, self.s)


def decompose(model, ranks):
    """Truncated singular value decompositions of the transposed weights; the largest entry of every
    left singular vector is positive."""
    factors = []
    for (weight, bias), rank in zip(model, ranks):
        u, s, vt = np.linalg.svd(weight.T, full_matrices=False)
        u, s, vt = u[:, :rank], s[:rank], vt[:rank]
        roots = np.sqrt(s) * np.sign(u[np.abs(u).argmax(axis=0), np.arange(rank)])
        factors.append((u * roots, vt.T * roots, bias))
    return factors


def read_factors(file, group):
    """A1 and A2 of every layer with the biases of the full model."""
    parts = file[f"{group}/factors"]
    return [(parts[f"fc{i + 1}.A1"][...], parts[f"fc{i + 1}.A2"][...], bias)
            for i, (_, bias) in enumerate(read_model(file, f"{group}/global"))]


def length(model):
    return np.sqrt(sum(np.sum(array**2) for layer in model for array in layer))


def tdpfed(run, file):
    keys = run.keys
    factors = read_factors(file, "model/init")
    ranks = [a1.shape[1] for a1, _, _ in factors]
    kept = {}
    for round_, chosen in run.rounds():
        received, errors = [], []
        for client in chosen:
            own, theta = factors, compose(factors)
            adam = Adam(keys["train.lr"], own)
            for x, y in run.batches(client, round_):
                theta = nesterov(theta, compose(own), x, y, run, keys["algorithm.momentum"])
                for _ in range(keys["algorithm.factor_steps"]):
                    own = adam.step(own, distance_gradient(own, theta, keys["algorithm.lambda"]))
                kept[client] = theta
            received.append(own)
            if adam.t > 0:
                errors.append(length(apply(np.subtract, theta, compose(own))) / length(theta))
        if keys["algorithm.aggregate"] == "afm":
            factors = towards(factors, run.mean(chosen, received), keys["algorithm.beta"])
            model = compose(factors)
        else:
            mean = run.mean(chosen, [compose(own) for own in received])
            model = towards(compose(factors), mean, keys["algorithm.beta"])
            factors = decompose(model, ranks)
        notes = {"composition_error": np.mean(errors)}
        for i, (a1, a2, _) in enumerate(factors):
            notes |= {f"factor_norm.fc{i + 1}.A1": np.linalg.norm(a1),
                      f"factor_norm.fc{i + 1}.A2": np.linalg.norm(a2)}
        yield Outcome(chosen, run.train_loss(), model,
                      personal=lambda client, start=compose(factors): kept.get(client, start),
                      factors=factors, notes=notes)


PFEDME = {"algorithm.name": "pfedme", "algorithm.restart": "round", "run.save": SAVED,
          "model.name": "dnn", "algorithm.lambda": 15, "algorithm.personal_lr": 0.04,
          "train.lr": 0.02, "algorithm.inner_steps": 3, "algorithm.beta": 1, "train.momentum": 0}
TDPFED = {"algorithm.name": "tdpfed", "run.save": SAVED, "model.name": "dnn",
          "algorithm.lambda": 12, "algorithm.personal_lr": 0.05, "train.lr": 0.003,
          "algorithm.inner_steps": 3, "algorithm.factor_steps": 4, "algorithm.beta": 1,
          "algorithm.momentum": 0.5}
EPOCHS = {"model.hidden": "8,7", "data.partition": "dirichlet", "data.alpha": 0.4,
          "data.min_samples": 3, "data.clients": 6, "topology.participation": 0.5,
          "train.batch_size": 7, "train.local_epochs": 1, "algorithm.weighting": "samples",
          "run.rounds": 2, "run.seed": 11}
STEPS = {"model.hidden": "9", "data.partition": "labels", "data.labels_per_client": 2,
         "data.clients": 5, "topology.participation": 1, "train.batch_size": 9,
         "train.local_steps": 5, "algorithm.weighting": "uniform", "run.rounds": 2, "run.seed": 0}
CASES = {
    "pfedme, epochs, half of the clients": (pfedme, PFEDME | EPOCHS),
    "pfedme, steps, uniform weights, beta, Nesterov's steps": (
        pfedme, PFEDME | STEPS | {"algorithm.beta": 1.3, "train.optimizer": "nesterov",
                                  "train.momentum": 0.5}),
    "afm, epochs, half of the clients, ranks": (
        tdpfed, TDPFED | EPOCHS | {"algorithm.aggregate": "afm", "model.rank": "4,3,2"}),
    "afm, steps, uniform weights, beta, ranks by compression": (
        tdpfed, TDPFED | STEPS | {"algorithm.aggregate": "afm", "model.compression": 1.5,
                                  "algorithm.beta": 0.7}),
    "act, epochs, half of the clients, one rank": (
        tdpfed, TDPFED | EPOCHS | {"algorithm.aggregate": "act", "model.rank": 3}),
    "act, steps, uniform weights, beta, plain steps": (
        tdpfed, TDPFED | STEPS | {"algorithm.aggregate": "act", "model.compression": 2,
                                  "algorithm.beta": 1.4, "algorithm.momentum": 0}),
    "act, full batches": (
        tdpfed, TDPFED | STEPS | {"algorithm.aggregate": "act", "model.rank": "5,4",
                                  "train.batch_size": 0}),
}


class NumpyTDPFed(NumpyCase):
    def test_cases(self):
        bound = TOLERANCE["float64"]
        for name, (method, keys) in CASES.items():
            for ranks in (0, 2):
                with self.subTest(name, ranks=ranks), self.run_case(keys, "float64", ranks) as file:
                    _, last = self.check(keys, file, "float64", method)
                    self.check_personal(file, last.personal, bound)
                    if last.factors:
                        self.assert_close(read_factors(file, "model"), last.factors, bound, "factors")

    def test_initial_factors(self):
        """Normals that give weights the variance 2 / fan_in, drawn per factor in order of the row;
        ranks by equations (21) and (22)."""
        method, keys = CASES["afm, steps, uniform weights, beta, ranks by compression"]
        with self.run_case({**keys, "run.rounds": 1}, "float64", 0) as file:
            factors = read_factors(file, "model/init")
            self.assert_close(read_model(file, "model/init/global"), compose(factors), 1e-14)
            for layer, (a1, a2, _) in enumerate(factors):
                inputs, outputs = len(a1), len(a2)
                rank = round(inputs * outputs / (keys["model.compression"] * (inputs + outputs)))
                deviation = (2 / inputs / rank)**0.25
                for i, factor in enumerate((a1, a2)):
                    self.assertEqual(factor.shape[1], rank)
                    drawn = normal(factor.size, keys["run.seed"], FACTORS, client=3 * layer + i)
                    np.testing.assert_allclose(factor.ravel(), deviation * drawn, rtol=1e-13)


if __name__ == "__main__":
    main()
