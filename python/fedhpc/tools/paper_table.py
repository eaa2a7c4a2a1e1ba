"""The rows of a paper's tables, the runs they need, what is finished, and the comparison as Markdown.

A row of tools/papers/<paper>.csv is one figure of one table, or one that is reported beside it and has no
value in the paper; rows that name the same configuration and overrides share their runs. A run is one
configuration and one seed: results/papers/<paper>/<configuration>[_<variant>]_seed<S>[_quick].h5; what
a variant begins with and the configuration's name ends with stands there once (bkd_aad_grid of
x_bkd_aad.ini: x_bkd_aad_grid), and `_quick` marks fewer rounds than the configuration's. A row may have a
number of quick rounds of its own.

Where rows give the paper's seconds per round, the table has ours as well, each with its ratio to FedAvg's of
the same configuration: <dataset>_<setting>_fedavg[_<variant>].ini.

The state of a row says when it is run: ready; full (not by --quick, unless --only selects it); gpu (with
--gpu-rows); waiting (the simulator lacks the method or the model).
"""

import csv
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from .configuration import read_config
from .labels import NOT_IN_LEGEND
from .method_keys import OF_ALL_METHODS, acting
from .results import DIGESTS, DIVERGED, ENDED, RUNNING, SILENT, ResultError, comparable, files_beside, load

COLUMNS = ("table", "dataset", "setting", "method", "variant", "config", "overrides", "metric", "paper", "spread",
           "pick", "state")
OPTIONAL_COLUMNS = ("seconds", "quick_rounds")  # behind COLUMNS; a file has none or both
NUMBERS = {"paper": float, "spread": float, "seconds": float, "quick_rounds": int}  # may be empty
STATES = ("ready", "full", "gpu", "waiting")
KEPT = ("finished", "interrupted")  # kinds of a JobState whose run is not begun anew
QUICK_ROUNDS = 100
MESSAGE_WIDTH = 70  # of a failure in the table; the whole message is printed and stands in the run's log
# Keys without influence on the numbers beyond rounding: a result may differ in them and still be the row's.
NOT_COMPARED = NOT_IN_LEGEND | {"run.device", "run.plugin", "run.reproducible"}

# Keys of files: the program keeps the whole path of what a relative one means.
FILES = {"data.file", "data.test_file", "data.partition_file", "model.file", "model.init_file"}


class PaperError(Exception):
    """The tables or a configuration cannot be used; the message is one sentence."""


@dataclass(frozen=True)
class Row:
    """One figure of a paper's table. `paper` and `spread` are in % for accuracies and may be None."""

    table: str
    dataset: str
    setting: str
    method: str
    variant: str
    config: str
    overrides: tuple  # of "section.key=value"
    metric: str
    paper: float
    spread: float
    pick: str  # last | best evaluated value
    state: str  # one of STATES
    seconds: float = None  # the paper's time of a round [s]
    quick_rounds: int = None  # rounds of --quick, where they are not QUICK_ROUNDS

    @property
    def run_name(self):
        stem = Path(self.config).stem
        parts = self.variant.split("_") if self.variant else []
        named = next((n for n in range(len(parts), 0, -1) if stem.endswith("_" + "_".join(parts[:n]))), 0)
        return "_".join([stem, *parts[named:]])

    @property
    def name(self):
        return f"{self.table} {self.run_name} {self.metric}"

    @property
    def measured(self):
        """The metric with what is picked of it."""
        return self.metric + (" (best)" if self.pick == "best" else "")

    @property
    def scale(self):
        """What turns the simulator's metric into the paper's unit: fractions into %."""
        return 100.0 if "accuracy" in self.metric else 1.0


@dataclass(frozen=True)
class Job:
    """One run: a configuration with overrides and a seed, and its result file."""

    name: str
    config: Path
    overrides: tuple  # of "section.key=value", seed and rounds included
    expected: dict  # "section.key" -> value, all that the INI file and the overrides set
    output: Path
    protocol_rounds: int = None  # of the configuration, whatever --quick makes of it; None where it has none
    resolved: dict = None  # the whole configuration, with None for a key that may have any value; None: not known
    digests: dict = None  # of data, model and code as they are now, by attribute; None: not known

    @property
    def may_be_idle(self):
        """Keys of the INI file that an override may put out of action: a result's configuration lacks those."""
        overridden = {override.split("=", 1)[0] for override in self.overrides}
        idle = set(self.expected) - overridden if overridden - {"run.seed", "run.rounds"} else set()
        return idle - set(self.resolved or ())


@dataclass(frozen=True)
class JobState:
    kind: str  # finished | interrupted (resumable) | outdated (complete, other configuration) | missing
    run: object = None  # the Run, where the file can be read
    detail: str = ""


