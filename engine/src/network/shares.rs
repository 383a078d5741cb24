//! Who holds how much of the memory for buffers, and what follows from it.
//!
//! A connection that holds its share or more is stalled ([`Stall::Share`]): its own input waits,
//! everybody else's does not. When connections wait for memory nonetheless, holders are ended: see
//! `relieve.rs`.
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

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::holdings::{Cells, Waited};
use crate::limits::{BUFFER_CLASSES, HELD_PAGES_LEFT_PART, RETRIES_MAX};
use crate::lists::{Links, List};
use crate::phase::Stall;

use super::Network;
use super::relieve::Shortage;

/// Classes of holders: 8 KiB, 16 KiB and so on to all that 32 bits of smallest buffers are.
pub(super) const CLASSES: usize = 33;

/// What a connection holds, as far as has been noted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    /// In smallest buffers; 0 for one or none (H2).
    pub(super) buffers: u32,
    /// The list it is in; 0 for none (H1).
    pub(super) class: u8,
    /// Common pages that it holds while it is stalled.
    pub(super) pages: u16,
    /// It is stalled for want of memory.
    pub(super) waits: bool,
    /// Where and as how much it is counted with its address and listener, see `excess.rs`.
    pub(super) has_cells: bool,
    pub(super) cells: Cells,
    pub(super) counted: u32,
    /// When it was last looked at, in milliseconds, and how much it had moved until then.
    pub(super) looked_ms: u32,
    pub(super) looked_moved: u32,
    /// What its peer had acknowledged then, of a reply under way; 0 for not known.
    pub(super) looked_acknowledged: u32,
}

/// The holders of one network thread.
pub(crate) struct Holders {
    pub(super) links: Links,
    pub(super) lists: [List; CLASSES],
    pub(super) shortage: Option<Shortage>,
    /// The place in the table where the hand is that looks for holders of one buffer (H2).
    pub(super) hand: u32,
    /// When the pool is to be looked at next.
    pub(super) weigh_ns: u64,
    /// The highest class that other threads were told of.
    pub(super) published: u8,
}

impl Holders {
    pub(crate) fn new(places: usize) -> Holders {
        Holders {
            links: Links::new(places),
            lists: [List::default(); CLASSES],
            shortage: None,
            hand: 0,
            weigh_ns: 0,
            published: 0,
        }
    }

    pub(super) fn enter(&mut self, index: u32, holds: &mut Holds, class: u8) {
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
pub(super) fn class_of(buffers: u32) -> u8 {
    buffers.checked_ilog2().map_or(0, |power| power as u8)
}

/// Pages of one thread: fewer than 65,536.
fn small(pages: usize) -> u16 {
    u16::try_from(pages).unwrap_or(u16::MAX)
}

pub(super) fn buffers_of(held_bytes: usize) -> u32 {
    let buffers = u32::try_from(held_bytes / BUFFER_CLASSES[0]).unwrap_or(u32::MAX);
    if buffers <= 1 { 0 } else { buffers }
}

impl<D: Driver> Network<D> {
    /// Notes what a connection holds by now.
    #[inline]
    pub(super) fn weigh_memory(&mut self, key: Key) {
        let held_bytes = self
            .common
            .shared
            .pools
            .held_bytes(self.common.ring, key.index);
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
        let taken = self.holding + common.retained() as usize;
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
        let now_ns = self.common.turn.now_ns;
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
            if class > self.holders.published {
                self.holders.published = class;
                self.common.shared.relief.publish(self.common.ring, class);
            }
        }
        let has_share = held_bytes >= self.common.shared.pools.share_bytes();
        if has_share && connection.takes_input() && connection.joint.is_none() {
            connection.stall(Stall::Share, now_ns);
            self.common.shared.statistics.share_stalls.add(1);
            if !std::mem::replace(&mut connection.in_waiting, true) {
                self.waiting_share.push_back(key);
            }
        }
    }

    /// True when a connection that had its share holds half of it or less, and its address and
    /// listener have less than theirs.
    pub(super) fn is_below_share(&self, key: Key) -> bool {
        let pools = &self.common.shared.pools;
        pools.held_bytes(self.common.ring, key.index) <= pools.share_bytes() / 2
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
}

/// Truncated: differences within 49 days are right.
pub(super) fn milliseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000) as u32
}
