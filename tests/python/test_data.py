"""Data files of one's own: what is written, what is refused, and that the program trains on it as it is meant.

The program is $FEDHPC, else build/release/fedhpc. Libraries of others are stood in for by fakes with their
interface, and are used themselves where they are installed.
"""

import importlib.util
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import tracemalloc
import unittest
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import fedhpc  # noqa: E402
from fedhpc import ConfigError, DataError, _data_file  # noqa: E402
from fedhpc.data import from_pflib, from_tff, keys, write_dataset  # noqa: E402
from python_support import read  # noqa: E402

PROGRAM = Path(os.environ.get("FEDHPC") or ROOT / "build/release/fedhpc")
DRAW = np.random.default_rng(1)


def has(library):
    return unittest.skipUnless(importlib.util.find_spec(library), f"{library} is not installed")


def pixels(count, *shape):
    return DRAW.integers(0, 256, (count, *shape), dtype=np.uint8)


def lists(path, part, place="partition/"):
    """The samples of each client in a partition."""
    offsets, samples = read(path, f"{place}{part}_offsets", f"{place}{part}_samples")
    return [samples[a:b].tolist() for a, b in zip(offsets, offsets[1:])]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.path = self.folder / "mine.h5"

    def refused(self, kind, words, *arguments, **options):
        """Not written, in one sentence with these words, and no file is left."""
        with self.assertRaisesRegex(kind, words) as caught:
            write_dataset(self.path, *arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(list(self.folder.glob("mine*")), [])

    def run_program(self, found, *arguments):
        """The result file of two rounds on these keys."""
        if not PROGRAM.is_file():
            self.skipTest(f"there is no {PROGRAM}")
        (self.folder / "run.ini").write_text("[run]\nrounds = 2\nsave = partition\n[model]\nname = mlr\n")
        output = self.folder / "out.h5"
        done = subprocess.run([PROGRAM, "run", "run.ini", "--force", f"--run.output={output}",
                               *(f"--{name}={value}" for name, value in found.items()), *arguments],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(output, "rounds/round").tolist(), [1, 2])
        self.assertTrue(np.isfinite(read(output, "rounds/train_loss")).all())
        return output


class Layout(Folder):
    def test_images_get_their_channels_in_front(self):
        x, y = pixels(30, 8, 6, 3), np.arange(30) % 4
        write_dataset(self.path, x, y)
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(x, 3, 1))
        self.assertEqual(read(self.path, "x_train").dtype, np.uint8)
        write_dataset(self.path, np.moveaxis(x, 3, 1), y)
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(x, 3, 1))
        write_dataset(self.path, x[:, :3, :, :2], y, channels="last")
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(x[:, :3, :, :2], 3, 1))
        self.assertTrue(np.array_equal(read(self.path, "y_train"), y))

    def test_number_types(self):
        y = np.arange(20) % 2
        for given, written in ((np.float64, np.float64), (np.float32, np.float32), (np.float16, np.float32),
                               (bool, np.float32), (np.int64, np.int64), (np.int8, np.int8), (np.uint8, np.uint8)):
            x = DRAW.integers(0, 2, (20, 5)).astype(given)
            write_dataset(self.path, x, y)
            self.assertEqual(read(self.path, "x_train").dtype, written)
            np.testing.assert_array_equal(read(self.path, "x_train"), x)
        write_dataset(self.path, [[0.5, 1], [2, 3]], [0.0, 1.0])
        np.testing.assert_array_equal(read(self.path, "x_train"), [[0.5, 1], [2, 3]])
        self.assertEqual(keys(self.path), {"data.name": "hdf5", "data.file": str(self.path)})

    def test_many_blocks_are_as_one(self):
        x, y = DRAW.normal(size=(5000, 30)).astype(np.float32), DRAW.integers(0, 3, 5000)
        clients, mask = DRAW.integers(0, 9, 5000), DRAW.random(5000) < 0.3
        with mock.patch.multiple("fedhpc._data_sources", BLOCK_BYTES=7000), \
                mock.patch.multiple("fedhpc._data_file", CHUNK_BYTES=20000):
            write_dataset(self.path, x, y, clients=clients, test=mask)
        for part, chosen in (("train", ~mask), ("test", mask)):
            found = read(self.path, f"x_{part}", f"y_{part}", f"client_{part}")
            for values, wanted in zip(found, (x, y, clients)):
                np.testing.assert_array_equal(values, wanted[chosen])

    def test_memory_is_that_of_a_block(self):
        source = np.memmap(self.folder / "x.raw", np.float32, "w+", shape=(60000, 400))  # 96 MB
        source[:] = 1
        tracemalloc.start()
        write_dataset(self.path, source, np.arange(60000) % 2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(peak, 64 << 20)
        self.assertEqual(read(self.path, "y_train").sum(), 30000)

    def test_server_has_test_samples_without_clients(self):
        x, y = pixels(20, 5), np.arange(20) % 2
        self.assertEqual(write_dataset(self.path, x, y, test=(x[:6], y[:6]))["data.split"], "official")
        found = write_dataset(self.path, x, y, test=(x[:6], y[:6]), clients=np.arange(20) // 5)
        self.assertEqual((found["data.split"], found["data.partition"]), ("official", "file"))
        self.assertEqual(lists(self.path, "test"), [[], [], [], []])
        with h5py.File(self.path) as file:
            self.assertNotIn("client_train", file)  # the engine wants clients of all samples or of none


    def test_targets(self):
        x, labels, tested = DRAW.normal(size=(30, 4)), np.arange(30) % 3, np.arange(30) % 5 == 0
        for y, written in ((x[:, :2] > 0, np.int32), (DRAW.integers(-1, 5, (30, 2, 3)), np.int32),
                           (x[:, 0], np.float64), (x.astype(np.float32), np.float32)):
            write_dataset(self.path, x, y, labels=labels, test=tested, classes=["a", "b", "c"])
            for part, chosen in (("train", ~tested), ("test", tested)):
                targets, own = read(self.path, f"y_{part}", f"label_{part}")
                np.testing.assert_array_equal(targets, y[chosen])
                self.assertEqual(targets.dtype, written)
                np.testing.assert_array_equal(own, labels[chosen])
            self.assertEqual(read(self.path, "names/classes"), ["a", "b", "c"])
        # Floats of one dimension are labels where all are, unless there are others.
        with self.assertWarnsRegex(UserWarning, "floats that are all whole numbers.*reshape"):
            write_dataset(self.path, x, labels.astype(float))
        self.assertEqual(read(self.path, "y_train").dtype, np.int32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write_dataset(self.path, x, labels.astype(float).reshape(-1, 1))
            self.assertEqual(read(self.path, "y_train").dtype, np.float64)
        for kind in (np.float32, np.float64):  # what BCE of PyTorch takes
            with self.assertWarnsRegex(UserWarning, r"all 0 or 1, .* regression; y.astype\(int\) makes them labels"):
                write_dataset(self.path, x, (x[:, :2] > 0).astype(kind), test=tested)
            self.assertEqual(read(self.path, "y_train").dtype, np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write_dataset(self.path, x, (x[:, :2] > 0).astype(float) / 2)
            write_dataset(self.path, x, (x[:, :1] > 0).astype(float))
        write_dataset(self.path, x, labels.astype(float), labels=labels)
        self.assertEqual(read(self.path, "y_train").dtype, np.float64)
        write_dataset(self.path, x, labels.astype(float), test=(x, x[:, 0]))
        self.assertEqual([one.dtype for one in read(self.path, "y_train", "y_test")], [np.float64] * 2)
        write_dataset(self.path, x, x, labels=labels, test=(x[:5], x[:5]), test_labels=labels[:5])
        np.testing.assert_array_equal(read(self.path, "label_test"), labels[:5])


class Refusals(Folder):
    def test_samples(self):
        y = np.arange(6) % 2
        good = np.ones((6, 2))
        for value in (np.nan, np.inf, 1e300):
            bad = good.copy()
            bad[4, 1] = value
            self.refused(DataError, "in sample 4; give finite", bad, y)
        self.refused(DataError, r"shape \(6,\)", np.ones(6), y)
        self.refused(DataError, r"shape \(6, 1, 2, 3, 4\)", np.ones((6, 1, 2, 3, 4)), y)
        self.refused(DataError, "shape", np.ones((6, 0)), y)
        self.refused(DataError, "one shape", [[1, 2], [3]] * 3, y)
        self.refused(DataError, "whole numbers or floats", np.full((6, 2), "a"), y)
        self.refused(DataError, "whole numbers or floats", np.full((6, 2), 1j), y)
        self.refused(DataError, "2\\^53", np.full((6, 2), 2**60), y)
        self.refused(DataError, "numpy.uint8", np.ones((6, 4, 4), np.int64), y)
        self.refused(DataError, "no samples to train on", np.ones((0, 4)), np.ones(0))
        for shape in ((6, 3, 8, 3), (6, 2, 8, 7)):
            self.refused(DataError, "channels='first'", np.ones(shape), y)
        self.refused(ConfigError, "allowed: 'auto'", good, y, channels="middle")
        self.refused(ConfigError, "labels are missing", (good, None))
        self.refused(ConfigError, "labels are missing", good)
        self.refused(ConfigError, "mask of bools", good, y, test=np.array([0, 1, 0, 0, 0, 1]))

    def test_labels(self):
        x = np.ones((6, 2))
        self.refused(DataError, "one label for each", x, np.zeros(5))
        self.refused(DataError, "-1 at entry 2", x, [0, 1, -1, 0, 1, 0])
        self.refused(DataError, "at entry 5", x, [0, 1, 1, 0, 1, 2**31])
        self.refused(DataError, "nan at entry 0", x, [np.nan, 1, 1, 0, 1, 0])
        self.refused(DataError, "number the classes", x, list("ababab"))
        self.refused(DataError, "at least two classes", x, np.zeros(6, int))
        self.refused(DataError, "largest label is 70000", x, [0, 1, 1, 0, 1, 70000])
        self.refused(DataError, "name classes 0 to 1", x, [0, 1] * 3, classes=["a", "b", "c"])
        for classes in (2, "ab", 2.0):
            self.refused(ConfigError, "^classes cannot be .*; give a list of names, one for each class", x, [0, 1] * 3,
                         classes=classes)

    def test_targets(self):
        x = np.ones((6, 2))
        numbers = np.linspace(0, 1, 6)
        self.refused(DataError, r"\(6, 0\)", x, np.zeros((6, 0)))
        self.refused(DataError, "inf at entry 4", x, [[0.0], [1], [2], [3], [np.inf], [5]])
        self.refused(DataError, "beyond 2147483647", x, np.full((6, 2), 2**31))
        self.refused(DataError, "whole numbers or floats", x, np.full((6, 2), "a"))
        self.refused(DataError, "labels has shape", x, numbers, labels=np.zeros((6, 1), int))
        self.refused(DataError, "labels has shape", x, numbers, labels=[0] * 7)
        self.refused(ConfigError, "labels and test_labels", x, numbers, labels=[0] * 6, test=(x, numbers))
        self.refused(ConfigError, "labels and test_labels", x, numbers, test_labels=[0] * 6, test=(x, numbers))
        self.refused(ConfigError, "without any", x, numbers, classes=["a"])
        self.refused(DataError, "bring all to one shape", x, np.ones((6, 2)), test=(x, np.ones((6, 3))))
        self.refused(DataError, "one kind", x, np.ones((6, 2)), test=(x, np.ones((6, 2), int)))

    def test_clients_and_tests(self):
        x, y = np.ones((6, 2)), [0, 1] * 3
        for clients in (np.zeros(5), np.zeros(7), np.zeros((6, 1)), 3):
            self.refused(DataError, "clients", x, y, clients=clients)
        self.refused(DataError, "without a client", x, y, clients=[1, 2, np.nan, 4, 5, 6])
        for merging in (np.full(6, 2.0**53), np.full(6, 2**24, np.float32), [2**53 + 1, 0.5, 1, 2, 3, 4]):
            self.refused(DataError, "beyond which ids merge", x, y, clients=merging)
        self.refused(DataError, "without a client", x, y, clients=np.array(["a", None] * 3, object))
        for mixed in (["a", "a", float("nan")] * 2, ("a", None, "b") * 2):
            self.refused(DataError, "without a client|numbers .* and words", x, y, clients=mixed)
        for test in (None, np.array(y) > 0):
            self.refused(DataError, r"numbers \(3\) and words \('3'\)", x, y, clients=[3, "3", 4] * 2, test=test)
        masked = np.ma.masked_array(y, mask=[0, 0, 0, 1, 0, 0])
        for name, keys in {"clients": {"clients": masked}, "x": {"x": np.ma.masked_array(x, mask=x > 0)},
                           "y": {"y": masked}, "the mask test": {"test": masked > 0}}.items():
            self.refused(DataError, f"{name}.* has masked entries", **{"x": x, "y": y, **keys})
        self.refused(DataError, "clients holds an empty word", x, y, clients=["a", ""] * 3)
        for one, other in ((y, ["0", "1"]), (np.array(["0", "1"] * 3), [0, 1])):
            self.refused(DataError, r"^ids of clients are numbers \([01]\) and words \('[01]'\), .* in test_clients too$",
                         x, y, clients=one, test=(x[:2], [0, 1]), test_clients=np.array(other))
        self.refused(ConfigError, "names a column", x, y, clients="hospital")
        self.refused(ConfigError, "names columns, and these samples have none", x, y, columns=("image", "label"))
        self.refused(DataError, "mask", x, y, test=[True, False])
        self.refused(DataError, "mask", x, y, test=np.zeros(9, bool))
        self.refused(DataError, "no samples to test on", x, y, test=np.zeros(6, bool))
        self.refused(DataError, "no samples to train on", x, y, test=np.ones(6, bool))
        self.refused(DataError, "no samples to test on", x, y, test=(np.ones((0, 2)), np.zeros(0)))
        self.refused(DataError, r"shape \(3,\) and those to train on \(2,\)", x, y, test=(np.ones((2, 3)), [0, 1]))
        self.refused(DataError, "uint8 in both", x, y, test=(np.ones((2, 2), np.uint8), [0, 1]))
        self.refused(ConfigError, "test_clients needs", x, y, test=(x, y), test_clients=y)
        self.refused(ConfigError, "test_clients needs", x, y, clients=y, test_clients=y)
        self.refused(ConfigError, "edges needs clients", x, y, edges=[0])
        self.refused(ConfigError, "edges needs test", x, y, clients=y, edges=[0, 1])
        self.refused(DataError, "edges has shape", x, y, clients=y, test=(x, y), edges=[0])
        self.refused(DataError, "no edge of client 1", x, y, clients=y, test=(x, y), edges={0: 0})
        for edges in ([0, "0"], {0: "0", 1: 0}, np.array([0, "0"], object)):
            self.refused(DataError, r"ids of edges are numbers \(0\) and words \('0'\), which name different edges",
                         x, y, clients=y, test=(x, y), edges=edges)
        for nothing in (None, np.nan):
            self.refused(DataError, "edges holds no edge of client 1", x, y, clients=y, test=(x, y), edges=[0, nothing])

    def test_nothing_is_left_of_an_error_and_the_old_file_stays(self):
        write_dataset(self.path, np.ones((6, 2)), [0, 1] * 3)
        before = self.path.read_bytes()
        for error in (KeyboardInterrupt, OSError("disk full"), ValueError):
            with mock.patch.object(_data_file._Samples, "write", side_effect=error), \
                    self.assertRaises(DataError if isinstance(error, OSError) else error):
                write_dataset(self.path, np.ones((6, 2)), [0, 1] * 3)
            self.assertEqual([one.name for one in self.folder.iterdir()], ["mine.h5"])
            self.assertEqual(self.path.read_bytes(), before)
        with self.assertRaisesRegex(DataError, "cannot be written"):
            write_dataset(self.folder / "no/mine.h5", np.ones((6, 2)), [0, 1] * 3)

    def test_what_a_file_replaces(self):
        x, y = np.ones((6, 2)), [0, 1] * 3
        write_dataset(self.path, x, y)
        write_dataset(self.path, x + 1, y)
        self.assertEqual(read(self.path, "x_train")[0, 0], 2)
        with h5py.File(self.path, "a") as file:
            file.attrs["status"] = "complete"
        before = self.path.read_bytes()
        self.assertRaisesRegex(DataError, "mine.h5 is a result file or a checkpoint of a run; give another name",
                               write_dataset, self.path, x, y)
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual([one.name for one in self.folder.iterdir()], ["mine.h5"])

    def test_what_is_read_is_not_replaced(self):
        samples, labels = np.arange(12.0).reshape(6, 2), np.array([0, 1] * 3)
        sources = {"x.h5": lambda path: h5py.File(path)["x"],
                   "x.dat": lambda path: np.memmap(path, float, "r")[:12].reshape(6, 2)}
        with h5py.File(self.folder / "x.h5", "w") as file:
            file["x"] = samples
        samples.tofile(self.folder / "x.dat")
        for name, opened in sources.items():
            path = self.folder / name
            before, x = path.read_bytes(), opened(path)
            for arguments in ((x, labels), ((x, labels), None), (samples, labels, (x, labels))):
                x, y, test = (*arguments, None)[:3]
                self.assertRaisesRegex(DataError, f"{name} is one of the files that are read; give another name",
                                       write_dataset, path, x, y, test=test)
            self.assertEqual(path.read_bytes(), before)

    def test_names_that_no_file_can_have(self):
        for path, words in ((".", "is a folder"), (self.folder, "is a folder; give the name of a file"),
                            (self.folder / "no/mine.h5", "no/mine.h5 cannot be written: there is no folder .*no; make"),
                            ("/dev/null", "null is no file that can be replaced")):
            with self.assertRaisesRegex(DataError, words) as caught:
                write_dataset(path, np.ones((6, 2)), [0, 1] * 3)
            self.assertNotIn("\n", str(caught.exception))
        with mock.patch("os.access", return_value=False):
            self.refused(DataError, "mine.h5 cannot be written: the folder .* does not permit it", np.ones((6, 2)),
                         [0, 1] * 3)

    def test_a_full_disk_is_seen_before(self):
        """HDF5 ends the process where a file cannot be finished."""
        free = SimpleNamespace(free=3 << 20)
        with mock.patch("shutil.disk_usage", return_value=free):
            write_dataset(self.path, np.ones((6, 2)), [0, 1] * 3)
            self.path.unlink()
            self.refused(DataError, r"mine.h5 cannot be written: 4.\d MB more are needed and 3.1 MB are free; make room",
                         np.ones((400, 1000)), np.arange(400) % 2)
            free.free = 1000
            self.refused(DataError, "MB are free; make room", np.ones((6, 2)), [0, 1] * 3)

    def warned(self, *arguments, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            write_dataset(self.path, *arguments, **options)
        return [str(one.message) for one in caught]

    def test_warns_of_clients_that_are_not_trained(self):
        x, y = np.ones((8, 2)), [0, 1] * 4
        keys = {"clients": np.arange(8) % 2, "test": (x, y)}
        self.assertEqual(self.warned(x, y, **keys, test_clients=np.arange(8) % 2), [])
        self.assertEqual(self.warned(x, y, **keys, test_clients=np.arange(8)),
                         ["6 of 8 clients have test samples and none to train on: 2, 3, 4, 5, 6, ..."])
        mask = np.arange(8) > 5
        self.assertEqual(self.warned(x, y, clients=["a"] * 6 + ["a", "b"], test=mask),
                         ["1 of 2 clients have test samples and none to train on: 'b'"])

    def test_warns_of_labels_from_1(self):
        x, y = np.ones((6, 2)), np.arange(6) % 3
        self.assertEqual(self.warned(x, y), [])
        self.assertRegex(self.warned(x, y + 1)[0], "no sample has the label 0, .* where labels count from 1, subtract 1")
        self.assertEqual(self.warned(x, y + 1, test=(x, y)), [])
        self.assertEqual(len(self.warned(x, y + 0.5, labels=y + 1)), 1)
        self.assertEqual(self.warned(x, y + 1.5), [])

    def test_keys_of_other_files(self):
        with self.assertRaisesRegex(DataError, "cannot be read"):
            keys(self.path)
        with h5py.File(self.path, "w") as file:
            file["x"] = 1
        with self.assertRaisesRegex(DataError, "no /x_train"):
            keys(self.path)


class Program(Folder):
    """What the program makes of the files."""

    def test_natural_clients(self):
        hospitals = np.array(["north", "east", "west"])[DRAW.integers(0, 3, 90)]
        y = DRAW.integers(0, 4, 90)
        found = write_dataset(self.path, DRAW.normal(size=(90, 5)), y, clients=hospitals)
        self.assertEqual(found, {"data.name": "hdf5", "data.file": str(self.path), "data.partition": "natural",
                                 "data.clients": 3, "data.split": "client"})
        output = self.run_program(found)
        names = read(self.path, "names/clients")
        self.assertEqual(names, ["east", "north", "west"])
        for name, train, test in zip(names, lists(output, "train"), lists(output, "test")):
            self.assertEqual(sorted(train + test), np.flatnonzero(hospitals == name).tolist())
        histogram = read(output, "clients/label_histogram")
        np.testing.assert_array_equal(histogram, [np.bincount(y[hospitals == name], minlength=4) for name in names])
        self.assertEqual(read(output, "names/clients"), names)
        self.assertEqual(fedhpc.Results(output).clients["name"].tolist(), names)

    def test_clients_have_their_own_test_samples_and_edges(self):
        clients, mask = DRAW.integers(0, 5, 200) * 10, DRAW.random(200) < 0.3
        x, y = pixels(200, 4, 4, 3), DRAW.integers(0, 3, 200)
        edges = {0: "a", 10: "c", 20: "a", 30: "b", 40: "c"}
        found = write_dataset(self.path, x, y, clients=clients, test=mask, edges=edges)
        self.assertEqual(found["topology.edges"], 3)
        output = self.run_program(found, "--algorithm.name=hierfavg")
        ends, begins = np.flatnonzero(~mask), np.flatnonzero(mask)
        for number, client in enumerate(range(0, 50, 10)):
            self.assertEqual(lists(output, "train")[number], np.flatnonzero(clients[ends] == client).tolist())
            self.assertEqual(lists(output, "test")[number],
                             (len(ends) + np.flatnonzero(clients[begins] == client)).tolist())
        np.testing.assert_array_equal(read(output, "clients/edge"), [0, 2, 0, 1, 2])
        self.assertEqual(read(self.path, "names/edges"), ["a", "b", "c"])
        # The same file with the clients' samples in one: each splits its own.
        output = self.run_program({"data.name": "hdf5", "data.file": self.path, "data.partition": "natural",
                                   "data.clients": 5})
        sizes = read(output, "clients/train_samples") + read(output, "clients/test_samples")
        np.testing.assert_array_equal(sizes, np.bincount(clients // 10))

    def test_targets(self):
        x = DRAW.normal(size=(60, 4))
        for y, measures in ((x[:, 0], {"rmse"}), (x > 0, {"accuracy", "f1"}),
                            (DRAW.integers(0, 3, (60, 5)), {"accuracy", "perplexity"})):
            output = self.run_program(write_dataset(self.path, x, y, labels=np.arange(60) % 3),
                                      "--data.partition=labels", "--data.clients=3", "--data.labels_per_client=1")
            results = fedhpc.Results(output)
            found = {one for one in ("accuracy", "f1", "perplexity", "rmse") if f"global_{one}" in results.rounds}
            self.assertEqual(found, measures)
            self.assertEqual(results.clients["labels"].tolist(), [1, 1, 1])
            compared = "rmse" if "rmse" in measures else "accuracy"
            best = results.clients[f"best_{compared}"] - results.clients[compared]
            self.assertTrue((best <= 0 if compared == "rmse" else best >= 0).all())
            results.plot()

    def test_test_samples_of_the_server(self):
        x, y = DRAW.normal(size=(60, 4)), np.arange(60) % 3
        found = write_dataset(self.path, x, y, clients=np.arange(60) // 20, test=(x[:15], y[:15]))
        output = self.run_program(found)
        self.assertEqual(lists(output, "train"), [list(range(0, 20)), list(range(20, 40)), list(range(40, 60))])
        # The accuracy of the server is that of its samples, by numpy.
        weight, bias = read(output, "model/global/fc1.weight", "model/global/fc1.bias")
        right = ((x[:15] @ weight.T + bias).argmax(1) == y[:15]).mean()
        self.assertAlmostEqual(read(output, "rounds/global_accuracy")[-1], right)

    def test_a_client_with_test_samples_alone(self):
        x, y = DRAW.normal(size=(20, 4)), np.arange(20) % 2
        found = write_dataset(self.path, x, y, clients=["a", "b"] * 10, test=(x[:6], y[:6]),
                              test_clients=["a", "a", "b", "c", "c", "c"])
        output = self.run_program(found)
        np.testing.assert_array_equal(read(output, "clients/test_samples"), [2, 1, 3])
        np.testing.assert_array_equal(read(output, "clients/train_samples"), [10, 10, 0])


class Example(Folder):
    def test_own_data(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        module = subprocess.run([sys.executable, "-c", "import fedhpc._core"], env=environment, capture_output=True)
        if module.returncode:
            self.skipTest("the compiled module is not built")
        done = subprocess.run([sys.executable, ROOT / "examples/own_data.py", self.folder], env=environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = re.findall(r"^(\w+) +is right about (\d+\.\d)%", done.stdout, re.M)
        self.assertEqual([method for method, _ in told], ["fedavg", "pfedme", "localonly"])
        for method, share in told:
            accuracy = read(self.folder / f"{method}.h5", "rounds/personal_accuracy")[-1]
            self.assertAlmostEqual(100 * accuracy, float(share), delta=0.051)
            self.assertGreater(accuracy, 0.8)  # a third by chance
            self.assertEqual(len(list((self.folder / "logs" / method).iterdir())), 1)


    def test_targets(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        module = subprocess.run([sys.executable, "-c", "import fedhpc._core"], env=environment, capture_output=True)
        if module.returncode:
            self.skipTest("the compiled module is not built")
        done = subprocess.run([sys.executable, ROOT / "examples/targets.py", "--rounds=10", f"--folder={self.folder}"],
                              env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        self.assertEqual(list(told), ["sequences", "several_labels", "regression"])
        self.assertGreater(float(re.search(r"accuracy (\S+)", told["sequences"])[1]), 0.7)  # a third by chance
        self.assertGreater(float(re.search(r"f1 (\S+)", told["several_labels"])[1]), 0.65)
        self.assertLess(float(re.search(r"rmse (\S+)", told["regression"])[1]), 0.1)


class Table:
    """A Dataset with the interface of Hugging Face's."""

    def __init__(self, names=None, **columns):
        self.columns = columns
        self.features = {name: SimpleNamespace(names=names if name in ("label", "fine_label") else None)
                         for name in columns}
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows):
        return {name: values[rows] for name, values in self.columns.items()}

    def iter(self, batch_size):
        for first in range(0, len(self), batch_size):
            yield self[first:first + batch_size]


class Federated:
    """A FederatedDataset with the interface of flwr-datasets."""

    def __init__(self, **splits):
        self.splits, self.loaded = splits, set()
        self.partitioners = {name: self.Partitioner(self, name) for name in splits}

    def load_partition(self, number, split="train"):
        self.loaded.add(split)
        return self.splits[split][number]

    class Partitioner:
        def __init__(self, owner, split):
            self.owner, self.split = owner, split

        @property
        def num_partitions(self):
            if self.split not in self.owner.loaded:
                raise ValueError("the data set is not assigned")
            return len(self.owner.splits[self.split])


class Libraries(Folder):
    def table(self, count=300, **more):
        return Table(["cat", "dog", "eel"], image=list(pixels(count, 6, 5, 3)),
                     label=[0, 1, 2] * (count // 3), **more)

    def test_tables(self):
        table = self.table(writer=[f"w{i % 4}" for i in range(300)])
        found = write_dataset(self.path, table, clients="writer")
        self.assertEqual(found["data.clients"], 4)
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(np.stack(table.columns["image"]), 3, 1))
        np.testing.assert_array_equal(read(self.path, "client_train"), np.arange(300) % 4)
        self.assertEqual(read(self.path, "names/classes", "names/clients"),
                         [["cat", "dog", "eel"], ["w0", "w1", "w2", "w3"]])
        named = Table(picture=[[1.5, 2], [3, 4]], kind=[0, 1])
        write_dataset(self.path, named, columns=("picture", "kind"))
        np.testing.assert_array_equal(read(self.path, "x_train"), [[1.5, 2], [3, 4]])

    def test_names_of_classes_are_guessed_of_labels_alone(self):
        targets = Table(["cat", "dog", "eel"], image=list(pixels(30, 6, 5)), label=list(DRAW.normal(size=(30, 2))))
        labels = np.arange(30) % 3
        for options in ({}, {"labels": labels}, {"labels": labels, "classes": ["a", "b", "c"]}):
            write_dataset(self.path, targets, **options)
            with h5py.File(self.path) as file:
                self.assertEqual("names" in file, "classes" in options)

    def test_tables_refused(self):
        self.refused(ConfigError, "among picture, kind", Table(picture=[[1, 2]], kind=[0]))
        self.refused(ConfigError, "no column writer", self.table(), clients="writer")
        self.refused(DataError, "sample 1 has shape", Table(image=[np.ones((4, 4)), np.ones((4, 5))], label=[0, 1]))
        self.refused(ConfigError, "no split train", {"test": self.table()})
        self.refused(ConfigError, "cannot be read from int", 3)

    def test_splits(self):
        train, test = self.table(300), self.table(60)
        found = write_dataset(self.path, {"train": train, "test": test})
        self.assertEqual(found["data.split"], "official")
        self.assertEqual(read(self.path, "x_test").shape, (60, 3, 6, 5))
        self.run_program(found, "--data.clients=5")

    def test_federated(self):
        parts, tests = [self.table(n) for n in (30, 60, 90)], [self.table(n) for n in (9, 12, 15)]
        self.assertEqual(write_dataset(self.path, Federated(train=parts))["data.clients"], 3)
        self.assertEqual(np.bincount(read(self.path, "client_train")).tolist(), [30, 60, 90])
        self.assertEqual(read(self.path, "names/classes"), ["cat", "dog", "eel"])
        output = self.run_program(write_dataset(self.path, Federated(train=parts, test=tests)))
        self.assertEqual(read(output, "clients/test_samples").tolist(), [9, 12, 15])
        found = write_dataset(self.path, Federated(train=parts), test=tests[0])
        self.assertEqual((found["data.split"], found["data.partition"]), ("official", "file"))
        self.path.unlink()
        self.refused(ConfigError, "partitions", Federated(train=parts), clients=[1])
        self.refused(ConfigError, "no mask", Federated(train=parts), test=np.ones(180, bool))
        self.refused(ConfigError, "leave test out", Federated(train=parts, test=tests), test=tests[0])
        self.refused(ConfigError, "no partitioner", Federated(test=parts))

    def test_pairs(self):
        class Pairs:
            transform = target_transform = transforms = None
            data, targets = pixels(40, 7, 7), list(range(4)) * 10

            def __len__(self):
                return len(self.data)

            def __getitem__(self, number):
                return self.data[number] / np.float32(255), self.targets[number]

        class Plain(Pairs):
            def __getitem__(self, number):
                return self.data[number], self.targets[number]

        write_dataset(self.path, Plain())
        self.assertEqual(read(self.path, "x_train").dtype, np.uint8)
        np.testing.assert_array_equal(read(self.path, "x_train"), Pairs.data)  # as it is stored
        write_dataset(self.path, Pairs())  # its items are something else
        np.testing.assert_array_equal(read(self.path, "x_train"), Pairs.data / np.float32(255))
        changed = Pairs()
        changed.transform = True
        write_dataset(self.path, changed)
        np.testing.assert_array_equal(read(self.path, "x_train"), Pairs.data / np.float32(255))
        np.testing.assert_array_equal(read(self.path, "y_train"), Pairs.targets)
        self.path.unlink()
        self.refused(DataError, "no pairs", [1, 2, 3])

    @has("PIL")
    def test_images_with_a_palette(self):
        from PIL import Image
        colours = pixels(2, 4, 4, 3) // 128 * 128
        images = [Image.fromarray(one).convert("P") for one in colours]
        write_dataset(self.path, list(zip(images, [0, 1])))
        wanted = np.stack([np.asarray(image.convert("RGB")) for image in images])
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(wanted, 3, 1))

    @has("datasets")
    def test_datasets_itself(self):
        import datasets
        from PIL import Image
        images, labels = pixels(30, 5, 6, 3), np.arange(30) % 2
        features = datasets.Features({"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=["no", "yes"])})
        split = datasets.Dataset.from_dict({"img": [Image.fromarray(one) for one in images], "fine_label": labels},
                                           features=features)
        found = write_dataset(self.path, datasets.DatasetDict(train=split, test=split.select(range(10))))
        self.assertEqual(found["data.split"], "official")
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(images, 3, 1))
        np.testing.assert_array_equal(read(self.path, "y_test"), labels[:10])
        self.assertEqual(read(self.path, "names/classes"), ["no", "yes"])
        write_dataset(self.path, split.with_format("numpy"))
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(images, 3, 1))
        write_dataset(self.path, split.to_iterable_dataset())
        np.testing.assert_array_equal(read(self.path, "x_train"), np.moveaxis(images, 3, 1))

    @has("flwr_datasets")
    def test_flwr_datasets_itself(self):
        import datasets
        from flwr_datasets import FederatedDataset
        from flwr_datasets.partitioner import IidPartitioner, NaturalIdPartitioner
        rows = {"x": DRAW.normal(size=(40, 3)).tolist(), "label": [0, 1] * 20, "who": ["a", "b", "b", "c"] * 10}
        for split in ("train", "test"):
            datasets.Dataset.from_dict(rows).to_parquet(self.folder / f"set/{split}.parquet")
        with mock.patch.dict(os.environ, HF_HOME=str(self.folder)):
            federated = FederatedDataset(dataset=str(self.folder / "set"), cache_dir=str(self.folder / "cache"),
                                         partitioners={"train": NaturalIdPartitioner("who"), "test": IidPartitioner(3)})
            write_dataset(self.path, federated)
        self.assertEqual(sorted(map(len, lists(self.path, "train"))), [10, 10, 20])
        self.assertEqual(sorted(map(len, lists(self.path, "test"))), [13, 13, 14])

    @has("torchvision")
    def test_torchvision_itself(self):
        import torch
        from torchvision import datasets, transforms
        images = pixels(6, 28, 28)
        raw = self.folder / "MNIST/raw"
        raw.mkdir(parents=True)
        for part in ("train", "t10k"):
            header = np.array([0x803, 6, 28, 28], ">i4").tobytes()
            (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
            header = np.array([0x801, 6], ">i4").tobytes()
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + bytes([0, 1, 2, 0, 1, 2]))
        plain = datasets.MNIST(self.folder)
        write_dataset(self.path, plain, test=datasets.MNIST(self.folder, train=False))
        np.testing.assert_array_equal(read(self.path, "x_train"), images)
        write_dataset(self.path, torch.utils.data.Subset(plain, [3, 1, 4]))
        np.testing.assert_array_equal(read(self.path, "x_train"), images[[3, 1, 4]])
        write_dataset(self.path, datasets.MNIST(self.folder, transform=transforms.ToTensor()))
        np.testing.assert_array_equal(read(self.path, "x_train"), images[:, None] / np.float32(255))
        write_dataset(self.path, plain.data, plain.targets, test=plain.targets == 2)
        np.testing.assert_array_equal(read(self.path, "x_test"), images[[2, 5]])


class Formats(Folder):
    def tff(self, name, clients):
        with h5py.File(self.folder / name, "w") as file:
            for client, arrays in clients.items():
                for key, values in arrays.items():
                    file[f"examples/{client}/{key}"] = values
        return self.folder / name

    def femnist(self, name, sizes, levels=255.0):
        clients = {client: {"pixels": (pixels(n, 28, 28) / levels).astype(np.float32),
                            "label": DRAW.integers(0, 62, n).astype(np.int32)} for client, n in sizes.items()}
        return clients, self.tff(name, clients)

    def test_femnist(self):
        train, first = self.femnist("train.h5", {"f0001_41": 12, "f0000_14": 20, "f0002_00": 9})
        test, second = self.femnist("test.h5", {"f0001_41": 3, "f0000_14": 4, "f0002_00": 2})
        found = from_tff(self.path, first, second)
        self.assertEqual((found["data.partition"], found["data.split"]), ("file", "client"))
        self.assertEqual(read(self.path, "x_train").dtype, np.uint8)
        ids = sorted(train)
        self.assertEqual(read(self.path, "names/clients"), ids)
        wanted = np.concatenate([train[one]["pixels"] for one in ids])
        np.testing.assert_allclose(read(self.path, "x_train") / 255, wanted, atol=1e-7)
        np.testing.assert_array_equal(read(self.path, "y_test"), np.concatenate([test[one]["label"] for one in ids]))
        output = self.run_program(found)
        self.assertEqual(read(output, "clients/train_samples").tolist(), [20, 12, 9])
        self.assertEqual(read(output, "clients/test_samples").tolist(), [4, 3, 2])
        train, first = self.femnist("train.h5", {"a": 5, "b": 6}, levels=256.0)
        self.assertEqual(from_tff(self.path, first)["data.clients"], 2)
        wanted = np.concatenate([train[one]["pixels"] for one in "ab"])
        np.testing.assert_array_equal(read(self.path, "x_train"), wanted)

    def test_cifar100(self):
        def clients(count):
            return {str(k): {"image": pixels(6, 32, 32, 3), "label": DRAW.integers(0, 100, (6, 1)),
                             "coarse_label": np.zeros((6, 1), int)} for k in range(count)}
        train = clients(12)
        found = from_tff(self.path, self.tff("train.h5", train), self.tff("test.h5", clients(3)))
        self.assertEqual((found["data.partition"], found["data.split"]), ("file", "official"))
        self.assertEqual(read(self.path, "names/clients"), [str(k) for k in range(12)])
        np.testing.assert_array_equal(read(self.path, "x_train")[60:66], np.moveaxis(train["10"]["image"], 3, 1))
        self.assertEqual(read(self.path, "x_test").shape, (18, 3, 32, 32))
        self.run_program(found)

    def test_shakespeare(self):
        source = self.tff("train.h5", {"THE_PLAY_HAMLET": {"snippets": [b"to be", "é!".encode()]},
                                       "THE_PLAY_LEAR": {"snippets": [b"no"]}})
        found = from_tff(self.path, source, source, window=3)
        vocabulary = fedhpc.data._data_tff.CHARACTERS
        self.assertEqual((len(vocabulary), len(set(vocabulary))), (86, 86))
        x, y = read(self.path, "x_train", "y_train")
        self.assertEqual("".join(vocabulary[label] for label in y), "to be!no")
        shown = ["".join(vocabulary[place.argmax()] if place.any() else "." for place in sample)
                 for sample in x.reshape(-1, 3, 86)]
        self.assertEqual(shown, ["...", "..t", ".to", "to ", "o b", "...", "...", "..n"])
        self.assertEqual(set(np.unique(x)), {0, 255})
        self.assertEqual(read(self.run_program(found), "clients/test_samples").tolist(), [6, 2])

    def test_tff_does_not_replace_what_it_reads(self):
        image = np.zeros((4, 28, 28), np.float32)
        examples = {"a": {"pixels": image, "label": np.arange(4)}, "b": {"pixels": image, "label": np.arange(4)}}
        path = self.folder / "a.h5"
        with h5py.File(path, "w") as file:
            for client, arrays in examples.items():
                for name, values in arrays.items():
                    file[f"examples/{client}/{name}"] = values
        before = path.read_bytes()
        for train, test in ((path, None), (os.fspath(path), path)):
            with self.assertRaisesRegex(DataError, "a.h5 is one of the files that are read"):
                from_tff(path, train, test)
        self.assertEqual(path.read_bytes(), before)

    def test_tff_refused(self):
        whole = self.tff("whole.h5", {"a": {"pixels": np.zeros((2, 28, 28), np.float32), "label": [0, 1]}})
        for words, name, content in (("no clients", "a.h5", {}), ("has title", "b.h5", {"a": {"title": [b"x"]}}),
                                     ("has no label", "c.h5", {"a": {"pixels": np.zeros((2, 28, 28))}})):
            with self.assertRaisesRegex(DataError, words):
                from_tff(self.path, self.tff(name, content))
        with self.assertRaisesRegex(DataError, "cannot be read"):
            from_tff(self.path, whole, self.folder / "none.h5")
        for window in (0, True, 2.0):
            with self.assertRaisesRegex(ConfigError, "window"):
                from_tff(self.path, whole, window=window)
        from_tff(self.folder / "of_numpy.h5", whole, window=np.int64(3))
        self.assertFalse(list(self.folder.glob("mine*")))

    def pflib(self, sizes=(12, 30, 9), **config):
        contents = {}
        for part, share in (("train", 3), ("test", 1)):
            (self.folder / "set" / part).mkdir(parents=True, exist_ok=True)
            for k, n in enumerate(sizes):
                content = {"x": DRAW.normal(size=(n * share // 3, 1, 4, 4)).astype(np.float32),
                           "y": DRAW.integers(0, 10, n * share // 3)}
                contents[part, k] = content
                np.savez_compressed(self.folder / f"set/{part}/{k}.npz", data=content)
        (self.folder / "set/config.json").write_text(json.dumps({"num_clients": len(sizes), **config}))
        return contents

    def test_pflib(self):
        contents = self.pflib(sizes=range(9, 45, 3))  # more than ten: 10.npz stands before 2.npz
        found = from_pflib(self.path, self.folder / "set")
        for part in ("train", "test"):
            for key in "xy":
                wanted = np.concatenate([contents[part, k][key] for k in range(12)])
                np.testing.assert_array_equal(read(self.path, f"{key}_{part}"), wanted)
        output = self.run_program(found)
        self.assertEqual(read(output, "clients/test_samples").tolist(), [n // 3 for n in range(9, 45, 3)])
        self.assertEqual(read(self.path, "names/clients"), [str(k) for k in range(12)])

    def test_pickles_of_all_protocols(self):
        for protocol in (2, 3, 4, 5):
            content = np.array({"x": np.ones((2, 3)), "y": np.array([np.int64(0), 1])}, object)
            buffer = io.BytesIO()
            np.lib.format.write_array_header_1_0(buffer, np.lib.format.header_data_from_array_1_0(content))
            buffer.write(pickle.dumps(content, protocol).replace(b"numpy._core", b"numpy.core") if protocol < 4 else
                         pickle.dumps(content, protocol))
            path = self.folder / "one.npz"
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("data.npy", buffer.getvalue())
            x, y = fedhpc.data._data_pflib._pickled(path)
            self.assertEqual((x.tolist(), y.tolist()), (np.ones((2, 3)).tolist(), [0, 1]))

    def test_code_in_a_pickle_does_not_run(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(self.place),)
        self.pflib()
        evil = Evil()
        evil.place = self.folder / "evil"
        for content in (evil, {"x": np.ones((2, 2)), "y": [0, 1], "more": evil}):
            np.savez(self.folder / "set/train/1.npz", data=np.array([content, None], object)[0:1].reshape(()))
            with self.assertRaisesRegex(DataError, r"train/1.npz: it cannot be read \(it names posix.mkdir"):
                from_pflib(self.path, self.folder / "set")
        self.assertFalse(evil.place.exists())
        self.assertFalse(list(self.folder.glob("mine*")))

    def test_pflib_with_missing_files(self):
        self.pflib(sizes=(12, 30, 9, 9))
        (self.folder / "set/config.json").unlink()
        (self.folder / "set/test/2.npz").unlink()
        (self.folder / "set/train/1.npz").unlink()
        with self.assertWarnsRegex(UserWarning, "2 of 8 files are missing: train/1.npz, test/2.npz") as caught:
            from_pflib(self.path, self.folder / "set")
        self.assertEqual(len(caught.warnings), 1)
        (self.folder / "set/train/2.npz").unlink()
        with self.assertRaisesRegex(DataError, "2.npz is missing in .*train, which has 3.npz; give a whole data set"):
            from_pflib(self.path, self.folder / "set")

    def test_pflib_refused(self):
        with self.assertRaisesRegex(DataError, "no train/0.npz"):
            from_pflib(self.path, self.folder)
        self.pflib()
        damaged = self.folder / "set/train/2.npz"
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:200])
        with self.assertRaisesRegex(DataError, "2.npz: it cannot be read"):
            from_pflib(self.path, self.folder / "set")
        np.savez(damaged, data=np.ones(3))
        with self.assertRaisesRegex(DataError, "no dict"):
            from_pflib(self.path, self.folder / "set")
        damaged.unlink()
        with self.assertRaisesRegex(DataError, "files of 2 clients and config.json 3: 2.npz is missing"):
            from_pflib(self.path, self.folder / "set")


if __name__ == "__main__":
    unittest.main()
