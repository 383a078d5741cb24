//! PATCH: bytes arrive for an upload, from where it stands.
//!
//! | answered      | when                                                              |
//! |---------------|-------------------------------------------------------------------|
//! | 204           | taken; 201 for the first bytes that came with POST                |
//! | 400           | no offset, an unknown checksum, another length than before        |
//! | 404, 410      | no such upload; expired                                           |
//! | 409           | another offset (`Upload-Offset` has the right one), or another    |
//! |               | PATCH began meanwhile and continues                               |
//! | 412           | another version; or the target's conditions say no                |
//! | 413, 415, 507 | more bytes than announced; another type; no space is left, or all |
//! |               | unfinished uploads together have as many bytes as they may        |
//! | 423           | another process of this server is writing                         |
//! | 460           | the checksum does not match: none of the body counts              |

use std::io::{Seek as _, SeekFrom};

use flatpath::WorkerScope;
use flatpath::memory::Payload;
use flatpath_http::{Request, Response, Sink};
use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::headers::{Headers, number};
use crate::responses::bare;
use crate::writing::{
    Answer, Durability, WriteOptions, errno_of, failed_write, refused, refused_because,
};

use super::checksum::Checksum;
use super::headers::{self, marked, number_of};
use super::ledger::Uploads;
use super::record::Record;
use super::store::Id;
use super::upload::{Held, Upload};

/// "460 Checksum Mismatch".
const MISMATCH: u16 = 460;

/// How a PATCH began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Continued,
    Created,
}

/// What becomes of a request: its body is taken, or it is answered.
pub(super) enum Outcome {
    Body(Box<Patch>),
    Answer(Response),
}

/// A request whose bytes are arriving.
pub(super) struct Patch {
    upload: Upload,
    start: Start,
    body: Body,
    options: WriteOptions,
}

/// The body of such a request, as far as it has arrived.
struct Body {
    /// The epoch that it began with its first byte (T3); until then others may come first.
    epoch: Option<u64>,
    /// Where it began.
    first: u64,
    /// Where its next byte goes.
    offset: u64,
    /// The length of the whole upload that its request told, if it did.
    length: Option<u64>,
    checksum: Option<Checksum>,
}

/// "All PATCH requests MUST use Content-Type: application/offset+octet-stream".
pub(super) fn is_offset_stream(request: &Request) -> bool {
    let kind = request.headers().single(&header::CONTENT_TYPE);
    kind.is_some_and(|kind| {
        let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
        essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"application/offset+octet-stream")
    })
}

/// "400 Bad Request if the checksum algorithm is not supported by the server".
pub(super) fn checksum_of(request: &Request) -> Answer<Option<Checksum>> {
    let all = request.headers();
    if !all.holds(&headers::UPLOAD_CHECKSUM) {
        return Ok(None);
    }
    let value = all.single(&headers::UPLOAD_CHECKSUM);
    match value.and_then(Checksum::parse) {
        Some(checksum) => Ok(Some(checksum)),
        None => Err(refused_because(
            StatusCode::BAD_REQUEST,
            "Upload-Checksum must be sha1, sha256 or sha512 and a digest in base64",
        )),
    }
}

