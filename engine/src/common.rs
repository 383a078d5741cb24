//! What the calls of all protocols on one network thread have in common, whatever its driver.

use std::sync::Arc;

use crate::access_log::{AccessLog, LogEnd};
use crate::lifecycle::ServerState;
use crate::limits::Limits;
use crate::prompt::Tries;
use crate::refusals::Refusals;
use crate::statistics::{Counters, ThreadCounters};
use crate::turn::Turn;
use crate::wakes::Wakes;
use crate::worker::{Dispatcher, Shared};

pub(crate) struct Common {
    /// Which network thread this is, from 0.
    pub(crate) number: u16,
    pub(crate) turn: Turn,
    pub(crate) limits: Limits,
    /// Which change of them the thread has taken over last.
    pub(crate) limits_version: u32,
    /// How far the thread has followed the server to its end.
    pub(crate) server_state: ServerState,
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) counters: Arc<ThreadCounters>,
    pub(crate) refusals: Refusals,
    /// Requests that were tried here in this turn.
    pub(crate) tries: Tries,
    pub(crate) access_log: Option<AccessLog>,
    /// What other threads say about connections.
    pub(crate) wakes: Arc<Wakes>,
}

impl Common {
    /// What the thread counts for a listener, by its own number for it.
    #[inline]
    pub(crate) fn counters(&self, listener: u16) -> &Counters {
        self.counters.of(listener)
    }

    /// What a session is to log its rest with, whose connection's kernel took so many bytes.
    pub(crate) fn log_end(&mut self, sent_bytes: u64) -> Option<LogEnd<'_>> {
        let turn = self.turn;
        self.access_log.as_mut().map(|log| LogEnd {
            log,
            turn,
            sent_bytes,
        })
    }
}
