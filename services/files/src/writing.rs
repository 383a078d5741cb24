//! What PUT and uploads have in common: the options, where a file is to go, and what is refused.

use std::fs::File;
use std::time::{Duration, SystemTime};

use flatpath_http::{Request, Response};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::conditional::{Validators, Verdict};
use crate::error::FilesError;
use crate::identity::Identity;
use crate::limits::{NAME_BYTES_MAX, UNFINISHED_MAX, UPLOAD_EXPIRES, UPLOAD_FILE_BYTES_MAX};
use crate::responses::{status_text, text};
use crate::root::{Kind, Root};
use crate::target::{Hidden, PathForm, Target, is_hidden, name_of};

/// Names of the server's own, which are hidden and never a target.
pub(crate) const OWN: &[u8] = b".flatpath-";

/// What a new file may be done with, by its owner, group and others: less what the umask says.
pub(crate) const MODE_NEW: u32 = 0o666;

/// Conditions that a PUT or an upload may carry (RFC 9110, 13.1).
pub(crate) const CONDITIONS: [HeaderName; 3] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_UNMODIFIED_SINCE,
];

/// Whether files may be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writing {
    /// No.
    #[default]
    Refused,
    /// By PUT, and by uploads that can be resumed (tus).
    Allowed(WriteOptions),
}

/// How files are made and replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The longest file, in bytes.
    pub bytes_max: u64,
    /// When a file counts as stored.
    pub durability: Durability,
    /// Resumable uploads that may be unfinished at once.
    pub unfinished_max: usize,
    /// Bytes that all unfinished uploads may have together; `None`: half of the file system.
    pub unfinished_bytes_max: Option<u64>,
    /// How long an unfinished upload is kept after its last byte.
    pub expires: Duration,
}

/// When a file counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the kernel has it: a power failure may lose it.
    #[default]
    Kernel,
    /// When the disk has it: data and directory are synced before the answer.
    Disk,
}

/// A request that is granted, or the answer to it.
pub(crate) type Answer<T> = Result<T, Box<Response>>;

/// What exists at the target.
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

/// The path of a target that may be written to, and how it was written.
pub(crate) fn writable_path(raw: &str, hidden: Hidden) -> Answer<(Vec<u8>, PathForm)> {
    // Hidden names are refused below, with a status of their own.
    let target = Target::parse(raw.as_bytes(), Hidden::Served).map_err(failed)?;
    let path = target.path();
    if path
        .split(|byte| *byte == b'/')
        .any(|name| is_forbidden(name, hidden))
    {
        return Err(refused(StatusCode::FORBIDDEN));
    }
    Ok((path.to_vec(), target.form()))
}

/// Whether no file of this name is ever written.
pub(crate) fn is_forbidden(name: &[u8], hidden: Hidden) -> bool {
    hidden == Hidden::Refused && is_hidden(name) || is_own(name)
}

/// Whether a name is one of the server's own, which no client sees.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name.starts_with(OWN)
}

/// Splits a path into its directory and its name.
pub(crate) fn split_name(path: &[u8]) -> (&[u8], &[u8]) {
    let name = name_of(path);
    let parent = &path[..path.len() - name.len()];
    (parent.strip_suffix(b"/").unwrap_or_default(), name)
}

/// The directory and the name that a PUT is about.
pub(crate) fn locate(root: &Root, hidden: Hidden, raw: &str) -> Answer<(File, Vec<u8>)> {
    let (path, form) = writable_path(raw, hidden)?;
    let (parent, name) = split_name(&path);
    if form == PathForm::Directory || name.len() > NAME_BYTES_MAX {
        return Err(refused(StatusCode::CONFLICT));
    }
    Ok((directory_at(root, parent)?, name.to_vec()))
}

/// Opens the directory at `path`; 409 where there is none.
pub(crate) fn directory_at(root: &Root, path: &[u8]) -> Answer<File> {
    match root.find(path) {
        Ok(found) if found.kind == Kind::Directory => Ok(found.file),
        Ok(_) | Err(FilesError::NotFound) => Err(refused(StatusCode::CONFLICT)),
        Err(error) => Err(failed(error)),
    }
}

/// What exists at the target now. Links are not written through: they would say where.
pub(crate) fn existing_at(directory: &File, name: &[u8]) -> Answer<Existing> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Existing::File {
                identity: Identity::from_stat(&stat),
                mode: Mode::from_raw_mode(stat.st_mode & 0o777),
            })
        }
        Ok(_) => Err(refused(StatusCode::CONFLICT)),
        Err(Errno::NOENT) => Ok(Existing::Nothing),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// The conditions of a PUT (RFC 9110, 13.2.2): what would be 304 for a GET is 412 here.
pub(crate) fn allow(existing: &Existing, conditions: &HeaderMap) -> Answer<()> {
    let verdict = match existing {
        Existing::File { identity, .. } => {
            Validators::of(identity, SystemTime::now()).evaluate(conditions)
        }
        // Nothing matches, not even `*`; and what is not there was not modified.
        Existing::Nothing if conditions.contains_key(header::IF_MATCH) => {
            Verdict::PreconditionFailed
        }
        Existing::Nothing => Verdict::Proceed,
    };
    match verdict {
        Verdict::Proceed => Ok(()),
        _ => Err(refused(StatusCode::PRECONDITION_FAILED)),
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

/// The kernel's reason for an error of writing.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The answer where the kernel would not write. Unlike a read, no error of a write ever means that
/// the file does not exist: where a directory is gone, the request conflicts with its state.
pub(crate) fn failed_write(errno: Errno) -> Box<Response> {
    refused(match errno {
        Errno::NOSPC | Errno::DQUOT => StatusCode::INSUFFICIENT_STORAGE,
        Errno::FBIG => StatusCode::PAYLOAD_TOO_LARGE,
        Errno::ROFS | Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::EXIST
        | Errno::STALE
        | Errno::LOOP
        | Errno::TXTBSY
        | Errno::NAMETOOLONG => StatusCode::CONFLICT,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        errno => {
            log::warn!("an uploaded file cannot be written: {errno}");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    })
}

/// The answer where a target could not be looked at.
pub(crate) fn failed(error: FilesError) -> Box<Response> {
    if let FilesError::Unreadable(errno) = error {
        log::warn!("the target of an upload cannot be looked at: {errno}");
    }
    refused(error.status())
}

/// An answer with its status as text.
pub(crate) fn refused(status: StatusCode) -> Box<Response> {
    Box::new(status_text(status))
}

/// An answer with one line of text.
pub(crate) fn refused_because(status: StatusCode, reason: &str) -> Box<Response> {
    Box::new(text(status, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_a_write_says_that_the_file_is_not_there() {
        for raw in 1..134 {
            let status = failed_write(Errno::from_raw_os_error(raw)).status();
            assert_ne!(status, StatusCode::NOT_FOUND, "errno {raw}");
        }
        let status = |errno| failed_write(errno).status().as_u16();
        assert_eq!(status(Errno::INVAL), 500);
        assert_eq!(status(Errno::TXTBSY), 409);
        assert_eq!(status(Errno::FBIG), 413);
        assert_eq!(status(Errno::NOSPC), 507);
    }
}
