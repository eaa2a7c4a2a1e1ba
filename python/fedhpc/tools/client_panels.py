"""Panels of what is known of each client: accuracies over rounds and at the end, and labels."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from .client_data import load_accuracy, load_clients
from .style import COLOURS, MARKERS_UP_TO, PlotError, legend, marker_of, plain, small_title, tidy

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MEDIAN = 3  # of them
BANDS = ((0, 6, 0.12, "all clients"), (1, 5, 0.25, "10 % to 90 %"), (2, 4, 0.4, "25 % to 75 %"))  # levels, opacity
BAND_OF_SEVERAL = BANDS[1]
MOST_COLUMNS = 400  # of a map of labels, each at least a point wide
NUMBERED_UP_TO = 12  # clients and labels whose numbers all stand at the axis


def draw_bands(axes, spreads, labels):
    """Quantiles over clients of their accuracy at each evaluation: all bands of one run, one band of each of several.

    labels: one per run, None where the figure names them elsewhere.
    """
    single = len(spreads) == 1
    for number, spread in enumerate(spreads):
        colour = COLOURS[number % len(COLOURS)]
        for low, high, opacity, name in BANDS if single else (BAND_OF_SEVERAL,):
            axes.fill_between(spread.rounds, 100 * spread.values[low], 100 * spread.values[high], color=colour,
                              alpha=opacity if single else 0.15, linewidth=0, label=name if single else None)
        axes.plot(spread.rounds, 100 * spread.values[MEDIAN], color=colour, linewidth=1.6, markersize=3.5,
                  marker=marker_of(len(spread.rounds), number), label="median" if single else labels and labels[number])
    axes.set(xlabel="global round", ylabel="clients' test accuracy [%]")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    tidy(axes)
    if not single:
        small_title(axes, f"median, {BAND_OF_SEVERAL[3]} of clients")
    if single or labels:
        legend(axes)


def draw_sorted(axes, spreads, labels):
    """The clients' accuracies at the last evaluation, from the worst to the best client; labels as in draw_bands."""
    for number, spread in enumerate(spreads):
        share = 100 * (np.arange(len(spread.last)) + 0.5) / len(spread.last)
        axes.plot(share, 100 * spread.last, color=COLOURS[number % len(COLOURS)], linewidth=1.6, markersize=3.5,
                  marker=marker_of(len(share), number), markevery=max(1, len(share) // MARKERS_UP_TO),
                  label=labels and labels[number])
    ends = {int(spread.rounds[-1]) for spread in spreads}
    when = f"at round {ends.pop()}" if len(ends) == 1 else "at the end"
    axes.set(xlabel="clients, from the worst to the best [%]", ylabel=f"test accuracy {when} [%]", xlim=(0, 100))
    tidy(axes)
    if len(spreads) > 1 and labels:
        legend(axes)


def draw_histogram(axes, spread):
    """How many clients have which accuracy at the last evaluation; a bin holds its lower end, the last both ends."""
    values = spread.last + 1e-7  # 0.95 in single precision is a little less
    width = 0.05 if values.min() < 0.8 else 0.01
    bins = round(1.0 / width)
    edges = width * np.arange(min(np.floor(values.min() / width), bins - 1), bins + 1)
    counts, _ = np.histogram(np.minimum(values, 1.0), edges)
    axes.bar(100 * edges[:-1], counts, width=100 * width, align="edge", color=COLOURS[0], edgecolor="white")
    axes.set(xlabel=f"test accuracy at round {spread.rounds[-1]} [%]", ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)


def clients_painters(runs, labels):
    """Functions that draw panels: accuracy over rounds, from worst to best client, and of one run a histogram."""
    spreads = [load_accuracy(run.path, LEVELS) for run in runs]
    painters = [lambda axes: draw_bands(axes, spreads, labels), lambda axes: draw_sorted(axes, spreads, labels)]
    return painters + ([lambda axes: draw_histogram(axes, spreads[0])] if len(runs) == 1 else [])


def labels_painters(runs, labels):
    """One function for each different table of labels: runs of the same data and partition share a panel."""
    tables = []
    for number, run in enumerate(runs):
        label = labels[number] if labels else plain(run.path.stem)
        counts = load_clients(run.path).label_histogram
        if counts.ndim != 2 or not counts.size:
            raise PlotError(f"{run.path}: /clients/label_histogram holds no counts of clients by label")
        if not any(np.array_equal(counts, known) for known, _ in tables):
            tables.append((counts, label))
    return [lambda axes, counts=counts, label=label: draw_label_map(axes, counts, label if len(tables) > 1 else "")
            for counts, label in tables]


def by_neighbours(counts):
    """(means of the counts [columns, labels] over neighbouring clients, how many these are), as a panel has no room for
    more columns."""
    several = -(-len(counts) // MOST_COLUMNS)
    starts = np.arange(0, len(counts), several)
    sizes = np.diff(starts, append=len(counts))
    return np.add.reduceat(counts, starts) / sizes[:, None], several


def draw_label_map(axes, counts, label):
    """Samples by client and label, for training and tests; white: none."""
    means, several = by_neighbours(counts)
    image = axes.imshow(np.ma.masked_equal(means.T, 0), aspect="auto", origin="lower", cmap="viridis_r", vmin=0,
                        interpolation="nearest", extent=(-0.5, several * len(means) - 0.5, -0.5, counts.shape[1] - 0.5))
    axes.figure.colorbar(image, ax=axes, pad=0.02,
                         label="samples" if several == 1 else f"samples, mean over {several} clients")
    axes.set(xlabel="client", ylabel="label", xlim=(-0.5, len(counts) - 0.5))
    small_title(axes, label)
    for axis, number in ((axes.xaxis, counts.shape[0]), (axes.yaxis, counts.shape[1])):
        if number <= NUMBERED_UP_TO:
            axis.set_ticks(range(number))
        else:
            axis.set_major_locator(MaxNLocator("auto", integer=True))
