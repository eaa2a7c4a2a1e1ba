"""Plots metrics of one or several fedhpc runs against rounds, traffic or time.

    plot.py RUN.h5 [RUN2.h5 ...] [--metric global_accuracy,...] [--against rounds|bytes|cloud|bits|seconds|wall] [--log]
            [--labels TEXT,TEXT,...] [--output FILE.png] [--title TEXT]

--against, each summed up to the round: bytes: all payloads of the simulated network, up and down; cloud:
those that the cloud sends and receives, whatever edges and their clients exchange beside; bits: what a client
has sent, the mean over all clients, with what it has told of itself for a similarity graph; seconds:
simulated_seconds (a run with network.* keys); wall: this machine's time, evaluation included. --log: on a
logarithmic axis.

Without --metric: accuracy (global, and personal where it differs) beside train and test loss. Only
evaluated rounds are drawn. Several runs share the figure, with a legend of --labels, one per run, or of the
settings in which they differ, each run's own. Prints a line per run and the path written. Exit code 2: a file
is missing or is no result file, or nothing can be drawn as asked.

Methods with personal models beside such without: --metric personal_accuracy_weighted,train_loss (without,
the first is the global model's accuracy on all clients' test samples).
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from .results import ResultError, load

# Okabe and Ito's palette, distinguishable with the common colour-vision deficiencies.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
STYLES = ("-", "--", ":", "-.")
MARKERS_UP_TO = 25  # points of a curve
NOT_IN_LEGEND = {"run.output", "run.progress", "run.save", "run.live", "run.checkpoint_every", "data.dir",
                 "run.collective_timeout", "train.block"}
LABEL_KEYS = 4  # most settings named in one legend entry
MEANS_NOTHING = {"algorithm.k": ("algorithm.codec", "kmeans")}  # key -> unless another has this value
LINKS = {"bytes": (".*", "traffic of all links, up and down [B]"),
         "cloud": ("client_cloud|edge_cloud", "traffic of the cloud, up and down [B]")}
TIMES = {"seconds": ("simulated_seconds", "simulated time [s]"), "wall": ("wall_seconds", "wall time [s]")}
REMEDIES = {"seconds": ": the network model was off; run with --network.client_cloud_mbps=... or another network.* key "
                       "(fedhpc help keys), or plot --against bytes or wall",
            "wall": ": plot --against rounds or bytes"}
NAMES = {"global_loss": "test loss", "train_loss": "training loss", "personal_loss": "personal test loss"}


class PlotError(Exception):
    """Nothing can be drawn as asked; the message is one sentence."""


def horizontal(run, against):
    """(values [T], axis label) of the horizontal axis; traffic and times are summed over rounds."""
    rounds = run.rounds
    if against == "rounds":
        return rounds.index.to_numpy(dtype=float), "global round"
    if against in LINKS:
        links_of, label = LINKS[against]
        return np.cumsum(carried(run, f"^bytes_(up|down)_({links_of})$")), label
    if against == "bits":
        return 8.0 * np.cumsum(sent_by_client(run)), "sent up by a client [bit]"
    column, label = TIMES[against]
    seconds = rounds[column].to_numpy() if column in rounds else np.full(len(rounds), np.nan)
    if np.isnan(seconds).any():
        missing = "NaN" if np.isnan(seconds).all() else f"NaN in {np.isnan(seconds).sum()} of {len(rounds)} rounds"
        raise PlotError(f"{run.path}: {column} is {missing}{REMEDIES[against]}")
    return np.cumsum(seconds), label


def carried(run, pattern):
    """Bytes of each round [T] over the links of this pattern."""
    booked = run.rounds.filter(regex=pattern)
    links = booked.columns[booked.notna().any()]  # all NaN: a link that this run does not have
    if links.empty:
        raise PlotError(f"{run.path}: no link has carried anything, so that there are no bytes to plot against")
    return booked[links].sum(axis=1).to_numpy()


def sent_by_client(run):
    """Bytes of each round [T] that a client has sent, the mean over all clients."""
    if "data.clients" not in run.config:
        raise PlotError(f"{run.path}: the configuration lacks data.clients, the number of clients to share the bytes")
    sent = carried(run, "^bytes_up_client_(edge|cloud)$") / float(run.config["data.clients"])
    if run.config.get("algorithm.neighbours") == "0":  # what is told for a graph without edges need not be
        return sent
    return sent + run.rounds.get("graph_bytes", 0.0 * sent)


def unit_prefix(largest, label):
    """(divisor, label) so that the numbers of an axis in B, bit or s stay short."""
    steps = ([(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")] if "[B]" in label else
             [(1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")] if "[bit]" in label else
             [(3600.0, "h"), (60.0, "min")] if "[s]" in label else [])
    for divisor, unit in steps:
        if largest >= 2 * divisor:
            return divisor, label[: label.rindex("[")] + f"[{unit}]"
    return 1.0, label


def default_panels(runs):
    """The two panels of the standard figure: a list of (vertical label, metrics)."""
    accuracy = ["global_accuracy"]
    for run in runs:
        both = run.rounds.reindex(columns=["global_accuracy", "personal_accuracy"]).dropna()
        personal = run.evaluated("personal_accuracy")
        if len(personal) and (both.empty or (both.diff(axis=1).iloc[:, 1].abs() > 0.01).any()):
            accuracy = ["global_accuracy", "personal_accuracy"]
    accuracy = evaluated_by_any(runs, [*accuracy, "edge_accuracy"])
    loss = evaluated_by_any(runs, ["global_loss", "train_loss"])
    if "global_loss" not in loss:
        loss = evaluated_by_any(runs, ["personal_loss", "train_loss"])
    return [("test accuracy [%]", accuracy), (axis_name(loss, "cross-entropy loss"), loss)]


def evaluated_by_any(runs, metrics):
    """The metrics that at least one run has evaluated."""
    return [metric for metric in metrics if any(len(run.evaluated(metric)) for run in runs)]


def axis_name(metrics, shared):
    """`shared` for a panel of several metrics, the metric's own name for a panel of one."""
    return NAMES.get(metrics[0], metrics[0].replace("_", " ")) if len(metrics) == 1 else shared


