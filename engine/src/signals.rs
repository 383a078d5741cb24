//! SIGTERM and SIGINT: the first drains, the second cuts off what is left. SIGUSR1, if somebody has
//! something to tell, lets it be told.
//!
//! Watched from before the server starts: whoever reads `ready` may send a signal at once, and it
//! must find somebody. One that comes during the start drains the server as soon as it runs.

use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::running::{Handle, Running};

/// Called for each SIGUSR1.
type Report = Box<dyn FnMut(&Handle) + Send>;

/// Signals, being watched. [`Server::run`](crate::Server::run) does all of this by itself; whoever
/// calls [`Server::start`](crate::Server::start) may want the same.
pub struct SignalWatch {
    signals: Signals,
    report: Option<Report>,
}

impl SignalWatch {
    /// Begins to watch: from now on neither SIGTERM nor SIGINT ends the process by itself.
    ///
    /// # Errors
    /// The signals cannot be watched.
    pub fn begin() -> Result<SignalWatch, Error> {
        let signals = Signals::new([SIGTERM, SIGINT]).map_err(Error::Signals)?;
        Ok(SignalWatch {
            signals,
            report: None,
        })
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

    /// Hands signals on to a server until it has ended.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn run(self, running: Running) -> Result<(), Error> {
        self.run_with(running, || {})
    }

    /// The same, and calls `draining` once, on a thread of its own, right after the first signal
    /// has begun to drain the server. It must not block: the second signal waits for it. A server
    /// that ends without a signal drops it uncalled.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn run_with(
        mut self,
        running: Running,
        draining: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let handle = running.handle();
        let closer = self.signals.handle();
        let watcher = thread::Builder::new()
            .name("flatpath-signals".into())
            .spawn(move || self.hand_on(&handle, draining));
        let watcher = watcher.map_err(Error::Thread)?;
        let outcome = running.wait();
        closer.close();
        if watcher.join().is_err() {
            log::error!("the thread that watches signals panicked; this is a bug");
        }
        outcome
    }

    fn hand_on(&mut self, handle: &Handle, draining: impl FnOnce()) {
        let mut draining = Some(draining);
        for signal in self.signals.forever() {
            if signal == SIGUSR1 {
                if let Some(report) = &mut self.report {
                    report(handle);
                }
            } else if let Some(draining) = draining.take() {
                log::info!("signal {signal}: draining; a second one forces");
                handle.drain();
                draining();
            } else {
                log::warn!("signal {signal}: forced");
                handle.force();
            }
        }
    }
}
