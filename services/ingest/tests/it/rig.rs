//! A server with an ingest listener in this process, producers, and patience with a bound.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use flatpath::{DriverChoice, Running, Server};
use flatpath_consumer::{Consumer, Error, Message};
use flatpath_ingest::{ControlThread, Figures, Ingest, Settings};
use flatpath_testkit::drivers_here;
pub(crate) use flatpath_testkit::patience;

/// See the module. Drop order: the engine first, then the control.
pub(crate) struct Rig {
    pub(crate) running: Running,
    pub(crate) ingest: Ingest,
    pub(crate) control: Option<ControlThread>,
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    _directory: tempfile::TempDir,
}

/// Settings of a small region: 64 pages of 4 KiB, a window of 16 fragments for one consumer.
pub(crate) fn small(socket: PathBuf) -> Settings {
    Settings {
        pages: 64,
        page_bytes: 4096,
        consumers_max: 1,
        ..Settings::new(socket)
    }
}

impl Rig {
    pub(crate) fn new(choice: DriverChoice, settings: impl FnOnce(PathBuf) -> Settings) -> Rig {
        Rig::listening(choice, settings, |server, ingest| {
            server.listen("127.0.0.1:0", ingest)
        })
    }

    /// One whose listener is added so.
    pub(crate) fn listening(
        choice: DriverChoice,
        settings: impl FnOnce(PathBuf) -> Settings,
        listen: impl FnOnce(Server, Ingest) -> Server,
    ) -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("ingest");
        let settings = settings(socket.clone());
        let network_threads = settings.network_threads;
        let (ingest, control) = Ingest::open(settings).expect("open");
        let server = Server::new()
            .driver(choice)
            .network_threads(network_threads);
        let running = listen(server, ingest.clone()).start().expect("start");
        let address = running.addresses()[0].address;
        Rig {
            running,
            ingest,
            control: Some(control),
            address,
            socket,
            _directory: directory,
        }
    }

    pub(crate) fn consumer(&self) -> Consumer {
        let count = self.ingest.figures().consumers;
        let consumer = Consumer::attach(&self.socket).expect("attached");
        self.wait("the consumer is attached", |figures| {
            figures.consumers > count
        });
        consumer
    }

    pub(crate) fn producer(&self) -> Producer {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream
            .set_write_timeout(Some(patience()))
            .expect("time-out");
        stream.set_nodelay(true).expect("no delay");
        Producer { stream }
    }

    /// Waits until the figures are as they should be.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(Figures) -> bool) {
        let deadline = Instant::now() + patience();
        while !is_so(self.ingest.figures()) {
            assert!(
                Instant::now() < deadline,
                "never: {what}; {}",
                self.ingest.figures()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until this many consumers are gone since the start, and what they held is taken back:
    /// a consumer is counted as the last thing of its end, and is removed from the set before it.
    pub(crate) fn wait_for_detached(&self, count: u64) {
        self.wait("it is gone", |_| {
            self.ingest.figures().consumers_detached == count
        });
    }

    /// Waits until no page and no token is with any consumer.
    pub(crate) fn wait_for_rest(&self) {
        self.wait("all is back", |figures| {
            figures.fragments_held == 0 && figures.pages_retained == 0
        });
        let figures = self.ingest.figures();
        let (out, back) = (
            figures.fragments,
            figures.fragments_returned + figures.fragments_reclaimed,
        );
        assert_eq!(out, back, "each fragment came back once");
    }
}

/// Runs a body on io_uring, where there is any, and on epoll.
pub(crate) fn on_every_driver(settings: impl Fn(PathBuf) -> Settings, body: impl Fn(Rig)) {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        body(Rig::new(choice, &settings));
    }
}

/// Sends messages.
pub(crate) struct Producer {
    pub(crate) stream: TcpStream,
}

impl Producer {
    pub(crate) fn send(&mut self, message: &[u8]) {
        self.try_send(message).expect("sent");
    }

    pub(crate) fn try_send(&mut self, message: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        self.stream.write_all(&[&length, message].concat())
    }
}

/// The next message; a test waits no longer than its patience.
pub(crate) fn next(consumer: &mut Consumer) -> Message {
    let message = consumer.receive_timeout(patience()).expect("in time");
    message.expect("the server is there")
}

/// That no message is there, nor comes soon.
pub(crate) fn nothing(consumer: &mut Consumer) {
    let soon = Duration::from_millis(50);
    match consumer.receive_timeout(soon) {
        Err(Error::TimedOut) => {}
        other => panic!("{other:?}"),
    }
}

/// A message that says which one it is, in bytes that repeat at no power of two.
pub(crate) fn message(producer: u32, number: u32, length: usize) -> Vec<u8> {
    let head = [producer.to_be_bytes(), number.to_be_bytes()].concat();
    let body = (0..).map(|at: u32| (at.wrapping_add(producer ^ number.rotate_left(7)) % 251) as u8);
    head.into_iter().chain(body).take(length.max(8)).collect()
}

/// Which message it is, after a look at every byte of it.
pub(crate) fn check(bytes: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (producer, number) = (word(0), word(4));
    assert!(
        bytes == message(producer, number, bytes.len()),
        "message {number} of producer {producer} has changed"
    );
    (producer, number)
}
