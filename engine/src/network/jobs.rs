//! What comes back from workers, and what waits for room.

use std::sync::Arc;

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::Closing;
use crate::limits::{BUFFER_CLASSES, INPUT_BYTES_MAX, RETRIES_MAX, RETRY_FAILURES_MAX};
use crate::network::waits::{Wait, wait_for};
use crate::protocol::phase::{EndedBy, Room, Stall};
use crate::workers::MemoryQueue;

use super::thread::{Event, Network};

/// How many waiting connections so much free memory is for: one while the smallest buffer can be
/// had, and one more for each of the longest input that is kept.
fn retries_within(free_bytes: usize) -> usize {
    if free_bytes < BUFFER_CLASSES[0] {
        return 0;
    }
    1 + free_bytes / INPUT_BYTES_MAX
}

impl<D: Driver> Network<D> {
    /// Hands every job in the mailbox to its connection, oldest first. A connection is reconciled
    /// once for jobs of it that follow each other, so that the replies to a burst are sent
    /// together.
    pub(crate) fn collect_jobs(&mut self) {
        let common = &self.thread.common;
        if common.mailbox().has_jobs() {
            let (shared, thread) = (Arc::clone(common.shared()), usize::from(common.number()));
            let mut called: Option<Key> = None;
            for index in shared.mailboxes[thread].jobs() {
                self.collect_job(index, &mut called);
            }
            if let Some(key) = called {
                self.jobs_collected(key);
            }
        }
    }

    fn collect_job(&mut self, index: u32, called: &mut Option<Key>) {
        let common = &mut self.thread.common;
        let Some(task) = common.dispatcher.collect(index) else {
            return;
        };
        let home = task.connection();
        if usize::from(home.listener) >= self.listeners.len() {
            return self.datagrams.finished(common, task);
        }
        if let Some(other) = called.take_if(|key| *key != home.key) {
            self.jobs_collected(other);
        }
        if let Some(mut event) = self.event(home.key) {
            event.connection.job_came_back();
            if event.connection.closing() != Closing::Abort {
                event.call(|protocol, io| protocol.finished(io, task));
                *called = Some(home.key);
                return;
            }
        }
        let listener = &mut self.listeners[usize::from(home.listener)];
        if let Err(mut other) = listener.protocol_mut().retire(task.into_any()) {
            for protocol in self.thread.successors.all() {
                match protocol.retire(other) {
                    Ok(()) => return,
                    Err(back) => other = back,
                }
            }
            debug_assert!(false, "a job is of a listener or of a successor");
        }
    }

    fn jobs_collected(&mut self, key: Key) {
        self.on(key, |event| {
            if event.connection.stalled().is_some_and(Stall::is_for_job) {
                event.resume_in_turn();
            }
        });
    }

    /// Lets connections that were stalled without room try again, oldest first: no more than there
    /// is room for, so that a turn costs the same however many wait.
    pub(super) fn retry_waiting(&mut self) {
        if !self.thread.waits.is_empty(Wait::Jobs) {
            self.retry(Room::Jobs, self.thread.common.dispatcher.room());
        }
        if !self.thread.waits.is_empty(Wait::LongLived) {
            self.retry(
                Room::LongLived,
                self.thread.common.dispatcher.long_lived_room(),
            );
        }
        let waits_without_worker = self.thread.common.dispatcher.waiting_for_memory() > 0;
        if waits_without_worker {
            // Short replies are first: the reserve is there for them.
            let pools = self.thread.common.pools();
            let bulk_bytes = pools.reserve_bulk_bytes();
            self.retry_jobs(
                MemoryQueue::Small,
                self.memory_retries(pools.reserve_bytes()),
            );
            self.retry_jobs(MemoryQueue::Favoured, self.memory_retries(bulk_bytes));
        }
        if !self.thread.waits.is_empty(Wait::Memory) {
            let reserve_bytes = self.thread.common.pools().reserve_bytes();
            let room = self.memory_retries(reserve_bytes);
            self.retry(Room::Memory, room);
        }
        if waits_without_worker {
            // Those above come first: what they wait for has a deadline.
            let free_bytes = self.thread.common.pools().available_bytes();
            self.retry_jobs(MemoryQueue::Large, retries_within(free_bytes));
        }
        if !self.thread.waits.is_empty(Wait::Share) {
            self.retry_shares();
        }
    }

    /// Looks at connections that had their share: buffers may have come back on other threads.
    fn retry_shares(&mut self) {
        for _ in 0..self.thread.waits.len(Wait::Share).min(RETRIES_MAX) {
            let Some(key) = self.next_waiting(Wait::Share) else {
                break;
            };
            // It continues, or waits again: see `try_stalled`.
            self.on(key, |_| {});
        }
    }

    fn retry_jobs(&mut self, queue: MemoryQueue, room: usize) {
        let common = &mut self.thread.common;
        let now_ns = common.turn.now_ns;
        common
            .dispatcher
            .try_memory(queue, room.min(RETRIES_MAX), now_ns);
    }

    /// For those that have so much of the reserve when there is nothing else.
    fn memory_retries(&self, reserve_bytes: usize) -> usize {
        let pools = self.thread.common.pools();
        match retries_within(pools.available_bytes()) {
            // Some may wait for small buffers only.
            0 => retries_within(reserve_bytes).min(RETRY_FAILURES_MAX as usize),
            room => room,
        }
    }

    fn retry(&mut self, kind: Room, room: usize) {
        let wait = wait_for(kind);
        let waiting = self.thread.waits.len(wait);
        let mut failures = 0;
        for _ in 0..waiting.min(room).min(RETRIES_MAX) {
            let Some(key) = self.next_waiting(wait) else {
                break;
            };
            if self.is_spliced(key) {
                failures += u32::from(!self.retry_spliced(key));
            } else {
                self.on(key, |event| {
                    let stalled = event.connection.stalled().map(Stall::ended_by);
                    if stalled == Some(EndedBy::Room(kind)) {
                        failures += u32::from(!event.retry());
                    }
                });
            }
            if failures == RETRY_FAILURES_MAX {
                break;
            }
        }
    }
}

impl<D: Driver> Event<'_, D> {
    /// Offers a stalled connection its input again. False: nothing moved, so the deadline of its
    /// stall stays where it is.
    fn retry(&mut self) -> bool {
        let before = self.connection.moved();
        self.resume();
        let connection = &mut *self.connection;
        connection.note_retry(before, self.thread.common.turn.now_ns)
    }
}
