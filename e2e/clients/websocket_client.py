"""The cases of Autobahn's sections 1 to 7, 9, 10, 12 and 13, against an echo.

Well-formed ones go through the package `websockets`, which checks what it receives; what breaks the protocol is sent as
bytes. Called with the port of an echo that takes messages of 16 MiB in any number of fragments. Prints the number of cases.
"""

import base64
import os
import socket
import struct
import sys

from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import connect

PORT = int(sys.argv[1])
URL = f"ws://127.0.0.1:{PORT}/"
PATIENCE = 60
cases = 0


def case():
    global cases
    cases += 1


def opened(**options):
    return connect(URL, open_timeout=PATIENCE, close_timeout=PATIENCE, max_size=None, **options)


def echoed(client, message):
    client.send(message)
    reply = client.recv(timeout=PATIENCE)
    assert reply == message, (len(message), len(reply))
    case()


class Raw:
    """A client of bytes."""

    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT), PATIENCE)
        self.bytes = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.bytes:
            self.more()
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101 "), head

    def more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise EOFError
        self.bytes += piece

    def exactly(self, count):
        while len(self.bytes) < count:
            self.more()
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def frame(self):
        first, length = self.exactly(2)
        if length == 126:
            (length,) = struct.unpack("!H", self.exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.exactly(8))
        return first, self.exactly(length)

    def send(self, first, payload=b"", chop=None):
        bytes = frame(first, payload)
        for at in range(0, len(bytes), chop or len(bytes)):
            self.socket.sendall(bytes[at : at + (chop or len(bytes))])

    def answered(self, *frames):
        for expected in frames:
            found = self.frame()
            assert found == expected, (found, expected)

    def ends(self, *codes):
        """A close frame with one of the codes, or without any, and the end of the stream."""
        first, payload = self.frame()
        assert first == 0x88, (first, payload)
        code = struct.unpack("!H", payload[:2])[0] if payload else None
        assert code in codes, (code, payload, codes)
        try:
            # What was sent after a close may have been answered with a reset.
            self.socket.shutdown(socket.SHUT_WR)
            while True:
                self.more()
        except (EOFError, OSError):
            assert self.bytes == b"", self.bytes
        self.socket.close()
        case()


def frame(first, payload):
    mask = os.urandom(4)
    length = len(payload)
    if length < 126:
        head = bytes([first, 0x80 | length])
    elif length < 65536:
        head = bytes([first, 0x80 | 126]) + struct.pack("!H", length)
    else:
        head = bytes([first, 0x80 | 127]) + struct.pack("!Q", length)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def messages():
    """Sections 1 and 2."""
    with opened(compression=None) as client:
        for length in (0, 125, 126, 127, 128, 65535, 65536):
            echoed(client, "*" * length)
            echoed(client, b"\xfe" * length)
        for payload in (b"", b"Hello", b"\x00\xff\xfe", b"\xfe" * 125):
            assert client.ping(payload).wait(PATIENCE)
            case()
        client.pong(b"unsolicited")
        waiters = [client.ping(b"payload-%d" % number) for number in range(10)]
        assert all(waiter.wait(PATIENCE) for waiter in waiters)
        case()
    assert client.close_code == 1000
    for chop in (1, 997):
        raw = Raw()
        payload = b"*" * (125 if chop == 1 else 65536)
        raw.send(0x81, payload, chop)
        raw.answered((0x81, payload))
        raw.send(0x89, b"\xfe" * 125, chop)
        raw.answered((0x8A, b"\xfe" * 125))
        raw.send(0x88, struct.pack("!H", 1000))
        raw.ends(1000)
    raw = Raw()
    raw.send(0x89, b"\xfe" * 126)
    raw.ends(1002)


def reserved():
    """Sections 3 and 4: what came before is answered."""
    for bits in range(1, 8):
        for first, payload in ((0x81, b"Hello"), (0x82, b"\x00"), (0x89, b""), (0x88, b"")):
            raw = Raw()
            raw.send(0x81, b"before")
            raw.send(first | bits << 4, payload)
            raw.answered((0x81, b"before"))
            raw.ends(1002)
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        raw = Raw()
        raw.send(0x81, b"before")
        raw.send(0x80 | opcode, b"payload")
        raw.send(0x89)
        raw.answered((0x81, b"before"))
        raw.ends(1002)


