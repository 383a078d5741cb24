//! Where a request comes from, and who has sent it.

use std::net::SocketAddr;
use std::sync::Arc;

use flatpath::TlsTerms;
use http::StatusCode;

use crate::extract::{Asks, FromRequestParts, OptionalFromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused};

/// The address of the client, as an argument of a handler; behind a load balancer that the server
/// knows ([`Server::behind_proxy`](flatpath::Server::behind_proxy)) the client's and not the
/// balancer's. `Option` of it is for servers that listen on a Unix socket too, whose clients have
/// none.
///
/// Requests have it whose handler has it among its arguments or is in a layer: a system call for
/// the first such request of a connection. Other requests have no address. Behind HTTP proxies it
/// is the client that they name ([`Http::behind_proxies`](crate::Http::behind_proxies)).
///
/// ```
/// use flatpath_http::{Answer, Next, Peer, Request, Router};
///
/// fn greet(Peer(client): Peer) -> String {
///     format!("hello, {}\n", client.ip())
/// }
///
/// /// A layer has it of every request.
/// fn note(request: Request, next: &Next<'_>) -> Answer {
///     log::info!("{:?} asks for {}", Peer::of(&request), request.uri().path());
///     next.run(request)
/// }
///
/// let router: Router = Router::new().get("/", greet).layer(note);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// The address of the client, where the request has it: see [`Peer`].
    #[must_use]
    pub fn of(request: &Request) -> Option<SocketAddr> {
        request.extensions().get::<Self>().map(|peer| peer.0)
    }
}

impl<S> FromRequestParts<S> for Peer {
    type Rejection = PeerRejection;

    const ASKS: Asks = Asks::PEER;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, PeerRejection> {
        Self::of(request).map(Self).ok_or(PeerRejection)
    }
}

impl<S> OptionalFromRequestParts<S> for Peer {
    type Rejection = std::convert::Infallible;

    const ASKS: Asks = Asks::PEER;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(Self::of(request).map(Self))
    }
}

/// The client has no internet address, is gone, or an extractor asks for it without saying so
/// ([`FromRequestParts::ASKS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRejection;

flatpath::impl_error! {
    PeerRejection {
        Self => "this request's client has no address",
    }
}

impl IntoResponse for PeerRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::INTERNAL_SERVER_ERROR, &self)
    }
}

/// The terms of the connection with TLS that a request has come by, as an argument of a handler:
/// among them the client's certificate, where the listener asks for one. `Option` of it is for
/// servers that have listeners without TLS, too.
///
/// Requests have it where they have [`Peer`]; it costs a reference that is counted.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Router, Tls};
///
/// fn greet(Tls(terms): Tls) -> Result<String, StatusCode> {
///     let client = terms.certificate().ok_or(StatusCode::FORBIDDEN)?;
///     Ok(format!("hello, {}\n", client.subject()))
/// }
///
/// let router: Router = Router::new().get("/", greet);
/// ```
#[derive(Clone, Debug)]
pub struct Tls(pub Arc<TlsTerms>);

impl Tls {
    /// The terms of the request's connection, where the request has them: see [`Tls`].
    #[must_use]
    pub fn of(request: &Request) -> Option<&TlsTerms> {
        request.extensions().get::<Self>().map(|tls| &*tls.0)
    }
}

impl<S> FromRequestParts<S> for Tls {
    type Rejection = TlsRejection;

    const ASKS: Asks = Asks::PEER;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, TlsRejection> {
        request.extensions().get().cloned().ok_or(TlsRejection)
    }
}

impl<S> OptionalFromRequestParts<S> for Tls {
    type Rejection = std::convert::Infallible;

    const ASKS: Asks = Asks::PEER;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(request.extensions().get().cloned())
    }
}

/// The request has come without TLS, or an extractor asks for it without saying so
/// ([`FromRequestParts::ASKS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsRejection;

flatpath::impl_error! {
    TlsRejection {
        Self => "this request has come without TLS",
    }
}

impl IntoResponse for TlsRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::FORBIDDEN, &self)
    }
}
