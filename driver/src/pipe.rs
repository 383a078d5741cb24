//! Pipes: pages of a file, or received packets, on their way to a socket by reference.
//!
//! A worker fills a pipe from a file: the kernel puts references to pages of its cache in it and
//! copies nothing. The driver moves them on to the socket, which sends from those same pages. So
//! this process does not touch data that is served unchanged.
//!
//! The bytes that are sent are those in the pages when the network takes them: a change of the file
//! until then may be seen. The kernel's own NFS server and `sendfile` do the same. The length is
//! fixed when the pipe is filled, whatever happens to the file afterwards.
//!
//! Bytes that a stream has received can be moved to another one in the same way (`splice_from`):
//! the packets' own memory moves, and neither this process nor the kernel copies it. Or to a file
//! ([`Piped::write_to`]): then the kernel copies once, from the packets to the pages of its cache.
//!
//! | may run beside    | `splice_file`, `splice_from` | drop of a `Piped` |
//! |-------------------|------------------------------|-------------------|
//! | both              | yes                          | yes               |
//!
//! Invariants
//! - L1: at most `pipes_max` pipes are open, in use and idle.
//! - L2: an idle pipe is empty: one that is dropped with something in it is closed.
//! - L4: where pipes are counted ([`Pipes::count`]), each open one has leave for its descriptors,
//!   which is dropped after they are closed.
//! - L3: no call on a pipe blocks, and it is filled no further than its room, which is counted in
//!   pages.
//!
//! Cost: a pipe is two descriptors and, in the kernel, 40 bytes per page of its capacity. Filling
//! costs one system call or two, and making the pipe three more, once.
//!
//! `splice` knows no MSG_NOSIGNAL: the process has to ignore SIGPIPE, as Rust programs do by
//! default.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use flatpath_structures::lock::{Guard, Lock};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::lent::Lent;
use crate::socket::Mode;

/// The capacities that are asked for, in bytes: for a mebibyte that begins in the middle of a page;
/// then what every process may have without a privilege.
const CAPACITIES: [usize; 2] = [2 << 20, 1 << 20];

/// The most that is copied at a time where a file cannot be spliced to, in bytes.
const COPY_BYTES_MAX: usize = 64 * 1024;

/// Pipes to be filled, as many as may be open at once. Clones share them.
#[derive(Clone, Debug)]
pub struct Pipes(Arc<PipePool>);

/// Leave for two descriptors, until it is dropped.
pub type PipeLeave = Box<dyn Any + Send>;

struct PipePool {
    pipes_max: usize,
    state: Lock<State>,
    /// Gives leave for another pipe, if pipes are counted.
    count: OnceLock<Box<dyn Fn() -> Option<PipeLeave> + Send + Sync>>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Pipe>,
    open: usize,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    pages: usize,
    /// Dropped after the descriptors (L4).
    _leave: Option<PipeLeave>,
}

impl fmt::Debug for PipePool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pool = formatter.debug_struct("PipePool");
        pool.field("pipes_max", &self.pipes_max);
        pool.field("state", &self.state).finish_non_exhaustive()
    }
}

impl PipePool {
    fn lock(&self) -> Guard<'_, State> {
        // Nothing that could panic runs under the lock.
        self.state.lock()
    }
}

impl Pipe {
    fn open(leave: Option<PipeLeave>) -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let mut result = Err(Errno::INVAL);
        for bytes in CAPACITIES {
            result = fcntl_setpipe_size(&write, bytes);
            if result.is_ok() {
                break;
            }
        }
        // The kernel rounds up.
        let pages = result? / rustix::param::page_size();
        Ok(Pipe {
            read,
            write,
            pages,
            _leave: leave,
        })
    }
}

impl Pipes {
    /// No pipe yet; later at most `pipes_max`, which are two descriptors each.
    pub fn new(pipes_max: usize) -> Pipes {
        Pipes(Arc::new(PipePool {
            pipes_max,
            state: Lock::default(),
            count: OnceLock::new(),
        }))
    }

    /// Asks `leave` before each pipe is opened from now on; without leave there is no
    /// pipe. Only the first such call has an effect.
    pub fn count(&self, leave: impl Fn() -> Option<PipeLeave> + Send + Sync + 'static) {
        let _ = self.0.count.set(Box::new(leave));
    }

    /// Closes the idle pipes, and returns their number.
    pub fn close_idle(&self) -> usize {
        let mut state = self.0.lock();
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        idle.len()
    }

