"""A local step of convolutional networks: fedhpc on the exported module, PyTorch's loop, and its convolutions alone.

    OMP_NUM_THREADS=1 PYTHONPATH=python taskset -c 0 python3 bench/cnn_step.py [--models cnn4,vgg8,resnet18] [--turns 7]

Batches of 64: cnn4 on 1 x 28 x 28, vgg8 and ResNet-18 (group norm, a quarter of its channels) on 3 x 32 x 32; plain SGD.
All take turns in one process on random images. A turn's time is the median over its steps or rounds, a figure
the median over turns, with the smallest and the largest. PyTorch's convolutions lie in channels last.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from device_training import BasicBlock, convolution
from torch import nn
from torch.nn import functional

import fedhpc

BATCH, STEPS, CLASSES, RATE = 64, 6, 10, 1e-4


def plain(channels, widths, head):
    """A convolution, batch norm, ReLU and pooling for each width, down to one place."""
    layers = []
    for before, after in zip((channels, *widths), widths):
        layers += convolution(before, after, True, True)
    return nn.Sequential(*layers, nn.Flatten(), *head(widths[-1]))


def vgg_head(width):
    return (nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def resnet18(widths):
    layers = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.GroupNorm(2, widths[0]), nn.ReLU()]
    for i, (before, after) in enumerate(zip((widths[0], *widths), widths)):
        layers += [BasicBlock(before, after, 2 if i > 0 else 1), BasicBlock(after, after, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


MODELS = {"cnn4": ((1, 28, 28), lambda: plain(1, (32, 64, 128, 256), lambda width: (nn.Linear(width, CLASSES),))),
          "vgg8": ((3, 32, 32), lambda: plain(3, (32, 64, 128, 256, 256), vgg_head)),
          "resnet18": ((3, 32, 32), lambda: resnet18((16, 32, 64, 128)))}


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class InSteps:
    """What has a step() to be timed."""

    def turn(self):
        return statistics.median(seconds_of(self.step) for _ in range(STEPS))


class Loop(InSteps):
    """forward, backward and SGD's step of a module."""

    def __init__(self, make, shape, layout):
        self.net = make().to(memory_format=layout)
        self.x = torch.rand(BATCH, *shape).to(memory_format=layout)
        self.y = torch.randint(CLASSES, (BATCH,))
        self.optimizer = torch.optim.SGD(self.net.parameters(), RATE)

    def step(self):
        self.optimizer.zero_grad()
        functional.cross_entropy(self.net(self.x), self.y).backward()
        self.optimizer.step()


class Convolutions(InSteps):
    """A module's convolutions, forward and backward, and nothing else."""

    def __init__(self, make, shape):
        net = make().to(memory_format=torch.channels_last)
        self.calls = []
        hooks = [module.register_forward_hook(self.record) for module in net.modules() if isinstance(module, nn.Conv2d)]
        with torch.no_grad():
            net(torch.rand(BATCH, *shape).to(memory_format=torch.channels_last))
        for hook in hooks:
            hook.remove()

    def record(self, module, inputs, output):
        wanted = [len(self.calls) > 0, True, module.bias is not None]  # an image needs no gradient
        self.calls.append((inputs[0], module, torch.rand_like(output), wanted))

    @torch.no_grad()
    def step(self):
        for x, module, _, _ in self.calls:
            module(x)
        for x, module, dy, wanted in self.calls:
            torch.ops.aten.convolution_backward(
                dy, x, module.weight, [module.out_channels], module.stride, module.padding, module.dilation, False,
                [0, 0], module.groups, wanted)


class Fedhpc:
    """Rounds of one client that trains the exported module for an epoch of STEPS batches."""

    def __init__(self, make, shape, folder):
        random = np.random.default_rng(1)
        x = random.random((BATCH * STEPS, *shape), dtype=np.float32)
        y = random.integers(0, CLASSES, len(x))
        self.keys = fedhpc.export_model(make(), torch.zeros(1, *shape), Path(folder) / "net.h5")
        self.keys |= fedhpc.write_dataset(Path(folder) / "data.h5", x, y, test=(x[:BATCH], y[:BATCH]))
        self.keys |= {"algorithm.name": "fedavg", "data.clients": 1, "data.standardize": "none", "run.rounds": 5,
                      "run.eval_every": 5, "run.checkpoint_every": 0, "run.log_level": "error",
                      "run.output": os.fspath(Path(folder) / "run.h5"), "train.batch_size": BATCH,
                      "train.local_epochs": 1, "train.lr": RATE}

    def turn(self):
        rounds = fedhpc.run(self.keys, progress=False, force=True).rounds
        return rounds["wall_seconds"].iloc[1:-1].median() / STEPS  # the first warms up, the last evaluates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print("| model | way | ms a step | smallest | largest | x fedhpc |\n|---|---|---:|---:|---:|---:|")
    for name in options.models.split(","):
        shape, make = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            ways = {"fedhpc": Fedhpc(make, shape, folder),
                    "PyTorch, channels last": Loop(make, shape, torch.channels_last),
                    "PyTorch": Loop(make, shape, torch.contiguous_format),
                    "its convolutions alone": Convolutions(make, shape)}
            for way in ways.values():
                way.turn()
            found = {way: [] for way in ways}
            for _ in range(options.turns):
                for way, one in ways.items():
                    found[way].append(1000 * one.turn())
        ours = statistics.median(found["fedhpc"])
        for way, times in found.items():
            print(f"| {name} | {way} | {statistics.median(times):.1f} | {min(times):.1f} | {max(times):.1f} | "
                  f"{statistics.median(times) / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
