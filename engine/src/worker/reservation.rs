//! Reservations: how many jobs of each listener of one network thread are in flight, and how many
//! of these last.
//!
//! A job *lasts* when its client decides how long: a stream that is read slowly, an upload that
//! comes slowly. It keeps its place while it rests between two runs, so places that lasting jobs
//! may have are bounded: one in [`SHORT_PART`] is left to requests that end when their worker has
//! an answer. Thousands of slow clients then do not make the others wait.
//!
//! | may run beside | reserve, lasts | drop of a reservation |
//! |----------------|----------------|-----------------------|
//! | both           | one thread     | any thread            |
//!
//! Invariants
//! - L1: at most `lasting_max` reservations last.
//!
//! Ordering: relaxed. The counts order nothing; only one thread adds, so a bound holds exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::SHORT_PART;

/// One of the in-flight places of a network thread, given back when dropped, wherever that is.
pub(crate) struct Reservation {
    counts: Arc<Counts>,
    listener: usize,
    lasts: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.counts.by_listener[self.listener].fetch_sub(1, Ordering::Relaxed);
        if self.lasts {
            self.counts.lasting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

struct Counts {
    by_listener: Box<[AtomicUsize]>,
    lasting: AtomicUsize,
}

/// The places of one network thread.
pub(super) struct Reservations {
    counts: Arc<Counts>,
    in_flight_max: usize,
    /// Places that each listener has for itself.
    kept_for_each: usize,
    lasting_max: usize,
}

impl Reservations {
    pub(super) fn new(in_flight_max: usize, listeners: usize) -> Reservations {
        Reservations {
            counts: Arc::new(Counts {
                by_listener: (0..listeners).map(|_| AtomicUsize::new(0)).collect(),
                lasting: AtomicUsize::new(0),
            }),
            in_flight_max,
            kept_for_each: in_flight_max / 4 / listeners,
            lasting_max: (in_flight_max - in_flight_max / SHORT_PART).max(1),
        }
    }

    pub(super) fn listeners(&self) -> usize {
        self.counts.by_listener.len()
    }

    /// Takes a place for a listener, if one is left to it: those that are kept for the others and
    /// not in use are not.
    pub(super) fn reserve(&self, listener: u16) -> Option<Reservation> {
        let listener = usize::from(listener);
        let is_free = match &*self.counts.by_listener {
            [alone] => alone.load(Ordering::Relaxed) < self.in_flight_max,
            several => {
                let own = several[listener].load(Ordering::Relaxed);
                own < self.kept_for_each || self.room_beside(self.kept_for_each) > 0
            }
        };
        is_free.then(|| {
            self.counts.by_listener[listener].fetch_add(1, Ordering::Relaxed);
            Reservation {
                counts: Arc::clone(&self.counts),
                listener,
                lasts: false,
            }
        })
    }

    /// Counts a reservation among those that last, if there may be one more. True: it does.
    pub(super) fn lasts(&self, reservation: &mut Reservation) -> bool {
        if !reservation.lasts && self.lasting_room() > 0 {
            self.counts.lasting.fetch_add(1, Ordering::Relaxed);
            reservation.lasts = true;
        }
        reservation.lasts
    }

    /// Places that are left, those included that are kept for one listener.
    pub(super) fn room(&self) -> usize {
        self.room_beside(0)
    }

    /// How many more jobs may last.
    pub(super) fn lasting_room(&self) -> usize {
        let lasting = self.counts.lasting.load(Ordering::Relaxed);
        self.lasting_max.saturating_sub(lasting)
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

    #[test]
    fn lasting_jobs_leave_places_to_short_ones() {
        let places = Reservations::new(8, 1);
        let mut all: Vec<Reservation> = (0..8).map_while(|_| places.reserve(0)).collect();
        assert_eq!((all.len(), places.room()), (8, 0));
        let lasting = all
            .iter_mut()
            .filter_map(|it| places.lasts(it).then_some(()))
            .count();
        assert_eq!(
            (lasting, places.lasting_room()),
            (6, 0),
            "a quarter is left"
        );
        assert!(places.lasts(&mut all[0]), "asked again, it counts once");
        all.truncate(5);
        assert_eq!(places.lasting_room(), 1);
        drop(all);
        assert_eq!((places.room(), places.lasting_room()), (8, 6));
    }

    #[test]
    fn one_place_may_last() {
        let places = Reservations::new(1, 1);
        let mut only = places.reserve(0).expect("free");
        assert!(places.lasts(&mut only));
    }
}
