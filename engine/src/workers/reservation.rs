//! Reservations: how many jobs of each listener of one network thread are in flight, and how many
//! of these last.
//!
//! A job *lasts* when its client decides how long: a stream that is read slowly, an upload that
//! comes slowly. It keeps its place while it rests between two runs, so places that long-lived jobs
//! may have are bounded: one in [`SHORT_PART`] is left to requests that end when their worker has
//! an answer. Thousands of slow clients then do not make the others wait.
//!
//! Places for jobs of any kind leave an [`OTHERS_PART`] to addresses that have no more than their
//! share of the jobs ([`Reservations::reserve_last`]): an address whose jobs all wait for workers
//! keeps no other one from having a job.
//!
//! Of the places for what lasts an address has its share, and one that has little beside others
//! gets one of a reserve (`admission/address_limit.rs`), which is of those that are left to short
//! requests. Those that pay for it pay in the same turn (`admission/long_lived.rs`).
//!
//! | may run beside | reserve, lasts | drop of a reservation |
//! |----------------|----------------|-----------------------|
//! | both           | one thread     | any thread            |
//!
//! Invariants
//! - At most `long_lived_max` reservations last, and those of the reserve beside them.
//!
//! Ordering: relaxed. The counts order nothing; only one thread adds, so a bound holds exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::admission::address_limit::{AddressLimit, Cells};
use crate::limits::{NEWCOMERS_PART, OTHERS_PART, SHORT_PART};

/// One of the in-flight places of a network thread, given back when dropped, wherever that is.
pub(crate) struct Reservation {
    counts: Arc<Counts>,
    listener: usize,
    /// It lasts, for the connection at this place of the table.
    lasts: Option<u32>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.counts.by_listener[self.listener].fetch_sub(1, Ordering::Relaxed);
        if let Some(index) = self.lasts {
            self.counts.long_lived.fetch_sub(1, Ordering::Relaxed);
            self.counts.by_address.give(index as usize, 1);
        }
    }
}

impl Reservation {
    /// Whether, but for this one, at most half as many jobs last for the address of its connection
    /// as for one on average.
    pub(crate) fn is_favoured(&self, cells: Cells) -> bool {
        let own = u32::from(self.lasts.is_some());
        self.counts.by_address.has_little(cells, own)
    }
}

struct Counts {
    by_listener: Box<[AtomicUsize]>,
    long_lived: AtomicUsize,
    /// Those that last by address, and by the place of their connection.
    by_address: AddressLimit,
}

/// The places of one network thread.
pub(super) struct Reservations {
    counts: Arc<Counts>,
    in_flight_max: usize,
    /// The last of them, for addresses with no more than their share.
    for_others: usize,
    /// Places that each listener has for itself.
    kept_for_each: usize,
    long_lived_max: usize,
}

impl Reservations {
    /// For `in_flight_max` jobs, of connections with `places` in their table.
    pub(super) fn new(in_flight_max: usize, listeners: usize, places: usize) -> Reservations {
        let kept_for_each = in_flight_max / 4 / listeners;
        // Of what one listener can have, so that its short jobs have the rest.
        let most = in_flight_max - kept_for_each * (listeners - 1);
        let long_lived_max = (most - most / SHORT_PART).max(1);
        let reserve = (long_lived_max / NEWCOMERS_PART).max(1);
        let reserve = reserve.min(most - long_lived_max);
        Reservations {
            counts: Arc::new(Counts {
                by_listener: (0..listeners).map(|_| AtomicUsize::new(0)).collect(),
                long_lived: AtomicUsize::new(0),
                by_address: AddressLimit::new(long_lived_max, 0, places).with_reserve(reserve),
            }),
            in_flight_max,
            for_others: in_flight_max / OTHERS_PART as usize,
            kept_for_each,
            long_lived_max,
        }
    }

    /// Takes a place for a listener, if one is left to it but for the last ones: those that are
    /// kept for the other listeners and not in use are not.
    #[inline]
    pub(super) fn reserve(&self, listener: u16) -> Option<Reservation> {
        self.reserve_beside(listener, self.for_others)
    }

    /// The same of all places, for an address that has no more than its share of the jobs.
    #[cold]
    pub(super) fn reserve_last(&self, listener: u16) -> Option<Reservation> {
        self.reserve_beside(listener, 0)
    }

