"""What the program refuses: a table of inputs, each refused with exit code 2 and one line that names
the key or file, the value and the remedy, before anything is written.
"""

import fcntl
import gzip
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

import h5py
import numpy as np
from app_support import IDX_FILES, AppCase, apart, edited, environment, fedhpc, main, options, read_idx, write_idx
from fedhpc.tools.configuration import parse_config
from fedhpc.tools.result_file import text_of

BASE = """[run]
rounds = 1
progress = none
[data]
name = mnist
dir = {data}
clients = 4
[model]
name = dnn
hidden = 5
[train]
block = 1
"""

# Of methods: runs of which as many keys as can be have an effect.
MANY_KEYS = """[run]
rounds = 1
[data]
name = synthetic
clients = 6
samples_per_client = 40
validation_fraction = 0.2
[model]
name = dnn
hidden = 8
[train]
batch_size = 4
local_epochs = 1
momentum = 0.5
clip_norm = 3
label_smoothing = 0.1
stragglers = 0.2
[network]
latency_ms = 20
"""
OF_MANY_KEYS = {
    "fedavg": """client_cloud_mbps = 10
[data]
partition = dirichlet
alpha = 0.7
[topology]
participation = 0.5
[train]
lr_schedule = step
lr_every = 3
lr_warmup = 2
[privacy]
clip = 0.5
noise = 1
[algorithm]
weighting = uniform
[server]
optimizer = adam
""",
    "pfedme": """client_cloud_mbps = 10
[data]
partition = labels
labels_per_client = 2
[train]
lr_schedule = cosine
[algorithm]
name = pfedme
""",
    "sfedhp": """client_edge_mbps = 10
edge_cloud_mbps = 100
[topology]
edges = 2
[algorithm]
name = sfedhp
restart = round
""",
    "fedmud": """client_cloud_mbps = 10
[model]
exclude = none
[algorithm]
name = fedmud
""",
}
# What `fedhpc help resume` lists.
CHANGEABLE = ["run.rounds", "run.output", "run.plugin", "run.progress", "run.log_level", "run.eval_every", "run.live",
              "run.device", "run.collective_timeout", "run.mpi", "run.checkpoint_every", "run.grace_seconds",
              "run.stop_on_divergence", "data.dir", "data.file", "data.test_file", "data.partition_file", "model.file",
              "model.init_file", "train.block", "store.device_budget"]
# With another one of these other keys have an effect, or none is among their values.
LEFT_AS_THEY_ARE = {"run.dtype", "data.name", "data.augment", "data.split", "data.partition", "data.train_per_class",
                    "data.test_per_class", "model.name", "train.local_steps", "train.lr_schedule", "train.loss",
                    "train.optimizer", "algorithm.name", "algorithm.weighting", "algorithm.downlink_codec",
                    "algorithm.codec", "algorithm.transmit_fraction"}
OTHERS = {"run.save": "draws", "data.standardize": "none", "data.labels_rule": "least_used",
          "data.synthetic_clusters": "2", "model.init": "xavier", "model.factorisation": "low_rank_aad",
          "model.compression_scope": "model", "model.exclude": "first", "topology.participation": "0.8",
          "topology.edge_participation": "0.5", "topology.placement": "home", "train.lr_final": "0.01",
          "train.lr_unit": "epoch", "train.weight_decay": "0.01", "train.straggler_work": "none", "train.block": "2",
          "train.precision": "bf16", "algorithm.gamma1": "0.1", "algorithm.restart": "step",
          "algorithm.evaluate": "local", "algorithm.start": "factors", "server.optimizer": "yogi",
          "server.lr": "0.1", "server.eps": "0.002"}


def another(key, value):
    """Another value that the key takes."""
    if key in OTHERS:
        return OTHERS[key]
    if value in ("true", "false"):
        return {"true": "false", "false": "true"}[value]
    return str(int(value) + 1) if value.lstrip("-").isdigit() else f"{float(value) / 2:g}"


