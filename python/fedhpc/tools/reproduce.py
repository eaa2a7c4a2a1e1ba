"""Runs the rows of a paper's tables that are not finished yet and compares them with the paper.

    reproduce.py PAPER [--quick | --full] [--gpu-rows] [--budget MINUTES] [--only SUBSTRING] [--ranks N] [--seeds N]
                 [--data DIR] [--output-dir DIR] [--fedhpc PATH] [--background | --slurm [--submit]]
    reproduce.py --list [PAPER | all]           every row with its configuration and state
    reproduce.py --status [PAPER | all]         who is at work on what, and what is done
    reproduce.py --stop PAPER                   asks the one at work for a checkpoint and its end
    reproduce.py PAPER --again [--seeds N] ...  runs recorded rows anew and tells whether they have the recorded bits
    reproduce.py --write-docs [PAPER | all]     results/papers/PAPER.csv and docs/reproduction

Rows come from tools/papers/PAPER.csv, configurations from configs/papers/PAPER/. A row is finished when the
result file of each of its seeds is complete and its configuration is what would be run, as `fedhpc plan` says, with
the data as they are (without a program only the keys that are set are compared, which a line says; so it is in counts
and in --status, which make no plans). Such runs are skipped, so the command may be repeated until nothing is pending. One seed of all rows comes before the next
seed. Every run's output is kept beside its result as NAME.log.

Rows that would take days without a GPU are listed as such and run with --gpu-rows only, rows whose data set
is not below data.dir are left out. --quick leaves out the rows marked `full` in the CSV file, unless --only
selects them, and gives each run at most 100 rounds or as many as its row says; a run that is not cut short
by this is the same with and without --quick.

When the budget is used up, or on Ctrl-C or SIGTERM, nothing is started any more; the current run is asked
(SIGUSR1) to finish its round and write a checkpoint. If it does, its file stays and the next call resumes
it, as it does a killed run that left a checkpoint; otherwise its files are removed. A run that a killed call
has left at work is waited for. A complete result of another configuration is kept as NAME.old1.h5.
--background does all that in a session of its own, with its output in DIR/PAPER/reproduce.log.

The column `recorded` holds the figure of earlier runs, and in brackets how far this call's lies above it: the figure
in results/papers/PAPER.csv, or for a run that --quick has shortened that of the whole run up to the same round, where
its result file lies in DIR/PAPER; then it also says within how much the two series agree, and counts the rounds after
which both were evaluated. Where a seed has no figure in those, the figure of results/papers/PAPER.csv stands there.

Prints the comparison of the selected rows and writes that of all rows to DIR/PAPER/table.md and table.csv.
Exit code 0; 1 if a row failed; 2 if the command line, the tables or the program cannot be used; 75 if a signal has
left runs for the next call, or the run of --task was interrupted and can be resumed.
"""

import argparse
import math
import shlex
import shutil
import signal
import sys
from pathlib import Path

from . import bits, launch, paper_page, paper_record, paper_state, paper_table, results, slurm_array, work_folder
from .paper_table import PaperError
from .project import ROOT
from .reproduction import Reproduction, find_program, paper_names, rows_of
from .submit import SubmitError, arrays_of, options_in, refuse_short, submit

