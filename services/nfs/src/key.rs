//! The secret of file handles, kept in a file so that handles outlive the server.
//!
//! The file is written in the directory of its final name, flushed, and then linked there: two
//! servers that start at once agree on one key, and a crash leaves either a whole key or none.
//!
//! A server has its key in memory, whatever becomes of the file. What reads the file is the next
//! one, at a restart or a hand-over, so a thread looks after it ([`KeptKey::check`]): a file that
//! is gone is written again, and what else would make handles stale, or a start impossible, is told
//! while the old key can still be put back. A directory that is gone is not made again: something
//! may be about to be mounted there.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use crate::handle::HandleKey;
use crate::limits::KEY_CHECK_INTERVAL;

const FILE: &str = "nfs-handle.key";
const BYTES: usize = 16;

/// Random bytes from the kernel.
pub(crate) fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A key that is kept in a directory, while a server uses it.
pub(crate) struct KeptKey {
    /// Without links in its path.
    pub(crate) directory: PathBuf,
    /// As it was named: the next server follows the links that are in it then.
    named: PathBuf,
    pub(crate) key: HandleKey,
}

/// What is there in the place of a key that a server uses.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Ours,
    /// The file was gone, and is there again.
    WrittenAgain,
    /// The next server cannot have our key, for this reason.
    Not(String),
}

impl KeptKey {
    /// The key kept in `directory`, made when there is none. Directory and file are for the owner
    /// only.
    ///
    /// # Errors
    /// When the file cannot be made or read, or holds something else.
    pub(crate) fn open(directory: &Path) -> io::Result<KeptKey> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let path = directory.join(FILE);
        let key = match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(directory, HandleKey(random()?))?;
                log::info!(
                    "a new key of file handles in {}: handles of any other key are stale",
                    path.display()
                );
                read(&path)?
            }
            known => known?,
        };
        Ok(KeptKey {
            named: std::path::absolute(directory)?,
            directory: directory.canonicalize()?,
            key,
        })
    }

    /// Looks after the file for as long as the server has the key.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub(crate) fn keep(self: &Arc<KeptKey>) -> io::Result<()> {
        let kept = Arc::downgrade(self);
        let thread = thread::Builder::new().name("flatpath-key".into());
        thread.spawn(move || look_after(&kept)).map(drop)
    }

    fn check(&self) -> Found {
        let path = self.named.join(FILE);
        let read = match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match make(&self.named, self.key) {
                    Ok(()) => return Found::WrittenAgain,
                    Err(cause) => Err(cause),
                }
            }
            read => read,
        };
        match read {
            Ok(key) if key.0 == self.key.0 => Found::Ours,
            Ok(_) => Found::Not("it holds another key".into()),
            Err(cause) => Found::Not(cause.to_string()),
        }
    }
}

/// One line for each change of what is found.
fn look_after(kept: &Weak<KeptKey>) {
    let mut last = Found::Ours;
    loop {
        thread::sleep(KEY_CHECK_INTERVAL);
        let Some(kept) = kept.upgrade() else {
            return;
        };
        let found = kept.check();
        if found != last {
            tell(&found, &kept.named.join(FILE));
            last = found;
        }
    }
}

fn tell(found: &Found, path: &Path) {
    let path = path.display();
    match found {
        Found::Ours => log::info!("{path} holds the key of this server's file handles"),
        Found::WrittenAgain => log::warn!(
            "{path} was removed: it is written again, with the key of this server's file handles"
        ),
        Found::Not(why) => log::warn!(
            "{path} no longer holds the key of this server's file handles: {why}. This server has \
             it and goes on; all handles become stale, or the start fails, at the next start or \
             hand-over, unless the file is put back"
        ),
    }
}

