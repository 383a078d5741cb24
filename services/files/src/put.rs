//! PUT: a file is replaced as a whole, or not at all (RFC 9110, 9.3.4).
//!
//! What arrives goes to a file without a name in the target's directory (`O_TMPFILE`), which the
//! kernel takes away by itself if this process dies. Complete, it gets its name: by `linkat` where
//! nothing had it, else by a hidden name and a `rename` over the old file. Readers see the old file
//! or the new one. Where files without a name are not to be had, it has a hidden name from the
//! start, which is taken away when the request ends; only a killed server leaves it behind.
//!
//! With `Content-Range: bytes FIRST-LAST/TOTAL` (14.5) the parts of a file are gathered, in order,
//! in a hidden file beside the target (`.flatpath-part-NAME`): a part begins where the last one
//! ended, or before, and an upload that broke off goes on from there. The part that makes it
//! complete gives it its name; the others are answered with 202. `Range: bytes=0-N` in a 202 or 409
//! says what is there, and a PUT of nothing with `Content-Range: bytes */TOTAL` asks for it. One
//! client at a time: others get 409. A plain PUT of the same target throws the parts away. Nothing
//! else does.
//!
//! Conditions are looked at before the body is taken and again before the file gets its name, where
//! one lock keeps other PUTs of this server away. Nothing is synced to the disk: that is left to
//! the kernel, as with any file that is written.
//!
//! | answered      | when                                                          |
//! |---------------|---------------------------------------------------------------|
//! | 201, 204      | created, replaced                                             |
//! | 202           | a part, and more are to come                                  |
//! | 400           | a malformed target or Content-Range, or one that does not fit |
//! | 403           | hidden names; what this process may not write                 |
//! | 409           | no such directory; a directory, link or device; a gap; busy   |
//! | 412           | If-Match, If-None-Match or If-Unmodified-Since said no        |
//! | 413, 415, 507 | too long; with a content coding; no space is left             |

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use flatpath::{Payload, WorkerScope};
use flatpath_http::{Body, Opened as Begun, Request, Response, Sink};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::conditional::{Validators, Verdict};
use crate::error::FilesError;
use crate::fields::Fields;
use crate::identity::Identity;
use crate::janitor::{self, Litter};
use crate::limits::NAME_BYTES_MAX;
use crate::root::{Kind, Root};
use crate::target::{Form, Hidden, Target, is_hidden, name_of};

/// Names of ours, which are hidden and never a target.
const OWN: &[u8] = b".flatpath-";
const PART: &[u8] = b".flatpath-part-";

/// What a new file may be done with, by its owner, group and others.
const MODE_NEW: u32 = 0o644;

/// Tries to find a hidden name that nobody has.
const NAME_TRIES_MAX: usize = 8;

/// Serialises the moments in which files get their names.
static NAMING: Mutex<()> = Mutex::new(());

/// A wish that is not granted, or the answer to it.
type Answer<T> = Result<T, Box<Response>>;

/// What stands at the target.
enum Standing {
    Nothing,
    File { identity: Identity, mode: Mode },
}

/// Which part of a file a request brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    first: u64,
    last: u64,
    total: u64,
}

/// Where the bytes go meanwhile.
enum Shelter {
    /// A file without a name.
    Nameless,
    /// A file of this hidden name, gone when the request is.
    Named(Vec<u8>),
    /// The gathered parts, which stay.
    Parts(Vec<u8>, Part),
}

/// A PUT whose body is arriving.
struct Upload {
    directory: File,
    name: Vec<u8>,
    conditions: HeaderMap,
    file: Option<File>,
    shelter: Shelter,
    written: u64,
    bytes_max: u64,
}

/// Looks at the head of a PUT, and makes room for its body.
pub(crate) fn begin(root: &Root, hidden: Hidden, bytes_max: u64, request: &Request) -> Begun {
    match prepare(root, hidden, bytes_max, request) {
        Ok(upload) => Begun::Sink(Box::new(upload)),
        Err(response) => Begun::Response(*response),
    }
}

/// A PUT without a body: an empty file, or the question how far the parts have come.
pub(crate) fn empty(root: &Root, hidden: Hidden, bytes_max: u64, request: &Request) -> Response {
    if let Some(value) = request.headers().single(&header::CONTENT_RANGE)
        && let Some(Err(_total)) = parse_part(value)
    {
        return progress(root, hidden, request).unwrap_or_else(|response| *response);
    }
    match prepare(root, hidden, bytes_max, request) {
        Ok(mut upload) => upload.conclude().unwrap_or_else(|response| *response),
        Err(response) => *response,
    }
}

