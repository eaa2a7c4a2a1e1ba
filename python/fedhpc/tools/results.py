"""Reads fedhpc result files (RUN.h5): complete, being written, or left behind by a killed run.

    run = load("run.h5")
    run.status                      "complete"
    run.config["train.lr"]          "0.05", the text of the resolved configuration
    run.rounds["global_accuracy"]   pandas column indexed by round, fractions, NaN where not evaluated

`load` reads the header and /rounds only, so that it takes the same time however many clients a run has;
what is known of each client is in client_data.py.
"""

import glob
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from .configuration import parse_config
from .result_file import MODES, PROBE_SECONDS, ResultError, open_run, read_contents, reading

DIGESTS = {"data_digest": "data", "model_digest": "models", "code_digest": "code"}  # attributes, and of what they are
OF_FEW_SAMPLES = 16  # digits of a data_digest that fedhpc wrote before it had a second half, of all samples
VALIDATION = "validation_"  # begins the names of series on the samples that clients set aside
SILENT_ROUNDS = 10  # a run that has written nothing for so many median rounds may be dead
SILENT_SECONDS = 2.0  # and for at least this long: clocks of file systems are coarse
RUNNING, SILENT = "running", "running or killed"
DIVERGED = "diverged"
# Series of the test and validation samples that are no number any more where a run diverges; an accuracy stays one.
LOSSES = re.compile("(validation_)?(global|personal)_(loss|perplexity|rmse)|edge_rmse")
ENDED = ("complete", DIVERGED)  # nothing is left to do; the second one at a loss that is no loss any more


@dataclass(frozen=True)
class Run:
    """One result file, as it was at the moment of reading."""

    path: Path
    attributes: dict  # root attributes but `config`: text, numbers or arrays
    config: dict  # "section.key" -> text of the resolved configuration
    rounds: pd.DataFrame  # index `round` 1..T, one float column per metric; all values are per round
    units: dict  # metric -> unit, for metrics whose data set states one
    meanings: dict = field(default_factory=dict)  # metric -> what it is, in words
    silence: float = 0.0  # [s] from the last write to the moment of reading
    starts: dict = field(default_factory=dict)  # first round -> ranks, of every start; empty of old files
    tested: tuple = ()  # the rounds after which the models were evaluated; empty of old files

    @property
    def status(self):
        """complete, diverged, interrupted, failed, running, or `running or killed`: see status_of."""
        wall = self.rounds["wall_seconds"].to_numpy() if "wall_seconds" in self.rounds else np.empty(0)
        return status_of(self.attributes.get("status", "unknown"), wall, self.silence)

    def evaluated(self, metric):
        """The metric where it was evaluated: a Series indexed by round, empty if it never was. A loss is NaN in it
        where it was evaluated and is no number any more."""
        here, values = self._evaluated_at(metric)
        return pd.Series(values, self.rounds.index[here], float, metric)

    def _evaluated_at(self, metric):
        """([E] its places in `rounds`, [E] its values); no Series, as sweeps pick thousands of values."""
        if metric not in self.rounds:
            return np.empty(0, int), np.empty(0)
        values = self.rounds[metric].to_numpy()
        here = ~np.isnan(values)
        if here.any() and LOSSES.fullmatch(metric):
            here |= np.isin(self.rounds.index, self.tested)
        elif metric == "train_loss" and self.status == DIVERGED:
            here[:] = here.any()
        here = np.flatnonzero(here)
        return here, values[here]

    def pick(self, metric, rule="last", by=None):
        """The metric in the round where `by` [itself] was last evaluated (`last`), largest (`best`) or smallest
        (`least`); NaN if there is none."""
        here, values = self._evaluated_at(by or metric)
        if not len(here) or metric not in self.rounds:
            return float("nan")
        place = -1 if rule == "last" else np.nanargmax(values) if rule == "best" else np.nanargmin(values)
        return float(values[place] if by in (None, metric) else self.rounds[metric].iat[here[place]])

    def summary(self):
        """One line: rounds done, status, last and best accuracy in %, or rmse."""
        parts = [f"{len(self.rounds)} rounds", self.status]
        for metric in ("global_accuracy", "personal_accuracy"):
            values = self.evaluated(metric)
            if not values.empty:
                parts.append(f"{metric.replace('_', ' ')} {100 * values.iloc[-1]:.2f} % last, "
                             f"{100 * values.max():.2f} % best (round {values.idxmax()})")
        for metric in ("global_rmse", "personal_rmse"):
            values = self.evaluated(metric)
            if not values.empty:
                parts.append(f"{metric.replace('_', ' ')} {values.iloc[-1]:.4g} last, "
                             f"{values.min():.4g} best (round {values.idxmin()})")
        return f"{self.path.name}: " + ", ".join(parts)


@dataclass(frozen=True)
class SimilarityGraph:
    """The similarity graph of a result file, of N clients and M edges."""

    edges: np.ndarray  # [M, 2] clients i < j
    weights: np.ndarray  # [M]
    labels: np.ndarray  # [N, classes] all samples of each client by label


def status_of(recorded, wall_seconds, silence):
    """The status of a run from the one in its file, the durations of its rounds [s] and its silence [s].

    A killed run leaves `running`, as does one that is at work. It becomes `running or killed` when nothing has
    been written for SILENT_ROUNDS median rounds, twice the longest one (some evaluate, some do not) and
    SILENT_SECONDS. Without a round nothing is known of their duration, and it stays `running`.
    """
    known = np.asarray(wall_seconds, dtype=float)
    known = known[np.isfinite(known)]
    if recorded != RUNNING or not len(known):
        return str(recorded)
    patience = max(SILENT_ROUNDS * np.median(known), 2.0 * known.max(), SILENT_SECONDS)
    return SILENT if silence > patience else RUNNING


