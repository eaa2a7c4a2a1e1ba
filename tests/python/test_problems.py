"""The problems that the field measures itself by: their published files as ours, and configs/benchmarks/ on small ones.

Files in the published layouts are made here.
"""

import configparser
import functools
import json
import os
import random
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import unittest
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

import fedhpc
from fedhpc import ConfigError, DataError, _data_text, _data_tff
from fedhpc.data import from_leaf, from_tff, synthetic
from fedhpc.tools import fetch_data
from python_support import SOURCE, InFolder, read

sys.path.insert(0, str(SOURCE / "examples"))
import benchmarks  # noqa: E402

BENCHMARKS = SOURCE / "configs" / "benchmarks"
PROGRAM = Path(os.environ.get("FEDHPC") or SOURCE / "build/release/fedhpc")
DRAW = np.random.default_rng(5)


def classes_of(path):
    with h5py.File(path) as file:
        return file["y_train"].attrs.get("classes")


def leaf_file(path, clients, **more):
    """A JSON file of LEAF; clients: {name: (samples, labels)}."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "users": list(clients), "num_samples": [len(y) for _, y in clients.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in clients.items()}, **more}))
    return path


def femnist_client(count, classes=62):
    pixels = DRAW.integers(0, 256, (count, 784))
    return pixels, ((pixels / 255).tolist(), DRAW.integers(0, classes, count).tolist())


def windows(text, length=80):
    return [text[i:i + length] for i in range(len(text) - length)], [text[i] for i in range(length, len(text))]


class Leaf(InFolder):
    def test_femnist(self):
        pixels, data = {}, {}
        for name, count in (("f3795_00", 7), ("f0102_01", 9), ("f0009_02", 4)):
            pixels[name], data[name] = femnist_client(count)
        leaf_file("data/train/all_data_0_train_9.json", {name: data[name] for name in ("f3795_00", "f0102_01")})
        leaf_file("data/train/all_data_1_train_9.json", {"f0009_02": data["f0009_02"]})
        leaf_file("data/test/all_data_0_test_9.json", data)
        found = from_leaf("femnist.h5", "data", classes=62)
        self.assertEqual((found["data.partition"], found["data.split"]), ("file", "client"))
        self.assertEqual(read("femnist.h5", "names/clients"), ["f0009_02", "f0102_01", "f3795_00"])
        order = ("f3795_00", "f0102_01", "f0009_02")
        x, y, client = read("femnist.h5", "x_train", "y_train", "client_train")
        self.assertEqual(x.dtype, np.uint8)
        np.testing.assert_array_equal(x, np.concatenate([pixels[name] for name in order]).reshape(-1, 28, 28))
        np.testing.assert_array_equal(y, np.concatenate([data[name][1] for name in order]))
        np.testing.assert_array_equal(client, [2] * 7 + [1] * 9 + [0] * 4)
        self.assertEqual(classes_of("femnist.h5"), 62)
        # One file alone, without test samples.
        self.assertEqual(from_leaf("one.h5", "data/train/all_data_0_train_9.json")["data.partition"], "natural")
        self.assertIsNone(classes_of("one.h5"))

    def test_shakespeare(self):
        texts = {"HAMLET": "To be, or not to be: that is the question [Whether] 'tis nobler & 1 2 3; " * 2,
                 "LEAR": "Blow, winds, and crack your cheeks! rage! blow! You cataracts and hurricanoes, spout"}
        data = {name: windows(text) for name, text in texts.items()}
        leaf_file("train/all.json", data, hierarchies=["a", "b"])
        leaf_file("test/all.json", {"LEAR": data["LEAR"]})
        from_leaf("shakespeare.h5", ".")
        x, y = read("shakespeare.h5", "x_train", "y_train")
        alphabet = _data_text.LEAF_CHARACTERS
        self.assertEqual((len(alphabet), len(set(alphabet)), alphabet[0], alphabet[-1]), (80, 80, "\n", "}"))
        self.assertEqual((x.shape[1], x.dtype), (80, np.int16))
        self.assertEqual(["".join(alphabet[i] for i in row) for row in x], data["HAMLET"][0] + data["LEAR"][0])
        self.assertEqual([alphabet[i] for i in y], data["HAMLET"][1] + data["LEAR"][1])
        self.assertEqual(classes_of("shakespeare.h5"), 80)

    def test_numbers_and_users_of_the_server(self):
        data = {str(k): (DRAW.normal(size=(5, 60)).tolist(), [float(i % 3) for i in range(5)]) for k in range(12)}
        leaf_file("train.json", {name: data[name] for name in list(data)[:11]})
        leaf_file("test.json", {"11": data["11"]})
        found = from_leaf("numbers.h5", "train.json", "test.json")
        self.assertEqual(found["data.split"], "official")
        self.assertEqual(read("numbers.h5", "names/clients"), [str(k) for k in range(11)])  # not 0, 1, 10, 2
        np.testing.assert_array_equal(read("numbers.h5", "x_test"), np.float32(data["11"][0]))
        # 07 is another user than 7.
        leaf_file("zeros.json", {name: data["1"] for name in ("7", "07")})
        self.assertEqual(from_leaf("zeros.h5", "zeros.json")["data.clients"], 2)
        # Standardised pixels are numbers.
        leaf_file("mnist.json", {"f_0": (DRAW.normal(size=(4, 784)).tolist(), [0, 1, 0, 1])})
        from_leaf("mnist.h5", "mnist.json")
        self.assertEqual(read("mnist.h5", "x_train").shape, (4, 784))

    def test_memory_is_that_of_a_file(self):
        for number in range(4):
            leaf_file(f"train/{number}.json", {f"u{number}": femnist_client(60)[1]})
        peaks = []
        for source in ("train/0.json", "train"):
            tracemalloc.start()
            from_leaf("x.h5", source)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        self.assertLess(peaks[1], 1.5 * peaks[0])

    def test_refused(self):
        good = femnist_client(3)[1]
        _, (x, y) = femnist_client(3)
        cases = [
            ("no \\*.json", lambda: Path("empty").mkdir() or "empty", {}),
            ("with users, num_samples", lambda: Path("a.json").write_text("{}") and "a.json", {}),
            ("cannot be read", lambda: Path("b.json").write_text("{") and "b.json", {}),
            ("num_samples 9", lambda: leaf_file("c.json", {"u": good}, num_samples=[9]), {}),
            ("cannot be read", lambda: leaf_file("c2.json", {"u": good}, num_samples=[3, 4]), {}),
            ("'é', which is not among LEAF's 80", lambda: leaf_file("d.json", {"u": (["abé"], ["a"])}), {}),
            ("texts of one length", lambda: leaf_file("e.json", {"u": (["ab", "abc"], ["a", "b"])}), {}),
            ("next character alone", lambda: leaf_file("f.json", {"u": (["ab"], ["ab"])}), {}),
            ("set kind='numbers'", lambda: leaf_file("g.json", {"u": good, "v": ([[0.123] * 784], [0])}), {}),
            ("samples of one length", lambda: leaf_file("h.json", {"u": ([[1.5, 2], [3]], [0, 1])}),
             {"kind": "numbers"}),
            ("could not convert string", lambda: leaf_file("j.json", {"u": ([["id", "a text"]], [0])}), {}),
            ("could not convert string", lambda: leaf_file("k.json", {"u": (["ab"], [0])}), {"kind": "numbers"}),
            ("all lists of numbers or all texts", lambda: leaf_file("l.json", {"u": ([[1, None], [1]], [0, 1])}), {}),
            ("no lists", lambda: leaf_file("m.json", {"u": (3, [3])}), {}),
            ("61 classes", lambda: leaf_file("i.json", {"u": (x, [61, *y[1:]])}), {"classes": 61}),
        ]
        for words, make, options in cases:
            with self.subTest(words), self.assertRaisesRegex(DataError, words):
                from_leaf("mine.h5", make(), **options)
        with self.assertRaisesRegex(ConfigError, "kind cannot be 'pictures'"):
            from_leaf("mine.h5", "a.json", kind="pictures")
        leaf_file("train.json", {"u": good, "v": good})
        leaf_file("test.json", {"w": good, "u": good})
        with self.assertRaisesRegex(DataError, "client u has samples to train on"):
            from_leaf("mine.h5", "train.json", "test.json")
        self.assertFalse(list(Path().glob("mine*")))


def tff_file(name, clients):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(name, "w") as file:
        for client, arrays in clients.items():
            for key, values in arrays.items():
                file[f"examples/{client}/{key}"] = values
    return name


def varint(number):
    more = []
    while number > 127:
        more.append(number & 127 | 128)
        number >>= 7
    return bytes([*more, number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def serialised(**features):
    """An Example of TensorFlow: texts, arrays of floats or of whole numbers."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            values = field(1, field(1, value))
        elif np.asarray(value).dtype.kind == "f":
            values = field(2, field(1, np.asarray(value, "<f4").tobytes()))
        else:
            values = field(3, field(1, b"".join(varint(int(one)) for one in np.ravel(value))))
        entries += field(1, field(1, name.encode()) + field(2, values))
    return field(1, entries)


