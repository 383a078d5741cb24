//! Watching eventfds: a write to one calls a function on a network thread; no worker wakes.
//!
//! [`Handle::watch`](crate::Handle::watch) gives an eventfd to a network thread. Any thread may
//! start and stop the watch afterwards; the network thread does so in its next turn.
//!
//! ```no_run
//! use flatpath::Running;
//! use flatpath::watch::{EventWatch, Eventfd};
//!
//! fn count_interrupts(running: &Running) -> Result<EventWatch, Box<dyn std::error::Error>> {
//!     let event = Eventfd::new()?;
//!     let watch = running.handle().watch(event, |count| println!("{count} more"));
//!     watch.start()?;
//!     watch.eventfd().write(1)?; // here, in another thread, or in another process
//!     Ok(watch) // dropping it ends the watch
//! }
//! ```

pub(crate) mod queue;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use flatpath_driver::Eventfd;

use crate::watch::queue::WatchEntry;
pub use crate::watch::queue::WatchError;
use crate::workers::Shared;

/// An eventfd that a network thread watches from [`EventWatch::start`] to [`EventWatch::stop`].
/// Dropping it stops the watch.
///
/// Cost: a start or stop is one lock and, if the thread sleeps, one wake-up; a signal is one
/// wake-up of the thread and one system call, which takes the count.
#[must_use = "dropped, it watches nothing"]
pub struct EventWatch {
    entry: Arc<WatchEntry>,
    shared: Arc<Shared>,
    thread: usize,
}

impl EventWatch {
    pub(crate) fn new(
        shared: Arc<Shared>,
        event: Eventfd,
        signalled: Box<dyn Fn(u64) + Send + Sync>,
    ) -> EventWatch {
        let number = shared.watches_made.fetch_add(1, Ordering::Relaxed);
        let thread = number % shared.mailboxes.len();
        let entry = WatchEntry::new(&shared.mailboxes[thread].watches, event, signalled);
        EventWatch {
            entry: Arc::new(entry),
            shared,
            thread,
        }
    }

    /// The eventfd, to be written to or handed on.
    pub fn eventfd(&self) -> &Arc<Eventfd> {
        &self.entry.event
    }

    /// Starts the watch. Each start, also of a watch that has started, is followed by a call of
    /// the function on the network thread, with zero if nothing was written.
    ///
    /// # Errors
    /// [`WatchError`]; then it is watched as before, or not.
    pub fn start(&self) -> Result<(), WatchError> {
        let mailbox = &self.shared.mailboxes[self.thread];
        mailbox.watches.start(&self.entry)?;
        mailbox.tell();
        Ok(())
    }

    /// Stops the watch. What is written from now on stays in the eventfd; the function may still
    /// be called for what was taken before the network thread saw this.
    pub fn stop(&self) {
        let mailbox = &self.shared.mailboxes[self.thread];
        if mailbox.watches.stop(&self.entry) {
            mailbox.tell();
        }
    }
}

impl Drop for EventWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for EventWatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EventWatch")
            .field("event", &self.entry.event)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}
