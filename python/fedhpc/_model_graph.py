"""From a module of PyTorch to the lines of a model file, by torch.export.

A node of the exported graph becomes a Value where it depends on the input or on parameters. All else is carried out as
it stands, on a batch of some size, and becomes a constant where a Value needs it. The graph is walked with two sizes of
the batch: a module whose lines differ between them depends on it.
"""

import contextlib
import inspect
import io
import logging
import operator
import os
import re
import traceback
import warnings

import numpy as np
import torch

from . import _model_layers, _model_shapes  # noqa: F401  they fill OPERATIONS
from ._model_lines import (
    MISSING, Batch, Constant, Lines, Noise, Parameter, Value, dims_of, is_fixed, refuse, sample_shape)
from ._model_operations import EMPTY, IGNORED, OPERATIONS, VIEWS
from .errors import ConfigError

TORCH = os.path.dirname(torch.__file__) + os.sep
OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
LACKS = "a value that the format lacks, such as the last cell state of an LSTM or the place of a maximum,"
RANDOM = re.compile("rand|bernoulli|normal|uniform|exponential|poisson|multinomial")
NO_NAME = re.compile(r"[\s,=/]")
KINDS = (torch.float32, torch.float64)


def trace(module, example):
    """The Lines of a module, and {name: tensor} of its weights: parameters and statistics of batch norm."""
    module = getattr(module, "_orig_mod", module)  # what torch.compile has wrapped
    parameters = _checked_parameters(module)
    kind = next(iter(parameters.values())).dtype
    program, batch = _exported(module, _example(module, example, kind).to(next(iter(parameters.values())).device))
    one, other = (Walk(program, module, kind, size) for size in (batch, batch + 1))
    for a, b in zip(one.lines.lines, other.lines.lines):
        same = a.text() == b.text() and (a.op != "constant" or np.array_equal(
            one.lines.constants[a.keys["constant"]], other.lines.constants[b.keys["constant"]], equal_nan=True))
        if not same:
            refuse("the result for a sample depends on how many samples the batch has", a.name)
    if len(one.lines.lines) != len(other.lines.lines):
        refuse("what is computed depends on how many samples the batch has")
    unused = [name for name in parameters if name not in one.used]
    if unused:
        refuse(f"the output does not depend on parameter {unused[0]}, which would get no gradient",
               todo="remove it, or use it in forward")
    tensors = {**parameters, **dict(module.named_buffers())}
    return one.lines, {name: tensor for name, tensor in tensors.items() if name in one.used}


def _checked_parameters(module):
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
            refuse(f"parameter {name} is of type {_word(one.dtype)}", todo="say module.float() or module.double()")
        if not one.requires_grad:
            refuse(f"parameter {name} is frozen (requires_grad=False)",
                   todo="make it a buffer, which becomes a constant, or let it have a gradient")
        if NO_NAME.search(name) or not name.isprintable():
            refuse(f"the name of parameter '{name}' has a space, comma, '=' or '/'", todo="rename it")
        known[id(one)], kinds[one.dtype] = name, name
    if not known:
        refuse("the module has no parameters", todo="give one that can be trained")
    if len(kinds) > 1:
        refuse(f"parameters {' and '.join(kinds.values())} are of different types",
               todo="say module.float() or module.double()")
    for name, one in module.named_modules():
        if isinstance(one, torch.nn.modules.batchnorm._BatchNorm):
            if one.momentum is None:
                refuse(f"batch norm {name} has momentum=None, a mean over all steps", todo="give it a momentum")
    return dict(module.named_parameters())


def _example(module, example, kind):
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
    size = next(size for size in (5, 7, 11, 13, 17, 19, 23) if size not in example.shape[1:])
    batch = example.detach()[:1].repeat(size, *[1] * (example.ndim - 1))
    return batch.to(kind) if batch.is_floating_point() else batch


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


@contextlib.contextmanager
def _traceable():
    """PyTorch without what torch.export stumbles over: shapes of last states, and a look into constant masks."""
    from torch.nn.modules import rnn, transformer

    before = rnn._VF, transformer._detect_is_causal_mask
    try:
        rnn._VF = _Shapes()
        transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
        yield
    finally:
        rnn._VF, transformer._detect_is_causal_mask = before


