//! Ending connections that hold memory, while others wait for it: those that hold most and move
//! least, as `holders.rs` says, and for bulk of a favoured user (`pools.rs`) those that last
//! (`lasting.rs`), whether they move or not.
//!
//! A shortage is worked on in rounds, `RELIEF_PERIOD_NS` apart. The thread with the largest
//! holder ends some of its own: another that is short asks it to (`memory/appeals.rs`), and ends its own in
//! the next round, should that not have helped. So one thread's holders do not last because nobody
//! waits there.

use flatpath_driver::Driver;
use flatpath_structures::slots::Slots;

use crate::common::Common;
use crate::connection::{Closing, Connection};
use crate::limits::{
    COUNTED_PER_LOOK, HOLDERS_ENDED_MAX, INPUT_BYTES_MAX, RELIEF_PART, RELIEF_PERIOD_NS,
    RETRIES_MAX, WEIGH_PERIOD_NS,
};
use crate::memory::holders::{Connections, Look};
use crate::phase::Phase;
use crate::waits::Wait;

use super::thread::Network;

/// The connections of a thread, and what asks about their peers.
struct View<'a, D: Driver> {
    connections: &'a Slots<Connection>,
    common: &'a Common,
    driver: &'a D,
}

impl<D: Driver> View<'_, D> {
    fn connection(&self, index: u32) -> Option<&Connection> {
        self.connections.get(self.connections.key_at(index)?)
    }
}

impl<D: Driver> Connections for View<'_, D> {
    fn look(&self, index: u32) -> Option<Look> {
        let connection = self.connection(index)?;
        Some(Look {
            held_bytes: self.common.held_bytes(index),
            moved: connection.moved(),
            may_end: connection.closing() < Closing::Abort,
            is_worked_on: connection.jobs_out() > 0
                || connection.phase() == Phase::Work && connection.is_sent(),
        })
    }

    fn acknowledged(&self, index: u32) -> Option<u64> {
        let connection = self.connection(index).filter(|one| one.is_sending())?;
        let delivery = self.driver.delivery(connection.socket())?;
        Some(delivery.acked_bytes)
    }
}

impl<D: Driver> Network<D> {
    /// Looks whether memory runs short, and counts holders if so.
    pub(super) fn weigh_memory(&mut self) {
        self.weigh_ns = self.thread.now_ns() + WEIGH_PERIOD_NS;
        let is_waited_for = !self.thread.waits.is_empty(Wait::Memory)
            || self.thread.common.dispatcher.waiting_for_memory() > 0;
        self.thread.common.shared.pools.weigh(is_waited_for);
        self.count_holders();
    }

    /// Counts those that have held their buffers since less than a quarter was in use, and those
    /// that came while half of the places were free: a part of the table each time.
    pub(super) fn count_holders(&mut self) {
        let is_weighed = self.thread.common.shared.pools.is_weighed();
        let (load, admission) = (self.load(), &self.thread.admission);
        let is_crowded = admission.is_half_full(load) && !admission.knows_all(load);
        if !is_weighed && !is_crowded {
            return;
        }
        let places = self.connections.capacity();
        for _ in 0..COUNTED_PER_LOOK.min(places) {
            let index = self.count_hand;
            self.count_hand = (index + 1) % places;
            let Some(mut event) = self.event_at(index) else {
                continue;
            };
            let connection = &event.connection;
            if connection.is_sending_last() {
                // Its socket may be closed by now: the driver cannot say whose it is.
                continue;
            }
            let holds = &connection.holds;
            if is_weighed && holds.buffers > 0 && holds.counted == 0 {
                event.count_holding();
            }
            let key = event.key;
            if is_crowded && !self.awaits_header(key) {
                self.address_of(key);
            }
        }
    }

