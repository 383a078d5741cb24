//! Tells when the file of a Unix socket is not this server's any more: removed, as programs do that
//! clean up, or replaced by another process. No client gets to the server then, and nothing else
//! would say so.
//!
//! One line for each change of what is there. The socket is not bound anew: who removed the file
//! may have meant it, and another process that listens there has its clients. What is another's is
//! not removed at the end, either ([`SocketFile::remove`]).
//!
//! The housekeeper asks for what the kernel has cached, which never waits. Where that is not the
//! file of this server, there is a thread for as long as it takes to ask the file system.
//!
//! Cost: three system calls a second for each socket.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use flatpath_structures::lock::Lock;
use flatpath_structures::panics::contain;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, lstat, openat2};
use rustix::io::Errno;

use crate::housekeeper::{Next, Task};
use crate::server::sockets::SocketFile;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What is at the path of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Ours,
    Nothing,
    Anothers,
}

/// Looks at the file for as long as it is this server's. Without a thread for that the log has no
/// line.
pub(crate) fn begin(file: &Arc<SocketFile>) {
    let watched = Arc::new(Watched {
        file: Arc::downgrade(file),
        last: Lock::new(Found::Ours),
        has_thread: AtomicBool::new(false),
    });
    let task = Task::begin("socket files", move |_| match watched.file.upgrade() {
        Some(file) => watched.next(&file),
        None => Next::Ended,
    });
    match task {
        Ok(task) => file.is_watched_by(task),
        Err(cause) => log::debug!("the file of a socket is not watched: {cause}"),
    }
}

struct Watched {
    file: Weak<SocketFile>,
    last: Lock<Found>,
    has_thread: AtomicBool,
}

impl Watched {
    fn next(self: &Arc<Self>, file: &SocketFile) -> Next {
        let is_known = *self.last.lock() == Found::Ours && is_ours_at_hand(file);
        if !file.is_done() && !is_known {
            self.look_on_a_thread();
        }
        Next::After(LOOK_INTERVAL)
    }

    fn look_on_a_thread(self: &Arc<Self>) {
        // ORDER: Relaxed: the flag alone counts; what was found has its own lock.
        if self.has_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        let watched = Arc::clone(self);
        let thread = std::thread::Builder::new().name("flatpath-socket".into());
        let started = thread.spawn(move || {
            let _ = contain(|| watched.look());
            // ORDER: Relaxed: see above.
            watched.has_thread.store(false, Ordering::Relaxed);
        });
        if started.is_err() {
            // ORDER: Relaxed: tried again with the next look.
            self.has_thread.store(false, Ordering::Relaxed);
        }
    }

    fn look(&self) {
        let Some(file) = self.file.upgrade() else {
            return;
        };
        let Some(found) = found_of(&file, lstat(file.path())) else {
            return;
        };
        let mut last = self.last.lock();
        if *last != found && !file.is_done() {
            tell(&file, found);
            *last = found;
        }
    }
}

/// `None`: the file system does not say.
fn found_of(file: &SocketFile, stat: rustix::io::Result<Stat>) -> Option<Found> {
    match stat {
        Ok(stat) if file.is_same(&stat) => Some(Found::Ours),
        Ok(_) => Some(Found::Anothers),
        Err(Errno::NOENT | Errno::NOTDIR) => Some(Found::Nothing),
        Err(_) => None,
    }
}

fn is_ours_at_hand(file: &SocketFile) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat2(CWD, file.path(), flags, Mode::empty(), ResolveFlags::CACHED);
    let stat = opened.and_then(|opened| fstat(opened.as_fd()));
    stat.is_ok_and(|stat| file.is_same(&stat))
}

fn tell(file: &SocketFile, found: Found) {
    let path = file.path().display();
    match found {
        Found::Ours => log::info!("unix:{path} is this server's again"),
        Found::Nothing => log::error!(
            "unix:{path} was removed: no client can connect there until the server is started again"
        ),
        Found::Anothers => log::error!(
            "unix:{path} is not this server's any more: another process has put its own file \
             there, which stays when this server ends"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_at_a_path_is_ours_anothers_or_nothing() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("socket");
        let _ours = UnixListener::bind(&path)?;
        let file = SocketFile::at(&path)?;
        let found = || found_of(&file, lstat(&path));
        assert_eq!(found(), Some(Found::Ours));
        assert_eq!(found_of(&file, Err(Errno::ACCESS)), None);
        fs::rename(&path, directory.path().join("moved"))?;
        assert_eq!(
            (found(), is_ours_at_hand(&file)),
            (Some(Found::Nothing), false)
        );
        let _other = UnixListener::bind(&path)?;
        assert_eq!(
            (found(), is_ours_at_hand(&file)),
            (Some(Found::Anothers), false)
        );
        drop(file);
        assert!(path.exists(), "what is another's stays");
        Ok(())
    }
}
