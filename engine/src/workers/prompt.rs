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
//! [`FileSystem`] says which file systems keep the promise. A program that has to permit each
//! access, such as a virus scanner, can make any of them wait, and the kernel does not tell which
//! files it watches. So the right for a directory is [unproven](PromptRight::unproven) at first:
//! workers answer until a thread has opened and read a file there and was quick, which is when a
//! request wants to be tried, and again after each loss (`prompt/proof.rs`). A program that hangs
//! later, when the right is there, stops the network thread until it continues: no call bounds an
//! open(2), and the right is lost only then.
//!
//! The promise is watched. A try of two milliseconds or more may have waited, or this thread was
//! preempted: its place is on trial for the next 64 tries, in which the thread's sleeps are
//! counted. A try that took as long and slept takes the right from its place. So does a single try
//! of 100 milliseconds or more, on trial or not, unless the thread is known not to have slept:
//! tries that hang are rare among others, and one of them is what every connection has waited for.
//! Why it took so long is not asked then, since only a system call before every try could tell.
//!
//! A right that is lost comes back, on trial, after a pause of ten seconds, which doubles with
//! every loss up to an hour; an hour without a loss makes it ten seconds again. One line in the log
//! names the place, and the listener counts the loss
//! ([`Statistics::prompt_rights_lost`](crate::observe::statistics::Statistics::prompt_rights_lost)).
//!
//! | may run beside | allow, judge | is_lost |
//! |----------------|--------------|---------|
//! | allow, judge   | yes          | yes     |
//!
//! Invariants
//! - A right is lost until its pause is over, and exactly one judgement reports each loss.
//! - A place is on trial only after a long try or a loss, so no other try costs a system call.
//!
//! Ordering: a right guards nothing but itself, so its accesses are relaxed.
//!
//! Cost: a refused try is two compares; one that is allowed reads a flag that is not written while
//! the promise is kept, and the clock twice.

mod file_system;
mod layers;
mod proof;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{
    PROMPT_BLOCKED_NS, PROMPT_PAUSE_MS_MAX, PROMPT_PAUSE_MS_MIN, PROMPT_TRIAL_TRIES,
    PROMPT_TRIES_MAX, PROMPT_TRY_NS_MAX, PROMPT_TURN_NS_MAX,
};
use crate::protocol::io::Io;

pub use file_system::{FileSystem, FileTimes};
use proof::Proof;
pub use proof::look_into;

/// No try was long of late. What is between this and the next is the number of tries left on trial.
const GRANTED: u8 = 0;
/// A look is under way; none was yet; a try was long. Nothing is tried in these.
const PROVING: u8 = UNPROVEN - 1;
const UNPROVEN: u8 = LOST - 1;
const LOST: u8 = u8::MAX;

const NS_PER_MS: u64 = 1_000_000;

/// Whether requests for one place may be tried on a network thread; all threads share it.
#[derive(Debug)]
pub struct PromptRight {
    /// A [`State`], packed.
    state: AtomicU64,
    place: Box<str>,
    /// What shows that the place keeps the promise; `None`: nothing has to.
    proof: Option<Proof>,
}

/// What is known of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// [`GRANTED`], [`PROVING`], [`UNPROVEN`], [`LOST`], or tries left on trial.
    phase: u8,
    /// Losses that the next pause is doubled for.
    losses: u8,
    /// When the last pause ends, in milliseconds of the monotonic clock; 48 bits.
    until_ms: u64,
}

impl State {
    /// No clock gets there.
    const NEVER_MS: u64 = (1 << 48) - 1;

    fn unpack(word: u64) -> State {
        State {
            phase: word as u8,
            losses: (word >> 8) as u8,
            until_ms: word >> 16,
        }
    }

    fn pack(self) -> u64 {
        self.until_ms << 16 | u64::from(self.losses) << 8 | u64::from(self.phase)
    }

