"""The problems of the comparison, as each peer finds them in a folder, and fedhpc's draws.

compare.py writes the folder: problem.json, arrays of samples and the partition and initial model of fedhpc's run. Needs
numpy alone, as every peer has an environment of its own.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COHORT, BATCHES = 4, 5  # purposes of fedhpc's draws (docs/semantics.md, 1)
ARRAYS = ("train_x", "train_y", "test_x", "test_y", "samples", "offsets")


@dataclass
class Problem:
    name: str
    model: str  #: mlp, cnn or logistic
    cohort: int  #: clients of a round
    batch: int
    lr: float
    seed: int
    train_x: np.ndarray  #: float32 [samples, ...]
    train_y: np.ndarray  #: int64 [samples]
    test_x: np.ndarray
    test_y: np.ndarray
    clients: list  #: of int64 [samples of a client]
    initial: dict  #: {name: float32} of the model before round 1, by PyTorch's names and shapes

    @property
    def classes(self):
        return int(self.train_y.max()) + 1

    def of_client(self, client):
        """(x, y) of a client, copies."""
        mine = self.clients[client]
        return self.train_x[mine], self.train_y[mine]

    def cohort_of(self, round_):
        """The clients that fedhpc draws for a round, ascending."""
        return np.sort(permutation(len(self.clients), self.seed, COHORT, 0, round_)[:self.cohort])

    def batches_of(self, client, round_):
        """Yields the samples of each step of a client's epoch, as fedhpc draws them."""
        mine = self.clients[client]
        order = permutation(len(mine), self.seed, BATCHES, client, round_)
        for first in range(0, len(mine), self.batch):
            yield mine[order[first:first + self.batch]]


def permutation(count, seed, purpose, client, round_):
    words = np.random.Philox(key=[seed, purpose], counter=[0, 0, client, round_]).random_raw(count)
    return np.argsort(words, kind="stable")


def load(folder):
    folder = Path(folder)
    arrays = {name: np.load(folder / f"{name}.npy") for name in ARRAYS}
    clients = np.split(arrays.pop("samples"), arrays.pop("offsets")[1:-1])
    with np.load(folder / "initial.npz") as file:
        initial = dict(file)
    return Problem(**json.loads((folder / "problem.json").read_text()), **arrays, clients=clients, initial=initial)


def save(folder, settings, arrays, initial):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", arrays[name])
    np.savez(folder / "initial.npz", **initial)
    (folder / "problem.json").write_text(json.dumps(settings))


class Report:
    """Prints what becomes of a run: a JSON line for every round that is evaluated, the last one among them."""

    def __init__(self, rounds, every):
        self.rounds, self.every, self.losses = rounds, every or rounds, []
        self.start = time.time(), time.process_time()

    def due(self, round_):
        return round_ == self.rounds or round_ % self.every == 0

    def __call__(self, round_, accuracy):
        line = {"round": round_, "accuracy": float(accuracy), "wall": time.time() - self.start[0],
                "cpu": time.process_time() - self.start[1], "losses": self.losses}
        print(json.dumps(line), flush=True)


def main(train):
    """Runs `train(problem, report)` as the command line says."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("folder", help="of the problem, which compare.py has written")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--every", type=int, default=0, help="rounds between evaluations; 0: after the last alone")
    arguments = parser.parse_args()
    train(load(arguments.folder), Report(arguments.rounds, arguments.every))
