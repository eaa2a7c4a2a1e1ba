"""Strong and weak scaling: the time of a round on different numbers of ranks."""

import statistics
from dataclasses import dataclass

import numpy as np

from .labels import DIGEST, SEEDS, labels_of, settings
from .results import ResultError
from .style import COLOURS, legend, number_log_axis, plain, tidy, write_figure
from .tables import FORMATS

GROWING = ("data.clients", "topology.edges")  # with the ranks, in weak scaling


@dataclass(frozen=True)
class Point:
    """Runs on one number of ranks."""

    ranks: int
    clients: int
    seconds: float  # of a round: the median over the rounds but the first, and over the runs
    runs: int


@dataclass(frozen=True)
class Scaling:
    """Points of ascending ranks."""

    kind: str  # strong or weak
    label: str
    points: tuple

    def efficiency(self, point):
        """Against the fewest ranks: 1 is perfect."""
        first = self.points[0]
        ideal = first.seconds * (first.ranks / point.ranks if self.kind == "strong" else 1.0)
        return ideal / point.seconds


def seconds_of_round(run):
    """Median duration of a round on the run's last number of ranks, without the first there [s]; None for fewer than
    two such rounds. Evaluation is in it where at least half of the rounds evaluate."""
    if "wall_seconds" not in run.rounds:
        return None
    seconds = run.rounds["wall_seconds"].to_numpy()[ranks_of_rounds(run) == run.attributes["ranks"]][1:]
    seconds = seconds[np.isfinite(seconds)]
    return float(np.median(seconds)) if len(seconds) else None


def ranks_of_rounds(run):
    """On how many ranks each round was run, [T]; 0 where nothing tells."""
    starts = sorted({0: 0, **(run.starts or {1: run.attributes["ranks"]})}.items())
    first, ranks = np.array(starts).T
    return ranks[np.searchsorted(first, run.rounds.index, side="right") - 1]


def ranks_are_known(run):
    """Whether the file says on how many ranks each round was run. Of an old one the attribute tells of the last command
    alone; commands that went on with the run stand behind the first one."""
    return "ranks" in run.attributes and bool(run.starts or "; " not in run.attributes.get("command_line", ""))


def scalings_of(runs, tell):
    """The Scalings that the runs show; ResultError if there is none. `tell` is told which runs cannot be placed."""
    for run in runs:
        if "ranks" in run.attributes and not ranks_are_known(run):
            tell(f"{run.path}: resumed, and its file does not say on how many ranks each round was run")
    usable = [run for run in runs if ranks_are_known(run) and seconds_of_round(run) and "data.clients" in run.config]
    found = []
    for kind, constant in (("strong", same_settings), ("weak", same_share_of_clients),
                           ("weak", same_share_of_clients_and_edges)):
        series = {}
        for run in usable:
            series.setdefault(constant(run), []).append(run)
        for members in series.values():
            seen = any(set(map(id, members)) <= set(map(id, other)) for _, other in found)
            if len({int(run.attributes["ranks"]) for run in members}) > 1 and not seen:
                found.append((kind, members))
    if not found:
        raise ResultError("no scaling to show: give runs of one configuration (or of as many clients per rank) on "
                          "different numbers of ranks, of two rounds or more each")
    ignored = SEEDS | set(GROWING)
    labels = labels_of([members[0] for _, members in found], ignored, most=None)
    shared = len({tuple(sorted(settings(members[0], ignored).items())) for _, members in found}) == 1
    return [Scaling(kind, "" if shared else label, points_of(members)) for (kind, members), label in zip(found, labels)]


def timed_settings(run):
    """The configuration without what says nothing about times: seeds, and what the samples are."""
    return {key: value for key, value in settings(run, SEEDS).items() if key != DIGEST}


def same_settings(run):
    return frozenset(timed_settings(run).items())


def same_share_of_clients(run):
    """Everything but the number of clients, and that per rank."""
    config = timed_settings(run)
    return frozenset({**config, "data.clients": share(run, "data.clients")}.items())


def same_share_of_clients_and_edges(run):
    config = timed_settings(run)
    return frozenset({**config, **{key: share(run, key) for key in GROWING if key in config}}.items())


def share(run, key):
    """A number of the configuration per rank."""
    return float(run.config[key]) / float(run.attributes["ranks"])


def points_of(runs):
    by_ranks = {}
    for run in runs:
        by_ranks.setdefault(int(run.attributes["ranks"]), []).append(run)
    return tuple(Point(ranks, int(float(same[0].config["data.clients"])),
                       statistics.median(seconds_of_round(run) for run in same), len(same))
                 for ranks, same in sorted(by_ranks.items()))


def scaling_table(scalings, form):
    """The table of all scalings as text."""
    header = ["scaling", "ranks", "clients", "clients/rank", "runs", "s/round", "efficiency [%]"]
    lines = []
    for one in scalings:
        name = f"{one.kind}: {one.label}" if one.label else one.kind
        lines += [[name, str(p.ranks), str(p.clients), f"{p.clients / p.ranks:.4g}", str(p.runs), f"{p.seconds:.4g}",
                   f"{100 * one.efficiency(p):.1f}"] for p in one.points]
    return FORMATS[form](header, lines)


def draw_scaling(scalings, output, force=False):
    """Writes the figure: time of a round with its ideal, and efficiency, both against ranks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 3.7), layout="constrained")
    times, efficiencies = figure.subplots(1, 2)
    for number, one in enumerate(scalings):
        ranks = np.array([point.ranks for point in one.points], dtype=float)
        seconds = np.array([point.seconds for point in one.points])
        ideal = seconds[0] * (ranks[0] / ranks if one.kind == "strong" else np.ones(len(ranks)))
        style = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1.6, "marker": "o", "markersize": 3.5,
                 "label": plain(f"{one.kind}: {one.label}" if one.label else one.kind)}
        times.plot(ranks, seconds, **style)
        times.plot(ranks, ideal, ":", color=style["color"], linewidth=1.0)
        efficiencies.plot(ranks, [100 * one.efficiency(point) for point in one.points], **style)
    all_ranks = sorted({point.ranks for one in scalings for point in one.points})
    times.set(xscale="log", yscale="log", ylabel="seconds per round (dotted: ideal)")
    if all(one.kind == "weak" for one in scalings):  # close to a constant: from 0, or noise looks like a trend
        times.set(yscale="linear", ylim=(0, 1.2 * max(point.seconds for one in scalings for point in one.points)))
    most = max(1.0, *(one.efficiency(point) for one in scalings for point in one.points))
    efficiencies.set(xscale="log", ylabel="efficiency [%]", ylim=(0, 110 * most))
    for axes in (times, efficiencies):
        axes.set_xlabel("ranks")
        axes.set_xticks(all_ranks, [str(number) for number in all_ranks])
        axes.minorticks_off()
        tidy(axes)
    if times.get_yscale() == "log":
        number_log_axis(times.yaxis)
    efficiencies.axhline(100, color="#777777", linewidth=0.8, linestyle=":")
    legend(efficiencies)
    write_figure(figure, output, force)
