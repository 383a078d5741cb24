//! A connection to a server: a request goes out, its reply comes back, and then the next one.
//!
//! ```text
//! connect ─► Connected ─┐                      ┌─ body of the reply ─► Sender ─► client
//!                       ▼                      │
//! idle ─► Woken ─► begin: head, body ─► received: interim, head, body ─► end ─► idle
//!           ▲             ▲                    │                           └──► close
//!           └─ a trip     └─ pieces, room      └─ nothing, rubbish, too late ─► the trip fails
//! ```
//!
//! It is a connection of the network thread of its client. What passes between the two lies in an
//! outbox each way: the request's body in a `Passage`, the reply's in a channel. So a client that
//! does not read stops what is received here once [`REPLY_BYTES_MAX`] wait, and an upstream that
//! does not read stops its client.
//!
//! Invariants
//! - UU1: whatever ends the connection gives its request back once ([`Conversation::give_back`]),
//!   with a verdict by how far it had come.
//! - UU2: nothing is received beyond the reply that is due (UC4 of `codec`), and a connection is
//!   kept only after a reply that ended as it should, with its request sent to the end.
//! - UU3: a client that is gone ends the connection, as nothing else tells its server.

use std::sync::Arc;
use std::time::Duration;

use flatpath::access_log::LogEnd;
use flatpath::{
    ConnectError, ConnectStep, Context, Event, Flushed, Io, ListenerOptions, NoRoom, Phase,
    Protocol, Received, Refused, Stall,
};

use super::codec::{Codec, End, Part, ReplyFault};
use super::failure::Failure;
use super::policy::group::Outcome;
use super::policy::idle::IdleKey;
use super::policy::retry::Progress;
use super::reply::{Answer, Taken, trailers};
use super::request::last_chunk;
use super::seat::Seat;
use super::switched::ClientGone;
use super::trip::{RequestBody, Trip};
use super::upstream::{Shared, UpstreamLimits};
use crate::message::Body;
use crate::respond::encode::ReplyFraming;
use crate::streams::channel::Sender;
use crate::streams::feed::write_piece;
use crate::streams::passage::{BodyEnd, Passage};
use crate::trailers::{Trailers, TrailersEnd};

/// What of a reply waits for its client to read, in bytes, beside one piece.
pub(crate) const REPLY_BYTES_MAX: usize = 64 * 1024;

/// A body that is here with its head, up to this many bytes, goes with it.
const SHORT_BYTES_MAX: usize = 16 * 1024;

/// What connections to servers speak.
pub(crate) struct UpstreamProtocol;

/// What is kept of one.
#[derive(Default)]
pub(crate) struct UpstreamSession(Option<Box<Conversation>>);

impl UpstreamSession {
    pub(crate) fn new(upstream: Arc<Shared>, seat: Arc<Seat<Trip>>) -> Self {
        Self(Some(Box::new(Conversation {
            upstream,
            seat,
            codec: Codec::default(),
            idle: None,
            trip: None,
            sending: Sending::Done,
            reply: Reply::Awaited,
            reply_end: None,
            error: None,
        })))
    }
}

/// What is left of the request to be sent.
enum Sending {
    Done,
    Passing(Arc<Passage>, ReplyFraming),
}

/// Where the reply is.
enum Reply {
    /// Its head has not come.
    Awaited,
    /// Its body passes on.
    Passing(Sender, Option<TrailersEnd>),
    /// It was 101: the rest is the client's, once it is there, if it is not gone.
    Switched(ClientGone),
    /// The client has all of it.
    Over,
}

struct Conversation {
    upstream: Arc<Shared>,
    seat: Arc<Seat<Trip>>,
    codec: Codec,
    /// Its place among those that are idle.
    idle: Option<IdleKey>,
    trip: Option<Arc<Trip>>,
    sending: Sending,
    reply: Reply,
    /// When the reply is to be complete.
    reply_end: Option<Duration>,
    /// Why it does not stand.
    error: Option<ConnectError>,
}

