"""Results of runs: one result file, or many of them side by side.

    results = fedhpc.Results("results/run.h5")
    results.rounds["global_accuracy"].dropna()
    fedhpc.load("results/*.h5").table("personal_accuracy")
"""

import contextlib
import glob
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ._numbers import whole_number
from .tools.client_data import load_clients, load_last, load_samples
from .tools.follower import Follower
from .tools.labels import names_of_seeds
from .tools.model_data import load_model
from .tools.panels import WHOSE
from .tools.results import ENDED, ResultError, load_all
from .tools.summarize import ends_of, lines_of, samples_of, seeds_text, status_text, target_of, tell_of_lacking


class Results:
    """The result file of one run, in whatever state: complete, being written, interrupted, left behind by a kill.

    What is asked for is read from the file, again at each access while the run goes on. A file that is missing,
    damaged or of another kind is a DataError. Clients count from 0, rounds from 1.

    The run stays the same one: where a later run has taken its file's name, it is read under the name NAME.old1.h5 (or
    the next number) that its file has got, and where that file has been replaced, this is a DataError.
    """

    def __init__(self, path):
        self._given = Path(path).absolute()
        self._follower = Follower(self._given)
        self._run = self._seen = None  # the Run as it was last read, and the state and the place of its file then
        self._now()

    def _now(self):
        """The Run as it is now."""
        for _ in range(2):  # once more where a later run takes the name just now
            try:
                path = self._place()
                state = path.stat()
                seen = (state.st_ino, state.st_dev, state.st_mtime_ns, state.st_size, path)
                if self._seen == seen and self._run.status in ENDED:
                    return self._run
                if path != self._follower.path:
                    self._follower = Follower(path)
                run = self._follower.read()
            except OSError as error:
                raise ResultError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}") from None
            if self._run is None or _is_same(self._run, run):
                self._run, self._seen = run, seen
                return run
        raise ResultError(f"{path}: another run has replaced the file of these results; read it anew by "
                          "fedhpc.Results, and give each run a run.output of its own to keep both")

    def _place(self):
        """Where the file that was read before is now; where it was, if it is nowhere."""
        if self._seen is not None:
            stem = glob.escape(str(self._given.resolve()).removesuffix(".h5"))  # a link stays when its file is renamed
            for path in (self._given, *map(Path, glob.iglob(f"{stem}.old*"))):
                with contextlib.suppress(OSError):
                    state = path.stat()
                    if (state.st_ino, state.st_dev) == self._seen[:2]:
                        return path
        return self._follower.path

    def _read(self, read):
        """What read(path) makes of the run's file."""
        path = self.path
        for _ in range(2):  # once more where a later run takes the name just now
            before = path
            try:
                values = read(before)
            except ResultError:
                path = self.path
                if path == before:
                    raise
                continue
            path = self.path
            if path == before:
                return values
        raise ResultError(f"{before}: later runs keep taking the name of the file of these results; ask once more")

    @property
    def path(self):
        """Where the file of the run is now: an absolute Path."""
        return self._now().path

    @property
    def status(self):
        """complete, diverged, interrupted, failed, running, or `running or killed` after a long silence."""
        return self._now().status

    @property
    def config(self):
        """{"section.key": text} of the resolved configuration."""
        return dict(self._now().config)

    @property
    def attributes(self):
        """{name: value} of what else the file says of the run: seed, ranks, fedhpc_version, git_commit, started, ..."""
        return dict(self._now().attributes)

    @property
    def rounds(self):
        """DataFrame [T, series] indexed by round: floats, NaN where a round was not evaluated.

        `rounds.attrs["units"]` and `rounds.attrs["meanings"]` are {series: text}; accuracies are fractions, a round's
        seconds and bytes are its own.
        """
        run = self._now()
        rounds = run.rounds.copy()
        rounds.attrs = {"units": dict(run.units), "meanings": dict(run.meanings)}
        return rounds

    @property
    def clients(self):
        """DataFrame [N, ...] indexed by client.

        accuracy and best_accuracy (fractions, after round `clients.attrs["round"]` and at best; NaN without test
        samples; rmse and best_rmse of a regression), train_samples, test_samples and, where some are set aside, validation_samples (numbers of samples),
        labels (how many different ones its samples have), edge where there are edges, name where the data name clients.
        """
        table, last = self._read(lambda path: (load_clients(path), load_last(path)))
        columns = {"train_samples": table.train_samples, "test_samples": table.test_samples,
                   "labels": (table.label_histogram > 0).sum(axis=1), **table.others}
        if (table.edge >= 0).any():
            columns["edge"] = table.edge
        if last is not None:
            columns = {last[1]: last[2], **columns}
        frame = pd.DataFrame(columns, index=pd.RangeIndex(len(table.edge), name="client"))
        frame.attrs = {"round": last and last[0]}
        return frame

    @property
    def edges(self):
        """DataFrame [E, ...] indexed by edge; without edges it is empty.

        clients, train_samples and test_samples (numbers of them), accuracy (a fraction) or rmse (mean of those of its
        clients).
        """
        clients = self.clients
        if "edge" not in clients:
            return pd.DataFrame(index=pd.RangeIndex(0, name="edge"))
        groups = clients.groupby("edge")
        sums = groups[["train_samples", "test_samples"]].sum()
        means = groups[[name for name in ("accuracy", "rmse") if name in clients]].mean()
        return pd.concat([groups.size().rename("clients"), sums, means], axis=1)

    def model(self, state="final"):
        """{name: array} of the global model after the last round, with PyTorch's names and shapes, buffers included.

        In a complete run it is what the last `global_accuracy` is of; elsewhere that round may not have been evaluated.

        module.load_state_dict({name: torch.from_numpy(values) for name, values in results.model().items()})

        Of a method that shares a part of the model only, it is that part. With train.buffers = local, statistics of
        batch norm in it are the initial ones; each client is scored with its own.

        state: "final", or "initial" for that before round 1 (with run.save = init). DataError where there is none.
        """
        return self._model("global", state)

    def factors(self, state="final"):
        """{"LAYER.FACTOR": array} of what the global model is made of; DataError where it is not made of factors."""
        return self._model("factors", state)

    def personal(self, client):
        """{name: array} of the final model of one client, as model(); nothing is read of the others.

        DataError without run.save = personal.
        """
        client = _number_of(client)
        return self._read(lambda path: load_model(path, "personal", client=client))

    def _model(self, part, state):
        if state not in ("final", "initial"):
            raise ResultError(f"no state '{state}' of a model; there are final and initial")
        return self._read(lambda path: load_model(path, part, state == "initial"))

    @property
    def partition(self):
        """The Partition: who has how many samples, of which labels, and which ones."""
        table = self._read(load_clients)
        histogram = pd.DataFrame(table.label_histogram, index=pd.RangeIndex(len(table.edge), name="client"))
        return Partition(self, table.train_samples, table.test_samples, histogram.rename_axis(columns="label"))

    def plot(self, *metrics, against="rounds", panels=None, ax=None):
        """The figure of these series; without any, that of accuracy and loss. As tools/plot.py draws it.

        against: rounds, bytes, cloud, bits, seconds or wall, each summed up to the round. panels: some of accuracy,
        loss, clients, labels, own, in the place of series. ax: matplotlib's axes for what is a single panel.

        A notebook shows the figure that is returned; a script saves it (`.savefig`), or gives `ax` and calls
        pyplot's show. DataError or Error where nothing can be drawn as asked.
        """
        return _figure([self._now()], metrics, against, panels, ax)

    def __repr__(self):
        return f"<fedhpc.Results {self._now().summary()}>"

    def _repr_html_(self):
        run = self._now()
        lines = {"status": run.status, "rounds": f"{len(run.rounds)} of {run.config.get('run.rounds', '?')}"}
        for name in (*WHOSE, "global_loss", "personal_loss", "train_loss"):
            values = run.evaluated(name)
            if len(values):
                lines[name] = f"{values.iloc[-1]:.4g} after round {values.index[-1]}"
        return pd.DataFrame({run.path.name: lines}).to_html()


