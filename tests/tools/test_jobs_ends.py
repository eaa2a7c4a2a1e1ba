"""Tests of jobs/environment.sh: what becomes of a job whose run was killed, cannot get on, or was complete before."""

import fcntl
import os
import time
import unittest

from test_jobs import JobCase

PROGRAM = os.environ.get("FEDHPC", "")
RUN = """[run]
rounds = 2
[data]
name = synthetic
clients = 4
samples_per_client = 20
[model]
name = mlr
[train]
lr = 0.1
"""


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

    def test_checkpoints_lie_beside_what_a_link_leads_to(self):
        (self.folder / "linked").mkdir()
        (self.folder / "linked/result.h5").symlink_to("../run.h5")
        for restart in range(6):
            code, said = self.bash('run_to_the_end 1 "$@"', "run.ini", "--run.output=linked/result.h5", FAKE_CODE="137",
                                   FAKE_CHECKPOINT=str(restart), SLURM_RESTART_COUNT=str(restart))
            self.assertEqual((code, len(self.calls("scontrol"))), (137, restart + 1), said)
            self.assertIn(f"going on with linked/result.h5 from its checkpoint of round {restart - 1} " if restart else
                          "beginning linked/result.h5 ", said)

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


class Ended(JobCase):
    def test_ranks_that_end_with_the_job_have_not_failed(self):
        """mpirun says 1 where SIGTERM has come to it."""
        for variables in ({"FAKE_STATE": "COMPLETING"}, {"FAKE_LOOK": "4", "FAKE_TERM": "1"}):
            for start in ("run_to_the_end", "run_once"):
                (self.folder / "calls.log").unlink(missing_ok=True)
                code, said = self.bash(f'{start} 1 "$@"', "run.ini", FAKE_CODE="1", **variables)
                self.assertEqual((code, self.calls("scontrol")), (1, []))
                self.assertIn("exit code 1; the job is being ended already, not requeued from here", said)
                self.assertNotIn("remove the cause", said)
        self.assertIn("failed (exit code 1); remove the cause", self.to_the_end(FAKE_CODE="1")[1])

    def test_a_number_that_is_none_is_refused(self):
        for name in ("FEDHPC_MAX_RESTARTS", "FEDHPC_WARNING"):
            for text in ("many", "-1", "1.5", "2 3", "4s"):
                code, said = self.to_the_end(FAKE_CODE="75", **{name: text})
                self.assertEqual((code, said), (2, f"job: {name} is '{text}'; it must be a whole number, as 100\n"))
            self.assertEqual(self.calls("fedhpc"), [])
            self.assertEqual(self.to_the_end(**{name: "0"})[0], 0)
            self.assertEqual(self.to_the_end(**{name: ""})[0], 0)
            (self.folder / "calls.log").unlink()

    def test_a_sweeps_task_leaves_a_run_alone_that_is_written_through_a_link(self):
        (self.folder / "scratch").mkdir()
        (self.folder / "linked.h5").symlink_to("scratch/run.h5")
        (self.folder / "runs.tsv").write_text("one\trun.ini\t--run.output=linked.h5\n")
        with open(self.folder / "scratch/run.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code, said = self.script("sweep.sbatch", "runs.tsv", SLURM_NTASKS="1", SLURM_JOB_ID="7", SLURM_ARRAY_TASK_ID="0")
        self.assertEqual((code, self.calls("fedhpc")), (2, []), said)
        self.assertIn("one: another run is writing it", said)

    def test_one_rank_is_one(self):
        for ranks, expected in (("1", "on 1 rank\n"), ("3", "on 3 ranks\n")):
            self.assertIn(f"beginning run.h5 {expected}", self.bash(f'run_or_resume {ranks} "$@"', "run.ini")[1])
        (self.folder / "run.ckpt.5.h5").touch()
        self.assertIn("checkpoint of round 5 on 1 rank\n", self.to_the_end()[1])


@unittest.skipUnless(PROGRAM, "no FEDHPC that names the program")
class CompleteBefore(JobCase):
    def setUp(self):
        super().setUp()
        (self.folder / "bin/fedhpc").unlink()
        (self.folder / "bin/fedhpc").symlink_to(PROGRAM)
        (self.folder / "run.ini").write_text(RUN)

    def test_it_is_not_trained_again(self):
        """By the program itself, whose checkpoint somebody has deleted to save space."""
        for expected in ("round 2/2", "nothing to do: results/run.h5 is complete with 2 rounds"):
            code, said = self.bash('run_to_the_end 1 "$@"', "run.ini", "--run.output=results/run.h5")
            self.assertEqual(code, 0, said)
            self.assertIn(expected, said)
            self.assertIn(": done\n", said)
            for checkpoint in self.folder.glob("results/run.ckpt.*"):
                checkpoint.unlink()
        self.assertEqual(list(self.folder.glob("results/*.old*")), [])

    def test_the_program_follows_a_link_as_the_script_does(self):
        (self.folder / "link.h5").symlink_to("not/yet/there.h5")
        code, said = self.bash('run_or_resume 1 "$@" && newest_checkpoint "$(stem_of "$@")"', "run.ini", "--run.output=link.h5")
        self.assertEqual((code, said.splitlines()[-1]), (0, "2"), said)
        self.assertTrue((self.folder / "not/yet/there.h5").is_file())

    def test_the_table_of_weak_scaling_says_what_it_has_not_measured(self):
        for changes, old in (([], False), (["--run.eval_every=2"], True)):
            code, said = self.script("weak_scaling.sbatch", "run.ini", *changes, SLURM_NTASKS="1", SLURM_JOB_ID="7")
            self.assertEqual((code, "of an earlier call, begun 20" in said), (0, old), said)
            time.sleep(1.1)  # times are in whole seconds


if __name__ == "__main__":
    unittest.main()
