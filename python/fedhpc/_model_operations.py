"""What each operation of the exported graph becomes: one function an operation, named as ATen names it.

A function gets the Walk and the operation's arguments by ATen's names. It returns a Value, or a tuple of them.
"""

import math
import numbers

import torch

from ._model_lines import MISSING, Batch, Constant, Noise, Parameter, Value, is_fixed, places_of, sample_shape

OPERATIONS = {}
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


def batch_free(walk, value, *dims):
    """The dimensions of a sample for dimensions of the tensor, among which the batch must not be."""
    dims = [dim % len(value.dims) for dim in dims]
    if value.batch in dims:
        walk.refuse("an operation over the batch, so that a sample's result depends on others,")
    return [axis for dim in dims for axis in value.axes(dim)]


# Arithmetic.


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
            return Noise(one.keep, one.factor * scalar(factor))
        if scalar(factor, rank_of(one)) is not None:
            return affine(walk, one, scalar(factor, rank_of(one)))
    return elementwise_of_two(walk, "multiply", self, other)


@operation("div", "divide", "true_divide")
def div(walk, self, other, rounding_mode=None, **_):
    if rounding_mode is not None:
        walk.refuse(f"a division that rounds ({rounding_mode})")
    if isinstance(self, Noise) and scalar(other) is not None:
        return Noise(self.keep, self.factor / scalar(other))
    if scalar(other, rank_of(self)) is not None:
        return affine(walk, self, 1 / scalar(other, rank_of(self)))
    if isinstance(other, Constant):
        return elementwise_of_two(walk, "multiply", self, other.map(lambda tensor: 1 / tensor))
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
    if exponent is None or isinstance(self, numbers.Number):
        walk.refuse("a power whose exponent is no constant number")
    if exponent == 2:
        return elementwise_of_two(walk, "multiply", self, self)
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
    walk.refuse(f"{walk.node.target.__name__.partition('.')[0]}, a choice that depends on values of the input")


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
    added = mask.map(lambda tensor: torch.where(tensor, number, 0.0).to(walk.kind))
    # Beside -inf every number is nothing, and its gradient of softmax is 0.
    return add(walk, self if number == -math.inf else masked(walk, self, mask), added)


def masked(walk, value, mask):
    """value where mask is false, 0 elsewhere."""
    if scalar(value) is not None:
        return mask.map(lambda tensor: torch.where(tensor, 0.0, scalar(value)).to(walk.kind))
    if isinstance(value, Constant):
        return Constant(torch.where(mask.tensor, torch.zeros_like(value.tensor), value.tensor),
                           mask.batch if mask.batch is not None else value.batch)
    return elementwise_of_two(walk, "multiply", value, mask.map(lambda tensor: (~tensor).to(walk.kind)))


# Activations.

for _name in ("relu", "silu", "tanh", "sigmoid", "hardswish"):
    OPERATIONS[_name] = lambda walk, self, _name=_name, **_: walk.elementwise(_name, self)


@operation("gelu")
def gelu(walk, self, approximate="none", **_):
    return walk.elementwise("gelu", self, tanh=approximate == "tanh")


@operation("leaky_relu")
def leaky_relu(walk, self, negative_slope=0.01, **_):
    return walk.elementwise("leaky_relu", self, slope=float(negative_slope))


@operation("elu")
def elu(walk, self, alpha=1, scale=1, input_scale=1, **_):
    value = walk.elementwise("elu", affine(walk, self, input_scale), alpha=float(alpha))
    return affine(walk, value, scale)


