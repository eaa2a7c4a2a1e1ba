"""Methods in Python that use verbs where they cannot be used, or rows where another verb uses them."""

import gc
import os
import sys
import unittest

import h5py
import numpy as np

import fedhpc
from python_support import SOURCE, TINY, InFolder, python

FOLDER = os.fspath(SOURCE / "examples")
sys.path.insert(0, FOLDER)
import fedavg  # noqa: E402

EDGES = {"topology.edges": 2, "train.local_steps": 1, "train.local_epochs": None}


class Misuse(InFolder):
    """Each test runs FedAvg with verbs of its own."""

    def run_with(self, keys=None, attributes=None, **verbs):
        misused = type("Misused", (fedavg.FedAvg,), {**(attributes or {}), **verbs})
        fedhpc.algorithm("misused", "FedAvg with changes")(misused)
        return fedhpc.run({**TINY, "algorithm.name": "misused", "run.output": "run.h5", "run.checkpoint_every": 0,
                           "run.rounds": 1, **(keys or {})}, progress=False, force=True)

    def in_blocks(self, look, **keys):
        """Calls look(method, block) for each block of a round."""
        def round(method, round):
            for block in round.blocks():
                look(method, block)

        self.run_with(keys, round=round)

    def refused(self, sentence, call, *arguments, kind=RuntimeError, **keywords):
        with self.assertRaisesRegex(kind, sentence):
            call(*arguments, **keywords)


class After(Misuse):
    """What is kept from a run says that it is over."""

    def test_verbs_after_the_run(self):
        kept = {}

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            kept.update(setup=setup, store=setup.store, rows=setup.store.rows("own", method.model),
                        scalars=setup.store.scalars("times"), model=method.model, edges=setup.initial_edges())

        def round(method, round):
            mean = round.edges.mean()
            for block in round.blocks():
                start = block.download(method.model)
                block.each_step(lambda step: kept.update(step=step))
                kept.update(block=block, start=start)
            mean.reduce()
            round.mean().reduce()
            kept.update(round=round, tier=round.edges, mean=round.mean(), edge_mean=round.edges.mean())

        def evaluate(method, evaluation):
            kept.update(evaluation=evaluation)
            evaluation.global_model(method.model)

        def visit_state(method, state):
            kept.update(state=state)
            method.model = state.rows("global", method.model)

        self.run_with({**EDGES, "run.checkpoint_every": 1}, {"tiers": "client-edge-cloud"}, initialise=initialise,
                      round=round, evaluate=evaluate, visit_state=visit_state)
        gc.collect()
        model, start, edges, step = (kept[name] for name in ("model", "start", "edges", "step"))
        sgd = fedhpc.Optimizer("sgd", model, lr=0.1)
        sgd.reset(start)
        over = "is over|can be used only while"
        for call in (lambda: step.gradient(start), lambda: step.descend(start, sgd), lambda: step.minimise(start, sgd),
                     lambda: step.embedding(start), lambda: step.gradient_below_head(start, lambda *_: 0.0),
                     lambda: kept["block"].download(edges), lambda: kept["block"].keep_buffers(start),
                     lambda: kept["mean"].add([1.0] * len(start), start), lambda: kept["mean"].reduce(model),
                     lambda: kept["edge_mean"].reduce(edges), lambda: kept["tier"].download(model, edges),
                     lambda: kept["tier"].upload_mean(edges, [1.0] * len(edges)),
                     lambda: kept["evaluation"].global_model(model), lambda: kept["evaluation"].factors(model),
                     lambda: kept["evaluation"].edges(edges), lambda: kept["state"].edges("edges", edges),
                     lambda: kept["rows"].write([0], model), lambda: kept["scalars"].write([0], [1.0]),
                     lambda: kept["store"].rows("own", model), lambda: kept["store"].scalars("times"),
                     lambda: kept["setup"].open_links(model)):
            self.refused(over, call)


