//! Which connections of a network thread hold most of the memory for buffers, and which of them is
//! ended while others wait for it: the state, and the verdicts.
//!
//! Holders are kept in lists by the power of two of what they hold. A connection moves up when an
//! event finds it holding more; down, and to the back of its list, only when a shortage has the
//! list looked at. So the path of a request costs one load and one comparison. Connections are
//! known by their places in the table alone; `network/relieve.rs` does what a verdict says.
//!
//! Invariants
//! - H1: a connection whose class is above 0 is in the list of that class, any other in none.
//! - H2: holdings of one smallest buffer count as nothing, until a shortage finds no other holder
//!   to end: then a hand goes round the table, a part of it in each round, and those that hold one
//!   buffer, move little and have nothing in work are ended too.
//! - H3: a connection is ended only after it was seen to move little for `HOLDER_WINDOW_NS`, unless
//!   a shortage has lasted for `SHORTAGE_NS_MAX` and every holder moves.

use crate::address_limit::{Cells, Excess};
use crate::episode::{BoundEpisode, Price};
use crate::limits::{
    BUFFER_CLASSES, HOLDER_STEPS_MAX, HOLDER_WINDOW_NS, HOLDERS_PRESSED_MAX, MOVES_PART,
    RELIEF_PERIOD_NS, RELIEF_WAIT_NS, SHORTAGE_NS_MAX,
};
use crate::lists::{Links, List};

/// What an address or a listener has come to.
const SHARE_HELD: &str = "connections hold their share of the memory for buffers";

/// Classes of holders: 8 KiB, 16 KiB and so on to all that 32 bits of smallest buffers are.
const CLASSES: usize = 33;

/// What a connection holds, as far as its last event has noted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    /// In smallest buffers; 0 for one or none (H2).
    pub(crate) buffers: u32,
    /// Common pages that it holds while it is stalled.
    pub(crate) pages: u16,
    /// It is stalled for want of memory.
    pub(crate) waits: bool,
    /// Where it is counted with its address, in all bounds.
    pub(crate) cells: Cells,
    /// As how much it is counted with its address and listener, see `network/excess.rs`.
    pub(crate) counted: u32,
}

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
struct Account {
    /// The list it is in; 0 for none (H1).
    class: u8,
    /// When it was last looked at, in milliseconds, and how much it had moved until then.
    looked_ms: u32,
    looked_moved: u32,
    /// What its peer had acknowledged then, of a reply under way; 0 for not known.
    looked_acknowledged: u32,
}

/// Connections wait for memory.
#[derive(Debug)]
struct Shortage {
    since_ns: u64,
    /// Not before then is a holder ended.
    relief_ns: u64,
    /// When holders are asked next to hand on what they have, and from which class down.
    press_ns: u64,
    press_class: usize,
    /// Threads that were asked to end holders of theirs.
    appeals: usize,
    /// The last round has asked one that has larger holders.
    has_appealed: bool,
    ended: u64,
    ended_bytes: usize,
}

/// What a round of a shortage is to do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Holders are asked to hand on what they hold: [`Holders::pressed`].
    pub(crate) presses: bool,
    /// Holders are ended: [`Holders::victim`].
    pub(crate) relieves: bool,
}

/// The holders of one network thread.
#[derive(Debug)]
pub(crate) struct Holders {
    accounts: Vec<Account>,
    links: Links,
    lists: [List; CLASSES],
    shortage: Option<Shortage>,
    /// The place in the table where the hand is that looks for holders of one buffer (H2).
    hand: u32,
    /// The highest class that other threads were told of.
    published: u8,
    /// Times in which an address, or a listener, holds more than its share.
    address_excess: BoundEpisode,
    listener_excess: BoundEpisode,
}

impl Holders {
    pub(crate) fn new(places: usize) -> Holders {
        Holders {
            accounts: Vec::new(),
            links: Links::new(places),
            lists: [List::default(); CLASSES],
            shortage: None,
            hand: 0,
            published: 0,
            address_excess: BoundEpisode::new(SHARE_HELD),
            listener_excess: BoundEpisode::new(SHARE_HELD),
        }
    }

    fn account(&mut self, index: u32) -> &mut Account {
        let index = index as usize;
        if self.accounts.len() <= index {
            self.accounts.resize(index + 1, Account::default());
        }
        &mut self.accounts[index]
    }

