#!/usr/bin/env python3
"""Writes series as TensorBoard event files. `tools/export.py --help` says how."""

from fedhpc_tools.start import start

start("export")
