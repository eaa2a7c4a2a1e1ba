"""Runs killed by force at a random moment, or several times in a row, and resumed: the result equals
that of a run nobody disturbed bit for bit, no round is lost or doubled, every file opens.

    python3 kill_resume_test.py --fedhpc build/release/fedhpc [--kills 200] [unittest arguments]
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from app_support import (HANG, SHORT, AppCase, contents, edited, fedhpc, finish, is_gone, main, ranks_of, start,
                         wait_until)

ROUNDS = 40
CONFIG = """[run]
rounds = {rounds}
seed = 4
eval_every = 3
checkpoint_every = 4
save = init,partition,draws
progress = none
[data]
name = synthetic
clients = 7
samples_per_client = 40
features = 20
[model]
name = dnn
hidden = 300,100
[topology]
participation = 0.6
[train]
batch_size = 4
local_epochs = 2
lr = 0.05
block = 2
"""
# Clients with rows of their own, some of which are trained away from home in every round.
AWAY = (CONFIG.replace("participation = 0.6", "participation = 0.4\nplacement = balanced")
        + "[algorithm]\nname = ditto\n")
LAUNCHER_PATIENCE = 10.0  # s for which a launcher without ranks may live on
kills = 4 if SHORT else 12


def checkpoint_rounds(folder, stem="run"):
    return sorted(int(path.name.split(".")[2]) for path in Path(folder).glob(f"{stem}.ckpt.*.h5"))


class KillAndResume(AppCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.shared / "run.ini").write_text(CONFIG.format(rounds=ROUNDS))
        (cls.shared / "away").mkdir()
        (cls.shared / "away" / "run.ini").write_text(AWAY.format(rounds=ROUNDS))
        cls.straight = {}
        cls.seconds = {}
        for ranks in (0, 2, 3, "away"):
            cls.straight[ranks] = cls.run_straight(ranks)
        cls.random = random.Random(20250131)

    @classmethod
    def ini(cls, ranks):
        """The configuration of a case: a number of ranks, or 3 of them whose clients move."""
        return cls.shared / ("away" if ranks == "away" else "") / "run.ini"

    @classmethod
    def run_straight(cls, ranks):
        """What a run nobody disturbs has written."""
        folder = cls.shared / f"straight{ranks}"
        folder.mkdir()
        began = time.monotonic()
        done = fedhpc("run", cls.ini(ranks), ranks=3 if ranks == "away" else ranks, cwd=folder)
        assert done.returncode == 0, done.stderr
        cls.seconds[ranks] = time.monotonic() - began
        if ranks == "away":
            with h5py.File(folder / "run.h5") as file:
                assert (file["rounds/bytes_moved"][...] > 0).mean() > 0.3, "clients move in many rounds"
        return contents(folder / "run.h5")

    def equal(self, path, expected):
        actual = contents(path)
        self.assertEqual(sorted(actual), sorted(expected))
        for name, value in expected.items():
            self.assertEqual(actual[name], value, name)
        with h5py.File(path) as file:
            self.assertEqual(file.attrs["status"], b"complete")
            np.testing.assert_array_equal(file["rounds/round"], np.arange(1, ROUNDS + 1))

    def kill_at(self, process, moment):
        """Kills a random rank after a while; whether there was one to be killed. Then no rank lives
        on. A launcher whose rank dies while the two still shake hands may wait for ever: that one,
        alone, is killed as well."""
        deadline = time.monotonic() + moment
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.005)
        ranks = ranks_of(process) if process.poll() is None else []
        if not ranks:
            return finish(process).returncode != 0
        os.kill(self.random.choice(ranks), signal.SIGKILL)
        deadline = time.monotonic() + HANG
        while not all(is_gone(pid) for pid in ranks):
            self.assertLess(time.monotonic(), deadline, "a rank lives on")
            time.sleep(0.01)
        try:
            process.communicate(timeout=LAUNCHER_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return True

    def every_file_opens(self):
        for path in self.folder.glob("*.h5"):
            mode = {} if ".ckpt." in path.name else {"swmr": True}
            with h5py.File(path, "r", libver="latest", **mode) as file:
                done = len(file["rounds/round"])
                np.testing.assert_array_equal(file["rounds/round"], np.arange(1, done + 1))
                for name, column in file["rounds"].items():
                    self.assertGreaterEqual(len(column), done, name)
                self.assertTrue(np.isfinite(file["rounds/train_loss"][:done]).all())
                file.visititems(lambda *_: None)  # each object opens, the models too
                if ".ckpt." in path.name:
                    self.assertEqual(path.name, f"run.ckpt.{done}.h5")
                    self.assertTrue(all(np.isfinite(data).all() for data in file["model/global"].values()))

    def resume_until_done(self, ranks, again):
        """Resumes, being killed `again` times more; starts anew where no checkpoint was reached."""
        for attempt in range(100):
            rounds = checkpoint_rounds(self.folder)
            self.assertLessEqual(len(rounds), 3)
            words = ["resume", "run.h5"] if rounds else ["run", self.ini(ranks)]
            process = start(*words, ranks=3 if ranks == "away" else ranks, cwd=self.folder)
            if attempt < again:
                self.kill_at(process, self.random.uniform(0, 1) * self.seconds[ranks])
                self.every_file_opens()
                continue
            done = finish(process)
            self.assertEqual(done.returncode, 0, done.stderr)
            return
        self.fail("never done")

    def killed_midway(self, ranks):
        """Kills a run somewhere in its time; whether it was there to be killed, at the third try at the latest. A run
        that is over too soon says how long one takes now that the machine has less to do."""
        for _ in range(3):
            for path in self.folder.iterdir():
                path.unlink()
            began = time.monotonic()
            process = start("run", self.ini(ranks), ranks=3 if ranks == "away" else ranks, cwd=self.folder)
            if self.kill_at(process, self.random.uniform(0.2, 1) * self.seconds[ranks]):
                return True
            self.seconds[ranks] = time.monotonic() - began
        return False

    def test_kills(self):
        killed = 0
        for number in range(kills):
            ranks = "away" if number % 2 == 1 else self.random.choice([0, 2, 2, 3])
            with self.subTest(number=number, ranks=ranks):
                killed += self.killed_midway(ranks)
                self.every_file_opens()
                self.resume_until_done(ranks, again=number % 4 == 3)
                self.equal(self.folder / "run.h5", self.straight[ranks])
                self.assertEqual(checkpoint_rounds(self.folder), [ROUNDS])
                self.assertEqual([path.name for path in self.folder.glob("*.tmp")], [])
        self.assertGreaterEqual(killed, kills // 2, "too many runs were over before they were killed")

    def interrupted(self, ranks=0, *keys):
        """A run stopped by a signal after its first checkpoint."""
        process = start("run", self.shared / "run.ini", "--run.rounds=100000", *keys, ranks=ranks,
                        cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, lambda: checkpoint_rounds(self.folder))
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(finish(process).returncode, 75)
        done = checkpoint_rounds(self.folder)[-1]
        self.assertLess(done, ROUNDS, "stopped early enough to go on")

    def test_another_number_of_ranks(self):
        for before, after in ((0, 2), (2, 0), (2, 3)):
            with self.subTest(before=before, after=after):
                self.interrupted(before)
                self.run_ok("resume", "run.h5", f"--run.rounds={ROUNDS}", ranks=after)
                with h5py.File(self.folder / "run.h5") as file:
                    self.assertEqual(file.attrs["ranks"], max(after, 1))
                    self.assertEqual(len(file["hostnames"]), max(after, 1))
                for name, (shape, dtype, raw) in self.straight[0].items():
                    if name.startswith(("model/", "draws/", "clients/edge")) or name.endswith("train_loss"):
                        actual = contents(self.folder / "run.h5")[name]
                        a = np.frombuffer(actual[2], dtype).astype(float)
                        b = np.frombuffer(raw, dtype).astype(float)
                        self.assertEqual(actual[0], shape, name)
                        self.assertLessEqual(np.linalg.norm(a - b), 1e-5 * np.linalg.norm(b), name)
                for path in self.folder.glob("*.h5"):
                    path.unlink()

    def test_another_number_of_ranks_to_the_last_bit(self):
        exactly = ["--run.reproducible=true"]
        straight = self.folder / "straight"
        straight.mkdir()
        self.run_ok("run", self.shared / "run.ini", *exactly, f"--run.output={straight}/run.h5", ranks=2)
        expected = contents(straight / "run.h5")
        for before, after in ((0, 3), (3, 2)):
            with self.subTest(before=before, after=after):
                self.interrupted(before, *exactly)
                self.run_ok("resume", "run.h5", f"--run.rounds={ROUNDS}", ranks=after)
                self.equal(self.folder / "run.h5", expected)
                for path in self.folder.glob("*.h5"):
                    path.unlink()

    def test_a_checkpoint_is_enough(self):
        self.interrupted()
        newest = checkpoint_rounds(self.folder)[-1]
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        os.rename(self.folder / f"run.ckpt.{newest}.h5", elsewhere / f"run.ckpt.{newest}.h5")
        self.run_ok("resume", f"elsewhere/run.ckpt.{newest}.h5", f"--run.rounds={ROUNDS}")
        self.equal(elsewhere / "run.h5", self.straight[0])
        with h5py.File(elsewhere / "run.h5") as file:
            self.assertIn("; ", file.attrs["command_line"].decode())
            self.assertIn("output = elsewhere/run.h5\n", file.attrs["config"].decode())

    def test_another_type_of_processor_is_told_and_kept(self):
        self.run_ok("run", self.shared / "run.ini", "--run.rounds=2", "--run.output=type.h5")
        checkpoint = max(self.folder.glob("type.ckpt.*.h5"))
        with edited(checkpoint) as file:
            here = file.attrs["processor"]
            here = here.decode() if isinstance(here, bytes) else here
            file.attrs["processor"] = np.bytes_(b"Abacus, model 1")
        done = self.run_ok("resume", "type.h5", "--run.rounds=3")
        self.assertIn(f"was made on another type of processor (Abacus, model 1, here {here})", done.stderr)
        with h5py.File(self.folder / "type.h5") as file:
            self.assertEqual(file.attrs["processor"].decode(), f"Abacus, model 1 + {here}")

    def test_a_damaged_result_file_is_made_anew(self):
        self.interrupted()
        path = self.folder / "run.h5"
        whole = path.read_bytes()
        for name, damaged in {"cut off": whole[: len(whole) // 2],
                              "overwritten": whole[:200] + os.urandom(len(whole) - 200), "empty": b""}.items():
            with self.subTest(name):
                path.write_bytes(damaged)
                done = self.run_ok("resume", "run.h5", f"--run.rounds={ROUNDS}", "--run.output=run.h5")
                self.equal(path, self.straight[0])
                self.assertIn("warning", done.stderr)
                self.assertIn("run.h5", done.stderr)

    def test_a_damaged_checkpoint_is_passed_over(self):
        self.interrupted()
        older, newest = (self.folder / f"run.ckpt.{n}.h5" for n in checkpoint_rounds(self.folder)[-2:])
        newest.write_bytes(newest.read_bytes()[:-2000])
        done = self.run_ok("resume", "run.h5", f"--run.rounds={ROUNDS}")
        self.assertIn(newest.name, done.stderr)
        self.assertEqual(done.stderr.count("fedhpc: warning:"), 1)
        self.equal(self.folder / "run.h5", self.straight[0])

    def test_a_complete_run_is_extended(self):
        self.run_ok("run", self.shared / "run.ini", f"--run.rounds={ROUNDS - 4}")
        self.assertEqual(checkpoint_rounds(self.folder), [ROUNDS - 4])
        self.run_ok("resume", "run.h5", f"--run.rounds={ROUNDS}", "--run.output=longer.h5")
        self.equal(self.folder / "longer.h5", self.straight[0])
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(len(file["rounds/round"]), ROUNDS - 4, "the first file stays")
        self.assertEqual(checkpoint_rounds(self.folder), [ROUNDS - 4])
        self.assertEqual(checkpoint_rounds(self.folder, "longer"), [ROUNDS])

    def test_resuming_a_complete_run_changes_nothing(self):
        self.run_ok("run", self.shared / "run.ini")
        self.run_ok("resume", "run.h5")
        self.equal(self.folder / "run.h5", self.straight[0])

    def test_a_run_killed_after_its_last_words_is_closed(self):
        self.run_ok("run", self.shared / "run.ini")
        killed_writer = ("import h5py, os; file = h5py.File('run.h5', 'r+', libver='latest'); file.swmr_mode = True; "
                         "file.flush(); os._exit(1)")
        subprocess.run([sys.executable, "-c", killed_writer], cwd=self.folder, timeout=HANG)
        with self.assertRaises(OSError):
            h5py.File(self.folder / "run.h5")
        self.run_ok("resume", "run.h5")
        self.equal(self.folder / "run.h5", self.straight[0])

    def test_the_measured_block_width_is_reused(self):
        process = start("run", self.shared / "run.ini", "--train.block=auto", "--run.rounds=100000",
                        cwd=self.folder)
        wait_until(process, lambda: checkpoint_rounds(self.folder))
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process).returncode, 75)
        with h5py.File(self.folder / "run.h5") as file:
            before = file.attrs["block"]
        # A width that a measurement would not choose shows where the number comes from.
        newest = self.folder / f"run.ckpt.{checkpoint_rounds(self.folder)[-1]}.h5"
        with edited(newest) as file:
            file.attrs["block"] = before + 2
        self.run_ok("resume", "run.h5", f"--run.rounds={checkpoint_rounds(self.folder)[-1] + 1}")
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(file.attrs["block"], before + 2)


if __name__ == "__main__":
    if "--kills" in sys.argv:
        at = sys.argv.index("--kills")
        kills = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    main()