# name: (arguments after `run base.ini`, words the message must hold)
KEYS = {
    "unknown key": (["--run.colour=red"], ["unknown key 'run.colour'", "red", "fedhpc help keys"]),
    "misspelt key": (["--run.ronuds=5"], ["'run.ronuds'", "did you mean 'run.rounds'"]),
    "prefix of a key": (["--train.batch=5"], ["'train.batch'", "did you mean 'train.batch_size'"]),
    "key without section": (["--rounds=5"], ["'rounds'", "did you mean 'run.rounds'"]),
    "key in another section": (["--data.hidden=5"], ["'data.hidden'", "did you mean 'model.hidden'"]),
    "key of no method": (["--algorithm.mu=1"], ["unknown key 'algorithm.mu'"]),
    "empty value": (["--train.lr="], ["train.lr", "empty value", "a number of at least 0"]),
    "empty method": (["--algorithm.name="], ["algorithm.name", "fedavg"]),
    "negative": (["--train.lr=-0.1"], ["train.lr", "-0.1", "a number of at least 0"]),
    "too large": (["--topology.participation=1.5"], ["topology.participation", "1.5", "at most 1"]),
    "zero participation": (["--topology.participation=0"], ["topology.participation", "'0'", "above 0"]),
    "zero rounds": (["--run.rounds=0"], ["run.rounds", "'0'", "at least 1"]),
    "momentum of Adam": (["--train.optimizer=adam", "--train.momentum=0.9"], ["train.momentum", "has no effect"]),
    "Nesterov without": (["--train.optimizer=nesterov", "--train.nesterov=false"], ["train.nesterov", "has no effect"]),
    "Nesterov of momentum": (["--train.optimizer=momentum", "--train.nesterov=true"], ["train.nesterov", "has no effect"]),
    "Nesterov of no momentum": (["--train.nesterov=true"], ["train.nesterov", "has no effect"]),
    "zero block": (["--train.block=0"], ["train.block", "'0'", "auto"]),
    "zero width": (["--model.hidden=0"], ["model.hidden", "'0'", "at least 1"]),
    "no numbers": (["--model.hidden=a,b"], ["model.hidden", "'a,b'", "separated by commas"]),
    "a comma too many": (["--model.hidden=5,"], ["model.hidden", "'5,'", "separated by commas"]),
    "a model beyond memory": (["--model.hidden=100000000000"], ["model.hidden", "100000000000", "at most"]),
    "rows beyond memory": (["--model.hidden=16000000,16000000"], ["dnn", "does not fit into memory"]),
    "not a number": (["--train.lr=nan"], ["train.lr", "'nan'"]),
    "infinite": (["--train.lr=inf"], ["train.lr", "'inf'"]),
    "overflow": (["--train.lr=1e999"], ["train.lr", "'1e999'"]),
    "a word for a number": (["--run.rounds=ten"], ["run.rounds", "'ten'", "a whole number"]),
    "a fraction for a count": (["--run.rounds=2.5"], ["run.rounds", "'2.5'", "a whole number"]),
    "unit behind a number": (["--run.rounds=5k"], ["run.rounds", "'5k'"]),
    "factors of a method without": (["--model.factorisation=cp"],
                                    ["model.factorisation", "'cp'", "fedavg", "none"]),
    "rank of a method without": (["--model.rank=3"], ["model.rank", "'3'", "fedavg", "drop the key"]),
    "ranks for other layers": (["--algorithm.name=tdpfed", "--model.rank=3,3,3"], ["model.rank", "3 ranks", "fc1"]),
    "rank and the default's rate": (["--algorithm.name=tdpfed", "--model.rank=3", "--model.compression=2"],
                                    ["model.rank", "model.compression", "keep one"]),
    "an odd number of features": (["--algorithm.name=simnet", "--algorithm.graph=data", "--algorithm.kernel=fourier",
                                   "--algorithm.fourier_features=65"], ["algorithm.fourier_features", "'65'", "add one"]),
    "a bound above the other's default": (["--algorithm.name=fedbat", "--algorithm.most_step=1e-4"],
                                          ["algorithm.most_step", "1e-04", "algorithm.least_step"]),
    "a rate that is minus zero": (["--algorithm.name=scaffold", "--train.lr=-0"], ["train.lr", "divides by it", "raise it"]),
    "a rate that is lost": (["--algorithm.name=pfedsop", "--train.lr_schedule=exponential", "--train.lr_decay=0.1",
                             "--run.rounds=60"], ["train.lr_schedule", "exponential", "in round 60", "let it fall less"]),
    "words that are answers": (["--data.name=words", "--data.classes=2"],
                               ["data.classes", "at least 3"]),
    "a state of no file": (["--model.init_state=final"], ["model.init_state", "it needs model.init_file set"]),
    "momentum's decay of biases": (["--train.weight_decay=-0", "--train.decay_biases=false"],
                                   ["train.decay_biases", "train.weight_decay"]),
    "rank and rate": (["--algorithm.name=tdpfed", "--model.rank=3", "--model.compression=3"],
                      ["model.rank", "model.compression", "keep one"]),
    "an unknown layer": (["--algorithm.name=tdpfed", "--model.exclude=fc9"], ["model.exclude", "'fc9'", "fc1"]),
    "an identity that is none": (["--algorithm.name=fedmud", "--algorithm.constants=identity"],
                                 ["algorithm.constants", "'identity'", "low_rank_f", "drop the key"]),
    "blocks that make no grid": (["--algorithm.name=fedmud", "--model.factorisation=kronecker", "--model.rank=5",
                                  "--model.block_layout=grid", "--model.exclude=last"],
                                 ["model.rank", "5 blocks", "square numbers"]),
    "more compression than is left": (["--algorithm.name=fedmud", "--model.exclude=first", "--model.compression=99",
                                       "--model.compression_scope=model"],
                                      ["model.compression", "99", "in full", "model.exclude"]),
    "no layer left": (["--algorithm.name=fedlmt"], ["model.exclude", "first, last", "none"]),
    "a view without a matrix": (["--model.conv_view=raw"], ["model.conv_view", "fedavg", "drop the key"]),
    "a rule the method has not": (["--algorithm.name=tdpfed", "--train.optimizer=adam"],
                                  ["train.optimizer", "'adam'", "tdpfed", "drop the key"]),
    "nothing to transmit": (["--algorithm.transmit_fraction=0"], ["algorithm.transmit_fraction", "'0'", "above 0"]),
    "unknown method": (["--algorithm.name=fedagv"], ["fedagv", "did you mean 'fedavg'"]),
    "unknown model": (["--model.name=dnm"], ["model.name", "'dnm'", "mlr", "did you mean 'dnn'"]),
    "unknown data": (["--data.name=minst"], ["data.name", "'minst'", "did you mean 'mnist'"]),
    "unknown partition": (["--data.partition=dirichlt"], ["'dirichlt'", "did you mean 'dirichlet'"]),
    "unknown thing to save": (["--run.save=init,parttion"], ["run.save", "'init,parttion'", "draws"]),
    "line break in a value": (["--model.name=a\nb"], ["model.name", "a b"]),
    "both steps and epochs": (["--train.local_steps=2", "--train.local_epochs=2"],
                              ["train.local_steps = 2", "train.local_epochs = 2", "keep one"]),
    "neither steps nor epochs": (["--train.local_steps=0", "--train.local_epochs=0"],
                                 ["train.local_steps", "train.local_epochs", "above 0"]),
    "positional junk": (["junk"], ["'junk'", "--section.key=value"]),
    "key without value": (["--run.seed"], ["'--run.seed'", "--section.key=value"]),
    "one dash": (["-run.seed=1"], ["'-run.seed=1'", "--section.key=value"]),
    "more edges than clients": (["--algorithm.name=hierfavg", "--topology.edges=5"],
                                ["topology.edges = 5", "4 clients"]),
    "edges of a method without": (["--topology.edges=2"], ["'topology.edges' = '2'", "no effect", "hierfavg", "fedavg"]),
    "a line that is not there": (["--network.edge_cloud_mbps=1"], ["'network.edge_cloud_mbps'", "no effect", "hierfavg"]),
    "alpha of another partition": (["--data.alpha=0.5"], ["'data.alpha' = '0.5'", "no effect", "data.partition = iid",
                                                          "dirichlet", "drop the key"]),
    "widths of another model": (["--model.name=mlr", "--model.hidden=5"],
                                ["'model.hidden' = '5'", "no effect", "model.name = mlr", "dnn"]),
    "a file of another data set": (["--data.file=x.csv"], ["'data.file'", "no effect", "csv, libsvm or hdf5"]),
    "clusters of another codec": (["--algorithm.k=16"], ["'algorithm.k' = '16'", "no effect", "kmeans"]),
    "epochs beyond all bounds": (["--train.local_epochs=4611686018427387904"],
                                 ["train.local_epochs", "'4611686018427387904'", "at most 2147483647"]),
    "steps beyond 64 bits": (["--train.local_steps=9223372036854775808"], ["train.local_steps", "at most 2147483647"]),
    "more clients than samples": (["--data.clients=5000"], ["data.clients = 5000", "280 samples", "mnist"]),
    "clients beyond all bounds": (["--data.clients=99999999999"], ["data.clients", "99999999999", "at most"]),
    "counts per class impossible": (
        ["--data.partition=labels", "--data.labels_per_client=2", "--data.train_per_class=90",
         "--data.test_per_class=5"], ["data.train_per_class = 90", "mnist", "lower"]),
    "train_per_class alone": (["--data.partition=labels", "--data.train_per_class=3"],
                              ["data.train_per_class = 3", "data.test_per_class", "together"]),
    "counts per class of no labels": (["--data.train_per_class=3", "--data.test_per_class=3"],
                                      ["data.train_per_class", "data.partition = labels"]),
    "too many labels": (["--data.partition=labels", "--data.labels_per_client=11"],
                        ["data.labels_per_client = 11", "10 labels"]),
    "dirichlet asks too much": (["--data.partition=dirichlet", "--data.min_samples=100"],
                                ["data.min_samples = 100", "data.clients = 4", "lower"]),
    "dirichlet finds nothing": (["--data.partition=dirichlet", "--data.min_samples=69", "--data.alpha=0.01"],
                                ["data.alpha = 0.01", "at least 69", "lower"]),
    "nobody trains": (["--data.train_fraction=0.0001"], ["data.train_fraction = 0.0001", "raise"]),
    "no natural clients": (["--data.partition=natural"], ["natural", "mnist", "choose another"]),
    "partition of no file": (["--data.partition=file"],
                             ["data.partition = file", "data.partition_file"]),
    "partition file of another rule": (["--data.partition_file=old.h5"], ["old.h5", "data.partition = file"]),
    "half on real numbers": (["--data.name=synthetic", "--data.standardize=half"],
                             ["data.standardize = half", "none or unit"]),
    "no data folder": (["--data.dir=/nonexistent/folder"],
                       ["/nonexistent/folder/mnist/train-images-idx3-ubyte", "data.dir", "fetch_data.py"]),
    "output in no folder": (["--run.output=missing/run.h5"], ["run.output", "'missing/run.h5'", "'missing'"]),
    "output is a folder": (["--run.output=."], ["run.output", "'.'", "folder"]),
    "output is no file": (["--run.output=/dev/null"], ["run.output", "'/dev/null'", "not a file"]),
    "checkpoints at negative rounds": (["--run.checkpoint_every=-1"],
                                       ["run.checkpoint_every", "'-1'", "auto or a whole number of at least 0"]),
    "unknown way to read": (["--run.live=swrm"], ["run.live", "'swrm'", "did you mean 'swmr'"]),
    "no patience": (["--run.collective_timeout=0"], ["run.collective_timeout", "'0'", "above 0"]),
    "output is refused": (["--run.output=/proc/run.h5"], ["run.output", "'/proc/run.h5'"]),
    "output is the configuration": (["--run.output=base.ini"], ["run.output", "'base.ini'", "another name"]),
    "output is the initial model": (["--run.output=old.h5", "--model.init_file=old.h5"],
                                    ["run.output", "'old.h5'", "another name"]),
    "no initial model": (["--model.init_file=missing.h5"], ["model.init_file", "'missing.h5'", "no such file"]),
    "initial model is a folder": (["--model.init_file=."], ["model.init_file", "'.'", "not a file"]),
    "initial model is text": (["--model.init_file=base.ini"], ["model.init_file", "not an HDF5 file"]),
    "no partition file": (["--data.partition=file", "--data.partition_file=missing.h5"],
                          ["'missing.h5'", "no such file"]),
    "corrupt partition file": (["--data.partition=file", "--data.partition_file=base.ini"],
                               ["/base.ini'", "not an HDF5 file"]),
    "partition file without partition": (["--data.partition=file", "--data.partition_file=old.h5"],
                                         ["/old.h5'", "train_offsets"]),
}
ON_TWO_RANKS = ["misspelt key", "both steps and epochs", "more clients than samples", "no data folder",
                "output in no folder", "initial model is text", "half on real numbers"]

