"""A sweep: its INI file, the runs it stands for, and what they have reached."""

import difflib
import hashlib
import itertools
import math
import re
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from .configuration import parse_config, read_config, without_rivals
from .method_keys import NAME, acting, method_of, of_one_method
from .paper_table import Job, canonical
from .plan import sets_aside
from .results import DIVERGED, VALIDATION, ResultError
from .statistics_of_seeds import smaller_is_better
from .sweep_spaces import FORMS, Space, draw, read_space

OWN_KEYS = ("base", "seeds", "trials", "draw_seed", "least_rounds", "eta", "metric", "select", "rule", "aim", "output")
OWN_SETTINGS = ("run.seed", "run.output")  # of every run, set by the sweep
ETA = 3
LONGEST_NAME = 100  # characters of a point's name; a longer one is cut and ends in a digest of its values


class SweepError(Exception):
    """The sweep cannot be used as it is written; the message is one sentence."""


@dataclass(frozen=True)
class Point:
    """One combination of the values that vary, with a run for every seed."""

    name: str  # what the names of its runs begin with
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
    trials: int = None  # random points; None: all combinations
    rungs: tuple = (None,)  # of halving: rounds of each; None: as many as the configuration says
    eta: int = None  # of halving: one of so many points stays after a rung

    @property
    def jobs(self):
        return jobs_of(self.points)


def jobs_of(points):
    """The runs of all points: the first seed of every point, then the second, ..."""
    return [job for of_seed in zip(*(point.jobs for point in points)) for job in of_seed]


def read_sweep(path, output=None, select=None):
    """The Sweep in an INI file; `output` and `select` take the place of what it says."""
    path = Path(path)
    settings = _settings(path)
    own, grid = {}, {}
    _check_section(path, settings)
    for key, value in settings.items():
        name = key.removeprefix("sweep.")
        if not key.startswith("sweep.") or ("." not in name and name not in OWN_KEYS):
            raise _refused(path, key, f"unknown key '{name if key.startswith('sweep.') else key}'{_near(name)}; [sweep] "
                                      f"takes {', '.join(OWN_KEYS)} and keys of a run, such as train.lr")
        if not value:
            raise _refused(path, name, f"key '{name}' is empty; give it a value or take it out")
        (grid if "." in name else own)[name] = value
    if "base" not in own:
        raise SweepError(f"{path}: no key 'base' in [sweep]; it names the configuration that the runs start from")
    for name in OWN_SETTINGS:
        if name in grid:
            raise _refused(path, name, f"the sweep sets {name} of every run itself; use seeds= and output=")
    base = _base(path, own["base"])
    metric = own.get("metric", "global_accuracy")
    folder = Path(output or own.get("output") or Path("results") / "sweeps" / path.stem)
    if select:
        own["select"] = select
    chosen_by = metric
    if _one_of(path, own, "select", ("test", "validation")) == "validation":
        chosen_by = _validated(path, metric, {**_configuration(base), **grid})
    spaces = {key: _values(path, key, text) for key, text in grid.items()}
    trials, eta = _whole(path, own, "trials", 1), _whole(path, own, "eta", 2)
    rungs = _rungs(path, own, eta or ETA, {**_configuration(base), **grid})
    sweep = Sweep(path, base, _seeds(path, own.get("seeds", "1")), metric, chosen_by,
                  _one_of(path, own, "rule", ("best", "last")),
                  _one_of(path, own, "aim", ("min", "max") if smaller_is_better(metric) else ("max", "min")), folder,
                  (), trials, rungs, eta or ETA)
    return replace(sweep, points=_points(sweep, spaces, _draw_seed(path, own, spaces)))


def _check_section(path, settings):
    """SweepError where a key stands ahead of [sweep]."""
    first = next(iter(settings), "sweep.")
    if settings and not any(key.startswith("sweep.") for key in settings):
        raise _refused(path, first, "no line [sweep] ahead of the keys; add it")
    if not first.startswith("sweep.") and "." not in first:
        raise _refused(path, first, f"key '{first}' stands ahead of the line [sweep]; move it below")


def place_of(path, key):
    """The file and the line in which a key stands; the file alone where it does not stand there."""
    lines = [line.split("#", 1)[0].split("=", 1)[0].strip() for line in path.read_text(encoding="utf-8").split("\n")]
    numbers = [number for number, name in enumerate(lines, 1) if name and (name == key or key.endswith(f".{name}"))]
    return f"{path}:{numbers[-1]}" if numbers else str(path)


def _refused(path, key, message):
    return SweepError(f"{place_of(path, key)}: {message}")


