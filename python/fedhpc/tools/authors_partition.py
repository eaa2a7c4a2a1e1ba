"""Partitions of authors' programs, sample by sample, as files for data.partition_file.

    authors_partition.py pfedme --data DIR --output PARTS.h5 [--dataset mnist] [--clients 20] [--labels 2] [--seed 1]
    authors_partition.py fedmud --data DIR --output PARTS.h5 --rule iid|labeldir|labelcnt [--dataset cifar100]
                         [--share 0.1] [--clients 100] [--seed 1234] [--ties scalar|numpy]
    authors_partition.py pfl    --data DIR --output PARTS.h5 --rule iid|dirichlet [--dataset cifar10]
                         [--share 0.1] [--samples 50] [--seed 0]
    authors_partition.py pflib  --data DIR --output PARTS.h5 --rule dir|pat [--dataset fmnist]
                         [--share 0.1] [--labels 2] [--clients 20] [--seed 1]

pfedme: the users of pFedMe's script for MNIST. A user takes the next samples of each of its labels in the order of
the files, training set first; Python's random shuffles them, and the first three quarters of them train. How many
it takes is drawn as by data.partition=pfedme. For data.split=client, the default.

fedmud: the clients of the FedMUD and FedBAT papers' program; --share is the concentration of labeldir, and of
labelcnt the share of all labels that a client has: those that are least in use, in the order in which numpy's
quicksort leaves equal ones. With 10 labels these follow each other in a circle, with 100 they are blocks of labels
that are always together. From version 1.25 on numpy sorts with a CPU's vector units, which leave equal values in
another order: --ties numpy takes what this machine's numpy gives. Training samples only: for data.split=official.

pfl: the users of pfl-research's CIFAR-10, --samples each. dirichlet: each user draws the labels of its samples from a
Dirichlet distribution of its own with concentration --share (Hsu et al. 2019). Where labels are used up and draws are
in vain, the distribution is evened out, as in the program. Training samples only: for data.split=official.

pflib: the clients of PFLlib. dir: shares of each label from a Dirichlet distribution with concentration --share. pat:
--labels labels each, in blocks, with unequal numbers of samples in the order of the files. Three quarters of a client's
samples train. For data.split=client.

The files of the data set are looked for where the simulator looks: DIR/FOLDER/FILE and DIR/FILE, packed or not.
Exit code 2: a file is missing, or there are not enough samples.
"""

import argparse
import gzip
import lzma
import os
import random
import sys
from pathlib import Path

import h5py
import numpy as np

from .data_files import names

INSERTION = 15  # numpy leaves a range of one more values to insertion
SMALLEST = 10  # samples of a client by labeldir
SMALLEST_PFLIB = 40  # a batch of 10 to test on
TRIES = 10000  # of by_dirichlet, at most
TRIES_TO_JUDGE, HOPELESS = 20, 100  # after so many the best one may leave so many clients with too little
EVENED_AFTER, EVENED_BY = 20, 0.02  # draws for each sample of a pfl user; what each label's probability gains
# Bytes before an image, bytes of an image, place of its class before it.
CIFAR = {"cifar10": (1, 3072, 0), "cifar100": (2, 3072, 1)}
DATASETS = ("mnist", "fmnist", *CIFAR)


class PartitionError(Exception):
    """What keeps the partition from being made."""


def unpacked(directory, folder, name):
    """The bytes of a data set's file."""
    for place in (Path(directory) / folder / name, Path(directory) / name):
        for packing, open_file in (("", open), (".gz", gzip.open), (".xz", lzma.open)):
            path = Path(f"{place}{packing}")
            if path.is_file():
                with open_file(path, "rb") as file:
                    return file.read()
    raise PartitionError(f"no {folder}/{name} below {directory}")


def labels_of(dataset, directory):
    """(labels of the training set, of the test set) in the order of the files."""
    folder, files = names(dataset)
    if dataset not in CIFAR:
        halves = [unpacked(directory, folder, f"{half}-labels-idx1-ubyte") for half in ("train", "t10k")]
        return tuple(np.frombuffer(half, np.uint8)[8:].astype(np.int64) for half in halves)
    before, image, place = CIFAR[dataset]
    parts = {"train": [], "test": []}
    for name in sorted(files):
        records = np.frombuffer(unpacked(directory, folder, name), np.uint8).reshape(-1, before + image)
        parts["test" if "test" in name else "train"].append(records[:, place].astype(np.int64))
    return np.concatenate(parts["train"]), np.concatenate(parts["test"])


