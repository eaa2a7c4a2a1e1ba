"""FedMUD and FedLMT repeated with numpy alone, from what a run writes: its initial model, its partition
and the published formula of its random numbers, those of the factors among them.

A factorised model is a list of layers (U, V, bias); `fixed` holds a layer's frozen (U~, V~).
"""

import numpy as np
from app_support import main
from numpy_support import FACTORS, NumpyCase, Outcome, apply, gradients, read_model, uniform


class LowRank:
    def __init__(self, shape, rank):
        self.shapes = [(side, rank) for side in shape]

    def product(self, u, v):
        return u @ v.T

    def left(self, g, v):
        return g @ v

    def right(self, g, u):
        return g.T @ u


class Kronecker:
    """Blocks one below the other; the first numbers, row by row, are the matrix."""

    def __init__(self, shape, blocks):
        self.shape, numbers = shape, shape[0] * shape[1]
        self.z = next(z for z in range(1, 100) if blocks * z**4 >= numbers)
        self.shapes = [(blocks, self.z, self.z)] * 2

    def product(self, u, v):
        flat = np.concatenate([np.kron(a, b).ravel() for a, b in zip(u, v)])
        return flat[:self.shape[0] * self.shape[1]].reshape(self.shape)

    def entries(self, g):
        """[block, i, k, j, l]"""
        flat = np.zeros(self.shapes[0][0] * self.z**4)
        flat[:g.size] = g.ravel()
        return flat.reshape(-1, self.z, self.z, self.z, self.z)

    def left(self, g, v):
        return np.einsum("bikjl,bkl->bij", self.entries(g), v)

    def right(self, g, u):
        return np.einsum("bikjl,bij->bkl", self.entries(g), u)


class Factors:
    """What a run's factorisation is, layer by layer."""

    def __init__(self, keys, model):
        name, _, self.kind = keys["model.factorisation"].rpartition("_")
        if self.kind not in ("f", "aad"):
            name, self.kind = keys["model.factorisation"], ""
        make = LowRank if name == "low_rank" else Kronecker
        self.layers = [make(weight.shape, keys["model.rank"]) for weight, _ in model]
        self.keys = keys

    def draw(self, layer, place, shape, round_):
        """U(-a, a) for a layer's constant or factor; weights are every second field of the row."""
        a = self.keys["algorithm.init_range"]
        u = uniform(np.prod(shape), self.keys["run.seed"], FACTORS, client=2 * layer, round_=round_,
                    epoch=place << 32)
        return (a * (2 * u - 1)).reshape(shape)

    def new(self, biases, round_, everything=False):
        """Factors and frozen ones after `round_` rounds."""
        factors, fixed = [], []
        for i, (layer, bias) in enumerate(zip(self.layers, biases)):
            drawn = [self.draw(i, place, layer.shapes[place % 2], round_) for place in range(4)]
            zero = [np.zeros(shape) for shape in layer.shapes]
            if self.kind == "aad":
                factors.append((*(drawn[2:] if everything else zero), bias))
            else:
                factors.append((drawn[0], drawn[1] if everything else zero[1], bias))
            fixed.append(drawn[:2])
        return factors, fixed

    def products(self, factors, fixed):
        return [layer.product(u, v) if self.kind != "aad" else
                layer.product(u, constants[1]) + layer.product(constants[0], v)
                for layer, (u, v, _), constants in zip(self.layers, factors, fixed)]

    def gradients(self, of_model, factors, fixed):
        taken = []
        for layer, (g, bias), (u, v, _), constants in zip(self.layers, of_model, factors, fixed):
            left, right = (constants[1], constants[0]) if self.kind == "aad" else (v, u)
            taken.append((layer.left(g, left) if self.kind != "f" else 0 * u, layer.right(g, right), bias))
        return taken


def norm(matrices):
    return np.sqrt(sum(np.sum(matrix**2) for matrix in matrices))


def effective_rank(matrix):
    s = np.linalg.svd(matrix, compute_uv=False)
    shares = s[s > 0] / s.sum()
    return np.exp(-np.sum(shares * np.log(shares)))