    /// Pipes open now, in use and idle.
    pub fn open(&self) -> usize {
        self.0.lock().open
    }

    /// References to up to `bytes` of `file` from `offset` on; fewer when the file ends before. May
    /// block for the disk. Room for `pads` calls of [`Piped::pad`] is kept.
    ///
    /// `None`: no pipe is free, they lie in more pages than a pipe takes, or the file system
    /// cannot do it. Read the file then.
    ///
    /// # Errors
    /// The error that reading the file would give.
    pub fn splice_file(
        &self,
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        pads: usize,
    ) -> io::Result<Option<Piped>> {
        let page = rustix::param::page_size();
        let Some(pipe) = self.take() else {
            return Ok(None);
        };
        let mut piped = Piped {
            pipe: Some(pipe),
            pool: Arc::clone(&self.0),
            bytes: 0,
            lent: None,
        };
        let into_page = (offset % page as u64) as usize;
        // No more pages than the pipe has (L3).
        let pages = into_page.saturating_add(bytes).div_ceil(page) + pads;
        if pages > piped.pipe().pages {
            return Ok(None);
        }
        while piped.bytes < bytes {
            let mut at = offset + piped.bytes as u64;
            let (to, left) = (piped.pipe().write.as_fd(), bytes - piped.bytes);
            match splice(&file, Some(&mut at), to, None, left, SpliceFlags::NONBLOCK) {
                Ok(0) => break,
                Ok(count) => piped.bytes += count,
                Err(Errno::INTR) => {}
                Err(_) if piped.bytes > 0 => break,
                Err(Errno::INVAL | Errno::NOSYS | Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Some(piped))
    }

    /// Moves what a socket has received into a pipe: no less than the one bound, no more than the
    /// other. Does not wait. `mode` is the mode the socket is in.
    ///
    /// `None`: less is there, or no pipe is free, or it cannot be moved. A receive reports
    /// the end of the stream and its failure.
    pub(crate) fn splice_from(
        &self,
        socket: BorrowedFd<'_>,
        mode: Mode,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped> {
        let there = usize::try_from(ioctl_fionread(socket).ok()?).ok()?;
        if there < *bytes.start() {
            return None;
        }
        let mut piped = Piped {
            pipe: Some(self.take()?),
            pool: Arc::clone(&self.0),
            bytes: 0,
            lent: None,
        };
        let (to, count) = (piped.pipe().write.as_fd(), there.min(*bytes.end()));
        let spliced = without_waiting(socket, mode, || {
            splice(socket, None, to, None, count, SpliceFlags::NONBLOCK)
        });
        piped.bytes = spliced.ok().filter(|&count| count > 0)?;
        Some(piped)
    }

    /// A pipe with a copy of some bytes, a mebibyte at most, which are asked for once there is a
    /// pipe.
    #[cfg(feature = "simulation")]
    pub(crate) fn fill(&self, bytes: impl FnOnce() -> Option<Vec<u8>>) -> Option<Piped> {
        let mut piped = Piped {
            pipe: Some(self.take()?),
            pool: Arc::clone(&self.0),
            bytes: 0,
            lent: None,
        };
        let bytes = bytes()?;
        piped.bytes = rustix::io::write(&piped.pipe().write, &bytes).ok()?;
        debug_assert_eq!(piped.bytes, bytes.len(), "an empty pipe takes a mebibyte");
        Some(piped)
    }

    fn take(&self) -> Option<Pipe> {
        let mut state = self.0.lock();
        if let Some(pipe) = state.idle.pop() {
            return Some(pipe);
        }
        if state.open >= self.0.pipes_max {
            return None;
        }
        state.open += 1;
        drop(state);
        let leave = self.0.count.get().map(|count| count());
        let opened = match leave {
            Some(None) => Err(Errno::MFILE.into()),
            leave => Pipe::open(leave.flatten()),
        };
        if let Err(cause) = &opened {
            log::debug!("no pipe: {cause}");
            self.0.lock().open -= 1;
        }
        opened.ok()
    }
}

/// Bytes that lie in a pipe. Dropping it gives the pipe back, or closes it with what it holds.
#[derive(Debug)]
pub struct Piped {
    /// There until the drop.
    pipe: Option<Pipe>,
    pool: Arc<PipePool>,
    bytes: usize,
    /// Where more comes from.
    lent: Option<Lent>,
}

impl Piped {
    fn pipe(&self) -> &Pipe {
        match &self.pipe {
            Some(pipe) => pipe,
            None => unreachable!("it is there until the drop"),
        }
    }

    /// Bytes in the pipe.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True when nothing is in the pipe.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Lends it the stream that its bytes came from.
    pub fn lend(&mut self, lent: Lent) {
        self.lent = Some(lent);
    }

    /// Fills it anew, once it is empty, from the stream that was lent with it: no less than the one
    /// bound, no more than the other. Does not wait. False: it is not empty, less has come, or
    /// nothing is lent.
    pub fn refill(&mut self, bytes: RangeInclusive<usize>) -> bool {
        let Some(lent) = self.lent.as_ref().filter(|_| self.bytes == 0) else {
            return false;
        };
        self.bytes = lent.splice_into(self.pipe().write.as_fd(), bytes);
        self.bytes > 0
    }

    /// Adds a few bytes, less than a page.
    ///
    /// # Errors
    /// `EAGAIN` when there is no room; see [`Pipes::splice_file`].
    pub fn pad(&mut self, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(bytes.len() < 4096, "one page is kept for it (L3)");
        if !bytes.is_empty() {
            // Up to a page is written whole or not at all.
            self.bytes += rustix::io::write(&self.pipe().write, bytes)?;
        }
        Ok(())
    }

    /// Writes everything to a file, at its position, which moves on: the kernel takes it from where
    /// it was received. Where the file system cannot do that, it is copied through this process.
    /// May block. One call where the file takes all.
    ///
    /// # Errors
    /// That of write(2); what was written until then is gone from the pipe.
    pub fn write_to(&mut self, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd();
        while self.bytes > 0 {
            let (pipe, bytes) = (&self.pipe().read, self.bytes);
            match splice(pipe, None, file, None, bytes, SpliceFlags::empty()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.bytes -= count,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL | Errno::NOSYS) => return self.copy_to(file),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// The same where the file cannot be spliced to.
    fn copy_to(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut room = vec![0; self.bytes.min(COPY_BYTES_MAX)];
        while self.bytes > 0 {
            let count = match rustix::io::read(&self.pipe().read, &mut room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            self.bytes -= count;
            let mut left = &room[..count];
            while !left.is_empty() {
                match rustix::io::write(file, left) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => left = &left[written..],
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }

    /// The bytes, copied out of the pipe: for where they cannot be moved on by reference.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn into_bytes(mut self) -> io::Result<bytes::Bytes> {
        let mut all = vec![0; self.bytes];
        let mut filled = 0;
        while filled < all.len() {
            let count = match rustix::io::read(&self.pipe().read, &mut all[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            filled += count;
            self.bytes -= count;
        }
        Ok(all.into())
    }

    /// `count` bytes have left the pipe.
    pub(crate) fn moved(&mut self, count: usize) {
        self.bytes -= count;
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let Some(pipe) = self.pipe.take() else {
            return;
        };
        if self.bytes == 0 {
            self.pool.lock().idle.push(pipe);
        } else {
            // Something may be in it, so it is closed (L2).
            drop(pipe);
            self.pool.lock().open -= 1;
        }
    }
}

/// Moves what is in a pipe to a socket with one call that does not block; returns how many bytes
/// went. `mode` is the mode the socket is in. `more` follows at once.
pub(crate) fn move_pipe(
    socket: BorrowedFd<'_>,
    piped: &Piped,
    mode: Mode,
    more: bool,
) -> Result<usize, Errno> {
    let flags = if more {
        SpliceFlags::MORE | SpliceFlags::NONBLOCK
    } else {
        SpliceFlags::NONBLOCK
    };
    let moved = without_waiting(socket, mode, || {
        splice(&piped.pipe().read, None, socket, None, piped.len(), flags)
    });
    match moved {
        // The pipe is not empty, so this is not its end.
        Ok(0) => Err(Errno::IO),
        moved => moved,
    }
}

/// Makes a call on a socket that is not to wait for it: whether a splice or a sendfile does is a
/// property of the socket, not of the call. `mode` is the mode the socket is in, and stays in.
pub(crate) fn without_waiting(
    socket: BorrowedFd<'_>,
    mode: Mode,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    if mode == Mode::NonBlocking {
        return call();
    }
    ioctl_fionbio(socket, true)?;
    let result = call();
    // The bytes have moved, whatever this returns; it cannot fail for an open socket.
    if let Err(cause) = ioctl_fionbio(socket, false) {
        log::warn!("the mode of a socket: {cause}");
    }
    result
}
