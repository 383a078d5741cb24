//! Files of names and passwords, as `htpasswd` writes them.
//!
//! A line is a name, a colon and a hash. Taken are bcrypt (`$2y$`, `htpasswd -B`), Argon2
//! (`$argon2id$`, `$argon2i$`) and SHA-crypt (`$5$`, `$6$`, as `mkpasswd` and `openssl passwd` make
//! it), with parameters that cost an attacker something and the server not too much. A file with
//! any other line is refused with the line's number: MD5, SHA-1, DES and plain text are no
//! protection, and a name whose line was left out would be a user who cannot log in for no reason
//! that anyone sees.
//!
//! | step                        | by                                  | how often                |
//! |-----------------------------|-------------------------------------|--------------------------|
//! | known credentials           | any thread, a network thread inline | each request             |
//! | a look at the file          | one worker at a time                | once in `LOOK` at most   |
//! | a check of a password       | `CHECKS_PART` of the processors     | once in `LIFE` for each  |
//!
//! Invariants
//! - HP1: what is in force is a whole file. One that is read again replaces it if all of its lines
//!   are good, it has a name, it ends with a line end, and it did not change while it was read.
//!   Otherwise the one before stays, and the log says why. So half of a file is never in force.
//! - HP2: credentials are remembered as a hash under a secret of the process, never as they are,
//!   and with the version of the file: a new version knows none.
//! - HP3: a name that is not in the file takes as long as one that is: its password is checked
//!   against the hash of another.
//! - HP5: no check begins without its memory, of which Argon2 takes tens of megabytes, and no file
//!   is in force whose checks would never have it ([`PasswordChecks`]).
//! - HP4: wrong passwords of an address are counted before they are checked; a right one is taken
//!   back. So guesses that come at once are counted, too.
//!
//! Cost: of known credentials a hash and 34 bytes under a lock. A check takes what the hash was
//! made for.

mod checks;
mod hash;
mod parse;
pub(crate) mod passwords;

pub use checks::PasswordChecks;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::regular_file;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::clock::{self, as_ns};
use crate::limits::{
    FAILURES_BURST, FAILURES_PER_MINUTE, HTPASSWD_BYTES_MAX, LOGINS_MAX, PASSWORD_BYTES_MAX,
};
use crate::rate_limit::ADDRESSES_MAX;
use crate::rate_limit::rate::Rate;
use crate::rate_limit::table::Table;
use hash::PasswordHash;

/// How long what is known of the file holds without a look at it.
const LOOK: Duration = Duration::from_secs(1);

/// How long credentials are known to be right.
const LIFE: Duration = Duration::from_secs(300);

/// How many this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A file of names and passwords, read again when it changes. A clone is the same one.
///
/// See [`Access::passwords`](crate::Access::passwords).
#[derive(Clone)]
pub struct Htpasswd(Arc<Inner>);

struct Inner {
    path: PathBuf,
    loaded: Lock<Loaded>,
    /// Of what is loaded.
    version: AtomicU64,
    looked_ns: AtomicU64,
    /// One worker looks at the file.
    looks: AtomicBool,
    /// Known credentials, by their hash: until when.
    logins: Table,
    secret: (u64, u64),
    failures: Rate,
    checks: PasswordChecks,
    now: Box<dyn Fn() -> Duration + Send + Sync>,
}

struct Loaded {
    users: Arc<Users>,
    content: Vec<u8>,
    /// Of the file that was looked at last, whether it was taken or not. `None`: it has to be read
    /// again in any case.
    stamp: Option<Stamp>,
    /// What the log was told last.
    trouble: Option<String>,
}

/// The names of a file. It has one at least.
struct Users {
    hashes: HashMap<Box<str>, PasswordHash>,
    /// Any one of them (HP3).
    decoy: PasswordHash,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// A file of names and passwords cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum HtpasswdError {
    /// It cannot be read.
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line is not as it should be.
    Line {
        /// Which file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// To check its passwords takes more memory than there is for that.
    Memory {
        /// Which file.
        path: PathBuf,
        /// What the largest of its hashes needs, in bytes.
        bytes: usize,
        /// What [`PasswordChecks::memory`] has, in bytes.
        bytes_max: usize,
    },
}

flatpath::impl_error! {
    HtpasswdError {
        Self::File { path, cause } => "{}: {cause}" (path.display()),
        Self::Line { path, line, why } => "{}:{line}: {why}" (path.display()),
        Self::Memory { path, bytes, bytes_max } =>
            "{}: to check a password of it takes {} KiB (Argon2), and there are {} KiB for that"
            (path.display(), bytes / 1024, bytes_max / 1024),
    }
    source { Self::File { cause, .. } => cause }
}

impl Htpasswd {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is no name with a hash that protects its password.
    pub fn open(path: &Path) -> Result<Self, HtpasswdError> {
        Self::open_with(path, &PasswordChecks::new())
    }

