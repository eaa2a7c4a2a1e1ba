"""Tests of the GoogleTest main for MPI: runs tests that fail, throw, skip and hang on purpose under
the launcher, and looks at exit codes and printed text.

    python3 harness_test.py --victims <harness_victims> [--mpiexec mpirun] [unittest arguments]
"""

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from apart import apart

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))
from fedhpc.tools.launch import environment_of_ranks  # noqa: E402

WATCHDOG = 2.0  # s, of the runs that hang
SLACK = 20.0  # s, for start-up and end of a job on a loaded machine
HANG = 60.0  # s, after which a run is given up as hung

options = argparse.Namespace(victims=os.environ.get("FEDHPC_HARNESS_VICTIMS"), mpiexec="mpirun")


class Run:
    """One finished job: exit code, output of stdout and stderr together, wall-clock seconds."""

    def __init__(self, command, **environment):
        start = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
            env={
                **environment_of_ranks(),
                "GTEST_COLOR": "no",  # the launcher gives rank 0 a terminal
                **environment,
            },
        )
        try:
            self.output, _ = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher passes it on to the ranks
            try:
                process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"hung for {HANG} s: {' '.join(command)}") from None
        self.code = process.returncode
        self.seconds = time.monotonic() - start


def launcher(ranks):
    return [options.mpiexec, "-n", str(ranks)]


def run_apart(*arguments_by_rank):
    """One job whose ranks get different arguments."""
    return Run(apart(options.mpiexec, options.victims, *arguments_by_rank))


def run(ranks, gtest_filter, *flags, **environment):
    command = [options.victims, f"--gtest_filter={gtest_filter}", *flags]
    return Run(launcher(ranks) + command, **environment)


class HarnessCase(unittest.TestCase):
    def check(self, job, code, *texts):
        self.assertEqual(job.code, code, job.output)
        for text in texts:
            self.assertIn(text, job.output)

    def check_on(self, ranks, gtest_filter, code, *texts, flags=(), **environment):
        job = run(ranks, gtest_filter, *flags, **environment)
        self.check(job, code, *(text.format(n=ranks) for text in texts))
        return job


class Verdicts(HarnessCase):
    def test_pass_is_printed_once(self):
        for ranks in (2, 3):
            job = self.check_on(ranks, "Victim.PassesEverywhere", 0, "[  PASSED  ] 1 test.")
            self.assertEqual(job.output.count("[ RUN      ]"), 1, job.output)

    def test_failure_of_another_rank_is_raised_with_its_text_and_place(self):
        for ranks in (2, 3):
            job = self.check_on(
                ranks, "Victim.FailsOnRankOne", 1,
                "[rank 1 of {n}] ", "first text of rank one", "second text: 12:odd\n[characters]",
                "[  FAILED  ] Victim.FailsOnRankOne",
            )
            self.assertEqual(job.output.count("first text of rank one"), 1, job.output)
            self.assertRegex(job.output, r"harness_victims\.cpp:\d+: Failure")

    def test_fatal_failure_of_another_rank_is_raised(self):
        for ranks in (2, 3):
            job = self.check_on(
                ranks, "Victim.FatalOnRankOne", 1,
                "[rank 1 of {n}] ", "fatal text of rank one", "[  FAILED  ] Victim.FatalOnRankOne",
            )
            self.assertEqual(job.output.count("fatal text of rank one"), 1, job.output)
            self.assertNotIn("not reached", job.output)

    def test_exception_of_another_rank_is_raised(self):
        for ranks in (2, 3):
            job = self.check_on(
                ranks, "Victim.ThrowsOnRankOne", 1,
                "[rank 1 of {n}] ", "exception of rank one", "[  FAILED  ] Victim.ThrowsOnRankOne",
            )
            self.assertEqual(job.output.count("exception of rank one"), 1, job.output)

    def test_failures_of_several_ranks_are_all_raised(self):
        job = self.check_on(3, "Victim.FailsOnAllButRankZero", 1, "text of rank <1>",
                            "text of rank <2>", "[rank 1 of 3] ", "[rank 2 of 3] ")
        self.assertEqual(job.output.count("text of rank <"), 2, job.output)

    def test_failure_of_rank_zero_is_not_repeated(self):
        job = self.check_on(2, "Victim.FailsOnRankZero", 1, "[  FAILED  ] Victim.FailsOnRankZero")
        self.assertEqual(job.output.count("text of rank zero"), 1, job.output)
        self.assertNotIn("[rank 0", job.output)

    def test_long_text_arrives_whole(self):
        self.check_on(2, "Victim.FailsAtLengthOnRankOne", 1, "x" * 1_000_000 + " end of the long")

    def test_a_failed_test_does_not_stop_the_next(self):
        self.check_on(2, "Victim.FailsOnRankOne:Victim.PassesEverywhere", 1,
                      "[       OK ] Victim.PassesEverywhere", "1 FAILED TEST")

    def test_report_file_is_the_one_of_rank_zero(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, f"report_{rank}.xml") for rank in range(2)]
            job = run_apart(*(["--gtest_filter=Victim.FailsOnRankOne", f"--gtest_output=xml:{path}"]
                              for path in paths))
            self.check(job, 1)
            self.assertEqual(os.listdir(folder), ["report_0.xml"])
            with open(paths[0], encoding="utf-8") as file:
                report = file.read()
        self.assertIn("[rank 1 of 2] ", report)
        self.assertIn("first text of rank one", report)

    def test_rank_that_exits_ends_the_job(self):
        job = run(2, "Victim.RankOneExits")
        self.assertNotEqual(job.code, 0, job.output)
        self.assertLess(job.seconds, SLACK)


