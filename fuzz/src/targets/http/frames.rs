//! Target `http2_frames`: what a client of HTTP/2 says after its preface, through a whole server.
//!
//! Holds of every input, whole or in pieces, answered on the network thread or by workers
//! - What is heard are frames (RFC 9113 section 4.1), SETTINGS first, GOAWAY with an error last.
//! - Of each stream there is one head, in a block that another's decoder takes, then data, then an
//!   end or a reset, and nothing behind it; no stream is answered without a request on it.
//! - The pieces in which the input came change neither the answers nor what ends the connection.
//!   But a request with a body is a worker's, and how far that has come depends on the pieces: what
//!   is wrong with a stream that it answers is an error of the stream or, once that is closed, of
//!   the connection (RFC 9113 section 5.1). And one whose client has said goodbye ends with the
//!   last answer: what is wrong with the input after that may be read by then, or not. So is what
//!   comes on a stream after its request, while the answer waits for a window: the stream may be
//!   over by then, or not. And a window that opens and closes again may have been used between.
//! - Nothing is left behind: no socket, no receive buffer, no byte of a pooled one.

use std::collections::{BTreeMap, BTreeSet};

use flatpath_http::{Http, Request, Response};
use httlib_hpack::Decoder;

use crate::random::pieces;
use crate::simulated::{Kept, Peer, serve};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Small, so that frames reach over several.
const RECEIVE_BUFFER_BYTES: u32 = 512;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The setting of the windows of streams, and what they are before it (RFC 9113 section 6.5.2).
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
const WINDOW_BYTES: u32 = 65_535;
/// The bits of a stream's number.
const STREAM: u32 = 0x7fff_ffff;
/// Codes of GOAWAY (RFC 9113 section 7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const STREAM_CLOSED: u32 = 5;

/// Kind, flags, stream and payload.
type Frame<'a> = (u8, u8, u32, &'a [u8]);

thread_local! {
    static INLINE: Kept = const { Kept::new(|| serve(Http::inline(echo), RECEIVE_BUFFER_BYTES)) };
    static POOLED: Kept = const { Kept::new(|| serve(Http::pooled(echo), RECEIVE_BUFFER_BYTES)) };
}

fn echo(request: &Request) -> Response {
    let mut text = format!("{} {}\n", request.method(), request.uri()).into_bytes();
    text.extend(request.body().pieces().flatten());
    Response::new(text.into())
}

pub(crate) fn run(data: &[u8]) {
    let said = [PREFACE, data].concat();
    let whole = INLINE.with(|kept| served(kept, std::iter::once(&said[..])));
    let in_pieces = INLINE.with(|kept| served(kept, pieces(&said)));
    let by_workers = POOLED.with(|kept| served(kept, pieces(&said)));
    let [whole, in_pieces, _] = [&whole, &in_pieces, &by_workers].map(|heard| check(data, heard));
    if has_body(data) {
        return;
    }
    let codes = [&whole, &in_pieces].map(|it| code(it.1.as_deref()));
    let late = streams_of_late_frames(data);
    let depends_on_pieces = |code| match code {
        Some(NO_ERROR | STREAM_CLOSED) => true,
        Some(PROTOCOL_ERROR) => !late.is_empty(),
        _ => false,
    };
    if !codes.into_iter().any(depends_on_pieces) {
        assert_eq!(whole.1, in_pieces.1);
    }
    if codes == [None, None] && !closes_windows(data) {
        let [whole, in_pieces] = [whole, in_pieces].map(|(mut answers, _)| {
            answers.retain(|stream, _| !late.contains(stream));
            answers
        });
        assert_eq!(whole, in_pieces);
    }
}

/// Whether a request comes with a body, or with more than its head.
fn has_body(said: &[u8]) -> bool {
    frames(said).any(|(kind, flags, ..)| kind == HEADERS && flags & END_STREAM == 0)
}

