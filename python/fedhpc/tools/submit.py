"""Fills a job script for a run and prints it or submits it.

usage: tools/submit.py CONFIG.ini [--job NAME] [--ranks N] [--nodes N] [--gpus N] [--time MINUTES|H:M:S]
                       [--partition NAME] [--account NAME] [--submit] [--section.key=value ...]

Any --section.key=value goes to the run. NAME is a script of jobs/: single_node, multi_node, preemptible,
array_seeds or weak_scaling; without it single_node, or multi_node with --nodes above 1. `fedhpc plan` is asked
first: a configuration that the program refuses is refused here, and what it says of memory and time fills in

    --mem    per node: ranks x 1.5 x the plan's bytes per rank; not beside --mem-per-cpu or --mem-per-gpu
    --time   1.5 x rounds x seconds per round + 15 min, in whole minutes (weak_scaling: for all its runs)

The factors are margins for what a plan does not know: MPI's buffers, reading data, slower nodes. The plan is made on this machine, on as many ranks as it has cores; --plan-ranks 1 needs no mpirun here. On GPUs --time
is far too long, as the plan is the CPU's. --gpus reserves them; the run takes them with --run.device=cuda.

The script is printed, and with --submit given to sbatch just so; it holds all it needs but jobs/environment.sh, and
may be kept and submitted by `sbatch FILE`. Exit code 2: refused, by the program, by sbatch, or since it cannot fit.
"""

import argparse
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from .paper_table import PaperError
from .plan import PlanError, key_of, make_plan
from .project import ROOT, needed
from .reproduction import find_program

CLIENTS_PER_RANK = 8  # of weak_scaling
JOBS = ("single_node", "multi_node", "preemptible", "array_seeds", "weak_scaling")
MEMORY_FACTOR = 1.5
TIME_FACTOR, TIME_OF_START = 1.5, 15  # min; a node may have to come up, the data to be read
MOST_TASKS = 1001  # of an array, where the cluster does not say
PASSED_ON = ("FEDHPC_DATA", "FEDHPC_MODULES", "FEDHPC_LAUNCHER", "FEDHPC_MPI",
             "FEDHPC_MAX_RESTARTS")  # variables, where set
# Minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
TIME_LIMIT = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|unlimited|infinite", re.IGNORECASE)
WARNING_SECONDS = 120  # between SIGUSR1 and the time limit: a round and its checkpoint have to fit
SBATCHS_WARNING = 60  # s, of a --signal without @SECONDS
DIRECTIVE = re.compile(r"#SBATCH --([a-z-]+)(?:=(.*))?")


class SubmitError(Exception):
    """The job cannot be made or submitted; the message is one sentence."""


@dataclass(frozen=True)
class Shape:
    """What a job asks of the cluster."""

    ranks: int
    nodes: int = 1
    gpus_per_rank: int = 0
    runs: int = 1  # one after the other
    directives: dict = field(default_factory=dict)  # sbatch options without --, "" where there is no value


