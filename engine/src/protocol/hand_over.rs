//! What a connection is to become after a call.

use std::any::Any;
use std::fmt;

use crate::protocol::connection_handle::ConnectionId;
use crate::protocol::discard::discard;
use crate::tls::Established;

/// A connection's next protocol and the beginning of its session, for
/// [`Io::hand_over`](crate::Io::hand_over). Made by [`Successor::begin`](crate::Successor::begin),
/// on any thread.
///
/// What is inside is known to `successor.rs` only, so that connections know nothing of protocols.
/// Dropped without being carried out, its closure is discarded.
pub struct HandOver(Option<Box<dyn Any + Send>>);

impl HandOver {
    pub(crate) fn new(begun: Box<dyn Any + Send>) -> HandOver {
        HandOver(Some(begun))
    }

    pub(crate) fn into_inner(mut self) -> Option<Box<dyn Any + Send>> {
        self.0.take()
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        if let Some(begun) = self.0.take() {
            discard(begun);
        }
    }
}

impl fmt::Debug for HandOver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HandOver").finish_non_exhaustive()
    }
}

/// What replaces a protocol's part in its connection; the last wish counts.
#[derive(Debug)]
pub(crate) enum Becomes {
    /// Spliced to another one.
    Spliced(ConnectionId),
    /// One of another protocol.
    Successors(HandOver),
    /// One of the listener's protocol: its PROXY header was read.
    Introduced,
    /// One whose handshake is awaited: its protocol begins TLS.
    StartsTls,
    /// One of the listener's protocol: its handshake is complete.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "as it says"))]
    Secured(Box<Established>),
    /// One that only receives.
    ReceiveOnly,
}
