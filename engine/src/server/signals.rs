//! Signals that end a server: the first SIGTERM, SIGINT or SIGHUP drains it, after its delay; a
//! later SIGTERM or SIGINT cuts off what is left. The same signal within a second of the first one
//! is a repeat of it and does nothing: `timeout` of coreutils, for one, signals the process and
//! then its group, of which the process is a member. SIGUSR1 runs the report, if one is registered.
//! SIGUSR2 is logged and does nothing else.
//!
//! SIGHUP calls the reload function instead, if one is registered, unless the terminal is gone that
//! the process was started on: closing a terminal ends what was started there. Otherwise it never
//! forces: a terminal that closes may send it twice, and a supervisor may send it with SIGTERM.
//! Where the process was started with SIGHUP ignored (`nohup`), it stays ignored.
//!
//! SIGXFSZ no longer ends the process once a server starts: a write beyond the limit on the size
//! of files (`ulimit -f`, `LimitFSIZE=`) fails with `EFBIG`, for which the protocols have a word.
//! The signal gets a handler that does nothing. Ignored, it would stay so in programs that the
//! process starts.
//!
//! `Server::run` watches from before the server starts: a signal may come as soon as `ready` is
//! written. One that comes during the start drains the server as soon as it runs. `Running::wait`
//! watches for as long as it waits, what the program does not (`waited.rs`).

mod waited;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use flatpath_structures::panics::contain;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::server::running::{Handle, Running};
use crate::server::threads;

use waited::Wait;

/// Lets a write that is too long for the process's limit fail instead of ending the process.
pub(crate) fn outlive_file_size_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Nothing reads the flag: any handler keeps the signal from ending the process.
        let seen = Arc::new(AtomicBool::new(false));
        if let Err(cause) = signal_hook::flag::register(SIGXFSZ, seen) {
            log::warn!("a write beyond the limit on file sizes will end the process: {cause}");
        }
    });
}

/// The signals that end a process unless it does something about them, and that drain a server.
const ENDING: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// How soon after the first signal the same one is a repeat of it.
const REPEAT_MAX: Duration = Duration::from_secs(1);

/// Called for each SIGUSR1.
type Report = Box<dyn FnMut(&Handle) + Send>;

/// What SIGHUP does instead of stopping the server.
type Reload = Box<dyn FnMut() + Send>;

/// What a signal has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: there is a first signal, and there are later ones.
pub enum Stopping {
    /// The first signal: the server drains.
    Draining,
    /// A later one: what is left is cut off.
    Forced,
}

/// Signals, being watched. [`Server::run`](crate::Server::run) and [`Running::wait`] do it by
/// themselves; programs that want to hear of signals, or to reload at SIGHUP, do it with this.
///
/// ```no_run
/// use flatpath::{Error, Running, Server, SignalWatch};
///
/// # fn serve(server: Server) -> Result<(), Error> {
/// let signals = SignalWatch::begin()?; // before there are threads to interrupt
/// let running: Running = server.start()?;
/// let signals = signals.reloading(|| eprintln!("SIGHUP: reading settings again"));
/// signals.run(running) // until SIGTERM or SIGINT, and the drain that follows
/// # }
/// ```
pub struct SignalWatch {
    signals: Signals,
    report: Option<Report>,
    reload: Option<Reload>,
    had_terminal: bool,
    /// It is that of a wait, whose signals were not watched before.
    wait: Option<Wait>,
}

flatpath_structures::opaque_debug! {
    impl[] SignalWatch as "SignalWatch";
}

