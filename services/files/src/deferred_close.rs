//! Deferred close: files whose last `close` may take long are closed on threads of their own.
//!
//! A [`Source`] may lie on a file system that blocks: FUSE sends a request for each `close` and
//! waits for the answer. A [`TempFile`] may be large: closing the last descriptor of a file without
//! a name frees all of its pages. Either may be dropped on a network thread, when its client has
//! gone.
//!
//! Each of the two has a thread, so that a file system that hangs keeps open what was closed after
//! it, but no file that is to be removed. A thread starts with its first file and ends with the
//! process. The queue holds at most as many files as answers and uploads were under way.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use flatpath::descriptors::DescriptorHold;
use flatpath::files::{SentFile, log_broken_off};
use rustix::fs::AtFlags;

use crate::stat::Locality;

/// A thread that ends values, and its queue.
struct Thread<T> {
    name: &'static str,
    /// `None` where the machine has no thread left.
    queue: OnceLock<Option<Sender<T>>>,
}

impl<T: Send + 'static> Thread<T> {
    const fn new(name: &'static str) -> Self {
        let queue = OnceLock::new();
        Self { name, queue }
    }

    /// Ends `value` on the thread, or here where there is none. Never waits otherwise.
    fn run(&self, end: fn(T), value: T) {
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = channel::<T>();
            let thread = std::thread::Builder::new().name(self.name.into());
            let started = thread.spawn(move || receiver.into_iter().for_each(end));
            started.ok().map(|_| sender)
        });
        let unsent = match queue {
            Some(queue) => queue.send(value).err().map(|unsent| unsent.0),
            None => Some(value),
        };
        if let Some(value) = unsent {
            end(value);
        }
    }
}

/// A file that is being written. Dropped, it is closed, and removed where it has a temporary name.
pub(crate) struct TempFile(Option<Unfinished>);

struct Unfinished {
    file: File,
    /// Its directory and its name in there.
    name: Option<(Arc<File>, Vec<u8>)>,
}

impl TempFile {
    /// A file without a name, or one whose name is not to be removed.
    pub(crate) fn unnamed(file: File) -> Self {
        Self(Some(Unfinished { file, name: None }))
    }

    pub(crate) fn named(file: File, directory: Arc<File>, name: Vec<u8>) -> Self {
        let name = Some((directory, name));
        Self(Some(Unfinished { file, name }))
    }

    /// Its temporary name, if it has one.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        let (_, name) = self.0.as_ref()?.name.as_ref()?;
        Some(name)
    }

    /// It has lost its temporary name: nothing is left to be removed.
    pub(crate) fn published(&mut self) {
        if let Some(file) = &mut self.0 {
            file.name = None;
        }
    }
}

impl Deref for TempFile {
    type Target = File;

    fn deref(&self) -> &File {
        let inner = self.0.as_ref();
        &inner.expect("it is taken only when it is dropped").file
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        static THREAD: Thread<Unfinished> = Thread::new("flatpath-remove");
        if let Some(unfinished) = self.0.take() {
            THREAD.run(Unfinished::remove, unfinished);
        }
    }
}

impl Unfinished {
    fn remove(self) {
        if let Some((directory, name)) = &self.name
            && let Err(errno) = rustix::fs::unlinkat(directory, &name[..], AtFlags::empty())
        {
            log::warn!("a temporary file cannot be removed: {errno}");
        }
    }
}

/// A file that is read while an answer is sent.
#[derive(Debug)]
pub(crate) struct Source {
    /// `None` only while it is dropped.
    file: Option<File>,
    /// Given back after the file is closed.
    hold: Option<DescriptorHold>,
    locality: Locality,
    /// Its name in the log.
    name: Box<[u8]>,
}

impl Source {
    /// A file; `path` is where it lies beneath the root. `hold` counts it in the budget of
    /// descriptors until it is closed.
    pub(crate) fn new(
        file: File,
        locality: Locality,
        path: &[u8],
        hold: Option<DescriptorHold>,
    ) -> Self {
        Self {
            file: Some(file),
            hold,
            locality,
            name: path.into(),
        }
    }

    /// One read at a place of the file.
    pub(crate) fn read_at(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.file {
            Some(file) => file.read_at(room, offset),
            None => Ok(0),
        }
    }
}

/// For workers to read it: a network thread sends nothing of it.
impl SentFile for Source {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some(file) => file.as_fd(),
            None => unreachable!("it is there until the drop"),
        }
    }

    fn is_at_hand(&self, _: Range<u64>) -> bool {
        false
    }

    fn read_ahead(&self, _: Range<u64>) {}

    fn broke_off(&self, cause: &io::Error) {
        log_broken_off(&self.name, cause);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && self.locality == Locality::Remote
        {
            static THREAD: Thread<(File, Option<DescriptorHold>)> = Thread::new("flatpath-close");
            THREAD.run(drop, (file, self.hold.take()));
        }
    }
}

#[cfg(test)]
impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::new(file, Locality::Local, b"", None)
    }
}
