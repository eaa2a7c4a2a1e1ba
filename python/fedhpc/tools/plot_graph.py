"""Draws the similarity graph of a fedhpc run: how well do its edges keep groups of clients together?

    plot_graph.py RUN.h5 [--groups labels|modulo:K] [--output FILE.png] [--force] [--title TEXT]

Nodes are clients, coloured by group. --groups labels (default): the label of most of a client's
samples; modulo:K: client number modulo K, the planted clusters of data.synthetic_clusters=K. Edges within a
group are grey, others orange, as wide as they weigh. The title has the share of edges within groups beside the
share of all pairs of clients within groups, what edges at random would have; so has the line that is printed,
before the path written. Exit code 2: the file is missing, is no result file or has no graph, or the
arguments cannot be used.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .results import ResultError, load_graph
from .style import COLOURS, PlotError, add_force, write_figure

WITHIN, BETWEEN = "#9a9a9a", "#D55E00"
GROUP_COLOURS = tuple(colour for colour in COLOURS if colour != BETWEEN)
SHAPES = "osD^"  # of groups beyond the colours
LAYOUT_STEPS = 200
NUMBERED_UP_TO = 60  # clients whose numbers are drawn
NAMED_UP_TO = 12  # groups in the legend


def groups_of(graph, rule):
    """(group of each client [N], name of a group in front of its number)."""
    if rule == "labels":
        return graph.labels.argmax(axis=1), "label"
    name, _, number = rule.partition(":")
    if name != "modulo" or not number.isdigit() or int(number) == 0:
        raise PlotError(f"--groups {rule}: must be labels or modulo:K with K at least 1")
    return np.arange(len(graph.labels)) % int(number), "cluster"


def shares_within(edges, groups):
    """(share of edges within groups, share of all pairs of nodes within groups)."""
    sizes = np.unique(groups, return_counts=True)[1].astype(float)
    pairs = len(groups) * (len(groups) - 1.0)
    return float((groups[edges[:, 0]] == groups[edges[:, 1]]).mean()), float((sizes * (sizes - 1.0)).sum() / pairs)


def spectral_layout(adjacency):
    """The normalised Laplacian's eigenvectors of the second and third smallest eigenvalue, [N, 2]."""
    roots = np.sqrt(np.maximum(adjacency.sum(axis=1), 1e-12))
    laplacian = np.eye(len(adjacency)) - adjacency / roots[:, None] / roots[None, :]
    vectors = np.linalg.eigh(laplacian)[1] / roots[:, None]
    positions = np.zeros((len(adjacency), 2))
    columns = vectors[:, 1:3]
    positions[:, : columns.shape[1]] = columns
    return positions / max(np.abs(positions).max(), 1e-12)


def force_layout(nodes, edges, steps=LAYOUT_STEPS):
    """Positions [N, 2] after Fruchterman and Reingold, "Graph drawing by force-directed placement" (1991).

    At distance r edges attract with r^2 / k, all pairs repel with k^2 / r, k^2 the area of a node, and steps
    shrink; a weak pull to the centre holds components together. From the spectral layout, where nodes with the
    same neighbours coincide until they are moved a little; the same for the same graph.
    """
    adjacency = np.zeros((nodes, nodes))
    adjacency[edges[:, 0], edges[:, 1]] = adjacency[edges[:, 1], edges[:, 0]] = 1.0
    positions = spectral_layout(adjacency) + 0.1 * np.random.default_rng(0).standard_normal((nodes, 2))
    k = 2.0 / np.sqrt(nodes)
    for longest in np.linspace(0.2, 0.002, steps):
        apart = positions[:, None, :] - positions[None, :, :]  # [N, N, 2]
        distance = np.maximum(np.sqrt((apart**2).sum(axis=2)), 1e-3 * k)
        force = (apart * (k**2 / distance**2 - adjacency * distance / k)[:, :, None]).sum(axis=1) - 0.5 * positions
        length = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-12)
        positions = positions + force * np.minimum(1.0, longest / length)
    return positions - positions.mean(axis=0)


def draw_graph(graph, groups, word, title, output, force=False):
    """Writes the picture of the graph to `output`; groups without clients get neither colour nor name."""
    positions = force_layout(len(groups), graph.edges)
    same = groups[graph.edges[:, 0]] == groups[graph.edges[:, 1]]
    widths = 0.4 + 0.9 * graph.weights / max(graph.weights.max(), 1e-300)
    present, index = np.unique(groups, return_inverse=True)
    figure = Figure(figsize=(5.4, 5.2), layout="constrained")
    axes = figure.subplots()
    for kind, colour in ((same, WITHIN), (~same, BETWEEN)):
        axes.add_collection(LineCollection(positions[graph.edges[kind]], colors=colour, linewidths=widths[kind],
                                           zorder=1))
    colours = [GROUP_COLOURS[number % len(GROUP_COLOURS)] for number in range(len(present))]
    shapes = [SHAPES[number // len(GROUP_COLOURS) % len(SHAPES)] for number in range(len(present))]
    small = len(groups) > NUMBERED_UP_TO
    for number, (colour, shape) in enumerate(zip(colours, shapes)):
        axes.scatter(*positions[index == number].T, s=30 if small else 130, color=colour, marker=shape, zorder=2,
                     edgecolors="white", linewidths=0.8)
    for client, place in enumerate(positions if not small else ()):
        axes.annotate(str(client), place, ha="center", va="center", fontsize=6.5, color="white", zorder=3)
    handles = [Line2D([], [], color=WITHIN, label="edge within"), Line2D([], [], color=BETWEEN, label="edge between")]
    if len(present) <= NAMED_UP_TO:
        handles += [Line2D([], [], color=colour, marker=shape, linestyle="", label=f"{word} {number}")
                    for number, colour, shape in zip(present, colours, shapes)]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)), frameon=False, fontsize=8)
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.set_axis_off()
    axes.set_title(title, fontsize=10)
    write_figure(figure, output, force, dots_per_inch=110)


def main(arguments):
    parser = argparse.ArgumentParser(description="Draws the similarity graph of a fedhpc run.")
    parser.add_argument("run", metavar="RUN.h5", type=Path)
    parser.add_argument("--groups", default="labels", metavar="labels|modulo:K",
                        help="what colours the clients: their majority label, or their number modulo K [labels]")
    parser.add_argument("--output", type=Path, help="image file [RUN.graph.png beside the run]")
    parser.add_argument("--title", help="in front of the shares")
    add_force(parser)
    options = parser.parse_args(arguments)
    output = options.output or options.run.parent / f"{options.run.stem}.graph.png"
    try:
        graph = load_graph(options.run)
        groups, word = groups_of(graph, options.groups)
        within, random = shares_within(graph.edges, groups)
        counts = f"{len(groups)} clients, {len(graph.edges)} edges"
        shares = f"{100 * within:.1f} % of edges within {word}s (at random {100 * random:.1f} %)"
        title = (f"{options.title}\n" if options.title else "") + f"{counts}\n{shares}"
        draw_graph(graph, groups, word, title, output, options.force)
    except (ResultError, PlotError) as error:
        print(f"plot_graph: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"plot_graph: {output} cannot be written: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"{options.run.name}: {counts}, {shares}")
    print(output)
    return 0
