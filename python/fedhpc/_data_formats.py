"""Reads data sets of other programs, client by client, into a file of one's own."""

import json
import pickle
import zipfile

import h5py
import numpy as np

from ._data_file import OneClient, Writer
from .errors import ConfigError, DataError

# TensorFlow Federated's vocabulary of Shakespeare, in its order.
CHARACTERS = ("dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r")
NEARLY = 1e-3  # of a step of 1/255; float32 is within 1e-4


def _clients_of(file, path):
    if "examples" not in file or not len(file["examples"]):
        raise DataError(f"{path} has no clients below /examples; give a file of TensorFlow Federated")
    ids = list(file["examples"])
    return sorted(ids, key=int) if all(one.isdecimal() for one in ids) else ids


def _arrays(file, path, client, *names):
    group = file["examples"][client]
    missing = next((name for name in names if name not in group), None)
    if missing:
        raise DataError(f"{path}: client {client} has no {missing}; give a whole file")
    return [group[name][()] for name in names]


def _in_steps(file, path):
    """Whether all pixels are multiples of 1/255 from 0 to 1, up to rounding."""
    for client in _clients_of(file, path):
        scaled = _arrays(file, path, client, "pixels")[0] * 255.0
        if not ((np.abs(scaled - np.rint(scaled)) < NEARLY) & (scaled > -NEARLY) & (scaled < 255 + NEARLY)).all():
            return False
    return True


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


def _tff_samples(file, path, kind, bytes_of_pixels, window):
    """Yields (client, samples, labels) of every client."""
    for client in _clients_of(file, path):
        if kind == "snippets":
            yield client, *_windows(_arrays(file, path, client, "snippets")[0], window)
            continue
        x, y = _arrays(file, path, client, kind, "label")
        if bytes_of_pixels:
            x = np.rint(x * 255.0).astype(np.uint8)
        yield client, x, y.reshape(-1)


def write_tff(path, train, test, window):
    if not isinstance(window, int) or window < 1:
        raise ConfigError(f"window cannot be {window!r}; give a number of characters of at least 1")
    sources = {part: source for part, source in (("train", train), ("test", test)) if source is not None}
    files = {}
    try:
        for part, source in sources.items():
            files[part] = h5py.File(source)
        client = _clients_of(files["train"], train)[0]
        first = files["train"]["examples"][client]
        kind = next((name for name in ("pixels", "image", "snippets") if name in first), None)
        if kind is None:
            raise DataError(f"{train} has {', '.join(first)} of each client; FEMNIST, CIFAR-100 and Shakespeare are "
                            "read, which have pixels, image or snippets")
        as_bytes = kind == "pixels" and all(_in_steps(file, sources[part]) for part, file in files.items())
        with Writer(path, "last") as writer:
            for part, file in files.items():
                of_server = part == "test" and kind == "image"
                for client, x, y in _tff_samples(file, sources[part], kind, as_bytes, window):
                    client = int(client) if client.isdecimal() else client
                    writer.append(part, x, y, None if of_server else OneClient(client))
            writer.finish()
    except OSError as error:
        raise DataError(f"{' or '.join(map(str, sources.values()))} cannot be read: {error}") from error
    finally:
        for file in files.values():
            file.close()


class _Arrays(pickle.Unpickler):
    """Unpickles dicts, lists, numbers and arrays; what else a pickle names is refused, so that none of it runs."""

    # Old protocols keep bytes as text.
    ENCODE = ("_codecs", "encode")
    KNOWN = {"_reconstruct": np.empty(0).__reduce__()[0], "scalar": np.float32(0).__reduce__()[0],
             "_frombuffer": np.empty(1).__reduce_ex__(5)[0], "ndarray": np.ndarray, "dtype": np.dtype}

    def find_class(self, module, name):
        if module.split(".")[0] == "numpy" and name in self.KNOWN:
            return self.KNOWN[name]
        if (module, name) == self.ENCODE:
            return lambda text, encoding: str.encode(text, encoding)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array")


def _pickled(path):
    """The samples and labels in a file of PFLlib."""
    formats = np.lib.format
    try:
        with zipfile.ZipFile(path) as archive, archive.open("data.npy") as file:
            version = formats.read_magic(file)
            header = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
            shape, _, dtype = header(file)
            if shape != () or not dtype.hasobject:
                raise DataError("it has no dict in data; give a file of PFLlib")
            content = _Arrays(file).load()
        content = content.item() if isinstance(content, np.ndarray) and content.shape == () else content
        x, y = content["x"], content["y"]
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"it cannot be read ({error}); give a file of PFLlib, with arrays x and y") from error
    return x, y


def _numbered(folder):
    """The files 0.npz, 1.npz ... of a folder, by client."""
    return {int(file.stem): file for file in sorted(folder.glob("*.npz")) if file.stem.isdecimal()}


def write_pflib(path, folder):
    parts = {part: _numbered(folder / part) for part in ("train", "test")}
    if not parts["train"]:
        raise DataError(f"{folder} has no train/0.npz; give the folder of a data set of PFLlib")
    config = folder / "config.json"
    try:
        wanted = json.loads(config.read_text()).get("num_clients") if config.is_file() else None
    except (ValueError, AttributeError, OSError) as error:
        raise DataError(f"{config} cannot be read: {error}") from error
    for part, files in parts.items():
        if wanted is not None and files and sorted(files) != list(range(wanted)):
            raise DataError(f"{folder / part} has files of {len(files)} clients and config.json {wanted}; give a whole "
                            "data set")
    with Writer(path, "first") as writer:
        for part, files in parts.items():
            for client, file in sorted(files.items()):
                try:
                    writer.append(part, *_pickled(file), OneClient(client))
                except DataError as error:
                    raise DataError(f"{file}: {error}") from error
        writer.finish()
