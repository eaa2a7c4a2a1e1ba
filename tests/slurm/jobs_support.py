"""What the tests of job scripts share: a cluster, a small run in a folder of its own, waiting for jobs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

from slurm_support import Cluster, missing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "app"))
import app_support  # noqa: E402
from app_support import SMALL_RUN, environment  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
END = 120.0  # s, within which a job of these tests ends
CONFIG = """[run]
rounds = 8
""" + SMALL_RUN + "block = 2\nlocal_steps = 10\n"
# Begins the program and notes where each rank of a step is and which GPUs it is given.
WRAPPER = """#!/bin/bash
[ -z "${SLURM_STEP_ID:-}" ] || echo "$SLURMD_NODENAME ${CUDA_VISIBLE_DEVICES:--}" >> ranks.log
exec "%s" "$@"
"""
OF_THE_JOB = {"hostnames", "config", "starts/first_round", "starts/ranks"}
OF_THIS_MACHINE = {"wall_seconds", "seconds_cpu", "seconds_train", "seconds_wait", "balance", "bytes_moved",
                   "seconds_aggregate", "seconds_evaluate", "seconds_io"}


class JobCase(unittest.TestCase):
    """A test with a folder that holds run.ini, on a cluster shared by all tests of the script."""

    cluster: Cluster

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fedhpc_jobs_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.end_jobs)
        (self.folder / "run.ini").write_text(CONFIG)
        self.program = self.folder / "fedhpc"
        self.program.write_text(WRAPPER % app_support.options.fedhpc)
        self.program.chmod(0o755)

    def end_jobs(self):
        for job in self.cluster.jobs():
            self.cluster.call("scancel", job)
        self.cluster.wait(lambda: not self.cluster.jobs(), END)

    def sbatch(self, *command, **variables):
        """Submits a job script; the job's id."""
        name, *arguments = command
        options = [word for word in arguments if word.startswith("--") and "." not in word.split("=")[0]]
        rest = [argument for argument in arguments if argument not in options]
        environment = {**self.cluster.environment, "FEDHPC_HOME": str(ROOT), "FEDHPC": str(self.program), **variables}
        done = subprocess.run(["sbatch", "--parsable", *options, ROOT / "jobs" / f"{name}.sbatch", *rest],
                              cwd=self.folder, env=environment, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def tool(self, name, *arguments, code=0):
        """Calls tools/NAME.py; what it prints on stdout, on stderr where the exit code is another than 0."""
        environment = {**self.cluster.environment, "FEDHPC": str(self.program)}
        done = subprocess.run([sys.executable, ROOT / "tools" / f"{name}.py", *arguments], cwd=self.folder,
                              env=environment, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def show(self, job):
        """What scontrol knows of a job or of the first task of an array, {"JobState": "COMPLETED", ...}."""
        words = self.cluster.call("scontrol", "show", "job", "-o", job).splitlines()[0].split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, condition, seconds=END):
        """Waits for a condition; fails with the jobs' output."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"waited in vain\n{self.output()}\n{self.cluster.logs()}")
            time.sleep(0.05)

    def ended(self, job, state="COMPLETED", code="0:0"):
        """Waits until a job, or all tasks of an array, have ended this way; its output."""
        self.wait_for(lambda: not self.cluster.call("squeue", "-h", "-j", job, "-t", "PD,R,CG,CF,RQ", "-o", "%i"))
        for line in self.cluster.call("scontrol", "show", "job", "-o", job).splitlines():
            self.assertIn(f" JobState={state} ", line, self.output())
            self.assertIn(f" ExitCode={code} ", line, self.output())
        return self.output()

    def output(self):
        """What the jobs of this test have printed, without the program's tables of settings and its rounds."""
        said = {path.name: path.read_text(errors="replace") for path in sorted(self.folder.glob("*.out"))}
        return "\n".join(f"{name}:\n" + re.sub(r"^(  |round ).*\n", "", text, flags=re.M)
                         for name, text in said.items())

    def placed(self):
        """(node, GPUs) of each rank that has run, sorted."""
        return sorted(tuple(line.split()) for line in (self.folder / "ranks.log").read_text().splitlines())

    def attributes(self, name):
        with h5py.File(self.folder / name, "r") as file:
            return {name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()}

    def assert_same_run(self, one, other):
        """Two result files hold the same data sets, equal bit for bit but for times of this machine."""
        with h5py.File(self.folder / one, "r") as a, h5py.File(self.folder / other, "r") as b:
            names = [_names(file) for file in (a, b)]
            self.assertEqual(*names)
            self.assertTrue({"rounds/round", "rounds/global_accuracy", "model/global/fc1.weight"} <= set(names[0]))
            for name in names[0]:
                if name.removeprefix("rounds/") in OF_THIS_MACHINE or name in OF_THE_JOB:
                    continue
                self.assertEqual(a[name].dtype, b[name].dtype, name)
                self.assertEqual(np.asarray(a[name]).tobytes(), np.asarray(b[name]).tobytes(), name)


def _names(file):
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return sorted(found)


def main(case, **cluster):
    """Runs the tests of a script on a cluster of their own; skips them, saying why, where there can be none."""
    if missing():
        _skip(missing())
    os.environ.update(environment())
    with Cluster(**cluster) as case.cluster:
        if not case.cluster.has_mpi("pmix"):
            _skip("cannot start MPI programs: srun --mpi=list does not name pmix")
        app_support.main()


def _skip(reason):
    print(f"skipped: SLURM {reason}")
    sys.exit(app_support.SKIPPED)
