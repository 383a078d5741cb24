//! Concurrency limit: how many jobs may be inside at a time, so that slow ones leave workers to
//! others. A job that finds it full waits until another one leaves. Without a lock and a clock.
//!
//! Other names: semaphore, bulkhead. There are two kinds of it, and a job enters them in a chain:
//!
//! - that of the listeners of a server, here as [`Listeners`], when it is dispatched. Each listener
//!   is guaranteed a few workers, and the rest is common: a listener with more jobs inside than it
//!   is guaranteed takes the others from the common rest. In a server with one listener only what
//!   was asked for it bounds it. Some jobs of a listener may have a part of the workers
//!   ([`WorkersPart`]): the part is a member of its own then, and stays within what was asked for
//!   its listener. Each kind of work that must not wait for handlers is a part too, which is kept
//!   whatever was asked for a listener, and is one for all of them ([`PartSize::Kept`]).
//! - that of a mount, or of anything else that may block (`blocking.rs`), while a worker runs it.
//!   A job that has to wait there has left that of its listener, because it holds no worker; when
//!   it continues, it is inside again at once. So a listener may be beyond its bound by such jobs
//!   for a while, and none of its others enters meanwhile.
//!
//! Invariants
//! - K1: `common_used` is the sum over all members of what is inside beyond the guarantee. Without
//!   [`ConcurrencyLimit::enter_beyond`] it is at most `common`.
//! - K2: a job waits only if its member may not have one more of its rank inside: another one is
//!   inside, and the caller asks for the next when that leaves.
//! - K3: jobs of one member and one rank enter in the order in which they came to wait.
//! - K4: the jobs of a listener and of its parts are together at most as many as were asked for,
//!   without [`ConcurrencyLimit::enter_beyond`].
//!
//! Jobs that come after others ([`Rank`]) leave half of the common rest, of a bound of their
//! member's and of what it is guaranteed to those that do not, and of all workers an
//! [`OTHERS_PART`]: a crowd of one address does not make others wait for a worker, however long its
//! handlers wait. Which jobs those are the dispatcher decides, by what their listener may have in
//! all ([`ConcurrencyLimit::most`]): a listener beside others has less than all workers.
//!
//! The bound of what waits is the caller's: that of the jobs in flight, or one of its own.
//!
//! Cost: entering and leaving are O(1); `next` walks over the members, only while jobs wait.

use std::sync::atomic::{AtomicU32, Ordering};

use flatpath_structures::lock::{Guard, Lock};

use crate::limits::{KEPT_PART, LISTENER_PATIENCE_NS, OTHERS_PART};
use crate::observe::episode::Episode;
use crate::server::options::{PartSize, WorkersPart};
use crate::workers::{Rank, Ranked};

/// See the module. `T` is a job that waits.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit<T> {
    members: Vec<Member<T>>,
    common: u32,
    common_used: u32,
    /// The most jobs of a member that may come after others.
    after_others_max: u32,
    /// Jobs that wait, of all members.
    waiting: usize,
    /// The member whose turn it is when another one leaves.
    turn: usize,
}

#[derive(Debug)]
struct Member<T> {
    /// What is left to it of what was asked for: its parts have the rest.
    max: u32,
    guaranteed: u32,
    inside: u32,
    /// What was asked for.
    asked: u32,
    /// Jobs inside its parts.
    in_parts: u32,
    /// The member that it is a part of.
    part_of: Option<usize>,
    waiting: Ranked<T>,
}

impl<T> Member<T> {
    fn new(guaranteed: u32, max: u32, part_of: Option<usize>) -> Member<T> {
        Member {
            max,
            guaranteed,
            inside: 0,
            asked: max,
            in_parts: 0,
            part_of,
            waiting: Ranked::new(),
        }
    }

    fn divide(&mut self) {
        self.max = self.asked.saturating_sub(self.in_parts);
    }
}

