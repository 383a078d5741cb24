//! Accept: how it is armed on each socket, and for how long a full thread has newcomers wait.
//!
//! | state      | what happened                              | what ends it                      |
//! |------------|--------------------------------------------|-----------------------------------|
//! | Off        | nothing armed                              | room for another connection       |
//! | Armed      | a single or a multishot accept outstanding | its final completion              |
//! | Cancelling | too little room left for a multishot one   | its final completion              |
//! | Paused     | the kernel had no descriptor or no memory, | a connection closes, or the pause |
//! |            | or the socket does not listen yet          |                                   |
//! | Stopped    | the server drains                          | nothing                           |
//!
//! Near the limit connections are accepted one by one, so that those that come at once cannot
//! exceed it, and also after `FAILURES_MAX` failures in a row, because some sandboxes break
//! multishot accept.
//!
//! | the thread                                        | accepts                              |
//! |---------------------------------------------------|--------------------------------------|
//! | has a place, or a connection can be closed for one | yes                                 |
//! | is full, and none can be closed                   | after `FULL_PATIENCE_NS`, to refuse  |
//! | has none, as caches hold the descriptors          | after `CACHES_PATIENCE_NS`           |
//! | has `OVERFLOW_MAX` connections beyond its limit   | no                                   |
//!
//! While neither connections nor descriptors have changed since all of this was decided, and every
//! accept is armed, it is not decided anew: [`Admission::is_settled`].

use std::{fmt, io};

use crate::limits::{
    ACCEPT_ONE_BY_ONE, ACCEPT_PAUSE_NS, CACHES_LOOK_NS, CACHES_PATIENCE_NS, FULL_PATIENCE_NS,
    LISTEN_PAUSE_NS, OVERFLOW_MAX,
};

use super::{Admission, Bound, Load, Rests};
use crate::observe::episode::BoundEpisode;

/// Failures in a row after which connections are accepted one by one.
const FAILURES_MAX: u32 = 8;

/// How many connections one accept brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptMode {
    Single,
    Multishot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    Armed(AcceptMode),
    Cancelling,
    PausedUntil(u64),
    Stopped,
}

/// Accept on one socket.
#[derive(Debug)]
pub(crate) struct Accepting {
    state: State,
    /// Failures in a row that said nothing about descriptors: multishot may be what fails.
    failures: u32,
}

/// What a completion of an accept has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    Connection,
    /// It was cancelled or interrupted.
    Nothing,
    /// The kernel had no descriptor, or no memory.
    NoDescriptor(KernelError),
    /// The socket does not listen yet: the server before this one has not handed it over.
    NotListening,
    Failure(KernelError),
}

/// What the kernel has refused something with: the number of the error, of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelError(pub(crate) i32);

impl fmt::Display for KernelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(formatter)
    }
}

/// What follows from a completion of an accept.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing.
    Continue,
    /// A descriptor is to be freed, as the kernel has none.
    FreeDescriptor(KernelError),
    /// The socket is to be closed.
    Close,
}

/// What is to be done with an accept.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Arm(AcceptMode),
    Cancel,
    /// The socket is closed: nothing is outstanding.
    Close,
}

/// The room that there is for connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptRoom {
    /// Another one may be accepted.
    pub(crate) accepts: bool,
    /// Connections below the limit.
    pub(crate) free: usize,
    /// How connections are accepted where there is plenty.
    pub(crate) mode: AcceptMode,
    pub(crate) now_ns: u64,
}

impl Accepting {
    /// Nothing is armed.
    pub(crate) fn new() -> Accepting {
        Accepting {
            state: State::Off,
            failures: 0,
        }
    }

