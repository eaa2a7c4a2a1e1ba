"""Tests of compare.py.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import unittest
import unittest.mock
import warnings

import h5py
import numpy as np
from tool_support import Folder, add_clients, call, write_run

from fedhpc.tools import compare


class Compare(Folder):
    def run_with(self, name, weight=1.0, config="[algorithm]\nname=fedavg\n", personal=None, **columns):
        """A result file with a model of two parameters, one of them this weight."""
        path = write_run(self.folder / name, config=config, **columns)
        with h5py.File(path, "a") as file:
            file["model/global/fc1.weight"] = np.array([[3.0, 4.0 * weight], [0.0, 0.0]], dtype=np.float32)
            file["model/global/fc1.bias"] = np.zeros(2, dtype=np.float32)
            file["model/init/global/fc1.bias"] = np.full(2, weight)  # not the final model
            if personal is not None:
                file["model/personal/fc1.bias"] = personal
        return path

    def compared(self, *arguments):
        code, out, error = call(compare, *arguments)
        self.assertEqual(error, "")
        self.assertEqual(out.splitlines()[-1], "different" if code else "equal")
        return code, out

    def test_other_blocks_explain_rounding(self):
        a = self.run_with("a.h5", attributes={"block": 1, "ranks": 2})
        b = self.run_with("b.h5", 1.0 + 1e-6, attributes={"block": 4, "ranks": 2})
        code, out = self.compared(a, b)
        self.assertEqual(code, 1)
        self.assertIn("within rounding; blocks differ (--tolerance 1e-05", out)
        self.assertEqual(self.compared(a, b, "--tolerance", "1e-5")[0], 0)
        far = self.run_with("far.h5", 1.001, attributes={"block": 4, "ranks": 2})
        same = self.run_with("same.h5", 1.0 + 1e-6, attributes={"block": 1, "ranks": 2})
        for other in (far, same):
            self.assertNotIn("within rounding", self.compared(a, other)[1])

    def test_equal_but_for_the_clock_and_the_output(self):
        a = self.run_with("a.h5", config="[run]\noutput=a.h5\n")
        b = self.run_with("b.h5", config="[run]\noutput=b.h5\n", wall_seconds=np.full(40, 9.0))
        code, out = self.compared(a, b)
        self.assertEqual(code, 0)
        self.assertIn("equal bit for bit", out)
        self.assertIn("of the machine", out)
        self.assertRegex(out, r"run\.output +a\.h5 +b\.h5")

    def test_first_and_largest_difference(self):
        losses = 2.0 / np.arange(1, 41)
        other = losses.copy()
        other[6] += 0.5
        other[20:] *= 1.01
        code, out = self.compared(self.run_with("a.h5"), self.run_with("b.h5", train_loss=other))
        self.assertEqual(code, 1)
        line = next(line for line in out.splitlines() if "train_loss" in line)
        self.assertEqual(line.split()[:2] + line.split()[3:], ["train_loss", "0.5", "7"])
        self.assertAlmostEqual(float(line.split()[2]), 0.5 / other[6], places=3)

    def test_tolerance(self):
        a = self.run_with("a.h5")
        b = self.run_with("b.h5", weight=1.0 + 1e-5, train_loss=2.0 / np.arange(1, 41) * (1 + 1e-6))
        for tolerance, expected in ((0, 1), (1e-7, 1), (9e-6, 0), (1e-4, 0)):
            code, out = self.compared(a, b, "--tolerance", tolerance)
            self.assertEqual(code, expected, (tolerance, out))
            self.assertNotIn("rounds, without the machine's: equal bit for bit", out)

    def test_nan_equals_nan_and_no_number(self):
        self.assertEqual(compare.difference([1.0, np.nan], [1.0, np.nan]).first, -1)
        one = compare.difference([1.0, np.nan], [1.0, 2.0])
        self.assertEqual((one.absolute, one.relative, one.first), (np.inf, np.inf, 1))
        self.assertFalse(one.within(0.9))
        signs = compare.difference([0.0], [-0.0])
        self.assertEqual((signs.absolute, signs.relative, signs.first), (0.0, 0.0, 0))
        for pair in ((0.0, 1e-9), (1e-9, -0.0)):  # of one zero any other number is wholly different
            self.assertEqual(compare.difference(*([one] for one in pair)).relative, 1.0)
        self.assertTrue(compare.difference([1.0, 1.0], [1.0, 1.5]).within(0.34))
        self.assertFalse(compare.difference([1.0, 1.0], [1.0, 1.5]).within(0.33))

    def test_norm_of_the_models(self):
        code, out = self.compared(self.run_with("a.h5"), self.run_with("b.h5", weight=1.5))
        self.assertEqual(code, 1)
        self.assertIn("final model: ||A - B|| = 2, 0.298 of ||B||", out)  # |4 - 6| of sqrt(9 + 36)
        self.assertNotIn("fc1.bias", out)

    def test_infinite_parameters(self):
        inf = [np.inf, -np.inf, np.nan, 3.0]
        a, b = (self.run_with(name, personal=np.array(inf)) for name in ("a.h5", "b.h5"))
        other = self.run_with("c.h5", personal=np.array([np.inf, -np.inf, np.nan, 3.0 + 3e-6]))
        numbers = self.run_with("d.h5", personal=np.array([1.0, -np.inf, np.nan, 3.0]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, out = self.compared(a, b)
            self.assertEqual(code, 0)
            self.assertIn("final model: ||A - B|| = 0, 0 of ||B||, equal bit for bit", out)
            self.assertEqual([self.compared(a, other, "--tolerance", one)[0] for one in (1e-7, 1e-5)], [1, 0])
            for pair in ((a, numbers), (numbers, a)):
                code, out = self.compared(*pair, "--tolerance", 0.9)
                self.assertEqual(code, 1)
                self.assertIn("final model: ||A - B|| = inf, inf of ||B||", out)

    def test_large_models_are_read_in_slabs(self):
        values = np.random.default_rng(1).random((50, 7))
        a, b = self.run_with("a.h5", personal=values), self.run_with("b.h5", personal=values + 0.1 * (values > 0.9))
        whole = self.compared(a, b)
        with unittest.mock.patch.object(compare, "SLAB_BYTES", 200):
            self.assertEqual(self.compared(a, b), whole)
        self.assertEqual(whole[0], 1)

    def test_other_parameters_shapes_and_rounds(self):
        a, b = self.run_with("a.h5"), self.run_with("b.h5")
        with h5py.File(b, "a") as file:
            file["model/global/extra"] = [1.0]
            del file["model/global/fc1.bias"]
            file["model/global/fc1.bias"] = np.zeros(3, dtype=np.float32)
        code, out = self.compared(a, b)
        self.assertEqual(code, 1)
        self.assertIn("only in B", out)
        self.assertIn("shapes (2,) and (3,)", out)
        shorter = self.run_with("c.h5", rounds=30)
        code, out = self.compared(a, shorter)
        self.assertEqual(code, 1)
        self.assertIn("series of 30 rounds, without the machine's: different (A has 40, B 30)", out)

    def test_a_series_of_one_run_only(self):
        a, b = self.run_with("a.h5"), self.run_with("b.h5", density=np.full(40, 0.5))
        self.assertEqual(self.compared(a, b)[0], 1)
        self.assertEqual(self.compared(a, self.run_with("c.h5", density=np.full(40, np.nan)))[0], 0)

    def test_configuration_and_versions_are_shown_and_do_not_count(self):
        a = self.run_with("a.h5", config="[algorithm]\nmu=1\n", attributes={"ranks": 1, "git_commit": "abc",
                                                                                   "processor": "A, model 1"})
        b = self.run_with("b.h5", config="[train]\nlr=2\n", attributes={"ranks": 4, "git_commit": "abc"})
        code, out = self.compared(a, b)
        self.assertEqual(code, 0)
        self.assertRegex(out, r"algorithm\.mu +1 +\(absent\)")
        self.assertRegex(out, r"train\.lr +\(absent\) +2")
        self.assertRegex(out, r"ranks +1 +4")
        self.assertRegex(out, r"processor +A, model 1 +\(absent\)")
        self.assertNotIn("git_commit", out)

    def test_clients_when_asked(self):
        accuracy = np.linspace(0.1, 0.9, 20).reshape(4, 5)
        a, b, c = (add_clients(self.run_with(name, ), values, [10, 20, 30, 40])
                   for name, values in (("a.h5", accuracy), ("b.h5", accuracy), ("c.h5", accuracy + 0.01)))
        self.assertEqual(self.compared(a, c)[0], 0)
        self.assertEqual([self.compared(a, other, "--clients")[0] for other in (b, c)], [0, 1])
        self.assertEqual(call(compare, a, self.run_with("d.h5"), "--clients")[0], 2)
        for path in (a, b, c):  # of regressions
            with h5py.File(path, "a") as file:
                file.move("clients/accuracy", "clients/rmse")
        self.assertEqual([self.compared(a, other, "--clients")[0] for other in (b, c)], [0, 1])
        self.assertIn("rmse of clients: largest difference", self.compared(a, c, "--clients")[1])

    def test_a_run_that_goes_on_has_no_model_yet(self):
        path, _ = self.writer("live.h5", "round", "round")
        code, out = self.compared(path, path)
        self.assertEqual(code, 0)
        self.assertIn("not compared", out)

    def test_a_model_that_was_never_written_is_not_compared(self):
        a, b = (write_run(self.folder / name) for name in ("a.h5", "b.h5"))
        none = "final model: not compared: neither file has a model"
        self.assertIn(none, self.compared(a, b)[1])
        for path in (a, b):
            with h5py.File(path, "a") as file:
                file.create_dataset("model/global/fc1.bias", (2,), np.float32)  # room alone
        code, out = self.compared(a, b)
        self.assertEqual((code, none in out, "||A - B||" in out), (0, True, False))
        with h5py.File(b, "a") as file:
            file["model/global/fc1.bias"][...] = 0
        code, out = self.compared(a, b)
        self.assertEqual((code, "only in B" in out), (1, True))

    def test_refusals(self):
        good, text = self.run_with("a.h5"), self.folder / "text.h5"
        text.write_text("no", encoding="utf-8")
        for pair in ((good, text), (text, good), (good, self.folder / "none.h5")):
            code, out, error = call(compare, *pair)
            self.assertEqual((code, out, error.count("\n")), (2, "", 1))
            self.assertTrue(error.startswith("compare: "))
        for tolerance in ("-1", "1", "x"):
            with self.assertRaises(SystemExit) as end:
                call(compare, good, good, "--tolerance", tolerance)
            self.assertEqual(end.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
