#!/usr/bin/env python3
"""The loop over clients of device_training.cpp in plain PyTorch: same models, batches, steps and columns.

    device_training.py --device cuda --csv python.csv      # in the same job as device_training

A torch.nn.Module and a torch.optim.SGD per client, one client after the other; the host waits for the
device at both ends of a call only.
"""

import argparse
import csv
import itertools
import math
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

COLUMNS = ["variant", "model", "clients", "precision", "device", "steps", "repetitions", "client_steps_per_s",
           "lowest", "highest", "gflops", "peak_gflops", "of_peak", "times_loop"]
# name: shape of a sample, batch, batches of a client's samples, steps of a call
CASES = {"dnn": ((1, 28, 28), 20, 10, 20), "cnn4": ((3, 32, 32), 64, 2, 8), "resnet9": ((3, 32, 32), 64, 2, 4),
         "resnet18_gn": ((3, 32, 32), 64, 2, 4)}
CLASSES = 10
RATE = 1e-6  # small: weights must stay finite over many repetitions
LEAST, MOST = 3, 31  # repetitions


def convolution(wide_in, wide_out, bias, pool):
    layers = [nn.Conv2d(wide_in, wide_out, 3, padding=1, bias=bias), nn.BatchNorm2d(wide_out), nn.ReLU()]
    return layers + ([nn.MaxPool2d(2)] if pool else [])


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(*convolution(channels, channels, True, False),
                                  *convolution(channels, channels, True, False))

    def forward(self, x):
        return x + self.body(x)


class BasicBlock(nn.Module):
    """ResNet-18's, with group norm."""

    def __init__(self, wide_in, wide_out, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(wide_in, wide_out, 3, stride, 1, bias=False), nn.GroupNorm(2, wide_out),
                                  nn.ReLU(), nn.Conv2d(wide_out, wide_out, 3, padding=1, bias=False),
                                  nn.GroupNorm(2, wide_out))
        same = stride == 1 and wide_in == wide_out
        self.side = nn.Identity() if same else nn.Sequential(nn.Conv2d(wide_in, wide_out, 1, stride, bias=False),
                                                             nn.GroupNorm(2, wide_out))

    def forward(self, x):
        return functional.relu(self.side(x) + self.body(x))


