"""What happens where an array of numpy meets rows or stands in their place: a sentence says how it is written."""

import functools

import numpy as np

_VERBS = ("initialise", "prepare", "round", "evaluate")


def _meet(self, ufunc, method, *inputs, **options):
    """__array_ufunc__ of Rows, for what Rows leave to numpy."""
    if method == "__call__" and not options and len(inputs) == 2 and inputs[1] is self and np.ndim(inputs[0]) == 0:
        if ufunc is np.multiply:  # number * rows, the number being one of numpy
            return self.__rmul__(inputs[0])
        return NotImplemented
    raise TypeError(f"numpy.{ufunc.__name__} takes no Rows: rows.like(array) makes rows of an array [C, P], rows.values "
                    "is an array, and rows.scale takes a number of each row")


def hint(rows):
    """Has the class Rows say so."""
    rows.__array_ufunc__ = _meet


def hinting(method):
    """The method, whose verbs say so where one of the engine has got an array in the place of rows."""
    vars(method).update({verb: _hinting(getattr(method, verb)) for verb in _VERBS})
    return method


def _hinting(function):
    @functools.wraps(function)
    def call(argument):
        try:
            return function(argument)
        except TypeError as error:
            supported, _, invoked = str(error).partition("Invoked with types: ")
            if "incompatible function arguments" in supported and "Rows" in supported and "ndarray" in invoked:
                error.args = (f"{error}\n\nWhere rows are wanted, rows.like(array) makes them of an array [C, P].",)
            raise
    return call
