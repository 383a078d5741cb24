//! A control group with a limit on memory.

use crate::skipped::cannot_run;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the controller of memory has its groups: version 1, or version 2.
const ROOTS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// A group of its own. Dropped, it is removed, once nothing runs in it.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// A group that may have `bytes` of memory. `None` after saying why there is none: not every
    /// container lets its programs make groups, whatever is installed.
    pub fn try_new(bytes: u64) -> Option<Self> {
        let mut why = String::new();
        for (root, limit) in ROOTS {
            match make(Path::new(root), limit, bytes) {
                Ok(group) => return Some(group),
                Err(cause) => why = format!("{root}: {cause}"),
            }
        }
        cannot_run(&format!(
            "no group with a limit on memory can be made here ({why})"
        ));
        None
    }

    /// For [`Launch::in_group`](crate::Launch::in_group).
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Processes that the kernel has killed because the limit was reached.
    pub fn kills(&self) -> u64 {
        let texts = ["memory.oom_control", "memory.events"]
            .map(|name| fs::read_to_string(self.0.join(name)).unwrap_or_default())
            .concat();
        let mut lines = texts.lines();
        let kills = lines.find_map(|line| line.strip_prefix("oom_kill "));
        kills
            .and_then(|count| count.parse().ok())
            .expect("a count of kills")
    }
}

fn make(root: &Path, limit: &str, bytes: u64) -> io::Result<MemoryGroup> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    // Elsewhere it would be a directory as any other.
    fs::metadata(root.join("cgroup.procs"))?;
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("flatpath-test-{}-{number}", std::process::id());
    let group = MemoryGroup(root.join(name));
    fs::create_dir(&group.0)?;
    fs::write(group.0.join(limit), bytes.to_string())?;
    Ok(group)
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What is killed last leaves a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
