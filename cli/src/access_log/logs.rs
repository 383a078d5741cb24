//! The logs of a server: its own, and those of sites, by their paths. Lines come with the number of
//! their log; 0 is the server's own, whose lines go nowhere where it has none.
//!
//! A reload may add logs of sites. One that no site has any more stays open until the SIGHUP after
//! that, as its last lines may still come, and is used again by its path.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatpath::Server;
use flatpath::access_log::{LogFormat, LogOutput, LogSink};
use flatpath::lock::Lock;
use flatpath::metrics::read;
use flatpath_admin::Admin;

use super::{AccessLog, Counters, METRICS, Shared, Slot, Target};
use crate::failure::Failure;
use crate::settings::{self, Settings};

/// All of them. A clone is the same.
#[derive(Clone, Default)]
pub(crate) struct AccessLogs {
    inner: Arc<Lock<Inner>>,
    counters: Arc<Counters>,
    format: LogFormat,
}

#[derive(Default)]
struct Inner {
    /// By their numbers; the first is the server's own, if it has one.
    logs: Vec<Option<Log>>,
    state: State,
}

struct Log {
    path: PathBuf,
    shared: Arc<Shared>,
    log: AccessLog,
    /// A site has it, or the server.
    is_used: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Logs are opened, and nothing is written.
    #[default]
    Starting,
    /// The server was started without any, so no request is logged.
    Without,
    Written,
}

impl Log {
    /// It may have been closed.
    fn use_again(&mut self) {
        if !self.is_used {
            self.is_used = true;
            self.shared.set(&self.shared.reopens);
        }
    }
}

impl AccessLogs {
    /// Opens the server's own, if there is one.
    pub(crate) fn of(settings: &Settings) -> Result<Self, Failure> {
        let logs = Self {
            format: match settings.access_log_format {
                None | Some(settings::LogFormat::Combined) => LogFormat::Combined,
                Some(settings::LogFormat::Json) => LogFormat::Json,
            },
            ..Self::default()
        };
        let own = settings.access_log.as_deref();
        let own = own
            .map(|path| logs.open(path, "--access-log"))
            .transpose()?;
        logs.inner.lock().logs.push(own);
        Ok(logs)
    }

    fn open(&self, path: &Path, what: &str) -> Result<Log, Failure> {
        let opened = AccessLog::open(Target::of(path), &self.counters);
        let log = opened.map_err(|cause| {
            let path = path.display();
            Failure::WrongUse(format!("{what} {path}: cannot be opened: {cause}"))
        })?;
        Ok(Log {
            path: path.into(),
            shared: Arc::clone(&log.shared),
            log,
            is_used: true,
        })
    }

    /// The number of the log of a site with these settings; opens it if it is new.
    ///
    /// # Errors
    /// It cannot be opened; or no request of this server is logged.
    pub(crate) fn number_of(&self, settings: &Settings) -> Result<u16, Failure> {
        let Some(path) = settings.access_log.as_deref() else {
            return Ok(0);
        };
        let has_path = |log: &Option<Log>| log.as_ref().is_some_and(|log| log.path == path);
        let state = {
            let mut inner = self.inner.lock();
            if let Some(known) = inner.logs.iter().position(has_path) {
                inner.logs[known]
                    .as_mut()
                    .expect("it has a path")
                    .use_again();
                return Ok(u16::try_from(known).unwrap_or(0));
            }
            inner.state
        };
        if state == State::Without {
            let path = path.display();
            return Err(Failure::WrongUse(format!(
                "access-log {path}: the server was started without an access log: restart"
            )));
        }
        // Opened without the lock, which network threads may want.
        let mut new = self.open(path, "access-log")?;
        if state == State::Written {
            let begun = new.log.begin();
            begun.map_err(|cause| Failure::Failed(format!("cannot start a thread: {cause}")))?;
        }
        let mut inner = self.inner.lock();
        let number = u16::try_from(inner.logs.len());
        let number = number.map_err(|_| Failure::WrongUse("there are too many logs".into()))?;
        inner.logs.push(Some(new));
        Ok(number)
    }

    /// Sites have these logs from now on, and no others: those are closed at the next SIGHUP.
    pub(crate) fn keep(&self, paths: &HashSet<PathBuf>) {
        let mut inner = self.inner.lock();
        // The first is the server's own.
        for log in inner.logs.iter_mut().skip(1).flatten() {
            log.is_used = paths.contains(&log.path);
        }
    }

    /// Has a server log here, if there is any log.
    pub(crate) fn add_to(&self, server: Server) -> Server {
        let mut inner = self.inner.lock();
        if inner.logs.iter().all(Option::is_none) {
            inner.state = State::Without;
            return server;
        }
        server.access_log(self.format, Arc::new(self.clone()))
    }

    /// A function that has the writers open the files again, so that a renamed file is left: for
    /// SIGHUP. It may be called at any time and on any thread, and does not wait for a writer.
    pub(crate) fn reopener(&self) -> impl Fn() + Send + use<> {
        let inner = Arc::clone(&self.inner);
        move || {
            for log in inner.lock().logs.iter().flatten() {
                log.shared.set(match log.is_used {
                    true => &log.shared.reopens,
                    false => &log.shared.closes,
                });
            }
        }
    }

    /// Has `--admin` show the metrics of all logs together, if there is one.
    pub(crate) fn shown_by(&self, admin: &Admin) {
        if self.inner.lock().state != State::Without {
            let counters = Arc::clone(&self.counters);
            admin.source(move || read(METRICS, &*counters));
        }
    }

    /// Starts to write: after the lines that announce the listeners. The server serves by then, and
    /// another one may have ended for it: where no thread can be started, lines are lost, with a
    /// line in the server's log.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner.lock();
        if inner.state == State::Starting {
            inner.state = State::Written;
        }
        for log in inner.logs.iter_mut().flatten() {
            if let Err(cause) = log.log.begin() {
                log::error!("no access log is written: cannot start a thread: {cause}");
            }
        }
    }

    /// Writes what there is, and reports what was lost. The server has ended.
    pub(crate) fn end(&self) {
        let logs = std::mem::take(&mut self.inner.lock().logs);
        for log in logs.iter().flatten() {
            log.shared.set(&log.shared.ends);
        }
        for log in logs.into_iter().flatten() {
            log.log.await_end();
        }
        let dropped = self.counters.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            log::warn!("access log: {dropped} lines dropped");
        }
    }
}

impl std::fmt::Debug for AccessLogs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AccessLogs").finish_non_exhaustive()
    }
}

impl LogSink for AccessLogs {
    fn open(&self) -> Box<dyn LogOutput> {
        Box::new(Slots {
            logs: self.clone(),
            slots: Vec::new(),
        })
    }

    fn dropped(&self, lines: u64) {
        self.counters.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

/// The lines of one network thread, by the numbers of logs.
struct Slots {
    logs: AccessLogs,
    slots: Vec<Option<Slot>>,
}

impl LogOutput for Slots {
    fn write(&mut self, lines: &mut Vec<u8>) {
        self.write_to(0, lines);
    }

    fn write_to(&mut self, log: u16, lines: &mut Vec<u8>) {
        let number = usize::from(log);
        if self.slots.len() <= number {
            let Some(inner) = self.logs.inner.try_lock() else {
                return;
            };
            let new = inner.logs.iter().skip(self.slots.len());
            let new = new.map(|log| log.as_ref().map(|log| Slot::of(&log.shared)));
            self.slots.extend(new);
        }
        match self.slots.get_mut(number) {
            Some(Some(slot)) => slot.write(lines),
            _ => lines.clear(),
        }
    }
}