def fragments():
    """Section 5."""
    for chop in (None, 1):
        raw = Raw()
        raw.send(0x01, b"fragment1", chop)
        raw.send(0x89, b"ping", chop)
        raw.send(0x00, b"fragment2", chop)
        raw.send(0x8A, b"unsolicited", chop)
        raw.send(0x80, b"fragment3", chop)
        raw.answered((0x8A, b"ping"), (0x81, b"fragment1fragment2fragment3"))
        raw.send(0x88)
        raw.ends(None)
    for wrong in ([0x09], [0x0A], [0x80], [0x00], [0x00, 0x81], [0x01, 0x81], [0x01, 0x02]):
        raw = Raw()
        for first in wrong:
            raw.send(first, b"payload")
        raw.ends(1002)


def utf8():
    """Section 6: each of these alone, in two fragments, and octet by octet."""
    valid = ["κόσμε", "Hello-µ@ßöäüàá-UTF-8!!", "\x00\x7f\x80߿ࠀ￿𐀀", "\ud7ff\ue000\ufffd\U0010ffff", "\ufffe\uffff\U0001fffe"]
    for text in valid:
        payload = text.encode()
        for chop in (None, 1):
            raw = Raw()
            raw.send(0x81, payload, chop)
            for at in range(len(payload)):
                raw.send(0x01 if at == 0 else 0x00, payload[at : at + 1])
            raw.send(0x80)
            raw.answered((0x81, payload), (0x81, payload))
            raw.send(0x88)
            raw.ends(None)
    invalid = [
        b"\x80", b"\xbf", b"\x80\xbf\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf",
        b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf",
        b"\xfe", b"\xff", b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", b"\xc2", b"\xe1\x80", b"\xf1\x80\x80",
    ]
    for payload in invalid:
        for chop in (None, 1):
            raw = Raw()
            raw.send(0x81, payload, chop)
            raw.ends(1007)
        raw = Raw()
        raw.send(0x01, payload)
        raw.send(0x80)
        raw.ends(1007)
    # Found before the frame is complete, and before the message is.
    raw = Raw()
    raw.socket.sendall(frame(0x81, b"\xf4\x90" + b"a" * 100)[:12])
    raw.ends(1007)
    raw = Raw()
    raw.send(0x01, b"\xce\xba\xf4\x90")
    raw.ends(1007)


def closes():
    """Section 7."""
    good = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
    for code in good:
        raw = Raw()
        raw.send(0x88, struct.pack("!H", code) + b"reason")
        raw.send(0x81, b"after")
        raw.ends(code)
    for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535):
        raw = Raw()
        raw.send(0x88, struct.pack("!H", code))
        raw.ends(1002)
    for payload, code in ((b"\x03", 1002), (b"\x03\xe8" + b"*" * 124, 1002), (b"\x03\xe8\xff", 1007), (b"\x03\xe8" + b"*" * 123, 1000)):
        raw = Raw()
        raw.send(0x88, payload)
        raw.ends(code)
    raw = Raw()
    raw.send(0x81, b"Hello")
    raw.send(0x88)
    raw.send(0x88)
    raw.answered((0x81, b"Hello"))
    raw.ends(None)


def large():
    """Sections 9 and 10: up to 16 MiB, in one frame and in many, and many in a row."""
    with opened(compression=None) as client:
        for exponent in (16, 18, 20, 22, 24):
            echoed(client, "*" * (1 << exponent))
            echoed(client, b"\xfe" * (1 << exponent))
        for piece in (256, 4096, 65536):
            whole = os.urandom(1 << 20)
            client.send([whole[at : at + piece] for at in range(0, len(whole), piece)])
            assert client.recv(timeout=PATIENCE) == whole
            case()
        for length in (0, 16, 64, 1024):
            for _ in range(200):
                client.send("*" * length)
            assert all(client.recv(timeout=PATIENCE) == "*" * length for _ in range(200))
            case()


def compressed():
    """Sections 12 and 13."""
    text = "".join(f"{number} bottles of beer on the wall; " for number in range(4000))
    offers = [
        {},
        {"server_no_context_takeover": True},
        {"client_no_context_takeover": True},
        {"server_max_window_bits": 9},
        {"server_max_window_bits": 12, "client_max_window_bits": 9},
        {"client_max_window_bits": True},
    ]
    for offer in offers:
        factory = ClientPerMessageDeflateFactory(**offer)
        with opened(compression=None, extensions=[factory]) as client:
            assert [extension.name for extension in client.protocol.extensions] == ["permessage-deflate"]
            for length in (0, 16, 255, 256, 1024, 4096, 65536, len(text)):
                for _ in range(10):
                    echoed(client, text[:length])
                echoed(client, os.urandom(length))
        assert client.close_code == 1000


for section in (messages, reserved, fragments, utf8, closes, large, compressed):
    section()
print(f"{cases} cases")
