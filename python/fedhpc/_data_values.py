"""Samples, labels and targets as arrays that the engine reads."""

import numpy as np

from .errors import DataError

LARGEST_WHOLE = 2**53  # float64, in which the engine reads numbers, holds every integer up to here
LARGEST_LABEL = 2**31 - 1


def as_array(values, name):
    """Anything that numpy can take, as an array."""
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked entries; give every sample a value, or leave it out")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{name} cannot become one array ({error}); give samples of one shape, as numbers") from error
    return array


def ids_of(values, name="clients"):
    """Ids as an array: words beside numbers stay what they are, where numpy makes words of all."""
    array = as_array(values, name)
    return np.array(values, object) if array.dtype.kind in "US" and isinstance(values, (list, tuple)) else array


def are_words(ids, name, first=None):
    """(whether ids are words, one of them), `first` those of earlier ones; the id 3 is another one than the id "3"."""
    for one in ids:
        kind = isinstance(one, (str, bytes))
        first = first or (kind, one)
        if kind != first[0]:
            number, word = (first[1], one) if kind else (one, first[1])
            raise DataError(f"ids of {name} are numbers ({number!r}) and words ({word!r}), which name different "
                            f"{name}; give one kind" + (", in test_clients too" if name == "clients" else ""))
    return first


def id_of(name):
    """A client's name as a whole number where it is written as one, so that 10 comes behind 9; 007 is not 7."""
    return int(name) if name.isdecimal() and str(int(name)) == name else name


def samples_of(values, name, offset=0):
    """A block of samples as numbers that the engine reads: uint8, other whole numbers, float32 or float64."""
    x = as_array(values, name)
    if x.ndim < 2 or x.ndim > 4 or 0 in x.shape[1:]:
        raise DataError(f"{name} has shape {x.shape}; give [samples, features], [samples, height, width] or images "
                        "with channels")
    if x.dtype == bool or x.dtype == np.float16:
        x = x.astype(np.float32)
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind in "iu":
        if x.ndim > 2:
            raise DataError(f"{name} holds images as {x.dtype}; say astype(numpy.uint8) for pixels from 0 to 255, "
                            "or astype(numpy.float32) for numbers that stay as they are")
        if x.size and max(abs(int(x.min())), abs(int(x.max()))) > LARGEST_WHOLE:
            raise DataError(f"{name} holds {x.dtype} beyond 2^53, which float64 cannot hold; give smaller numbers")
        return x
    if x.dtype.kind != "f":
        raise DataError(f"{name} is of type {x.dtype}; give whole numbers or floats")
    beyond = ~(np.abs(x) <= np.finfo(np.float32).max)
    if beyond.any():
        place = np.unravel_index(int(beyond.argmax()), x.shape)
        raise DataError(f"{name} holds {x[place]} in sample {offset + int(place[0])}; give finite numbers within the "
                        "range of float32")
    return x if x.dtype == np.float32 else x.astype(np.float64)


def labels_of(values, name, count, offset=0):
    """A block of labels as int32."""
    y = as_array(values, name)
    if y.shape != (count,):
        raise DataError(f"{name} has shape {y.shape}, expected ({count},), one label for each sample")
    if y.dtype.kind not in "biuf":
        raise DataError(f"{name} is of type {y.dtype}; number the classes from 0, with "
                        "numpy.unique(y, return_inverse=True)[1] for instance")
    wrong = ~((y >= 0) & (y <= LARGEST_LABEL) & (y == np.floor(y)))
    if wrong.any():
        place = int(wrong.argmax())
        raise DataError(f"{name} holds {y[place]} at entry {offset + place}; give whole numbers from 0 to "
                        f"{LARGEST_LABEL}")
    return y.astype(np.int32)


def places_of(values, name, shape):
    """A block of labels [n, places] of sequences, whole numbers from 0, in their own type."""
    y = as_array(values, name)
    if y.shape != shape or y.dtype.kind != "i" or y.min(initial=0) < 0:
        raise DataError(f"{name} has shape {y.shape} and type {y.dtype}; give whole numbers from 0 of shape {shape}")
    return y


def is_labels(y):
    """Whether the engine reads an array of y_train as labels, where there are no others: whole numbers [n] from 0."""
    return y.ndim == 1 and (y.dtype.kind != "f" or bool(((y >= 0) & (y == np.floor(y))).all()))


def targets_of(values, name, count, offset=0):
    """A block of what is told of samples: labels as int32, whole numbers [n, ...] as int32, floats [n] or [n, ...]."""
    y = as_array(values, name)
    if y.ndim == 0 or len(y) != count or 0 in y.shape[1:]:
        raise DataError(f"{name} has shape {y.shape}, expected ({count},) or ({count}, ...), one label or some targets "
                        "for each sample")
    if y.dtype.kind not in "biuf" or (y.ndim == 1 and y.dtype.kind != "f"):
        return labels_of(y, name, count, offset) if y.ndim == 1 else _no_numbers(y, name)
    if y.dtype.kind != "f":
        if y.size and max(-int(y.min()), int(y.max())) > LARGEST_LABEL:
            raise DataError(f"{name} holds whole numbers beyond {LARGEST_LABEL}; give floats for a regression")
        return y.astype(np.int32)
    wrong = ~np.isfinite(y)
    if wrong.any():
        place = np.unravel_index(int(wrong.argmax()), y.shape)
        raise DataError(f"{name} holds {y[place]} at entry {offset + int(place[0])}; give finite numbers")
    return y if y.dtype == np.float32 else y.astype(np.float64)


def _no_numbers(y, name):
    raise DataError(f"{name} is of type {y.dtype}; give whole numbers or floats")
