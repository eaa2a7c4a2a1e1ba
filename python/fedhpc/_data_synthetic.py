"""Synthetic data sets in the laws, and in the order of draws, of the programs that published them."""

import math
import numbers
import random

import numpy as np

from ._data_file import OneClient, Writer
from ._numbers import is_count
from .errors import ConfigError

# What the published programs have unless told otherwise.
RULES = {"fedprox": {"clients": 30, "classes": 10, "train_fraction": 0.9, "seed": 0, "split_seed": 0,
                     "alpha": 1.0, "beta": 1.0},
         "leaf": {"clients": 1000, "classes": 5, "train_fraction": 0.6, "seed": 931231, "split_seed": 0}}


def _covariance(features):
    # Of numbers one by one: numpy's power of an array differs in the last bit.
    return np.diag([place ** -1.2 for place in range(1, features + 1)])


def fedprox(draws, clients, classes, features, alpha, beta):
    """Yields (samples, labels) of the clients of Synthetic(alpha, beta), Li et al. (2020), section 5.1.

    u_k ~ N(0, alpha), B_k ~ N(0, beta), v_k ~ N(B_k, 1); W_k, b_k ~ N(u_k, 1); x ~ N(v_k, diag(j^-1.2)),
    y = argmax(x W_k + b_k). alpha and beta are deviations, as in numpy's normal.
    u_k moves all scores of a sample alike, so that alpha changes no label.
    """
    counts = draws.lognormal(4, 2, clients).astype(int) + 50
    model, mean = draws.normal(0, alpha, clients), draws.normal(0, beta, clients)
    centres = np.array([draws.normal(one, 1, features) for one in mean])
    for count, of_model, centre in zip(counts, model, centres):
        weight, bias = draws.normal(of_model, 1, (features, classes)), draws.normal(of_model, 1, classes)
        x = draws.multivariate_normal(centre, _covariance(features), count)
        yield x, (x @ weight + bias).argmax(1)


def leaf(draws, clients, classes, features, seed):
    """Yields (samples, labels) of the tasks of LEAF's generator with one cluster, as its script has it.

    B ~ N(0, 1), v_k ~ N(B, 1), x ~ N(v_k, diag(j^-1.2)); u_k ~ N(mu, 0.1), W_k = Q u_k, and
    y = argmax([1, x] W_k + N(0, 0.1)). Q [features + 1, classes, 1] and mu are the same for all.
    """
    counts = np.minimum(draws.lognormal(3, 2, clients).astype(int) + 5, 1000)
    draws.seed(seed)  # the script does, behind the numbers of samples
    shared = draws.normal(0, 1, (features + 1, classes, 1))
    cluster = draws.normal(draws.normal(0, 1), 1, 1)
    for count in counts:
        draws.choice(range(1), replace=True, p=[1.0])  # the cluster
        centre = draws.normal(draws.normal(0, 1), 1, features)
        x = draws.multivariate_normal(centre, _covariance(features), count)
        weight = shared @ draws.normal(cluster, 0.1, 1)
        scores = np.column_stack([np.ones(count), x]) @ weight + draws.normal(0, 0.1, (count, classes))
        yield x, scores.argmax(1)


def _tested(rule, count, fraction, shuffles):
    """(places of training samples, of test samples) of a client."""
    places = list(range(count))
    if rule == "fedprox":
        shuffles.shuffle(places)
        return places[:int(fraction * count)], places[int(fraction * count):]
    chosen = set(shuffles.sample(places, max(1, int(fraction * count))))
    return sorted(chosen), [place for place in places if place not in chosen]


def write_synthetic(path, rule, given):
    if rule not in RULES:
        raise ConfigError(f"rule cannot be {rule!r}; allowed: {', '.join(map(repr, RULES))}")
    if idle := [name for name, value in given.items() if value is not None and name not in (*RULES[rule], "features")]:
        raise ConfigError(f"{idle[0]} is none of rule {rule!r}; leave it out")
    options = {**RULES[rule], **{name: value for name, value in given.items() if value is not None}}
    sizes = (options["clients"], options["classes"], options["features"])
    for name, value, least in zip(("clients", "classes", "features"), sizes, (1, 2, 1)):
        if not is_count(value, least):
            raise ConfigError(f"{name} cannot be {value!r}; give a whole number of at least {least}")
    if not 0 < options["train_fraction"] < 1:
        raise ConfigError(f"train_fraction cannot be {options['train_fraction']!r}; give a number between 0 and 1")
    for name in ("alpha", "beta"):
        value = options.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < math.inf:
            raise ConfigError(f"{name} cannot be {value!r}; give a number of at least 0")
    for name in ("seed", "split_seed"):
        if not is_count(options[name], 0):
            raise ConfigError(f"{name} cannot be {options[name]!r}; give a whole number of at least 0")
    if options["seed"] >= 2**32:  # numpy's generator takes no more
        raise ConfigError(f"seed cannot be {options['seed']!r}; give a whole number of 0 to {2**32 - 1}")
    seed, split_seed = int(options["seed"]), int(options["split_seed"])  # Python's generator takes no numpy.int64
    draws, shuffles = np.random.RandomState(seed), random.Random(split_seed)
    made = (fedprox(draws, *sizes, options["alpha"], options["beta"]) if rule == "fedprox"
            else leaf(draws, *sizes, seed))
    waiting = []
    with Writer(path, classes=options["classes"]) as writer:
        for client, (x, y) in enumerate(made):
            train, test = _tested(rule, len(y), options["train_fraction"], shuffles)
            writer.append("train", x[train], y[train], OneClient(client))
            waiting.append((client, x[test], y[test]))
        for client, x, y in waiting:
            writer.append("test", x, y, OneClient(client))
        writer.finish()
