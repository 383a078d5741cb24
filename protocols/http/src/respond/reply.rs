//! Inline answers: head and body written as bytes, in the order of the wire.
//!
//! A [`Reply`] writes straight into the output of its connection, from a mark on; a service that
//! changes its mind and leaves the request to workers is rolled back to the mark. A reply that does
//! not fit into the reserved buffer moves to scratch space of the network thread ([`Out`]), and is
//! queued from there, all or nothing, when it is complete.
//!
//! Cost: one copy of the head, and of a body up to 8 KiB. No allocation once the scratch space has
//! grown.

use bytes::Bytes;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::memory::Buffer;
use flatpath::prompt::PromptRight;
use http::{HeaderMap, StatusCode};

use crate::head::RequestMeta;
use crate::message::{Body, Response};
use crate::respond;
use crate::respond::encode::{self, ReplyFraming};
use crate::respond::file_body::FileBody;
use crate::respond::into_response::IntoResponse;
use crate::respond::outgoing::{Outgoing, OutgoingHead, discard_body};
use crate::respond::prebuilt::{PrebuiltHead, amend_headers};
use crate::respond::sink::Sink;
use crate::service::terms::Terms;
use crate::streams::deferred::Pending;
use crate::takeover::upgrade;
use crate::trailers;

/// Where a request was answered, or is to be. Unless it was answered, whatever was written into the
/// reply is dropped.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Disposition<'a> {
    /// Here and now: the reply is complete.
    Answered,
    /// By [`Service::prompt`](crate::Service::prompt), if this right and the rules of
    /// [`flatpath::prompt`] allow a try, and by a worker otherwise. A request with a body, or one
    /// that was tried already, goes to a worker.
    Prompt(&'a PromptRight),
    /// By a worker.
    Pooled,
    /// By a worker, on the terms of a route: see [`Place::Within`](crate::Place).
    Within(&'a Terms),
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
        if let Some((buffer, _)) = &mut self.output {
            if buffer.room() >= bytes.len() {
                buffer.append(bytes);
                return;
            }
            self.leave_output();
        }
        self.scratch.extend_from_slice(bytes);
    }
}

