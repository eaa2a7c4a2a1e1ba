"""The job scripts on two nodes, and the tools that fill and submit them.

    python3 jobs_test.py --fedhpc build/release/fedhpc [unittest arguments]
"""

import re
import subprocess
import unittest

from jobs_support import JobCase, app_support, main


class Jobs(JobCase):
    def test_a_run_on_one_node_is_submitted_by_the_tool(self):
        said = self.tool("submit", "run.ini", "--ranks", "2", "--submit", "--run.output=results/one.h5")
        job = re.fullmatch(r"submitted job (\d+)\n", said)[1]
        self.assertIn("done", self.ended(job))
        self.assertEqual(self.attributes("results/one.h5")["status"], "complete")
        self.assertEqual(self.attributes("results/one.h5")["ranks"], 2)
        nodes = [node for node, _ in self.placed()]
        self.assertEqual(len(nodes), 2)
        self.assertEqual(len(set(nodes)), 1)
        shown = self.show(job)
        asked = int(re.fullmatch(r"(\d+)M", shown["MinMemoryNode"])[1])  # of two whole processes, half as much again
        self.assertTrue(2 * 100 < asked < 2 * 500, asked)
        self.assertRegex(shown["TimeLimit"], "00:1[67]:00")

    def test_a_run_on_two_nodes_has_its_ranks_shared_evenly(self):
        said = self.tool("submit", "run.ini", "--ranks", "4", "--nodes", "2", "--submit", "--plan-ranks", "1")
        self.ended(said.split()[-1])
        self.assertEqual([node for node, _ in self.placed()], ["n1", "n1", "n2", "n2"])
        self.assertEqual(self.attributes("run.h5")["ranks"], 4)
        self.ended(self.sbatch("single_node", "--ntasks=4", "run.ini", "--run.output=one.h5"))
        self.assert_same_run("run.h5", "one.h5")

    def test_a_misspelt_key_is_refused_before_anything_is_submitted(self):
        said = self.tool("submit", "run.ini", "--submit", "--train.lrr=0.1", code=2)
        self.assertIn("unknown key 'train.lrr' (value '0.1'); did you mean 'train.lr'?", said)
        self.assertEqual(self.cluster.jobs(), [])

    def test_sbatch_refuses_what_no_node_has(self):
        said = self.tool("submit", "run.ini", "--submit", "--mem", "64G", code=2)
        self.assertIn("submit: sbatch refuses the job: ", said)

    def test_each_rank_has_a_gpu_of_its_own(self):
        self.ended(self.sbatch("multi_node", "--ntasks-per-node=2", "--gpus-per-task=1", "run.ini"))
        self.assertEqual(self.placed(), [("n1", "0"), ("n1", "1"), ("n2", "0"), ("n2", "1")])

    def test_mpirun_can_start_the_ranks(self):
        # As on clusters whose srun knows no PMIx.
        job = self.sbatch("single_node", "--ntasks=2", "run.ini", FEDHPC_LAUNCHER="mpirun")
        self.ended(job)
        self.assertEqual(self.attributes("run.h5")["ranks"], 2)

    def test_the_tasks_of_an_array_are_seeds(self):
        said = self.tool("submit", "run.ini", "--job", "array_seeds", "--seeds", "3-4", "--submit")
        self.ended(said.split()[-1])
        for seed in (3, 4):
            self.assertEqual(self.attributes(f"run_seed{seed}.h5")["seed"], seed)
            self.assertEqual(self.attributes(f"run_seed{seed}.h5")["status"], "complete")
        self.ended(self.sbatch("single_node", "--ntasks=1", "run.ini", "--run.seed=4", "--run.output=four.h5"))
        self.assert_same_run("run_seed4.h5", "four.h5")

    def test_weak_scaling_keeps_the_clients_of_a_rank(self):
        job = self.sbatch("weak_scaling", "--nodes=2", "--ntasks-per-node=2", "run.ini", CLIENTS_PER_RANK="3")
        self.ended(job)
        printed = (self.folder / f"fedhpc-weak-{job}.out").read_text()
        lines = [line.split() for line in printed.splitlines()[-4:]]
        self.assertEqual(lines[0], ["ranks", "clients", "s/round", "efficiency"])
        self.assertEqual([line[:2] for line in lines[1:]], [["1", "3"], ["2", "6"], ["4", "12"]])
        times = [float(line[2]) for line in lines[1:]]
        for time, line in zip(times, lines[1:]):
            self.assertGreater(time, 0)
            self.assertAlmostEqual(float(line[3]), times[0] / time, delta=0.001)
        for ranks in (1, 2, 4):
            self.assertEqual(self.attributes(f"run_weak{ranks}.h5")["ranks"], ranks)

    def test_a_refused_run_fails_once(self):
        job = self.sbatch("preemptible", "--ntasks=2", "run.ini", "--train.lrr=0.1")
        said = self.ended(job, "FAILED", "2:0")
        self.assertIn("did you mean 'train.lr'?", said)
        self.assertEqual(self.show(job)["Restarts"], "0")

    def test_a_sweep_is_an_array(self):
        (self.folder / "sweep.ini").write_text("[sweep]\nbase = run.ini\ntrain.lr = 0.001, 0.2\nseeds = 1-2\n")
        said = self.tool("sweep", "sweep.ini", "--submit", "--at-once", "3")
        self.assertRegex(said, r"submitted job \d+: 4 of 4 runs \(results/sweeps/sweep/runs.1.tsv\)\n")
        self.ended(said.split()[2].rstrip(":"))
        self.assertEqual(self.tool("sweep", "sweep.ini", "--submit"),
                         "nothing is left of 4 runs; --report names the best\n")
        (self.folder / "results/sweeps/sweep/lr0.2_seed2.h5").unlink()
        (self.folder / "results/sweeps/sweep/lr0.2_seed2.ckpt.8.h5").unlink()
        said = self.tool("sweep", "sweep.ini", "--submit")
        self.assertIn("1 of 4 runs", said)
        self.ended(said.split()[2].rstrip(":"))
        self.assertIn("best (highest global_accuracy, best evaluated round, mean over 2 seeds): --train.lr=0.2 (",
                      self.tool("sweep", "sweep.ini", "--report"))

    def test_a_rung_is_an_array(self):
        (self.folder / "sweep.ini").write_text("[sweep]\nbase = run.ini\ntrain.lr = 0.001, 0.2, 1e9\nrun.rounds = 8\n"
                                               "least_rounds = 2\neta = 2\n")
        for tasks, number, rounds in ((3, 1, 2), (1, 2, 4), (1, 3, 8)):
            said = self.tool("sweep", "sweep.ini", "--submit")
            self.assertIn(f": {tasks} of {tasks} runs of rung {number} of 3 (to round {rounds}) (", said)
            self.ended(said.split()[2].rstrip(":"))
        self.tool("sweep", "sweep.ini", "--submit")
        self.assertRegex(self.tool("sweep", "sweep.ini", "--report"), r"\| 0.2 +\| 3 +\| 8 .* best")
        subprocess.run([app_support.options.fedhpc, "run", "run.ini", "--train.lr=0.2", "--run.seed=1",
                        "--run.output=straight.h5"], cwd=self.folder, env=app_support.environment(), check=True,
                       stdout=subprocess.DEVNULL)
        self.assert_same_run("straight.h5", "results/sweeps/sweep/lr0.2_seed1.h5")


if __name__ == "__main__":
    main(JobCase, nodes=2, gpus=2)
