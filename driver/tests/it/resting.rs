//! Sends with nothing after them, on real sockets: no wait ends because one went through, and none
//! is slept on that did not.

on_every_driver! {
    #[test] fn a_wait_does_not_end_because_such_a_send_went_through;
    #[test] fn its_completion_comes_with_what_ends_the_wait;
    #[test] fn a_caller_in_a_hurry_gets_it_at_once;
    #[test] fn a_socket_without_room_ends_the_wait_and_the_rest_follows;
    #[test] fn a_peer_that_is_gone_ends_the_wait;
    #[test] fn more_than_the_queue_holds_all_go_out;
    #[test] fn each_that_failed_is_known_when_the_completion_queue_overflows;
    #[test] fn a_reply_and_the_wait_for_the_next_request_are_one_wait;
    #[test] fn a_driver_is_dropped_with_such_sends_under_way;
}

mod cases {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use flatpath_driver::{AfterSend, Driver, DriverConfig, Errno, OperationMode, Outcome};

    use crate::rig::{Make, Rig, patience, pattern, read_exactly, small};

    fn wait<D: Driver>(rig: &mut Rig<D>, most: Duration) {
        let most_ns = most.as_nanos() as u64;
        let waited = rig.driver.wait(Some(most_ns), &|| false, &mut rig.arrived);
        waited.expect("the driver works");
    }

