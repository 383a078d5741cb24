//! A request on its way to an upstream: what both of its connections share, and the client's side.
//!
//! ```text
//!        ┌────────────── again ◄───────────────┐
//!        ▼                                     │
//! New ─► ask ─► Waiting ─► Granted ─► Out(seat) ┴─► Over: answered, or its client is gone
//!         └──────────────────▲
//! ```
//!
//! The client's connection takes each step but the last ([`Travel::advance`]): it is woken when one
//! is due. The upstream's connection answers, or gives the request back. The first of those that
//! ends a trip does, and takes the responder with it (UT1).
//!
//! Invariants
//! - UT1: a trip is answered once.
//! - UT2: a trip in `Granted` or `Out` has a request of its server, which is given back once: by
//!   the upstream's connection from when it has taken the trip, by the client's before.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flatpath::lock::Lock;
use flatpath::{ConnectionHandle, Io};

use super::codec::Asked;
use super::failure::{self, Failure};
use super::policy::group::{Grant, Outcome, Wish};
use super::policy::retry::{Again, Progress, Verdict};
use super::policy::waiting::Ticket;
use super::reply::ReplyTerms;
use super::request::RequestHead;
use super::seat::Seat;
use super::upstream::Shared;
use crate::message::Response;
use crate::respond::encode::ReplyFraming;
use crate::respond::into_response::refused;
use crate::streams::deferred::Responder;
use crate::streams::errand::Advance;
use crate::streams::passage::Passage;

/// The body of a request.
pub(crate) enum RequestBody {
    /// It is here; empty for none.
    Whole(Bytes),
    /// It comes piece by piece, and is sent so.
    Passed(Arc<Passage>, ReplyFraming),
}

/// What is sent.
pub(crate) struct OutgoingRequest {
    pub(crate) head: RequestHead,
    pub(crate) body: RequestBody,
    pub(crate) asked: Asked,
    /// What was offered to go on in.
    pub(crate) upgrade: Option<Vec<u8>>,
    pub(crate) is_idempotent: bool,
    /// Of a hashed choice.
    pub(crate) key: Option<u64>,
    pub(crate) reply_terms: Arc<ReplyTerms>,
}

/// See the module.
pub(crate) struct Trip {
    pub(crate) upstream: Arc<Shared>,
    pub(crate) request: OutgoingRequest,
    state: Lock<State>,
}

struct State {
    step: Step,
    responder: Option<Responder>,
    client: Option<ConnectionHandle>,
    attempts: u32,
    /// The server of the attempt before.
    avoid: Option<usize>,
    /// When it began, in the time of `Turn::now`.
    begun: Option<Duration>,
    /// Some of a passed body has gone out.
    is_body_touched: bool,
    /// A kept connection has lost it: the next is a new one.
    lost_race: bool,
}

enum Step {
    New,
    Waiting(Ticket, Duration),
    Granted(usize),
    Out(Arc<Seat<Trip>>),
    Over,
}

impl Trip {
    pub(crate) fn new(
        upstream: &Arc<Shared>,
        request: OutgoingRequest,
        responder: Responder,
    ) -> Arc<Self> {
        Arc::new(Self {
            upstream: Arc::clone(upstream),
            request,
            state: Lock::new(State {
                step: Step::New,
                responder: Some(responder),
                client: None,
                attempts: 0,
                avoid: None,
                begun: None,
                is_body_touched: false,
                lost_race: false,
            }),
        })
    }

