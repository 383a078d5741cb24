//! The opening handshake, the server's side (RFC 6455 section 4.2).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use flatpath_http::http::header::{
    HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION,
};
use flatpath_http::http::{self, HeaderMap, Method, StatusCode, header};
use flatpath_http::{Body, IntoResponse, Request, Response};

/// The version that RFC 6455 defines.
const VERSION: &str = "13";

/// What section 1.3 appends to a key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Bytes of a key before it is encoded.
const KEY_BYTES: usize = 16;

/// Why a request does not become a socket. As a response it is what section 4.2.2 says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// 426: the request does not ask for a WebSocket, or not as HTTP/1.1.
    NotAsked(Box<http::Response<Bytes>>),
    /// 426, with the version that is spoken: 13.
    Version,
    /// 400: a handshake is a `GET`.
    Method,
    /// 400: there is not one `Sec-WebSocket-Key` of 16 bytes in base64.
    Key,
}

flatpath::impl_error! {
    Rejection {
        Self::NotAsked(..) => "this is spoken in WebSocket only",
        Self::Version => "the WebSocket version must be 13",
        Self::Method => "the method of a WebSocket handshake is GET",
        Self::Key => "the Sec-WebSocket-Key is not valid",
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let text = format!("{self}\n");
        match self {
            Rejection::NotAsked(response) => response.map(Body::from),
            Rejection::Version => {
                let headers = [
                    (SEC_WEBSOCKET_VERSION, VERSION),
                    (header::UPGRADE, "websocket"),
                ];
                (StatusCode::UPGRADE_REQUIRED, headers, text).into_response()
            }
            Rejection::Method | Rejection::Key => (StatusCode::BAD_REQUEST, text).into_response(),
        }
    }
}

/// The refusal of HTTP, as what any thread may look at: a body in memory.
impl From<Box<Response>> for Rejection {
    fn from(response: Box<Response>) -> Self {
        Rejection::NotAsked(Box::new(response.map(Body::into_bytes)))
    }
}

/// Whether a request is a handshake of the right version.
pub(crate) fn check(request: &Request) -> Result<(), Rejection> {
    if request.method() != Method::GET {
        return Err(Rejection::Method);
    }
    let headers = request.headers();
    if only(headers, &SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(VERSION.as_bytes())
    {
        return Err(Rejection::Version);
    }
    Ok(())
}

/// The value of `Sec-WebSocket-Accept` for a handshake over HTTP/1.1.
pub(crate) fn accept(request: &Request) -> Result<HeaderValue, Rejection> {
    let headers = request.headers();
    let key = only(headers, &SEC_WEBSOCKET_KEY).ok_or(Rejection::Key)?;
    let key = key.as_bytes();
    let decoded = BASE64_STANDARD.decode(key).map_err(|_| Rejection::Key)?;
    if decoded.len() != KEY_BYTES {
        return Err(Rejection::Key);
    }
    HeaderValue::try_from(answer(key)).map_err(|_| Rejection::Key)
}

/// What proves that the server has read the key.
fn answer(key: &[u8]) -> String {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(GUID);
    BASE64_STANDARD.encode(hash.digest().bytes())
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// The first of `spoken` that the client speaks as well.
pub(crate) fn subprotocol(headers: &HeaderMap, spoken: &[&'static str]) -> Option<&'static str> {
    let is_offered = |name: &str| {
        let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        let mut names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
        names.any(|offered| offered.trim_ascii() == name.as_bytes())
    };
    spoken.iter().copied().find(|name| is_offered(name))
}

/// What the response says besides its status.
pub(crate) fn complete(
    response: &mut Response,
    accept: Option<HeaderValue>,
    subprotocol: Option<&'static str>,
    extension: Option<HeaderValue>,
) {
    let headers = response.headers_mut();
    if let Some(accept) = accept {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(name) = subprotocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    if let Some(extension) = extension {
        headers.insert(header::SEC_WEBSOCKET_EXTENSIONS, extension);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So errors of crates that want that can hold one.
    #[test]
    fn a_rejection_is_an_error_of_any_thread() {
        fn is_one<E: std::error::Error + Send + Sync + 'static>() {}
        is_one::<Rejection>();
    }

    #[test]
    fn the_refusal_of_http_is_the_response() {
        let refusal = (
            StatusCode::UPGRADE_REQUIRED,
            [(header::UPGRADE, "x")],
            "why",
        );
        let rejection = Rejection::from(Box::new(refusal.into_response()));
        let response = rejection.into_response();
        assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
        assert_eq!(response.headers()[header::UPGRADE], "x");
        assert_eq!(response.into_body().into_bytes(), "why");
    }

    #[test]
    fn the_key_of_section_1_3_is_answered() {
        let answer = answer(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn the_first_subprotocol_of_the_server_that_the_client_speaks_is_chosen() {
        let mut headers = HeaderMap::new();
        headers.append(
            SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static("a, chat.2"),
        );
        headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("chat"));
        assert_eq!(subprotocol(&headers, &["chat", "chat.2"]), Some("chat"));
        assert_eq!(subprotocol(&headers, &["chat.3", "chat.2"]), Some("chat.2"));
        assert_eq!(subprotocol(&headers, &["chat.3"]), None);
        assert_eq!(subprotocol(&headers, &[]), None);
    }
}
