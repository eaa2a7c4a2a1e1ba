"""Every subcommand as a user types it: what it prints, what it writes, how it exits."""

import csv
import json
import math
import os
import re
import subprocess

import h5py
import numpy as np
from app_support import AppCase, environment, fedhpc, finish, main, options, rounds_in, start, wait_until
from fedhpc.tools.configuration import parse_config
from fedhpc.tools.result_file import text_of

KINDS = {"algorithms": "fedavg", "models": "dnn", "datasets": "glyphs", "partitioners": "dirichlet",
         "codecs": "run_length"}
PLAN_KEYS = ["ranks", "clients_per_rank", "bytes_up_per_client", "bytes_down_per_client",
             "memory_per_rank_bytes", "block", "seconds_per_round", "gradient_values_per_client", "clients", "rounds",
             "balance", "balance_at_home", "moved_per_round"]
DIGESTS = ("data_digest", "model_digest", "code_digest")
NOBODY_TRAINED = (r"\Afedhpc: warning: no sample trained in round \d+, its loss is NaN: "
                  r"the clients drawn have no training samples\n\Z")
SMALL = """[run]
rounds = 3
[data]
name = glyphs
clients = 5
samples_per_client = 20
[model]
name = dnn
hidden = 6
[train]
block = 2
"""


