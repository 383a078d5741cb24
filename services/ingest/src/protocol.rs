//! The producers' side: bytes of connections become messages of consumers.
//!
//! Everything happens on network threads; no request goes to a worker.
//!
//! Cost: for each receive a fragment kept; for each message a reservation and a delivery, each
//! under the consumer's lock; for each turn a `write` to the bell of each consumer that got
//! something, and a `read` of what it gave back. A piece that fits behind the one before it in the
//! same message is copied there, so that messages that trickle do not fill the region with pages
//! that are nearly empty.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatpath::{
    Context, DescriptorBudget, DescriptorHold, ListenerOptions, Pages, Phase, Protocol, Received,
    Stall,
};
use flatpath_driver::{Fragment, Region};
use flatpath_messages::framing::Part;

use crate::consumer::Consumer;
use crate::desk::{Desk, DeskByHand};
use crate::doorbell::Doorbell;
use crate::pairing::Pairings;
use crate::roster::Roster;
use crate::session::Turn;
use crate::settings::{Error, Plan, Settings};
use crate::statistics::{Counter, Figures, Statistics};

pub use crate::session::Session;

/// Sessions of one message may hold this many fragments as far as the engine is concerned: the
/// window bounds them.
const PAGES_MAX: u32 = 1 << 30;

/// The service: a protocol for the engine, and what the desk shares with it.
#[derive(Clone, Debug)]
pub struct Ingest(Arc<Shared>);

/// What network threads and the desk share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) plan: Plan,
    pub(crate) roster: Roster,
    pub(crate) pairings: Pairings,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) doorbell: Arc<Doorbell>,
    regions: Mutex<Vec<Option<Region>>>,
    producers: AtomicU32,
    /// Of the server, once it starts.
    descriptors: OnceLock<DescriptorBudget>,
}

/// What one network thread keeps: who got something in this turn.
#[derive(Debug, Default)]
pub struct Lane {
    served: Vec<Arc<Consumer>>,
}

impl Ingest {
    /// An ingest listener with these settings, and the desk where consumers attach, which runs
    /// until it is stopped or dropped.
    ///
    /// # Errors
    /// Settings that cannot be; the socket cannot be made.
    pub fn open(settings: Settings) -> Result<(Ingest, Desk), Error> {
        let shared = Arc::new(Shared::new(settings)?);
        let desk = Desk::start(Arc::clone(&shared))?;
        Ok((Ingest(shared), desk))
    }

    /// The same with a desk that has no thread, for simulations.
    ///
    /// # Errors
    /// As for [`Ingest::open`].
    pub fn open_by_hand(settings: Settings) -> Result<(Ingest, DeskByHand), Error> {
        let shared = Arc::new(Shared::new(settings)?);
        let desk = DeskByHand::new(Arc::clone(&shared))?;
        Ok((Ingest(shared), desk))
    }

    /// The counters.
    pub fn statistics(&self) -> &Statistics {
        &self.0.statistics
    }

    /// The counters at this moment, and where the pages are. O(pages): for display.
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }

    /// The longest message that is taken, in bytes.
    pub fn message_bytes_max(&self) -> u32 {
        self.0.plan.message_bytes_max
    }

    /// Fragments that a consumer may hold.
    pub fn window(&self) -> u32 {
        self.0.plan.window
    }
}

impl Shared {
    fn new(settings: Settings) -> Result<Shared, Error> {
        let plan = settings.plan()?;
        let network_threads = settings.network_threads;
        // A producer and a consumer may each have a token of their own.
        let producers_max = u32::try_from(plan.producers_max).expect("few regions of few pages");
        let tokens_max = producers_max.saturating_add(settings.consumers_max);
        Ok(Shared {
            pairings: Pairings::new(tokens_max),
            plan,
            settings,
            roster: Roster::default(),
            statistics: Arc::default(),
            doorbell: Arc::new(Doorbell::new().map_err(Error::Desk)?),
            regions: Mutex::new(vec![None; network_threads]),
            producers: AtomicU32::new(0),
            descriptors: OnceLock::new(),
        })
    }

    /// Holds descriptors for a consumer, or whoever wants to be one; `None`: there is no room.
    pub(crate) fn hold_descriptors(&self, count: usize) -> Option<DescriptorHold> {
        // Without a server nothing is counted.
        let budget = self.descriptors.get().cloned().unwrap_or_default();
        budget.hold(count)
    }

    /// The regions, when all network threads have made theirs.
    pub(crate) fn regions(&self) -> Option<Vec<Region>> {
        self.made().iter().cloned().collect()
    }

