//! What stands between the socket and the protocol of a connection with TLS.
//!
//! What has come is in the inbox, records in the hold; the beginning of one, whose rest has not
//! come, is here.
//!
//! What is to be sent is content until a send takes it: then it is sealed, all that is queued up to
//! a bound, so replies of one turn share a record.
//!
//! Invariants
//! - Z1: a part is shorter than its record, and before all records in the hold.
//! - Z2: nothing is sealed after the closing alert.

use std::sync::Arc;

use flatpath_structures::pool::Buffer;

use crate::protocol::tls_terms::TlsTerms;
use crate::tls::{Alert, Records};

pub(crate) struct Secured {
    pub(crate) records: Records,
    pub(super) terms: Arc<TlsTerms>,
    /// The beginning of a record.
    pub(crate) part: Option<Buffer>,
    /// Bytes at the front of the output that go as they are: what the handshake has left there.
    pub(crate) clear_bytes: usize,
    /// This side's stream is to end, or has.
    end: End,
}

/// The records of a send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sealed {
    /// Bytes to send, from the begin of their room on.
    pub(crate) bytes: usize,
    /// Queued bytes that they were made of.
    pub(crate) moved: usize,
}

#[derive(Clone, Copy, Debug)]
enum End {
    No,
    /// Once all output is sealed.
    Wanted,
    /// At once: the peer has broken the rules.
    Refused(Alert),
    Sealed,
}

impl Secured {
    pub(super) fn new(records: Records, terms: Arc<TlsTerms>, clear_bytes: usize) -> Secured {
        Secured {
            records,
            terms,
            part: None,
            clear_bytes,
            end: End::No,
        }
    }

    /// This side sends no more than what is queued.
    pub(crate) fn end_output(&mut self) {
        if matches!(self.end, End::No) {
            self.end = End::Wanted;
        }
    }

    /// This side sends nothing but an alert.
    pub(crate) fn refuse(&mut self, alert: Alert) {
        if !matches!(self.end, End::Sealed) {
            self.end = End::Refused(alert);
        }
    }

    /// The closing alert of this side was sealed: nothing more is.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.end, End::Sealed)
    }

    /// Why nothing more is to be opened or sent.
    pub(crate) fn refused(&self) -> Option<Alert> {
        match self.end {
            End::Refused(alert) => Some(alert),
            _ => None,
        }
    }

    /// The closing alert, if all that is to be sent before it is sealed; how long it is in the
    /// room, or 0.
    pub(crate) fn put_closing_alert(&mut self, room: &mut [u8], all_is_sealed: bool) -> usize {
        let alert = match self.end {
            End::Wanted if all_is_sealed => Alert::CLOSE_NOTIFY,
            End::Refused(alert) => alert,
            End::No | End::Wanted | End::Sealed => return 0,
        };
        self.end = End::Sealed;
        self.records.closing_alert(alert, room).unwrap_or(0)
    }

    /// Whether there is anything to send beside output.
    pub(crate) fn has_words(&self) -> bool {
        match self.end {
            End::Wanted | End::Refused(_) => true,
            End::No => self.records.owes_answer(),
            End::Sealed => false,
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use crate::connection::state::Rare;

    #[test]
    fn what_an_idle_connection_keeps_is_small() {
        // Beside these it keeps what rustls needs for further keys, 816 bytes.
        let bytes = size_of::<Rare>() + size_of::<Secured>();
        assert!(bytes <= 448, "{bytes} bytes");
    }
}