class SmallCommands(AppCase):
    def test_output_that_does_not_arrive(self):
        config = self.ini(SMALL, "run.ini")
        for arguments in (["list"], ["help", "keys"], ["--version"], ["plan", config, "--json"]):
            with self.subTest(arguments), open("/dev/full", "w") as full:
                done = subprocess.run([options.fedhpc, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=environment(), cwd=self.folder, timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("standard output cannot be written: No space left on device", done.stderr)

    def test_version(self):
        for ranks in (0, 2):
            out = self.run_ok("--version", ranks=ranks).stdout
            self.assertRegex(out, r"\Afedhpc \d+\.\d+\.\d+ \([0-9a-z.+-]+, torch-\d\S*, \S*MPI\S*-\d\S*, "
                                  r"HDF5-\d+\.\d+\.\d+, (nccl\S*|no nccl), \w+ \d\S* \w+ -march=\S+\)\r?\n\Z")
        for short in ("-v", "-V"):
            self.assertEqual(self.run_ok(short).stdout, self.run_ok("--version").stdout)

    def test_list(self):
        for kind, member in KINDS.items():
            for ranks in (0, 2):
                with self.subTest(kind, ranks=ranks):
                    lines = self.run_ok("list", kind, ranks=ranks).stdout.splitlines()
                    entries = [line.split("\t") for line in lines]
                    self.assertTrue(all(len(entry) == 2 and all(entry) for entry in entries), lines)
                    names = [name for name, _ in entries]
                    self.assertIn(member, names)
                    self.assertEqual(len(set(names)), len(names), "each once")

    def test_show_run(self):
        ini = self.ini(SMALL)
        self.run_ok("run", ini, "--run.output=run.h5")
        lines = dict(line.split(" ", 1) for line in self.run_ok("show", "run", "run.h5", ranks=2).stdout.splitlines())
        self.assertEqual((lines["status"], lines["rounds"]), ("complete", "3"))
        self.assertEqual(lines["checkpoint"], "run.ckpt.3.h5")
        for live in ("swmr", "flush"):  # a flushed file is closed after each round
            process = start("run", ini, "--run.output=killed.h5", "--run.rounds=1000000", "--force", f"--run.live={live}",
                            cwd=self.folder)
            wait_until(process, lambda: rounds_in(self.folder / "killed.h5") > 2)
            process.kill()
            finish(process)
            self.assertIn("status running or killed\n", self.run_ok("show", "run", "killed.h5").stdout)
        (self.folder / "text.h5").write_text("no HDF5")
        for path, reason in (("none.h5", "there is no such file"), ("text.h5", "it is not an HDF5 file"), ("", "RUN.h5"),
                             ("run.ckpt.3.h5", "")):
            done = fedhpc("show", "run", *([path] if path else []), cwd=self.folder)
            self.assertEqual(done.returncode, 2 if reason else 0, done.stderr)
            self.assertIn(reason, done.stderr)

    def test_help_on_every_name(self):
        for kind in KINDS:
            for line in self.run_ok("list", kind).stdout.splitlines():
                name, sentence = line.split("\t")
                with self.subTest(name):
                    out = self.run_ok("help", name).stdout
                    self.assertIn(name, out.splitlines()[0])
                    self.assertIn(sentence, out)

    def test_help_on_keys(self):
        out = self.run_ok("help", "keys").stdout
        keys = re.findall(r"^(?:\(method \w+\) )?([a-z]+\.[a-z_0-9]+)$", out, re.M)
        self.assertGreater(len(keys), 30)
        for key in ("run.seed", "data.alpha", "train.lr", "topology.edges", "algorithm.weighting"):
            self.assertIn(key, keys)
        self.assertEqual(out.count("  allowed: "), len(keys))
        self.assertEqual(out.count("  default: "), len(keys))
        one = self.run_ok("help", "train.lr").stdout
        self.assertTrue(one.startswith("train.lr\n"), one)
        self.assertIn("a number of at least 0", one)
        self.assertIn("algorithm.weighting", self.run_ok("help", "fedavg").stdout)

    def test_help_on_commands(self):
        for command in ("run", "resume", "plan", "list", "help", "export"):
            with self.subTest(command):
                self.assertTrue(self.run_ok("help", command).stdout.startswith(f"fedhpc {command} "))

    def test_help_on_resume(self):
        out = self.run_ok("help", "resume").stdout
        self.assertIn("fedhpc resume RUN.h5", out.splitlines()[0])
        for key in ("run.rounds", "run.output", "run.checkpoint_every", "data.dir"):
            self.assertIn(f"  {key}\n", out)
        self.assertNotIn("train.lr", out)

    def test_usage(self):
        for words in (["help"], ["--help"], ["-h"]):
            out = self.run_ok(*words).stdout
            for command in ("run", "resume", "plan", "list", "help", "export", "--version"):
                self.assertIn(f"fedhpc {command}", out)


class Plan(AppCase):
    def plan(self, *arguments, ranks=0, more=()):
        """The figures of a plan; `more`: keys beyond those of every method."""
        ini = self.ini(SMALL)
        text = self.run_ok("plan", ini, *arguments, ranks=ranks).stdout
        lines = dict(line.split(": ") for line in text.splitlines())
        keys = [*PLAN_KEYS, *more]
        self.assertEqual(list(lines), keys)
        packed = json.loads(self.run_ok("plan", ini, "--json", *arguments, ranks=ranks).stdout)
        self.assertEqual(list(packed), [*keys, "config", "metrics", *DIGESTS])
        for key in set(keys) - {"seconds_per_round", "memory_per_rank_bytes"}:
            self.assertEqual(float(lines[key]), packed[key])
        return packed

    def test_the_configuration_and_the_series_are_those_of_the_run(self):
        names = 'cl"a\\ss=#1 \u00e9'
        edges = ["--topology.edges=2", "--train.local_steps=1", "--network.client_edge_mbps=10"]
        for more in (["--algorithm.name=fedprox", "--algorithm.mu=0.3", "--run.seed=4"],
                     ["--algorithm.name=tdpfed", "--data.validation_fraction=0.2"],
                     ["--algorithm.name=fedrep", "--data.split=official"], ["--algorithm.name=localonly"],
                     ["--data.train_fraction=1"], ["--algorithm.name=hierfavg", *edges]):
            arguments = [self.ini(SMALL), f"--run.output={self.folder}/{names}.h5", *more]
            told = json.loads(self.run_ok("plan", *arguments, "--json", ranks=2).stdout)
            listed = [line.split("\t") for line in self.run_ok("plan", *arguments, "--series").stdout.splitlines()]
            self.assertEqual([name for name, _, _ in listed], told["metrics"])
            self.run_ok("run", *arguments, "--force")
            with h5py.File(self.folder / f"{names}.h5") as file:
                self.assertEqual(listed, [[name, *(text_of(file["rounds"][name].attrs[of]) for of in ("unit", "meaning"))]
                                          for name in told["metrics"]])
                self.assertEqual(told["config"], parse_config(text_of(file.attrs["config"])))
                values = {name for name in file["rounds"] if np.isfinite(file["rounds"][name][...]).any()}
                self.assertEqual({*told["metrics"], "round"}, values, more)
                for name in DIGESTS:
                    self.assertEqual(told[name], file.attrs.get(name, b"").decode())

    def test_a_plan_is_shown_in_one_way(self):
        done = fedhpc("plan", self.ini(SMALL), "--series", "--json", cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--json has the series as well: leave out --series", done.stderr)

    def test_clients_that_batch_norm_leaves_without_steps_are_told_of(self):
        with h5py.File(self.folder / "parts.h5", "w") as file:
            for part, counts in (("train", (8, 1)), ("test", (4, 4))):
                file[f"{part}_offsets"] = np.cumsum((0, *counts))
            file["train_samples"], file["test_samples"] = np.arange(9), np.arange(20, 28)
        ini = self.ini("[data]\nname=glyphs\npartition=file\npartition_file=parts.h5\n[run]\nrounds=1\n")
        told = "fedhpc: warning: 1 of 2 clients have only batches of one sample, on which batch norm takes no step"
        for model, warned in (("mlr", False), ("cnn2", True)):
            self.assertEqual(told in self.run_ok("plan", ini, f"--model.name={model}").stderr, warned, model)

    def test_factors_that_a_file_of_weights_lacks_are_told_of(self):
        ini = self.ini(SMALL)
        told = "begins with factors, and model.init_file has none: those of 2 layers are drawn"
        every = "--model.exclude=none"
        self.run_ok("run", ini, "--run.rounds=1", f"--run.output={self.folder}/weights.h5")
        self.run_ok("run", ini, "--run.rounds=1", "--algorithm.name=fedlmt", every, f"--run.output={self.folder}/factors.h5")
        for method, file, warned in (("fedlmt", "weights", True), ("tdpfed", "weights", True), ("fedlmt", "factors", False),
                                     ("fedhm", "weights", False), ("fedmud", "weights", False)):
            done = self.run_ok("plan", ini, f"--algorithm.name={method}", every, f"--model.init_file={self.folder}/{file}.h5")
            self.assertEqual(told in done.stderr, warned, (method, done.stderr))

    def test_an_output_that_a_run_would_refuse_is_named(self):
        ini = self.ini(SMALL)
        for output, words in ((self.folder / "no" / "run.h5", f"the folder '{self.folder}/no' does not exist"),
                              (self.folder, "it is a folder")):
            done = self.run_ok("plan", ini, f"--run.output={output}")
            self.assertIn("fedhpc: warning: a run here would be refused: command line: key 'run.output'", done.stderr)
            self.assertIn(words, done.stderr)
        self.assertEqual(self.run_ok("plan", ini).stderr, "")

    def test_gradients_of_methods(self):
        """Sample gradients of a round, in values: twice a model's where a client trains twice."""
        size = (784 + 1) * 6 + (6 + 1) * 10
        factors = {"fedavg": 1, "fedprox": 1, "fedavg_ft": 2, "fedprox_ft": 2, "ditto": 2, "fedrep": 1,
                   "fedper": 1, "lg_fedavg": 1, "apfl": 2, "moon": 1, "fedselect": 2, "pfedsop": 1, "pfedme": 5,
                   "pfedgraph": 1, "perfedavg": 2}
        for method, factor in factors.items():
            with self.subTest(method):
                for keys, visited in ((["--train.batch_size=0"], 15),
                                      (["--train.local_epochs=3"], 45),
                                      (["--train.local_steps=3", "--train.batch_size=5"], 15),
                                      # 4, 4, 4 and 3 samples, and 4 and 4 of the next epoch
                                      (["--train.local_steps=6", "--train.batch_size=4"], 23)):
                    packed = self.plan(f"--algorithm.name={method}", *keys)
                    self.assertEqual(packed["gradient_values_per_client"], factor * visited * size)
        absent = self.plan("--train.batch_size=0", "--train.stragglers=0.5", "--train.straggler_work=none")
        self.assertEqual(absent["gradient_values_per_client"], 15 * size)  # of those who take part
        # Beside training gradients of its weights: 80 % of the samples, the classifier's columns or all layers'.
        for layers, of_weights in ((1, (6 + 1) * 10), (2, size)):
            packed = self.plan("--algorithm.name=fedala", f"--algorithm.layers={layers}", "--train.batch_size=0")
            self.assertEqual(packed["gradient_values_per_client"], 15 * size + 12 * of_weights)

    def test_factors_of_fedmud(self):
        """What of cnn4 travels at 1/32, first and last layer in full, and what of each layer is left."""
        layers = ["factors.conv2", "factors.conv3", "factors.conv4"]
        packed = self.plan("--model.name=cnn4", "--algorithm.name=fedmud", "--model.compression=32",
                           "--model.compression_scope=model",
                           more=["trainable_columns", "trained_columns", *layers])
        self.assertEqual((packed["trainable_columns"], packed["trained_columns"]), (390_880, 11_872))
        self.assertEqual([packed[layer] for layer in layers], [2 * 288, 3 * 576, 5 * 1152])
        # batch norm's statistics travel as well, and the seed
        self.assertEqual(packed["bytes_up_per_client"], 4 * (11_872 + 960))
        self.assertEqual(packed["bytes_down_per_client"], 4 * (11_872 + 960) + 8)

    def test_bytes_that_change_are_said_to(self):
        plan = ["plan", self.ini(SMALL), "--run.rounds=6"]
        told = "bytes change with the rounds: those of a client's third one"
        self.assertIn(told, self.run_ok(*plan, "--algorithm.name=fedselect").stderr)
        self.assertNotIn(told, self.run_ok(*plan, "--algorithm.name=scaffold").stderr)

    def test_no_bound_is_null(self):
        done = self.run_ok("plan", "--json", self.ini(SMALL), "--privacy.clip=1", "--privacy.noise=1e-160",
                           "--algorithm.weighting=uniform")
        self.assertIsNone(json.loads(done.stdout)["epsilon"])

    def test_figures(self):
        size = (784 + 1) * 6 + (6 + 1) * 10
        one, double = self.plan(), self.plan("--run.dtype=float64")
        self.assertEqual((one["ranks"], one["clients_per_rank"], one["block"]), (1, 5, 2))
        self.assertEqual(one["bytes_up_per_client"], 4 * size)
        self.assertEqual(one["bytes_down_per_client"], 4 * size)
        self.assertEqual(double["bytes_up_per_client"], 8 * size)
        self.assertGreater(one["memory_per_rank_bytes"], 3 * 2 * 4 * size)
        self.assertGreater(one["seconds_per_round"], 0)
        # 15 training samples of each client, visited once
        self.assertEqual(one["gradient_values_per_client"], 15 * size)
        two = self.plan(ranks=2)
        self.assertEqual((two["ranks"], two["clients_per_rank"]), (2, 3))
        self.assertEqual(os.listdir(self.folder), ["config.ini"], "a plan writes nothing")

    def test_a_machine_that_is_not_there(self):
        many = ["--data.clients=60", "--data.samples_per_client=400", "--topology.participation=0.2", "--run.rounds=50"]
        here = self.plan(*many, "--ranks", "8")
        self.assertEqual(here["ranks"], 8)
        self.assertEqual(here["clients_per_rank"], 8)
        self.assertLess(here["balance_at_home"], 0.6)
        self.assertEqual(here["balance"], 0.75, "12 equal clients on 8 ranks")
        self.assertGreater(here["moved_per_round"], 1)
        home = self.plan(*many, "--topology.placement=home", "--ranks", "8")
        self.assertEqual((home["balance"], home["moved_per_round"]), (home["balance_at_home"], 0))
        self.assertEqual(home["balance_at_home"], here["balance_at_home"])
        one = self.plan(*many)
        self.assertEqual((one["balance"], one["moved_per_round"]), (1, 0))
        samples = 60 * 400 * (784 + 8)  # bytes, of which a rank holds an eighth and a half
        self.assertGreater(one["memory_per_rank_bytes"] - here["memory_per_rank_bytes"], 0.7 * samples)
        for wrong in (["--ranks"], ["--ranks", "0"], ["--ranks", "many"], ["--ranks", "2x"]):
            done = fedhpc("plan", self.ini(SMALL), *wrong, cwd=self.folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--ranks = '", done.stderr)

    def test_a_block_wider_than_the_clients_costs_what_they_cost(self):
        wide = self.plan("--train.block=1000000000")
        self.assertLess(wide["memory_per_rank_bytes"] - self.plan("--train.block=5")["memory_per_rank_bytes"], 1 << 20)


class Run(AppCase):
    def test_default_output_and_plain_progress(self):
        out = self.run_ok("run", self.ini(SMALL, "named.ini"), "--run.eval_every=2").stdout
        self.assertEqual(sorted(os.listdir(self.folder)), ["named.ckpt.3.h5", "named.h5", "named.ini"])
        lines = out.splitlines()
        self.assertTrue(lines[0].startswith("fedhpc "), "the build comes first")
        self.assertRegex(out, r"(?m)^  train.block +2 +\S*named.ini:11$")
        self.assertRegex(out, r"(?m)^  run.eval_every +2 +command line$")
        rounds = [line for line in lines if line.startswith("round ")]
        self.assertEqual([line.split()[1] for line in rounds], ["2/3", "3/3"], "evaluated rounds")
        for word in ("loss", "accuracy", "B", "rounds/s", "left"):
            self.assertIn(word, rounds[0])

    def test_bar(self):
        # Reading as text turns the carriage return that redraws the bar into a new line.
        out = self.run_ok("run", self.ini(SMALL), "--run.progress=bar").stdout
        self.assertIn("\n[########################] round 3/3", out)

    def test_no_progress_prints_nothing(self):
        for ranks in (0, 2):
            done = self.run_ok("run", self.ini(SMALL), "--run.progress=none", ranks=ranks)
            self.assertEqual(done.stdout + done.stderr, "")

    def test_command_line_wins(self):
        self.run_ok("run", self.ini(SMALL), "--run.rounds=2", "--train.local_steps=4",
                    "--run.output=other.h5")
        with h5py.File(self.folder / "other.h5") as file:
            self.assertEqual(len(file["rounds/round"]), 2)
            self.assertIn("local_steps = 4\nlocal_epochs = 0\n", file.attrs["config"].decode())

    def test_divergence_is_a_warning(self):
        done = self.run_ok("run", self.ini(SMALL), "--train.lr=1e30", "--run.progress=none")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, r"^fedhpc: warning: the run diverges since round \d: .*loss.*train\.lr")

    def test_a_line_says_whose_accuracy_it_is(self):
        """The global model's, beside it the clients' own where that is another, or theirs alone."""
        run = ["run", self.ini(SMALL), "--data.name=glyphs", "--data.partition=labels", "--data.labels_per_client=1",
               "--train.lr=0.02", "--run.eval_every=20"]
        for method, words in (("fedavg", r" accuracy [0-9.]+ %  [0-9]"), ("fedrep", r"  personal accuracy [0-9.]+ %  [0-9]"),
                              ("ditto", r"[0-9]  accuracy [0-9.]+ % \(personal [0-9.]+ %\)  [0-9]")):
            out = self.run_ok(*run, f"--algorithm.name={method}", f"--run.output={method}.h5", "--run.rounds=20").stdout
            self.assertRegex(out.splitlines()[-2], words)

    def test_what_nobody_has_of_lists_and_stragglers_is_told(self):
        config = self.ini(f"{SMALL}batch_size = 4\n")
        told = self.run_ok("run", config, "--network.step_seconds=1,2,3,4,5,6,7",
                           "--train.stragglers=0.5,0,0,0,0,0.1").stderr
        self.assertIn("network.step_seconds has 7 numbers for 5 clients: nobody has the last 2", told)
        self.assertIn("train.stragglers has 6 numbers for 5 clients: nobody has the last 1", told)
        alone = ["--topology.participation=0.1", "--train.stragglers=0.5", "--train.straggler_work=none", "--force"]
        self.assertIn("train.stragglers leaves nobody out: a round has one participant, who always stays",
                      self.run_ok("run", config, *alone).stderr)
        edges = ["--algorithm.name=hierfavg", "--topology.edges=2", "--network.edge_cloud_mbps=1,2,3"]
        told = self.run_ok("run", config, *alone, *edges).stderr
        self.assertIn("leaves nobody out: a round has one participant at each edge", told)
        self.assertIn("network.edge_cloud_mbps has 3 numbers for 2 edges: nobody has the last 1", told)
        self.assertNotIn("nobody", self.run_ok("run", config, "--network.step_seconds=1,2", "--train.stragglers=0.5",
                                               "--train.straggler_work=none", "--force").stderr)

    def test_a_partition_of_other_data_is_told(self):
        config = self.ini(f"{SMALL}batch_size = 4\n")
        made = ["--data.name=synthetic", "--data.partition=labels", "--data.labels_per_client=1", "--data.samples_per_client=30"]
        self.run_ok("run", config, *made, "--run.save=partition", "--run.output=parts.h5", "--data.seed=4")
        again = ["run", config, "--data.partition=file", "--data.partition_file=parts.h5", "--data.samples_per_client=30",
                 "--run.output=again.h5", "--force"]
        told = "parts.h5 is of other data: [1-5] of 5 clients had other labels there"
        self.assertNotIn("other data", self.run_ok(*again, "--data.name=synthetic", "--data.seed=4", "--run.seed=9").stderr)
        self.assertRegex(self.run_ok(*again, "--data.name=synthetic", "--run.seed=9").stderr, told)
        self.assertRegex(self.run_ok(*again, "--data.name=glyphs", "--data.seed=4").stderr, told)

    def test_clients_without_training_samples_are_told(self):
        with h5py.File(self.folder / "parts.h5", "w") as parts:
            parts["train_offsets"], parts["train_samples"] = [0, 0, 3], [0, 1, 2]
            parts["test_offsets"], parts["test_samples"] = [0, 1, 1], [3]
        told = self.run_ok("run", self.ini(SMALL), "--data.partition=file", "--data.partition_file=parts.h5").stderr
        self.assertIn("1 of 2 clients have no training samples", told)

    def test_samples_that_a_client_has_twice_are_told(self):
        with h5py.File(self.folder / "parts.h5", "w") as parts:
            parts["train_offsets"], parts["train_samples"] = [0, 4, 6], [0, 1, 0, 0, 0, 2]
            parts["test_offsets"], parts["test_samples"] = [0, 2, 3], [3, 3, 4]
        run = ["run", self.ini(SMALL), "--data.partition=file", "--data.partition_file=parts.h5"]
        self.assertIn("parts.h5 gives clients samples that they have already, 3 times; such a sample counts as often",
                      self.run_ok(*run).stderr)
        with h5py.File(self.folder / "parts.h5", "r+") as parts:
            parts["train_samples"][...], parts["test_samples"][...] = [0, 1, 5, 6, 0, 2], [3, 7, 4]
        self.assertNotIn("have already", self.run_ok(*run, "--force").stderr)

    def test_a_key_that_another_level_has_put_out_of_action_puts_no_other_one_in_the_wrong(self):
        config = self.ini(f"{SMALL}[privacy]\nclip = 0.5\nnoise = 1\n")
        done = self.run_ok("run", config, "--algorithm.name=fednova")
        self.assertIn("'privacy.clip' = '0.5' has no effect with algorithm.name = fednova; it is left out", done.stderr)
        self.assertIn("'privacy.noise' = '1' has no effect with privacy.clip = 0; it is left out", done.stderr)

    def test_a_rate_that_never_changes_is_told(self):
        run = ["run", self.ini(f"{SMALL}batch_size = 4\n"), "--force"]  # of 3 rounds
        for keys, words in (
                (["--train.lr_schedule=step", "--train.lr_every=2"], None),
                (["--train.lr_schedule=step", "--train.lr_every=3"], "train.lr_every = 3 has no effect on the rate: the run has 3 rounds"),
                (["--train.lr_schedule=step", "--train.lr_every=2", "--train.lr_warmup=1"], "has 3 rounds, 1 of them a warm-up"),
                (["--train.lr_schedule=milestones", "--train.lr_milestones=1,2"], None),
                (["--train.lr_schedule=milestones", "--train.lr_milestones=1,30"], "train.lr_milestones = 30 has no effect"),
                (["--train.lr_warmup=2"], None),
                (["--train.lr_warmup=3"], "train.lr_warmup = 3: train.lr is not reached in 3 rounds")):
            with self.subTest(keys):
                told = self.run_ok(*run, *keys).stderr
                if words is None:
                    self.assertNotIn("train.lr", told)
                else:
                    self.assertIn(words, told)

    def test_a_run_that_scores_no_model_says_so(self):
        done = self.run_ok("run", self.ini(SMALL), "--data.train_fraction=1", "--run.progress=none")
        self.assertEqual(done.stderr.count("no model was scored after round"), 1, done.stderr)
        self.assertIn("data.train_fraction below 1", done.stderr)
        done = self.run_ok("run", self.ini(SMALL), "--data.split=official", "--run.progress=none")
        self.assertEqual(done.stderr, "")

    def test_few_samples_few_clients_many_ranks(self):
        """Runs that have to work although some rank, client or round has nothing to do."""
        sizes = [0, 1, 7]
        with h5py.File(self.folder / "parts.h5", "w") as parts:
            parts["train_offsets"], parts["train_samples"] = np.cumsum([0, *sizes]), np.arange(8)
            parts["test_offsets"], parts["test_samples"] = [0, 1, 1, 1], [8]
        from_file = ["--data.partition=file", "--data.partition_file=parts.h5", "--data.samples_per_client=8"]
        cases = {
            "one client": (["--data.clients=1"], 0),
            "one client, two ranks": (["--data.clients=1"], 2),
            "more ranks than clients": (["--data.clients=2"], 4),
            "more ranks than clients, measured block": (["--data.clients=2", "--train.block=auto"], 3),
            "one sample per client": (["--data.samples_per_client=1", "--data.train_fraction=1"], 0),
            "no test samples": (["--data.train_fraction=1"], 2),
            "clients of 0, 1 and 7 samples": (from_file, 0),
            "the same on 3 ranks": ([*from_file, "--train.block=auto"], 3),
            "rounds that draw the empty client": ([*from_file, "--topology.participation=0.3",
                                                   "--run.rounds=12"], 2),
            "official test set, more ranks than test samples": (
                ["--data.split=official", "--data.samples_per_client=1", "--data.clients=2"], 3),
        }
        for name, (arguments, ranks) in cases.items():
            with self.subTest(name):
                done = self.run_ok("run", self.ini(SMALL), "--run.progress=none", *arguments, ranks=ranks)
                unscored = "--data.train_fraction=1" in arguments
                told = done.stderr
                if from_file[1] in arguments:
                    first, _, told = told.partition("\n")
                    self.assertIn("1 of 3 clients have no training samples", first)
                self.assertRegex(told, NOBODY_TRAINED if "empty" in name else
                                 r"\A.*no model was scored after round 1.*\n\Z" if unscored else r"\A\Z")
                with h5py.File(self.folder / "config.h5") as file:
                    self.assertEqual(file.attrs["status"], b"complete")
                    trained = file["rounds/train_loss"][...]
                    self.assertTrue(np.isfinite(trained).any())
                    for values in file["model/global"].values():
                        self.assertTrue(np.isfinite(values[...]).all())
        # The last partition file's run has rounds in which nobody could train: NaN, and one warning.
        self.run_ok("run", self.ini(SMALL), *from_file, "--topology.participation=0.3", "--run.rounds=12",
                    "--run.save=draws")
        with h5py.File(self.folder / "config.h5") as file:
            np.testing.assert_array_equal(np.isnan(file["rounds/train_loss"]), file["draws/cohort"][:, 0] == 0)
            self.assertIn(0, file["draws/cohort"][:, 0])

    def test_full_disk(self):
        """A write that fails during the run: exit code 1, one line, committed rounds readable."""
        limit = ["bash", "-c", 'trap "" XFSZ; ulimit -f 130; exec "$@"', "limited", options.fedhpc]
        done = subprocess.run([*limit, "run", str(self.ini(SMALL)), "--run.rounds=100000", "--run.progress=none",
                               "--data.clients=200", "--data.samples_per_client=2", "--data.train_fraction=0.5",
                               "--topology.participation=0.01", "--run.save=draws"],
                              cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], r"^fedhpc: error: rank 0 on \S+: .*File too large")
        with h5py.File(self.folder / "config.h5", "r", swmr=True) as file:
            done = len(file["rounds/round"])
            self.assertGreater(done, 3)
            np.testing.assert_array_equal(file["rounds/round"], np.arange(1, done + 1))
            self.assertTrue(np.isfinite(file["rounds/global_loss"][:done]).all())
            self.assertIn(file.attrs["status"], (b"failed", b"running"))


class Export(AppCase):
    def test_csv(self):
        self.run_ok("run", self.ini(SMALL), "--run.eval_every=3", "--data.validation_fraction=0.2")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                self.run_ok("export", "config.h5", "--csv", f"csv{ranks}/deep", ranks=ranks)
                folder = self.folder / f"csv{ranks}" / "deep"
                with open(folder / "rounds.csv") as rounds, open(folder / "clients.csv") as clients:
                    rounds, clients = list(csv.DictReader(rounds)), list(csv.DictReader(clients))
                with h5py.File(self.folder / "config.h5") as file:
                    self.assertEqual(set(rounds[0]), set(file["rounds"]))
                    for name, column in file["rounds"].items():
                        read = [float(row[name] or math.nan) for row in rounds]
                        np.testing.assert_array_equal(read, column[...], name)
                    for name in ("edge", "train_samples", "validation_samples", "test_samples", "best_accuracy"):
                        read = [float(row[name] or math.nan) for row in clients]
                        np.testing.assert_array_equal(read, file[f"clients/{name}"][...], name)
                    self.assertEqual([int(row["client"]) for row in clients], list(range(5)))
        done = self.run_ok("export", "config.h5", "--csv", "csv0/deep")
        names = sorted(path.name for path in (self.folder / "csv0" / "deep").glob("*.csv"))
        self.assertEqual(names, ["clients.csv", "clients.old1.csv", "rounds.csv", "rounds.old1.csv"])
        self.assertIn("the earlier table is now csv0/deep/rounds.old1.csv\ncsv0/deep/rounds.csv\n", done.stdout)


if __name__ == "__main__":
    main()
