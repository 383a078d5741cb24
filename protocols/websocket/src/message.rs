//! What is said over a socket.

use bytes::Bytes;
use bytestring::ByteString;

use crate::decoder::Received;
use crate::encode::{Frame, Opcode};
use crate::fault::Fault;

/// A message. A clone shares its bytes, so one message can be sent to many sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive: RFC 6455 section 5.6 has no other.
pub enum Message {
    /// Text.
    Text(ByteString),
    /// Bytes.
    Binary(Bytes),
}

impl Message {
    /// What it carries, in bytes.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Message::Text(text) => Some(text),
            Message::Binary(_) => None,
        }
    }

    /// What it carries.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Message::Text(text) => text.into_bytes(),
            Message::Binary(bytes) => bytes,
        }
    }

    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Message::Text(_) => Opcode::Text,
            Message::Binary(_) => Opcode::Binary,
        }
    }

    /// The message that was received, once it is not compressed any more.
    pub(crate) fn of(received: Received) -> Result<Message, Fault> {
        if !received.is_text {
            return Ok(Message::Binary(received.payload));
        }
        let text = ByteString::try_from(received.payload);
        text.map(Message::Text).map_err(|_| Fault::Utf8)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::Text(text.into())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Text(text.into())
    }
}

impl From<ByteString> for Message {
    fn from(text: ByteString) -> Message {
        Message::Text(text)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::Binary(bytes.into())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message::Binary(bytes)
    }
}
/// The message that a frame was made of, which is not compressed.
impl From<Frame> for Message {
    fn from(frame: Frame) -> Message {
        let is_text = frame.is_text();
        let payload = frame.into_payload();
        let text = is_text.then(|| ByteString::try_from(payload.clone()).ok());
        text.flatten()
            .map_or(Message::Binary(payload), Message::Text)
    }
}