class SetUpAndTearDown(HarnessCase):
    def test_failure_in_a_suite(self):
        for victim, step in (("VictimSetUp.*", "set-up"), ("VictimTearDown.*", "tear-down")):
            self.check_on(2, victim, 1, "[rank 1 of 2] ", f"{step} of the suite on rank one")

    def test_failure_in_an_environment(self):
        for step in ("set-up", "tear-down"):
            self.check_on(2, "Victim.PassesEverywhere", 1, "[rank 1 of 2] ",
                          f"{step} of the environment on rank one",
                          FEDHPC_VICTIM_ENVIRONMENT=f"fail-{step}")

    def test_skip_in_an_environment_on_one_rank_is_a_failure(self):
        self.check_on(2, "Victim.PassesEverywhere", 1, "skipped on some ranks only",
                      "skip of the environment on rank one",
                      FEDHPC_VICTIM_ENVIRONMENT="skip-set-up")


class Skips(HarnessCase):
    def test_all_tests_skipped_is_77(self):
        for ranks in (2, 3):
            self.check_on(ranks, "Victim.SkipsOnAll", 77, "reason of all", "[  SKIPPED ] 1 test")

    def test_passes_and_skips_is_0(self):
        self.check_on(2, "Victim.SkipsOnAll:Victim.PassesEverywhere", 0, "[  SKIPPED ] 1 test")

    def test_failures_and_skips_is_1(self):
        self.check_on(2, "Victim.SkipsOnAll:Victim.FailsOnRankOne", 1)

    def test_skip_on_one_rank_is_a_failure(self):
        for ranks in (2, 3):
            self.check_on(ranks, "Victim.SkipsOnRankOne", 1, "skipped on some ranks only",
                          "[rank 0 of {n}] not skipped", "reason of rank one")


