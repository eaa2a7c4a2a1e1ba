"""Files that get their names when they are whole, in the place of what may be replaced."""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

import h5py
import numpy as np

from .errors import DataError, Error

SLACK_BYTES = 1 << 20  # for what HDF5 writes beside the numbers


@contextlib.contextmanager
def writing(path):
    try:
        yield
    except (OSError, RuntimeError) as error:  # h5py raises both where the disk is full
        if isinstance(error, Error):
            raise
        raise DataError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def sources_of(*values):
    """The files that are given as paths, and those in which arrays on disk lie, also in tuples."""
    found = []
    for value in values:
        if isinstance(value, tuple):
            found += sources_of(*(one for one in value if hasattr(one, "shape") or isinstance(one, tuple)))
        elif isinstance(value, h5py.Dataset):
            found.append(value.file.filename)
        elif isinstance(value, np.memmap):
            found.append(value.filename)
        elif isinstance(value, (str, os.PathLike)):
            found.append(value)
    return [one for one in found if one is not None]


def check_target(path, sources=()):
    """DataError where a file of this name cannot be, or would replace a run's results or what is being read."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DataError(f"{path} cannot be written: the folder {path.parent} does not permit it")
    if not path.exists():
        return
    if not path.is_file():
        raise DataError(f"{path} is no file that can be replaced; give another name")
    if any(os.path.exists(one) and os.path.samefile(path, one) for one in sources):
        raise DataError(f"{path} is one of the files that are read; give another name")
    if _is_result(path):
        raise DataError(f"{path} is a result file or a checkpoint of a run; give another name, or remove it")


def _is_result(path):
    try:
        with h5py.File(path) as file:
            return "status" in file.attrs
    except BlockingIOError:  # a run is writing it
        return True
    except (OSError, RuntimeError):
        return False


def require_room(file, needed, path):
    """DataError unless a file in the making can take so many bytes more: HDF5 does not outlive a full disk."""
    if isinstance(file, h5py.File):
        file.flush()  # what it holds back is on the disk, and no longer free
        file, needed = file.filename, needed + SLACK_BYTES
    free = shutil.disk_usage(Path(file).parent).free
    if free < needed:
        raise DataError(f"{path} cannot be written: {needed / 1e6:.1f} MB more are needed and {free / 1e6:.1f} MB are "
                        "free; make room")


@contextlib.contextmanager
def unfinished(path, sources=()):
    """Yields a name beside `path`; the file there gets the name `path` when the context ends without an error."""
    check_target(path, sources)
    other = path.with_name(f"{path.name}.{uuid.uuid4().hex}.unfinished")
    try:
        yield other
        with writing(path):
            with open(other, "rb") as written:
                os.fsync(written.fileno())
            os.replace(other, path)
    finally:
        other.unlink(missing_ok=True)


@contextlib.contextmanager
def written_whole(path, sources=()):
    """An h5py.File that gets the name `path` when the context ends without an error; DataError if it cannot be.

    sources: files that are being read, which it may not replace.
    """
    with unfinished(path, sources) as other:
        with writing(path):
            file = h5py.File(other, "w")
        try:
            yield file
        except BaseException:
            with contextlib.suppress(OSError, RuntimeError):
                file.close()
            raise
        with writing(path):
            file.close()
