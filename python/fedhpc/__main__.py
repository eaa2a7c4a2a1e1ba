"""python3 -m fedhpc COMMAND ...: the program."""

import sys

from .command import main

sys.argv[0] = "fedhpc"
main()
