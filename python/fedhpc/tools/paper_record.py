"""What is known of the papers' tables without the result files: CSV files, and their tables in the documentation.

A record is one figure: a row of tools/papers/PAPER.csv, or a variant of one, at a number of rounds and over
some seeds. reproduce.py writes all rows of its runs to DIR/PAPER/table.csv. results/papers/PAPER.csv keeps
the figures that the repository carries, also when their result files are gone, and a page of
docs/reproduction shows them (paper_page.py).
"""

import csv
import functools
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import bits, paper_table
from .paper_table import PaperError
from .results import DIVERGED
from .scaling import ranks_are_known, ranks_of_rounds

COLUMNS = ("table", "row", "metric", "paper", "paper_spread", "ours", "spread", "seeds", "difference", "protocol",
           "rounds", "protocol_rounds", "state", "bits", "core_hours")
SEPARATOR = "; "  # between the parts of a protocol
UNKNOWN = "version unknown"
NO_BITS = "-"  # of a run whose bits are not recorded, beside others


@dataclass(frozen=True)
class Record:
    """One figure, in % for accuracies; `ours` is None where there is none yet."""

    table: str
    row: str  # name of the run
    metric: str
    paper: float  # None where the paper has no figure
    paper_spread: float
    ours: float  # mean over seeds
    spread: float  # sample standard deviation over seeds, None below two
    seeds: tuple  # of int
    config: str  # with its overrides
    version: str  # of the program, the commit, the type of CPU or the device
    rounds: int  # that the runs have reached
    protocol_rounds: int
    state: str
    bits: tuple = ()  # bits.of_run() of each seed's run, or NO_BITS; empty where none is known
    core_hours: float = None  # of the rounds of all seeds
    parts: tuple = field(default=(), compare=False)  # records of each seed alone, where its file is here

    @property
    def difference(self):
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def key(self):
        """Records with one key are of the same row at the same round: of other seeds, or of another configuration."""
        return self.table, self.row, self.metric, self.rounds

    def is_of(self, row):
        """Whether the figure is of the row's present configuration. Beside the row's own overrides there may be keys of
        run: how it was run, as in run.rounds=100 or run.device=cuda."""
        words, own = set(self.config.split()), {row.config, *row.overrides}
        return own <= words and all(word.startswith("run.") for word in words - own)

    @property
    def protocol(self):
        return SEPARATOR.join([self.config, self.version, "seeds " + " ".join(map(str, self.seeds))])


def of_rows(work):
    """The records of all rows of a Reproduction, with a figure or without."""
    bits_of = functools.cache(bits.of_run)  # rows may share runs
    seeds = range(1, work.options.seeds + 1)
    return [_of_row(work, row, bits_of, [job for seed in seeds if (job := work.jobs.get((row.run_name, seed)))])
            for row in work.rows]


def _of_row(work, row, bits_of, jobs):
    states = [work.states[job.name] for job in jobs]
    finished = [(job, state.run) for job, state in zip(jobs, states) if state.kind == "finished"]
    # As in the CSV file: what is written, read and written again must not change.
    mean, spread = (None if value is None else round(value, 2) for value in paper_table.row_result(row, states)[:2])
    seeds = tuple(int(job.expected["run.seed"]) for job, _ in finished)
    rounds = min((_rounds_of(run) for _, run in finished), default=max(
        (len(state.run.rounds) for state in states if state.kind == "interrupted"), default=0))
    protocol = jobs[0].protocol_rounds if jobs else None
    # What the configuration was changed in: the row's own, and the rounds of --quick.
    shorter = [item for item in (jobs[0].overrides if jobs else ()) if item.startswith("run.rounds=")]
    config = " ".join([row.config, *dict.fromkeys([*row.overrides, *shorter])])
    state = _state(work, row, len(seeds), rounds, protocol)
    state += paper_table.lacking_text(row, states)
    state += paper_table.diverged_text(sum(map(paper_table.has_diverged, states)), len(seeds))
    # A GPU's bits are those of its libraries and of what ran beside it: nobody can have them again.
    names = tuple(bits_of(job.output) if _device(run) == "cpu" else NO_BITS for job, run in finished)
    names = names if set(names) != {NO_BITS} else ()
    return Record(row.table, row.run_name, row.measured, row.paper, row.spread, mean, spread, seeds, config,
                  version_of([run for _, run in finished]), rounds, protocol, state, names,
                  _core_hours([run for _, run in finished]),
                  tuple(_of_row(work, row, bits_of, [job]) for job, _ in finished) if len(jobs) > 1 else ())


def _rounds_of(run):
    """The rounds that a run has reached; all of them where it has diverged, since more would change nothing."""
    return int(run.config.get("run.rounds", len(run.rounds))) if run.status == DIVERGED else len(run.rounds)


def _diverged(record):
    """How many of its runs have diverged, as its state says."""
    found = re.search(r"; (\d+) of \d+ diverged$", record.state)
    return int(found[1]) if found else 0


def _core_hours(runs):
    """Hours that cores, or cards, were at work for all rounds of the runs; None where a file does not say them."""
    seconds = [_seconds_at_work(run) for run in runs]
    return round(sum(seconds) / 3600, 2) if seconds and None not in seconds else None


