"""Launchers of every kind, by what they put into the environment of the processes that they start.

Several processes at once, with one output: they are the ranks of one run, or they are refused; never so many runs.
"""

import os
import subprocess
import threading

import h5py
from app_support import SMALL_RUN, AppCase, environment, finish, main, options, start

CONFIG = "[run]\nrounds = 2\n" + SMALL_RUN
TASKS = 3
MPI = r"(OpenMPI|MPICH)-[\d.]+"  # as the program names it
# What numbers a process, and what says how many there are; {0}: its number, {1}: that of all.
LAUNCHERS = {
    "mpirun": {"OMPI_COMM_WORLD_RANK": "{0}", "OMPI_COMM_WORLD_SIZE": "{1}"},
    "mpirun_rsh": {"MV2_COMM_WORLD_RANK": "{0}", "MV2_COMM_WORLD_SIZE": "{1}"},
    "PALS": {"PALS_RANKID": "{0}", "PALS_LOCAL_RANKID": "{0}", "PALS_LOCAL_SIZE": "{1}"},
    # Not FLUX_JOB_ID: by that Open MPI 4 looks for Flux itself, and ends the process where there is none.
    "flux run": {"FLUX_TASK_RANK": "{0}", "FLUX_JOB_SIZE": "{1}"},
    "jsrun": {"JSM_NAMESPACE_RANK": "{0}", "JSM_NAMESPACE_SIZE": "{1}"},
    "mpiexec": {"PMI_RANK": "{0}", "PMI_SIZE": "{1}"},
    "srun": {"SLURM_PROCID": "{0}", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "{1}", "SLURM_NTASKS": "8"},
}
OTHERS = {name: None for variables in LAUNCHERS.values() for name in variables} | {
    name: None for name in environment() if name.startswith(("SLURM_", "PMI", "PMIX_", "PALS_", "FLUX_"))}


def one_of(launcher, rank, tasks=TASKS):
    return OTHERS | {name: text.format(rank, tasks) for name, text in launcher.items()}


def read_all(terminal, into):
    try:
        while part := os.read(terminal, 4096):
            into.append(part)
    except OSError:  # Linux's end of a terminal that nobody has open
        pass


