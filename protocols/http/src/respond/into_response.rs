//! What a handler may return.
//!
//! Text is `text/plain; charset=utf-8` and bytes are `application/octet-stream`, unless headers
//! beside them say otherwise.
//!
//! Cost: a response without headers of its own allocates nothing.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Display;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::message::{Body, Response};

/// Becomes a response.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{IntoResponse, Response};
///
/// enum Refusal {
///     Busy,
///     Unknown(u32),
/// }
///
/// impl IntoResponse for Refusal {
///     fn into_response(self) -> Response {
///         match self {
///             Self::Busy => StatusCode::SERVICE_UNAVAILABLE.into_response(),
///             Self::Unknown(id) => {
///                 (StatusCode::NOT_FOUND, format!("nothing has the number {id}")).into_response()
///             }
///         }
///     }
/// }
///
/// let found: Result<&str, Refusal> = Err(Refusal::Unknown(7));
/// assert_eq!(found.into_response().status(), 404);
/// assert_eq!(Err::<(), _>(Refusal::Busy).into_response().status(), 503);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a response",
    label = "not a response",
    note = "text, bytes, a `StatusCode`, `Html`, `Json`, a `Body`, `Option` and `Result` of them \
            are responses; and so are `(status, content)` and `(status, headers, content)`",
    note = "an error of your own becomes one by `impl IntoResponse for {Self}`",
    note = "a future is none: in place of an `async fn` return \
            `Deferred::spawn(&runtime, future)`, with the feature `async`"
)]
pub trait IntoResponse {
    /// The response, made of this.
    fn into_response(self) -> Response;
}

/// Adds headers to a response: put in front of it, `(headers, response)`.
///
/// A header takes the place of those of its name that the response had before. Of one array, `Vec`,
/// tuple of pairs or `HeaderMap` all are kept, in their order: several cookies are several pairs.
/// [`AppendHeaders`] leaves what was there before, too.
///
/// ```
/// use flatpath_http::{Html, IntoResponse};
///
/// let cookies = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("content-type", "text/plain")];
/// let response = (cookies, Html("<p>")).into_response();
/// assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
/// assert_eq!(response.headers()["content-type"], "text/plain");
///
/// // Values of several types.
/// let response = ((("age", 60), ("x-by", "us".to_owned())), "hello\n").into_response();
/// assert_eq!(response.headers()["age"], "60");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no set of headers",
    label = "neither an array of names and values nor a `HeaderMap`",
    note = "headers stand before the content: `([(\"cache-control\", \"no-store\")], \"text\")`"
)]
pub trait IntoHeaders {
    /// Sets each header.
    ///
    /// # Errors
    /// A name or a value that HTTP does not know: the response becomes a 500.
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader>;
}

/// Headers that are added to those which a response has already: an array or a `Vec` of pairs.
///
/// ```
/// use flatpath_http::{AppendHeaders, IntoResponse};
///
/// let inner = ([("vary", "accept")], "hello\n");
/// let response = (AppendHeaders([("vary", "accept-encoding")]), inner).into_response();
/// assert_eq!(response.headers().get_all("vary").iter().count(), 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AppendHeaders<I>(pub I);

/// A name or a value that cannot stand in a head.
#[derive(Debug)]
pub struct InvalidHeader(String);

flatpath::impl_error! {
    InvalidHeader {
        Self(text) => "a header is not valid: {text}",
    }
}

impl InvalidHeader {
    pub(crate) fn of(name: &HeaderName, reason: &dyn Display) -> Self {
        Self(format!("{name}: {reason}"))
    }
}

/// HTML, as `text/html; charset=utf-8`.
///
/// ```
/// use flatpath_http::{Html, IntoResponse};
///
/// let response = Html("<h1>hello</h1>").into_response();
/// assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Html<T>(pub T);

/// Sends the client elsewhere.
///
/// ```
/// use flatpath_http::{IntoResponse, Redirect, Router};
///
/// let router: Router = Router::new()
///     .post("/notes", || Redirect::to("/notes/1"))
///     .get("/old", || Redirect::permanent("/new"));
/// # let _ = router;
/// assert_eq!(Redirect::to("/notes/1").into_response().status(), 303);
/// ```
#[derive(Clone, Debug)]
pub struct Redirect {
    status: StatusCode,
    location: Cow<'static, str>,
}

impl Redirect {
    /// 303: what was done is seen there, by GET.
    pub fn to(location: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SEE_OTHER, location)
    }

    /// 307: the same request, this time there.
    pub fn temporary(location: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::TEMPORARY_REDIRECT, location)
    }

    /// 308: the same request, from now on there.
    pub fn permanent(location: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::PERMANENT_REDIRECT, location)
    }

    fn new(status: StatusCode, location: impl Into<Cow<'static, str>>) -> Self {
        let location = location.into();
        Self { status, location }
    }
}

