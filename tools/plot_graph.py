#!/usr/bin/env python3
"""Draws the similarity graph of a run. `tools/plot_graph.py --help` says how."""

from fedhpc_tools.start import start

start("plot_graph")