    pub(crate) fn figures(&self) -> Figures {
        let statistics = &*self.statistics;
        let made: Vec<Region> = self.made().iter().flatten().cloned().collect();
        let sum = |of: &dyn Fn(&Region) -> u32| made.iter().map(|r| u64::from(of(r))).sum();
        let mut marks: Vec<_> = made
            .iter()
            .map(|r| vec![false; r.pages() as usize])
            .collect();
        for consumer in self.roster.consumers() {
            consumer.mark_held(&mut marks);
        }
        let marked = marks.iter().flatten().filter(|mark| **mark).count();
        Figures {
            pages: sum(&Region::pages),
            pages_retained: sum(&Region::retained),
            pages_with_consumers: marked as u64,
            held: statistics.held.read(),
            messages: statistics.messages.read(),
            bytes: statistics.bytes.read(),
            fragments: statistics.fragments.read(),
            returned: statistics.returned.read(),
            stalls: statistics.stalls.read(),
            refused: statistics.refused.read(),
            reclaimed: statistics.reclaimed.read(),
            consumers: self.roster.len() as u64,
            producers: statistics.producers.read(),
        }
    }

    fn made(&self) -> MutexGuard<'_, Vec<Option<Region>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a connection that has sent its first byte; `None`: too many are there.
    fn admit(&self) -> Option<u32> {
        if self.statistics.producers.read() >= self.plan.producers_max {
            let why = "a producer is refused: as many are connected as may be";
            tell_seldom(&self.statistics.producers_refused, &why);
            return None;
        }
        self.statistics.producers.add(1);
        Some(self.producers.fetch_add(1, Ordering::Relaxed))
    }
}

/// Counts what a producer did wrong, and logs it when the count is a power of two: any client can
/// make it happen as often as it likes.
fn tell_seldom(counter: &Counter, what: &dyn std::fmt::Display) {
    let count = counter.add(1);
    if count.is_power_of_two() {
        log::info!("{what} ({count} until now)");
    }
}

/// What a look at the input came to.
enum Step {
    GoOn,
    /// Wait for room; the rest of the input is left.
    Stall(Stall),
    /// The producer is at fault.
    Cut,
}

impl Ingest {
    /// Goes on with the message until it needs more input.
    fn advance(&self, context: &mut Context<'_, Self>) -> Step {
        let shared = &*self.0;
        while context.session.message.is_some() {
            if context
                .session
                .want_room(&shared.roster, &context.io.resumer())
                == Turn::Wait
            {
                shared.statistics.stalls.add(1);
                return Step::Stall(Stall::Outside);
            }
            if !context
                .session
                .message
                .as_ref()
                .is_some_and(|message| message.whole)
            {
                return Step::GoOn;
            }
            if let Ok(consumer) = context.session.deliver() {
                context.restart_phase(Phase::Idle);
                let is_new = context
                    .thread
                    .served
                    .iter()
                    .all(|other| other.number != consumer.number);
                if is_new {
                    context.thread.served.push(consumer);
                }
            }
        }
        Step::GoOn
    }

    /// Looks at the next part of the input; how much of it was consumed.
    fn take(&self, context: &mut Context<'_, Self>, input: &[u8], at: usize) -> (usize, Step) {
        let shared = &*self.0;
        let before = context.session.decoder;
        let next = context
            .session
            .decoder
            .next(&input[at..], shared.plan.message_bytes_max);
        match next {
            Err(too_long) => {
                let counter = &shared.statistics.messages_too_long;
                tell_seldom(counter, &format_args!("{too_long}: producer cut off"));
                (0, Step::Cut)
            }
            Ok((consumed, Part::Nothing)) => (consumed, Step::GoOn),
            Ok((consumed, Part::Token { token })) => {
                if context
                    .session
                    .seek(token, &shared.pairings, context.io.resumer())
                {
                    return (consumed, Step::GoOn);
                }
                let counter = &shared.statistics.producers_refused;
                let why = "a producer's token is taken, or comes too late: cut off";
                tell_seldom(counter, &why);
                (0, Step::Cut)
            }
            Ok((consumed, Part::Begin { message_bytes })) => {
                context
                    .session
                    .begin(message_bytes, shared.plan.need(message_bytes));
                context.restart_phase(Phase::Body);
                (consumed, Step::GoOn)
            }
            Ok((consumed, Part::Payload { last })) => {
                let range = at..at + consumed;
                if context.session.gather(&input[range.clone()]) {
                    shared.statistics.bytes_gathered.add(consumed as u64);
                } else if let Some(fragment) = context.retain(range) {
                    context.session.keep(fragment);
                } else {
                    // As many pages are kept as may be, for a moment.
                    context.session.decoder = before;
                    shared.statistics.stalls.add(1);
                    return (0, Step::Stall(Stall::Memory));
                }
                if last {
                    context.session.complete();
                }
                (consumed, Step::GoOn)
            }
        }
    }
}