def database(name, rows):
    """An SQLite file of TensorFlow Federated; rows: (split, client, serialised sample)."""
    with sqlite3.connect(name) as base:
        base.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
        base.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        base.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
        counts = {}
        for split, client, _ in rows:
            counts[client, split] = counts.get((client, split), 0) + 1
        base.executemany("INSERT INTO client_metadata VALUES (?, ?, ?)", [(*key, n) for key, n in counts.items()])
    base.close()
    return name


def expected_words(sentence, words, length):
    """(sample, labels) by the rule of Reddi et al."""
    numbers = [words.index(word) + 1 if word in words else len(words) + 1 for word in sentence.split(" ")[:length]]
    numbers = [len(words) + 2, *numbers] + ([len(words) + 3] if len(numbers) < length else [])
    numbers += [0] * (length + 1 - len(numbers))
    return numbers[:-1], numbers[1:]


class TensorFlowFederated(InFolder):
    WORDS = ["the", "a", "to", "is", "."]
    SENTENCES = {"0000001": ["the answer is a", "is is is is is is is ."], "0000005": ["to", "a b c d e f"]}

    def test_shakespeare_as_sequences(self):
        play = tff_file("train.h5", {"HAMLET": {"snippets": [b"to be or not", "né".encode()]},
                                     "LEAR": {"snippets": [b"howl"]}})
        found = from_tff("sequences.h5", play, play, length=5)
        self.assertEqual(found["data.split"], "client")
        x, y, client = read("sequences.h5", "x_train", "y_train", "client_train")
        number = {one: place for place, one in enumerate(_data_text.CHARACTERS, 1)}
        pad, unknown, begin, end = 0, 87, 88, 89
        wanted = []
        for text in ("to be or not", "n??", "howl"):
            numbers = [begin, *(number.get(one, unknown) if one != "?" else unknown for one in text), end]
            numbers += [pad] * (-len(numbers) % 6)
            wanted += [numbers[i:i + 6] for i in range(0, len(numbers), 6)]
        np.testing.assert_array_equal(np.column_stack([x, y[:, -1]]), wanted)
        np.testing.assert_array_equal(y[:, :-1], x[:, 1:])
        self.assertEqual(client.tolist(), [0, 0, 0, 0, 1])
        self.assertEqual(classes_of("sequences.h5"), 90)

    def test_stack_overflow(self):
        Path("stackoverflow.word_count").write_text("".join(f"{word} {90 - i}\n" for i, word in
                                                            enumerate([*self.WORDS, "seldom"])))
        source = tff_file("so.h5", {client: {"tokens": [one.encode() for one in sentences], "title": [b"t", b"t"]}
                                    for client, sentences in self.SENTENCES.items()})
        found = from_tff("words.h5", source, source, vocabulary="stackoverflow.word_count", words=5, length=4)
        self.assertEqual(found["data.split"], "official")
        pairs = [expected_words(one, self.WORDS, 4) for sentences in self.SENTENCES.values() for one in sentences]
        for part in ("train", "test"):
            x, y = read("words.h5", f"x_{part}", f"y_{part}")
            np.testing.assert_array_equal(x, [x for x, _ in pairs])
            np.testing.assert_array_equal(y, [y for _, y in pairs])
        self.assertEqual((classes_of("words.h5"), x.dtype), (9, np.int16))
        from_tff("few.h5", source, source, vocabulary=self.WORDS, words=5, sentences=1, test_clients=1)
        self.assertEqual(read("few.h5", "client_train").tolist() if "client_train" in h5py.File("few.h5") else
                         np.diff(read("few.h5", "partition/train_offsets")).tolist(), [1, 1])
        self.assertEqual(read("few.h5", "x_test").shape, (2, 20))

    def test_labels_are_not_kept_in_memory(self):
        """Labels of sequences go to the file block by block, as samples do."""
        with mock.patch("fedhpc._data_file.CHUNK_BYTES", 400):
            source = tff_file("so.h5", {f"{k:03}": {"tokens": [b"the a to"] * 7} for k in range(30)})
            from_tff("words.h5", source, vocabulary=self.WORDS, words=5, length=6)
        pair = expected_words("the a to", self.WORDS, 6)
        np.testing.assert_array_equal(read("words.h5", "x_train"), [pair[0]] * 210)
        np.testing.assert_array_equal(read("words.h5", "y_train"), [pair[1]] * 210)
        with h5py.File("words.h5") as file:
            self.assertLess(file["y_train"].chunks[0], 40)

    def test_databases(self):
        rows = [(split, client, serialised(tokens=one.encode(), score=np.int64(300), title=b"t"))
                for split in ("train", "heldout") for client, sentences in self.SENTENCES.items() for one in sentences]
        database("so.sqlite", rows)
        source = tff_file("so.h5", {client: {"tokens": [one.encode() for one in sentences]}
                                    for client, sentences in self.SENTENCES.items()})
        options = {"vocabulary": self.WORDS, "words": 5, "length": 4}
        from_tff("a.h5", "so.sqlite", splits=("train", "heldout"), **options)
        from_tff("b.h5", source, source, **options)
        for name in ("x_train", "y_train", "x_test", "y_test", "names/clients"):
            np.testing.assert_array_equal(read("a.h5", name), read("b.h5", name))
        pixels, images = DRAW.integers(0, 256, (3, 28, 28)), DRAW.integers(0, 256, (3, 32, 32, 3))
        database("emnist.sqlite", [("all_train", "f1", serialised(pixels=one / 255, label=np.int64(i)))
                                   for i, one in enumerate(pixels)])
        from_tff("emnist.h5", "emnist.sqlite", splits=["all_train"])
        np.testing.assert_array_equal(read("emnist.h5", "x_train"), pixels)
        np.testing.assert_array_equal(read("emnist.h5", "y_train"), [0, 1, 2])
        database("cifar.sqlite", [("train", "0", serialised(image=one, label=np.int64(i), coarse_label=np.int64(1)))
                                  for i, one in enumerate(images)])
        from_tff("cifar.h5", "cifar.sqlite", splits=["train"])
        np.testing.assert_array_equal(read("cifar.h5", "x_train"), np.moveaxis(images, 3, 1))

    def test_whole_numbers_of_all_lengths(self):
        numbers = [0, 1, 127, 128, 255, 300, 16383, 16384, 2**35 + 5]
        packed = serialised(n=np.array(numbers))
        self.assertEqual(_data_tff.example(packed)["n"].tolist(), numbers)
        single = field(1, field(1, field(1, b"n") + field(2, field(3, b"".join(b"\x08" + varint(n) for n in numbers)))))
        self.assertEqual(_data_tff.example(single)["n"].tolist(), numbers)

    def test_refused(self):
        source = tff_file("so.h5", {"1": {"tokens": [b"the"]}})
        with self.assertRaisesRegex(ConfigError, "needs vocabulary"):
            from_tff("mine.h5", source)
        with self.assertRaisesRegex(ConfigError, "has 5 different ones; lower words"):
            from_tff("mine.h5", source, vocabulary=self.WORDS)
        with self.assertRaisesRegex(DataError, "no.word_count cannot be read"):
            from_tff("mine.h5", source, vocabulary="no.word_count")
        for name in ("length", "words", "sentences", "test_clients"):
            with self.assertRaisesRegex(ConfigError, f"{name} cannot be 0"):
                from_tff("mine.h5", source, vocabulary=self.WORDS, **{name: 0})
        database("so.sqlite", [("train", "1", serialised(tokens=b"the")), ("test", "1", b"\x0a\x7f")])
        options = {"vocabulary": self.WORDS, "words": 5}
        with self.assertRaisesRegex(ConfigError, "no split 'heldout'; there are test, train"):
            from_tff("mine.h5", "so.sqlite", splits=("train", "heldout"), **options)
        with self.assertRaisesRegex(DataError, "client 1 cannot be read"):
            from_tff("mine.h5", "so.sqlite", splits=("train", "test"), **options)
        with self.assertRaisesRegex(ConfigError, "leave test out"):
            from_tff("mine.h5", "so.sqlite", "so.sqlite", splits=("train",), **options)
        Path("none.sqlite").write_bytes(b"no database")
        with self.assertRaisesRegex(DataError, "give a database of TensorFlow Federated"):
            from_tff("mine.h5", "none.sqlite", splits=("train",), **options)
        with self.assertRaisesRegex(DataError, "there is no such file"):
            from_tff("mine.h5", "nowhere.sqlite", splits=("train",), **options)
        self.assertFalse(list(Path().glob("mine*")))


