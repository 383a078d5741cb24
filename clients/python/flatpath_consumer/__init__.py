"""Consume messages that ``flatpath serve --ingest`` receives, without copying them.

A message comes whole and consists of fragments: read-only memoryviews of the memory that the
kernel received to. Each fragment holds a page of the server's until it is released. A consumer that keeps many
gets no more (the window), and the producers wait.

    from flatpath_consumer import Consumer

    with Consumer("/run/flatpath/ingest") as consumer:
        for message in consumer:
            with message:
                total = sum(len(fragment.data) for fragment in message.fragments)

Delivery is at most once: what was delivered to a consumer that dies is not delivered again.

Pure Python over mmap, memoryview, struct and sockets. Python has no atomic operations, and none
are needed: pipes announce what is new, and the kernel's lock of a pipe orders what was
written before ``write`` and what is read after ``read``. See book/src/ingest.md of the project.

One thread at a time may receive; messages may be released by any thread.
"""

from ._consumer import (
    Consumer,
    ConsumerError,
    Fragment,
    LostError,
    Message,
    ProtocolError,
    RefusedError,
)

__all__ = [
    "Consumer",
    "ConsumerError",
    "Fragment",
    "LostError",
    "Message",
    "ProtocolError",
    "RefusedError",
]
__version__ = "0.1.0"
