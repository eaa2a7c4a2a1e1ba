"""The hosts themselves: what is each one's own, what a pulled cable does, and that nothing outlives a test."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from hosts_case import app_support, main
from netns_support import Hosts

# Makes hosts, starts a command on one of them that would run for long, says so and waits.
VICTIM = """
import os, sys, time
from netns_support import Hosts
with Hosts(2) as hosts:
    hosts.start("host2", "sleep", sys.argv[1], cwd="/", env=dict(os.environ))
    while not any(command.startswith("sleep ") for command in hosts.processes()):
        time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(600)
"""


def sleepers(seconds):
    """Processes of all namespaces that sleep so long."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\0" + seconds.encode() + b"\0":
                found.append(int(entry.parent.name))
        except OSError:
            pass  # gone meanwhile
    return found


class HostsThemselves(unittest.TestCase):
    def on(self, hosts, host, command):
        """Runs a shell command on a host: exit code and output."""
        process = hosts.start(host, "sh", "-c", command, cwd="/", env=app_support.environment())
        out, err = process.communicate(timeout=60)
        return process.returncode, out + err

    def test_every_host_has_a_name_and_an_address_of_its_own(self):
        with Hosts(3) as hosts:
            for i, name in enumerate(hosts.names):
                self.assertEqual(self.on(hosts, name, "hostname"), (0, f"{name}\n"))
                _, shown = self.on(hosts, name, "cat /proc/net/fib_trie")
                self.assertIn(f"10.77.0.{i + 1}\n", shown)
            self.on(hosts, "host1", "echo here >/dev/shm/file")
            self.assertEqual(self.on(hosts, "host1", "cat /dev/shm/file"), (0, "here\n"))
            self.assertNotEqual(self.on(hosts, "host2", "cat /dev/shm/file")[0], 0)
            self.assertEqual(hosts.processes(), [])

    def reaches(self, hosts, name):
        """Whether host1 gets an answer from a host, and be it that nobody listens there."""
        _, out = self.on(hosts, "host1", f"timeout 1 bash -c 'echo >/dev/tcp/{name}/9'")
        return "refused" in out

    def test_a_cable_can_be_pulled_and_put_back(self):
        with Hosts(2) as hosts:
            before = hosts.counters()
            self.assertTrue(self.reaches(hosts, "host2"))
            after = hosts.counters()
            self.assertGreater(after["host1"][0], before["host1"][0])
            self.assertGreater(after["host2"][1], before["host2"][1])
            hosts.cut("host2")
            self.assertFalse(self.reaches(hosts, "host2"))
            hosts.mend("host2")
            deadline = time.monotonic() + 30
            while not self.reaches(hosts, "host2"):
                self.assertLess(time.monotonic(), deadline)

    def test_hosts_of_two_tests_do_not_meet(self):
        with Hosts(2) as one, Hosts(2) as other:
            other.cut("host2")
            self.assertTrue(self.reaches(one, "host2"))
            self.assertFalse(self.reaches(other, "host2"))

    def test_nothing_outlives_the_test(self):
        seconds = str(1_000_000 + os.getpid())
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name), tempfile.TemporaryDirectory() as folder:
                victim = subprocess.Popen([sys.executable, "-c", VICTIM, seconds], text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          cwd=Path(__file__).resolve().parent, env={**os.environ, "TMPDIR": folder})
                with victim:
                    try:
                        self.assertTrue(victim.stdout.readline())
                        self.assertEqual(len(sleepers(seconds)), 1)
                        victim.send_signal(number)
                        deadline = time.monotonic() + 10
                        while sleepers(seconds) or list(Path(folder).iterdir()):
                            self.assertLess(time.monotonic(), deadline)
                            time.sleep(0.02)
                    finally:
                        victim.kill()


if __name__ == "__main__":
    main()
