//! A real file system on a disk that is a file.
//!
//! A power failure is a copy of the file: what the kernel has not sent to the disk is in no copy,
//! and [`Image::crashed`] gives what a machine would find that lost its power at this moment, once
//! the journal was read. Needs root, loop devices, `mount` and the file system's `mkfs`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Advice, fadvise};
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::skipped::cannot_run;
use crate::{deadline, tools};

/// A kind of file system, and how one is made.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// As mount(8) calls it; the program that makes one is named after it.
    pub kind: &'static str,
    /// Arguments of that program, without the disk.
    pub make: &'static [&'static str],
    /// Options of the mount, without `loop`.
    pub mount: &'static str,
    /// The disk, of which only what is written takes space.
    pub bytes: u64,
}

impl Format {
    /// A small one whose journal is written when something is synced, not because time has passed.
    pub const EXT4: Format = Format {
        kind: "ext4",
        make: &["-q", "-F"],
        mount: "nosuid,commit=3600",
        bytes: 16 << 20,
    };
}

/// A mounted file system; unmounted when dropped, for which nothing of it may be in use.
pub struct Image {
    at: PathBuf,
    disk: PathBuf,
    format: Format,
    /// Where both are; dropped last.
    home: TempDir,
}

impl Image {
    /// An empty one. `None` after a line with what this machine lacks for it.
    pub fn try_new(format: Format) -> Option<Image> {
        let home = tempfile::tempdir().expect("a directory");
        let disk = home.path().join("disk");
        Image::try_on(disk, home, format)
    }

    /// The same on a disk that is a new file of this directory: what that does, the disk does.
    pub fn try_new_in(directory: &Path, format: Format) -> Option<Image> {
        let home = tempfile::tempdir().expect("a directory");
        Image::try_on(directory.join("disk"), home, format)
    }

    fn try_on(disk: PathBuf, home: TempDir, format: Format) -> Option<Image> {
        let Format { kind, .. } = format;
        let mkfs = tools::find(&format!("mkfs.{kind}"))?;
        match Image::new(&mkfs, disk, home, format) {
            Ok(image) => Some(image),
            Err(cause) => {
                // Also CI's machine may have none.
                cannot_run(&format!("{kind} on a loop device: {cause}"));
                None
            }
        }
    }

    fn new(mkfs: &Path, disk: PathBuf, home: TempDir, format: Format) -> io::Result<Image> {
        File::create(&disk)?.set_len(format.bytes)?;
        run(Command::new(mkfs).args(format.make).arg(&disk))?;
        Image::mounted(disk, home, format)
    }

    fn mounted(disk: PathBuf, home: TempDir, format: Format) -> io::Result<Image> {
        let at = home.path().join("mounted");
        std::fs::create_dir(&at)?;
        run(Command::new("mount")
            .args(["-t", format.kind, "-o", &format!("loop,{}", format.mount)])
            .args([&disk, &at]))?;
        Ok(Image {
            at,
            disk,
            format,
            home,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Has the kernel forget what it keeps of the disk and of a file on it, which is synced: the
    /// next to read it waits for the disk.
    ///
    /// # Panics
    /// When either cannot be opened.
    pub fn forget(&self, name: &str) {
        for path in [&self.at.join(name), &self.disk] {
            let file = File::open(path).expect("it is there");
            file.sync_all().expect("synced");
            fadvise(&file, 0, None, Advice::DontNeed).expect("a regular file");
        }
    }

    /// What a power failure now would leave, mounted.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn crashed(&self) -> Image {
        let home = tempfile::tempdir_in(self.home.path().parent().unwrap_or(Path::new("/tmp")));
        let home = home.expect("a directory");
        let disk = home.path().join("disk");
        std::fs::copy(&self.disk, &disk).expect("copied");
        Image::mounted(disk, home, self.format).expect("the journal is good")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // What another test starts has copies of this one's descriptors until it runs.
            deadline::until_true("nothing uses the file system any more", || {
                unmount(&self.at, UnmountFlags::empty()).is_ok()
            });
        } else {
            let _ = unmount(&self.at, UnmountFlags::DETACH);
        }
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_what_was_synced() {
        let Some(image) = Image::try_new(Format::EXT4) else {
            return;
        };
        let file = File::create(image.path().join("synced")).expect("made");
        file.sync_all().expect("synced");
        File::create(image.path().join("unsynced")).expect("made");
        let crashed = image.crashed();
        assert!(crashed.path().join("synced").exists());
        assert!(!crashed.path().join("unsynced").exists());
        drop(file);
    }
}
