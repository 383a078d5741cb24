//! What becomes of bytes that have come to an end of a pair.
//!
//! | a piece comes to an end that        | verdict                                              |
//! |-------------------------------------|------------------------------------------------------|
//! | is being ended                      | [`Arrival::Drop`]                                    |
//! | holds others, which come first      | [`Arrival::Hold`]                                    |
//! | has TLS                             | [`Arrival::HoldAndPass`]: it is opened in its turn   |
//! | none of these                       | [`Arrival::Pass`]: it is copied to the other's output |
//!
//! | a buffer                            | verdict                                              |
//! |-------------------------------------|------------------------------------------------------|
//! | of which little is filled           | [`Passing::Copy`], so that it is free again          |
//! | another one                         | [`Passing::AsItIs`]                                  |
//!
//! Back-pressure: an end is received from only while the other has less than `SPLICE_BYTES_MAX`
//! queued; TCP tells the sender. One receive at a time, so the bound is that and one buffer for
//! each direction of a pair; in memory twice that, because a buffer is queued as it is when half of
//! it is filled.

use crate::limits::{SPLICE_BYTES_MAX, SPLICE_FILL_BYTES};

/// What becomes of a piece that has come.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Drop,
    /// Those before it wait for memory, or for the end of the turn.
    Hold,
    /// It is held, and its turn is now.
    HoldAndPass,
    Pass,
}

/// The end that it has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    pub(crate) is_closing: bool,
    pub(crate) holds_pieces: bool,
    pub(crate) has_tls: bool,
}

impl Arrival {
    #[inline]
    pub(crate) fn at(receiver: Receiver) -> Arrival {
        match receiver {
            it if it.is_closing => Arrival::Drop,
            it if it.holds_pieces => Arrival::Hold,
            it if it.has_tls => Arrival::HoldAndPass,
            _ => Arrival::Pass,
        }
    }
}

/// How a buffer is passed on.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// If there is memory for a copy; else as it is.
    Copy,
    AsItIs,
}

impl Passing {
    pub(crate) fn of(filled_bytes: usize) -> Passing {
        match filled_bytes < SPLICE_FILL_BYTES / 2 {
            true => Passing::Copy,
            false => Passing::AsItIs,
        }
    }
}

/// Whether an end takes more when this many bytes are queued.
#[inline]
pub(crate) fn has_room(queued_bytes: usize) -> bool {
    queued_bytes < SPLICE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_passes_at_once_where_nothing_is_before_it() {
        use Arrival::{Drop, Hold, HoldAndPass, Pass};
        let rows = [
            ((false, false, false), Pass),
            ((false, false, true), HoldAndPass),
            ((false, true, false), Hold),
            ((false, true, true), Hold),
            ((true, false, false), Drop),
            ((true, true, true), Drop),
        ];
        for ((is_closing, holds_pieces, has_tls), expected) in rows {
            let receiver = Receiver {
                is_closing,
                holds_pieces,
                has_tls,
            };
            assert_eq!(Arrival::at(receiver), expected, "{receiver:?}");
        }
    }

    #[test]
    fn a_buffer_that_is_half_full_is_not_copied() {
        let half = SPLICE_FILL_BYTES / 2;
        assert_eq!(Passing::of(half - 1), Passing::Copy);
        assert_eq!(Passing::of(half), Passing::AsItIs);
    }

    #[test]
    fn an_end_takes_more_below_its_bound() {
        assert!(has_room(SPLICE_BYTES_MAX - 1) && !has_room(SPLICE_BYTES_MAX));
    }
}
