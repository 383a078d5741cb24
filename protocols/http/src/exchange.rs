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
//! | Refused   | nothing: constant words are left  |                                      |
//!
//! A stream goes back to the network thread after every chunk, so a slow client holds no worker.
//! While a body arrives, no buffer is held for its reply: thousands of slow uploads would take what
//! short replies need. The last piece brings one; an early answer takes one from the reserve, and
//! is refused in constant words where even that has none.
//!
//! Everything in here is recycled: the request's parts, its arena, the note.

use flatpath::WorkerScope;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::memory::{Buffer, Payload, PoolHandle};
use http::response::Parts;
use http::{Extensions, StatusCode};

use crate::encode::{Bounded, END_OF_HEAD_BYTES, FAILURE, REFUSAL, ReplyFraming};
use crate::head::RequestMeta;
use crate::limits::REPLY_HEAD_BYTES_MAX;
use crate::message::{Body, Reader, Response};
use crate::request_builder::RequestBuilder;
use crate::respond::{self, WrittenHead};
use crate::service::{Service, log_panic};
use crate::sink::{Begun, UploadDecision};
use crate::stream::Stream;
use crate::upgrade::{self, Upgrade};

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
    /// There was no buffer for a head: these words are the whole reply, and the last one.
    Refused(&'static str),
}

/// The job of this protocol.
#[derive(Default)]
pub struct Exchange {
    /// Which request of its connection this is.
    pub(crate) number: u32,
    pub(crate) request: RequestMeta,
    pub(crate) builder: RequestBuilder,
    pub(crate) state: State,
    /// The head of the reply, until it is queued. The buffer is taken before the job is dispatched,
    /// so that a reply is never without room; of an upload with its last piece.
    pub(crate) head: Option<Buffer>,
    /// The head has its end already.
    pub(crate) head_is_complete: bool,
    pub(crate) keep_alive: bool,
    /// How the body of the reply is delimited.
    pub(crate) framing: Option<ReplyFraming>,
    /// The body, where it is in memory.
    pub(crate) body: Body,
    /// What the latest run read of the body.
    pub(crate) chunk: Option<Buffer>,
    pub(crate) stream: Option<Stream>,
    /// The body that the service takes piece by piece.
    pub(crate) upload: Option<Box<Upload>>,
    /// What the service sends to its state on the network thread.
    pub(crate) note: Extensions,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Drops a body where that may block; one in memory of the server at once.
pub(crate) fn discard_body(body: Body) {
    match body {
        Body::Empty | Body::Static(_) | Body::Pooled(_) | Body::Payload(_) => {}
        Body::Bytes(bytes) => flatpath::discard_bytes(bytes),
        // It discards what it has by itself.
        Body::Channel(receiver) => drop(receiver),
        Body::Reader(reader) => flatpath::discard(reader),
    }
}

/// A request body on its way to its sink.
pub(crate) struct Upload {
    pub(crate) sink: Begun,
    /// What arrived since the last run.
    pub(crate) piece: Payload,
    /// The piece is the last one.
    pub(crate) is_last: bool,
}

impl Exchange {
    /// Whether this is an upload that waits for more of its body.
    pub(crate) fn is_receiving(&self) -> bool {
        self.state == State::Receiving
    }

    /// Makes this the request that is in the builder.
    pub(crate) fn begin(&mut self, number: u32, request: RequestMeta, head: Option<Buffer>) {
        self.number = number;
        self.request = request;
        self.head = head;
        self.head_is_complete = false;
        self.state = State::Fresh;
    }

    /// Makes this the request that is in the builder, whose body is to come.
    pub(crate) fn begin_upload(&mut self, number: u32, request: RequestMeta) {
        self.begin(number, request, None);
        self.state = State::Opening;
    }

    /// Makes this the rest of a reply whose head, complete, is in `head`.
    pub(crate) fn begin_stream(&mut self, number: u32, head: Buffer, reader: Reader) {
        self.number = number;
        self.head = Some(head);
        self.head_is_complete = true;
        self.stream_body(reader);
    }

    /// Drops what the request was about and keeps what can be used again.
    pub(crate) fn reset(&mut self) {
        self.builder.clear();
        (self.head, self.chunk) = (None, None);
        self.discard();
    }

    /// Drops what is the service's own, where that may block.
    fn discard(&mut self) {
        // A sink looks after itself.
        self.upload = None;
        if let Some(stream) = self.stream.take() {
            flatpath::discard(stream);
        }
        discard_body(std::mem::take(&mut self.body));
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
        match self.state {
            State::Fresh => {
                let response = service.pooled(&mut self.builder.request, scope);
                if scope.is_parked() {
                    return;
                }
                self.answer(response, scope.pool());
                self.builder.clear();
            }
            State::Streaming => {
                // Without a buffer it goes home, where it waits for one.
                self.read_in_turn(scope);
            }
            State::Opening => self.open(service, scope),
            State::Receiving => self.write(scope),
            State::Answered | State::Failed | State::Refused(_) => {
                debug_assert!(false, "a finished exchange is not dispatched again");
            }
        }
    }

