"""Differential privacy of a run, accounted for with numpy alone: the Renyi divergences are integrals of the two
densities, and no sum over binomials as in the program.
"""

import json

import h5py
import numpy as np
from app_support import SMALL_RUN, AppCase, edited, fedhpc, main

# Orders: include/fedhpc/math/privacy_accountant.hpp.
ORDERS = np.concatenate([np.arange(11, 641) / 10, np.arange(65, 513)])
PRINTED = 5e-6  # six digits


def log_moment(order, q, z):
    """log E[(p(x) / p0(x))^order] over x of p0 = N(0, z^2), where p = (1 - q) p0 + q N(1, z^2)."""
    x = np.linspace(-40 * z, order + 40 * z, 20001)
    with np.errstate(divide="ignore"):
        ratio = np.logaddexp(np.log(1 - q), np.log(q) + (2 * x - 1) / (2 * z**2))
    values = order * ratio - x**2 / (2 * z**2) - np.log(z * np.sqrt(2 * np.pi))
    return values.max() + np.log(np.sum(np.exp(values - values.max())) * (x[1] - x[0]))


def epsilons(q, z, delta, releases):
    """Epsilon after each of these numbers of releases."""
    moments = [log_moment(order, q, z) for order in ORDERS]
    of_one = np.minimum(moments, ORDERS * (ORDERS - 1) / (2 * z**2)) / (ORDERS - 1)
    rest = np.log((ORDERS - 1) / ORDERS) - (np.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return np.maximum(np.min(np.outer(releases, of_one) + rest, axis=1), 0)


class NumpyPrivacy(AppCase):
    def arguments(self, participation, noise, delta, rounds, *more):
        return [self.ini(SMALL_RUN), "--algorithm.weighting=uniform", "--privacy.clip=0.5",
                f"--topology.participation={participation}", f"--privacy.noise={noise}", f"--privacy.delta={delta}",
                f"--run.rounds={rounds}", *more]

    def planned(self, *arguments):
        return json.loads(self.run_ok("plan", "--json", *self.arguments(*arguments)).stdout)["epsilon"]

    def test_a_plan_tells_the_epsilon_of_all_rounds(self):
        # 6 clients, of which 1, 2 or all take part
        for participation, q, noise, delta, rounds in ((0.1, 1 / 6, 0.7, 1e-3, 40), (0.1, 1 / 6, 0.3, 1e-3, 9), (0.3, 1 / 3, 1, 1e-5, 1),
                                                       (0.3, 1 / 3, 4, 1e-9, 300), (1, 1, 4, 1e-5, 30)):
            with self.subTest(participation=participation, noise=noise, delta=delta, rounds=rounds):
                expected, = epsilons(q, noise, delta, [rounds])
                told = self.planned(participation, noise, delta, rounds)
                np.testing.assert_allclose(told, expected, rtol=PRINTED)

    def test_a_run_notes_the_epsilon_of_every_round(self):
        for method, participation, q, ranks in (("fedavg", 0.3, 1 / 3, 0), ("ditto", 1, 1, 2)):
            with self.subTest(method):
                run = self.arguments(participation, 2, 1e-6, 7, f"--algorithm.name={method}", "--run.output=run.h5",
                                     "--run.checkpoint_every=4", "--run.eval_every=3", "--force")
                self.run_ok("run", *run, ranks=ranks)
                expected = epsilons(q, 2, 1e-6, range(1, 12))
                self.check_series(expected[:7])
                self.run_ok("resume", "run.h5", "--run.rounds=11", ranks=ranks)
                self.check_series(expected)

    def check_series(self, expected):
        with h5py.File(self.folder / "run.h5") as file:
            np.testing.assert_allclose(file["rounds/epsilon"], expected, rtol=1e-9)

    def test_a_checkpoint_of_cohorts_of_a_fixed_size_is_refused(self):
        self.run_ok("run", *self.arguments(0.3, 2, 1e-6, 2, "--run.output=run.h5"))
        with edited(self.folder / "run.ckpt.2.h5") as file:
            del file["state"].attrs["averaged_uploads"]  # as of fedhpc before it drew each client by itself
        done = fedhpc("resume", "run.h5", "--run.rounds=3", cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("has cohorts of a fixed size, of which epsilon is no bound; begin the run anew", done.stderr)

    def test_a_plan_has_room_for_large_cohorts(self):
        """Of 1000 clients one takes part in the mean, and up to 25 may."""
        keys = [self.ini(SMALL_RUN), "--data.clients=1000", "--topology.participation=0.001", "--model.hidden=20000",
                "--algorithm.weighting=uniform", "--privacy.clip=1", "--algorithm.name=ditto", "--run.rounds=1"]
        rows = {noise: json.loads(self.run_ok("plan", "--json", *keys, f"--privacy.noise={noise}").stdout)
                for noise in (0, 1)}
        self.assertGreater(rows[1]["memory_per_rank_bytes"], 1.2 * rows[0]["memory_per_rank_bytes"])

    def test_without_noise_there_is_none(self):
        told = json.loads(self.run_ok("plan", "--json", self.ini(SMALL_RUN), "--privacy.clip=0.5").stdout)
        self.assertNotIn("epsilon", [*told, *told["metrics"]])


if __name__ == "__main__":
    main()
