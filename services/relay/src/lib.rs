//! Relay for Flatpath: two clients that name the same token are connected, without a worker.
//!
//! It speaks the public transit relay protocol of magic-wormhole (docs/transit.md of
//! magic-wormhole-transit-relay), so `wormhole --transit-helper` works with it:
//!
//! | client sends                          | relay sends       | and then                      |
//! |---------------------------------------|-------------------|-------------------------------|
//! | `please relay TOKEN\n`                | nothing           | waits for the other           |
//! | `please relay TOKEN for side SIDE\n`  | nothing           | waits for one of another side |
//! | (the other one comes)                 | `ok\n` to both    | splices the two               |
//! | anything while it waits               | `impatient\n`     | closes                        |
//! | anything else as its first line       | `bad handshake\n` | closes                        |
//! | (as many wait as may)                 | `busy\n`          | closes one: see below         |
//! | a token that two others have          | `taken\n`         | closes                        |
//!
//! - What the second of a pair sends right after its handshake goes to the first.
//! - A token connects one pair at a time: a third client that names it is refused until both of the
//!   pair are gone.
//! - Several connections of one side may wait; when one is connected the others are closed.
//! - A client that leaves while it waits is removed in the same turn. One that waits longer than
//!   `wait_timeout` is closed. When `waiting_max` wait already, a newcomer replaces the client that
//!   has waited longest of the address with most waiting clients, which is sent `busy`; a client
//!   whose partner waits does not count.
//! - Beyond the original, half-close works: the end of one direction is passed on, and the other
//!   direction stays open.
//!
//! Everything happens on one network thread ([`Spread::OneThread`]): a splice needs both
//! connections there, and moving one between threads would cost more than the kernel's copies allow
//! one thread to relay. So clients of several listeners can meet, with TLS and without
//! ([`Relay::meeting`]): all listeners of a relay are on that thread.
//!
//! ```no_run
//! use flatpath::{Server};
//! use flatpath_relay::Relay;
//!
//! fn main() -> Result<(), flatpath::Error> {
//!     let relay = Relay::new().waiting_max(10_000);
//!     let statistics = relay.statistics();
//!     Server::new().listen("127.0.0.1:4001", relay).run()?;
//!     println!("{:?}", statistics.read());
//!     Ok(())
//! }
//! ```
//!
//! Cost: a client that waits is a connection, a registration and no buffer. A match is two lookups.
#![forbid(unsafe_code)]

mod handshake;
mod meeting;
mod waiting;
mod statistics;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flatpath::access_log::LogEnd;
use flatpath::lock::{Guard, Lock};
use flatpath::{Context, Event, ListenerOptions, Phase, Protocol, Received, Spread};

use crate::handshake::{Front, Handshake, front};
use crate::meeting::{Arrival, ClientHandle, Meetings, Partner, Refusal};
pub use crate::statistics::{METRICS, Snapshot, Statistics};

/// Clients that wait at most, unless set otherwise: half of the connections that a server takes by
/// default, so that there is room for their partners.
pub const WAITING_MAX: u32 = 50_000;

/// Sent to a client that may not wait, or no longer.
const BUSY: &[u8] = b"busy\n";

/// Sent to a client that sends something before its `ok`.
const IMPATIENT: &[u8] = b"impatient\n";

/// Sent to a client whose token is in use by two others.
const TAKEN: &[u8] = b"taken\n";

/// The service. Clones share their counters, and their clients meet each other.
///
/// ```no_run
/// use flatpath::Server;
/// use flatpath_relay::Relay;
///
/// # fn main() -> Result<(), flatpath::Error> {
/// let relay = Relay::new().waiting_max(10_000);
/// Server::new().listen("127.0.0.1:4001", relay).run()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Relay {
    waiting_max: Option<u32>,
    statistics: Arc<Statistics>,
    meetings: Arc<Lock<Meetings>>,
}

