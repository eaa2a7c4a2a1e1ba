"""Plots metrics of one or several fedhpc runs against rounds, traffic or time, and what is known of their clients.

    plot.py RUN.h5|DIR ... [--panel accuracy,loss,clients,labels,own | --metric global_accuracy,...]
            [--against rounds|bytes|cloud|bits|seconds|wall] [--log] [--seeds each|band]
            [--labels TEXT,TEXT,...] [--output FILE.png|.pdf|.svg] [--force] [--title TEXT]

--panel: accuracy (global, and personal where it differs), loss (test and training; these two are the
default), clients (quantiles over clients of their accuracy, and their accuracies at the end), labels (how many
samples each client has of each label), own (what the algorithm itself records: angles, densities, ranks, errors).
--against, each summed up to the round: bytes: all payloads of the simulated network, up and down; cloud:
those that the cloud sends and receives, whatever edges and their clients exchange beside; bits: what a client
has sent, the mean over all clients, with what it has told of itself for a similarity graph; seconds:
simulated_seconds (a run with network.* keys); wall: this machine's time, evaluation included. --log: on a
logarithmic axis, without runs that are at 0 in all rounds. --seeds band: runs that differ in their seeds only are one
curve, their mean, in a band of one sample standard deviation up and down, over the rounds that all of them have;
without the band of losses where a seed has diverged.

A series is drawn in all rounds that have a value of it; bytes and seconds are those of each round. Several runs share
the figure, with a legend of --labels, one per curve, or of the settings in which they differ, each run's own; long
names, or more than ten, stand below the panels. The ending of --output says whether pixels or
vectors are drawn. An earlier figure there gets the name FIGURE.old1.png, or the next number; --force replaces it. Prints a line
per run and the path written. Exit code 2: a file is missing or is no result file, or nothing can be drawn as asked.

Methods with personal models beside such without: --metric personal_accuracy_weighted,train_loss (without,
the first is the global model's accuracy on all clients' test samples).
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from textwrap import fill as fill_lines

import numpy as np
from matplotlib.figure import Figure  # not of pyplot, which would look for a display
from matplotlib.lines import Line2D

from .axes import AXES, horizontal, unit_prefix
from .client_panels import clients_painters, labels_painters
from .labels import SEEDS, groups_of_seeds, labels_of, listed, title_of
from .panels import are_quantiles, default_panels, evaluated_by_any, name_of, own_panels, panels_of, recorded_rounds
from .results import DIVERGED, ENDED, ResultError, load_all, tells
from .style import (
    COLOURS, MARKERS_UP_TO, STYLES, PlotError, add_force, legend, marker_of, number_log_axis, plain, small_title, tidy,
    write_figure,
)

DEFAULT = ("accuracy", "loss")
PANELS = (*DEFAULT, "clients", "labels", "own")
OF_SINGLE_RUNS = {"clients", "labels"}  # panels that know nothing of groups
COLUMNS = 3  # panels side by side
LONGEST_IN_PANEL = 30  # letters of a run's name; longer ones stand below the panels
MOST_IN_PANEL = 10  # names of runs; more of them do so as well
MOST_DASHES = 8  # names of series; more of them stand beside the panel
DASHES_ABOVE = 18  # points of a line of dashes' names above a panel
LEGEND_LINE = 0.18  # inches of a line of names below the panels, or above one
LONGEST_LINE = 42  # letters beside a panel
FLATTENED = 3  # an axis so many times as long as the curves of runs that have not diverged hides them
MEDIAN = 1  # of the 10th, 50th and 90th percentile


def goes_on(groups):
    return any(run.status not in ENDED for group in groups for run in group)


def has_diverged(group):
    return any(run.status == DIVERGED for run in group)


def curve_of(group, metric, against):
    """(x, y, standard deviation or None, axis label): of one run the recorded rounds, of several those of all."""
    if len(group) == 1:
        run = group[0]
        x, label = horizontal(run, against)
        keep = recorded_rounds(run, metric)
        return x[keep], run.rounds[metric].to_numpy()[keep] if keep.any() else x[keep], None, label
    shared = set.intersection(*(set(run.rounds.index[recorded_rounds(run, metric)]) for run in group))
    rounds = np.array(sorted(shared), dtype=int)
    axes = [horizontal(run, against) for run in group]
    values = np.array([run.rounds[metric].to_numpy()[rounds - 1] if len(rounds) else [] for run in group])
    x = np.mean([x[rounds - 1] for x, _ in axes], axis=0)
    return x, values.mean(axis=0), values.std(axis=0, ddof=1), axes[0][1]


def draw_panel(axes, groups, labels, metrics, against, vertical, scale):
    """Draws every metric of every group of runs that has it: colour = group (a single one: metric), dash = metric.

    Percentiles of one quantity are drawn as a line, the median, in a band from the 10th to the 90th.
    """
    factor = 100.0 if "[%]" in vertical else 1.0
    quantiles = are_quantiles(metrics)
    curves, largest, label = [], 0.0, ""
    for index, group in enumerate(groups):
        for style, metric in enumerate(metrics):
            x, y, spread, label = curve_of(group, metric, against)
            shown = (x > 0) | (scale != "log")
            if shown.any():
                curves.append((index, style, x[shown], factor * y[shown],
                               None if spread is None else factor * spread[shown]))
                largest = max(largest, x.max())
    divisor, label = unit_prefix(largest, label)
    tall, vertical = unit_prefix(max((y.max() for _, _, _, y, _ in curves), default=0.0), vertical)
    curves = [(index, style, x / divisor, y / tall, None if spread is None else spread / tall)
              for index, style, x, y, spread in curves]
    for index, style, x, y, spread in curves:
        number = index if len(groups) > 1 or quantiles else style
        colour = COLOURS[number % len(COLOURS)]
        if quantiles and style != MEDIAN:
            axes.plot(x, y, color=colour, linewidth=0.6, alpha=0.6)
            continue
        axes.plot(x, y, "-" if quantiles else STYLES[style % len(STYLES)], color=colour, linewidth=1.6,
                  marker=marker_of(len(x), number), markersize=3.5, markevery=max(1, len(x) // MARKERS_UP_TO))
        if quantiles:  # they are recorded together, in the same rounds
            ends = [ys for at, other, _, ys, _ in curves if at == index and other != MEDIAN and len(ys) == len(x)]
            if len(ends) == 2:
                axes.fill_between(x, *ends, color=colour, alpha=0.2, linewidth=0)
        elif spread is not None and not (is_cut(vertical) and has_diverged(groups[index])):
            axes.fill_between(x, y - spread, y + spread, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel=label, ylabel=fill_lines(vertical, LONGEST_LINE), xscale=scale)
    if scale == "log":
        number_log_axis(axes.xaxis)
    elif against == "rounds":
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    if is_cut(vertical):
        show_what_has_not_diverged(axes, groups, curves)
    tidy(axes)
    if curves:
        drawn = sorted({index for index, *_ in curves})
        entries = [(labels[index], index) for index in drawn] if labels else None
        draw_legend(axes, entries if len(groups) > 1 else [], metrics[MEDIAN:MEDIAN + 1] if quantiles else metrics)
        if quantiles:
            small_title(axes, "median, 10 % to 90 % of clients")
    else:
        text = "not evaluated yet" if goes_on(groups) else "not evaluated"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color="#777777")
        axes.set(xscale="linear", xticks=[], yticks=[])


def is_cut(vertical):
    """Whether curves that have diverged may leave the panel; percentages do not."""
    return "[%]" not in vertical


def show_what_has_not_diverged(axes, groups, curves):
    """Fits the vertical axis to the curves of groups that have not diverged, where others would flatten them, and says
    so."""
    kept = [y for index, _, _, y, _ in curves if not has_diverged(groups[index])]
    if not kept or len(kept) == len(curves):
        return
    low, high = min(np.nanmin(y) for y in kept), max(np.nanmax(y) for y in kept)
    bottom, top = axes.get_ylim()
    if top - bottom > FLATTENED * (high - low):
        margin = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set_ylim(low - margin, high + margin)
        small_title(axes, f"what has {DIVERGED} goes beyond the panel")


def draw_legend(axes, runs, metrics):
    """Colours for the runs of the panel [(label, index)], then dashes for the metrics; a single curve needs no legend.

    runs: empty in a figure of one run, None where the figure names them elsewhere. The dashes stand above the panel
    then, and more than MOST_DASHES of them beside it: many curves leave them no room in it.
    """
    if not runs and len(metrics) == 1:
        return
    entries = [(key_of(index), label) for label, index in runs or ()]
    if len(metrics) > 1:
        entries += [(key_of(i, STYLES[i % len(STYLES)]) if runs == [] else
                     Line2D([], [], color="#555555", linewidth=1.6, linestyle=STYLES[i % len(STYLES)]), name_of(metric))
                    for i, metric in enumerate(metrics)]
    where = {}
    if runs is None:
        where = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0}
        if axes.get_title():
            small_title(axes, axes.get_title(), pad=DASHES_ABOVE * -(-len(entries) // 2))
    beside = len(metrics) > MOST_DASHES
    if beside:
        where = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "borderaxespad": 0}
    legend(axes, *zip(*entries), fontsize=8 if len(entries) <= 8 else 6, handlelength=2.6,
           ncols=2 if (len(entries) > 10 and not beside) or runs is None else 1, **where)


def key_of(index, dashes="-"):
    """The legend's line for curve `index`."""
    return Line2D([], [], color=COLOURS[index % len(COLOURS)], marker=marker_of(MARKERS_UP_TO + 1, index), markersize=3.5,
                  linewidth=1.6, linestyle=dashes)


