"""Runs on four hosts give what they give on one: with run.reproducible=true to the last bit."""

import h5py
from hosts_case import HostsCase, app_support, main

CONFIG = """[run]
rounds = 3
seed = 3
reproducible = true
save = init,partition,draws
[data]
name = glyphs
clients = 8
partition = labels
labels_per_client = 4
samples_per_client = 40
[model]
name = dnn
hidden = 20
[train]
batch_size = 10
local_epochs = 1
lr = 0.1
"""
# Among all ranks, inside edges and between them; models that travel round the ranks, and by columns.
RUNS = {
    "fedavg": ["--algorithm.name=fedavg"],
    "an edge on every host": ["--algorithm.name=hierfavg", "--algorithm.edge_rounds=2", "--topology.edges=4"],
    "two hosts share an edge": ["--algorithm.name=hierfavg", "--algorithm.edge_rounds=2", "--topology.edges=2"],
    "two edges on every host": ["--algorithm.name=hierfavg", "--algorithm.edge_rounds=2", "--topology.edges=8"],
    "clients move with samples": ["--algorithm.name=fedavg", "--topology.participation=0.5",
                                  "--topology.placement=balanced"],
    "and with rows": ["--algorithm.name=ditto", "--topology.participation=0.5", "--topology.placement=balanced",
                      "--run.save=init,personal"],
    "fedamp": ["--algorithm.name=fedamp", "--run.save=init,personal"],
    "simnet": ["--algorithm.name=simnet", "--run.save=init,personal"],
}


class SameResults(HostsCase):
    def test_four_hosts_give_what_one_process_gives(self):
        self.ini(CONFIG, "run.ini")
        for name, keys in RUNS.items():
            with self.subTest(name):
                self.run_ok("run", "run.ini", *keys, "--run.output=one.h5")
                self.run_on_hosts(app_support.options.fedhpc, "run", "run.ini", *keys, "--run.output=four.h5")
                one, four = (app_support.contents(self.folder / f"{which}.h5") for which in ("one", "four"))
                self.assertIn("rounds/train_loss", one)
                self.assertEqual(sorted(four), sorted(one))
                for data, value in one.items():
                    self.assertEqual(four[data], value, data)
                with h5py.File(self.folder / "four.h5") as file:
                    self.assertEqual(file["rounds/bytes_moved"][...].max() > 0, "--topology.placement=balanced" in keys)
                    self.assertEqual([host.decode() for host in file["hostnames"][...]], self.hosts.names)

    def test_a_refusal_is_said_once(self):
        self.ini(CONFIG, "run.ini")
        process = self.start(app_support.options.fedhpc, "run", "run.ini", "--topology.edges=9")
        _, err = process.communicate()
        self.assertEqual(process.returncode, 2, err)
        self.assertEqual(err.count("fedhpc: error:"), 1, err)
        self.all_gone()


if __name__ == "__main__":
    main()
