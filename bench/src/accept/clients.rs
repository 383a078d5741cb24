//! Clients of an echo server: many at once, or one after the other.
//!
//! One thread, non-blocking sockets. A crowd comes from a loopback address of its own, with ports
//! counted up: ports of connections that this side closed stay reserved for a minute, and the
//! kernel's own search for a free one takes longer than the connection.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

/// What each client sends and wants back.
const MESSAGE_BYTES: usize = 128;
/// Clients whose connection nobody has accepted yet, at most: a full queue of the kernel (4,096)
/// drops connections, which then take a second longer.
pub(crate) const IN_THE_MAKING_MAX: u32 = 4_000;
/// When those that still wait give up.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Dialled between two looks at what has arrived.
const DIALS_PER_LOOK: u32 = 64;
const EVENTS_PER_LOOK: usize = 1024;
const FIRST_PORT: u16 = 1024;
const PORT_TRIES: u32 = 64;

/// What became of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visit {
    /// Clients that got their bytes back.
    pub(crate) served: u32,
    /// Clients that did not.
    pub(crate) lost: u32,
    /// From the first attempt to the last echo.
    pub(crate) wall: Duration,
}

/// `count` clients connect as fast as they can; who has its bytes back closes.
pub(crate) fn at_once(server: SocketAddr, count: u32) -> io::Result<Visit> {
    let mut crowd = Crowd::new(count)?;
    let begin = Instant::now();
    let mut last = begin;
    while crowd.waiting > 0 && begin.elapsed() < PATIENCE {
        let dialled_before = crowd.dialled;
        while crowd.may_dial() && crowd.dialled - dialled_before < DIALS_PER_LOOK {
            crowd.dial(server)?;
        }
        if crowd.look()? > 0 {
            last = Instant::now();
        }
    }
    Ok(Visit {
        served: crowd.served,
        lost: count - crowd.served,
        wall: last - begin,
    })
}

/// `count` clients, each after the one before has closed.
pub(crate) fn one_by_one(server: SocketAddr, count: u32) -> io::Result<Visit> {
    let mut source = Source::fresh();
    let mut visit = Visit::default();
    let begin = Instant::now();
    for index in 0..count {
        let stream = TcpStream::from(source.dial(server, SocketFlags::empty())?);
        stream.set_read_timeout(Some(PATIENCE))?;
        match ask(stream, &message(index as usize)) {
            true => visit.served += 1,
            false => visit.lost += 1,
        }
    }
    visit.wall = begin.elapsed();
    Ok(visit)
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
    dialled: u32,
    /// Have sent, which the server's kernel took: on their way out of its queue.
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
    fn new(count: u32) -> io::Result<Self> {
        Ok(Self {
            events: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(EVENTS_PER_LOOK),
            source: Source::fresh(),
            clients: Vec::with_capacity(count as usize),
            dialled: 0,
            served: 0,
            waiting: count,
        })
    }

    fn may_dial(&self) -> bool {
        let ended = self.clients.capacity() as u32 - self.waiting;
        (self.dialled as usize) < self.clients.capacity()
            && self.dialled - ended < IN_THE_MAKING_MAX
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

    /// Serves what is ready; waits for it once everybody was dialled. Returns how many ended.
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

static SOURCES: LazyLock<AtomicU32> = LazyLock::new(|| {
    let random = RandomState::new().hash_one(std::process::id());
    AtomicU32::new(random as u32)
});

/// Where clients come from.
struct Source {
    address: Ipv4Addr,
    next_port: u16,
}

impl Source {
    /// An address of 127.0.0.0/8 that no crowd had lately.
    fn fresh() -> Self {
        let number = SOURCES.fetch_add(1, Ordering::Relaxed);
        let byte = |value: u32| u8::try_from(value % 255 + 1).unwrap_or(1);
        Self {
            address: Ipv4Addr::new(127, 2, byte(number / 255), byte(number)),
            next_port: FIRST_PORT,
        }
    }

    /// A socket whose connection is under way, or made.
    fn dial(&mut self, to: SocketAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
        let flags = flags | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        self.bind(&socket)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    }

    fn bind(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let mut outcome = Err(Errno::ADDRINUSE);
        for _ in 0..PORT_TRIES {
            let from = SocketAddr::V4(SocketAddrV4::new(self.address, self.next_port));
            match self.next_port.checked_add(1) {
                Some(port) => self.next_port = port,
                None => *self = Self::fresh(),
            }
            outcome = bind(socket, &from);
            if outcome != Err(Errno::ADDRINUSE) {
                break;
            }
        }
        Ok(outcome?)
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
    fn an_echo_in_pieces_serves_everybody() {
        let address = server(|mut socket| {
            let mut bytes = [0; MESSAGE_BYTES];
            if socket.read_exact(&mut bytes).is_ok() {
                let _ = socket.write_all(&bytes[..50]);
                let _ = socket.write_all(&bytes[50..]);
                let _ = socket.read(&mut bytes);
            }
        });
        let visit = at_once(address, 30).expect("sockets");
        assert_eq!((visit.served, visit.lost), (30, 0));
        let visit = one_by_one(address, 3).expect("sockets");
        assert_eq!((visit.served, visit.lost), (3, 0));
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
            let visit = at_once(address, 4).expect("sockets");
            assert_eq!((visit.served, visit.lost), (0, 4));
            assert_eq!(one_by_one(address, 2).expect("sockets").lost, 2);
        }
    }

    #[test]
    fn behind_the_last_port_comes_another_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("bound");
        let mut source = Source {
            next_port: u16::MAX,
            ..Source::fresh()
        };
        let first = source.address;
        let _sockets = [(); 2].map(|()| source.dial(to, SocketFlags::empty()).expect("dialled"));
        let accepted = || listener.accept().expect("a client").1;
        assert_eq!(accepted(), SocketAddr::from((first, u16::MAX)));
        assert_ne!(accepted().ip(), first);
    }
}