@operation("selu")
def selu(walk, self, **_):
    return elu(walk, self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@operation("celu")
def celu(walk, self, alpha=1.0, **_):
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


@operation("hardtanh")
def hardtanh(walk, self, min_val=-1, max_val=1, **_):
    if not (math.isfinite(min_val) and math.isfinite(max_val)):
        return clamp(walk, self, min_val, max_val)
    return walk.elementwise("hardtanh", self, low=float(min_val), high=float(max_val))


@operation("relu6")
def relu6(walk, self, **_):
    return hardtanh(walk, self, 0, 6)


@operation("hardsigmoid")
def hardsigmoid(walk, self, **_):
    return hardtanh(walk, affine(walk, self, 1 / 6, 0.5), 0, 1)


@operation("clamp", "clip", "clamp_min", "clamp_max")
def clamp(walk, self, min=None, max=None, **_):
    min, max = (None if scalar(one) in (-math.inf, math.inf) else one for one in (min, max))
    low, high = scalar(min), scalar(max)
    if (min is not None and low is None) or (max is not None and high is None):
        walk.refuse("a clamp to values that are no constant numbers")
    if low is not None and high is not None:
        return hardtanh(walk, self, low, high)
    if low is None and high is None:
        return affine(walk, self)
    if low is not None:
        return affine(walk, walk.elementwise("relu", affine(walk, self, 1, -low)), 1, low)
    return affine(walk, walk.elementwise("relu", affine(walk, self, -1, high)), -1, high)


@operation("prelu", "_prelu_kernel")
def prelu(walk, self, weight, **_):
    value, slopes = walk.value(self), walk.value(weight)
    if len(value.dims) > 2 and len(slopes.dims) == 1:
        slopes = walk.reshaped(slopes, (*slopes.dims, *[1] * (len(value.dims) - 2)))
    positive = walk.elementwise("relu", value)
    negative = elementwise_of_two(walk, "subtract", value, positive)
    return elementwise_of_two(walk, "add", positive, elementwise_of_two(walk, "multiply", slopes, negative))


@operation("glu")
def glu(walk, self, dim=-1, **_):
    one, other = chunk(walk, self, 2, dim)
    return elementwise_of_two(walk, "multiply", one, walk.elementwise("sigmoid", other))


@operation("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(walk, self, dim, **_):
    value = walk.value(self)
    op = "log_softmax" if "log" in walk.node.target.__name__ else "softmax"
    return walk.elementwise(op, value, dim=batch_free(walk, value, dim)[0])


# Layers with parameters.


@operation("linear")
def linear(walk, input, weight, bias=None, **_):
    value = walk.value(input)
    if not isinstance(weight, Parameter) or not isinstance(bias, (Parameter, type(None))):
        product = matmul(walk, value, transposed(walk, walk.value(weight), -2, -1))
        return product if bias is None else add(walk, product, bias)
    batch_free(walk, value, -1)
    out = weight.shape[0]
    return walk.emit("linear", (value,), (*value.shape[:-1], out), (*value.dims[:-1], out),
                     [one.name for one in (weight, bias) if one is not None], out=out)


@operation("conv1d", "conv2d")
def convolution(walk, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, **_):
    names = [walk.weight(weight, "the weight of a convolution")]
    names += [walk.weight(bias, "the bias of a convolution")] if bias is not None else []
    out, kernel = weight.shape[0], weight.shape[2:]
    count = len(kernel)
    value = walk.first(input, count + 2)
    stride, dilation = ints(stride, count), ints(dilation, count)
    total = [reach * (length - 1) if padding == "same" else 0 for reach, length in zip(dilation, kernel)]
    # Of an odd number `same` puts one more behind; here it is in front as well, and its result is cut off.
    pads = [(one + 1) // 2 for one in total] if isinstance(padding, str) else ints(padding, count)
    lengths = [(length + 2 * pad - reach * (size - 1) - 1) // step + 1 for length, pad, reach, size, step
               in zip(value.shape[1:], pads, dilation, kernel, stride)]
    value = walk.emit("convolution", (value,), (out, *lengths), None, names, out=out, kernel=kernel, stride=stride,
                      padding=pads, dilation=dilation, groups=groups)
    for at, one in enumerate(total):
        if one % 2:
            value = sliced(walk, value, 2 + at, 1, lengths[at])
    return value


@operation("batch_norm", "_batch_norm_impl_index", "native_batch_norm", "cudnn_batch_norm")
def batch_norm(walk, input, weight, bias, running_mean, running_var, training, momentum, eps, **_):
    if weight is None or bias is None:
        walk.refuse("batch norm without weight and bias", "leave affine=True")
    if running_mean is None or running_var is None:
        walk.refuse("batch norm without running statistics", "leave track_running_stats=True")
    if not training:
        walk.refuse("batch norm whose statistics are frozen", "let it train, or use another norm")
    names = [walk.weight(weight, "the weight of a batch norm"), walk.weight(bias, "the bias of a batch norm")]
    names += [walk.buffer_name("running_mean"), walk.buffer_name("running_var")]
    value = walk.value(input)
    if value.batch != 0 or value.dims[0].outer:
        walk.refuse("batch norm over a batch that is not the first dimension")
    dims, places = value.dims, len(value.dims[0].inner)
    order = list(range(places, len(value.shape))) + list(range(places))
    channels_first = permuted_sample(walk, value, order)
    value = walk.emit("batch_norm", (channels_first,), channels_first.shape, None, names, epsilon=float(eps),
                      momentum=float(momentum))
    back = [order.index(axis) for axis in range(len(order))]
    return Value(permuted_sample(walk, value, back).line, dims)


def permuted_sample(walk, value, order):
    """The value with the dimensions of a sample in this order; the batch is first."""
    return walk.permuted(value, order, (Batch(), *(value.shape[axis] for axis in order)))


@operation("group_norm", "native_group_norm")
def group_norm(walk, input, num_groups, weight=None, bias=None, eps=1e-5, **_):
    value = walk.first(input)
    names = [walk.weight(one, "what a norm scales or shifts by") for one in (weight, bias) if one is not None]
    if len(names) == 1:
        walk.refuse("a norm with a weight and no bias, or the reverse", "give it both or none")
    return walk.emit("group_norm", (value,), value.shape, value.dims, names, groups=num_groups, epsilon=float(eps))


@operation("instance_norm")
def instance_norm(walk, input, weight, bias, running_mean, use_input_stats, momentum, eps, **_):
    if running_mean is not None or not use_input_stats:
        walk.refuse("instance norm with running statistics", "leave track_running_stats=False")
    return group_norm(walk, input, walk.value(input).shape[0], weight, bias, eps)


@operation("layer_norm", "native_layer_norm")
def layer_norm(walk, input, normalized_shape, weight=None, bias=None, eps=1e-5, **_):
    value, count = walk.value(input), len(normalized_shape)
    dims = batch_free(walk, value, *range(-count, 0))
    names = [walk.weight(one, "what a norm scales or shifts by") for one in (weight, bias) if one is not None]
    if weight is None and bias is not None:
        walk.refuse("a norm with a bias and no weight", "give it both, the weight, or none")
    return walk.emit("layer_norm", (value,), value.shape, value.dims, names, dims=len(dims), epsilon=float(eps))


@operation("rms_norm", "_fused_rms_norm")
def rms_norm(walk, input, normalized_shape, weight=None, eps=None, **_):
    value = walk.value(input)
    squares = mean(walk, square(walk, value), list(range(-len(normalized_shape), 0)), True)
    eps = torch.finfo(walk.kind).eps if eps is None else eps
    value = elementwise_of_two(walk, "multiply", value, power(walk, affine(walk, squares, 1, eps), -0.5))
    return value if weight is None else elementwise_of_two(walk, "multiply", value, weight)


@operation("embedding")
def embedding(walk, weight, indices, padding_idx=-1, scale_grad_by_freq=False, **_):
    if scale_grad_by_freq:
        walk.refuse("an embedding that scales its gradient by how often a row comes", "leave scale_grad_by_freq out")
    rows, columns = weight.shape
    if not isinstance(weight, Parameter):
        walk.refuse("an embedding whose rows are computed")
    value = walk.value(indices, whole=True)
    if isinstance(indices, Constant) and padding_idx < 0:
        chosen = walk.lines.constants[walk.lines[value.line].keys["constant"]].ravel()
        start, end = int(chosen[0]), int(chosen[0]) + len(chosen)
        if chosen.tolist() == list(range(start, end)):  # positions: a part of the table
            return walk.reshaped(sliced(walk, walk.value(weight), 0, start, end), (*value.dims, columns))
    keys = {"padding": padding_idx} if padding_idx >= 0 else {}
    found = walk.emit("embedding", (value,), (*value.shape, columns), (Batch(), *value.shape, columns), (weight.name,),
                      rows=rows, columns=columns, **keys)
    return walk.reshaped(found, (*value.dims, columns))


@operation("lstm", "gru")
def recurrent(walk, input=None, hx=None, params=(), has_biases=True, num_layers=1, dropout=0.0, train=True,
              bidirectional=False, batch_first=None, **_):
    gates = "lstm" if "lstm" in walk.node.target.__name__ else "gru"
    if batch_first is None:
        walk.refuse("a recurrent net over packed sequences", "give sequences of one length")
    value = walk.value(input)
    if not batch_first:
        if value.batch == 0:
            walk.refuse("a recurrent net that takes the batch for the time", "set batch_first=True")
        value = transposed(walk, value, 0, 1)
    value = walk.first(value, 3)
    for state in hx if isinstance(hx, (tuple, list)) else (hx,):
        if not isinstance(state, Constant) or bool(state.tensor.any()):
            walk.refuse("a recurrent net that starts from a state other than zeros")
    if has_biases is None or len(params) != num_layers * (4 if has_biases else 2) * (2 if bidirectional else 1):
        walk.refuse("a recurrent net with projections", "set proj_size=0")
    length, last, params = value.shape[0], [], list(params)
    for layer in range(num_layers):
        directions = []
        for reverse in (False, True)[:2 if bidirectional else 1]:
            used, params = params[:4 if has_biases else 2], params[4 if has_biases else 2:]
            names = [walk.weight(one, "a weight of a recurrent net") for one in used]
            hidden = used[1].shape[1]
            one = walk.emit(gates, (value,), (length, hidden), None, names, hidden=hidden, reverse=reverse)
            directions.append(one)
            end = sliced(walk, one, 1, *((0, 1) if reverse else (length - 1, length)))
            last.append(Value(end.line, (1, Batch(), hidden)))
        value = directions[0] if len(directions) == 1 else cat(walk, directions, 2)
        if layer < num_layers - 1 and train:
            value = drop(walk, value, dropout, False)
    final = cat(walk, last, 0)
    value = value if batch_first else Value(value.line, (value.dims[1], Batch(), value.dims[2]))
    return (value, final, MISSING)[:3 if gates == "lstm" else 2]


# Pooling and dropout.


def pooled(walk, op, value, lengths, **keys):
    return walk.emit(op, (value,), (value.shape[0], *lengths), None, **keys)


@operation("max_pool1d", "max_pool2d")
def max_pool(walk, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False, **_):
    count = 2 if "2d" in walk.node.target.__name__ else 1
    kernel = ints(kernel_size, count)
    return pooled(walk, "max_pool", walk.first(self, count + 2), walk.meta_shape()[2:], kernel=kernel,
                  stride=ints(stride, count) if stride else kernel, padding=ints(padding, count),
                  dilation=ints(dilation, count), ceil=ceil_mode)


@operation("avg_pool1d", "avg_pool2d")
def average_pool(walk, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None, **_):
    if divisor_override is not None:
        walk.refuse("average pooling with a divisor of its own", "leave divisor_override out")
    count = 2 if "2d" in walk.node.target.__name__ else 1
    kernel = ints(kernel_size, count)
    return pooled(walk, "average_pool", walk.first(self, count + 2), walk.meta_shape()[2:], kernel=kernel,
                  stride=ints(stride, count) if stride else kernel, padding=ints(padding, count), ceil=ceil_mode,
                  count_padding=count_include_pad)


@operation("adaptive_avg_pool1d", "adaptive_avg_pool2d")
def adaptive_average_pool(walk, self, output_size, **_):
    out = [int(one) for one in walk.meta_shape()[2:]]
    return pooled(walk, "adaptive_average_pool", walk.first(self, len(out) + 2), out, out=out)


@operation("adaptive_max_pool1d", "adaptive_max_pool2d")
def adaptive_max_pool(walk, self, output_size, **_):
    out = [int(one) for one in walk.meta_shape(0)[2:]]
    return pooled(walk, "adaptive_max_pool", walk.first(self, len(out) + 2), out, out=out), MISSING


def drop(walk, value, p, channels):
    value = walk.value(value)
    if p == 0:
        return value
    if value.batch is None:
        walk.refuse("dropout of a value that all samples share", "drop out after it meets the samples")
    return walk.elementwise("dropout", value, p=float(p), channels=channels)


def drop_samples(walk, value, noise):
    """Whole samples dropped: all that a sample has is one channel."""
    value = walk.first(value)
    if not math.isclose(noise.keep * noise.factor, 1):
        walk.refuse("random numbers whose mean is not 1, other than dropout")
    one = walk.reshaped(value, (Batch(), 1, math.prod(value.shape)))
    return walk.reshaped(drop(walk, one, 1 - noise.keep, True), value.dims)


@operation("dropout")
def dropout(walk, p, train, input=None, self=None, **_):
    return drop(walk, input or self, p if train else 0, False)


@operation("feature_dropout")
def feature_dropout(walk, p, train, input=None, self=None, **_):
    return drop(walk, walk.first(input or self), p if train else 0, True)


# Products.


@operation("matmul", "bmm", "mm")
def matmul(walk, self, other=None, mat2=None, **_):
    one, other = walk.value(self), walk.value(other if other is not None else mat2)
    vectors = [len(value.dims) == 1 for value in (one, other)]
    if vectors[0]:
        one = walk.reshaped(one, (1, *one.dims))
    if vectors[1]:
        other = walk.reshaped(other, (*other.dims, 1))
    batch_free(walk, one, -1)
    batch_free(walk, other, -2, -1)
    product = product_of(walk, one, other)
    dims = list(product.dims)
    if vectors[1]:
        del dims[-1]
    if vectors[0]:
        del dims[-1 if vectors[1] else -2]
    return walk.reshaped(product, dims) if any(vectors) else product


def product_of(walk, one, other):
    """[..., M, K] x [..., K, N] of tensors; the batch may be M where the other one is a matrix for all samples."""
    columns = other.dims[-1]
    if other.batch is None and len(other.dims) == 2:  # all that stands in front of K are rows
        rows = one.shape[:-1]
        flat = one if len(rows) == 1 else walk.reshaped(
            Value(one.line, (Batch(), *one.shape)) if one.batch is not None else one,
            (*((Batch(),) if one.batch is not None else ()), math.prod(rows), one.shape[-1]))
        result = walk.emit("matmul", (flat, other), (math.prod(rows), columns),
                           None if one.batch is not None else (math.prod(rows), columns))
        return walk.reshaped(result, (*one.dims[:-1], columns))
    batch_free(walk, one, -2)
    leading = broadcast(walk, one.dims[:-2] + (1,), other.dims[:-2] + (1,))[:-1]
    one, other = (widened(walk, value, (*leading, *value.dims[-2:])) for value in (one, other))
    dims = (*leading, one.dims[-2], columns)
    return walk.emit("matmul", (one, other), sample_shape(dims), dims)


@operation("addmm", "baddbmm")
def addmm(walk, self, beta=1, alpha=1, **factors):
    factors = [factors[name] for name in ("mat1", "mat2", "batch1", "batch2") if name in factors]
    product = affine(walk, matmul(walk, *factors), alpha)
    return product if beta == 0 else add(walk, product, self, beta)


@operation("einsum")
def einsum(walk, equation, tensors, **_):
    terms, _, result = equation.replace(" ", "").partition("->")
    terms = terms.split(",")
    if len(terms) != 2 or not result or "." in equation or any(len(set(term)) < len(term) for term in terms):
        walk.refuse(f"einsum '{equation}'", "write it as a matmul of permuted tensors")
    one, other = terms
    both = [letter for letter in one if letter in other and letter in result]
    summed = [letter for letter in one if letter in other and letter not in result]
    rows = [letter for letter in one if letter not in other]
    columns = [letter for letter in other if letter not in one]
    if any(letter not in result for letter in rows + columns) or not set(result) <= set(one + other):
        walk.refuse(f"einsum '{equation}'", "write it as a matmul of permuted tensors")
    a, b = (walk.value(tensor) for tensor in tensors)
    size = {letter: length for term, value in ((one, a), (other, b)) for letter, length in zip(term, value.dims)}
    symbol = [letter for letter, length in size.items() if isinstance(length, Batch)]
    if symbol and (a.batch is None or b.batch is None):  # a matrix that all samples share: the batch is a row
        if a.batch is None:
            a, b, one, other, rows, columns = b, a, other, one, columns, rows
    a = permute(walk, a, [one.index(letter) for letter in both + rows + summed])
    b = permute(walk, b, [other.index(letter) for letter in both + summed + columns])
    plain = lambda letters: math.prod(size[letter] for letter in letters)  # noqa: E731
    if any(letter in rows for letter in symbol) and both:
        walk.refuse(f"einsum '{equation}'", "write it as a matmul of permuted tensors")
    if any(letter in symbol for letter in rows):
        b = walk.reshaped(b, (plain(summed), plain(columns)))
        a = walk.reshaped(a, (*a.dims[:len(rows)], plain(summed)))
    else:
        a = walk.reshaped(a, (*a.dims[:len(both)], plain(rows), plain(summed)))
        b = walk.reshaped(b, (*b.dims[:len(both)], plain(summed), plain(columns)))
    product = product_of(walk, a, b)
    letters = both + rows + columns
    product = walk.reshaped(product, tuple(size[letter] for letter in letters))
    return permute(walk, product, [letters.index(letter) for letter in result])


@operation("scaled_dot_product_attention")
def attention(walk, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
              **_):
    if enable_gqa:
        walk.refuse("attention with grouped queries (enable_gqa)", "repeat keys and values by repeat_interleave")
    query, key, value = (walk.value(one) for one in (query, key, value))
    for one in (query, key, value):
        batch_free(walk, one, -2, -1)
    leading = broadcast(walk, *((*one.dims[:-2], 1) for one in (query, key, value)))[:-1]
    inputs = [widened(walk, one, (*leading, *one.dims[-2:])) for one in (query, key, value)]
    (length, depth), size, out = query.dims[-2:], key.dims[-2], value.dims[-1]
    keys = {"scale": 1 / math.sqrt(depth) if scale is None else float(scale)}
    if attn_mask is not None:
        mask = added_mask(walk, attn_mask, (*leading, length, size))
        if walk.lines.causal(mask.line):
            is_causal = True
        else:
            inputs.append(mask)
    if is_causal:
        keys["causal"] = True
    if dropout_p:
        keys["dropout"] = float(dropout_p)
    dims = (*leading, length, out)
    return walk.emit("attention", inputs, sample_shape(dims), dims, **keys)


def added_mask(walk, mask, dims):
    """What is added to scores of the dimensions `dims`: [L, S], or of their whole shape."""
    if isinstance(mask, Constant) and mask.tensor.dtype == torch.bool:
        mask = mask.map(lambda tensor: torch.where(tensor, 0.0, -math.inf).to(walk.kind))
    mask = walk.value(mask)
    broadcast(walk, mask.dims, dims)
    mask = beside(walk, mask, dims)
    shape = mask.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) > 2:
        return widened(walk, mask, dims)
    mask = walk.reshaped(Value(mask.line, mask.shape), shape)
    return widened(walk, mask, dims[-2:])


# Sums.


def reduced(walk, op, self, dim, keepdim):
    value = walk.value(self)
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else list(range(len(value.dims)))
    dims = [one % len(value.dims) for one in dims]
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
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else list(range(len(value.dims)))
    correction = (1 if unbiased else 0) if correction is None else correction
    centred = sub(walk, value, mean(walk, value, dims, True))
    count = math.prod(value.shape[axis] for axis in batch_free(walk, value, *dims))
    result = affine(walk, mean(walk, square(walk, centred), dims, keepdim), count / (count - correction))
    return power(walk, result, 0.5) if "std" in walk.node.target.__name__ else result


@operation("linalg_vector_norm", "norm")
def norm(walk, self, ord=2, p=2, dim=None, keepdim=False, **_):
    if scalar(ord) != 2 or scalar(p) != 2:
        walk.refuse("a norm other than the Euclidean one")
    return power(walk, sum_(walk, square(walk, self), dim, keepdim), 0.5)


@operation("amax", "max")
def amax(walk, self, dim=None, keepdim=False, **_):
    value = walk.value(self)
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if len(dims) != 1:
        walk.refuse("a maximum over several dimensions or of two values")
    at = dims[0] % len(value.dims)
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
    return (result, MISSING) if "max" == walk.node.target.__name__.partition(".")[0] else result


# Shapes.


@operation("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as")
def view(walk, self, **_):
    return walk.viewed(self, walk.meta_shape())


@operation("contiguous", "clone", "alias", "lift_fresh_copy")
def same(walk, self, **_):
    return walk.value(self)


@operation("to", "_to_copy", "type_as", "float", "double", "long", "int")
def to(walk, self, **_):
    value = walk.value(self)
    before, after = walk.node.all_input_nodes[0].meta["val"].dtype, walk.node.meta["val"].dtype
    if before != after and walk.lines[value.line].op != "input":
        walk.refuse(f"a conversion to {str(after).removeprefix('torch.')}", "leave it out")
    return value


@operation("permute")
def permute(walk, self, dims, **_):
    value = walk.value(self)
    dims = [dim % len(value.dims) for dim in dims]
    axes = [axis for dim in dims for axis in value.axes(dim)]
    new = tuple(value.dims[dim] for dim in dims)
    return walk.permuted(value, axes, new)


def transposed(walk, value, dim0, dim1):
    dims = list(range(len(value.dims)))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return permute(walk, value, dims)


@operation("transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT")
def transpose(walk, self, **named):
    value, name = walk.value(self), walk.node.target.__name__.partition(".")[0]
    if len(value.dims) < 2:
        return value
    if name == "numpy_T":
        return permute(walk, value, range(len(value.dims))[::-1])
    first, second = [one for one in named.values() if isinstance(one, int)][:2] or (-2, -1)
    return transposed(walk, value, first, second)


@operation("movedim", "moveaxis")
def movedim(walk, self, source, destination, **_):
    value = walk.value(self)
    rank = len(value.dims)
    source = [one % rank for one in ([source] if isinstance(source, int) else source)]
    destination = [one % rank for one in ([destination] if isinstance(destination, int) else destination)]
    rest = iter([dim for dim in range(rank) if dim not in source])
    return permute(walk, value, [source[destination.index(dim)] if dim in destination else next(rest)
                                 for dim in range(rank)])


@operation("expand", "expand_as")
def expand(walk, self, **_):
    return expanded(walk, walk.value(self), walk.meta_shape())


def expanded(walk, value, shape):
    """The value repeated to this symbolic shape."""
    value = walk.reshaped(value, (*[1] * (len(shape) - len(value.dims)), *value.dims))
    dims = []
    for length, before in zip(shape, value.dims):
        if isinstance(before, Batch):
            dims.append(before)
        elif is_fixed(length):
            dims.append(int(length))
        elif before == 1 and length.node.expr == walk.symbol and value.batch is None:
            dims.append(Batch())
        else:
            walk.refuse("a repetition that mixes samples of the batch")
    return widened(walk, value, tuple(dims))


@operation("repeat", "tile")
def repeat(walk, self, repeats=None, dims=None, **_):
    value, shape = walk.value(self), walk.meta_shape()
    value = walk.reshaped(value, (*[1] * (len(shape) - len(value.dims)), *value.dims))
    for dim, (length, before) in enumerate(zip(shape, value.dims)):
        if isinstance(before, Batch) or before == 1:
            continue
        if not is_fixed(length):
            walk.refuse("a repetition that mixes samples of the batch")
        value = cat(walk, [value] * (int(length) // before), dim)
    batch = value.batch
    if batch is not None and (repeats if repeats is not None else dims)[batch - len(shape)] != 1:
        walk.refuse("a repetition of the batch")
    return expanded(walk, value, shape)


@operation("repeat_interleave")
def repeat_interleave(walk, self, repeats, dim=None, **_):
    value = walk.value(self)
    if not isinstance(repeats, int) or dim is None:
        walk.refuse("repeat_interleave without a number and a dimension")
    dim %= len(value.dims)
    batch_free(walk, value, dim)
    length = value.dims[dim]
    thin = walk.reshaped(value, (*value.dims[:dim + 1], 1, *value.dims[dim + 1:]))
    dims = (*value.dims[:dim + 1], repeats, *value.dims[dim + 1:])
    wide = walk.emit("expand", (thin,), sample_shape(dims), dims)
    return walk.reshaped(wide, (*value.dims[:dim], length * repeats, *value.dims[dim + 1:]))


@operation("cat", "concat", "concatenate")
def cat(walk, tensors, dim=0, **_):
    values = [walk.value(one) for one in tensors]
    values = [one for one in values if one.dims != (0,)]
    rank = len(values[0].dims)
    dim %= rank
    batches = {(one.batch, one.dims[one.batch]) for one in values if one.batch is not None}
    if len(batches) > 1 or (batches and any(one.batch is None for one in values)):
        walk.refuse("a concatenation of batches that lie in different dimensions")
    axis = batch_free(walk, values[0], dim)[0]
    length = sum(one.dims[dim] for one in values)
    dims = (*values[0].dims[:dim], length, *values[0].dims[dim + 1:])
    if len(values) == 1:
        return values[0]
    return walk.emit("concat", values, sample_shape(dims), dims, dim=axis)


@operation("stack")
def stack(walk, tensors, dim=0, **_):
    values = [walk.value(one) for one in tensors]
    dim %= len(values[0].dims) + 1
    return cat(walk, [walk.reshaped(one, (*one.dims[:dim], 1, *one.dims[dim:])) for one in values], dim)


def sliced(walk, value, dim, start, end, step=1):
    """value[start:end:step] along a dimension of the tensor, with numbers in range."""
    length = value.dims[dim]
    if (start, end, step) == (0, length, 1):
        return value
    count = len(range(start, end, step))
    dims = (*value.dims[:dim], count, *value.dims[dim + 1:])
    axis, = batch_free(walk, value, dim)
    keys = {"step": step} if step != 1 else {}
    line = walk.lines[value.line]
    if line.op == "reshape" and walk.lines[line.inputs[0]].op == "permute":  # one that leaves out lengths of 1
        before = walk.lines[line.inputs[0]]
        long, mine = ([at for at, one in enumerate(shape) if one != 1] for shape in (before.shape, line.shape))
        if axis in mine and [before.shape[at] for at in long] == [line.shape[at] for at in mine]:
            at = long[mine.index(axis)]
            part = sliced(walk, Value(line.inputs[0], before.shape), at, start, end, step)
            return walk.reshaped(part, dims)
    if line.op == "permute":  # a part first, so that less is moved
        before = walk.lines[line.inputs[0]]
        shape = [count if at == line.keys["dims"][axis] else one for at, one in enumerate(before.shape)]
        one = walk.emit("slice", (Value(line.inputs[0], before.shape),), shape, shape, dim=line.keys["dims"][axis],
                        start=start, end=end, **keys)
        return walk.permuted(one, line.keys["dims"], dims)
    return walk.emit("slice", (value,), sample_shape(dims), dims, dim=axis, start=start, end=end, **keys)


@operation("slice")
def slice_(walk, self, dim=0, start=None, end=None, step=1, **_):
    value = walk.value(self)
    dim %= len(value.dims)
    if dim == value.batch:
        if (start or 0) == 0 and (end is None or end >= walk.concrete_shape(value)[dim]) and step == 1:
            return value
        walk.refuse("a slice of the batch")
    start, end, step = slice(start, end, step).indices(value.dims[dim])
    return sliced(walk, value, dim, start, end, step)


@operation("narrow")
def narrow(walk, self, dim, start, length, **_):
    return slice_(walk, self, dim, start, start + length)


@operation("select")
def select(walk, self, dim, index, **_):
    value = walk.value(self)
    dim %= len(value.dims)
    if dim == value.batch:
        walk.refuse("one sample of the batch is taken")
    index %= value.dims[dim]
    one = sliced(walk, value, dim, index, index + 1)
    return walk.reshaped(one, (*one.dims[:dim], *one.dims[dim + 1:]))


def parts(walk, self, dim, sizes):
    value, start, found = walk.value(self), 0, []
    dim %= len(value.dims)
    batch_free(walk, value, dim)
    for size in sizes:
        found.append(sliced(walk, value, dim, start, start + size))
        start += size
    return tuple(found)


@operation("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
def split(walk, self, dim=0, **_):
    return parts(walk, self, dim, [walk.meta_shape(at)[dim] for at in range(len(walk.node.meta["val"]))])


def chunk(walk, self, chunks, dim):
    length = walk.value(self).dims[dim]
    return parts(walk, self, dim, [length // chunks] * chunks)


@operation("unbind")
def unbind(walk, self, dim=0, **_):
    value = walk.value(self)
    return tuple(select(walk, value, dim, at) for at in range(len(walk.node.meta["val"])))


@operation("roll")
def roll(walk, self, shifts, dims=(), **_):
    value = walk.value(self)
    shifts, dims = ([shifts] if isinstance(shifts, int) else shifts), ([dims] if isinstance(dims, int) else dims)
    if not dims:
        walk.refuse("roll without dimensions")
    for shift, dim in zip(shifts, dims):
        dim %= len(value.dims)
        batch_free(walk, value, dim)
        cut = -shift % value.dims[dim]
        if cut:
            value = cat(walk, [sliced(walk, value, dim, cut, value.dims[dim]), sliced(walk, value, dim, 0, cut)], dim)
    return value


@operation("flip")
def flip(walk, self, dims, **_):
    value = walk.value(self)
    for dim in dims:
        batch_free(walk, value, dim)
        value = picked(walk, value, dim % len(value.dims), range(value.dims[dim])[::-1])
    return value


@operation("index_select")
def index_select(walk, self, dim, index, **_):
    if not isinstance(index, Constant):
        walk.refuse("rows chosen by values of the input")
    return picked(walk, walk.value(self), dim, index.tensor.tolist())


@operation("index")
def index(walk, self, indices, **_):
    chosen = [at for at, one in enumerate(indices) if one is not None]
    if len(chosen) != 1 or not isinstance(indices[chosen[0]], Constant):
        walk.refuse("elements chosen by values of the input, or by several lists")
    at, rows = chosen[0], indices[chosen[0]].tensor
    if rows.dtype == torch.bool:
        rows = rows.nonzero()[:, 0]
    if isinstance(self, Parameter) and at == 0 and len(self.shape) == 2:
        rows = rows % self.shape[0]
        return embedding(walk, self, Constant(rows.contiguous()))
    value = walk.value(self)
    found = picked(walk, value, at, (rows.flatten() % (value.dims[at] if at != value.batch else 1)).tolist())
    return walk.reshaped(found, (*found.dims[:at], *rows.shape, *found.dims[at + 1:]))


MOST_SLICES = 32  # of a choice of rows; beyond, it is a product with a matrix of zeros and ones


def picked(walk, value, dim, rows):
    """The entries `rows` along a dimension, as slices of what stands in a row."""
    axis, = batch_free(walk, value, dim)
    rows, found, at = list(rows), [], 0
    while at < len(rows):
        step = rows[at + 1] - rows[at] if at + 1 < len(rows) and rows[at + 1] > rows[at] else 1
        end = at + 1
        while end < len(rows) and rows[end] == rows[end - 1] + step:
            end += 1
        found.append((rows[at], rows[end - 1] + 1, step if end > at + 1 else 1))
        at = end
    if len(found) <= MOST_SLICES:
        return cat(walk, [sliced(walk, value, dim, *one) for one in found], dim)
    order = [axis, *(one for one in range(len(value.shape)) if one != axis)]
    shape = [value.shape[one] for one in order]
    front = Value(walk.permuted(value, order, shape).line, tuple(shape))
    matrix = walk.reshaped(front, (shape[0], math.prod(shape[1:])))
    chosen = torch.nn.functional.one_hot(torch.tensor(rows), shape[0]).to(walk.kind).numpy()
    chosen = Value(walk.lines.constant(chosen), chosen.shape)
    made = walk.emit("matmul", (chosen, matrix), (len(rows), matrix.shape[1]), (len(rows), matrix.shape[1]))
    made = walk.reshaped(made, (len(rows), *shape[1:]))
    return walk.permuted(made, [order.index(one) for one in range(len(order))],
                         (*value.dims[:dim], len(rows), *value.dims[dim + 1:]))


@operation("pad", "constant_pad_nd", "zero_pad")
def pad(walk, self, pad, mode="constant", value=None, **_):
    if mode != "constant":
        walk.refuse(f"padding by '{mode}'", "pad with zeros")
    result = walk.value(self)
    for at in range(len(pad) // 2):
        dim, (before, after) = len(result.dims) - 1 - at, pad[2 * at:2 * at + 2]
        if not (before or after):
            continue
        batch_free(walk, result, dim)
        length = result.dims[dim]
        result = sliced(walk, result, dim, max(0, -before), length + min(0, after))
        pieces = [result]
        for count, front in ((before, True), (after, False)):
            if count > 0:
                dims = (*result.dims[:dim], count, *result.dims[dim + 1:])
                piece = torch.full(sample_shape(dims), float(value or 0), dtype=walk.kind).numpy()
                piece = Value(walk.lines.constant(piece), dims)
                pieces = [piece, *pieces] if front else [*pieces, piece]
        result = cat(walk, pieces, dim)
    return result


@operation("pixel_shuffle")
def pixel_shuffle(walk, self, upscale_factor, **_):
    value, by = walk.first(self, 4), upscale_factor
    channels, height, width = value.shape
    value = walk.reshaped(value, (Batch(), channels // by**2, by, by, height, width))
    value = permute(walk, value, (0, 1, 4, 2, 5, 3))
    return walk.reshaped(value, (Batch(), channels // by**2, height * by, width * by))
