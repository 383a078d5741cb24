"""What is read, what is given back and when, and what a server that breaks its protocol gets."""

from __future__ import annotations

import struct
import threading
import unittest

from flatpath_consumer import Consumer, LostError, ProtocolError, RefusedError
from flatpath_consumer import _wire as wire

from .server import ENTRIES, REGION_BYTES, Server

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

# Each wait has an end, so that what is lost is a failure and not a hung run.
WITHIN = 10.0


class ConsumerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.consumer = Consumer(self.server.path)
        self.addCleanup(self.server.close)
        self.addCleanup(self.consumer.close)

    def message(self):
        message = self.consumer.receive(WITHIN)
        self.assertIsNotNone(message)
        return message

    def test_a_message_is_read_where_it_lies(self) -> None:
        self.server.deliver(b"abc", b"defg", at=10, token=1)
        message = self.message()
        self.assertEqual((len(message), message.producer), (7, 77))
        self.assertEqual([bytes(part) for part in message.fragments], [b"abc", b"defg"])
        # What lies there is what is read: nothing was copied.
        self.server.region[10:13] = b"ABC"
        self.assertEqual(bytes(message), b"ABCdefg")

    def test_released_memory_is_given_back_once(self) -> None:
        self.server.deliver(b"abc", b"defg", token=1)
        with self.message() as message:
            self.assertEqual(self.server.returned(), [])
        message.release()
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [1, 2])
        with self.assertRaises(ValueError):
            message.fragments[0].data
        del message
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [])

    def test_a_message_that_is_dropped_is_given_back(self) -> None:
        self.server.deliver(b"abc", token=9)
        message = self.message()
        del message
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [9])

    def test_fragments_are_released_one_by_one(self) -> None:
        self.server.deliver(b"abc", b"defg", token=1)
        first, second = self.message().fragments
        with second:
            self.assertEqual(bytes(second), b"defg")
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [2])
        self.assertTrue(first.release())

    def test_memory_that_a_view_still_uses_is_given_back_later(self) -> None:
        self.server.deliver(b"abcdef", token=1)
        message = self.message()
        part = message.fragments[0].data[2:4]
        self.assertFalse(message.release())
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [])
        self.assertEqual(bytes(part), b"cd")
        with self.assertRaises(ValueError):
            message.fragments[0].data
        del part
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [1])

    def test_the_bytes_cannot_be_written(self) -> None:
        self.server.deliver(b"abc")
        with self.message() as message:
            with self.assertRaises(TypeError):
                message.fragments[0].data[0] = 1

    def test_waiting_tells_of_returns_first(self) -> None:
        self.server.deliver(b"abc", token=7)
        self.message().release()
        self.assertEqual(self.server.returned(), [])
        with self.assertRaises(TimeoutError) as raised:
            self.consumer.receive(0)
        self.assertTrue(raised.exception.__suppress_context__, "it stands for itself")
        self.assertEqual(self.server.returned(), [7])

    def test_without_a_server_the_error_names_the_path(self) -> None:
        with self.assertRaises(FileNotFoundError) as raised:
            Consumer("/no/such/directory/ingest")
        self.assertEqual(raised.exception.filename, "/no/such/directory/ingest")
        self.assertIn("no server attaches consumers here", str(raised.exception))

    def test_a_release_while_another_thread_waits_is_announced_at_once(self) -> None:
        self.server.deliver(b"abc", token=7)
        message = self.message()
        got = []
        waiter = threading.Thread(target=lambda: got.append(self.consumer.receive(WITHIN)))
        waiter.start()
        message.release()
        tokens = []
        deadline = threading.Event()
        for _ in range(1000):
            tokens += self.server.returned()
            if tokens:
                break
            deadline.wait(0.01)
        self.assertEqual(tokens, [7])
        self.server.deliver(b"x")
        waiter.join(WITHIN)
        self.assertEqual(len(got), 1)

    def test_the_rings_go_round(self) -> None:
        for token in range(ENTRIES * 5):
            self.server.deliver(bytes([token]), at=token, token=token)
            with self.message() as message:
                self.assertEqual(bytes(message), bytes([token]))
            self.consumer.flush()
            self.assertEqual(self.server.returned(), [token])

    def test_iteration_ends_when_the_server_is_gone(self) -> None:
        for token in range(3):
            self.server.deliver(b"abc", token=token)
        self.server.stop()
        seen = [bytes(message) for message in self.consumer]
        self.assertEqual(seen, [b"abc"] * 3)
        self.assertIsNone(self.consumer.receive())

    def test_a_killed_server_is_no_normal_end(self) -> None:
        self.server.deliver(b"abc")
        self.server.kill()
        seen = []
        with self.assertRaises(LostError):
            for message in self.consumer:
                seen.append(bytes(message))
        self.assertEqual(seen, [b"abc"])
        with self.assertRaises(LostError):
            self.consumer.receive(0)

    def test_a_server_that_hands_over_is_followed_and_heard_to_its_end(self) -> None:
        self.server.deliver(b"one")
        self.assertEqual(bytes(self.message()), b"one")
        following = Server(instead_of=self.server)
        self.addCleanup(following.close)
        self.server.hand_over()
        with self.assertRaises(TimeoutError):
            self.consumer.receive(0.1)
        following.thread.join(WITHIN)
        following.deliver(b"three")
        self.server.deliver(b"two")
        self.assertEqual([bytes(self.message()) for _ in range(2)], [b"two", b"three"])
        self.server.stop()
        following.deliver(b"four", at=100)
        self.assertEqual(bytes(self.message()), b"four")
        following.stop()
        self.assertIsNone(self.consumer.receive(WITHIN))

    def test_a_server_that_hands_over_and_ends_at_once_is_followed(self) -> None:
        following = Server(instead_of=self.server)
        self.addCleanup(following.close)
        self.server.deliver(b"one")
        self.server.hand_over()
        self.server.stop()
        self.assertEqual(bytes(self.message()), b"one")
        with self.assertRaises(TimeoutError):
            self.consumer.receive(0.1)
        following.thread.join(WITHIN)
        following.deliver(b"two")
        self.assertEqual(bytes(self.message()), b"two")
        following.kill()
        with self.assertRaises(LostError):
            self.consumer.receive(WITHIN)

    def test_a_server_killed_after_it_handed_over_is_reported_once(self) -> None:
        following = Server(instead_of=self.server)
        self.addCleanup(following.close)
        self.server.hand_over()
        with self.assertRaises(TimeoutError):
            self.consumer.receive(0.1)
        following.thread.join(WITHIN)
        self.server.kill()
        with self.assertRaises(LostError):
            self.consumer.receive(WITHIN)
        following.deliver(b"two")
        self.assertEqual(bytes(self.message()), b"two")

    def test_a_message_announced_in_two_parts_comes_whole(self) -> None:
        self.server.write(1, 0, 1, wire.FIRST, 2)
        self.server.ring(1)
        with self.assertRaises(TimeoutError):
            self.consumer.receive(0)
        self.server.write(2, 1, 1, wire.LAST, 2)
        self.server.ring(1)
        self.assertEqual(len(self.message().fragments), 2)

    def test_a_server_that_rings_for_nothing_keeps_nobody_beyond_the_time(self) -> None:
        filled = self.server.fill_doorbell()
        with self.assertRaises(TimeoutError):
            self.consumer.receive(0)
        self.assertIn(self.server.fill_doorbell(), range(1, filled))

    def test_items_are_whole_and_views_where_they_can_be(self) -> None:
        data = bytes(range(64))
        for cuts in ([1, 3, 4], [5], [4, 8], [0 + 2, 3], [33, 34, 35, 36, 37], [63]):
            edges = [0, *cuts, len(data)]
            pieces = [data[a:b] for a, b in zip(edges, edges[1:])]
            self.server.deliver(*pieces)
            with self.message() as message:
                items = list(message.items(4))
                self.assertEqual(b"".join(bytes(item) for item in items), data)
                self.assertTrue(all(len(item) % 4 == 0 for item in items))
                copied = sum(len(item) for item in items if isinstance(item, bytes))
                self.assertLessEqual(copied, 4 * len(cuts))
                items.clear()
            del message

    def test_bytes_after_the_last_item_come_last(self) -> None:
        self.server.deliver(b"abcde", b"fg")
        with self.message() as message:
            items = [bytes(item) for item in message.items(4)]
        self.assertEqual(items, [b"abcd", b"e" + b"fg"])

    def test_a_consumer_that_is_closed_receives_nothing(self) -> None:
        self.consumer.close()
        with self.assertRaises(ValueError):
            self.consumer.receive()

    def broken(self) -> str:
        with self.assertRaises(ProtocolError) as caught:
            self.consumer.receive(WITHIN)
        return str(caught.exception)

    def test_a_fragment_outside_its_region_is_found_out(self) -> None:
        self.server.write(1, REGION_BYTES, 1, wire.FIRST | wire.LAST, 1)
        self.server.ring(1)
        self.assertIn("outside", self.broken())

    def test_more_descriptors_than_the_ring_has_are_found_out(self) -> None:
        self.server.ring(ENTRIES + 1)
        self.assertIn("more descriptors", self.broken())

    def test_a_message_inside_another_one_is_found_out(self) -> None:
        for _ in range(2):
            self.server.write(1, 0, 1, wire.FIRST, 2)
        self.server.ring(2)
        self.assertIn("inside", self.broken())

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_an_array_reads_the_memory_and_keeps_it_held(self) -> None:
        values = list(range(100))
        self.server.deliver(struct.pack("<100f", *values), token=3)
        message = self.message()
        array = numpy.frombuffer(message.fragments[0].data, "<f4")
        self.assertFalse(array.flags.owndata)
        self.assertEqual(array.sum(), sum(values))
        self.assertFalse(message.release())
        self.server.region[0:4] = struct.pack("<f", 1000.0)
        self.assertEqual(array.sum(), sum(values) + 1000)
        del array
        self.consumer.flush()
        self.assertEqual(self.server.returned(), [3])


