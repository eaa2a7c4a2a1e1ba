"""What is known of a row from earlier runs, beside the figure of this call.

The runs of the whole protocol, where their result files are there, say what a shortened one should have reached:
the rounds after which both were evaluated count. Otherwise the figures of results/papers/PAPER.csv speak.
"""

import statistics
from dataclasses import replace

from . import paper_table
from .paper_table import KEPT, figure_text


def cell(work, row):
    """The recorded figure, in brackets how far ours lies above it, and how near the series are; - without one."""
    jobs = [job for seed in range(1, work.options.seeds + 1) if (job := work.jobs.get((row.run_name, seed)))]
    runs = {seed: work.states[job.name].run for seed, job in enumerate(jobs, 1)
            if work.states[job.name].kind == "finished"}
    return of_series(work, row, runs) or of_figures(work, row, jobs, runs)


def of_series(work, row, runs):
    """The comparison with the whole runs of the same seeds, over the rounds after which both were evaluated; ""
    without, and where a seed has no figure in them (see paper_table.row_result)."""
    pairs = [shared(run, whole, row.metric) for seed, run in runs.items()
             if (whole := whole_run(work, row, seed, len(run.rounds)))]
    figures = [[run.pick(row.metric, row.pick) * row.scale for run in pair] for pair in pairs]
    apart = [float((run.rounds[row.metric] - whole.rounds[row.metric]).abs().max(skipna=False)) * row.scale
             for run, whole in pairs if len(run.rounds)]
    if not pairs or any(value != value for value in (*apart, *sum(figures, []))):
        return ""
    ours, theirs = map(statistics.fmean, zip(*figures))
    rounds = max(run.rounds.index[-1] for run, _ in pairs)
    return f"{theirs:.2f} ({ours - theirs:+.2f}), series to round {rounds} within {max(apart):.2f}"


def shared(run, whole, metric):
    """Two runs, each with the rounds alone after which both were evaluated: a shortened one's last is its own."""
    rounds = run.evaluated(metric).index.intersection(whole.evaluated(metric).index)
    return replace(run, rounds=run.rounds.loc[rounds]), replace(whole, rounds=whole.rounds.loc[rounds])


def whole_run(work, row, seed, rounds):
    """The first `rounds` rounds of the row's run that was not shortened; None where there is none."""
    short = work.jobs[row.run_name, seed]
    job = paper_table.make_job(row, seed, False, short.config.parent, short.output.parent)
    if job.output == short.output:
        return None
    state = paper_table.job_state(job)
    if state.kind in KEPT:
        state = paper_table.job_state(work.whole(job))
    if state.kind not in KEPT or len(state.run.rounds) < rounds:
        return None
    return replace(state.run, rounds=state.run.rounds.loc[:rounds])


def of_figures(work, row, jobs, runs):
    """The figure of the repository at the same round, or else at the last one that it has."""
    known = [record for record in work.records if record.ours is not None and
             (record.table, record.row, record.metric) == (row.table, row.run_name, row.measured) and record.is_of(row)]
    if not known or not jobs:
        return "-"
    rounds = min((len(run.rounds) for run in runs.values()), default=int(jobs[0].expected.get("run.rounds", 0)))
    seeds = tuple(runs) or tuple(range(1, work.options.seeds + 1))
    best = max(known, key=lambda record: (record.rounds == rounds, record.seeds == seeds, record.rounds))
    text = figure_text(best.ours, best.spread)
    mean = paper_table.row_result(row, [work.states[job.name] for job in jobs])[0]
    if best.rounds != rounds:
        return f"{text} after {best.rounds} rounds"
    if mean is not None:
        text += f" ({mean - best.ours:+.2f})"
    return text + (f", seeds {' '.join(map(str, best.seeds))}" if best.seeds != seeds else "")
