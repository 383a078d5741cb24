//! Client connections of one thread, through epoll: swarms of tests and the load of benches.
//!
//! Each connection sends what it was given and receives what comes. [`Clients::wait`] moves all
//! that can be moved and returns which connections to look at; what they received, and whether they
//! have ended, is for their owner to judge.
//!
//! Invariant: a socket is watched for edges, so each event is followed by reading all there is.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// Bytes asked of a socket at once.
const READ_BYTES: usize = 16 * 1024;

/// Connections by their index.
pub struct Clients {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
}

/// One of them.
pub struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    sent: usize,
    /// Everything that came since its owner cleared it.
    pub received: Vec<u8>,
    /// Why nothing more will come: the peer's end of the stream is `UnexpectedEof`.
    pub end: Option<io::Error>,
}

impl Clients {
    /// None yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS),
            connections: Vec::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Puts a non-blocking socket, connected or about to be, in the place of this index, which may
    /// be the next one. It sends `output` as soon as a wait finds that it can.
    pub fn insert(&mut self, index: usize, stream: TcpStream, output: Vec<u8>) -> io::Result<()> {
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(
            &self.epoll,
            &stream,
            EventData::new_u64(index as u64),
            edges,
        )?;
        let connection = Connection {
            stream,
            output,
            sent: 0,
            received: Vec::new(),
            end: None,
        };
        if index == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[index] = Some(connection);
        Ok(())
    }

    /// The connection of this index, unless it was closed.
    pub fn get(&mut self, index: usize) -> Option<&mut Connection> {
        self.connections.get_mut(index)?.as_mut()
    }

    /// Closes the connection of this index.
    pub fn close(&mut self, index: usize) {
        // Closing it also takes it out of the events.
        self.connections[index] = None;
    }

    /// Closes all connections but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.connections.truncate(count);
    }

    /// How many indices there are.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Waits until a connection can move, at most for `limit`; moves what can be moved. Returns the
    /// connections that had an event.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Vec<usize>> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = Vec::with_capacity(self.events.len());
        for event in &self.events {
            let index = event.data.u64() as usize;
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                connection.write();
                let flags = event.flags;
                connection.read(&mut self.buffer, flags.contains(EventFlags::RDHUP));
                ready.push(index);
            }
        }
        Ok(ready)
    }
}

impl Connection {
    /// Sends these bytes, now as far as possible. What was left of others is dropped.
    pub fn send(&mut self, bytes: Vec<u8>) {
        self.output = bytes;
        self.sent = 0;
        self.write();
    }

    /// Whether everything is sent.
    pub fn has_sent(&self) -> bool {
        self.sent == self.output.len()
    }

    /// Its socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn write(&mut self) {
        while !self.has_sent() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                // Not connected yet, or no room: an event will come.
                Err(error) if is_later(error.kind()) => return,
                Err(error) => return self.end = Some(error),
            }
        }
    }

    /// Reads all there is: until the socket gives less than was asked for or, if its end is in
    /// sight, nothing.
    fn read(&mut self, buffer: &mut [u8], to_end: bool) {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return self.end = Some(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    if count < buffer.len() && !to_end {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_later(error.kind()) => return,
                Err(error) => return self.end = Some(error),
            }
        }
    }
}

fn is_later(kind: ErrorKind) -> bool {
    use ErrorKind::{Interrupted, NotConnected, WouldBlock};
    matches!(kind, WouldBlock | NotConnected | Interrupted)
}
