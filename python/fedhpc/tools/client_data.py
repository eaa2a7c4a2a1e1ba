"""Reads what a result file knows of each client, a row of /clients/accuracy at a time (of regressions, /clients/rmse).

A run of 10,000 clients evaluated 1,000 times has 10,000,000 accuracies; nothing here holds more than one
evaluation of them, and a figure reads no more evaluations than it can show.
"""

from dataclasses import dataclass

import numpy as np

from .result_file import PROBE_SECONDS, ResultError, open_run, reading

MOST_EVALUATIONS = 300  # read for a figure


@dataclass(frozen=True)
class ClientTable:
    """What is known of N clients before the first round."""

    edge: np.ndarray  # [N]
    train_samples: np.ndarray  # [N]
    test_samples: np.ndarray  # [N]
    label_histogram: np.ndarray  # [N, classes] all samples by label, for training and tests
    others: dict  # name -> [N], of whatever else the file has of each client


@dataclass(frozen=True)
class AccuracyOverRounds:
    """How accuracies of clients were spread at E evaluations."""

    rounds: np.ndarray  # [E]
    quantiles: tuple  # Q levels within 0..1
    values: np.ndarray  # [Q, E] fractions, linearly interpolated
    last: np.ndarray  # [clients with test samples] fractions at the last evaluation


def load_clients(path, timeout=PROBE_SECONDS):
    """The ClientTable of `path`; ResultError if the file has none."""
    names = ("edge", "train_samples", "test_samples", "label_histogram")
    with open_run(path, timeout) as file, reading(path):
        missing = [name for name in names if f"clients/{name}" not in file]
        if missing:
            raise ResultError(f"{path}: no data set /clients/{missing[0]}; is it a file that fedhpc run has written?")
        table = ClientTable(*(file[f"clients/{name}"][()] for name in names), others={})
        for name, data in file["clients"].items():
            if name not in names and data.shape == table.edge.shape and name != "evaluated_rounds":
                table.others[name] = data[()]
        if "names/clients" in file and file["names/clients"].shape == table.edge.shape:
            table.others["name"] = file["names/clients"].asstr(errors="replace")[()]
    counts = (table.edge.shape, table.train_samples.shape, table.test_samples.shape, table.label_histogram.shape[:1])
    if len(set(counts)) > 1 or table.edge.ndim != 1 or table.label_histogram.ndim != 2:
        raise ResultError(f"{path}: damaged (the data sets of /clients do not fit together)")
    return table


def measure_of(file):
    """What clients are compared by: "accuracy", or "rmse" in a file of a regression."""
    return "rmse" if "clients/rmse" in file else "accuracy"


def evaluated_rounds(file, path):
    """[E] the rounds after which the clients were evaluated, without what may be half written."""
    committed = len(file["rounds/round"])  # read first
    accuracy, evaluated = file[f"clients/{measure_of(file)}"], file["clients/evaluated_rounds"]
    if accuracy.ndim != 2 or evaluated.ndim != 1:
        raise ResultError(f"{path}: damaged (the data sets of /clients have other dimensions)")
    rounds = evaluated[()]
    if np.any(np.diff(rounds) <= 0):
        raise ResultError(f"{path}: damaged (/clients/evaluated_rounds does not ascend)")
    return rounds[: np.searchsorted(rounds, committed, side="right")][: accuracy.shape[0]]


def read_row(data, index, path):
    """One row of the accuracies [N]."""
    try:
        return data[index]
    except (OSError, RuntimeError) as error:
        raise ResultError(f"{path}: damaged in row {index} of {data.name} ({error})") from None


def load_last(path, timeout=PROBE_SECONDS):
    """(round, "accuracy" or "rmse", values [N] after it) of the last evaluation; None without one."""
    with open_run(path, timeout) as file, reading(path):
        measure = measure_of(file)
        if f"clients/{measure}" not in file or "clients/evaluated_rounds" not in file:
            return None
        rounds = evaluated_rounds(file, path)
        if not len(rounds):
            return None
        return int(rounds[-1]), measure, read_row(file[f"clients/{measure}"], len(rounds) - 1, path)


def load_samples(path, kind, client, timeout=PROBE_SECONDS):
    """[n] the sample numbers of one client, `kind` train or test; ResultError without run.save=partition."""
    with open_run(path, timeout) as file, reading(path):
        if f"partition/{kind}_offsets" not in file:
            raise ResultError(f"{path}: no {kind} samples by client; run with --run.save=partition")
        offsets = file[f"partition/{kind}_offsets"]
        one_of(len(offsets) - 1, client, path)
        first, end = offsets[client : client + 2]
        return file[f"partition/{kind}_samples"][first:end]


def one_of(count, client, path):
    """ResultError where there is no client of this number."""
    if not 0 <= client < count:
        raise ResultError(f"{path}: no client {client}; clients are 0 to {count - 1}")


def spread_evenly(count, most):
    """At most `most` of the indices 0..count-1, evenly spread, the last one among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.round(np.linspace(0, count - 1, most)).astype(int))


def load_accuracy(path, quantiles, most=MOST_EVALUATIONS, timeout=PROBE_SECONDS):
    """The AccuracyOverRounds of `path` at `most` of its evaluations; ResultError if there are none.

    Costs one read of a row [N] and one partial sort of it for each.
    """
    with open_run(path, timeout) as file, reading(path):
        if "clients/accuracy" not in file or "clients/evaluated_rounds" not in file:
            raise ResultError(f"{path}: no accuracy of clients (no data set /clients/accuracy)")
        accuracy, rounds = file["clients/accuracy"], evaluated_rounds(file, path)
        if not len(rounds):
            raise ResultError(f"{path}: accuracy of clients was not evaluated yet")
        chosen = spread_evenly(len(rounds), most)
        values, row = np.full((len(quantiles), len(chosen)), np.nan), np.empty(0)
        for place, index in enumerate(chosen):
            row = read_row(accuracy, index, path)
            row = row[np.isfinite(row)].astype(float)  # NaN: a client without test samples
            if len(row):
                values[:, place] = np.quantile(row, quantiles)
    if not len(row):
        raise ResultError(f"{path}: no client has test samples of its own; leave out --panel clients")
    return AccuracyOverRounds(rounds[chosen], tuple(quantiles), values, np.sort(row))
