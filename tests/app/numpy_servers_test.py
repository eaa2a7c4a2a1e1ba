"""SCAFFOLD, FedNova, FedDyn and the server's optimizers repeated with numpy alone, from what a run writes: its initial
model, its partition and the published formula of its random numbers.
"""

import numpy as np
from app_support import main
from numpy_support import NumpyCase, Outcome, apply, gradients, read_model


def plus(a, factor, b):
    return apply(lambda x, y: x + factor * y, a, b)


def zeros(model):
    return apply(np.zeros_like, model)


def outcome(run, chosen, model):
    return Outcome(chosen, run.train_loss(), model, personal=lambda client, own=model: own)


def trained(run, client, round_, model, shift, mu=0.0):
    """The model after the local steps on f + <shift, w> + mu/2 ||w - model||^2, and their number."""
    local, steps = model, 0
    for x, y in run.batches(client, round_):
        loss, gradient = gradients(local, x, y)
        run.note(loss, len(y))
        gradient = plus(plus(gradient, 1, shift), mu, plus(local, -1, model))
        local, steps = plus(local, -run.keys["train.lr"], gradient), steps + 1
    return local, steps


def fedopt(run, file):
    keys = run.keys
    model = read_model(file, "model/init/global")
    m, tau = zeros(model), keys["server.eps"]
    v = apply(lambda w: np.full_like(w, tau**2), model)
    for round_, chosen in run.rounds():
        delta = plus(run.mean(chosen, [trained(run, client, round_, model, zeros(model))[0] for client in chosen]), -1, model)
        m = apply(lambda a, d: keys["server.beta1"] * a + (1 - keys["server.beta1"]) * d, m, delta)
        if keys["server.optimizer"] == "adam":
            v = apply(lambda a, d: keys["server.beta2"] * a + (1 - keys["server.beta2"]) * d**2, v, delta)
        else:
            v = apply(lambda a, d: a - (1 - keys["server.beta2"]) * d**2 * np.sign(a - d**2), v, delta)
        model = apply(lambda w, a, b: w + keys["server.lr"] * a / (np.sqrt(b) + tau), model, m, v)
        yield outcome(run, chosen, model)


def scaffold(run, file):
    model = read_model(file, "model/init/global")
    common, own = zeros(model), {}
    for round_, chosen in run.rounds():
        models, changes = [], []
        for client in chosen:
            mine = own.get(client, zeros(model))
            local, steps = trained(run, client, round_, model, plus(common, -1, mine))
            new = mine
            if steps and run.keys["algorithm.control"] == "gradient":
                x, y = run.x[run.lists[client]], run.y[run.lists[client]]
                new = gradients(model, x, y)[1]
            elif steps:
                new = plus(plus(mine, -1, common), 1 / (steps * run.keys["train.lr"]), plus(model, -1, local))
            own[client] = new
            models.append(local)
            changes.append(plus(new, -1, mine))
        model = plus(model, run.keys["server.lr"], plus(run.mean(chosen, models), -1, model))
        common = plus(common, len(chosen) / len(run.lists), run.mean(chosen, changes))
        yield outcome(run, chosen, model)


def fednova(run, file):
    model = read_model(file, "model/init/global")
    for round_, chosen in run.rounds():
        moves, counts = [], []
        for client in chosen:
            local, steps = trained(run, client, round_, model, zeros(model))
            moves.append(apply(lambda a, b, n=max(steps, 1): (a - b) / n, local, model))
            counts.append([(np.array(float(steps)),)])
        effective = run.mean(chosen, counts)[0][0]
        model = plus(model, effective, run.mean(chosen, moves))
        result = outcome(run, chosen, model)
        result.notes["effective_steps"] = effective
        yield result


def feddyn(run, file):
    model, alpha = read_model(file, "model/init/global"), run.keys["algorithm.alpha"]
    h, own = zeros(model), {}
    for round_, chosen in run.rounds():
        models = []
        for client in chosen:
            mine = own.get(client, zeros(model))
            local, _ = trained(run, client, round_, model, plus(zeros(model), -1, mine), alpha)
            own[client] = plus(mine, -alpha, plus(local, -1, model))
            models.append(local)
        mean = run.mean(chosen, models)
        h = plus(h, -alpha * len(chosen) / len(run.lists), plus(mean, -1, model))
        model = plus(mean, -1 / alpha, h)
        yield outcome(run, chosen, model)


EPOCHS = {"model.name": "dnn", "model.hidden": "11,7", "data.partition": "dirichlet", "data.alpha": 0.4,
          "data.min_samples": 3, "data.clients": 9, "topology.participation": 0.6, "train.batch_size": 4,
          "train.local_epochs": 2, "train.lr": 0.1, "algorithm.weighting": "samples", "run.rounds": 5, "run.seed": 11}
STEPS = {"model.name": "mlr", "data.partition": "labels", "data.labels_per_client": 2, "data.clients": 7,
         "topology.participation": 0.5, "train.batch_size": 9, "train.local_steps": 11, "train.lr": 0.3,
         "algorithm.weighting": "uniform", "run.rounds": 5, "run.seed": 0}
ADAPTIVE = {"algorithm.name": "fedavg", "server.lr": 0.05, "server.beta1": 0.8, "server.beta2": 0.9, "server.eps": 0.02}
CASES = {
    "fedadam": (fedopt, {**EPOCHS, **ADAPTIVE, "server.optimizer": "adam"}),
    "fedyogi": (fedopt, {**STEPS, **ADAPTIVE, "server.optimizer": "yogi"}),
    "scaffold, option I": (scaffold, {**EPOCHS, "algorithm.name": "scaffold", "algorithm.control": "gradient", "server.lr": 1}),
    "scaffold, option II": (scaffold, {**STEPS, "algorithm.name": "scaffold", "algorithm.control": "steps", "server.lr": 0.7}),
    "fednova": (fednova, {**EPOCHS, "algorithm.name": "fednova"}),
    "feddyn": (feddyn, {**STEPS, "algorithm.name": "feddyn", "algorithm.alpha": 0.2}),
}


class NumpyServers(NumpyCase):
    def test_cases(self):
        for name, (method, keys) in CASES.items():
            for dtype, ranks in (("float64", 0), ("float64", 2), ("float32", 2)):
                with self.subTest(name, dtype=dtype, ranks=ranks), self.run_case(keys, dtype, ranks) as file:
                    self.check(keys, file, dtype, method)


if __name__ == "__main__":
    main()