def _seconds_at_work(run):
    """Processor time of all rounds; on a GPU, and where rounds do not say it, wall time, times ranks."""
    told = run.rounds.get("seconds_cpu") if _device(run) == "cpu" else None
    if told is not None and told.notna().all():
        return float(told.sum())
    if "wall_seconds" not in run.rounds or not ranks_are_known(run) or not ranks_of_rounds(run).all():
        return None
    wall = run.rounds["wall_seconds"] * ranks_of_rounds(run)
    return float((wall if told is None else told.fillna(wall)).sum())


def _device(run):
    return run.attributes.get("device", "cpu")


def version_of(runs):
    """Version and commit of the program behind the runs, and the type of CPU or the device it ran on, each once."""
    names = ("fedhpc_version", "git_commit")
    told = []
    for run in runs:
        program = " ".join(str(run.attributes[name]) for name in names if name in run.attributes)
        place = _device(run) if _device(run) != "cpu" else run.attributes.get("processor")
        if program:
            told.append(program + (f" on {place}" if place else ""))
    return " + ".join(dict.fromkeys(told)) or UNKNOWN


def _state(work, row, done, rounds, protocol):
    if row.state == "waiting":
        return "later"
    if row.run_name in work.problems:
        return "failed"
    if done:
        return _reached(done, work.options.seeds, rounds, protocol)
    if work.missing_data(row):
        return "needs data"
    return "needs a GPU" if row.state == "gpu" and not work.options.gpu_rows else "pending"


def _reached(done, wanted, rounds, protocol):
    """The state of a figure over `done` of `wanted` seeds."""
    if protocol and rounds < protocol:
        return "quick"
    return "done" if done >= wanted else f"pending ({done} of {wanted} seeds)"


def total_hours(records):
    """Core hours of the runs behind the records, each run once: several records may be of one."""
    return sum({(record.row, record.rounds, record.seeds): record.core_hours or 0.0 for record in records}.values())


def write(path, records):
    """Writes the records as CSV; figures with two digits, as in the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    with open(draft, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for record in records:
            out.writerow([record.table, record.row, record.metric, _number(record.paper), _number(record.paper_spread),
                          _number(record.ours), _number(record.spread), len(record.seeds), _number(record.difference),
                          record.protocol, record.rounds, _number(record.protocol_rounds), record.state,
                          " ".join(record.bits), _number(record.core_hours)])
    draft.replace(path)


def _number(value):
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def read(path):
    """The records of a CSV file; none where there is no file."""
    path = Path(path)
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise PaperError(f"{path}: the columns must be {','.join(COLUMNS)}; reproduce.py --write-docs writes it")
        return [_record(values, f"{path}:{number}") for number, values in enumerate(reader, 2)]


def _record(values, where):
    try:
        figures = {name: float(values[name]) if values[name] else None
                   for name in ("paper", "paper_spread", "ours", "spread", "core_hours")}
        config, version, seeds = values["protocol"].split(SEPARATOR)
        record = Record(values["table"], values["row"], values["metric"], **figures,
                        seeds=tuple(map(int, seeds.removeprefix("seeds").split())), config=config, version=version,
                        rounds=int(values["rounds"]), protocol_rounds=int(values["protocol_rounds"] or 0) or None,
                        state=values["state"], bits=tuple(values["bits"].split()))
    except (ValueError, AttributeError, TypeError):
        raise PaperError(f'{where}: not a record: numbers, and "CONFIGURATION; VERSION; seeds 1 2 3" as the protocol, '
                         "are expected") from None
    if str(len(record.seeds)) != values["seeds"]:
        raise PaperError(f"{where}: {values['seeds']} seeds, but the protocol names {len(record.seeds)}")
    if record.bits and len(record.bits) != len(record.seeds):
        raise PaperError(f"{where}: bits of {len(record.bits)} runs, but {len(record.seeds)} seeds")
    return record


def merged(old, new, rows, wanted, tell=lambda sentence: None):
    """The records of `old` with those of `new` that have figures: in the order of the paper's rows.

    Where a new figure is of the row's present configuration, older ones of another go. Of records of one configuration,
    one whose seeds another has too goes; of two with the same seeds, the old one. Two without a common seed become one,
    whose state tells how many of `wanted` seeds it has. `tell` is told in a sentence what goes and is in no other record.
    """
    present = {(row.table, row.run_name, row.measured): row for row in rows}

    def is_present(record):
        row = present.get((record.table, record.row, record.metric))
        return row is not None and record.is_of(row)

    new = [_joined(_beyond(record, old, wanted), old, wanted) for record in new if record.ours is not None]
    outdated = [record for record in old if not is_present(record)
                and any(record.key == other.key and is_present(other) for other in new)]
    for record in outdated:
        tell(f"{_named(record)} is dropped: it is of {record.config}, which is not the row's configuration any more")
    kept = [record for record in old if record not in outdated
            and not any(_same(record, other) and set(record.seeds) <= set(other.seeds) for other in new)]
    added = []
    for record in new:
        whole = next((one for one in kept if _same(record, one) and set(record.seeds) < set(one.seeds)), None)
        if whole is None:
            added.append(record)
        elif not _is_part(record, whole):
            tell(f"{_named(record)}, run anew by {record.version}, is dropped: the record of seeds "
                 f"{' '.join(map(str, whole.seeds))} has it already")
    order = {(row.table, row.run_name, row.measured): place for place, row in enumerate(rows)}
    tables = list(dict.fromkeys([*(row.table for row in rows), *(record.table for record in old)]))
    before = {(record.key, record.seeds): place for place, record in enumerate(old)}

    def place(record):
        """By table; rows of the paper in its order, each with all its records, then the others as they stood."""
        own = order.get((record.table, record.row, record.metric), len(order))
        stood = before.get((record.key, record.seeds), len(old)) if own == len(order) else 0
        return tables.index(record.table), own, stood, record.rounds, record.seeds

    return sorted([*kept, *added], key=place)


def _same(record, other):
    """Whether two records are of the same row, rounds and configuration, however they were run."""
    first, second = ([word for word in one.config.split() if not word.startswith("run.")] for one in (record, other))
    return record.key == other.key and first == second


def _is_part(record, whole):
    """Whether the runs of a record are those that another of more seeds has: the same program's, with the same bits."""
    bits_of = dict(zip(whole.seeds, whole.bits))
    return (set(record.version.split(" + ")) <= set(whole.version.split(" + "))
            and all(NO_BITS in (name, bits_of.get(seed, NO_BITS)) or name == bits_of[seed]
                    for seed, name in zip(record.seeds, record.bits)))


