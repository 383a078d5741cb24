//! The secret of file handles, kept in a file so that handles outlive the server.
//!
//! The file is written in the directory of its final name, flushed, and then linked there: two
//! servers that start at once agree on one key, and a crash leaves either a whole key or none.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::handle::HandleKey;

const FILE: &str = "nfs-handle.key";

/// Random bytes from the kernel.
pub(crate) fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The key kept in `directory`, made when there is none. Directory and file are for the owner only.
///
/// # Errors
/// When the file cannot be made or read, or holds something else.
pub(crate) fn stored(directory: &Path) -> io::Result<HandleKey> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let path = directory.join(FILE);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(directory, &path)?,
        other => return other,
    }
    read(&path)
}

fn read(path: &Path) -> io::Result<HandleKey> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(17).read_to_end(&mut bytes)?;
    let key = <[u8; 16]>::try_from(&bytes[..]);
    key.map(HandleKey).map_err(|_| {
        let text = format!("{} does not hold a key of 16 bytes", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn make(directory: &Path, path: &Path) -> io::Result<()> {
    let draft = directory.join(format!("{FILE}.{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(&random::<16>()?)?;
    file.sync_all()?;
    let linked = fs::hard_link(&draft, path);
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
        let keys: Vec<[u8; 16]> = std::thread::scope(|scope| {
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
}
