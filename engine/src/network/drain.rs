//! How far a network thread has come with telling protocols that the server drains.
//!
//! | a connection                          | its protocol is notified                             |
//! |---------------------------------------|------------------------------------------------------|
//! | was open when the drain began         | in one of the next turns, some in each               |
//! | had just come then, or comes later    | when what its client sent first was given, or when   |
//! |                                       | that has been silent for long ("late")               |
//!
//! Invariant: a connection is in one of the two lists at most, so it is notified once.

use std::collections::VecDeque;

use flatpath_structures::slots::Key;

/// See the module.
#[derive(Default)]
pub(super) struct Drain {
    /// When the server's state last changed, as far as this thread has followed it.
    began_ns: u64,
    /// Connections that were open then, and whose protocols are to be notified.
    open: VecDeque<Key>,
    /// Connections that are notified later.
    late: Vec<Key>,
}

impl Drain {
    /// The state of the server has changed.
    pub(super) fn state_began(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
    }

    pub(super) fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// The drain begins: these connections are open.
    pub(super) fn begin(&mut self, open: impl Iterator<Item = Key>) {
        self.open = open.collect();
    }

    /// The drain is forced: no protocol is notified any more.
    pub(super) fn force(&mut self) {
        self.open.clear();
    }

    /// Whether connections that were open are left to notify.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn next_open(&mut self) -> Option<Key> {
        self.open.pop_front()
    }

    /// A connection is notified when its client's first bytes were given.
    pub(super) fn comes_late(&mut self, key: Key) {
        self.late.push(key);
    }

    pub(super) fn late(&self) -> &[Key] {
        &self.late
    }

    /// Those that are notified later; what is not due yet comes back with [`Drain::put_late`].
    pub(super) fn take_late(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.late)
    }

    /// Those of the ones taken that are not due yet; some may have come meanwhile.
    pub(super) fn put_late(&mut self, mut not_due: Vec<Key>) {
        not_due.append(&mut self.late);
        self.late = not_due;
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

    #[test]
    fn those_that_are_open_come_in_their_order_until_the_drain_is_forced() {
        let mut drain = Drain::default();
        drain.state_began(7);
        assert!(drain.began_ns() == 7 && !drain.has_open());
        drain.begin([2, 1, 3].map(key).into_iter());
        assert!(drain.has_open());
        assert_eq!(drain.next_open(), Some(key(2)));
        drain.force();
        assert!(!drain.has_open() && drain.next_open().is_none());
    }

    #[test]
    fn those_that_come_while_others_are_notified_are_kept() {
        let mut drain = Drain::default();
        drain.comes_late(key(4));
        drain.comes_late(key(5));
        let taken = drain.take_late();
        assert_eq!(taken, [4, 5].map(key));
        drain.comes_late(key(6));
        drain.put_late(vec![key(5)]);
        assert_eq!(drain.late(), [5, 6].map(key));
    }
}
