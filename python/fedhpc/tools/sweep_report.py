"""The comparison of a sweep's points as Markdown, and the best one."""

import shlex

from .paper_table import aligned, figure_text
from .reproduction import is_written
from .results import DIVERGED
from .sweep_rungs import kept, standing
from .sweep_runs import ranked, result_of

BEFORE_DETAIL = {"missing": "; ", "interrupted": " "}  # between a kind of state and its detail; else a colon


def best_of(sweep, rungs):
    """The best point of those with all seeds and all rounds; None without one."""
    best = ranked(sweep, rungs[-1].points, rungs[-1].states) if len(rungs) == len(sweep.rungs) else []
    return best[0][0] if best else None


def in_vain(sweep, states, tried=frozenset()):
    """Whether all runs are finished and there is no best point all the same."""
    rungs = standing(sweep, states, tried)
    return best_of(sweep, rungs) is None and all(state.kind == "finished" for state in rungs[-1].states.values())


def report(sweep, states, tried=frozenset()):
    """The table of all points, each where it has come to, and the best one in a line."""
    rungs = standing(sweep, states, tried)
    best = best_of(sweep, rungs)
    last = {point.name: rung for rung in rungs for point in rung.points}
    # Once a rung: a note on each point would rank all of them again.
    notes = {rung.number: ({point.name: mean for point, mean in ranked(sweep, rung.points, rung.states)},
                           kept(sweep, rung)) for rung in rungs}
    keys = list(dict.fromkeys(key for point in sweep.points for key in point.values))
    metrics = list(dict.fromkeys((sweep.chosen_by, sweep.metric)))
    halved = len(sweep.rungs) > 1
    lines = [[*(["trial"] if sweep.trials else []), *keys, *(["rung", "rounds"] if halved else []),
              *(metric + _unit(metric) for metric in metrics), "seeds", ""]]
    for point in sweep.points:
        rung = last[point.name]
        results = [result_of(sweep, point, rung.states, metric) for metric in metrics]
        note = "best" if point is best else _note(sweep, point, rung, *notes[rung.number])
        lines.append([*([point.name.removeprefix("trial")] if sweep.trials else []),
                      *(point.values.get(key, "-") for key in keys),
                      *([str(rung.number), str(rung.rounds)] if halved else []),
                      *(_cell(metric, mean, spread) for metric, (mean, spread, _) in zip(metrics, results)),
                      f"{results[0][2]} of {len(sweep.seeds)}", note])
    return f"{aligned(lines)}\n{_conclusion(sweep, rungs, best)}\n"


def _unit(metric):
    return " [%]" if "accuracy" in metric else ""


def _cell(metric, mean, spread):
    if _unit(metric) or mean is None:
        return figure_text(mean, spread)
    # A loss has no natural number of decimals.
    return f"{mean:.4g}" + (f" ± {spread:.2g}" if spread is not None else "")


def _note(sweep, point, rung, means, stay):
    """Why a point is not complete, or what has become of it on the last rung it came to; `means` are those of
    the rung's points by name, `stay` the points that go on from there."""
    states = [rung.states[job.name] for job in point.jobs]
    kinds = ["at work" if is_written(job.output) else
             state.kind + (BEFORE_DETAIL.get(state.kind, ": ") + state.detail if state.detail else "")
             for job, state in zip(point.jobs, states) if state.kind != "finished"]
    kinds += [f"diverged, at its end after round {len(state.run.rounds)}" for state in states
              if state.kind == "finished" and state.run.status == DIVERGED]
    if kinds:
        return "; ".join(dict.fromkeys(kinds)).replace("|", "/")
    if point.name not in means:
        known = any(len(state.run.evaluated(sweep.chosen_by)) for state in states)
        return f"{sweep.chosen_by} {'is not finite' if known else 'was never evaluated'}"
    if len(sweep.rungs) == 1 or rung.due or rung.number == len(sweep.rungs):
        return ""
    tied = [other.name for other in stay if means[other.name] == means[point.name]]
    return "cut" + (f", tied with {tied[-1]}" if tied else "")


def _conclusion(sweep, rungs, best):
    rung = rungs[-1]
    pending = sum(state.kind != "finished" for state in rung.states.values())
    on_rung = f" of rung {rung.number} of {len(sweep.rungs)}" if len(sweep.rungs) > 1 else ""
    left = f"; {pending} of {len(rung.states)} runs{on_rung} are not finished" if pending else ""
    runs = [state.run for state in rung.states.values() if state.kind == "finished"]
    for metric in (sweep.chosen_by, sweep.metric):
        if runs and all(run.evaluated(metric).empty for run in runs):
            return (f"metric {metric} was never evaluated; the runs have "
                    f"{', '.join(name for name in runs[0].rounds if len(runs[0].evaluated(name)))}{left}")
    if best is None:
        return f"no point is complete{left}" if pending else (
            f"no point can be ranked: every one has diverged or has no {sweep.chosen_by} of all its seeds")
    rule = {"best": "best evaluated round", "last": "last evaluated round"}[sweep.rule]
    rule += f" of {rung.rounds}" if rung.rounds else ""
    aim = {"max": "highest", "min": "lowest"}[sweep.aim]
    overrides = " ".join(shlex.quote(f"--{key}={value}") for key, value in best.values.items())
    over = f", mean over {len(sweep.seeds)} seeds" if len(sweep.seeds) > 1 else ""
    figures = []
    for metric in dict.fromkeys((sweep.chosen_by, sweep.metric)):
        mean, spread, _ = result_of(sweep, best, rung.states, metric)
        name = f"{metric} " if figures else ""
        figures.append("-" if mean is None else
                       f"{name}{mean:.4g}" + (f" ± {spread:.2g}" if spread is not None else ""))
    return (f"best ({aim} {sweep.chosen_by}, {rule}{over}): {overrides or sweep.base.name} "
            f"({'; '.join(figures)}){left}")