def _near(name):
    """A guess at which of the sweep's own keys was meant."""
    near = difflib.get_close_matches(name, OWN_KEYS, 1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def _whole(path, own, name, least, default=None):
    """A whole number among the sweep's own keys; `default` where it is not there."""
    text = own.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d+", text) or int(text) < least:
        raise _refused(path, name, f"{name} = {text}: must be a whole number of at least {least}")
    return int(text)


def _draw_seed(path, own, spaces):
    """The seed of what is drawn; SweepError where keys of random trials and of a grid do not go together."""
    if "trials" not in own:
        for key, values in spaces.items():
            if isinstance(values, Space):
                raise _refused(path, key, f"{key} is a space to draw from; say how often by trials = N")
        if "draw_seed" in own:
            raise _refused(path, "draw_seed", "draw_seed is for random trials; give trials = N or take it out")
    elif all(not isinstance(values, Space) and len(values) == 1 for values in spaces.values()):
        raise _refused(path, "trials", f"trials = {own['trials']}: no key varies; give one {FORMS}")
    return _whole(path, own, "draw_seed", 0, 1)


def _rungs(path, own, eta, settings):
    """The rounds of each rung: run.rounds / eta^k, rounded down, from least_rounds on."""
    least = _whole(path, own, "least_rounds", 1)
    if least is None:
        if "eta" in own:
            raise _refused(path, "eta", "eta is for halving; give least_rounds = N or take it out")
        return (None,)
    most = settings.get("run.rounds", "")
    if not re.fullmatch(r"\d+", most):
        raise _refused(path, "run.rounds" if most else "least_rounds",
                       f"least_rounds = {least}: halving needs one run.rounds, those of the trials that stay to the end")
    every = settings.get("run.checkpoint_every", "1")
    choice = _values(path, "run.checkpoint_every", every)
    if choice.low <= 0 if isinstance(choice, Space) else [0.0] in map(canonical, choice):
        raise _refused(path, "run.checkpoint_every",
                       f"run.checkpoint_every = {every} leaves nothing to go on from after a rung")
    rungs = [int(most)]
    while rungs[0] // eta >= least:
        rungs.insert(0, int(most) // eta ** len(rungs))
    if len(rungs) == 1:
        raise _refused(path, "least_rounds", f"least_rounds = {least}: no rung below run.rounds = {most} with eta = {eta}; "
                                             f"allowed: at most {int(most) // eta}")
    return tuple(rungs)


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
        raise _refused(path, "metric",
                       f"select = validation chooses by validation_METRIC; {metric} is one of them already")
    if not sets_aside(settings):
        raise _refused(path, "select", "select = validation needs samples that clients set aside; "
                                       "set data.validation_fraction")
    return VALIDATION + metric


def _base(path, text):
    """The base configuration, relative to the current folder or else to the sweep's file."""
    for candidate in (Path(text), path.parent / text):
        if candidate.is_file():
            return candidate
    raise _refused(path, "base", f"base = {text}: no such file here or beside the sweep; name a configuration")


def _one_of(path, own, name, allowed):
    value = own.get(name, allowed[0])
    if value not in allowed:
        raise _refused(path, name, f"{name} = {value}: must be {' or '.join(allowed)}")
    return value


def _values(path, key, text):
    """A Space, or values: between semicolons where there is one, so that a value may hold commas, else commas."""
    try:
        if space := read_space(text):
            return space
    except ValueError as error:
        raise _refused(path, key, f"{key} = {text}: {error}") from None
    values = [item.strip() for item in text.split(";" if ";" in text else ",")]
    values = [value for value in values if value]
    if not values:
        raise _refused(path, key, f"{key} = {text}: no value stands there; give one or take the key out")
    for one, other in itertools.combinations(values, 2):
        if canonical(one) == canonical(other):
            equal = "" if one == other else f" ({one} and {other} are equal)"
            raise _refused(path, key, f"{key} = {text}: a value stands there twice{equal}; take it out")
    return values


def _seeds(path, text):
    """Seeds of a list such as 1-3,7."""
    seeds = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", item)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise _refused(path, "seeds", f"seeds = {text}: not a list such as 1-3,7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(seeds)) != len(seeds):
        raise _refused(path, "seeds", f"seeds = {text}: a seed stands there twice; take it out")
    return tuple(seeds)


def _points(sweep, spaces, draw_seed):
    """The points: the grid's, the last key's values changing fastest, or one for every trial."""
    fixed = {key: values[0] for key, values in spaces.items() if not isinstance(values, Space) and len(values) == 1}
    varying = {key: values for key, values in spaces.items() if key not in fixed}
    base_settings = _configuration(sweep.base)
    _refuse_keys_of_no_method(sweep.path, spaces, base_settings)
    points, taken = [], set()
    for number, values in _combinations(sweep, varying, base_settings, fixed, draw_seed):
        name = f"trial{number}" if sweep.trials else _name(varying, values) or sweep.base.stem
        if len(name) > LONGEST_NAME or name in taken:  # a running number would change with every value that is added
            digest = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:8]
            name = f"{name[:LONGEST_NAME]}_{digest}"
        taken.add(name)
        settings = {**fixed, **values}
        expected = acting(without_rivals(base_settings, settings), settings)
        if sweep.rungs[-1]:  # the rung says how many rounds
            cosine = _whole_cosine(expected, sweep.rungs[-1])
            settings, expected = ({key: value for key, value in {**some, **cosine}.items() if key != "run.rounds"}
                                  for some in (settings, expected))
        jobs = []
        for seed in sweep.seeds:
            seeded = {**settings, "run.seed": str(seed)}
            jobs.append(Job(f"{name}_seed{seed}", sweep.base, tuple(f"{key}={value}" for key, value in seeded.items()),
                            {**expected, "run.seed": str(seed)}, sweep.folder / f"{name}_seed{seed}.h5"))
        points.append(Point(name, values, tuple(jobs)))
    return tuple(points)