/// How far a client has come.
#[derive(Debug, Default)]
enum State {
    /// Its handshake has not come.
    #[default]
    New,
    Waiting(ClientHandle),
    /// Its partner was found; the engine is asked to splice them.
    Met(ClientHandle, Partner),
    Spliced(ClientHandle),
    /// It is being closed.
    Over,
}

/// One client.
#[derive(Debug, Default)]
pub struct Session(State);

impl Relay {
    /// A relay with the defaults.
    pub fn new() -> Relay {
        Relay::default()
    }

    /// Clients that wait at most. It should leave room for their partners below the server's
    /// `connections_max`; half of that is the most that counts.
    pub fn waiting_max(mut self, clients: u32) -> Relay {
        self.waiting_max = Some(clients);
        self
    }

    /// Clients of this relay and of another one meet each other, such as those of a listener with
    /// TLS and of one without. The two have one waiting list, of which each clients' own listener
    /// says how long it may be.
    pub fn meeting(mut self, other: &Relay) -> Relay {
        self.meetings = Arc::clone(&other.meetings);
        self
    }

    /// The network thread alone takes it, within one call.
    fn meetings(&self) -> Guard<'_, Meetings> {
        self.meetings.lock()
    }

    /// The counters.
    pub fn statistics(&self) -> Arc<Statistics> {
        Arc::clone(&self.statistics)
    }

    fn arrived(&self, context: &mut Context<'_, Self>, handshake: Handshake, has_more: bool) {
        let now = context.turn().now();
        let arrival = self.meetings().arrive(handshake, context.handle(), now);
        match arrival {
            Arrival::Met(client, partner) => {
                context.splice(&partner.end);
                context.session.0 = State::Met(client, partner);
            }
            Arrival::Waits(client) => {
                if has_more {
                    // It does not begin to wait: that could end the wait of another client.
                    self.meetings().leave(&client);
                    self.dismiss(context, &self.statistics.impatient, IMPATIENT);
                } else {
                    self.begin_wait(context, client);
                }
            }
            Arrival::Refused(refusal) => self.refuse(context, refusal),
        }
    }

    /// A client waits; where as many wait as may, the wait of another one ends.
    fn begin_wait(&self, context: &mut Context<'_, Self>, client: ClientHandle) {
        let half = context.limits().connections_max / 2;
        let most = self.waiting_max.unwrap_or(WAITING_MAX) as usize;
        Statistics::add(&self.statistics.waiting);
        let (peer, most) = (context.peer(), most.min(half.max(1)));
        self.meetings().begin_wait(&client, peer, most);
        context.session.0 = State::Waiting(client);
        context.phase(Phase::Wait);
    }

    fn end_wait(&self, client: &ClientHandle) {
        Statistics::subtract(&self.statistics.waiting);
        self.meetings().end_wait(client);
    }

    fn refuse(&self, context: &mut Context<'_, Self>, refusal: Refusal) {
        log::debug!("a client is refused: {refusal:?}");
        let line = match refusal {
            Refusal::TokenTaken => TAKEN,
            Refusal::NoRoom => BUSY,
        };
        self.dismiss(context, &self.statistics.refused, line);
    }

    /// Counts a client, sends it a line, and closes it.
    fn dismiss(&self, context: &mut Context<'_, Self>, counter: &AtomicU64, line: &'static [u8]) {
        Statistics::add(counter);
        self.leave(context.session);
        context.write_static(line);
        context.close_lingering();
    }

    /// Takes a client out of the meetings; its session is over.
    fn leave(&self, session: &mut Session) {
        let client = match std::mem::replace(&mut session.0, State::Over) {
            State::Waiting(client) => {
                self.end_wait(&client);
                client
            }
            State::Met(client, _) => client,
            State::Spliced(client) => {
                Statistics::subtract(&self.statistics.paired_ends);
                client
            }
            State::New | State::Over => return,
        };
        self.meetings().leave(&client);
    }

    fn input_ended(&self, context: &mut Context<'_, Self>) {
        if let State::Waiting(_) = context.session.0 {
            Statistics::add(&self.statistics.unmatched);
        }
        self.leave(context.session);
        context.close_after_output();
    }

    fn spliced(&self, context: &mut Context<'_, Self>) {
        context.write_static(b"ok\n");
        Statistics::add(&self.statistics.paired_ends);
        context.session.0 = match std::mem::take(&mut context.session.0) {
            State::Met(client, partner) => {
                Statistics::add(&self.statistics.matched);
                let waited = context.turn().now() - partner.since;
                self.statistics.waited(waited);
                self.meetings().dismiss_spares(&client);
                State::Spliced(client)
            }
            State::Waiting(client) => {
                self.end_wait(&client);
                State::Spliced(client)
            }
            other => {
                debug_assert!(false, "{other:?} was spliced");
                other
            }
        };
    }

    fn splice_refused(&self, context: &mut Context<'_, Self>) {
        // The partner is being closed, and leaves when it is closed; until then wait.
        if let State::Met(client, _) = std::mem::take(&mut context.session.0) {
            let waits = self.meetings().wait_again(&client);
            self.begin_wait(context, client);
            if !waits {
                self.refuse(context, Refusal::NoRoom);
            }
        }
    }

    fn woken(&self, context: &mut Context<'_, Self>) {
        let State::Waiting(client) = &context.session.0 else {
            return;
        };
        let client = ClientHandle::clone(client);
        if let Some(partner) = client.partner() {
            self.end_wait(&client);
            context.splice(&partner.end);
            context.session.0 = State::Met(client, partner);
        } else if client.is_displaced() {
            self.dismiss(context, &self.statistics.displaced, BUSY);
        } else if !client.is_registered() {
            // A spare of one that was spliced.
            self.end_wait(&client);
            Statistics::add(&self.statistics.redundant);
            context.session.0 = State::Over;
            context.close_after_output();
        }
        // Else it replaced another client, and the partner that it met there has left.
    }

    fn expired(&self, context: &mut Context<'_, Self>, phase: Phase) {
        if phase == Phase::Wait {
            Statistics::add(&self.statistics.unmatched);
        }
        if phase != Phase::Spliced {
            self.leave(context.session);
        }
        context.close_after_output();
    }
}