def shared_legend_columns(width, labels):
    """Of names below panels of so many inches."""
    return max(1, int(width / (0.5 + 0.075 * max(map(len, labels)))))


def shared_legend_lines(width, labels):
    return -(-len(labels) // shared_legend_columns(width, labels))


def draw_shared_legend(figure, named):
    """Names the runs {index: label} below the panels, where there is room for long names."""
    handles, labels = [key_of(index) for index in named], [*named.values()]
    columns = shared_legend_columns(figure.get_figwidth(), labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)), frameon=False,
                  fontsize=8)


def painters_of(groups, labels, names, metrics, against, scale):
    """What fills the figure: a list of functions of axes, one per panel."""
    runs = [run for group in groups for run in group]
    if any(len(group) > 1 for group in groups) and OF_SINGLE_RUNS & set(names):
        raise PlotError("--seeds band: --panel clients and labels draw runs one by one; leave one of the two out")
    painters = []
    for name in names:
        if name in OF_SINGLE_RUNS:
            painters += (clients_painters if name == "clients" else labels_painters)(runs, labels)
            continue
        panels = (panels_of(metrics, runs) if name == "metrics" else own_panels(runs) if name == "own" else
                  [default_panels(runs)[DEFAULT.index(name)]])
        painters += [partial(draw_panel, groups=groups, labels=labels, metrics=members, against=against, vertical=vertical,
                             scale=scale) for vertical, members in panels]
    return painters


