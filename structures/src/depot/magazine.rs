//! Magazine: the idle indices of one thread, which puts them in and takes them out with plain loads
//! and stores.
//!
//! Other names: biased lock, Dice's asymmetric Dekker lock. The owner is inside for the length of
//! a *step*. Another thread may *visit*: it bars the owner, has the kernel fence for both of them,
//! waits for a step that is under way, and is alone then. So a visit costs a system call, and the
//! owner nothing but a flag that it sets and a flag that it reads.
//!
//! | may run beside | a step  | a visit | bar, empty | seems_empty, tally |
//! |----------------|---------|---------|------------|--------------------|
//! | a step         | no: one owner | yes | yes      | yes                |
//! | a visit        | yes     | no: the depot's lock | no: no taker is left | yes |
//!
//! Invariants
//! - DM1: the first `held` places hold idle indices. The others mean nothing.
//! - DM2: places, `held` and `reach` belong to the one who is inside: the owner in a step that did
//!   not find itself barred, or a visitor that barred it, fenced, and saw no step. The counts and
//!   what else decides about `reach` are the owner's.
//! - DM3: `held` <= `reach` <= `reach_max`: one of `PART` of all indices, and of few indices one of
//!   `PART_OF_FEW`, so that what one thread has for itself leaves the others something to share.
//! - DM4: the step that puts an index in ends with the last access to the magazine. The index may
//!   be another thread's by then, which may tear down what the index keeps alive, the magazine
//!   included.
//!
//! `reach` follows what the thread sways by. It doubles when the owner takes back what had spilled
//! from here, is halved by a visit, and begins anew when the owner has only given back for long.
//!
//! Ordering
//! - DV1 bar: a visitor bars, fences, and looks for a step; the owner begins a step, fences, and
//!   looks for the bar. `fence_seldom` on the first side and `fence_often` on the second (see
//!   `barrier`): at least one of them sees the other.
//! - DV2 leave: the store that ends a step (Release) -> the look for a step of a visitor, or of a
//!   close (Acquire): `held`, the places, the chains that the step sent to the stack, and what all
//!   holders wrote whose indices came by this magazine.
//! - DV3 end of a visit: the store that lifts the bar (Release) -> the owner's look for it
//!   (Acquire): `held`, `reach`.
//!
//! Cost: a step is some ten plain loads and stores on one or two cache lines, whatever `held` is.
//! Places beyond the first `NEAR_PLACES` are allocated when they are first needed.

use crate::barrier::{fence_often, fence_seldom};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, OnceLock, Ordering, edge, yield_now};

/// Where `reach` begins: what a thread may keep that was not yet seen to take again.
pub(super) const REACH_AT_FIRST: u32 = if cfg!(any(loom, shuttle)) { 3 } else { 16 };
/// Places that are there from the start: with the other fields four cache lines.
pub(super) const NEAR_PLACES: usize = if cfg!(any(loom, shuttle)) { 3 } else { 44 };
/// Most places that a magazine has.
const PLACES_MAX: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 1024 };
/// See DM3. The first index counts as a part.
const PART: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// The same of few, up to `REACH_AT_FIRST`. An eighth of few is less than a thread often wants at
/// once, and each spill and each fetch costs more than all steps between them. What others miss is
/// for a visit, which makes the owner keep less.
const PART_OF_FEW: u32 = 2;
/// A thread that gave back this multiple of its reach, and took nothing meanwhile, only gives back.
const GIVEN_IN_A_ROW: u64 = 4;

/// ORDER: what the owner reads it wrote itself, or DV3 has brought it.
const OWN: Ordering = Ordering::Relaxed;
const LEAVE: Ordering = edge!("magazine_leave_release", Release, Relaxed);
const WAIT: Ordering = edge!("magazine_wait_acquire", Acquire, Relaxed);
const VISITED: Ordering = edge!("magazine_visited_release", Release, Relaxed);
const LOOK: Ordering = edge!("magazine_look_acquire", Acquire, Relaxed);

/// The idle indices of one thread. See the module for what may run beside what.
///
/// In the order of C, so that a thread that holds little works on one cache line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Magazine {
    /// Whether a step is under way.
    is_entered: AtomicBool,
    held: AtomicU32,
    reach: AtomicU32,
    /// Whether the owner is to keep away: another thread visits, or the depot is closed. In another
    /// word than the flag that the owner sets just before it looks here.
    is_barred: AtomicBool,
    /// How often the owner took an index, and gave one back.
    taken: AtomicU64,
    given: AtomicU64,
    places: [AtomicU32; NEAR_PLACES],
    far_places: OnceLock<Box<[AtomicU32]>>,
    /// Times that this spilled, less those that the owner took something back.
    spills: AtomicU32,
    reach_max: u32,
    /// Both counts at the first spill after the owner had last taken.
    taken_before: AtomicU64,
    given_before: AtomicU64,
}

/// The owner's stay in its magazine; ends when it is dropped.
#[derive(Debug)]
#[must_use = "a step that ends at once did nothing"]
pub(super) struct Step<'a>(&'a Magazine);

/// The stay of another thread in a magazine; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Visit<'a>(&'a Magazine);

