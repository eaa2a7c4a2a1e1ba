"""Tests of jobs/environment.sh, which all job scripts source, with stand-ins for SLURM's commands and the program."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import at_once  # noqa: E402
from tool_support import write_run  # noqa: E402

from fedhpc.tools import results, scaling  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    # Runs the command behind srun's own options, as one rank.
    "srun": 'if [ "$1" = --mpi=list ]; then echo "${FAKE_MPI-pmix}"; exit 0; fi\necho "srun $*" >> calls.log\n'
            'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n',
    "mpirun": 'echo "mpirun $*" >> calls.log\ntouch run.h5\n',
    "mpiexec": 'echo "mpiexec $*" >> calls.log\n[ -n "${FAKE_NOTHING:-}" ] || touch run.h5\n',
    # The job's state, or another one from the look of the number FAKE_LOOK on; nothing in the first FAKE_SILENT looks.
    "squeue": 'echo "squeue $*" >> calls.log\nlook=$(grep -c ^squeue calls.log)\n'
              '[ "$look" -gt "${FAKE_SILENT:-0}" ] || exit 1\n'
              'if [ "$look" -ge "${FAKE_LOOK:-1000}" ]; then echo PENDING; else echo "${FAKE_STATE-RUNNING}"; fi\n',
    "scontrol": 'echo "scontrol $*" >> calls.log\n',
    # Ends as it is told to; with FAKE_CHECKPOINT it leaves one of that round first.
    "fedhpc": 'if [ "$1 $2" = "show config" ]; then\n[ -z "${FAKE_REFUSED:-}" ] || { echo "fedhpc: error: refused" >&2; exit "$FAKE_REFUSED"; }\n'
              'name=run.h5; for word; do case $word in --run.output=*) name=${word#*=} ;; esac; done; echo "$name"; exit 0; fi\n'
              'if [ "$1" = show ]; then echo "status ${FAKE_STATUS-complete}"\n'
              '[ ! -e "$3.begun" ] || echo "started $(cat "$3.begun")"; exit 0; fi\n'
              'echo "fedhpc $*" >> calls.log\ntouch run.h5\n[ -z "${FAKE_CHECKPOINT:-}" ] || touch "run.ckpt.$FAKE_CHECKPOINT.h5"\n'
              '[ -z "${FAKE_TERM:-}" ] || kill -TERM "$BATCH"\n'
              'if [ -n "${FAKE_WAIT:-}" ]; then trap "exit 75" USR1; kill -USR1 "$BATCH"\n'
              'for _ in {1..300}; do sleep 0.1; done; fi\n'
              'exit "${FAKE_CODE:-0}"\n',
}


class JobCase(unittest.TestCase):
    """A folder with stand-ins for commands, which note in calls.log how they were called."""

    commands = COMMANDS

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        (self.folder / "bin").mkdir()
        for name, text in self.commands.items():
            path = self.folder / "bin" / name
            path.write_text("#!/bin/bash\n" + text)
            path.chmod(0o755)

    def calls(self, command):
        path = self.folder / "calls.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(command + " ")]

    def script(self, name, *arguments, **variables):
        """Runs a job script of another scheduler than SLURM in the folder; its exit code and output."""
        environment = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "FEDHPC_HOME": str(ROOT),
                       "FEDHPC": str(self.folder / "bin" / "fedhpc"), **variables}
        done = subprocess.run(["bash", "-c", 'export BATCH=$$; . "$0" "$@"', ROOT / "jobs" / name, *arguments],
                              cwd=self.folder, env=environment, text=True, capture_output=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def bash(self, script, *arguments, **variables):
        """Runs a script that sources environment.sh; its exit code and output."""
        environment = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "FEDHPC_HOME": str(ROOT),
                       "FEDHPC": str(self.folder / "bin" / "fedhpc"), "SLURM_JOB_ID": "7", **variables}
        text = 'set -u\nexport BATCH=$$\n. "$FEDHPC_HOME/jobs/environment.sh"\n' + script
        done = subprocess.run(["bash", "-c", text, "job", *arguments], cwd=self.folder, env=environment, text=True,
                              capture_output=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def to_the_end(self, **variables):
        return self.bash('run_to_the_end 1 "$@"', "run.ini", **variables)


class Environment(JobCase):
    def test_the_result_file_is_the_programs(self):
        self.assertEqual(self.bash('stem_of "$@"', "run.ini"), (0, "run\n"))
        self.assertEqual(self.bash('stem_of "$@"', "run.ini", "--run.output=a b/c.h5"), (0, "a b/c\n"))

    def test_a_refused_configuration_ends_the_job(self):
        for start in ("run_to_the_end", "run_once"):
            code, said = self.bash(f'{start} 1 "$@"', "run.ini", FAKE_REFUSED="2")
            self.assertEqual((code, self.calls("srun")), (2, []))
            self.assertIn("fedhpc: error: refused\n", said)
            self.assertIn("refused (exit code 2); the message above says what to change\n", said)

    def test_a_program_that_cannot_say_where_its_result_is_has_not_refused(self):
        job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_ARRAY_TASK_ID": "1"}
        for name, failure in (("single_node", 127), ("preemptible", 139), ("array_seeds", 127), ("weak_scaling", 127)):
            code, said = self.script(f"{name}.sbatch", "run.ini", FAKE_REFUSED=str(failure), **job)
            self.assertEqual((code, self.calls("srun")), (failure, []), said)
            self.assertIn(f": failed (exit code {failure}); remove the cause", said)
            self.assertNotIn("refused (exit code 2)", said)

    def test_the_newest_checkpoint_is_that_of_the_largest_round(self):
        self.assertEqual(self.bash("newest_checkpoint run", "run.ini"), (0, "-1\n"))
        (self.folder / "run.ckpt.0.h5").touch()
        self.assertEqual(self.bash("newest_checkpoint run", "run.ini"), (0, "0\n"))
        for name in ("run.ckpt.9.h5", "run.ckpt.10.h5", "run.ckpt.11.h5.tmp", "run.ckpt.x.h5", "run2.ckpt.30.h5"):
            (self.folder / name).touch()
        self.assertEqual(self.bash("newest_checkpoint run", "run.ini"), (0, "10\n"))

    def test_a_run_begins_or_goes_on(self):
        self.bash('run_or_resume 3 "$@"', "run.ini", "--train.lr=0.1")
        (self.folder / "run.ckpt.5.h5").touch()
        self.bash('run_or_resume 3 "$@"', "run.ini", "--train.lr=0.1")
        self.assertEqual(self.calls("fedhpc"),
                         ["fedhpc run run.ini --go-on --train.lr=0.1"] * 2)
        self.assertEqual(len([call for call in self.calls("srun") if "--ntasks=3 " in call]), 2)

    def test_a_run_that_was_interrupted_in_its_first_round_goes_on(self):
        (self.folder / "run.ckpt.0.h5").touch()
        code, _ = self.to_the_end()
        self.assertEqual((code, self.calls("fedhpc")), (0, ["fedhpc run run.ini --go-on"]))

    def test_ranks_have_gpus_where_the_job_has(self):
        for variables, expected in (({}, False), ({"SLURM_GPUS_PER_TASK": "1"}, True), ({"SLURM_GPUS": "4"}, True)):
            self.bash('run_or_resume 1 "$@"', "run.ini", **variables)
            self.assertEqual("--gpus-per-task=1 --gpu-bind=single:1" in self.calls("srun")[-1], expected)

    def test_mpirun_takes_over_where_srun_has_no_pmix(self):
        code, _ = self.bash('run_or_resume 2 "$@"', "run.ini", FAKE_MPI="none pmi2")
        self.assertEqual((code, self.calls("srun")), (0, []))
        self.assertIn("mpirun -n 2 ", self.calls("mpirun")[0])
        self.bash('run_or_resume 2 "$@"', "run.ini", FEDHPC_LAUNCHER="mpirun")
        self.assertEqual(len(self.calls("mpirun")), 2)

    def test_what_srun_is_given_for_mpi(self):
        for variables, expected in (({}, "pmix"), ({"FAKE_MPI": "none cray_shasta"}, "cray_shasta"),
                                    ({"FAKE_MPI": "none", "FEDHPC_MPI": "pmi2"}, "pmi2"), ({"FEDHPC_MPI": "none"}, "none"),
                                    ({"FAKE_MPI": "none", "FEDHPC_LAUNCHER": "srun", "FEDHPC_MPI": "pmix_v4"}, "pmix_v4")):
            self.bash('run_or_resume 2 "$@"', "run.ini", **variables)
            self.assertIn(f"srun --mpi={expected} --ntasks=2 ", self.calls("srun")[-1])

    def test_mpirun_notices_a_lost_host_before_the_ranks_give_up(self):
        """By settings of Open MPI 4's mpirun and of Open MPI 5's, which a user's own ones replace."""
        def keepalive(**given):
            names = [f"{of}_MCA_oob_tcp_keepalive_{what}" for of in ("OMPI", "PRTE") for what in ("time", "intvl", "probes")]
            code, said = self.bash(f"printenv {' '.join(names)}", "run.ini", **given)
            self.assertEqual(code, 0, "all are there, and exported")
            return [int(line) for line in said.split()]

        self.assertEqual(keepalive(), [30, 10, 3] * 2)
        self.assertEqual(keepalive(OMPI_MCA_oob_tcp_keepalive_time="60"), [60, 10, 3] * 2)
        self.assertEqual(keepalive(PRTE_MCA_oob_tcp_keepalive_probes="5"), [30, 10, 3, 30, 10, 5])

    def test_another_mpis_launcher(self):
        self.bash('run_or_resume 2 "$@"', "run.ini", FEDHPC_LAUNCHER="mpiexec")
        self.assertIn("mpiexec -n 2 ", self.calls("mpiexec")[0])
        self.assertNotIn("--bind-to", self.calls("mpiexec")[0])

    def test_a_launcher_that_says_0_is_not_believed(self):
        def ends(status, *arguments):
            return self.bash('run_or_resume 2 "$@"', "run.ini", *arguments, FEDHPC_LAUNCHER="mpiexec", FAKE_STATUS=status,
                             FAKE_NOTHING="1")

        for output in ("run.h5", "other.hdf5"):
            arguments = [f"--run.output={output}"] if output != "run.h5" else []
            code, said = ends("complete", *arguments)
            self.assertEqual((code, f"the launcher says 0, but {output} is missing" in said), (137, True), said)
            (self.folder / output).touch()
            for status, expected in (("complete", 0), ("diverged", 0), ("running or killed", 137), ("failed", 137)):
                code, said = ends(status, *arguments)
                self.assertEqual((code, f"the launcher says 0, but {output} is" in said), (expected, expected == 137), said)
            code, said = ends("", *arguments)  # an older program
            self.assertEqual((code, "does not say how" in said), (0, True), said)

    def test_interrupted_and_killed_runs_are_requeued_and_others_are_not(self):
        for ended in (0, 1, 2, 75, 9, 137, 138, 143):
            (self.folder / "calls.log").unlink(missing_ok=True)
            code, _ = self.to_the_end(FAKE_CODE=str(ended))
            self.assertEqual(code, 137 if ended == 9 else ended, "MPICH's mpiexec says 9")
            self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7"] if ended in (75, 9, 137) else [], ended)

    def test_a_task_of_an_array_requeues_itself_alone(self):
        self.to_the_end(FAKE_CODE="75", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7_3"])
        self.assertEqual(set(self.calls("squeue")), {"squeue -h -j 7_3 -o %T"})

    def test_a_step_that_ends_well_as_slurm_takes_its_node_is_not_done(self):
        code, said = self.to_the_end(FAKE_STATE="COMPLETING")
        self.assertEqual(code, 137)
        self.assertNotIn("done", said)
        self.assertEqual(self.to_the_end(FAKE_STATE="")[0], 0)  # where nothing is known the code counts

    def test_the_state_of_a_job_whose_node_failed_may_come_late(self):
        for look, variables, expected in ((2, {}, 137), (6, {"FAKE_TERM": "1"}, 137), (6, {}, 0),
                                          (1000, {"FAKE_TERM": "1"}, 0)):
            (self.folder / "calls.log").unlink(missing_ok=True)
            code, said = self.to_the_end(FAKE_LOOK=str(look), **variables)
            self.assertEqual((code, said.count(": done\n")), (expected, 1 if expected == 0 else 0), (look, said))
            self.assertEqual(self.calls("scontrol"), [])

    @at_once.possible
    def test_the_exit_code_outlives_a_signal_that_comes_with_the_end(self):
        (self.folder / "at_once.py").write_text(at_once.PROGRAM)
        program = self.folder / "bin" / "fedhpc"
        program.write_text(f'#!/bin/bash\nexec "{sys.executable}" -S at_once.py\n')
        for _ in range(3):
            code, said = self.bash(f'{at_once.SHELL}launch 1 "$FEDHPC"', "on")
            self.assertEqual((code, said.count("got SIGTERM")), (7, 1), said)

    def test_a_job_that_slurm_is_ending_is_left_alone(self):
        for state in ("COMPLETING", "CANCELLED"):
            code, said = self.to_the_end(FAKE_CODE="75", FAKE_STATE=state)
            self.assertEqual(code, 75)
            self.assertIn("not requeued from here", said)
        self.assertEqual(self.calls("scontrol"), [])

    def test_a_scheduler_that_does_not_answer_is_asked_again(self):
        for silent, told in ((2, False), (1000, True)):
            (self.folder / "calls.log").unlink(missing_ok=True)
            code, said = self.to_the_end(FAKE_CODE="75", FAKE_SILENT=str(silent))
            self.assertEqual((code, "does not tell the job's state" in said), (75, told), said)
            self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7"])

    def test_restarts_have_an_end(self):
        for limit in ({"SLURM_RESTART_COUNT": "100"}, {"SLURM_RESTART_COUNT": "2", "FEDHPC_MAX_RESTARTS": "2"}):
            self.assertIn("(FEDHPC_MAX_RESTARTS); not requeued", self.to_the_end(FAKE_CODE="75", **limit)[1])
        self.assertEqual(self.calls("scontrol"), [])
        self.to_the_end(FAKE_CODE="75", SLURM_RESTART_COUNT="1", FEDHPC_MAX_RESTARTS="2")
        self.assertEqual(len(self.calls("scontrol")), 1)

    def test_the_signal_reaches_the_run_once(self):
        code, said = self.to_the_end(FAKE_WAIT="1")
        self.assertEqual(code, 75)
        self.assertEqual(said.count("asked to stop"), 1)
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7"])

    def test_a_signal_before_the_start_starts_nothing(self):
        code, _ = self.bash('kill -USR1 $$\nrun_to_the_end 1 "$@"', "run.ini")
        self.assertEqual(code, 75)
        self.assertEqual(self.calls("srun"), [])
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7"])
        code, said = self.bash('kill -USR1 $$\nrun_once 1 "$@"', "run.ini")
        self.assertEqual(code, 75)
        self.assertIn("asked to stop before the run was started (exit code 75)", said)
        self.assertNotIn("interrupted with a checkpoint", said)

    def test_a_signal_as_the_run_starts_reaches_it_once(self):
        """Both the trap, which knows $launched by then, and the start itself would pass it on."""
        code, said = self.bash('start() { launched=1; kill -USR1 $$; }\npass_on() { echo passed; }\nawait_end() { return 75; }\n'
                               'launch 1 x', "run.ini")
        self.assertEqual((code, said.count("passed")), (75, 1), said)

    def test_a_run_that_did_not_listen_yet_is_requeued(self):
        self.bash('run_or_resume() { kill -USR1 $$; return 138; }\nrun_to_the_end 1 "$@"', "run.ini")
        self.assertEqual(self.calls("scontrol"), ["scontrol requeue 7"])

    def test_unusable_input(self):
        code, said = self.bash("echo on", "run.ini", FEDHPC=str(self.folder / "none"))
        self.assertEqual(code, 2)
        self.assertIn("build it (tools/build.sh) or set FEDHPC to it", said)
        self.assertNotIn(" in ", said, "nobody looked elsewhere")
        code, said = self.bash("echo on")
        self.assertEqual(code, 2)
        self.assertIn("nothing to run; sbatch jobs/NAME.sbatch CONFIG.ini", said)

    def test_the_program_is_looked_for(self):
        """In the folders of both presets, best first, in the same installation and on the PATH."""
        home = self.folder / "prefix/share/fedhpc"
        shutil.copytree(ROOT / "jobs", home / "jobs")
        bare = {"FEDHPC": "", "FEDHPC_HOME": str(home), "PATH": os.environ["PATH"]}
        code, said = self.bash("echo on", "run.ini", **bare)
        self.assertEqual(code, 2)
        self.assertIn(f"no program 'fedhpc' in {home}/build/release, {home}/build/cpu, {home}/../../bin and on the PATH; "
                      "build it", said)
        program = self.folder / "bin/fedhpc"
        bare["PATH"] = f"{program.parent}:{bare['PATH']}"
        self.assertEqual(self.bash('echo "$FEDHPC"', "run.ini", **bare), (0, f"{program}\n"))
        for name in ("../../bin", "build/cpu", "build/release"):
            (home / name).mkdir(parents=True)
            shutil.copy(program, home / name)
            self.assertEqual(self.bash('echo "$FEDHPC"', "run.ini", **bare), (0, f"{home}/{name}/fedhpc\n"))

    def test_modules_that_cannot_be_loaded_end_the_job(self):
        for status in (0, 1):
            (self.folder / "bin/module").write_text(f'#!/bin/bash\necho "module $*"\nexit {status}\n')
            (self.folder / "bin/module").chmod(0o755)
            code, said = self.bash("echo goes on", "run.ini", FEDHPC_MODULES="gcc/12 openmpi")
            first, last = said.splitlines()
            self.assertEqual((code, first), (2 if status else 0, "module load gcc/12 openmpi"))
            self.assertIn("cannot load the modules 'gcc/12 openmpi' (FEDHPC_MODULES)" if status else "goes on", last)


class WeakScaling(JobCase):
    commands = {**COMMANDS,
                # Writes what it has of the run's number of ranks as the program's export would.
                "fedhpc": COMMANDS["fedhpc"].replace('echo "fedhpc $*"', 'if [ "$1" = export ]; then\nranks=${2#run_weak}\n'
                                                     'cp "${ranks%.h5}.csv" "$4/rounds.csv"; exit; fi\necho "fedhpc $*"')
                .replace("name=run.h5;", '[ "$4" != run.rounds ] || { echo "${FAKE_ROUNDS:-20}"; exit; }\nname=run.h5;'),
                # awk reads and prints numbers as LC_NUMERIC says, which no test can have: few machines know another locale.
                "awk": f'[ "$LC_ALL" = C ] || echo "awk $LC_ALL" >>calls.log\nexec {shutil.which("awk")} "$@"\n'}

    def test_times_are_those_of_the_scaling_table_in_every_locale(self):
        expected = []
        for ranks, seconds in ((1, (9.0, 0.25, 3.5, 0.75, 0.5)), (2, (9.0, 1.25e-1, 2.0, 4.0, 0.5, 0.75))):
            (self.folder / f"{ranks}.csv").write_text("".join(
                ["round,seconds_evaluate,wall_seconds\n", *(f"{t},0.1,{value}\n" for t, value in enumerate(seconds, 1))]))
            path = write_run(self.folder / f"run_weak{ranks}.h5", len(seconds), wall_seconds=seconds, attributes={"ranks": ranks})
            expected.append(scaling.seconds_of_round(results.load(path)))
        code, said = self.script("weak_scaling.sbatch", "run.ini", SLURM_NTASKS="2", SLURM_JOB_ID="7", CLIENTS_PER_RANK="3",
                                 LC_ALL="de_DE.UTF-8")
        self.assertEqual((code, self.calls("awk")), (0, []), said)
        lines = [line.split() for line in said.splitlines() if "setlocale" not in line]  # of a bash that knows no German
        self.assertEqual(lines[-3:], [["ranks", "clients", "s/round", "efficiency"], ["1", "3", "0.625", "1.000"],
                                 ["2", "6", "0.75", "0.833"]])
        self.assertEqual(expected, [0.625, 0.75])

    def test_a_time_of_an_earlier_call_is_said_to_be_one(self):
        for ranks, begun in ((1, "2020-01-01T00:00:00Z"), (2, "2999-01-01T00:00:00Z")):
            (self.folder / f"{ranks}.csv").write_text("round,wall_seconds\n1,9\n2,0.5\n")
            (self.folder / f"run_weak{ranks}.h5").touch()
            (self.folder / f"run_weak{ranks}.h5.begun").write_text(begun)
        code, said = self.script("weak_scaling.sbatch", "run.ini", SLURM_NTASKS="2", SLURM_JOB_ID="7")
        self.assertEqual(code, 0, said)
        first, second, last = said.splitlines()[-3:]
        self.assertRegex(first, r"^ +1 .* 1\.000  of an earlier call, begun 2020-01-01T00:00:00Z$")
        self.assertRegex(second, r"^ +2 .* 1\.000$")
        self.assertIn("to measure anew, rename run_weak<R>.h5", last)

    def test_one_round_is_refused(self):
        code, said = self.script("weak_scaling.sbatch", "run.ini", SLURM_NTASKS="2", SLURM_JOB_ID="7", FAKE_ROUNDS="1")
        self.assertEqual((code, self.calls("fedhpc")), (2, []), said)
        self.assertIn("the first round is not timed; set run.rounds to 2 or more\n", said)


class Scripts(unittest.TestCase):
    def test_bash_can_read_them(self):
        scripts = sorted((ROOT / "jobs").iterdir())
        self.assertEqual(len(scripts), 17)
        for script in scripts:
            done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("shellcheck"), "no shellcheck")
    def test_shellcheck_finds_nothing(self):
        jobs = ROOT / "jobs"
        scripts = [one for kind in ("*.sbatch", "*.pbs", "*.flux.sh") for one in sorted(jobs.glob(kind))]
        schedulers = [jobs / f"{name}.sh" for name in ("slurm", "pbs", "flux", "await_end")]
        for options in (["-x", "-s", "bash", "jobs/environment.sh"], schedulers, ["-x", *scripts]):
            done = subprocess.run(["shellcheck", "-P", ROOT, *options], cwd=ROOT, capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