def _number_of(client):
    """A client as an int; TypeError for what is no whole number."""
    number = whole_number(client)
    if number is None:
        raise TypeError(f"a client is a whole number, and not {client!r}")
    return number


def _is_same(before, now):
    """Whether two Runs are one that goes on: they began at the same moment, with the same first round."""
    if before.attributes.get("started") != now.attributes.get("started"):
        return False
    if before.rounds.empty or now.rounds.empty:
        return True
    series = before.rounds.columns.intersection(now.rounds.columns)
    return before.rounds[series].iloc[0].equals(now.rounds[series].iloc[0])  # to the nanosecond of its wall_seconds


@dataclass(frozen=True)
class Partition:
    """The samples of N clients."""

    results: Results  #: of whose run they are
    train_samples: np.ndarray  #: [N] number of training samples
    test_samples: np.ndarray  #: [N] number of test samples
    histogram: pd.DataFrame  #: [N, K] all samples of a client, by label

    def train(self, client):
        """[n] the training samples of a client, counted from 0 through the training set; needs run.save = partition."""
        client = _number_of(client)
        return self.results._read(lambda path: load_samples(path, "train", client))

    def test(self, client):
        """[n] the test samples of a client; they count on from the training set. Needs run.save = partition."""
        client = _number_of(client)
        return self.results._read(lambda path: load_samples(path, "test", client))


