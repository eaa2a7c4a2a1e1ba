"""Models made by export_model train as PyTorch trains them, on any ranks, with every method; files that do not fit."""

import copy
import functools
import gzip
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

import fedhpc
from python_support import SOURCE, InFolder, same_numbers, skip_without_torch

skip_without_torch()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

import models_of_others as others  # noqa: E402
from torch_training import Training  # noqa: E402

SHORT = os.environ.get("FEDHPC_TESTS") == "short"
PROGRAM = os.environ.get("FEDHPC") or SOURCE / "build" / "release" / "fedhpc"
CLIENTS = 4
KEYS = {"run.rounds": 2, "run.seed": 11, "run.dtype": "float64", "run.reproducible": True, "run.save": "init,partition",
        "run.output": "run.h5", "topology.participation": 0.8, "train.local_steps": 10, "train.batch_size": 6,
        "train.lr": 0.05, "train.optimizer": "sgd"}


class CNN(nn.Module):
    """Two convolutions, dropout and two linear layers, as benchmarks of federated learning have it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 8, 3)
        self.fc1, self.fc2 = nn.Linear(8 * 4 * 4, 16), nn.Linear(16, 5)
        self.drop1, self.drop2 = nn.Dropout2d(0.25), nn.Dropout(0.5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(self.drop2(F.relu(self.fc1(torch.flatten(self.drop1(x), 1)))))


class Net(nn.Module):
    """Batch norm, average pooling, a residual sum and layer norm."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 6, 5, 2, 2, bias=False), nn.BatchNorm2d(6)
        self.conv, self.pool, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.AvgPool2d(2), nn.LayerNorm(54)
        self.fc = nn.Linear(54, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        return self.fc(self.last(torch.flatten(self.pool(x + F.relu(self.conv(x))), 1)))


def without_dropout_between(make):
    """Makes a module whose recurrent layers have no dropout between them, which PyTorch draws out of sight."""
    def made():
        module = make()
        for one in module.modules():
            if isinstance(one, nn.RNNBase):
                one.dropout = 0.0
        return module
    return made


# name -> what makes it, shape of a sample, whole numbers below which the input is, or None
OTHERS = {name: (without_dropout_between(make), *rest) for name, make, *rest in others.MODELS}
MODELS = {
    "CNN": (CNN, (1, 12, 12), None),
    "batch norm": (Net, (1, 12, 12), None),
    "ResNet18": (lambda: others.ResNet18(lambda width: nn.GroupNorm(2, width), width=4), (3, 16, 16), None),
    "GPT": OTHERS["GPT"],
    "LSTM": OTHERS["LSTM, every character"],
}


@functools.cache
def exported(name):
    """A model and data for it: module, x, y, the keys of a run and {key: bytes} of the files that they name."""
    make, shape, words = (MODELS.get(name) or OTHERS[name])
    torch.manual_seed(5)
    module, numbers = make(), np.random.default_rng(3)
    # Clients of several sizes, so that their last batches have, too.
    count, clients = 23 * CLIENTS, np.sort(numbers.integers(0, CLIENTS, 23 * CLIENTS))
    if words:
        x = numbers.integers(0, words, (count, *shape))
    else:
        x = numbers.standard_normal((count, *shape))
    outputs = module(torch.from_numpy(x[:2])).shape[1:]
    y = numbers.integers(0, outputs[-1], (count, *outputs[:-1]))
    y.flat[0] = outputs[-1] - 1
    keys = fedhpc.write_dataset("data.h5", x, y, clients=clients, channels="first")
    keys |= fedhpc.export_model(module, torch.from_numpy(x[:1]), "net.h5")
    files = {key: Path(keys[key]).read_bytes() for key in ("data.file", "model.file")}
    return module, torch.from_numpy(x), torch.from_numpy(y), {**KEYS, **keys}, files


class Imported(InFolder):
    """A test with a module, its file and data for it."""

    def setUp(self):
        super().setUp()
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)

    def prepare(self, name):
        """Writes a model and its data; returns the module, x, y and the keys of a run."""
        module, x, y, keys, files = exported(name)
        own = {}
        for key, whole in files.items():
            own[key] = str(Path(Path(keys[key]).name).resolve())
            Path(own[key]).write_bytes(whole)
        return copy.deepcopy(module), x, y, {**keys, **own}

    def run_model(self, keys, **others):
        return fedhpc.run({**keys, **others}, progress=False, force=True)


