//! The socket at the path of a handover, where the next process connects.
//!
//! Its file is a name that others can remove: cleaners of `/tmp` and `/run`, a deploy that makes
//! the directory anew. So the process that waits looks once a second whether its file is there, and
//! listens at the path anew if it is not. A directory that is no longer safe is not used.

use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::SocketType;

use crate::server::binding::{bind_unix, bind_unix_at_once};
use crate::server::sockets::{FileIdentity, SocketFile};

const KIND: SocketType = SocketType::SEQPACKET;
/// For its owner alone.
const MODE: u32 = 0o600;

/// Files of sockets that are named, each with three numbers of up to twenty digits.
const FILES_MAX: usize = 60;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The socket that the server before this one waits at.
pub(super) struct PassedPlace {
    listener: OwnedFd,
    /// The file that it is known by; `None` where that server has not said it.
    identity: Option<FileIdentity>,
}

impl PassedPlace {
    /// From the words behind `path`; and the files of sockets, with their numbers.
    pub(super) fn new(listener: OwnedFd, words: &str) -> (PassedPlace, Vec<(u32, FileIdentity)>) {
        let mut numbers = words.split(' ').map_while(|word| word.parse::<u64>().ok());
        let identity = numbers.next().zip(numbers.next());
        let files = iter::from_fn(|| {
            let number = u32::try_from(numbers.next()?).ok()?;
            Some((number, numbers.next().zip(numbers.next())?))
        });
        let files = files.collect();
        (PassedPlace { listener, identity }, files)
    }

    /// The words behind `path`, with as many of the files of sockets as a line has room for.
    pub(super) fn words(
        place: &Place,
        files: impl IntoIterator<Item = (u32, FileIdentity)>,
    ) -> String {
        let (device, inode) = place.file.identity();
        let mut words = format!("{device} {inode}");
        for (number, (device, inode)) in files.into_iter().take(FILES_MAX) {
            words += &format!(" {number} {device} {inode}");
        }
        words
    }

    /// Its file, if that is at the path.
    fn file_at(&self, path: &Path) -> Option<SocketFile> {
        let file = SocketFile::at(path).ok()?;
        // The server before this one has it until it has handed over.
        let is_its = self.identity.is_none_or(|its| its == file.identity());
        file.keep();
        is_its.then_some(file)
    }
}

/// The socket of the process that waits; see the module.
pub(super) struct Place {
    path: PathBuf,
    pub(super) listener: OwnedFd,
    pub(super) file: SocketFile,
    /// When to look at the file next.
    pub(super) look_at: Instant,
    /// Why it could not be made again: logged once.
    trouble: Option<io::ErrorKind>,
}

impl Place {
    /// Takes the socket that was passed if processes that come find it, and makes one otherwise.
    ///
    /// # Errors
    /// The directory can be written to by another user, or the path cannot be bound.
    pub(super) fn ready(path: &Path, passed: Option<PassedPlace>) -> io::Result<Place> {
        crate::trusted::check_directory_of(path)?;
        let found = passed.and_then(|it| Some((it.file_at(path)?, it.listener)));
        let (listener, file) = match found {
            Some((file, listener)) => (listener, file),
            None => bind_unix(path, KIND, MODE)?,
        };
        // A process that connects and goes before it is accepted stops nothing. The flag is the
        // socket's, so it comes with one that was handed over too.
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Place {
            path: path.to_owned(),
            listener,
            file,
            look_at: Instant::now() + LOOK,
            trouble: None,
        })
    }

    /// Looks whether the file is there, if that is due, and makes it again if it is not.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        if self.file.is_there() {
            self.trouble = None;
            return;
        }
        match self.renew() {
            Ok(()) => log::warn!(
                "{}: the socket for a handover was removed; it is there again",
                self.path.display()
            ),
            Err(cause) if self.trouble != Some(cause.kind()) => {
                log::warn!(
                    "{}: the socket for a handover was removed, and no server can take over from \
                     this one until it can be made again: {cause}",
                    self.path.display()
                );
                self.trouble = Some(cause.kind());
            }
            Err(_) => {}
        }
    }

    fn renew(&mut self) -> io::Result<()> {
        crate::trusted::check_directory_of(&self.path)?;
        let (listener, file) = bind_unix_at_once(&self.path, KIND, MODE)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        (self.listener, self.file, self.trouble) = (listener, file, None);
        Ok(())
    }
}