QUICK_SEEDS, FULL_SEEDS = 1, 3
SCRIPT = ROOT / "tools" / "reproduce.py"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="Reproduces the tables of a paper.", allow_abbrev=False)
    parser.add_argument("paper", nargs="?", default="all",
                        help="name of a file tools/papers/PAPER.csv; all or none: every paper, to be looked at only")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true",
                      help=f"{QUICK_SEEDS} seed, at most {paper_table.QUICK_ROUNDS} rounds: a look, not a reproduction")
    mode.add_argument("--full", action="store_true",
                      help=f"{FULL_SEEDS} seeds, the configuration's own rounds (default)")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="show the rows and their states, run nothing")
    action.add_argument("--background", action="store_true",
                        help="work in a session of its own, output in DIR/PAPER/reproduce.log")
    action.add_argument("--status", action="store_true", help="show who is at work on what, and what is done")
    action.add_argument("--stop", action="store_true", help="ask the one at work to write a checkpoint and end")
    action.add_argument("--write-docs", action="store_true",
                        help="bring finished runs into results/papers/PAPER.csv and docs/reproduction")
    action.add_argument("--again", action="store_true",
                        help="run recorded rows anew in DIR/PAPER/again: have they the recorded bits?")
    action.add_argument("--slurm", action="store_true",
                        help="print a SLURM array job with one task for each pending run (row and seed)")
    action.add_argument("--task", metavar="RUN", help="run or resume one run, as a task of that job does")
    parser.add_argument("--submit", action="store_true", help="with --slurm: give the job to sbatch")
    parser.add_argument("--slurm-minutes", type=int, default=240, metavar="N", help="time limit of a task [240]")
    parser.add_argument("--slurm-tasks", type=int, metavar="N", help="tasks of an array at work at the same time [all]")
    parser.add_argument("--slurm-options", default="", metavar="TEXT",
                        help='more options of sbatch, as in --slurm-options="--partition=gpu --gres=gpu:1"')
    parser.add_argument("--missing", action="store_true",
                        help="only runs (row and seed) of which results/papers has no figure of all rounds")
    parser.add_argument("--gpu-rows", action="store_true",
                        help="run the rows that need a GPU as well; best with --ranks as many as there are GPUs")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="MINUTES", help="wall time for all runs")
    parser.add_argument("--only", default="", metavar="SUBSTRING",
                        help='rows whose "TABLE CONFIGURATION METRIC" contains this')
    parser.add_argument("--ranks", type=int, default=launch.cores(),
                        help="MPI ranks, at most the cores; with --slurm of a task, on its node [all cores]")
    parser.add_argument("--seeds", type=int, help="seeds 1..N")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data.dir of the runs [$FEDHPC_DATA]")
    kept = ROOT if (ROOT / "CMakeLists.txt").exists() else Path()  # nobody writes into an installation
    parser.add_argument("--output-dir", type=Path, default=kept / "results" / "papers", metavar="DIR")
    parser.add_argument("--fedhpc", type=Path, metavar="PATH", help="the program [$FEDHPC, build/*/, PATH]")
    options = parser.parse_args(arguments)
    if options.write_docs and kept != ROOT:
        parser.error(f"--write-docs writes into the project's folder, and {ROOT} is an installation")
    elsewhere = options.slurm or options.task  # there, the node decides
    if options.ranks < 1 or (options.ranks > launch.cores() and not elsewhere):
        parser.error(f"--ranks {options.ranks}: must be 1 to {launch.cores()}, the cores of this machine")
    for name in ("seeds", "slurm_minutes", "slurm_tasks"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    try:
        own = options_in(shlex.split(options.slurm_options), "--slurm-options")
        refuse_short({"time": options.slurm_minutes, **own})
    except SubmitError as error:
        parser.error(str(error))
    except ValueError as error:  # a quotation without its end
        parser.error(f"--slurm-options {options.slurm_options}: {error}")
    if not options.budget >= 0:
        parser.error(f"--budget {options.budget}: must be at least 0 minutes")
    if options.submit and not options.slurm:
        parser.error("--submit: goes with --slurm")
    whole = next((name for name in ("status", "stop", "write_docs") if getattr(options, name)), None)
    if options.only and whole:
        parser.error(f"--only {options.only}: --{whole.replace('_', '-')} is of all rows; leave it out")
    if options.budget < math.inf and (options.slurm or options.task):
        parser.error(f"--budget {options.budget:g}: tasks of SLURM have --slurm-minutes; leave it out")
    if options.paper == "all" and not (options.list or options.status or options.write_docs):
        parser.error(f"name a paper of {', '.join(paper_names())}; "
                     "all of them go with --list, --status and --write-docs")
    options.seeds_given = options.seeds is not None or options.quick
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else FULL_SEEDS)
    options.papers_dir, options.output_dir = options.output_dir, options.output_dir / options.paper
    return options


def main(arguments):
    try:
        options = parse_arguments(arguments)
        if options.list and options.paper == "all":
            print(paper_state.listing(options, paper_names()), end="")
            return 0
        if options.status:
            return show_status(options)
        if options.write_docs:
            return write_docs(options)
        return of_one_paper(options, arguments)
    except (PaperError, SubmitError, OSError) as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2


