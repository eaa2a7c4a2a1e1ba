"""Tests of jobs/environment.sh: what becomes of a job whose run was killed, cannot get on, or was complete before."""

import unittest

from test_jobs import JobCase


class Killed(JobCase):
    def killed(self, restart, checkpoint=None, **variables):
        """A start of a job whose run is killed; whether it went back into the queue, and what it said."""
        given = {"FAKE_CHECKPOINT": str(checkpoint)} if checkpoint is not None else {}
        (self.folder / "calls.log").unlink(missing_ok=True)
        code, said = self.to_the_end(FAKE_CODE="137", SLURM_RESTART_COUNT=str(restart), **given, **variables)
        self.assertEqual(code, 137)
        return self.calls("scontrol") == ["scontrol requeue 7"], said

    def test_again_and_again_without_progress_ends_the_job(self):
        (self.folder / "run.ckpt.5.h5").touch()
        for restart in range(3):
            self.assertTrue(self.killed(restart)[0])
        again, said = self.killed(3)
        self.assertFalse(again)
        self.assertIn("killed (exit code 137) 4 times in a row without a new checkpoint: too little memory? Not requeued", said)
        self.assertEqual(list(self.folder.glob("*kills*")), [], "the same command begins to count anew")

    def test_one_kill_after_many_restarts_is_not_many_kills(self):
        (self.folder / "run.ckpt.5.h5").touch()
        for restart in range(7, 10):
            self.assertTrue(self.killed(restart)[0], restart)
        self.assertFalse(self.killed(10)[0])

    def test_a_new_checkpoint_begins_the_count_anew(self):
        for restart in range(3):
            self.assertTrue(self.killed(restart)[0])
        self.assertTrue(self.killed(3, checkpoint=0)[0], "that of round 0 is one")
        for restart in range(4, 7):
            self.assertTrue(self.killed(restart, checkpoint=0)[0], "it is no longer new")
        self.assertFalse(self.killed(7)[0])
        for restart in range(1, 4):
            self.killed(restart)
        (self.folder / "run.ckpt.9.h5").touch()  # of a start that did not come to its end
        self.assertTrue(self.killed(4)[0])

    def test_a_job_that_begins_counts_from_its_own_beginning(self):
        for _ in range(5):
            self.assertTrue(self.killed(0)[0])

    def test_a_run_that_ends_otherwise_begins_the_count_anew(self):
        for restart in range(3):
            self.killed(restart)
        self.to_the_end(FAKE_CODE="75", SLURM_RESTART_COUNT="3")
        self.assertTrue(self.killed(4)[0])

    def test_a_job_that_the_scheduler_takes_back_is_not_short_of_memory(self):
        for restart in range(6):
            again, said = self.killed(restart, FAKE_STATE="COMPLETING")
            self.assertFalse(again)
            self.assertIn("exit code 137; the job is being ended already, not requeued from here", said)
            self.assertNotIn("memory", said)
        self.assertTrue(self.killed(6)[0])

    def test_runs_of_an_array_are_counted_apart(self):
        for seed in (1, 2):
            for restart in range(3):
                again, said = self.bash(f'run_to_the_end 1 "$@" --run.output=run{seed}.h5', "run.ini", FAKE_CODE="137",
                                        SLURM_RESTART_COUNT=str(restart))
                self.assertNotIn("in a row", said)


if __name__ == "__main__":
    unittest.main()
