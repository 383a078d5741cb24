//! What a handler's arguments are made of.
//!
//! Arguments are extracted in their order, out of a request that is recycled afterwards: what is
//! cloned shares memory with it, and only what takes the request itself takes its header map away.
//!
//! Its folder has a kind of argument in each file. Handlers, routers and layers use them; neither
//! version of HTTP does.

#[cfg(feature = "json")]
pub(crate) mod path;
#[cfg(feature = "json")]
pub(crate) mod form;
#[cfg(feature = "json")]
pub(crate) mod json;
#[cfg(feature = "json")]
pub(crate) mod fields;
pub(crate) mod from_ref;
pub(crate) mod host;
pub(crate) mod peer;
pub(crate) mod request_id;
#[cfg(feature = "typed-headers")]
pub(crate) mod typed_header;

use std::convert::Infallible;
use std::mem;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, Version};

use crate::extract::from_ref::FromRef;
use crate::message::{Body, Request, Response};
use crate::respond::into_response::{IntoResponse, refused};

/// What an argument of a handler needs besides the request's head and body. It is looked up only
/// for handlers that ask for it, and for those with a layer around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    pub(crate) peer: bool,
    pub(crate) pattern: bool,
    pub(crate) client: bool,
}

impl Asks {
    /// Nothing.
    pub const NOTHING: Self = Self {
        peer: false,
        pattern: false,
        client: false,
    };
    /// The client's address ([`Peer`](crate::Peer)) and the terms of its connection
    /// ([`Tls`](crate::Tls)): a system call for the first such request of a
    /// connection.
    pub const PEER: Self = Self {
        peer: true,
        ..Self::NOTHING
    };
    /// The path of the route ([`MatchedPath`](crate::MatchedPath)): an allocation.
    pub const PATTERN: Self = Self {
        pattern: true,
        ..Self::NOTHING
    };
    /// Whether the client still waits ([`ClientWatch`](crate::ClientWatch)).
    pub const CLIENT: Self = Self {
        client: true,
        ..Self::NOTHING
    };
    /// What layers may look for.
    pub(crate) const EVERYTHING: Self = Self::PEER.and(Self::PATTERN);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            peer: self.peer || other.peer,
            pattern: self.pattern || other.pattern,
            client: self.client || other.client,
        }
    }
}

/// Made of a request's head, or of the router's state `S`. It may stand at any place in a handler's
/// arguments.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{FromRequestParts, Http, Request};
///
/// struct User(String);
///
/// impl<S> FromRequestParts<S> for User {
///     type Rejection = StatusCode;
///
///     fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, StatusCode> {
///         let name = request.headers().get("x-user").ok_or(StatusCode::UNAUTHORIZED)?;
///         let name = name.to_str().map_err(|_| StatusCode::BAD_REQUEST)?;
///         Ok(Self(name.to_owned()))
///     }
/// }
///
/// let http = Http::pooled(|User(name): User| format!("hello, {name}\n"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler in this place",
    label = "not made of a request's head",
    note = "arguments that take the body, as `Json`, `Form`, `String` and `Request` do, stand last",
    note = "a value of the router's state is `State<{Self}>`, with `Router::with_state`",
    note = "what a layer has put into the request is `Extension<{Self}>`"
)]
pub trait FromRequestParts<S>: Sized {
    /// What answers a request that it cannot be made of.
    type Rejection: IntoResponse;

    /// What it needs besides the head and the body.
    const ASKS: Asks = Asks::NOTHING;

    /// Makes it of this request, and leaves the body alone.
    ///
    /// # Errors
    /// The response in the handler's place.
    fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, Self::Rejection>;
}

/// Made of a whole request: it may take the body, so it stands last in a handler's arguments.
///
/// `M` tells what takes the body from what does not; an implementation leaves it out.
///
/// ```
/// use std::fmt::Display;
///
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{FromRequest, Http, Request};
///
/// /// The numbers of a body, one in each line.
/// struct Numbers(Vec<u64>);
///
/// impl<S> FromRequest<S> for Numbers {
///     type Rejection = (StatusCode, String);
///
///     fn from_request(request: &mut Request, state: &S) -> Result<Self, Self::Rejection> {
///         let bad = |reason: &dyn Display| (StatusCode::BAD_REQUEST, format!("{reason}\n"));
///         let text = <String as FromRequest<S>>::from_request(request, state);
///         let text = text.map_err(|refusal| bad(&refusal))?;
///         let numbers: Result<Vec<u64>, _> = text.lines().map(str::parse).collect();
///         Ok(Self(numbers.map_err(|error| bad(&error))?))
///     }
/// }
///
/// let http = Http::pooled(|Numbers(all): Numbers| format!("{}\n", all.iter().sum::<u64>()));
/// # let _ = http;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "not made of a request",
    note = "implement `FromRequestParts<S>` for what is made of a head, or `FromRequest<S>` for \
            what takes the body",
    note = "`Json<T>`, `Form<T>` and `Query<T>` need `T: serde::Deserialize`"
)]
pub trait FromRequest<S, M = ViaRequest>: Sized {
    /// What answers a request that it cannot be made of.
    type Rejection: IntoResponse;