def fedmud(run, file):
    keys, initial = run.keys, read_model(file, "model/init/global")
    form = Factors(keys, initial)
    of_model = keys.get("algorithm.start") == "factors"
    frozen = [0 * weight if of_model else weight for weight, _ in initial]
    factors, fixed = form.new([bias for _, bias in initial], 0, of_model)
    last, resets = {}, 0
    value = 8  # bytes of a number
    for round_, chosen in run.rounds():
        if round_ > 1 and (round_ - 1) % keys["algorithm.reset_interval"] == 0:
            frozen = [w + p for w, p in zip(frozen, form.products(factors, fixed))]
            factors, fixed = form.new([bias for *_, bias in factors], round_ - 1)
            resets += 1
        if form.kind == "aad" and (round_ - 1) % keys["algorithm.reset_interval"] == 0:
            np.testing.assert_array_equal(file["draws/factors/fc1.U_fixed"][resets], fixed[0][0])
        received, caught = [], []
        for client in chosen:
            own = factors
            for x, y in run.batches(client, round_):
                model = [(w + p, bias) for w, p, (*_, bias) in
                         zip(frozen, form.products(own, fixed), own)]
                loss, of_weights = gradients(model, x, y)
                run.note(loss, len(y))
                own = apply(lambda f, g: f - keys["train.lr"] * g, own,
                            form.gradients(of_weights, own, fixed))
            received.append(own)
            missed = sum(last.get(client, 0) < r < round_ for r in range(2, round_)
                         if (r - 1) % keys["algorithm.reset_interval"] == 0)
            parts = 1 if form.kind == "f" else 2
            travels = sum(np.prod(shape) for layer in form.layers for shape in layer.shapes[-parts:])
            caught.append(min(missed * (value * travels + 8), value * sum(w.size for w in frozen)))
            last[client] = round_
        before = form.products(factors, fixed)
        mean = run.mean(chosen, [[(p,) for p in form.products(own, fixed)] for own in received])
        factors = run.mean(chosen, received)
        after = form.products(factors, fixed)
        model = [(w + p, bias) for w, p, (*_, bias) in zip(frozen, after, factors)]
        notes = {f"effective_rank.fc{i + 1}": effective_rank(b - a)
                 for i, (a, b) in enumerate(zip(before, after))}
        gap = norm([a - b for (a,), b in zip(mean, after)])
        recorded = file["rounds/aggregation_gap"][round_ - 1]
        np.testing.assert_allclose(recorded, gap, rtol=1e-7, atol=1e-12)
        if form.kind:
            assert recorded < 1e-12
        if keys["algorithm.name"] == "fedmud":
            notes["catch_up_bytes"] = np.mean(caught)
        yield Outcome(chosen, run.train_loss(), model, notes=notes, personal=lambda client: model)


KEYS = {"run.save": "init,partition,draws", "model.name": "dnn", "model.hidden": "9", "data.partition": "dirichlet",
        "data.alpha": 0.4, "data.min_samples": 3, "data.clients": 6, "topology.participation": 0.5,
        "train.batch_size": 7, "train.local_epochs": 2, "train.lr": 0.1, "algorithm.name": "fedmud",
        "algorithm.weighting": "samples", "algorithm.init_range": 0.4, "algorithm.reset_interval": 1,
        "model.exclude": "none", "run.rounds": 5, "run.seed": 11}
CASES = {
    "low rank": {"model.factorisation": "low_rank", "model.rank": 3},
    "low rank, +F, kept for two rounds": {"model.factorisation": "low_rank_f", "model.rank": 4,
                                          "algorithm.reset_interval": 2},
    "low rank, +AAD": {"model.factorisation": "low_rank_aad", "model.rank": 2},
    "Kronecker": {"model.factorisation": "kronecker", "model.rank": 5},
    "Kronecker, +F": {"model.factorisation": "kronecker_f", "model.rank": 7},
    "Kronecker, +AAD, kept for three rounds": {"model.factorisation": "kronecker_aad", "model.rank": 3,
                                               "algorithm.reset_interval": 3},
    "from factors": {"model.factorisation": "low_rank", "model.rank": 3, "algorithm.start": "factors",
                     "algorithm.reset_interval": 2},
    "FedLMT": {"algorithm.name": "fedlmt", "model.factorisation": "low_rank", "model.rank": 3},
}


class NumpyFedMUD(NumpyCase):
    def test_cases(self):
        for name, keys in CASES.items():
            settings = KEYS | keys
            if settings["algorithm.name"] == "fedlmt":  # one that never resets and has nothing frozen
                del settings["algorithm.reset_interval"]
            for ranks in (0, 2):
                with self.subTest(name, ranks=ranks), self.run_case(settings, "float64", ranks) as file:
                    told = settings if "algorithm.reset_interval" in settings else \
                        settings | {"algorithm.reset_interval": 1000, "algorithm.start": "factors"}
                    self.check(told, file, "float64", fedmud)
                    self.check_bytes(told, file)

    def check_bytes(self, keys, file):
        """A participant sends the factors and biases, and gets them and a seed of 8 bytes."""
        sent = sum(8 * values.size for values in file["model/factors"].values())
        sent += sum(8 * values.size for name, values in file["model/global"].items() if "bias" in name)
        participants = file["rounds/participants"][...]
        seed = 8 if keys["algorithm.name"] == "fedmud" else 0
        np.testing.assert_array_equal(file["rounds/bytes_up_client_cloud"], participants * sent)
        np.testing.assert_array_equal(file["rounds/bytes_down_client_cloud"], participants * (sent + seed))


if __name__ == "__main__":
    main()
