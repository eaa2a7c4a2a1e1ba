"""What an operation of the exported graph becomes: arithmetic, activations, sums, and what all operations need.

There is one function an operation, under ATen's name. A function gets the Walk and the operation's arguments by ATen's
names. It returns a Value, or a tuple of them. Layers and shapes are in modules of their own.
"""

import dataclasses
import math
import numbers

import numpy as np
import torch

from ._model_lines import MISSING, Batch, Constant, Noise, Value, places_of, sample_shape

OPERATIONS = {}
#: Limits of numbers, also in a run with float32 of a module of float64.
TINY, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
#: These hold no value.
IGNORED = {"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range",
           "sym_constrain_range_for_size"}
#: These look at the shape of `self` only.
EMPTY = {"empty_like", "new_empty", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
#: What these yield shares the memory of `self`.
VIEWS = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t", "movedim",
         "moveaxis", "swapaxes", "swapdims", "numpy_T", "mT", "expand", "expand_as", "view_as", "reshape_as", "slice",
         "select", "narrow", "split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk",
         "unbind", "detach", "alias", "contiguous", "to", "type_as"}


def operation(*names):
    def keep(function):
        OPERATIONS.update(dict.fromkeys(names, function))
        return function
    return keep


def name_of(node):
    """ATen's name of what a node calls."""
    return getattr(getattr(node.target, "overloadpacket", node.target), "__name__", str(node.target))


def scalar(one, rank=0):
    """The number that an operand is everywhere, None where it has several or depends on the input."""
    if isinstance(one, numbers.Number):
        return float(one)
    tensor = getattr(one, "tensor", None)
    if tensor is not None and one.batch is None and tensor.numel() == 1 and tensor.ndim <= rank:
        return float(tensor)
    return None


def rank_of(one):
    return len(one.dims) if isinstance(one, Value) else len(one.shape) if hasattr(one, "shape") else 0


def ints(value, count):
    value = [value] if isinstance(value, int) else list(value)
    return value * count if len(value) == 1 else value


def broadcast(walk, *all_dims):
    """The dimensions of what tensors with these dimensions make together."""
    batches = {(at - len(dims), one) for dims in all_dims for at, one in enumerate(dims) if isinstance(one, Batch)}
    if len(batches) > 1:
        walk.refuse("an operation that mixes samples of the batch")
    made = []
    for at in range(-max(map(len, all_dims)), 0):
        lengths = [dims[at] for dims in all_dims if len(dims) >= -at]
        made.append(next((one for one in lengths if one != 1), 1))
        if any(isinstance(one, Batch) for one in lengths):
            if any(one != 1 and not isinstance(one, Batch) for one in lengths):
                walk.refuse("an operation that mixes samples of the batch")
    return tuple(made)


def beside(walk, value, dims):
    """A value whose samples broadcast to those of `dims` as its tensor does."""
    if value.batch is not None:
        return value
    mine = dims[len(dims) - len(value.dims):]
    return walk.reshaped(value, [one for length, new in zip(value.dims, mine)
                                 for one in ([1] * len(new.places) if isinstance(new, Batch) else [length])])


def widened(walk, value, dims):
    """A value repeated to the dimensions `dims`."""
    value, wide = beside(walk, value, dims), sample_shape(dims)
    if value.shape != wide:
        narrow = (*[1] * (len(wide) - len(value.shape)), *value.shape)
        value = walk.reshaped(Value(value.line, value.shape), narrow)
        if narrow != wide:
            value = walk.emit("expand", (value,), wide, wide)
    return Value(value.line, tuple(dims))


def aligned(walk, values):
    """The values with samples that broadcast as the tensors do, and the dimensions of what they make."""
    values = [walk.value(one) for one in values]
    dims = broadcast(walk, *(one.dims for one in values))
    return [beside(walk, one, dims) for one in values], dims


def elementwise_of_two(walk, op, one, other):
    values, dims = aligned(walk, (one, other))
    return walk.emit(op, values, sample_shape(dims), dims)


def affine(walk, value, factor=1.0, shift=0.0):
    value = walk.value(value)
    if factor == 1 and shift == 0:
        return value
    return walk.elementwise("affine", value, factor=float(factor), shift=float(shift))


def power(walk, value, exponent):
    return walk.elementwise("power", value, exponent=float(exponent))


def root(walk, value):
    """The square root of squares. Where they are 0 PyTorch's gradient of a norm is 0, and that of a power infinite."""
    return power(walk, affine(walk, value, 1, TINY), 0.5)


def permuted_sample(walk, value, order):
    """The value with the dimensions of a sample in this order; the batch is first."""
    return walk.permuted(value, order, (Batch(), *(value.shape[axis] for axis in order)))


