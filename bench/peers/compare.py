#!/usr/bin/env python3
"""The same problems in fedhpc and in other simulators of federated learning, each alone on one core: one table.

    bench/peers/compare.py --data DIR                                      # everything: environments, problems, table
    bench/peers/compare.py --problems a,c --peers fedhpc,pytorch --turns 1
    bench/peers/compare.py --problems b --peers fedhpc,pfl --accuracy 1500 --data DIR   # accuracy in place of time

DIR has CIFAR-10 for problem b. Environments of the peers are made in --envs (about 6 GB with PyTorch's libraries).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path

import h5py
import problem_files
from processes import cost

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
# What pip installs for each; the last wheels that Python 3.11 has of all of them.
ENVIRONMENTS = {
    "torch": ["torch==2.11.0", "numpy==2.4.6"],
    "pfl": ["pfl==0.6.0", "numpy==2.4.6"],
    "flower": ["flwr[simulation]==1.41.0", "ray==2.55.1", "numpy==2.4.6"],
    # FedJAX calls jax.tree_map, which JAX 0.6 no longer has: it imports there and fails at its first round.
    "fedjax": ["fedjax==0.0.17", "jax==0.4.30", "jaxlib==0.4.30", "dm-haiku==0.0.12", "numpy==1.26.4"],
}
ON_TORCH = ("pfl", "flower")  # these look for PyTorch in its environment
PEERS = {"fedhpc": None, "pytorch": "torch", "vmap": "torch", "pfl": "pfl", "flower": "flower", "fedjax": "fedjax"}
MOST_ROUNDS = 20000


def site_packages(folder):
    return next(folder.glob("lib/python3*/site-packages"))


def environment(name, envs):
    """The Python of an environment, which is made where it is not there."""
    folder = envs / name
    done, wanted = folder / "complete.txt", "\n".join(ENVIRONMENTS[name])
    if name in ON_TORCH:
        environment("torch", envs)
    if not done.exists() or done.read_text() != wanted:
        print(f"making {folder}: {', '.join(ENVIRONMENTS[name])}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
                        *ENVIRONMENTS[name]], check=True)
        if name in ON_TORCH:
            (site_packages(folder) / "torch.pth").write_text(f"{site_packages(envs / 'torch')}\n")
        done.write_text(wanted)
    return folder / "bin/python"


class Measured:
    """One program on one problem."""

    def __init__(self, peer, problem, folder, of_fedhpc, arguments):
        self.peer, self.problem, self.folder = peer, problem, folder / peer
        self.of_fedhpc, self.core, self.problem_folder = of_fedhpc, arguments.core, folder
        self.folder.mkdir(exist_ok=True)
        self.python = environment(PEERS[peer], arguments.envs) if PEERS[peer] else None
        self.fedhpc, self.seconds = arguments.fedhpc, arguments.seconds
        self.rounds, self.turns, self.error = 0, [], ""  # turns: (CPU, wall, memory)
        self.label = f"{peer} ({ENVIRONMENTS[PEERS[peer]][0]})" if PEERS[peer] else peer

    def run(self, rounds, every=0):
        """The Cost of so many rounds."""
        if self.python:
            command = [self.python, HERE / f"peer_{self.peer}.py", self.problem_folder, "--rounds", rounds,
                       "--every", every]
        else:
            command = [self.fedhpc, "run", *self.of_fedhpc, f"--run.rounds={rounds}",
                       f"--run.eval_every={every or rounds}", "--run.checkpoint_every=0", "--run.progress=none",
                       f"--run.output={self.folder / 'run.h5'}", "--force"]
        spent = cost(command, self.folder, self.core)
        self.error = self.error or spent.error
        return spent

    def calibrate(self):
        """Finds as many rounds as take `seconds` more CPU time than one."""
        one, rounds = self.run(1), 2
        while not self.error:
            self.rounds = rounds
            more = self.run(rounds).cpu - one.cpu
            if more >= self.seconds / 2 or rounds == MOST_ROUNDS:
                return
            factor = 1.2 * self.seconds / more if more > self.seconds / 20 else 10
            rounds = min(MOST_ROUNDS, math.ceil(1 + (rounds - 1) * factor))

    def turn(self):
        one, many = self.run(1), self.run(self.rounds)
        if not self.error:
            per_round = [(b - a) / (self.rounds - 1) for a, b in ((one.cpu, many.cpu), (one.wall, many.wall))]
            self.turns.append((*per_round, many.memory))

    def history(self, rounds, every):
        """[(round, accuracy)] of a run."""
        spent = self.run(rounds, every)
        if self.error:
            return []
        if self.python:
            lines = (json.loads(line) for line in spent.output.splitlines() if line.startswith('{"round"'))
            return [(line["round"], line["accuracy"]) for line in lines]
        with h5py.File(self.folder / "run.h5") as file:
            pairs = zip(file["rounds/round"][...], file["rounds/global_accuracy"][...])
            return [(int(number), float(value)) for number, value in pairs if not math.isnan(value)]


def table_of_times(measured):
    """Lines of Markdown: medians over the turns, in brackets the least and the most."""
    yield "| problem | program | CPU [s/round] | of fedhpc | wall [s/round] | CPU [ms/client] | peak memory [MB] |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    base = {one.problem: statistics.median(turn[0] for turn in one.turns)
            for one in measured if one.peer == "fedhpc" and one.turns}
    for one in measured:
        if one.error:
            yield f"| {one.problem} | {one.label} | {one.error} | | | | |"
            continue
        cpu, wall, memory = ([turn[i] for turn in one.turns] for i in range(3))
        middle = statistics.median(cpu)
        ratio = f"{middle / base[one.problem]:.2f}" if one.problem in base else "-"
        each = 1000 * middle / problem_files.PROBLEMS[one.problem]["cohort"]
        yield (f"| {one.problem} | {one.label} | {middle:.4g} ({min(cpu):.4g} to {max(cpu):.4g}) | {ratio} | "
               f"{statistics.median(wall):.4g} | {each:.3g} | {statistics.median(memory):.0f} |")


def table_of_accuracies(measured, arguments):
    """One line a program: accuracy in percent after each of the last rounds that were evaluated."""
    for one in measured:
        history = one.history(arguments.accuracy, arguments.every)
        shown = ", ".join(f"{100 * value:.2f} ({number})" for number, value in history[-12:])
        yield f"| {one.problem} | {one.peer} | {one.error or shown} |"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="a,b,c")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDHPC_DATA"), help="has CIFAR-10 (FEDHPC_DATA)")
    parser.add_argument("--fedhpc", type=Path, default=SOURCE / "build/release/fedhpc")
    parser.add_argument("--envs", type=Path, default=SOURCE / ".deps/peers", help="of the peers' environments")
    parser.add_argument("--folder", type=Path, default=SOURCE / "build/peers", help="of the problems and outputs")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="which all run on")
    parser.add_argument("--turns", type=int, default=3, help="each program in turn, so many times")
    parser.add_argument("--seconds", type=float, default=10, help="of CPU in a measurement")
    parser.add_argument("--accuracy", type=int, default=0, help="so many rounds for the accuracy; no times then")
    parser.add_argument("--every", type=int, default=50, help="rounds between two accuracies")
    arguments = parser.parse_args()
    arguments.problems, arguments.peers = arguments.problems.split(","), arguments.peers.split(",")
    for given, known in ((arguments.problems, problem_files.PROBLEMS), (arguments.peers, PEERS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in ("fedhpc", "envs", "folder"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    return arguments


def main():
    arguments = options()
    measured = []
    for name in arguments.problems:
        folder = arguments.folder / name
        of_fedhpc = problem_files.make(name, problem_files.PROBLEMS[name], folder, arguments.fedhpc, arguments.data)
        measured += [Measured(peer, name, folder, of_fedhpc, arguments) for peer in arguments.peers]
    if arguments.accuracy:
        for line in table_of_accuracies(measured, arguments):
            print(line, flush=True)
        return
    for one in measured:
        one.calibrate()
        print(f"{one.problem} {one.peer}: {one.error or f'{one.rounds} rounds'}", flush=True)
    for _ in range(arguments.turns):
        for one in measured:
            if not one.error:
                one.turn()
    print("\n".join(table_of_times(measured)))


if __name__ == "__main__":
    sys.exit(main())
