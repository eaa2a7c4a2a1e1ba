"""What tests of the tools share: folders, result files in the documented format, a live writer, calls of a tool."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

TOOLS, PYTHON = (Path(__file__).resolve().parents[2] / name for name in ("tools", "python"))
sys.path.insert(0, str(PYTHON))

# A SWMR writer, as the simulator is one: its file gets its name when it can be read, never before. Told what to do by
# lines on its standard input: `round` commits one more round, `half` writes a loss without committing its round,
# `complete` or another status ends the file, `kill` this process. It answers every line with `done`.
WRITER = """
import os, signal, sys, h5py, numpy
unfinished = sys.argv[1] + ".unfinished"
file = h5py.File(unfinished, "w", libver="latest")
status = numpy.array(b"running", dtype="S16")
file.attrs["status"], file.attrs["config"] = status, "[run]\\nrounds=" + sys.argv[2] + "\\n[algorithm]\\nname=fedavg\\n"
grow = dict(shape=(0,), maxshape=(None,), chunks=(16,))
names = ("train_loss", "global_accuracy", "bytes_up_client_cloud", "wall_seconds")
series = {name: file.create_dataset("rounds/" + name, dtype="f8", **grow) for name in names}
count = file.create_dataset("rounds/round", dtype="i8", **grow)
file.swmr_mode = True
os.replace(unfinished, sys.argv[1])
def append(data, value, t):
    data.resize((t,)); data[t - 1] = value; data.flush()
t = 0
print("done", flush=True)
for line in sys.stdin:
    order = line.strip()
    if order == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif order == "half":
        append(series["train_loss"], 1 / (t + 1), t + 1)
    elif order == "round":
        t += 1
        for name, value in zip(names, (1 / t, 1 - 0.5 / t, 100.0, float(sys.argv[3]))):
            append(series[name], value, t)
        append(count, t, t)
    else:
        h5py.h5a.open(file.id, b"status").write(numpy.array(order.encode(), dtype="S16"))
        file.flush()
    print("done", flush=True)
"""


class Writer:
    """A process that writes the result file `path`; rounds last `seconds` by its own account."""

    def __init__(self, path, rounds=50, seconds=0.5):
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(rounds), str(seconds)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answered()

    def _answered(self):
        if self.process.stdout.readline().strip() != "done":
            raise RuntimeError("the writer has died")

    def tell(self, *orders):
        """Gives orders one by one and waits until each is carried out."""
        for order in orders:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
            if order == "kill":
                self.process.wait()
            else:
                self._answered()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def write_run(path, rounds=40, config="[algorithm]\nname=fedavg\n", status="complete", attributes={}, **columns):
    """A result file; evaluated every 10 rounds unless columns say otherwise."""
    t = np.arange(1, rounds + 1)
    values = {"global_accuracy": np.where(t % 10 == 0, 0.9 - 0.5 / t, np.nan),
              "global_loss": np.where(t % 10 == 0, 1.0 / t, np.nan), "train_loss": 2.0 / t,
              "bytes_up_client_cloud": np.full(rounds, 100.0), "bytes_up_client_edge": np.full(rounds, np.nan),
              "wall_seconds": np.full(rounds, 0.5), **columns}
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["status"], file.attrs["seed"] = status, 1
        for name, value in attributes.items():
            file.attrs[name] = value
        if len(config) < 60 * 1024:
            file.attrs["config"] = config
        else:
            file["config"] = config
        file["rounds/round"] = t
        for name, column in values.items():
            file[f"rounds/{name}"] = column
        file["rounds/wall_seconds"].attrs["units"] = "s"
    return path


def add_clients(path, accuracy, rounds, labels=((3, 0), (1, 2))):
    """Adds what is known of clients in the layout of the simulator; accuracy [evaluations, clients]."""
    accuracy, count = np.asarray(accuracy, dtype=np.float32), np.shape(accuracy)[1]
    with h5py.File(path, "a") as file:
        file.create_dataset("clients/accuracy", data=accuracy, chunks=(1, count), maxshape=(None, count), compression=1)
        file["clients/evaluated_rounds"] = np.asarray(rounds)
        for name in ("edge", "train_samples", "test_samples"):
            file[f"clients/{name}"] = np.arange(count)
        file["clients/label_histogram"] = np.asarray(labels)
    return path


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def writer(self, name, *orders, **arguments):
        """(path, Writer) of a live result file, after these orders."""
        path = self.folder / name
        writer = Writer(path, **arguments)
        self.addCleanup(writer.end)
        writer.tell(*orders)
        return path, writer


def call(tool, *arguments):
    """(exit code, standard output, standard error) of a tool's main."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = tool.main([str(argument) for argument in arguments])
    return code, out.getvalue(), error.getvalue()
