"""fedhpc: a simulator of personalized and communication-compressed federated learning.

    import fedhpc
    results = fedhpc.run("configs/quickstart.ini", **{"train.lr": 0.1})
    results.rounds["global_accuracy"].plot()

Names are imported when they are first used: reading results needs no compiled library, and running
needs no pandas.
"""

import importlib
import os
from pathlib import Path

# The same bits in a block of any width (src/math/products.cpp): a torch that has been imported may be the first to compute.
os.environ.setdefault("MKL_CBWR", "AUTO")
# In the project's own folder the compiled module lies in a build.
__path__.append(os.environ.get("FEDHPC_MODULE")
                or str(Path(__file__).parents[2] / "build" / "release" / "python" / "fedhpc"))

# name -> the module of this package that has it
_HOMES = {}
for _module, _names in {
    "_loader": ("_core",),
    "running": ("run", "resume", "plan", "list", "help", "version", "rank", "ranks"),
    "errors": ("Error", "ConfigError", "DataError", "Interrupted"),
    "methods": ("Algorithm", "Block", "CatchUp", "Codec", "EdgeRows", "Evaluation", "EvaluationBlock", "FactorMap",
                "Layout", "LocalStep", "Optimizer", "RandomColumns", "Round", "RowNumbers", "RowPart", "Rows",
                "Setup", "State", "StoredRows", "UpdateMap", "algorithm", "codec", "largest_codec", "sign_codec",
                "unless", "where"),
    "results": ("Results", "load"),
    "data": ("fetch", "from_leaf", "write_dataset"),
    "models": ("export_model", "load_weights"),
    "_script_model": ("script_model",),
    "tools.project": ("configs",),
}.items():
    _HOMES |= dict.fromkeys(_names, _module)
_MODULES = ("callbacks", "data", "errors", "methods", "models", "results", "running", "testing", "tools")

__all__ = sorted(name for name in {*_HOMES, *_MODULES} if not name.startswith("_"))


def __getattr__(name):
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    elif name == "__version__":
        value = __getattr__("version")()
    else:
        raise AttributeError(f"module 'fedhpc' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
