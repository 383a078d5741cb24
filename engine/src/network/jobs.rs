//! What comes back from workers, and what waits for room.

use std::collections::VecDeque;

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Ended};
use crate::limits::{BUFFER_CLASSES, INPUT_BYTES_MAX, RETRIES_MAX, RETRY_FAILURES_MAX};
use crate::phase::Stall;
use crate::pools::Wanted;

use super::Network;

/// How many waiting connections so much free memory is for: one while the smallest buffer can be
/// had, and one more for each of the longest input that is kept.
fn retries_within(free_bytes: usize) -> usize {
    if free_bytes < BUFFER_CLASSES[0] {
        return 0;
    }
    1 + free_bytes / INPUT_BYTES_MAX
}

impl<D: Driver> Network<D> {
    /// Hands every job in the inbox to its connection, oldest first. A connection is settled once
    /// for jobs of it that follow each other, so that the replies to a burst are sent together.
    pub(crate) fn collect_jobs(&mut self) {
        if self.common.shared.inboxes[usize::from(self.common.ring)]
            .arrived
            .is_empty()
        {
            return self.common.desk.follow_parked(self.common.turn.now_ns);
        }
        let shared = std::sync::Arc::clone(&self.common.shared);
        let mut called: Option<Key> = None;
        for index in shared.inboxes[usize::from(self.common.ring)]
            .arrived
            .take_all()
        {
            let Some(task) = self.common.desk.collect(index, self.common.turn.now_ns) else {
                continue;
            };
            let home = task.connection();
            if let Some(other) = called.take_if(|key| *key != home.key) {
                self.jobs_collected(other);
            }
            let Some(connection) = self.connections.get_mut(home.key) else {
                self.listeners[usize::from(home.listener)]
                    .speaker
                    .retire(task);
                continue;
            };
            connection.control.jobs_out -= 1;
            if connection.control.closing == Closing::Abort {
                self.listeners[usize::from(home.listener)]
                    .speaker
                    .retire(task);
                continue;
            }
            self.call(home.key, |speaker, io| speaker.finished(io, task));
            called = Some(home.key);
        }
        if let Some(key) = called {
            self.jobs_collected(key);
        }
        self.common.desk.follow_parked(self.common.turn.now_ns);
    }

    fn jobs_collected(&mut self, key: Key) {
        if self.stalled(key) == Some(Stall::Pipeline) {
            self.resume_in_turn(key);
        }
        self.settle(key);
    }

    fn stalled(&self, key: Key) -> Option<Stall> {
        self.connections
            .get(key)
            .and_then(|connection| connection.stalled)
    }

    /// The queue of those that wait for the same kind of room.
    pub(super) fn waiting_for(&mut self, stall: Stall) -> &mut VecDeque<Key> {
        match stall {
            Stall::Jobs => &mut self.waiting_jobs,
            Stall::Lasting => &mut self.waiting_lasting,
            _ => &mut self.waiting_memory,
        }
    }

    /// Lets connections that were stalled for want of room try again, oldest first: no more than
    /// there is room for, so that a turn costs the same however many wait.
    pub(super) fn retry_waiting(&mut self) {
        if !self.waiting_jobs.is_empty() {
            self.retry(Stall::Jobs, self.common.desk.room());
        }
        if !self.waiting_lasting.is_empty() {
            self.retry(Stall::Lasting, self.common.desk.lasting_room());
        }
        let waits_without_worker = self.common.desk.waiting_for_memory() > 0;
        if waits_without_worker {
            // Short replies are first: the reserve is there for them.
            let jobs_max = self.memory_retries().min(RETRIES_MAX);
            self.common
                .desk
                .try_memory(Wanted::Small, jobs_max, self.common.turn.now_ns);
        }
        if !self.waiting_memory.is_empty() {
            let room = self.memory_retries();
            self.retry(Stall::Memory, room);
        }
        if waits_without_worker {
            // Those above come first: what they wait for has a deadline.
            let room = retries_within(self.common.shared.pools.available_bytes());
            let jobs_max = room.min(RETRIES_MAX);
            self.common
                .desk
                .try_memory(Wanted::Large, jobs_max, self.common.turn.now_ns);
        }
        self.retry_shares();
    }

    fn memory_retries(&self) -> usize {
        let pools = &self.common.shared.pools;
        match retries_within(pools.available_bytes()) {
            // Some may wait for small buffers only.
            0 => retries_within(pools.reserve_bytes()).min(RETRY_FAILURES_MAX as usize),
            room => room,
        }
    }

    fn retry(&mut self, stall: Stall, room: usize) {
        let waiting = self.waiting_for(stall).len();
        let mut failures = 0;
        for _ in 0..waiting.min(room).min(RETRIES_MAX) {
            let Some(key) = self.waiting_for(stall).pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.in_waiting = false;
            if connection.stalled == Some(stall) {
                failures += u32::from(!self.retry_one(key));
            }
            self.settle(key);
            if failures == RETRY_FAILURES_MAX {
                break;
            }
        }
    }

    /// Offers a stalled connection its input again. False: nothing moved, so the deadline of its
    /// stall stays where it is.
    fn retry_one(&mut self, key: Key) -> bool {
        let before = self.connections.get(key).map_or(0, |found| found.moved);
        self.resume(key);
        let now_ns = self.common.turn.now_ns;
        let Some(connection) = self.connections.get_mut(key) else {
            return true;
        };
        let is_stalled = connection.stalled.is_some_and(Stall::is_for_room);
        let has_moved = connection.moved != before || !is_stalled;
        if has_moved {
            connection.stall_ended(now_ns);
        }
        has_moved
    }

    /// A connection found no room for too long: it is refused in its protocol's words and closed.
    pub(super) fn refuse(&mut self, key: Key) {
        self.common.shared.statistics.stalls_refused.add(1);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.joint.is_some() {
            // A clean end would say that nothing is missing.
            connection.control.close(Closing::Abort);
        } else if connection.control.jobs_out > 0 || !connection.is_sent() {
            // Words in the middle of another reply would be taken for a part of it.
            self.abandon(key);
            self.close(key, Closing::AfterOutput);
        } else {
            self.end_with_refusal(key);
        }
    }

    /// A connection is ended because of the memory it holds: in words where they can be said at
    /// once, else by a reset, as what it holds is what its peer does not read.
    pub(super) fn end_for_memory(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let is_busy = connection.joint.is_some()
            || connection.control.jobs_out > 0
            || connection.control.closing != Closing::No
            || !connection.is_sent();
        if is_busy {
            connection.control.close(Closing::Abort);
        } else {
            self.end_with_refusal(key);
        }
    }

    fn end_with_refusal(&mut self, key: Key) {
        self.abandon(key);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let refusal = self.listeners[usize::from(connection.listener)]
            .speaker
            .options()
            .refusal
            .clone();
        if !refusal.is_empty() {
            connection.output.push(refusal.into());
        }
        connection.control.close(Closing::Lingering);
    }

    /// Drops what the connection holds of input.
    fn abandon(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.stalled = None;
            connection.clocks.stall_ns = 0;
            if connection.ended != Ended::No {
                connection.ended = Ended::Told;
            }
        }
        self.call(key, |speaker, io| speaker.abandoned(io));
    }
}
