"""Configurations that start from others (`base = FILE`): run, plan, resume, what is refused and what is stored.

    python3 bases_test.py --fedhpc build/release/fedhpc [unittest arguments]
"""

import h5py
from app_support import SMALL_RUN, AppCase, fedhpc, main

TABLE = SMALL_RUN + """[run]
rounds = 2
progress = none
[algorithm.fedprox]
mu = 0.5
[algorithm.ditto]
mu = 0.25
"""
ROW = "# A row.\nbase = bases/table.ini\n\n[algorithm]\nname = fedprox\n"

# name: (run.ini, bases/table.ini, words the message must hold)
REFUSED = {
    "missing": ("base = bases/none.ini\n", TABLE, ["run.ini:1: base 'bases/none.ini'", "bases/none.ini",
                                                   "No such file", "from the folder of the file"]),
    "circle": (ROW, "base = ../run.ini\n" + TABLE, ["bases/table.ini:1: base '../run.ini'", "circle",
                                                    "run.ini starts from", "drop the line"]),
    "two": ("base = bases/table.ini\nbase = other.ini\n", TABLE, ["run.ini:2: base 'other.ini'", "run.ini:1",
                                                                  "'bases/table.ini'", "keep one"]),
    "below a section": ("[run]\nrounds = 1\nbase = bases/table.ini\n", TABLE,
                        ["run.ini:3: unknown key 'run.base'", "; base = FILE stands before the first [section]"]),
    "empty": ("base =\n", TABLE, ["run.ini:1: base ''", "empty"]),
    "misspelt in the base": (ROW, TABLE + "[run]\nronuds = 5\n",
                             ["bases/table.ini:", "run.ronuds", "did you mean 'run.rounds'"]),
    "value of the base": (ROW + "[train]\nlr = 0.5\n", TABLE + "[train]\nmomentum = x\n",
                          ["bases/table.ini:", "train.momentum", "'x'"]),
    "idle in the base": (ROW, TABLE + "[data]\nalpha = 0.5\n", ["bases/table.ini:", "data.alpha", "no effect"]),
    "key that the method lacks": (ROW.replace("name = fedprox", "name = fedavg"), TABLE + "[algorithm]\nlayers = 1\n",
                                  ["bases/table.ini:", "algorithm.layers", "fedavg has no such key"]),
    "method that is none": (ROW, TABLE + "[algorithm.fedprx]\nmu = 1\n", ["bases/table.ini:", "no method 'fedprx'"]),
    "rivals in the row": (ROW + "[train]\nlocal_steps = 1\nlocal_epochs = 1\n", TABLE,
                          ["run.ini:", "cannot both count"]),
}


class Bases(AppCase):
    def setUp(self):
        super().setUp()
        (self.folder / "bases").mkdir()
        self.write(ROW, TABLE)

    def write(self, row, table):
        self.ini(row, "run.ini")
        self.ini(table, "bases/table.ini")

    def stored(self, name="run.h5"):
        """The keys of the configuration that a result file holds."""
        with h5py.File(self.folder / name) as file:
            text = file.attrs["config"].decode()
        values, section = {}, ""
        for line in text.splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif line:
                key, value = line.split(" = ", 1)
                values[f"{section}.{key}"] = value
        return values

    def refused(self, *arguments, words, ranks=0):
        done = fedhpc(*arguments, cwd=self.folder, ranks=ranks)
        self.assertEqual(done.returncode, 2, done.stderr)
        lines = [line for line in done.stderr.splitlines() if "fedhpc:" in line]
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def test_what_is_refused(self):
        for name, (row, table, words) in REFUSED.items():
            with self.subTest(name):
                self.write(row, table)
                self.refused("run", "run.ini", words=words)
                self.assertFalse((self.folder / "run.h5").exists())
        self.write(*REFUSED["circle"][:2])
        self.refused("plan", "run.ini", words=["circle"])
        self.refused("run", "run.ini", words=["circle"], ranks=2)

    def test_a_row_is_what_it_would_be_in_one_file(self):
        done = self.run_ok("run", "run.ini")
        self.assertEqual(done.stderr, "")
        self.ini(TABLE + "[algorithm]\nname = fedprox\n", "whole.ini")
        self.run_ok("run", "whole.ini")
        whole = {**self.stored("whole.h5"), "run.output": "run.h5"}
        self.assertEqual(self.stored(), whole)
        self.assertEqual(whole["algorithm.mu"], "0.5")
        with h5py.File(self.folder / "run.h5") as one, h5py.File(self.folder / "whole.h5") as other:
            self.assertEqual(one["rounds/train_loss"][...].tolist(), other["rounds/train_loss"][...].tolist())

    def test_precedence_and_places(self):
        self.ini("base = table.ini\n[run]\nrounds = 3\nseed = 3\n", "bases/longer.ini")
        self.ini(ROW.replace("table.ini", "longer.ini") + "[run]\nseed = 4\n", "run.ini")
        told = self.run_ok("run", "run.ini", "--algorithm.mu=0.125", "--run.progress=plain").stdout
        stored = self.stored()
        self.assertEqual([stored[f"run.{key}"] for key in ("rounds", "seed")], ["3", "4"])
        self.assertEqual(stored["algorithm.mu"], "0.125")
        self.assertRegex(told, r"(?m)^  run.rounds +3 +bases/longer.ini:3$")
        self.assertRegex(told, r"(?m)^  run.seed +4 +run.ini:7$")

    def test_another_method_over_a_base(self):
        self.run_ok("run", "run.ini", "--algorithm.name=ditto")
        self.assertEqual(self.stored()["algorithm.mu"], "0.25")
        self.write(ROW, TABLE + "[algorithm]\nname = pfedme\nlambda = 3\n")
        done = self.run_ok("plan", "run.ini")
        self.assertEqual(done.stderr.count("fedhpc: note: "), 1)
        for word in ("base 'bases/table.ini' is for algorithm.name = pfedme", "with fedprox", "algorithm.lambda"):
            self.assertIn(word, done.stderr)

    def test_resume_without_and_with_the_base(self):
        self.run_ok("run", "run.ini")
        self.refused("resume", "run.h5", "run.ini", "--train.lr=0.5", words=["train.lr"])
        self.run_ok("resume", "run.h5", "run.ini", "--run.rounds=3")
        self.write(ROW, TABLE.replace("rounds = 2", "rounds = 4"))
        self.run_ok("resume", "run.h5", "run.ini")
        (self.folder / "bases/table.ini").unlink()
        self.refused("resume", "run.h5", "run.ini", words=["base 'bases/table.ini'", "No such file"])
        self.run_ok("resume", "run.h5", "--run.rounds=5")
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(len(file["rounds/round"]), 5)

    def test_data_beside_the_base(self):
        table = "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60))
        (self.folder / "bases/people.csv").write_text(table)
        self.ini("[run]\nrounds = 1\nprogress = none\n[data]\nname = csv\nfile = people.csv\nclients = 2\n"
                 "partition = iid\n[model]\nname = mlr\n", "bases/table.ini")
        other = self.folder / "other"
        other.mkdir()
        self.run_ok("run", "../run.ini", "--algorithm.mu=0.1", cwd=other)
        self.assertEqual(self.stored("other/run.h5")["data.file"], str(self.folder / "bases/people.csv"))
        (self.folder / "bases/people.csv").unlink()
        self.refused("run", "run.ini",
                     words=["bases/table.ini:6: key 'data.file'", str(self.folder / "bases/people.csv")])


if __name__ == "__main__":
    main()
