//! Who holds how much of the memory for buffers, and what follows from it.
//!
//! A connection that holds its share or more is stalled ([`Stall::Share`]): its own input waits,
//! everybody else's does not. When connections wait for memory nonetheless, those that hold most
//! and move least are ended, one after the other, until there is room.
//!
//! Holders are kept in lists by the power of two of what they hold. A connection moves up when an
//! event finds it holding more; down, and to the back of its list, only when a shortage has the
//! list looked at. So the path of a request costs one load and one comparison.
//!
//! Invariants
//! - H1: a connection with `holds.class > 0` is in the list of that class, any other in none.
//! - H2: holdings of one smallest buffer count as nothing, until a shortage finds no other holder
//!   to end: then a hand goes round the table, a part of it in each round, and those that hold one
//!   buffer, move little and have nothing in work are ended too.
//! - H3: a connection is ended only after it was seen to move little for `HOLDER_WINDOW_NS`, unless
//!   a shortage has lasted for `SHORTAGE_NS_MAX` and every holder moves.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection, Send};
use crate::context::{Stall, Wanted};
use crate::holdings::{Cells, Waited};
use crate::limits::{
    BUFFER_CLASSES, HELD_PAGES_LEFT_PART, HOLDER_STEPS_MAX, HOLDER_WINDOW_NS, HOLDERS_ENDED_MAX,
    HOLDERS_PRESSED_MAX, INPUT_BYTES_MAX, MOVES_PART, RELIEF_PART, RELIEF_PERIOD_NS,
    RELIEF_WAIT_NS, RETRIES_MAX, SHORTAGE_NS_MAX, WEIGH_PERIOD_NS,
};
use crate::lists::{Links, List};
use crate::protocol::Phase;

use super::Network;

/// Classes of holders: 8 KiB, 16 KiB and so on to all that 32 bits of smallest buffers are.
const CLASSES: usize = 33;

/// What a connection holds, as far as has been noted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    /// In smallest buffers; 0 for one or none (H2).
    pub(super) buffers: u32,
    /// The list it is in; 0 for none (H1).
    class: u8,
    /// Common pages that it holds while it is stalled.
    pub(super) pages: u16,
    /// It is stalled for want of memory.
    pub(super) waits: bool,
    /// Where and as how much it is counted with its address and listener, see `excess.rs`.
    pub(super) has_cells: bool,
    pub(super) cells: Cells,
    pub(super) counted: u32,
    /// When it was last looked at, in milliseconds, and how much it had moved until then.
    looked_ms: u32,
    looked_moved: u32,
    /// What its peer had acknowledged then, of a reply under way; 0 for not known.
    looked_acknowledged: u32,
}

/// The holders of one network thread.
pub(crate) struct Holders {
    links: Links,
    lists: [List; CLASSES],
    shortage: Option<Shortage>,
    /// The place in the table where the hand is that looks for holders of one buffer (H2).
    hand: u32,
    /// When the pool is to be looked at next.
    weigh_ns: u64,
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
    ended: u64,
    ended_bytes: usize,
}

impl Holders {
    pub(crate) fn new(places: usize) -> Holders {
        Holders {
            links: Links::new(places),
            lists: [List::default(); CLASSES],
            shortage: None,
            hand: 0,
            weigh_ns: 0,
        }
    }

    fn enter(&mut self, index: u32, holds: &mut Holds, class: u8) {
        self.leave(index, holds);
        holds.class = class;
        if class > 0 {
            self.links
                .push_back(&mut self.lists[usize::from(class)], index);
        }
    }

    /// The connection is gone, or holds nothing that counts.
    pub(super) fn leave(&mut self, index: u32, holds: &mut Holds) {
        let class = std::mem::take(&mut holds.class);
        if class > 0 {
            self.links
                .remove(&mut self.lists[usize::from(class)], index);
        }
    }
}

/// 0 for one smallest buffer or less, else one more than the power of two.
fn class_of(buffers: u32) -> u8 {
    buffers.checked_ilog2().map_or(0, |power| power as u8)
}

/// Pages of one thread: fewer than 65,536.
fn small(pages: usize) -> u16 {
    u16::try_from(pages).unwrap_or(u16::MAX)
}

