"""Tests of the paper tables and of reproduce.py, with a stand-in for the fedhpc program.

The tests that launch runs are skipped where there is no mpirun.
"""

import csv
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))
from fedhpc_tools import results  # noqa: E402
from fedhpc_tools import paper_table  # noqa: E402


class Tables(unittest.TestCase):
    def test_sfedhp_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "sfedhp.csv")
        printed = [row for row in rows if row.paper is not None]
        self.assertEqual(Counter(row.table for row in printed), {"I": 30, **dict.fromkeys("II III IV V VI VII".split(), 27)})
        self.assertEqual({row.table for row in rows if row.paper is None}, {f"Fig. {n}" for n in (2, 3, 4, 5)})
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
            self.assertEqual((row.metric, row.pick, row.spread), ("best_personal_accuracy", "last", None))
            self.assertEqual(row.paper is None, row.dataset in ("mnist", "fmnist"), row)
            self.assertEqual(row.seconds is not None, row.table == "II" and row.paper is not None, row)
            if row.method == "fedala":
                self.assertEqual(row.state, "waiting", row)
            elif row.dataset in ("mnist", "fmnist"):
                own = row.table != "II" or row.variant in ("", "cnn4")  # the others: readings beside the table
                self.assertEqual(row.state, "ready" if own else "full", row)
            else:
                self.assertEqual(row.state, "gpu", row)
            self.assertEqual(row.quick_rounds, 15 if row.variant == "cnn4" else None)
        quick = Counter((row.dataset, row.setting, row.variant)
                        for row in rows if row.state == "ready" and row.table == "II")
        self.assertEqual(quick, dict.fromkeys([("mnist", "dir", ""), ("mnist", "path", ""), ("fmnist", "dir", ""),
                                               ("fmnist", "path", ""), ("fmnist", "dir", "cnn4")], 8))
        more = [(row.table, row.variant, row.dataset) for row in rows if row.table != "II"]
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
               "fedrep": {"head_passes"}, "feddwa": {"top_k"}, "pfedsop": {"rho", "lambda", "personal_lr", "persist", "evaluate"}}
        named = {path.name for path in configs.glob("*.ini")}
        rows = [row for row in paper_table.read_rows(TOOLS / "papers" / "pfedsop.csv") if row.state != "waiting"]
        self.assertEqual(named, {row.config for row in rows})
        for name in named:
            config = results.parse_config((configs / name).read_text(encoding="utf-8"))
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
            config = results.parse_config((configs / row.config).read_text(encoding="utf-8"))
            for key in (override.split("=")[0] for override in row.overrides):
                self.assertTrue(key in config or key == "algorithm.personalise", row)

    def test_fedmud_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "fedmud.csv")
        printed = [row for row in rows if row.paper is not None]
        self.assertEqual(Counter(row.table for row in printed), {"1": 80, "2": 16, "3": 40, "4": 32, "5": 10})
        for row in rows:
            self.assertEqual((row.metric, row.pick, row.seconds), ("global_accuracy", "best", None))
            self.assertEqual(row.spread is None, row.paper is None or row.table not in ("1", "3"), row)
            own = row.paper is not None and row.setting == "noniid1"
            state = "gpu" if row.dataset != "fmnist" else "ready" if own else "full"
            self.assertEqual(row.state, "waiting" if row.method in ("ef21p", "fedbat") else state, row)
            self.assertEqual(row.quick_rounds, 15 if row.state == "ready" else None)
            self.assertEqual(row.paper is None, bool(row.overrides) and row.table != "5", row)
        self.assertEqual(len({row.run_name for row in rows if row.state == "ready"}), 10)
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
        factorisations = {"fedavg": None, "fedhm": "low_rank", "fedlmt": "low_rank", "fedpara": "hadamard"}
        views = {"fedmud": "raw", "fedhm": "permuted", "fedlmt": "permuted"}
        own = {"fedmud": {"reset_interval", "init_range"}, "fedlmt": {"init_range"}, "fedpara": {"init_range"}}
        settings = {"noniid1": {"data.partition": "dirichlet", "data.alpha": "0.3", "data.min_samples": "10"},
                    "noniid2": {"data.partition": "labels", "data.labels_per_client": "3", "data.labels_rule": "random"},
                    "iid": {"data.partition": "iid"}}
        of_cifar100 = {"data.alpha": "0.1", "data.labels_per_client": "10"}
        named = {path.name for path in configs.glob("*.ini")}
        rows = [row for row in paper_table.read_rows(TOOLS / "papers" / "fedmud.csv") if row.state != "waiting"]
        self.assertEqual(named, {row.config for row in rows})
        for name in named:
            config = results.parse_config((configs / name).read_text(encoding="utf-8"))
            dataset, setting, method, variant = (Path(name).stem.split("_", 3) + [""])[:4]
            resnet = variant.endswith("resnet18")
            network, rounds, standardize, augment = data[dataset]
            factorisation = factorisations.get(method, factors.get(variant.replace("resnet18", "").strip("_")))
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
            self.assertEqual({key: config.get(key) for key in expected}, expected, name)
            self.assertIn(config["train.lr"], ("0.1", "0.03", "0.01", "0.003", "0.001") if resnet else
                          ("1", "0.3", "0.1", "0.03", "0.01"), name)
            self.assertIn(config.get("algorithm.init_range", "1"), "0.01 0.05 0.1 0.5 1 5 10".split(), name)
            self.assertEqual({key.split(".")[1] for key in config if key.startswith("algorithm.")},
                             {"name", "weighting"} | own.get(method, set()), name)
            self.assertLessEqual({key for key in config if key.startswith("model.")} - {"model.stem"},
                                 {key for key, value in expected.items() if value is not None}, name)
        for row in rows:
            config = results.parse_config((configs / row.config).read_text(encoding="utf-8"))
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
            config = results.parse_config(path.read_text(encoding="utf-8"))
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
            config = results.parse_config((configs / row.config).read_text(encoding="utf-8"))
            for key in (override.split("=")[0] for override in row.overrides):
                self.assertTrue(key in config or key in ("algorithm.transmit_fraction", "algorithm.unsent"), row)

    def test_sfedhp_configurations(self):
        """Section V and the tables' captions; lambda is a row's own."""
        configs = ROOT / "configs" / "papers" / "sfedhp"
        counts = {"setting1": (200, 800), "setting2": (900, 300)}
        for row in paper_table.read_rows(TOOLS / "papers" / "sfedhp.csv"):
            if row.state == "waiting":
                continue
            config = results.parse_config((configs / row.config).read_text(encoding="utf-8"))
            config.update(override.split("=", 1) for override in row.overrides)
            network = {"mlr": ("mlr", None), "cifar10": ("vgg_sfedhp", None)}.get(
                "mlr" if "_mlr" in row.config else row.dataset, ("dnn", "500,200"))
            steps = {"hierfavg": "5", "sfedhp": "1"}.get(row.method, "20")
            expected = {"run.rounds": "800", "data.clients": "20", "data.labels_per_client": "5",
                        "train.batch_size": "20", "train.local_steps": steps,
                        "train.lr": "0.001" if row.method == "perfedavg" else "0.05",
                        "model.name": network[0], "model.hidden": network[1]}
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
                    self.assertEqual(weights, {row.variant.split("lambda")[1]}, row)
            if row.method == "sfedhp" and row.setting in counts:
                expected.update({"algorithm.gamma1": "0", "algorithm.gamma2": "0"})
            self.assertEqual({key: config.get(key) for key in expected}, expected, row)

    def test_times_beside_fedavg(self):
        self.assertEqual(paper_table.time_text(None, 29.85), "-")
        self.assertEqual(paper_table.time_text(106.81, 60.71), "106.81 (1.76)")
        self.assertEqual(paper_table.time_text(0.0551, None), "0.055")

    def test_comparison_of_configurations(self):
        same = {"train.lr": "0.050000000000000003", "model.hidden": "500, 200", "model.bias": "1", "run.output": "b"}
        expected = {"train.lr": "0.05", "model.hidden": "500,200", "model.bias": "true", "run.output": "a"}
        self.assertEqual(paper_table.differences(expected, same), "")
        self.assertIn("train.lr", paper_table.differences(expected, dict(same, **{"train.lr": "0.1"})))
        self.assertIn("lacks model.hidden", paper_table.differences(expected, {"train.lr": "0.05"}))


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Reproduce(unittest.TestCase):
    """tools/ copied beside a paper of our own and the stand-in for the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "tools" / "papers").mkdir(parents=True)
        self.configs = self.folder / "configs" / "papers" / "toy"
        self.configs.mkdir(parents=True)
        shutil.copy(TOOLS / "reproduce.py", self.folder / "tools")
        shutil.copytree(TOOLS / "fedhpc_tools", self.folder / "tools" / "fedhpc_tools",
                        ignore=shutil.ignore_patterns("__pycache__"))
        self.program = self.folder / "fedhpc"
        self.program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{HERE / 'fake_fedhpc.py'}' \"$@\"\n")
        self.program.chmod(0o755)
        self.results = self.folder / "out" / "toy"

    def paper(self, *kinds, rounds=20, state="ready", value="88.00", spread="0.10", prefix="", optional=None):
        """A table with one row and one configuration per kind of stand-in run; `optional`: by kind, the
        values of the optional columns."""
        with open(self.folder / "tools" / "papers" / "toy.csv", "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(paper_table.COLUMNS + (paper_table.OPTIONAL_COLUMNS if optional else ()))
            for kind in kinds:
                out.writerow(["I", "toy", "s", kind, "", f"{prefix}{kind}.ini", "", "global_accuracy", value, spread,
                              "last", state, *(optional[kind] if optional else ())])
                (self.configs / f"{prefix}{kind}.ini").write_text(
                    f"# toy\n[run]\nrounds={rounds}\n[train]\nlr=0.05\n[algorithm]\nname={kind}\n")

    def command(self, *arguments):
        return [sys.executable, str(self.folder / "tools" / "reproduce.py"), "toy", "--ranks", "1", "--output-dir",
                str(self.folder / "out"), "--fedhpc", str(self.program), *arguments]

    def environment(self):
        return dict(os.environ, FAKE_LOG=str(self.folder / "calls"), FAKE_TOOLS=str(TOOLS))

    def call(self, *arguments):
        return subprocess.run(self.command(*arguments), env=self.environment(), capture_output=True, text=True,
                              timeout=120)

    def calls(self):
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def test_runs_then_skips_finished_rows(self):
        self.paper("good")
        done = self.call("--seeds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.calls()), 2)
        # Accuracies at round 20: 0.896 and 0.897, so 89.65 with a sample deviation of 0.1/sqrt(2).
        line = next(line for line in done.stdout.splitlines() if line.startswith("| I "))
        self.assertEqual([cell.strip() for cell in line.split("|")[5:9]],
                         ["88.00 ± 0.10", "89.65 ± 0.07", "+1.65", "finished (2 seeds)"])
        self.assertIn(line, (self.results / "table.md").read_text())
        self.assertTrue((self.results / "good_seed2.h5").exists())
        self.assertEqual(self.call("--seeds", "2").returncode, 0)
        self.assertEqual(len(self.calls()), 2)

    def test_a_changed_configuration_runs_again_and_keeps_the_old_result(self):
        self.paper("good")
        self.call("--seeds", "1")
        self.paper("good", rounds=30)
        self.assertIn("run.rounds=20, not 30", self.call("--list", "--seeds", "1").stdout)
        self.assertIn("finished", self.call("--seeds", "1").stdout)
        self.assertEqual(len(self.calls()), 2)
        self.assertEqual(len(results.load(self.results / "good_seed1.h5").rounds), 30)
        self.assertEqual(len(results.load(self.results / "good_seed1.old.h5").rounds), 20)

    def test_quick_and_list_and_only(self):
        self.paper("good", "fail", rounds=400)
        listing = self.call("--list", "--quick")
        self.assertEqual((listing.returncode, listing.stdout.count("pending (0 of 1 seeds)")), (0, 2))
        self.assertEqual((self.calls(), self.results.exists()), ([], False))
        done = self.call("--quick", "--only", "good")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(results.load(self.results / "good_seed1_quick.h5").rounds), 100)
        self.assertIn("| fail ", (self.results / "table.md").read_text())
        self.assertIn("pending (0 of 3 seeds)", self.call("--list", "--only", "good").stdout)

    def test_quick_rounds_of_a_row(self):
        self.paper("good", rounds=400, optional={"good": ("", 15)})
        self.assertEqual(self.call("--quick").returncode, 0)
        self.assertEqual(len(results.load(self.results / "good_seed1_quick.h5").rounds), 15)
        self.assertNotIn("s/round", (self.results / "table.md").read_text())

    def test_a_quick_run_that_is_not_shortened_is_the_full_run(self):
        self.paper("good", rounds=100)
        self.assertEqual(self.call("--quick").returncode, 0)
        self.assertIn("finished", self.call("--seeds", "1").stdout)
        self.assertEqual(len(self.calls()), 1)
        self.assertTrue((self.results / "good_seed1.h5").exists())

    def test_times_of_rounds_and_their_ratio_to_fedavg(self):
        """The stand-in's rounds take 2 s (fedavg) and 3 s, evaluation another second in every fifth."""
        self.paper("fedavg", "good", "fail", prefix="toy_s_",
                   optional={"fedavg": (29.85, ""), "good": (45.33, ""), "fail": ("", "")})
        done = self.call("--seeds", "2")
        cells = [[cell.strip() for cell in line.split("|")[8:10]]
                 for line in done.stdout.splitlines() if line.startswith("| I ")]
        self.assertEqual(cells, [["29.85 (1.00)", "2.00 (1.00)"], ["45.33 (1.52)", "3.00 (1.50)"], ["-", "-"]])
        self.assertIn("| s/round, paper | s/round, ours |", done.stdout)
        self.assertIn("in brackets its ratio to FedAvg's", (self.results / "table.md").read_text())

    def test_rows_beyond_quick_run_by_default_or_when_selected(self):
        self.paper("good", rounds=400, state="full")
        done = self.call("--quick")
        self.assertEqual((done.returncode, self.calls()), (0, []))
        self.assertIn("| not part of --quick |", done.stdout)
        self.assertIn("finished", self.call("--quick", "--only", "good").stdout)
        self.assertIn("finished", self.call("--seeds", "1").stdout)
        self.assertEqual(len(self.calls()), 2)

    def test_rows_that_need_a_gpu_run_with_the_flag_only(self):
        self.paper("good", state="gpu")
        for arguments in (["--seeds", "2"], ["--quick"], ["--only", "good"]):
            done = self.call(*arguments)
            self.assertEqual((done.returncode, self.calls()), (0, []))
            self.assertIn("| needs a GPU (--gpu-rows) |", done.stdout)
        self.assertIn("finished (2 seeds)", self.call("--seeds", "2", "--gpu-rows").stdout)
        self.assertEqual(len(self.calls()), 2)
        self.assertIn("finished (2 seeds)", self.call("--seeds", "2").stdout)
        self.assertIn("pending (2 of 3 seeds); needs a GPU (--gpu-rows)", self.call("--seeds", "3").stdout)
        self.assertIn("pending (2 of 3 seeds) ", self.call("--seeds", "3", "--gpu-rows", "--list").stdout)
        self.assertEqual(len(self.calls()), 2)

    def test_rows_that_need_a_gpu_are_resumed(self):
        self.paper("slow", rounds=60, state="gpu")
        self.assertIn("to be resumed", self.call("--seeds", "1", "--gpu-rows", "--budget", "0.04").stdout)
        listing = self.call("--seeds", "1").stdout
        self.assertRegex(listing, r"interrupted after round \d+; needs a GPU")
        self.assertIn("finished", self.call("--seeds", "1", "--gpu-rows").stdout)
        self.assertEqual([call.split()[0] for call in self.calls()], ["run", "resume"])

    def test_rows_without_a_value_in_the_paper(self):
        self.paper("good", value="", spread="")
        done = self.call("--seeds", "1")
        line = next(line for line in done.stdout.splitlines() if line.startswith("| I "))
        self.assertEqual([cell.strip() for cell in line.split("|")[5:9]], ["-", "89.60", "-", "finished"])

    def test_unusable_tables(self):
        table = self.folder / "tools" / "papers" / "toy.csv"
        for bad, message in (("ninety,,last,ready", "is not a number"), (",,last,soon", "state must be one of"),
                             (",,last", "state must be one of"), (",,last,gpu", "another state or other")):
            with self.subTest(bad):
                self.paper("good")
                table.write_text(table.read_text() + f"I,toy,s,good,,good.ini,,global_accuracy,{bad}\n")
                done = self.call("--list")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(message, done.stderr)

    def test_a_failing_row_is_reported_and_does_not_stop_the_others(self):
        self.paper("fail", "typo", "good")
        done = self.call("--seeds", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: fail on purpose", done.stdout)
        self.assertIn("failed: typo on purpose", done.stdout)
        self.assertIn("finished (2 seeds)", done.stdout)
        self.assertEqual(len(self.calls()), 4)  # the failed rows' second seeds are not tried
        self.assertIn("fail on purpose", (self.results / "fail_seed1.log").read_text())

    def test_waiting_and_missing_configuration(self):
        self.paper("good", state="waiting")
        done = self.call()
        self.assertEqual((done.returncode, self.calls()), (0, []))
        self.assertIn("waiting: not in the simulator yet", done.stdout)
        self.paper("good")
        (self.configs / "good.ini").unlink()
        done = self.call()
        self.assertEqual((done.returncode, self.calls()), (1, []))
        self.assertIn("failed: configuration", done.stdout)

    def test_budget_interrupts_and_the_next_call_resumes(self):
        self.paper("slow", "good", rounds=60)
        start = time.monotonic()
        done = self.call("--seeds", "1", "--budget", "0.04")
        self.assertLess(time.monotonic() - start, 20.0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("to be resumed by the next call", done.stdout)
        self.assertIn("stopped: 1 of 2 runs are left", done.stdout)
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual(results.load(self.results / "slow_seed1.h5").status, "interrupted")
        done = self.call("--seeds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.calls()[1].startswith("resume "))
        self.assertEqual(done.stdout.count("finished in"), 2)

    def test_a_run_without_checkpoint_is_removed(self):
        self.paper("stubborn", rounds=600)
        done = self.call("--seeds", "1", "--budget", "0.04")
        self.assertIn("its files are removed", done.stdout)
        self.assertFalse((self.results / "stubborn_seed1.h5").exists())
        self.assertEqual(self.call("--budget", "0").stdout.count("stopped: 3 of 3 runs are left"), 1)
        self.assertEqual(len(self.calls()), 1)

    def test_ctrl_c_stops_cleanly_and_a_second_call_at_once_is_refused(self):
        self.paper("slow", rounds=600)
        with subprocess.Popen(self.command("--seeds", "1"), env=self.environment(), stdout=subprocess.PIPE,
                              text=True) as process:
            while not (self.results / "slow_seed1.h5").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.1)
            second = self.call()
            self.assertEqual(second.returncode, 2)
            self.assertIn("another reproduce.py is at work", second.stderr)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertIn("to be resumed by the next call", out)
        self.assertTrue((self.results / "table.md").exists())

    def test_unusable_command_lines(self):
        self.paper("good")
        for arguments in (["--ranks", "100000"], ["--seeds", "0"], ["--budget", "-1"], ["--only", "nothing like it"],
                          ["--fedhpc", "none"], ["--quick", "--full"]):
            with self.subTest(arguments):
                self.assertEqual(self.call(*arguments).returncode, 2)
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
