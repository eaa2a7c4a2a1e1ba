"""The program, with the methods that Python has: `python3 -m fedhpc run CONFIG.ini --run.plugin=my_method.py`."""

import os
import sys


def main():
    """Ends the process with the exit code of the command in sys.argv."""
    from . import _core

    code = _core.program(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # LibTorch would take its thousands of operators apart


if __name__ == "__main__":
    main()
