//! The preface, frames and blocks as such, the states of streams, and errors: sections 3 to 5.

use super::*;
use crate::h2_frames::PRIORITY;

/// A kind of frame that no RFC has.
const UNKNOWN: u8 = 0x42;

/// More than the longest frame that a server takes which has not said otherwise.
const TOO_LONG: usize = (16 << 10) + 1;

/// A head in two frames, the first of which is this long.
fn in_two(stream: u32, first: usize) -> [Vec<u8>; 2] {
    let (first, second) = GET.split_at(first);
    let begin = frame(HEADERS, END_STREAM, stream, first);
    [begin, continuation(stream, second)]
}

/// The head of a GET that is not complete, and this frame.
fn within_a_block(other: Vec<u8>) -> [Vec<u8>; 1] {
    let [begin, _] = in_two(1, 2);
    [[begin, other].concat()]
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = prefaces();
    cases.extend(sizes_and_blocks());
    cases.extend(idle_and_half_closed());
    cases.extend(closed());
    cases.extend(identifiers_and_numbers());
    cases
}

fn prefaces() -> Vec<Case> {
    let asked = [greeting(), get(1)].concat();
    let ping = frame(PING, 0, 0, &[0; 8]);
    table! { bare:
        "3.4" "the preface and SETTINGS": [greeting()] => &[];
        "3.4" "a request without a wait": [asked] => &[Answer(1, 200, 5)];
        "3.4" "no preface": [b"INVALID CONNECTION PREFACE\r\n\r\n".to_vec()] => &[Http1(400)];
        "3.4" "half of the preface": [PREFACE[..20].to_vec(), get(1)] => &[Heard::Silence];
        "3.4" "an answer to SETTINGS in their place":
            [[PREFACE, &frame(SETTINGS, ACK, 0, &[])].concat()] => &[End(PROTOCOL)];
        "3.4" "no SETTINGS": [[PREFACE, &ping].concat()]
            => &[End(PROTOCOL)];
    }
}

fn sizes_and_blocks() -> Vec<Case> {
    let long = |bytes| header("x", &"x".repeat(bytes));
    let long_block = [GET, &long(120).repeat(TOO_LONG / 120)].concat();
    let ping = |flags| frame(PING, flags, 0, b"a flag..");
    let mut reserved = ping(0);
    reserved[5] = 0x80;
    let pong = Pong(*b"a flag..");
    let full = [data(1, &[0; TOO_LONG - 1]), last_data(1, b"")].concat();
    let [begin, end] = in_two(1, 2);
    table! { greeted:
        "4.1" "a frame of an unknown kind": [frame(UNKNOWN, 0, 0, b"xyz")] => &[];
        "4.1" "unknown flags": [ping(0xfe)] => &[pong];
        "4.1" "the reserved bit": [reserved] => &[pong];
        "4.2" "the longest DATA": [post(1), full] => &[Answer(1, 200, TOO_LONG - 1)];
        "4.2" "DATA too long": [post(1), data(1, &[0; TOO_LONG])] => &[End(FRAME_SIZE)];
        "4.2" "HEADERS too long": [ask(1, &long_block)] => &[End(FRAME_SIZE)];
        "4.2" "an unknown frame too long":
            [frame(UNKNOWN, 0, 0, &[0; TOO_LONG])] => &[End(FRAME_SIZE)];
        "4.3" "a block that is none": [ask(1, b"\x40")] => &[End(COMPRESSION)];
        "4.3" "a block in two frames": [begin, end] => &[Answer(1, 200, 5)];
        "4.3" "PRIORITY within a block":
            within_a_block(frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 0])) => &[End(PROTOCOL)];
        "4.3" "HEADERS of another stream within a block":
            within_a_block(get(3)) => &[End(PROTOCOL)];
        "5.5" "an unknown frame":
            [get(1), frame(UNKNOWN, 0xff, 1, b""), get(3)]
            => &[Answer(1, 200, 5), Answer(3, 200, 5)];
        "5.5" "an unknown frame within a block":
            within_a_block(frame(UNKNOWN, 0, 1, b"xyz")) => &[End(PROTOCOL)];
    }
}

