//! A file system that hangs on request: FUSE, spoken directly, so that no library is needed.
//!
//! Its files are in memory and their times long ago. While it is paused it takes no request off
//! `/dev/fuse`: whatever asks it waits in the kernel, as on a mount whose server is gone. Such a
//! wait ends with a fatal signal, which one whose request had been taken would not.
//!
//! The kernel remembers neither names nor attributes (all validities are zero) and passes every
//! read on, so that nothing is answered from memory.
//!
//! Mounting needs root and `/dev/fuse`. Protocol: `include/uapi/linux/fuse.h`, version 7.31.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::tools;

const HEADER_IN_BYTES: usize = 40;
const REQUEST_BYTES_MAX: usize = 256 * 1024;
const ROOT: u64 = 1;
/// Between two looks at whether it has ended.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const NOT_FOUND: i32 = -2;
const INPUT_OUTPUT: i32 = -5;
const NOT_IMPLEMENTED: i32 = -38;
const DIRECT_IO: u32 = 1;

/// A file of the mount.
#[derive(Clone, Debug)]
pub struct Content {
    name: String,
    bytes: Vec<u8>,
    /// Where reading it fails.
    broken_at: u64,
}

impl Content {
    /// A file that can be read.
    pub fn new(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
            broken_at: u64::MAX,
        }
    }

    /// Reads at and after `offset` fail with `EIO`.
    pub fn broken_at(self, offset: u64) -> Self {
        Self {
            broken_at: offset,
            ..self
        }
    }
}

/// A mounted file system; unmounted when dropped.
pub struct Fuse {
    at: PathBuf,
    /// Held while a request is taken and answered; whether none is to be taken.
    paused: Pause,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Pauses a file system from anywhere.
#[derive(Clone, Debug)]
pub struct Pause(Arc<Mutex<bool>>);

impl Pause {
    /// From now on no request is answered; or those that wait, and those to come, are.
    pub fn set(&self, paused: bool) {
        *self.0.lock().expect("no holder panics") = paused;
    }
}

/// Mounts at an empty directory, which is made. `None` after saying that it cannot be done.
pub fn try_mount(at: &Path, files: Vec<Content>) -> Option<Fuse> {
    match Fuse::mount(at, files) {
        Ok(fuse) => Some(fuse),
        Err(cause) => tools::refused(&format!("a FUSE mount: {cause}")),
    }
}

impl Fuse {
    /// Mounts at an empty directory, which is made.
    ///
    /// # Errors
    /// No `/dev/fuse`, or not root.
    pub fn mount(at: &Path, files: Vec<Content>) -> io::Result<Self> {
        std::fs::create_dir_all(at)?;
        let device = File::options()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open("/dev/fuse")?;
        let number = device.as_raw_fd();
        let options =
            format!("fd={number},rootmode=40755,user_id=0,group_id=0,allow_other,max_read=131072");
        let options = CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("flatpath", at, "fuse", flags, Some(options.as_c_str()))?;
        let paused = Pause(Arc::new(Mutex::new(false)));
        let ended = Arc::new(AtomicBool::new(false));
        let server = Server {
            device,
            files,
            paused: paused.clone(),
            ended: Arc::clone(&ended),
        };
        let thread = std::thread::spawn(move || server.run());
        Ok(Self {
            at: at.to_path_buf(),
            paused,
            ended,
            thread: Some(thread),
        })
    }

    /// From now on no request is answered.
    pub fn pause(&self) {
        self.paused.set(true);
    }

    /// Those that wait and those to come are answered.
    pub fn resume(&self) {
        self.paused.set(false);
    }

    /// What pauses and resumes it from elsewhere.
    pub fn switch(&self) -> Pause {
        self.paused.clone()
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.resume();
        let unmounted = unmount(&self.at, UnmountFlags::DETACH);
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Closes the device, so that whatever still waits fails.
            let ended = thread.join();
            if !std::thread::panicking() {
                assert!(ended.is_ok(), "the file system does not panic");
                assert!(unmounted.is_ok(), "{unmounted:?}");
            }
        }
    }
}

struct Server {
    device: File,
    files: Vec<Content>,
    paused: Pause,
    ended: Arc<AtomicBool>,
}

impl Server {
    fn run(mut self) {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        while !self.ended.load(Ordering::Relaxed) {
            let mut polled = [PollFd::new(&self.device, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&LOOK_AGAIN));
            let paused = Arc::clone(&self.paused.0);
            let is_paused = paused.lock().expect("no holder panics");
            if *is_paused {
                drop(is_paused);
                std::thread::sleep(std::time::Duration::from_millis(5));
                continue;
            }
            match self.device.read(&mut request) {
                Ok(bytes) => self.answer(&request[..bytes]),
                Err(cause) if cause.raw_os_error() == Some(19) => return,
                // Nothing is there, or the asker has given up.
                Err(_) => {}
            }
        }
    }

