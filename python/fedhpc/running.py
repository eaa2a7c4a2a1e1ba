"""Runs, resumes and plans experiments: in this process, on the ranks that started it, or on ranks of their own."""

import atexit
import hashlib
import importlib.util
import os
import shlex
import signal
import sys
import traceback
import warnings

import cloudpickle

from . import _core
from ._numbers import is_count
from .errors import ConfigError, Interrupted
from .following import Followers

_INTERRUPTED = 75  # exit code of a run that a signal has stopped


def run(config=None, *, ranks=None, on_round=None, progress=None, force=False, go_on=False, **keys):
    """Carries out a run and returns its Results.

    config    the path of an INI file, or a dictionary {"train.lr": 0.1} or {"train": {"lr": 0.1}}
    keys      keys with dots as keywords, **{"train.lr": 0.1}; they win over `config`
    ranks     None: in this process, or on all ranks of the mpirun that started it; a number: on so many
              ranks of their own, which mpirun starts, from a notebook for example
    on_round  is called with a dictionary of the round's figures after every round, {"round": 3,
              "train_loss": 0.3, "global_accuracy": 0.9, ...}: those that were evaluated, in the units of
              Results.rounds. It is called on rank 0. If what it returns is true, the run ends after the next
              round, with a checkpoint; so it does where it raises an exception, which is then raised here. An object
              may have begin(config) and end(status) beside its call: see fedhpc.callbacks.
    progress  None: a bar in notebooks and terminals; True or False: a bar or none. The program's own lines, for the
              log of a job, are the key run.progress = "plain".
    force     replaces an earlier result instead of giving it another name
    go_on     the same call begins a run, goes on from its newest checkpoint, or finds it complete

    The interpreter's lock is free while the engine trains, evaluates, sends, maps factors and waits for other ranks;
    arithmetic of rows, stores, draws and the codecs' own verbs keep it. Ctrl-C ends the run after its round, or between
    two blocks of clients, with a checkpoint, and raises Interrupted; a second one raises KeyboardInterrupt in Python
    code of the run, if there is any. Raises ConfigError and DataError with the sentences of the program, Error for a
    run that fails, and what a method or a callback raises. The generator of the caller's torch is afterwards as it was.
    """
    if force and go_on:
        raise ConfigError("force replaces a result and go_on keeps it; give one")
    followers = Followers(on_round, progress)
    shown = [("run.progress", "none")]  # the engine's own display, unless a configuration asks for it
    return _carry_out("run", (*_split(config), _texts(keys), bool(force), bool(go_on), shown), ranks, followers)


def resume(path, config=None, *, ranks=None, on_round=None, progress=None, **keys):
    """Goes on with an interrupted run, or adds rounds to a complete one, and returns its Results.

    path    a result file RUN.h5, or one of its checkpoints RUN.ckpt.N.h5
    config  an INI file with the configuration as it is to be now; None: as it was
    keys    changes, {"run.rounds": 200}; those that would give past rounds another meaning are refused

    The rest is as in run().
    """
    if config is not None and not isinstance(config, (str, os.PathLike)):
        raise ConfigError("resume takes the path of an INI file; changes of keys are keywords: **{'run.rounds': 200}")
    changes = _texts(keys) if "run.progress" in keys else [*_texts(keys), ("run.progress", "none")]
    given = (os.fspath(path), None if config is None else os.fspath(config), changes)
    try:
        return _carry_out("resume", given, ranks, Followers(on_round, progress))
    except ConfigError as error:
        if "key 'algorithm.name' cannot be" not in str(error):
            raise
        raise ConfigError(f"{error}; a method in Python has to be defined before its run goes on") from None


def plan(config=None, *, ranks=None, **keys):
    """What a run would cost, without running it: {"bytes_up_per_client": 318040, ...}.

    Bytes are of a round, memory and seconds of a rank. The configuration is given as in run().
    """
    arguments = (*_split(config), _texts(keys))
    if _elsewhere(ranks):
        from . import launching

        lines = launching.on_ranks(ranks, "plan", arguments)
    else:
        lines = _in_engine("plan", *arguments)
    return {name: _figure(text) for name, text in lines}


def _figure(text):
    """A number of a plan; None for one that is not finite."""
    if text == "null":
        return None
    return float(text) if "." in text or "e" in text else int(text)


def list(kind=None):
    """What there is to choose from, {name: sentence}, of one kind: "algorithms", "models", "datasets", "partitioners",
    "factorisations" or "codecs"; without it {kind: {name: sentence}}."""
    known = {name: dict(entries) for name, entries in _core.listing()}
    if kind is None:
        return known
    if kind not in known:
        raise ConfigError(f"fedhpc.list got {kind!r}; allowed: one of: {', '.join(known)}")
    return known[kind]


def help(name):
    """Prints what `name` means: a key ("train.lr"), a section ("train"), a method, a model, a data set, "keys"."""
    print(_core.help(name), end="")


def version():
    """The version of fedhpc."""
    return _core.version()


def rank():
    """The number of this process among those that the launcher started, from 0."""
    return _core.rank()


def ranks():
    """The number of processes that the launcher started; 1 without one."""
    return _core.ranks()


