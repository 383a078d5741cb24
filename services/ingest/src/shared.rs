//! State that network threads and the control thread of one listener share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use flatpath::ServiceSocket;
use flatpath::descriptors::{DescriptorBudget, DescriptorHold};
use flatpath::lock::{Guard, Lock};
use flatpath::memory::Region;

use crate::consumers::ConsumerSet;
use crate::pairing::Pairings;
use crate::settings::{Error, Plan, Settings};
use crate::statistics::{Figures, Statistics, log_seldom};
use crate::wakeup::Wakeup;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) plan: Plan,
    pub(crate) consumers: ConsumerSet,
    pub(crate) pairings: Pairings,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) wakeup: Arc<Wakeup>,
    /// One for each network thread that accepts, once it has made its own.
    regions: Lock<Vec<Region>>,
    /// How many those will be, once the server starts.
    pub(crate) accepting: OnceLock<usize>,
    producers: AtomicU32,
    /// Another process serves from now on.
    handed_over: AtomicBool,
    /// Where consumers attach, to be handed over.
    pub(crate) socket: OnceLock<ServiceSocket>,
    /// Of the server, once it starts; descriptors count in it from then on.
    pub(crate) descriptors: OnceLock<DescriptorBudget>,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Result<Shared, Error> {
        let plan = settings.plan()?;
        // A producer and a consumer may each have a token of their own.
        let tokens_max = plan.producers_max + settings.consumers_max;
        Ok(Shared {
            pairings: Pairings::new(tokens_max),
            plan,
            consumers: ConsumerSet::default(),
            statistics: Arc::default(),
            wakeup: Arc::new(Wakeup::new().map_err(Error::Control)?),
            regions: Lock::default(),
            accepting: OnceLock::new(),
            producers: AtomicU32::new(0),
            handed_over: AtomicBool::new(false),
            socket: OnceLock::new(),
            descriptors: OnceLock::new(),
            settings,
        })
    }

    /// Reserves descriptors for a consumer or a handshake; `None`: the server has none to spare.
    pub(crate) fn hold_descriptors(&self, count: usize) -> Option<DescriptorHold> {
        let budget = self.descriptors.get().cloned().unwrap_or_default();
        budget.hold(count)
    }

    /// A network thread has made its region.
    pub(crate) fn add_region(&self, region: &Region) {
        self.made().push(region.clone());
        self.wakeup.wake();
    }

    /// The regions, when all network threads that accept have made theirs.
    pub(crate) fn regions(&self) -> Option<Vec<Region>> {
        // A simulation does not report that it starts.
        let accepting = *self
            .accepting
            .get()
            .unwrap_or(&self.settings.network_threads);
        let made = self.made();
        (made.len() == accepting).then(|| made.clone())
    }

    fn made(&self) -> Guard<'_, Vec<Region>> {
        self.regions.lock()
    }

    /// A number for a connection that has sent its first byte; `None`: too many are connected.
    pub(crate) fn admit(&self) -> Option<u32> {
        if self.statistics.producers.read() >= u64::from(self.plan.producers_max) {
            let why = "a producer is refused: as many are connected as may be";
            log_seldom(&self.statistics.producers_refused, &why);
            return None;
        }
        self.statistics.producers.add(1);
        Some(self.producers.fetch_add(1, Ordering::Relaxed))
    }

    /// See [`Ingest::hand_over`](crate::Ingest::hand_over).
    pub(crate) fn hand_over(&self) {
        // ORDER: Relaxed: the drain that follows and the wake-up publish it.
        self.handed_over.store(true, Ordering::Relaxed);
        self.wakeup.wake();
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        // ORDER: Relaxed: read after the drain has begun, or after a wake-up.
        self.handed_over.load(Ordering::Relaxed)
    }

    pub(crate) fn figures(&self) -> Figures {
        let regions: Vec<Region> = self.made().clone();
        let sum = |of: fn(&Region) -> u32| regions.iter().map(|region| u64::from(of(region))).sum();
        let mut marks: Vec<_> = regions
            .iter()
            .map(|region| vec![false; region.pages() as usize])
            .collect();
        for consumer in self.consumers.all() {
            consumer.mark_held(&mut marks);
        }
        let marked = marks.iter().flatten().filter(|mark| **mark).count();
        Figures {
            pages: sum(Region::pages),
            pages_retained: sum(Region::retained),
            pages_with_consumers: marked as u64,
            consumers: self.consumers.len() as u64,
            ..self.statistics.read()
        }
    }
}
