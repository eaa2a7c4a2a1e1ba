"""Tests of what the tools that start runs do with an earlier result: nothing of it is lost."""

import fcntl
import tempfile
import unittest
from pathlib import Path

from tool_support import write_run

from fedhpc.tools import sweep  # noqa: E402
from fedhpc.tools.paper_table import Job, job_state  # noqa: E402
from fedhpc.tools.reproduction import is_written, remove_files, set_aside  # noqa: E402

CONFIG = "[run]\nseed=1\n"


class SetAside(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.job = Job("x", Path("x.ini"), (), {"run.seed": "1"}, self.folder / "a[1].0_x.h5")

    def write(self, status="complete", checkpoints=(40,), config=CONFIG):
        write_run(self.job.output, status=status, config=config)
        for number in checkpoints:
            (self.folder / f"a[1].0_x.ckpt.{number}.h5").touch()

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_results_get_the_names_the_program_gives(self):
        set_aside(self.job)
        self.assertEqual(self.names(), [])
        for _ in range(2):
            self.write(checkpoints=(20, 40))
            set_aside(self.job)
        self.assertEqual(self.names(), sorted(f"a[1].0_x.old{n}{end}.h5" for n in (1, 2)
                                              for end in ("", ".ckpt.20", ".ckpt.40")))

    def test_a_run_at_work_is_left_alone(self):
        self.write("running")
        with open(self.folder / "a[1].0_x.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.names()
            set_aside(self.job)
            remove_files(self.job)
            self.assertEqual(self.names(), before)
        set_aside(self.job)  # killed: the lock's file is still there and holds nothing
        self.assertIn("a[1].0_x.old1.h5", self.names())

    def test_unfinished_results_of_other_settings_are_kept(self):
        for status in ("complete", "interrupted", "failed", "running"):
            with self.subTest(status):
                self.write(status, config="[run]\nseed=2\n")
                sweep.prepare(self.job, job_state(self.job))
                self.assertFalse(self.job.output.exists())
        self.assertEqual(len(self.names()), 8)

    def test_a_failed_run_with_a_checkpoint_is_resumed(self):
        self.write("failed")
        self.assertEqual(job_state(self.job).kind, "interrupted")
        self.write("failed", checkpoints=())
        (self.folder / "a[1].0_x.ckpt.40.h5").unlink()
        self.assertEqual(job_state(self.job).kind, "missing")

    def test_what_a_run_has_lies_beside_what_a_link_leads_to(self):
        (self.folder / "far").mkdir()
        self.write("failed")
        for path in list(self.folder.glob("a*")):
            path.rename(self.folder / "far" / path.name.replace("a[1].0_x", "b"))
        self.job.output.symlink_to("far/b.h5")
        self.assertEqual(job_state(self.job).kind, "interrupted")
        with open(self.folder / "far" / "b.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertTrue(is_written(self.job.output))
            self.assertFalse(set_aside(self.job))
        self.assertFalse(is_written(self.job.output))
        self.assertTrue(set_aside(self.job))
        self.assertTrue(self.job.output.is_symlink(), "the next run writes what it leads to")
        self.assertEqual(sorted(path.name for path in (self.folder / "far").iterdir()),
                         ["b.lock", "b.old1.ckpt.40.h5", "b.old1.h5"])
        write_run(self.folder / "far" / "b.h5")
        remove_files(self.job)
        self.assertFalse((self.folder / "far" / "b.h5").exists())


if __name__ == "__main__":
    unittest.main()
