//! Files that may change while the server runs: what tells that they have, and what is read of them
//! again.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use flatpath::tls::{TlsConfig, TlsError};

use crate::bounded_file;

/// What makes files be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    Changed,
    All,
}

/// What tells a file from another one, and from itself after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    /// Of the file that a path leads to, through links.
    pub(super) fn of(path: &Path) -> Option<Identity> {
        let data = bounded_file::metadata(path).ok()?;
        Some(Identity {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// Files that a listener has beside its certificates. They make one thing, so all of them are read
/// when one has changed.
pub(crate) trait Files: Clone {
    /// What they make; shown in the log.
    type Read: Display;

    /// What is so after an error, for the log.
    const OTHERWISE: &'static str;

    fn paths(&self) -> impl Iterator<Item = &Path>;

    /// Reads them. An error names the file.
    fn load(&self) -> Result<Self::Read, String>;

    /// Has handshakes use it from now on.
    fn apply(read: &Self::Read, config: &TlsConfig) -> Result<(), TlsError>;

    /// What is wrong with it, or will soon be.
    fn warnings(_read: &Self::Read, _now: SystemTime) -> Vec<String> {
        Vec::new()
    }
}

/// Such files in use.
#[derive(Debug)]
pub(super) struct Watched<F: Files> {
    files: F,
    /// What they were when they were read last.
    seen: Vec<Option<Identity>>,
    current: F::Read,
}

impl<F: Files> Watched<F> {
    /// Reads them, has them used, and says what they are.
    pub(super) fn begin(files: &F, config: &TlsConfig) -> Result<Watched<F>, String> {
        // Before they are read: what changes meanwhile is seen at the next look.
        let seen = identities(files);
        let current = files.load()?;
        F::apply(&current, config).map_err(|cause| cause.to_string())?;
        log::info!("{current}");
        let begun = Watched {
            files: files.clone(),
            seen,
            current,
        };
        begun.warn();
        Ok(begun)
    }

    /// Reads them again. What is wrong leaves all as it is.
    pub(super) fn read(&mut self, reads: Reads, config: &TlsConfig) {
        let now = identities(&self.files);
        if reads == Reads::Changed && now == self.seen {
            return;
        }
        self.seen = now;
        let read = self.files.load().and_then(|read| {
            F::apply(&read, config).map_err(|cause| cause.to_string())?;
            Ok(read)
        });
        match read {
            Ok(read) => {
                log::info!("{read}: read again");
                self.current = read;
                self.warn();
            }
            Err(cause) => log::error!("{cause}; {}", F::OTHERWISE),
        }
    }

    pub(super) fn warn(&self) {
        for words in F::warnings(&self.current, SystemTime::now()) {
            log::warn!("{words}");
        }
    }
}

fn identities(files: &impl Files) -> Vec<Option<Identity>> {
    files.paths().map(Identity::of).collect()
}

/// What such files say, and what is to be warned of, without using them.
pub(crate) fn check<F: Files>(files: &F) -> Result<(String, Vec<String>), String> {
    let read = files.load()?;
    Ok((read.to_string(), F::warnings(&read, SystemTime::now())))
}
