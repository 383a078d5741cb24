//! A directory as an archive, made while it is sent: `?archive=tar` and `?archive=zip`.
//!
//! In two passes. The first (`plan`) walks the directory and opens each file once, so that what is
//! too large, too deep or not readable is refused before the first byte. The second (`stream`)
//! opens the files one after another while the archive is sent. What fails then breaks the
//! connection off: an archive that ends well is whole.
//!
//! | what                                  | in the archive                                   |
//! |---------------------------------------|--------------------------------------------------|
//! | files and directories                 | with their time; not with their owner or mode    |
//! | hidden names                          | only where they are served                       |
//! | a link to a file                      | the file that it leads to                        |
//! | a link to a directory                 | left out: such links make circles                |
//! | a link out of the root, a device, ... | left out, as it is not served                    |
//! | what is gone in the second pass       | left out                                         |
//! | a file that became longer             | as much as it had when it was opened              |
//! | a file that became shorter            | what it has; tar: then zeros, as GNU tar does     |
//!
//! Invariants
//! - X1: at most `ARCHIVES_MAX` archives are made at a time, each with one descriptor beside its
//!   connection's, and at most `ARCHIVE_BYTES_MAX` of memory, which it takes from a share first. An
//!   address may have all that no other wants (`flatpath::memory::Turn`).
//! - X2: no name in an archive is absolute or has `..`, and all are below one directory.
//! - X3: no read does more than a chunk of one file, and the headers of a few entries.
//!
//! Threads: workers alone. That of a client that goes away is dropped by a worker, too.

use std::fmt::Write;

use flatpath::address_limit::ByAddress;
use flatpath::memory::{Client, SharePart, Turn, TurnLimit};
use flatpath_http::{Body, Reader, Response};
use http::header::{self, HeaderValue};
use percent_encoding::percent_encode;

use crate::error::FilesError;
use crate::limits::{ARCHIVE_BYTES_MAX, ARCHIVES_MAX};
use crate::listing::view::parameter;
use crate::responses::visible;
use crate::target::{ENCODED, name_of};

#[cfg(feature = "archives")]
pub(crate) mod names;
pub(crate) mod plan;
pub(crate) mod stream;
#[cfg(feature = "archives")]
mod tar;
#[cfg(feature = "archives")]
mod zip;

/// A format of archives. There is one with the feature `archives`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArchiveFormat {
    #[cfg(feature = "archives")]
    /// As GNU tar writes it. Names are the bytes that they are.
    Tar,
    #[cfg(feature = "archives")]
    /// Files are stored, not compressed; with ZIP64 where one is too large for less. Names are
    /// UTF-8: of others, and of those that another system would take for a path, `%` and two digits
    /// stand for the bytes.
    Zip,
}

impl ArchiveFormat {
    const ALL: &[Self] = &[
        #[cfg(feature = "archives")]
        Self::Tar,
        #[cfg(feature = "archives")]
        Self::Zip,
    ];

    /// Its value of `archive` in a query, and the ending of its files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            #[cfg(feature = "archives")]
            Self::Tar => "tar",
            #[cfg(feature = "archives")]
            Self::Zip => "zip",
        }
    }

    /// How many entries an archive may have, and bytes all their paths.
    fn entries_and_path_bytes_max(self) -> (usize, usize) {
        match self {
            #[cfg(feature = "archives")]
            Self::Tar => (
                crate::limits::ARCHIVE_TAR_ENTRIES_MAX,
                crate::limits::ARCHIVE_TAR_PATH_BYTES_MAX,
            ),
            #[cfg(feature = "archives")]
            Self::Zip => (
                crate::limits::ARCHIVE_ZIP_ENTRIES_MAX,
                crate::limits::ARCHIVE_ZIP_PATH_BYTES_MAX,
            ),
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            #[cfg(feature = "archives")]
            Self::Tar => "application/x-tar",
            #[cfg(feature = "archives")]
            Self::Zip => "application/zip",
        }
    }
}

/// The formats that are offered, and how many archives may be made at a time.
#[derive(Debug)]
pub(crate) struct Archives {
    words: Vec<&'static str>,
    limit: TurnLimit,
    pub(crate) memory: SharePart,
}

impl Default for Archives {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            limit: TurnLimit::new(ByAddress::Archives, ARCHIVES_MAX),
            memory: SharePart::default(),
        }
    }
}

impl Archives {
    /// These formats, each once.
    pub(crate) fn of(formats: impl IntoIterator<Item = ArchiveFormat>) -> Self {
        let wanted: Vec<_> = formats.into_iter().collect();
        let known = ArchiveFormat::ALL.iter().copied();
        let words = known
            .filter(|it| wanted.contains(it))
            .map(ArchiveFormat::word);
        Self {
            words: words.collect(),
            ..Self::default()
        }
    }

    /// The same with their memory from this part of a share.
    pub(crate) fn within(self, memory: SharePart) -> Self {
        Self { memory, ..self }
    }

    /// The formats, as the query names them.
    pub(crate) fn words(&self) -> &[&'static str] {
        &self.words
    }

