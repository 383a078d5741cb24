//! Clients of an echo server: many at once, or one after the other.
//!
//! One thread; a crowd's sockets are non-blocking. A client that has its bytes back closes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read, write};
use rustix::net::SocketFlags;

use crate::source::Source;

/// What each client sends and wants back.
const MESSAGE_BYTES: usize = 128;
/// When the clients that still wait give up. Long enough for a connection attempt that the kernel
/// dropped three times: it tries again after 1, 3 and 7 seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
const EVENTS_PER_LOOK: usize = 1024;

/// How a crowd comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Clients dialled between two looks at what has arrived. No client sends before a look.
    pub dials_per_look: u32,
    /// Clients dialled that have not ended yet, at most.
    pub connecting_max: u32,
}

impl Arrival {
    /// As many at a time as the kernel's queue of a listener (4,096) takes: a full one drops
    /// connections, which then take a second longer.
    pub const QUEUED: Self = Self {
        dials_per_look: 64,
        connecting_max: 4_000,
    };
    /// No client sends before all have begun to connect, so that all are there together.
    pub const TOGETHER: Self = Self {
        dials_per_look: u32::MAX,
        connecting_max: u32::MAX,
    };
}

/// What became of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Clients that got their bytes back.
    pub served: u32,
    /// Clients that did not.
    pub lost: u32,
    /// From the first attempt to the last echo.
    pub wall: Duration,
}

/// `count` clients connect as fast as `arrival` lets them.
///
/// `proceed` is asked before each look, every 50 ms at least.
///
/// # Errors
/// If sockets cannot be made, or what `proceed` returns; what happens to the clients afterwards is
/// counted.
pub fn at_once(
    server: SocketAddr,
    count: u32,
    arrival: Arrival,
    proceed: impl Fn() -> io::Result<()>,
) -> io::Result<Outcome> {
    let mut crowd = Crowd::new(count, arrival.connecting_max)?;
    let begin = Instant::now();
    let mut last = begin;
    while crowd.waiting > 0 && begin.elapsed() < PATIENCE {
        proceed()?;
        let dialled_before = crowd.dialled;
        while crowd.may_dial() && crowd.dialled - dialled_before < arrival.dials_per_look {
            crowd.dial(server)?;
        }
        if crowd.look()? > 0 {
            last = Instant::now();
        }
    }
    Ok(Outcome {
        served: crowd.served,
        lost: count - crowd.served,
        wall: last - begin,
    })
}

/// `count` clients, each after the one before has closed.
///
/// # Errors
/// If sockets cannot be made; what happens to the clients afterwards is counted.
pub fn one_by_one(server: SocketAddr, count: u32) -> io::Result<Outcome> {
    let mut source = Source::fresh();
    let mut outcome = Outcome::default();
    let begin = Instant::now();
    for index in 0..count {
        let stream = TcpStream::from(source.dial(server, SocketFlags::empty())?);
        stream.set_read_timeout(Some(PATIENCE))?;
        match ask(stream, &message(index as usize)) {
            true => outcome.served += 1,
            false => outcome.lost += 1,
        }
    }
    outcome.wall = begin.elapsed();
    Ok(outcome)
}

fn ask(mut stream: TcpStream, message: &[u8; MESSAGE_BYTES]) -> bool {
    let mut echo = [0; MESSAGE_BYTES];
    let answered = stream
        .write_all(message)
        .and_then(|()| stream.read_exact(&mut echo));
    answered.is_ok() && echo == *message
}

/// Different for each client: an echo to the wrong one is found.
fn message(index: usize) -> [u8; MESSAGE_BYTES] {
    let number = index.to_le_bytes();
    std::array::from_fn(|position| number[position % number.len()] ^ position as u8)
}

struct Crowd {
    events: OwnedFd,
    ready: Vec<epoll::Event>,
    source: Source,
    clients: Vec<Option<Client>>,
    connecting_max: u32,
    dialled: u32,
    served: u32,
    waiting: u32,
}

struct Client {
    socket: OwnedFd,
    sent: bool,
    received: usize,
}

enum Step {
    Waits,
    Served,
    Broken,
}

impl Crowd {
    fn new(count: u32, connecting_max: u32) -> io::Result<Self> {
        Ok(Self {
            events: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(EVENTS_PER_LOOK),
            source: Source::fresh(),
            clients: Vec::with_capacity(count as usize),
            connecting_max,
            dialled: 0,
            served: 0,
            waiting: count,
        })
    }