@contextlib.contextmanager
def _training(module):
    """The module in training form; afterwards every part has the mode and the attributes that it had."""
    before = [(one, dict(vars(one))) for one in module.modules()]
    try:
        module.train()
        yield
    finally:
        for one, attributes in before:
            vars(one).clear()
            vars(one).update(attributes)


def _exported(module, batch):
    """The exported program, and the size of its batch."""
    try:
        with _training(module), _traceable(), warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            sizes = ({0: torch.export.Dim.DYNAMIC},)
            first = next(iter(inspect.signature(module.forward).parameters.values()), None)
            sizes = (sizes,) if first is not None and first.kind is first.VAR_POSITIONAL else sizes
            program = torch.export.export(module, (batch,), strict=False, dynamic_shapes=sizes)
        program.graph.eliminate_dead_code()
        return program, len(batch)
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
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith((TORCH, OWN, "<"))]
    inside = [frame for frame in frames if frame.name == "forward"]
    return f"line {frames[-1].lineno} of {frames[-1].filename}" if inside else ""


def _word(kind):
    return str(kind).removeprefix("torch.")


class Walk:
    """One walk through the graph, with a batch of `size` samples."""

    def __init__(self, program, module, kind, size):
        self.program, self.kind, self.size = program, kind, size
        self.lines, self.used = Lines(), {}  # used: {name of a parameter: place}
        self.values, self.alias, self.tensor_of = {}, {}, {}  # of nodes: what they are; memory and tensor they share
        self.buffers = dict(module.named_buffers(remove_duplicate=False))
        self.rows = {}  # {name: Value} of parameters that are lines
        nodes = list(program.graph.nodes)
        self.order = {node: at for at, node in enumerate(nodes)}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
        for node in nodes:
            self.node = node
            if node.op == "placeholder":
                self.alias[node] = self.tensor_of[node] = node
                self.values[node] = self._placeholder(node, specs.get(node.name))
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                self._output(node)
            else:
                self.values[node] = operator.attrgetter(node.target)(program.graph_module)

    # What stands at the head of the graph.

    def _placeholder(self, node, spec):
        kind = getattr(getattr(spec, "kind", None), "name", "")
        meta = node.meta.get("val")
        if kind == "USER_INPUT" and isinstance(meta, torch.Tensor):
            self.symbol = meta.shape[0].node.expr
            self.input = node
            dims = (Batch(), *map(int, meta.shape[1:]))
            return Value(self.lines.add("input", (), dims[1:]), dims)
        if kind == "USER_INPUT":  # an argument with a default
            return meta
        if kind == "PARAMETER":
            return Parameter(spec.target, meta.shape)
        if kind in ("BUFFER", "CONSTANT_TENSOR"):
            held = self.program.constants.get(spec.target)
            held = self.program.state_dict.get(spec.target) if held is None else held
            return held.detach().clone()
        return self.refuse(f"an input of kind {kind.lower() or 'unknown'}")

    # Nodes.

    def _call(self, node):
        target = node.target
        if target is operator.getitem:
            of = node.args[0]
            self.alias[node], self.tensor_of[node] = self.alias.get(of, node), node
            items = self.values[of]
            self.values[node] = items[node.args[1]] if isinstance(items, (tuple, list)) else MISSING
            return
        arguments = node.all_input_nodes
        traced = any(isinstance(self.values[one], (Value, Parameter, Noise)) for one in arguments)
        name = getattr(getattr(target, "overloadpacket", target), "__name__", str(target))
        if name in IGNORED:
            self.values[node] = None
        elif any(self.values[one] is MISSING for one in arguments):
            self.values[node] = MISSING
        elif not traced or name in EMPTY:
            self._carry_out(node, name)
        else:
            self._lower(node, name)

    def _carry_out(self, node, name):
        """A node that depends on neither the input nor parameters."""
        target, written = node.target, self._written(node)
        if written is not None and self.alias.get(written, written).op == "placeholder":
            if written.name.endswith("num_batches_tracked"):
                self.values[node] = self.values[written]
                return
            self.refuse(f"the module changes a buffer of its own ({self._buffer_name(written)})")
        if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
            self._draw(node, name)
            return
        try:
            args = torch.fx.node.map_arg(node.args, self.concrete)
            kwargs = torch.fx.node.map_arg(node.kwargs, self.concrete)
            with torch.no_grad():
                self.values[node] = target(*args, **kwargs)
        except ConfigError:
            raise
        except Exception as error:
            self.refuse(f"{name}, which fails on constants ({str(error).splitlines()[0]})")
        of = node.all_input_nodes[0] if node.all_input_nodes and (written is not None or name in VIEWS) else node
        self.alias[node] = self.alias.get(of, of)
        self.tensor_of[node] = node

    def _draw(self, node, name):
        """Random numbers: one of each sample is dropout of whole samples (stochastic depth)."""
        keep = node.args[1] if name == "bernoulli_" and len(node.args) > 1 else None
        dims = dims_of(node.meta["val"].shape, self.symbol)
        if not isinstance(keep, float) or dims is None or dims[:1] != (Batch(),) or any(one != 1 for one in dims[1:]):
            self.refuse(f"random numbers by {name}, other than dropout")
        self._written_to(node, node.args[0], Noise(keep))

    def _written_to(self, node, written, value):
        """Gives the node, and the tensor that it writes into, the value."""
        tensor = self.tensor_of[written]
        for other in [one for one, of in self.tensor_of.items() if of is tensor]:
            self.values[other] = value
        self.values[node], self.alias[node], self.tensor_of[node] = value, self.alias[written], tensor

    def concrete(self, node):
        """A value as it stands; of what depends on the input, an empty tensor like it."""
        value = self.values[node]
        if isinstance(value, (Value, Parameter)):
            return torch.empty(self.concrete_shape(value), dtype=node.meta["val"].dtype,
                               device=node.meta["val"].device)
        return value

    def _buffer_name(self, node):
        holder = self.alias.get(node, node).name
        return next((spec.target for spec in self.program.graph_signature.input_specs
                     if getattr(spec.arg, "name", None) == holder), holder)

    @staticmethod
    def _written(node):
        """The node whose tensor this one writes into, None where it writes into none."""
        schema = getattr(node.target, "_schema", None)
        for at, argument in enumerate(schema.arguments if schema else ()):
            if argument.alias_info is not None and argument.alias_info.is_write:
                return node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
        return None

    def _lower(self, node, name):
        meta = node.meta.get("val")
        for one in meta if isinstance(meta, (tuple, list)) else (meta,):
            if not isinstance(one, torch.Tensor):
                continue
            if one.is_complex():
                self.refuse(f"complex numbers by {name}")
            if one.is_floating_point() and one.dtype != self.kind:
                self.refuse(f"{name} makes numbers of type {_word(one.dtype)}, and the parameters are "
                            f"{_word(self.kind)}", "leave out the conversion")
        if name == "sym_size":
            self.values[node] = self.concrete_shape(self.values[node.args[0]])[node.args[1]]
            return
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            self.refuse("a part under torch.no_grad, which stops the gradient," if "set_grad_enabled" in name else
                        f"the operation {name}")
        self.arguments = named = dict(zip((one.name for one in schema.arguments), node.args))
        named |= node.kwargs
        for one in schema.arguments:
            named.setdefault(one.name, one.default_value if one.has_default_value() else None)
        written = self._written(node)
        base = name[:-1] if written is not None and name.endswith("_") else name
        if written is not None:
            self._check_written(node, written, name)
        if base not in OPERATIONS:
            drawn = RANDOM.search(name)
            self.refuse(f"random numbers by {name}, other than dropout" if drawn else f"the operation {name}")
        result = OPERATIONS[base](self, **{key: torch.fx.node.map_arg(one, self._operand)
                                          for key, one in named.items()})
        self._check_shape(name, result, meta)
        if written is not None:
            self._written_to(node, written, result)
            return
        of = named.get("self") if base in VIEWS else None
        self.alias[node] = self.alias.get(of, node) if isinstance(of, torch.fx.Node) else node
        self.values[node], self.tensor_of[node] = result, node

    def _check_shape(self, name, result, meta):
        """Refuses what has not the shape of the tensor that it stands for: the operation was misunderstood."""
        if isinstance(result, (tuple, list)) and isinstance(meta, (tuple, list)):
            for one, of in zip(result, meta):
                self._check_shape(name, one, of)
        elif isinstance(result, Value) and isinstance(meta, torch.Tensor):
            fixed = [int(length) if is_fixed(length) else None for length in meta.shape]
            if len(fixed) != len(result.dims) or any(
                    length is not None and length != dim for length, dim in zip(fixed, result.dims)):
                self.refuse(f"this use of {name}, which yields {list(meta.shape)},")

    def _check_written(self, node, written, name):
        """Refuses a change in place that somebody sees through another view of the same memory."""
        root = self.alias[written]
        if root.op == "placeholder":
            self.refuse(f"{name} changes " + ("the module's input" if root is self.input else
                                              f"{self._buffer_name(written)} of the module") + " in place")
        if not isinstance(self.values[written], (Value, Noise)):
            self.refuse(f"{name} writes values into a tensor that was made empty or constant")
        for other, memory in self.alias.items():
            if memory is root and self.tensor_of[other] is not self.tensor_of[written]:
                if any(self.order[user] > self.order[node] for user in other.users):
                    self.refuse(f"{name} changes a part of a tensor in place")

    def _output(self, node):
        outputs = node.args[0]
        spec = self.program.call_spec.out_spec
        if len(outputs) != 1 or not spec.is_leaf():
            self.node = next((one for one in outputs if isinstance(one, torch.fx.Node)), node)
            what = spec.type.__name__ if spec.type is not None else "None"
            self.refuse(f"forward returns a {what} of {len(outputs)} values", todo="return one tensor")
        result = self.values[outputs[0]] if isinstance(outputs[0], torch.fx.Node) else outputs[0]
        if result is MISSING:
            self.refuse(LACKS)
        if not isinstance(result, Value) or 0 not in self.lines.needed(result.line):
            refuse("what forward returns does not depend on its input", todo="return one tensor made of the input")
        self.node = outputs[0]
        if result.batch != 0 or result.dims[0].outer:
            self.refuse("the batch is not the first dimension of what forward returns", todo="permute the result")
        if result.line == 0:
            self.refuse("forward returns its input", todo="return something that parameters change")
        self.lines.finish(result.line)
        for line in self.lines.lines:
            for name in line.parameters:
                if name in self.used:
                    refuse(f"parameter {name} is used twice (tied weights), in {self.used[name]} and", line.name)
                self.used[name] = line.name or line.op

    # What operations ask for.

    def refuse(self, what, todo=None):
        refuse(what, self.place(), **({"todo": todo} if todo else {}))

    def place(self):
        """Where the node in hand is: its place in the module, and the user's line."""
        stack = list(self.node.meta.get("nn_module_stack", {}).values())
        name, kind = stack[-1] if stack else ("", "")
        frames = re.findall(r'File "([^"]+)", line (\d+)', self.node.meta.get("stack_trace") or "")
        own = [(file, line) for file, line in frames if not file.startswith((TORCH, OWN))]
        kind = kind if isinstance(kind, str) else kind.__name__
        where = f"{name} ({kind.rpartition('.')[2]})" if name else kind.rpartition(".")[2]
        return where + (f", line {own[-1][1]} of {own[-1][0]}" if own else "")

    def name(self):
        """The place in the module, as the file has it."""
        stack = list(self.node.meta.get("nn_module_stack", {}).values())
        return re.sub(r"[\s,=/]", "_", stack[-1][0]) if stack else ""

    def concrete_shape(self, value):
        return tuple(int(np.prod(one.places)) * self.size if isinstance(one, Batch) else one
                     for one in (value.dims if isinstance(value, Value) else value.shape))

    def meta_shape(self, item=None):
        """The shape of the tensor that the node in hand yields, with the symbol of the batch in it."""
        meta = self.node.meta["val"]
        return (meta if item is None else meta[item]).shape

    def emit(self, op, inputs, shape, dims=None, parameters=(), /, **keys):
        """A line of values `inputs` whose sample has `shape`; dims: of the tensor [the batch first, then shape]."""
        shape = tuple(int(one) for one in shape) or (1,)
        inputs = tuple(one.line for one in inputs)
        line = self.lines.add(op, inputs, shape, parameters, self.name(), **keys)
        return Value(line, tuple(dims) if dims is not None else (Batch(), *shape))

    def elementwise(self, op, value, **keys):
        value = self.value(value)
        return self.emit(op, (value,), value.shape, value.dims, **keys)

    def value(self, one, whole=False):
        """Any operand as a Value: a parameter or a constant becomes a line; whole: of whole numbers, as they are."""
        if isinstance(one, Value):
            return one
        if isinstance(one, Parameter):
            if one.name not in self.rows:
                self.rows[one.name] = self.emit("parameter", (), one.shape, one.shape, (one.name,))
            return self.rows[one.name]
        if isinstance(one, Constant):
            return self._constant(one, whole)
        return self.refuse("random numbers other than dropout" if isinstance(one, Noise) else LACKS)

    def _constant(self, one, whole):
        """A constant, the same for every sample where it has the size of the batch."""
        tensor, dims = one.tensor, tuple(one.tensor.shape)
        if tensor.is_complex():
            self.refuse("complex numbers")
        if one.batch is not None:  # in front of what is folded with it
            inner, rest = divmod(dims[one.batch], self.size)
            if rest:
                self.refuse("an operation that mixes samples of the batch")
            batches = tensor.unflatten(one.batch, (self.size, inner))
            tensor = batches.select(one.batch, 0)
            if not torch.equal(tensor.unsqueeze(one.batch).expand_as(batches), batches):
                self.refuse("the result for a sample depends on its place in the batch")
            batch = Batch((), (inner,) if inner > 1 else ())
            tensor = tensor if inner > 1 else tensor.squeeze(one.batch)
            dims = (*dims[:one.batch], batch, *dims[one.batch + 1:])
        array = tensor.detach().cpu().to(torch.int64 if whole else self.kind).numpy()
        return Value(self.lines.constant(array.reshape(array.shape or (1,))), dims)

    def _operand(self, node):
        """What an operation sees of the value of a node: constants say where they have the batch."""
        value = self.values[node]
        if not isinstance(value, torch.Tensor):
            return value
        return Constant(value, next((dim for dim, length in enumerate(node.meta["val"].shape)
                                     if not is_fixed(length)), None))

    def weight(self, one, what):
        """The name of a parameter that a layer reads as it is; None stays None."""
        if one is None:
            return None
        if not isinstance(one, Parameter):
            self.refuse(f"{what} is computed, or no parameter of the module (affine=False?)")
        return one.name

    def buffer_name(self, argument):
        """The name of the buffer that the node in hand has as this argument."""
        name = self._buffer_name(self.arguments[argument])
        if name not in self.buffers:
            self.refuse(f"{argument} is no buffer of the module")
        return name

    def first(self, value, ndim=None):
        """A value whose batch stands alone in front, as layers with channels need it."""
        value = self.value(value)
        if not value.first or (ndim is not None and len(value.dims) != ndim):
            self.refuse(f"a batch that is not the first of {ndim or 'its'} dimensions, so that samples would mix")
        return value

    def reshaped(self, value, dims):
        """The same numbers with other dimensions."""
        shape, line = sample_shape(dims), self.lines[value.line]
        if shape == value.shape:
            return Value(value.line, tuple(dims))
        if line.op == "constant":
            held = self.lines.constants[line.keys["constant"]]
            return Value(self.lines.constant(held.reshape(shape)), tuple(dims))
        if line.op == "reshape":  # of what it was before
            value = Value(line.inputs[0], self.lines[line.inputs[0]].shape)
            if shape == value.shape:
                return Value(value.line, tuple(dims))
        return self.emit("reshape", (value,), shape, dims)

    def permuted(self, value, axes, dims):
        """A sample's dimensions in the order `axes`, for a tensor of dimensions `dims`."""
        line, axes = self.lines[value.line], list(axes)
        if line.op == "permute":  # both in one
            axes = [line.keys["dims"][axis] for axis in axes]
            value = Value(line.inputs[0], self.lines[line.inputs[0]].shape)
        longer = [axis for axis in axes if value.shape[axis] != 1]
        if longer == sorted(longer):
            return self.reshaped(value, dims)
        return self.emit("permute", (value,), sample_shape(dims), dims, dims=axes)

    def viewed(self, value, shape):
        """A view of the tensor with this symbolic shape."""
        value = self.value(value)
        at = value.batch
        if at is None:
            if not all(map(is_fixed, shape)):
                self.refuse("a view that mixes samples")
            return self.reshaped(value, tuple(map(int, shape)))
        before = int(np.prod(value.dims[:at] + value.dims[at].outer, dtype=np.int64))
        dims = dims_of(shape, self.symbol, before)
        if dims is None or not any(isinstance(one, Batch) for one in dims):
            self.refuse("a view that mixes samples")
        return self.reshaped(value, dims)
