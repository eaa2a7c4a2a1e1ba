"""A sweep: its INI file, the runs it stands for, what is finished of them, and the comparison as Markdown."""

import itertools
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from .configuration import parse_config, read_config, without_rivals
from .method_keys import acting, method_of, of_one_method
from .paper_table import Job, figure_text, job_state
from .results import DIVERGED, VALIDATION, ResultError
from .statistics_of_seeds import smaller_is_better

OWN_KEYS = ("base", "seeds", "metric", "select", "rule", "aim", "output")
OWN_SETTINGS = ("run.seed", "run.output")  # of every run, set by the sweep
LONGEST_NAME = 100  # characters of a run's name; a longer one is cut and numbered


class SweepError(Exception):
    """The sweep cannot be used as it is written; the message is one sentence."""


@dataclass(frozen=True)
class Point:
    """One combination of the values that vary, with a run for every seed."""

    values: dict  # "section.key" -> text, of the keys that vary
    jobs: tuple  # of paper_table.Job, in the order of the seeds

    @property
    def text(self):
        return " ".join(f"{key}={value}" for key, value in self.values.items()) or "(nothing varies)"


@dataclass(frozen=True)
class Sweep:
    """What a sweep's INI file says."""

    path: Path
    base: Path
    seeds: tuple
    metric: str
    chosen_by: str  # the series that chooses rounds and points: the metric, or the same on validation samples
    rule: str  # best: the best evaluated round of a run; last: its last evaluated one
    aim: str  # max | min
    folder: Path
    points: tuple

    @property
    def jobs(self):
        """All runs: the first seed of every point, then the second, ..."""
        return [job for of_seed in zip(*(point.jobs for point in self.points)) for job in of_seed]


def read_sweep(path, output=None, select=None):
    """The Sweep in an INI file; `output` and `select` take the place of what it says."""
    path = Path(path)
    settings = _settings(path)
    own, grid = {}, {}
    for key, value in settings.items():
        name = key.removeprefix("sweep.")
        if not key.startswith("sweep.") or ("." not in name and name not in OWN_KEYS):
            raise SweepError(f"{path}: unknown key '{name if key.startswith('sweep.') else key}'; [sweep] takes "
                             f"{', '.join(OWN_KEYS)} and keys of a run, such as train.lr")
        if not value:
            raise SweepError(f"{path}: key '{name}' is empty; give it a value or take it out")
        (grid if "." in name else own)[name] = value
    if "base" not in own:
        raise SweepError(f"{path}: no key 'base' in [sweep]; it names the configuration that the runs start from")
    for name in OWN_SETTINGS:
        if name in grid:
            raise SweepError(f"{path}: the sweep sets {name} of every run itself; use seeds= and output=")
    base = _base(path, own["base"])
    metric = own.get("metric", "global_accuracy")
    folder = Path(output or own.get("output") or Path("results") / "sweeps" / path.stem)
    seeds = _seeds(path, own.get("seeds", "1"))
    if select:
        own["select"] = select
    chosen_by = metric
    if _one_of(path, own, "select", ("test", "validation")) == "validation":
        chosen_by = _validated(path, metric, {**_configuration(base), **grid})
    return Sweep(path, base, seeds, metric, chosen_by, _one_of(path, own, "rule", ("best", "last")),
                 _one_of(path, own, "aim", ("min", "max") if smaller_is_better(metric) else ("max", "min")), folder,
                 _points(path, base, {key: _values(path, key, text) for key, text in grid.items()}, seeds, folder))


def _settings(path):
    try:
        return parse_config(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"{path}: {getattr(error, 'strerror', 'not a text')}; give a sweep's INI file") from None
    except ResultError as error:
        raise SweepError(f"{path}: {error}") from None


def _configuration(path):
    try:
        return read_config(path)
    except ResultError as error:
        raise SweepError(str(error)) from None