def panels_of(metrics, runs):
    """Panels for the metrics asked for: accuracies share one, losses share one, others stand alone."""
    panels = {}
    for metric in metrics:
        if not evaluated_by_any(runs, [metric]):
            raise PlotError(f"{runs[0].path}: metric {metric} was never evaluated; "
                            f"this file has {', '.join(m for m in runs[0].rounds if len(runs[0].evaluated(m)))}")
        unit = next((run.units[metric] for run in runs if metric in run.units), "")
        unit = unit or ("B" if metric.startswith("bytes_") else "s" if "seconds" in metric else "")
        label = ("test accuracy [%]" if "accuracy" in metric else "loss" if "loss" in metric else
                 metric.replace("_", " ") + (f" [{unit}]" if unit not in ("", "1") else ""))
        panels.setdefault(label, []).append(metric)
    return [(axis_name(names, label) if label == "loss" else label, names) for label, names in panels.items()]


def labels_of(runs):
    """One legend entry per run: the settings in which the configurations differ, else the file's name."""
    stems = [run.path.stem for run in runs]
    own = [{key: value for key, value in run.config.items() if key not in NOT_IN_LEGEND and means_something(run, key)}
           for run in runs]
    keys = dict.fromkeys(key for config in own for key in config)
    differing = [key for key in keys if len({config[key] for config in own if key in config}) > 1]
    differing.sort(key=lambda key: (key != "algorithm.name", key != "data.name"))
    if not differing:
        return stems
    labels = []
    for config in own:
        values = [(key, config[key]) for key in differing if key in config][:LABEL_KEYS]
        labels.append(", ".join(value if key.endswith(".name") else f"{key.split('.')[1]} = {value}"
                                for key, value in values))
    if len(set(labels)) < len(runs):
        labels = [f"{label} ({stem})" for label, stem in zip(labels, stems)]
    return labels


def means_something(run, key):
    other, value = MEANS_NOTHING.get(key, (key, run.config[key]))
    return run.config.get(other) == value


def title_of(runs):
    """What all runs share: algorithm, data set, number of clients."""
    words = []
    for key, form in (("algorithm.name", "{}"), ("data.name", "on {}"), ("data.clients", "with {} clients")):
        values = {run.config.get(key) for run in runs}
        if len(values) == 1 and None not in values:
            words.append(form.format(*values))
    return " ".join(words).removeprefix("on ").removeprefix("with ")


