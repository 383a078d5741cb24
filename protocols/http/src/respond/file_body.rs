//! A body that is one range of a file, or several with words between them: the kernel sends it.
//!
//! Over HTTP/1 it is output of the connection as it is ([`Io::write_file`]): no worker reads it,
//! and nothing of it is held while its client is slow. Where it cannot go that way, over HTTP/2 or
//! when a layer changes it on its way, it is a reader like any other, which workers read chunk by
//! chunk. Who answers decides nothing of that.
//!
//! [`Io::write_file`]: flatpath::Io::write_file

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flatpath::NoRoom;
use flatpath::files::{File, FileRange, OpenFile};
use flatpath::prompt::FileSystem;

use crate::message::{Body, Reader, Source};

/// See the module.
///
/// ```no_run
/// use std::fs::File;
///
/// use flatpath_http::{Body, Request, Response};
///
/// fn download(_: &mut Request) -> std::io::Result<Response> {
///     Ok(Response::new(Body::file(File::open("report.pdf")?)?))
/// }
/// # let _ = download;
/// ```
#[derive(Debug, Default)]
pub struct FileBody {
    left: VecDeque<Piece>,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Words(Bytes),
    Range(FileRange),
}

impl FileBody {
    /// Adds words after what there is.
    pub fn push_words(&mut self, words: Bytes) {
        self.bytes += words.len() as u64;
        self.left.push_back(Piece::Words(words));
    }

    /// Adds a range of a file. It is on a file system that never hangs: see [`flatpath::files`].
    pub fn push_range(&mut self, range: FileRange) {
        self.bytes += range.bytes();
        self.left.push_back(Piece::Range(range));
    }

    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes
    }

    /// Its pieces, in order.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.left.into_iter()
    }
}

impl From<FileRange> for FileBody {
    fn from(range: FileRange) -> Self {
        let mut body = Self::default();
        body.push_range(range);
        body
    }
}

/// Reads it where it cannot be sent as it is. A file that has become shorter is an error.
impl Read for FileBody {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < room.len() {
            let Some(piece) = self.left.front_mut() else {
                break;
            };
            let more = match piece {
                Piece::Words(words) => {
                    let length = words.len().min(room.len() - filled);
                    room[filled..filled + length].copy_from_slice(&words.split_to(length));
                    length
                }
                Piece::Range(range) => match range.read(&mut room[filled..]) {
                    Ok(count) => count,
                    // What came before it goes out first.
                    Err(_) if filled > 0 => break,
                    Err(cause) => {
                        range.file().broke_off(&cause);
                        return Err(cause);
                    }
                },
            };
            // A piece brings nothing only when it is used up: there is room left.
            if more == 0 {
                self.left.pop_front();
            }
            filled += more;
        }
        self.bytes = self.bytes.saturating_sub(filled as u64);
        Ok(filled)
    }
}

impl From<FileBody> for Reader {
    fn from(body: FileBody) -> Self {
        Self {
            length: Some(body.bytes),
            source: Source::File(Box::new(body)),
            share: None,
        }
    }
}

impl From<FileBody> for Body {
    fn from(body: FileBody) -> Self {
        Self::Reader(body.into())
    }
}

impl Body {
    /// A whole file, as long as it is by now: see [`FileBody`]. Also for a request for a part:
    /// `Range` and `If-Range` are for the handler to look at, and `flatpath-files` has several
    /// parts.
    ///
    /// # Errors
    /// Those of `fstat`; it is no regular file. Waits as the file system does, so it is for
    /// workers.
    pub fn file(file: File) -> io::Result<Self> {
        Self::file_range(file, 0..u64::MAX)
    }

    /// These bytes of a file, as far as it has them by now. A file on a file system that may hang
    /// (FUSE, NFS, an overlay of such) is read by workers.
    ///
    /// # Errors
    /// As for [`Body::file`].
    pub fn file_range(file: File, bytes: Range<u64>) -> io::Result<Self> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let system = FileSystem::of(&file);
        let is_local = system.is_local();
        let file = Arc::new(OpenFile::new(file, Arc::new(system), *b"a download", None));
        let end = bytes.end.min(found.len());
        let range = FileRange::new(file, bytes.start.min(end)..end);
        let length = range.bytes();
        let body = FileBody::from(range);
        Ok(match is_local {
            true => body.into(),
            false => Self::reader(body, Some(length)),
        })
    }
}

/// Queues the pieces of a body, each as it is.
///
/// # Errors
/// The connection does not send files.
pub(crate) fn queue(io: &mut flatpath::Io<'_>, body: FileBody) -> Result<(), NoRoom> {
    for piece in body.into_pieces() {
        match piece {
            Piece::Words(words) => io.write_held(words),
            Piece::Range(range) => io.write_file(range).map_err(|_| NoRoom)?,
        }
    }
    Ok(())
}