def _refuse_keys_of_no_method(path, spaces, base):
    """SweepError for a key algorithm.METHOD.KEY whose method no run has: it would act nowhere."""
    methods = spaces.get(NAME) or [method_of(base, {})]
    for key in spaces:
        method = (of_one_method(key) or (None,))[0]
        if method is not None and method not in methods:
            near = difflib.get_close_matches(method, methods, 1)
            raise _refused(path, key, f"key '{key}' is of the method {method}, and the runs have {', '.join(methods)}"
                                      + (f" (did you mean {near[0]}?)" if near else ""))


def _whole_cosine(settings, rounds):
    """The period of a cosine that goes to the last round, which a run of fewer rounds would take for its own."""
    cosine = settings.get("train.lr_schedule") == "cosine" and settings.get("train.lr_unit") != "epoch"
    warmup = settings.get("train.lr_warmup", "0")
    if not cosine or settings.get("train.lr_period", "auto") != "auto" or not warmup.isdigit() or int(warmup) >= rounds:
        return {}  # the last is for the program to refuse
    return {"train.lr_period": str(rounds - int(warmup))}


def _combinations(sweep, varying, base, fixed, draw_seed):
    """(number, values) of every point, equal ones once; a key of one method varies where that method is chosen."""
    if sweep.trials:
        combinations = ([draw(space, draw_seed, trial, key) for key, space in varying.items()]
                        for trial in range(1, sweep.trials + 1))
    else:
        combinations = itertools.product(*varying.values())
    points = []
    for trial, combination in enumerate(combinations, 1):
        values = dict(zip(varying, combination))
        method = method_of(base, {**fixed, **values})
        acts = {key: value for key, value in values.items()
                if (of_one_method(key) or (method,))[0] == method}
        if acts not in [earlier for _, earlier in points]:
            points.append((trial if sweep.trials else len(points), acts))
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

    The mean over the seeds that are finished; None where none is, one has diverged or has no finite value.
    The spread is the sample standard deviation, None below two seeds.
    """
    finished = [states[job.name].run for job in point.jobs if states[job.name].kind == "finished"]
    values = [value_of(sweep, run, metric) for run in finished]
    if not all(map(math.isfinite, values)) or not values or any(run.status == DIVERGED for run in finished):
        return None, None, len(finished)
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(finished)


def value_of(sweep, run, metric=None):
    """A metric of one run [the sweep's] in the round that the sweep's rule chooses; NaN where it was not evaluated."""
    rule = "last" if sweep.rule == "last" else "best" if sweep.aim == "max" else "least"
    metric = metric or sweep.metric
    return run.pick(metric, rule, sweep.chosen_by) * (100.0 if "accuracy" in metric else 1.0)


def ranked(sweep, points, states):
    """The points whose seeds are all finished, best mean of `chosen_by` first, and of equal ones the earlier; each with
    its mean."""
    results = [(point, *result_of(sweep, point, states, sweep.chosen_by)) for point in points]
    complete = [(point, mean) for point, mean, _, finished in results
                if mean is not None and finished == len(sweep.seeds)]
    return sorted(complete, key=lambda entry: entry[1] if sweep.aim == "min" else -entry[1])
