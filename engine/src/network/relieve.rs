//! Ending those that hold most and move least, while connections wait for memory.
//!
//! A shortage is worked on in rounds, [`RELIEF_PERIOD_NS`] apart. The thread with the largest
//! holder ends some of its own: another that is short asks it to (`relief.rs`), and ends its own in
//! the next round, should that not have helped. So one thread's holders do not last because nobody
//! waits there.
//!
//! Invariants
//! - H3: a connection is ended only after it was seen to move little for `HOLDER_WINDOW_NS`, unless
//!   a shortage has lasted for `SHORTAGE_NS_MAX` and every holder moves.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection};
use crate::limits::{
    HOLDER_STEPS_MAX, HOLDER_WINDOW_NS, HOLDERS_ENDED_MAX, HOLDERS_PRESSED_MAX, INPUT_BYTES_MAX,
    MOVES_PART, RELIEF_PART, RELIEF_PERIOD_NS, RELIEF_WAIT_NS, RETRIES_MAX, SHORTAGE_NS_MAX,
    WEIGH_PERIOD_NS,
};
use crate::phase::Phase;
use crate::pools::Wanted;

use super::holders::{CLASSES, Shortage, buffers_of, class_of, milliseconds};
use super::thread::Network;
use super::waits::Wait;

impl<D: Driver> Network<D> {
    /// Looks whether memory runs short, and counts holders if so.
    pub(super) fn weigh_memory(&mut self) {
        self.thread.holders.weigh_ns = self.thread.now_ns() + WEIGH_PERIOD_NS;
        let is_waited_for = !self.thread.waits.is_empty(Wait::Memory)
            || self.thread.common.dispatcher.waiting_for_memory() > 0;
        self.thread.common.shared.pools.weigh(is_waited_for);
        self.count_holders();
    }

    /// Ends holders while connections wait for memory, those of another thread that asks for it
    /// too.
    pub(super) fn relieve(&mut self) {
        let now_ns = self.thread.now_ns();
        let waiting = self.thread.waits.len(Wait::Memory)
            + self.thread.common.dispatcher.waiting_for(Wanted::Small);
        let asked_bytes = self
            .thread
            .common
            .shared
            .relief
            .take(self.thread.common.number);
        if waiting == 0 && asked_bytes == 0 {
            return self.end_shortage();
        }
        // The thread that asks has waited already.
        let wait_ns = if asked_bytes > 0 { 0 } else { RELIEF_WAIT_NS };
        let shortage = self
            .thread
            .holders
            .shortage
            .get_or_insert_with(|| Shortage {
                since_ns: now_ns,
                relief_ns: now_ns + wait_ns,
                press_ns: now_ns,
                press_class: CLASSES - 1,
                appeals: 0,
                has_appealed: false,
                ended: 0,
                ended_bytes: 0,
            });
        if now_ns >= shortage.press_ns {
            shortage.press_ns = now_ns + RELIEF_PERIOD_NS;
            let class = shortage.press_class;
            self.press_holders(class);
        }
        let Some(shortage) = &mut self.thread.holders.shortage else {
            return;
        };
        if now_ns < shortage.relief_ns {
            return;
        }
        shortage.relief_ns = now_ns + RELIEF_PERIOD_NS;
        // What is freed in this round comes back when the connections have ended.
        let wanted = waiting.min(RETRIES_MAX) * INPUT_BYTES_MAX;
        let wanted = wanted.min(self.thread.common.shared.pools.budget_bytes() / RELIEF_PART);
        self.run_relief(wanted, asked_bytes);
    }

    /// A round: where another thread has larger holders it is asked to end them, and only if that
    /// does not help are those of this thread ended, in the next round.
    fn run_relief(&mut self, own_bytes: usize, asked_bytes: usize) {
        let room = self.thread.common.shared.pools.available_bytes();
        let largest = self.largest_class();
        let larger = self
            .thread
            .common
            .shared
            .relief
            .larger(self.thread.common.number, largest);
        let Some(shortage) = &mut self.thread.holders.shortage else {
            return;
        };
        let has_appealed = std::mem::take(&mut shortage.has_appealed);
        if let Some(other) = larger
            && room < own_bytes
            && !has_appealed
        {
            shortage.has_appealed = true;
            return self.appeal(other, own_bytes);
        }
        let lasted_ns = self.thread.common.turn.now_ns - shortage.since_ns;
        let is_long = lasted_ns >= SHORTAGE_NS_MAX && shortage.ended == 0 && larger.is_none();
        let room = self.end_holders(room, own_bytes.max(asked_bytes), is_long);
        if room < own_bytes && larger.is_none() {
            // Others may have holders of one buffer, which are in no class.
            let appeals = self
                .thread
                .holders
                .shortage
                .as_ref()
                .map_or(0, |it| it.appeals);
            if let Some(other) = self
                .thread
                .common
                .shared
                .relief
                .other(self.thread.common.number, appeals)
            {
                self.appeal(other, own_bytes);
            }
        }
    }

    /// Has another thread end holders of its own.
    fn appeal(&mut self, other: u16, bytes: usize) {
        if let Some(shortage) = &mut self.thread.holders.shortage {
            shortage.appeals += 1;
        }
        self.thread.common.shared.relief.ask(other, bytes);
        if let Some(waker) = self.thread.common.shared.inboxes[usize::from(other)]
            .waker
            .get()
        {
            waker.wake();
        }
    }

    /// The class of the largest holders of this thread, which the others are told.
    fn largest_class(&mut self) -> u8 {
        let mut classes = (1..CLASSES).rev();
        let largest = classes.find(|class| self.thread.holders.lists[*class].first().is_some());
        let largest = largest.unwrap_or(0) as u8;
        self.thread.holders.published = largest;
        self.thread
            .common
            .shared
            .relief
            .publish(self.thread.common.number, largest);
        largest
    }

