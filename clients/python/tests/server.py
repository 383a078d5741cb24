"""A server played by the tests: the other half of the protocol, in Python."""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import socket
import struct
import tempfile
import threading
from typing import List, Optional

from flatpath_consumer import _wire as wire

ENTRIES = 16
REGION_BYTES = 8192
# From <linux/fcntl.h>; Python names them from 3.8 on, but not all.
ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0010


class Server:
    """Listens at ``path``, attaches one consumer and does what the test says."""

    def __init__(
        self, answer: Optional[bytes] = None, token: int = 0, instead_of: Optional[Server] = None
    ) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "ingest")
        if instead_of is not None:
            self.path = instead_of.path
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.listener.settimeout(10)
        self.region_file = os.memfd_create("region", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.region_file, REGION_BYTES)
        self.region = mmap.mmap(self.region_file, REGION_BYTES)
        fcntl.fcntl(self.region_file, ADD_SEALS, SEALS)
        size = ENTRIES * wire.DESCRIPTOR.size
        self.descriptor_file = os.memfd_create("descriptors")
        os.ftruncate(self.descriptor_file, size)
        self.descriptors = mmap.mmap(self.descriptor_file, size)
        size = ENTRIES * wire.RETURN.size
        self.return_file = os.memfd_create("returns")
        os.ftruncate(self.return_file, size)
        self.returns = mmap.mmap(self.return_file, size)
        self.theirs, self.descriptor_doorbell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.return_doorbell, self.their_returns = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.answer = answer
        #: What the consumer has to name.
        self.token = token
        self.written = 0
        self.read = 0
        self.thread = threading.Thread(target=self._attach, daemon=True)
        self.thread.start()

    def _attach(self) -> None:
        self.connection, _ = self.listener.accept()
        hello = self.connection.recv(64)
        assert hello == wire.hello(self.token), hello
        if self.answer is not None:
            self.connection.send(self.answer)
            return
        packet = wire.WELCOME.pack(wire.MAGIC, wire.VERSION, 0, ENTRIES, 1, 1 << 20, 5, 1024)
        files = [
            self.region_file,
            self.descriptor_file,
            self.return_file,
            self.theirs,
            self.their_returns,
        ]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
        self.connection.sendmsg([packet + struct.pack("<Q", REGION_BYTES)], [rights])
        os.close(self.theirs)
        os.close(self.their_returns)

    def write(self, token: int, offset: int, length: int, flags: int, total: int) -> None:
        place = self.written % ENTRIES * wire.DESCRIPTOR.size
        entry = (token, offset, length, flags, 0, total, 77)
        wire.DESCRIPTOR.pack_into(self.descriptors, place, *entry)
        self.written += 1

    def ring(self, entries: int) -> None:
        os.write(self.descriptor_doorbell, wire.announcement(entries))

    def fill_doorbell(self) -> int:
        """Rings for nothing, as often as there is room for: bytes of that."""
        written = 0
        try:
            while True:
                written += os.write(self.descriptor_doorbell, bytes(4096))
        except BlockingIOError:
            return written

    def deliver(self, *pieces: bytes, at: int = 0, token: int = 0) -> None:
        """A message of these pieces, 1,000 bytes apart in the region."""
        total = sum(len(piece) for piece in pieces)
        for number, piece in enumerate(pieces):
            offset = at + number * 1000
            self.region[offset : offset + len(piece)] = piece
            flags = (wire.FIRST if number == 0 else 0) | (
                wire.LAST if number + 1 == len(pieces) else 0
            )
            self.write(token + number, offset, len(piece), flags, total)
        self.ring(len(pieces))

    def returned(self) -> List[int]:
        """Tokens that were announced since the last call."""
        try:
            announced = os.read(self.return_doorbell, 4096)
        except BlockingIOError:
            return []
        tokens = []
        for _ in range(wire.announced(announced)):
            place = self.read % ENTRIES * wire.RETURN.size
            token, region = wire.RETURN.unpack_from(self.returns, place)
            assert region == 0
            tokens.append(token)
            self.read += 1
        return tokens

    def hand_over(self) -> None:
        """Another server attaches consumers at the same path."""
        self.thread.join(10)
        self.connection.send(wire.MOVED)

    def stop(self) -> None:
        """The server stops in order."""
        self.thread.join(10)
        self.connection.send(wire.FAREWELL)
        self.go()

    def kill(self) -> None:
        """The server is killed."""
        self.thread.join(10)
        self.go()
        self.connection.close()

    def go(self) -> None:
        if self.descriptor_doorbell >= 0:
            os.close(self.descriptor_doorbell)
            self.descriptor_doorbell = -1

    def close(self) -> None:
        self.thread.join(10)
        self.go()
        self.listener.close()
        self.connection.close()
        os.close(self.return_doorbell)
        for file in (self.region_file, self.descriptor_file, self.return_file):
            os.close(file)
        self.directory.cleanup()
