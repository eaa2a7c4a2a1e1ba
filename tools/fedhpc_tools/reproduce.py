"""Runs the rows of a paper's tables that are not finished yet and compares them with the paper.

    reproduce.py PAPER [--quick | --full] [--gpu-rows] [--budget MINUTES] [--list] [--only SUBSTRING]
                 [--ranks N] [--seeds N] [--data DIR] [--output-dir DIR] [--fedhpc PATH]

Rows come from tools/papers/PAPER.csv, configurations from configs/papers/PAPER/. A row is finished when the
result file of each of its seeds is complete and its configuration is what would be run; such runs are
skipped, so the command may be repeated until nothing is pending. One seed of all rows comes before the next
seed. Every run's output is kept beside its result as NAME.log.

Rows that would take days without a GPU are listed as such and run with --gpu-rows only. --quick leaves out
the rows marked `full` in the CSV file, unless --only selects them, and gives each run at most 100 rounds or
as many as its row says; a run that is not cut short by this is the same with and without --quick.

When the budget is used up, or on Ctrl-C or SIGTERM, nothing is started any more; the current run is asked
(SIGUSR1) to finish its round and write a checkpoint. If it does, its file stays and the next call resumes
it; otherwise its files are removed. A complete result of another configuration is kept as NAME.old.h5.

Prints the comparison of the selected rows and writes that of all rows to DIR/PAPER/table.md. Exit code 0;
1 if a row failed; 2 if the command line, the tables or the program cannot be used.
"""

import argparse
import fcntl
import glob
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from . import launch, paper_table
from .paper_table import PaperError

ROOT = Path(__file__).resolve().parents[2]
QUICK_SEEDS, FULL_SEEDS = 1, 3


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="Reproduces the tables of a paper.")
    parser.add_argument("paper", help="name of a file tools/papers/PAPER.csv")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true",
                      help=f"{QUICK_SEEDS} seed, at most {paper_table.QUICK_ROUNDS} rounds: a look, not a reproduction")
    mode.add_argument("--full", action="store_true",
                      help=f"{FULL_SEEDS} seeds, the configuration's own rounds (default)")
    parser.add_argument("--gpu-rows", action="store_true",
                        help="run the rows that need a GPU as well; best with --ranks as many as there are GPUs")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="MINUTES", help="wall time for all runs")
    parser.add_argument("--list", action="store_true", help="show the rows and their states, run nothing")
    parser.add_argument("--only", default="", metavar="SUBSTRING",
                        help='rows whose "TABLE CONFIGURATION METRIC" contains this')
    parser.add_argument("--ranks", type=int, default=launch.cores(), help="MPI ranks, at most the cores [all]")
    parser.add_argument("--seeds", type=int, help="seeds 1..N")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data.dir of the runs [$FEDHPC_DATA]")
    parser.add_argument("--output-dir", type=Path, default=ROOT / "results" / "papers", metavar="DIR")
    parser.add_argument("--fedhpc", type=Path, metavar="PATH", help="the program [$FEDHPC, build/*/, PATH]")
    options = parser.parse_args(arguments)
    if not 1 <= options.ranks <= launch.cores():
        parser.error(f"--ranks {options.ranks}: must be 1 to {launch.cores()}, the cores of this machine")
    if options.seeds is not None and options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: must be at least 1")
    if not options.budget >= 0:
        parser.error(f"--budget {options.budget}: must be at least 0 minutes")
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else FULL_SEEDS)
    options.output_dir = options.output_dir / options.paper
    return options


def find_program(given):
    """The fedhpc executable: as given, $FEDHPC, a build folder (release first), or on the PATH."""
    named = given or os.environ.get("FEDHPC")
    candidates = [named] if named else [
        *(ROOT / "build" / preset / folder / "fedhpc" for preset in ("release", "cpu") for folder in ("", "bin", "src")),
        shutil.which("fedhpc") or ""]
    for candidate in candidates:
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return Path(candidate).resolve()
    raise PaperError(f"{named}: no such program" if named else
                     "no fedhpc program in build/release or build/cpu or on the PATH; build it or use --fedhpc")


