//! Timers in a binary heap with lazy deletion: what moved or was cancelled stays in the heap until
//! it comes to the top, and is then skipped. Rebuilt when three quarters of it are such leftovers.
//!
//! Arm and refresh are O(log entries), leftovers included; cancel is O(1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::wheel::Timers;

/// Timers 0 to `timers` - 1.
#[derive(Debug)]
pub(crate) struct TimerHeap {
    entries: BinaryHeap<Reverse<(u64, u32)>>,
    /// `u64::MAX`: not armed. An entry with another deadline is a leftover.
    deadlines: Vec<u64>,
    armed: usize,
}

impl TimerHeap {
    /// No timer is armed.
    pub(crate) fn new(timers: u32) -> Self {
        Self {
            entries: BinaryHeap::with_capacity(timers as usize),
            deadlines: vec![u64::MAX; timers as usize],
            armed: 0,
        }
    }
}

impl Timers for TimerHeap {
    fn arm(&mut self, timer: u32, deadline: u64) {
        let before = std::mem::replace(&mut self.deadlines[timer as usize], deadline);
        self.armed += usize::from(before == u64::MAX);
        self.entries.push(Reverse((deadline, timer)));
        if self.entries.len() > 4 * self.armed.max(1024) {
            let deadlines = &self.deadlines;
            self.entries
                .retain(|Reverse((deadline, timer))| deadlines[*timer as usize] == *deadline);
        }
    }

    fn cancel(&mut self, timer: u32) {
        let before = std::mem::replace(&mut self.deadlines[timer as usize], u64::MAX);
        self.armed -= usize::from(before != u64::MAX);
    }

    fn expire(&mut self, now: u64, due: &mut Vec<u32>) {
        while let Some(&Reverse((deadline, timer))) = self.entries.peek() {
            if deadline > now {
                return;
            }
            self.entries.pop();
            if self.deadlines[timer as usize] == deadline {
                self.deadlines[timer as usize] = u64::MAX;
                self.armed -= 1;
                due.push(timer);
            }
        }
    }
}