pub(super) fn begin(uploads: Uploads<'_>, id: &Id, request: &Request) -> Answer<Box<Patch>> {
    if !is_offset_stream(request) || request.headers().holds(&header::CONTENT_ENCODING) {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let Some(offset) = number_of(request, &headers::UPLOAD_OFFSET)? else {
        let reason = "Upload-Offset is missing";
        return Err(refused_because(StatusCode::BAD_REQUEST, reason));
    };
    let length = number_of(request, &headers::UPLOAD_LENGTH)?;
    let checksum = checksum_of(request)?;
    let upload = Upload::find(uploads, id)?;
    let mut held = match upload.hold()? {
        Ok(held) => held,
        Err(finished) => return Err(elsewhere(finished.length)),
    };
    if held.offset() != offset {
        return Err(elsewhere(held.offset()));
    }
    take_length(&mut held, length, uploads.options.bytes_max)?;
    let end = held.record.length.unwrap_or(uploads.options.bytes_max);
    expect_at_most(request, end - offset)?;
    drop(held);
    Ok(Box::new(Patch {
        upload,
        start: Start::Continued,
        body: Body::new(offset, length, checksum),
        options: uploads.options,
    }))
}

/// "Once it is known the Client MUST set the Upload-Length header in the next PATCH request. Once
/// set the length MUST NOT be changed."
fn take_length(held: &mut Held<'_>, length: Option<u64>, bytes_max: u64) -> Answer<()> {
    let Some(length) = length else { return Ok(()) };
    let is_other = held.record.length.is_some_and(|known| known != length);
    if is_other || length < held.offset() {
        let reason = "Upload-Length does not fit";
        return Err(refused_because(StatusCode::BAD_REQUEST, reason));
    }
    if length > bytes_max {
        return Err(refused(StatusCode::PAYLOAD_TOO_LARGE));
    }
    held.record.length = Some(length);
    Ok(())
}

fn expect_at_most(request: &Request, bytes_max: u64) -> Answer<()> {
    let announced = request.headers().single(&header::CONTENT_LENGTH);
    match announced.and_then(number) {
        Some(announced) if announced > bytes_max => Err(refused(StatusCode::PAYLOAD_TOO_LARGE)),
        _ => Ok(()),
    }
}

/// "409 Conflict [...] without modifying the upload resource".
fn elsewhere(offset: u64) -> Box<Response> {
    let reason = "the upload stands at another offset";
    let mut response = refused_because(StatusCode::CONFLICT, reason);
    let all = response.headers_mut();
    all.insert(&headers::UPLOAD_OFFSET, offset.into());
    response
}

impl Patch {
    /// The first bytes of a new upload, if it brings any.
    pub(super) fn created(
        upload: Upload,
        record: &Record,
        checksum: Option<Checksum>,
        options: WriteOptions,
    ) -> Self {
        Self {
            upload,
            start: Start::Created,
            body: Body::new(0, record.length, checksum),
            options,
        }
    }

    /// Refuses a body that is announced as too long.
    pub(super) fn expect(&mut self, request: &Request) -> Answer<()> {
        let end = self.body.length.unwrap_or(self.options.bytes_max);
        expect_at_most(request, end).map_err(|refusal| self.located(refusal))
    }

    /// Takes more of the body.
    pub(super) fn append(&mut self, piece: &mut Payload) -> Answer<()> {
        let bytes = piece.len() as u64;
        let held = match self.upload.hold()? {
            Ok(held) => self.body.own(held)?,
            Err(finished) => return Err(elsewhere(finished.length)),
        };
        let end = held.record.length.unwrap_or(self.options.bytes_max);
        if bytes > end.saturating_sub(self.body.offset) {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE));
        }
        if let Some(checksum) = &mut self.body.checksum {
            checksum.update(piece);
        }
        held.reserve(bytes)?;
        let mut data = held.data;
        data.seek(SeekFrom::Start(self.body.offset))
            .and_then(|_| piece.write_to(&mut data))
            .map_err(|error| {
                held.recount();
                failed_write(errno_of(&error))
            })?;
        self.body.offset += bytes;
        Ok(())
    }

    /// The body is complete.
    pub(super) fn conclude(mut self) -> Response {
        let response = match self.end_of_body() {
            Ok(response) => response,
            Err(refusal) => *self.located(refusal),
        };
        marked(response)
    }

    fn end_of_body(&mut self) -> Answer<Response> {
        let held = match self.upload.hold()? {
            Ok(held) => self.body.own(held)?,
            // A HEAD found the last byte there and published the file: it is what this one sent.
            Err(finished)
                if (Some(finished.epoch), finished.length)
                    == (self.body.epoch, self.body.offset) =>
            {
                return Ok(self.answer(bare(StatusCode::NO_CONTENT)));
            }
            Err(finished) => return Err(elsewhere(finished.length)),
        };
        let response = self.body.complete(held, self.options)?;
        Ok(self.answer(response))
    }

    /// The status and the headers that every success has.
    fn answer(&self, mut response: Response) -> Response {
        *response.status_mut() = match self.start {
            Start::Continued => StatusCode::NO_CONTENT,
            Start::Created => StatusCode::CREATED,
        };
        let all = response.headers_mut();
        all.insert(&headers::UPLOAD_OFFSET, self.body.offset.into());
        self.locate(&mut response);
        response
    }

    /// The answer to the first bytes, a refusal as well, says where the upload is, so that its
    /// client resumes.
    fn locate(&self, response: &mut Response) {
        if self.start == Start::Created
            && let Ok(address) = HeaderValue::from_str(&self.upload.id.address())
        {
            response.headers_mut().insert(header::LOCATION, address);
        }
    }

    fn located(&self, mut refusal: Box<Response>) -> Box<Response> {
        self.locate(&mut refusal);
        refusal
    }
}

impl Body {
    fn new(first: u64, length: Option<u64>, checksum: Option<Checksum>) -> Self {
        Self {
            epoch: None,
            first,
            offset: first,
            length,
            checksum,
        }
    }

    /// The upload, if it still is as this request found or left it: T3. Its first call begins an
    /// epoch, so a request that brings no byte takes nothing from another one.
    fn own<'a>(&mut self, mut held: Box<Held<'a>>) -> Answer<Box<Held<'a>>> {
        if let Some(epoch) = self.epoch {
            return match held.record.epoch == epoch && held.size == self.offset {
                true => Ok(held),
                false => Err(elsewhere(held.offset())),
            };
        }
        if held.offset() != self.offset {
            return Err(elsewhere(held.offset()));
        }
        take_length(&mut held, self.length, u64::MAX)?;
        if held.size > self.offset {
            // Left by a body whose checksum was never compared.
            held.cut(self.offset)?;
        }
        held.record.epoch += 1;
        held.record.verified = self.checksum.is_some().then_some(self.offset);
        held.save()?;
        self.epoch = Some(held.record.epoch);
        Ok(held)
    }

    /// Compares the checksum, and publishes the file if nothing is to come.
    fn complete(&mut self, mut held: Box<Held<'_>>, options: WriteOptions) -> Answer<Response> {
        if let Some(checksum) = self.checksum.take() {
            let matches = checksum.matches();
            if !matches {
                held.cut(self.first)?;
            }
            held.record.verified = None;
            held.save()?;
            if !matches {
                let status = StatusCode::from_u16(MISMATCH).unwrap_or(StatusCode::BAD_REQUEST);
                return Err(refused_because(status, "the checksum does not match"));
            }
        }
        if held.record.length == Some(held.offset()) {
            return held.publish();
        }
        if options.durability == Durability::Disk {
            rustix::fs::fdatasync(held.data).map_err(failed_write)?;
        }
        let mut response = bare(StatusCode::NO_CONTENT);
        held.tell_expiry(response.headers_mut());
        Ok(response)
    }
}

impl Sink for Patch {
    fn write(
        &mut self,
        piece: &mut Payload,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.append(piece)
            .map_err(|refusal| Box::new(marked(*self.located(refusal))))
    }

    /// Without a checksum, of which the end would be missing.
    fn keeps_parts(&self) -> bool {
        self.body.checksum.is_none()
    }

    fn finish(self: Box<Self>, _scope: &mut WorkerScope<'_>) -> Response {
        self.conclude()
    }
}
