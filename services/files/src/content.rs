//! The bytes of a file on their way out: whole small files, spans of large ones, several parts.
//!
//! The length of an answer is promised in its head, so what follows must have that length. A file
//! that has become shorter ends the reader with an error, and with it the connection: the
//! client sees that something is missing, and no byte is made up. What a file grows by while it is
//! sent is left out.
//!
//! Cost: one `pread` per chunk, as large as the caller's room. Memory: none but the part heads.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::time::SystemTime;

use bytes::Bytes;
use flatpath::prompt::FileSystem;
use rustix::io::Errno;

use crate::deferred_close::Source;
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

#[derive(Debug)]
pub(crate) struct Span {
    file: Source,
    part: Part,
}

impl Span {
    /// `part` of `file`. It may be empty.
    pub(crate) fn new(file: impl Into<Source>, part: Part) -> Self {
        let file = file.into();
        Self { file, part }
    }
}

impl Read for Span {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        read_part(&self.file, &mut self.part, room)
    }
}

/// Reads what fits of `part` and takes it away from its front.
fn read_part(file: &Source, part: &mut Part, room: &mut [u8]) -> io::Result<usize> {
    let left = usize::try_from(part.length()).unwrap_or(usize::MAX);
    let length = room.len().min(left);
    if length == 0 {
        return Ok(0);
    }
    let read = match file.read_at(&mut room[..length], part.start) {
        Ok(0) => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the file has become shorter",
        )),
        read => read,
    };
    match read {
        Ok(read) => part.start += read as u64,
        Err(ref cause) if cause.kind() == io::ErrorKind::Interrupted => {}
        Err(ref cause) => file.complain(cause),
    }
    read
}

/// Reads several parts of a file as `multipart/byteranges` (RFC 9110, 14.6).
#[derive(Debug)]
pub(crate) struct Multipart {
    file: Source,
    left: VecDeque<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(Bytes),
    Part(Part),
}

impl Multipart {
    /// The parts of a file of `size` bytes and of type `media`.
    pub(crate) fn new(
        file: impl Into<Source>,
        parts: &[Part],
        size: u64,
        media: &str,
        boundary: &str,
    ) -> Self {
        let file = file.into();
        let mut left = VecDeque::with_capacity(2 * parts.len() + 1);
        let mut line_end = "";
        for part in parts {
            let mut head = format!("{line_end}--{boundary}\r\nContent-Type: {media}\r\n");
            head += &format!("Content-Range: {}\r\n\r\n", part.content_range(size));
            left.push_back(Piece::Text(head.into()));
            left.push_back(Piece::Part(*part));
            line_end = "\r\n";
        }
        left.push_back(Piece::Text(format!("\r\n--{boundary}--\r\n").into()));
        Self { file, left }
    }

    pub(crate) fn length(&self) -> u64 {
        let length = |piece: &Piece| match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Part(part) => part.length(),
        };
        self.left.iter().map(length).sum()
    }
}

impl Read for Multipart {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < room.len() {
            let Some(piece) = self.left.front_mut() else {
                break;
            };
            let more = match piece {
                Piece::Text(text) => {
                    let length = text.len().min(room.len() - filled);
                    room[filled..filled + length].copy_from_slice(&text.split_to(length));
                    length
                }
                Piece::Part(part) => read_part(&self.file, part, &mut room[filled..])?,
            };
            // A piece brings nothing only when it is used up: there is room left.
            if more == 0 {
                self.left.pop_front();
            }
            filled += more;
        }
        Ok(filled)
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
    use std::io::Write;

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
        let span = Span::new(
            file_of(&content),
            Part {
                start: 10,
                end: 200,
            },
        );
        assert_eq!(read_all(span).expect("read"), content[10..200]);
        let none = Span::new(file_of(&content), Part { start: 10, end: 10 });
        assert!(read_all(none).expect("read").is_empty());
    }

    #[test]
    fn a_file_that_shrinks_ends_its_span_with_an_error() {
        let file = file_of(&[7; 1_000]);
        let handle = file.try_clone().expect("clone");
        let mut span = Span::new(
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
        let span = Span::new(file, Part { start: 0, end: 100 });
        handle.write_all(&[8; 100]).expect("write");
        assert_eq!(read_all(span).expect("read"), [7; 100]);
    }

    #[test]
    fn several_parts_are_framed_as_the_rfc_shows() {
        let file = file_of(b"0123456789");
        let parts = [Part { start: 7, end: 9 }, Part { start: 0, end: 1 }];
        let multipart = Multipart::new(file, &parts, 10, "text/plain", "B");
        let length = multipart.length();
        let expected = "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-8/10\r\n\r\n78\
            \r\n--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-0/10\r\n\r\n0\
            \r\n--B--\r\n";
        let all = read_all(multipart).expect("read");
        assert_eq!(String::from_utf8(all).expect("ASCII"), expected);
        assert_eq!(length, expected.len() as u64);
    }

    #[test]
    fn parts_may_be_read_one_byte_at_a_time() {
        let parts = [Part { start: 7, end: 9 }, Part { start: 0, end: 1 }];
        let make = || Multipart::new(file_of(b"0123456789"), &parts, 10, "text/plain", "B");
        let whole = read_all(make()).expect("read");
        let mut multipart = make();
        let mut bytes = Vec::new();
        let mut room = [0];
        while multipart.read(&mut room).expect("read") == 1 {
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
        let multipart = Multipart::new(file, &parts, 1_000, "text/plain", "B");
        handle.set_len(500).expect("truncate");
        assert!(read_all(multipart).is_err());
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
