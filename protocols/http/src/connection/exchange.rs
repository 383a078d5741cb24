//! One request on its way to a worker and back, and the worker's side of it.
//!
//! | state     | what the next run does            | what comes back with it              |
//! |-----------|-----------------------------------|--------------------------------------|
//! | Fresh     | calls the service                 | a head, perhaps a body or a chunk    |
//! | Streaming | reads one chunk of the body       | a chunk; none when memory was short  |
//! | Answered  | nothing: the reply is complete    |                                      |
//! | Failed    | nothing: the stream broke off     |                                      |
//! | Opening   | asks the service for a sink       | a sink, or a head                    |
//! | Receiving | writes what arrived to the sink   | the sink; a head when it is complete |
//! |           | or refused                        |                                      |
//! | Work      | runs work beside requests         | the work                             |
//! | Deferred  | takes the response that is there  | a head, perhaps a body or a chunk    |
//!
//! A stream goes back to the network thread after every chunk, so a slow client holds no worker.
//! While a body arrives, no buffer is held for its reply: thousands of slow uploads would take what
//! short replies need. The last piece brings one; an early answer takes one from the reserve, and
//! is refused in constant words where even that has none.
//!
//! Everything in here is recycled: the request's parts, its arena, the note.

use std::time::Duration;

use flatpath::WorkerScope;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::memory::{Buffer, Payload, Piped, PoolHandle};
use http::response::Parts;
use http::{Extensions, StatusCode};

use crate::connection::pending_body::PendingBody;
use crate::head::RequestMeta;
use crate::head::fault::Fault;
use crate::head::request_builder::RequestBuilder;
use crate::limits::{
    REPLY_HEAD_BYTES_MAX, UPLOAD_PIECE_BYTES, UPLOAD_PIPE_BYTES_MAX, UPLOAD_REFILLS_MAX,
};
use crate::message::{Body, Response};
use crate::respond::encode::{END_OF_HEAD_BYTES, ReplyFraming};
use crate::respond::into_response::refused;
use crate::respond::outgoing::{Outgoing, OutgoingHead};
use crate::respond::sink::Bounded;
use crate::respond::words::{FAILURE, REFUSAL, Words};
use crate::respond::{self, WrittenHead};
use crate::service::sink::{Begun, Sink, UploadDecision};
use crate::service::terms::JobTerms;
use crate::service::{ArrivesWhole, Service, log_panic};
use crate::streams::deferred::Pending;
use crate::takeover::tunnel::TunnelWork;
use crate::takeover::upgrade;
use crate::trailers::{self, Trailers};

/// What the next run of an exchange is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Fresh,
    Answered,
    Streaming,
    Failed,
    Opening,
    Receiving,
    Work,
    Deferred,
}

/// How the body of a request comes to what takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Piece by piece; an answer before its end is the last of the connection.
    #[default]
    Pieces,
    /// All of it at once; where it is short, an answer before that is one of many.
    Whole { is_short: bool },
}

/// The job of this protocol.
#[derive(Default)]
pub struct Exchange {
    /// Which request of its connection this is.
    pub(crate) number: u32,
    pub(crate) request: RequestMeta,
    pub(crate) builder: RequestBuilder,
    pub(crate) state: State,
    /// For the head of the reply. It is taken before the job is dispatched, so that a reply is
    /// never without room; of an upload with its last piece.
    pub(crate) buffer: Option<Buffer>,
    /// The reply, once there is one, until it is sent; if it is a stream, until the last chunk is.
    pub(crate) reply: Option<Outgoing>,
    /// What the latest run read of the body.
    pub(crate) chunk: Option<Buffer>,
    /// The body that a sink takes.
    pub(crate) upload: Option<Box<Upload>>,
    pub(crate) arrival: Arrival,
    /// Why the body will never be complete.
    pub(crate) refusal: Option<Fault>,
    /// The client is answered that, and it is to be counted.
    refused: Option<Fault>,
    /// Of a tunnel, or of a time-out.
    pub(crate) work: Option<Box<dyn TunnelWork>>,
    /// The response that is made elsewhere.
    pub(crate) pending: Option<Box<Pending>>,
    /// What the service sends to its state on the network thread.
    pub(crate) note: Extensions,
    /// On which workers get it, and since when it counts, in the time of `Turn::now`.
    pub(crate) terms: JobTerms,
    pub(crate) arrived: Duration,
    /// Its connection sends files as they are.
    pub(crate) sends_files: bool,
    /// What it began with is done: it is to be dispatched as what follows.
    pub(crate) has_ended_work: bool,
    /// Its connection takes it back if no worker has begun with it in time: see `defer`.
    pub(crate) is_awaited: bool,
}

