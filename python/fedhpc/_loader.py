"""Loads the compiled module, so that it and `torch` have one LibTorch in a process.

Libraries are known to the loader by name: of two libtorch_cpu.so the one that is loaded first serves everybody. Two
versions cannot serve one another, and `torch` and the compiled module must be able to hand each other arrays.
"""

import ctypes
import importlib
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

NOT_BUILT = ("fedhpc has no compiled module here: build it (cmake --build --preset release --target fedhpc_python), or "
             "install the package (pip install .)")
try:
    from ._built_with import TORCH_VERSION
except ImportError:
    raise ImportError(NOT_BUILT) from None

OWN = TORCH_VERSION.partition("+")[0]  # "+cu130" and the like name how it was built, and change no interface


def installed_torch(path=None):
    """Folder and version of the `torch` that would be imported, which is not imported; None where there is none."""
    spec = PathFinder.find_spec("torch", path)
    if spec is None or not spec.origin:
        return None
    folder = Path(spec.origin).parent
    try:
        version = re.search(r"""__version__ = ['"]([0-9.]+)""", (folder / "version.py").read_text())
    except OSError:
        return None
    return (folder, version[1].rstrip(".")) if version else None


class OtherTorch:
    """A finder of modules that puts a sentence in the place of a `torch` of another version."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        found = installed_torch(path)
        return None if found is None or found[1] == OWN else ModuleSpec(name, self, origin=found[1])

    def create_module(self, spec):
        raise ImportError(f"torch {spec.origin} cannot be loaded beside fedhpc, which has loaded LibTorch {OWN}: "
                          f"install torch=={OWN}, or import torch in a process of its own", name="torch")

    def exec_module(self, module):
        pass  # never called: there is no module


def load():
    """The module fedhpc._core.

    Raises ImportError, with a sentence, where a `torch` of another version is imported already, and where there is no
    MPI library. A `torch` of the same version lends its LibTorch; one of another version can no longer be imported.
    """
    imported = sys.modules.get("torch")
    if imported is not None:
        version = str(imported.__version__).partition("+")[0]
        if version != OWN:
            raise ImportError(f"fedhpc is built with LibTorch {OWN}, and torch {version} is imported already: install "
                              f"torch=={OWN}, or import fedhpc in a process without torch")
    else:
        found = installed_torch()
        if found and found[1] == OWN:
            try:
                ctypes.CDLL(str(found[0] / "lib" / "libtorch_cpu.so"))
            except OSError:
                pass  # a torch that lacks libraries cannot be imported either
        sys.meta_path.insert(0, OtherTorch())
    try:
        return importlib.import_module("fedhpc._core")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError):
            raise ImportError(NOT_BUILT) from None
        mpi = re.match(r"(libmpi\S*): cannot open", str(error))
        if mpi is None:
            raise
        raise ImportError(f"fedhpc needs {mpi[1]}, the MPI library it was built with: load the cluster's module of "
                          "that MPI, or install it (Debian: libopenmpi3)") from error


_core = load()
