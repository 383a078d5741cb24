//! Crew: worker threads that sleep when there is nothing to do, and are woken one at a time.
//!
//! Other names: Linux `sp_idle_threads` (SUNRPC service threads), leader/follower. The crew knows
//! nothing of the work: who waits says how to see whether there is some. It starts no thread
//! either; a thread joins and gets a [`Member`], and leaves by dropping it.
//!
//! Idle members are on a stack, newest first, because the newest is warm. The waker looks at the
//! top and notifies that member, but never removes it: only a member itself leaves the stack, and
//! only from the top. So a burst of wakes hits the same member, and there is no herd. Whoever takes
//! work passes the baton: if more work waits, it wakes the next one.
//!
//! | may run beside      | wake_one | wait | took_work | join, grow, drop | stop, stop_one |
//! |---------------------|----------|------|-----------|------------------|----------------|
//! | wake_one            | yes      | yes  | yes       | yes              | yes            |
//! | any other of these  | yes      | yes  | yes       | yes              | yes            |
//!
//! `wait` and `took_work` belong to the thread that has the member.
//!
//! Invariants
//! - I1: only the owner of entry `i` takes `i` off the idle stack, and only while it is the head.
//!   A buried member that wants to leave sleeps on: whoever is above it looked for work after
//!   pushing itself, so whatever the buried one was woken for is seen by that one.
//! - I2: a member is not listed while its owner is outside `wait`, panics included.
//! - I3: work that is published, and whose publisher was told `AlreadyAwake` or `Woken`, is looked
//!   for by somebody afterwards who either takes it or passes the baton.
//! - I4: entries are never freed, so a late waker may read one of a member that left. It then
//!   wakes the entry's next owner for nothing, which is harmless.
//! - I5: each request of `stop_one` is answered by the departure of one member, whatever made it
//!   leave; each departure answers at most one.
//!
//! Ordering
//! - E1 publish, look: publish work, `fence(SeqCst)` in `wake_one`, read the idle head, `looking`,
//!   `notified`. Against it: push oneself, `fence(SeqCst)` in `wait`, look for work. One of the
//!   two sees the other.
//! - E2 looking: clear `looking`, `fence(SeqCst)`, look for more work. A publisher that read
//!   `looking` before it was cleared had published before that look. Likewise for `notified`.
//! - E3 baton: take work, `fence(SeqCst)`, read the idle head: the queue may have looked empty to
//!   somebody who went idle while the work was being taken.
//! - E4 orders: `orders` (Release) -> `wait` (Acquire), read before it looks for work: who sees the
//!   stop sees the work that was published before it.
//! - E5 reset: `notified` is cleared before the look for work that decides to sleep, and a
//!   `fence(SeqCst)` comes between clearing it and testing whether one is the head: the member that
//!   was above, and left, either sees it cleared or is seen to have left.
//!
//! Everything else is relaxed: the fences order it. The wake-up itself is sticky twice over, by
//! `notified` and by the token of the thread's own `park`; a park that returns for no reason parks
//! again.
//!
//! Cost: `wake_one` is a fence and a load while nobody is idle, and two more loads while somebody
//! is already on the way; otherwise one swap and the wake-up of a thread, which is the system's
//! (1 to 15 microseconds). `took_work` is a fence and a load. Nothing grows with the number of
//! members. Joining and leaving take a lock.

use crate::stack::Stack;
use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Padded, Thread, fence, lock,
};
use crate::table::Table;
use roster::Roster;

pub use member::Member;
pub use roster::Departure;

mod member;
mod roster;

/// In `orders`: everybody leaves once there is no work left.
const STOP: u32 = 1;
/// In `orders`: at least one member is asked to leave now.
const VICTIM: u32 = 2;

/// How many members there may be, and how long the dispensable ones idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrewLimits {
    /// Members that stay however long they are idle.
    pub workers_min: u32,
    /// Members at the same time, at most.
    pub workers_max: u32,
    /// How long a member above the minimum idles before it retires. `u64::MAX`: for ever.
    pub idle_ns_max: u64,
}

/// What became of a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A sleeping member was notified.
    Woken,
    /// A member is on its way to the work already, and will pass the baton.
    AlreadyAwake,
    /// All members are busy, or there are none: see [`Crew::grow`].
    NobodyIdle,
}

