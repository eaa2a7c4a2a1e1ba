"""Methods in Python: the bits of those in C++, their verbs, and what happens to those who use them wrongly."""

import copy
import gc
import importlib.util
import itertools
import json
import operator
import os
import pydoc
import re
import signal
import sys
import threading
import time
import unittest
import unittest.mock
import warnings
from pathlib import Path

import numpy as np

import fedhpc
import fedhpc.testing
from python_support import SOURCE, TINY, InFolder, numbers, python, same_numbers

FOLDERS = [os.fspath(SOURCE / "examples"), os.fspath(SOURCE / "tests" / "python" / "methods")]
sys.path[:0] = FOLDERS
import ditto  # noqa: E402, F401
import fedavg  # noqa: E402, F401
import pfedsop_start  # noqa: E402, F401
import scaffold  # noqa: E402, F401
import server_momentum  # noqa: E402, F401
import sfedhp  # noqa: E402, F401
import tdpfed  # noqa: E402, F401

SPARSE = {"algorithm.gamma1": 0.01, "algorithm.gamma2": 0.01}
# TDPFed's steps on these data stay away from gradients that are rounding alone, which Adam would divide by 1e-8.
STABLE = {"algorithm.inner_steps": 2, "algorithm.factor_steps": 3, "algorithm.personal_lr": 0.05, "train.lr": 0.01}
EDGES = {"topology.edges": 3, "algorithm.edge_rounds": 2, "train.local_steps": 1, "train.local_epochs": None,
         "algorithm.lambda1": 2, "algorithm.lambda2": 3}
OWN = {"run.save": ["init", "personal"]}
BATCH_NORM = {"data.name": "glyphs", "data.samples_per_client": 12, "model.name": "resnet9", "model.hidden": None,
              "model.width": 0.25, "run.rounds": 1, "train.batch_size": 4}
# method -> its settings, and what the method in C++ gets beside them
SETTINGS = {
    "fedavg": [({}, {}),
               ({"algorithm.codec": "fp16", "topology.participation": 0.6, "run.dtype": "float64"}, {}),
               ({"train.momentum": 0.9, "algorithm.weighting": "uniform", "train.block": 2}, {}),
               ({"train.stragglers": 0.6, "train.local_epochs": 3, "train.block": 3}, {})],
    "ditto": [(OWN, {}), ({**OWN, "algorithm.mu": 0, "topology.participation": 0.5, "run.dtype": "float64"}, {}),
              ({**OWN, "algorithm.codec": "top_k", "algorithm.error_feedback": "ef14",
                "algorithm.downlink_codec": "drive", "topology.participation": 0.5, "run.rounds": 4}, {})],
    "tdpfed": [({**OWN, "model.rank": 3}, {}),
               ({**OWN, "model.rank": 3, "algorithm.aggregate": "act", "algorithm.beta": 0.7}, {}),
               ({**OWN, "model.rank": 3, "algorithm.broadcast": "tensor", "algorithm.lambda": 5}, {}),
               ({**OWN, "model.rank": 3, "algorithm.factor_solver": "fit", "train.lr": None}, {})],
    "sfedhp": [({**OWN, **EDGES}, {}),
               ({**OWN, **EDGES, **SPARSE}, {"algorithm.gamma_schedule": "constant"}),
               ({**OWN, **EDGES, "algorithm.accuracy": 0.05, "algorithm.restart": "round"}, {})],
}


# The series of sfedhp are not in its Python, and a norm of tdpfed is summed in another order.
NOT_THE_SAME = ("factor_norm", "density_", "paper_bits_up", "smoothed_l1", "gamma")


def run(output, name, **keys):
    return fedhpc.run({**TINY, "algorithm.name": name, "run.output": output, "run.checkpoint_every": 0, **keys},
                      progress=False, force=True)


def method(verbs=None, **attributes):
    """Registers FedAvg with some verbs in the place of its own, as algorithm.name = changed."""
    changed = type("Changed", (fedavg.FedAvg,), {**attributes, **(verbs or {})})
    fedhpc.algorithm("changed", "FedAvg with changes")(changed)
    return changed


