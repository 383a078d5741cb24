//! PUT: a file is replaced as a whole, or not at all (RFC 9110, 9.3.4).
//!
//! The body goes to a file without a name in the target's directory (`O_TMPFILE`), which the
//! kernel removes by itself if this process dies, and which gets its name when it is complete
//! (`publish`). Where the file system has no unnamed files, it has a hidden name from the start,
//! which is removed when the request ends; what a killed server leaves behind is removed at the
//! next start (`leftovers`). A request that ends
//! before its file has a name leaves nothing ([`TempFile`]).
//!
//! What is decided comes in this order: the name, the method (a service that is not writable has
//! none of this), the headers of the body, its length, what is at the name now.
//!
//! Conditions are looked at before the body is taken and again before the file gets its name. A
//! client that wants to resume uses an upload (`tus`); a `Content-Range` is refused.
//!
//! | answered      | when                                                        |
//! |---------------|-------------------------------------------------------------|
//! | 201, 204      | created, replaced                                           |
//! | 400           | a malformed target; a Content-Range (14.5)                  |
//! | 403           | hidden names; what this process may not write               |
//! | 409           | no such directory; a directory, link or device              |
//! | 412           | If-Match, If-None-Match or If-Unmodified-Since failed       |
//! | 413, 415, 507 | too long; with a content coding; no space is left           |
//! | 414           | a name that is longer than the file system takes            |

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath::memory::{Payload, Piped};
use flatpath_http::{Request, Response, Sink, UploadDecision};
use http::StatusCode;
use http::header::{self, HeaderMap};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::conditional::EntityTags;
use crate::deferred_close::TempFile;
use crate::error::FilesError;
use crate::headers::{Headers, number};
use crate::leftovers::{fresh_name, hold};
use crate::publish::{Publication, refuse_part};
use crate::responses::{Refusal, Result};
use crate::target::PathForm;
use crate::tus::ledger::Uploads;
use crate::writing::{
    MODE_NEW, WriteOptions, allow, conditions_of, directory_for, existing_at, raw_target,
    split_name, writable_path,
};

/// Tries to find a hidden name that no file has.
const NAME_TRIES_MAX: usize = 8;

/// A file that is written, and has no name yet that clients see.
pub(crate) struct Upload {
    directory: Arc<File>,
    name: Vec<u8>,
    conditions: HeaderMap,
    file: TempFile,
    written: u64,
    options: WriteOptions,
    tags: EntityTags,
}

/// Looks at the head of a PUT, and makes room for its body, which may be empty.
pub(crate) fn begin(uploads: &Uploads, request: &Request) -> UploadDecision {
    match prepare(uploads, request) {
        Ok(upload) => UploadDecision::Sink(Box::new(upload)),
        Err(refusal) => UploadDecision::Response(*refusal.0),
    }
}

fn prepare(uploads: &Uploads, request: &Request) -> Result<Upload> {
    let headers = request.headers();
    // Whether there may be such a file comes first: what is said of a body is of one that counts.
    let named = Named::of(uploads, raw_target(request))?;
    if headers.holds(&header::CONTENT_RANGE) {
        return Err(refuse_part());
    }
    if headers.holds(&header::CONTENT_ENCODING) {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE.into());
    }
    let length = headers.single(&header::CONTENT_LENGTH).and_then(number);
    if length.is_some_and(|length| length > uploads.options.bytes_max) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
    }
    Upload::named(uploads, named, conditions_of(headers))
}

/// An address at which this service may have a file that is written.
struct Named {
    path: Vec<u8>,
    form: PathForm,
}

impl Named {
    fn of(uploads: &Uploads, raw: &str) -> Result<Self> {
        let (path, form) = writable_path(raw, uploads.hidden)?;
        uploads.allow_path(&path)?;
        Ok(Self { path, form })
    }
}

fn open_new(directory: &Arc<File>) -> Result<TempFile> {
    let mode = Mode::from_raw_mode(MODE_NEW);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, c".", flags | OFlags::TMPFILE, mode) {
        Ok(file) if Path::new("/proc/self/fd").exists() => {
            return Ok(TempFile::unnamed(file.into()));
        }
        Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    for _ in 0..NAME_TRIES_MAX {
        let name = fresh_name();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match rustix::fs::openat(directory, &name[..], flags, mode) {
            Ok(file) => {
                let file = File::from(file);
                if hold(&file)? {
                    return Ok(TempFile::named(file, Arc::clone(directory), name));
                }
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(FilesError::Overloaded.into())
}

impl Sink for Upload {
    fn write(
        &mut self,
        piece: &mut Payload,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.admit(piece.len() as u64)?;
        piece.write_to(&mut &*self.file).map_err(Refusal::from)?;
        Ok(())
    }

    fn takes_pipes(&self) -> bool {
        true
    }

    fn write_piped(
        &mut self,
        piped: &mut Piped,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.admit(piped.len() as u64)?;
        piped.write_to(&*self.file).map_err(Refusal::from)?;
        Ok(())
    }

    fn finish(mut self: Box<Self>, _scope: &mut WorkerScope<'_>) -> Response {
        self.conclude().unwrap_or_else(|refusal| *refusal.0)
    }
}

impl Upload {
    /// A file that is to have this address, if there may be one.
    pub(crate) fn at(uploads: &Uploads, raw: &str, conditions: HeaderMap) -> Result<Self> {
        Self::named(uploads, Named::of(uploads, raw)?, conditions)
    }

    fn named(uploads: &Uploads, named: Named, conditions: HeaderMap) -> Result<Self> {
        let Named { path, form } = named;
        let (parent, name) = split_name(&path);
        if form == PathForm::Directory {
            return Err(Refusal::conflict("a path that ends in / names a directory"));
        }
        let directory = directory_for(uploads.finder(), parent, name)?;
        let existing = existing_at(&directory, name)?;
        allow(&existing, &conditions, uploads.tags)?;
        let directory = Arc::new(directory);
        let file = open_new(&directory)?;
        Ok(Self {
            directory,
            name: name.to_vec(),
            conditions,
            file,
            written: 0,
            options: uploads.options,
            tags: uploads.tags,
        })
    }

    /// The name that it is to have.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// More of its content.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.admit(bytes.len() as u64)?;
        (&*self.file).write_all(bytes)?;
        Ok(())
    }

    /// Counts what is about to be written.
    fn admit(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.options.bytes_max - self.written {
            return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
        }
        self.written += bytes;
        Ok(())
    }

    /// Holds it to these conditions from now on, and looks whether they are met now.
    pub(crate) fn on(&mut self, conditions: HeaderMap) -> Result<()> {
        self.conditions = conditions;
        let existing = existing_at(&self.directory, &self.name)?;
        allow(&existing, &self.conditions, self.tags)
    }

    /// The file gets its name, as a whole.
    pub(crate) fn store(&mut self) -> Result<()> {
        self.publication().publish()?;
        self.file.published();
        Ok(())
    }

    fn conclude(&mut self) -> Result<Response> {
        let publication = self.publication();
        let published = publication.publish()?;
        let response = publication.answer(published);
        self.file.published();
        Ok(response)
    }

    fn publication(&self) -> Publication<'_> {
        Publication {
            directory: &self.directory,
            name: &self.name,
            conditions: &self.conditions,
            tags: self.tags,
            file: &self.file,
            hidden: self.file.name(),
            durability: self.options.durability,
        }
    }
}
