//! Answers made by a worker, or by the network thread from what is cached: finds the file, decides
//! what of it to send, and how.
//!
//! The steps of a GET or HEAD: target → rules → file (directory: redirect, index or listing) →
//! sibling by `Accept-Encoding` → conditions → ranges → headers of rules → body. Small files are
//! read at once, so that the answer is one piece and the cache can keep it; what is larger is read
//! while it is sent. `encoded` does the same with what is compressed meanwhile, and `directory`
//! shows directories.

use std::sync::Arc;

use flatpath::JobConnection;
use flatpath::blocking::BlockingLimit;
use flatpath::descriptors::{ConnectionDescriptors, DescriptorHold};
use flatpath::memory::{Buffer, PoolHandle};
use flatpath_http::header_values::{AcceptEncoding, ContentCoding};
use flatpath_http::{Body, FileBody, Mount, Reader, Request, Response};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use crate::archive::Archives;
use crate::asker::{Asker, Finder};
use crate::compress::Compressor;
use crate::conditional::{EntityTags, Validators, Verdict};
use crate::content::{self, Multipart, Stability};
use crate::error::FilesError;
use crate::fallback;
use crate::freshness::{LookupStart, Observation};
use crate::headers::Headers;
use crate::kept::KeptFiles;
use crate::limits::{CACHE_FILE_BYTES_MAX, CHANGE_TRIES_MAX, DOWNLOAD_DESCRIPTORS};
use crate::listing::Listing;
use crate::media;
use crate::page::refusal;
use crate::range::{Part, Ranges};
use crate::responses::{bare, busy, status_text, stopped, unsatisfiable, visible, with};
use crate::root::{Kind, Opened, Reach, Root};
use crate::rules::{Extent, RuleFiles, Rules};
use crate::siblings::{self, Forms};
use crate::stat::Locality;
use crate::target::{Hidden, name_of};
use crate::visit::{Found, Visit, elsewhere, moved};
use crate::writing::Writing;

mod directory;
mod encoded;
mod heads;
mod keeping;

use heads::{file_headers, finish, precondition_failed};

pub(crate) const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
pub(crate) const ALLOWED_WRITABLE: HeaderValue =
    HeaderValue::from_static("GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS");

/// Everything that an answer needs.
pub(crate) struct Answerer<'a> {
    pub(crate) root: &'a Arc<Root>,
    pub(crate) hidden: Hidden,
    pub(crate) forms: &'a Forms,
    pub(crate) compressor: Option<&'a Compressor>,
    pub(crate) listing: Listing,
    pub(crate) archives: &'a Archives,
    pub(crate) writing: Writing,
    pub(crate) tags: EntityTags,
    pub(crate) rules: &'a Rules,
    pub(crate) rule_files: &'a RuleFiles,
    pub(crate) pool: PoolHandle<'a>,
    /// For bodies that are read while they are sent: none where only cached content is sent.
    pub(crate) descriptors: Option<ConnectionDescriptors<'a>>,
    /// Where files are kept open.
    pub(crate) kept: Option<&'a KeptFiles>,
    /// The client's connection, on a worker.
    pub(crate) connection: Option<JobConnection<'a>>,
    pub(crate) began: LookupStart,
    pub(crate) reach: Reach,
    /// In whose name files are looked for.
    pub(crate) asker: &'a Asker,
    /// The limit that this worker has entered, and that a worker has to enter to read on.
    pub(crate) limit: Option<BlockingLimit>,
}

/// What a request asks for, of any file.
struct Asked<'a> {
    visit: &'a Visit<'a>,
    preference: AcceptEncoding,
    /// What may compress the answer.
    compressor: Option<&'a Compressor>,
}

/// What came of a GET.
enum Made {
    /// A file, with the headers that rules change.
    File(Response),
    /// Something else, still without them.
    Other(Response),
    Error(FilesError),
}

