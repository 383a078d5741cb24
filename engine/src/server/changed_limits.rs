//! Limits of a running server that change: who leaves them, and how network threads find them.
//!
//! What has changed lies here for all network threads, each of which takes it at its next turn
//! (`network/relimit.rs`). The last change is all that counts: it names every limit.

use std::sync::Arc;

use flatpath_structures::lock::Lock;

use crate::limits::Limits;
use crate::server::listener_limits::ListenerLimits;

/// What holds from now on.
#[derive(Clone, Debug)]
pub(crate) struct LimitChange {
    pub(crate) server: Limits,
    /// In the order of the server's listeners; those that are missing keep theirs.
    pub(crate) listeners: Vec<ListenerLimits>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ChangedLimits(Lock<Option<(u32, Arc<LimitChange>)>>);

impl ChangedLimits {
    /// The caller tells the network threads next.
    pub(crate) fn set(&self, change: LimitChange) {
        let mut last = self.0.lock();
        let version = last.as_ref().map_or(0, |(version, _)| *version);
        *last = Some((version.wrapping_add(1), Arc::new(change)));
    }

    /// The last change, if it came after this one, which it is then.
    pub(crate) fn after(&self, known: &mut u32) -> Option<Arc<LimitChange>> {
        let last = self.0.lock();
        let (version, change) = last.as_ref().filter(|(version, _)| version != known)?;
        *known = *version;
        Some(Arc::clone(change))
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
