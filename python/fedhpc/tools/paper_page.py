"""The machine-made parts of a paper's page in docs/reproduction, each between its lines

    <!-- overview PAPER begin -->, <!-- overview PAPER end -->: its tables beside ours, as one table and one figure
    <!-- table PAPER begin -->, <!-- table PAPER end -->: all figures

and of that folder's first page, <!-- shares begin -->, <!-- shares end -->: how far all papers are.

Rows of one table on the same data are compared. A row's figure is that of its longest runs: most rounds, then most seeds,
of its present configuration; the table of all figures has the others as well.
"""

import hashlib
import re
from dataclasses import dataclass

from . import paper_record
from .paper_table import PaperError
from .style import COLOURS, tidy, write_figure

KINDS = ("done", "fewer seeds", "fewer rounds", "no figure")
FEWEST = 3  # rows that have an order
INCHES = 0.21  # of a row of the figure


@dataclass(frozen=True)
class Point:
    """One row of a paper's table; figures in % for accuracies, None where there is none."""

    label: str
    metric: str
    paper: float
    paper_spread: float
    ours: float
    spread: float
    kind: str  # one of KINDS

    @property
    def full(self):
        return self.kind in ("done", "fewer seeds")


@dataclass(frozen=True)
class Comparison:
    """The rows of one table on the same data."""

    table: str
    data: str
    points: tuple

    @property
    def compared(self):
        return [point for point in self.points if point.paper is not None and point.ours is not None]

    @property
    def drawn(self):
        """Accuracies of the figure: those that the paper has too; where it has none of them, all of ours. One alone
        says nothing."""
        known = [point for point in self.points if point.ours is not None and "accuracy" in point.metric]
        known = [point for point in known if point.paper is not None] or known
        return known if len(known) > 1 else []

    def by_metric(self):
        """The same rows metric by metric, (metric, Comparison): an order of global and of personal models together would
        mostly say which are which."""
        metrics = dict.fromkeys(point.metric for point in self.points)
        return [(metric, Comparison(self.table, self.data, tuple(point for point in self.points if point.metric == metric)))
                for metric in metrics]

    def name_of(self, point):
        """What a row is called in the figure: with its metric where another row has the same label."""
        alike = sum(other.label == point.label for other in self.drawn)
        return point.label if alike == 1 else f"{point.label}, {point.metric.removesuffix('_accuracy')}"


def comparisons(rows, records, seeds):
    """The comparisons of a paper, in its order; `seeds`: how many a row is done with."""
    longest, of_key = {}, {(row.table, row.run_name, row.measured): row for row in rows}
    for record in sorted(records, key=lambda record: (record.rounds, len(record.seeds))):
        row = of_key.get((record.table, record.row, record.metric))
        if row is not None and not record.is_of(row):
            continue  # the row's configuration has changed since
        longest[record.table, record.row, record.metric] = record
    groups = {}
    for row in rows:
        record = longest.get((row.table, row.run_name, row.measured))
        label = " ".join([row.method, row.variant]).strip()
        groups.setdefault((row.table, f"{row.dataset} {row.setting}"), []).append(Point(
            label, row.metric, row.paper, row.spread, record and record.ours, record and record.spread,
            _kind(record, seeds)))
    return [Comparison(*key, tuple(points)) for key, points in groups.items()]


def _kind(record, seeds):
    if record is None:
        return "no figure"
    if record.rounds < (record.protocol_rounds or 0):
        return "fewer rounds"
    return "done" if len(record.seeds) >= seeds else "fewer seeds"


def rank_correlation(first, second):
    """Spearman's rank correlation of two lists, equal values with their mean rank; None where one has no order."""
    import numpy as np

    def ranks(values):
        values = np.asarray(values)
        return np.array([(values < value).sum() + ((values == value).sum() - 1) / 2 for value in values])

    a, b = ranks(first), ranks(second)
    if len(a) < FEWEST or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def counts_of(groups):
    """How many rows are of each of KINDS."""
    kinds = [point.kind for group in groups for point in group.points]
    return [kinds.count(kind) for kind in KINDS]


def opening(paper, groups):
    """Table and figure of the comparisons as Markdown."""
    lines = ["| table | data | metric | rows | " + " | ".join(KINDS)
             + " | compared | rank correlation | mean difference | largest |", "| --- | --- | --- |" + " ---: |" * (len(KINDS) + 5)]
    for metric, group in (part for group in groups for part in group.by_metric()):
        counts = counts_of([group])
        if counts[KINDS.index("no figure")] == len(group.points):
            continue
        apart = [point.ours - point.paper for point in group.compared]
        order = rank_correlation([point.paper for point in group.compared], [point.ours for point in group.compared])
        lines.append("| " + " | ".join(map(str, [
            group.table, group.data, metric.removesuffix("_accuracy"), len(group.points), *counts, len(apart), "-" if order is None else f"{order:+.2f}",
            f"{sum(apart) / len(apart):+.2f}" if apart else "-",
            f"{max(apart, key=abs):+.2f}" if apart else "-"])) + " |")
    text = "\n".join(lines) + "\n"
    if any(group.drawn for group in groups):
        whose = "the paper and ours" if any(point.paper is not None for group in groups for point in group.drawn) else "our runs"
        text += f"\n![Accuracies of {whose}](../images/reproduction_{paper}.png)\n"
    return text