class SameBits(InFolder):
    def assert_same(self, one, other):
        same_numbers(self, one, other, but=NOT_THE_SAME)

    def test_as_in_cpp(self):
        for name, settings in SETTINGS.items():
            for keys, beside in settings:
                with self.subTest(name, **keys):
                    run("cpp.h5", name, **keys, **beside)
                    run("python.h5", f"{name}_py", **keys)
                    self.assert_same("python.h5", "cpp.h5")

    def test_pfedsop_starts_from_what_it_is_told(self):
        keys = {**OWN, "run.rounds": 4, "run.dtype": "float64", "topology.participation": 0.6,
                "algorithm.personal_lr": 0.5}
        run("cpp.h5", "pfedsop", **keys)
        models = {"cpp": self.personal("cpp.h5")}
        for start in ("own", "mixture", "server"):
            run(f"{start}.h5", "pfedsop_start", **keys, **{"algorithm.start": start})
            models[start] = self.personal(f"{start}.h5")
        self.assertLess(np.abs(models["own"] - models["cpp"]).max(), 1e-12)
        for start, other in (("own", "mixture"), ("own", "server"), ("mixture", "server")):
            self.assertGreater(np.abs(models[start] - models[other]).max(), 1e-3)

    def test_scaffold_has_links_for_each_payload(self):
        for keys in ({}, {"algorithm.error_feedback": "ef21"}, {"algorithm.downlink_codec": "drive"}):
            self.compare_scaffold(("model/global", "rounds/bytes_up_client_cloud"), {"algorithm.codec": "rand_k", **keys})

    def test_scaffold_where_clients_do_not_train(self):
        few = {"data.partition": "dirichlet", "data.min_samples": 0, "data.clients": 30, "topology.participation": 0.5}
        samples = self.compare_scaffold(("model/global", "rounds/bytes_up_client_cloud"),
                                        {**few, "data.alpha": 0.01, "algorithm.codec": "rand_k"})
        self.assertTrue((samples == 0).any())
        samples = self.compare_scaffold(("model/global",), {
            **few, "data.alpha": 0.05, "data.name": "glyphs", "data.samples_per_client": 30, "model.name": "cnn2",
            "model.norm": "batch", "model.hidden": None, "model.width": 0.25, "run.rounds": 4})
        self.assertTrue((samples == 1).any())  # a batch that batch norm leaves out

    def compare_scaffold(self, compared, keys):
        """Compares numbers whose names begin so with those in C++; returns the clients' training samples."""
        results = run("cpp.h5", "scaffold", **{"run.dtype": "float64", **keys})
        run("python.h5", "scaffold_py", **{"run.dtype": "float64", **keys})
        of_python, of_cpp = numbers("python.h5"), numbers("cpp.h5")
        for name in of_cpp:
            if name.startswith(compared):
                np.testing.assert_allclose(of_python[name], of_cpp[name], rtol=0, atol=1e-12, err_msg=name)
        return results.clients["train_samples"]

    def personal(self, path):
        """The clients' own models in one row."""
        return np.concatenate([values.ravel() for name, values in sorted(numbers(path).items())
                               if name.startswith("model/personal")])

    def test_as_in_cpp_with_batch_norm(self):
        for buffers in ("average", "local"):
            with self.subTest(buffers):
                run("cpp.h5", "ditto", **OWN, **BATCH_NORM, **{"train.buffers": buffers})
                run("python.h5", "ditto_py", **OWN, **BATCH_NORM, **{"train.buffers": buffers})
                self.assert_same("python.h5", "cpp.h5")

    def test_a_term_of_what_the_head_sees(self):
        """MOON, its contrastive term in numpy."""
        def unit(rows):
            return rows / np.linalg.norm(rows, axis=1, keepdims=True)

        def round(self, round):
            update = round.mean()
            for block in round.blocks():
                received = block.download(self.model)
                previous = self.previous.read(block.clients, received)
                local = received.clone()
                self.sgd.reset(local)

                def take(step):
                    others = step.embedding(received), step.embedding(previous)

                    def term(c, z, gradient):
                        near, far = (unit(other[c, :len(z)]) for other in others)
                        apart = far - near
                        ahead = (unit(z) * apart).sum(axis=1, keepdims=True)
                        slope = 3 / (0.4 * len(z) * (1 + np.exp(-ahead / 0.4))) / np.linalg.norm(z, axis=1, keepdims=True)
                        gradient += slope * (apart - ahead * unit(z))

                    step.descend(local, self.sgd, term=term)

                block.each_step(take)
                block.keep(self.previous, local)
                update.add(block.weights(self.weighting), block.upload(local - received, self.codec))
            self.model += update.reduce()

        def initialise(self, setup):
            fedavg.FedAvg.initialise(self, setup)
            self.previous = setup.store.rows("previous", self.model)
            self.sgd = setup.optimizer(self.model)

        method({"round": round, "initialise": initialise})
        keys = {"run.dtype": "float64", "run.rounds": 3}
        run("python.h5", "changed", **keys)
        run("cpp.h5", "moon", **keys, **{"algorithm.mu": 3, "algorithm.temperature": 0.4})
        run("fedavg.h5", "fedavg", **keys)
        of_python, of_cpp, of_fedavg = (numbers(f"{name}.h5") for name in ("python", "cpp", "fedavg"))
        moved = 0
        for name in of_cpp:
            if name.startswith("model/global"):
                np.testing.assert_allclose(of_python[name], of_cpp[name], rtol=0, atol=1e-12)
                moved = max(moved, abs(of_cpp[name] - of_fedavg[name]).max())
        self.assertGreater(moved, 1e-4)

    def test_on_any_number_of_ranks(self):
        script = (f"import sys; sys.path[:0] = {FOLDERS!r}\n"
                  "import json, fedhpc, ditto, fedavg, sfedhp, tdpfed\n"
                  "for name, keys in json.loads(sys.argv[1]).items():\n"
                  "    fedhpc.run(keys, progress=False, force=True)\n")
        for ranks in (2, 4):
            todo = {name: {**TINY, "algorithm.name": f"{name}_py", "run.output": f"{name}.{ranks}.h5", **settings[0][0]}
                    for name, settings in SETTINGS.items()}
            done = python(script, json.dumps(todo), ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name, settings in SETTINGS.items():
                with self.subTest(name, ranks=ranks):
                    run("cpp.h5", name, **settings[0][0], **settings[0][1])
                    self.assert_same(f"{name}.{ranks}.h5", "cpp.h5")

    def test_on_ranks_of_their_own(self):
        run("here.h5", "fedavg_py")
        fedhpc.run({**TINY, "algorithm.name": "fedavg_py", "run.output": "there.h5"}, ranks=2, progress=False)
        self.assert_same("there.h5", "here.h5")

    def test_resumed(self):
        for name, keys in (("scaffold_py", {}), ("sfedhp_py", EDGES), ("fedavgm_py", {"train.lr": 0.02})):
            with self.subTest(name):
                every = {"run.checkpoint_every": 1, "topology.participation": 0.6}
                run("straight.h5", name, **{**keys, **every, "run.rounds": 4})
                run("part.h5", name, **{**keys, **every, "run.rounds": 2})
                fedhpc.resume("part.h5", progress=False, **{"run.rounds": 4})
                self.assert_same("part.h5", "straight.h5")

    def test_draws_of_a_key(self):
        """The line of docs/how-to/python.md, at clients and at the server."""
        page = (SOURCE / "docs/how-to/python.md").read_text(encoding="utf-8")
        line = next(block for block in re.findall("```python\n(.*?)```", page, re.DOTALL) if "np.random.Philox" in block)
        Path("noisy.py").write_text(line + """
import fedhpc
from fedavg import FedAvg

@fedhpc.algorithm("noisy", "FedAvg with noise of clients and of the server")
class Noisy(FedAvg):
    can_leave_rounds = False

    def initialise(self, setup):
        super().initialise(setup)
        self.seed = setup.seed

    def round(self, round):
        update = round.mean()
        for block in round.blocks():
            start = block.download(self.model)
            noise = [generator(self.seed, 1, client, block.round).normal(size=start.shape[1]) for client in block.clients]
            change = block.train(start) - start
            update.add(block.weights(), block.upload(change + change.like(0.01 * np.stack(noise))))
        noise = generator(self.seed, 2, 0, round.number).normal(size=self.model.shape)
        self.model += update.reduce() + self.model.like(0.01 * noise)
""", encoding="utf-8")
        sys.path.insert(0, os.fspath(self.folder))
        self.addCleanup(sys.path.remove, os.fspath(self.folder))
        import noisy  # noqa: F401
        script = ("import sys, json; sys.path[:0] = json.loads(sys.argv[1])\nimport fedhpc, noisy\n"
                  "fedhpc.run(json.loads(sys.argv[2]), progress=False)\n")
        keys = {**TINY, "algorithm.name": "noisy", "topology.participation": 0.6, "train.block": 1}
        run("one.h5", "noisy", **keys)
        done = python(script, json.dumps([os.fspath(self.folder), *FOLDERS]), json.dumps(
            {**keys, "train.block": 3, "run.output": "two.h5"}), ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_same("two.h5", "one.h5")
        run("still.h5", "fedavg_py", **{**keys, "algorithm.name": "fedavg_py"})
        self.assertNotEqual(numbers("still.h5")["rounds/train_loss"].tolist(), numbers("one.h5")["rounds/train_loss"].tolist())
        run("part.h5", "noisy", **{**keys, "run.rounds": 2, "run.checkpoint_every": 1})
        fedhpc.resume("part.h5", progress=False, **{"run.rounds": 3})
        self.assert_same("part.h5", "one.h5")

    def test_left_between_blocks(self):
        """A signal ends a round after its second block; what resume goes on with has the bits of a run straight through."""
        def round(method, round):
            update = round.mean()
            for number, block in enumerate(round.blocks()):
                start = block.download(method.model)
                update.add(block.weights(), block.upload(block.train(start) - start))
                if stops and round.number == 2 and number == 1:
                    stops.pop()
                    os.kill(os.getpid(), signal.SIGINT)
            method.model += update.reduce()

        for leaves in (True, False):
            with self.subTest(leaves=leaves):
                stops = []
                method({"round": round}, can_leave_rounds=leaves)
                keys = {"train.block": 1, "run.grace_seconds": 0, "run.rounds": 4}
                run("straight.h5", "changed", **keys)
                stops = [True]
                with self.assertRaises(fedhpc.errors.Interrupted):
                    run("part.h5", "changed", **keys)
                self.assertEqual(len(fedhpc.Results("part.h5").rounds), 1 if leaves else 2)
                fedhpc.resume("part.h5", progress=False)
                self.assert_same("part.h5", "straight.h5")
        method()


class LeftOut(InFolder):
    """State that a method changes in a round and leaves out of visit_state()."""

    KEYS = {"run.checkpoint_every": 1, "run.rounds": 2}

    def warned(self, verbs, resume=False):
        """What a run, or one that goes on, warns of, as text."""
        self.addCleanup(method)
        method(verbs)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run("run.h5", "changed", **self.KEYS)
            if resume:
                caught.clear()
                fedhpc.resume("run.h5", progress=False, **{"run.rounds": 3})
        return [str(one.message) for one in caught]

    def momentum(self, visits=()):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.velocity, method.constant = method.model.zeros(), np.arange(3.0)
            method.counts, method.pair = {"rounds": 0}, [method.model.zeros(), 1.0]

        def round(method, round):
            before = method.model.clone()
            fedavg.FedAvg.round(method, round)
            method.velocity += method.model - before
            method.counts["rounds"] += 1
            method.pair[0] += method.velocity
            method.assigned = np.float32(round.number)

        def visit_state(method, state):
            fedavg.FedAvg.visit_state(method, state)
            if "velocity" in visits:
                method.velocity = state.rows("velocity", method.velocity)
            if "numbers" in visits:  # packed together
                packed = np.array([method.counts["rounds"], getattr(method, "assigned", 0)], np.float64)
                packed = state.array("numbers", packed)
                method.counts, method.assigned = {"rounds": int(packed[0])}, packed[1]
            if "pair" in visits:
                method.pair = [state.rows("pair", method.pair[0]), 1.0]

        return {"initialise": initialise, "round": round, "visit_state": visit_state}

    def test_is_said_once_with_its_names(self):
        for resume in (False, True):
            for visits, names in (((), "assigned, counts, pair, velocity"), (("velocity", "pair"), "assigned, counts"),
                                  (("numbers", "pair"), "velocity")):
                with self.subTest(visits=visits, resume=resume):
                    said = self.warned(self.momentum(visits), resume)
                    self.assertEqual(len(said), 1, said)
                    self.assertRegex(said[0], f"^method changed: rounds have changed {names}, which visit_state.. does "
                                              "not read .* not be there after a resume; add .* to visit_state$")
            self.assertEqual(self.warned(self.momentum(("velocity", "numbers", "pair")), resume), [])

    def test_a_state_that_comes_later_is_refused(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.velocity = None

        def round(method, round):
            fedavg.FedAvg.round(method, round)
            method.velocity = method.model.zeros()

        def visit_state(method, state):
            fedavg.FedAvg.visit_state(method, state)
            if method.velocity is not None:
                method.velocity = state.rows("velocity", method.velocity)

        method({"initialise": initialise, "round": round, "visit_state": visit_state})
        with self.assertRaisesRegex(fedhpc.Error, "'velocity': it is visited after a round and not before it; give it"):
            run("run.h5", "changed", **{"run.checkpoint_every": 1})
        for name in ("clients", "partial"):
            method({"visit_state": lambda method, state, name=name: state.rows(name, method.model)})
            with self.assertRaisesRegex(ValueError, f"'{name}' is a name of fedhpc's own"):
                run("run.h5", "changed")

    def test_of_a_method_without_visit_state(self):
        verbs = {"visit_state": fedhpc.Algorithm.visit_state}
        self.assertRegex(self.warned(verbs)[0], "have changed model, which")
        with self.assertRaisesRegex(fedhpc.Error, "changed comes back from .* with another global model"):
            self.warned(verbs, resume=True)

    def test_of_draws_in_their_order(self):
        def round(method, round):
            method.draws.random()
            fedavg.FedAvg.round(method, round)

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.draws = np.random.default_rng(setup.seed)

        self.assertRegex(self.warned({"initialise": initialise, "round": round})[0], "have changed draws, which")

    def test_is_not_said_of_what_stays(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name, keys in (("scaffold_py", {}), ("sfedhp_py", EDGES), ("fedavgm_py", {}), ("tdpfed_py", {}),
                               ("ditto_py", {}), ("pfedsop_start", OWN)):
                run("run.h5", name, **{**keys, **self.KEYS})

    def test_is_said_of_what_is_not_taken_back(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.count, method.in_place = 0, np.zeros(2)

        def round(method, round):
            fedavg.FedAvg.round(method, round)
            method.count += 1
            method.in_place += 1

        def visit_state(method, state):
            state.rows("model", method.model)
            state.integer("count", method.count)
            method.in_place[:] = state.array("in_place", method.in_place)

        said = self.warned({"initialise": initialise, "round": round, "visit_state": visit_state})
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "^method changed: rounds have changed count, model, which visit_state.. reads without "
                                  "taking back what the state gives")

    def test_is_said_of_slots_and_of_lists_with_attributes(self):
        class Slots:
            __slots__ = ("count", "empty")

        class Window(list):
            width = 3

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.slots, method.window, method.kept = Slots(), Window(), Slots()
            method.slots.count, method.window.width, method.kept.count, method.own = 0, 3, 0, 0

        def round(method, round):
            fedavg.FedAvg.round(method, round)
            method.slots.count += 1
            method.window.append(round.number)
            method.kept.count += 1
            method.own += 1

        def visit_state(method, state):
            fedavg.FedAvg.visit_state(method, state)
            method.kept.count = state.integer("kept", method.kept.count)

        said = self.warned({"initialise": initialise, "round": round, "visit_state": visit_state,
                            "__slots__": ("own",)})
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "have changed own, slots, window, which visit_state.. does not read")

    def test_is_said_of_texts_iterators_and_helpers_that_nobody_visits(self):
        class Helper:
            def __init__(self):
                self.count = 0

            def visit_state(self, state, name):
                self.count = state.integer(name, self.count)

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.phase, method.once, method.still, method.gone = "warm", None, "a text", 1.0
            method.numbers, method.places, method.passing = itertools.count(), iter(range(100)), None
            method.visited, method.forgotten = Helper(), Helper()

        def round(method, round):
            fedavg.FedAvg.round(method, round)
            method.phase, method.once, method.gone, method.passing, method.later = "hot", "set", None, None, None
            next(method.numbers), next(method.places)
            method.visited.count += 1
            method.forgotten.count += 1

        def visit_state(method, state):
            fedavg.FedAvg.visit_state(method, state)
            method.visited.visit_state(state, "visited")

        said = self.warned({"initialise": initialise, "round": round, "visit_state": visit_state})
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "have changed forgotten, gone, numbers, once, phase, places, which visit_state")

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "this Python has no torch")
    def test_is_said_of_what_torch_holds(self):
        import torch

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.draws, method.weight = torch.Generator(), torch.zeros(3, requires_grad=True)
            method.net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2)))
            method.still = torch.nn.Linear(2, 2)
            method.adam = torch.optim.Adam([method.weight])
            method.bits = np.random.PCG64(1)
            method.short = torch.zeros(3, dtype=torch.bfloat16)

        def round(method, round):
            fedavg.FedAvg.round(method, round)
            method.short += 1
            torch.rand(1, generator=method.draws)
            method.bits.random_raw()
            method.still(torch.ones(1, 2)).sum().item()
            method.weight.sum().backward()
            method.adam.step()
            method.adam.zero_grad()
            with torch.no_grad():
                method.net[0][0].weight += 1

        said = self.warned({"initialise": initialise, "round": round})
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "have changed adam, bits, draws, net, short, weight, which visit_state.. does not read")

    def carried(self, visits):
        """Verbs with state in an optimizer, in an object and in bools; `visits`: visit_state() visits them."""
        class Helper:
            def __init__(self, size):
                self.mean = np.zeros(size)

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.adam, method.helper = fedhpc.Optimizer("adam", method.model, lr=0.01), Helper(method.model.shape)
            method.local = setup.optimizer(method.model)
            method.adam.reset(method.model, "head")
            method.moved = np.zeros(3, bool)

        def round(method, round):
            before = method.model.clone()
            fedavg.FedAvg.round(method, round)
            method.local.reset(before)
            method.local.step(before, method.model)
            method.adam.step(method.model, method.model - before)
            method.helper.mean += method.model.values
            method.model += method.model.like(0.01 * method.helper.mean)
            method.moved = method.moved | (np.arange(3) == round.number - 1)
            method.model *= 1 + method.moved.sum() / 100

        def visit_state(method, state):
            fedavg.FedAvg.visit_state(method, state)
            if visits:
                method.adam = state.optimizer("adam", method.adam)
                state.optimizer("local", method.local)  # is reset in rounds alone
                method.helper.mean = state.array("mean", method.helper.mean)
                method.moved = state.array("moved", method.moved)

        return {"initialise": initialise, "round": round, "visit_state": visit_state}

    def test_is_said_of_optimizers_and_objects(self):
        said = self.warned(self.carried(False))
        self.assertRegex(said[0], "have changed adam, helper, moved, which visit_state.. does not read")
        self.assertEqual(self.warned(self.carried(True), resume=True), [])

    def test_optimizers_objects_and_bools_are_resumed(self):
        self.addCleanup(method)
        method(self.carried(True))
        for kind in ("float32", "float64"):
            keys = {**self.KEYS, "run.dtype": kind}
            run("whole.h5", "changed", **{**keys, "run.rounds": 4})
            run("run.h5", "changed", **keys)
            fedhpc.resume("run.h5", progress=False, **{"run.rounds": 4})
            SameBits.assert_same(self, "run.h5", "whole.h5")

    def test_is_said_of_frozen_weights(self):
        def verbs(visits):
            def initialise(method, setup):
                method.model = setup.initial_factors()
                method.map = fedhpc.UpdateMap(setup.factor_map(), method.model)

            def round(method, round):
                update = round.mean(method.model)
                for block in round.blocks():
                    start = block.download(method.model)
                    update.add(block.weights(), block.upload(block.train(start, map=method.map) - start))
                method.model += update.reduce()
                method.map.merge(method.model)

            def evaluate(method, evaluation):
                evaluation.global_model(method.map.expand(method.model))

            def visit_state(method, state):
                method.model = state.rows("factors", method.model)
                if visits:
                    method.map.frozen.assign(state.rows("frozen", method.map.frozen))

            return {"initialise": initialise, "round": round, "evaluate": evaluate, "visit_state": visit_state,
                    "factorisations": ("cp",)}

        self.assertRegex(self.warned(verbs(False))[0], "have changed map, which visit_state.. does not read")
        self.assertEqual(self.warned(verbs(True)), [])
        run("whole.h5", "changed", **{**self.KEYS, "run.rounds": 4})
        fedhpc.resume("run.h5", progress=False, **{"run.rounds": 4})
        SameBits.assert_same(self, "run.h5", "whole.h5")

    def test_is_said_by_one_rank(self):
        text = ("import sys; sys.path[:0] = {0!r}\nimport fedavg, fedhpc\n"
                "@fedhpc.algorithm('forgets', 'FedAvg that forgets')\nclass Forgets(fedavg.FedAvg):\n"
                "    def visit_state(self, state): pass\n"
                "fedhpc.run({1!r}, progress=False, **{{'algorithm.name': 'forgets'}})\n")
        done = python(text.format(FOLDERS, {**TINY, **self.KEYS}), ranks=2)
        self.assertEqual((done.returncode, done.stderr.count("rounds have changed model")), (0, 1), done.stderr)


