//! The signals of a program that waits for a server ([`Running::wait`](crate::Running::wait)) and
//! watches none itself: what would end the process drains the server, as with
//! [`Server::run`](crate::Server::run).
//!
//! A signal that the program handles or ignores, at the time of the wait, stays its own.
//!
//! Invariants
//! - SW1: a signal that was taken here does what it would do without this while no server is waited
//!   for. Once one has ended a server it does nothing more then: it may come twice, and the process
//!   is on its way to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatpath_structures::lock::Lock;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::error::Error;

use super::{ENDING, masks};

/// What was taken, for the whole process.
struct Taken {
    /// The signals, each once.
    signals: Vec<i32>,
    /// Waits that last.
    waits: usize,
    /// Has a signal do what it does by default: no server is waited for.
    is_free: Option<Arc<AtomicBool>>,
}

static TAKEN: Lock<Taken> = Lock::new(Taken {
    signals: Vec::new(),
    waits: 0,
    is_free: None,
});

/// The signals of one wait, until it is dropped.
pub(super) struct Wait {
    /// A signal has come.
    pub(super) was_told: bool,
}

impl Wait {
    /// Takes the signals that would end the process. `None`: there are none.
    ///
    /// # Errors
    /// They cannot be watched.
    pub(super) fn begin() -> Result<Option<(Wait, Signals)>, Error> {
        let mut taken = TAKEN.lock();
        take_new(&mut taken)?;
        if taken.signals.is_empty() {
            return Ok(None);
        }
        let signals = Signals::new(&taken.signals).map_err(Error::Signals)?;
        taken.waits += 1;
        taken.set_free(false);
        Ok(Some((Wait { was_told: false }, signals)))
    }
}

/// Takes what is the kernel's to handle.
fn take_new(taken: &mut Taken) -> Result<(), Error> {
    let (ignored, caught) = masks();
    let is_free = Arc::clone(taken.is_free.get_or_insert_default());
    for signal in ENDING {
        let is_default = !ignored.has(signal) && !caught.has(signal);
        if is_default {
            let condition = Arc::clone(&is_free);
            flag::register_conditional_default(signal, condition).map_err(Error::Signals)?;
            taken.signals.push(signal); // OURS: a number.
        }
    }
    Ok(())
}

impl Taken {
    fn set_free(&self, is_free: bool) {
        if let Some(condition) = &self.is_free {
            // ORDER: SeqCst: a handler reads it so; nothing else is published.
            condition.store(is_free, Ordering::SeqCst);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock();
        taken.waits -= 1;
        if taken.waits == 0 && !self.was_told {
            taken.set_free(true);
        }
    }
}
