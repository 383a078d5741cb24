//! Lines on their way to the writer: bounded, and a line that has no room is dropped and counted.
//!
//! | may run beside | push, nudge | next | flush |
//! |----------------|-------------|------|-------|
//! | push, nudge    | yes         | yes  | yes   |
//! | next           | yes         | one  | yes   |
//! | flush          | yes         | yes  | yes   |
//!
//! The lock is held to move a line and never while one is written, so a push does not wait for
//! standard error.
//!
//! Invariants
//! - Q1: at most [`LINES_MAX`] lines and [`BYTES_MAX`] bytes are queued.
//! - Q2: each line is handed to the writer, or counted in exactly one [`Next::Dropped`]; the count
//!   comes where the lines would have come.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use flatpath::lock::{Condition, Guard, Lock};

/// Lines queued at most.
const LINES_MAX: usize = 4096;

/// Bytes of queued lines at most.
const BYTES_MAX: usize = 1 << 20;

/// Bytes of one line at most; it is cut there. A backtrace fits.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Between a nudge for later and its arrival.
const LATER: Duration = Duration::from_secs(1);

/// See the header.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Lock<State>,
    /// For the writer, when there is something for it.
    filled: Condition,
    /// For threads that flush: the writer has made progress.
    emptied: Condition,
}

#[derive(Debug, Default)]
struct State {
    /// Lines, and counts of those dropped between them.
    entries: VecDeque<Next>,
    bytes: usize,
    /// Lines dropped since the last entry.
    dropped: u64,
    /// From when on the writer should look for what the limiter left out.
    nudged_at: Option<Instant>,
    is_ending: bool,
    /// The writer sleeps in `next`.
    is_asleep: bool,
    /// The writer is writing what it took last.
    is_writing: bool,
    /// And standard error takes nothing.
    is_blocked: bool,
}

/// The writer's next task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This line.
    Line(String),
    /// The number of lines that were dropped here.
    Dropped(u64),
    /// Counts of what the limiter left out, all of them when the process is ending.
    Nudged { is_ending: bool },
}

/// How long a flush may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// While standard error takes nothing.
    pub(crate) blocked: Duration,
    /// In any case.
    pub(crate) most: Duration,
}

impl Queue {
    /// Queues a line, which ends with its line end, or drops it.
    pub(crate) fn push(&self, mut line: String) {
        if line.len() > LINE_BYTES_MAX {
            let mut ends = (0..=LINE_BYTES_MAX).rev();
            let end = ends.find(|at| line.is_char_boundary(*at));
            line.truncate(end.expect("a line begins at a boundary"));
            line.push('\n');
        }
        let mut state = self.state();
        // One entry more than the line, for the count of those dropped before it.
        let is_full = state.entries.len() + 1 >= LINES_MAX || state.bytes + line.len() > BYTES_MAX;
        if is_full {
            state.dropped += 1;
            return;
        }
        let dropped = std::mem::take(&mut state.dropped);
        if dropped > 0 {
            state.entries.push_back(Next::Dropped(dropped));
        }
        state.bytes += line.len();
        state.entries.push_back(Next::Line(line));
        self.wake(&mut state);
    }

    /// Has the writer look for what the limiter left out, in a while.
    pub(crate) fn nudge(&self) {
        let mut state = self.state();
        if state.nudged_at.is_none() {
            state.nudged_at = Some(Instant::now() + LATER);
            self.wake(&mut state);
        }
    }