/// A place that is kept for the caller, and its step, which is under way.
///
/// What `commit` touches and no more, each an atomic on its own: a reference to the magazine itself
/// would have to be good until `commit` returns (DM4).
#[derive(Debug)]
#[must_use = "a step that does not end holds up visits and the close for ever"]
pub(crate) struct Reservation<'a> {
    place: &'a AtomicU32,
    held: &'a AtomicU32,
    held_after: u32,
    given: &'a AtomicU64,
    is_entered: &'a AtomicBool,
}

impl Reservation<'_> {
    /// Puts `index` in the place, counted as given back. The caller touches nothing afterwards that
    /// the index kept alive (DM4).
    #[inline(always)]
    pub(crate) fn commit(self, index: u32) {
        fill(self.place, self.held, self.held_after, index);
        add_one(self.given);
        self.is_entered.store(false, LEAVE);
    }
}

impl Magazine {
    /// An empty one, for one of the threads that share `capacity` indices.
    pub(super) fn new(capacity: u32) -> Magazine {
        let reach_max = reach_max(capacity);
        Magazine {
            is_entered: AtomicBool::new(false),
            is_barred: AtomicBool::new(false),
            held: AtomicU32::new(0),
            reach: AtomicU32::new(REACH_AT_FIRST.min(reach_max)),
            reach_max,
            taken: AtomicU64::new(0),
            given: AtomicU64::new(0),
            places: std::array::from_fn(|_| AtomicU32::new(0)),
            far_places: OnceLock::new(),
            spills: AtomicU32::new(0),
            taken_before: AtomicU64::new(0),
            given_before: AtomicU64::new(0),
        }
    }

    /// Begins a step, unless the owner is barred. Called by the owner.
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<Step<'_>> {
        // ORDER: DV1, with the fence below.
        self.is_entered.store(true, Ordering::Relaxed);
        // DV1, the owner's side, and DE1 of the depot.
        fence_often();
        let step = Step(self);
        if self.is_barred.load(LOOK) {
            return None;
        }
        Some(step)
    }

    /// Counts one that the owner took elsewhere.
    pub(super) fn count_taken(&self) {
        add_one(&self.taken);
    }

    /// Whether there was nothing here a moment ago. For any thread.
    pub(super) fn seems_empty(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// How many are here: exact when nothing moves.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// Bars the owner, waits until it is outside, and lets the caller in. `None` if the kernel
    /// refused the fence.
    pub(super) fn visit(&self) -> Option<Visit<'_>> {
        self.bar();
        let visit = Visit(self);
        fence_seldom().then(|| {
            self.wait_for_step();
            visit
        })
    }

    /// Keeps the owner away, once the caller has fenced and waited.
    pub(super) fn bar(&self) {
        // ORDER: DV1, with the fence of the caller.
        self.is_barred.store(true, Ordering::Relaxed);
    }

    /// Returns when no step is under way that may not have seen the bar.
    pub(super) fn wait_for_step(&self) {
        while self.is_entered.load(WAIT) {
            yield_now();
        }
    }

    /// Takes out all there is, for a close that has barred the owner, fenced and waited.
    pub(super) fn empty(&self) -> impl Iterator<Item = u32> {
        std::iter::from_fn(|| self.pop())
    }

    /// How many indices the owner took, and how many it gave back.
    pub(super) fn tally(&self) -> (u64, u64) {
        // Given back first: a snapshot in between may then only miss returns, not invent them.
        let given = self.given.load(Ordering::Relaxed);
        (self.taken.load(Ordering::Relaxed), given)
    }

    /// The newest. Called by the one who is inside, as are the following.
    #[inline(always)]
    fn pop(&self) -> Option<u32> {
        let top = self.held.load(OWN).checked_sub(1)?;
        let index = self.place(top)?.load(OWN);
        // ORDER: Relaxed: DV2 or DV3 publishes it.
        self.held.store(top, Ordering::Relaxed);
        Some(index)
    }

    /// A place that is there.
    #[inline(always)]
    fn place(&self, number: u32) -> Option<&AtomicU32> {
        match self.places.get(number as usize) {
            Some(place) => Some(place),
            None => self.far_places.get()?.get(number as usize - NEAR_PLACES),
        }
    }

    /// A place that is made if need be.
    fn any_place(&self, number: u32) -> &AtomicU32 {
        self.place(number).unwrap_or_else(|| {
            let far = self.reach_max as usize - NEAR_PLACES;
            let make = || (0..far).map(|_| AtomicU32::new(0)).collect();
            &self.far_places.get_or_init(make)[number as usize - NEAR_PLACES]
        })
    }
}

impl<'a> Step<'a> {
    /// The newest, counted as taken.
    #[inline(always)]
    pub(super) fn take(self) -> Option<u32> {
        let index = self.0.pop()?;
        add_one(&self.0.taken);
        Some(index)
    }

