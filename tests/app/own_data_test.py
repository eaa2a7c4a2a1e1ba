"""Data of one's own: tables with words, files beside the configuration, names in the results.

    python3 own_data_test.py --fedhpc build/release/fedhpc [unittest arguments]
"""

import random

import h5py
import numpy as np
from app_support import AppCase, fedhpc, main

CONFIG = """[run]
rounds = 3
progress = none
save = init,partition
checkpoint_every = 2
[data]
name = csv
file = people.csv
client_column = hospital
partition = natural
clients = 3
standardize = pixel
[model]
name = mlr
"""


def table(rows=60, seed=1):
    draw = random.Random(seed)
    kinds = {"healthy": 0, "flu": 10, "cold": 20}
    lines = ["hospital;age;weight;diagnosis"]
    for _ in range(rows):
        kind = draw.choice(sorted(kinds))
        lines.append(f"{draw.choice(['north', 'south', 'east'])};{30 + kinds[kind] + draw.random():.3f};"
                     f"{60 + draw.random():.3f};{kind}")
    return "\n".join(lines) + "\n"


class OwnData(AppCase):
    def setUp(self):
        super().setUp()
        self.project, self.elsewhere = self.folder / "project", self.folder / "elsewhere"
        self.project.mkdir()
        self.elsewhere.mkdir()
        (self.project / "run.ini").write_text(CONFIG)
        (self.project / "people.csv").write_text(table())

    def go(self, *arguments, cwd=None):
        done = fedhpc(*arguments, cwd=cwd or self.elsewhere)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *arguments, cwd=None):
        done = fedhpc(*arguments, cwd=cwd or self.elsewhere)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_names_are_in_the_results(self):
        self.go("run", "run.ini", cwd=self.project)
        with h5py.File(self.project / "run.h5") as file:
            self.assertEqual(list(file["names/classes"]), [b"cold", b"flu", b"healthy"])
            self.assertEqual(list(file["names/clients"]), [b"east", b"north", b"south"])
            for name, data in file["partition"].items():
                self.assertTrue(data.attrs["meaning"] and data.attrs["units"], name)
            self.assertEqual(len(file["partition/train_samples"]) + len(file["partition/test_samples"]), 60)
        self.go("resume", "run.h5", "--run.rounds=4", cwd=self.project)
        with h5py.File(self.project / "run.h5") as file:
            self.assertEqual(list(file["names/classes"]), [b"cold", b"flu", b"healthy"])

    def test_a_file_beside_the_configuration_is_found_and_found_again(self):
        self.go("run", "../project/run.ini", "--run.output=run.h5")
        self.go("resume", "elsewhere/run.h5", "--run.rounds=5", cwd=self.folder)
        keys = ["--run.output=second.h5", "--data.partition=file", "--data.partition_file=first.h5",
                "--model.init_file=first.h5"]
        (self.elsewhere / "run.h5").rename(self.project / "first.h5")
        self.go("run", "../project/run.ini", *keys)

    def test_a_file_that_is_nowhere(self):
        (self.project / "people.csv").unlink()
        error = self.refused("run", "../project/run.ini")
        for word in ("data.file", "people.csv", str(self.elsewhere / "people.csv"), str(self.project / "people.csv")):
            self.assertIn(word, error)

    def test_a_file_that_may_be_two(self):
        other = self.elsewhere / "people.csv"
        other.write_text(table(seed=2))
        error = self.refused("run", "../project/run.ini")
        self.assertIn(f"'people.csv' may be {other} and {self.project / 'people.csv'}", error)
        self.go("run", "../project/run.ini", f"--data.file={other}")
        other.unlink()
        other.symlink_to(self.project / "people.csv")
        self.go("run", "../project/run.ini", "--run.output=again.h5")

    def test_two_points_behind_a_link(self):
        """They lead to the folder above the link's target, as for every other program."""
        (self.project / "inner").mkdir()
        (self.elsewhere / "link").symlink_to(self.project / "inner")
        (self.elsewhere / "people.csv").write_text("no table")
        self.go("run", "../project/run.ini", "--data.file=link/../people.csv")
        (self.elsewhere / "people.csv").unlink()
        self.go("run", "../project/run.ini", "--data.file=link/../people.csv", "--run.output=again.h5")

    def test_decimal_commas(self):
        (self.project / "people.csv").write_text(table().replace(".", ","))
        self.assertIn("with a point, not a comma", self.refused("run", "../project/run.ini"))

    def test_a_model_that_ends_in_a_norm(self):
        """FedALA's top layer has it, and so the gradient of its weights: a client's result is the same in any block."""
        with h5py.File(self.project / "net.h5", "w") as file:
            file.attrs["fedhpc_model"] = 1
            file["layers"] = np.array(["input shape=6", "linear out=5 inputs=0 parameters=a.weight,a.bias", "relu inputs=1",
                                       "linear out=3 inputs=2 parameters=b.weight,b.bias",
                                       "layer_norm dims=0 inputs=3 parameters=norm.weight,norm.bias"], "S")
        run = ["run", self.ini("[data]\nname = synthetic\nfeatures = 6\nclasses = 3\nclients = 6\n[model]\nname = file\n"
                               f"file = {self.project / 'net.h5'}\n[train]\nmomentum = 0.5\nbatch_size = 4\n"),
               "--run.rounds=5", "--run.dtype=float64", "--run.reproducible=true", "--algorithm.name=fedala"]
        ends = []
        for block in (1, 6):
            self.run_ok(*run, f"--train.block={block}", f"--run.output=block{block}.h5")
            with h5py.File(self.folder / f"block{block}.h5") as file:
                ends.append((file["rounds/personal_loss"][()].tolist(), file["rounds/global_weight"][()].tolist()))
        self.assertEqual(str(ends[0]), str(ends[1]))  # NaN where nobody learns


if __name__ == "__main__":
    main()
