"""A program that ends in one breath with a signal to the shell that waits for it, for the tests of job scripts."""

import os
import shutil
import unittest

possible = unittest.skipUnless(shutil.which("chrt") and shutil.which("taskset"), "no chrt or no taskset")
# Lines for the shell, whose number is $BATCH: what it starts runs on the same core, before it.
SHELL = f"chrt -i -p 0 $$ >/dev/null\ntaskset -pc {min(os.sched_getaffinity(0))} $$ >/dev/null\n"
# Ends with 7 in one breath with SIGTERM to the shell.
PROGRAM = """import os, signal
try:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
except PermissionError:
    pass
os.kill(int(os.environ["BATCH"]), signal.SIGTERM)
os._exit(7)
"""
