"""The cases of a campaign: each draws what it does from `rng`, in a folder of its own, and says in a word how it ended."""

import csv
import os
import re
import shutil
import signal
import time

import h5py
import numpy as np

from .campaign_runs import Failure, contents, expect_equal, ranks_of

KEYS_OF_PLACES = {"data.dir", "data.file", "data.test_file", "data.partition_file", "model.init_file", "run.output",
                  "data.name", "run.device", "run.rounds", "model.name", "algorithm.name", "run.collective_timeout",
                  "run.mpi"}
MODELS = ("mlr", "dnn", "dnn", "cnn2")
SIZES = (0, 1, 2, 3, 5, 7)


def drawn_value(rng, allowed):
    """A value that a key's own words allow, now and then one that they do not; None where they do not say."""
    if rng.random() < 0.02:
        return rng.choice(["", "-1", "nan", "1e400", "word", "9223372036854775808", "0x10", "1,2"])
    choices = re.search(r"one of: (.*)", allowed)
    if choices:
        return rng.choice(choices[1].split(", "))
    some = re.match(r"any of: (.*) \(separated by commas\)", allowed)
    if some:
        names = some[1].split(", ")
        return ",".join(rng.sample(names, rng.randint(1, len(names))))
    if allowed.startswith("auto") and rng.random() < 0.3:
        return "auto"
    bounds = [float(bound) for bound in re.findall(r"(?:at least|above|at most|below) (-?[\d.]+)", allowed)]
    low = bounds[0] if bounds else 0.0
    high = bounds[1] if len(bounds) > 1 else float("inf")
    if "whole number" in allowed or "positive" in allowed:
        return str(int(min(low + rng.choice(SIZES), high)))
    if "number" in allowed:
        inside = [value for value in (low, 0.001, 0.1, 0.5, 0.9, 1.0, 2.0) if low <= value <= high]
        return str(rng.choice(inside))
    return None


def drawn_configuration(rng, runs):
    """(lines of an INI by section, method) of a run of a moment."""
    methods = next(allowed for allowed, _ in runs.keys()["algorithm.name"]).split(": ")[1].split(", ")
    method = rng.choice(methods)
    values = {"run.rounds": str(rng.randint(1, 4)), "run.seed": str(rng.randint(0, 999)), "algorithm.name": method,
              "data.name": rng.choice(["glyphs", "synthetic", "covtype_like"]), "data.clients": str(rng.randint(1, 9)),
              "data.samples_per_client": str(rng.randint(4, 30)), "model.name": rng.choice(MODELS),
              "train.batch_size": str(rng.choice([0, 1, 2, 4, 8]))}
    if values["data.name"] != "glyphs" and values["model.name"] == "cnn2":
        values["model.name"] = "mlr"
    if values["model.name"] == "dnn":
        values["model.hidden"] = str(rng.randint(1, 12))
    if rng.random() < 0.5:
        values["topology.edges"] = str(rng.randint(1, 3))
    free = [key for key in runs.keys() if key not in KEYS_OF_PLACES and key not in values]
    own = [key for key in free if key.startswith("algorithm.") and
           any(method in methods for _, methods in runs.keys()[key])]
    common = [key for key in free if not key.startswith("algorithm.")]
    for key in {*rng.sample(common, rng.randint(0, 6)), *rng.sample(own, rng.randint(0, min(3, len(own))))}:
        allowed = next((allowed for allowed, methods in runs.keys()[key] if method in methods), runs.keys()[key][0][0])
        value = drawn_value(rng, allowed)
        if value is not None:
            values[key] = value
    return values


def written(folder, values, name="run.ini"):
    sections = {}
    for key, value in values.items():
        section, short = key.split(".", 1)
        sections.setdefault(section, []).append(f"{short} = {value}\n")
    path = folder / name
    path.write_text("".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items()))
    return path


