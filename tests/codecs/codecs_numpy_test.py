"""Rows encoded by docs/codecs.md alone, in numpy, against the program's own bytes.

    codecs_numpy_test.py CODEC_BYTES [unittest arguments]
"""

import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

program = ""
UNSIGNED = {np.float32: np.uint32, np.float64: np.uint64}


def bits_for(n):
    return (n - 1).bit_length() if n > 1 else 0


class Fields:
    """Fields of any width, lowest bit first, and whole numbers."""

    def __init__(self):
        self.bits = []
        self.bytes = b""

    def field(self, value, width):
        assert value >> width == 0
        self.bits += [value >> i & 1 for i in range(width)]

    def fill_up(self):
        self.bytes += np.packbits(np.array(self.bits, dtype=np.uint8), bitorder="little").tobytes()
        self.bits = []

    def numbers(self, values):
        self.bytes += np.asarray(values).tobytes()


def raw(row):
    return row.view(UNSIGNED[row.dtype.type])


def dense(row, _):
    return row.tobytes()


def dense32(row, _):
    with np.errstate(over="ignore"):
        return row.astype(np.float32).tobytes()


def fp16(row, _):
    with np.errstate(over="ignore"):
        half = row.astype(np.float16)  # numpy rounds a float64 once
    nan = np.where(np.signbit(row), 0xFE00, 0x7E00).astype(np.uint16)
    return np.where(np.isnan(row), nan, half.view(np.uint16)).tobytes()


def bf16(row, _):
    """Rounded to nearest even among numbers of 8 significant bits, in integers of any length."""
    out = []
    for value in row.tolist():
        if np.isnan(value):
            continue
        out.append(nearest_brain(value))
    payload = np.zeros(len(row), dtype=np.uint16)
    with np.errstate(over="ignore"):
        narrow = raw(row.astype(np.float32))
    payload[np.isnan(row)] = (narrow[np.isnan(row)] | 0x400000) >> 16
    payload[~np.isnan(row)] = out
    return payload.tobytes()


def nearest_brain(value):
    magnitudes = np.arange(0x7F80, dtype=np.uint32)  # all finite ones, and where infinity begins
    known = (magnitudes << 16).view(np.float32).astype(np.float64)
    sign = 0x8000 if np.signbit(value) else 0
    size = abs(value)
    if np.isinf(size):
        return sign | 0x7F80
    low = int(np.searchsorted(known, size, side="right")) - 1
    below, above = known[low], known[low + 1] if low + 1 < len(known) else 2.0**128
    if size - below > above - size or (size - below == above - size and low % 2 == 1):
        low += 1
    return sign | low


def bitmap(row, _):
    sent = raw(row) != 0
    return np.packbits(sent, bitorder="little").tobytes() + row[sent].tobytes()


def index_value(row, _):
    fields = Fields()
    sent = np.flatnonzero(raw(row))
    for index in sent.tolist():
        fields.field(index, bits_for(len(row)))
    fields.fill_up()
    fields.numbers(row[sent])
    return fields.bytes


def run_length(row, _):
    fields = Fields()
    starts = np.flatnonzero(np.concatenate([[True], raw(row)[1:] != raw(row)[:-1]])) if len(row) else np.empty(0, int)
    for length in np.diff([*starts, len(row)]).tolist():
        fields.field(length - 1, bits_for(len(row)))
    fields.fill_up()
    fields.numbers(row[starts])
    return fields.bytes


def order_of(row):
    """Keys that rise as the row's numbers: -0 below +0, NaN beyond the infinities."""
    sign = 1 << (8 * row.itemsize - 1)
    return [~bits & (2 * sign - 1) if bits & sign else bits | sign for bits in raw(row).tolist()]