flatpath::opaque_debug! {
    impl[] Exchange as "Exchange";
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.discard();
    }
}

/// A request body on its way to its sink.
pub(crate) struct Upload {
    pub(crate) sink: Begun,
    /// What arrived since the last run.
    pub(crate) piece: Payload,
    /// What came after that, in a pipe.
    pub(crate) piped: Option<Piped>,
    /// How much may come after that in the same pipe, and how much has.
    pub(crate) left: u64,
    pub(crate) refilled: u64,
    /// The piece is the last one, and these come after it.
    pub(crate) is_last: bool,
    pub(crate) trailers: Trailers,
}

impl Upload {
    fn new(sink: Box<dyn Sink>) -> Self {
        Self {
            sink: Begun::new(sink),
            piece: Payload::new(),
            piped: None,
            left: 0,
            refilled: 0,
            is_last: false,
            trailers: Trailers::default(),
        }
    }

    /// What has gathered is the next piece.
    pub(crate) fn bring(&mut self, pending: &mut PendingBody, is_last: bool) {
        self.piece = std::mem::take(&mut pending.piece);
        self.trailers = std::mem::take(&mut pending.trailers);
        self.is_last = is_last;
    }

    /// Hands the sink what there is; what it leaves is given back, not offered again. Told to wait,
    /// it is called again for what it was called for.
    fn write(&mut self, scope: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        if !self.trailers.0.is_empty() {
            self.sink.trailers(std::mem::take(&mut self.trailers.0));
        }
        if self.piped.is_none() || !self.piece.is_empty() {
            let written = self.sink.write(&mut self.piece, scope);
            if scope.is_parked() {
                return written;
            }
            self.piece = Payload::new();
            written?;
        }
        self.write_pipes(scope)
    }

    /// The same with what lies in the pipe, and with what has come meanwhile, while that is much
    /// and no other job waits for this worker.
    fn write_pipes(&mut self, scope: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        let Some(piped) = &mut self.piped else {
            return Ok(());
        };
        for refills_left in (0..UPLOAD_REFILLS_MAX).rev() {
            let written = self.sink.write_piped(piped, scope);
            if scope.is_parked() {
                return written;
            }
            written?;
            let most = self.left.min(u64::from(UPLOAD_PIPE_BYTES_MAX)) as usize;
            let may_go_on = refills_left > 0 && !scope.others_wait();
            if !may_go_on || most < UPLOAD_PIECE_BYTES || !piped.refill(UPLOAD_PIECE_BYTES..=most) {
                break;
            }
            let bytes = piped.len() as u64;
            self.left = self.left.saturating_sub(bytes);
            self.refilled += bytes;
        }
        self.piped = None;
        Ok(())
    }
}

impl Exchange {
    /// Whether this is an upload that waits for more of its body.
    pub(crate) fn is_receiving(&self) -> bool {
        self.state == State::Receiving
    }

    /// Whether the sink of this upload takes pipes, and how much came in them that was not known
    /// when it was dispatched.
    pub(crate) fn take_refilled(&mut self) -> (bool, u64) {
        let Some(upload) = &mut self.upload else {
            return (false, 0);
        };
        let refilled = std::mem::take(&mut upload.refilled);
        (upload.sink.takes_pipes(), refilled)
    }

    /// Whether this waits for a response that is made elsewhere.
    pub(crate) fn is_deferred(&self) -> bool {
        self.state == State::Deferred
    }

