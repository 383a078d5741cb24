//! A ring to try things on: submit, wait for the completion with a deadline, compare.
//!
//! A trial ends every operation that could touch memory before it drops that memory.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::uring::setup;

/// How long a trial waits for what should come at once, in seconds.
const PATIENCE_SECONDS: u64 = 2;

/// Marks the completions of cancels.
const CANCEL: u64 = u64::MAX;

pub(super) struct Bench {
    ring: IoUring,
}

/// The error number of a standard library error.
pub(super) fn number(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The result of a completion, or its error number.
pub(super) fn result(entry: &cqueue::Entry) -> Result<u32, Errno> {
    u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()))
}

/// A trial went through, but not as it should have.
pub(super) fn expect(condition: bool) -> Result<(), Errno> {
    if condition {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

impl Bench {
    pub(super) fn new() -> Result<Bench, Errno> {
        let ring = setup::set_up(8, 16);
        let (ring, _) = ring.map_err(|refusal| Errno::from_raw_os_error(refusal.errno))?;
        Ok(Bench { ring })
    }

    pub(super) fn of(ring: IoUring) -> Bench {
        Bench { ring }
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// What it points to lives until the operation has ended.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<(), Errno> {
        // SAFETY: promised by the caller.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::NOBUFS)
    }

    pub(super) fn submit(&self) -> Result<(), Errno> {
        self.ring
            .submitter()
            .submit()
            .map(drop)
            .map_err(|error| number(&error))
    }

    /// Submits, waits for the next completion and takes it.
    pub(super) fn next(&mut self) -> Result<cqueue::Entry, Errno> {
        let patience = Timespec::new().sec(PATIENCE_SECONDS);
        loop {
            let arrived = self.ring.completion().next();
            match arrived {
                Some(entry) if entry.user_data() == CANCEL => continue,
                Some(entry) => return Ok(entry),
                None => {}
            }
            let arguments = SubmitArgs::new().timespec(&patience);
            let waited = self.ring.submitter().submit_with_args(1, &arguments);
            match waited.map_err(|error| number(&error)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Waits until an operation has ended; `more` says that it lives on.
    pub(super) fn drain(&mut self) -> Result<(), Errno> {
        while cqueue::more(self.next()?.flags()) {}
        Ok(())
    }

    /// Cancels the operation with this user data and waits for its end.
    pub(super) fn cancel(&mut self, user_data: u64) -> Result<(), Errno> {
        let entry = opcode::AsyncCancel::new(user_data)
            .build()
            .user_data(CANCEL);
        // SAFETY: a cancel points to nothing.
        unsafe { self.push(&entry) }?;
        self.drain()
    }
}

/// A listener on the loopback interface, or one that is not of the network where that interface is
/// down (a network namespace of its own, as `unshare -n`, containers without a network and
/// systemd's `PrivateNetwork` have it): what is tried here is io_uring and not the network.
pub(super) fn listen() -> Result<TcpListener, Errno> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| number(&error));
    let reachable = listener.and_then(|listener| connect(&listener).map(drop));
    match reachable {
        Ok(()) => TcpListener::bind("127.0.0.1:0").map_err(|error| number(&error)),
        Err(Errno::NETUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL) => listen_locally(),
        Err(errno) => Err(errno),
    }
}

/// The same without a network: the type stands for a stream socket of any kind.
fn listen_locally() -> Result<TcpListener, Errno> {
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    // Without a name the kernel chooses one (unix(7), autobind).
    rustix::net::bind(&listener, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&listener, 16)?;
    Ok(TcpListener::from(listener))
}

pub(super) fn connect(listener: &TcpListener) -> Result<TcpStream, Errno> {
    let address = rustix::net::getsockname(listener)?;
    let stream = rustix::net::socket(address.address_family(), SocketType::STREAM, None)?;
    rustix::net::connect(&stream, &address)?;
    Ok(TcpStream::from(stream))
}

/// Two ends of a connection.
pub(super) fn pair() -> Result<(TcpStream, TcpStream), Errno> {
    let listener = listen()?;
    let client = connect(&listener)?;
    let server = rustix::net::accept(&listener)?;
    Ok((client, TcpStream::from(server)))
}

pub(super) fn target(stream: &TcpStream) -> types::Fd {
    types::Fd(stream.as_raw_fd())
}

pub(super) fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<(), Errno> {
    stream.write_all(bytes).map_err(|error| number(&error))
}

pub(super) fn finish(stream: &TcpStream) -> Result<(), Errno> {
    stream
        .shutdown(Shutdown::Write)
        .map_err(|error| number(&error))
}
