//! Who holds how much of the memory for buffers, and what follows from it.
//!
//! A connection that holds its share or more is stalled ([`Stall::Share`]): its own input waits,
//! everybody else's does not. When connections wait for memory nonetheless, holders are ended: see
//! `relieve.rs`.

use flatpath_driver::Driver;

use crate::address_limit::Waited;
use crate::limits::HELD_PAGES_LEFT_PART;
use crate::memory::holders::buffers_of;
use crate::phase::Stall;
use crate::waits::Wait;

use super::thread::Event;

/// Pages of one thread: fewer than 65,536.
fn small(pages: usize) -> u16 {
    u16::try_from(pages).unwrap_or(u16::MAX)
}

impl<D: Driver> Event<'_, D> {
    /// Whether the connection holds or waits for something else than after its last event.
    #[inline]
    pub(super) fn has_new_holdings(&self) -> bool {
        let holds = &self.connection.holds;
        let buffers = buffers_of(self.thread.common.held_bytes(self.key.index));
        buffers != holds.buffers || self.connection.waits_for_memory() != holds.waits
    }

    /// Notes what the connection holds by now, beside pages.
    pub(super) fn check_memory(&mut self) {
        let held_bytes = self.thread.common.held_bytes(self.key.index);
        let buffers = buffers_of(held_bytes);
        let waits = self.connection.waits_for_memory();
        let holds = &mut self.connection.holds;
        if buffers != holds.buffers || waits != holds.waits {
            let grows = buffers > holds.buffers;
            (holds.buffers, holds.waits) = (buffers, waits);
            self.holding_changed(held_bytes);
            self.count_holding();
            if grows {
                self.stall_in_excess();
            }
        }
    }

    /// Counts the common pages that a stalled connection holds. Stalled connections, whatever they
    /// wait for, and fragments that are kept may have pages as long as a part is left to the
    /// others; a connection that comes to hold more then is refused at once.
    pub(super) fn weigh_pages(&mut self) {
        let connection = &mut *self.connection;
        let pages = connection.pages_stalled();
        let before = std::mem::replace(&mut connection.holds.pages, small(pages));
        if before == small(pages) {
            return;
        }
        let thread = &mut *self.thread;
        thread.pages_held = thread.pages_held + pages - usize::from(before);
        let common = thread.driver.region(0);
        let all = common.pages() as usize;
        let taken = thread.pages_held + common.retained() as usize;
        // A spliced one holds a single page, and would lose what its pair was promised.
        let is_bound = connection.peer().is_none();
        if is_bound && small(pages) > before && taken > all - all / HELD_PAGES_LEFT_PART {
            self.refuse();
            self.release_unwanted();
            // What it is told has not been sent yet.
            self.wait(Wait::Again);
        }
    }

    fn holding_changed(&mut self, held_bytes: usize) {
        let now_ns = self.thread.common.turn.now_ns;
        let connection = &mut *self.connection;
        let holders = &mut self.thread.holders;
        let largest = holders.note(self.key.index, held_bytes, connection.moved(), now_ns);
        if let Some(class) = largest {
            let common = &self.thread.common;
            common.shared.appeals.publish(common.number, class);
        }
        let shared = &self.thread.common.shared;
        let has_share = held_bytes >= shared.pools.share_bytes();
        if has_share && connection.takes_input() && connection.peer().is_none() {
            self.stall(Stall::Share);
            self.wait(Wait::Share);
        }
    }

    /// True when a connection that had its share holds half of it or less, and its address and
    /// listener have less than theirs.
    pub(super) fn is_below_share(&self) -> bool {
        let share_bytes = self.thread.common.shared.pools.share_bytes();
        self.thread.common.held_bytes(self.key.index) <= share_bytes / 2
            && self.excess(Waited::Yes).is_none()
    }
}
