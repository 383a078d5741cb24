//! A connection with TLS: what of `layer.rs` the rest asks for.

#![cfg_attr(
    not(feature = "tls"),
    expect(
        unreachable_code,
        reason = "there is no value of the types of TLS then"
    )
)]

use std::sync::Arc;

use flatpath_driver::Piece;

use crate::phase::Phase;
use crate::tls::Records;
use crate::tls_terms::TlsTerms;

use super::Connection;
use super::layer::{Front, Secured};

impl Connection {
    /// A handshake is complete: from now on the socket carries records.
    pub(crate) fn secure(&mut self, records: Records, terms: Arc<TlsTerms>) {
        let clear_bytes = self.output.waiting_bytes();
        self.rare().secured = Some(Box::new(Secured::new(records, terms, clear_bytes)));
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

    /// Makes the records of the next send, which `put` takes one by one: of at most `bytes_max`
    /// queued bytes. How many bytes it was; `None` where nothing more can be sent, and what `put`
    /// was given is to be sent to nobody.
    pub(crate) fn seal(&mut self, bytes_max: usize, mut put: impl FnMut(Vec<u8>)) -> Option<usize> {
        let secured = self.rare.as_mut()?.secured.as_deref_mut()?;
        let output = &mut self.output;
        let mut moved = 0;
        if secured.clear_bytes > 0 {
            let clear = output.take_front(secured.clear_bytes, |bytes| put(bytes.concat()));
            moved = clear.ok()?;
            secured.clear_bytes -= moved;
            if secured.clear_bytes > 0 {
                return Some(moved);
            }
        }
        if secured.refused().is_some() {
            output.drop_waiting();
        } else {
            let mut sealed = secured.records.answer(&mut put);
            let content = output.take_front(bytes_max, |content| {
                if sealed.is_ok() {
                    sealed = secured.records.seal(content, &mut put);
                }
            });
            moved += content.ok()?;
            sealed.ok()?;
        }
        if let Some(words) = secured.take_last_words(!output.has_waiting()) {
            put(words);
        }
        Some(moved)
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
        let nothing_waits = self.input.is_none() && !self.holds_pieces() && self.jobs_out == 0;
        is_awaiting && nothing_waits && self.peer().is_none() && self.is_sent()
    }

    /// Whether records of the peer's were not accepted, and it is to be told so.
    pub(crate) fn is_refused(&self) -> bool {
        let rare = self.rare.as_ref();
        let secured = rare.and_then(|rare| rare.secured.as_ref());
        secured.is_some_and(|secured| secured.refused().is_some())
    }

    /// Whether the end of this side's stream has to be said before FIN: from now on it is.
    pub(crate) fn owes_last_words(&mut self) -> bool {
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

    /// What the first of the held pieces is, if there is one.
    pub(crate) fn front(&mut self) -> Front {
        match self.secured() {
            None => Front::Clear,
            Some(secured) if secured.front_is_open => Front::Content,
            Some(_) => Front::Sealed,
        }
    }

    /// Puts back a piece of records, from a place in it on.
    pub(crate) fn hold_sealed(&mut self, piece: Piece, from: u32) {
        self.rare().held.push_front((piece, from));
    }

    /// The first held piece is content from now on, or no more.
    pub(super) fn note_front(&mut self, is_open: bool) {
        if let Some(secured) = self.secured() {
            secured.front_is_open = is_open;
        }
    }
}