    /// The same with a bound on checks that other files may have, too.
    ///
    /// # Errors
    /// As [`Htpasswd::open`]; a check would take more memory than there is for it.
    pub fn open_with(path: &Path, checks: &PasswordChecks) -> Result<Self, HtpasswdError> {
        let (content, stamp) = read(path)?;
        let users = parse::users(path, &content, parse::LastLine::MayHaveNoEnd)?;
        users.fit(path, checks)?;
        let random = || RandomState::new().hash_one(path);
        let per_minute = Rate::new(FAILURES_PER_MINUTE, Duration::from_secs(60), ADDRESSES_MAX);
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            loaded: Lock::new(Loaded {
                users: Arc::new(users),
                content,
                stamp,
                trouble: None,
            }),
            version: AtomicU64::new(0),
            looked_ns: AtomicU64::new(as_ns(clock::since_begun())),
            looks: AtomicBool::new(false),
            logins: Table::new(LOGINS_MAX),
            secret: (random(), random()),
            failures: per_minute.burst(FAILURES_BURST),
            checks: checks.clone(),
            now: Box::new(clock::since_begun),
        })))
    }

    /// Another clock, for tests: see [`RateLimit::clock`](crate::RateLimit::clock). What is known
    /// of the file is looked at anew.
    ///
    /// # Panics
    /// When there is a clone already.
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let inner = Arc::get_mut(&mut self.0).expect("a clock is set before there are clones");
        inner.looked_ns = AtomicU64::new(as_ns(now()));
        inner.now = Box::new(now);
        self
    }

    /// The file that it is of.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The most memory that the check of one of its passwords takes, in bytes: that of its largest
    /// Argon2; 0 where it has none, as the others take next to nothing.
    #[must_use]
    pub fn check_bytes(&self) -> usize {
        self.users().check_bytes()
    }

    /// Reads the file again, if it has changed. Blocks. Requests do so by themselves, within a
    /// second.
    ///
    /// # Errors
    /// What is wrong with it; the one before stays in force.
    pub fn reload(&self) -> Result<(), HtpasswdError> {
        let inner = &self.0;
        let reloaded = inner.read_again();
        // ORDER: Relaxed: it only bounds how often the file is looked at.
        let now_ns = as_ns((inner.now)());
        inner.looked_ns.store(now_ns, Ordering::Relaxed);
        reloaded
    }

    /// How long ago the file was looked at is too long.
    fn is_due(&self) -> bool {
        // ORDER: Relaxed: as above.
        let looked_ns = self.0.looked_ns.load(Ordering::Relaxed);
        as_ns((self.0.now)()).saturating_sub(looked_ns) >= as_ns(LOOK)
    }

    /// Looks at the file, if that is due and no other worker does. Blocks.
    fn look(&self) {
        // ORDER: AcqRel: one at a time, each after what the one before has read.
        if !self.is_due() || self.0.looks.swap(true, Ordering::AcqRel) {
            return;
        }
        // What is wrong is in the log.
        let _logged = self.reload();
        // ORDER: Release: see above.
        self.0.looks.store(false, Ordering::Release);
    }

    /// What credentials are remembered by, with what is in force (HP2).
    fn key(&self, credentials: &[u8]) -> u128 {
        let (first, second) = self.0.secret;
        let mut hasher = SipHasher24::new_with_keys(first, second);
        // ORDER: Acquire: what is loaded after this is of this version or a later one.
        hasher.write_u64(self.0.version.load(Ordering::Acquire));
        hasher.write(credentials);
        hasher.finish128().as_u128()
    }

    /// Whether credentials are known to be right.
    fn knows(&self, credentials: &[u8]) -> bool {
        let until_ns = self.0.logins.number(self.key(credentials));
        until_ns > as_ns((self.0.now)())
    }

    /// Remembers what was found right under this key.
    fn remember(&self, key: u128) {
        let until_ns = as_ns((self.0.now)()).saturating_add(as_ns(LIFE));
        let remembered: Result<(), std::convert::Infallible> =
            self.0.logins.update(key, |_| Ok(until_ns));
        let Ok(()) = remembered;
    }

    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.0.loaded.lock().users)
    }
}

