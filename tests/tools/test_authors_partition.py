"""Tests of authors_partition.py: the authors' rules on small files, and that the simulator's format is kept."""

import random
import struct
import unittest
from itertools import chain

import h5py
import numpy as np
from tool_support import Folder, call

from fedhpc.tools import authors_partition


def write_labels(folder, train, test):
    """Label files of MNIST's format."""
    (folder / "mnist").mkdir()
    for half, labels in (("train", train), ("t10k", test)):
        (folder / "mnist" / f"{half}-labels-idx1-ubyte").write_bytes(
            struct.pack(">ii", 2049, len(labels)) + bytes(labels))


def lists(file, name):
    offsets, samples = file[f"{name}_offsets"][:], file[f"{name}_samples"][:]
    return [samples[a:b].tolist() for a, b in zip(offsets, offsets[1:])]


class AuthorsPartition(Folder):

    def make(self, *arguments):
        path = self.folder / "parts.h5"
        code, out, err = call(authors_partition, *arguments, "--data", self.folder, "--output", path,
                              "--dataset", "mnist")
        self.assertEqual((code, err), (0, ""))
        with h5py.File(path) as file:
            return lists(file, "train"), lists(file, "test")

    def test_pfedme_takes_samples_in_file_order_and_shuffles_them(self):
        train, test = [s % 10 for s in range(100)], [s % 10 for s in range(300)]
        write_labels(self.folder, train, test)
        found, tests = self.make("pfedme", "--clients", "3", "--seed", "1")
        labels = train + test
        np.random.seed(1)  # the program's own generator
        counts = []
        for _ in range(2):
            left, counts_of_label = 40, []
            for _ in range(2):
                counts_of_label.append(np.random.randint(left // 4, left // 2))
                left -= counts_of_label[-1]
            counts.append(counts_of_label + [left])
        random.seed(1)
        place = [0] * 10
        for user in range(3):
            mine = []
            for j in range(2):
                label, count = (user + j) % 10, counts[j][user]
                of_label = [s for s, l in enumerate(labels) if l == label]
                if place[label] + count < len(of_label):
                    mine += of_label[place[label]:place[label] + count]
                    place[label] += count
            random.shuffle(mine)
            split = int(0.75 * len(mine))
            self.assertEqual((found[user], tests[user]), (mine[:split], mine[split:]))
        self.assertGreater(max(max(mine) for mine in found + tests), 100, "test samples are counted on")

    def test_label_sets_go_round_in_a_circle(self):
        write_labels(self.folder, [s % 10 for s in range(400)], [0])
        found, tests = self.make("fedmud", "--rule", "labelcnt", "--share", "0.3", "--clients", "10")
        for client, mine in enumerate(found):
            self.assertEqual({s % 10 for s in mine}, {(3 * client + j) % 10 for j in range(3)})
        self.assertEqual(tests, [[]] * 10)
        self.assertEqual(sorted(chain(*found)), list(range(400)))

    def test_hundred_labels_make_ten_blocks(self):
        for order in authors_partition.ORDERS.values():
            sets = authors_partition.label_sets(100, 100, 10, order)
            blocks = {tuple(sorted(one)) for one in sets}
            self.assertEqual(len(blocks), 10)
            self.assertEqual(sorted(chain(*blocks)), list(range(100)))

    def test_equal_values_stand_as_numpy_leaves_them(self):
        draws = np.random.default_rng(3)
        for length in (1, 2, 15, 16, 17, 18, 40, 100, 257):
            for kinds in (1, 2, 5, 1000):
                # Numbers of 16 bits are sorted without vector units.
                values = draws.integers(0, kinds, length).astype(np.int16)
                self.assertEqual(authors_partition.quicksort_order(values.tolist()), np.argsort(values).tolist())

    def test_dirichlet_and_iid_use_every_sample_once(self):
        write_labels(self.folder, [s % 10 for s in range(600)], [0])
        for rule in ("iid", "labeldir"):
            found, _ = self.make("fedmud", "--rule", rule, "--share", "0.5", "--clients", "5")
            self.assertEqual(sorted(chain(*found)), list(range(600)), rule)
            self.assertGreaterEqual(min(map(len, found)), 10)
            (self.folder / "parts.h5").unlink()

    def test_refusals(self):
        write_labels(self.folder, [0, 1], [1])
        path = self.folder / "parts.h5"
        for arguments, words in ((["pfedme", "--data", self.folder], "too few samples"),
                                 (["pfedme", "--data", "nowhere"], "no mnist/train-labels-idx1-ubyte below nowhere")):
            code, _, err = call(authors_partition, *arguments, "--output", path, "--dataset", "mnist")
            self.assertEqual(code, 2)
            self.assertIn(words, err)
        path.write_bytes(b"")
        code, _, err = call(authors_partition, "pfedme", "--data", self.folder, "--output", path)
        self.assertEqual(code, 2)
        self.assertIn("exists", err)


if __name__ == "__main__":
    unittest.main()