    fn answer(&mut self, request: &[u8]) {
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().expect("eight"));
        let (opcode, unique, node) = (word(4), long(8), long(16));
        let body = &request[HEADER_IN_BYTES..];
        let answer = match opcode {
            FORGET | BATCH_FORGET | INTERRUPT => return,
            INIT => Ok(self.init()),
            LOOKUP => self.lookup(body),
            GETATTR => self.attributes(node).map(|attributes| {
                // Valid for no time at all.
                [&[0; 16][..], &attributes].concat()
            }),
            OPEN | OPENDIR => {
                let mut opened = vec![0; 16];
                opened[8..12].copy_from_slice(&DIRECT_IO.to_le_bytes());
                Ok(opened)
            }
            READ => {
                let offset = long(HEADER_IN_BYTES + 8);
                self.read(node, offset, word(HEADER_IN_BYTES + 16) as usize)
            }
            STATFS => Ok(statfs()),
            READDIR | RELEASE | RELEASEDIR | FLUSH => Ok(Vec::new()),
            _ => Err(NOT_IMPLEMENTED),
        };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(error) => (error, Vec::new()),
        };
        let mut reply = ((16 + payload.len()) as u32).to_le_bytes().to_vec();
        reply.extend_from_slice(&error.to_le_bytes());
        reply.extend_from_slice(&unique.to_le_bytes());
        reply.extend_from_slice(&payload);
        // The asker may have given up meanwhile.
        let _ = self.device.write(&reply);
    }

    fn init(&self) -> Vec<u8> {
        const BACKGROUND_MAX: u16 = 400;
        let mut out = Vec::new();
        for word in [7_u32, 31, 128 * 1024, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&BACKGROUND_MAX.to_le_bytes());
        out.extend_from_slice(&BACKGROUND_MAX.to_le_bytes());
        for word in [128 * 1024_u32, 1] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(64, 0);
        out
    }

    fn lookup(&self, name: &[u8]) -> Result<Vec<u8>, i32> {
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let place = self
            .files
            .iter()
            .position(|file| file.name.as_bytes() == name);
        let node = place.ok_or(NOT_FOUND)? as u64 + ROOT + 1;
        let mut entry = node.to_le_bytes().to_vec();
        // Generation, and how long name and attributes are valid: not at all.
        entry.resize(40, 0);
        entry.extend_from_slice(&self.attributes(node)?);
        Ok(entry)
    }

    fn attributes(&self, node: u64) -> Result<Vec<u8>, i32> {
        const LONG_AGO: u64 = 1_000_000;
        const NANOSECOND: u32 = 1;
        let (mode, size) = match node {
            ROOT => (0o040_755_u32, 0),
            _ => (0o100_644, self.file(node)?.bytes.len() as u64),
        };
        let mut out = Vec::new();
        // Numbers that directories of an overlay above do not have.
        let inode = node + (1 << 20);
        for long in [
            inode,
            size,
            size.div_ceil(512),
            LONG_AGO,
            LONG_AGO,
            LONG_AGO,
        ] {
            out.extend_from_slice(&long.to_le_bytes());
        }
        let links = if node == ROOT { 2 } else { 1 };
        for word in [
            NANOSECOND, NANOSECOND, NANOSECOND, mode, links, 0, 0, 0, 4_096, 0,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        Ok(out)
    }

    fn read(&self, node: u64, offset: u64, size: usize) -> Result<Vec<u8>, i32> {
        let file = self.file(node)?;
        if offset >= file.broken_at {
            return Err(INPUT_OUTPUT);
        }
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(file.bytes.len());
        let to = from.saturating_add(size).min(file.bytes.len());
        Ok(file.bytes[from..to].to_vec())
    }

    fn file(&self, node: u64) -> Result<&Content, i32> {
        let place = node.checked_sub(ROOT + 1).ok_or(NOT_FOUND)?;
        self.files.get(place as usize).ok_or(NOT_FOUND)
    }
}

/// An empty file system with names of up to 255 bytes (`struct fuse_kstatfs`). Overlays ask.
fn statfs() -> Vec<u8> {
    const BLOCK_BYTES: u32 = 4096;
    let mut out = vec![0; 40];
    for word in [BLOCK_BYTES, 255, BLOCK_BYTES] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.resize(80, 0);
    out
}
