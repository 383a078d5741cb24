//! Messages as handlers see them: the http crate's request and response around our [`Body`].

use std::borrow::Cow;
use std::io::{self, Read};
use std::{fmt, mem};

use bytes::{Buf, Bytes};
use flatpath::blocking::BlockingLimit;
use flatpath::memory::{Buffer, Part, Payload};

use crate::respond::file_body::FileBody;
use crate::streams::channel::{self, Kind, Sender};
use crate::streams::feed::Receiver;

/// A request as a handler gets it. Its body has arrived completely.
pub type Request = http::Request<Body>;

/// A response as a handler makes it.
pub type Response = http::Response<Body>;

/// The content of a message.
#[derive(Default)]
#[non_exhaustive]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// Bytes in memory. An owner of theirs ([`Bytes::from_owner`]) is dropped by a worker. Those of
    /// a response are charged to the memory of the server
    /// ([`Limits::buffer_bytes_max`](flatpath::Limits::buffer_bytes_max)) until they are sent, once
    /// for all responses that share them; above 16 KiB the client gets a 503 where there is none.
    Bytes(Bytes),
    /// Bytes of the program itself.
    Static(&'static [u8]),
    /// Bytes in a buffer of the server's pool, to which it goes back when the body is dropped.
    Pooled(Buffer),
    /// Bytes of a request in several places: see [`Body::payload`].
    Payload(Payload),
    /// Bytes still to be read, of a response: workers read it chunk by chunk while it is sent, so
    /// that it may be of any size, and block. A [file](Body::file) is sent by the kernel.
    Reader(Reader),
    /// Bytes that any thread feeds while the response is sent: see [`Body::channel`], and
    /// [`sse`](crate::streams::sse).
    Channel(Receiver),
}

/// A body that is read while it is sent.
pub struct Reader {
    pub(crate) source: Source,
    pub(crate) length: Option<u64>,
    pub(crate) share: Option<BlockingLimit>,
}

/// Where a reader's bytes come from.
pub(crate) enum Source {
    Any(Box<dyn Read + Send>),
    /// As they are, where the connection sends files.
    File(Box<FileBody>),
}

impl Read for Source {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Any(source) => source.read(room),
            Self::File(body) => body.read(room),
        }
    }
}

impl Reader {
    /// Exactly `length` bytes of `source`, or all of it when the length is not known: then the
    /// response is chunked, or ends with the connection for a client that speaks HTTP/1.0.
    pub fn new(source: Box<dyn Read + Send>, length: Option<u64>) -> Self {
        Self {
            source: Source::Any(source),
            length,
            share: None,
        }
    }

    /// Whether it can be output as it is.
    fn is_file(&self) -> bool {
        matches!(self.source, Source::File(_)) && self.share.is_none()
    }

    /// The same, read only by workers that are inside this limit: for a source that may block.
    #[must_use]
    pub fn within(self, share: BlockingLimit) -> Self {
        Self {
            share: Some(share),
            ..self
        }
    }

    /// Another reader around this one, as a layer makes it that changes a body while it is sent. It
    /// is read inside the same limit, and its length is not known.
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// use flatpath_http::Reader;
    ///
    /// let reader = Reader::new(Box::new(&b"hello"[..]), Some(5));
    /// let twice = reader.wrap(|inner| inner.chain(&b"hello"[..]));
    /// assert_eq!(twice.length(), None);
    /// ```
    #[must_use]
    pub fn wrap<R: Read + Send + 'static>(mut self, around: impl FnOnce(Self) -> R) -> Self {
        let share = self.share.take();
        Self {
            source: Source::Any(Box::new(around(self))),
            length: None,
            share,
        }
    }

    /// How many bytes it will bring, where that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }
}

