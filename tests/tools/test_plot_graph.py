"""Tests of plot_graph.py and of reading similarity graphs, on small result files made here.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import contextlib
import io
import struct
import unittest
import unittest.mock

import h5py
import numpy as np
from tool_support import Folder, write_run

from fedhpc.tools import results
from fedhpc.tools import plot
from fedhpc.tools import plot_graph

# Two triangles of clients, client number modulo 2, and one edge between them.
TRIANGLES = np.array([[0, 2], [0, 4], [2, 4], [1, 3], [1, 5], [3, 5], [0, 1]])


def write_graph(path, edges=TRIANGLES, weights=None, clients=6):
    """A result file with a graph; label 1 is the majority of clients 0, 1 and 2, label 0 of the others."""
    write_run(path)
    with h5py.File(path, "a") as file:
        file["graph/edges"] = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        file["graph/weights"] = np.ones(len(edges)) if weights is None else weights
        file["clients/label_histogram"] = np.array([[3, 7] if c < 3 else [6, 4] for c in range(clients)])
    return path


class Graph(Folder):
    def call(self, *arguments):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = plot_graph.main([str(argument) for argument in arguments])
        return code, out.getvalue(), error.getvalue()

    def test_picture_and_shares(self):
        path = write_graph(self.folder / "run.h5", weights=np.linspace(0.1, 1.0, 7))
        for groups, text in (("modulo:2", "85.7 % of edges within clusters (at random 40.0 %)"),
                             ("modulo:1", "100.0 % of edges within clusters (at random 100.0 %)"),
                             ("labels", "42.9 % of edges within labels (at random 40.0 %)")):
            with self.subTest(groups):
                output = self.folder / f"{groups[-1]}.png"
                with unittest.mock.patch.object(plot_graph, "draw_graph", wraps=plot_graph.draw_graph) as draw_graph:
                    code, out, _ = self.call(path, "--groups", groups, "--title", "T", "--output", output)
                self.assertEqual(code, 0)
                self.assertEqual(out, f"run.h5: 6 clients, 7 edges, {text}\n{output}\n")
                self.assertEqual(draw_graph.call_args.args[3], f"T\n6 clients, 7 edges\n{text}")
                content = output.read_bytes()
                width, height = struct.unpack(">II", content[16:24])
                self.assertTrue(400 < width < 1500 and 400 < height < 1500 and len(content) > 8000)

    def test_output_beside_the_run(self):
        self.assertEqual(self.call(write_graph(self.folder / "run.h5"))[0], 0)
        self.assertTrue((self.folder / "run.graph.png").exists())

    def test_groups(self):
        graph = results.load_graph(write_graph(self.folder / "run.h5"))
        np.testing.assert_array_equal(plot_graph.groups_of(graph, "labels")[0], [1, 1, 1, 0, 0, 0])
        np.testing.assert_array_equal(plot_graph.groups_of(graph, "modulo:4")[0], [0, 1, 2, 3, 0, 1])
        np.testing.assert_array_equal(graph.edges, TRIANGLES)

    def test_layout_shows_the_groups(self):
        """Neighbours stand nearer than strangers, no two nodes together, also where components are apart."""
        n, k = 24, 3
        clusters = np.array([(i, j) for i in range(n) for j in range(i + 1, n) if i % k == j % k])
        for edges in (clusters, np.vstack([clusters, [[0, 1]]]), TRIANGLES):
            nodes = edges.max() + 1
            positions = plot_graph.force_layout(nodes, edges)
            np.testing.assert_array_equal(positions, plot_graph.force_layout(nodes, edges))
            distance = np.linalg.norm(positions[:, None] - positions[None], axis=2)
            group = np.arange(nodes) % (k if nodes == n else 2)
            same = (group[:, None] == group[None]) & ~np.eye(nodes, dtype=bool)
            other = group[:, None] != group[None]
            self.assertLess(1.5 * distance[same].mean(), distance[other].mean())
            self.assertGreater(distance[~np.eye(nodes, dtype=bool)].min(), 0.05 * distance.max())

    def test_two_clients_and_one_without_edges(self):
        for clients in (2, 3):
            path = write_graph(self.folder / f"{clients}.h5", edges=[[0, 1]], clients=clients)
            self.assertEqual(self.call(path)[0], 0)
            self.assertTrue(np.isfinite(plot_graph.force_layout(clients, np.array([[0, 1]]))).all())

    def test_errors_are_one_line_and_exit_code_2(self):
        good = write_graph(self.folder / "good.h5")
        cases = [([self.folder / "none.h5"], "no such file"), (["."], "a folder"),
                 ([write_run(self.folder / "plain.h5")], "no similarity graph"),
                 ([write_graph(self.folder / "empty.h5", edges=np.empty((0, 2)))], "has no edges"),
                 ([write_graph(self.folder / "beyond.h5", clients=5)], "do not fit together"),
                 ([write_graph(self.folder / "short.h5", weights=np.ones(3))], "do not fit together"),
                 ([good, "--groups", "modulo:0"], "must be labels or modulo:K"),
                 ([good, "--groups", "modulo"], "must be labels or modulo:K"),
                 ([good, "--groups", "colour"], "must be labels or modulo:K"),
                 ([good, "--title", "$x_$"], "cannot be written"),
                 ([good, "--output", self.folder / "no" / "such.png"], "cannot be written")]
        for arguments, text in cases:
            with self.subTest(arguments):
                code, out, error = self.call(*arguments)
                self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)
                self.assertTrue(error.startswith("plot_graph: "), error)
                self.assertIn(text, error)


class BitsSent(Folder):
    def test_bits_of_a_client(self):
        config = "[data]\nclients=4\n[algorithm]\nname=fedavg\n"
        links = {"bytes_up_client_edge": 8.0, "bytes_up_client_cloud": np.nan, "bytes_up_edge_cloud": 300.0,
                 "bytes_down_client_edge": 5000.0}
        columns = {name: np.full(40, value) for name, value in links.items()}
        told = np.where(np.arange(40) == 0, 100.0, 0.0)
        plain = results.load(write_run(self.folder / "plain.h5", config=config, **columns))
        graph = results.load(write_run(self.folder / "graph.h5", config=config, graph_bytes=told, **columns))
        values, label = plot.horizontal(plain, "bits")
        np.testing.assert_array_equal(values, 16.0 * np.arange(1, 41))
        np.testing.assert_array_equal(plot.horizontal(graph, "bits")[0], 800.0 + values)
        edgeless = write_run(self.folder / "none.h5", config=config + "neighbours=0\n", graph_bytes=told, **columns)
        np.testing.assert_array_equal(plot.horizontal(results.load(edgeless), "bits")[0], values)
        self.assertEqual(plot.unit_prefix(3e6, label), (1e6, "sent up by a client [Mbit]"))
        with contextlib.redirect_stdout(io.StringIO()):
            code = plot.main([str(plain.path), str(graph.path), "--against", "bits", "--metric", "global_accuracy",
                              "--output", str(self.folder / "bits.png")])
        self.assertEqual(code, 0)
        self.assertGreater((self.folder / "bits.png").stat().st_size, 8000)

    def test_logarithmic_axis(self):
        run = str(write_run(self.folder / "run.h5", config="[data]\nclients=4\n"))
        for arguments, scale in ((["--log"], "log"), ([], "linear")):
            with unittest.mock.patch.object(plot, "write_figure") as written, contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(plot.main([run, "--against", "bits", *arguments]), 0)
            self.assertEqual([axes.get_xscale() for axes in written.call_args[0][0].axes], [scale, scale])

    def test_bits_need_clients_and_traffic(self):
        unknown = results.load(write_run(self.folder / "run.h5"))
        with self.assertRaisesRegex(plot.PlotError, "lacks data.clients"):
            plot.horizontal(unknown, "bits")
        silent = write_run(self.folder / "silent.h5", config="[data]\nclients=4\n",
                           bytes_up_client_cloud=np.full(40, np.nan))
        with self.assertRaisesRegex(plot.PlotError, "no link has carried"):
            plot.horizontal(results.load(silent), "bits")

    def test_labels_are_each_runs_own_settings(self):
        configs = ("name=dsgd\ncodec=dense\n", "name=simnet\ngamma=0\ncodec=dense\n",
                   "name=simnet\ngamma=0.01\ncodec=kmeans\nk=4\n", "name=simnet\ngamma=0.01\ncodec=kmeans\nk=3\n")
        runs = [results.load(write_run(self.folder / f"{n}.h5", config="[algorithm]\n" + config))
                for n, config in enumerate(configs)]
        self.assertEqual(plot.labels_of(runs),
                         ["dsgd, codec = dense", "simnet, codec = dense, gamma = 0",
                          "simnet, codec = kmeans, gamma = 0.01, k = 4", "simnet, codec = kmeans, gamma = 0.01, k = 3"])


if __name__ == "__main__":
    unittest.main()
