#!/usr/bin/env python3
"""Runs the rows of a paper's tables. `tools/reproduce.py --help` says how."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from fedhpc.tools.start import start  # noqa: E402

start("reproduce")
