"""Tests of export.py and event_file.py: event files are parsed back by a reader of their own.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import struct
import unittest

import numpy as np
from tool_support import Folder, call, write_run

from fedhpc.tools import event_file, export


def plain_crc32c(data):
    """CRC-32C bit by bit, by polynomial division."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def unmasked(stored):
    rotated = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17) | (rotated << 15) & 0xFFFFFFFF


def records(data):
    """The messages of an event file, whose checksums must be right."""
    found = []
    while data:
        length, = struct.unpack("<Q", data[:8])
        if unmasked(struct.unpack("<I", data[8:12])[0]) != plain_crc32c(data[:8]):
            raise AssertionError("checksum of a length")
        message, (stored,) = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])
        if unmasked(stored) != plain_crc32c(message):
            raise AssertionError("checksum of a message")
        found.append(message)
        data = data[16 + length:]
    return found


def number_at(data, place):
    """(varint, place behind it)."""
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return value, place


def fields(message):
    """[(number, content)] of a Protocol Buffers message."""
    found, place = [], 0
    while place < len(message):
        key, place = number_at(message, place)
        kind = key & 7
        if kind == 0:
            content, place = number_at(message, place)
        else:
            size, place = number_at(message, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
            content, place = message[place:place + size], place + size
            content = {1: lambda c: struct.unpack("<d", c)[0], 5: lambda c: struct.unpack("<f", c)[0],
                       2: lambda c: c}[kind](content)
        found.append((key >> 3, content))
    return found


def event_of(message):
    """(wall time, step, file version, {tag: value})."""
    parts = dict(fields(message))
    scalars = {}
    for number, value in fields(parts.get(5, b"")):
        if number == 1:
            value = dict(fields(value))
            scalars[value[1].decode()] = value[2]
    return parts[1], parts.get(2, 0), parts.get(3, b"").decode(), scalars


class Checksums(unittest.TestCase):
    def test_published_values(self):
        """RFC 3720 appendix B.4, and the check value of the CRC catalogue."""
        for data, value in ((b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43),
                            (bytes(range(32)), 0x46DD794E), (bytes(range(31, -1, -1)), 0x113FDB5C), (b"", 0)):
            self.assertEqual(event_file.crc32c(data), value)
            self.assertEqual(unmasked(event_file.masked(value)), value)

    def test_varint(self):
        for number, data in ((0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (2**40, None)):
            encoded = event_file.varint(number)
            self.assertEqual(number_at(encoded, 0), (number, len(encoded)))
            self.assertIn(data, (None, encoded))


class Export(Folder):
    def events(self, folder):
        path, = folder.glob("events.out.tfevents.*")
        return [event_of(message) for message in records(path.read_bytes())]

    def test_parsed_back(self):
        path = write_run(self.folder / "run.h5", rounds=200, attributes={"started": np.bytes_("2026-01-31T12:00:00Z")})
        code, out, _ = call(export, path, "--tensorboard", self.folder / "tb")
        self.assertEqual((code, out.count("\n")), (0, 1))
        self.assertIn("200 rounds, 640 scalars", out)
        first, *events = self.events(self.folder / "tb" / "run")
        started = 1769860800.0
        self.assertEqual(first, (started, 0, "brain.Event:2", {}))
        self.assertEqual([step for _, step, _, _ in events], list(range(1, 201)))
        np.testing.assert_allclose([time for time, *_ in events], started + 0.5 * np.arange(1, 201), atol=1e-6)
        self.assertEqual(set(events[0][3]), {"train_loss", "bytes_up_client_cloud", "wall_seconds"})
        self.assertEqual(events[9][3]["global_accuracy"], np.float32(0.9 - 0.5 / 10))
        self.assertEqual(events[199][3]["train_loss"], np.float32(2.0 / 200))

    def test_without_a_start(self):
        path = write_run(self.folder / "run.h5")
        self.assertEqual(call(export, path, "--tensorboard", self.folder / "tb")[0], 0)
        times = [time for time, *_ in self.events(self.folder / "tb" / "run")]
        self.assertAlmostEqual(times[-1], path.stat().st_mtime, places=3)
        self.assertAlmostEqual(times[-1] - times[0], 20.0, places=3)

    def test_numbers_beyond_single_precision(self):
        path = write_run(self.folder / "run.h5", rounds=2, huge=np.array([1e300, np.inf]))
        self.assertEqual(call(export, path, "--tensorboard", self.folder / "tb")[0], 0)
        self.assertEqual([scalars["huge"] for *_, scalars in self.events(self.folder / "tb" / "run")[1:]],
                         [float(np.finfo(np.float32).max), float("inf")])

    def test_a_second_call_replaces_the_first(self):
        path, writer = self.writer("run.h5", "round")
        for rounds in (1, 2):
            self.assertEqual(call(export, path, "--tensorboard", self.folder / "tb")[0], 0)
            self.assertEqual(len(self.events(self.folder / "tb" / "run")), 1 + rounds)
            self.assertEqual(len(list((self.folder / "tb" / "run").iterdir())), 1)
            writer.tell("round")

    def test_the_file_of_another_run_stays(self):
        folder = self.folder / "tb" / "run"
        for hour, code in (("11", 0), ("12", 2), ("11", 0)):
            path = write_run(self.folder / "run.h5", attributes={"started": np.bytes_(f"2026-01-31T{hour}:00:00Z")})
            found = call(export, path, "--tensorboard", self.folder / "tb")
            self.assertEqual((found[0], len(list(folder.iterdir()))), (code, 1), found)
            self.assertEqual(self.events(folder)[0][0], 1769857200.0)

    def test_runs_of_one_name(self):
        paths = []
        for name in ("x", "y"):
            (self.folder / name).mkdir()
            paths.append(write_run(self.folder / name / "run.h5"))
        self.assertEqual(call(export, *paths, "--tensorboard", self.folder / "tb")[0], 0)
        self.assertEqual({path.name for path in (self.folder / "tb").iterdir()}, {"x_run", "y_run"})
        (self.folder / "y" / "x").mkdir()
        third = write_run(self.folder / "y" / "x" / "run.h5")
        code, _, error = call(export, paths[0], third, "--tensorboard", self.folder / "tb")
        self.assertEqual((code, error.count("\n")), (2, 1))

    def test_a_pattern_is_its_runs(self):
        for name in ("a", "a.ckpt.40", "a.old1", "a.old1.ckpt.40", "b"):
            write_run(self.folder / f"{name}.h5")
        write_run(self.folder / "new.h5", rounds=0)  # a run that has just begun
        for number, places in enumerate((sorted(self.folder.glob("*.h5")), [self.folder])):
            board = self.folder / f"tb{number}"
            code, _, error = call(export, *places, "--tensorboard", board)
            told = "" if number else "export: left out: beside its later version: a.old1.h5\n"
            self.assertEqual((code, error), (0, told))
            self.assertEqual({path.name for path in board.iterdir()}, {"a", "b", "new"})

    def test_refusals(self):
        good = write_run(self.folder / "run.h5")
        for path, folder in ((self.folder / "none.h5", self.folder / "tb"), (good, good)):
            code, out, error = call(export, path, "--tensorboard", folder)
            self.assertEqual((code, out, error.count("\n")), (2, "", 1))
            self.assertTrue(error.startswith("export: "))


if __name__ == "__main__":
    unittest.main()
