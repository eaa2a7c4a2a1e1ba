"""Conformance of a method in Python: what every method of fedhpc holds, without code of its own.

    import fedhpc.testing, my_method
    fedhpc.testing.check("my_method")
"""

import os
import shutil
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from . import launching, running
from .methods import registered
from .results import Results
from .tools.result_file import is_of_the_machine

# Clients with few, one and no training samples, and one without test samples.
_TRAIN, _TEST = (23, 5, 1, 0, 17, 9, 30), (5, 3, 2, 4, 0, 6, 2)
_SAMPLES = 40  # per client of the generated data
_ORDER = (4, 6, 0, 2, 5, 3, 1)


def check(name, *, skip=(), **keys):
    """Checks that a method holds what every method of fedhpc holds, in runs of milliseconds, one on ranks of its own.

    name  algorithm.name, a method of fedhpc's or of Python's
    keys  keys of all runs, **{"algorithm.mu": 0.5}
    skip  names of checks that do not apply to the method:

    block_width    the same models to 1e-9 in float64 whether 1, 3 or all clients train together
    reproducible   the same bits then, with run.reproducible = true
    resumed        rounds added to a complete run give the bits of a run straight through
    evaluated      evaluations in every round leave the bits of one in the last round
    zero_steps     with train.lr = 0 the model stays as it is
    planned_bytes  fedhpc.plan says the bytes that a round books, and averaged_uploads are some
    permuted       with full batches it does not matter which client has which number
    finite         clients with one sample or none give no NaN
    ranks          the same bits on 2 ranks, with run.reproducible = true: draws hang on the client and the round,
                   and what comes of several clients goes through round.mean() and its like

    Raises AssertionError with all that failed, one a line. The ranks of "ranks" are processes of their own, as in
    run(ranks=2); without mpirun a warning says that it is left out. In a program that mpirun has started all runs are
    on its ranks, in a folder below the working directory, and "ranks" is left out: mpirun -n 2 python my_test.py.
    """
    unknown = set(skip) - {verb.__name__[1:] for verb in _CHECKS}
    if unknown:
        raise ValueError(f"there is no check {', '.join(sorted(unknown))}; "
                         f"checks are {', '.join(verb.__name__[1:] for verb in _CHECKS)}")
    failures = []
    with _folder(name) as folder:
        runs = _Runs(name, keys, folder)
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


def _many():
    """Whether a launcher has started several ranks, which all check."""
    return running._launched() != 1 and running.ranks() > 1


def _meet():
    """Waits for all ranks: a plan is told when all have the same configuration."""
    running.plan({"data.clients": 2, "data.samples_per_client": 8, "model.name": "mlr"})


@contextmanager
def _folder(name):
    """A folder for a while, one for all ranks; hosts share the working directory, and no /tmp."""
    if not _many():
        with tempfile.TemporaryDirectory(dir=os.getcwd() if launching.may_be_remote() else None) as folder:
            yield Path(folder)
        return
    job = (os.environ.get(one) for one in ("PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"))
    folder = Path("_".join(["fedhpc_check", name, *filter(None, job)])).absolute()
    makes = running.rank() == 0
    if makes:
        shutil.rmtree(folder, ignore_errors=True)  # of a check that was killed
        folder.mkdir()
    try:
        _meet()
        yield folder
        _meet()
    finally:
        if makes:
            shutil.rmtree(folder, ignore_errors=True)


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
        path = self.folder / f"partition_{'_'.join(map(str, order))}_of_rank_{running.rank() if _many() else 0}.h5"
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

    def run(self, ranks=None, **keys):
        self.number += 1
        path = self.folder / f"run_{self.number}.h5"
        return running.run({**self.keys, "run.output": os.fspath(path), **keys}, ranks=ranks, progress=False)

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

    @staticmethod
    def series(results):
        """{name: array} of what the rounds tell of the method, and not of the machine."""
        rounds = results.rounds
        return {f"series {name}": rounds[name].to_numpy() for name in rounds if not is_of_the_machine(name)}


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
        if way == "up" and not booked.any() and any(method().averaged_uploads for method in _in_python(runs)):
            failures.append("averaged_uploads says that the server learns of uploads, and block.upload() sends none")
    return failures


def _in_python(runs):
    """The class of the method, if it is one of Python's."""
    return [method for name, _, method in registered() if name == runs.keys["algorithm.name"]]


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


def _ranks(runs):
    if running._launched() != 1:
        return []  # all runs are on the launcher's ranks
    if launching.launcher() is None:
        warnings.warn("there is no mpirun in PATH: the check \"ranks\" is left out, and mistakes that need a second "
                      "rank are not found", stacklevel=3)
        return []
    keys = {**_personal(runs), "run.reproducible": True, "run.dtype": "float32", "topology.participation": 0.8}
    here, there = runs.run(**keys), runs.run(ranks=2, **keys)
    return _bits({**runs.models(here), **runs.series(here)}, {**runs.models(there), **runs.series(there)},
                 "a second rank")


_CHECKS = (_block_width, _reproducible, _resumed, _evaluated, _zero_steps, _planned_bytes, _permuted, _finite, _ranks)