    /// Makes this the request that is in the builder.
    pub(crate) fn begin(&mut self, number: u32, request: RequestMeta, buffer: Option<Buffer>) {
        self.number = number;
        self.request = request;
        self.buffer = buffer;
        self.state = State::Fresh;
        self.terms = JobTerms::default();
        (self.is_awaited, self.has_ended_work) = (false, false);
        self.sends_files = false;
    }

    /// Makes this the request that is in the builder, whose body is to come.
    pub(crate) fn begin_upload(&mut self, number: u32, request: RequestMeta, arrival: Arrival) {
        self.begin(number, request, None);
        self.state = State::Opening;
        (self.arrival, self.refusal) = (arrival, None);
        if arrival != Arrival::Pieces {
            let extensions = self.builder.request.extensions_mut();
            extensions.insert(ArrivesWhole);
        }
    }

    /// All of the body of a request that was opened is here.
    pub(crate) fn bring_whole(&mut self, body: Body, trailers: Trailers) {
        let Some(upload) = &mut self.upload else {
            *self.builder.request.body_mut() = body;
            trailers.leave(&mut self.builder.request);
            self.state = State::Fresh;
            return;
        };
        (upload.is_last, upload.trailers) = (true, trailers);
        upload.piece = match body {
            Body::Pooled(buffer) => {
                let mut piece = Payload::new();
                piece.push_buffer(buffer);
                piece
            }
            Body::Payload(payload) => payload,
            _ => Payload::new(),
        };
    }

    /// Whether the next run begins with a request that is complete.
    pub(crate) fn begins(&self) -> bool {
        let has_come = |upload: &Upload| upload.is_last && self.arrival != Arrival::Pieces;
        match self.state {
            State::Fresh => true,
            State::Receiving => self.upload.as_deref().is_some_and(has_come),
            _ => false,
        }
    }

    /// Makes this work: of the tunnel on this stream, or of none.
    pub(crate) fn begin_work(&mut self, number: u32, work: Box<dyn TunnelWork>) {
        self.begin(number, RequestMeta::default(), None);
        self.work = Some(work);
        self.state = State::Work;
    }

    /// Makes this a reply that was made on the network thread and whose body is to be read.
    pub(crate) fn begin_reply(&mut self, number: u32, reply: Outgoing) {
        self.begin(number, reply.request, None);
        self.reply_with(reply);
    }

    /// Makes this a request whose response an inline handler has deferred.
    pub(crate) fn begin_deferred(&mut self, number: u32, request: RequestMeta, of: Pending) {
        self.begin(number, request, None);
        self.defer(of);
    }

    /// Waits for the response without a buffer for it.
    fn defer(&mut self, pending: Pending) {
        (self.pending, self.buffer) = (Some(Box::new(pending)), None);
        self.state = State::Deferred;
    }

    /// Drops what the request was about and keeps what can be used again.
    pub(crate) fn reset(&mut self) {
        self.builder.clear();
        (self.buffer, self.chunk) = (None, None);
        self.discard();
    }

    /// Drops what is the service's own, where that may block.
    fn discard(&mut self) {
        // A sink looks after itself, and so does a reply.
        (self.upload, self.reply, self.pending) = (None, None, None);
        if let Some(work) = self.work.take() {
            flatpath::discard(work);
        }
        self.discard_note();
    }

    /// Drops what is left of the note.
    pub(crate) fn discard_note(&mut self) {
        if !self.note.is_empty() {
            flatpath::discard(std::mem::take(&mut self.note));
        }
    }

