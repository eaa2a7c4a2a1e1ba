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

    def test_a_file_of_arrays_that_others_wrote(self):
        def write(fill):
            with h5py.File(self.project / "d.h5", "w") as file:
                file["x_train"] = np.arange(40.0).reshape(20, 2)
                file["y_train"] = np.arange(20) % 3
                fill(file)

        def lists(group):
            for part, samples in (("train", np.arange(16)), ("test", np.arange(16, 20))):
                group[f"{part}_offsets"] = [0, len(samples) // 2, len(samples)]
                group[f"{part}_samples"] = samples

        def names(file):
            file["names/clients"] = ["north", "Jos\u00e9"]

        run = ["run", self.ini(CONFIG.replace("client_column = hospital\n", "")), "--data.name=hdf5",
               f"--data.file={self.project / 'd.h5'}", "--run.output=d_run.h5", "--force"]
        for kind, fill in {"a soft link": lambda file: file.update({"alias": h5py.SoftLink("/y_train")}),
                           "a link to nothing": lambda file: file.update({"alias": h5py.SoftLink("/nothing")}),
                           "a group in itself": lambda file: file.create_group("a").update({"b": file["a"], "c": file}),
                           "one number in a list": lambda file: file["y_train"].attrs.update(classes=np.array([4])),
                           }.items():
            with self.subTest(taken=kind):
                write(fill)
                self.go(*run, "--data.partition=iid", "--data.clients=2")
        for fill, words in ((lambda file: file["y_train"].attrs.update(classes=np.arange(3000)),
                             "data set '/y_train': attribute 'classes' has 3000 values, expected one"),
                            (lambda file: file["y_train"].attrs.update(classes=4.5),
                             "data set '/y_train': attribute 'classes' is not a whole number"),
                            (lambda file: file["y_train"].attrs.update(classes="10"),
                             "data set '/y_train': attribute 'classes' is not a whole number"),
                            (lambda file: file.update({"other": h5py.ExternalLink("more.h5", "/x")}),
                             "it is not whole: '/other' lies in another file; copy it into this one"),
                            (lambda file: [file.update(client_train=np.arange(20) % 2),
                                           file.update({"names/clients": np.array([b"a", b"Jos\xe9"])})],
                             "data set '/names/clients': found 'Jos?', which is not UTF-8")):
            with self.subTest(words=words):
                write(fill)
                self.assertIn(words, self.refused(*run, "--data.partition=iid", "--data.clients=2"))
        for fill in (lists, lambda file: lists(file.create_group("partition"))):
            write(lambda file, fill=fill: (fill(file), names(file)))
            self.go(*run, "--data.partition=file", f"--data.partition_file={self.project / 'd.h5'}")
            with h5py.File(self.elsewhere / "d_run.h5") as file:
                self.assertEqual(file["names/clients"].asstr()[()].tolist(), ["north", "Jos\u00e9"])

    def test_a_model_that_is_not_finite_stays_with_its_client(self):
        draw = np.random.default_rng(3)
        x = draw.normal(size=(60, 4))
        y = (x.sum(1) > 0).astype(int)
        x[:12] *= 1e200  # of client 0
        with h5py.File(self.project / "d.h5", "w") as file:
            file["x_train"], file["y_train"], file["client_train"] = x, y, np.arange(60) // 12
        run = ["run", self.ini(CONFIG.replace("client_column = hospital\n", "").replace("clients = 3", "clients = 5")),
               "--data.name=hdf5", f"--data.file={self.project / 'd.h5'}", "--data.standardize=none",
               "--run.save=personal", "--run.dtype=float64", "--run.output=d_run.h5", "--force"]
        for method in ("localonly", "fedamp", "heurfedamp", "feddwa", "pfedgraph"):
            with self.subTest(method):
                self.go(*run, f"--algorithm.name={method}", *(["--algorithm.alpha=5"] if method == "pfedgraph" else []))
                with h5py.File(self.elsewhere / "d_run.h5") as file:
                    finite = [np.isfinite(values[()]).reshape(5, -1).all(1) for values in file["model/personal"].values()]
                self.assertEqual(np.all(finite, axis=0).tolist(), [False, True, True, True, True])

    def net(self, name, *layers):
        with h5py.File(self.project / name, "w") as file:
            file.attrs["fedhpc_model"] = 1
            file["layers"] = np.array(layers, "S")
        return [self.ini("[data]\nname = synthetic\nfeatures = 6\nclasses = 2\nclients = 6\n[model]\nname = file\n"
                         f"file = {self.project / name}\n[run]\nrounds = 2\n"), f"--run.output={name}_run.h5"]

    def test_outputs_of_binary_cross_entropy_are_logits(self):
        net = ("input shape=6", "linear out=1 inputs=0 parameters=a", "sigmoid inputs=1", "reshape shape=1 inputs=2")
        self.assertIn("model.name = file ends in a sigmoid, which train.loss = binary_cross_entropy has itself",
                      self.refused("run", *self.net("s.h5", *net), "--train.loss=binary_cross_entropy"))
        self.go("run", *self.net("l.h5", *net[:2]), "--train.loss=binary_cross_entropy")

    def test_a_model_that_does_not_fit_into_memory(self):
        net = ("input shape=6", "reshape shape=1,2,3 inputs=0",
               "convolution out=1 kernel=3,3 padding=20000,20000 inputs=1 parameters=a",
               "adaptive_average_pool out=1,1 inputs=2", "reshape shape=1 inputs=3", "linear out=2 inputs=4 parameters=b")
        for command in ("run", "plan"):
            self.assertIn("what model.name = file makes of samples does not fit into memory",
                          self.refused(command, *self.net("m.h5", *net)))

    def test_statistics_behind_the_classifier_are_not_private(self):
        net = self.net("n.h5", "input shape=6", "linear out=5 inputs=0 parameters=a", "relu inputs=1",
                       "linear out=2 inputs=2 parameters=b",
                       "batch_norm inputs=3 parameters=n.weight,n.bias,n.running_mean,n.running_var")
        self.assertIn("batch norm's statistics of samples travelling as they are; use a norm without them",
                      self.refused("run", *net, "--algorithm.name=lg_fedavg", "--algorithm.weighting=uniform",
                                   "--privacy.clip=1", "--privacy.noise=1"))
        self.go("run", *net, "--algorithm.name=lg_fedavg")

    def test_dropout_changes_no_block(self):
        """A client that has solved its problem stays there, however long others of its block take."""
        net = self.net("d.h5", "input shape=6", "dropout p=0.5 inputs=0", "linear out=8 inputs=1 parameters=a",
                       "relu inputs=2", "linear out=2 inputs=3 parameters=b")
        ends = []
        for block in (1, 6):
            self.go("run", *net, "--algorithm.name=sfedhp", "--algorithm.accuracy=0.5", "--topology.edges=2",
                    "--run.dtype=float64", "--run.reproducible=true", "--train.local_steps=2", f"--train.block={block}",
                    "--force")
            with h5py.File(self.elsewhere / "d.h5_run.h5") as file:
                ends.append(file["rounds/personal_loss"][()].tolist())
        self.assertEqual(*ends)

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
