"""What the runs of one configuration have reached, over their seeds."""

import statistics
from dataclasses import dataclass

import numpy as np

from .axes import carried, horizontal
from .result_file import ResultError
from .style import PlotError

SMALLER_IS_BETTER = ("loss", "perplexity", "rmse", "error", "residual", "gap", "distortion", "seconds", "bytes",
                     "bits", "passes", "_std")
TARGET_AXES = ("rounds", "bytes", "seconds", "wall")


@dataclass(frozen=True)
class Sample:
    """Values of one quantity over the n runs of a group, those that have one."""

    values: tuple
    runs: int

    @property
    def mean(self):
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self):
        """Sample standard deviation (n - 1); None below two values."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def sample_of(values, runs):
    return Sample(tuple(float(value) for value in values if value is not None and np.isfinite(value)), runs)


def smaller_is_better(metric):
    """Whether the metric is one that training makes smaller: losses, errors, spreads, costs."""
    return any(word in metric for word in SMALLER_IS_BETTER)


def best_and_last(runs, metric, by=None):
    """(Sample of the best, Sample of the last evaluated value); the best is that of the round where `by` was best."""
    rule = "least" if smaller_is_better(metric) else "best"
    return (sample_of([run.pick(metric, rule, by) for run in runs], len(runs)),
            sample_of([run.pick(metric) for run in runs], len(runs)))


def first_at(run, metric, target):
    """Position of the first round that has evaluated the metric at the target or beyond; None without one."""
    values = run.rounds[metric].to_numpy() if metric in run.rounds else np.empty(0)
    with np.errstate(invalid="ignore"):  # NaN: not evaluated
        reached = np.flatnonzero(values <= target if smaller_is_better(metric) else values >= target)
    return int(reached[0]) if len(reached) else None


def to_target(runs, metric, target):
    """{axis: Sample} of rounds, bytes of all links, simulated and wall seconds until the metric was at the target."""
    if target > 1 and "accuracy" in metric:
        raise ResultError(f"target {target:g}: {metric} is at most 1; name 90 % as 0.9 or 90%")
    values = {axis: [] for axis in TARGET_AXES}
    for run in runs:
        position = first_at(run, metric, target)
        for axis in TARGET_AXES if position is not None else ():
            try:
                values[axis].append(horizontal(run, axis)[0][position])
            except PlotError:  # no network model, or no link
                continue
    return {axis: sample_of(found, len(runs)) for axis, found in values.items()}


def traffic(runs):
    """(Sample of all bytes sent up, Sample of all bytes sent down), links of every tier together."""
    samples = []
    for direction in ("up", "down"):
        totals = []
        for run in runs:
            try:
                totals.append(carried(run, f"^bytes_{direction}_").sum())
            except PlotError:
                continue
        samples.append(sample_of(totals, len(runs)))
    return tuple(samples)
