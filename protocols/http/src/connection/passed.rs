//! The connection's side of a request body that is passed on to another connection: see `passage`.
//!
//! The response is made elsewhere (`errand`), and waits in the reorder buffer as any such. The body
//! is taken meanwhile, without a job: what arrives goes to the passage, or waits in the socket for
//! room there. A reply that begins before the body is complete says that it is the last of its
//! connection; the body is passed on all the same until the reply is, as both may belong together.
//!
//! Invariants
//! - PB1: such a request is the one that is due: its body is begun only when no reply is owed, and
//!   nothing after it is looked at before its reply is queued.
//! - PB2: whatever ends the body before its end drops `PendingBody::incoming`, which tells the
//!   taker.

use flatpath::Stall;

use crate::connection::pending_body::{BodyMode, PendingBody};
use crate::connection::state::{Session, Stage};
use crate::service::Service;

impl<S: Service> Session<S> {
    /// Whether the body of a request is to come that is passed on, and would find room.
    pub(crate) fn is_passing(&self) -> bool {
        self.stage == Stage::Body && self.pending_body.as_ref().is_some_and(|it| it.passes())
    }

    /// A reply is about to begin. True: the body of its request, which is passed on, is not
    /// complete, so that it is the last one.
    pub(crate) fn precedes_its_body(&mut self) -> bool {
        let precedes = self.has_passed_body();
        self.lingers |= precedes;
        precedes
    }

    /// Whether the body of a request is to come that is passed on.
    pub(crate) fn has_passed_body(&self) -> bool {
        let pending_body = self.pending_body.as_ref();
        self.stage == Stage::Body && pending_body.is_some_and(|it| it.mode == BodyMode::Passed)
    }
}

/// Passes data on, and the end if that is all of it. `Some` when it has to wait and was not taken.
pub(crate) fn take_data(pending_body: &mut PendingBody, data: &[u8]) -> Option<Stall> {
    let is_complete = pending_body.decoder.is_complete();
    let incoming = pending_body.incoming.as_mut()?;
    let stall = incoming.put(data);
    if stall.is_none() && is_complete {
        incoming.complete(std::mem::take(&mut pending_body.trailers.0));
    }
    stall
}
