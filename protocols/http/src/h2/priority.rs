//! Which streams of a connection send first (RFC 9218).
//!
//! A client says with a request how urgent its reply is, from 0 to 7, and whether it is of use as
//! it arrives (`i`: an image that is shown from top to bottom) or only as a whole (a script). It
//! may say otherwise later, by PRIORITY_UPDATE.
//!
//! | in one round, of the streams that have something to send    | send       |
//! |-------------------------------------------------------------|------------|
//! | the most urgent class                                       | yes        |
//! | in it, those that are of use in part                        | each       |
//! | in it, those that are of use as a whole                     | the oldest |
//! | less urgent ones                                            | no         |
//!
//! So a stream that waits for its client's window, for a worker or for what feeds it holds up no
//! other. Replies of whose use nothing was said share: section 4.2 has them sent one after another,
//! which lets one long download of a client that knows no priorities keep all others waiting.
//!
//! Invariants
//! - PR1: a round that sends nothing has asked every stream.
//! - PR2: of a stream that has not begun, the last `EARLY_MAX` signals are kept, and no longer than
//!   until it begins.

use super::bounds::{EARLY_MAX, STREAMS_MAX};
use crate::header_values::parameters::{parameters, quoted_elements};

/// The name of the field.
pub(super) const FIELD: &str = "priority";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Priority {
    urgency: u8,
    is_incremental: bool,
}

/// Nothing was said (section 4): the urgency is 3.
impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            is_incremental: true,
        }
    }
}

impl Priority {
    /// What fields say, or a frame. Members that are unknown or wrong mean nothing (section 4), and
    /// without fields nothing was said.
    pub(super) fn of<'v>(values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut said: Option<Self> = None;
        for member in values.flat_map(quoted_elements) {
            let said = said.get_or_insert(Self {
                is_incremental: false,
                ..Self::default()
            });
            said.take(member);
        }
        said.unwrap_or_default()
    }

    /// A member of a dictionary (RFC 8941 section 3.2), whose parameters mean nothing.
    fn take(&mut self, member: &[u8]) {
        match parameters(member).0 {
            [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
            b"i" | b"i=?1" => self.is_incremental = true,
            b"i=?0" => self.is_incremental = false,
            _ => {}
        }
    }
}

/// What was said of streams that have not begun (PR2).
#[derive(Debug, Default)]
pub(super) struct Early(Option<Box<[Signal; EARLY_MAX]>>);

/// A stream, and what was said of it; there is no stream 0.
type Signal = (u32, Priority);

impl Early {
    /// A signal came before its stream.
    pub(super) fn put(&mut self, stream: u32, priority: Priority) {
        let signals = self.0.get_or_insert_default();
        let known = signals.iter().position(|(of, _)| *of == stream);
        // The oldest is the first.
        signals[known.unwrap_or(0)..].rotate_left(1);
        signals[EARLY_MAX - 1] = (stream, priority);
    }

    /// A stream begins: what was said of it, and of those before it, which do not begin any more.
    pub(super) fn take(&mut self, stream: u32) -> Option<Priority> {
        let signals = self.0.as_mut()?;
        let found = signals.iter().find(|(of, _)| *of == stream);
        let priority = found.map(|(_, priority)| *priority);
        let begun = signals.iter_mut().filter(|(of, _)| *of <= stream);
        begun.for_each(|signal| *signal = Signal::default());
        if signals.iter().all(|(of, _)| *of == 0) {
            // An idle connection keeps no buffer.
            self.0 = None;
        }
        priority
    }
}

/// A round: who has its turn when, and what has sent in it.
#[derive(Debug)]
pub(super) struct Round {
    streams: [u32; STREAMS_MAX],
    /// The urgency of what has sent.
    sent: Option<u8>,
    /// A reply that is of use as a whole has sent.
    has_sent_whole: bool,
}

impl Round {
    /// The round in which, of those that share, `first` and what comes after it are asked first.
    /// `None`: all have the same priority, and need none.
    pub(super) fn of(
        streams: impl Iterator<Item = (u32, Priority)> + Clone,
        first: u32,
    ) -> Option<Self> {
        if streams.clone().all(|(_, it)| it == Priority::default()) {
            return None;
        }
        let mut round = Self {
            streams: [0; STREAMS_MAX],
            sent: None,
            has_sent_whole: false,
        };
        let mut keys = [(0, false, false, 0); STREAMS_MAX];
        let mut count = 0;
        for (key, (stream, priority)) in keys.iter_mut().zip(streams) {
            let is_later = priority.is_incremental && stream < first;
            *key = (priority.urgency, priority.is_incremental, is_later, stream);
            count += 1;
        }
        keys[..count].sort_unstable();
        round.streams = keys.map(|(_, _, _, stream)| stream);
        Some(round)
    }