def _named(record):
    seeds = f"seed{'s' if len(record.seeds) > 1 else ''} {' '.join(map(str, record.seeds))}"
    return f"{record.table} {record.row} {record.metric} at round {record.rounds}, {seeds}"


def _beyond(record, others, wanted):
    """The record without those of its seeds that another of the same thing has with further ones, and with their bits."""
    for other in others:
        common = set(other.seeds) & set(record.seeds)
        if (other.key, other.config) != (record.key, record.config) or len(common) in (0, len(other.seeds), len(record.seeds)):
            continue
        parts = [part for part in record.parts if not common & set(part.seeds)]
        again = [part for part in record.parts if common & set(part.seeds)]
        if parts and all(_is_part(part, other) for part in again) and all(part.ours is not None for part in parts):
            record = functools.reduce(lambda whole, part: _joined(part, [whole], wanted), parts)
    return record


def _joined(record, others, wanted):
    """The record over its own seeds and those of others of the same thing that have none of them.

    Figures have two digits, so that a mean may be off by .01. Where nothing says by what program a figure was made, its
    configuration may have been another one: it is left alone.
    """
    for other in others:
        if ((other.key, other.config) != (record.key, record.config) or other.ours is None
                or set(other.seeds) & set(record.seeds) or not (_says_program(other) and _says_program(record))):
            continue
        parts = [other, record]
        seeds = tuple(sorted(other.seeds + record.seeds))
        count = len(seeds)
        mean = sum(len(part.seeds) * part.ours for part in parts) / count
        squares = sum((len(part.seeds) - 1) * (part.spread or 0.0)**2 + len(part.seeds) * (part.ours - mean)**2
                      for part in parts)
        known = {seed: name for part in parts for seed, name in zip(part.seeds, part.bits)}
        hours = [part.core_hours for part in parts if part.core_hours is not None]
        versions = dict.fromkeys(name for part in parts for name in part.version.split(" + "))
        state = _reached(count, wanted, record.rounds, record.protocol_rounds)
        state += paper_table.diverged_text(_diverged(other) + _diverged(record), count)
        record = replace(record, ours=round(mean, 2), spread=round(math.sqrt(squares / (count - 1)), 2), seeds=seeds,
                         version=" + ".join(versions), state=record.state if record.state.startswith("failed") else state,
                         bits=tuple(known.get(seed, NO_BITS) for seed in seeds) if known else (),
                         core_hours=round(sum(hours), 2) if hours else None)
    return record


def _says_program(record):
    return record.version != UNKNOWN and not record.version.startswith("stated in ")


def _short(version):
    """Versions, and devices, without types of CPU, which the file of records names."""
    short = [one if one.endswith(" on cuda") else one.split(" on ")[0] for one in version.split(" + ")]
    return " + ".join(dict.fromkeys(short))


def table(records):
    """The records as a Markdown table, without padding: a changed figure changes one line."""
    lines = ["| table | row | metric | paper | ours | difference | rounds | seeds | version | state |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |"]
    for record in records:
        rounds = str(record.rounds)
        if record.protocol_rounds and record.rounds != record.protocol_rounds:
            rounds += f" of {record.protocol_rounds}"
        difference = "-" if record.difference is None else f"{record.difference:+.2f}"
        cells = [record.table, record.row, record.metric, paper_table.figure_text(record.paper, record.paper_spread),
                 paper_table.figure_text(record.ours, record.spread), difference, rounds,
                 " ".join(map(str, record.seeds)), _short(record.version), record.state]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
