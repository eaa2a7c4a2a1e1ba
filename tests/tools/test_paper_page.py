"""Tests of the papers' pages: machine-made tables and figures, and that the repository's pages show its records."""

import dataclasses
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduce_support import TOOLS, ReproduceCase  # noqa: E402

from fedhpc.tools import paper_page, paper_record, paper_table  # noqa: E402
from fedhpc.tools.paper_record import Record  # noqa: E402
from fedhpc.tools.paper_table import PaperError, Row  # noqa: E402

ROOT = TOOLS.parent
PAPERS = sorted(path.stem for path in (TOOLS / "papers").glob("*.csv"))
MARKS = {name: f"<!-- {name} begin -->\n<!-- {name} end -->" for name in ("overview toy", "table toy", "shares")}
PAGE = f"# Page\n\n{MARKS['overview toy']}\n\nby hand | {{}}\n\n{MARKS['table toy']}\nby hand too\n"


def row(method, paper=88.0, metric="global_accuracy", table="I", setting="s"):
    return Row(table, "toy", setting, method, "", f"{method}.ini", (), metric, paper, 0.1, "last", "ready")


def record(name, ours=90.0, rounds=20, seeds=(1,), table="I", paper=88.0, metric="global_accuracy"):
    return Record(table, name, metric, paper, 0.1, ours, None, seeds, f"{name}.ini", "0.0.1 c0ffee", rounds, 20, "done")


def page(records, rows=(), text=PAGE):
    rows = list(rows)
    return paper_page.page(text, "toy", records, paper_page.comparisons(rows, records, 3))


class Comparisons(unittest.TestCase):
    def test_rank_correlation(self):
        for first, second, expected in (((1, 2, 3), (5, 6, 9), 1.0), ((1, 2, 3), (3, 2, 1), -1.0),
                                        ((1, 2, 3, 4), (2, 1, 4, 3), 0.6), ((1, 1, 2), (1, 2, 3), 0.75**0.5)):
            self.assertAlmostEqual(paper_page.rank_correlation(first, second), expected, 12)
        for first, second in (((), ()), ((1, 2), (1, 2)), ((1, 1, 1), (1, 2, 3))):
            self.assertIsNone(paper_page.rank_correlation(first, second))

    def test_a_row_has_the_figure_of_its_longest_runs(self):
        rows = [row("a"), row("b"), row("c"), row("d")]
        records = [record("a", 80.0, 7), record("a", 81.0, 20, (1, 2, 3)), record("a", 82.0, 20), record("b", 83.0, 7),
                   record("c", 84.0, 20), record("other", 1.0)]
        (group,) = paper_page.comparisons(rows, records, 3)
        self.assertEqual([(point.ours, point.kind) for point in group.points],
                         [(81.0, "done"), (83.0, "fewer rounds"), (84.0, "fewer seeds"), (None, "no figure")])
        self.assertEqual(paper_page.counts_of([group]), [1, 1, 1, 1])
        self.assertEqual([point.full for point in group.drawn], [True, False, True])

    def test_the_figure_has_what_can_be_compared(self):
        def drawn(*rows_and_records):
            rows, records = zip(*rows_and_records)
            (group,) = paper_page.comparisons(rows, records, 3)
            return [group.name_of(point) for point in group.drawn]
        self.assertEqual(drawn((row("a"), record("a")), (row("b"), record("b")), (row("c", None), record("c"))),
                         ["a", "b"])
        self.assertEqual(drawn((row("a", None), record("a")), (row("b", None), record("b"))), ["a", "b"])
        self.assertEqual(drawn((row("a"), record("a")), (row("b", None), record("b"))), [])  # one says nothing
        self.assertEqual(drawn((row("a", metric="bits"), record("a", metric="bits")), (row("b"), record("b")),
                               (row("c"), record("c"))), ["b", "c"])
        self.assertEqual(drawn((row("a"), record("a")), (row("a", metric="personal_accuracy"),
                                                         record("a", metric="personal_accuracy"))),
                         ["a, global", "a, personal"])


