//! Common parts of PUT, forms and uploads: the options, the target of a file, and refusals.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::Duration;

use flatpath_http::{Mount, Request};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::asker::Finder;
use crate::conditional::{EntityTags, Validators, Verdict};
use crate::error::FilesError;
use crate::identity::{Identity, clock_of_files};
use crate::limits::{UNFINISHED_MAX, UPLOAD_EXPIRES, UPLOAD_FILE_BYTES_MAX};
use crate::responses::{Refusal, Result};
use crate::root::{Kind, Opened, Root};
use crate::target::{Hidden, PathForm, Target, is_forbidden, name_of};

/// The mode of a new file, before the umask.
pub(crate) const MODE_NEW: u32 = 0o666;

/// Conditions that a PUT or an upload may carry (RFC 9110, 13.1).
pub(crate) const CONDITIONS: [HeaderName; 3] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_UNMODIFIED_SINCE,
];

/// Whether files may be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Writing {
    /// No.
    #[default]
    Refused,
    /// By PUT, by uploads that can be resumed (tus), and by the forms of listings.
    Allowed(WriteOptions),
}

/// How files are made and replaced.
///
/// ```
/// use flatpath_files::{Durability, WriteOptions, Writing};
///
/// let writing = Writing::Allowed(WriteOptions {
///     bytes_max: 100 << 20,
///     durability: Durability::Disk, // a file that is answered for survives a power cut
///     ..WriteOptions::default()
/// });
/// # let _ = writing;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The longest file, in bytes.
    pub bytes_max: u64,
    /// When a file counts as stored.
    pub durability: Durability,
    /// Resumable uploads that may be unfinished at once.
    pub unfinished_max: usize,
    /// Bytes that all unfinished uploads may have together; `None`: half of the file system. Those
    /// of one address leave an [`OTHERS_PART`](flatpath::limits::OTHERS_PART) of them to others.
    pub unfinished_bytes_max: Option<u64>,
    /// How long an unfinished upload is kept after its last byte.
    pub expires: Duration,
}

/// When a file counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the kernel has it, or the server of a file system over a network: a power failure may
    /// lose it.
    #[default]
    Kernel,
    /// When the disk has it: data and directory are synced before the answer.
    Disk,
}

impl Durability {
    /// Waits until the file's data is where an answer may count it, and passes on whatever the
    /// kernel says of data that is lost. Where nothing is synced, that is what a close says: file
    /// systems over a network report a full or failed disk no sooner.
    pub(crate) fn settle(self, file: &File) -> Result<(), Errno> {
        match self {
            Self::Disk => rustix::fs::fsync(file),
            Self::Kernel => flatpath_sys::close::flush(file.as_fd())
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

pub(crate) enum Existing {
    Nothing,
    File { identity: Identity, mode: Mode },
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            bytes_max: UPLOAD_FILE_BYTES_MAX,
            durability: Durability::default(),
            unfinished_max: UNFINISHED_MAX,
            unfinished_bytes_max: None,
            expires: UPLOAD_EXPIRES,
        }
    }
}

/// The target of a request, as it was sent.
pub(crate) fn raw_target(request: &Request) -> &str {
    let target = request.uri().path_and_query();
    target.map_or("", |target| target.as_str())
}

/// The address at which clients reach what has this one here: below the prefix of a router.
pub(crate) fn public_address(request: &Request, address: &str) -> String {
    let prefix = Mount::of(request).map_or("", Mount::prefix);
    format!("{prefix}{address}")
}

/// The path of a target that may be written to, and how it was written.
pub(crate) fn writable_path(raw: &str, hidden: Hidden) -> Result<(Vec<u8>, PathForm)> {
    // Hidden names are refused below, with a status of their own.
    let target = Target::parse(raw.as_bytes(), Hidden::Served)?;
    let path = target.path();
    match is_writable_path(path, hidden) {
        true => Ok((path.to_vec(), target.form())),
        false => Err(StatusCode::FORBIDDEN.into()),
    }
}

/// Whether files may be written at this path, or below it.
pub(crate) fn is_writable_path(path: &[u8], hidden: Hidden) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    !names.any(|name| is_forbidden(name, hidden))
}

/// Splits a path into its directory and its name.
pub(crate) fn split_name(path: &[u8]) -> (&[u8], &[u8]) {
    let name = name_of(path);
    let parent = &path[..path.len() - name.len()];
    (parent.strip_suffix(b"/").unwrap_or_default(), name)
}

/// Opens the directory at `path`, for the server itself; 409 where there is none.
pub(crate) fn directory_at(root: &Root, path: &[u8]) -> Result<File> {
    directory_of(root.find(path))
}

/// Opens the directory at `path` for a request that has yet to say what it writes there.
pub(crate) fn directory_found(finder: Finder<'_>, path: &[u8]) -> Result<File> {
    directory_of(finder.find(path))
}

/// Opens the directory at `path` for a request that is to write a file of this name in it: as the
/// service allows that the directory belongs to.
pub(crate) fn directory_for(finder: Finder<'_>, path: &[u8], name: &[u8]) -> Result<File> {
    let found = finder.find(path);
    let terms = found.as_ref().ok().and_then(|found| found.terms);
    if terms.is_some_and(|terms| !terms.admits_writing(name)) {
        return Err(StatusCode::FORBIDDEN.into());
    }
    directory_of(found)
}

fn directory_of(found: Result<Opened, FilesError>) -> Result<File> {
    match found {
        Ok(found) if found.kind == Kind::Directory => Ok(found.file),
        Ok(_) | Err(FilesError::NotFound) => Err(Refusal::conflict(
            "there is no such directory; an upload does not create one",
        )),
        Err(error) => Err(error.into()),
    }
}

/// The file at the target now. Writes do not follow links: they would choose the place.
pub(crate) fn existing_at(directory: &File, name: &[u8]) -> Result<Existing> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Existing::File {
                identity: Identity::from_stat(&stat),
                mode: Mode::from_raw_mode(stat.st_mode & 0o777),
            })
        }
        Ok(_) => Err(Refusal::conflict(
            "the path names something other than a regular file",
        )),
        Err(Errno::NOENT) => Ok(Existing::Nothing),
        Err(errno) => Err(errno.into()),
    }
}

/// The conditions of a PUT (RFC 9110, 13.2.2): what would be 304 for a GET is 412 here.
pub(crate) fn allow(existing: &Existing, conditions: &HeaderMap, tags: EntityTags) -> Result<()> {
    let verdict = match existing {
        Existing::File { identity, .. } => {
            Validators::of(identity, clock_of_files(), tags).evaluate(conditions)
        }
        // Nothing matches, not even `*`; and what is not there was not modified.
        Existing::Nothing if conditions.contains_key(header::IF_MATCH) => {
            Verdict::PreconditionFailed
        }
        Existing::Nothing => Verdict::Proceed,
    };
    match verdict {
        Verdict::Proceed => Ok(()),
        _ => Err(StatusCode::PRECONDITION_FAILED.into()),
    }
}

/// The conditions among the headers of a request.
pub(crate) fn conditions_of(headers: &HeaderMap) -> HeaderMap {
    let mut conditions = HeaderMap::new();
    for name in CONDITIONS {
        for value in headers.get_all(&name) {
            conditions.append(name.clone(), value.clone());
        }
    }
    conditions
}