INI_FILES = {
    "empty value": ("[run]\nseed =\n", ["bad.ini:2", "run.seed", "empty value"]),
    "malformed line": ("[run]\nrounds 5\n", ["bad.ini:2", "'rounds 5'", "key = value"]),
    "line without key": ("[run]\n= 5\n", ["bad.ini:2", "'= 5'", "key = value"]),
    "open section": ("[run\nrounds = 5\n", ["bad.ini:1", "'[run'", "[section]"]),
    "empty section": ("[]\nrounds = 5\n", ["bad.ini:1", "'[]'", "[section]"]),
    "key outside any section": ("rounds = 5\n", ["bad.ini:1", "'rounds = 5'", "[section]"]),
    "key given twice": ("[run]\nseed = 1\n[data]\n[run]\nseed = 2\n", ["bad.ini:5", "run.seed", "bad.ini:2"]),
    "misspelt key": ("[run]\n\nronuds = 5\n", ["bad.ini:3", "run.ronuds", "did you mean 'run.rounds'"]),
    "misspelt section": ("[modell]\nname = mlr\n", ["bad.ini:2", "modell.name", "model.name"]),
    "out of range": ("[run]\nrounds = -1 # no\n", ["bad.ini:2", "run.rounds", "'-1'", "at least 1"]),
    "unknown method": ("[algorithm]\nname = sgd\n", ["bad.ini:2", "algorithm.name", "'sgd'", "fedavg"]),
    "both at one level": ("[train]\nlocal_steps = 1\nlocal_epochs = 1\n",
                          ["bad.ini", "train.local_steps = 1", "train.local_epochs = 1"]),
    "not text at all": (b"\x89HDF\r\n\x1a\n\x00\x00", ["'bad.ini'", "not text", "INI file"]),
}