def memory_per_node(plan, shape):
    """MiB a node must have for its ranks."""
    per_rank = MEMORY_FACTOR * plan.memory_per_rank
    return math.ceil(shape.ranks // shape.nodes * per_rank / 2**20)


def time_limit(plan, runs=1):
    """Minutes for all rounds of runs one after the other."""
    return math.ceil(TIME_FACTOR * runs * plan.rounds * plan.seconds_per_round / 60.0) + TIME_OF_START


def size(text):
    """MiB of a size as SLURM writes it: 4000 or 4000M, 64G, 1T."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no size such as 64G or 4000M")
    return float(match[1]) * 1024.0 ** ("KMGT".index(match[2].upper() or "M") - 1)


def limit(text):
    """A time limit as sbatch takes it."""
    if not TIME_LIMIT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no time limit such as 90 (minutes), 2:30:00 or 1-12:00:00")
    return text


def seconds_of(text):
    """Seconds of a time limit as sbatch takes it; 0 without one."""
    if text.lower() in ("unlimited", "infinite"):
        return 0
    days, _, clock = text.rpartition("-")
    numbers = [int(number) for number in clock.split(":")]
    units = (3600, 60, 1) if days or len(numbers) == 3 else (60, 1)
    return 86400 * int(days or 0) + sum(number * unit for number, unit in zip(numbers, units))


def options_in(words, of):
    """sbatch's options by their names; SubmitError where a word of the argument `of` is none."""
    found = {}
    for text in words:
        match = re.fullmatch(r"--([a-z-]+)(?:=(.*))?", text)
        if not match:
            raise SubmitError(f"{of} {text}: not of the form --option=value (write {of}=--option=value)")
        found[match[1]] = match[2] or ""
    return found


def lead_of(directives):
    """Seconds before its end at which a job of these sbatch options is asked to stop."""
    if "signal" not in directives:
        return WARNING_SECONDS
    seconds = directives["signal"].partition("@")[2]
    return int(seconds) if seconds.isdecimal() else SBATCHS_WARNING


def refuse_short(directives):
    """SubmitError where a job of these sbatch options would be asked to stop as it begins."""
    text, lead = str(directives.get("time", "0")), lead_of(directives)
    if TIME_LIMIT.fullmatch(text) and 0 < seconds_of(text) <= lead:  # what is no limit is sbatch's to refuse
        raise SubmitError(f"the time limit {text} leaves no time: a job is asked to stop {lead} s before its end; "
                          "give a longer one or another --signal=B:USR1@SECONDS")


def idle_gpus(options, configs, run, key):
    """A warning where GPUs are asked for and a configuration does not take them; "" otherwise."""
    if not options.gpus or all(config.get("run.device") == "cuda" for config in configs):
        return ""
    return f"--gpus {options.gpus} reserves GPUs, but {run} would stay on the CPU; add {key}"


def directives_of(plan, shape, node_memory=None):
    """All sbatch options of a job; SubmitError where a node is too small."""
    memory = memory_per_node(plan, shape)
    if node_memory is not None and memory > node_memory:
        per_node = shape.ranks // shape.nodes
        ranks = "1 rank on a node needs" if per_node == 1 else f"{per_node} ranks on a node need"
        raise SubmitError(f"{ranks} {memory} MiB and a node has {node_memory:.0f} "
                          f"(--node-memory): take more nodes or fewer ranks per node, or a smaller train.block")
    filled = {"nodes": shape.nodes, "ntasks": shape.ranks, "ntasks-per-node": shape.ranks // shape.nodes,
              "mem": f"{memory}M", "time": time_limit(plan, shape.runs)}
    if shape.gpus_per_rank:
        filled["gpus-per-task"] = shape.gpus_per_rank
    if {"mem-per-cpu", "mem-per-gpu"} & set(shape.directives):  # sbatch takes one of the three
        del filled["mem"]
    directives = {**filled, **shape.directives}
    refuse_short(directives)
    return directives


def fill(template, directives, variables, arguments):
    """The text of a job script with these sbatch options, exported variables and arguments of its own."""
    comments, options, body = [], {}, []
    for line in template.splitlines():
        match = DIRECTIVE.fullmatch(line)
        if match:
            options[match[1]] = match[2] or ""
        elif not options and line.startswith("#"):
            comments.append(line)
        else:
            body.append(line)
    options.update({name: str(value) for name, value in directives.items()})
    lines = [f"#SBATCH --{name}" + (f"={shlex.quote(value)}" if value else "") for name, value in options.items()]
    lines += ["", *(f"export {name}={shlex.quote(str(value))}" for name, value in variables.items())]
    lines += ["set -- " + shlex.join(str(argument) for argument in arguments)]
    return "\n".join([comments[0], *lines, *body]) + "\n"


def variables_for(program):
    """What a job script has to know of where it came from."""
    known = {"FEDHPC_HOME": ROOT, "FEDHPC": program}
    return {**known, **{name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}}


def submit(script):
    """Gives a script to sbatch; the job's id."""
    try:
        done = subprocess.run(["sbatch", "--parsable"], input=script, capture_output=True, text=True,
                              check=False)
    except OSError:
        raise SubmitError("no sbatch on the PATH; call this on a login node, or without --submit") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SubmitError(f"sbatch refuses the job: {reason.removeprefix('sbatch: error:').strip()}")
    return done.stdout.strip().split(";")[0]


def most_tasks():
    """How many tasks an array may have here, SLURM's MaxArraySize."""
    try:
        said = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=False).stdout
    except OSError:
        said = ""
    found = re.search(r"^MaxArraySize *= *([1-9]\d*)", said, re.MULTILINE)
    return int(found[1]) if found else MOST_TASKS


