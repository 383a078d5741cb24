//! Frames of HTTP/2 as bytes (RFC 9113 section 4.1), for clients that the `h2` crate would not let
//! be.

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `GET http://h/`, of the static table but for its host.
pub(crate) const GET: &[u8] = b"\x82\x86\x84\x41\x01h";
/// `POST http://h/`.
pub(crate) const POST: &[u8] = b"\x83\x86\x84\x41\x01h";

pub(crate) fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A frame that a client has got.
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

/// The frames that a client has got, the last one as far as it has come.
pub(crate) fn whole_frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let [_, a, b, kind, flags, stream @ ..] = *head;
        let length = usize::from(a) << 8 | usize::from(b);
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        frames.push(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream),
            payload,
        });
        bytes = rest;
    }
    frames
}

/// The kinds of frames that a client has got, with the error of GOAWAY.
pub(crate) fn frames(bytes: &[u8]) -> Vec<(u8, Option<u8>)> {
    let kind = |frame: Frame<'_>| {
        let error = (frame.kind == GOAWAY).then(|| frame.payload.get(7).copied());
        (frame.kind, error.flatten())
    };
    whole_frames(bytes).into_iter().map(kind).collect()
}
