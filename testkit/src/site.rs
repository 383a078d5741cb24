//! Directories to serve: made for one test, with contents that are known and not compressible.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// `ada` with `pass:word`, as `htpasswd -nbB` makes it: a line of a file of passwords.
pub const ADA: &str = "ada:$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy\n";

/// A temporary directory with files.
pub struct Site {
    directory: TempDir,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// An empty directory, removed when dropped.
    pub fn new() -> Self {
        // Whatever the umask is: an NFS server in the same process sets it to 0.
        let rights = Permissions::from_mode(0o755);
        let mut builder = tempfile::Builder::new();
        let directory = builder.prefix("flatpath-test-").permissions(rights);
        Self {
            directory: directory
                .tempdir()
                .expect("a temporary directory can be made"),
        }
    }

    /// Adds a file, and the directories above it.
    pub fn with(self, name: &str, contents: impl AsRef<[u8]>) -> Self {
        self.write(name, contents);
        self
    }

    /// Writes a file, and makes the directories above it.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.at(name);
        let parent = path.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent).expect("a directory can be made");
        std::fs::write(path, contents).expect("a file can be written");
    }

    /// Writes a file of `bytes` bytes without data: one hole, which takes no room on the disk.
    pub fn write_hole(&self, name: &str, bytes: u64) {
        self.write(name, "");
        let file = std::fs::File::options().write(true).open(self.at(name));
        let made = file.and_then(|file| file.set_len(bytes));
        made.expect("a file may have holes");
    }

    /// Makes every file look an hour old, and waits until that change is a while ago: a file that
    /// has just changed may change again within one tick of the file system's clock, and until then
    /// it has no version to name.
    pub fn settle(&self) {
        const HOUR: Duration = Duration::from_secs(3600);
        self.settle_at(SystemTime::now() - HOUR);
    }

    /// The same with every file changed at this time.
    pub fn settle_at(&self, time: SystemTime) {
        const WHILE: Duration = Duration::from_millis(100);
        for path in paths_below(self.path()) {
            let file = std::fs::File::options()
                .append(true)
                .open(path)
                .expect("it is ours");
            file.set_modified(time).expect("its time can be set");
        }
        // The time of this change itself cannot be set, so it has to pass.
        std::thread::sleep(WHILE);
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a name below the directory.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// Every file below `directory` as (relative name, contents), sorted by name.
pub fn files_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let named = |path: PathBuf| {
        let name = path
            .strip_prefix(directory)
            .expect("it is below")
            .to_path_buf();
        (name, std::fs::read(&path).expect("a file can be read"))
    };
    let mut found: Vec<_> = paths_below(directory).into_iter().map(named).collect();
    found.sort();
    found
}

fn paths_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(home) = pending.pop() {
        for entry in std::fs::read_dir(&home).expect("a directory can be read") {
            let path = entry.expect("an entry can be read").path();
            match path.is_dir() {
                true => pending.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_finds_files_in_every_directory() {
        let site = Site::new().with("b", "1").with("a/c/d", "2");
        let files = files_below(site.path());
        assert_eq!(
            files,
            [
                (PathBuf::from("a/c/d"), b"2".to_vec()),
                (PathBuf::from("b"), b"1".to_vec())
            ]
        );
    }
}
