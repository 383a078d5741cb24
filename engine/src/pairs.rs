//! Pairs of spliced connections: what arrives at one end goes out of the other.
//!
//! A pair owns the state of both its ends; a connection knows only which end of which pair it is.
//! What is known here are numbers and enums. The files of this folder decide, and
//! `network/splice.rs` alone acts.
//!
//! | file       | facts                                         | verdict                        |
//! |------------|-----------------------------------------------|--------------------------------|
//! | pairs.rs   | what the last receive of an end brought       | [`Take`]: how the next is made |
//! | joining.rs | two connections that are to be spliced        | [`Joining`](joining::Joining)  |
//! | passing.rs | what has come, and what has to go before it   | `Arrival`, `Passing`           |
//! | ends.rs    | how both ends stand after an event            | [`Ending`](ends::Ending)       |
//!
//! | an end  | begins with                                  | ends with                          |
//! |---------|----------------------------------------------|------------------------------------|
//! | quiet   | the pair, or a receive that was not full     | a receive that is full             |
//! | streams | a receive that filled its page or buffer, or | one that does not                  |
//! |         | a pipe that took all that it may             |                                    |
//!
//! | an end            | this end has TLS | the other alone has | neither has                     |
//! |-------------------|------------------|---------------------|---------------------------------|
//! | is quiet          | common pages     | common pages        | common pages                    |
//! | streams           | common pages     | a buffer of its own | a pipe, or a buffer of its own  |
//!
//! What lies in a common page is copied, so a quiet pair holds no memory. With TLS at either end
//! bytes cannot stay in the kernel: they are opened, or sealed, on their way.
//!
//! Invariants
//! - J1: a connection is an end of a pair exactly while the pair is in the table. So both ends are
//!   spliced, or neither is.
//! - J2: a pair is counted in `spliced_pairs` when it enters the table and in `unspliced` when it
//!   leaves.
//! - J3: bytes leave in the order in which they came, after what is written for `Event::Spliced`.
//!
//! Cost: O(1) for each call; 40 bytes for a pair.

pub(crate) mod ends;
pub(crate) mod joining;
pub(crate) mod passing;

use flatpath_structures::slots::{Key, Slots};

/// What a connection knows of its pair: which it is, and which of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairEnd {
    pair: u32,
    side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// How the next bytes of an end are taken.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// By a receive into the common pages.
    Page,
    /// By a receive into a buffer of its own, which is sent as it is.
    Buffer,
    /// Through a pipe, if there is much; else into a buffer.
    Pipe,
}

#[derive(Debug)]
struct End {
    connection: Key,
    /// Its last receive was full.
    streams: bool,
    /// How it is taken while it streams.
    stream_by: Take,
}

#[derive(Debug)]
struct Pair([End; 2]);

/// The pairs of a network thread. See the module.
#[derive(Debug)]
pub(crate) struct Pairs(Slots<Pair>);

impl Pairs {
    /// For a table of connections with this many places.
    pub(crate) fn new(places: u32) -> Pairs {
        Pairs(Slots::new(places / 2))
    }

    /// Two connections become a pair: the end that each is from now on (J1). Which have TLS is said
    /// with them.
    pub(crate) fn join(&mut self, connections: [(Key, bool); 2]) -> [PairEnd; 2] {
        let [(_, first_has_tls), (_, second_has_tls)] = connections;
        let is_clear = !first_has_tls && !second_has_tls;
        let ends = connections.map(|(connection, has_tls)| End {
            connection,
            streams: false,
            stream_by: match (is_clear, has_tls) {
                (true, _) => Take::Pipe,
                (false, false) => Take::Buffer,
                (false, true) => Take::Page,
            },
        });
        let Ok(Key { index: pair, .. }) = self.0.insert(Pair(ends)) else {
            unreachable!("J1: a pair has two places of the table of connections")
        };
        [Side::First, Side::Second].map(|side| PairEnd { pair, side })
    }