/// Why [`Member::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// There may be work: try to take some, then call [`Member::took_work`] if that succeeded.
    Work,
    /// Idle for too long and not needed: drop the member.
    Retire,
    /// Asked to leave: drop the member.
    Stop,
}

/// What a crew did so far, and its size. Counters are summed when asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrewStatistics {
    /// Members now, those about to leave excluded.
    pub workers: u32,
    /// Members on the idle stack now, roughly.
    pub idle: u32,
    /// Times that a member was woken.
    pub wakes: u64,
    /// How many of these found no work.
    pub wakes_that_found_nothing: u64,
}

/// A crew of worker threads; a handle, cheap to clone. See the module's header.
///
/// A member's loop, and a producer:
///
/// ```
/// use flatpath_structures::crew::{Crew, CrewLimits, Wait};
/// use std::sync::{Arc, Mutex};
///
/// let queue = Arc::new(Mutex::new(Vec::new()));
/// let limits = CrewLimits { workers_min: 1, workers_max: 4, idle_ns_max: 5_000_000_000 };
/// let crew = Crew::new(limits);
/// let mut member = crew.join().expect("below the maximum");
/// let work = Arc::clone(&queue);
/// let worker = std::thread::spawn(move || {
///     let is_waiting = || !work.lock().unwrap().is_empty();
///     let mut sum = 0;
///     while member.wait(is_waiting) == Wait::Work {
///         let Some(item) = work.lock().unwrap().pop() else { continue };
///         member.took_work(is_waiting);
///         sum += item;
///     }
///     sum
/// });
/// queue.lock().unwrap().push(42);
/// crew.wake_one();
/// crew.stop();
/// assert_eq!(worker.join().unwrap(), 42);
/// ```
#[derive(Clone, Debug)]
pub struct Crew {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: CrewLimits,
    idle: Stack,
    /// Some member left the idle stack because it was notified, and has not taken work yet.
    looking: Padded<AtomicBool>,
    /// `STOP`, `VICTIM`. Written under the roster's lock, read without.
    orders: Padded<AtomicU32>,
    /// Whether `grow` may succeed: saves the roster's lock while the crew is full.
    may_grow: Padded<AtomicBool>,
    /// Whether there are more members than the minimum.
    has_surplus: AtomicBool,
    entries: Table<Padded<Entry>>,
    roster: Mutex<Roster>,
}

/// What a waker needs to know of a member. Outlives it: the next member takes the entry over.
#[derive(Debug)]
struct Entry {
    notified: AtomicBool,
    thread: Mutex<Option<Thread>>,
    // Written by the owner only, so that counting costs no read-modify-write.
    wakes: AtomicU64,
    wakes_that_found_nothing: AtomicU64,
}

impl Crew {
    /// A crew without members.
    ///
    /// # Panics
    /// If the minimum is above the maximum, the maximum is 0, or it is above what a stack can link.
    pub fn new(limits: CrewLimits) -> Crew {
        assert!(limits.workers_max > 0, "a crew without room for a worker");
        assert!(
            limits.workers_min <= limits.workers_max,
            "minimum above the maximum"
        );
        let shared = Shared {
            limits,
            idle: Stack::new(limits.workers_max),
            looking: Padded(AtomicBool::new(false)),
            orders: Padded(AtomicU32::new(0)),
            may_grow: Padded(AtomicBool::new(true)),
            has_surplus: AtomicBool::new(false),
            entries: Table::new(limits.workers_max, |_| Padded(Entry::new())),
            roster: Mutex::new(Roster::default()),
        };
        Crew {
            shared: Arc::new(shared),
        }
    }

    /// Wakes one idle member, unless one is on its way. Call it after publishing work; once for a
    /// batch is enough, because who takes work passes the baton.
    #[inline]
    pub fn wake_one(&self) -> Wake {
        // ORDER: E1. Between the caller's publication and the look at the idle head.
        fence(Ordering::SeqCst);
        self.shared.wake_head()
    }

    /// Joins the crew; `None` when it is full or stopping. The member may be made on one thread and
    /// moved to another before it waits.
    pub fn join(&self) -> Option<Member> {
        self.enlist(Newcomer::Joins)
    }