    /// The stream that has this turn.
    pub(super) fn stream(&self, turn: usize) -> u32 {
        self.streams[turn]
    }

    /// Whether a stream sends in its turn.
    pub(super) fn lets_send(&self, priority: Priority) -> bool {
        match self.sent {
            None => true,
            Some(urgency) => {
                priority.urgency == urgency && (priority.is_incremental || !self.has_sent_whole)
            }
        }
    }

    /// One has sent.
    pub(super) fn has_sent(&mut self, priority: Priority) {
        self.sent = Some(priority.urgency);
        self.has_sent_whole |= !priority.is_incremental;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Priority {
        Priority::of([value.as_bytes()].into_iter())
    }

    fn said(urgency: u8, is_incremental: bool) -> Priority {
        Priority {
            urgency,
            is_incremental,
        }
    }

    #[test]
    fn fields_say_what_the_rfc_says() {
        let none = Priority::of(std::iter::empty());
        assert_eq!(none, said(3, true));
        for (value, urgency, is_incremental) in [
            ("u=0", 0, false),
            ("u=7,i", 7, true),
            (" u=5 , i=?1", 5, true),
            ("i, i=?0", 3, false),
            ("u=1;x=2, i;y", 1, true),
            ("u=1, u=4", 4, false),
            ("a=\"x, u=0\", u=2", 2, false),
            ("a=\"\\\"\", u=2", 2, false),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=1.0, i=1", 3, false),
            ("U=1, I", 3, false),
            ("other", 3, false),
        ] {
            assert_eq!(of(value), said(urgency, is_incremental), "{value}");
        }
        assert_eq!(of(""), said(3, true), "an empty field is none");
        let two = Priority::of([&b"u=6"[..], b"i"].into_iter());
        assert_eq!(two, said(6, true));
    }

    #[test]
    fn early_signals_are_few_and_end_with_their_streams() {
        let mut early = Early::default();
        for at in 0..EARLY_MAX as u32 + 1 {
            early.put(2 * at + 1, said(0, false));
        }
        early.put(5, said(6, true));
        assert_eq!(early.take(1), None, "the oldest made room");
        assert_eq!(early.take(5), Some(said(6, true)), "the last one counts");
        assert_eq!(early.take(3), None, "it does not begin any more");
        assert_eq!(early.take(2 * EARLY_MAX as u32 + 1), Some(said(0, false)));
        assert!(early.0.is_none(), "nothing is kept");
    }

    /// Who sends, where each of these has something to send.
    fn senders(streams: &[(u32, &str)], first: u32) -> Option<Vec<u32>> {
        let streams: Vec<_> = streams.iter().map(|(it, said)| (*it, of(said))).collect();
        let mut round = Round::of(streams.iter().copied(), first)?;
        let mut sent = Vec::new();
        for turn in 0..streams.len() {
            let stream = round.stream(turn);
            let (_, priority) = streams.iter().find(|(it, _)| *it == stream)?;
            if round.lets_send(*priority) {
                round.has_sent(*priority);
                sent.push(stream);
            }
        }
        let mut asked = round.streams[..streams.len()].to_vec();
        asked.sort_unstable();
        assert!(asked.is_sorted_by(|a, b| a < b), "PR1: {asked:?}");
        Some(sent)
    }

    #[test]
    fn the_most_urgent_send_and_of_them_one_as_a_whole() {
        type Case<'a> = (&'a [(u32, &'a str)], u32, Option<&'a [u32]>);
        let all: [Case<'_>; 7] = [
            (&[], 0, None),
            (&[(1, ""), (3, "")], 0, None),
            (&[(1, "u=3,i"), (3, "")], 0, None),
            (
                &[(1, "u=5"), (3, ""), (5, "u=1"), (7, "u=1")],
                0,
                Some(&[5]),
            ),
            (&[(3, "u=1"), (1, "u=1")], 0, Some(&[1])),
            (
                &[(1, "i"), (3, "u=3"), (5, "i"), (7, "u=3")],
                0,
                Some(&[3, 1, 5]),
            ),
            (
                &[(1, "i"), (3, "u=3"), (5, "i"), (7, "u=4")],
                3,
                Some(&[3, 5, 1]),
            ),
        ];
        for (streams, first, expected) in all {
            assert_eq!(senders(streams, first).as_deref(), expected, "{streams:?}");
        }
    }
}
