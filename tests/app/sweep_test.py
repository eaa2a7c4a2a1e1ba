"""Successive halving of the program's own runs: what is cut and gone on with is what straight runs would be.

    python3 sweep_test.py --fedhpc build/release/fedhpc --mpiexec mpirun [unittest arguments]
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from app_support import AppCase, environment, main, options

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """[run]
rounds = 12
[data]
name = glyphs
clients = 4
samples_per_client = 60
partition = dirichlet
[model]
name = dnn
hidden = 8
[train]
batch_size = 10
local_epochs = 1
optimizer = momentum
lr_warmup = 1
[topology]
participation = 0.6
[algorithm]
name = fedprox
"""
SWEEP = """[sweep]
base = run.ini
trials = 6
train.lr = log_uniform(0.01, 0.5)
algorithm.mu = uniform(0, 1)
train.lr_schedule = constant, cosine
least_rounds = 3
eta = 2
rule = last
"""
GRID = """[sweep]
base = run.ini
algorithm.name = fedavg, fedprox
train.lr_schedule = constant, cosine
data.validation_fraction = 0.2
run.rounds = 2
seeds = 1-2
select = validation
"""
OF_THIS_MACHINE = {"wall_seconds", "seconds_cpu", "seconds_train", "seconds_wait", "balance", "bytes_moved",
                   "seconds_aggregate", "seconds_evaluate", "seconds_io", "hostnames", "config", "first_round", "ranks"}


def contents(path):
    """{name: bytes} of all data sets, without times of this machine."""
    found = {}
    with h5py.File(path, "r") as file:
        def keep(name, item):
            if isinstance(item, h5py.Dataset) and name.rsplit("/", 1)[-1] not in OF_THIS_MACHINE:
                found[name] = np.asarray(item).tobytes()
        file.visititems(keep)
    return found


class Halving(AppCase):
    def setUp(self):
        super().setUp()
        self.ini(CONFIG, "run.ini")
        self.ini(SWEEP, "sweep.ini")
        self.command = [sys.executable, ROOT / "tools/sweep.py", "sweep.ini", "--local", "--ranks", "1", "--output"]
        self.how = {"cwd": self.folder, "env": environment(FEDHPC=options.fedhpc), "text": True,
                    "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}

    def sweep(self, output):
        done = subprocess.run([*self.command, output], check=False, **self.how)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_trial_is_the_straight_run(self):
        said = self.sweep("here")
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("| ")][1:]
        self.assertEqual(sorted(row[4] + "/" + row[5] for row in rows), ["1/3"] * 3 + ["2/6"] * 2 + ["3/12"])
        self.assertEqual({row[3] for row in rows}, {"constant", "cosine"})
        for trial, lr, mu, schedule, _, rounds, *_ in rows:
            straight = self.folder / f"straight{trial}.h5"
            # A cosine of the whole run, of which the first rounds are looked at.
            cosine = ["--train.lr_period=11"] if schedule == "cosine" and rounds != "12" else []
            self.run_ok("run", "run.ini", f"--train.lr={lr}", f"--algorithm.mu={mu}", f"--train.lr_schedule={schedule}",
                        *cosine, "--run.seed=1", f"--run.rounds={rounds}", f"--run.output={straight}")
            found, expected = contents(self.folder / f"here/trial{trial}_seed1.h5"), contents(straight)
            self.assertIn("model/global/fc1.weight", found)
            self.assertEqual(set(found), set(expected))
            self.assertEqual([name for name, value in expected.items() if found[name] != value], [], f"trial {trial}")

    def test_nothing_is_left_but_where_settings_differ(self):
        self.sweep("here")
        self.assertRegex(self.sweep("here"), r"\A0 of \d runs of rung 3 of 3 \(to round 12\) are left\n")
        for taken, left in (("", 0), ("train.weight_decay = 0.5\n", 8), ("data.seed = 3\n", 8),
                            ("algorithm.fedprox.mu = 0.5\n", 4)):
            self.ini(GRID + taken, "sweep.ini")
            self.sweep("grid")
            self.assertIn("0 of 8 runs are left\n", self.sweep("grid"))
            self.ini(GRID, "sweep.ini")
            self.assertIn(f"{left} of 8 runs are left\n", self.sweep("grid"), taken)
        self.ini(GRID + "metric = global_acuracy\n", "sweep.ini")
        done = subprocess.run([*self.command, "misspelt"], check=False, **self.how)
        self.assertEqual((done.returncode, (self.folder / "misspelt").exists()), (2, False), done.stdout)
        self.assertIn("(did you mean 'global_accuracy'?)", done.stdout)

    def test_more_rounds_of_the_base_go_on(self):
        self.ini("[sweep]\nbase = run.ini\ntrain.lr = 0.1, 0.2\n", "sweep.ini")
        for rounds in (3, 12):
            self.ini(CONFIG.replace("= 12", f"= {rounds}"), "run.ini")
            self.assertIn("2 of 2 runs are left\n", self.sweep("grown"))
        self.assertEqual(list((self.folder / "grown").glob("*.old*")), [])
        self.sweep("straight")
        for path in sorted((self.folder / "straight").glob("*_seed1.h5")):
            self.assertEqual(contents(path), contents(self.folder / "grown" / path.name), path.name)

    def test_a_killed_sweep_ends_as_one_that_was_not(self):
        whole = self.sweep("whole")
        for lines, number in ((2, signal.SIGKILL), (8, signal.SIGTERM), (10, signal.SIGKILL)):
            process = subprocess.Popen([*self.command, "killed"], **self.how)
            for _ in range(lines):
                if process.stdout.readline().startswith("|"):
                    break
            time.sleep(0.1)
            process.send_signal(number)
            process.communicate()
        said = self.sweep("killed")
        self.assertEqual(said[said.index("|"):].replace("killed/", "whole/"), whole[whole.index("|"):])
        for path in sorted((self.folder / "whole").glob("*_seed1.h5")):
            self.assertEqual(contents(path), contents(self.folder / "killed" / path.name), path.name)


if __name__ == "__main__":
    main()
