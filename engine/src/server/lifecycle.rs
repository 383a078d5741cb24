//! The life of a server from its start to its end: the state, when it began, and the threads that
//! have ended or have not.
//!
//! A server ends when it is drained, when it is forced, and when any of its network threads ends
//! before its time. It is not healed: that thread's listening sockets, connections and caches are
//! gone, and what ended it would end its successor. So the end is logged at once, the other threads
//! drain, and [`Running::wait`](crate::Running::wait) returns the cause.
//!
//! The end comes in time, whatever hangs: a thread that is not back at its limit is left behind and
//! named. A thread cannot be ended from outside; the end of the process is its end.
//!
//! A drain may be announced some time before it begins (`drain_delay`): connections are still
//! accepted, and replies say that they are the last of theirs. The time is counted from the
//! announcement, so a network thread that hangs does not put the end off.
//!
//! | limit for       | after a drain began     | after it was forced |
//! |-----------------|-------------------------|---------------------|
//! | network threads | `drain_timeout` + 300 ms | 150 ms              |
//! | everything      | `drain_timeout` + 500 ms | 220 ms              |
//!
//! Ordering
//! - LE1 state: `advance` (Release) -> `server_state` (Acquire): what was set up before it.
//!   Network threads are told of it afterwards (`network/mailbox.rs`).

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatpath_structures::lock::{Condition, Guard, Lock};

use crate::error::{Error, LeftBehind};
use crate::limits::Limits;

/// How long network threads may take beyond `drain_timeout`: they cut off what is left by
/// themselves, and free what they hold.
const NETWORK_LATE: Duration = Duration::from_millis(300);

/// How long all threads together may take beyond it: less than a second.
const ALL_LATE: Duration = Duration::from_millis(500);

/// The same after [`ServerState::Forced`].
const NETWORK_FORCED: Duration = Duration::from_millis(150);
const ALL_FORCED: Duration = Duration::from_millis(220);

/// How often a thread is looked at that has no means to report its end.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// How far the end of a server has come; see [`Handle::state`](crate::Handle::state). Later states
/// are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
// Exhaustive: each way to show it has a word for each.
pub enum ServerState {
    /// It serves.
    #[default]
    Running,
    /// It still accepts and serves, and is about to drain: no new client should be sent to it.
    Leaving,
    /// It accepts no more and finishes what is in flight.
    Draining,
    /// It cuts off what is left.
    Forced,
}

pub(crate) struct Lifecycle {
    server_state: AtomicU8,
    state: Lock<State>,
    changed: Condition,
    pulses: Box<[Pulse]>,
}

#[derive(Default)]
struct State {
    drain_delay: Duration,
    drain_timeout: Duration,
    /// When the drain began or is to begin.
    draining: Option<Instant>,
    forced: Option<Instant>,
    /// Network threads that have ended, each once.
    ended: Vec<u16>,
    /// What ended the first one that ended before its time.
    cause: Option<io::Error>,
}

/// What a network thread does, for the report that it is stuck. On a cache line of its own: it is
/// written all the time.
#[repr(align(128))]
#[derive(Default)]
struct Pulse {
    turn_ns: AtomicU64,
    /// When the last turn ended; before `turn_ns` within a turn.
    ended_ns: AtomicU64,
    listener: AtomicU16,
    listeners: OnceLock<Box<[&'static str]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    Network,
    All,
}

impl Lifecycle {
    pub(crate) fn new(threads: usize, limits: &Limits) -> Lifecycle {
        Lifecycle {
            server_state: AtomicU8::new(0),
            state: Lock::new(State {
                drain_delay: limits.drain_delay,
                drain_timeout: limits.drain_timeout,
                ..State::default()
            }),
            changed: Condition::new(),
            pulses: (0..threads).map(|_| Pulse::default()).collect(),
        }
    }

    fn state(&self) -> Guard<'_, State> {
        // Nothing under the lock panics half way.
        self.state.lock()
    }

    pub(crate) fn server_state(&self) -> ServerState {
        // ORDER: LE1: what was set up before the state.
        match self.server_state.load(Ordering::Acquire) {
            0 => ServerState::Running,
            1 => ServerState::Leaving,
            2 => ServerState::Draining,
            _ => ServerState::Forced,
        }
    }

    /// Takes over the times of a drain.
    pub(crate) fn change(&self, limits: &Limits) {
        let mut state = self.state();
        state.drain_delay = limits.drain_delay;
        state.drain_timeout = limits.drain_timeout;
        self.changed.notify_all();
    }

    /// The state that a server is in first when it is to drain.
    pub(crate) fn first_of_drain(&self) -> ServerState {
        match self.state().drain_delay.is_zero() {
            true => ServerState::Draining,
            false => ServerState::Leaving,
        }
    }