def read_rows(path):
    """All rows of a paper's CSV file, in its order."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) not in (COLUMNS, COLUMNS + OPTIONAL_COLUMNS):
            raise PaperError(f"{path}: the columns must be {','.join(COLUMNS)}, "
                             f"and {','.join(OPTIONAL_COLUMNS)} may follow")
        rows, meaning = [], {}
        for number, record in enumerate(reader, 2):
            row = _row(record, f"{path}:{number}")
            run = (row.config, row.overrides, row.state, row.quick_rounds)
            if meaning.setdefault(row.run_name, run) != run:
                raise PaperError(f"{path}:{number}: {row.run_name} has other overrides, another state or other "
                                 "quick rounds in an earlier row")
            rows.append(row)
    return rows


def _row(record, where):
    try:
        values = dict(record, overrides=tuple(record["overrides"].split()),
                      **{name: kind(record[name]) if record[name] else None for name, kind in NUMBERS.items()
                         if name in record})
    except (ValueError, AttributeError, TypeError):
        raise PaperError(f"{where}: a column is missing, or one of {', '.join(NUMBERS)} is not a number") from None
    if values["pick"] not in ("last", "best") or values["state"] not in STATES:
        raise PaperError(f"{where}: pick must be last or best, state must be one of {', '.join(STATES)}")
    if any("=" not in override for override in values["overrides"]):
        raise PaperError(f"{where}: overrides must be section.key=value, separated by blanks")
    return Row(**values)


def make_job(row, seed, quick, config_dir, output_dir):
    """The run of `row` with `seed`; PaperError if its configuration is missing or malformed."""
    config = Path(config_dir) / row.config
    try:
        settings = read_config(config)
    except ResultError as error:
        raise PaperError(f"configuration {error}") from None
    expected = acting(settings, dict(override.split("=", 1) for override in row.overrides))
    overrides = row.overrides + (f"run.seed={seed}",)
    expected["run.seed"] = str(seed)
    protocol_rounds = int(expected["run.rounds"]) if "run.rounds" in expected else None
    rounds = row.quick_rounds or QUICK_ROUNDS
    shorter = quick and int(expected.get("run.rounds", rounds + 1)) > rounds
    if shorter:
        overrides += (f"run.rounds={rounds}",)
        expected["run.rounds"] = str(rounds)
    name = f"{row.run_name}_seed{seed}" + ("_quick" if shorter else "")
    return Job(name, config, overrides, expected, Path(output_dir) / f"{name}.h5", protocol_rounds)


def job_state(job):
    """What lies at the job's output path. A damaged file or a killed run without a checkpoint counts as missing."""
    if not job.output.exists():
        return JobState("missing")
    try:
        run = load(job.output)
    except ResultError as error:
        return JobState("missing", None, str(error))
    other = differences_of(job, run)
    if run.status in ENDED:
        return JobState("outdated" if other else "finished", run, other)
    checkpoint = bool(files_beside(job.output))
    if not other and (run.status == "interrupted" or run.status in (RUNNING, SILENT, "failed") and checkpoint):
        return JobState("interrupted", run, f"after round {len(run.rounds)}")
    return JobState("missing", run, f"status {run.status}")


def differences_of(job, run):
    """One sentence on the first key in which a run's configuration is not the job's; "" if there is none."""
    return (differences(job.expected, run.config, job.may_be_idle, (Path(), job.config.parent))
            or (_differences_unset(job, run) if job.resolved else ""))


def _differences_unset(job, run):
    """The same of keys that the job leaves as they are, of data, model and code. A result may lack a key: an earlier program has
    written it."""
    for key, value in run.config.items():
        if key in NOT_COMPARED or key in job.expected or job.resolved.get(key, "") is None:
            continue
        if key not in job.resolved:
            return f"the result has {key}={value}, which is no longer set"
        if canonical(value) != canonical(job.resolved[key]):
            return f"the result has {key}={value}, not {job.resolved[key]}"
    for name, what in DIGESTS.items():
        digests = run.attributes.get(name), (job.digests or {}).get(name)
        if all(digests) and len(set(comparable(name, digests))) > 1:
            return f"the result is of other {what}"
    return ""


def differences(expected, actual, may_be_idle=frozenset(), folders=()):
    """The same of settings. `folders` are those in which the program looks for files (docs/decisions/0025)."""
    for key, value in expected.items():
        if key in NOT_COMPARED:
            continue
        if key not in actual and key in OF_ALL_METHODS:
            continue  # the method has no such key
        if key not in actual:
            if key in may_be_idle:
                continue
            return f"the result's configuration lacks {key}"
        if canonical(value) != canonical(actual[key]) and not (
                key in FILES and _means(value.strip().strip('"'), Path(actual[key].strip().strip('"')), folders)):
            return f"the result has {key}={actual[key]}, not {value}"
    return ""


def _means(text, found, folders):
    """Whether a relative path means the file `found`. Where both are here these are compared, else the end of the path:
    a result may come from another machine."""
    path = Path(os.path.normpath(text))
    if path.is_absolute() or not found.is_absolute():
        return False
    here = [folder / path for folder in folders if (folder / path).is_file()]
    if here and found.is_file():
        return any(one.samefile(found) for one in here)
    end = tuple(part for part in path.parts if part != "..")
    return found.parts[-len(end):] == end


