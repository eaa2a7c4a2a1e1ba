#!/usr/bin/env python3
"""Compares two runs. `tools/compare.py --help` says how."""

from fedhpc_tools.start import start

start("compare")
