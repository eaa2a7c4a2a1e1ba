"""The rows of one paper, the runs behind them, what became of each, and running what is pending."""

import fcntl
import functools
import os
import sys
import time
from pathlib import Path

from . import data_files, launch, paper_plans, paper_record, paper_table, recorded
from .paper_table import KEPT, PaperError
from .plan import PlanError
from .project import ROOT, needed, programs
from .results import files_beside, link_target
from .style import number_of_earlier

WAIT_SECONDS = 0.2  # between looks at a run of another process


def paper_names():
    """The papers that have tables, in alphabetical order; FileNotFoundError where there is no folder of tables."""
    return sorted(path.stem for path in needed("tools/papers").glob("*.csv"))


def rows_of(paper):
    """All rows of a paper."""
    path = ROOT / "tools" / "papers" / f"{paper}.csv"
    if not path.exists():
        raise PaperError(f"no tables of a paper {paper}; there are {', '.join(paper_names())}")
    return paper_table.read_rows(path)


def find_program(given):
    """The fedhpc executable: as given, $FEDHPC, or the first of programs()."""
    named = given or os.environ.get("FEDHPC")
    for candidate in [named] if named else programs():
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return Path(candidate).resolve()
    raise PaperError(f"{named}: no such program" if named else
                     "no fedhpc program in build/release or build/cpu, beside this Python or on the PATH; build it or "
                     "use --fedhpc")


@functools.cache
def _tell_once(sentence):
    """On standard error; a call may look at the same runs several times."""
    print(sentence, file=sys.stderr)


def program_if_any(given):
    """The same, or None where there is none."""
    try:
        return find_program(given)
    except PaperError:
        return None


