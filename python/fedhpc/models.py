"""Models of one's own: from a module of PyTorch to the file that `model.name=file` reads, and weights back.

    keys = fedhpc.export_model(module, torch.zeros(1, 3, 32, 32), "net.h5")
    results = fedhpc.run("configs/quickstart.ini", **keys)
    fedhpc.load_weights(module, results)

docs/model-files.md says what stands in the file. This module needs torch where one of its functions is called.
"""

import warnings
from pathlib import Path

import numpy as np

from ._written import require_room, writing, written_whole
from .errors import ConfigError

__all__ = ["export_model", "load_weights"]
VERSION = 1  # of the format


def export_model(module, example_input, path, *, weights=True):
    """Writes a torch.nn.Module to the model file `path`; returns the keys of a configuration that trains it.

    module: takes one tensor [batch, ...], returns one tensor [batch, ..., K]; it stays as it is. It is written as it
        trains, with dropout and batch norm, whatever mode it is in.
    example_input: a tensor [batch, ...] as the module takes it; only its shape and type matter. The batch that a run
        takes may have any size.
    weights: without them the file says what the model is and not where it begins. A run draws them by model.init, and
        refuses a parameter of the module's own (nn.Parameter outside torch's layers), which has no rule of drawing.

    Parameters are float32 or float64, and finite. Raises ConfigError where the file cannot hold the module, with the
    operation and its place; DataError where the file cannot be written, or would replace a result file.
    """
    import torch

    from ._model_graph import trace

    lines, found = trace(module, example_input)
    path = Path(path).resolve()
    values = {name: np.atleast_1d(one.detach().cpu().numpy()) for name, one in found.items()} if weights else {}
    require_finite(values)
    texts = [line.text().encode() for line in lines.lines]
    with written_whole(path) as file, writing(path):
        require_room(file, sum(map(len, texts)) + sum(np.asarray(one).nbytes for many in (lines.constants, values)
                                                      for one in many.values()), path)
        file.attrs["fedhpc_model"] = VERSION
        file.attrs["producer"] = f"fedhpc.export_model, torch {torch.__version__}, {type(module).__name__}"
        file.create_dataset("layers", data=np.array(texts, f"S{max(map(len, texts))}"))
        for name, array in lines.constants.items():
            file[f"constants/{name}"] = array
        for name, array in values.items():
            file[f"model/global/{name}"] = array
    return {"model.name": "file", "model.file": str(path)}


def require_finite(parameters):
    """ConfigError for {name: array} of which one is NaN or infinite: training begins there."""
    wrong = next((name for name, values in parameters.items() if not np.isfinite(values).all()), None)
    if wrong is not None:
        raise ConfigError(f"{wrong} holds NaN or infinite numbers; give a module whose weights are finite")


def load_weights(module, results, client=None):
    """Puts the final model of a run into a torch.nn.Module, which it returns.

    results: fedhpc.Results, or the path of a result file.
    client: the number of a client whose personal model it shall be; else the global model.

    What a run does not train stays as it is: frozen parameters, constants, num_batches_tracked. Of a method that shares
    a part of the model, a client's model alone is whole. With train.buffers = local, statistics of batch norm in the
    global model are the initial ones, and not those with which clients are scored: a warning says so. Raises
    ConfigError where names or shapes are not those of the module, DataError where the file has no such model.
    """
    import torch

    if not hasattr(results, "personal"):
        from .results import Results

        results = Results(results)
    inner = getattr(module, "_orig_mod", module)  # what torch.compile has wrapped
    values = results.model() if client is None else results.personal(client)
    own = inner.state_dict(keep_vars=True)
    parameters = [name for name, values in inner.named_parameters() if values.requires_grad]
    statistics = {name for name in own if name.endswith((".running_mean", ".running_var"))}
    for names, where in (([*parameters, *statistics], "the module, but not in the results"), (own, None)):
        missing = [name for name in (names if where else values) if name not in (values if where else own)]
        if missing and where and client is None and shares_a_part(results):
            raise ConfigError(f"{missing[0]} is in {where}: the method shares a part of the model only; give client=K, "
                              "whose personal model is whole, of a run with run.save = personal")
        if missing:
            raise ConfigError(f"{missing[0]} is in {where or 'the results, but not in the module'}; give the module "
                              "that was exported for this run")
    loaded = {}
    for name, array in values.items():
        shape = tuple(own[name].shape)
        if array.shape not in (shape, shape or (1,)):  # of a model file, or of a TorchScript file
            raise ConfigError(f"{name} has shape {list(array.shape)} in the results and {list(shape)} in the module; "
                              "give the module that was exported for this run")
        loaded[name] = torch.from_numpy(np.array(array)).reshape(shape)
    inner.load_state_dict(loaded, strict=False)
    if statistics and client is None and results.config.get("train.buffers") == "local":
        warnings.warn("train.buffers = local leaves each client its own statistics of batch norm: those of the global "
                      "model are the initial ones, and not those with which clients are scored", stacklevel=2)
    return module


def shares_a_part(results):
    """Whether models of clients were scored, and no global one: it is not whole."""
    personal, global_ = (results.rounds.get(f"{whose}_loss") for whose in ("personal", "global"))
    return personal is not None and personal.notna().any() and (global_ is None or global_.isna().all())
