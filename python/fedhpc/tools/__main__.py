"""python -m fedhpc.tools TOOL ARGUMENT..."""

import sys

from .start import TOOLS, start

if len(sys.argv) < 2 or sys.argv[1] not in TOOLS:
    sys.exit(f"usage: python -m fedhpc.tools TOOL ...; tools are {', '.join(sorted(TOOLS))}")
sys.argv[:2] = [f"python -m fedhpc.tools {sys.argv[1]}"]  # what a usage line begins with
start(sys.argv[0].split()[-1])