    /// A pair is over: the connection at the other end. Neither may ask for the pair again (J1).
    #[must_use = "the other end is not spliced any more, either"]
    pub(crate) fn part(&mut self, end: PairEnd) -> Key {
        let other = self.other(end);
        let key = self.0.key_at(end.pair);
        let pair = key.and_then(|key| self.0.remove(key));
        debug_assert!(pair.is_some(), "J1: {end:?} is of a pair");
        other
    }

    /// Whether no connection is spliced.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The connection at the other end.
    pub(crate) fn other(&self, end: PairEnd) -> Key {
        self.end(end.pair, end.side.other()).connection
    }

    /// How the next bytes of an end are taken.
    pub(crate) fn take(&self, end: PairEnd) -> Take {
        let end = self.end(end.pair, end.side);
        match end.streams {
            true => end.stream_by,
            false => Take::Page,
        }
    }

    /// Notes whether the last receive of an end, or the last pipe, was full.
    pub(crate) fn note(&mut self, end: PairEnd, is_full: bool) {
        if let Some((_, pair)) = self.0.at_mut(end.pair) {
            pair.0[end.side as usize].streams = is_full;
        }
    }

    fn end(&self, pair: u32, side: Side) -> &End {
        let key = self.0.key_at(pair);
        let pair = key.and_then(|key| self.0.get(key));
        &pair.expect("J1: an end is of a pair in the table").0[side as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 1,
        }
    }

    /// A pair of the connections at two places, without TLS.
    fn join(pairs: &mut Pairs, places: [u32; 2]) -> [PairEnd; 2] {
        pairs.join(places.map(|place| (key(place), false)))
    }

    #[test]
    fn each_end_of_a_pair_finds_the_other() {
        let mut pairs = Pairs::new(5);
        let ends = join(&mut pairs, [3, 1]);
        let others = join(&mut pairs, [0, 4]);
        assert_eq!(ends.map(|end| pairs.other(end)), [key(1), key(3)]);
        assert_eq!(others.map(|end| pairs.other(end)), [key(4), key(0)]);
        assert_eq!(pairs.part(ends[1]), key(3));
        assert_eq!(pairs.other(others[0]), key(4), "another pair stays");
        assert!(!pairs.is_empty());
        assert_eq!(pairs.part(others[0]), key(4));
        assert!(pairs.is_empty(), "each pair leaves the table");
        let [again, _] = join(&mut pairs, [1, 2]);
        assert_eq!(pairs.other(again), key(2));
    }

    #[test]
    fn a_stream_is_taken_as_its_pair_allows_and_a_quiet_end_from_the_common_pages() {
        use Take::{Buffer, Page, Pipe};
        let rows = [
            ([false, false], [Pipe, Pipe]),
            ([false, true], [Buffer, Page]),
            ([true, false], [Page, Buffer]),
            ([true, true], [Page, Page]),
        ];
        for (have_tls, expected) in rows {
            for side in [0, 1] {
                let mut pairs = Pairs::new(2);
                let ends = pairs.join([(key(0), have_tls[0]), (key(1), have_tls[1])]);
                assert_eq!(pairs.take(ends[side]), Page, "nothing has come");
                pairs.note(ends[side], true);
                assert_eq!(pairs.take(ends[side]), expected[side], "{have_tls:?}");
                assert_eq!(pairs.take(ends[1 - side]), Page, "the other is quiet");
                pairs.note(ends[side], false);
                assert_eq!(pairs.take(ends[side]), Page);
            }
        }
    }

    #[test]
    fn all_connections_of_a_table_may_be_in_pairs() {
        for places in 1..7 {
            let mut pairs = Pairs::new(places);
            for pair in 0..places / 2 {
                join(&mut pairs, [2 * pair, 2 * pair + 1]);
            }
            assert_eq!(pairs.0.len(), places / 2);
        }
    }
}