def configs(rng, folder, runs):
    values = drawn_configuration(rng, runs)
    kind = rng.random()
    if kind < 0.1:
        values["run.reproducible"] = "true"
    elif kind < 0.2:
        values |= {"run.checkpoint_every": "1", "train.block": "2"}
    while True:
        ini = written(folder, values)
        # A run that is to be given up when it diverges ends with 1.
        allowed = (0, 1, 2) if values.get("run.stop_on_divergence") == "true" else (0, 2)
        done = runs.run(folder, "run", ini, "--run.output=run.h5", allowed=allowed)
        text = ini.read_text()
        if done.code != 2:
            break
        if (folder / "run.h5").exists():
            raise Failure(f"refused, and yet there is a result: {done.err}\n{text}")
        # Most keys act with few others: the one named goes, and the rest is tried again.
        named = [key for key in re.findall(r"\w+\.\w+", done.err) if key in values and key != "algorithm.name"]
        if not named or rng.random() < 0.1:
            return "refused"
        del values[named[0]]
    if done.code == 1:
        return "given up" if "diverged" in done.out + done.err else fail(f"{done}\n{text}")
    straight = contents(folder / "run.h5")
    rounds = np.frombuffer(straight["rounds/round"][2], dtype=np.int64)
    if rounds.tolist() != list(range(1, int(values["run.rounds"]) + 1)):
        raise Failure(f"rounds {rounds.tolist()}\n{text}")
    if kind < 0.1:
        runs.run(folder, "run", ini, "--run.output=ranks.h5", ranks=rng.randint(2, 4))
        expect_equal(contents(folder / "ranks.h5"), straight, f"on other ranks\n{text}")
        return "the same on other ranks"
    if kind < 0.2:
        killed_and_resumed(rng, folder, runs, ini, straight, f"killed\n{text}")
        return "the same after a kill"
    return "carried out"


def fail(text):
    raise Failure(text)


SLOW = {"run.rounds": "6", "run.checkpoint_every": "1", "run.grace_seconds": "0", "data.name": "glyphs",
        "data.clients": "6", "data.samples_per_client": "30", "data.split": "client", "model.name": "dnn",
        "model.hidden": "6,5", "train.batch_size": "4", "train.local_epochs": "0",
        "train.block": "2", "run.save": "init,partition,draws"}
# Local steps of each method that take about half a second in all: a step of some has many gradients or a decomposition.
STEPS_OF_METHODS = {"fedavg": 300, "pfedme": 100, "ditto": 300, "tdpfed": 8, "pfedsop": 300, "fedmud": 200,
                    "fedamp": 300, "hierfavg": 150, "sfedhp": 10, "simnet": 200, "ef21p": 300,
                    "fedbat": 60, "pfedgp": 1}


def slow_run(rng, folder, runs):
    """(configuration, contents of a straight run, its seconds) of a run of about half a second."""
    method, steps = rng.choice(list(STEPS_OF_METHODS.items()))
    values = SLOW | {"algorithm.name": method, "train.local_steps": str(steps), "run.seed": str(rng.randint(0, 3)),
                     "run.dtype": rng.choice(["float32", "float64"])}
    if method in ("hierfavg", "sfedhp"):
        values |= {"topology.edges": "2"}
    if method == "fedmud":
        values |= {"model.rank": "2"}
    ini = written(folder, values)
    began = time.monotonic()
    runs.run(folder, "run", ini, "--run.output=straight.h5")
    return ini, contents(folder / "straight.h5"), time.monotonic() - began


def killed_and_resumed(rng, folder, runs, ini, straight, what, seconds=0.6, ranks=0):
    """Kills a run again and again until it is complete, which it has to be with the bits of the straight one."""
    output = folder / "run.h5"
    for file in folder.glob("run.*h5"):
        file.unlink()
    for attempt in range(12):
        begin = not list(folder.glob("run.ckpt.*.h5"))
        process = runs.start(folder, *(("run", ini, "--run.output=run.h5", "--force") if begin else ("resume", "run.h5")),
                             ranks=ranks)
        time.sleep(rng.uniform(0, 1.3 * seconds) if attempt < 6 else 0)
        victims = ranks_of(process) if attempt < 6 else []
        for pid in victims if rng.random() < 0.5 else rng.sample(victims, min(1, len(victims))):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        done = runs.finish(process)
        if done.code == 0:
            expect_equal(contents(output), straight, what)
            return attempt
        if done.code not in (-9, 137) and not (ranks and victims):
            raise Failure(f"{what}: {done}")
    raise Failure(f"{what}: not complete after twelve starts")


def kills(rng, folder, runs):
    ini, straight, seconds = slow_run(rng, folder, runs)
    ranks = rng.choice([0, 0, 2])
    if ranks:
        runs.run(folder, "run", ini, "--run.output=straight.h5", "--force", ranks=ranks)
        straight = contents(folder / "straight.h5")
    times = killed_and_resumed(rng, folder, runs, ini, straight, f"killed: {ini.read_text()}", seconds, ranks)
    return f"the same after {times} kill{'' if times == 1 else 's'}"