COMMANDS = {
    "nothing": ([], ["no command", "fedhpc help"]),
    "unknown command": (["rum"], ["'rum'", "plan", "did you mean 'run'"]),
    "run of nothing": (["run"], ["fedhpc run", "CONFIG.ini"]),
    "run of a missing file": (["run", "missing.ini"], ["'missing.ini'", "No such file"]),
    "run of a folder": (["run", "."], ["'.'", "folder", "INI file"]),
    "plan of nothing": (["plan", "--json"], ["fedhpc plan", "CONFIG.ini"]),
    "plan with a bad key": (["plan", "base.ini", "--run.round=1"], ["'run.round'", "'run.rounds'"]),
    "list of unknown things": (["list", "algorithm"], ["'algorithm'", "did you mean 'algorithms'"]),
    "list of two things": (["list", "models", "datasets"], ["'models datasets'", "partitioners"]),
    "help on the unknown": (["help", "train.patience_x"], ["'train.patience_x'", "fedhpc help keys"]),
    "help on a slip": (["help", "fedavgg"], ["'fedavgg'", "did you mean 'fedavg'"]),
    "help on two": (["help", "mlr", "dnn"], ["fedhpc help NAME"]),
    "resume of nothing": (["resume"], ["fedhpc resume RUN.h5"]),
    "resume of a key": (["resume", "--run.rounds=5"], ["fedhpc resume RUN.h5"]),
    "resume of a missing file": (["resume", "missing.h5"], ["'missing.h5'", "no such file", "RUN.ckpt.N.h5"]),
    "resume of a missing checkpoint": (["resume", "run.ckpt.3.h5"], ["'run.ckpt.3.h5'", "no such file"]),
    "resume of a folder": (["resume", "."], ["'.'", "not a file"]),
    "resume of text": (["resume", "base.ini"], ["'base.ini'", "not an HDF5 file"]),
    "resume of foreign HDF5": (["resume", "old.h5"], ["'old.h5'", "no checkpoint", "RUN.ckpt.N.h5"]),
    "resume with a missing configuration": (["resume", "old.h5", "junk"], ["'junk'"]),
    "resume with junk": (["resume", "old.h5", "base.ini", "junk"], ["'junk'", "--section.key=value"]),
    "show of a model file with keys": (["show", "model", "old.h5", "--run.dtype=float64"],
                                       ["fedhpc show model MODEL.h5 takes no keys: a model file says all"]),
    "export of nothing": (["export"], ["fedhpc export RUN.h5 --csv DIR"]),
    "export without folder": (["export", "old.h5"], ["'old.h5'", "fedhpc export RUN.h5 --csv DIR"]),
    "export of a missing file": (["export", "missing.h5", "--csv", "csv"], ["'missing.h5'", "no such file"]),
    "export of text": (["export", "base.ini", "--csv", "csv"], ["'base.ini'", "not an HDF5 file"]),
    "export of another HDF5 file": (["export", "old.h5", "--csv", "csv"], ["'old.h5'", "not a result file"]),
}


