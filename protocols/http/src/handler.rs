//! Functions that answer requests.
//!
//! | handler                  | gets                                             | headers      |
//! |--------------------------|--------------------------------------------------|--------------|
//! | `Fn() -> R`              | nothing                                          | recycled     |
//! | `Fn(&Request) -> R`      | a look at the request                            | recycled     |
//! | `Fn(A, B, C) -> R`       | what these extract, see [`FromRequest`]          | recycled     |
//! | `Fn(Request) -> R`       | the request itself                               | given away   |
//!
//! `R` is anything that is [`IntoResponse`]. Recycled headers cost no allocation once a thread is
//! warm; a handler that takes the request itself costs the next one a header map.
//!
//! Its folder has the reason why a function is no handler ([`check`]), and one of two types
//! ([`either`]). Routers, layers and extractors may use it; neither version of HTTP does.

#[doc(hidden)]
pub mod check;
pub(crate) mod either;

use std::sync::Arc;

use crate::extract::{Asks, FromRequest, FromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::IntoResponse;

/// A function that answers requests: a closure or a `fn` with up to eight arguments.
///
/// | argument                         | what a handler gets                                    |
/// |----------------------------------|--------------------------------------------------------|
/// | `&Request`, alone                | a look at the request; the body has arrived completely  |
/// | [`FromRequestParts`], any place  | a part of its head, or of the router's state            |
/// | [`FromRequest`], in the last     | its body, or the request itself                         |
///
/// What cannot be extracted answers the request with its rejection, and the handler is not called.
/// `M` only tells these kinds of functions apart; `S` is the state of the
/// router.
///
/// ```
/// use flatpath_http::http::{Method, Uri};
/// use flatpath_http::{Request, Router};
///
/// fn describe(method: Method, uri: Uri, body: String) -> String {
///     format!("{method} {uri} with {} bytes\n", body.len())
/// }
///
/// fn agent(request: &Request) -> Option<String> {
///     let name = request.headers().get("user-agent")?;
///     Some(name.to_str().ok()?.to_owned())
/// }
///
/// let router: Router = Router::new().post("/describe", describe).get("/agent", agent);
/// # let _ = router;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler of a router whose state is `{S}`",
    note = "a handler is a function of up to eight arguments: each is `FromRequestParts<{S}>`, \
            the last may be `FromRequest<{S}>` and take the body, as `Json` and `String` do",
    note = "what it returns is `IntoResponse`",
    note = "`flatpath_http::check_handler!` of the function, with `state = {S}`, names the \
            argument or the reply at fault",
    note = "an `async fn` is none: a handler returns `Deferred::spawn(&runtime, future)`, with the \
            feature `async`"
)]
pub trait Handler<M, S = ()>: Send + Sync + 'static {
    /// What its arguments need besides the request's head and body.
    const ASKS: Asks = Asks::NOTHING;

    /// Answers a request. What is left of the request is recycled.
    fn call(&self, request: &mut Request, state: &S) -> Response;
}

/// A handler whose type is forgotten, so that what calls it is built once for all.
pub(crate) type Call<S> = Arc<dyn Fn(&mut Request, &S) -> Response + Send + Sync>;

pub(crate) fn call<M: 'static, S: 'static>(handler: impl Handler<M, S>) -> Call<S> {
    Arc::new(move |request, state| handler.call(request, state))
}

pub(crate) fn asks<M, S, H: Handler<M, S>>(_: &H) -> Asks {
    H::ASKS
}

/// Marks handlers that look at the request.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum ByReference {}

impl<F, R, S> Handler<ByReference, S> for F
where
    F: Fn(&Request) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, request: &mut Request, _: &S) -> Response {
        self(request).into_response()
    }
}

impl<F, R, S> Handler<((),), S> for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, _: &mut Request, _: &S) -> Response {
        self().into_response()
    }
}

/// Functions with these arguments, of which the last may take the body.
macro_rules! handlers {
    ($($part:ident)*; $last:ident) => {
        #[expect(non_snake_case, reason = "values are named by their types")]
        impl<F, R, S, M, $($part,)* $last> Handler<(M, $($part,)* $last,), S> for F
        where
            F: Fn($($part,)* $last) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($part: FromRequestParts<S>,)*
            $last: FromRequest<S, M>,
        {
            const ASKS: Asks = $last::ASKS$(.and($part::ASKS))*;

            fn call(&self, request: &mut Request, state: &S) -> Response {
                $(let $part = match $part::from_request_parts(request, state) {
                    Ok(extracted) => extracted,
                    Err(rejection) => return rejection.into_response(),
                };)*
                match $last::from_request(request, state) {
                    Ok($last) => self($($part,)* $last).into_response(),
                    Err(rejection) => rejection.into_response(),
                }
            }
        }
    };
}

handlers!(; A);
handlers!(A; B);
handlers!(A B; C);
handlers!(A B C; D);
handlers!(A B C D; E);
handlers!(A B C D E; G);
handlers!(A B C D E G; H);
handlers!(A B C D E G H; I);
