"""Jobs that put themselves back into the queue: preempted, out of time, with a killed rank, and when they do not.

    python3 requeue_test.py --fedhpc build/release/fedhpc [unittest arguments]
"""

import os
import re
import signal
from pathlib import Path

from jobs_support import JobCase, app_support, main

ROUNDS = 200
STEPS = "--train.local_steps=1000"  # some hundredths of a second a round
LONG, ENDLESS = [f"--run.rounds={ROUNDS}", STEPS], ["--run.rounds=1000000", STEPS]


class Requeue(JobCase):
    def rounds(self, name="run.h5"):
        return app_support.rounds_in(self.folder / name)

    def restarts(self, job):
        return int(self.show(job)["Restarts"])

    def preempt(self, job):
        """Takes the node of a running job for a moment; waits until it runs and computes again."""
        restarts = self.restarts(job)
        higher = self.cluster.call("sbatch", "--parsable", "--partition=high", "--exclusive", "--output=/dev/null",
                                   "--wrap=true", cwd=self.folder)
        self.wait_for(lambda: self.show(higher)["JobState"] == "COMPLETED")
        self.wait_for(lambda: self.restarts(job) == restarts + 1 and self.show(job)["JobState"] == "RUNNING")

    def stop(self, job):
        """Asks a job for a checkpoint as SLURM does before its time is up."""
        self.cluster.call("scancel", "--batch", "--signal=USR1", job)

    def test_a_job_preempted_twice_gives_the_uninterrupted_run(self):
        # However fast this machine is: the job is preempted twice, stopped in its third life and then given its end.
        job = self.sbatch("preemptible", "--ntasks=2", "run.ini", *ENDLESS, FEDHPC_MAX_RESTARTS="2")
        for _ in range(2):
            begun = self.rounds()
            self.wait_for(lambda: self.rounds() >= begun + 3)
            self.preempt(job)
        begun = self.rounds()
        self.wait_for(lambda: self.rounds() >= begun + 3)
        self.stop(job)
        said = self.ended(job, "FAILED", "75:0")
        self.assertEqual(self.restarts(job), 2)
        stopped = [int(number) for number in re.findall(r"interrupted after round (\d+)/", said)]
        self.assertEqual(len(stopped), 3)
        self.assertTrue(0 < stopped[0] < stopped[1] < stopped[2], stopped)
        self.assertEqual([int(number) for number in re.findall(r"going on after round (\d+) from", said)], stopped[:2])
        self.assertEqual(said.count("exit code 75; back into the queue"), 2)
        self.assertEqual(said.count("exit code 75 after 2 restarts (FEDHPC_MAX_RESTARTS); not requeued"), 1)
        rounds = stopped[2] + 3
        self.ended(self.sbatch("preemptible", "--ntasks=2", "run.ini", f"--run.rounds={rounds}", STEPS))
        self.assertEqual(self.attributes("run.h5")["status"], "complete")
        self.assertEqual(self.rounds(), rounds)
        self.ended(self.sbatch("single_node", "--ntasks=2", "run.ini", f"--run.rounds={rounds}", STEPS,
                               "--run.output=straight.h5"))
        self.assert_same_run("run.h5", "straight.h5")

    def test_a_job_out_of_time_goes_on_and_a_cancelled_one_does_not(self):
        # A limit is a whole minute, and SLURM looks every 30 s.
        job = self.sbatch("preemptible", "--ntasks=2", "--time=1", "--signal=B:USR1@55", "run.ini", *ENDLESS)
        self.wait_for(lambda: self.restarts(job) == 1 and "interrupted after round" in self.output())
        stopped = int(re.search(r"interrupted after round (\d+)/", self.output())[1])
        self.wait_for(lambda: self.rounds() > stopped)
        self.cluster.call("scancel", job)
        self.assertIn("not requeued from here", self.ended(job, "CANCELLED", "75:0"))
        self.assertEqual(self.restarts(job), 1)

    def test_a_job_that_does_not_requeue_says_how_to_go_on(self):
        job = self.sbatch("single_node", "--ntasks=2", "run.ini", *ENDLESS)
        self.wait_for(lambda: self.rounds() >= 3)
        self.stop(job)
        said = self.ended(job, "FAILED", "75:0")
        self.assertIn("interrupted with a checkpoint (exit code 75); the same command goes on", said)
        rounds = self.rounds() + 2
        again = self.sbatch("single_node", "--ntasks=2", "run.ini", f"--run.rounds={rounds}", STEPS)
        self.assertIn(f"going on after round {rounds - 2} from", self.ended(again))
        self.assertEqual(self.rounds(), rounds)

    def test_an_edited_configuration_extends_the_run_or_is_refused(self):
        self.ended(self.sbatch("single_node", "--ntasks=2", "run.ini"))
        config = self.folder / "run.ini"
        text = config.read_text()
        config.write_text(text.replace("rounds = 8", "rounds = 10"))
        said = self.ended(self.sbatch("single_node", "--ntasks=2", "run.ini"))
        self.assertIn("going on after round 8 from", said)
        self.assertEqual(self.rounds(), 10)
        config.write_text(text.replace("rounds = 8", "rounds = 12").replace("local_steps = 10", "local_steps = 11"))
        said = self.ended(self.sbatch("preemptible", "--ntasks=2", "run.ini"), "FAILED", "2:0")
        self.assertIn("train.local_steps = 11 (was 10)", said)
        self.assertIn("refused (exit code 2)", said)
        self.assertEqual(self.rounds(), 10)

    def test_a_job_whose_node_failed_goes_on(self):
        """SLURM takes the job back, and srun says 0 all the same."""
        job = self.sbatch("preemptible", "--ntasks=2", "run.ini", *ENDLESS)
        self.wait_for(lambda: self.rounds() >= 3)
        self.cluster.call("scontrol", "update", "nodename=n1", "state=down", "reason=test")
        self.wait_for(lambda: self.restarts(job) == 1)  # on the same node: ReturnToService takes it back
        begun = self.rounds()
        self.wait_for(lambda: self.rounds() >= begun + 3)
        said = self.output()
        self.assertIn("not requeued from here", said)
        self.assertNotIn("fedhpc: done", said)
        self.cluster.call("scancel", job)
        self.wait_for(lambda: job not in self.cluster.jobs())
        self.assertEqual(self.output().count("fedhpc: beginning"), 1)

    def test_a_task_of_an_array_with_a_killed_rank_is_requeued_alone(self):
        job = self.sbatch("array_seeds", "--array=1-2", "--ntasks=1", "run.ini", *LONG, "--run.checkpoint_every=5")
        self.wait_for(lambda: list(self.folder.glob("run_seed2.ckpt.*.h5")))
        os.kill(self.rank_of("run_seed2.h5"), signal.SIGKILL)
        said = self.ended(job)
        self.assertEqual(said.count("exit code 137; back into the queue"), 1)
        self.assertEqual(said.count("going on after round"), 1)
        self.assertEqual([self.rounds(f"run_seed{seed}.h5") for seed in (1, 2)], [ROUNDS, ROUNDS])
        self.ended(self.sbatch("single_node", "--ntasks=1", "run.ini", *LONG, "--run.seed=2",
                               "--run.output=two.h5"))
        self.assert_same_run("run_seed2.h5", "two.h5")

    def rank_of(self, output):
        """The process that computes a run."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if words[0].decode() == app_support.options.fedhpc and f"--run.output={output}".encode() in words \
                        and os.path.samefile(folder / "cwd", self.folder):
                    return int(folder.name)
            except OSError:
                pass  # gone meanwhile
        self.fail(f"no process computes {output}\n{self.output()}")


if __name__ == "__main__":
    main(JobCase, nodes=1, preemption=True)
