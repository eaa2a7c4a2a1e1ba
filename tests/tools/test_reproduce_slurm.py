"""Tests of reproduce.py's SLURM arrays, with stand-ins for sbatch and scontrol that run the tasks here."""

import os
import re
import shlex
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import at_once  # noqa: E402
from reproduce_support import ReproduceCase  # noqa: E402

from fedhpc.tools import results, slurm_array  # noqa: E402

# Runs the tasks one after the other, as often as they are put back into the queue. $WARN_AFTER is a file: once it
# exists, the first start of a task gets USR1 at its batch shell, as before its time limit; $CANCEL: TERM instead.
SBATCH = """#!/usr/bin/env python3
import os, re, signal, subprocess, sys, time
folder, text = os.environ["FAKE_SLURM"], sys.stdin.read()
script = f"{folder}/script"
open(script, "w").write(text)
if "refuse-me" in text:
    sys.exit("sbatch: error: Batch job submission failed: Invalid partition")
last = int(re.search(r"#SBATCH --array=0-(\\d+)", text)[1])
for task in range(last + 1):
    for restart in range(20):
        environment = dict(os.environ, SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID=str(task))
        environment.update({"SLURM_RESTART_COUNT": str(restart)} if restart else {})
        with open(f"{folder}/7_{task}.log", "a") as log:
            shell = subprocess.Popen(["bash", script], stdout=log, stderr=log, env=environment)
            number = signal.SIGTERM if "CANCEL" in os.environ else signal.SIGUSR1
            watched = os.environ.get("WARN_AFTER")
            while restart == 0 and watched and shell.poll() is None:
                if os.path.exists(watched):
                    shell.send_signal(number)
                    break
                time.sleep(0.05)
            code = shell.wait()
        queue = f"{folder}/requeued_7_{task}"
        if not os.path.exists(queue):
            break
        os.remove(queue)
    with open(f"{folder}/ends", "a") as ends:
        print(f"7_{task} {code} {restart}", file=ends)
print("7")
"""
SCONTROL = """#!/bin/sh
[ "$1" = requeue ] && touch "$FAKE_SLURM/requeued_$2"
"""


