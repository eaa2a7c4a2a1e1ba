"""Runs a grid of settings, or random ones, as an array of jobs or one after the other, and names the best.

usage: tools/sweep.py SWEEP.ini [--local [N] | --submit | --report] [--select test|validation] [--output DIR]
                      [--ranks N] [--at-once N] [--time LIMIT] [--partition NAME] [--account NAME] ...

    [sweep]
    base = configs/algorithms/fedprox.ini   # what every run starts from
    train.lr = 0.01, 0.05, 0.1              # keys of the run: several values make the grid, one is set in all runs
    algorithm.name = fedprox, fedavg        # (values that hold commas are separated by semicolons)
    algorithm.fedprox.mu = 0.1, 1           # a key of one method varies where that method is chosen
    run.rounds = 200
    seeds = 1-3                             # [1]
    trials = 20                             # so many random combinations [all of them: the grid]
    draw_seed = 1                           # of these draws [1]
    least_rounds = 20                       # halving: rounds after which points are cut for the first time [none are]
    eta = 3                                 # of halving: one of so many points goes on [3]
    metric = global_accuracy                # a series of /rounds [global_accuracy]
    select = validation                     # choose rounds and points by validation_METRIC [test: by the metric itself]
    rule = best                             # of a run: its best or its last evaluated round [best]
    aim = max                               # [max; min where the metric is a loss]
    output = results/sweeps/prox            # [results/sweeps/NAME of this file]

With `trials` a key may have a space, uniform(LOW, HIGH), log_uniform(LOW, HIGH) or integer(LOW, HIGH), or a list, of
which one value is drawn. Trial n is the same however many there are; one that repeats an earlier one is left out.

With `least_rounds` all points run to run.rounds / eta^k rounds, the smallest number that is not below it. One of eta
goes on from its checkpoint to eta times as many, up to run.rounds. A run that diverges or fails is cut.

Every combination is checked by `fedhpc plan` before the first run starts: a misspelt key or a value out of range (with
`trials`, where all of them are refused) or a metric that no run will have ends the sweep with exit code 2. Without
--local, --submit or --report, the array job's script is printed: a task is a run, a line of DIR/runs.N.tsv, which is
written, a new one each time. With --submit it goes to sbatch, in several arrays where MaxArraySize is smaller. Runs
that are finished or at work and trials that are refused are left out, those that were interrupted or are of fewer
run.rounds go on from their checkpoint, and a result of other settings, or with a key that is no longer set, is kept as
NAME.old1.h5 by --submit and --local; so the same command may be given until nothing is left, but not while its tasks
still wait. With halving an array is one rung: the command is given once for each.

--local runs what is left here, one run after the other or N at a time. The output of a run is in NAME.log. A rank is
one thread; without --ranks, the runs share this machine's cores evenly. Ctrl-C or SIGTERM asks the runs that are at
work for a checkpoint and ends the sweep. --report prints a table with mean and spread over seeds and the best point,
and writes it to DIR/table.md; so does --local at its end. A run that diverges is finished. Exit code 0; 1: a run
failed, or all are finished and no point can be ranked; 2: unusable input; 75: stopped with runs left, the same command
goes on.
"""

import argparse
import difflib
import itertools
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from . import launch, work_folder
from .paper_plans import of_plan, why_not_compared
from .paper_table import KEPT, PaperError, differences_of, has_diverged
from .plan import PlanError, make_plan, needs_of
from .reproduction import find_program, is_written, program_if_any, set_aside, wait_for_writer
from .results import files_beside
from .submit import (SubmitError, add_cluster_options, arrays_of, directives_of, fill, idle_gpus, literal, shape_of,
                     submit, template_of, variables_for)
from .sweep_report import in_vain, report
from .sweep_rungs import standing, state_at, state_of, states_of
from .sweep_runs import SweepError, jobs_of, place_of, read_sweep

OF_JOBS = ("at_once", "nodes", "gpus", "time", "mem", "partition", "account", "job_name", "sbatch", "node_memory",
           "plan_ranks")  # options