class AttachTest(unittest.TestCase):
    def refused(self, answer: bytes, error: type) -> str:
        server = Server(answer)
        self.addCleanup(server.close)
        with self.assertRaises(error) as caught:
            Consumer(server.path)
        return str(caught.exception)

    def test_a_refusal_says_why(self) -> None:
        def refusal(status: int, version: int = 1) -> bytes:
            return wire.WELCOME.pack(wire.MAGIC, version, status, 0, 0, 0, 0, 0)

        self.assertIn("as many consumers", self.refused(refusal(2), RefusedError))
        self.assertIn("version 2", self.refused(refusal(1, 2), RefusedError))
        self.assertIn("version 2", self.refused(refusal(0, 2), RefusedError))
        self.assertIn("could not make", self.refused(refusal(3), RefusedError))

    def test_a_token_is_named_and_may_be_taken(self) -> None:
        server = Server(token=0x0102030405060708)
        self.addCleanup(server.close)
        with Consumer(server.path, token=0x0102030405060708) as consumer:
            server.deliver(b"for this token", token=3)
            message = consumer.receive(WITHIN)
            assert message is not None
            with message:
                self.assertEqual(bytes(message), b"for this token")
        self.assertEqual(wire.hello(0x0102030405060708)[8:], bytes(range(8, 0, -1)))
        taken = wire.WELCOME.pack(wire.MAGIC, wire.VERSION, wire.STATUS_TAKEN, 0, 0, 0, 0, 0)
        server = Server(taken, token=7)
        self.addCleanup(server.close)
        with self.assertRaisesRegex(RefusedError, "this token"):
            Consumer(server.path, 7)

    def test_a_token_has_eight_bytes(self) -> None:
        for wrong in (-1, 1 << 64):
            with self.assertRaises(ValueError):
                wire.hello(wrong)

    def test_what_is_not_a_welcome_is_not_taken_for_one(self) -> None:
        good = wire.WELCOME.pack(wire.MAGIC, 1, 0, 16, 0, 0, 0, 0)
        for packet in (good[:39], b"x" + good[1:], good + b"x"):
            self.refused(packet, ProtocolError)
        self.assertIn("descriptors", self.refused(good, ProtocolError))

    def test_a_socket_without_a_listener_is_an_error_of_the_system(self) -> None:
        with self.assertRaises(FileNotFoundError):
            Consumer("/nonexistent/ingest")


class WireTest(unittest.TestCase):
    def test_what_is_announced_is_what_is_read(self) -> None:
        for entries in (0, 1, 254, 255, 256, 511, wire.ENTRIES_MAX):
            announcement = wire.announcement(entries)
            self.assertEqual(wire.announced(announcement), entries)
            self.assertLessEqual(len(announcement), entries)

    def test_a_descriptor_lies_as_the_rust_side_has_it(self) -> None:
        # The same bytes as in the test of protocols/messages/src/layout.rs.
        entry = bytes(
            [8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]
            + [0x24, 0x23, 0x22, 0x21, 2, 0, 0x32, 0x31]
            + [0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51]
        )
        fields = wire.DESCRIPTOR.unpack(entry)
        token, offset = 0x0102030405060708, 0x1112131415161718
        expected = (token, offset, 0x21222324, wire.LAST, 0x3132, 0x41424344, 0x51525354)
        self.assertEqual(fields, expected)


if __name__ == "__main__":
    unittest.main()
