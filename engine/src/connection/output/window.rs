//! What is known of the next bytes of the first file of an output: how many are at hand, and what a
//! worker reads of them.
//!
//! A file is asked for in windows. Of a window that is not at hand a worker reads the first part,
//! and the next part while that one is sent (`network/ahead.rs`). So a worker may still read when
//! nothing waits for it any more: what it reads counts only if the file and the place in it are the
//! same as when it began ([`Disk::ReadsOther`]).
//!
//! Invariants
//! - OW1: what is `AtHand` begins where the first file begins.
//! - OW2: what is read as `Disk::Reads` begins where what is at hand ends.

use flatpath_driver::FileRange;

/// Bytes of a file that are asked for at a time.
pub(crate) const FILE_WINDOW_BYTES: u64 = FILE_WINDOW_PARTS as u64 * FILE_PART_BYTES;

/// The parts of a window that are counted: a byte has room for as many.
const FILE_WINDOW_PARTS: u8 = 128;

/// Bytes of a part: those of a record of TLS, as such is what is read of a window at a time.
pub(super) const FILE_PART_BYTES: u64 = 16 * 1024;

/// The parts that a worker reads at a time: sent as soon as they are there.
const FILE_READ_PARTS: u8 = 32;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    state: State,
    disk: Disk,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is known.
    #[default]
    Unasked,
    /// It is to be read when fewer others are.
    Waits,
    /// A worker reads it, and the connection waits for that.
    Reading,
    /// At least this many parts of it are at hand, as far as the file has them.
    AtHand(u8),
}

/// What workers read of the first file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Disk {
    /// Nothing so far: what was sent was in the cache.
    #[default]
    Unused,
    /// Nothing now.
    Idle,
    /// What comes after what is at hand.
    Reads,
    /// What is not awaited any more.
    ReadsOther,
    /// Nothing now: it has read what comes after what is at hand.
    HasRead,
}

/// What is to be done for a window that is not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A worker is to read the first part.
    Unread,
    /// A worker reads it already.
    Read,
    /// A worker reads something else of this connection, and is first.
    Other,
}

impl Window {
    /// How many bytes from the begin of the first file on are at hand; `None`: not known.
    pub(super) fn at_hand(self) -> Option<u64> {
        match self.state {
            State::AtHand(parts) => Some(u64::from(parts) * FILE_PART_BYTES),
            State::Unasked | State::Waits | State::Reading => None,
        }
    }

    /// Whether it is to be asked what is at hand.
    pub(super) fn is_unasked(self) -> bool {
        matches!(self.state, State::Unasked | State::Waits)
    }

    pub(super) fn awaits_disk(self) -> bool {
        matches!(self.state, State::Waits | State::Reading)
    }

    pub(super) fn uses_disk(self) -> bool {
        self.disk != Disk::Unused
    }

    pub(super) fn first_was_read(self) -> bool {
        self.disk == Disk::HasRead
    }

    pub(super) fn is_at_hand(&mut self) {
        self.state = State::AtHand(FILE_WINDOW_PARTS);
        self.moves_on();
    }

    pub(super) fn first_is_at_hand(&mut self) {
        self.state = State::AtHand(FILE_READ_PARTS);
        self.moves_on();
    }

    pub(super) fn waits(&mut self) {
        self.state = State::Waits;
    }

    /// Awaits that a worker reads the first part, unless one reads something else.
    pub(super) fn awaits(&mut self) -> Awaited {
        let awaited = match self.disk {
            Disk::Unused | Disk::Idle | Disk::HasRead => Awaited::Unread,
            Disk::Reads => Awaited::Read,
            Disk::ReadsOther => return Awaited::Other,
        };
        self.state = State::Reading;
        awaited
    }

    /// A worker reads what comes after what is at hand.
    pub(super) fn begins_read(&mut self) {
        self.disk = Disk::Reads;
    }

    /// It has. What is awaited is at hand, whatever the file system would say of it.
    pub(super) fn has_read(&mut self) {
        let is_next = self.disk == Disk::Reads && self.state != State::Reading;
        if self.state == State::Reading {
            self.state = State::AtHand(FILE_READ_PARTS);
        }
        self.disk = match is_next {
            true => Disk::HasRead,
            false => Disk::Idle,
        };
    }

