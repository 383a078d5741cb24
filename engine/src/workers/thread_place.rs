//! What a network thread is built with: its number, and a way to what the server's threads share.
//!
//! A thread that is being built registers what it has: its regions, the names of its listeners,
//! what it counts. Later it asks `Common`.

use std::sync::Arc;

use flatpath_driver::Region;

use crate::memory::account::ServerMemory;
use crate::observe::regions::Entered;
use crate::observe::statistics::ThreadCounters;
use crate::workers::concurrency_limit::Listeners;

use super::{Dispatcher, Shared};

/// The place of a network thread in its server: what it is built with.
#[derive(Clone)]
pub(crate) struct ThreadPlace {
    number: u16,
    shared: Arc<Shared>,
}

impl ThreadPlace {
    /// Of the thread with this number, from 0.
    pub(crate) fn new(number: u16, shared: Arc<Shared>) -> ThreadPlace {
        ThreadPlace { number, shared }
    }

    /// Its number, and what all threads have in common.
    pub(crate) fn into_parts(self) -> (u16, Arc<Shared>) {
        (self.number, self.shared)
    }

    /// How many network threads the server has.
    pub(crate) fn threads(&self) -> usize {
        self.shared.mailboxes.len()
    }

    pub(crate) fn number(&self) -> usize {
        usize::from(self.number)
    }

    pub(crate) fn memory(&self) -> &Arc<ServerMemory> {
        &self.shared.memory
    }

    /// The workers that each listener may have.
    pub(crate) fn concurrency(&self) -> &Listeners {
        &self.shared.concurrency
    }

    /// The regions of its driver are among those of the server for as long as it runs.
    pub(crate) fn enter_regions(&self, regions: Vec<(&'static str, Region)>) -> Entered {
        self.shared
            .regions
            .enter(self.number(), regions.into_iter())
    }

    /// Says what its listeners are called, by its own numbers.
    pub(crate) fn name_listeners(&self, names: Vec<&'static str>) {
        self.shared
            .lifecycle
            .name_listeners(self.number, names.into());
    }

    /// Any thread may read what it counts from now on; its side of dispatch.
    pub(crate) fn begin(
        &self,
        counters: &Arc<ThreadCounters>,
        (in_flight_max, places): (usize, usize),
    ) -> Dispatcher {
        let published = self.shared.mailboxes[self.number()]
            .counters
            .set(Arc::clone(counters));
        debug_assert!(published.is_ok(), "a network thread starts once");
        let (shared, own) = (Arc::clone(&self.shared), Arc::clone(counters));
        Dispatcher::new(shared, own, self.number(), (in_flight_max, places))
    }
}