    fn open<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        let opened = service.open(&mut self.builder.request, scope);
        if scope.is_parked() {
            return;
        }
        self.builder.clear();
        match opened {
            UploadDecision::Sink(sink) => {
                self.upload = Some(Box::new(Upload {
                    sink: Begun::new(sink),
                    piece: Payload::new(),
                    is_last: false,
                }));
                self.state = State::Receiving;
            }
            UploadDecision::Response(response) => {
                self.request.keep_alive = false;
                self.answer(response, scope.pool());
            }
        }
    }

    /// Hands the sink what arrived, and the end when that was all.
    fn write(&mut self, scope: &mut WorkerScope<'_>) {
        let Some(mut upload) = self.upload.take() else {
            self.state = State::Failed;
            return;
        };
        let written = upload.sink.write(&mut upload.piece, scope);
        if scope.is_parked() {
            self.upload = Some(upload);
            return;
        }
        // What a sink left is given back, not offered again.
        upload.piece = Payload::new();
        match written {
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
    fn fail(&mut self, words: &'static str) {
        self.builder.clear();
        self.stream = None;
        self.chunk = None;
        self.upload = None;
        if self.state == State::Streaming {
            self.state = State::Failed;
            return;
        }
        let mut response = Response::new(Body::from("The request could not be handled.\n"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        let (parts, body) = response.into_parts();
        self.request.keep_alive = false;
        self.note.clear();
        let Some(head) = &mut self.head else {
            self.state = State::Refused(words);
            return;
        };
        head.clear();
        let written = respond::head(&mut Bounded::new(head), &parts, &body, self.request);
        self.adopt(written, body);
    }

    fn answer(&mut self, response: Response, pool: PoolHandle<'_>) {
        let (mut parts, body) = response.into_parts();
        if !upgrade::is_made(&parts, self.request) {
            parts.extensions.remove::<Upgrade>();
        }
        match self.write_head(&parts, &body, pool) {
            Some(written) => {
                self.note = parts.extensions;
                self.adopt(written, body);
            }
            // A head that no buffer holds: the handler's mistake, or a memory shortage. Either way
            // the client gets a reply.
            None => self.fail(REFUSAL),
        }
    }

    fn adopt(&mut self, head: WrittenHead, body: Body) {
        self.keep_alive = head.keep_alive;
        self.framing = head.body;
        self.state = State::Answered;
        match body {
            _ if head.body.is_none() => {}
            Body::Reader(reader) => self.stream_body(reader),
            Body::Payload(payload) => self.stream_body(payload.into()),
            // They are copied anyway: done here, nothing of the program's goes along.
            Body::Bytes(bytes) if bytes.len() <= SHARED_COPY_BYTES_MAX => {
                self.body = Body::Bytes(flatpath::copied(bytes));
            }
            // A channel is for the network thread, as what is in memory.
            body => self.body = body,
        }
    }

    /// Writes the head without its end; None when it needs more room than there is.
    fn write_head(
        &mut self,
        parts: &Parts,
        body: &Body,
        pool: PoolHandle<'_>,
    ) -> Option<WrittenHead> {
        let mut head = self.head.take().or_else(|| pool.take(END_OF_HEAD_BYTES))?;
        let mut out = Bounded::new(&mut head);
        let mut written = respond::head(&mut out, parts, body, self.request);
        let mut fits = out.fits(END_OF_HEAD_BYTES);
        if !fits && let Some(mut larger) = pool.take(REPLY_HEAD_BYTES_MAX) {
            let mut out = Bounded::new(&mut larger);
            written = respond::head(&mut out, parts, body, self.request);
            fits = out.fits(END_OF_HEAD_BYTES);
            if fits {
                head = larger;
            }
        }
        self.head = Some(head);
        fits.then_some(written)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;
    use crate::limits::REPLY_BUFFER_BYTES;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

    const META: RequestMeta = RequestMeta {
        is_head: false,
        is_http_10: false,
        keep_alive: true,
    };

    fn pool() -> Pool {
        let classes = vec![REPLY_BUFFER_BYTES, 64 * 1024, 256 * 1024];
        Pool::new(PoolConfig {
            classes,
            budget_bytes: 1 << 22,
            zero: Zero::Never,
        })
    }

    fn begun(pool: PoolHandle<'_>, request: RequestMeta) -> Exchange {
        let mut exchange = Exchange::default();
        exchange.begin(
            0,
            request,
            Some(pool.take(REPLY_BUFFER_BYTES).expect("the pool has room")),
        );
        exchange
    }

    fn head_of(exchange: &Exchange) -> &str {
        let head = exchange.head.as_ref().expect("a head was written");
        std::str::from_utf8(head.filled()).expect("ASCII")
    }

    /// Every chunk up to the end, as it goes out, and the state after it.
    fn chunks(exchange: &mut Exchange, pool: PoolHandle<'_>) -> (Vec<u8>, State) {
        let mut out = Vec::new();
        for _ in 0..1000 {
            if let Some(chunk) = exchange.chunk.take() {
                out.extend_from_slice(chunk.filled());
            }
            if exchange.state != State::Streaming {
                return (out, exchange.state);
            }
            exchange.read_chunk(pool);
        }
        panic!("the stream has no end");
    }

    fn stream(
        request: RequestMeta,
        content: &'static [u8],
        length: Option<u64>,
    ) -> (Vec<u8>, State) {
        let pool = pool();
        let mut exchange = begun((&pool).into(), request);
        exchange.answer(Response::new(Body::reader(content, length)), (&pool).into());
        chunks(&mut exchange, (&pool).into())
    }

    #[test]
    fn a_body_in_memory_is_answered_in_one_run() {
        let pool = pool();
        let mut exchange = begun((&pool).into(), META);
        exchange.answer(Response::new("hello".into()), (&pool).into());
        assert_eq!(exchange.state, State::Answered);
        assert_eq!(
            head_of(&exchange),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
        );
        assert_eq!(exchange.body.as_bytes(), Some(&b"hello"[..]));
        exchange.reset();
        assert_eq!(
            pool.statistics().in_use_bytes,
            0,
            "a reset exchange holds nothing"
        );
    }

    #[test]
    fn bytes_that_others_share_stay_on_the_worker_where_they_are_copied_anyway() {
        let pool = pool();
        let shared = bytes::Bytes::from(vec![b'x'; 5_000]);
        let _clone = shared.clone();
        let mut exchange = begun((&pool).into(), META);
        exchange.answer(Response::new(shared.into()), (&pool).into());
        assert_eq!(exchange.body.as_bytes(), Some(&[b'x'; 5_000][..]));
        let is_own = matches!(&exchange.body, Body::Bytes(bytes) if bytes.is_unique());
        assert!(is_own, "nothing of it needs the bin");
    }

    #[test]
    fn chunks_are_framed_with_five_digits() {
        let chunked = stream(META, b"hello", None);
        assert_eq!(
            chunked,
            (b"00005\r\nhello\r\n0\r\n\r\n".to_vec(), State::Answered)
        );
        let old = RequestMeta {
            is_http_10: true,
            ..META
        };
        assert_eq!(
            stream(old, b"hello", None),
            (b"hello".to_vec(), State::Answered)
        );
        assert_eq!(
            stream(META, b"hello", Some(5)),
            (b"hello".to_vec(), State::Answered)
        );
        assert_eq!(
            stream(META, b"", None),
            (b"0\r\n\r\n".to_vec(), State::Answered)
        );
        assert_eq!(stream(META, b"", Some(0)), (Vec::new(), State::Answered));
    }

    #[test]
    fn a_reader_gives_no_more_than_its_length() {
        assert_eq!(
            stream(META, b"hello", Some(3)),
            (b"hel".to_vec(), State::Answered)
        );
    }

    #[test]
    fn a_reader_that_ends_early_has_failed() {
        assert_eq!(
            stream(META, b"hello", Some(6)),
            (b"hello".to_vec(), State::Failed)
        );
    }

    #[test]
    fn a_reader_that_says_too_much_has_failed() {
        struct Liar;
        impl Read for Liar {
            fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
                Ok(room.len() + 1)
            }
        }
        let pool = pool();
        let mut exchange = begun((&pool).into(), META);
        exchange.answer(Response::new(Body::reader(Liar, None)), (&pool).into());
        assert_eq!(
            chunks(&mut exchange, (&pool).into()),
            (Vec::new(), State::Failed)
        );
    }

    #[test]
    fn a_large_head_gets_a_large_buffer_and_a_larger_one_is_a_500() {
        let with_value = |bytes: usize| {
            let pool = pool();
            let mut exchange = begun((&pool).into(), META);
            let headers = http::Response::builder().header("a", "v".repeat(bytes));
            exchange.answer(
                headers.body(Body::Empty).expect("a valid response"),
                (&pool).into(),
            );
            let status = head_of(&exchange)["HTTP/1.1 ".len()..][..3].to_owned();
            (status, exchange.keep_alive)
        };
        for bytes in [1, REPLY_BUFFER_BYTES - 100, REPLY_BUFFER_BYTES, 60_000] {
            assert_eq!(with_value(bytes), ("200".to_owned(), true), "{bytes} bytes");
        }
        assert_eq!(with_value(300_000), ("500".to_owned(), false));
    }

    #[test]
    fn a_panic_is_a_500_before_the_head_and_a_failure_after_it() {
        let pool = pool();
        let mut fresh = begun((&pool).into(), META);
        fresh.panicked();
        assert!(head_of(&fresh).starts_with("HTTP/1.1 500 ") && !fresh.keep_alive);
        assert_eq!(fresh.state, State::Answered);
        let mut streaming = begun((&pool).into(), META);
        streaming.answer(
            Response::new(Body::reader(io::repeat(b'x'), None)),
            (&pool).into(),
        );
        streaming.panicked();
        assert_eq!(streaming.state, State::Failed);
    }
}
