"""Tests of the papers' tables and configurations, and of how a row becomes a run."""

import dataclasses
import re
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / "tools"
sys.path.insert(0, str(ROOT / "python"))
from fedhpc.tools import paper_table  # noqa: E402
from fedhpc.tools.configuration import read_config  # noqa: E402
from fedhpc.tools.method_keys import acting  # noqa: E402


# The papers' tables of results as printed, cell by cell: method, then its figures in the order of the columns.
PRINTED = {
    ("sfedhp", "I", "mnist setting1, mnist setting2"): """
        fedavg 91.63±0.12 94.31±0.08 | hierfavg 93.22±0.03 95.05±0.07 | fedprox 93.43±0.15 90.04±0.08
        pfedme 89.34±0.04 93.04±0.14 | sfedhp 94.93±0.03 97.66±0.06""",
    ("sfedhp", "I", "fmnist setting1, fmnist setting2"): """
        fedavg 79.11±0.09 84.48±0.06 | hierfavg 83.55±0.15 85.48±0.08 | fedprox 78.67±0.04 84.33±0.10
        pfedme 80.57±0.07 85.14±0.11 | sfedhp 85.64±0.04 89.29±0.05""",
    ("sfedhp", "I", "cifar10 setting1, cifar10 setting2"): """
        fedavg 42.36±0.19 81.74±0.17 | hierfavg 52.76±0.21 87.28±0.13 | fedprox 39.10±0.23 72.98±0.35
        pfedme 58.66±0.15 90.31±0.22 | sfedhp 78.44±0.08 94.09±0.10""",
    **{("sfedhp", table, data): text for table, data, text in (
        ("II", "mnist setting1", """
            fedavg 91.63 | hierfavg 93.22 | heurfedamp 97.11 98.55 | fedprox 93.43 | perfedavg 56.5 | pfedgp 98.12
            pfedme 98.8 98.92 98.91 97.6 52.07 88.83 89.34 89.06 80.12 10.41
            sfedhp 98.24 96.55 97.83 96.63 96.23 93.06 91.85 94.93 95.39 95.63"""),
        ("III", "mnist setting2", """
            fedavg 94.31 | hierfavg 95.05 | heurfedamp 97.65 98.8 | fedprox 90.04 | perfedavg 78.15 | pfedgp 99.18
            pfedme 99.17 99.38 99.39 98.72 52.08 91.14 91.60 93.04 89.47 10.53
            sfedhp 99.01 98.04 99.08 98.63 98.32 94.69 94.06 97.66 97.87 97.94"""),
        ("IV", "fmnist setting1", """
            fedavg 79.11 | hierfavg 83.55 | heurfedamp 95.00 98.28 | fedprox 78.67 | perfedavg 96.95 | pfedgp 98.88
            pfedme 98.84 98.80 98.81 98.90 98.94 79.76 80.22 79.66 80.19 80.57
            sfedhp 98.55 97.61 98.42 95.86 91.94 84.01 82.75 85.64 86.51 86.86"""),
        ("V", "fmnist setting2", """
            fedavg 84.48 | hierfavg 85.48 | heurfedamp 97.43 98.97 | fedprox 84.33 | perfedavg 96.47 | pfedgp 99.20
            pfedme 99.12 99.14 99.14 99.17 99.16 82.21 82.18 84.42 85.14 84.74
            sfedhp 98.93 98.5 98.98 96.73 93.35 85.73 83.7 89.29 89.47 89.05"""),
        ("VI", "cifar10 setting1", """
            fedavg 42.36 | hierfavg 52.76 | heurfedamp 71.36 82.26 | fedprox 39.10 | perfedavg 77.20 | pfedgp 85.14
            pfedme 85.46 85.45 87.33 88.36 88.45 34.75 43.26 48.25 52.39 58.66
            sfedhp 78.00 75.53 83.95 76.98 76.24 47.91 68.48 78.44 65.83 66.39"""),
        ("VII", "cifar10 setting2", """
            fedavg 81.74 | hierfavg 87.28 | heurfedamp 83.51 88.13 | fedprox 72.98 | perfedavg 84.92 | pfedgp 85.98
            pfedme 89.22 90.08 92.08 93.17 93.40 51.70 62.06 71.77 86.95 90.31
            sfedhp 88.44 88.86 92.39 93.16 93.98 83.17 87.62 92.42 93.27 94.09"""))},
    ("tdpfed", "II", "mnist even"): "tdpfed 98.97 99.07 99.08 98.07",
    ("tdpfed", "II", "cifar10 even"): "tdpfed 91.01 74.80 91.16 77.31",
    ("tdpfed", "III", "mnist even"): "fedavg 96.78 96.15 95.80 | pfedme 98.64 | tdpfed 99.04 99.16",
    ("tdpfed", "III", "cifar10 even"): "fedavg 83.43 61.00 55.51 | pfedme 91.41 | tdpfed 91.16 91.01",
    ("tdpfed", "IV", "mnist even"): "tdpfed 98.97 98.77 98.91 98.95 99.11 97.79 97.85 98.94 98.88",
    ("tdpfed", "IV", "cifar10 even"): "tdpfed 91.01 90.16 90.44 90.77 91.36 90.58 89.64 90.20 90.65",
    ("pfedsop", "II", "cifar10 dir, cifar10 path"): """
        fedavg 73.12 71.97 | fedprox 72.84 72.79 | fedavg_ft 86.85 88.83 | fedprox_ft 86.20 89.31 | ditto 83.60 89.82
        fedrep 85.36 86.76 | fedala 86.65 89.44 | feddwa 88.64 91.80 | pfedsop 90.64 93.63""",
    ("pfedsop", "II", "cifar100 dir, cifar100 path"): """
        fedavg 34.79 33.18 | fedprox 34.21 32.77 | fedavg_ft 55.65 65.81 | fedprox_ft 55.30 65.19 | ditto 57.99 71.47
        fedrep 56.91 68.52 | fedala 57.69 67.92 | feddwa 66.75 78.18 | pfedsop 71.36 82.75""",
    ("pfedsop", "II", "tinyimagenet dir, tinyimagenet path"): """
        fedavg 27.31 27.82 | fedprox 26.54 27.03 | fedavg_ft 44.61 57.54 | fedprox_ft 43.79 56.86 | ditto 42.65 57.76
        fedrep 38.05 44.26 | fedala 44.89 57.48 | feddwa 60.18 69.42 | pfedsop 65.42 74.20""",
    ("pfedsop", "III", "cifar100 dir"): "pfedsop 55.65 70.99",
    # rho = 1 and lambda = 1 are the same cell, printed twice
    ("pfedsop", "IV", "cifar100 dir"): "pfedsop 70.99 71.36 71.12 71.24 71.01 71.34 71.34",
    ("fedmud", "1", "fmnist noniid1, fmnist noniid2, svhn noniid1, svhn noniid2"): """
        fedavg 90.3±0.2 88.6±0.3 89.7±0.3 88.3±0.3 | fedhm 87.2±0.1 84.5±0.4 73.8±0.8 71.1±0.9
        fedlmt 87.3±0.4 84.4±0.5 71.0±0.6 70.1±1.0 | fedpara 87.1±0.2 84.4±0.3 82.4±0.6 79.3±0.5
        ef21p 84.1±0.8 82.0±0.8 82.5±0.5 76.7±0.9 | fedbat 88.4±0.1 86.7±0.1 85.2±0.4 83.8±0.3
        fedmud 87.9±0.2 85.8±0.4 81.3±0.8 78.5±0.7 88.2±0.1 86.7±0.6 84.8±0.5 83.5±0.4
               88.5±0.3 87.0±0.3 84.7±0.2 82.5±0.6 89.0±0.2 87.6±0.2 86.6±0.3 84.9±0.3""",
    ("fedmud", "1", "cifar10 noniid1, cifar10 noniid2, cifar100 noniid1, cifar100 noniid2"): """
        fedavg 81.0±0.7 77.8±0.7 49.8±0.6 44.8±0.5 | fedhm 66.5±0.4 63.3±0.7 28.5±0.8 23.3±0.3
        fedlmt 64.7±0.8 62.1±0.8 28.4±0.3 23.4±0.6 | fedpara 70.6±0.6 66.6±0.7 29.3±0.9 25.3±0.6
        ef21p 47.2±0.8 46.8±0.9 15.2±0.7 13.8±1.0 | fedbat 75.0±0.1 72.3±0.4 37.4±0.7 34.2±0.6
        fedmud 68.9±0.9 65.8±0.4 29.4±0.5 28.9±0.4 70.2±0.7 67.5±0.8 35.7±0.5 30.7±0.8
               73.3±0.4 72.3±0.3 37.4±0.4 35.1±0.2 75.9±0.2 73.9±0.6 41.2±0.5 36.1±0.9""",
    ("fedmud", "2", "fmnist noniid1, svhn noniid1, cifar10 noniid1, cifar100 noniid1"): """
        fedmud 88.5 81.0 71.1 35.3 88.5 84.7 73.3 37.4 88.6 84.9 74.4 38.0 89.0 86.6 75.9 41.2""",
    ("fedmud", "3", "fmnist iid, svhn iid, cifar10 iid, cifar100 iid"): """
        fedavg 91.9±0.1 92.3±0.1 87.4±0.2 59.1±0.4 | fedhm 89.1±0.3 79.9±0.9 76.4±0.7 35.9±0.8
        fedlmt 89.1±0.1 79.6±0.7 75.9±0.7 34.6±0.3 | fedpara 89.2±0.2 86.1±0.2 76.7±0.6 37.8±0.5
        ef21p 87.9±0.3 87.9±0.2 64.4±0.4 28.1±0.4 | fedbat 90.5±0.1 89.3±0.0 82.8±0.1 47.3±0.5
        fedmud 90.0±0.2 87.3±0.1 79.2±0.3 43.5±0.3 90.9±0.1 89.1±0.2 83.0±0.1 50.5±0.1
               90.5±0.2 88.5±0.1 79.0±0.2 45.7±0.4 91.0±0.3 89.5±0.1 83.2±0.3 51.4±0.3""",
    ("fedmud", "4", "fmnist noniid2, fmnist iid, svhn noniid2, svhn iid"): """
        fedmud 87.1 90.9 80.2 87.4 87.0 90.9 82.5 89.1 87.4 90.9 83.3 88.5 87.6 91.0 84.9 89.5""",
    ("fedmud", "4", "cifar10 noniid2, cifar10 iid, cifar100 noniid2, cifar100 iid"): """
        fedmud 67.5 82.2 33.0 48.4 72.3 83.0 35.1 50.5 71.2 81.9 33.3 48.7 73.9 83.2 36.1 51.4""",
    ("fedmud", "5", "cifar10 noniid1"): "fedavg 84.1 | fedlmt 76.4 73.9 | fedmud 83.2 79.6",
    ("fedmud", "5", "tinyimagenet noniid1"): "fedavg 40.0 | fedlmt 31.3 13.8 | fedmud 36.9 33.4",
}


