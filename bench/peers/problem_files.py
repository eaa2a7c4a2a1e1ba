"""Makes the folders of the problems: samples, and the partition and the initial model of a run of fedhpc."""

import lzma
import subprocess
from pathlib import Path

import h5py
import numpy as np
import problems

SOURCE = Path(__file__).resolve().parents[2]
# What is measured, in keys of fedhpc; "samples" and "features" are of generated data, "config" has all other keys.
PROBLEMS = {
    "a": {"samples": 60000, "features": 784, "model": "mlp", "cohort": 100,
          "keys": {"data.clients": 100, "model.name": "dnn", "model.hidden": 100, "train.batch_size": 20}},
    "b": {"config": SOURCE / "configs/benchmarks/cifar10_pfl_iid.ini", "model": "cnn", "cohort": 50,
          "keys": {"data.clients": 1000, "model.init": "xavier", "train.batch_size": 10}},
    "c": {"samples": 200000, "features": 60, "model": "logistic", "cohort": 100,
          "keys": {"data.clients": 10000, "model.name": "mlr", "train.batch_size": 10,
                   "topology.participation": 0.01}},
}
CLASSES, TEST_SAMPLES, SEED, LR = 10, 1000, 0, 0.1


def generated(samples, features):
    """Normal features, labelled by a random linear rule with noise: arrays of train and test."""
    draw = np.random.default_rng(SEED)
    rule = draw.normal(size=(features, CLASSES)).astype(np.float32)
    arrays = {}
    for part, count in (("train", samples), ("test", TEST_SAMPLES)):
        x = draw.standard_normal((count, features), dtype=np.float32)
        noise = draw.gumbel(size=(count, CLASSES)).astype(np.float32)
        arrays |= {f"{part}_x": x, f"{part}_y": (x @ rule + features**0.5 * noise).argmax(1)}
    return arrays


def cifar10(folder):
    """CIFAR-10, each channel standardised by the training set's own constants, as pfl-research does it."""
    arrays = {}
    for part, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
        records = np.concatenate([np.frombuffer(cifar_file(folder, name), np.uint8) for name in names])
        records = records.reshape(-1, 3073)
        arrays |= {f"{part}_x": records[:, 1:].reshape(-1, 3, 32, 32), f"{part}_y": records[:, 0].astype(np.int64)}
    of_channel = {"axis": (0, 2, 3), "dtype": np.float64, "keepdims": True}
    mean, deviation = arrays["train_x"].mean(**of_channel), arrays["train_x"].std(**of_channel)
    for part in ("train_x", "test_x"):
        arrays[part] = ((arrays[part] - mean) / deviation).astype(np.float32)
    return arrays


def cifar_file(folder, name):
    for place in (Path(folder) / "cifar-10-batches-bin", Path(folder)):
        for suffix, opened in ((".bin", open), (".bin.xz", lzma.open)):
            if (path := place / f"{name}{suffix}").exists():
                with opened(path, "rb") as file:
                    return file.read()
    raise SystemExit(f"no CIFAR-10 in {folder}: tools/fetch_data.py cifar10 --to DIR, then --data DIR")


def configuration(name, problem, folder, data):
    """fedhpc's arguments for a problem, and the arrays of its samples."""
    keys = {"run.seed": SEED, "train.lr": LR} | problem["keys"]
    if "config" in problem:
        keys |= {"data.dir": data}
        return [problem["config"], *(f"--{key}={value}" for key, value in keys.items())], cifar10(data)
    arrays = generated(problem["samples"], problem["features"])
    with h5py.File(folder / "samples.h5", "w") as file:
        for part in ("train", "test"):
            file[f"x_{part}"], file[f"y_{part}"] = arrays[f"{part}_x"], arrays[f"{part}_y"]
    keys |= {"data.name": "hdf5", "data.file": folder / "samples.h5", "data.split": "official", "data.partition": "iid",
             "train.local_epochs": 1, "algorithm.name": "fedavg", "algorithm.weighting": "uniform"}
    sections = {}
    for key, value in keys.items():
        section, _, rest = key.partition(".")
        sections.setdefault(section, []).append(f"{rest} = {value}")
    config = folder / f"{name}.ini"
    config.write_text("".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items()))
    return [config], arrays


def make(name, problem, folder, fedhpc, data=None):
    """Writes a problem into `folder` and returns the arguments with which `fedhpc run` has the same problem."""
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    arguments, arrays = configuration(name, problem, folder, data)
    output = folder / "exported.h5"
    subprocess.run([fedhpc, "run", *arguments, "--run.rounds=1", "--run.save=init,partition", f"--run.output={output}",
                    "--run.progress=none", "--run.log_level=error", "--force"], check=True)
    with h5py.File(output) as file:
        arrays |= {key: file[f"partition/train_{key}"][...] for key in ("samples", "offsets")}
        initial = {key: values[...] for key, values in file["model/init/global"].items()}
    settings = {"name": name, "model": problem["model"], "cohort": problem["cohort"], "seed": SEED, "lr": LR,
                "batch": problem["keys"]["train.batch_size"]}
    problems.save(folder, settings, arrays, initial)
    return arguments
