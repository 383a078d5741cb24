//! One connection, byte by byte: what a program like curl would not let a test do.
//!
//! Blocking, with a deadline on everything. Nagle's algorithm is off: what is written in pieces
//! travels in pieces.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use crate::deadline::Deadline;
use crate::reply::{self, Asked, Progress, Reply};
use flatpath_test_client::Wire;
pub use flatpath_test_client::request_bytes;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// How a connection ended, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server closed it properly.
    Closed,
    /// The server, or its kernel, reset it.
    Reset,
}

/// A connection to the server.
pub struct Client {
    stream: TcpStream,
    /// Received and not yet taken: from `start` on.
    buffer: Vec<u8>,
    start: usize,
    deadline: Deadline,
    ending: Option<Ending>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let deadline = Deadline::default();
        let stream = TcpStream::connect_timeout(&address, deadline.left());
        Self::of(stream.unwrap_or_else(|error| panic!("connect to {address}: {error}")))
    }

    /// Connects from an address of this machine.
    pub fn connect_from(from: SocketAddr, to: SocketAddr) -> Self {
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::for_address(to), kind, None)
            .expect("a socket can be made");
        socket
            .bind(&from.into())
            .expect("it is this machine's address");
        socket
            .connect_timeout(&to.into(), Deadline::default().left())
            .unwrap_or_else(|error| panic!("connect to {to}: {error}"));
        Self::of(socket.into())
    }

    /// Connects with a receive buffer of that size, set before the connection is made: the window
    /// the server sees stays small.
    pub fn connect_with_window(address: SocketAddr, bytes: usize) -> Self {
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), kind, None)
            .expect("a socket can be made");
        socket
            .set_recv_buffer_size(bytes)
            .expect("the size can be set");
        socket
            .connect_timeout(&address.into(), Deadline::default().left())
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::of(socket.into())
    }

    fn of(stream: TcpStream) -> Self {
        stream
            .set_nodelay(true)
            .expect("a TCP socket has the option");
        let deadline = Deadline::default();
        Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            deadline,
            ending: None,
        }
    }

    /// Gives everything from now on `time` in all.
    pub fn patient(mut self, time: Duration) -> Self {
        self.deadline = Deadline::after(time);
        self
    }

    /// The same connection once more, so that one thread can send while another receives.
    pub fn twin(&self) -> Self {
        let stream = self.stream.try_clone().expect("a descriptor is left");
        Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            deadline: self.deadline,
            ending: None,
        }
    }

    /// Our own address, which the server sees as its peer's.
    pub fn address(&self) -> SocketAddr {
        self.stream
            .local_addr()
            .expect("a connected socket has an address")
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes)
            .unwrap_or_else(|error| panic!("send: {error}"));
    }

    /// Sends all of `bytes`, or as much as the server takes before it closes.
    ///
    /// # Errors
    /// The connection is closed or reset.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        let bytes = bytes.as_ref();
        self.stream.set_write_timeout(Some(self.deadline.left()))?;
        let outcome = self.stream.write_all(bytes);
        if let Err(error) = &outcome {
            let stuck = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(
                !stuck,
                "the server took none of {} bytes for too long",
                bytes.len()
            );
        }
        outcome
    }

    /// Sends `bytes` one by one, with a pause after each: each is a packet, and each is received
    /// before the next is sent.
    pub fn trickle(&mut self, bytes: &[u8], pause: Duration) {
        for byte in bytes {
            self.send([*byte]);
            std::thread::sleep(pause);
        }
    }

    /// Sends a request without a body.
    pub fn request(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) {
        self.send(request_bytes(method, target, fields));
    }

    /// Sends GET and reads the reply.
    pub fn get(&mut self, target: &str) -> Reply {
        self.ask(target, &[])
    }

    /// Sends GET with more fields and reads the reply.
    pub fn ask(&mut self, target: &str, fields: &[(&str, &str)]) -> Reply {
        self.request("GET", target, fields);
        self.reply()
    }

    /// Sends a request as it is and reads the reply.
    pub fn exchange(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Reads one reply.
    pub fn reply(&mut self) -> Reply {
        self.try_reply(Asked::Any)
            .unwrap_or_else(|why| panic!("{why}"))
    }

    /// Reads the reply to HEAD, or the head of another one, whose body follows.
    pub fn reply_to_head(&mut self) -> Reply {
        self.try_reply(Asked::Head)
            .unwrap_or_else(|why| panic!("{why}"))
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// It is not correct, or the connection ended before it was whole; says which.
    pub fn try_reply(&mut self, asked: Asked) -> Result<Reply, String> {
        loop {
            let progress = reply::read(self.unread(), self.ending.is_some(), asked)?;
            if let Progress::Whole(reply, taken) = progress {
                self.start += taken;
                return Ok(reply);
            }
            self.receive("a reply");
        }
    }

    /// Receives exactly `count` bytes.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread().len() < count {
            let have = self.unread().len();
            assert!(
                self.ending.is_none(),
                "{:?} after {have} of {count} bytes",
                self.ending
            );
            self.receive("bytes");
        }
        let bytes = self.unread()[..count].to_vec();
        self.start += count;
        bytes
    }

    /// Receives up to `text` and drops it; returns what was before it.
    pub fn until(&mut self, text: &str) -> Vec<u8> {
        loop {
            let is_text = |window: &[u8]| window == text.as_bytes();
            if let Some(at) = self.unread().windows(text.len()).position(is_text) {
                let before = self.unread()[..at].to_vec();
                self.start += at + text.len();
                return before;
            }
            assert!(
                self.ending.is_none(),
                "{:?} before {text:?}; so far: {:?}",
                self.ending,
                String::from_utf8_lossy(self.unread())
            );
            self.receive(text);
        }
    }

    /// Receives a line, up to its line feed, as text.
    pub fn line(&mut self) -> String {
        String::from_utf8(self.until("\n")).expect("a line of text")
    }

    /// Receives all that comes until the connection ends, and how it ended.
    pub fn rest(&mut self) -> (Vec<u8>, Ending) {
        loop {
            if let Some(ending) = self.ending {
                let bytes = self.unread().to_vec();
                self.start = self.buffer.len();
                return (bytes, ending);
            }
            self.receive("the end of the connection");
        }
    }

    /// Waits until the server has closed the connection properly, without another byte.
    pub fn expect_closed(&mut self) {
        let (bytes, ending) = self.rest();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            bytes.is_empty(),
            "{} bytes after the last reply: {text:?}",
            bytes.len()
        );
        assert_eq!(ending, Ending::Closed, "the server reset the connection");
    }

    /// Whether nothing has come and the connection is open, at this moment.
    pub fn is_quiet(&mut self) -> bool {
        if !self.unread().is_empty() || self.ending.is_some() {
            return false;
        }
        self.stream
            .set_nonblocking(true)
            .expect("a socket has the option");
        let mut byte = [0];
        let outcome = self.stream.peek(&mut byte);
        self.stream
            .set_nonblocking(false)
            .expect("a socket has the option");
        matches!(outcome, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Waits until a byte has come or the connection has ended; whether it is a byte.
    pub fn is_open(&mut self) -> bool {
        while self.unread().is_empty() && self.ending.is_none() {
            self.receive("a byte or the end");
        }
        !self.unread().is_empty()
    }

    /// Ends the sending direction; receiving continues.
    pub fn finish(&mut self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("the connection is there");
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        let linger = Some(Duration::ZERO);
        SockRef::from(&self.stream)
            .set_linger(linger)
            .expect("a TCP socket has the option");
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn receive(&mut self, what: &str) {
        if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.stream
            .set_read_timeout(Some(self.deadline.left()))
            .expect("a socket has the option");
        let length = self.buffer.len();
        self.buffer.resize(length + READ_BYTES, 0);
        let outcome = self.stream.read(&mut self.buffer[length..]);
        self.buffer
            .truncate(length + outcome.as_ref().copied().unwrap_or(0));
        match outcome {
            Ok(0) => self.ending = Some(Ending::Closed),
            Ok(_) => {}
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    self.ending = Some(Ending::Reset);
                }
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    let have = String::from_utf8_lossy(self.unread());
                    panic!("waited too long for {what}; so far: {have:?}");
                }
                _ => panic!("receive: {error}"),
            },
        }
    }
}

/// The kit of the library's users: `HttpClient::new(client)`.
impl Wire for Client {
    fn send(&mut self, bytes: &[u8]) {
        // What the server has sent before it closed is read all the same.
        let _ = self.try_send(bytes);
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        if !self.is_open() {
            return None;
        }
        let bytes = self.unread().to_vec();
        self.start = self.buffer.len();
        Some(bytes)
    }
}
