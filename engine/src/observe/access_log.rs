//! The access log: a line for each reply, or for each connection of a protocol that logs none.
//!
//! A network thread formats lines into a buffer of its own and offers it, whole lines, to the
//! program's [`LogOutput`] at the end of each turn in which there were some. What that leaves is
//! tried again; beyond 256 KiB lines are dropped, and counted by the sink.
//!
//! Text of clients is escaped, so that a line is a line and a field a field, whatever they send:
//! - [`LogFormat::Combined`]: `"`, `\` and all bytes but printable ASCII as `\xHH`, as nginx does.
//! - [`LogFormat::Json`]: as RFC 8259 section 7 has it, and DEL and C1 (U+007F to U+009F), which
//!   terminals obey, as `\u00HH`; bytes that are not UTF-8 as U+FFFD.
//!
//! Of a connection with TLS the JSON format has version, cipher, resumption, protocol and the
//! subject of the client's certificate; the combined one has the subject, in the place of the user.
//!
//! A request that was refused because its head breaks a rule has its request line as far as that
//! came, and the reason: after the user agent, as one field more, or `reason` in the JSON format.
//!
//! A line of a connection has, in the combined format, `connection NAME` in place of the request
//! line, 200 for a status, and the bytes sent.
//!
//! Cost: no allocation once the buffer has grown; one test per reply where there is no log.

mod lines;

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use flatpath_structures::panics::{contain, drop_contained};

use crate::observe::episode::Episode;
use crate::protocol::tls_terms::TlsTerms;
use crate::protocol::turn::Turn;

use lines::Begin;
pub(crate) use lines::Logged;

/// When lines that were not taken are tried again, in nanoseconds.
pub(crate) const AGAIN_NS: u64 = 10_000_000;

/// Lines that an output did not take yet, in bytes, beyond which new ones are dropped.
pub(crate) const PENDING_BYTES_MAX: usize = 256 * 1024;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Apache's and nginx' "combined". A request without any reply has the status 499.
    #[default]
    Combined,
    /// An object on each line.
    Json,
}

/// Where lines of all network threads go.
pub trait LogSink: Send + Sync + 'static {
    /// The end of the sink for one network thread; called on it.
    fn open(&self) -> Box<dyn LogOutput>;

    /// Lines were dropped, as they found no room.
    fn dropped(&self, lines: u64);
}

/// Where lines of one network thread go.
pub trait LogOutput {
    /// Takes whole lines from `lines` and clears it, or leaves it as it is without room. Called on
    /// the network thread: it must not block. When it panics, the lines are dropped.
    fn write(&mut self, lines: &mut Vec<u8>);

    /// The same for the log with this number ([`RequestLine::log`]), where there are several. By
    /// default there is one.
    fn write_to(&mut self, log: u16, lines: &mut Vec<u8>) {
        let _ = log;
        self.write(lines);
    }
}

/// What a line says of a request and its reply. All text is as the client sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestLine<'a> {
    /// `GET`
    pub method: &'a [u8],
    /// `/path?query`. Empty with the method: there was no request line that could be read.
    pub target: &'a [u8],
    /// In place of method, target and version, of a request line that could not be read or was not
    /// complete: what came of it, up to a length that the protocol bounds.
    pub malformed: Option<&'a [u8]>,
    /// Why the request was refused before a handler saw it: at the end of the line.
    pub reason: Option<&'static str>,
    /// `HTTP/1.1`
    pub version: &'a str,
    /// Of the reply; 0 if none was begun.
    pub status: u16,
    /// Bytes of the reply after its head that the kernel took, the framing of chunks included.
    pub body_bytes: u64,
    /// From the request's head to the reply's last byte, by the clocks of turns
    /// ([`Turn::now`]): zero for a reply within a turn.
    pub duration: Duration,
    /// The connection ended before all of the reply was taken.
    pub is_aborted: bool,
    /// The header `Referer`.
    pub referer: Option<&'a [u8]>,
    /// The header `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The client, if the peer is a proxy that has named it. The line has it as the peer; the JSON
    /// format also has the proxy.
    pub client: Option<IpAddr>,
    /// What the path was found by, as the program has it (`/users/{id}`): in the JSON format.
    pub route: Option<&'a [u8]>,
    /// The name that the program has given the request: in the JSON format.
    pub id: Option<&'a [u8]>,
    /// The log that it goes to, of a program that has several; 0 is the first.
    pub log: u16,
}