impl Protocol for UpstreamProtocol {
    type ThreadState = ();
    type Session = UpstreamSession;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            name: "upstream",
            ..ListenerOptions::default()
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        match &mut context.session.0 {
            Some(conversation) => conversation.received(&mut context.io, input),
            None => Received::Consumed,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        let Some(conversation) = &mut context.session.0 else {
            return event.by_default(context);
        };
        let io = &mut context.io;
        match event {
            Event::Connected => {
                conversation.seat.connected(io.handle());
                conversation.begin(io);
            }
            Event::ConnectFailed(error) => conversation.error = Some(error),
            Event::Woken => conversation.woken(io),
            Event::OutputLow => conversation.flush(io),
            Event::Expired(phase) => conversation.expired(io, phase),
            Event::Draining | Event::InputEnded(_) if conversation.is_switched() => {}
            Event::Draining if conversation.trip.is_some() => {}
            Event::InputEnded(_) => conversation.input_ended(io),
            Event::Draining => conversation.retire(io),
            other => other.by_default(context),
        }
    }

    fn closed(&self, (): &mut (), session: &mut UpstreamSession, _: Option<LogEnd<'_>>) {
        if let Some(mut conversation) = session.0.take() {
            conversation.closed();
        }
    }
}

impl Conversation {
    fn server(&self) -> (usize, usize) {
        (self.seat.server, self.seat.thread)
    }

    /// Sends the request of the trip that was put into the seat.
    fn begin(&mut self, io: &mut Io<'_>) {
        let Some(trip) = self.seat.take() else {
            return;
        };
        self.idle = None;
        self.trip = Some(Arc::clone(&trip));
        (self.reply, self.reply_end) = (Reply::Awaited, None);
        if trip.is_over() {
            // Its client is gone, and the connection as good as before.
            return self.end(io, Outcome::Unknown, true);
        }
        let request = &trip.request;
        let server = self.upstream.label(self.seat.server);
        let queued = io.reply(|io| {
            let mut head = request.head.parts(server);
            head.try_for_each(|part| io.write(part))?;
            match &request.body {
                RequestBody::Whole(body) if body.is_empty() => Ok(()),
                RequestBody::Whole(body) => io.write_shared(body.clone()),
                RequestBody::Passed(passage, _) => passage.attach(io.handle()),
            }
        });
        if let Err(NoRoom) = queued {
            self.give_back(Some((Failure::NoMemory, Progress::Late)));
            return io.abort();
        }
        self.codec.expect(request.asked);
        let limits = &self.upstream.limits;
        self.reply_end = limits.reply_timeout.map(|time| io.turn().now() + time);
        self.sending = match &request.body {
            RequestBody::Whole(_) => Sending::Done,
            RequestBody::Passed(passage, framing) => {
                Sending::Passing(Arc::clone(passage), *framing)
            }
        };
        self.wait(io, |limits| limits.first_byte_timeout);
        self.flush(io);
    }

    /// The reply, or more of it, is awaited for this long, or to its end.
    fn wait(&self, io: &mut Io<'_>, time: fn(&UpstreamLimits) -> Duration) {
        let end = io.turn().now() + time(&self.upstream.limits);
        let end = self.reply_end.map_or(end, |reply_end| reply_end.min(end));
        io.phase_until(Phase::Timed, end);
    }

    /// What is awaited is not the server's to bring.
    fn rest(&self, io: &mut Io<'_>) {
        match self.reply_end {
            Some(end) => io.phase_until(Phase::Timed, end),
            None => io.phase(Phase::Work),
        }
    }

