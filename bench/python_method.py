"""Time of a round of a method in Python over that of the same method in C++: FedAvg of examples/fedavg.py.

    OMP_NUM_THREADS=1 PYTHONPATH=python python3 bench/python_method.py [--block auto] [--turns 7]

DNN of one hidden layer on 784 generated features, 100 clients of 60 samples, 3 batches of 20 a client and round. The
two run in turns, each alone; a time is the median over a run's rounds, and what is said the median ratio over turns.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "examples"))
import fedavg  # noqa: E402, F401
import fedhpc  # noqa: E402


def seconds_of_round(name, arguments, folder):
    keys = {"algorithm.name": name, "run.rounds": arguments.rounds, "run.eval_every": arguments.rounds,
            "run.output": os.fspath(Path(folder) / f"{name}.h5"), "run.checkpoint_every": 0, "run.log_level": "error",
            "data.name": "synthetic", "data.features": 784, "data.clients": arguments.clients,
            "data.samples_per_client": 75, "model.name": "dnn", "model.hidden": arguments.hidden,
            "train.batch_size": 20, "train.block": arguments.block, "train.lr": 0.01}
    results = fedhpc.run(keys, progress=False, force=True)
    return results.rounds["wall_seconds"].iloc[1:-1].median()  # the first warms up, the last evaluates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("clients", 100), ("hidden", 100), ("rounds", 12), ("turns", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--block", default="auto")
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(arguments.turns):
            order = ("fedavg", "fedavg_py") if turn % 2 == 0 else ("fedavg_py", "fedavg")
            seconds = {name: seconds_of_round(name, arguments, folder) for name in order}
            ratios.append(seconds["fedavg_py"] / seconds["fedavg"])
            print(f"C++ {1e3 * seconds['fedavg']:8.2f} ms, Python {1e3 * seconds['fedavg_py']:8.2f} ms, "
                  f"ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {np.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
