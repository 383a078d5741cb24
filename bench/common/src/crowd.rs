//! Clients of an echo server: many at once, or one after the other.
//!
//! One thread; a crowd's sockets are non-blocking. A client that has its bytes back closes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flatpath_testkit::clients::Clients;
use rustix::net::SocketFlags;

use crate::source::Source;

/// What each client sends and wants back.
const MESSAGE_BYTES: usize = 128;
/// When the clients that still wait give up. Long enough for a connection attempt that the kernel
/// dropped three times: it tries again after 1, 3 and 7 seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Clients dialled between two looks at what has arrived. No client sends before a look.
const DIALS_PER_LOOK: u32 = 64;
/// Clients dialled that have not ended yet, at most: as many as the kernel's queue of a listener
/// (4,096) takes. A full one drops connections, which then take a second longer.
pub const CONNECTING_MAX: u32 = 4_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Clients that got their bytes back.
    pub served: u32,
    /// Clients that did not.
    pub lost: u32,
    /// From the first attempt to the last echo.
    pub wall: Duration,
}

/// `count` clients connect as fast as the kernel's queue lets them.
///
/// # Errors
/// If sockets cannot be made; what happens to the clients afterwards is counted.
pub fn at_once(server: SocketAddr, count: u32) -> io::Result<Outcome> {
    let mut clients = Clients::new()?;
    let mut source = Source::fresh();
    let (mut dialled, mut ended, mut served) = (0, 0, 0);
    let begin = Instant::now();
    let mut last = begin;
    while ended < count && begin.elapsed() < PATIENCE {
        let may_dial = |dialled, ended| dialled < count && dialled - ended < CONNECTING_MAX;
        let dialled_before = dialled;
        while may_dial(dialled, ended) && dialled - dialled_before < DIALS_PER_LOOK {
            let socket = source.dial(server, SocketFlags::NONBLOCK)?;
            let index = dialled as usize;
            clients.insert(index, socket.into(), message(index).to_vec())?;
            dialled += 1;
        }
        let limit = match may_dial(dialled, ended) {
            true => Duration::ZERO,
            false => LOOK_EVERY,
        };
        for index in clients.wait(limit)? {
            let Some(client) = clients.get(index) else {
                continue;
            };
            let message = message(index);
            let is_served = client.received == message;
            if !is_served && client.end.is_none() && message.starts_with(&client.received) {
                continue;
            }
            served += u32::from(is_served);
            ended += 1;
            last = Instant::now();
            clients.close(index);
        }
    }
    Ok(Outcome {
        served,
        lost: count - served,
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
        let outcome = at_once(address, 100).expect("sockets");
        assert_eq!((outcome.served, outcome.lost), (100, 0));
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
            let outcome = at_once(address, 4).expect("sockets");
            assert_eq!((outcome.served, outcome.lost), (0, 4));
            assert_eq!(one_by_one(address, 2).expect("sockets").lost, 2);
        }
    }

    #[test]
    fn messages_of_neighbours_differ() {
        assert_ne!(message(0), message(1));
        assert_ne!(message(255), message(256));
    }
}
