"""A data set of one's own: patients of five clinics, from numpy arrays to a trained model.

    python examples/own_data.py [FOLDER]

Every clinic is a client. Its patients have other features than those of other clinics, and the same disease shows
differently there. A quarter of each clinic's patients is set aside, and every clinic is tested on its own. The script
compares one model for all (FedAvg) with models that each clinic adapts (pFedMe) and with clinics that train alone.
"""

import sys
from pathlib import Path

import numpy as np

import fedhpc

CLINICS = ("Aarau", "Bern", "Chur", "Davos", "Engelberg")
PATIENTS, FEATURES, DISEASES = 1500, 12, 3


def patients(draw):
    """(features [n, 12], diseases [n], names of clinics [n])."""
    clinic = draw.choice(len(CLINICS), PATIENTS, p=(0.4, 0.25, 0.2, 0.1, 0.05))
    disease = draw.integers(0, DISEASES, PATIENTS)
    shows = draw.normal(0, 1, (DISEASES, FEATURES))  # everywhere
    differs = draw.normal(0, 1, (len(CLINICS), DISEASES, FEATURES))
    features = shows[disease] + differs[clinic, disease] + draw.normal(0, 2, (PATIENTS, FEATURES))
    return features.astype(np.float32), disease, np.array(CLINICS)[clinic]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(1)
    x, y, clinic = patients(draw)
    keys = fedhpc.write_dataset(folder / "clinics.h5", x, y, clients=clinic, test=draw.random(PATIENTS) < 0.25,
                                classes=("none", "flu", "measles"))
    for method in ("fedavg", "pfedme", "localonly"):
        logs = fedhpc.callbacks.TensorBoard(folder / "logs" / method)
        results = fedhpc.run(keys | {"model.name": "mlr", "run.rounds": 50, "run.eval_every": 5, "run.seed": 1,
                                     "run.output": str(folder / f"{method}.h5"), "algorithm.name": method},
                             force=True, progress=False, on_round=logs)
        accuracy = results.rounds["personal_accuracy"].dropna().iloc[-1]
        print(f"{method:10} is right about {accuracy:.1%} of a clinic's own patients")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
