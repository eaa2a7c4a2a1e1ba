#!/usr/bin/env python3
"""Runs the rows of a paper's tables. `tools/reproduce.py --help` says how."""

from fedhpc_tools.start import start

start("reproduce")
