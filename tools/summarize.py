#!/usr/bin/env python3
"""Tables of runs: mean and spread over seeds, cost to a target, scaling. `tools/summarize.py --help` says how."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from fedhpc.tools.start import start  # noqa: E402

start("summarize")
