//! When the thread looks again although nothing happens: a time for each chore, and the earliest of
//! them, which is all that a wait asks.
//!
//! | what is due                | says when                                                       |
//! |----------------------------|-----------------------------------------------------------------|
//! | [`Chore::Deadlines`]       | [`Timers::arm`], and the step that fires them                   |
//! | [`Chore::ShortSends`]      | a short send                                                    |
//! | [`Chore::Trim`]            | a turn in which memory was used, and the step                   |
//! | [`Chore::Ciphers`], `Wide` | an event that finds no room; at once                            |
//! | [`Chore::AccessLog`]       | the end of a turn whose lines found no room                     |
//! | `Room`, `Overdrawn`,       | the last step ([`Left`]), as any step before it may have        |
//! | `Episodes`, `All`          | changed what decides                                            |
//! | any other                  | the step that does it, and the event that begins it             |
//!
//! Each chore has a name and one time. The deadlines of connections are in a wheel, of which the
//! earliest is one of these times; the others are few, some nearer than a tick, so they are numbers
//! in an array, whose minimum is looked for once in each turn with chores.
//!
//! Invariants
//! - TI1: no chore is due before `earliest_ns`. That may be earlier than all of them, until the
//!   next turn with chores.
//! - TI2: the time of a chore that has passed is forgotten when the chores of a turn begin
//!   ([`Timers::begin_chores`]). So one that is forgotten costs no turn after the other, and one
//!   that is due again has said so.
//!
//! Cost: to set a time is two stores and a comparison; to ask whether one is due, a comparison.

use flatpath_structures::wheel::Wheel;

use crate::limits::{RESTING_NS_MAX, TICK_NS, WHEEL_SLOTS};

/// What the thread does when its time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// All of them.
    All,
    /// The deadlines of connections.
    Deadlines,
    /// Completions of short sends, for which no wait ends.
    ShortSends,
    /// A connection waits for room, which another thread may make.
    Room,
    /// Accept: the end of a pause, or of the patience of a full thread.
    Accepts,
    /// Receives of datagrams: the same.
    Datagrams,
    /// Eventfds that the kernel has refused to watch.
    Watches,
    /// The next state of a server that ends.
    State,
    /// Protocols that are notified of a drain late.
    LateNotices,
    /// The end of what is logged as one episode.
    Episodes,
    /// The next round in which addresses give up what they hold beyond their share.
    Overdrawn,
    /// A line in the log on jobs that have waited long.
    LongWaits,
    /// Idle memory.
    Trim,
    /// Ciphers that are ready for use, of more connections than may have some.
    Ciphers,
    /// A socket that takes much at a time, where another wants its place.
    Wide,
    /// Lines of the access log that found no room.
    AccessLog,
}

const CHORES: usize = Chore::AccessLog as usize + 1;

/// How long connections wait for room if nothing happens: another thread may make it.
const WAITING_NS: u64 = 10_000_000;

/// What the turn leaves that any of its steps may have changed.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Work for the next turn, which follows at once.
    pub(super) is_due: bool,
    /// Connections or jobs that wait for room.
    pub(super) waits_for_room: bool,
    /// When addresses next give up what they hold beyond their share.
    pub(super) next_round_ns: Option<u64>,
    pub(super) episode_end_ns: Option<u64>,
}

/// See the module. Times are in nanoseconds of the driver's clock.
pub(super) struct Timers {
    wheel: Wheel,
    /// Empty but while deadlines are looked at.
    expired: Vec<u32>,
    /// By chore; `u64::MAX` for none.
    times: [u64; CHORES],
    earliest_ns: u64,
}

impl Timers {
    /// All chores are due.
    pub(super) fn new() -> Timers {
        let mut timers = Timers {
            wheel: Wheel::new(TICK_NS, WHEEL_SLOTS),
            expired: Vec::new(),
            times: [u64::MAX; CHORES],
            earliest_ns: u64::MAX,
        };
        timers.at_once(Chore::All);
        timers
    }

