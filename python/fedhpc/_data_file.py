"""Writes the file of data.name=hdf5 block by block. It gets its name when it is whole."""

import contextlib
import dataclasses
import warnings
from pathlib import Path

import numpy as np

from ._data_values import (
    LARGEST_WHOLE, are_words, as_array, ids_of, is_labels, labels_of, places_of, samples_of, targets_of,
)
from ._written import require_room, writing, written_whole
from .errors import ConfigError, DataError

CHUNK_BYTES = 1 << 20
PLAUSIBLE_LABELS = 65536  # as in the engine: in a file with fewer samples
CHANNELS = ((1, 3), (4,))  # lengths of an axis of channels, the likely ones first


@dataclasses.dataclass
class OneClient:
    """The client of all samples of a block."""

    id: object


class _Samples:
    """An array that grows by blocks and is written in whole chunks."""

    def __init__(self, file, path, name, block):
        self.file, self.path, self.name, self.shape, self.dtype = file, path, name, block.shape[1:], block.dtype
        self.rows = max(1, CHUNK_BYTES // (block.dtype.itemsize * max(1, int(np.prod(self.shape)))))
        self.count, self.waiting, self.pending, self.dataset = 0, [], 0, None

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
        self.pending += len(block)
        if self.pending >= self.rows:
            self.write()

    def write(self, last=False):
        values = np.concatenate(self.waiting)
        require_room(self.file, values.nbytes, self.path)
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
        self.waiting, self.pending = [values[rows:]], len(values) - rows


class Writer:
    """A file in the making; leaving the context gives it its name, an error removes it.

    channels: "first" for samples [channels, height, width], "last" for [height, width, channels], "auto" to look at
    the lengths of the axes.
    classes: how many there are, where labels do not show all of them.
    places: y are the labels of as many places of a sequence, which go to the file block by block; None: they are not.
    sources: files that are read meanwhile, which may not be replaced.
    """

    def __init__(self, path, channels="auto", classes=None, places=None, sources=()):
        if channels not in ("auto", "first", "last"):
            raise ConfigError(f"channels cannot be {channels!r}; allowed: 'auto', 'first', 'last'")
        self.path, self.channels, self.classes, self.places = Path(path), channels, classes, places
        self.whole = written_whole(self.path, sources)
        self.x, self.y, self.labels = {}, {"train": [], "test": []}, {"train": [], "test": []}
        self.sequences = {}
        self.clients, self.of_client = {"train": [], "test": []}, {}  # numbers of clients in order of appearance
        self.words = None  # whether ids are words, and an example
        self.told = False  # of clients that lack one part

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

    def append(self, part, x, y, clients=None, labels=None):
        """Adds samples [n, ...] and labels [n] or targets [n, ...] to part "train" or "test".

        clients: [n] ids, or one OneClient. labels: [n], beside targets.
        """
        before = self.x[part].count if part in self.x else 0
        x = self._channels_first(samples_of(x, f"x_{part}", before), f"x_{part}")
        y = (targets_of(y, f"y_{part}", len(x), before) if self.places is None else
             places_of(y, f"y_{part}", (len(x), self.places)))
        first = next((block for blocks in self.y.values() for block in blocks), y)
        if y.shape[1:] != first.shape[1:]:
            raise DataError(f"y_{part} has targets of shape {y.shape[1:]} from entry {before} on, and those before are "
                            f"of shape {first.shape[1:]}; bring all to one shape")
        if part not in self.x:
            self.x[part] = _Samples(self.file, self.path, f"x_{part}", x)
            if self.places is not None:
                self.sequences[part] = _Samples(self.file, self.path, f"y_{part}", y)
        with self._writing():
            self.x[part].append(x)
            if self.places is not None:
                self.sequences[part].append(y)
        if self.places is None:
            self.y[part].append(y)
        if labels is not None:
            self.labels[part].append(labels_of(labels, f"labels of y_{part}", len(x), before))
        if clients is not None:
            self.clients[part].append(self._numbers_of(clients, len(x)))

    def _numbers_of(self, clients, count):
        """The numbers, by order of appearance, of the clients of a block of samples."""
        if isinstance(clients, OneClient):
            return np.full(count, self.of_client.setdefault(clients.id, len(self.of_client)), np.int64)
        exact = LARGEST_WHOLE  # from where on ids merge in floats
        if not isinstance(clients, list):
            clients = as_array(clients, "clients")
            exact = 2 ** (np.finfo(clients.dtype).nmant + 1) if clients.dtype.kind == "f" else exact
            clients = clients.tolist()
        ids = clients
        if not isinstance(ids, list) or len(ids) != count:
            raise DataError("clients has another length than the samples; give one id for each sample")
        if any(one is None or one != one for one in ids):
            raise DataError("clients holds an entry without a client; give every sample one, or leave it out")
        merged = next((one for one in ids if isinstance(one, float) and abs(one) >= exact), None)
        if merged is not None:
            raise DataError(f"clients holds the float {merged!r}, beyond which ids merge; give whole numbers or words")
        if any(isinstance(one, (str, bytes)) and not one for one in ids):
            raise DataError("clients holds an empty word; give every sample the id of its client")
        self.words = are_words(ids, "clients", self.words)
        try:
            return np.array([self.of_client.setdefault(one, len(self.of_client)) for one in ids], np.int64)
        except TypeError as error:
            raise DataError(f"clients holds what cannot name one ({error}); give an id for each sample") from error

    def has_labels(self):
        """Whether what samples were given with are labels, and no targets."""
        return all(is_labels(y) for part in self.y.values() for y in part)

    def takes_floats_as_labels(self):
        return self.has_labels() and any(y.dtype.kind == "f" for part in self.y.values() for y in part)

    def takes_yes_and_no_as_numbers(self):
        """Whether targets [n, T] are floats, all of them 0 or 1; [n, 1] are said to be numbers."""
        blocks = [y for part in self.y.values() for y in part]
        return all(y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind == "f" and np.isin(y, (0, 1)).all() for y in blocks)

    def largest_label(self):
        """That of the labels beside targets or, where targets alone are given, of labels; 0 without any."""
        given = any(map(len, self.labels.values()))
        blocks = [y for part in (self.labels if given else self.y).values() for y in part if len(y)]
        return max((int(y.max()) for y in blocks), default=0) if all(map(is_labels, blocks)) else 0

    def lacks_label_0(self):
        """Whether there are labels, and none of them is 0."""
        blocks = [y for part in (self.labels if any(map(len, self.labels.values())) else self.y).values() for y in part]
        return all(map(is_labels, blocks)) and min((int(y.min()) for y in blocks if len(y)), default=0) > 0

    def finish(self, edges=None, classes=None):
        """Checks the whole and writes all but the samples."""
        if edges is not None and not self.of_client:
            raise ConfigError("edges needs clients; give the client of each sample")
        if "train" not in self.x or self.x["train"].count == 0:
            raise DataError("there are no samples to train on; give at least one")
        if "test" in self.x and self.x["test"].count == 0:
            raise DataError("there are no samples to test on; give at least one, or leave test out")
        self._check_parts()
        if self.places is None:
            self._write_targets(classes)
        with self._writing():
            for array in (*self.x.values(), *self.sequences.values()):
                array.write(last=True)
            if self.classes is not None:
                self.file["y_train"].attrs["classes"] = self.classes
            if self.of_client:
                self._write_clients(edges)

    def _write_targets(self, classes):
        """Checks and writes all of y, labels and the names of classes."""
        targets = {part: np.concatenate(self.y[part]) for part in self.x}
        labels = {part: np.concatenate(self.labels[part]) for part in self.x if self.labels[part]}
        if 0 < len(labels) < len(self.x):
            raise DataError("labels are given of a part of the samples; give them of those to train on and to test on")
        kinds = {y.dtype.kind for y in targets.values()}
        if len(kinds) > 1 and (labels or next(iter(targets.values())).ndim > 1):
            raise DataError("y holds whole numbers of some samples and floats of others; give one kind")
        largest, count = self.largest_label(), sum(map(len, targets.values()))
        are_labels = not labels and all(map(is_labels, targets.values()))
        if are_labels:
            targets = {part: y.astype(np.int32) for part, y in targets.items()}
            if largest == 0:
                raise DataError("all labels are 0; give at least two classes")
        elif not labels and classes is not None:
            raise ConfigError("classes names labels, and y holds targets without any; give labels too, or leave it out")
        elif not labels and "f" in kinds:
            targets = {part: y.astype(np.float64) for part, y in targets.items()}
        if self.classes is not None and largest >= self.classes:
            raise DataError(f"the largest label is {largest}, but there are {self.classes} classes; number them from 0")
        if largest >= max(count, PLAUSIBLE_LABELS):
            raise DataError(f"the largest label is {largest}, among {count} samples; number the classes from 0")
        names = None if classes is None else [str(one) for one in classes]
        if names is not None and len(names) != largest + 1:
            raise DataError(f"classes has {len(names)} names, and the largest label is {largest}; name classes 0 to "
                            f"{largest}, because the largest label says how many classes there are")
        with self._writing():
            require_room(self.file, sum(one.nbytes for one in (*targets.values(), *labels.values())), self.path)
            for part, values in targets.items():
                self.file[f"y_{part}"] = values
                if labels:
                    self.file[f"label_{part}"] = labels[part]
            if names is not None:
                self.file["names/classes"] = np.array(names, object)

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
        require_room(self.file, sum(map(len, of.values())) * 12 + sum(len(str(one)) + 32 for one in ids), self.path)
        self.file["names/clients"] = np.array([str(one) for one in ids], object)
        self._tell_of_untrained(ids, of)
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

    def _tell_of_untrained(self, ids, of):
        """Warns of clients with test samples alone: an id may be written in another way."""
        if self.told or "test" not in of or "train" not in of:
            return
        alone = np.setdiff1d(of["test"], of["train"])
        if len(alone):
            named = ", ".join(repr(ids[one]) for one in alone[:5]) + (", ..." if len(alone) > 5 else "")
            warnings.warn(f"{len(alone)} of {len(ids)} clients have test samples and none to train on: {named}",
                          stacklevel=5)


def _edges_of(edges, ids):
    """The edge of each client in order of their numbers."""
    if hasattr(edges, "keys"):
        missing = next((one for one in ids if one not in edges), None)
        if missing is not None:
            raise DataError(f"edges has no edge of client {missing!r}; give every client one")
        edges = [edges[one] for one in ids]
    edges = ids_of(edges, "edges")
    if edges.shape != (len(ids),):
        raise DataError(f"edges has shape {edges.shape}, expected ({len(ids)},), one for each client in sorted order")
    unknown = next((client for client, one in zip(ids, edges.tolist()) if one is None or one != one), None)
    if unknown is not None:
        raise DataError(f"edges holds no edge of client {unknown!r}; give every client one")
    are_words(edges.tolist(), "edges")
    return edges
