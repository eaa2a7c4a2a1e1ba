#!/usr/bin/env python3
"""Fills a job script for a run and prints or submits it. `tools/submit.py --help` says how."""

from fedhpc_tools.start import start

start("submit")
