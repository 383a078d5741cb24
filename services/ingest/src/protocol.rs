//! The producers' side: bytes of connections become messages of consumers.
//!
//! Everything happens on network threads; no request goes to a worker.
//!
//! Cost: for each receive a fragment retained; for each message a reservation and a delivery, each
//! under the consumer's lock; for each turn a `write` to the doorbell of each consumer that got
//! something, and a `read` of what it gave back. A chunk that fits after the one before it in the
//! same message is copied there, so that small receives do not fill the region with pages that are
//! nearly empty.

use std::sync::Arc;

use flatpath::access_log::LogEnd;
use flatpath::descriptors::DescriptorBudget;
use flatpath::{
    Context, Event, ListenerOptions, Pages, Phase, Protocol, Received, Stall, ThreadEvent,
};
use flatpath_messages::framing::Part;

use crate::consumer::Consumer;
use crate::control::{Control, ControlThread};
use crate::session::Session;
use crate::settings::{Error, Settings};
use crate::shared::Shared;
use crate::statistics::{Figures, log_seldom};

/// Fragments that the engine lets a session hold: the window bounds them.
const PAGES_MAX: u32 = 1 << 30;

/// The service: a protocol for the engine, and what the control thread shares with it.
///
/// ```no_run
/// use flatpath::Server;
/// use flatpath_ingest::{Ingest, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (ingest, control) = Ingest::open(Settings::new("/run/myapp/ingest"))?;
/// Server::new().listen("127.0.0.1:7001", ingest).run()?;
/// drop(control); // consumers are told that it ends
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ingest(Arc<Shared>);

/// State of one network thread: the consumers that got something in this turn.
#[derive(Debug, Default)]
pub struct ThreadState {
    served: Vec<Arc<Consumer>>,
}

impl Ingest {
    /// An ingest listener with these settings, and the thread that attaches consumers, which runs
    /// until it is dropped.
    ///
    /// # Errors
    /// Settings that do not fit; the socket or the thread cannot be made.
    pub fn open(settings: Settings) -> Result<(Ingest, ControlThread), Error> {
        let shared = Arc::new(Shared::new(settings)?);
        let control = ControlThread::start(Arc::clone(&shared))?;
        Ok((Ingest(shared), control))
    }

    /// The same without a thread: simulations call [`Control::round`].
    ///
    /// # Errors
    /// As for [`Ingest::open`].
    pub fn open_without_thread(settings: Settings) -> Result<(Ingest, Control), Error> {
        let shared = Arc::new(Shared::new(settings)?);
        let control = Control::new(Arc::clone(&shared))?;
        Ok((Ingest(shared), control))
    }

    /// Another process has taken the listening sockets over, and serves. To be called before the
    /// server drains: producers are to come to an end by themselves, and consumers attach to the
    /// other process as well.
    pub fn hand_over(&self) {
        self.0.hand_over();
    }

    /// The counters at this moment, and where the pages are; [`METRICS`](crate::METRICS) shows
    /// them. O(pages), with short locks that consumers and their producers take: for display.
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }
}

