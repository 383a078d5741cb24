//! One upload: what is there of it, and what ends it.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use flatpath_http::Response;
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::deferred_close::TempFile;
use crate::keyed::{KeyGuard, KeyedLock};
use crate::publish::Publication;
use crate::responses::bare;
use crate::writing::{
    Answer, WriteOptions, directory_at, errno_of, failed_write, refused, refused_because,
};

use super::headers;
use super::ledger::{Ledger, Uploads};
use super::record::{Record, Stage};
use super::store::{Id, Store, time_of};

/// Uploads that a request of this process changes now.
static CHANGING: LazyLock<KeyedLock<Id>> = LazyLock::new(KeyedLock::new);

/// An upload on the disk. It may be changed or removed by others at any time.
pub(super) struct Upload {
    pub(super) id: Id,
    pub(super) store: Store,
    /// Where its file goes; `None` where that directory is gone.
    directory: Option<File>,
    /// What arrived, under a hidden name; `None` where that is gone.
    data: Option<TempFile>,
    options: WriteOptions,
    ledger: Arc<Ledger>,
    /// Bytes that all unfinished uploads together may have.
    unfinished_bytes_max: u64,
}

/// What an upload is, under its lock.
pub(super) enum Seen<'a> {
    /// Bytes are still to come.
    Receiving(Box<Held<'a>>),
    /// It was published.
    Finished(Finished),
    /// No record, or no bytes to it.
    Gone,
}

/// What is remembered of a published upload.
pub(super) struct Finished {
    pub(super) length: u64,
    /// Of the request that brought the last byte.
    pub(super) epoch: u64,
}

/// An upload that nothing else changes meanwhile.
pub(super) struct Held<'a> {
    upload: &'a Upload,
    pub(super) directory: &'a File,
    pub(super) data: &'a File,
    pub(super) record: Record,
    /// Bytes in the file, those included that wait for their checksum.
    pub(super) size: u64,
    written: Option<SystemTime>,
    _file: FileLock<'a>,
    _key: KeyGuard<'static, Id>,
}

/// Keeps other processes away. Where the file system has no locks, that is left to chance.
struct FileLock<'a>(&'a File);

impl<'a> FileLock<'a> {
    fn of(file: &'a File) -> Answer<Self> {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => Err(refused(StatusCode::LOCKED)),
            _ => Ok(Self(file)),
        }
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

impl Upload {
    /// Opens what there is of an upload; 404 where there is no record.
    pub(super) fn find(uploads: Uploads<'_>, id: &Id) -> Answer<Self> {
        let root = uploads.root;
        let store = Store::open(root)?.ok_or_else(missing)?;
        let record = store.read(id)?.ok_or_else(missing)?;
        let directory = directory_at(root, &record.directory).ok();
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = directory.as_ref().map(|directory| {
            rustix::fs::openat(directory, &id.data_name()[..], flags, Mode::empty())
        });
        let data = match opened {
            Some(Ok(data)) => Some(TempFile::unnamed(data.into())),
            None | Some(Err(Errno::NOENT)) => None,
            Some(Err(errno)) => return Err(failed_write(errno)),
        };
        uploads.ledger.read(root, &store);
        Ok(Self {
            id: id.clone(),
            store,
            directory,
            data,
            options: uploads.options,
            unfinished_bytes_max: uploads.bytes_max(),
            ledger: Arc::clone(uploads.ledger),
        })
    }

    /// One that was just made.
    pub(super) fn made(
        uploads: Uploads<'_>,
        id: Id,
        store: Store,
        directory: File,
        data: File,
    ) -> Self {
        Self {
            id,
            store,
            directory: Some(directory),
            data: Some(TempFile::unnamed(data)),
            options: uploads.options,
            unfinished_bytes_max: uploads.bytes_max(),
            ledger: Arc::clone(uploads.ledger),
        }
    }

