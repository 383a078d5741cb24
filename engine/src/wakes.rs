//! What other threads tell a network thread about its connections: their program wants them called,
//! or fragments have come back.
//!
//! Both are wake sets: a connection is in each at most once, however often it is woken, so they are
//! bounded by the table of connections. Connections that are gone are found to be so when the
//! thread takes their keys.
//!
//! Ordering
//! - WE1 woken: the key is in its set -> the thread's waker, whose fences order it before the sleep
//!   test ([`Wakes::any`]). What was written before a wake is seen by the call that follows (WE1 of
//!   the wake set).

use std::sync::Arc;

use flatpath_driver::{QuotaWaker, Waker};
use flatpath_structures::slots::Key;
use flatpath_structures::wake_set::WakeSet;

use crate::pools::Pools;

/// See the module.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// To be called by [`Protocol::notified`](crate::Protocol::notified).
    pub(crate) woken: WakeSet,
    /// Their fragments have fallen to the mark that they wait for.
    pub(crate) returned: WakeSet,
    waker: Waker,
    /// What any thread charges what it sends to.
    pub(crate) pools: Arc<Pools>,
}

impl Wakes {
    pub(crate) fn new(places: u32, waker: Waker, pools: Arc<Pools>) -> Arc<Wakes> {
        Arc::new(Wakes {
            woken: WakeSet::new(places),
            returned: WakeSet::new(places),
            waker,
            pools,
        })
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.woken.is_empty() || !self.returned.is_empty()
    }

    pub(crate) fn wake(&self, key: Key) {
        // ORDER: WE1. Another insert of the key wakes the thread, if it was there already.
        if self.woken.insert(key) {
            self.waker.wake();
        }
    }
}

impl QuotaWaker for Wakes {
    fn wake(&self, number: u64) {
        // ORDER: WE1: the key before the wake.
        if self.returned.insert(Key::from_u64(number)) {
            self.waker.wake();
        }
    }
}