/// The directory and the name that a request is about.
fn locate(root: &Root, hidden: Hidden, request: &Request) -> Answer<(File, Vec<u8>)> {
    let raw = request
        .uri()
        .path_and_query()
        .map_or("", |target| target.as_str());
    // Hidden names are refused below, in words that fit.
    let target = Target::parse(raw.as_bytes(), Hidden::Served).map_err(failed)?;
    let path = target.path();
    let names_hidden = path.split(|byte| *byte == b'/').any(is_hidden);
    let name = name_of(path);
    if hidden == Hidden::Refused && names_hidden || name.starts_with(OWN) {
        return Err(refused(StatusCode::FORBIDDEN));
    }
    if target.form() == Form::Directory || name.len() > NAME_BYTES_MAX {
        return Err(refused(StatusCode::CONFLICT));
    }
    let parent = path[..path.len() - name.len()]
        .strip_suffix(b"/")
        .unwrap_or_default();
    match root.find(parent) {
        Ok(found) if found.kind == Kind::Directory => Ok((found.file, name.to_vec())),
        Ok(_) | Err(FilesError::NotFound) => Err(refused(StatusCode::CONFLICT)),
        Err(error) => Err(failed(error)),
    }
}

fn prepare(root: &Root, hidden: Hidden, bytes_max: u64, request: &Request) -> Answer<Upload> {
    let fields = request.headers();
    if fields.holds(&header::CONTENT_ENCODING) {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let announced = fields.single(&header::CONTENT_LENGTH).and_then(number);
    let part = match fields.holds(&header::CONTENT_RANGE) {
        false => None,
        true => {
            let part = fields.single(&header::CONTENT_RANGE).and_then(parse_part);
            let Some(Ok(part)) = part else {
                return Err(refused(StatusCode::BAD_REQUEST));
            };
            if announced.is_some_and(|length| length != part.length()) {
                return Err(refused(StatusCode::BAD_REQUEST));
            }
            Some(part)
        }
    };
    let length = part.map(|part| part.total).or(announced);
    if length.is_some_and(|length| length > bytes_max) {
        return Err(refused(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let (directory, name) = locate(root, hidden, request)?;
    let standing = look(&directory, &name)?;
    let names = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_UNMODIFIED_SINCE,
    ];
    let mut conditions = HeaderMap::new();
    for condition in names {
        for value in fields.get_all(&condition) {
            conditions.append(condition.clone(), value.clone());
        }
    }
    allow(&standing, &conditions)?;
    let (file, shelter) = match part {
        Some(part) => open_parts(&directory, &name, part)?,
        None => {
            forget_parts(&directory, &name);
            open_new(&directory)?
        }
    };
    Ok(Upload {
        directory,
        name,
        conditions,
        file: Some(file),
        shelter,
        written: 0,
        bytes_max,
    })
}

/// What stands at the target now. Links are not written through: they would say where.
fn look(directory: &File, name: &[u8]) -> Answer<Standing> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Standing::File {
                identity: Identity::from_stat(&stat),
                mode: Mode::from_raw_mode(stat.st_mode & 0o777),
            })
        }
        Ok(_) => Err(refused(StatusCode::CONFLICT)),
        Err(Errno::NOENT) => Ok(Standing::Nothing),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// The conditions of a PUT (RFC 9110, 13.2.2): what would be 304 for a GET is 412 here.
fn allow(standing: &Standing, conditions: &HeaderMap) -> Answer<()> {
    let verdict = match standing {
        Standing::File { identity, .. } => {
            Validators::of(identity, SystemTime::now()).evaluate(conditions)
        }
        // Nothing matches, not even `*`; and what is not there was not modified.
        Standing::Nothing if conditions.contains_key(header::IF_MATCH) => {
            Verdict::PreconditionFailed
        }
        Standing::Nothing => Verdict::Proceed,
    };
    match verdict {
        Verdict::Proceed => Ok(()),
        _ => Err(refused(StatusCode::PRECONDITION_FAILED)),
    }
}

fn open_new(directory: &File) -> Answer<(File, Shelter)> {
    let mode = Mode::from_raw_mode(MODE_NEW);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, c".", flags | OFlags::TMPFILE, mode) {
        Ok(file) if Path::new("/proc/self/fd").exists() => {
            return Ok((file.into(), Shelter::Nameless));
        }
        Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(failed_write(errno)),
    }
    for _ in 0..NAME_TRIES_MAX {
        let name = fresh_name();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match rustix::fs::openat(directory, &name[..], flags, mode) {
            Ok(file) => return Ok((file.into(), Shelter::Named(name))),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed_write(errno)),
        }
    }
    Err(failed(FilesError::Overloaded))
}

fn fresh_name() -> Vec<u8> {
    use std::hash::{BuildHasher, RandomState};
    let number = RandomState::new().hash_one(std::thread::current().id());
    format!(".flatpath-put-{number:016x}").into_bytes()
}

fn parts_name(name: &[u8]) -> Vec<u8> {
    [PART, name].concat()
}

