"""Lines of a model file in the making, and values that know where a tensor of the traced module has its batch.

PyTorch's tensors have the batch somewhere: first, behind the time, or folded with heads or places into one dimension.
Lines speak of one sample. A Value is both: the line, and the dimensions of the tensor that it stands for.
"""

import dataclasses
import itertools
import math

import numpy as np

from .errors import ConfigError

WAY_OUT = ("change it, or train the module one client after the other, as a TorchScript file with "
           "model.backend=autograd")
SHAPED = ("input", "parameter", "constant", "reshape", "expand")  #: lines that say the shape of what they yield
#: What a key is where a line leaves it out; one number stands for as many as the key has.
DEFAULTS = {
    "convolution": {"stride": 1, "padding": 0, "dilation": 1, "groups": 1},
    "batch_norm": {"epsilon": 1e-5, "momentum": 0.1}, "group_norm": {"epsilon": 1e-5}, "layer_norm": {"epsilon": 1e-5},
    "gelu": {"tanh": 0}, "leaky_relu": {"slope": 0.01}, "elu": {"alpha": 1}, "softplus": {"beta": 1, "threshold": 20},
    "max_pool": {"padding": 0, "dilation": 1, "ceil": 0},
    "average_pool": {"padding": 0, "ceil": 0, "count_padding": 1}, "dropout": {"channels": 0}, "lstm": {"reverse": 0},
    "gru": {"reverse": 0}, "affine": {"factor": 1, "shift": 0}, "parameter": {"norm": 0},
}


def refuse(what, place="", todo=WAY_OUT):
    """Raises ConfigError: `what` is wrong at `place`, and what to do about it."""
    raise ConfigError(f"the module cannot be exported: {what}{' in ' + place if place else ''}; {todo}")


def name_of_kind(kind):
    return str(kind).removeprefix("torch.")


@dataclasses.dataclass(frozen=True)
class Batch:
    """The dimension of a tensor that holds the batch: row-major of `outer`, the batch and `inner`."""

    outer: tuple = ()
    inner: tuple = ()

    @property
    def places(self):
        """Dimensions of a sample that are folded into this one."""
        return self.outer + self.inner


@dataclasses.dataclass(frozen=True)
class Value:
    """What a line yields, and the tensor of the traced module that is this for every sample.

    dims: lengths of the tensor's dimensions; one of them is a Batch, or none where all samples share the value.
    """

    line: int
    dims: tuple

    @property
    def batch(self):
        """The dimension with the batch, None where there is none."""
        return next((at for at, length in enumerate(self.dims) if isinstance(length, Batch)), None)

    @property
    def folded(self):
        return self.batch is not None and bool(self.dims[self.batch].places)

    @property
    def shape(self):
        """Of a sample, as the line has it."""
        return sample_shape(self.dims)

    @property
    def first(self):
        """True where the batch stands alone in dimension 0."""
        return self.batch == 0 and not self.folded

    def axes(self, dim):
        """The dimensions of a sample that dimension `dim` of the tensor stands for."""
        dim %= len(self.dims)
        start = len(places_of(self.dims[:dim]))
        return list(range(start, start + len(places_of(self.dims[dim:dim + 1]))))


MISSING = object()  #: what a value of the traced module is that no line yields


class Parameter:
    """A parameter as the module has it."""

    def __init__(self, name, shape):
        self.name, self.shape = name, tuple(shape)


class Constant:
    """A tensor that depends on neither the input nor parameters; `batch` is the dimension with the batch, or None.

    name: of the buffer that it is, or empty.
    """

    def __init__(self, tensor, batch=None, name=""):
        self.tensor, self.batch, self.name = tensor, batch, name

    def map(self, function):
        """The constant of other numbers, in the same shape."""
        return Constant(function(self.tensor), self.batch)


@dataclasses.dataclass(frozen=True)
class Noise:
    """A random number of each sample: `factor` with probability `keep`, else 0. `drawn`: the node that drew it."""

    keep: float
    drawn: object
    factor: float = 1.0


def is_fixed(length):
    """Whether a length of a traced tensor is a number whatever the batch is."""
    return not hasattr(length, "node") or length.node.expr.is_Integer


def places_of(dims):
    """The lengths of a sample's dimensions in a tensor with these dimensions."""
    return tuple(itertools.chain.from_iterable(one.places if isinstance(one, Batch) else (one,) for one in dims))