/// A file in the form in which it is to be sent.
struct Chosen {
    /// Where the form that is sent lies beneath the root.
    path: Vec<u8>,
    coding: ContentCoding,
    /// The coding that it is compressed with for the answer, if it can be.
    encode: Option<ContentCoding>,
    /// The client takes it as it is, too.
    takes_plain: bool,
    opened: Opened,
    media: HeaderValue,
    /// What the choice depends on, in addition to the file that is sent.
    observations: Vec<Observation>,
    /// It is known that no link led to any of these.
    is_direct: bool,
    locality: Locality,
}

impl Answerer<'_> {
    /// Answers any request; `None` if a link led beyond the reach, or something is not cached.
    pub(crate) fn answer(&self, request: &Request) -> Option<Response> {
        let mut visit = self.visit(request)?;
        let mut response = self.answer_to(&mut visit)?;
        if visit.is_page_or_none {
            response.headers_mut().append(header::VARY, fallback::VARY);
        }
        Some(response)
    }

    fn answer_to(&self, visit: &mut Visit<'_>) -> Option<Response> {
        let request = visit.request;
        let made = match self.get(visit) {
            Err(error) => Made::Error(error),
            Ok(made) => made,
        };
        let made = match made {
            Made::File(response) if !is_error(response.status()) => return Some(response),
            Made::Other(mut response) if !is_error(response.status()) => {
                visit.change_own(response.headers_mut());
                return Some(response);
            }
            Made::File(response) | Made::Other(response) => response,
            Made::Error(FilesError::OtherMount | FilesError::NotAtHand) => return None,
            Made::Error(error) if error.is_of_owner() && !self.is_at_hand() => {
                return Some(stopped(error));
            }
            // A worker looks again at what has failed for another reason.
            Made::Error(error)
                if self.is_at_hand()
                    && !matches!(error, FilesError::NotFound | FilesError::TooLong) =>
            {
                return None;
            }
            Made::Error(error) => refuse(request, error),
        };
        visit.extent = Extent::NotKept;
        match self.with_page(visit, made) {
            Ok(mut response) => {
                if let Some(entry) = self.absence(visit, &response) {
                    response.extensions_mut().insert(entry);
                }
                Some(response)
            }
            Err(error) if error.is_of_owner() && !self.is_at_hand() => Some(stopped(error)),
            Err(_) => None,
        }
    }

    /// The rules for a request; `None` where the reach is too short to read them.
    pub(crate) fn visit<'r>(&'r self, request: &'r Request) -> Option<Visit<'r>> {
        let held = self.rule_files.hold(self.root, self.rules, self.reach);
        Some(Visit::of(request, held.ok()?))
    }

    fn is_at_hand(&self) -> bool {
        self.reach == Reach::AtHand
    }

    pub(crate) fn find(&self, path: &[u8]) -> Result<Opened, FilesError> {
        self.finder().find(path)
    }

    pub(crate) fn finder(&self) -> Finder<'_> {
        Finder {
            root: self.root,
            reach: self.reach,
            asker: self.asker,
        }
    }

    /// A body that the kernel sends, or that workers read within the limit of its file: the one
    /// place where that is decided.
    fn sent(&self, locality: Locality, body: FileBody) -> Body {
        match locality {
            Locality::Local => body.into(),
            Locality::Remote => {
                let length = body.length();
                Body::Reader(self.within_limit(Reader::new(Box::new(body), Some(length))))
            }
        }
    }

    fn within_limit(&self, reader: Reader) -> Reader {
        match &self.limit {
            Some(limit) => reader.within(limit.clone()),
            None => reader,
        }
    }

    /// What a request asks for. What is not kept is not compressed, either: that would be done
    /// again for each request.
    fn asked<'a>(&'a self, visit: &'a Visit<'a>) -> Asked<'a> {
        let codings = visit.request.headers().all(&header::ACCEPT_ENCODING);
        let compressor = self.compressor.filter(|_| visit.is_checkable);
        Asked {
            visit,
            preference: self.forms.accepted(codings),
            compressor: Compressor::of_request(compressor, visit.request),
        }
    }

    fn get(&self, visit: &mut Visit<'_>) -> Result<Made, FilesError> {
        let request = visit.request;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if is_read && Mount::of(request).is_some_and(Mount::is_bare) {
            return Ok(Made::Other(moved(request, "/")));
        }
        let target = match self.target_of(request) {
            Ok(target) => target,
            Err(error) => {
                self.enter_unnamed(visit)?;
                visit.is_absent = matches!(error, FilesError::NotFound);
                return match is_read {
                    true => Err(error),
                    false => Ok(Made::Other(self.other_method(request))),
                };
            }
        };
        self.enter(visit, &target)?;
        let redirects = visit.has_rules && *request.method() != Method::OPTIONS;
        if let Some(response) = redirects.then(|| visit.redirect()).flatten() {
            return Ok(Made::Other(response));
        }
        if !is_read {
            return Ok(Made::Other(self.other_method(request)));
        }
        match self.look_up(visit, &target) {
            Ok(Found::File(path, opened)) => self.file(visit, &path, opened).map(Made::File),
            Ok(Found::Directory(..)) if self.is_at_hand() => Err(FilesError::NotAtHand),
            Ok(Found::Directory(path, opened)) => self
                .directory(visit, &path, target.query(), &opened)
                .map(Made::Other),
            Ok(Found::Elsewhere(path, form)) => Ok(Made::Other(elsewhere(request, &path, form))),
            Err(FilesError::NotFound) => {
                let Some(file) = visit.fallback() else {
                    visit.is_absent = true;
                    return Err(FilesError::NotFound);
                };
                let (path, opened) = self.fallback(visit, &file)?;
                // Clients could make up names until nothing else is in the cache.
                visit.is_checkable = false;
                visit.extent = Extent::NotKept;
                self.file(visit, &path, opened).map(Made::File)
            }
            Err(error) => Err(error),
        }
    }

    fn other_method(&self, request: &Request) -> Response {
        let response = match *request.method() {
            Method::OPTIONS => bare(StatusCode::NO_CONTENT),
            _ => status_text(StatusCode::METHOD_NOT_ALLOWED),
        };
        let allowed = match self.writing {
            Writing::Refused => ALLOWED,
            Writing::Allowed(_) => ALLOWED_WRITABLE,
        };
        with(response, header::ALLOW, allowed)
    }

    /// The file at `path`, which is `opened`.
    pub(crate) fn file(
        &self,
        visit: &Visit<'_>,
        path: &[u8],
        opened: Opened,
    ) -> Result<Response, FilesError> {
        let asked = &self.asked(visit);
        let mut first = Some(opened);
        for tries in 1..=CHANGE_TRIES_MAX {
            let opened = first.take().map_or_else(|| self.find(path), Ok)?;
            if opened.kind != Kind::File {
                return Err(FilesError::NotFound);
            }
            let Some(chosen) = self.choose(path, opened, asked)? else {
                return Ok(not_acceptable());
            };
            let sent = match chosen.encode {
                Some(coding) => self.send_encoded(asked, chosen, coding, tries),
                None => self.send(asked, chosen, tries),
            };
            if let Some(response) = sent? {
                return Ok(response);
            }
        }
        Err(FilesError::Changed)
    }

    pub(crate) fn media_of(&self, path: &[u8]) -> HeaderValue {
        let of_rules = self.rules.media_of(path).cloned();
        of_rules.unwrap_or_else(|| HeaderValue::from_static(media::of_name(name_of(path))))
    }

    /// The best form of a file that the client takes; `None` if it takes none. A sibling that was
    /// compressed before is better than one that is compressed now.
    fn choose(
        &self,
        path: &[u8],
        opened: Opened,
        asked: &Asked<'_>,
    ) -> Result<Option<Chosen>, FilesError> {
        let (media, bytes) = (self.media_of(path), opened.identity.size);
        let compressor = asked.compressor;
        let compressor = compressor.filter(|it| it.is_worth(path, &media, bytes));
        let mut plain = Chosen {
            path: path.to_vec(),
            coding: ContentCoding::Identity,
            encode: None,
            takes_plain: false,
            locality: opened.locality,
            is_direct: opened.is_direct,
            opened,
            media,
            observations: Vec::new(),
        };
        for coding in asked.preference.codings() {
            let Some(suffix) = siblings::suffix(coding) else {
                plain.takes_plain = true;
                return Ok(Some(plain));
            };
            let sibling = [path, suffix].concat();
            match self.find(&sibling) {
                Ok(opened) if opened.kind == Kind::File => {
                    let beside = Observation::File(plain.path, plain.opened.identity);
                    plain.observations.push(beside);
                    return Ok(Some(Chosen {
                        path: sibling,
                        coding,
                        encode: None,
                        locality: plain.locality.beside(opened.locality),
                        is_direct: plain.is_direct && opened.is_direct,
                        opened,
                        ..plain
                    }));
                }
                Ok(_)
                | Err(FilesError::NotFound | FilesError::Forbidden | FilesError::Refused(_)) => {
                    plain.observations.push(Observation::Nothing(sibling));
                    let is_offered = compressor.is_some_and(|it| it.offers(coding));
                    plain.encode = plain.encode.or(is_offered.then_some(coding));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(plain.encode.is_some().then_some(plain))
    }

    /// The answer with the chosen file; `None` if the file changed so that it must be looked at
    /// again.
    fn send(
        &self,
        asked: &Asked<'_>,
        chosen: Chosen,
        tries: usize,
    ) -> Result<Option<Response>, FilesError> {
        let (visit, request) = (asked.visit, asked.visit.request);
        let size = chosen.opened.identity.size;
        let validators =
            Validators::of(&chosen.opened.identity, chosen.opened.looked_at, self.tags);
        let mut headers = file_headers(&chosen, chosen.coding, &validators);
        let verdict = validators.evaluate(request.headers());
        if verdict == Verdict::PreconditionFailed {
            return Ok(Some(precondition_failed(&headers)));
        }
        visit.change(&mut headers);
        let is_sent = verdict == Verdict::Proceed && *request.method() != Method::HEAD;
        let ranges = match is_sent {
            true => ranges_of(request, &validators, size),
            false => Ranges::Whole,
        };
        let is_small = size <= CACHE_FILE_BYTES_MAX as u64;
        if self.is_at_hand() && is_sent && (ranges != Ranges::Whole || !is_small) {
            return Err(FilesError::NotAtHand);
        }
        if ranges != Ranges::Whole {
            return Ok(Some(self.partial(
                asked,
                (chosen, validators),
                headers,
                ranges,
            )));
        }
        // Without a body to send, reads the file for the cache, where that is possible.
        let reads = is_sent || !self.is_at_hand() || self.root.file_system().tells_data();
        let Some(mut buffer) = reads.then(|| self.buffer_for(size)).flatten() else {
            if !is_sent {
                return Ok(Some(finish(verdict, headers, size, Body::Empty)));
            }
            if self.is_at_hand() {
                return Err(FilesError::NotAtHand);
            }
            return Ok(Some(self.whole_open(asked, (chosen, validators), headers)));
        };
        let length = usize::try_from(size).expect("a buffer was taken for it");
        let room = &mut buffer.overwrite_mut()[..length];
        let Opened { file, identity, .. } = &chosen.opened;
        let at_hand = self.is_at_hand().then(|| self.root.file_system());
        let stability = content::read_whole(file, at_hand, identity, room)?;
        buffer.advance(length);
        if stability == Stability::Changing && tries == CHANGE_TRIES_MAX {
            // It changes all the time, so the answer has no validators and is not cached.
            headers.remove(header::ETAG);
            headers.remove(header::LAST_MODIFIED);
            let body = Body::Pooled(buffer);
            return Ok(Some(finish(Verdict::Proceed, headers, size, body)));
        }
        if stability != Stability::Same {
            return Ok(None);
        }
        let content = buffer.filled();
        let entry = self.entry(asked, chosen, validators, &headers, content);
        let mut response = finish(verdict, headers, size, Body::Pooled(buffer));
        if let Some(entry) = entry {
            response.extensions_mut().insert(entry);
        }
        Ok(Some(response))
    }

    /// 200 with a file that is sent while it is open.
    fn whole_open(
        &self,
        asked: &Asked<'_>,
        (chosen, validators): (Chosen, Validators),
        headers: HeaderMap,
    ) -> Response {
        let size = chosen.opened.identity.size;
        let locality = chosen.opened.locality;
        let Some((file, entry)) = self.open_to_send(asked, (chosen, validators), &headers) else {
            return busy();
        };
        let whole = Part {
            start: 0,
            end: size,
        };
        let body = self.sent(locality, content::part_of(&file, whole).into());
        let mut response = finish(Verdict::Proceed, headers, size, body);
        if let Some(entry) = entry {
            response.extensions_mut().insert(entry);
        }
        response
    }

    /// The descriptor of a file that is read while it is sent.
    fn hold(&self) -> Option<DescriptorHold> {
        self.descriptors?.hold(DOWNLOAD_DESCRIPTORS)
    }

    /// Room for a file that is read at once; larger ones are not, and none is if memory is short.
    fn buffer_for(&self, size: u64) -> Option<Buffer> {
        let length = usize::try_from(size)
            .ok()
            .filter(|length| *length <= CACHE_FILE_BYTES_MAX)?;
        self.pool
            .take(length)
            .filter(|buffer| buffer.room() >= length)
    }

    /// 206 with one part or several, or 416.
    fn partial(
        &self,
        asked: &Asked<'_>,
        (chosen, validators): (Chosen, Validators),
        mut headers: HeaderMap,
        ranges: Ranges,
    ) -> Response {
        let size = chosen.opened.identity.size;
        let (locality, media) = (chosen.opened.locality, chosen.media.clone());
        let Some((file, entry)) = self.open_to_send(asked, (chosen, validators), &headers) else {
            return busy();
        };
        let body = match ranges {
            Ranges::Single(part) => {
                let range = visible(part.content_range(size));
                headers.insert(header::CONTENT_RANGE, range);
                self.sent(locality, content::part_of(&file, part).into())
            }
            Ranges::Several(parts) => {
                let boundary = content::fresh_boundary();
                let media = headers.get(header::CONTENT_TYPE).unwrap_or(&media);
                // Of visible ASCII, whoever set it.
                let media = media.to_str().unwrap_or(media::UNKNOWN);
                let multipart = Multipart {
                    parts: &parts,
                    size,
                    media,
                    boundary: &boundary,
                };
                let (media, body) = (visible(multipart.media()), multipart.of_file(&file));
                headers.insert(header::CONTENT_TYPE, media);
                self.sent(locality, body)
            }
            Ranges::Whole | Ranges::Unsatisfiable => {
                let mut response = unsatisfiable(size, &mut headers);
                if let Some(entry) = entry {
                    response.extensions_mut().insert(entry);
                }
                return response;
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        *response.headers_mut() = headers;
        if let Some(entry) = entry {
            response.extensions_mut().insert(entry);
        }
        response
    }
}

fn ranges_of(request: &Request, validators: &Validators, size: u64) -> Ranges {
    let headers = request.headers();
    match headers.single(&header::RANGE) {
        Some(value) if validators.honours_range(headers) => Ranges::parse(value, size),
        _ => Ranges::Whole,
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn not_acceptable() -> Response {
    let coding = HeaderValue::from_static("accept-encoding");
    with(
        status_text(StatusCode::NOT_ACCEPTABLE),
        header::VARY,
        coding,
    )
}

fn refuse(request: &Request, error: FilesError) -> Response {
    if let FilesError::Unreadable(_) | FilesError::Changed = error {
        log::warn!("{}: {error}", request.uri().path());
    }
    refusal(error.status())
}
