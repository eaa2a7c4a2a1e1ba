"""Tables of what runs have reached: mean and spread over seeds, cost to a target, scaling over ranks.

    summarize.py RUN.h5|DIR ... [--metric NAME] [--select test|validation] [--target 0.9|90%] [--labels TEXT,TEXT,...]
                 [--columns NAME,NAME,...] [--format text|csv|latex]
    summarize.py RUN.h5|DIR ... --scaling [--output FILE.png [--force]] [--format text|csv|latex]

Runs that differ only in their seeds and in where their output goes are one line. A line names the settings in which it
differs from others, and its seeds, as RUN.SEED/DATA.SEED where run.seed is alike; the spread is the sample standard
deviation over the n seeds of the line. Best and last are those of --metric (without: the accuracy that most lines have,
global before personal), the best of a loss is its smallest value. --select validation: the best of a run is its metric
in the round where the same metric on the validation samples was best. --target: rounds, bytes of all links, simulated
and wall seconds until the metric first was that good, over the seeds that came so far. --labels names the lines in the
order in which they stand. --columns picks columns, and their order, by their headers without units; in CSV also by
those of the text, for mean and deviation, and by configuration for all settings. In LaTeX the best line of best, last
and cost to target is bold, or several that read the same; lines whose runs are not all complete do not compete, nor
those of which a smaller share of the seeds has come to the target. Where no column is the status, lines that are
not complete are named on standard error, as are runs that a mean is without. Bytes up and down are
those of all links and rounds.

--scaling: seconds of a round against ranks: the median over rounds but the first, which has evaluation in it where at
least half of the rounds evaluate (run.eval_every of 1 or 2).
Strong: the same configuration on other numbers of ranks; weak: data.clients (and topology.edges) grow with the
ranks. Efficiency is that against the fewest ranks, 100 % for half the time on twice the ranks (strong) or the
same time for twice the clients (weak). --output draws it.

DIR stands for all result files in it, without checkpoints and earlier versions (RUN.oldN.h5), which are left out of
*.h5 as well where their run is among it. Unreadable files of DIR are named and left out.
Exit code 2: a named file is missing or is no result file, or there is nothing to put into a table.
"""

import argparse
import re
import sys
from pathlib import Path

from .axes import unit_prefix
from .labels import SEEDS, differing_keys, groups_of_seeds, labels_of, listed, names_of_seeds, settings, title_of
from .results import VALIDATION, ResultError, load_all, tells
from .scaling import draw_scaling, scaling_table, scalings_of
from .statistics_of_seeds import TARGET_AXES, best_and_last, smaller_is_better, to_target, traffic
from .style import PlotError, add_force
from .tables import FORMATS, Best

METRICS = ("global_accuracy", "personal_accuracy", "global_rmse", "personal_rmse")
TARGET_HEADERS = {"rounds": "rounds", "bytes": "traffic [B]", "seconds": "simulated [s]", "wall": "wall [s]"}
# Columns for people that have another name for programs.
FOR_PROGRAMS = {"up": "bytes_up", "down": "bytes_down",
                **{f"to target: {header.split()[0]}": f"target_{axis}" for axis, header in TARGET_HEADERS.items()}}


def seeds_text(names):
    """Names of seeds in ascending order, neighbours as a range: 1-3,7."""
    ranges = []
    for seed in sorted(names, key=lambda text: (not text.isdigit(), [part.zfill(20) for part in text.split("/")])):
        if ranges and seed.isdigit() and ranges[-1][-1].isdigit() and int(seed) == int(ranges[-1][-1]) + 1:
            ranges[-1] = (ranges[-1][0], seed)
        else:
            ranges.append((seed, seed))
    return ",".join(low if low == high else f"{low}-{high}" for low, high in ranges)


def status_text(runs):
    """complete, or how many runs have which status."""
    statuses = [run.status for run in runs]
    counts = dict.fromkeys(statuses)
    return statuses[0] if len(counts) == 1 else ", ".join(f"{statuses.count(status)} {status}" for status in counts)


def ends_of(group):
    """The fewest and the most rounds of runs."""
    lengths = [len(run.rounds) for run in group]
    return min(lengths), max(lengths)


def rounds_text(group):
    """The rounds of runs, 60, or 31-60 where these have fewer and more."""
    return "-".join(map(str, dict.fromkeys(ends_of(group))))


def default_metric(groups):
    """The accuracy, or else the rmse, that most groups have evaluated."""
    return max(METRICS, key=lambda metric: sum(any(len(run.evaluated(metric)) for run in group) for group in groups))


def sample_text(sample, digits, factor=1.0):
    """mean ± deviation; how many of the runs it is over, where not all; - without a value."""
    if sample.mean is None:
        return "-"
    text = f"{factor * sample.mean:.{digits}f}"
    if sample.deviation:  # the bytes of many methods do not depend on the seed
        text += f" ± {factor * sample.deviation:.{digits}f}"
    return text if len(sample.values) == sample.runs else f"{text} ({len(sample.values)} of {sample.runs})"


