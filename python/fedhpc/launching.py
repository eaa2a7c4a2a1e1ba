"""Runs on ranks of their own: mpirun starts them, and they report to the process that asked for them."""

import ctypes
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener

import cloudpickle

from .errors import Error
from .tools.launch import SIGNALS_OF_HYDRA, environment_of_ranks

_ADDRESS, _KEY = "FEDHPC_ASKED_BY", "FEDHPC_ASKED_WITH"
_END_SECONDS = 10.0  # given to mpirun after rank 0 has answered
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NO_RANK = -1  # says who tells that mpirun has ended


def on_ranks(count, verb, arguments, followers=None):
    """Calls `verb` of the engine on `count` ranks and returns what rank 0 returns.

    run and resume: (status, result file, the signal that stopped the run or 0). Errors are raised here.
    """
    program = launcher()
    if program is None:
        raise Error(f"ranks={count} needs mpirun in PATH; install an MPI, or leave ranks out")
    key = secrets.token_bytes(16)
    local = not may_be_remote()
    with Listener(("127.0.0.1" if local else "", 0), backlog=count, authkey=key) as door:
        port = door.address[1]
        host = "127.0.0.1" if local else socket.gethostname()
        # A group of its own: Ctrl-C comes here first, and the ranks get what makes them write a checkpoint.
        process = subprocess.Popen([program, "-n", str(count), sys.executable, "-m", "fedhpc.launching"],
                                   env=_environment(f"{host}:{port}", key), stdin=subprocess.DEVNULL,
                                   start_new_session=True, preexec_fn=_end_with_this_process)
        threading.Thread(target=_tell_the_end, args=(process, port, key), daemon=True).start()
        try:
            ranks = _admit(door, process, count, _work(verb, arguments, followers))
            with _interrupts_to(process) as interrupted:
                return _listen(ranks, process, followers, interrupted)
        except BaseException:
            if followers is not None:
                followers.fail()
            raise
        finally:
            if followers is not None:
                followers.close()
            _end(process)


def launcher():
    """The mpirun in PATH, or None."""
    return shutil.which("mpirun") or shutil.which("mpiexec")


