"""What goes wrong in the middle of a run: a rank that is stuck, that fails or that is gone, a full disk.
Every rank ends, with one line that says what happened, and the run can be taken up again.
"""

import errno
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
from app_support import (
    HANG, SMALL_RUN, AppCase, SmallDisk, fedhpc, finish, is_gone, killed_codes, main, open_mpi, ranks_of, rounds_in,
    start, wait_until,
)

CONFIG = """[run]
rounds = 100000
checkpoint_every = 5
progress = none
""" + SMALL_RUN + "block = 1\n"


class FaultCase(AppCase):
    def begin(self, *arguments, ranks=0, output="run.h5", ready=lambda path: rounds_in(path) > 5, env=None):
        """Starts a run and waits until it is under way: the launcher, the ranks, the result file."""
        path = self.folder / output
        process = start("run", self.ini(CONFIG, "run.ini"), f"--run.output={output}", *arguments, ranks=ranks,
                        cwd=self.folder, env=env)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        wait_until(process, lambda: ready(path))
        return process, ranks_of(process), path

    def least_memory(self, pid):
        """Bytes of address space that a process has at least in some rounds."""
        sizes = []
        for _ in range(100):
            sizes.append(int(Path(f"/proc/{pid}/statm").read_text().split()[0]))
            time.sleep(0.005)
        return min(sizes) * os.sysconf("SC_PAGE_SIZE")

    def all_gone(self, pids):
        deadline = time.monotonic() + 2
        while not all(map(is_gone, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual([pid for pid in pids if not is_gone(pid)], [])

    def one_line(self, done, *words):
        # On the small file system there is a warning of it before the first round.
        lines = [line.strip("\0") for line in done.stderr.splitlines() if "fedhpc:" in line and "checkpoints may take" not in line]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], r"^fedhpc: error: rank \d+ on \S+: [a-z]+, .*\bin round \d+: ")
        for word in words:
            self.assertIn(word, lines[0])

    def resumes(self, path, ranks=0):
        """The run goes on from what is left of it."""
        done = rounds_in(path)
        self.run_ok("resume", path, f"--run.rounds={done + 20}", ranks=ranks)
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["rounds/round"], np.arange(1, done + 21))
            self.assertEqual(file.attrs["status"], b"complete")


