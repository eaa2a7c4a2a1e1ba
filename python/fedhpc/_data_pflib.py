"""Reads PFLlib's data sets, client by client, into a file of one's own."""

import json
import pickle
import warnings
import zipfile

import numpy as np

from ._data_file import OneClient, Writer
from .errors import DataError


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


def _check_numbers(folder, parts):
    """DataError for a client that has no file; warns of those that have one of two."""
    known = sorted({client for files in parts.values() for client in files})
    gap = next((number for number, client in enumerate(known) if number != client), None)
    if gap is not None:
        raise DataError(f"{gap}.npz is missing in {folder / 'train'}, which has {known[-1]}.npz; give a whole data set")
    missing = [f"{part}/{client}.npz" for part, files in parts.items() if files
               for client in known if client not in files]
    if missing:
        named = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        warnings.warn(f"{folder}: {len(missing)} of {2 * len(known)} files are missing: {named}; these clients are "
                      "not trained, or not tested", stacklevel=4)


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
            gone = next((f"{client}.npz is missing" for client in range(wanted) if client not in files), "one is too many")
            raise DataError(f"{folder / part} has files of {len(files)} clients and config.json {wanted}: {gone}; give a "
                            "whole data set")
    _check_numbers(folder, parts)
    sources = [config, *(file for files in parts.values() for file in files.values())]
    with Writer(path, "first", sources=sources) as writer:
        writer.told = True
        for part, files in parts.items():
            for client, file in sorted(files.items()):
                try:
                    writer.append(part, *_pickled(file), OneClient(client))
                except DataError as error:
                    raise DataError(f"{file}: {error}") from error
        writer.finish()
