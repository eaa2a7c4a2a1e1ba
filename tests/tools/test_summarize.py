"""Tests of summarize.py: tables over seeds, costs to a target, scaling over ranks.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import contextlib
import csv
import io
import statistics
import struct
import unittest

import h5py
import numpy as np
from tool_support import Folder, add_clients, call, write_run

import fedhpc
from fedhpc.tools import labels, results, scaling, summarize, tables
from fedhpc.tools.statistics_of_seeds import best_and_last, first_at, smaller_is_better, to_target


def config(seed, **keys):
    lines = "".join(f"{key}={value}\n" for key, value in {"name": "fedavg", **keys}.items())
    return f"[run]\nseed={seed}\noutput=run{seed}.h5\n[data]\nname=mnist\nseed={seed}\n[algorithm]\n{lines}"


class Summarize(Folder):
    def seeds(self, accuracies, stem="a", **keys):
        """Runs of one configuration whose accuracy rises to these values in 40 rounds."""
        rising = np.linspace(0.025, 1.0, 40)
        return [write_run(self.folder / f"{stem}{seed}.h5", config=config(seed, **keys), global_accuracy=level * rising,
                          bytes_down_client_cloud=np.full(40, 300.0), simulated_seconds=np.full(40, 2.0))
                for seed, level in enumerate(accuracies, 1)]

    def table(self, *arguments):
        """Lines of the table as dictionaries, from the CSV."""
        code, out, error = call(summarize, *arguments, "--format", "csv")
        self.assertEqual((code, error), (0, ""))
        return list(csv.DictReader(io.StringIO(out)))

    def test_mean_and_sample_deviation(self):
        levels = (0.80, 0.86, 0.89)
        line, = self.table(*self.seeds(levels))
        self.assertEqual((line["seeds"], line["n"], line["status"], line["rounds"]), ("1-3", "3", "complete", "40"))
        self.assertAlmostEqual(float(line["best_mean"]), statistics.fmean(levels))
        self.assertAlmostEqual(float(line["last_std"]), statistics.stdev(levels))
        self.assertEqual((float(line["bytes_up_mean"]), float(line["bytes_down_mean"])), (4000.0, 12000.0))

    def test_checkpoints_beside_their_run_are_no_runs(self):
        paths = self.seeds([0.8, 0.9])
        checkpoints = [write_run(self.folder / f"a{seed}.ckpt.40.h5", config=config(seed)) for seed in (1, 2)]
        self.assertEqual(self.table(*paths, *checkpoints), self.table(*paths))
        self.assertEqual(self.table(checkpoints[0])[0]["n"], "1")  # alone it is looked at

    def test_best_of_an_accuracy_is_the_largest_of_a_loss_the_smallest(self):
        v = np.array([3.0, 1.0, 2.0, 5.0])
        run = results.load(write_run(self.folder / "run.h5", rounds=4, global_accuracy=v / 10, global_loss=v))
        self.assertEqual([s.values for s in best_and_last([run], "global_accuracy")], [(0.5,), (0.5,)])
        self.assertEqual([s.values for s in best_and_last([run], "global_loss")], [(1.0,), (5.0,)])
        run = results.load(write_run(self.folder / "run.h5", rounds=4, personal_accuracy_std=v / 10))
        self.assertEqual([s.values for s in best_and_last([run], "personal_accuracy_std")], [(0.1,), (0.5,)])

    def test_what_is_smaller_is_better_by_its_name(self):
        for word in ("loss", "perplexity", "rmse", "error", "residual", "gap", "distortion", "seconds", "bytes",
                     "bits", "passes"):
            for metric in (word, f"personal_{word}_std"):
                self.assertTrue(smaller_is_better(metric), metric)
        for metric in ("global_accuracy", "personal_accuracy_p10", "density", "effective_steps"):
            self.assertFalse(smaller_is_better(metric), metric)

    def test_validation_chooses_the_best_round(self):
        v = np.array([np.nan, 0.3, 0.5, 0.4])
        path = write_run(self.folder / "run.h5", rounds=4, global_accuracy=np.array([np.nan, 0.9, 0.7, 0.8]),
                         global_loss=1 - v, validation_global_accuracy=v, validation_global_loss=1 - v)
        run = results.load(path)
        best, last = best_and_last([run], "global_accuracy", "validation_global_accuracy")
        self.assertEqual((best.values, last.values), ((0.7,), (0.8,)))
        self.assertEqual(self.table(path, "--select", "validation")[0]["best_mean"], "0.7")
        self.assertEqual(self.table(path, "--select", "validation", "--metric", "global_loss")[0]["best_mean"], "0.5")
        self.assertEqual(self.table(path)[0]["best_mean"], "0.9")
        self.assertIn("best where validation_global_accuracy is", call(summarize, path, "--select", "validation")[1])
        other = write_run(self.folder / "other.h5", rounds=4, global_accuracy=v)
        code, _, error = call(summarize, path, other, "--select", "validation")
        self.assertEqual(code, 2)
        self.assertIn("other.h5: no validation_global_accuracy; --select validation needs data.validation_fraction",
                      error)

    def test_cost_to_a_target(self):
        runs = [results.load(path) for path in self.seeds((0.8, 1.0, 0.5))]
        self.assertEqual([first_at(run, "global_accuracy", 0.6) for run in runs], [29, 23, None])
        self.assertEqual(first_at(runs[0], "train_loss", 0.5), 3)  # 2 / t: a loss falls to its target
        cost = to_target(runs, "global_accuracy", 0.6)
        self.assertEqual((cost["rounds"].values, cost["rounds"].runs), ((30.0, 24.0), 3))
        self.assertEqual(cost["bytes"].values, (12000.0, 9600.0))
        self.assertEqual(cost["seconds"].values, (60.0, 48.0))
        self.assertEqual(cost["wall"].values, (15.0, 12.0))
        line, = self.table(self.folder, "--target", "60%")
        self.assertEqual((line["target_reached_by"], line["target_rounds_mean"]), ("2", "27"))
        code, out, _ = call(summarize, self.folder, "--target", "0.6")
        self.assertIn("27.0 ± 4.2 (2 of 3)", out)

    def test_seeds_of_unequal_length_are_seen(self):
        for seed, rounds in ((1, 40), (2, 31)):
            write_run(self.folder / f"{seed}.h5", rounds=rounds, config=config(seed))
        line, = self.table(self.folder)
        self.assertEqual((line["rounds_least"], line["rounds"]), ("31", "40"))
        self.assertIn(" 31-40 ", call(summarize, self.folder)[1])

    def test_a_mean_of_fewer_seeds_is_told(self):
        self.seeds((0.5, 0.6), "a")
        never = np.full(40, np.nan)
        lacking = write_run(self.folder / "b.h5", config=config(3), global_accuracy=never, global_loss=never,
                            status="diverged")
        said = (f"summarize: left out: {lacking}: no global_accuracy, so that a mean of its line is over 2 of 3 seeds "
                "(diverged)\n")
        for form in ("csv", "text"):
            self.assertEqual(call(summarize, self.folder, "--format", form)[2], said)
        with self.assertWarnsRegex(UserWarning, "b.h5: no global_accuracy, .* over 2 of 3 seeds"):
            self.assertAlmostEqual(fedhpc.load(self.folder).table().iloc[0]["last_mean"], 0.55)
        self.assertEqual(call(summarize, self.folder, "--metric", "train_loss")[2], "")

    def test_no_network_model(self):
        path = write_run(self.folder / "run.h5", config=config(1), simulated_seconds=np.full(40, np.nan))
        line, = self.table(path, "--target", "0.5")
        self.assertEqual((line["target_seconds_mean"], line["target_rounds_mean"]), ("", "10"))

    def test_lines_name_what_differs(self):
        self.seeds((0.5, 0.6), "a", mu=1)
        self.seeds((0.7,), "b", mu=2)
        lines = self.table(self.folder)
        self.assertEqual([(line["algorithm.mu"], line["n"]) for line in lines], [("1", "2"), ("2", "1")])
        self.assertNotIn("run.seed", lines[0])
        code, out, _ = call(summarize, self.folder)
        self.assertEqual([text.split("  ")[0] for text in out.splitlines()[2:]][2:], ["mu = 1", "mu = 2"])
        self.assertIn("n seeds", out.splitlines()[0])
        self.assertIn("70.00", out)
        self.assertNotIn("70.00 ±", out)  # one seed has no spread

    def test_a_seed_counts_once(self):
        first, = self.seeds((0.5,), "a")
        short = write_run(self.folder / "b.h5", rounds=20, config=config(1), global_accuracy=np.full(20, 0.9))
        for order in ((first, short), (short, first)):
            code, out, error = call(summarize, *order, "--format", "csv")
            line, = csv.DictReader(io.StringIO(out))
            self.assertEqual((code, line["n"], line["best_mean"]), (0, "1", "0.5"))
            self.assertIn(f"left out: {short}: seed 1 as {first}", error)

    def test_of_as_many_rounds_the_run_that_began_last_counts(self):
        early, late = (write_run(self.folder / f"{name}.h5", config=config(1), global_accuracy=np.full(40, level),
                                 attributes={"started": f"2026-01-0{day}T12:00:00Z"})
                       for name, level, day in (("z", 0.5, 1), ("a", 0.9, 2)))
        for order in ((early, late), (late, early)):
            code, out, error = call(summarize, *order, "--format", "csv")
            line, = csv.DictReader(io.StringIO(out))
            self.assertEqual((code, line["n"], line["best_mean"]), (0, "1", "0.9"))
            self.assertIn(f"left out: {early}: seed 1 as {late}", error)

    def test_a_pattern_and_its_folder_give_the_same_table(self):
        """Earlier versions and checkpoints, also those of earlier versions, have better figures than the runs."""
        self.seeds((0.5, 0.6), "s")
        for name in ("s1.old1", "s2.old", "s1.ckpt.40", "s1.old1.ckpt.40", "s2.old7.ckpt.40"):
            write_run(self.folder / f"{name}.h5", config=config(int(name[1])), global_accuracy=np.full(40, 0.99))
        of_pattern = call(summarize, *sorted(self.folder.glob("*.h5")))
        self.assertEqual(of_pattern[:2], call(summarize, self.folder)[:2])
        self.assertEqual((of_pattern[0], of_pattern[2]),
                         (0, "summarize: left out: beside its later version: s1.old1.h5, s2.old.h5\n"))
        self.assertIn("55.00 ± 7.07", of_pattern[1])
        line, = self.table(self.folder / "s1.old1.h5", self.folder / "s1.old1.ckpt.40.h5")
        self.assertEqual(line["best_mean"], "0.99")  # without its run it is looked at

    def test_a_key_of_any_codec_makes_lines(self):
        for seed, clusters in enumerate((2, 64), 1):
            self.seeds((0.5,), f"k{clusters}", codec="dense", downlink_codec="kmeans", k=clusters)
        self.assertEqual([line["algorithm.k"] for line in self.table(self.folder)], ["2", "64"])

    def on_data(self, name, digest=None, folder=None, seed=1, data="mnist"):
        """The path of a run whose file tells of its data."""
        text = config(seed).replace("name=mnist", f"name={data}") + (f"[data]\ndir={folder}\n" if folder else "")
        return write_run(self.folder / f"{name}.h5", config=text, attributes={"data_digest": digest} if digest else {})

    def labels_of_lines(self, *paths):
        """(label, n) of each line of the table for people."""
        code, out, error = call(summarize, *paths, "--columns", "n,configuration")
        self.assertEqual((code, error), (0, ""))
        return [tuple(line.split(maxsplit=1)[::-1]) for line in out.splitlines()[4:]]

    def test_other_data_are_another_line_named_by_their_folder(self):
        runs = [self.on_data("a", "aaaa", "/x", 1), self.on_data("b", "aaaa", "/other/machine", 2),
                self.on_data("c", "cccc", "/y", 1)]
        self.assertEqual(self.labels_of_lines(*runs), [("dir = /x", "2"), ("dir = /y", "1")])
        self.assertEqual([line["data.digest"] for line in self.table(*runs)], ["aaaa", "cccc"])
        unset = [self.on_data(name, 10 * name) for name in "de"]  # the environment names the folder
        self.assertEqual(self.labels_of_lines(*unset), [("digest = dddddddd", "1"), ("digest = eeeeeeee", "1")])
        changed = [self.on_data("f", "ffff", "/x"), self.on_data("g", "gggg", "/x")]
        self.assertEqual(self.labels_of_lines(*changed), [("dir = /x (f)", "1"), ("dir = /x (g)", "1")])

    def test_the_folder_names_no_line_where_the_data_sets_do(self):
        runs = [self.on_data("a", "aaaa", "/x"), self.on_data("b", "bbbb", "/y", data="svhn")]
        self.assertEqual(self.labels_of_lines(*runs), [("mnist", "1"), ("svhn", "1")])

    def test_without_a_digest_folders_say_nothing(self):
        line, = self.table(self.on_data("a", folder="/x", seed=1), self.on_data("b", folder="/y", seed=2))
        self.assertEqual(line["n"], "2")

    def test_files_of_an_earlier_version_are_beside_those_with_one_digest(self):
        old, new = self.on_data("a", seed=1), self.on_data("b", "bbbb", seed=2)
        self.assertEqual(self.table(old, new)[0]["n"], "2")
        several = [old, new, self.on_data("c", "cccc", seed=3)]
        self.assertEqual([line["n"] for line in self.table(*several)], ["1"] * 3)
        self.assertIn(("a", "1"), self.labels_of_lines(*several))

    def test_digests_of_few_samples_are_halves_of_those_of_all(self):
        few, more = "0123456789abcdef", "fedcba9876543210"
        runs = [self.on_data("a", few, seed=1), self.on_data("b", few + "1" * 16, seed=2)]
        self.assertEqual([line["n"] for line in self.table(*runs)], ["2"])
        runs += [self.on_data("c", more + "1" * 16, seed=3)]
        self.assertEqual(sorted(line["n"] for line in self.table(*runs)), ["1", "2"])
        runs = [self.on_data("d", few + "1" * 16, seed=4), self.on_data("e", few + "2" * 16, seed=5)]
        self.assertEqual(len(self.table(*runs)), 2)

    def of_digest(self, name, seed=1, file="", **digests):
        text = config(seed) + (f"[model]\nfile={file}\n" if file else "")
        return write_run(self.folder / f"{name}.h5", config=text, attributes=digests)

    def test_other_models_of_a_file_are_other_lines(self):
        same = [self.of_digest("a", 1, "/here/net.h5", model_digest="aaaa"),
                self.of_digest("b", 2, "/there/net.h5", model_digest="aaaa")]
        self.assertEqual([line["n"] for line in self.table(*same)], ["2"])
        changed = self.of_digest("c", 1, "/here/net.h5", model_digest="cccc")
        self.assertEqual(self.labels_of_lines(same[0], changed), [("file = /here/net.h5 (a)", "1"), ("file = /here/net.h5 (c)", "1")])
        moved = self.of_digest("d", 1, "/elsewhere/net.h5", model_digest="dddd")
        self.assertEqual(self.labels_of_lines(*same, moved), [("file = /here/net.h5", "2"), ("file = /elsewhere/net.h5", "1")])

    def test_other_code_is_another_line(self):
        runs = [self.of_digest("a", 1, code_digest="aaaabbbbcc"), self.of_digest("b", 2, code_digest="aaaabbbbcc"),
                self.of_digest("c", 1, code_digest="ccccddddee")]
        self.assertEqual(self.labels_of_lines(*runs), [("code = aaaabbbb", "2"), ("code = ccccdddd", "1")])
        old = self.of_digest("d", 3)
        self.assertEqual([line["n"] for line in self.table(*runs[:2], old)], ["3"])

    def test_a_key_that_only_some_have_names_the_line(self):
        runs = [write_run(self.folder / f"{name}.h5", config=config(seed, **keys))
                for name, seed, keys in (("a", 1, {}), ("b", 2, {}), ("c", 1, {"smoothing": 0}), ("d", 1, {"mu": 1}))]
        self.assertEqual(self.labels_of_lines(*runs[:3]), [("no smoothing", "2"), ("smoothing = 0", "1")])
        self.assertEqual(self.labels_of_lines(*runs[2:]), [("smoothing = 0, no mu", "1"), ("no smoothing, mu = 1", "1")])

    def test_files_of_one_name_are_told_apart_by_their_folders(self):
        paths = []
        for folder in ("one", "two"):
            (self.folder / folder).mkdir()
            paths.append(write_run(self.folder / folder / "run.h5", config=config(1), attributes={"data_digest": folder}))
        self.assertEqual(self.labels_of_lines(*paths), [("digest = one", "1"), ("digest = two", "1")])
        runs = [results.load(path) for path in paths]
        self.assertEqual(labels.labels_of([runs[0], runs[0]]), ["run", "run"])
        self.assertEqual(labels.names_of_files([run.path for run in runs]), ["one/run", "two/run"])

    def test_a_target_above_what_can_be_reached_is_refused(self):
        code, _, error = call(summarize, *self.seeds((0.9,)), "--target", "90")
        self.assertEqual((code, "is at most 1; name 90 % as 0.9 or 90%" in error), (2, True), error)

    def test_a_file_is_known_by_its_name_where_there_is_a_digest(self):
        runs = [write_run(self.folder / f"{seed}.h5", config=config(seed) + f"[data]\nfile=/{seed}/x.csv\n",
                          attributes={"data_digest": "aaaa"}) for seed in (1, 2)]
        self.assertEqual(self.table(*runs)[0]["n"], "2")

    def with_plugin(self, plugin, seed=1, name="mine"):
        stem = f"{len(list(self.folder.iterdir()))}"
        return write_run(self.folder / f"{stem}.h5", config=config(seed, name=name) + f"[run]\nplugin={plugin}\n")

    def test_other_plug_ins_are_other_lines(self):
        same = [self.with_plugin("/here/liba.so", 1), self.with_plugin("/there/liba.so", 2)]
        other = self.with_plugin("/here/libb.so,/here/liba.so", 1)
        self.assertEqual(self.labels_of_lines(*same, other),
                         [("plugin = liba.so", "2"), ("plugin = libb.so,liba.so", "1")])
        methods = [self.with_plugin(f"/here/lib{name}.so", name=name) for name in ("one", "two")]
        self.assertEqual(self.labels_of_lines(*methods), [("one", "1"), ("two", "1")])

    def test_metric_that_most_have(self):
        none = np.full(40, np.nan)
        for n in (1, 2):
            write_run(self.folder / f"{n}.h5", config=config(1, mu=n), global_accuracy=none,
                      personal_accuracy=np.full(40, 0.7))
        write_run(self.folder / "3.h5", config=config(1, mu=3), personal_accuracy=np.full(40, 0.8))
        lines = self.table(self.folder)
        self.assertEqual({line["metric"] for line in lines}, {"personal_accuracy"})
        lines = self.table(self.folder, "--metric", "global_accuracy")
        self.assertEqual([bool(line["best_mean"]) for line in lines], [False, False, True])

    def test_statuses(self):
        for number, status in enumerate(("complete", "interrupted", "complete"), 1):
            write_run(self.folder / f"{number}.h5", config=config(number), status=status)
        self.assertEqual(self.table(self.folder)[0]["status"], "2 complete, 1 interrupted")

    def test_folders_leave_out_checkpoints_and_name_what_they_cannot_read(self):
        self.seeds((0.5,))
        for name in ("a1.ckpt.30.h5", "a1.old.h5", "a1.old2.h5"):
            (self.folder / name).write_bytes((self.folder / "a1.h5").read_bytes())
        (self.folder / "broken.h5").write_text("no", encoding="utf-8")
        code, out, error = call(summarize, self.folder)
        self.assertEqual((code, error.count("\n")), (0, 1))
        self.assertTrue(error.startswith("summarize: left out: ") and "broken.h5: not an HDF5 file" in error, error)
        code, out, error = call(summarize, self.folder / "broken.h5")
        self.assertEqual((code, out, error.count("\n")), (2, "", 1))

    def test_refusals(self):
        good, = self.seeds((0.5,))
        empty = write_run(self.folder / "empty.h5", rounds=0)
        folder = self.folder / "folder"
        folder.mkdir()
        for arguments, text in (([good, "--metric", "nonsense"], "never evaluated"), ([empty], "no round is complete"),
                                ([folder], "no result files"), ([good, "--scaling"], "no scaling to show")):
            code, out, error = call(summarize, *arguments)
            self.assertEqual((code, out, error.count("\n")), (2, "", 1), arguments)
            self.assertIn(text, error)

    def test_latex(self):
        self.seeds((0.5, 0.6), "a", name="fed_avg", mu=1)
        self.seeds((0.7,), "b", name="fed_avg", mu=2)
        code, out, _ = call(summarize, self.folder, "--format", "latex")
        self.assertEqual(code, 0)
        self.assertIn(r"55.00 $\pm$ 7.07", out)
        body = [line for line in out.splitlines() if line.endswith(r"\\")]
        self.assertEqual({line.count(" & ") for line in body}, {8})
        self.assertIn(r"\begin{tabular}{lrrrrrrrr}", out)
        self.assertEqual(tables.escaped("a_b 5% {x}\\~"), r"a\_b 5\% \{x\}\textbackslash{}\textasciitilde{}")

    def test_the_best_of_a_column_is_bold_in_latex(self):
        self.seeds((0.5, 0.6), "a", name="fed_avg", mu=1)
        self.seeds((0.7,), "b", name="fed_avg", mu=2)
        self.seeds((0.7,), "c", name="fed_avg", mu=3)
        arguments = (self.folder, "--labels", "one,two,three & more", "--columns", "configuration,last,n")
        code, out, _ = call(summarize, *arguments, "--format", "latex")
        self.assertEqual(code, 0)
        self.assertEqual(out.splitlines()[3:8], [
            r"configuration & last [\%] & n \\", r"\hline", r"one & 55.00 $\pm$ 7.07 & 2 \\",
            r"two & \textbf{70.00} & 1 \\", r"three \& more & \textbf{70.00} & 1 \\"])
        self.assertNotIn("textbf", call(summarize, *arguments)[1])
        _, out, _ = call(summarize, self.folder, "--metric", "global_loss", "--columns", "best", "--format", "latex")
        self.assertEqual(out.count("textbf"), 3)  # of three equal losses
        _, out, _ = call(summarize, self.folder, "--target", "0.6", "--format", "latex", "--columns",
                         "to target: rounds,up")
        self.assertIn(r"to target: rounds & up", out)

    def test_a_cost_of_fewer_seeds_is_not_the_best(self):
        rising = np.linspace(0.025, 1.0, 40)
        for mu, levels in ((1, (5.0, 0.5, 0.5)), (2, (1.0, 1.0, 1.0)), (3, (0.5, 0.5, 0.5))):
            self.seeds(levels, f"m{mu}_", mu=mu)
        arguments = (self.folder, "--target", "79%", "--columns", "to target: rounds", "--format", "latex")
        _, out, _ = call(summarize, *arguments)
        self.assertEqual([line for line in out.splitlines() if line.endswith(r"\\")][1:],
                         [r"7.0 (1 of 3) \\", r"\textbf{32.0} \\", r"- \\"])
        slow = self.folder / "m2_3.h5"
        write_run(slow, config=config(3, mu=2), global_accuracy=0.5 * rising)
        self.assertIn(r"\textbf{32.0 (2 of 3)}", call(summarize, *arguments)[1])

    def test_what_diverged_is_not_the_best(self):
        self.seeds((0.7,), "a", mu=1)
        write_run(self.folder / "b.h5", config=config(1, mu=2), status="diverged", global_accuracy=np.full(40, 0.9))
        _, out, _ = call(summarize, self.folder, "--columns", "status,best,last", "--format", "latex")
        self.assertIn(r"complete & \textbf{70.00} & \textbf{70.00} \\", out)
        self.assertIn(r"diverged & 90.00 & 90.00 \\", out)

    def test_what_is_not_complete_is_not_the_best_and_is_named(self):
        self.seeds((0.7, 0.7), "a", mu=1)
        for seed, status in enumerate(("complete", "interrupted"), 1):
            write_run(self.folder / f"b{seed}.h5", config=config(seed, mu=2), status=status, global_accuracy=np.full(40, 0.9))
        for columns, said in (("status,best", ""), ("best", "summarize: not complete, which no column says: mu = 2 (1 complete, "
                                                            "1 interrupted)\n")):
            _, out, error = call(summarize, self.folder, "--columns", columns, "--format", "latex")
            self.assertIn(r"\textbf{70.00} \\", out)
            self.assertNotIn(r"\textbf{90.00", out)
            self.assertEqual(error, said)

    def test_columns_have_one_name_in_every_form(self):
        self.seeds((0.5, 0.6), "a", mu=1)
        self.seeds((0.7,), "b", mu=2)
        lines = self.table(self.folder, "--target", "0.6", "--columns",
                           "configuration,best,to target: traffic,up,n,last_std")
        self.assertEqual([*lines[0]], ["algorithm.mu", "best_mean", "best_std", "target_bytes_mean", "target_bytes_std",
                                       "bytes_up_mean", "bytes_up_std", "n", "last_std"])
        self.assertEqual([*self.table(self.folder / "b1.h5", "--columns", "configuration,n")[0]], ["n"])

    def test_a_diverged_loss_is_not_the_last_number_it_had(self):
        loss = np.where(np.arange(40) == 9, 6e20, np.nan)
        path = write_run(self.folder / "a.h5", status="diverged", global_loss=loss)
        line, = self.table(add_clients(path, np.zeros((4, 2)), [10, 20, 30, 40]), "--metric", "global_loss")
        self.assertEqual((line["best_mean"], line["last_mean"]), ("6e+20", ""))

    def test_columns_and_labels_that_do_not_fit(self):
        self.seeds((0.5, 0.6), "a", name="fed_avg", mu=1)
        for arguments, text in (
                (["--columns", "bset"], "--columns bset: no such column; there are configuration, seeds, n, status"),
                (["--labels", "a,b"], "--labels a,b: 2 of them for 1 lines")):
            code, out, error = call(summarize, self.folder, *arguments)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(text, error)
        for arguments in (["--labels", "a", "--format", "csv"], ["--columns", "n", "--scaling"],
                          ["--select", "validation", "--scaling"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                call(summarize, self.folder, *arguments)

    def test_seeds_as_ranges(self):
        for seed in (10, 1, 2, 3, 7, 9):
            write_run(self.folder / f"{seed}.h5", config=config(seed))
        self.assertEqual(self.table(self.folder)[0]["seeds"], "1-3,7,9-10")

    def test_seeds_of_the_data_are_shown_where_those_of_the_runs_are_alike(self):
        for run, data in ((1, 10), (1, 2), (2, 2), (1, 1)):
            text = config(run).replace(f"[data]\nname=mnist\nseed={run}\n", f"[data]\nname=mnist\nseed={data}\n")
            write_run(self.folder / f"{run}_{data}.h5", config=text)
        line, = self.table(self.folder)
        self.assertEqual((line["seeds"], line["n"]), ("1/1,1/2,1/10,2/2", "4"))
        self.assertIn(" 1/1,1/2,1/10,2/2  4 ", call(summarize, self.folder)[1])


class Scaling(Folder):
    def run_on(self, ranks, clients, seconds, seed=1, **keys):
        """A run whose first round is slow."""
        wall = np.full(40, seconds)
        wall[0] = 100.0
        text = config(seed, **keys) + f"[data]\nclients={clients}\n[topology]\nedges={ranks if keys else 0}\n"
        return write_run(self.folder / f"{ranks}_{clients}_{seed}_{len(keys)}.h5", config=text, wall_seconds=wall,
                         attributes={"ranks": ranks})

    def lines(self, *arguments):
        code, out, error = call(summarize, *arguments, "--scaling", "--format", "csv")
        self.assertEqual((code, error), (0, ""))
        return [[line["scaling"], line["ranks"], line["clients/rank"], line["s/round"], line["efficiency [%]"]]
                for line in csv.DictReader(io.StringIO(out))]

    def test_strong_and_weak(self):
        self.run_on(1, 24, 8.0)
        self.run_on(2, 24, 5.0)
        self.run_on(4, 24, 4.0)
        self.run_on(4, 96, 10.0)
        self.assertEqual(self.lines(self.folder),
                         [["strong", "1", "24", "8", "100.0"], ["strong", "2", "12", "5", "80.0"],
                          ["strong", "4", "6", "4", "50.0"], ["weak", "1", "24", "8", "100.0"],
                          ["weak", "4", "24", "10", "80.0"]])

    def test_repetitions_are_one_point(self):
        paths = [self.run_on(1, 24, seconds, seed) for seed, seconds in ((1, 8.0), (2, 9.0), (3, 70.0))]
        lines = self.lines(*paths, self.run_on(3, 24, 3.0))
        self.assertEqual([line[3:] for line in lines], [["9", "100.0"], ["3", "100.0"]])

    def test_a_round_is_the_median_without_the_first(self):
        for wall, seconds in (([100.0, 8.0], 8.0), ([100.0, 8.0, 6.0, 40.0], 8.0), ([100.0, 8.0, np.nan, 6.0], 7.0),
                              ([100.0], None), ([9.0, 1.0, 6.0, 1.0, 1.0, 6.0], 1.0), ([9.0, 6.0, 1.0, 6.0], 6.0)):
            path = write_run(self.folder / "run.h5", len(wall), wall_seconds=np.array(wall), attributes={"ranks": 2})
            self.assertEqual(scaling.seconds_of_round(results.load(path)), seconds)

    def test_dollars_are_no_mathematics(self):
        given = scaling.Scaling("strong", "$x_$", (scaling.Point(1, 24, 8.0, 1), scaling.Point(2, 24, 5.0, 1)))
        scaling.draw_scaling([given], self.folder / "scaling.png")  # which parses them

    def test_edges_that_grow_with_the_ranks(self):
        paths = [self.run_on(ranks, 10 * ranks, 2.0, x=1) for ranks in (1, 2)]
        self.assertEqual([line[0] for line in self.lines(*paths)], ["weak", "weak"])

    def test_against_the_fewest_ranks_not_one(self):
        scalings = scaling.scalings_of([results.load(self.run_on(r, 24, s)) for r, s in ((8, 1.0), (2, 2.0))],
                                        self.fail)
        one, = scalings
        self.assertEqual([(p.ranks, one.efficiency(p)) for p in one.points], [(2, 1.0), (8, 0.5)])

    def resumed_on(self, ranks, before, starts):
        """A run of 30 rounds of 9 s on `before` ranks that went on with 10 rounds of 2 s on `ranks`, the first of them
        slow; with or without /starts."""
        wall = np.repeat([9.0, 2.0], (30, 10))
        wall[30] = 100.0
        text = config(2) + "[data]\nclients=24\n[topology]\nedges=0\n"
        commands = "fedhpc run a.ini --run.output=r.h5; fedhpc resume r.h5"
        path = write_run(self.folder / "resumed.h5", config=text, wall_seconds=wall,
                         attributes={"ranks": ranks, "command_line": commands})
        if starts:  # twice without a round on one rank more
            with h5py.File(path, "r+") as file:
                file["starts/first_round"], file["starts/ranks"] = [1, 31, 31], [before, ranks + 1, ranks]
        return path

    def test_only_rounds_on_the_last_number_of_ranks_count(self):
        paths = [self.run_on(1, 24, 8.0), self.resumed_on(4, 1, starts=True)]
        self.assertEqual([line[3:] for line in self.lines(*paths)], [["8", "100.0"], ["2", "100.0"]])

    def test_a_resumed_run_without_ranks_of_rounds_is_told_of(self):
        paths = [self.run_on(1, 24, 8.0), self.run_on(2, 24, 5.0), self.resumed_on(4, 1, starts=False)]
        for more in ([], ["--output", self.folder / "scaling.png"]):
            code, out, error = call(summarize, *paths, "--scaling", "--format", "csv", *more)
            self.assertEqual((code, [line["ranks"] for line in csv.DictReader(io.StringIO(out))]), (0, ["1", "2"]))
            self.assertEqual(error, f"summarize: left out: {paths[2]}: resumed, and its file does not say on how many "
                                    "ranks each round was run\n")

    def test_figure(self):
        self.run_on(1, 24, 8.0)
        self.run_on(2, 24, 5.0)
        output = self.folder / "scaling.png"
        self.assertEqual(call(summarize, self.folder, "--scaling", "--output", output)[0], 0)
        width, height = struct.unpack(">II", output.read_bytes()[16:24])
        self.assertTrue(600 < width < 3000 and 400 < height < 1500)
        code, _, error = call(summarize, self.folder, "--scaling", "--output", self.folder / "no" / "such.png")
        self.assertEqual((code, error.count("\n")), (2, 1))


if __name__ == "__main__":
    unittest.main()