def clusters_of(row, k):
    """(centres, cluster of every value)."""
    keys = np.array(order_of(row), dtype=object)
    distinct = sorted(set(keys.tolist()))
    if len(distinct) <= k:
        firsts = [int(np.flatnonzero(keys == key)[0]) for key in distinct]
        return row[firsts], [distinct.index(key) for key in keys]
    if not np.isfinite(row).all():
        return np.array([np.nan], dtype=row.dtype), [0] * len(row)
    values, counts = np.unique(row + 0.0, return_counts=True)  # a sum with +0 makes +0 of -0
    k, m = min(k, len(values)), len(values)
    wide = values.astype(np.float64)

    def squares(first, last):
        weights = counts[first:last]
        mean = np.average(wide[first:last], weights=weights)
        return float((weights * (wide[first:last] - mean) ** 2).sum())

    least = np.full((k + 1, m + 1), np.inf)  # in q clusters, of the first i distinct values
    begin = np.zeros((k + 1, m + 1), dtype=int)
    least[0, 0] = 0
    cost = np.array([[squares(j, i) if j < i else np.inf for i in range(m + 1)] for j in range(m)])
    for q in range(1, k + 1):
        for i in range(q, m + 1):
            sums = least[q - 1, :i] + cost[:i, i]
            begin[q, i] = int(np.argmin(sums))
            least[q, i] = sums[begin[q, i]]
    ends = [m]
    for q in range(k, 0, -1):
        ends.append(begin[q, ends[-1]])
    ends = ends[::-1]
    centres = [np.average(wide[a:b], weights=counts[a:b]) for a, b in zip(ends, ends[1:])]
    cluster = np.repeat(np.arange(k), np.diff(ends))
    return np.array(centres).astype(row.dtype), cluster[np.searchsorted(values, row + 0.0)].tolist()


def kmeans(row, k):
    n = len(row)
    if n == 0:
        return b""
    centres, cluster = clusters_of(row, k)
    m = len(centres)
    counts = np.bincount(cluster, minlength=m).tolist()
    fields = Fields()
    fields.field(m - 1, bits_for(min(k, n)))
    left = n
    for q in range(m - 1):
        fields.field(counts[q] - 1, bits_for(left - (m - 1 - q)))
        left -= counts[q]
    fields.fill_up()
    fields.numbers(centres)
    below = np.concatenate([[0], np.cumsum(counts)]).tolist()
    x, put = 0, []
    for q in reversed(cluster):
        while x >> 32 >= counts[q]:
            put.append(x & 255)
            x >>= 8
        x = x // counts[q] * n + below[q] + x % counts[q]
    while x > 0:
        put.append(x & 255)
        x >>= 8
    return fields.bytes + bytes(reversed(put))


CODECS = {one.__name__: one for one in (dense, dense32, fp16, bf16, bitmap, index_value, run_length, kmeans)}


def rows(dtype):
    """Rows of every kind, short and long."""
    draws = np.random.default_rng(5)
    bits = UNSIGNED[dtype]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, 65519.0, 65520.0, 3.4e38, 1e-8, 2.0**-24],
                       dtype=dtype)
    yield np.empty(0, dtype=dtype)
    yield np.array([3], dtype=dtype)
    yield np.array([-1.5, 2.5, 2.5, -1.5, 2.5], dtype=dtype)
    yield special
    yield np.repeat(special, 3)
    for n in (2, 7, 8, 9, 64, 90):
        row = draws.normal(size=n).astype(dtype)
        yield row
        yield np.where(draws.random(n) < 0.7, 0, row).astype(dtype)
        yield np.repeat(row, draws.integers(1, 9, n))[:n]
        yield draws.integers(0, 2 ** (8 * bits().itemsize) - 1, n, dtype=bits, endpoint=True).view(dtype)


class ByTheText(unittest.TestCase):
    def test_every_codec(self):
        listed = set(CODECS)
        checked = 0
        for dtype in (np.float32, np.float64):
            for number, row in enumerate(rows(dtype)):
                for name, encode in CODECS.items():
                    for k in (1, 2, 5, 16, 40) if name == "kmeans" else (16,):
                        with self.subTest(name, dtype=dtype.__name__, row=number, k=k):
                            done = subprocess.run([program, name, str(k), dtype.__name__], input=row.tobytes(),
                                                  capture_output=True, check=True)
                            self.assertEqual(done.stdout.hex(), encode(row, k).hex())
                            checked += 1
        self.assertGreater(checked, 20 * len(listed))

    def test_no_codec_is_left_out(self):
        text = (Path(__file__).parents[2] / "src/codecs/codecs.def").read_text()
        names = [line.split("(")[1].split(",")[0] for line in text.splitlines() if line.startswith("FEDHPC_CODEC(")]
        self.assertEqual(sorted(names), sorted(CODECS))


if __name__ == "__main__":
    program = sys.argv.pop(1)
    unittest.main()
