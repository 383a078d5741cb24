//! Where a connection is opened to, and the socket that it is opened with.
//!
//! What every driver does alike for [`Driver::socket`](crate::Driver::socket) and
//! [`Driver::connect`](crate::Driver::connect) is here:
//!
//! | step | TCP | a Unix socket |
//! |---|---|---|
//! | its socket | `TCP_NODELAY`, close-on-exec | close-on-exec |
//! | the connect | waits for the peer: the driver's affair | is over in the call, or fails in it |
//!
//! A Unix socket is never waited for: its kernel knows at once whether a process listens there and
//! has room. EAGAIN says that its backlog is full (unix(7)). There is no event for its room, so a
//! wait would be a loop or a thread of the kernel's; whether and when to try again is for the
//! caller to say, who may have another place to go to.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Where a connection is opened to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Remote {
    /// An address of IPv4 or IPv6, and a port of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(Arc<Path>),
}

impl Remote {
    /// A socket for it, in the blocking mode that `flags` name: one or two system calls.
    pub(crate) fn socket(&self, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        let family = match self {
            Remote::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Remote::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Remote::Unix(_) => AddressFamily::UNIX,
        };
        let flags = flags | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if let Remote::Tcp(_) = self {
            // It fails on no socket of TCP; without it, short writes would come late.
            let _ = set_tcp_nodelay(&socket, true);
        }
        Ok(socket)
    }

    /// Connects a socket that does not block: one system call. `Ok(false)`: the peer is awaited.
    pub(crate) fn connect(&self, socket: impl AsFd) -> Result<bool, Errno> {
        let connected = match self {
            Remote::Tcp(address) => connect(socket, address),
            Remote::Unix(path) => SocketAddrUnix::new(&**path).and_then(|at| connect(socket, &at)),
        };
        match connected {
            Ok(()) => Ok(true),
            Err(Errno::INPROGRESS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// An address with its port, or `unix:` and a path: as listeners are named.
impl fmt::Display for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Tcp(address) => address.fmt(formatter),
            Remote::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Remote {
        Remote::Tcp(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_is_named_as_a_listener_is() {
        let address: SocketAddr = "[2001:db8::1]:80".parse().expect("an address");
        assert_eq!(Remote::from(address).to_string(), "[2001:db8::1]:80");
        let path: Arc<Path> = Path::new("/run/app.sock").into();
        assert_eq!(Remote::Unix(path).to_string(), "unix:/run/app.sock");
    }

    #[test]
    fn short_writes_of_tcp_are_sent_at_once() {
        let remote = Remote::Tcp(([127, 0, 0, 1], 1).into());
        let socket = remote.socket(SocketFlags::empty()).expect("a socket");
        assert_eq!(rustix::net::sockopt::tcp_nodelay(&socket), Ok(true));
    }

    #[test]
    fn a_path_that_no_address_has_room_for_is_an_error() {
        let path: Arc<Path> = Path::new(&"x".repeat(200)).into();
        let remote = Remote::Unix(path);
        let socket = remote.socket(SocketFlags::NONBLOCK).expect("a socket");
        assert_eq!(remote.connect(&socket), Err(Errno::NAMETOOLONG));
    }
}
