//! HTTP/2 in the clear, frame by frame (RFC 9113 section 4.1), for clients that a library would not
//! let be.

use std::io::{self, Read};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// A GET without a body or further fields.
pub fn get(stream: u32, authority: &str, path: &str) -> Vec<u8> {
    asks(stream, authority, path, &[])
}

/// The same with fields, their names in lower case; all as they are, without a table (RFC 7541
/// section 6.2.2).
pub fn asks(stream: u32, authority: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("short");
        [&[length], text.as_bytes()].concat()
    };
    // `:method GET` and `:scheme http` are entries 2 and 6, the names of the others 4 and 1.
    let mut block = [b"\x82\x86\x04", &text(path)[..], b"\x01", &text(authority)].concat();
    for (name, value) in fields {
        block.extend([&[0], &text(name)[..], &text(value)].concat());
    }
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

/// All that a client sends for a file, with windows that are no bound. Workers read what is sent
/// over HTTP/2 into buffers, where the kernel would send it over HTTP/1.
pub fn download(path: &str) -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: u8 = 4;
    let stream_window = [0, INITIAL_WINDOW_SIZE, 0x7f, 0xff, 0xff, 0xff];
    let frames = [
        frame(SETTINGS, 0, 0, &stream_window),
        frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]),
        get(1, "localhost", path),
    ];
    [PREFACE, &frames.concat()].concat()
}

/// A frame that came.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// The next frame.
///
/// # Errors
/// The connection ends before it.
pub fn next(stream: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [high, middle, low, kind, flags, number @ ..] = head;
    let length = u32::from_be_bytes([0, high, middle, low]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload)?;
    Ok(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(number),
        payload,
    })
}
