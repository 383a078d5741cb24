//! When the thread looks again although nothing happens: the deadlines of connections, and the
//! earliest chore.
//!
//! | what is due       | noted by                  | forgotten by                              |
//! |-------------------|---------------------------|-------------------------------------------|
//! | a deadline        | [`Timers::arm`]           | [`Timers::cancel`], or when it has passed |
//! | a short send      | [`Timers::send_rests`]    | its time                                  |
//! | any other chore   | [`Timers::due`]           | the next [`Timers::sleep_until`]          |
//! | all chores, now   | [`Timers::due_at_once`]   | the next [`Timers::sleep_until`]          |
//!
//! Invariant: no chore that only time makes due is due before `due_ns`. What is noted within a turn
//! lowers it, and every turn with chores ends with computing it anew.

use flatpath_structures::wheel::Wheel;

use crate::limits::{RESTING_NS_MAX, TICK_NS, WHEEL_SLOTS};

/// See the module. Times are in nanoseconds of the driver's clock.
pub(super) struct Timers {
    wheel: Wheel,
    /// Empty but while deadlines are looked at.
    expired: Vec<u32>,
    due_ns: u64,
    /// When the last short send is to be noted at the latest.
    rested_ns: u64,
}

impl Timers {
    /// All chores are due.
    pub(super) fn new() -> Timers {
        Timers {
            wheel: Wheel::new(TICK_NS, WHEEL_SLOTS),
            expired: Vec::new(),
            due_ns: 0,
            rested_ns: 0,
        }
    }

    /// Whether a chore is due. One comparison.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// For how long the thread may wait for the kernel; `None` without end.
    pub(super) fn timeout_ns(&self, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        match self.due_ns {
            u64::MAX => None,
            due_ns => Some(due_ns.saturating_sub(now_ns())),
        }
    }

    /// A chore is due at a time, if not before.
    #[inline]
    pub(super) fn due(&mut self, ns: u64) {
        self.due_ns = self.due_ns.min(ns);
    }

    /// All chores are due in this turn.
    pub(super) fn due_at_once(&mut self) {
        self.due_ns = 0;
    }

    /// A short send was made, which no completion may follow for now: it is noted after
    /// [`RESTING_NS_MAX`] at the latest.
    #[inline]
    pub(super) fn send_rests(&mut self, now_ns: u64) {
        self.rested_ns = now_ns + RESTING_NS_MAX;
        self.due(self.rested_ns);
    }

    /// Has the deadline of a connection looked at: when the tick is over that it falls in.
    pub(super) fn arm(&mut self, index: u32, deadline_ns: u64) {
        self.wheel.arm(index, deadline_ns);
        self.due(deadline_ns.saturating_add(TICK_NS - 1) / TICK_NS * TICK_NS);
    }

    /// A connection is gone, and has no deadline.
    pub(super) fn cancel(&mut self, index: u32) {
        self.wheel.cancel(index);
    }

    /// The places whose deadlines may have passed; [`Timers::recycle`] takes the list back.
    pub(super) fn take_expired(&mut self, now_ns: u64) -> Vec<u32> {
        let mut expired = std::mem::take(&mut self.expired);
        self.wheel.expire(now_ns, &mut expired);
        expired
    }

    pub(super) fn recycle(&mut self, mut expired: Vec<u32>) {
        expired.clear();
        self.expired = expired;
    }

    /// Whether the deadline of a place is one that has passed, and was not armed anew since.
    pub(super) fn confirm(&mut self, index: u32) -> bool {
        self.wheel.confirm(index)
    }

    /// All chores are done: the next are due at these times, or when a deadline or a send is.
    pub(super) fn sleep_until(
        &mut self,
        now_ns: u64,
        times: impl IntoIterator<Item = Option<u64>>,
    ) {
        let timer_ns = self.wheel.next_ns(now_ns);
        let own = [
            timer_ns.map(|ns| now_ns.saturating_add(ns)),
            Some(self.rested_ns).filter(|rested_ns| *rested_ns > now_ns),
        ];
        let times = times.into_iter().chain(own).flatten();
        self.due_ns = times.min().unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something that happens within a turn.
    type Act<'a> = &'a dyn Fn(&mut Timers);

    #[test]
    fn the_earliest_time_is_due_and_none_before_it() {
        assert!(Timers::new().is_due(0), "at first all is");
        let deadline_ns = 3 * TICK_NS + 1;
        let rows: [(Act<'_>, Option<u64>); 6] = [
            (&|_| {}, None),
            (&|timers| timers.due(70), Some(70)),
            (&|timers| timers.send_rests(5), Some(5 + RESTING_NS_MAX)),
            (&|timers| timers.arm(3, deadline_ns), Some(4 * TICK_NS)),
            (&|timers| timers.due_at_once(), Some(0)),
            (&|timers| timers.sleep_until(1, [None, Some(9)]), Some(9)),
        ];
        for (act, expected) in rows {
            let mut timers = Timers::new();
            timers.sleep_until(0, []);
            act(&mut timers);
            assert_eq!(timers.timeout_ns(|| 0), expected);
            let due_ns = expected.unwrap_or(u64::MAX);
            assert!(timers.is_due(due_ns) && (due_ns == 0 || !timers.is_due(due_ns - 1)));
        }
    }

    #[test]
    fn a_send_and_a_deadline_outlast_the_chores_of_a_turn() {
        let mut timers = Timers::new();
        timers.send_rests(1);
        timers.sleep_until(1, []);
        assert_eq!(timers.timeout_ns(|| 1), Some(RESTING_NS_MAX));
        timers.sleep_until(1 + RESTING_NS_MAX, []);
        assert_eq!(timers.timeout_ns(|| 1), None, "it is noted by now");
        timers.arm(3, 5 * TICK_NS);
        timers.sleep_until(TICK_NS, []);
        assert!(timers.timeout_ns(|| TICK_NS).is_some());
        timers.cancel(3);
        let expired = timers.take_expired(9 * TICK_NS);
        assert!(expired.iter().all(|index| !timers.confirm(*index)));
        timers.recycle(expired);
    }
}