impl SignalWatch {
    /// Begins to watch: from now on SIGTERM, SIGINT, SIGUSR2 and, unless it is ignored, SIGHUP do
    /// not end the process by themselves.
    ///
    /// # Errors
    /// The signals cannot be watched.
    pub fn begin() -> Result<SignalWatch, Error> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGUSR2]).map_err(Error::Signals)?;
        let (ignored, _) = masks();
        if !ignored.has(SIGHUP) {
            signals.add_signal(SIGHUP).map_err(Error::Signals)?;
        }
        Ok(SignalWatch {
            signals,
            report: None,
            reload: None,
            had_terminal: has_terminal(),
            wait: None,
        })
    }

    /// That of a program which waits for a server and watches no signals: of those that would end
    /// the process. `None`: there are none.
    ///
    /// # Errors
    /// The signals cannot be watched.
    pub(crate) fn of_wait() -> Result<Option<SignalWatch>, Error> {
        let begun = Wait::begin()?;
        Ok(begun.map(|(wait, signals)| SignalWatch {
            signals,
            report: None,
            reload: None,
            had_terminal: has_terminal(),
            wait: Some(wait),
        }))
    }

    /// Begins to watch SIGUSR1 as well, and calls `report` for each, on the thread that watches. It
    /// must not block: other signals wait for it.
    ///
    /// # Errors
    /// The signal cannot be watched.
    pub fn reporting(
        mut self,
        report: impl FnMut(&Handle) + Send + 'static,
    ) -> Result<SignalWatch, Error> {
        self.signals.add_signal(SIGUSR1).map_err(Error::Signals)?;
        self.report = Some(Box::new(report));
        Ok(self)
    }

    /// From now on SIGHUP calls `reload`, on the thread that watches, and does not stop the server:
    /// to open log files again, for one. It must not block: other signals wait for it. The SIGHUP
    /// of a terminal that closes drains all the same.
    #[must_use]
    pub fn reloading(mut self, reload: impl FnMut() + Send + 'static) -> SignalWatch {
        self.reload = Some(Box::new(reload));
        self
    }

    /// Hands signals on to a server until it has ended.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn run(self, running: Running) -> Result<(), Error> {
        self.run_with(running, |_| {})
    }

    /// The same, and calls `stopping` after each signal that has begun to drain or force the
    /// server, on a thread of its own. It must not block: other signals wait for it. It is dropped
    /// when the server has ended.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn run_with(
        mut self,
        running: Running,
        stopping: impl FnMut(Stopping) + Send + 'static,
    ) -> Result<(), Error> {
        let handle = running.handle();
        let closer = self.signals.handle();
        let watcher = threads::start("flatpath-signals".into(), move || {
            self.hand_on(&handle, stopping);
        });
        let watcher = watcher.map_err(Error::Thread)?;
        let outcome = running.ended();
        closer.close();
        if watcher.join().is_err() {
            log::error!("the thread that watches signals panicked; this is a bug");
        }
        outcome
    }

    fn hand_on(&mut self, handle: &Handle, mut stopping: impl FnMut(Stopping)) {
        // The signal that began the drain, and when.
        let mut first: Option<(i32, Instant)> = None;
        for signal in self.signals.forever() {
            if signal == SIGHUP
                && let Some(reload) = &mut self.reload
                && has_terminal() >= self.had_terminal
            {
                survive("SIGHUP", reload);
                continue;
            }
            match signal {
                SIGUSR1 => {
                    if let Some(report) = &mut self.report {
                        survive("SIGUSR1", || report(handle));
                    }
                }
                SIGUSR2 => log::info!("{} does nothing here", name_of(signal)),
                _ if first.is_none() => {
                    let name = name_of(signal);
                    log::info!("{name}: draining; a second signal forces");
                    first = Some((signal, Instant::now()));
                    if let Some(wait) = &mut self.wait {
                        wait.was_told = true;
                    }
                    handle.drain();
                    survive("a drain", || stopping(Stopping::Draining));
                }
                SIGHUP => {}
                _ if first.is_some_and(|first| is_repeat(first, (signal, Instant::now()))) => {
                    log::info!("{} again within a second: counted once", name_of(signal));
                }
                _ => {
                    log::warn!("{}: forced", name_of(signal));
                    handle.force();
                    survive("a forced end", || stopping(Stopping::Forced));
                }
            }
        }
    }
}

/// Whether a signal is the first one once more.
fn is_repeat((first, began): (i32, Instant), (signal, at): (i32, Instant)) -> bool {
    signal == first && at.saturating_duration_since(began) < REPEAT_MAX
}

/// The name of a signal, as in signal(7).
fn name_of(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("a signal")
}

/// Calls a function of the program. One that panics must not end the thread: the signals are
/// caught, and a server that learns of none could not be stopped by them.
fn survive(what: &str, act: impl FnOnce()) {
    if contain(act).is_none() {
        log::error!("the function that is called for {what} panicked");
    }
}

/// Whether the process has a controlling terminal. What cannot be found out is not there.
fn has_terminal() -> bool {
    std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| names_terminal(&stat))
}

/// Reads `tty_nr` of proc_pid_stat(5), the fifth field after the name in parentheses.
fn names_terminal(stat: &str) -> bool {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let number = fields.split_ascii_whitespace().nth(4);
    number.is_some_and(|number| number != "0")
}

/// A set of signals: bit 0 is signal 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mask(u64);

impl Mask {
    /// Reads a mask of proc_pid_status(5), empty if it is not there.
    fn read(status: &str, name: &str) -> Mask {
        let lines = status.lines().filter_map(|line| line.strip_prefix(name));
        let mut masks =
            lines.filter_map(|rest| u64::from_str_radix(rest.strip_prefix(':')?.trim(), 16).ok());
        Mask(masks.next().unwrap_or_default())
    }

    fn has(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }
}

/// The signals that this process ignores, as its parent may have asked for, and those that it
/// handles. What cannot be found out is neither.
fn masks() -> (Mask, Mask) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    (Mask::read(&status, "SigIgn"), Mask::read(&status, "SigCgt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_within_a_second_is_a_repeat() {
        let began = Instant::now();
        let after = |millis| began + Duration::from_millis(millis);
        assert!(is_repeat((SIGTERM, began), (SIGTERM, began)));
        assert!(is_repeat((SIGTERM, began), (SIGTERM, after(999))));
        assert!(!is_repeat((SIGTERM, began), (SIGTERM, after(1_000))));
        assert!(!is_repeat((SIGTERM, began), (SIGINT, after(1))));
    }

    #[test]
    fn the_number_of_the_terminal_is_read() {
        assert!(names_terminal("7 (a) b) S 1 7 7 34816 7 0"));
        assert!(!names_terminal("7 (flatpath) S 1 7 7 0 -1 0"));
        assert!(!names_terminal(""));
    }

    #[test]
    fn the_masks_of_ignored_and_of_handled_signals_are_read() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t4000\n";
        let (ignored, caught) = (Mask::read(status, "SigIgn"), Mask::read(status, "SigCgt"));
        assert!(ignored.has(SIGHUP) && ignored.has(13) && !ignored.has(SIGTERM));
        assert!(caught.has(SIGTERM) && !caught.has(SIGHUP));
        assert_eq!(Mask::read("", "SigIgn"), Mask::default());
    }
}
