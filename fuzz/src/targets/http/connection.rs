//! Target `http_connection`: an input through a whole server, workers and engine included.
//!
//! Holds of every input, whole or in pieces, answered on the network thread or by workers
//! - There is a reply to each request that `requests` finds, in order, and it is about that one.
//! - Behind them comes the status of the rule that was broken, if one was, and the end.
//! - Nothing is left behind: no socket, no receive buffer, no byte of a pooled one.

use flatpath_http::{Http, Request, Response, Service};

use super::requests::{self, Reading};
use crate::random::pieces;
use crate::simulated::{self, Peer};

/// Small, so that heads and bodies reach over several.
const RECEIVE_BUFFER_BYTES: u32 = 512;

fn echo(request: &Request) -> Response {
    let mut text = format!("{} {}\n", request.method(), request.uri()).into_bytes();
    text.extend(request.body().pieces().flatten());
    Response::new(text.into())
}

pub(crate) fn run(data: &[u8]) {
    let reading = requests::read(data, std::iter::once(data));
    let whole = served(Http::pooled(echo), std::iter::once(data));
    let in_pieces = served(Http::inline(echo), pieces(data));
    let read_bytes = reading.requests.last().map_or(0, |taken| taken.end);
    // A refusal has no body either.
    let is_head = data[read_bytes..].trim_ascii_start().starts_with(b"HEAD ");
    check(&reading, is_head, &whole);
    check(&reading, is_head, &in_pieces);
}

fn served<'a, S: Service>(http: Http<S>, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut server = simulated::serve(http, RECEIVE_BUFFER_BYTES);
    let mut peer = Peer::connect(&server);
    for piece in pieces {
        peer.say(&mut server, piece);
    }
    peer.finish(&mut server);
    let heard = std::mem::take(&mut peer.heard);
    drop(peer);
    simulated::end(server);
    heard
}

/// A reply on the wire, as a client reads it.
struct Heard<'a> {
    status: u16,
    body: &'a [u8],
    closes: bool,
    rest: &'a [u8],
}

/// `is_head`: what comes after the requests that were read begins with that method.
fn check(reading: &Reading, is_head: bool, heard: &[u8]) {
    let mut rest = heard;
    for (at, taken) in reading.requests.iter().enumerate() {
        let reply = next(rest, taken.method == "HEAD");
        assert_eq!(reply.status, 200, "{taken:?}");
        if taken.method != "HEAD" {
            let body = reply.body;
            assert!(
                body.starts_with(taken.method.as_bytes()),
                "another request's reply"
            );
            assert!(body.ends_with(&taken.body), "another request's body");
        }
        // The end of the input may be known when the last one is answered.
        let is_last = at + 1 == reading.requests.len() && reading.fault.is_none();
        assert!(reply.closes || taken.keep_alive, "{taken:?}");
        assert!(!reply.closes || !taken.keep_alive || is_last, "{taken:?}");
        rest = reply.rest;
    }
    if let Some(fault) = reading.fault {
        let reply = next(rest, is_head);
        assert_eq!(reply.status, fault.status().as_u16(), "{fault:?}");
        assert!(reply.closes, "{fault:?}");
        rest = reply.rest;
    }
    // Whose body is awaited may be asked for it.
    while rest.starts_with(b"HTTP/1.1 100 ") {
        rest = behind_head(rest).1;
    }
    assert_eq!(String::from_utf8_lossy(rest), "", "nothing else is said");
}

/// The first reply in `heard` that is final.
fn next(heard: &[u8], is_head: bool) -> Heard<'_> {
    let (head, behind) = behind_head(heard);
    let text = std::str::from_utf8(head).expect("a head of ours is ASCII");
    let status: u16 = text[9..12].parse().expect("a status");
    if status == 100 {
        return next(behind, is_head);
    }
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(own, _)| *own == name).map(|(_, value)| value)
    };
    let length = match value("Content-Length") {
        Some(length) if !is_head => length.parse().expect("a length"),
        _ => 0,
    };
    let (body, rest) = behind.split_at(length);
    Heard {
        status,
        body,
        closes: value("Connection") == Some("close"),
        rest,
    }
}

fn behind_head(heard: &[u8]) -> (&[u8], &[u8]) {
    let end = heard.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no reply in {:?}", String::from_utf8_lossy(heard)));
    (&heard[..end], &heard[end + 4..])
}
