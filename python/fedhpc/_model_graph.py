"""From a module of PyTorch to the lines of a model file, by torch.export.

A node of the exported graph becomes a Value where it depends on the input or on parameters. All else is carried out as
it stands, on a batch of some size, and becomes a constant where a Value needs it. The graph is walked with two sizes of
the batch: a module whose lines differ between them depends on it.
"""

import math
import operator
import re

import numpy as np
import torch

from . import _model_layers, _model_shapes  # noqa: F401  they fill OPERATIONS
from ._model_lines import (
    MISSING, Batch, Constant, Lines, Noise, Parameter, Value, dims_of, is_fixed, name_of_kind, refuse,
    sample_shape)
from ._model_operations import EMPTY, IGNORED, OPERATIONS, VIEWS, name_of
from ._model_tracing import OWN, TORCH, checked_parameters, example_of, exported
from .errors import ConfigError

LACKS = {"lstm": "the last cell state of an LSTM", "max": "the place of a maximum"}
#: These make NaN or inf of the -inf that a mask may hold.
NO_MASKS = {"sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide", "matmul", "mm", "bmm",
            "linear", "einsum"}
RANDOM = re.compile("rand|bernoulli|normal|uniform|exponential|poisson|multinomial")


def trace(module, example):
    """The Lines of a module, and {name: tensor} of its weights: parameters and statistics of batch norm."""
    module = getattr(module, "_orig_mod", module)  # what torch.compile has wrapped
    parameters = checked_parameters(module)
    kind = next(iter(parameters.values())).dtype
    batch = example_of(module, example, kind).to(next(iter(parameters.values())).device)
    program, by_mode = exported(module, batch)
    one, other = (Walk(program, module, kind, size) for size in (len(batch), len(batch) + 1))
    a, b = one.lines.apart(other.lines)
    if a and b:
        refuse("the result for a sample depends on how many samples the batch has", a.name)
    if a or b:
        refuse("what is computed depends on how many samples the batch has")
    if by_mode:
        check_testing(module, batch, kind, Walk(program, module, kind, len(batch), noisy=False).lines)
    unused = [name for name in parameters if name not in one.used]
    if unused:
        refuse(f"the output does not depend on parameter {unused[0]}, which would get no gradient",
               todo="remove it, or use it in forward")
    tensors = {**parameters, **dict(module.named_buffers())}
    return one.lines, {name: tensor for name, tensor in tensors.items() if name in one.used}


def check_testing(module, batch, kind, trained):
    """Refuses a module that in eval() computes something else than the lines `trained`, which are without dropout."""
    try:
        program, _ = exported(module, batch, training=False)
        tested = Walk(program, module, kind, len(batch), noisy=False).lines
    except ConfigError as error:
        raise ConfigError(str(error).replace("exported: ", "exported: in eval(), as it is tested, ", 1)) from None
    a, b = trained.apart(tested)
    if a or b:
        refuse("forward computes something else in eval() than in train(), apart from dropout and batch norm,",
               (a if b is None or a and len(trained.lines) >= len(tested.lines) else b).of,
               "leave out what depends on self.training")


class Walk:
    """One walk through the graph, with a batch of `size` samples; noisy: with dropout, and batch norm that trains."""

    def __init__(self, program, module, kind, size, noisy=True):
        self.program, self.kind, self.size, self.noisy = program, kind, size, noisy
        self.lines, self.used = Lines(), {}  # used: {name of a parameter: place}
        self.values, self.alias, self.tensor_of = {}, {}, {}  # of nodes: what they are; memory and tensor they share
        self.classes = {name: type(one).__name__ for name, one in module.named_modules()}
        self.buffers = dict(module.named_buffers(remove_duplicate=False))
        self.rows = {}  # {name: Value} of parameters that are lines
        self.lacking = {}  # {node: the one that yielded the value that no line yields, on which it depends}
        self.dropped = set()  # nodes that drew numbers by which samples are dropped
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
            if self.values[node] is MISSING:
                self.lacking[node] = self.lacking.get(of, of)
            return
        arguments = node.all_input_nodes
        traced = any(isinstance(self.values[one], (Value, Parameter, Noise)) for one in arguments)
        name = name_of(node)
        if name in IGNORED:
            self.values[node] = None
        elif any(self.values[one] is MISSING for one in arguments):
            self.values[node] = MISSING
            self.lacking[node] = next(self.lacking[one] for one in arguments if one in self.lacking)
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
        keep = None
        if name == "bernoulli_":
            keep = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
        dims = dims_of(node.meta["val"].shape, self.symbol)
        if not isinstance(keep, float) or dims is None or dims[:1] != (Batch(),) or any(one != 1 for one in dims[1:]):
            self.refuse(f"random numbers by {name}, other than dropout")
        self._written_to(node, node.args[0], Noise(keep, node))

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
                self.refuse(f"{name} makes numbers of type {name_of_kind(one.dtype)}, and the parameters are "
                            f"{name_of_kind(self.kind)}", "leave out the conversion")
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
        left_out = base in ("dropout", "feature_dropout") and not (named["p"] and named["train"])
        of = named.get("self", named.get("input")) if base in VIEWS or left_out else None
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
            self.node = self.lacking[outputs[0]]
            name = name_of(self.node)
            self.refuse(LACKS.get(name, f"a result of {name}") + ", which the format lacks,")
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
                    refuse(f"parameter {name} is used twice (tied weights), in {self.used[name]} and", line.name or line.of)
                self.used[name] = line.name or line.of

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
        if not all(math.isfinite(one) for one in keys.values() if isinstance(one, float)):
            self.refuse("a number that is not finite")
        line = self.lines.add(op, inputs, shape, parameters, self.name(), **keys)
        self.lines[line].of = self.place()
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
                self.rows[one.name] = self.emit("parameter", (), one.shape, one.shape, (one.name,), norm=self.in_norm(one.name))
            return self.rows[one.name]
        if isinstance(one, Constant):
            return self._constant(one, whole)
        return self.refuse("random numbers other than dropout" if isinstance(one, Noise) else
                           f"an operand of {name_of(self.node)} that the format lacks")

    def in_norm(self, parameter):
        """Whether a parameter is of a normalisation, told by the name of its module's class as for TorchScript files."""
        return self.classes.get(parameter.rpartition(".")[0], "").startswith(
            ("BatchNorm", "SyncBatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm"))

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
        if np.isnan(array).any() or (array == np.inf).any() or (
                name_of(self.node).rstrip("_") in NO_MASKS and not np.isfinite(array).all()):
            self.refuse(f"{one.name or 'a constant'}, which {name_of(self.node)} takes, holds NaN or infinite numbers,",
                        "give finite ones; -inf may be added, as masks are")
        line = self.lines.constant(array.reshape(array.shape or (1,)))
        self.lines[line].of = self.lines[line].of or self.place()
        return Value(line, dims)

    def _operand(self, node):
        """What an operation sees of the value of a node: constants say where they have the batch."""
        value = self.values[node]
        if not isinstance(value, torch.Tensor):
            return value
        batch = next((dim for dim, length in enumerate(node.meta["val"].shape) if not is_fixed(length)), None)
        held = self.alias.get(node, node).op == "placeholder"
        return Constant(value, batch, self._buffer_name(node) if held else "")

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
