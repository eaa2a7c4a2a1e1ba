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


def coded(cluster, counts, n):
    """Bytes of the clusters of all values."""
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
    return bytes(reversed(put))


def kmeans_of(centres, cluster, n, k):
    """The payload of clusters."""
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
    return fields.bytes + coded(cluster, counts, n)


def kmeans_read(payload, row, k):
    """(centres, cluster of every value) that a payload for a row of this length and type holds."""
    n = len(row)
    bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little").tolist()
    at = 0

    def field(width):
        nonlocal at
        at += width
        return sum(bit << i for i, bit in enumerate(bits[at - width:at]))

    m, counts, left = field(bits_for(min(k, n))) + 1, [], n
    for later in range(m - 1, 0, -1):
        counts.append(field(bits_for(left - later)) + 1)
        left -= counts[-1]
    counts.append(left)
    place = -(-at // 8)
    centres = np.frombuffer(payload[place:place + m * row.itemsize], dtype=row.dtype)
    rest, x, cluster = list(payload[place + m * row.itemsize:]), 0, []
    below = np.concatenate([[0], np.cumsum(counts)]).tolist()
    for _ in range(n):
        while x < n << 24 and rest:
            x = 256 * x + rest.pop(0)
        q = int(np.searchsorted(below, x % n, side="right")) - 1
        x = x // n * counts[q] + x % n - below[q]
        cluster.append(q)
    assert x == 0 and not rest
    return centres, cluster


def least_squares(row, k):
    """The least sum of squares about the means of k clusters, of all ways to split."""
    values, counts = np.unique(row.astype(np.float64) + 0.0, return_counts=True)
    k, m = min(k, len(values)), len(values)
    weight, moment, square = (np.concatenate([[0], np.cumsum(counts * values**power)]) for power in (0, 1, 2))
    first, last = np.meshgrid(np.arange(m + 1), np.arange(m + 1), indexing="ij")
    with np.errstate(invalid="ignore", divide="ignore"):
        cost = square[last] - square[first] - (moment[last] - moment[first])**2 / (weight[last] - weight[first])
    cost[first >= last] = np.inf
    least = np.concatenate([[0], np.full(m, np.inf)])
    for _ in range(k):
        least = (least[:, None] + cost).min(axis=0)
    return least[m]


CODECS = {one.__name__: one for one in (dense, dense32, fp16, bf16, bitmap, index_value, run_length)}


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


def payloads(codec, k, dtype):
    """What the program makes of all rows: pairs of row and payload."""
    given = list(rows(dtype))
    text = b"".join(len(row).to_bytes(8, "little") + row.tobytes() for row in given)
    out = subprocess.run([program, codec, str(k), dtype.__name__], input=text, capture_output=True, check=True).stdout
    for row in given:
        size = int.from_bytes(out[:8], "little")
        yield row, out[8:8 + size]
        out = out[8 + size:]


class ByTheText(unittest.TestCase):
    def test_codecs_without_clusters(self):
        for dtype in (np.float32, np.float64):
            for name, encode in CODECS.items():
                for number, (row, payload) in enumerate(payloads(name, 16, dtype)):
                    with self.subTest(name, dtype=dtype.__name__, row=number):
                        self.assertEqual(payload.hex(), encode(row, 16).hex())

    def test_clusters(self):
        for dtype in (np.float32, np.float64):
            for k in (1, 2, 5, 16, 17, 40):
                for number, (row, payload) in enumerate(payloads("kmeans", k, dtype)):
                    with self.subTest(dtype=dtype.__name__, row=number, k=k):
                        self.look_at(row, payload, k)

    def look_at(self, row, payload, k):
        if not len(row):
            return self.assertEqual(payload, b"")
        centres, cluster = kmeans_read(payload, row, k)
        self.assertEqual(payload.hex(), kmeans_of(centres, cluster, len(row), k).hex())
        arrived = centres[cluster]
        distinct = sorted(set(order_of(row)))
        if len(distinct) <= k:
            self.assertEqual(arrived.tobytes(), row.tobytes())
            self.assertEqual(order_of(centres), distinct)
        elif not np.isfinite(row).all():
            nan = 0x7FC00000 if row.itemsize == 4 else 0x7FF8000000000000
            self.assertEqual(raw(centres).tolist(), [nan])
        else:
            self.assertEqual(len(centres), min(k, len(np.unique(row))))
            wide = row.astype(np.float64) / np.abs(row).max().astype(np.float64)  # squares do not overflow
            off = wide - arrived.astype(np.float64) / np.abs(row).max().astype(np.float64)
            rounding = 1e-6 if row.itemsize == 4 else 1e-12  # of the centres, beside sums of 1 to 90
            self.assertLessEqual((off**2).sum(), least_squares(wide, k) + rounding)
        return None

    def test_no_codec_is_left_out(self):
        text = (Path(__file__).parents[2] / "src/codecs/codecs.def").read_text()
        names = [line.split("(")[1].split(",")[0] for line in text.splitlines() if line.startswith("FEDHPC_CODEC(")]
        self.assertEqual(sorted(names), sorted([*CODECS, "kmeans"]))


if __name__ == "__main__":
    program = sys.argv.pop(1)
    unittest.main()
