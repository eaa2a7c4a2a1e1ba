"""What all figures share: colours, dashes, the look of axes, and the way a figure is written."""

import glob
import io
import itertools

from ..errors import Error

# Okabe and Ito's palette, distinguishable with the common colour-vision deficiencies.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
STYLES = ("-", "--", ":", "-.")
MARKERS_UP_TO = 25  # points of a curve
MARKERS = ("o", "s", "^", "D")  # of the first curves of a colour, the second ones and so on
DOTS_PER_INCH = 150


class PlotError(Error):
    """Nothing can be drawn as asked; the message is one sentence."""


def tidy(axes):
    """Light grid lines, no frame above and on the right."""
    axes.grid(True, color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend(axes, *entries, **how):
    """A panel's legend, through whose ground curves shine."""
    axes.legend(*entries, facecolor="white", edgecolor="none", framealpha=0.75, **{"fontsize": 8, **how})


def number_log_axis(axis):
    """Numbers a logarithmic axis in plain figures, once a decade; over less than two decades at 1, 2 and 5 of each;
    evenly where that is one number or none."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    locator = LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,))
    if sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 2:
        locator = MaxNLocator(4)
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def small_title(axes, text, pad=None):
    """A line above a panel on how it is to be read, so many points above it."""
    axes.set_title(text, fontsize=8, color="#555555", pad=pad)


def plain(text):
    """A text of ours, in which a dollar sign begins no mathematics of matplotlib's."""
    return text.replace("$", r"\$")


def add_force(parser):
    """The option of all that writes a figure."""
    parser.add_argument("--force", action="store_true",
                        help="replace an earlier figure; without, it gets the name FIGURE.old1.png or the next number")


def number_of_earlier(path):
    """The least n for which no file is called as `path` is, with .oldn behind its stem, whatever its ending."""
    return next(n for n in itertools.count(1)
                if not any(any(path.parent.glob(f"{glob.escape(path.stem)}.old{n}{end}")) for end in ("", ".*")))


def write_figure(figure, output, force=False, dots_per_inch=DOTS_PER_INCH, metadata=None):
    """Writes a figure to the path `output`, whose ending says how, and sets an earlier one aside unless `force`.

    `metadata`: names and texts that the file carries beside the picture.

    Letters in PDF and PS are TrueType (Type 42), which publishers take; Type 3 many refuse.
    """
    import matplotlib

    drawn = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        figure.savefig(drawn, format=output.suffix[1:] or "png", dpi=dots_per_inch, metadata=metadata)
    if output.is_file() and not force:
        aside = output.with_name(f"{output.stem}.old{number_of_earlier(output)}{output.suffix}")
        output.rename(aside)
        print(f"the earlier figure is now {aside}")
    try:
        output.write_bytes(drawn.getvalue())
    except OSError:
        output.unlink(missing_ok=True)  # a part of it is no picture
        raise


def marker_of(points, index=0):
    """The marker of curve `index` with so many points: none where they would run together and the colour says enough."""
    again = index // len(COLOURS)
    return MARKERS[again % len(MARKERS)] if again or points <= MARKERS_UP_TO else None
