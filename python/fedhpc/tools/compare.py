"""Compares two runs: configuration, versions, every series, and the final model.

    compare.py A.h5 B.h5 [--tolerance T] [--clients]

Equal are two runs of as many rounds whose series and whose final models are; without --tolerance bit for bit (a
NaN equals a NaN). With it a value may differ by T times the larger of the two, and a parameter of the model, as a
vector, by T times its norm. Series of the machine (wall_seconds, seconds_*, balance, bytes_moved) and keys of the configuration are
shown and do not count. --clients: the accuracies of each client, or its rmse, count as well.
Runs in other blocks or on other ranks may differ by rounding; where they do by no more, a line says so.
Exit code 0: equal; 1: different; 2: a file is missing, damaged or no result file.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .client_data import measure_of
from .labels import NOT_IN_LEGEND
from .model_data import WITH_MODEL
from .result_file import ResultError, is_of_the_machine, open_run
from .results import DIGESTS, read_run
from .tables import as_text

VERSIONS = ("fedhpc_version", "git_commit", "processor", "device", "ranks", "block", *DIGESTS)
ROUNDING = {"float32": 1e-5, "float64": 1e-9}  # what other blocks or ranks may change, docs/semantics.md, section 5
SLAB_BYTES = 32 << 20  # of a data set in memory


@dataclass(frozen=True)
class Difference:
    """How far two arrays are apart."""

    absolute: float  # largest |a - b|, infinite where only one of the two is a number
    relative: float  # largest |a - b| / max(|a|, |b|)
    first: int  # position of the first difference in the bits, -1 without one

    def within(self, tolerance):
        return self.first < 0 or (tolerance > 0 and self.relative <= tolerance)


def difference(a, b):
    """The Difference of two arrays of one shape; NaN equals NaN, 0 is not -0."""
    a, b = (np.ascontiguousarray(x, dtype=float).ravel() for x in (a, b))
    unequal = (a.view(np.uint64) != b.view(np.uint64)) & ~(np.isnan(a) & np.isnan(b))
    if not unequal.any():
        return Difference(0.0, 0.0, -1)
    x, y = a[unequal], b[unequal]
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.abs(x - y)
        relative = absolute / np.maximum(np.abs(x), np.abs(y))
    zeros = (x == 0) & (y == 0)  # of different signs
    relative = np.where(zeros, 0.0, np.where(np.isfinite(x) & np.isfinite(y), relative, np.inf))
    absolute = np.where(np.isfinite(absolute), absolute, np.inf)
    return Difference(float(absolute.max()), float(relative.max()), int(np.flatnonzero(unequal)[0]))


def keys_that_differ(first, second):
    """Lines on the keys with other values, in one of them only; where output goes at the end."""
    lines = []
    for key in sorted({*first, *second}, key=lambda key: (key in NOT_IN_LEGEND, key)):
        if first.get(key) != second.get(key):
            lines.append([key, first.get(key, "(absent)"), second.get(key, "(absent)")])
    return lines


def compare_series(a, b, tolerance):
    """(lines of a table, names of series that differ) over the rounds that both runs have."""
    shared, lines, different = min(len(a.rounds), len(b.rounds)), [], []
    for name in dict.fromkeys([*a.rounds, *b.rounds]):
        columns = [run.rounds[name].to_numpy()[:shared] if name in run.rounds else np.full(shared, np.nan)
                   for run in (a, b)]
        found = difference(*columns)
        if found.first < 0:
            continue
        if not is_of_the_machine(name) and not found.within(tolerance):
            different.append(name)
        note = "of the machine" if is_of_the_machine(name) else "" if name in different else "within the tolerance"
        lines.append([name, f"{found.absolute:.6g}", f"{found.relative:.3g}", str(found.first + 1), note])
    return lines, different


def parameters_of(file, group="model"):
    """Paths of the final model's data sets: global, factors, personal, not the initial ones."""
    found = []
    if group in file:
        file[group].visititems(lambda name, item: found.append(f"{group}/{name}")
                               if isinstance(item, h5py.Dataset) and not name.startswith("init/") else None)
    return found


