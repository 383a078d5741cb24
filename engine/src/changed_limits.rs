//! Limits of a running server that change: who leaves them, and how network threads find them.
//!
//! What has changed lies here for all network threads, each of which takes it at its next turn
//! (`network/relimit.rs`). The last change is all that counts: it names every limit.
//!
//! Ordering
//! - L-E1 changed: the change, then `version` (Release), fence, then each waker that is up -> a
//!   network thread puts its waker up, fence (in the driver's wait), looks at `version`. One of the
//!   two sees the other's store; the change itself is read under the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use flatpath_structures::lock::Lock;

use crate::limits::Limits;
use crate::listener_limits::ListenerLimits;

/// What holds from now on.
#[derive(Clone, Debug)]
pub(crate) struct LimitChange {
    pub(crate) server: Limits,
    /// In the order of the server's listeners; those that are missing keep theirs.
    pub(crate) listeners: Vec<ListenerLimits>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ChangedLimits {
    version: AtomicU32,
    last: Lock<Option<Arc<LimitChange>>>,
}

impl ChangedLimits {
    /// The caller wakes the network threads next.
    pub(crate) fn set(&self, change: LimitChange) {
        // Nothing under the lock panics half way.
        let mut last = self.last.lock();
        *last = Some(Arc::new(change));
        // ORDER: L-E1.
        self.version.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// How often they have changed. One load.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        // ORDER: Relaxed: the lock orders what it counts.
        self.version.load(Ordering::Relaxed)
    }

    /// The last change, and its version.
    pub(crate) fn last(&self) -> Option<(u32, Arc<LimitChange>)> {
        let last = self.last.lock();
        Some((self.version(), Arc::clone(last.as_ref()?)))
    }
}

impl Limits {
    /// Takes over what can change while a server runs; see
    /// [`Handle::change_limits`](crate::Handle::change_limits).
    pub(crate) fn take_changeable(&mut self, from: &Limits) {
        self.workers_per_listener = from.workers_per_listener;
        self.head_timeout = from.head_timeout;
        self.idle_timeout = from.idle_timeout;
        self.body_timeout = from.body_timeout;
        self.body_rate_min = from.body_rate_min;
        self.write_timeout = from.write_timeout;
        self.stall_timeout = from.stall_timeout;
        self.wait_timeout = from.wait_timeout;
        self.push_interval = from.push_interval;
        self.spliced_timeout = from.spliced_timeout;
        self.linger_timeout = from.linger_timeout;
        self.drain_delay = from.drain_delay;
        self.drain_timeout = from.drain_timeout;
        self.drain_idle_timeout = from.drain_idle_timeout;
    }
}
