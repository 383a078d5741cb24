//! Closing files whose file system may block: on a thread of its own.
//!
//! FUSE sends a request for each `close` and waits for the answer, and a body that is read while it
//! is sent may be dropped on a network thread, when its client has gone. So the file of such a body
//! is closed where nothing else waits, unless it lies on the mount of the served directory and that
//! is local. The thread starts with the first such file and ends with the process. A file system
//! that hangs keeps its descriptors open, and those closed after it; there are at most as many as
//! answers being sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use flatpath::DescriptorHold;

use crate::look::Locality;

/// A file that is read while an answer is sent.
#[derive(Debug)]
pub(crate) struct Source {
    /// `None` only while it is dropped.
    file: Option<File>,
    /// Given back behind the file.
    hold: Option<DescriptorHold>,
    locality: Locality,
    /// What the log calls it.
    name: Box<[u8]>,
}

impl Source {
    /// A file; `path` is where it lies beneath the root.
    pub(crate) fn new(file: File, locality: Locality, path: &[u8]) -> Self {
        Self {
            file: Some(file),
            hold: None,
            locality,
            name: path.into(),
        }
    }

    /// The same file, counted in the budget of descriptors until it is closed.
    pub(crate) fn held(mut self, hold: DescriptorHold) -> Self {
        self.hold = Some(hold);
        self
    }

    /// Tells the log why an answer is broken off, which its client cannot be told any more.
    pub(crate) fn complain(&self, cause: &io::Error) {
        let name = String::from_utf8_lossy(&self.name);
        log::warn!("/{name}: the file cannot be read, the answer is broken off: {cause}");
    }

    /// One read at a place of the file.
    pub(crate) fn read_at(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.file {
            Some(file) => file.read_at(room, offset),
            None => Ok(0),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && self.locality == Locality::Remote
        {
            close_elsewhere((file, self.hold.take()));
        }
    }
}

/// A file of a local file system.
#[cfg(test)]
impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::new(file, Locality::Local, b"")
    }
}

/// A file, and what it holds of the budget until it is closed.
type Held = (File, Option<DescriptorHold>);

fn close_elsewhere(file: Held) {
    static CLOSER: OnceLock<Option<Sender<Held>>> = OnceLock::new();
    let closer = CLOSER.get_or_init(|| {
        let (sender, receiver) = channel::<Held>();
        let thread = std::thread::Builder::new().name("flatpath-closer".into());
        let started = thread.spawn(move || receiver.into_iter().for_each(drop));
        started.ok().map(|_| sender)
    });
    if let Some(closer) = closer {
        // Without the thread it is closed here.
        let _ = closer.send(file);
    }
}