    /// The state after a loss, and the pause that begins with it, in milliseconds.
    fn lost(self, now_ms: u64) -> (State, u64) {
        let is_long_ago = now_ms.saturating_sub(self.until_ms) >= PROMPT_PAUSE_MS_MAX;
        let losses = if is_long_ago { 0 } else { self.losses };
        let doubled = 1_u64.checked_shl(losses.into());
        let pause_ms = doubled
            .and_then(|times| PROMPT_PAUSE_MS_MIN.checked_mul(times))
            .map_or(PROMPT_PAUSE_MS_MAX, |pause| pause.min(PROMPT_PAUSE_MS_MAX));
        let lost = State {
            phase: LOST,
            losses: losses.saturating_add(1),
            until_ms: now_ms.saturating_add(pause_ms).min(State::NEVER_MS),
        };
        (lost, pause_ms)
    }
}

/// How long a try took, and whether the thread slept in it, if that was asked.
#[derive(Clone, Copy, Debug)]
struct Observed {
    took_ns: u64,
    slept: Option<bool>,
}

impl PromptRight {
    const REFUSED: u64 = State::NEVER_MS << 16 | LOST as u64;

    /// For a place that keeps the promise; the log calls it by this name.
    pub fn granted(place: impl Into<Box<str>>) -> PromptRight {
        PromptRight::begins(GRANTED, place.into(), None)
    }