    fn enter(&mut self, index: u32, class: u8) {
        self.leave(index);
        self.account(index).class = class;
        if class > 0 {
            let list = &mut self.lists[usize::from(class)];
            self.links.push_back(list, index);
        }
    }

    fn leave(&mut self, index: u32) {
        let class = std::mem::take(&mut self.account(index).class);
        if class > 0 {
            let list = &mut self.lists[usize::from(class)];
            self.links.remove(list, index);
        }
    }

    /// The connection at a place is gone.
    pub(crate) fn left(&mut self, index: u32) {
        if (index as usize) < self.accounts.len() {
            self.leave(index);
            *self.account(index) = Account::default();
        }
    }

    /// A connection holds so much after an event. The class that others are to be told of, if this
    /// is the largest holder so far.
    pub(crate) fn note(
        &mut self,
        index: u32,
        held_bytes: usize,
        moved: u32,
        now_ns: u64,
    ) -> Option<u8> {
        let class = class_of(held_bytes);
        let account = self.account(index);
        if class <= account.class {
            return None;
        }
        if account.class == 0 {
            account.looked_ms = milliseconds(now_ns);
            account.looked_moved = moved;
        }
        self.enter(index, class);
        let is_largest = class > self.published;
        self.published = self.published.max(class);
        is_largest.then_some(class)
    }

    /// The class of the largest holder, which the other threads are told.
    pub(crate) fn largest_class(&mut self) -> u8 {
        let mut classes = (1..CLASSES).rev();
        let largest = classes.find(|class| self.lists[*class].first().is_some());
        self.published = largest.unwrap_or(0) as u8;
        self.published
    }

    /// Whether connections wait for memory, or did a moment ago.
    pub(crate) fn is_short(&self) -> bool {
        self.shortage.is_some()
    }

    /// Connections wait for memory, here or on another thread that has asked: it has waited
    /// already.
    pub(crate) fn begin_round(&mut self, now_ns: u64, is_asked: bool) -> Round {
        let wait_ns = if is_asked { 0 } else { RELIEF_WAIT_NS };
        let shortage = self.shortage.get_or_insert_with(|| Shortage {
            since_ns: now_ns,
            relief_ns: now_ns + wait_ns,
            press_ns: now_ns,
            press_class: CLASSES - 1,
            appeals: 0,
            has_appealed: false,
            ended: 0,
            ended_bytes: 0,
        });
        let round = Round {
            presses: now_ns >= shortage.press_ns,
            relieves: now_ns >= shortage.relief_ns,
        };
        if round.presses {
            shortage.press_ns = now_ns + RELIEF_PERIOD_NS;
        }
        if round.relieves {
            shortage.relief_ns = now_ns + RELIEF_PERIOD_NS;
        }
        round
    }

    /// No connection waits any more. The log has one line for each time of shortage, when it is
    /// over.
    pub(crate) fn end_shortage(&mut self, now_ns: u64) {
        let is_over = |it: &mut Shortage| now_ns >= it.relief_ns.saturating_add(RELIEF_WAIT_NS);
        let Some(shortage) = self.shortage.take_if(is_over) else {
            return;
        };
        if shortage.ended > 0 {
            let milliseconds = (now_ns - shortage.since_ns) / 1_000_000;
            log::warn!(
                "the memory for buffers was used up for {milliseconds} ms: {} connections that \
                 held {} bytes and moved little were ended",
                shortage.ended,
                shortage.ended_bytes
            );
        }
    }

