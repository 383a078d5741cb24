//! Watch: a poll of many shots on an eventfd, and one read for each time it fires.
//!
//! A read of the ring would save the call where nothing waits, but it waits in the queue until the
//! next turn, and it fails at once on a descriptor in non-blocking mode, which is its owner's to
//! choose. The poll fires on every write that comes after it; a read that finds nothing (two writes
//! that one read took) completes nothing.
//!
//! Invariants
//! - W1: an entry of the table holds the eventfd open from `start_watch` to the final completion.
//! - W2: the kernel ends a poll when the completion queue overflows; it is armed again, and looks
//!   at the counter then, so nothing is missed. A watch ends only when it is cancelled or fails.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{cqueue, opcode, types};

use super::Uring;
use super::user_data::Origin;
use crate::completion::{Completion, Errno, Outcome};
use crate::eventfd::Eventfd;

/// Watches under way, by index; places are recycled.
#[derive(Default)]
pub(super) struct WatchTable {
    watches: Vec<Option<Watch>>,
    free: Vec<u32>,
}

struct Watch {
    token: u64,
    event: Arc<Eventfd>,
    cancelled: bool,
}

impl WatchTable {
    fn insert(&mut self, watch: Watch) -> u32 {
        if let Some(index) = self.free.pop() {
            self.watches[index as usize] = Some(watch);
            return index;
        }
        self.watches.push(Some(watch));
        (self.watches.len() - 1) as u32
    }

    /// Marks a watch as cancelled; its index.
    pub(super) fn cancel(&mut self, event: &Arc<Eventfd>, token: u64) -> Option<u32> {
        let meant = |watch: &Watch| watch.token == token && Arc::ptr_eq(&watch.event, event);
        let index = self
            .watches
            .iter()
            .position(|watch| watch.as_ref().is_some_and(meant))?;
        if let Some(watch) = &mut self.watches[index] {
            watch.cancelled = true;
        }
        Some(index as u32)
    }
}

impl Uring {
    pub(super) fn start_watch(&mut self, event: Arc<Eventfd>, token: u64) {
        self.outstanding += 1;
        let index = self.watches.insert(Watch {
            token,
            event,
            cancelled: false,
        });
        self.arm_watch(index);
    }

    fn arm_watch(&mut self, index: u32) {
        let Some(watch) = &self.watches.watches[index as usize] else {
            unreachable!("W1: an armed watch is in the table")
        };
        let Some(descriptor) = watch.event.descriptor() else {
            unreachable!("a simulated eventfd on a real driver")
        };
        let fd = types::Fd(descriptor.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .multi(true)
            .build();
        let entry = entry.user_data(Origin::Watch { index }.pack());
        // SAFETY: a poll points to nothing; the table keeps the eventfd open (W1).
        unsafe { self.ring.push(entry, None) };
    }

    /// The poll of a watch has fired, or ended.
    pub(super) fn watched(
        &mut self,
        index: u32,
        entry: &cqueue::Entry,
        completions: &mut Vec<Completion>,
    ) {
        let Some(watch) = &self.watches.watches[index as usize] else {
            unreachable!("W1: a watch that fires is in the table")
        };
        let armed = cqueue::more(entry.flags());
        let token = watch.token;
        let failed = match entry.result() {
            0.. => None,
            result => Some(Errno::from_raw_os_error(-result)),
        };
        let taken = match failed {
            None if !self.stopping => watch.event.take(),
            // Nobody would hear of it.
            _ => Err(Errno::AGAIN),
        };
        self.counters.system_calls += u64::from(failed.is_none());
        let mut end = failed.filter(|errno| *errno != Errno::CANCELED || watch.cancelled);
        if !armed && (watch.cancelled || self.stopping) {
            end = Some(Errno::CANCELED);
        }
        match taken {
            Ok(count) => completions.push(Completion {
                token,
                more: true,
                outcome: Outcome::Signalled(count),
            }),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => end = end.or(Some(errno)),
        }
        if armed {
            return;
        }
        let Some(errno) = end else {
            return self.arm_watch(index);
        };
        self.outstanding -= 1;
        self.watches.watches[index as usize] = None;
        self.watches.free.push(index);
        completions.push(Completion {
            token,
            more: false,
            outcome: Outcome::Failed(errno),
        });
    }
}
