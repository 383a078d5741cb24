//! Which threads of a bench get a core first, where they share the cores of the server.
//!
//! Clients are on other machines than their server. In a bench they compete with it: a latency then
//! holds the wait of the client for a core, and the reads of many clients delay the server.
//!
//! | thread | policy | gets a core |
//! |---|---|---|
//! | takes latencies | `SCHED_FIFO` | when it wants one |
//! | is other clients | `SCHED_IDLE` | when nothing else wants it |
//!
//! Threads that these start are scheduled like them, and so are processes: start servers elsewhere.

use std::io;
use std::process::{Command, Stdio};

use rustix::thread::gettid;

/// The calling thread takes latencies. True if it may: only root may let it (CAP_SYS_NICE).
///
/// # Errors
/// If there is no `chrt` (util-linux).
pub fn takes_latencies() -> io::Result<bool> {
    schedule("--fifo", "1")
}

/// The calling thread is clients whose work is not measured. True if it may.
///
/// # Errors
/// If there is no `chrt` (util-linux).
pub fn is_other_clients() -> io::Result<bool> {
    schedule("--idle", "0")
}

fn schedule(policy: &str, priority: &str) -> io::Result<bool> {
    let thread = gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args([policy, "--pid", priority, &thread]);
    let quiet = chrt.stdin(Stdio::null()).stderr(Stdio::null());
    let status = quiet.status().map_err(|error| {
        let message = format!("chrt (util-linux) cannot be started: {error}");
        io::Error::new(error.kind(), message)
    })?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// The policy of the calling thread: field 41 of its `stat`.
    fn policy() -> Option<u32> {
        let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(38)?.parse().ok()
    }

    #[test]
    fn a_thread_gets_what_it_is_and_others_stay() {
        const FIFO: u32 = 1;
        const IDLE: u32 = 5;
        let before = policy();
        let other = thread::spawn(|| (is_other_clients().expect("chrt"), policy()));
        assert_eq!(other.join().expect("no panic"), (true, Some(IDLE)));
        let first = thread::spawn(|| (takes_latencies().expect("chrt"), policy()));
        let (may, first) = first.join().expect("no panic");
        assert_eq!(first == Some(FIFO), may);
        assert_eq!(policy(), before);
    }
}
