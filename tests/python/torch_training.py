"""FedAvg in plain PyTorch, from what a run has written and the published formula of its draws (docs/semantics.md)."""

from contextlib import contextmanager
from unittest import mock

import h5py
import numpy as np
import torch
import torch.nn.functional as F

COHORT, BATCHES, LAYERS = 4, 5, 15  # purposes of draws
OPTIMIZERS = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr),
    "momentum": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
    "nesterov": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9, nesterov=True),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr),
}


def draws(count, seed, purpose, client, round_, epoch):
    return np.random.Philox(key=[seed, purpose], counter=[0, epoch, client, round_]).random_raw(count)


def permutation(count, *key):
    return np.argsort(draws(count, *key), kind="stable")


def loss_of(outputs, y):
    """Cross entropy of a label, or of the labels of a sequence's places."""
    return F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), y.reshape(-1))


class Masks:
    """Draws the masks of a module's dropout in the order of the lines of its file."""

    def __init__(self, path):
        with h5py.File(path) as file:
            lines = [line.decode().split(" ") for line in file["layers"]]
        self.lines = [at for at, line in enumerate(lines)
                      if line[0] == "dropout" or any(word.startswith("dropout=") for word in line)]
        self.calls = []

    def begin(self, seed, client, round_, step):
        """Begins a step, whose masks the next calls of dropout take."""
        self.calls = [(seed, LAYERS, client + (line << 32), round_, step) for line in self.lines]

    def drop(self, x, p, units):
        """x with the first `units` values, of one sample's, dropped each with those behind it."""
        words = draws(-(-len(x) * units // 2), *self.calls.pop(0))
        numbers = np.stack([words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)], 1).ravel()[:len(x) * units]
        kept = torch.from_numpy(numbers >= np.uint64(round(2**32 * p))).reshape(len(x), units, 1)
        return (x.reshape(len(x), units, -1) * kept / (1 - p)).reshape(x.shape)

    @contextmanager
    def in_place_of_torch(self):
        def dropout(x, p=0.5, training=True, inplace=False):
            return self.drop(x, p, x[0].numel()) if training else x

        def dropout2d(x, p=0.5, training=True, inplace=False):
            return self.drop(x, p, x.shape[1]) if training else x

        def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
            if dropout_p == 0:
                return of_torch(q, k, v, attn_mask, 0.0, is_causal, scale=scale)
            scores = q @ k.transpose(-2, -1) * (q.shape[-1]**-0.5 if scale is None else scale)
            if is_causal:
                attn_mask = torch.full(scores.shape[-2:], float("-inf")).triu(1)
            weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
            return dropout(weights, dropout_p) @ v

        of_torch = F.scaled_dot_product_attention
        with mock.patch.multiple(F, dropout=dropout, dropout2d=dropout2d, scaled_dot_product_attention=attention):
            yield


class Training:
    """Repeats a run with its module; x and y are all samples in the file's order."""

    def __init__(self, run, model_file, module, x, y):
        self.module, self.x, self.y = module, x, y
        self.masks = Masks(model_file)
        self.has_batch_norm = any(name.endswith("running_mean") for name in module.state_dict())
        with h5py.File(run) as file:
            self.initial = {name: torch.from_numpy(values[()]) for name, values in file["model/init/global"].items()}
            offsets, samples = file["partition/train_offsets"][()], file["partition/train_samples"][()]
            self.tested = file["partition/test_samples"][()]
        self.lists = [samples[a:b] for a, b in zip(offsets, offsets[1:])]

    def batches(self, client, round_, keys):
        """The samples of a client's local steps."""
        mine, size = self.lists[client], keys["train.batch_size"]
        epochs = ((epoch, np.arange(0, len(mine), size)) for epoch in range(10**9))
        steps = ((epoch, first) for epoch, begins in epochs for first in begins
                 if not (self.has_batch_norm and first + 1 == len(mine)))
        for step, (epoch, first) in zip(range(keys["train.local_steps"]), steps):
            order = permutation(len(mine), keys["run.seed"], BATCHES, client, round_, epoch)
            yield step, mine[order[first:first + size]]

    def local(self, model, client, round_, keys):
        """(the client's model, the sum of its samples' losses, their number)."""
        self.module.load_state_dict(model, strict=False)
        optimizer = OPTIMIZERS[keys["train.optimizer"]](self.module.parameters(), keys["train.lr"])
        losses = places = 0
        for step, batch in self.batches(client, round_, keys):
            self.masks.begin(keys["run.seed"], client, round_, step)
            loss = loss_of(self.module(self.x[batch]), self.y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert not self.masks.calls, "every mask of the file has been taken"
            losses, places = losses + float(loss.detach()) * len(batch), places + len(batch)
        state = self.module.state_dict()
        return {name: state[name].clone() for name in model}, losses, places

    def run(self, keys):
        """(the last global model {name: tensor}, train_loss of each round)."""
        self.module.train()
        model, train_losses = self.initial, []
        with self.masks.in_place_of_torch():
            for round_ in range(1, keys["run.rounds"] + 1):
                size = max(1, int(keys["topology.participation"] * len(self.lists) + 0.5))
                cohort = np.sort(permutation(len(self.lists), keys["run.seed"], COHORT, 0, round_, 0)[:size])
                received = [self.local(model, client, round_, keys) for client in cohort]
                weights = torch.tensor([len(self.lists[client]) for client in cohort])
                model = {name: sum(w * one[0][name] for w, one in zip(weights, received)) / weights.sum()
                         for name in model}
                train_losses.append(sum(one[1] for one in received) / sum(one[2] for one in received))
        return model, train_losses

    def evaluate(self):
        """The module's accuracy and loss on all clients' test samples."""
        self.module.eval()
        with torch.no_grad():
            outputs, y = self.module(self.x[self.tested]), self.y[self.tested]
        return float((outputs.argmax(-1) == y).double().mean()), float(loss_of(outputs, y))
