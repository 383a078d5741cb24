//! The attached consumers, and which one the next producer is assigned to.
//!
//! Cost: an assignment is made once per producer and per death of its consumer, under a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatpath::ConnectionHandle;
use flatpath::lock::{Guard, Lock};

use crate::consumer::Consumer;

#[derive(Debug, Default)]
pub(crate) struct ConsumerSet(Lock<State>);

#[derive(Debug, Default)]
struct State {
    consumers: Vec<Arc<Consumer>>,
    next: usize,
    /// Producers that wait for a consumer, in order of arrival.
    unassigned: BTreeMap<u64, ConnectionHandle>,
    arrivals: u64,
}

/// The result for a producer that asked for a consumer.
#[derive(Debug)]
pub(crate) enum Assignment {
    To(Arc<Consumer>),
    /// No consumer is attached; the number is a position in the queue, given up by
    /// [`ConsumerSet::leave`].
    Unassigned(u64),
}

impl ConsumerSet {
    /// Assigns the next consumer, round robin; if there is none, `waker` is called for the first
    /// that attaches.
    pub(crate) fn assign(&self, waker: impl FnOnce() -> ConnectionHandle) -> Assignment {
        let mut state = self.state();
        // A consumer with a token has a producer of its own.
        let shared = |consumer: &&Arc<Consumer>| consumer.token == 0;
        let count = state.consumers.iter().filter(shared).count();
        if count == 0 {
            let position = state.arrivals;
            state.arrivals += 1;
            state.unassigned.insert(position, waker());
            return Assignment::Unassigned(position);
        }
        let turn = state.next % count;
        state.next = turn + 1;
        let chosen = state.consumers.iter().filter(shared).nth(turn);
        Assignment::To(Arc::clone(chosen.expect("fewer than the count")))
    }

    /// A producer no longer waits to be assigned.
    pub(crate) fn leave(&self, position: u64) {
        self.state().unassigned.remove(&position);
    }

    pub(crate) fn add(&self, consumer: Arc<Consumer>) {
        let mut state = self.state();
        let is_shared = consumer.token == 0;
        state.consumers.push(consumer);
        if is_shared {
            let woken = std::mem::take(&mut state.unassigned);
            drop(state);
            woken.values().for_each(ConnectionHandle::wake);
        }
    }

    /// No producer is assigned to this consumer from here on.
    pub(crate) fn remove(&self, number: u32) {
        self.state()
            .consumers
            .retain(|consumer| consumer.number != number);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Consumer>> {
        self.state().consumers.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.state().consumers.len()
    }

    fn state(&self) -> Guard<'_, State> {
        // Nothing under the lock panics half way.
        self.0.lock()
    }
}
