#!/usr/bin/env python3
"""Writes the partitions of authors' programs as partition files. `tools/authors_partition.py --help` says how."""

from fedhpc_tools.start import start

start("authors_partition", needs=("h5py", "numpy"))