def load(path, timeout=PROBE_SECONDS):
    """The Run in `path`; ResultError if it is missing, damaged or no result file."""
    with open_run(path, timeout) as file:
        return read_run(file, path)


def files_of(places):
    """{path: whether it was named} of files and folders, each file once, without checkpoints and earlier versions of
    runs: of a folder none of them, and of the files named those whose run is named too, as by *.h5."""
    found = {}
    for place in places:
        if not is_folder(place):
            found[place] = True
            continue
        if not os.access(place, os.R_OK | os.X_OK):
            raise ResultError(f"{place}: no permission to read this folder")
        for path in sorted(place.glob("*.h5")):
            if run_of(path) is None:
                found.setdefault(path, False)
    return {path: named for path, named in found.items() if not is_beside_its_run(path, found)}


def is_folder(place):
    """Whether it is one; not where that cannot be told, which opening it says better."""
    try:
        return place.is_dir()
    except OSError:
        return False


def run_of(path):
    """What RUN.ckpt.N.h5 is a checkpoint or RUN.oldN.h5 an earlier version of: RUN.h5; None for other files."""
    match = re.fullmatch(r"(.+)\.(?:ckpt\.\d+|old\d*)\.h5", path.name)
    return path.with_name(f"{match[1]}.h5") if match else None


def link_target(output):
    """The file that a result's path means: what a link leads to, beside which its checkpoints and its lock lie."""
    return Path(os.path.realpath(output)) if output.is_symlink() else output


def files_beside(output):
    """The checkpoints of a result file RUN.h5, whole or not."""
    stem = link_target(output).with_suffix("")
    return [Path(path) for path in glob.glob(f"{glob.escape(str(stem))}.ckpt.*")]


def is_beside_its_run(path, found):
    """Whether the file's run is in `found`, or that of which its run is an earlier version."""
    run = run_of(path)
    return run is not None and (run in found or is_beside_its_run(run, found))


def comparable(name, digests):
    """Digests of the attribute `name` that equal ones share: where one is of few samples, so are all."""
    if name == "data_digest" and any(len(digest) == OF_FEW_SAMPLES for digest in digests):
        return [digest[:OF_FEW_SAMPLES] for digest in digests]
    return list(digests)


def tells(tool):
    """The function of a text that says on standard error what `tool` leaves out."""
    return lambda text: print(f"{tool}: left out: {text}", file=sys.stderr)


def load_all(places, tell, read=load, named=True, least=1):
    """What `read` makes of the runs with at least `least` rounds; a folder's unusable files are told of and left out,
    and where the places are not `named` by the user, other unusable ones."""
    runs = []
    files = files_of(places)
    earlier = [place.name for place in places
               if not place.is_dir() and place not in files and ".ckpt." not in place.name]
    if named and earlier:
        tell(f"beside its later version: {', '.join(earlier)}")
    for path, by_user in files.items():
        try:
            run = read(path)
            if len(run.rounds) < least:
                raise ResultError(f"{path}: no round is complete yet")
        except ResultError as error:
            if named and by_user:
                raise
            tell(error)
        else:
            runs.append(run)
    if not runs:
        raise ResultError(f"{', '.join(map(str, places))}: no result files; give RUN.h5 or a folder of them")
    return runs


def load_again(path, mode):
    """The Run in `path`, opened as `mode` of MODES; only for a file that way_to_open has found sound this way."""
    try:
        file = h5py.File(path, "r", **MODES[mode])
    except (OSError, RuntimeError) as error:
        raise ResultError(f"{path}: cannot be read ({error})") from None
    with file:
        return read_run(file, path)


def read_run(file, path):
    """The Run in an open file."""
    attributes, config, series, units, meanings = read_contents(file, path)
    rounds = pd.DataFrame(series).set_index("round")
    silence = max(0.0, time.time() - Path(path).stat().st_mtime)
    with reading(path):
        starts = dict(zip(*(file["starts"][name][()].tolist() for name in ("first_round", "ranks")))
                      if "starts" in file else ())
        tested = tuple(np.ravel(file["clients/evaluated_rounds"])) if "clients/evaluated_rounds" in file else ()
    return Run(Path(path), attributes, parse_config(config), rounds, units, meanings, silence, starts, tested)


def load_graph(path, timeout=PROBE_SECONDS):
    """The SimilarityGraph in `path`; ResultError if the file has none or one without edges."""
    with open_run(path, timeout) as file, reading(path):
        if "graph/edges" not in file:
            raise ResultError(f"{path}: no similarity graph (no data set /graph/edges); algorithm.name=simnet has one")
        graph = SimilarityGraph(file["graph/edges"][()], file["graph/weights"][()],
                                file["clients/label_histogram"][()])
    if graph.edges.ndim and not len(graph.edges):
        raise ResultError(f"{path}: the similarity graph has no edges (algorithm.neighbours=0 or no prepared round)")
    shapes = graph.edges.shape[1:] == (2,) and graph.weights.shape == graph.edges.shape[:1] and graph.labels.ndim == 2
    if not shapes or graph.edges.min() < 0 or graph.edges.max() >= len(graph.labels):
        raise ResultError(f"{path}: damaged (edges, weights and clients of the similarity graph do not fit together)")
    return graph