class Synthetic(InFolder):
    def test_fedprox_in_the_order_of_its_program(self):
        found = synthetic("fedprox.h5", "fedprox", clients=4, alpha=0.5, beta=2, seed=3, split_seed=8)
        self.assertEqual((found["data.split"], classes_of("fedprox.h5")), ("client", 10))
        synthetic("plain.h5", "fedprox", clients=2)
        synthetic("same.h5", "fedprox", clients=2, alpha=1.0, beta=1.0)
        np.testing.assert_array_equal(read("plain.h5", "x_train"), read("same.h5", "x_train"))
        np.random.seed(3)
        counts = np.random.lognormal(4, 2, 4).astype(int) + 50
        u, b = np.random.normal(0, 0.5, 4), np.random.normal(0, 2, 4)
        means = np.zeros((4, 60))
        for k in range(4):
            means[k] = np.random.normal(b[k], 1, 60)
        random.seed(8)
        train, test = [], []
        for k in range(4):
            weight, bias = np.random.normal(u[k], 1, (60, 10)), np.random.normal(u[k], 1, 10)
            x = np.random.multivariate_normal(means[k], np.diag([(j + 1) ** -1.2 for j in range(60)]), counts[k])
            samples = [(row, int(np.argmax(np.dot(row, weight) + bias))) for row in x]
            random.shuffle(samples)
            cut = int(0.9 * counts[k])
            train, test = train + samples[:cut], test + samples[cut:]
        for part, wanted in (("train", train), ("test", test)):
            x, y = read("fedprox.h5", f"x_{part}", f"y_{part}")
            np.testing.assert_array_equal(x, [row for row, _ in wanted])
            np.testing.assert_array_equal(y, [label for _, label in wanted])

    def test_leaf_in_the_order_of_its_program(self):
        synthetic("leaf.h5", "leaf", clients=5, classes=3, features=7, seed=11, train_fraction=0.5)
        np.random.seed(11)
        counts = [min(n + 5, 1000) for n in np.random.lognormal(3, 2, 5).astype(int)]
        np.random.seed(11)
        q = np.random.normal(0, 1, (8, 3, 1))
        mu = np.random.normal(np.random.normal(0, 1), 1, 1)
        shuffles, train = random.Random(0), []
        for count in counts:
            np.random.choice(range(1), p=[1.0])
            centre = np.random.normal(np.random.normal(0, 1), 1, 7)
            x = np.random.multivariate_normal(centre, np.diag([(j + 1) ** -1.2 for j in range(7)]), count)
            weight = np.matmul(q, np.random.normal(mu, 0.1, 1))
            score = np.matmul(np.column_stack([np.ones(count), x]), weight) + np.random.normal(0, 0.1, (count, 3))
            for place in sorted(shuffles.sample(range(count), max(1, int(0.5 * count)))):
                train.append((x[place], score[place].argmax()))
        x, y = read("leaf.h5", "x_train", "y_train")
        np.testing.assert_allclose(x, [row for row, _ in train])
        np.testing.assert_array_equal(y, [label for _, label in train])
        of_numpy = np.array([5, 3, 7, 11, 0])
        synthetic("again.h5", "leaf", train_fraction=0.5, **dict(zip(
            ("clients", "classes", "features", "seed", "split_seed"), of_numpy)))
        np.testing.assert_array_equal(read("again.h5", "x_test"), read("leaf.h5", "x_test"))

    def test_refused(self):
        for words, options in (("rule cannot be 'x'", {"rule": "x"}), ("clients cannot be 0", {"clients": 0}),
                               ("clients cannot be True", {"clients": True}), ("seed cannot be 1.5", {"seed": 1.5}),
                               ("seed cannot be 4294967296", {"seed": 2**32}),
                               ("alpha cannot be -1", {"rule": "fedprox", "alpha": -1}),
                               ("beta cannot be 'a'", {"rule": "fedprox", "beta": "a"}),
                               ("classes cannot be 1", {"classes": 1}), ("train_fraction", {"train_fraction": 1.0}),
                               ("alpha is none of rule 'leaf'; leave it out", {"alpha": 1.0}),
                               ("beta is none of rule 'leaf'", {"beta": 0})):
            with self.assertRaisesRegex(ConfigError, words):
                synthetic("mine.h5", **{"rule": "leaf", **options})
        self.assertFalse(list(Path().glob("mine*")))


