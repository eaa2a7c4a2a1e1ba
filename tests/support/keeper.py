"""What a test sets up outside of its own process, such as daemons, and has to be gone after it.

A keeper, which is a process of its own, makes it and takes it away again when the test's process ends, however that
comes about: at the end of the keeper's input.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def find(program):
    """Daemons and administrators' programs lie in folders that are not on everybody's path."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class Kept:
    """What a keeper has made, with a temporary folder for it; the test's side. It may be stopped twice."""

    def __init__(self, prefix):
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._keeper = None
        self._started = []

    def _begin(self, command, ready, **how):
        """Starts the keeper and waits until `ready()`."""
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **how)
        try:
            self.wait(ready)
        except BaseException:
            self.stop()
            raise

    def _start(self, command, **how):
        """Starts a command that ends with the keeper at the latest, its output to pipes."""
        self._started.append(subprocess.Popen([str(part) for part in command], text=True, start_new_session=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how))
        return self._started[-1]

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self._keeper is None:
            return
        for process in self._started:
            if process.poll() is None:
                process.kill()
        self._keeper.stdin.close()
        self._keeper.wait()
        self._keeper = None
        for process in self._started:
            process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)  # where the keeper itself has failed

    def wait(self, condition, seconds=60.0):
        """Waits until a condition holds; an AssertionError with what the logs say when it does not."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self._keeper.poll() is not None:
                raise AssertionError(f"waited in vain for {type(self).__name__}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        """The ends of the logs in the folder."""
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}"
                         for path in sorted(self.folder.glob("*.log")))


def keep(folder, make, end):
    """The keeper's side: makes, waits for the end of its input, ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the test's
    make()
    sys.stdin.read()
    end()
    shutil.rmtree(folder, ignore_errors=True)