impl Read for Reader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(left) = &mut self.length else {
            return self.source.read(room);
        };
        let wanted = room.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let read = self.source.read(&mut room[..wanted])?;
        if read == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left = left.saturating_sub(read as u64);
        Ok(read)
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
    /// Whether workers have to read it: the one place where it is decided which way a file goes, by
    /// whether the connection sends files as they are.
    pub(crate) fn is_read(&self, sends_files: bool) -> bool {
        matches!(self, Self::Reader(reader) if !(sends_files && reader.is_file()))
    }

    /// A body that is read while it is sent; see [`Reader::new`].
    pub fn reader(source: impl Read + Send + 'static, length: Option<u64>) -> Self {
        Self::Reader(Reader::new(Box::new(source), length))
    }

    /// A body that any thread feeds while it is sent, and what feeds it. Neither a worker nor a
    /// network thread waits for it: a response that waits for its next piece is a few hundred
    /// bytes. At most `bytes_max` wait for the client to read.
    ///
    /// The response is chunked, or ends with the connection for a client that speaks HTTP/1.0; with
    /// a `Content-Length` header of its own it has that length. A client that ends its side of the
    /// connection is taken to be gone. Dropped unsent, as by a 304 or an answer to HEAD, the body
    /// closes its sender.
    ///
    /// ```
    /// use flatpath_http::{Body, Response};
    ///
    /// fn count() -> Response {
    ///     let (sender, body) = Body::channel(16 * 1024);
    ///     std::thread::spawn(move || {
    ///         for number in 0..3 {
    ///             // An error: the client is gone.
    ///             sender.send(format!("{number}\n"))?;
    ///         }
    ///         Ok::<(), flatpath_http::SendError>(())
    ///     });
    ///     Response::new(body)
    /// }
    /// # assert_eq!(count().into_body().length(), None);
    /// ```
    pub fn channel(bytes_max: usize) -> (Sender, Self) {
        let (sender, pieces) = channel::channel(bytes_max, Kind::Body);
        (sender, Self::Channel(pieces.into()))
    }

    /// Length in bytes, where it is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Static(bytes) => Some(bytes.len() as u64),
            Self::Pooled(buffer) => Some(buffer.filled().len() as u64),
            Self::Payload(payload) => Some(payload.len() as u64),
            Self::Reader(reader) => reader.length,
            Self::Channel(_) => None,
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
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Bytes(bytes) => Some(bytes),
            Self::Static(bytes) => Some(bytes),
            Self::Pooled(buffer) => Some(buffer.filled()),
            Self::Payload(payload) if payload.parts_count() <= 1 => {
                Some(payload.parts().next().map_or(&[], Part::bytes))
            }
            Self::Payload(_) | Self::Reader(_) | Self::Channel(_) => None,
        }
    }

    /// The content that is in memory, piece by piece in its order. Request bodies always are.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (one, several) = match self {
            Self::Payload(payload) => (None, Some(payload)),
            whole => (whole.as_bytes(), None),
        };
        let several = several.into_iter().flat_map(Payload::parts);
        one.into_iter()
            .chain(several.map(Part::bytes))
            .filter(|piece| !piece.is_empty())
    }

    /// The content that is in memory, in one piece: O(1) where it is in one piece already, else a
    /// copy. Request bodies always are in memory; of a [`Body::Reader`] nothing is.
    #[must_use]
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        match self.as_bytes() {
            Some(bytes) => Cow::Borrowed(bytes),
            None => Cow::Owned(self.pieces().flatten().copied().collect()),
        }
    }

    /// The same, as bytes that can be kept: a copy of what is in the server's buffers, so that
    /// these go back.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Static(bytes) => Bytes::from_static(bytes),
            body => body.to_bytes().into_owned().into(),
        }
    }

    /// The content in one piece of its own, read where it has to be. O(length).
    ///
    /// # Errors
    /// Those of the reader; `UnexpectedEof` when it ends before its length, and when a channel is
    /// aborted. Blocks as long as the reader, or the sender of the channel, does.
    pub fn into_vec(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Empty | Self::Bytes(_) | Self::Static(_) | Self::Pooled(_) | Self::Payload(_) => {
                Ok(self.into_bytes().into())
            }
            mut read @ (Self::Reader(_) | Self::Channel(_)) => {
                let mut content = Vec::new();
                read.read_to_end(&mut content)?;
                Ok(content)
            }
        }
    }
}

/// Reads the content from its beginning, and takes away what was read. A reader that ends before
/// its length gives `UnexpectedEof`.
impl Read for Body {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Empty => Ok(0),
            Self::Bytes(bytes) => bytes.reader().read(room),
            Self::Static(bytes) => bytes.read(room),
            Self::Payload(payload) => payload.read(room),
            Self::Reader(reader) => reader.read(room),
            Self::Channel(receiver) => receiver.read(room),
            Self::Pooled(_) => {
                let mut payload = Payload::new();
                if let Self::Pooled(buffer) = mem::take(self) {
                    payload.push_buffer(buffer);
                }
                *self = Self::Payload(payload);
                self.read(room)
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => formatter.write_str("Empty"),
            Self::Bytes(bytes) => write!(formatter, "Bytes({} bytes)", bytes.len()),
            Self::Static(bytes) => write!(formatter, "Static({} bytes)", bytes.len()),
            Self::Pooled(buffer) => write!(formatter, "Pooled({} bytes)", buffer.filled().len()),
            Self::Payload(payload) => write!(formatter, "Payload({} bytes)", payload.len()),
            Self::Reader(reader) => reader.fmt(formatter),
            Self::Channel(receiver) => receiver.fmt(formatter),
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

impl From<Cow<'static, str>> for Body {
    fn from(text: Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
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
        Self::Static(bytes)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Static(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

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
        assert_eq!(body.as_bytes(), Some(&b"hello"[..]));
        assert_eq!(body.pieces().collect::<Vec<_>>(), [b"hello"]);
        assert_eq!(Body::Empty.pieces().count(), 0);
        assert_eq!(body.into_vec().expect("in memory"), b"hello");
    }

    /// The same content in each form of a request's body.
    fn bodies(content: &[u8]) -> [Body; 3] {
        let pool = Pool::new(PoolConfig {
            classes: vec![4 * 1024],
            budget_bytes: 1 << 20,
            zero: Zero::Never,
        });
        let buffer = |bytes: &[u8]| {
            let mut buffer = pool.take(4 * 1024).expect("the pool has room");
            buffer.append(bytes);
            buffer
        };
        let mut payload = Payload::new();
        payload.push_buffer(buffer(&content[..2]));
        payload.push_buffer(buffer(&content[2..]));
        let bytes = Bytes::copy_from_slice(content);
        [bytes.into(), buffer(content).into(), payload.into()]
    }

    #[test]
    fn a_body_is_borrowed_kept_or_read_in_any_form() {
        for (mut body, is_whole) in bodies(b"hello").into_iter().zip([true, true, false]) {
            let borrowed = body.to_bytes();
            assert_eq!(matches!(borrowed, Cow::Borrowed(_)), is_whole, "{body:?}");
            assert_eq!(*borrowed, b"hello"[..]);
            let mut first = [0; 3];
            body.read_exact(&mut first).expect("in memory");
            assert_eq!((&first, body.length()), (b"hel", Some(2)));
            let mut rest = String::new();
            body.read_to_string(&mut rest).expect("in memory");
            assert_eq!((rest.as_str(), body.is_empty()), ("lo", true));
        }
        for body in bodies(b"hello") {
            assert_eq!(body.into_bytes(), "hello");
        }
        assert!(Body::Empty.to_bytes().is_empty() && Body::Empty.into_bytes().is_empty());
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