def _end_with_this_process():
    """mpirun, which this becomes, hands SIGUSR1 to its ranks when the process that asked for them dies: they stop."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):  # Linux
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)


def may_be_remote():
    """Whether mpirun may start ranks on other hosts."""
    return any(name in os.environ for name in ("SLURM_JOB_NODELIST", "PBS_NODEFILE", "LSB_HOSTS", "FLUX_URI"))


def _environment(address, key):
    return {**environment_of_ranks(), _ADDRESS: address, _KEY: key.hex(),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _work(verb, arguments, followers):
    from .methods import registered

    methods = {}
    for name, *rest in registered():
        try:
            methods[name] = cloudpickle.dumps((name, *rest))
        except Exception as error:  # a method that this run need not have
            methods[name] = error
    return cloudpickle.dumps({
        "verb": verb, "arguments": arguments, "methods": methods,
        "listeners": None if followers is None else [function is not None for function in followers.functions()],
        "line": f"fedhpc.{verb} on ranks of its own, from {sys.argv[0] or 'a notebook'}"})


def _tell_the_end(process, port, key):
    """mpirun has ended: nobody may wait any more for ranks that have not come."""
    process.wait()
    try:
        with Client(("127.0.0.1", port), authkey=key) as connection:
            connection.send(_NO_RANK)
    except (OSError, EOFError):
        pass  # all have come, and the door is closed


def _admit(door, process, count, work):
    """The connections to all ranks, by rank; each gets its work."""
    ranks = {}
    while len(ranks) < count:
        try:
            connection = door.accept()
            rank = connection.recv()
        except (AuthenticationError, EOFError, OSError):  # a stranger at the door
            continue
        if rank == _NO_RANK:
            raise Error(f"mpirun ended with exit code {process.wait()} before its {count} ranks had started")
        if rank in ranks:
            raise Error(f"mpirun has started {count} processes that know nothing of each other; "
                        "its MPI is not the one that fedhpc was built with")
        connection.send_bytes(work)
        ranks[rank] = connection
    return ranks


@contextmanager
def _interrupts_to(process):
    """Ctrl-C asks the ranks to stop with a checkpoint; again, it raises KeyboardInterrupt. Yields a list of those."""
    asked = []

    def ask(number, frame):
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        process.send_signal(signal.SIGUSR1)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _listen(ranks, process, followers, interrupted):
    """What rank 0 returns; what it tells until then goes to the followers."""
    said = []  # by ranks that end the run
    for rank, connection in ranks.items():
        if rank > 0:
            threading.Thread(target=_hear_last_words, args=(connection, said), daemon=True).start()
    while True:
        try:
            kind, *what = ranks[0].recv()
        except (EOFError, OSError):
            code = process.wait()
            if said and said[0][1] is not None:
                raise cloudpickle.loads(said[0][1]) from None
            number = _signal_in(code, process.args[0])
            how = f"a rank was killed by signal {number}" if number else f"the run ended with exit code {code}"
            raise Error(said[0][0] if said else f"{how}; fedhpc.resume goes on from its last checkpoint, if it has "
                        "written one") from None
        if kind == "aborts":
            said.append(what)
        elif kind == "raised":
            raise cloudpickle.loads(what[0])
        elif kind == "returned":
            if followers is None:
                return what[0]
            status, output, number = what[0]
            followers.end(status)
            return status, output, signal.SIGINT if interrupted else number
        else:
            try:
                getattr(followers, kind)(*what)
            except BaseException:
                try:
                    ranks[0].send(None)
                    process.wait()
                except OSError:
                    pass
                raise
            try:
                ranks[0].send(followers.stop())
            except OSError:
                pass  # the end of the connection says so


def _signal_in(code, launcher):
    """The signal that killed a rank, by the exit code of what has started it; 0 where none did."""
    if code > 128:
        return code - 128
    if code not in SIGNALS_OF_HYDRA:
        return 0
    about = subprocess.run([launcher, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                           check=False)
    return code if "HYDRA" in about.stdout else 0


def _hear_last_words(connection, said):
    try:
        while True:
            kind, *what = connection.recv()
            if kind == "aborts":
                said.append(what)
    except (EOFError, OSError):
        pass


def _end(process):
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def _packed(error):
    """An exception for another process; None where it cannot travel, and its sentence has to."""
    try:
        packed = cloudpickle.dumps(error)
        cloudpickle.loads(packed)  # which calls what the exception takes with what it says
        return packed
    except Exception:
        return None


def _rank_main():
    """A rank: asks for its work and does it."""
    from . import _core
    from .methods import register

    host, _, port = os.environ[_ADDRESS].rpartition(":")
    connection = Client((host, int(port)), authkey=bytes.fromhex(os.environ[_KEY]))
    rank = _core.launched_rank()  # MPI waits for ranks that have not come in yet
    connection.send(rank)
    work = cloudpickle.loads(connection.recv_bytes())
    missing = {}
    for name, method in work["methods"].items():
        try:
            if isinstance(method, Exception):
                raise method
            register(*cloudpickle.loads(method))
        except Exception as error:  # told where the run wants this method
            missing[name] = error

    def last_words(sentence, raised):
        connection.send(("aborts", sentence, None if raised is None else _packed(raised)))

    _core.on_abort(last_words)
    arguments = work["arguments"]
    if work["listeners"] is not None:
        stop = False

        def tell(kind, *what):
            nonlocal stop
            connection.send((kind, *what))
            stop = connection.recv()
            if stop is None:
                raise Error("who follows this run has raised an exception")

        functions = (functools.partial(tell, "begin"), functools.partial(tell, "round"), lambda: stop)
        listens = [rank == 0 and wanted for wanted in work["listeners"]]
        arguments = (*arguments, work["line"],
                     *(function if wanted else None for function, wanted in zip(functions, listens)))
    try:
        answer = ("returned", getattr(_core, work["verb"])(*arguments))
    except BaseException as error:  # the same on every rank
        for name, why in missing.items():
            if f"'algorithm.name' cannot be '{name}'" in str(error):
                error = Error(f"the method {name} cannot go to other processes: {type(why).__name__}: {why}")
        answer = ("raised", _packed(error) or cloudpickle.dumps(Error(f"{type(error).__name__}: {error}")))
    if rank == 0:
        connection.send(answer)
    _core.end()


if __name__ == "__main__":
    _rank_main()
