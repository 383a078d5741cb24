//! SIGTERM and SIGINT: the first drains, the second cuts off what is left.
//!
//! Watched from before the server starts: whoever reads `ready` may send a signal at once, and it
//! must find somebody. One that comes during the start drains the server as soon as it runs.

use std::io;
use std::thread;

use flatpath::{Error, Running};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The two signals, being watched.
pub(crate) struct Watch {
    signals: Signals,
}

impl Watch {
    /// Begins to watch: from now on neither signal ends the process by itself.
    pub(crate) fn begin() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::new([SIGTERM, SIGINT])?,
        })
    }

    /// Hands signals on to a server until it has ended.
    pub(crate) fn run(mut self, running: Running) -> Result<(), Error> {
        let handle = running.handle();
        let closer = self.signals.handle();
        let watcher = thread::Builder::new()
            .name("flatpath-signals".into())
            .spawn(move || {
                for (seen, signal) in self.signals.forever().enumerate() {
                    if seen == 0 {
                        log::info!("signal {signal}: draining; a second one forces");
                        handle.drain();
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
