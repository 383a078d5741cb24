//! One upload: what is there of it, and what ends it.

use std::fs::File;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use flatpath::episode::Episode;
use flatpath_http::Response;
use http::StatusCode;
use http::header::HeaderValue;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::conditional::date_header;
use crate::deferred_close::TempFile;
use crate::keyed::{KeyGuard, KeyedLock};
use crate::publish::{Publication, sync_directory};
use crate::responses::{Refusal, Result, bare, with};
use crate::root::Kind;

use super::headers;
use super::ledger::{Room, Uploads};
use super::record::Record;
use super::store::{Id, Store, time_of};

/// Uploads that a request of this process changes now.
static CHANGING: LazyLock<KeyedLock<Id>> = LazyLock::new(KeyedLock::new);

/// An upload on the disk. It may be changed or removed by others at any time.
pub(super) struct Upload {
    pub(super) id: Id,
    pub(super) store: Store,
    /// Where its file goes; `None` where that directory is gone.
    pub(super) directory: Option<File>,
    /// The bytes that arrived, under a hidden name; `None` if that is gone.
    pub(super) data: Option<TempFile>,
    pub(super) uploads: Uploads,
}

/// The state of an upload, seen under its lock.
pub(super) enum State<'a> {
    /// Bytes are still to come.
    Receiving(Box<Locked<'a>>),
    /// It was published; the epoch is of the request that brought the last byte.
    Finished { length: u64, record: Box<Record> },
    /// No record, or no bytes to it.
    Gone,
}

