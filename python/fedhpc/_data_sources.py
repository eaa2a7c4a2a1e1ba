"""Samples and labels, block by block, of what libraries call a data set. None of these libraries is imported."""

from collections.abc import Mapping

import numpy as np

from ._data_values import as_array
from .errors import ConfigError, DataError

ROWS = 256  # of a block whose samples have an unknown size
BLOCK_BYTES = 16 << 20
SAMPLES = ("image", "img", "pixel_values", "x", "features")
LABELS = ("label", "labels", "fine_label", "y")


def is_table(source):
    """Whether it has the interface of a Hugging Face Dataset."""
    return hasattr(source, "features") and hasattr(source, "iter")


def array_of(image):
    """An image of PIL, an array, a tensor or a list as an array; images with a palette get their colours."""
    mode = getattr(image, "mode", None)
    if hasattr(image, "convert") and mode not in ("L", "RGB", "RGBA", "I;16", "I", "F"):
        image = image.convert("L" if mode == "1" else "RGB")
    return as_array(image, "x")


def stacked(images, first):
    """One array of several samples; `first`: the number of the first of them, for messages."""
    arrays = [array_of(image) for image in images]
    for number, array in enumerate(arrays, first):
        if array.shape != arrays[0].shape:
            raise DataError(f"x: sample {number} has shape {array.shape} and sample {first} {arrays[0].shape}; bring "
                            "all to one shape")
    return np.stack(arrays)


def columns_of(source, columns):
    """(column of the samples, column of the labels) of a table."""
    has = list(source.features or columns or ())  # a stream may not know its columns
    found = [next((one for one in known if one in has), None) for known in (SAMPLES, LABELS)]
    found = list(columns) if columns is not None else found
    if len(found) != 2 or any(one not in has for one in found):
        raise ConfigError(f"the columns of samples and labels are not among {', '.join(has)}; set "
                          "columns=(SAMPLES, LABELS)")
    return found


def class_names(source, columns, largest):
    """The names of classes 0 to `largest`, where a data set knows them."""
    names = getattr(source, "classes", None)
    if is_table(source):
        names = getattr((source.features or {}).get(columns_of(source, columns)[1]), "names", None)
    return list(names[:largest + 1]) if isinstance(names, (list, tuple)) and len(names) > largest else None


def stored(source):
    """(samples, labels) as a torchvision data set stores them, or None where it changes or makes them."""
    if any(getattr(source, name, None) is not None for name in ("transform", "target_transform", "transforms")):
        return None
    data = getattr(source, "data", None)
    targets = getattr(source, "targets", None)
    targets = getattr(source, "labels", None) if targets is None else targets
    fit = hasattr(data, "shape") and targets is not None and len(data) == len(targets) == len(source)
    return (data, targets) if fit and _as_stored(source, data, targets) else None


def _as_stored(source, data, targets):
    """Whether the first, a middle and the last item are what is stored: a class may make something else of it."""
    for place in {0, len(source) // 2, len(source) - 1} if len(source) else ():
        try:
            x, y = source[place]
            x, kept = np.asarray(x), np.asarray(data[place])
            if int(y) != int(targets[place]) or x.size != kept.size:
                return False
            if not np.array_equal(x.reshape(-1), kept.reshape(-1)):
                # SVHN stores channels first.
                return x.ndim == kept.ndim == 3 and np.array_equal(x, kept.transpose(1, 2, 0))
        except (TypeError, ValueError, IndexError):
            return False
    return True


def blocks_of_arrays(x, y):
    if not hasattr(x, "shape"):
        x = as_array(x, "x")
    y = as_array(y, "y")
    if len(x.shape) < 2:
        raise DataError(f"x has shape {tuple(x.shape)}; give [samples, features] or images")
    if len(y) != len(x) if y.ndim else True:
        raise DataError(f"x has {len(x)} samples and y has shape {y.shape}; give one label for each sample")
    each = int(np.prod(x.shape[1:])) * getattr(getattr(x, "dtype", None), "itemsize", 8)
    rows = max(1, BLOCK_BYTES // max(each, 1))
    for first in range(0, len(x), rows):
        yield x[first:first + rows], y[first:first + rows], None


def blocks_of_table(source, columns, clients):
    x, y = columns_of(source, columns)
    if clients is not None and source.features and clients not in source.features:
        raise ConfigError(f"there is no column {clients} of clients among {', '.join(source.features)}")
    first = 0
    for rows in source.iter(batch_size=ROWS):
        yield stacked(rows[x], first), rows[y], rows[clients] if clients is not None else None
        first += len(rows[y])


def blocks_of_items(source):
    for first in range(0, len(source), ROWS):
        items = [source[i] for i in range(first, min(first + ROWS, len(source)))]
        if not all(isinstance(item, (tuple, list)) and len(item) >= 2 for item in items):
            raise DataError("the items of x are no pairs (sample, label); give arrays x and y")
        yield stacked([item[0] for item in items], first), as_array([item[1] for item in items], "y"), None


def blocks(source, columns=None, clients=None):
    """Yields (samples, labels, ids of clients or None).

    source: a pair (x, y) of arrays, a Hugging Face Dataset, or what has a length and pairs (sample, label).
    clients: the column of a Hugging Face Dataset that says the client of each sample, or None.
    """
    if is_table(source):
        yield from blocks_of_table(source, columns, clients)
        return
    if clients is not None:
        raise ConfigError(f"clients={clients!r} names a column, and this data set has none; give an id for each sample")
    if hasattr(source, "shape"):  # an array alone
        raise ConfigError("labels are missing; give x and y, or a mask of bools as test")
    if not isinstance(source, tuple):
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")) or isinstance(source, (Mapping, str)):
            raise ConfigError(f"samples cannot be read from {type(source).__name__}; give arrays x and y, or a data "
                              "set of pairs (sample, label)")
        pair = stored(source)
        if pair is None:
            yield from blocks_of_items(source)
            return
        source = pair
    if len(source) != 2 or source[1] is None:
        raise ConfigError("labels are missing; give x and y")
    yield from blocks_of_arrays(*source)
