#!/usr/bin/env python3
"""Draws the rooms of the program and who includes whom, from the sources: docs/images/rooms.svg.

usage: tools/draw_rooms.py [--check] [FILE]

A line leads from a room down to one it includes, unless another room leads there as well. --check writes nothing and ends
with 1 where the file is not what the sources give.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'#include "(?:fedhpc/)?([a-z_]+)/')
# Room: what it has, and the column where it is drawn; the longest chain is column 0.
ROOMS = {
    "app": ("the command line", 0),
    "engine": ("experiment, plan, checkpoints", 0),
    "algorithms": ("the methods", 0),
    "rounds": ("blocks, wire, means, edges", 0),
    "training": ("local steps of a block", 0),
    "codecs": ("what rows become on the wire", 1),
    "factorisations": ("weights as functions of factors", 0),
    "data": ("data sets, partitions, shards", -1),
    "models": ("layers, layouts, rows", 0),
    "math": ("products, solvers, statistics", 0),
    "gpu": ("module with CUDA and NCCL", 2),
    "io": ("HDF5, locks, durable files", -1),
    "comm": ("ranks, collectives, heartbeat", 0),
    "core": ("tensors, options, draws, devices", 0),
}
WIDTH, HEIGHT, GAP, RISE = 210, 46, 26, 70  # of a box, between boxes, between rows


def includes():
    """{room: rooms it includes}."""
    found = {room: set() for room in ROOMS}
    for folder in (ROOT / "src", ROOT / "include/fedhpc"):
        for file in sorted(folder.glob("*/**/*.[ch]pp")):
            room = file.relative_to(folder).parts[0]
            used = set(INCLUDE.findall(file.read_text(encoding="utf-8"))) & set(ROOMS)
            found[room] |= used - {room}
    return found


def reachable(graph, room):
    below = set()
    for other in graph[room]:
        below |= {other} | reachable(graph, other)
    return below


def without_detours(graph):
    """The same order with as few lines as can be."""
    return {room: {other for other in used if all(other not in reachable(graph, third) for third in used - {other})}
            for room, used in graph.items()}


def level_of(graph, room):
    """Its row from below: above all that it includes."""
    return 1 + max((level_of(graph, other) for other in graph[room]), default=-1)


def line(above, below):
    """From a box down to another; `above`, `below`: their left upper corners."""
    (x, y), (u, v) = above, below
    if x == u:
        return f"M{x + WIDTH // 2} {y + HEIGHT} V{v}"
    side = WIDTH if u > x else 0
    if u != 0 and abs(u) > abs(x):  # out of the chain: sideways, then down
        return f"M{x + side} {y + HEIGHT // 2} H{u + WIDTH // 2} V{v}"
    return f"M{x + WIDTH // 2} {y + HEIGHT} V{v + HEIGHT // 2} H{u + (0 if u > x else WIDTH)}"


def svg(graph):
    levels = {room: level_of(graph, room) for room in ROOMS}
    columns = [column for _, column in ROOMS.values()]
    left = -min(columns) * (WIDTH + GAP) + GAP
    across = left + max(columns) * (WIDTH + GAP) + WIDTH + GAP
    top = max(levels.values())
    down = top * RISE + HEIGHT + 2 * GAP
    # Column 0 is at x = 0.
    place = {room: (ROOMS[room][1] * (WIDTH + GAP), GAP + (top - levels[room]) * RISE) for room in ROOMS}
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down}" '
             f'viewBox="{-left} 0 {across} {down}" font-family="sans-serif" text-anchor="middle">',
             f'<rect x="{-left}" width="{across}" height="{down}" fill="white"/>']
    for room, used in without_detours(graph).items():
        for other in sorted(used):
            lines.append(f'<path d="{line(place[room], place[other])}" fill="none" stroke="#888" stroke-width="1.2"/>')
    for room, (x, y) in place.items():
        middle = x + WIDTH // 2
        lines += [f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3f8" stroke="#456"/>',
                  f'<text x="{middle}" y="{y + 19}" font-size="15" font-weight="bold">{room}</text>',
                  f'<text x="{middle}" y="{y + 36}" font-size="11.5" fill="#333">{ROOMS[room][0]}</text>']
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(arguments):
    check = "--check" in arguments
    names = [one for one in arguments if one != "--check"]
    if len(names) > 1 or any(one.startswith("-") for one in names):
        sys.exit(__doc__)
    path = Path(names[0]) if names else ROOT / "docs/images/rooms.svg"
    drawn = svg(includes())
    if check:
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{path} is not what the sources give: run tools/draw_rooms.py")
        return
    path.write_text(drawn, encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
