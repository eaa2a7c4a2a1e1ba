"""What the communicators count is what the hosts' network interfaces carry, times a factor known for every
collective and place.

P ranks, one a host, each hand n bytes to a collective. Sums and maxima between hosts go round a ring: a rank sends
P - 1 pieces of n/P bytes while they are summed and as many while the sums are handed on: 2 (P - 1)/P n. A root's
broadcast goes to each rank by itself (chosen by key: the MPI library's own choice depends on sizes).
"""

import json
import time

from hosts_case import HostsCase, app_support, main, options

P = 4  # hosts, and ranks
SETTINGS = {"coll_libnbc_ibcast_algorithm": "1"}  # from the root to everybody
RING = 2 * (P - 1) / P
ROOT, OTHERS = 0, [1, 2, 3]
# Sent and received bytes of the ranks by what they have handed over.
FACTORS = {
    "sum": ([RING] * P, [RING] * P),
    "max": ([RING] * P, [RING] * P),
    "broadcast": ([P - 1, 0, 0, 0], [0, 1, 1, 1]),
    "gather": ([0, 1, 1, 1], [P - 1, 0, 0, 0]),
    "all_gather": ([P - 1] * P, [P - 1] * P),
    "all_to_all": ([(P - 1) / P] * P, [(P - 1) / P] * P),
}
BYTES, CALLS = 8_000_000, 3
# An acknowledgement is a packet of a header alone, and how many there are hangs on the machine's pace.
HEADER = 66  # bytes: Ethernet, IP and TCP with its time stamps
OVERHEAD = 0.01  # the MPI library's own headers, and heartbeats
SMALL = 0.001  # of the largest number of bytes: what goes the other way
SEGMENT = 1514  # bytes of a frame, in which TCP counts what it sends again
CONFIG = """[run]
seed = 3
eval_every = 1000
[data]
name = glyphs
clients = 4
partition = iid
samples_per_client = 20
[model]
name = dnn
hidden = 500
[train]
batch_size = 20
local_steps = 1
"""
ROUNDS = (2, 8)


class WireBytes(HostsCase):
    def measure(self, *arguments):
        """Runs wire_traffic: what its ranks count, and bytes sent and received and segments sent again by host."""
        before, again_before = self.hosts.counters(HEADER), self.hosts.retransmitted()
        counted = json.loads(self.run_on_hosts(options.wire_traffic, *arguments, settings=SETTINGS))
        self.all_gone()
        after, again = self.hosts.counters(HEADER), self.hosts.retransmitted()
        names = self.hosts.names
        return (counted, [after[name][0] - before[name][0] for name in names],
                [after[name][1] - before[name][1] for name in names],
                [SEGMENT * (again[name] - again_before[name]) for name in names])

    def between(self, few, many):
        """What the longer of two runs has done beyond the shorter one: starting and ending cancel."""
        counted = [{name: b[name] - a[name] for name in a} for a, b in zip(few[0], many[0])]
        return (counted, *([b - a for a, b in zip(x, y)] for x, y in zip(few[1:3], many[1:3])),
                [a + b for a, b in zip(few[3], many[3])])

    def compare(self, actual, expected, again, what):
        """`again`: bytes that may have passed a second time, in either of the runs."""
        tiny = SMALL * max(expected)
        for host, one, right, repeated in zip(self.hosts.names, actual, expected, again):
            with self.subTest(what, host=host):
                self.assertGreaterEqual(one, right - tiny - repeated)
                self.assertLessEqual(one, right * (1 + OVERHEAD) + 2 * tiny + repeated)

    def test_every_collective(self):
        idle = self.measure("call", "sum", BYTES, 0)
        for verb, (sent, received) in FACTORS.items():
            counted, tx, rx, again = self.between(idle, self.measure("call", verb, BYTES, CALLS))
            self.assertEqual([one["world"] for one in counted], [BYTES * CALLS] * P, verb)
            self.compare(tx, [BYTES * CALLS * factor for factor in sent], again, f"{verb}: sent")
            self.compare(rx, [BYTES * CALLS * factor for factor in received], [sum(again)] * P, f"{verb}: received")

    def rounds(self, *keys):
        self.ini(CONFIG, "run.ini")
        few, many = (self.measure("run", "run.ini", f"--run.rounds={rounds}", *keys) for rounds in ROUNDS)
        counted, sent, received, again = self.between(few, many)
        parameters = 784 * 500 + 500 + 500 * 10 + 10
        return counted, sent, received, again, (ROUNDS[1] - ROUNDS[0]) * 8 * (parameters + 1)

    def test_a_round_is_one_sum_over_all_ranks(self):
        counted, sent, received, again, model = self.rounds("--algorithm.name=fedavg")
        for one in counted:
            self.assertLess(abs(one["world"] / model - 1), SMALL, "the sums of a model and its weight, in float64")
        expected = [RING * one["world"] for one in counted]
        self.compare(sent, expected, again, "sent")
        self.compare(received, expected, [sum(again)] * P, "received")

    def test_edges_of_one_host_meet_at_the_cloud_alone(self):
        """Two edge rounds inside the hosts cost nothing on the wire; edge leaders, all ranks, form one ring."""
        counted, sent, received, again, model = self.rounds(
            "--algorithm.name=hierfavg", "--algorithm.edge_rounds=2", "--topology.edges=4")
        for one in counted:
            self.assertLess(abs(one["leaders"] / model - 1), SMALL)
            self.assertGreater(one["edge"], 2 * model)
        expected = [RING * (one["leaders"] + one["world"]) for one in counted]
        self.compare(sent, expected, again, "sent")
        self.compare(received, expected, [sum(again)] * P, "received")

    def test_clients_that_move_go_once_each_way(self):
        """A parcel passes the wire once: rows of clients there and back, samples there."""
        counted, sent, received, again, _ = self.rounds(
            "--algorithm.name=ditto", "--data.clients=16", "--topology.participation=0.5", "--topology.placement=balanced")
        row = 4 * (784 * 500 + 500 + 500 * 10 + 10)
        self.assertGreater(sum(one["parcels"] for one in counted), row)
        self.compare(sent, [RING * one["world"] + one["parcels"] for one in counted], again, "sent")
        self.assertLess(abs(sum(received) - sum(sent)), OVERHEAD * sum(sent) + sum(again))


if __name__ == "__main__":
    main()
