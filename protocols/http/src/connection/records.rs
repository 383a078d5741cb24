//! Lines of requests in the access log: what of a request is remembered until its reply is sent.
//!
//! A session has [`Records`] where its server has an access log; a [`Log`] is made only then. A
//! request that is answered at once with a short reply is logged from the head it came with.
//! Another one leaves a record: `pending` until it has a number, then in `owed`, in the order
//! of the requests, which is that of the replies.
//!
//! A line is written when its reply is queued completely and at most [`UNSENT_BYTES_MAX`] of the
//! connection's output are left; those count as sent. What is not logged when the connection ends
//! is logged then, with what the kernel has taken of it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use flatpath::Io;
use flatpath::access_log::{LogEnd, LoggedPeer, RequestLine};
use http::Version;

use crate::connection::client::{Client, Proxies};
use crate::extract::request_id::RequestId;
use crate::head::Head;
use crate::head::chars;
use crate::head::scan::empty_lines_bytes;
use crate::limits::{MALFORMED_LOGGED_BYTES_MAX, SPARES_MAX, UNSENT_BYTES_MAX};
use crate::respond::outgoing::Outgoing;

/// What a connection remembers for its lines.
pub(crate) struct Records {
    peer: LoggedPeer,
    pending: Option<Box<Record>>,
    owed: VecDeque<Box<Record>>,
}

/// A request that is not logged yet.
#[derive(Default)]
pub(crate) struct Record {
    /// Method, target, referer, user agent and route, one after the other, and where each of the
    /// first four ends.
    text: Vec<u8>,
    ends: [usize; 4],
    has: [bool; 2],
    /// The method is the beginning of a request line that could not be read.
    is_malformed: bool,
    /// Why it was refused.
    reason: Option<&'static str>,
    client: Option<IpAddr>,
    id: Option<RequestId>,
    log: u16,
    version: &'static str,
    since: Duration,
    /// Of the reply; 0 before it has begun.
    status: u16,
    /// Where its body begins in the connection's output, from the connection's beginning on.
    body_from: u64,
    /// Where it ends there, once it is queued completely.
    end: Option<u64>,
}

/// What a line says of the head of a request.
#[derive(Default)]
struct Asked<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: &'static str,
    referer: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    route: Option<&'a str>,
    client: Option<IpAddr>,
}

impl<'a> Asked<'a> {
    fn of(head: &Head<'a>, client: Option<IpAddr>) -> Self {
        let (mut referer, mut user_agent) = (None, None);
        for header in head.headers {
            // The length alone rules out nearly every other header.
            let (found, name) = match header.name.len() {
                7 => (&mut referer, "Referer"),
                10 => (&mut user_agent, "User-Agent"),
                _ => continue,
            };
            let is_it = || header.name == name || header.name.eq_ignore_ascii_case(name);
            if found.is_none() && is_it() {
                *found = Some(header.value);
            }
        }
        Self {
            method: head.method().as_bytes(),
            target: head.spelled.as_bytes(),
            version: match head.version() {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            referer,
            user_agent,
            route: head.route,
            client,
        }
    }

    fn line(self) -> RequestLine<'a> {
        RequestLine {
            method: self.method,
            target: self.target,
            version: self.version,
            referer: self.referer,
            user_agent: self.user_agent,
            route: self.route.map(str::as_bytes),
            client: self.client,
            ..RequestLine::default()
        }
    }
}

impl Record {
    fn fill(&mut self, asked: &Asked<'_>) {
        let optional = [asked.referer, asked.user_agent];
        let [referer, user_agent] = optional.map(Option::unwrap_or_default);
        let texts = [asked.method, asked.target, referer, user_agent];
        self.text.clear();
        for (end, text) in self.ends.iter_mut().zip(texts) {
            self.text.extend_from_slice(text);
            *end = self.text.len();
        }
        self.has = optional.map(|text| text.is_some());
        (self.version, self.client) = (asked.version, asked.client);
        let route = asked.route.unwrap_or_default();
        self.text.extend_from_slice(route.as_bytes());
    }

    /// The same of a head that could not be read, as far as its first line came.
    fn fill_unread(&mut self, text: &[u8]) {
        let line = RefusedLine::of(text);
        self.is_malformed = line.is_malformed;
        self.fill(&Asked {
            method: line.method,
            target: line.target,
            version: line.version,
            ..Asked::default()
        });
    }

    /// Why it was refused before a service saw it.
    pub(crate) fn refused(&mut self, reason: &'static str) {
        self.reason = Some(reason);
    }

    /// What the program calls it.
    pub(crate) fn named(&mut self, id: Option<&RequestId>) {
        self.id = id.cloned();
    }

