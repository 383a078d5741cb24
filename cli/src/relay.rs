//! The relay of `flatpath serve`, and its figures in the log.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath::Handle;
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

/// Logs the figures until it is dropped.
pub(crate) struct Reporter {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts to log the figures of all relays of the server.
    pub(crate) fn start(handle: Handle, statistics: Arc<Statistics>) -> Reporter {
        let (end, ended) = channel::<()>();
        let spawned = thread::Builder::new()
            .name("flatpath-relay-log".into())
            .spawn(move || {
                let mut report = Report::default();
                while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    report.log(&handle, statistics.read());
                }
                report.log(&handle, statistics.read());
            });
        if let Err(cause) = &spawned {
            log::warn!("the relay's statistics are not logged: {cause}");
        }
        Reporter {
            end: Some(end),
            thread: spawned.ok(),
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It only logs; a panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// What was logged last.
struct Report {
    at: Instant,
    matched: u64,
    bytes: u64,
    line: String,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            at: Instant::now(),
            matched: 0,
            bytes: 0,
            line: String::new(),
        }
    }
}

impl Report {
    fn log(&mut self, handle: &Handle, now: Snapshot) {
        let bytes = handle.statistics().spliced_bytes;
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
        *self = Report {
            at: Instant::now(),
            matched: now.matched,
            bytes,
            line,
        };
    }
}
