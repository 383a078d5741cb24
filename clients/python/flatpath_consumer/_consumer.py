"""The consumer: attach, wait for the doorbell, read descriptors, give tokens back."""

from __future__ import annotations

import array
import gc
import mmap
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Deque, Iterator, List, Optional, Tuple, Type, TypeVar, Union

from . import _wire as wire

_ANSWER_SECONDS_MAX = 10.0
_BATCH_MAX = 32
_READS_PER_LOOK = 64
_LOST = "the server ended unexpectedly: it was killed, or detached this consumer"

PathLike = Union[str, "os.PathLike[str]"]
_Self = TypeVar("_Self", bound="_Held")


class ConsumerError(Exception):
    """Anything that goes wrong with an attachment beyond OSError and TimeoutError."""


class RefusedError(ConsumerError):
    """The server refuses this consumer."""


class ProtocolError(ConsumerError):
    """The server wrote what its own protocol does not allow."""


class LostError(ConsumerError):
    """The server ended unexpectedly: it was killed, or it has detached this consumer for a
    breach of the protocol. Messages may have been lost."""


class _ReturnQueue:
    """Fragments on their way back, from any thread.

    An entry is written before the doorbell announces it, both under the lock. All entries are
    announced before a thread waits, and at once while one waits. Fragments in use stay in
    ``_used``, and ``flush`` and a wait check them again.
    """

    def __init__(self, ring: mmap.mmap, entries: int, doorbell: int) -> None:
        self._ring = ring
        self._entries = entries
        self._doorbell = doorbell
        # A fragment may be collected, and so released, while this thread is in here.
        self._lock = threading.RLock()
        self._written = 0
        self._unannounced = 0
        self._waiting = False
        self._used: List["Fragment"] = []
        self._batch = max(1, min(_BATCH_MAX, entries // 8))
        self._open = True

    def give_back(self, fragments: List["Fragment"]) -> bool:
        with self._lock:
            used = self._write(fragments)
            self._used.extend(used)
            if self._waiting or self._unannounced >= self._batch:
                self._tell()
            return not used

    def flush(self) -> None:
        with self._lock:
            self._retry()
            self._tell()

    def waits(self, waiting: bool) -> None:
        with self._lock:
            self._waiting = waiting
            if waiting:
                self._retry()
                self._tell()

    def retry(self) -> None:
        if self._used:
            with self._lock:
                self._retry()

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._retry()
                self._tell()
                self._open = False
                os.close(self._doorbell)

    def _retry(self) -> None:
        used, self._used = self._used, []
        still = self._write(used)
        self._used.extend(still)

    def _write(self, fragments: List["Fragment"]) -> List["Fragment"]:
        """Writes entries for all that are not in use; returns the others."""
        if not self._open:
            return []
        used: List["Fragment"] = []
        for fragment in fragments:
            if not fragment._detach():
                used.append(fragment)
                continue
            place = self._written % self._entries * wire.RETURN.size
            self._written += 1
            self._unannounced += 1
            wire.RETURN.pack_into(self._ring, place, fragment._token, fragment._region)
        return used

    def _tell(self) -> None:
        if not self._unannounced or not self._open:
            return
        unannounced, self._unannounced = self._unannounced, 0
        try:
            os.write(self._doorbell, wire.announcement(unannounced))
        except (BrokenPipeError, BlockingIOError):
            # A server that is gone needs nothing back; the pipe has room for every entry.
            pass


def _connect(to: socket.socket, path: Union[str, bytes]) -> None:
    try:
        to.connect(path)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        why = "no server attaches consumers here (flatpath serve --ingest ADDR --ingest-socket PATH)"
        raise type(error)(error.errno, why, path) from None


def _users(view: memoryview) -> int:
    """References to the buffer of a view: one for each view and array made of it."""
    return sys.getrefcount(gc.get_referents(view)[0])


# What `_users` says of a view that nothing else was made of.
_ALONE = _users(memoryview(bytes(8))[2:6])


class _Held:
    """Something of the server's memory that is released once: at the end of a ``with`` block, by
    ``release``, or when it is collected."""

    __slots__ = ("_returns",)

    def __init__(self, returns: _ReturnQueue) -> None:
        self._returns = returns

    def _pieces(self) -> List["Fragment"]:
        raise NotImplementedError

    def release(self) -> bool:
        """Gives the memory back; at once (True), or, while an array or a view made of it still is
        there, as soon as ``receive`` or ``flush`` finds that gone (False)."""
        fresh = [fragment for fragment in self._pieces() if not fragment._released]
        for fragment in fresh:
            fragment._released = True
        return self._returns.give_back(fresh)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()


class Fragment(_Held):
    """A piece of a message: bytes in the server's memory, until it is released."""

    __slots__ = ("_data", "_released", "_token", "_region")

    def __init__(self, data: memoryview, token: int, region: int, returns: _ReturnQueue) -> None:
        super().__init__(returns)
        self._data: Optional[memoryview] = data
        self._released = False
        self._token = token
        self._region = region

    @property
    def data(self) -> memoryview:
        """The bytes, read-only. ``numpy.frombuffer(fragment.data, ...)`` makes an array of them
        without a copy."""
        if self._released or self._data is None:
            raise ValueError("the fragment was released")
        return self._data

    def __len__(self) -> int:
        return len(self.data)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def _detach(self) -> bool:
        """Makes the bytes inaccessible. False if an array or a view made of them still is there."""
        if self._data is not None:
            if _users(self._data) > _ALONE:
                return False
            try:
                self._data.release()
            except BufferError:
                return False
            self._data = None
        return True

    def _pieces(self) -> List["Fragment"]:
        return [self]

    def __del__(self) -> None:
        # No caller can release it any more. The attribute is missing if the constructor failed.
        if not getattr(self, "_released", True):
            self.release()


class Message(_Held):
    """One message, whole. Its release is that of all its fragments."""

    __slots__ = ("_fragments", "_bytes", "producer")

    def __init__(
        self, fragments: List[Fragment], message_bytes: int, producer: int, returns: _ReturnQueue
    ) -> None:
        super().__init__(returns)
        self._fragments = fragments
        self._bytes = message_bytes
        #: Number of the connection that sent it. It may be used again after that has ended.
        self.producer = producer

    @property
    def fragments(self) -> List[Fragment]:
        """The pieces it came in, in order."""
        return self._fragments

    def __len__(self) -> int:
        return self._bytes

    def __bytes__(self) -> bytes:
        """A copy in one piece."""
        return b"".join(fragment.data for fragment in self._fragments)

    def items(self, itemsize: int) -> Iterator[Union[memoryview, bytes]]:
        """The message as buffers of whole items of ``itemsize`` bytes, in order.

        Fragments end anywhere, also within an item. Whole items come as views, without a copy; an
        item that two or more fragments share comes as ``bytes`` of its own. Bytes behind the last
        whole item come last, fewer than ``itemsize``.
        """
        if itemsize < 1:
            raise ValueError("items have at least one byte")
        rest = b""
        for fragment in self._fragments:
            view = fragment.data
            start = 0
            if rest:
                start = min(itemsize - len(rest), len(view))
                rest += view[:start].tobytes()
                if len(rest) < itemsize:
                    continue
                yield rest
                rest = b""
            end = start + (len(view) - start) // itemsize * itemsize
            if end > start:
                yield view[start:end]
            rest = view[end:].tobytes()
        if rest:
            yield rest

    def _pieces(self) -> List[Fragment]:
        return self._fragments


class _Attachment:
    """One attachment to one server: its memory, its ring of descriptors, and how it ends."""

    def __init__(self, path: PathLike, token: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files: List[int] = []
        try:
            self.socket.settimeout(_ANSWER_SECONDS_MAX)
            _connect(self.socket, os.fspath(path))
            self.socket.send(wire.hello(token))
            packet, files = _receive(self.socket)
            self.welcome = _read(packet)
            if len(files) != len(self.welcome.regions) + wire.DESCRIPTORS_BESIDE:
                raise ProtocolError("the welcome brings the wrong number of descriptors")
            self._map(files)
        except BaseException:
            self.socket.close()
            for file in files:
                os.close(file)
            raise

    def _map(self, files: List[int]) -> None:
        count = len(self.welcome.regions)
        read, write = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
        maps = [
            mmap.mmap(file, size, mmap.MAP_SHARED, read)
            for file, size in zip(files, self.welcome.regions)
        ]
        size = self.welcome.entries * wire.DESCRIPTOR.size
        self._ring = mmap.mmap(files[count], size, mmap.MAP_SHARED, read)
        size = self.welcome.entries * wire.RETURN.size
        returns = mmap.mmap(files[count + 1], size, mmap.MAP_SHARED, write)
        # The mappings hold the memory; the pipes are kept.
        for file in files[: count + 2]:
            os.close(file)
        self.doorbell, return_doorbell = files[count + 2 :]
        del files[:]
        self._regions = maps
        self.returns = _ReturnQueue(returns, self.welcome.entries, return_doorbell)
        self._read = 0
        self._partial: List[Fragment] = []
        #: The server has handed over to another one, which attaches at the same path.
        self.moved = False
        #: Its last word, once it has come: whether it has stopped in order.
        self._farewell: Optional[bool] = None
        #: Whether it has stopped in order, once it has stopped.
        self.ended: Optional[bool] = None

    def take(self, ready: Deque[Message]) -> bool:
        """Takes what has come, without waiting. False: nothing."""
        if self.ended is not None:
            return False
        try:
            announced = os.read(self.doorbell, wire.DOORBELL_BYTES_MAX)
        except BlockingIOError:
            return False
        if announced:
            self._collect(wire.announced(announced), ready)
            return True
        # The last word was said before that, or never.
        while self._farewell is None:
            self.listen(wait=True)
        self.ended = self._farewell
        return True

    def listen(self, wait: bool) -> bool:
        """Reads what the server says on the socket. False: nothing, so far."""
        if self._farewell is not None:
            return True
        # With a time-out, a receive waits whatever its flags say.
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if not wait and not poll.poll(0):
            return False
        try:
            packet = self.socket.recv(len(wire.FAREWELL) + 1)
        except OSError:
            packet = b""
        if packet == wire.MOVED:
            self.moved = True
        else:
            self._farewell = packet == wire.FAREWELL
        return True

    def _collect(self, fresh: int, ready: Deque[Message]) -> None:
        if fresh > self.welcome.entries:
            raise ProtocolError("more descriptors than the ring has")
        for _ in range(fresh):
            place = self._read % self.welcome.entries * wire.DESCRIPTOR.size
            self._read += 1
            entry = wire.DESCRIPTOR.unpack_from(self._ring, place)
            token, offset, length, flags, region, message_bytes, producer = entry
            if region >= len(self._regions) or offset + length > len(self._regions[region]):
                raise ProtocolError("a fragment outside its region")
            if bool(flags & wire.FIRST) != (not self._partial):
                raise ProtocolError("a message inside another one")
            # A buffer of its own, so that its users can be counted.
            data = memoryview(self._regions[region])[offset : offset + length]
            self._partial.append(Fragment(data, token, region, self.returns))
            if flags & wire.LAST:
                fragments, self._partial = self._partial, []
                ready.append(Message(fragments, message_bytes, producer, self.returns))

    def close(self) -> None:
        self._partial = []
        self.returns.close()
        os.close(self.doorbell)
        self.socket.close()


class Consumer:
    """An attachment to the server that listens at ``path`` (its ``--ingest-socket``), and to those
    that it hands over to (``--handover``), at the same path.

    With a ``token`` other than 0 it gets the messages of the one producer that names the same, and
    no others.

    Iterating receives until the server has stopped in order; ``LostError`` is the end of one that
    was killed. The attachment ends with ``close`` or the ``with``
    block; what is held then is taken back by the server, so use no memory of it afterwards.
    """

    def __init__(self, path: PathLike, token: int = 0) -> None:
        self._path = path
        self._token = token
        self._current = _Attachment(path, token)
        # To servers that have handed over.
        self._earlier: List[_Attachment] = []
        self._ready: Deque[Message] = deque()
        self._reads = 0
        self._lost = False
        self._failed: Optional[Exception] = None
        self._closed = False
        self._events = select.epoll()
        self._watch()

    @property
    def number(self) -> int:
        """The server's number for this consumer, as in its log."""
        return self._current.welcome.consumer

    @property
    def window(self) -> int:
        """Fragments that can be held at once."""
        return self._current.welcome.entries

    def fileno(self) -> int:
        """Readable when a message may have come; for ``select``. Call ``flush`` before waiting."""
        return self._events.fileno()

    def receive(self, timeout: Optional[float] = None) -> Optional[Message]:
        """Waits for a message. ``None``: the server has stopped in order, and nothing will come any
        more.

        TimeoutError: nothing came in ``timeout`` seconds. LostError, after the last message: the
        server was killed; if it had handed over before, once, and messages of the next one follow.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        is_over = False
        while True:
            if self._closed:
                raise ValueError("the consumer was closed")
            for one in self._all():
                one.returns.retry()
            if self._ready:
                return self._ready.popleft()
            if self._lost:
                self._lost = False
                raise LostError(_LOST)
            if self._current.ended is not None and not self._earlier:
                if not self._current.ended:
                    raise LostError(_LOST)
                if self._failed is not None:
                    raise self._failed
                return None
            if is_over:
                raise TimeoutError("nothing came in time")
            # What comes need not be a message.
            is_over = deadline is not None and time.monotonic() >= deadline
            if not self._take() and self._wait(deadline):
                self._listen()

    def release(self, message: Message) -> bool:
        """Gives a message's memory back: the same as ``message.release()``."""
        return message.release()

    def flush(self) -> None:
        """Tells the server of all that was released, instead of when the next batch is full or
        ``receive`` waits."""
        for one in self._all():
            one.returns.flush()

    def close(self) -> None:
        """Ends the attachment. What is still held is taken back by the server."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._events.close()
        for one in self._all():
            one.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self.receive()
            if message is None:
                return
            yield message
            # Else the message would live until the next one has come.
            del message

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _all(self) -> List[_Attachment]:
        """What came by the first server is received first."""
        return [*self._earlier, self._current]

    def _take(self) -> bool:
        """Takes what has come from all servers. False: nothing."""
        came = [one.take(self._ready) for one in self._all()]
        ended = [one for one in self._all() if one.ended is not None]
        for one in ended:
            self._unwatch(one.doorbell)
            self._unwatch(one.socket.fileno())
        self._follow()
        for one in ended:
            if one in self._earlier:
                # Memory that is still used stays mapped.
                self._earlier.remove(one)
                one.close()
                self._lost = self._lost or not one.ended
        self._reads += 1
        # One that never waits listens all the same.
        if self._reads % _READS_PER_LOOK == 0:
            self._listen()
        return any(came)

    def _listen(self) -> None:
        """Reads what the current server says: it may have handed over."""
        if self._current.ended is None and self._current.listen(wait=False):
            self._unwatch(self._current.socket.fileno())
            self._follow()

    def _follow(self) -> None:
        """Attaches to the next server as well, if the current one has handed over."""
        if not self._current.moved:
            return
        self._current.moved = False
        try:
            following = _Attachment(self._path, self._token)
        except (OSError, ConsumerError) as error:
            self._failed = error
            return
        self._failed = None
        self._earlier.append(self._current)
        self._current = following
        self._watch()

    def _watch(self) -> None:
        for file in (self._current.doorbell, self._current.socket.fileno()):
            self._events.register(file, select.EPOLLIN)

    def _unwatch(self, file: int) -> None:
        try:
            self._events.unregister(file)
        except (FileNotFoundError, ValueError):
            # Done before.
            pass

    def _wait(self, deadline: Optional[float]) -> bool:
        """Waits for any of them. True: it is the socket."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        for one in self._all():
            one.returns.waits(True)
        try:
            events = self._events.poll(left)
            if not events:
                raise TimeoutError("nothing came in time") from None
        finally:
            for one in self._all():
                one.returns.waits(False)
        return any(file == self._current.socket.fileno() for file, _ in events)


def _receive(connection: socket.socket) -> Tuple[bytes, List[int]]:
    """A packet and its descriptors, which no child process inherits."""
    most = wire.REGIONS_MAX + wire.DESCRIPTORS_BESIDE
    size = array.array("i").itemsize
    space = socket.CMSG_SPACE(most * size)
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    bytes_max = wire.WELCOME.size + 8 * wire.REGIONS_MAX + 1
    packet, control, _, _ = connection.recvmsg(bytes_max, space, flags)
    files = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) // size * size])
    for file in files:
        os.set_inheritable(file, False)
    return packet, list(files)


def _read(packet: bytes) -> wire.Welcome:
    try:
        return wire.read_welcome(packet)
    except wire.Malformed as malformed:
        raise ProtocolError(str(malformed)) from malformed
    except wire.Refused as refused:
        raise RefusedError(str(refused)) from refused
