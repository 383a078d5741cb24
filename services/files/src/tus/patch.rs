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

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};

use flatpath::WorkerScope;
use flatpath::memory::{Payload, Piped};
use flatpath_http::{Request, Response, Sink};
use http::StatusCode;
use http::header;

use crate::headers::{Headers, number};
use crate::responses::{Refusal, Result, bare, visible, with};
use crate::writing::public_address;

use super::checksum::Checksum;
use super::headers::{self, marked, number_of};
use super::ledger::Uploads;
use super::record::Record;
use super::store::Id;
use super::upload::{Locked, State, Upload, elsewhere};

const MISMATCH: u16 = 460;

/// A request that began: its body is taken, or it is answered.
pub(super) enum Begun {
    Body(Box<Patch>),
    Answered(Response),
}

/// A request whose bytes are arriving.
pub(super) struct Patch {
    upload: Upload,
    /// Where clients reach the upload: to tell, as this began with the POST that made it.
    address: Option<String>,
    body: Body,
}

/// The body of such a request, as far as it has arrived.
struct Body {
    /// The epoch that it began with its first byte (T3); until then others may come first.
    epoch: Option<u64>,
    first: u64,
    /// Where its next byte goes.
    offset: u64,
    /// The length of the whole upload that its request gave, if it did.
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
pub(super) fn checksum_of(request: &Request) -> Result<Option<Checksum>> {
    let all = request.headers();
    if !all.holds(&headers::UPLOAD_CHECKSUM) {
        return Ok(None);
    }
    let value = all.single(&headers::UPLOAD_CHECKSUM);
    match value.and_then(Checksum::parse) {
        Some(checksum) => Ok(Some(checksum)),
        None => Err(Refusal::because(
            StatusCode::BAD_REQUEST,
            "Upload-Checksum must be sha1 and a digest in base64",
        )),
    }
}

pub(super) fn begin(uploads: &Uploads, id: &Id, request: &Request) -> Result<Box<Patch>> {
    if !is_offset_stream(request) || request.headers().holds(&header::CONTENT_ENCODING) {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE.into());
    }
    let Some(offset) = number_of(request, &headers::UPLOAD_OFFSET)? else {
        let reason = "Upload-Offset is missing";
        return Err(Refusal::because(StatusCode::BAD_REQUEST, reason));
    };
    let length = number_of(request, &headers::UPLOAD_LENGTH)?;
    let checksum = checksum_of(request)?;
    let upload = Upload::find(uploads, id)?;
    let mut locked = upload.lock()?.receiving()?;
    if locked.offset() != offset {
        return Err(elsewhere(locked.offset()));
    }
    take_length(&mut locked, length, uploads.options.bytes_max)?;
    let end = locked.record.length.unwrap_or(uploads.options.bytes_max);
    expect_at_most(request, end - offset)?;
    drop(locked);
    Ok(Box::new(Patch {
        upload,
        address: None,
        body: Body::new(offset, length, checksum),
    }))
}

/// "Once it is known the Client MUST set the Upload-Length header in the next PATCH request. Once
/// set the length MUST NOT be changed."
fn take_length(locked: &mut Locked<'_>, length: Option<u64>, bytes_max: u64) -> Result<()> {
    let Some(length) = length else { return Ok(()) };
    let is_other = locked.record.length.is_some_and(|known| known != length);
    if is_other || length < locked.offset() {
        let reason = "Upload-Length does not fit";
        return Err(Refusal::because(StatusCode::BAD_REQUEST, reason));
    }
    if length > bytes_max {
        return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
    }
    locked.record.length = Some(length);
    Ok(())
}

fn expect_at_most(request: &Request, bytes_max: u64) -> Result<()> {
    let announced = request.headers().single(&header::CONTENT_LENGTH);
    match announced.and_then(number) {
        Some(announced) if announced > bytes_max => Err(StatusCode::PAYLOAD_TOO_LARGE.into()),
        _ => Ok(()),
    }
}

impl Patch {
    /// The first bytes of a new upload, if it brings any.
    pub(super) fn created(
        request: &Request,
        upload: Upload,
        record: &Record,
        checksum: Option<Checksum>,
    ) -> Self {
        let address = public_address(request, &upload.id.address());
        Self {
            upload,
            address: Some(address),
            body: Body::new(0, record.length, checksum),
        }
    }

    /// Refuses a body that is announced as too long.
    pub(super) fn expect(&mut self, request: &Request) -> Result<()> {
        let end = self
            .body
            .length
            .unwrap_or(self.upload.uploads.options.bytes_max);
        expect_at_most(request, end).map_err(|refusal| self.located(refusal))
    }

    pub(super) fn append(&mut self, piece: &mut Payload) -> Result<()> {
        let bytes = piece.len() as u64;
        let digested = |checksum: &mut Checksum| checksum.update(piece);
        self.body.checksum.as_mut().map(digested);
        self.write(bytes, |data| piece.write_to(data).map(|_| ()))
    }

