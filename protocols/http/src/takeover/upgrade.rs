//! Upgrades: a handler answers 101, and another protocol takes the connection over (RFC 9110
//! section 7.8).

use std::fmt;
use std::sync::Arc;

use flatpath::HandOver;
use flatpath::lock::Lock;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};

use crate::header_values::elements;
use crate::message::{Body, Request, Response};
use crate::respond::into_response::refused;
use crate::takeover::tunnel::Tunnel;

/// The next protocol of a connection, on its way from a handler to the network thread: an extension
/// of a response with status 101.
#[derive(Clone)]
pub(crate) struct Upgrade(Arc<Lock<Option<Next>>>);

/// What comes after the 101.
pub(crate) enum Next {
    /// Of a connection of HTTP/1.1.
    Connection(HandOver),
    /// Of a stream of HTTP/2.
    #[cfg_attr(not(feature = "http2"), expect(dead_code, reason = "of HTTP/2 alone"))]
    Stream(Box<dyn Tunnel>),
}

impl Upgrade {
    /// Hands a connection of HTTP/1.1 over.
    pub(crate) fn to(successor: HandOver) -> Self {
        Self::new(Next::Connection(successor))
    }

    fn new(next: Next) -> Self {
        Self(Arc::new(Lock::new(Some(next))))
    }

    pub(crate) fn take(&self) -> Option<Next> {
        let mut wish = self.0.lock();
        wish.take()
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Upgrade").finish_non_exhaustive()
    }
}

/// The answer 101 to a request that offers to go on in `protocol` (`websocket`, say), from any
/// handler: once it is sent, the connection is the successor's. More headers may be added to it.
///
/// Bytes that the client sends after its request belong to the new protocol. A drain does not
/// prevent the upgrade: the successor gets
/// [`Event::Draining`](flatpath::Event::Draining) at once. If the client has closed its
/// sending side by then, it gets a 400, and the connection ends. A 101 for a request that did not
/// ask for it becomes a 500.
///
/// # Errors
/// The response to send. The request does not offer this protocol, or not as HTTP/1.1: 426, which
/// names the protocol (RFC 9110 section 15.5.22). It has a body, which would come before the new
/// protocol, or `Connection: close`, which ends the connection: 400.
///
/// ```
/// use flatpath::{Context, Protocol, Received, Successor};
/// use flatpath_http::{Http, Request, upgrade};
///
/// /// Sends back what it gets.
/// struct Echo;
///
/// impl Protocol for Echo {
///     type ThreadState = ();
///     type Session = ();
///     type Job = ();
///
///     fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
///         if context.write(input).is_err() {
///             context.abort();
///         }
///         Received::Consumed
///     }
/// }
///
/// let echo = Successor::new(Echo);
/// let handler = move |request: Request| {
///     let upgraded = upgrade(&request, "echo", echo.begin(|| ()));
///     upgraded.unwrap_or_else(|refusal| *refusal)
/// };
/// let protocol = Http::pooled(handler);
/// # let mut server = flatpath_test::TestServer::new(flatpath_test::Conditions::calm(1), protocol);
/// # let client = server.connect();
/// # client.write(b"GET / HTTP/1.1\r\nHost: h\r\n");
/// # client.write(b"Connection: upgrade\r\nUpgrade: echo\r\n\r\nhello");
/// # client.shutdown_write();
/// # assert!(server.read_to_end(&client).ends_with(b"\r\n\r\nhello"));
/// ```
pub fn upgrade(
    request: &Request,
    protocol: &'static str,
    successor: HandOver,
) -> Result<Response, Box<Response>> {
    accept(request, protocol, Version::HTTP_11, || {
        Next::Connection(successor)
    })
}

/// The same for a request over HTTP/2 (extended CONNECT, RFC 8441): once the answer is sent, which
/// is a 200 there, its stream is the tunnel's.
///
/// # Errors
/// As [`upgrade`]; 426 as well for a request that is not of HTTP/2.
pub fn tunnel(
    request: &Request,
    protocol: &'static str,
    tunnel: Box<dyn Tunnel>,
) -> Result<Response, Box<Response>> {
    accept(request, protocol, Version::HTTP_2, || Next::Stream(tunnel))
}

fn accept(
    request: &Request,
    protocol: &'static str,
    version: Version,
    next: impl FnOnce() -> Next,
) -> Result<Response, Box<Response>> {
    let is_offered = request.version() == version
        && lists(request.headers(), header::CONNECTION, "upgrade")
        && lists(request.headers(), header::UPGRADE, protocol);
    let mut response = Response::new(Body::Empty);
    let value = HeaderValue::from_static(protocol);
    response.headers_mut().insert(header::UPGRADE, value);
    if !is_offered {
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        *response.body_mut() = format!("This is spoken in {protocol} only.\n").into();
        return Err(Box::new(response));
    }
    if has_body(request.headers()) || lists(request.headers(), header::CONNECTION, "close") {
        let reason = "an upgrade is asked for without a body and without `Connection: close`";
        return Err(Box::new(refused(StatusCode::BAD_REQUEST, &reason)));
    }
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.extensions_mut().insert(Upgrade::new(next()));
    Ok(response)
}

/// Whether the framing headers announce one, be it empty in the end.
pub(crate) fn has_body(headers: &HeaderMap) -> bool {
    let is_zero = |length: &HeaderValue| length.as_bytes().iter().all(|digit| *digit == b'0');
    headers.contains_key(header::TRANSFER_ENCODING)
        || !headers.get_all(header::CONTENT_LENGTH).iter().all(is_zero)
}

/// Whether one of the lists of this name has this element, in any case.
fn lists(headers: &HeaderMap, name: header::HeaderName, element: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.any(|value| has_element(value.as_bytes(), element))
}

fn has_element(list: &[u8], element: &str) -> bool {
    elements(list).any(|it| it.eq_ignore_ascii_case(element.as_bytes()))
}

/// Whether this response hands its connection over, or its stream: [`upgrade`] and [`tunnel`] make
/// it for a request of their version alone.
pub(crate) fn is_made(parts: &Parts) -> bool {
    parts.status == StatusCode::SWITCHING_PROTOCOLS && parts.extensions.get::<Upgrade>().is_some()
}
