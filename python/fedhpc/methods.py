"""Methods in Python: they read like the paper's algorithm box and run as those in C++ do, bit for bit.

    import fedhpc

    @fedhpc.algorithm("my_fedavg", "federated averaging, written in Python (McMahan et al., AISTATS 2017)")
    class MyFedAvg(fedhpc.Algorithm):
        def declare(self, options):
            options.averaging()

        def initialise(self, setup):
            self.model = setup.initial_model()

        def round(self, round):
            update = round.mean()
            for block in round.blocks():
                start = block.download(self.model)
                trained = block.train(start)
                update.add(block.weights(self.weighting), block.upload(trained - start, self.codec))
            self.model += update.reduce()

        def evaluate(self, evaluation):
            evaluation.global_model(self.model)

        def visit_state(self, state):
            self.model = state.rows("model", self.model)

    fedhpc.run("run.ini", **{"algorithm.name": "my_fedavg"})
"""

import difflib
import inspect
import os
import re
import sys

from . import _core
from ._core import (Block, CatchUp, Codec, EdgeRows, Evaluation, EvaluationBlock, FactorMap, Layout, LocalStep,
                    Optimizer, RandomColumns, Round, RowNumbers, RowPart, Rows, Setup, State, StoredRows, UpdateMap,
                    codec, largest_codec, sign_codec, unless, where)
from ._left_out import watched
from ._rows_and_numpy import hint, hinting
from .errors import ConfigError

__all__ = ["Algorithm", "Block", "CatchUp", "Codec", "EdgeRows", "Evaluation", "EvaluationBlock", "FactorMap",
           "Layout", "LocalStep", "Optimizer", "RandomColumns", "Round", "RowNumbers", "RowPart", "Rows", "Setup",
           "State", "StoredRows", "UpdateMap", "algorithm", "codec", "largest_codec", "register", "registered",
           "sign_codec", "unless", "where"]

hint(Rows)


class Algorithm:
    """A federated-learning method. A subclass has round() and evaluate(), and what else it needs.

    One object lives through a run. It touches no ranks, files or devices: what the clients of other ranks
    do comes together in round.mean() and its like. Six rules:

    - A client's result depends on that client alone: blocks have any width, clients any order.
    - A loop over round.blocks() goes to its end. Collective verbs (mean.reduce, round.noted) come after it.
    - What a round leaves for later ones lies in the store or is visited in visit_state().
    - A block, a step and a round are over when their turn is: keep the rows they gave, and not them.
    - Random numbers come from a generator that is made anew of setup.seed, the client and the round
      (docs/how-to/python.md has the line), and never from one that lives on.
    - Sums over a row are taken by Rows.squared_lengths and Rows.inner_products, whose bits do not depend on
      the block; elementwise numpy is free.

    Attributes tell what the method is. A property may make them depend on keys, to which the class then
    gives a value as well: they are looked at when it is registered, before it has its keys.

    tiers             "client-cloud", or "client-edge-cloud" for edges with models of their own
    models            "global", "personal" (one per client), "both", or "shared" (one per client, with
                      columns that all share)
    factorisations    ("cp",): it works with these, its own first; (): weights in full
    factor_draw       {"range": 0.1, "like_layers": True, "zero": True}: how its first factors are drawn
    cohorts_in_round  a round draws so many, one after the other
    can_leave_rounds  True: a signal may end a round between two blocks, and resume goes on with it there.
                      Blocks then act on the store, on means and on notes of the round alone.
    averaged_uploads  1: all that the server learns of the clients' data is the mean over the participants of the
                      changes that block.upload() gives, one a round; privacy.* then act. n: of n such means. 0: more.
                      Nor does the method use how many take part, which is secret then.
    """

    tiers = "client-cloud"
    models = "global"
    factorisations = ()
    factor_draw = {}
    cohorts_in_round = 1
    can_leave_rounds = False
    averaged_uploads = 0

    def declare(self, options):
        """Declares the method's keys below `algorithm`, options.add("mu", 0.1, at_least=0, help="...").

        Each is an attribute of the method with its value. Checks of other keys go by options.add_check.
        """

    def initialise(self, setup):
        """Takes the first state from `setup` (a Setup), and declares series of the method's own."""

    def prepare(self, everybody):
        """Runs once before round 1, with all clients as participants; it counts nowhere."""

    def round(self, round):
        """One global round (a Round)."""
        raise NotImplementedError(f"{type(self).__name__} has no round()")

    def evaluate(self, evaluation):
        """Hands over the models that are scored (an Evaluation). State never changes here."""
        raise NotImplementedError(f"{type(self).__name__} has no evaluate()")

    def visit_state(self, state):
        """Visits all that a round leaves for later ones but for the store: self.w = state.rows("w", self.w).

        At the first checkpoint after a round, a warning names attributes of rows, numbers, texts and generators, also
        inside of objects, optimizers and torch's modules, that have changed since initialise() and that this verb does
        not read, or does not set to what the state gives. What one round alone needs is a local variable.
        """

    def drawn_in(self, round):
        """{name: array}: what has been drawn, for /draws of the result file.

        Where it is not empty, it has the names, shapes and types of round 1.
        """
        return {}


