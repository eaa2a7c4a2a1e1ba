#!/usr/bin/env python3
"""Writes series as TensorBoard event files. `tools/export.py --help` says how."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from fedhpc.tools.start import start  # noqa: E402

start("export")
