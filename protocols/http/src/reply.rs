//! Inline answers: status, headers and body written as bytes, in the order of the wire.
//!
//! A [`Reply`] writes straight into the output of its connection, from a mark on; a service that
//! changes its mind and leaves the request to workers is rolled back to the mark. A reply that does
//! not fit into the reserved buffer moves to scratch space of the network thread ([`Out`]), and is
//! queued from there, all or nothing, when it is complete.
//!
//! `Date`, `Connection` and the framing headers are never the service's business.
//!
//! Cost: one copy of the head, and of a body up to 8 KiB. No allocation once the scratch space has
//! grown.

use bytes::Bytes;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::memory::Buffer;
use http::StatusCode;

use crate::encode::{self, Sink};
use crate::limits::INLINE_COPY_BYTES_MAX;
use crate::message::{Body, Reader, Response};
use crate::respond::{self, Content, Frame, Transfer};

/// Where a request was answered, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Disposition {
    /// Here and now: the reply is complete.
    Answered,
    /// By a worker: whatever was written into the reply is dropped.
    Pooled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    ReplyHeaders,
    Complete,
}

/// Where an inline reply is written.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    /// The connection's output, and how much of the buffer others filled before: `None` once the
    /// reply did not fit.
    output: Option<(&'a mut Buffer, usize)>,
    scratch: &'a mut Vec<u8>,
}

impl<'a> Out<'a> {
    /// Straight into the output, as far as there is room.
    pub(crate) fn reserved(buffer: &'a mut Buffer, scratch: &'a mut Vec<u8>) -> Self {
        scratch.clear();
        let mark = buffer.filled().len();
        Self {
            output: Some((buffer, mark)),
            scratch,
        }
    }

    /// Into scratch space from the beginning.
    pub(crate) fn scratch(scratch: &'a mut Vec<u8>) -> Self {
        scratch.clear();
        Self {
            output: None,
            scratch,
        }
    }

    /// Drops what was written.
    fn roll_back(&mut self) {
        self.scratch.clear();
        if let Some((buffer, mark)) = &mut self.output {
            buffer.truncate(*mark);
        }
    }

    /// Whether `bytes` more fit into the output.
    fn has_room(&self, bytes: usize) -> bool {
        let output = self.output.as_ref();
        output.is_some_and(|(buffer, _)| buffer.room() >= bytes)
    }

    /// Moves what was written to the scratch space.
    fn leave_output(&mut self) {
        if let Some((buffer, mark)) = self.output.take() {
            self.scratch.extend_from_slice(&buffer.filled()[mark..]);
            buffer.truncate(mark);
        }
    }
}

impl Sink for Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        match &mut self.output {
            Some((buffer, _)) if buffer.room() >= bytes.len() => {
                buffer.append(bytes);
            }
            _ => {
                self.leave_output();
                self.scratch.extend_from_slice(bytes);
            }
        }
    }
}

/// An answer being written on the network thread.
#[derive(Debug)]
pub struct Reply<'a> {
    out: Out<'a>,
    date_line: &'a [u8],
    frame: Frame,
    stage: Stage,
    /// The body, where it is not copied after the head.
    shared: Option<Bytes>,
    /// The body, where it has to be read, and how it is sent then.
    reader: Option<Reader>,
    transfer: Transfer,
}

/// A complete inline answer, as the connection queues it.
#[derive(Debug)]
pub(crate) struct Written {
    /// Head and copied body are in the connection's output; otherwise they are in scratch space.
    pub(crate) is_queued: bool,
    pub(crate) keep_alive: bool,
    pub(crate) shared: Option<Bytes>,
    pub(crate) reader: Option<Reader>,
    pub(crate) transfer: Transfer,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(out: Out<'a>, date_line: &'a [u8], frame: Frame) -> Self {
        Self {
            out,
            date_line,
            frame,
            stage: Stage::Nothing,
            shared: None,
            reader: None,
            transfer: Transfer::Whole,
        }
    }

    /// Begins an answer. Whatever was written before is dropped. A status below 200 cannot be a
    /// final answer and becomes 500.
    pub fn head(&mut self, status: StatusCode) -> ReplyHeaders<'_, 'a> {
        self.out.roll_back();
        (self.shared, self.reader) = (None, None);
        self.stage = Stage::ReplyHeaders;
        let status = if status.is_informational() {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            status
        };
        encode::status_line(&mut self.out, status);
        ReplyHeaders {
            reply: self,
            status,
            is_sound: true,
        }
    }