/// Never waits: what is no regular file is not read.
fn read(path: &Path) -> io::Result<HandleKey> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let mut options = fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)?;
    let wrong = |what: String| {
        let text = format!(
            "{} {what}; put the whole key back, or remove the file: then a new key is made, and \
             clients mount again",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    if !file.metadata()?.is_file() {
        return Err(wrong("is no regular file".into()));
    }
    let mut bytes = Vec::new();
    file.take(BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let key = <[u8; BYTES]>::try_from(&bytes[..]);
    key.map(HandleKey).map_err(|_| {
        let has = match bytes.len() {
            ..BYTES => format!("has {} bytes", bytes.len()),
            _ => "has more".into(),
        };
        wrong(format!("does not hold a key of {BYTES} bytes: it {has}"))
    })
}

/// Puts a key there, unless there is one by now.
fn make(directory: &Path, key: HandleKey) -> io::Result<()> {
    /// Tells drafts of one process apart.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = directory.join(format!("{FILE}.{}.{number}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(&key.0)?;
    file.sync_all()?;
    let linked = fs::hard_link(&draft, directory.join(FILE));
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(directory: &Path) -> io::Result<HandleKey> {
        KeptKey::open(directory).map(|kept| kept.key)
    }
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_kept_key_stays_the_same_and_is_the_owners_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("a/b");
        let first = stored(&state).expect("made");
        assert_eq!(stored(&state).expect("read").0, first.0);
        let mode = fs::metadata(state.join(FILE))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(&state).expect("there").count(),
            1,
            "no draft is left"
        );
    }

    #[test]
    fn servers_that_start_at_once_agree() {
        let directory = tempfile::tempdir().expect("a directory");
        let keys: Vec<[u8; 16]> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number| {
                    let path = directory.path();
                    scope.spawn(move || {
                        let draft = path.join(format!("{FILE}.other{number}"));
                        fs::write(&draft, random::<16>().expect("random")).expect("write");
                        let _ = fs::hard_link(&draft, path.join(FILE));
                        stored(path).expect("a key").0
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_file_that_is_no_key_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        for bytes in [&b""[..], &[0; 15], &[0; 17]] {
            fs::write(directory.path().join(FILE), bytes).expect("write");
            assert!(stored(directory.path()).is_err());
        }
    }

    #[test]
    fn random_keys_differ() {
        let (first, second) = (random::<16>(), random::<16>());
        assert_ne!(first.expect("random"), second.expect("random"));
    }

    #[test]
    fn a_key_that_is_half_written_or_no_file_is_an_error_that_says_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        let why = || {
            let refused = stored(directory.path()).map(|_| ());
            refused.expect_err("no key").to_string()
        };
        fs::write(&path, [7; 9]).expect("written");
        let half = why();
        assert!(
            half.contains("it has 9 bytes; put the whole key back"),
            "{half}"
        );
        fs::remove_file(&path).expect("removed");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, mode, 0).expect("a pipe");
        // Nobody writes to it, and nothing waits for one who does.
        let pipe = why();
        assert!(pipe.contains("is no regular file; "), "{pipe}");
    }

    #[test]
    fn a_key_that_is_removed_is_written_again_and_one_that_is_replaced_stays_and_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        let kept = KeptKey::open(&state).expect("made");
        let path = state.join(FILE);
        assert_eq!(kept.check(), Found::Ours);
        fs::remove_file(&path).expect("removed");
        assert_eq!(kept.check(), Found::WrittenAgain);
        assert_eq!(kept.check(), Found::Ours);
        assert_eq!(stored(&state).expect("the same").0, kept.key.0);
        assert_eq!(fs::read_dir(&state).expect("there").count(), 1);
        let says = |found: Found, what: &str| match found {
            Found::Not(why) => assert!(why.contains(what), "{why}"),
            other => panic!("{other:?}"),
        };
        for (bytes, what) in [(&[7; 16][..], "another key"), (&[7; 3], "it has 3 bytes")] {
            fs::write(&path, bytes).expect("written");
            says(kept.check(), what);
            assert_eq!(
                fs::read(&path).expect("there"),
                bytes,
                "it may be on its way"
            );
        }
        // Not made again: what is served with it may be about to be mounted there.
        fs::rename(&state, directory.path().join("away")).expect("renamed");
        says(kept.check(), "No such file");
        assert!(!state.exists());
        fs::create_dir(&state).expect("made");
        assert_eq!(kept.check(), Found::WrittenAgain);
        assert_eq!(stored(&state).expect("the same").0, kept.key.0);
    }

    #[test]
    fn a_key_is_looked_for_where_the_next_server_will() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir(at(name)).expect("made");
        }
        let link = |to: &str| {
            symlink(to, at("new")).expect("linked");
            fs::rename(at("new"), at("state")).expect("renamed");
        };
        link("one");
        let kept = KeptKey::open(&at("state")).expect("made");
        assert_eq!(kept.check(), Found::Ours);
        link("two");
        assert_eq!(kept.check(), Found::WrittenAgain);
        assert_eq!(stored(&at("state")).expect("the same").0, kept.key.0);
        fs::write(at("two").join(FILE), [7; 16]).expect("written");
        assert!(matches!(kept.check(), Found::Not(_)));
    }
}