class Pages(unittest.TestCase):
    def test_parts_between_their_marks(self):
        rows = [row("a", 80.0), row("b", 85.0), row("c", 90.0), row("d", 91.0), row("e", table="II")]
        records = [record("a", 81.0, paper=80.0), record("b", 84.5, paper=85.0), record("c", 95.0, 7, paper=90.0)]
        once = page(records, rows)
        self.assertIn("| I | toy s | global | 4 | 0 | 2 | 1 | 1 | 3 | +1.00 | +1.83 | +5.00 |\n", once)
        self.assertNotIn("| II |", once)  # nothing was run
        self.assertIn("![Accuracies of the paper and ours](../images/reproduction_toy.png)", once)
        self.assertIn("3 of 5 rows have a figure", once)
        before = dataclasses.replace(records[0], config="a.ini train.lr=7")  # of what the row was before
        self.assertIn("2 of 5 rows have a figure", page([before, *records[1:]], rows))
        self.assertIn("| I | c | global_accuracy | 90.00 ± 0.10 | 95.00 | +5.00 | 7 of 20 | 1 | 0.0.1 c0ffee | done |\n",
                      once)
        self.assertEqual(page(records, rows, once), once)
        self.assertEqual(page(records[:1], rows, once), page(records[:1], rows))
        self.assertTrue(once.startswith("# Page\n\n<!-- overview"))
        self.assertIn("\n\nby hand | {}\n\n<!--", once)
        self.assertTrue(once.endswith("-->\nby hand too\n"))
        for mark in ("overview toy", "table toy"):
            for bad in ("", MARKS[mark] * 2, f"<!-- {mark} end --><!-- {mark} begin -->"):
                with self.assertRaisesRegex(PaperError, f"<!-- {mark} begin --> .*once each"):
                    page([], text=PAGE.replace(MARKS[mark], bad))

    def test_metrics_have_an_order_of_their_own(self):
        both = [(f"{name}", paper, ours, metric) for metric, figures in (
            ("global_accuracy", (("a", 1.0, 3.0), ("b", 2.0, 2.0), ("c", 3.0, 1.0))),
            ("personal_accuracy", (("a", 81.0, 83.0), ("b", 82.0, 82.0), ("c", 83.0, 81.0)))) for name, paper, ours in figures]
        rows = [row(name, paper, metric) for name, paper, _, metric in both]
        text = page([record(name, ours, paper=paper, metric=metric) for name, paper, ours, metric in both], rows)
        for metric in ("global", "personal"):  # together: a correlation of +0.54
            self.assertIn(f"| I | toy s | {metric} | 3 | 0 | 3 | 0 | 0 | 3 | -1.00 | +0.00 | ", text)

    def test_a_figure_says_what_it_shows(self):
        rows = [row("a"), row("b"), row("a", None, setting="t"), row("b", None, setting="t"), row("a", table="II"),
                row("b", table="II")]
        records = [record("a", 81.0), record("b", 84.0, 7), record("a", 70.0, table="II"),
                   record("b", 70.0, table="II")]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.png"
            self.assertEqual(paper_page.shown_by(path), "")
            for known in (records, records[:2]):
                groups = paper_page.comparisons(rows, known, 3)
                self.assertNotEqual(paper_page.shown_by(path), paper_page.digest(groups))
                paper_page.draw(groups, path)
                self.assertEqual(paper_page.shown_by(path), paper_page.digest(groups))

    def test_the_documentation_shows_what_the_repository_carries(self):
        folder, groups, hours = ROOT / "docs" / "reproduction", {}, {}
        writes = "tools/reproduce.py --write-docs writes it"
        for paper in PAPERS:
            records = paper_record.read(ROOT / "results" / "papers" / f"{paper}.csv")
            rows = paper_table.read_rows(TOOLS / "papers" / f"{paper}.csv")
            self.assertTrue(records, paper)
            groups[paper], hours[paper] = paper_page.comparisons(rows, records, 3), paper_record.total_hours(records)
            text = (folder / f"{paper}.md").read_text(encoding="utf-8")
            self.assertEqual(paper_page.page(text, paper, records, groups[paper]), text, f"{paper}: {writes}")
            self.assertEqual(paper_page.shown_by(ROOT / "docs" / "images" / f"reproduction_{paper}.png"),
                             paper_page.digest(groups[paper]), f"{paper}: {writes}")
            self.assertEqual(paper_record.merged(records, [], rows, 3), records)
            self.assertEqual(len({(r.key, r.seeds) for r in records}), len(records))
        text = (folder / "README.md").read_text(encoding="utf-8")
        self.assertEqual(paper_page.first_page(text, groups, hours), text, writes)


class WrittenPages(ReproduceCase):
    def setUp(self):
        super().setUp()
        pages = self.folder / "docs" / "reproduction"
        pages.mkdir(parents=True)
        (pages.parent / "images").mkdir()
        self.page, self.first, self.kept = pages / "toy.md", pages / "README.md", (
            self.folder / "results" / "papers" / "toy.csv")
        (self.folder / "CMakeLists.txt").touch()
        self.page.write_text(PAGE)
        self.first.write_text(MARKS["shares"])

    def test_finished_runs_go_into_the_records_and_the_pages(self):
        self.paper("good", "slow", rounds=120)
        paper_record.write(self.kept, [record("gone"), Record(**{
            **vars(record("good", 1.0, 100)), "protocol_rounds": 120})])
        self.call("--quick", "--only", "good")
        self.call("--seeds", "2", "--only", "good")
        done = self.of_all("--write-docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        records = paper_record.read(self.kept)
        self.assertEqual([(r.row, r.rounds, r.seeds, r.ours, r.state) for r in records],
                         [("good", 100, (1,), 90.0, "quick"), ("good", 120, (1, 2), 90.07, "pending (2 of 3 seeds)"),
                          ("gone", 20, (1,), 90.0, "done")])
        text = self.page.read_text()
        self.assertIn("1 of 2 rows have a figure", text)
        self.assertIn("| I | good | global_accuracy | 88.00 ± 0.10 | 90.07 ± 0.07 | +2.07 | 120 | 1 2 |", text)
        self.assertIn("| I | toy s | global | 2 | 0 | 1 | 0 | 1 | 1 | - | +2.07 | +2.07 |", text)
        self.assertIn("| [toy](toy.md) | 2 | 0 | 1 | 0 | 1 | 0 % | 0.3 |", self.first.read_text())
        kept = self.kept.read_text()
        self.assertNotIn(": written", self.of_all("--write-docs").stdout)
        self.assertEqual((self.page.read_text(), self.kept.read_text()), (text, kept))

    def test_without_a_page_nothing_is_written(self):
        self.paper("good")
        self.call("--seeds", "1")
        for spoil, message in ((lambda: self.page.write_text("by hand\n"), "<!-- overview toy begin -->"),
                               (self.page.unlink, "toy.md: no such page")):
            spoil()
            done = self.of_all("--write-docs")
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)
            self.assertFalse(self.kept.exists())

    def test_an_installation_is_not_written_into(self):
        self.paper("good")
        self.call("--seeds", "1")
        (self.folder / "CMakeLists.txt").unlink()
        done = self.of_all("--write-docs")
        self.assertEqual((done.returncode, self.kept.exists(), self.page.read_text()), (2, False, PAGE))
        self.assertIn("is an installation\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
