//! What a server of HTTP/2 owes a client that keeps the rules, and one that breaks them: a table of
//! what such clients say, frame by frame, and of what comes. It has the cases that h2spec tries,
//! and some more.
//!
//! Sections are those of RFC 9113, or of the RFC that they name: RFC 7541 (HPACK), RFC 8441
//! (extended CONNECT), RFC 9110 (HTTP) and RFC 9218 (priorities).

use std::collections::BTreeMap;

use bytes::Bytes;
use flatpath_http::{Http, Router};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use h2::Reason;

use crate::h2_frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GET, GOAWAY, HEADERS, PING, POST,
    PREFACE, RESET, SETTINGS, WINDOW_UPDATE, frame, greeting, whole_frames,
};

/// Cases that all begin in one way (`greeted`, `bare`), each with its section, what is said in
/// words and in frames, and what must come.
macro_rules! table {
    ($begin:ident: $($section:literal $name:literal: $said:expr => $must:expr;)*) => {
        vec![$($begin($section, $name, &$said, $must)),*]
    };
}

mod connections;
mod frames;
mod messages;

const SEEDS: u64 = 3;

const PROTOCOL: Reason = Reason::PROTOCOL_ERROR;
const FLOW_CONTROL: Reason = Reason::FLOW_CONTROL_ERROR;
const CLOSED: Reason = Reason::STREAM_CLOSED;
const FRAME_SIZE: Reason = Reason::FRAME_SIZE_ERROR;
const REFUSED: Reason = Reason::REFUSED_STREAM;
const COMPRESSION: Reason = Reason::COMPRESSION_ERROR;

/// What the client asks last, to see that the connection lives.
const LAST_WORDS: [u8; 8] = *b"is there";

/// The reply of `/`.
const HELLO: &str = "hello";

/// What a client hears, beside settings and windows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Heard {
    /// A whole answer on this stream: its status, and the bytes of its body, but for the words of
    /// one that refuses.
    Answer(u32, u16, usize),
    /// An answer that has not ended, with as much of its body.
    Part(u32, usize),
    /// RST_STREAM of this stream.
    Reset(u32, Reason),
    /// GOAWAY, as the last frame, and the end of the connection.
    End(Reason),
    /// GOAWAY, and more after it.
    Leaves(Reason),
    /// The end of the connection without GOAWAY.
    Silence,
    /// The answer of a PING that had these bytes in it.
    Pong([u8; 8]),
    /// A reply of HTTP/1.1 with this status.
    Http1(u16),
    /// A frame of a kind that nothing here asks for.
    Other(u8),
}

use Heard::{Answer, End, Http1, Part, Pong, Reset};

/// What a client says, and what must come.
struct Case {
    section: &'static str,
    name: &'static str,
    /// The first part as the connection begins, each further one when nothing moves any more.
    said: Vec<Vec<u8>>,
    must: Vec<Heard>,
}

/// From the connection's first byte on.
fn bare(section: &'static str, name: &'static str, said: &[Vec<u8>], must: &[Heard]) -> Case {
    Case {
        section,
        name,
        said: said.to_vec(),
        must: must.to_vec(),
    }
}

/// After the settings of both.
fn greeted(section: &'static str, name: &'static str, said: &[Vec<u8>], must: &[Heard]) -> Case {
    let mut case = bare(section, name, said, must);
    let acknowledged = frame(SETTINGS, ACK, 0, &[]);
    case.said.splice(..0, [greeting(), acknowledged]);
    case
}

impl Case {
    /// What is wrong with what the client hears.
    fn run(&self, seed: u64) -> Option<String> {
        let router = Router::new()
            .get("/", || HELLO)
            .post("/", |body: Bytes| body);
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        let client = server.connect();
        let mut bytes = Vec::new();
        let last = frame(PING, 0, 0, &LAST_WORDS);
        for part in self.said.iter().chain([&last]) {
            if client.state() == ClientState::Open {
                client.write(part);
            }
            server.settle();
            bytes.extend(client.read());
        }
        let is_open = client.state() == ClientState::Open;
        let heard = match bytes.strip_prefix(b"HTTP/1.1 ") {
            Some(rest) => vec![Http1(decimal(&rest[..3]))],
            None => heard(&whole_frames(&bytes), is_open),
        };
        let mut expected = self.must.clone();
        expected.extend(is_open.then_some(Pong(LAST_WORDS)));
        if heard != expected {
            return Some(format!("{heard:?} and not {expected:?}"));
        }
        let told = settings_of(&bytes, ACK);
        let asked = settings_of(self.said.concat().strip_prefix(PREFACE)?, 0);
        // 3.4: "The server connection preface consists of a potentially empty SETTINGS frame that
        // MUST be the first frame the server sends".
        let first = whole_frames(&bytes).into_iter().next();
        if first.is_none_or(|first| first.kind != SETTINGS || first.flags & ACK != 0) {
            return Some("the first frame is not SETTINGS".to_owned());
        }
        (is_open && told != asked).then(|| format!("{told} of {asked} SETTINGS were acknowledged"))
    }
}

/// How many frames of SETTINGS with this flag, or without it, there are.
fn settings_of(bytes: &[u8], flag: u8) -> usize {
    let frames = whole_frames(bytes).into_iter();
    let is_such = |it: &Frame<'_>| it.kind == SETTINGS && it.flags & ACK == flag;
    frames.filter(is_such).count()
}