class ExitCodes(HarnessCase):
    def test_all_ranks_return_the_same_code(self):
        for victim, code in (("Victim.PassesEverywhere", 0), ("Victim.FailsOnRankZero", 1),
                             ("Victim.FailsOnRankOne", 1), ("Victim.SkipsOnAll", 77),
                             ("Victim.SkipsOnRankOne", 1), ("Victim.NoSuchTest", 1)):
            with self.subTest(victim=victim):
                # The shell ends with 0, so that the launcher does not stop the other ranks.
                script = '"$0" "$@"; echo "code <${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $?>"'
                job = Run([*launcher(3), "sh", "-c", script, options.victims,
                           f"--gtest_filter={victim}"])
                codes = sorted(re.findall(r"code <(\d) (\d+)>", job.output))
                self.assertEqual(codes, [(str(rank), str(code)) for rank in range(3)], job.output)

    def test_no_test_is_an_error(self):
        job = self.check_on(2, "Victim.NoSuchTest", 1, "no test was run", "Victim.NoSuchTest")
        self.assertEqual(job.output.count("no test was run"), 1, job.output)

    def test_mistyped_flag_is_an_error(self):
        self.check_on(2, "Victim.PassesEverywhere", 1, flags=["--gtest_fliter=x"])

    def test_list_is_printed_once_and_is_no_error(self):
        job = self.check_on(2, "*", 0, "PassesEverywhere", flags=["--gtest_list_tests"])
        self.assertEqual(job.output.count("FatalOnRankOne"), 1, job.output)

    def test_turns_leave_each_test_to_one_number_of_ranks(self):
        def names(ranks, **environment):
            job = self.check_on(ranks, "*", 0, flags=["--gtest_list_tests"], **environment)
            return [line for line in job.output.splitlines() if line.startswith("  ")]

        turns = {"FEDHPC_TEST_TURNS": "1 1 2"}
        every = names(1, FEDHPC_TESTS="every")
        self.assertEqual(names(1, FEDHPC_TESTS="every", **turns), every, "without a suite nothing takes turns")
        on_one, on_two = (names(ranks, FEDHPC_TESTS="short", **turns) for ranks in (1, 2))
        self.assertEqual(sorted(on_one + on_two), sorted(every))
        self.assertGreater(len(on_one), len(on_two))
        self.assertTrue(on_two)
        whole = {ranks: names(ranks, FEDHPC_TESTS="all", FEDHPC_TEST_TURNS="0 1 2 3") for ranks in (1, 2, 3)}
        on_several = whole[2] + whole[3]
        of_ranks = {name for name in every if "Ranks" in name}
        self.assertEqual(len(set(on_several)), len(on_several), "each on one number of several ranks, if any")
        self.assertTrue(set() < of_ranks < set(on_several) < set(every), on_several)
        self.assertEqual(whole[1], [name for name in every if name not in of_ranks])
        self.assertTrue(whole[2] and whole[3])
        self.assertEqual(names(1, FEDHPC_TESTS="all", FEDHPC_TEST_TURNS="0 1"), every, "of one rank alone")

    def test_turns_that_are_no_numbers_are_an_error(self):
        for turns in ("one", "1 two", "1,2"):
            self.check_on(1, "*", 2, f"no numbers of ranks: {turns}",
                          FEDHPC_TESTS="short", FEDHPC_TEST_TURNS=turns)

    def test_wrong_limit_is_an_error(self):
        for limit in ("soon", "-1", "0", "3 s", "inf"):
            job = self.check_on(2, "Victim.PassesEverywhere", 2, f"FEDHPC_TEST_WATCHDOG={limit}",
                                FEDHPC_TEST_WATCHDOG=limit)
            self.assertEqual(job.output.count("[harness]"), 1, job.output)


class WithoutLauncher(HarnessCase):
    def direct(self, gtest_filter):
        return Run([options.victims, f"--gtest_filter={gtest_filter}"])

    def test_verdicts_of_one_rank(self):
        self.check(self.direct("Victim.PassesEverywhere:Victim.FailsOnRankOne"), 0, "2 tests.")
        self.check(self.direct("Victim.FailsOnRankZero"), 1, "text of rank zero")
        self.check(self.direct("Victim.SkipsOnAll"), 77)
        self.check(self.direct("Victim.NoSuchTest"), 1, "no test was run")


