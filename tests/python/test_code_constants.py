"""The checksum of the constants of a method: which values it sees, and what of those that change in place."""

import argparse
import collections
import dataclasses
import gc
import hashlib
import math
import types
import unittest
import weakref

import numpy as np
from python_support import TINY, InFolder

import fedhpc
from fedhpc._code import digest, run_ended


@dataclasses.dataclass
class Inner:
    mu: float


@dataclasses.dataclass
class Outer:
    inner: Inner


@dataclasses.dataclass
class Slots:
    __slots__ = ("mu",)
    mu: float


class Holder:
    def __init__(self, held):
        self.held, self.itself = held, self


KINDS = {
    "a dictionary": lambda mu: {"mu": mu}, "a namespace": lambda mu: types.SimpleNamespace(mu=mu),
    "parsed arguments": lambda mu: argparse.Namespace(mu=mu), "a range": lambda mu: range(int(mu * 10)),
    "a deque": lambda mu: collections.deque([mu]), "a dataclass in another": lambda mu: Outer(Inner(mu)),
    "a dictionary of dataclasses": lambda mu: {"a": Inner(mu)}, "an object holding one": lambda mu: Holder(Inner(mu)),
    "a list of dictionaries": lambda mu: [{"mu": mu}], "slots": Slots, "a set of objects": lambda mu: {Holder(mu)},
    "a read-only view": lambda mu: types.MappingProxyType({"mu": mu}),
    "a chain": lambda mu: collections.ChainMap({"mu": mu}),
    "an object holding code": lambda mu: Holder((lambda x: x) if mu < 1 else (lambda x: x + 1)),
}


def of(constant):
    space = {"__name__": "__main__", "used": constant}
    exec("class Mine:\n    def round(self, round):\n        return used\n", space)
    return digest(space["Mine"])


class Values(unittest.TestCase):
    def test_that_differ_are_told_apart(self):
        for kind, made in KINDS.items():
            with self.subTest(kind):
                self.assertEqual(of(made(0.1)), of(made(0.1)))
                self.assertNotEqual(of(made(0.1)), of(made(1.0)))

    def test_of_known_methods_keep_their_checksum(self):
        """Result files have it."""
        for value, text in ((0.1, "0.1"), ({"mu": [1, "a"]}, "('mu'=(1, 'a'))"), (math.sqrt, "None")):
            self.assertEqual(of(value)[16:], hashlib.sha256(f"used: {text}".encode()).hexdigest()[:16])

    def test_that_hold_each_other_end(self):
        nodes = [Holder(None) for _ in range(60)]
        for node in nodes:
            node.held = nodes
        self.assertRegex(of(nodes), "^[0-9a-f]{32}$")


CONFIG, LOG = {"mu": 0.1}, []


@fedhpc.algorithm("of_constants", "federated averaging that writes a list")
class Logging(fedhpc.Algorithm):
    def initialise(self, setup):
        self.model = setup.initial_model()

    def round(self, round):
        LOG.append(CONFIG["mu"])
        for _ in round.blocks():
            pass

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)


class InPlace(InFolder):
    def test_what_a_run_changes_counts_as_it_was(self):
        class Mine:
            log, calls = [], {"n": 0}

            def round(self, x):
                self.log.append(x)
        first = digest(Mine)
        Mine.log.append(1)
        Mine.calls["n"] += 1
        run_ended()
        self.assertEqual(digest(Mine), first)
        Mine.calls["n"] = 7
        self.assertNotEqual(digest(Mine), first)

    def test_of_runs_one_after_the_other(self):
        self.addCleanup(CONFIG.update, mu=0.1)

        def run(seed):
            done = fedhpc.run({**TINY, "run.rounds": 1, "algorithm.name": "of_constants", "run.seed": seed,
                               "run.output": f"{seed}.h5"}, progress=False)
            return done.attributes["code_digest"]
        first = run(1)
        self.assertEqual(run(2), first)
        self.assertEqual(len(LOG), 2)
        CONFIG["mu"] = 1.0
        other = run(3)
        self.assertNotEqual(other, first)
        self.assertEqual(len(fedhpc.load(["1.h5", "2.h5", "3.h5"]).table()), 2)

    def test_of_values_that_nobody_else_holds_any_more(self):
        class Array(np.ndarray):
            pass
        array = np.zeros(10).view(Array)
        known = weakref.ref(array)
        of(array)
        run_ended()
        del array
        gc.collect()
        self.assertIsNone(known())


if __name__ == "__main__":
    unittest.main()