    /// What it needs besides the head and the body.
    const ASKS: Asks = Asks::NOTHING;

    /// Makes it of this request, which has arrived completely.
    ///
    /// # Errors
    /// The response in the handler's place.
    fn from_request(request: &mut Request, state: &S) -> Result<Self, Self::Rejection>;
}

/// Marks what is made of a head: it may stand last too.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum ViaParts {}

/// Marks what is made of a whole request.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum ViaRequest {}

impl<S, T: FromRequestParts<S>> FromRequest<S, ViaParts> for T {
    type Rejection = T::Rejection;

    const ASKS: Asks = T::ASKS;

    fn from_request(request: &mut Request, state: &S) -> Result<Self, Self::Rejection> {
        T::from_request_parts(request, state)
    }
}

/// Made of a head where it is there: `Option` of it is an argument.
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` cannot be an argument of a handler",
    label = "its absence is not told from what is wrong with it",
    note = "take `Result<{Self}, _>` where every refusal is to reach the handler"
)]
pub trait OptionalFromRequestParts<S>: Sized {
    /// What answers a request in which it is there and not right.
    type Rejection: IntoResponse;

    /// As [`FromRequestParts::ASKS`].
    const ASKS: Asks = Asks::NOTHING;

    /// Makes it of this request; none where the request has nothing to make it of.
    ///
    /// # Errors
    /// The response in the handler's place.
    fn from_request_parts(
        request: &mut Request,
        state: &S,
    ) -> Result<Option<Self>, Self::Rejection>;
}

/// Made of a whole request where it is there: `Option` of it is an argument, the last.
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` cannot be an argument of a handler",
    label = "its absence is not told from what is wrong with it",
    note = "take `Result<{Self}, _>` where every refusal is to reach the handler"
)]
pub trait OptionalFromRequest<S>: Sized {
    /// What answers a request in which it is there and not right.
    type Rejection: IntoResponse;

    /// Makes it of this request; none where the request has nothing to make it of.
    ///
    /// # Errors
    /// The response in the handler's place.
    fn from_request(request: &mut Request, state: &S) -> Result<Option<Self>, Self::Rejection>;
}

impl<S, T: OptionalFromRequestParts<S>> FromRequestParts<S> for Option<T> {
    type Rejection = T::Rejection;

    const ASKS: Asks = T::ASKS;

    fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, T::Rejection> {
        T::from_request_parts(request, state)
    }
}

impl<S, T: OptionalFromRequest<S>> FromRequest<S> for Option<T> {
    type Rejection = T::Rejection;

    fn from_request(request: &mut Request, state: &S) -> Result<Self, T::Rejection> {
        T::from_request(request, state)
    }
}

/// Takes a request and leaves its method and target behind: a panic is logged with them.
pub(crate) fn take(request: &mut Request) -> Request {
    let taken = mem::take(request);
    *request.method_mut() = taken.method().clone();
    *request.uri_mut() = taken.uri().clone();
    taken
}

/// Takes the body in one piece.
pub(crate) fn take_bytes(request: &mut Request) -> Bytes {
    mem::take(request.body_mut()).into_bytes()
}

/// The state of the router, or a part of it ([`FromRef`]): a clone.
///
/// It is cloned for each request. Of an `Arc` that writes a count which all workers share; a
/// reference to something static, as from [`Box::leak`], writes nothing.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use flatpath_http::{Router, State};
///
/// fn visit(State(visits): State<Arc<AtomicU64>>) -> String {
///     format!("visit {}\n", visits.fetch_add(1, Ordering::Relaxed) + 1)
/// }
///
/// let visits = Arc::new(AtomicU64::new(0));
/// let router: Router = Router::new().get("/", visit).with_state(visits);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<S, T: FromRef<S>> FromRequestParts<S> for State<T> {
    type Rejection = Infallible;

    fn from_request_parts(_: &mut Request, state: &S) -> Result<Self, Infallible> {
        Ok(Self(T::from_ref(state)))
    }
}

/// What a layer has put into the request's extensions for handlers: a clone of it.
///
/// ```
/// use flatpath_http::{Answer, Extension, Next, Request, Router};
/// use flatpath_http::http::StatusCode;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// fn identify(mut request: Request, next: &Next<'_>) -> Result<Answer, StatusCode> {
///     let name = request.headers().get("x-user").and_then(|value| value.to_str().ok());
///     let user = User(name.ok_or(StatusCode::UNAUTHORIZED)?.to_owned());
///     request.extensions_mut().insert(user);
///     Ok(next.run(request))
/// }
///
/// fn greet(Extension(User(name)): Extension<User>) -> String {
///     format!("hello, {name}\n")
/// }
///
/// let router: Router = Router::new().get("/", greet).layer(identify);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