    /// Answers with a head built before: status line and headers, each with its line end, framing
    /// headers included, `Date`, `Connection` and the empty line not. The service vouches for it.
    /// For `HEAD` the body is left out.
    pub fn prebuilt(&mut self, head: &[u8], body: &[u8]) -> Disposition {
        self.begin_prebuilt(head);
        if !self.frame.is_head {
            self.out.put(body);
        }
        Disposition::Answered
    }

    /// As [`Reply::prebuilt`], with a body that is shared and not copied when it is long.
    pub fn prebuilt_shared(&mut self, head: &[u8], body: &Bytes) -> Disposition {
        self.begin_prebuilt(head);
        self.add_shared(body);
        Disposition::Answered
    }

    /// Answers with a response of the http crate. A body that has to be read is left to workers.
    pub fn response(&mut self, response: Response) -> Disposition {
        self.out.roll_back();
        (self.shared, self.reader) = (None, None);
        self.stage = Stage::Complete;
        let (parts, body) = response.into_parts();
        let plan = respond::head(&mut self.out, &parts, &body, self.frame);
        self.frame.keep_alive = plan.keep_alive;
        self.transfer = plan.transfer;
        encode::end_of_head(&mut self.out, self.date_line, self.frame.persistence());
        match body {
            _ if !plan.with_body => {}
            Body::Reader(reader) => self.reader = Some(reader),
            Body::Bytes(bytes) => self.add_shared(&bytes),
            body => body.pieces().for_each(|piece| self.out.put(piece)),
        }
        Disposition::Answered
    }

    /// The connection is to end after this reply. Call it before the reply is complete.
    pub fn close(&mut self) {
        debug_assert!(
            self.stage != Stage::Complete,
            "the reply has already said that it goes on"
        );
        self.frame.keep_alive = false;
    }

    fn begin_prebuilt(&mut self, head: &[u8]) {
        debug_assert!(
            head.ends_with(b"\r\n") && !head.ends_with(b"\r\n\r\n"),
            "lines, no end"
        );
        self.out.roll_back();
        (self.shared, self.reader) = (None, None);
        self.stage = Stage::Complete;
        self.out.put(head);
        encode::end_of_head(&mut self.out, self.date_line, self.frame.persistence());
    }

    fn add_shared(&mut self, body: &Bytes) {
        if self.frame.is_head {
            return;
        }
        let fits = body.len() <= SHARED_COPY_BYTES_MAX && self.out.has_room(body.len());
        if fits || body.len() <= INLINE_COPY_BYTES_MAX {
            self.out.put(body);
        } else {
            self.shared = Some(body.clone());
        }
    }

    /// Ends the head of an answer whose headers stand in `out`, or puts a 500 in its place. True
    /// when it stands.
    fn finish_head(&mut self, is_sound: bool, length: Option<u64>) -> bool {
        self.stage = Stage::Complete;
        if is_sound {
            if let Some(length) = length {
                encode::length_header(&mut self.out, length);
            }
        } else {
            self.out.roll_back();
            encode::status_line(&mut self.out, StatusCode::INTERNAL_SERVER_ERROR);
            encode::length_header(&mut self.out, 0);
        }
        encode::end_of_head(&mut self.out, self.date_line, self.frame.persistence());
        is_sound
    }

    /// The service panicked: the answer is a 500, and the connection ends after it.
    pub(crate) fn fail(&mut self) {
        (self.shared, self.reader) = (None, None);
        self.frame.keep_alive = false;
        self.finish_head(false, None);
    }

    /// The service leaves the request to workers: nothing of the reply stays.
    pub(crate) fn abandon(mut self) {
        self.out.roll_back();
    }

    /// What was written. A reply that was begun and not completed becomes a 500.
    pub(crate) fn written(mut self) -> Written {
        if self.stage != Stage::Complete {
            self.finish_head(false, None);
        }
        let is_copied = |shared: &Bytes| shared.len() <= SHARED_COPY_BYTES_MAX;
        if self.reader.is_some() || self.shared.as_ref().is_some_and(is_copied) {
            // It goes to a worker, or is queued in one buffer with its body.
            self.out.leave_output();
        }
        Written {
            is_queued: self.out.output.is_some(),
            keep_alive: self.frame.keep_alive,
            shared: self.shared,
            reader: self.reader,
            transfer: self.transfer,
        }
    }
}

/// The headers of an answer being written; ends with its body.
#[derive(Debug)]
#[must_use = "an answer without a body is not complete: call empty()"]
pub struct ReplyHeaders<'r, 'a> {
    reply: &'r mut Reply<'a>,
    status: StatusCode,
    is_sound: bool,
}