impl Ingest {
    /// Takes what it can of the input.
    fn consume(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if context.session.producer.is_none() {
            context.session.producer = self.0.admit();
            if context.session.producer.is_none() {
                context.abort();
                return Received::Consumed;
            }
        }
        if context.session.message.is_none() {
            // A sign of life, or the beginning of a message.
            context.restart_phase(Phase::Idle);
        }
        let mut at = 0;
        loop {
            match self.advance(context) {
                Step::Stall(on) => return Received::Blocked { consumed: at, on },
                Step::GoOn | Step::Cut => {}
            }
            if at == input.len() {
                break;
            }
            let (consumed, step) = self.take(context, input, at);
            at += consumed;
            match step {
                Step::GoOn => {}
                Step::Stall(on) => return Received::Blocked { consumed: at, on },
                Step::Cut => {
                    context.abort();
                    return Received::Consumed;
                }
            }
        }
        if context.draining() && context.session.is_between() {
            context.close_lingering();
        }
        Received::NeedMore { consumed: at }
    }
}

impl Protocol for Ingest {
    type ThreadState = Lane;
    type Session = Session;
    type Job = ();

    fn name(&self) -> &'static str {
        "ingest"
    }

    fn starts(&self, descriptors: &DescriptorBudget) {
        let _ = self.0.descriptors.set(descriptors.clone());
    }

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: Some(self.0.plan.region.clone()),
            first_pages: Pages::Shared,
            pages_max: Some(PAGES_MAX),
            ..ListenerOptions::default()
        }
    }

    fn thread_state(&self) -> Lane {
        Lane::default()
    }

    fn region_made(&self, ring: usize, region: &Region) {
        if let Some(place) = self.0.made().get_mut(ring) {
            *place = Some(region.clone());
        }
        self.0.doorbell.ring();
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let received = self.consume(context, input);
        let next = context.session.next_pages();
        context.receive_into(next);
        received
    }

    fn input_ended(&self, context: &mut Context<'_, Self>, _left: &[u8]) {
        context.close_after_output();
    }

    fn turn_ended(&self, thread: &mut Lane) {
        for consumer in thread.served.drain(..) {
            consumer.ring();
            consumer.collect();
        }
    }

    fn draining(&self, context: &mut Context<'_, Self>) {
        // A message that has begun is taken to its end.
        if context.session.is_between() {
            context.close_lingering();
        }
    }

    fn closed(&self, _thread: &mut Lane, session: &mut Session) {
        if session.leave(&self.0.roster) {
            self.0.statistics.messages_cut_off.add(1);
        }
        if session.producer.is_some() {
            self.0.statistics.producers.subtract(1);
        }
    }
}

impl Session {
    fn begin(&mut self, bytes: u32, need: u32) {
        self.message = Some(crate::session::Message {
            bytes,
            need,
            fragments: Vec::new(),
            whole: false,
        });
    }

    /// Copies a piece behind the one before it, if it fits there. See [`Fragment::try_append`].
    fn gather(&mut self, piece: &[u8]) -> bool {
        let last = self
            .message
            .as_mut()
            .and_then(|message| message.fragments.last_mut());
        last.is_some_and(|last: &mut Fragment| last.try_append(piece))
    }

    fn keep(&mut self, fragment: Fragment) {
        if let Some(message) = &mut self.message {
            message.fragments.push(fragment);
            debug_assert!(
                message.fragments.len() <= message.need as usize,
                "pages of a message are half full on average"
            );
        }
    }

    fn complete(&mut self) {
        if let Some(message) = &mut self.message {
            message.whole = true;
        }
    }

    /// Where the next bytes should lie. Those of a message that goes on are not cut small: room was
    /// reserved for so many fragments.
    fn next_pages(&self) -> Pages {
        match &self.message {
            Some(message) if !message.whole && !message.fragments.is_empty() => Pages::Listener,
            Some(_) | None => Pages::Shared,
        }
    }

    fn is_between(&self) -> bool {
        self.message.is_none() && self.decoder.is_between_messages()
    }
}
