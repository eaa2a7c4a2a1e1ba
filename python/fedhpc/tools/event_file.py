"""Writes TensorBoard's event files: records of a length, checksums and a serialised Event message.

A record is: length as uint64, masked CRC-32C of those 8 bytes, the message, masked CRC-32C of it; all numbers
little-endian. The messages are Protocol Buffers; of Event (fields wall_time = 1 double, step = 2 int64,
file_version = 3 string, summary = 5 message), Summary (value = 1, repeated) and Summary.Value (tag = 1 string,
simple_value = 2 float) no more than these fields is written.
"""

import struct

POLYNOMIAL = 0x82F63B78  # of Castagnoli, bits reversed
MASK = 0xA282EAD8
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5  # wire types


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data):
    """The CRC-32C of bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    """The checksum as records store it: rotated right by 15 bits, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF


def varint(number):
    """A non-negative integer in groups of 7 bits, the lowest first."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def delimited(field, content):
    """A string or message field."""
    return varint(field << 3 | DELIMITED) + varint(len(content)) + content


def event(wall_time, step=0, version="", scalars=()):
    """An Event message; wall_time in seconds since 1970, scalars as (tag, value)."""
    message = varint(1 << 3 | FIXED64) + struct.pack("<d", wall_time)
    if step:
        message += varint(2 << 3 | VARINT) + varint(step)
    if version:
        message += delimited(3, version.encode())
    values = b"".join(
        delimited(1, delimited(1, tag.encode()) + varint(2 << 3 | FIXED32) + struct.pack("<f", value))
        for tag, value in scalars)
    return message + (delimited(5, values) if values else b"")


def record(message):
    """A message in the frame of a record."""
    length = struct.pack("<Q", len(message))
    checksums = [struct.pack("<I", masked(crc32c(part))) for part in (length, message)]
    return length + checksums[0] + message + checksums[1]


def first_record(wall_time):
    """The record every event file begins with."""
    return record(event(wall_time, version="brain.Event:2"))