/// An answer being written on the network thread. The last of several answers counts; without any
/// it is a 500.
#[derive(Debug)]
pub struct Reply<'a> {
    out: Out<'a>,
    date: &'a [u8],
    is_complete: bool,
    /// Headers that each answer gets: few have any.
    amendments: Option<Box<HeaderMap>>,
    /// Bytes of the body that were written after the head.
    body_bytes: usize,
    reply: Outgoing,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(out: Out<'a>, date: &'a [u8], request: RequestMeta) -> Self {
        Self {
            out,
            date,
            is_complete: false,
            amendments: None,
            body_bytes: 0,
            reply: Outgoing::new(0, OutgoingHead::QUEUED, request),
        }
    }

    /// Answers with a head built before, and the body whose length that states.
    /// The body is shared and not copied when it is long, and left out of an answer to `HEAD`. It
    /// is the service's, whose bounds it is within: it is not charged to the memory of the server,
    /// and dropped on the network thread. Bytes with an owner whose drop may block are
    /// [`guarded`](flatpath::guarded) first.
    pub fn prebuilt(&mut self, head: &PrebuiltHead, body: &Bytes) -> Disposition<'static> {
        self.roll_back();
        let spoken = self.reply.request.spoken;
        match &self.amendments {
            None => self.out.put(head.written(spoken)),
            Some(by) => {
                let amended = head.amended(head.status(), by, head.length());
                self.out.put(amended.written(spoken));
            }
        }
        self.reply.status = head.status().as_u16();
        self.end_head();
        self.reply.is_charged = true;
        if !self.reply.request.is_head && !self.put_body(body) {
            self.reply.body = Body::Bytes(body.clone());
        }
        Disposition::Answered
    }

    /// The same with a body that is a file, which is sent as [`FileBody`] says.
    pub fn prebuilt_file(&mut self, head: &PrebuiltHead, body: FileBody) -> Disposition<'static> {
        let answered = self.prebuilt(head, &Bytes::new());
        if !self.reply.request.is_head && body.length() > 0 {
            self.reply.framing = ReplyFraming::Length(body.length());
            self.reply.body = body.into();
            // The head is queued once it is known which way the body goes.
            self.out.leave_output();
        }
        answered
    }

    /// Answers with a response of the http crate. A body that has to be read is left to workers.
    pub fn response(&mut self, mut response: Response) -> Disposition<'static> {
        self.roll_back();
        if let Some(pending) = Pending::take(&mut response) {
            self.reply.set_pending(pending);
        }
        let (mut parts, body) = response.into_parts();
        if let Some(by) = &self.amendments {
            amend_headers(&mut parts.headers, by);
        }
        let request = self.reply.request;
        let head = respond::head(&mut self.out, &parts, &body, request);
        self.reply.status = head.status;
        let is_upgraded = upgrade::is_made(&parts);
        // An upgraded connection continues, even while the server drains.
        self.reply.request.keep_alive = head.keep_alive || is_upgraded;
        self.end_head();
        if is_upgraded {
            self.reply.set_upgrade(parts.extensions.remove());
        }
        self.reply.set_request_id(parts.extensions.remove());
        let trailing = parts.extensions.remove();
        let trails = request.takes_trailers && head.body.is_some();
        self.reply
            .set_trailing(trailing.filter(|_| trails).map(Box::new));
        match (head.body, body) {
            (None, body) => discard_body(body),
            (Some(framing @ ReplyFraming::Chunked), body) => {
                (self.reply.body, self.reply.framing) = (trailers::for_chunks(body), framing);
            }
            (Some(_), Body::Bytes(bytes)) if bytes.len() <= SHARED_COPY_BYTES_MAX => {
                let bytes = flatpath::guarded(bytes);
                if !self.put_body(&bytes) {
                    self.reply.body = Body::Bytes(bytes);
                }
            }
            (Some(_), Body::Static(bytes)) if bytes.len() <= SHARED_COPY_BYTES_MAX => {
                if !self.put_body(bytes) {
                    self.reply.body = Body::Static(bytes);
                }
            }
            (Some(framing), body @ Body::Payload(_)) => {
                self.reply.body = Body::Bytes(body.into_bytes());
                self.reply.framing = framing;
            }
            (Some(framing), body) => (self.reply.body, self.reply.framing) = (body, framing),
        }
        if self.reply.is_special() || !matches!(self.reply.body, Body::Empty) {
            // The head is queued once it is known that it may be.
            self.out.leave_output();
        }
        Disposition::Answered
    }

    /// Puts these headers into each answer that is written from now on, in place of those by the
    /// same names; of `Vary` both count. What was put in before stays. An answer that is
    /// [deferred](crate::Deferred) is made elsewhere, without them.
    ///
    /// Cost: a copy of the headers; [`Reply::prebuilt`] writes its head anew.
    pub fn amend(&mut self, headers: &HeaderMap) {
        let mut all = headers.clone();
        if let Some(before) = self.amendments.take() {
            amend_headers(&mut all, &before);
        }
        self.amendments = (!all.is_empty()).then(|| Box::new(all));
    }

    /// The length of the body of what was written: 0 for `HEAD`, and where it is not known.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        let rest = self.reply.body.length().unwrap_or(0);
        self.body_bytes as u64 + rest
    }

    /// The service panicked: the answer is a 500, and the connection ends after it.
    pub(crate) fn fail(&mut self) {
        self.clear();
        self.reply.request.keep_alive = false;
    }

    /// Drops what was written.
    pub(crate) fn roll_back(&mut self) {
        if self.is_complete {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.out.roll_back();
        self.reply = Outgoing::new(0, OutgoingHead::QUEUED, self.reply.request);
        (self.is_complete, self.body_bytes) = (false, 0);
    }

    /// What was written.
    pub(crate) fn written(mut self) -> Outgoing {
        if !self.is_complete {
            let _answered = self.response(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        }
        self.reply.head = match &self.out.output {
            Some(_) => OutgoingHead::Queued {
                body_bytes: self.body_bytes,
            },
            None => OutgoingHead::Bytes(std::mem::take(self.out.scratch)),
        };
        self.reply
    }

    fn end_head(&mut self) {
        encode::end_of_head(&mut self.out, self.date, self.reply.request);
        self.is_complete = true;
    }

    /// Puts a body after its head, if it is short and both are in the output. `false`: it goes with
    /// the reply.
    fn put_body(&mut self, body: &[u8]) -> bool {
        let is_copied = body.len() <= SHARED_COPY_BYTES_MAX;
        if body.is_empty() || is_copied && self.out.has_room(body.len()) {
            self.body_bytes += body.len();
            self.out.put(body);
            return true;
        }
        if is_copied {
            // It is queued in one buffer with its head.
            self.out.leave_output();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Spoken;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

    const DATE: &[u8] = b"Date: D\r\n";
    const META: RequestMeta = RequestMeta {
        is_head: false,
        spoken: Spoken::Http11,
        keep_alive: true,
        takes_trailers: false,
    };
    const HEAD_META: RequestMeta = RequestMeta {
        is_head: true,
        ..META
    };
    fn prebuilt_head() -> PrebuiltHead {
        PrebuiltHead::new(StatusCode::OK, &HeaderMap::new(), Some(5))
    }

    fn text(
        request: RequestMeta,
        write: impl FnOnce(&mut Reply<'_>) -> Disposition<'static>,
    ) -> String {
        let mut out = b"left over".to_vec();
        let mut reply = Reply::new(Out::scratch(&mut out), DATE, request);
        assert!(matches!(write(&mut reply), Disposition::Answered));
        let reply = reply.written();
        let OutgoingHead::Bytes(head) = &reply.head else {
            panic!("it was written to scratch space");
        };
        let body = reply.body.as_bytes().expect("in memory");
        String::from_utf8([head, body].concat()).expect("ASCII")
    }

    #[test]
    fn answers_are_framed_dated_and_keep_the_connection() {
        let hello = |reply: &mut Reply<'_>| {
            let hello = http::Response::builder()
                .header("a", "b")
                .header("date", "no");
            reply.response(hello.body("hello".into()).expect("a valid response"))
        };
        let head = "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\nDate: D\r\n";
        assert_eq!(text(META, hello), format!("{head}\r\nhello"));
        assert_eq!(text(HEAD_META, hello), format!("{head}\r\n"));
        let old = RequestMeta {
            spoken: Spoken::Http10,
            ..META
        };
        assert_eq!(
            text(old, hello),
            format!("{head}Connection: keep-alive\r\n\r\nhello")
        );
        let last = RequestMeta {
            keep_alive: false,
            ..META
        };
        assert_eq!(
            text(last, hello),
            format!("{head}Connection: close\r\n\r\nhello")
        );
    }

    #[test]
    fn the_length_of_a_body_is_known_wherever_it_is() {
        for bytes in [0, 5, 9 * 1024, 64 * 1024, 512 * 1024] {
            for (request, expected) in [(META, bytes), (HEAD_META, 0)] {
                let body = Bytes::from(vec![b'x'; bytes]);
                let mut out = Vec::new();
                let mut reply = Reply::new(Out::scratch(&mut out), DATE, request);
                let _answered = reply.prebuilt(&prebuilt_head(), &body);
                assert_eq!(reply.body_bytes(), expected as u64, "prebuilt");
                let _answered = reply.response(Response::new(body.into()));
                assert_eq!(reply.body_bytes(), expected as u64, "a response");
            }
        }
    }

    #[test]
    fn an_answer_that_was_not_written_is_a_500() {
        let left = text(META, |_| Disposition::Answered);
        assert_eq!(
            left,
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nDate: D\r\n\r\n"
        );
    }

    #[test]
    fn a_panic_makes_the_answer_a_500_and_the_last_one() {
        let failed = text(META, |reply| {
            let answered = reply.prebuilt(&prebuilt_head(), &Bytes::from(vec![b'x'; 64 * 1024]));
            reply.fail();
            answered
        });
        assert!(failed.starts_with("HTTP/1.1 500 "), "{failed}");
        assert!(failed.ends_with("Connection: close\r\n\r\n"), "{failed}");
    }

    #[test]
    fn prebuilt_heads_are_dated_and_ended() {
        let hello = Bytes::from_static(b"hello");
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: D\r\n\r\n";
        let plain = text(META, |reply| reply.prebuilt(&prebuilt_head(), &hello));
        assert_eq!(plain, format!("{head}hello"));
        assert_eq!(
            text(HEAD_META, |reply| reply.prebuilt(&prebuilt_head(), &hello)),
            head
        );
    }

    #[test]
    fn what_is_static_stays_so_as_no_worker_has_to_drop_it() {
        static PAGE: [u8; 2048] = [b'x'; 2048];
        let mut out = Vec::new();
        let mut reply = Reply::new(Out::scratch(&mut out), DATE, META);
        let _answered = reply.response(Response::new(Body::Static(&PAGE)));
        assert!(matches!(reply.written().body, Body::Static(page) if page.len() == PAGE.len()));
    }

    #[test]
    fn prebuilt_answers_allocate_nothing() {
        let (mut out, body) = (Vec::with_capacity(1024), Bytes::from(vec![b'x'; 64 * 1024]));
        // The first clone makes them shared.
        let (_shared, head) = (body.clone(), prebuilt_head());
        let counted = allocation_counter::measure(|| {
            let mut reply = Reply::new(Out::scratch(&mut out), DATE, META);
            assert!(matches!(
                reply.prebuilt(&head, &body),
                Disposition::Answered
            ));
            assert!(matches!(reply.written().body, Body::Bytes(_)));
        });
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }

    /// What a reply with a body of this length leaves in a buffer of the output (after `before`),
    /// in scratch space, and in neither.
    fn reserved(body_bytes: usize) -> (String, String, usize) {
        let pool = Pool::new(PoolConfig {
            classes: vec![4 * 1024],
            budget_bytes: 1 << 20,
            zero: Zero::Never,
        });
        let mut buffer = pool.take(4 * 1024).expect("the pool has room");
        buffer.append(b"before");
        let mut scratch = b"left over".to_vec();
        let mut reply = Reply::new(Out::reserved(&mut buffer, &mut scratch), DATE, META);
        // The last answer counts.
        let _answered = reply.prebuilt(&prebuilt_head(), &Bytes::from_static(b"other"));
        let _answered = reply.prebuilt(&prebuilt_head(), &Bytes::from(vec![b'x'; body_bytes]));
        let reply = reply.written();
        let scratch = match &reply.head {
            OutgoingHead::Bytes(bytes) => bytes.as_slice(),
            _ => b"",
        };
        let output = buffer.filled().strip_prefix(b"before");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        let body = reply.body.as_bytes().expect("in memory");
        (text(output.expect("it stays")), text(scratch), body.len())
    }

    #[test]
    fn a_reply_that_fits_is_written_into_the_output() {
        let (output, _, rest) = reserved(3 * 1024);
        assert!(output.starts_with("HTTP/1.1 200 OK\r\n") && output.ends_with("xxx"));
        assert!(!output.contains("other") && rest == 0);
    }

    #[test]
    fn a_reply_that_is_copied_and_does_not_fit_leaves_the_output() {
        let (output, scratch, rest) = reserved(5 * 1024);
        assert_eq!(output, "");
        assert!(scratch.starts_with("HTTP/1.1 200 OK\r\n") && scratch.ends_with("\r\n\r\n"));
        assert!(rest == 5 * 1024);
    }

    #[test]
    fn a_long_shared_body_is_not_copied() {
        let (output, _, rest) = reserved(64 * 1024);
        assert!(output.starts_with("HTTP/1.1 200 OK\r\n") && output.ends_with("\r\n\r\n"));
        assert!(rest == 64 * 1024);
    }

    #[test]
    fn a_reply_that_is_rolled_back_leaves_nothing() {
        let mut out = Vec::new();
        let mut reply = Reply::new(Out::scratch(&mut out), DATE, META);
        let _answered = reply.prebuilt(&prebuilt_head(), &Bytes::from_static(b"hello"));
        reply.roll_back();
        assert_eq!(out, b"");
    }
}
