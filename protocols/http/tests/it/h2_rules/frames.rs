//! Each kind of frame, flow control, and error codes: sections 6 and 7.

use super::*;
use crate::h2_frames::{PRIORITY, PUSH_PROMISE};

/// What the windows count to (section 6.9.1).
const WINDOW_MAX: u32 = i32::MAX as u32;

/// What each window begins with (section 6.9.2).
const WINDOW: u32 = 65_535;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = bodies();
    cases.extend(heads());
    cases.extend(priorities_and_resets());
    cases.extend(settings_frames());
    cases.extend(settings_values());
    cases.extend(pings_and_goodbyes());
    cases.extend(updates());
    cases.extend(windows());
    cases.extend(blocks_and_codes());
    cases
}

fn bodies() -> Vec<Case> {
    let padded = |payload: &[u8]| frame(DATA, END_STREAM | PADDED, 1, payload);
    table! { greeted:
        "6.1" "a body": [post(1), data(1, b"ab"), last_data(1, b"c")] => &[Answer(1, 200, 3)];
        "6.1" "an empty body": [post(1), last_data(1, b"")] => &[Answer(1, 200, 0)];
        "6.1" "padding": [post(1), padded(b"\x03ab\0\0\0")] => &[Answer(1, 200, 2)];
        "6.1" "nothing but padding": [post(1), padded(b"\x03\0\0\0")] => &[Answer(1, 200, 0)];
        "6.1" "on no stream": [data(0, b"x")] => &[End(PROTOCOL)];
        "6.1" "padding after the end": [post(1), padded(b"\x03ab\0\0\0"), get(3)]
            => &[Answer(1, 200, 2), Answer(3, 200, 5)];
        "6.1" "padding of an empty frame, then more":
            [post(1), frame(DATA, PADDED, 1, b"\x02\0\0"), last_data(1, b"x")]
            => &[Answer(1, 200, 1)];
        "6.1" "padding of a stream that is closed":
            [post(1), reset(1, Reason::CANCEL), padded(b"\x03ab\0\0\0"), get(3)]
            => &[Reset(1, CLOSED), Answer(3, 200, 5)];
        "6.1" "padding as long as the frame": [post(1), padded(b"\x06abcde")] => &[End(PROTOCOL)];
        "6.1" "padding without its length": [post(1), padded(b"")] => &[End(PROTOCOL)];
    }
}

fn heads() -> Vec<Case> {
    let head = |flags, payload: &[&[u8]]| {
        frame(
            HEADERS,
            END_STREAM | END_HEADERS | flags,
            1,
            &payload.concat(),
        )
    };
    let padded = head(PADDED, &[b"\x02", GET, b"\0\0"]);
    let both = head(PADDED | PRIORITY_FLAG, &[b"\x01\0\0\0\0\x0f", GET, b"\0"]);
    table! { greeted:
        "6.2" "padding": [padded] => &[Answer(1, 200, 5)];
        "6.2" "a priority": [head(PRIORITY_FLAG, &[b"\0\0\0\0\x0f", GET])] => &[Answer(1, 200, 5)];
        "6.2" "padding and a priority": [both] => &[Answer(1, 200, 5)];
        "6.2" "on no stream": [get(0)] => &[End(PROTOCOL)];
        "6.2" "padding longer than the frame": [head(PADDED, &[b"\x10", GET])] => &[End(PROTOCOL)];
        "6.2" "no room for its priority": [head(PRIORITY_FLAG, &[b"\0\0"])]
            => &[End(FRAME_SIZE)];
    }
}

fn priorities_and_resets() -> Vec<Case> {
    let priority = |stream, payload: &[u8]| frame(PRIORITY, 0, stream, payload);
    let reset_of = |payload: &[u8]| [post(1), frame(RESET, 0, 1, payload)].concat();
    table! { greeted:
        "6.3" "for a stream that is to come":
            [priority(1, &[0, 0, 0, 0, 7]), get(1)] => &[Answer(1, 200, 5)];
        "6.3" "on no stream": [priority(0, &[0, 0, 0, 0, 7])] => &[End(PROTOCOL)];
        "6.3" "of four bytes": [post(1), priority(1, &[0; 4])]
            => &[Reset(1, FRAME_SIZE)];
        "5.1" "of four bytes, on an idle stream": [priority(1, &[0; 4])] => &[End(FRAME_SIZE)];
        "5.1" "on itself, which is idle": [priority(1, &[0, 0, 0, 1, 7])] => &[End(PROTOCOL)];
        "6.4" "of a request": [post(1), reset(1, Reason::CANCEL), get(3)] => &[Answer(3, 200, 5)];
        "6.4" "on no stream": [reset(0, Reason::CANCEL)] => &[End(PROTOCOL)];
        "6.4" "of an idle stream": [reset(1, Reason::CANCEL)] => &[End(PROTOCOL)];
        "6.4" "of three bytes": [reset_of(&[0; 3])] => &[End(FRAME_SIZE)];
        "6.4" "of five bytes": [reset_of(&[0; 5])] => &[End(FRAME_SIZE)];
    }
}

