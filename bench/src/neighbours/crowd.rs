//! Many troublesome connections on one thread.
//!
//! Each sends an opening, then a chunk every interval, and reads as much as its manner allows. What
//! the server closes is dialled anew at a bounded rate: trouble does not end by being cut off once.
//! The connections come from many addresses, unless the trouble is about one. All of them have a
//! turn in each round, ready or not: how much is read in a round is a rate.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::source::Source;
use rustix::net::SocketFlags;

/// Addresses that a crowd comes from.
const ADDRESSES: usize = 64;
/// Connections that are dialled anew in one round: a crowd is no denial by SYN.
const DIALS_PER_ROUND: usize = 200;
/// Longest pause between two rounds.
const ROUND: Duration = Duration::from_millis(5);
/// Bytes read or dropped at a time.
const READ_BYTES: usize = 64 * 1024;

/// What each connection of a crowd does.
pub(super) struct Manner {
    /// Where they connect to.
    pub(super) to: SocketAddr,
    pub(super) connections: usize,
    /// Sent first; the number of the connection makes it its own.
    pub(super) opening: Box<dyn Fn(usize) -> Vec<u8>>,
    /// Sent again and again afterwards, whole or in part.
    pub(super) chunk: Vec<u8>,
    /// Time between two chunks; zero: as fast as the server takes them.
    pub(super) every: Duration,
    /// Bytes read in each round; zero: nothing is ever read.
    pub(super) read_bytes: usize,
    /// Addresses that they come from.
    pub(super) addresses: usize,
    /// Of each one's receive buffer, in bytes, where the trouble is about small windows.
    pub(super) window_bytes: Option<usize>,
    /// Whether a connection is closed as soon as its opening is sent, and dialled anew.
    pub(super) hit_and_run: bool,
}

impl Manner {
    /// No connection yet; each sends and reads nothing.
    pub(super) fn to(to: SocketAddr) -> Self {
        Self {
            to,
            connections: 0,
            opening: Box::new(|_| Vec::new()),
            chunk: Vec::new(),
            every: Duration::from_secs(1),
            read_bytes: 0,
            addresses: ADDRESSES,
            window_bytes: None,
            hit_and_run: false,
        }
    }

    /// Behaves so until `stop`.
    pub(super) fn cause(&self, stop: &AtomicBool) -> io::Result<()> {
        let source = |_| Source::fresh().receiving(self.window_bytes);
        let mut sources: Vec<_> = (0..self.addresses).map(source).collect();
        let mut members: Vec<Member> = Vec::new();
        let mut scratch = vec![0; READ_BYTES];
        // ORDER: Relaxed: the flag alone matters.
        while !stop.load(Ordering::Relaxed) {
            let missing = self.connections - members.len();
            for _ in 0..missing.min(DIALS_PER_ROUND) {
                members.push(Member::new((self.opening)(members.len())));
            }
            let mut is_busy = false;
            let mut dials = DIALS_PER_ROUND;
            for (number, member) in members.iter_mut().enumerate() {
                if member.stream.is_none() && dials > 0 {
                    dials -= 1;
                    member.dial(self.to, &mut sources[number % self.addresses])?;
                }
                match member.act(self, &mut scratch) {
                    Ok(moved) => is_busy |= moved,
                    // Bytes that were not read make the close a reset.
                    Err(_) => member.stream = None,
                }
                if self.hit_and_run && member.sent == member.opening.len() {
                    member.stream = None;
                }
            }
            if !is_busy || self.every > Duration::ZERO {
                thread::sleep(ROUND);
            }
        }
        Ok(())
    }
}

struct Member {
    stream: Option<TcpStream>,
    opening: Vec<u8>,
    sent: usize,
    /// How much of the current chunk is sent.
    chunk_sent: usize,
    chunk_due: Instant,
}

impl Member {
    fn new(opening: Vec<u8>) -> Self {
        Self {
            stream: None,
            opening,
            sent: 0,
            chunk_sent: 0,
            chunk_due: Instant::now(),
        }
    }

    fn dial(&mut self, to: SocketAddr, source: &mut Source) -> io::Result<()> {
        match source.dial(to, SocketFlags::NONBLOCK) {
            Ok(socket) => {
                self.stream = Some(socket.into());
                self.sent = 0;
                self.chunk_sent = 0;
                self.chunk_due = Instant::now();
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
            // Refused or reset at once: tried again in a later round. With no descriptor left the
            // trouble is smaller.
            Err(_) => Ok(()),
        }
    }

    /// One round of one connection: whether it moved bytes.
    ///
    /// # Errors
    /// The connection has ended.
    fn act(&mut self, manner: &Manner, scratch: &mut [u8]) -> io::Result<bool> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        let mut bytes = 0;
        if self.sent < self.opening.len() {
            bytes = moved(stream.write(&self.opening[self.sent..]))?;
            self.sent += bytes;
            if self.sent < self.opening.len() {
                return Ok(bytes > 0);
            }
            self.chunk_due = Instant::now() + manner.every;
        }
        if !manner.chunk.is_empty() && Instant::now() >= self.chunk_due {
            let sent = moved(stream.write(&manner.chunk[self.chunk_sent..]))?;
            bytes += sent;
            self.chunk_sent += sent;
            if self.chunk_sent == manner.chunk.len() {
                self.chunk_sent = 0;
                self.chunk_due += manner.every;
            }
        }
        if manner.read_bytes > 0 {
            let room = manner.read_bytes.min(scratch.len());
            bytes += moved(present(stream.read(&mut scratch[..room])))?;
        } else if manner.chunk.is_empty() {
            // Whether the server has closed, found out without taking a byte.
            moved(present(stream.peek(&mut [0])))?;
        }
        Ok(bytes > 0)
    }
}

/// The bytes that a call moved: none, if it has to wait.
fn moved(outcome: io::Result<usize>) -> io::Result<usize> {
    use ErrorKind::{Interrupted, NotConnected, WouldBlock};
    outcome.or_else(|error| match error.kind() {
        WouldBlock | Interrupted | NotConnected => Ok(0),
        _ => Err(error),
    })
}

/// The end of a stream as an error.
fn present(received: io::Result<usize>) -> io::Result<usize> {
    match received {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}
