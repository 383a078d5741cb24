//! Accepting, receiving and cancelling, on real sockets: each test is written once and run on every
//! kind of driver.

on_every_driver! {
    #[test] fn accepting_once_takes_one_connection;
    #[test] fn accepting_many_takes_all_that_come;
    #[test] fn a_cancelled_accept_ends_and_can_be_armed_again;
    #[test] fn a_listener_is_shared_by_two_drivers;
    #[test] fn an_accept_deferred_to_the_first_bytes_forgets_no_client;
    #[test] fn receiving_once_gives_what_is_there;
    #[test] fn receiving_waits_for_bytes;
    #[test] fn receiving_many_goes_on_to_the_end_of_the_stream;
    #[test] fn a_half_closed_client_still_gets_its_answer;
    #[test] fn a_reset_client_fails_the_receive;
    #[test] fn a_cancelled_receive_ends_once_and_the_socket_closes;
    #[test] fn a_cancel_that_comes_too_late_does_nothing;
    #[test] fn pieces_kept_by_the_caller_stall_receives_and_lose_nothing;
    #[test] fn a_page_that_is_awaited_ends_one_wait;
    #[test] fn the_largest_token_comes_back_whole;
    #[test] fn an_adopted_socket_works_like_an_accepted_one;
}

// As a server has it.
on_this_driver! { flood_uring OnUring
    #[test] what_comes_fast_leaves_pages_to_others
}

// io_uring's way for kernels whose receive of many pieces takes all that comes.
on_this_driver! { single OnUringSingle
    #[test] what_comes_fast_leaves_pages_to_others
    #[test] receiving_waits_for_bytes
    #[test] a_half_closed_client_still_gets_its_answer
    #[test] a_cancelled_receive_ends_once_and_the_socket_closes
    #[test] pieces_kept_by_the_caller_stall_receives_and_lose_nothing
}

on_this_driver! { flood_epoll OnEpoll
    #[test] what_comes_fast_leaves_pages_to_others
}

mod cases {
    use std::net::{Shutdown, TcpListener};
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use flatpath_driver::{
        AfterSend, Driver, DriverConfig, Errno, Listener, Operation, OperationMode, Outcome,
        USER_DATA_MAX,
    };

    use crate::rig::{
        Make, Rig, is_offered, patience, pattern, read_exactly, read_to_end, small, write,
    };

    /// The kernel has more of one connection than there are pages, and one turn takes a part.
    pub(crate) fn what_comes_fast_leaves_pages_to_others<M: Make>(_: &str) {
        let config = DriverConfig {
            receive_buffers: 256,
            receive_buffer_bytes: 128,
            ..small()
        };
        let Some(mut rig) = Rig::new::<M>(&config) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        write(&mut client, &pattern(48 << 10));
        rig.driver.receive(socket, 1, OperationMode::Multishot, 0);
        let first = rig.next(1);
        assert!(matches!(first.outcome, Outcome::Received(_)), "{first:?}");
        let taken = 1 + rig.arrived.len();
        assert!(rig.driver.free(0) >= 128, "one turn took {taken} pages");
    }

    pub(crate) fn accepting_once_takes_one_connection<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let clients: Vec<_> = (0..3).map(|_| rig.connect()).collect();
        for user_data in 0..clients.len() as u64 {
            rig.driver
                .accept(&rig.listener, user_data, OperationMode::Single);
            let completion = rig.next(user_data);
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

    pub(crate) fn accepting_many_takes_all_that_come<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let mut clients: Vec<_> = (0..100).map(|_| rig.connect()).collect();
        rig.driver
            .accept(&rig.listener, 7, OperationMode::Multishot);
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

    pub(crate) fn a_cancelled_accept_ends_and_can_be_armed_again<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for user_data in 0..10 {
            rig.driver
                .accept(&rig.listener, user_data, OperationMode::Multishot);
            if user_data % 2 == 0 {
                rig.turn();
            }
            rig.driver
                .cancel(Operation::Accept(&rig.listener), user_data);
            let completion = rig.next(user_data);
            assert!(!completion.more);
            assert!(matches!(
                completion.outcome,
                Outcome::Failed(Errno::CANCELED)
            ));
        }
        // No other driver swallowed the connection that comes now.
        let (mut client, socket) = rig.pair();
        rig.send_all(socket, 11, b"hello", AfterSend::Close);
        assert_eq!(read_to_end(&mut client), b"hello");
    }

