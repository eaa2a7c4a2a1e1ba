"""Operations of the exported graph that change shapes, choose parts or put them together."""

import math

import torch

from ._model_lines import Batch, Constant, Parameter, Value, is_fixed, name_of_kind, sample_shape
from ._model_operations import (
    EMPTY, IGNORED, OPERATIONS, VIEWS, batch_free, elementwise_of_two, name_of, operation, widened)


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
    whole = after in (torch.int32, torch.int64)
    # Whole numbers are numbers; the rest of a number is lost unless it is that of a row, which has none.
    if before != after and not (before != torch.bool and (after.is_floating_point or whole and (
            not before.is_floating_point or walk.lines[value.line].op == "input" and names_rows(walk.node)))):
        walk.refuse(f"a conversion to {name_of_kind(after)}", "leave it out")
    return value


def names_rows(node):
    """Whether nothing but embeddings reads the numbers of a node."""
    unread = {"embedding", "sym_size", *IGNORED, *EMPTY}
    return all(name_of(user) in unread or name_of(user) in VIEWS and names_rows(user) for user in node.users)


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
    value, name = walk.value(self), name_of(walk.node)
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
    counts = list(repeats if repeats is not None else dims)
    counts = [1] * (len(shape) - len(counts)) + counts
    if value.batch is not None and counts[value.batch] != 1:
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
    length_of = walk.value(self).dims[dim]
    if start < 0 and not isinstance(length_of, Batch):
        start += length_of
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
    value = walk.value(self)
    return picked(walk, value, dim % len(value.dims), index.tensor.flatten().tolist())


@operation("index")
def index(walk, self, indices, **_):
    chosen = [at for at, one in enumerate(indices) if one is not None]
    if len(chosen) != 1 or not isinstance(indices[chosen[0]], Constant):
        walk.refuse("elements chosen by values of the input, or by several lists")
    at, rows = chosen[0], indices[chosen[0]].tensor
    if rows.dtype == torch.bool:
        if rows.ndim > 1:
            walk.refuse(f"elements chosen by a mask of {rows.ndim} dimensions",
                        "flatten what is chosen from and the mask before")
        rows = rows.nonzero()[:, 0]
    if isinstance(self, Parameter) and at == 0 and len(self.shape) == 2:
        rows = rows % self.shape[0]
        return OPERATIONS["embedding"](walk, self, Constant(rows.contiguous()))
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


@operation("glu")
def glu(walk, self, dim=-1, **_):
    one, other = chunk(walk, self, 2, dim)
    return elementwise_of_two(walk, "multiply", one, walk.elementwise("sigmoid", other))