def _validated(path, metric, settings):
    """The series of the metric on validation samples; SweepError where no run has any."""
    if metric.startswith(VALIDATION):
        raise SweepError(f"{path}: select = validation chooses by validation_METRIC; {metric} is one of them already")
    fractions = settings.get("data.validation_fraction", "0").split(";")
    if settings.get("data.partition") != "file" and all(text.strip() in ("", "0", "0.0") for text in fractions):
        raise SweepError(f"{path}: select = validation needs samples that clients set aside; "
                         "set data.validation_fraction")
    return VALIDATION + metric


def _base(path, text):
    """The base configuration, relative to the current folder or else to the sweep's file."""
    for candidate in (Path(text), path.parent / text):
        if candidate.is_file():
            return candidate
    raise SweepError(f"{path}: base = {text}: no such file here or beside the sweep; name a configuration")


def _one_of(path, own, name, allowed):
    value = own.get(name, allowed[0])
    if value not in allowed:
        raise SweepError(f"{path}: {name} = {value}: must be {' or '.join(allowed)}")
    return value


def _values(path, key, text):
    """The values of a key: between semicolons where there is one, so that a value may hold commas, else commas."""
    values = [item.strip() for item in text.split(";" if ";" in text else ",")]
    values = [value for value in values if value]
    if len(set(values)) != len(values) or not values:
        raise SweepError(f"{path}: {key} = {text}: a value stands there twice, or none; take it out")
    return values


def _seeds(path, text):
    """Seeds of a list such as 1-3,7."""
    seeds = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", item)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise SweepError(f"{path}: seeds = {text}: not a list such as 1-3,7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(seeds)) != len(seeds):
        raise SweepError(f"{path}: seeds = {text}: a seed stands there twice; take it out")
    return tuple(seeds)


def _points(path, base, grid, seeds, folder):
    """The grid's points, the last key's values changing fastest."""
    varying = {key: values for key, values in grid.items() if len(values) > 1}
    fixed = {key: values[0] for key, values in grid.items() if len(values) == 1}
    base_settings = _configuration(base)
    points, taken = [], set()
    for number, values in enumerate(_combinations(varying, base_settings, fixed)):
        name = _name(varying, values)
        if not name or len(name) > LONGEST_NAME or name in taken:
            name = f"{(name or base.stem)[:LONGEST_NAME]}_{number}" if varying else base.stem
        taken.add(name)
        jobs = []
        for seed in seeds:
            settings = {**fixed, **values, "run.seed": str(seed)}
            output = folder / f"{name}_seed{seed}.h5"
            jobs.append(Job(f"{name}_seed{seed}", base, tuple(f"{key}={value}" for key, value in settings.items()),
                            acting(without_rivals(base_settings, settings), settings), output))
        points.append(Point(values, tuple(jobs)))
    return tuple(points)


def _combinations(varying, base, fixed):
    """The values of every point; a key of one method varies where that method is chosen."""
    points = []
    for combination in itertools.product(*varying.values()):
        values = dict(zip(varying, combination))
        method = method_of(base, {**fixed, **values})
        acts = {key: value for key, value in values.items()
                if (of_one_method(key) or (method,))[0] == method}
        if acts not in points:
            points.append(acts)
    return points


def _name(varying, values):
    """A file's name for a combination: lr0.1_mu1, with the section where two keys share their name."""
    varying = [key for key in varying if key in values]
    shorts = [key.rsplit(".", 1)[-1] for key in varying]
    parts = [(short if shorts.count(short) == 1 else key.replace(".", "-")) + re.sub(r"[^\w.+-]", "-", values[key])
             for key, short in zip(varying, shorts)]
    return "_".join(parts)


def result_of(sweep, point, states, metric=None):
    """(mean, spread, finished) of a metric of a point [the sweep's] in its unit, in % for accuracies.

    The mean over the seeds that are finished; None where none is, one has diverged or the metric was never evaluated.
    The spread is the sample standard deviation, None below two seeds.
    """
    finished = [states[job.name].run for job in point.jobs if states[job.name].kind == "finished"]
    values = [value for value in (value_of(sweep, run, metric) for run in finished) if value == value]
    if not values or any(run.status == DIVERGED for run in finished):
        return None, None, len(finished)
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(finished)