    /// Whether a chore is due. One comparison.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.earliest_ns
    }

    /// For how long the thread may wait for the kernel; `None` without end.
    pub(super) fn timeout_ns(&self, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        match self.earliest_ns {
            u64::MAX => None,
            earliest_ns => Some(earliest_ns.saturating_sub(now_ns())),
        }
    }

    /// A chore is due at this time, and at no other; `None`: at none.
    #[inline]
    pub(super) fn set(&mut self, chore: Chore, ns: Option<u64>) {
        let ns = ns.unwrap_or(u64::MAX);
        self.times[chore as usize] = ns;
        self.earliest_ns = self.earliest_ns.min(ns);
    }

    /// A chore is due in this turn or, if its step is over, in the next.
    pub(super) fn at_once(&mut self, chore: Chore) {
        self.set(chore, Some(0));
    }

    /// A short send was made, which no completion may follow for now: it is noted after
    /// [`RESTING_NS_MAX`] at the latest.
    #[inline]
    pub(super) fn short_send(&mut self, now_ns: u64) {
        self.set(Chore::ShortSends, Some(now_ns + RESTING_NS_MAX));
    }

    /// The chores of a turn begin (TI2).
    pub(super) fn begin_chores(&mut self, now_ns: u64) {
        let passed = self.times.iter_mut().filter(|ns| **ns <= now_ns);
        passed.for_each(|ns| *ns = u64::MAX);
    }

    /// The chores of a turn are done (TI1). Those of [`Left`] are due as it says, and the others as
    /// their own steps have.
    pub(super) fn end_chores(&mut self, now_ns: u64, left: &Left) {
        let times = [
            (Chore::All, left.is_due.then_some(now_ns)),
            (
                Chore::Room,
                left.waits_for_room.then_some(now_ns + WAITING_NS),
            ),
            (Chore::Overdrawn, left.next_round_ns),
            (Chore::Episodes, left.episode_end_ns),
        ];
        for (chore, ns) in times {
            self.set(chore, ns);
        }
        self.earliest_ns = self.times.iter().copied().fold(u64::MAX, u64::min);
    }

    /// Has the deadline of a connection looked at: when the tick is over that it falls in.
    pub(super) fn arm(&mut self, index: u32, deadline_ns: u64) {
        self.wheel.arm(index, deadline_ns);
        let tick_ns = deadline_ns.saturating_add(TICK_NS - 1) / TICK_NS * TICK_NS;
        let known_ns = self.times[Chore::Deadlines as usize];
        self.set(Chore::Deadlines, Some(known_ns.min(tick_ns)));
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

    /// Those that have passed were fired.
    pub(super) fn recycle(&mut self, mut expired: Vec<u32>, now_ns: u64) {
        expired.clear();
        self.expired = expired;
        let next_ns = self.wheel.next_ns(now_ns);
        let next_ns = next_ns.map(|ns| now_ns.saturating_add(ns));
        self.set(Chore::Deadlines, next_ns);
    }

    /// Whether the deadline of a place is one that has passed, and was not armed anew since.
    pub(super) fn confirm(&mut self, index: u32) -> bool {
        self.wheel.confirm(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a chore.
    fn timers() -> Timers {
        let mut timers = Timers::new();
        assert!(timers.is_due(0), "at first all is");
        timers.begin_chores(0);
        timers.end_chores(0, &Left::default());
        timers
    }

    const ALL: [Chore; CHORES] = [
        Chore::All,
        Chore::Deadlines,
        Chore::ShortSends,
        Chore::Room,
        Chore::Accepts,
        Chore::Datagrams,
        Chore::Watches,
        Chore::State,
        Chore::LateNotices,
        Chore::Episodes,
        Chore::Overdrawn,
        Chore::LongWaits,
        Chore::Trim,
        Chore::Ciphers,
        Chore::Wide,
        Chore::AccessLog,
    ];

    /// Those that the last step has due.
    fn left_until(chore: Chore, ns: u64) -> Option<Left> {
        let left = Left::default();
        Some(match chore {
            Chore::All => Left {
                is_due: true,
                ..left
            },
            Chore::Room => Left {
                waits_for_room: true,
                ..left
            },
            Chore::Overdrawn => Left {
                next_round_ns: Some(ns),
                ..left
            },
            Chore::Episodes => Left {
                episode_end_ns: Some(ns),
                ..left
            },
            _ => return None,
        })
    }

    #[test]
    fn each_chore_alone_and_before_all_others_decides_how_long_a_wait_lasts() {
        const SOON: u64 = 70;
        const LATER: u64 = 1_000_000_000;
        for (number, chore) in ALL.into_iter().enumerate() {
            assert_eq!(chore as usize, number, "{chore:?}");
            for has_others in [false, true] {
                let mut timers = timers();
                let (now_ns, due_ns) = match chore {
                    Chore::All => (SOON, SOON),
                    Chore::Room => (SOON, SOON + WAITING_NS),
                    _ => (0, SOON),
                };
                let left = left_until(chore, due_ns);
                for other in ALL.into_iter().filter(|_| has_others) {
                    timers.set(other, Some(LATER));
                }
                if left.is_none() {
                    timers.set(chore, Some(due_ns));
                    assert_eq!(timers.timeout_ns(|| 0), Some(due_ns), "{chore:?}, set");
                }
                timers.end_chores(now_ns, &left.unwrap_or_default());
                assert_eq!(timers.timeout_ns(|| 0), Some(due_ns), "{chore:?}");
                assert!(timers.is_due(due_ns) && !timers.is_due(due_ns - 1));
                timers.begin_chores(due_ns);
                timers.end_chores(due_ns, &Left::default());
                let rest_ns = has_others.then_some(LATER - due_ns);
                assert_eq!(timers.timeout_ns(|| due_ns), rest_ns, "{chore:?}, done");
            }
        }
    }

    #[test]
    fn the_earliest_time_is_due_and_none_before_it() {
        /// Something that happens within a turn.
        type Act<'a> = &'a dyn Fn(&mut Timers);
        let deadline_ns = 3 * TICK_NS + 1;
        let rows: [(Act<'_>, Option<u64>); 7] = [
            (&|_| {}, None),
            (&|timers| timers.set(Chore::Trim, Some(70)), Some(70)),
            (&|timers| timers.set(Chore::Trim, None), None),
            (&|timers| timers.short_send(5), Some(5 + RESTING_NS_MAX)),
            (&|timers| timers.arm(3, deadline_ns), Some(4 * TICK_NS)),
            (&|timers| timers.at_once(Chore::Ciphers), Some(0)),
            (
                &|timers| {
                    timers.set(Chore::Trim, Some(9));
                    timers.set(Chore::Watches, Some(8));
                    timers.arm(3, deadline_ns);
                },
                Some(8),
            ),
        ];
        for (act, expected) in rows {
            let mut timers = timers();
            act(&mut timers);
            for _ in 0..2 {
                assert_eq!(timers.timeout_ns(|| 0), expected);
                let due_ns = expected.unwrap_or(u64::MAX);
                assert!(timers.is_due(due_ns) && (due_ns == 0 || !timers.is_due(due_ns - 1)));
                timers.end_chores(0, &Left::default());
            }
        }
    }

    #[test]
    fn a_chore_has_one_time_and_one_that_has_passed_is_forgotten() {
        let mut timers = timers();
        timers.set(Chore::Trim, Some(5));
        timers.set(Chore::Trim, Some(50));
        timers.set(Chore::Watches, Some(20));
        timers.end_chores(0, &Left::default());
        assert_eq!(timers.timeout_ns(|| 0), Some(20));
        timers.begin_chores(19);
        timers.end_chores(0, &Left::default());
        assert!(timers.is_due(20) && !timers.is_due(19));
        timers.begin_chores(20);
        timers.set(Chore::Accepts, Some(60));
        timers.end_chores(0, &Left::default());
        assert_eq!(
            timers.timeout_ns(|| 20),
            Some(30),
            "the step has not asked again"
        );
        timers.begin_chores(60);
        timers.end_chores(0, &Left::default());
        assert_eq!(timers.timeout_ns(|| 60), None);
    }

    #[test]
    fn deadlines_are_due_until_they_are_fired_and_those_that_are_left_after_that() {
        let mut timers = timers();
        timers.arm(3, 5 * TICK_NS);
        timers.arm(4, 7 * TICK_NS);
        timers.begin_chores(TICK_NS);
        timers.end_chores(0, &Left::default());
        assert_eq!(timers.timeout_ns(|| 0), Some(5 * TICK_NS));
        timers.cancel(3);
        timers.begin_chores(5 * TICK_NS);
        let expired = timers.take_expired(5 * TICK_NS);
        assert!(expired.iter().all(|index| !timers.confirm(*index)));
        timers.recycle(expired, 5 * TICK_NS);
        timers.end_chores(0, &Left::default());
        assert_eq!(timers.timeout_ns(|| 5 * TICK_NS), Some(2 * TICK_NS));
        let expired = timers.take_expired(7 * TICK_NS);
        assert_eq!(expired, [4]);
        assert!(timers.confirm(4));
        timers.recycle(expired, 7 * TICK_NS);
        timers.end_chores(0, &Left::default());
        assert_eq!(timers.timeout_ns(|| 0), None);
    }
}
