"""A small chart of one curve in plain characters."""

import math


def columns_of(points, width):
    """The points (x, y) as at most `width` columns: {column: mean y}, evenly along x."""
    low, high = points[0][0], points[-1][0]
    columns = {}
    for x, y in points:
        place = 0 if high == low else min(width - 1, int((x - low) / (high - low) * width))
        columns.setdefault(place, []).append(y)
    return {place: math.fsum(values) / len(values) for place, values in columns.items()}


def chart(points, width=60, height=8):
    """Lines of text: `*` for the points [(x, y)] of ascending x, numbers at both axes; none below two points."""
    if len(points) < 2:
        return []
    columns = columns_of(points, width)
    low, high = min(columns.values()), max(columns.values())
    step = (high - low) / (height - 1) if high > low else 1.0
    rows = {place: round((value - low) / step) for place, value in columns.items()}
    digits = max(0, min(4, 1 - math.floor(math.log10(step)))) if high > low else 2
    numbers = [f"{low + row * step:.{digits}f}" for row in range(height)]
    margin = max(map(len, numbers))
    lines = []
    for row in reversed(range(height)):
        number = numbers[row] if row in (0, height - 1, height // 2) else ""
        marks = "".join("*" if rows.get(place) == row else " " for place in range(width))
        lines.append(f"{number:>{margin}} |{marks}".rstrip())
    first, last = f"{points[0][0]:g}", f"{points[-1][0]:g}"
    lines.append(" " * margin + " +" + "-" * width)
    lines.append(" " * (margin + 2) + first + last.rjust(width - len(first)))
    return lines
