//! A crowd that connects at once: one thread, non-blocking sockets, edge-triggered.
//!
//! Nobody sends before everybody has begun to connect, so that all are there together. Who has
//! its bytes back closes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read, write};

use crate::children::refuse_if_interrupted;
use crate::dial::Source;

/// What each client sends and wants back.
const MESSAGE_BYTES: usize = 128;
/// When the last client gives up. Long enough for a connection attempt the kernel dropped three
/// times: it tries again after 1, 3 and 7 seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
const EVENTS_PER_WAIT: usize = 1024;

/// What became of a crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storm {
    /// Clients that got their bytes back.
    pub(crate) served: u32,
    /// Clients that did not.
    pub(crate) lost: u32,
    /// From the first attempt to the last echo.
    pub(crate) wall: Duration,
}

struct Client {
    socket: OwnedFd,
    sent: bool,
    received: Vec<u8>,
}

/// Lets the crowd loose.
///
/// # Errors
/// If sockets cannot be made; what happens to them afterwards is counted.
pub(crate) fn storm(address: SocketAddr, clients: u32) -> io::Result<Storm> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut source = Source::fresh();
    let begin = Instant::now();
    let mut crowd = Vec::with_capacity(clients as usize);
    for index in 0..u64::from(clients) {
        let socket = source.dial(address)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&events, &socket, epoll::EventData::new_u64(index), flags)?;
        crowd.push(Some(Client {
            socket,
            sent: false,
            received: Vec::new(),
        }));
    }
    let (mut served, mut waiting) = (0, clients);
    let mut last = begin;
    let mut ready = Vec::with_capacity(EVENTS_PER_WAIT);
    while waiting > 0 && begin.elapsed() < PATIENCE {
        refuse_if_interrupted()?;
        ready.clear();
        match epoll::wait(
            &events,
            rustix::buffer::spare_capacity(&mut ready),
            Some(&LOOK_EVERY),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(place) = crowd.get_mut(index) else {
                continue;
            };
            let Some(client) = place else { continue };
            match client.step(index) {
                Step::Waits => continue,
                Step::Served => served += 1,
                Step::Broken => {}
            }
            last = Instant::now();
            waiting -= 1;
            // Closing it also takes it out of the events.
            *place = None;
        }
    }
    Ok(Storm {
        served,
        lost: clients - served,
        wall: last - begin,
    })
}

enum Step {
    Waits,
    Served,
    Broken,
}

impl Client {
    /// Goes as far as it can without waiting.
    fn step(&mut self, index: usize) -> Step {
        let message = message(index);
        if !self.sent {
            match write(&self.socket, &message) {
                Ok(MESSAGE_BYTES) => self.sent = true,
                // Not connected yet: another event comes when it is.
                Err(Errno::AGAIN | Errno::NOTCONN) => return Step::Waits,
                Ok(_) | Err(_) => return Step::Broken,
            }
        }
        let mut buffer = [0; MESSAGE_BYTES + 1];
        loop {
            match read(&self.socket, &mut buffer) {
                Ok(count @ 1..) => self.received.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return Step::Waits,
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => return Step::Broken,
            }
            if self.received == message {
                return Step::Served;
            }
            if !message.starts_with(&self.received) {
                return Step::Broken;
            }
        }
    }
}

/// Different for each client: an echo to the wrong one is found.
fn message(index: usize) -> [u8; MESSAGE_BYTES] {
    let number = index.to_le_bytes();
    std::array::from_fn(|position| number[position % number.len()] ^ position as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
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
    fn everybody_is_served_by_an_echo() {
        // In two pieces: an echo owes no boundaries.
        let address = server(|mut socket| {
            let mut bytes = [0; MESSAGE_BYTES];
            if socket.read_exact(&mut bytes).is_ok() {
                let _ = socket.write_all(&bytes[..50]);
                let _ = socket.write_all(&bytes[50..]);
                let _ = socket.read(&mut bytes);
            }
        });
        let storm = storm(address, 50).expect("sockets");
        assert_eq!((storm.served, storm.lost), (50, 0));
    }

    #[test]
    fn somebody_elses_bytes_do_not_count() {
        let address = server(|mut socket| {
            let mut bytes = [0; MESSAGE_BYTES];
            if socket.read_exact(&mut bytes).is_ok() {
                bytes[9] ^= 1;
                let _ = socket.write_all(&bytes);
                let _ = socket.read(&mut bytes);
            }
        });
        let storm = storm(address, 5).expect("sockets");
        assert_eq!((storm.served, storm.lost), (0, 5));
    }

    #[test]
    fn a_connection_closed_early_is_lost() {
        let storm = storm(server(drop), 5).expect("sockets");
        assert_eq!((storm.served, storm.lost), (0, 5));
    }

    #[test]
    fn messages_of_neighbours_differ() {
        assert_ne!(message(0), message(1));
        assert_ne!(message(255), message(256));
    }
}