def sample_shape(dims):
    """The shape of a sample in the file, where a single number is [1]."""
    return places_of(dims) or (1,)


def dims_of(shape, symbol, folds=None):
    """Dimensions of a tensor of `shape`, where `symbol` is the batch; None where they mix samples.

    folds: the numbers of a sample that stand before the batch. Without it none do.
    """
    import sympy

    dims, before, found = [], 1, False
    for length in shape:
        expression = sympy.simplify(length.node.expr) if hasattr(length, "node") else sympy.Integer(int(length))
        if expression.is_Integer:
            dims.append(int(expression))
            before *= 1 if found else int(expression)
            continue
        factor = sympy.simplify(expression / symbol)
        if found or not factor.is_Integer:
            return None
        found, outer = True, 1 if folds is None else folds // before
        if outer == 0 or folds not in (None, before * outer) or int(factor) % outer:
            return None
        inner = int(factor) // outer
        dims.append(Batch((outer,) if outer > 1 else (), (inner,) if inner > 1 else ()))
    return tuple(dims)


@dataclasses.dataclass
class Line:
    """One line of the file; shape is that of its value, of one sample."""

    op: str
    inputs: tuple
    shape: tuple
    keys: dict
    parameters: tuple = ()
    name: str = ""
    place: float = 0.0  # among all lines that were made
    of: str = ""  # the place in the module and the user's line

    def text(self):
        keys = {"shape": self.shape} if self.op in SHAPED else {}
        defaults = DEFAULTS.get(self.op, {})
        for key, value in self.keys.items():
            numbers = value if isinstance(value, (tuple, list)) else [value]
            default = [defaults.get(key)] * len(numbers)
            if key == "stride" and "pool" in self.op:
                default = self.keys["kernel"]
            if list(numbers) != list(default):
                keys[key] = value
        if self.inputs:
            keys["inputs"] = self.inputs
        if self.parameters:
            keys["parameters"] = self.parameters
        if self.name:
            keys["name"] = self.name
        return " ".join([self.op, *(f"{key}={text_of(value)}" for key, value in keys.items())])


def text_of(value):
    if isinstance(value, (tuple, list)):
        return ",".join(map(text_of, value))
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(value)
    return str(value)