    pub(crate) fn a_listener_is_shared_by_two_drivers<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let Some(mut other) = M::make(&small()) else {
            return;
        };
        let listener = rig.listener.descriptor().expect("a real one");
        let listener = Listener::new(listener.try_clone_to_owned().expect("a duplicate"));
        rig.driver
            .accept(&rig.listener, 1, OperationMode::Multishot);
        other.accept(&listener, 1, OperationMode::Multishot);
        let _clients: Vec<_> = (0..50).map(|_| rig.connect()).collect();
        let mut theirs = vec![];
        rig.until("50 connections", |rig| {
            other
                .wait(Some(0), &|| false, &mut theirs)
                .expect("the driver works");
            rig.arrived.len() + theirs.len() == 50
        });
    }

    /// A client that speaks is accepted with its bytes; a silent one a second later, as the kernel
    /// hands it over.
    pub(crate) fn an_accept_deferred_to_the_first_bytes_forgets_no_client<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        rig.listener
            .defer_accept()
            .expect("the kernel knows TCP_DEFER_ACCEPT");
        let _silent = rig.connect();
        let mut speaker = rig.connect();
        write(&mut speaker, b"first");
        speaker.shutdown(Shutdown::Write).expect("half-closed");
        rig.driver
            .accept(&rig.listener, 7, OperationMode::Multishot);
        let sockets: Vec<_> = (0..2)
            .map(|_| match rig.next(7).outcome {
                Outcome::Accepted(socket) => socket,
                other => panic!("{other:?}"),
            })
            .collect();
        let address = speaker.local_addr().expect("bound");
        let mut sockets = sockets.iter();
        let heard = sockets.find(|socket| socket.peer() == Some(address));
        let heard = heard.expect("accepted with its address");
        assert_eq!(rig.receive_to_end(*heard, 8), b"first");
    }

    pub(crate) fn receiving_once_gives_what_is_there<M: Make>(_: &str) {
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

    pub(crate) fn receiving_waits_for_bytes<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for mode in [OperationMode::Single, OperationMode::Multishot] {
            let (mut client, socket) = rig.pair();
            rig.driver.receive(socket, 5, mode, 0);
            for _ in 0..3 {
                rig.turn();
                assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
            }
            write(&mut client, b"late");
            let completion = rig.next(5);
            let lasts = completion.more;
            assert!(!lasts || mode == OperationMode::Multishot);
            assert_eq!(rig.received(completion), b"late");
            if !lasts {
                rig.driver.close(socket);
            }
        }
    }

    pub(crate) fn receiving_many_goes_on_to_the_end_of_the_stream<M: Make>(_: &str) {
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
                rig.driver.receive(socket, 9, OperationMode::Multishot, 0);
                arms += 1;
            }
            let completion = rig.next(9);
            armed = completion.more;
            if matches!(completion.outcome, Outcome::Failed(Errno::NOBUFS)) {
                // The kernel was faster than this test is in putting buffers back.
                continue;
            }
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
        let brings_many = is_offered("a receive of many pieces that leaves some");
        if brings_many || rig.driver.kind() != "uring" {
            assert!(arms < 20, "armed {arms} times for one stream");
        }
        rig.driver.close(socket);
    }

    pub(crate) fn a_half_closed_client_still_gets_its_answer<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for mode in [OperationMode::Single, OperationMode::Multishot] {
            let (mut client, socket) = rig.pair();
            client.shutdown(Shutdown::Write).expect("open");
            rig.driver.receive(socket, 5, mode, 0);
            let completion = rig.next(5);
            assert!(!completion.more);
            assert!(
                matches!(completion.outcome, Outcome::EndOfStream),
                "{completion:?}"
            );
            rig.send_all(socket, 6, b"answer", AfterSend::KeepOpen);
            assert_eq!(read_exactly(&mut client, 6), b"answer");
            rig.driver.close(socket);
            rig.turn();
            assert_eq!(read_to_end(&mut client), b"");
        }
    }

    pub(crate) fn a_reset_client_fails_the_receive<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for mode in [OperationMode::Single, OperationMode::Multishot] {
            let (client, socket) = rig.pair();
            rig.driver.receive(socket, 5, mode, 0);
            rig.turn();
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO))
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

    pub(crate) fn a_cancelled_receive_ends_once_and_the_socket_closes<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for round in 0..8 {
            let (mut client, socket) = rig.pair();
            let mode = if round % 2 == 0 {
                OperationMode::Single
            } else {
                OperationMode::Multishot
            };
            rig.driver.receive(socket, round, mode, 0);
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

    pub(crate) fn a_cancel_that_comes_too_late_does_nothing<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        write(&mut client, b"first");
        rig.driver.receive(socket, 5, OperationMode::Single, 0);
        let completion = rig.next(5);
        rig.driver.cancel(Operation::Receive(socket), 5);
        rig.driver.cancel(Operation::Send(socket), 6);
        assert_eq!(rig.received(completion), b"first");
        // The same user_data again: the late cancel does not hit it.
        rig.driver.receive(socket, 5, OperationMode::Single, 0);
        write(&mut client, b"second");
        let completion = rig.next(5);
        assert_eq!(rig.received(completion), b"second");
        rig.send_all(socket, 6, b"third", AfterSend::Close);
        assert_eq!(read_to_end(&mut client), b"third");
    }

    pub(crate) fn pieces_kept_by_the_caller_stall_receives_and_lose_nothing<M: Make>(_: &str) {
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
        rig.driver.receive(socket, 5, OperationMode::Multishot, 0);
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
                        rig.driver.recycle(piece);
                    }
                }
                _ => panic!("{completion:?}"),
            }
            if rearm {
                rig.driver.receive(socket, 5, OperationMode::Multishot, 0);
            }
        }
        for piece in kept.drain(..) {
            all.extend_from_slice(rig.driver.bytes(&piece));
            rig.driver.recycle(piece);
        }
        assert_eq!(all, sent);
        assert!(
            stalls >= 4,
            "{stalls} stalls for ten buffers' worth with two buffers"
        );
        assert_eq!(rig.driver.statistics().stalls, stalls);
        assert_eq!(rig.driver.statistics().buffers_in_use, 0);
    }

    pub(crate) fn a_page_that_is_awaited_ends_one_wait<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let wait = |rig: &mut Rig<M::Driver>, most: Duration| {
            let (began, most_ns) = (Instant::now(), most.as_nanos() as u64);
            let waited = rig.driver.wait(Some(most_ns), &|| false, &mut rig.arrived);
            waited.expect("the driver works");
            began.elapsed()
        };
        let pause = Duration::from_millis(200);
        rig.driver.await_pages(0);
        assert!(wait(&mut rig, patience()) < patience(), "there is one");
        assert!(wait(&mut rig, pause) >= pause, "none is awaited any more");
    }

    pub(crate) fn the_largest_token_comes_back_whole<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver
            .receive(socket, USER_DATA_MAX, OperationMode::Single, 0);
        write(&mut client, b"x");
        let completion = rig.next(USER_DATA_MAX);
        assert_eq!(rig.received(completion), b"x");
        rig.send_all(socket, USER_DATA_MAX, b"y", AfterSend::Close);
        rig.driver
            .accept(&rig.listener, USER_DATA_MAX, OperationMode::Single);
        let _client = rig.connect();
        assert!(matches!(
            rig.next(USER_DATA_MAX).outcome,
            Outcome::Accepted(_)
        ));
    }

    pub(crate) fn an_adopted_socket_works_like_an_accepted_one<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = elsewhere.local_addr().expect("bound");
        let ours = std::net::TcpStream::connect(address).expect("listening");
        ours.set_nonblocking(true).expect("a socket");
        let (mut peer, _) = elsewhere.accept().expect("a connection");
        let socket = rig.driver.register(OwnedFd::from(ours)).expect("a socket");
        rig.driver.receive(socket, 5, OperationMode::Single, 0);
        rig.turn();
        write(&mut peer, b"hello");
        let completion = rig.next(5);
        assert_eq!(rig.received(completion), b"hello");
        rig.send_all(socket, 6, b"goodbye", AfterSend::Close);
        rig.turn();
        assert_eq!(read_to_end(&mut peer), b"goodbye");
        assert_eq!(rig.driver.statistics().sockets, 0);
    }
}
