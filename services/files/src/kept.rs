//! What a network thread keeps of an answer, and how it answers with that, whole or in part.
//!
//! A small file is kept as its bytes; of a larger one the open file is, so that a request for it,
//! or for a part of it, needs no worker and opens nothing. Both are entries of one cache
//! ([`crate::cache`]), checked by one rule ([`crate::freshness`]): a kept file is the one that the
//! path led to, of the home of its cache, and its length is the one that was seen with its
//! validators.
//!
//! A kept file's descriptor counts as cached (`flatpath::descriptors`): no more is kept while
//! others need descriptors.

use bytes::Bytes;
use flatpath::files::FileRange;
use flatpath_http::{Disposition, FileBody, Head, KnownHeader, Reply};

use crate::cache::Prebuilt;
use crate::limits::CACHE_FILE_BYTES_MAX;
use crate::range::{Part, Ranges};

/// The status line of a prebuilt head of a 200.
pub(crate) const STATUS_LINE: &str = "HTTP/1.1 200 OK\r\n";

/// The content of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Bytes),
    /// All of an open file.
    File(FileRange),
}

impl Content {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(range) => range.bytes(),
        }
    }

    /// What it weighs in the cache: a file as much as the largest bytes, for its descriptor.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(_) => CACHE_FILE_BYTES_MAX,
        }
    }
}

impl Prebuilt {
    /// Answers with all of it.
    #[inline]
    pub(crate) fn send(&self, reply: &mut Reply<'_>) -> Disposition<'static> {
        match &self.content {
            Content::Bytes(bytes) => reply.prebuilt(&self.found, bytes),
            Content::File(range) => reply.prebuilt_file(&self.found, range.clone().into()),
        }
    }

    /// Answers with what a `Range` asks for, where that is one part or all of it.
    #[cold]
    pub(crate) fn send_part(&self, head: &Head<'_>, reply: &mut Reply<'_>) -> Disposition<'static> {
        if !self.has_parts {
            return Disposition::Pooled;
        }
        let mut values = head.values("range");
        let ranges = match (values.next(), values.next()) {
            (Some(value), None) if self.validators.honours_range(head) => {
                Ranges::parse(value, self.content.bytes())
            }
            _ => Ranges::Whole,
        };
        let part = match ranges {
            Ranges::Whole => return self.send(reply),
            Ranges::Single(part) => part,
            Ranges::Several(_) | Ranges::Unsatisfiable => return Disposition::Pooled,
        };
        let Some(head) = self.partial_head(part) else {
            return Disposition::Pooled;
        };
        match &self.content {
            Content::Bytes(bytes) => {
                // They are in memory, so their places are numbers of that.
                let part = bytes.slice(part.start as usize..part.end as usize);
                reply.prebuilt(&head, &part)
            }
            Content::File(range) => {
                let mut range = range.front(part.end);
                range.advance(part.start);
                reply.prebuilt_file(&head, FileBody::from(range))
            }
        }
    }

    /// The head of the 206: that of the 200, with another length, and the place of the part.
    fn partial_head(&self, part: Part) -> Option<Vec<u8>> {
        let size = self.content.bytes();
        let length_line = format!("Content-Length: {size}\r\n");
        let headers = self.found.strip_prefix(STATUS_LINE.as_bytes())?;
        let headers = headers.strip_suffix(length_line.as_bytes())?;
        let mut head = Vec::with_capacity(self.found.len() + 96);
        head.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
        head.extend_from_slice(headers);
        let (range, length) = (part.content_range(size), part.length());
        head.extend_from_slice(
            format!("Content-Range: {range}\r\nContent-Length: {length}\r\n").as_bytes(),
        );
        Some(head)
    }
}

/// Whether a part of a file is asked for. Ranges are for GET alone; of HEAD they are ignored (RFC
/// 9110, 14.2).
#[inline]
pub(crate) fn asks_part(head: &Head<'_>) -> bool {
    head.is_get() && head.known(KnownHeader::Range).is_some()
}
