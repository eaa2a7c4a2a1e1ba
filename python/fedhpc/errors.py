"""What goes wrong, with the sentences that the program says."""


class Error(RuntimeError):
    """A run failed; its message says where."""


class ConfigError(Error, ValueError):
    """A configuration is refused: an unknown key, a value not allowed, keys that do not go together."""


class DataError(Error):
    """A file of data or results is missing, damaged, or of another kind."""


class Interrupted(KeyboardInterrupt):
    """A run was interrupted and has left a checkpoint: fedhpc.resume(path) goes on from there.

    `path` is its result file.
    """

    def __init__(self, path):
        super().__init__(f"interrupted; fedhpc.resume({str(path)!r}) goes on")
        self.path = path
