"""A host whose cable is pulled in mid-run: the ranks say who is missing and all end, those of the lost host
too; once the cable is back the run goes on and ends as if nothing had happened, to the last bit.

Nobody reports a lost peer to the ranks or to the launcher. The ranks give up after run.collective_timeout;
the launcher does once its connection to a host has been silent for oob_tcp_keepalive_*, but only if it has
not sent anything there meanwhile (TCP then repeats that for a quarter of an hour, and asks nothing else), as
it does for MPI_Abort. Hence the launcher has to be the quicker one, or the ranks have to leave it time.
"""

import contextlib
import time

from hosts_case import HostsCase, app_support, main

ROUNDS = 60
CONFIG = """[run]
rounds = {rounds}
seed = 5
reproducible = true
checkpoint_every = 3
eval_every = 4
save = init,partition,draws
progress = none
[data]
name = synthetic
clients = 8
samples_per_client = 40
features = 20
[model]
name = dnn
hidden = 300,100
[topology]
edges = 4
participation = 0.5
[train]
batch_size = 4
local_epochs = 2
block = 1
[algorithm]
name = hierfavg
edge_rounds = 2
"""


def keepalive(idle, interval, probes):
    """The launcher knows of a lost host after idle + interval x probes seconds."""
    return {"oob_tcp_keepalive_time": str(idle), "oob_tcp_keepalive_intvl": str(interval),
            "oob_tcp_keepalive_probes": str(probes)}


class CutLink(HostsCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "run.h5"

    def begin(self, rounds, timeout, **settings):
        """Starts a run on all hosts and waits until it has written checkpoints."""
        for file in self.folder.glob("*.h5"):
            file.unlink()
        self.ini(CONFIG.format(rounds=rounds), "run.ini")
        process = self.start(app_support.options.fedhpc, "run", "run.ini", f"--run.collective_timeout={timeout}",
                             settings=settings)
        app_support.wait_until(process, lambda: len(list(self.folder.glob("run.ckpt.*.h5"))) > 1)
        return process

    @contextlib.contextmanager
    def cut(self, host):
        self.hosts.cut(host)
        try:
            yield
        finally:
            self.hosts.mend(host)

    def equals_a_quiet_run(self, rounds):
        self.run_ok("run", "run.ini", f"--run.rounds={rounds}", "--run.output=quiet.h5")
        quiet, cut = (app_support.contents(self.folder / f"{name}.h5") for name in ("quiet", "run"))
        self.assertEqual(quiet["rounds/round"][0], (rounds,))
        self.assertEqual(sorted(cut), sorted(quiet))
        for name, value in quiet.items():
            self.assertEqual(cut[name], value, name)

    def goes_on(self):
        """Some rounds more are those of a run that nobody disturbed."""
        rounds = app_support.rounds_in(self.path) + 5
        self.run_on_hosts(app_support.options.fedhpc, "resume", "run.h5", f"--run.rounds={rounds}",
                          "--run.collective_timeout=60")
        self.equals_a_quiet_run(rounds)

    def ended(self, process):
        """The output of a run that did not end well, on its own or by a signal."""
        done = app_support.finish(process)
        self.assertNotIn(done.returncode, (0, 2, 75), done.stderr)
        return done.stderr

    def test_the_launcher_notices_and_all_ends(self):
        for host in ("host4", "host1"):  # host1 has the launcher, the cloud and the result file
            with self.subTest(host):
                process = self.begin(100000, 20, **keepalive(1, 1, 2))
                with self.cut(host):
                    said = self.ended(process)
                    self.assertIn("lost communication with a remote daemon", said)
                    if host != "host1":
                        self.assertRegex(said, rf"Remote daemon\W.*on node {host}")
                    self.all_gone()
                self.goes_on()

    def test_the_ranks_notice_and_say_who_is_missing(self):
        for host in ("host2", "host1"):
            with self.subTest(host):
                process = self.begin(100000, 3, opal_abort_delay="8", **keepalive(3, 1, 3))
                with self.cut(host):
                    said = self.ended(process)
                    self.no_ranks()
                self.all_gone()
                line = next(line for line in said.splitlines() if line.startswith("fedhpc: error: rank 0 on host1"))
                lost = self.hosts.names.index(host)
                silent = [lost] if lost else [1, 2, 3]  # who is cut off misses all others
                for rank in silent:
                    named = f"rank {rank} on {self.hosts.names[rank]}"
                    self.assertRegex(line, rf"for 3 s: .*{named}[^;]* gives? no sign of life \(last heard of: ")
                self.assertRegex(line, r"rank 0 on host1[^;]* waits? in [^;]* in round \d+(;|$| \()")
                self.assertTrue(line.endswith(" (run.collective_timeout)"), line)
                self.goes_on()

    def test_a_short_break_is_no_fault(self):
        process = self.begin(ROUNDS, 60)
        with self.cut("host3"):
            time.sleep(1)
            self.assertLess(app_support.rounds_in(self.path), ROUNDS, "under way")
        done = app_support.finish(process)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.equals_a_quiet_run(ROUNDS)


if __name__ == "__main__":
    main()