    /// The format that a query asks for, if it is offered.
    pub(crate) fn asked(&self, query: Option<&[u8]>) -> Option<ArchiveFormat> {
        let word = parameter(query, b"archive")?;
        let format = ArchiveFormat::ALL.iter().copied();
        format
            .filter(|it| self.words.contains(&it.word()))
            .find(|it| it.word().as_bytes() == word)
    }

    /// Whether there are any: then the addresses of clients are looked up.
    pub(crate) fn are_offered(&self) -> bool {
        !self.words.is_empty()
    }

    /// One of the archives that may be made at a time, until it is dropped, with its memory.
    /// `None`: there are as many as may be, and the client has its share of them.
    pub(crate) fn enter(&self, client: Client) -> Option<Turn> {
        self.memory.turn(&self.limit, client, ARCHIVE_BYTES_MAX)
    }
}

/// The answer with an archive of the directory at `path`; its length is not known.
pub(crate) fn response(path: &[u8], format: ArchiveFormat, archive: Reader) -> Response {
    let mut response = Response::new(Body::Reader(archive));
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().extend([
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(format.media_type()),
        ),
        (header::CONTENT_DISPOSITION, disposition(path, format)),
        (header::CACHE_CONTROL, no_store),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ]);
    response
}

/// The directory that all names of an archive are below: that of the directory itself, whose name
/// is not told of the root.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    match name_of(path) {
        b"" => b"files",
        name => name,
    }
}

/// `attachment` with the name of the file, which RFC 6266 wants twice: in ASCII, and as it is.
fn disposition(path: &[u8], format: ArchiveFormat) -> HeaderValue {
    let name = String::from_utf8_lossy(base_name(path));
    let is_safe = |it: char| it.is_ascii_alphanumeric() || "-_. ".contains(it);
    let plain: String = name
        .chars()
        .map(|it| if is_safe(it) { it } else { '_' })
        .collect();
    let ending = format.word();
    let mut value = format!("attachment; filename=\"{plain}.{ending}\"");
    if plain != name {
        let exact = percent_encode(name.as_bytes(), ENCODED);
        let _ = write!(value, "; filename*=UTF-8''{exact}.{ending}");
    }
    visible(value)
}

/// Why there is no archive, beside what refuses any file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooManyEntries,
    TooDeep,
    NamesTooLong,
    /// This process may not read this one.
    Unreadable(Vec<u8>),
    Other(FilesError),
}

impl From<FilesError> for Refusal {
    fn from(error: FilesError) -> Self {
        Self::Other(error)
    }
}

#[cfg(test)]
mod tests {
    use flatpath::memory::MemoryShare;

    use super::*;

    #[test]
    fn a_format_is_asked_for_by_its_word_and_only_where_it_is_offered() {
        assert_eq!(Archives::default().asked(Some(b"archive=tar")), None);
        let archives = Archives::of([ArchiveFormat::Zip, ArchiveFormat::Zip]);
        assert_eq!(archives.words(), ["zip"]);
        for (query, format) in [
            (&b"archive=zip"[..], Some(ArchiveFormat::Zip)),
            (b"sort=name&archive=zip", Some(ArchiveFormat::Zip)),
            (b"archive=tar", None),
            (b"archive=ZIP", None),
            (b"archive=", None),
            (b"archive", None),
        ] {
            assert_eq!(archives.asked(Some(query)), format);
        }
    }

    #[test]
    fn the_file_has_the_name_of_its_directory_and_no_header_can_be_broken() {
        for (path, value) in [
            (&b""[..], "attachment; filename=\"files.tar\""),
            (b"a/b c", "attachment; filename=\"b c.tar\""),
            (
                "\u{fc}\"\r\nX: y".as_bytes(),
                "attachment; filename=\"____X_ y.tar\"; \
                 filename*=UTF-8''%C3%BC%22%0D%0AX%3A%20y.tar",
            ),
        ] {
            assert_eq!(disposition(path, ArchiveFormat::Tar), value);
        }
    }

    impl Archives {
        /// For a client without an address.
        pub(crate) fn enter_any(&self) -> Option<Turn> {
            self.enter(Client::default())
        }
    }

    #[test]
    fn as_many_archives_as_may_be_are_made_at_a_time() {
        let archives = Archives::default();
        let mut places: Vec<_> = (0..ARCHIVES_MAX).map(|_| archives.enter_any()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(archives.enter_any().is_none());
        places.pop();
        assert!(archives.enter_any().is_some());
    }

    #[test]
    fn an_archive_is_made_where_there_is_memory_for_it_in_the_share_of_all() {
        let share = MemoryShare::new(2 * ARCHIVE_BYTES_MAX);
        let part = share.part(0);
        let of_site = || Archives {
            memory: part.clone(),
            ..Archives::default()
        };
        let (one, other) = (of_site(), of_site());
        let places = [one.enter_any(), other.enter_any()];
        assert!(places.iter().all(Option::is_some));
        assert!(one.enter_any().is_none() && other.enter_any().is_none());
        drop(places);
        assert_eq!(share.held_bytes(), 0);
        assert!(other.enter_any().is_some());
    }
}
