"""The project's folder: tables of papers, job scripts, configurations and builds lie there.

It is the folder above the package, or PREFIX/share/fedhpc. An installed package has configurations and job scripts in a
share/fedhpc of its own; $FEDHPC_HOME names a folder with the rest.
"""

import os
import shutil
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "share" / "fedhpc"
if not ROOT.is_dir():
    ROOT = ROOT.parents[3]
if "FEDHPC_HOME" in os.environ and not (ROOT / "tools" / "papers").is_dir():
    ROOT = Path(os.environ["FEDHPC_HOME"]).resolve()


def configs():
    """The folder of the configurations that come with fedhpc, a Path: quickstart.ini, algorithms/NAME.ini, papers/."""
    return needed("configs")


def needed(name):
    """The path of the project's file or folder `name`; FileNotFoundError, with a sentence, where it is not there."""
    path = ROOT / name
    if not path.exists():
        raise FileNotFoundError(f"no {name} in {ROOT}: this needs the project's folder; set FEDHPC_HOME to it")
    return path


def programs():
    """Where a fedhpc program may lie, best first: a build, the same installation, beside this Python, on the PATH."""
    builds = (ROOT / "build" / preset / folder for preset in ("release", "cpu") for folder in ("", "bin", "src"))
    folders = [*builds, ROOT.parent.parent / "bin", Path(sysconfig.get_path("scripts"))]
    return [*(folder / "fedhpc" for folder in folders), shutil.which("fedhpc") or ""]