/// What these frames are to a client; `is_open`: more may come.
fn heard(frames: &[Frame<'_>], is_open: bool) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut answers: BTreeMap<u32, (u16, usize)> = BTreeMap::new();
    for (index, frame) in frames.iter().enumerate() {
        let stream = frame.stream;
        let is_last = index + 1 == frames.len();
        match frame.kind {
            HEADERS => {
                answers.entry(stream).or_default().0 = status(frame.payload);
            }
            DATA => answers.entry(stream).or_default().1 += frame.payload.len(),
            RESET => {
                answers.remove(&stream);
                heard.push(Reset(stream, reason(frame.payload)));
            }
            GOAWAY if is_last && !is_open => heard.push(End(reason(&frame.payload[4..]))),
            GOAWAY => heard.push(Heard::Leaves(reason(&frame.payload[4..]))),
            PING if frame.flags & ACK != 0 => {
                heard.push(Pong(frame.payload.try_into().expect("eight bytes")));
            }
            SETTINGS | WINDOW_UPDATE => {}
            other => heard.push(Heard::Other(other)),
        }
        if matches!(frame.kind, HEADERS | DATA)
            && frame.flags & END_STREAM != 0
            && let Some((status, bytes)) = answers.remove(&stream)
        {
            let bytes = if status < 400 { bytes } else { 0 };
            heard.push(Answer(stream, status, bytes));
        }
    }
    if !is_open && !matches!(heard.last(), Some(End(_))) {
        heard.push(Heard::Silence);
    }
    let parts = answers.iter();
    let parts = parts.map(|(stream, (_, bytes))| Part(*stream, *bytes));
    // The end is the last, or the answer of the last words.
    let at = heard.len().saturating_sub(1);
    heard.splice(at..at, parts);
    heard
}

fn reason(error: &[u8]) -> Reason {
    let error = error.first_chunk().expect("an error of four bytes");
    u32::from_be_bytes(*error).into()
}

/// The status that a header block begins with (RFC 7541 section 6).
fn status(block: &[u8]) -> u16 {
    match block {
        // Of the static table.
        [index @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)],
        // Its name is.
        [0x08, 3, digits @ ..] => decimal(&digits[..3]),
        _ => panic!("a status of {block:x?}"),
    }
}

fn decimal(digits: &[u8]) -> u16 {
    let digits = std::str::from_utf8(digits).expect("digits");
    digits.parse().expect("a number")
}

/// A GET without a body.
fn get(stream: u32) -> Vec<u8> {
    ask(stream, GET)
}

/// A request without a body.
fn ask(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

/// The head of a POST whose body is to come.
fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

/// Part of a body.
fn data(stream: u32, body: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, body)
}

/// The end of a body.
fn last_data(stream: u32, body: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, body)
}

fn continuation(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, END_HEADERS, stream, block)
}

fn reset(stream: u32, error: Reason) -> Vec<u8> {
    frame(RESET, 0, stream, &u32::from(error).to_be_bytes())
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let settings = settings.iter();
    let settings = settings.flat_map(|(id, value)| {
        let (id, value) = (id.to_be_bytes(), value.to_be_bytes());
        [id.to_vec(), value.to_vec()].concat()
    });
    frame(SETTINGS, 0, 0, &settings.collect::<Vec<_>>())
}

/// The setting of the window that each stream begins with.
const INITIAL_WINDOW: u16 = 4;

/// Of DATA and HEADERS: padding comes with them.
const PADDED: u8 = 0x8;

/// Of HEADERS: what the stream depends on comes with them.
const PRIORITY_FLAG: u8 = 0x20;

/// `HEAD http://h/`.
const HEAD: &[u8] = b"\x02\x04HEAD\x86\x84\x41\x01h";

fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A header as it is, without the tables and without Huffman's code (RFC 7541 section 6.2.2).
fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("short");
        assert!(length < 0x7f, "a length of one byte");
        [&[length], text.as_bytes()].concat()
    };
    [vec![0], text(name), text(value)].concat()
}

#[track_caller]
fn check(cases: &[Case]) {
    each_seed(SEEDS, |seed| {
        let wrong: Vec<_> = cases
            .iter()
            .filter_map(|case| {
                let wrong = case.run(seed)?;
                Some(format!("{}, {}: {wrong}\n", case.section, case.name))
            })
            .collect();
        assert!(wrong.is_empty(), "\n{}", wrong.concat());
    });
}

/// The bounds that hold clients to them are told (sections 6.5.2 and RFC 8441 section 3).
#[test]
fn the_server_says_what_it_takes() {
    let router = Router::new().get("/", || HELLO);
    let mut server = TestServer::new(Conditions::calm(1), Http::service(router));
    let client = server.connect();
    client.write(&greeting());
    server.settle();
    let bytes = client.read();
    let frames = whole_frames(&bytes);
    let settings = frames[0].payload.chunks_exact(6).map(|setting| {
        let (id, value) = setting.split_first_chunk().expect("six bytes");
        let value = value.first_chunk().expect("four bytes");
        (u16::from_be_bytes(*id), u32::from_be_bytes(*value))
    });
    let settings: BTreeMap<_, _> = settings.collect();
    let (streams, list_bytes, tunnels) = (3, 6, 8);
    assert_eq!(settings.get(&streams), Some(&100));
    assert_eq!(settings.get(&INITIAL_WINDOW), Some(&(256 << 10)));
    assert!(settings[&list_bytes] > 8 << 10, "{settings:?}");
    assert_eq!(settings.get(&tunnels), Some(&1));
}

#[test]
fn connections_and_streams_are_in_the_states_they_say() {
    check(&connections::cases());
}

#[test]
fn frames_of_each_kind_are_taken_or_refused() {
    check(&frames::cases());
}

#[test]
fn requests_are_taken_or_refused() {
    check(&messages::cases());
}