    /// Sends what there is of a body that is passed on.
    fn flush(&mut self, io: &mut Io<'_>) {
        let (Sending::Passing(passage, framing), Some(trip)) = (&mut self.sending, &self.trip)
        else {
            return;
        };
        let before = io.output_bytes();
        let (flushed, ended) = passage.flush(io, |io, piece| write_piece(io, piece, framing));
        if io.output_bytes() > before {
            trip.touches_body();
        }
        match (flushed, ended) {
            (_, Some(BodyEnd::Aborted)) => {
                self.give_back(None);
                io.abort();
            }
            (Flushed::Ended, Some(BodyEnd::Complete(trailers))) => {
                let last = (*framing == ReplyFraming::Chunked).then(|| last_chunk(&trailers));
                if last.is_some_and(|last| io.write(&last).is_err()) {
                    self.give_back(Some((Failure::NoMemory, Progress::Answered)));
                    return io.abort();
                }
                self.sending = Sending::Done;
                if let Reply::Awaited = self.reply {
                    self.wait(io, |limits| limits.first_byte_timeout);
                }
            }
            (Flushed::NoMemory, _) => io.stall(Stall::Memory),
            _ if matches!(self.reply, Reply::Awaited) => self.rest(io),
            _ => {}
        }
    }

    /// Whether the connection is one of a pair, or is to be.
    fn is_switched(&self) -> bool {
        matches!(self.reply, Reply::Switched(_))
    }

    fn woken(&mut self, io: &mut Io<'_>) {
        if let Reply::Switched(client) = &self.reply {
            // UU3: it has gone before it was joined.
            if client.is_gone() {
                io.abort();
            }
            return;
        }
        let Some(trip) = &self.trip else {
            return self.begin(io);
        };
        let is_gone = match &self.reply {
            Reply::Awaited => trip.is_over(),
            Reply::Passing(sender, _) => sender.is_closed(),
            Reply::Switched(_) | Reply::Over => false,
        };
        if is_gone {
            // UU3: nothing else tells the server.
            self.give_back(None);
            return io.abort();
        }
        self.flush(io);
    }

    fn received(&mut self, io: &mut Io<'_>, input: &[u8]) -> Received {
        if self.is_switched() {
            // For the client, which is not there yet.
            return Received::Blocked {
                consumed: 0,
                on: Stall::Outside,
            };
        }
        // It may have waited for memory.
        self.flush(io);
        let mut rest = input;
        loop {
            let step = match self.codec.awaits_head() {
                true => self.take_head(io, &mut rest),
                false => self.take_body(io, &mut rest),
            };
            match step {
                Ok(Step::On) => {}
                Ok(Step::More { kept }) => {
                    let consumed = input.len() - kept;
                    return Received::NeedMore { consumed };
                }
                Ok(Step::Held) => {
                    let consumed = input.len() - rest.len();
                    let on = Stall::Outside;
                    return Received::Blocked { consumed, on };
                }
                Ok(Step::Over) => return Received::Consumed,
                Err(fault) => {
                    self.broken(io, fault);
                    return Received::Consumed;
                }
            }
        }
    }

    fn take_head(&mut self, io: &mut Io<'_>, rest: &mut &[u8]) -> Result<Step, ReplyFault> {
        let Some(trip) = self.trip.clone() else {
            return match rest.is_empty() {
                true => Ok(Step::More { kept: 0 }),
                false => Err(ReplyFault::Unasked),
            };
        };
        let terms = &trip.request.reply_terms;
        let taken = self.codec.head(rest, |head| Taken::of(head, terms))?;
        let Some((bytes, taken)) = taken else {
            return Ok(Step::More { kept: rest.len() });
        };
        *rest = &rest[bytes..];
        match taken {
            // RFC 9110 10.1.1: the client's to hear, if it waits for that. Other interim replies
            // are for this server alone.
            Taken::Interim(status) => {
                if let (100, Sending::Passing(passage, _)) = (status, &self.sending) {
                    passage.go_on();
                }
                Ok(Step::On)
            }
            Taken::Answer(mut answer) if answer.is_switch() => {
                let offered = trip.request.upgrade.as_deref();
                let switching = &self.upstream.switching;
                let gone = switching.join(io, offered, &mut answer.response);
                self.reply = Reply::Switched(gone.ok_or(ReplyFault::Upgrade)?);
                self.drop_trip();
                // Without a client its side is dropped, which wakes this one.
                trip.answer(answer.response);
                Ok(Step::Held)
            }
            Taken::Answer(answer) => Ok(self.answer(io, (&trip, *answer), rest)),
        }
    }

