"""pFedSOP and the methods beside it in its tables, repeated with numpy alone from what a run writes: its
initial model, its partition and the published formula of its random numbers."""

import numpy as np
from app_support import main
from numpy_support import (EVALUATE, TOLERANCE, NumpyCase, Outcome, apply, gradients, read_model)


def train(run, model, client, round_, pass_=0, mu=0.0, centre=None, layers=slice(None)):
    """Plain SGD on one client's batches of a pass; only some layers move."""
    for x, y in run.batches(client, round_, pass_):
        loss, gradient = gradients(model, x, y)
        run.note(loss, len(y))
        if centre is not None:
            gradient = apply(lambda g, w, c: g + mu * (w - c), gradient, model, centre)
        moved = apply(lambda w, g: w - run.keys["train.lr"] * g, model, gradient)
        model = list(model)
        model[layers] = moved[layers]
    return model


def step(x, own, mean, keys):
    """Algorithm 1, lines 1 to 6, with the dense inverse's product by its definition; the new model, the
    angle, beta and the step's length."""
    flat = [np.concatenate([array.ravel() for layer in model for array in layer]) for model in (own, mean)]
    norms = np.linalg.norm(flat[0]) * np.linalg.norm(flat[1])
    angle = np.arccos(np.clip(flat[0] @ flat[1] / norms, -1, 1)) if norms > 0 else np.pi / 2
    beta = 1 - np.exp(-np.exp(-keys["algorithm.lambda"] * (angle - 1)))
    delta = (1 - beta) * flat[0] + beta * flat[1]
    factor = keys["algorithm.personal_lr"] / (keys["algorithm.rho"] + delta @ delta)
    moved = apply(lambda w, a, b: w - factor * ((1 - beta) * a + beta * b), x, own, mean)
    return moved, angle, beta, factor * np.linalg.norm(delta)


def pfedsop(run, file):
    keys = run.keys
    initial = read_model(file, "model/init/global")
    kept, own, scored, mean = {}, {}, {}, None
    for round_, chosen in run.rounds():
        updates, values = [], []
        for client in chosen:
            start = kept.get(client, initial)
            if client in kept:
                start, *of_client = step(start, own[client], mean, keys)
            trained = train(run, start, client, round_)
            updates.append(apply(lambda a, b: (a - b) / keys["train.lr"], start, trained))
            if not len(run.lists[client]):
                continue
            if client in kept:
                values.append(of_client)
            own[client] = updates[-1]
            kept[client] = trained if keys["algorithm.persist"] == "after" else start
            scored[client] = trained if keys["algorithm.evaluate"] == "after" else start
        mean = run.mean(chosen, updates)
        table = np.percentile(np.array(values), (10, 50, 90), axis=0) if values else np.full((3, 3), np.nan)
        notes = {f"{name}_p{percent}": table[i, j] for j, name in enumerate(("angle", "beta", "step_norm"))
                 for i, percent in enumerate((10, 50, 90))}
        yield Outcome(chosen, run.train_loss(), None, notes=notes,
                      personal=lambda client: scored.get(client, initial))


def ditto(run, file):
    initial = model = read_model(file, "model/init/global")
    kept = {}
    for round_, chosen in run.rounds():
        received = []
        for client in chosen:
            received.append(train(run, model, client, round_))
            kept[client] = train(run, kept.get(client, initial), client, round_,
                                 mu=run.keys["algorithm.mu"], centre=model)
        model = run.mean(chosen, received)
        yield Outcome(chosen, run.train_loss(), model,
                      personal=lambda client: kept.get(client, initial))


def fine_tuned(run, file):
    """FedAvg-FT and FedProx-FT."""
    model = read_model(file, "model/init/global")
    for round_, chosen in run.rounds():
        received = []
        for client in chosen:
            tuned = train(run, model, client, round_)
            start = tuned if run.keys["algorithm.start"] == "fine_tuned" else model
            received.append(train(run, start, client, round_, 1, run.keys.get("algorithm.mu", 0), model))
        model = run.mean(chosen, received)

        def personal(client, model=model, round_=round_):
            for x, y in run.batches(client, round_, purpose=EVALUATE):
                model = apply(lambda w, g: w - run.keys["train.lr"] * g, model, gradients(model, x, y)[1])
            return model

        yield Outcome(chosen, run.train_loss(), model, personal=personal)


