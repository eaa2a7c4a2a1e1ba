"""What all figures share: colours, dashes, the look of axes, and the way a figure is written."""

# Okabe and Ito's palette, distinguishable with the common colour-vision deficiencies.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
STYLES = ("-", "--", ":", "-.")
MARKERS_UP_TO = 25  # points of a curve
DOTS_PER_INCH = 150


class PlotError(Exception):
    """Nothing can be drawn as asked; the message is one sentence."""


def tidy(axes):
    """Light grid lines, no frame above and on the right."""
    axes.grid(True, color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def small_title(axes, text):
    """A line above a panel on how it is to be read."""
    axes.set_title(text, fontsize=8, color="#555555")


def marker_of(points):
    """The marker of a curve of so many points: none where they would run together."""
    return "o" if points <= MARKERS_UP_TO else None