    /// Runs on a worker.
    pub(crate) fn run<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        if self.terms.then.is_some() {
            scope.begin_kept_work();
        }
        self.run_on(service, scope);
        self.has_ended_work = scope.has_ended_kept_work();
    }

    fn run_on<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        match self.state {
            State::Fresh => self.serve(service, scope),
            State::Streaming => {
                // Without a buffer it goes home, where it waits for one.
                self.read_in_turn(scope);
            }
            State::Opening => self.open(service, scope),
            State::Receiving => self.write(scope),
            State::Work => {
                if let Some(work) = &mut self.work {
                    work.run();
                }
            }
            State::Deferred => match self.pending.take() {
                Some(pending) => self.answer(pending.response(), scope.pool()),
                None => self.fail(FAILURE),
            },
            State::Answered | State::Failed => {
                debug_assert!(false, "a finished exchange is not dispatched again");
            }
        }
    }

    fn open<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        let opened = service.open(&mut self.builder.request, scope);
        if scope.is_parked() {
            return;
        }
        let refusal = self.refusal.take();
        match opened {
            UploadDecision::Sink(sink) if let Some(fault) = refusal => {
                self.builder.clear();
                let refused = Begun::new(sink).refused(response_to(fault));
                self.refuse(fault, refused, scope.pool());
            }
            UploadDecision::Sink(sink) => {
                self.builder.clear();
                self.upload = Some(Box::new(Upload::new(sink)));
                self.state = State::Receiving;
            }
            UploadDecision::Response(response) => {
                self.builder.clear();
                self.request.keep_alive &= self.arrival == Arrival::Whole { is_short: true };
                self.answer(response, scope.pool());
            }
            UploadDecision::Whole => match (refusal, self.arrival) {
                (Some(fault), _) => {
                    self.builder.clear();
                    self.refuse(fault, response_to(fault), scope.pool());
                }
                (None, Arrival::Whole { .. }) => self.state = State::Receiving,
                // It says so itself that its body is not read.
                (None, Arrival::Pieces) => {
                    self.request.keep_alive = false;
                    self.serve(service, scope);
                }
            },
        }
    }

    /// Why the body was refused, if the latest run has answered that.
    pub(crate) fn take_refused(&mut self) -> Option<Fault> {
        self.refused.take()
    }

    /// The body will never be complete: this is what is left to say.
    fn refuse(&mut self, fault: Fault, response: Response, pool: PoolHandle<'_>) {
        self.refused = Some(fault);
        self.request.keep_alive = false;
        self.answer(response, pool);
    }

    fn serve<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        let response = service.pooled(&mut self.builder.request, scope);
        if scope.is_parked() {
            return;
        }
        self.answer(response, scope.pool());
        self.builder.clear();
    }

    /// Hands the sink what arrived, and the end when that was all.
    fn write(&mut self, scope: &mut WorkerScope<'_>) {
        let Some(mut upload) = self.upload.take() else {
            // The head has decided nothing.
            return match self.refusal.take() {
                Some(fault) => {
                    self.builder.clear();
                    self.refuse(fault, response_to(fault), scope.pool());
                }
                None => self.state = State::Failed,
            };
        };
        let written = match self.refusal {
            Some(_) if upload.piece.is_empty() => Ok(()),
            _ => upload.write(scope),
        };
        if scope.is_parked() {
            self.upload = Some(upload);
            return;
        }
        match written {
            Ok(()) if let Some(fault) = self.refusal.take() => {
                let refused = upload.sink.refused(response_to(fault));
                self.refuse(fault, refused, scope.pool());
            }
            Ok(()) if upload.is_last => {
                let response = upload.sink.finish(scope);
                self.answer(response, scope.pool());
            }
            Ok(()) => self.upload = Some(upload),
            Err(response) => {
                self.request.keep_alive &= upload.is_last;
                self.answer(*response, scope.pool());
            }
        }
    }

    /// The service panicked: a reply that was not begun becomes a 500, a stream breaks off.
    pub(crate) fn panicked(&mut self) {
        if let Some(work) = &mut self.work {
            return work.panicked();
        }
        let request = &self.builder.request;
        match self.state {
            State::Fresh | State::Opening => {
                log_panic(request.method().as_str(), request.uri().path());
            }
            _ => log::error!("the source or the sink of a body panicked; its exchange breaks off"),
        }
        self.fail(FAILURE);
    }

    /// A 500 if there is a buffer for it, else these words.
    fn fail(&mut self, words: &'static Words) {
        self.builder.clear();
        self.chunk = None;
        self.upload = None;
        if self.state == State::Streaming {
            return self.break_off();
        }
        self.request.keep_alive = false;
        self.note.clear();
        let Some(mut buffer) = self.buffer.take() else {
            return self.reply_with(Outgoing::words(words, self.request));
        };
        let mut response = Response::new(Body::from("The request could not be handled.\n"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        let (parts, body) = response.into_parts();
        buffer.clear();
        let written = respond::head(&mut Bounded::new(&mut buffer), &parts, &body, self.request);
        self.adopt(buffer, written, body);
    }

    /// The body of the reply ends before its end.
    pub(crate) fn break_off(&mut self) {
        if let Some(reply) = &mut self.reply {
            reply.discard_body();
        }
        self.state = State::Failed;
    }

    pub(crate) fn answer(&mut self, mut response: Response, pool: PoolHandle<'_>) {
        if let Some(pending) = Pending::take(&mut response) {
            return self.defer(pending);
        }
        let (mut parts, body) = response.into_parts();
        let is_upgraded = upgrade::is_made(&parts);
        match self.write_head(&parts, &body, pool) {
            Some((head, written)) => {
                let trails = self.request.takes_trailers && written.body.is_some();
                self.adopt(head, written, body);
                let upgrade = parts.extensions.remove().filter(|_| is_upgraded);
                if let Some(reply) = &mut self.reply {
                    reply.set_upgrade(upgrade);
                    reply.set_request_id(parts.extensions.remove());
                    let trailing = parts.extensions.remove();
                    reply.set_trailing(trailing.filter(|_| trails).map(Box::new));
                }
                self.note = parts.extensions;
            }
            // A head that no buffer holds: the handler's mistake, or a memory shortage. Either way
            // the client gets a reply.
            None => self.fail(REFUSAL),
        }
    }

    fn adopt(&mut self, head: Buffer, written: WrittenHead, body: Body) {
        let request = RequestMeta {
            keep_alive: written.keep_alive,
            ..self.request
        };
        let mut reply = Outgoing::new(written.status, OutgoingHead::Open(head), request);
        if let Some(framing) = written.body {
            reply.framing = framing;
            reply.body = match body {
                body if framing == ReplyFraming::Chunked => trailers::for_chunks(body),
                Body::Payload(payload) => Body::Reader(payload.into()),
                // They are copied anyway: done here, nothing of the program's goes along.
                Body::Bytes(bytes) if bytes.len() <= SHARED_COPY_BYTES_MAX => {
                    Body::Bytes(flatpath::copied(bytes))
                }
                // A channel is for the network thread, as what is in memory.
                body => body,
            };
        }
        self.reply_with(reply);
    }

    /// This is the reply; a body that is to be read is read by the next runs.
    pub(crate) fn reply_with(&mut self, mut reply: Outgoing) {
        self.state = match &reply.body {
            Body::Reader(reader) if reader.length == Some(0) => {
                reply.discard_body();
                State::Answered
            }
            body if body.is_read(self.sends_files) => State::Streaming,
            _ => State::Answered,
        };
        self.reply = Some(reply);
    }

    /// Writes the head without its end; None when it needs more room than there is.
    fn write_head(
        &mut self,
        parts: &Parts,
        body: &Body,
        pool: PoolHandle<'_>,
    ) -> Option<(Buffer, WrittenHead)> {
        let mut head = self
            .buffer
            .take()
            .or_else(|| pool.take(END_OF_HEAD_BYTES))?;
        let mut out = Bounded::new(&mut head);
        let written = respond::head(&mut out, parts, body, self.request);
        if out.fits(END_OF_HEAD_BYTES) {
            return Some((head, written));
        }
        if let Some(mut larger) = pool.take(REPLY_HEAD_BYTES_MAX) {
            let mut out = Bounded::new(&mut larger);
            let written = respond::head(&mut out, parts, body, self.request);
            if out.fits(END_OF_HEAD_BYTES) {
                return Some((larger, written));
            }
        }
        self.buffer = Some(head);
        None
    }
}

/// What a client gets whose body is refused, before layers change it.
fn response_to(fault: Fault) -> Response {
    refused(fault.status(), &fault)
}

#[cfg(test)]
mod tests;