def of_one_paper(options, arguments):
    """Lists, runs or submits the selected rows of a paper, or ends the one at work on them."""
    rows = rows_of(options.paper)
    selected = [row for row in rows if options.only in row.name]
    if not selected:
        raise PaperError(f"--only {options.only}: no row contains this; --list shows the rows")
    if options.list:
        work = Reproduction(options, rows, selected)
        work.compare_whole()
        print(work.table(selected))
        print(paper_state.PaperState(options, options.paper).summary())
        return 0
    if options.stop:
        sentence, ended = work_folder.stop(options.output_dir)
        print(sentence)
        return 0 if ended else 1
    if options.background:
        if Reproduction(options, rows, selected).pending():
            find_program(options.fedhpc)  # its absence is better said here than in the log
        again = [argument for argument in arguments if argument != "--background"]
        print(work_folder.start_in_background(options.output_dir, SCRIPT, again))
        return 0
    if options.slurm:
        return make_array(options, rows, selected)
    if options.task:
        return run_task(options, rows, selected)
    if options.again:
        return run_again(options, rows, selected, arguments)
    work = run_rows(options, rows, selected, arguments)
    if work.stopped():
        return launch.INTERRUPTED
    return 1 if any(row.run_name in work.problems for row in selected) else 0


def run_again(options, rows, selected, arguments):
    """Runs those selected rows anew whose bits are recorded of their present configuration, and compares these; 1 if
    a run has others or none."""
    recorded = {(record.row, record.rounds, seed): (name, record.version)
                for record in paper_record.read(ROOT / "results" / "papers" / f"{options.paper}.csv")
                if any(record.row == row.run_name and record.is_of(row) for row in rows)
                for seed, name in zip(record.seeds, record.bits) if name != paper_record.NO_BITS}
    options.output_dir = options.output_dir / "again"
    rounds = {key: int(job.expected.get("run.rounds", 0))
              for key, job in Reproduction(options, rows, selected).jobs.items()}
    wanted = {row.run_name for row in selected}
    known = {(name, seed): recorded[name, count, seed] for (name, seed), count in rounds.items()
             if name in wanted and (name, count, seed) in recorded}
    selected = [row for row in selected if any(name == row.run_name for name, _ in known)]
    if not selected:
        raise PaperError("--again: of no selected row the bits are recorded with these rounds and seeds")
    work = run_rows(options, rows, selected, arguments, known)
    same = True
    for key, (then, version) in known.items():
        job = work.jobs[key]
        state = work.states[job.name]
        finished = state.kind == "finished"
        now = bits.of_run(job.output) if finished else state.kind
        same &= now == then
        here = f" by {paper_record.version_of([state.run])}" if finished else ""
        print(f"{job.name}: " + ("the recorded bits" if now == then else
                                 f"recorded {then} by {version}, now {now}{here}"))
    return launch.INTERRUPTED if work.stopped() else 0 if same else 1


def run_rows(options, rows, selected, arguments, known=None):
    """Runs what is pending of the selected rows and writes the tables; with `known` only its (run name, seed)."""
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with work_folder.at_work(options.output_dir):
        notice = work_folder.Notice(options.output_dir, shlex.join(["reproduce.py", *arguments]), options.seeds)
        work = Reproduction(options, rows, selected)
        if known is not None:
            work.jobs = {key: job for key, job in work.jobs.items() if key in known}
        work.note = notice.note
        stop_on_signals(work)
        try:
            work.compare_whole()
            if work.pending():
                if not shutil.which("mpirun"):
                    raise PaperError("no mpirun on the PATH")
                work.run_pending(find_program(options.fedhpc))
            path = write_tables(work)
        except (PaperError, OSError) as error:
            work.outcome = str(error)
            raise
        finally:
            notice.note(ended=work_folder.now(), outcome=work.outcome)
        print(f"\n{work.table(selected)}\n{path}")
    return work


def stop_on_signals(work):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(work, "stop", True))


def write_tables(work):
    """Writes table.md, whose path it returns, and table.csv of all rows."""
    options = work.options
    mode = (f"`--quick`: at most {paper_table.QUICK_ROUNDS} rounds, where the paper has more not comparable with it"
            if options.quick else "the configurations' own rounds")
    notes = ROOT / "tools" / "papers" / f"{options.paper}.md"
    text = [f"# {options.paper}: the paper's tables and ours\n",
            f"Seeds: {options.seeds}; {mode}. Accuracies in %, differences in points (ours - paper); "
            "± is the sample standard deviation over seeds.\n"]
    if work.timed:
        text.append("s/round: time of a round in seconds, ours without evaluation, in brackets its ratio to "
                    "FedAvg's with the same data and network.\n")
    text += [notes.read_text(encoding="utf-8")] if notes.exists() else []
    path = options.output_dir / "table.md"
    path.write_text("\n".join([*text, work.table(work.rows)]), encoding="utf-8")
    paper_record.write(options.output_dir / "table.csv", paper_record.of_rows(work))
    return path


