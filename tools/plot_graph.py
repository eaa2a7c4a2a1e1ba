#!/usr/bin/env python3
"""Draws the similarity graph of a run. `tools/plot_graph.py --help` says how."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from fedhpc.tools.start import start  # noqa: E402

start("plot_graph")
