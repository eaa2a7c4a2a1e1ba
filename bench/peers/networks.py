"""The networks of the problems in PyTorch, named as fedhpc names them."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional


def network(problem):
    """The problem's network with its initial weights; logistic regression is one layer."""
    torch.set_num_threads(1)
    torch.manual_seed(problem.seed)
    if problem.model == "cnn":
        layers = [("conv1", nn.Conv2d(3, 32, 3)), ("relu1", nn.ReLU()), ("conv2", nn.Conv2d(32, 64, 3)),
                  ("relu2", nn.ReLU()), ("pool", nn.MaxPool2d(2)), ("dropout1", nn.Dropout(0.25)),
                  ("flatten", nn.Flatten()), ("fc1", nn.Linear(64 * 14 * 14, 128)), ("relu3", nn.ReLU()),
                  ("dropout2", nn.Dropout(0.5)), ("fc2", nn.Linear(128, problem.classes))]
    else:
        widths = [problem.train_x.shape[1], *([100] if problem.model == "mlp" else []), problem.classes]
        layers = []
        for i, (before, after) in enumerate(zip(widths, widths[1:]), 1):
            layers += [(f"fc{i}", nn.Linear(before, after)), (f"relu{i}", nn.ReLU())]
        layers.pop()
    net = nn.Sequential(OrderedDict(layers))
    net.load_state_dict({name: torch.from_numpy(values) for name, values in problem.initial.items()})
    return net


def samples(problem):
    """Training samples and labels as tensors, which share the problem's memory."""
    return torch.from_numpy(problem.train_x), torch.from_numpy(problem.train_y)


@torch.no_grad()
def accuracy(net, problem):
    """The share of test samples that the network tells right."""
    training = net.training
    net.eval()
    right = 0
    for first in range(0, len(problem.test_y), 500):
        x = torch.from_numpy(problem.test_x[first:first + 500])
        right += (net(x).argmax(1).numpy() == problem.test_y[first:first + 500]).sum()
    net.train(training)
    return right / len(problem.test_y)


def epoch(net, batches, lr):
    """Plain SGD over batches (x, y); returns the sum of the samples' losses."""
    optimizer = torch.optim.SGD(net.parameters(), lr)
    total = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    return total
