"""How far the rows of the papers' tables are.

done         a figure of all rounds and seeds
quick        a figure of fewer rounds than the configuration's only
pending      runs with the next call
needs data   the data set's files are not below data.dir
needs a GPU  would take days without one; --gpu-rows runs it all the same
later        the simulator lacks the method
unusable     its configuration is missing or malformed

A figure comes from result files, or from results/papers/PAPER.csv where these are gone ("recorded").
"""

from collections import Counter

from . import paper_record, paper_table
from .project import ROOT
from .reproduction import Reproduction, rows_of

STATES = ("done", "quick", "pending", "needs data", "needs a GPU", "later", "unusable")


def seeds_text(done, wanted):
    return f"{done} of {wanted} seeds"


class PaperState:
    """The rows of a paper with their full and their quick runs, and what is recorded of them."""

    def __init__(self, options, paper):
        rows = rows_of(paper)
        settings = {**vars(options), "paper": paper, "output_dir": options.papers_dir / paper}
        self.paper, self.rows, self.seeds = paper, rows, options.seeds
        self.full = Reproduction(type(options)(**{**settings, "quick": False}), rows, rows)
        sound = [row for row in rows if row.run_name not in self.full.problems]
        self.quick = Reproduction(type(options)(**{**settings, "quick": True}), sound, sound)
        self.recorded = {}  # by (run name, metric): its records
        for record in paper_record.read(ROOT / "results" / "papers" / f"{paper}.csv"):
            self.recorded.setdefault((record.row, record.metric), []).append(record)

    def of(self, row):
        """(state, note) of a row."""
        if row.state == "waiting":
            return "later", "not in the simulator yet"
        if row.run_name in self.full.problems:
            return "unusable", self.full.problems[row.run_name]
        states = self.full.row_states(row)
        done = sum(state.kind == "finished" for state in states)
        if done == len(states):
            diverged = paper_table.diverged_text(sum(map(paper_table.has_diverged, states)), done)
            return "done", seeds_text(done, self.seeds) + diverged
        notes = [seeds_text(done, self.seeds)] if done else []
        notes += [f"interrupted {state.detail}" for state in states if state.kind == "interrupted"][:1]
        notes += [f"{state.kind}: {state.detail}" for state in states if state.kind == "outdated"][:1]
        known = self.recorded.get((row.run_name, row.measured), [])
        records = [record for record in known if record.is_of(row)]
        if len(records) < len(known):
            notes.append("a record is of another configuration")
        most = max((len(record.seeds) for record in records if record.rounds >= record.protocol_rounds), default=0)
        if most >= self.seeds:
            return "done", "; ".join([f"recorded, {most} seeds", *notes])
        if most and not done:
            notes.insert(0, f"recorded, {seeds_text(most, self.seeds)}")
        if not done and not most and (short := self._short(row, records)):
            return "quick", "; ".join([short, *notes])
        if lacking := self.full.missing_data(row):
            return "needs data", "; ".join([*notes, lacking, *(["and a GPU"] if row.state == "gpu" else [])])
        if row.state == "gpu" and not self.full.options.gpu_rows:
            return "needs a GPU", "; ".join(notes)
        return "pending", "; ".join(notes)

    def _short(self, row, records):
        """The longest run there is of fewer rounds than the row's, in words; "" without one."""
        runs = [(len(state.run.rounds), "") for state in self.quick.row_states(row) if state.kind == "finished"]
        runs += [(record.rounds, "recorded, ") for record in records]
        if not runs:
            return ""
        rounds, source = max(runs, key=lambda run: run[0])
        return f"{source}{rounds} of {self.full.jobs[row.run_name, 1].protocol_rounds} rounds"

    def summary(self):
        """How many rows are in which state, in one line."""
        of_rows = [self.of(row) for row in self.rows]
        counts = Counter(state for state, _ in of_rows)
        recorded = sum(note.startswith("recorded") for _, note in of_rows)
        share = 100 * counts["done"] / max(len(self.rows), 1)
        return f"{self.paper}: {len(self.rows)} rows, {share:.0f} % done: " + ", ".join(
            f"{counts[state]} {state}" for state in STATES if counts[state]) + (
                f"; {recorded} of them known from records only" if recorded else "")

    def lines(self):
        """The cells of all rows: paper, table, data, method, metric, paper's figure, configuration, state."""
        lines = []
        for row in self.rows:
            state, note = self.of(row)
            lines.append([self.paper, row.table, f"{row.dataset} {row.setting}", f"{row.method} {row.variant}".strip(),
                          row.measured, paper_table.figure_text(row.paper, row.spread),
                          " ".join([row.config, *row.overrides]), (f"{state} ({note})" if note else state)])
        return lines


HEAD = ["paper", "table", "data", "method", "metric", "figure", "configuration", "state"]


def listing(options, papers):
    """Every row of the papers with its configuration and state, and a line of counts for each paper."""
    states = [PaperState(options, paper) for paper in papers]
    lines = [HEAD, *(line for state in states for line in state.lines())]
    wanted = [HEAD, *(line for line in lines[1:] if options.only in " ".join(line))]
    cells = [[cell.replace("|", "/") for cell in line] for line in wanted]
    return paper_table.aligned(cells) + "\n" + "\n".join(state.summary() for state in states) + "\n"
