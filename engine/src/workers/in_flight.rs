//! What is with workers, or waits for one: for reports, and for the end of the server.
//!
//! Reads the marks of all places that were ever in use, without a lock; nothing of it is counted
//! while requests run.

use std::time::Duration;

use flatpath_driver::monotonic_coarse_ns;

use super::{Place, Shared};
use crate::error::LeftBehind;
use crate::observe::figures::{JobFigures, RunningHandler};
use crate::workers::mark::{JobState, Marked};

impl Shared {
    /// The marks of all jobs, each with the number of its network thread.
    fn marks(&self) -> impl Iterator<Item = (u16, Marked)> {
        let threads = self.places.chunks(self.places_per_thread);
        (0u16..).zip(threads).flat_map(|(thread, places)| {
            let counters = self.mailboxes[usize::from(thread)].counters.get();
            let used = counters.map_or(0, |counters| counters.places_used.read() as usize);
            let marks = places.iter().take(used).filter_map(Place::marked);
            marks.map(move |mark| (thread, mark))
        })
    }

    /// Jobs that workers run now, those included that do not come back.
    pub(crate) fn running(&self) -> Vec<RunningHandler> {
        let now_ms = now_ms();
        let marks = self.marks();
        let running = marks.filter(|(_, mark)| mark.state == JobState::Running);
        let running = running.map(|(thread, mark)| RunningHandler {
            listener: self.number_of(thread, mark.listener),
            thread: mark.thread,
            is_inline: false,
            since: Duration::from_millis(mark.since_ms),
            age: age(mark.since_ms, now_ms),
        });
        running.collect()
    }

    /// The threads that run jobs now, or drop what was discarded, by the numbers that the kernel
    /// gave them.
    pub(crate) fn busy_threads(&self) -> Vec<u32> {
        let running = self.marks().map(|(_, mark)| mark);
        let running = running.filter(|mark| mark.state == JobState::Running);
        let mut threads: Vec<u32> = running.map(|mark| mark.thread).collect();
        threads.extend(self.bin.droppers());
        threads
    }

    /// The same as the end of the server has it.
    pub(crate) fn left_behind(&self) -> Vec<LeftBehind> {
        let running = self.running().into_iter();
        let left = running.map(|handler| LeftBehind {
            thread: match handler.thread {
                0 => "a worker".into(),
                thread => format!("worker {thread}"),
            },
            listener: self
                .listeners
                .get(handler.listener)
                .map(|listener| listener.name),
            busy: handler.age,
        });
        left.collect()
    }

    /// What is with workers or waits for one, by listener.
    pub(crate) fn jobs(&self) -> Vec<JobFigures> {
        let mut all = vec![JobFigures::default(); self.listeners.len()];
        let now_ms = now_ms();
        for (thread, mark) in self.marks() {
            let Some(jobs) = all.get_mut(self.number_of(thread, mark.listener)) else {
                continue;
            };
            let (count, oldest) = match mark.state {
                JobState::Queued => (&mut jobs.queued, &mut jobs.oldest_queued),
                JobState::Running => (&mut jobs.running, &mut jobs.longest_running),
                JobState::Parked => (&mut jobs.parked, &mut jobs.oldest_queued),
                JobState::HeldBack => (&mut jobs.held_back, &mut jobs.oldest_queued),
            };
            *count += 1;
            *oldest = (*oldest).max(Some(age(mark.since_ms, now_ms)));
        }
        all
    }

    /// The number of a listener in the server, by the number that a network thread has for it.
    pub(crate) fn number_of(&self, thread: u16, listener: u16) -> usize {
        let counters = self.mailboxes[usize::from(thread)].counters.get();
        counters.map_or(0, |counters| counters.number(listener))
    }
}

impl Place {
    fn marked(&self) -> Option<Marked> {
        self.mark.read()
    }
}

fn now_ms() -> u64 {
    monotonic_coarse_ns() / 1_000_000
}

fn age(since_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(since_ms))
}