def canonical(text):
    """Comparable form of a value: lists item by item, numbers as numbers, switches as 0 and 1."""
    items = []
    for item in text.strip().strip('"').split(","):
        item = item.strip()
        try:
            items.append(float(item))
        except ValueError:
            items.append({"true": 1.0, "yes": 1.0, "on": 1.0, "false": 0.0, "no": 0.0, "off": 0.0}.get(item, item))
    return items


def row_result(row, states):
    """(mean, spread, finished) in the paper's unit over the finished `states` of the row's seeds.

    The spread is the sample standard deviation (n - 1), None below two seeds; the mean is None where
    nothing is finished or a seed has no value: a mean over the others would flatter the method.
    """
    values = _values(row, states)
    if not values or any(value != value for value in values):
        return None, None, len(values)
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values)


def _values(row, states):
    """The row's figure of each finished seed; NaN where the metric was not evaluated or is no number."""
    return [state.run.pick(row.metric, row.pick) * row.scale for state in states if state.kind == "finished"]


def lacking_text(row, states):
    """What a state says where finished runs have no figure, as in "; rmse was never evaluated"."""
    values = _values(row, states)
    lacking = sum(value != value for value in values)
    if not lacking:
        return ""
    return f"; {row.metric} was never evaluated" if lacking == len(values) else (
        f"; no {row.metric} of {lacking} of {len(values)} seeds")


def seconds_per_round(states):
    """Mean time of a round without evaluation [s] over the finished `states`; None where nothing is finished."""
    rounds = [state.run.rounds for state in states if state.kind == "finished"]
    means = [float((table["wall_seconds"] - table["seconds_evaluate"].fillna(0.0)).mean()) for table in rounds
             if {"wall_seconds", "seconds_evaluate"} <= set(table)]
    return statistics.fmean(means) if means else None


def fedavg_row(row, rows):
    """FedAvg's row of the configuration's data, setting and network; None if there is none."""
    name = row.config.replace(f"_{row.method}", "_fedavg")
    return next((other for other in rows if other.method == "fedavg" and other.config == name and not other.overrides),
                None)


def time_text(seconds, fedavg):
    """A time of a round and in brackets its ratio to FedAvg's, as in 45.33 (1.52); - without a time."""
    if seconds is None:
        return "-"
    text = f"{seconds:.2f}" if seconds >= 1.0 else f"{seconds:.2g}"
    return text + (f" ({seconds / fedavg:.2f})" if fedavg else "")


def has_diverged(state):
    """Whether a run has ended before its last round: its loss was none any more. It is finished all the same."""
    return state.kind == "finished" and state.run.status == DIVERGED


def diverged_text(diverged, finished):
    """What a state says behind all else where finished runs have diverged, as in "; 1 of 3 diverged"."""
    return f"; {diverged} of {finished} diverged" if diverged else ""


def state_text(row, states, problem, left_out=""):
    """The state column: waiting, failed, how many of the row's seeds are finished, why no more are run."""
    if row.state == "waiting":
        return "waiting: not in the simulator yet"
    if problem:
        return "failed: " + (problem if len(problem) <= MESSAGE_WIDTH else problem[:MESSAGE_WIDTH] + "...")
    done = sum(state.kind == "finished" for state in states)
    diverged = diverged_text(sum(has_diverged(s) for s in states), done)
    if done == len(states):
        return ("finished" if len(states) == 1 else f"finished ({done} seeds)") + diverged
    if left_out and all(s.kind == "missing" for s in states):
        return left_out
    text = f"pending ({done} of {len(states)} seeds)" + diverged
    notes = [f"{s.kind}: {s.detail}" if s.kind == "outdated" else f"interrupted {s.detail}"
             for s in states if s.kind in ("outdated", "interrupted")]
    return "; ".join([text, *notes[:1], *([left_out] if left_out else [])])


def figure_text(value, spread):
    """A figure as in 98.97 ± 0.12; - without a value."""
    return "-" if value is None else f"{value:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def table_line(row, states, problem, left_out="", more=()):
    """One row as cells: table, data, method, metric, paper, ours, difference, `more`, state."""
    mean, spread, _ = row_result(row, states)
    paper, ours = figure_text(row.paper, row.spread), figure_text(mean, spread)
    difference = "-" if mean is None or row.paper is None else f"{mean - row.paper:+.2f}"
    state = state_text(row, states, problem, left_out) + lacking_text(row, states)
    return [row.table, f"{row.dataset} {row.setting}", f"{row.method} {row.variant}".strip(), row.measured, paper, ours,
            difference, *more, state.replace("|", "/")]


def markdown(lines, timed=False, recorded=False):
    """Cells as an aligned Markdown table; `timed`, `recorded`: with the two columns of times, the one of records."""
    more = (["s/round, paper", "s/round, ours"] if timed else []) + (["recorded"] if recorded else [])
    return aligned([["table", "data", "method", "metric", "paper", "ours", "difference", *more, "state"], *lines])


def aligned(lines):
    """Cells, the head first, as a Markdown table whose columns are aligned."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text) + "\n"
