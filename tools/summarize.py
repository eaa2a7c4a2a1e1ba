#!/usr/bin/env python3
"""Tables of runs: mean and spread over seeds, cost to a target, scaling. `tools/summarize.py --help` says how."""

from fedhpc_tools.start import start

start("summarize")
