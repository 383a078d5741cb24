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
//!
//! A stream goes back to the network thread after every chunk, so a slow client holds no worker.
//! Everything in here is recycled: the request's parts, its arena, the note.

use std::io::{self, Read};
use std::mem;

use flatpath::{Buffer, Entry, Payload, PoolHandle, Share, WorkerScope};
use http::response::Parts;
use http::{Extensions, StatusCode};

use crate::draft::Draft;
use crate::encode::{self, Bounded, END_OF_HEAD_BYTES};
use crate::limits::{REPLY_HEAD_BYTES_MAX, STREAM_CHUNK_BYTES, STREAM_PRESSED_BYTES};
use crate::message::{Body, Reader, Response};
use crate::reply::Frame;
use crate::respond::{self, Plan, Transfer};
use crate::service::Service;
use crate::sink::{Opened, Sink};

/// The size of a chunk: always five digits, because it is written before the size is known.
const CHUNK_PREFIX: &[u8] = b"00000\r\n";

/// What ends a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Framing around the data of one chunk.
const CHUNK_OVERHEAD_BYTES: usize = CHUNK_PREFIX.len() + "\r\n".len() + LAST_CHUNK.len();

const _: () = assert!(
    STREAM_CHUNK_BYTES <= 0xf_ffff,
    "the size of a chunk has five digits"
);

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
}

/// The job of this protocol.
#[derive(Default)]
pub struct Exchange {
    /// Which request of its connection this is.
    pub(crate) number: u32,
    pub(crate) frame: Frame,
    pub(crate) draft: Draft,
    pub(crate) state: State,
    /// The head of the reply, until it is queued. The buffer is taken before the job is dispatched,
    /// so that a reply is never without room.
    pub(crate) head: Option<Buffer>,
    /// The head has its end already.
    pub(crate) head_is_complete: bool,
    pub(crate) keep_alive: bool,
    pub(crate) transfer: Transfer,
    /// The body, where it is in memory.
    pub(crate) body: Body,
    /// What the latest run read of the body.
    pub(crate) chunk: Option<Buffer>,
    stream: Option<Stream>,
    /// The body that the service takes piece by piece.
    pub(crate) upload: Option<Box<Upload>>,
    /// What the service sends to its own lane.
    pub(crate) note: Extensions,
}

/// A request body on its way to its sink.
#[derive(Default)]
pub(crate) struct Upload {
    sink: Option<Box<dyn Sink>>,
    /// What arrived since the last run.
    pub(crate) piece: Payload,
    /// The piece is the last one.
    pub(crate) is_last: bool,
}

impl Upload {
    /// See [`Sink::keeps_parts`].
    pub(crate) fn keeps_parts(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.keeps_parts())
    }
}

/// A body that is being read.
struct Stream {
    source: Box<dyn Read + Send>,
    left: Option<u64>,
    share: Option<Share>,
}

impl Exchange {
    /// Makes this the request that is in the draft.
    pub(crate) fn begin(&mut self, number: u32, frame: Frame, head: Buffer) {
        self.number = number;
        self.frame = frame;
        self.head = Some(head);
        self.head_is_complete = false;
        self.state = State::Fresh;
    }

    /// Makes this the request that is in the draft, whose body is to come.
    pub(crate) fn begin_upload(&mut self, number: u32, frame: Frame, head: Buffer) {
        self.begin(number, frame, head);
        self.upload = Some(Box::default());
        self.state = State::Opening;
    }

    /// Makes this the rest of a reply whose head, complete, is in `head`.
    pub(crate) fn begin_stream(&mut self, number: u32, head: Buffer, reader: Reader) {
        self.number = number;
        self.head = Some(head);
        self.head_is_complete = true;
        self.stream_body(reader);
    }

    /// What is left of the reply is to be read by workers.
    pub(crate) fn stream_body(&mut self, reader: Reader) {
        let left = reader.length;
        self.state = if left == Some(0) {
            State::Answered
        } else {
            State::Streaming
        };
        self.stream = Some(Stream {
            source: reader.source,
            left,
            share: reader.share,
        });
    }