def draw_panel(axes, runs, labels, metrics, against, vertical, scale):
    """Draws every metric of every run that has it: colour = run (a single run: metric), dash = metric."""
    curves, largest = [], 0.0
    for index, run in enumerate(runs):
        x, label = horizontal(run, against)
        for style, metric in enumerate(metrics):
            y = run.rounds[metric].to_numpy() if metric in run.rounds else np.empty(0)
            keep = evaluated_rounds(run, metric)
            if keep.any():
                curves.append((index, style, metric, x[keep], y[keep] * (100.0 if "[%]" in vertical else 1.0)))
                largest = max(largest, x[keep].max())
    divisor, label = unit_prefix(largest, label)
    for index, style, metric, x, y in curves:
        colour = COLOURS[(style if len(runs) == 1 else index) % len(COLOURS)]
        axes.plot(x / divisor, y, STYLES[style % len(STYLES)], color=colour, linewidth=1.6,
                  marker="o" if len(x) <= MARKERS_UP_TO else None, markersize=3.5)
    axes.set(xlabel=label, ylabel=vertical, xscale=scale)
    axes.grid(True, color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    if curves:
        drawn = sorted({index for index, *_ in curves})
        entries = [(labels[index], COLOURS[index % len(COLOURS)]) for index in drawn]
        draw_legend(axes, entries if len(runs) > 1 else [], metrics)
    else:
        axes.text(0.5, 0.5, "not evaluated yet", transform=axes.transAxes, ha="center", color="#777777")
        axes.set(xscale="linear", xticks=[], yticks=[])


def draw_legend(axes, runs, metrics):
    """Colours for the runs of the panel [(label, colour)], none of a figure of one run, then dashes for the
    metrics; a single curve needs no legend."""
    if not runs and len(metrics) == 1:
        return
    entries = [(colour, "-", label) for label, colour in runs]
    if len(metrics) > 1:
        entries += [("#555555" if runs else COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)],
                     NAMES.get(metric, metric.replace("_", " "))) for i, metric in enumerate(metrics)]
    handles = [Line2D([], [], color=colour, linestyle=style, linewidth=1.6) for colour, style, _ in entries]
    axes.legend(handles, [text for _, _, text in entries], frameon=False, fontsize=8, handlelength=2.6)


def evaluated_rounds(run, metric):
    """Mask [T]: the metric is finite and, for metrics of every round, the round was an evaluated one."""
    if metric not in run.rounds:
        return np.zeros(len(run.rounds), dtype=bool)
    here = run.rounds[metric].notna().to_numpy()
    tests = [name for name in run.rounds if name.endswith("_accuracy") or name in ("global_loss", "personal_loss")]
    evaluated = run.rounds[tests].notna().any(axis=1).to_numpy()
    return here & evaluated if evaluated.any() else here


def draw(runs, output, metrics=None, against="rounds", title=None, labels=None, scale="linear"):
    """Writes the figure of `runs` to `output`."""
    if labels and len(labels) != len(runs):
        raise PlotError(f"--labels {','.join(labels)}: {len(labels)} of them for {len(runs)} runs")
    panels = panels_of(metrics, runs) if metrics else default_panels(runs)
    figure, axes = plt.subplots(1, len(panels), figsize=(max(5.4, 4.7 * len(panels)), 3.7), squeeze=False,
                                layout="constrained")
    labels = labels or labels_of(runs)
    for panel, (vertical, names) in zip(axes[0], panels):
        draw_panel(panel, runs, labels, names, against, vertical, scale)
    figure.suptitle(title if title is not None else title_of(runs), fontsize=11)
    figure.savefig(output, dpi=150)
    plt.close(figure)


def listed(text):
    """The items of a comma-separated list; none of an empty text."""
    return [item.strip() for item in text.split(",")] if text else []


def main(arguments):
    parser = argparse.ArgumentParser(description="Plots metrics of fedhpc runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN.h5", type=Path)
    parser.add_argument("--metric", type=listed, metavar="NAME,...", help="comma-separated names of /rounds data sets")
    parser.add_argument("--against", choices=("rounds", "bytes", "cloud", "bits", "seconds", "wall"), default="rounds",
                        help="horizontal axis: rounds, cumulative bytes (of all links, of the cloud's), bits that a client "
                             "has sent, simulated seconds or wall time [rounds]")
    parser.add_argument("--log", action="store_const", const="log", default="linear", help="logarithmic horizontal axis")
    parser.add_argument("--labels", type=listed, metavar="TEXT,...", help="legend entries, one per run")
    parser.add_argument("--output", type=Path, help="image file [RUN.png beside the first run]")
    parser.add_argument("--title")
    options = parser.parse_args(arguments)
    output = options.output or options.runs[0].with_suffix(".png")
    try:
        runs = [load(path) for path in options.runs]
        for run in runs:
            if run.rounds.empty:
                raise PlotError(f"{run.path}: no round is complete yet")
        draw(runs, output, options.metric, options.against, options.title, options.labels, options.log)
    except (ResultError, PlotError) as error:
        print(f"plot: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"plot: {output} cannot be written: {error}", file=sys.stderr)
        return 2
    for run in runs:
        print(run.summary())
    print(output)
    return 0
