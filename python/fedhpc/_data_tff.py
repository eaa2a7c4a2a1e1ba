"""Reads data sets of TensorFlow Federated, client by client, into a file of one's own."""

import contextlib
import sqlite3
from pathlib import Path

import h5py
import numpy as np

from ._data_file import OneClient, Writer
from ._data_text import CHARACTERS, SPECIAL, WORD_PLACES, Words, character_sequences
from ._data_values import id_of
from ._numbers import is_count
from ._written import sources_of
from .errors import ConfigError, DataError

NEARLY = 1e-3  # of a step of 1/255; float32 is within 1e-4
KINDS = ("pixels", "image", "snippets", "tokens")


class _Hdf5:
    """Clients below /examples of an HDF5 file."""

    def __init__(self, path):
        self.path = path
        self.file = h5py.File(path)
        if "examples" not in self.file or not len(self.file["examples"]):
            self.file.close()
            raise DataError(f"{path} has no clients below /examples; give a file of TensorFlow Federated")
        self.clients = in_order(self.file["examples"])

    def names(self, client):
        return list(self.file["examples"][client])

    def arrays(self, client, *names):
        group = self.file["examples"][client]
        missing = next((name for name in names if name not in group), None)
        if missing:
            raise DataError(f"{self.path}: client {client} has no {missing}; give a whole file")
        return [group[name][()] for name in names]

    def close(self):
        self.file.close()


class _Database:
    """Clients of one split of an SQLite file, whose rows are samples."""

    def __init__(self, path, split):
        self.path, self.split = path, split
        self.base = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            self.clients = in_order(self._ask("SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?"))
            known = sorted({row[0] for row in self.base.execute("SELECT DISTINCT split_name FROM client_metadata")})
        except sqlite3.Error as error:
            self.close()
            raise DataError(f"{path} cannot be read: {error}; give a database of TensorFlow Federated") from error
        if not self.clients:
            self.close()
            raise ConfigError(f"{path} has no split {split!r}; there are {', '.join(known)}: name two as splits")

    def _ask(self, query, *more):
        return [row[0] for row in self.base.execute(query, (self.split, *more))]

    def _examples(self, client):
        try:
            rows = self._ask("SELECT serialized_example_proto FROM examples WHERE split_name = ? AND client_id = ?",
                             client)
            return [example(bytes(row)) for row in rows]
        except (sqlite3.Error, IndexError, ValueError) as error:
            raise DataError(f"{self.path}: client {client} cannot be read: {error}; give a whole file") from error

    def names(self, client):
        found = self._examples(client)
        return sorted(found[0]) if found else []

    def arrays(self, client, *names):
        found = self._examples(client)
        missing = next((name for name in names if not all(name in one for one in found)), None)
        if missing:
            raise DataError(f"{self.path}: client {client} has no {missing}; give a whole file")
        return [_stacked(name, [one[name] for one in found]) for name in names]

    def close(self):
        self.base.close()


def _stacked(name, values):
    """The values of one feature of a client's samples as HDF5 files have them."""
    if name in ("snippets", "tokens"):
        return [value[0] for value in values]
    rows = [np.frombuffer(value[0], np.uint8) if isinstance(value, list) else value for value in values]
    shape = {"pixels": (28, 28), "image": (32, 32, 3)}.get(name, ())
    array = np.stack(rows).reshape(len(rows), *shape)
    return array.astype(np.uint8) if name == "image" else array


def _varints(data):
    """Packed whole numbers of a protocol buffer."""
    code = np.frombuffer(data, np.uint8)
    first = np.concatenate([[0], np.flatnonzero(code < 128) + 1])
    place = np.arange(len(code)) - np.repeat(first[:-1], np.diff(first))
    return np.add.reduceat((code & 127).astype(np.int64) << (7 * place), first[:-1]) if len(code) else code


def _varint(data, place):
    number, shift = 0, 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