    /// The head of the reply goes to the client, and its body with it where that is here and short.
    fn answer(
        &mut self,
        io: &mut Io<'_>,
        (trip, answer): (&Trip, Answer),
        rest: &mut &[u8],
    ) -> Step {
        let mut response = answer.response;
        if answer.trailing.is_empty()
            && let Some((body, end)) = self.codec.whole_body(rest, SHORT_BYTES_MAX)
        {
            self.reply = Reply::Over;
            *response.body_mut() = match body.is_empty() {
                // Of an unknown length: the head says so in the way that its client has it.
                true if trip.request.asked.is_head && !answer.has_length => Body::channel(1).1,
                true => Body::Empty,
                false => Body::Bytes(body),
            };
            // Whether or not its client is still there: the connection is as it should be.
            trip.answer(response);
            return self.ended(io, end);
        }
        let (sender, body) = Body::channel(REPLY_BYTES_MAX);
        let connection = io.handle();
        sender.on_event(move || connection.wake());
        *response.body_mut() = body;
        let mut trailers_end = None;
        if !answer.trailing.is_empty() {
            let (end, late) = Trailers::later(answer.trailing);
            trailers_end = Some(end);
            response = late.after(response);
        }
        self.reply = Reply::Passing(sender, trailers_end);
        if !trip.answer(response) {
            self.give_back(None);
            io.abort();
            return Step::Over;
        }
        Step::On
    }

    fn take_body(&mut self, io: &mut Io<'_>, rest: &mut &[u8]) -> Result<Step, ReplyFault> {
        let (codec, before) = (self.codec, *rest);
        match self.codec.body(rest)? {
            Part::More { kept } => {
                self.wait(io, |limits| limits.between_bytes_timeout);
                Ok(Step::More { kept })
            }
            Part::Data(data) => {
                let Reply::Passing(sender, _) = &self.reply else {
                    return Ok(Step::On);
                };
                match sender.try_copy(data) {
                    Ok(()) => Ok(Step::On),
                    Err(Refused::Full(())) => {
                        (self.codec, *rest) = (codec, before);
                        self.rest(io);
                        Ok(Step::Held)
                    }
                    Err(Refused::Closed(())) => {
                        // UU3: its client is gone.
                        self.give_back(None);
                        io.abort();
                        Ok(Step::Over)
                    }
                }
            }
            Part::End(end, lines) => {
                if let Reply::Passing(sender, late) =
                    std::mem::replace(&mut self.reply, Reply::Over)
                {
                    if let Some(late) = late {
                        late.set(trailers(lines));
                    }
                    drop(sender);
                }
                Ok(self.ended(io, end))
            }
        }
    }

    /// The client has all of the reply.
    fn ended(&mut self, io: &mut Io<'_>, end: End) -> Step {
        let is_sent = matches!(self.sending, Sending::Done);
        self.end(io, Outcome::Answered, end == End::Reusable && is_sent);
        Step::Over
    }

    /// The request is done with: the connection is kept for the next one, or ends.
    fn end(&mut self, io: &mut Io<'_>, outcome: Outcome, is_reusable: bool) {
        let keeps = (is_reusable && !io.draining()).then_some(&self.seat);
        let (idle, freed) = self.upstream.ended(self.server(), outcome, keeps);
        self.idle = idle;
        self.drop_trip();
        match self.idle {
            Some(_) => {
                let idle_timeout = self.upstream.limits.idle_timeout;
                io.phase_until(Phase::Idle, io.turn().now() + idle_timeout);
            }
            None => io.close_after_output(),
        }
        // Last: the next one takes this connection.
        self.upstream.follow(self.seat.server, freed);
    }

    /// No more of the request is sent.
    fn drop_trip(&mut self) -> Option<Arc<Trip>> {
        if let Sending::Passing(passage, _) = std::mem::replace(&mut self.sending, Sending::Done) {
            passage.close();
        }
        self.trip.take()
    }