/// What a line says of a connection that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionLine {
    pub(crate) duration: Duration,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

/// What a server logs to.
#[derive(Clone)]
pub(crate) struct LogTo {
    pub(crate) format: LogFormat,
    pub(crate) sink: Arc<dyn LogSink>,
}

impl fmt::Debug for LogTo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LogTo").field(&self.format).finish()
    }
}

/// What lines say of the peer: its address as text, without the port, and the terms of TLS; see
/// [`Io::logged_peer`](crate::Io::logged_peer).
#[derive(Clone, Debug)]
pub struct LoggedPeer {
    address: PeerText,
    tls: Option<Arc<TlsTerms>>,
}

impl LoggedPeer {
    pub(crate) fn new(peer: Option<SocketAddr>, tls: Option<&Arc<TlsTerms>>) -> LoggedPeer {
        LoggedPeer {
            address: PeerText::new(peer.map(|peer| peer.ip())),
            tls: tls.cloned(),
        }
    }
}

/// The address of a peer as text, without the port; empty if it is not known.
#[derive(Clone, Copy, Debug)]
struct PeerText {
    text: [u8; PEER_BYTES_MAX],
    bytes: u8,
}

/// Eight groups of four digits, and seven colons.
const PEER_BYTES_MAX: usize = 39;

impl PeerText {
    fn new(peer: Option<IpAddr>) -> PeerText {
        let mut made = PeerText {
            text: [0; PEER_BYTES_MAX],
            bytes: 0,
        };
        if let Some(peer) = peer {
            let mut room = &mut made.text[..];
            let written = write!(room, "{}", peer.to_canonical());
            debug_assert!(written.is_ok(), "the longest address fits");
            made.bytes = (PEER_BYTES_MAX - room.len()) as u8;
        }
        made
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.bytes)]
    }
}

/// What a session that ends logs with: see [`Protocol::closed`](crate::Protocol::closed).
pub struct LogEnd<'a> {
    /// The log of the network thread.
    pub log: &'a mut AccessLog,
    /// When it ends.
    pub turn: Turn,
    /// Bytes of the connection's output that the kernel took, from its beginning on.
    pub sent_bytes: u64,
}

/// The log of one network thread.
pub struct AccessLog {
    format: LogFormat,
    /// By the number of the log.
    lines: Vec<Vec<u8>>,
    sink: Arc<dyn LogSink>,
    /// There until the log is dropped.
    output: Option<Box<dyn LogOutput>>,
    panics: Episode,
    /// The time as the format has it, and of which second.
    second: Option<u64>,
    time: Vec<u8>,
}

flatpath_structures::opaque_debug! {
    impl[] LogEnd<'_> as "LogEnd";
    impl[] AccessLog as "AccessLog";
}

impl AccessLog {
    pub(crate) fn new(to: &LogTo) -> AccessLog {
        let (format, sink) = (to.format, Arc::clone(&to.sink));
        AccessLog {
            format,
            lines: vec![Vec::with_capacity(16 * 1024)],
            // CONTAINED: by the start of the thread, which fails.
            output: Some(sink.open()),
            sink,
            panics: Episode::until_ended(),
            second: None,
            time: Vec::new(),
        }
    }

    /// The end of a turn. False: some lines were not taken, and are to be tried again.
    pub(crate) fn flush(&mut self) -> bool {
        let mut is_taken = true;
        for log in 0..self.lines.len() {
            if !self.lines[log].is_empty() {
                self.offer(log);
                is_taken &= self.lines[log].is_empty();
            }
        }
        is_taken
    }