class Inside(Misuse):
    """Verbs that are called from inside of themselves."""

    def test_a_step_inside_of_its_loss_or_term(self):
        asked = []

        def look(method, block):
            start = block.download(method.model)
            sgd = fedhpc.Optimizer("sgd", method.model, lr=0.1)
            sgd.reset(start)

            def take(step):
                def inside(c, embedding, *others):
                    verbs = (lambda: step.gradient(start), lambda: step.descend(start, sgd),
                             lambda: step.minimise(start, sgd), lambda: step.step(start, start, sgd),
                             lambda: step.gradient_below_head(start, lambda *_: 0.0))
                    for verb in verbs:
                        self.refused("from inside of the loss or the term", verb)
                    self.assertEqual(len(step.embedding(start)), len(block))
                    asked.append(c)
                    return 0.0

                step.gradient_below_head(start, inside)
                step.descend(start, sgd, term=inside)
                step.gradient(start)  # afterwards it may be asked again

            block.each_step(take)

        self.in_blocks(look)
        self.assertTrue(asked)

    def test_the_next_block_inside_of_a_training(self):
        def round(method, round):
            blocks = round.blocks()
            for block in blocks:
                ids = block.clients.tolist()
                block.each_step(lambda step: self.refused("inside of a training", next, blocks))
                self.assertEqual(block.clients.tolist(), ids)
                seen.extend(ids)

        seen = []
        self.run_with({"train.block": 2}, round=round)
        self.assertEqual(seen, list(range(TINY["data.clients"])))

    def test_edge_rounds_inside_of_an_edge_round(self):
        def round(method, round):
            def edge_round():
                numbers.append(round.edges.round)
                self.refused("inside of an edge round", round.edges.rounds, 1, lambda: None)
                for _ in round.blocks():
                    pass

            round.edges.rounds(2, edge_round)
            round.edges.rounds(1, lambda: numbers.append(round.edges.round))  # one after the other

        numbers = []
        self.run_with(EDGES, {"tiers": "client-edge-cloud"}, round=round)
        self.assertEqual(numbers, [0, 1, 0])


    def test_participants_of_edge_rounds_are_as_many_each_time(self):
        def round(method, round):
            def edge_round():
                round.edges.draw_participants(7)
                sizes.append(sum(len(block) for block in round.blocks()))

            round.edges.rounds(2, edge_round)
            round.edges.rounds(2, edge_round)

        sizes = []
        self.run_with({**EDGES, "data.clients": 20, "topology.participation": 0.2}, {"tiers": "client-edge-cloud"},
                      round=round)
        self.assertEqual(sizes, [4, 4, 4, 4])


class Memory(Misuse):
    """Rows whose memory two verbs would use."""

    def test_personal_models_are_those_handed_over(self):
        def evaluate(method, evaluation):
            @evaluation.each_block
            def work(block):
                rows = method.model.replicate(len(block))
                block.evaluate(rows)
                handed.append(rows["fc1.weight"][0].copy())
                rows.scale(0)

        handed = []
        self.run_with({"run.save": ["init", "personal"]}, {"models": "personal"}, evaluate=evaluate)
        with h5py.File("run.h5") as file:
            saved = file["model/personal/fc1.weight"][()]
        self.assertEqual(len(saved), TINY["data.clients"])
        for row in saved:
            np.testing.assert_array_equal(row, handed[-1])
        self.assertTrue(handed[-1].any())

    def test_a_centre_that_moves(self):
        def look(method, block):
            start = block.download(method.model)
            for verb, keys in (("descend", {}), ("minimise", {"steps": 3})):
                moved = []
                for itself in (True, False):
                    rows = start.clone()
                    sgd = fedhpc.Optimizer("sgd", method.model, lr=0.1)
                    sgd.reset(rows)
                    block.each_step(lambda step: getattr(step, verb)(
                        rows, sgd, mu=2.0, centre=rows if itself else rows.clone(), **keys))
                    moved.append(rows.values.tobytes())
                self.assertEqual(*moved, verb)

        self.in_blocks(look)

    def test_columns_of_an_optimizer(self):
        def moved_fields(before, after):
            changed = (after.values != before.values).any(axis=0)
            return {field.name for field in before.layout.fields
                    if changed[field.offset:field.offset + field.size].any()}

        def head_of(model):
            sgd = fedhpc.Optimizer("sgd", model, lr=0.1)
            sgd.reset(model, "head")
            return sgd, {field.name for field in model.layout.fields if "head" in field.tags}

        def round(method, round):
            for block in round.blocks():
                start = block.download(method.model)
                for accuracy in (0.0, 1e-9):
                    sgd, head = head_of(method.model)
                    rows = start.clone()
                    block.each_step(lambda step: step.minimise(rows, sgd, steps=2, accuracy=accuracy))
                    self.assertEqual(moved_fields(start, rows), head)
                    block.each_step(lambda step: self.refused("only where whole models move", step.minimise, rows, sgd,
                                                              mu=1.0, centre=start, kind=ValueError))

        def evaluate(method, evaluation):
            evaluation.global_model(method.model)

            @evaluation.each_block
            def work(block):
                sgd, head = head_of(method.model)
                adapted = block.adapt(method.model, 2, sgd)
                self.assertEqual(moved_fields(method.model.replicate(len(block)), adapted), head)
                block.evaluate(adapted)

        self.run_with(attributes={"models": "both"}, round=round, evaluate=evaluate)

    def test_a_download_is_memory_of_its_own(self):
        def look(method, block):
            rows = method.model.replicate(len(block))
            before = rows.values.copy()
            for codec in (None, "dense"):
                received = block.download(rows, codec)
                received.scale(0)
                np.testing.assert_array_equal(rows.values, before)

        self.in_blocks(look)

    def test_a_gradient_of_the_embedding_begins_at_0(self):
        def look(method, block):
            start = block.download(method.model)
            seen = []

            def take(step):
                def loss(c, embedding, labels, gradient):
                    seen.append(np.abs(gradient).max())
                    gradient[:] = 7.0  # of a step later, where memory is used again
                    return 0.0

                step.gradient_below_head(start, loss)

            block.each_step(take)
            self.assertEqual(set(seen), {0.0})

        self.in_blocks(look, **{"train.local_steps": 4, "train.local_epochs": None})


