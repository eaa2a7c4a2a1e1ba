"""Ten steps of a TorchScript file, and those that torch takes."""

import h5py
import numpy as np
import torch
from torch import nn

import fedhpc

KEYS = {"algorithm.name": "fedavg", "run.dtype": "float64", "run.output": "run.h5", "run.checkpoint_every": 0,
        "run.save": ["init", "partition"]}


def example_of(x):
    """Two samples of the data x as a run gives them."""
    two = torch.from_numpy(x[:2])
    return two.unsqueeze(1) if two.dim() == 3 else two


def ten_steps(case, net, x, y):
    """Fails `case` unless three clients' steps are those of torch, and move all fields; returns the fields' names."""
    net = net.double()
    data = fedhpc.write_dataset("steps.h5", x, y, clients=np.arange(len(x)) % 3)
    keys = fedhpc.script_model(net, example_of(x), "steps.pt")
    fedhpc.run({**KEYS, **data, **keys, "run.rounds": 1, "train.batch_size": 0, "train.local_epochs": 10, "train.lr": 0.1,
                "train.momentum": 0.9, "algorithm.weighting": "uniform"}, progress=False, force=True)
    with h5py.File("run.h5") as file:
        offsets, samples = (file[f"partition/train_{name}"][()] for name in ("offsets", "samples"))
        found = {name: values[()] for name, values in file["model/global"].items()}
        initial = {name: values[()] for name, values in file["model/init/global"].items()}
    mean = {}
    state = {name: values.clone() for name, values in net.state_dict().items()}
    for k in range(3):
        net.load_state_dict(state)
        optimizer = torch.optim.SGD(net.train().parameters(), lr=0.1, momentum=0.9)
        of_client = samples[offsets[k]:offsets[k + 1]]
        of_x, of_y = torch.from_numpy(x[of_client]), torch.from_numpy(y[of_client])
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(of_x), of_y).backward()
            optimizer.step()
        for name, values in net.state_dict().items():
            mean[name] = mean.get(name, 0) + values.numpy() / 3
    net.load_state_dict(state)
    for name, values in found.items():
        np.testing.assert_allclose(values, mean[name], rtol=0, atol=1e-9, err_msg=name)
        np.testing.assert_array_equal(initial[name], state[name].numpy(), err_msg=name)
        case.assertGreater(np.abs(values - initial[name]).max(), 1e-3, name)
    return set(found)