class Conformance(InFolder):
    def test_of_methods(self):
        for name, keys in (("fedavg_py", {}), ("ditto_py", {}), ("scaffold_py", {}), ("fedavgm_py", {}),
                           ("tdpfed_py", {"model.rank": 3, **STABLE}), ("sfedhp_py", {**EDGES, "topology.edges": 4}),
                           ("localonly", {})):
            with self.subTest(name):
                fedhpc.testing.check(name, skip=("planned_bytes",) if name == "localonly" else (), **keys)

    def test_finds_what_is_wrong(self):
        class Forgets(fedavg.FedAvg):
            """Its velocity is in no checkpoint, its clients look at their place in a block."""

            def initialise(self, setup):
                super().initialise(setup)
                self.rounds_done = 0

            def round(self, round):
                update = round.mean()
                self.rounds_done += 1
                for block in round.blocks():
                    start = block.download(self.model)
                    trained = block.train(start)
                    for c in range(len(block)):
                        trained[c].scale(1 + 0.1 * c + 0.01 * self.rounds_done)
                    update.add(block.weights(), block.upload(trained - start))
                    block.upload(trained)
                    if round.number > 1:
                        block.upload(trained)
                self.model += update.reduce()

        fedhpc.algorithm("forgets", "what a method does wrong")(Forgets)
        with self.assertRaises(AssertionError) as refused:
            fedhpc.testing.check("forgets")
        for title in ("block_width", "reproducible", "resumed", "zero_steps"):
            self.assertIn(f"\n{title}: ", str(refused.exception))

    def test_finds_that_evaluate_changes_the_state(self):
        class Sees(fedavg.FedAvg):
            def evaluate(self, evaluation):
                super().evaluate(evaluation)
                self.model *= 0.9

        fedhpc.algorithm("sees", "what evaluations change")(Sees)
        with self.assertRaisesRegex(AssertionError, r"evaluated: evaluate\(\) in every round changes bits of global/"):
            fedhpc.testing.check("sees", skip=("zero_steps",))

    def test_finds_what_needs_a_second_rank(self):
        def draws(method, round, changes):  # each rank has one of its own
            changes.scale(np.random.default_rng([fedhpc.rank(), round.number]).normal())

        def counts(method, round, changes):  # the clients of this rank alone
            changes.scale(1 / (1 + method.seen))

        def sums(method, round, changes):  # rounded in the order of arrival
            for c in range(len(changes)):
                before = method.total.clone()
                method.total += changes[c]
                changes[c] = method.total - before

        for spoil in (draws, counts, sums):
            def initialise(self, setup):
                fedavg.FedAvg.initialise(self, setup)
                self.seen, self.total = 0, self.model.zeros()

            def round(self, round, spoil=spoil):
                update, clients = round.mean(), 0
                for block in round.blocks():
                    start = block.download(self.model)
                    changes = block.train(start) - start
                    spoil(self, round, changes)
                    clients += len(block)
                    update.add(block.weights(), block.upload(changes))
                self.seen += clients
                self.model += update.reduce()

            with self.subTest(spoil.__name__):
                method({"initialise": initialise, "round": round})
                with self.assertRaisesRegex(AssertionError, r"\nranks: a second rank changes bits of global/\S+, by"):
                    self.check_but_one("ranks")

    def check_but_one(self, title):
        titles = {verb.__name__[1:] for verb in fedhpc.testing._CHECKS}
        fedhpc.testing.check("changed", skip=titles - {title})

    def test_says_that_there_is_no_launcher(self):
        method()
        with unittest.mock.patch.dict(os.environ, {"PATH": ""}), self.assertWarnsRegex(UserWarning, "no mpirun"):
            self.check_but_one("ranks")

    def test_finds_that_nothing_is_uploaded(self):
        def round(self, round):
            update = round.mean()
            for block in round.blocks():
                start = block.download(self.model)
                update.add(block.weights(), block.train(start) - start)
            self.model += update.reduce()

        method({"round": round})
        self.check_but_one("planned_bytes")
        method({"round": round}, averaged_uploads=1)
        with self.assertRaisesRegex(AssertionError, r"planned_bytes: averaged_uploads .* sends none"):
            self.check_but_one("planned_bytes")

    def test_on_ranks_of_a_launcher(self):
        done = python(f"import sys; sys.path[:0] = {FOLDERS!r}\nimport fedhpc.testing, fedavg\n"
                      "fedhpc.testing.check('fedavg_py')\nprint('held')", ranks=2, timeout=300)
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["held"] * 2), done.stderr)
        self.assertEqual(os.listdir(), ["script.py"])  # the folder that the ranks have shared is gone