def value_of(sweep, run, metric=None):
    """A metric of one run [the sweep's] in the round that the sweep's rule chooses; NaN where it was not evaluated."""
    rule = "last" if sweep.rule == "last" else "best" if sweep.aim == "max" else "least"
    metric = metric or sweep.metric
    return run.pick(metric, rule, sweep.chosen_by) * (100.0 if "accuracy" in metric else 1.0)


def states_of(sweep):
    """What lies at every run's output: paper_table.JobState by the run's name."""
    return {job.name: job_state(job) for job in sweep.jobs}


def best_of(sweep, states):
    """The point that the mean of `chosen_by` prefers, of those whose seeds are all finished; None without one."""
    results = [(point, *result_of(sweep, point, states, sweep.chosen_by)) for point in sweep.points]
    complete = [(point, mean) for point, mean, _, finished in results
                if mean is not None and finished == len(sweep.seeds)]
    pick = max if sweep.aim == "max" else min
    return pick(complete, key=lambda entry: entry[1])[0] if complete else None


def report(sweep, states):
    """The table of all points as Markdown, and the best one in a line."""
    best = best_of(sweep, states)
    keys = list(dict.fromkeys(key for point in sweep.points for key in point.values))
    metrics = list(dict.fromkeys((sweep.chosen_by, sweep.metric)))
    lines = [[*keys, *(metric + _unit(metric) for metric in metrics), "seeds", ""]]
    for point in sweep.points:
        results = [result_of(sweep, point, states, metric) for metric in metrics]
        note = "best" if point is best else _note(point, states)
        lines.append([*(point.values.get(key, "-") for key in keys),
                      *(_cell(metric, mean, spread) for metric, (mean, spread, _) in zip(metrics, results)),
                      f"{results[0][2]} of {len(sweep.seeds)}", note])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*text, "", _conclusion(sweep, states, best)]) + "\n"


def _unit(metric):
    return " [%]" if "accuracy" in metric else ""


def _cell(metric, mean, spread):
    if _unit(metric) or mean is None:
        return figure_text(mean, spread)
    # A loss has no natural number of decimals.
    return f"{mean:.4g}" + (f" ± {spread:.2g}" if spread is not None else "")


def _note(point, states):
    """Why a point is not complete."""
    kinds = [states[job.name] for job in point.jobs if states[job.name].kind != "finished"]
    return "; ".join(dict.fromkeys(f"{state.kind} {state.detail}".strip().replace("|", "/") for state in kinds))


def _conclusion(sweep, states, best):
    pending = sum(state.kind != "finished" for state in states.values())
    left = f"; {pending} of {len(states)} runs are not finished" if pending else ""
    runs = [state.run for state in states.values() if state.kind == "finished"]
    for metric in (sweep.chosen_by, sweep.metric):
        if runs and all(run.evaluated(metric).empty for run in runs):
            return (f"metric {metric} was never evaluated; the runs have "
                    f"{', '.join(name for name in runs[0].rounds if len(runs[0].evaluated(name)))}{left}")
    if best is None:
        return f"no point is complete{left}"
    rule = {"best": "best evaluated round", "last": "last evaluated round"}[sweep.rule]
    aim = {"max": "highest", "min": "lowest"}[sweep.aim]
    overrides = " ".join(f"--{key}={value}" for key, value in best.values.items())
    over = f", mean over {len(sweep.seeds)} seeds" if len(sweep.seeds) > 1 else ""
    figures = []
    for metric in dict.fromkeys((sweep.chosen_by, sweep.metric)):
        mean, spread, _ = result_of(sweep, best, states, metric)
        name = f"{metric} " if figures else ""
        figures.append("-" if mean is None else
                       f"{name}{mean:.4g}" + (f" ± {spread:.2g}" if spread is not None else ""))
    return (f"best ({aim} {sweep.chosen_by}, {rule}{over}): {overrides or sweep.base.name} "
            f"({'; '.join(figures)}){left}")
