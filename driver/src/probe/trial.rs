//! A ring to try things on: submit, wait for the completion with a deadline, compare.
//!
//! A trial ends every operation that could touch memory before it drops that memory.

use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::region::RegionConfig;
use crate::uring::buffers::BufferRing;
use crate::uring::setup;

/// How long a trial waits for what should come at once, in seconds: a busy machine has taken two.
pub(super) const PATIENCE_SECONDS: u64 = 5;

/// Marks the completions of cancels.
const CANCEL: u64 = u64::MAX;

pub(super) struct Bench {
    ring: IoUring,
}

/// The result of a completion, or its error number.
pub(super) fn result(entry: &cqueue::Entry) -> io::Result<u32> {
    u32::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()))
}

/// A trial went through, but not as it should have.
pub(super) fn expect(condition: bool) -> io::Result<()> {
    if condition {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP.into())
    }
}

impl Bench {
    pub(super) fn new() -> io::Result<Bench> {
        let ring = setup::set_up(8, 16);
        let (ring, _) = ring.map_err(|refusal| io::Error::from_raw_os_error(refusal.errno))?;
        Ok(Bench { ring })
    }

    pub(super) fn of(ring: IoUring) -> Bench {
        Bench { ring }
    }

    /// Receive buffers, registered. A trial that fails half-way leaks them: an operation might
    /// still write to them.
    pub(super) fn buffers(
        &self,
        group: u16,
        config: &RegionConfig,
    ) -> io::Result<ManuallyDrop<BufferRing>> {
        let buffers = BufferRing::without_waker(&self.ring, (group, 0), config);
        let buffers = buffers.map_err(|refusal| io::Error::from_raw_os_error(refusal.errno))?;
        Ok(ManuallyDrop::new(buffers))
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// The memory that it points to lives until the operation has ended.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::NOBUFS.into())
    }

    pub(super) fn submit(&self) -> io::Result<()> {
        self.ring.submitter().submit().map(drop)
    }

    /// Submits, waits for the next completion and takes it.
    pub(super) fn next(&mut self) -> io::Result<cqueue::Entry> {
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
            match waited {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// How many completions are there, and were not taken.
    pub(super) fn arrived(&mut self) -> usize {
        self.ring.completion().len()
    }

    /// Waits until an operation has ended; `more` says that it lives on.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        while cqueue::more(self.next()?.flags()) {}
        Ok(())
    }

    /// Cancels the operation with this user data and waits for its end.
    pub(super) fn cancel(&mut self, user_data: u64) -> io::Result<()> {
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
pub(super) fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let reachable = listener.and_then(|listener| connect(&listener).map(drop));
    match reachable {
        Ok(()) => TcpListener::bind("127.0.0.1:0"),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NETUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL) => listen_locally(),
            _ => Err(error),
        },
    }
}

/// The same without a network: the type stands for a stream socket of any kind.
fn listen_locally() -> io::Result<TcpListener> {
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    // Without a name the kernel chooses one (unix(7), autobind).
    rustix::net::bind(&listener, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&listener, 16)?;
    Ok(TcpListener::from(listener))
}

pub(super) fn connect(listener: &TcpListener) -> io::Result<TcpStream> {
    let address = rustix::net::getsockname(listener)?;
    let stream = rustix::net::socket(address.address_family(), SocketType::STREAM, None)?;
    rustix::net::connect(&stream, &address)?;
    Ok(TcpStream::from(stream))
}

/// Two ends of a connection.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = listen()?;
    let client = connect(&listener)?;
    let server = rustix::net::accept(&listener)?;
    Ok((client, TcpStream::from(server)))
}

pub(super) fn target(stream: &TcpStream) -> types::Fd {
    types::Fd(stream.as_raw_fd())
}

pub(super) fn write(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}

pub(super) fn finish(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)
}
