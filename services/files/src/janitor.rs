//! Takes away what requests leave: files that nobody will name, on a thread of its own.
//!
//! Closing the last descriptor of a large file without a name frees all of its pages, which takes
//! long enough that the network thread must not do it. The thread starts with the first such file,
//! and ends with the process.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use rustix::fs::AtFlags;

/// A file that is not wanted.
pub(crate) struct Litter {
    /// To be closed.
    pub(crate) file: File,
    /// To be unlinked: directory and name.
    pub(crate) name: Option<(OwnedFd, Vec<u8>)>,
}

impl Litter {
    fn remove(self) {
        if let Some((directory, name)) = &self.name {
            let gone = rustix::fs::unlinkat(directory, &name[..], AtFlags::empty());
            if let Err(errno) = gone {
                log::warn!("a temporary file stays behind: {errno}");
            }
        }
        drop(self.file);
    }
}

/// Has it removed, soon. Never waits for the disk.
pub(crate) fn clear_away(litter: Litter) {
    static JANITOR: OnceLock<Option<Sender<Litter>>> = OnceLock::new();
    let janitor = JANITOR.get_or_init(|| {
        let (sender, receiver) = channel::<Litter>();
        let thread = std::thread::Builder::new().name("flatpath-janitor".into());
        let started = thread.spawn(move || receiver.into_iter().for_each(Litter::remove));
        started.ok().map(|_| sender)
    });
    match janitor {
        Some(janitor) => {
            if let Err(unsent) = janitor.send(litter) {
                unsent.0.remove();
            }
        }
        None => litter.remove(),
    }
}
