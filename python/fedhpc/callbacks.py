"""What watches a run while it goes on: callbacks for `on_round=` of `fedhpc.run`.

    fedhpc.run("run.ini", on_round=fedhpc.callbacks.TensorBoard("logs/run"))

A callback is anything that can be called with the record of a round, such as
{"round": 3, "train_loss": 0.31, "global_accuracy": 0.9}; if it returns True, the run ends. Two methods are optional.
`begin(config)` is called before the first round, with the keys of the configuration as a dict. `end(status)` is called
after the last one, with the status of the result file: "complete", "diverged", "interrupted" or "failed". The callbacks
here write each round as it comes, so that what an interrupted run has written can be read.
"""

import importlib
import importlib.util
import json
import math
import os
import socket
import struct
import time
from pathlib import Path


def flat(config, prefix=""):
    """The keys of a configuration, "train.lr" and so on, also where it is nested."""
    found = {}
    for name, value in (config or {}).items():
        name = f"{prefix}{name}"
        found |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found


def figures(record):
    """(number of the round, {name: number} of all else that is a number) of a record."""
    numbers = {name: float(value) for name, value in record.items()
               if name != "round" and hasattr(value, "__float__") and not hasattr(value, "__len__")}
    return int(record["round"]), {name: value for name, value in numbers.items() if not math.isnan(value)}


def _require(module, library, extra):
    """Says what to install where a library is missing, before a run has begun; it is imported when a run begins."""
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(f"{library} is not installed; install it with: pip install 'fedhpc[{extra}]'",
                                  name=module)


class TensorBoard:
    """Writes an event file into `folder`, the scalars of every round under their own names; step is the round.

    The keys of the configuration are the text `config`. Runs beside each other need folders of their own; a run that is
    resumed adds a file to its folder. TensorBoard keeps scalars in single precision.
    """

    def __init__(self, folder):
        self.folder, self.file = Path(folder), None

    def begin(self, config):
        lines = "\n".join(f"    {name} = {value}" for name, value in flat(config).items())
        self._write(_text_event(time.time(), "config", lines))

    def __call__(self, record):
        from .tools.event_file import event
        step, numbers = figures(record)
        largest = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
        scalars = [(name, value if math.isinf(value) else max(-largest, min(largest, value)))
                   for name, value in numbers.items()]
        if scalars:
            self._write(event(time.time(), step, scalars=scalars))

    def end(self, status):
        if self.file:
            self.file.close()
            self.file = None

    def _write(self, message):
        from .tools.event_file import first_record, record
        if self.file is None:
            now = time.time()
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
            self.file = open(self.folder / name, "xb")
            self.file.write(first_record(now))
        self.file.write(record(message))
        self.file.flush()


def _text_event(wall_time, tag, text):
    """An Event message with a text for TensorBoard's page of texts.

    Of Summary.Value: tag = 1, tensor = 8 (dtype = 1: string is 7, string_val = 8), metadata = 9 (plugin_data = 1 with
    plugin_name = 1).
    """
    from .tools.event_file import VARINT, delimited, event, varint
    tensor = varint(1 << 3 | VARINT) + varint(7) + delimited(8, text.encode())
    metadata = delimited(1, delimited(1, b"text"))
    value = delimited(1, tag.encode()) + delimited(8, tensor) + delimited(9, metadata)
    return event(wall_time) + delimited(5, delimited(1, value))


class MLflow:
    """Logs a run to MLflow: keys of the configuration as parameters, figures of a round as metrics.

    experiment: its name, made where it is missing; unset: MLflow's own choice. tracking_uri: a server, or a place on
    disk; unset: MLflow's own choice (not with mlflow-skinny). run_name: unset: MLflow makes one up. Where a run of
    MLflow is active and no experiment is named, it is used, and left active: so a resumed run goes on in its own. A
    missing library is said when the callback is made.
    """

    PARAMETERS, LETTERS = 100, 6000  # MLflow takes no more in a call, and in a value
    STATUS = {"complete": "FINISHED", "interrupted": "KILLED"}

    def __init__(self, experiment=None, tracking_uri=None, run_name=None):
        _require("mlflow", "MLflow", "mlflow")
        self.experiment, self.tracking_uri, self.run_name = experiment, tracking_uri, run_name
        self.client = self.run_id = None
        self.own = False

    def begin(self, config):
        mlflow = importlib.import_module("mlflow")
        self.client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        active = mlflow.active_run() if self.experiment is None and self.tracking_uri is None else None
        self.own = active is None
        self.run_id = self._new_run() if self.own else active.info.run_id
        known = self.client.get_run(self.run_id).data.params  # MLflow keeps a parameter as it was
        parameters = [mlflow.entities.Param(name, str(value)[:self.LETTERS]) for name, value in flat(config).items()
                      if name not in known]
        for first in range(0, len(parameters), self.PARAMETERS):
            self.client.log_batch(self.run_id, params=parameters[first:first + self.PARAMETERS])

    def _new_run(self):
        # mlflow.set_experiment leaves its choice in this variable.
        identity = os.environ.get("MLFLOW_EXPERIMENT_ID") if not (self.experiment or self.tracking_uri) else None
        if identity is None:
            name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default")
            found = self.client.get_experiment_by_name(name)
            identity = found.experiment_id if found else self.client.create_experiment(name)
        return self.client.create_run(identity, run_name=self.run_name).info.run_id

    def __call__(self, record):
        if self.client is None:
            self.begin({})
        entities = importlib.import_module("mlflow.entities")
        step, numbers = figures(record)
        now = int(time.time() * 1000)
        if numbers:
            self.client.log_batch(self.run_id, metrics=[entities.Metric(name, value, now, step)
                                                        for name, value in numbers.items()])

    def end(self, status):
        if self.client is not None and self.own:
            self.client.set_terminated(self.run_id, self.STATUS.get(status, "FAILED"))
        self.client = None


class WeightsAndBiases:
    """Logs a run to Weights & Biases; the keys of the configuration are its config.

    project: its name. mode: "offline" writes below the folder `wandb`, for `wandb sync` later, "online" sends at once.
    Further arguments (name, dir, tags ...) go to wandb.init. The library itself writes every 15 seconds.
    """

    def __init__(self, project, mode="offline", **arguments):
        _require("wandb", "Weights & Biases", "wandb")
        self.arguments, self.run = {"project": project, "mode": mode, **arguments}, None

    def begin(self, config):
        self.run = importlib.import_module("wandb").init(config=json.loads(json.dumps(flat(config), default=str)),
                                                         **self.arguments)

    def __call__(self, record):
        if self.run is None:
            self.begin({})
        step, numbers = figures(record)
        if numbers:
            self.run.log(numbers, step=step)

    def end(self, status):
        if self.run is not None:
            self.run.finish(exit_code=0 if status == "complete" else 1)
            self.run = None


class Several:
    """Calls several callbacks one after the other; the run ends if one of them asks for it."""

    def __init__(self, *callbacks):
        self.callbacks = callbacks

    def begin(self, config):
        for callback in self.callbacks:
            if hasattr(callback, "begin"):
                callback.begin(config)

    def __call__(self, record):
        return any([bool(callback(record)) for callback in self.callbacks])

    def end(self, status):
        errors = []
        for callback in self.callbacks:
            try:
                if hasattr(callback, "end"):
                    callback.end(status)
            except Exception as error:  # the others have to end too
                errors.append(error)
        if errors:
            raise errors[0]
