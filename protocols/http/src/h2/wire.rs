//! Frames as bytes (RFC 9113 sections 4.1 and 6), and error codes (section 7).
//!
//! ```text
//! length (24) | kind (8) | flags (8) | 0 (1) | stream (31) | payload
//! ```

/// What a client begins with (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const FRAME_HEAD_BYTES: usize = 9;

/// The longest payload that is taken and sent: what every side takes (RFC 9113 section 4.2).
pub(super) const FRAME_BYTES_MAX: usize = 16 * 1024;

/// The largest window (RFC 9113 section 6.9.1), and number of a stream.
pub(super) const WINDOW_MAX: u32 = i32::MAX as u32;

/// What each window begins with (RFC 9113 section 6.9.2).
pub(super) const WINDOW_FIRST: u32 = 65_535;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// Why a stream or a connection ends (RFC 9113 section 7); those that a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    NoError = 0x0,
    Protocol = 0x1,
    Internal = 0x2,
    FlowControl = 0x3,
    StreamClosed = 0x5,
    FrameSize = 0x6,
    Refused = 0x7,
    Cancel = 0x8,
    Compression = 0x9,
    EnhanceYourCalm = 0xb,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// RFC 9218 section 7.1.
    PriorityUpdate,
    Unknown,
}

impl Kind {
    fn of(byte: u8) -> Kind {
        match byte {
            0x0 => Kind::Data,
            0x1 => Kind::Headers,
            0x2 => Kind::Priority,
            0x3 => Kind::Reset,
            0x4 => Kind::Settings,
            0x5 => Kind::PushPromise,
            0x6 => Kind::Ping,
            0x7 => Kind::GoAway,
            0x8 => Kind::WindowUpdate,
            0x9 => Kind::Continuation,
            0x10 => Kind::PriorityUpdate,
            _ => Kind::Unknown,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Kind::PriorityUpdate => 0x10,
            Kind::Unknown => 0xff,
            kind => kind as u8,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: usize,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Frame {
    /// The frame that the input begins with, if its head is there.
    pub(super) fn read(input: &[u8]) -> Option<Frame> {
        let [a, b, c, kind, flags, stream @ ..] = *input.first_chunk::<FRAME_HEAD_BYTES>()?;
        Some(Frame {
            bytes: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind: Kind::of(kind),
            flags,
            // RFC 9113 4.1: "A reserved 1-bit field. ... MUST be ignored when receiving."
            stream: u32::from_be_bytes(stream) & WINDOW_MAX,
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The frame with its head.
    pub(super) fn whole_bytes(&self) -> usize {
        FRAME_HEAD_BYTES + self.bytes
    }
}

/// The head of a frame with so long a payload.
pub(super) fn head(kind: Kind, flags: u8, stream: u32, bytes: usize) -> [u8; FRAME_HEAD_BYTES] {
    debug_assert!(bytes <= FRAME_BYTES_MAX, "every client takes it");
    let [_, a, b, c] = (bytes as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind.byte(), flags, d, e, f, g]
}

/// Appends a frame.
pub(super) fn put(out: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&head(kind, flags, stream, payload.len()));
    out.extend_from_slice(payload);
}

/// Appends a frame whose payload is one number.
pub(super) fn put_number(out: &mut Vec<u8>, kind: Kind, stream: u32, number: u32) {
    put(out, kind, 0, stream, &number.to_be_bytes());
}

/// Appends a block as HEADERS and, where it is long, CONTINUATION.
pub(super) fn put_block(out: &mut Vec<u8>, stream: u32, block: &[u8], is_end: bool) {
    let mut flags = if is_end { END_STREAM } else { 0 };
    let (mut kind, mut rest) = (Kind::Headers, block);
    loop {
        let (part, after) = rest.split_at(rest.len().min(FRAME_BYTES_MAX));
        flags |= if after.is_empty() { END_HEADERS } else { 0 };
        put(out, kind, flags, stream, part);
        if after.is_empty() {
            return;
        }
        (kind, flags, rest) = (Kind::Continuation, 0, after);
    }
}

/// The number at the beginning of a payload, without a bit that is reserved.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    let number = payload.first_chunk()?;
    Some(u32::from_be_bytes(*number) & WINDOW_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back() {
        for byte in 0..=0x11 {
            let kind = Kind::of(byte);
            let mut out = Vec::new();
            put(&mut out, kind, 0x25, 77, b"payload");
            let frame = Frame::read(&out).expect("its head is there");
            assert_eq!((frame.kind, frame.flags, frame.stream), (kind, 0x25, 77));
            assert_eq!(frame.whole_bytes(), out.len());
            assert!(kind == Kind::Unknown || out[3] == byte);
            assert_eq!(Frame::read(&out[..FRAME_HEAD_BYTES - 1]), None);
        }
        let reserved = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(Frame::read(&reserved).map(|it| it.stream), Some(1));
        assert_eq!(number(&[0xff; 4]), Some(WINDOW_MAX));
        assert_eq!(number(&[0; 3]), None);
    }

    #[test]
    fn a_long_block_is_in_several_frames() {
        for bytes in [
            0,
            1,
            FRAME_BYTES_MAX,
            FRAME_BYTES_MAX + 1,
            3 * FRAME_BYTES_MAX,
        ] {
            let block: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let mut out = Vec::new();
            put_block(&mut out, 5, &block, true);
            let (mut rest, mut found, mut is_first) = (&out[..], Vec::new(), true);
            while let Some(frame) = Frame::read(rest) {
                let (whole, after) = rest.split_at(frame.whole_bytes());
                found.extend_from_slice(&whole[FRAME_HEAD_BYTES..]);
                assert_eq!(frame.kind == Kind::Headers, is_first);
                assert_eq!(frame.has(END_STREAM), is_first);
                assert_eq!(frame.has(END_HEADERS), after.is_empty());
                assert!(frame.bytes <= FRAME_BYTES_MAX && frame.stream == 5);
                (rest, is_first) = (after, false);
            }
            assert_eq!(found, block);
        }
    }
}
