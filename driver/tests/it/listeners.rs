//! Listeners that are closed, and descriptor numbers that are another file's afterwards, on every
//! kind of driver.

on_every_driver! {
    #[test] fn the_number_of_a_listener_that_was_closed_is_a_connections_next;
    #[test] fn the_number_of_a_listener_that_was_closed_is_another_listeners_next;
}

mod cases {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
    use std::sync::atomic::{AtomicI32, Ordering};

    use flatpath_driver::{Driver, Listener, OperationMode, Outcome};
    use rustix::io::fcntl_dupfd_cloexec;

    use crate::rig::{Make, Rig, connect, small, write};

    /// A descriptor number that nothing else in this process gets.
    fn number_of_ones_own() -> RawFd {
        // Above what the other tests open, below what a process may by default.
        static NEXT: AtomicI32 = AtomicI32::new(1000);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The same file under that number.
    fn at(number: RawFd, file: impl AsFd) -> OwnedFd {
        let file = fcntl_dupfd_cloexec(file, number).expect("a descriptor");
        assert_eq!(file.as_raw_fd(), number, "the test misses its aim");
        file
    }

    fn listen_at(number: RawFd) -> (Listener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        (Listener::new(at(number, &listener)), address)
    }

    /// Accepts once, after having waited for it, and closes the listener, as the contract allows.
    fn accept_once_and_close<D: Driver>(rig: &mut Rig<D>, number: RawFd) {
        let (listener, address) = listen_at(number);
        rig.driver.accept(&listener, 1, OperationMode::Single);
        rig.turn();
        assert!(rig.arrived.is_empty());
        let _client = connect(address);
        let completion = rig.next(1);
        assert!(!completion.more, "the listener may be closed now");
        let Outcome::Accepted(socket) = completion.outcome else {
            panic!("{completion:?}")
        };
        rig.driver.close(socket);
    }

    pub(crate) fn the_number_of_a_listener_that_was_closed_is_a_connections_next<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let number = number_of_ones_own();
        accept_once_and_close(&mut rig, number);
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = TcpStream::connect(other.local_addr().expect("bound")).expect("listening");
        let (ours, _) = other.accept().expect("a connection");
        let ours = at(number, &ours);
        let socket = rig.driver.register(ours).expect("a socket");
        rig.driver.receive(socket, 2, OperationMode::Multishot, 0);
        // Interest from now on, and slept with.
        for _ in 0..3 {
            rig.turn();
        }
        assert!(rig.arrived.is_empty());
        write(&mut peer, b"hello");
        let completion = rig.next(2);
        assert_eq!(rig.received(completion), b"hello");
    }

    pub(crate) fn the_number_of_a_listener_that_was_closed_is_another_listeners_next<M: Make>(
        _: &str,
    ) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let number = number_of_ones_own();
        accept_once_and_close(&mut rig, number);
        let (listener, address) = listen_at(number);
        for user_data in 2..5 {
            rig.driver
                .accept(&listener, user_data, OperationMode::Single);
            rig.turn();
            let _client = connect(address);
            let completion = rig.next(user_data);
            assert!(
                matches!(completion.outcome, Outcome::Accepted(_)),
                "{completion:?}"
            );
        }
    }
}
