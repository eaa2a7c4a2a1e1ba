"""Adapts a transformer that has learnt one half of MNIST's digits to the other half: in full, by LoRA, by FFA-LoRA.

    python3 examples/lora.py --data DIR

DIR holds the folder mnist (tools/fetch_data.py). Federated averaging first trains a small vision transformer of PyTorch
on digits 0 to 4. Then 20 clients with 50 images each of digits 5 to 9, unevenly, adapt it. A table says what each way
reaches and sends. Files are made in the current folder.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedhpc

# Each by the best of its rates among 0.02, 0.05, 0.1, 0.2 and 0.5.
WAYS = {"all weights": {"algorithm.name": "fedavg", "train.lr": 0.05},
        "LoRA": {"algorithm.name": "lora", "model.rank": 4, "train.lr": 0.1},
        "FFA-LoRA": {"algorithm.name": "lora", "model.factorisation": "ffa_lora", "model.rank": 4, "train.lr": 0.2}}
SHARED = {"train.batch_size": 10, "train.optimizer": "momentum", "train.momentum": 0.9, "train.local_epochs": 1}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, n, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, width))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """16 patches of 7 x 7 pixels, two blocks."""

    def __init__(self, width=64, heads=4, classes=5):
        super().__init__()
        self.patch, self.places = nn.Conv2d(1, width, 7, 7), nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def images(folder, name, digits):
    """(pixels [n, 28, 28], labels from 0) of some digits."""
    def numbers(kind, skipped):
        return np.frombuffer(gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes())[skipped:], np.uint8)

    x, y = numbers("images-idx3", 16).reshape(-1, 28, 28), numbers("labels-idx1", 8).astype(np.int64)
    wanted = np.isin(y, digits)
    return x[wanted], y[wanted] - digits[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the folder mnist")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30, help="of each adaptation")
    parser.add_argument("--before", type=int, default=30000, help="images of digits 0 to 4, at most")
    parser.add_argument("--rates", type=float, nargs="*", help="rates to be tried in place of each way's own")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = fedhpc.export_model(ViT(), torch.zeros(1, 1, 28, 28), "vit.h5")
    data = {}
    for part, digits, most in (("before", range(5), options.before), ("after", range(5, 10), 1000)):
        x, y = images(options.data / "mnist", "train", list(digits))
        chosen = np.random.default_rng(1).permutation(len(x))[:most]
        test = images(options.data / "mnist", "t10k", list(digits))
        data[part] = fedhpc.write_dataset(f"{part}.h5", x[chosen], y[chosen], test=test)

    before = {**model, **data["before"], **SHARED, "data.clients": 10, "data.partition": "iid", "train.lr": 0.05,
              "run.rounds": 4, "run.output": "pretrained.h5"}
    accuracy = fedhpc.run(before, progress=False, force=True).rounds["global_accuracy"].iloc[-1]
    print(f"before: {100 * accuracy:.1f} % of digits 0 to 4")
    after = {**model, **data["after"], **SHARED, "data.clients": 20, "data.partition": "dirichlet", "data.alpha": 0.5,
             "model.init_file": "pretrained.h5", "model.init_state": "final", "run.rounds": options.rounds,
             "run.eval_every": options.rounds}
    print("| way | rate | accuracy | kB a client sends in a round | all of a run, MB | gap |")
    for way, keys in WAYS.items():
        for rate in options.rates or [keys["train.lr"]]:
            found = []
            for seed in range(1, options.seeds + 1):
                found.append(fedhpc.run({**after, **keys, "train.lr": rate, "run.seed": seed, "run.output": f"{way}_{seed}.h5"},
                                        progress=False, force=True).rounds)
            reached = np.array([100 * one["global_accuracy"].iloc[-1] for one in found])
            sent = found[0]["bytes_up_client_cloud"]
            a_client = sent.iloc[0] / found[0]["participants"].iloc[0]
            gap = found[0]["aggregation_gap"].mean() if "aggregation_gap" in found[0] else 0
            print(f"| {way} | {rate} | {reached.mean():.1f} ± {reached.std(ddof=1) if len(found) > 1 else 0:.1f} | "
                  f"{a_client / 1000:.1f} | {sent.sum() / 1e6:.1f} | {gap:.1e} |", flush=True)


if __name__ == "__main__":
    main()