    /// Whether nothing waits for its reply.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.lock().step, Step::Over)
    }

    /// Some of a passed body has gone out: it is not there for another attempt.
    pub(crate) fn touches_body(&self) {
        self.state.lock().is_body_touched = true;
    }

    /// It has its turn: its client's connection goes on. False: it does not wait any more.
    pub(crate) fn granted(&self, server: usize) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.step, Step::Waiting(..)) {
            return false;
        }
        state.step = Step::Granted(server);
        let client = state.client.clone();
        drop(state);
        if let Some(client) = client {
            client.wake();
        }
        true
    }

    /// Answers it. False: nothing waits for the reply, which is dropped.
    pub(crate) fn answer(&self, response: Response) -> bool {
        let mut state = self.state.lock();
        let responder = state.responder.take();
        state.step = Step::Over;
        drop(state);
        responder.is_some_and(|responder| responder.send(response).is_ok())
    }

    /// An attempt has failed, whose server was given back: it is made again, or answered.
    pub(crate) fn failed(&self, failure: &Failure, progress: Progress, server: Option<usize>) {
        let now = self.upstream.pools.lock().now;
        let state = self.state.lock();
        if matches!(state.step, Step::Over) {
            return;
        }
        let again = match (&self.request.body, state.is_body_touched) {
            (RequestBody::Passed(..), true) => Again::Parts,
            _ => Again::Whole,
        };
        let attempt = (progress, state.attempts);
        let after = now.saturating_sub(state.begun.unwrap_or(now));
        drop(state);
        let of = (
            &*self.upstream.name,
            server.map(|server| self.upstream.label(server)),
        );
        let line = self.request.head.line();
        let line = (&*line, after);
        // Who is not there is asked again only where there is another.
        let is_worth_it = !matches!(failure, Failure::Connect(_)) || self.upstream.has_several();
        if is_worth_it && self.may_go_again(attempt, again) {
            failure::log(failure, of, line, "it is sent again");
            return self.goes_again(server, *failure == Failure::Closed);
        }
        let status = failure.status();
        failure::log(failure, of, line, status.as_str());
        let words = "The server that this one asks has not answered.";
        self.answer(refused(status, &words));
    }

    /// The line about a reply that its client does not get to the end.
    pub(crate) fn log_cut_off(&self, failure: &Failure, server: usize) {
        let now = self.upstream.pools.lock().now;
        let after = now.saturating_sub(self.state.lock().begun.unwrap_or(now));
        let of = (&*self.upstream.name, Some(self.upstream.label(server)));
        failure::log(
            failure,
            of,
            (&self.request.head.line(), after),
            "the reply is cut off",
        );
    }

    fn may_go_again(&self, attempt: (Progress, u32), again: Again) -> bool {
        let mut pools = self.upstream.pools.lock();
        let budget = &mut pools.group.budget;
        budget.verdict(attempt, self.request.is_idempotent, again) == Verdict::Again
    }

    fn goes_again(&self, avoid: Option<usize>, lost_race: bool) {
        let mut state = self.state.lock();
        (state.step, state.avoid) = (Step::New, avoid);
        state.lost_race |= lost_race;
        let client = state.client.clone();
        drop(state);
        if let Some(client) = client {
            client.wake();
        }
    }

    /// The next step, if the client's connection is to take it.
    fn advance(self: &Arc<Self>, io: &mut Io<'_>) -> Option<Duration> {
        let now = io.turn().now();
        loop {
            let mut state = self.state.lock();
            state.begun.get_or_insert(now);
            let is_first = state.client.is_none();
            state.client.get_or_insert_with(|| io.handle());
            match state.step {
                Step::New => {
                    let wish = Wish {
                        key: self.request.key,
                        avoid: state.avoid,
                    };
                    let may_be_kept = !state.lost_race;
                    drop(state);
                    let thread = may_be_kept.then(|| io.network_thread());
                    self.ask(wish, (now, is_first), thread);
                }
                Step::Granted(server) => {
                    state.attempts += 1;
                    drop(state);
                    self.set_out(server, io);
                    return None;
                }
                Step::Waiting(ticket, end) if end <= now => {
                    drop(state);
                    let mut pools = self.upstream.pools.lock();
                    let left = pools.group.leave(ticket);
                    drop(pools);
                    // Otherwise it was granted just now.
                    if left.is_some() {
                        self.failed(&Failure::QueueTime, Progress::Late, None);
                    }
                }
                Step::Waiting(_, end) => return Some(end),
                Step::Out(_) | Step::Over => return None,
            }
        }
    }

    /// Asks for a server, and takes an idle connection to it of that network thread.
    fn ask(self: &Arc<Self>, wish: Wish, (now, is_first): (Duration, bool), thread: Option<usize>) {
        let mut pools = self.upstream.pools.lock();
        pools.now = pools.now.max(now);
        if is_first {
            pools.group.budget.deposit();
        }
        let grant = pools.group.ask(wish, now, || Arc::clone(self));
        // Before the lock is free: a grant from the queue finds it waiting.
        let mut idle = None;
        let step = match grant {
            Grant::Server(server) => {
                idle = thread.and_then(|thread| pools.take_idle(server, thread));
                let seat = idle.clone();
                Some(seat.map_or(Step::Granted(server), Step::Out))
            }
            Grant::Wait(ticket) => {
                let end = now.saturating_add(self.upstream.limits.queue_timeout);
                Some(Step::Waiting(ticket, end))
            }
            Grant::Full => None,
        };
        let is_full = step.is_none();
        if let Some(step) = step {
            let mut state = self.state.lock();
            state.attempts += u32::from(idle.is_some());
            state.step = step;
        }
        // A server may have come in again.
        let any_waits = pools.group.waiting_count() > 0;
        drop(pools);
        match idle {
            _ if is_full => self.failed(&Failure::QueueFull, Progress::Late, None),
            Some(seat) => seat.put(Arc::clone(self)),
            None => {}
        }
        if any_waits {
            self.upstream.hand_on();
        }
    }

    /// Takes an idle connection to the server, or opens one.
    fn set_out(self: &Arc<Self>, server: usize, io: &mut Io<'_>) {
        let thread = io.network_thread();
        let upstream = &self.upstream;
        let idle = match self.state.lock().lost_race {
            true => None,
            false => upstream.pools.lock().take_idle(server, thread),
        };
        if let Some(seat) = idle {
            self.state.lock().step = Step::Out(Arc::clone(&seat));
            return seat.put(Arc::clone(self));
        }
        let seat = Seat::new((server, thread), Arc::clone(self));
        self.state.lock().step = Step::Out(Arc::clone(&seat));
        io.connect(upstream.wish(server, seat));
    }

    /// Its client waits no more.
    fn leave(&self) {
        let mut state = self.state.lock();
        let step = std::mem::replace(&mut state.step, Step::Over);
        let responder = state.responder.take();
        drop(state);
        drop(responder);
        match step {
            Step::Waiting(ticket, _) => {
                let left = self.upstream.pools.lock().group.leave(ticket);
                drop(left);
            }
            Step::Granted(server) => self.upstream.done(server, Outcome::Unknown),
            Step::Out(seat) => seat.wake(),
            Step::New | Step::Over => {}
        }
    }
}

/// The client's side of a trip: dropped, it ends that.
pub(crate) struct Travel(pub(crate) Arc<Trip>);

impl Advance for Travel {
    fn advance(&mut self, io: &mut Io<'_>) -> Option<Duration> {
        self.0.advance(io)
    }
}

impl Drop for Travel {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What a request that waits for a server takes here, in bytes: itself, its two counts, its head as
/// it is most often, and its places in the queue. Beside that is what any deferred response takes.
const WAITING_BYTES: usize = size_of::<Trip>()
    + 2 * size_of::<usize>()
    + super::request::HEAD_BYTES
    + 2 * size_of::<Option<(Arc<Trip>, Wish)>>();

const _: () = assert!(WAITING_BYTES <= 1024, "many may wait");
