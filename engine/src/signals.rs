//! SIGTERM and SIGINT: the first drains, the second cuts off what is left.
//!
//! Watched from before the server starts: whoever reads `ready` may send a signal at once, and it
//! must find somebody. One that comes during the start drains the server as soon as it runs.

use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::running::Running;

/// SIGTERM and SIGINT, being watched. [`Server::run`](crate::Server::run) does all of this by
/// itself; whoever calls [`Server::start`](crate::Server::start) may want the same.
pub struct SignalWatch {
    signals: Signals,
}

impl SignalWatch {
    /// Begins to watch: from now on neither signal ends the process by itself.
    ///
    /// # Errors
    /// The signals cannot be watched.
    pub fn begin() -> Result<SignalWatch, Error> {
        let signals = Signals::new([SIGTERM, SIGINT]).map_err(Error::Signals)?;
        Ok(SignalWatch { signals })
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
        let mut draining = Some(draining);
        let handle = running.handle();
        let closer = self.signals.handle();
        let watcher = thread::Builder::new()
            .name("flatpath-signals".into())
            .spawn(move || {
                for (seen, signal) in self.signals.forever().enumerate() {
                    if seen == 0 {
                        log::info!("signal {signal}: draining; a second one forces");
                        handle.drain();
                        if let Some(draining) = draining.take() {
                            draining();
                        }
                    } else {
                        log::warn!("signal {signal}: forced");
                        handle.force();
                    }
                }
            });
        let watcher = watcher.map_err(Error::Thread)?;
        let outcome = running.wait();
        closer.close();
        if watcher.join().is_err() {
            log::error!("the thread that watches signals panicked; this is a bug");
        }
        outcome
    }
}