    /// Its line at `now`, for a reply of whose connection the kernel has taken `sent_bytes`.
    fn line(&self, now: Duration, sent_bytes: u64) -> RequestLine<'_> {
        let [method, target, referer, agent] = self.ends;
        let route = &self.text[agent..];
        let end = self.end.unwrap_or(u64::MAX);
        let body_end = match self.status {
            0 => 0,
            _ => sent_bytes.min(end),
        };
        let first = &self.text[..method];
        RequestLine {
            method: if self.is_malformed { &[] } else { first },
            malformed: self.is_malformed.then_some(first),
            reason: self.reason,
            target: &self.text[method..target],
            version: self.version,
            status: self.status,
            body_bytes: body_end.saturating_sub(self.body_from),
            duration: now.saturating_sub(self.since),
            is_aborted: sent_bytes < end,
            referer: self.has[0].then(|| &self.text[target..referer]),
            user_agent: self.has[1].then(|| &self.text[referer..agent]),
            client: self.client,
            log: self.log,
            route: (!route.is_empty()).then_some(route),
            id: self.id.as_ref().map(RequestId::as_bytes),
        }
    }
}

/// The first line of a head that could not be read.
#[derive(Debug, PartialEq, Eq)]
struct RefusedLine<'a> {
    /// All of it, if it is malformed.
    method: &'a [u8],
    target: &'a [u8],
    version: &'static str,
    is_malformed: bool,
}

impl<'a> RefusedLine<'a> {
    /// Of what came of a head. Its words are told apart where it is complete and they are those of
    /// a request line.
    fn of(text: &'a [u8]) -> Self {
        let text = &text[empty_lines_bytes(text)..];
        let end = memchr::memchr2(b'\r', b'\n', text);
        let line = &text[..end.unwrap_or(text.len())];
        let mut words = line.split(|byte| *byte == b' ');
        let words = (words.next(), words.next(), words.next(), words.next());
        let version = |version: &[u8]| match version {
            b"HTTP/1.0" => Some("HTTP/1.0"),
            b"HTTP/1.1" => Some("HTTP/1.1"),
            _ => None,
        };
        if let (Some(method), Some(target), Some(last), None) = words
            && end.is_some()
            && chars::is_token_word(method)
            && !target.is_empty()
            && let Some(version) = version(last)
        {
            return Self {
                method,
                target,
                version,
                is_malformed: false,
            };
        }
        Self {
            method: &line[..line.len().min(MALFORMED_LOGGED_BYTES_MAX)],
            target: &[],
            version: "",
            is_malformed: true,
        }
    }
}

/// What became of the reply in a stream of its own.
#[cfg(feature = "http2")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamSent {
    /// 0 before there is a reply.
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) is_complete: bool,
}

#[cfg(feature = "http2")]
impl Record {
    fn note(&mut self, sent: StreamSent) {
        self.status = sent.status;
        self.end = sent.is_complete.then_some(sent.body_bytes);
    }
}

impl Records {
    /// The connection ends before this stream.
    #[cfg(feature = "http2")]
    pub(crate) fn log_stream(&self, record: &mut Record, sent: StreamSent, end: &mut LogEnd<'_>) {
        record.note(sent);
        let line = record.line(end.turn.now(), sent.body_bytes);
        end.log.request(end.turn, NAME, &self.peer, &line);
    }

    pub(crate) fn new(io: &Io<'_>) -> Self {
        Self {
            peer: io.logged_peer(),
            pending: None,
            owed: VecDeque::new(),
        }
    }

    /// The reply that is due, or being queued: those before it are queued completely.
    fn due(&mut self) -> Option<&mut Record> {
        let due = self.owed.iter_mut().find(|record| record.end.is_none());
        due.map(|record| &mut **record)
    }

    /// The connection ends, or is another protocol's from now on.
    pub(crate) fn log_rest(&mut self, end: LogEnd<'_>) {
        for record in self.owed.drain(..).chain(self.pending.take()) {
            let line = record.line(end.turn.now(), end.sent_bytes);
            end.log.request(end.turn, NAME, &self.peer, &line);
        }
    }
}

/// The protocol's name.
const NAME: &str = "http";

/// What lines of a connection are written with.
pub(crate) struct Log<'a, 'io> {
    pub(crate) io: &'a mut Io<'io>,
    /// Where it may be a proxy's, the peer, and which those are.
    pub(crate) client: Option<(Client, &'a Proxies)>,
    /// The session's.
    pub(crate) records: Option<&'a mut Records>,
    /// The network thread's: recycled.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) spares: &'a mut Vec<Box<Record>>,
}

impl Log<'_, '_> {
    /// A request was answered at once. All of its reply is in the output, as its last bytes.
    #[inline(never)]
    pub(crate) fn answered(&mut self, head: &Head<'_>, log: u16, reply: &Outgoing) {
        let (turn, client) = (self.io.turn(), self.client_of(head));
        let Some(records) = &mut self.records else {
            return;
        };
        if !records.owed.is_empty() {
            // Lines before this one wait.
            self.came(head, log);
            self.numbered();
            return self.begun(reply.status, reply.body_bytes(), reply.request_id());
        }
        // It had to wait before, and was read anew.
        if let Some(record) = records.pending.take() {
            recycle(self.spares, record);
        }
        let line = RequestLine {
            status: reply.status,
            body_bytes: reply.body_bytes() as u64,
            id: reply.request_id().map(RequestId::as_bytes),
            log,
            ..Asked::of(head, client).line()
        };
        if let Some(log) = self.io.access_log() {
            log.request(turn, NAME, &records.peer, &line);
        }
    }

