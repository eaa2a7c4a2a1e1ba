"""Tells of what rounds change and visit_state() leaves out: after a resume it is as initialise() has made it."""

import itertools
import operator
import random
import warnings
import zlib
from collections import Counter, deque
from contextlib import contextmanager
from numbers import Number

import numpy as np

from . import _core
from ._code import attributes_of

DEPTH = 4  # of lists in lists; as many has the state of an optimizer of torch
CONTAINERS = (dict, list, tuple, set, frozenset, deque)  # may be filled in place, one by one
TAKEN_BACK = (*CONTAINERS, _core.Optimizer)  # state.optimizer() sets what it is given


def watched(method, base, name):
    """The method, whose verbs now warn of state that its checkpoints lack, once of each; `base`: fedhpc.Algorithm."""
    initialise, round_, visit_state = method.initialise, method.round, method.visit_state
    first, told, looks = {}, set(), False

    def initialise_watched(setup):
        nonlocal looks
        initialise(setup)
        first.clear()
        first.update(_marks(method, ()))
        looks = False

    def round_watched(round):
        nonlocal looks
        looks = True  # a checkpoint walks over the state several times
        round_(round)

    def visit_state_watched(state):
        nonlocal looks
        with _touched_of(method, base) as (read, given):
            visit_state(state)
        if not looks or state.restores or "__dict__" in read:
            return
        looks = False
        changed = {one for one, mark in _marks(method, told).items() if first.get(one, repr(None)) != mark}
        told.update(changed)
        _warn(name, sorted(changed - read.keys()), "which visit_state() does not read and which will not be there after a "
                                                   "resume; add {it} to visit_state")
        # What is read twice may be filled in place: self.v[:] = state.array("v", self.v).
        lost = sorted(one for one in changed - given if read[one] == 1 and not _filled(getattr(method, one)))
        _warn(name, lost, "which visit_state() reads without taking back what the state gives, so that a resume starts "
                          "from what initialise() has made; write self.NAME = state.rows(\"NAME\", self.NAME) or alike")

    # Attributes of the object win over those of its class.
    vars(method).update(initialise=initialise_watched, round=round_watched, visit_state=visit_state_watched)
    return method


def _filled(value):
    """Whether a value may be restored where it is: by one read of the attribute that holds it."""
    return isinstance(value, TAKEN_BACK) or bool(_attributes(value))


def _warn(name, changed, why):
    if _core.launched_rank() > 0 or not changed:
        return
    why = why.replace("{it}", "it" if len(changed) == 1 else "them")
    warnings.warn(f"method {name}: rounds have changed {', '.join(changed)}, {why}", stacklevel=3)


@contextmanager
def _touched_of(method, base):
    """Yields the names of the method's attributes that are read meanwhile, with how often, and of those that are set."""
    read, given = Counter(), set()

    def reads(self, name):
        if self is method:
            read[name] += 1
        return super(base, self).__getattribute__(name)

    def sets(self, name, value):
        if self is method:
            given.add(name)
        super(base, self).__setattr__(name, value)

    base.__getattribute__, base.__setattr__ = reads, sets
    try:
        yield read, given
    finally:
        del base.__getattribute__, base.__setattr__


def _marks(method, but):
    """{attribute: what differs where its value does} of those that may be state."""
    marks = {one: _mark(value) for one, value in attributes_of(method).items() if one not in but}
    return {one: mark for one, mark in marks.items() if mark is not None}


class _Kept:
    """What an optimizer has kept; the same as any where rounds reset it, or make it: nothing is left for later ones."""

    def __init__(self, resets, steps, states):
        self.resets, self.mark = resets, (steps, _mark(states)) if states.size else None

    def __eq__(self, other):
        return not isinstance(other, _Kept) or self.resets != other.resets or self.mark == other.mark


def _attributes(value):
    """The attributes of an object, such as a helper of the method; none of classes, functions and methods."""
    if isinstance(value, type) or type(value).__module__ == "builtins":
        return {}
    return attributes_of(value)


def _mark(value, depth=DEPTH):
    """None for what is no state: codecs, functions, what lies in the store, what is over."""
    try:
        if value is None or isinstance(value, (str, bytes, Number, np.generic, itertools.count)):
            return repr(value)
        if hasattr(value, "__next__") and hasattr(value, "__length_hint__"):  # an iterator: how much it still has
            return operator.length_hint(value)
        if isinstance(value, _core.Optimizer):
            return _Kept(*value._kept())
        if isinstance(value, _core.EdgeRows):
            value = value.rows
        if isinstance(value, _core.UpdateMap):
            value = value.frozen
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):  # of torch, modules in modules as well
            value = value.state_dict()
        if hasattr(value, "__array__") and not isinstance(value, type):
            if hasattr(value, "detach"):
                value = value.detach().cpu()
                short = value.is_floating_point() and value.element_size() < 4  # numpy has no bfloat16
                value = value.float() if short else value
            array = np.asarray(value)
            return None if array.dtype.hasobject else (str(array.dtype), array.shape,
                                                       zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data))
        if isinstance(value, (np.random.Generator, np.random.BitGenerator)):
            return repr(getattr(value, "bit_generator", value).state)
        of_torch = type(value).__module__ == "torch._C" and hasattr(value, "get_state")
        if of_torch or isinstance(value, np.random.RandomState):
            return _mark(value.get_state())
        if isinstance(value, random.Random):
            return repr(value.getstate())
        held = _attributes(value)
        parts = [*held, *held.values()]  # of a list with attributes both
        if isinstance(value, CONTAINERS):
            parts += [*value, *value.values()] if isinstance(value, dict) else value
        if (held or isinstance(value, CONTAINERS)) and depth > 0:
            return [_mark(one, depth - 1) for one in parts]
    except Exception:  # rows that are over, arrays of others
        pass
    return None
