"""fedhpc.script_model: from a module of PyTorch to a TorchScript file, for model.backend = autograd."""

import copy
import io
import warnings
from pathlib import Path

from ._model_lines import name_of_kind
from ._written import require_room, unfinished
from .errors import ConfigError, DataError, Error
from .models import require_finite

__all__ = ["script_model"]


def script_model(module, example_input, path):
    """Writes a torch.nn.Module to the TorchScript file `path`; returns the keys of a configuration that trains it.

    module: takes one tensor [batch, ...], returns one tensor [batch, ..., K]; it stays as it is. torch.jit.script compiles
        it; where that cannot be, torch.jit.trace follows one call.
    example_input: a tensor [batch, ...] as the module takes it, of the weights' type. A run gives it floats of the
        data's shape; images without a channel axis, [n, H, W], arrive as [batch, 1, H, W].

    What the file computes is compared with the module, in train() and in eval(), for batches of two sizes; so are
    gradients. Raises ConfigError where they differ, which a trace does if a module has dropout, batch norm or
    torch.no_grad, where neither way works, or for an example [batch, H, W]; DataError where the file cannot be
    written. An earlier file at `path` is replaced by a good one only.

    fedhpc.export_model is the way to models that train many clients at a time; this one takes any module that
    autograd differentiates, one client after the other, on the CPU.
    """
    import torch

    path = Path(path).resolve()
    if isinstance(example_input, torch.Tensor) and example_input.dim() == 3:
        raise ConfigError("an example [batch, H, W] is of a shape that no run gives: images without a channel axis "
                          "arrive as [batch, 1, H, W]; give that, and take the axis away in the module's forward")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit tells of its successors
        return _write(torch, module, example_input, path)


def _write(torch, module, example_input, path):
    scripted, way = _compiled(torch, module, example_input)
    require_finite({name: one.detach().cpu().double().numpy() for name, one in scripted.named_parameters()})
    try:
        with unfinished(path) as other:
            made = io.BytesIO()  # torch ends the process where the disk is full
            torch.jit.save(scripted, made)
            made.seek(0)
            _compare(torch, module, torch.jit.load(made, map_location="cpu"), example_input, way)
            require_room(other, len(made.getbuffer()), path)
            other.write_bytes(made.getbuffer())
    except Error:
        raise
    except (OSError, RuntimeError) as error:
        if "Could not export" in str(error):
            raise ConfigError(f"{way} of {type(module).__name__} has a part that no file holds, an autograd.Function "
                              f"for instance ({_first_line(error)}); write it with torch's operations") from None
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise DataError(f"'{path}' cannot be written: {reason}") from None
    return {"model.name": "file", "model.file": str(path), "model.backend": "autograd"}


def _compiled(torch, module, example_input):
    """A ScriptModule on the CPU, and how it was made."""
    for name, one in module.named_modules():
        of = getattr(one, "original_name", type(one).__name__)  # of a scripted one
        norm = isinstance(one, torch.nn.modules.batchnorm._BatchNorm) or "BatchNorm" in of
        if norm and getattr(one, "momentum", 0) is None:
            raise ConfigError(f"batch norm {name} has momentum=None, a mean over all steps, which no run takes; give "
                              "it a momentum")
    if isinstance(module, torch.jit.ScriptModule):
        return module, "torch.jit.save"
    from ._model_tracing import has_hooks

    if any(map(has_hooks, module.parameters())):  # a copy has none
        raise ConfigError(f"a parameter of {type(module).__name__} has a hook of its gradient, which a run would not "
                          "call; remove it")
    own = copy.deepcopy(module).cpu().train()
    try:
        return torch.jit.script(own), "torch.jit.script"
    except Exception as not_scripted:  # what it throws has many types
        try:
            return torch.jit.trace(own, example_input.cpu(), check_trace=False), "torch.jit.trace"
        except Exception as not_traced:
            raise ConfigError(f"{type(module).__name__} is neither scripted ({_first_line(not_scripted)}) nor "
                              f"traced ({_first_line(not_traced)}); "
                              f"{_other_type(module, example_input) or 'change its forward'}") from None


def _compare(torch, module, loaded, example_input, way):
    state = torch.get_rng_state()
    try:
        for training in (True, False):
            for count in (3, 5):
                x = torch.cat([example_input.detach().cpu()] * count)[:count]
                if x.is_floating_point():
                    x = x + torch.randn_like(x)
                made, results = [], []
                for one in (module, loaded):
                    torch.manual_seed(1)
                    made.append(copy.deepcopy(one).cpu().train(training))
                    results.append(made[-1](x.clone()))
                expected, found = results
                if not isinstance(found, torch.Tensor) or found.dim() < 2 or len(found) != count:
                    raise ConfigError(f"{type(module).__name__} has to return one tensor [batch, ..., K]; put what "
                                      "picks or reshapes it into its forward")
                if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-4, atol=1e-5):
                    raise ConfigError(f"{way} of {type(module).__name__} computes something else than the module in "
                                      f"{'train' if training else 'eval'}() with {count} samples; write its forward "
                                      "so that torch.jit.script takes it")
                if training and not _same_gradients(torch, made, results):
                    raise ConfigError(f"{way} of {type(module).__name__} has other gradients than the module; leave "
                                      "out backward hooks, and write its forward so that torch.jit.script takes it")
    except ConfigError:
        raise
    except Exception as error:
        other = _other_type(module, example_input)
        with_what = "such an example" if other else "batches of other sizes"
        raise ConfigError(f"{way} of {type(module).__name__} cannot be called with {with_what}: {_first_line(error)}"
                          f"{other and '; ' + other}") from None
    finally:
        torch.set_rng_state(state)


def _other_type(module, example_input):
    """What to do about an example that is not of the weights' type; empty where it is."""
    kinds = {one.dtype for one in module.parameters() if one.is_floating_point()}
    if len(kinds) != 1 or example_input.dtype in kinds:
        return ""
    kind, = map(name_of_kind, kinds)
    return (f"the example is of type {name_of_kind(example_input.dtype)} and the weights are {kind}: give an example "
            f"of {kind}")


def _same_gradients(torch, made, results):
    """Whether two modules, which have yielded these results, have the same gradients in some direction."""
    direction = torch.randn_like(results[0])
    expected, found = (_gradients(torch, one, result, direction) for one, result in zip(made, results))
    return expected.keys() == found.keys() and all(
        torch.allclose(found[name], one, rtol=1e-3, atol=1e-4 * max(1.0, float(one.abs().max())))
        for name, one in expected.items() if one.numel())


def _gradients(torch, module, result, direction):
    """{name: gradient} of result * direction; without .grad: parameters of a copied TorchScript are no leaves."""
    trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
    if not trained or not result.requires_grad:
        return {name: torch.zeros_like(one) for name, one in trained.items()}
    return dict(zip(trained, torch.autograd.grad((result * direction).sum(), list(trained.values()),
                                                 materialize_grads=True)))


def _first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ends = [line for line in lines if "Error: " in line]
    return (ends[-1] if ends else lines[0] if lines else type(error).__name__).rstrip(".:")