impl<T> ConcurrencyLimit<T> {
    /// For one member, with this bound.
    pub(crate) fn alone(max: u32) -> ConcurrencyLimit<T> {
        ConcurrencyLimit::of(vec![Member::new(u32::MAX, max, None)], 0)
    }

    /// For members that divide `places`: a quarter is guaranteed to all of them together, and one
    /// place to each at least. A single one may have them all, and more.
    ///
    /// Of those that have parts, what these have of their own is taken off before, half of the
    /// places at most: where more is asked for, each has less. A part that is kept is guaranteed a
    /// [`KEPT_PART`], any other one place.
    pub(crate) fn with_parts(places: u32, parts: &[&[WorkersPart]]) -> ConcurrencyLimit<T> {
        ConcurrencyLimit {
            after_others_max: places - places / OTHERS_PART,
            ..ConcurrencyLimit::of_parts(places, parts)
        }
    }

    fn of_parts(places: u32, parts: &[&[WorkersPart]]) -> ConcurrencyLimit<T> {
        let count = small(parts.len()).max(1);
        let all_parts = || parts.iter().flat_map(|parts| parts.iter());
        if count == 1 && all_parts().next().is_none() {
            return ConcurrencyLimit::alone(u32::MAX);
        }
        let asked: u32 = all_parts().filter_map(WorkersPart::own).sum();
        let own = |asked_by_one: u32| match asked <= places / 2 {
            true => asked_by_one,
            false => (asked_by_one * (places / 2) / asked).max(1),
        };
        let rest = places
            - all_parts()
                .filter_map(WorkersPart::own)
                .map(own)
                .sum::<u32>()
                .min(places);
        let guaranteed = (rest / 4 / count).max(1);
        let mut members: Vec<Member<T>> = (0..count)
            .map(|_| Member::new(guaranteed, u32::MAX, None))
            .collect();
        let mut kept = guaranteed.saturating_mul(count);
        for (of, part, member) in numbered(places, parts) {
            // One that is kept may be there already, for another listener.
            if member < members.len() {
                continue;
            }
            members.push(match part.size {
                PartSize::Own(asked) => {
                    let own = own(asked.max(1));
                    Member::new(own, own, Some(of))
                }
                PartSize::Common => {
                    kept += 1;
                    Member::new(1, u32::MAX, Some(of))
                }
                PartSize::Kept => {
                    let own = (places / KEPT_PART).max(1);
                    kept += own;
                    Member::new(own, u32::MAX, None)
                }
            });
        }
        ConcurrencyLimit::of(members, rest.saturating_sub(kept))
    }

    fn of(members: Vec<Member<T>>, common: u32) -> ConcurrencyLimit<T> {
        ConcurrencyLimit {
            members,
            common,
            common_used: 0,
            after_others_max: u32::MAX,
            waiting: 0,
            turn: 0,
        }
    }

    /// The bound of a member with its parts from now on. A job that may enter only now does so when
    /// the next leaves (K2).
    pub(crate) fn set_max(&mut self, member: usize, max: u32) {
        self.members[member].asked = max;
        self.members[member].divide();
    }

    /// How many jobs of a member may be inside while no other one has more than it is guaranteed.
    fn most(&self, member: usize) -> u32 {
        let Member {
            max, guaranteed, ..
        } = self.members[member];
        max.min(guaranteed.saturating_add(self.common))
    }

    fn may_enter(&self, member: usize, rank: Rank) -> bool {
        let part = |whole: u32| match rank {
            Rank::Next => whole,
            Rank::AfterOthers => whole.div_ceil(2).min(self.after_others_max),
        };
        let Member {
            max,
            guaranteed,
            inside,
            ..
        } = self.members[member];
        inside < part(max) && (inside < part(guaranteed) || self.common_used < part(self.common))
    }

    /// The same for a member that may be a part.
    fn may_enter_any(&self, member: usize, rank: Rank) -> bool {
        let has_room = |of: usize| self.members[of].inside < self.members[of].max;
        self.may_enter(member, rank) && self.members[member].part_of.is_none_or(has_room)
    }