    /// Ends holders while connections wait for memory, those of another thread that asks for it
    /// too.
    pub(super) fn relieve(&mut self) {
        let now_ns = self.thread.now_ns();
        let common = &self.thread.common;
        let waiting = self.thread.waits.len(Wait::Memory) + common.dispatcher.waiting_for_reserve();
        let asked_bytes = common.shared.appeals.take(common.number);
        if waiting == 0 && asked_bytes == 0 {
            return self.thread.holders.end_shortage(now_ns);
        }
        let round = self.thread.holders.begin_round(now_ns, asked_bytes > 0);
        if round.presses {
            self.press_holders();
            self.serve_favoured();
        }
        if round.relieves {
            // What is freed in this round comes back when the connections have ended.
            let wanted = waiting.min(RETRIES_MAX) * INPUT_BYTES_MAX;
            let budget_bytes = self.thread.common.shared.pools.budget_bytes();
            self.run_relief(wanted.min(budget_bytes / RELIEF_PART), asked_bytes);
        }
    }

    /// While bulk of a favoured user waits, each round ends one connection: the one that has lasted
    /// longest of those whose address holds more memory than the average.
    fn serve_favoured(&mut self) {
        let since_ns = self.thread.common.dispatcher.favoured_since_ns();
        let now_ns = self.thread.now_ns();
        if since_ns.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(RELIEF_PERIOD_NS))
            && let Some(key) = self.longest_of_heavy()
        {
            self.end_lasting(key);
        }
    }

    /// A round: where another thread has larger holders it is asked to end them, and only if that
    /// does not help are those of this thread ended, in the next round.
    fn run_relief(&mut self, own_bytes: usize, asked_bytes: usize) {
        let (holders, common) = (&mut self.thread.holders, &self.thread.common);
        let (relief, number) = (&common.shared.appeals, common.number);
        let room = common.shared.pools.available_bytes();
        let largest = holders.largest_class();
        relief.publish(number, largest);
        let larger = relief.larger(number, largest);
        if holders.appeals_first(larger.is_some(), room < own_bytes)
            && let Some(other) = larger
        {
            holders.appeal();
            return self.ask(other, own_bytes);
        }
        let is_long = larger.is_none() && holders.is_long(common.turn.now_ns);
        let room = self.end_holders(room, own_bytes.max(asked_bytes), is_long);
        if room < own_bytes && larger.is_none() {
            // Others may have holders of one buffer, which are in no class.
            let common = &self.thread.common;
            let relief = &common.shared.appeals;
            if let Some(other) = relief.other(common.number, self.thread.holders.appeals()) {
                self.thread.holders.appeal();
                self.ask(other, own_bytes);
            }
        }
    }

    /// Has another thread end holders of its own.
    fn ask(&self, other: u16, bytes: usize) {
        let shared = &self.thread.common.shared;
        shared.appeals.ask(other, bytes);
        shared.mailboxes[usize::from(other)].tell();
    }

    /// Ends holders until there is as much room as wanted. Returns the room there is then.
    fn end_holders(&mut self, mut room: usize, wanted: usize, is_long: bool) -> usize {
        let (mut steps, places) = (0, self.connections.capacity());
        for _ in 0..HOLDERS_ENDED_MAX {
            if room >= wanted {
                break;
            }
            let view = View {
                connections: &self.connections,
                common: &self.thread.common,
                driver: &self.thread.driver,
            };
            let now_ns = view.common.turn.now_ns;
            let budget = (&mut steps, places);
            let holders = &mut self.thread.holders;
            let Some(index) = holders.victim(&view, now_ns, budget, is_long) else {
                break;
            };
            room += self.end_holder(index);
        }
        room
    }

    /// Asks holders to hand on what they hold, if they can.
    fn press_holders(&mut self) {
        for index in self.thread.holders.pressed() {
            if let Some(key) = self.connections.key_at(index) {
                self.on(key, |event| event.call(|protocol, io| protocol.pressed(io)));
            }
        }
    }

    /// The bytes that come back.
    fn end_holder(&mut self, index: u32) -> usize {
        let Some(key) = self.connections.key_at(index) else {
            return 0;
        };
        let held_bytes = self.thread.common.held_bytes(index);
        self.counters(key).connections_ended_for_memory.add(1);
        self.thread.holders.ended(index, held_bytes);
        self.on(key, |event| {
            event.end_for_memory();
        });
        held_bytes
    }
}
