"""What happens where an array of numpy meets rows in an operation: a sentence says how it is written."""

import numpy as np


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
