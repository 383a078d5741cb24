//! Timers in a balanced tree: `BTreeSet<(deadline, timer)>`, what most servers begin with.
//!
//! Arm, cancel and refresh are O(log timers); the next deadline is the first entry.

use std::collections::BTreeSet;

use crate::wheel::Timers;

/// Timers 0 to `timers` - 1.
#[derive(Debug)]
pub(crate) struct TimerTree {
    entries: BTreeSet<(u64, u32)>,
    /// `u64::MAX`: not armed.
    deadlines: Vec<u64>,
}

impl TimerTree {
    /// No timer is armed.
    pub(crate) fn new(timers: u32) -> Self {
        Self {
            entries: BTreeSet::new(),
            deadlines: vec![u64::MAX; timers as usize],
        }
    }
}

impl Timers for TimerTree {
    fn arm(&mut self, timer: u32, deadline: u64) {
        self.cancel(timer);
        self.deadlines[timer as usize] = deadline;
        self.entries.insert((deadline, timer));
    }

    fn cancel(&mut self, timer: u32) {
        let deadline = std::mem::replace(&mut self.deadlines[timer as usize], u64::MAX);
        if deadline != u64::MAX {
            self.entries.remove(&(deadline, timer));
        }
    }

    fn expire(&mut self, now: u64, due: &mut Vec<u32>) {
        while let Some(&(deadline, timer)) = self.entries.first() {
            if deadline > now {
                return;
            }
            self.entries.pop_first();
            self.deadlines[timer as usize] = u64::MAX;
            due.push(timer);
        }
    }
}
