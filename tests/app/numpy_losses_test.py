"""Regressions, several labels and sequences repeated with numpy alone, from the data and what a run writes: training,
losses and every measure. See numpy_support.py.
"""

import h5py
import numpy as np
from app_support import AppCase, contents, fedhpc, main
from numpy_support import TOLERANCE, Run, read_lists, read_model

SAMPLES, FEATURES, CLIENTS, IGNORED = 150, 6, 6, -100
DRAW = np.random.default_rng(3)
X = DRAW.normal(size=(SAMPLES, FEATURES))
LINE = X @ DRAW.normal(size=(FEATURES, 2)) + 3 + 0.1 * DRAW.normal(size=(SAMPLES, 2))
BITS = (X @ DRAW.normal(size=(FEATURES, 4)) + 0.5 * DRAW.normal(size=(SAMPLES, 4)) > 0.4).astype(np.int32)
PLACES = (X @ DRAW.normal(size=(FEATURES, 5 * 3))).reshape(SAMPLES, 5, 3).argmax(2)
PLACES = np.where(np.arange(5) < DRAW.integers(0, 6, (SAMPLES, 1)), PLACES, IGNORED)  # some of none


class Squares:
    """Mean squared error of outputs [n, T]."""

    targets, keys, measures = LINE, {}, ("rmse",)

    def losses(self, z, y):
        """(loss summed over what counts, how many count, gradient of their mean)."""
        return ((z - y)**2).mean(1).sum(), len(y), 2 * (z - y) / z.size

    def measured(self, z, y):
        loss, count, _ = self.losses(z, y)
        return {"loss": loss / count, "rmse": np.sqrt(((z - y)**2).mean())}


class Bits:
    """Binary cross entropy of logits [n, T]."""

    targets, keys, measures = BITS, {}, ("accuracy", "f1")

    def losses(self, z, y):
        share = 1 / (1 + np.exp(-z))
        loss = -(y * np.log(share) + (1 - y) * np.log(1 - share))
        return loss.mean(1).sum(), len(y), (share - y) / z.size

    def measured(self, z, y):
        loss, count, _ = self.losses(z, y)
        told, right = z > 0, y > 0
        return {"loss": loss / count, "accuracy": (told == right).all(1).mean(),
                "f1": 2 * (told & right).sum() / (told.sum() + right.sum())}


class Sequences:
    """Cross entropy of logits [n, places * classes] over the places that count, smoothed in training."""

    targets, measures = PLACES, ("accuracy", "perplexity")
    keys = {"train.label_smoothing": 0.1}

    def log_shares(self, z, y):
        z = z.reshape(*y.shape, -1)
        z = z - z.max(2, keepdims=True)
        return z - np.log(np.exp(z).sum(2, keepdims=True)), y != IGNORED

    def losses(self, z, y):
        logs, counted = self.log_shares(z, y)
        wanted = np.where(counted[..., None], 0.9 * (np.where(counted, y, 0)[..., None] == np.arange(3)) + 0.1 / 3, 0)
        slope = (np.exp(logs) * counted[..., None] - wanted) / max(counted.sum(), 1)
        return -(wanted * logs).sum(), counted.sum(), slope.reshape(z.shape)

    def measured(self, z, y):
        logs, counted = self.log_shares(z, y)
        loss = -np.take_along_axis(logs, np.where(counted, y, 0)[..., None], 2)[..., 0][counted].mean()
        return {"loss": loss, "accuracy": (logs.argmax(2) == y)[counted].mean(), "perplexity": np.exp(loss)}


KINDS = {"a line": Squares(), "several labels": Bits(), "sequences": Sequences()}


def fedavg(run, kind):
    """(loss of training, model) of every round of a model of one layer."""
    (weight, bias), = run.first
    for round_, chosen in run.rounds():
        received, sums = [], np.zeros(2)
        for client in chosen:
            w, b = weight, bias
            for x, y in run.batches(client, round_):
                loss, count, slope = kind.losses(x @ w.T + b, y)
                sums += loss, count
                w, b = w - run.keys["train.lr"] * slope.T @ x, b - run.keys["train.lr"] * slope.sum(0)
            received.append([(w, b)])
        (weight, bias), = run.mean(chosen, received)
        yield sums[0] / sums[1], weight, bias


