"""Reads the models of a result file: one client's without those of others."""

import h5py

from .client_data import one_of
from .result_file import PROBE_SECONDS, ResultError, open_run, reading, text_of
from .results import ENDED

WITH_MODEL = (*ENDED, "interrupted")  # only these have written their model
MISSING = {"global": "no global model: the method has none", "factors": "no factors: the model is not made of any",
           "personal": "no personal models; run with --run.save=personal"}


def load_model(path, part="global", initial=False, client=None, timeout=PROBE_SECONDS):
    """{name: array} of `part` of MISSING, final or before round 1; of `personal` that of one client."""
    with open_run(path, timeout) as file, reading(path):
        status = text_of(file.attrs["status"])
        if not initial and status not in WITH_MODEL:
            raise ResultError(f"{path}: the final model is written at the end of a run, and this one is {status}")
        group = f"model/init/{part}" if initial else f"model/{part}"
        if initial and "model/init" not in file:
            raise ResultError(f"{path}: no initial model; run with --run.save=init")
        data = {name: item for name, item in file.get(group, {}).items() if isinstance(item, h5py.Dataset)}
        if not data:
            raise ResultError(f"{path}: {MISSING[part]}")
        if any(item.size and not item.id.get_storage_size() for item in data.values()):
            raise ResultError(f"{path}: its {part} models were never written: the run was stopped inside a round")
        if client is None:
            return {name: item[()] for name, item in data.items()}
        one_of(len(next(iter(data.values()))), client, path)
        return {name: item[client] for name, item in data.items()}