fn forget_parts(directory: &File, name: &[u8]) {
    // Mostly there are none.
    let _ = rustix::fs::unlinkat(directory, &parts_name(name)[..], AtFlags::empty());
}

/// Opens what was gathered and goes to where the part begins.
fn open_parts(directory: &File, name: &[u8], part: Part) -> Answer<(File, Shelter)> {
    let hidden = parts_name(name);
    if hidden.len() > NAME_BYTES_MAX {
        return Err(refused(StatusCode::CONFLICT));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(directory, &hidden[..], flags, mode).map_err(failed_write)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(refused(StatusCode::CONFLICT)),
        Err(errno) => return Err(failed(errno.into())),
    }
    let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
    let there = u64::try_from(stat.st_size).unwrap_or_default();
    if stat.st_nlink == 0 {
        // Completed or thrown away between open and lock.
        return Err(refused(StatusCode::CONFLICT));
    }
    if part.first > there {
        let mut response = refused(StatusCode::CONFLICT);
        tell_progress(&mut response, there);
        return Err(response);
    }
    let mut file = File::from(file);
    let moved = file
        .set_len(part.first)
        .and_then(|()| file.seek(SeekFrom::Start(part.first)));
    moved.map_err(|error| failed_write(errno_of(&error)))?;
    Ok((file, Shelter::Parts(hidden, part)))
}

/// 202 with what was gathered so far.
fn progress(root: &Root, hidden: Hidden, request: &Request) -> Answer<Response> {
    let (directory, name) = locate(root, hidden, request)?;
    let stat = rustix::fs::statat(
        &directory,
        &parts_name(&name)[..],
        AtFlags::SYMLINK_NOFOLLOW,
    );
    let there = match stat {
        Ok(stat) => u64::try_from(stat.st_size).unwrap_or_default(),
        Err(Errno::NOENT) => 0,
        Err(errno) => return Err(failed(errno.into())),
    };
    let mut response = bare(StatusCode::ACCEPTED);
    tell_progress(&mut response, there);
    Ok(response)
}

fn tell_progress(response: &mut Response, there: u64) {
    if let Some(last) = there.checked_sub(1)
        && let Ok(value) = HeaderValue::from_str(&format!("bytes=0-{last}"))
    {
        response.headers_mut().insert(header::RANGE, value);
    }
}