    /// A job enters, if it may. Its member is no part.
    #[inline]
    pub(crate) fn enter(&mut self, member: usize, rank: Rank) -> bool {
        let may = self.may_enter(member, rank);
        if may {
            self.enters(member);
        }
        may
    }

    /// The same for a member that may be a part.
    pub(crate) fn enter_any(&mut self, member: usize, rank: Rank) -> bool {
        let may = self.may_enter_any(member, rank);
        if may {
            self.enter_beyond(member);
        }
        may
    }

    fn enters(&mut self, member: usize) {
        let Member {
            inside, guaranteed, ..
        } = &mut self.members[member];
        self.common_used += u32::from(*inside >= *guaranteed);
        *inside += 1;
    }

    /// A job enters, whatever the bound.
    pub(crate) fn enter_beyond(&mut self, member: usize) {
        self.enters(member);
        if let Some(of) = self.members[member].part_of {
            self.members[of].in_parts += 1;
            self.members[of].divide();
        }
    }

    /// A job that may not enter waits for that, after those of its member and rank.
    pub(crate) fn wait(&mut self, member: usize, job: T, rank: Rank) {
        let may_enter = self.may_enter_any(member, rank);
        debug_assert!(!may_enter, "K2: a job waits that may enter");
        self.members[member].waiting.push(job, rank);
        self.waiting += 1;
    }

    /// A job leaves. Ask for the [`next`](ConcurrencyLimit::next) until there is none. Its member
    /// is no part.
    #[inline]
    pub(crate) fn leave(&mut self, member: usize) {
        let Member {
            inside, guaranteed, ..
        } = &mut self.members[member];
        debug_assert!(*inside > 0, "K1: more jobs left than entered");
        *inside -= 1;
        self.common_used -= u32::from(*inside >= *guaranteed);
    }

    /// The same for a member that may be a part.
    pub(crate) fn leave_any(&mut self, member: usize) {
        self.leave(member);
        if let Some(of) = self.members[member].part_of {
            self.members[of].in_parts -= 1;
            self.members[of].divide();
        }
    }

    /// The next job that may enter, which is inside then. Members take turns.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.waiting == 0 {
            return None;
        }
        let count = self.members.len();
        let mut in_turn = (self.turn..self.turn + count).map(|at| at % count);
        let (member, job) = in_turn.find_map(|at| {
            let ranks = [Rank::Next, Rank::AfterOthers];
            let may_enter = ranks.map(|rank| self.may_enter_any(at, rank));
            let waiting = &mut self.members[at].waiting;
            Some((at, waiting.pop(|rank| may_enter[rank as usize])?))
        })?;
        self.turn = member + 1;
        self.enter_beyond(member);
        self.waiting -= 1;
        Some(job)
    }

    /// Takes the oldest jobs of a member, of each rank, as long as they are `wanted`; they do not
    /// enter.
    fn take_oldest(&mut self, member: usize, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let taken = self.members[member].waiting.take_oldest(wanted);
        self.waiting -= taken.len();
        taken
    }

    /// Takes the jobs that wait and are `wanted`, each member's oldest first; they do not enter.
    pub(crate) fn take_waiting(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let members = self.members.iter_mut();
        let taken: Vec<T> = members
            .flat_map(|member| member.waiting.take(&wanted))
            .collect();
        self.waiting -= taken.len();
        taken
    }

    pub(crate) fn inside(&self, member: usize) -> u32 {
        self.members[member].inside
    }

    /// Jobs that wait, of all members.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The jobs of a member that wait.
    pub(crate) fn waiting_of(&self, member: usize) -> &Ranked<T> {
        &self.members[member].waiting
    }
}

