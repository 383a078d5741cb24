//! What comes back from workers, and what waits for room.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Ended};
use crate::context::Stall;

use super::Network;

impl<D: Driver> Network<D> {
    /// Hands every job in the inbox to its connection, oldest first.
    pub(crate) fn collect_jobs(&mut self) {
        let shared = std::sync::Arc::clone(&self.shared);
        for index in shared.inboxes[usize::from(self.ring)].arrived.take_all() {
            let Some(task) = self.desk.collect(index) else {
                continue;
            };
            let home = task.connection();
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
            self.call(home.key, |speaker, call| speaker.finished(call, task));
            if self.stalled(home.key) == Some(Stall::Pipeline) {
                self.resume(home.key);
            }
            self.settle(home.key);
        }
    }

    fn stalled(&self, key: Key) -> Option<Stall> {
        self.connections
            .get(key)
            .and_then(|connection| connection.stalled)
    }

    /// Lets connections that were stalled for want of room try again, oldest first, each once.
    pub(super) fn retry_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            if !self.desk.has_room() {
                break;
            }
            let Some(key) = self.waiting.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.in_waiting = false;
            if matches!(connection.stalled, Some(Stall::Jobs | Stall::Memory)) {
                self.resume(key);
            }
            self.settle(key);
        }
    }

    /// A connection found no room for too long: it is told so in its protocol's words and closed.
    pub(super) fn refuse(&mut self, key: Key) {
        self.shared.statistics.stalls_refused.add(1);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.stalled = None;
        if connection.joint.is_some() {
            // A clean end would say that nothing is missing.
            return connection.control.close(Closing::Abort);
        }
        connection.ended = if connection.ended == Ended::No {
            Ended::No
        } else {
            Ended::Told
        };
        let refusal = self.listeners[usize::from(connection.listener)]
            .speaker
            .refusal();
        if connection.control.jobs_out > 0 || !connection.is_sent() {
            // Words in the middle of another reply would be taken for a part of it.
            connection.control.close(Closing::AfterOutput);
        } else {
            if !refusal.is_empty() {
                connection
                    .output
                    .push(flatpath_driver::Segment::Shared(refusal));
            }
            connection.control.close(Closing::Lingering);
        }
    }
}
