//! The first deadline among the streams of a connection, without a look at all of them for each
//! frame: a hundred uploads that rest cost the next request nothing.
//!
//! Invariant
//! - F1: what is known is the deadline of the stream that has the first one. Each stream that moves
//!   says where its deadline is now; when the first one's moves back, or it is gone, nothing is
//!   known, and the next question is answered by a look at all. So it is where all may have moved.

use std::time::Duration;

use flatpath::Phase;

/// A stream, its deadline, and what it waits for until then.
pub(super) type Due = (u32, Duration, Phase);

/// See the module.
#[derive(Default)]
pub(super) enum FirstDue {
    /// Any stream may have it.
    #[default]
    Unknown,
    /// This one, or none of them has any.
    Known(Option<Due>),
}

impl FirstDue {
    /// A stream has moved, and this is its deadline now; none where it is gone.
    pub(super) fn moved(&mut self, stream: u32, deadline: Option<(Duration, Phase)>) {
        let Self::Known(first) = self else {
            return;
        };
        match (*first, deadline) {
            (Some((_, end, _)), Some((now, phase))) if now <= end => {
                *first = Some((stream, now, phase));
            }
            (Some((own, ..)), _) if own == stream => *self = Self::Unknown,
            (None, Some((now, phase))) => *first = Some((stream, now, phase)),
            _ => {}
        }
    }

    /// All may have moved.
    pub(super) fn forget(&mut self) {
        *self = Self::Unknown;
    }

    /// The first one; `look` finds it among all streams.
    pub(super) fn get(&mut self, look: impl FnOnce() -> Option<Due>) -> Option<(Duration, Phase)> {
        let first = match *self {
            Self::Known(first) => first,
            Self::Unknown => look(),
        };
        *self = Self::Known(first);
        first.map(|(_, end, phase)| (end, phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_the_first_deadline_is_that_of_a_look_at_all_and_few_looks_find_it() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut first, mut streams, mut looks) = (FirstDue::default(), [None; 40], 0);
        for _ in 0..10_000 {
            let at = random.usize(..streams.len());
            streams[at] = (random.u8(..3) > 0).then(|| {
                let phase = [Phase::Body, Phase::Head][random.usize(..2)];
                (Duration::from_secs(random.u64(..1000)), phase)
            });
            first.moved(at as u32, streams[at]);
            if random.u8(..200) == 0 {
                first.forget();
            }
            let all = (0u32..).zip(&streams);
            let all = all.filter_map(|(at, due)| due.map(|(end, phase)| (at, end, phase)));
            let expected = all.clone().min_by_key(|(_, end, _)| *end);
            let found = first.get(|| {
                looks += 1;
                expected
            });
            assert_eq!(found.map(|(end, _)| end), expected.map(|(_, end, _)| end));
            let is_one = |due| all.clone().any(|(_, end, phase)| (end, phase) == due);
            assert!(found.is_none_or(is_one), "{found:?}");
        }
        assert!(looks < 1000, "{looks} looks");
    }
}
