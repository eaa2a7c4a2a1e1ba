"""Several hosts on this machine for tests: network namespaces with an address, a host name and a
/dev/shm of their own, on one bridge. Nothing is joined to this machine's own network.

    with Hosts(4) as hosts:
        process = hosts.mpirun(program, "--option", cwd=folder)
        hosts.cut("host4")

Needs Linux's util-linux and iproute2, and root rights or a kernel that lets users make namespaces of their
own. All that runs on the hosts lives in one PID namespace: it ends with its first process, the keeper
(keeper.py); the kernel then takes the networks away.
Namespaces have no names, so that tests do not meet.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from keeper import Kept, find, keep  # noqa: E402

PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}
AGENT = Path(__file__).resolve().parent / "rsh_agent.sh"
NETWORK = "10.77.0"

# The launcher starts its daemons by way of the agent, all of them itself.
LAUNCHER_OPTIONS = {
    "plm_rsh_agent": str(AGENT), "plm_rsh_no_tree_spawn": "1",
    "btl": "self,vader,tcp", "btl_tcp_if_include": f"{NETWORK}.0/24", "oob_tcp_if_include": f"{NETWORK}.0/24",
}


def unshare(*options):
    """Command line that begins namespaces with their own processes and mounts, as an ordinary user too."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [find("unshare"), *user, "--net", "--mount", "--pid", "--fork", "--kill-child", *options]


def missing():
    """What keeps hosts from being made here, as text; empty when nothing does."""
    absent = {name: package for name, package in PROGRAMS.items() if find(name) is None}
    if absent:
        return f"not installed: {', '.join(absent)} (packages {', '.join(sorted(set(absent.values())))})"
    tried = subprocess.run(
        unshare("sh", "-c", 'mount -t proc proc /proc && "$0" link add br0 type bridge && '
                '"$0" link add p1 type veth peer name p2', find("ip")), text=True, capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces for this user: {tried.stderr.strip()}"


def child_of(process):
    """The only child of a process, as this machine numbers it; 0 while there is none."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == process:
            return int(entry.parent.name)
    return 0


class Hosts(Kept):
    """Hosts host1, host2, ... with addresses NETWORK.1, NETWORK.2, ...; ports p1, p2, ... of the bridge."""

    def __init__(self, count):
        super().__init__("fedhpc_netns_")
        self.names = [f"host{i + 1}" for i in range(count)]
        self._enter = []

    def __enter__(self):
        self._begin(unshare(sys.executable, __file__, str(self.folder), *self.names),
                    lambda: (self.folder / "ready").exists())
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        self._enter = [find("nsenter"), "--target", str(child_of(self._keeper.pid)), *user, "--net", "--mount",
                       "--pid", "--"]
        return self

    def _switch(self, *command):
        """Runs a command where the bridge is; what it prints."""
        return subprocess.run([*self._enter, *command], text=True, capture_output=True, check=True).stdout

    def start(self, host, *command, cwd, env):
        """Starts a command on a host, its output to pipes."""
        line = f"cd {shlex.quote(str(cwd))} && exec {shlex.join(map(str, command))}"
        return self._start([*self._enter, AGENT, host, line], env={**env, "FEDHPC_HOSTS": str(self.folder)})

    def mpirun(self, *command, cwd, env, settings=None, launcher="mpirun"):
        """Starts a program on all hosts, one rank each; `settings` are further MCA parameters."""
        mca = {**LAUNCHER_OPTIONS, **(settings or {})}
        options = [word for name, value in mca.items() for word in ("--mca", name, value)]
        return self.start(self.names[0], launcher, "--host", ",".join(self.names), "--bind-to", "none", *options,
                          *command, cwd=cwd, env=env)

    def counters(self, header=0):
        """Bytes that every host has sent and received so far: {name: (sent, received)}; without the headers of
        their packets where `header` says how long one is."""
        links = json.loads(self._switch(find("ip"), "-json", "-statistics", "link", "show", "type", "veth"))
        found = {}
        for link in links:  # what a host sends, its port receives
            name = self.names[int(re.fullmatch(r"p(\d+)", link["ifname"])[1]) - 1]
            counts = (link["stats64"][side] for side in ("rx", "tx"))
            found[name] = tuple(count["bytes"] - header * count["packets"] for count in counts)
        return found

    def cut(self, host):
        """Pulls the cable of a host: nobody is told."""
        self._switch(find("ip"), "link", "set", self._port(host), "down")

    def mend(self, host):
        self._switch(find("ip"), "link", "set", self._port(host), "up")

    def _port(self, host):
        return f"p{self.names.index(host) + 1}"

    def retransmitted(self):
        """Segments that every host's TCP has sent a second time: {name: segments}."""
        found = {}
        for name in self.names:
            names, values = [line.split() for line in
                             self._switch("grep", "^Tcp:", f"/proc/{self._first(name)}/net/snmp").splitlines()]
            found[name] = int(values[names.index("RetransSegs")])
        return found

    def processes(self):
        """Command lines of all that runs on the hosts, but for what makes them."""
        keeper = child_of(self._keeper.pid)
        own = {1, *map(self._first, self.names)}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "ns/pid") != os.readlink(f"/proc/{keeper}/ns/pid"):
                    continue
                status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
                if int(status["NSpid"].split()[-1]) not in own:
                    found.append((folder / "cmdline").read_text().replace("\0", " ").strip())
            except OSError:
                pass  # gone meanwhile, or somebody else's
        return found

    def _first(self, host):
        """A host's first process, as the hosts' PID namespace numbers it."""
        return int((self.folder / f"{host}.pid").read_text())


def run(*command):
    subprocess.run([str(part) for part in command], check=True)


def make_hosts(folder, names):
    """In the first process of the hosts' PID namespace."""
    run("mount", "-t", "proc", "proc", "/proc")
    ip = find("ip")
    run(ip, "link", "set", "lo", "up")
    run(ip, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
    run(ip, "link", "set", "br0", "up")
    lines = [f"{NETWORK}.{i + 1} {name}\n" for i, name in enumerate(names)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    for i, name in enumerate(names):
        (folder / name).mkdir()
        first = subprocess.Popen(
            [find("unshare"), "--net", "--uts", "--mount", "sh", "-ec",
             'hostname "$0"; mount -t tmpfs tmpfs /dev/shm; mount --bind "$1" /etc/hosts; touch "$2"; '
             "exec sleep infinity", name, folder / "hosts", folder / name / "up"])
        while not (folder / name / "up").exists():
            if first.poll() is not None:
                sys.exit(f"netns_support: {name} did not come up")
            time.sleep(0.005)
        run(ip, "link", "add", f"p{i + 1}", "type", "veth", "peer", "name", "eth0", "netns", first.pid)
        run(ip, "link", "set", f"p{i + 1}", "master", "br0", "up")
        (folder / f"{name}.pid").write_text(str(first.pid))
        inside = [find("nsenter"), "--target", first.pid, "--net", ip]
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "address", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans end without leaving a trace
    (folder / "ready").touch()


if __name__ == "__main__":
    hosts_folder = Path(sys.argv[1])
    keep(hosts_folder, lambda: make_hosts(hosts_folder, sys.argv[2:]),
         lambda: os.kill(-1, signal.SIGKILL))  # everybody else in this namespace
