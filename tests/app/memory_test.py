"""Peak memory of whole runs: clients' samples that a generator makes are not held."""

import json
import os
import resource
import signal
from pathlib import Path

import h5py

from app_support import SUITE, AppCase, finish, main, ranks_of, rounds_in, start, wait_until

os.environ.pop("FEDHPC_PROGRAM_SERVER", None)  # a fork of another program would have that one's memory
# What the C library keeps of freed memory varies by a third from run to run; with this it keeps next to nothing.
os.environ["MALLOC_TRIM_THRESHOLD_"] = "1000000"

FEATURES = 60
SAMPLES = 12  # per client
VALUE = 4  # bytes of a float32
LARGE = 1500  # hidden units of a model beside which the program is small
INI = f"""
[run]
rounds = 2
eval_every = 2
progress = none
[data]
name = synthetic
partition = natural
features = {FEATURES}
classes = 2
samples_per_client = {SAMPLES}
[model]
name = mlr
[train]
batch_size = 4
local_epochs = 1
[topology]
participation = 0.01
"""


def peak_of_children():
    """The largest resident memory, in bytes, of any program this one has waited for."""
    return 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def resident(pid):
    """Resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class MemoryTest(AppCase):
    def plan(self, *arguments):
        return json.loads(self.run_ok("plan", *arguments, "--json").stdout)

    def planned_memory(self, arguments):
        """Bytes a rank needs by the plan."""
        return self.plan(*arguments)["memory_per_rank_bytes"]

    def peak_of_run(self, arguments):
        """The largest resident memory of a run, in bytes."""
        process = start("run", *arguments, "--run.output=run.h5", cwd=self.folder)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status  # waited for here, to learn what it has used
        process.communicate()
        self.assertEqual(status, 0)
        return 1024 * used.ru_maxrss

    def growth(self, small, large):
        """By how many bytes a run of one configuration needs more than of another: by the plan, and in fact."""
        return (self.planned_memory(large) - self.planned_memory(small),
                self.peak_of_run(large) - self.peak_of_run(small))

    def test_rounds_leave_nothing_behind(self):
        """Two hundred rounds, each with an evaluation and a checkpoint."""
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                process = start("run", self.ini(INI), "--run.rounds=100000", "--run.eval_every=1",
                                "--run.checkpoint_every=1", "--data.clients=200", "--run.output=run.h5",
                                ranks=ranks, cwd=self.folder)
                self.addCleanup(lambda process=process: (process.kill(), process.communicate()))
                path = self.folder / "run.h5"
                wait_until(process, lambda: rounds_in(path) >= 50)
                before = [resident(pid) for pid in ranks_of(process)]
                wait_until(process, lambda: rounds_in(path) >= 250)
                after = [resident(pid) for pid in ranks_of(process)]
                process.send_signal(signal.SIGUSR1)
                self.assertEqual(finish(process).returncode, 75)
                self.assertEqual(len(before), max(ranks, 1))
                for first, last in zip(before, after):
                    self.assertLess(last - first, 4 << 20)
                path.unlink()

    def test_samples_of_many_clients_are_made_when_they_are_needed(self):
        config = self.ini(INI)
        self.run_ok("run", config, "--data.clients=1000", "--run.output=few.h5")
        few = peak_of_children()
        clients = 100_000
        self.run_ok("run", config, f"--data.clients={clients}", "--run.output=many.h5")
        held = clients * SAMPLES * FEATURES * VALUE
        # The rest is lists of samples, labels per client and scores.
        self.assertLess(peak_of_children() - few, held / 2)

        with h5py.File(self.folder / "many.h5", "r") as file:
            counts = file["clients/train_samples"][:] + file["clients/test_samples"][:]
            self.assertEqual(counts.tolist(), [SAMPLES] * clients)
            of_labels = file["clients/label_histogram"][:].sum(axis=1)
            self.assertEqual(of_labels.tolist(), [SAMPLES] * clients)
            self.assertEqual(file["rounds/participants"][:].tolist(), [clients / 100] * 2)
            accuracy = file["clients/accuracy"][0]
            self.assertEqual(accuracy.shape, (clients,))
            self.assertTrue(((accuracy >= 0) & (accuracy <= 1)).all())


    def test_plan_states_the_memory_of_a_run(self):
        """A large model against a small one, so that the program itself does not count."""
        config = self.ini("""[run]
