"""Samples that clients set aside for validation: what is scored on them, and who sees them.

    python3 validation_test.py --fedhpc build/release/fedhpc --mpiexec mpirun [unittest arguments]
"""

import h5py
import numpy as np
from app_support import AppCase, fedhpc, main

CONFIG = """[run]
rounds = 4
progress = none
save = partition
dtype = float64
checkpoint_every = 2
[data]
name = glyphs
clients = 5
samples_per_client = 40
partition = dirichlet
validation_fraction = 0.3
[model]
name = dnn
hidden = 8
[train]
local_steps = 3
batch_size = 8
block = 2
[topology]
participation = 0.6
[algorithm]
name = {name}
"""
SERIES = ("global_accuracy", "global_loss", "personal_accuracy", "personal_loss")


def lists(file, name):
    samples = file[f"partition/{name}_samples"][...]
    return np.split(samples, file[f"partition/{name}_offsets"][1:-1])


class Validation(AppCase):
    def run_of(self, output, *arguments, name="fedavg", ranks=0):
        """The open result file of a run of CONFIG."""
        self.run_ok("run", self.ini(CONFIG.format(name=name)), f"--run.output={output}", *arguments, ranks=ranks)
        file = h5py.File(self.folder / output)
        self.addCleanup(file.close)
        return file

    def test_some_of_the_training_samples_are_set_aside(self):
        with_validation = self.run_of("with.h5")
        without = self.run_of("without.h5", "--data.validation_fraction=0")
        aside = lists(with_validation, "validation")
        for all_samples, train, validation in zip(lists(without, "train"), lists(with_validation, "train"), aside):
            self.assertEqual(len(validation), int(0.3 * len(all_samples)))
            self.assertEqual(sorted([*train, *validation]), sorted(all_samples))
        np.testing.assert_array_equal(with_validation["clients/validation_samples"], list(map(len, aside)))
        self.assertGreater(len(set(map(len, aside))), 1)
        for file in (with_validation, without):
            np.testing.assert_array_equal(file["clients/label_histogram"][...].sum(axis=1),
                                          sum(file[f"clients/{name}_samples"][...]
                                              for name in ("train", "test", "validation")
                                              if f"{name}_samples" in file["clients"]))
        for name in ("test_samples", "test_offsets"):
            np.testing.assert_array_equal(with_validation[f"partition/{name}"], without[f"partition/{name}"])
        self.assertNotIn("validation_samples", without["clients"])
        for name in SERIES:
            self.assertTrue(np.isnan(without[f"rounds/validation_{name}"]).all())
            self.assertFalse(np.isnan(with_validation[f"rounds/validation_{name}"]).any())

    def test_scores_are_those_of_a_run_that_tests_on_these_samples(self):
        for name, ranks in (("fedavg", 0), ("pfedsop", 2), ("perfedavg", 3)):
            with self.subTest(name):
                ours = self.run_of(f"{name}.h5", name=name, ranks=ranks)
                with h5py.File(self.folder / "swapped.h5", "w") as file:
                    for there, here in (("train", "train"), ("test", "validation")):
                        for part in ("offsets", "samples"):
                            file[f"{there}_{part}"] = ours[f"partition/{here}_{part}"][...]
                other = self.run_of(f"{name}_swapped.h5", "--data.partition=file",
                                    "--data.partition_file=swapped.h5", "--data.validation_fraction=0", name=name, ranks=ranks)
                for series in SERIES:
                    np.testing.assert_array_equal(ours[f"rounds/validation_{series}"], other[f"rounds/{series}"], series)
                    if series.startswith("personal") or name == "fedavg":
                        self.assertFalse(np.isnan(other[f"rounds/{series}"]).any())
                np.testing.assert_array_equal(ours["rounds/train_loss"], other["rounds/train_loss"])

    def test_a_saved_partition_keeps_them(self):
        ours = self.run_of("ours.h5")
        arguments = ["--data.partition=file", "--data.partition_file=ours.h5"]
        again = self.run_of("again.h5", *arguments, "--data.validation_fraction=0")
        for series in [*SERIES, *(f"validation_{name}" for name in SERIES)]:
            np.testing.assert_array_equal(ours[f"rounds/{series}"], again[f"rounds/{series}"], series)
        done = fedhpc("run", self.ini(CONFIG.format(name="fedavg")), *arguments, "--run.output=third.h5",
                      cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("names validation samples itself; drop the key", done.stderr)

    def test_the_official_split_has_them_too(self):
        file = self.run_of("official.h5", "--data.split=official", ranks=2)
        self.assertEqual(file["clients/test_samples"][...].sum(), 0)
        self.assertGreater(file["clients/validation_samples"][...].sum(), 0)
        for name in ("global_accuracy", "validation_global_accuracy", "validation_personal_accuracy"):
            self.assertFalse(np.isnan(file[f"rounds/{name}"]).any(), name)

    def test_a_resumed_run_scores_the_same(self):
        whole = self.run_of("whole.h5")
        self.run_of("parts.h5", "--run.rounds=2").close()
        self.run_ok("resume", "parts.h5", "--run.rounds=4", ranks=2)
        with h5py.File(self.folder / "parts.h5") as file:
            for name in SERIES:
                np.testing.assert_array_equal(file[f"rounds/validation_{name}"], whole[f"rounds/validation_{name}"])


if __name__ == "__main__":
    main()
