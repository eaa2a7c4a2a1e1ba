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


SEED = 0  # of a codec that no run has given one
CODEC = 8  # the purpose of its draws


def words(count):
    return np.random.Philox(key=[SEED, CODEC], counter=[0, 0, 0, 0]).random_raw(count)


def uniforms(count):
    return ((words(count) >> np.uint64(11)) * 2.0**-53).tolist()


def sum_in_order(values):
    total = 0.0
    for value in values:
        total += value
    return total


def chosen_of(row):
    return max(1, int(np.floor(0.01 * len(row) + 0.5))) if len(row) else 0


def top_k(row, _):
    fields = Fields()
    k = chosen_of(row)
    magnitudes = raw(row) << raw(row).dtype.type(1)
    places = np.sort(np.argsort(~magnitudes, kind="stable")[:k])
    for place in places.tolist() if k < len(row) else []:
        fields.field(place, bits_for(len(row)))
    fields.fill_up()
    fields.numbers(row[places])
    return fields.bytes


def rand_k(row, _):
    if not len(row):
        return b""
    places = np.sort(np.argsort(words(len(row)), kind="stable")[:chosen_of(row)])
    return SEED.to_bytes(8, "little") + row[places].tobytes()


def sign(row, _):
    if not len(row):
        return b""
    mean = sum_in_order(np.abs(row).astype(np.float64).tolist()) / len(row)
    mean = np.array([np.nan if np.isnan(mean) else mean], dtype=row.dtype)
    return np.packbits(np.signbit(row), bitorder="little").tobytes() + mean.tobytes()


def rounded(row, norm, levels):
    fields = Fields()
    width = bits_for(2 * levels + 1)
    for value, uniform in zip(row.astype(np.float64).tolist(), uniforms(len(row))):
        size = abs(value)
        u = levels * (size / norm) if norm > 0 and np.isfinite(norm) else 0.0
        level = min(int(u) + (uniform < u - int(u)), levels)
        fields.field(levels - level if np.signbit(value) else levels + level, width)
    fields.fill_up()
    if len(row):
        fields.numbers(np.array([norm], dtype=row.dtype))
    return fields.bytes


def norm_of(row, measure):
    """A NaN's own bits without its sign, else a number of the row's type."""
    for value in row:
        if np.isnan(value):
            return np.abs(value)
    with np.errstate(over="ignore"):
        return row.dtype.type(measure(row.astype(np.float64).tolist()))


def euclidean(values):
    try:
        return np.sqrt(sum_in_order([value * value for value in values]))
    except OverflowError:
        return np.inf


def largest(values):
    return max(map(abs, values), default=0.0)


def qsgd(row, _):
    return rounded(row, norm_of(row, euclidean), 7)


def terngrad(row, _):
    return rounded(row, norm_of(row, largest), 1)


def int8(row, _):
    return rounded(row, norm_of(row, largest), 127)


def int4(row, _):
    return rounded(row, norm_of(row, largest), 7)


def natural(row, _):
    fields = Fields()
    fraction = 23 if row.itemsize == 4 else 52
    exponent = 8 * row.itemsize - 1 - fraction
    for bits, uniform in zip(raw(row).tolist(), uniforms(len(row))):
        top = bits >> fraction
        finite = top % 2**exponent != 2**exponent - 1
        up = finite and uniform < (bits % 2**fraction) / 2**fraction
        fields.field(top + up, 1 + exponent)
    fields.fill_up()
    return fields.bytes


def hadamard(block):
    half = 1
    while half < len(block):
        block = block.reshape(-1, 2, half)
        block = np.concatenate([block[:, :1] + block[:, 1:], block[:, :1] - block[:, 1:]], axis=1).ravel()
        half *= 2
    return block * (1 / np.sqrt(float(len(block))))


def drive(row, _):
    if not len(row):
        return b""
    signs, scales, stream, at = [], [], words(len(row) + 64), 0
    left = row.astype(np.float64)
    while len(left):
        size = 1 << (len(left).bit_length() - 1)
        block, left = left[:size], left[size:]
        square = sum_in_order((block * block).tolist())
        count = -(-size // 64)
        minus = np.unpackbits(stream[at:at + count].view(np.uint8), bitorder="little")[:size]
        at += count
        turned = hadamard(np.where(minus == 1, -block, block))
        total = sum_in_order(np.abs(turned).tolist())
        scales.append(square / total if total > 0 or np.isnan(total) else 0.0)
        signs += np.signbit(turned).tolist()
    return (SEED.to_bytes(8, "little") + np.packbits(np.array(signs, bool), bitorder="little").tobytes()
            + np.abs(np.array(scales, dtype=row.dtype)).tobytes())


def power_sgd(row, _):
    return row.tobytes()  # of one row as a matrix nothing is saved


CODECS = {one.__name__: one for one in (dense, dense32, fp16, bf16, bitmap, index_value, run_length, top_k, rand_k, sign,
                                        qsgd, terngrad, int8, int4, natural, drive, power_sgd)}
# Of these a NaN's bits depend on the order in which a processor takes the operands of a sum.
SUMS = ("drive",)
# These end with so many numbers made of sums of squares, which a processor may fuse: their last bit is its own.
OF_SQUARES = {"qsgd": lambda n: min(n, 1), "drive": lambda n: n.bit_count()}


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
                    if name in SUMS and not np.isfinite(row).all():
                        continue
                    with self.subTest(name, dtype=dtype.__name__, row=number), \
                            np.errstate(over="ignore", invalid="ignore"):
                        ours, tail = encode(row, 16), row.itemsize * OF_SQUARES.get(name, lambda _: 0)(len(row))
                        at = len(ours) - tail
                        self.assertEqual((len(payload), payload[:at].hex()), (len(ours), ours[:at].hex()))
                        np.testing.assert_allclose(*(np.frombuffer(one[at:], row.dtype) for one in (payload, ours)),
                                                   rtol=4 * np.finfo(row.dtype).eps)

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
