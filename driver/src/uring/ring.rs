//! The two queues shared with the kernel: submit without ever losing an entry, reap without
//! blocking.
//!
//! Invariants
//! - R1: entries reach the kernel in the order of the `push` calls; a linked pair is never split
//!   over two calls of the kernel.
//! - R2: completions leave `reaped` in the order the kernel posted them.
//!
//! A full submission queue costs one more system call. If the kernel does not take the entries even
//! then (no memory, or completions must be reaped first), they wait in `backlog`.
//!
//! Cost: one system call per turn, unless more than `submission_entries` operations start in it.

use std::collections::VecDeque;
use std::io;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno;

use super::entry::Plain;

/// How long an `enter` may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    No,
    UpTo { timeout_ns: u64 },
    UntilCompletion,
}

pub(super) struct Ring {
    ring: IoUring,
    backlog: VecDeque<(squeue::Entry, Option<squeue::Entry>)>,
    /// Completions taken off the queue and not yet handled.
    reaped: Vec<cqueue::Entry>,
    flags: EnterFlags,
    pub(super) enters: u64,
    /// Entries queued, and how many of them the kernel has taken.
    pushed: u64,
    pub(super) submissions: u64,
    pub(super) overflows: u64,
}

impl Ring {
    pub(super) fn new(ring: IoUring) -> Ring {
        let mut flags = EnterFlags::GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            // A server that waits for clients is idle, not waiting for a disk.
            flags |= EnterFlags::NO_IOWAIT;
        }
        let reaped = Vec::with_capacity(ring.params().cq_entries() as usize);
        let backlog = VecDeque::new();
        Ring {
            ring,
            backlog,
            reaped,
            flags,
            enters: 0,
            pushed: 0,
            submissions: 0,
            overflows: 0,
        }
    }

    pub(super) fn inner(&self) -> &IoUring {
        &self.ring
    }

    /// Queues an entry.
    pub(super) fn push_plain(&mut self, entry: Plain) {
        // SAFETY: it points to nothing.
        unsafe { self.push(entry.entry(), None) };
    }

    /// The number of the entry that is queued next. The kernel has taken it, and those linked after
    /// it, once `submissions` is higher.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Queues an entry, and one linked after it.
    ///
    /// # Safety
    /// The memory that the entries point to lives, and stays where it is, until their completions
    /// were handled.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry, linked: Option<squeue::Entry>) {
        self.pushed += 1 + u64::from(linked.is_some());
        if self.backlog.is_empty() && self.try_push(&entry, linked.as_ref()) {
            return;
        }
        // R1: after what waits already.
        self.backlog.push_back((entry, linked));
        self.submit_backlog();
    }

    /// False when the submission queue has no room for both.
    fn try_push(&mut self, entry: &squeue::Entry, linked: Option<&squeue::Entry>) -> bool {
        let mut queue = self.ring.submission();
        if queue.capacity() - queue.len() < 1 + usize::from(linked.is_some()) {
            return false;
        }
        // SAFETY: promised by the caller of `push`.
        let pushed = unsafe { queue.push(entry) };
        debug_assert!(pushed.is_ok(), "there was room");
        if let Some(linked) = linked {
            // SAFETY: promised by the caller of `push`.
            let pushed = unsafe { queue.push(linked) };
            debug_assert!(pushed.is_ok(), "there was room for two");
        }
        true
    }

    /// Moves the backlog to the kernel, as far as the kernel takes it.
    fn submit_backlog(&mut self) {
        loop {
            while let Some((entry, linked)) = self.backlog.pop_front() {
                if !self.try_push(&entry, linked.as_ref()) {
                    self.backlog.push_front((entry, linked));
                    break;
                }
            }
            if self.backlog.is_empty() {
                return;
            }
            let before = self.submissions;
            // An error that matters comes back at the next `enter` of the wait.
            if self.enter(Block::No).is_err() || self.submissions == before {
                return;
            }
        }
    }

    /// True when there is nothing to submit and the kernel has nothing for us that costs a call.
    fn is_quiet(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    /// Submits everything and reaps what has completed, blocking for the first completion if asked.
    ///
    /// # Errors
    /// The error that makes the ring unusable.
    pub(super) fn turn(&mut self, block: Block) -> io::Result<()> {
        self.submit_backlog();
        let block = if self.backlog.is_empty() {
            block
        } else {
            Block::No
        };
        if block != Block::No || !self.is_quiet() {
            self.enter(block)?;
        }
        self.reap();
        Ok(())
    }

    /// One system call: submits and, if asked, waits for a completion.
    fn enter(&mut self, block: Block) -> io::Result<()> {
        let count = self.ring.submission().len() as u32;
        let timeout;
        let mut arguments = SubmitArgs::new();
        if let Block::UpTo { timeout_ns } = block {
            let nanoseconds = (timeout_ns % 1_000_000_000) as u32;
            timeout = Timespec::new()
                .sec(timeout_ns / 1_000_000_000)
                .nsec(nanoseconds);
            arguments = arguments.timespec(&timeout);
        }
        let wanted = u32::from(block != Block::No);
        let flags = (self.flags | EnterFlags::EXT_ARG).bits();
        self.enters += 1;
        // SAFETY: the argument is what EXT_ARG says; entries are sound by the promise of `push`.
        let entered = unsafe {
            self.ring
                .submitter()
                .enter(count, wanted, flags, Some(&arguments))
        };
        match entered {
            Ok(submitted) => {
                self.submissions += submitted as u64;
                Ok(())
            }
            Err(error) => self.excuse(error),
        }
    }

    /// Errors from which a later turn recovers are none.
    fn excuse(&mut self, error: io::Error) -> io::Result<()> {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::TIME | Errno::INTR) => Ok(()),
            Some(Errno::BUSY) => {
                // Completions wait in the kernel: the entries stay queued until these are reaped.
                self.reap();
                Ok(())
            }
            Some(Errno::AGAIN | Errno::NOMEM) => {
                // No memory for requests just now: the entries stay queued. Give others a chance
                // rather than spin.
                self.reap();
                std::thread::yield_now();
                Ok(())
            }
            Some(Errno::BADR) => Err(io::Error::other(
                "the kernel lost completions of this ring for lack of memory (EBADR): its \
                 operations can no longer be told apart",
            )),
            _ => Err(error),
        }
    }

    /// Takes completions off the queue.
    pub(super) fn reap(&mut self) {
        if self.ring.submission().cq_overflow() {
            self.overflows += 1;
        }
        self.reaped.extend(self.ring.completion());
    }

    /// True when completions are left in the kernel because the queue is full.
    pub(super) fn is_overflown(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// True when the kernel has taken every entry.
    pub(super) fn is_submitted(&mut self) -> bool {
        self.backlog.is_empty() && self.ring.submission().is_empty()
    }

    pub(super) fn has_reaped(&self) -> bool {
        !self.reaped.is_empty()
    }

    /// Hands out what was reaped, in exchange for an empty vector that is filled next.
    pub(super) fn exchange(&mut self, empty: Vec<cqueue::Entry>) -> Vec<cqueue::Entry> {
        debug_assert!(empty.is_empty());
        std::mem::replace(&mut self.reaped, empty)
    }
}

