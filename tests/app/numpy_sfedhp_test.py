"""sFedHP repeated with numpy alone, from what a run writes: its initial model, its partition and the
published formula of its random numbers. All clients take part; with one step an edge round a client
sees one batch, in the pass of the edge round's number.
"""

import unittest

import numpy as np
from app_support import main
from numpy_support import TOLERANCE, NumpyCase, Outcome, apply, gradients, read_model


def count(model, function=np.size):
    return sum(function(array) for layer in model for array in layer)


def density(model):
    return count(model, np.count_nonzero) / count(model)


def paper_bits(model, sparse):
    """Remark 1."""
    d, nonzero = count(model), count(model, np.count_nonzero)
    return 64 * nonzero + (d - nonzero) + d if sparse else 64 * d


def personal(run, theta, phi, x, y):
    """K steps on f(theta; batch) + lambda_1/2 ||theta - phi||^2 + gamma_1 phi_rho(theta)."""
    def key(name):
        return run.keys[f"algorithm.{name}"]

    for k in range(key("inner_steps")):
        loss, gradient = gradients(theta, x, y)
        if k == 0:
            run.note(loss, len(y))
        theta = apply(lambda w, g, c: w - key("personal_lr") * (
            g + key("lambda1") * (w - c) + key("gamma1") * np.tanh(w / key("rho"))), theta, gradient, phi)
    return theta


def sfedhp(run, file):
    def key(name):
        return run.keys[f"algorithm.{name}"]

    def sparse(model, gamma):
        bound = key("zero_threshold") if key(gamma) > 0 else -1
        return apply(lambda w: np.where(np.abs(w) <= bound, 0, w), model)

    def mean(models):
        return apply(lambda *arrays: sum(arrays) / len(arrays), *models)

    clients, edges = len(run.lists), run.keys["topology.edges"]
    members = [[c for c in range(clients) if c * edges // clients == e] for e in range(edges)]
    model = read_model(file, "model/init/global")
    for round_, chosen in run.rounds():
        kept, of_edges = {}, []
        for own in members:
            w = phi = model
            for r in range(key("edge_rounds")):
                for client in own:
                    theta = kept[client] if key("restart") == "round" and r > 0 else phi
                    for x, y in run.batches(client, round_, pass_=r):
                        theta = personal(run, theta, phi, x, y)
                    kept[client] = sparse(theta, "gamma1")
                total = key("lambda1") + key("lambda2")
                phi = mean([apply(lambda t, v: (key("lambda1") * t + key("lambda2") * v) / total, kept[c], w)
                            for c in own])
                phi = sparse(phi, "gamma2")
                w = apply(lambda v, p: v - run.keys["train.lr"] * (
                    key("lambda2") * (v - p) + key("gamma2") * np.tanh(v / key("rho"))), w, phi)
            of_edges.append(sparse(w, "gamma2"))
        beta = key("beta")
        model = sparse(apply(lambda old, new: (1 - beta) * old + beta * new, model, mean(of_edges)), "gamma2")
        yield Outcome(chosen, run.train_loss(), model, personal=kept.get, notes={
            "density_personal": np.mean([density(theta) for theta in kept.values()]),
            "density_edge": np.mean([density(w) for w in of_edges]),
            "density_global": density(model),
            "paper_bits_up": np.mean([paper_bits(w, key("gamma2") > 0) for w in of_edges])})


BASE = {"algorithm.name": "sfedhp", "model.name": "dnn", "model.hidden": "8,7", "data.partition": "dirichlet",
        "data.alpha": 0.4, "data.min_samples": 3, "data.clients": 7, "topology.participation": 1,
        "topology.edges": 3, "train.batch_size": 7, "train.local_steps": 1, "train.lr": 0.05,
        "run.rounds": 3, "run.seed": 11, "algorithm.lambda1": 15, "algorithm.lambda2": 10,
        "algorithm.personal_lr": 0.04, "algorithm.inner_steps": 3, "algorithm.edge_rounds": 4, "algorithm.beta": 1,
        "algorithm.restart": "step", "algorithm.gamma1": 0, "algorithm.gamma2": 0, "algorithm.rho": 6e-5,
        "algorithm.zero_threshold": 1e-3, "algorithm.gamma_schedule": "constant"}
SPARSE = {"algorithm.gamma1": 0.05, "algorithm.gamma2": 0.03, "algorithm.rho": 0.02,
          "algorithm.zero_threshold": 0.01, "algorithm.codec": "bitmap"}
CASES = {
    "not sparse": BASE,
    "theta goes on, two batches, beta": BASE | {"algorithm.restart": "round", "train.local_steps": 2,
                                                "algorithm.beta": 1.2},
    "sparse": BASE | SPARSE,
    "sparse clients alone": BASE | SPARSE | {"algorithm.gamma2": 0, "topology.edges": 7},
}


OF_PENALTIES = ("algorithm.rho", "algorithm.zero_threshold", "algorithm.gamma_schedule")


class NumpySFedHP(NumpyCase):
    def run_case(self, keys, *arguments, **others):
        """Without penalties the program refuses their keys."""
        sparse = keys["algorithm.gamma1"] or keys["algorithm.gamma2"]
        given = {key: value for key, value in keys.items() if sparse or key not in OF_PENALTIES}
        return super().run_case(given, *arguments, **others)

    def test_cases(self):
        for name, keys in CASES.items():
            for ranks in (0, 2):
                with self.subTest(name, ranks=ranks), self.run_case(keys, "float64", ranks) as file:
                    _, last = self.check(keys, file, "float64", sfedhp)
                    self.assertEqual(last.notes["density_personal"] < 0.98, "sparse" in name and "not" not in name)

    def test_booked_bytes_are_those_of_the_entries_left(self):
        with self.run_case(CASES["sparse"], "float64", 0) as file:
            _, last = self.check(CASES["sparse"], file, "float64", sfedhp)
            d = count(last.model)
            expected = 3 * (-(-d // 8) + 8 * d * last.notes["density_edge"])
            np.testing.assert_allclose(file["rounds/bytes_up_edge_cloud"][-1], expected, rtol=1e-12)


if __name__ == "__main__":
    main()