class Lines:
    """All lines so far, and the constants that they name."""

    def __init__(self):
        self.lines, self.constants = [], {}

    def __getitem__(self, line):
        return self.lines[line]

    def add(self, op, inputs=(), shape=(), parameters=(), name="", /, **keys):
        """Adds a line; returns its number."""
        self.lines.append(Line(op, tuple(inputs), tuple(shape), keys, tuple(parameters), name, len(self.lines)))
        return len(self.lines) - 1

    def constant(self, array):
        """The line of a constant [...]; equal ones share it. A copy: forward may change its tensor in place later."""
        array = np.array(array, order="C")
        for at, line in enumerate(self.lines):
            if line.op == "constant" and line.shape == array.shape:
                known = self.constants[line.keys["constant"]]
                if known.dtype == array.dtype and known.tobytes() == array.tobytes():
                    return at
        key = f"c{len(self.constants)}"
        self.constants[key] = array
        return self.add("constant", (), array.shape, constant=key)

    def finish(self, last):
        """Leaves the lines on which line `last` depends, in order, attention fused; the input is line 0."""
        self._fuse_attention(self.needed(last))
        needed = self.needed(last)
        number = {old: new for new, old in enumerate(sorted(needed, key=lambda line: self.lines[line].place))}
        self.lines = [dataclasses.replace(self.lines[old], inputs=tuple(number[one] for one in self.lines[old].inputs))
                      for old in number]
        kept = {}
        for line in self.lines:
            if line.op == "constant":
                old, new = line.keys["constant"], f"c{len(kept)}"
                kept[new], line.keys = self.constants[old], {**line.keys, "constant": new}
        self.constants = kept

    def apart(self, other):
        """The first lines, of these and of others, that are not the same; None for what is not there, or nowhere."""
        for a, b in itertools.zip_longest(self.lines, other.lines):
            if a is None or b is None or a.text() != b.text() or a.op == "constant" and not np.array_equal(
                    self.constants[a.keys["constant"]], other.constants[b.keys["constant"]], equal_nan=True):
                return a, b
        return None, None

    def needed(self, last):
        """The lines on which `last` depends."""
        needed, todo = set(), [last]
        while todo:
            line = todo.pop()
            if line not in needed:
                needed.add(line)
                todo += self.lines[line].inputs
        return needed

    def _fuse_attention(self, needed):
        """matmul(dropout(softmax(scale matmul(q, k^T) + mask)), v) becomes a line of attention."""
        uses = [0] * len(self.lines)
        for line in needed:
            for one in self.lines[line].inputs:
                uses[one] += 1
        for at in sorted(needed):
            if self.lines[at].op == "matmul":
                found = self._attention(at, uses)
                if found is not None:
                    self.lines[at] = found

    def _attention(self, at, uses):
        """The line of attention that ends in the product `at`, None where it ends none."""
        product = self.lines[at]
        below, value = product.inputs
        dropout, below = self._above(below, "dropout", uses)
        softmax, below = self._above(below, "softmax", uses)
        if softmax is None or softmax.keys["dim"] != len(softmax.shape) - 1 or (dropout and dropout.keys["channels"]):
            return None
        mask = None
        if self.lines[below].op == "add" and uses[below] == 1:
            for one, other in (self.lines[below].inputs, self.lines[below].inputs[::-1]):
                if self._scores(one, uses) and mask is None:
                    mask, below = other, one
        scores = self._scores(below, uses)
        if scores is None:
            return None
        query, key, scale = scores
        inputs = [query, self._transposed(key, product), value]
        keys = {"scale": scale}
        if mask is not None:
            size, of_mask = softmax.shape[-2:], self.lines[mask].shape
            if of_mask != softmax.shape:
                if of_mask[-2:] != size or math.prod(of_mask) != math.prod(size):
                    return None
                if len(of_mask) > 2:
                    mask = self.add("reshape", (mask,), size)
                    self.lines[mask].place = product.place - 0.25
            if self.causal(mask):
                keys["causal"] = True
            else:
                inputs.append(mask)
        if dropout is not None:
            keys["dropout"] = dropout.keys["p"]
        return Line("attention", tuple(inputs), product.shape, keys, (), product.name, product.place, product.of)

    def _above(self, line, op, uses):
        """The line and its input where it is `op` and nothing else uses it, else None and the number as it was."""
        found = self.lines[line]
        return (found, found.inputs[0]) if found.op == op and uses[line] == 1 else (None, line)

    def _scores(self, line, uses):
        """(q, k^T, scale) of scale matmul(q, k^T), None where `line` is something else."""
        scale = 1.0
        while self.lines[line].op == "affine" and uses[line] == 1 and not self.lines[line].keys["shift"]:
            scale *= self.lines[line].keys["factor"]
            line = self.lines[line].inputs[0]
        if self.lines[line].op != "matmul" or uses[line] != 1:
            return None
        query, key = self.lines[line].inputs
        if self.lines[query].op == "affine" and uses[query] == 1 and not self.lines[query].keys["shift"]:
            scale *= self.lines[query].keys["factor"]
            query = self.lines[query].inputs[0]
        return query, key, scale

    def _transposed(self, line, product):
        """The line of `line` [..., E, S] with its last two dimensions exchanged."""
        dims = list(range(len(self.lines[line].shape)))
        if self.lines[line].op == "permute":
            dims, line = list(self.lines[line].keys["dims"]), self.lines[line].inputs[0]
        dims[-2:] = dims[:-3:-1]
        if dims == sorted(dims):
            return line
        shape = [self.lines[line].shape[dim] for dim in dims]
        new = self.add("permute", (line,), shape, (), product.name, dims=dims)
        self.lines[new].place = product.place - 0.5
        return new

    def causal(self, line):
        """True for the constant mask [L, L] that is 0 up to the diagonal and -inf above it."""
        if self.lines[line].op == "reshape":
            line = self.lines[line].inputs[0]
        if self.lines[line].op != "constant":
            return False
        mask = self.constants[self.lines[line].keys["constant"]]
        mask = mask.reshape(mask.shape[-2:]) if mask.ndim >= 2 and mask.size == math.prod(mask.shape[-2:]) else mask
        if mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
            return False
        return np.array_equal(mask, np.where(np.tri(len(mask), dtype=bool), 0.0, -np.inf))