class Faults(FaultCase):
    def test_a_stopped_rank_is_named_and_all_end(self):
        for stopped in (0, 1, 2):
            with self.subTest(stopped=stopped):
                process, ranks, path = self.begin("--run.collective_timeout=3", ranks=3)
                os.kill(ranks[stopped], signal.SIGSTOP)
                done = finish(process)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.one_line(done, f": rank {stopped} on ", "gives no sign of life (last heard of: ",
                              " in round ", " (collective ", "for 3 s", "run.collective_timeout")
                self.all_gone(ranks)
                self.resumes(path, ranks=2)
                for file in self.folder.glob("*.h5"):
                    file.unlink()

    def test_a_rank_stopped_while_it_starts_is_waited_for_no_longer(self):
        for delay in (0.0, 0.1, 0.3):  # while it loads, inside MPI's own start, in its first collectives
            with self.subTest(delay=delay):
                process = start("run", self.ini(CONFIG, "run.ini"), "--force", "--run.collective_timeout=3",
                                ranks=3, cwd=self.folder)
                self.addCleanup(lambda one=process: (one.kill(), one.communicate()))
                wait_until(process, lambda: len(ranks_of(process)) == 3)
                ranks = ranks_of(process)
                time.sleep(delay)
                os.kill(ranks[1], signal.SIGSTOP)
                done = finish(process)
                # Before MPI has started, MPICH's mpiexec adds the code of the rank that it has to kill.
                self.assertIn(done.returncode, {1, *(() if open_mpi() else killed_codes())}, done.stderr)
                self.assertIn("fedhpc: error: rank 0 on ", done.stderr)
                self.assertIn("run.collective_timeout", done.stderr)
                self.all_gone(ranks)

    def test_a_rank_inside_an_edge_is_named_as_well(self):
        process, ranks, path = self.begin("--run.collective_timeout=3", "--algorithm.name=hierfavg",
                                          "--topology.edges=2", ranks=4)
        os.kill(ranks[3], signal.SIGSTOP)
        done = finish(process)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.one_line(done, ": rank 3 on ", "gives no sign of life")
        self.all_gone(ranks)

    def test_long_work_of_one_rank_is_no_fault(self):
        """A rank whose blocks take far longer than the time-out in all, but not one by one."""
        partition = self.folder / "parts.h5"
        with h5py.File(partition, "w") as file:  # clients 0 to 7 have all the work, the last has none
            train = np.arange(9 * 40)
            file["train_offsets"] = np.minimum(np.arange(10) * 40, 8 * 40)
            file["train_samples"] = train[:8 * 40]
            file["test_offsets"] = np.arange(10)
            file["test_samples"] = train[8 * 40:8 * 40 + 9]
        long = ["--run.rounds=1", "--run.collective_timeout=2", "--data.partition=file", "--data.clients=9",
                f"--data.partition_file={partition}"]
        for steps in (100_000, 200_000, 400_000):  # the faster the machine, the more
            self.run_ok("run", self.ini(CONFIG, "run.ini"), *long, f"--train.local_steps={steps}", ranks=2)
            with h5py.File(self.folder / "run.h5") as file:
                if file["rounds/seconds_train"][0] > 2.5:
                    return
        self.fail("the other rank never waited beyond the time-out")

    def test_a_rank_that_fails_ends_all(self):
        """Its memory is limited while it runs: the next allocation fails on that rank alone."""
        fresh = {"MALLOC_MMAP_THRESHOLD_": "1000000"}  # rows come from the system, not from what was freed
        for ranks in (0, 2, 4):
            with self.subTest(ranks=ranks):
                process, pids, _ = self.begin("--model.hidden=3000,1000", "--run.checkpoint_every=2", ranks=ranks,
                                              ready=lambda path: rounds_in(path) > 1, env=fresh)
                used = self.least_memory(pids[-1])  # rows come and go; the stack may still grow
                resource.prlimit(pids[-1], resource.RLIMIT_AS, (used + (4 << 20), used + (64 << 20)))
                done = finish(process)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.one_line(done, f"rank {max(ranks - 1, 0)} on ", " in round ")
                self.all_gone(pids)
                for file in self.folder.glob("*.h5"):
                    file.unlink()

    def test_what_one_rank_alone_cannot_train_on_ends_all(self):
        """A token beyond the words that the model knows, at the last client."""
        tokens = [[client, *(client + token) % 8 * np.ones(1, dtype=int), token % 8, 1, 2, token]
                  for client in range(4) for token in range(20)]
        tokens[-1][2] = 1000
        rows = "\n".join(",".join(map(str, row)) for row in [["client", "a", "b", "c", "d", "label"], *tokens])
        (self.folder / "tokens.csv").write_text(rows + "\n")
        keys = ["--data.name=csv", "--data.file=tokens.csv", "--data.client_column=client", "--data.partition=natural",
                "--data.standardize=none", "--data.train_fraction=1", "--data.clients=4", "--model.name=lstm_leaf",
                "--model.units=8", "--train.batch_size=5", "--run.rounds=2", f"--run.collective_timeout={10 * HANG:g}"]
        (self.folder / "empty.ini").write_text("")
        for ranks in (0, 2):
            done = fedhpc("run", "empty.ini", *keys, cwd=self.folder, ranks=ranks)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.one_line(done, "the input holds 1000")

    def test_a_killed_rank_ends_all(self):
        process, ranks, path = self.begin(ranks=3)
        os.kill(ranks[1], signal.SIGKILL)
        self.assertIn(finish(process).returncode, killed_codes())
        self.all_gone(ranks)
        self.resumes(path, ranks=2)


