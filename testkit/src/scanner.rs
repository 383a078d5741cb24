//! A program that permits each access to the files of a mount, and takes its time: what virus
//! scanners do (`FAN_OPEN_PERM` and `FAN_ACCESS_PERM` of fanotify(7)). Needs root.
//!
//! One access after the other, so those that wait add up. What this process does itself is
//! permitted at once.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
};
use rustix::fs::CWD;

use crate::tools;

/// How long it sleeps when nobody wants anything.
const REST: Duration = Duration::from_millis(1);

/// Watches until it is dropped; then all who wait are let in.
pub struct Scanner {
    ended: Arc<AtomicBool>,
    seen: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// Watches the mount that `at` is in. `None` after saying that it cannot be done.
pub fn try_watch(at: &Path, delay: Duration) -> Option<Scanner> {
    match Scanner::watch(at, delay) {
        Ok(scanner) => Some(scanner),
        Err(cause) => tools::refused(&format!("a permission scanner: {cause}")),
    }
}

impl Scanner {
    /// Watches the mount that `at` is in, and waits for `delay` before each access.
    ///
    /// # Errors
    /// Not root, or a kernel without permission events.
    pub fn watch(at: &Path, delay: Duration) -> io::Result<Scanner> {
        let init = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_NONBLOCK | InitFlags::FAN_CLOEXEC;
        let group = Fanotify::init(init, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
        let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT;
        let events = MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_ACCESS_PERM;
        group.mark(mark, events, CWD, Some(at))?;
        let (ended, seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (is_ended, counted) = (Arc::clone(&ended), Arc::clone(&seen));
        let thread = std::thread::spawn(move || scan(&group, delay, &is_ended, &counted));
        Ok(Scanner {
            ended,
            seen,
            thread: Some(thread),
        })
    }

    /// How many accesses of other processes it has let in.
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

fn scan(group: &Fanotify, delay: Duration, ended: &AtomicBool, seen: &AtomicUsize) {
    let own = std::process::id().cast_signed();
    // ORDER: Relaxed: the flag alone matters.
    while !ended.load(Ordering::Relaxed) {
        let events = match group.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => {
                std::thread::sleep(REST);
                continue;
            }
            Err(errno) => panic!("fanotify: {errno}"),
        };
        for event in &events {
            if event.pid() != own && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(delay);
                seen.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(file) = event.fd() {
                let permitted = FanotifyResponse::new(file, Response::FAN_ALLOW);
                group.write_response(permitted).expect("permitted");
            }
        }
    }
    // The group is closed now, and the kernel lets in whoever waits.
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "it permits all");
        }
    }
}
