"""Time of a round of FedAvg with model.backend = autograd over that of the built-in family of the same network.

    OMP_NUM_THREADS=1 PYTHONPATH=python python3 bench/autograd_backend.py [--model dnn] [--turns 5]

Networks: dnn (784-100-10) and cnn (2 convolutions with batch norm, that of model.name = cnn2). 100 clients of 60
samples, 3 batches of 20 a client and round. The two run in turns, each alone; a time is the median over a run's rounds,
and what is said the median ratio over turns. Needs torch, to write the script.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedhpc

DATA = {"dnn": {"data.name": "synthetic", "data.features": 784, "data.classes": 10, "model.name": "dnn",
                "model.hidden": 100},
        "cnn": {"data.name": "glyphs", "model.name": "cnn2"}}


def network(name):
    if name == "dnn":
        return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)), torch.zeros(1, 784)
    layers = []
    for before, after in ((1, 8), (8, 16)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
                   nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 7 * 7, 10)), torch.zeros(1, 1, 28, 28)


def seconds_of_round(name, keys, arguments, folder):
    results = fedhpc.run({"algorithm.name": "fedavg", "run.rounds": arguments.rounds,
                          "run.eval_every": arguments.rounds, "run.output": os.fspath(Path(folder) / f"{name}.h5"),
                          "run.checkpoint_every": 0, "run.log_level": "error", "data.clients": arguments.clients,
                          "data.samples_per_client": 75, "train.batch_size": 20, "train.lr": 0.01, **keys},
                         progress=False, force=True)
    return results.rounds["wall_seconds"].iloc[1:-1].median()  # the first warms up, the last evaluates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(DATA), default="dnn")
    for name, default in (("clients", 100), ("rounds", 8), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        family = DATA[arguments.model]
        of_data = {key: value for key, value in family.items() if key.startswith("data.")}
        script = of_data | fedhpc.script_model(*network(arguments.model), Path(folder) / "net.pt")
        for turn in range(arguments.turns):
            order = [("family", family), ("autograd", script)]
            seconds = {name: seconds_of_round(name, keys, arguments, folder)
                       for name, keys in (order if turn % 2 == 0 else order[::-1])}
            ratios.append(seconds["autograd"] / seconds["family"])
            print(f"family {1e3 * seconds['family']:8.2f} ms, autograd {1e3 * seconds['autograd']:8.2f} ms, "
                  f"ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {np.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
