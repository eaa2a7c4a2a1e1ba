"""What the tests of the program share: starting it as a user does, and small data in MNIST's layout.

Every test script here runs as

    python3 X_test.py --fedhpc build/release/fedhpc [--mpiexec mpirun] [unittest arguments]
"""

import argparse
import atexit
import contextlib
import functools
import gzip
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(PROJECT / "python"), str(PROJECT / "tests" / "support")]
from apart import apart  # noqa: E402, F401: for the tests
from fedhpc.tools.campaign_runs import ranks_of  # noqa: E402, F401: for the tests
from fedhpc.tools.launch import environment_of_ranks  # noqa: E402

SUITE = os.environ.get("FEDHPC_TESTS", "every")  # short, all or every, as tools/test.sh has it
SHORT = SUITE == "short"
SKIPPED = 77  # exit code of a script whose tests are all left out
HANG = 60.0  # s, after which a command is given up as hung
options = argparse.Namespace(fedhpc="fedhpc", mpiexec="mpirun")
# The end of a configuration whose rounds take milliseconds; more keys of [train] may follow.
SMALL_RUN = """[data]
name = synthetic
clients = 6
samples_per_client = 40
[model]
name = dnn
hidden = 8
[train]
batch_size = 4
"""


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--fedhpc", required=True)
    parser.add_argument("--mpiexec", default="mpirun")
    _, rest = parser.parse_known_args(namespace=options)
    options.fedhpc = str(Path(options.fedhpc).resolve())
    done = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    if not done.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if 0 < done.testsRun == len(done.skipped) else 0)


def command(arguments, ranks=0):
    """The program's command line; with ranks above 0 under the launcher."""
    launcher = [options.mpiexec, "-n", str(ranks)] if ranks else []
    return [*launcher, options.fedhpc, *map(str, arguments)]


def environment(**changes):
    """The environment of a command; a change to None removes a variable."""
    merged = {**environment_of_ranks(), "CUDA_VISIBLE_DEVICES": None, **changes}  # a job's GPUs make a note
    return {name: value for name, value in merged.items() if value is not None}


@functools.cache
def open_mpi():
    """The version of the launcher's Open MPI as text; empty where it is another MPI's."""
    said = subprocess.run([options.mpiexec, "--version"], capture_output=True, text=True, check=True, env=environment())
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (.*)", said.stdout)  # mpirun's and, in version 4, mpiexec's name
    return found[1] if found else ""


def killed_codes():
    """What the launcher may end with where a rank was killed: Open MPI's says a shell's code, MPICH's the signal, and
    MPICH 4.2's now and then 0."""
    return {128 + signal.SIGKILL} if open_mpi() else {int(signal.SIGKILL), 0}


def start(*arguments, ranks=0, cwd=None, env=None, **popen):
    return subprocess.Popen(command(arguments, ranks), cwd=cwd, text=True, start_new_session=True,
                            env=environment(**(env or {})),
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen})


def finish(process):
    """Waits for a started command; kills it and fails the test when it hangs."""
    try:
        out, err = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"hung for {HANG} s: {process.args}\n{out}\n{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class ProgramServer:
    """Starts of the program by program_server.cpp, which has loaded it: a hundredth of a second instead of a third."""

    def __init__(self, path):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen([path, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment())
        theirs.close()
        self.socket = ours
        atexit.register(self.close)

    def close(self):
        self.socket.close()
        self.process.wait()

    def _answer(self):
        number = self.socket.recv(4)
        if len(number) < 4:
            raise AssertionError(f"the program server has ended: {self.process.wait()}")
        return int.from_bytes(number, sys.byteorder)

    def run(self, arguments, cwd, variables):
        words = [str(cwd or os.getcwd()), str(len(arguments)), *arguments,
                 *(f"{name}={value}" for name, value in variables.items())]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            socket.send_fds(self.socket, [b"".join(os.fsencode(word) + b"\0" for word in words)],
                            [sys.stdin.fileno(), out.fileno(), err.fileno()])
            self.socket.settimeout(HANG)
            child = self._answer()
            try:
                status = self._answer()
            except TimeoutError:
                os.killpg(child, signal.SIGKILL)
                self._answer()
                raise AssertionError(f"hung for {HANG} s: {arguments}") from None
            out.seek(0), err.seek(0)
            return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status),
                                               out.read(), err.read())


@functools.cache
def program_server():
    """The server of whole suites; None where each program is started as users start it."""
    path = os.environ.get("FEDHPC_PROGRAM_SERVER")
    return ProgramServer(path) if path and SUITE != "every" else None