    /// Drops what the request was about and keeps what can be used again.
    pub(crate) fn reset(&mut self) {
        self.draft.clear();
        (self.head, self.chunk, self.stream) = (None, None, None);
        self.upload = None;
        self.body = Body::Empty;
        self.note.clear();
    }

    /// Runs on a worker.
    pub(crate) fn run<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        match self.state {
            State::Fresh => {
                let response = service.pooled(self.draft.request_mut(), scope);
                if scope.is_parked() {
                    return;
                }
                self.answer(response, scope.pool());
                self.draft.clear();
            }
            State::Streaming => {
                // Without a buffer it goes home, where it waits for one.
                self.read_in_turn(scope);
            }
            State::Opening => self.open(service, scope),
            State::Receiving => self.write(scope),
            State::Answered | State::Failed => {
                debug_assert!(false, "a finished exchange is not dispatched again");
            }
        }
    }

    fn open<S: Service>(&mut self, service: &S, scope: &mut WorkerScope<'_>) {
        let opened = service.open(self.draft.request_mut(), scope);
        if scope.is_parked() {
            return;
        }
        self.draft.clear();
        match opened {
            Opened::Sink(sink) => {
                if let Some(upload) = &mut self.upload {
                    upload.sink = Some(sink);
                }
                self.state = State::Receiving;
            }
            Opened::Response(response) => {
                self.upload = None;
                self.frame.keep_alive = false;
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
        let Some(mut sink) = upload.sink.take() else {
            self.state = State::Failed;
            return;
        };
        let written = sink.write(&mut upload.piece, scope);
        if scope.is_parked() {
            upload.sink = Some(sink);
            self.upload = Some(upload);
            return;
        }
        // What a sink left is given back, not offered again.
        upload.piece = Payload::new();
        match written {
            Ok(()) if upload.is_last => {
                let response = sink.finish(scope);
                self.answer(response, scope.pool());
            }
            Ok(()) => {
                upload.sink = Some(sink);
                self.upload = Some(upload);
            }
            Err(response) => {
                drop(sink);
                self.frame.keep_alive &= upload.is_last;
                self.answer(*response, scope.pool());
            }
        }
    }

    /// The service panicked: a reply that was not begun becomes a 500, a stream breaks off.
    pub(crate) fn panicked(&mut self) {
        self.draft.clear();
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
        self.frame.keep_alive = false;
        self.note.clear();
        if let Some(head) = &mut self.head {
            head.clear();
            let plan = respond::head(&mut Bounded::new(head), &parts, &body, self.frame);
            self.adopt(plan, body);
        }
    }

    fn answer(&mut self, response: Response, pool: PoolHandle<'_>) {
        let (mut parts, body) = response.into_parts();
        self.note = mem::take(&mut parts.extensions);
        match self.write_head(&parts, &body, pool) {
            Some(plan) => self.adopt(plan, body),
            // A head that no buffer holds: the handler's mistake, or a memory shortage. Either way
            // the client gets a reply.
            None => self.panicked(),
        }
    }

    fn adopt(&mut self, plan: Plan, body: Body) {
        self.keep_alive = plan.keep_alive;
        self.transfer = plan.transfer;
        self.state = State::Answered;
        match body {
            _ if !plan.with_body => {}
            Body::Reader(reader) => self.stream_body(reader),
            Body::Payload(payload) => self.stream_body(payload.into()),
            body => self.body = body,
        }
    }

    /// Writes the head without its end; None when it needs more room than there is.
    fn write_head(&mut self, parts: &Parts, body: &Body, pool: PoolHandle<'_>) -> Option<Plan> {
        let mut head = self.head.take().or_else(|| pool.take(END_OF_HEAD_BYTES))?;
        let mut out = Bounded::new(&mut head);
        let mut plan = respond::head(&mut out, parts, body, self.frame);
        let mut fits = out.fits(END_OF_HEAD_BYTES);
        if !fits && let Some(mut larger) = pool.take(REPLY_HEAD_BYTES_MAX) {
            let mut out = Bounded::new(&mut larger);
            plan = respond::head(&mut out, parts, body, self.frame);
            fits = out.fits(END_OF_HEAD_BYTES);
            if fits {
                head = larger;
            }
        }
        self.head = Some(head);
        fits.then_some(plan)
    }

    /// Reads the next chunk of the stream where that may block now. None is read when there is no
    /// buffer for it, or when its turn to read has not come.
    fn read_in_turn(&mut self, scope: &mut WorkerScope<'_>) {
        let share = self.stream.as_ref().and_then(|stream| stream.share.clone());
        let _inside = match share.map(|share| share.enter(scope)) {
            Some(Entry::Later) => return,
            Some(Entry::Full) => {
                // What it reads from is stuck: it breaks off, as after an error.
                self.stream = None;
                self.state = State::Failed;
                return;
            }
            Some(Entry::Inside(inside)) => Some(inside),
            None => None,
        };
        self.read_chunk(scope.pool());
    }

    /// Reads the next chunk of the stream, framed as it goes out, if there is a buffer for it.
    fn read_chunk(&mut self, pool: PoolHandle<'_>) {
        debug_assert!(self.chunk.is_none(), "the last chunk has been queued");
        let Some(stream) = &mut self.stream else {
            self.state = State::Failed;
            return;
        };
        let left = stream.left.map_or(usize::MAX, |left| {
            usize::try_from(left).unwrap_or(usize::MAX)
        });
        let chunk_bytes_max = if pool.fair_bytes() < STREAM_PRESSED_BYTES {
            STREAM_PRESSED_BYTES
        } else {
            STREAM_CHUNK_BYTES
        };
        let wanted = left.min(chunk_bytes_max) + CHUNK_OVERHEAD_BYTES;
        // Not from the reserve, which is for replies that are short as a whole.
        let buffer = pool
            .for_bulk()
            .take(wanted)
            .filter(|buffer| buffer.room() > CHUNK_OVERHEAD_BYTES);
        let Some(mut buffer) = buffer else {
            return;
        };
        let data_bytes_max = (buffer.room() - CHUNK_OVERHEAD_BYTES)
            .min(chunk_bytes_max)
            .min(left);
        let is_chunked = self.transfer == Transfer::Chunked;
        if is_chunked {
            buffer.append(CHUNK_PREFIX);
        }
        match read_some(
            stream.source.as_mut(),
            &mut buffer.spare_mut()[..data_bytes_max],
        ) {
            Ok(0) if stream.left.is_none() => {
                buffer.clear();
                if is_chunked {
                    buffer.append(LAST_CHUNK);
                }
                self.end_stream(buffer);
            }
            Ok(bytes) if bytes > 0 => {
                buffer.advance(bytes);
                if is_chunked {
                    close_chunk(&mut buffer, bytes);
                }
                let left = stream.left.as_mut().map(|left| {
                    *left -= bytes as u64;
                    *left
                });
                if left == Some(0) {
                    self.end_stream(buffer);
                } else {
                    self.chunk = Some(buffer);
                }
            }
            // An error, or an end before the length that was told: nothing that looks like the end
            // of the reply may follow.
            _ => {
                self.stream = None;
                self.state = State::Failed;
            }
        }
    }

    fn end_stream(&mut self, last: Buffer) {
        self.chunk = Some(last);
        self.stream = None;
        self.state = State::Answered;
    }
}

/// One read that was not merely interrupted; it cannot have read more than there is room for.
fn read_some(source: &mut dyn Read, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(room) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(bytes) if bytes > room.len() => return Err(io::ErrorKind::InvalidData.into()),
            result => return result,
        }
    }
}

