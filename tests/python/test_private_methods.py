"""privacy.* with methods in Python: what a method tells of itself is held against what it does."""

import unittest

import h5py
import numpy as np

import fedhpc
from python_support import TINY, InFolder


def averaging(round_of_block, uploads=1, **attributes):
    """Registers a method `private` that adds round_of_block(method, block, update) for each block of a round."""
    class Private(fedhpc.Algorithm):
        averaged_uploads = uploads

        def initialise(self, setup):
            self.model = setup.initial_model()

        def round(self, round):
            update = round.mean()
            for block in round.blocks():
                round_of_block(self, block, update)
            self.model += update.reduce()

        def evaluate(self, evaluation):
            evaluation.global_model(self.model)

        def visit_state(self, state):
            self.model = state.rows("global", self.model)

    for name, value in attributes.items():
        setattr(Private, name, value)
    fedhpc.algorithm("private", "averages changes")(Private)
    return Private


class Private(InFolder):
    def setUp(self):
        super().setUp()
        self.addCleanup(averaging, lambda *_: None)

    def go(self, **keys):
        return fedhpc.run({**TINY, "algorithm.name": "private", "run.output": "private.h5", "run.rounds": 1,
                           "privacy.clip": 0.5, "privacy.noise": 1, "run.checkpoint_every": 0, **keys},
                          progress=False, force=True)

    def refused(self, sentence, **keys):
        with self.assertRaisesRegex(fedhpc.Error, sentence):
            self.go(**keys)

    def test_each_upload_of_a_round_has_noise_of_its_own(self):
        seen = []

        def work(method, block, update):
            start = block.download(method.model)
            change = block.train(start) - start
            first, second = (block.upload(one).values.sum(0) for one in (change, -1.0 * change))
            seen.append((first, second))
            update.add(block.weights("uniform"), change)

        averaging(work, uploads=2)
        with h5py.File(self.go().path) as file:
            of_two = file["rounds/epsilon"][-1]
        first, second = (sum(parts) for parts in zip(*seen))
        deviation = 0.5
        for one in (first, second, first + second):
            self.assertGreater(one.std(), 0.7 * deviation)
        self.assertLess(abs(np.corrcoef(first, second)[0, 1]), 0.3)
        with h5py.File(fedhpc.run({**TINY, "algorithm.weighting": "uniform", "run.output": "one.h5", "run.rounds": 1,
                                   "privacy.clip": 0.5, "privacy.noise": 0.5**0.5}, progress=False).path) as file:
            self.assertAlmostEqual(of_two, file["rounds/epsilon"][-1], delta=1e-9 * of_two)

    def test_uploads_are_counted(self):
        def sends(times):
            def work(method, block, update):
                start = block.download(method.model)
                change = block.train(start) - start
                for _ in range(times):
                    block.upload(change)
                update.add(block.weights("uniform"), change)
            return work

        averaging(sends(2))
        self.refused("for the 1 changes .* it has sent 2; tell of all")
        averaging(sends(2), uploads=2)
        self.go()
        averaging(sends(0))
        self.refused("it has sent 0")
        averaging(sends(1), uploads=1, tiers="client-edge-cloud")
        self.refused("privacy.clip.* has no effect with algorithm.name = private", **{"topology.edges": 2})
        averaging(sends(1), uploads=1, cohorts_in_round=2)
        self.refused("privacy.clip.* has no effect with algorithm.name = private")

    def test_uploads_before_the_first_round_are_refused(self):
        def work(method, block, update):
            start = block.download(method.model)
            update.add(block.weights("uniform"), block.upload(block.train(start) - start))

        def prepare(method, everybody):
            update = everybody.mean()
            for block in everybody.blocks():
                work(method, block, update)
            method.model += update.reduce()

        averaging(work, prepare=prepare)
        self.refused(r"the method uploads in prepare\(\), of which epsilon knows nothing; upload in round\(\)")
        self.go(**{"privacy.clip": None, "privacy.noise": None})

    def test_uploads_of_past_rounds_keep_their_epsilon(self):
        def work(method, block, update):
            start = block.download(method.model)
            update.add(block.weights("uniform"), block.upload(block.train(start) - start))

        averaging(work)
        self.go(**{"run.checkpoint_every": 1})
        averaging(work, uploads=2)
        with self.assertRaisesRegex(fedhpc.DataError, "averaged_uploads = 1, and it has 2 now: epsilon of past rounds"):
            fedhpc.resume("private.h5", progress=False, **{"run.rounds": 2})

    def test_whole_models_and_unequal_weights_are_refused(self):
        def models(method, block, update):
            update.add(block.weights("uniform"), block.upload_models(block.train(block.download(method.model))))

        averaging(models)
        self.refused("shortens changes, and the method sends whole models")

        def by_samples(method, block, update):
            start = block.download(method.model)
            update.add(block.weights(), block.upload(block.train(start) - start))

        averaging(by_samples)
        keys = {"data.partition": "dirichlet", "data.alpha": 1, "data.samples_per_client": 60}
        self.refused("holds for equal weights, and in a mean of the method .* participants weigh up to", **keys)
        self.go(**keys, **{"privacy.noise": 0})

    def test_noise_that_some_would_not_send_is_refused(self):
        def of_some(method, block, update):
            some = block.only([int(client) for client in block.clients if client % 2 == 1])
            start = some.download(method.model)
            update.add(some.weights("uniform"), some.upload(some.train(start) - start))

        averaging(of_some)
        self.refused("holds for equal weights")
        self.go(**{"privacy.noise": 0})

        def of_some_for_all(method, block, update):
            start = block.download(method.model)
            change = block.train(start) - start
            block.only([int(client) for client in block.clients if client % 2 == 1]).upload(change.at(
                [place for place, client in enumerate(block.clients) if client % 2 == 1]))
            update.add(block.weights("uniform"), change)

        averaging(of_some_for_all)
        self.refused("every participant sends as many changes")

        def without_the_first(method, block, update):
            start = block.download(method.model)
            weights = [0.0 if client == 0 else 1.0 for client in block.clients]
            update.add(weights, block.upload(block.train(start) - start))

        averaging(without_the_first)
        self.refused("holds for equal weights")

    def test_what_the_server_changes_is_not_what_the_client_keeps(self):
        def work(method, block, update):
            start = block.download(method.model)
            change = block.train(start) - start
            before = change.values.copy()
            arrived = block.upload(change)
            self.assertEqual(change.values.tobytes(), before.tobytes())
            self.assertFalse(np.array_equal(arrived.values, before))
            update.add(block.weights("uniform"), arrived)

        averaging(work)
        self.go(**{"privacy.clip": 1e-3})

    def test_a_change_without_a_length_is_none(self):
        def work(method, block, update):
            start = block.download(method.model)
            change = block.train(start) - start
            if 0 in list(block.clients):
                change.values[list(block.clients).index(0)] = np.nan
            update.add(block.weights("uniform"), block.upload(change))

        averaging(work)
        results = self.go()
        self.assertGreaterEqual(results.rounds["clipped"].iloc[0], 1 / 5)
        with h5py.File("private.h5") as file:
            self.assertTrue(all(np.isfinite(one[...]).all() for one in file["model/global"].values()))


class Channels(InFolder):
    def test_two_payloads_of_a_codec_with_error_feedback_are_refused(self):
        def work(method, block, update):
            start = block.download(method.model)
            change = block.train(start) - start
            block.upload(change, method.codec)
            update.add(block.weights(), block.upload(change, method.codec))

        def initialise(method, setup):
            method.model = setup.initial_model()
            method.codec = setup.open_links(method.model)

        averaging(work, uploads=0, initialise=initialise,
                  declare=lambda method, options: options.averaging(payloads="changes"))
        self.addCleanup(averaging, lambda *_: None)
        keys = {**TINY, "algorithm.name": "private", "run.output": "twice.h5"}
        fedhpc.run(keys, progress=False, force=True)
        with self.assertRaisesRegex(fedhpc.ConfigError, "two payloads of a round by one codec"):
            fedhpc.run({**keys, "algorithm.codec": "top_k", "algorithm.error_feedback": "ef14"}, progress=False, force=True)


if __name__ == "__main__":
    unittest.main()