/// A response with this content, named by this type.
pub(crate) fn typed(content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A refusal with its reason as plain text. The reason may repeat what was sent, so no browser is
/// to take it for a page.
pub(crate) fn refused(status: StatusCode, reason: &dyn Display) -> Response {
    let nosniff = [(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
    (status, nosniff, format!("{reason}\n")).into_response()
}

fn text(body: impl Into<Body>) -> Response {
    typed("text/plain; charset=utf-8", body)
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for Body {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::default()
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        (self, ()).into_response()
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        text(self)
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        text(self)
    }
}

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        text(self)
    }
}

impl IntoResponse for &'static [u8] {
    fn into_response(self) -> Response {
        typed("application/octet-stream", self)
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        Bytes::from(self).into_response()
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        typed("application/octet-stream", self)
    }
}

impl<T: Into<Body>> IntoResponse for Html<T> {
    fn into_response(self) -> Response {
        typed("text/html; charset=utf-8", self.0)
    }
}

impl IntoResponse for Redirect {
    fn into_response(self) -> Response {
        (self.status, [(LOCATION, &*self.location)], ()).into_response()
    }
}

/// Nothing is a 404.
impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        match self {
            Some(found) => found.into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(response) => response.into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }
}

impl IntoResponse for Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        *response.status_mut() = self.0;
        response
    }
}

impl<H: IntoHeaders, T: IntoResponse> IntoResponse for (H, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        match self.0.set(response.headers_mut()) {
            Ok(()) => response,
            Err(invalid) => {
                log::error!("a handler's response becomes a 500: {invalid}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

impl<H: IntoHeaders, T: IntoResponse> IntoResponse for (StatusCode, H, T) {
    fn into_response(self) -> Response {
        let (status, headers, content) = self;
        (headers, (status, content)).into_response()
    }
}

impl IntoHeaders for HeaderMap {
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        // Several values of one name follow each other: `extend` keeps them all.
        headers.extend(self);
        Ok(())
    }
}

/// A pair in the types of a head.
fn header<K, V>((name, value): (K, V)) -> Result<(HeaderName, HeaderValue), InvalidHeader>
where
    K: TryInto<HeaderName, Error: Display>,
    V: TryInto<HeaderValue, Error: Display>,
{
    let name = name.try_into();
    let name = name.map_err(|reason| InvalidHeader(reason.to_string()))?;
    let value = value.try_into();
    let value = value.map_err(|reason| InvalidHeader::of(&name, &reason))?;
    Ok((name, value))
}

/// Sets headers that belong together: the first of a name replaces, the others are added. It
/// compares each with those before it.
fn set_together(
    together: impl IntoIterator<Item = Result<(HeaderName, HeaderValue), InvalidHeader>>,
    names: &mut [Option<HeaderName>],
    headers: &mut HeaderMap,
) -> Result<(), InvalidHeader> {
    for (at, header) in together.into_iter().enumerate() {
        let (name, value) = header?;
        match names[..at].iter().flatten().any(|known| *known == name) {
            true => drop(headers.append(&name, value)),
            false => drop(headers.insert(&name, value)),
        }
        names[at] = Some(name);
    }
    Ok(())
}

impl<K, V, const N: usize> IntoHeaders for [(K, V); N]
where
    K: TryInto<HeaderName, Error: Display>,
    V: TryInto<HeaderValue, Error: Display>,
{
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        set_together(self.map(header), &mut [const { None }; N], headers)
    }
}

impl<K, V> IntoHeaders for Vec<(K, V)>
where
    K: TryInto<HeaderName, Error: Display>,
    V: TryInto<HeaderValue, Error: Display>,
{
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        let mut names = vec![None; self.len()];
        set_together(self.into_iter().map(header), &mut names, headers)
    }
}

/// Tuples of pairs, whose values may have several types.
macro_rules! tuples_of_pairs {
    ($($name:ident $value:ident $pair:tt),+) => {
        impl<$($name, $value,)+> IntoHeaders for ($(($name, $value),)+)
        where
            $($name: TryInto<HeaderName, Error: Display>,)+
            $($value: TryInto<HeaderValue, Error: Display>,)+
        {
            fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
                let together = [$(header(self.$pair)),+];
                let mut names = [$({ let _: usize = $pair; None }),+];
                set_together(together, &mut names, headers)
            }
        }
    };
}

tuples_of_pairs!(A AA 0);
tuples_of_pairs!(A AA 0, B BB 1);
tuples_of_pairs!(A AA 0, B BB 1, C CC 2);
tuples_of_pairs!(A AA 0, B BB 1, C CC 2, D DD 3);
tuples_of_pairs!(A AA 0, B BB 1, C CC 2, D DD 3, E EE 4);
tuples_of_pairs!(A AA 0, B BB 1, C CC 2, D DD 3, E EE 4, F FF 5);

