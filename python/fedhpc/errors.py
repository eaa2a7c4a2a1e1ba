"""What goes wrong, with the sentences that the program says."""


class Error(RuntimeError):
    """A run failed; its message says where."""


class ConfigError(Error, ValueError):
    """A configuration is refused: an unknown key, a value not allowed, keys that do not go together."""


class DataError(Error):
    """A file of data or results is missing, damaged, or of another kind."""
