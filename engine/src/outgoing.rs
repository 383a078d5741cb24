//! Queues of what waits for a client: who may wait for room in one.
//!
//! Rule O1, for every queue that threads of a program fill and a network thread empties (the pieces
//! of a body, the messages of a socket): on a network thread a send never waits. It would wait for
//! itself, and all connections of the thread with it. It returns that the queue is full, as a send
//! does that was asked not to wait; the program drops what it has, or ends that client.

use std::sync::{Condvar, MutexGuard, PoisonError};

use crate::discard::on_network_thread;

/// Waits while `is_full`, until `changed` is notified; `Err` where it is full and the caller must
/// not wait.
///
/// # Errors
/// The state as it was.
#[doc(hidden)]
pub fn await_room<'a, S>(
    mut state: MutexGuard<'a, S>,
    changed: &Condvar,
    is_full: impl Fn(&S) -> bool,
) -> Result<MutexGuard<'a, S>, MutexGuard<'a, S>> {
    while is_full(&state) {
        if on_network_thread() {
            return Err(state);
        }
        let waited = changed.wait(state);
        // Nothing under such a lock panics half way.
        state = waited.unwrap_or_else(PoisonError::into_inner);
    }
    Ok(state)
}