    /// The same for bytes in a pipe, of which there is no checksum.
    fn append_piped(&mut self, piped: &mut Piped) -> Result<()> {
        self.write(piped.len() as u64, |data| piped.write_to(*data))
    }

    /// Has so many bytes written where the next one goes, if it may have as many.
    fn write(
        &mut self,
        bytes: u64,
        write: impl FnOnce(&mut &File) -> io::Result<()>,
    ) -> Result<()> {
        let locked = self.body.own(self.upload.lock()?.receiving()?)?;
        let end = locked
            .record
            .length
            .unwrap_or(self.upload.uploads.options.bytes_max);
        if bytes > end.saturating_sub(self.body.offset) {
            return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
        }
        locked.reserve(bytes)?;
        let mut data = locked.data;
        data.seek(SeekFrom::Start(self.body.offset))
            .and_then(|_| write(&mut data))
            .inspect_err(|_| locked.recount())?;
        self.body.offset += bytes;
        Ok(())
    }

    pub(super) fn conclude(mut self) -> Response {
        let response = self.end_of_body().unwrap_or_else(|refusal| *refusal.0);
        marked(self.locate(response))
    }

    fn end_of_body(&mut self) -> Result<Response> {
        let response = match self.upload.lock()? {
            // A HEAD found the last byte there and published the file: it is what this one sent.
            State::Finished { length, record }
                if (Some(record.epoch), length) == (self.body.epoch, self.body.offset) =>
            {
                self.upload.sync_name()?;
                bare(StatusCode::NO_CONTENT)
            }
            state => {
                let locked = self.body.own(state.receiving()?)?;
                self.body.complete(locked)?
            }
        };
        let mut response = with(response, &headers::UPLOAD_OFFSET, self.body.offset);
        *response.status_mut() = match self.address {
            Some(_) => StatusCode::CREATED,
            None => StatusCode::NO_CONTENT,
        };
        Ok(response)
    }

    /// The answer to the first bytes, a refusal as well, says where the upload is, so that its
    /// client resumes.
    fn locate(&self, response: Response) -> Response {
        match &self.address {
            Some(address) => with(response, header::LOCATION, visible(address.clone())),
            None => response,
        }
    }

    fn located(&self, refusal: Refusal) -> Refusal {
        Refusal(Box::new(self.locate(*refusal.0)))
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
    fn own<'a>(&mut self, mut locked: Box<Locked<'a>>) -> Result<Box<Locked<'a>>> {
        if let Some(epoch) = self.epoch {
            return match locked.record.epoch == epoch && locked.size == self.offset {
                true => Ok(locked),
                false => Err(elsewhere(locked.offset())),
            };
        }
        if locked.offset() != self.offset {
            return Err(elsewhere(locked.offset()));
        }
        take_length(&mut locked, self.length, u64::MAX)?;
        if locked.size > self.offset {
            // Left by a body whose checksum was never compared.
            locked.cut(self.offset)?;
        }
        if self.offset > 0 {
            // The bytes of an earlier request count only if it is settled.
            locked.settle(0)?;
        }
        locked.record.epoch += 1;
        locked.record.verified = self.checksum.is_some().then_some(self.offset);
        locked.save()?;
        self.epoch = Some(locked.record.epoch);
        Ok(locked)
    }

    /// Compares the checksum, and publishes the file if nothing is to come.
    fn complete(&mut self, mut locked: Box<Locked<'_>>) -> Result<Response> {
        let matches = self.checksum.take().map(Checksum::matches);
        if matches == Some(false) {
            locked.cut(self.first)?;
        }
        locked.settle(self.first)?;
        if let Some(matches) = matches {
            locked.record.verified = None;
            locked.save()?;
            if !matches {
                let status = StatusCode::from_u16(MISMATCH).unwrap_or(StatusCode::BAD_REQUEST);
                return Err(Refusal::because(status, "the checksum does not match"));
            }
        }
        if locked.record.length == Some(locked.offset()) {
            return locked.publish();
        }
        Ok(locked.tell_expiry(bare(StatusCode::NO_CONTENT)))
    }
}

impl Sink for Patch {
    fn write(
        &mut self,
        piece: &mut Payload,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.append(piece)
            .map_err(|refusal| Box::new(marked(*self.located(refusal).0)))
    }

    /// Without a checksum, which has to see each byte.
    fn takes_pipes(&self) -> bool {
        self.body.checksum.is_none()
    }

    fn write_piped(
        &mut self,
        piped: &mut Piped,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.append_piped(piped)
            .map_err(|refusal| Box::new(marked(*self.located(refusal).0)))
    }

    /// Without a checksum, of which the end would be missing.
    fn keeps_parts(&self) -> bool {
        self.body.checksum.is_none()
    }

    fn finish(self: Box<Self>, _scope: &mut WorkerScope<'_>) -> Response {
        self.conclude()
    }

    fn refused(self: Box<Self>, response: Response) -> Response {
        marked(response)
    }
}