def arrays_of(tasks, submits, name):
    """The tasks in parts that an array may hold each. Where none is submitted, only the first, and a warning by `name`."""
    most = most_tasks()
    parts = [tasks[first:first + most] for first in range(0, len(tasks), most)]
    if len(parts) > 1 and not submits:
        print(f"{name}: {len(tasks)} runs are {len(parts)} arrays, as one has {most} tasks at most; this is the first, "
              "--submit submits all", file=sys.stderr)
    return parts if submits else parts[:1]


def literal(path):
    """A path in whose name sbatch finds no placeholders, as part of --output."""
    return str(path).replace("%", "%%")


def add_cluster_options(parser):
    """What a job asks of a cluster, the same for a run and for a sweep."""
    parser.add_argument("--ranks", type=int, metavar="N", help="MPI ranks of a run [1 per node, or one per GPU]")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of a run [1]")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs of a run in all, one per rank [none]")
    parser.add_argument("--time", type=limit, metavar="LIMIT", help="sbatch's --time [from the plan]")
    parser.add_argument("--mem", metavar="SIZE", help="sbatch's --mem, per node [from the plan]")
    parser.add_argument("--partition", metavar="NAME", help="sbatch's --partition [the cluster's default]")
    parser.add_argument("--account", metavar="NAME", help="sbatch's --account [the user's default]")
    parser.add_argument("--job-name", metavar="NAME", help="sbatch's --job-name [the script's]")
    parser.add_argument("--sbatch", action="append", default=[], metavar="--OPTION=VALUE",
                        help="any other option of sbatch, as --sbatch=--qos=long; may be given again")
    parser.add_argument("--node-memory", type=size, metavar="SIZE",
                        help="memory of a node, as 64G; what cannot fit is refused [sbatch decides]")
    parser.add_argument("--plan-ranks", type=int, metavar="N",
                        help="ranks to plan with at most, on this machine [its cores]")
    parser.add_argument("--fedhpc", type=Path, metavar="PATH", help="the program [$FEDHPC, build/*/, PATH]")
    parser.add_argument("--submit", action="store_true", help="submit the job [print its script]")


