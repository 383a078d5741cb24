//! Which connections of a network thread hold most of the memory for buffers, and which of them is
//! ended next where others wait for it.
//!
//! Holders are kept in lists by the power of two of what they hold. A connection moves up when an
//! event finds it holding more; down, and to the back of its list, only when a shortage has the
//! list looked at. So the path of a request costs one load and one comparison. Connections are
//! known by their places in the table alone. When one is ended, and how many, `shortage.rs` says.
//!
//! | order | who is ended                                                            |
//! |-------|-------------------------------------------------------------------------|
//! | 1     | of the largest class, one that was seen to move little                  |
//! | 2     | one of one smallest buffer that moves little and has nothing in work    |
//! | 3     | the largest, whatever it moves, where the shortage is a long one        |
//! | never | one that is cut off already, or whose peer acknowledges what it is sent |
//!
//! Invariants
//! - H1: a connection whose class is above 0 is in the list of that class, any other in none.
//! - H2: holdings of one smallest buffer count as nothing, until a shortage finds no other holder
//!   to end: then a hand goes round the table, a part of it in each round, and those that hold one
//!   buffer, move little and have nothing in work are ended too.
//! - H3: a connection is ended only after it was seen to move little for `HOLDER_WINDOW_NS`, unless
//!   a shortage is long and every holder moves.

use crate::limits::{FLUSHED_PER_ROUND_MAX, HOLDER_STEPS_MAX, HOLDER_WINDOW_NS, MOVES_PART};
use crate::lists::{Links, List};

use super::holding::buffers_of;

/// Classes of holders: 8 KiB, 16 KiB and so on to all that 32 bits of smallest buffers are.
pub(super) const CLASSES: usize = 33;

/// A connection as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Bytes of buffers that are out for it.
    pub(crate) held_bytes: usize,
    /// Bytes that have moved, wrapping.
    pub(crate) moved: u32,
    /// It is not being cut off.
    pub(crate) may_end: bool,
    /// What it holds is in work: that is not the client's doing.
    pub(crate) is_worked_on: bool,
}

/// The connections of a network thread.
pub(crate) trait Connections {
    /// The one at a place, if there is one.
    fn look(&self, index: u32) -> Option<Look>;

    /// Bytes of a reply under way that its peer has acknowledged.
    fn acknowledged(&self, index: u32) -> Option<u64>;
}

/// What was seen of the connection at a place.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The list it is in; 0 for none (H1).
    class: u8,
    /// When it was last looked at, in milliseconds, and how much it had moved until then.
    looked_ms: u32,
    looked_moved: u32,
    /// What its peer had acknowledged then, of a reply under way; 0 for not known.
    looked_acknowledged: u32,
}

/// The holders of one network thread.
#[derive(Debug)]
pub(super) struct Holders {
    seen: Vec<Seen>,
    links: Links,
    lists: [List; CLASSES],
    /// The place in the table where the hand is that looks for holders of one buffer (H2).
    hand: u32,
    /// The highest class that other threads know.
    published: u8,
}

impl Holders {
    pub(super) fn new(places: usize) -> Holders {
        Holders {
            seen: Vec::new(),
            links: Links::new(places),
            lists: [List::default(); CLASSES],
            hand: 0,
            published: 0,
        }
    }

    fn seen(&mut self, index: u32) -> &mut Seen {
        let index = index as usize;
        if self.seen.len() <= index {
            self.seen.resize(index + 1, Seen::default());
        }
        &mut self.seen[index]
    }

    fn enter(&mut self, index: u32, class: u8) {
        self.leave(index);
        self.seen(index).class = class;
        if class > 0 {
            let list = &mut self.lists[usize::from(class)];
            self.links.push_back(list, index);
        }
    }

    fn leave(&mut self, index: u32) {
        let class = std::mem::take(&mut self.seen(index).class);
        if class > 0 {
            let list = &mut self.lists[usize::from(class)];
            self.links.remove(list, index);
        }
    }

    /// The connection at a place is gone.
    pub(super) fn left(&mut self, index: u32) {
        if (index as usize) < self.seen.len() {
            self.leave(index);
            *self.seen(index) = Seen::default();
        }
    }

    /// A connection holds so much after an event, and has moved so much. The class that other
    /// threads are to know, if this is the largest holder so far.
    pub(super) fn note(
        &mut self,
        index: u32,
        (held_bytes, moved): (usize, u32),
        now_ns: u64,
    ) -> Option<u8> {
        let class = class_of(held_bytes);
        let seen = self.seen(index);
        if class <= seen.class {
            return None;
        }
        if seen.class == 0 {
            seen.looked_ms = milliseconds(now_ns);
            seen.looked_moved = moved;
        }
        self.enter(index, class);
        let is_largest = class > self.published;
        self.published = self.published.max(class);
        is_largest.then_some(class)
    }

    /// The class of the largest holder, for the other threads.
    pub(super) fn largest_class(&mut self) -> u8 {
        let mut classes = (1..CLASSES).rev();
        let largest = classes.find(|class| self.lists[*class].first().is_some());
        self.published = largest.unwrap_or(0) as u8;
        self.published
    }