class Launchers(AppCase):
    def together(self, launcher, *arguments, tasks=TASKS, more=None):
        """What becomes of processes that a launcher has started, in the order of their numbers."""
        config = self.ini(CONFIG, "run.ini")
        running = [start("run", config, *arguments, cwd=self.folder, env=one_of(launcher, rank, tasks) | (more or {}))
                   for rank in range(tasks)]
        return [finish(process) for process in running]

    def written(self):
        return sorted(path.name for path in self.folder.glob("*") if path.suffix != ".ini")

    def test_tasks_that_mpi_does_not_join_are_refused(self):
        for name, variables in LAUNCHERS.items():
            with self.subTest(name):
                done = self.together(variables)
                self.assertEqual([one.returncode for one in done], [2] * TASKS, [one.stderr for one in done])
                self.assertRegex(done[0].stderr, rf"\Afedhpc: error: {name} has started {TASKS} tasks, but MPI \({MPI}\) "
                                                 r"knows of 1 rank: [^\n]*--run\.mpi=off[^\n]*\n\Z")
                self.assertEqual([one.stderr for one in done[1:]], [""] * (TASKS - 1), "one speaks for all")
                self.assertEqual(self.written(), [])
        self.assertIn("srun --mpi=pmix", done[0].stderr)

    def test_a_plan_is_refused_as_well(self):
        done = finish(start("plan", self.ini(CONFIG), cwd=self.folder, env=one_of(LAUNCHERS["jsrun"], 0)))
        self.assertEqual(done.returncode, 2)

    def test_a_number_tells_of_others_where_nobody_counts(self):
        """PALS tells the tasks of a host alone: with one on each, the second one knows that there is a first. PMIx's
        variables tell of no others at all."""
        for name, alone in (("PALS", {"PALS_RANKID": "{0}", "PALS_LOCAL_SIZE": "1"}), ("PMIx", {"PMIX_RANK": "{0}"})):
            with self.subTest(name):
                done = self.together(alone, "--force", tasks=TASKS)
                self.assertEqual([one.returncode for one in done], [0, 2, 2], [one.stderr for one in done])
                for number in range(1, TASKS):
                    self.assertRegex(done[number].stderr, rf"\Afedhpc: error: {name} has started {number + 1} or more "
                                                          rf"tasks, but MPI \({MPI}\) knows of 1 rank: [^\n]*\n\Z")
                self.assertEqual(self.written(), ["run.ckpt.2.h5", "run.h5"])

    def test_one_task_is_one_run(self):
        batch = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NPROCS": "8"}
        step = {**LAUNCHERS["srun"], "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}
        for name, variables in {"a batch script of SLURM": batch, "a step of one task": step,
                                "flux run -n 1": {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "1"}}.items():
            with self.subTest(name):
                done, = self.together(variables, "--force", tasks=1)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("\n1 rank, blocks of ", done.stdout)

    def test_off_is_one_process_whatever_started_it(self):
        config = self.ini(CONFIG, "run.ini")
        running = [start("run", config, "--run.mpi=off", f"--run.output={rank}.h5", cwd=self.folder,
                         env=one_of(LAUNCHERS["srun"], rank)) for rank in range(2)]
        for process in running:
            done = finish(process)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("\n1 rank, blocks of ", done.stdout)

    def test_on_starts_mpi_without_a_launcher(self):
        config = self.ini(CONFIG + "[run]\nmpi = on\n", "run.ini")
        out = self.run_ok("run", config, env=OTHERS).stdout
        self.assertRegex(out, rf"\n1 rank \({MPI}\), blocks of ")
        out = self.run_ok("resume", "run.h5", "--run.rounds=3", env=OTHERS).stdout
        self.assertIn("1 rank (", out)
        out = self.run_ok("resume", "run.h5", "--run.rounds=4", "--run.mpi=off", env=OTHERS).stdout
        self.assertIn("\n1 rank, blocks of ", out)

    def test_a_resumed_run_starts_as_its_checkpoint_says_or_the_configuration_behind(self):
        """Not as both say: a configuration has defaults too, and bases."""
        self.ini(CONFIG, "plain.ini")
        self.ini(CONFIG + "[run]\nmpi = off\n", "off.ini")
        self.ini(CONFIG + "[run]\nmpi = on\n", "on.ini")
        self.ini("base = on.ini\n", "base.ini")
        alone, on, two = r"\n1 rank, ", rf"\n1 rank \({MPI}\), ", rf"\n2 ranks \((mpirun|mpiexec), {MPI}\), "
        self.run_ok("run", "off.ini", "--run.output=run.h5", env=OTHERS)
        for rounds, (name, ranks, expected) in enumerate((("plain", 2, two), ("base", 0, on), ("off", 0, alone)), 3):
            done = self.run_ok("resume", "run.h5", f"{name}.ini", f"--run.rounds={rounds}", ranks=ranks, env=OTHERS)
            self.assertRegex(done.stdout, expected)
        # One of several tasks that MPI does not join, which is refused unless it is to be alone.
        results = self.folder / "run.h5"
        for rounds, lose in ((6, results.unlink), (7, lambda: results.write_bytes(b""))):
            lose()
            done = self.run_ok("resume", "run.h5", f"--run.rounds={rounds}", env=one_of(LAUNCHERS["srun"], 0))
            self.assertRegex(done.stdout, alone)

    def test_mpirun_starts_ranks_and_is_named(self):
        done = self.run_ok("run", self.ini(CONFIG, "run.ini"), ranks=2, env=OTHERS)
        self.assertRegex(done.stdout, rf"(?m)^2 ranks \((mpirun|mpiexec), {MPI}\), blocks of ")
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(len(file["hostnames"]), 2)

    def shows(self, variables, *more, above=()):
        """"bar" or "plain": what a run shows on a terminal that a process has given it whose own output is none."""
        config = self.ini(CONFIG, "run.ini")
        leader, terminal = os.openpty()
        shown = []
        reader = threading.Thread(target=read_all, args=(leader, shown))  # a terminal holds but a few lines
        reader.start()
        command = [options.fedhpc, "run", str(config), "--force", *more]
        # `exit` keeps bash from becoming the command.
        done = subprocess.run(["bash", "-c", '"$@" > "$0"; exit $?', os.ttyname(terminal), *above, *command],
                              cwd=self.folder, env=environment(**OTHERS | variables), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(terminal)
        reader.join()
        os.close(leader)
        text = b"".join(shown).decode()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("round 2/2", text)
        return "bar" if "\r[####" in text else "plain"

    def test_a_bar_is_for_who_looks_at_it(self):
        """Some launchers give their tasks terminals, whatever their own output is; others where they are asked to."""
        pmix = {"PMIX_RANK": "{0}"}
        script = ["bash", "-c", '"$0" "$@"; exit $?']
        for name, variables, mpi, above, expected in (
                ("none", {}, "off", (), "bar"),
                ("mpirun", LAUNCHERS["mpirun"], "off", (), "plain"),
                ("a script below mpirun", LAUNCHERS["mpirun"], "off", script, "plain"),
                ("PRRTE", pmix, "off", (), "plain"),
                ("srun --pty", {**LAUNCHERS["srun"], **pmix}, "off", (), "bar"),
                ("none, where MPI sets the variables of its own", {}, "on", (), "bar")):
            with self.subTest(name):
                self.assertEqual(self.shows(one_of(variables, 0), f"--run.mpi={mpi}", above=above), expected)

    def test_commands_that_do_not_train_need_no_mpi(self):
        for rank, expected in ((0, True), (1, False)):
            done = subprocess.run([options.fedhpc, "list"], env=environment(**one_of(LAUNCHERS["flux run"], rank)),
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, bool(done.stdout), done.stderr), (0, expected, ""))

    def test_a_wrong_value(self):
        done = finish(start("run", self.ini(CONFIG), "--run.mpi=perhaps", cwd=self.folder, env=OTHERS))
        self.assertEqual(done.returncode, 2)
        self.assertIn("auto, on, off", done.stderr)


if __name__ == "__main__":
    main()
