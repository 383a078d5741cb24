//! What every driver does, on real sockets: each test is written once and run on io_uring, on io_uring
//! with direct descriptors, and on epoll.

mod rig;

/// A test that is missing here is an unused function, and refused by the lints.
macro_rules! on_every_driver {
    ($($case:ident)*) => {
        mod uring { $(#[test] fn $case() { super::cases::$case::<super::rig::OnUring>(); })* }
        mod uring_direct {
            $(#[test] fn $case() { super::cases::$case::<super::rig::OnUringDirect>(); })*
        }
        mod epoll { $(#[test] fn $case() { super::cases::$case::<super::rig::OnEpoll>(); })* }
    };
}

on_every_driver! {
    accepting_once_takes_one_connection
    accepting_many_takes_all_that_come
    a_cancelled_accept_ends_and_can_be_armed_again
    a_listener_is_shared_by_two_drivers
    receiving_once_gives_what_is_there
    receiving_waits_for_bytes
    receiving_many_goes_on_to_the_end_of_the_stream
    a_half_closed_client_still_gets_its_answer
    a_reset_client_fails_the_receive
    a_cancelled_receive_ends_once_and_the_socket_closes
    a_cancel_that_comes_too_late_does_nothing
    pieces_kept_by_the_caller_stall_receives_and_lose_nothing
    the_largest_token_comes_back_whole
    an_empty_list_is_sent_at_once
    segments_are_sent_in_order
    a_long_send_to_a_slow_reader_shows_progress_and_arrives_whole
    a_send_closes_behind_its_last_byte
    a_long_send_closes_behind_its_last_byte
    a_send_to_a_peer_that_is_gone_fails_and_leaves_the_socket_open
    a_cancelled_send_ends_once_and_the_socket_closes
    finishing_ends_one_direction_only
    a_reset_is_seen_as_one
    an_adopted_socket_works_like_an_accepted_one
    segments_are_freed_when_they_are_sent
}

mod cases {
    use std::io::Read;
    use std::net::{Shutdown, TcpListener};
    use std::os::fd::OwnedFd;

    use bytes::Bytes;
    use flatpath_driver::{
        Driver, DriverConfig, Errno, Listener, Operation, Outcome, Shots, TOKEN_MAX, Then,
    };

    use crate::rig::{Make, Rig, list, pattern, read_exactly, read_to_end, small, write};

    pub(crate) fn accepting_once_takes_one_connection<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let clients: Vec<_> = (0..3).map(|_| rig.connect()).collect();
        for token in 0..clients.len() as u64 {
            rig.driver.accept(&rig.listener, token, Shots::Once);
            let completion = rig.next(token);
            assert!(!completion.more);
            assert!(
                matches!(completion.outcome, Outcome::Accepted(_)),
                "{completion:?}"
            );
            // Nothing further is accepted unasked.
            rig.turn();
            assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        }
        assert_eq!(rig.driver.statistics().sockets, 3);
    }

    pub(crate) fn accepting_many_takes_all_that_come<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let mut clients: Vec<_> = (0..100).map(|_| rig.connect()).collect();
        rig.driver.accept(&rig.listener, 7, Shots::Many);
        for round in 0..200 {
            let completion = rig.next(7);
            assert!(completion.more, "{completion:?}");
            let Outcome::Accepted(socket) = completion.outcome else {
                panic!("{completion:?}")
            };
            rig.driver.close(socket);
            if round < 100 {
                clients.push(rig.connect());
            }
        }
        rig.turn();
        for client in &mut clients {
            assert_eq!(read_to_end(client), b"");
        }
        assert_eq!(rig.driver.statistics().accepts_armed, 1);
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn a_cancelled_accept_ends_and_can_be_armed_again<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for token in 0..10 {
            rig.driver.accept(&rig.listener, token, Shots::Many);
            if token % 2 == 0 {
                rig.turn();
            }
            rig.driver.cancel(Operation::Accept(&rig.listener), token);
            let completion = rig.next(token);
            assert!(!completion.more);
            assert!(matches!(
                completion.outcome,
                Outcome::Failed(Errno::CANCELED)
            ));
        }
        // Nobody swallowed the connection that comes now.
        let (mut client, socket) = rig.pair();
        rig.send_all(socket, 11, b"hello", Then::Close);
        assert_eq!(read_to_end(&mut client), b"hello");
    }

    pub(crate) fn a_listener_is_shared_by_two_drivers<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let Some(mut other) = M::make(&small()) else {
            return;
        };
        let listener = rig.listener.descriptor().expect("a real one");
        let listener = Listener::new(listener.try_clone_to_owned().expect("a duplicate"));
        rig.driver.accept(&rig.listener, 1, Shots::Many);
        other.accept(&listener, 1, Shots::Many);
        let _clients: Vec<_> = (0..50).map(|_| rig.connect()).collect();
        let mut theirs = vec![];
        rig.until("50 connections", |rig| {
            other
                .wait(Some(0), &|| false, &mut theirs)
                .expect("goes on");
            rig.arrived.len() + theirs.len() == 50
        });
    }

    pub(crate) fn receiving_once_gives_what_is_there<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let sent = pattern(10_000);
        write(&mut client, &sent);
        client.shutdown(Shutdown::Write).expect("open");
        assert_eq!(rig.receive_to_end(socket, 5), sent);
        assert_eq!(rig.driver.statistics().buffers_in_use, 0);
        rig.driver.close(socket);
    }

    pub(crate) fn receiving_waits_for_bytes<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for shots in [Shots::Once, Shots::Many] {
            let (mut client, socket) = rig.pair();
            rig.driver.receive(socket, 5, shots);
            for _ in 0..3 {
                rig.turn();
                assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
            }
            write(&mut client, b"late");
            let completion = rig.next(5);
            assert_eq!(completion.more, shots == Shots::Many);
            assert_eq!(rig.received(completion), b"late");
            if shots == Shots::Once {
                rig.driver.close(socket);
            }
        }
    }

    pub(crate) fn receiving_many_goes_on_to_the_end_of_the_stream<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let sent = pattern(300_000);
        let (mut all, mut arms) = (vec![], 0);
        let mut armed = false;
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || {
                sent.chunks(7_777)
                    .for_each(|chunk| write(&mut client, chunk));
                client
            }
        });
        let mut writer = Some(writer);
        loop {
            if !armed {
                rig.driver.receive(socket, 9, Shots::Many);
                arms += 1;
            }
            let completion = rig.next(9);
            armed = completion.more;
            if matches!(completion.outcome, Outcome::EndOfStream) {
                assert!(!completion.more);
                break;
            }
            all.extend(rig.received(completion));
            if all.len() == sent.len() {
                // Dropping the client ends the stream.
                drop(writer.take().map(std::thread::JoinHandle::join));
            }
        }
        assert_eq!(all, sent);
        assert!(arms < 20, "armed {arms} times for one stream");
        rig.driver.close(socket);
    }

    pub(crate) fn a_half_closed_client_still_gets_its_answer<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for shots in [Shots::Once, Shots::Many] {
            let (mut client, socket) = rig.pair();
            client.shutdown(Shutdown::Write).expect("open");
            rig.driver.receive(socket, 5, shots);
            let completion = rig.next(5);
            assert!(!completion.more);
            assert!(
                matches!(completion.outcome, Outcome::EndOfStream),
                "{completion:?}"
            );
            rig.send_all(socket, 6, b"answer", Then::Keep);
            assert_eq!(read_exactly(&mut client, 6), b"answer");
            rig.driver.close(socket);
            rig.turn();
            assert_eq!(read_to_end(&mut client), b"");
        }
    }

    pub(crate) fn a_reset_client_fails_the_receive<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for shots in [Shots::Once, Shots::Many] {
            let (client, socket) = rig.pair();
            rig.driver.receive(socket, 5, shots);
            rig.turn();
            rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))
                .expect("a socket");
            drop(client);
            let completion = rig.next(5);
            assert!(!completion.more);
            let Outcome::Failed(errno) = completion.outcome else {
                panic!("{completion:?}")
            };
            assert_eq!(errno, Errno::CONNRESET);
            rig.driver.close(socket);
        }
    }

    pub(crate) fn a_cancelled_receive_ends_once_and_the_socket_closes<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for round in 0..8 {
            let (mut client, socket) = rig.pair();
            let shots = if round % 2 == 0 {
                Shots::Once
            } else {
                Shots::Many
            };
            rig.driver.receive(socket, round, shots);
            if round > 3 {
                rig.turn();
            }
            rig.driver.cancel(Operation::Receive(socket), round);
            let completion = rig.next(round);
            assert!(!completion.more);
            assert!(matches!(
                completion.outcome,
                Outcome::Failed(Errno::CANCELED)
            ));
            rig.driver.close(socket);
            rig.turn();
            assert_eq!(read_to_end(&mut client), b"");
            assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        }
    }

    pub(crate) fn a_cancel_that_comes_too_late_does_nothing<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        write(&mut client, b"first");
        rig.driver.receive(socket, 5, Shots::Once);
        let completion = rig.next(5);
        rig.driver.cancel(Operation::Receive(socket), 5);
        rig.driver.cancel(Operation::Send(socket), 6);
        assert_eq!(rig.received(completion), b"first");
        // The same token again: the late cancel does not hit it.
        rig.driver.receive(socket, 5, Shots::Once);
        write(&mut client, b"second");
        let completion = rig.next(5);
        assert_eq!(rig.received(completion), b"second");
        rig.send_all(socket, 6, b"third", Then::Close);
        assert_eq!(read_to_end(&mut client), b"third");
    }

    pub(crate) fn pieces_kept_by_the_caller_stall_receives_and_lose_nothing<M: Make>() {
        let config = DriverConfig {
            receive_buffers: 2,
            receive_buffer_bytes: 100,
            ..small()
        };
        let Some(mut rig) = Rig::new::<M>(&config) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let sent = pattern(1_000);
        write(&mut client, &sent);
        client.shutdown(Shutdown::Write).expect("open");
        let (mut all, mut kept, mut stalls) = (vec![], vec![], 0);
        rig.driver.receive(socket, 5, Shots::Many);
        loop {
            let completion = rig.next(5);
            let rearm = !completion.more;
            match completion.outcome {
                Outcome::Received(piece) => kept.push(piece),
                Outcome::EndOfStream => break,
                Outcome::Failed(Errno::NOBUFS) => {
                    assert!(rearm, "a stall ends the operation");
                    stalls += 1;
                    for piece in kept.drain(..) {
                        all.extend_from_slice(rig.driver.bytes(&piece));
                        rig.driver.put(piece);
                    }
                }
                _ => panic!("{completion:?}"),
            }
            if rearm {
                rig.driver.receive(socket, 5, Shots::Many);
            }
        }
        for piece in kept.drain(..) {
            all.extend_from_slice(rig.driver.bytes(&piece));
            rig.driver.put(piece);
        }
        assert_eq!(all, sent);
        assert!(
            stalls >= 4,
            "{stalls} stalls for ten buffers' worth with two buffers"
        );
        assert_eq!(rig.driver.statistics().stalls, stalls);
        assert_eq!(rig.driver.statistics().buffers_in_use, 0);
    }

    pub(crate) fn the_largest_token_comes_back_whole<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver.receive(socket, TOKEN_MAX, Shots::Once);
        write(&mut client, b"x");
        let completion = rig.next(TOKEN_MAX);
        assert_eq!(rig.received(completion), b"x");
        rig.send_all(socket, TOKEN_MAX, b"y", Then::Close);
        rig.driver.accept(&rig.listener, TOKEN_MAX, Shots::Once);
        let _client = rig.connect();
        assert!(matches!(rig.next(TOKEN_MAX).outcome, Outcome::Accepted(_)));
    }

    pub(crate) fn an_empty_list_is_sent_at_once<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver.send(socket, 5, list(&[]), Then::Keep);
        assert_eq!(rig.sent(5), (0, false));
        rig.driver.send(socket, 6, list(&[]), Then::Close);
        assert_eq!(rig.sent(6), (0, true));
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"");
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn segments_are_sent_in_order<M: Make>() {
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
            rig.driver.send(socket, 5, list(&parts), Then::Keep);
            assert_eq!(rig.sent(5), (sent.len(), false));
            assert_eq!(read_exactly(&mut client, sent.len()), sent);
        }
    }

    pub(crate) fn a_long_send_to_a_slow_reader_shows_progress_and_arrives_whole<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let sent = pattern(24 << 20);
        let parts: Vec<Bytes> = sent.chunks(4 << 20).map(Bytes::copy_from_slice).collect();
        rig.driver.send(socket, 5, list(&parts), Then::Keep);
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

    pub(crate) fn a_send_closes_behind_its_last_byte<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for _ in 0..20 {
            let (mut client, socket) = rig.pair();
            write(&mut client, b"request");
            rig.driver.receive(socket, 4, Shots::Once);
            let completion = rig.next(4);
            assert_eq!(rig.received(completion), b"request");
            rig.send_all(socket, 5, b"goodbye", Then::Close);
            rig.turn();
            assert_eq!(read_to_end(&mut client), b"goodbye");
        }
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn a_long_send_closes_behind_its_last_byte<M: Make>() {
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
            rig.driver.send(socket, 5, list(&parts), Then::Close);
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

    pub(crate) fn a_send_to_a_peer_that_is_gone_fails_and_leaves_the_socket_open<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for then in [Then::Keep, Then::Close] {
            let (client, socket) = rig.pair();
            drop(client);
            let mut token = 5;
            // The first send finds out by the peer's RST, a later one fails.
            let errno = loop {
                token += 1;
                rig.send(socket, token, b"anyone?", Then::Keep);
                let completion = rig.next(token);
                assert!(!completion.more);
                if let Outcome::Failed(errno) = completion.outcome {
                    break errno;
                }
            };
            assert!(
                [Errno::PIPE, Errno::CONNRESET].contains(&errno),
                "{errno:?}"
            );
            rig.send(socket, 5, b"anyone?", then);
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

    pub(crate) fn a_cancelled_send_ends_once_and_the_socket_closes<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for then in [Then::Keep, Then::Close] {
            let (mut client, socket) = rig.pair();
            let sent = pattern(24 << 20);
            rig.send(socket, 5, &sent, then);
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

    pub(crate) fn finishing_ends_one_direction_only<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.send_all(socket, 5, b"last words", Then::Keep);
        rig.driver.finish(socket);
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"last words");
        write(&mut client, b"reply");
        client.shutdown(Shutdown::Write).expect("open");
        assert_eq!(rig.receive_to_end(socket, 6), b"reply");
        rig.driver.close(socket);
    }

    pub(crate) fn a_reset_is_seen_as_one<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver.reset(socket);
        rig.turn();
        let error = client.read(&mut [0; 1]).expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn an_adopted_socket_works_like_an_accepted_one<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = elsewhere.local_addr().expect("bound");
        let ours = std::net::TcpStream::connect(address).expect("listening");
        ours.set_nonblocking(true).expect("a socket");
        let (mut peer, _) = elsewhere.accept().expect("a connection");
        let socket = rig.driver.adopt(OwnedFd::from(ours)).expect("a socket");
        rig.driver.receive(socket, 5, Shots::Once);
        rig.turn();
        write(&mut peer, b"hello");
        let completion = rig.next(5);
        assert_eq!(rig.received(completion), b"hello");
        rig.send_all(socket, 6, b"goodbye", Then::Close);
        rig.turn();
        assert_eq!(read_to_end(&mut peer), b"goodbye");
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn segments_are_freed_when_they_are_sent<M: Make>() {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (_client, socket) = rig.pair();
        let shared = Bytes::from(pattern(1_000));
        for count in [1, 4] {
            let parts = vec![shared.clone(); count];
            rig.driver.send(socket, 5, list(&parts), Then::Keep);
            drop(parts);
            assert_eq!(rig.sent(5), (1_000 * count, false));
            assert!(shared.is_unique(), "a segment outlived its send");
        }
    }
}
