//! Client sockets, more of them than one source address has ports for.
//!
//! A connection that this side closes keeps its port for a minute (TIME-WAIT). Ten thousand at
//! once, twenty times over, need more ports than an address has: every crowd therefore comes from
//! a loopback address of its own, out of `127.1.1.1` to `127.1.255.255`, beginning anywhere so that
//! sessions side by side or soon after each other seldom meet. Ports are counted up and not left
//! to the kernel, whose search for a free one takes longer than the connection itself.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

/// The first port that needs no privilege.
const FIRST_PORT: u16 = 1024;
/// A port may be taken: by a listener on every address, or by another session.
const PORT_TRIES: u32 = 64;
/// Pairs of last bytes, each from 1 to 255.
const ADDRESSES: u32 = 255 * 255;

static SOURCES: LazyLock<AtomicU32> = LazyLock::new(|| {
    let random = RandomState::new().hash_one(std::process::id()) % u64::from(ADDRESSES);
    AtomicU32::new(u32::try_from(random).unwrap_or(0))
});

/// Where a crowd comes from.
#[derive(Debug)]
pub struct Source {
    address: Ipv4Addr,
    next_port: u16,
    /// Of each socket's receive buffer; the kernel's own size without it.
    receive_bytes: Option<usize>,
}

impl Source {
    /// An address no crowd of this process had before (until all of them were used).
    pub fn fresh() -> Self {
        // ORDER: only the number must be unique; nothing else is published by it.
        let number = SOURCES.fetch_add(1, Ordering::Relaxed);
        Self {
            address: address(number),
            next_port: FIRST_PORT,
            receive_bytes: None,
        }
    }

    /// The same with a receive buffer of this size (`SO_RCVBUF`), from before the connection is
    /// made, so that no larger window is ever offered.
    #[must_use]
    pub fn receiving(self, bytes: Option<usize>) -> Self {
        Self {
            receive_bytes: bytes,
            ..self
        }
    }

    /// A socket with its connection established or, with `NONBLOCK` among the flags, under way.
    pub fn dial(&mut self, to: SocketAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
        let flags = flags | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        self.bind(&socket)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(bytes) = self.receive_bytes {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    }

    fn bind(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let mut outcome = Err(Errno::ADDRINUSE);
        for tried in 0..PORT_TRIES {
            let from = SocketAddr::V4(SocketAddrV4::new(self.address, self.next_port));
            match self.next_port.checked_add(1) {
                Some(port) => self.next_port = port,
                None => *self = self.another(),
            }
            outcome = bind(socket, &from);
            if outcome != Err(Errno::ADDRINUSE) {
                break;
            }
            // One taken port is a listener; the second in a row is another session.
            if tried % 2 == 1 {
                *self = self.another();
            }
        }
        Ok(outcome?)
    }

    fn another(&self) -> Self {
        Self::fresh().receiving(self.receive_bytes)
    }
}

/// The last two bytes run from 1 to 255.
fn address(number: u32) -> Ipv4Addr {
    let byte = |value: u32| u8::try_from(value % 255 + 1).unwrap_or(1);
    Ipv4Addr::new(127, 1, byte(number / 255), byte(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    #[test]
    fn source_addresses_do_not_repeat() {
        let addresses: BTreeSet<_> = (0..ADDRESSES).map(address).collect();
        assert_eq!(addresses.len(), ADDRESSES as usize);
        assert_eq!(address(0), Ipv4Addr::new(127, 1, 1, 1));
        assert_eq!(address(ADDRESSES - 1), Ipv4Addr::new(127, 1, 255, 255));
        assert_eq!(address(ADDRESSES), address(0));
    }

    #[test]
    fn a_taken_port_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("bound");
        let mut source = Source::fresh();
        let taken = (source.address, source.next_port);
        let _holder = TcpListener::bind(taken).expect("a fresh source has every port free");
        let _socket = source.dial(to, SocketFlags::NONBLOCK).expect("connected");
        let (_accepted, from) = listener.accept().expect("a client");
        assert_eq!(from, SocketAddr::from((taken.0, taken.1 + 1)));
    }

    #[test]
    fn an_address_in_use_by_another_session_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("bound");
        let mut source = Source::fresh();
        let (theirs, port) = (source.address, source.next_port);
        let mut other = Source {
            address: theirs,
            next_port: port,
            ..Source::fresh()
        };
        let _held = [
            other.dial(to, SocketFlags::NONBLOCK).expect("connected"),
            other.dial(to, SocketFlags::NONBLOCK).expect("connected"),
        ];
        let _socket = source.dial(to, SocketFlags::NONBLOCK).expect("connected");
        let (held, also, ours) = (listener.accept(), listener.accept(), listener.accept());
        let _held = (held.expect("a client"), also.expect("a client"));
        assert_ne!(ours.expect("a client").1.ip(), theirs);
    }

    #[test]
    fn after_the_last_port_comes_another_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("bound");
        let mut source = Source {
            next_port: u16::MAX,
            ..Source::fresh()
        };
        let first = source.address;
        let _sockets = [
            source.dial(to, SocketFlags::NONBLOCK).expect("connected"),
            source.dial(to, SocketFlags::NONBLOCK).expect("connected"),
        ];
        let accepted = || listener.accept().expect("a client").1;
        assert_eq!(accepted(), SocketAddr::from((first, u16::MAX)));
        let second = accepted();
        assert_eq!(second.port(), FIRST_PORT);
        assert_ne!(second.ip(), first);
    }
}
