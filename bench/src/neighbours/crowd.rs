//! Many troublesome connections on one thread.
//!
//! Each sends an opening, then a chunk every interval, and reads as much as it is told to. What
//! the server closes is dialled anew at a bounded rate: trouble does not end by being cut off once.
//! The connections come from many addresses.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::source::Source;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, recv, send};

/// Addresses that a crowd comes from.
const ADDRESSES: usize = 64;
/// Connections that are dialled anew in one round: a crowd is no denial by SYN.
const DIALS_PER_ROUND: usize = 200;
/// Longest pause between two rounds.
const ROUND: Duration = Duration::from_millis(5);
/// Bytes read or dropped at a time.
const READ_BYTES: usize = 64 * 1024;

/// What each connection of a crowd does.
pub(super) struct Manner<'a> {
    /// How many there are.
    pub(super) connections: usize,
    /// Sent first; the number of the connection makes it its own.
    pub(super) opening: &'a dyn Fn(usize) -> Vec<u8>,
    /// Sent again and again afterwards, whole or in part.
    pub(super) chunk: &'a [u8],
    /// Time between two chunks; zero: as fast as the server takes them.
    pub(super) every: Duration,
    /// Bytes read in each round; zero: nothing is ever read.
    pub(super) read_bytes: usize,
    /// Whether a connection is closed as soon as its opening is sent, and dialled anew.
    pub(super) hit_and_run: bool,
}

impl Default for Manner<'_> {
    fn default() -> Self {
        Self {
            connections: 1,
            opening: &|_| Vec::new(),
            chunk: &[],
            every: Duration::from_secs(1),
            read_bytes: 0,
            hit_and_run: false,
        }
    }
}

struct Member {
    socket: Option<OwnedFd>,
    opening: Vec<u8>,
    sent: usize,
    /// How much of the current chunk is sent.
    chunk_sent: usize,
    chunk_due: Instant,
}

/// What became of a write or a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done(usize),
    Later,
    Gone,
}

/// Behaves so until `stop`.
///
/// # Errors
/// No socket can be made at all.
pub(super) fn trouble(to: SocketAddr, manner: &Manner<'_>, stop: &AtomicBool) -> io::Result<()> {
    let mut sources: Vec<_> = (0..ADDRESSES).map(|_| Source::fresh()).collect();
    let mut members: Vec<Member> = Vec::new();
    let mut scratch = vec![0; READ_BYTES];
    let began = Instant::now();
    // ORDER: Relaxed: the flag alone matters.
    while !stop.load(Ordering::Relaxed) {
        let mut dials = DIALS_PER_ROUND;
        while members.len() < manner.connections && dials > 0 {
            let number = members.len();
            members.push(Member {
                socket: None,
                opening: (manner.opening)(number),
                sent: 0,
                chunk_sent: 0,
                chunk_due: began,
            });
            dials -= 1;
        }
        let mut is_busy = false;
        let mut dials = DIALS_PER_ROUND;
        for (number, member) in members.iter_mut().enumerate() {
            if member.socket.is_none() {
                if dials == 0 {
                    continue;
                }
                dials -= 1;
                member.dial(to, &mut sources[number % ADDRESSES])?;
            }
            is_busy |= member.act(manner, &mut scratch);
        }
        if !is_busy || manner.every > Duration::ZERO {
            thread::sleep(ROUND);
        }
    }
    Ok(())
}

impl Member {
    fn dial(&mut self, to: SocketAddr, source: &mut Source) -> io::Result<()> {
        match source.dial(to, SocketFlags::NONBLOCK) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.sent = 0;
                self.chunk_sent = 0;
                self.chunk_due = Instant::now();
                Ok(())
            }
            // The bench has no more descriptors than it has: the trouble is smaller.
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => Ok(()),
            // Refused or reset at once: tried again in a later round.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// One round of one connection. True when it moved bytes.
    fn act(&mut self, manner: &Manner<'_>, scratch: &mut [u8]) -> bool {
        let mut moved = false;
        if self.sent < self.opening.len() {
            match self.write_opening() {
                Step::Done(_) => moved = true,
                Step::Later => {}
                Step::Gone => return self.lose(),
            }
            if self.sent < self.opening.len() {
                return moved;
            }
            if manner.hit_and_run {
                return self.lose() || moved;
            }
            self.chunk_due = Instant::now() + manner.every;
        }
        moved |= self.write_chunk(manner);
        if manner.read_bytes > 0 {
            let room = manner.read_bytes.min(scratch.len());
            match self.read(&mut scratch[..room]) {
                Step::Done(_) => moved = true,
                Step::Later => {}
                Step::Gone => return self.lose(),
            }
        } else if manner.chunk.is_empty() && self.is_ended() {
            return self.lose();
        }
        moved
    }

    fn write_opening(&mut self) -> Step {
        let step = write(self.socket.as_ref(), &self.opening[self.sent..]);
        if let Step::Done(bytes) = step {
            self.sent += bytes;
        }
        step
    }

    fn write_chunk(&mut self, manner: &Manner<'_>) -> bool {
        if manner.chunk.is_empty() || Instant::now() < self.chunk_due {
            return false;
        }
        match write(self.socket.as_ref(), &manner.chunk[self.chunk_sent..]) {
            Step::Done(bytes) => {
                self.chunk_sent += bytes;
                if self.chunk_sent == manner.chunk.len() {
                    self.chunk_sent = 0;
                    self.chunk_due += manner.every;
                }
                true
            }
            Step::Later => false,
            Step::Gone => self.lose(),
        }
    }

    fn read(&self, scratch: &mut [u8]) -> Step {
        let Some(socket) = &self.socket else {
            return Step::Later;
        };
        match recv(socket, scratch, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Step::Gone,
            Ok((_, bytes)) => Step::Done(bytes),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => Step::Later,
            Err(_) => Step::Gone,
        }
    }

    /// Whether the server has closed, found out without taking a byte.
    fn is_ended(&self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let mut byte = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(socket, &mut byte[..], flags) {
            Ok((_, 0)) => true,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => false,
            Err(_) => true,
        }
    }

    /// Closes; bytes that were not read make it a reset. False, as nothing moved.
    fn lose(&mut self) -> bool {
        self.socket = None;
        false
    }
}

fn write(socket: Option<&OwnedFd>, bytes: &[u8]) -> Step {
    let Some(socket) = socket else {
        return Step::Later;
    };
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(bytes) => Step::Done(bytes),
        Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN | Errno::INPROGRESS) => Step::Later,
        Err(_) => Step::Gone,
    }
}
