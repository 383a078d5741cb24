//! A file compressed for its answer.
//!
//! | file                              | compressed       | `Content-Length` | kept in the cache |
//! |-----------------------------------|------------------|------------------|-------------------|
//! | up to `COMPRESS_WHOLE_BYTES_MAX`  | at once          | yes              | if short enough   |
//! | up to `COMPRESS_FILE_BYTES_MAX`   | while it is sent | no               | never             |
//! | longer                            | not              |                  |                   |
//!
//! Invariants
//! - Z1: only workers compress. What is answered at hand never gets here with content.
//! - Z2: the compressed form has no ranges, and its entity tag is weak and its coding's own: to
//!   compress the same file again may give other bytes.
//! - Z3: the answer to HEAD has the head of the answer to GET.
//! - Z4: an answer that is plain only because too much is being compressed is not kept.
//!
//! Memory: the file and its compressed form, within the share of `Compression::memory` and as often
//! as `Compression::streams_max` says.

use flatpath::memory::ShareHold;
use flatpath_http::header_values::ContentCoding;
use flatpath_http::{Body, FileBody, Reader, Response};
use http::header::{self, HeaderMap};
use http::{Method, StatusCode};

use super::{Answerer, Asked, Chosen, file_headers, finish, not_acceptable, precondition_failed};
use crate::cache::NewEntry;
use crate::compress::Encoding;
use crate::conditional::{Validators, Verdict};
use crate::content::{self, Stability};
use crate::error::FilesError;
use crate::kept::Parts;
use crate::limits::{CACHE_COMPRESSED_BYTES_MAX, CHANGE_TRIES_MAX, COMPRESS_WHOLE_BYTES_MAX};
use crate::range::Part;
use crate::responses::busy;
use crate::root::Opened;

/// What a file that may be compressed is sent as.
pub(super) enum Encoded {
    /// The answer; `None` if the file changed so that it must be looked at again.
    Answer(Option<Response>),
    /// As it is: it does not shrink.
    Plain(Chosen),
    /// As it is, this time: too much is being compressed.
    PlainNow(Chosen),
}

