//! What the behaviour tests share: a driver with a listener on the loopback interface, and waiting
//! with a deadline.

pub(crate) mod echo;
#[path = "../../../src/testing.rs"]
mod testing;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use bytes::Bytes;
use flatpath_driver::epoll::Epoll;
use flatpath_driver::probe::{Finding, Probe};
use flatpath_driver::uring::{TaskRun, Uring};
use flatpath_driver::{
    AfterSend, Cause, Completion, Driver, DriverConfig, Listener, OperationMode, Outcome, Refusal,
    SendList, Socket,
};
pub(crate) use testing::{given, in_child, patience};

/// Runs each case of the module `cases` on every kind of driver, and tells it the name of its test.
/// A case that is missing in the list is an unused function, and refused by the lints.
#[macro_export]
macro_rules! on_every_driver {
    ($(#[$test:meta] fn $case:ident;)*) => {
        $crate::on_this_driver! { uring OnUring $(#[$test] $case)* }
        $crate::on_this_driver! { uring_cooperative OnUringCooperative $(#[$test] $case)* }
        $crate::on_this_driver! { uring_interrupting OnUringInterrupting $(#[$test] $case)* }
        $crate::on_this_driver! { epoll OnEpoll $(#[$test] $case)* }
    };
}

/// See `on_every_driver`.
#[macro_export]
macro_rules! on_this_driver {
    ($module:ident $make:ident $(#[$test:meta] $case:ident)*) => {
        mod $module {
            $(#[$test] fn $case() {
                let name = concat!(module_path!(), "::", stringify!($case));
                super::cases::$case::<$crate::rig::$make>(name);
            })*
        }
    };
}

/// A way to make a driver.
pub(crate) trait Make {
    type Driver: Driver;

    /// `None`: this machine does not offer it, for a reason that is no fault of the driver.
    fn make(config: &DriverConfig) -> Option<Self::Driver>;
}

pub(crate) struct OnUring;
pub(crate) struct OnUringCooperative;
pub(crate) struct OnUringInterrupting;
/// Each piece and each datagram with an operation of its own.
pub(crate) struct OnUringSingle;
pub(crate) struct OnEpoll;
/// For what is simulated as well: `connect.rs`.
pub(crate) struct OnSimulation;

impl Make for OnUring {
    type Driver = Uring;

    fn make(config: &DriverConfig) -> Option<Uring> {
        given(Uring::new(config))
    }
}

impl Make for OnUringCooperative {
    type Driver = Uring;

    fn make(config: &DriverConfig) -> Option<Uring> {
        given(Uring::with_task_run(config, TaskRun::Cooperative))
    }
}

impl Make for OnUringInterrupting {
    type Driver = Uring;

    fn make(config: &DriverConfig) -> Option<Uring> {
        given(Uring::with_task_run(config, TaskRun::Interrupting))
    }
}

impl Make for OnUringSingle {
    type Driver = Uring;

    fn make(config: &DriverConfig) -> Option<Uring> {
        OnUring::make(config).map(Uring::with_single_receives)
    }
}

impl Make for OnEpoll {
    type Driver = Epoll;

    fn make(config: &DriverConfig) -> Option<Epoll> {
        Some(Epoll::new(config).expect("an epoll instance"))
    }
}

/// Whether the kernel has what the probe calls so.
pub(crate) fn is_offered(feature: &str) -> bool {
    let probe = Probe::run();
    let mut found = probe.findings.iter().filter(|one| one.feature == feature);
    found.next().is_some_and(Finding::works)
}

/// Small rings and buffers, so that tests meet their ends.
pub(crate) fn small() -> DriverConfig {
    DriverConfig {
        submission_entries: 64,
        completion_entries: 1024,
        receive_buffers: 64,
        receive_buffer_bytes: 4096,
        ..DriverConfig::default()
    }
}

pub(crate) struct Rig<D: Driver> {
    pub(crate) driver: D,
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) arrived: Vec<Completion>,
    accepts: u64,
}

impl<D: Driver> Rig<D> {
    pub(crate) fn new<M: Make<Driver = D>>(config: &DriverConfig) -> Option<Rig<D>> {
        let (listener, address) = listen();
        let driver = M::make(config)?;
        Some(Rig {
            driver,
            listener,
            address,
            arrived: vec![],
            accepts: 0,
        })
    }

    /// One turn of at most 50 ms.
    pub(crate) fn turn(&mut self) {
        let turned = self
            .driver
            .wait(Some(50_000_000), &|| false, &mut self.arrived);
        turned.expect("the driver works");
    }

    /// The next completion that fits; others stay for later, in order.
    pub(crate) fn next_where(
        &mut self,
        what: &str,
        fits: impl Fn(&Completion) -> bool,
    ) -> Completion {
        let deadline = Instant::now() + patience();
        loop {
            if let Some(index) = self.arrived.iter().position(&fits) {
                return self.arrived.remove(index);
            }
            assert!(
                Instant::now() < deadline,
                "no {what}; instead {:?}",
                self.arrived
            );
            self.turn();
        }
    }

    pub(crate) fn next(&mut self, user_data: u64) -> Completion {
        self.next_where(&format!("completion of {user_data}"), |completion| {
            completion.user_data == user_data
        })
    }

    /// Turns until the condition holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Rig<D>) -> bool) {
        let deadline = Instant::now() + patience();
        while !holds(self) {
            assert!(Instant::now() < deadline, "never came: {what}");
            self.turn();
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// A client and the server's side of its connection.
    pub(crate) fn pair(&mut self) -> (TcpStream, Socket) {
        let client = self.connect();
        (client, self.accept_one())
    }

    /// The same, with little room on the way from server to client.
    pub(crate) fn narrow_pair(&mut self) -> (TcpStream, Socket) {
        let listener = self.listener.descriptor().expect("a real one");
        // Accepted sockets inherit it.
        rustix::net::sockopt::set_socket_send_buffer_size(listener, 4096).expect("a socket");
        let client = connect_narrow(self.address);
        (client, self.accept_one())
    }

    fn accept_one(&mut self) -> Socket {
        self.accepts += 1;
        let user_data = 1_000_000 + self.accepts;
        self.driver
            .accept(&self.listener, user_data, OperationMode::Single);
        let completion = self.next(user_data);
        assert!(!completion.more);
        let Outcome::Accepted(socket) = completion.outcome else {
            panic!("no connection but {completion:?}")
        };
        socket
    }

    pub(crate) fn send(&mut self, socket: Socket, user_data: u64, bytes: &[u8], after: AfterSend) {
        let mut list = list(&[Bytes::copy_from_slice(bytes)]);
        self.driver.send(socket, user_data, &mut list, after);
    }

    /// Sends and waits for the end.
    pub(crate) fn send_all(
        &mut self,
        socket: Socket,
        user_data: u64,
        bytes: &[u8],
        after: AfterSend,
    ) {
        self.send(socket, user_data, bytes, after);
        assert_eq!(
            self.sent(user_data),
            (bytes.len(), after == AfterSend::Close)
        );
    }

    /// Follows a send to its end: bytes in all, and whether the socket was closed.
    pub(crate) fn sent(&mut self, user_data: u64) -> (usize, bool) {
        let mut total = 0;
        loop {
            let completion = self.next(user_data);
            let Outcome::Sent { bytes, closed } = completion.outcome else {
                panic!("not sent but {completion:?}")
            };
            total += bytes;
            if !completion.more {
                return (total, closed);
            }
            assert!(!closed, "closed before the end");
        }
    }

    /// The bytes of a received completion; the piece is put back.
    pub(crate) fn received(&mut self, completion: Completion) -> Vec<u8> {
        let Outcome::Received(piece) = completion.outcome else {
            panic!("no bytes but {completion:?}")
        };
        let bytes = self.driver.bytes(&piece).to_vec();
        self.driver.recycle(piece);
        bytes
    }

    /// Receives one by one until the stream ends.
    pub(crate) fn receive_to_end(&mut self, socket: Socket, user_data: u64) -> Vec<u8> {
        let mut all = vec![];
        loop {
            self.driver
                .receive(socket, user_data, OperationMode::Single, 0);
            let completion = self.next(user_data);
            assert!(!completion.more, "one shot, one completion");
            if matches!(completion.outcome, Outcome::EndOfStream) {
                return all;
            }
            all.extend(self.received(completion));
        }
    }

    /// Sends the list while the client reads, and compares what arrives.
    pub(crate) fn expect_arrival(
        &mut self,
        (socket, mut client): (Socket, TcpStream),
        list: &mut SendList,
        expected: Vec<u8>,
    ) -> TcpStream {
        let bytes = expected.len();
        self.driver.send(socket, 5, list, AfterSend::KeepOpen);
        let reader = std::thread::spawn(move || {
            assert!(read_exactly(&mut client, bytes) == expected, "{bytes}");
            client
        });
        assert_eq!(self.sent(5), (bytes, false));
        reader.join().expect("the same bytes")
    }
}

/// Raises the descriptor limit as far as it goes: many systems give out 1024, and tests of one
/// binary run side by side.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // As far as it goes; a test that needs more fails.
    let _ = setrlimit(Resource::Nofile, raised);
}

pub(crate) fn listen() -> (Listener, SocketAddr) {
    raise_descriptor_limit();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    // The standard library asks for a backlog of 128; tests connect more at once.
    let listener = OwnedFd::from(listener);
    rustix::net::listen(&listener, 4096).expect("a longer backlog");
    (Listener::new(listener), address)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("the listener is there");
    client
        .set_read_timeout(Some(patience()))
        .expect("a time-out");
    client
        .set_write_timeout(Some(patience()))
        .expect("a time-out");
    client
}

pub(crate) fn list(segments: &[Bytes]) -> SendList {
    let mut list = SendList::new();
    for segment in segments {
        list.push(segment.clone().into()).expect("room");
    }
    list
}

/// A client that takes in a few thousand bytes only, until it reads.
pub(crate) fn connect_narrow(address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
    let flags = SocketFlags::CLOEXEC;
    let client = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let client = client.expect("a socket");
    // Before it connects: the window is agreed on then.
    sockopt::set_socket_recv_buffer_size(&client, 4096).expect("a socket");
    rustix::net::connect(&client, &address).expect("the listener is there");
    let client = TcpStream::from(client);
    client
        .set_read_timeout(Some(patience()))
        .expect("a time-out");
    client
}

/// Bytes that differ from place to place, again and again after a number that nothing here is a
/// multiple of: computing each of many megabytes takes an emulated processor minutes.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    const PRIME: usize = 65_521;
    let computed = (0..length.min(PRIME))
        .map(|place| (place as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    let mut bytes: Vec<u8> = computed.collect();
    bytes.reserve_exact(length - bytes.len());
    while bytes.len() < length {
        let more = PRIME.min(length - bytes.len());
        bytes.extend_from_within(..more);
    }
    bytes
}

pub(crate) fn read_to_end(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![];
    client.read_to_end(&mut bytes).expect("an orderly end");
    bytes
}

pub(crate) fn read_exactly(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).expect("bytes in time");
    bytes
}

pub(crate) fn write(client: &mut TcpStream, bytes: &[u8]) {
    client.write_all(bytes).expect("the server reads");
}
