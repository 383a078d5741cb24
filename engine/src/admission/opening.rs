//! Whether a connection that a protocol wishes may be opened, but for its place. The first row that
//! holds decides:
//!
//! | this network thread, or the server      | verdict                                    |
//! |-----------------------------------------|--------------------------------------------|
//! | is ended by force                       | refused: [`ConnectReason::Draining`]       |
//! | has connections that wait for memory    | refused: [`ConnectReason::NoMemory`]       |
//! | none of these                           | it claims a place ([`Claim::opened`])      |
//!
//! What is opened brings bytes, for which there is no buffer while others wait for one: it would
//! hold a connection of the peer's and wait with it. Its protocol can say so to its client at once.
//!
//! A place is claimed as a newcomer's: connections that rest give theirs, and so may those that
//! last, as the rules for places have it (`claim.rs`). No listener and no address has a limit on
//! what is opened. Descriptors are in the same account, because each open connection counts there;
//! where the kernel has none nevertheless, the socket cannot be made, and that is the reason.
//!
//! [`Claim::opened`]: super::claim::Claim::opened

use crate::protocol::connect::ConnectReason;

/// What the verdict depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// What is open is being cut off.
    pub(crate) is_forced: bool,
    /// Connections wait for memory, or did a moment ago.
    pub(crate) waits_for_memory: bool,
}

/// Whether a connection may be opened.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Open,
    Refuse(ConnectReason),
}

impl Opening {
    pub(crate) fn of(facts: Facts) -> Opening {
        match facts {
            Facts {
                is_forced: true, ..
            } => Opening::Refuse(ConnectReason::Draining),
            Facts {
                waits_for_memory: true,
                ..
            } => Opening::Refuse(ConnectReason::NoMemory),
            Facts { .. } => Opening::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_that_holds_decides() {
        for (is_forced, waits_for_memory, verdict) in [
            (false, false, Opening::Open),
            (false, true, Opening::Refuse(ConnectReason::NoMemory)),
            (true, false, Opening::Refuse(ConnectReason::Draining)),
            (true, true, Opening::Refuse(ConnectReason::Draining)),
        ] {
            let facts = Facts {
                is_forced,
                waits_for_memory,
            };
            assert_eq!(Opening::of(facts), verdict, "{facts:?}");
        }
    }
}