    #[inline]
    fn reserve_beside(&self, listener: u16, left: usize) -> Option<Reservation> {
        let listener = usize::from(listener);
        let is_free = match &*self.counts.by_listener {
            [alone] => alone.load(Ordering::Relaxed) < self.in_flight_max - left,
            several => {
                let own = several[listener].load(Ordering::Relaxed);
                own < self.kept_for_each || self.room_beside(self.kept_for_each) > left
            }
        };
        is_free.then(|| {
            self.counts.by_listener[listener].fetch_add(1, Ordering::Relaxed);
            Reservation {
                counts: Arc::clone(&self.counts),
                listener,
                lasts: None,
            }
        })
    }

    /// Counts a reservation among those that last, if there may be one more. True: it does.
    pub(super) fn lasts(&self, reservation: &mut Reservation, index: u32) -> bool {
        if reservation.lasts.is_none() && self.may_last(index) {
            self.counts.long_lived.fetch_add(1, Ordering::Relaxed);
            self.counts.by_address.take(index as usize, 1);
            reservation.lasts = Some(index);
        }
        reservation.lasts.is_some()
    }

    fn may_last(&self, index: u32) -> bool {
        let (long_lived, by_address) = (self.long_lived(), &self.counts.by_address);
        let (cells, _) = by_address.at(index as usize);
        let bound = by_address.bound_for(cells, 1, long_lived);
        bound.is_some_and(|bound| long_lived < bound)
    }

    fn long_lived(&self) -> usize {
        self.counts.long_lived.load(Ordering::Relaxed)
    }

    /// How many long-lived jobs others have to give up.
    pub(super) fn overdrawn(&self) -> usize {
        self.counts.by_address.overdrawn(self.long_lived())
    }

    /// How many last for the connection at a place.
    pub(super) fn long_lived_of(&self, index: u32) -> usize {
        self.counts.by_address.at(index as usize).1 as usize
    }

    /// The address of the connection at a place is counted at `cells` from now on.
    pub(super) fn name(&self, index: u32, cells: Cells) {
        self.counts.by_address.name(index as usize, cells);
    }

    /// Whether more last for an address than for one on average.
    pub(super) fn pays(&self, cells: Cells) -> bool {
        self.counts.by_address.is_above_average(cells)
    }

    /// Places that are left, those included that are kept for one listener.
    pub(super) fn room(&self) -> usize {
        self.room_beside(0)
    }

    /// How many more jobs may last, at most.
    pub(super) fn long_lived_room(&self) -> usize {
        self.long_lived_max.saturating_sub(self.long_lived())
    }