impl<S, T: Clone + Send + Sync + 'static> FromRequestParts<S> for Extension<T> {
    type Rejection = ExtensionRejection;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, ExtensionRejection> {
        let value = request.extensions().get::<T>().cloned();
        let name = std::any::type_name::<T>();
        value.map(Self).ok_or(ExtensionRejection { name })
    }
}

impl<S, T: Clone + Send + Sync + 'static> OptionalFromRequestParts<S> for Extension<T> {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(request.extensions().get::<T>().cloned().map(Self))
    }
}

/// No layer has put this into the request: a 500, and a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionRejection {
    name: &'static str,
}

flatpath::impl_error! {
    ExtensionRejection {
        Self { name } => "no layer has put a {name} into the request's extensions",
    }
}

impl IntoResponse for ExtensionRejection {
    fn into_response(self) -> Response {
        log::error!("a request becomes a 500: {self}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl<S> FromRequestParts<S> for Method {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(request.method().clone())
    }
}

impl<S> FromRequestParts<S> for Uri {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(request.uri().clone())
    }
}

impl<S> FromRequestParts<S> for Version {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(request.version())
    }
}

/// A copy.
impl<S> FromRequestParts<S> for HeaderMap {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(request.headers().clone())
    }
}

/// For a handler that decides by itself what a failed extraction means.
impl<S, T: FromRequestParts<S>> FromRequestParts<S> for Result<T, T::Rejection> {
    type Rejection = Infallible;

    const ASKS: Asks = T::ASKS;

    fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, Infallible> {
        Ok(T::from_request_parts(request, state))
    }
}

/// For a handler that decides by itself what a failed extraction means.
impl<S, T: FromRequest<S>> FromRequest<S> for Result<T, T::Rejection> {
    type Rejection = Infallible;

    const ASKS: Asks = T::ASKS;

    fn from_request(request: &mut Request, state: &S) -> Result<Self, Infallible> {
        Ok(T::from_request(request, state))
    }
}

impl<S> FromRequest<S> for Request {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(take(request))
    }
}

impl<S> FromRequest<S> for Body {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(mem::take(request.body_mut()))
    }
}

impl<S> FromRequest<S> for Bytes {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(take_bytes(request))
    }
}

impl<S> FromRequest<S> for String {
    type Rejection = StringRejection;

    fn from_request(request: &mut Request, _: &S) -> Result<Self, StringRejection> {
        String::from_utf8(take_bytes(request).into()).map_err(|refused| {
            // The body stays where it is, for what is tried next (`Either`).
            *request.body_mut() = refused.into_bytes().into();
            StringRejection
        })
    }
}

/// The body is not UTF-8: a 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringRejection;

flatpath::impl_error! {
    StringRejection {
        Self => "the body is not UTF-8",
    }
}

impl IntoResponse for StringRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::BAD_REQUEST, &self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Handler;

    fn call<M>(handler: impl Handler<M, u32>, body: &[u8]) -> (u16, String) {
        let mut request = Request::new(body.to_vec().into());
        *request.uri_mut() = Uri::from_static("/a?b");
        request
            .headers_mut()
            .insert("a", "b".parse().expect("valid"));
        let response = handler.call(&mut request, &7);
        assert_eq!(request.uri(), "/a?b", "it is left for the log");
        let status = response.status().as_u16();
        let body = response.into_body().into_bytes();
        (status, String::from_utf8(body.into()).expect("UTF-8"))
    }

    #[test]
    fn handlers_take_what_their_arguments_extract() {
        let ok = |content: &str| (200, content.to_owned());
        assert_eq!(call(|| "none", b""), ok("none"));
        let by_reference = |request: &Request| request.uri().to_string();
        assert_eq!(call(by_reference, b""), ok("/a?b"));
        let by_value = |request: Request| request.into_body().into_bytes();
        assert_eq!(call(by_value, b"body"), ok("body"));
        assert_eq!(
            call(|State(state): State<u32>| state.to_string(), b""),
            ok("7")
        );
        assert_eq!(call(|body: Body| body, b"body"), ok("body"));
        let all = |method: Method,
                   uri: Uri,
                   version: Version,
                   headers: HeaderMap,
                   State(state): State<u32>,
                   again: Method,
                   uri_again: Uri,
                   body: String| {
            assert_eq!((again, &uri_again), (method.clone(), &uri));
            format!(
                "{method} {uri} {version:?} {} {state} {body}",
                headers.len()
            )
        };
        assert_eq!(call(all, b"body"), ok("GET /a?b HTTP/1.1 1 7 body"));
    }

    #[test]
    fn what_cannot_be_extracted_answers_by_itself() {
        let refused = (400, "the body is not UTF-8\n".to_owned());
        assert_eq!(call(|text: String| text, b"\xff"), refused);
    }
}
