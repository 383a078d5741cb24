//! Listening sockets, and patience with an address that is about to be free.
//!
//! Several sockets share an address by SO_REUSEPORT, which lets any process of the same user join
//! them: a second server would silently take a part of the connections. So the first socket of an
//! address binds and listens without the option, which the kernel refuses while any other socket
//! listens there, and gets it afterwards; only then do the others join. Two servers that start
//! at once both bind, and one of them fails to listen. A program that sets SO_REUSEPORT itself
//! can still join later.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};

use crate::limits::{BACKLOG, BIND_PATIENCE, BIND_PAUSE, UNSENT_BYTES_MAX};
use crate::server::sockets::SocketFile;

/// Tries again for a second while the address is in use: the kernel lets go of the listener of an
/// io_uring a little after the process that had it was killed.
pub(crate) fn bind_patiently<T>(
    mut bind: impl FnMut() -> io::Result<T>,
    mut pause: impl FnMut(Duration),
) -> io::Result<T> {
    let mut waited = Duration::ZERO;
    loop {
        match bind() {
            Err(cause) if is_passing(&cause) && waited < BIND_PATIENCE => {
                pause(BIND_PAUSE);
                waited += BIND_PAUSE;
            }
            other => return other,
        }
    }
}

/// Whether it may soon be otherwise: the address, or the lock of its directory, is taken.
fn is_passing(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::WouldBlock
    )
}

/// How a socket shares its address with others of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Not at all.
    Alone,
    /// The first of several: no other socket may listen there yet.
    First,
    /// One that joins the first.
    Joins,
    /// The same, and it does not listen yet.
    JoinsLater,
}

pub(crate) fn bind(address: SocketAddr, sharing: Sharing) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, kind, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if matches!(sharing, Sharing::Joins | Sharing::JoinsLater) {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    tune(&socket)?;
    rustix::net::bind(&socket, &address)?;
    if sharing != Sharing::JoinsLater {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    if sharing == Sharing::First {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// Binds a socket of datagrams, which shares its address with none.
pub(crate) fn bind_datagrams(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, kind, flags, Some(ipproto::UDP))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Lets more sockets of this process join those that another one has bound, as [`Sharing::First`]
/// does.
pub(crate) fn let_join(sockets: &[Arc<OwnedFd>]) -> io::Result<()> {
    for socket in sockets {
        sockopt::set_socket_reuseport(socket, true)?;
    }
    Ok(())
}

/// Sets what every connection inherits from its listener, one of our own or a passed one: replies
/// are written whole, so nothing is gained by waiting (`TCP_NODELAY`); and clients that do not read
/// cost the copy of a little of their reply only, see [`UNSENT_BYTES_MAX`].
///
/// # Errors
/// As for a Unix socket, which has no such options.
pub(crate) fn tune(listener: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&listener, true)?;
    flatpath_sys::tcp::set_unsent_max(listener, UNSENT_BYTES_MAX)
}

/// Binds a Unix socket whose file has this mode. What a server that has ended without
/// removing it has left there is replaced.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] when another process listens there, or the file is no socket.
pub(crate) fn bind_unix(
    path: &Path,
    kind: SocketType,
    mode: u32,
) -> io::Result<(OwnedFd, SocketFile)> {
    bind_unix_patiently(path, kind, mode, std::thread::sleep)
}

fn bind_unix_patiently(
    path: &Path,
    kind: SocketType,
    mode: u32,
    mut pause: impl FnMut(Duration),
) -> io::Result<(OwnedFd, SocketFile)> {
    match bind_patiently(|| bind_unix_at_once(path, kind, mode), &mut pause) {
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
            // Any process that can read the directory may hold its lock, for as long as it likes.
            log::warn!(
                "the directory of {} is locked by another process",
                path.display()
            );
            bind_patiently(|| bind_unix_now(path, kind, mode), pause)
        }
        bound => bound,
    }
}

/// The same in one try, for a caller that tries again by itself.
///
/// # Errors
/// As [`bind_unix`], and `WouldBlock` while another process has locked the directory.
pub(crate) fn bind_unix_at_once(
    path: &Path,
    kind: SocketType,
    mode: u32,
) -> io::Result<(OwnedFd, SocketFile)> {
    let _lock = lock_directory(path)?;
    bind_unix_now(path, kind, mode)
}

/// Locks the directory of a path, so that two servers that start at once do not remove each other's
/// file. Held until it is dropped; a file system that has no locks has none.
///
/// # Errors
/// `WouldBlock` while another process has it.
fn lock_directory(path: &Path) -> io::Result<OwnedFd> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(directory),
    }
}