/// The streams on which more comes than a request.
fn streams_of_late_frames(said: &[u8]) -> BTreeSet<u32> {
    let mut ended = BTreeSet::new();
    let late = frames(said).filter_map(|(kind, flags, stream, _)| {
        let stream = stream & STREAM;
        let is_late = ended.contains(&stream) && kind != CONTINUATION;
        let is_end = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        ended.extend(is_end.then_some(stream));
        is_late.then_some(stream)
    });
    late.collect()
}

/// Whether the windows of streams that there are become smaller.
fn closes_windows(said: &[u8]) -> bool {
    let (mut window, mut has_streams) = (WINDOW_BYTES, false);
    frames(said).any(|(kind, _, _, payload)| {
        has_streams |= kind == HEADERS;
        let settings = payload
            .as_chunks::<6>()
            .0
            .iter()
            .filter(|_| kind == SETTINGS);
        let mut windows = settings.filter_map(|[id @ .., a, b, c, d]| {
            (*id == INITIAL_WINDOW_SIZE).then_some(u32::from_be_bytes([*a, *b, *c, *d]))
        });
        windows.any(|next| std::mem::replace(&mut window, next) > next && has_streams)
    })
}

/// Why a connection ends: without an error where its client has said goodbye.
fn code(goodbye: Option<&[u8]>) -> Option<u32> {
    let code = goodbye?.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes(*code))
}

fn served<'a>(kept: &Kept, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    kept.serve(|server| {
        let mut peer = Peer::connect(server);
        for piece in pieces {
            if peer.is_over() {
                break;
            }
            peer.say(server, piece);
        }
        peer.finish(server);
        peer.heard
    })
}

fn frames(bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    std::iter::successors(frame(bytes), |(_, rest)| frame(rest)).map(|(frame, _)| frame)
}

fn frame(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let ([a, b, c, kind, flags, stream @ ..], rest) = bytes.split_first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    let (payload, rest) = rest.split_at_checked(length)?;
    Some(((*kind, *flags, u32::from_be_bytes(*stream), payload), rest))
}

/// What became of each stream: the bytes of its body, and whether and how it has ended.
type Answers = BTreeMap<u32, (usize, Option<u8>)>;

fn check(said: &[u8], heard: &[u8]) -> (Answers, Option<Vec<u8>>) {
    let heads = frames(said).filter(|(kind, ..)| *kind == HEADERS);
    let asked: Vec<u32> = heads.map(|(_, _, stream, _)| stream & STREAM).collect();
    let (mut answers, mut goodbye, mut rest) = (Answers::new(), None, heard);
    let mut is_first = true;
    while let Some(((kind, flags, stream, payload), after)) = frame(rest) {
        assert!(kind == SETTINGS || !is_first, "SETTINGS are the first");
        assert_eq!(goodbye, None, "GOAWAY is the last");
        is_first = false;
        rest = after;
        let answer = answers.get(&stream).copied();
        let is_end = (flags & END_STREAM != 0).then_some(kind);
        match kind {
            HEADERS => {
                assert!(asked.contains(&stream), "{stream} was not asked on");
                assert!(flags & END_HEADERS != 0, "it is short");
                let mut fields = Vec::new();
                let decoded =
                    Decoder::with_dynamic_size(0).decode(&mut payload.to_vec(), &mut fields);
                assert!(decoded.is_ok(), "{payload:x?}");
                assert_eq!(fields[0].0, b":status");
                let is_final = fields[0].1 != b"100";
                assert_eq!(answer, None, "one head");
                if is_final {
                    answers.insert(stream, (0, is_end));
                }
            }
            DATA => {
                let (bytes, end) = answer.expect("a head comes first");
                assert_eq!(end, None, "data after the end");
                answers.insert(stream, (bytes + payload.len(), is_end));
            }
            // How much of the answer a worker has made by then depends on the pieces.
            RESET => drop(answers.insert(stream, (0, Some(kind)))),
            GOAWAY => goodbye = Some(payload.to_vec()),
            _ => {}
        }
    }
    assert!(rest.is_empty(), "half a frame: {rest:x?}");
    (answers, goodbye)
}
