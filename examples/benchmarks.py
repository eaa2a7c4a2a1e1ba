"""Makes the files of a problem of configs/benchmarks/ in the current folder.

    python3 examples/benchmarks.py femnist_flute --data DIR
    fedhpc run configs/benchmarks/femnist_flute.ini

DIR keeps what is fetched from the publishers; data.dir is DIR, too. LEAF publishes scripts in place of files: give the
folder with train and test that they have made, --leaf data/femnist/data. What is made is called as the configuration,
with _data, _clients or _model behind it.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("fedhpc") is None:  # it is not installed: the one beside this script
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import fedhpc  # noqa: E402
from fedhpc.tools import authors_partition  # noqa: E402


def leaf(name, options, **more):
    if options.leaf is None:
        raise fedhpc.ConfigError(f"{name} needs --leaf FOLDER, which LEAF's preprocess.sh has made")
    fedhpc.from_leaf(f"{name}_data.h5", options.leaf, **more)


def federated(name, options, published, train, test, **more):
    """A data set of TensorFlow Federated."""
    folder = fedhpc.fetch(published, options.data)
    if "vocabulary" in more:
        more["vocabulary"] = folder / more["vocabulary"]
    fedhpc.data.from_tff(f"{name}_data.h5", folder / train, folder / test, **more)


def clients_of(name, options, program, dataset, rule, *more):
    """A partition, image by image, of an authors' program."""
    fedhpc.fetch(dataset, options.data)
    output = f"{name}_clients.h5"
    arguments = [program, "--data", str(options.data), "--dataset", dataset, "--rule", rule, "--output", output]
    if authors_partition.main([*arguments, *more]):
        raise fedhpc.DataError(f"{output} is not made")


def with_sigmoid(name, features, classes):
    """The linear layer with a sigmoid that LEAF, FedML and FLUTE call logistic regression."""
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(features, classes), torch.nn.Sigmoid())
    fedhpc.export_model(network, torch.zeros(1, features), f"{name}_model.h5")


def recurrent(name):
    """Two LSTM layers that tell the next of 90 characters at each of 80 places."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(90, 8, padding_idx=0)
            self.lstm = torch.nn.LSTM(8, 256, 2, batch_first=True)
            self.output = torch.nn.Linear(256, 90)

        def forward(self, x):
            return self.output(self.lstm(self.embedding(x))[0])

    fedhpc.export_model(Network(), torch.zeros(1, 80, dtype=torch.long), f"{name}_model.h5")


def synthetic_fedprox(name, options):
    folder = fedhpc.fetch("fedprox_synthetic", options.data)
    fedhpc.from_leaf(f"{name}_data.h5", folder / "synthetic_1_1_train.json", folder / "synthetic_1_1_test.json")


def synthetic_leaf(name, options):
    fedhpc.data.synthetic(f"{name}_data.h5", "leaf")
    with_sigmoid(name, 60, 5)


def mnist_flute(name, options):
    fedhpc.from_leaf(f"{name}_data.h5", fedhpc.fetch("fedml_mnist", options.data))
    with_sigmoid(name, 784, 10)


def shakespeare_flute(name, options):
    federated(name, options, "fed_shakespeare", "shakespeare_train.h5", "shakespeare_test.h5", length=80)
    recurrent(name)


def femnist_flute(name, options):
    federated(name, options, "fed_emnist", "fed_emnist_train.h5", "fed_emnist_test.h5")


def cifar100(name, options):
    federated(name, options, "fed_cifar100", "fed_cifar100_train.h5", "fed_cifar100_test.h5")


def stackoverflow_pfl(name, options):
    federated(name, options, "fed_stackoverflow", "stackoverflow_train.h5", "stackoverflow_held_out.h5",
              vocabulary="stackoverflow.word_count", sentences=64, test_clients=388)


PROBLEMS = {
    "cifar10_pfl_iid": lambda name, options: fedhpc.fetch("cifar10", options.data),
    "cifar10_pfl_dirichlet": lambda name, options: clients_of(name, options, "pfl", "cifar10", "dirichlet"),
    "cifar100_flute": cifar100,
    "cifar100_reddi": cifar100,
    "cifar100_pflib_dirichlet": lambda name, options: clients_of(name, options, "pflib", "cifar100", "dir"),
    "cifar100_pflib_pathological": lambda name, options: clients_of(name, options, "pflib", "cifar100", "pat",
                                                                    "--labels", "10"),
    "femnist_flute": femnist_flute,
    "femnist_leaf": lambda name, options: leaf(name, options, classes=62),
    "fmnist_pflib_dirichlet": lambda name, options: clients_of(name, options, "pflib", "fmnist", "dir"),
    "fmnist_pflib_pathological": lambda name, options: clients_of(name, options, "pflib", "fmnist", "pat"),
    "mnist_flute": mnist_flute,
    "shakespeare_flute": shakespeare_flute,
    "shakespeare_leaf": leaf,
    "stackoverflow_pfl": stackoverflow_pfl,
    "synthetic_fedprox": synthetic_fedprox,
    "synthetic_leaf": synthetic_leaf,
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROBLEMS)
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="what is fetched [data]")
    parser.add_argument("--leaf", type=Path, metavar="FOLDER", help="what LEAF's scripts have made")
    options = parser.parse_args(arguments)
    try:
        PROBLEMS[options.name](options.name, options)
    except fedhpc.Error as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