class InStep(HarnessCase):
    def test_shuffle_is_the_one_of_rank_zero(self):
        flags = ["--gtest_filter=Shuffled/*", "--gtest_shuffle", "--gtest_repeat=3"]
        job = run_apart(*([*flags, f"--gtest_random_seed={seed}"] for seed in (11, 22, 33)))
        self.check(job, 0, "Randomizing tests' orders with a seed of 11")

    # On 3 ranks one neither fails by itself nor prints: it has to know the verdict all the same.
    def test_fail_fast_stops_all_ranks(self):
        job = self.check_on(3, "Victim.FailsOnRankOne:VictimTearDown.*", 1,
                            flags=["--gtest_fail_fast"])
        for text in ("[watchdog]", "tear-down of the suite", "skipped on some ranks only"):
            self.assertNotIn(text, job.output)

    def test_ranks_that_run_other_tests_are_named(self):
        job = run_apart(["--gtest_filter=Victim.FailsOnRankZero"],
                        ["--gtest_filter=Victim.SkipsOnAll"])
        self.check(job, 1, "do not run the same tests",
                   "rank 0 of 2: arrived at the end of test Victim.FailsOnRankZero, failed",
                   "rank 1 of 2: arrived at the end of test Victim.SkipsOnAll, skipped")
        self.assertLess(job.seconds, SLACK)


class Deadline(HarnessCase):
    def stuck(self, ranks, victim, waiting, *texts):
        job = self.check_on(ranks, victim, 1, f"the end of test {victim} was not reached", *texts,
                            FEDHPC_TEST_WATCHDOG=str(WATCHDOG))
        self.assertGreaterEqual(job.seconds, WATCHDOG)
        self.assertLess(job.seconds, WATCHDOG + SLACK)
        self.assertEqual(job.output.count("was not reached"), 1, job.output)
        for rank in range(ranks):
            state = "has not arrived" if rank in waiting else "arrived, "
            self.assertIn(f"[watchdog] rank {rank} of {ranks}: {state}", job.output)
        return job

    def test_stuck_rank_zero_is_named_by_the_others(self):
        for ranks in (2, 3):
            self.stuck(ranks, "Victim.RankZeroHangs", {0}, "rank 1 of {n}: arrived, failed",
                       "why rank one left", "[watchdog] rank 1 ends the job")

    def test_rank_that_left_a_collective_names_the_waiting(self):
        self.stuck(2, "Victim.RankOneLeavesCollective", {0}, "rank 1 of 2: arrived, without")
        self.stuck(3, "Victim.RankOneLeavesCollective", {0, 2}, "rank 1 of 3: arrived, without")

    def test_rank_that_never_enters_mpi(self):
        for ranks in (2, 3):
            job = self.stuck(ranks, "Victim.RankOneNeverReturns", {1},
                             "rank 0 of {n}: arrived, failed", "[watchdog] rank 0 ends the job")
            # Once when rank 0 failed, once more in the message of the watchdog.
            self.assertEqual(job.output.count("end of the long text"), 2, job.output[-2000:])

    def test_rank_that_waited_longest_lets_the_lowest_speak(self):
        self.stuck(3, "Victim.RankOneHangsAndRankZeroIsLate", {1}, "[watchdog] rank 0 ends the job")

    def test_slow_rank_is_waited_for(self):
        self.check_on(3, "Victim.RankZeroIsSlow", 0, FEDHPC_TEST_WATCHDOG="20")

    def test_waiting_leaves_the_processor_to_others(self):
        def processor_seconds(victim):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.check_on(3, victim, 0)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        # 2 ranks wait 2 s: 4 s if they spin. A loaded machine's launcher may take a second by itself.
        idle, waiting = (min(processor_seconds(victim) for _ in range(3))
                         for victim in ("Victim.PassesEverywhere", "Victim.RankZeroIsSlow"))
        self.assertLess(waiting - idle, 1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--victims", default=options.victims)
    parser.add_argument("--mpiexec", default=options.mpiexec)
    options, rest = parser.parse_known_args()
    if not options.victims:
        parser.error("--victims: give the path of harness_victims")
    unittest.main(argv=[sys.argv[0], *rest])
