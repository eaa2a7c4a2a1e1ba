"""The folder in which reproduce.py works on a paper: who is at work there, on what, and how to end it.

.lock            held by whoever works: alone for all rows, shared by tasks of a SLURM array
reproduce.pid    process id of the one that works for all rows, removed at its end
reproduce.json   what it does and has done, see Notice
reproduce.log    output of calls in the background, one behind the other
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from .paper_table import PaperError
from .reproduction import is_written

TAKEN = "another reproduce.py is at work there; --status tells what it does, --stop ends it"
LOCK_SECONDS = 1.0  # a look at the lock by holder() may be in the way for a moment
START_SECONDS = 60.0  # a call in the background has to be at work, or at its end
STOP_SECONDS = 90.0  # --stop waits: a run has 60 s for its checkpoint


def _take(path, mode):
    """The open lock file `path`, or None where somebody else holds it."""
    file = open(path, "a", encoding="utf-8")
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:
        file.close()
        raise PaperError(f"{path}: cannot be locked ({error.strerror}); use a file system with locks") from None
    return file


@contextlib.contextmanager
def at_work(folder):
    """Holds the folder for this process alone, with its id in reproduce.pid."""
    with hold(folder / ".lock", folder):
        pid = folder / "reproduce.pid"
        pid.write_text(f"{os.getpid()}\n", encoding="utf-8")
        try:
            yield
        finally:
            pid.unlink(missing_ok=True)


@contextlib.contextmanager
def task_at_work(folder, name):
    """Holds one run of the folder; other runs may have tasks of their own."""
    with hold(folder / ".lock", folder, fcntl.LOCK_SH), hold(folder / f".{name}.lock", name):
        yield


@contextlib.contextmanager
def hold(path, what, mode=fcntl.LOCK_EX, tool=None):
    """Holds the lock file `path`; `what` and the `tool` that is at work there are named if it is taken."""
    deadline = time.monotonic() + LOCK_SECONDS
    while (file := _take(path, mode)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if file is None:
        raise PaperError(f"{what}: another {tool} is at work there" if tool else f"{what}: {TAKEN}")
    with file:
        yield


def holder(folder):
    """Who works in the folder: "alone" (all rows), "tasks" (of a SLURM array) or "" (nobody)."""
    if not (folder / ".lock").exists():
        return ""
    for mode, who in ((fcntl.LOCK_EX, ""), (fcntl.LOCK_SH, "tasks")):
        file = _take(folder / ".lock", mode)
        if file:
            file.close()
            return who
    return "alone"


def process_id(folder):
    """The process that works for all rows; None without one."""
    try:
        return int((folder / "reproduce.pid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Notice:
    """reproduce.json: host, start, command, its seeds, the run at hand (job, number, total), ended and outcome."""

    def __init__(self, folder, command, seeds):
        self.path = folder / "reproduce.json"
        self.values = {"host": socket.gethostname(), "started": now(), "command": command, "seeds": seeds}
        self.note()

    def note(self, **values):
        """Adds `values`; a reader sees the old file or the new one."""
        self.values.update(values)
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps(self.values, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)

    @staticmethod
    def read(folder):
        """The last notice in the folder; {} without one."""
        try:
            return json.loads((folder / "reproduce.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}


def now():
    """The time in UTC, as in 2026-01-31T12:00:00Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def start_in_background(folder, script, arguments):
    """Starts `script` with `arguments` in a session of its own and returns a sentence on it.

    Its output is added to reproduce.log. PaperError if somebody works there or it ends at once in failure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if holder(folder):
        raise PaperError(f"{folder}: {TAKEN}")
    path = folder / "reproduce.log"
    with open(path, "ab") as log:
        log.write(f"\n{now()} {' '.join(arguments)}\n".encode())
        log.flush()
        before = log.tell()
        # Nothing of the terminal stays: closing it sends no signal to a session of its own.
        process = subprocess.Popen([sys.executable, str(script), *arguments], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and process_id(folder) != process.pid and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.returncode:
        said = path.read_bytes()[before:].decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise PaperError(f"{said[-1].removeprefix('reproduce: ')} (exit code {process.returncode}, {path})")
    if process.returncode == 0:
        return f"nothing was left to do; {path}"
    return f"process {process.pid} works in the background; {path}; --status tells what it does, --stop ends it"


def stop(folder):
    """Asks the one that works in the folder to write a checkpoint and end; (sentence, whether it has ended)."""
    who = holder(folder)
    if who != "alone":
        return ("tasks of SLURM are at work; scancel ends them", False) if who else ("nobody is at work", True)
    pid, notice = process_id(folder), Notice.read(folder)
    if pid is None:
        return "somebody is just starting or ending; ask again", False
    if notice.get("host") != socket.gethostname():
        raise PaperError(f"{folder}: process {pid} works on {notice.get('host')}; use --stop there")
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while process_id(folder) == pid and time.monotonic() < deadline:
        time.sleep(0.1)
    if process_id(folder) == pid:
        return f"process {pid} was asked to end and has not ended yet", False
    return f"process {pid} has ended: {Notice.read(folder).get('outcome', 'no outcome')}", True


def _left_at_work(folder, notice):
    """What the next call does after one that was killed."""
    if "job" in notice and is_written(folder / f"{notice['job']}.h5"):
        return f"its run {notice['job']} is still at work, the next call waits for it"
    return "the next call goes on"


def lines_of_status(folder, rounds_of):
    """What is going on in the folder. rounds_of(run name) gives "round 7 of 20" or "" for a run."""
    notice, who = Notice.read(folder), holder(folder)
    if who == "tasks":
        return ["tasks of SLURM are at work; squeue shows them"]
    if not notice:
        tasks = len(list(folder.glob(".?*.lock")))
        return [f"nobody is at work; tasks of SLURM have had {tasks} runs in hand" if tasks else "nothing was ever run here"]
    command = f"command: {notice['command']}"
    if not who:
        end = f"ended {notice['ended']}: {notice['outcome']}" if "ended" in notice else \
            f"ended without a word (killed?); {_left_at_work(folder, notice)}"
        return [f"nobody is at work; last started {notice['started']}, {end}", command]
    lines = [f"at work since {notice['started']}, process {process_id(folder)} on {notice['host']}", command]
    if "job" in notice:
        far = rounds_of(notice["job"])
        lines.append(f"run {notice['number']} of {notice['total']}: {notice['job']} {far}".rstrip())
    return lines
