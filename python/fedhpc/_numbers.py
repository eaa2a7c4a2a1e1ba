"""Whole numbers that a caller gives."""

import operator


def whole_number(value):
    """A whole number of Python, numpy or torch as an int; None of anything else, True and False among it."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def is_count(value, least=1):
    """Whether it is a whole number of at least `least`."""
    number = whole_number(value)
    return number is not None and number >= least