/// Why the next part of the input is not taken.
enum Halt {
    /// There is no memory for it now.
    Memory,
    /// The producer is at fault.
    Cut,
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
            // A length of zero, which only proves that the producer lives, or a message.
            context.restart_phase(Phase::Idle);
        }
        let mut at = 0;
        loop {
            if !self.deliver(context) {
                if self.is_forsaken(context) {
                    context.abort();
                    return Received::Consumed;
                }
                let on = Stall::Outside;
                return Received::Blocked { consumed: at, on };
            }
            if at == input.len() {
                break;
            }
            match self.take(context, input, at) {
                Ok(consumed) => at += consumed,
                Err(Halt::Memory) => {
                    let on = Stall::Memory;
                    return Received::Blocked { consumed: at, on };
                }
                Err(Halt::Cut) => {
                    context.abort();
                    return Received::Consumed;
                }
            }
        }
        if context.draining() && context.session.is_between_messages() && !self.0.is_handed_over() {
            context.close_lingering();
        }
        Received::NeedMore { consumed: at }
    }

    /// Whether the producer waits for a consumer that cannot come: consumers attach to another
    /// process.
    fn is_forsaken(&self, context: &Context<'_, Self>) -> bool {
        context.draining() && self.0.is_handed_over() && !context.session.has_consumer()
    }

    fn drain(&self, context: &mut Context<'_, Self>) {
        if self.0.is_handed_over() {
            // It reads the end of this side, and comes again. What it has sent by then is taken.
            if self.is_forsaken(context) && context.session.message.is_some() {
                context.abort();
            } else {
                // False: it ends already.
                let _ = context.end_output();
            }
            return;
        }
        // A message that has begun is taken to its end.
        if context.session.is_between_messages() {
            context.close_lingering();
        }
    }

    /// Reserves room for the message, and delivers it when it is whole. False: it has to wait.
    fn deliver(&self, context: &mut Context<'_, Self>) -> bool {
        let session = &mut *context.session;
        while session.message.is_some() {
            if !session.has_room(&self.0.consumers, &context.io.handle()) {
                self.0.statistics.producer_waits.add(1);
                return false;
            }
            let message = session.message.as_ref();
            if message.is_some_and(|message| !message.whole) {
                return true;
            }
            let Ok(consumer) = session.deliver() else {
                continue;
            };
            let served = &mut context.thread.served;
            if !served.iter().any(|other| Arc::ptr_eq(other, &consumer)) {
                served.push(consumer);
            }
            context.io.restart_phase(Phase::Idle);
        }
        true
    }

    /// Takes the next part of the input; how much of it was consumed.
    fn take(
        &self,
        context: &mut Context<'_, Self>,
        input: &[u8],
        at: usize,
    ) -> Result<usize, Halt> {
        let (shared, session) = (&*self.0, &mut *context.session);
        let before = session.decoder;
        let bytes_max = shared.plan.message_bytes_max;
        let (consumed, part) = match session.decoder.next(&input[at..], bytes_max) {
            Ok(next) => next,
            Err(too_long) => {
                let counter = &shared.statistics.messages_too_long;
                log_seldom(counter, &format_args!("{too_long}: producer cut off"));
                return Err(Halt::Cut);
            }
        };
        match part {
            Part::Nothing => {}
            Part::Token { token } => {
                if !session.seek(token, &shared.pairings, context.io.handle()) {
                    let counter = &shared.statistics.producers_refused;
                    let why = "a producer's token is taken, or comes too late: cut off";
                    log_seldom(counter, &why);
                    return Err(Halt::Cut);
                }
            }
            Part::Begin { message_bytes } => {
                session.begin(message_bytes, shared.plan.need(message_bytes));
                context.io.restart_phase(Phase::Body);
            }
            Part::Payload { last } => {
                let range = at..at + consumed;
                if !session.gather(&input[range.clone()]) {
                    let Some(fragment) = context.io.retain(range) else {
                        // As many pages are kept as may be, for a moment.
                        session.decoder = before;
                        shared.statistics.producer_waits.add(1);
                        return Err(Halt::Memory);
                    };
                    session.retain(fragment);
                }
                if let Some(message) = &mut session.message {
                    message.whole = last;
                }
            }
        }
        Ok(consumed)
    }
}

impl Protocol for Ingest {
    type ThreadState = ThreadState;
    type Session = Session;
    type Job = ();

    fn starts(&self, descriptors: &DescriptorBudget, network_threads: usize) {
        let _ = self.0.descriptors.set(descriptors.clone());
        let _ = self.0.accepting.set(network_threads);
    }

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: Some(self.0.plan.region.clone()),
            first_pages: Pages::Shared,
            retains_all: true,
            pages_max: Some(PAGES_MAX),
            service_sockets: self.0.socket.get().into_iter().cloned().collect(),
            ..ListenerOptions::named("ingest")
        }
    }

    fn thread_event(&self, thread: &mut ThreadState, event: ThreadEvent<'_>) {
        match event {
            ThreadEvent::RegionMade { region, .. } => self.0.add_region(region),
            ThreadEvent::TurnEnded => {
                for consumer in thread.served.drain(..) {
                    consumer.announce();
                    consumer.collect();
                }
            }
            _ => {}
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let received = self.consume(context, input);
        context.io.receive_into(context.session.next_pages());
        received
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Draining => self.drain(context),
            other => other.by_default(context),
        }
    }

    fn closed(&self, _: &mut ThreadState, session: &mut Session, _: Option<LogEnd<'_>>) {
        if session.leave(&self.0.consumers) {
            self.0.statistics.messages_cut_off.add(1);
        }
        if session.producer.is_some() {
            self.0.statistics.producers.subtract(1);
        }
    }
}
