//! Opening connections: each case is written once, and run on every kind of driver and in the
//! simulation. What only a kernel has (families, options, a backlog that is full) is apart, in
//! `connect/kernel.rs`.

mod kernel;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use flatpath_driver::simulation::{
    Answer, Client, ClientState, Faults, Network, Simulation, Upstream,
};
use flatpath_driver::{Completion, Driver, Errno, Operation, OperationMode, Outcome, Remote};

use crate::rig::{Make, OnSimulation, patience, small};

macro_rules! everywhere {
    ($(#[$test:meta] fn $case:ident;)*) => {
        on_every_driver! { $(#[$test] fn $case;)* }
        on_this_driver! { simulation OnSimulation $(#[$test] $case)* }
    };
}

everywhere! {
    #[test] fn an_opened_connection_carries_bytes_both_ways;
    #[test] fn a_connect_that_is_refused_leaves_a_socket_to_close;
    #[test] fn a_peer_that_does_not_answer_is_awaited_until_a_cancel;
    #[test] fn a_connect_is_cancelled_in_the_turn_that_begins_it;
    #[test] fn a_cancel_that_comes_too_late_or_means_another_leaves_the_connection;
    #[test] fn many_connects_end_each_with_its_own_number;
    #[test] fn a_peer_that_resets_at_the_first_byte_fails_the_receive;
    #[test] fn a_peer_that_is_gone_at_once_was_connected;
    #[test] fn a_driver_ends_with_connects_under_way;
}

/// Makes a driver, and the network that it is on if that is simulated.
pub(crate) trait Around {
    type Driver: Driver;

    fn around() -> Option<(Self::Driver, Option<Network>)>;
}

impl<M: Make> Around for M {
    type Driver = M::Driver;

    fn around() -> Option<(M::Driver, Option<Network>)> {
        M::make(&small()).map(|driver| (driver, None))
    }
}

impl Around for OnSimulation {
    type Driver = Simulation;

    fn around() -> Option<(Simulation, Option<Network>)> {
        let (simulation, network) = Simulation::new(1, &small(), Faults::none());
        Some((simulation, Some(network)))
    }
}

/// A server that connections are opened to.
enum Server {
    Kernel(TcpListener),
    Simulated(Upstream),
    /// No process listens.
    Absent,
}

impl Server {
    /// The far end of a connection that has come.
    fn accept(&self) -> Option<Peer> {
        match self {
            Server::Kernel(listener) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).expect("settable");
                Some(Peer::Kernel(stream))
            }
            Server::Simulated(upstream) => upstream.accept().map(Peer::Simulated),
            Server::Absent => None,
        }
    }
}

/// The far end of a connection.
enum Peer {
    Kernel(TcpStream),
    Simulated(Client),
}

impl Peer {
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Peer::Kernel(stream) => stream.write_all(bytes).expect("room for a few bytes"),
            Peer::Simulated(client) => client.write(bytes),
        }
    }

    /// What is there now; `None` at the end.
    fn read(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        match self {
            Peer::Kernel(stream) => match stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => bytes.truncate(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => bytes.clear(),
                Err(_) => return None,
            },
            Peer::Simulated(client) => {
                bytes = client.read();
                if bytes.is_empty() && client.state() != ClientState::Open {
                    return None;
                }
            }
        }
        Some(bytes)
    }
}

/// A driver and what is around it.
struct Rig<D: Driver> {
    driver: D,
    network: Option<Network>,
    arrived: Vec<Completion>,
    servers: u16,
}

impl<D: Driver> Rig<D> {
    fn new<A: Around<Driver = D>>() -> Option<Rig<D>> {
        let (driver, network) = A::around()?;
        Some(Rig {
            driver,
            network,
            arrived: vec![],
            servers: 0,
        })
    }

    /// A server that answers so, and where it listens.
    fn server(&mut self, answer: Answer) -> (Remote, Server) {
        if let Some(network) = &self.network {
            self.servers += 1;
            let remote = Remote::Tcp(([192, 0, 2, 1], self.servers).into());
            let server = network.upstream(remote.clone(), answer);
            return (remote, Server::Simulated(server));
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("settable");
        let address = listener.local_addr().expect("bound");
        match answer {
            Answer::Refuses => return (Remote::Tcp(address), Server::Absent),
            Answer::IsSilent => kernel::fill(&listener),
            _ => {
                let listener = OwnedFd::from(listener.try_clone().expect("a duplicate"));
                rustix::net::listen(listener, 4096).expect("a longer backlog");
            }
        }
        (Remote::Tcp(address), Server::Kernel(listener))
    }

    fn turn(&mut self) {
        let turned = self
            .driver
            .wait(Some(20_000_000), &|| false, &mut self.arrived);
        turned.expect("the driver works");
    }

    fn until<T>(&mut self, what: &str, mut holds: impl FnMut(&mut Rig<D>) -> Option<T>) -> T {
        let deadline = Instant::now() + patience();
        loop {
            if let Some(held) = holds(self) {
                return held;
            }
            assert!(Instant::now() < deadline, "never came: {what}");
            self.turn();
        }
    }

    /// The final completion of an operation that has one alone.
    fn next(&mut self, user_data: u64) -> Outcome {
        let completion = self.until("a completion", |rig| {
            let mut arrived = rig.arrived.iter();
            let place = arrived.position(|it| it.user_data == user_data)?;
            Some(rig.arrived.remove(place))
        });
        assert!(!completion.more, "it completes once");
        completion.outcome
    }

    /// A connection that stands, and its far end.
    fn pair(&mut self, answer: Answer) -> (flatpath_driver::Socket, Peer) {
        let (remote, server) = self.server(answer);
        let socket = self.driver.socket(&remote).expect("a descriptor");
        self.driver.connect(socket, &remote, 7);
        let outcome = self.next(7);
        assert!(matches!(outcome, Outcome::Connected), "{outcome:?}");
        (socket, self.until("the far end", |_| server.accept()))
    }

    fn send(&mut self, socket: flatpath_driver::Socket, bytes: &'static [u8]) {
        let mut list = crate::rig::list(&[bytes::Bytes::from_static(bytes)]);
        let after = flatpath_driver::AfterSend::KeepOpen;
        self.driver.send(socket, 5, &mut list, after);
        let outcome = self.next(5);
        assert!(matches!(outcome, Outcome::Sent { .. }), "{outcome:?}");
    }

    /// What a receive comes to: bytes, an end, or a failure.
    fn receive(&mut self, socket: flatpath_driver::Socket) -> Result<Vec<u8>, Errno> {
        self.driver.receive(socket, 6, OperationMode::Single, 0);
        match self.next(6) {
            Outcome::Received(piece) => {
                let bytes = self.driver.bytes(&piece).to_vec();
                self.driver.recycle(piece);
                Ok(bytes)
            }
            Outcome::EndOfStream => Ok(vec![]),
            Outcome::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    fn fails(&mut self, user_data: u64, expected: Errno) {
        match self.next(user_data) {
            Outcome::Failed(errno) => assert_eq!(errno, expected),
            other => panic!("{other:?}"),
        }
    }

    fn has_no_socket(&mut self) {
        self.turn();
        assert_eq!(self.driver.statistics().sockets, 0);
        assert!(self.arrived.is_empty(), "{:?}", self.arrived);
    }
}

mod cases {
    use flatpath_driver::{Socket, USER_DATA_MAX};

    use super::*;

    pub(crate) fn an_opened_connection_carries_bytes_both_ways<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (socket, mut peer) = rig.pair(Answer::Accepts);
        rig.send(socket, b"asked");
        let asked = rig.until("what was sent", |_| {
            peer.read().filter(|bytes| !bytes.is_empty())
        });
        assert_eq!(asked, b"asked");
        peer.write(b"told");
        assert_eq!(rig.receive(socket), Ok(b"told".to_vec()));
        drop(peer);
        assert_eq!(rig.receive(socket), Ok(vec![]), "the end");
        rig.driver.close(socket);
        rig.has_no_socket();
    }

    pub(crate) fn a_connect_that_is_refused_leaves_a_socket_to_close<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (remote, _server) = rig.server(Answer::Refuses);
        for user_data in [1, USER_DATA_MAX] {
            let socket = rig.driver.socket(&remote).expect("a descriptor");
            rig.driver.connect(socket, &remote, user_data);
            rig.fails(user_data, Errno::CONNREFUSED);
            assert_eq!(rig.driver.statistics().sockets, 1);
            match user_data {
                1 => rig.driver.close(socket),
                _ => rig.driver.abort(socket),
            }
        }
        rig.has_no_socket();
    }

    pub(crate) fn a_peer_that_does_not_answer_is_awaited_until_a_cancel<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (remote, _server) = rig.server(Answer::IsSilent);
        let socket = rig.driver.socket(&remote).expect("a descriptor");
        rig.driver.connect(socket, &remote, 1);
        for _ in 0..5 {
            rig.turn();
        }
        assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        rig.driver.cancel(Operation::Connect(socket), 1);
        rig.fails(1, Errno::CANCELED);
        rig.driver.close(socket);
        rig.has_no_socket();
    }

    pub(crate) fn a_connect_is_cancelled_in_the_turn_that_begins_it<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (remote, _server) = rig.server(Answer::IsSilent);
        let sockets: Vec<Socket> = (0..10)
            .map(|user_data| {
                let socket = rig.driver.socket(&remote).expect("a descriptor");
                rig.driver.connect(socket, &remote, user_data);
                rig.driver.cancel(Operation::Connect(socket), user_data);
                socket
            })
            .collect();
        for (user_data, socket) in (0..).zip(sockets) {
            rig.fails(user_data, Errno::CANCELED);
            rig.driver.close(socket);
        }
        rig.has_no_socket();
    }

    pub(crate) fn a_cancel_that_comes_too_late_or_means_another_leaves_the_connection<A: Around>(
        _: &str,
    ) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (socket, mut peer) = rig.pair(Answer::Accepts);
        rig.driver.cancel(Operation::Connect(socket), 7);
        // The next connect of this number is another operation.
        let (remote, _server) = rig.server(Answer::IsSilent);
        let other = rig.driver.socket(&remote).expect("a descriptor");
        rig.driver.connect(other, &remote, 8);
        rig.driver.cancel(Operation::Connect(other), 7);
        for _ in 0..3 {
            rig.turn();
        }
        assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        peer.write(b"told");
        assert_eq!(rig.receive(socket), Ok(b"told".to_vec()));
        rig.driver.cancel(Operation::Connect(other), 8);
        rig.fails(8, Errno::CANCELED);
        rig.driver.close(other);
        rig.driver.close(socket);
        rig.has_no_socket();
    }

    pub(crate) fn many_connects_end_each_with_its_own_number<A: Around>(_: &str) {
        const CONNECTS: u64 = 300;
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (good, server) = rig.server(Answer::Accepts);
        let (bad, _server) = rig.server(Answer::Refuses);
        let sockets: Vec<Socket> = (0..CONNECTS)
            .map(|user_data| {
                let remote = if user_data % 3 == 0 { &bad } else { &good };
                let socket = rig.driver.socket(remote).expect("a descriptor");
                rig.driver.connect(socket, remote, user_data);
                socket
            })
            .collect();
        for (user_data, socket) in (0..CONNECTS).zip(sockets) {
            match rig.next(user_data) {
                Outcome::Failed(Errno::CONNREFUSED) if user_data % 3 == 0 => {}
                Outcome::Connected if user_data % 3 > 0 => {}
                other => panic!("{user_data}: {other:?}"),
            }
            rig.driver.close(socket);
        }
        for _ in 0..CONNECTS / 3 * 2 {
            rig.until("a far end", |_| server.accept());
        }
        rig.has_no_socket();
    }

    pub(crate) fn a_peer_that_resets_at_the_first_byte_fails_the_receive<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (socket, peer) = rig.pair(Answer::ResetsAtFirstByte);
        rig.send(socket, b"asked");
        if let Peer::Kernel(stream) = &peer {
            let there = || stream.peek(&mut [0; 8]).is_ok_and(|count| count == 5);
            rig.until("what was sent", |_| there().then_some(()));
            // What is not read makes the close a reset.
            drop(peer);
        }
        assert_eq!(rig.receive(socket), Err(Errno::CONNRESET));
        rig.driver.close(socket);
        rig.has_no_socket();
    }

    /// The connect is heard of when the far end has said its last word already.
    pub(crate) fn a_peer_that_is_gone_at_once_was_connected<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (remote, server) = rig.server(Answer::Accepts);
        let socket = rig.driver.socket(&remote).expect("a descriptor");
        rig.driver.connect(socket, &remote, 1);
        // The connection stands before the driver is asked for it.
        let submitted = rig.driver.wait(Some(0), &|| false, &mut rig.arrived);
        submitted.expect("the driver works");
        let mut peer = rig.until("the far end", |_| server.accept());
        peer.write(b"last");
        drop(peer);
        let outcome = rig.next(1);
        assert!(matches!(outcome, Outcome::Connected), "{outcome:?}");
        assert_eq!(rig.receive(socket), Ok(b"last".to_vec()));
        assert_eq!(rig.receive(socket), Ok(vec![]));
        rig.driver.close(socket);
        rig.has_no_socket();
    }

    pub(crate) fn a_driver_ends_with_connects_under_way<A: Around>(_: &str) {
        let Some(mut rig) = Rig::new::<A>() else {
            return;
        };
        let (silent, _server) = rig.server(Answer::IsSilent);
        for user_data in 0..20 {
            let socket = rig.driver.socket(&silent).expect("a descriptor");
            rig.driver.connect(socket, &silent, user_data);
            if user_data == 10 {
                rig.turn();
            }
        }
        let (good, server) = rig.server(Answer::Accepts);
        let socket = rig.driver.socket(&good).expect("a descriptor");
        rig.driver.connect(socket, &good, 20);
        assert!(matches!(rig.next(20), Outcome::Connected));
        let mut peer = rig.until("the far end", |_| server.accept());
        let Rig { driver, .. } = rig;
        drop(driver);
        let deadline = Instant::now() + patience();
        while peer.read().is_some() {
            assert!(Instant::now() < deadline, "the socket was not closed");
        }
    }
}