def make_resnet18_gn(channels):
    layers = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.GroupNorm(2, 64), nn.ReLU()]
    wide = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(wide, out, stride), BasicBlock(out, out, 1)]
        wide = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def make_model(name):
    shape = CASES[name][0]
    if name == "dnn":
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 100), nn.ReLU(), nn.Linear(100, CLASSES))
    if name == "cnn4":
        layers, wide = [], shape[0]
        for out in (32, 64, 128, 256):
            layers += convolution(wide, out, False, True)
            wide = out
        side = shape[1] // 16
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(wide * side * side, CLASSES, bias=False))
    if name == "resnet18_gn":
        return make_resnet18_gn(shape[0])
    return nn.Sequential(*convolution(shape[0], 64, True, False), *convolution(64, 128, True, True), Residual(128),
                         *convolution(128, 256, True, True), *convolution(256, 512, True, True), Residual(512),
                         nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def forward_flops(name):
    """Multiplications and additions of the products and convolutions of one sample."""
    total = 0

    def count(module, _, out):
        nonlocal total
        if isinstance(module, nn.Linear):
            total += 2 * module.in_features * module.out_features
        elif isinstance(module, nn.Conv2d):
            total += 2 * module.weight[0].numel() * out[0].numel()

    model = make_model(name).eval()
    for module in model.modules():
        module.register_forward_hook(count)
    with torch.no_grad():
        model(torch.zeros(1, *CASES[name][0]))
    return total


class Clock:
    """Seconds on a device, from when all before is done; on the host CPU time of this process."""

    def __init__(self, device):
        self.device = device

    def finish(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds_of(self, work):
        now = time.perf_counter if self.device == "cuda" else time.process_time
        self.finish()
        begin = now()
        work()
        self.finish()
        return now() - begin


def set_precision(name):
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    torch.backends.cudnn.allow_tf32 = name == "tf32"


def measured_peak(clock, precision, side):
    """As torch.mm of float32 or, for bf16, bfloat16 matrices; operations a second."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.rand(side, side, device=clock.device).to(dtype) for _ in range(2))

    def products():
        for _ in range(4):
            torch.mm(a, b)

    products()
    return 4 * 2 * side**3 / min(clock.seconds_of(products) for _ in range(8))


class Loop:
    def __init__(self, name, clients, steps, batch, device, precision):
        shape, _, self.in_epoch, _ = CASES[name]
        self.batch, self.steps, self.device, self.precision = batch, steps, device, precision
        self.clients = []
        for _ in range(clients):
            model = make_model(name).to(device)
            samples = batch * self.in_epoch
            self.clients.append((model, torch.optim.SGD(model.parameters(), lr=RATE),
                                 torch.rand(samples, *shape, device=device),
                                 torch.randint(CLASSES, (samples,), device=device)))

    def __call__(self):
        total = torch.zeros((), device=self.device)
        for model, optimizer, features, labels in self.clients:
            for step in range(self.steps):
                place = step % self.in_epoch
                if place == 0:
                    order = torch.randperm(len(labels), device=self.device)
                picked = order[place * self.batch:(place + 1) * self.batch]
                optimizer.zero_grad()
                with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
                    loss = functional.cross_entropy(model(features[picked]), labels[picked])
                loss.backward()
                optimizer.step()
                total += loss.detach()
        if not math.isfinite(total.item()):
            sys.exit("device_training.py: the loop computes numbers that are not finite")


def measure(options, name, clients, precision, peak):
    _, batch, _, steps = CASES[name]
    batch, steps = options.batch or batch, options.steps or steps
    clock = Clock(options.device)
    loop = Loop(name, clients, steps, batch, options.device, precision)
    loop()
    seconds = []
    while len(seconds) < LEAST or (sum(seconds) < options.seconds and len(seconds) < MOST):
        seconds.append(clock.seconds_of(loop))
    work = clients * steps
    rate = work / statistics.median(seconds)
    flops = rate * 3 * batch * forward_flops(name)
    return ["PyTorch loop", name, clients, precision, options.device, steps, len(seconds), f"{rate:.6g}",
            f"{work / max(seconds):.6g}", f"{work / min(seconds):.6g}", f"{1e-9 * flops:.6g}",
            f"{1e-9 * peak:.6g}", f"{flops / peak:.4f}", ""]


def numbers(text):
    return [int(number) for number in text.split(",")]


def words(text):
    return text.split(",")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=numbers, default=[1, 10])
    parser.add_argument("--models", type=words, default=list(CASES))
    parser.add_argument("--precision", type=words)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--peak_side", type=int)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--csv")
    options = parser.parse_args()
    on_card = options.device == "cuda"
    options.precision = options.precision or (["fp32", "tf32", "bf16"] if on_card else ["fp32"])
    options.peak_side = options.peak_side or (8192 if on_card else 1024)
    return options


def main():
    options = parse()
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}\n")
    peaks = {}
    for precision in options.precision:
        set_precision(precision)
        peaks[precision] = measured_peak(Clock(options.device), precision, options.peak_side)
        print(f"Peak in {precision} by torch.mm of {options.peak_side} x {options.peak_side}: "
              f"{1e-9 * peaks[precision]:.4g} GFLOP/s")
    shown = [c for c in COLUMNS if c not in ("device", "steps", "repetitions", "peak_gflops")]
    print("\n| " + " | ".join(shown) + " |\n|" + "---|" * len(shown))
    # Row by row, so that what is measured stays whatever ends this.
    with open(options.csv or os.devnull, "w", newline="", encoding="utf-8", buffering=1) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for name, clients, precision in itertools.product(options.models, options.clients, options.precision):
            set_precision(precision)
            row = measure(options, name, clients, precision, peaks[precision])
            print("| " + " | ".join(str(v) for c, v in zip(COLUMNS, row) if c in shown) + " |", flush=True)
            table.writerow(row)


if __name__ == "__main__":
    main()
