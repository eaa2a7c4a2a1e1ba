"""Tests of plot.py on small result files made here in the documented format.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import re
import struct
import unittest
import unittest.mock
from types import SimpleNamespace

import h5py
import matplotlib.figure
import numpy as np
from tool_support import TOOLS, Folder, add_clients, call, write_run

from fedhpc.tools import client_panels, labels, panels, plot, results, style


class Plot(Folder):
    def call(self, *arguments):
        return call(plot, *arguments)

    def assert_picture(self, path):
        content = path.read_bytes()
        self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", content[16:24])
        self.assertTrue(600 < width < 4000 and 400 < height < 2000, (width, height))
        self.assertGreater(len(content), 8000)

    def test_default_figure(self):
        code, out, _ = self.call(write_run(self.folder / "run.h5"))
        self.assertEqual(code, 0)
        self.assert_picture(self.folder / "run.png")
        self.assertIn("40 rounds, complete, global accuracy 88.75 % last", out)
        self.assertIn(str(self.folder / "run.png"), out)

    def test_a_folder_without_runs_is_refused(self):
        for folder in (self.folder, "."):
            code, _, error = self.call(folder)
            self.assertEqual((code, error), (2, f"plot: {folder}: no result files; give RUN.h5 or a folder of them\n"))

    def test_an_earlier_figure_is_kept(self):
        run = write_run(self.folder / "run.h5")
        first, picture = self.folder / "run.old1.png", self.folder / "run.png"
        self.call(run)
        self.assertFalse(first.exists())
        before = picture.read_bytes()
        code, out, _ = self.call(run, "--title", "another")
        self.assertEqual(code, 0)
        self.assertIn(f"the earlier figure is now {first}\n", out)
        self.assertEqual(first.read_bytes(), before)
        self.assertNotEqual(picture.read_bytes(), before)
        self.call(run, "--output", picture)
        self.assertTrue((self.folder / "run.old2.png").exists())
        code, out, _ = self.call(run, "--force")
        self.assertNotIn("earlier", out)
        self.assertEqual(len(list(self.folder.glob("*.png"))), 3)
        for _ in range(4):  # a name without an ending
            self.call(run, "--output", self.folder / "bare")
        self.assertEqual(len(list(self.folder.glob("bare*"))), 4)
        # What cannot be drawn moves nothing.
        self.assertEqual(self.call(run, "--output", run)[0], 2)
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.h5")), ["run.h5"])

    def test_letters_of_a_pdf_are_true_type(self):
        output = self.folder / "run.pdf"
        self.call(write_run(self.folder / "run.h5"), "--output", output)
        content = output.read_bytes()
        self.assertIn(b"/Subtype /Type0", content)
        self.assertNotIn(b"/Type3", content)

    def test_the_axis_says_whose_accuracy_it_is(self):
        run = write_run(self.folder / "run.h5", personal_accuracy=np.linspace(0.1, 0.9, 40))
        runs = [results.load(run)]
        for metrics, label in ((["global_accuracy"], "test accuracy of the global model [%]"),
                               (["personal_accuracy"], "test accuracy of own models, mean over clients [%]"),
                               (["global_accuracy", "personal_accuracy"], "test accuracy [%]")):
            self.assertEqual(panels.panels_of(metrics, runs), [(label, metrics)])

    def test_several_runs_and_every_axis(self):
        runs = [write_run(self.folder / f"{n}.h5", config=f"[algorithm]\nname=pfedme\nlambda={n}\n",
                          personal_accuracy=np.full(40, 0.99)) for n in (5, 15)]
        for against in ("rounds", "bytes", "cloud", "wall"):
            output = self.folder / f"{against}.png"
            self.assertEqual(self.call(*runs, "--against", against, "--output", output)[0], 0)
            self.assert_picture(output)
        loaded = [results.load(path) for path in runs]
        self.assertEqual(plot.labels_of(loaded), ["lambda = 5", "lambda = 15"])
        self.assertEqual(plot.default_panels(loaded)[0][1], ["global_accuracy", "personal_accuracy"])
        np.testing.assert_array_equal(plot.horizontal(loaded[0], "rounds")[0], np.arange(1.0, 41.0))
        np.testing.assert_array_equal(plot.horizontal(loaded[0], "bytes")[0][[0, 39]], [100.0, 4000.0])
        self.assertEqual(plot.horizontal(loaded[0], "wall")[0][39], 20.0)

    def test_personal_models_stand_beside_the_global_one_in_any_unit(self):
        for scale in (1e-3, 1, 1e3):
            for share, apart in ((0.5, True), (0.999, False)):
                values = np.full(40, 6.4 * scale)
                run = write_run(self.folder / "run.h5", global_accuracy=np.full(40, np.nan), global_rmse=values,
                                personal_rmse=share * values)
                shown = plot.default_panels([results.load(run)])[0][1]
                self.assertEqual(shown, ["global_rmse", "personal_rmse"][:1 + apart], (scale, share))

    def test_labels(self):
        runs = [write_run(self.folder / f"{n}.h5", personal_accuracy_weighted=np.full(40, n / 10)) for n in (8, 9)]
        metrics = ["personal_accuracy_weighted", "train_loss"]
        with unittest.mock.patch.object(plot, "draw_legend") as draw_legend:
            code, _, _ = self.call(*runs, "--metric", ",".join(metrics), "--labels", "FedAvg, TDPFed (x2)")
        self.assertEqual(code, 0)
        drawn = [call.args[1:] for call in draw_legend.call_args_list]
        both = [("FedAvg", 0), ("TDPFed (x2)", 1)]
        self.assertEqual(drawn, [(both, [metric]) for metric in metrics])

    def test_a_panel_names_the_runs_it_shows(self):
        plain = write_run(self.folder / "plain.h5")
        sparse = write_run(self.folder / "sparse.h5", density_global=np.full(40, 0.2))
        with unittest.mock.patch.object(plot, "draw_legend") as draw_legend:
            self.assertEqual(self.call(plain, sparse, "--metric", "train_loss,density_global", "--labels", "a,b")[0], 0)
        first, second = (call.args[1] for call in draw_legend.call_args_list)
        self.assertEqual(first, [("a", 0), ("b", 1)])
        self.assertEqual(second, [("b", 1)])

    def test_as_many_curves_as_one_looks_at_differ(self):
        keys = [plot.key_of(index) for index in range(20)]
        self.assertEqual(len({(key.get_color(), key.get_marker()) for key in keys}), 20)

    def test_curves_of_clients_differ(self):
        spread = SimpleNamespace(rounds=np.arange(1, 4), values=np.full((7, 3), 0.5), last=np.linspace(0, 1, 400))
        for draw in (client_panels.draw_bands, client_panels.draw_sorted):
            axes = matplotlib.figure.Figure().subplots()
            draw(axes, [spread] * 18, None)
            self.assertEqual(len({(line.get_color(), line.get_marker()) for line in axes.lines}), 18)

    def test_many_series_of_a_run_differ_and_their_names_cover_none(self):
        names = [f"effective_rank.layer{number}" for number in range(12)]
        run = results.load(write_run(self.folder / "run.h5", **{name: np.full(40, 0.3) for name in names}))
        figure = matplotlib.figure.Figure(layout="constrained")
        plot.fill(figure, [run], self.fail, panels=["own"])
        figure.draw_without_rendering()
        axes, = figure.axes
        shown = axes.get_legend()
        for lines in (axes.lines, shown.get_lines()):
            looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
            self.assertEqual(len(looks), 12)
        box = shown.get_window_extent()
        self.assertTrue(axes.bbox.x1 <= box.x0 and box.x1 <= figure.bbox.x1, (axes.bbox, box))
        self.assertGreater(axes.bbox.width / figure.dpi, 2.5)

    def test_what_a_logarithmic_axis_cannot_show_is_told(self):
        runs = [write_run(self.folder / f"{n}.h5", bytes_up_client_cloud=np.full(40, 1e3 * n)) for n in range(2)]
        with unittest.mock.patch.object(plot, "write_figure") as written:
            code, _, error = self.call(*runs, "--against", "bytes", "--log")
        self.assertEqual((code, error), (0, f"plot: left out: {runs[0]}: its traffic of all links, up and down [B] "
                                            "is 0, which a logarithmic axis cannot show\n"))
        axes, _ = written.call_args.args[0].axes
        self.assertEqual([len(axes.lines), [text.get_text() for text in axes.get_legend().get_texts()]], [1, ["1"]])
        code, _, error = self.call(runs[0], "--against", "bytes", "--log")
        self.assertEqual((code, error.splitlines()[-1]), (2, "plot: --log: nothing to show on an axis of bytes, which is "
                                                             "0 in every round; leave it out"))

    def test_dollars_are_no_mathematics(self):
        runs = [write_run(self.folder / f"{n}.h5", config=f"[algorithm]\nname=a$x^2${n}\n[data]\nname=of $_$\n")
                for n in range(2)]
        for names in (runs, runs[:1]):
            figure = matplotlib.figure.Figure(layout="constrained")
            plot.fill(figure, [results.load(run) for run in names], self.fail)
            figure.draw_without_rendering()  # which parses them
        code, out, error = self.call(*runs, "--title", "$x_$")
        self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)

    def test_rounds_are_whole_numbers(self):
        run = results.load(write_run(self.folder / "run.h5", rounds=1, global_accuracy=np.full(1, 0.5)))
        figure = matplotlib.figure.Figure(layout="constrained")
        plot.fill(figure, [run], self.fail)
        spread = SimpleNamespace(rounds=np.array([1]), values=np.full((7, 1), 0.5))
        of_clients = matplotlib.figure.Figure().subplots()
        client_panels.draw_bands(of_clients, [spread], None)
        for axes in (*figure.axes, of_clients):
            low, high = axes.get_xlim()
            self.assertEqual([tick for tick in axes.get_xticks() if low <= tick <= high], [1.0])

    def test_bytes_are_those_of_all_links_and_directions(self):
        links = {"bytes_up_client_edge": 1.0, "bytes_down_client_edge": 20.0, "bytes_up_edge_cloud": 300.0,
                 "bytes_down_edge_cloud": 4000.0, "bytes_up_client_cloud": np.nan, "bytes_down_client_cloud": np.nan}
        path = write_run(self.folder / "run.h5", bytes_saved=np.full(40, 5e9),
                         **{name: np.full(40, value) for name, value in links.items()})
        values, label = plot.horizontal(results.load(path), "bytes")
        np.testing.assert_array_equal(values, 4321.0 * np.arange(1, 41))
        self.assertIn("[B]", label)
        # In one figure with a run over other links.
        other = write_run(self.folder / "other.h5")
        cloud, label = plot.horizontal(results.load(path), "cloud")
        np.testing.assert_array_equal(cloud[[0, 39]], [4300.0, 40 * 4300.0])
        self.assertIn("of the cloud", label)
        self.assertEqual(self.call(path, other, "--against", "bytes", "--output", self.folder / "both.png")[0], 0)
        self.assert_picture(self.folder / "both.png")

    def test_simulated_seconds(self):
        path = write_run(self.folder / "run.h5", simulated_seconds=np.linspace(1.0, 40.0, 40))
        values, label = plot.horizontal(results.load(path), "seconds")
        np.testing.assert_allclose(values[[0, 1, 39]], [1.0, 3.0, 820.0])
        self.assertEqual(label, "simulated time [s]")
        self.assertEqual(self.call(path, "--against", "seconds")[0], 0)
        self.assert_picture(self.folder / "run.png")

    def test_simulated_seconds_without_a_network_model(self):
        good = write_run(self.folder / "good.h5", simulated_seconds=np.ones(40))
        off = write_run(self.folder / "off.h5", simulated_seconds=np.full(40, np.nan))
        old = write_run(self.folder / "old.h5")
        gap = write_run(self.folder / "gap.h5", simulated_seconds=np.where(np.arange(40) < 3, np.nan, 1.0))
        for path, word in ((off, "is NaN: "), (old, "is NaN: "), (gap, "is NaN in 3 of 40 rounds: ")):
            code, out, error = self.call(good, path, "--against", "seconds")
            self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)
            self.assertTrue(error.startswith(f"plot: {path}: simulated_seconds {word}"), error)
            self.assertIn("network.client_cloud_mbps", error)
        self.assertFalse((self.folder / "good.png").exists())

    def test_every_recorded_round_is_drawn(self):
        runs = [results.load(write_run(self.folder / "run.h5"))]
        for arguments, points in (({"metrics": ["train_loss"]}, [40]), ({"panels": ["loss"]}, [4, 40])):
            figure = matplotlib.figure.Figure()
            plot.fill(figure, runs, self.fail, **arguments)
            self.assertEqual([len(line.get_xdata()) for line in figure.axes[0].lines], points)

    def test_a_run_without_the_metric_is_told_of_and_in_no_legend(self):
        runs = [write_run(self.folder / f"{n}.h5", bytes_up_client_cloud=np.full(40, n or np.nan)) for n in range(3)]
        long = ",".join(f"{n} with a name that has no room within a panel" for n in range(3))
        with unittest.mock.patch.object(plot, "draw_shared_legend") as shared:
            code, _, error = self.call(*runs, "--labels", long, "--metric", "bytes_up_client_cloud")
        self.assertEqual((code, error), (0, f"plot: left out: {runs[0]}: no bytes_up_client_cloud\n"))
        self.assertEqual([*shared.call_args.args[1]], [1, 2])

    def test_seeds_are_a_mean_in_a_band(self):
        runs = [results.load(write_run(self.folder / f"{n}_{seed}.h5", global_accuracy=np.full(40, level),
                                       config=f"[run]\nseed={seed}\n[algorithm]\nname=fedavg\nlambda={n}\n"))
                for n, seed, level in ((5, 1, 0.5), (15, 1, 0.8), (5, 2, 0.6), (5, 3, 0.7))]
        groups = labels.groups_of_seeds(runs, self.fail)
        self.assertEqual([[run.path.stem for run in group] for group in groups], [["5_1", "5_2", "5_3"], ["15_1"]])
        x, y, spread, _ = plot.curve_of(groups[0], "global_accuracy", "bytes")
        np.testing.assert_allclose((x[0], x[-1], len(x)), (100.0, 4000.0, 40))
        np.testing.assert_allclose(y, 0.6)
        np.testing.assert_allclose(spread, 0.1)  # sample standard deviation of 0.5, 0.6, 0.7
        self.assertIsNone(plot.curve_of(groups[1], "global_accuracy", "rounds")[2])
        with unittest.mock.patch.object(plot, "draw_legend") as draw_legend:
            code, out, _ = self.call(*[run.path for run in runs], "--seeds", "band", "--metric", "global_accuracy")
        self.assertEqual((code, out.count("40 rounds")), (0, 4))
        names = [label for label, _ in draw_legend.call_args.args[1]]
        self.assertEqual(names, ["lambda = 5 (3 seeds)", "lambda = 15"])

    def test_a_seed_counts_once_in_a_band(self):
        """As the shell's *.h5 has them: checkpoints, earlier versions, and the start of a run under another name."""
        for seed in (1, 2, 3):
            for ending, rounds in (("", 40), (".ckpt.40", 40), (".old1", 40), (".old1.ckpt.40", 40), ("_start", 20)):
                write_run(self.folder / f"s{seed}{ending}.h5", rounds=rounds, config=f"[run]\nseed={seed}\n",
                          attributes={"started": "2026-01-01T12:00:00Z"})
        write_run(self.folder / "other.h5", config="[run]\nseed=1\n[algorithm]\nname=fedavg\n")
        files = sorted(self.folder.glob("*.h5"))
        for places in (files, [self.folder]):
            with unittest.mock.patch.object(plot, "draw_legend") as draw_legend:
                code, _, error = self.call(*places, "--seeds", "band", "--metric", "global_accuracy", "--force")
            names = [label for label, _ in draw_legend.call_args.args[1]]
            self.assertEqual((code, [name.rpartition(" (")[2] for name in names]), (0, ["fedavg", "3 seeds)"]))
            self.assertEqual([line for line in error.splitlines() if "later version" not in line], [
                f"plot: left out: {self.folder}/s{n}_start.h5: seed {n} as {self.folder}/s{n}.h5" for n in (1, 2, 3)])

    def test_a_band_is_over_the_rounds_that_all_seeds_have(self):
        runs = [results.load(write_run(self.folder / f"{seed}.h5", rounds=rounds, config=f"[run]\nseed={seed}\n"))
                for seed, rounds in ((1, 40), (2, 25))]
        np.testing.assert_array_equal(plot.curve_of(runs, "global_accuracy", "rounds")[0], [10, 20])
        code, _, error = self.call(*(run.path for run in runs), "--seeds", "band")
        self.assertEqual((code, error), (0, "plot: left out: rounds 26 to 40 of a band: "
                                         f"{self.folder}/2.h5 has none of them (complete)\n"))

    def test_all_that_is_written_is_in_the_picture(self):
        """Also a long name beside a panel."""
        names = [*panels.WHOSE, "staleness_of_the_updates_that_the_server_has_received"]
        run = results.load(write_run(self.folder / "run.h5", **{name: np.linspace(0.1, 0.9, 40) for name in names}))
        for metric in names:
            figure = matplotlib.figure.Figure(layout="constrained")
            plot.fill(figure, [run], self.fail, [metric])
            figure.draw_without_rendering()
            box = figure.axes[0].yaxis.label.get_window_extent()
            self.assertTrue(figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, (metric, box))

    def test_a_logarithmic_axis_has_plain_numbers(self):
        for rounds, expected in ((20, ["1", "2"]), (60, ["1", "2", "5"]), (20000, ["0.001", "0.01", "0.1", "1"])):
            run = results.load(write_run(self.folder / f"{rounds}.h5", rounds=rounds))
            figure = matplotlib.figure.Figure(layout="constrained")
            plot.fill(figure, [run], self.fail, against="bytes", scale="log")
            figure.draw_without_rendering()
            axes = figure.axes[0]
            shown = [label.get_text() for label in axes.get_xticklabels(which="both")
                     if axes.bbox.x0 <= np.mean(label.get_window_extent().intervalx) <= axes.bbox.x1]
            self.assertEqual(shown, expected)

    def test_a_short_logarithmic_axis_has_two_numbers(self):
        for low, high in ((2.1, 4.8), (0.96, 1.04), (12.0, 16.0), (5.5, 9.9e2)):
            axes = matplotlib.figure.Figure().subplots()
            axes.set(xscale="log", xlim=(low, high))
            style.number_log_axis(axes.xaxis)
            self.assertTrue(2 <= sum(low <= tick <= high for tick in axes.get_xticks()), (low, high))

    def test_many_long_names_leave_the_panels_their_room(self):
        runs = [results.load(write_run(self.folder / f"{n}.h5")) for n in range(18)]
        figure = matplotlib.figure.Figure(layout="constrained")
        plot.fill(figure, runs, self.fail, labels=[f"codec number {n} with settings of its own" for n in range(18)])
        figure.draw_without_rendering()
        for axes in figure.axes:
            self.assertGreater(axes.bbox.height / figure.dpi, 2.2)
            box = axes.yaxis.label.get_window_extent()
            self.assertTrue(axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1, box)

    def test_a_run_that_has_ended_is_not_evaluated_any_more(self):
        nothing = {name: np.full(40, np.nan) for name in ("global_accuracy", "global_loss", "train_loss")}
        for status, text in (("complete", "not evaluated"), ("running", "not evaluated yet")):
            run = results.load(write_run(self.folder / "run.h5", status=status, **nothing))
            figure = matplotlib.figure.Figure()
            plot.fill(figure, [run], self.fail)
            self.assertEqual({axes.texts[0].get_text() for axes in figure.axes}, {text})

    def test_a_diverged_run_does_not_flatten_the_others(self):
        loss = np.where(np.arange(40) % 10 == 9, 1e20, np.nan)
        runs = [write_run(self.folder / "good.h5"), write_run(self.folder / "bad.h5", status="diverged", global_loss=loss)]
        figure = matplotlib.figure.Figure()
        plot.fill(figure, [results.load(run) for run in runs], self.fail, ["global_loss"])
        low, high = figure.axes[0].get_ylim()
        self.assertTrue(0 < low < 0.03 and 0.1 < high < 0.2, (low, high))
        self.assertEqual(figure.axes[0].get_title(), "what has diverged goes beyond the panel")
        alone = matplotlib.figure.Figure()
        plot.fill(alone, [results.load(runs[1])], self.fail, ["global_loss"])
        self.assertGreater(alone.axes[0].get_ylim()[1], 1e19)

    def test_accuracies_of_a_diverged_run_stay_in_the_panel(self):
        runs = [write_run(self.folder / f"{name}.h5", status=status, global_accuracy=np.full(40, level))
                for name, status, level in (("good", "complete", 0.9), ("bad", "diverged", 0.1))]
        figure = matplotlib.figure.Figure()
        plot.fill(figure, [results.load(run) for run in runs], self.fail, ["global_accuracy"])
        low, high = figure.axes[0].get_ylim()
        self.assertTrue(low < 10 and 90 < high, (low, high))

    def test_a_diverged_seed_makes_no_band_of_losses(self):
        runs = [results.load(write_run(self.folder / f"{seed}.h5", status=status, config=f"[run]\nseed={seed}\n"))
                for seed, status in ((1, "complete"), (2, "diverged"))]
        figure = matplotlib.figure.Figure()
        plot.fill(figure, runs, self.fail, seeds="band")
        self.assertEqual([(len(axes.lines), len(axes.collections)) for axes in figure.axes], [(1, 1), (2, 0)])

    def test_names_of_many_curves_cover_none_of_them(self):
        runs = [results.load(write_run(self.folder / f"{n}.h5", global_accuracy=np.linspace(0.9, 0.5 + 0.4 * (n % 2), 40),
                                       personal_accuracy=np.full(40, 0.05 * n)))
                for n in range(18)]
        bad = results.load(write_run(self.folder / "bad.h5", status="diverged", global_loss=np.full(40, 1e20)))
        figure = matplotlib.figure.Figure(layout="constrained")
        plot.fill(figure, [*runs, bad], self.fail)
        figure.draw_without_rendering()
        self.assertEqual(len(figure.legends[0].get_texts()), 19)
        for axes in figure.axes:
            dashes, title = axes.get_legend().get_window_extent(), axes.title.get_window_extent()
            self.assertGreaterEqual(dashes.y0, axes.bbox.y1)
            self.assertTrue(not axes.get_title() or title.y0 >= dashes.y1, (title, dashes))
        self.assertEqual(figure.axes[1].get_title(), "what has diverged goes beyond the panel")

    def test_amounts_are_per_round_in_short_numbers(self):
        run = results.load(write_run(self.folder / "run.h5", simulated_seconds=np.full(40, 0.5), wall_seconds=np.full(40, 300.0),
                                     bytes_up_client_cloud=np.full(40, 425000.0), graph_bytes=np.full(40, 7e6)))
        run.units.update(bytes_up_client_cloud="bytes", graph_bytes="bytes")
        figure = matplotlib.figure.Figure()
        plot.fill(figure, [run], self.fail, ["bytes_up_client_cloud", "graph_bytes", "wall_seconds", "simulated_seconds"],
                  "bytes")
        self.assertEqual([axes.get_ylabel() for axes in figure.axes], [
            "bytes up client cloud per round [kB]", "graph bytes per round [MB]", "wall seconds per round [min]",
            "simulated seconds per round [s]"])
        self.assertEqual([axes.lines[0].get_ydata()[0] for axes in figure.axes], [425.0, 7.0, 5.0, 0.5])

    def test_two_keys_of_one_name_are_told_apart(self):
        def runs(*seeds):
            return [results.load(write_run(self.folder / f"{n}.h5", config=f"[run]\nseed={run}\n[data]\nseed={data}\n"))
                    for n, (run, data) in enumerate(seeds)]
        self.assertEqual(labels.labels_of(runs((1, 1), (2, 2))), ["seed = 1", "seed = 2"])
        self.assertEqual(labels.labels_of(runs((1, 5), (2, 6))), ["run.seed = 1, data.seed = 5", "run.seed = 2, data.seed = 6"])

    def test_long_names_stand_below_the_panels(self):
        runs = [write_run(self.folder / f"{n}.h5") for n in range(2)]
        for name, apart in (("a", False), ("a name that has no room within a panel", True)):
            with unittest.mock.patch.object(plot, "draw_shared_legend") as shared:
                self.assertEqual(self.call(*runs, "--labels", f"{name},b")[0], 0)
            self.assertEqual(shared.called, apart)

    def test_labels_of_many_clients_have_the_colours_of_the_bar_and_numbers_with_room(self):
        counts = np.zeros((10001, 10), dtype=int)
        counts[np.arange(10001), np.arange(10001) % 10] = 100
        figure = matplotlib.figure.Figure(figsize=(5.4, 3.7), layout="constrained")
        axes = figure.subplots()
        client_panels.draw_label_map(axes, counts, "")
        figure.draw_without_rendering()
        image, = axes.images
        self.assertEqual((image.get_interpolation(), image.get_array().shape), ("nearest", (10, 385)))
        self.assertAlmostEqual(float(image.get_array().mean()), 10.0, delta=0.1)
        self.assertEqual(axes.get_xlim(), (-0.5, 10000.5))
        boxes = [text.get_window_extent() for text in axes.get_xticklabels() if 0 <= text.get_position()[0] <= 10000]
        self.assertTrue(all(left.x1 + 3 < right.x0 for left, right in zip(boxes, boxes[1:])), boxes)

    def test_panels_of_clients_and_labels(self):
        rng = np.random.default_rng(1)
        runs = [add_clients(write_run(self.folder / f"{n}.h5", config=f"[algorithm]\nname={n}\n"), rng.random((4, 30)),
                            [10, 20, 30, 40], labels=[[n, 5]] * 30) for n in (1, 2)]
        for chosen, panel, panels in ((runs[:1], "clients", 3), (runs, "clients", 2), (runs, "labels", 2),
                                      ([runs[0], runs[0]], "labels", 1), (runs, "clients,labels,accuracy,loss", 6)):
            with unittest.mock.patch.object(plot, "write_figure", wraps=plot.write_figure) as written:
                self.assertEqual(self.call(*chosen, "--panel", panel, "--output", self.folder / "out.png")[0], 0)
            drawn = [axes for axes in written.call_args[0][0].axes if axes.get_label() != "<colorbar>"]
            self.assertEqual(len(drawn), panels, panel)
        self.assert_picture(self.folder / "out.png")
        code, _, error = self.call(*runs, "--panel", "clients", "--seeds", "band")
        self.assertEqual(code, 0)  # they differ in more than seeds: groups of one
        seeds = [add_clients(write_run(self.folder / f"seed{seed}.h5", config=f"[run]\nseed={seed}\n"),
                             rng.random((4, 30)), [10, 20, 30, 40], labels=[[1, 5]] * 30) for seed in (1, 2)]
        code, _, error = self.call(*seeds, "--panel", "clients", "--seeds", "band")
        self.assertEqual((code, error.count("\n")), (2, 1))
        code, _, error = self.call(write_run(self.folder / "none.h5"), "--panel", "clients")
        self.assertEqual(code, 2)
        self.assertIn("no accuracy of clients", error)

    def test_a_histogram_has_all_clients(self):
        for accuracies in (np.ones(20), np.full(20, 0.995), np.linspace(0.5, 1, 20), np.zeros(20)):
            axes = matplotlib.figure.Figure().subplots()
            client_panels.draw_histogram(axes, SimpleNamespace(last=accuracies, rounds=[3]))
            self.assertEqual(sum(bar.get_height() for bar in axes.patches), 20)

    def test_own_series_by_family(self):
        names = ["angle_p10", "angle_p50", "angle_p90", "aggregation_gap", "effective_rank.conv1", "effective_rank.fc1",
                 "density_edge", "density_personal", "primal_residual", "dual_residual", "reception_accuracy", "gamma1",
                 "gamma2", "graph_bytes"]
        path = write_run(self.folder / "run.h5", **{name: np.full(40, 0.3) for name in names},
                         never=np.full(40, np.nan))
        with h5py.File(path, "a") as file:
            file["rounds/angle_p50"].attrs["unit"] = "rad"
            file["rounds/angle_p10"].attrs["unit"] = file["rounds/angle_p90"].attrs["unit"] = "rad"
        found = dict(panels.own_panels([results.load(path)]))
        self.assertEqual({key: sorted(value) for key, value in found.items()}, {
            "reception accuracy [%]": ["reception_accuracy"], "angle [rad]": names[:3], "aggregation gap": names[3:4],
            "effective rank": names[4:6], "density": names[6:8], "residual": ["dual_residual", "primal_residual"],
            "gamma": names[11:13], "graph bytes": names[13:]})
        self.assertEqual(found["angle [rad]"], names[:3])
        self.assertEqual(self.call(path, "--panel", "own")[0], 0)
        self.assert_picture(self.folder / "run.png")
        code, _, error = self.call(write_run(self.folder / "plain.h5"), "--panel", "own")
        self.assertEqual(code, 2)
        self.assertIn("no series of its own", error)

    def test_percentiles_are_a_band_around_the_median(self):
        path = write_run(self.folder / "run.h5", angle_p10=np.full(40, 1.0), angle_p50=np.full(40, 2.0),
                         angle_p90=np.full(40, 3.0))
        with unittest.mock.patch.object(plot, "write_figure") as written:
            self.assertEqual(self.call(path, "--panel", "own")[0], 0)
        axes, = written.call_args[0][0].axes
        self.assertEqual(sorted({line.get_ydata()[0] for line in axes.lines}), [1.0, 2.0, 3.0])
        band, = axes.collections
        self.assertEqual(set(band.get_paths()[0].vertices[:, 1]), {1.0, 3.0})

    def test_the_series_of_every_run_are_the_simulators(self):
        text = (TOOLS.parent / "include" / "fedhpc" / "engine" / "metrics.def").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"^FEDHPC_METRIC\((\w+),", text, re.MULTILINE)), panels.OF_EVERY_RUN)

    def test_vector_formats(self):
        for ending, start in ((".pdf", b"%PDF"), (".svg", b"<?xml")):
            output = self.folder / f"out{ending}"
            self.assertEqual(self.call(write_run(self.folder / "run.h5"), "--output", output)[0], 0)
            self.assertTrue(output.read_bytes().startswith(start))

    def test_live_run(self):
        path, _ = self.writer("live.h5", *["round"] * 7, "half")
        self.assertEqual(self.call(path)[0], 0)
        self.assert_picture(self.folder / "live.png")

    def test_errors_are_one_line_and_exit_code_2(self):
        foreign = self.folder / "foreign.h5"
        with h5py.File(foreign, "w") as file:
            file["x"] = 1
        text = self.folder / "text.h5"
        text.write_text("no")
        nothing = self.folder / "nothing"
        nothing.mkdir()
        good = write_run(self.folder / "run.h5")
        empty = write_run(self.folder / "empty.h5", rounds=0)
        for arguments in ([foreign], [text], [self.folder / "none.h5"], [nothing], [empty], [good, foreign],
                          [good, "--metric", "nonsense"], [good, "--labels", "one,two"], [good, "--against", "seconds"],
                          [good, "--output", self.folder / "no" / "such.png"]):
            with self.subTest(arguments):
                code, out, error = self.call(*arguments)
                self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)
                self.assertTrue(error.startswith("plot: "))


if __name__ == "__main__":
    unittest.main()
