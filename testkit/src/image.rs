//! A real file system on a disk that is a file, so that a power failure is a copy of the file.
//!
//! What the kernel has not sent to the disk is in no copy: [`Image::crashed`] gives what a machine
//! would find that lost its power at this moment, once the journal was read. Needs root, loop
//! devices, `mkfs.ext4` and `mount`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::skipped::cannot_run;
use crate::{deadline, tools};

const BYTES: u64 = 16 << 20;

/// A mounted ext4; unmounted when dropped, for which nothing of it may be in use.
pub struct Image {
    at: PathBuf,
    disk: PathBuf,
    /// Where both are; dropped last.
    home: TempDir,
}

impl Image {
    /// An empty one. `None` after saying that it cannot be had.
    pub fn try_new() -> Option<Image> {
        tools::find("mkfs.ext4")?;
        match Image::new() {
            Ok(image) => Some(image),
            Err(cause) => {
                // Also CI's machine may have none.
                cannot_run(&format!("an ext4 on a loop device: {cause}"));
                None
            }
        }
    }

    fn new() -> io::Result<Image> {
        let home = tempfile::tempdir()?;
        let disk = home.path().join("disk");
        File::create(&disk)?.set_len(BYTES)?;
        let mkfs = tools::locate("mkfs.ext4").unwrap_or_else(|| "mkfs.ext4".into());
        run(Command::new(mkfs).args(["-q", "-F"]).arg(&disk))?;
        Image::mounted(disk, home)
    }

    fn mounted(disk: PathBuf, home: TempDir) -> io::Result<Image> {
        let at = home.path().join("mounted");
        std::fs::create_dir(&at)?;
        // Nothing is written because time has passed.
        let options = "loop,nosuid,commit=3600";
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", options])
            .args([&disk, &at]))?;
        Ok(Image { at, disk, home })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
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
        Image::mounted(disk, home).expect("the journal is good")
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
        let Some(image) = Image::try_new() else {
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
