"""Tests of submit.py with stand-ins for the program and for sbatch."""

import os
import shlex
import shutil
import subprocess
import unittest
from unittest import mock

from jobs_case import MIB, ROOT, FakeCluster, directives

from fedhpc.tools import plan  # noqa: E402
from fedhpc.tools.submit import seconds_of  # noqa: E402


class Submit(FakeCluster):
    def test_the_plan_fills_memory_and_time(self):
        script = self.tool("submit", "run.ini", "--ranks", "6", "--plan-ranks", "1")
        options = directives(script)
        self.assertEqual(options["mem"], f"{6 * 150}M")
        self.assertEqual(options["ntasks"], "6")
        self.assertEqual(options["nodes"], "1")
        # 60 rounds of 2 s by 6 of 24 clients' share, half as much again, and the start.
        self.assertEqual(options["time"], str(1 + 15))
        self.assertEqual(self.calls("plan"), ["plan 1 --json"])

    def test_long_runs_have_long_limits(self):
        script = self.tool("submit", "run.ini", "--run.rounds=6000", "--job", "preemptible")
        self.assertEqual(directives(script)["time"], str(300 + 15))
        self.assertIn("--requeue\n", script)
        self.assertEqual(self.calls("plan"), ["plan 1 --run.rounds=6000 --json"])

    def test_rounds_are_the_programs_default_where_nothing_says_them(self):
        (self.folder / "run.ini").write_text("[train]\nlr=0.1\n")
        self.assertEqual(directives(self.tool("submit", "run.ini"))["time"], str(5 + 15))

    def test_ranks_are_shared_by_nodes(self):
        script = self.tool("submit", "run.ini", "--ranks", "8", "--nodes", "4", "--plan-ranks", "1")
        options = directives(script)
        self.assertEqual((options["nodes"], options["ntasks-per-node"], options["mem"]), ("4", "2", "300M"))
        self.assertIn("--distribution=block", script)  # multi_node's

    def test_memory_per_cpu_or_gpu_takes_the_place_of_that_per_node(self):
        for name in ("mem-per-cpu", "mem-per-gpu"):
            options = directives(self.tool("submit", "run.ini", f"--sbatch=--{name}=4G"))
            self.assertEqual([options.get(one) for one in (name, "mem")], ["4G", None])

    def test_gpus_are_one_per_rank(self):
        options = directives(self.tool("submit", "run.ini", "--gpus", "4", "--plan-ranks", "1"))
        self.assertEqual((options["ntasks"], options["gpus-per-task"]), ("4", "1"))
        self.assertNotIn("gpus-per-task", directives(self.tool("submit", "run.ini")))

    def test_gpus_that_the_run_would_not_use_are_named(self):
        said = "submit: --gpus 2 reserves GPUs, but the run would stay on the CPU; add --run.device=cuda\n"
        for more, warned in (((), said), (("--run.device=cuda",), ""), (("--run.device=cpu",), said)):
            self.tool("submit", "run.ini", "--gpus", "2", "--plan-ranks", "1", *more)
            self.assertEqual(self.warned, warned)
        self.tool("submit", "run.ini", "--gpus", "2", "--plan-ranks", "1", "--submit")
        self.assertEqual(self.warned, said)
        self.tool("submit", "run.ini", "--ranks", "2", "--plan-ranks", "1")
        self.assertEqual(self.warned, "")
        (self.folder / "gpu.ini").write_text("[run]\ndevice=cuda\n[train]\nlr=0.1\n")
        self.tool("submit", "gpu.ini", "--gpus", "2", "--plan-ranks", "1")
        self.assertEqual(self.warned, "")

    def test_a_login_node_has_no_gpus(self):
        """The program refuses cuda where it is asked for a plan; the nodes are others."""
        given = ("run.ini", "--gpus", "2", "--plan-ranks", "1", "--run.device=cuda")
        script = self.tool("submit", *given, FAKE_NO_GPU="1")
        self.assertIn(" --run.device=cuda\n", script)
        self.assertEqual(self.warned, "fedhpc: planned on the CPU: key 'run.device' cannot be 'cuda': no CUDA device; allowed: auto, cpu\n")
        (self.folder / "sweep.ini").write_text("[sweep]\nbase = run.ini\nrun.device = cuda\ntrain.lr = 0.1, 0.2\n")
        with mock.patch.object(plan, "_told", set()):
            self.assertIn("#SBATCH --array=0-1\n", self.tool("sweep", "sweep.ini", "--gpus", "1", FAKE_NO_GPU="1"))
        self.assertEqual(self.warned.count("planned on the CPU"), 1)
        self.assertNotIn("reserves", self.warned)
        self.assertIn("cannot be 'cuda'", self.tool("sweep", "sweep.ini", "--local", "--ranks", "1", code=2, FAKE_NO_GPU="1"))

    def test_what_the_program_warns_of_is_said_once(self):
        (self.folder / "sweep.ini").write_text("[sweep]\nbase = run.ini\ntrain.lr = 0.1, 0.2\n")
        for tool in ("submit", "run.ini"), ("sweep", "sweep.ini"):
            with mock.patch.object(plan, "_told", set()):
                self.tool(*tool, FAKE_WARNING="clients 3 and 4 have no training samples")
            self.assertEqual(self.warned, "fedhpc: warning: clients 3 and 4 have no training samples\n")

    def test_gpus_of_a_sweep(self):
        text = "[sweep]\nbase = run.ini\ntrain.lr = 0.1, 0.2\n"
        for more, warned in (("", True), ("run.device = cuda\n", False), ("run.device = cuda, cpu\n", True)):
            (self.folder / "sweep.ini").write_text(text + more)
            self.tool("sweep", "sweep.ini", "--gpus", "1")
            self.assertEqual("sweep: --gpus 1 reserves GPUs, but a run would stay on the CPU; add run.device = cuda" in self.warned,
                             warned)

    def test_time_limits_are_slurms(self):
        for text in ("0", "90", "90:30", "2:00:00", "1-12", "1-12:30", "1-12:30:00", "UNLIMITED", "infinite"):
            self.assertEqual(directives(self.tool("submit", "run.ini", "--time", text))["time"], text)
        for text in ("soon", "2h", "1:2:3:4", "-5", "1-", "1.5", "", "1-2:3:4:5"):
            for tool in (("submit", "run.ini"), ("sweep", "none.ini")):
                self.assertIn(f"'{text}' is no time limit such as 90 (minutes), 2:30:00 or 1-12:00:00",
                              self.tool(*tool, f"--time={text}", code=2))

    def test_a_job_has_time_before_it_is_asked_to_stop(self):
        for text in ("3", "2:01", "0:02:01", "0-1", "0-0:3", "1-0"):
            self.tool("submit", "run.ini", "--time", text)
        for text in ("1", "2", "2:00", "0:90", "0:01:59", "0-0:2"):
            self.assertIn(f"the time limit {text} leaves no time: a job is asked to stop 120 s before its end",
                          self.tool("submit", "run.ini", f"--time={text}", code=2))
        self.tool("submit", "run.ini", "--sbatch=--time=2", code=2)
        (self.folder / "sweep.ini").write_text("[sweep]\nbase = run.ini\ntrain.lr = 0.1, 0.2\n")
        self.assertIn("sweep: the time limit 2 leaves no time", self.tool("sweep", "sweep.ini", "--time=2", code=2))
        self.assertFalse((self.folder / "results").exists())

    def test_a_signal_of_ones_own_says_how_much_time_that_is(self):
        for text, signal, lead in (("2", "B:USR1@60", 60), ("1", "10", 60), ("1:01", "B:USR1", 60), ("1", "USR1@0", 0),
                                   ("3", "B:USR1@600", 600), (None, "B:USR1@1080", 1080)):
            given = [f"--sbatch=--signal={signal}", *([f"--time={text}"] if text else [])]
            text = text or "18"  # the plan's
            if lead < seconds_of(text):
                self.assertEqual(directives(self.tool("submit", "run.ini", *given))["signal"], signal)
            else:
                self.assertIn(f"submit: the time limit {text} leaves no time: a job is asked to stop {lead} s before its end",
                              self.tool("submit", "run.ini", *given, code=2))

    def test_weak_scaling_is_planned_with_all_its_clients(self):
        script = self.tool("submit", "run.ini", "--job", "weak_scaling", "--ranks", "4", "--clients-per-rank", "5",
                           "--plan-ranks", "1")
        self.assertEqual(self.calls("plan"), ["plan 1 --data.clients=20 --json"])
        self.assertIn("export CLIENTS_PER_RANK=5\n", script)
        self.assertEqual(directives(script)["time"], str(3 + 15))  # runs on 1, 2 and 4 ranks of 0.5 s a round

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_the_plan_is_made_on_as_many_ranks_as_asked_for(self):
        self.tool("submit", "run.ini", "--ranks", "2", "--plan-ranks", "2")
        self.assertEqual(self.calls("plan"), ["plan 2 --json"])

    def test_options_of_sbatch_win(self):
        options = directives(self.tool("submit", "run.ini", "--time", "2:00:00", "--mem", "7G", "--partition", "fast",
                                       "--account", "physics", "--sbatch=--qos=long", "--sbatch=--exclusive",
                                       "--sbatch=--comment=two words"))
        self.assertEqual((options["time"], options["mem"], options["partition"], options["account"], options["qos"],
                          options["exclusive"], options["comment"]),
                         ("2:00:00", "7G", "fast", "physics", "long", "", "'two words'"))
        self.assertEqual(options["chdir"], str(self.folder))

    def test_seeds_are_an_array(self):
        script = self.tool("submit", "run.ini", "--job", "array_seeds", "--seeds", "1-20%4")
        self.assertEqual(directives(script)["array"], "1-20%4")

    def test_the_script_runs_the_program_with_the_arguments(self):
        """The printed script itself, with a stand-in for srun."""
        script = self.tool("submit", "run.ini", "--ranks", "2", "--plan-ranks", "1", "--run.output=out 1/a.h5",
                           "--data.file=it's", FEDHPC_DATA="/data sets")
        self.script("srun", '#!/bin/bash\nif [ "$1" = --mpi=list ]; then echo pmix; exit 0; fi\n'
                            'printf "%s\\n" "$FEDHPC_DATA" "$@" > srun.txt\nexit 3\n')
        (self.folder / "job.sh").write_text(script)
        done = subprocess.run(["bash", "job.sh"], cwd=self.folder, text=True, capture_output=True, check=False,
                              env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "SLURM_NTASKS": "2"})
        self.assertEqual(done.returncode, 3, done.stderr)
        said = (self.folder / "srun.txt").read_text().splitlines()
        self.assertEqual(said[0], "/data sets")
        self.assertIn("--ntasks=2", said)
        self.assertEqual(said[-6:],
                         [str(self.program), "run", "run.ini", "--go-on", "--run.output=out 1/a.h5", "--data.file=it's"])
        self.assertTrue((self.folder / "out 1").is_dir())

    def test_what_is_printed_is_what_is_submitted(self):
        printed = self.tool("submit", "run.ini", "--partition", "fast")
        self.assertFalse((self.folder / "submitted.sbatch").exists())
        self.assertEqual(self.tool("submit", "run.ini", "--partition", "fast", "--submit"), "submitted job 42\n")
        self.assertEqual((self.folder / "submitted.sbatch").read_text(), printed)
        self.assertIn(f"export FEDHPC_HOME={shlex.quote(str(ROOT))}\n", printed)

    def test_refusals(self):
        cases = [
            (["--train.lrr=1", "--submit"], "submit: unknown key 'train.lrr', refused on purpose\n"),
            (["--ranks", "3", "--nodes", "2"], "submit: 3 ranks cannot be shared evenly by 2 nodes; take a multiple"),
            (["--ranks", "3", "--gpus", "2"], "submit: --gpus 2 with --ranks 3: a rank has one GPU"),
            (["--ranks", "0"], "submit: --ranks 0: must be at least 1"),
            (["--ranks", "4", "--plan-ranks", "1", "--node-memory", "512M"],
             "submit: 4 ranks on a node need 600 MiB and a node has 512 (--node-memory): take more nodes"),
            (["--node-memory", "100M"], "submit: 1 rank on a node needs 150 MiB and a node has 100 (--node-memory)"),
            (["--node-memory", "much"], "'much' is no size such as 64G or 4000M"),
            (["--job", "array_seeds", "--run.seed=3"], "submit: run.seed cannot be given to this job"),
            (["--job", "weak_scaling", "--data.clients=3"], "submit: data.clients cannot be given to this job"),
            (["--job", "single_node", "--nodes", "2"], "single_node is for one node"),
            (["--seeds", "1-3"], "--seeds is for --job array_seeds"),
            (["--train.lr"], "unknown argument --train.lr; a key of the run is given as --section.key=value"),
            (["--rank", "4"], "unknown argument --rank"),
            (["--sbatch=qos=long"], "submit: --sbatch qos=long: not of the form --option=value"),
        ]
        for arguments, expected in cases:
            with self.subTest(arguments):
                self.assertIn(expected, self.tool("submit", "run.ini", *arguments, code=2))
        self.assertIn("submit: none.ini: No such file or directory", self.tool("submit", "none.ini", code=2))
        self.assertIn("submit: sbatch refuses the job: Invalid account",
                      self.tool("submit", "run.ini", "--submit", code=2, FAKE_REFUSAL="Invalid account"))
        self.assertFalse((self.folder / "submitted.sbatch").exists())

    def test_what_fits_exactly_is_not_refused(self):
        self.tool("submit", "run.ini", "--ranks", "4", "--plan-ranks", "1", "--node-memory", "600M")
        self.tool("submit", "run.ini", "--ranks", "4", "--plan-ranks", "1", "--node-memory", "599M", code=2)
        self.tool("submit", "run.ini", "--node-memory", "1G", FAKE_MEMORY=str(600 * MIB))
        self.tool("submit", "run.ini", "--node-memory", "1G", FAKE_MEMORY=str(700 * MIB), code=2)


if __name__ == "__main__":
    unittest.main()