/// The concurrency limit of the listeners of a server and of their parts. Jobs are the indices of
/// their places in the table of `workers.rs`, where those lie that wait.
///
/// Any thread may call any of it: everything is under one lock, for some ten nanoseconds.
#[derive(Debug)]
pub(crate) struct Listeners {
    limit: Lock<ConcurrencyLimit<Waiting>>,
    /// Jobs that wait, for those that only want to know whether there are any.
    waiting: AtomicU32,
    /// Of each member: its jobs waited for long.
    waits: Box<[Episode]>,
    /// Of each listener: the members that its parts are.
    parts: Box<[Box<[usize]>]>,
}

#[derive(Debug)]
struct Waiting {
    index: u32,
    since_ns: u64,
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The parts of listeners, in a server with `workers` workers, each with its listener and the
/// number of its member: the listeners come first, then the parts of the first, and so on, of those
/// that are the same only one.
pub(crate) fn numbered<'a>(
    workers: u32,
    parts: &[&'a [WorkersPart]],
) -> impl Iterator<Item = (usize, &'a WorkersPart, usize)> {
    let mut known: Vec<&WorkersPart> = Vec::new();
    let first = parts.len();
    let of_listeners = parts.iter().enumerate();
    let all: Vec<_> = of_listeners
        .flat_map(|(of, parts)| parts.iter().map(move |part| (of, part)))
        .collect();
    all.into_iter().map(move |(of, part)| {
        let same = known
            .iter()
            .position(|known| known.is_same_kept(part, workers));
        let at = same.unwrap_or_else(|| {
            known.push(part);
            known.len() - 1
        });
        (of, part, first + at)
    })
}

/// A member whose jobs wait for long, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LongWait {
    pub(crate) member: usize,
    pub(crate) waiting: usize,
    pub(crate) inside: u32,
}

impl Listeners {
    /// For listeners with these parts: the members are the listeners, by their numbers, then the
    /// parts of the first, and so on.
    pub(crate) fn new(workers_max: u32, parts: &[&[WorkersPart]]) -> Listeners {
        let limit = ConcurrencyLimit::with_parts(workers_max, parts);
        let of_listener = |listener| {
            let numbered = numbered(workers_max, parts).filter(move |(of, ..)| *of == listener);
            numbered.map(|(.., member)| member).collect()
        };
        Listeners {
            parts: (0..parts.len()).map(of_listener).collect(),
            waits: limit.members.iter().map(|_| Episode::new()).collect(),
            limit: Lock::new(limit),
            waiting: AtomicU32::new(0),
        }
    }

    /// The member that a part of a listener is, if the listener has it.
    pub(crate) fn member_of_part(&self, listener: usize, part: usize) -> Option<usize> {
        self.parts.get(listener)?.get(part).copied()
    }

    /// The listener and the part that a member is first known as; `None` for a listener itself.
    pub(crate) fn part_of_member(&self, member: usize) -> Option<(usize, usize)> {
        let listeners = self.parts.iter().enumerate();
        { listeners }.find_map(|(listener, parts)| {
            let part = parts.iter().position(|it| *it == member)?;
            Some((listener, part))
        })
    }

    /// The most workers for a listener, if there is such a bound; 0 is as 1.
    pub(crate) fn set_max(&self, listener: usize, max: Option<u32>) {
        let max = max.unwrap_or(u32::MAX).max(1);
        self.limit.lock().set_max(listener, max);
    }

    /// The most jobs of a listener that may be inside; `None` where it was bound to fewer than have
    /// an [`OTHERS_PART`].
    pub(crate) fn most(&self, listener: usize) -> Option<u32> {
        let limit = self.limit.lock();
        let is_bound = limit.members[listener].asked < OTHERS_PART;
        (!is_bound).then(|| limit.most(listener))
    }

    /// A job enters; or it waits where it lies, and `waits` is called before any other thread can
    /// find it: then false. Its member is no part.
    #[inline]
    pub(crate) fn enter(
        &self,
        (listener, rank): (usize, Rank),
        job: (u32, u64),
        waits: impl FnOnce(),
    ) -> bool {
        let mut limit = self.limit.lock();
        let enters = limit.enter(listener, rank);
        if !enters {
            self.wait(&mut limit, (listener, rank), job, waits);
        }
        enters
    }