    pub(crate) fn a_wait_does_not_end_because_such_a_send_went_through<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let pause = Duration::from_millis(200);
        let began = Instant::now();
        rig.send(socket, 5, b"reply", AfterSend::Rest);
        wait(&mut rig, pause);
        assert!(began.elapsed() >= pause, "{:?}", rig.arrived);
        assert_eq!(rig.arrived.len(), 1, "{:?}", rig.arrived);
        assert_eq!(rig.sent(5), (5, false));
        assert_eq!(read_exactly(&mut client, 5), b"reply");
        assert_eq!(rig.driver.statistics().sockets, 1);
    }

    pub(crate) fn its_completion_comes_with_what_ends_the_wait<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver.receive(socket, 4, OperationMode::Single, 0);
        rig.send(socket, 5, b"reply", AfterSend::Rest);
        // The client asks again once it has the reply.
        let asker = std::thread::spawn(move || {
            let reply = read_exactly(&mut client, 5);
            client.write_all(b"again").expect("sent");
            (reply, client)
        });
        wait(&mut rig, patience());
        let mut numbers: Vec<u64> = rig.arrived.iter().map(|it| it.user_data).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [4, 5]);
        let (reply, _client) = asker.join().expect("a reply");
        assert_eq!(reply, b"reply");
        assert_eq!(rig.sent(5), (5, false));
        let again = rig.next(4);
        assert_eq!(rig.received(again), b"again");
    }

    pub(crate) fn a_caller_in_a_hurry_gets_it_at_once<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (_client, socket) = rig.pair();
        for number in 0..5 {
            let began = Instant::now();
            rig.send(socket, number, b"reply", AfterSend::Rest);
            rig.driver.hurry();
            wait(&mut rig, patience());
            assert!(began.elapsed() < patience(), "it ended for the completion");
            assert_eq!(rig.sent(number), (5, false));
        }
    }

    pub(crate) fn a_socket_without_room_ends_the_wait_and_the_rest_follows<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.narrow_pair();
        let (sent, mut reply) = (pattern(48 << 10), vec![]);
        let mut numbers = 5..1000;
        // What the kernel takes is more than it was asked to keep, so not the first need be short.
        let (number, part) = loop {
            let number = numbers.next().expect("a narrow socket is full soon");
            reply.extend_from_slice(&sent);
            rig.send(socket, number, &sent, AfterSend::Rest);
            rig.driver.hurry();
            wait(&mut rig, patience());
            match rig.arrived.pop() {
                Some(all) if !all.more => assert_eq!(sent_bytes(&all.outcome), sent.len()),
                part => break (number, part),
            }
        };
        let part = part.map_or(0, |part| sent_bytes(&part.outcome));
        let length = reply.len();
        let reader = std::thread::spawn(move || (read_exactly(&mut client, length), client));
        let (rest, _) = rig.sent(number);
        assert_eq!(part + rest, sent.len());
        let (read, _client) = reader.join().expect("all bytes");
        assert!(read == reply, "the bytes differ");
    }

    fn sent_bytes(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Sent { bytes, .. } => *bytes,
            other => panic!("not sent but {other:?}"),
        }
    }

    pub(crate) fn a_peer_that_is_gone_ends_the_wait<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (client, socket) = rig.pair();
        drop(client);
        // The first may go through; the answer to it is a reset.
        let began = Instant::now();
        for number in 0..1000 {
            rig.send(socket, number, b"anyone?", AfterSend::Rest);
            rig.driver.hurry();
            wait(&mut rig, patience());
            let completion = rig.next(number);
            if matches!(completion.outcome, Outcome::Failed(_)) {
                assert!(began.elapsed() < patience());
                rig.send(socket, number, b"anyone?", AfterSend::Rest);
                wait(&mut rig, patience());
                assert!(began.elapsed() < patience(), "without a hurry, too");
                assert!(matches!(rig.next(number).outcome, Outcome::Failed(_)));
                rig.driver.close(socket);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("a send to a peer that is gone fails");
    }

    pub(crate) fn more_than_the_queue_holds_all_go_out<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pairs: Vec<_> = (0..150).map(|_| rig.pair()).collect();
        for round in 0..3 {
            for (number, (_, socket)) in (0..).zip(&pairs) {
                rig.send(*socket, number, &[round; 100], AfterSend::Rest);
            }
            for number in 0..150 {
                rig.driver.hurry();
                assert_eq!(rig.sent(number), (100, false));
            }
        }
        for (mut client, socket) in pairs {
            let expected: Vec<u8> = (0..3).flat_map(|round| [round; 100]).collect();
            assert_eq!(read_exactly(&mut client, 300), expected);
            rig.driver.close(socket);
        }
    }

    pub(crate) fn each_that_failed_is_known_when_the_completion_queue_overflows<M: Make>(_: &str) {
        const SENDS: u64 = 100;
        let config = DriverConfig {
            submission_entries: 8,
            completion_entries: 8,
            ..small()
        };
        let Some(mut rig) = Rig::new::<M>(&config) else {
            return;
        };
        let mut sockets = vec![];
        for number in 0..SENDS {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            drop(theirs);
            let socket = rig.driver.register(ours.into()).expect("registered");
            rig.send(socket, number, b"anyone?", AfterSend::Rest);
            sockets.push(socket);
        }
        for (number, socket) in (0..).zip(sockets) {
            let outcome = rig.next(number).outcome;
            assert!(
                matches!(outcome, Outcome::Failed(Errno::PIPE)),
                "{number}: {outcome:?}"
            );
            rig.driver.close(socket);
        }
    }

    pub(crate) fn a_reply_and_the_wait_for_the_next_request_are_one_wait<M: Make>(_: &str) {
        const ROUNDS: u64 = 100;
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let asker = std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                client.write_all(b"?").expect("sent");
                assert_eq!(read_exactly(&mut client, 1), b"!");
            }
            client
        });
        let before = rig.driver.statistics();
        rig.driver.receive(socket, 4, OperationMode::Multishot, 0);
        for _ in 0..ROUNDS {
            let question = rig.next(4);
            let lasts = question.more;
            rig.received(question);
            rig.arrived.retain(|completion| completion.user_data != 5);
            rig.send(socket, 5, b"!", AfterSend::Rest);
            if !lasts {
                rig.driver.receive(socket, 4, OperationMode::Multishot, 0);
            }
        }
        rig.driver.hurry();
        rig.sent(5);
        let after = rig.driver.statistics();
        drop(asker.join().expect("all answers"));
        // More only where the other thread paused for longer than a turn of the rig.
        let enters = after.enters - before.enters;
        assert!(enters <= ROUNDS + ROUNDS / 2, "{enters} waits");
        let calls = after.system_calls - before.system_calls;
        let is_uring = rig.driver.kind() == "uring";
        // With epoll a receive, a send, and a receive that finds nothing.
        let expected = if is_uring { ROUNDS } else { 4 * ROUNDS };
        assert!(calls <= expected + ROUNDS, "{calls} calls");
    }

    pub(crate) fn a_driver_is_dropped_with_such_sends_under_way<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pairs: Vec<_> = (0..10).map(|_| rig.pair()).collect();
        for (number, (_, socket)) in (0..).zip(&pairs) {
            rig.send(*socket, number, b"farewell", AfterSend::Rest);
        }
        let began = Instant::now();
        drop(rig);
        assert!(began.elapsed() < patience());
        drop(pairs);
    }
}
