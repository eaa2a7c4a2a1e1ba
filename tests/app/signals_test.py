"""Signals: the first one ends a run after its round, with a checkpoint and exit code 75; the second one
at once.
"""

import os
import signal
import time

import h5py
from app_support import SMALL_RUN, AppCase, contents, finish, main, ranks_of, rounds_in, start, wait_until

CONFIG = """[run]
rounds = 100000
checkpoint_every = 0
""" + SMALL_RUN + "block = 2\n"
# A round that takes seconds: long enough for a second signal.
SLOW = ["--train.local_steps=2000000"]


class Signals(AppCase):
    def begin(self, *arguments, ranks=0, until="round"):
        """Starts a run and waits until it has done a round (or has its file)."""
        process = start("run", self.ini(CONFIG, "run.ini"), *arguments, ranks=ranks, cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        path = self.folder / "run.h5"
        wait_until(process, lambda: path.exists() and (until == "file" or rounds_in(path) > 0))
        return process, path

    def interrupted(self, process, path):
        done = finish(process)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual([line for line in done.stderr.splitlines() if "fedhpc:" in line], [])
        with h5py.File(path) as file:
            self.assertEqual(file.attrs["status"], b"interrupted")
            self.assertRegex(file.attrs["finished"].decode(), r"^\d{4}-")
            rounds = len(file["rounds/round"])
            model = {name: data[...] for name, data in file["model/global"].items()}
        self.assertEqual([p.name for p in self.folder.glob("run.ckpt.*")], [f"run.ckpt.{rounds}.h5"])
        with h5py.File(self.folder / f"run.ckpt.{rounds}.h5") as file:
            for name, values in model.items():
                self.assertEqual(file["model/global"][name][...].tobytes(), values.tobytes())
                self.assertTrue(values.any(), "the model is there")
        self.assertIn(f"interrupted after round {rounds}/100000; to go on: fedhpc resume run.h5", done.stdout)
        self.run_ok("resume", "run.h5", f"--run.rounds={rounds + 2}")
        return rounds

    def test_every_signal_alone(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            with self.subTest(number.name):
                process, path = self.begin()
                process.send_signal(number)
                self.interrupted(process, path)
                for file in self.folder.glob("*.h5"):
                    file.unlink()

    def test_nohup_outlives_the_terminal(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what is started now ignores it, too
        try:
            process, path = self.begin()
        finally:
            signal.signal(signal.SIGHUP, before)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(process.poll(), "the run goes on")
        process.send_signal(signal.SIGTERM)
        self.interrupted(process, path)

    def test_a_reader_that_has_gone_ends_nothing(self):
        ini = self.ini(CONFIG, "small.ini")
        reader, writer = os.pipe()
        os.close(reader)
        try:
            process = start("run", ini, "--run.rounds=3", "--run.progress=plain", "--run.output=small.h5", cwd=self.folder, stdout=writer)
        finally:
            os.close(writer)
        self.assertEqual(finish(process).returncode, 0)
        with h5py.File(self.folder / "small.h5") as file:
            self.assertEqual(file.attrs["status"], b"complete")

    def test_usr1_to_the_launcher_reaches_every_rank(self):
        process, path = self.begin(ranks=3)
        process.send_signal(signal.SIGUSR1)
        self.interrupted(process, path)

    def test_usr1_to_one_rank_stops_all(self):
        for chosen in (0, -1):
            with self.subTest(chosen):
                process, path = self.begin(ranks=2)
                os.kill(ranks_of(process)[chosen], signal.SIGUSR1)
                self.interrupted(process, path)
                for file in self.folder.glob("*.h5"):
                    file.unlink()

    def test_a_second_signal_ends_at_once(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                process, path = self.begin(*SLOW, ranks=ranks, until="file")
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.5)
                self.assertIsNone(process.poll(), "the round goes on")
                process.send_signal(signal.SIGUSR1)
                self.assertEqual(finish(process).returncode, 1)
                self.assertEqual(list(self.folder.glob("run.ckpt.*")), [])
                path.unlink()

    def test_the_first_one_is_answered_while_data_are_prepared(self):
        ini = self.ini("[data]\nname = glyphs\nclients = 1000000\n", "many.ini")
        process = start("run", ini, cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, (self.folder / "many.lock").exists)  # signals are caught
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stderr.readline(), "fedhpc: note: still preparing the data and the model, then stops "
                                                    "after a round; a second signal ends it at once\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process).returncode, 1)

    def test_a_long_round_is_left_between_blocks(self):
        keys = ["--run.rounds=2", "--train.local_steps=60000", "--train.block=1", "--run.grace_seconds=0"]
        ini = self.ini(CONFIG, "run.ini")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                straight = self.folder / f"straight{ranks}.h5"
                done = start("run", ini, *keys, f"--run.output={straight}", ranks=ranks, cwd=self.folder)
                self.assertEqual(finish(done).returncode, 0)
                path = self.folder / "run.h5"
                process = start("run", ini, *keys, ranks=ranks, cwd=self.folder)
                self.addCleanup(lambda one=process: (one.kill(), one.communicate()))
                left = 0
                file_before = None
                for _ in range(100):
                    # The file takes its place when the rounds begin.
                    wait_until(process, lambda: process.poll() is not None or
                               (path.exists() and path.stat().st_ino != file_before))
                    time.sleep(0.3)
                    if process.poll() is None:
                        process.send_signal(signal.SIGUSR1)
                    done = finish(process)
                    if done.returncode == 0:
                        break
                    self.assertEqual(done.returncode, 75, done.stderr)
                    file_before = path.stat().st_ino
                    left += "interrupted inside round" in done.stdout
                    process = start("resume", "run.h5", ranks=ranks, cwd=self.folder)
                self.assertGreater(left, 0)
                self.assertEqual(contents(path), contents(straight))
                for file in self.folder.glob("*.h5"):
                    file.unlink()

    def test_the_last_checkpoint_stands(self):
        process, path = self.begin("--run.checkpoint_every=1")
        wait_until(process, lambda: list(self.folder.glob("run.ckpt.*.h5")))
        os.kill(process.pid, signal.SIGUSR1)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(finish(process).returncode, 1)
        newest = max(int(p.name.split(".")[2]) for p in self.folder.glob("run.ckpt.*.h5"))
        self.run_ok("resume", path, f"--run.rounds={newest + 1}")


if __name__ == "__main__":
    main()
