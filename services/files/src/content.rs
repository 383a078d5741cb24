//! The bytes of a file on their way out: whole small files, spans of large ones, several parts.
//!
//! The length of an answer is promised in its head, so what follows must have that length. A file
//! that has become shorter ends the connection: the client sees that something is missing, and no
//! byte is made up. What a file grows by while it is sent is left out.
//!
//! A file that is local is sent by the kernel where its connection allows that ([`FileBody`]); of
//! another one workers read each chunk, within the limit of its mount.

use std::fs::File;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use flatpath::files::{FileRange, SentFile};
use flatpath::prompt::FileSystem;
use flatpath_http::FileBody;
use rustix::io::Errno;

use crate::error::FilesError;
use crate::identity::Identity;
use crate::range::Part;

/// Whether a file stayed the same while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stability {
    /// The bytes belong to the identity that the file had before.
    Same,
    /// The bytes may mix two versions, so no ETag or Last-Modified may be sent.
    Changing,
    /// There are fewer of them than the file had before.
    Shorter,
}

/// Fills `room` from the start of a file that was in the state `before`: with what its file system
/// has at hand, if that is given, and without a wait.
pub(crate) fn read_whole(
    file: &File,
    at_hand: Option<&FileSystem>,
    before: &Identity,
    room: &mut [u8],
) -> Result<Stability, FilesError> {
    let mut filled = 0;
    while filled < room.len() {
        let (left, offset) = (&mut room[filled..], filled as u64);
        let read = match at_hand {
            None => rustix::io::pread(file, left, offset),
            Some(system) => {
                let read = system.read_cached(file, &mut [IoSliceMut::new(left)], offset);
                match read {
                    Ok(read) => Ok(read.ok_or(FilesError::NotAtHand)?),
                    Err(cause) => Err(Errno::from_io_error(&cause).unwrap_or(Errno::IO)),
                }
            }
        };
        match read {
            Ok(0) => return Ok(Stability::Shorter),
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let after = Identity::from_stat(&rustix::fs::fstat(file)?);
    Ok(if after == *before {
        Stability::Same
    } else {
        Stability::Changing
    })
}

/// One part of a file. It may be empty.
pub(crate) fn part_of(file: &Arc<dyn SentFile>, part: Part) -> FileRange {
    FileRange::new(Arc::clone(file), part.start..part.end)
}

/// One part of content in memory, within it.
pub(crate) fn slice(content: &Bytes, part: Part) -> Bytes {
    // They are in memory, so their places are numbers of that.
    content.slice(part.start as usize..part.end as usize)
}

/// Parts of a file of `size` bytes and of type `media`, as `multipart/byteranges` (RFC 9110, 14.6).
#[derive(Clone, Copy)]
pub(crate) struct Multipart<'a> {
    pub(crate) parts: &'a [Part],
    pub(crate) size: u64,
    pub(crate) media: &'a str,
    pub(crate) boundary: &'a str,
}

impl Multipart<'_> {
    /// The type of the whole.
    pub(crate) fn media(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// What stands before each part.
    fn heads(&self) -> impl Iterator<Item = (Bytes, Part)> {
        let line_ends = std::iter::once("").chain(std::iter::repeat("\r\n"));
        self.parts.iter().zip(line_ends).map(|(part, line_end)| {
            let (boundary, media) = (self.boundary, self.media);
            let mut head = format!("{line_end}--{boundary}\r\nContent-Type: {media}\r\n");
            head += &format!("Content-Range: {}\r\n\r\n", part.content_range(self.size));
            (head.into(), *part)
        })
    }

    fn end(&self) -> Bytes {
        format!("\r\n--{}--\r\n", self.boundary).into()
    }

    /// The body with the parts of a file.
    pub(crate) fn of_file(self, file: &Arc<dyn SentFile>) -> FileBody {
        let mut body = FileBody::default();
        for (head, part) in self.heads() {
            body.push_words(head);
            body.push_range(part_of(file, part));
        }
        body.push_words(self.end());
        body
    }

    /// The body with the parts of content in memory.
    pub(crate) fn of_bytes(self, content: &Bytes) -> Bytes {
        let mut body = Vec::new();
        for (head, part) in self.heads() {
            body.extend_from_slice(&head);
            body.extend_from_slice(&slice(content, part));
        }
        body.extend_from_slice(&self.end());
        body.into()
    }
}

/// A boundary that cannot be in a file already.
pub(crate) fn fresh_boundary() -> String {
    use std::hash::{BuildHasher, RandomState};
    // The standard library's random keys: the digest of nothing under them is not to be guessed.
    let random = || RandomState::new().hash_one(SystemTime::now());
    format!("flatpath-{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deferred_close::Source;
    use crate::stat::Locality;
    use std::io::{self, Read, Write};

    /// The same file, as it is sent.
    fn sent(file: File) -> Arc<dyn SentFile> {
        Arc::new(Source::new(file, Locality::Local, b"", None))
    }

    fn multipart(parts: &[Part], size: u64) -> Multipart<'_> {
        Multipart {
            parts,
            size,
            media: "text/plain",
            boundary: "B",
        }
    }

    fn span_of(file: File, part: Part) -> FileBody {
        part_of(&sent(file), part).into()
    }

    fn file_of(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("tempfile");
        file.write_all(content).expect("write");
        file
    }

    fn read_all(mut reader: impl Read) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn a_span_brings_its_bytes_and_nothing_else() {
        let content: Vec<u8> = (0..=255).collect();
        let span = span_of(
            file_of(&content),
            Part {
                start: 10,
                end: 200,
            },
        );
        assert_eq!(read_all(span).expect("read"), content[10..200]);
        let none = span_of(file_of(&content), Part { start: 10, end: 10 });
        assert!(read_all(none).expect("read").is_empty());
    }

    #[test]
    fn a_file_that_shrinks_ends_its_span_with_an_error() {
        let file = file_of(&[7; 1_000]);
        let handle = file.try_clone().expect("clone");
        let mut span = span_of(
            file,
            Part {
                start: 0,
                end: 1_000,
            },
        );
        let mut room = [0; 100];
        assert_eq!(span.read(&mut room).expect("read"), 100);
        handle.set_len(150).expect("truncate");
        assert_eq!(span.read(&mut room).expect("read"), 50);
        let error = span.read(&mut room).expect_err("it is shorter now");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_file_that_grows_is_sent_as_long_as_it_was() {
        let file = file_of(&[7; 100]);
        let mut handle = file.try_clone().expect("clone");
        let span = span_of(file, Part { start: 0, end: 100 });
        handle.write_all(&[8; 100]).expect("write");
        assert_eq!(read_all(span).expect("read"), [7; 100]);
    }

    #[test]
    fn several_parts_are_framed_as_the_rfc_shows() {
        let file = file_of(b"0123456789");
        let parts = [Part { start: 7, end: 9 }, Part { start: 0, end: 1 }];
        let body = multipart(&parts, 10).of_file(&sent(file));
        let length = body.length();
        let expected = "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-8/10\r\n\r\n78\
            \r\n--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-0/10\r\n\r\n0\
            \r\n--B--\r\n";
        let all = read_all(body).expect("read");
        assert_eq!(String::from_utf8(all).expect("ASCII"), expected);
        assert_eq!(length, expected.len() as u64);
        let in_memory = Bytes::from_static(b"0123456789");
        assert_eq!(multipart(&parts, 10).of_bytes(&in_memory), expected);
    }

    #[test]
    fn parts_may_be_read_one_byte_at_a_time() {
        let parts = [Part { start: 7, end: 9 }, Part { start: 0, end: 1 }];
        let file = sent(file_of(b"0123456789"));
        let make = || multipart(&parts, 10).of_file(&file);
        let whole = read_all(make()).expect("read");
        let mut body = make();
        let mut bytes = Vec::new();
        let mut room = [0];
        while body.read(&mut room).expect("read") == 1 {
            bytes.push(room[0]);
        }
        assert_eq!(bytes, whole);
    }

    #[test]
    fn a_file_that_shrinks_ends_its_parts_with_an_error() {
        let file = file_of(&[7; 1_000]);
        let handle = file.try_clone().expect("clone");
        let parts = [
            Part { start: 0, end: 10 },
            Part {
                start: 900,
                end: 1_000,
            },
        ];
        let body = multipart(&parts, 1_000).of_file(&sent(file));
        handle.set_len(500).expect("truncate");
        assert!(read_all(body).is_err());
    }

    fn identity_of(file: &File) -> Identity {
        Identity::from_stat(&rustix::fs::fstat(file).expect("fstat"))
    }

    #[test]
    fn a_small_file_is_read_whole() {
        let file = file_of(b"content");
        let mut room = [0; 7];
        let outcome = read_whole(&file, None, &identity_of(&file), &mut room);
        assert_eq!((outcome, &room), (Ok(Stability::Same), b"content"));
    }

    #[test]
    fn a_file_that_changed_since_it_was_opened_is_found_out() {
        let mut file = file_of(b"content");
        let before = identity_of(&file);
        file.write_all(b"more").expect("write");
        let mut room = [0; 7];
        assert_eq!(
            read_whole(&file, None, &before, &mut room),
            Ok(Stability::Changing)
        );
        file.set_len(3).expect("truncate");
        assert_eq!(
            read_whole(&file, None, &before, &mut room),
            Ok(Stability::Shorter)
        );
    }

    #[test]
    fn boundaries_differ_and_are_legal() {
        let (first, second) = (fresh_boundary(), fresh_boundary());
        assert_ne!(first, second);
        assert!(first.len() <= 70, "RFC 2046, 5.1.1");
        assert!(
            first
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        );
    }
}