REFUSED = "sweep: the program refuses this trial"  # first line of a log that no run has written


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="sweep", allow_abbrev=False, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", metavar="SWEEP.ini", help="what is run, as above")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--local", type=int, nargs="?", const=1, metavar="N",
                      help="run what is left here, N runs at a time [1]")
    parser.add_argument("--select", choices=("test", "validation"), help="what rounds and points are chosen by")
    what.add_argument("--report", action="store_true", help="print the table and the best point, run nothing")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the results [the sweep's own]")
    parser.add_argument("--at-once", type=int, metavar="N", help="most tasks of an array at the same time [all]")
    add_cluster_options(parser)
    options = parser.parse_args(arguments)
    if options.submit and (options.local or options.report):
        parser.error("--submit goes with neither --local nor --report")
    if options.local is not None and options.local < 1:
        parser.error(f"--local {options.local}: must be at least 1")
    of_jobs = [name for name in OF_JOBS if getattr(options, name) != parser.get_default(name)]
    if of_jobs and (options.local or options.report):
        parser.error(f"--{of_jobs[0].replace('_', '-')} is for jobs of a cluster; leave it out here")
    if options.at_once is not None and options.at_once < 1:
        parser.error(f"--at-once {options.at_once}: must be at least 1")
    return options


def arguments_of(job, rounds=None):
    """The run's own arguments on the command line; `rounds`: those of its rung, if there is one."""
    overrides = (*job.overrides, *([f"run.rounds={rounds}"] if rounds else []))
    return [*(f"--{override}" for override in overrides), f"--run.output={job.output}"]


def plan_of(sweep, point, program, ranks=1, most_ranks=1, elsewhere=True):
    """The Plan of a point, on the first rung."""
    arguments = arguments_of(point.jobs[0], sweep.rungs[0])[:-1]
    return make_plan(program, sweep.base, arguments, ranks, most_ranks, elsewhere)


def check(sweep, program, ranks, most_ranks, elsewhere=False):
    """The Plan of every point by its name, on the first rung, and the PlanError of those that the program refuses; raises
    one that names the point, or the metric that no run will have.

    Of random trials some may be refused.
    """
    plans, refused, first = {}, {}, None
    for point in sweep.points:
        try:
            plans[point.name] = plan_of(sweep, point, program, ranks, most_ranks, elsewhere)
        except PlanError as error:
            refused[point.name] = error
            keys = [override.split("=")[0] for override in point.jobs[0].overrides]
            named = next((key for key in keys if f"'{key}'" in str(error)), "")
            first = first or PlanError(f"{place_of(sweep.path, named)}: {point.text}: {error}")
            if not sweep.trials:
                break
    if first and not (sweep.trials and plans):
        raise first from None
    known = dict.fromkeys(name for plan in plans.values() for name in plan.metrics)
    for key, metric in (("metric", sweep.metric), ("select", sweep.chosen_by)):
        if metric not in known:
            near = difflib.get_close_matches(metric, known, 1)
            needed = needs_of(metric, [plan.config for plan in plans.values()])
            guess = f" ({needed})" if needed else f" (did you mean '{near[0]}'?)" if near else ""
            raise PlanError(f"{place_of(sweep.path, key)}: no run will have a series '{metric}'{guess}; there are "
                            f"{', '.join(known)}")
    return plans, refused


def resolved(sweep, plans):
    """The sweep whose jobs know their whole configurations."""
    free = ("run.rounds",) if sweep.rungs[-1] else ()  # the plan is of another rung
    return replace(sweep, points=tuple(
        replace(point, jobs=tuple(of_plan(job, plans[point.name], free) for job in point.jobs))
        if point.name in plans else point for point in sweep.points))


def compared(sweep, program):
    """The sweep whose jobs with a result know their whole configurations, and a sentence where some do not."""
    states = states_of(sweep)
    kept = [point for point in sweep.points if any(states[job.name].kind in KEPT for job in point.jobs)]
    plans, unplanned = {}, {}
    for point in kept if program else ():
        try:
            plans[point.name] = plan_of(sweep, point, program)
        except PlanError as error:
            unplanned[point.name] = error
    return resolved(sweep, plans), why_not_compared(kept, program, unplanned)


def largest(rung, plans):
    """The Plan that has room for each of a rung's points, as far as the program takes them."""
    plans = [plans[point.name] for point in rung.points if point.name in plans] or [*plans.values()]
    if rung.rounds:
        plans = [replace(plan, rounds=rung.rounds) for plan in plans]
    slowest = max(plans, key=lambda plan: plan.rounds * plan.seconds_per_round)
    return replace(slowest, memory_per_rank=max(plan.memory_per_rank for plan in plans))


def prepare(job, state):
    """Sets aside what must not be resumed, results of other settings or of no use to a rung, with their checkpoints,
    and says so."""
    different = is_different(job, state)
    if different and set_aside(job):
        print(f"sweep: {job.output} is set aside: {different}", file=sys.stderr)


def is_different(job, state):
    """What differs where a result is of other settings, or what it lacks for a rung; "" of others."""
    if state.kind in KEPT or state.run is None:
        return ""
    return differences_of(job, state.run) or (state.detail if state.kind == "outdated" else "")


def note_refusals(sweep, refused, states):
    """Says in the logs of refused trials why none of them is run, where --report finds it, and takes it out of the logs
    of those that are refused no longer."""
    for point in sweep.points:
        for job in point.jobs:
            log = job.output.with_suffix(".log")
            if point.name in refused:
                if states[job.name].kind != "finished":
                    log.write_text(f"{REFUSED}\nfedhpc: error: {refused[point.name]}\n", encoding="utf-8")
            elif log.exists() and log.read_text(encoding="utf-8", errors="replace").startswith(f"{REFUSED}\n"):
                log.unlink()


def write_index(jobs, rounds, folder):
    """The file that the array's tasks read: a line per run with name, configuration and arguments. Nothing rewrites it, as
    tasks of an earlier array may be put back into the queue."""
    lines = ["\t".join([job.name, str(job.config), *arguments_of(job, rounds)]) for job in jobs]
    for number in itertools.count(1):
        path = folder / f"runs.{number}.tsv"
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        except FileExistsError:
            continue
        return path


def array_job(sweep, options, program):
    """Prints or submits the array of the runs that are left, with halving of those of a rung."""
    shape = shape_of(options)
    plans, refused = check(sweep, program, shape.ranks, options.plan_ranks, elsewhere=True)
    sweep = resolved(sweep, plans)
    with prepared_folder(sweep):
        states = states_of(sweep)
        note_refusals(sweep, refused, states)
        rung = standing(sweep, states)[-1]
        jobs = jobs_of(rung.points)
        of_refused = jobs_of([point for point in rung.points if point.name in refused])
        hopeless = [job for job in rung.due if job in of_refused]
        at_work = [job for job in rung.due if job not in hopeless and is_written(job.output)]
        left = [job for job in rung.due if job not in hopeless + at_work]
        if warning := idle_gpus(options, [plan.config for plan in plans.values()], "a run", "run.device = cuda"):
            print(f"sweep: {warning}", file=sys.stderr)
        tell_left_out(at_work, [point.name for point in sweep.points if point.name in refused])
        if not left:
            but = [f"{len(some)} {what}" for some, what in ((at_work, "at work"), (hopeless, "of refused trials")) if some]
            print(f"nothing is left of {len(jobs)} runs{_on(sweep, rung)}{' but ' if but else ''}{' and '.join(but)}; "
                  "--report names the best")
            return 0
        return _give_out(sweep, options, program, rung, left,
                         directives_of(largest(rung, plans), shape, options.node_memory))


def _give_out(sweep, options, program, rung, left, directives):
    """The same of these runs, in as many arrays as they need."""
    jobs = jobs_of(rung.points)
    directives.setdefault("output", f"{literal(sweep.folder)}/%A_%a.out")
    if not options.submit:
        if other := sum(bool(is_different(job, rung.states[job.name])) for job in left):
            what = " or lack what a rung needs" if rung.rounds else ""
            print(f"sweep: {other} results are of other settings{what}; --submit sets them aside", file=sys.stderr)
    for part in arrays_of(left, options.submit, "sweep"):
        script, index = array_script(sweep, options, program, rung, part, directives)
        if not options.submit:
            print(script, end="")
            return 0
        for job in part:
            prepare(job, rung.states[job.name])
        print(f"submitted job {submit(script)}: {len(part)} of {len(jobs)} runs{_on(sweep, rung)} ({index})", flush=True)
    if rung.number < len(sweep.rungs):
        print("the same command submits the next rung, when these have ended")
    return 0


def array_script(sweep, options, program, rung, jobs, directives):
    """The text of an array's script, and its index, which is written."""
    index = write_index(jobs, rung.rounds, sweep.folder)
    array = f"0-{len(jobs) - 1}" + (f"%{options.at_once}" if options.at_once else "")
    return fill(template_of("sweep"), {**directives, "array": array}, variables_for(program), [index]), index


def tell_left_out(at_work, refused):
    """Why runs that are not finished are not submitted."""
    if at_work:
        print(f"sweep: {len(at_work)} runs are at work and left out: {', '.join(job.name for job in at_work)}",
              file=sys.stderr)
    if refused:
        print(f"sweep: {len(refused)} trials are refused and left out: {', '.join(refused)}; --report says why",
              file=sys.stderr)


def _on(sweep, rung):
    """Where halving is; "" without it."""
    return f" of rung {rung.number} of {len(sweep.rungs)} (to round {rung.rounds})" if rung.rounds else ""


def prepared_folder(sweep):
    """The lock of the output folder, which is made where it is missing."""
    sweep.folder.mkdir(parents=True, exist_ok=True)
    return work_folder.hold(sweep.folder / ".lock", sweep.folder, tool="sweep.py")


def say(line):
    """Prints a line as one piece, which print() does not: several threads speak."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class LocalRuns:
    """The runs of a sweep on this machine, some at a time."""

    def __init__(self, sweep, program, ranks, at_once):
        self.sweep, self.program, self.ranks, self.at_once = sweep, program, ranks, at_once
        self.stop = False
        self.failed, self.interrupted = set(), set()  # names

    def run_all(self):
        """Runs what is left, with halving rung after rung until one is left undecided."""
        said = None
        while not self.stop and not self.interrupted:
            rung = standing(self.sweep, states_of(self.sweep), self.failed)[-1]
            if rung.due or said is None:
                all_of_it = len(rung.points) * len(self.sweep.seeds)
                said = f"{len(rung.due)} of {all_of_it} runs{_on(self.sweep, rung)} are left"
                print(said, flush=True)
            if not rung.due:
                return
            self._run_each(rung)

    def stopped(self):
        """Whether the same command would go on with runs that were interrupted or not begun."""
        return bool(self.interrupted or self.stop and standing(self.sweep, states_of(self.sweep), self.failed)[-1].due)

    def _run_each(self, rung):
        begun, left = 0, len(rung.due)
        with ThreadPoolExecutor(self.at_once) as pool:
            futures = {pool.submit(self._run, job, rung.rounds): job for job in rung.due}
            try:
                for future in as_completed(futures):
                    said = future.result()
                    if said is None:
                        continue
                    begun += 1
                    say(f"[{begun}/{left}] {futures[future].name}: {said}")
            except BaseException:
                self.stop = True  # the runs at work; leaving the pool waits for them
                raise
        if begun < left:
            print(f"stopped: {left - begun} runs are left")

    def _run(self, job, rounds):
        """Resumes or starts one run and says in a few words how it ended; None where none is started any more."""
        # A killed sweep leaves runs at work, which may end at any time until this one is due.
        wait_for_writer(job.output, lambda: say(f"{job.name}: waits for the run that is writing it"),
                        lambda: self.stop)
        if self.stop:
            return None
        state = self._state(job, rounds)
        if state.kind == "finished":
            return "finished by an earlier call"
        prepare(job, state)
        command, arguments = ["run", str(job.config)], arguments_of(job, rounds)
        there = files_beside(job.output)
        outcome = self._launch(job, [*command, *(["--go-on"] if there else []), *arguments])
        if there and outcome.code == launch.REFUSED and not outcome.stopped:
            # The program sets aside what could not be resumed, unless another run is writing it.
            say(f"{job.name}: begins anew, as it cannot go on: {outcome.message}")
            outcome = self._launch(job, [*command, *arguments])
        state = self._state(job, rounds)
        if state.kind == "finished":  # as the next call has it, also where run.stop_on_divergence has made the code 1
            return f"finished in {outcome.seconds:.0f} s{', diverged' if has_diverged(state) else ''}"
        if outcome.stopped or outcome.code == launch.INTERRUPTED:
            self.interrupted.add(job.name)
            return ("interrupted, the same command goes on" if files_beside(job.output) else
                    "stopped without a checkpoint, the same command begins it anew")
        self.failed.add(job.name)
        return f"failed: {outcome.message or state.detail or 'no result file'} ({job.name}.log)"

    def _state(self, job, rounds):
        return state_at(job, state_of(job), rounds, self.sweep.chosen_by)

    def _launch(self, job, arguments):
        command, environment = launch.mpi_command(self.program, self.ranks, [*arguments, "--run.progress=plain"])
        if self.ranks == 1:
            command = [str(self.program), *arguments, "--run.progress=plain"]
        return launch.run(command, environment, job.output.with_suffix(".log"), float("inf"), lambda: self.stop,
                          launch.patience_of(job.resolved or job.expected))


def run_here(sweep, options, program):
    """Runs what is left; 75 where a signal has left runs for the next call, else 1 where a run failed."""
    cores, at_once = launch.cores(), options.local
    ranks = max(1, cores // at_once) if options.ranks is None else options.ranks
    if ranks < 1 or ranks * at_once > cores:
        raise SweepError(f"--local {at_once} --ranks {ranks}: {at_once} x {ranks} ranks at a time must be 1 to "
                         f"{cores}, the cores of this machine")
    if ranks > 1 and not shutil.which("mpirun"):
        raise SweepError("no mpirun on the PATH; install it or use --ranks 1")
    sweep = resolved(sweep, check(sweep, program, 1, 1)[0])
    with prepared_folder(sweep):
        note_refusals(sweep, {}, {})  # here each is tried
        runs = LocalRuns(sweep, program, ranks, at_once)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(runs, "stop", True))
        runs.run_all()
        vain = show(sweep, runs.failed)
    if runs.failed:
        print(f"{len(runs.failed)} of {len(sweep.jobs)} runs failed: {', '.join(sorted(runs.failed))}; each has its reason "
              f"in {sweep.folder}/NAME.log")
    return launch.INTERRUPTED if runs.stopped() else int(bool(runs.failed) or vain)


def show(sweep, failed=frozenset(), note=""):
    """Prints the table and writes it into the sweep's folder, a note below it; whether all is finished and nothing is
    best."""
    states = states_of(sweep)
    text = report(sweep, states, failed) + (f"{note}\n" if note else "")
    path = sweep.folder / "table.md"
    try:
        path.write_text(text, encoding="utf-8")
        print(f"{text}{path}")
    except OSError as error:  # somebody else's folder
        print(text, end="")
        print(f"sweep: {path} is not written: {error.strerror}", file=sys.stderr)
    return in_vain(sweep, states, failed)


def main(arguments):
    options = parse_arguments(arguments)
    try:
        sweep = read_sweep(options.sweep, options.output, options.select)
        if options.report:
            if not sweep.folder.is_dir():
                raise SweepError(f"{sweep.folder}: no such folder; nothing of this sweep has run, or --output is "
                                 "another")
            sweep, note = compared(sweep, program_if_any(options.fedhpc))
            return int(show(sweep, note=note))
        program = find_program(options.fedhpc)
        return run_here(sweep, options, program) if options.local else array_job(sweep, options, program)
    except (SweepError, SubmitError, PlanError, PaperError, OSError) as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 2
