"""What a command costs: CPU seconds of all processes that it starts, seconds of the wall and peak memory."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
INTERVAL = 0.1  # seconds between two looks at the memory
PATIENCE = 20  # seconds for what a command leaves behind to end


@dataclass
class Cost:
    cpu: float  #: seconds of all processes, user and system
    wall: float  #: seconds until the command ended
    memory: float  #: MB; of several processes the sum of their proportional shares
    output: str
    error: str  #: what the command ended with, empty where it succeeded


def descendants(root):
    """The process numbers below `root`."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found = []
    wanted = [root]
    while wanted:
        below = children.get(wanted.pop(), [])
        found += below
        wanted += below
    return found


def kilobytes(process, file, field):
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/{file}").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    return 0


class Memory(threading.Thread):
    """Looks at the memory of all processes below this one, again and again."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.ended = 0, threading.Event()

    def run(self):
        while not self.ended.wait(INTERVAL):
            below = descendants(os.getpid())
            alone = len(below) == 1  # the kernel keeps the peak of a process, not that of several
            now = [kilobytes(one, *(("status", "VmHWM:") if alone else ("smaps_rollup", "Pss:"))) for one in below]
            self.peak = max(self.peak, sum(now))


def reaped():
    """CPU seconds of whatever is left below this process, when it has ended; what does not end is killed."""
    seconds, begin = 0.0, time.monotonic()
    while True:
        try:
            process, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return seconds
        if process:
            seconds += usage.ru_utime + usage.ru_stime
            continue
        if time.monotonic() - begin > PATIENCE:
            for one in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        time.sleep(0.05)


def cost(command, folder, core, **environment):
    """Runs a command on one core, with one thread a library, and waits for all that it has started.

    Orphans become children of this process, so that their CPU time is counted too. Linux only.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    memory = Memory()
    with open(folder / "output.txt", "w+") as output, open(folder / "errors.txt", "w+") as errors:
        begin = time.monotonic()
        program = subprocess.Popen([*map(str, command)], stdout=output, stderr=errors, cwd=folder,
                                   env=os.environ | threads | environment,
                                   preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        memory.start()
        _, status, usage = os.wait4(program.pid, 0)
        wall = time.monotonic() - begin
        program.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + reaped()
        memory.ended.set()
        memory.join()
        output.seek(0)
        errors.seek(0)
        lines = errors.read().strip().splitlines()
        error = f"exit code {program.returncode}: {lines[-1] if lines else ''}" if program.returncode else ""
        return Cost(cpu, wall, memory.peak / 1000, output.read(), error)
