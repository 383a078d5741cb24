//! What a job is at, for readers that must not wait: one word for each place of a job.
//!
//! The owner of the place's index writes it (W1 of `workers.rs`), any thread reads it. The word
//! holds all at once (state, listener and time), so a reader never sees the time of one job with
//! the state of another. The thread that runs the job is in a word of its own and may be the next
//! one's.
//!
//! Times are milliseconds of the monotonic clock as the kernel keeps it for its own ticks: reading
//! it costs a few nanoseconds, and it is up to 10 ms behind.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const LISTENER_BITS: u32 = 16;
const STATE_BITS: u32 = 3;
const NS_PER_MS: u64 = 1_000_000;

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// In the queue, until a worker takes it.
    Queued = 1,
    /// With a worker.
    Running = 2,
    /// It holds no worker and waits for what may [block](crate::blocking).
    Parked = 3,
    /// It is not queued yet: it waits for the concurrency limit of its listener, or for memory.
    HeldBack = 4,
}

/// A job in a place, as its mark has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) state: JobState,
    /// By the number that the job's network thread has for it.
    pub(crate) listener: u16,
    /// When the state began, in milliseconds.
    pub(crate) since_ms: u64,
    /// The kernel's number of the thread that runs it; 0 if it is not known.
    pub(crate) thread: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// 0 for a place without a job, or whose job is done.
    word: AtomicU64,
    thread: AtomicU32,
}

impl Mark {
    /// The job's state is another one from `now_ns` on.
    #[inline]
    pub(crate) fn set(&self, state: JobState, listener: u16, now_ns: u64) {
        let when = (now_ns / NS_PER_MS) << (LISTENER_BITS + STATE_BITS);
        let word = when | u64::from(listener) << STATE_BITS | state as u64;
        // ORDER: Relaxed: for display, it publishes nothing.
        self.word.store(word, Ordering::Relaxed);
    }

    /// The job runs on this thread from `now_ns` on.
    #[inline]
    pub(crate) fn runs(&self, thread: u32, listener: u16, now_ns: u64) {
        // ORDER: Relaxed: as above.
        self.thread.store(thread, Ordering::Relaxed);
        self.set(JobState::Running, listener, now_ns);
    }

    /// The place has no job, or one that is done.
    #[inline]
    pub(crate) fn clear(&self) {
        // ORDER: Relaxed: as above.
        self.word.store(0, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Option<Marked> {
        let word = self.word.load(Ordering::Relaxed);
        let state = match word & ((1 << STATE_BITS) - 1) {
            1 => JobState::Queued,
            2 => JobState::Running,
            3 => JobState::Parked,
            4 => JobState::HeldBack,
            _ => return None,
        };
        Some(Marked {
            state,
            listener: (word >> STATE_BITS) as u16,
            since_ms: word >> (LISTENER_BITS + STATE_BITS),
            thread: self.thread.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_what_was_set_and_nothing_once_cleared() {
        let mark = Mark::default();
        assert_eq!(mark.read(), None);
        mark.set(JobState::Queued, u16::MAX, u64::MAX);
        let read = mark.read().expect("it was set");
        assert_eq!((read.state, read.listener), (JobState::Queued, u16::MAX));
        assert_eq!(read.since_ms, u64::MAX / NS_PER_MS);
        mark.set(JobState::HeldBack, 1, 0);
        assert_eq!(mark.read().map(|read| read.state), Some(JobState::HeldBack));
        mark.runs(7, 3, 5 * NS_PER_MS);
        let expected = Marked {
            state: JobState::Running,
            listener: 3,
            since_ms: 5,
            thread: 7,
        };
        assert_eq!(mark.read(), Some(expected));
        mark.clear();
        assert_eq!(mark.read(), None);
    }
}