    /// Offers the lines of a log. What becomes of them when the output panics is not known, so they
    /// are dropped.
    fn offer(&mut self, log: usize) {
        let (output, lines) = (&mut self.output, &mut self.lines[log]);
        let Some(output) = output else {
            return;
        };
        let (count, number) = (lines.len(), number_of(log));
        if contain(|| output.write_to(number, lines)).is_some() {
            return;
        }
        if self.panics.begins() {
            log::error!("the output of the access log panicked (reported once)");
        }
        self.lines[log].truncate(count);
        self.drop_lines(log);
    }

    fn drop_lines(&mut self, log: usize) {
        let lines = &mut self.lines[log];
        let left = lines.iter().filter(|byte| **byte == b'\n').count();
        lines.clear();
        self.dropped(left as u64);
    }

    fn dropped(&self, lines: u64) {
        contain(|| self.sink.dropped(lines));
    }

    /// Whether there is room for a line; if not, it counts as dropped.
    fn has_room(&mut self, log: usize) -> bool {
        if self.lines.len() <= log {
            self.lines.resize_with(log + 1, Vec::new);
        }
        if self.lines[log].len() < PENDING_BYTES_MAX {
            return true;
        }
        self.offer(log);
        let has_room = self.lines[log].len() < PENDING_BYTES_MAX;
        if !has_room {
            self.dropped(1);
        }
        has_room
    }

    fn tell_time(&mut self, turn: Turn) {
        if self.second == Some(turn.wall_seconds) {
            return;
        }
        self.second = Some(turn.wall_seconds);
        self.time.clear();
        lines::time(&mut self.time, self.format, turn.wall_seconds);
    }

    /// Where the next line goes, and how it begins; `None` if there is no room for it.
    fn begin<'a>(
        &'a mut self,
        turn: Turn,
        listener: &'a str,
        peer: &'a LoggedPeer,
        log: u16,
    ) -> Option<(&'a mut Vec<u8>, Begin<'a>)> {
        let log = usize::from(log);
        if !self.has_room(log) {
            return None;
        }
        self.tell_time(turn);
        let begin = Begin {
            time: &self.time,
            listener,
            peer: peer.address.as_bytes(),
            proxy: None,
            tls: peer.tls.as_deref(),
        };
        Some((&mut self.lines[log], begin))
    }

    /// Logs a request that came to `listener`, a protocol's name.
    pub fn request(
        &mut self,
        turn: Turn,
        listener: &str,
        peer: &LoggedPeer,
        line: &RequestLine<'_>,
    ) {
        let format = self.format;
        let client = line.client.map(|client| PeerText::new(Some(client)));
        if let Some((lines, mut begin)) = self.begin(turn, listener, peer, line.log) {
            if let Some(client) = &client {
                let proxy = std::mem::replace(&mut begin.peer, client.as_bytes());
                begin.proxy = Some(proxy);
            }
            lines::request(lines, format, begin, line);
        }
    }

    /// Logs a connection that has ended.
    pub(crate) fn connection(
        &mut self,
        turn: Turn,
        listener: &str,
        logged: &Logged,
        sent_bytes: u64,
    ) {
        let format = self.format;
        let line = logged.line(turn, sent_bytes);
        if let Some((lines, begin)) = self.begin(turn, listener, logged.peer(), 0) {
            lines::connection(lines, format, begin, &line);
        }
    }
}

/// The number of a log, from its place.
fn number_of(log: usize) -> u16 {
    u16::try_from(log).unwrap_or(u16::MAX)
}

