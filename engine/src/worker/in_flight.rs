//! What is with workers, or waits for one: for reports, and for the end of the server.
//!
//! Walks all places and locks each for a moment; nothing of it is counted while requests run.

use std::sync::PoisonError;

use super::Shared;
use crate::error::LeftBehind;
use crate::lifecycle::since;
use crate::statistics::InFlight;

impl Shared {
    /// Jobs that workers run now: what a worker that does not come back is at. Walks all places.
    pub(crate) fn running(&self) -> Vec<LeftBehind> {
        let places = self.places.iter();
        let running = places.filter_map(|place| {
            let place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place.running.map(|id| LeftBehind {
                thread: "a worker".into(),
                listener: self.lifecycle.listener(id.thread, id.listener),
                busy: since(place.dispatched_ns),
            })
        });
        running.collect()
    }

    /// What is with workers or waits for one. Walks all places.
    pub(crate) fn in_flight(&self) -> InFlight {
        let mut in_flight = InFlight::default();
        for place in &self.places {
            let place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let listener = match (&place.running, &place.task) {
                (Some(id), _) => {
                    in_flight.running += 1;
                    *id
                }
                // Done, and not fetched yet.
                (None, Some(_)) if place.dispatched_ns == 0 => continue,
                (None, Some(task)) => {
                    in_flight.queued += 1;
                    task.connection()
                }
                (None, None) => continue,
            };
            let age = since(place.dispatched_ns);
            if in_flight.oldest.is_none_or(|(oldest, _)| oldest < age) {
                let name = self.lifecycle.listener(listener.thread, listener.listener);
                in_flight.oldest = Some((age, name.unwrap_or("?")));
            }
        }
        in_flight
    }
}
