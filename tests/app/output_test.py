"""A result and its checkpoints are not lost: two starts on one output, a second run, odd names, a disk without room.

    python3 output_test.py --fedhpc build/release/fedhpc [--races 300] [unittest arguments]
"""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from app_support import (HANG, SHORT, SMALL_RUN, AppCase, SmallDisk, fedhpc, finish, main, ranks_of, rounds_in,
                         start, wait_until)

ROUNDS = 300
CONFIG = f"""[run]
rounds = {ROUNDS}
checkpoint_every = 50
progress = plain
""" + SMALL_RUN
races = 5 if SHORT else 20


def status(path):
    with h5py.File(path) as file:
        return file.attrs["status"].decode(), len(file["rounds/round"])


class OutputCase(AppCase):
    def setUp(self):
        super().setUp()
        self.ini(CONFIG, "run.ini")

    def names(self, folder=None):
        return sorted(path.name for path in Path(folder or self.folder).iterdir() if not path.name.endswith(".ini"))

    def refused(self, *arguments):
        before = {path: path.read_bytes() for path in self.folder.iterdir()}
        done = fedhpc(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual({path: path.read_bytes() for path in self.folder.iterdir()}, before)
        return done.stderr


class TwoStarts(OutputCase):
    def test_one_wins_and_the_other_is_refused(self):
        self.run_ok("run", "run.ini", "--run.output=straight.h5", "--run.rounds=50")
        with h5py.File(self.folder / "straight.h5") as file:
            straight = file["rounds/train_loss"][...]
        draw = random.Random(22)
        for number in range(races):
            commands = [draw.choice(("run", "resume")) for _ in range(2)]
            ranks = [draw.choice((0, 0, 2)) for _ in range(2)]
            pause = draw.uniform(0, 0.2)
            with self.subTest(number=number, commands=commands, ranks=ranks, pause=pause):
                for path in self.folder.glob("run.*h5"):
                    path.unlink()
                if "resume" in commands:
                    self.run_ok("run", "run.ini", "--run.rounds=50")
                begun = []
                for command, count in zip(commands, ranks):
                    target = "run.h5" if command == "resume" else "run.ini"
                    begun.append(start(command, target, "--run.rounds=1000000", ranks=count, cwd=self.folder))
                    self.addCleanup(lambda process=begun[-1]: (process.kill(), process.communicate()))
                    if len(begun) == 1:
                        time.sleep(pause)
                winner, loser = self.first_ended(begun)
                self.assertEqual(loser.returncode, 2, loser.stderr)
                said = [line for line in loser.stderr.splitlines() if "fedhpc:" in line]
                self.assertEqual(len(said), 1, loser.stderr)
                self.assertRegex(said[0], r"'run\.h5': another run is writing it \(process \d+ on \S+\)")
                wait_until(winner, lambda: rounds_in(self.folder / "run.h5") > 50)
                winner.send_signal(signal.SIGUSR1)
                self.assertEqual(finish(winner).returncode, 75)
                state, rounds = status(self.folder / "run.h5")
                self.assertEqual(state, "interrupted")
                self.run_ok("resume", "run.h5", f"--run.rounds={rounds + 1}")
                with h5py.File(self.folder / "run.h5") as file:
                    np.testing.assert_array_equal(file["rounds/round"], np.arange(1, rounds + 2))
                    np.testing.assert_allclose(file["rounds/train_loss"][:50], straight, rtol=1e-4)
                left = {name for name in self.names() if name.startswith("run.")}
                aside = {"run.old1.h5", "run.old1.ckpt.50.h5"}
                self.assertIn(left - aside, [{"run.h5", f"run.ckpt.{rounds + 1}.h5"}])
                self.assertIn(left & aside, [set(), aside])

    def first_ended(self, processes):
        """The one that is still at work, and the end of the other."""
        deadline = time.monotonic() + HANG
        while True:
            for process, other in (processes, processes[::-1]):
                if process.poll() is not None:
                    return other, finish(process)
            self.assertLess(time.monotonic(), deadline, "both go on")
            time.sleep(0.01)

    def test_a_run_is_refused_while_another_one_goes_on(self):
        """Under any name that shares its files, and to the very end."""
        process = start("run", "run.ini", "--run.rounds=100000", cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, lambda: (self.folder / "run.ckpt.50.h5").exists())
        (self.folder / "link.h5").symlink_to("run.h5")
        began = time.monotonic()
        for arguments in (["run", "run.ini"], ["run", "run.ini", "--run.output=link.h5"], ["run", "run.ini", "--force"],
                          ["run", "run.ini", "--run.output=run"], ["resume", "run.h5"], ["resume", "link.h5"],
                          ["resume", "run.ckpt.50.h5"], ["resume", "other.h5", "--run.output=run.h5"]):
            done = fedhpc(*arguments, cwd=self.folder)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(f"another run is writing it (process {process.pid} on ", done.stderr)
        self.assertLess(time.monotonic() - began, 20, "nobody waits for a process that lives")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(finish(process).returncode, 75)
        self.assertNotIn("run.lock", self.names())

    def test_a_file_of_the_locks_name_is_left_alone(self):
        (self.folder / "uv.lock").write_text("version = 1\n")
        for command in (["run", "run.ini"], ["resume", "uv.h5"]):
            done = fedhpc(*command, "--run.output=uv.h5", cwd=self.folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual((self.folder / "uv.lock").read_text(), "version = 1\n")
        done = fedhpc("run", "run.ini", "--run.output=uv.h5", cwd=self.folder)
        self.assertIn("its lock 'uv.lock' cannot be made: another file has this name", done.stderr)
        self.assertNotIn("uv.h5", self.names())

    def test_a_link_may_lead_to_what_is_not_there_yet(self):
        (self.folder / "disk").mkdir()
        (self.folder / "first.h5").symlink_to("second.h5")
        (self.folder / "second.h5").symlink_to("disk/run.h5")
        self.run_ok("run", "run.ini", "--run.output=first.h5", "--run.rounds=2", "--run.checkpoint_every=1")
        self.assertTrue((self.folder / "first.h5").is_symlink())
        self.assertEqual(sorted(path.name for path in (self.folder / "disk").iterdir()),
                         ["run.ckpt.2.h5", "run.h5"])
        for target in ("no/folder/run.h5", "itself.h5"):
            with self.subTest(target):
                (self.folder / "itself.h5").unlink(missing_ok=True)
                (self.folder / "itself.h5").symlink_to(target)
                done = fedhpc("run", "run.ini", "--run.output=itself.h5", "--run.rounds=1", cwd=self.folder)
                self.assertNotEqual(done.returncode, 0)
                self.assertTrue((self.folder / "itself.h5").is_symlink(), done.stderr)

    def test_a_killed_run_leaves_a_lock_that_holds_nothing(self):
        for command in ("resume", "run"):
            with self.subTest(command):
                process = start("run", "run.ini", "--run.rounds=100000", cwd=self.folder)
                wait_until(process, lambda: (self.folder / "run.ckpt.50.h5").exists())
                os.kill(ranks_of(process)[0], signal.SIGKILL)  # and go on at once
                if command == "run":
                    self.run_ok("run", "run.ini")
                    self.assertGreater(rounds_in(self.folder / "run.old1.h5"), 49)
                else:
                    self.run_ok("resume", "run.h5", "--run.rounds=2000")
                    self.assertEqual(status(self.folder / "run.h5"), ("complete", 2000))
                finish(process)
                self.assertNotIn("run.lock", self.names())
                for path in self.folder.glob("run.*h5"):
                    path.unlink()


class SecondRun(OutputCase):
    def test_an_earlier_result_is_set_aside(self):
        self.run_ok("run", "run.ini", "--run.rounds=50")
        first = (self.folder / "run.h5").read_bytes(), (self.folder / "run.ckpt.50.h5").read_bytes()
        done = self.run_ok("run", "run.ini", "--run.rounds=60")
        self.assertIn("the earlier result is now run.old1.h5\n", done.stdout)
        self.run_ok("run", "run.ini", "--run.rounds=70", ranks=2)
        self.assertEqual(self.names(), ["run.ckpt.70.h5", "run.h5", "run.old1.ckpt.50.h5", "run.old1.h5",
                                        "run.old2.ckpt.60.h5", "run.old2.h5"])
        self.assertEqual(((self.folder / "run.old1.h5").read_bytes(),
                          (self.folder / "run.old1.ckpt.50.h5").read_bytes()), first)
        self.run_ok("resume", "run.old1.h5", "--run.rounds=70")
        self.assertEqual(status(self.folder / "run.old1.h5"), ("complete", 70))
        self.run_ok("run", "run.ini", "--force", "--run.rounds=10")
        self.assertEqual(status(self.folder / "run.h5"), ("complete", 10))
        self.assertEqual([name for name in self.names() if ".old" not in name], ["run.ckpt.10.h5", "run.h5"])

    def test_what_is_not_a_result_is_set_aside_as_well(self):
        (self.folder / "run.h5").write_text("notes")
        self.run_ok("run", "run.ini", "--run.rounds=2")
        self.assertEqual((self.folder / "run.old1.h5").read_text(), "notes")

    def test_checkpoints_without_their_result(self):
        self.run_ok("run", "run.ini", "--run.rounds=50")
        (self.folder / "run.h5").unlink()
        self.run_ok("run", "run.ini", "--run.rounds=2")
        self.assertIn("run.old1.ckpt.50.h5", self.names())

    def test_a_refused_run_moves_nothing(self):
        self.run_ok("run", "run.ini", "--run.rounds=50")
        self.assertIn("train.lr", self.refused("run", "run.ini", "--train.lr=-1"))
        self.assertIn("data.partition_file", self.refused("run", "run.ini", "--data.partition=file"))

    def test_resuming_from_an_older_checkpoint_loses_nothing(self):
        self.run_ok("run", "run.ini", "--run.rounds=50")
        older = (self.folder / "run.ckpt.50.h5").read_bytes()
        self.run_ok("resume", "run.h5", "--run.rounds=80")
        self.assertNotIn("run.old1.h5", self.names())
        (self.folder / "run.ckpt.50.h5").write_bytes(older)
        self.run_ok("resume", "run.ckpt.50.h5", "--run.rounds=60")
        self.assertEqual(status(self.folder / "run.h5"), ("complete", 60))
        self.assertEqual(status(self.folder / "run.old1.h5"), ("complete", 80))
        self.assertEqual(self.names(), ["run.ckpt.60.h5", "run.h5", "run.old1.ckpt.80.h5", "run.old1.h5"])

    def test_a_complete_run_has_nothing_left_to_do(self):
        done = self.run_ok("run", "run.ini")
        self.assertEqual(done.stdout.splitlines()[-1],
                         f"complete after round {ROUNDS}: run.h5; to look at it: tools/plot.py run.h5")
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in self.folder.iterdir()}
        for arguments in (["run.h5"], [f"run.ckpt.{ROUNDS}.h5"], ["run.h5", "--run.eval_every=2"]):
            for ranks in (0, 2):
                done = self.run_ok("resume", *arguments, ranks=ranks)
                self.assertEqual(done.stdout, f"nothing to do: run.h5 is complete with {ROUNDS} rounds; for more of "
                                 "them: fedhpc resume run.h5 --run.rounds=N\n")
        self.assertEqual(self.run_ok("resume", "run.h5", "--run.progress=none").stdout, "")
        (self.folder / f"run.ckpt.{ROUNDS}.h5").rename(self.folder / "moved")
        self.assertIn(f"complete with {ROUNDS} rounds, and for more there is no checkpoint",
                      self.refused("resume", "run.h5"))
        (self.folder / "moved").rename(self.folder / f"run.ckpt.{ROUNDS}.h5")
        self.assertEqual({path: (path.read_bytes(), path.stat().st_mtime_ns) for path in self.folder.iterdir()}, before)

    def test_a_run_killed_before_its_first_checkpoint_starts_anew(self):
        process = start("run", "run.ini", "--run.checkpoint_every=0", "--run.rounds=100000", cwd=self.folder)
        path = self.folder / "run.h5"
        wait_until(process, lambda: path.exists() and rounds_in(path) > 0)
        process.kill()
        finish(process)
        done = fedhpc("resume", "run.h5", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("start the run anew", done.stderr)
        self.run_ok("run", "run.ini", "--run.rounds=1")


class Names(OutputCase):
    def test_odd_names_can_be_resumed(self):
        for name in ("a #3", "with space", ' "quoted"', "semi;colon", "back\\slash", "line\nbreak", "[x]", "ü", "'"):
            with self.subTest(name):
                self.ini(CONFIG, f"{name}.ini")
                done = self.run_ok("run", f"{name}.ini", "--run.rounds=2")
                path = self.folder / f"{name}.h5"
                self.assertEqual(status(path), ("complete", 2))
                shown = subprocess.run(["bash", "-c", "printf %s " + done.stdout.split("tools/plot.py ")[1]],
                                       capture_output=True, text=True, check=True).stdout
                self.assertEqual(shown, f"{name}.h5")
                self.run_ok("resume", f"{name}.h5", "--run.rounds=3")
                self.assertEqual(status(path), ("complete", 3))
                with h5py.File(path) as file:
                    self.ini(file.attrs["config"].decode(), "again.ini")
                self.run_ok("run", "again.ini", "--run.rounds=1")
                self.assertEqual(status(path), ("complete", 1))

    def test_a_name_has_to_leave_room_for_those_of_checkpoints(self):
        self.run_ok("run", "run.ini", "--run.rounds=1", f"--run.output={'a' * 240}.h5")
        for length in (241, 300):
            self.assertIn("a shorter name", self.refused("run", "run.ini", "--run.rounds=1",
                                                         f"--run.output={'a' * length}.h5"))

    def test_names_of_files_beside_a_result_are_refused(self):
        for name in ("run.ckpt.3.h5", "run.lock", "run.h5.tmp"):
            self.assertIn("run.output", self.refused("run", "run.ini", f"--run.output={name}"))
        self.ini(CONFIG, "run.ckpt.3.ini")
        self.assertIn("run.output", self.refused("run", "run.ckpt.3.ini"))


    def test_two_results_do_not_share_the_names_of_their_checkpoints(self):
        for first, second in (("s", "s.h5"), ("t.h5", "t")):
            self.run_ok("run", "run.ini", "--run.rounds=1", f"--run.output={first}")
            self.assertIn(f"its checkpoints would be those of '{first}'",
                          self.refused("run", "run.ini", "--run.rounds=1", f"--run.output={second}"))
        self.ini(CONFIG, "u")
        self.run_ok("run", "u", "--run.rounds=1", "--run.output=u.h5")


class Room(SmallDisk, OutputCase):
    def test_no_room_is_found_before_the_first_round(self):
        wide = ["--model.hidden=20000", "--run.save=personal", "--algorithm.name=localonly"]
        done = fedhpc("run", "run.ini", "--run.output=disk/run.h5", *wide, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"^fedhpc: error: run\.output 'disk/run\.h5' has no room: .* [\d.]+ MB are needed, "
                                      r"[\d.]+ MB are free; make room .*\n$")
        self.assertEqual(self.names(self.disk), [])

    def test_a_run_that_may_not_fit_is_warned_of(self):
        done = self.run_ok("run", "run.ini", "--run.output=disk/run.h5", "--run.rounds=3")
        self.assertEqual(done.stderr, "")
        done = self.run_ok("run", "run.ini", "--run.output=disk/run.h5", "--run.rounds=2000", "--run.checkpoint_every=0",
                           "--run.eval_every=100")
        self.assertEqual(done.stderr, "")
        process = start("run", "run.ini", "--run.output=disk/more.h5", "--run.rounds=1000000", cwd=self.folder)
        wait_until(process, lambda: (self.disk / "more.h5").exists())
        process.send_signal(signal.SIGUSR1)
        done = finish(process)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertRegex(done.stderr, r"^fedhpc: warning: all rounds of 'disk/more\.h5' and their checkpoints may take "
                                      r"[\d.]+ [MG]B, [\d.]+ MB are free\n$")

    def test_the_advice_on_a_full_disk_works(self):
        for every, goes_on in ((0, False), (50, True)):
            with self.subTest(every=every):
                process = start("run", "run.ini", "--run.output=disk/run.h5", "--run.rounds=100000",
                                f"--run.checkpoint_every={every}", cwd=self.folder)
                ready = "run.ckpt.50.h5" if every else "run.h5"
                wait_until(process, lambda: (self.disk / ready).exists())
                self.fill()
                done = finish(process)
                self.assertEqual(done.returncode, 1, done.stderr)
                (self.disk / "ballast").unlink()
                said = done.stderr.splitlines()[-1]
                if goes_on:
                    self.assertRegex(said, r"then 'fedhpc resume disk/run\.h5' goes on after round \d+$")
                    rounds = int(said.split()[-1])
                    self.run_ok("resume", "disk/run.h5", f"--run.rounds={rounds + 1}")
                else:
                    self.assertTrue(said.endswith("give the same command again: there is no checkpoint of it yet"), said)
                    self.run_ok("run", "run.ini", "--run.output=disk/run.h5", "--run.rounds=3", "--force")
                self.assertEqual([name for name in self.names(self.disk) if name.endswith((".tmp", ".lock"))], [])


class FileLimit(OutputCase):
    def test_a_file_beyond_its_limit_is_an_error_like_a_full_disk(self):
        """ulimit -f, as some clusters set it: SIGXFSZ would kill the run without a word."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))  # noqa: E731
        done = finish(start("run", "run.ini", "--run.rounds=100000", "--run.checkpoint_every=200", cwd=self.folder,
                            preexec_fn=limit))
        self.assertEqual(done.returncode, 1, done.stderr)
        said = done.stderr.splitlines()[-1]
        self.assertIn("File too large", said)
        self.assertRegex(said, r"then 'fedhpc resume run\.h5' goes on after round \d+$")
        rounds = int(said.split()[-1])
        self.run_ok("resume", "run.h5", f"--run.rounds={rounds + 1}")
        self.assertEqual(status(self.folder / "run.h5"), ("complete", rounds + 1))


if __name__ == "__main__":
    if "--races" in sys.argv:
        at = sys.argv.index("--races")
        races = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    main()
