"""Starts a tool of this package under a Python that has the libraries it needs."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from .project import ROOT

LIBRARIES = ("h5py", "numpy", "pandas", "matplotlib")
TOOLS = {"authors_partition": ("h5py", "numpy"), "docs_site": (), "fetch_data": ()}  # tool -> what it needs
TOOLS |= dict.fromkeys(("campaign", "compare", "export", "plot", "plot_graph", "reproduce", "submit", "summarize",
                        "sweep", "watch"), LIBRARIES)


def start(name):
    """Ends the process with main(arguments) of fedhpc.tools.NAME.

    When the Python in use lacks a library, the one that tools/setup.sh made takes over.
    """
    missing = [library for library in TOOLS[name] if importlib.util.find_spec(library) is None]
    if missing:
        python, script = ROOT / ".deps" / "venv" / "bin" / "python", ROOT / "tools" / f"{name}.py"
        if python.exists() and script.exists() and Path(sys.prefix) != python.parents[1]:
            os.execv(python, [str(python), str(script), *sys.argv[1:]])
        advice = ("tools/setup.sh makes one with it in .deps/venv" if (ROOT / "tools" / "setup.sh").exists() else
                  "install it there, or start this tool by another Python")
        print(f"{name}: this Python has no {', '.join(missing)}; {advice}", file=sys.stderr)
        sys.exit(2)
    try:
        code = importlib.import_module(f"fedhpc.tools.{name}").main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
