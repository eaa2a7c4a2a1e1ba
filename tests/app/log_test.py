"""What a run says on standard error: levels, one line an event, who speaks."""

import re

import h5py
import numpy as np
from app_support import SMALL_RUN, AppCase, fedhpc, main

CONFIG = """[run]
rounds = 4
checkpoint_every = 1
""" + SMALL_RUN
# A key given twice is a note, a run that diverges a warning.
TALKATIVE = ["--train.lr=0.1", "--train.lr=1e6"]


class LogCase(AppCase):
    def setUp(self):
        super().setUp()
        self.config = self.ini(CONFIG, "run.ini")

    def said(self, *arguments, command="run", **how):
        """{level: [sentence]} of a run's lines, of which there are no others."""
        done = self.run_ok(command, *arguments, **how)
        found = {}
        for line in done.stderr.splitlines():
            line = line.strip("\0")  # Open MPI 5 puts one ahead of some
            level, sentence = re.fullmatch(r"fedhpc: (error|warning|note|debug): (.+)", line).groups()
            found.setdefault(level, []).append(sentence)
        return found


class Levels(LogCase):
    def test_everything_up_to_the_level_is_shown(self):
        levels = ["error", "warning", "note", "debug"]
        lines = {}
        for level in [None, *levels]:
            key = [] if level is None else [f"--run.log_level={level}"]
            lines[level] = self.said(self.config, *TALKATIVE, *key, "--force")
        self.assertEqual(lines["error"], {})
        self.assertEqual(list(lines["warning"]), ["warning"])
        self.assertEqual(sorted(lines["note"]), ["note", "warning"])
        self.assertEqual(lines[None], lines["note"])
        self.assertEqual(sorted(lines["debug"]), ["debug", "note", "warning"])
        for level in levels[1:]:
            self.assertRegex(lines[level]["warning"][0], "^the run diverges since round 1: ")
            self.assertEqual(len(lines[level]["warning"]), 1)

    def test_a_refusal_is_always_shown(self):
        done = fedhpc("run", self.config, "--run.log_level=error", "--train.lr=-1", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Afedhpc: error: [^\n]*train\.lr[^\n]*\n\Z")

    def test_a_level_that_there_is_not(self):
        done = fedhpc("run", self.config, "--run.log_level=debgu", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Afedhpc: error: .*run\.log_level.*'debgu'.*did you mean 'debug'")

    def test_resume_may_say_more(self):
        self.said(self.config, "--run.rounds=2")
        self.assertEqual(self.said("run.h5", "--run.rounds=3", command="resume"), {})
        lines = self.said("run.h5", "--run.rounds=4", "--run.log_level=debug", command="resume")
        self.assertEqual(len([line for line in lines["debug"] if line.startswith("round ")]), 1)

    def test_it_changes_nothing(self):
        models = []
        for level in ("note", "debug"):
            self.said(self.config, f"--run.log_level={level}", "--force")
            with h5py.File(self.folder / "run.h5") as file:
                models.append([file["model/global"][name][...] for name in file["model/global"]])
        for one, other in zip(*models, strict=True):
            np.testing.assert_array_equal(one, other)


class Details(LogCase):
    def test_choices_rounds_and_checkpoints(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                debug = self.said(self.config, "--run.log_level=debug", "--force", ranks=ranks)["debug"]
                if ranks:
                    self.assertEqual(debug.pop(0), "checkpoint 'run.ckpt.4.h5' is removed")  # of the run before
                self.assertRegex(debug[0], r"^fedavg on cpu, \d+ numbers a client, blocks of \d+, rounds of up to 6 of 6 "
                                           "clients$")
                placed = [re.fullmatch(r"rank (\d) on \S+ has (\d) clients, (\d) to (\d)", line) for line in debug]
                placed = [tuple(map(int, match.groups())) for match in placed if match]
                self.assertEqual(placed, [(0, 3, 0, 2), (1, 3, 3, 5)] if ranks else [(0, 6, 0, 5)])
                rounds = [line for line in debug if re.match(r"round \d", line)]
                self.assertEqual(len(rounds), 4)
                seconds = r"[\d.e-]+ s"
                for number, line in enumerate(rounds, 1):
                    self.assertRegex(line, rf"^round {number} took {seconds}; of rank 0: training {seconds}, links "
                                           rf"and sums {seconds}, evaluation {seconds}$")
                written = [line for line in debug if " is written in " in line]
                removed = [line for line in debug if line.endswith(" is removed")]
                self.assertEqual(len(written), 4, "once each, whatever the number of ranks")
                self.assertEqual(len(removed), 3, "the newest stays")


if __name__ == "__main__":
    main()