impl Inner {
    /// A file in force is whole (HP1).
    fn read_again(&self) -> Result<(), HtpasswdError> {
        let found = self.changed();
        let mut loaded = self.loaded.lock();
        let trouble = match found {
            Ok(None) => return Ok(()),
            Ok(Some((users, content, stamp))) => {
                if content != loaded.content || loaded.trouble.is_some() {
                    let count = users.hashes.len();
                    log::info!("{}: read again: {count} names", self.path.display());
                }
                if content != loaded.content {
                    (loaded.users, loaded.content) = (Arc::new(users), content);
                    // ORDER: Release: see `key`, though the lock orders it as well.
                    self.version.fetch_add(1, Ordering::Release);
                }
                (loaded.stamp, loaded.trouble) = (stamp, None);
                return Ok(());
            }
            Err(trouble) => trouble,
        };
        let words = trouble.to_string();
        if loaded.trouble.as_deref() != Some(&words) {
            log::error!("{words}; the names and passwords before stay in force");
        }
        (loaded.stamp, loaded.trouble) = (None, Some(words));
        Err(trouble)
    }

    /// What the file has become, if it is another.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn changed(&self) -> Result<Option<(Users, Vec<u8>, Option<Stamp>)>, HtpasswdError> {
        let known = self.loaded.lock().stamp;
        let now = std::fs::metadata(&self.path).map_err(|cause| unreadable(&self.path, cause))?;
        if known == Some(Stamp::of(&now)) {
            return Ok(None);
        }
        let (content, stamp) = read(&self.path)?;
        let users = parse::users(&self.path, &content, parse::LastLine::HasItsEnd)?;
        users.fit(&self.path, &self.checks)?;
        Ok(Some((users, content, stamp)))
    }
}

impl Stamp {
    fn of(file: &std::fs::Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            bytes: file.len(),
            changed: (file.ctime(), file.ctime_nsec()),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }
}

fn unreadable(path: &Path, cause: io::Error) -> HtpasswdError {
    let path = path.to_owned();
    HtpasswdError::File { path, cause }
}

/// The content of a file, and its stamp: `None` where it has changed so lately that it may change
/// again without another one.
fn read(path: &Path) -> Result<(Vec<u8>, Option<Stamp>), HtpasswdError> {
    let read = || {
        let file = regular_file::open(path)?;
        let before = file.metadata()?;
        let mut content = Vec::new();
        (&file)
            .take(HTPASSWD_BYTES_MAX + 1)
            .read_to_end(&mut content)?;
        if content.len() as u64 > HTPASSWD_BYTES_MAX {
            let why = format!("it is larger than {HTPASSWD_BYTES_MAX} bytes");
            return Err(io::Error::other(why));
        }
        let after = Stamp::of(&file.metadata()?);
        if after != Stamp::of(&before) || after.bytes != content.len() as u64 {
            return Err(io::Error::other("it changes while it is read"));
        }
        let is_old = clock::is_past(after.changed.0, LOOK);
        Ok((content, is_old.then_some(after)))
    };
    read().map_err(|cause| unreadable(path, cause))
}

impl Users {
    /// The most memory of a check, in bytes.
    fn check_bytes(&self) -> usize {
        let bytes = self.hashes.values().map(PasswordHash::check_bytes);
        bytes.max().unwrap_or(0)
    }

    /// # Errors
    /// A check would never find its memory.
    fn fit(&self, path: &Path, checks: &PasswordChecks) -> Result<(), HtpasswdError> {
        let (bytes, bytes_max) = (self.check_bytes(), checks.memory.bytes_max());
        if bytes <= bytes_max {
            return Ok(());
        }
        let path = path.to_owned();
        Err(HtpasswdError::Memory {
            path,
            bytes,
            bytes_max,
        })
    }

    /// The hash that decides about a name.
    fn hash_of(&self, name: &str) -> &PasswordHash {
        self.hashes.get(name).unwrap_or(&self.decoy)
    }

    /// Whether it is the password of a name; takes as long for any name (HP3).
    fn has(&self, name: &str, password: &str) -> bool {
        let known = self.hashes.get(name);
        let is_right = known.unwrap_or(&self.decoy).verify(password);
        known.is_some() && is_right
    }
}

/// Whether a password may be checked at all.
fn is_short(password: &str) -> bool {
    password.len() <= PASSWORD_BYTES_MAX
}

impl fmt::Debug for Htpasswd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Htpasswd");
        shown.field("path", &self.0.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