class Reproduction:
    """The rows of a paper, the jobs behind them and what became of each.

    `options`: paper, output_dir (of this paper), quick, seeds, only, missing, gpu_rows, data, ranks, budget [min].
    """

    def __init__(self, options, rows, selected):
        self.options, self.rows, self.selected = options, rows, selected
        self.records = paper_record.read(ROOT / "results" / "papers" / f"{options.paper}.csv")
        self.timed = any(row.seconds is not None for row in rows)
        self.jobs, self.states, self.problems = {}, {}, {}  # by (run name, seed); by job name; by run name
        for row in rows:
            for seed in range(1, options.seeds + 1) if row.state != "waiting" else ():
                self._add(row, seed)
        self.program = None  # that results have been compared with
        self.stop = False
        self.exit_code = 0  # of the last run
        self.outcome = "nothing was left to do"  # of run_pending, in a few words
        self.note = lambda **values: None  # told job, number and total of a run that starts

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

    def compare_whole(self, only=None):
        """Compares the selected rows' results that would be kept, or those of the job `only`, with all keys of what the
        program would run and with the data as they are now: before, only the keys that are set have been.

        One line says where this cannot be done, also for want of a program.
        """
        self.program = program = program_if_any(self.options.fedhpc)
        names = {row.run_name for row in self.selected}
        kept = [(key, job) for key, job in self.jobs.items() if key[0] in names and only in (None, job.name)
                and self.states[job.name].kind in KEPT]
        unplanned = {}
        for key, job in kept if program else ():
            if self.stop:
                return
            try:
                self.jobs[key] = paper_plans.resolved(job, program, self.options.data)
            except PlanError as error:
                unplanned[key[0]] = error
            else:
                self.states[job.name] = paper_table.job_state(self.jobs[key])
        if sentence := paper_plans.why_not_compared(kept, program, unplanned):
            _tell_once(f"reproduce: {self.options.paper}: {sentence}")

    def whole(self, job):
        """The job with its whole configuration, where compare_whole has a program and this a plan."""
        try:
            return paper_plans.resolved(job, self.program, self.options.data) if self.program and not self.stop else job
        except PlanError:
            return job

    def left_out(self, row):
        """Why this call does not run the row; "" if it does."""
        if lacking := self.missing_data(row):
            return f"needs data: {lacking}"
        if row.state == "gpu" and not self.options.gpu_rows:
            return "needs a GPU (--gpu-rows)"
        if row.state == "full" and self.options.quick and not self.options.only:
            return "not part of --quick"
        return ""

    def missing_data(self, row):
        """What the row's runs would not find below data.dir; "" if nothing."""
        job = self.jobs.get((row.run_name, 1))
        if job is None:
            return ""
        directory = self.options.data or job.expected.get("data.dir") or os.environ.get("FEDHPC_DATA")
        return data_files.missing(job.expected.get("data.name", ""), directory)

    def pending(self):
        """(run name, job) still to run for the selected rows: seed 1 of all rows, then seed 2, ..."""
        names = dict.fromkeys(row.run_name for row in self.selected if not self.left_out(row))
        known = self.recorded() if self.options.missing else frozenset()
        return [(name, self.jobs[name, seed]) for seed in range(1, self.options.seeds + 1) for name in names
                if (name, seed) in self.jobs and (name, seed) not in known
                and self.states[self.jobs[name, seed].name].kind != "finished"]

    def recorded(self):
        """{(run name, seed)} of which a record has a figure of all rounds for each of the run's rows."""
        lacking = set()
        for row in self.rows:
            records = [record for record in self.records if record.is_of(row) and record.rounds >= record.protocol_rounds
                       and (record.table, record.row, record.metric) == (row.table, row.run_name, row.measured)]
            seeds = {seed for record in records for seed in record.seeds}
            lacking |= {key for key in self.jobs if key[0] == row.run_name and key[1] not in seeds}
        return set(self.jobs) - lacking

    def stopped(self):
        """Whether a signal has left runs for the next call."""
        return self.stop and any(name not in self.problems for name, _ in self.pending())

    def run_pending(self, program):
        deadline = time.monotonic() + 60.0 * self.options.budget
        pending = self.pending()
        for number, (name, job) in enumerate(pending, 1):
            if self.stop or time.monotonic() >= deadline:
                self.outcome = f"stopped: {len(pending) - number + 1} of {len(pending)} runs are left"
                print(self.outcome, flush=True)
                return
            if name not in self.problems:
                print(f"[{number}/{len(pending)}] {job.name}", flush=True)
                self.note(job=job.name, number=number, total=len(pending))
                print("    " + self.run(name, job, program, deadline), flush=True)
        left = sum(self.states[job.name].kind != "finished" for _, job in pending)
        self.outcome = f"{len(pending) - left} of {len(pending)} runs were finished"

    def run(self, name, job, program, deadline):
        """Runs or resumes one job and says in one line how it ended."""
        if not wait_for_writer(job.output, lambda: print("    waits for the run that is writing it", flush=True),
                               lambda: self.stop or time.monotonic() >= deadline):
            return "left to the run that is writing it"
        # Read anew: another task, or a run that a killed call has left at work, may have finished it meanwhile.
        self.states[job.name] = paper_table.job_state(job)
        self.compare_whole(job.name)
        if self.states[job.name].kind == "finished":
            return "finished before"
        if self.states[job.name].kind == "interrupted":
            outcome = self._launch(program, ["resume", str(job.output)], job, deadline)
            if outcome.code == launch.REFUSED and not outcome.stopped:
                print(f"    could not be resumed ({outcome.message}), starts afresh", flush=True)
                self.states[job.name] = paper_table.JobState("missing")
        if self.states[job.name].kind != "interrupted":
            state = self.states[job.name]
            if set_aside(job):
                print(f"    {job.output} is set aside: {state.detail or state.kind}", flush=True)
            arguments = ["run", str(job.config), *(f"--{override}" for override in job.overrides),
                         f"--run.output={job.output}", "--run.progress=plain"]
            outcome = self._launch(program, arguments, job, deadline)
        self.exit_code = outcome.code
        state = self.states[job.name] = paper_table.job_state(job)
        if state.kind == "finished":  # as the next call has it, also where run.stop_on_divergence has made the code 1
            return f"finished in {outcome.seconds:.0f} s{', diverged' if paper_table.has_diverged(state) else ''}"
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
        return launch.run(command, environment, job.output.with_suffix(".log"), deadline, lambda: self.stop,
                          launch.patience_of(job.resolved or job.expected))

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
        known = [recorded.cell(self, row) for row in rows]
        has_record = any(cell != "-" for cell in known)
        lines = [paper_table.table_line(row, self.row_states(row), self.problems.get(row.run_name), self.left_out(row),
                                        [*(self.times(row) if self.timed else ()), *([cell] if has_record else ())])
                 for row, cell in zip(rows, known)]
        return paper_table.markdown(lines, self.timed, has_record)


def remove_files(job):
    """Removes a job's result and checkpoints; nothing while a run writes them."""
    if is_written(job.output):
        return
    output = link_target(job.output)
    for path in (output, Path(f"{output}.tmp"), *files_beside(output)):
        path.unlink(missing_ok=True)


def set_aside(job):
    """Gives a job's result and checkpoints the names RUN.old1.h5 and RUN.old1.ckpt.N.h5, or the next number, as
    `fedhpc run` does; nothing while a run writes them. Whether there was something."""
    output = link_target(job.output)
    present = [path for path in (output, *files_beside(output)) if path.exists()]
    if not present or is_written(output):
        return False
    number = number_of_earlier(output)
    for path in present:
        path.rename(path.with_name(f"{output.stem}.old{number}{path.name.removeprefix(output.stem)}"))
    return True


def is_written(output):
    """Whether a run holds the lock of a result file."""
    try:
        with open(link_target(output).with_suffix(".lock"), "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no lock, or no locks on this file system
    return False


def wait_for_writer(output, say, stopped):
    """Waits for the end of a run that writes a result file, after one say(); False if stopped() ends that before."""
    if is_written(output) and not stopped():
        say()
    while (written := is_written(output)) and not stopped():
        time.sleep(WAIT_SECONDS)
    return not written