    /// For a place that keeps the promise unless a program that permits accesses hangs. Nothing is
    /// tried there before `look` was quick: a thread calls it when a request wants to be tried, and
    /// again after each loss. It does what a try does, and may block. [`look_into`] makes one for
    /// a directory.
    pub fn unproven(
        place: impl Into<Box<str>>,
        look: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> PromptRight {
        let proof = Proof::by(Arc::new(look));
        PromptRight::begins(UNPROVEN, place.into(), Some(proof))
    }

    /// Another right for the place of this one, as it was when it was made.
    #[must_use]
    pub fn anew(&self) -> PromptRight {
        let place = self.place.clone();
        match &self.proof {
            Some(proof) => PromptRight::begins(UNPROVEN, place, Some(proof.again())),
            None => PromptRight::granted(place),
        }
    }

    fn begins(phase: u8, place: Box<str>, proof: Option<Proof>) -> PromptRight {
        PromptRight {
            state: AtomicU64::new(u64::from(phase)),
            place,
            proof,
        }
    }

    /// For a place that does not: nothing is tried there.
    pub fn refused(place: impl Into<Box<str>>) -> PromptRight {
        PromptRight {
            state: AtomicU64::new(PromptRight::REFUSED),
            place: place.into(),
            proof: None,
        }
    }

    /// Nothing is tried at its place from now on: that is another one now, which does not keep the
    /// promise.
    pub fn refuse(&self) {
        self.set(PromptRight::REFUSED);
    }

    /// As it was when it was made, unless that was refused: its place is another one now.
    pub fn grant(&self) {
        self.set(u64::from(self.first_phase()));
    }

    fn first_phase(&self) -> u8 {
        match self.proof {
            Some(_) => UNPROVEN,
            None => GRANTED,
        }
    }

    fn set(&self, state: u64) {
        // ORDER: it guards nothing else.
        self.state.store(state, Ordering::Relaxed);
    }

    /// The name of its place.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// True when nothing is tried here: never, or until a request comes after the pause. A right
    /// that has to be proven first is not lost.
    pub fn is_lost(&self) -> bool {
        self.phase() == LOST
    }

    /// The low byte of the state alone.
    #[inline]
    fn phase(&self) -> u8 {
        // ORDER: it guards nothing else.
        self.state.load(Ordering::Relaxed) as u8
    }

    /// Gives a right that is not there: a lost one on trial, if its pause is over, one that was
    /// proven as it is. True then.
    #[cold]
    fn resume(&self, now_ns: u64) -> bool {
        // ORDER: it guards nothing else.
        let word = self.state.load(Ordering::Relaxed);
        let (state, now_ms) = (State::unpack(word), now_ns / NS_PER_MS);
        let is_over = state.phase != LOST || now_ms >= state.until_ms;
        match &self.proof {
            Some(proof) if state.phase == PROVING => self.conclude(proof, now_ms),
            Some(proof) if state.phase >= UNPROVEN => {
                let proving = State {
                    phase: PROVING,
                    ..state
                };
                if is_over && self.moves(word, proving) {
                    proof.begin();
                }
                false
            }
            Some(_) => true,
            None => {
                let phase = state.phase.min(PROMPT_TRIAL_TRIES);
                is_over && self.moves(word, State { phase, ..state })
            }
        }
    }

    /// What comes of a look: the right, if it was quick; on trial, if it was lost before.
    fn conclude(&self, proof: &Proof, now_ms: u64) -> bool {
        let Some(took_ns) = proof.verdict() else {
            return false;
        };
        // ORDER: it guards nothing else. No other thread has the verdict.
        let word = self.state.load(Ordering::Relaxed);
        let state = State::unpack(word);
        if took_ns >= PROMPT_BLOCKED_NS {
            let (lost, pause_ms) = state.lost(now_ms);
            self.moves(word, lost);
            let (place, took_ms, pause_s) = (&self.place, took_ns / NS_PER_MS, pause_ms / 1000);
            match took_ns == u64::MAX - 1 {
                true => log::warn!("{place}: no file can be read; using workers for {pause_s} s"),
                false => log::warn!(
                    "{place}: a first open and read took {took_ms} ms; \
                     using workers for {pause_s} s"
                ),
            }
            return false;
        }
        let phase = match state.losses {
            0 => GRANTED,
            _ => PROMPT_TRIAL_TRIES,
        };
        self.moves(word, State { phase, ..state })
    }

    /// Exchanges the state, if it is still this one.
    fn moves(&self, before: u64, after: State) -> bool {
        // ORDER: it guards nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let moved = self
            .state
            .compare_exchange(before, after.pack(), set, fetch);
        moved.is_ok()
    }

    /// Draws the consequence of a try that ended now. `Some`: it cost the place its right for this
    /// long, in milliseconds.
    fn judge(&self, observed: Observed, now_ns: u64) -> Option<u64> {
        let is_long = observed.took_ns >= PROMPT_TRY_NS_MAX;
        let is_blocked = match observed.slept {
            Some(slept) => is_long && slept,
            None => observed.took_ns >= PROMPT_BLOCKED_NS,
        };
        let now_ms = now_ns / NS_PER_MS;
        let next = |word| {
            let state = State::unpack(word);
            let on_trial = |phase| State { phase, ..state };
            let next = match (state.phase, is_long, observed.slept) {
                (PROVING.., ..) => return None,
                _ if is_blocked => state.lost(now_ms).0,
                (_, true, _) => on_trial(PROMPT_TRIAL_TRIES),
                (GRANTED, false, _) | (_, false, None) => return None,
                (left, false, Some(_)) => on_trial(left - 1),
            };
            Some(next.pack())
        };
        // ORDER: it guards nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.state.fetch_update(set, fetch, next).ok()?;
        is_blocked.then(|| State::unpack(before).lost(now_ms).1)
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
    pub(crate) fn take(&mut self, turn: u64) -> bool {
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

    pub(crate) fn ended(&mut self, took_ns: u64) {
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
        let phase = right.phase();
        if self.connection.jobs_out() > 0
            || (phase >= PROVING && !right.resume(self.common.turn.now_ns))
            || !self.common.take_try()
        {
            return None;
        }
        let on_trial = phase != GRANTED;
        Some(Prompt {
            switches: on_trial.then(|| self.driver.voluntary_switches()),
            began_ns: self.driver.clock_ns(),
        })
    }

    /// The end of a try, with a reply or without one.
    #[inline]
    pub fn tried(&mut self, right: &PromptRight, prompt: Prompt) {
        let took_ns = self.driver.clock_ns().saturating_sub(prompt.began_ns);
        self.common.try_ended(took_ns);
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
        if let Some(pause_ms) = right.judge(observed, self.driver.clock_ns()) {
            self.counters().prompt_rights_lost.add(1);
            let (place, took_ms, pause_s) = (&right.place, took_ns / NS_PER_MS, pause_ms / 1000);
            log::warn!(
                "{place}: blocked the network thread for {took_ms} ms; \
                 using workers for {pause_s} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: u64 = PROMPT_TRY_NS_MAX - 1;
    const LONG: u64 = PROMPT_TRY_NS_MAX;
    const MIN_MS: u64 = PROMPT_PAUSE_MS_MIN;
    const MAX_MS: u64 = PROMPT_PAUSE_MS_MAX;

    fn judge_at(
        right: &PromptRight,
        now_ms: u64,
        took_ns: u64,
        slept: Option<bool>,
    ) -> Option<u64> {
        right.judge(Observed { took_ns, slept }, now_ms * NS_PER_MS)
    }

    fn judge(right: &PromptRight, took_ns: u64, slept: Option<bool>) -> bool {
        judge_at(right, 0, took_ns, slept).is_some()
    }

    #[test]
    fn a_place_is_put_on_trial_before_it_loses_and_loses_once() {
        let right = PromptRight::granted("a mount");
        assert!(!judge(&right, SHORT, None) && right.phase() == GRANTED);
        assert!(!judge(&right, LONG, None), "it may have been preempted");
        assert_eq!(right.phase(), PROMPT_TRIAL_TRIES);
        assert!(!judge(&right, SHORT, Some(true)), "a short sleep is none");
        assert!(!judge(&right, LONG, Some(false)), "it was preempted");
        assert_eq!(right.phase(), PROMPT_TRIAL_TRIES, "the trial begins anew");
        assert!(judge(&right, LONG, Some(true)));
        assert!(right.is_lost());
        assert!(!judge(&right, LONG, Some(true)), "another thread's try");
        assert!(!judge(&right, SHORT, Some(false)) && right.is_lost());
        assert!(PromptRight::refused("another").is_lost());
    }

    #[test]
    fn one_try_that_hangs_costs_the_right_at_once() {
        let right = PromptRight::granted("a mount");
        assert!(!judge(&right, PROMPT_BLOCKED_NS - 1, None));
        assert!(judge(&right, PROMPT_BLOCKED_NS, None) && right.is_lost());
        let right = PromptRight::granted("on trial");
        assert!(!judge(&right, LONG, None));
        assert!(!judge(&right, PROMPT_BLOCKED_NS, Some(false)), "preempted");
        assert!(judge(&right, PROMPT_BLOCKED_NS, Some(true)));
    }

    /// Asks for the right until it is decided; whether it is there then. The look takes so long.
    fn prove(right: &PromptRight, now_ms: u64, took_ns: u64) -> bool {
        assert!(!right.resume(now_ms * NS_PER_MS), "a thread looks first");
        assert!(right.phase() == PROVING && !right.is_lost());
        let proof = right.proof.as_ref();
        proof.expect("it needs one").ends_after(took_ns);
        right.resume(now_ms * NS_PER_MS)
    }

    #[test]
    fn nothing_is_tried_before_a_look_was_quick_and_each_loss_asks_for_another_one() {
        let looks = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&looks);
        let right = PromptRight::unproven("a directory", move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(right.phase() >= PROVING && !right.is_lost());
        assert!(prove(&right, 0, PROMPT_BLOCKED_NS - 1) && right.phase() == GRANTED);
        assert!(right.resume(0) && looks.load(Ordering::Relaxed) == 1);
        assert!(judge(&right, PROMPT_BLOCKED_NS, None) && right.is_lost());
        assert!(!right.resume((MIN_MS - 1) * NS_PER_MS), "the pause");
        assert!(right.is_lost() && looks.load(Ordering::Relaxed) == 1);
        assert!(prove(&right, MIN_MS, 0));
        assert_eq!(right.phase(), PROMPT_TRIAL_TRIES);
        assert_eq!(looks.load(Ordering::Relaxed), 2);
        let another = right.anew();
        assert_eq!(
            (another.phase(), another.place()),
            (UNPROVEN, right.place())
        );
    }

    #[test]
    fn a_look_that_hangs_gives_no_right_and_holds_up_nothing() {
        let (open, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let right = PromptRight::unproven("a scanner's", move || {
            let _closed = wait.lock().expect("sound").recv();
            Ok(())
        });
        for now_ms in [0, 1, MAX_MS] {
            assert!(!right.resume(now_ms * NS_PER_MS) && right.phase() == PROVING);
            assert!(judge_at(&right, now_ms, LONG, Some(true)).is_none());
        }
        drop(open);
    }

    #[test]
    fn a_look_that_is_slow_or_fails_costs_the_right_for_a_pause() {
        let slow = PromptRight::unproven("a scanner's", || Ok(()));
        assert!(!prove(&slow, 0, PROMPT_BLOCKED_NS) && slow.is_lost());
        assert!(!slow.resume((MIN_MS - 1) * NS_PER_MS) && slow.is_lost());
        assert!(!prove(&slow, MIN_MS, PROMPT_BLOCKED_NS) && slow.is_lost());
        assert!(!slow.resume(2 * MIN_MS * NS_PER_MS), "twice as long");
        assert!(slow.is_lost() && prove(&slow, 3 * MIN_MS, 0));
        let unable = PromptRight::unproven("gone", || Err(io::ErrorKind::NotFound.into()));
        assert!(!prove(&unable, 0, u64::MAX) && unable.is_lost());
    }

    #[test]
    fn a_look_into_a_directory_reads_a_file_where_there_is_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let look = look_into(directory.path());
        look().expect("there is none");
        std::fs::create_dir(directory.path().join("sub")).expect("made");
        std::fs::write(directory.path().join("file"), "text").expect("written");
        look().expect("read");
    }

    #[test]
    fn a_right_comes_back_on_trial_after_a_pause_that_doubles() {
        let right = PromptRight::granted("a mount");
        let (mut now_ms, mut expected) = (1, MIN_MS);
        for _ in 0..300 {
            assert_eq!(
                judge_at(&right, now_ms, PROMPT_BLOCKED_NS, None),
                Some(expected)
            );
            now_ms += expected;
            assert!(!right.resume((now_ms - 1) * NS_PER_MS) && right.is_lost());
            assert!(right.resume(now_ms * NS_PER_MS) && !right.is_lost());
            assert!(right.resume(now_ms * NS_PER_MS), "another thread's request");
            assert_eq!(right.phase(), PROMPT_TRIAL_TRIES);
            expected = (expected * 2).min(MAX_MS);
        }
        // It kept the promise for an hour.
        now_ms += MAX_MS;
        assert_eq!(judge_at(&right, now_ms, LONG, Some(true)), Some(MIN_MS));
        assert!(!PromptRight::refused("another").resume(u64::MAX / 2));
    }

    #[test]
    fn a_trial_ends_with_its_last_short_try() {
        let right = PromptRight::granted("a mount");
        judge(&right, LONG, None);
        for left in (0..PROMPT_TRIAL_TRIES).rev() {
            // What began before the trial is no part of it.
            judge(&right, SHORT, None);
            judge(&right, SHORT, Some(false));
            assert_eq!(right.phase(), left);
        }
        judge(&right, SHORT, Some(false));
        assert_eq!(right.phase(), GRANTED);
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