def pfedme(labels, clients, labels_per_client, seed):
    """(training samples, test samples) of each client."""
    classes = int(labels.max()) + 1
    draws, shuffles = np.random.RandomState(seed), random.Random(seed)
    of_label = [np.flatnonzero(labels == label) for label in range(classes)]
    counts = []  # of the j-th label of each client, from the samples that label j has
    for j in range(labels_per_client):
        left, of_users = len(of_label[j]), []
        for _ in range(clients - 1):
            low, high = left // (clients + 1), left // 2
            if low >= high:
                raise PartitionError(f"too few samples of label {j} for {clients} clients")
            of_users.append(draws.randint(low, high))
            left -= of_users[-1]
        counts.append([*of_users, left])
    taken = [0] * classes
    train, test = [], []
    for user in range(clients):
        mine = []
        for j in range(labels_per_client):
            label = (user + j) % classes
            end = taken[label] + counts[j][user]
            if end < len(of_label[label]):  # else the user goes without, as in the script
                mine += of_label[label][taken[label]:end].tolist()
                taken[label] = end
        shuffles.shuffle(mine)
        split = int(0.75 * len(mine))
        train.append(mine[:split])
        test.append(mine[split:])
    return train, test


def quicksort_order(values):
    """Places of the values in ascending order, equal ones as numpy's quicksort without vector units leaves them."""
    order = list(range(len(values)))
    ranges = [(0, len(values) - 1)]
    while ranges:
        low, high = ranges.pop()
        while high - low > INSERTION:
            middle = (low + high) // 2
            for a, b in ((low, middle), (middle, high), (low, middle)):  # the median of three to the middle
                if values[order[b]] < values[order[a]]:
                    order[a], order[b] = order[b], order[a]
            pivot = values[order[middle]]
            order[middle], order[high - 1] = order[high - 1], order[middle]
            up, down = low, high - 1
            while True:
                up, down = up + 1, down - 1
                while values[order[up]] < pivot:
                    up += 1
                while pivot < values[order[down]]:
                    down -= 1
                if up >= down:
                    break
                order[up], order[down] = order[down], order[up]
            order[up], order[high - 1] = order[high - 1], order[up]
            if up - low < high - up:  # the longer part waits
                ranges.append((up + 1, high))
                high = up - 1
            else:
                ranges.append((low, up - 1))
                low = up + 1
        order[low:high + 1] = sorted(order[low:high + 1], key=lambda place: values[place])  # insertion is stable
    return order


ORDERS = {"scalar": quicksort_order, "numpy": lambda values: np.argsort(values).tolist()}


def label_sets(classes, clients, count, order):
    """The labels of each client: those that clients before it have least."""
    used = np.zeros(classes)
    sets = []
    for client in range(clients):
        sets.append(order(used / (client + 1))[:count])
        used[sets[-1]] += 1
    return sets


def by_label_count(labels, sets, draws):
    classes, clients = int(labels.max()) + 1, len(sets)
    owned = [[] for _ in range(clients)]
    for label in range(classes):
        samples = np.flatnonzero(labels == label)
        draws.shuffle(samples)
        owners = [client for client in range(clients) if label in sets[client]]
        for client, part in zip(owners, np.array_split(samples, len(owners)) if owners else ()):
            owned[client] += part.tolist()
    return owned


def by_dirichlet(labels, classes, clients, concentration, draws, smallest=SMALLEST):
    most = len(labels) / clients  # who has as many gets no more
    lacking = clients  # in the best try
    for tried in range(1, TRIES + 1):
        owned = [[] for _ in range(clients)]
        for label in range(classes):
            samples = np.flatnonzero(labels == label)
            draws.shuffle(samples)
            shares = draws.dirichlet(np.full(clients, concentration))
            shares = shares * np.array([len(mine) < most for mine in owned])
            ends = (np.cumsum(shares / shares.sum()) * len(samples)).astype(int)[:-1]
            for mine, part in zip(owned, np.split(samples, ends)):
                mine += part.tolist()
        lacking = min(lacking, sum(len(mine) < smallest for mine in owned))
        if lacking == 0:
            return owned
        if tried == TRIES_TO_JUDGE and lacking > HOPELESS:
            break
    raise PartitionError(f"no partition gives each of {clients} clients {smallest} samples in {tried} tries: the best one "
                         f"left {lacking} with less; take a larger --share or fewer --clients")


