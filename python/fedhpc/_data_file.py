"""Writes the file of data.name=hdf5 block by block. It gets its name when it is whole."""

import contextlib
import dataclasses
import os
import uuid
from pathlib import Path

import h5py
import numpy as np

from .errors import ConfigError, DataError, Error

CHUNK_BYTES = 1 << 20
LARGEST_WHOLE = 2**53  # float64, in which the engine reads numbers, holds every integer up to here
LARGEST_LABEL = 2**31 - 1
PLAUSIBLE_LABELS = 65536  # as in the engine: in a file with fewer samples
CHANNELS = ((1, 3), (4,))  # lengths of an axis of channels, the likely ones first


def as_array(values, name):
    """Anything that numpy can take, as an array."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{name} cannot become one array ({error}); give samples of one shape, as numbers") from error
    return array


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
        raise DataError(f"{name} has shape {y.shape}, expected ({count},), one label for each sample; give y.ravel(), "
                        "or y.argmax(1) of rows with a one")
    if y.dtype.kind not in "biuf":
        raise DataError(f"{name} is of type {y.dtype}; number the classes from 0, with "
                        "numpy.unique(y, return_inverse=True)[1] for instance")
    wrong = ~((y >= 0) & (y <= LARGEST_LABEL) & (y == np.floor(y)))
    if wrong.any():
        place = int(wrong.argmax())
        raise DataError(f"{name} holds {y[place]} at entry {offset + place}; give whole numbers from 0 to "
                        f"{LARGEST_LABEL}")
    return y.astype(np.int32)


@dataclasses.dataclass
class OneClient:
    """The client of all samples of a block."""

    id: object


class _Samples:
    """An array that grows by blocks and is written in whole chunks."""

    def __init__(self, file, name, block):
        self.file, self.name, self.shape, self.dtype = file, name, block.shape[1:], block.dtype
        self.rows = max(1, CHUNK_BYTES // (block.dtype.itemsize * max(1, int(np.prod(self.shape)))))
        self.count, self.waiting, self.dataset = 0, [], None

    def append(self, block):
        if block.shape[1:] != self.shape:
            raise DataError(f"{self.name}: samples {self.count} to {self.count + len(block) - 1} have shape "
                            f"{block.shape[1:]} and those before them {self.shape}; bring all to one shape")
        # Whole numbers of another type may not fit; floating-point ones are rounded.
        fits = block.dtype.kind == self.dtype.kind == "f" or np.can_cast(block.dtype, self.dtype, "safe")
        if block.dtype != self.dtype and (np.uint8 in (block.dtype, self.dtype) or not fits):
            raise DataError(f"{self.name}: sample {self.count} is of type {block.dtype} and those before it of "
                            f"{self.dtype}; give one type")
        # A copy: a caller may use its block again.
        self.waiting.append(block.astype(self.dtype))
        self.count += len(block)
        if sum(map(len, self.waiting)) >= self.rows:
            self.write()

    def write(self, last=False):
        values = np.concatenate(self.waiting)
        if self.dataset is None and last:  # a small array has no chunk to fill
            self.file[self.name] = values
            return
        if self.dataset is None:
            self.dataset = self.file.create_dataset(self.name, (0, *self.shape), self.dtype,
                                                    chunks=(self.rows, *self.shape), maxshape=(None, *self.shape))
        rows = len(values) if last else len(values) // self.rows * self.rows
        end = len(self.dataset)
        self.dataset.resize(end + rows, axis=0)
        self.dataset[end:] = values[:rows]
        self.waiting = [values[rows:]]


@contextlib.contextmanager
def writing(path):
    try:
        yield
    except (OSError, RuntimeError) as error:  # h5py raises both where the disk is full
        if isinstance(error, Error):
            raise
        raise DataError(f"{path} cannot be written: {error}") from error


@contextlib.contextmanager
def written_whole(path):
    """An h5py.File that gets the name `path` when the context ends without an error; DataError if it cannot be."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.unfinished")
    try:
        with writing(path):
            file = h5py.File(unfinished, "w")
        try:
            yield file
        except BaseException:
            with contextlib.suppress(OSError, RuntimeError):
                file.close()
            raise
        with writing(path):
            file.close()
            with open(unfinished, "rb") as written:
                os.fsync(written.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


class Writer:
    """A file in the making; leaving the context gives it its name, an error removes it.

    channels: "first" for samples [channels, height, width], "last" for [height, width, channels], "auto" to look at
    the lengths of the axes.
    """

    def __init__(self, path, channels="auto"):
        if channels not in ("auto", "first", "last"):
            raise ConfigError(f"channels cannot be {channels!r}; allowed: 'auto', 'first', 'last'")
        self.path, self.channels = Path(path), channels
        self.whole = written_whole(self.path)
        self.x, self.y = {}, {"train": [], "test": []}
        self.clients, self.of_client = {"train": [], "test": []}, {}  # numbers of clients in order of appearance

    def __enter__(self):
        self.file = self.whole.__enter__()
        return self

    def __exit__(self, *error):
        return self.whole.__exit__(*error)

    def _writing(self):
        return writing(self.path)

    def _channels_first(self, x, name):
        if x.ndim < 4:
            return x
        if self.channels == "auto":
            ends = [(x.shape[1] in lengths, x.shape[3] in lengths) for lengths in CHANNELS]
            first, last = next((end for end in ends if any(end)), (False, False))
            if first == last:
                raise DataError(f"{name} has samples of shape {x.shape[1:]}, whose axis of channels is not clear; "
                                "set channels='first' or channels='last'")
            self.channels = "first" if first else "last"
        return x if self.channels == "first" else np.moveaxis(x, 3, 1)

    def append(self, part, x, y, clients=None):
        """Adds samples [n, ...] and labels [n] to part "train" or "test"; clients: [n] ids, or one OneClient."""
        before = self.x[part].count if part in self.x else 0
        x = self._channels_first(samples_of(x, f"x_{part}", before), f"x_{part}")
        y = labels_of(y, f"y_{part}", len(x), before)
        if part not in self.x:
            self.x[part] = _Samples(self.file, f"x_{part}", x)
        with self._writing():
            self.x[part].append(x)
        self.y[part].append(y)
        if clients is not None:
            self.clients[part].append(self._numbers_of(clients, len(x)))

    def _numbers_of(self, clients, count):
        """The numbers, by order of appearance, of the clients of a block of samples."""
        if isinstance(clients, OneClient):
            return np.full(count, self.of_client.setdefault(clients.id, len(self.of_client)), np.int64)
        ids = clients if isinstance(clients, list) else as_array(clients, "clients").tolist()
        if not isinstance(ids, list) or len(ids) != count:
            raise DataError("clients has another length than the samples; give one id for each sample")
        if any(one is None or one != one for one in ids):
            raise DataError("clients holds an entry without a client; give every sample one, or leave it out")
        try:
            return np.array([self.of_client.setdefault(one, len(self.of_client)) for one in ids], np.int64)
        except TypeError as error:
            raise DataError(f"clients holds what cannot name one ({error}); give an id for each sample") from error

    def largest_label(self):
        return max((int(y.max()) for part in self.y.values() for y in part if len(y)), default=0)

    def finish(self, edges=None, classes=None):
        """Checks the whole and writes all but the samples."""
        if edges is not None and not self.of_client:
            raise ConfigError("edges needs clients; give the client of each sample")
        if "train" not in self.x or self.x["train"].count == 0:
            raise DataError("there are no samples to train on; give at least one")
        if "test" in self.x and self.x["test"].count == 0:
            raise DataError("there are no samples to test on; give at least one, or leave test out")
        self._check_parts()
        labels = {part: np.concatenate(self.y[part]) for part in self.x}
        largest, count = self.largest_label(), sum(map(len, labels.values()))
        if largest == 0:
            raise DataError("all labels are 0; give at least two classes")
        if largest >= max(count, PLAUSIBLE_LABELS):
            raise DataError(f"the largest label is {largest}, among {count} samples; number the classes from 0")
        names = None if classes is None else [str(one) for one in classes]
        if names is not None and len(names) != largest + 1:
            raise DataError(f"classes has {len(names)} names, and the largest label is {largest}; name classes 0 to "
                            f"{largest}, because the largest label says how many classes there are")
        with self._writing():
            for part, array in self.x.items():
                array.write(last=True)
                self.file[f"y_{part}"] = labels[part]
            if names is not None:
                self.file["names/classes"] = np.array(names, object)
            if self.of_client:
                self._write_clients(edges)

    def _check_parts(self):
        if "test" not in self.x:
            return
        train, test = self.x["train"], self.x["test"]
        if train.shape != test.shape:
            raise DataError(f"samples to test on have shape {test.shape} and those to train on {train.shape}; bring "
                            "both to one shape")
        if (train.dtype == np.uint8) != (test.dtype == np.uint8):
            raise DataError(f"samples to test on are {test.dtype} and those to train on {train.dtype}; give uint8 "
                            "in both or in none")

    def _write_clients(self, edges):
        ids = list(self.of_client)
        with contextlib.suppress(TypeError):  # ids of several types stay in order of appearance
            ids = sorted(ids)
        place = np.empty(len(ids), np.int64)
        place[[self.of_client[one] for one in ids]] = np.arange(len(ids))
        of = {part: place[np.concatenate(numbers)] for part, numbers in self.clients.items() if numbers}
        self.file["names/clients"] = np.array([str(one) for one in ids], object)
        if len(of) == len(self.x):
            for part, numbers in of.items():
                self.file[f"client_{part}"] = numbers.astype(np.int32)
        if "test" not in self.x:
            if edges is not None:
                raise ConfigError("edges needs test samples, because a partition names them too; give test, a mask "
                                  "for instance")
            return
        first = 0
        for part in ("train", "test"):
            numbers = of.get(part, np.empty(0, np.int64))
            self.file[f"partition/{part}_offsets"] = np.concatenate(
                [[0], np.cumsum(np.bincount(numbers, minlength=len(ids)))]).astype(np.int64)
            self.file[f"partition/{part}_samples"] = first + np.argsort(numbers, kind="stable").astype(np.int64)
            first = self.x["train"].count
        if edges is not None:
            names, numbers = np.unique(_edges_of(edges, ids), return_inverse=True)
            self.file["partition/edge_of_client"] = numbers.astype(np.int32)
            self.file["names/edges"] = np.array([str(one) for one in names], object)


def _edges_of(edges, ids):
    """The edge of each client in order of their numbers."""
    if hasattr(edges, "keys"):
        missing = next((one for one in ids if one not in edges), None)
        if missing is not None:
            raise DataError(f"edges has no edge of client {missing!r}; give every client one")
        edges = [edges[one] for one in ids]
    edges = as_array(edges, "edges")
    if edges.shape != (len(ids),):
        raise DataError(f"edges has shape {edges.shape}, expected ({len(ids)},), one for each client in sorted order")
    return edges