def printed_cells():
    """(paper, table, data and setting, method, figure, deviation or None) of every printed cell."""
    for (paper, table, columns), text in PRINTED.items():
        columns, method, number = columns.split(", "), "", 0
        for word in text.replace("|", " ").split():
            if word[0].isalpha():
                method, number = word, 0
                continue
            value, _, spread = word.partition("±")
            column = columns[number % len(columns)]
            yield paper, table, column, method, float(value), float(spread) if spread else None
            number += 1


class Tables(unittest.TestCase):
    def test_every_cell_of_every_table_is_a_row(self):
        """As often as it is printed, and no other: whatever state the row is in."""
        rows = Counter((paper, row.table, f"{row.dataset} {row.setting}", row.method, row.paper, row.spread)
                       for paper in ("sfedhp", "tdpfed", "pfedsop", "fedmud")
                       for row in paper_table.read_rows(TOOLS / "papers" / f"{paper}.csv") if row.paper is not None)
        printed = Counter(printed_cells())
        self.assertEqual(printed - rows, Counter(), "printed, but no row")
        self.assertEqual(rows - printed, Counter(), "rows that are not printed")

    def test_sfedhp_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "sfedhp.csv")
        printed = [row for row in rows if row.paper is not None]
        self.assertEqual(Counter(row.table for row in printed), {"I": 30, **dict.fromkeys("II III IV V VI VII".split(), 27)})
        self.assertEqual({row.table for row in rows if row.paper is None}, {"why", *(f"Fig. {n}" for n in (2, 3, 4, 5))})
        details = {(row.run_name, row.metric): row.paper for row in printed if row.table != "I"}
        quick = {row.run_name for row in printed if row.table == "I"}
        for row in printed:
            if row.method in ("pfedme", "sfedhp") and row.dataset != "cifar10":
                self.assertEqual(row.state, "ready" if row.run_name in quick else "full", row)
            self.assertTrue(10 <= row.paper < 100, row)
            if row.table == "I":
                self.assertEqual(details[row.run_name, row.metric], row.paper)
            else:
                self.assertIsNone(row.spread)
        self.assertEqual(details["mnist_setting1_sfedhp_lambda30", "global_accuracy"], 95.63)
        self.assertEqual(details["cifar10_setting2_pfedme_lambda5", "personal_accuracy"], 89.22)
        self.assertEqual(details["fmnist_setting2_heurfedamp_alpha0.5", "personal_accuracy"], 98.97)

    def test_tdpfed_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "tdpfed.csv")
        printed = [row for row in rows if row.paper is not None]
        self.assertEqual(Counter(row.table for row in printed), {"II": 8, "III": 12, "IV": 18})
        for row in rows:
            state = "gpu" if row.dataset == "cifar10" else "ready" if row.setting == "even" else "full"
            self.assertEqual(row.state, state, row)
        for row in printed:
            self.assertEqual((row.setting, row.spread, row.pick), ("even", None, "last"))
            self.assertEqual(row.metric, "global_accuracy" if row.method == "fedavg" else "personal_accuracy_weighted")
            self.assertTrue(50 <= row.paper < 100, row)
        values = {(row.table, row.run_name): row.paper for row in printed}
        self.assertEqual(values["II", "mnist_even_tdpfed_afm_x2"], values["IV", "mnist_even_tdpfed_afm_x2"])
        self.assertEqual(values["II", "cifar10_even_tdpfed_act_x2"], 74.80)
        self.assertEqual(values["III", "mnist_even_tdpfed_afm_x2_lr3e-4"], 99.16)
        self.assertEqual(values["III", "cifar10_even_fedavg_sar_x1.5_keep"], 61.00)
        self.assertEqual(values["IV", "cifar10_even_tdpfed_factor_steps20"], 90.65)

    def test_pfedsop_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "pfedsop.csv")
        printed = [row for row in rows if row.paper is not None]
        self.assertEqual(Counter(row.table for row in printed), {"II": 54, "III": 2, "IV": 7})
        for row in rows:
            metric = "personal_accuracy" if row.table == "last round" else "best_personal_accuracy"
            self.assertEqual((row.metric, row.pick, row.spread), (metric, "last", None))
            self.assertEqual(row.paper is None, row.dataset in ("mnist", "fmnist"), row)
            self.assertEqual(row.seconds is not None, row.table == "II" and row.paper is not None, row)
            if row.dataset in ("mnist", "fmnist"):
                # The others are readings beside the table, and what an explanation rests on.
                own = row.table not in ("II", "why") or row.variant in ("", "cnn4")
                self.assertEqual(row.state, "ready" if own else "full", row)
            else:
                self.assertEqual(row.state, "gpu", row)
            self.assertEqual(row.quick_rounds, 15 if row.variant == "cnn4" else None)
        quick = Counter((row.dataset, row.setting, row.variant)
                        for row in rows if row.state == "ready" and row.table == "II")
        self.assertEqual(quick, dict.fromkeys([("mnist", "dir", ""), ("mnist", "path", ""), ("fmnist", "dir", ""),
                                               ("fmnist", "path", ""), ("fmnist", "dir", "cnn4")], 9))
        more = [(row.table, row.variant, row.dataset) for row in rows if row.table in ("III", "IV")]
        self.assertEqual({tuple(row[:2]) for row in more if row[2] == "cifar100"},
                         {tuple(row[:2]) for row in more if row[2] == "fmnist"})
        values = {(row.table, row.run_name): (row.paper, row.seconds) for row in printed}
        self.assertEqual(values["II", "cifar10_path_ditto"], (89.82, 47.29))
        self.assertEqual(values["II", "cifar100_dir_pfedsop"], (71.36, 29.38))
        self.assertEqual(values["II", "tinyimagenet_path_feddwa"], (69.42, 110.51))
        self.assertEqual(values["III", "cifar100_dir_pfedsop_without_pc"], (55.65, None))
        self.assertEqual(values["IV", "cifar100_dir_pfedsop_rho0.001"], (71.24, None))
        for row in rows:
            fedavg = paper_table.fedavg_row(row, rows)
            self.assertEqual((fedavg.dataset, fedavg.setting, fedavg.variant),
                             (row.dataset, row.setting, "cnn4" if row.variant == "cnn4" else ""), row)
            self.assertEqual(fedavg.seconds is None, row.dataset in ("mnist", "fmnist"), row)

    def test_pfedsop_configurations(self):
        """Sections V-A and V-B; a row's overrides are of keys of its configuration."""
        configs = ROOT / "configs" / "papers" / "pfedsop"
        networks = {"cifar10": "resnet18", "cifar100": "resnet9", "tinyimagenet": "resnet9"}
        shards = {"cifar100": "6", "tinyimagenet": "10"}
        own = {"fedprox": {"mu"}, "fedavg_ft": {"start"}, "fedprox_ft": {"mu", "start"}, "ditto": {"mu"},
               "fedrep": {"head_passes"}, "feddwa": {"top_k"}, "fedala": {"layers", "share", "weight_lr"},
               "pfedsop": {"rho", "lambda", "personal_lr", "persist", "evaluate"}}
        named = {path.name for path in configs.glob("*.ini")}
        rows = paper_table.read_rows(TOOLS / "papers" / "pfedsop.csv")
        self.assertEqual(named, {row.config for row in rows})
        for name in named:
            config = acting(read_config(configs / name), {})
            data, method = config["data.name"], config["algorithm.name"]
            network = "cnn4" if name.endswith("_cnn4.ini") else networks.get(data, "dnn")
            expected = {"run.rounds": "100", "run.seed": "0", "run.eval_every": "1" if network == "dnn" else "5",
                        "data.split": "client", "data.clients": "100", "data.train_fraction": "0.8",
                        "topology.participation": "0.2", "train.batch_size": "50", "train.local_epochs": "1",
                        "train.optimizer": "sgd", "model.name": network}
            weighted = method != "feddwa"  # it has weights of its own
            if weighted:
                expected["algorithm.weighting"] = "uniform" if method == "pfedsop" else "samples"
            if "_dir_" in name:
                expected.update({"data.partition": "dirichlet", "data.alpha": "0.07", "data.min_samples": "20"})
            else:
                expected.update({"data.partition": "shards", "data.shards_per_client": shards.get(data, "2")})
            self.assertEqual({key: config.get(key) for key in expected}, expected, name)
            self.assertIn(config["train.lr"], ("1", "0.1", "0.01", "0.001", "0.0001"))
            self.assertEqual({key.split(".")[1] for key in config if key.startswith("algorithm.")},
                             {"name"} | own.get(method, set()) | ({"weighting"} if weighted else set()), name)
            if method == "pfedsop":
                self.assertEqual((config["algorithm.rho"], config["algorithm.lambda"]), ("1", "1"), name)
                self.assertEqual(config["algorithm.personal_lr"], config["train.lr"], name)
        for row in rows:
            config = acting(read_config(configs / row.config), {})
            for key in (override.split("=")[0] for override in row.overrides):
                self.assertTrue(key in config or key in ("algorithm.personalise", "algorithm.learn"), row)

    def test_fedmud_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "fedmud.csv")
        printed = [row for row in rows if row.paper is not None]
        self.assertEqual(Counter(row.table for row in printed), {"1": 80, "2": 16, "3": 40, "4": 32, "5": 10})
        for row in rows:
            self.assertEqual((row.metric, row.pick, row.seconds), ("global_accuracy", "best", None))
            self.assertEqual(row.spread is None, row.paper is None or row.table not in ("1", "3"), row)
            own = row.paper is not None and row.setting == "noniid1"
            state = "gpu" if row.dataset != "fmnist" else "ready" if own else "full"
            self.assertEqual(row.state, state, row)
            self.assertEqual(row.quick_rounds, 15 if row.state == "ready" else None)
            self.assertEqual(row.paper is None, bool(row.overrides) and row.table != "5", row)
        self.assertEqual(len({row.run_name for row in rows if row.state == "ready"}), 12)
        settings = {"1": "noniid1 noniid2", "2": "noniid1", "3": "iid", "4": "noniid2 iid", "5": "noniid1"}
        for table, names in settings.items():
            self.assertEqual({row.setting for row in printed if row.table == table}, set(names.split()))
        values = {(row.table, row.run_name): (row.paper, row.spread) for row in printed}
        for (table, run), (paper, _) in values.items():  # Tables 2 and 4 repeat figures of 1 and 3
            for other in ("1", "3") if table in ("2", "4") else ():
                self.assertEqual(values.get((other, run), (paper, None))[0], paper, run)
        self.assertEqual(values["1", "fmnist_noniid1_fedmud_bkd_aad"], (89.0, 0.2))
        self.assertEqual(values["1", "svhn_noniid2_fedpara"], (79.3, 0.5))
        self.assertEqual(values["1", "cifar100_noniid2_fedmud"], (28.9, 0.4))
        self.assertEqual(values["2", "cifar10_noniid1_fedmud_bkd_f"], (74.4, None))
        self.assertEqual(values["3", "cifar10_iid_fedmud_bkd"], (79.0, 0.2))
        self.assertEqual(values["3", "cifar100_iid_ef21p"], (28.1, 0.4))
        self.assertEqual(values["4", "svhn_iid_fedmud_f"], (87.4, None))
        self.assertEqual(values["5", "tinyimagenet_noniid1_fedmud_bkd_aad_resnet18_x16"], (36.9, None))
        self.assertEqual(values["5", "tinyimagenet_noniid1_fedlmt_resnet18"], (13.8, None))

    def test_fedmud_configurations(self):
        """Section 5.1 and Appendix A; a configuration's name says what it sets."""
        configs = ROOT / "configs" / "papers" / "fedmud"
        data = {"fmnist": ("cnn4", "100", "scalar", None), "svhn": ("cnn4", "100", "scalar", None),
                "cifar10": ("cnn10", "200", "channel", "crop_flip"),
                "cifar100": ("cnn10", "200", "channel", "crop_flip"),
                "tinyimagenet": ("resnet18", "200", "half", "crop_flip")}
        factors = {"": "low_rank", "f": "low_rank_f", "aad": "low_rank_aad", "bkd": "kronecker", "bkd_f": "kronecker_f",
                   "bkd_aad": "kronecker_aad"}
        factorisations = {"fedavg": None, "ef21p": None, "fedbat": None, "fedhm": "low_rank", "fedlmt": "low_rank", "fedpara": "hadamard"}
        views = {"fedmud": "raw", "fedhm": "permuted", "fedlmt": "permuted"}
        own = {"fedmud": {"reset_interval", "init_range"}, "fedlmt": {"init_range"}, "fedpara": {"init_range"},
               "ef21p": {"fraction", "upload", "scale", "server_lr"}, "fedbat": {"warm_up", "download"}}
        settings = {"noniid1": {"data.partition": "dirichlet", "data.alpha": "0.3", "data.min_samples": "10"},
                    "noniid2": {"data.partition": "labels", "data.labels_per_client": "3", "data.labels_rule": "random"},
                    "iid": {"data.partition": "iid"}}
        of_cifar100 = {"data.alpha": "0.1", "data.labels_per_client": "10"}
        named = {path.name for path in configs.glob("*.ini")}
        rows = [row for row in paper_table.read_rows(TOOLS / "papers" / "fedmud.csv") if row.state != "waiting"]
        self.assertEqual(named, {row.config for row in rows})
        for name in named:
            config = acting(read_config(configs / name), {})
            dataset, setting, method, variant = (Path(name).stem.split("_", 3) + [""])[:4]
            resnet = variant.endswith("resnet18")
            network, rounds, standardize, augment = data[dataset]
            factorisation = (factorisations[method] if method in factorisations else
                             factors.get(variant.replace("resnet18", "").strip("_")))
            expected = {"run.rounds": rounds, "run.eval_every": "1", "data.name": dataset, "data.split": "official",
                        "data.clients": "100", "data.seed": "1234", "data.standardize": standardize,
                        "data.augment": augment, "model.name": "resnet18" if resnet else network,
                        "model.init": "normal01", "model.factorisation": factorisation,
                        "model.conv_view": views.get(method), "topology.participation": "0.1",
                        "train.batch_size": "64", "train.local_epochs": "3", "train.optimizer": "sgd",
                        "algorithm.name": method, "algorithm.weighting": "samples",
                        "model.block_layout": "stacked" if "bkd" in variant else None, **settings[setting]}
            if dataset == "cifar100":
                expected.update({key: value for key, value in of_cifar100.items() if key in expected})
            if factorisation:
                expected.update({"model.compression": "32", "model.compression_scope": "model",
                                 "model.exclude": "first,last,shortcuts" if resnet else "first,last"})
            if method == "fedavg" or "bkd_aad" in variant:  # the public scripts
                expected.update({"train.lr": "0.03" if method == "fedavg" else "0.01",
                                 "algorithm.init_range": None if method == "fedavg" else "5"})
            if method == "ef21p":
                expected.update({"algorithm.fraction": "0.03125", "algorithm.upload": "rand_k"})
            if method == "fedbat":
                expected.update({"train.lr": "0.1", "algorithm.warm_up": "0.5", "algorithm.download": "binary"})
            self.assertEqual({key: config.get(key) for key in expected}, expected, name)
            self.assertIn(config["train.lr"], ("0.1", "0.03", "0.01", "0.003", "0.001") if resnet else
                          ("1", "0.3", "0.1", "0.03", "0.01"), name)
            self.assertIn(config.get("algorithm.init_range", "1"), "0.01 0.05 0.1 0.5 1 5 10".split(), name)
            self.assertEqual({key.split(".")[1] for key in config if key.startswith("algorithm.")},
                             {"name", "weighting"} | own.get(method, set()), name)
            self.assertLessEqual({key for key in config if key.startswith("model.")} - {"model.stem"},
                                 {key for key, value in expected.items() if value is not None}, name)
        for row in rows:
            config = acting(read_config(configs / row.config), {})
            for key, value in (override.split("=") for override in row.overrides):
                self.assertIn(key, config, row)
                self.assertNotEqual(config[key], value, row)  # the configuration's own run stands in its table

    def test_names_of_runs(self):
        """What a variant begins with and the configuration's name ends with stands there once."""
        first = paper_table.read_rows(TOOLS / "papers" / "fedmud.csv")[0]
        for config, variant, name in (("a_fedmud.ini", "", "a_fedmud"), ("a_fedmud.ini", "bkd", "a_fedmud_bkd"),
                                      ("a_bkd_aad.ini", "bkd_aad", "a_bkd_aad"), ("a_bkd.ini", "aad", "a_bkd_aad"),
                                      ("a_aad.ini", "aad_grid", "a_aad_grid"), ("a_xaad.ini", "aad", "a_xaad_aad"),
                                      ("a_bkd_aad.ini", "bkd_aad_x16", "a_bkd_aad_x16")):
            self.assertEqual(dataclasses.replace(first, config=config, variant=variant).run_name, name)

    def test_rows_have_configurations(self):
        for paper, at_least in (("sfedhp", 8), ("tdpfed", 79), ("pfedsop", 104), ("fedmud", 180)):
            rows = [row for row in paper_table.read_rows(TOOLS / "papers" / f"{paper}.csv") if row.state != "waiting"]
            self.assertGreaterEqual(len(rows), at_least)
            for row in rows:
                job = paper_table.make_job(row, 2, True, ROOT / "configs" / "papers" / paper, "out")
                rounds = str(row.quick_rounds or 100)
                self.assertEqual((job.expected["run.rounds"], job.expected["run.seed"]), (rounds, "2"))
                self.assertEqual((job.expected["algorithm.name"], job.expected["data.name"]), (row.method, row.dataset))

    def test_tdpfed_configurations(self):
        """Sections VII-A and VII-D; a row's overrides are of keys that mean something to its method."""
        configs = ROOT / "configs" / "papers" / "tdpfed"
        own = {"mnist": ("20", "23", "12", "5", "0.08", "17", "0.0008", "0.05"),
               "cifar10": ("10", "25", "14", "4", "0.03", "15", "0.00004", "0.01")}
        for path in configs.glob("*.ini"):
            config = acting(read_config(path), {})
            clients, tau, decay, s, personal, factor_steps, eta, lr = own[config["data.name"]]
            method = config["algorithm.name"]
            self.assertEqual(path.stem.split("_")[::2], [config["data.name"], method])
            expected = {"run.rounds": "800", "data.clients": clients, "data.labels_per_client": "2",
                        "train.batch_size": "20", "train.local_steps": tau,
                        "train.lr": eta if method == "tdpfed" else lr}
            if method != "fedavg":
                expected.update({"algorithm.lambda": decay, "algorithm.beta": "1", "algorithm.inner_steps": s,
                                 "algorithm.personal_lr": personal})
            if method == "tdpfed":
                expected.update({"algorithm.factor_steps": factor_steps, "model.compression": "2"})
            self.assertEqual({key: config.get(key) for key in expected}, expected, path)
        for row in paper_table.read_rows(TOOLS / "papers" / "tdpfed.csv"):
            config = acting(read_config(configs / row.config), {})
            for key in (override.split("=")[0] for override in row.overrides):
                self.assertTrue(key in config or key in ("algorithm.transmit_fraction", "algorithm.unsent"), row)

    def test_sfedhp_configurations(self):
        """Section V and the tables' captions; lambda is a row's own."""
        configs = ROOT / "configs" / "papers" / "sfedhp"
        counts = {"setting1": (200, 800), "setting2": (900, 300)}
        for row in paper_table.read_rows(TOOLS / "papers" / "sfedhp.csv"):
            if row.state == "waiting":
                continue
            config = acting(read_config(configs / row.config), {})
            config.update(override.split("=", 1) for override in row.overrides)
            network = {"mlr": ("mlr", None), "cifar10": ("vgg_sfedhp", None)}.get(
                "mlr" if "_mlr" in row.config else row.dataset, ("dnn", "500,200"))
            steps = {"hierfavg": "5", "sfedhp": "1"}.get(row.method, "20")
            expected = {"run.rounds": "800", "data.clients": "20", "data.labels_per_client": "5",
                        "train.batch_size": "20", "train.local_steps": steps,
                        "train.lr": "0.001" if row.method == "perfedavg" else "0.05",
                        "model.name": network[0], "model.hidden": network[1]}
            if row.method == "pfedgp":  # as in its own paper
                expected.update({"train.batch_size": "0", "train.local_steps": None, "train.local_epochs": "1",
                                 "train.momentum": "0.9", "train.weight_decay": "0.001", "algorithm.outputscale": "8",
                                 "algorithm.draws": "20", "algorithm.gibbs_steps": "5", "algorithm.test_draws": "30"})
            if row.setting in counts:
                train, test = counts[row.setting]  # CIFAR-10: half of that; the others: half of what the paper says
                expected.update({"data.train_per_class": str(train // 2), "data.test_per_class": str(test // 2)})
            if row.method in ("hierfavg", "sfedhp"):
                rounds = "4" if row.method == "hierfavg" else "20"
                expected.update({"topology.edges": "4", "algorithm.edge_rounds": rounds})
            if row.method in ("pfedme", "sfedhp"):
                expected.update({"algorithm.inner_steps": "5", "algorithm.personal_lr": "0.05", "algorithm.beta": "1"})
                weights = {config.get(f"algorithm.{key}") for key in ("lambda", "lambda1", "lambda2")} - {None}
                self.assertEqual(len(weights), 1, row)
                if "lambda" in row.variant:
                    self.assertEqual(weights, {row.variant.split("lambda")[1].split("_")[0]}, row)
            if row.method == "sfedhp" and row.setting in counts:
                expected.update({"algorithm.gamma1": "0", "algorithm.gamma2": "0"})
            if row.table == "why":  # what one key makes of a row of the tables
                expected.update((key, value) for key, value in (one.split("=", 1) for one in row.overrides) if key in expected)
            holders = {"labels2_unhalved": 1, "few": 2 * int(config["data.labels_per_client"])}  # clients that a count is of
            for name, several in holders.items():
                if row.variant.endswith(name):
                    expected.update({"data.train_per_class": str(train // several), "data.test_per_class": str(test // several)})
            self.assertEqual({key: config.get(key) for key in expected}, expected, row)

    def test_commits_of_figures_whose_file_is_gone_stand_in_the_list(self):
        stated = set()
        for records in (ROOT / "results" / "papers").glob("*.csv"):
            for commits in re.findall(r"stated in ([0-9a-f]{7}(?: and [0-9a-f]{7})*)", records.read_text()):
                stated.update(commits.split(" and "))
        page = (ROOT / "results" / "README.md").read_text()
        table = page[page.index("| rows | command | stated in, date |"):].split("\n\n")[0]
        listed = {commit for line in table.splitlines()
                  for commit in re.findall(r"\b[0-9a-f]{7}\b", line.split("|")[-2])}
        self.assertEqual(listed, stated)

    def test_times_beside_fedavg(self):
        self.assertEqual(paper_table.time_text(None, 29.85), "-")
        self.assertEqual(paper_table.time_text(106.81, 60.71), "106.81 (1.76)")
        self.assertEqual(paper_table.time_text(0.0551, None), "0.055")

    def test_relative_paths_of_files_are_compared_with_the_programs_whole_ones(self):
        for key in ("data.file", "data.test_file", "data.partition_file", "model.file", "model.init_file"):
            for given, stored, same in (("part.h5", "/a/b/part.h5", True), ("./part.h5", "/a/b/part.h5", True),
                                        ("../d/part.h5", "/a/d/part.h5", True), ("c/../part.h5", "/a/part.h5", True),
                                        ("d/part.h5", "/a/b/part.h5", False), ("part.h5", "/a/other_part.h5", False),
                                        ("/b/part.h5", "/a/b/part.h5", False), ("part.h5", "d/part.h5", False)):
                found = paper_table.differences({key: given}, {key: stored})
                self.assertEqual(found, "" if same else f"the result has {key}={stored}, not {given}")
        self.assertIn("train.lr", paper_table.differences({"train.lr": "x"}, {"train.lr": "/a/x"}))

    def test_files_that_are_here_are_compared_themselves(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "a").mkdir()
            for path in ("part.h5", "a/part.h5"):
                (folder / path).touch()
            for given, stored, same in (("part.h5", "part.h5", True), ("part.h5", "a/part.h5", False),
                                        ("a/part.h5", "a/part.h5", True), ("part.h5", "gone/part.h5", True)):
                stored = {"data.file": str(folder / stored)}
                found = paper_table.differences({"data.file": given}, stored, folders=(Path("/none"), folder))
                self.assertEqual(found == "", same, (given, stored))

    def test_comparison_of_configurations(self):
        same = {"train.lr": "0.050000000000000003", "model.hidden": "500, 200", "model.bias": "1", "run.output": "b"}
        expected = {"train.lr": "0.05", "model.hidden": "500,200", "model.bias": "true", "run.output": "a"}
        self.assertEqual(paper_table.differences(expected, same), "")
        self.assertIn("train.lr", paper_table.differences(expected, dict(same, **{"train.lr": "0.1"})))
        self.assertIn("lacks model.hidden", paper_table.differences(expected, {"train.lr": "0.05"}))
        self.assertEqual("", paper_table.differences(expected, {"train.lr": "0.05"}, set(expected)))


if __name__ == "__main__":
    unittest.main()
