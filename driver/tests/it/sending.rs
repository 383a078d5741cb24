//! Sending and ending connections, on real sockets: each test is written once and run on every kind
//! of driver.

on_every_driver! {
    #[test] fn an_empty_list_is_sent_at_once;
    #[test] fn segments_are_sent_in_order;
    #[test] fn a_long_send_to_a_slow_reader_shows_progress_and_arrives_whole;
    #[test] fn what_the_peer_has_acknowledged_grows_as_it_reads;
    #[test] fn a_send_closes_behind_its_last_byte;
    #[test] fn a_send_through_a_narrow_way_arrives_whole;
    #[test] fn a_cancelled_short_send_tells_how_far_it_came;
    #[test] fn a_cancel_ends_a_send_that_has_room_again;
    #[test] fn a_long_send_closes_behind_its_last_byte;
    #[test] fn a_send_to_a_peer_that_is_gone_fails_and_leaves_the_socket_open;
    #[test] fn a_cancelled_send_ends_once_and_the_socket_closes;
    #[test] fn a_cancel_of_a_send_that_is_over_leaves_the_next_one_alone;
    #[test] fn finishing_ends_one_direction_only;
    #[test] fn a_reset_is_seen_as_one;
    #[test] fn segments_are_freed_when_they_are_sent;
}

mod cases {
    use std::io::Read;
    use std::net::Shutdown;
    use std::time::Instant;

    use bytes::Bytes;
    use flatpath_driver::{AfterSend, Delivery, Driver, Errno, Operation, OperationMode, Outcome};

    use crate::rig::{Make, Rig, list, patience, pattern, read_exactly, read_to_end, small, write};