    /// The same, for the writer itself.
    pub(crate) fn nudge_later(&self) {
        self.state().nudged_at = Some(Instant::now() + LATER);
    }

    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.is_asleep) {
            self.filled.notify_one();
        }
    }

    /// Waits for the next thing to write. What was taken before counts as written.
    pub(crate) fn next(&self) -> Next {
        let mut state = self.state();
        loop {
            if let Some(next) = state.take() {
                return next;
            }
            self.emptied.notify_all();
            state.is_asleep = true;
            let left = state.nudged_at.map_or(Duration::MAX, |at| {
                at.saturating_duration_since(Instant::now())
            });
            state = self.filled.wait_for(state, left);
            state.is_asleep = false;
        }
    }

    /// The next thing to write, if it is there.
    #[cfg(test)]
    pub(crate) fn try_next(&self) -> Option<Next> {
        self.state().take()
    }

    /// Notes that standard error takes nothing, or takes lines again.
    pub(crate) fn note_blocked(&self, is_blocked: bool) {
        self.state().is_blocked = is_blocked;
        self.emptied.notify_all();
    }

    /// Waits until all is written, what the limiter left out too; whether it is.
    pub(crate) fn flush(&self, patience: Patience) -> bool {
        let begun = Instant::now();
        let mut state = self.state();
        state.nudged_at = Some(Instant::now());
        state.is_ending = true;
        self.wake(&mut state);
        loop {
            if state.is_done() {
                state.is_ending = false;
                return true;
            }
            let most = if state.is_blocked {
                patience.blocked
            } else {
                patience.most
            };
            let left = most.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            state = self.emptied.wait_for(state, left);
        }
    }

    fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn take(&mut self) -> Option<Next> {
        self.is_writing = false;
        let next = self.find()?;
        self.is_writing = true;
        Some(next)
    }

    fn find(&mut self) -> Option<Next> {
        if let Some(next) = self.entries.pop_front() {
            if let Next::Line(line) = &next {
                self.bytes -= line.len();
            }
            return Some(next);
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            return Some(Next::Dropped(dropped));
        }
        if self.is_nudged() {
            self.nudged_at = None;
            return Some(Next::Nudged {
                is_ending: self.is_ending,
            });
        }
        None
    }

    fn is_done(&self) -> bool {
        self.entries.is_empty() && self.dropped == 0 && !self.is_nudged() && !self.is_writing
    }

    fn is_nudged(&self) -> bool {
        self.nudged_at.is_some_and(|at| at <= Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(60);

    fn line(text: &str) -> Next {
        Next::Line(text.into())
    }

    #[test]
    fn lines_come_in_order() {
        let queue = Queue::default();
        queue.push("one\n".into());
        queue.push("two\n".into());
        assert_eq!(queue.next(), line("one\n"));
        assert_eq!(queue.next(), line("two\n"));
        assert_eq!(queue.try_next(), None);
    }

    #[test]
    fn lines_without_room_are_dropped_and_counted_where_they_would_have_come() {
        let queue = Queue::default();
        for number in 0..LINES_MAX + 9 {
            queue.push(format!("{number}\n"));
        }
        for number in 0..10 {
            assert_eq!(queue.try_next(), Some(line(&format!("{number}\n"))));
        }
        queue.push("later\n".into());
        let mut last = Vec::new();
        while let Some(next) = queue.try_next() {
            last.push(next);
        }
        let end = &last[last.len() - 2..];
        assert_eq!(end, [Next::Dropped(10), line("later\n")]);
    }

    #[test]
    fn the_count_is_told_without_another_line() {
        let queue = Queue::default();
        let long = "x".repeat(LINE_BYTES_MAX - 1) + "\n";
        let room = BYTES_MAX / LINE_BYTES_MAX;
        for _ in 0..room + 3 {
            queue.push(long.clone());
        }
        for _ in 0..room {
            assert_eq!(queue.next(), line(&long));
        }
        assert_eq!(queue.next(), Next::Dropped(3));
        assert_eq!(queue.try_next(), None);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        let queue = Queue::default();
        queue.push("ü".repeat(LINE_BYTES_MAX) + "\n");
        let Next::Line(cut) = queue.next() else {
            panic!("a line was queued");
        };
        assert!(cut.len() <= LINE_BYTES_MAX + 1 && cut.ends_with("ü\n"));
    }

    #[test]
    fn a_flush_gives_up_while_nothing_is_taken_and_waits_for_what_is() {
        let queue = Arc::new(Queue::default());
        queue.push("one\n".into());
        assert_eq!(queue.next(), line("one\n"));
        queue.note_blocked(true);
        let patience = Patience {
            blocked: Duration::ZERO,
            most: LONG,
        };
        assert!(!queue.flush(patience), "it is not written");
        queue.note_blocked(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // One for each flush, unless the second one came before the first was taken.
                let mut next = queue.next();
                while next == (Next::Nudged { is_ending: true }) {
                    next = queue.next();
                }
                assert_eq!(next, line("two\n"));
            });
            assert!(queue.flush(patience), "the writer went on");
            queue.push("two\n".into());
        });
    }

    #[test]
    fn pushes_from_many_threads_are_handed_on_or_counted() {
        const THREADS: u64 = 4;
        const LINES: u64 = 5_000;
        let queue = Queue::default();
        let mut seen = 0;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..LINES {
                        queue.push("line\n".into());
                    }
                });
            }
            while seen < THREADS * LINES {
                match queue.next() {
                    Next::Line(_) => seen += 1,
                    Next::Dropped(count) => seen += count,
                    Next::Nudged { .. } => {}
                }
            }
        });
        assert_eq!(seen, THREADS * LINES);
    }
}