rounds = 2
progress = none
checkpoint_every = 0
[data]
name = glyphs
clients = 8
samples_per_client = 40
[train]
batch_size = 20
local_epochs = 0
local_steps = 2
""")
        methods = {
            "fedavg": ["--train.optimizer=nesterov"],
            "pfedme": ["--train.optimizer=nesterov", "--algorithm.inner_steps=2"],
            "perfedavg": ["--algorithm.variant=hf"],
            "fedamp": [],
            "fedavg_ft": [],
            "ditto": [],
            "scaffold": ["--algorithm.control=gradient"],
            "fednova": ["--train.optimizer=nesterov"],
            "feddyn": [],
            "moon": [],
            "fedrep": [],
            "fedper": [],
            "lg_fedavg": [],
            "fedbn": [],
            "fedbabu": [],
            "apfl": [],
            "fedselect": [],
            "pfedgp": ["--algorithm.draws=4", "--algorithm.test_draws=4"],
            "fedala": [],
            "feddecomp": ["--model.compression=8"],
            "feddwa": [],
            "pfedgraph": [],
            "ef21p": [],
            "fedcomloc": ["--algorithm.codec=top_k"],
            "fedbat": ["--algorithm.download=binary"],
            "pfedsop": ["--train.lr=0.05"],
            "fedmud": ["--model.factorisation=low_rank_aad", "--model.exclude=last", "--model.compression=8"],
            "fedhm": ["--model.exclude=last", "--model.compression=8"],
            "fedpara": ["--model.exclude=last", "--model.compression=8"],
            "tdpfed": ["--algorithm.inner_steps=2", "--algorithm.factor_steps=2"],
            "hierfavg": ["--topology.edges=4", "--algorithm.edge_rounds=8"],
            "sfedhp": ["--topology.edges=2", "--algorithm.edge_rounds=2", "--algorithm.inner_steps=2",
                       "--algorithm.gamma1=0.001", "--algorithm.gamma2=0.001"],
        }
        for number, (method, keys) in enumerate(methods.items()):
            for block in (4, 8) if SUITE == "every" else (4, 8)[number % 2:][:1]:
                with self.subTest(method=method, block=block):
                    expected, taken = self.growth(*([config, f"--algorithm.name={method}", f"--model.hidden={hidden}",
                                                     f"--train.block={block}", *keys] for hidden in (100, LARGE)))
                    self.assertAlmostEqual(taken / expected, 1, delta=0.2)

    def test_classifiers_of_clients_take_what_the_plan_says(self):
        """Gaussian-process classifiers of many samples against those of few."""
        config = self.ini("""[run]
rounds = 1
progress = none
checkpoint_every = 0
[data]
name = glyphs
clients = 1
[model]
name = dnn
hidden = 20
[train]
batch_size = 0
local_epochs = 1
[algorithm]
name = pfedgp
gibbs_steps = 1
test_gibbs_steps = 1
test_draws = 2
""")
        for keys in (["--algorithm.draws=60"], ["--algorithm.draws=30", "--algorithm.inducing_points=30"]):
            with self.subTest(keys=keys):
                expected, taken = self.growth(*([config, f"--data.samples_per_client={samples}", *keys]
                                                for samples in (50, 1000)))
                self.assertAlmostEqual(taken / expected, 1, delta=0.2)

    def test_pairs_of_participants_take_what_the_plan_says(self):
        """Square matrices of 2000 participants against those of 200."""
        config = self.ini("""[run]