class Runs(Sequence):
    """Runs side by side: a sequence of Results, with tables and figures over their seeds.

    Runs that differ only in their seeds are one line, named by the settings in which it differs from other lines.
    """

    def __init__(self, results):
        self._results = list(results)

    def __len__(self):
        return len(self._results)

    def __getitem__(self, index):
        return Runs(self._results[index]) if isinstance(index, slice) else self._results[index]

    def _now(self):
        return [one._now() for one in self]

    @property
    def rounds(self):
        """DataFrame indexed by (run, seed, round): the series of all runs, NaN where a run has none of that name.

        seed is run.seed; where runs of a line have it alike, the text RUN.SEED/DATA.SEED.
        """
        groups, labels, *_ = lines_of(self._now(), _warn)
        names = [_number(name) for names in names_of_seeds(groups) for name in names]
        lines = [label for label, group in zip(labels, groups) for _ in group]
        return pd.concat([run.rounds for group in groups for run in group], keys=list(zip(lines, names)),
                         names=["run", "seed", "round"])

    def table(self, metric=None, target=None, select="test"):
        """DataFrame indexed by run: what each line has reached, as tools/summarize.py says it in plain numbers.

        seeds (as in `rounds`), n (how many of them), status, rounds (most) and rounds_least of its runs; NAME_mean and
        NAME_std (sample standard deviation over the seeds) of the best and last value of `metric` [the accuracy that
        most runs have], over the seeds that have one (a warning names the others), and of bytes_up and bytes_down, all
        rounds and links together. target: value, 0.9 or "90%", for which target_rounds, target_bytes, target_seconds
        (simulated) and target_wall say what it has cost; target_n seeds have reached it. select: "validation" takes
        the best value from the round that was best on the validation samples.
        """
        groups, labels, metric, by = lines_of(self._now(), _warn, metric, select)
        tell_of_lacking(groups, metric, by, _warn)
        if isinstance(target, str):
            target = target_of(target)
        samples = samples_of(groups, metric, target, by)
        columns = {"seeds": [*map(seeds_text, names_of_seeds(groups))], "n": [len(group) for group in groups],
                   "status": [status_text(group) for group in groups],
                   "rounds": [ends_of(group)[1] for group in groups],
                   "rounds_least": [ends_of(group)[0] for group in groups]}
        if target is not None:
            columns["target_n"] = [len(one.values) for one in samples["target_rounds"]]
        for name, ones in samples.items():
            columns[f"{name}_mean"] = np.array([one.mean for one in ones], dtype=float)
            columns[f"{name}_std"] = np.array([one.deviation for one in ones], dtype=float)
        table = pd.DataFrame(columns, index=pd.Index(labels, name="run"))
        table.attrs = {"metric": metric}
        return table

    def plot(self, *metrics, against="rounds", panels=None, ax=None, seeds="band"):
        """The figure of all runs, as Results.plot. seeds: "band" for the mean of a line, "each" for each run."""
        return _figure(self._now(), metrics, against, panels, ax, seeds)

    def __repr__(self):
        return f"<fedhpc.Runs of {len(self)} result files>"

    def _repr_html_(self):
        return self.table().to_html()


def load(files):
    """The Runs in `files`: a pattern ("results/*.h5"), a folder, or a list of result files and folders.

    Checkpoints and earlier versions (RUN.oldN.h5) stay out beside their run. Of a pattern or folder, what is no result
    file or has no round yet is left out with a warning; what a list names has to be one. DataError where nothing is
    left.
    """
    if not isinstance(files, (str, Path)):
        return Runs(load_all([Path(one) for one in files], _warn, Results))
    if Path(files).exists() or not glob.has_magic(str(files)):
        return Runs(load_all([Path(files)], _warn, Results))
    found = [Path(one) for one in sorted(glob.glob(str(files), recursive=True))]
    if not found:
        raise ResultError(f"{files}: no such files")
    return Runs(load_all(found, _warn, Results, named=False))


def _figure(runs, metrics, against, panels, ax, seeds="each"):
    import matplotlib.pyplot as plt  # a notebook shows figures once this is there

    from .tools.plot import fill

    if seeds not in ("each", "band"):
        raise ValueError(f"seeds is {seeds!r}; give 'each' or 'band'")
    if metrics and panels:
        raise ValueError(f"panels stand in the place of series: leave out {panels!r} or {', '.join(metrics)}")
    panels = [panels] if isinstance(panels, str) else panels
    figure = ax.figure if ax is not None else plt.figure(layout="constrained")
    try:
        fill(figure, runs, _warn, list(metrics) or None, against, panels=panels, seeds=seeds, axes=ax)
    finally:
        if ax is None:
            plt.close(figure)  # pyplot forgets it, so that a notebook shows it once
    return figure


def _number(seed):
    return int(seed) if seed.isdigit() else seed


def _warn(text):
    warnings.warn(f"left out: {text}", stacklevel=2)