    /// The same for a member that may be a part.
    pub(crate) fn enter_any(
        &self,
        (member, rank): (usize, Rank),
        job: (u32, u64),
        waits: impl FnOnce(),
    ) -> bool {
        let mut limit = self.limit.lock();
        let enters = limit.enter_any(member, rank);
        if !enters {
            self.wait(&mut limit, (member, rank), job, waits);
        }
        enters
    }

    #[inline]
    fn wait(
        &self,
        limit: &mut ConcurrencyLimit<Waiting>,
        (member, rank): (usize, Rank),
        (index, since_ns): (u32, u64),
        waits: impl FnOnce(),
    ) {
        waits();
        limit.wait(member, Waiting { index, since_ns }, rank);
        self.note_waiting(limit);
    }

    /// A job that was parked continues.
    pub(crate) fn enter_beyond(&self, member: usize) {
        self.limit.lock().enter_beyond(member);
    }

    /// A job leaves: `enters` is called with each that enters instead. Whether any does. Its member
    /// is no part.
    #[inline]
    pub(crate) fn leave(&self, listener: usize, enters: impl Fn(u32)) -> bool {
        let mut limit = self.limit.lock();
        limit.leave(listener);
        self.let_next_in(limit, enters)
    }

    /// The same for a member that may be a part.
    pub(crate) fn leave_any(&self, member: usize, enters: impl Fn(u32)) -> bool {
        let mut limit = self.limit.lock();
        limit.leave_any(member);
        self.let_next_in(limit, enters)
    }

    #[inline]
    fn let_next_in<'a>(
        &'a self,
        mut limit: Guard<'a, ConcurrencyLimit<Waiting>>,
        enters: impl Fn(u32),
    ) -> bool {
        let mut any = false;
        while let Some(next) = limit.next() {
            self.note_waiting(&limit);
            drop(limit);
            enters(next.index);
            any = true;
            limit = self.limit.lock();
        }
        any
    }

    /// Takes the jobs that wait and whose index is `wanted`: they wait no more, and are not inside.
    pub(crate) fn take_waiting(&self, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut limit = self.limit.lock();
        let taken = limit.take_waiting(|waiting| wanted(waiting.index));
        self.note_waiting(&limit);
        taken.into_iter().map(|job| job.index).collect()
    }

    /// The same for the oldest of one member, up to the first that is not wanted: O(1) for each.
    pub(crate) fn take_oldest(&self, member: usize, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut limit = self.limit.lock();
        let taken = limit.take_oldest(member, |waiting| wanted(waiting.index));
        self.note_waiting(&limit);
        taken.into_iter().map(|job| job.index).collect()
    }

    /// Jobs that wait now. One load.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        // ORDER: Relaxed: the lock orders what is counted, and no thread sleeps on this.
        self.waiting.load(Ordering::Relaxed)
    }

    fn note_waiting(&self, limit: &ConcurrencyLimit<Waiting>) {
        // ORDER: Relaxed: see `waiting`.
        self.waiting
            .store(small(limit.waiting()), Ordering::Relaxed);
    }

    /// The members whose oldest job has waited for [`LISTENER_PATIENCE_NS`], each once for an
    /// [`Episode`] of such waits.
    pub(crate) fn long_waits(&self, now_ns: u64) -> Vec<LongWait> {
        let limit = self.limit.lock();
        let waits = self.waits.iter().enumerate().filter_map(|(at, episode)| {
            let waiting = limit.waiting_of(at);
            let since_ns = waiting.fronts().map(|job| job.since_ns).min()?;
            let is_long = now_ns >= since_ns.saturating_add(LISTENER_PATIENCE_NS);
            (is_long && episode.begins_at(now_ns)).then(|| LongWait {
                member: at,
                waiting: waiting.len(),
                inside: limit.inside(at),
            })
        });
        waits.collect()
    }
}

#[cfg(test)]
mod tests;
