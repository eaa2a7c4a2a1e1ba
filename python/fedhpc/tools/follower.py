"""Reads a result file again and again, while a run writes it."""

from pathlib import Path

from .result_file import ResultError, way_to_open
from .results import load_again


class Follower:
    """Reads a result file again and again; a file that is replaced, or that has shrunk, is first probed anew."""

    def __init__(self, path):
        self.path = Path(path)
        self._file = None  # (inode, device) and the way it opens
        self._size = 0

    def read(self):
        """The Run now; FileNotFoundError while there is no file, ResultError where it cannot be read."""
        state = self.path.stat()
        identity = (state.st_ino, state.st_dev)
        if self._file is not None and self._file[0] == identity and state.st_size >= self._size:
            try:
                run = load_again(self.path, self._file[1])
                self._size = state.st_size
                return run
            except ResultError:  # it has ended, or is in the middle of a write
                self._file = None
        mode = way_to_open(self.path)
        run = load_again(self.path, mode)
        self._file, self._size = (identity, mode), state.st_size
        return run