def races(rng, folder, runs):
    ini, straight, _ = slow_run(rng, folder, runs)
    command = ("run", ini, "--run.output=run.h5")
    resumes = rng.random() < 0.5
    if resumes:
        process = runs.start(folder, *command)
        until = time.monotonic() + 20
        while not list(folder.glob("run.ckpt.*.h5")) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()
        runs.finish(process)
        command = ("resume", "run.h5")
    first = runs.start(folder, *command)
    time.sleep(rng.choice([0, 0, 0.02, 0.1, 0.3]))
    second = runs.start(folder, *command)
    codes = [runs.finish(process) for process in (first, second)]
    said = "; ".join(map(str, codes))
    if sorted(one.code for one in codes) not in ([0, 2], [0, 0]):
        raise Failure(f"two starts ended with {said}")
    expect_equal(contents(folder / "run.h5"), straight, f"after two starts ({said})")
    if all(one.code == 0 for one in codes) and not resumes:
        expect_equal(contents(folder / "run.old1.h5"), straight, "the first of two runs one after the other")
    left = [path.name for path in folder.glob("run.h5.*")] + [path.name for path in folder.glob("*.lock")]
    if left:
        raise Failure(f"left behind: {left}")
    return "one refused" if any(one.code == 2 for one in codes) else "one after the other"


def signals(rng, folder, runs):
    ini, straight, seconds = slow_run(rng, folder, runs)
    number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
    process = runs.start(folder, "run", ini, "--run.output=run.h5")
    time.sleep(rng.uniform(0, seconds + 0.1))
    process.send_signal(number)
    done = runs.finish(process)
    output = folder / "run.h5"
    if done.code == 0:
        expect_equal(contents(output), straight, "complete although a signal came")
        return "complete"
    if done.code == -number:  # before the program could listen
        if output.exists():
            raise Failure(f"killed by {number.name} with a result file: {done}")
        return "killed before it listened"
    if done.code != 75:
        raise Failure(f"{number.name} gave {done}")
    runs.run(folder, "resume", "run.h5")
    expect_equal(contents(output), straight, f"resumed after {number.name}")
    return "interrupted and resumed"


def mutated(rng, data):
    """One mutation of some bytes."""
    data, kind = bytearray(data), rng.choice(["flip", "flips", "cut", "zeros", "insert", "swap", "empty", "noise"])
    size = max(1, len(data))
    place = rng.randrange(size) if rng.random() < 0.6 else rng.randrange(min(size, 2048))
    length = min(size - place, rng.choice([1, 8, 64, 512]))
    if kind == "flip" and data:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == "flips":
        for at in rng.sample(range(len(data)), min(len(data), 8)):
            data[at] ^= rng.randrange(1, 256)
    elif kind == "cut":
        del data[place:]
    elif kind == "zeros":
        data[place:place + length] = bytes(length)
    elif kind == "insert":
        data[place:place] = bytes(rng.randrange(256) for _ in range(length))
    elif kind == "swap":
        other = rng.randrange(size)
        data[place:place + length], data[other:other + length] = data[other:other + length], data[place:place + length]
    elif kind == "empty":
        data = bytearray()
    else:
        data[place:place + length] = bytes(rng.randrange(256) for _ in range(length))
    return bytes(data)


def restructured(rng, path):
    """One change of what an HDF5 file holds, by its library."""
    with h5py.File(path, "r+") as file:
        names = []
        file.visit(names.append)
        name = rng.choice(names)
        kind = rng.choice(["remove", "scalar", "type", "shape", "huge", "group", "attribute"])
        if kind == "attribute":
            for attribute in list(file.attrs):
                if rng.random() < 0.3:
                    del file.attrs[attribute]
            return
        shape = getattr(file[name], "shape", (3,))
        del file[name]
        if kind == "scalar":
            file[name] = 1.0
        elif kind == "type":
            file[name] = np.array([b"text"] * 3)
        elif kind == "shape":
            file[name] = np.zeros((*shape, 2))
        elif kind == "huge":
            file.create_dataset(name, shape=(2**40,), dtype="f8", chunks=(1024,))
        elif kind == "group":
            file.create_group(name)


def damaged(rng, path):
    if path.suffix == ".h5" and rng.random() < 0.4:
        restructured(rng, path)
    else:
        path.write_bytes(mutated(rng, path.read_bytes()))


def rows_of(folder):
    with open(folder / "rounds.csv", newline="") as file:
        return [row[0] for row in csv.reader(file)][1:]


