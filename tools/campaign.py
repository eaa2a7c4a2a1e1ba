#!/usr/bin/env python3
"""Tries to break the simulator, with seeds. `tools/campaign.py --help` says how."""

from fedhpc_tools.start import start

start("campaign")