def first_page(text, papers, hours):
    """The first page `text` with the table of all papers: how far their rows are, and what that took.

    `papers`: name -> comparisons; `hours`: name -> core hours of the runs.
    """
    lines = ["| paper | rows | " + " | ".join(KINDS) + " | share done | core hours |",
             "| --- |" + " ---: |" * (len(KINDS) + 3)]
    for paper, groups in papers.items():
        counts = counts_of(groups)
        lines.append(f"| [{paper}]({paper}.md) | {sum(counts)} | " + " | ".join(map(str, counts))
                     + f" | {100 * counts[0] / max(sum(counts), 1):.0f} % | {hours[paper]:.1f} |")
    return between(text, "shares", "\n".join(lines) + "\n")


def between(text, name, body):
    """`text` with `body` between the lines <!-- NAME begin --> and <!-- NAME end -->; all else as it was."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise PaperError(f"docs/reproduction: the lines {begin} and {end} must stand on their page once each")
    before, after = text[: text.index(begin) + len(begin)], text[text.index(end):]
    return f"{before}\n\n{body}\n{after}"


def page(text, paper, records, groups):
    """The paper's page `text` with its two parts as the records have them."""
    *known, without = counts_of(groups)
    head = (f"{sum(known)} of {sum(known) + without} rows have a figure; configurations and overrides stand in "
            f"`results/papers/{paper}.csv`.")
    text = between(text, f"overview {paper}", opening(paper, groups))
    return between(text, f"table {paper}", f"{head}\n\n{paper_record.table(records)}")


def digest(groups):
    """Names what a figure shows: a figure with the same name need not be drawn again."""
    shown = [(group.table, group.data, group.drawn) for group in groups if group.drawn]
    return hashlib.sha256(repr(shown).encode()).hexdigest()


def shown_by(path):
    """The digest that a figure carries; "" where there is no figure."""
    from PIL import Image

    if not path.exists():
        return ""
    with Image.open(path) as image:
        return image.info.get("Description", "")


def draw(groups, path):
    """Draws the paper's accuracies beside ours, a panel a comparison, into the PNG file `path`."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = [group for group in groups if group.drawn]
    columns = min(2, len(groups))
    tiers = [groups[at:at + columns] for at in range(0, len(groups), columns)]
    heights = [max(len(group.drawn) for group in tier) + 3 for tier in tiers]
    figure, panels = plt.subplots(len(tiers), columns, squeeze=False, figsize=(5.2 * columns, INCHES * sum(heights) + 0.5),
                                  layout="constrained", height_ratios=heights)
    for tier, axes in zip(tiers, panels):
        for group, one in zip(tier, axes):
            _panel(one, group)
        for one in axes[len(tier):]:
            one.set_visible(False)
    points = [point for group in groups for point in group.drawn]
    marks = [("s", "none", "black", "paper", any(point.paper is not None for point in points)),
             ("o", COLOURS[0], COLOURS[0], "ours, all rounds", any(point.full for point in points)),
             ("o", "none", COLOURS[0], "ours, fewer rounds", not all(point.full for point in points))]
    handles = [plt.Line2D([], [], linestyle="", marker=mark, markerfacecolor=face, color=edge, label=label)
               for mark, face, edge, label, there in marks if there]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8)
    write_figure(figure, path, force=True, metadata={"Description": digest(groups)})
    plt.close(figure)


def _panel(axes, group):
    tidy(axes)
    for height, point in enumerate(reversed(group.drawn)):
        if point.paper is not None:
            axes.errorbar(point.paper, height, xerr=point.paper_spread, marker="s", markersize=6, color="black",
                          markerfacecolor="none", capsize=2)
            axes.plot([point.paper, point.ours], [height, height], color="#aaaaaa", linewidth=0.8, zorder=0)
        axes.errorbar(point.ours, height, xerr=point.spread, marker="o", markersize=4, color=COLOURS[0], capsize=2,
                      markerfacecolor=COLOURS[0] if point.full else "none")
    axes.set_yticks(range(len(group.drawn)), [group.name_of(point) for point in reversed(group.drawn)], fontsize=7)
    axes.set_ylim(-0.7, len(group.drawn) - 0.3)
    axes.tick_params(axis="x", labelsize=7)
    kind = "Table " if re.fullmatch(r"[IVX]+|\d+", group.table) else ""  # others are figures, or our own
    axes.set_title(f"{kind}{group.table}, {group.data}", fontsize=8)
    axes.set_xlabel("accuracy [%]", fontsize=7)
