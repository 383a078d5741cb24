//! Which consumers there are, and who is next in turn.
//!
//! Cost: a seat is taken once per producer and per death of its consumer, under a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatpath::Resumer;

use crate::consumer::Consumer;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    consumers: Vec<Arc<Consumer>>,
    next: usize,
    /// Producers that wait for a consumer, in order of arrival.
    lonely: BTreeMap<u64, Resumer>,
    arrivals: u64,
}

/// Where a producer got to.
#[derive(Debug)]
pub(crate) enum Seat {
    With(Arc<Consumer>),
    /// Nobody is there; the number is its place in the queue, to be given up by [`Roster::leave`].
    Alone(u64),
}

impl Roster {
    /// The next consumer in turn; if there is none, `resumer` is told of the first that comes.
    pub(crate) fn seat(&self, resumer: impl FnOnce() -> Resumer) -> Seat {
        let mut state = self.state();
        // Who named a token has a producer of its own.
        let shared = |consumer: &&Arc<Consumer>| consumer.token == 0;
        let count = state.consumers.iter().filter(shared).count();
        if count == 0 {
            let place = state.arrivals;
            state.arrivals += 1;
            state.lonely.insert(place, resumer());
            return Seat::Alone(place);
        }
        let turn = state.next % count;
        state.next = turn + 1;
        let chosen = state.consumers.iter().filter(shared).nth(turn);
        Seat::With(Arc::clone(chosen.expect("fewer than the count")))
    }

    /// A producer that waited alone does not any more.
    pub(crate) fn leave(&self, place: u64) {
        self.state().lonely.remove(&place);
    }

    /// A consumer has come. False: as many are there as may be.
    pub(crate) fn add(&self, consumer: Arc<Consumer>, consumers_max: usize) -> bool {
        let mut state = self.state();
        if state.consumers.len() >= consumers_max {
            return false;
        }
        let is_shared = consumer.token == 0;
        state.consumers.push(consumer);
        if !is_shared {
            return true;
        }
        let woken = std::mem::take(&mut state.lonely);
        drop(state);
        for resumer in woken.into_values() {
            resumer.resume();
        }
        true
    }

    /// A consumer is gone: nobody is seated with it from here on.
    pub(crate) fn remove(&self, number: u32) {
        self.state()
            .consumers
            .retain(|consumer| consumer.number != number);
    }

    /// Those that are there now.
    pub(crate) fn consumers(&self) -> Vec<Arc<Consumer>> {
        self.state().consumers.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.state().consumers.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