    /// The next holders that are asked to hand on what they hold, if they can: from a class down,
    /// some of them in each round. And the class from which the next round asks.
    pub(super) fn next_flushes(&mut self, from: usize) -> (Vec<u32>, usize) {
        let mut asked = Vec::new();
        for class in (1..=from).rev() {
            let last = self.lists[class].last();
            while let Some(index) = self.lists[class].first() {
                if asked.len() == FLUSHED_PER_ROUND_MAX {
                    return (asked, class);
                }
                asked.push(index);
                self.links.move_back(&mut self.lists[class], index);
                if Some(index) == last {
                    break;
                }
            }
        }
        (asked, CLASSES - 1)
    }

    /// The connection to end next: the largest of those that have moved little, else one that holds
    /// a single buffer and has moved little, else, if the shortage `is_long`, the largest. `steps`
    /// are those of one round, and `places` those of the table.
    pub(super) fn victim(
        &mut self,
        connections: &impl Connections,
        now_ns: u64,
        (steps, places): (&mut u32, u32),
        is_long: bool,
    ) -> Option<u32> {
        let now_ms = milliseconds(now_ns);
        self.stillest(connections, now_ms, steps)
            .or_else(|| self.still_of_one(connections, now_ms, (steps, places)))
            .or_else(|| is_long.then(|| self.largest(connections)).flatten())
    }

    /// A connection is being ended: it is looked at no more.
    pub(super) fn ended(&mut self, index: u32) {
        self.leave(index);
    }

    /// The holder of the highest class that has moved little since it was last looked at. Those
    /// that moved go to the back of their list, those that hold less by now to another.
    fn stillest(
        &mut self,
        connections: &impl Connections,
        now_ms: u32,
        steps: &mut u32,
    ) -> Option<u32> {
        for class in (1..CLASSES).rev() {
            let last = self.lists[class].last();
            while let Some(index) = self.lists[class].first() {
                *steps += 1;
                if *steps > HOLDER_STEPS_MAX / 2 {
                    return None;
                }
                let Some(look) = connections.look(index) else {
                    debug_assert!(false, "H1: a connection that is gone is in no list");
                    self.leave(index);
                    continue;
                };
                let now_class = class_of(look.held_bytes);
                if usize::from(now_class) != class {
                    self.enter(index, now_class);
                } else if self.is_still(connections, (index, look), now_ms) {
                    return Some(index);
                } else {
                    self.links.move_back(&mut self.lists[class], index);
                }
                if Some(index) == last {
                    break;
                }
            }
        }
        None
    }

    /// One that holds a single buffer and has moved little: the next that the hand comes to (H2).
    fn still_of_one(
        &mut self,
        connections: &impl Connections,
        now_ms: u32,
        (steps, places): (&mut u32, u32),
    ) -> Option<u32> {
        while *steps < HOLDER_STEPS_MAX {
            *steps += 1;
            let index = self.hand;
            self.hand = (index + 1) % places;
            let Some(look) = connections.look(index).filter(|look| look.held_bytes > 0) else {
                continue;
            };
            let seen = self.seen(index);
            if seen.class > 0 || look.is_worked_on {
                continue;
            }
            if seen.looked_ms == 0 {
                seen.looked_ms = now_ms.max(1);
                seen.looked_moved = look.moved;
            } else if self.is_still(connections, (index, look), now_ms) {
                return Some(index);
            }
        }
        None
    }

    /// One that holds most, whatever it moves.
    fn largest(&self, connections: &impl Connections) -> Option<u32> {
        let index = self.lists.iter().rev().find_map(List::first)?;
        connections.look(index)?.may_end.then_some(index)
    }

    /// Whether a holder has moved little since it was last looked at, some time ago; else that was
    /// now.
    fn is_still(
        &mut self,
        connections: &impl Connections,
        (index, look): (u32, Look),
        now_ms: u32,
    ) -> bool {
        let seen = self.seen(index);
        if now_ms.wrapping_sub(seen.looked_ms) < milliseconds(HOLDER_WINDOW_NS) {
            return false;
        }
        let little = u32::try_from(look.held_bytes / MOVES_PART).unwrap_or(u32::MAX);
        let moved = look.moved.wrapping_sub(seen.looked_moved);
        if moved < little && look.may_end {
            // A full socket takes nothing for as long as a slow reader needs for a third of it, so
            // this is asked before it is ended; the first time there is nothing to compare with.
            let has_acknowledged = connections.acknowledged(index).is_some_and(|bytes| {
                // Truncated: differences below 4 GiB are right. Never 0, which is unknown.
                let now = (bytes as u32).max(1);
                let before = std::mem::replace(&mut seen.looked_acknowledged, now);
                before == 0 || now.wrapping_sub(before) >= little
            });
            if !has_acknowledged {
                return true;
            }
        }
        seen.looked_ms = now_ms;
        seen.looked_moved = look.moved;
        false
    }
}

/// 0 for one smallest buffer or less, else one more than the power of two.
fn class_of(held_bytes: usize) -> u8 {
    buffers_of(held_bytes)
        .checked_ilog2()
        .map_or(0, |power| power as u8)
}

/// Truncated: differences within 49 days are right.
fn milliseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000) as u32
}

#[cfg(test)]
pub(super) mod tests;
