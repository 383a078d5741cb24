//! Listeners that another process had before, and which may hang with its accept armed, on every
//! kind of driver.

on_every_driver! {
    #[test] fn a_predecessor_that_hangs_holds_up_no_connection;
    #[test] fn an_accept_is_begun_anew_once_the_predecessor_is_gone;
    #[test] fn an_accept_beside_a_predecessor_ends_when_it_is_cancelled;
}

mod cases {
    use std::net::TcpStream;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    use flatpath_driver::{
        Completion, Driver, Errno, Listener, Operation, OperationMode, Outcome, Predecessor,
    };

    use crate::rig::{Make, OnEpoll, OnUring, Rig, small};

    /// A driver that has armed an accept and takes no more turns.
    struct Hung {
        ends: Sender<()>,
        thread: JoinHandle<()>,
    }

    impl Hung {
        /// `None`: this machine does not offer the driver.
        fn with<M: Make>(listener: OwnedFd) -> Option<Hung> {
            let (ends, end) = channel();
            let (armed, is_armed) = channel();
            let thread =
                std::thread::spawn(move || hang::<M>(&Listener::new(listener), &armed, &end));
            is_armed.recv().ok()?;
            Some(Hung { ends, thread })
        }

        fn end(self) {
            drop(self.ends);
            self.thread.join().expect("it hangs, and nothing else");
        }
    }

    fn hang<M: Make>(listener: &Listener, armed: &Sender<()>, end: &Receiver<()>) {
        let Some(mut driver) = M::make(&small()) else {
            return;
        };
        driver.accept(listener, 1, OperationMode::Multishot);
        for _ in 0..3 {
            let waited = driver.wait(Some(1_000_000), &|| false, &mut vec![]);
            waited.expect("the driver works");
        }
        armed.send(()).expect("the test waits for it");
        let _ = end.recv();
    }

    /// The listener of the rig, as one that was taken over.
    fn taken_over<D: Driver>(rig: &mut Rig<D>) -> (OwnedFd, Predecessor) {
        let listener = rig.listener.descriptor().expect("a real one");
        let [old, new] = [(); 2].map(|()| listener.try_clone_to_owned().expect("a descriptor"));
        let predecessor = Predecessor::new();
        rig.listener = Listener::new(new).taken_over_from(predecessor.clone());
        (old, predecessor)
    }

    /// Connects, and has the connection accepted.
    fn accept_next<D: Driver>(rig: &mut Rig<D>, user_data: u64) -> (TcpStream, Completion) {
        let client = rig.connect();
        let completion = rig.next(user_data);
        let Outcome::Accepted(socket) = completion.outcome else {
            panic!("{completion:?}")
        };
        rig.driver.close(socket);
        (client, completion)
    }

    pub(crate) fn a_predecessor_that_hangs_holds_up_no_connection<M: Make>(_: &str) {
        for hang in [Hung::with::<OnUring>, Hung::with::<OnEpoll>] {
            for mode in [OperationMode::Multishot, OperationMode::Single] {
                let Some(mut rig) = Rig::new::<M>(&small()) else {
                    return;
                };
                let (old, _predecessor) = taken_over(&mut rig);
                let Some(hung) = hang(old) else {
                    continue;
                };
                rig.driver.accept(&rig.listener, 5, mode);
                // It waits for connections by then.
                rig.turn();
                for _ in 0..10 {
                    let (_client, completion) = accept_next(&mut rig, 5);
                    assert_eq!(completion.more, mode == OperationMode::Multishot);
                    if mode == OperationMode::Single {
                        rig.driver.accept(&rig.listener, 5, mode);
                        rig.turn();
                    }
                }
                drop(rig);
                hung.end();
            }
        }
    }

    pub(crate) fn an_accept_is_begun_anew_once_the_predecessor_is_gone<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (_old, predecessor) = taken_over(&mut rig);
        rig.driver
            .accept(&rig.listener, 5, OperationMode::Multishot);
        rig.turn();
        predecessor.leave();
        let (_client, completion) = accept_next(&mut rig, 5);
        assert!(completion.more, "it has brought a connection");
        let completion = rig.next(5);
        assert!(
            matches!(completion.outcome, Outcome::Failed(Errno::CANCELED)) && !completion.more,
            "{completion:?}"
        );
        rig.driver
            .accept(&rig.listener, 6, OperationMode::Multishot);
        for _ in 0..3 {
            let (_client, completion) = accept_next(&mut rig, 6);
            assert!(completion.more);
        }
    }

    pub(crate) fn an_accept_beside_a_predecessor_ends_when_it_is_cancelled<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (old, _predecessor) = taken_over(&mut rig);
        rig.driver
            .accept(&rig.listener, 5, OperationMode::Multishot);
        rig.turn();
        rig.driver.cancel(Operation::Accept(&rig.listener), 5);
        let completion = rig.next(5);
        assert!(
            matches!(completion.outcome, Outcome::Failed(Errno::CANCELED)) && !completion.more,
            "{completion:?}"
        );
        // A client that comes from now on is left to the other process.
        let _client = rig.connect();
        rig.turn();
        assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        let accepted = rustix::net::accept(old.as_fd());
        assert!(accepted.is_ok(), "{accepted:?}");
    }
}
