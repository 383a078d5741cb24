//! Pages of a site for errors: the body is a file, the status stays.
//!
//! Decisions
//! - A page is sent whatever the client accepts, as the built-in one is: a program looks at the
//!   status. Codings are negotiated all the same.
//! - It has no validators and no ranges, which would be taken for those of the path that was asked
//!   for; conditions of the request are not looked at. It is never cached here.
//! - What the error itself says in headers (`Allow`, `Content-Range`, `Retry-After`) stays.
//! - A page that is missing or cannot be read leaves the built-in one, so errors do not circle.

use flatpath_http::{Request, Response};
use http::StatusCode;
use http::header;

use crate::answer::Answerer;
use crate::cache::NewEntry;
use crate::error::FilesError;
use crate::root::Kind;
use crate::rules::Changes;
use crate::visit::Visit;

impl Answerer<'_> {
    /// An error with the page that the rules have for its status, and the headers of the rules.
    ///
    /// # Errors
    /// [`FilesError::OtherMount`] and [`FilesError::NotAtHand`] where the reach is too short.
    pub(crate) fn with_page(
        &self,
        visit: &Visit<'_>,
        mut response: Response,
    ) -> Result<Response, FilesError> {
        let page = self.page_of(visit, response.status());
        if let Some(page) = page.or_else(none_unless_far)? {
            return Ok(in_place_of(response, page));
        }
        visit.change_own(response.headers_mut());
        Ok(response)
    }

    /// The page for an error that was made around the service, if there is one, and the changes of
    /// its headers. `None`: the reach is too short to tell.
    pub(crate) fn refusal_for(
        &self,
        request: &Request,
        status: StatusCode,
    ) -> Option<(Option<Response>, Changes)> {
        let visit = self.visit(request)?;
        let page = match self.page_of(&visit, status) {
            // The request was refused already: no owner is asked about a page.
            Err(error) if error.is_of_owner() => Ok(None),
            page => page.or_else(none_unless_far),
        };
        Some((page.ok()?, visit.changes(self.hidden)))
    }

    /// The file for a status as a response with its own status; `None` if there is none.
    fn page_of(
        &self,
        visit: &Visit<'_>,
        status: StatusCode,
    ) -> Result<Option<Response>, FilesError> {
        let Some(path) = visit.rules.set.error_pages.get(&status) else {
            return Ok(None);
        };
        let opened = self.find(path)?;
        if opened.kind != Kind::File || self.is_kept_back(path) {
            return Ok(None);
        }
        // The conditions and ranges of the request are those of another file.
        let mut plain = Request::default();
        plain.method_mut().clone_from(visit.request.method());
        for coding in visit.request.headers().get_all(header::ACCEPT_ENCODING) {
            plain
                .headers_mut()
                .append(header::ACCEPT_ENCODING, coding.clone());
        }
        let mut page = self.file(&visit.aside(&plain), path, opened)?;
        if page.status() != StatusCode::OK {
            return Ok(None);
        }
        page.extensions_mut().remove::<NewEntry>();
        for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES] {
            page.headers_mut().remove(name);
        }
        Ok(Some(page))
    }
}

/// A page that cannot be had is none, unless it is only out of reach.
fn none_unless_far(error: FilesError) -> Result<Option<Response>, FilesError> {
    match error.is_to_continue() {
        true => Err(error),
        false => Ok(None),
    }
}

/// The page with the status of an error, and with what the error says in headers.
pub(crate) fn in_place_of(mut error: Response, mut page: Response) -> Response {
    let built_in = [
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::CONTENT_SECURITY_POLICY,
    ];
    for name in built_in {
        error.headers_mut().remove(name);
    }
    for name in error.headers().keys() {
        if page.headers().contains_key(name) {
            continue;
        }
        for value in error.headers().get_all(name) {
            page.headers_mut().append(name, value.clone());
        }
    }
    *page.status_mut() = error.status();
    page
}
