#!/usr/bin/env python3
"""Fetches the public data sets. `tools/fetch_data.py --help` says how."""

from fedhpc_tools.start import start

start("fetch_data", needs=())