class Fetched(InFolder):
    def test_by_name(self):
        Path("origin").mkdir()
        Path("origin/words.txt").write_text("the 9\n")
        with h5py.File("origin/one_train.h5", "w"):
            pass
        with tarfile.open("origin/one.tar.bz2", "w:bz2") as archive:
            for member in ("words.txt", "one_train.h5"):
                archive.add(f"origin/{member}", member)
        with open("origin/one.tar.bz2", "rb") as file:
            digest = fetch_data.digest_of(file, "sha256")
        source = fetch_data.Source("http://127.0.0.1:9/one.tar.bz2", digest, "sha256",
                                   members=(("words.txt", None), ("one_train.h5", None)))
        with mock.patch.dict(fetch_data.COLLECTIONS, {"one": fetch_data.Collection("ones", (source,))}):
            with self.assertRaisesRegex(DataError, "Connection refused.*run the command again"):
                fedhpc.fetch("one", "data")
            folder = fedhpc.fetch("one", "data", origin="origin")
            self.assertEqual(folder, Path("data/ones"))
            self.assertEqual((folder / "words.txt").read_text(), "the 9\n")
            self.assertTrue((folder / "one_train.h5").is_file())
            self.assertEqual(fedhpc.fetch("one", "data"), folder)  # nothing is missing
        with self.assertRaisesRegex(DataError, "no data set 'imagenet'; there are mnist"):
            fedhpc.fetch("imagenet")

    def test_every_source_of_a_problem_has_a_sum_or_none_is_published(self):
        for name in ("fed_emnist", "fed_cifar100", "fed_shakespeare", "fed_stackoverflow", "fedprox_synthetic"):
            for source in fetch_data.COLLECTIONS[name].sources:
                self.assertRegex(source.digest, r"^[0-9a-f]+$")
                self.assertEqual(len(source.digest), {"sha256": 64, "git": 40}[source.algorithm])
        self.assertIsNone(fetch_data.COLLECTIONS["fedml_mnist"].sources[0].digest)


