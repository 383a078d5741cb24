//! Read ahead: what is sent of a file is in the kernel's cache by then, so that no send waits for a
//! disk.
//!
//! Before each window of a file it is asked whether it is at hand. One that is not is read by a
//! worker, which also has the disk begin with the next one, so that it is read while this one is
//! sent. Then it is sent without asking again: a file system that never tells would be asked for
//! ever. What is dropped from the cache in that moment is waited for here; the kernel drops what
//! was used last at last.
//!
//! Invariants
//! - RA1: a connection has one window with workers at most, and waits for it without a deadline of
//!   its own: the time is the disk's, not the client's.
//! - RA2: a network thread has [`READS_AHEAD_MAX`] with workers; the others wait in [`Wait::Disk`],
//!   oldest first.

use std::sync::Arc;

use flatpath_driver::{Driver, FileRange};

use crate::discard::call_later;
use crate::waits::Wait;

use super::thread::{Event, Network};

/// Windows that workers read ahead for the connections of one network thread at a time; others
/// wait. Fewer than fill the bin (`discard.rs`).
const READS_AHEAD_MAX: usize = 64;

impl<D: Driver> Event<'_, D> {
    /// Notes that a window of a file is at hand, or has it read, now or when fewer others are.
    /// True: it is at hand.
    #[cold]
    pub(super) fn ask_for(&mut self, window: FileRange, next: FileRange) -> bool {
        if self.thread.driver.is_at_hand(&window) {
            self.connection.output_mut().is_at_hand();
            return true;
        }
        let wakes = &self.thread.common.wakes;
        if wakes.reading() >= READS_AHEAD_MAX {
            let output = self.connection.output_mut();
            output.waits_for_disk();
            output.compact();
            self.wait(Wait::Disk);
            return false;
        }
        let output = self.connection.output_mut();
        output.is_reading();
        output.compact();
        // Also if that panics.
        let reading = wakes.reads(self.key);
        call_later(move || {
            window.file().read_ahead(window.range(), next.range());
            // The file first: the connection may be gone, and then this is the last that has it.
            drop((window, next));
            drop(reading);
        });
        false
    }
}

impl<D: Driver> Network<D> {
    /// Notes what has been read ahead, and has others read in its place. Each is sent as its event
    /// ends, by the rule for long sends (`send.rs`): all that a disk brings at once is more than a
    /// turn sends.
    pub(super) fn take_reads(&mut self) {
        let wakes = Arc::clone(&self.thread.common.wakes);
        for index in wakes.read.indices() {
            self.on(wakes.read.take(index), |event| {
                event.connection.output_mut().has_read();
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
                if let Some((window, next)) = event.connection.output().unasked() {
                    event.ask_for(window, next);
                }
            });
        }
    }
}
