"""The whole configurations of a paper's runs, as the program plans them: a result in a key that is set no more, or of
other data, models or code, is none of the row's."""

import os
from dataclasses import replace

from .plan import PlanError, make_plan

_plans = {}  # a plan trains a step: each is made once, also where several tables ask


def resolved(job, program, data=None):
    """The job with its whole configuration and the digests of its data, model and code, data below `data` where given; PlanError if the
    program cannot plan it."""
    # Of any seed, for all seeds of a row are the same but for data.seed below.
    arguments = [f"--{override}" for override in job.overrides if not override.startswith("run.seed=")]
    arguments += [f"--data.dir={data}"] if data else []
    asked = (str(program), str(job.config), *arguments, os.environ.get("FEDHPC_DATA"))
    if asked not in _plans:
        try:
            _plans[asked] = make_plan(program, job.config, arguments, 1)
        except PlanError as error:
            _plans[asked] = error
    if isinstance(_plans[asked], PlanError):
        raise _plans[asked]
    return of_plan(job, _plans[asked])


def why_not_compared(kept, program, unplanned):
    """One sentence where results that are `kept` are compared in some keys only, for want of a program or of a plan;
    `unplanned` has the PlanError by the name of what has none. "" otherwise."""
    reason = (f"no plan of {', '.join(unplanned)} ({next(iter(unplanned.values()))})" if unplanned else
              "no fedhpc program is found" if kept and not program else "")
    return reason and f"{reason}; results are compared in the keys that are set only, not in others nor in their data"


def of_plan(job, plan, free=()):
    """The job with the plan's configuration, in which the `free` keys may have any value. The plan may be of another
    seed, which data.seed follows where nothing sets it."""
    config = {**plan.config, **dict.fromkeys(free)}
    if "data.seed" in config:
        config["data.seed"] = job.expected["run.seed"]
    return replace(job, resolved=config, digests=plan.digests)
