//! Receiving into the caller's buffers, on real sockets: each test is written once and run on every
//! kind of driver.

on_every_driver! {
    #[test] fn filling_takes_what_is_there;
    #[test] fn filling_waits_for_nothing;
    #[test] fn a_fill_ends_with_the_stream_and_gives_its_buffer_back;
    #[test] fn a_fill_of_a_reset_connection_fails_and_gives_its_buffer_back;
    #[test] fn a_receive_follows_a_fill_that_found_nothing;
}

mod cases {
    use std::net::{Shutdown, TcpStream};
    use std::time::Duration;

    use flatpath_driver::{Driver, OperationMode, Outcome, Socket};
    use flatpath_structures::pool::{Buffer, Pool, PoolConfig, Zero};

    use crate::rig::{Make, Rig, pattern, small, write};

    fn pool() -> Pool {
        Pool::new(PoolConfig {
            classes: vec![64 * 1024],
            budget_bytes: 1 << 20,
            zero: Zero::WhenLent,
        })
    }

    fn filled<D: Driver>(rig: &mut Rig<D>, socket: Socket, buffer: Buffer) -> Buffer {
        rig.driver.recv_into(socket, 5, buffer);
        let completion = rig.next(5);
        assert!(!completion.more);
        let Outcome::ReceivedInto(buffer) = completion.outcome else {
            panic!("not filled but {completion:?}")
        };
        buffer
    }

    pub(crate) fn filling_takes_what_is_there<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pool = pool();
        let (mut client, socket) = rig.pair();
        let sent = pattern(50_000);
        write(&mut client, &sent);
        let mut buffer = pool.take(64 * 1024).expect("room");
        buffer.append(b"before");
        while buffer.filled().len() < 6 + sent.len() {
            buffer = filled(&mut rig, socket, buffer);
            rig.turn();
        }
        assert_eq!(&buffer.filled()[..6], b"before");
        assert_eq!(buffer.filled()[6..], sent);
        assert_eq!(rig.driver.statistics().buffers_in_use, 0);
        rig.driver.close(socket);
    }

    pub(crate) fn filling_waits_for_nothing<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pool = pool();
        let (_client, socket) = rig.pair();
        for _ in 0..3 {
            let buffer = filled(&mut rig, socket, pool.take(1).expect("room"));
            assert!(buffer.is_empty());
        }
        rig.driver.close(socket);
    }

    pub(crate) fn a_fill_ends_with_the_stream_and_gives_its_buffer_back<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pool = pool();
        let (client, socket) = rig.pair();
        client.shutdown(Shutdown::Write).expect("open");
        ends(&mut rig, &pool, socket, |outcome| {
            matches!(outcome, Outcome::EndOfStream)
        });
    }

    pub(crate) fn a_fill_of_a_reset_connection_fails_and_gives_its_buffer_back<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pool = pool();
        let (client, socket) = rig.pair();
        reset(client);
        ends(&mut rig, &pool, socket, |outcome| {
            matches!(outcome, Outcome::Failed(_))
        });
    }

    /// Fills until the peer's end has arrived; then every buffer is back.
    fn ends<D: Driver>(
        rig: &mut Rig<D>,
        pool: &Pool,
        socket: Socket,
        is_end: impl Fn(&Outcome) -> bool,
    ) {
        let mut ended = false;
        rig.until("the end", |rig| {
            rig.driver.recv_into(socket, 5, pool.take(1).expect("room"));
            let completion = rig.next(5);
            ended = is_end(&completion.outcome);
            let outcome = &completion.outcome;
            let is_empty = matches!(outcome, Outcome::ReceivedInto(buffer) if buffer.is_empty());
            assert!(ended || is_empty, "{completion:?}");
            ended
        });
        assert_eq!(pool.statistics().in_use_bytes, 0, "the buffer is back");
        rig.driver.close(socket);
    }

    fn reset(client: TcpStream) {
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket");
        drop(client);
    }

    pub(crate) fn a_receive_follows_a_fill_that_found_nothing<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let pool = pool();
        let (mut client, socket) = rig.pair();
        let buffer = filled(&mut rig, socket, pool.take(1).expect("room"));
        assert!(buffer.is_empty());
        rig.driver.receive(socket, 6, OperationMode::Single, 0);
        write(&mut client, b"late");
        let completion = rig.next(6);
        assert_eq!(rig.received(completion), b"late");
        rig.driver.close(socket);
    }
}
