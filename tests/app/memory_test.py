"""Peak memory of whole runs: clients' samples that a generator makes are not held."""

import resource

import h5py

from app_support import AppCase, main

FEATURES = 60
SAMPLES = 12  # per client
VALUE = 4  # bytes of a float32
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


class MemoryTest(AppCase):
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


if __name__ == "__main__":
    main()
