"""Sequences, several labels and a regression: three data sets of one's own, and what FedAvg makes of them.

    python3 examples/targets.py [--rounds 20] [--folder results/targets]

Each sample has 12 features. A sequence has the classes of 1 to 5 places; -100 stands where there is none.
"""

import argparse
from pathlib import Path

import numpy as np

import fedhpc

SAMPLES, FEATURES = 1200, 12


def data_sets():
    """{name: (x, y)}"""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(SAMPLES, FEATURES))
    scores = (x @ draw.normal(size=(FEATURES, 15))).reshape(SAMPLES, 5, 3)
    there = np.arange(5) < draw.integers(1, 6, (SAMPLES, 1))
    return {"sequences": (x, np.where(there, scores.argmax(2), -100)),
            "several_labels": (x, x @ draw.normal(size=(FEATURES, 6)) > 1),
            "regression": (x, x @ draw.normal(size=(FEATURES, 2)) + 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("results/targets"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in data_sets().items():
        keys = fedhpc.write_dataset(options.folder / f"{name}.h5", x, y)
        results = fedhpc.run(keys | {
            "data.clients": 10, "model.name": "mlr", "train.lr": 0.1, "train.batch_size": 10,
            "run.rounds": options.rounds,
            "run.output": options.folder / f"{name}_run.h5", "run.progress": "none"}, force=True)
        last = results.rounds.iloc[-1]
        measures = [one for one in ("loss", "accuracy", "perplexity", "f1", "rmse") if f"global_{one}" in last]
        print(name, *(f"{one} {last[f'global_{one}']:.3f}" for one in measures))


if __name__ == "__main__":
    main()
