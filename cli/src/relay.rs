//! The relay of `flatpath serve`, and its figures in the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flatpath::Handle;
use flatpath::housekeeper::{Next, Task};
use flatpath::lock::Lock;
use flatpath_relay::{Relay, Snapshot, Statistics};

use crate::settings::Settings;

/// How often changed figures are logged.
const PERIOD: Duration = Duration::from_secs(10);

/// The service with these settings.
pub(crate) fn service(settings: &Settings) -> Relay {
    let relay = Relay::new();
    match settings.relay_waiting {
        Some(count) => relay.waiting_max(count),
        None => relay,
    }
}

/// Logs the figures until it is dropped, and then once more.
pub(crate) struct Reporter {
    report: Arc<Lock<Report>>,
    /// Of the housekeeper.
    task: Option<Task>,
}

impl Reporter {
    /// Starts to log the figures of a relay of the server.
    pub(crate) fn start(handle: Handle, statistics: Arc<Statistics>) -> Reporter {
        let report = Arc::new(Lock::new(Report::new(handle, statistics)));
        let logged = Arc::clone(&report);
        let task = Task::begin("relay report", move |_| {
            logged.lock().log();
            Next::After(PERIOD)
        });
        if let Err(cause) = &task {
            log::warn!("the relay's statistics are not logged: {cause}");
        }
        Reporter {
            report,
            task: task.ok(),
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.task.take());
        self.report.lock().log();
    }
}

/// The numbers that were logged last.
struct Report {
    handle: Handle,
    statistics: Arc<Statistics>,
    at: Instant,
    matched: u64,
    bytes: u64,
    line: String,
}

impl Report {
    fn new(handle: Handle, statistics: Arc<Statistics>) -> Report {
        Report {
            handle,
            statistics,
            at: Instant::now(),
            matched: 0,
            bytes: 0,
            line: String::new(),
        }
    }

    fn log(&mut self) {
        let now = self.statistics.read();
        let bytes = self.handle.statistics().spliced_bytes();
        let seconds = self.at.elapsed().as_secs_f64().max(0.001);
        let rate = (now.matched - self.matched) as f64 / seconds;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let relayed = mebibytes(bytes);
        let per_second = mebibytes(bytes - self.bytes) / seconds;
        let waited_ms = now.waited.as_secs_f64() * 1e3 / now.matched.max(1) as f64;
        let line = format!(
            "relay: {} waiting, {} paired, {} matched ({rate:.1} per second), {relayed:.1} MiB \
             relayed ({per_second:.1} MiB/s), waited {waited_ms:.1} ms on average and {:.1} ms \
             at most; closed: {} unmatched, {} impatient, {} bad handshakes, {} redundant, \
             {} refused, {} displaced",
            now.waiting,
            now.paired,
            now.matched,
            now.waited_max.as_secs_f64() * 1e3,
            now.unmatched,
            now.impatient,
            now.bad,
            now.redundant,
            now.refused,
            now.displaced,
        );
        if now != Snapshot::default() && line != self.line {
            log::info!("{line}");
        }
        self.at = Instant::now();
        (self.matched, self.bytes, self.line) = (now.matched, bytes, line);
    }
}
