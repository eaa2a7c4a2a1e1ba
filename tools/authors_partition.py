#!/usr/bin/env python3
"""Writes the partitions of authors' programs as partition files. `tools/authors_partition.py --help` says how."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from fedhpc.tools.start import start  # noqa: E402

start("authors_partition")