class Trains(Imported):
    def check(self, module, x, y, keys, **changes):
        """The run with these keys is what PyTorch makes of the same module, and comes back into it."""
        keys = {**keys, **changes}
        results = self.run_model(keys)
        training = Training("run.h5", "net.h5", module, x, y)
        self.assertGreater(len({len(one) % keys["train.batch_size"] for one in training.lists}), 1)
        model, losses = training.run(keys)
        ours = results.model()
        self.assertEqual(sorted(ours), sorted(model))
        moved = sum(not torch.equal(values, training.initial[name]) for name, values in model.items())
        self.assertGreater(moved, len(model) / 2)
        apart = 0
        for name, values in model.items():
            distance = float((torch.from_numpy(ours[name]) - values).norm())
            # Rounding grows where batch norm divides by a small deviation.
            self.assertLessEqual(distance, 1e-8 * float(values.norm()), name)
            apart += distance**2
        self.assertLessEqual(apart**0.5, 1e-9 * sum(float(values.norm())**2 for values in model.values())**0.5)
        np.testing.assert_allclose(results.rounds["train_loss"], losses, rtol=1e-9)
        fedhpc.load_weights(module, results)
        accuracy, loss = training.evaluate()
        self.assertAlmostEqual(results.rounds["global_accuracy"].iloc[-1], accuracy, 12)
        self.assertLessEqual(abs(results.rounds["global_loss"].iloc[-1] - loss), 1e-9 * loss)

    def test_as_in_torch(self):
        for name in MODELS if SHORT else {**MODELS, **OTHERS}:
            with self.subTest(name):
                self.check(*self.prepare(name))

    def test_optimizers(self):
        for optimizer in ("momentum", "nesterov", "adam"):
            for name in list(MODELS)[:1] if SHORT else MODELS:
                with self.subTest(name, optimizer=optimizer):
                    rate = 0.002 if optimizer == "adam" else 0.02
                    self.check(*self.prepare(name), **{"train.optimizer": optimizer, "train.lr": rate})

    def test_biases_of_own_layers_do_not_decay(self):
        class Own(nn.Module):
            def __init__(self, fc):
                super().__init__()
                self.weight, self.bias = nn.Parameter(fc.weight.detach().clone()), nn.Parameter(fc.bias.detach().clone())

            def forward(self, x):
                return x.flatten(1) @ self.weight.T + self.bias

        _, x, _, keys = self.prepare("CNN")
        layer = nn.Linear(144, 5)
        for decays in (False, True):
            ends = []
            for module in (nn.Sequential(nn.Flatten(), layer), Own(layer)):
                fedhpc.export_model(module, x[:1], "net.h5")
                model = self.run_model(keys, **{"train.weight_decay": 0.5, "train.decay_biases": decays}).model()
                ends.append(next(values for name, values in model.items() if name.endswith("bias")))
            np.testing.assert_allclose(*ends, rtol=1e-12, err_msg=str(decays))

    def test_weights_that_are_left_out_are_drawn(self):
        module, x, _, keys = self.prepare("CNN")
        drawn = self.run_model({**keys, "model.init": "torch"}).model()
        fedhpc.export_model(module, x[:1], "net.h5", weights=False)
        for name, values in self.run_model(keys).model().items():
            np.testing.assert_array_equal(values, drawn[name])

    def test_a_parameter_without_a_rule_needs_weights(self):
        class Scaled(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.scale = inner, torch.nn.Parameter(torch.ones(1))

            def forward(self, x):
                return self.inner(x) * self.scale

        module, x, _, keys = self.prepare("CNN")
        fedhpc.export_model(Scaled(module), x[:1], "net.h5", weights=False)
        with self.assertRaisesRegex(fedhpc.ConfigError, "parameter 'scale' of model.file .* has no rule of drawing"):
            self.run_model(keys)
        fedhpc.export_model(Scaled(module), x[:1], "net.h5")
        self.assertEqual(self.run_model(keys).status, "complete")


class SameBits(Imported):
    def test_ranks_and_blocks(self):
        for name in MODELS:
            keys = self.prepare(name)[-1]
            self.run_model(keys, **{"run.output": "one.h5", "train.block": CLIENTS})
            for ranks, block in ((1, 1), (4, 1)) if SHORT else ((1, 1), (1, 3), (2, "auto"), (4, 1)):
                with self.subTest(name, ranks=ranks, block=block):
                    fedhpc.run({**keys, "train.block": block, "run.output": "other.h5"}, ranks=ranks, progress=False,
                               force=True)
                    same_numbers(self, "one.h5", "other.h5")

    def test_killed_and_resumed(self):
        keys = {**self.prepare(list(MODELS)[-1])[-1], "run.rounds": 6, "run.checkpoint_every": 2}
        script = Path("killed.py")
        script.write_text(f"import fedhpc, os, signal\nfedhpc.run({ {**keys, 'run.output': 'killed.h5'} !r}, "
                          "progress=False, on_round=lambda one: one['round'] == 4 and "
                          "os.kill(os.getpid(), signal.SIGKILL))\n", encoding="utf-8")
        killed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        resumed = fedhpc.resume("killed.h5", progress=False)
        self.assertEqual((resumed.status, len(resumed.rounds)), ("complete", 6))
        self.run_model(keys)
        same_numbers(self, "killed.h5", "run.h5")


class Methods(Imported):
    REFUSED = {("GPT", "pfedgp"): "pfedgp reads one class label of each sample"}
    FACTORISED = {
        ("CNN", "tdpfed"): ["conv1", "conv2", "fc1", "fc2"],
        ("CNN", "fedmud"): ["conv1", "conv2", "fc1"],  # all but the last layer
        ("CNN", "feddecomp"): ["conv1", "conv2", "fc1", "fc2"],
        ("GPT", "tdpfed"): [*(f"h.{block}.{layer}" for block in (0, 1)
                              for layer in ("attn.c_attn", "attn.c_proj", "mlp.0", "mlp.2")), "lm_head"],
        ("GPT", "fedmud"): [f"h.{block}.{layer}" for block in (0, 1)
                            for layer in ("attn.c_attn", "attn.c_proj", "mlp.0", "mlp.2")],
    }

    def keys_of(self, name):
        """What a configuration of a method leaves open."""
        keys = self.prepare(name)[-1]
        own = {key: value for key, value in keys.items() if key.startswith(("data.", "model.", "run."))}
        _, (length, *_), words = MODELS[name]
        if words:
            own = {key: value for key, value in own.items() if not key.startswith("data.")}
            own |= {"data.name": "words", "data.partition": "natural", "data.clients": CLIENTS,
                    "data.samples_per_client": 23, "data.features": length, "data.classes": words}
        return {**own, "train.batch_size": 6, "run.save": None}

    def test_two_rounds_of_all(self):
        configurations = sorted((SOURCE / "configs" / "algorithms").glob("*.ini"))
        self.assertLessEqual(set(fedhpc.list("algorithms")), {one.stem for one in configurations})
        for name in ("CNN", "GPT"):
            common = self.keys_of(name)
            for one in configurations:
                # A method may draw the number of its steps; its file then names no epochs.
                epochs = {"train.local_epochs": 1} if "local_epochs =" in one.read_text(encoding="utf-8") else {}
                keys = {**common, **epochs}
                with self.subTest(name, method=one.stem):
                    if (name, one.stem) in self.REFUSED:
                        with self.assertRaisesRegex(fedhpc.ConfigError, self.REFUSED[name, one.stem]):
                            fedhpc.run(one, progress=False, force=True, **keys)
                        continue
                    results = fedhpc.run(one, progress=False, force=True, **keys)
                    self.assertEqual((results.status, len(results.rounds)), ("complete", 2))
                    self.assertTrue(np.isfinite(results.rounds["train_loss"]).all())

    def test_factorised_layers(self):
        for (name, method), layers in self.FACTORISED.items():
            with self.subTest(name, method=method):
                plan = fedhpc.plan(SOURCE / "configs" / "algorithms" / f"{method}.ini", **self.keys_of(name))
                found = [key.removeprefix("factors.") for key in plan if key.startswith("factors.")]
                self.assertEqual(found, layers)


class Adapter(nn.Module):
    """W -> W + scale B A for a layer's frozen weights W."""

    def __init__(self, a, b, scale):
        super().__init__()
        self.lora_A, self.lora_B, self.scale = nn.Parameter(a), nn.Parameter(b), scale

    def forward(self, weight):
        return weight + self.scale * (self.lora_B @ self.lora_A).reshape(weight.shape)


class AdapterTraining(Training):
    """Trains adapters as a run with algorithm.name = lora has begun with them."""

    def __init__(self, run, model_file, module, x, y, keys):
        super().__init__(run, model_file, module, x, y)
        module.load_state_dict(self.initial, strict=False)
        module.requires_grad_(False)
        rank, self.layers = keys["model.rank"], []
        frozen = keys["model.factorisation"] == "ffa_lora"
        with h5py.File(run) as file:
            for name, values in file["draws/factors"].items():
                layer, factor = name.rsplit(".", 1)
                self.layers.append(layer)
                place = module.get_submodule(layer)
                a, rows = torch.from_numpy(values[0]), len(place.weight)
                b = torch.zeros(rows * place.weight[0].numel() // a.shape[1], rank)
                parametrize.register_parametrization(place, "weight", Adapter(a, b, keys["model.lora_alpha"] / rank))
                place.parametrizations["weight"][0].lora_A.requires_grad_(not frozen)
                assert factor == ("lora_A_fixed" if frozen else "lora_A"), factor
        self.head = [name for name in self.initial if name.startswith(keys["head"] + ".")]
        for name in self.head:
            module.get_parameter(name).requires_grad_(True)
        # Running statistics are the base's.
        self.initial = {name: values.clone() for name, values in module.state_dict().items()}

    def local(self, model, client, round_, keys):
        trained, losses, places = super().local(model, client, round_, keys)
        buffers = {name for name, _ in self.module.named_buffers()}
        return {name: model[name] if name in buffers else values for name, values in trained.items()}, losses, places


class Adapters(Imported):
    HEADS = {"CNN": "fc2", "batch norm": "fc", "GPT": "lm_head", "ViT": "head"}

    def check(self, name, **changes):
        """The run is what PyTorch's autograd makes of adapters; what is frozen is the file's, to the last bit."""
        module, x, y, keys = self.prepare(name)
        base = {name: values.clone() for name, values in module.state_dict().items()}
        keys |= {"algorithm.name": "lora", "model.rank": 3, "model.lora_alpha": 5, "run.save": "init,partition,draws",
                 **changes}
        results = self.run_model(keys)
        training = AdapterTraining("run.h5", "net.h5", module, x, y, {**keys, "head": self.HEADS[name]})
        module.load_state_dict(training.run(keys)[0])
        ours = results.model()
        for name, before in base.items():
            if name not in ours:
                continue  # of PyTorch alone
            layer, _, kind = name.rpartition(".")
            if kind == "weight" and layer in training.layers:
                after = module.get_submodule(layer).weight.detach()
                self.assertLessEqual(float((torch.from_numpy(ours[name]) - after).norm()), 1e-9 * float(after.norm()), name)
                self.assertGreater(float((after - before).norm()), 1e-6, name)
            elif name in training.head:
                after = module.get_parameter(name).detach()
                self.assertLessEqual(float((torch.from_numpy(ours[name]) - after).norm()), 1e-9 * float(after.norm()), name)
            else:
                np.testing.assert_array_equal(ours[name], before.numpy(), name)
        sent = 8 * sum(values.numel() for values in module.parameters() if values.requires_grad)
        self.assertEqual(results.rounds["bytes_up_client_cloud"].iloc[0], sent * results.rounds["participants"].iloc[0])

    def test_as_in_torch(self):
        for name in self.HEADS:
            for kind in ("lora", "ffa_lora"):
                with self.subTest(name, kind=kind):
                    self.check(name, **{"model.factorisation": kind})

    def test_optimizers(self):
        for optimizer in ("momentum", "adam"):
            with self.subTest(optimizer):
                changes = {"train.momentum": 0.9} if optimizer == "momentum" else {"train.lr": 0.003}
                self.check("GPT", **{"model.factorisation": "lora", "train.optimizer": optimizer, **changes})

    def test_example(self):
        rng = np.random.default_rng(4)
        Path("mnist").mkdir()
        for name, count in (("train", 1200), ("t10k", 100)):
            for kind, head, values in (("images-idx3", 16, rng.integers(0, 256, (count, 28, 28))),
                                       ("labels-idx1", 8, rng.integers(0, 10, count))):
                whole = bytes(head) + values.astype(np.uint8).tobytes()
                Path(f"mnist/{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(whole))
        done = subprocess.run([sys.executable, SOURCE / "examples" / "lora.py", "--data", ".", "--seeds", "1",
                               "--rounds", "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
        sent = {way.strip(): float(kilobytes) for way, _, _, kilobytes, _, _ in rows[1:]}
        self.assertEqual(list(sent), ["all weights", "LoRA", "FFA-LoRA"])
        self.assertGreater(sent["all weights"] / 5, sent["LoRA"])
        self.assertGreater(sent["LoRA"], sent["FFA-LoRA"])


class DoNotFit(Imported):
    def refused(self, keys, words, **changes):
        """The program ends with exit code 2 and one line that has these words."""
        Path("run.ini").touch()
        texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in
                 {**keys, **changes}.items() if value is not None}
        done = subprocess.run([PROGRAM, "run", "run.ini", *(f"--{key}={value}" for key, value in texts.items())],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], "^fedhpc: error: .*" + words)
        self.assertFalse(Path("run.h5").exists())

    def test_other_data(self):
        keys = self.prepare("CNN")[-1]
        x, y = np.zeros((40, 1, 12, 12)), np.arange(40)
        other = {**keys, **fedhpc.write_dataset("classes.h5", x, y % 9, channels="first"), "data.partition": "iid"}
        self.refused(other, "5.*9 classes|9 classes.*5")
        other |= fedhpc.write_dataset("shape.h5", x[:, :, :11], y % 5, channels="first")
        self.refused(other, r"samples of shape \[1, 12, 12\], those of data.name are \[1, 11, 12\]")

    def test_keys(self):
        keys = self.prepare("CNN")[-1]
        self.refused(keys, "'model.file': no such file as 'nothing.h5'", **{"model.file": "nothing.h5"})
        self.refused(keys, "model.name = file needs model.file", **{"model.file": None})
        self.refused(keys, "'model.file'.*model.name = file", **{"model.name": "mlr"})

    def test_other_files(self):
        keys = self.prepare("CNN")[-1]
        whole = Path("net.h5").read_bytes()
        self.refused(keys, "data.h5' is no model file", **{"model.file": "data.h5"})
        for length in (0, 100, len(whole) // 2, len(whole) - 1):
            Path("cut.h5").write_bytes(whole[:length])
            self.refused(keys, "model.file '.*cut.h5' cannot be read", **{"model.file": "cut.h5"})
        Path("text.h5").write_text("a network", encoding="utf-8")
        self.refused(keys, "model.file '.*text.h5' cannot be read", **{"model.file": "text.h5"})

    def test_changed_files(self):
        def without_weight(file):
            del file["model/global/fc1.weight"]

        def of_another_shape(file):
            del file["model/global/fc1.bias"]
            file["model/global/fc1.bias"] = np.zeros(17)

        def with_one_more(file):
            file["model/global/fc3.bias"] = np.zeros(3)

        def of_another_version(file):
            file.attrs["fedhpc_model"] = 2

        def line(before, after):
            def change(file):
                lines = [one.replace(before, after) for one in file["layers"][()].tolist()]
                self.assertNotEqual(lines, file["layers"][()].tolist())
                del file["layers"]
                file["layers"] = np.array(lines)
            return change

        keys, whole = self.prepare("CNN")[-1], Path("net.h5").read_bytes()
        for change, words in ((without_weight, "fc1.weight"), (of_another_shape, "fc1.bias"),
                              (with_one_more, "fc3.bias"), (of_another_version, "format 2"),
                              (line(b"relu", b"erlu"), "'?erlu"), (line(b"kernel=3,3", b"kernel=99,99"), "layer 1"),
                              (line(b"kernel=3,3", b"kernel=3"), "kernel"), (line(b"kernel=3,3", b"kern=3,3"), "kern"),
                              (line(b"out=16", b"out=0"), "out"), (line(b"relu inputs=1", b"relu inputs=7"), "layer 2"),
                              (line(b"p=0.25", b"p=25"), "'p' is 25")):
            with self.subTest(words):
                Path("changed.h5").write_bytes(whole)
                with h5py.File("changed.h5", "a") as file:
                    change(file)
                self.refused(keys, "changed.h5.*" + words, **{"model.file": "changed.h5"})

    def test_odd_bytes_are_quoted_on_one_line(self):
        keys = self.prepare("CNN")[-1]
        with h5py.File("net.h5", "a") as file:
            lines = [one.replace(b"out=16", b"\xff\n16") for one in file["layers"][()].tolist()]
            del file["layers"]
            file["layers"] = np.array(lines)
        with self.assertRaisesRegex(fedhpc.DataError, "'\N{REPLACEMENT CHARACTER} 16' is not of the form key=value"):
            self.run_model(keys)


class OneLibTorch(InFolder):
    def test_imports_in_either_order(self):
        for first, second in (("torch", "fedhpc"), ("fedhpc", "torch")):
            with self.subTest(first=first):
                script = (f"import {first}\n"
                          "if 'fedhpc' in globals():\n    fedhpc.version()\n"  # loads the compiled module
                          f"import {second}\n"
                          "results = fedhpc.run({'run.rounds': 1, 'run.output': 'run.h5'}, progress=False, force=True)\n"
                          "assert torch.ones(3).mul(2).sum() == 6 and len(results.rounds) == 1\n"
                          "maps = open('/proc/self/maps').read().split()\n"
                          "found = {one for one in maps if one.endswith('/libtorch_cpu.so')}\n"
                          "assert len(found) == 1, found\n")
                done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