fn settings_frames() -> Vec<Case> {
    let of = |flags, stream, payload: &[u8]| [frame(SETTINGS, flags, stream, payload)];
    table! { greeted:
        "6.5" "an answer that is not empty": of(ACK, 0, &[0])
            => &[End(FRAME_SIZE)];
        "6.5" "of a stream": of(0, 1, &[]) => &[End(PROTOCOL)];
        "6.5" "a part of a setting": of(0, 0, &[0, 3, 0]) => &[End(FRAME_SIZE)];
        "6.5" "a setting and a part of one":
            of(0, 0, &[0, 3, 0, 0, 0, 9, 0]) => &[End(FRAME_SIZE)];
        "6.5.3" "one after the other": [settings(&[]), settings(&[(3, 100)])] => &[];
        "6.5.3" "the same setting twice":
            [settings(&[(INITIAL_WINDOW, 100), (INITIAL_WINDOW, 1)]), get(1)] => &[Part(1, 1)];
    }
}

fn settings_values() -> Vec<Case> {
    let (push, frame_bytes, tunnels) = (2, 5, 8);
    let one = |id, value| [settings(&[(id, value)])];
    table! { greeted:
        "6.5.2" "HEADER_TABLE_SIZE of nothing":
            [settings(&[(1, 0)]), get(1), get(3)] => &[Answer(1, 200, 5), Answer(3, 200, 5)];
        "6.5.2" "ENABLE_PUSH of 0": one(push, 0) => &[];
        "6.5.2" "ENABLE_PUSH of 1": one(push, 1) => &[];
        "6.5.2" "ENABLE_PUSH of 2": one(push, 2) => &[End(PROTOCOL)];
        "6.5.2" "MAX_CONCURRENT_STREAMS of 0":
            [settings(&[(3, 0)]), get(1)] => &[Answer(1, 200, 5)];
        "6.5.2" "the largest INITIAL_WINDOW_SIZE": one(INITIAL_WINDOW, WINDOW_MAX) => &[];
        "6.5.2" "a larger INITIAL_WINDOW_SIZE":
            one(INITIAL_WINDOW, WINDOW_MAX + 1) => &[End(FLOW_CONTROL)];
        "6.5.2" "the least MAX_FRAME_SIZE": one(frame_bytes, 1 << 14) => &[];
        "6.5.2" "a lesser MAX_FRAME_SIZE": one(frame_bytes, (1 << 14) - 1) => &[End(PROTOCOL)];
        "6.5.2" "the largest MAX_FRAME_SIZE": one(frame_bytes, (1 << 24) - 1) => &[];
        "6.5.2" "a larger MAX_FRAME_SIZE": one(frame_bytes, 1 << 24) => &[End(PROTOCOL)];
        "6.5.2" "MAX_HEADER_LIST_SIZE of any value": one(6, u32::MAX) => &[];
        "6.5.2" "an unknown setting": one(0xff, 7) => &[];
        "RFC 8441 3" "ENABLE_CONNECT_PROTOCOL of 1": one(tunnels, 1) => &[];
        "RFC 8441 3" "ENABLE_CONNECT_PROTOCOL of 2": one(tunnels, 2) => &[End(PROTOCOL)];
    }
}

fn pings_and_goodbyes() -> Vec<Case> {
    let ping = |flags, stream, payload: &[u8]| [frame(PING, flags, stream, payload)];
    let goodbye = |stream| frame(GOAWAY, 0, stream, &[0; 8]);
    table! { greeted:
        "6.7" "a question": ping(0, 0, b"question") => &[Pong(*b"question")];
        "6.7" "an answer to nothing": ping(ACK, 0, b"answer..") => &[];
        "6.7" "of a stream": ping(0, 1, &[0; 8]) => &[End(PROTOCOL)];
        "6.7" "of seven bytes": ping(0, 0, &[0; 7]) => &[End(FRAME_SIZE)];
        "6.7" "of nine bytes": ping(0, 0, &[0; 9]) => &[End(FRAME_SIZE)];
        "6.8" "of a stream": [goodbye(1)] => &[End(PROTOCOL)];
        "6.8" "more after it, of no meaning any more":
            [[goodbye(0), data(0, b"x")].concat()] => &[End(Reason::NO_ERROR)];
        "6.8" "too short": [frame(GOAWAY, 0, 0, &[0; 7])] => &[End(FRAME_SIZE)];
        "6.8" "with a request under way":
            [[post(1), goodbye(0)].concat(), last_data(1, b"x")]
            => &[Answer(1, 200, 1), End(Reason::NO_ERROR)];
    }
}

