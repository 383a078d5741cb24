//! Client sockets, more of them than one source address has ports for.
//!
//! A connection that this side closes keeps its port for a minute (TIME-WAIT). Ten thousand at
//! once, twenty times over, need more ports than an address has: every crowd therefore comes from
//! a loopback address of its own, `127.1.0.1` and on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

static CROWDS: AtomicU32 = AtomicU32::new(0);

/// A source address no crowd of this process had before (until 65,025 of them were used).
pub(crate) fn fresh_source() -> Ipv4Addr {
    // ORDER: only the number must be unique; nothing else is published by it.
    source(CROWDS.fetch_add(1, Ordering::Relaxed))
}

/// The last two bytes run from 1 to 255: neither a network's nor anybody's first address.
fn source(number: u32) -> Ipv4Addr {
    let byte = |value: u32| u8::try_from(value % 255 + 1).unwrap_or(1);
    Ipv4Addr::new(127, 1, byte(number / 255), byte(number))
}

/// A non-blocking socket with its connection under way, or already established.
///
/// # Errors
/// What `socket`, `bind` or `connect` report, but not that connecting takes a moment.
pub(crate) fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddr::V4(SocketAddrV4::new(from, 0)))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn source_addresses_do_not_repeat() {
        let sources: BTreeSet<_> = (0..65_025).map(source).collect();
        assert_eq!(sources.len(), 65_025);
        assert_eq!(source(0), Ipv4Addr::new(127, 1, 1, 1));
        assert_eq!(source(65_024), Ipv4Addr::new(127, 1, 255, 255));
    }
}
