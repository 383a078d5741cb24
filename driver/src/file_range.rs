//! A range of a file on its way to a socket: the kernel sends from the pages of its cache, and this
//! process copies nothing and holds nothing but the open file.
//!
//! The bytes that are sent are those in the pages when the network takes them: a change of the file
//! until then may be seen, as with every use of `sendfile`: of one that is cut short, zeros in the
//! pages that it loses in part. The length is fixed before: a file that ends early fails the send,
//! which can only end the connection, and nothing is made up.
//!
//! A socket that is full keeps nothing waiting but the range: no pipe, no buffer, no thread.
//!
//! Whether a call would wait for a disk is for the file to say ([`SentFile::is_at_hand`]), before
//! its range is given to a driver: the driver does not ask again.
//!
//! Cost: 32 bytes for a range, and one system call for what a socket takes at a time (three on a
//! socket that blocks). `sendfile` knows no MSG_NOSIGNAL: as for pipes, the process has to ignore
//! SIGPIPE, as Rust programs do by default.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::sendfile;
use rustix::io::Errno;

use crate::pipe::without_waiting;
use crate::socket::Mode;

/// A file of which ranges are sent. All that send it share it; the thread that drops the last
/// reference runs its `Drop`, most often a network thread: closing a file may wait, so it is to be
/// left to others there.
pub trait SentFile: Send + Sync {
    /// The open file. Its position is never used.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether these bytes can be sent now without waiting for a disk or for another machine. A few
    /// system calls, none of which waits.
    fn is_at_hand(&self, bytes: Range<u64>) -> bool;

    /// Fills `room` with the bytes from `offset` on, without waiting, as
    /// [`is_at_hand`](SentFile::is_at_hand). False: not all of them, and nothing is to be made of
    /// the room.
    fn copy_at_hand(&self, _room: &mut [u8], _offset: u64) -> bool {
        false
    }

    /// Has these bytes at hand, as far as they are there. For threads that may block. A failure is
    /// left to the send.
    fn read_ahead(&self, bytes: Range<u64>);

    /// A send of it has failed half way, and its connection ends: for the log. Does not block.
    fn broke_off(&self, cause: &io::Error);
}

/// See the module.
#[derive(Clone)]
pub struct FileRange {
    file: Arc<dyn SentFile>,
    /// To `end` at most.
    start: u64,
    /// No more than a signed number holds, as in the kernel.
    end: u64,
}

impl fmt::Debug for FileRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FileRange({}..{})", self.start, self.end)
    }
}

impl FileRange {
    /// These bytes of a file. Of a range that ends before it begins, nothing.
    ///
    /// # Panics
    /// When it ends beyond what any file can have (2^63 - 1).
    pub fn new(file: Arc<dyn SentFile>, bytes: Range<u64>) -> FileRange {
        assert!(i64::try_from(bytes.end).is_ok(), "no file is so long");
        FileRange {
            file,
            start: bytes.start.min(bytes.end),
            end: bytes.end,
        }
    }

    /// Bytes left to send.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Which bytes of the file they are.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn SentFile> {
        &self.file
    }

    /// The first bytes of it, as many or all.
    #[must_use]
    pub fn front(&self, bytes_max: u64) -> FileRange {
        FileRange {
            file: Arc::clone(&self.file),
            start: self.start,
            end: self.end.min(self.start.saturating_add(bytes_max)),
        }
    }

    /// Drops `count` bytes from the front, of which there are as many.
    pub fn advance(&mut self, count: u64) {
        debug_assert!(count <= self.bytes(), "more bytes than there were");
        self.start += count;
    }

    /// Reads its first bytes and takes them away: as many as there is room for, or fewer, and none
    /// when nothing is left. May block.
    ///
    /// # Errors
    /// What pread(2) says; `UnexpectedEof`: the file has become shorter.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        let wanted = room.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = loop {
            match rustix::io::pread(self.file.descriptor(), &mut room[..wanted], self.start) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        match read {
            Ok(0) => Err(became_shorter()),
            Ok(count) => {
                self.start += count as u64;
                Ok(count)
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

fn became_shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter")
}

/// What a failed call says of the socket; everything else it says of the file.
fn is_of_socket(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PIPE
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::TIMEDOUT
            | Errno::NOTCONN
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NOBUFS
            | Errno::PERM
    )
}

/// Moves the front of a range to a socket with one call that does not block for the socket; returns
/// how many bytes went. `mode` is the mode the socket is in. A failure of the file is reported
/// to it, and fails the send with EIO.
pub(crate) fn move_range(
    socket: BorrowedFd<'_>,
    range: &FileRange,
    mode: Mode,
) -> Result<usize, Errno> {
    let mut offset = range.start;
    let count = usize::try_from(range.bytes()).unwrap_or(usize::MAX);
    let moved = without_waiting(socket, mode, || {
        sendfile(socket, range.file.descriptor(), Some(&mut offset), count)
    });
    match moved {
        Ok(0) => Err(failed(range, &became_shorter())),
        Err(errno) if !matches!(errno, Errno::AGAIN | Errno::INTR) && !is_of_socket(errno) => {
            Err(failed(range, &errno.into()))
        }
        moved => moved,
    }
}

/// Tells the file that a send of it has failed; how it has.
pub(crate) fn failed(range: &FileRange, cause: &io::Error) -> Errno {
    range.file.broke_off(cause);
    Errno::IO
}
