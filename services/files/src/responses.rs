//! Responses of the server's own: a status, and one line of text. What refuses a write is an error
//! that every failure turns into.

use flatpath_http::{Body, Response};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue, IntoHeaderName};
use rustix::io::Errno;

use crate::error::FilesError;
use crate::range;

/// Without a body.
pub(crate) fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    let nosniff = HeaderValue::from_static("nosniff");
    with(response, header::X_CONTENT_TYPE_OPTIONS, nosniff)
}

/// With the status as text: `404 Not Found`.
pub(crate) fn status_text(status: StatusCode) -> Response {
    text(status, &status.to_string())
}

/// With one line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Response {
    let mut response = bare(status);
    *response.body_mut() = Body::from(format!("{line}\n"));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    with(response, header::CONTENT_TYPE, plain)
}

/// A mount has as many workers as it may, or files have as many descriptors; or the directory that
/// is served is gone from its path.
pub(crate) fn busy() -> Response {
    let second = HeaderValue::from_static("1");
    let response = status_text(StatusCode::SERVICE_UNAVAILABLE);
    with(response, header::RETRY_AFTER, second)
}

/// The same response with one more header, in place of what it had by this name.
pub(crate) fn with(
    mut response: Response,
    name: impl IntoHeaderName,
    value: impl Into<HeaderValue>,
) -> Response {
    response.headers_mut().insert(name, value.into());
    response
}

/// Text made of visible ASCII, as the value of a header.
pub(crate) fn visible(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("it is visible ASCII")
}

/// Why an answer was not made: an extension of the response that takes its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped(pub(crate) FilesError);

/// The response in the place of an answer that an owner has to be asked for, or has refused.
pub(crate) fn stopped(error: FilesError) -> Response {
    let mut response = status_text(error.status());
    response.extensions_mut().insert(Stopped(error));
    response
}

/// The result, or the response that refuses it.
pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The response that refuses a request.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Box<Response>);

impl Refusal {
    /// With one line of text.
    pub(crate) fn because(status: StatusCode, reason: &str) -> Self {
        Self(Box::new(text(status, reason)))
    }

    /// 409, with what the request conflicts with.
    pub(crate) fn conflict(reason: &str) -> Self {
        Self::because(StatusCode::CONFLICT, reason)
    }

    /// With what it is about before its reason.
    pub(crate) fn about(self, what: &str) -> Self {
        let (status, reason) = (self.0.status(), self.0.body().to_bytes());
        let reason = String::from_utf8_lossy(&reason);
        Self::because(status, &format!("{what}: {}", reason.trim_end()))
    }

    /// With one more header.
    pub(crate) fn with(self, name: impl IntoHeaderName, value: impl Into<HeaderValue>) -> Self {
        Self(Box::new(with(*self.0, name, value)))
    }
}

/// With its status as text.
impl From<StatusCode> for Refusal {
    fn from(status: StatusCode) -> Self {
        Self(Box::new(status_text(status)))
    }
}

/// A target that could not be looked at.
impl From<FilesError> for Refusal {
    fn from(error: FilesError) -> Self {
        if let FilesError::Unreadable(errno) = error {
            log::warn!("the target of an upload cannot be looked at: {errno}");
        }
        if error.is_of_owner() {
            return Self(Box::new(stopped(error)));
        }
        match error {
            FilesError::TooLong => Errno::NAMETOOLONG.into(),
            // What cannot be looked up has a name that no file can have, or leads elsewhere.
            FilesError::NotFound | FilesError::OtherMount => {
                Self::conflict("no file can be written at this address")
            }
            error => error.status().into(),
        }
    }
}

/// The table of errors of a file that is to be written, whatever step met them. The kernel would
/// not write. Unlike a read, no error of a write ever means that the file does not
/// exist: where a directory is gone, the request conflicts with its state.
impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        let status = match errno {
            Errno::NOSPC | Errno::DQUOT => StatusCode::INSUFFICIENT_STORAGE,
            Errno::FBIG => StatusCode::PAYLOAD_TOO_LARGE,
            // Nobody who is refused can change that, and who can does not see the answer.
            Errno::ROFS => {
                log::warn!("an uploaded file cannot be written: {errno}");
                StatusCode::FORBIDDEN
            }
            Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
            Errno::NAMETOOLONG => StatusCode::URI_TOO_LONG,
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::EXIST
            | Errno::STALE
            | Errno::LOOP
            | Errno::TXTBSY => StatusCode::CONFLICT,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            errno => {
                log::warn!("an uploaded file cannot be written: {errno}");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        match status {
            StatusCode::CONFLICT => Self::conflict(&errno.to_string()),
            status => status.into(),
        }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

impl From<Refusal> for Box<Response> {
    fn from(refusal: Refusal) -> Self {
        refusal.0
    }
}

/// Of each form of a file; also where there are no siblings: there may be some tomorrow.
pub(crate) const VARY: &str = "accept-encoding";
pub(crate) const ACCEPT_RANGES: &str = "bytes";

/// The headers that are the same in whatever form a file is sent.
pub(crate) fn of_each_form() -> HeaderMap {
    let all = [
        (header::VARY, HeaderValue::from_static(VARY)),
        (
            header::ACCEPT_RANGES,
            HeaderValue::from_static(ACCEPT_RANGES),
        ),
    ];
    all.into_iter().collect()
}

/// A 416 of a form with these headers.
pub(crate) fn unsatisfiable(size: u64, headers: &mut HeaderMap) -> Response {
    let response = status_text(StatusCode::RANGE_NOT_SATISFIABLE);
    let range = visible(range::unsatisfied(size));
    let mut response = with(response, header::CONTENT_RANGE, range);
    // The size is that of the form that the client takes.
    for name in [header::VARY, header::ACCEPT_RANGES] {
        if let Some(value) = headers.remove(&name) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_a_write_says_that_the_file_is_not_there() {
        for raw in 1..134 {
            let status = Refusal::from(Errno::from_raw_os_error(raw)).0.status();
            assert_ne!(status, StatusCode::NOT_FOUND, "errno {raw}");
        }
        let status = |errno: Errno| Refusal::from(errno).0.status().as_u16();
        for error in [
            FilesError::NotFound,
            FilesError::OtherMount,
            FilesError::TooLong,
            FilesError::MalformedTarget,
            FilesError::Forbidden,
            FilesError::Unreadable(Errno::IO),
        ] {
            let status = Refusal::from(error).0.status();
            assert_ne!(status, StatusCode::NOT_FOUND, "{error}");
        }
        assert_eq!(status(Errno::NAMETOOLONG), 414);
        assert_eq!(status(Errno::INVAL), 500);
        assert_eq!(status(Errno::TXTBSY), 409);
        assert_eq!(status(Errno::FBIG), 413);
        assert_eq!(status(Errno::NOSPC), 507);
    }
}
