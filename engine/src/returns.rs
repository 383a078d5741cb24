//! What other threads tell a network thread about its connections: fragments have come back, or a
//! stall is over.
//!
//! Rare events: a number is pushed when an account falls to the mark that its connection waits for,
//! not for every fragment. So a locked list does.
//!
//! Ordering
//! - E1 told: push, then `any` set (Release) -> `take` clears it (Acquire) and finds the number.
//!   The waker's own fences order `any` before the sleep test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatpath_driver::{Bell, Wake as _, Waker};
use flatpath_structures::slots::Key;

/// Numbers of connections to look at. See the module.
pub(crate) struct Returns {
    numbers: Mutex<Vec<u64>>,
    any: AtomicBool,
    waker: Waker,
}

impl Returns {
    pub(crate) fn new(waker: Waker) -> Arc<Returns> {
        Arc::new(Returns {
            numbers: Mutex::new(Vec::new()),
            any: AtomicBool::new(false),
            waker,
        })
    }

    /// Whether there is something to take.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The connections to look at; a spurious one does no harm.
    pub(crate) fn take(&self) -> Vec<Key> {
        // ORDER: E1.
        if !self.any() || !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let numbers = {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *numbers)
        };
        numbers.into_iter().map(key_of).collect()
    }
}

impl Bell for Returns {
    fn ring(&self, number: u64) {
        self.numbers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(number);
        // ORDER: E1.
        self.any.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A connection as a number.
pub(crate) fn number_of(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

fn key_of(number: u64) -> Key {
    Key {
        index: number as u32,
        generation: (number >> 32) as u32,
    }
}

/// Ends a stall of its connection from any thread; see
/// [`Stall::Outside`](crate::Stall::Outside).
#[derive(Clone)]
pub struct Resumer {
    returns: Arc<Returns>,
    number: u64,
}

impl Resumer {
    pub(crate) fn new(returns: &Arc<Returns>, key: Key) -> Resumer {
        Resumer {
            returns: Arc::clone(returns),
            number: number_of(key),
        }
    }

    /// The reason is over. Harmless when the connection is not stalled, or gone.
    pub fn resume(&self) {
        self.returns.ring(self.number);
    }
}

impl std::fmt::Debug for Resumer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("Resumer")
            .field(&self.number)
            .finish()
    }
}
