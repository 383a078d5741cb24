//! Messages as handlers see them: the http crate's request and response around our [`Body`].

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;

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
    /// Bytes still to be read, of a response: workers read it chunk by chunk while it is sent, so
    /// that it may be of any size, and block.
    Reader(Reader),
}

/// A body that is read while it is sent.
pub struct Reader {
    pub(crate) source: Box<dyn Read + Send>,
    pub(crate) length: Option<u64>,
}

impl Reader {
    /// Exactly `length` bytes of `source`, or all of it when the length is not known: then the
    /// response is chunked, or ends with the connection for a client that speaks HTTP/1.0.
    pub fn new(source: Box<dyn Read + Send>, length: Option<u64>) -> Self {
        Self { source, length }
    }

    /// How many bytes it will bring, where that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
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
            Self::Reader(reader) => reader.length,
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
            Self::Reader(_) => None,
        }
    }

    /// The content in one piece of its own. O(length).
    ///
    /// # Errors
    /// Those of the reader; `UnexpectedEof` when it ends before its length.
    pub fn into_vec(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Empty => Ok(Vec::new()),
            Self::Bytes(bytes) => Ok(bytes.into()),
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
            Self::Reader(reader) => reader.fmt(formatter),
        }
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
