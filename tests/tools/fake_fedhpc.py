"""Stands in for the fedhpc program: same command line, result file and exit codes, no training.

algorithm.name decides what it does: good; fail (exit code 1 with a message); typo (exit code 2, nothing
written); slow (0.1 s a round, checkpoints on SIGUSR1); stubborn (like slow, dies on SIGUSR1); killed (killed
after round 5 and its checkpoint, unless it is resumed); hungry (killed at every start); rated (accuracy lr - lr/2t,
evaluated in every round, with a checkpoint at its end; fails where lr is 4, diverges in round 2 from 5 on). The accuracy after
round t is 0.9 + seed/1000 - 0.1/t; a round is recorded to take 2 s (fedavg) or 3 s and its evaluation, in every
fifth, 1 s more. Every call but `show run` is appended to $FAKE_LOG.
"""

import glob
import os
import signal
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, os.environ["FAKE_PYTHON"])
from fake_planner import output_of  # noqa: E402
from fedhpc.tools.results import parse_config  # noqa: E402


def write(path, config, rounds, status):
    sections = {}
    for key, value in config.items():
        section, name = key.split(".", 1)
        sections.setdefault(section, []).append(f"{name}={value}\n")
    text = "".join(f"[{section}]\n" + "".join(lines) for section, lines in sections.items())
    t = np.arange(1, rounds + 1)
    part = f"{path}.part"  # a test reads at any moment
    with h5py.File(part, "w", libver="latest") as file:
        file.attrs["status"] = status
        file.attrs["config"] = text
        for variable, name in (("FAKE_DIGEST", "data_digest"), ("FAKE_CODE", "code_digest")):
            if variable in os.environ:
                file.attrs[name] = os.environ[variable]
        file.attrs["ranks"] = 1
        file.attrs["device"] = config.get("run.device", "cpu")
        file.attrs["fedhpc_version"], file.attrs["git_commit"] = "0.0.1", "c0ffee"
        if "FAKE_PROCESSOR" in os.environ:
            file.attrs["processor"] = os.environ["FAKE_PROCESSOR"]
        file["rounds/round"] = t
        accuracy = 0.9 + int(config["run.seed"]) / 1000 - 0.1 / t
        lr = float(config["train.lr"])
        file["rounds/global_accuracy"] = (lr - lr / (2 * t) if config["algorithm.name"] == "rated" else
                                          np.where(t % 5 == 0, accuracy, np.nan))
        evaluate = np.where(t % 5 == 0, 1.0, 0.0)
        file["rounds/seconds_evaluate"] = evaluate
        file["rounds/wall_seconds"] = evaluate + (2.0 if config["algorithm.name"] == "fedavg" else 3.0)
    os.replace(part, path)


def checkpoint(output, t):
    open(output.removesuffix(".h5") + f".ckpt.{t}.h5", "w").close()


def main():
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return 0
    if sys.argv[1:3] == ["show", "run"]:
        with h5py.File(sys.argv[3], "r") as file:
            print("status", file.attrs["status"])
        return 0
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        print(*sys.argv[1:], file=log)
    command, target, overrides = sys.argv[1], sys.argv[2], sys.argv[3:]
    if "--go-on" in overrides:
        overrides.remove("--go-on")
        output = output_of(target, overrides)
        if glob.glob(glob.escape(output.removesuffix(".h5")) + ".ckpt.*.h5"):
            command, target = "resume", output
    if command == "resume":
        with h5py.File(target, "r") as file:
            config = parse_config(file.attrs["config"])
            start = len(file["rounds/round"])
    else:
        with open(target, encoding="utf-8") as file:
            config, start = parse_config(file.read()), 0
    config.update(item.removeprefix("--").split("=", 1) for item in overrides if item.startswith("--"))
    output = target if command == "resume" else config["run.output"]
    config["train.lr"] = f"{float(config['train.lr']):.17g}"
    kind = config["algorithm.name"]
    lr, rounds = float(config["train.lr"]), int(config["run.rounds"])
    if kind == "rated" and lr == 4:
        kind = "fail"
    if kind in ("fail", "typo"):
        print(f"fedhpc: error: {kind} on purpose", file=sys.stderr, flush=True)
        if kind == "fail":
            write(output, config, 1, "failed")
        return 1 if kind == "fail" else 2
    if kind == "hungry" or kind == "killed" and command == "run":
        write(output, config, 5, "running")
        checkpoint(output, 5)
        os.kill(os.getpid(), signal.SIGKILL)
    asked = []
    if kind == "slow":
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    if kind in ("slow", "stubborn"):
        write(output, config, start, "running")
        for t in range(start + 1, rounds + 1):
            time.sleep(0.1)
            if asked:
                write(output, config, t, "interrupted")
                checkpoint(output, t)
                return 75
    diverged = kind == "rated" and lr >= 5 and rounds >= 2
    write(output, config, 2 if diverged else rounds, "diverged" if diverged else "complete")
    if kind == "rated":
        checkpoint(output, rounds)
    return 1 if diverged and config.get("run.stop_on_divergence") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