def batch_free(walk, value, *dims):
    """The dimensions of a sample for dimensions of the tensor, among which the batch must not be."""
    dims = [dim % len(value.dims) for dim in dims]
    if value.batch in dims:
        walk.refuse("an operation over the batch, so that a sample's result depends on others,")
    return [axis for dim in dims for axis in value.axes(dim)]


def dims_among(value, dim):
    """Dimensions of the tensor as a list; all of them where none is said."""
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else list(range(len(value.dims)))
    return [one % len(value.dims) for one in dims]


# Arithmetic. A product with random numbers of samples is dropout.


@operation("add")
def add(walk, self, other, alpha=1, **_):
    if scalar(other, rank_of(self)) is not None:
        return affine(walk, self, 1, float(alpha) * scalar(other, rank_of(self)))
    if scalar(self, rank_of(other)) is not None:
        return affine(walk, other, alpha, scalar(self, rank_of(other)))
    return elementwise_of_two(walk, "add", self, affine(walk, other, alpha))


@operation("sub", "subtract")
def sub(walk, self, other, alpha=1, **_):
    if scalar(other, rank_of(self)) is not None or scalar(self, rank_of(other)) is not None:
        return add(walk, self, other, -float(alpha))
    return elementwise_of_two(walk, "subtract", self, affine(walk, other, alpha))


@operation("rsub")
def rsub(walk, self, other, alpha=1, **_):
    if scalar(other, rank_of(self)) is not None:
        return affine(walk, self, -float(alpha), scalar(other, rank_of(self)))
    return elementwise_of_two(walk, "subtract", other, affine(walk, self, alpha))


@operation("mul", "multiply")
def mul(walk, self, other, **_):
    for one, factor in ((self, other), (other, self)):
        if isinstance(factor, Noise):
            return drop_samples(walk, one, factor)
        if isinstance(one, Noise) and scalar(factor) is not None:
            return dataclasses.replace(one, factor=one.factor * scalar(factor))
        if scalar(factor, rank_of(one)) is not None:
            return affine(walk, one, scalar(factor, rank_of(one)))
    return elementwise_of_two(walk, "multiply", self, other)


@operation("div", "divide", "true_divide")
def div(walk, self, other, rounding_mode=None, **_):
    if rounding_mode is not None:
        walk.refuse(f"a division that rounds ({rounding_mode})")
    if scalar(other, rank_of(self)) == 0:
        walk.refuse("a division by 0")
    if isinstance(self, Noise) and scalar(other) is not None:
        return dataclasses.replace(self, factor=self.factor / scalar(other))
    if scalar(other, rank_of(self)) is not None:
        return affine(walk, self, 1 / scalar(other, rank_of(self)))
    if isinstance(other, Constant):
        return elementwise_of_two(walk, "multiply", self, other.map(lambda tensor: 1 / tensor.to(walk.kind)))
    inverse = power(walk, other, -1)
    if scalar(self, rank_of(other)) is not None:
        return affine(walk, inverse, scalar(self, rank_of(other)))
    return elementwise_of_two(walk, "multiply", self, inverse)


@operation("neg", "negative")
def neg(walk, self, **_):
    return affine(walk, self, -1)


@operation("pow")
def pow_(walk, self, exponent, **_):
    exponent = scalar(exponent)
    if not exponent or isinstance(self, numbers.Number):
        walk.refuse("a power whose exponent is no constant number other than 0")
    if exponent == 2:
        return square(walk, self)
    return affine(walk, self) if exponent == 1 else power(walk, self, exponent)


@operation("square")
def square(walk, self, **_):
    return elementwise_of_two(walk, "multiply", self, self)


for _name, _exponent in {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1}.items():
    OPERATIONS[_name] = lambda walk, self, _exponent=_exponent, **_: power(walk, self, _exponent)


@operation("addcmul")
def addcmul(walk, self, tensor1, tensor2, value=1, **_):
    return add(walk, self, mul(walk, tensor1, tensor2), value)


@operation("gt", "lt", "ge", "le", "eq", "ne", "isnan", "isinf", "nonzero", "argmax", "sign")
def choice(walk, **_):
    walk.refuse(f"{name_of(walk.node)}, a choice that depends on values of the input")


@operation("detach")
def detach(walk, **_):
    walk.refuse("detach, which stops the gradient")


@operation("where")
def where(walk, condition, self, other, **_):
    if not isinstance(condition, Constant):
        walk.refuse("where on values of the input or of parameters")
    for one, there, rest in ((self, condition, other), (other, condition.map(torch.logical_not), self)):
        if scalar(one) == -math.inf:
            return masked_fill(walk, rest, there, -math.inf)
    return add(walk, masked(walk, self, condition.map(torch.logical_not)), masked(walk, other, condition))


