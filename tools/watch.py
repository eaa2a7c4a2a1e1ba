#!/usr/bin/env python3
"""Shows a run while it goes on. `tools/watch.py --help` says how."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from fedhpc.tools.start import start  # noqa: E402

start("watch")