    /// Ends holders until there is as much room as wanted. Returns the room there is then.
    fn end_holders(&mut self, mut room: usize, wanted: usize, is_long: bool) -> usize {
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
        room
    }

    /// Asks holders to hand on what they hold, if they can, from the highest class down: some of
    /// them in each round.
    fn press_holders(&mut self, from_class: usize) {
        let mut left = HOLDERS_PRESSED_MAX;
        for class in (1..=from_class).rev() {
            let last = self.thread.holders.lists[class].last();
            while let Some(index) = self.thread.holders.lists[class].first() {
                if left == 0 {
                    if let Some(shortage) = &mut self.thread.holders.shortage {
                        shortage.press_class = class;
                    }
                    return;
                }
                left -= 1;
                let list = &mut self.thread.holders.lists[class];
                self.thread.holders.links.move_back(list, index);
                if let Some(key) = self.connections.key_at(index) {
                    self.on(key, |event| event.call(|protocol, io| protocol.pressed(io)));
                }
                if Some(index) == last {
                    break;
                }
            }
        }
        if let Some(shortage) = &mut self.thread.holders.shortage {
            shortage.press_class = CLASSES - 1;
        }
    }

    /// The log has one line for each time of shortage, when it is over.
    fn end_shortage(&mut self) {
        let Some(shortage) = self.thread.holders.shortage.take_if(|shortage| {
            self.thread.common.turn.now_ns >= shortage.relief_ns.saturating_add(RELIEF_WAIT_NS)
        }) else {
            return;
        };
        if shortage.ended > 0 {
            let milliseconds = (self.thread.common.turn.now_ns - shortage.since_ns) / 1_000_000;
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
        let now_ms = milliseconds(self.thread.common.turn.now_ns);
        for class in (1..CLASSES).rev() {
            let last = self.thread.holders.lists[class].last();
            while let Some(index) = self.thread.holders.lists[class].first() {
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
        let held_bytes = self.thread.held_bytes(index);
        let connection = self.connections.get_mut(key)?;
        let now_class = class_of(buffers_of(held_bytes));
        connection.holds.buffers = buffers_of(held_bytes);
        if usize::from(now_class) != class {
            self.thread
                .holders
                .enter(index, &mut connection.holds, now_class);
            return None;
        }
        if is_still(&self.thread.driver, connection, held_bytes, now_ms) {
            return Some(key);
        }
        let list = &mut self.thread.holders.lists[class];
        self.thread.holders.links.move_back(list, index);
        None
    }

    /// One that holds a single buffer and has moved little: the next that the hand comes to (H2).
    fn still_holder_of_one(&mut self, steps: &mut u32) -> Option<Key> {
        let now_ms = milliseconds(self.thread.common.turn.now_ns);
        while *steps < HOLDER_STEPS_MAX {
            *steps += 1;
            let index = self.thread.holders.hand;
            self.thread.holders.hand = (index + 1) % self.connections.capacity();
            let held_bytes = self.thread.held_bytes(index);
            let Some(key) = self.connections.key_at(index).filter(|_| held_bytes > 0) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            // What the server works on is not the client's doing.
            let is_worked_on = connection.jobs_out() > 0
                || connection.phase() == Phase::Work && connection.is_sent();
            if connection.holds.class > 0 || is_worked_on {
                continue;
            }
            if connection.holds.looked_ms == 0 {
                connection.holds.looked_ms = now_ms.max(1);
                connection.holds.looked_moved = connection.moved();
            } else if is_still(&self.thread.driver, connection, held_bytes, now_ms) {
                return Some(key);
            }
        }
        None
    }

    /// One that holds most, whatever it moves.
    fn largest_holder(&mut self) -> Option<Key> {
        let mut lists = self.thread.holders.lists.iter().rev();
        let key = lists.find_map(|list| self.connections.key_at(list.first()?))?;
        can_be_ended(self.connections.get(key)?).then_some(key)
    }

    /// The bytes that come back.
    fn end_holder(&mut self, key: Key) -> usize {
        let held_bytes = self.thread.held_bytes(key.index);
        self.counters(key).connections_ended_for_memory.add(1);
        if let Some(shortage) = &mut self.thread.holders.shortage {
            shortage.ended += 1;
            shortage.ended_bytes += held_bytes;
        }
        self.on(key, |event| {
            let holds = &mut event.connection.holds;
            event.thread.holders.leave(key.index, holds);
            event.end_for_memory();
        });
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
    let moved = connection
        .moved()
        .wrapping_sub(connection.holds.looked_moved);
    if moved < little && can_be_ended(connection) && !has_acknowledged(driver, connection, little) {
        return true;
    }
    connection.holds.looked_ms = now_ms;
    connection.holds.looked_moved = connection.moved();
    false
}

/// Whether the peer has taken so much of a reply since the last look. A full socket takes nothing
/// for as long as a slow reader needs for a third of it, so this is asked before it is ended; the
/// first time there is nothing to compare with.
fn has_acknowledged<D: Driver>(driver: &D, connection: &mut Connection, bytes: u32) -> bool {
    if !connection.is_sending() {
        return false;
    }
    let Some(delivery) = driver.delivery(connection.socket()) else {
        return false;
    };
    // Truncated: differences below 4 GiB are right. Never 0, which is unknown.
    let now = (delivery.acked_bytes as u32).max(1);
    let before = std::mem::replace(&mut connection.holds.looked_acknowledged, now);
    before == 0 || now.wrapping_sub(before) >= bytes
}

fn can_be_ended(connection: &Connection) -> bool {
    connection.closing() < Closing::Abort
}
