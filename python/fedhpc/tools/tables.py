"""Tables as text for people, CSV for programs and LaTeX for papers; cells are texts."""

import csv
import io
import re

LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
         "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}


class Best(str):
    """A cell that is the best of its column; in bold where the form knows it."""


def as_text(header, lines):
    """Aligned columns: the first to the left, all others to the right."""
    cells = [header, *lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    text = ["  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))])
            for line in cells]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in text) + "\n"


def as_csv(header, lines):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *lines])
    return out.getvalue()


def as_latex(header, lines):
    """A tabular that needs no package."""
    rows = [" & ".join(latex_cell(cell) for cell in line) + r" \\" for line in (header, *lines)]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\hline", rows[0], r"\hline", *rows[1:],
                      r"\hline", r"\end{tabular}"]) + "\n"


def latex_cell(cell):
    return rf"\textbf{{{escaped(cell)}}}" if isinstance(cell, Best) else escaped(cell)


def escaped(text):
    """The text with LaTeX's special characters written out."""
    return re.sub(r"[\\&%$#_{}~^±]", lambda match: LATEX[match.group()], text)


FORMATS = {"text": as_text, "csv": as_csv, "latex": as_latex}