fn buffers_of(held_bytes: usize) -> u32 {
    let buffers = u32::try_from(held_bytes / BUFFER_CLASSES[0]).unwrap_or(u32::MAX);
    if buffers <= 1 { 0 } else { buffers }
}

impl<D: Driver> Network<D> {
    /// Notes what a connection holds by now.
    #[inline]
    pub(super) fn weigh_memory(&mut self, key: Key) {
        let held_bytes = self.shared.pools.held_bytes(self.ring, key.index);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.holds.pages > 0 || !connection.held.is_empty() {
            self.weigh_pages(key);
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let buffers = buffers_of(held_bytes);
        let waits = connection.stalled == Some(Stall::Memory);
        let holds = &mut connection.holds;
        if buffers != holds.buffers || waits != holds.waits {
            let grows = buffers > holds.buffers;
            (holds.buffers, holds.waits) = (buffers, waits);
            self.holding_changed(key, held_bytes);
            self.count_holding(key);
            if grows {
                self.stall_in_excess(key);
            }
        }
    }

    /// Counts the common pages that a stalled connection holds. Stalled connections, whatever they
    /// wait for, and fragments that are kept may have pages as long as a part is left to the
    /// others; a connection that comes to hold more then is refused at once.
    fn weigh_pages(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        // What is deferred is offered soon, whatever there is room for.
        let held = connection.held.iter();
        let pages = match connection.stalled {
            Some(_) => held.filter(|(piece, _)| piece.region_id() == 0).count(),
            None => 0,
        };
        let before = std::mem::replace(&mut connection.holds.pages, small(pages));
        self.holding = self.holding + pages - usize::from(before);
        let common = self.driver.region(0);
        let all = common.pages() as usize;
        let taken = self.holding + common.kept() as usize;
        // A joined one holds a single page, and would lose what its pair was promised.
        let is_bound = connection.joint.is_none();
        if is_bound && small(pages) > before && taken > all - all / HELD_PAGES_LEFT_PART {
            self.refuse(key);
            self.release_unwanted(key);
            // What it is told has not been sent yet.
            self.again.push(key);
        }
    }

    fn holding_changed(&mut self, key: Key, held_bytes: usize) {
        let now_ns = self.turn.now_ns;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let class = class_of(connection.holds.buffers);
        if class > connection.holds.class {
            if connection.holds.class == 0 {
                connection.holds.looked_ms = milliseconds(now_ns);
                connection.holds.looked_moved = connection.moved;
            }
            self.holders.enter(key.index, &mut connection.holds, class);
        }
        let has_share = held_bytes >= self.shared.pools.share_bytes();
        if has_share && connection.takes_input() && connection.joint.is_none() {
            connection.stall(Stall::Share, now_ns);
            self.shared.statistics.share_stalls.add(1);
            if !std::mem::replace(&mut connection.in_waiting, true) {
                self.waiting_share.push_back(key);
            }
        }
    }

    /// True when a connection that had its share holds half of it or less, and its address and
    /// listener have less than theirs.
    pub(super) fn is_below_share(&self, key: Key) -> bool {
        let pools = &self.shared.pools;
        pools.held_bytes(self.ring, key.index) <= pools.share_bytes() / 2
            && self.excess(key, Waited::Yes).is_none()
    }

    /// Looks at connections that had their share: buffers may have come back on other threads.
    pub(super) fn retry_shares(&mut self) {
        for _ in 0..self.waiting_share.len().min(RETRIES_MAX) {
            let Some(key) = self.waiting_share.pop_front() else {
                break;
            };
            let is_below = self.is_below_share(key);
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if connection.stalled == Some(Stall::Share) && !is_below {
                self.waiting_share.push_back(key);
                continue;
            }
            connection.in_waiting = false;
            self.settle(key);
        }
    }

    /// Ends holders while connections wait for memory; called once per turn.
    pub(super) fn relieve(&mut self) {
        let now_ns = self.turn.now_ns;
        if now_ns >= self.holders.weigh_ns {
            self.holders.weigh_ns = now_ns + WEIGH_PERIOD_NS;
            let is_waited_for =
                !self.waiting_memory.is_empty() || self.desk.waiting_for_memory() > 0;
            self.shared.pools.weigh(is_waited_for);
            self.count_holders();
        }
        if self.waiting_memory.is_empty() && self.desk.waiting_for(Wanted::Small) == 0 {
            return self.end_shortage();
        }
        let shortage = self.holders.shortage.get_or_insert_with(|| Shortage {
            since_ns: now_ns,
            relief_ns: now_ns + RELIEF_WAIT_NS,
            press_ns: now_ns,
            press_class: CLASSES - 1,
            ended: 0,
            ended_bytes: 0,
        });
        if now_ns >= shortage.press_ns {
            shortage.press_ns = now_ns + RELIEF_PERIOD_NS;
            let class = shortage.press_class;
            self.press_holders(class);
        }
        let Some(shortage) = &mut self.holders.shortage else {
            return;
        };
        if now_ns < shortage.relief_ns {
            return;
        }
        shortage.relief_ns = now_ns + RELIEF_PERIOD_NS;
        let is_long = now_ns - shortage.since_ns >= SHORTAGE_NS_MAX && shortage.ended == 0;
        // What is freed in this round comes back when the connections have ended.
        let waiting = self.waiting_memory.len() + self.desk.waiting_for(Wanted::Small);
        let wanted = waiting.min(RETRIES_MAX) * INPUT_BYTES_MAX;
        let wanted = wanted.min(self.shared.pools.budget_bytes() / RELIEF_PART);
        let mut room = self.shared.pools.available_bytes();
        let mut steps = 0;
        for _ in 0..HOLDERS_ENDED_MAX {
            if room >= wanted {
                break;
            }
            let found = self.stillest_holder(&mut steps);
            let found = found.or_else(|| self.still_holder_of_one(&mut steps));
            let found = found.or_else(|| is_long.then(|| self.largest_holder()).flatten());
            let Some(key) = found else {
                break;
            };
            room += self.end_holder(key);
        }
    }

    /// Asks holders to hand on what they hold, if they can, from the highest class down: some of
    /// them in each round.
    fn press_holders(&mut self, from_class: usize) {
        let mut left = HOLDERS_PRESSED_MAX;
        for class in (1..=from_class).rev() {
            let last = self.holders.lists[class].last();
            while let Some(index) = self.holders.lists[class].first() {
                if left == 0 {
                    if let Some(shortage) = &mut self.holders.shortage {
                        shortage.press_class = class;
                    }
                    return;
                }
                left -= 1;
                let list = &mut self.holders.lists[class];
                self.holders.links.move_back(list, index);
                if let Some(key) = self.connections.key_at(index) {
                    self.call(key, |speaker, call| speaker.pressed(call));
                    self.settle(key);
                }
                if Some(index) == last {
                    break;
                }
            }
        }
        if let Some(shortage) = &mut self.holders.shortage {
            shortage.press_class = CLASSES - 1;
        }
    }

    /// The log has one line for each time of shortage, when it is over.
    fn end_shortage(&mut self) {
        let Some(shortage) = self.holders.shortage.take_if(|shortage| {
            self.turn.now_ns >= shortage.relief_ns.saturating_add(RELIEF_WAIT_NS)
        }) else {
            return;
        };
        if shortage.ended > 0 {
            let milliseconds = (self.turn.now_ns - shortage.since_ns) / 1_000_000;
            log::warn!(
                "the memory for buffers was used up for {milliseconds} ms: {} connections that \
                 held {} bytes and moved little were ended",
                shortage.ended,
                shortage.ended_bytes
            );
        }
    }

    /// The holder of the highest class that has moved little since it was last looked at. Those
    /// that moved go to the back of their list, those that hold less by now to another.
    fn stillest_holder(&mut self, steps: &mut u32) -> Option<Key> {
        let now_ms = milliseconds(self.turn.now_ns);
        for class in (1..CLASSES).rev() {
            let last = self.holders.lists[class].last();
            while let Some(index) = self.holders.lists[class].first() {
                *steps += 1;
                if *steps > HOLDER_STEPS_MAX / 2 {
                    return None;
                }
                if let Some(key) = self.look_at(index, class, now_ms) {
                    return Some(key);
                }
                if Some(index) == last {
                    break;
                }
            }
        }
        None
    }

    /// Looks at the first of a list, which is somewhere else afterwards or is to be ended.
    fn look_at(&mut self, index: u32, class: usize, now_ms: u32) -> Option<Key> {
        let key = self.connections.key_at(index)?;
        let held_bytes = self.shared.pools.held_bytes(self.ring, index);
        let connection = self.connections.get_mut(key)?;
        let now_class = class_of(buffers_of(held_bytes));
        connection.holds.buffers = buffers_of(held_bytes);
        if usize::from(now_class) != class {
            self.holders.enter(index, &mut connection.holds, now_class);
            return None;
        }
        if is_still(&self.driver, connection, held_bytes, now_ms) {
            return Some(key);
        }
        let list = &mut self.holders.lists[class];
        self.holders.links.move_back(list, index);
        None
    }

    /// One that holds a single buffer and has moved little: the next that the hand comes to (H2).
    fn still_holder_of_one(&mut self, steps: &mut u32) -> Option<Key> {
        let now_ms = milliseconds(self.turn.now_ns);
        while *steps < HOLDER_STEPS_MAX {
            *steps += 1;
            let index = self.holders.hand;
            self.holders.hand = (index + 1) % self.connections.capacity();
            let held_bytes = self.shared.pools.held_bytes(self.ring, index);
            let Some(key) = self.connections.key_at(index).filter(|_| held_bytes > 0) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            // What the server works on is not the client's doing.
            let is_worked_on = connection.control.jobs_out > 0
                || connection.control.phase == Phase::Work && connection.is_sent();
            if connection.holds.class > 0 || is_worked_on {
                continue;
            }
            if connection.holds.looked_ms == 0 {
                connection.holds.looked_ms = now_ms.max(1);
                connection.holds.looked_moved = connection.moved;
            } else if is_still(&self.driver, connection, held_bytes, now_ms) {
                return Some(key);
            }
        }
        None
    }

    /// One that holds most, whatever it moves.
    fn largest_holder(&mut self) -> Option<Key> {
        let mut lists = self.holders.lists.iter().rev();
        let key = lists.find_map(|list| self.connections.key_at(list.first()?))?;
        can_be_ended(self.connections.get(key)?).then_some(key)
    }

    /// The bytes that come back.
    fn end_holder(&mut self, key: Key) -> usize {
        let held_bytes = self.shared.pools.held_bytes(self.ring, key.index);
        self.shared.statistics.holders_ended.add(1);
        if let Some(shortage) = &mut self.holders.shortage {
            shortage.ended += 1;
            shortage.ended_bytes += held_bytes;
        }
        if let Some(connection) = self.connections.get_mut(key) {
            self.holders.leave(key.index, &mut connection.holds);
        }
        self.end_for_memory(key);
        self.settle(key);
        held_bytes
    }
}

/// Whether a holder has moved little since it was last looked at, some time ago; else that was now.
fn is_still<D: Driver>(
    driver: &D,
    connection: &mut Connection,
    held_bytes: usize,
    now_ms: u32,
) -> bool {
    if now_ms.wrapping_sub(connection.holds.looked_ms) < milliseconds(HOLDER_WINDOW_NS) {
        return false;
    }
    let little = u32::try_from(held_bytes / MOVES_PART).unwrap_or(u32::MAX);
    let moved = connection.moved.wrapping_sub(connection.holds.looked_moved);
    if moved < little && can_be_ended(connection) && !has_acknowledged(driver, connection, little) {
        return true;
    }
    connection.holds.looked_ms = now_ms;
    connection.holds.looked_moved = connection.moved;
    false
}

/// Whether the peer has taken so much of a reply since the last look. A full socket takes nothing
/// for as long as a slow reader needs for a third of it, so this is asked before it is ended; the
/// first time there is nothing to compare with.
fn has_acknowledged<D: Driver>(driver: &D, connection: &mut Connection, bytes: u32) -> bool {
    if connection.send == Send::Off {
        return false;
    }
    let Some(acknowledged) = driver.bytes_acked(connection.socket) else {
        return false;
    };
    // Truncated: differences below 4 GiB are right. Never 0, which is unknown.
    let now = (acknowledged as u32).max(1);
    let before = std::mem::replace(&mut connection.holds.looked_acknowledged, now);
    before == 0 || now.wrapping_sub(before) >= bytes
}

fn can_be_ended(connection: &Connection) -> bool {
    connection.control.closing < Closing::Abort
}

/// Truncated: differences within 49 days are right.
fn milliseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000) as u32
}
