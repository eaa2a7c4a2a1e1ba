"""Starts one fedhpc run under mpirun, watches it, and stops it so that it can be resumed."""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

INTERRUPTED = 75  # exit code of a run that wrote a checkpoint and can be resumed
REFUSED = 2  # of one that does not start: its configuration, data or checkpoint cannot be used
ERROR = "fedhpc: error:"  # what the program's own words on a failure begin with
SIGNAL = re.compile(r"\bsignal:? \d", re.IGNORECASE)  # in mpirun's "exited on signal 9 (Killed)" or "Killed (signal 9)"
# MPICH's mpiexec, hydra, ends with the number of the signal that killed a rank, where others add 128.
SIGNALS_OF_HYDRA = (signal.SIGKILL, signal.SIGUSR1, signal.SIGTERM)
CHECKPOINT_SECONDS = 60.0  # given to finish a round and write a checkpoint
OWN_GRACE_SECONDS = 20.0  # of these, run.grace_seconds where nothing sets it
TERMINATE_SECONDS = 10.0  # given to mpirun to end its ranks
# As tools/mpi_environment.sh. Variables, as each MPI's mpirun has options of its own. Slots are counted in physical
# cores; binding would put two programs on the same ones.
_SHARED_CORES = {
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none"}


@dataclass(frozen=True)
class Outcome:
    code: int  # exit code, 128 + n after signal n
    seconds: float
    stopped: bool  # asked to stop, by the deadline or by a signal to this program
    message: str  # the program's own error message, "" after success


def cores():
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def environment_of_ranks(given=os.environ):
    """The environment `given` for ranks of one thread each, which may share cores and be started by root."""
    environment = {**_SHARED_CORES, **given, "OMP_NUM_THREADS": "1"}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        environment.update({f"{launcher}_ALLOW_RUN_AS_ROOT{confirm}": "1"
                            for launcher in ("OMPI", "PRTE") for confirm in ("", "_CONFIRM")})
    return environment


def mpi_command(program, ranks, arguments):
    """The command line and environment for `ranks` ranks of one thread each."""
    return ["mpirun", "-n", str(ranks), str(program), *arguments], environment_of_ranks()


def patience_of(config):
    """The seconds that a run of this configuration has from a signal to its end: its own, and those of a checkpoint."""
    try:
        own = float(config.get("run.grace_seconds", OWN_GRACE_SECONDS))
    except (TypeError, ValueError):  # the program refuses it
        own = OWN_GRACE_SECONDS
    return max(CHECKPOINT_SECONDS, own + CHECKPOINT_SECONDS - OWN_GRACE_SECONDS)


def run(command, environment, log, deadline, stop_asked, patience=CHECKPOINT_SECONDS):
    """Runs `command` with its output in the file `log` until it ends, `deadline` [time.monotonic()] passes
    or stop_asked() is true. Then the ranks get SIGUSR1, `patience` [s] for a checkpoint, and SIGTERM in the end."""
    start = time.monotonic()
    stopped = False
    with open(log, "wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while process.poll() is None:
                if time.monotonic() >= deadline or stop_asked():
                    stopped = True
                    _stop(process, patience)
                    break
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                _end(process)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if code in SIGNALS_OF_HYDRA:
        code += 128
    return Outcome(code, time.monotonic() - start, stopped, error_message(log, code) if code else "")


def _stop(process, patience):
    process.send_signal(signal.SIGUSR1)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        _end(process)


def _end(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(TERMINATE_SECONDS)
            return
        except subprocess.TimeoutExpired:
            continue


def lines_of(text):
    """The lines of what a program under mpirun says: Open MPI 5 writes a zero byte ahead of some."""
    return [line.strip("\0").strip() for line in text.splitlines()]


def own_error(text):
    """The first error that the program itself names in its output; "" without one."""
    found = next((line for line in lines_of(text) if line.startswith(ERROR)), "")
    return found.removeprefix(ERROR).strip()


def error_message(log, code):
    """The program's own words, else mpirun's on the signal that ended a rank, else the signal of the exit code,
    else the last line of all but warnings."""
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    if own := own_error(text):
        return own
    lines = [line for line in lines_of(text) if not line.startswith("fedhpc: warning:")]
    spoken = [line for line in lines if SIGNAL.search(line)]
    if not spoken and 0 < code - 128 < signal.NSIG:  # without mpirun nobody names it
        spoken = [f"killed by {_name_of_signal(code - 128)}"]
    rule = next((i for i, line in enumerate(lines) if line.startswith("-----")), len(lines))
    spoken = (spoken or [line for line in lines[:rule] if line]
              or [line for line in lines[rule:] if line.strip("-")])
    return (spoken[-1] if spoken else "no output") + f" (exit code {code})"


def _name_of_signal(number):
    """As in "signal 9, SIGKILL"; those for real time have no name."""
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
