"""Reads LEAF's JSON files, one at a time, into a file of one's own."""

import json
from math import isqrt
from pathlib import Path

import numpy as np

from ._data_file import OneClient, Writer
from ._data_text import LEAF_CHARACTERS, leaf_numbers
from ._data_tff import as_pixels, in_steps
from ._data_values import id_of
from .errors import ConfigError, DataError

KINDS = ("auto", "images", "text", "numbers")


def _files(source):
    """The files of a part, in order."""
    source = Path(source)
    found = sorted(source.glob("*.json")) if source.is_dir() else [source]
    if not found:
        raise DataError(f"{source} has no *.json; give a folder that LEAF's preprocess.sh has made, data/train")
    return found


def _content(path):
    """[(client, samples, labels)] of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        users, data = content["users"], content["user_data"]
        counts = content.get("num_samples", [None] * len(users))
        if len(counts) != len(users):
            raise ValueError(f"users has {len(users)} entries and num_samples {len(counts)}")
        found = [(user, count, data[user]["x"], data[user]["y"]) for user, count in zip(users, counts)]
        if not all(isinstance(x, list) and isinstance(y, list) for _, _, x, y in found):
            raise ValueError("x and y of a client are no lists")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} cannot be read: {error}; give a JSON file of LEAF, with users, num_samples and "
                        "user_data") from error
    for user, count, x, y in found:
        if len(x) != len(y) or count not in (None, len(y)):
            raise DataError(f"{path}: client {user} has {len(x)} samples, {len(y)} labels and num_samples {count}; "
                            "give a whole file")
    return [(user, x, y) for user, _, x, y in found if len(y)]


def _kind_of(x):
    if isinstance(x[0], str):
        return "text"
    try:
        values, whole = np.asarray(x[0], np.float64), np.asarray(x, np.float64)
    except (ValueError, TypeError):
        return "numbers"  # _arrays says what is wrong with them
    square = values.ndim == 1 and len(values) > 1 and isqrt(len(values)) ** 2 == len(values)
    return "images" if square and in_steps(whole) else "numbers"


def _arrays(kind, x, y, where):
    """(samples, labels) of a client."""
    if kind == "text":
        x, y = leaf_numbers(x, where), leaf_numbers(y, f"{where}, y")
        if y.shape[1] != 1:
            raise DataError(f"{where}: labels have {y.shape[1]} characters; give the next character alone")
        return x, y[:, 0]
    try:
        x, y = np.asarray(x, np.float32), np.asarray(y)
    except (ValueError, TypeError) as error:
        raise DataError(f"{where}: samples cannot become one array ({error}); give samples of one length, all lists of "
                        "numbers or all texts") from error
    if x.ndim != 2:
        raise DataError(f"{where}: samples have shape {x.shape[1:]}; give lists of numbers")
    if kind == "numbers":
        return x, y
    side = isqrt(x.shape[1])
    if side * side != x.shape[1] or not in_steps(x):
        raise DataError(f"{where}: not all samples are square images of pixels from 0 to 1 in steps of 1/255; set "
                        "kind='numbers'")
    return as_pixels(x).reshape(-1, side, side), y


def write_leaf(path, train, test, kind, classes):
    if kind not in KINDS:
        raise ConfigError(f"kind cannot be {kind!r}; allowed: {', '.join(map(repr, KINDS))}")
    if test is None and (Path(train) / "train").is_dir():
        train, test = Path(train) / "train", Path(train) / "test"
    parts = {part: _files(source) for part, source in (("train", train), ("test", test)) if source is not None}
    of_train, of_server, writer = set(), None, None
    with Writer(path, "first", sources=[file for files in parts.values() for file in files]) as writer:
        for part, files in parts.items():
            for file in files:
                for user, x, y in _content(file):
                    kind = _kind_of(x) if kind == "auto" else kind
                    if part == "train":
                        of_train.add(user)
                    elif of_server is None:
                        of_server = user not in of_train
                    elif of_server and user in of_train:
                        raise DataError(f"{file}: client {user} has samples to train on, and others before it have "
                                        "not; give test samples of the training clients, or of none of them")
                    client = id_of(user)
                    writer.append(part, *_arrays(kind, x, y, f"{file}, client {user}"),
                                  None if part == "test" and of_server else OneClient(client))
        writer.classes = len(LEAF_CHARACTERS) if kind == "text" else classes
        writer.finish()
