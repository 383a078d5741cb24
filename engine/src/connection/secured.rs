//! A connection with TLS: what of `layer.rs` the rest asks for.

#![cfg_attr(
    not(feature = "tls"),
    expect(
        unreachable_code,
        reason = "there is no value of the types of TLS then"
    )
)]

use std::sync::Arc;

use crate::protocol::phase::Phase;
use crate::protocol::tls_terms::TlsTerms;
use crate::tls::{OVERHEAD_BYTES_MAX, Records};

use super::Connection;
use super::layer::{Sealed, Secured};

impl Connection {
    /// A handshake is complete: from now on the socket carries records.
    pub(crate) fn secure(&mut self, records: Records, terms: Arc<TlsTerms>) {
        let clear_bytes = self.output.waiting_bytes();
        self.rare().secured = Some(Box::new(Secured::new(records, terms, clear_bytes)));
        self.inbox.begin_records();
    }

    pub(crate) fn tls(&self) -> Option<&Arc<TlsTerms>> {
        let secured = self.rare.as_ref()?.secured.as_ref();
        secured.map(|secured| &secured.terms)
    }

    #[inline]
    pub(crate) fn is_secured(&self) -> bool {
        self.rare
            .as_ref()
            .is_some_and(|rare| rare.secured.is_some())
    }

    /// Makes the records of the next send, in a room for them: of at most `bytes_max` queued bytes,
    /// and of a file no more than is at hand. `None` where nothing more can be sent: what is in the
    /// room then is not to be sent.
    pub(crate) fn seal(&mut self, room: &mut [u8], bytes_max: usize) -> Option<Sealed> {
        let secured = self.rare.as_mut()?.secured.as_deref_mut()?;
        let output = &mut self.output;
        let mut made = Sealed::default();
        if secured.clear_bytes > 0 {
            let most = secured.clear_bytes.min(bytes_max);
            made.moved = output.take_front(&mut room[..most]).ok()?;
            made.bytes = made.moved;
            secured.clear_bytes -= made.moved;
            if secured.clear_bytes > 0 {
                return Some(made);
            }
        }
        if secured.refused().is_some() {
            output.drop_waiting();
        } else {
            let records = &mut secured.records;
            made.bytes += records.answer(&mut room[made.bytes..]).ok()?;
            while made.moved < bytes_max && output.has_waiting() {
                // The closing alert has room after it, and what `make_ready` may put before it.
                let left = room
                    .len()
                    .saturating_sub(made.bytes + 2 * OVERHEAD_BYTES_MAX);
                if records.content_place(left).is_empty() {
                    break;
                }
                made.bytes += records.make_ready(&mut room[made.bytes..]).ok()?;
                let room = &mut room[made.bytes..][..left];
                let mut place = records.content_place(left);
                place.end = place.end.min(place.start + bytes_max - made.moved);
                let content_bytes = output.take_front(&mut room[place]).ok()?;
                if content_bytes == 0 {
                    break;
                }
                made.bytes += records.seal(room, content_bytes).ok()?;
                made.moved += content_bytes;
            }
        }
        made.bytes += secured.put_closing_alert(&mut room[made.bytes..], !output.has_waiting());
        Some(made)
    }

    /// The stream has ended where its sender has more to say or to hear, and has not said that it
    /// ends. Without that word the end of a stream may be an attacker's doing (RFC 8446
    /// section 6.1), which takes nothing away between two requests.
    pub(crate) fn is_cut_off(&mut self) -> bool {
        let is_between = self.is_between_requests();
        self.secured()
            .is_some_and(|it| it.part.is_some() || !it.records.peer_has_closed() && !is_between)
    }

    /// Whether nothing of a request waits, none is in work, and no reply is under way.
    fn is_between_requests(&self) -> bool {
        let is_awaiting = matches!(self.phase, Phase::Idle | Phase::Head);
        let nothing_waits = self.inbox.is_empty() && self.jobs_out == 0;
        is_awaiting && nothing_waits && !self.is_spliced() && self.is_sent()
    }

    /// Whether records of the peer's were not accepted, and it is to be told so.
    pub(crate) fn is_refused(&self) -> bool {
        let rare = self.rare.as_ref();
        let secured = rare.and_then(|rare| rare.secured.as_ref());
        secured.is_some_and(|secured| secured.refused().is_some())
    }

    /// Whether the end of this side's stream has to be said before FIN: from now on it is.
    pub(crate) fn owes_closing_alert(&mut self) -> bool {
        self.secured().is_some_and(|secured| {
            secured.end_output();
            !secured.has_ended()
        })
    }

    pub(crate) fn secured(&mut self) -> Option<&mut Secured> {
        self.rare.as_mut()?.secured.as_deref_mut()
    }

    /// Something stands between the socket and the protocol: TLS, or what the connection is to
    /// become.
    #[inline]
    pub(crate) fn is_indirect(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.secured.is_some() || rare.becomes.is_some())
    }
}