    /// Places that are left when each listener keeps `kept`.
    fn room_beside(&self, kept: usize) -> usize {
        let counts = self.counts.by_listener.iter();
        let taken = counts.map(|count| count.load(Ordering::Relaxed).max(kept));
        self.in_flight_max.saturating_sub(taken.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All reservations that there are room for.
    fn all_of(places: &Reservations) -> Vec<Reservation> {
        std::iter::from_fn(|| places.reserve_last(0)).collect()
    }

    #[test]
    fn the_last_places_are_for_those_with_no_more_than_their_share() {
        for (in_flight_max, listeners, most) in [(64, 1, 60), (15, 1, 15), (128, 4, 128 - 24 - 8)] {
            let places = Reservations::new(in_flight_max, listeners, 1);
            let all: Vec<_> = std::iter::from_fn(|| places.reserve(0)).collect();
            assert_eq!(all.len(), most);
            let last = all_of(&places);
            let kept = in_flight_max / 4 / listeners * (listeners - 1);
            assert_eq!(last.len() + most, in_flight_max - kept);
            assert!(places.reserve_last(0).is_none());
        }
    }

    #[test]
    fn long_lived_jobs_leave_places_to_short_ones() {
        let places = Reservations::new(8, 1, 1);
        let mut all = all_of(&places);
        assert_eq!((all.len(), places.room()), (8, 0));
        let long_lived = all
            .iter_mut()
            .filter_map(|it| places.lasts(it, 0).then_some(()))
            .count();
        assert_eq!(
            (long_lived, places.long_lived_room()),
            (6, 0),
            "a quarter is left"
        );
        assert!(places.lasts(&mut all[0], 0), "asked again, it counts once");
        all.truncate(5);
        assert_eq!(places.long_lived_room(), 1);
        drop(all);
        assert_eq!((places.room(), places.long_lived_room()), (8, 6));
    }

    #[test]
    fn an_address_with_less_than_its_share_is_served_where_another_has_all() {
        let places = Reservations::new(64, 1, 4);
        let [one, other] = Cells::apart(2)[..] else {
            unreachable!("two were asked for")
        };
        places.name(0, one);
        places.name(1, other);
        let begin = |index| {
            let mut job = places.reserve(0).expect("there are places");
            places.lasts(&mut job, index).then_some(job)
        };
        let mut all: Vec<Reservation> = std::iter::from_fn(|| begin(0)).collect();
        assert_eq!((all.len(), places.overdrawn()), (48, 0), "alone it has all");
        assert_eq!((places.long_lived_of(0), places.long_lived_of(1)), (48, 0));
        assert!(!places.pays(one));

        let granted: Vec<Reservation> = std::iter::from_fn(|| begin(1)).collect();
        assert_eq!(
            (granted.len(), places.overdrawn()),
            (6, 3),
            "an eighth more, of which a half is paid for"
        );
        assert!(places.pays(one) && !places.pays(other));
        all.truncate(48 - 12);
        assert!(begin(0).is_none(), "it has its share");
        assert!(begin(1).is_some());
        all.truncate(6);
        assert!(!places.pays(one), "they have the same");
        drop((all, granted));
        assert_eq!((places.long_lived_of(0), places.long_lived_room()), (0, 48));
    }

    #[test]
    fn a_newcomer_is_served_where_many_addresses_have_all_and_none_its_share() {
        let places = Reservations::new(64, 1, 10);
        let all_cells = Cells::apart(10);
        for (index, cells) in (0..).zip(&all_cells) {
            places.name(index, *cells);
        }
        let begin = |index| {
            let mut job = places.reserve(0).expect("there are places");
            places.lasts(&mut job, index).then_some(job)
        };
        // Eight of them have six each, but for one that has four and one that has eight.
        let have = [6, 6, 6, 6, 6, 6, 4, 8];
        let each = (0..).zip(have);
        let all: Vec<Reservation> = each
            .flat_map(|(index, count)| (0..count).filter_map(move |_| begin(index)))
            .collect();
        assert_eq!((all.len(), places.long_lived_room()), (48, 0));
        for (index, count) in (0..).zip(have) {
            assert!(begin(index).is_none(), "it has more than half of six");
            let cells = all_cells[index as usize];
            assert_eq!(places.pays(cells), count > 6, "{count}");
        }
        let newcomer: Vec<Reservation> = std::iter::from_fn(|| begin(8)).collect();
        assert_eq!(newcomer.len(), 3, "half of what one has");
        assert_eq!(places.overdrawn(), 0, "it may end soon");
        let other = begin(9).expect("another one has some, too");
        assert_eq!(places.overdrawn(), 1);
        let favoured = |job: &Reservation, index: usize| job.is_favoured(all_cells[index]);
        assert!(favoured(&other, 9) && favoured(&newcomer[0], 8) && !favoured(&all[0], 0));
    }

    #[test]
    fn long_lived_jobs_of_one_listener_leave_places_to_its_short_ones() {
        // Each of four listeners has eight places for itself.
        let places = Reservations::new(128, 4, 1);
        let mut jobs = all_of(&places);
        assert_eq!(jobs.len(), 128 - 24);
        let last = |job: &mut Reservation| places.lasts(job, 0);
        let long_lived = jobs.iter_mut().filter_map(|job| last(job).then_some(()));
        assert_eq!(long_lived.count(), 104 - 26, "a quarter is left");
    }

    #[test]
    fn peers_without_addresses_share_all_and_get_nothing_beyond() {
        let places = Reservations::new(64, 1, 1);
        places.name(0, Cells::NONE);
        let mut jobs = all_of(&places);
        let last = |job: &mut Reservation| places.lasts(job, 0);
        assert_eq!(
            jobs.iter_mut()
                .filter_map(|job| last(job).then_some(()))
                .count(),
            48
        );
    }

    #[test]
    fn one_place_may_last() {
        let places = Reservations::new(1, 1, 1);
        let mut only = places.reserve(0).expect("free");
        assert!(places.lasts(&mut only, 0));
    }
}
