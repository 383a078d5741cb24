//! POST: an upload begins.
//!
//! To the address of a directory, with `filename` in the metadata; or to the address that the file
//! is to have. With `Content-Type: application/offset+octet-stream` the body is its first bytes.
//!
//! The record is written before the file that takes the bytes is made, so that a server that is
//! killed in between leaves nothing that the sweep does not find.

use std::fs::File;
use std::net::IpAddr;
use std::sync::LazyLock;

use flatpath::address_limit::{self, subscriber};
use flatpath::episode::Episode;
use flatpath_http::{Peer, Request};
use http::StatusCode;
use http::header;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::deferred_close::TempFile;
use crate::headers::Headers;
use crate::keyed::KeyedLock;
use crate::limits::{NAME_BYTES_MAX, UPLOADS_REMOVED_TRIES};
use crate::publish::{refuse_part, sync_directory};
use crate::responses::{Refusal, Result};
use crate::root::Kind;
use crate::target::{PathForm, is_forbidden, joined};
use crate::writing::{
    MODE_NEW, allow, conditions_of, directory_for, existing_at, raw_target, split_name,
    writable_path,
};

use super::headers::{self, number_of};
use super::ledger::{Uploads, of_one_max};
use super::metadata;
use super::patch::{self, Begun, Patch};
use super::record::Record;
use super::store::{Id, Store};
use super::upload::{State, Upload, refuse_bytes};

/// Keeps two requests of this process from taking the last free place together.
static COUNTING: LazyLock<KeyedLock<(u64, u64)>> = LazyLock::new(KeyedLock::new);

pub(super) fn create(uploads: &Uploads, request: &Request) -> Result<Begun> {
    let all = request.headers();
    if all.holds(&header::CONTENT_RANGE) {
        return Err(refuse_part());
    }
    let brings_bytes = patch::is_offset_stream(request);
    if all.holds(&header::CONTENT_TYPE) && !brings_bytes && has_body(request) {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE.into());
    }
    let metadata = match all.single(&headers::UPLOAD_METADATA) {
        None if all.holds(&headers::UPLOAD_METADATA) => return Err(malformed_metadata()),
        metadata => metadata.unwrap_or_default(),
    };
    // Whether there may be such a file comes before how long it may be, as for PUT.
    let (path, directory, name) = target_of(uploads, request, metadata)?;
    let length = length_of(request)?;
    if length.is_some_and(|length| length > uploads.options.bytes_max) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
    }
    let checksum = patch::checksum_of(request)?;
    let conditions = conditions_of(all);
    allow(&existing_at(&directory, &name)?, &conditions, uploads.tags)?;
    let id = Id::fresh()?;
    let record = Record {
        length,
        directory: path,
        name,
        metadata: metadata.to_vec(),
        from: Peer::of(request).map(subscriber),
        conditions,
        epoch: 0,
        verified: None,
        is_publishing: false,
    };
    let upload = make(uploads, id, directory, &record)?;
    let mut begun = Patch::created(request, upload, &record, checksum);
    if brings_bytes {
        begun.expect(request)?;
        return Ok(Begun::Body(Box::new(begun)));
    }
    if has_body(request) {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE.into());
    }
    Ok(Begun::Answered(begun.conclude()))
}

/// Writes the record, and makes the file that takes the bytes.
fn make(uploads: &Uploads, id: Id, directory: File, record: &Record) -> Result<Upload> {
    let durability = uploads.options.durability;
    let store = Store::create(&uploads.root, durability)?;
    let stat = rustix::fs::fstat(uploads.root.directory())?;
    let counting = COUNTING.lock(&(stat.st_dev, stat.st_ino));
    uploads.ledger.read(&uploads.root, &store);
    make_room(uploads, &store, record.from)?;
    expect_bytes(uploads, record)?;
    store.write(&id, record, durability)?;
    uploads.ledger.enter(&id, 0);
    uploads.ledger.is_from(&id, record.from);
    drop(counting);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(MODE_NEW);
    let name = id.data_name();
    let data = rustix::fs::openat(&directory, &name[..], flags | OFlags::CLOEXEC, mode)
        .map_err(Refusal::from)
        .and_then(|data| sync_directory(&directory, durability).map(|()| data));
    match data {
        Ok(data) => Ok(Upload {
            id,
            store,
            directory: Some(directory),
            data: Some(TempFile::unnamed(data.into())),
            uploads: uploads.clone(),
        }),
        Err(refusal) => {
            // It may have been made, and its name not synced.
            let _ = rustix::fs::unlinkat(&directory, &name[..], AtFlags::empty());
            store.remove(id.digits().as_bytes())?;
            uploads.ledger.leave(&id);
            Err(refusal)
        }
    }
}

/// Refuses an upload for which there is no room now or ever, before its client sends it.
fn expect_bytes(uploads: &Uploads, record: &Record) -> Result<()> {
    let (length, bytes_max) = (record.length.unwrap_or_default(), uploads.bytes_max());
    if length > of_one_max(bytes_max) {
        let reason = "the upload is longer than all unfinished ones of an address may be";
        return Err(Refusal::because(StatusCode::PAYLOAD_TOO_LARGE, reason));
    }
    let room = uploads.ledger.room(record.from, length, bytes_max);
    refuse_bytes(room, bytes_max)
}