fn bind_unix_now(path: &Path, kind: SocketType, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    let new = || {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
    };
    let socket = new()?;
    let is_dead = || {
        let is_socket = rustix::fs::lstat(path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        let refused = |probe| rustix::net::connect(probe, &address) == Err(Errno::CONNREFUSED);
        is_socket && new().is_ok_and(refused)
    };
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_dead() => {
            std::fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        bound => bound?,
    }
    let file = SocketFile::at(path)?;
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn taken() -> (SocketAddr, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        (listener.local_addr().expect("bound"), listener)
    }

    #[test]
    fn an_address_that_becomes_free_is_bound() {
        let (address, listener) = taken();
        let (listener, pauses) = (RefCell::new(Some(listener)), Cell::new(0));
        let bound = bind_patiently(
            || bind(address, Sharing::Alone),
            |_| {
                pauses.set(pauses.get() + 1);
                if pauses.get() == 3 {
                    listener.take();
                }
            },
        );
        assert_eq!(bound.expect("it is free now").1, address);
        assert_eq!(pauses.get(), 3);
    }

    #[test]
    fn a_unix_socket_that_its_server_is_about_to_leave_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = RefCell::new(UnixListener::bind(&path).ok());
        assert!(listener.borrow().is_some());
        let bound = bind_patiently(
            || bind_unix_now(&path, SocketType::STREAM, 0o600),
            |_| drop(listener.take()),
        );
        assert!(bound.is_ok(), "{bound:?}");
    }

    #[test]
    fn a_lock_of_the_directory_delays_a_unix_socket_and_prevents_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let (kind, mode) = (SocketType::STREAM, 0o600);
        let held = RefCell::new(Some(lock_directory(&path).expect("free")));
        let bound = bind_unix_patiently(&path, kind, mode, |_| drop(held.take()));
        drop(bound.expect("it was dropped"));
        let _held = lock_directory(&path).expect("free");
        let mut waited = Duration::ZERO;
        let bound = bind_unix_patiently(&path, kind, mode, |pause| waited += pause);
        assert!(bound.is_ok(), "{bound:?}");
        assert_eq!(waited, BIND_PATIENCE);
    }

    #[test]
    fn an_address_that_is_taken_is_refused_in_the_end() {
        let (address, _listener) = taken();
        let mut waited = Duration::ZERO;
        let bound = bind_patiently(|| bind(address, Sharing::Alone), |pause| waited += pause);
        let cause = bound.map(|_| ()).expect_err("it is taken");
        assert_eq!(cause.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(waited, BIND_PATIENCE);
    }

    #[test]
    fn an_address_is_shared_by_the_sockets_of_one_server_alone() {
        let free = "127.0.0.1:0".parse().expect("an address");
        let (_first, address) = bind(free, Sharing::First).expect("a free port");
        let (_second, joined) = bind(address, Sharing::Joins).expect("one of ours");
        assert_eq!(joined, address);
        for sharing in [Sharing::First, Sharing::Alone] {
            let refused = bind(address, sharing).map(|_| ());
            let cause = refused.expect_err("another server listens");
            assert_eq!(cause.kind(), io::ErrorKind::AddrInUse, "{sharing:?}");
        }
    }

    #[test]
    fn a_unix_socket_replaces_a_dead_one_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let (socket, file) = bind_unix(&path, SocketType::STREAM, 0o660).expect("free");
        let mode = rustix::fs::stat(&path).expect("there").st_mode & 0o777;
        assert_eq!(mode, 0o660);
        let taken = || {
            bind_unix(&path, SocketType::STREAM, 0o660)
                .map(|_| ())
                .expect_err("it is taken")
                .kind()
        };
        assert_eq!(taken(), io::ErrorKind::AddrInUse, "a live one");
        file.keep();
        drop((socket, file));
        assert!(path.exists(), "its server was killed");
        let (socket, file) =
            bind_unix(&path, SocketType::STREAM, 0o660).expect("no listener there");
        drop((socket, file));
        assert!(!path.exists());
        std::fs::write(&path, "precious").expect("written");
        assert!(bind_unix(&path, SocketType::STREAM, 0o660).is_err());
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
    }

    #[test]
    fn no_other_failure_is_waited_for() {
        let result = bind_patiently(
            || Err::<(), _>(io::ErrorKind::PermissionDenied.into()),
            |_| panic!("it does not become better"),
        );
        assert!(result.is_err());
    }
}