/// Puts the size of the data in front of it and the line end behind it.
fn close_chunk(buffer: &mut Buffer, data_bytes: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut rest = data_bytes;
    for digit in buffer.filled_mut()[..CHUNK_PREFIX.len() - "\r\n".len()]
        .iter_mut()
        .rev()
    {
        *digit = DIGITS[rest % 16];
        rest /= 16;
    }
    buffer.append(b"\r\n");
}

/// What is queued behind the head of a reply whose connection goes on or ends.
pub(crate) fn end_head(head: &mut Buffer, date_line: &[u8], frame: Frame) {
    let mut out = Bounded::new(head);
    encode::end_of_head(&mut out, date_line, frame.persistence());
    debug_assert!(out.fits(0), "the worker left room for the end of the head");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REPLY_BUFFER_BYTES;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

    const FRAME: Frame = Frame {
        is_head: false,
        is_old: false,
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

    fn begun(pool: PoolHandle<'_>, frame: Frame) -> Exchange {
        let mut exchange = Exchange::default();
        exchange.begin(
            0,
            frame,
            pool.take(REPLY_BUFFER_BYTES).expect("the pool has room"),
        );
        exchange
    }

    fn head_of(exchange: &Exchange) -> &str {
        let head = exchange.head.as_ref().expect("a head was written");
        std::str::from_utf8(head.filled()).expect("ASCII")
    }

    /// Every chunk up to the end, as it goes out, and the state behind it.
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

    fn stream(frame: Frame, content: &'static [u8], length: Option<u64>) -> (Vec<u8>, State) {
        let pool = pool();
        let mut exchange = begun((&pool).into(), frame);
        exchange.answer(Response::new(Body::reader(content, length)), (&pool).into());
        chunks(&mut exchange, (&pool).into())
    }

    #[test]
    fn a_body_in_memory_is_answered_in_one_run() {
        let pool = pool();
        let mut exchange = begun((&pool).into(), FRAME);
        exchange.answer(Response::new("hello".into()), (&pool).into());
        assert_eq!(exchange.state, State::Answered);
        assert_eq!(
            head_of(&exchange),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
        );
        assert_eq!(exchange.body.bytes(), Some(&b"hello"[..]));
        exchange.reset();
        assert_eq!(
            pool.statistics().in_use_bytes,
            0,
            "a reset exchange holds nothing"
        );
    }

    #[test]
    fn chunks_are_framed_with_five_digits() {
        let chunked = stream(FRAME, b"hello", None);
        assert_eq!(
            chunked,
            (b"00005\r\nhello\r\n0\r\n\r\n".to_vec(), State::Answered)
        );
        let old = Frame {
            is_old: true,
            ..FRAME
        };
        assert_eq!(
            stream(old, b"hello", None),
            (b"hello".to_vec(), State::Answered)
        );
        assert_eq!(
            stream(FRAME, b"hello", Some(5)),
            (b"hello".to_vec(), State::Answered)
        );
        assert_eq!(
            stream(FRAME, b"", None),
            (b"0\r\n\r\n".to_vec(), State::Answered)
        );
        assert_eq!(stream(FRAME, b"", Some(0)), (Vec::new(), State::Answered));
    }

    #[test]
    fn a_reader_gives_no_more_than_its_length() {
        assert_eq!(
            stream(FRAME, b"hello", Some(3)),
            (b"hel".to_vec(), State::Answered)
        );
    }

    #[test]
    fn a_reader_that_ends_early_has_failed() {
        assert_eq!(
            stream(FRAME, b"hello", Some(6)),
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
        let mut exchange = begun((&pool).into(), FRAME);
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
            let mut exchange = begun((&pool).into(), FRAME);
            let fields = http::Response::builder().header("a", "v".repeat(bytes));
            exchange.answer(
                fields.body(Body::Empty).expect("a valid response"),
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
    fn a_panic_is_a_500_before_the_head_and_a_failure_behind_it() {
        let pool = pool();
        let mut fresh = begun((&pool).into(), FRAME);
        fresh.panicked();
        assert!(head_of(&fresh).starts_with("HTTP/1.1 500 ") && !fresh.keep_alive);
        assert_eq!(fresh.state, State::Answered);
        let mut streaming = begun((&pool).into(), FRAME);
        streaming.answer(
            Response::new(Body::reader(io::repeat(b'x'), None)),
            (&pool).into(),
        );
        streaming.panicked();
        assert_eq!(streaming.state, State::Failed);
    }
}
