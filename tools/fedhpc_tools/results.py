"""Reads fedhpc result files (RUN.h5): complete, being written, or left behind by a killed run.

    run = load("run.h5")
    run.status                      "complete"
    run.config["train.lr"]          "0.05", the text of the resolved configuration
    run.rounds["global_accuracy"]   pandas column indexed by round, fractions, NaN where not evaluated

Limit: HDF5 retries for ever when a file opened for SWMR reading is damaged. Such a file is therefore
read once by a child process under a time-out before this process touches it.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

PROBE_SECONDS = 20.0
SWMR = {"swmr": True, "libver": "latest"}


class ResultError(Exception):
    """The file cannot be used as a result file; the message is one sentence."""


@dataclass(frozen=True)
class Run:
    """One result file, as it was at the moment of reading."""

    path: Path
    attributes: dict  # root attributes but `config`: text, numbers or arrays
    config: dict  # "section.key" -> text of the resolved configuration
    rounds: pd.DataFrame  # index `round` 1..T, one float column per metric; all values are per round
    units: dict  # metric -> unit, for metrics whose data set states one

    @property
    def status(self):
        """running, complete, interrupted or failed; `running` is also what a killed run leaves."""
        return str(self.attributes.get("status", "unknown"))

    def evaluated(self, metric):
        """The metric where it was evaluated: a Series indexed by round, empty if it never was."""
        if metric not in self.rounds:
            return pd.Series(dtype=float, name=metric)
        return self.rounds[metric].dropna()

    def pick(self, metric, rule="last"):
        """The last evaluated value (`last`) or the largest one (`best`); NaN if never evaluated."""
        values = self.evaluated(metric)
        if values.empty:
            return float("nan")
        return float(values.iloc[-1] if rule == "last" else values.max())

    def summary(self):
        """One line: rounds done, status, last and best accuracy in %."""
        parts = [f"{len(self.rounds)} rounds", self.status]
        if self.status == "running":
            parts[-1] += " (or killed)"
        for metric in ("global_accuracy", "personal_accuracy"):
            values = self.evaluated(metric)
            if not values.empty:
                parts.append(f"{metric.replace('_', ' ')} {100 * values.iloc[-1]:.2f} % last, "
                             f"{100 * values.max():.2f} % best (round {values.idxmax()})")
        return f"{self.path.name}: " + ", ".join(parts)


@dataclass(frozen=True)
class SimilarityGraph:
    """The similarity graph of a result file, of N clients and M edges."""

    edges: np.ndarray  # [M, 2] clients i < j
    weights: np.ndarray  # [M]
    labels: np.ndarray  # [N, classes] training samples of each client by label


def parse_config(text):
    """The INI text as {"section.key": value}; `#` starts a comment, as in the simulator."""
    values, section = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip() + "."
        elif "=" in line:
            key, value = line.split("=", 1)
            values[section + key.strip()] = value.strip()
        else:
            raise ResultError(f"line {number} of the configuration is neither a [section] nor key=value: {line}")
    return values


def open_run(path, timeout=PROBE_SECONDS):
    """An h5py.File for reading, whatever state the file is in; close it, or use it in a `with`.

    Tries a plain open, then SWMR (a live or killed run), then an open without the lock (a live run
    with run.live=flush). All but the first are probed by a child for at most `timeout` seconds.
    """
    path = Path(path)
    if not path.exists():
        raise ResultError(f"{path}: no such file")
    if path.is_dir() or not h5py.is_hdf5(path):
        raise ResultError(f"{path}: not an HDF5 file")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        reason = str(error)
    for mode, options in (("swmr", SWMR), ("unlocked", {"locking": False})):
        command = [sys.executable, str(Path(__file__).resolve()), mode, str(path)]
        try:
            probe = subprocess.run(command, timeout=timeout, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            raise ResultError(f"{path}: damaged, no answer within {timeout:g} s of reading") from None
        if probe.returncode == 0:
            return h5py.File(path, "r", **options)
        if probe.returncode == 3:  # it opened, and what it holds is wrong
            raise ResultError(probe.stderr.strip())
    raise ResultError(f"{path}: cannot be read ({reason})")


def load(path, timeout=PROBE_SECONDS):
    """The Run in `path`; ResultError if it is missing, damaged or no result file."""
    with open_run(path, timeout) as file:
        return _read(file, Path(path))


def load_graph(path, timeout=PROBE_SECONDS):
    """The SimilarityGraph in `path`; ResultError if the file has none or one without edges."""
    with open_run(path, timeout) as file:
        if "graph/edges" not in file:
            raise ResultError(f"{path}: no similarity graph (no data set /graph/edges); algorithm.name=simnet has one")
        try:
            graph = SimilarityGraph(file["graph/edges"][()], file["graph/weights"][()],
                                    file["clients/label_histogram"][()])
        except (OSError, RuntimeError, KeyError) as error:
            raise ResultError(f"{path}: damaged ({error})") from None
    if not len(graph.edges):
        raise ResultError(f"{path}: the similarity graph has no edges (algorithm.neighbours=0 or no prepared round)")
    shapes = graph.edges.shape[1:] == (2,) and graph.weights.shape == graph.edges.shape[:1] and graph.labels.ndim == 2
    if not shapes or graph.edges.min() < 0 or graph.edges.max() >= len(graph.labels):
        raise ResultError(f"{path}: damaged (edges, weights and clients of the similarity graph do not fit together)")
    return graph


def _read(file, path):
    if "status" not in file.attrs or "rounds/round" not in file:
        raise ResultError(f"{path}: not a fedhpc result file (no attribute status or no data set /rounds/round)")
    try:
        rounds, units = _read_rounds(file["rounds"], path)
        attributes = {name: _text(value) for name, value in file.attrs.items()}
        config = attributes.pop("config", None)
        if config is None and "config" in file:
            config = _text(file["config"][()])
    except (OSError, RuntimeError, KeyError) as error:
        raise ResultError(f"{path}: damaged ({error})") from None
    return Run(path, attributes, parse_config(config or ""), rounds, units)


def _read_rounds(group, path):
    """The committed rounds: /rounds/round is flushed last, so its length counts, and is read first."""
    index = np.asarray(group["round"][()])
    if not np.array_equal(index, np.arange(1, len(index) + 1)):
        raise ResultError(f"{path}: damaged (/rounds/round does not count from 1)")
    columns, units = {}, {}
    for name, data in group.items():
        if name == "round" or not isinstance(data, h5py.Dataset) or data.ndim != 1:
            continue
        column = np.full(len(index), np.nan)
        values = data[: len(index)]
        column[: len(values)] = values
        columns[name] = column
        for attribute in ("units", "unit"):
            if attribute in data.attrs:
                units[name] = str(_text(data.attrs[attribute]))
    return pd.DataFrame(columns, index=pd.Index(index.astype(int), name="round")), units


def _text(value):
    """h5py's bytes and one-element arrays as str or a plain number."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, np.generic) else value


def _probe(mode, path):
    """Exit code 0: `path` opens this way and reads; 3: it opens and its content is wrong; 1: neither."""
    try:
        file = h5py.File(path, "r", **(SWMR if mode == "swmr" else {"locking": False}))
    except (OSError, RuntimeError):
        return 1
    try:
        _read(file, Path(path))
    except ResultError as error:
        print(error, file=sys.stderr)
        return 3
    except (OSError, RuntimeError) as error:
        print(f"{path}: damaged ({error})", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":  # the child that open_run starts: results.py MODE FILE
    sys.exit(_probe(sys.argv[1], sys.argv[2]))
