//! A directory on a file system that stops answering: a few words of FUSE, without libfuse.
//!
//! It has one file, `file.txt`. Until it is hung every question is answered at once; from then on
//! nothing is, as with a server of files that has gone away. When it is dropped everything that
//! hangs in it ends with an error. Needs root and `/dev/fuse`.
//!
//! Source: the kernel's include/uapi/linux/fuse.h, version 7.31.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fd::AsRawFd;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const BATCH_FORGET: u32 = 42;
const ROOT: u64 = 1;
const FILE: u64 = 2;
const NAME: &[u8] = b"file.txt\0";
const CONTENTS: &[u8] = b"on a file system of its own\n";
const IN_HEADER: usize = 40;
/// Larger than any request that the kernel may send with the sizes announced below.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
const WRITE_BYTES_MAX: u32 = 64 * 1024;
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// The mounted directory.
pub(super) struct Hung {
    path: PathBuf,
    hangs: Arc<AtomicBool>,
}

impl Hung {
    /// Mounts it at `path`, which must be an empty directory.
    ///
    /// # Errors
    /// No `/dev/fuse`, or not root.
    pub(super) fn mount(path: &Path) -> io::Result<Self> {
        let device = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("hung", path, "fuse", flags, Some(options.as_c_str()))?;
        let hangs = Arc::new(AtomicBool::new(false));
        thread::spawn({
            let hangs = Arc::clone(&hangs);
            move || serve(device, &hangs)
        });
        Ok(Self {
            path: path.into(),
            hangs,
        })
    }

    /// What makes it hang when it is set.
    pub(super) fn switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.hangs)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Forced: what hangs in it is aborted; detached: also while the server has files open.
        let _ = unmount(&self.path, UnmountFlags::FORCE);
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// Until it is unmounted, which ends the read.
fn serve(mut device: std::fs::File, hangs: &AtomicBool) {
    let mut request = vec![0; REQUEST_BYTES_MAX];
    while let Ok(bytes) = device.read(&mut request) {
        let Some(answer) = answer(&request[..bytes], hangs) else {
            continue;
        };
        // ENOENT: the one who asked was interrupted meanwhile.
        let _ = device.write(&answer);
    }
}

/// What is written back; nothing for a request that has no answer, or hangs.
fn answer(request: &[u8], hangs: &AtomicBool) -> Option<Vec<u8>> {
    let word = |at: usize| {
        Some(u32::from_ne_bytes(
            request.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let long = |at: usize| {
        Some(u64::from_ne_bytes(
            request.get(at..at + 8)?.try_into().ok()?,
        ))
    };
    let (operation, unique, node) = (word(4)?, long(8)?, long(16)?);
    let input = request.get(IN_HEADER..)?;
    if matches!(operation, FORGET | BATCH_FORGET) {
        return None;
    }
    // ORDER: Relaxed: when exactly it begins to hang does not matter.
    if hangs.load(Ordering::Relaxed) {
        return None;
    }
    let (error, body) = match operation {
        INIT => (0, initialised(word(IN_HEADER + 4)?)),
        LOOKUP if node == ROOT && input == NAME => (0, entry()),
        LOOKUP => (ENOENT, Vec::new()),
        GETATTR => (0, [vec![0; 16], attributes(node)].concat()),
        OPEN => (0, vec![0; 16]),
        READ => (0, read(input)),
        RELEASE | FLUSH => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).ok()?;
    let mut answer = length.to_ne_bytes().to_vec();
    answer.extend((-error).to_ne_bytes());
    answer.extend(unique.to_ne_bytes());
    answer.extend(body);
    Some(answer)
}

/// `fuse_init_out`: version 7.31 or the kernel's, if that is older; no further features.
fn initialised(minor: u32) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [7, minor.min(31), 0, 0, 0, WRITE_BYTES_MAX, 1] {
        body.extend(u32::to_ne_bytes(word));
    }
    body.resize(64, 0);
    body
}

/// `fuse_entry_out`, never cached: node, generation, how long it holds, attributes.
fn entry() -> Vec<u8> {
    let mut body = FILE.to_ne_bytes().to_vec();
    body.resize(40, 0);
    body.extend(attributes(FILE));
    body
}

/// `fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, links, bytes) = match node {
        ROOT => (0o040_755_u32, 2_u32, 0),
        _ => (0o100_644, 1, CONTENTS.len() as u64),
    };
    let mut body = Vec::new();
    for long in [node, bytes, 1, 0, 0, 0] {
        body.extend(u64::to_ne_bytes(long));
    }
    for word in [0, 0, 0, mode, links, 0, 0, 0, 4096, 0] {
        body.extend(word.to_ne_bytes());
    }
    body
}

fn read(input: &[u8]) -> Vec<u8> {
    let long = |at: usize| {
        input
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok())
    };
    let offset = usize::try_from(long(8).map_or(0, u64::from_ne_bytes)).unwrap_or(usize::MAX);
    CONTENTS.get(offset..).unwrap_or_default().to_vec()
}
