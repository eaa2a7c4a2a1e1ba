"""Those who follow a run while it goes on: a function of the user, a progress bar."""

import sys
import warnings

from .errors import ConfigError
from .tools.configuration import parse_config


def in_notebook():
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


class Followers:
    """Calls on_round and draws the bar."""

    def __init__(self, on_round, progress):
        if on_round is not None and not callable(on_round):
            raise ConfigError(f"on_round cannot be {on_round!r}; give a function of one dictionary")
        if isinstance(progress, str):  # "none" would be true
            raise ConfigError(f"progress cannot be {progress!r}; give True, False or None (the program's own lines are "
                              "the key run.progress)")
        self._on_round = on_round
        self._stop = False
        self._raised = None
        self._bar = None
        self._begun = False
        self._draws = bool(progress if progress is not None else in_notebook() or sys.stderr.isatty())

    def functions(self):
        """(begin, round, stop) for the engine; None where nobody listens."""
        if not self._draws and self._on_round is None:
            return None, None, None
        return self.begin, self.round, None if self._on_round is None else self.stop

    def begin(self, config, done):
        """`config`: the INI text of the run; `done`: rounds of an earlier part of it."""
        values = parse_config(config)
        self._begun = True
        if self._draws and values["run.progress"] == "none":
            from tqdm.auto import tqdm

            self._bar = tqdm(total=int(values["run.rounds"]), initial=done, unit="round",
                             desc=values["algorithm.name"])
        if hasattr(self._on_round, "begin"):
            self._on_round.begin(values)

    def round(self, record):
        """`record`: the figures of a round."""
        if self._bar is not None:
            shown = {"accuracy": record.get("personal_accuracy", record.get("global_accuracy")),
                     "rmse": record.get("personal_rmse", record.get("global_rmse")),
                     "loss": record.get("train_loss")}
            self._bar.set_postfix({name: f"{value:.4g}" for name, value in shown.items() if value is not None},
                                  refresh=False)
            self._bar.update()
        if self._on_round is None or self._raised is not None:
            return
        try:
            self._stop = bool(self._on_round(record)) or self._stop
        except Exception as error:  # of a log or a plot: the rounds are not lost
            self._raised, self._stop = error, True

    def raise_again(self, status, output):
        """Raises what on_round has raised, after the run that it has ended; `output`: the result file."""
        if self._raised is None:
            return
        error, self._raised = self._raised, None
        if status == "interrupted" and hasattr(error, "add_note"):  # from Python 3.11 on
            error.add_note(f"the run has ended with a checkpoint; fedhpc.resume({str(output)!r}) goes on")
        raise error

    def stop(self):
        """Whether on_round has asked for the end, or has raised an exception."""
        return self._stop

    def end(self, status):
        """`status`: that of the result file. Those hear of the end who have heard of the begin."""
        begun, self._begun = self._begun, False  # once, also where it raises
        if begun and hasattr(self._on_round, "end"):
            self._on_round.end(status)

    def fail(self):
        """Tells of the end by an exception, which no other one may hide."""
        try:
            self.end("failed")
        except Exception as error:
            warnings.warn(f"end(\"failed\") of on_round has raised {type(error).__name__}: {error}", stacklevel=2)

    def close(self):
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
        if kind is not None:
            self.fail()