class Reproduction:
    """The rows of a paper, the jobs behind them and what became of each."""

    def __init__(self, options, rows, selected):
        self.options, self.rows, self.selected = options, rows, selected
        self.timed = any(row.seconds is not None for row in rows)
        self.jobs, self.states, self.problems = {}, {}, {}  # by (run name, seed); by job name; by run name
        for row in rows:
            for seed in range(1, options.seeds + 1) if row.state != "waiting" else ():
                self._add(row, seed)
        self.stop = False

    def _add(self, row, seed):
        if row.run_name in self.problems or (row.run_name, seed) in self.jobs:
            return
        try:
            job = paper_table.make_job(row, seed, self.options.quick, ROOT / "configs" / "papers" / self.options.paper,
                                       self.options.output_dir)
        except PaperError as error:
            self.problems[row.run_name] = str(error)
            print(f"reproduce: {row.run_name}: {error}", file=sys.stderr)
            return
        self.jobs[row.run_name, seed] = job
        self.states[job.name] = paper_table.job_state(job)

    def left_out(self, row):
        """Why this call does not run the row; "" if it does."""
        if row.state == "gpu" and not self.options.gpu_rows:
            return "needs a GPU (--gpu-rows)"
        if row.state == "full" and self.options.quick and not self.options.only:
            return "not part of --quick"
        return ""

    def pending(self):
        """(run name, job) still to run for the selected rows: seed 1 of all rows, then seed 2, ..."""
        names = dict.fromkeys(row.run_name for row in self.selected if not self.left_out(row))
        return [(name, self.jobs[name, seed]) for seed in range(1, self.options.seeds + 1) for name in names
                if (name, seed) in self.jobs and self.states[self.jobs[name, seed].name].kind != "finished"]

    def run_pending(self, program):
        deadline = time.monotonic() + 60.0 * self.options.budget
        pending = self.pending()
        for number, (name, job) in enumerate(pending, 1):
            if self.stop or time.monotonic() >= deadline:
                print(f"stopped: {len(pending) - number + 1} of {len(pending)} runs are left")
                break
            if name not in self.problems:
                print(f"[{number}/{len(pending)}] {job.name}", flush=True)
                print("    " + self._run(name, job, program, deadline), flush=True)

    def _run(self, name, job, program, deadline):
        """Runs or resumes one job and says in one line how it ended."""
        if self.states[job.name].kind == "interrupted":
            outcome = self._launch(program, ["resume", str(job.output)], job, deadline)
            if outcome.code not in (0, launch.INTERRUPTED) and not outcome.stopped:
                print(f"    could not be resumed ({outcome.message}), starts afresh", flush=True)
                self.states[job.name] = paper_table.JobState("missing")
        if self.states[job.name].kind != "interrupted":
            remove_files(job, keep_result=self.states[job.name].kind == "outdated")
            arguments = ["run", str(job.config), *(f"--{override}" for override in job.overrides),
                         f"--run.output={job.output}", "--run.progress=plain"]
            outcome = self._launch(program, arguments, job, deadline)
        state = self.states[job.name] = paper_table.job_state(job)
        if outcome.code == 0 and state.kind == "finished":
            return f"finished in {outcome.seconds:.0f} s"
        if state.kind == "interrupted" and (outcome.stopped or outcome.code == launch.INTERRUPTED):
            return f"interrupted {state.detail}, to be resumed by the next call"
        if outcome.stopped:
            remove_files(job)
            self.states[job.name] = paper_table.JobState("missing")
            return f"stopped after {outcome.seconds:.0f} s without a checkpoint, its files are removed"
        self.problems[name] = outcome.message or f"{state.detail or 'no result file'} (exit code 0)"
        return f"failed: {self.problems[name]}"

    def _launch(self, program, arguments, job, deadline):
        if self.options.data:
            arguments = [*arguments, f"--data.dir={self.options.data}"]
        command, environment = launch.mpi_command(program, self.options.ranks, arguments)
        return launch.run(command, environment, job.output.with_suffix(".log"), deadline, lambda: self.stop)

    def row_states(self, row):
        """The states of the row's seeds."""
        jobs = [self.jobs.get((row.run_name, seed)) for seed in range(1, self.options.seeds + 1)]
        return [self.states[job.name] for job in jobs if job]

    def times(self, row):
        """The cells of the paper's and our time of a round."""
        fedavg = paper_table.fedavg_row(row, self.rows)
        ours = [paper_table.seconds_per_round(self.row_states(r)) if r else None for r in (row, fedavg)]
        return [paper_table.time_text(row.seconds, fedavg and fedavg.seconds), paper_table.time_text(*ours)]

    def table(self, rows):
        lines = [paper_table.table_line(row, self.row_states(row), self.problems.get(row.run_name),
                                        self.left_out(row), self.times(row) if self.timed else ()) for row in rows]
        return paper_table.markdown(lines, self.timed)

    def write_table(self):
        mode = (f"`--quick`: at most {paper_table.QUICK_ROUNDS} rounds, where the paper has more not comparable with it"
                if self.options.quick else "the configurations' own rounds")
        notes = ROOT / "tools" / "papers" / f"{self.options.paper}.md"
        text = [f"# {self.options.paper}: the paper's tables and ours\n",
                f"Seeds: {self.options.seeds}; {mode}. Accuracies in %, differences in points (ours - paper); "
                "± is the sample standard deviation over seeds.\n"]
        if self.timed:
            text.append("s/round: time of a round in seconds, ours without evaluation, in brackets its ratio to "
                        "FedAvg's with the same data and network.\n")
        text += [notes.read_text(encoding="utf-8")] if notes.exists() else []
        path = self.options.output_dir / "table.md"
        path.write_text("\n".join([*text, self.table(self.rows)]), encoding="utf-8")
        return path


def remove_files(job, keep_result=False):
    """Removes a job's result and checkpoints; a complete result of another configuration is set aside."""
    if keep_result:
        job.output.replace(job.output.with_suffix(".old.h5"))
    stem = glob.escape(str(job.output.with_suffix("")))
    for path in (str(job.output), f"{job.output}.tmp", *glob.glob(f"{stem}.ckpt.*")):
        Path(path).unlink(missing_ok=True)


def lock(folder):
    """An open lock file in `folder`: two calls must not write the same results."""
    file = open(folder / ".lock", "w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise PaperError(f"{folder}: another reproduce.py is at work there") from None
    return file


def reproduce(options):
    path = ROOT / "tools" / "papers" / f"{options.paper}.csv"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.csv")))
        raise PaperError(f"no tables of a paper {options.paper}; there are {known}")
    rows = paper_table.read_rows(path)
    selected = [row for row in rows if options.only in row.name]
    if not selected:
        raise PaperError(f"--only {options.only}: no row contains this; --list shows the rows")
    if options.list:
        print(Reproduction(options, rows, selected).table(selected), end="")
        return 0
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with lock(options.output_dir):
        work = Reproduction(options, rows, selected)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(work, "stop", True))
        if work.pending():
            if not shutil.which("mpirun"):
                raise PaperError("no mpirun on the PATH")
            work.run_pending(find_program(options.fedhpc))
        path = work.write_table()
        print(f"\n{work.table(selected)}\n{path}")
    return 1 if any(row.run_name in work.problems for row in selected) else 0


def main(arguments):
    options = parse_arguments(arguments)
    try:
        return reproduce(options)
    except (PaperError, OSError) as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2
