//! What each connection of a network thread holds of the memory for buffers, and which of them
//! last.
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

use crate::address_limit::Cells;
use crate::episode::BoundEpisode;
use crate::limits::BUFFER_CLASSES;
use crate::lists::{Links, List};

/// What an address or a listener has come to.
const SHARE_HELD: &str = "connections hold their share of the memory for buffers";

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
    /// It is among those that last: see `lasting.rs`.
    pub(super) lasts: bool,
    /// Where it is counted with its address, in all bounds.
    pub(crate) cells: Cells,
    /// As how much it is counted with its address and listener, see `excess.rs`.
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
    /// The place where holders are counted next that were not yet: see `excess.rs`.
    pub(super) count_hand: u32,
    /// Times in which an address, or a listener, holds more than its share.
    pub(super) address_excess: BoundEpisode,
    pub(super) listener_excess: BoundEpisode,
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
            count_hand: 0,
            address_excess: BoundEpisode::new(SHARE_HELD),
            listener_excess: BoundEpisode::new(SHARE_HELD),
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

    pub(super) fn episodes(&mut self) -> [&mut BoundEpisode; 2] {
        [&mut self.address_excess, &mut self.listener_excess]
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

/// The connections of one network thread that last, in the order in which they began to: see L2 in
/// `lasting.rs`.
#[derive(Debug)]
pub(crate) struct Lasting {
    pub(super) links: Links,
    pub(super) list: List,
    /// When some are ended next, at the earliest.
    pub(super) round_ns: u64,
}

impl Lasting {
    pub(super) fn new(places: usize) -> Lasting {
        Lasting {
            links: Links::new(places),
            list: List::default(),
            round_ns: 0,
        }
    }

    /// The first of its jobs that last begins.
    pub(crate) fn enter(&mut self, index: u32, holds: &mut Holds) {
        if std::mem::replace(&mut holds.lasts, true) {
            self.links.move_back(&mut self.list, index);
        } else {
            self.links.push_back(&mut self.list, index);
        }
    }

    pub(super) fn leave(&mut self, index: u32, holds: &mut Holds) {
        if std::mem::take(&mut holds.lasts) {
            self.links.remove(&mut self.list, index);
        }
    }
}

/// 0 for one smallest buffer or less, else one more than the power of two.
pub(super) fn class_of(buffers: u32) -> u8 {
    buffers.checked_ilog2().map_or(0, |power| power as u8)
}

pub(super) fn buffers_of(held_bytes: usize) -> u32 {
    let buffers = u32::try_from(held_bytes / BUFFER_CLASSES[0]).unwrap_or(u32::MAX);
    if buffers <= 1 { 0 } else { buffers }
}

/// Connections wait for memory.
#[derive(Debug)]
pub(super) struct Shortage {
    pub(super) since_ns: u64,
    /// Not before then is a holder ended.
    pub(super) relief_ns: u64,
    /// When holders are asked next to hand on what they have, and from which class down.
    pub(super) press_ns: u64,
    pub(super) press_class: usize,
    /// Threads that were asked to end holders of theirs.
    pub(super) appeals: usize,
    /// The last round has asked one that has larger holders.
    pub(super) has_appealed: bool,
    pub(super) ended: u64,
    pub(super) ended_bytes: usize,
}

/// Truncated: differences within 49 days are right.
pub(super) fn milliseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000) as u32
}