    /// Looks at the upload under its lock, and keeps the lock if there is something to change.
    pub(super) fn look(&self) -> Answer<Seen<'_>> {
        let key = CHANGING.lock(&self.id);
        let file_lock = self.data.as_deref().map(FileLock::of).transpose()?;
        let Some(record) = self.store.read(&self.id)? else {
            self.ledger.leave(&self.id);
            return Ok(Seen::Gone);
        };
        let same = match (&self.directory, self.data.as_deref()) {
            (Some(directory), Some(data)) => still_named(directory, data, &self.id)?,
            _ => None,
        };
        let (Some(stat), Some(directory), Some(data), Some(file_lock)) =
            (same, &self.directory, self.data.as_deref(), file_lock)
        else {
            self.ledger.leave(&self.id);
            return Ok(match (record.stage, record.length) {
                (Stage::Publishing, Some(length)) => Seen::Finished(Finished {
                    length,
                    epoch: record.epoch,
                }),
                _ => Seen::Gone,
            });
        };
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        self.ledger.enter(&self.id, size);
        Ok(Seen::Receiving(Box::new(Held {
            upload: self,
            directory,
            data,
            record,
            size,
            written: time_of(&stat),
            _file: file_lock,
            _key: key,
        })))
    }

    /// As [`Upload::look`], where an upload that is gone or expired is an error.
    pub(super) fn hold(&self) -> Answer<Result<Box<Held<'_>>, Finished>> {
        match self.look()? {
            Seen::Receiving(held) if held.has_expired(SystemTime::now()) => {
                Err(refused(StatusCode::GONE))
            }
            Seen::Receiving(held) => Ok(Ok(held)),
            Seen::Finished(finished) => Ok(Err(finished)),
            Seen::Gone => Err(missing()),
        }
    }
}

/// The file's state, if it still has its hidden name.
fn still_named(directory: &File, data: &File, id: &Id) -> Answer<Option<rustix::fs::Stat>> {
    let stat = rustix::fs::fstat(data).map_err(failed_write)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::statat(directory, &id.data_name()[..], flags) {
        Ok(named) if (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino) => Ok(Some(stat)),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed_write(errno)),
    }
}

impl Held<'_> {
    /// T4.
    pub(super) fn offset(&self) -> u64 {
        self.record
            .verified
            .map_or(self.size, |at| at.min(self.size))
    }

    /// Writes the record.
    pub(super) fn save(&self) -> Answer<()> {
        let Upload { store, id, .. } = self.upload;
        store.write(id, &self.record, self.upload.options.durability)
    }

    /// Reserves `bytes` of what all unfinished uploads together may have; 507 if there are less.
    pub(super) fn reserve(&self, bytes: u64) -> Answer<()> {
        let Upload { ledger, id, .. } = self.upload;
        let bytes_max = self.upload.unfinished_bytes_max;
        match ledger.grow(id, self.size.saturating_add(bytes), bytes_max) {
            true => Ok(()),
            false => Err(refuse_bytes(ledger.total(), bytes_max)),
        }
    }

    /// Less was written than was reserved.
    pub(super) fn recount(&self) {
        if let Ok(stat) = rustix::fs::fstat(self.data) {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            self.upload.ledger.enter(&self.upload.id, size);
        }
    }

    /// Cuts the file.
    pub(super) fn cut(&mut self, bytes: u64) -> Answer<()> {
        let cut = self.data.set_len(bytes);
        cut.map_err(|error| failed_write(errno_of(&error)))?;
        self.size = bytes;
        self.upload.ledger.enter(&self.upload.id, bytes);
        Ok(())
    }

    /// Gives the complete file its name. Returns what a plain PUT would be answered.
    pub(super) fn publish(&mut self) -> Answer<Response> {
        let Some(length) = self.record.length else {
            return Err(refused(StatusCode::INTERNAL_SERVER_ERROR));
        };
        if self.size != length {
            self.cut(length)?;
        }
        // From here on a hidden file that is gone means that it was published.
        self.record.stage = Stage::Publishing;
        self.record.verified = None;
        self.save()?;
        let hidden = self.upload.id.data_name();
        let publication = Publication {
            directory: self.directory,
            name: &self.record.name,
            conditions: &self.record.conditions,
            file: self.data,
            hidden: Some(&hidden),
            durability: self.upload.options.durability,
        };
        let published = publication.publish()?;
        self.upload.ledger.leave(&self.upload.id);
        Ok(publication.answer(published))
    }

    /// Removes the upload and what arrived of it.
    pub(super) fn remove(self) -> Answer<()> {
        let name = self.upload.id.data_name();
        match rustix::fs::unlinkat(self.directory, &name[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed_write(errno)),
        }
        self.upload.ledger.leave(&self.upload.id);
        self.upload.store.remove(self.upload.id.digits().as_bytes())
    }

    pub(super) fn has_expired(&self, now: SystemTime) -> bool {
        is_older(self.written, self.upload.options.expires, now)
    }

    /// `Upload-Expires`: the latest of what may become of it, if no more bytes arrive.
    pub(super) fn tell_expiry(&self, all: &mut HeaderMap) {
        let expires = self.upload.options.expires;
        let time = SystemTime::now().checked_add(expires);
        if let Some(time) = time
            && let Ok(value) = HeaderValue::from_str(&httpdate::fmt_http_date(time))
        {
            all.insert(&headers::UPLOAD_EXPIRES, value);
        }
    }
}