    /// Moves on to this state; going back does nothing. The caller tells the network threads next.
    pub(crate) fn advance(&self, server_state: ServerState) {
        let mut state = self.state();
        let now = Instant::now();
        if server_state == ServerState::Leaving && state.draining.is_none() {
            state.draining = now.checked_add(state.drain_delay);
        }
        if server_state >= ServerState::Draining {
            // OURS: a time.
            state.draining = Some(state.draining.map_or(now, |begins| begins.min(now)));
        }
        if server_state == ServerState::Forced {
            state.forced.get_or_insert(now);
        }
        // ORDER: LE1: what was set up before the state.
        self.server_state
            .fetch_max(server_state as u8, Ordering::AcqRel);
        self.changed.notify_all();
    }

    pub(crate) fn turn_began(&self, thread: u16, now_ns: u64) {
        let pulse = &self.pulses[usize::from(thread)];
        // ORDER: Relaxed: a figure for a report, it publishes nothing.
        pulse.turn_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(crate) fn turn_ended(&self, thread: u16, now_ns: u64) {
        let pulse = &self.pulses[usize::from(thread)];
        // ORDER: Relaxed: as above.
        pulse.ended_ns.store(now_ns, Ordering::Relaxed);
    }

    /// The turn that a network thread is in: the number of the listener that it called last, when
    /// the turn began, and how long ago that was.
    pub(crate) fn present_turn(&self, thread: u16) -> Option<(u16, Duration, Duration)> {
        let pulse = &self.pulses[usize::from(thread)];
        let ended_ns = pulse.ended_ns.load(Ordering::Relaxed);
        let turn_ns = pulse.turn_ns.load(Ordering::Relaxed);
        let listener = pulse.listener.load(Ordering::Relaxed);
        let has_ended = self.state().ended.contains(&thread);
        (turn_ns > ended_ns && !has_ended)
            .then(|| (listener, Duration::from_nanos(turn_ns), since(turn_ns)))
    }

    /// A protocol of a network thread is called, by the thread's number for its listener.
    pub(crate) fn calls(&self, thread: u16, listener: u16) {
        let pulse = &self.pulses[usize::from(thread)];
        // ORDER: Relaxed: as above.
        pulse.listener.store(listener, Ordering::Relaxed);
    }

    /// The names of a network thread's listeners. Once.
    pub(crate) fn name_listeners(&self, thread: u16, names: Box<[&'static str]>) {
        let named = self.pulses[usize::from(thread)].listeners.set(names);
        debug_assert!(named.is_ok(), "a network thread starts once");
    }

    /// The name of a listener of a network thread, by the thread's number for it.
    pub(crate) fn listener(&self, thread: u16, listener: u16) -> Option<&'static str> {
        let names = self.pulses.get(usize::from(thread))?.listeners.get()?;
        names.get(usize::from(listener)).copied()
    }

    /// A network thread has ended. The last thing that it does.
    pub(crate) fn network_ended(&self, thread: u16, result: io::Result<()>) {
        let mut state = self.state();
        state.ended.push(thread);
        if let Err(cause) = result {
            state.cause.get_or_insert(cause);
        }
        self.changed.notify_all();
    }

    /// Waits until all of the first `started` network threads have ended, or their limit has
    /// passed. Those that have not ended are the result.
    pub(crate) fn await_networks(&self, started: usize) -> Vec<LeftBehind> {
        let mut state = self.state();
        while state.ended.len() < started {
            let left = match self.limit(&state, Threads::Network) {
                None => Duration::MAX,
                Some(limit) => limit.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_for(state, left);
        }
        let threads = 0..u16::try_from(started).expect("at most 1024 were granted");
        threads
            .filter(|thread| !state.ended.contains(thread))
            .map(|thread| self.stuck(thread))
            .collect()
    }

    fn stuck(&self, thread: u16) -> LeftBehind {
        let pulse = &self.pulses[usize::from(thread)];
        let listener = pulse.listener.load(Ordering::Relaxed);
        LeftBehind {
            thread: format!("network thread {thread}"),
            listener: self.listener(thread, listener),
            busy: since(pulse.turn_ns.load(Ordering::Relaxed)),
        }
    }

    /// When waiting for threads has to end; `None` while the server runs, and for a limit beyond
    /// the clock.
    fn limit(&self, state: &State, threads: Threads) -> Option<Instant> {
        let (late, forced) = match threads {
            Threads::Network => (NETWORK_LATE, NETWORK_FORCED),
            Threads::All => (ALL_LATE, ALL_FORCED),
        };
        let drained = state
            .draining
            .and_then(|began| began.checked_add(state.drain_timeout)?.checked_add(late));
        let forced = state.forced.map(|began| began + forced);
        [drained, forced].into_iter().flatten().min()
    }

    /// Waits until a thread has ended, at most for `patience` and not beyond the limit for all.
    /// False: it has not.
    pub(crate) fn await_end<T>(&self, thread: &JoinHandle<T>, patience: Instant) -> bool {
        while !thread.is_finished() {
            let limit = self.limit(&self.state(), Threads::All);
            let limit = limit.map_or(patience, |limit| limit.min(patience));
            if Instant::now() >= limit {
                return false;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        true
    }

    /// Waits until something holds, not beyond the limit for network threads: workers need what is
    /// left of the time for all to leave.
    pub(crate) fn await_true(&self, holds: impl Fn() -> bool) {
        while !holds() {
            let limit = self.limit(&self.state(), Threads::Network);
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// What [`Running::wait`](crate::Running::wait) returns, once nothing is waited for any more.
    pub(crate) fn outcome(&self, left: Vec<LeftBehind>) -> Result<(), Error> {
        let cause = self.state().cause.take();
        for thread in &left {
            log::error!("left behind: {thread}");
        }
        match (left.is_empty(), cause) {
            (true, None) => Ok(()),
            (true, Some(cause)) => Err(Error::Driver(cause)),
            (false, cause) => Err(Error::LeftBehind { left, cause }),
        }
    }
}

/// How long ago a reading of the driver's clock was; nothing for a clock that is not the machine's.
pub(crate) fn since(then_ns: u64) -> Duration {
    Duration::from_nanos(flatpath_driver::monotonic_ns().saturating_sub(then_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn lifecycle(threads: usize, drain_delay: Duration, drain_timeout: Duration) -> Lifecycle {
        let limits = Limits {
            drain_delay,
            drain_timeout,
            ..Limits::default()
        };
        Lifecycle::new(threads, &limits)
    }

    #[test]
    fn a_stage_never_goes_back() {
        let lifecycle = lifecycle(1, Duration::ZERO, HOUR);
        lifecycle.advance(ServerState::Forced);
        lifecycle.advance(ServerState::Draining);
        assert_eq!(lifecycle.server_state(), ServerState::Forced);
    }

    #[test]
    fn the_limit_of_a_force_is_sooner_than_that_of_a_drain() {
        let lifecycle = lifecycle(1, Duration::ZERO, HOUR);
        let limit = |threads| lifecycle.limit(&lifecycle.state(), threads);
        assert_eq!(limit(Threads::All), None);
        lifecycle.advance(ServerState::Draining);
        let drained = limit(Threads::All).expect("a limit");
        lifecycle.advance(ServerState::Forced);
        assert!(limit(Threads::All).expect("a limit") < drained);
        assert!(limit(Threads::Network) < limit(Threads::All));
    }

    #[test]
    fn a_drain_without_an_end_has_no_limit() {
        let lifecycle = lifecycle(1, Duration::ZERO, Duration::MAX);
        lifecycle.advance(ServerState::Draining);
        // Five centuries from now on, or none.
        let limit = lifecycle.limit(&lifecycle.state(), Threads::All);
        assert!(limit.is_none_or(|limit| limit > Instant::now() + HOUR));
    }

    #[test]
    fn the_limit_counts_from_the_end_of_the_delay_or_from_the_drain_that_comes_before() {
        let lifecycle = lifecycle(1, HOUR, HOUR);
        assert_eq!(lifecycle.first_of_drain(), ServerState::Leaving);
        let limit = || lifecycle.limit(&lifecycle.state(), Threads::All);
        let before = Instant::now();
        lifecycle.advance(ServerState::Leaving);
        let announced = limit().expect("a limit");
        assert!(announced >= before + 2 * HOUR);
        lifecycle.advance(ServerState::Leaving);
        assert_eq!(limit(), Some(announced), "announced once");
        lifecycle.advance(ServerState::Draining);
        assert!(limit().expect("a limit") < announced);
    }

    #[test]
    fn a_thread_that_does_not_end_is_named_with_its_listener() {
        let lifecycle = lifecycle(2, Duration::ZERO, Duration::ZERO);
        lifecycle.name_listeners(1, Box::new(["files", "relay"]));
        lifecycle.calls(1, 1);
        lifecycle.network_ended(0, Ok(()));
        lifecycle.advance(ServerState::Forced);
        let left = lifecycle.await_networks(2);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].thread, "network thread 1");
        assert_eq!(left[0].listener, Some("relay"));
    }
}