def shape_of(options):
    """The Shape that the command line asks for; SubmitError where its numbers do not go together."""
    for name in ("ranks", "nodes", "plan_ranks"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise SubmitError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    if options.gpus < 0:
        raise SubmitError(f"--gpus {options.gpus}: must be at least 0")
    ranks = options.ranks or options.gpus or options.nodes
    if ranks % options.nodes:
        raise SubmitError(f"{ranks} ranks cannot be shared evenly by {options.nodes} nodes; take a multiple of "
                          f"{options.nodes} (--ranks, --gpus)")
    if options.gpus and options.gpus != ranks:
        raise SubmitError(f"--gpus {options.gpus} with --ranks {ranks}: a rank has one GPU; leave out --ranks")
    directives = {"chdir": Path.cwd()}
    for name in ("time", "mem", "partition", "account", "job_name"):
        if getattr(options, name) is not None:
            directives[name.replace("_", "-")] = getattr(options, name)
    directives |= options_in(options.sbatch, "--sbatch")
    refuse_short(directives)  # before plans are made, which may give another limit
    return Shape(ranks, options.nodes, 1 if options.gpus else 0, directives=directives)


def template_of(job):
    return needed(f"jobs/{job}.sbatch").read_text(encoding="utf-8")


def parse_arguments(arguments):
    """(options, the run's own --section.key=value arguments)"""
    parser = argparse.ArgumentParser(prog="submit", allow_abbrev=False, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG.ini", help="the run's configuration")
    parser.add_argument("--job", choices=JOBS, metavar="NAME",
                        help=f"script of jobs/: {', '.join(JOBS)} [single_node; multi_node with --nodes above 1]")
    parser.add_argument("--seeds", metavar="LIST", help="seeds of array_seeds as sbatch's --array takes them [1-5]")
    parser.add_argument("--clients-per-rank", type=int, metavar="N", help=f"of weak_scaling [{CLIENTS_PER_RANK}]")
    add_cluster_options(parser)
    options, rest = parser.parse_known_args(arguments)
    strange = [argument for argument in rest if not key_of(argument)]
    if strange:
        parser.error(f"unknown argument {strange[0]}; a key of the run is given as --section.key=value")
    options.job = options.job or ("multi_node" if options.nodes > 1 else "single_node")
    if options.job in ("single_node", "array_seeds") and options.nodes > 1:
        parser.error(f"--nodes {options.nodes}: {options.job} is for one node; take multi_node or preemptible")
    if options.clients_per_rank is not None and options.clients_per_rank < 1:
        parser.error(f"--clients-per-rank {options.clients_per_rank}: must be at least 1")
    for name, job in (("seeds", "array_seeds"), ("clients_per_rank", "weak_scaling")):
        if getattr(options, name) is not None and options.job != job:
            parser.error(f"--{name.replace('_', '-')} is for --job {job}")
    return options, rest


def script_of(options, run_arguments):
    """The filled script."""
    shape = shape_of(options)
    program = find_program(options.fedhpc)
    variables, planned = variables_for(program), list(run_arguments)
    if options.job == "array_seeds":
        own(run_arguments, "run.seed", "the array's numbers are the seeds (--seeds)")
    if options.job == "weak_scaling":
        own(run_arguments, "data.clients", "they go with the ranks (--clients-per-rank)")
        variables["CLIENTS_PER_RANK"] = options.clients_per_rank or CLIENTS_PER_RANK
        planned.append(f"--data.clients={shape.ranks * variables['CLIENTS_PER_RANK']}")
        shape = replace(shape, runs=1 + (shape.ranks - 1).bit_length())  # on 1, 2, 4, ... ranks
    if options.seeds is not None:
        shape.directives["array"] = options.seeds
    plan = make_plan(program, options.config, planned, shape.ranks, options.plan_ranks, elsewhere=True)
    if warning := idle_gpus(options, [plan.config], "the run", "--run.device=cuda"):
        print(f"submit: {warning}", file=sys.stderr)
    return fill(template_of(options.job), directives_of(plan, shape, options.node_memory), variables,
                [options.config, *run_arguments])


def own(run_arguments, key, why):
    """Refuses a key that the job script sets itself."""
    if key in map(key_of, run_arguments):
        raise SubmitError(f"{key} cannot be given to this job: {why}; leave it out")


def main(arguments):
    options, run_arguments = parse_arguments(arguments)
    try:
        script = script_of(options, run_arguments)
        print(f"submitted job {submit(script)}" if options.submit else script, end="\n" if options.submit else "")
    except (SubmitError, PlanError, PaperError, OSError) as error:
        print(f"submit: {error}", file=sys.stderr)
        return 2
    return 0