def _fields(data):
    """Yields (number, bytes or whole number) of the fields of a protocol buffer."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == 0:
            value, place = _varint(data, place)
        else:
            length, place = _varint(data, place) if key & 7 == 2 else ({5: 4, 1: 8}[key & 7], place)
            value, place = data[place:place + length], place + length
            if len(value) < length:
                raise ValueError("a sample ends too early")
        yield key >> 3, value


def example(data):
    """{name: list of bytes, or array of numbers} of a serialised Example of TensorFlow."""
    found = {}
    for _, features in _fields(data):
        for _, entry in _fields(features):
            parts = dict(_fields(entry))
            for kind, values in _fields(parts[2]):
                items = [value for _, value in _fields(values)]
                if kind == 2:
                    items = np.frombuffer(b"".join(items), "<f4")
                elif kind == 3:  # packed or one by one
                    items = np.concatenate([_varints(one) if isinstance(one, bytes) else [one] for one in items])
                found[parts[1].decode()] = items
    return found


def in_order(ids):
    """Ids of clients in order: by their numbers where all are numbers."""
    return sorted(ids, key=int) if all(one.isdecimal() for one in ids) else sorted(ids)


def in_steps(values):
    """Whether all of them are multiples of 1/255 from 0 to 1, up to rounding."""
    scaled = values * 255.0
    return bool(((np.abs(scaled - np.rint(scaled)) < NEARLY) & (scaled > -NEARLY) & (scaled < 255 + NEARLY)).all())


def as_pixels(values):
    return np.rint(values * 255.0).astype(np.uint8)


def _windows(snippets, window):
    """(features [n, window * 86], labels [n]) of the characters of snippets."""
    table = np.full(256, -1)
    table[[ord(one) for one in CHARACTERS]] = np.arange(len(CHARACTERS))
    features, labels = [], []
    for snippet in snippets:
        text = snippet if isinstance(snippet, bytes) else str(snippet).encode()
        codes = np.concatenate([np.full(window, -1), table[np.frombuffer(text, np.uint8)]])
        before = np.lib.stride_tricks.sliding_window_view(codes, window)[:-1]
        target = codes[window:]
        before, target = before[target >= 0], target[target >= 0]
        pixels = np.zeros((*before.shape, len(CHARACTERS)), np.uint8)
        samples, places = np.nonzero(before >= 0)
        pixels[samples, places, before[samples, places]] = 255
        features.append(pixels.reshape(len(pixels), -1))
        labels.append(target)
    if not labels:
        return np.zeros((0, window * len(CHARACTERS)), np.uint8), np.zeros(0, int)
    return np.concatenate(features), np.concatenate(labels)


class _Reader:
    """Makes samples and labels of what a client has."""

    def __init__(self, kind, options, files):
        self.kind, self.window, self.length = kind, options["window"], options["length"]
        self.most = options["sentences"]
        self.places, self.classes = None, None
        if kind == "tokens":
            if options["vocabulary"] is None:
                raise ConfigError("Stack Overflow needs vocabulary: give stackoverflow.word_count")
            self.length = self.length or WORD_PLACES
            self.words = Words(options["vocabulary"], options["words"])
            self.classes = self.words.classes
        elif kind == "snippets" and self.length:
            self.classes = len(CHARACTERS) + SPECIAL
        if kind in ("tokens", "snippets"):
            self.places = self.length
        self.bytes = kind == "pixels" and all(in_steps(file.arrays(client, "pixels")[0])
                                              for file in files for client in file.clients)

    def samples(self, file, client, part):
        if self.kind == "tokens":
            sentences = file.arrays(client, "tokens")[0]
            return self.words.sequences(sentences[:self.most] if part == "train" else sentences, self.length)
        if self.kind == "snippets":
            snippets = file.arrays(client, "snippets")[0]
            return character_sequences(snippets, self.length) if self.length else _windows(snippets, self.window)
        x, y = file.arrays(client, self.kind, "label")
        return as_pixels(x) if self.bytes else x, y.reshape(-1)


def _check_counts(options):
    for name in ("window", "length", "words", "sentences", "test_clients"):
        if options[name] is not None and not is_count(options[name]):
            raise ConfigError(f"{name} cannot be {options[name]!r}; give a whole number of at least 1")


def _opened(stack, train, test, splits):
    """{part: open source}, which `stack` closes."""
    def opened(kind, *arguments):
        source = kind(*arguments)
        stack.callback(source.close)
        return source

    if splits is None:
        return {part: opened(_Hdf5, path) for part, path in (("train", train), ("test", test)) if path is not None}
    if test is not None or isinstance(splits, str) or len(splits) not in (1, 2):
        raise ConfigError("splits are one or two names of a database that is given as train; leave test out")
    if not Path(train).is_file():
        raise DataError(f"{train} cannot be read: there is no such file")
    return {part: opened(_Database, train, split) for part, split in zip(("train", "test"), splits)}


def write_tff(path, train, test, splits, options):
    _check_counts(options)
    with contextlib.ExitStack() as stack:
        try:
            files = _opened(stack, train, test, splits)
            has = files["train"].names(files["train"].clients[0])
            kind = next((name for name in KINDS if name in has), None)
            if kind is None:
                raise DataError(f"{train} has {', '.join(has)} of each client; FEMNIST, CIFAR-100, Shakespeare and "
                                "Stack Overflow are read, which have pixels, image, snippets or tokens")
            reader = _Reader(kind, options, files.values())
            sources = sources_of(train, test, options["vocabulary"])
            with Writer(path, "last", classes=reader.classes, places=reader.places, sources=sources) as writer:
                for part, file in files.items():
                    of_server = part == "test" and kind in ("image", "tokens")
                    for client in file.clients[:options["test_clients"] if part == "test" else None]:
                        x, y = reader.samples(file, client, part)
                        client = id_of(client)
                        writer.append(part, x, y, None if of_server else OneClient(client))
                writer.finish()
        except OSError as error:
            raise DataError(f"{train if test is None else f'{train} or {test}'} cannot be read: {error}") from error
