//! Troubles over HTTP/2: clients that say again and again what costs them less than the server, a
//! class of attacks each. A connection that ends for it is dialled anew.
//!
//! The same classes are in the simulation, attack by attack
//! (`protocols/http/tests/it/h2_attacks.rs`). nginx has none of these rows: its listener here
//! speaks HTTP/1.

use flatpath_testkit::h2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, PREFACE, RESET, SETTINGS,
    WINDOW_UPDATE, frame, get,
};

use super::crowd::Manner;
use super::manners::flood;
use super::server::Arena;
use super::troubles::{HTTP, Trouble};

/// Clients of each row.
const CLIENTS: usize = 32;
/// Requests that one client begins, if it is not disconnected before: short ones and long ones.
const SHORT: u32 = 2_000;
const LONG: u32 = 200;
/// What is said again and again, at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// `POST http://localhost/`, its body to come.
const POST: &[u8] = b"\x83\x86\x84\x01\x09localhost";
/// `GET` of the same.
const GET: &[u8] = b"\x82\x86\x84\x01\x09localhost";

pub(super) fn of_http2() -> Vec<Trouble> {
    let ours = Trouble {
        nginx_has_it: false,
        ..HTTP
    };
    vec![
        Trouble {
            name: "HTTP/2: streams that the client resets",
            is_in_quick: true,
            crowd: |arena| {
                Ok(requests(arena, SHORT, |stream| {
                    let reset = frame(RESET, 0, stream, &[0, 0, 0, 8]);
                    [get(stream, "localhost", "/"), reset].concat()
                }))
            },
            ..ours
        },
        Trouble {
            name: "HTTP/2: streams that the server has to reset",
            crowd: |arena| {
                Ok(requests(arena, SHORT, |stream| {
                    let post = frame(HEADERS, END_HEADERS, stream, POST);
                    [post, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
                }))
            },
            ..ours
        },
        Trouble {
            name: "HTTP/2: heads without an end",
            crowd: |arena| {
                let begin = frame(HEADERS, END_STREAM, 1, GET);
                Ok(said(arena, &begin, &frame(CONTINUATION, 0, 1, b"\0")))
            },
            ..ours
        },
        Trouble {
            name: "HTTP/2: heads of a few bytes that are long",
            crowd: |arena| Ok(requests(arena, LONG, long_head)),
            ..ours
        },
        Trouble {
            name: "HTTP/2: frames of a body that are empty",
            crowd: |arena| {
                let post = frame(HEADERS, END_HEADERS, 1, POST);
                Ok(said(arena, &post, &frame(DATA, 0, 1, b"")))
            },
            ..ours
        },
        Trouble {
            name: "HTTP/2: a body of padding",
            crowd: |arena| {
                let post = frame(HEADERS, END_HEADERS, 1, POST);
                let padding = [&[200][..], &[0; 200]].concat();
                Ok(said(arena, &post, &frame(DATA, PADDED, 1, &padding)))
            },
            ..ours
        },
        Trouble {
            name: "HTTP/2: PING and SETTINGS without end",
            is_in_quick: true,
            crowd: |arena| {
                let asked = get(1, "localhost", "/");
                let ping = frame(PING, 0, 0, &[7; 8]);
                let pair = [ping, frame(SETTINGS, 0, 0, &[])].concat();
                Ok(said(arena, &asked, &pair))
            },
            ..ours
        },
    ]
}

/// The first puts a field of 3,000 bytes into the table, and each after it names that one often.
fn long_head(stream: u32) -> Vec<u8> {
    let block = match stream {
        1 => [GET, b"\x40\x01x\x7f\xb9\x16", &[b'v'; 3_000]].concat(),
        _ => [GET, &[0xbe; 4_000]].concat(),
    };
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Each client begins this number of requests, one stream after the other.
fn requests(arena: &Arena, count: u32, request: impl Fn(u32) -> Vec<u8>) -> Manner {
    let streams = (0..count).flat_map(|at| request(2 * at + 1));
    let opening = [greeting(), streams.collect()].concat();
    Manner {
        opening: Box::new(move |_| opening.clone()),
        ..flood(arena.http, CLIENTS, Vec::new())
    }
}

/// Each client says this after its beginning, again and again.
fn said(arena: &Arena, begins: &[u8], again: &[u8]) -> Manner {
    let opening = [&greeting()[..], begins].concat();
    let chunk = again.repeat(CHUNK_BYTES / again.len());
    Manner {
        opening: Box::new(move |_| opening.clone()),
        ..flood(arena.http, CLIENTS, chunk)
    }
}
