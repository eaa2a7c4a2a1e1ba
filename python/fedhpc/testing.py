"""Conformance of a method in Python: what every method of fedhpc holds, without code of its own.

    import fedhpc.testing, my_method
    fedhpc.testing.check("my_method")
"""

import os
import tempfile
from pathlib import Path

import h5py
import numpy as np

from . import running
from .results import Results

# Clients with few, one and no training samples, and one without test samples.
_TRAIN, _TEST = (23, 5, 1, 0, 17, 9, 30), (5, 3, 2, 4, 0, 6, 2)
_SAMPLES = 40  # per client of the generated data
_ORDER = (4, 6, 0, 2, 5, 3, 1)


def check(name, *, skip=(), **keys):
    """Checks that a method holds what every method of fedhpc holds, in runs of milliseconds.

    name  algorithm.name, a method of fedhpc's or of Python's
    keys  keys of all runs, **{"algorithm.mu": 0.5}
    skip  names of checks that do not apply to the method:

    block_width    the same models to 1e-9 in float64 whether 1, 3 or all clients train together
    reproducible   the same bits then, with run.reproducible = true
    resumed        rounds added to a complete run give the bits of a run straight through
    evaluated      evaluations in every round leave the bits of one in the last round
    zero_steps     with train.lr = 0 the model stays as it is
    planned_bytes  fedhpc.plan says the bytes that a round books
    permuted       with full batches it does not matter which client has which number
    finite         clients with one sample or none give no NaN

    Raises AssertionError with all that failed, one a line. Runs in this process; a run of this method on
    several ranks is worth a test of its own: mpirun -n 2 python my_test.py.
    """
    unknown = set(skip) - {verb.__name__[1:] for verb in _CHECKS}
    if unknown:
        raise ValueError(f"there is no check {', '.join(sorted(unknown))}; "
                         f"checks are {', '.join(verb.__name__[1:] for verb in _CHECKS)}")
    with tempfile.TemporaryDirectory() as folder:
        runs = _Runs(name, keys, Path(folder))
        failures = []
        for verb in _CHECKS:
            title = verb.__name__[1:]
            if title in skip:
                continue
            try:
                failures += [f"{title}: {failure}" for failure in verb(runs)]
            except Exception as error:  # the others are looked at all the same
                failures.append(f"{title}: {type(error).__name__}: {error}")
        if failures:
            raise AssertionError(f"method {name}:\n" + "\n".join(failures))