    /// An accept has completed, `is_last` for the last time.
    pub(crate) fn completed(
        &mut self,
        brought: Brought,
        is_last: bool,
        (drains, now_ns): (bool, u64),
    ) -> Then {
        if is_last {
            self.state = match drains {
                true => State::Stopped,
                false => State::Off,
            };
        }
        let pause_ns = match brought {
            Brought::Connection => {
                self.failures = 0;
                None
            }
            Brought::Nothing => None,
            Brought::NoDescriptor(_) => Some(ACCEPT_PAUSE_NS),
            Brought::NotListening if self.state == State::Off => Some(LISTEN_PAUSE_NS),
            Brought::NotListening | Brought::Failure(_) => {
                self.failures = self.failures.saturating_add(1);
                (self.failures > FAILURES_MAX).then_some(ACCEPT_PAUSE_NS)
            }
        };
        if let (State::Off, Some(pause_ns)) = (self.state, pause_ns) {
            self.state = State::PausedUntil(now_ns.saturating_add(pause_ns));
        }
        match (self.state, brought) {
            (State::Stopped, _) => Then::Close,
            (_, Brought::NoDescriptor(error)) => Then::FreeDescriptor(error),
            _ => Then::Continue,
        }
    }

    /// What is to be done for the room that there is: it is taken for done.
    pub(crate) fn next(&mut self, room: AcceptRoom) -> Next {
        if let State::PausedUntil(until_ns) = self.state
            && room.now_ns >= until_ns
        {
            self.state = State::Off;
        }
        let is_plenty = room.free > ACCEPT_ONE_BY_ONE && self.failures <= FAILURES_MAX;
        let mode = match is_plenty {
            true => room.mode,
            false => AcceptMode::Single,
        };
        match self.state {
            State::Off if room.accepts => {
                self.state = State::Armed(mode);
                Next::Arm(mode)
            }
            State::Armed(armed)
                if !room.accepts || armed == AcceptMode::Multishot && !is_plenty =>
            {
                self.state = State::Cancelling;
                Next::Cancel
            }
            _ => Next::Stay,
        }
    }

    /// The server drains: what is to be done, which is taken for done.
    pub(crate) fn stop(&mut self) -> Next {
        match self.state {
            State::Armed(_) => {
                self.state = State::Cancelling;
                Next::Cancel
            }
            State::Cancelling => Next::Stay,
            State::Off | State::PausedUntil(_) | State::Stopped => {
                self.state = State::Stopped;
                Next::Close
            }
        }
    }

    /// A connection is gone: a paused accept may find its descriptor.
    pub(crate) fn end_pause(&mut self) {
        if let State::PausedUntil(_) = self.state {
            self.state = State::Off;
        }
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_quiet(&self) -> bool {
        !matches!(self.state, State::Armed(_) | State::Cancelling)
    }

    pub(crate) fn is_armed(&self) -> bool {
        matches!(self.state, State::Armed(_))
    }

    /// How long until it is looked at again without anything happening before, where the thread
    /// accepts after `accepts_in_ns`; `None` for never.
    pub(crate) fn due_in_ns(&self, now_ns: u64, accepts_in_ns: Option<u64>) -> Option<u64> {
        match self.state {
            State::PausedUntil(until_ns) => Some(until_ns.saturating_sub(now_ns)),
            // Armed at the end of the first turn, or as soon as there is room.
            State::Off => accepts_in_ns,
            State::Armed(_) | State::Cancelling | State::Stopped => None,
        }
    }
}

/// What decides on accept, of all sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Connections that hold a descriptor.
    pub(crate) open: usize,
    /// How many may, beside the files that are open.
    pub(crate) beside_files: usize,
}

/// Whether newcomers have to wait.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    No,
    /// Unless a long-lived connection can be ended for one.
    UnlessOneEnds,
    Yes,
}

fn patience_ns(caches_block: bool) -> u64 {
    match caches_block {
        true => CACHES_PATIENCE_NS,
        false => FULL_PATIENCE_NS,
    }
}

impl Admission {
    /// Ends the episodes that are over.
    pub(crate) fn end_episodes(&mut self, now_ns: u64) {
        for episode in &mut self.episodes {
            episode.end(now_ns);
        }
        let is_over = self.episodes[Bound::Descriptors as usize]
            .end_ns()
            .is_none();
        if is_over && self.descriptors_allow < usize::MAX {
            self.descriptors_allow = usize::MAX;
            self.unsettle();
        }
    }