def tell_of_shorter(group, tell):
    """A band has the rounds that all runs have: tells which it lacks, and for want of which run."""
    lengths = [len(run.rounds) for run in group]
    if min(lengths) < max(lengths):
        run = group[lengths.index(min(lengths))]
        tell(f"rounds {min(lengths) + 1} to {max(lengths)} of a band: {run.path} has none of them ({run.status})")


def hidden_by_log(groups, against, tell):
    """The indices of groups that a logarithmic axis cannot show, as all of its values are 0 there; tells of them."""
    hidden = set()
    for index, group in enumerate(groups):
        axes = [horizontal(run, against) for run in group]
        if all(x[-1] <= 0 for x, _ in axes):
            hidden.add(index)
            tell(f"{group[0].path}: its {axes[0][1]} is 0, which a logarithmic axis cannot show")
    if len(hidden) == len(groups):
        raise PlotError(f"--log: nothing to show on an axis of {against}, which is 0 in every round; leave it out")
    return hidden


def draw(runs, tell, output, *what, force=False):
    """Writes the figure of `runs` to `output`; `tell`, `what`: see fill."""
    figure = Figure(layout="constrained")
    fill(figure, runs, tell, *what)
    write_figure(figure, output, force)


def fill(figure, runs, tell, metrics=None, against="rounds", title=None, labels=None, scale="linear", panels=None,
         seeds="each", axes=None):
    """Draws the panels of `runs` into an empty figure, or the only one of them into `axes` of a figure. `tell`
    is told of what a band or a logarithmic axis leaves out, and of runs without the metrics."""
    for run in runs:
        if run.rounds.empty:
            raise PlotError(f"{run.path}: no round is complete yet")
    for name in panels or ():
        if name not in PANELS:
            raise PlotError(f"no panel '{name}'; there are {', '.join(PANELS)}")
    if against not in AXES:
        raise PlotError(f"no horizontal axis '{against}'; there are {', '.join(AXES)}")
    groups = groups_of_seeds(runs, tell) if seeds == "band" else [[run] for run in runs]
    for group in groups:
        tell_of_shorter(group, tell)
    if labels and len(labels) != len(groups):
        what = "runs" if len(groups) == len(runs) else "groups of runs"
        raise PlotError(f"--labels {','.join(labels)}: {len(labels)} of them for {len(groups)} {what}")
    if not labels:
        firsts = [group[0] for group in groups]
        labels = [plain(label) for label in labels_of(firsts, SEEDS if seeds == "band" else frozenset())]
        if seeds == "band":
            labels = [f"{label} ({len(group)} seeds)" if len(group) > 1 else label
                      for label, group in zip(labels, groups)]
    diverged = [has_diverged(group) for group in groups]
    labels = [f"{label} ({DIVERGED})" if one else label for label, one in zip(labels, diverged)]
    apart = (axes is None and len(groups) > 1
             and (max(map(len, labels)) > LONGEST_IN_PANEL or len(groups) > MOST_IN_PANEL))
    painters = painters_of(groups, None if apart else labels, ["metrics"] if metrics else panels or DEFAULT, metrics,
                           against, scale)
    of_runs = OF_SINGLE_RUNS & set(panels or ()) if not metrics else set()
    hidden = hidden_by_log(groups, against, tell) if scale == "log" and of_runs != set(panels or DEFAULT) else set()
    named = {index: label for index, label in enumerate(labels)
             if (index not in hidden or of_runs) and (not metrics or evaluated_by_any(groups[index], metrics))}
    for index in set(range(len(groups))) - set(named) - hidden:
        tell(f"{groups[index][0].path}: no {', '.join(metrics)}")
    if axes is not None:
        if len(painters) != 1:
            raise PlotError(f"{len(painters)} panels do not fit into the axes given: name metrics of one panel, or "
                            "give no axes")
        painters[0](axes)
        return
    columns = len(painters) if len(painters) <= COLUMNS else 2 if len(painters) == 4 else COLUMNS
    lines = -(-len(painters) // columns)
    width = max(5.4, 4.7 * columns)
    names = LEGEND_LINE * (shared_legend_lines(width, [*named.values()]) + lines) if apart else 0
    figure.set_size_inches(width, 3.7 * lines + names)
    places = figure.subplots(lines, columns, squeeze=False).flat
    for place in places[len(painters):]:
        place.remove()
    for place, painter in zip(places, painters):
        painter(place)
    if apart:
        draw_shared_legend(figure, named)
    alone = f" ({DIVERGED})" if len(groups) == 1 and diverged[0] else ""  # no legend says it
    figure.suptitle(title if title is not None else plain(title_of(runs)) + alone, fontsize=11)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="Plots metrics of fedhpc runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN.h5|DIR", type=Path,
                        help="result files, also of runs that go on, or folders of them")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--metric", type=listed, metavar="NAME,...", help="comma-separated names of /rounds data sets")
    what.add_argument("--panel", type=listed, metavar="NAME,...",
                      help=f"comma-separated: {', '.join(PANELS)} (own: the algorithm's own series) [accuracy,loss]")
    parser.add_argument("--against", choices=AXES, default="rounds",
                        help="horizontal axis: rounds, cumulative bytes (of all links, of the cloud's), bits that a "
                             "client has sent, simulated seconds or wall time [rounds]")
    parser.add_argument("--log", action="store_const", const="log", default="linear",
                        help="logarithmic horizontal axis")
    parser.add_argument("--seeds", choices=("each", "band"), default="each",
                        help="runs that differ in their seeds only: each a curve of its own, or their mean in a band "
                             "of one sample standard deviation [each]")
    parser.add_argument("--labels", type=listed, metavar="TEXT,...", help="legend entries, one per curve")
    parser.add_argument("--output", type=Path,
                        help="image file; its ending gives the format: png, pdf, svg [RUN.png beside the first run]")
    parser.add_argument("--title", help="above the figure [what all runs share]")
    add_force(parser)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse_arguments(arguments)
    output, tell = options.output, tells("plot")
    try:
        runs = load_all(options.runs, tell)
        output = output or runs[0].path.with_suffix(".png")
        draw(runs, tell, output, options.metric, options.against, options.title, options.labels, options.log,
             options.panel, options.seeds, force=options.force)
    except (ResultError, PlotError) as error:
        print(f"plot: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"plot: {output or 'the figure'} cannot be written: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for run in runs:
        print(run.summary())
    print(output)
    return 0