def fedrep(run, file):
    """The last layer is the head."""
    *body, head = read_model(file, "model/init/global")
    heads, passes = {}, run.keys["algorithm.head_passes"]
    for round_, chosen in run.rounds():
        received = []
        for client in chosen:
            model = [*body, heads.get(client, head)]
            for pass_ in range(passes):
                model = train(run, model, client, round_, pass_, layers=slice(-1, None))
            model = train(run, model, client, round_, passes, layers=slice(0, -1))
            heads[client] = model[-1]
            received.append(model[:-1])
        body = run.mean(chosen, received)
        yield Outcome(chosen, run.train_loss(), None,
                      personal=lambda client, body=body: [*body, heads.get(client, head)])


SAVED = "init,partition,draws,personal"
EPOCHS = {"run.save": SAVED, "model.name": "dnn", "model.hidden": "8,7", "data.partition": "dirichlet",
          "data.alpha": 0.4, "data.min_samples": 3, "data.clients": 6, "topology.participation": 0.5,
          "train.batch_size": 7, "train.local_epochs": 2, "train.lr": 0.05,
          "algorithm.weighting": "samples", "run.rounds": 4, "run.seed": 11}
STEPS = {"run.save": SAVED, "model.name": "dnn", "model.hidden": "9", "data.partition": "shards",
         "data.shards_per_client": 2, "data.clients": 5, "topology.participation": 1,
         "train.batch_size": 9, "train.local_steps": 5, "train.lr": 0.1,
         "algorithm.weighting": "uniform", "run.rounds": 3, "run.seed": 0}
PFEDSOP = {"algorithm.name": "pfedsop", "algorithm.personal_lr": 0.2, "algorithm.rho": 0.7,
           "algorithm.lambda": 1.2, "algorithm.persist": "after", "algorithm.evaluate": "after"}
CASES = {
    "pfedsop, epochs, half of the clients": (pfedsop, EPOCHS | PFEDSOP),
    "pfedsop, steps, the paper's letter": (
        pfedsop, STEPS | PFEDSOP | {"algorithm.persist": "before", "algorithm.evaluate": "before"}),
    "pfedsop, full batches": (pfedsop, STEPS | PFEDSOP | {"train.batch_size": 0}),
    "ditto, epochs": (ditto, EPOCHS | {"algorithm.name": "ditto", "algorithm.mu": 0.6}),
    "ditto, steps": (ditto, STEPS | {"algorithm.name": "ditto", "algorithm.mu": 0.1}),
    "fedavg_ft": (fine_tuned, EPOCHS | {"algorithm.name": "fedavg_ft", "algorithm.start": "fine_tuned"}),
    "fedprox_ft, from the received model": (
        fine_tuned, STEPS | {"algorithm.name": "fedprox_ft", "algorithm.start": "received",
                             "algorithm.mu": 0.8}),
    "fedrep, epochs": (fedrep, EPOCHS | {"algorithm.name": "fedrep", "algorithm.head_passes": 2}),
    "fedrep, steps": (fedrep, STEPS | {"algorithm.name": "fedrep", "algorithm.head_passes": 1}),
}


class NumpyPFedSOP(NumpyCase):
    def test_cases(self):
        for name, (method, keys) in CASES.items():
            for ranks in (0, 2):
                with self.subTest(name, ranks=ranks), self.run_case(keys, "float64", ranks) as file:
                    _, last = self.check(keys, file, "float64", method)
                    self.check_personal(file, last.personal, TOLERANCE["float64"])

    def test_what_is_kept_of_a_model(self):
        """No global model of pfedsop; the body alone of fedrep, the same for every client."""
        with self.run_case(STEPS | PFEDSOP, "float64", 0) as file:
            self.assertNotIn("global", file["model"])
        with self.run_case(CASES["fedrep, steps"][1], "float64", 0) as file:
            self.assertEqual(list(file["model/global"]), ["fc1.weight", "fc1.bias"])
            self.assertEqual(len(file["model/init/global"]), 4)
            for name, body in file["model/global"].items():
                for client in range(5):
                    np.testing.assert_array_equal(file[f"model/personal/{name}"][client], body[...])


if __name__ == "__main__":
    main()
