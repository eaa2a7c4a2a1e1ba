"""Tests of what is known of the tables: listings of all papers, and records as CSV."""

import csv
import dataclasses
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduce_support import TOOLS, ReproduceCase  # noqa: E402

from fedhpc.tools import data_files, fetch_data, paper_record, paper_table  # noqa: E402
from fedhpc.tools.paper_record import Record  # noqa: E402
from fedhpc.tools.paper_table import PaperError  # noqa: E402

ROOT = TOOLS.parent
PAPERS = sorted(path.stem for path in (TOOLS / "papers").glob("*.csv"))


def record(row="good", seeds=(1,), rounds=20, ours=90.0, table="I", **more):
    values = {"table": table, "row": row, "metric": "global_accuracy", "paper": 88.0, "paper_spread": 0.1, "ours": ours,
              "spread": None, "seeds": seeds, "config": f"{row}.ini", "version": "0.0.1 c0ffee", "rounds": rounds,
              "protocol_rounds": 20, "state": "done"}
    return Record(**{**values, **more})


class Listing(ReproduceCase):
    def listed(self, *arguments):
        """(method, state) of every row, and the lines below the table."""
        done = self.of_all("--list", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        table, _, summary = done.stdout.partition("\n\n")
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
        return {(line[0], line[3]): line[-1] for line in cells}, summary.splitlines()

    def test_states_of_all_papers(self):
        self.paper("good", rounds=400, name="b")
        self.paper("slow", "fail", rounds=400, state="gpu", name="a")
        self.paper("typo", state="waiting", name="c")
        self.paper("good", data="svhn", state="gpu", name="d")
        self.assertEqual(self.listed(), ({
            ("a", "slow"): "needs a GPU", ("a", "fail"): "needs a GPU", ("b", "good"): "pending",
            ("c", "typo"): "later (not in the simulator yet)",
            ("d", "good"): "needs data (svhn: no folder of data, set --data or FEDHPC_DATA; and a GPU)"},
            ["a: 2 rows, 0 % done: 2 needs a GPU", "b: 1 rows, 0 % done: 1 pending", "c: 1 rows, 0 % done: 1 later",
             "d: 1 rows, 0 % done: 1 needs data"]))
        self.assertEqual(self.listed(), self.listed())
        states, summary = self.listed("--gpu-rows", "--only", "slow")
        self.assertEqual(states, {("a", "slow"): "pending"})
        self.assertEqual(summary[0], "a: 2 rows, 0 % done: 2 pending")
        named = self.command("--list")
        named[2] = "all"
        self.assertEqual(self.of_all("--list").stdout, self.run_command(named).stdout)

    def test_from_pending_over_quick_to_done(self):
        self.paper("good", rounds=120)
        self.call("--quick")
        self.assertEqual(self.listed()[0], {("toy", "good"): "quick (100 of 120 rounds)"})
        self.call("--seeds", "1")
        self.assertEqual(self.listed("--seeds", "2")[0], {("toy", "good"): "pending (1 of 2 seeds)"})
        self.assertEqual(self.listed("--seeds", "1")[0], {("toy", "good"): "done (1 of 1 seeds)"})
        self.assertEqual(self.call("--list", "--seeds", "1").stdout.splitlines()[-1], "toy: 1 rows, 100 % done: 1 done")
        self.paper("good", rounds=130)
        self.assertIn("outdated: the result has run.rounds=120, not 130", self.listed("--seeds", "1")[0]["toy", "good"])

    def test_what_is_recorded_counts_where_result_files_are_gone(self):
        self.paper("good", "fail", rounds=20)
        path = self.folder / "results" / "papers" / "toy.csv"
        paper_record.write(path, [record(seeds=(1, 2, 3)), record("fail", rounds=7)])
        self.assertEqual(self.listed()[0], {("toy", "good"): "done (recorded, 3 seeds)",
                                            ("toy", "fail"): "quick (recorded, 7 of 20 rounds)"})
        self.assertEqual(self.listed("--seeds", "4")[0]["toy", "good"], "pending (recorded, 3 of 4 seeds)")
        self.assertEqual(self.listed()[1], ["toy: 2 rows, 50 % done: 1 done, 1 quick; 2 of them known from records only"])
        paper_record.write(path, [record(seeds=(1, 2, 3), config="good.ini train.lr=1")])
        self.assertEqual(self.listed()[0]["toy", "good"], "pending (a record is of another configuration)")
        self.assertNotIn("90.00", self.call("--list").stdout)
        paper_record.write(path, [record(seeds=(1, 2, 3))])
        self.assertIn("90.00", self.call("--list").stdout)
        self.assertIn("pending (0 of 3 seeds)", self.call("--list").stdout)  # that they ran makes no result file

    def test_rows_whose_data_is_missing_are_left_out(self):
        self.paper("good", data="svhn")
        done = self.call("--seeds", "1", "--data", str(self.folder))
        self.assertEqual((done.returncode, self.calls()), (0, []))
        self.assertIn(f"needs data: svhn: no svhn/train_32x32.mat below {self.folder}, "
                      "tools/fetch_data.py svhn gets it", done.stdout)
        (self.folder / "svhn").mkdir()
        for name in ("train_32x32.mat", "test_32x32.mat"):
            (self.folder / "svhn" / name).touch()
        self.assertIn("finished", self.call("--seeds", "1", "--data", str(self.folder)).stdout)

    def test_a_paper_has_to_be_named_for_runs(self):
        self.paper("good")
        for arguments in ((), ("--background",), ("--slurm",), ("--stop",)):
            done = self.of_all(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("name a paper of toy; all of them go with --list", done.stderr)
        self.assertIn("no tables of a paper other; there are toy",
                      self.run_command([*self.command()[:2], "other", "--list"]).stderr)
        self.assertEqual(self.of_all("--status").returncode, 0)


class DataFiles(unittest.TestCase):
    def test_every_published_data_set_is_known_by_its_files(self):
        for dataset, collection in fetch_data.COLLECTIONS.items():
            with tempfile.TemporaryDirectory() as folder:
                _, names = data_files.names(dataset)
                self.assertTrue(names, dataset)
                (Path(folder) / collection.folder).mkdir()
                for place, name in enumerate(names):  # packed or not, in the folder or beside it
                    self.assertIn(name, data_files.missing(dataset, folder))
                    where = (collection.folder, "")[place % 2]
                    (Path(folder) / where / (name + data_files.PACKINGS[place % 3])).touch()
                self.assertEqual(data_files.missing(dataset, folder), "")
        self.assertEqual(data_files.missing("synthetic", None), "")
        self.assertIn("set --data or FEDHPC_DATA", data_files.missing("mnist", None))


class Records(unittest.TestCase):
    def test_writing_and_reading(self):
        records = [record(), record("fail", (1, 2, 3), ours=89.65, spread=0.07),
                   record("x", (), 0, None, version="a, b"), record("y", paper=None, paper_spread=None),
                   record("z", (1, 2), bits=("0123456789ab", "0123456789ac"), core_hours=1.25)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "new" / "toy.csv"
            paper_record.write(path, records)
            text = path.read_text()
            self.assertEqual(paper_record.read(path), records)
            paper_record.write(path, paper_record.read(path))
            self.assertEqual(path.read_text(), text)
            with open(path, newline="") as file:
                line = list(csv.DictReader(file))[1]
            self.assertEqual((line["difference"], line["seeds"], line["protocol"], line["spread"]),
                             ("1.65", "3", "fail.ini; 0.0.1 c0ffee; seeds 1 2 3", "0.07"))
            for old, new, message in (("seeds 1 2 3", "seeds 1 2", "3 seeds, but the protocol names 2"),
                                      ("89.65", "many", "not a record"), ("; seeds", " seeds", "not a record"),
                                      ("0123456789ac", "", "bits of 1 runs, but 2 seeds"),
                                      ("protocol_rounds", "rest", "the columns must be")):
                path.write_text(text.replace(old, new))
                with self.assertRaisesRegex(PaperError, message):
                    paper_record.read(path)
            self.assertEqual(paper_record.read(Path(folder) / "none.csv"), [])

    def test_new_figures_take_the_place_of_old_ones(self):
        def seeds(old, new):
            return [(r.seeds, r.ours) for r in paper_record.merged(old, new, [], 3)]
        one, other, three = record(ours=1.0), record(ours=2.0), record(seeds=(1, 2, 3), ours=3.0)
        self.assertEqual(seeds([one], [other]), [((1,), 2.0)])
        self.assertEqual(seeds([one], [three]), [((1, 2, 3), 3.0)])
        self.assertEqual(seeds([three], [one]), [((1, 2, 3), 3.0)])
        self.assertEqual(seeds([one], [record(ours=None, seeds=())]), [((1,), 1.0)])
        self.assertEqual(seeds([one], [record(rounds=7, ours=7.0)]), [((1,), 1.0), ((1,), 7.0)])

    def test_the_rows_present_configuration_wins_over_more_seeds_of_another(self):
        row = paper_table.read_rows(TOOLS / "papers" / "tdpfed.csv")[0]
        row = dataclasses.replace(row, config="good.ini", overrides=("train.lr=2",), variant="")
        named = {"row": row.run_name, "metric": row.measured, "table": row.table}
        was = record(seeds=(1, 2, 3), config="good.ini train.lr=1", **named)
        now = record(config="good.ini train.lr=2 run.device=cuda", **named)
        said = []
        self.assertEqual(paper_record.merged([was], [now], [row], 3, said.append), [now])
        self.assertEqual(said, [f"{row.table} good {row.measured} at round 20, seeds 1 2 3 is dropped: it is of good.ini "
                                "train.lr=1, which is not the row's configuration any more"])
        shorter = dataclasses.replace(was, rounds=7)
        self.assertCountEqual(paper_record.merged([shorter], [now], [row], 3), [shorter, now])
        self.assertEqual(paper_record.merged([was], [], [row], 3), [was])
        more = dataclasses.replace(was, config="good.ini train.lr=2 algorithm.mu=1")
        self.assertEqual([one.is_of(row) for one in (now, was, more)], [True, False, False])

    def test_a_seed_that_was_run_anew_beside_more_is_told_of(self):
        whole = record(seeds=(1, 2, 3), bits=("aaaa", "bbbb", "cccc"))
        said = []

        def merged(new):
            said.clear()
            return paper_record.merged([whole], [new], [], 3, said.append)
        self.assertEqual((merged(record(bits=("aaaa",))), said), ([whole], []))
        self.assertEqual((merged(record()), said), ([whole], []))
        for new, version in ((record(bits=("dddd",)), "0.0.1 c0ffee"), (record(version="0.0.2 beef"), "0.0.2 beef")):
            self.assertEqual((merged(new), said), ([whole], [
                f"I good global_accuracy at round 20, seed 1, run anew by {version}, is dropped: the record of seeds 1 2 3 "
                "has it already"]))

    def test_figures_of_other_seeds_are_joined(self):
        """As one call over all seeds would have them: the others' result files may be on another machine."""
        accuracies, bits = {1: 90.0, 2: 91.0, 3: 95.0}, {1: "aaaa", 2: "bbbb", 3: "cccc"}

        def of(*seeds, **more):
            figures = [accuracies[seed] for seed in seeds]
            spread = round(statistics.stdev(figures), 2) if len(seeds) > 1 else None
            return record(seeds=seeds, ours=round(statistics.fmean(figures), 2), spread=spread,
                          **{"core_hours": float(len(seeds)), "bits": tuple(bits[seed] for seed in seeds),
                             "version": f"of {seeds[0]}", "state": f"pending ({len(seeds)} of 3 seeds)", **more})

        def joined(old, new):
            return paper_record.merged([old], [new], [], 3)
        self.assertEqual(joined(of(2), of(1, 3)), [of(1, 2, 3, version="of 2 + of 1", state="done")])
        self.assertEqual(joined(of(1), of(3)), [of(1, 3, version="of 1 + of 3")])
        self.assertEqual(joined(of(1, bits=()), of(3))[0].bits, ("-", "cccc"))
        self.assertEqual(joined(of(1, bits=()), of(3, bits=()))[0].bits, ())
        hours = [joined(of(1, core_hours=own), of(3, core_hours=None))[0].core_hours for own in (None, 2.0)]
        self.assertEqual(hours, [None, 2.0])
        self.assertEqual(joined(of(1), of(3, state="failed"))[0].state, "failed")
        every = paper_record.merged([of(1), of(2)], [of(3)], [], 3)
        self.assertEqual([(r.seeds, r.ours, r.spread, r.state) for r in every], [((1, 2, 3), 92.0, 2.65, "done")])
        self.assertEqual(joined(of(1, rounds=7), of(3, rounds=7))[0].state, "quick")
        apart = (of(1), of(3, version="stated in c0ffee")), (of(1, version=paper_record.UNKNOWN), of(3)), \
            (of(1), of(3, rounds=7)), (of(1), of(3, config="other.ini")), (of(1, 2), of(2, 3))
        for old, new in apart:
            self.assertCountEqual(joined(old, new), [old, new])
        # Of seed 1 there is the record alone, of 2 a file, which the record has, and of 3 a new one.
        here = of(2, 3, version="of 1", parts=(of(2, version="of 1"), of(3, version="of 1")))
        self.assertEqual(joined(of(1, 2), here), [of(1, 2, 3, version="of 1", state="done", core_hours=3.0)])
        moved = (of(2, version="of 1", bits=("dddd",)), here.parts[1]), (of(2, version="other"), here.parts[1])
        for parts in moved:
            other = dataclasses.replace(here, parts=parts)
            self.assertCountEqual(joined(of(1, 2), other), [of(1, 2), other])

    def test_order_is_that_of_the_papers_rows(self):
        rows = paper_table.read_rows(TOOLS / "papers" / "tdpfed.csv")
        records = [record(row.run_name, metric=row.measured, table=row.table) for row in rows]
        variant = dataclasses.replace(records[0], row=records[0].row + "_other")
        merged = paper_record.merged([variant, *reversed(records)], [], rows, 3)
        tables = [r.table for r in merged]
        self.assertEqual(tables, sorted(tables))
        first = [r for r in merged if r.table == "II"]
        self.assertEqual(first, [*(r for r in records if r.table == "II"), variant])

    def test_recorded_rows_are_the_papers(self):
        """A record of a paper's row has its figure and its configuration; the others are variants of a run."""
        for paper in PAPERS:
            rows = {(row.table, row.run_name, row.measured): row
                    for row in paper_table.read_rows(TOOLS / "papers" / f"{paper}.csv")}
            names = {row.config for row in rows.values()}
            for one in paper_record.read(ROOT / "results" / "papers" / f"{paper}.csv"):
                row = rows.get((one.table, one.row, one.metric))
                config = one.config.split()
                self.assertIn(config[0], names, one)
                self.assertTrue(one.ours is not None and one.seeds and one.rounds <= one.protocol_rounds, one)
                self.assertEqual(f"run.rounds={one.rounds}" in config, one.rounds < one.protocol_rounds or
                                 row is not None and f"run.rounds={one.rounds}" in row.overrides or
                                 "steps10" in one.row, one)
                if row:
                    self.assertEqual((one.paper, one.paper_spread), (row.paper, row.spread), one)
                    self.assertEqual(config[:1 + len(row.overrides)], [row.config, *row.overrides], one)

    def test_only_the_figures_that_the_repository_carries_are_under_version_control(self):
        def ignored(name):
            return subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT).returncode == 0
        if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode:
            self.skipTest("not a git repository")
        for name in ("README.md", "papers/toy.csv", "figures/a.png"):
            self.assertFalse(ignored(f"results/{name}"), name)
        for name in ("a.h5", "a.png", "papers/toy/a.h5", "papers/toy/table.csv", "papers/a.h5", "figures/a.h5"):
            self.assertTrue(ignored(f"results/{name}"), name)


class WrittenRecords(ReproduceCase):
    def test_runs_that_have_diverged_are_told_of_and_ranks_of_each_round_count(self):
        self.paper("good", rounds=20)
        self.call("--seeds", "2")
        first, second = (self.results / f"good_seed{seed}.h5" for seed in (1, 2))
        with h5py.File(first, "r+") as file:
            file.attrs["status"] = "diverged"
            for name in [*file["rounds"]]:
                values = file["rounds"][name][:10]
                del file["rounds"][name]
                file["rounds"][name] = values
        with h5py.File(second, "r+") as file:  # 15 rounds on 4 ranks, the last 5 on one
            file["starts/first_round"], file["starts/ranks"] = [1, 16], [4, 1]
        done = self.call("--seeds", "2").stdout
        self.assertIn("| finished (2 seeds); 1 of 2 diverged |", done)
        good = paper_record.read(self.results / "table.csv")[0]
        self.assertEqual((good.state, good.rounds, good.seeds), ("done; 1 of 2 diverged", 20, (1, 2)))
        self.assertEqual(good.core_hours, round((10 * 3 + 2 + 4 * (15 * 3 + 3) + 5 * 3 + 1) / 3600, 2))
        self.assertIn("done (2 of 2 seeds; 1 of 2 diverged)", self.of_all("--list", "--seeds", "2").stdout)
        other = dataclasses.replace(good, seeds=(3,), bits=good.bits[:1], state="done")
        self.assertEqual(paper_record.merged([good], [other], [], 3)[0].state, "done; 1 of 3 diverged")
        with h5py.File(second, "r+") as file:
            del file["starts"]
            file.attrs["command_line"] = "fedhpc run a.ini; fedhpc resume a.h5"
        self.call("--seeds", "2")
        self.assertIsNone(paper_record.read(self.results / "table.csv")[0].core_hours)

    def test_processor_time_counts_where_rounds_tell_it(self):
        self.paper("good", rounds=20)
        self.call("--seeds", "1")
        path = self.results / "good_seed1.h5"
        for first, told in ((0, 20 * 9.0), (5, 5 * 3 + 1 + 15 * 9.0)):  # of a resumed run rounds 1 to 5 do not say it
            with h5py.File(path, "r+") as file:
                if "seconds_cpu" in file["rounds"]:
                    del file["rounds/seconds_cpu"]
                file["rounds/seconds_cpu"] = np.where(np.arange(20) < first, np.nan, 9.0)
            self.call("--seeds", "1")
            self.assertEqual(paper_record.read(self.results / "table.csv")[0].core_hours, round(told / 3600, 2))
        with h5py.File(path, "r+") as file:
            file.attrs["device"] = "cuda"
        self.call("--seeds", "1")
        wall = 20 * 3 + 4  # of a card, whose host computes little
        self.assertEqual(paper_record.read(self.results / "table.csv")[0].core_hours, round(wall / 3600, 2))

    def test_seeds_without_a_value_leave_the_row_without_a_figure(self):
        self.paper("good", rounds=20)
        for lacking, words in ((1, "no global_accuracy of 1 of 2 seeds"), (2, "global_accuracy was never evaluated")):
            self.call("--seeds", "2")
            with h5py.File(self.results / f"good_seed{lacking}.h5", "r+") as file:
                file["rounds/global_accuracy"][...] = float("nan")
            self.assertIn(f"| -    | -          | finished (2 seeds); {words} |", self.call("--seeds", "2").stdout)
            good = paper_record.read(self.results / "table.csv")[0]
            self.assertEqual((good.ours, good.state), (None, f"done; {words}"))

    def test_table_csv_of_all_rows(self):
        self.paper("good", "fail", rounds=120)
        self.call("--quick")
        records = paper_record.read(self.results / "table.csv")
        self.assertEqual([(r.row, r.state, r.rounds, r.protocol_rounds, r.seeds) for r in records],
                         [("good", "quick", 100, 120, (1,)), ("fail", "failed", 0, 120, ())])
        good = records[0]  # at round 100: 0.9 + 0.001 - 0.001
        self.assertEqual((good.paper, good.paper_spread, good.ours, good.spread, good.config, good.version),
                         (88.0, 0.1, 90.0, None, "good.ini run.rounds=100", "0.0.1 c0ffee"))
        self.call("--seeds", "2", "--only", "good")
        good = paper_record.read(self.results / "table.csv")[0]
        self.assertEqual((good.ours, good.spread, good.seeds, good.rounds, good.state, good.config),
                         (90.07, 0.07, (1, 2), 120, "done", "good.ini"))
        self.assertEqual(good.core_hours, round(2 * (120 * 3 + 24) / 3600, 2))
        self.assertEqual(len(set(good.bits)), 2)

    def test_a_page_names_versions_and_not_types_of_cpu(self):
        version = "0.1.0 c0ffee on CPU, family 6 + 0.1.0 c0ffee on CPU, family 7 + 0.1.0 beef on cuda"
        self.assertIn("| 0.1.0 c0ffee + 0.1.0 beef on cuda | done |", paper_record.table([record(version=version, state="done")]))

    def test_a_record_says_where_it_was_not_a_cpu(self):
        self.paper("good", rounds=20)
        config = self.folder / "configs/papers/toy/good.ini"
        config.write_text(config.read_text().replace("[run]\n", "[run]\ndevice=cuda\n"))
        self.call("--seeds", "1")
        record = paper_record.read(self.results / "table.csv")[0]
        self.assertEqual((record.version, record.bits), ("0.0.1 c0ffee on cuda", ()))

    def test_only_what_no_record_has_is_run(self):
        self.paper("good", "fedavg", rounds=20)
        self.call("--seeds", "1")
        kept = self.folder / "results" / "papers" / "toy.csv"
        known = [r for r in paper_record.read(self.results / "table.csv") if r.row == "good"]
        paper_record.write(kept, [dataclasses.replace(record, seeds=(2,)) for record in known])
        for path in self.results.glob("*.h5"):
            path.unlink()
        names = self.call("--slurm", "--missing", "--seeds", "2").stdout
        self.assertIn("runs=(good_seed1 fedavg_seed1 fedavg_seed2)", names)
        calls = len(self.calls())
        self.assertEqual(self.call("--missing", "--seeds", "2").returncode, 0)
        self.assertEqual(len(self.calls()), calls + 3)
        # A record of fewer rounds is none.
        paper_record.write(kept, [dataclasses.replace(record, seeds=(2,), rounds=5) for record in known])
        self.assertIn("runs=(good_seed2)", self.call("--slurm", "--missing", "--seeds", "2").stdout)

    def test_recorded_rows_are_run_again(self):
        self.variables["FAKE_PROCESSOR"] = "Abacus, model 1"
        self.paper("good", "slow", rounds=20)
        self.call("--seeds", "2", "--only", "good")
        (good,) = (r for r in paper_record.read(self.results / "table.csv") if r.row == "good")
        kept = self.folder / "results" / "papers" / "toy.csv"
        paper_record.write(kept, [good])
        calls = len(self.calls())
        done = self.call("--again")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for seed in (1, 2):
            self.assertIn(f"good_seed{seed}: the recorded bits\n", done.stdout)
        self.assertEqual(len(self.calls()), calls + 2)  # no third seed, and nothing that is not recorded
        self.assertTrue((self.results / "again" / "good_seed1.h5").exists())
        # Of rows that are not asked for nothing is compared.
        other = dataclasses.replace(good, table="II", row="slow", config="slow.ini")
        paper_record.write(kept, [good, other])
        done = self.call("--again", "--only", "good")
        self.assertEqual((done.returncode, "slow" in done.stdout.partition("\n\n")[0]), (0, False), done.stdout)
        paper_record.write(kept, [dataclasses.replace(good, bits=(good.bits[0], "0123456789ab"))])
        done = self.call("--again")
        self.assertEqual(done.returncode, 1)
        program = "by 0.0.1 c0ffee on Abacus, model 1"
        self.assertIn(f"good_seed1: the recorded bits\ngood_seed2: recorded 0123456789ab {program}, now "
                      f"{good.bits[1]} {program}\n", done.stdout)
        self.assertIn("of no selected row the bits are recorded", self.call("--again", "--only", "slow").stderr)
        # Bits of a configuration that the row had before are none of its.
        before = dataclasses.replace(good, config="good.ini train.lr=7", bits=("0123456789ab",) * 2)
        paper_record.write(kept, [good, before])
        done = self.call("--again")
        self.assertEqual((done.returncode, "0123456789ab" in done.stdout), (0, False), done.stdout)


if __name__ == "__main__":
    unittest.main()