impl Part {
    fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

/// `bytes FIRST-LAST/TOTAL`, or `bytes */TOTAL` as an error with the total. `None`: neither.
fn parse_part(value: &[u8]) -> Option<Result<Part, u64>> {
    let (unit, rest) = value.split_at_checked("bytes ".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (range, total) = (&rest[..slash], number(&rest[slash + 1..])?);
    if range == b"*" {
        return Some(Err(total));
    }
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (number(&range[..dash])?, number(&range[dash + 1..])?);
    (first <= last && last < total).then_some(Ok(Part { first, last, total }))
}

/// Digits and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

impl Sink for Upload {
    fn write(
        &mut self,
        piece: &mut Payload,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let bytes = piece.len() as u64;
        let bytes_max = match self.shelter {
            Shelter::Parts(_, part) => part.length(),
            Shelter::Nameless | Shelter::Named(_) => self.bytes_max,
        };
        if bytes > bytes_max - self.written {
            let is_part = matches!(self.shelter, Shelter::Parts(..));
            return Err(refused(match is_part {
                true => StatusCode::BAD_REQUEST,
                false => StatusCode::PAYLOAD_TOO_LARGE,
            }));
        }
        if let Some(file) = &mut self.file {
            piece
                .write_to(file)
                .map_err(|error| failed_write(errno_of(&error)))?;
        }
        self.written += bytes;
        Ok(())
    }

    fn finish(mut self: Box<Self>, _scope: &mut WorkerScope<'_>) -> Response {
        self.conclude().unwrap_or_else(|response| *response)
    }
}

impl Upload {
    fn conclude(&mut self) -> Answer<Response> {
        if let Shelter::Parts(_, part) = self.shelter {
            if self.written != part.length() {
                return Err(refused(StatusCode::BAD_REQUEST));
            }
            if part.last + 1 < part.total {
                let mut response = bare(StatusCode::ACCEPTED);
                tell_progress(&mut response, part.last + 1);
                return Ok(response);
            }
        }
        let Some(file) = &self.file else {
            return Err(refused(StatusCode::INTERNAL_SERVER_ERROR));
        };
        let _naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = look(&self.directory, &self.name)?;
        allow(&standing, &self.conditions)?;
        let (mode, is_new) = match standing {
            Standing::File { mode, .. } => (mode, false),
            Standing::Nothing => (Mode::from_raw_mode(MODE_NEW), true),
        };
        rustix::fs::fchmod(file, mode).map_err(failed_write)?;
        self.give_name(file, is_new)?;
        let mut response = bare(match is_new {
            true => StatusCode::CREATED,
            false => StatusCode::NO_CONTENT,
        });
        if let Ok(stat) = rustix::fs::fstat(file)
            && let Some(tag) = Validators::of(&Identity::from_stat(&stat), SystemTime::now()).tag
            && let Ok(value) = HeaderValue::from_bytes(tag.as_bytes())
        {
            response.headers_mut().insert(header::ETAG, value);
        }
        // It has its name: nothing is left to be taken away.
        self.shelter = Shelter::Nameless;
        Ok(response)
    }

    /// The file takes its place. Under the lock; only other processes can come between.
    fn give_name(&self, file: &File, is_new: bool) -> Answer<()> {
        let (directory, name) = (&self.directory, &self.name[..]);
        let hidden = match &self.shelter {
            Shelter::Nameless => {
                let link = |to: &[u8]| {
                    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
                    rustix::fs::linkat(CWD, from, directory, to, AtFlags::SYMLINK_FOLLOW)
                };
                if is_new {
                    return link(name).map_err(named_meanwhile);
                }
                let hidden = fresh_name();
                link(&hidden).map_err(failed_write)?;
                hidden
            }
            Shelter::Named(hidden) | Shelter::Parts(hidden, _) => hidden.clone(),
        };
        let renamed = match is_new {
            true => {
                let flags = RenameFlags::NOREPLACE;
                rustix::fs::renameat_with(directory, &hidden[..], directory, name, flags)
                    .map_err(named_meanwhile)
            }
            false => {
                rustix::fs::renameat(directory, &hidden[..], directory, name).map_err(failed_write)
            }
        };
        if renamed.is_err() && matches!(self.shelter, Shelter::Nameless) {
            let _ = rustix::fs::unlinkat(directory, &hidden[..], AtFlags::empty());
        }
        renamed
    }
}

/// A request that ends before its file has a name leaves nothing behind but gathered parts. This
/// may be on the network thread, and closing a large file that nobody needs takes its time.
impl Drop for Upload {
    fn drop(&mut self) {
        let shelter = std::mem::replace(&mut self.shelter, Shelter::Nameless);
        let Some(file) = self.file.take() else { return };
        if let Shelter::Parts(..) = shelter {
            // The client may be told by now that it can go on; closing would free it too late.
            let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        }
        let name = match shelter {
            Shelter::Named(name) => self
                .directory
                .try_clone()
                .ok()
                .map(|directory| (OwnedFd::from(directory), name)),
            Shelter::Nameless | Shelter::Parts(..) => None,
        };
        janitor::clear_away(Litter { file, name });
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Somebody else gave this name away between the look and the link.
fn named_meanwhile(errno: Errno) -> Box<Response> {
    match errno {
        Errno::EXIST => refused(StatusCode::CONFLICT),
        errno => failed_write(errno),
    }
}

fn failed_write(errno: Errno) -> Box<Response> {
    match errno {
        Errno::NOSPC | Errno::DQUOT => refused(StatusCode::INSUFFICIENT_STORAGE),
        Errno::FBIG => refused(StatusCode::PAYLOAD_TOO_LARGE),
        Errno::ROFS | Errno::ACCESS | Errno::PERM => refused(StatusCode::FORBIDDEN),
        errno => failed(errno.into()),
    }
}

fn failed(error: FilesError) -> Box<Response> {
    if let FilesError::Unreadable(_) = error {
        log::warn!("PUT: {error}");
    }
    refused(error.status())
}

fn refused(status: StatusCode) -> Box<Response> {
    let mut response = bare(status);
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    *response.body_mut() = Body::from(format!("{status}\n"));
    Box::new(response)
}

fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    let name = HeaderName::from_static("x-content-type-options");
    let value = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(name, value);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_exactly_or_not_at_all() {
        let part = |first, last, total| Some(Ok(Part { first, last, total }));
        assert_eq!(parse_part(b"bytes 0-0/1"), part(0, 0, 1));
        assert_eq!(parse_part(b"Bytes 5-9/20"), part(5, 9, 20));
        assert_eq!(parse_part(b"bytes */20"), Some(Err(20)));
        for wrong in [
            &b"bytes 5-4/20"[..],
            b"bytes 0-20/20",
            b"bytes 0-1/*",
            b"bytes=0-1/2",
            b"bytes 0-1",
            b"bytes -1/2",
            b"bytes 0-/2",
            b"bytes +0-1/2",
            b"bytes 0-1/99999999999999999999",
            b"lines 0-1/2",
            b"",
        ] {
            assert_eq!(
                parse_part(wrong),
                None,
                "{:?}",
                wrong.escape_ascii().to_string()
            );
        }
    }
}
