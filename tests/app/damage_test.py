"""Files that were damaged somewhere: no crash, no hang, and never other numbers without a word.

    python3 damage_test.py --fedhpc build/release/fedhpc [unittest arguments]
"""

import random
import shutil
import signal

import h5py
from app_support import SMALL_RUN, AppCase, contents, fedhpc, finish, main, rounds_in, start, wait_until

ROUNDS = 6
CONFIG = f"""[run]
rounds = {ROUNDS}
seed = 3
checkpoint_every = 2
save = init,partition
progress = none
""" + SMALL_RUN + "block = 2\n"
CASES = 12  # of each kind


def cut(data, draw):
    return data[:draw.randrange(len(data) // 8, len(data))]


def flipped(data, draw):
    damaged = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def overwritten(data, draw):
    first = draw.randrange(len(data))
    return data[:first] + draw.randbytes(min(64, len(data) - first)) + data[first + 64:]


def damaged_superblock(data, draw):
    begin = data.index(b"\x89HDF")
    place = begin + draw.randrange(8, 48)
    return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1:]


KINDS = [cut, flipped, overwritten, damaged_superblock]


class Damage(AppCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.shared / "run.ini").write_text(CONFIG)
        done = fedhpc("run", cls.shared / "run.ini", cwd=cls.shared)
        assert done.returncode == 0, done.stderr
        cls.straight = contents(cls.shared / "run.h5")

    def ends_well(self, done):
        """Exit code 0, or 2 with one line; whether it was 0."""
        self.assertIn(done.returncode, (0, 2), done.stderr)
        if done.returncode == 2:
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("fedhpc: error:"), done.stderr)
        return done.returncode == 0

    def test_the_newest_checkpoint(self):
        process = start("run", self.shared / "run.ini", "--run.rounds=100000", "--run.checkpoint_every=1",
                        cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, lambda: len(list(self.folder.glob("run.ckpt.*.h5"))) >= 2 and rounds_in(
            self.folder / "run.h5") > 4)
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process).returncode, 75)
        newest, older = sorted(self.folder.glob("run.ckpt.*.h5"), key=lambda p: -int(p.name.split(".")[2]))[:2]
        last = int(newest.name.split(".")[2])
        whole = {path: path.read_bytes() for path in (newest, older, self.folder / "run.h5")}
        self.run_ok("resume", "run.h5", f"--run.rounds={last + 2}")
        expected = contents(self.folder / "run.h5")
        draw = random.Random(5)
        for number in range(CASES):
            kind = KINDS[number % len(KINDS)]
            with self.subTest(kind.__name__, number=number):
                for path in self.folder.glob("*.h5"):
                    path.unlink()
                for path, data in whole.items():
                    path.write_bytes(data)
                damaged = kind(whole[newest], draw)
                newest.write_bytes(damaged)
                done = fedhpc("resume", "run.h5", f"--run.rounds={last + 2}", cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                if damaged != whole[newest]:
                    self.assertIn(newest.name, done.stderr, "it says which one is damaged")
                self.assertEqual(contents(self.folder / "run.h5"), expected)

    def test_the_result_file_of_a_killed_run(self):
        process = start("run", self.shared / "run.ini", "--run.rounds=100000", cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        path = self.folder / "run.h5"
        wait_until(process, lambda: rounds_in(path) > 20)
        process.kill()
        process.communicate()
        whole = path.read_bytes()

        def exported():
            out = self.folder / "csv"
            shutil.rmtree(out, ignore_errors=True)
            done = fedhpc("export", path, "--csv", out, cwd=self.folder)
            return [file.read_bytes() for file in sorted(out.iterdir())] if self.ends_well(done) else None

        expected = exported()
        self.assertIsNotNone(expected, "a killed run's file can be read")
        draw = random.Random(6)
        refused = 0
        for number in range(CASES):
            kind = [cut, damaged_superblock][number % 2]
            with self.subTest(kind.__name__, number=number):
                path.write_bytes(kind(whole, draw))
                found = exported()
                refused += found is None
                if found is not None:
                    self.assertEqual(found, expected)
        self.assertGreater(refused, CASES // 4)

    def test_shapes_of_a_result_file(self):
        whole = (self.shared / "run.h5").read_bytes()
        path = self.folder / "run.h5"
        for name in ("rounds/train_loss", "rounds/round", "clients/edge", "clients/best_accuracy"):
            for values in (1.0, [], [[1.0, 2.0]], [b"text"] * ROUNDS):
                with self.subTest(name, values=values):
                    path.write_bytes(whole)
                    with h5py.File(path, "r+") as file:
                        del file[name]
                        file[name] = values
                    done = fedhpc("export", path, "--csv", self.folder / "csv", cwd=self.folder)
                    if not (name == "rounds/round" and values == []):  # no round is a round less
                        self.assertFalse(self.ends_well(done))

    def test_rounds_that_do_not_count_from_1(self):
        path = self.folder / "run.h5"
        path.write_bytes((self.shared / "run.h5").read_bytes())
        for values in ([0] * ROUNDS, [1, 2, 3, 3, 5, 6], range(2, ROUNDS + 2)):
            with h5py.File(path, "r+") as file:
                file["rounds/round"][...] = values
            done = fedhpc("export", path, "--csv", self.folder / "csv", cwd=self.folder)
            self.assertFalse(self.ends_well(done))
            self.assertFalse((self.folder / "csv").exists())

    def test_files_that_a_run_starts_from(self):
        whole = (self.shared / "run.h5").read_bytes()
        path = self.folder / "from.h5"
        keys = {"model": [f"--model.init_file={path}"],
                "partition": ["--data.partition=file", f"--data.partition_file={path}"]}
        draw = random.Random(7)
        for number in range(CASES):
            kind = [cut, damaged_superblock][number % 2]
            for what, arguments in keys.items():
                with self.subTest(kind.__name__, what=what, number=number):
                    path.write_bytes(kind(whole, draw))
                    done = fedhpc("run", self.shared / "run.ini", *arguments, "--run.rounds=2",
                                  "--run.output=out.h5", cwd=self.folder)
                    if self.ends_well(done):
                        started = contents(self.folder / "out.h5")
                        for name in ("model/init/global/fc1.weight", "partition/train_samples"):
                            self.assertEqual(started[name], self.straight[name])


if __name__ == "__main__":
    main()