/// An upload that is locked: nothing else changes it.
pub(super) struct Locked<'a> {
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
    fn of(file: &'a File) -> Result<Self> {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => Err(StatusCode::LOCKED.into()),
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
    /// Opens what there is of an upload; 404 where there is no record. In the name of a request
    /// the service is asked that its directory belongs to.
    pub(super) fn find(uploads: &Uploads, id: &Id) -> Result<Self> {
        let root = &uploads.root;
        let store = Store::open(root)?.ok_or_else(missing)?;
        let record = store.read(id)?.ok_or_else(missing)?;
        let directory = match uploads.finder().find(&record.directory) {
            Ok(found) if found.kind == Kind::Directory => Some(found.file),
            Err(error) if error.is_of_owner() => return Err(error.into()),
            Ok(_) | Err(_) => None,
        };
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = directory.as_ref().map(|directory| {
            rustix::fs::openat(directory, &id.data_name()[..], flags, Mode::empty())
        });
        let data = match opened {
            Some(Ok(data)) => Some(TempFile::unnamed(data.into())),
            None | Some(Err(Errno::NOENT)) => None,
            Some(Err(errno)) => return Err(errno.into()),
        };
        uploads.ledger.read(root, &store);
        Ok(Self {
            id: id.clone(),
            store,
            directory,
            data,
            uploads: uploads.clone(),
        })
    }

    /// Brings the name of a published file to the disk, where it is to be there: what gave it its
    /// name may have failed or been killed before it did that.
    pub(super) fn sync_name(&self) -> Result<()> {
        match &self.directory {
            Some(directory) => sync_directory(directory, self.uploads.options.durability),
            None => Ok(()),
        }
    }

    /// Whether bytes arrived within the time after which uploads expire. It does not take the
    /// file's lock, with which it would keep other processes from writing.
    pub(super) fn is_young(&self, now: SystemTime) -> bool {
        let _key = CHANGING.lock(&self.id);
        let Ok(Some(stat)) = self.named_stat() else {
            return false;
        };
        self.uploads.ledger.enter(&self.id, size_of(&stat));
        !is_older(time_of(&stat), self.uploads.kept(size_of(&stat)), now)
    }

    /// When its file was made, or bytes arrived for it last; `None` where there is no such file.
    pub(super) fn written(&self) -> Option<SystemTime> {
        self.named_stat().ok().flatten().as_ref().and_then(time_of)
    }

    /// The state of its file, if the file still has its hidden name.
    fn named_stat(&self) -> Result<Option<Stat>> {
        match (&self.directory, self.data.as_deref()) {
            (Some(directory), Some(data)) => still_named(directory, data, &self.id),
            _ => Ok(None),
        }
    }

    /// Takes the upload's lock, and keeps it if there is something to change.
    pub(super) fn lock(&self) -> Result<State<'_>> {
        let key = CHANGING.lock(&self.id);
        let file_lock = self.data.as_deref().map(FileLock::of).transpose()?;
        let Some(record) = self.store.read(&self.id)? else {
            self.uploads.ledger.leave(&self.id);
            return Ok(State::Gone);
        };
        let same = self.named_stat()?;
        let (Some(stat), Some(directory), Some(data), Some(file_lock)) =
            (same, &self.directory, self.data.as_deref(), file_lock)
        else {
            self.uploads.ledger.leave(&self.id);
            return Ok(match record.length {
                Some(length) if record.is_publishing => State::Finished {
                    length,
                    record: Box::new(record),
                },
                _ => State::Gone,
            });
        };
        let size = size_of(&stat);
        self.uploads.ledger.enter(&self.id, size);
        self.uploads.ledger.is_from(&self.id, record.from);
        Ok(State::Receiving(Box::new(Locked {
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
}

impl<'a> State<'a> {
    /// The upload, if it takes more bytes now.
    pub(super) fn receiving(self) -> Result<Box<Locked<'a>>> {
        match self {
            Self::Receiving(locked) if locked.has_expired(SystemTime::now()) => {
                Err(StatusCode::GONE.into())
            }
            Self::Receiving(locked) => Ok(locked),
            Self::Finished { length, .. } => Err(elsewhere(length)),
            Self::Gone => Err(missing()),
        }
    }
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// The file's state, if it still has its hidden name.
fn still_named(directory: &File, data: &File, id: &Id) -> Result<Option<Stat>> {
    let stat = rustix::fs::fstat(data)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::statat(directory, &id.data_name()[..], flags) {
        Ok(named) if (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino) => Ok(Some(stat)),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

impl Locked<'_> {
    /// The length of the file, less what waits for its checksum (T4).
    pub(super) fn offset(&self) -> u64 {
        self.record
            .verified
            .map_or(self.size, |at| at.min(self.size))
    }

    pub(super) fn save(&self) -> Result<()> {
        let Upload { store, id, .. } = self.upload;
        store.write(id, &self.record, self.upload.uploads.options.durability)
    }

    /// Reserves `bytes` of what all unfinished uploads together may have, and those of one address;
    /// 507 if there are less.
    pub(super) fn reserve(&self, bytes: u64) -> Result<()> {
        let Upload { uploads, id, .. } = self.upload;
        let bytes_max = uploads.bytes_max();
        let bytes = self.size.saturating_add(bytes);
        refuse_bytes(uploads.ledger.grow(id, bytes, bytes_max), bytes_max)
    }

    /// Less was written than was reserved.
    pub(super) fn recount(&self) {
        if let Ok(stat) = rustix::fs::fstat(self.data) {
            let Upload { uploads, id, .. } = self.upload;
            uploads.ledger.enter(id, size_of(&stat));
        }
    }

    /// Brings the bytes to where they count (T5); up to `settled` they were before.
    pub(super) fn settle(&mut self, settled: u64) -> Result<()> {
        let Err(errno) = self.upload.uploads.options.durability.settle(self.data) else {
            return Ok(());
        };
        if matches!(errno, Errno::MFILE | Errno::NFILE) {
            // The file was not asked.
            return Err(errno.into());
        }
        log::warn!("bytes of an upload are lost: {errno}; its client has to send them again");
        if self.cut(settled.min(self.size)).is_err() {
            // Then nothing of it counts. Without its record the sweep of another server finds no
            // upload in what is left.
            let Upload { store, id, .. } = self.upload;
            store.remove(id.digits().as_bytes())?;
            rustix::fs::unlinkat(self.directory, &id.data_name()[..], AtFlags::empty())?;
        }
        Err(errno.into())
    }

    pub(super) fn cut(&mut self, bytes: u64) -> Result<()> {
        self.data.set_len(bytes)?;
        self.size = bytes;
        self.upload.uploads.ledger.enter(&self.upload.id, bytes);
        Ok(())
    }

    /// Gives the complete file its name. Returns what a plain PUT would be answered.
    pub(super) fn publish(&mut self) -> Result<Response> {
        let Some(length) = self.record.length else {
            return Err(StatusCode::INTERNAL_SERVER_ERROR.into());
        };
        if self.size != length {
            self.cut(length)?;
        }
        // From here on a hidden file that is gone means that it was published.
        self.record.is_publishing = true;
        self.record.verified = None;
        self.save()?;
        let hidden = self.upload.id.data_name();
        let publication = Publication {
            directory: self.directory,
            name: &self.record.name,
            conditions: &self.record.conditions,
            tags: self.upload.uploads.tags,
            file: self.data,
            hidden: Some(&hidden),
            durability: self.upload.uploads.options.durability,
        };
        let published = publication.publish()?;
        self.upload.uploads.ledger.leave(&self.upload.id);
        Ok(publication.answer(published))
    }

    pub(super) fn remove(self) -> Result<()> {
        let name = self.upload.id.data_name();
        match rustix::fs::unlinkat(self.directory, &name[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.upload.uploads.ledger.leave(&self.upload.id);
        self.upload.store.remove(self.upload.id.digits().as_bytes())
    }

    pub(super) fn has_expired(&self, now: SystemTime) -> bool {
        is_older(self.written, self.upload.uploads.kept(self.size), now)
    }

    /// `Upload-Expires`: the latest of what may become of it, if no more bytes arrive.
    pub(super) fn tell_expiry(&self, response: Response) -> Response {
        match SystemTime::now().checked_add(self.upload.uploads.kept(self.size)) {
            Some(time) => with(response, &headers::UPLOAD_EXPIRES, date_header(time)),
            None => response,
        }
    }
}

/// "409 Conflict [...] without modifying the upload resource".
pub(super) fn elsewhere(offset: u64) -> Refusal {
    let reason = "the upload stands at another offset";
    Refusal::conflict(reason).with(&headers::UPLOAD_OFFSET, offset)
}

/// "507 Insufficient Storage": it is temporary, so clients that retry do so (RFC 4918, 11.5).
pub(super) fn refuse_bytes(room: Room, bytes_max: u64) -> Result<()> {
    static REFUSED: Episode = Episode::new();
    let (whose, bytes, reason) = match room {
        Room::Enough => return Ok(()),
        Room::Full { total } => (
            "unfinished uploads",
            total,
            "unfinished uploads have as many bytes as they may; continue later",
        ),
        Room::AddressFull { own } => (
            "unfinished uploads of one address",
            own,
            "unfinished uploads of this address have its share of the bytes; finish or end some",
        ),
    };
    if let Some(refused) = REFUSED.tells() {
        log::warn!(
            "{whose} have {bytes} of {bytes_max} bytes, more are refused (--uploads-bytes); \
             {refused} others since the last such line"
        );
    }
    Err(Refusal::because(StatusCode::INSUFFICIENT_STORAGE, reason))
}

/// Whether something was written longer ago than this. A time in the future is not.
pub(super) fn is_older(written: Option<SystemTime>, than: Duration, now: SystemTime) -> bool {
    written
        .and_then(|written| now.duration_since(written).ok())
        .is_some_and(|age| age > than)
}

/// HEAD: how far the upload is.
pub(super) fn ask(uploads: &Uploads, id: &Id) -> Result<Response> {
    let upload = Upload::find(uploads, id)?;
    let known = |offset: u64, record: &Record| {
        let response = with(bare(StatusCode::OK), &headers::UPLOAD_OFFSET, offset);
        let response = match record.length {
            Some(length) => with(response, &headers::UPLOAD_LENGTH, length),
            None => with(response, &headers::UPLOAD_DEFER_LENGTH, 1),
        };
        // "If an upload contains additional metadata, responses to HEAD requests MUST include the
        // Upload-Metadata header".
        match HeaderValue::from_bytes(&record.metadata) {
            Ok(metadata) if !metadata.is_empty() => {
                with(response, &headers::UPLOAD_METADATA, metadata)
            }
            _ => response,
        }
    };
    let mut locked = match upload.lock()? {
        State::Finished { length, record } => {
            upload.sync_name()?;
            return Ok(known(length, &record));
        }
        state => state.receiving()?,
    };
    // A request that broke off left bytes that were not synced.
    locked.settle(0)?;
    let offset = locked.offset();
    let response = known(offset, &locked.record);
    if locked.record.length != Some(offset) {
        return Ok(locked.tell_expiry(response));
    }
    // A client takes this for success, so it must be one: the server that had the last byte may
    // have been killed before it named the file.
    locked.publish()?;
    Ok(response)
}

/// DELETE: "the Server SHOULD free the used resources".
pub(super) fn terminate(uploads: &Uploads, id: &Id) -> Result<Response> {
    let upload = Upload::find(uploads, id)?;
    match upload.lock()? {
        State::Receiving(locked) => locked.remove()?,
        State::Finished { .. } => {
            let reason = "the upload is finished, and its file is not removed";
            return Err(Refusal::because(StatusCode::FORBIDDEN, reason));
        }
        State::Gone => return Err(missing()),
    }
    Ok(bare(StatusCode::NO_CONTENT))
}

fn missing() -> Refusal {
    StatusCode::NOT_FOUND.into()
}