def fedmud(labels, rule, share, clients, seed, ties="scalar"):
    """The training samples of each client."""
    draws = np.random.RandomState(seed)
    classes = int(labels.max()) + 1
    if len(labels) < SMALLEST * clients:
        raise PartitionError(f"{len(labels)} samples are too few for {clients} clients")
    if rule == "iid":
        return [part.tolist() for part in np.array_split(draws.permutation(len(labels)), clients)]
    if rule == "labelcnt":
        count = int(share * classes)
        if not 1 <= count <= classes:
            raise PartitionError(f"--share {share:g} is {count} of {classes} labels; take 1 to {classes} of them")
        sets = label_sets(classes, clients, count, ORDERS[ties])
        if unowned := sorted(set(range(classes)).difference(*sets)):
            print(f"authors_partition: no client has label {', '.join(map(str, unowned))}", file=sys.stderr)
        return by_label_count(labels, sets, draws)
    owned = by_dirichlet(labels, classes, clients, share, draws)
    for mine in owned:
        draws.shuffle(mine)
    return owned


def pfl_user(draws, left, chances, samples):
    """The samples of one user, taken from the ends of the lists `left` of each label's samples."""
    sums = np.cumsum(chances)
    sums[-1] = 1.0
    mine, drawn = [], 0
    while len(mine) < samples:
        label = int(np.argmax(draws.uniform() < sums))
        if left[label]:
            mine.append(left[label].pop())
        drawn += 1
        if drawn % (samples * EVENED_AFTER) == 0:
            chances = (chances + EVENED_BY) / (chances + EVENED_BY).sum()
            sums = np.cumsum(chances)
            chances[-1] = 1.0  # as in the program, which means the last sum
    return mine


def pfl(labels, rule, share, samples, seed):
    """The training samples of each user."""
    draws = np.random.RandomState(seed)
    order = draws.permutation(len(labels))
    if rule == "iid":
        return [order[first:first + samples].tolist() for first in range(0, len(labels), samples)]
    classes = int(labels.max()) + 1
    left = [np.flatnonzero(labels[order] == label).tolist() for label in range(classes)]
    users = []
    while True:
        chances = draws.dirichlet(np.full(classes, share))
        if samples > sum(map(len, left)):
            return users
        users.append(order[pfl_user(draws, left, chances, samples)].tolist())


def by_blocks(labels, classes, clients, labels_per_client, draws):
    """PFLlib's pathological clients: a label's owners are the first clients that still lack labels."""
    owned, lacking = [[] for _ in range(clients)], [labels_per_client] * clients
    smallest = int(min(SMALLEST_PFLIB, len(labels) / clients / 2))
    for label in range(classes):
        owners = [client for client in range(clients) if lacking[client] > 0]
        owners = owners[:int(np.ceil(clients / classes * labels_per_client))]
        if not owners:
            break
        samples = np.flatnonzero(labels == label)
        mean = len(samples) / len(owners)
        low = max(mean / 10, smallest / classes)
        if int(low) >= int(mean):
            raise PartitionError(f"too few samples of label {label} for {clients} clients")
        counts = draws.randint(int(low), int(mean), len(owners) - 1).tolist()
        ends = np.cumsum([0, *counts, len(samples) - sum(counts)])
        for client, first, end in zip(owners, ends, ends[1:]):
            owned[client] += samples[first:end].tolist()
            lacking[client] -= 1
    if not all(owned):
        raise PartitionError(f"{classes} labels are too few for {clients} clients with {labels_per_client} each")
    return owned


def pflib(labels, rule, share, clients, labels_per_client, seed):
    """(training samples, test samples) of each client."""
    draws = np.random.RandomState(seed)
    classes = int(labels.max()) + 1
    if rule == "pat":
        owned = by_blocks(labels, classes, clients, labels_per_client, draws)
    else:
        smallest = int(min(SMALLEST_PFLIB, len(labels) / clients / 2))
        owned = by_dirichlet(labels, classes, clients, share, draws, smallest)
    train, test = [], []
    for mine in owned:
        order = np.asarray(mine)[draws.permutation(len(mine))].tolist()
        tested = len(mine) - int(0.75 * len(mine))
        train.append(order[tested:])
        test.append(order[:tested])
    return train, test