    /// When the next episode may be over.
    pub(crate) fn episode_end_ns(&self) -> Option<u64> {
        self.episodes.iter().filter_map(BoundEpisode::end_ns).min()
    }

    /// Whether newcomers have to wait: the thread is full and nothing rests, or caches have the
    /// descriptors.
    pub(crate) fn waits(&mut self, load: Load, caches_block: bool, rests: impl Rests) -> Waits {
        if caches_block {
            return Waits::Yes;
        }
        let is_full = self.counted(load) >= load.max;
        match is_full && self.longest_resting(load.now_ns, 0, rests).is_none() {
            true => Waits::UnlessOneEnds,
            false => Waits::No,
        }
    }

    /// Whether another connection may be accepted now, where newcomers have to wait or not.
    #[must_use]
    pub(crate) fn accepts(&mut self, load: Load, waits: bool, caches_block: bool) -> bool {
        if !waits {
            if self.counted(load) < load.max {
                self.full_since_ns = 0;
            }
        } else {
            if self.full_since_ns == 0 {
                self.full_since_ns = load.now_ns.max(1);
            }
            let patience_ns = patience_ns(caches_block);
            if load.now_ns < self.full_since_ns.saturating_add(patience_ns) {
                return false;
            }
        }
        load.open < load.max + OVERFLOW_MAX
    }

    /// How long until accept is armed without anything happening before; `None` for never.
    pub(crate) fn accepts_in_ns(&self, load: Load, caches_block: bool) -> Option<u64> {
        if load.open >= load.max + OVERFLOW_MAX {
            return None;
        }
        let wait_ns = match self.full_since_ns {
            0 => 0,
            since_ns => (since_ns + patience_ns(caches_block)).saturating_sub(load.now_ns),
        };
        Some(match caches_block {
            true => wait_ns.min(CACHES_LOOK_NS),
            false => wait_ns,
        })
    }

    /// Whether nothing has changed that decides on accept. Two comparisons.
    #[inline]
    pub(crate) fn is_settled(&self, now: Settled) -> bool {
        self.settled == Some(now)
    }

    /// All was decided for what is now. It holds on if there is room and every accept is armed.
    pub(crate) fn settle(&mut self, load: Load, beside_files: usize, are_armed: bool) {
        let has_room = self.counted(load) < load.max;
        self.settled = (has_room && are_armed).then_some(Settled {
            open: load.open,
            beside_files,
        });
    }

