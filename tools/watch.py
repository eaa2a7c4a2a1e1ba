#!/usr/bin/env python3
"""Shows a run while it goes on. `tools/watch.py --help` says how."""

from fedhpc_tools.start import start

start("watch")