impl Protocol for Relay {
    type ThreadState = ();
    type Session = Session;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            spread: Spread::OneThread,
            ..ListenerOptions::named("relay")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        match &context.session.0 {
            State::New => match front(input) {
                Front::Unfinished => Received::NeedMore { consumed: 0 },
                Front::Bad => {
                    self.dismiss(context, &self.statistics.bad, b"bad handshake\n");
                    Received::Consumed
                }
                Front::Good(handshake, length) => {
                    let has_more = input.len() > length;
                    self.arrived(context, handshake, has_more);
                    Received::NeedMore { consumed: length }
                }
            },
            State::Waiting(_) if !input.is_empty() => {
                self.dismiss(context, &self.statistics.impatient, IMPATIENT);
                Received::Consumed
            }
            // Bytes of a client that has met its partner go along when the two are spliced.
            State::Waiting(_) | State::Met(..) | State::Spliced(_) => {
                Received::NeedMore { consumed: 0 }
            }
            State::Over => Received::Consumed,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(_) => self.input_ended(context),
            Event::Spliced => self.spliced(context),
            Event::SpliceRefused => self.splice_refused(context),
            Event::Woken => self.woken(context),
            Event::Expired(phase) => self.expired(context, phase),
            // Pairs stay until they end or the drain does.
            Event::Draining if matches!(context.session.0, State::Spliced(_) | State::Met(..)) => {}
            Event::Draining => {
                self.leave(context.session);
                context.close_after_output();
            }
            other => other.by_default(context),
        }
    }

    fn closed(&self, _: &mut (), session: &mut Session, _: Option<LogEnd<'_>>) {
        if let State::Waiting(_) = session.0 {
            Statistics::add(&self.statistics.unmatched);
        }
        self.leave(session);
    }
}