class Verbs(InFolder):
    """Each test is carried out inside of a run."""

    def inside(self, of_block=None, **keys):
        def round(self, round):
            for block in round.blocks():
                of_block(self, block)

        method({"round": round})
        run("run.h5", "changed", **{"run.rounds": 1, **keys})

    def test_rows(self):
        def look(method, block):
            rows = block.download(method.model)
            count, columns = rows.shape
            self.assertEqual((count, columns), (len(block), method.model.layout.size))
            values = rows.values.copy()
            self.assertEqual((rows + rows).values.tobytes(), (values + values).tobytes())
            self.assertEqual((rows - method.model).values.tobytes(), (values - method.model.values).tobytes())
            self.assertEqual((0.3 * rows).values.tobytes(), (values * np.float32(0.3)).tobytes())
            self.assertEqual((np.float64(2) * rows).values.tobytes(), (values * 2).tobytes())
            self.assertEqual((np.int64(2) * rows).values.tobytes(), (values * 2).tobytes())
            self.assertEqual((rows * np.float32(2)).values.tobytes(), (values * 2).tobytes())
            for meet in (lambda: rows + values, lambda: values + rows, lambda: rows - values, lambda: values * rows,
                         lambda: rows * values, lambda: np.sqrt(rows),
                         lambda: operator.iadd(values, rows), lambda: operator.iadd(rows, values)):
                with self.assertRaisesRegex(TypeError, r"takes no Rows: rows.like\(array\) makes rows of an array"):
                    meet()
            for meet in (lambda: np.float64(1) + rows, lambda: np.float64(1) / rows):
                self.assertRaises(TypeError, meet)
            self.assertEqual((rows * rows).values.tobytes(), (values * values).tobytes())
            self.assertEqual((-rows).values.tobytes(), (-values).tobytes())
            self.assertEqual((rows / 2).values.tobytes(), (values / 2).tobytes())
            same = rows
            same += method.model
            self.assertIs(same, rows)
            rows -= method.model
            rows.values[:] = values  # no copy
            np.testing.assert_array_equal(np.asarray(rows), values)
            np.testing.assert_array_equal(np.from_dlpack(rows), values)
            self.assertEqual(rows.__dlpack_device__()[0], 1)
            weight = rows["fc1.weight"]
            self.assertEqual(weight.shape, (count, *rows.layout["fc1.weight"].shape))
            weight[0] = 7
            rows["fc1.bias"] += 1
            self.assertEqual(rows.values[0, rows.layout["fc1.weight"].offset], 7)
            self.assertEqual(set(rows.fields()), {field.name for field in rows.layout.fields})
            rows[1:3] *= 2
            rows[[0, 2]] = rows[[2, 0]]
            self.assertEqual(len(rows[[2, 0]]), 2)
            self.assertEqual(rows[-1].shape, (1, columns))
            self.assertEqual(sum(len(row) for row in rows), count)
            clone = copy.deepcopy(rows)
            clone.scale(0)
            self.assertTrue(rows.values.any() and not clone.values.any())
            np.testing.assert_allclose(rows.squared_lengths().values, (rows.values.astype(float) ** 2).sum(1))
            aa, ab = rows.inner_products(rows)
            self.assertEqual(aa.values.tolist(), ab.values.tolist())
            clone.add(rows, 1 / aa.sqrt())
            np.testing.assert_allclose(clone.squared_lengths().values, 1, rtol=1e-5)
            kept.append((rows, rows.values.copy(), block))

        kept = []
        self.inside(look, **{"data.clients": 7, "train.block": 7})
        gc.collect()
        rows, values, block = kept[0]
        np.testing.assert_array_equal(rows.values, values)  # rows of a round stay
        with self.assertRaisesRegex(RuntimeError, "this block is over: a block can be used only in its turn"):
            block.train(rows)

    def test_a_torch_of_its_own_reads_rows(self):
        try:
            import torch
        except ImportError:
            torch = None
        if not hasattr(torch, "from_dlpack"):
            self.skipTest("this Python has no torch; tools/setup.sh --torch fetches it")

        def look(method, block):
            rows = block.download(method.model)
            torch.from_dlpack(rows).mul_(2)
            np.testing.assert_array_equal(rows.values, 2 * np.repeat(method.model.values, len(block), 0))

        self.inside(look)

    def test_a_term_that_raises_is_over(self):
        def initialise(self, setup):
            fedavg.FedAvg.initialise(self, setup)
            self.sgd = setup.optimizer(self.model)

        def round(method, round):
            def term(*_):
                raise LookupError("no such term")

            for block in round.blocks():
                rows = block.download(method.model)
                method.sgd.reset(rows)

                def take(step):
                    with self.assertRaisesRegex(LookupError, "no such term"):
                        step.descend(rows, method.sgd, term=term)
                    self.assertTrue(np.isfinite(np.array(step.gradient(rows))).all())

                block.each_step(take)

        method({"round": round, "initialise": initialise})
        run("run.h5", "changed", **{"run.rounds": 1})

    def test_bytes_beside_a_download_leave_it_compressed(self):
        def round_with(beside):
            def round(method, round):
                update = round.mean()
                for block in round.blocks():
                    start = block.download(method.model, beside=beside)
                    update.add(block.weights(), block.upload(block.train(start) - start))
                method.model += update.reduce()
            return round

        def declare(self, options):
            options.averaging(payloads="changes")

        def initialise(self, setup):
            self.model = setup.initial_model()
            self.codec = setup.open_links(self.model)

        found = {}
        for beside in (0, 5):
            method({"round": round_with(beside), "declare": declare, "initialise": initialise})
            run(f"{beside}.h5", "changed", **{"algorithm.downlink_codec": "int4"})
            found[beside] = numbers(f"{beside}.h5")
        without, beside = found[0], found[5]
        np.testing.assert_array_equal(beside["rounds/train_loss"], without["rounds/train_loss"])
        more = beside["rounds/bytes_down_client_cloud"] - without["rounds/bytes_down_client_cloud"]
        np.testing.assert_array_equal(more, 5 * without["rounds/participants"])

    def test_arrays_of_rows_are_what_numpy_says(self):
        layout = fedhpc.Layout([("a", [3])])
        rows = fedhpc.Rows(layout, np.arange(6.0).reshape(2, 3))
        copied, shared = np.array(rows), np.asarray(rows)
        rows += rows
        self.assertEqual((copied[1, 2], shared[1, 2]), (5, 10))
        with self.assertRaisesRegex(TypeError, "and not of truth values"):
            rows[[True, False]]
        for place in (np.int64(1), np.uint8(1), np.int32(-1), np.array(1)):
            self.assertEqual(rows[place].values.tolist(), rows[1].values.tolist())
        for place in (True, np.True_, 1.0, np.float64(1)):
            with self.assertRaisesRegex(TypeError, "wants a list or an array of whole numbers"):
                rows[place]

    def test_numbers_of_rows_are_what_numpy_says(self):
        values = np.array([0.1, -3.0, 7.0, np.inf])
        given = fedhpc.RowNumbers(values)
        for made, wanted in ((given / 3, values / 3), (3 / given, 3 / values), (given - 0.7, values - 0.7),
                             (0.7 - given, 0.7 - values), (given + 2, values + 2), (2 * given, 2 * values)):
            self.assertEqual(made.values.tolist(), wanted.tolist())

    def test_shapes_are_said(self):
        def look(method, block):
            count, columns = len(block), method.model.layout.size
            start = block.download(method.model)
            for verb, wanted, call in (
                    ("block.upload", f"rows [{count}, {columns}], got [1, {columns}]",
                     lambda: block.upload(method.model)),
                    ("block.train", f"rows [{count}, {columns}] of the model, got [1, {columns}]",
                     lambda: block.train(method.model)),
                    ("block.train's centre", f"rows [{count}, {columns}], got [1, {columns}]",
                     lambda: block.train(start, mu=1, centre=method.model)),
                    ("block.download", "", lambda: block.download(start[:2])),
                    ("rows.like", f"an array [C, {columns}], got [2, 3]", lambda: start.like(np.zeros((2, 3)))),
                    ("rows + rows", f"rows [{count}, {columns}] or [1, {columns}], got [2, {columns}]",
                     lambda: start + start[:2]),
                    ("block.note", f"{count} numbers, got 1", lambda: block.note("mine", [1.0])),
                    ("block.note_received", f"{count} numbers, got 1", lambda: block.note_received("mine", [1.0])),
                    ("block.only", "some of the block's clients in its order, got 99", lambda: block.only([99]))):
                with self.assertRaises(ValueError, msg=verb) as refused:
                    call()
                self.assertIn(f"{verb} wants {wanted}", str(refused.exception))
            with self.assertRaises(TypeError):
                start + 1
            with self.assertRaisesRegex(TypeError, "rows.like wants an array of float32 or float64"):
                start.like(np.zeros((1, columns), np.int64))
            with self.assertRaisesRegex(KeyError, "no field 'fc1.weigth'; did you mean 'fc1.weight'"):
                start["fc1.weigth"]
            with self.assertRaisesRegex(ValueError, "there is no series 'other'.*setup.add_metric"):
                block.note("other", np.zeros(count))
            with self.assertRaisesRegex(ValueError, "a weighting is samples, batches or uniform"):
                block.weights("sample")
            with self.assertRaisesRegex(fedhpc.ConfigError, "cannot be 'fp17'"):
                block.upload(start, "fp17")
            with self.assertRaisesRegex(ValueError, "no columns 'haed'.* body .all but the head. and all"):
                block.train(start, columns="haed")
            for call in (lambda: start.scale(2, "body"), lambda: start.copy_columns(start, "body")):
                with self.assertRaisesRegex(ValueError, "no columns 'body' here; .* bias, uncompressed, and all"):
                    call()
            with self.assertRaisesRegex(TypeError, f"block.note wants .* got one of shape .{count}, 1."):
                block.note("mine", np.ones((count, 1)))

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            setup.add_metric("mine")

        def round(method, round):
            for block in round.blocks():
                look(method, block)

        method({"initialise": initialise, "round": round})
        run("run.h5", "changed", **{"run.rounds": 1, "train.block": 5})

    def refused(self, kind, sentence, call):
        with self.assertRaises(kind, msg=sentence) as refused:
            call()
        self.assertIn(sentence, str(refused.exception))

    def test_rows_of_another_layout_or_type_are_refused(self):
        wide_layout = fedhpc.Layout([("a", (3,))])

        def look(method, block):
            model, client = method.model, int(block.clients[0])
            start = block.download(model)
            count, columns = start.shape
            head = fedhpc.RowPart(model, "head")
            wide = fedhpc.Rows(wide_layout, np.zeros((count, 3)))
            double = fedhpc.Rows(model.layout, start.values, "float64")
            others = fedhpc.Rows(fedhpc.Layout([("a", (columns,))]), start.values)
            self.assertEqual(wide.values.dtype, np.float32)  # the run's
            of_models = {"block.train": block.train, "block.evaluate": block.evaluate,
                         "block.keep_buffers": block.keep_buffers,
                         "mean.add": lambda rows: method.mean.add(block.weights(), rows),
                         "block.embed": lambda rows: block.embed(rows[0], client)}
            for verb, call in of_models.items():
                n = 1 if verb == "block.embed" else count
                for rows, got in ((wide, f"[{n}, 3]"), (head.of(start), f"[{n}, {head.layout.size}]"),
                                  (others, f"[{n}, {columns}] of another layout")):
                    self.refused(ValueError, f"{verb} wants rows [{n}, {columns}] of the model, got {got}",
                                 lambda: call(rows))
            for verb, call in {**of_models, "block.upload": block.upload, "block.download": block.download,
                               "rows.add": start.add, "rows + rows": lambda rows: start + rows,
                               "rows.assign": start.assign, "block.train's centre":
                               lambda rows: block.train(start, mu=1, centre=rows)}.items():
                self.refused(ValueError, f"{verb} wants float32 rows, got float64; rows.like(values) or "
                             "fedhpc.Rows(layout, values, 'float32') gives those", lambda: call(double))
            for verb, call in (("rows.add", start.add), ("block.train's centre",
                                                         lambda rows: block.train(start, mu=1, centre=rows)),
                               ("rows.write", lambda rows: method.rows.write(block.clients, rows)),
                               ("rows.read", lambda rows: method.rows.read(block.clients, rows)),
                               ("part.of", head.of), ("part.put", lambda rows: head.put(start, rows)),
                               ("part.put", lambda rows: head.put(rows, head.of(start)))):
                self.refused(ValueError, f"{verb} wants rows [{count}, ", lambda: call(wide))
            self.assertEqual(block.upload_models(head.of(start)).shape, (count, head.layout.size))
            self.refused(ValueError, "block.upload wants a codec for rows of 3 columns",
                         lambda: block.upload(wide, fedhpc.largest_codec(model, 5)))
            self.assertEqual(block.upload(wide).shape, (count, 3))
            self.assertEqual(block.upload(head.of(start)).shape, (count, head.layout.size))
            again = fedhpc.RowPart(model, "head")  # another layout with the same fields
            self.assertEqual(again.layout, head.layout)
            self.assertEqual((again.of(start) - head.of(start)).values.any(), False)

            def take(step):
                sgd = fedhpc.Optimizer("sgd", model, lr=0.1)
                sgd.reset(start)
                of_wide = fedhpc.Optimizer("sgd", wide, lr=0.1)
                of_wide.reset(wide)
                for verb, call in (("gradient", lambda rows: step.gradient(rows)),
                                   ("gradient_below_head", lambda rows: step.gradient_below_head(rows, lambda *_: 0)),
                                   ("embedding", step.embedding),
                                   ("descend", lambda rows: step.descend(rows, of_wide)),
                                   ("minimise", lambda rows: step.minimise(rows, of_wide)),
                                   ("step", lambda rows: step.step(rows, rows, sgd))):
                    self.refused(ValueError, f"step.{verb} wants rows [{count}, {columns}]", lambda: call(wide))
                self.refused(ValueError, "step.descend wants an optimizer of rows",
                             lambda: step.descend(start, of_wide))
                self.refused(TypeError, "the loss of step.gradient_below_head returns is a number, and not a NoneType",
                             lambda: step.gradient_below_head(start, lambda *_: None))

            block.each_step(take)

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.rows = setup.store.rows("own", method.model)
            self.refused(ValueError, "setup.factor_map is for methods that name factorisations", setup.factor_map)
            self.refused(ValueError, "setup.initial_factors is for", setup.initial_factors)
            self.refused(ValueError, "setup.optimizer wants lr of at least 0, got -1",
                         lambda: setup.optimizer(method.model, -1.0))

        def round(method, round):
            method.mean = round.mean()
            for block in round.blocks():
                look(method, block)

        def evaluate(method, evaluation):
            wide = fedhpc.Rows(wide_layout, np.zeros((1, 3)))
            self.refused(ValueError, "evaluation.global_model wants rows [1, ", lambda: evaluation.global_model(wide))
            self.refused(ValueError, "evaluation.factors is for methods", lambda: evaluation.factors(wide))

            @evaluation.each_block
            def work(block):
                for verb in ("adapt", "as_received", "evaluate"):
                    self.refused(ValueError, f"block.{verb} wants rows [{len(block)}, ",
                                 lambda: getattr(block, verb)(wide.replicate(len(block))))
                block.evaluate(block.adapt(method.model))
            evaluation.global_model(method.model)

        method({"initialise": initialise, "round": round, "evaluate": evaluate}, models="both")
        run("run.h5", "changed", **{"run.rounds": 1, "train.block": 3})

    def test_arrays_numbers_and_places(self):
        def look(method, block):
            model = method.model
            start = block.download(model)
            count, columns = start.shape
            backwards = start.values[::-1, ::-1]
            np.testing.assert_array_equal(start.like(backwards).values, backwards)
            np.testing.assert_array_equal(fedhpc.Rows(model.layout, start.values.tolist()).values, start.values)
            for kind in (">f4", object, "c8", "f2"):
                with self.assertRaisesRegex(TypeError, "rows.like wants an array of float32.*got .+"):
                    start.like(start.values.astype(kind))
            weights = np.arange(count, dtype=np.float32)
            rows = start.zeros()
            rows.add(start, weights)
            np.testing.assert_array_equal(rows.values, start.values * weights[:, None])
            rows.scale(list(weights))
            np.testing.assert_array_equal(rows.values, start.values * weights[:, None] * weights[:, None])
            same, view = rows, rows.values
            rows *= start
            rows /= 2
            rows *= 4
            rows.scale(np.float32(0.5))
            rows += start
            self.assertIs(same, rows)
            np.testing.assert_array_equal(view, rows.values)
            ones = start / start.like(np.full(start.shape, 2.0))
            np.testing.assert_array_equal(ones.values, start.values / 2)
            client = int(block.clients[0])
            for kind, sentence, call in (
                    (TypeError, "rows.values[0, 1] is a number", lambda: start[0, 1]),
                    (TypeError, "rows[places] = rows wants Rows, got a float", lambda: start.__setitem__(0, 1.0)),
                    (ValueError, "rows[name] = array wants an array [",
                     lambda: start.__setitem__("fc1.bias", [1., 2.])),
                    (ValueError, f"rows.add wants {count} numbers, got 1", lambda: rows.add(start, [1.0])),
                    (TypeError, "rows.scale wants a number, or one of each row",
                     lambda: rows.scale(start)),
                    (TypeError, "columns are a name such as 'head'", lambda: model.layout.count(5)),
                    (ValueError, "mean.add wants finite weights, got nan",
                     lambda: method.mean.add(np.full(count, np.nan), start)),
                    (ValueError, "block.train wants a pass from 0 to 65535, got -1",
                     lambda: block.train(start, pass_=-1)),
                    (ValueError, "block.each_step wants a pass from 0",
                     lambda: block.each_step(print, pass_=2**31)),
                    (ValueError, "block.trains wants a client of the block, got 77", lambda: block.trains(77)),
                    (ValueError, "block.train wants mu of at least 0, got nan",
                     lambda: block.train(start, mu=np.nan, centre=start)),
                    (ValueError, "Optimizer wants lr of at least 0, got nan",
                     lambda: fedhpc.Optimizer("sgd", start, lr=np.nan)),
                    (ValueError, "Optimizer wants momentum below 1, got 1.5",
                     lambda: fedhpc.Optimizer("sgd", start, lr=0.1, momentum=1.5)),
                    (ValueError, "Optimizer wants no momentum with adam, got 0.9",
                     lambda: fedhpc.Optimizer("adam", start, lr=0.1, momentum=0.9)),
                    (ValueError, "Optimizer wants momentum above 0 with nesterov, got 0",
                     lambda: fedhpc.Optimizer("nesterov", start, lr=0.1)),
                    (ValueError, "rows.replicate wants a count from 0 on, got -1", lambda: model.replicate(-1)),
                    (ValueError, "all different, got 'a' twice", lambda: fedhpc.Layout([("a", (1,)), ("a", (2,))])),
                    (ValueError, "sizes from 0 on, got 'a' [-1]", lambda: fedhpc.Layout([("a", (-1,))])),
                    (ValueError, "a layout with trainable columns",
                     lambda: fedhpc.RandomColumns(1, 0.5, fedhpc.Layout([])))):
                self.refused(kind, sentence, call)
            self.assertTrue(block.trains(client))

        def round(method, round):
            method.mean = round.mean()
            for block in round.blocks():
                look(method, block)

        method({"round": round})
        run("run.h5", "changed", **{"run.rounds": 1, "train.block": 5})

    def test_steps(self):
        def look(method, block):
            start = block.download(method.model)
            trained = start.clone()
            sgd = fedhpc.Optimizer("momentum", start, lr=0.1, momentum=0.9)
            seen = []

            def take(step):
                with self.assertRaisesRegex(ValueError, "call optimizer.reset"):
                    step.descend(trained, fedhpc.Optimizer("sgd", start, lr=0.1))
                gradient = step.gradient(trained)
                early = gradient.values  # a copy: the engine uses the memory again
                self.assertFalse(early.flags.writeable)
                with self.assertRaisesRegex(RuntimeError, "called from inside of a training"):
                    block.train(start)
                doubled = 2 * gradient
                step.step(trained, 0.5 * doubled, sgd)
                seen.append((step, gradient, doubled))
                if len(seen) == 1:
                    other = step.gradient(start)
                    with self.assertRaisesRegex(RuntimeError, "these gradients are over"):
                        gradient.values
                    self.assertEqual(other.values.tobytes(), early.tobytes())
                    far = 2 * start  # whose gradients are others than those that take their memory
                    to_a_copy = step.gradient(start, mu=0.1, centre=step.gradient(far).clone()).values
                    to_itself = step.gradient(start, mu=0.1, centre=step.gradient(far)).values
                    self.assertEqual(to_itself.tobytes(), to_a_copy.tobytes())
                    at_a_copy = step.gradient(step.gradient(far).clone()).values
                    at_itself = step.gradient(step.gradient(far)).values
                    self.assertEqual(at_itself.tobytes(), at_a_copy.tobytes())
                self.assertEqual(step.each_rate()[0][2], 1.0)
                self.assertGreater(step.samples(0), 0)
                self.assertGreater(step.loss_so_far(0), 0)

            sgd.reset(trained)
            block.each_step(take)
            self.assertEqual(trained.values.tobytes(), block.train(start).values.tobytes())
            for step, gradient, doubled in seen:
                with self.assertRaisesRegex(RuntimeError, "this step is over"):
                    step.active()
                with self.assertRaisesRegex(RuntimeError, "these gradients are over"):
                    gradient + gradient
                self.assertEqual(doubled.shape, start.shape)
            by_sgd = fedhpc.Optimizer("sgd", start, lr=0.1, momentum=0.9)  # the same, as of train.optimizer
            again = start.clone()
            by_sgd.reset(again)
            block.each_step(lambda step: step.descend(again, by_sgd))
            self.assertEqual(again.values.tobytes(), trained.values.tobytes())
            head = block.train(start, columns="head")
            moved = (head - start).values.any(axis=0)
            fields = {field.name for field in start.layout.fields
                      if moved[field.offset:field.offset + field.size].any()}
            self.assertEqual(fields, {field.name for field in start.layout.fields if "head" in field.tags})

        self.inside(look, **{"train.momentum": 0.9})

    def test_biases_of_batch_norm_are_biases(self):
        def look(method, block):
            start = block.download(method.model)
            for columns in ("bias", "-bias"):
                moved = (block.train(start, columns=columns) - start).values.any(axis=0)
                names = {field.name for field in start.layout.fields
                         if "buffer" not in field.tags and moved[field.offset:field.offset + field.size].any()}
                biases = {field.name for field in start.layout.fields if field.name.endswith(".bias")}
                self.assertIn("bn1.bias", biases)
                self.assertEqual(names & biases, biases if columns == "bias" else set())
                self.assertEqual("bn1.weight" in names, columns == "-bias")

        self.inside(look, **{"model.name": "cnn2", "model.bias": "true", "model.hidden": None})

    def test_steps_of_late_clients(self):
        nominal = {}

        def look(method, block):
            taken = np.zeros(len(block), dtype=np.int64)

            def take(step):
                for first, count, _ in step.each_rate():
                    taken[first:first + count] += 1

            block.each_step(take)
            self.assertEqual(taken.tolist(), block.local_steps.tolist())
            nominal.update(zip(block.clients.tolist(), taken.tolist()))

        epochs = {"train.local_epochs": 4}
        self.inside(look, **epochs)
        everything = dict(nominal)
        self.inside(look, **epochs, **{"train.stragglers": 0.9})
        self.assertEqual(nominal.keys(), everything.keys())
        self.assertTrue(all(nominal[client] <= everything[client] for client in nominal))
        self.assertLess(sum(nominal.values()), 0.9 * sum(everything.values()))

    def test_parts_and_stores(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.rows, method.times = setup.store.rows("own", method.model), setup.store.scalars("times", 1.5)
            method.setup = setup

        def round(method, round):
            part = fedhpc.RowPart(method.model, "head")
            mean = round.mean(part.layout)
            for block in round.blocks():
                start = block.download(method.model)
                head = part.of(start)
                head.scale(3)
                part.put(start, head)
                np.testing.assert_array_equal(part.of(start).values, head.values)
                self.assertEqual(method.times.read(block.clients).tolist(), [1.5] * len(block))
                method.times.write(block.clients, np.arange(len(block), dtype=float))
                self.assertEqual(method.rows.unwritten(block.clients).tolist(), block.clients.tolist())
                before = method.rows.read([block.clients[0]])
                bits = before.values.tobytes()
                block.keep(method.rows, start)
                self.assertEqual(before.values.tobytes(), bits)  # memory of its own
                self.assertEqual(method.rows.read(block.clients).values.tobytes(), start.values.tobytes())
                self.assertTrue(method.rows.written(int(block.clients[0])))
                with self.assertRaisesRegex(ValueError, "clients of this rank, got 77"):
                    method.rows.read([77])
                mean.add(block.weights(), part.of(start))
                with self.assertRaisesRegex(RuntimeError, "mean.reduce came before round.blocks.. had given its last"):
                    mean.reduce()
                some = block.only(block.clients[1:])
                self.assertEqual(len(some.download(method.model)), len(block) - 1)
            self.assertEqual(mean.reduce().shape, (1, part.layout.size))
            with self.assertRaisesRegex(RuntimeError, "the mean has been taken"):
                mean.reduce()
            with self.assertRaisesRegex(RuntimeError, "this setup is over"):
                method.setup.initial_model()
            coupling = round.coupling(range(5))
            rows = method.rows.read(coupling.ids)
            distances = coupling.squared_distances(rows, rows)
            self.assertEqual(distances.shape, (5, 5))
            np.testing.assert_array_equal(coupling.mix(np.eye(5), rows).values, rows.values)
            with self.assertRaisesRegex(ValueError, r"coupling.mix wants an array \[5, 5\], got \[4, 4\]"):
                coupling.mix(np.eye(4), rows)
            self.assertEqual([a.tolist() for a in round.on_server(2, lambda i: np.full(2, float(i)))], [[0, 0], [1, 1]])
            kept.append((round, method.rows))

        kept = []
        method({"initialise": initialise, "round": round})
        run("run.h5", "changed", **{"run.rounds": 1})
        with self.assertRaisesRegex(RuntimeError, "this round is over"):
            kept[0][0].mean()
        with self.assertRaisesRegex(RuntimeError, "can be used only while the method runs"):
            kept[0][1].read([0])

    def test_random_columns_are_those_of_cpp(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.columns = fedhpc.RandomColumns(setup.seed, 0.3, method.model)
            method.last = setup.store.rows("last", method.model)

        def round(method, round):
            mean = round.column_mean()
            for block in round.blocks():
                received = block.send("down", method.columns)
                last = method.last.read(block.clients)
                start = method.model.like(np.where(received, method.model.values, last.values))
                trained = block.train(start)
                method.last.write(block.clients, trained)
                mean.add(block.weights(method.weighting), trained, block.send("up", method.columns))
            method.model = mean.reduce(method.model)

        method({"initialise": initialise, "round": round})
        run("python.h5", "changed", **{"topology.participation": 0.6})
        run("cpp.h5", "fedavg", **{"algorithm.transmit_fraction": 0.3, "topology.participation": 0.6})
        SameBits.assert_same(self, "python.h5", "cpp.h5")

    def test_classifiers_and_adaptations(self):
        def evaluate(method, evaluation):
            evaluation.global_model(method.model)

            def work(block):
                models = block.adapt(method.model, 2, fedhpc.Optimizer("sgd", method.model, lr=0.1))
                self.assertEqual(len(block.adapt(method.model)), len(block))

                def fit(c, values, labels):
                    far = np.full(values.shape[1], 9)
                    means = np.stack([values[labels == k].mean(0) if (labels == k).any() else far for k in range(10)])
                    return lambda seen: -((seen[:, None] - means[None]) ** 2).sum(-1)

                block.evaluate(models, fit)
                blocks.append(block)

            evaluation.each_block(work)

        blocks = []
        method({"evaluate": evaluate}, models="both")
        results = run("run.h5", "changed")
        self.assertTrue(0 <= results.rounds["personal_accuracy"].iloc[-1] <= 1)
        with self.assertRaisesRegex(RuntimeError, "this block is over"):
            blocks[0].clients

    def test_a_classifier_has_a_number_of_each_class(self):
        for classes in (0, 2, 9, 11):
            def evaluate(method, evaluation, classes=classes):
                evaluation.global_model(method.model)
                evaluation.each_block(lambda block: block.evaluate(
                    block.adapt(method.model), lambda *_: lambda seen: np.zeros((len(seen), classes))))

            method({"evaluate": evaluate}, models="both")
            with self.assertRaisesRegex(ValueError, rf"a classifier wants an array \[n, 10\].* got \[n, {classes}\]"):
                run("run.h5", "changed")

    def test_couplings_and_work_of_the_server_say_what_they_want(self):
        def round(method, round):
            ids = [client for block in round.blocks() for client in block.clients.tolist()]
            for wrong, sentence in (([0, 0, 1], "each client once, got 0 twice"),
                                    ([77], "clients of this rank, got 77"), ([-1], "clients of this rank, got -1")):
                with self.assertRaisesRegex(ValueError, f"round.coupling wants {sentence}"):
                    round.coupling(wrong)
            self.assertEqual(round.coupling(ids[::-1]).ids.tolist(), ids)
            with self.assertRaisesRegex(fedhpc.Error, "^the work of on_server gives arrays of one type, and not of"):
                round.on_server(2, lambda i: np.ones(2, "f4" if i else "f8"))

        method({"round": round})
        run("run.h5", "changed", **{"run.rounds": 1})

    def test_other_threads_go_on(self):
        ticks, found = [0], {}

        def tick():
            while ticks:
                ticks[0] += 1
                time.sleep(0.001)

        def measured(name, call, count=15):
            before = ticks[0]
            for _ in range(count):
                call()
            found[name] = found.get(name, 0) + ticks[0] - before

        def of_block(method, block):
            start = block.download(method.model)
            sgd = fedhpc.Optimizer("sgd", start, lr=0.1)
            sgd.reset(start)

            def take(step):
                if step.number:
                    return
                measured("gradient", lambda: step.gradient(start))
                measured("descend", lambda: step.descend(start, sgd))
                measured("embedding", lambda: step.embedding(start))
                measured("gradient_below_head", lambda: step.gradient_below_head(start, lambda *_: 0.0))
                measured("term", lambda: step.descend(start, sgd, term=lambda *_: None))

            block.each_step(take)
            columns = fedhpc.RandomColumns(1, 0.5, start)
            measured("send", lambda: block.send("up", columns))
            measured("evaluate", lambda: block.evaluate(start))
            measured("embed", lambda: block.embed(method.model, int(block.clients[0])))

        def round(method, round):
            for block in round.blocks():
                of_block(method, block)
            rows = method.model.replicate(5)
            coupling = round.coupling(range(5))
            for verb, arguments in (("all_rows", [rows]), ("mix", [np.eye(5), rows]), ("to_columns", [rows]),
                                    ("squared_distances", [rows, rows])):
                measured(verb, lambda: getattr(coupling, verb)(*arguments))

        def evaluate(method, evaluation):
            measured("global_model", lambda: evaluation.global_model(method.model), count=1)

        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(100)  # nobody is asked for the lock
        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        method({"round": round, "evaluate": evaluate})
        run("run.h5", "changed", **{"run.rounds": 4, "model.hidden": 400, "train.block": 5})
        ticks.clear()
        self.assertGreater(min(found.values()), 0, found)


class OnADevice(InFolder):
    """On the stand-in for a GPU that FEDHPC_STANDIN names; its memory faults where the host reads it."""

    SCRIPT = f"""import sys; sys.path[:0] = {FOLDERS!r}
import json, numpy as np, fedhpc, ditto, fedavg, scaffold, sfedhp, tdpfed

@fedhpc.algorithm("looks", "FedAvg that looks at rows on a device")
class Looks(fedavg.FedAvg):
    def round(self, round):
        update = round.mean()
        for block in round.blocks():
            start = block.download(self.model)
            values, weight = start.values, start["fc1.weight"]
            if round.number == 1:
                assert start.__dlpack_device__()[0] == 2 and not values.flags.writeable and not weight.flags.writeable
                doubled = start.like(2 * values)
                assert np.array_equal(doubled.values, 2 * values)
                assert np.array_equal((fedhpc.Rows(start.layout, values.tolist()) + start).values, doubled.values)
                doubled["fc1.weight"] = weight
                assert np.array_equal(doubled["fc1.weight"], weight)
                doubled[[0]] = start[[0]]
                assert np.array_equal(doubled[0].values, values[:1])
            update.add(block.weights(), block.upload(block.train(start) - start))
        self.model += update.reduce()

for keys in json.loads(sys.argv[1]):
    fedhpc.run(keys, progress=False, force=True)
"""

    @unittest.skipUnless(os.environ.get("FEDHPC_STANDIN"), "FEDHPC_STANDIN names no stand-in for a GPU")
    def test_equals_the_host(self):
        settings = {"fedavg_py": {}, "ditto_py": OWN, "scaffold_py": {}, "tdpfed_py": {**OWN, "model.rank": 3},
                    "sfedhp_py": {**OWN, **EDGES}, "looks": {}}
        keys = [{**TINY, "run.dtype": "float64", "run.reproducible": False, "run.device": "cuda",
                 "algorithm.name": name, "run.output": f"{name}.h5", **own} for name, own in settings.items()]
        done = python(self.SCRIPT, json.dumps(keys), FEDHPC_GPU_MODULE=os.environ["FEDHPC_STANDIN"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, own in settings.items():
            run("host.h5", name.replace("looks", "fedavg"), **{"run.dtype": "float64", "run.reproducible": False, **own})
            host, device = numbers("host.h5"), numbers(f"{name}.h5")
            for path, values in host.items():
                if path.startswith("model/"):
                    np.testing.assert_allclose(device[path], values, rtol=0, atol=1e-9, err_msg=f"{name} {path}")


class Options(InFolder):
    def test_of_every_kind(self):
        seen = {}

        def declare(method, options):
            fedavg.FedAvg.declare(method, options)
            options.add("flag", False, help="a flag")
            options.add("steps", 3, at_least=1, help="a count")
            options.add("mu", 0.1, at_least=0, below=1, help="a share of something")
            options.add("way", "up", choices=["up", "down"], help="a name")
            options.add("text", "some", help="a text")
            options.add("sizes", [3, 4], at_least=1, help="sizes")
            options.add("parts", ["a"], choices=["a", "b"], help="parts")
            options.add("limit", None, kind=float, above=0, help="a limit", acts=fedhpc.where("algorithm.way", "down"))
            options.add("lambda", 2.0, help="a name that Python reserves")

            def check(values):
                if values["train.lr"] == "0.125" and values["mu"] == "0.5":
                    values.refuse("train.lr", "algorithm.mu = 0.5")

            options.add_check(check)

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            seen.update(vars(method))

        method({"declare": declare, "initialise": initialise})
        plain = run("run.h5", "changed", **{"run.rounds": 1})
        self.assertEqual((seen["flag"], seen["steps"], seen["mu"], seen["way"], seen["sizes"], seen["parts"]),
                         (False, 3, 0.1, "up", [3, 4], ["a"]))
        self.assertEqual((seen["limit"], seen["lambda_"], seen["weighting"]), (None, 2.0, "samples"))
        self.assertEqual(plain.config["algorithm.mu"], "0.1")
        keys = {"algorithm.flag": True, "algorithm.steps": 5, "algorithm.mu": 0.5, "algorithm.way": "down",
                "algorithm.sizes": [7], "algorithm.parts": "a,b", "algorithm.limit": 2.5, "algorithm.lambda": 1,
                "algorithm.weighting": "uniform"}
        run("run.h5", "changed", **{"run.rounds": 1, **keys})
        self.assertEqual((seen["flag"], seen["steps"], seen["mu"], seen["way"], seen["sizes"], seen["parts"]),
                         (True, 5, 0.5, "down", [7], ["a", "b"]))
        self.assertEqual((seen["limit"], seen["lambda_"], seen["weighting"]), (2.5, 1.0, "uniform"))
        for key, value, sentence in (("mu", 1, "cannot be '1'; allowed: a number of at least 0 and below 1"),
                                     ("way", "dwon", "did you mean 'down'"),
                                     ("limit", 1, "algorithm.way = down"),
                                     ("muu", 1, "did you mean 'algorithm.mu'")):
            with self.assertRaisesRegex(fedhpc.ConfigError, sentence):
                fedhpc.run({**TINY, "algorithm.name": "changed"}, progress=False, **{f"algorithm.{key}": value})
        with self.assertRaisesRegex(fedhpc.ConfigError, "'train.lr' cannot be '0.125' with algorithm.mu = 0.5"):
            run("run.h5", "changed", **{"train.lr": 0.125, "algorithm.mu": 0.5})

    def test_keys_that_act_by_values_of_python(self):
        def declare(method, options):
            fedavg.FedAvg.declare(method, options)
            for name, default in (("flag", False), ("one", 1.0), ("small", 1e-4), ("count", 3)):
                options.add(name, default, help="a value")
            options.add("limit", None, kind=int, help="a limit")
            for name, condition in conditions.items():
                options.add(name, 0.1, help="a number", acts=condition)

        where, unless = fedhpc.where, fedhpc.unless
        conditions = {"a": where("algorithm.flag", False), "b": where("algorithm.one", 1.0),
                      "c": where("algorithm.small", 1e-4), "d": where("algorithm.flag", np.bool_(False)),
                      "e": where("algorithm.count", np.int64(3)), "f": where("algorithm.limit", None),
                      "g": unless("algorithm.flag", False), "h": unless("algorithm.one", 1.0),
                      "i": unless("algorithm.limit", None)}
        method({"declare": declare})
        for name in "abcdef":
            run("run.h5", "changed", **{"run.rounds": 1, f"algorithm.{name}": 0.2})
        for name, why in (("g", "flag other than false"), ("h", "one other than 1"), ("i", "limit other than auto")):
            with self.assertRaisesRegex(fedhpc.ConfigError, f"algorithm.{why}"):
                run("run.h5", "changed", **{"run.rounds": 1, f"algorithm.{name}": 0.2})

    def test_wrong_declarations(self):
        for declaration, sentence in (
                (lambda options: options.add("mu", -1.0, at_least=0, help="a"), "default -1 is not allowed"),
                (lambda options: [options.add("mu", 1.0, help="a") for _ in range(2)], "there is a key of this name"),
                (lambda options: options.add("Mu", 1.0, help="a"), "lower-case letters"),
                (lambda options: options.add("mu", {}, help="a"), "a default is a bool, a number"),
                (lambda options: options.add("mu", None, help="a"), "wants kind=int or kind=float"),
                (lambda options: options.add("mu", 1.0, help=""), "one sentence of what it means"),
                (lambda options: options.add("mu", "a", at_least=1, help="a"), "bounds are for numbers"),
                (lambda options: options.add("round", 1, help="a"), "algorithm.round cannot be .* Changed has a verb"),
                (lambda options: options.add("mine", 1, help="a"), "algorithm.mine cannot be .* Changed has a verb"),
                (lambda options: options.add("seen", 1, help="a"), "algorithm.seen cannot be a key: .* an attribute"),
                (lambda options: options.add("tiers", 1, help="a"), "algorithm.tiers cannot be a key: .* an attribute"),
                (lambda options: options.add("mu", 1, help="a", acts=fedhpc.where("train.lrr", 1)),
                 "'changed': algorithm.mu acts where train.lrr = 1, and .*'train.lrr'; did you mean 'train.lr'"),
                (lambda options: options.acts("train.lr", fedhpc.unless("algorithm.nu", 1)), "no key 'algorithm.nu'")):
            method({"declare": lambda self, options, declaration=declaration: declaration(options),
                    "mine": lambda self: None, "seen": property(lambda self: 1)})
            with self.assertRaisesRegex(ValueError, sentence):
                run("run.h5", "changed")
        method()

    def test_help_and_list(self):
        done = python(f"import sys; sys.path[:0] = {FOLDERS!r}\nimport fedavg, fedhpc\n"
                      "print(fedhpc.list('algorithms')['fedavg_py'])\nfedhpc.help('fedavg_py')\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("FedAvg, written in Python", done.stdout)
        self.assertIn("algorithm.weighting", done.stdout)


class Errors(InFolder):
    def test_of_a_method_are_raised_again(self):
        class Mine(Exception):
            pass

        raised = Mine("in my round")
        for verb, arguments in (("round", 1), ("evaluate", 1), ("initialise", 1), ("visit_state", 1), ("declare", 1)):
            def wrong(self, *_):
                raise raised

            method({verb: wrong})
            with self.assertRaises(Mine) as caught:
                run("run.h5", "changed")
            self.assertIs(caught.exception, raised)
        method()
        run("run.h5", "changed")  # nothing of it stays

    def test_inside_of_a_step(self):
        def round(method, round):
            for block in round.blocks():
                block.each_step(lambda step: 1 / 0)

        method({"round": round})
        with self.assertRaises(ZeroDivisionError):
            run("run.h5", "changed")
        method()

    def test_an_array_in_the_place_of_rows(self):
        for call in (lambda block, rows: block.train(rows.values), lambda block, rows: block.download(rows.values),
                     lambda block, rows: block.each_step(lambda step: step.gradient(rows.values))):
            def round(self, round, call=call):
                for block in round.blocks():
                    call(block, block.download(self.model))

            method({"round": round})
            with self.assertRaisesRegex(TypeError, r"(?s)supported.*ndarray.*rows.like\(array\) makes them of an arr"):
                run("run.h5", "changed")

        def other(self, round):
            for block in round.blocks():
                block.download(self.model).replicate("a")

        method({"round": other})
        with self.assertRaisesRegex(TypeError, "(?s)incompatible function arguments(?!.*rows.like)"):
            run("run.h5", "changed")
        method()

    def test_a_loop_that_is_left(self):
        def round(method, round):
            for _block in round.blocks():
                break

        method({"round": round})
        with self.assertRaisesRegex(fedhpc.Error, r"round.blocks\(\) was left before its last block"):
            run("run.h5", "changed", **{"train.block": 1})
        method()

    def test_registration(self):
        with self.assertRaisesRegex(fedhpc.ConfigError, "'fedavg' is fedhpc's own already"):
            fedhpc.algorithm("fedavg", "mine")(fedavg.FedAvg)
        with self.assertRaisesRegex(TypeError, r"Half has no evaluate\(self, evaluation\)"):
            fedhpc.algorithm("half", "mine")(type("Half", (fedhpc.Algorithm,), {"round": lambda *_: None}))
        with self.assertRaisesRegex(TypeError, "derived from fedhpc.Algorithm"):
            fedhpc.algorithm("other", "mine")(object)
        with self.assertRaisesRegex(ValueError, "lower-case"):
            fedhpc.algorithm("My method", "mine")(fedavg.FedAvg)
        with self.assertRaisesRegex(TypeError, "initialise"):
            fedhpc.algorithm("other", "mine")(type("Us", (fedavg.FedAvg,), {"initialize": lambda *_: None}))

    def test_names_that_nobody_looks_at(self):
        for name, meant in (("model", "models"), ("tier", "tiers"), ("visit_states", "visit_state"), ("rounds", "round"),
                            ("initialize", "initialise"), ("can_leave_round", "can_leave_rounds")):
            with self.assertRaisesRegex(TypeError, f"Us has '{name}', which nobody looks at; .* has '{meant}'"):
                fedhpc.algorithm("other", "mine")(type("Us", (fedavg.FedAvg,), {name: "shared"}))
        fine = {"init_state": 1, "_models": 2, "mode": 3, "global_model": 4}
        fedhpc.algorithm("other", "mine")(type("Us", (fedavg.FedAvg,), fine))

    def test_a_method_that_is_not_finished_is_nobody_elses_concern(self):
        def declare(self, options):
            options.add("mu", 0.1)

        fedhpc.algorithm("unfinished", "mine")(type("Half", (fedavg.FedAvg,), {"declare": declare}))
        self.addCleanup(fedhpc.algorithm("unfinished", "mine"), type("Whole", (fedavg.FedAvg,), {}))
        with self.assertRaisesRegex(fedhpc.ConfigError, "unknown key 'algorithm.muu'"):
            run("run.h5", "fedavg", **{"algorithm.muu": 1})
        with self.assertRaisesRegex(TypeError, "incompatible function arguments"):
            run("run.h5", "unfinished")

    def test_attributes_say_something(self):
        def raises(self):
            return self.mu

        for attribute, value, sentence in (
                ("tiers", "clouds", "tiers is one of client-cloud, client-edge-cloud, and not 'clouds'"),
                ("models", "everything", "models is one of global, personal, both, shared, and not 'everything'"),
                ("models", property(lambda self: "all"), "models is one of .* and not 'all'"),
                ("models", property(raises), "models has no value: AttributeError: .*'mu'; where it depends on keys"),
                ("factorisations", "cp", "factorisations is a tuple of names, and not 'cp'"),
                ("factorisations", ("cpp",), "factorisations is names among .*did you mean 'cp'"),
                ("factor_draw", {"rang": 1}, "factor_draw is a dictionary with range, like_layers and zero"),
                ("factor_draw", {"range": "a"}, "factor_draw.*is a number above 0, and not 'a'"),
                ("factor_draw", None, "factor_draw is a dictionary, and not None"),
                ("cohorts_in_round", 0, "cohorts_in_round is a whole number of at least 1, and not 0"),
                ("cohorts_in_round", True, "cohorts_in_round is a whole number"),
                ("can_leave_rounds", "no", "can_leave_rounds is True or False, and not 'no'")):
            with self.assertRaisesRegex(ValueError, sentence.replace(attribute, f"'changed': Changed.{attribute}", 1)):
                method(**{attribute: value})

    def test_attributes_gone_wrong_stay_alone(self):
        changed = method()
        self.addCleanup(method)
        changed.models = "everything"
        run("run.h5", "fedavg")
        run("run.h5", "fedavg_py")
        with self.assertRaisesRegex(ValueError, "'changed': Changed.models is one of global"):
            run("run.h5", "changed")

    def test_verbs_do_something(self):
        async def later(self, round):
            pass

        async def each(self, round):
            yield round

        def one_by_one(self, round):
            yield round

        for verb, function, sentence in (
                ("round", later, "Changed.round is 'async def', and nobody awaits it"),
                ("round", each, "Changed.round is 'async def'"),
                ("round", one_by_one, "Changed.round has a yield, so that a call does nothing"),
                ("visit_state", one_by_one, "Changed.visit_state has a yield"),
                ("evaluate", None, "Changed.evaluate is a function of the method, and not None"),
                ("prepare", 3, "Changed.prepare is a function of the method, and not 3"),
                ("round", lambda self: None, r"Changed.round\(self\) is called with one argument: def round"),
                ("declare", lambda self, a, b: None, r"one argument: def declare\(self, options\)")):
            with self.assertRaisesRegex(TypeError, sentence):
                method({verb: function})

    def test_evaluations_hand_over_their_models(self):
        def nothing(method, evaluation):
            evaluation.each_block(lambda block: None)

        def model(method, evaluation):
            evaluation.global_model(method.model)

        self.addCleanup(method)
        for models, evaluate, sentence in (
                ("global", lambda *_: None, "handed over no model: .*'global' it has to call evaluation.global_model"),
                ("personal", lambda *_: None, "has handed over no model: .* evaluation.each_block"),
                ("both", lambda *_: None, "has handed over no model: .*global_model and evaluation.each_block"),
                ("both", model, "handed over not all its models: .*'both' it has to call evaluation.each_block"),
                ("shared", lambda *_: None, "has handed over no model: .*evaluation.shared and evaluation.each_block"),
                ("personal", nothing, "it has to call block.evaluate")):
            method({"evaluate": evaluate}, models=models)
            with self.subTest(models), self.assertRaisesRegex(ValueError, sentence):
                run("run.h5", "changed")

    def test_names(self):
        """Of stores, of series and in checkpoints: words, each of one thing."""
        def twice(verb, *arguments):
            return lambda method, setup: [getattr(setup.store, verb)("a", *arguments or (method.model,)) for _ in "ab"]

        self.addCleanup(method)
        for wrong, sentence in (
                (twice("rows"), "store.rows: the store has 'a' already"),
                (twice("scalars", 1.0), "store.scalars: the store has 'a' already"),
                (lambda method, setup: setup.store.rows("", method.model), "store.rows wants a name .*got ''"),
                (lambda method, setup: setup.store.rows("a/b", method.model), "store.rows wants a name .*got 'a/b'"),
                (lambda method, setup: setup.store.scalars("a b"), "store.scalars wants a name .*got 'a b'"),
                (lambda method, setup: setup.add_metric("train_loss"), "a series 'train_loss' of fedhpc's own"),
                (lambda method, setup: setup.add_metric("round"), "there is a series 'round' of fedhpc's own"),
                (lambda method, setup: [setup.add_metric("catch_up_bytes"), fedhpc.methods.CatchUp(setup)],
                 "fedhpc.CatchUp: there is a series 'catch_up_bytes'"),
                (lambda method, setup: [setup.add_metric("a") for _ in "ab"], "there is a series 'a' of this method"),
                (lambda method, setup: [setup.add_metric("a_p10"), setup.add_metric("a", quantiles=True)],
                 "there is a series 'a_p10' of this method"),
                (lambda method, setup: [setup.add_metric("a"), setup.add_metric("a", quantiles=True)],
                 "'a' is added already"),
                (lambda method, setup: setup.add_metric("my loss"), "setup.add_metric wants a name .*got 'my loss'"),
                (lambda method, setup: [fedhpc.methods.CatchUp(setup) for _ in "ab"], "a series 'catch_up_bytes'"),
                (lambda method, setup: [setup.store.scalars("last_round"), fedhpc.methods.CatchUp(setup)],
                 "'last_round' in the store, which the method has taken")):
            def initialise(method, setup, wrong=wrong):
                fedavg.FedAvg.initialise(method, setup)
                wrong(method, setup)

            method({"initialise": initialise})
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                run("run.h5", "changed")
        for wrong, sentence in (
                (lambda method, state: [state.rows("a", method.model) for _ in "ab"], "rows: 'a' is visited twice"),
                (lambda method, state: [state.number("a", 1.0), state.integer("a", 1)], "integer: 'a' is visited"),
                (lambda method, state: state.rows("", method.model), "state.rows wants a name .*got ''"),
                (lambda method, state: state.array("a/b", np.zeros(2)), "state.array wants a name .*got 'a/b'"),
                (lambda method, state: state.array("best_accuracy", np.zeros(2)), "is a name of fedhpc's own")):
            method({"visit_state": wrong})
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                run("run.h5", "changed", **{"run.checkpoint_every": 1})

    def test_series_of_what_is_received_are_of_clients_without_samples_too(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            setup.add_metric("trained")
            setup.add_metric("received")

        def round(method, round):
            for block in round.blocks():
                values = [float(client) for client in block.clients]
                block.note("trained", values)
                block.note_received("received", values)
            fedavg.FedAvg.round(method, round)

        self.addCleanup(method)
        method({"initialise": initialise, "round": round})
        run("run.h5", "changed", **{"data.partition": "dirichlet", "data.alpha": 0.01, "data.min_samples": 0,
                                    "data.clients": 20})
        found = numbers("run.h5")
        samples = found["clients/train_samples"]
        self.assertIn(0, samples)
        np.testing.assert_allclose(found["rounds/received"], np.arange(len(samples)).mean(), rtol=1e-12)
        np.testing.assert_allclose(found["rounds/trained"], np.flatnonzero(samples).mean(), rtol=1e-12)

    def test_series_are_not_those_of_privacy(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            setup.add_metric("clipped")

        self.addCleanup(method)
        method({"initialise": initialise}, averaged_uploads=1)
        run("run.h5", "changed")
        with self.assertRaisesRegex(fedhpc.ConfigError, "has a series 'clipped', and there is one of that name already"):
            run("private.h5", "changed", **{"privacy.clip": 1})

    def test_stores_are_made_at_first(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.store, method.own = setup.store, setup.store.rows("own", method.model)

        def round(method, round):
            self.assertEqual(method.store.rows("own", method.model).written_clients().tolist(),
                             method.own.written_clients().tolist())
            with self.assertRaisesRegex(ValueError, "store.rows: the store has no 'late'; initialise.. makes"):
                method.store.rows("late", method.model)
            fedavg.FedAvg.round(method, round)

        self.addCleanup(method)
        method({"initialise": initialise, "round": round})
        run("run.h5", "changed")

    def test_plugins_that_cannot_be_loaded(self):
        for text, sentence in (("import fedhpc\nclass A(:\n    pass\n", "SyntaxError: invalid syntax .line 2.$"),
                               ("a = 1\n1 / 0\n", "ZeroDivisionError: division by zero .line 2.$"),
                               ("import sys\nsys.exit(3)\n", "SystemExit: 3 .line 2.$")):
            self.folder.joinpath("plug.py").write_text(text, encoding="utf-8")
            with self.assertRaisesRegex(fedhpc.ConfigError, f"plug-in '.*plug.py' cannot be loaded: {sentence}"):
                run("run.h5", "fedavg", **{"run.plugin": "plug.py"})

    def test_a_name_stands_in_one_file(self):
        text = ("import fedhpc, fedavg\n@fedhpc.algorithm('twice', 'one of two')\nclass Twice(fedavg.FedAvg):\n"
                "    models = 'global'\n")
        for name in ("a.py", "b.py"):
            self.folder.joinpath(name).write_text(text, encoding="utf-8")
        sentence = "b.py' cannot be loaded: ConfigError: method 'twice' stands in two files, .*a.py and .*b.py; give one"
        with self.assertRaisesRegex(fedhpc.ConfigError, sentence):
            run("run.h5", "twice", **{"run.plugin": ["a.py", "b.py"]})
        for again in ("a.py", "moved.py"):
            if again == "moved.py":
                os.rename("a.py", again)
            self.folder.joinpath(again).write_text(text + "    tiers = 'client-cloud'\n", encoding="utf-8")
            run("run.h5", "twice", **{"run.plugin": again})

    def test_a_plugin_without_methods_is_told(self):
        for text, told in (("import fedhpc\nclass A(fedhpc.Algorithm):\n    pass\n", 1), ("from fedavg import FedAvg\n", 0),
                           ("import fedhpc\nfrom fedavg import FedAvg\nfedhpc.algorithm('mine', 'mine')(FedAvg)\n", 0)):
            self.folder.joinpath("plug.py").write_text(text, encoding="utf-8")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run("run.h5", "fedavg", **{"run.plugin": "plug.py"})
            self.assertEqual(len(caught), told)
            for one in caught:
                self.assertRegex(str(one.message), "plug-in .*plug.py registers no method; put @fedhpc.algorithm")

    def test_again_in_a_cell_replaces(self):
        losses = []
        for factor in (1.0, 0.5):
            def round(method, round, factor=factor):
                update = round.mean()
                for block in round.blocks():
                    start = block.download(method.model)
                    update.add(block.weights(), factor * (block.train(start) - start))
                method.model += update.reduce()

            method({"round": round})
            losses.append(run("run.h5", "changed").rounds["train_loss"].iloc[-1])
        self.assertNotEqual(*losses)

    def test_help_is_good(self):
        for thing, words in ((fedhpc.Algorithm, ("declare", "can_leave_rounds")),
                             (fedhpc.Block, ("download", "[C, P]", "train_loss"))):
            text = pydoc.render_doc(thing)
            for word in words:
                self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
