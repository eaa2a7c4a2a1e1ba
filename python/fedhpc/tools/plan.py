"""What a run will need, as `fedhpc plan --json` says; the configuration is refused here if the program refuses it."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass

from . import launch
from .results import DIGESTS, VALIDATION

_told = set()  # sentences
PLAN_SECONDS = 600.0  # for one plan; it reads the data


class PlanError(Exception):
    """The program refuses the configuration or cannot plan it; the message is one sentence."""


@dataclass(frozen=True)
class Plan:
    """The needs of one run on `ranks` ranks."""

    ranks: int
    memory_per_rank: float  # B held by a rank for data, models and state
    seconds_per_round: float  # training, evaluation and work between clients, on the machine that planned; an estimate
    rounds: int
    config: dict  # "section.key" -> text, whole, as the run's result file would have it
    metrics: tuple  # names of the series of /rounds that the run will have values of
    digests: dict  # name of a result file's attribute -> checksum of data, model or code; empty where there is none


def key_of(argument):
    """The key of `--section.key=value`; None for any other text."""
    match = re.fullmatch(r"--([a-z_]+\.[\w.]+)=.+", argument, re.DOTALL)
    return match and match[1]


def make_plan(program, config, arguments, ranks, most_ranks=None, elsewhere=False):
    """The Plan of `fedhpc run CONFIG ARGUMENTS` on `ranks` ranks.

    At most `most_ranks` ranks [this machine's cores] are started to plan: a run on more of them needs no more memory
    per rank, so that the plan is an upper bound there, and the time of its slowest rank is taken to go with its number
    of clients. A run that is for machines `elsewhere` is planned on the CPU where this one has no GPU for it.
    """
    planned = min(ranks, most_ranks or launch.cores())
    device = {}
    try:
        told = _ask(program, ["plan", str(config), *arguments, "--json"], planned)
    except PlanError as error:
        if not elsewhere or "key 'run.device' cannot be 'cuda'" not in str(error):
            raise
        _tell_once(f"fedhpc: planned on the CPU: {error}")
        told = _ask(program, ["plan", str(config), *arguments, "--run.device=cpu", "--json"], planned)
        device = {"run.device": "cuda"}
    try:
        plan = json.loads(told)
        clients = plan["clients_per_rank"]
        fewer = -(-clients * planned // ranks)
        return Plan(ranks, float(plan["memory_per_rank_bytes"]), plan["seconds_per_round"] * fewer / max(clients, 1),
                    plan["rounds"], {**plan["config"], **device}, tuple(plan["metrics"]),
                    {name: plan[name] for name in DIGESTS})
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{program}: plan gave no usable answer ({error!r}); is it this version's program?") from None


def _tell_once(sentence):
    """On standard error; the points of a sweep have the same to say."""
    if sentence not in _told:
        _told.add(sentence)
        print(sentence, file=sys.stderr)


def needs_of(metric, configs):
    """What to set for a series that stays empty in runs of all these configurations; "" for others."""
    if metric.startswith(VALIDATION) and not any(map(sets_aside, configs)):
        return "set data.validation_fraction"
    return "set a key of network" if metric == "simulated_seconds" and not any(map(_simulated, configs)) else ""


def sets_aside(config):
    """Whether clients of a configuration may have validation samples: a partition's file may say which."""
    fractions = config.get("data.validation_fraction", "0").split(";")
    return config.get("data.partition") == "file" or any(text.strip() not in ("", "0", "0.0") for text in fractions)


def _simulated(config):
    """Whether a configuration says anything of the network."""
    return any(key.startswith("network.") and number.strip() not in ("0", "0.0")
               for key, value in config.items() for number in value.split(","))


def _ask(program, arguments, ranks=1):
    """What the program prints; started by mpirun only where there are several ranks."""
    command, environment = launch.mpi_command(program, ranks, arguments)
    if ranks == 1:
        command = [str(program), *arguments]
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PLAN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PlanError(f"{program}: no plan within {PLAN_SECONDS:g} s") from None
    except OSError as error:
        raise PlanError(f"{command[0]}: {error.strerror}; is it installed?") from None
    if done.returncode != 0:
        lines = [line for line in launch.lines_of(done.stderr) if line] or ["no message"]
        raise PlanError(launch.own_error(done.stderr) or lines[0])
    for line in launch.lines_of(done.stderr):
        if line.startswith("fedhpc: warning:"):
            _tell_once(line)
    return done.stdout