    /// Bytes of the first file were taken, which may be all of it. Of a part that was begun nothing
    /// is counted on.
    pub(super) fn took(&mut self, bytes: u64, is_used_up: bool) {
        if is_used_up {
            return self.forget();
        }
        if let State::AtHand(left) = self.state {
            let parts = u8::try_from(bytes.div_ceil(FILE_PART_BYTES)).unwrap_or(u8::MAX);
            self.state = match left.saturating_sub(parts) {
                0 => State::Unasked,
                left => State::AtHand(left),
            };
        }
    }

    /// The first file is another one.
    pub(super) fn forget(&mut self) {
        self.state = State::Unasked;
        self.moves_on();
    }

    /// What a worker reads, or has read, is not what comes after what is at hand.
    fn moves_on(&mut self) {
        match self.disk {
            Disk::Reads => self.disk = Disk::ReadsOther,
            Disk::HasRead => self.disk = Disk::Idle,
            Disk::Unused | Disk::Idle | Disk::ReadsOther => {}
        }
    }

    /// What of the first file a worker is to read while what is at hand is sent.
    pub(super) fn next_read(self, file: &FileRange) -> Option<FileRange> {
        let at_hand = self.at_hand().filter(|_| self.disk == Disk::Idle)?;
        let mut next = file.clone();
        next.advance(at_hand.min(next.bytes()));
        let next = first_read(&next);
        (!next.is_empty()).then_some(next)
    }
}

/// What of a window a worker reads first.
pub(crate) fn first_read(window: &FileRange) -> FileRange {
    window.front(u64::from(FILE_READ_PARTS) * FILE_PART_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_hand_is_counted_in_whole_parts() {
        let mut window = Window::default();
        assert!(window.is_unasked() && window.at_hand().is_none());
        window.is_at_hand();
        assert_eq!(window.at_hand(), Some(FILE_WINDOW_BYTES));
        window.took(1, false);
        window.took(FILE_PART_BYTES + 1, false);
        assert_eq!(
            window.at_hand(),
            Some(FILE_WINDOW_BYTES - 3 * FILE_PART_BYTES)
        );
        window.took(FILE_WINDOW_BYTES - 3 * FILE_PART_BYTES, false);
        assert!(window.is_unasked());
        window.is_at_hand();
        window.took(1, true);
        assert!(window.is_unasked(), "the next file is another");
    }

    #[test]
    fn what_is_read_is_at_hand_only_for_those_that_wait_for_it() {
        let mut window = Window::default();
        assert!(!window.uses_disk());
        assert_eq!(window.awaits(), Awaited::Unread);
        window.begins_read();
        assert!(window.awaits_disk() && window.uses_disk());
        window.has_read();
        assert_eq!(window.at_hand(), Some(32 * FILE_PART_BYTES));
        // The next part, which is awaited before it is there.
        window.begins_read();
        window.took(32 * FILE_PART_BYTES, false);
        assert_eq!(window.awaits(), Awaited::Read);
        window.has_read();
        assert!(window.at_hand().is_some());
        // The next one, which is there before it is awaited.
        window.begins_read();
        window.has_read();
        assert!(window.first_was_read());
        window.took(32 * FILE_PART_BYTES, false);
        assert!(window.is_unasked() && window.first_was_read());
        window.first_is_at_hand();
        assert!(window.at_hand().is_some() && !window.first_was_read());
        // The next one is not awaited: the file is used up, what comes after it was there by
        // itself, or nothing is sent any more.
        for moves_on in [
            |window: &mut Window| window.took(1, true),
            |window: &mut Window| window.is_at_hand(),
            |window: &mut Window| window.first_is_at_hand(),
            |window: &mut Window| window.forget(),
        ] {
            window.begins_read();
            moves_on(&mut window);
            window.took(FILE_WINDOW_BYTES, false);
            assert_eq!(window.awaits(), Awaited::Other);
            window.waits();
            window.has_read();
            assert!(window.is_unasked() && window.awaits_disk() && !window.first_was_read());
            assert_eq!(window.awaits(), Awaited::Unread);
            window.begins_read();
            window.has_read();
        }
    }
}
