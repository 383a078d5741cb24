//! Frames that a server sends: a head and its payload, never masked (RFC 6455 section 5.1), never
//! fragmented.

use bytes::Bytes;

use crate::close::Close;

/// What a frame is (section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: RFC 6455 section 5.2 has no other.
pub enum Opcode {
    /// The next part of a message.
    Continuation = 0,
    /// A message in UTF-8.
    Text = 1,
    /// A message of bytes.
    Binary = 2,
    /// The end.
    Close = 8,
    /// To be answered.
    Ping = 9,
    /// The answer.
    Pong = 10,
}

/// Most bytes of a head without a mask.
const HEAD_BYTES_MAX: usize = 10;

/// The bit of a head that says that the message is compressed (RFC 7692 section 6).
pub(crate) const COMPRESSED: u8 = 0x40;

/// A frame as it is sent. A clone shares the payload.
#[derive(Clone, Debug)]
pub struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: u8,
    payload: Bytes,
}

impl Frame {
    /// A whole message, or a control frame.
    pub fn new(opcode: Opcode, payload: impl Into<Bytes>) -> Frame {
        let payload = payload.into();
        let (head, head_bytes) = head(0x80 | opcode as u8, payload.len());
        Frame {
            head,
            head_bytes,
            payload,
        }
    }

    /// A whole message whose payload is compressed already.
    #[cfg(feature = "deflate")]
    pub(crate) fn compressed(opcode: Opcode, payload: Bytes) -> Frame {
        let mut frame = Frame::new(opcode, payload);
        frame.head[0] |= COMPRESSED;
        frame
    }

    pub(crate) fn close(close: &Close) -> Frame {
        Frame::new(Opcode::Close, close.payload())
    }

    /// What goes before the payload.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }

    /// What the frame carries.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    pub(crate) fn payload_mut(&mut self) -> &mut Bytes {
        &mut self.payload
    }

    pub(crate) fn is_text(&self) -> bool {
        self.head[0] & 0x0F == Opcode::Text as u8
    }

    pub(crate) fn into_payload(self) -> Bytes {
        self.payload
    }

    /// Bytes that are sent.
    pub(crate) fn bytes(&self) -> usize {
        self.head().len() + self.payload.len()
    }

    pub(crate) fn is_close(&self) -> bool {
        self.head[0] & 0x0F == Opcode::Close as u8
    }
}

/// A head with its first byte given, and how many bytes of the array it has.
fn head(first: u8, bytes: usize) -> ([u8; HEAD_BYTES_MAX], u8) {
    let mut head = [0; HEAD_BYTES_MAX];
    head[0] = first;
    let length = bytes as u64;
    let used = match length {
        0..=125 => {
            head[1] = length as u8;
            2
        }
        126..=0xFFFF => {
            head[1] = 126;
            head[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            4
        }
        _ => {
            head[1] = 127;
            head[2..].copy_from_slice(&length.to_be_bytes());
            10
        }
    };
    (head, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_in_their_shortest_form() {
        let cases: [(usize, &[u8]); 6] = [
            (0, &[0x82, 0]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (256, &[0x82, 126, 1, 0]),
            (65_535, &[0x82, 126, 0xFF, 0xFF]),
            (65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ];
        for (bytes, head) in cases {
            let frame = Frame::new(Opcode::Binary, vec![0; bytes]);
            assert_eq!(frame.head(), head, "{bytes} bytes");
            assert_eq!(frame.bytes(), head.len() + bytes);
        }
    }
}