def files(rng, folder, runs):
    kind = rng.choice(["ini", "results", "checkpoint", "init", "partition", "csv", "hdf5", "idx"])
    values = SLOW | {"train.local_steps": "2", "algorithm.name": rng.choice(["fedavg", "pfedme"]), "run.rounds": "4"}
    ini = written(folder, values)
    short = ("--run.rounds=2", "--run.output=second.h5")
    if kind == "ini":
        damaged(rng, ini)
        # What is left may ask for a long run; only whether it is taken is of interest.
        done = runs.run(folder, "plan", ini, "--train.local_steps=2", allowed=(0, 2))
        return "a configuration " + ("refused" if done.code else "taken")
    if kind in ("csv", "hdf5", "idx"):
        keys = data_of_ones_own(rng, folder, kind)
        target = folder / {"csv": "data.csv", "hdf5": "data.h5", "idx": "train-images-idx3-ubyte"}[kind]
        damaged(rng, target)
        done = runs.run(folder, "run", written(folder, keys), *short, allowed=(0, 2))
        return f"{kind} data " + ("refused" if done.code else "taken")
    if kind == "checkpoint":
        return damaged_checkpoint(rng, folder, runs, ini)
    runs.run(folder, "run", ini, "--run.output=run.h5")
    damaged(rng, folder / "run.h5")
    if kind == "results":
        done = runs.run(folder, "export", "run.h5", "--csv", "out", allowed=(0, 2))
        if done.code == 0 and rows_of(folder / "out") != ["1", "2", "3", "4"]:
            raise Failure(f"export of a damaged file wrote rounds {rows_of(folder / 'out')}")
        runs.run(folder, "resume", "run.h5", "--run.rounds=5", allowed=(0, 2))
    elif kind == "init":
        done = runs.run(folder, "run", ini, "--model.init_file=run.h5", *short, allowed=(0, 2))
    else:
        done = runs.run(folder, "run", ini, "--data.partition=file", "--data.partition_file=run.h5", *short,
                        allowed=(0, 2))
    return f"{kind} " + ("refused" if done.code else "taken")


def damaged_checkpoint(rng, folder, runs, ini):
    """The newest of two checkpoints is damaged: the older one is gone on from, or the run is refused."""
    runs.run(folder, "run", ini, "--run.output=straight.h5")
    runs.run(folder, "run", ini, "--run.output=run.h5", "--run.rounds=2")
    shutil.copy(folder / "run.ckpt.2.h5", folder / "older.h5")
    runs.run(folder, "resume", "run.h5", "--run.rounds=3")
    two = rng.random() < 0.7
    if two:
        (folder / "older.h5").rename(folder / "run.ckpt.2.h5")
    damaged(rng, folder / "run.ckpt.3.h5")
    done = runs.run(folder, "resume", "run.h5", "--run.rounds=4", allowed=(0, 2))
    if done.code == 0:
        expect_equal(contents(folder / "run.h5"), contents(folder / "straight.h5"), "resumed from a damaged checkpoint")
        return "an older checkpoint taken" if "warning" in done.err else "a checkpoint taken whole"
    if two:
        raise Failure(f"refused although an older checkpoint is good: {done}")
    return "a checkpoint refused"


def data_of_ones_own(rng, folder, kind):
    """Keys of a run on a small data set of this kind, written into the folder."""
    draws = np.random.default_rng(rng.randrange(1000))
    features, labels = draws.normal(size=(60, 4)).round(3), draws.integers(0, 3, 60)
    keys = {"run.rounds": "2", "data.clients": "4", "model.name": "mlr", "train.batch_size": "4",
            "algorithm.name": "fedavg"}
    if kind == "csv":
        lines = [",".join([*map(str, row), str(label)]) for row, label in zip(features, labels)]
        (folder / "data.csv").write_text("a,b,c,d,label\n" + "\n".join(lines) + "\n")
        return keys | {"data.name": "csv", "data.file": "data.csv"}
    if kind == "hdf5":
        with h5py.File(folder / "data.h5", "w") as file:
            for part in ("train", "test"):
                file[f"x_{part}"], file[f"y_{part}"] = features.astype(np.float32), labels.astype(np.int64)
        return keys | {"data.name": "hdf5", "data.file": "data.h5"}
    for part, count in (("train", 60), ("t10k", 20)):
        pixels = draws.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in pixels.shape) + pixels.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            b"\0\0\x08\x01" + count.to_bytes(4, "big") + draws.integers(0, 10, count, dtype=np.uint8).tobytes())
    return keys | {"data.name": "mnist", "data.dir": str(folder)}


KINDS = {"configs": configs, "files": files, "kills": kills, "races": races, "signals": signals}