fn idle_and_half_closed() -> Vec<Case> {
    // No window: the stream stays half closed.
    let asked = || [settings(&[(INITIAL_WINDOW, 0)]), get(1)].concat();
    table! { greeted:
        "5.1" "idle: DATA": [data(1, b"x")] => &[End(PROTOCOL)];
        "5.1" "idle: RST_STREAM": [reset(1, Reason::CANCEL)] => &[End(PROTOCOL)];
        "5.1" "idle: WINDOW_UPDATE": [window(1, 100)] => &[End(PROTOCOL)];
        "5.1" "idle: CONTINUATION": [continuation(1, GET)] => &[End(PROTOCOL)];
        "5.1" "idle: PRIORITY": [frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 0])] => &[];
        "5.1" "half closed: DATA": [asked(), data(1, b"x")]
            => &[Reset(1, CLOSED)];
        "5.1" "half closed: HEADERS": [asked(), get(1)]
            => &[Reset(1, CLOSED)];
        "5.1" "half closed: CONTINUATION":
            [asked(), continuation(1, GET)] => &[Part(1, 0), End(PROTOCOL)];
        "5.1" "half closed: RST_STREAM": [asked(), reset(1, Reason::CANCEL)] => &[Part(1, 0)];
        "5.1" "half closed: WINDOW_UPDATE": [asked(), window(1, 100)] => &[Answer(1, 200, 5)];
        "5.1" "half closed: PRIORITY":
            [asked(), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 0]), window(1, 100)]
            => &[Answer(1, 200, 5)];
    }
}

fn closed() -> Vec<Case> {
    let cancel = || [post(1), reset(1, Reason::CANCEL)].concat();
    let answer = Answer(1, 200, 5);
    table! { greeted:
        "5.1" "reset by the client: DATA": [cancel(), data(1, b"x")] => &[Reset(1, CLOSED)];
        "5.1" "reset by the client: HEADERS": [cancel(), get(1)]
            => &[End(CLOSED)];
        "5.1" "reset by the client: CONTINUATION":
            [cancel(), continuation(1, GET)] => &[End(PROTOCOL)];
        "5.1" "reset by the client: WINDOW_UPDATE": [cancel(), window(1, 1)] => &[];
        "5.1" "reset by the client, RST_STREAM": [cancel(), reset(1, PROTOCOL)] => &[];
        "5.1" "reset by the client: PRIORITY":
            [cancel(), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 0])] => &[];
        "5.1" "answered: DATA": [get(1), data(1, b"x")] => &[answer, Reset(1, CLOSED)];
        "5.1" "answered: HEADERS": [get(1), get(1)]
            => &[answer, End(CLOSED)];
        "5.1" "answered: CONTINUATION": [get(1), continuation(1, GET)] => &[answer, End(PROTOCOL)];
        "5.1" "answered: WINDOW_UPDATE": [get(1), window(1, 1)] => &[answer];
        "5.1" "answered: RST_STREAM": [get(1), reset(1, Reason::CANCEL)] => &[answer];
        "5.1" "answered: PRIORITY": [get(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 0])] => &[answer];
    }
}

fn identifiers_and_numbers() -> Vec<Case> {
    let many: Vec<u8> = (0..101).flat_map(|at| post(2 * at + 1)).collect();
    let of_itself = |stream: u8| {
        let with_priority = END_STREAM | END_HEADERS | PRIORITY_FLAG;
        let head = [&[0, 0, 0, stream, 15], GET].concat();
        frame(HEADERS, with_priority, stream.into(), &head)
    };
    table! { greeted:
        "5.1.1" "a stream of the server's": [get(2)] => &[End(PROTOCOL)];
        "5.1.1" "a number less than the last":
            [get(5), get(3)] => &[Answer(5, 200, 5), End(PROTOCOL)];
        "5.1.1" "numbers that are left out":
            [get(5), get(9)] => &[Answer(5, 200, 5), Answer(9, 200, 5)];
        "5.1.2" "more streams than the server takes": [many] => &[Reset(201, REFUSED)];
        // 5.3.1 in RFC 7540; RFC 9113 has done away with priorities.
        "5.3" "HEADERS that depend on themselves": [of_itself(1)] => &[Reset(1, PROTOCOL)];
        "5.3" "PRIORITY that depends on itself":
            [post(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 15])] => &[Reset(1, PROTOCOL)];
        "5.4.1" "more after an error of the connection":
            [frame(PING, 0, 1, &[0; 8]), get(1)] => &[End(PROTOCOL)];
        "5.4.2" "more after an error of a stream": [[of_itself(1), get(3)].concat(), get(5)]
            => &[Reset(1, PROTOCOL), Answer(3, 200, 5), Answer(5, 200, 5)];
    }
}