def scaled_column(header, samples):
    """[header, cell, ...]: in the unit that keeps the numbers of the column short."""
    divisor, header = unit_prefix(max((max(s.values, default=0.0) for s in samples), default=0.0), header)
    return [header, *(sample_text(sample, 1, 1.0 / divisor) for sample in samples)]


def columns_for_people(groups, labels, metric, target, by):
    """Columns [header, cell, ...] with units in the headers."""
    percent = "accuracy" in metric or "density" in metric or metric.endswith("_f1")
    factor, digits, unit = (100.0, 2, " [%]") if percent else (1.0, 4, "")
    ends = [best_and_last(group, metric, by) for group in groups]
    least = smaller_is_better(metric)
    compete = [status_text(group) == "complete" for group in groups]
    columns = [["configuration", *labels], ["seeds", *map(seeds_text, names_of_seeds(groups))],
               ["n", *(str(len(group)) for group in groups)], ["status", *map(status_text, groups)],
               ["rounds", *map(rounds_text, groups)],
               *(best_marked([f"{name}{unit}", *(sample_text(one, digits, factor) for one in ones)], ones, least, compete)
                 for name, ones in zip(("best", "last"), zip(*ends)))]
    if target is not None:
        costs = [to_target(group, metric, target) for group in groups]
        for axis in TARGET_AXES:
            samples = [cost[axis] for cost in costs]
            columns.append(best_marked(scaled_column(f"to target: {TARGET_HEADERS[axis]}", samples), samples, True, compete))
    totals = [traffic(group) for group in groups]
    return columns + [scaled_column("up [B]", [up for up, _ in totals]),
                      scaled_column("down [B]", [down for _, down in totals])]


def best_marked(column, samples, least, compete):
    """The column [header, cell, ...] with a mark at the best mean of those that compete, and at means that read the
    same. Only lines of which the largest share of the runs has a value compete: a cost of few is that of fast ones."""
    shares = {line: len(sample.values) / sample.runs for line, sample in enumerate(samples) if compete[line]}
    most = max(shares.values(), default=0)
    if len(samples) < 2 or not most:
        return column
    known = {line: samples[line].mean for line, share in shares.items() if share == most}
    header, *cells = column
    figures = [re.match(r"\S+", cell)[0] for cell in cells]
    best = figures[(min if least else max)(known, key=known.get)]
    return [header, *(Best(cell) if figure == best and line in known else cell
                      for line, (cell, figure) in enumerate(zip(cells, figures)))]


def columns_called(columns, name):
    """The columns of a name: for programs mean and deviation, and of the configuration all settings."""
    stem = FOR_PROGRAMS.get(name, name)
    return [column for column in columns if re.sub(r" \[.*\]$", "", column[0]) in (name, f"{stem}_mean", f"{stem}_std")
            or name == "configuration" and "." in column[0]]


def chosen_columns(columns, names):
    """The columns of these names, in their order; all of them without names."""
    if not names:
        return columns
    chosen = [(name, columns_called(columns, name)) for name in names]
    for name, found in chosen:
        if not found and (name != "configuration" or len(names) == 1):  # a single line has no settings that differ
            known = ", ".join(re.sub(r" \[.*\]$", "", column[0]) for column in columns)
            raise ResultError(f"--columns {name}: no such column; there are {known}")
    return [column for _, found in chosen for column in found]


def number(value):
    return "" if value is None else f"{value:.10g}"


def samples_of(groups, metric, target, by):
    """{quantity: a Sample for each group}, in fractions, bytes and seconds."""
    ends, totals = [best_and_last(group, metric, by) for group in groups], [traffic(group) for group in groups]
    costs = [to_target(group, metric, target) for group in groups] if target is not None else []
    return {"best": [best for best, _ in ends], "last": [last for _, last in ends],
            **{f"target_{axis}": [cost[axis] for cost in costs] for axis in (TARGET_AXES if costs else ())},
            "bytes_up": [up for up, _ in totals], "bytes_down": [down for _, down in totals]}


def columns_for_programs(groups, metric, target, by):
    """Columns [header, cell, ...]: one for each setting that differs, plain numbers in bytes, seconds, fractions."""
    configs = [settings(group[0], SEEDS) for group in groups]
    columns = [[key, *(config.get(key, "") for config in configs)] for key in differing_keys(configs)]
    columns += [["seeds", *map(seeds_text, names_of_seeds(groups))], ["n", *(str(len(group)) for group in groups)],
                ["status", *map(status_text, groups)],
                ["rounds", *(str(ends_of(group)[1]) for group in groups)],
                ["rounds_least", *(str(ends_of(group)[0]) for group in groups)],
                ["metric", *(metric for _ in groups)]]
    samples = samples_of(groups, metric, target, by)
    if target is not None:
        columns.append(["target_reached_by", *(str(len(one.values)) for one in samples["target_rounds"])])
    for name, ones in samples.items():
        columns += [[f"{name}_mean", *(number(one.mean) for one in ones)],
                    [f"{name}_std", *(number(one.deviation) for one in ones)]]
    return columns