def load_plugin(path):
    """Runs a Python file of run.plugin, whose decorators register methods; ConfigError with its line if it fails.

    Warns of a file that registers none.
    """
    from . import methods

    name = "fedhpc_plugin_" + hashlib.sha256(path.encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)  # ranks of their own cannot import it
    before = methods.calls()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        what = error
        if isinstance(error, SyntaxError) and error.filename == path:
            what, lines = error.msg, [error.lineno]
        line = f" (line {lines[-1]})" if lines else ""
        raise ConfigError(f"cannot be loaded: {type(error).__name__}: {what}{line}") from None
    known = [method for _, _, method in methods.registered()]  # also by a module that was imported before
    if methods.calls() == before and not any(value in known for value in vars(module).values() if isinstance(value, type)):
        if _core.launched_rank() <= 0:
            warnings.warn(f"plug-in {path} registers no method; put @fedhpc.algorithm(NAME, SENTENCE) before its class",
                          stacklevel=2)


def _text(key, value):
    """A value as it stands in a configuration."""
    if _is_many(value) and any(map(_is_many, value)):
        raise ConfigError(f"key '{key}' cannot be {value!r}, a list of lists; give one list of numbers or texts")
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return "true" if value else "false"
    if isinstance(value, (set, frozenset)):  # on all ranks in the same order
        return ",".join(sorted(_text(key, one) for one in value))
    if _is_many(value):
        return ",".join(_text(key, one) for one in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and not getattr(value, "shape", ()):  # a number of numpy
        value = value.item()
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, (str, int)):
        return str(value)
    raise ConfigError(f"key '{key}' cannot be {value!r}, of type {type(value).__name__}; "
                      "give a number, a text, True or False, or a list of them")


def _is_many(value):
    return isinstance(value, (tuple, set, frozenset, type([])))  # fedhpc.list has the name of Python's


def _texts(keys, section=""):
    """[(key, text)] of a dictionary, flat or of sections; None leaves a key as it is. ConfigError for a key in both."""
    texts = []
    for key, value in keys.items():
        name = f"{section}{key}"
        if isinstance(value, dict):
            texts += _texts(value, f"{name}.")
        elif value is not None:
            texts.append((name, _text(name, value)))
    known = {}
    for name, text in texts:
        if known.setdefault(name, text) != text:
            raise ConfigError(f"key '{name}' is given twice, as '{known[name]}' and as '{text}'; keep one")
    return texts


def _split(config):
    """(path, values) of the first argument of run."""
    if config is None:
        return None, []
    if isinstance(config, dict):
        return None, _texts(config)
    if isinstance(config, (str, os.PathLike)):
        return os.fspath(config), []
    raise ConfigError(f"a configuration is the path of an INI file or a dictionary, not {config!r}")


def _launched():
    """The processes of this one's launcher, 1 without one, 0 where it does not count them."""
    # An MPI that somebody (mpi4py) started before without a launcher leaves its variable in C's environment alone.
    if _core.launcher() == "PMIx" and "PMIX_RANK" not in os.environ:
        return 1
    return _core.launched_ranks()


def _elsewhere(ranks):
    """Whether a run goes to ranks of its own."""
    if ranks is None:
        return False
    if not is_count(ranks):
        raise ConfigError(f"ranks cannot be {ranks!r}; give a whole number from 1 on")
    launched = _launched()
    if launched == 1:
        return ranks > 1
    if launched == 0 and ranks == 1:  # the run itself asks MPI, unless it says run.mpi=off
        return False
    here = launched or _core.ranks()  # MPI counts what the launcher does not
    if ranks != here:
        known = f"{here} processes, which share this run" if here > 1 else "this process, and MPI knows of no other"
        raise ConfigError(f"ranks={ranks}, but a launcher has started {known}; leave ranks out")
    return False


def _in_engine(verb, *arguments):
    try:
        return getattr(_core, verb)(*arguments)
    finally:
        code = sys.modules.get("fedhpc._code")  # of methods in Python alone
        if code is not None:
            code.run_ended()


def _carry_out(verb, arguments, ranks, followers):
    if _elsewhere(ranks):
        from . import launching

        status, output, number = launching.on_ranks(ranks, verb, arguments, followers)
        followers.raise_again(status, output)
    else:
        line = shlex.join([sys.executable, *sys.orig_argv[1:]] if hasattr(sys, "orig_argv") else sys.argv)
        with followers:
            status, output, number = _in_engine(verb, *arguments, line, *followers.functions())
        try:
            followers.end(status)
        finally:
            _raise_on_all(followers, status, output)
    if number == signal.SIGINT:
        raise Interrupted(output)  # also where it came in the last round
    if number:
        sys.exit(_INTERRUPTED)  # a batch system's signal: the job is over
    from .results import Results

    return Results(output)


def _raise_on_all(followers, status, output):
    """Raises what on_round has raised; of several ranks this one alone knows of it, and ends all."""
    try:
        followers.raise_again(status, output)
    except Exception as error:
        if _core.ranks() > 1:
            traceback.print_exception(type(error), error, error.__traceback__)
            sys.stderr.flush()
            _core.abort(f"{type(error).__name__}: {error}")
        raise


def _end_all_ranks(show):
    """An error outside of a run, on one rank of several: the others would wait for ever."""
    def hook(kind, error, trace):
        show(kind, error, trace)
        if issubclass(kind, Interrupted):  # on all ranks
            _core.end()
            os._exit(_INTERRUPTED)
        sys.stderr.flush()
        _core.abort(f"{kind.__name__}: {error}")

    return hook


atexit.register(_core.end)
if _launched() != 1:
    sys.excepthook = _end_all_ranks(sys.excepthook)
