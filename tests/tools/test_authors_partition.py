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

    def refused(self, words, *arguments):
        path = self.folder / "refused.h5"
        code, _, err = call(authors_partition, *arguments, "--data", self.folder, "--output", path, "--dataset", "mnist")
        self.assertEqual((code, err.count("\n"), path.exists()), (2, 1, False), err)
        self.assertIn(words, err)

    def test_what_cannot_be_is_refused(self):
        write_labels(self.folder, [s % 10 for s in range(3000)], [s % 10 for s in range(300)])
        self.refused("no partition gives each of 300 clients 10 samples in 20 tries", "fedmud", "--rule", "labeldir",
                     "--share", "0.1", "--clients", "300")
        self.refused("--share 0.05 is 0 of 10 labels", "fedmud", "--rule", "labelcnt", "--share", "0.05")
        self.refused("--labels 11: there are 10", "pfedme", "--labels", "11")
        for program, *option in (("pfedme", "--clients", "0"), ("pflib", "--rule", "dir", "--share", "0"),
                                 ("pfl", "--rule", "iid", "--samples", "0"), ("pfedme", "--seed", "-1")):
            self.refused(f"{option[-2]} {option[-1]}", program, *option)
        for program, rule, *option in (("fedmud", "iid", "--share", "0.1"), ("fedmud", "labeldir", "--ties", "scalar"),
                                       ("pfl", "iid", "--share", "0.5"), ("pflib", "pat", "--share", "0.5"),
                                       ("pflib", "dir", "--labels", "3")):
            self.refused(f"{option[0]} says nothing of --rule {rule}; leave it out", program, "--rule", rule, *option)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["mnist"])

    def test_labels_that_nobody_has_are_named(self):
        write_labels(self.folder, [s % 10 for s in range(100)], [0])
        code, _, err = call(authors_partition, "fedmud", "--rule", "labelcnt", "--share", "0.3", "--clients", "2", "--data",
                            self.folder, "--output", self.folder / "few.h5", "--dataset", "mnist")
        self.assertEqual((code, err), (0, "authors_partition: no client has label 6, 7, 8, 9\n"))

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
        for rule, *share in (("iid",), ("labeldir", "--share", "0.5")):
            found, _ = self.make("fedmud", "--rule", rule, *share, "--clients", "5")
            self.assertEqual(sorted(chain(*found)), list(range(600)), rule)
            self.assertGreaterEqual(min(map(len, found)), 10)
            (self.folder / "parts.h5").unlink()

    def test_pfl_users_draw_their_labels(self):
        labels = np.random.default_rng(2).integers(0, 4, 230)
        write_labels(self.folder, labels.tolist(), [0])
        found, tests = self.make("pfl", "--rule", "dirichlet", "--share", "0.3", "--samples", "20", "--seed", "7")
        np.random.seed(7)  # the program's own generator
        order = np.random.permutation(230)
        left = {label: [place for place in range(230) if labels[order[place]] == label] for label in range(4)}
        users = []
        while True:
            chances = np.random.dirichlet([0.3] * 4)
            if sum(len(places) for places in left.values()) < 20:
                break
            limits, mine, drawn = np.cumsum(chances), [], 0
            limits[-1] = 1.0
            while len(mine) < 20:
                label = int(np.argmax(np.random.uniform() < limits))
                drawn += 1
                if left[label]:
                    mine.append(int(order[left[label].pop()]))
                if drawn % 400 == 0:
                    chances = chances + 0.02
                    chances = chances / sum(chances)
                    limits = np.cumsum(chances)
                    chances[-1] = 1.0
            users.append(mine)
        self.assertEqual((found, tests), (users, [[]] * 11))
        self.assertEqual(len(set(chain(*found))), 220)
        self.assertGreater(max(np.bincount(labels[mine]).max() for mine in found), 15, "users have few labels")

    def test_pfl_users_without_labels_of_their_own(self):
        write_labels(self.folder, [s % 10 for s in range(60)], [0])
        found, _ = self.make("pfl", "--rule", "iid", "--samples", "20")
        np.random.seed(0)
        self.assertEqual(found, np.random.permutation(60).reshape(3, 20).tolist())

    def test_pflib_clients_have_blocks_of_labels(self):
        write_labels(self.folder, [s % 10 for s in range(1500)], [s % 10 for s in range(500)])
        train, test = self.make("pflib", "--rule", "pat", "--clients", "10", "--labels", "2")
        for client, (mine, others) in enumerate(zip(train, test)):
            self.assertEqual({s % 10 for s in mine + others}, {client // 2 * 2, client // 2 * 2 + 1})
            self.assertEqual(len(mine), int(0.75 * len(mine + others)))
        self.assertEqual(sorted(chain(*train, *test)), list(range(2000)))
        np.random.seed(1)
        counts = [np.random.randint(10, 100, 1)[0] for _ in range(10)]  # of the first owner of each label
        first = [sum(s % 10 == label for s in train[label // 2 * 2] + test[label // 2 * 2]) for label in range(10)]
        self.assertEqual(first, counts)
        # The first client has the first samples of its labels, in an order of its own.
        mine = sorted(s for s in train[0] + test[0] if s % 10 == 0)
        self.assertEqual(mine, list(range(0, 10 * counts[0], 10)))
        self.assertNotEqual(train[0], sorted(train[0]))

    def test_pflib_clients_have_shares_of_labels(self):
        write_labels(self.folder, [s % 10 for s in range(1500)], [s % 10 for s in range(500)])
        train, test = self.make("pflib", "--rule", "dir", "--clients", "6", "--share", "0.5")
        self.assertEqual(sorted(chain(*train, *test)), list(range(2000)))
        self.assertGreaterEqual(min(len(a) + len(b) for a, b in zip(train, test)), 40)
        self.assertEqual([len(a) for a in train], [int(0.75 * (len(a) + len(b))) for a, b in zip(train, test)])

    def test_refusals(self):
        write_labels(self.folder, [0, 1], [1])
        path = self.folder / "parts.h5"
        for arguments, words in ((["pfedme", "--data", self.folder], "too few samples"),
                                 (["pflib", "--rule", "pat", "--data", self.folder], "too few"),
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
