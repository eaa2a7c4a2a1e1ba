"""The rows and configurations of the similarity-network method: a protocol of ours, the paper has no results.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import sys
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
from fedhpc.tools.configuration import read_config  # noqa: E402
from fedhpc.tools.method_keys import acting  # noqa: E402
from fedhpc.tools import paper_table  # noqa: E402

CONFIGS = ROOT / "configs" / "papers" / "simnet"
ROWS = paper_table.read_rows(ROOT / "tools" / "papers" / "simnet.csv")


class SimnetRows(unittest.TestCase):
    def jobs(self):
        return [(row, paper_table.make_job(row, 2, True, CONFIGS, "out").expected) for row in ROWS]

    def test_rows(self):
        self.assertEqual(Counter((row.table, row.dataset) for row in ROWS),
                         {("bits", "covtype_like"): 42, ("personal", "mnist"): 14, ("personal", "fmnist"): 14})
        for row in ROWS:
            self.assertEqual((row.paper, row.spread, row.seconds, row.pick), (None, None, None, "last"), row)
            self.assertEqual(row.state, "ready", row)
        lines = [paper_table.table_line(row, [], None) for row in ROWS]
        self.assertEqual({(line[4], line[6]) for line in lines}, {("-", "-")})  # the paper's value, the difference

    def test_every_configuration_is_used(self):
        self.assertEqual({path.name for path in CONFIGS.glob("*.ini")}, {row.config for row in ROWS})
        for row, expected in self.jobs():
            self.assertEqual((expected["algorithm.name"], expected["data.name"]), (row.method, row.dataset), row)
            config = acting(read_config(CONFIGS / row.config), {})
            for key in (override.split("=")[0] for override in row.overrides):
                self.assertIn(key, {*config, "algorithm.k"}, row)  # k acts with the rows' codec alone

    def test_methods_are_compared_alike(self):
        """Data, network, batches, rate and the number of local steps in all are those of the others."""
        alike = {}
        for row, expected in self.jobs():
            steps = int(expected["run.rounds"]) * int(expected["train.local_steps"])
            shared = {key: value for key, value in expected.items()
                      if key.split(".")[0] in ("data", "model", "train") and key != "train.local_steps"}
            self.assertEqual(alike.setdefault((row.dataset, row.setting), (steps, shared)), (steps, shared), row)
            self.assertEqual(int(expected["run.rounds"]) % int(expected["run.eval_every"]), 0, row)

    def test_grid_of_bits(self):
        grid = set()
        for row, expected in self.jobs():
            if row.table != "bits" or row.method != "simnet":
                continue
            self.assertEqual(expected["algorithm.personal"], "none", row)
            gamma, codec = row.variant.removeprefix("gamma").split("_", 1)
            self.assertEqual(expected["algorithm.gamma"], gamma, row)
            if expected["algorithm.codec"] == "kmeans":
                self.assertEqual(codec, "k" + expected["algorithm.k"], row)
            else:
                self.assertEqual(codec, expected["algorithm.codec"], row)
            grid.add((gamma, codec, row.metric))
        gammas, codecs = {key[0] for key in grid}, {key[1] for key in grid}
        self.assertEqual(codecs, {"dense", "run_length", "k3", "k4", "k16"})
        self.assertIn("0", gammas)
        self.assertEqual(len(grid), 2 * len(gammas) * len(codecs))

    def test_personal_rate_is_a_clients_own(self):
        """personal_lr / N = train.lr: alone, a client's classifier has the rate that it has elsewhere."""
        for row, expected in self.jobs():
            if row.table == "personal" and row.method == "simnet":
                own = float(expected["algorithm.personal_lr"]) / float(expected["data.clients"])
                self.assertAlmostEqual(own, float(expected["train.lr"]), msg=str(row))


if __name__ == "__main__":
    unittest.main()
