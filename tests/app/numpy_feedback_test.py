"""FedAvg with the largest changes and error feedback repeated with numpy alone, from a run's files: in both
directions, and the bytes of docs/codecs.md.
"""

import unittest

import numpy as np
from app_support import main
from numpy_support import NumpyCase, Outcome, apply, gradients, read_model


def flat(model):
    return np.concatenate([array.ravel() for layer in model for array in layer])


def shaped(row, model):
    layers, at = [], 0
    for layer in model:
        arrays = []
        for array in layer:
            arrays.append(row[at:at + array.size].reshape(array.shape))
            at += array.size
        layers.append(tuple(arrays))
    return layers


def largest(change, fraction):
    """C(change)."""
    k = max(1, int(np.floor(fraction * len(change) + 0.5)))
    arrived = np.zeros_like(change)
    places = np.argsort(-np.abs(change), kind="stable")[:k]
    arrived[places] = change[places]
    return arrived


def fedavg(run, file):
    initial = read_model(file, "model/init/global")
    w = flat(initial)
    fraction, feedback = run.keys["algorithm.codec_fraction"], run.keys["algorithm.error_feedback"]
    down = run.keys.get("algorithm.downlink_codec") == "top_k"
    known = {}  # what each client has of the model
    kept = {}  # its e or g
    for round_, chosen in run.rounds():
        changes = []
        for client in chosen:
            start = w
            if down:
                start = known.get(client, flat(initial))
                start = start + largest(w - start, fraction)
                known[client] = start
            local = shaped(start, initial)
            for x, y in run.batches(client, round_):
                loss, gradient = gradients(local, x, y)
                run.note(loss, len(y))
                local = apply(lambda v, g: v - run.keys["train.lr"] * g, local, gradient)
            change = flat(local) - start
            state = kept.get(client, np.zeros_like(change))
            if feedback == "ef14":
                read = largest(state + change, fraction)
                kept[client] = state + change - read
            else:
                read = kept[client] = state + largest(change - state, fraction)
            changes.append(shaped(read, initial))
        w = w + flat(run.mean(chosen, changes))
        model = shaped(w, initial)
        yield Outcome(chosen, run.train_loss(), model, personal=lambda client, own=model: own)


KEYS = {"model.name": "dnn", "model.hidden": "7", "data.partition": "dirichlet", "data.alpha": 0.4, "data.min_samples": 3,
        "data.clients": 9, "topology.participation": 0.5, "train.batch_size": 8, "train.local_epochs": 1,
        "train.lr": 0.1, "algorithm.weighting": "samples", "algorithm.codec": "top_k",
        "algorithm.codec_fraction": 0.05, "run.rounds": 5, "run.seed": 6}


class NumpyFeedback(NumpyCase):
    always = {"algorithm.name": "fedavg"}

    def test_runs(self):
        for feedback in ("ef14", "ef21"):
            for down in ("dense", "top_k"):
                for ranks in (0, 2):
                    keys = {**KEYS, "algorithm.error_feedback": feedback, "algorithm.downlink_codec": down}
                    with self.subTest(feedback, down=down, ranks=ranks), \
                            self.run_case(keys, "float64", ranks) as file:
                        _, outcome = self.check(keys, file, "float64", fedavg)
                        n = len(flat(outcome.model))
                        k = int(np.floor(0.05 * n + 0.5))
                        sparse = -(-k * (n - 1).bit_length() // 8) + 8 * k
                        senders = np.sum(file["draws/cohort"][0] >= 0)
                        self.assertTrue((file["rounds/bytes_up_client_cloud"][...] == senders * sparse).all())
                        received = 8 * n if down == "dense" else sparse
                        self.assertTrue((file["rounds/bytes_down_client_cloud"][...] == senders * received).all())


if __name__ == "__main__":
    main()