    /// Something has changed that decides on accept.
    pub(crate) fn unsettle(&mut self) {
        self.settled = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: AcceptRoom = AcceptRoom {
        accepts: true,
        free: ACCEPT_ONE_BY_ONE + 1,
        mode: AcceptMode::Multishot,
        now_ns: 0,
    };
    const FULL: AcceptRoom = AcceptRoom {
        accepts: false,
        free: 0,
        ..ROOM
    };
    const SINGLE: State = State::Armed(AcceptMode::Single);
    const MULTISHOT: State = State::Armed(AcceptMode::Multishot);

    fn accepting(state: State, failures: u32) -> Accepting {
        Accepting { state, failures }
    }

    #[test]
    fn each_state_is_followed_by_what_the_room_allows() {
        let few = AcceptRoom { free: 9, ..ROOM };
        let one = AcceptRoom {
            mode: AcceptMode::Single,
            ..ROOM
        };
        let paused = State::PausedUntil(5);
        let late = AcceptRoom { now_ns: 5, ..ROOM };
        let (arm_one, arm_many) = (
            Next::Arm(AcceptMode::Single),
            Next::Arm(AcceptMode::Multishot),
        );
        let rows = [
            (State::Off, 0, ROOM, arm_many, MULTISHOT),
            (State::Off, 0, one, arm_one, SINGLE),
            (State::Off, 0, few, arm_one, SINGLE),
            (State::Off, FAILURES_MAX, ROOM, arm_many, MULTISHOT),
            (State::Off, FAILURES_MAX + 1, ROOM, arm_one, SINGLE),
            (State::Off, 0, FULL, Next::Stay, State::Off),
            (MULTISHOT, 0, ROOM, Next::Stay, MULTISHOT),
            (MULTISHOT, 0, few, Next::Cancel, State::Cancelling),
            (
                MULTISHOT,
                FAILURES_MAX + 1,
                ROOM,
                Next::Cancel,
                State::Cancelling,
            ),
            (SINGLE, 0, few, Next::Stay, SINGLE),
            (SINGLE, 0, FULL, Next::Cancel, State::Cancelling),
            (State::Cancelling, 0, FULL, Next::Stay, State::Cancelling),
            (paused, 0, ROOM, Next::Stay, paused),
            (paused, 0, late, arm_many, MULTISHOT),
            (State::Stopped, 0, ROOM, Next::Stay, State::Stopped),
        ];
        for (state, failures, room, expected, after) in rows {
            let mut one = accepting(state, failures);
            assert_eq!(one.next(room), expected, "{state:?}, {failures}, {room:?}");
            assert_eq!(one.state, after, "{state:?}, {failures}, {room:?}");
        }
    }

    #[test]
    fn a_completion_ends_an_accept_and_may_have_it_pause() {
        use Brought::{Connection, NotListening, Nothing};
        let error = KernelError(24);
        let (none, failure) = (Brought::NoDescriptor(error), Brought::Failure(error));
        let free = Then::FreeDescriptor(error);
        let paused = |ns| State::PausedUntil(7 + ns);
        let (accept, listen) = (paused(ACCEPT_PAUSE_NS), paused(LISTEN_PAUSE_NS));
        let rows = [
            (Connection, false, false, Then::Continue, MULTISHOT),
            (Connection, true, false, Then::Continue, State::Off),
            (Connection, true, true, Then::Close, State::Stopped),
            (Nothing, true, false, Then::Continue, State::Off),
            (none, true, false, free, accept),
            (none, false, false, free, MULTISHOT),
            (none, true, true, Then::Close, State::Stopped),
            (NotListening, true, false, Then::Continue, listen),
            (NotListening, false, false, Then::Continue, MULTISHOT),
            (failure, true, false, Then::Continue, State::Off),
        ];
        for (brought, is_last, drains, expected, after) in rows {
            let mut one = accepting(MULTISHOT, 0);
            let then = one.completed(brought, is_last, (drains, 7));
            assert_eq!(
                (then, one.state),
                (expected, after),
                "{brought:?}, {is_last}"
            );
        }
        let mut failing = accepting(MULTISHOT, FAILURES_MAX);
        let _ = failing.completed(failure, true, (false, 7));
        assert_eq!(failing.state, accept, "it fails again and again");
        let _ = failing.completed(Connection, false, (false, 7));
        assert_eq!(failing.failures, 0);
        assert_eq!(error.to_string(), "Too many open files (os error 24)");
    }

    #[test]
    fn a_drain_cancels_what_is_armed_and_closes_the_others() {
        let rows = [
            (SINGLE, Next::Cancel, State::Cancelling),
            (MULTISHOT, Next::Cancel, State::Cancelling),
            (State::Cancelling, Next::Stay, State::Cancelling),
            (State::Off, Next::Close, State::Stopped),
            (State::PausedUntil(5), Next::Close, State::Stopped),
            (State::Stopped, Next::Close, State::Stopped),
        ];
        for (state, expected, after) in rows {
            let mut one = accepting(state, 0);
            assert_eq!(one.stop(), expected, "{state:?}");
            assert_eq!(one.state, after, "{state:?}");
            let is_quiet = after == State::Stopped;
            assert_eq!(one.is_quiet(), is_quiet, "{state:?}");
        }
    }

    #[test]
    fn a_pause_is_due_when_it_ends_and_ends_with_a_connection() {
        let rows = [
            (State::PausedUntil(9), Some(4)),
            (State::PausedUntil(3), Some(0)),
            (State::Off, Some(77)),
            (SINGLE, None),
            (State::Cancelling, None),
            (State::Stopped, None),
        ];
        for (state, expected) in rows {
            assert_eq!(accepting(state, 0).due_in_ns(5, Some(77)), expected);
            assert_eq!(accepting(state, 0).is_armed(), state == SINGLE);
        }
        let mut one = accepting(State::PausedUntil(9), 0);
        one.end_pause();
        assert_eq!(one.state, State::Off);
        let mut armed = accepting(SINGLE, 0);
        armed.end_pause();
        assert_eq!(armed.state, SINGLE);
    }

    fn load(open: usize, max: usize, now_ns: u64) -> Load {
        Load { open, max, now_ns }
    }

    #[test]
    fn a_full_thread_accepts_after_some_patience_and_never_beyond_the_overflow() {
        let mut admission = Admission::new(4, [("one", usize::MAX)].into_iter());
        let full = |now_ns| load(2, 2, now_ns);
        assert!(
            admission.accepts(full(10), false, false),
            "something can be closed"
        );
        assert_eq!(admission.accepts_in_ns(full(10), false), Some(0));
        assert!(!admission.accepts(full(10), true, false));
        let left_ns = Some(FULL_PATIENCE_NS - 20);
        assert_eq!(admission.accepts_in_ns(full(30), false), left_ns);
        assert_eq!(
            admission.accepts_in_ns(full(30), true),
            Some(CACHES_LOOK_NS)
        );
        let ends_ns = 10 + FULL_PATIENCE_NS;
        assert!(!admission.accepts(full(ends_ns - 1), true, false));
        assert!(admission.accepts(full(ends_ns), true, false));
        assert!(
            !admission.accepts(full(ends_ns), true, true),
            "for caches it is longer"
        );
        assert!(admission.accepts(full(10 + CACHES_PATIENCE_NS), true, true));
        assert!(
            admission.accepts(load(1, 2, ends_ns + 1), false, false),
            "room again"
        );
        assert!(
            !admission.accepts(full(ends_ns + 2), true, false),
            "patience begins anew"
        );
        let over = load(2 + OVERFLOW_MAX, 2, 10 * ends_ns);
        assert!(!admission.accepts(over, true, false));
        assert_eq!(admission.accepts_in_ns(over, false), None);
    }

    #[test]
    fn newcomers_wait_where_none_rests_or_caches_have_what_they_need() {
        use crate::protocol::phase::Phase;
        let mut admission = Admission::new(4, [("one", usize::MAX)].into_iter());
        (0..2).for_each(|index| admission.enter(index, 0, true));
        let busy = |_: u32| None;
        let rows = [
            (load(1, 2, 5), false, Waits::No),
            (load(2, 2, 5), false, Waits::UnlessOneEnds),
            (load(1, 2, 5), true, Waits::Yes),
            (load(2, 2, 5), true, Waits::Yes),
        ];
        for (load, caches_block, expected) in rows {
            let found = admission.waits(load, caches_block, busy);
            assert_eq!(found, expected, "{load:?}, {caches_block}");
        }
        admission.rests(1, Phase::Idle);
        let rests = |_: u32| Some((Phase::Idle, 4));
        assert_eq!(admission.waits(load(2, 2, 5), false, rests), Waits::No);
    }

    #[test]
    fn what_was_decided_holds_on_while_there_is_room_and_all_is_armed() {
        let mut admission = Admission::new(4, [("one", usize::MAX)].into_iter());
        let settled = Settled {
            open: 1,
            beside_files: 9,
        };
        let rows = [
            (load(1, 2, 0), true, true),
            (load(1, 1, 0), true, false),
            (load(1, 2, 0), false, false),
            (load(2, 3, 0), true, false),
        ];
        for (load, are_armed, expected) in rows {
            admission.settle(load, 9, are_armed);
            assert_eq!(
                admission.is_settled(settled),
                expected,
                "{load:?}, {are_armed}"
            );
        }
        admission.settle(load(1, 2, 0), 8, true);
        assert!(!admission.is_settled(settled));
        admission.settle(load(1, 2, 0), 9, true);
        admission.unsettle();
        assert!(!admission.is_settled(settled));
    }
}
