//! Resumable uploads: tus 1.0.0 (tus.io/protocols/resumable-upload), for clients whose connections
//! break.
//!
//! An upload has an address of its own with a random number in it, so two uploads never mix, also
//! of the same file. Its bytes gather in a hidden file in the directory of its target, and take the
//! target's name as a whole when the last one is there (`publish`).
//!
//! | step | module |
//! |------|--------|
//! | which request is one of ours, and what it asks for | this one |
//! | POST: an upload begins | `create` |
//! | HEAD, DELETE; what is there, and where | `upload` |
//! | PATCH: bytes arrive | `patch` |
//! | `Upload-Checksum` | `checksum` |
//! | `Upload-Metadata` | `metadata` |
//! | names of headers, numbers in them | `headers` |
//! | what is remembered of an upload, on the disk | `record` |
//! | where the records are; how many; which expired | `store`, `sweep` |
//! | how many bytes all of them have | `ledger` |
//!
//! Invariants
//! - T1: nothing about an upload is in memory only; `ledger` counts what is on the disk.
//!   A server that is killed forgets nothing, and two servers of one directory agree.
//! - T2: each request that changes an upload holds its lock, on a worker, for one write at most. No
//!   lock lasts from one piece of a body to the next, so a connection that died holds nothing.
//! - T3: the first byte of a PATCH gives the upload a new epoch, and a PATCH writes only while the
//!   upload has its epoch. So of two at once one continues and the other gets 409.
//! - T4: the offset is the length of the file, less what waits for its checksum.
//! - T5: with [`Durability::Disk`](crate::Durability) no answer counts bytes, or a name, that are
//!   not on the disk; without it, none that the file system reports lost when it is asked. That
//!   may be the kernel's only report, so the bytes since the last time it was asked are cut off,
//!   and the client sends them again.
//!
//! Extensions: creation, creation-with-upload, creation-defer-length, checksum, expiration,
//! termination. Absent: concatenation and checksum-trailer. What CORS has to allow of it, the
//! [`Vocabulary`](crate::Vocabulary) names.

mod checksum;
mod create;
mod headers;
pub(crate) mod ledger;
mod metadata;
mod patch;
mod record;
mod store;
pub(crate) mod sweep;
mod upload;
#[cfg(test)]
mod model;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;

use flatpath_http::{Request, Response, UploadDecision};
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};

use crate::headers::Headers;
use crate::responses::{Refusal, Result, bare};
use crate::target::{Hidden, Target};
use crate::writing::raw_target;

pub(crate) use headers::{of_requests as request_fields, of_responses as response_fields};

use headers::{VERSION, marked};
use ledger::Uploads;
use patch::Begun;
use store::Id;

const EXTENSIONS: HeaderValue = HeaderValue::from_static(
    "creation,creation-with-upload,creation-defer-length,checksum,expiration,termination",
);

/// Whether a request is for this module; anything else is for files.
pub(crate) fn concerns(request: &Request) -> bool {
    match *request.method() {
        Method::POST | Method::OPTIONS => true,
        Method::HEAD | Method::PATCH | Method::DELETE => names_upload(request).is_some(),
        _ => false,
    }
}

/// Begins a request, whose body may be empty.
pub(crate) fn begin(uploads: &Uploads, request: &Request) -> UploadDecision {
    match serve(uploads, request) {
        Ok(Begun::Body(patch)) => UploadDecision::Sink(patch),
        Ok(Begun::Answered(response)) => UploadDecision::Response(marked(response)),
        Err(refusal) => UploadDecision::Response(marked(*refusal.0)),
    }
}

fn serve(uploads: &Uploads, request: &Request) -> Result<Begun> {
    match (method_of(request)?, names_upload(request)) {
        (Method::OPTIONS, _) => Ok(Begun::Answered(describe(uploads))),
        (Method::HEAD | Method::PATCH | Method::DELETE, Some(_)) | (Method::POST, None)
            if !speaks_version(request) =>
        {
            Err(refuse_version())
        }
        (Method::HEAD, Some(id)) => upload::ask(uploads, &id).map(Begun::Answered),
        (Method::PATCH, Some(id)) => patch::begin(uploads, &id, request).map(Begun::Body),
        (Method::DELETE, Some(id)) => upload::terminate(uploads, &id).map(Begun::Answered),
        (Method::POST, None) => create::create(uploads, request),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED.into()),
    }
}

/// "X-HTTP-Method-Override [...] MUST be interpreted as the request's method by the Server, if the
/// header is presented." Taken with POST alone, which is what clients that cannot PATCH send.
fn method_of(request: &Request) -> Result<Method> {
    match request.headers().single(&headers::METHOD_OVERRIDE) {
        Some(method) if *request.method() == Method::POST => {
            Method::from_bytes(method).map_err(|_| StatusCode::BAD_REQUEST.into())
        }
        _ => Ok(request.method().clone()),
    }
}

/// The upload whose address this is.
fn names_upload(request: &Request) -> Option<Id> {
    let target = Target::parse(raw_target(request).as_bytes(), Hidden::Served).ok()?;
    let name = target.path().strip_prefix(store::DIRECTORY)?;
    Id::parse(name.strip_prefix(b"/")?)
}

/// Whether a request names a version of the protocol, ours or another.
pub(crate) fn speaks_tus(request: &Request) -> bool {
    request.headers().holds(&headers::TUS_RESUMABLE)
}

fn speaks_version(request: &Request) -> bool {
    let version = request.headers().single(&headers::TUS_RESUMABLE);
    version == Some(VERSION.as_bytes())
}

/// "[...] the Server MUST respond with the 412 Precondition Failed status and MUST include the
/// Tus-Version header into the response."
fn refuse_version() -> Refusal {
    let reason = "POST begins an upload by tus: Tus-Resumable must be 1.0.0";
    Refusal::because(StatusCode::PRECONDITION_FAILED, reason)
        .with(&headers::TUS_VERSION, HeaderValue::from_static(VERSION))
}

fn describe(uploads: &Uploads) -> Response {
    let mut response = bare(StatusCode::NO_CONTENT);
    let all = response.headers_mut();
    all.insert(header::ALLOW, crate::answer::ALLOWED_WRITABLE);
    all.insert(&headers::TUS_VERSION, HeaderValue::from_static(VERSION));
    all.insert(&headers::TUS_EXTENSION, EXTENSIONS);
    all.insert(&headers::TUS_MAX_SIZE, uploads.options.bytes_max.into());
    all.insert(&headers::TUS_CHECKSUM_ALGORITHM, checksum::ALGORITHMS);
    response
}