    fn may_dial(&self) -> bool {
        let ended = self.clients.capacity() as u32 - self.waiting;
        (self.dialled as usize) < self.clients.capacity()
            && self.dialled - ended < self.connecting_max
    }

    fn dial(&mut self, server: SocketAddr) -> io::Result<()> {
        let socket = self.source.dial(server, SocketFlags::NONBLOCK)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::from(self.dialled));
        epoll::add(&self.events, &socket, data, flags)?;
        self.clients.push(Some(Client {
            socket,
            sent: false,
            received: 0,
        }));
        self.dialled += 1;
        Ok(())
    }

    /// Serves what is ready; waits for it once all were dialled. Returns how many ended.
    fn look(&mut self) -> io::Result<u32> {
        let at_once = Timespec::default();
        let limit = if self.may_dial() {
            &at_once
        } else {
            &LOOK_EVERY
        };
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let room = rustix::buffer::spare_capacity(&mut ready);
        match epoll::wait(&self.events, room, Some(limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let before = self.waiting;
        for event in &ready {
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(place) = self.clients.get_mut(index) else {
                continue;
            };
            let Some(client) = place else { continue };
            match client.step(&message(index)) {
                Step::Waits => continue,
                Step::Served => self.served += 1,
                Step::Broken => {}
            }
            self.waiting -= 1;
            // Closing it also takes it out of the events.
            *place = None;
        }
        self.ready = ready;
        Ok(before - self.waiting)
    }
}

impl Client {
    /// Goes as far as it can without waiting.
    fn step(&mut self, message: &[u8; MESSAGE_BYTES]) -> Step {
        if !self.sent {
            match write(&self.socket, message) {
                Ok(MESSAGE_BYTES) => self.sent = true,
                // Not connected yet: another event comes when it is.
                Err(Errno::AGAIN | Errno::NOTCONN) => return Step::Waits,
                Ok(_) | Err(_) => return Step::Broken,
            }
        }
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            match read(&self.socket, &mut buffer) {
                Ok(count @ 1..) if message[self.received..].starts_with(&buffer[..count]) => {
                    self.received += count;
                }
                Err(Errno::AGAIN) => return Step::Waits,
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => return Step::Broken,
            }
            if self.received == MESSAGE_BYTES {
                return Step::Served;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn server(answer: fn(TcpStream)) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else { return };
                thread::spawn(move || answer(socket));
            }
        });
        address
    }

    #[test]
    fn an_echo_in_pieces_serves_all() {
        let address = server(|mut socket| {
            let mut bytes = [0; MESSAGE_BYTES];
            if socket.read_exact(&mut bytes).is_ok() {
                let _ = socket.write_all(&bytes[..50]);
                let _ = socket.write_all(&bytes[50..]);
                let _ = socket.read(&mut bytes);
            }
        });
        for arrival in [Arrival::QUEUED, Arrival::TOGETHER] {
            let outcome = at_once(address, 100, arrival, || Ok(())).expect("sockets");
            assert_eq!((outcome.served, outcome.lost), (100, 0));
        }
        let outcome = one_by_one(address, 3).expect("sockets");
        assert_eq!((outcome.served, outcome.lost), (3, 0));
    }

    #[test]
    fn a_wrong_or_missing_echo_is_lost() {
        let wrong = server(|mut socket| {
            let mut bytes = [0; MESSAGE_BYTES];
            if socket.read_exact(&mut bytes).is_ok() {
                bytes[9] ^= 1;
                let _ = socket.write_all(&bytes);
                let _ = socket.read(&mut bytes);
            }
        });
        for address in [wrong, server(drop)] {
            let outcome = at_once(address, 4, Arrival::TOGETHER, || Ok(())).expect("sockets");
            assert_eq!((outcome.served, outcome.lost), (0, 4));
            assert_eq!(one_by_one(address, 2).expect("sockets").lost, 2);
        }
    }

    #[test]
    fn a_crowd_that_is_told_to_stop_stops() {
        let told = || Err(io::ErrorKind::Interrupted.into());
        let stopped = at_once(server(drop), 4, Arrival::QUEUED, told);
        assert_eq!(
            stopped.expect_err("told").kind(),
            io::ErrorKind::Interrupted
        );
    }

    #[test]
    fn messages_of_neighbours_differ() {
        assert_ne!(message(0), message(1));
        assert_ne!(message(255), message(256));
    }
}