def fedhpc(*arguments, ranks=0, cwd=None, env=None, **popen):
    """Runs the program to its end: exit code, stdout, stderr."""
    # What the loader and libraries read from the environment is read when the program is loaded.
    late = all(name.startswith("FEDHPC_") for name in env or {})
    if ranks == 0 and not popen and late and program_server():
        return program_server().run(command(arguments), cwd, environment(**(env or {})))
    return finish(start(*arguments, ranks=ranks, cwd=cwd, env=env, **popen))


def is_gone(pid):
    """Whether a process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def rounds_in(path):
    """Rounds recorded in a result file that may be growing; 0 while it is not there."""
    try:
        with h5py.File(path, "r", libver="latest", swmr=True) as file:
            return len(file["rounds/round"])
    except OSError:
        return 0


def contents(path):
    """What equal runs have in common, by name: data sets' shapes, types and bytes, without what is the machine's."""
    of_machine = ("wall_", "seconds_", "hostnames", "balance", "bytes_moved", "first_round", "ranks")
    held = {}
    with h5py.File(path) as file:
        def keep(name, item):
            last = name.split("/")[-1]
            if isinstance(item, h5py.Dataset) and not last.startswith(of_machine):
                held[name] = (item.shape, item.dtype, item[...].tobytes())
        file.visititems(keep)
    return held


SEAL = 512  # bytes


def crc64(data):
    """CRC-64/XZ."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0xC96C5795D7870F42 if byte & 1 else 0)
        table.append(byte)
    digest = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        digest = table[(digest ^ byte) & 255] ^ (digest >> 8)
    return digest ^ 0xFFFFFFFFFFFFFFFF


def seal(path):
    """Makes a checkpoint whole again that was changed on purpose."""
    data = Path(path).read_bytes()[SEAL:]
    text = f"fedhpc checkpoint: {len(data)} bytes, CRC-64/XZ {crc64(data):016x}\n".encode()
    Path(path).write_bytes(text.ljust(SEAL, b"\0") + data)


@contextlib.contextmanager
def edited(path):
    """A checkpoint to be changed on purpose."""
    with h5py.File(path, "r+") as file:
        yield file
    seal(path)


def wait_until(process, condition, seconds=30.0):
    """Waits for a condition while a command runs; fails the test when it ends or nothing happens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return
        time.sleep(0.01)
    if process.poll() is None:
        process.kill()
    raise AssertionError(f"waited in vain: {finish(process)}")


def write_idx(path, values):
    """An unsigned-byte idx file; packed when its name ends in .gz."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    data = header + values.astype(np.uint8).tobytes()
    Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def read_idx(path):
    raw = Path(path).read_bytes()
    data = gzip.decompress(raw) if str(path).endswith(".gz") else raw
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4).astype(int)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


IDX_FILES = [f"{half}-{kind}-ubyte.gz" for half in ("train", "t10k")
             for kind in ("images-idx3", "labels-idx1")]


def write_mnist(folder, train=230, test=50, side=(6, 5), seed=7):
    """Random images whose mean grey depends on the label, in MNIST's four files."""
    rng = np.random.default_rng(seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for half, count in (("train", train), ("t10k", test)):
        labels = rng.permutation(np.arange(count) % 10)
        pattern = np.random.default_rng(0).integers(0, 160, (10, *side))
        images = pattern[labels] + rng.integers(0, 96, (count, *side))
        write_idx(folder / f"{half}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{half}-labels-idx1-ubyte.gz", labels)
    return folder


class AppCase(unittest.TestCase):
    """A test with a temporary folder and a folder of MNIST-like data."""

    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="fedhpc_app_"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.data = write_mnist(cls.shared / "data")

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(dir=self.shared))

    def ini(self, text, name="config.ini"):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_ok(self, *arguments, **how):
        done = fedhpc(*arguments, cwd=how.pop("cwd", self.folder), **how)
        self.assertEqual(done.returncode, 0, f"{done.args}\n{done.stdout}\n{done.stderr}")
        return done


class SmallDisk:
    """Beside AppCase: a file system of three megabytes, `disk`."""

    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", self.disk], capture_output=True)
        if made.returncode:
            self.skipTest("needs the right to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def fill(self, leave=0):
        """Leaves about so many bytes free."""
        info = os.statvfs(self.disk)
        with open(self.disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            ballast.write(bytes(max(0, info.f_bavail * info.f_frsize - leave)))
            while not leave:  # what a run has freed or taken meanwhile
                ballast.write(bytes(4096))
