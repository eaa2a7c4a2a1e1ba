"""How a campaign starts the program, what its keys are, and what a result file holds."""

import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import h5py

from .launch import environment_of_ranks
from .result_file import is_of_the_machine

LIMIT = 30.0  # s, after which a command hangs


class Failure(Exception):
    """What a case must not do."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int  # below 0: killed by that signal
    out: str
    err: str

    def __str__(self):
        return f"exit code {self.code}: {self.err.strip()[-600:] or self.out.strip()[-200:]}"


class Runs:
    """Starts the program of one build."""

    def __init__(self, program, mpiexec):
        self.program, self.mpiexec = program, mpiexec
        self._keys, self._lock = None, threading.Lock()

    def start(self, folder, *arguments, ranks=0):
        launcher = [self.mpiexec, "-n", str(ranks)] if ranks else []
        return subprocess.Popen([*launcher, self.program, *map(str, arguments)], cwd=folder, text=True, errors="replace",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                env=environment_of_ranks())

    def finish(self, process, limit=LIMIT):
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise Failure(f"hung for {limit:.0f} s: {' '.join(map(str, process.args))}: {err.strip()[-300:]}") from None
        return Done(process.returncode, out, err)

    def run(self, folder, *arguments, ranks=0, allowed=(0,)):
        """A command that has to end with one of the codes `allowed`; a refusal, 2, says why in one line."""
        done = self.finish(self.start(folder, *arguments, ranks=ranks))
        if done.code not in allowed:
            raise Failure(f"{' '.join(map(str, arguments))} on {max(ranks, 1)} ranks: {done}")
        refusals = [line for line in done.err.splitlines() if line.startswith("fedhpc: error: ")]
        if done.code == 2 and len(refusals) != 1:
            raise Failure(f"{' '.join(map(str, arguments))}: refused in {len(refusals)} lines: {done.err[-400:]}")
        return done

    def keys(self):
        """All keys: name -> (what is allowed, methods that have it or [])."""
        with self._lock:
            if self._keys is None:
                self._keys = {}
                text = subprocess.run([self.program, "help", "keys"], capture_output=True, text=True, check=True,
                                      env=environment_of_ranks()).stdout
                for name, allowed, rest in re.findall(
                        r"^(\w+\.\w+)\n.*\n  allowed: (.*)\n((?:  .*\n)*)", text, re.MULTILINE):
                    methods = re.search(r"  methods: (.*)", rest)
                    self._keys.setdefault(name, []).append((allowed, methods[1].split(", ") if methods else []))
            return self._keys


# What numbers a rank: Open MPI's mpirun, and MPICH's.
_RANK = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)")


def ranks_of(process):
    """Process ids of a started command's ranks, in their order."""
    parents, found = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if (folder / "comm").read_text().strip() == "fedhpc":
                rank = _RANK.search((folder / "environ").read_bytes())
                found[int(folder.name)] = int(rank[1]) if rank else 0
        except (OSError, IndexError):
            pass  # gone meanwhile

    def belongs(pid):  # mpirun may have servers between itself and its ranks
        return pid == process.pid or pid in parents and belongs(parents[pid])

    return sorted(filter(belongs, found), key=found.get)


def contents(path):
    """What equal runs have in common, by name: shapes, types and bytes of data sets, without the machine's."""
    held = {}
    try:
        with h5py.File(path) as file:
            def keep(name, item):
                last = name.rsplit("/", 1)[-1]
                if isinstance(item, h5py.Dataset) and not is_of_the_machine(last):
                    held[name] = (item.shape, item.dtype.str, item[...].tobytes())
            file.visititems(keep)
            held["status"] = file.attrs["status"]
    except (OSError, KeyError, RuntimeError) as error:
        raise Failure(f"{path.name} cannot be read: {error}") from None
    return held


def expect_equal(found, expected, what):
    names = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
    if names:
        raise Failure(f"{what}: other bits in {', '.join(names[:6])}")
