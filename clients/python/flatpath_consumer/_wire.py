"""The bytes of the protocol: the twin of protocols/messages in Rust, which has the reasons."""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Tuple

MAGIC = int.from_bytes(b"FPMC", "little")
VERSION = 1
ENTRIES_MAX = 4096
REGIONS_MAX = 64
DESCRIPTORS_BESIDE = 4
DOORBELL_BYTES_MAX = 4096
# The last packet of a server that stops in order.
FAREWELL = b"FPMF"
# The packet of a server that hands over to another one at the same path.
MOVED = b"FPMM"

HELLO = struct.Struct("<IHxxQ")
WELCOME = struct.Struct("<IHHIIIII12x")
DESCRIPTOR = struct.Struct("<QQIHHII")
RETURN = struct.Struct("<QQ")

FIRST = 1
LAST = 2

STATUS_WELCOME = 0
STATUS_WRONG_VERSION = 1
STATUS_FULL = 2
STATUS_TAKEN = 4

assert HELLO.size == 16 and WELCOME.size == 40 and DESCRIPTOR.size == 32 and RETURN.size == 16


class Welcome(NamedTuple):
    """What the server says to a hello."""

    entries: int
    message_bytes_max: int
    consumer: int
    page_bytes: int
    regions: Tuple[int, ...]


class Malformed(ValueError):
    """Not a packet of this protocol."""


class Refused(Exception):
    """The server said no."""


def hello(token: int = 0) -> bytes:
    """The consumer's packet; a token of 0 is none."""
    if not 0 <= token < 1 << 64:
        raise ValueError("a token has eight bytes: 0 to 2**64 - 1")
    return HELLO.pack(MAGIC, VERSION, token)


def read_welcome(packet: bytes) -> Welcome:
    """Reads the server's packet; raises Malformed or Refused."""
    if len(packet) < WELCOME.size:
        raise Malformed("the packet is cut off")
    magic, version, status, entries, count, message_max, consumer, page = WELCOME.unpack_from(packet)
    if magic != MAGIC:
        raise Malformed("not a packet of this protocol")
    if status == STATUS_FULL:
        raise Refused("the server has as many consumers as it may have")
    if status == STATUS_TAKEN:
        raise Refused("another consumer has this token")
    if status == STATUS_WRONG_VERSION or (status == STATUS_WELCOME and version != VERSION):
        raise Refused(f"version {version} is spoken there, {VERSION} here")
    if status != STATUS_WELCOME:
        raise Refused("the server could not make what is shared")
    sane = 0 < entries <= ENTRIES_MAX and entries & (entries - 1) == 0
    if not sane or count > REGIONS_MAX or len(packet) != WELCOME.size + 8 * count:
        raise Malformed("the packet contradicts itself")
    regions = struct.unpack_from(f"<{count}Q", packet, WELCOME.size)
    return Welcome(entries, message_max, consumer, page, regions)


def announcement(entries: int) -> bytes:
    """The bytes that announce new entries: each counts from 1 to 255."""
    full, rest = divmod(entries, 255)
    return b"\xff" * full + (bytes((rest,)) if rest else b"")


def announced(data: bytes) -> int:
    """How many entries the bytes of a doorbell tell of."""
    return sum(data)


def length_prefix(message_bytes: int) -> bytes:
    """What a producer puts in front of a message."""
    return struct.pack(">I", message_bytes)


__all__: List[str] = [name for name in dir() if not name.startswith("_")]