impl ReplyHeaders<'_, '_> {
    /// Adds a header. `Date`, `Connection`, `Content-Length` and `Transfer-Encoding` are written by
    /// the engine and ignored here. A malformed name or value, which could split the reply, turns
    /// the whole answer into a 500.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        if !encode::is_header(name.as_bytes(), value) {
            self.is_sound = false;
        } else if !encode::is_ours(name.as_bytes()) {
            encode::header(&mut self.reply.out, name.as_bytes(), value);
        }
        self
    }

    /// Completes the answer with a copy of these bytes.
    pub fn body(self, body: &[u8]) -> Disposition {
        let content = Content::of(self.status);
        if self
            .reply
            .finish_head(self.is_sound, content.length(body.len() as u64))
            && content == Content::Any
            && !self.reply.frame.is_head
        {
            self.reply.out.put(body);
        }
        Disposition::Answered
    }

    /// Completes the answer with these bytes, which are shared and not copied when they are many.
    pub fn shared(self, body: &Bytes) -> Disposition {
        let content = Content::of(self.status);
        if self
            .reply
            .finish_head(self.is_sound, content.length(body.len() as u64))
            && content == Content::Any
        {
            self.reply.add_shared(body);
        }
        Disposition::Answered
    }

    /// Completes the answer without a body.
    pub fn empty(self) -> Disposition {
        self.body(&[])
    }

    /// Completes an answer to `HEAD`, or a 304, that tells the length which the body would have. To
    /// any other request it is a 500: a length without its bytes would hang the client.
    pub fn length_only(self, length: u64) -> Disposition {
        let allowed = self.reply.frame.is_head || self.status == StatusCode::NOT_MODIFIED;
        let length = (self.status != StatusCode::NO_CONTENT).then_some(length);
        self.reply.finish_head(self.is_sound && allowed, length);
        Disposition::Answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

    const DATE: &[u8] = b"Date: D\r\n";
    const FRAME: Frame = Frame {
        is_head: false,
        is_old: false,
        keep_alive: true,
    };
    const HEAD_FRAME: Frame = Frame {
        is_head: true,
        ..FRAME
    };

    fn text(frame: Frame, write: impl FnOnce(&mut Reply<'_>) -> Disposition) -> String {
        let mut out = b"left over".to_vec();
        let mut reply = Reply::new(Out::scratch(&mut out), DATE, frame);
        assert_eq!(write(&mut reply), Disposition::Answered);
        let written = reply.written();
        if let Some(shared) = written.shared {
            out.extend_from_slice(&shared);
        }
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn answers_are_framed_dated_and_keep_the_connection() {
        let hello = |reply: &mut Reply<'_>| {
            reply
                .head(StatusCode::OK)
                .header("A", "b")
                .header("Date", "no")
                .body(b"hello")
        };
        let head = "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\nDate: D\r\n";
        assert_eq!(text(FRAME, hello), format!("{head}\r\nhello"));
        assert_eq!(text(HEAD_FRAME, hello), format!("{head}\r\n"));
        let old = Frame {
            is_old: true,
            ..FRAME
        };
        assert_eq!(
            text(old, hello),
            format!("{head}Connection: keep-alive\r\n\r\nhello")
        );
        let last = Frame {
            keep_alive: false,
            ..FRAME
        };
        assert_eq!(
            text(last, hello),
            format!("{head}Connection: close\r\n\r\nhello")
        );
    }

    #[test]
    fn statuses_without_content_carry_none() {
        let with = |code: u16| {
            let status = StatusCode::from_u16(code).expect("a valid code");
            text(FRAME, move |reply| reply.head(status).body(b"content"))
        };
        assert_eq!(with(204), "HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n");
        assert_eq!(with(304), "HTTP/1.1 304 Not Modified\r\nDate: D\r\n\r\n");
        let reset = "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\nDate: D\r\n\r\n";
        assert_eq!(with(205), reset);
        assert!(
            with(100).starts_with("HTTP/1.1 500 "),
            "100 is not a final answer"
        );
    }

    #[test]
    fn a_header_that_would_split_the_reply_makes_it_a_500() {
        let split = |reply: &mut Reply<'_>| {
            reply
                .head(StatusCode::OK)
                .header("A", "b\r\nInjected: c")
                .body(b"hello")
        };
        let refused = text(FRAME, split);
        assert!(
            refused.starts_with("HTTP/1.1 500 ") && !refused.contains("Injected"),
            "{refused}"
        );
        let named = text(FRAME, |reply| {
            reply.head(StatusCode::OK).header("A b", "c").empty()
        });
        assert!(named.starts_with("HTTP/1.1 500 "));
    }

    #[test]
    fn an_answer_that_was_begun_and_left_is_a_500() {
        let mut out = Vec::new();
        let mut reply = Reply::new(Out::scratch(&mut out), DATE, FRAME);
        let _left = reply.head(StatusCode::OK).header("A", "b");
        assert!(reply.written().keep_alive);
        assert!(out.starts_with(b"HTTP/1.1 500 "));
    }

    #[test]
    fn prebuilt_heads_are_dated_and_ended() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n";
        let plain = text(FRAME, |reply| reply.prebuilt(head, b"ok"));
        assert_eq!(
            plain,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: D\r\n\r\nok"
        );
        let shared = text(FRAME, |reply| {
            reply.prebuilt_shared(head, &Bytes::from_static(b"ok"))
        });
        assert_eq!(shared, plain);
        assert!(text(HEAD_FRAME, |reply| reply.prebuilt(head, b"ok")).ends_with("\r\n\r\n"));
    }

    #[test]
    fn long_shared_bodies_are_not_copied() {
        let long = Bytes::from(vec![b'x'; INLINE_COPY_BYTES_MAX + 1]);
        let mut out = Vec::new();
        let mut reply = Reply::new(Out::scratch(&mut out), DATE, FRAME);
        assert_eq!(
            reply.head(StatusCode::OK).shared(&long),
            Disposition::Answered
        );
        let shared = reply.written().shared.expect("it is long");
        assert_eq!(shared.as_ptr(), long.as_ptr());
        assert!(out.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn a_length_alone_answers_head_and_304() {
        let told = text(HEAD_FRAME, |reply| {
            reply.head(StatusCode::OK).length_only(7)
        });
        assert!(told.contains("Content-Length: 7\r\n"), "{told}");
        let not_modified = text(FRAME, |reply| {
            reply.head(StatusCode::NOT_MODIFIED).length_only(7)
        });
        assert!(
            not_modified.contains("Content-Length: 7\r\n"),
            "{not_modified}"
        );
    }

    /// What stands in a buffer of the output after `before`, and in scratch space, after a reply.
    fn reserved(write: impl FnOnce(Reply<'_>)) -> (String, String) {
        let pool = Pool::new(PoolConfig {
            classes: vec![4 * 1024],
            budget_bytes: 1 << 20,
            zero: Zero::Never,
        });
        let mut buffer = pool.take(4 * 1024).expect("the pool has room");
        buffer.append(b"before");
        let mut scratch = b"left over".to_vec();
        write(Reply::new(
            Out::reserved(&mut buffer, &mut scratch),
            DATE,
            FRAME,
        ));
        let output = buffer.filled().strip_prefix(b"before");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        (text(output.expect("it stays")), text(&scratch))
    }

    #[test]
    fn a_reply_that_fits_is_written_into_the_output() {
        let body = Bytes::from(vec![b'x'; 3 * 1024]);
        let (output, scratch) = reserved(|mut reply| {
            assert_eq!(
                reply.head(StatusCode::OK).shared(&body),
                Disposition::Answered
            );
            assert!(reply.written().is_queued);
        });
        assert!(output.starts_with("HTTP/1.1 200 OK\r\n") && output.ends_with("xxx"));
        assert_eq!(scratch, "");
    }

    #[test]
    fn a_reply_that_does_not_fit_leaves_the_output() {
        let body = [b'x'; 5 * 1024];
        let (output, scratch) = reserved(|mut reply| {
            let _answered = reply.head(StatusCode::OK).body(&body);
            assert!(!reply.written().is_queued);
        });
        assert_eq!(output, "");
        assert!(scratch.starts_with("HTTP/1.1 200 OK\r\n") && scratch.ends_with("xxx"));
    }

    #[test]
    fn a_reply_that_is_given_up_leaves_nothing() {
        let (output, _) = reserved(|mut reply| {
            let _begun = reply.head(StatusCode::OK).header("A", "b");
            reply.abandon();
        });
        assert_eq!(output, "");
        let (output, _) = reserved(|mut reply| {
            let _begun = reply.head(StatusCode::OK).header("A", "b");
            assert_eq!(reply.prebuilt(b"HTTP/1.1 404 Not Found\r\n", b""), {
                Disposition::Answered
            });
        });
        assert!(output.starts_with("HTTP/1.1 404 "), "{output}");
    }
}
