"""Tests of reproduce.py: what it runs, skips, resumes and says, with a stand-in for the fedhpc program.

The tests that launch runs are skipped where there is no mpirun.
"""

import os
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduce_support import ReproduceCase  # noqa: E402

from fedhpc.tools import launch, paper_record, results  # noqa: E402


class Reproduce(ReproduceCase):
    def test_runs_then_skips_finished_rows(self):
        self.paper("good")
        done = self.call("--seeds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.calls()), 2)
        # Accuracies at round 20: 0.896 and 0.897, so 89.65 with a sample deviation of 0.1/sqrt(2).
        line = next(line for line in done.stdout.splitlines() if line.startswith("| I "))
        self.assertEqual([cell.strip() for cell in line.split("|")[5:9]],
                         ["88.00 ± 0.10", "89.65 ± 0.07", "+1.65", "finished (2 seeds)"])
        self.assertIn(line, (self.results / "table.md").read_text())
        self.assertTrue((self.results / "good_seed2.h5").exists())
        self.assertEqual(self.call("--seeds", "2").returncode, 0)
        self.assertEqual(len(self.calls()), 2)

    def test_a_changed_configuration_runs_again_and_keeps_the_old_result(self):
        self.paper("good")
        self.call("--seeds", "1")
        self.paper("good", rounds=30)
        self.assertIn("run.rounds=20, not 30", self.call("--list", "--seeds", "1").stdout)
        self.assertIn("finished", self.call("--seeds", "1").stdout)
        self.assertEqual(len(self.calls()), 2)
        self.assertEqual(len(results.load(self.results / "good_seed1.h5").rounds), 30)
        self.assertEqual(len(results.load(self.results / "good_seed1.old1.h5").rounds), 20)

    def set_in(self, kind, section, text):
        """Appends lines to a section of the configuration of a kind of run."""
        path = self.configs / f"{kind}.ini"
        path.write_text(path.read_text().replace(f"[{section}]\n", f"[{section}]\n{text}"))

    def test_a_key_that_is_set_no_more_makes_another_configuration(self):
        self.paper("good", "fedavg")
        self.set_in("good", "train", "momentum=0.9\n")
        self.assertEqual(self.call("--seeds", "1").returncode, 0)
        self.paper("good", "fedavg")
        reason = "the result has train.momentum=0.9, which is no longer set"
        for arguments in (("--list",), ("--list", "--quick")):
            line = next(line for line in self.call("--seeds", "1", *arguments).stdout.splitlines() if "| good " in line)
            self.assertIn(f"pending (0 of 1 seeds); outdated: {reason}", line)
        self.assertIn("runs=(good_seed1)", self.call("--slurm", "--seeds", "1").stdout)
        known, plans = len(self.calls()), len(self.plans())
        self.assertRegex(self.call("--task", "good_seed1", "--seeds", "1").stdout, r"good_seed1: finished in \d+ s")
        self.assertTrue((self.results / "good_seed1.old1.h5").exists())
        self.assertEqual((len(self.calls()), len(self.plans())), (known + 1, plans + 1))
        self.set_in("fedavg", "run", "dtype=float64\n")
        self.call("--seeds", "1")
        self.paper("good", "fedavg")
        self.assertIn("[1/1] fedavg_seed1\n", self.call("--seeds", "1").stdout)
        self.assertNotIn("no longer set", self.call("--seeds", "1").stdout)

    def test_a_result_of_other_data_is_outdated(self):
        self.paper("good")
        self.variables["FAKE_DIGEST"] = "first"
        self.call("--seeds", "1")
        self.assertIn("finished", self.call("--list", "--seeds", "1", "--data", "/elsewhere").stdout)
        self.assertIn(" --data.dir=/elsewhere ", self.plans()[-1] + " ")
        self.variables["FAKE_DIGEST"] = "second"
        self.assertIn("outdated: the result is of other data", self.call("--list", "--seeds", "1").stdout)
        self.call("--seeds", "1")
        self.assertEqual(len(self.calls()), 2)

    def test_a_shortened_run_beside_a_whole_one_of_another_configuration(self):
        self.paper("good", rounds=200)
        self.set_in("good", "train", "momentum=0.9\n")
        self.call("--seeds", "1")
        self.paper("good", rounds=200)
        self.call("--quick")
        self.assertNotIn("series to round", self.call("--quick").stdout)

    def test_without_a_plan_only_keys_that_are_set_are_compared_which_is_said(self):
        self.paper("good")
        self.set_in("good", "train", "momentum=0.9\n")
        self.call("--seeds", "1")
        self.paper("good")
        without = self.call("--list", "--seeds", "1", "--fedhpc", "none")
        self.assertIn("finished", without.stdout)
        self.assertEqual(without.stderr.count("reproduce: toy: no fedhpc program is found; results are compared in the keys "
                                              "that are set only"), 1)
        self.program.write_text("#!/bin/sh\necho 'fedhpc: error: no plan today' >&2\nexit 2\n")
        refused = self.call("--seeds", "1")
        self.assertEqual((refused.returncode, "finished" in refused.stdout), (0, True))
        self.assertIn("reproduce: toy: no plan of good (no plan today); results are compared in the keys that", refused.stderr)

    def test_quick_and_list_and_only(self):
        self.paper("good", "fail", rounds=400)
        listing = self.call("--list", "--quick")
        self.assertEqual((listing.returncode, listing.stdout.count("pending (0 of 1 seeds)")), (0, 2))
        self.assertEqual((self.calls(), self.results.exists()), ([], False))
        done = self.call("--quick", "--only", "good")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(results.load(self.results / "good_seed1_quick.h5").rounds), 100)
        self.assertIn("| fail ", (self.results / "table.md").read_text())
        self.assertIn("pending (0 of 3 seeds)", self.call("--list", "--only", "good").stdout)

    def test_a_shortened_run_beside_what_is_recorded(self):
        self.paper("good", rounds=200)
        quick = ("--quick", "--seeds", "1")
        self.assertNotIn("recorded", self.call(*quick).stdout)
        # After 100 rounds of seed 1: 90.1 - 0.1 %.
        kept = self.folder / "results" / "papers" / "toy.csv"
        kept.parent.mkdir(parents=True)
        head = ",".join(paper_record.COLUMNS)
        record = "I,good,global_accuracy,88.00,0.10,{ours},,1,1.00,good.ini; v; seeds {seed},{rounds},200,quick,,\n"
        for ours, seed, rounds, expected in ((89.5, 1, 100, "89.50 (+0.50) "), (90.25, 3, 100, "90.25 (-0.25), seeds 3 "),
                                             (90.5, 1, 200, "90.50 after 200 rounds ")):
            kept.write_text(f"{head}\n" + record.format(ours=ours, seed=seed, rounds=rounds))
            self.assertIn(f"| {expected}", self.call(*quick).stdout)
        # The whole run of another result: 0.3 points below at all rounds.
        self.assertEqual(self.call("--seeds", "1").returncode, 0)
        with h5py.File(self.results / "good_seed1.h5", "r+") as file:
            file["rounds/global_accuracy"][...] -= 0.003
            file["rounds/global_accuracy"][99] += 0.001
        self.assertIn("| 89.80 (+0.20), series to round 100 within 0.30 |", self.call(*quick).stdout)
        self.assertIn("| 90.50 (-0.75) ", self.call("--seeds", "1").stdout)
        # The whole run was not evaluated after the last round of the shortened one; then not at all up to it.
        with h5py.File(self.results / "good_seed1.h5", "r+") as file:
            file["rounds/global_accuracy"][99] = np.nan
        with h5py.File(self.results / "good_seed1_quick.h5") as file:
            before = 100 * file["rounds/global_accuracy"][94] - 0.3
        self.assertIn(f"| {before:.2f} (+0.30), series to round 95 within 0.30 |", self.call(*quick).stdout)
        with h5py.File(self.results / "good_seed1.h5", "r+") as file:
            file["rounds/global_accuracy"][:100] = np.nan
        self.assertIn("| 90.50 after 200 rounds |", self.call(*quick).stdout)

    def test_quick_rounds_of_a_row(self):
        self.paper("good", rounds=400, optional={"good": ("", 15)})
        self.assertEqual(self.call("--quick").returncode, 0)
        self.assertEqual(len(results.load(self.results / "good_seed1_quick.h5").rounds), 15)
        self.assertNotIn("s/round", (self.results / "table.md").read_text())

    def test_a_quick_run_that_is_not_shortened_is_the_full_run(self):
        self.paper("good", rounds=100)
        self.assertEqual(self.call("--quick").returncode, 0)
        self.assertIn("finished", self.call("--seeds", "1").stdout)
        self.assertEqual(len(self.calls()), 1)
        self.assertTrue((self.results / "good_seed1.h5").exists())

    def test_times_of_rounds_and_their_ratio_to_fedavg(self):
        """The stand-in's rounds take 2 s (fedavg) and 3 s, evaluation another second in every fifth."""
        self.paper("fedavg", "good", "fail", prefix="toy_s_",
                   optional={"fedavg": (29.85, ""), "good": (45.33, ""), "fail": ("", "")})
        done = self.call("--seeds", "2")
        cells = [[cell.strip() for cell in line.split("|")[8:10]]
                 for line in done.stdout.splitlines() if line.startswith("| I ")]
        self.assertEqual(cells, [["29.85 (1.00)", "2.00 (1.00)"], ["45.33 (1.52)", "3.00 (1.50)"], ["-", "-"]])
        self.assertIn("| s/round, paper | s/round, ours |", done.stdout)
        self.assertIn("in brackets its ratio to FedAvg's", (self.results / "table.md").read_text())

    def test_rows_beyond_quick_run_by_default_or_when_selected(self):
        self.paper("good", rounds=400, state="full")
        done = self.call("--quick")
        self.assertEqual((done.returncode, self.calls()), (0, []))
        self.assertIn("| not part of --quick |", done.stdout)
        self.assertIn("finished", self.call("--quick", "--only", "good").stdout)
        self.assertIn("finished", self.call("--seeds", "1").stdout)
        self.assertEqual(len(self.calls()), 2)

    def test_rows_that_need_a_gpu_run_with_the_flag_only(self):
        self.paper("good", state="gpu")
        for arguments in (["--seeds", "2"], ["--quick"], ["--only", "good"]):
            done = self.call(*arguments)
            self.assertEqual((done.returncode, self.calls()), (0, []))
            self.assertIn("| needs a GPU (--gpu-rows) |", done.stdout)
        self.assertIn("finished (2 seeds)", self.call("--seeds", "2", "--gpu-rows").stdout)
        self.assertEqual(len(self.calls()), 2)
        self.assertIn("finished (2 seeds)", self.call("--seeds", "2").stdout)
        self.assertIn("pending (2 of 3 seeds); needs a GPU (--gpu-rows)", self.call("--seeds", "3").stdout)
        self.assertIn("pending (2 of 3 seeds) ", self.call("--seeds", "3", "--gpu-rows", "--list").stdout)
        self.assertEqual(len(self.calls()), 2)

    def test_rows_that_need_a_gpu_are_resumed(self):
        self.paper("slow", rounds=60, state="gpu")
        self.assertIn("to be resumed", self.call("--seeds", "1", "--gpu-rows", "--budget", "0.04").stdout)
        listing = self.call("--seeds", "1").stdout
        self.assertRegex(listing, r"interrupted after round \d+; needs a GPU")
        self.assertIn("finished", self.call("--seeds", "1", "--gpu-rows").stdout)
        self.assertEqual([call.split()[0] for call in self.calls()], ["run", "resume"])

    def test_rows_without_a_value_in_the_paper(self):
        self.paper("good", value="", spread="")
        done = self.call("--seeds", "1")
        line = next(line for line in done.stdout.splitlines() if line.startswith("| I "))
        self.assertEqual([cell.strip() for cell in line.split("|")[5:9]], ["-", "89.60", "-", "finished"])

    def test_unusable_tables(self):
        table = self.folder / "tools" / "papers" / "toy.csv"
        for bad, message in (("ninety,,last,ready", "is not a number"), (",,last,soon", "state must be one of"),
                             (",,last", "state must be one of"), (",,last,gpu", "another state or other")):
            with self.subTest(bad):
                self.paper("good")
                table.write_text(table.read_text() + f"I,toy,s,good,,good.ini,,global_accuracy,{bad}\n")
                done = self.call("--list")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(message, done.stderr)

    def test_what_ends_while_another_row_runs_is_not_run_again(self):
        self.paper("slow", "good")
        self.assertEqual(self.call("--seeds", "1", "--only", "good").returncode, 0)
        result = self.results / "good_seed1.h5"
        result.rename(self.folder / "aside")
        with subprocess.Popen(self.command("--seeds", "1"), env=self.environment(), stdout=subprocess.PIPE,
                              text=True) as process:
            self.wait_for((self.results / "slow_seed1.h5").exists, "the first row")
            (self.folder / "aside").rename(result)  # as a run does that a killed call has left
            out, _ = process.communicate(timeout=60)
        self.assertIn("[2/2] good_seed1\n    finished before\n", out)
        self.assertEqual(len(self.calls()), 2)

    def test_a_failing_row_is_reported_and_does_not_stop_the_others(self):
        self.paper("fail", "typo", "good")
        done = self.call("--seeds", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: fail on purpose", done.stdout)
        self.assertIn("failed: typo on purpose", done.stdout)
        self.assertIn("finished (2 seeds)", done.stdout)
        self.assertEqual(len(self.calls()), 4)  # the failed rows' second seeds are not tried
        self.assertIn("fail on purpose", (self.results / "fail_seed1.log").read_text())

    def test_a_run_that_has_diverged_is_finished_at_once_and_later(self):
        self.paper("rated")
        path = self.configs / "rated.ini"
        path.write_text(path.read_text().replace("lr=0.05", "lr=5").replace("[run]", "[run]\nstop_on_divergence=true"))
        for again in (False, True):
            done = self.call("--seeds", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("| finished; 1 of 1 diverged |", done.stdout)
            self.assertEqual("finished in 0 s, diverged" in re.sub(r"in \d+ s", "in 0 s", done.stdout), not again)
        self.assertEqual(len(self.calls()), 1)

    def test_waiting_and_missing_configuration(self):
        self.paper("good", state="waiting")
        done = self.call()
        self.assertEqual((done.returncode, self.calls()), (0, []))
        self.assertIn("waiting: not in the simulator yet", done.stdout)
        self.paper("good")
        (self.configs / "good.ini").unlink()
        done = self.call()
        self.assertEqual((done.returncode, self.calls()), (1, []))
        self.assertIn("failed: configuration", done.stdout)

    def test_budget_interrupts_and_the_next_call_resumes(self):
        self.paper("slow", "good", rounds=60)
        start = time.monotonic()
        done = self.call("--seeds", "1", "--budget", "0.04")
        self.assertLess(time.monotonic() - start, 20.0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("to be resumed by the next call", done.stdout)
        self.assertIn("stopped: 1 of 2 runs are left", done.stdout)
        self.assertEqual(len(self.calls()), 1)
        self.assertEqual(results.load(self.results / "slow_seed1.h5").status, "interrupted")
        done = self.call("--seeds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.calls()[1].startswith("resume "))
        self.assertEqual(done.stdout.count("finished in"), 2)

    def test_a_run_without_checkpoint_is_removed(self):
        self.paper("stubborn", rounds=600)
        done = self.call("--seeds", "1", "--budget", "0.04")
        self.assertIn("its files are removed", done.stdout)
        self.assertFalse((self.results / "stubborn_seed1.h5").exists())
        self.assertEqual(self.call("--budget", "0").stdout.count("stopped: 3 of 3 runs are left"), 1)
        self.assertEqual(len(self.calls()), 1)

    def test_a_killed_run_goes_on_from_its_checkpoint(self):
        self.paper("killed", "hungry", rounds=20)
        done = self.call("--seeds", "1")
        self.assertEqual((done.returncode, done.stdout.count("    failed: ")), (1, 2))
        self.assertIn("interrupted after round 5", self.call("--seeds", "1", "--list").stdout)
        long_ago = time.time() - 3600
        os.utime(self.results / "killed_seed1.h5", (long_ago, long_ago))
        done = self.call("--seeds", "1", "--only", "killed")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("set aside", done.stdout)
        self.assertEqual([call.split()[0] for call in self.calls()], ["run", "run", "resume"])
        (self.results / "hungry_seed1.ckpt.5.h5").unlink()  # without a checkpoint it starts again
        done = self.call("--seeds", "1", "--only", "hungry")
        self.assertIn("hungry_seed1.h5 is set aside: status running", done.stdout)
        self.assertEqual(self.calls()[-1].split()[0], "run")

    def test_ctrl_c_stops_cleanly_and_a_second_call_at_once_is_refused(self):
        self.paper("slow", rounds=600)
        with subprocess.Popen(self.command("--seeds", "1"), env=self.environment(), stdout=subprocess.PIPE,
                              text=True) as process:
            while not (self.results / "slow_seed1.h5").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.1)
            second = self.call()
            self.assertEqual(second.returncode, 2)
            self.assertIn("another reproduce.py is at work", second.stderr)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, launch.INTERRUPTED)
        self.assertIn("to be resumed by the next call", out)
        self.assertTrue((self.results / "table.md").exists())

    def test_unusable_command_lines(self):
        self.paper("good")
        for arguments in (["--ranks", "100000"], ["--seeds", "0"], ["--budget", "-1"], ["--only", "nothing like it"],
                          ["--fedhpc", "none"], ["--quick", "--full"]):
            with self.subTest(arguments):
                self.assertEqual(self.call(*arguments).returncode, 2)
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
