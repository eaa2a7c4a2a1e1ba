"""The GP classifier's probabilities against the exact posterior, by integration over the latent values in numpy.

    gp_numpy_test.py GP_NUMBERS [unittest arguments]
"""

import itertools
import subprocess
import sys
import unittest

import numpy as np

program = ""
DRAWS, STEPS = 2500, 12
BOUND = 0.006  # of a mean over so many draws: five deviations of the widest


def probabilities(labels, known, scored, kernel, classes, averaging="probability"):
    sizes = [len(labels), len(scored), known.shape[1], classes]
    words = [program, *kernel, DRAWS, STEPS, averaging, *sizes]
    numbers = [*labels, *known.ravel().tolist(), *scored.ravel().tolist()]
    result = subprocess.run([str(word) for word in words], input=" ".join(repr(n) for n in numbers), text=True,
                            capture_output=True, check=True)
    return np.exp(np.array(result.stdout.split(), dtype=float)).reshape(len(scored), classes)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def covariance(a, b, outputscale, lengthscale):
    squares = ((a[:, None] - b[None]) ** 2).sum(2)
    return outputscale * np.exp(-squares / (2 * lengthscale**2))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def exact(sides, known, scored, kernel, nodes=30):
    """P(side = 1) at `scored` by Gauss-Hermite quadrature over all latent values at `known`."""
    outputscale, lengthscale, jitter = kernel
    known, scored = unit(known), unit(scored)
    k = covariance(known, known, outputscale, lengthscale) + jitter * np.eye(len(known))
    cross = covariance(known, scored, outputscale, lengthscale)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    whitened = np.array(list(itertools.product(x, repeat=len(known))))  # of f = L z
    weight = np.array(list(itertools.product(w, repeat=len(known)))).prod(1)
    f = whitened @ np.linalg.cholesky(k).T
    weight = weight * sigmoid(f * sides).prod(1)
    mean = f @ np.linalg.solve(k, cross)
    variance = outputscale + jitter - (cross * np.linalg.solve(k, cross)).sum(0)
    at = mean[:, :, None] + np.sqrt(variance)[None, :, None] * x
    return (weight[:, None] * (sigmoid(at) * w).sum(2)).sum(0) / weight.sum()


class Posterior(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(5)

    def compare(self, labels, kernel):
        known = self.random.normal(size=(len(labels), 3))
        scored = self.random.normal(size=(6, 3))
        actual = probabilities(labels, known, scored, kernel, max(labels) + 1)
        sides = np.where(np.array(labels) == min(labels), 1, -1)
        expected = exact(sides, known, scored, kernel)
        self.assertGreater(np.ptp(expected), 0.03)
        np.testing.assert_allclose(actual[:, min(labels)], expected, atol=BOUND)
        np.testing.assert_allclose(actual[:, max(labels)], 1 - expected, atol=BOUND)

    def test_two_samples(self):
        self.compare([0, 1], (8, 1, 1e-3))

    def test_three_samples(self):
        self.compare([1, 4, 1], (8, 1, 1e-3))

    def test_steep_and_narrow(self):
        self.compare([2, 0, 2], (3, 0.6, 0.1))

    def test_three_classes_multiply_along_the_tree(self):
        """Classes 0 and 1 are near each other: 2 parts from them first."""
        known = np.array([[1, 0, 0.1], [0.9, 0.3, 0], [-1, 0.2, 0.4]])
        scored = self.random.normal(size=(5, 3))
        kernel = (5, 1, 1e-3)
        actual = probabilities([0, 1, 2], known, scored, kernel, 3)
        low = exact(np.array([1, 1, -1]), known, scored, kernel)
        zero = exact(np.array([1, -1]), known[:2], scored, kernel)
        np.testing.assert_allclose(actual, np.stack([low * zero, low * (1 - zero), 1 - low], 1), atol=BOUND)

    def test_mean_of_logarithms_is_less(self):
        known, scored = self.random.normal(size=(3, 3)), self.random.normal(size=(4, 3))
        usual = probabilities([0, 1, 0], known, scored, (8, 1, 1e-3), 2)
        logs = probabilities([0, 1, 0], known, scored, (8, 1, 1e-3), 2, "log")
        self.assertTrue((logs[:, 0] < usual[:, 0]).all())
        np.testing.assert_allclose(logs.sum(1), 1, atol=1e-9)


if __name__ == "__main__":
    program = sys.argv.pop(1)
    unittest.main()
