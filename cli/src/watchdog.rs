//! Ends the process when its server does not end: a thread in a system call that never returns
//! cannot be stopped, only left behind.
//!
//! The engine leaves its own threads behind in time ([`flatpath::Error::LeftBehind`]); this is for
//! everything that the end of the process waits for besides, and comes later.
//!
//! A signal that drains gives the server its delay, its drain time and [`DRAIN_MARGIN`]; one that
//! forces gives it [`FORCE_MARGIN`]. After that the log names the threads that are left, with the
//! kernel function that each sleeps in, and the process exits with code 1. The thread starts with
//! the server, not with the signal: then there may be none to be had.

use std::fs;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flatpath::Stopping;
use flatpath::lock::{Condition, Guard, Lock};

use crate::logging;

/// From the end of the drain time to the end of the process, what the log takes included.
const DRAIN_MARGIN: Duration = Duration::from_millis(750);

/// From the signal that forces to the end of the process, likewise.
const FORCE_MARGIN: Duration = Duration::from_millis(300);

/// The kernel keeps this much of a thread's name (`TASK_COMM_LEN`).
const NAME_BYTES_MAX: usize = 15;

/// Threads of the process that are no part of its server.
const OWN_THREADS: [&str; 8] = [
    "admin-net-0",
    "admin-worker",
    "flatpath",
    "flatpath-keeper",
    "flatpath-log",
    "flatpath-reload",
    "flatpath-signals",
    "flatpath-watchdog",
];

/// See the header. It watches until the process ends, dropped or not.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    due: Lock<Option<Due>>,
    changed: Condition,
}

#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    why: &'static str,
}

impl Watchdog {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start() -> io::Result<Watchdog> {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        thread::Builder::new()
            .name("flatpath-watchdog".into())
            .spawn(move || {
                let why = watched.await_due();
                log::error!("{why}: {}", left_behind());
                logging::finish_soon();
                std::process::exit(1);
            })?;
        Ok(Watchdog { shared })
    }

    /// What to call when the server is stopping, which it has `drain` for by then, the delay
    /// included.
    pub(crate) fn on_stopping(
        &self,
        drain: impl Fn() -> Duration + Send + 'static,
    ) -> impl FnMut(Stopping) + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move |stopping| {
            let (time, why) = match stopping {
                Stopping::Draining => (
                    drain().saturating_add(DRAIN_MARGIN),
                    "not ended within the drain time",
                ),
                Stopping::Forced => (FORCE_MARGIN, "not ended when forced"),
            };
            if let Some(at) = Instant::now().checked_add(time) {
                shared.end_by(Due { at, why });
            }
        }
    }
}

impl Shared {
    /// Ends the process at that time, unless it is to end earlier.
    fn end_by(&self, due: Due) {
        let mut earliest = self.due();
        if earliest.is_none_or(|earliest| due.at < earliest.at) {
            *earliest = Some(due);
            self.changed.notify_one();
        }
    }

    /// Waits until the process should have ended; why that was due.
    fn await_due(&self) -> &'static str {
        let mut due = self.due();
        loop {
            let left = match *due {
                Some(Due { at, .. }) => at.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if let Some(Due { why, .. }) = *due
                && left.is_zero()
            {
                return why;
            }
            due = self.changed.wait_for(due, left);
        }
    }

    fn due(&self) -> Guard<'_, Option<Due>> {
        self.due.lock()
    }
}

/// The threads of the server that have not ended, with what they sleep in.
fn left_behind() -> String {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut threads: Vec<String> = tasks
        .flatten()
        .filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let sleeps_in = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
            describe(name.trim_end(), sleeps_in.trim_end())
        })
        .collect();
    threads.sort_unstable();
    summary(&threads)
}

/// A thread in words, unless it is one of [`OWN_THREADS`]. The kernel has `0` for a thread that
/// runs, and where it shows nothing.
fn describe(name: &str, sleeps_in: &str) -> Option<String> {
    let is_own = OWN_THREADS
        .iter()
        .any(|own| own[..own.len().min(NAME_BYTES_MAX)] == *name);
    (!is_own).then(|| match sleeps_in {
        "" | "0" => name.to_string(),
        sleeps_in => format!("{name} in {sleeps_in}"),
    })
}

/// Equal neighbours once, with their number.
fn summary(threads: &[String]) -> String {
    if threads.is_empty() {
        return "every thread of the server has ended, but not the process".into();
    }
    let groups: Vec<String> = threads
        .chunk_by(|one, other| one == other)
        .map(|group| match group {
            [one] => one.clone(),
            [one, ..] => format!("{} times {one}", group.len()),
            [] => String::new(),
        })
        .collect();
    format!("left behind: {}", groups.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_server_are_named_with_what_they_sleep_in() {
        let all = [
            ("flatpath", "futex_wait"),
            ("flatpath-signal", "0"),
            ("flatpath-net-0", "request_wait_answer"),
            ("flatpath-worker", "fifo_open"),
            ("flatpath-worker", "fifo_open"),
            ("flatpath-watchd", "0"),
            ("flatpath-forema", "0"),
        ];
        let mut threads: Vec<String> = all
            .iter()
            .filter_map(|(name, sleeps_in)| describe(name, sleeps_in))
            .collect();
        threads.sort_unstable();
        assert_eq!(
            summary(&threads),
            "left behind: flatpath-forema, flatpath-net-0 in request_wait_answer, 2 times \
             flatpath-worker in fifo_open"
        );
    }

    #[test]
    fn the_earliest_end_counts() {
        let watchdog = Watchdog {
            shared: Arc::default(),
        };
        let mut stopping = watchdog.on_stopping(|| Duration::from_secs(3600));
        let at = || watchdog.shared.due().map(|due| due.at);
        assert!(at().is_none());
        stopping(Stopping::Draining);
        let drained = at().expect("it is due");
        stopping(Stopping::Forced);
        let forced = at().expect("it is due");
        assert!(forced < drained);
        stopping(Stopping::Forced);
        assert_eq!(at(), Some(forced), "a third signal gives no more time");
    }
}