    /// The next holders that are asked to hand on what they hold, if they can: from the highest
    /// class down, some of them in each round.
    pub(crate) fn pressed(&mut self) -> Vec<u32> {
        let mut pressed = Vec::new();
        let from = self
            .shortage
            .as_ref()
            .map_or(CLASSES - 1, |it| it.press_class);
        let mut next = CLASSES - 1;
        'classes: for class in (1..=from).rev() {
            let last = self.lists[class].last();
            while let Some(index) = self.lists[class].first() {
                if pressed.len() == HOLDERS_PRESSED_MAX {
                    next = class;
                    break 'classes;
                }
                pressed.push(index);
                self.links.move_back(&mut self.lists[class], index);
                if Some(index) == last {
                    break;
                }
            }
        }
        if let Some(shortage) = &mut self.shortage {
            shortage.press_class = next;
        }
        pressed
    }

    /// Whether another thread, which has larger holders, is asked to end some of them, instead of
    /// ending one here: not twice in a row, as that did not help then.
    pub(crate) fn appeals_first(&mut self, is_larger_elsewhere: bool, is_short: bool) -> bool {
        let Some(shortage) = &mut self.shortage else {
            return false;
        };
        let has_appealed = shortage.has_appealed;
        shortage.has_appealed = is_larger_elsewhere && is_short && !has_appealed;
        shortage.has_appealed
    }

    /// How many times another thread was asked in this shortage.
    pub(crate) fn appeals(&self) -> usize {
        self.shortage.as_ref().map_or(0, |it| it.appeals)
    }

    /// Another thread is asked.
    pub(crate) fn appeal(&mut self) {
        if let Some(shortage) = &mut self.shortage {
            shortage.appeals += 1;
        }
    }

    /// Whether a shortage has lasted so long without an end that one that moves is ended (H3).
    pub(crate) fn is_long(&self, now_ns: u64) -> bool {
        self.shortage
            .as_ref()
            .is_some_and(|it| now_ns - it.since_ns >= SHORTAGE_NS_MAX && it.ended == 0)
    }

    /// The connection to end next: the largest of those that have moved little, else one that holds
    /// a single buffer and has moved little, else, if the shortage `is_long`, the largest. `steps`
    /// are those of one round, and `places` those of the table.
    pub(crate) fn victim(
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

    /// A connection is ended because of the bytes that it holds.
    pub(crate) fn ended(&mut self, index: u32, held_bytes: usize) {
        self.leave(index);
        if let Some(shortage) = &mut self.shortage {
            shortage.ended += 1;
            shortage.ended_bytes += held_bytes;
        }
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
            let account = self.account(index);
            if account.class > 0 || look.is_worked_on {
                continue;
            }
            if account.looked_ms == 0 {
                account.looked_ms = now_ms.max(1);
                account.looked_moved = look.moved;
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
        let account = self.account(index);
        if now_ms.wrapping_sub(account.looked_ms) < milliseconds(HOLDER_WINDOW_NS) {
            return false;
        }
        let little = u32::try_from(look.held_bytes / MOVES_PART).unwrap_or(u32::MAX);
        let moved = look.moved.wrapping_sub(account.looked_moved);
        if moved < little && look.may_end {
            // A full socket takes nothing for as long as a slow reader needs for a third of it, so
            // this is asked before it is ended; the first time there is nothing to compare with.
            let has_acknowledged = connections.acknowledged(index).is_some_and(|bytes| {
                // Truncated: differences below 4 GiB are right. Never 0, which is unknown.
                let now = (bytes as u32).max(1);
                let before = std::mem::replace(&mut account.looked_acknowledged, now);
                before == 0 || now.wrapping_sub(before) >= little
            });
            if !has_acknowledged {
                return true;
            }
        }
        account.looked_ms = now_ms;
        account.looked_moved = look.moved;
        false
    }

    /// An address, or a listener, has more than its share; `who` says which one.
    pub(crate) fn note_excess(&mut self, excess: Excess, now_ns: u64, who: &dyn Fn() -> String) {
        let episode = match excess {
            Excess::Address => &mut self.address_excess,
            Excess::Listener => &mut self.listener_excess,
        };
        episode.note(now_ns, Price::Stalled, who);
    }

    /// Ends the episodes that are over.
    pub(crate) fn end_episodes(&mut self, now_ns: u64) {
        self.address_excess.end(now_ns);
        self.listener_excess.end(now_ns);
    }

    /// When the next episode may be over.
    pub(crate) fn episode_end_ns(&self) -> Option<u64> {
        let episodes = [&self.address_excess, &self.listener_excess];
        episodes.into_iter().filter_map(BoundEpisode::end_ns).min()
    }
}

/// 0 for one smallest buffer or less, else one more than the power of two.
fn class_of(held_bytes: usize) -> u8 {
    buffers_of(held_bytes)
        .checked_ilog2()
        .map_or(0, |power| power as u8)
}

/// What is held, in smallest buffers; 0 for one or none (H2).
#[inline]
pub(crate) fn buffers_of(held_bytes: usize) -> u32 {
    let buffers = u32::try_from(held_bytes / BUFFER_CLASSES[0]).unwrap_or(u32::MAX);
    if buffers <= 1 { 0 } else { buffers }
}

/// Truncated: differences within 49 days are right.
fn milliseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000) as u32
}

#[cfg(test)]
mod tests;
