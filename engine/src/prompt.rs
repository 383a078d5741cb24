//! Try, then hand over: which requests the network thread may answer itself, and which place loses
//! the right to have it tried.
//!
//! A protocol whose request usually has its answer at hand may try it on the network thread, under
//! the promise that nothing in the try waits: what would wait makes it fail, and the request goes
//! to a worker as if it had not been tried. [`Io::prompt`] has the rules of when; they bound what
//! other connections wait for, and keep the workers' processors in use when there is much to do:
//!
//! - Nothing of the connection is with workers: its requests are not answered faster in parallel.
//! - A turn has eight tries, and none once they took 200 microseconds.
//! - The *place* of the request (a mount, a route) has the right. A [`PromptRight`] is one place's.
//!
//! Which file systems keep the promise is told by [`FileSystem`].
//!
//! The promise is watched. A try of two milliseconds or more may have waited, or this thread was
//! preempted: its place is on trial for the next 64 tries, in which the thread's sleeps are
//! counted. A try that took as long and slept takes the right from its place until the server
//! restarts. One line in the log names it, and the listener counts it
//! ([`Statistics::prompt_rights_lost`](crate::statistics::Statistics::prompt_rights_lost)).
//!
//! | may run beside | allow, judge | is_lost |
//! |----------------|--------------|---------|
//! | allow, judge   | yes          | yes     |
//!
//! Invariants
//! - P1: a right that is lost is lost for good, and exactly one judgement says that it was the one.
//! - P2: a place is on trial only after a long try, so no other try costs a system call here.
//!
//! Ordering: a right guards nothing but itself, so its accesses are relaxed.
//!
//! Cost: a refused try is two compares; one that is allowed reads a flag that is not written while
//! the promise is kept, and the clock twice.

mod file_system;

use std::sync::atomic::{AtomicU8, Ordering};

use crate::io::Io;
use crate::limits::{PROMPT_TRIAL_TRIES, PROMPT_TRIES_MAX, PROMPT_TRY_NS_MAX, PROMPT_TURN_NS_MAX};

pub use file_system::FileSystem;

/// No try was long of late. What is between the two is the number of tries left on trial.
const GRANTED: u8 = 0;
const LOST: u8 = u8::MAX;

/// Whether requests for one place may be tried on a network thread; all threads share it.
#[derive(Debug)]
pub struct PromptRight {
    state: AtomicU8,
    place: Box<str>,
}

/// How long a try took, and whether the thread slept in it, if that was asked.
#[derive(Clone, Copy, Debug)]
struct Observed {
    took_ns: u64,
    slept: Option<bool>,
}

impl PromptRight {
    /// For a place that keeps the promise; the log calls it by this name.
    pub fn granted(place: impl Into<Box<str>>) -> PromptRight {
        PromptRight {
            state: AtomicU8::new(GRANTED),
            place: place.into(),
        }
    }

    /// For a place that does not: nothing is tried there.
    pub fn refused(place: impl Into<Box<str>>) -> PromptRight {
        PromptRight {
            state: AtomicU8::new(LOST),
            place: place.into(),
        }
    }

    /// True when nothing is tried here any more.
    pub fn is_lost(&self) -> bool {
        self.state() == LOST
    }

    fn state(&self) -> u8 {
        // ORDER: it guards nothing else.
        self.state.load(Ordering::Relaxed)
    }

    /// Draws the consequence of a try; true when it cost the place its right.
    fn judge(&self, observed: Observed) -> bool {
        let is_long = observed.took_ns >= PROMPT_TRY_NS_MAX;
        let next = |state: u8| match (state, is_long, observed.slept) {
            (LOST, ..) => None,
            (_, true, Some(true)) => Some(LOST),
            (_, true, _) => Some(PROMPT_TRIAL_TRIES),
            (GRANTED, false, _) | (_, false, None) => None,
            (left, false, Some(_)) => Some(left - 1),
        };
        // ORDER: it guards nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let changed = self.state.fetch_update(set, fetch, next);
        changed.is_ok() && is_long && observed.slept == Some(true)
    }
}

/// A try that was allowed: hand it to [`Io::tried`] when it is over, whatever came of it.
#[must_use = "a try is watched only if its end is reported"]
#[derive(Debug)]
pub struct Prompt {
    began_ns: u64,
    /// Sleeps of the thread before it, of a place on trial.
    switches: Option<u64>,
}

/// The tries of one network thread in one turn.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    turn: u64,
    left: u32,
    spent_ns: u64,
}

