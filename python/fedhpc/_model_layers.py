"""Layers of the exported graph: those with parameters, pooling and dropout, products and attention."""

import math

import torch

from ._model_lines import MISSING, Batch, Constant, Parameter, Value, sample_shape
from ._model_operations import (
    add, affine, batch_free, beside, broadcast, drop, elementwise_of_two, ints, mean, operation,
    permuted_sample, power, square, widened)
from ._model_shapes import cat, permute, sliced, transposed


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
    if not training and walk.noisy:
        walk.refuse("batch norm whose statistics are frozen", "let it train, or use another norm")
    if weight is None or bias is None:
        walk.refuse("batch norm without weight and bias", "leave affine=True")
    if running_mean is None or running_var is None:
        walk.refuse("batch norm without running statistics", "leave track_running_stats=True")
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
    return walk.emit("layer_norm", (value,), value.shape, value.dims, names, dims=dims, epsilon=float(eps))


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
    final = walk.viewed(cat(walk, last, 0), walk.meta_shape(1))  # its meta function may keep directions apart
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
    if dropout_p and walk.noisy:
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