def keys_of(path):
    """{section.key: value} of a configuration with its bases."""
    text = path.read_text()
    found = {}
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read_string("[top]\n" + text)
    if "base" in parser["top"]:
        found = keys_of(path.parent / parser["top"]["base"])
    return found | {f"{section}.{key}": value for section in parser.sections() if section != "top"
                    for key, value in parser[section].items()}


def write_cifar(folder, dataset):
    before, classes = (1, 10) if dataset == "cifar10" else (2, 100)
    names = [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"] if classes == 10 else \
        ["train.bin", "test.bin"]
    (folder / fetch_data.COLLECTIONS[dataset].folder).mkdir(parents=True)
    for name in names:
        count = 200 if classes == 10 else 4000 if name == "train.bin" else 400
        records = DRAW.integers(0, 256, (count, before + 3072), dtype=np.uint8)
        records[:, 0], records[:, before - 1] = 0, np.arange(count) % classes
        (folder / fetch_data.COLLECTIONS[dataset].folder / name).write_bytes(records.tobytes())


def write_fmnist(folder):
    (folder / "fashion-mnist").mkdir(parents=True)
    for half, count in (("train", 2000), ("t10k", 200)):
        images = DRAW.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, header, values in (("images-idx3", struct.pack(">iiii", 2051, count, 28, 28), images),
                                     ("labels-idx1", struct.pack(">ii", 2049, count), labels)):
            (folder / "fashion-mnist" / f"{half}-{kind}-ubyte").write_bytes(header + values.tobytes())


class Configurations(InFolder):
    """Each configuration of configs/benchmarks/ on small data in the layout of its problem."""

    def setUp(self):
        super().setUp()
        if not PROGRAM.is_file():
            self.skipTest(f"there is no {PROGRAM}")

    def make(self, name):
        """Makes the files of a problem with examples/benchmarks.py, from small published ones; returns keys."""
        published = Path("published")
        kind = name.rsplit("_", 1)[0]
        getattr(self, f"publish_{kind if kind != 'stackoverflow' else name}", lambda *_: None)(published)
        arguments = [name, "--data", str(published), *(["--leaf", "leaf"] if name.endswith("_leaf") else [])]
        folder = {"fetch": lambda name, data: Path(data) / fetch_data.COLLECTIONS[name].folder}
        made = functools.partial(from_tff, **{"vocabulary": self.WORDS, "words": 30})
        few = functools.partial(synthetic, clients=6)
        with mock.patch.multiple(fedhpc, **folder), mock.patch.multiple(fedhpc.data, synthetic=few), \
                mock.patch.multiple(fedhpc.data, from_tff=lambda *paths, **options: made(*paths, **{
                    key: value for key, value in options.items() if key != "vocabulary"})):
            self.assertEqual(benchmarks.main(arguments), 0)
        if name.startswith("cifar10_"):
            clients = ["--data.clients=20"] if name.endswith("iid") else []
            return ["--data.dir=published", "--topology.participation=0.1", *clients]
        return ["--data.dir=published"] if "pflib" in name else ["--topology.participation=0.5"]

    WORDS = [f"w{i}" for i in range(30)]

    def publish_cifar10_pfl(self, folder):
        write_cifar(folder, "cifar10")

    def publish_cifar100_pflib(self, folder):
        write_cifar(folder, "cifar100")

    def publish_fmnist_pflib(self, folder):
        write_fmnist(folder)

    def publish_femnist(self, folder):
        pixels = {f"f{k}": DRAW.integers(0, 256, (25, 28, 28)).astype(np.float32) / 255 for k in range(4)}
        for part in ("train", "test"):
            tff_file(folder / f"fed_emnist/fed_emnist_{part}.h5",
                     {name: {"pixels": x, "label": np.arange(25) + 12 * int(name[1:])} for name, x in pixels.items()})
        clients = {f"f{k}": femnist_client(12)[1] for k in range(4)}
        for part in ("train", "test"):
            leaf_file(f"leaf/{part}/a.json", clients)

    def publish_shakespeare(self, folder):
        clients = {f"ROLE_{k}": windows("The quality of mercy is not strained. " * 3) for k in range(4)}
        for part in ("train", "test"):
            leaf_file(f"leaf/{part}/a.json", clients)
            tff_file(folder / f"fed_shakespeare/shakespeare_{part}.h5",
                     {name: {"snippets": [b"Now is the winter of our discontent " * 4] * 3} for name in clients})

    def publish_synthetic(self, folder):
        labels = [float(i % 10) for i in range(30)]
        clients = {f"f_{k}": (DRAW.normal(size=(30, 60)).tolist(), labels) for k in range(4)}
        for part in ("train", "test"):
            leaf_file(folder / f"fedprox_synthetic/synthetic_1_1_{part}.json", clients)

    def publish_mnist(self, folder):
        clients = {f"f_{k:05}": (DRAW.normal(size=(12, 784)).tolist(), [float(k), float(k + 1)] * 6) for k in range(9)}
        for part in ("train", "test"):
            leaf_file(folder / f"MNIST/{part}/a.json", clients)

    def publish_cifar100(self, folder):
        for part in ("train", "test"):
            tff_file(folder / f"fed_cifar100/fed_cifar100_{part}.h5",
                     {str(k): {"image": DRAW.integers(0, 256, (25, 32, 32, 3), dtype=np.uint8),
                               "label": np.arange(25) + 25 * k} for k in range(4)})

    def publish_stackoverflow_pfl(self, folder):
        for part in ("train", "held_out"):
            tff_file(folder / f"fed_stackoverflow/stackoverflow_{part}.h5",
                     {str(k): {"tokens": [" ".join(self.WORDS[k:k + 9]).encode()] * 20} for k in range(4)})

    def test_each(self):
        paths = sorted(BENCHMARKS.glob("*.ini"))
        self.assertGreaterEqual(len(paths), 16)
        for path in paths:
            with self.subTest(path.stem):
                keys = keys_of(path)
                self.assertRegex(path.read_text(), "Published")
                if keys["model.name"] == "file" and not find_spec("torch"):
                    self.skipTest("this Python has no torch to write the model with")
                folder = Path(path.stem)
                folder.mkdir()
                os.chdir(folder)
                try:
                    self.check(path, keys)
                finally:
                    os.chdir("..")

    def check(self, path, keys):
        arguments = [*self.make(path.stem), "--run.rounds=1", "--run.eval_every=1", "--train.local_epochs=1",
                     *(["--model.width=0.25"] if keys["model.name"] == "resnet18" else [])]
        for verb in ("plan", "run"):
            done = subprocess.run([sys.executable, "-m", "fedhpc", verb, path, *arguments], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(np.isfinite(read(f"{path.stem}.h5", "rounds/train_loss")).all())

    def test_every_configuration_has_a_maker(self):
        self.assertEqual(sorted(benchmarks.PROBLEMS), sorted(path.stem for path in BENCHMARKS.glob("*.ini")))
        for name in ("femnist_leaf", "shakespeare_leaf"):
            self.assertEqual(benchmarks.main([name]), 2)  # needs --leaf


if __name__ == "__main__":
    unittest.main()
