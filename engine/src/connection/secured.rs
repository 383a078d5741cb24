//! What stands between the socket and the protocol of a connection with TLS.
//!
//! | what arrives          | where it is                                                    |
//! |-----------------------|----------------------------------------------------------------|
//! | a part of a record    | `part`, a pooled buffer                                        |
//! | records, not opened   | their pieces, held: opened when the protocol takes input       |
//! | content, not consumed | as without TLS: `Connection::input`, or the first held piece   |
//!
//! What is to be sent is content until a send takes it: then it is sealed, all that is queued up to
//! a bound, so replies of one turn share a record.
//!
//! Invariants
//! - Z1: of the held pieces the first one may be content, the others are records.
//! - Z2: a part is shorter than its record.
//! - Z3: nothing is sealed after the last words.

#![cfg_attr(
    not(feature = "tls"),
    expect(
        unreachable_code,
        reason = "there is no value of the types of TLS then"
    )
)]

use flatpath_structures::pool::Buffer;

use crate::tls::{Alert, Records};

use super::Connection;

pub(crate) struct Secured {
    pub(crate) records: Records,
    /// The beginning of a record.
    pub(crate) part: Option<Buffer>,
    /// The first held piece is content.
    front_is_open: bool,
    /// Bytes at the front of the output that go as they are: what the handshake has left there.
    pub(crate) clear_bytes: usize,
    /// This side's stream is to end, or has.
    end: End,
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
    pub(crate) fn new(records: Records, clear_bytes: usize) -> Secured {
        Secured {
            records,
            part: None,
            front_is_open: false,
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

    /// The last words of this side were sealed: nothing more is.
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

    /// The last words, if all that is to be sent before them is sealed.
    pub(crate) fn take_last_words(&mut self, all_is_sealed: bool) -> Option<Vec<u8>> {
        let alert = match self.end {
            End::Wanted if all_is_sealed => Alert::CLOSE_NOTIFY,
            End::Refused(alert) => alert,
            End::No | End::Wanted | End::Sealed => return None,
        };
        self.end = End::Sealed;
        self.records.last_words(alert)
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

impl Connection {
    /// A handshake is complete: from now on the socket carries records.
    pub(crate) fn secure(&mut self, records: Records) {
        let clear_bytes = self.output.waiting_bytes();
        self.rare().secured = Some(Box::new(Secured::new(records, clear_bytes)));
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

    /// The stream has ended, and not as its sender ends it.
    pub(crate) fn is_cut_off(&mut self) -> bool {
        let secured = self.secured();
        secured.is_some_and(|it| it.part.is_some() || !it.records.peer_has_closed())
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

    /// Whether the first of the held pieces is records that were not opened.
    pub(crate) fn front_is_sealed(&mut self) -> bool {
        self.secured().is_some_and(|secured| !secured.front_is_open)
    }

    /// Puts back a piece of records, from a place in it on.
    pub(crate) fn hold_sealed(&mut self, piece: flatpath_driver::Piece, from: u32) {
        self.rare().held.push_front((piece, from));
    }

    /// The first held piece is content from now on, or no more.
    pub(super) fn note_front(&mut self, is_open: bool) {
        if let Some(secured) = self.secured() {
            secured.front_is_open = is_open;
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::super::state::Rare;
    use super::*;

    #[test]
    fn what_an_idle_connection_keeps_is_small() {
        // Beside these it keeps what rustls needs for further keys, 816 bytes.
        let bytes = size_of::<Rare>() + size_of::<Secured>();
        assert!(bytes <= 448, "{bytes} bytes");
    }
}
