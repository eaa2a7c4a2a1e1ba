"""Successive halving (Jamieson, Talwalkar, 2016): which runs of a sweep are due, and which points are cut.

All points go to the rounds of the first rung. The best of them, one of eta, go on from their checkpoints to the rounds
of the next, and so on. What a rung decides follows from the result files up to its rounds, however far they have gone
since, so that nothing else is kept: a run that had not diverged by then is sound there, whatever became of it. A longer
run that was not evaluated at the end of a rung, as those of halving are, is trained anew. A sweep without halving has
one rung, on which nothing is cut.
"""

import contextlib
import math
from dataclasses import dataclass, replace

import h5py

from .launch import own_error
from .paper_table import KEPT, JobState, job_state
from .results import DIVERGED, files_beside
from .sweep_runs import jobs_of, ranked


@dataclass(frozen=True)
class Rung:
    """A rung that has begun."""

    number: int  # from 1
    rounds: int  # None: as many as the configuration says
    points: tuple  # that have come so far
    states: dict  # paper_table.JobState by the run's name; `failed` as well, with the program's own words
    due: tuple  # runs that are to be run before the rung is decided


def states_of(sweep):
    """What lies at every run's output: paper_table.JobState by the run's name."""
    return {job.name: state_of(job) for job in sweep.jobs}


def state_of(job):
    """What lies at a run's output. One of fewer rounds, the same otherwise, goes on from its checkpoint, as with
    `fedhpc run --go-on`."""
    state = job_state(job)
    rounds = (job.resolved or job.expected).get("run.rounds") or ""  # "": with halving any number will do
    more = state.run is not None and rounds.isdigit() and int(rounds) > len(state.run.rounds)
    if state.kind in KEPT or not more or not files_beside(job.output):
        return state
    free = replace(job, expected={key: value for key, value in job.expected.items() if key != "run.rounds"},
                   resolved=job.resolved and {**job.resolved, "run.rounds": None})
    of_fewer = job_state(free)
    return state_at(job, of_fewer, int(rounds)) if of_fewer.kind in KEPT else state


def standing(sweep, states, tried=frozenset()):
    """The rungs that have begun, the last of them undecided or the end.

    `states` are those of the outputs, `tried` the names of runs that have failed and are not tried again.
    """
    points, rungs = sweep.points, []
    for number, rounds in enumerate(sweep.rungs, 1):
        here = {job.name: state_at(job, states[job.name], rounds, sweep.chosen_by) for job in jobs_of(points)}
        rungs.append(Rung(number, rounds, points, here, _due(points, here, rounds, tried)))
        points = kept(sweep, rungs[-1])
        if rungs[-1].due or not points:
            break
    return rungs


def kept(sweep, rung):
    """The points that go on from a rung: one of eta, at least one, of those with a result; the earlier where two tie."""
    best = [point.name for point, _ in ranked(sweep, rung.points, rung.states)]
    names = best[:max(1, len(rung.points) // sweep.eta)]
    return tuple(point for point in rung.points if point.name in names)


def state_at(job, state, rounds, metric=None):
    """The state of a run whose aim are so many rounds, with the metric after the last; its Run has no more of them."""
    if rounds and state.kind in KEPT:
        run, done = state.run, len(state.run.rounds)
        if done > rounds:
            diverged = _has_diverged_at(job, run, rounds)
            if not diverged and run.tested and rounds not in (*run.tested, *run.evaluated(metric).index):
                return JobState("outdated", run, f"not evaluated after round {rounds}, where a rung ends "
                                                 f"(run.eval_every={run.config.get('run.eval_every', '?')})")
            run = replace(run, rounds=run.rounds.loc[:rounds],
                          attributes={**run.attributes, "status": DIVERGED if diverged else "complete"})
        if done >= rounds or run.status == DIVERGED:
            return JobState("finished", run)
        state = JobState("interrupted", run, f"after round {done}")
    if state.kind != "finished" and (reason := _last_words(job)):
        return JobState("failed", state.run, reason)
    return state


def _has_diverged_at(job, run, rounds):
    """Whether a longer run had diverged at the end of a rung: a loss there is no number, or no evaluation from then to
    a checkpoint has ended what began before."""
    losses = [run.evaluated(name).get(rounds, 0.0) for name in ("global_loss", "personal_loss")]
    if not all(map(math.isfinite, losses)):
        return True
    for path in files_beside(job.output) if run.status != "complete" else ():
        with contextlib.suppress(OSError, KeyError), h5py.File(path, "r") as file:  # one that is being written
            state = file["state"].attrs
            if 0 < state["diverged_since"] <= rounds <= state["round"]:
                return True
    return False


def _last_words(job):
    """The program's own words on why a run has failed, in the log of its last start; "" without any."""
    try:
        return own_error(job.output.with_suffix(".log").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""


def _due(points, states, rounds, tried):
    """Unfinished runs. A rung does not wait for those that have failed, unless nothing else has come of it."""
    due = [job for job in jobs_of(points) if states[job.name].kind != "finished" and job.name not in tried]
    if rounds and any(state.kind == "finished" for state in states.values()):
        due = [job for job in due if states[job.name].kind != "failed"]
    return tuple(due)
