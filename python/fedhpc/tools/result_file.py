"""Opens result files (RUN.h5) and reads their header and series, whatever state the files are in.

Limit: HDF5 retries for ever when a file opened for SWMR reading is damaged. Such a file is therefore
read once by a child process under a time-out before this process touches it. The child starts in a
fraction of a second because this module needs h5py and numpy only.
"""

import contextlib
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

from fedhpc.errors import DataError

PROBE_SECONDS = 20.0
MODES = {"plain": {}, "swmr": {"swmr": True, "libver": "latest"}, "unlocked": {"locking": False}}
RESTORE = "take it from where it came from again, or `fedhpc resume` its last checkpoint RUN.ckpt.<round>.h5"


def is_of_the_machine(name):
    """Whether a series or data set tells of the machine that ran, so that equal runs may differ in it."""
    return name.startswith("seconds_") or name in ("wall_seconds", "balance", "bytes_moved", "hostnames", "ranks",
                                                   "first_round")


class ResultError(DataError):
    """The file cannot be used as a result file; the message is one sentence."""


def open_run(path, timeout=PROBE_SECONDS):
    """An h5py.File for reading, whatever state the file is in; close it, or use it in a `with`."""
    return h5py.File(path, "r", **MODES[way_to_open(path, timeout)])


def way_to_open(path, timeout=PROBE_SECONDS):
    """The key of MODES by which the file opens; ResultError, with the reason, if there is none.

    Tries a plain open, then SWMR (a live or killed run), then an open without the lock (a live run
    with run.live=flush). All but the first are probed by a child for at most `timeout` seconds.
    """
    path = Path(path)
    refuse_what_is_no_hdf5(path)
    try:
        h5py.File(path, "r").close()
        return "plain"
    except OSError as error:
        reason = str(error)
    if "truncated file" in reason:  # other ways to open it would read zeros where its end is missing
        raise ResultError(f"{path}: {short_reason(reason)}")
    own = Path(__file__).resolve()  # started by its path: `-m` would let the working folder hide modules
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(
        filter(None, (str(own.parents[2]), os.environ.get("PYTHONPATH"))))}
    for mode in ("swmr", "unlocked"):
        try:
            probe = subprocess.run([sys.executable, str(own), mode, str(path)], timeout=timeout, env=environment,
                                   capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            raise ResultError(f"{path}: damaged, no answer within {timeout:g} s of reading; {RESTORE}") from None
        if probe.returncode == 0:
            return mode
        if probe.returncode == 3:  # it opened, and what it holds is wrong
            raise ResultError(probe.stderr.strip())
    raise ResultError(f"{path}: cannot be read ({short_reason(reason)})")


def refuse_what_is_no_hdf5(path):
    """ResultError if there is no file, or if what there is cannot be a result file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise ResultError(f"{path}: no such file") from None
    except OSError as error:  # for example a folder that may not be entered
        raise ResultError(f"{path}: cannot be read: {error.strerror}") from None
    if stat.S_ISDIR(found.st_mode):
        raise ResultError(f"{path}: a folder, not an HDF5 file; name the RUN.h5 in it")
    if not os.access(path, os.R_OK):
        raise ResultError(f"{path}: no permission to read it")
    if found.st_size == 0:
        raise ResultError(f"{path}: an empty file, not an HDF5 file")
    if not h5py.is_hdf5(path):
        raise ResultError(f"{path}: not an HDF5 file")


def short_reason(text):
    """HDF5's reason in words a user can act on, its own words where there are none."""
    truncated = re.search(r"truncated file: eof = (\d+).*stored_eof = (\d+)", text)
    if truncated:
        return "truncated: the file ends after {} of {} bytes; {}".format(*truncated.groups(), RESTORE)
    if "unable to lock file" in text:
        return "locked by a program that writes it; try again when that has ended"
    return text.replace("\n", " ")


@contextlib.contextmanager
def reading(path):
    """What fails inside, because a file holds something else than expected, becomes a ResultError."""
    try:
        yield
    except ResultError:  # a RuntimeError that has its sentence
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError, MemoryError) as error:
        raise ResultError(f"{path}: damaged ({short_reason(str(error))})") from None


def read_contents(file, path):
    """(attributes, configuration's text, series, units, meanings) of an open result file.

    Series are columns [T] of float64 by name, `round` first. ResultError if it is none or damaged.
    """
    with reading(path):
        if "status" not in file.attrs or "rounds/round" not in file:
            raise ResultError(f"{path}: not a fedhpc result file (no attribute status or no data set /rounds/round)")
        series, units, meanings = _read_series(file["rounds"], path)
        attributes = {name: text_of(value) for name, value in file.attrs.items()}
        config = attributes.pop("config", None)
        if config is None and "config" in file:
            config = text_of(file["config"][()])
    config = "" if config is None else config
    for name, value in (("status", attributes["status"]), ("config", config)):
        if not isinstance(value, str):
            raise ResultError(f"{path}: damaged ({name} is no text)")
    return attributes, config, series, units, meanings


def _read_series(group, path):
    """The committed rounds: /rounds/round is flushed last, so its length counts, and is read first."""
    index = np.asarray(group["round"][()])
    if index.ndim != 1 or not np.array_equal(index, np.arange(1, len(index) + 1)):
        raise ResultError(f"{path}: damaged (/rounds/round does not count from 1)")
    series, units, meanings = {"round": index.astype(int)}, {}, {}
    for name, data in group.items():
        if name == "round" or not isinstance(data, h5py.Dataset):
            continue
        if data.ndim != 1:
            raise ResultError(f"{path}: damaged (series {name} has {data.ndim} dimensions, not one)")
        column = np.full(len(index), np.nan)
        values = data[: len(index)]
        if end_of(data) > file_size(group):
            raise ResultError(f"{path}: damaged (truncated: the end of series {name} is missing; {RESTORE})")
        column[: len(values)] = values
        series[name] = column
        for kind, names in ((units, ("units", "unit")), (meanings, ("meaning",))):
            kind.update({name: str(text_of(data.attrs[one])) for one in names if one in data.attrs})
    return series, units, meanings


def end_of(data):
    """The first byte of the file behind the values of a data set; HDF5 reads zeros beyond the end of a file."""
    if data.chunks is None:
        return (data.id.get_offset() or 0) + data.id.get_storage_size()
    chunks = [data.id.get_chunk_info(number) for number in range(data.id.get_num_chunks())]
    return max((chunk.byte_offset + chunk.size for chunk in chunks if chunk.byte_offset is not None), default=0)


def file_size(group):
    """Size of a group's file now [bytes]."""
    return os.path.getsize(group.file.filename)


def text_of(value):
    """h5py's bytes and one-element arrays as str or a plain number."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, np.generic) else value


def _probe(mode, path):
    """Exit code 0: `path` opens this way and reads; 3: it opens and its content is wrong; 1: neither."""
    try:
        file = h5py.File(path, "r", **MODES[mode])
    except (OSError, RuntimeError):
        return 1
    try:
        read_contents(file, path)
    except ResultError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":  # the child that way_to_open starts: result_file.py MODE FILE
    sys.exit(_probe(sys.argv[1], sys.argv[2]))
