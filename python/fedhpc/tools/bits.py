"""A short name of a run's numbers: two runs with the same one have the same series and models, to the last bit."""

import hashlib

import numpy as np

from .compare import parameters_of, slabs
from .result_file import is_of_the_machine, open_run

DIGITS = 12  # hexadecimal


def of_run(path):
    """The name of the result file's series, without the machine's, and of its final models."""
    state = hashlib.sha256()
    with open_run(path) as file:
        series = [f"rounds/{name}" for name in sorted(file["rounds"]) if not is_of_the_machine(name)]
        # With those that were never written: recorded names have them, as zeros.
        for name in [*series, *sorted(parameters_of(file))]:
            data = file[name]
            state.update(f"{name} {data.shape} {data.dtype} ".encode())
            for part in slabs(data):
                state.update(np.ascontiguousarray(data[part]).tobytes())
    return state.hexdigest()[:DIGITS]