class BadInput(AppCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        self.ini(BASE.format(data=self.data), "base.ini")
        with h5py.File(self.folder / "old.h5", "w") as old:  # stands for an earlier result
            old["x"] = np.arange(5)

    def files(self):
        return {path: path.read_bytes() for path in Path(self.folder).rglob("*") if path.is_file()}

    def refused(self, arguments, words, ranks=0, env=None):
        """Runs it and checks all that holds for every refusal."""
        before = self.files()
        done = fedhpc(*arguments, ranks=ranks, cwd=self.folder, env={"FEDHPC_DATA": None, **(env or {})})
        self.assertEqual(done.returncode, 2, done.stderr)
        # A sanitizer build says in a line of its own that there is no such memory.
        lines = [line for line in done.stderr.splitlines() if "AddressSanitizer failed to allocate" not in line]
        if ranks:  # the launcher adds lines of its own
            lines = [line for line in lines if "fedhpc:" in line]
        else:
            self.assertEqual(done.stdout, "")
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("fedhpc: error: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(self.files(), before, "nothing is written")

    def test_keys(self):
        for name, (arguments, words) in KEYS.items():
            with self.subTest(name):
                self.refused(["run", "base.ini", *arguments], words)

    def test_keys_on_two_ranks(self):
        for name in ON_TWO_RANKS:
            with self.subTest(name):
                arguments, words = KEYS[name]
                self.refused(["run", "base.ini", *arguments], words, ranks=2)
        with self.subTest("unknown command"):
            self.refused(["rum"], ["'rum'"], ranks=2)

    def test_an_existing_result_stays(self):
        for name in ("zero rounds", "more edges than clients", "no data folder", "initial model is text"):
            with self.subTest(name):
                arguments, words = KEYS[name]
                self.refused(["run", "base.ini", "--run.output=old.h5", *arguments], words)

    def finished_run(self):
        """A complete run of two rounds in the test's folder."""
        self.run_ok("run", "base.ini", "--run.rounds=2", "--run.output=run.h5", "--topology.participation=0.5")
        return self.folder / "run.ckpt.2.h5"

    def test_keys_on_resume(self):
        self.finished_run()
        rows = {
            "another rate": (["--train.lr=0.5"], ["train.lr", "'0.5'", "'0.05'", "run.rounds, run.output"]),
            "another seed": (["--run.seed=9"], ["run.seed", "'9'", "'0'"]),
            "another method": (["--algorithm.name=fedprox"], ["algorithm.name", "'fedprox'", "'fedavg'"]),
            "another model": (["--model.hidden=6"], ["model.hidden", "'6'", "'5'"]),
            "other clients": (["--data.clients=5"], ["data.clients", "'5'", "'4'"]),
            "another participation": (["--topology.participation=1"], ["topology.participation", "'1'", "'0.5'"]),
            "another placement": (["--topology.placement=home"], ["topology.placement", "'home'"]),
            "other things saved": (["--run.save=draws"], ["run.save", "'draws'", "'init'"]),
            "steps for epochs": (["--train.local_steps=3"], ["train.local", "past rounds"]),
            "fewer rounds": (["--run.rounds=1"], ["run.rounds = 1", "2 rounds done", "at least 2"]),
            "misspelt key": (["--run.ronuds=5"], ["'run.ronuds'", "did you mean 'run.rounds'"]),
            "out of range": (["--run.eval_every=0"], ["run.eval_every", "'0'"]),
            "no data": (["--run.rounds=3", "--data.dir=/nonexistent"], ["/nonexistent", "data.dir"]),
            "output in no folder": (["--run.output=missing/run.h5"], ["run.output", "'missing'"]),
            "output is a folder": (["--run.output=."], ["run.output", "folder"]),
            "output is no file": (["--run.output=/dev/null"], ["run.output", "'/dev/null'", "not a file"]),
    "checkpoints at negative rounds": (["--run.checkpoint_every=-1"],
                                       ["run.checkpoint_every", "'-1'", "auto or a whole number of at least 0"]),
    "unknown way to read": (["--run.live=swrm"], ["run.live", "'swrm'", "did you mean 'swmr'"]),
    "no patience": (["--run.collective_timeout=0"], ["run.collective_timeout", "'0'", "above 0"]),
    "output is refused": (["--run.output=/proc/run.h5"], ["run.output", "'/proc/run.h5'"]),
            "output is foreign": (["--run.output=old.h5"], ["'old.h5'", "not a result file", "--run.output"]),
            "output is text": (["--run.output=base.ini"], ["'base.ini'", "not a result file"]),
        }
        for name, (arguments, words) in rows.items():
            for ranks in (0, 2) if name in ("another rate", "fewer rounds", "no data") else (0,):
                with self.subTest(name, ranks=ranks):
                    self.refused(["resume", "run.h5", *arguments], words, ranks=ranks)

    def test_no_key_changes_on_resume_but_those_that_may(self):
        told = self.run_ok("help", "resume").stdout
        may = re.findall(r"^  ([a-z]+\.[a-z_]+)$", told, re.MULTILINE)
        self.assertEqual(sorted(may), sorted(CHANGEABLE))
        seen = set()
        for method, text in OF_MANY_KEYS.items():
            with self.subTest(method):
                base = self.ini(MANY_KEYS + text, f"{method}.ini")
                self.run_ok("run", base, f"--run.output={method}.h5")
                with h5py.File(self.folder / f"{method}.h5") as file:
                    before = parse_config(text_of(file.attrs["config"]))
                after = {key: another(key, value) for key, value in before.items() if key not in {*may, *LEFT_AS_THEY_ARE}}
                lines = "".join(f"[{key.split('.')[0]}]\n{key.split('.')[1]} = {value}\n"
                                for key, value in (before | after).items() if key not in {"train.local_steps", *may})
                self.ini(f"{lines}[run]\nrounds = 2\n", "other.ini")
                done = fedhpc("resume", f"{method}.h5", "other.ini", cwd=self.folder)
                self.assertEqual(done.returncode, 2, done.stderr)
                for key, value in after.items():
                    self.assertIn(f"{key} = {value} (was {before[key]})", done.stderr)
                seen |= set(after)
        self.assertGreater(len(seen), 60)

    def test_an_edited_configuration(self):
        """All keys that differ are named; what may change does, here to a run that goes on."""
        self.finished_run()
        arguments = ["--topology.participation=0.5", "--run.rounds=3"]
        self.ini(BASE.format(data=self.data).replace("hidden = 5", "hidden = 6") + "lr = 0.07\n", "edited.ini")
        words = ["'edited.ini'", "train.lr = 0.07", "(was 0.05", "model.hidden = 6 (was 5)", "past rounds", "run.rounds"]
        for ranks in (0, 2):
            self.refused(["resume", "run.h5", "edited.ini", *arguments], words, ranks=ranks)
        self.refused(["resume", "run.h5", "base.ini"], ["topology.participation = 1 (was 0.5)"])
        self.refused(["resume", "run.h5", "base.ini", *arguments, "--algorithm.name=fedprox"],
                     ["algorithm.name = fedprox (was fedavg)"])
        self.refused(["resume", "run.h5", "none.ini"], ["'none.ini'"])
        self.refused(["resume", "run.h5", "base.ini", "edited.ini"], ["edited.ini"])
        done = fedhpc("resume", "run.h5", "base.ini", *arguments, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.folder / "run.h5", "r") as file:
            self.assertEqual(len(file["rounds/round"]), 3)

    def test_checkpoints(self):
        whole = self.finished_run().read_bytes()
        path = self.folder / "bad.ckpt.2.h5"

        def edit(change):
            def damage():
                with edited(path) as file:
                    change(file)
            return damage

        def set_rows(file):
            del file["state/global"]
            file["state/global"] = np.zeros((1, 7), np.float32)

        def set_type(file):
            values = file["state/global"][...].astype(float)
            del file["state/global"]
            file["state/global"] = values

        def set_samples(file):
            file["clients/train_samples"][0] += 1

        def set_config(file):
            file.attrs["config"] = np.bytes_(file.attrs["config"].replace(b"lr = ", b"speed = "))

        def reshape(name, change):
            def replace(file):
                values, attributes = file[name][...], dict(file[name].attrs)
                del file[name]
                file.create_dataset(name, **change(values)).attrs.update(attributes)
            return edit(replace)

        def flipped():
            damaged = bytearray(whole)
            damaged[len(damaged) // 3] ^= 4
            path.write_bytes(damaged)

        rows = {
            "a flipped bit": (flipped, ["damaged"]),
            "no series": (edit(lambda file: file["rounds"].__delitem__("train_loss")),
                          ["/rounds/train_loss", "missing"]),
            "no best accuracies": (edit(lambda file: file["clients"].__delitem__("best_accuracy")),
                                   ["/clients/best_accuracy", "missing"]),
            "a contiguous series": (reshape("rounds/train_loss", lambda values: {"data": values}),
                                    ["/rounds/train_loss", "extended"]),
            "a scalar series": (reshape("rounds/train_loss", lambda values: {"data": values[0]}),
                                ["/rounds/train_loss", "shape"]),
            "a series of texts": (reshape("rounds/train_loss", lambda values: {"data": values.astype("S8")}),
                                  ["/rounds/train_loss", "numbers"]),
            "a short series": (reshape("rounds/train_loss", lambda values: {
                "data": values[:1], "maxshape": (None,)}), ["/rounds/train_loss", "2 entries"]),
            "empty": (lambda: path.write_bytes(b""), ["not an HDF5 file"]),
            "cut in half": (lambda: path.write_bytes(whole[:len(whole) // 2]), ["damaged"]),
            "last byte gone": (lambda: path.write_bytes(whole[:-1]), ["damaged"]),
            "foreign": (lambda: shutil.copy(self.folder / "old.h5", path), ["not a checkpoint"]),
            "a result file": (lambda: shutil.copy(self.folder / "run.h5", path), ["not a checkpoint"]),
            "newer version": (edit(lambda file: file.attrs.__setitem__("fedhpc_version", np.bytes_("99.0.0"))),
                              ["fedhpc 99.0.0", "newer"]),
            "no state": (edit(lambda file: file["state"].__delitem__("global")), ["'global'", "of the method"]),
            "another model": (edit(set_rows), ["another model", "[1, 7]"]),
            "another type": (edit(set_type), ["'global'", "Float"]),
            "other data": (edit(set_samples), ["other data", "samples"]),
            "unknown key": (edit(set_config), ["train.speed"]),
            "no block": (edit(lambda file: file.attrs.__delitem__("block")), ["'block'"]),
        }
        for name, (damage, words) in rows.items():
            for ranks in (0, 2) if name in ("cut in half", "another model", "other data") else (0,):
                with self.subTest(name, ranks=ranks):
                    path.write_bytes(whole)
                    damage()
                    self.refused(["resume", path.name], [path.name, *words], ranks=ranks)

    def test_another_partition(self):
        """Of as many samples of each client: neither on another rank nor of a run that goes on."""
        for name, first in (("a.h5", 0), ("b.h5", 40)):
            with h5py.File(self.folder / name, "w") as file:
                for part in ("train", "test"):
                    file[f"{part}_offsets"] = np.arange(0, 41, 10)
                file["train_samples"] = np.arange(first, first + 40)
                file["test_samples"] = np.arange(100, 140)
        run = ["run", "base.ini", "--data.partition=file", "--run.rounds=2", "--run.output=run.h5"]
        parts = [f"--data.partition_file={name}" for name in ("a.h5", "b.h5")]
        command = apart(options.mpiexec, options.fedhpc, *([*run, part] for part in parts))
        done = subprocess.run(command, cwd=self.folder, env=environment(FEDHPC_DATA=None), capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("rank 0 and rank 1 have read different data", done.stderr)
        self.assertEqual(done.stderr.count("fedhpc: error"), 1, done.stderr)
        self.run_ok(*run, parts[0])
        self.refused(["resume", "run.h5", "--run.rounds=3", parts[1]], ["run.ckpt.2.h5", "other data", "other samples"])

    def test_another_file_of_the_same_size(self):
        """Whose samples are dealt alike: neither on another rank nor of a run that goes on."""
        numbers = np.random.default_rng(1).normal(size=(80, 3)).round(3)
        for name, labels, scale in (("a.csv", 1, 1), ("b.csv", 1, -1), ("c.csv", 2, 1)):
            rows = [f"{a * scale},{b},{c},{i // labels % 2}" for i, (a, b, c) in enumerate(numbers)]
            (self.folder / name).write_text("\n".join(rows) + "\n")
        run = ["run", "base.ini", "--data.name=csv", "--data.partition=iid", "--data.clients=4", "--run.rounds=2",
               "--run.output=run.h5"]
        files = {name: f"--data.file={name}.csv" for name in "abc"}
        command = apart(options.mpiexec, options.fedhpc, *([*run, files[name]] for name in "ab"))
        done = subprocess.run(command, cwd=self.folder, env=environment(FEDHPC_DATA=None), capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("rank 0 and rank 1 have read different data", done.stderr)
        self.run_ok(*run, files["a"])
        for name in "bc":
            self.refused(["resume", "run.h5", "--run.rounds=3", files[name]], ["run.ckpt.2.h5", "other data", "other samples"])
        (self.folder / "d.csv").write_bytes((self.folder / "a.csv").read_bytes())
        self.run_ok("resume", "run.h5", "--run.rounds=3", "--data.file=d.csv")

    def test_a_number_among_many_samples_that_has_changed(self):
        numbers = np.random.default_rng(1).normal(size=(600, 3)).round(3)
        for name, changed in (("a", ()), ("b", (101,))):
            rows = [f"{a + 1 if i in changed else a},{b},{c},{i % 2}" for i, (a, b, c) in enumerate(numbers)]
            (self.folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
        run = ["run", "base.ini", "--data.name=csv", "--data.partition=iid", "--data.clients=4", "--run.rounds=2",
               "--data.standardize=none", "--run.output=run.h5"]
        self.run_ok(*run, "--data.file=a.csv")
        self.refused(["resume", "run.h5", "--run.rounds=3", "--data.file=b.csv"], ["run.ckpt.2.h5", "other samples"])
        for name, aside in (("a", 0), ("b", 1)):
            self.run_ok(*run, f"--data.file={name}.csv", "--go-on")
            self.assertEqual(len(list(self.folder.glob("run.old?.h5"))), aside)
        with edited(self.folder / "run.ckpt.2.h5") as file:  # as fedhpc wrote it before it looked at all samples
            file.attrs["data_digest"] = np.bytes_(file.attrs["data_digest"][:16])
        self.run_ok("resume", "run.h5", "--run.rounds=3")

    def test_other_weights_to_begin_with(self):
        """Where the checkpoint does not hold them, clients that have not been drawn yet would begin with those."""
        self.run_ok("run", "base.ini", "--run.rounds=1", "--run.output=a.h5")
        self.run_ok("run", "base.ini", "--run.rounds=1", "--run.seed=9", "--run.output=b.h5")
        for save in ("draws", "init"):
            drawn = ["base.ini", "--run.rounds=2", "--algorithm.name=ditto", f"--run.save={save}", "--run.output=drawn.h5"]
            self.run_ok("run", *drawn, "--force")
            self.refused(["resume", "drawn.h5", "--run.rounds=3", "--model.init_file=a.h5"],
                         ["'model.init_file'", "lose their meaning"])
        for save, fits in (("draws", False), ("init", True)):
            with self.subTest(save):
                self.run_ok("run", "base.ini", "--run.rounds=2", "--algorithm.name=ditto", "--model.init_file=a.h5",
                            f"--run.save={save}", f"--run.output={save}.h5")
                shutil.copy(self.folder / "a.h5", self.folder / "moved.h5")
                resume = ["resume", f"{save}.h5", "--run.rounds=3"]
                if not fits:
                    self.refused([*resume, "--model.init_file=b.h5"], [f"{save}.ckpt.2.h5", "another first model", "/b.h5'"])
                self.run_ok(*resume, f"--model.init_file={'b' if fits else 'moved'}.h5")

    def test_a_checkpoint_that_is_not_damaged_is_not_passed_over(self):
        self.run_ok("run", "base.ini", "--run.rounds=2", "--run.checkpoint_every=1", "--run.output=run.h5")
        newest = self.folder / "run.ckpt.2.h5"
        with edited(newest) as file:
            file.attrs["fedhpc_version"] = np.bytes_("99.0.0")
        self.refused(["resume", "run.h5", "--run.rounds=3"], ["run.ckpt.2.h5", "99.0.0"])
        self.assertTrue(newest.exists())

    def test_another_model_of_the_same_parameters(self):
        """Neither on another rank nor of a run that goes on; where a file lies does not matter, nor do its weights."""
        for name, activation in (("a.h5", "tanh"), ("b.h5", "relu"), ("c.h5", "tanh")):
            with h5py.File(self.folder / name, "w") as file:
                file.attrs["fedhpc_model"] = 1
                lines = ["input shape=8", "linear out=3 inputs=0 parameters=one.weight,one.bias", f"{activation} inputs=1",
                         "linear out=2 inputs=2 parameters=two.weight,two.bias"]
                file["layers"] = np.array(lines, dtype="S")
                for layer, shape in (("one", (3, 8)), ("two", (2, 3))) if name != "c.h5" else ():
                    file[f"model/global/{layer}.weight"] = np.full(shape, 0.1, dtype=np.float32)
                    file[f"model/global/{layer}.bias"] = np.zeros(shape[:1], dtype=np.float32)
        run = ["run", "base.ini", "--data.name=synthetic", "--data.features=8", "--data.classes=2", "--model.name=file",
               "--run.rounds=2", "--run.output=run.h5"]
        command = apart(options.mpiexec, options.fedhpc, *([*run, f"--model.file={name}.h5"] for name in "ab"))
        done = subprocess.run(command, cwd=self.folder, env=environment(FEDHPC_DATA=None), capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("rank 0 and rank 1 have read different models", done.stderr)
        self.run_ok(*run, "--model.file=a.h5")
        self.refused(["resume", "run.h5", "--run.rounds=3", "--model.file=b.h5"], ["run.ckpt.2.h5", "another model", "/b.h5'"])
        self.run_ok("resume", "run.h5", "--run.rounds=3", "--model.file=c.h5")

    def test_numbers_that_are_none(self):
        """In a model file's constants, and variances below 0 among the weights to begin with."""
        (self.folder / "own.ini").write_text("[run]\nrounds=1\nprogress=none\n[data]\nname=synthetic\nfeatures=4\nclasses=2\n"
                                             "clients=2\n[model]\nname=file\nfile=net.h5\n")
        run = ["run", "own.ini"]
        lines = ["input shape=4", "constant shape=4 constant=shift", "add inputs=0,1",
                 "batch_norm inputs=2 parameters=n.weight,n.bias,n.running_mean,n.running_var",
                 "linear out=2 inputs=3 parameters=l.weight,l.bias"]
        for shift, variance, words in ((0, 1, None), (np.nan, 1, ["net.h5", "'shift'", "NaN"]),
                                       (0, -1, ["init.h5", "n.running_var", "below 0"])):
            with h5py.File(self.folder / "net.h5", "w") as file:
                file.attrs["fedhpc_model"] = 1
                file["layers"] = np.array(lines, dtype="S")
                file["constants/shift"] = np.full(4, shift, dtype=np.float32)
            with h5py.File(self.folder / "init.h5", "w") as file:
                for name, values in (("n.weight", np.ones(4)), ("n.bias", np.zeros(4)), ("n.running_mean", np.zeros(4)),
                                     ("n.running_var", np.full(4, variance)), ("l.weight", np.ones((2, 4))),
                                     ("l.bias", np.zeros(2))):
                    file[f"model/global/{name}"] = values.astype(np.float32)
            given = [*run, "--model.init_file=init.h5", "--run.output=run.h5", "--force"]
            self.refused(given, words) if words else self.run_ok(*given)

    def test_labels_that_begin_at_1(self):
        for first, told in ((0, ""), (1, "fedhpc: warning: no sample has label 0: labels count from 0\n")):
            with h5py.File(self.folder / "data.h5", "w") as file:
                file["x_train"] = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
                file["y_train"] = np.arange(40) % 2 + first
            (self.folder / "own.ini").write_text("[data]\nname=hdf5\nfile=data.h5\nclients=2\n[model]\nname=mlr\n")
            self.assertEqual(self.run_ok("plan", "own.ini").stderr, told)

    def test_sequences_that_do_not_fit(self):
        (self.folder / "own.ini").write_text(
            "[run]\nrounds=2\nprogress=none\n[data]\nname=hdf5\nfile=data.h5\nclients=2\n[model]\nname=transformer\n"
            "embedding=4\nheads=1\nfeed_forward=4\nlayers=1\n")

        def data(kind, label):
            words = np.arange(60).reshape(20, 3) % 5
            with h5py.File(self.folder / "data.h5", "w") as file:
                file["x_train"], file["y_train"] = words.astype(kind), words if label is None else 0 * words + label

        for kind, rule in ((np.uint8, "unit"), (np.uint8, "pixel"), (float, "pixel")):
            data(kind, None)
            self.refused(["run", "own.ini", f"--data.standardize={rule}"],
                         [f"data.standardize = {rule} makes others", "data.standardize = none"])
        self.run_ok("run", "own.ini", "--run.output=run.h5")
        data(float, -100)
        done = self.run_ok("run", "own.ini", "--model.vocabulary=5", "--run.output=run.h5", "--force")
        self.assertIn("no place counts in the test samples", done.stderr)
        self.assertNotIn("data.split", done.stderr)

    def test_a_cosine_of_epochs_that_ends_before_local_steps_do(self):
        keys = ["run", "base.ini", "--run.rounds=2", "--train.batch_size=20", "--train.local_steps=5",
                "--train.lr_unit=epoch", "--train.lr_schedule=cosine", "--train.lr_period={}"]
        words = ["train.lr_period", "rate is 0 after 3 of 4 epochs of client 0", "train.lr_final above 0"]
        self.refused([key.format(3) for key in keys], words)
        self.run_ok(*(key.format(4) for key in keys))

    def test_a_run_does_not_write_where_its_samples_are(self):
        (self.folder / "a.csv").write_text("".join(f"{i},{i % 3},{i % 2}\n" for i in range(80)))
        shutil.copy(self.folder / "a.csv", self.folder / "b.csv")
        run = ["run", "base.ini", "--data.name=csv", "--data.partition=iid", "--run.output=a.csv"]
        for keys in (["--data.file=a.csv"], ["--data.file=b.csv", "--data.test_file=./a.csv"]):
            for force in ([], ["--force"]):
                self.refused([*run, *keys, *force], ["'run.output' cannot be 'a.csv'", "this run reads that file"])

    def test_a_result_file_of_another_run(self):
        self.finished_run()
        with h5py.File(self.folder / "run.h5", "r+") as file:
            file.attrs["started"] = np.bytes_("2001-02-03T04:05:06Z")
        for name in ("run.h5", "run.ckpt.2.h5"):
            self.refused(["resume", name], ["run.h5", "2001-02-03T04:05:06Z", "run.ckpt.2.h5", "--run.output"])

    def test_a_result_file_of_a_run_that_began_in_the_same_second(self):
        for seed in "12":
            self.run_ok("run", "base.ini", f"--run.seed={seed}", "--run.rounds=2", f"--run.output={seed}.h5")
            for name in (f"{seed}.h5", f"{seed}.ckpt.2.h5"):
                with edited(self.folder / name) if "ckpt" in name else h5py.File(self.folder / name, "r+") as file:
                    file.attrs["started"] = np.bytes_("2001-02-03T04:05:06Z")
        self.refused(["resume", "1.ckpt.2.h5", "--run.output=2.h5", "--run.rounds=3"], ["2.h5", "run_id", "1.ckpt.2.h5"])

    def test_a_running_run_is_not_resumed(self):
        self.finished_run()
        with open(self.folder / "run.h5") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            self.refused(["resume", "run.h5"], ["run.output", "another run"])

    def test_ini_files(self):
        for name, (text, words) in INI_FILES.items():
            with self.subTest(name):
                (self.folder / "bad.ini").write_bytes(text if isinstance(text, bytes) else text.encode())
                self.refused(["run", "bad.ini"], words)

    def test_commands(self):
        for name, (arguments, words) in COMMANDS.items():
            with self.subTest(name):
                self.refused(arguments, words)

    def test_no_place_for_data(self):
        (self.folder / "bare.ini").write_text("[data]\nname = mnist\n")
        self.refused(["run", "bare.ini"], ["data.dir", "FEDHPC_DATA", "mnist"])
        self.refused(["run", "bare.ini"], ["/nowhere", "data.dir"], env={"FEDHPC_DATA": "/nowhere"})

    def test_device(self):
        # With the reason: of the build, of the machine (CUDA's own text) or of the program.
        reason = "no CUDA" if "no nccl" in fedhpc("--version").stdout else "CUDA|CPUs only"
        self.refused(["run", "base.ini", "--run.device=cuda"], ["run.device", "'cuda'", "auto, cpu"])
        self.assertRegex(fedhpc("run", "base.ini", "--run.device=cuda", cwd=self.folder).stderr,
                         f"cannot be 'cuda': .*({reason}).*; allowed: auto, cpu")

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_no_permission(self):
        os.chmod(self.folder, 0o555)
        self.refused(["run", "base.ini"], ["run.output", "permission"])

    def test_output_of_a_running_run(self):
        """The file another run is writing is neither truncated nor shared."""
        with open(self.folder / "old.h5") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            self.refused(["run", "base.ini", "--run.output=old.h5"], ["run.output", "another run"])

    def data_with(self, name, change):
        """A copy of the data in which one file's unpacked bytes are changed."""
        folder = self.folder / "data"
        shutil.copytree(self.data, folder, dirs_exist_ok=True)
        change(folder / name)
        return ["run", "base.ini", f"--data.dir={folder}"]

    def test_data_files(self):
        images, labels = IDX_FILES[:2]

        def unpacked(edit):
            def change(path):
                path.write_bytes(gzip.compress(bytes(edit(bytearray(gzip.decompress(path.read_bytes()))))))
            return change

        def put(offset, value):
            def edit(data):
                data[offset] = value
                return data
            return unpacked(edit)

        changes = {
            "missing file": (images, Path.unlink, [images[:-3], "fetch_data.py"]),
            "truncated archive": (images, lambda p: p.write_bytes(p.read_bytes()[:-900]), [images, "truncated"]),
            "corrupt archive": (images, lambda p: p.write_bytes(b"\x1f\x8b" + b"\xff" * 50), [images, "corrupt"]),
            "empty file": (images, lambda p: p.write_bytes(b""), [images, "truncated"]),
            "wrong magic": (images, put(0, 7), [images, "offset 0", "7"]),
            "other element type": (images, put(2, 13), [images, "offset 2", "13"]),
            "other dimensions": (labels, put(3, 3), [labels, "offset 3", "expected 1"]),
            "short data": (images, unpacked(lambda data: data[:-1]), [images, "the end of the file"]),
            "long data": (labels, unpacked(lambda data: data + b"\0"), [labels, "trailing"]),
            "a label too large": (labels, put(8 + 5, 10), [labels, "label 10", "0 to 9"]),
            "fewer labels than images": (labels, lambda p: write_idx(p, read_idx(p)[:-1]),
                                         [labels, "229 labels", "230"]),
            "halves of two sizes": ("t10k-images-idx3-ubyte.gz", lambda p: write_idx(p, read_idx(p)[:, 1:]),
                                    ["t10k", "5 x 5", "6 x 5"]),
        }
        for name, (file, change, words) in changes.items():
            with self.subTest(name):
                self.refused(self.data_with(file, change), words)

    def test_partition_files(self):
        good = {"train_offsets": [0, 2, 4], "train_samples": [0, 1, 2, 3],
                "test_offsets": [0, 1, 2], "test_samples": [4, 5]}
        changes = {
            "lists missing": ({"test_samples": None}, ["test_samples"]),
            "sample out of range": ({"train_samples": [0, 1, 2, 280]}, ["train_samples", "280", "0 to 279"]),
            "negative sample": ({"test_samples": [-1, 5]}, ["test_samples", "-1"]),
            "offsets fall": ({"train_offsets": [0, 5, 4]}, ["train_offsets", "ascending"]),
            "offsets do not start": ({"train_offsets": [1, 2, 4]}, ["train_offsets", "expected 0"]),
            "samples too few": ({"train_samples": [0, 1, 2]}, ["train_samples", "3 samples", "4"]),
            "other number of clients": ({"test_offsets": [0, 2]}, ["test_offsets", "1 clients", "2"]),
            "no client": ({"train_offsets": [0], "train_samples": np.empty(0, int)}, ["train_offsets", "no client"]),
            "two dimensions": ({"train_offsets": [[0, 2, 4]]}, ["train_offsets", "one-dimensional"]),
            "words": ({"train_samples": ["a", "b", "c", "d"]}, ["train_samples"]),
            "edges too few": ({"edge_of_client": [0]}, ["edge_of_client", "1 clients"]),
            "negative edge": ({"edge_of_client": [0, -1]}, ["edge_of_client", "-1"]),
            "nobody trains": ({"train_offsets": [0, 0, 0], "train_samples": np.empty(0, int)},
                              ["parts.h5", "no client a training sample"]),
        }
        for name, (change, words) in changes.items():
            with self.subTest(name):
                with h5py.File(self.folder / "parts.h5", "w") as parts:
                    for key, values in {**good, **change}.items():
                        if values is not None:
                            parts[key] = values
                self.refused(["run", "base.ini", "--data.partition=file", "--data.partition_file=parts.h5"],
                             ["parts.h5", *words])

    def test_initial_models(self):
        shapes = {"fc1.weight": (5, 30), "fc1.bias": (5,), "fc2.weight": (10, 5), "fc2.bias": (10,)}
        changes = {
            "parameter missing": ({"fc2.bias": None}, ["no parameter 'fc2.bias'"]),
            "wrong shape": ({"fc1.weight": (30, 5)}, ["'fc1.weight'", "[30, 5]", "[5, 30]"]),
            "parameter too many": ({"fc3.bias": (3,)}, ["'fc3.bias'"]),
            "another model": ({"fc1.weight": (10, 30), "fc1.bias": (10,), "fc2.weight": None,
                               "fc2.bias": None}, ["'fc1.weight'", "[10, 30]"]),
        }
        for name, (change, words) in changes.items():
            with self.subTest(name):
                with h5py.File(self.folder / "init.h5", "w") as file:
                    for key, shape in {**shapes, **change}.items():
                        if shape is not None:
                            file[f"model/global/{key}"] = np.zeros(shape)
                self.refused(["run", "base.ini", "--model.init_file=init.h5"], ["init.h5", *words])
        with self.subTest("no model"):
            self.refused(["run", "base.ini", "--model.init_file=old.h5"], ["old.h5", "/model/global"])
        with h5py.File(self.folder / "init.h5", "w") as file:
            for key, shape in shapes.items():
                file[f"model/global/{key}"] = np.zeros(shape)
        begin = ["run", "base.ini", "--model.init_file=init.h5"]
        for value, dtype in ((np.nan, "float64"), (np.inf, "float64"), (1e300, "float32")):
            with self.subTest(value=value):
                with h5py.File(self.folder / "init.h5", "r+") as file:
                    file["model/global/fc2.bias"][3] = value
                self.refused([*begin, f"--run.dtype={dtype}"], ["init.h5", "'fc2.bias'", "NaN, or infinite"])
        self.run_ok(*begin, "--run.dtype=float64", "--train.lr=0", "--run.output=large.h5")  # 1e300 is a number there


if __name__ == "__main__":
    main()