    /// Like [`Crew::join`], for whoever starts a thread because [`Crew::wake_one`] found nobody
    /// idle: `None` also while an earlier member of `grow` has not yet arrived at its first
    /// [`Member::wait`] or [`Member::took_work`]. One load when it is `None`, as a rule.
    #[inline]
    pub fn grow(&self) -> Option<Member> {
        if !self.may_grow() {
            return None;
        }
        self.enlist(Newcomer::Starts)
    }

    /// Whether [`Crew::grow`] might succeed. One load; a hint, except for who was told
    /// [`Wake::NobodyIdle`]: if that one sees no room and there is some, a member has given up its
    /// place since, and sees the work that was published before when it looks for some after its
    /// drop.
    #[inline]
    pub fn may_grow(&self) -> bool {
        self.shared.may_grow.load(Ordering::Relaxed)
    }

    fn enlist(&self, newcomer: Newcomer) -> Option<Member> {
        let index = lock(&self.shared.roster).enlist(&self.shared, newcomer)?;
        Some(Member::new(self.clone(), index, newcomer))
    }

    /// Members finish the work there is and leave; nobody joins any more. Does not wait.
    ///
    /// Work that is published before is done first; work published afterwards may be left over.
    pub fn stop(&self) {
        lock(&self.shared.roster).stop(&self.shared);
        self.shared.spread_orders();
    }

    /// Asks one member to leave, even below the minimum; busy ones leave at their next
    /// [`Member::wait`]. `None` if as many as there are were asked already. Does not wait; the
    /// [`Departure`] can.
    pub fn stop_one(&self) -> Option<Departure> {
        let number = lock(&self.shared.roster).request(&self.shared)?;
        self.shared.spread_orders();
        Some(Departure::new(self.clone(), number))
    }

    /// Waits until all members are gone, at most `timeout_ns`. Returns whether they are.
    pub fn wait_empty(&self, timeout_ns: u64) -> bool {
        roster::wait_until(&self.shared.roster, timeout_ns, Roster::is_empty)
    }

    /// Members now, those about to leave excluded. Takes a lock.
    pub fn workers(&self) -> u32 {
        lock(&self.shared.roster).workers()
    }

    /// Whether a member was on the idle stack at this moment. One load.
    pub fn has_idle(&self) -> bool {
        self.shared.idle.peek().is_some()
    }

    /// Members on the idle stack, roughly. O(members); for display.
    pub fn idle(&self) -> u32 {
        self.statistics().idle
    }

    /// Sizes and counters. O(members); for display.
    pub fn statistics(&self) -> CrewStatistics {
        let (workers, touched) = {
            let roster = lock(&self.shared.roster);
            (roster.workers(), roster.touched())
        };
        let mut sum = CrewStatistics {
            workers,
            ..CrewStatistics::default()
        };
        for index in 0..touched {
            let entry = self.shared.entries.at(index);
            sum.idle += u32::from(self.shared.idle.is_listed(index));
            sum.wakes += entry.wakes.load(Ordering::Relaxed);
            sum.wakes_that_found_nothing += entry.wakes_that_found_nothing.load(Ordering::Relaxed);
        }
        sum
    }
}

impl Shared {
    /// Notifies the newest idle member. The caller made its fence.
    #[inline]
    fn wake_head(&self) -> Wake {
        let Some(head) = self.idle.peek() else {
            return Wake::NobodyIdle;
        };
        // ORDER: E2. Relaxed: the fence before is what makes skipping safe.
        if self.looking.load(Ordering::Relaxed) {
            return Wake::AlreadyAwake;
        }
        let entry = self.entries.at(head);
        // ORDER: E2. The load saves the swap of a line that the head is about to write.
        if entry.notified.load(Ordering::Relaxed) || entry.notified.swap(true, Ordering::Relaxed) {
            return Wake::AlreadyAwake;
        }
        entry.unpark();
        Wake::Woken
    }

    /// After writing orders: wakes the head, which leaves or passes them on.
    fn spread_orders(&self) {
        // ORDER: E1, with orders for work.
        fence(Ordering::SeqCst);
        self.wake_head();
    }
}

impl Entry {
    fn new() -> Entry {
        Entry {
            notified: AtomicBool::new(false),
            thread: Mutex::new(None),
            wakes: AtomicU64::new(0),
            wakes_that_found_nothing: AtomicU64::new(0),
        }
    }

    #[cold]
    fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newcomer {
    Joins,
    Starts,
}

#[cfg(test)]
mod tests;