class FullDisk(SmallDisk, FaultCase):
    def files(self):
        return {path.name: path.read_bytes() for path in self.disk.glob("*.h5")}

    def filled(self, leave, words, *arguments, ranks=0):
        process, _, path = self.begin(*arguments, ranks=ranks, output="disk/run.h5",
                                      ready=lambda path: list(path.parent.glob("*.ckpt.*.h5")))
        self.fill(leave)
        done = finish(process)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.one_line(done, *words)
        self.assertEqual(list(self.disk.glob("*.tmp")), [], "nothing unfinished is left")
        with h5py.File(path, "r", libver="latest", swmr=True) as file:
            rounds = len(file["rounds/round"])
            self.assertGreater(rounds, 0)
            self.assertTrue(np.isfinite(file["rounds/train_loss"][:rounds]).all())
            self.assertIn(file.attrs["status"], (b"failed", b"running"))

        before = self.files()
        refused = finish(start("resume", path, cwd=self.folder))
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertEqual(self.files(), before, "without room nothing is lost")
        (self.disk / "ballast").unlink()
        self.resumes(path, ranks=ranks)

    def test_no_room_for_a_checkpoint(self):
        self.filled(150_000, ["no room for checkpoint 'disk/run.ckpt.600.h5'", "free"],
                    "--run.checkpoint_every=300")

    def test_a_run_is_complete_without_its_last_checkpoint(self):
        """Clients' rows come with the rounds: there was room for a checkpoint of none of them."""
        run = ["run", self.ini(CONFIG, "run.ini"), "--algorithm.name=ditto", "--model.hidden=300", "--run.rounds=2",
               "--run.checkpoint_every=1000", "--run.output=disk/run.h5"]
        self.fill(150_000)
        refused = fedhpc(*run, cwd=self.folder)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn(" kB are needed", refused.stderr)
        needed = float(re.search(r"([0-9.]+) kB are needed", refused.stderr)[1])
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                (self.disk / "ballast").unlink(missing_ok=True)
                self.fill(int(1000 * needed) + 200_000)  # beside the result file
                done = fedhpc(*run, cwd=self.folder, ranks=ranks)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("no room for checkpoint 'disk/run.ckpt.2.h5'", done.stderr)
                self.assertIn("without it this run cannot go on to more rounds", done.stderr)
                with h5py.File(self.disk / "run.h5") as file:
                    self.assertEqual(file.attrs["status"], b"complete")
                    self.assertIn("global", file["model"])
                for path in self.disk.glob("*"):
                    path.unlink()

    def test_no_room_for_a_round(self):
        self.filled(0, ["disk/run.h5", "No space left", "then 'fedhpc resume disk/run.h5' goes on after round"],
                    "--run.checkpoint_every=300")

    def test_no_room_on_two_ranks(self):
        self.filled(0, ["rank 0 on", "disk/run"], ranks=2)


class UnwillingDisk(FaultCase):
    """On file systems of clusters, by calls that are preloaded."""

    def on_disk(self, *arguments, **wishes):
        library = os.environ.get("FEDHPC_UNWILLING_DISK")
        if library is None:
            self.skipTest("needs FEDHPC_UNWILLING_DISK")
        return finish(start(*arguments, cwd=self.folder, env={"LD_PRELOAD": library, **wishes}))

    def run_of(self, *arguments, **wishes):
        return self.on_disk("run", self.ini(CONFIG, "run.ini"), "--force", "--run.rounds=4", "--run.checkpoint_every=2",
                            "--model.hidden=300", "--run.output=run.h5", *arguments, **wishes)

    def test_a_checkpoint_that_loses_bytes_does_not_replace_the_one_before(self):
        for told in ("fsync", "close"):
            with self.subTest(told=told):
                done = self.run_of("--algorithm.name=ditto", FEDHPC_TEST_LOST="run.ckpt.4.h5.tmp", FEDHPC_TEST_TOLD=told)
                self.assertEqual(done.returncode, 1, done.stderr)
                for text in ("run.ckpt.4.h5", "quota exceeded", "goes on after round 2"):
                    self.assertIn(text, done.stderr)
                self.assertEqual([path.name for path in self.folder.glob("run.ckpt*")], ["run.ckpt.2.h5"])
                self.resumes(self.folder / "run.h5")

    def test_a_result_that_loses_bytes_is_not_complete(self):
        done = self.run_of(FEDHPC_TEST_LOST="run.h5", FEDHPC_TEST_TOLD="fsync")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("quota exceeded", done.stderr)
        self.assertNotIn(b"complete", (self.folder / "run.h5").read_bytes())

    def test_a_disk_without_locks_is_told_and_written(self):
        for refusal in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            with self.subTest(errno.errorcode[refusal]):
                done = self.run_of(FEDHPC_TEST_FLOCK=str(refusal))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("no lock can be put on 'run.h5'", done.stderr)
                for command in (["show", "run", "run.h5"], ["resume", "run.h5", "--run.rounds=6"]):
                    done = self.on_disk(*command, FEDHPC_TEST_FLOCK=str(refusal))
                    self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    main()