def write_partition(path, **lists):
    """A file for data.partition_file, whole or not at all: the samples of every client, to train and to test on."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _write(draft, lists)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _write(path, lists):
    with h5py.File(path, "w") as file:
        for name, of_clients in lists.items():
            file[f"{name}_offsets"] = np.cumsum([0] + [len(mine) for mine in of_clients]).astype(np.int64)
            file[f"{name}_samples"] = np.concatenate([np.asarray(mine, np.int64) for mine in of_clients])


# program: (data set, seed, rules)
PROGRAMS = {"pfedme": ("mnist", 1, ()), "fedmud": ("cifar100", 1234, ("iid", "labeldir", "labelcnt")),
            "pfl": ("cifar10", 0, ("iid", "dirichlet")), "pflib": ("fmnist", 1, ("dir", "pat"))}
# option: (its default, rules that it is of)
OF_RULES = {"share": (0.1, ("labeldir", "labelcnt", "dirichlet", "dir")), "labels": (2, ("pat",)),
            "ties": ("scalar", ("labelcnt",))}
CLIENTS = {"pfedme": 20, "fedmud": 100, "pflib": 20}


def parser_of_programs():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = parser.add_subparsers(dest="program", required=True)
    for program, (dataset, seed, rules) in PROGRAMS.items():
        one = programs.add_parser(program)
        one.add_argument("--data", required=True, metavar="DIR", help="folder of the data sets, as data.dir")
        one.add_argument("--output", required=True, type=Path, metavar="PARTS.h5", help="a new file")
        one.add_argument("--dataset", choices=DATASETS, default=dataset, help=f"[{dataset}]")
        one.add_argument("--seed", type=int, default=seed, help=f"of all generators [{seed}]")
        if rules:
            one.add_argument("--rule", choices=rules, required=True)
            one.add_argument("--share", type=float, help="of the rule [0.1]")
        if program in CLIENTS:
            one.add_argument("--clients", type=int, default=CLIENTS[program], help=f"[{CLIENTS[program]}]")
        if program in ("pfedme", "pflib"):
            one.add_argument("--labels", type=int, help="labels of a client [2]")
        if program == "fedmud":
            one.add_argument("--ties", choices=ORDERS, help="of labelcnt: equal values [scalar]")
        if program == "pfl":
            one.add_argument("--samples", type=int, default=50, help="of a user [50]")
    return parser


def complete(options):
    """Sets the defaults of what is of some rules alone; PartitionError where it is given and not of the rule."""
    rule = getattr(options, "rule", None)
    for name, (default, rules) in OF_RULES.items():
        if rule and rule not in rules and getattr(options, name, None) is not None:
            raise PartitionError(f"--{name} says nothing of --rule {rule}; leave it out")
        if getattr(options, name, default) is None:
            setattr(options, name, default)


def check(options, classes):
    """PartitionError where a number can mean nothing."""
    numbers = {name: getattr(options, name) for name in ("clients", "samples", "labels", "share") if hasattr(options, name)}
    for name, value in numbers.items():
        if not value > 0:
            raise PartitionError(f"--{name} {value}: must be above 0")
    if numbers.get("labels", 1) > classes:
        raise PartitionError(f"--labels {options.labels}: there are {classes}")
    if not 0 <= options.seed < 2**32:
        raise PartitionError(f"--seed {options.seed}: must be from 0 to {2**32 - 1}")


def partition_of(options, train, test):
    """(training samples, test samples) of each client, from the labels of the data set."""
    everything = np.concatenate([train, test])
    check(options, int(everything.max()) + 1)
    if options.program == "pfedme":
        return pfedme(everything, options.clients, options.labels, options.seed)
    if options.program == "pflib":
        return pflib(everything, options.rule, options.share, options.clients, options.labels, options.seed)
    if options.program == "pfl":
        parts = pfl(train, options.rule, options.share, options.samples, options.seed)
    else:
        parts = fedmud(train, options.rule, options.share, options.clients, options.seed, options.ties)
    return parts, [[] for _ in parts]


def main(arguments):
    options = parser_of_programs().parse_args(arguments)
    try:
        complete(options)
        if options.output.exists():
            raise PartitionError(f"{options.output} exists; name a new file")
        parts, tests = partition_of(options, *labels_of(options.dataset, options.data))
        write_partition(options.output, train=parts, test=tests)
    except (PartitionError, OSError) as error:
        print(f"authors_partition: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {len(parts)} clients, {sum(map(len, parts))} samples to train on, "
          f"{sum(map(len, tests))} to test on")
    return 0