impl Drop for AccessLog {
    /// The thread ends: nothing else will offer what is left.
    fn drop(&mut self) {
        const OFFERS: usize = 1000;
        let is_taken = (0..OFFERS).any(|_| {
            std::thread::yield_now();
            self.flush()
        });
        for log in 0..self.lines.len() {
            if !is_taken && !self.lines[log].is_empty() {
                self.drop_lines(log);
            }
        }
        drop_contained(self.output.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Kept(Mutex<Vec<u8>>, Mutex<u64>);

    struct End(Arc<Kept>, usize);

    struct Sink(Arc<Kept>, usize);

    impl LogSink for Sink {
        fn open(&self) -> Box<dyn LogOutput> {
            Box::new(End(Arc::clone(&self.0), self.1))
        }

        fn dropped(&self, lines: u64) {
            *self.0.1.lock().expect("held by none") += lines;
        }
    }

    impl LogOutput for End {
        fn write(&mut self, lines: &mut Vec<u8>) {
            let mut kept = self.0.0.lock().expect("held by none");
            if kept.len() < self.1 {
                kept.append(lines);
            }
        }
    }

    fn peer() -> LoggedPeer {
        LoggedPeer::new(Some(([192, 0, 2, 1], 5).into()), None)
    }

    fn turn(seconds: u64) -> Turn {
        Turn::new(1, Duration::ZERO, Duration::from_secs(seconds))
    }

    fn logged(format: LogFormat, line: &RequestLine<'_>) -> String {
        logged_of(&peer(), format, line)
    }

    fn logged_of(peer: &LoggedPeer, format: LogFormat, line: &RequestLine<'_>) -> String {
        let kept = Arc::new(Kept::default());
        let sink = Arc::new(Sink(Arc::clone(&kept), usize::MAX));
        let mut log = AccessLog::new(&LogTo { format, sink });
        log.request(turn(784_111_777), "http", peer, line);
        log.flush();
        let lines = kept.0.lock().expect("held by none").clone();
        String::from_utf8(lines).expect("text")
    }

    const LINE: RequestLine<'static> = RequestLine {
        method: b"GET",
        target: b"/a?b",
        malformed: None,
        reason: None,
        version: "HTTP/1.1",
        status: 200,
        body_bytes: 1024,
        duration: Duration::from_micros(1_002_030),
        is_aborted: false,
        referer: None,
        user_agent: Some(b"curl/8"),
        client: None,
        route: None,
        id: None,
        log: 0,
    };

    #[test]
    fn lines_are_as_their_format_has_them() {
        assert_eq!(
            logged(LogFormat::Combined, &LINE),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 1024 \"-\" \
             \"curl/8\"\n"
        );
        assert_eq!(
            logged(LogFormat::Json, &LINE),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"listener\":\"http\",\"peer\":\"192.0.2.1\",\
             \"method\":\"GET\",\"target\":\"/a?b\",\"version\":\"HTTP/1.1\",\"referer\":null,\
             \"user_agent\":\"curl/8\",\"status\":200,\"bytes\":1024,\"seconds\":1.002030,\
             \"aborted\":false}\n"
        );
        let aborted = RequestLine {
            is_aborted: true,
            ..LINE
        };
        assert!(logged(LogFormat::Combined, &aborted).contains("\" 200 1024 "));
        assert!(logged(LogFormat::Json, &aborted).contains("\"status\":200,"));
        assert!(logged(LogFormat::Json, &aborted).ends_with("\"aborted\":true}\n"));
        let unanswered = RequestLine {
            status: 0,
            body_bytes: 0,
            ..aborted
        };
        assert!(logged(LogFormat::Combined, &unanswered).contains("\" 499 0 "));
        assert!(logged(LogFormat::Json, &unanswered).contains("\"status\":0,"));
        let nothing = RequestLine {
            status: 400,
            ..RequestLine::default()
        };
        assert!(logged(LogFormat::Combined, &nothing).ends_with("] \"-\" 400 0 \"-\" \"-\"\n"));
    }

    #[test]
    fn terms_of_tls_are_told() {
        let with = |protocol: Option<&[u8]>, subject: Option<&str>| {
            let terms = TlsTerms::of_client(subject.unwrap_or_default());
            let terms = TlsTerms {
                is_resumed: subject.is_none(),
                protocol: protocol.map(Into::into),
                certificate: terms.certificate.filter(|_| subject.is_some()),
                ..terms
            };
            LoggedPeer {
                tls: Some(Arc::new(terms)),
                ..peer()
            }
        };
        let known = with(Some(b"http/1.1"), Some("CN=a \"b\" ä,O=c\n"));
        let combined = logged_of(&known, LogFormat::Combined, &LINE);
        assert!(
            combined.starts_with(r"192.0.2.1 - CN=a\x20\x22b\x22\x20\xC3\xA4,O=c\x0A [06/Nov"),
            "{combined}"
        );
        let json = logged_of(&known, LogFormat::Json, &LINE);
        let tls = r#","tls":{"version":"1.3","cipher":"TLS_AES_256_GCM_SHA384","resumed":false,"#;
        let client = r#""protocol":"http/1.1","client":"CN=a \"b\" ä,O=c\u000A"}}"#;
        assert!(json.ends_with(&format!("{tls}{client}\n")), "{json}");
        let unknown = with(None, None);
        let combined = logged_of(&unknown, LogFormat::Combined, &LINE);
        assert!(combined.starts_with("192.0.2.1 - - ["), "{combined}");
        let json = logged_of(&unknown, LogFormat::Json, &LINE);
        let rest = r#""resumed":true,"protocol":null,"client":null}}"#;
        assert!(json.ends_with(&format!("{rest}\n")), "{json}");
        let nameless = with(None, Some(""));
        let combined = logged_of(&nameless, LogFormat::Combined, &LINE);
        assert!(combined.starts_with("192.0.2.1 - - ["), "{combined}");
    }

    #[test]
    fn no_text_of_a_client_leaves_its_field() {
        let evil = b"a\"b\\c\n\r\t\x7f\x00\xff\xc3\xa4\xc2\x80\xc2\x9b\xc2\xa0";
        let line = RequestLine {
            target: evil,
            referer: Some(evil),
            user_agent: Some(b""),
            ..LINE
        };
        let combined = logged(LogFormat::Combined, &line);
        let text = r"a\x22b\x5Cc\x0A\x0D\x09\x7F\x00\xFF\xC3\xA4\xC2\x80\xC2\x9B\xC2\xA0";
        assert!(
            combined.contains(&format!("\"GET {text} HTTP/1.1\"")),
            "{combined}"
        );
        assert!(
            combined.ends_with(&format!("\"{text}\" \"-\"\n")),
            "{combined}"
        );
        let json = logged(LogFormat::Json, &line);
        let text = "a\\\"b\\\\c\\u000A\\u000D\\u0009\\u007F\\u0000\u{fffd}ä\\u0080\\u009B\u{a0}";
        assert!(json.contains(&format!("\"target\":\"{text}\"")), "{json}");
        for line in [combined, json] {
            assert_eq!(line.matches('\n').count(), 1);
        }
    }

    #[test]
    fn addresses_are_written_without_their_ports() {
        let text = |address: &str| {
            let peer: SocketAddr = address.parse().expect("an address");
            let peer = LoggedPeer::new(Some(peer), None).address;
            String::from_utf8(peer.as_bytes().to_vec()).expect("text")
        };
        assert_eq!(text("192.0.2.1:80"), "192.0.2.1");
        assert_eq!(text("[::ffff:192.0.2.1]:80"), "192.0.2.1");
        let longest = "2001:1db8:1111:2222:3333:4444:5555:6666";
        assert_eq!(text(&format!("[{longest}]:80")), longest);
        assert!(PeerText::new(None).as_bytes().is_empty());
    }

    #[test]
    fn what_is_not_taken_is_offered_again_and_then_dropped_and_counted() {
        let kept = Arc::new(Kept::default());
        let sink = Arc::new(Sink(Arc::clone(&kept), 1));
        let format = LogFormat::Combined;
        let mut log = AccessLog::new(&LogTo { format, sink });
        let line_bytes = logged(LogFormat::Combined, &LINE).len();
        let most = PENDING_BYTES_MAX.div_ceil(line_bytes) as u64;
        log.request(turn(1), "http", &peer(), &LINE);
        log.flush();
        for _ in 0..most + 7 {
            log.request(turn(1), "http", &peer(), &LINE);
            log.flush();
        }
        assert_eq!(*kept.1.lock().expect("held by none"), 7);
        kept.0.lock().expect("held by none").clear();
        log.flush();
        let lines = kept.0.lock().expect("held by none").clone();
        assert_eq!(lines.len() as u64, most * line_bytes as u64);
        assert!(log.lines.iter().all(Vec::is_empty));
    }
}
