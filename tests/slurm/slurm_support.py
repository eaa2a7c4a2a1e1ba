"""A SLURM cluster for tests: its daemons on this machine, in a temporary folder, on free ports.

    with Cluster(nodes=2) as cluster:
        step = cluster.start("srun", "--mpi=pmix", "-n", "2", program)
        cluster.call("scancel", "--signal=TERM", job)

Needs Debian's slurm-wlm and munge, no root rights and nothing below /etc. The daemons and all that runs
in jobs are descendants of a keeper process (keeper.py).
"""

import contextlib
import ctypes
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from keeper import Kept, find, keep  # noqa: E402

PROGRAMS = ["slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue", "munged"]
END_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
START = 60.0  # s, for the daemons to come up and for jobs to end
KILL_WAIT = 5  # s between SIGTERM and SIGKILL of a job that is cancelled

# Several nodes with one host name tell each other apart by port and by %n in paths.
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=1,bf_interval=1,sched_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=20
InactiveLimit=0
KillWait={kill_wait}
MinJobAge=300
BatchStartTimeout=10
MessageTimeout=10
JobRequeue=1
{settings}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP{main}
"""
# Jobs of the partition `high` take the nodes of those of `main`, which are requeued: they get what --signal names
# at once, SIGTERM at once as well where they have no such signal, and their end when GraceTime has passed.
PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
PREEMPTED = " PriorityTier=1 PreemptMode=REQUEUE GraceTime=20"
MEMORY = 4000  # MiB that a node says it has


def missing():
    """What keeps a cluster from being started here, as text; empty when nothing does."""
    names = [name for name in PROGRAMS if find(name) is None]
    return f"not installed: {', '.join(names)} (packages slurm-wlm and munge)" if names else ""


def process_control(option, value):
    """prctl(2) on this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def free_ports(count):
    """Ports nobody listens on, below those the kernel hands out by itself."""
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = []
    start = 10000 + os.getpid() * 7 % max(1, first_of_kernel - 12000)
    with contextlib.ExitStack() as held:
        for port in range(start, start + 1000):
            one = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError("no free ports")


class Cluster(Kept):
    """A running cluster of `nodes` nodes with `cpus` processors each, whatever this machine has.

    `settings` are further lines for slurm.conf, such as "RequeueExit=75". With `preemption` there is a partition
    `high` whose jobs take the place of those of `main`. With `gpus` each node claims so many, of which only the
    numbers exist: CUDA_VISIBLE_DEVICES is what ranks see of them.
    """

    def __init__(self, nodes=1, cpus=4, settings="", preemption=False, gpus=0):
        super().__init__("fedhpc_slurm_")
        self.folder.chmod(0o755)  # munged wants everybody to reach its socket
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self._write_configuration(cpus, settings, preemption, gpus)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        if nodes > 1:  # ranks on two nodes of this machine would take each other's shared memory
            self.environment["OMPI_MCA_btl"] = "tcp,self"

    def _write_configuration(self, cpus, settings, preemption, gpus):
        host = socket.gethostname().split(".")[0]
        port, *ports = free_ports(1 + len(self.nodes))
        lines = [f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={at} CPUs={cpus} RealMemory={MEMORY}"
                 for node, at in zip(self.nodes, ports)]
        if gpus:
            settings += "\nGresTypes=gpu"
            lines = [f"{line} Gres=gpu:{gpus}" for line in lines]
            devices = [self.folder / f"gpu{number}" for number in range(gpus)]
            for device in devices:
                device.symlink_to("/dev/null")  # slurmd takes devices only
            (self.folder / "gres.conf").write_text("".join(
                f"NodeName={node} Name=gpu File={device}\n" for node in self.nodes for device in devices))
        if preemption:
            lines.append(PREEMPTION)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            folder=self.folder, host=host, port=port, user=pwd.getpwuid(os.getuid()).pw_name,
            kill_wait=KILL_WAIT, settings=settings, nodes="\n".join(lines), main=PREEMPTED if preemption else ""))
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        (self.folder / "state").mkdir()
        for node in self.nodes:
            (self.folder / f"spool.{node}").mkdir()
            (self.folder / f"tmp.{node}").mkdir()

    def __enter__(self):
        self._begin([sys.executable, __file__, str(self.folder), *self.nodes],
                    lambda: self.states() == ["idle"] * len(self.nodes), env=self.environment)
        return self

    def states(self):
        """The nodes' states, as sinfo names them."""
        shown = subprocess.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], env=self.environment, text=True,
                               capture_output=True, check=False)
        return shown.stdout.split()

    def call(self, *command, **how):
        """Runs one of SLURM's commands to its end and returns what it prints."""
        done = subprocess.run([str(part) for part in command], env=self.environment, text=True,
                              capture_output=True, check=False, timeout=START, **how)
        if done.returncode != 0:
            raise AssertionError(f"{done.args}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout.strip()

    def start(self, *command, **how):
        """Starts a command in the cluster's environment, its output to pipes; in `cwd` if given."""
        return self._start(command, env=self.environment,
                           preexec_fn=lambda: process_control(END_WITH_PARENT, signal.SIGKILL), **how)

    def jobs(self):
        """Ids of the jobs that wait or run."""
        return self.call("squeue", "-h", "-o", "%i").split()

    def has_mpi(self, kind):
        """Whether srun can start MPI programs by way of `kind`, such as pmix."""
        shown = subprocess.run(["srun", "--mpi=list"], env=self.environment, text=True,
                               capture_output=True, check=False)
        return kind in (shown.stdout + shown.stderr).split()


def descendants():
    """Processes below this one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = entry.read_text().rsplit(")", 1)[1].split()[:2]
            if state not in "ZX":
                parents[int(entry.parent.name)] = int(parent)
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def daemons(folder, nodes):
    """Command lines of all daemons, in the foreground."""
    yield [find("munged"), "--foreground", f"--key-file={folder}/munge.key",
           f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid",
           f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    yield [find("slurmctld"), "-D", "-c", "-f", f"{folder}/slurm.conf"]
    for node in nodes:
        yield [find("slurmd"), "-D", "-N", node, "-f", f"{folder}/slurm.conf"]


def start_daemons(folder, nodes):
    # What a daemon leaves behind (SLURM's step managers and their ranks) becomes this one's child.
    process_control(ADOPT_ORPHANS, 1)
    started = []
    for command in daemons(folder, nodes):
        with open(folder / "output.log", "a", encoding="utf-8") as output:
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        if len(started) == 1:
            deadline = time.monotonic() + START
            while not (folder / "munge.sock").exists() and time.monotonic() < deadline:
                time.sleep(0.02)


def end_all():
    """Ends every process below this one."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in descendants():
            with contextlib.suppress(OSError):
                os.kill(process, number)
        deadline = time.monotonic() + 5
        while descendants() and time.monotonic() < deadline:
            time.sleep(0.02)


if __name__ == "__main__":
    cluster_folder = Path(sys.argv[1])
    keep(cluster_folder, lambda: start_daemons(cluster_folder, sys.argv[2:]), end_all)