    /// The request has failed, for this reason, or has no client any more; its server has room for
    /// another one. The connection is to be aborted.
    fn give_back(&mut self, failure: Option<(Failure, Progress)>) {
        let reply = std::mem::replace(&mut self.reply, Reply::Over);
        if let Reply::Switched(_) = reply {
            return self.upstream.done(self.seat.server, Outcome::Answered);
        }
        if let Reply::Passing(sender, _) = reply {
            sender.abort();
            if let (Some((failure, _)), Some(trip)) = (&failure, &self.trip) {
                trip.log_cut_off(failure, self.seat.server);
            }
        }
        let again = matches!(
            failure,
            Some((_, Progress::NothingSent | Progress::Unanswered))
        );
        let trip = match again {
            // What is passed on is there for another attempt, if none of it is gone.
            true => {
                self.sending = Sending::Done;
                self.trip.take()
            }
            false => self.drop_trip(),
        };
        let Some(trip) = trip else {
            return;
        };
        let outcome = match &failure {
            Some((failure, _)) if failure.is_of_server() => Outcome::Failed,
            _ => Outcome::Unknown,
        };
        self.upstream.done(self.seat.server, outcome);
        if let Some((failure, progress)) = failure {
            trip.failed(&failure, progress, Some(self.seat.server));
        }
    }

    /// What came is no reply.
    fn broken(&mut self, io: &mut Io<'_>, fault: ReplyFault) {
        self.give_back(Some((Failure::Reply(fault), Progress::Answered)));
        io.abort();
    }

    fn input_ended(&mut self, io: &mut Io<'_>) {
        let failure = self.lost();
        match (self.codec.input_ended(), failure) {
            (Ok(()), _) if self.trip.is_some() => {
                // The end of the connection is that of the body.
                if let Reply::Passing(sender, _) = std::mem::replace(&mut self.reply, Reply::Over) {
                    drop(sender);
                }
                self.end(io, Outcome::Answered, false);
            }
            (Ok(()), _) => self.retire(io),
            (Err(_), failure) => {
                self.give_back(Some(failure));
                io.abort();
            }
        }
    }

    /// What has become of a request whose connection is gone.
    fn lost(&self) -> (Failure, Progress) {
        match (self.codec.is_untouched(), &self.reply) {
            (true, _) => (Failure::Closed, Progress::Unanswered),
            (false, Reply::Awaited) => (Failure::Reply(ReplyFault::CutInHead), Progress::Answered),
            (false, _) => (Failure::Reply(ReplyFault::CutInBody), Progress::Answered),
        }
    }

    fn expired(&mut self, io: &mut Io<'_>, phase: Phase) {
        if self.trip.is_none() || phase != Phase::Timed {
            return self.retire(io);
        }
        let failure = match self.reply {
            Reply::Awaited => Failure::FirstByte,
            Reply::Passing(..) | Reply::Switched(_) | Reply::Over => Failure::Stopped,
        };
        self.give_back(Some((failure, Progress::Late)));
        io.abort();
    }

    /// The connection is needed no more, and no request is to find it.
    fn retire(&mut self, io: &mut Io<'_>) {
        if let Some(key) = self.idle.take() {
            self.upstream.forget(self.server(), key);
        }
        io.close_after_output();
    }

    /// The connection is gone.
    fn closed(&mut self) {
        if let Some(key) = self.idle.take() {
            self.upstream.forget(self.server(), key);
        }
        let lost = self.lost();
        self.give_back(Some(lost));
        // A request that was put here and not looked at.
        self.trip = self.seat.take();
        let failure = match self.error.take() {
            Some(error) if error.step == ConnectStep::Room => {
                (Failure::Connect(error), Progress::Late)
            }
            Some(error) => (Failure::Connect(error), Progress::NothingSent),
            None => (Failure::Closed, Progress::NothingSent),
        };
        self.give_back(Some(failure));
    }
}

/// What is next.
enum Step {
    On,
    /// More has to come; this many bytes at the end of the input are offered again.
    More {
        kept: usize,
    },
    /// The client has to read.
    Held,
    /// What is left of the input is dropped.
    Over,
}