/// Refuses one upload too many of all, or of its address, which has its share of them. Those that
/// are finished make room first, then the one left alone longest of an address with more than its
/// share.
fn make_room(uploads: &Uploads, store: &Store, from: Option<IpAddr>) -> Result<()> {
    let uploads_max = uploads.options.unfinished_max;
    let (own, others) = from.map_or((0, 0), |from| uploads.ledger.count(from));
    let is_over = own + 1 > address_limit::share(uploads_max, others);
    if is_over && others > 0 {
        let reason = "too many uploads of this address are unfinished";
        let refusal = Refusal::because(StatusCode::TOO_MANY_REQUESTS, reason);
        return Err(refusal.with(header::RETRY_AFTER, 60));
    }
    let listed = store.list()?.uploads;
    if listed.len() < uploads_max {
        return Ok(());
    }
    let mut unfinished = 0;
    for id in &listed {
        // Only a file that has been published lacks its hidden name. The others are left unlocked.
        let is_finished = Upload::find(uploads, id).is_ok_and(|upload| {
            upload.data.is_none() && matches!(upload.lock(), Ok(State::Finished { .. }))
        });
        match is_finished {
            true => store.remove(id.digits().as_bytes())?,
            false => unfinished += 1,
        }
    }
    if unfinished < uploads_max || from.is_some() && !is_over && end_longest(uploads) {
        return Ok(());
    }
    report_full(unfinished);
    let reason = "too many uploads are unfinished";
    Err(Refusal::because(StatusCode::SERVICE_UNAVAILABLE, reason).with(header::RETRY_AFTER, 60))
}

/// Removes the upload that has been left alone longest, of those whose address has more than its
/// share: one without a byte, if there is any. False: there is none, or each is written to.
fn end_longest(uploads: &Uploads) -> bool {
    let of_excess = uploads.ledger.of_excess(uploads.options.unfinished_max);
    let mut by_age: Vec<_> = of_excess
        .into_iter()
        .filter_map(|(id, has_bytes)| {
            let upload = Upload::find(uploads, &id).ok()?;
            Some((has_bytes, upload.written(), id))
        })
        .collect();
    by_age.sort_by_key(|(has_bytes, written, _)| (*has_bytes, *written));
    let removed = by_age.iter().take(UPLOADS_REMOVED_TRIES).any(|(_, _, id)| {
        let Ok(upload) = Upload::find(uploads, id) else {
            return false;
        };
        match upload.lock() {
            Ok(State::Receiving(locked)) => locked.remove().is_ok(),
            _ => false,
        }
    });
    if removed {
        log::info!("an unfinished upload of an address with more than its share was removed");
    }
    removed
}

/// Logs it once, and again after every thousand refusals.
fn report_full(unfinished: usize) {
    static REFUSED: Episode = Episode::new();
    if let Some(refused) = REFUSED.tells() {
        log::warn!(
            "{unfinished} uploads are unfinished, no more are begun (--uploads-max); \
             {refused} were refused since the last such line"
        );
    }
}

/// "The request MUST include one of the following headers: a) Upload-Length [...], b)
/// Upload-Defer-Length: 1".
fn length_of(request: &Request) -> Result<Option<u64>> {
    let length = number_of(request, &headers::UPLOAD_LENGTH)?;
    let deferred = request.headers().single(&headers::UPLOAD_DEFER_LENGTH);
    match (length, deferred) {
        (Some(length), None) => Ok(Some(length)),
        (None, Some(b"1")) => Ok(None),
        _ => Err(Refusal::because(
            StatusCode::BAD_REQUEST,
            "either Upload-Length or Upload-Defer-Length: 1 is needed",
        )),
    }
}

fn has_body(request: &Request) -> bool {
    let all = request.headers();
    let length = all.single(&header::CONTENT_LENGTH);
    all.holds(&header::TRANSFER_ENCODING) || length.is_some_and(|length| length != b"0")
}

/// The directory of the target, open, and the name in it.
fn target_of(
    uploads: &Uploads,
    request: &Request,
    metadata: &[u8],
) -> Result<(Vec<u8>, File, Vec<u8>)> {
    let (path, form) = writable_path(raw_target(request), uploads.hidden)?;
    let is_directory = match form {
        PathForm::Directory => true,
        PathForm::Plain => match uploads.finder().find(&path) {
            Ok(found) => found.kind == Kind::Directory,
            Err(error) if error.is_of_owner() => return Err(error.into()),
            Err(_) => false,
        },
    };
    // Malformed metadata is refused also where it need not name the file.
    let named = metadata::file_name(metadata).map_err(|_| malformed_metadata())?;
    let (parent, name) = match is_directory {
        false => {
            let (parent, name) = split_name(&path);
            (parent.to_vec(), name.to_vec())
        }
        true => {
            let name = named.ok_or_else(|| {
                let reason = "Upload-Metadata must have the file's name as filename, \
                              or the POST must go to the file's own address";
                Refusal::because(StatusCode::BAD_REQUEST, reason)
            })?;
            (path, name)
        }
    };
    let is_no_name = matches!(&name[..], b"" | b"." | b"..")
        || name.iter().any(|byte| matches!(byte, b'/' | 0))
        || name.len() > NAME_BYTES_MAX;
    if is_no_name {
        return Err(Refusal::because(
            StatusCode::BAD_REQUEST,
            "no file can have this name",
        ));
    }
    if is_forbidden(&name, uploads.hidden) {
        return Err(StatusCode::FORBIDDEN.into());
    }
    uploads.allow_path(&joined(&parent, &name))?;
    let directory = directory_for(uploads.finder(), &parent, &name)?;
    Ok((parent, directory, name))
}

fn malformed_metadata() -> Refusal {
    Refusal::because(StatusCode::BAD_REQUEST, "Upload-Metadata is malformed")
}