impl Answerer<'_> {
    /// The answer with a file that is compressed if that can be; `None` if the file changed so that
    /// it must be looked at again.
    pub(super) fn send_encoded(
        &self,
        asked: &Asked<'_>,
        chosen: Chosen,
        coding: ContentCoding,
        tries: usize,
    ) -> Result<Option<Response>, FilesError> {
        match self.encoded(asked, chosen, coding, tries)? {
            Encoded::Answer(answer) => Ok(answer),
            Encoded::Plain(chosen) if !chosen.takes_plain => Ok(Some(not_acceptable())),
            Encoded::PlainNow(chosen) if !chosen.takes_plain => Ok(Some(busy())),
            Encoded::Plain(chosen) => self.send(asked, chosen, tries),
            Encoded::PlainNow(chosen) => {
                let mut answer = self.send(asked, chosen, tries)?;
                if let Some(response) = &mut answer {
                    response.extensions_mut().remove::<NewEntry>();
                }
                Ok(answer)
            }
        }
    }

    fn encoded(
        &self,
        asked: &Asked<'_>,
        chosen: Chosen,
        coding: ContentCoding,
        tries: usize,
    ) -> Result<Encoded, FilesError> {
        if self.is_at_hand() {
            return Err(FilesError::NotAtHand);
        }
        let identity = chosen.opened.identity;
        let validators = Validators::of(&identity, chosen.opened.looked_at, self.tags);
        let validators = validators.of_coding(coding);
        let mut headers = encoded_headers(&chosen, coding, &validators);
        let verdict = validators.evaluate(asked.visit.request.headers());
        if verdict == Verdict::PreconditionFailed {
            return Ok(Encoded::Answer(Some(precondition_failed(&headers))));
        }
        asked.visit.change(&mut headers);
        let is_long = identity.size > COMPRESS_WHOLE_BYTES_MAX;
        let is_sent = verdict == Verdict::Proceed && *asked.visit.request.method() != Method::HEAD;
        if is_long && !is_sent {
            // A reader of nothing: its length is not known, as that of the answer to GET is not.
            let body = Body::reader(std::io::empty(), None);
            return Ok(Encoded::Answer(Some(streamed(verdict, headers, body))));
        }
        let begun = asked
            .compressor
            .and_then(|it| it.begin(coding, identity.size));
        let Some((encoding, memory)) = begun else {
            return Ok(Encoded::PlainNow(chosen));
        };
        if !is_long {
            let whole = Whole {
                coding,
                encoding,
                _memory: memory,
                validators,
                headers,
                verdict,
            };
            return self.whole(asked, chosen, whole, tries);
        }
        let Some(hold) = self.hold() else {
            return Ok(Encoded::Answer(Some(busy())));
        };
        let part = Part {
            start: 0,
            end: identity.size,
        };
        let file = chosen.opened.into_sent(self.root, &chosen.path, hold);
        let source = FileBody::from(content::part_of(&file, part));
        let source = Reader::new(Box::new(source), Some(identity.size));
        let body = Body::Reader(encoding.reader(self.within_limit(source)));
        Ok(Encoded::Answer(Some(streamed(verdict, headers, body))))
    }

    /// A file that is compressed at once, and kept where it is short then.
    fn whole(
        &self,
        asked: &Asked<'_>,
        chosen: Chosen,
        whole: Whole,
        tries: usize,
    ) -> Result<Encoded, FilesError> {
        let Opened { file, identity, .. } = &chosen.opened;
        let mut content = vec![0; usize::try_from(identity.size).unwrap_or(usize::MAX)];
        let stability = content::read_whole(file, None, identity, &mut content)?;
        let is_last = tries == CHANGE_TRIES_MAX && stability == Stability::Changing;
        if stability != Stability::Same && !is_last {
            return Ok(Encoded::Answer(None));
        }
        let Whole {
            coding,
            encoding,
            _memory,
            validators,
            mut headers,
            mut verdict,
        } = whole;
        let encoded = match encoding.whole(&content) {
            Ok(encoded) if encoded.len() < content.len() => encoded,
            Ok(_) => return Ok(Encoded::Plain(chosen)),
            Err(cause) => {
                log::warn!("a file cannot be compressed: {cause}");
                return Ok(Encoded::PlainNow(chosen));
            }
        };
        drop(content);
        if is_last {
            // It changes all the time, so the answer has no validators and is not cached.
            headers.remove(header::ETAG);
            headers.remove(header::LAST_MODIFIED);
            verdict = Verdict::Proceed;
        }
        let is_kept = !is_last && encoded.len() <= CACHE_COMPRESSED_BYTES_MAX;
        let chosen = Chosen { coding, ..chosen };
        let entry = is_kept
            .then(|| self.entry(asked, chosen, validators, &headers, &encoded))
            .flatten();
        let entry = entry.map(|mut entry| {
            entry.answer.parts = Parts::None;
            entry
        });
        let length = encoded.len() as u64;
        let mut response = finish(verdict, headers, length, Body::from(encoded));
        if let Some(entry) = entry {
            response.extensions_mut().insert(entry);
        }
        Ok(Encoded::Answer(Some(response)))
    }
}

/// What is known of the answer before the file is read.
struct Whole {
    coding: ContentCoding,
    encoding: Encoding,
    /// Of the content and what becomes of it.
    _memory: ShareHold,
    validators: Validators,
    headers: HeaderMap,
    verdict: Verdict,
}

/// The headers of a 200 with the compressed form.
fn encoded_headers(chosen: &Chosen, coding: ContentCoding, validators: &Validators) -> HeaderMap {
    let mut headers = file_headers(chosen, coding, validators);
    headers.remove(header::ACCEPT_RANGES);
    headers
}

/// The answer with a body whose length is not known.
fn streamed(verdict: Verdict, headers: HeaderMap, body: Body) -> Response {
    let mut response = finish(verdict, headers, 0, body);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    debug_assert_ne!(
        response.status(),
        StatusCode::PARTIAL_CONTENT,
        "it has no parts"
    );
    response
}
