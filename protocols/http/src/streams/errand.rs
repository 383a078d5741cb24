//! What makes a response on the network thread of the connection that waits for it, without a
//! worker: by another connection that it opens, say.
//!
//! ```text
//! handler ─► Errand ─► with the connection ─► advance(io) ─┬─► Responder::send ─► reply
//!                             ▲                            ▼
//!                             └── wake, or the time is over ┘
//! ```
//!
//! Invariants
//! - ER1: it is advanced on the network thread of its connection alone, outside of any lock, when
//!   the response is first waited for and whenever the connection was woken or the time is over
//!   that it has named, until its responder has answered.
//! - ER2: dropped, it is done: its response is on its way, or nothing waits for it any more.

use std::time::Duration;

use flatpath::Io;

use crate::streams::deferred::{Deferred, Pending, Responder};
use crate::streams::passage::Incoming;

/// Does what can be done now. When it is to be called again at the latest, in the time of
/// `Turn::now`.
pub(crate) trait Advance: Send {
    fn advance(&mut self, io: &mut Io<'_>) -> Option<Duration>;
}

/// See the module.
pub(crate) struct Errand {
    by: Box<dyn Advance>,
    end: Option<Duration>,
    /// Where the body of the request goes, until the connection has that.
    incoming: Option<Incoming>,
}

impl Errand {
    /// When it is to be called at the latest.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.end
    }
}

impl Deferred {
    /// A response that is made so; `incoming` takes the body of its request, where that is passed
    /// on.
    pub(crate) fn by<A: Advance + 'static>(
        incoming: Option<Incoming>,
        begin: impl FnOnce(Responder) -> A,
    ) -> Self {
        let (responder, mut deferred) = Self::new();
        deferred.pending_mut().errand = Some(Box::new(Errand {
            by: Box::new(begin(responder)),
            end: None,
            incoming,
        }));
        deferred
    }
}

impl Pending {
    /// What takes the body of the request, once.
    pub(crate) fn take_incoming(&mut self) -> Option<Incoming> {
        self.errand.as_mut()?.incoming.take()
    }

    /// Has its errand do what can be done, if it has one.
    pub(crate) fn advance(&mut self, io: &mut Io<'_>) {
        if let Some(errand) = &mut self.errand {
            errand.end = errand.by.advance(io);
        }
    }
}