    /// A request was read, and its reply will come later. It may come to this several times: while
    /// it has to wait for room, the request is read anew.
    pub(crate) fn came(&mut self, head: &Head<'_>, log: u16) {
        let (now, client) = (self.io.turn().now(), self.client_of(head));
        if let Some(records) = &mut self.records {
            let record = records
                .pending
                .get_or_insert_with(|| spare(self.spares, now));
            record.fill(&Asked::of(head, client));
            record.log = log;
        }
    }

    /// A head was refused of which this came, and which may not have an end.
    #[cold]
    pub(crate) fn came_unread(&mut self, text: &[u8]) {
        let now = self.io.turn().now();
        if let Some(records) = &mut self.records {
            let record = records
                .pending
                .get_or_insert_with(|| spare(self.spares, now));
            record.fill_unread(text);
        }
    }

    /// The request that has got the last number was refused, for this reason.
    #[cold]
    pub(crate) fn refused(&mut self, reason: &'static str) {
        let records = self.records.as_mut();
        if let Some(record) = records.and_then(|records| records.owed.back_mut()) {
            record.refused(reason);
        }
    }

    /// A request has got its number.
    pub(crate) fn numbered(&mut self) {
        let now = self.io.turn().now();
        if let Some(records) = &mut self.records {
            let pending = records.pending.take();
            let record = pending.unwrap_or_else(|| spare(self.spares, now));
            records.owed.push_back(record);
        }
    }

    /// The head of the reply that is due is queued, and so much of its body.
    pub(crate) fn begun(&mut self, status: u16, body_bytes: usize, id: Option<&RequestId>) {
        let body_from = self.io.output_bytes() - body_bytes as u64;
        if let Some(record) = self.due() {
            (record.status, record.body_from) = (status, body_from);
            record.named(id);
        }
    }

    /// The reply that is due is queued completely.
    pub(crate) fn done(&mut self) {
        let output_bytes = self.io.output_bytes();
        let Some(record) = self.due() else {
            // It is logged already.
            return;
        };
        record.end = Some(output_bytes);
        if self.io.queued_bytes() > UNSENT_BYTES_MAX {
            return self.io.notify_output_low();
        }
        self.write_done();
    }

    /// Logs the replies that are queued completely.
    pub(crate) fn write_done(&mut self) {
        let (turn, output_bytes) = (self.io.turn(), self.io.output_bytes());
        let Some(records) = &mut self.records else {
            return;
        };
        let is_next =
            |owed: &VecDeque<Box<Record>>| owed.front().is_some_and(|it| it.end.is_some());
        while is_next(&records.owed)
            && let Some(record) = records.owed.pop_front()
        {
            if let Some(log) = self.io.access_log() {
                let line = record.line(turn.now(), output_bytes);
                log.request(turn, NAME, &records.peer, &line);
            }
            recycle(self.spares, record);
        }
    }

    /// The record of a request that came in a stream of its own (HTTP/2).
    #[cfg(feature = "http2")]
    pub(crate) fn of_stream(&mut self, head: &Head<'_>, log: u16) -> Box<Record> {
        let mut record = spare(self.spares, self.io.turn().now());
        record.fill(&Asked::of(head, self.client_of(head)));
        record.log = log;
        record
    }

    /// The same of one whose head could not be read: what there is of it as text.
    #[cfg(feature = "http2")]
    #[cold]
    pub(crate) fn of_unread_stream(&mut self, text: &[u8]) -> Box<Record> {
        let mut record = spare(self.spares, self.io.turn().now());
        record.fill_unread(text);
        if !record.is_malformed {
            record.version = "HTTP/2.0";
        }
        record
    }

    /// A stream has ended, after a reply with this status of whose body so many bytes were sent.
    #[cfg(feature = "http2")]
    pub(crate) fn stream_done(&mut self, mut record: Box<Record>, sent: StreamSent) {
        let turn = self.io.turn();
        if let (Some(records), Some(log)) = (&self.records, self.io.access_log()) {
            record.note(sent);
            let line = record.line(turn.now(), sent.body_bytes);
            log.request(turn, NAME, &records.peer, &line);
        }
        recycle(self.spares, record);
    }

    /// The client of a request, where a proxy has named it.
    fn client_of(&self, head: &Head<'_>) -> Option<IpAddr> {
        let (client, proxies) = self.client?;
        Some(client.named(proxies, head)?.ip())
    }

    fn due(&mut self) -> Option<&mut Record> {
        self.records.as_mut().and_then(|records| records.due())
    }
}

#[expect(clippy::vec_box, reason = "the box is what is recycled")]
fn spare(spares: &mut Vec<Box<Record>>, now: Duration) -> Box<Record> {
    let mut record = spares.pop().unwrap_or_default();
    record.since = now;
    record
}

#[expect(clippy::vec_box, reason = "the box is what is recycled")]
fn recycle(spares: &mut Vec<Box<Record>>, mut record: Box<Record>) {
    let mut text = std::mem::take(&mut record.text);
    text.clear();
    *record = Record {
        text,
        ..Record::default()
    };
    if spares.len() < SPARES_MAX {
        spares.push(record);
    }
}