/// "507 Insufficient Storage": it is temporary, so clients that retry do so (RFC 4918, 11.5).
pub(super) fn refuse_bytes(total: u64, bytes_max: u64) -> Box<Response> {
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    let refused = REFUSED.fetch_add(1, Ordering::Relaxed);
    if refused.is_multiple_of(1_000) {
        log::warn!(
            "unfinished uploads have {total} of {bytes_max} bytes, more are refused \
             (--uploads-bytes); {refused} requests were refused before"
        );
    }
    let reason = "unfinished uploads have as many bytes as they may; continue later";
    refused_because(StatusCode::INSUFFICIENT_STORAGE, reason)
}

/// Whether something was written longer ago than this. A time in the future is not.
pub(super) fn is_older(written: Option<SystemTime>, than: Duration, now: SystemTime) -> bool {
    written
        .and_then(|written| now.duration_since(written).ok())
        .is_some_and(|age| age > than)
}

/// HEAD: how far the upload is.
pub(super) fn ask(uploads: Uploads<'_>, id: &Id) -> Answer<Response> {
    let upload = Upload::find(uploads, id)?;
    let mut response = bare(StatusCode::OK);
    let all = response.headers_mut();
    let mut held = match upload.hold()? {
        Ok(held) => held,
        Err(finished) => {
            all.insert(&headers::UPLOAD_OFFSET, finished.length.into());
            all.insert(&headers::UPLOAD_LENGTH, finished.length.into());
            return Ok(response);
        }
    };
    let offset = held.offset();
    match held.record.length {
        Some(length) => {
            all.insert(&headers::UPLOAD_LENGTH, length.into());
        }
        None => {
            let deferred = HeaderValue::from_static("1");
            all.insert(&headers::UPLOAD_DEFER_LENGTH, deferred);
        }
    }
    if let Ok(metadata) = HeaderValue::from_bytes(&held.record.metadata)
        && !metadata.is_empty()
    {
        all.insert(&headers::UPLOAD_METADATA, metadata);
    }
    all.insert(&headers::UPLOAD_OFFSET, offset.into());
    if held.record.length == Some(offset) {
        // A client takes this for success, so it must be one: the server that had the last byte
        // may have been killed before it named the file.
        held.publish()?;
    } else {
        held.tell_expiry(all);
    }
    Ok(response)
}

/// DELETE: "the Server SHOULD free the used resources".
pub(super) fn terminate(uploads: Uploads<'_>, id: &Id) -> Answer<Response> {
    let upload = Upload::find(uploads, id)?;
    match upload.look()? {
        Seen::Receiving(held) => held.remove()?,
        Seen::Finished(_) => {
            let reason = "the upload is finished, and its file is not removed";
            return Err(refused_because(StatusCode::FORBIDDEN, reason));
        }
        Seen::Gone => return Err(missing()),
    }
    Ok(bare(StatusCode::NO_CONTENT))
}

fn missing() -> Box<Response> {
    refused(StatusCode::NOT_FOUND)
}