#[cfg(test)]
mod tests {
    use io_uring::opcode;

    use super::*;
    use crate::refusal::Refusal;
    use crate::testing::given;

    /// A ring that takes no entry until it is enabled, as one whose kernel has no memory.
    fn disabled() -> Option<Ring> {
        let ring = IoUring::builder().setup_r_disabled().build(4);
        let ring = ring.map_err(|error| Refusal::of_error("a ring that is disabled", &error));
        given(ring).map(Ring::new)
    }

    fn nop(number: u64) -> squeue::Entry {
        opcode::Nop::new().build().user_data(number)
    }

    /// The kernel takes entries from now on: what they were, in its order.
    fn enable(ring: &mut Ring, count: usize) -> Vec<u64> {
        let enabled = ring.ring.submitter().register_enable_rings();
        enabled.expect("it was disabled");
        let mut numbers = vec![];
        for _ in 0..100 {
            ring.turn(Block::No).expect("enabled");
            let reaped = ring.exchange(vec![]);
            numbers.extend(reaped.iter().map(cqueue::Entry::user_data));
            if numbers.len() == count {
                break;
            }
        }
        assert!(ring.is_submitted());
        numbers
    }

    #[test]
    fn only_errors_from_which_it_recovers_are_excused() {
        let Some(mut ring) = disabled() else { return };
        let mut excuse =
            |errno: Errno| ring.excuse(errno.into()).map_err(|error| error.to_string());
        for passing in [
            Errno::TIME,
            Errno::INTR,
            Errno::BUSY,
            Errno::AGAIN,
            Errno::NOMEM,
        ] {
            assert_eq!(excuse(passing), Ok(()));
        }
        assert!(excuse(Errno::BADF).is_err());
        let lost = excuse(Errno::BADR).expect_err("completions are lost");
        assert!(lost.contains("lost completions"), "{lost}");
    }

    #[test]
    fn entries_wait_in_order_while_the_kernel_takes_none() {
        let Some(mut ring) = disabled() else { return };
        for number in 0..20 {
            // SAFETY: it points to nothing.
            unsafe { ring.push(nop(number), None) };
        }
        assert_eq!(ring.backlog.len(), 16, "the queue has four");
        assert!(!ring.is_submitted());
        assert_eq!(enable(&mut ring, 20), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn an_entry_waits_behind_a_pair_that_found_no_room() {
        let Some(mut ring) = disabled() else { return };
        for number in 0..3 {
            // SAFETY: it points to nothing.
            unsafe { ring.push(nop(number), None) };
        }
        // One place is left, too few for the pair; enough for the last one, which must not have it.
        // SAFETY: they point to nothing.
        unsafe { ring.push(nop(3), Some(nop(4))) };
        // SAFETY: it points to nothing.
        unsafe { ring.push(nop(5), None) };
        assert_eq!(ring.backlog.len(), 2);
        assert_eq!(enable(&mut ring, 6), (0..6).collect::<Vec<_>>());
    }
}
