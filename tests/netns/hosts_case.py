"""What the tests on several hosts share. Every script here runs as

    python3 X_test.py --fedhpc build/release/fedhpc [--wire-traffic PROGRAM] [unittest arguments]
"""

import argparse
import sys
import time
from pathlib import Path

from netns_support import Hosts, missing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "app"))
import app_support  # noqa: E402

ENDING = 30.0  # s, for the last process of a run to end
options = argparse.Namespace(wire_traffic="wire_traffic")


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--wire-traffic", default=options.wire_traffic)
    parser.add_argument("--mpiexec", default=app_support.options.mpiexec)
    _, rest = parser.parse_known_args(namespace=options)
    options.wire_traffic = str(Path(options.wire_traffic).resolve())
    app_support.options.mpiexec = options.mpiexec
    reason = missing() or ("" if app_support.open_mpi().startswith("4.") else "hosts are named as Open MPI 4 wants it")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(app_support.SKIPPED)
    sys.argv[1:] = rest
    app_support.main()


class HostsCase(app_support.AppCase):
    """Tests on four hosts, on each of which one rank runs."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hosts = Hosts(4)
        cls.enterClassContext(cls.hosts)

    def start(self, *command, settings=None):
        """Starts a program on all hosts in the test's folder."""
        process = self.hosts.mpirun(*command, cwd=self.folder, env=app_support.environment(), settings=settings,
                                    launcher=app_support.options.mpiexec)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def run_on_hosts(self, *command, settings=None):
        """Runs a program on all hosts to its good end; what it prints."""
        done = app_support.finish(self.start(*command, settings=settings))
        self.assertEqual(done.returncode, 0, f"{done.args}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def all_gone(self):
        """Nothing of a run is left on any host, or will soon be."""
        self._none(self.hosts.processes)

    def no_ranks(self):
        """No rank is left on any host."""
        program = app_support.options.fedhpc
        self._none(lambda: [command for command in self.hosts.processes() if command.startswith(program)])

    def _none(self, processes):
        deadline = time.monotonic() + ENDING
        while left := processes():
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.05)