    /// Room for one more, if it is at hand.
    #[inline(always)]
    pub(super) fn reserve(self) -> Option<Reservation<'a>> {
        let magazine = self.0;
        let held = magazine.held.load(OWN);
        if held >= magazine.reach.load(OWN) {
            return None;
        }
        let place = magazine.place(held)?;
        Some(self.reservation(place, held))
    }

    /// Room for one more, by all means. `receive` is given what spills for it.
    pub(super) fn make_room(
        self,
        receive: impl FnOnce(&mut dyn Iterator<Item = u32>),
    ) -> Reservation<'a> {
        let magazine = self.0;
        if magazine.held.load(OWN) >= magazine.reach.load(OWN) {
            receive(&mut self.spill());
        }
        let held = magazine.held.load(OWN);
        debug_assert!(held < magazine.reach.load(OWN), "all is received (DM3)");
        self.reservation(magazine.any_place(held), held)
    }

    /// The step is now that of the reservation, and ends with it.
    #[inline(always)]
    fn reservation(self, place: &'a AtomicU32, held: u32) -> Reservation<'a> {
        let magazine = self.0;
        std::mem::forget(self);
        Reservation {
            place,
            held: &magazine.held,
            held_after: held + 1,
            given: &magazine.given,
            is_entered: &magazine.is_entered,
        }
    }

    /// What is too much of a full magazine: half, or nearly all if the owner only gives back.
    fn spill(&self) -> impl Iterator<Item = u32> {
        let magazine = self.0;
        let spills = magazine.spills.load(OWN);
        // ORDER: Relaxed: the owner's alone (DM2).
        magazine
            .spills
            .store(spills.saturating_add(1), Ordering::Relaxed);
        let keep = self.reach_after_spill() / 2;
        std::iter::from_fn(move || {
            let is_too_much = magazine.held.load(OWN) > keep;
            is_too_much.then(|| magazine.pop()).flatten()
        })
    }

    fn reach_after_spill(&self) -> u32 {
        let magazine = self.0;
        let reach = magazine.reach.load(OWN);
        let (taken, given) = (magazine.taken.load(OWN), magazine.given.load(OWN));
        if magazine.taken_before.load(OWN) != taken {
            // ORDER: Relaxed, here and below: the owner's alone (DM2).
            magazine.taken_before.store(taken, Ordering::Relaxed);
            magazine.given_before.store(given, Ordering::Relaxed);
            return reach;
        }
        let reach_at_first = REACH_AT_FIRST.min(reach);
        let in_a_row = given - magazine.given_before.load(OWN);
        if reach == reach_at_first || in_a_row <= GIVEN_IN_A_ROW * u64::from(reach) {
            return reach;
        }
        // ORDER: Relaxed, here and below: the owner's alone (DM2), and DV2 publishes it.
        magazine.reach.store(reach_at_first, Ordering::Relaxed);
        magazine.spills.store(0, Ordering::Relaxed);
        reach_at_first
    }

    /// Takes in what the owner has taken back from elsewhere, from the front of `indices`, as far
    /// as there is room. Reaches further from now on if anything had spilled.
    pub(super) fn refill(self, mut indices: impl Iterator<Item = u32>) {
        let magazine = self.0;
        if let Some(spills) = magazine.spills.load(OWN).checked_sub(1) {
            let reach = (2 * magazine.reach.load(OWN)).min(magazine.reach_max);
            // ORDER: Relaxed, here and below: the owner's alone, or DV2 publishes it.
            magazine.spills.store(spills, Ordering::Relaxed);
            magazine.reach.store(reach, Ordering::Relaxed);
        }
        let held = magazine.held.load(OWN);
        for number in held..magazine.reach.load(OWN) {
            let Some(index) = indices.next() else { return };
            fill(
                magazine.any_place(number),
                &magazine.held,
                number + 1,
                index,
            );
        }
    }
}

impl Drop for Step<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_entered.store(false, LEAVE);
    }
}

impl Visit<'_> {
    /// Takes out half of what is here, the newest, and the half of the reach.
    pub(super) fn take_half(&self) -> impl Iterator<Item = u32> {
        let magazine = self.0;
        let reach = magazine.reach.load(OWN);
        // ORDER: Relaxed: DV3, the end of the visit, publishes it.
        magazine.reach.store(reach.div_ceil(2), Ordering::Relaxed);
        let half = magazine.held.load(OWN).div_ceil(2);
        (0..half).map_while(|_| magazine.pop())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.is_barred.store(false, VISITED);
    }
}

/// How far a magazine reaches at most, of `capacity` indices in all.
fn reach_max(capacity: u32) -> u32 {
    let of_few = (capacity / PART_OF_FEW).min(REACH_AT_FIRST);
    (capacity / PART).max(of_few).clamp(1, PLACES_MAX)
}

#[inline(always)]
fn fill(place: &AtomicU32, held: &AtomicU32, held_after: u32, index: u32) {
    // ORDER: Relaxed: DV2, the end of the step, publishes it.
    place.store(index, Ordering::Relaxed);
    held.store(held_after, Ordering::Relaxed);
}

/// One writer, so a load and a store will do.
#[inline(always)]
fn add_one(count: &AtomicU64) {
    let before = count.load(Ordering::Relaxed);
    // ORDER: Relaxed: a count.
    count.store(before + 1, Ordering::Relaxed);
}