    pub(crate) fn an_empty_list_is_sent_at_once<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver
            .send(socket, 5, &mut list(&[]), AfterSend::KeepOpen);
        assert_eq!(rig.sent(5), (0, false));
        rig.driver.send(socket, 6, &mut list(&[]), AfterSend::Close);
        assert_eq!(rig.sent(6), (0, true));
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"");
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn segments_are_sent_in_order<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let sent = pattern(36_000);
        for count in 1..=8 {
            let parts: Vec<Bytes> = sent
                .chunks(sent.len().div_ceil(count))
                .map(Bytes::copy_from_slice)
                .collect();
            rig.driver
                .send(socket, 5, &mut list(&parts), AfterSend::KeepOpen);
            assert_eq!(rig.sent(5), (sent.len(), false));
            assert_eq!(read_exactly(&mut client, sent.len()), sent);
        }
    }

    pub(crate) fn a_long_send_to_a_slow_reader_shows_progress_and_arrives_whole<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let sent = pattern(24 << 20);
        let parts: Vec<Bytes> = sent.chunks(4 << 20).map(Bytes::copy_from_slice).collect();
        rig.driver
            .send(socket, 5, &mut list(&parts), AfterSend::KeepOpen);
        // The client reads nothing, and still the first part is known to be on its way.
        let first = rig.next(5);
        assert!(first.more, "24 MiB do not fit into a socket: {first:?}");
        let Outcome::Sent {
            bytes: first,
            closed: false,
        } = first.outcome
        else {
            panic!("{first:?}")
        };
        assert!(first > 0);
        let reader = std::thread::spawn(move || (read_exactly(&mut client, 24 << 20), client));
        let (rest, closed) = rig.sent(5);
        assert_eq!((first + rest, closed), (sent.len(), false));
        let (read, _client) = reader.join().expect("all bytes");
        assert!(read == sent, "the bytes differ");
        assert!(rig.driver.statistics().short_sends > 0);
        rig.driver.close(socket);
    }

    pub(crate) fn what_the_peer_has_acknowledged_grows_as_it_reads<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let told = |delivery: Delivery| delivery.acked_bytes;
        let Some(begun) = rig.driver.delivery(socket).map(told) else {
            assert!(socket.descriptor().is_none(), "an ordinary socket can tell");
            return;
        };
        let sent = pattern(24 << 20);
        let bytes = Bytes::from(sent.clone());
        rig.driver
            .send(socket, 5, &mut list(&[bytes]), AfterSend::KeepOpen);
        // The client reads nothing: its receive buffer fills, and that is all.
        let mut acked = begun;
        let mut still = 0;
        rig.until("the peer's buffer is full", |rig| {
            let now = rig.driver.delivery(socket).map(told).expect("as before");
            still = if now == acked { still + 1 } else { 0 };
            acked = now;
            still == 4 && acked > begun
        });
        assert!(acked - begun < 24 << 20, "{acked} bytes and none read");
        rig.until("its kernel to answer probes of the closed window", |rig| {
            let delivery = rig.driver.delivery(socket).expect("as before");
            delivery.is_answered
        });
        client.set_nonblocking(true).expect("a mode");
        let (mut heard, mut buffer) = (0, vec![0; 1 << 20]);
        rig.until("all of it is acknowledged as it is read", |rig| {
            heard += client.read(&mut buffer).unwrap_or_default();
            let now = rig.driver.delivery(socket).map(told).expect("as before");
            assert!(now >= acked, "{now} bytes after {acked}");
            acked = now;
            // The last acknowledgement may come a while after the read.
            heard == sent.len() && acked >= begun + heard as u64
        });
    }

    pub(crate) fn a_send_closes_behind_its_last_byte<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for _ in 0..20 {
            let (mut client, socket) = rig.pair();
            write(&mut client, b"request");
            rig.driver.receive(socket, 4, OperationMode::Single, 0);
            let completion = rig.next(4);
            assert_eq!(rig.received(completion), b"request");
            rig.send_all(socket, 5, b"goodbye", AfterSend::Close);
            rig.turn();
            assert_eq!(read_to_end(&mut client), b"goodbye");
        }
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn a_send_through_a_narrow_way_arrives_whole<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let sent = pattern(60_000);
        for (after, count) in [
            (AfterSend::KeepOpen, 1),
            (AfterSend::Close, 1),
            (AfterSend::KeepOpen, 5),
            (AfterSend::Close, 5),
        ] {
            let (mut client, socket) = rig.narrow_pair();
            let parts: Vec<Bytes> = sent
                .chunks(sent.len().div_ceil(count))
                .map(Bytes::copy_from_slice)
                .collect();
            rig.driver.send(socket, 5, &mut list(&parts), after);
            // The way is full by now, and the send waits.
            rig.turn();
            rig.turn();
            assert!(
                rig.arrived.iter().all(|completion| completion.more),
                "{:?}",
                rig.arrived
            );
            let reader = std::thread::spawn(move || read_to_end(&mut client));
            assert_eq!(rig.sent(5), (sent.len(), after == AfterSend::Close));
            if after == AfterSend::KeepOpen {
                rig.driver.close(socket);
            }
            rig.until("the end of the reader", |_| reader.is_finished());
            let read = reader.join().expect("an orderly end");
            assert!(read == sent, "{after:?} with {count} segments");
        }
    }

    pub(crate) fn a_cancelled_short_send_tells_how_far_it_came<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for after in [AfterSend::KeepOpen, AfterSend::Rest, AfterSend::Close] {
            let (mut client, socket) = rig.narrow_pair();
            let sent = Bytes::from(pattern(60_000));
            rig.driver
                .send(socket, 5, &mut list(std::slice::from_ref(&sent)), after);
            rig.turn();
            rig.driver.cancel(Operation::Send(socket), 5);
            let mut counted = 0;
            let errno = loop {
                let completion = rig.next(5);
                match completion.outcome {
                    Outcome::Sent {
                        bytes,
                        closed: false,
                    } => counted += bytes,
                    Outcome::Failed(errno) => break errno,
                    _ => panic!("{completion:?}"),
                }
            };
            assert_eq!(errno, Errno::CANCELED);
            assert!((1..sent.len()).contains(&counted), "{counted} bytes");
            assert!(sent.is_unique(), "a cancelled send keeps its segment");
            rig.driver.close(socket);
            rig.turn();
            assert!(
                read_to_end(&mut client) == sent[..counted],
                "the bytes differ"
            );
        }
    }

    /// The kernel tries the send again in the moment of its cancel, and fills the socket.
    pub(crate) fn a_cancel_ends_a_send_that_has_room_again<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.narrow_pair();
        let acked = |driver: &mut M::Driver| driver.delivery(socket).map(|told| told.acked_bytes);
        let begun = acked(&mut rig.driver);
        let sent = pattern(60_000);
        rig.send(socket, 5, &sent, AfterSend::Rest);
        let Outcome::Sent { bytes, .. } = rig.next(5).outcome else {
            panic!("the way is narrow");
        };
        rig.driver.cancel(Operation::Send(socket), 5);
        // Without a turn: only the kernel moves bytes meanwhile.
        read_exactly(&mut client, bytes);
        let deadline = Instant::now() + patience();
        while acked(&mut rig.driver) < begun.map(|begun| begun + bytes as u64) {
            assert!(Instant::now() < deadline, "the peer has read all");
        }
        let errno = loop {
            let completion = rig.next(5);
            match completion.outcome {
                Outcome::Sent { .. } => assert!(completion.more),
                Outcome::Failed(errno) => break errno,
                _ => panic!("{completion:?}"),
            }
        };
        assert_eq!(errno, Errno::CANCELED);
        rig.driver.close(socket);
    }

    pub(crate) fn a_long_send_closes_behind_its_last_byte<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let sent = pattern(8 << 20);
        for segments in [1, 3] {
            let (mut client, socket) = rig.pair();
            let parts: Vec<Bytes> = sent
                .chunks(sent.len().div_ceil(segments))
                .map(Bytes::copy_from_slice)
                .collect();
            rig.driver
                .send(socket, 5, &mut list(&parts), AfterSend::Close);
            let reader = std::thread::spawn(move || read_to_end(&mut client));
            assert_eq!(rig.sent(5), (sent.len(), true));
            rig.until("the end of the reader", |_| reader.is_finished());
            assert!(
                reader.join().expect("an orderly end") == sent,
                "the bytes differ"
            );
        }
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn a_send_to_a_peer_that_is_gone_fails_and_leaves_the_socket_open<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for after in [AfterSend::KeepOpen, AfterSend::Rest, AfterSend::Close] {
            let (client, socket) = rig.pair();
            drop(client);
            let mut user_data = 5;
            // The first send finds out by the peer's RST, a later one fails.
            let errno = loop {
                user_data += 1;
                rig.send(socket, user_data, b"anyone?", AfterSend::KeepOpen);
                let completion = rig.next(user_data);
                assert!(!completion.more);
                if let Outcome::Failed(errno) = completion.outcome {
                    break errno;
                }
            };
            assert!(
                [Errno::PIPE, Errno::CONNRESET].contains(&errno),
                "{errno:?}"
            );
            rig.send(socket, 5, b"anyone?", after);
            let completion = rig.next(5);
            assert!(
                matches!(completion.outcome, Outcome::Failed(Errno::PIPE)),
                "{completion:?}"
            );
            // Not closed by the send that failed: closing is no error.
            assert_eq!(rig.driver.statistics().sockets, 1);
            rig.driver.close(socket);
            assert_eq!(rig.driver.statistics().sockets, 0);
        }
    }

    pub(crate) fn a_cancelled_send_ends_once_and_the_socket_closes<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for after in [AfterSend::KeepOpen, AfterSend::Rest, AfterSend::Close] {
            let (mut client, socket) = rig.pair();
            let sent = pattern(24 << 20);
            rig.send(socket, 5, &sent, after);
            let mut counted = 0;
            // Until the socket is full.
            for _ in 0..3 {
                rig.turn();
            }
            rig.driver.cancel(Operation::Send(socket), 5);
            let errno = loop {
                let completion = rig.next(5);
                match completion.outcome {
                    Outcome::Sent {
                        bytes,
                        closed: false,
                    } => counted += bytes,
                    Outcome::Failed(errno) => {
                        assert!(!completion.more);
                        break errno;
                    }
                    _ => panic!("{completion:?}"),
                }
            };
            assert_eq!(errno, Errno::CANCELED);
            rig.driver.close(socket);
            rig.turn();
            let read = read_to_end(&mut client);
            assert_eq!(read.len(), counted, "what was counted was sent");
            assert!(read == sent[..counted], "the bytes differ");
            assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        }
    }

    pub(crate) fn a_cancel_of_a_send_that_is_over_leaves_the_next_one_alone<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.narrow_pair();
        rig.send_all(socket, 5, b"first", AfterSend::KeepOpen);
        let next = pattern(1 << 20);
        rig.send(socket, 6, &next, AfterSend::KeepOpen);
        rig.turn();
        rig.driver.cancel(Operation::Send(socket), 5);
        rig.turn();
        let mut expected = b"first".to_vec();
        expected.extend_from_slice(&next);
        let reader = std::thread::spawn(move || {
            let read = read_exactly(&mut client, expected.len());
            (read == expected, client)
        });
        let mut bytes = 0;
        loop {
            let completion = rig.next(6);
            match completion.outcome {
                Outcome::Sent { bytes: more, .. } => bytes += more,
                other => panic!("after {bytes} bytes: {other:?}"),
            }
            if !completion.more {
                break;
            }
        }
        assert_eq!(bytes, next.len());
        let (is_whole, _client) = reader.join().expect("all of it");
        assert!(is_whole, "the bytes differ");
    }

    pub(crate) fn finishing_ends_one_direction_only<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.send_all(socket, 5, b"last words", AfterSend::KeepOpen);
        rig.driver.shutdown_write(socket);
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"last words");
        write(&mut client, b"reply");
        client.shutdown(Shutdown::Write).expect("open");
        assert_eq!(rig.receive_to_end(socket, 6), b"reply");
        rig.driver.close(socket);
    }

    pub(crate) fn a_reset_is_seen_as_one<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver.abort(socket);
        rig.turn();
        let error = client.read(&mut [0; 1]).expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn segments_are_freed_when_they_are_sent<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (_client, socket) = rig.pair();
        let shared = Bytes::from(pattern(1_000));
        for count in [1, 4] {
            let parts = vec![shared.clone(); count];
            rig.driver
                .send(socket, 5, &mut list(&parts), AfterSend::KeepOpen);
            drop(parts);
            assert_eq!(rig.sent(5), (1_000 * count, false));
            assert!(shared.is_unique(), "a segment outlived its send");
        }
    }
}
