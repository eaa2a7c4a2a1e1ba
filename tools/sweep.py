#!/usr/bin/env python3
"""Runs a grid of settings and seeds and names the best. `tools/sweep.py --help` says how."""

from fedhpc_tools.start import start

start("sweep")