def lines_of(runs, tell, metric=None, select="test"):
    """(groups of runs, their labels, metric, series by which the best round of a run is chosen): a group is a line."""
    groups = groups_of_seeds(runs, tell)
    metric = metric or default_metric(groups)
    if not any(len(run.evaluated(metric)) for run in runs):
        names = [name for name in runs[0].rounds if len(runs[0].evaluated(name))]
        raise ResultError(f"metric {metric} was never evaluated; {runs[0].path} has {', '.join(names)}")
    by = VALIDATION + metric if select == "validation" else metric
    for run in (run for group in groups for run in group if run.evaluated(by).empty):
        if by != metric and len(run.evaluated(metric)):
            raise ResultError(f"{run.path}: no {by}; --select validation needs data.validation_fraction in every run")
    firsts = [group[0] for group in groups]
    labels = (labels_of(firsts, SEEDS, most=None) if len(groups) > 1 else [title_of(firsts) or firsts[0].path.stem])
    return groups, labels, metric, by


def tell_of_lacking(groups, metric, by, tell):
    """Tells of runs that means of their lines are without."""
    for group in groups:
        lacking = [run for run in group if not all(sample.values for sample in best_and_last([run], metric, by))]
        for run in lacking if len(lacking) < len(group) else ():
            tell(f"{run.path}: no {metric}, so that a mean of its line is over {len(group) - len(lacking)} of "
                 f"{len(group)} seeds ({run.status})")


def summary(runs, tell, metric, target, form, labels=None, names=None, select="test"):
    """The table of `runs` as text."""
    groups, own_labels, metric, by = lines_of(runs, tell, metric, select)
    tell_of_lacking(groups, metric, by, tell)
    if labels and len(labels) != len(groups):
        raise ResultError(f"--labels {','.join(labels)}: {len(labels)} of them for {len(groups)} lines")
    columns = (columns_for_programs(groups, metric, target, by) if form == "csv" else
               columns_for_people(groups, labels or own_labels, metric, target, by))
    table = FORMATS[form](*split(chosen_columns(columns, names)))
    unfinished = [f"{label} ({status_text(group)})" for label, group in zip(labels or own_labels, groups)
                  if status_text(group) != "complete"]
    if unfinished and names and "status" not in names:
        print(f"summarize: not complete, which no column says: {'; '.join(unfinished)}", file=sys.stderr)
    goal = f", target {target:g}" if target is not None else ""
    goal += f", best where {by} is" if by != metric else ""
    note = f"{metric}{goal}; mean ± sample standard deviation over the n seeds of a line\n"
    return table if form == "csv" else f"% {note}{table}" if form == "latex" else f"{note}\n{table}"


def split(columns):
    """(header, lines) of columns."""
    header, *lines = zip(*columns)
    return header, lines


def target_of(text):
    """A target as a number: 0.9, or 90% for the same."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ResultError(f"target '{text}' is neither a number, as 0.9, nor a percentage, as 90%") from None


def target_argument(text):
    try:
        return target_of(text)
    except ResultError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="Tables of fedhpc runs: mean and spread over seeds, or scaling.")
    parser.add_argument("places", nargs="+", metavar="RUN.h5|DIR", type=Path, help="result files, or folders of them")
    parser.add_argument("--metric", metavar="NAME", help="a /rounds data set [an accuracy, or an rmse]")
    parser.add_argument("--select", choices=("test", "validation"), default="test",
                        help="what chooses the best round of a run [test: the metric itself]")
    parser.add_argument("--target", type=target_argument, metavar="VALUE",
                        help="cost until the metric is this good: 0.9 or 90%%")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="[text]")
    parser.add_argument("--labels", type=listed, metavar="TEXT,...", help="what the lines are called, one for each")
    parser.add_argument("--columns", type=listed, metavar="NAME,...", help="headers without units [all columns]")
    parser.add_argument("--scaling", action="store_true", help="time of a round against ranks, weak and strong")
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="with --scaling: also draw it; png, pdf or svg")
    add_force(parser)
    options = parser.parse_args(arguments)
    if options.scaling and (options.metric or options.target is not None or options.labels or options.columns
                            or options.select != "test"):
        parser.error("--metric, --select, --target, --labels and --columns do not go with --scaling; leave them out")
    if options.labels and options.format == "csv":
        parser.error("--labels does not go with --format csv, whose lines have a column per setting")
    if options.output and not options.scaling:
        parser.error("--output goes with --scaling only; tools/plot.py draws metrics")
    return options


def main(arguments):
    options = parse_arguments(arguments)
    try:
        tell = tells("summarize")
        runs = load_all(options.places, tell)
        if options.scaling:
            scalings = scalings_of(runs, tell)
            print(scaling_table(scalings, options.format), end="")
            if options.output:
                draw_scaling(scalings, options.output, options.force)
        else:
            print(summary(runs, tell, options.metric, options.target, options.format, options.labels, options.columns,
                          options.select),
                  end="")
    except (ResultError, PlotError) as error:
        print(f"summarize: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"summarize: {options.output or 'the table'} cannot be written: {error}", file=sys.stderr)
        return 2
    return 0