impl<I, K, V> IntoHeaders for AppendHeaders<I>
where
    I: IntoIterator<Item = (K, V)>,
    K: TryInto<HeaderName, Error: Display>,
    V: TryInto<HeaderValue, Error: Display>,
{
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        for pair in self.0 {
            let (name, value) = header(pair)?;
            headers.append(name, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, content type and content.
    fn parts(returned: impl IntoResponse) -> (u16, Option<String>, String) {
        let (parts, body) = returned.into_response().into_parts();
        let content_type = parts.headers.get(CONTENT_TYPE);
        let content_type = content_type.map(|value| value.to_str().expect("ASCII").to_owned());
        let content = String::from_utf8(body.into_bytes().into()).expect("UTF-8");
        (parts.status.as_u16(), content_type, content)
    }

    #[test]
    fn content_is_named_by_its_type() {
        let text = Some("text/plain; charset=utf-8".to_owned());
        for (returned, of_type) in [
            (parts("a"), text.clone()),
            (parts("a".to_owned()), text.clone()),
            (parts(Cow::Borrowed("a")), text),
            (parts(&b"a"[..]), Some("application/octet-stream".into())),
            (
                parts(b"a".to_vec()),
                Some("application/octet-stream".into()),
            ),
            (
                parts(Bytes::from("a")),
                Some("application/octet-stream".into()),
            ),
            (parts(Html("a")), Some("text/html; charset=utf-8".into())),
            (parts(Body::from("a")), None),
        ] {
            assert_eq!(returned, (200, of_type, "a".to_owned()));
        }
        assert_eq!(parts(()), (200, None, String::new()));
    }

    #[test]
    fn statuses_and_headers_stand_before_the_content() {
        let teapot = StatusCode::IM_A_TEAPOT;
        assert_eq!(parts(teapot), (418, None, String::new()));
        assert_eq!(
            parts((teapot, Body::from("a"))),
            (418, None, "a".to_owned())
        );
        let typed = (418, Some("text/css".to_owned()), "a".to_owned());
        assert_eq!(parts((teapot, [("content-type", "text/css")], "a")), typed);
        assert_eq!(parts((teapot, [(CONTENT_TYPE, "text/css")], "a")), typed);
        let mut headers = HeaderMap::new();
        headers.append("set-cookie", HeaderValue::from_static("a"));
        headers.append("set-cookie", HeaderValue::from_static("b"));
        let response = (teapot, headers, "a").into_response();
        assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
        assert_eq!(parts(([("a", "line\nbreak")], "a")).0, 500);
        assert_eq!(parts(([("a b", "a".to_owned())], "a")).0, 500);
    }

    /// The values of a header, in their order.
    fn values(response: &Response, name: &str) -> Vec<String> {
        let values = response.headers().get_all(name).iter();
        values
            .map(|value| value.to_str().expect("ASCII").to_owned())
            .collect()
    }

    #[test]
    fn headers_that_belong_together_are_all_kept_and_replace_what_was_there() {
        let inner = || ([("a", "old"), ("b", "old"), ("a", "older")], "content");
        assert_eq!(values(&inner().into_response(), "a"), ["old", "older"]);
        let array = ([("a", "1"), ("c", "x"), ("A", "2"), ("a", "3")], inner());
        let vec = (array.0.to_vec(), inner());
        let tuple = (
            (
                ("a", 1),
                (HeaderName::from_static("c"), "x"),
                ("A", "2"),
                ("a", "3".to_owned()),
            ),
            inner(),
        );
        for response in [
            array.into_response(),
            vec.into_response(),
            tuple.into_response(),
        ] {
            assert_eq!(values(&response, "a"), ["1", "2", "3"]);
            assert_eq!(values(&response, "b"), ["old"]);
            assert_eq!(values(&response, "c"), ["x"]);
        }
        let appended = (AppendHeaders([("a", "1"), ("a", "2")]), inner()).into_response();
        assert_eq!(values(&appended, "a"), ["old", "older", "1", "2"]);
        for invalid in ["line\nbreak", "nul\0"] {
            let response = ((("a", 1), ("b", invalid)), "a").into_response();
            assert_eq!(response.status(), 500);
            let response = (AppendHeaders(vec![("b", invalid)]), "a").into_response();
            assert_eq!(response.status(), 500);
        }
    }

    #[test]
    fn a_reason_is_never_taken_for_a_page() {
        let response = refused(StatusCode::BAD_REQUEST, &"<script>");
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(parts(response).2, "<script>\n");
    }

    #[test]
    fn what_is_not_there_or_refused_is_answered_too() {
        assert_eq!(parts(Some("a")).0, 200);
        assert_eq!(parts(None::<&str>).0, 404);
        let refuse = |reason| Err::<(), _>((StatusCode::CONFLICT, reason));
        assert_eq!(parts(refuse("taken")).2, "taken");
        assert_eq!(parts(Ok::<_, Infallible>("a")).0, 200);
    }

    #[test]
    fn redirects_say_where() {
        for (redirect, status) in [
            (Redirect::to("/a"), 303),
            (Redirect::temporary("/a"), 307),
            (Redirect::permanent("/a".to_owned()), 308),
        ] {
            let response = redirect.into_response();
            assert_eq!(
                (response.status().as_u16(), &response.headers()[LOCATION]),
                (status, &HeaderValue::from_static("/a"))
            );
        }
    }

    #[test]
    fn a_response_without_headers_allocates_nothing() {
        let counted = allocation_counter::measure(|| {
            for _ in 0..100 {
                let response = (StatusCode::OK, Body::from("hello")).into_response();
                assert_eq!(response.status(), 200);
            }
        });
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
}