class Keywords(Misuse):
    def test_that_do_not_go_together(self):
        self.in_blocks(lambda method, block: self.refused(
            "takes a codec, or the channel", block.download, method.model, codec="fp16", channel=1, kind=ValueError))
        for keywords, sentence in (({"at_least": 0, "above": 0}, "give at_least or above"),
                                   ({"at_most": 3, "below": 3}, "give at_most or below"),
                                   ({"kind": int}, "kind=int wants a whole number")):
            def declare(method, options, keywords=keywords):
                options.add("mu", 1.5, help="a number", **keywords)

            self.refused(sentence, self.run_with, declare=declare, kind=ValueError)

    def test_a_whole_number_of_the_kind_float(self):
        seen = []

        def declare(method, options):
            fedavg.FedAvg.declare(method, options)
            options.add("mu", 1, kind=float, help="a number")

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            seen.append(method.mu)

        self.run_with(declare=declare, initialise=initialise)
        self.run_with({"algorithm.mu": 0.5}, declare=declare, initialise=initialise)
        self.assertEqual(seen, [1.0, 0.5])
        self.assertIsInstance(seen[0], float)

    def test_keys_that_an_attribute_adds(self):
        seen, adds = [], []

        def set_attribute(method, name, value):
            object.__setattr__(method, name, value)
            if name == "first" and adds:
                options = adds.pop()
                for number in range(300):  # more than the table has room for
                    options.add(f"more_{number}", number, help="a count")

        def declare(method, options):
            fedavg.FedAvg.declare(method, options)
            adds.append(options)
            options.add("first", 1, help="a count")
            adds.clear()

        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            seen.append((method.first, method.more_299))

        self.run_with({"algorithm.first": 5, "algorithm.more_299": 7}, {"__setattr__": set_attribute}, declare=declare,
                      initialise=initialise)
        self.assertEqual(seen, [(5, 7)])


class OnRanks(InFolder):
    def test_a_refusal_of_one_rank(self):
        """The others do not wait for it till run.collective_timeout."""
        script = (f"import os, sys; sys.path.insert(0, {FOLDER!r})\nimport fedavg, fedhpc\n"
                  "@fedhpc.algorithm('picky', 'FedAvg that refuses on one rank')\n"
                  "class Picky(fedavg.FedAvg):\n"
                  "    def initialise(self, setup):\n"
                  "        super().initialise(setup)\n"
                  "        if 0 not in setup.store.clients:\n"
                  "            raise fedhpc.ConfigError('this rank lacks client 0')\n"
                  "try:\n"
                  "    fedhpc.run({**%r, 'algorithm.name': 'picky', 'run.output': 'run.h5',\n"
                  "                'run.collective_timeout': 20}, progress=False)\n"
                  "except fedhpc.ConfigError as error:\n"
                  "    print('refused:', error, flush=True)\n" % (TINY,))
        done = python(script, ranks=2)
        self.assertEqual((done.returncode, done.stdout.count("refused: this rank lacks client 0")), (0, 2), done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