def make_array(options, rows, selected):
    """Prints the SLURM job of what is pending, or submits it, in as many arrays as it needs."""
    work = Reproduction(options, rows, selected)
    work.compare_whole()
    names = [job.name for _, job in work.pending()]
    if not names:
        print("nothing is pending")
        return 0
    if options.submit:
        options.output_dir.mkdir(parents=True, exist_ok=True)  # for the logs of the tasks
    program = find_program(options.fedhpc)
    for part in arrays_of(names, options.submit, "reproduce"):
        text = slurm_array.script(options, SCRIPT, part, program)
        print(f"submitted job {submit(text)}\n" if options.submit else text, end="", flush=True)
    return 0


def run_task(options, rows, selected):
    """Runs one run unless it is finished; 75 if it can be resumed, 128 + n if signal n ended it."""
    work = Reproduction(options, rows, selected)
    named = {job.name: (name, job) for (name, _), job in work.jobs.items()}
    if options.task not in named:
        raise PaperError(f"--task {options.task}: no such run with these options; "
                         "--slurm prints those that are pending")
    name, job = named[options.task]
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with work_folder.task_at_work(options.output_dir, job.name):
        stop_on_signals(work)
        print(f"{job.name}: {work.run(name, job, find_program(options.fedhpc), math.inf)}", flush=True)
        state = work.states[job.name].kind
    if state == "finished":
        return 0
    if work.exit_code > 128 and not work.stop:
        return work.exit_code  # killed, with a checkpoint or without
    return launch.INTERRUPTED if state == "interrupted" or work.stop else 1


def show_status(options):
    """Who is at work on each paper, on what, and how many of its rows are in which state.

    A row is done with the seeds of the last call, unless this one names others.
    """
    wanted = options.seeds
    for paper in paper_names() if options.paper == "all" else [options.paper]:
        folder = options.papers_dir / paper
        if not options.seeds_given:
            options.seeds = work_folder.Notice.read(folder).get("seeds", wanted)
        state = paper_state.PaperState(options, paper)
        for line in work_folder.lines_of_status(folder, lambda name: rounds_of(folder, name)):
            print(f"{paper}: {line}")
        print(f"{state.summary()} (seeds: {options.seeds})")
    return 0


def rounds_of(folder, name):
    """How far a run is, as in "round 7 of 20"; "" before its first round."""
    try:
        run = results.load(folder / f"{name}.h5")
    except results.ResultError:
        return ""
    return f"round {len(run.rounds)} of {run.config.get('run.rounds', '?')}"


def write_docs(options):
    """Brings finished runs into results/papers/PAPER.csv, and the pages of docs/reproduction up to date with these."""
    folder, records, texts, groups, hours = ROOT / "docs" / "reproduction", {}, {}, {}, {}
    for paper in paper_names():
        rows, kept = rows_of(paper), ROOT / "results" / "papers" / f"{paper}.csv"
        known = paper_record.read(kept)
        if options.paper in ("all", paper):
            known = records[kept] = with_finished(known, options, paper, rows)
        groups[paper], hours[paper] = paper_page.comparisons(rows, known, FULL_SEEDS), paper_record.total_hours(known)
        path = folder / f"{paper}.md"
        texts[path] = paper_page.page(page_text(path), paper, known, groups[paper])
    first = folder / "README.md"
    texts[first] = paper_page.first_page(page_text(first), groups, hours)
    for kept, known in records.items():
        paper_record.write(kept, known)
        print(f"{kept}: {len(known)} figures")
    for path, text in texts.items():
        changed = text != page_text(path)
        if changed:
            path.write_text(text, encoding="utf-8")
        print(f"{path}: {'written' if changed else 'unchanged'}")
    for paper, compared in groups.items():
        path = folder.parent / "images" / f"reproduction_{paper}.png"
        if any(group.drawn for group in compared) and paper_page.shown_by(path) != paper_page.digest(compared):
            paper_page.draw(compared, path)
            print(f"{path}: drawn")
    return 0


def with_finished(known, options, paper, rows):
    """A paper's records with those of the runs that are finished."""
    for quick in (True, False):
        settings = {**vars(options), "paper": paper, "quick": quick, "output_dir": options.papers_dir / paper}
        work = Reproduction(argparse.Namespace(**settings), rows, rows)
        work.compare_whole()
        known = paper_record.merged(known, paper_record.of_rows(work), rows, FULL_SEEDS,
                                    lambda sentence: print(f"reproduce: {paper}: {sentence}"))
    return known


def page_text(path):
    if not path.is_file():
        raise PaperError(f"{path}: no such page")
    return path.read_text(encoding="utf-8")
