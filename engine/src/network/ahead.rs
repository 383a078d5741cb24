//! Read ahead: what is sent of a file is in the kernel's cache by then, so that no send waits for a
//! disk.
//!
//! Before each window of a file it is asked whether it is at hand. Of one that is not, a worker
//! reads the first part, and the next part while that one is sent, and so on: the disk is busy also
//! where the kernel reads little ahead. What a worker has read is sent, whatever the answer is: a
//! file system that never answers would otherwise be asked again and again. What is dropped from
//! the cache in that moment is waited for here; the kernel drops what was used last at last.
//!
//! Invariants
//! - RA1: a connection has one part with workers at most, and waits for it without a deadline of
//!   its own: the time is the disk's, not the client's.
//! - RA2: a network thread has [`READS_AHEAD_MAX`] with workers; the others wait in [`Wait::Disk`],
//!   oldest first, and none reads ahead of them what is not awaited yet.

use std::sync::Arc;

use flatpath_driver::{Driver, FileRange};

use crate::connection::output::{Awaited, first_read};
use crate::network::waits::Wait;
use crate::protocol::discard::call_later;

use super::thread::{Event, Network};

/// Parts that workers read for the connections of one network thread at a time; others wait. Fewer
/// than fill the bin (`protocol/discard.rs`).
const READS_AHEAD_MAX: usize = 64;

impl<D: Driver> Event<'_, D> {
    /// Notes that a window of a file is at hand, or has it read, now or when fewer others are.
    /// True: something of it is at hand.
    #[cold]
    pub(super) fn ask_for(&mut self, window: FileRange) -> bool {
        let (driver, output) = (&mut self.thread.driver, self.connection.output_mut());
        if driver.is_at_hand(&window) {
            output.is_at_hand();
        } else {
            let first = first_read(&window);
            let is_there =
                output.first_was_read() || (output.uses_disk() && driver.is_at_hand(&first));
            if !is_there {
                self.await_read(first);
                return false;
            }
            output.first_is_at_hand();
        }
        self.read_next();
        true
    }

    fn await_read(&mut self, first: FileRange) {
        let is_full = self.thread.common.wakes().reading() >= READS_AHEAD_MAX;
        let output = self.connection.output_mut();
        output.compact();
        match output.awaits_read() {
            Awaited::Read => {}
            Awaited::Unread if !is_full => self.read(first),
            Awaited::Unread | Awaited::Other => {
                output.waits_for_disk();
                self.wait(Wait::Disk);
            }
        }
    }

    /// Has the next part read while what is at hand is sent, if it comes from a disk.
    fn read_next(&mut self) {
        let Some(next) = self.connection.output().next_read() else {
            return;
        };
        let thread = &mut *self.thread;
        let is_full = thread.common.wakes().reading() >= READS_AHEAD_MAX;
        let others_wait = !thread.waits.is_empty(Wait::Disk);
        if !is_full && !others_wait && !thread.driver.is_at_hand(&next) {
            self.read(next);
        }
    }

    fn read(&mut self, part: FileRange) {
        self.connection.output_mut().begins_read();
        // Also if that panics.
        let reading = self.thread.common.wakes().reads(self.key);
        call_later(move || {
            part.file().read_ahead(part.range());
            // The file first: the connection may be gone, and then this is the last that has it.
            drop(part);
            drop(reading);
        });
    }
}

impl<D: Driver> Network<D> {
    /// Notes what has been read ahead, and has others read in its place. Each is sent as its event
    /// ends, by the rule for long sends (`send.rs`): all that a disk brings at once is more than a
    /// turn sends.
    pub(super) fn take_reads(&mut self) {
        let wakes = Arc::clone(self.thread.common.wakes());
        for index in wakes.read.indices() {
            self.on(wakes.read.take(index), |event| {
                event.connection.output_mut().has_read();
                event.read_next();
            });
        }
        for _ in 0..self.thread.waits.len(Wait::Disk) {
            if wakes.reading() >= READS_AHEAD_MAX {
                return;
            }
            let Some(key) = self.next_waiting(Wait::Disk) else {
                return;
            };
            self.on(key, |event| {
                if let Some(window) = event.connection.output().unasked() {
                    event.ask_for(window);
                }
            });
        }
    }
}
