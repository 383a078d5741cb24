//! Messages as handlers see them: the http crate's request and response around our [`Body`].

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use flatpath::blocking::Share;
use flatpath::memory::{Buffer, Part, Payload};

/// A request as a handler gets it. Its body has arrived completely.
pub type Request = http::Request<Body>;

/// A response as a handler makes it.
pub type Response = http::Response<Body>;

/// The content of a message.
#[derive(Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a buffer of the server's pool, to which it goes back when the body is dropped.
    Pooled(Buffer),
    /// Bytes of a request in several places: see [`Body::payload`].
    Payload(Payload),
    /// Bytes still to be read, of a response: workers read it chunk by chunk while it is sent, so
    /// that it may be of any size, and block.
    Reader(Reader),
}

/// A body that is read while it is sent.
pub struct Reader {
    pub(crate) source: Box<dyn Read + Send>,
    pub(crate) length: Option<u64>,
    pub(crate) share: Option<Share>,
}

impl Reader {
    /// Exactly `length` bytes of `source`, or all of it when the length is not known: then the
    /// response is chunked, or ends with the connection for a client that speaks HTTP/1.0.
    pub fn new(source: Box<dyn Read + Send>, length: Option<u64>) -> Self {
        Self {
            source,
            length,
            share: None,
        }
    }

    /// The same, read only by workers that are inside this share: for a source that may block.
    #[must_use]
    pub fn within(self, share: Share) -> Self {
        Self {
            share: Some(share),
            ..self
        }
    }

    /// How many bytes it will bring, where that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }
}

/// A received body sent back: it is read like any other, which copies it once.
impl From<Payload> for Reader {
    fn from(payload: Payload) -> Self {
        let length = payload.len() as u64;
        Self::new(Box::new(payload), Some(length))
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reader")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Body {
    /// A body that is read while it is sent; see [`Reader::new`].
    pub fn reader(source: impl Read + Send + 'static, length: Option<u64>) -> Self {
        Self::Reader(Reader::new(Box::new(source), length))
    }

    /// Length in bytes, where it is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Pooled(buffer) => Some(buffer.filled().len() as u64),
            Self::Payload(payload) => Some(payload.len() as u64),
            Self::Reader(reader) => reader.length,
        }
    }

    /// A large request body, in the pages that it was received in or in several buffers. A clone of
    /// it may outlive the request and go to other threads. Small bodies are in one buffer instead.
    #[must_use]
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Payload(payload) => Some(payload),
            _ => None,
        }
    }

    /// True when there is certainly no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length() == Some(0)
    }

    /// The content, where it is in memory in one piece.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Bytes(bytes) => Some(bytes),
            Self::Pooled(buffer) => Some(buffer.filled()),
            Self::Payload(payload) if payload.parts_count() <= 1 => {
                Some(payload.parts().next().map_or(&[], Part::bytes))
            }
            Self::Payload(_) | Self::Reader(_) => None,
        }
    }

    /// The content that is in memory, piece by piece in its order. Request bodies always are.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (one, several) = match self {
            Self::Payload(payload) => (None, Some(payload)),
            whole => (whole.bytes(), None),
        };
        let several = several.into_iter().flat_map(Payload::parts);
        one.into_iter()
            .chain(several.map(Part::bytes))
            .filter(|piece| !piece.is_empty())
    }

    /// The content in one piece of its own. O(length).
    ///
    /// # Errors
    /// Those of the reader; `UnexpectedEof` when it ends before its length.
    pub fn into_vec(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Empty => Ok(Vec::new()),
            Self::Bytes(bytes) => Ok(bytes.into()),
            Self::Pooled(_) | Self::Payload(_) => Ok(self.pieces().flatten().copied().collect()),
            Self::Reader(mut reader) => {
                let mut content = Vec::new();
                match reader.length {
                    None => reader.source.read_to_end(&mut content)?,
                    Some(length) => reader.source.take(length).read_to_end(&mut content)?,
                };
                match reader.length {
                    Some(length) if (content.len() as u64) < length => {
                        Err(io::ErrorKind::UnexpectedEof.into())
                    }
                    _ => Ok(content),
                }
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => formatter.write_str("Empty"),
            Self::Bytes(bytes) => write!(formatter, "Bytes({} bytes)", bytes.len()),
            Self::Pooled(buffer) => write!(formatter, "Pooled({} bytes)", buffer.filled().len()),
            Self::Payload(payload) => write!(formatter, "Payload({} bytes)", payload.len()),
            Self::Reader(reader) => reader.fmt(formatter),
        }
    }
}

impl From<Buffer> for Body {
    fn from(buffer: Buffer) -> Self {
        Self::Pooled(buffer)
    }
}

impl From<Payload> for Body {
    fn from(payload: Payload) -> Self {
        Self::Payload(payload)
    }
}

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::Empty
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_known_where_the_content_is() {
        assert!(Body::Empty.is_empty() && Body::from("").is_empty());
        assert_eq!(Body::from("hello").length(), Some(5));
        assert_eq!(Body::reader(&b"hello"[..], None).length(), None);
        assert_eq!(Body::reader(&b"hello"[..], Some(5)).length(), Some(5));
        assert!(
            !Body::reader(&b""[..], None).is_empty(),
            "it is not certain"
        );
    }

    #[test]
    fn the_content_comes_in_one_piece_or_in_pieces() {
        let body = Body::from("hello");
        assert_eq!(body.bytes(), Some(&b"hello"[..]));
        assert_eq!(body.pieces().collect::<Vec<_>>(), [b"hello"]);
        assert_eq!(Body::Empty.pieces().count(), 0);
        assert_eq!(body.into_vec().expect("in memory"), b"hello");
    }

    #[test]
    fn a_reader_gives_its_length_or_an_error() {
        let read = |length| Body::reader(&b"hello"[..], length).into_vec();
        assert_eq!(read(None).expect("all of it"), b"hello");
        assert_eq!(read(Some(3)).expect("three of it"), b"hel");
        let short = read(Some(6)).expect_err("it ends early");
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