@operation("masked_fill")
def masked_fill(walk, self, mask, value, **_):
    if not isinstance(mask, Constant):
        walk.refuse("a mask that depends on values of the input")
    number = scalar(value)
    if number is None:
        walk.refuse("masked_fill with a value that is no constant number")
    added = mask.map(lambda tensor: torch.zeros(tensor.shape, dtype=walk.kind).masked_fill(tensor, number))
    # Beside -inf every number is nothing, and its gradient of softmax is 0.
    return add(walk, self if number == -math.inf else masked(walk, self, mask), added)


def masked(walk, value, mask):
    """value where mask is false, 0 elsewhere."""
    if scalar(value) is not None:
        return mask.map(lambda tensor: torch.full(tensor.shape, scalar(value), dtype=walk.kind).masked_fill(tensor, 0))
    if isinstance(value, Constant):
        return Constant(torch.where(mask.tensor, torch.zeros_like(value.tensor), value.tensor),
                           mask.batch if mask.batch is not None else value.batch)
    return elementwise_of_two(walk, "multiply", value, mask.map(lambda tensor: (~tensor).to(walk.kind)))


def drop(walk, value, p, channels):
    value = walk.value(value)
    if p == 0 or not walk.noisy:
        return value
    if value.batch is None:
        walk.refuse("dropout of a value that all samples share", "drop out after it meets the samples")
    return walk.elementwise("dropout", value, p=float(p), channels=channels)


def drop_samples(walk, value, noise):
    """Whole samples dropped: all that a sample has is one channel."""
    value = walk.first(value)
    if not math.isclose(noise.keep * noise.factor, 1):
        walk.refuse("random numbers whose mean is not 1, other than dropout")
    if noise.drawn in walk.dropped:
        walk.refuse("random numbers of samples that are used twice", "draw anew for the second use")
    walk.dropped.add(noise.drawn)
    if not walk.noisy:
        return value
    one = walk.reshaped(value, (Batch(), 1, math.prod(value.shape)))
    return walk.reshaped(drop(walk, one, 1 - noise.keep, True), value.dims)


# Activations.

for _name in ("relu", "silu", "tanh", "sigmoid", "hardswish"):
    OPERATIONS[_name] = lambda walk, self, _name=_name, **_: walk.elementwise(_name, self)


@operation("abs", "absolute")
def absolute(walk, self, **_):
    return add(walk, walk.elementwise("relu", self), walk.elementwise("relu", neg(walk, self)))


@operation("maximum", "minimum")
def maximum(walk, self, other, **_):
    smaller = "min" in name_of(walk.node)
    for one, bound in ((self, other), (other, self)):
        number = scalar(bound, rank_of(one))
        if number is not None:
            return clamp(walk, one, *((None, number) if smaller else (number, None)))
    above = walk.elementwise("relu", sub(walk, self, other))
    return sub(walk, self, above) if smaller else add(walk, other, above)


@operation("gelu")
def gelu(walk, self, approximate="none", **_):
    return walk.elementwise("gelu", self, tanh=approximate == "tanh")


@operation("leaky_relu")
def leaky_relu(walk, self, negative_slope=0.01, **_):
    if negative_slope < 0:
        walk.refuse("leaky_relu with a negative slope")
    return walk.elementwise("leaky_relu", self, slope=float(negative_slope))


@operation("elu")
def elu(walk, self, alpha=1, scale=1, input_scale=1, **_):
    if alpha < 0 or input_scale != 1:
        walk.refuse("elu with a negative alpha or a scale of its input")
    return affine(walk, walk.elementwise("elu", self, alpha=float(alpha)), scale)


