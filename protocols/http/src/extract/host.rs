//! The host that a request is for.

use std::convert::Infallible;
use std::fmt;

use http::StatusCode;
use http::header::HOST;

use crate::extract::{FromRequestParts, OptionalFromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused};
use crate::sites::hosts::without_port;

/// The host that a request is for, with its port if it names one, as the client has written it: an
/// argument of a handler.
///
/// It is the authority that [`Hosts`](crate::Hosts) has admitted: of a target in absolute form the
/// target's, else what `Host` says (RFC 9112 section 3.2.2), over HTTP/2 `:authority`. Its syntax
/// was checked; that it is a host of this server was only checked where
/// [`Http::hosts`](crate::Http::hosts) is set. `X-Forwarded-Host` is not looked at, as any client
/// may send that. A request of HTTP/1.0 may have none: it gets 400, or `None` for `Option<Host>`.
///
/// ```
/// use flatpath_http::{Host, Redirect, Router};
///
/// fn to_https(host: Host) -> Redirect {
///     Redirect::permanent(format!("https://{}/", host.name()))
/// }
///
/// let router: Router = Router::new().get("/", to_https);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(pub String);

impl Host {
    /// The host that the request is for, where it names one: the same as
    /// [`Head::authority`](crate::Head::authority) has.
    #[must_use]
    pub fn of(request: &Request) -> Option<&str> {
        let target = request.uri().authority().map(http::uri::Authority::as_str);
        let header = || request.headers().get(HOST)?.to_str().ok();
        target.or_else(header).filter(|host| !host.is_empty())
    }

    /// It without its port. An address of IPv6 keeps its brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        without_port(&self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<S> FromRequestParts<S> for Host {
    type Rejection = HostRejection;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, HostRejection> {
        let host = Self::of(request).ok_or(HostRejection)?;
        Ok(Self(host.to_owned()))
    }
}

impl<S> OptionalFromRequestParts<S> for Host {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(request).map(|host| Self(host.to_owned())))
    }
}

/// The request names no host: a 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRejection;

flatpath::impl_error! {
    HostRejection {
        Self => "this request names no host",
    }
}

impl IntoResponse for HostRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::BAD_REQUEST, &self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_port() {
        for (host, name) in [
            ("h", "h"),
            ("h:80", "h"),
            ("h:", "h"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]"),
        ] {
            assert_eq!(Host(host.to_owned()).name(), name);
        }
    }
}
