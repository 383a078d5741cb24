//! What the sends of a network thread share: the list that one is gathered in, what was sent in a
//! turn, and the places for wide sockets (`wide.rs`).
//!
//! Cost: of a short send an addition.

use flatpath_driver::SendList;
use flatpath_structures::slots::Key;

use crate::limits::LONG_SENDS_BYTES;

/// What the kernel takes of a wide socket: it asks for more when half of it is left.
pub(super) const WIDE_BYTES: u32 = 2 * 1024 * 1024;

/// Wide sockets of a network thread: 64 MiB in the kernel.
const WIDE_MAX: usize = 32;

/// Between two looks.
const LOOK_NS: u64 = 10_000_000;

/// How long a socket is wide before it is judged.
const TRIAL_NS: u64 = 100_000_000;

/// The places of one network thread.
#[derive(Debug, Default)]
pub(super) struct Wide {
    places: Vec<Place>,
    /// The place that is looked at next.
    hand: usize,
    looked_ns: u64,
    /// A connection has found none free since the last look.
    is_wanted: bool,
}

/// Of one connection.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    /// When it was last looked at, and what had been sent of it by then.
    looked_ns: u64,
    sent_bytes: u64,
}

impl Wide {
    /// Gives a connection a place, of which this much has been sent; false: none is free.
    pub(super) fn admit(&mut self, key: Key, sent_bytes: u64, now_ns: u64) -> bool {
        let has_room = self.places.len() < WIDE_MAX;
        if has_room {
            self.places.push(Place {
                key,
                looked_ns: now_ns,
                sent_bytes,
            });
        }
        has_room
    }

    /// Takes the place of a connection back.
    pub(super) fn left(&mut self, key: Key) {
        if let Some(at) = self.places.iter().position(|place| place.key == key) {
            self.places.swap_remove(at);
        }
    }

    /// One more wants a place, and there is none. True: some are looked at in this turn.
    pub(super) fn wants(&mut self, now_ns: u64) -> bool {
        self.is_wanted = now_ns >= self.looked_ns + LOOK_NS;
        self.is_wanted
    }

    /// Which connection to look at, if one is to be.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Key> {
        if !std::mem::take(&mut self.is_wanted) {
            return None;
        }
        self.looked_ns = now_ns;
        self.hand = (self.hand + 1) % self.places.len().max(1);
        self.places.get(self.hand).map(|place| place.key)
    }

    /// Whether the connection that is looked at has taken much since it was last judged; `None`:
    /// that is not long ago.
    pub(super) fn judge(&mut self, sent_bytes: u64, now_ns: u64) -> Option<bool> {
        let place = self.places.get_mut(self.hand)?;
        if now_ns < place.looked_ns + TRIAL_NS {
            return None;
        }
        let taken = sent_bytes.saturating_sub(place.sent_bytes);
        (place.looked_ns, place.sent_bytes) = (now_ns, sent_bytes);
        Some(taken >= u64::from(WIDE_BYTES))
    }
}

/// What the sends of a network thread share.
///
/// Invariant: the list is empty but from the moment in which a send is gathered to that in which it
/// is made.
pub(super) struct Sends {
    pub(super) list: SendList,
    /// Bytes of output that were sent in this turn.
    turn_bytes: usize,
    /// Sockets that take more than others at a time.
    pub(super) wide: Wide,
}

impl Sends {
    pub(super) fn new() -> Sends {
        Sends {
            list: SendList::new(),
            turn_bytes: 0,
            wide: Wide::default(),
        }
    }

    /// A turn begins: nothing was sent in it.
    pub(super) fn begin_turn(&mut self) {
        self.turn_bytes = 0;
    }

    /// Counts bytes that are sent.
    #[inline]
    pub(super) fn count(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
    }

    /// Whether another long send may be made in this turn.
    pub(super) fn may_send_long(&self) -> bool {
        self.turn_bytes < LONG_SENDS_BYTES
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

    fn full() -> Wide {
        let mut wide = Wide::default();
        for index in 0..WIDE_MAX as u32 {
            assert!(wide.admit(key(index), 0, 0));
        }
        wide
    }

    #[test]
    fn there_are_as_many_places_as_the_bound_says() {
        let mut wide = full();
        assert!(!wide.admit(key(99), 0, 0));
        wide.left(key(98));
        assert!(!wide.admit(key(99), 0, 0), "it had none");
        wide.left(key(3));
        assert!(wide.admit(key(99), 0, 0) && !wide.admit(key(3), 0, 0));
    }

    #[test]
    fn one_is_looked_at_in_a_time_and_only_if_a_place_is_wanted() {
        let mut wide = full();
        let mut now_ns = LOOK_NS;
        assert_eq!(wide.next(now_ns), None, "none wants one");
        let mut seen = Vec::new();
        for _ in 0..WIDE_MAX {
            assert!(wide.wants(now_ns));
            seen.extend(wide.next(now_ns).map(|key| key.index));
            assert!(!wide.wants(now_ns + LOOK_NS - 1));
            assert_eq!(wide.next(now_ns), None);
            now_ns += LOOK_NS;
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..WIDE_MAX as u32), "each in turn");
    }

    #[test]
    fn one_that_takes_little_in_its_trial_is_found() {
        let mut wide = full();
        let much = u64::from(WIDE_BYTES);
        assert_eq!(wide.judge(much, TRIAL_NS - 1), None, "its trial lasts");
        assert_eq!(wide.judge(much, TRIAL_NS), Some(true));
        assert_eq!(wide.judge(much, 2 * TRIAL_NS - 1), None);
        assert_eq!(wide.judge(2 * much - 1, 2 * TRIAL_NS), Some(false));
    }

    #[test]
    fn without_any_place_taken_no_connection_is_looked_at() {
        let mut wide = Wide::default();
        assert!(wide.wants(LOOK_NS));
        assert_eq!(wide.next(LOOK_NS), None);
        assert_eq!(wide.judge(0, u64::MAX), None);
    }
}