def written_parameters(file):
    """Those that a run has written: of one without personal models, or that did not save its model, the rest is room."""
    return [name for name in parameters_of(file) if not file[name].size or file[name].id.get_storage_size()]


def slabs(data):
    """Slices along the first dimension, of SLAB_BYTES at most."""
    if not data.shape:
        return [()]
    row = max(1, data.dtype.itemsize * int(np.prod(data.shape[1:], dtype=np.int64)))
    step = max(1, SLAB_BYTES // row)
    return [slice(start, min(start + step, data.shape[0])) for start in range(0, data.shape[0], step)]


def distance(a, b):
    """(||a - b||, ||b|| of what is finite, whether all bits are equal) of two data sets of one shape."""
    apart = norm = 0.0
    equal = True
    for part in slabs(a):
        x, y = np.asarray(a[part], dtype=float), np.asarray(b[part], dtype=float)
        equal &= difference(x, y).first < 0
        alike = (np.isnan(x) & np.isnan(y)) | (x == y)
        between = np.subtract(x, y, out=np.zeros_like(x), where=~alike)  # infinities that are equal have no difference
        apart += float(np.sum(np.where(np.isnan(between), np.inf, between) ** 2))
        norm += float(np.sum(np.where(np.isfinite(y), y, 0.0) ** 2))
    return np.sqrt(apart), np.sqrt(norm), bool(equal)


def compare_models(files, tolerance):
    """(lines of a table, whether they differ, ||a - b||, ||b||) of the data sets of the final models."""
    names = [written_parameters(file) for file in files]
    lines, different, squares = [], False, np.zeros(2)
    for name in dict.fromkeys([*names[0], *names[1]]):
        if name not in names[0] or name not in names[1]:
            lines.append([name, "-", "-", f"only in {'A' if name in names[0] else 'B'}"])
            different = True
            continue
        a, b = files[0][name], files[1][name]
        if a.shape != b.shape:
            lines.append([name, "-", "-", f"shapes {a.shape} and {b.shape}"])
            different = True
            continue
        apart, norm, equal = distance(a, b)
        squares += (apart**2, norm**2)
        if not equal:
            relative = apart / norm if norm > 0 else np.inf
            allowed = tolerance > 0 and relative <= tolerance
            different |= not allowed
            lines.append([name, f"{apart:.6g}", f"{relative:.3g}", "within the tolerance" if allowed else ""])
    return lines, different, *np.sqrt(squares)


def compare_clients(files, tolerance):
    """(sentence, whether they differ) on the accuracies of each client, or its rmse."""
    measure = measure_of(files[0])
    what = {"accuracy": "accuracies", "rmse": "rmse"}[measure] + " of clients"
    data = [file.get(f"clients/{measure}") for file in files]
    if None in data:
        raise ResultError(f"--clients: a file has no {what} (/clients/{measure}); leave the option out")
    if data[0].shape != data[1].shape:
        return f"{what}: shapes {data[0].shape} and {data[1].shape}", True
    found = [difference(data[0][part], data[1][part]) for part in slabs(data[0])]
    worst = max((one.relative for one in found), default=0.0)
    if all(one.first < 0 for one in found):
        return f"{what}: equal bit for bit", False
    return (f"{what}: largest difference {max(one.absolute for one in found):.6g}, relative {worst:.3g}",
            not all(one.within(tolerance) for one in found))


def section(title, header, lines):
    return f"{title}\n" + "".join(f"  {line}\n" for line in as_text(header, lines).splitlines()) if lines else ""


def rounding_note(a, b, files, clients):
    """A sentence where two runs in other blocks or on other ranks differ by no more than rounding; else nothing."""
    causes = [f"{name}s differ" for name in ("block", "rank")
              if len({str(run.attributes.get(name if name == "block" else "ranks")) for run in (a, b)}) > 1]
    rounding = ROUNDING.get(a.config.get("run.dtype"), max(ROUNDING.values()))
    if (not causes or len(a.rounds) != len(b.rounds) or not {a.status, b.status} <= set(WITH_MODEL)
            or compare_series(a, b, rounding)[1] or compare_models(files, rounding)[1]
            or clients and compare_clients(files, rounding)[1]):
        return ""
    return f"within rounding; {' and '.join(causes)} (--tolerance {rounding:g} counts them as equal)\n"


def compare(paths, files, tolerance, clients):
    """(report, whether the runs differ)."""
    a, b = (read_run(file, path) for file, path in zip(files, paths))
    report = [f"A {a.summary()}\n", f"B {b.summary()}\n"]
    report.append(section("configuration", ["key", "A", "B"], keys_that_differ(a.config, b.config)))
    attributes = [{name: str(run.attributes.get(name, "(absent)")) for name in VERSIONS} for run in (a, b)]
    report.append(section("versions and machine", ["attribute", "A", "B"], keys_that_differ(*attributes)))
    lines, names = compare_series(a, b, tolerance)
    report.append(section("series that differ", ["series", "absolute", "relative", "first round", ""], lines))
    different = bool(names) or len(a.rounds) != len(b.rounds)
    bitwise = not any(not is_of_the_machine(line[0]) for line in lines) and len(a.rounds) == len(b.rounds)
    report.append(f"series of {min(len(a.rounds), len(b.rounds))} rounds, without the machine's: "
                  + ("equal bit for bit" if bitwise else "different" if different else "equal within the tolerance")
                  + ("\n" if len(a.rounds) == len(b.rounds) else f" (A has {len(a.rounds)}, B {len(b.rounds)})\n"))
    if not {a.status, b.status} <= set(WITH_MODEL):
        report.append("final model: not compared, a run has not ended\n")
    elif not any(map(written_parameters, files)):
        report.append("final model: not compared: neither file has a model\n")
    else:
        lines, models_differ, apart, norm = compare_models(files, tolerance)
        different |= models_differ
        report.append(section("parameters that differ", ["parameter", "||A - B||", "relative", ""], lines))
        share = f", {apart / norm:.3g} of ||B||" if norm > 0 else ""
        report.append(f"final model: ||A - B|| = {apart:.6g}{share}"
                      + (", equal bit for bit\n" if not lines else "\n"))
    if clients:
        sentence, clients_differ = compare_clients(files, tolerance)
        different |= clients_differ
        report.append(sentence + "\n")
    if different and not tolerance:
        report.append(rounding_note(a, b, files, clients))
    return "".join(report) + ("different\n" if different else "equal\n"), different


def tolerance_of(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}': a number of at least 0 and below 1 is expected, as 1e-6")
    return value


def main(arguments):
    parser = argparse.ArgumentParser(description="Compares two fedhpc runs; exit code 0: equal, 1: different.")
    parser.add_argument("first", metavar="A.h5", type=Path, help="a result file")
    parser.add_argument("second", metavar="B.h5", type=Path, help="another one")
    parser.add_argument("--tolerance", type=tolerance_of, default=0.0, metavar="T",
                        help="relative difference that counts as none [0: every bit counts]")
    parser.add_argument("--clients", action="store_true", help="compare the accuracy or rmse of each client as well")
    options = parser.parse_args(arguments)
    paths = (options.first, options.second)
    try:
        with open_run(paths[0]) as first, open_run(paths[1]) as second:
            report, different = compare(paths, (first, second), options.tolerance, options.clients)
    except ResultError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:  # damage that only reading a model or a client's row comes upon
        print(f"compare: {paths[0]} or {paths[1]}: damaged ({error})", file=sys.stderr)
        return 2
    print(report, end="")
    return 1 if different else 0