rounds = 1
progress = none
checkpoint_every = 0
[data]
name = synthetic
features = 10
samples_per_client = 10
[model]
name = mlr
[train]
local_epochs = 0
local_steps = 1
""")
        for method in ("pfedgraph", "feddwa"):
            with self.subTest(method=method):
                expected, taken = self.growth(*([config, f"--algorithm.name={method}", f"--data.clients={clients}"]
                                                for clients in (200, 2000)))
                self.assertGreater(expected, 3 * 2000 * 2000 * 8)
                self.assertAlmostEqual(taken / expected, 1, delta=0.2)

    def test_plan_counts_the_seconds_of_pairs_of_participants(self):
        config = self.ini(INI)
        keys = ["--data.clients=2000", "--topology.participation=1"]
        seconds = {method: self.plan(config, *keys, f"--algorithm.name={method}")["seconds_per_round"]
                   for method in ("fedavg", "pfedgraph")}
        self.assertGreater(seconds["pfedgraph"], 3 * seconds["fedavg"])

    def test_rows_of_clients_that_never_take_part_are_not_planned(self):
        config = self.ini("""[run]
rounds = 3
progress = none
checkpoint_every = 0
[topology]
participation = 0.01
[data]
name = glyphs
clients = 2000
samples_per_client = 10
[model]
name = dnn
hidden = 100
[train]
local_epochs = 0
local_steps = 1
[algorithm]
name = pfedsop
""")
        row = 79_510 * VALUE
        few, many = self.planned_memory([config]), self.planned_memory([config, "--run.rounds=50"])
        self.assertAlmostEqual((many - few) / (2 * row), 50 * 20 - 3 * 20, delta=20)
        every = self.planned_memory([config, "--run.rounds=100"])
        self.assertAlmostEqual((every - few) / (2 * row), 2000 - 3 * 20, delta=20)
        self.assertAlmostEqual((self.planned_memory([config, "--run.rounds=1000"]) - every) / (2 * row), 0, delta=20)
        of_a_hundred = [self.planned_memory([config, "--ranks", "100", f"--run.rounds={rounds}"]) for rounds in (3, 50)]
        self.assertAlmostEqual((of_a_hundred[1] - of_a_hundred[0]) / (2 * row), 0, delta=5, msg="all 20 of a rank may be drawn")
        self.assertLess(self.peak_of_run([config]), 1.1 * few)

    def test_plan_counts_what_evaluations_draw(self):
        config = self.ini(INI.replace("mlr", "dnn") + "[algorithm]\nname = pfedgp\n")
        planned = [self.plan(config, "--data.clients=4", f"--algorithm.test_draws={draws}")["seconds_per_round"]
                   for draws in (20, 20000)]
        self.assertGreater(planned[1], 10 * planned[0])

    def test_a_store_of_many_clients_takes_what_the_plan_says(self):
        """Two rows of each of 10,000 clients (6.4 GB) against those of 100."""
        config = self.ini("""[run]
rounds = 1
progress = none
checkpoint_every = 0
[data]
name = glyphs
samples_per_client = 10
[model]
name = dnn
hidden = 100
[train]
batch_size = 8
local_epochs = 0
local_steps = 1
block = 1
[algorithm]
name = pfedsop
""")
        planned, peak = {}, {}
        for clients in (100, 10_000):
            arguments = [config, f"--data.clients={clients}"]
            planned[clients] = self.planned_memory(arguments)
            peak[clients] = self.peak_of_run(arguments)
        rows = 2 * 10_000 * 79_510 * VALUE
        self.assertGreater(planned[10_000], rows)
        ratio = (peak[10_000] - peak[100]) / (planned[10_000] - planned[100])
        self.assertAlmostEqual(ratio, 1, delta=0.1)


if __name__ == "__main__":
    main()