@operation("selu")
def selu(walk, self, **_):
    return elu(walk, self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@operation("celu")
def celu(walk, self, alpha=1.0, **_):
    if alpha < 0:
        walk.refuse("celu with a negative alpha")
    return affine(walk, elu(walk, affine(walk, self, 1 / alpha)), alpha)


@operation("softplus")
def softplus(walk, self, beta=1, threshold=20, **_):
    return walk.elementwise("softplus", self, beta=float(beta), threshold=float(threshold))


@operation("log_sigmoid")
def log_sigmoid(walk, self, **_):
    return neg(walk, softplus(walk, neg(walk, self)))


@operation("mish")
def mish(walk, self, **_):
    return elementwise_of_two(walk, "multiply", self, walk.elementwise("tanh", softplus(walk, self)))


@operation("clamp", "clip", "clamp_min", "clamp_max")
def clamp(walk, self, min=None, max=None, **_):
    bounds = -LARGEST if min is None else scalar(min, math.inf), LARGEST if max is None else scalar(max, math.inf)
    if None in bounds:
        walk.refuse("a clamp to values that are no constant numbers")
    low, high = np.clip(bounds, -LARGEST, LARGEST)
    if not low < high:
        walk.refuse(f"a clamp from {low} to {high}")
    if (low, high) == (-LARGEST, LARGEST):
        return affine(walk, self)
    if (low, high) == (0, LARGEST):
        return walk.elementwise("relu", self)
    return walk.elementwise("hardtanh", self, low=float(low), high=float(high))


OPERATIONS["hardtanh"] = lambda walk, self, min_val=-1, max_val=1, **_: clamp(walk, self, min_val, max_val)
OPERATIONS["relu6"] = lambda walk, self, **_: clamp(walk, self, 0, 6)
OPERATIONS["hardsigmoid"] = lambda walk, self, **_: clamp(walk, affine(walk, self, 1 / 6, 0.5), 0, 1)


@operation("prelu", "_prelu_kernel")
def prelu(walk, self, weight, **_):
    value, slopes = walk.value(self), walk.value(weight)
    if len(value.dims) > 2 and len(slopes.dims) == 1:
        slopes = walk.reshaped(slopes, (*slopes.dims, *[1] * (len(value.dims) - 2)))
    positive = walk.elementwise("relu", value)
    negative = elementwise_of_two(walk, "subtract", value, positive)
    return elementwise_of_two(walk, "add", positive, elementwise_of_two(walk, "multiply", slopes, negative))


@operation("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(walk, self, dim, **_):
    value = walk.value(self)
    op = "log_softmax" if "log" in name_of(walk.node) else "softmax"
    return walk.elementwise(op, value, dim=batch_free(walk, value, dim)[0])


# Sums.


def reduced(walk, op, self, dim, keepdim):
    value = walk.value(self)
    dims = dims_among(value, dim)
    axes = batch_free(walk, value, *dims)
    kept = tuple(1 if at in dims else one for at, one in enumerate(value.dims))
    left = tuple(one for at, one in enumerate(value.dims) if at not in dims)
    if not places_of(left):  # the line has the number in a dimension of its own
        value = walk.emit("reshape", (value,), (1, *value.shape))
        result = walk.emit(op, (value,), (1,), None, dims=[axis + 1 for axis in axes])
        return walk.reshaped(result, kept if keepdim else left)
    result = walk.emit(op, (value,), sample_shape(left), left, dims=axes)
    return walk.reshaped(result, kept) if keepdim else result


@operation("mean")
def mean(walk, self, dim=None, keepdim=False, **_):
    return reduced(walk, "mean", self, dim, keepdim)


@operation("sum")
def sum_(walk, self, dim=None, keepdim=False, **_):
    return reduced(walk, "sum", self, dim, keepdim)


@operation("var", "std")
def variance(walk, self, dim=None, correction=None, unbiased=True, keepdim=False, **_):
    value = walk.value(self)
    dims = dims_among(value, dim)
    correction = (1 if unbiased else 0) if correction is None else correction
    centred = sub(walk, value, mean(walk, value, dims, True))
    count = math.prod(value.shape[axis] for axis in batch_free(walk, value, *dims))
    if count <= correction:
        walk.refuse(f"a variance of {count} numbers with correction {correction}")
    result = affine(walk, mean(walk, square(walk, centred), dims, keepdim), count / (count - correction))
    return root(walk, result) if "std" in name_of(walk.node) else result


@operation("linalg_vector_norm", "norm")
def norm(walk, self, ord=2, p=2, dim=None, keepdim=False, **_):
    if scalar(ord) != 2 or scalar(p) != 2:
        walk.refuse("a norm other than the Euclidean one")
    return root(walk, sum_(walk, square(walk, self), dim, keepdim))


@operation("amax", "max")
def amax(walk, self, dim=None, keepdim=False, other=None, **_):
    if other is not None:
        return maximum(walk, self, other)
    value = walk.value(self)
    dims = dims_among(value, dim)
    if len(dims) != 1:
        walk.refuse("a maximum over several dimensions")
    at, = dims
    axis, = batch_free(walk, value, at)
    rest = [one for one in range(len(value.shape)) if one != axis]
    left = tuple(one for dim, one in enumerate(value.dims) if dim != at)
    moved = Value(value.line, (Batch(), *value.shape))
    moved = permuted_sample(walk, moved, [*rest, axis])
    count = math.prod(value.shape[one] for one in rest)
    moved = walk.reshaped(moved, (Batch(), count, value.shape[axis]))
    result = walk.emit("adaptive_max_pool", (moved,), (count, 1), None, out=(1,))
    kept = tuple(1 if dim == at else one for dim, one in enumerate(value.dims))
    if value.batch is None:
        walk.refuse("a maximum of parameters")
    result = walk.reshaped(result, kept if keepdim else left)
    return (result, MISSING) if name_of(walk.node) == "max" else result
