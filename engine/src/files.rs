//! Files whose content a connection sends: ranges of them are queued as output
//! ([`Io::write_file`](crate::Io::write_file)), and the kernel sends from its cache.
//!
//! An [`OpenFile`] is shared by all that send it, and closed by the last. Nothing of it waits on a
//! network thread: whether a range is at hand is for its [`FileSystem`] to say, workers read what
//! is not, and they close what may take long to close. So a file is to be on a file system that
//! never hangs ([`FileSystem::is_local`]): what others hold back would have to be read by workers
//! that are counted ([`blocking`](crate::blocking)).
//!
//! What was at hand is believed to be for ten milliseconds (`BELIEVED`), by each window of a file:
//! to ask costs three system calls, a twentieth of what 100 KiB cost, and a file that many ask for
//! is sent many times in that time. What the kernel drops meanwhile is waited for in the send, as
//! it is between any answer and its send.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use flatpath_structures::lock::Lock;
use rustix::fs::sendfile;
use rustix::io::Errno;

use crate::admission::descriptors::DescriptorHold;
use crate::connection::output::FILE_WINDOW_BYTES;
use crate::protocol::discard::{discard, on_network_thread};
use crate::workers::prompt::FileSystem;

pub use flatpath_driver::{FileRange, SentFile};
/// What a handler hands over.
pub use std::fs::File;

/// Bytes that are read at a time where there is no `/dev/null`.
const READ_BYTES: usize = 64 * 1024;

/// How long what was at hand is not asked for again.
const BELIEVED: Duration = Duration::from_millis(10);

/// Answers that are kept of a file, one for each window; of a longer file, windows share them.
const ANSWERS: usize = 16;

/// A file that is open for as long as something of it is sent.
pub struct OpenFile {
    /// `None` only while it is dropped.
    file: Option<File>,
    /// Given back after the file is closed.
    hold: Option<DescriptorHold>,
    system: Arc<FileSystem>,
    seen: Lock<[Seen; ANSWERS]>,
    /// In the log.
    name: Box<[u8]>,
}

/// What was at hand when it was asked for last.
#[derive(Default)]
struct Seen {
    bytes: Range<u64>,
    /// `None`: nothing was.
    until: Option<Instant>,
}

impl Seen {
    fn now(bytes: Range<u64>, now: Instant) -> Seen {
        Seen {
            bytes,
            until: now.checked_add(BELIEVED),
        }
    }

    fn covers(&self, bytes: &Range<u64>, now: Instant) -> bool {
        let is_within = self.bytes.start <= bytes.start && bytes.end <= self.bytes.end;
        is_within && self.until.is_some_and(|until| now < until)
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        write!(formatter, "OpenFile({name})")
    }
}

impl OpenFile {
    /// A regular file on this file system; the log calls it by this name. Of one that is not local
    /// no range is for a network thread. `hold` counts its descriptor until it is closed.
    pub fn new(
        file: File,
        system: Arc<FileSystem>,
        name: impl Into<Box<[u8]>>,
        hold: Option<DescriptorHold>,
    ) -> OpenFile {
        OpenFile {
            file: Some(file),
            hold,
            system,
            seen: Lock::default(),
            name: name.into(),
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        match &self.file {
            Some(file) => file,
            None => unreachable!("it is there until the drop"),
        }
    }
}

impl SentFile for OpenFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }

    fn is_at_hand(&self, bytes: Range<u64>) -> bool {
        let now = Instant::now();
        let nth = (bytes.start / FILE_WINDOW_BYTES) as usize % ANSWERS;
        if self.seen.lock()[nth].covers(&bytes, now) {
            return true;
        }
        let is_there = self.system.has_at_hand(self.descriptor(), bytes.clone());
        if is_there {
            self.seen.lock()[nth] = Seen::now(bytes, now);
        }
        is_there
    }

    fn copy_at_hand(&self, room: &mut [u8], offset: u64) -> bool {
        let length = room.len();
        let room = &mut [IoSliceMut::new(room)];
        let read = self.system.read_cached(self.descriptor(), room, offset);
        matches!(read, Ok(Some(count)) if count == length)
    }

    /// Without advice to the kernel (`WILLNEED`): for that it takes single pages, and for what is
    /// read large ones, which are read and sent for a part of the cost.
    fn read_ahead(&self, bytes: Range<u64>) {
        read_to_nowhere(self.file(), bytes);
    }

    fn broke_off(&self, cause: &io::Error) {
        log_broken_off(&self.name, cause);
    }
}

/// Logs why an answer is broken off: its client can get no reason any more.
pub fn log_broken_off(name: &[u8], cause: &io::Error) {
    let name = String::from_utf8_lossy(name);
    log::warn!("/{name}: the file cannot be read, the answer is broken off: {cause}");
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let held = (self.file.take(), self.hold.take());
        // The last to close a file that has no name any more frees its pages, which takes as long
        // as it has pages.
        let is_named = |file: &File| rustix::fs::fstat(file).is_ok_and(|found| found.st_nlink > 0);
        if on_network_thread() && !held.0.as_ref().is_some_and(is_named) {
            discard(held);
        }
    }
}

/// Waits until these bytes are in the kernel's cache, as far as the file has them, without a copy.
/// What fails is left to the send.
fn read_to_nowhere(file: &File, bytes: Range<u64>) {
    static NOWHERE: OnceLock<Option<File>> = OnceLock::new();
    let nowhere = NOWHERE.get_or_init(|| File::options().write(true).open("/dev/null").ok());
    let mut offset = bytes.start;
    if let Some(nowhere) = nowhere {
        while offset < bytes.end {
            let left = usize::try_from(bytes.end - offset).unwrap_or(usize::MAX);
            match sendfile(nowhere, file, Some(&mut offset), left) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }
    let mut room = vec![0; READ_BYTES];
    while offset < bytes.end {
        match file.read_at(&mut room, offset) {
            Ok(0) => return,
            Ok(count) => offset += count as u64,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_at_hand_is_believed_for_a_while_and_nothing_beside_it() {
        let now = Instant::now();
        let seen = Seen::now(100..200, now);
        for bytes in [100..200, 100..101, 199..200] {
            assert!(seen.covers(&bytes, now), "{bytes:?}");
            assert!(!seen.covers(&bytes, now + BELIEVED), "{bytes:?}");
        }
        for bytes in [99..200, 100..201, 0..50, 200..201] {
            assert!(!seen.covers(&bytes, now), "{bytes:?}");
        }
        assert!(!Seen::default().covers(&(0..0), now), "nothing was asked");
    }
}