/// RFC 9218 section 7.1.
fn updates() -> Vec<Case> {
    let update = |stream, payload: &[u8]| frame(0x10, 0, stream, payload);
    table! { greeted:
        "RFC 9218 7.1" "of a stream that is to come":
            [update(0, b"\0\0\0\x01u=1,i"), get(1)] => &[Answer(1, 200, 5)];
        "RFC 9218 7.1" "on a stream": [update(1, b"\0\0\0\x01u=1")] => &[End(PROTOCOL)];
        "RFC 9218 7.1" "without its stream": [update(0, b"\0")] => &[End(FRAME_SIZE)];
        "RFC 9218 7.1" "of no stream": [update(0, b"\0\0\0\0u=1")] => &[End(PROTOCOL)];
        "RFC 9218 7.1" "of a pushed one": [update(0, b"\0\0\0\x02u=1")] => &[End(PROTOCOL)];
    }
}

fn windows() -> Vec<Case> {
    let initial = |bytes| settings(&[(INITIAL_WINDOW, bytes)]);
    let fills = WINDOW_MAX - WINDOW;
    table! { greeted:
        "6.9" "nothing for the connection": [window(0, 0)] => &[End(PROTOCOL)];
        "6.9" "nothing for a stream": [post(1), window(1, 0)] => &[Reset(1, PROTOCOL)];
        "6.9" "of three bytes": [frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1])]
            => &[End(FRAME_SIZE)];
        "6.9" "of five bytes":
            [frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1, 0])] => &[End(FRAME_SIZE)];
        "6.9.1" "a reply longer than its window": [initial(1), get(1)] => &[Part(1, 1)];
        "6.9.1" "a window as it opens":
            [initial(1), get(1), window(1, 2), window(1, 2)] => &[Answer(1, 200, 5)];
        "6.9.1" "the largest window of the connection": [window(0, fills)] => &[];
        "6.9.1" "a larger one": [window(0, fills), window(0, 1)] => &[End(FLOW_CONTROL)];
        "6.9.1" "the largest window of a stream": [post(1), window(1, fills)] => &[];
        "6.9.1" "a larger window of a stream":
            [post(1), window(1, fills), window(1, 1)] => &[Reset(1, FLOW_CONTROL)];
        "6.9.2" "a window that opens with a setting":
            [initial(0), get(1), initial(3)] => &[Part(1, 3)];
        "6.9.2" "a window of less than nothing":
            [initial(3), get(1), initial(2), window(1, 2)] => &[Part(1, 4)];
        "6.9.2" "a stream's window too large by a setting":
            [post(1), window(1, fills), initial(WINDOW + 1)] => &[End(FLOW_CONTROL)];
        "6.9.2" "the connection's window after a setting":
            [initial(0), get(1), window(0, 9)] => &[Part(1, 0)];
    }
}

fn blocks_and_codes() -> Vec<Case> {
    let begins = || frame(HEADERS, END_STREAM, 1, &GET[..1]);
    let part = |at: usize| frame(CONTINUATION, 0, 1, &GET[at..=at]);
    let several = [begins(), part(1), part(2), continuation(1, &GET[3..])].concat();
    let unknown = Reason::from(0xff);
    let goodbye = frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff]);
    let push = frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2], GET].concat());
    table! { greeted:
        "6.6" "a push of the client's": [post(1), push] => &[End(PROTOCOL)];
        "6.10" "several": [several] => &[Answer(1, 200, 5)];
        "6.10" "then something else":
            [[begins(), part(1), data(1, b"x")].concat()] => &[End(PROTOCOL)];
        "6.10" "on no stream":
            [[begins(), continuation(0, &GET[1..])].concat()] => &[End(PROTOCOL)];
        "6.10" "on another stream":
            [[begins(), continuation(3, &GET[1..])].concat()] => &[End(PROTOCOL)];
        "6.10" "after the end of a block":
            [[post(1), continuation(1, b"")].concat()] => &[End(PROTOCOL)];
        "6.10" "after CONTINUATION with the end":
            [[begins(), continuation(1, &GET[1..]), continuation(1, b"")].concat()]
            => &[End(PROTOCOL)];
        "6.10" "after DATA":
            [[post(1), data(1, b"x"), continuation(1, b"")].concat()] => &[End(PROTOCOL)];
        "7" "RST_STREAM with an unknown code": [post(1), reset(1, unknown)] => &[];
        "7" "GOAWAY with an unknown code": [goodbye] => &[End(Reason::NO_ERROR)];
    }
}