impl Tries {
    /// Takes one of the turn's tries.
    #[inline]
    fn take(&mut self, turn: u64) -> bool {
        if self.turn != turn {
            *self = Tries {
                turn,
                left: PROMPT_TRIES_MAX,
                spent_ns: 0,
            };
        }
        let has_left = self.left > 0;
        self.left -= u32::from(has_left);
        has_left
    }

    fn ended(&mut self, took_ns: u64) {
        self.spent_ns = self.spent_ns.saturating_add(took_ns);
        if self.spent_ns >= PROMPT_TURN_NS_MAX {
            self.left = 0;
        }
    }
}

impl Io<'_> {
    /// Whether the request that is at hand may be tried on this thread; if so, it counts as tried,
    /// and [`Io::tried`] follows. The caller promises that nothing in the try waits: no file system
    /// that may ask a disk or a network, no lock that is held across a wait.
    ///
    /// `None`: hand the request to a worker.
    #[inline]
    pub fn prompt(&mut self, right: &PromptRight) -> Option<Prompt> {
        let state = right.state();
        if self.connection.control.jobs_out > 0
            || state == LOST
            || !self.common.tries.take(self.common.turn.number)
        {
            return None;
        }
        let on_trial = state != GRANTED;
        Some(Prompt {
            switches: on_trial.then(|| self.driver.voluntary_switches()),
            began_ns: self.driver.clock_ns(),
        })
    }

    /// The end of a try, with a reply or without one.
    #[inline]
    pub fn tried(&mut self, right: &PromptRight, prompt: Prompt) {
        let took_ns = self.driver.clock_ns().saturating_sub(prompt.began_ns);
        self.common.tries.ended(took_ns);
        if took_ns >= PROMPT_TRY_NS_MAX || prompt.switches.is_some() {
            self.watched(right, &prompt, took_ns);
        }
    }

    #[cold]
    fn watched(&self, right: &PromptRight, prompt: &Prompt, took_ns: u64) {
        let slept = |before| self.driver.voluntary_switches() > before;
        let observed = Observed {
            took_ns,
            slept: prompt.switches.map(slept),
        };
        if right.judge(observed) {
            self.counters().prompt_rights_lost.add(1);
            let place = &right.place;
            log::warn!("{place} made others wait: workers answer for it until the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: u64 = PROMPT_TRY_NS_MAX - 1;
    const LONG: u64 = PROMPT_TRY_NS_MAX;

    fn judge(right: &PromptRight, took_ns: u64, slept: Option<bool>) -> bool {
        right.judge(Observed { took_ns, slept })
    }

    #[test]
    fn a_place_is_put_on_trial_before_it_loses_and_loses_once() {
        let right = PromptRight::granted("a mount");
        assert!(!judge(&right, SHORT, None) && right.state() == GRANTED);
        assert!(!judge(&right, LONG, None), "it may have been preempted");
        assert_eq!(right.state(), PROMPT_TRIAL_TRIES);
        assert!(!judge(&right, SHORT, Some(true)), "a short sleep is none");
        assert!(!judge(&right, LONG, Some(false)), "it was preempted");
        assert_eq!(right.state(), PROMPT_TRIAL_TRIES, "the trial begins anew");
        assert!(judge(&right, LONG, Some(true)));
        assert!(right.is_lost());
        assert!(!judge(&right, LONG, Some(true)), "another thread's try");
        assert!(!judge(&right, SHORT, Some(false)) && right.is_lost());
        assert!(PromptRight::refused("another").is_lost());
    }

    #[test]
    fn a_trial_ends_with_its_last_short_try() {
        let right = PromptRight::granted("a mount");
        judge(&right, LONG, None);
        for left in (0..PROMPT_TRIAL_TRIES).rev() {
            // What began before the trial is no part of it.
            judge(&right, SHORT, None);
            judge(&right, SHORT, Some(false));
            assert_eq!(right.state(), left);
        }
        judge(&right, SHORT, Some(false));
        assert_eq!(right.state(), GRANTED);
    }

    #[test]
    fn a_turn_has_a_number_of_tries_and_a_time_for_them() {
        let mut tries = Tries::default();
        for turn in 1..4 {
            let taken = (0..PROMPT_TRIES_MAX + 5).filter(|_| tries.take(turn));
            assert_eq!(taken.count(), PROMPT_TRIES_MAX as usize);
        }
        assert!(tries.take(4));
        tries.ended(PROMPT_TURN_NS_MAX - 1);
        assert!(tries.take(4));
        tries.ended(1);
        assert!(!tries.take(4) && tries.take(5));
    }
}
