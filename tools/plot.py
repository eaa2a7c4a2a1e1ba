#!/usr/bin/env python3
"""Draws result files. `tools/plot.py --help` says how."""

from fedhpc_tools.start import start

start("plot")
