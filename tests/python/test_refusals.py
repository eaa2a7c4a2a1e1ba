"""Methods in Python that are wrong without a crash: what would be lost, overwritten or counted twice is refused."""

import unittest

import numpy as np

import fedhpc
from test_misuse import EDGES, Misuse
import fedavg

try:
    import torch
except ImportError:
    torch = None


class OfRounds(Misuse):
    def test_a_round_kept_from_a_run(self):
        kept = []

        def round(method, round):
            fedavg.FedAvg.round(method, round)
            kept.append(round)

        self.run_with(round=round)
        for ids in ([0], []):
            self.refused("this round is over", kept[0].coupling, ids)

    def test_couplings_in_a_loop(self):
        def round(method, round):
            coupling = round.coupling([0, 1])
            rows, whole = method.model.replicate(2), np.eye(2)
            columns = coupling.to_columns(rows)
            verbs = {"all_rows": [whole], "squared_distances": [rows, rows], "dots": [rows, rows], "mix": [whole, rows],
                     "approach": [whole, rows], "to_columns": [rows], "from_columns": [rows, columns],
                     "over_pairs": [[whole, whole], 2, lambda a, b: 1.0]}
            for block in round.blocks():
                for verb, arguments in verbs.items():
                    self.refused(f"coupling.{verb} came before round.blocks.. had given its last",
                                 getattr(coupling, verb), *arguments)
                self.assertEqual((len(coupling), coupling.ids.tolist()), (2, [0, 1]))
            for verb, arguments in verbs.items():
                getattr(coupling, verb)(*arguments)

        self.run_with({"train.block": 2}, round=round)

    def test_notes_of_both_kinds(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            for name in ("first", "second", "alone"):
                setup.add_metric(name)
            setup.add_metric("spread", quantiles=True)

        def round(method, round):
            round.note("alone", 3.0)
            round.note("alone", 4.0)
            round.note("second", 7.0)
            self.refused("round.note: 'spread' has quantiles", round.note, "spread", 7.0, kind=ValueError)
            for block in round.blocks():
                block.note("first", [1.0] * len(block))
                self.refused("block.note: 'second' has a value of the round", block.note, "second", [1.0] * len(block),
                             kind=ValueError)
            self.refused("round.note: 'first' has values of its parts", round.note, "first", 7.0, kind=ValueError)

        rounds = self.run_with({"run.rounds": 2}, initialise=initialise, round=round).rounds
        self.assertEqual(rounds[["first", "second", "alone"]].values.tolist(), [[1.0, 7.0, 4.0]] * 2)

    def test_of_edges(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            setup.add_metric("em")

        def round(method, round):
            edges = round.edges
            self.refused("edges.rounds wants a count from 0 on, got -1", edges.rounds, -1, lambda: None,
                         kind=ValueError)
            self.refused("edges.note wants 2 numbers, got 5", edges.note, "em", [1.0] * 5, kind=ValueError)
            for block in round.blocks():
                rows = block.download(method.model)
                for edge in (99, -1, 2):
                    self.refused(f"add wants edges of this rank, 0 to 1, got {edge}$", edges.mean().add,
                                 [edge] * len(block), block.weights(), rows, kind=ValueError)
            edges.note("em", [1.0, 2.0])

        self.run_with(EDGES, {"tiers": "client-edge-cloud"}, initialise=initialise, round=round)


class OfEvaluations(Misuse):
    def test_models_that_are_handed_over_twice(self):
        def evaluate(method, evaluation):
            def again(block):
                rows = method.model.replicate(len(block))
                block.evaluate(rows)
                refused("block.evaluate", block.evaluate, rows)
                refused("evaluation.each_block", evaluation.each_block, again)

            evaluation.global_model(method.model)
            refused("evaluation.global_model", evaluation.global_model, method.model)
            evaluation.each_block(again)
            refused("evaluation.each_block", evaluation.each_block, again)

        def refused(verb, call, *arguments):
            self.refused(f"{verb} was called before; it hands over models once", call, *arguments, kind=ValueError)
            told.add(verb)

        told = set()
        self.run_with(attributes={"models": "both"}, evaluate=evaluate)
        self.assertEqual(len(told), 3)


class OfRows(Misuse):
    """What is refused of rows and numbers, whatever the round."""

    def of(self, look):
        """Calls look(rows [4, P], method) in a round."""
        self.in_blocks(lambda method, block: look(method.model.replicate(4), method))

    def test_that_overlap(self):
        def look(rows, method):
            to, other = rows[1:4], rows[0:3]
            before = rows.values.copy()
            part = fedhpc.RowPart(rows)
            for sentence, call in (
                    ("rows.add ", lambda: to.add(other)), ("rows.add ", lambda: to.add(other, [1.0, 2.0, 3.0])),
                    ("rows.approach", lambda: to.approach(other, 0.5)), ("rows.assign", lambda: to.assign(other)),
                    ("rows.assign", lambda: to.assign(rows[1])),
                    ("rows.add_difference", lambda: to.add_difference(other, to)),
                    ("rows.add_difference", lambda: to.add_difference(to, other)),
                    ("rows.copy_columns", lambda: to.copy_columns(other, "head")),
                    ("rows.descend's centre", lambda: to.descend(0.1, mu=1.0, centre=other)),
                    ("rows .= rows", lambda: to.__iadd__(other)), ("rows .= rows", lambda: to.__isub__(other)),
                    ("rows .= rows", lambda: to.__imul__(other)), ("rows .= rows", lambda: to.__itruediv__(other)),
                    (r"rows\[places\] = rows", lambda: rows.__setitem__(slice(1, 4), other)),
                    ("part.put", lambda: part.put(to, other)),
                    ("part.add_two", lambda: part.add_two(to, other, 1.0, to, 1.0, to)),
                    ("part.add_two", lambda: part.add_two(to, to, 1.0, other, 1.0, to)),
                    ("optimizer.step", lambda: sgd(rows, to).step(to, other))):
                self.refused(f"^{sentence}.*wants rows that are the same or lie apart, got some that overlap", call,
                             kind=ValueError)
            np.testing.assert_array_equal(rows.values, before)
            to.add(to)
            to.approach(to, 0.5)
            to.add_difference(to, to)
            rows[1:4] = to
            rows[0:2].add(rows[2:4])
            rows[[1, 0]] = rows[[0, 1]].clone()
            np.testing.assert_array_equal(rows[3].values, 2 * before[3:])

        def sgd(rows, moved):
            optimizer = fedhpc.Optimizer("sgd", rows, lr=0.1)
            optimizer.reset(moved)
            return optimizer

        self.of(look)

    def test_that_are_named_twice(self):
        def initialise(method, setup):
            fedavg.FedAvg.initialise(method, setup)
            method.own, method.times = setup.store.rows("own", method.model), setup.store.scalars("times")

        def round(method, round):
            two = method.model.replicate(2)
            for sentence, call in (("rows.write wants each client once, got 0 twice",
                                    lambda: method.own.write([0, 0], two)),
                                   ("scalars.write wants each client once, got 1 twice",
                                    lambda: method.times.write([1, 1], [1.0, 2.0])),
                                   ("wants each place once, got 0 twice",
                                    lambda: two.__setitem__([0, 0], two.clone()))):
                self.refused(sentence, call, kind=ValueError)
            fedavg.FedAvg.round(method, round)

        self.run_with(initialise=initialise, round=round)

    def test_numbers_of_other_kinds(self):
        def look(rows, method):
            numbers, shape = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [1, 0, 0, 0]), rows.shape
            for call in (lambda: fedhpc.RowNumbers(numbers), lambda: rows.scale(numbers),
                         lambda: rows.like(np.ma.masked_array(rows.values, np.zeros(shape, bool)))):
                self.refused("wants an array without a mask; array.filled", call, kind=TypeError)
            for value in (np.ones(4, complex), [1j] * 4, [np.complex64(1)] * 4, np.complex64(1), np.complex128(1), 1j):
                self.refused("complex", rows.scale, value, kind=TypeError)
            self.refused("RowNumbers wants real numbers", fedhpc.RowNumbers, np.ones(4, "c8"), kind=TypeError)
            for wrong in ([[1.0], [1.0, 2.0]], ["1"] * 4, np.array(["1"] * 4), np.ones((4, 1)), [None] * 4):
                self.refused("wants a list or an array .C. of numbers", fedhpc.RowNumbers, wrong, kind=TypeError)
            for rho in (0.0, -1.0, np.nan):
                self.refused("rows.smoothed_l1 wants rho above 0", rows.smoothed_l1, rho, kind=ValueError)
            for threshold in (-1.0, np.nan):
                self.refused("rows.zero_small wants threshold of at least 0", rows.zero_small, threshold,
                             kind=ValueError)

        self.of(look)

    def test_types_are_said(self):
        def round(method, round):
            rows, mean = method.model.replicate(2), round.column_mean()
            self.refused(r"wants an array of bool \[2, \d+\], got one of numbers \[2, ", mean.add, [1.0, 1.0], rows,
                         np.ones(rows.shape), kind=ValueError)
            self.refused("got int32$", rows.like, np.ones(rows.shape, "i4"), kind=TypeError)
            if torch:
                self.refused("got bfloat16$", rows.like, torch.ones(rows.shape, dtype=torch.bfloat16), kind=TypeError)
            fedavg.FedAvg.round(method, round)

        self.run_with(round=round)

    @unittest.skipUnless(torch, "this Python has no torch")
    def test_numbers_of_torch_are_taken(self):
        def look(rows, method):
            before = rows.values.copy()
            for kind in (torch.float32, torch.float64, torch.int64):
                rows.scale(torch.full((4,), 2, dtype=kind))
            np.testing.assert_array_equal(rows.values, 8 * before)
            self.refused("wants 4 numbers, got 3", rows.scale, torch.ones(3), kind=ValueError)

        self.of(look)

    def test_arrays_that_would_be_copies(self):
        def look(method, block):
            start = block.download(method.model)
            self.assertTrue(np.shares_memory(np.asarray(start, copy=False), start.values))

            def take(step):
                gradient = step.gradient(start)
                np.asarray(gradient)
                self.refused("copy=False", np.asarray, gradient, copy=False, kind=ValueError)

            block.each_step(take)
            numbers = start.squared_lengths()
            np.testing.assert_array_equal(np.asarray(numbers), np.array(numbers, copy=True))
            self.refused("copy=False", np.asarray, numbers, copy=False, kind=ValueError)

        if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            self.in_blocks(look)


class OfSetups(Misuse):
    def test_clusters_of_a_codec(self):
        for k in (0, -5, 2**40):
            self.refused(f"k from 1 to 65536 clusters, and not {k}$", fedhpc.codec, "kmeans", k,
                         kind=fedhpc.ConfigError)

    def test_names_of_links(self):
        for name in ("upload_feedback", "downlink", "downlink_1"):
            def initialise(method, setup, name=name):
                fedavg.FedAvg.initialise(method, setup)
                setup.store.rows(name, method.model)

            self.refused(f"store.rows: '{name}' is a name of fedhpc's own", self.run_with, initialise=initialise,
                         kind=ValueError)


if __name__ == "__main__":
    unittest.main()