class SlurmArray(ReproduceCase):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.variables = {}

    def environment(self):
        return {**super().environment(), "FAKE_SLURM": str(self.folder), "PATH": f"{self.bin}:{os.environ['PATH']}",
                **self.variables}

    def ends(self):
        """task: (exit code, restarts) of each task of the job."""
        words = [line.split() for line in (self.folder / "ends").read_text().splitlines()]
        return {name: (int(code), int(restarts)) for name, code, restarts in words}

    def test_the_script_is_printed_and_nothing_is_written(self):
        self.paper("good", "fail", rounds=400)
        self.assertEqual(self.call("--only", "good", "--seeds", "1").returncode, 0)
        before = sorted(self.results.iterdir())
        done = self.call("--slurm", "--seeds", "2", "--slurm-minutes", "30", "--slurm-tasks", "5",
                         "--slurm-options=--partition=long --mem=2G --comment='a b'", "--data", str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("runs=(fail_seed1 good_seed2 fail_seed2)\n", done.stdout)  # good_seed1 is finished
        own = self.call("--slurm", "--slurm-minutes", "2", "--slurm-options=--signal=B:USR1@60")
        self.assertIn("#SBATCH --signal=B:USR1@60\n", own.stdout)
        for line in ("--array=0-2%5", "--time=30", "--ntasks=1", "--nodes=1", "--requeue", "--signal=B:USR1@120",
                     "--partition=long", "--mem=2G", "--comment='a b'",
                     f"--output={shlex.quote(f'{self.results}/slurm-%A_%a.log')}"):
            self.assertIn(f"#SBATCH {line}\n", done.stdout)
        self.assertIn(f"--data {self.folder}", done.stdout)
        self.assertEqual(sorted(self.results.iterdir()), before)
        self.assertEqual(self.call("--slurm", "--only", "good", "--seeds", "1").stdout, "nothing is pending\n")
        elsewhere = self.call("--slurm", "--output-dir", str(self.folder / "50%a")).stdout
        self.assertIn(f"#SBATCH --output={self.folder}/50%%a/toy/slurm-%A_%a.log\n", elsewhere)

    def test_tasks_run_what_is_pending(self):
        self.paper("good", "fail")
        done = self.call("--slurm", "--submit", "--seeds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "submitted job 7\n")
        self.assertEqual(self.ends(), {"7_0": (0, 0), "7_1": (1, 0), "7_2": (0, 0), "7_3": (1, 0)})
        self.assertEqual(len(self.calls()), 4)
        self.assertIn("failed: fail on purpose", (self.folder / "7_1.log").read_text())
        table = self.call("--seeds", "2", "--only", "good").stdout
        self.assertIn("finished (2 seeds)", table)
        self.assertEqual(len(self.calls()), 4)

    def test_what_one_array_may_not_hold_is_several(self):
        self.paper("good", "fail")
        (self.bin / "scontrol").write_text("#!/bin/sh\necho 'MaxArraySize = 3'\n")
        done = self.call("--slurm", "--seeds", "2")
        self.assertIn("#SBATCH --array=0-2\n", done.stdout)
        self.assertIn("reproduce: 4 runs are 2 arrays, as one has 3 tasks at most; this is the first", done.stderr)
        done = self.call("--slurm", "--submit", "--seeds", "2")
        self.assertEqual((done.stdout, done.stderr), ("submitted job 7\n" * 2, ""))
        self.assertEqual(len(self.calls()), 4)
        self.assertIn("runs=(fail_seed2)\n", (self.folder / "script").read_text())

    def test_a_task_whose_time_is_up_goes_on_from_its_checkpoint(self):
        self.paper("slow", rounds=60)
        self.variables["WARN_AFTER"] = str(self.results / "slow_seed1.h5")
        self.assertEqual(self.call("--slurm", "--submit", "--seeds", "1").returncode, 0)
        self.assertEqual(self.ends(), {"7_0": (0, 1)})
        self.assertEqual([call.split()[0] for call in self.calls()], ["run", "resume"])
        self.assertEqual(len(results.load(self.results / "slow_seed1.h5").rounds), 60)
        self.assertIn("exit code 75, the time was up", (self.folder / "7_0.log").read_text())

    def test_a_cancelled_task_keeps_its_checkpoint_and_is_not_put_back(self):
        self.paper("slow", rounds=600)
        self.variables.update(WARN_AFTER=str(self.results / "slow_seed1.h5"), CANCEL="1")
        self.call("--slurm", "--submit", "--seeds", "1")
        self.assertEqual(self.ends(), {"7_0": (75, 0)})
        self.assertEqual(results.load(self.results / "slow_seed1.h5").status, "interrupted")

    def test_a_killed_run_is_resumed_and_one_that_always_is_killed_ends(self):
        self.paper("killed", "hungry", rounds=20)
        self.assertEqual(self.call("--slurm", "--submit", "--seeds", "1").returncode, 0)
        self.assertEqual(self.ends(), {"7_0": (0, 1), "7_1": (137, slurm_array.MAX_KILLS)})
        kinds = [call.split()[0] for call in self.calls()]
        self.assertEqual(kinds, ["run", "resume", "run", *["resume"] * slurm_array.MAX_KILLS])
        self.assertEqual(len(results.load(self.results / "killed_seed1.h5").rounds), 20)

    def script_of(self, program):
        """The script of an array whose task is a program in Python, for `bash -c`: its number is $BATCH."""
        self.paper("good")
        text = self.call("--slurm", "--seeds", "1").stdout
        path = self.folder / "task.py"
        path.write_text(program)
        self.variables.update(SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="0")
        return "export BATCH=$$\n" + text.replace(str(self.folder / "tools" / "reproduce.py"), str(path))

    @at_once.possible
    def test_the_exit_code_outlives_a_signal_that_comes_with_the_end(self):
        script = self.script_of(at_once.PROGRAM)
        for _ in range(3):
            done = self.run_command(["bash", "-c", at_once.SHELL + script])
            self.assertEqual((done.returncode, done.stdout), (7, "good_seed1: exit code 7, cancelled\n"), done.stderr)

    def test_a_task_that_did_not_listen_yet_goes_back_into_the_queue(self):
        done = self.run_command(["bash", "-c", self.script_of(
            "import os, signal, time\nos.kill(int(os.environ['BATCH']), signal.SIGUSR1)\ntime.sleep(60)\n")])
        self.assertEqual((done.returncode, done.stdout), (0, "good_seed1: exit code 143, the time was up\n"))
        self.assertTrue((self.folder / "requeued_7_0").exists())

    def test_one_task(self):
        self.paper("good", rounds=400)
        self.assertEqual(self.call("--task", "good_seed1", "--quick").returncode, 2)  # that one is good_seed1_quick
        done = self.call("--task", "good_seed1_quick", "--quick", "--ranks", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"good_seed1_quick: finished in \d+ s")
        again = self.call("--task", "good_seed1_quick", "--quick")
        self.assertEqual(again.stdout, "good_seed1_quick: finished before\n")
        self.assertEqual(len(self.calls()), 1)

    def test_what_is_refused(self):
        self.paper("good")
        quote = "--slurm-options=--comment='a"
        for arguments, message in (("--submit", "goes with --slurm"),
                                   (f"--list {quote}", "No closing quotation"),
                                   ("--slurm --slurm-options=--time=2", "the time limit 2 leaves no time"),
                                   ("--slurm --slurm-options=gpu", "--slurm-options gpu: not of the form"),
                                   ("--only good --status", "--status is of all rows"),
                                   ("--only good --stop", "--stop is of all rows"),
                                   ("--slurm --budget 5", "tasks of SLURM have --slurm-minutes"),
                                   ("--slurm --slurm-tasks 0", "at least 1"),
                                   ("--slurm --slurm-minutes 2", "asked to stop 120 s before its end"),
                                   ("--slurm --slurm-minutes 5 --slurm-options=--signal=B:USR1@300", "300 s before"),
                                   ("--slurm --submit --slurm-options=--partition=refuse-me", "Invalid partition")):
            done = self.call(*arguments.split())
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(message, done.stderr)
        (self.bin / "sbatch").unlink()
        self.variables["PATH"] = f"{self.bin}:{Path(sys.executable).parent}"
        self.assertIn("no sbatch on the PATH", self.call("--slurm", "--submit").stderr)

    def test_the_script_is_valid_shell(self):
        self.paper("good")
        text = self.call("--slurm").stdout
        self.assertEqual(self.run_command(["bash", "-n", "-c", text]).returncode, 0)
        self.assertEqual(re.findall(r"[{}]{2}", text), [])  # nothing of the template is left


if __name__ == "__main__":
    unittest.main()