_registered = {}
_files = {}  # of the classes, where they stand in one
_calls = 0  # of register()


def algorithm(name, sentence):
    """Registers a class as the method `name` (algorithm.name): @fedhpc.algorithm("fedavg2", "what it is (who, where)").

    sentence  one sentence for `fedhpc list algorithms`, with its citation

    The same name again replaces the method, as in a cell of a notebook that runs twice. ConfigError for a
    name of fedhpc's own, and for one name in two files; TypeError for a class without round() or evaluate(), or
    with verbs that would do nothing; ValueError for attributes that say nothing.
    """
    def add(method):
        register(name, sentence, method)
        return method

    return add


_CLOSE = 0.88  # of two names: model and models, not init_state and visit_state
_VERBS = ("declare", "initialise", "prepare", "round", "evaluate", "visit_state", "drawn_in")


def _check_verb(method, verb):
    """TypeError unless a call of the verb with its one argument does what stands in it."""
    function = inspect.getattr_static(method, verb)
    called = getattr(method, verb)
    what = f"{method.__name__}.{verb}"
    if not callable(called):
        raise TypeError(f"{what} is a function of the method, and not {called!r}")
    if any(kind(called) for kind in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)):
        raise TypeError(f"{what} is 'async def', and nobody awaits it; write def")
    if inspect.isgeneratorfunction(called):
        raise TypeError(f"{what} has a yield, so that a call does nothing; write it without")
    bound = isinstance(function, (classmethod, staticmethod)) or not inspect.isfunction(called)
    try:
        inspect.signature(called).bind(*([None] if bound else [None, None]))
    except TypeError:
        argument = next(iter(list(inspect.signature(getattr(Algorithm, verb)).parameters)[1:]))
        raise TypeError(f"{what}{inspect.signature(called)} is called with one argument: "
                        f"def {verb}(self, {argument})") from None
    except ValueError:  # what is not written in Python may have no signature
        pass


def register(name, sentence, method):
    """Adds a method, or another version of one that Python has added before; see algorithm()."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"the name of a method has lower-case letters, digits and _, and not {name!r}")
    if not isinstance(sentence, str) or not sentence.strip():
        raise ValueError(f"method {name!r} needs a sentence that says what it is: @fedhpc.algorithm({name!r}, '...')")
    if not isinstance(method, type) or not issubclass(method, Algorithm):
        raise TypeError(f"method {name!r} is a class derived from fedhpc.Algorithm, and not {method!r}")
    for verb in ("round", "evaluate"):
        if getattr(method, verb) is getattr(Algorithm, verb):
            raise TypeError(f"{method.__name__} has no {verb}(self, {'round' if verb == 'round' else 'evaluation'}): "
                            "a method has round() and evaluate()")
    _require_known_names(method)
    for verb in _VERBS:
        _check_verb(method, verb)
    file = _require_one_file(name, method)
    _core.check_attributes(method(), name)  # it needs no argument, or says so here
    _core.add_algorithm(name, sentence)
    _registered[name], _files[name] = (name, sentence, method), file


def _require_known_names(method):
    """Refuses attributes that are all but named like those that the engine looks for, which it would not find."""
    known = [one for one in vars(Algorithm) if not one.startswith("_")]
    for one in {name for kind in method.__mro__ if kind not in Algorithm.__mro__ for name in vars(kind)}:
        near = difflib.get_close_matches(one, known, n=1, cutoff=_CLOSE)
        if one in known or one.startswith("_") or not near:
            continue
        raise TypeError(f"{method.__name__} has {one!r}, which nobody looks at; fedhpc.Algorithm has {near[0]!r} (a name of "
                        f"your own is less like it, or begins with _)")


def _require_one_file(name, method):
    """The file of a method; ConfigError where another file has one of this name, of which the last would win."""
    global _calls
    _calls += 1
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    file = file and os.path.realpath(file)
    other = _files.get(name)
    if file and other and file != other and os.path.exists(other):
        raise ConfigError(f"method {name!r} stands in two files, {other} and {file}; give one of them another name")
    return file


def calls():
    """How many methods have been registered, one that is registered anew each time."""
    return _calls


def registered():
    """[(name, sentence, class)] of all methods that Python has added; ranks of their own get them."""
    return [*_registered.values()]


def _made(name):
    """A method of this name, for the engine."""
    return hinting(watched(_registered[name][2](), Algorithm, name))