class NumpyLosses(AppCase):
    keys = {"run.rounds": 4, "run.seed": 5, "topology.participation": 0.7, "train.batch_size": 4,
            "train.local_epochs": 2, "train.lr": 0.1, "algorithm.weighting": "samples"}

    def go(self, kind, ranks=0, name="run.h5", **keys):
        with h5py.File(self.folder / "data.h5", "w") as file:
            file["x_train"], file["y_train"] = X, kind.targets
        found = {"data.name": "hdf5", "data.file": self.folder / "data.h5", "data.clients": CLIENTS,
                 "model.name": "mlr", "data.validation_fraction": 0.2, "run.save": "init,partition,draws",
                 "run.progress": "none", "run.dtype": "float64", "run.output": self.folder / name,
                 **self.keys, **kind.keys, **{key.replace("__", "."): value for key, value in keys.items()}}
        self.run_ok("run", self.ini(""), *(f"--{key}={value}" for key, value in found.items()), ranks=ranks)
        return self.folder / name

    def test_training_and_measures(self):
        for name, kind in KINDS.items():
            for dtype, ranks in (("float64", 0), ("float64", 2), ("float32", 0)):
                with self.subTest(name, dtype=dtype, ranks=ranks), \
                        h5py.File(self.go(kind, ranks, run__dtype=dtype)) as file:
                    self.check(kind, file, TOLERANCE[dtype])

    def check(self, kind, file, bound):
        rounds = {metric: values[...] for metric, values in file["rounds"].items()}
        self.assertEqual({name for name in ("accuracy", "f1", "rmse", "perplexity") if f"global_{name}" in rounds},
                         set(kind.measures))
        self.assertEqual("personal_accuracy_std" in rounds, "accuracy" in kind.measures)
        self.assertEqual(file["clients/label_histogram"].shape, (CLIENTS, 1))
        run = Run(self.keys, read_lists(file, "train"), X, kind.targets)
        run.first = read_model(file, "model/init/global")
        test, aside = read_lists(file, "test"), read_lists(file, "validation")
        for i, (loss, weight, bias) in enumerate(fedavg(run, kind)):
            def measured(ids):
                return kind.measured(X[ids] @ weight.T + bias, kind.targets[ids])

            np.testing.assert_allclose(rounds["train_loss"][i], loss, rtol=bound)
            slack = 0.1 if bound > 1e-6 else 0  # a float32 run may see a tie the other way round
            for prefix, lists in (("", test), ("validation_", aside)):
                one, own = measured(np.concatenate(lists)), [measured(ids) for ids in lists]
                for measure in ("loss", *kind.measures):
                    if prefix and measure == "perplexity":
                        continue
                    exact = bound if measure in ("loss", "rmse", "perplexity") else slack + 1e-12
                    np.testing.assert_allclose(rounds[f"{prefix}global_{measure}"][i], one[measure], rtol=exact)
                    np.testing.assert_allclose(rounds[f"{prefix}personal_{measure}"][i],
                                               np.mean([each[measure] for each in own]), rtol=exact)
            compared = kind.measures[0]
            np.testing.assert_allclose(file[f"clients/{compared}"][i], [measured(ids)[compared] for ids in test],
                                       rtol=max(bound, slack))
        (w, b), = read_model(file, "model/global")
        for ours, theirs in ((w, weight), (b, bias)):
            self.assertLessEqual(np.linalg.norm(ours - theirs), bound * np.linalg.norm(theirs))
        best = file[f"clients/best_{compared}"][...]
        of_rounds = file[f"clients/{compared}"][...]
        np.testing.assert_array_equal(best, of_rounds.min(0) if compared == "rmse" else of_rounds.max(0))
        self.assertEqual(compared == "rmse", "clients/accuracy" not in file)

    def test_ranks_and_blocks_have_the_same_bits(self):
        for name, kind in KINDS.items():
            expected = contents(self.go(kind, run__reproducible="true"))
            for ranks, block in ((0, 2), (1, 1), (2, 5), (4, 1)):
                with self.subTest(name, ranks=ranks, block=block):
                    actual = contents(self.go(kind, ranks, f"{name[:3].strip()}{ranks}{block}.h5",
                                              run__reproducible="true", train__block=block))
                    self.assertEqual(actual, expected)

    def test_large_targets_leave_a_reproducible_loss_its_digits(self):
        """An exact sum that gave losses and numbers of samples one exponent rounded the numbers away."""
        class Prices(Squares):
            targets = 1e7 * LINE

        losses = []
        for reproducible in ("false", "true"):
            path = self.go(Prices, run__rounds=1, run__reproducible=reproducible)
            with h5py.File(path) as file:
                losses.append(file["rounds/train_loss"][0])
            path.unlink()
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)

    def test_a_resumed_run_has_the_same_bits(self):
        for name, kind in KINDS.items():
            with self.subTest(name):
                whole = contents(self.go(kind, run__checkpoint_every=2))
                path = self.go(kind, name="resumed.h5", run__checkpoint_every=2, run__rounds=2)
                self.run_ok("resume", path, "--run.rounds=4")
                self.assertEqual(contents(path), whole)
                path.unlink()
                for left in self.folder.glob("resumed.*"):
                    left.unlink()

    def test_refusals(self):
        self.go(KINDS["a line"])

        def refused(*arguments):
            done = fedhpc("run", self.ini(""), "--data.name=hdf5", f"--data.file={self.folder / 'data.h5'}",
                          "--data.clients=3", "--model.name=mlr", f"--run.output={self.folder / 'no.h5'}", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            return done.stderr

        self.assertIn("data.partition = dirichlet deals samples by their labels", refused("--data.partition=dirichlet"))
        self.assertIn("algorithm.name = pfedgp reads one class label", refused("--algorithm.name=pfedgp"))
        self.assertIn("train.loss = cross_entropy does not fit the data, 2 real numbers a sample",
                      refused("--train.loss=cross_entropy"))
        self.assertIn("train.label_smoothing = 0.1 has no say", refused("--train.label_smoothing=0.1"))
        self.assertIn("train.ignored_label = 3 is for labels", refused("--train.ignored_label=3"))

    def test_labels_beside_targets_deal_samples(self):
        labels = DRAW.integers(0, 3, SAMPLES)
        with h5py.File(self.folder / "own.h5", "w") as file:
            file["x_train"], file["y_train"], file["label_train"] = X, LINE, labels
        output = self.folder / "own_run.h5"
        self.run_ok("run", self.ini(""), "--data.name=hdf5", f"--data.file={self.folder / 'own.h5'}",
                    "--model.name=mlr", "--data.clients=3", "--data.partition=labels", "--data.labels_per_client=1",
                    "--run.rounds=1", "--run.progress=none", "--run.save=partition", f"--run.output={output}")
        with h5py.File(output) as file:
            histogram = file["clients/label_histogram"][...]
            self.assertEqual(((histogram > 0).sum(1) == 1).all(), True)
            self.assertEqual(histogram.sum(), SAMPLES)
            self.assertEqual(file["model/global/fc1.weight"].shape, (2, FEATURES))
            mine = np.concatenate([read_lists(file, half)[0] for half in ("train", "test")])
            self.assertEqual(len(set(labels[mine])), 1)


if __name__ == "__main__":
    main()
