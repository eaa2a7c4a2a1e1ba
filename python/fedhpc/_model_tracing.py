"""Modules of PyTorch, checked and exported: what torch.export would leave out in silence is refused before."""

import collections
import contextlib
import inspect
import io
import logging
import os
import re
import sys
import traceback
import warnings
from unittest import mock

import torch

from ._model_lines import name_of_kind, refuse
from .errors import ConfigError

TORCH = os.path.dirname(torch.__file__) + os.sep
OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
NO_NAME = re.compile(r"[\s,=/]")
KINDS = (torch.float32, torch.float64)
CONTAINERS = (dict, list, set, collections.deque)


def checked_parameters(module):
    if not isinstance(module, torch.nn.Module):
        refuse(f"{type(module).__name__} is no torch.nn.Module", todo="give a module")
    known, kinds = {}, {}
    for name, one in module.named_parameters(remove_duplicate=False):
        if isinstance(one, torch.nn.parameter.UninitializedTensorMixin):
            refuse(f"parameter {name} has no shape yet", todo="run the module once on a batch before")
        if id(one) in known:
            refuse(f"parameters {known[id(one)]} and {name} are one (tied weights)", todo=(
                "give each layer its own, or train the module one client after the other, as a TorchScript file with "
                "model.backend=autograd"))
        if one.dtype not in KINDS:
            refuse(f"parameter {name} is of type {name_of_kind(one.dtype)}",
                   todo="say module.float() or module.double()")
        if not one.requires_grad:
            refuse(f"parameter {name} is frozen (requires_grad=False)",
                   todo="make it a buffer, which becomes a constant, or let it have a gradient")
        if NO_NAME.search(name) or not name.isprintable():
            refuse(f"the name of parameter '{name}' has a space, comma, '=' or '/'", todo="rename it")
        if has_hooks(one):
            refuse(f"parameter {name} has a hook of its gradient, which a run would not call", todo="remove it")
        known[id(one)], kinds[one.dtype] = name, name
    if not known:
        refuse("the module has no parameters", todo="give one that can be trained")
    if len(kinds) > 1:
        refuse(f"parameters {' and '.join(kinds.values())} are of different types",
               todo="say module.float() or module.double()")
    for name, one in module.named_modules():
        if one._backward_hooks or one._backward_pre_hooks:
            refuse(f"{name or 'the module'} has a backward hook, which a run would not call", todo="remove it")
        if isinstance(one, torch.nn.modules.batchnorm._BatchNorm) and one.momentum is None:
            refuse(f"batch norm {name} has momentum=None, a mean over all steps", todo="give it a momentum")
        if isinstance(one, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and one.max_norm is not None:
            refuse(f"embedding {name} has max_norm, which changes rows as they are read",
                   todo="leave max_norm out")
    return dict(module.named_parameters())


def has_hooks(parameter):
    """Whether somebody is called with the gradient of a parameter."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def example_of(module, example, kind):
    """A batch like the example, of a size that no other dimension has."""
    needed = [name for name, one in inspect.signature(module.forward).parameters.items()
              if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(needed) > 1:
        refuse(f"forward has {len(needed)} inputs ({', '.join(needed)})", todo="give it one, with a default for others")
    if not isinstance(example, torch.Tensor):
        refuse(f"the example input is a {type(example).__name__}", todo="give one tensor, with the batch first")
    if example.ndim < 2 or example.numel() == 0:
        refuse(f"the example input has shape {tuple(example.shape)}", todo="give [batch, ...] with at least one sample")
    if example.is_complex():
        refuse("the example input has complex numbers")
    if example.dtype == torch.uint8:
        refuse("the example input is of type uint8, and a run has divided such pixels by 255",
               todo="give floats from 0 to 1, and leave the division out of forward")
    if example.dtype == torch.bool:
        refuse("the example input is of type bool", todo="give floats, which a run reads such data as")
    size = next(size for size in (5, 7, 11, 13, 17, 19, 23) if size not in example.shape[1:])
    batch = example.detach()[:1].repeat(size, *[1] * (example.ndim - 1))
    return batch.to(kind if batch.is_floating_point() else torch.int64)  # whole numbers of a run do not overflow


class _Shapes:
    """torch._VF, whose recurrent nets give their last states the shape that they have."""

    def __getattr__(self, name):
        function = getattr(torch._VF, name)
        if name not in ("lstm", "gru"):
            return function

        def called(*arguments):
            outputs, *states = function(*arguments)
            return (outputs, *(one.flatten(0, 1) if one.ndim > arguments[0].ndim else one for one in states))
        return called


def _refuse_gradient(what):
    """Refuses what torch.export would follow without its effect on gradients."""
    refuse(f"{what}, which says a gradient of its own,", _place_of(traceback.extract_stack()))


def _hooked(tensor, hook):
    _refuse_gradient("Tensor.register_hook")


@classmethod
def _applied(cls, *arguments, _apply=vars(torch.autograd.Function)["apply"].__func__, **named):
    if cls.__module__ == "torch.utils.checkpoint":  # the gradient is autograd's
        return _apply(cls, *arguments, **named)
    return _refuse_gradient(f"the autograd.Function {cls.__name__}")


@contextlib.contextmanager
def _traceable():
    """PyTorch without what torch.export stumbles over or forgets.

    It stumbles over shapes of last states and a look into constant masks; it forgets gradients that are not autograd's.
    """
    from torch.nn.modules import rnn, transformer

    shapes = mock.patch.object(rnn, "_VF", _Shapes())
    masks = mock.patch.object(transformer, "_detect_is_causal_mask",
                              lambda mask, is_causal=None, size=None: is_causal is True)
    functions = mock.patch.object(torch.autograd.Function, "apply", _applied)
    hooks = mock.patch.object(torch.Tensor, "register_hook", _hooked)
    with shapes, masks, functions, hooks:
        yield


class Mode:
    """`training` of all modules for a while: says whether code that is not torch's has read it."""

    read = False

    def __get__(self, module, kind=None):
        if module is None:
            return self
        self.read |= not sys._getframe(1).f_code.co_filename.startswith((TORCH, OWN))
        return vars(module)["training"]

    def __set__(self, module, value):
        vars(module)["training"] = value


@contextlib.contextmanager
def _in_mode(module, training):
    """The module in training form or not; afterwards every part has the mode and the attributes that it had.

    So have lists, sets, deques and dictionaries: forward may put the tensors of the tracer into them.
    """
    before = {}
    for one in module.modules():
        _remember(vars(one), before)
    try:
        module.train(training)
        with mock.patch.object(torch.nn.Module, "training", Mode(), create=True) as mode:
            yield mode
    finally:
        for one, content in before.values():
            if list(map(id, _held(one))) != list(map(id, _held(content))):
                one.clear()
                (one.update if hasattr(one, "update") else one.extend)(content)


def _remember(one, found):
    """Adds what a container holds, and the containers in it, to `found`: {its id: (container, content)}."""
    if isinstance(one, CONTAINERS) and id(one) not in found:
        found[id(one)] = one, next(kind(one) for kind in CONTAINERS if isinstance(one, kind))
        for held in _held(one):
            _remember(held, found)


def _held(one):
    """What a container holds."""
    return [*one, *one.values()] if isinstance(one, dict) else list(one)


def exported(module, batch, training=True):
    """The exported program, and whether it may be another one in the other mode."""
    try:
        with _in_mode(module, training) as mode, _traceable(), warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            sizes = ({0: torch.export.Dim.DYNAMIC},)
            first = next(iter(inspect.signature(module.forward).parameters.values()), None)
            sizes = (sizes,) if first is not None and first.kind is first.VAR_POSITIONAL else sizes
            program = torch.export.export(module, (batch,), strict=False, dynamic_shapes=sizes)
        program.graph.eliminate_dead_code()
        return program, mode.read or any(type(one).train is not torch.nn.Module.train for one in module.modules())
    except ConfigError:
        raise
    except Exception as error:  # whatever forward or the tracer raises
        text = " ".join(str(error).split())
        place = _place_of_error(error)
        if "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
            refuse("control flow or a shape depends on values of tensors", place)
        if "marked batch as dynamic" in text or "Constraints violated" in text or "specialized" in text:
            if any(isinstance(one, torch.nn.RNNBase) and not one.batch_first for one in module.modules()):
                refuse("a recurrent net takes the batch for the time", place, "set batch_first=True")
            refuse("the module needs a batch of one size", place,
                   "take the size from the input, as x.shape[0] or -1 and not as len(x)")
        refuse(f"torch.export refuses it ({type(error).__name__}: {text[:200].rstrip('.')})", place)


@contextlib.contextmanager
def _quiet():
    """Without what torch logs and prints before it raises."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _place_of_error(error):
    """The user's line at which forward was when it failed."""
    return _place_of(traceback.extract_tb(error.__traceback__))


def _place_of(frames):
    """The user's line among these, where they are of forward."""
    frames = [frame for frame in frames
              if not frame.filename.startswith((TORCH, OWN, "<"))]
    inside = [frame for frame in frames if frame.name == "forward"]
    return f"line {frames[-1].lineno} of {frames[-1].filename}" if inside else ""