class _Runs:
    """Tiny runs of one method."""

    def __init__(self, name, keys, folder):
        self.folder = folder
        self.number = 0
        self.edges = int(keys.get("topology.edges", 0))
        self.keys = {"run.seed": 5, "run.rounds": 3, "run.dtype": "float64", "run.progress": "none",
                     "run.log_level": "error", "run.checkpoint_every": 0, "data.name": "synthetic",
                     "data.clients": len(_TRAIN), "data.samples_per_client": _SAMPLES, "data.features": 8,
                     "data.classes": 4, "data.partition": "file", "data.partition_file": self.partition(),
                     "model.name": "dnn", "model.hidden": "6", "train.batch_size": 4, "train.local_epochs": 2,
                     "train.lr": 0.1, "algorithm.name": name, **keys}

    def partition(self, order=range(len(_TRAIN))):
        """The file of a partition whose clients come in this order."""
        path = self.folder / f"partition_{'_'.join(map(str, order))}.h5"
        ends = np.cumsum([train + test for train, test in zip(_TRAIN, _TEST)])
        with h5py.File(path, "w") as file:
            for part, sizes, behind in (("train", _TRAIN, ends - _TEST), ("test", _TEST, ends)):
                lists = [np.arange(behind[k] - sizes[k], behind[k], dtype=np.int64) for k in order]
                file[f"{part}_offsets"] = np.cumsum([0, *(len(one) for one in lists)], dtype=np.int64)
                file[f"{part}_samples"] = np.concatenate(lists)
            if self.edges:
                file["edge_of_client"] = np.array([k * self.edges // len(_TRAIN) for k in order], np.int32)
        return os.fspath(path)

    def plan(self, **keys):
        return running.plan({**self.keys, **keys})

    def run(self, **keys):
        self.number += 1
        path = self.folder / f"run_{self.number}.h5"
        return running.run({**self.keys, "run.output": os.fspath(path), **keys}, progress=False)

    @staticmethod
    def resume(results, rounds):
        return running.resume(results.path, progress=False, **{"run.rounds": rounds})

    def models(self, results, state="final"):
        """{name: array} of all models there are: the global one, and those of the clients. "perhaps": or none."""
        models = {}
        group = "model/init" if state == "initial" else "model"
        with h5py.File(results.path) as file:
            def add(name, one):
                part = name.split("/")[0]
                if isinstance(one, h5py.Dataset) and part in ("global", "personal"):
                    models[name] = one[()]
            if group in file:
                file[group].visititems(add)
        if not models and state == "final":
            raise AssertionError("no run has a model: evaluate() hands over what the method has trained")
        return models


def _bits(expected, actual, what):
    if expected.keys() != actual.keys():
        return [f"{what} leaves other models: {sorted(expected)} and {sorted(actual)}"]
    return [f"{what} changes bits of {name}, by up to {_distance(expected[name], values):.2g}"
            for name, values in actual.items() if not np.array_equal(expected[name], values, equal_nan=True)]


def _distance(a, b):
    return float(np.max(np.abs(np.asarray(a, np.float64) - b), initial=0.0))


def _personal(runs):
    """run.save = personal where the method has models of the clients' own."""
    try:
        runs.plan(**{"run.save": "personal"})
    except Exception:
        return {}
    return {"run.save": "personal"}


def _block_width(runs):
    save = _personal(runs)
    expected = runs.models(runs.run(**save, **{"train.block": 1}))
    failures = []
    for width in (3, 8):
        actual = runs.models(runs.run(**save, **{"train.block": width}))
        failures += [f"train.block = {width} moves {name} by {_distance(expected[name], values):.2g}"
                     for name, values in actual.items() if not _distance(expected[name], values) < 1e-9]
    return failures


def _reproducible(runs):
    failures = []
    for dtype in ("float64", "float32"):
        keys = {**_personal(runs), "run.reproducible": True, "run.dtype": dtype, "topology.participation": 0.8}
        expected = runs.models(runs.run(**keys, **{"train.block": 1}))
        for width in (3, 8):
            failures += _bits(expected, runs.models(runs.run(**keys, **{"train.block": width})),
                              f"train.block = {width} in {dtype}")
    return failures


def _resumed(runs):
    keys = {**_personal(runs), "run.reproducible": True, "topology.participation": 0.6, "run.checkpoint_every": 1}
    straight = runs.run(**keys, **{"run.rounds": 5})
    part = runs.run(**keys, **{"run.rounds": 2})
    return _bits(runs.models(straight), runs.models(runs.resume(part, 5)), "going on after round 2")


def _evaluated(runs):
    keys = {**_personal(runs), "run.reproducible": True, "topology.participation": 0.6}
    rarely = runs.run(**keys, **{"run.eval_every": runs.keys["run.rounds"]})
    often = runs.run(**keys, **{"run.eval_every": 1})
    return _bits(runs.models(rarely), runs.models(often), "evaluate() in every round")


def _zero_steps(runs):
    still = runs.run(**{"train.lr": 0, "run.save": "init"})
    initial = runs.models(still, "initial")
    final = runs.models(still, "perhaps")
    return [f"train.lr = 0 moves {name} by {_distance(initial[name], values):.2g}" for name, values in final.items()
            if name in initial and not _distance(initial[name], values) < 1e-13]  # means of equal models round


def _planned_bytes(runs):
    planned = runs.plan(**{"topology.participation": 0.6})
    rounds = runs.run(**{"topology.participation": 0.6}).rounds
    failures = []
    for way in ("up", "down"):
        booked = rounds[f"bytes_{way}_client_cloud"].fillna(0) + rounds[f"bytes_{way}_client_edge"].fillna(0)
        expected = rounds["participants"] * planned[f"bytes_{way}_per_client"]
        for number in rounds.index[booked != expected]:
            failures.append(f"round {number} books {booked[number]:.0f} bytes {way}, planned were "
                            f"{expected[number]:.0f}")
    return failures


def _permuted(runs):
    full = {**_personal(runs), "train.batch_size": 0}
    expected = runs.models(runs.run(**full))
    moved = runs.models(runs.run(**full, **{"data.partition_file": runs.partition(_ORDER)}))
    failures = []
    for name, values in moved.items():
        if name.startswith("personal/"):
            if values.shape[:1] != (len(_ORDER),):
                continue
            back = np.empty_like(values)
            back[list(_ORDER)] = values
            values = back
        if not _distance(expected[name], values) < 1e-9:
            failures.append(f"other numbers of the clients move {name} by {_distance(expected[name], values):.2g}")
    return failures


def _finite(runs):
    failures = []
    for batch in (0, 1, 4):
        models = runs.models(runs.run(**_personal(runs), **{"train.batch_size": batch}))
        failures += [f"{name} is not finite with train.batch_size = {batch}"
                     for name, values in models.items() if not np.isfinite(values).all()]
    return failures


_CHECKS = (_block_width, _reproducible, _resumed, _evaluated, _zero_steps, _planned_bytes, _permuted, _finite)
