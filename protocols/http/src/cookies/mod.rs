//! Cookies (RFC 6265), with the feature `cookies`: what the client sent, and what it is to keep.
//!
//! | jar            | a client                                       | feature          |
//! |----------------|------------------------------------------------|------------------|
//! | [`CookieJar`]  | reads and writes its cookies                   | `cookies`        |
//! | `SignedJar`    | reads its cookies, and cannot change them      | `secure-cookies` |
//! | `PrivateJar`   | can neither read nor change its cookies        | `secure-cookies` |
//!
//! A jar is an argument of a handler, at any place, and stands in front of its response: only
//! cookies that the handler has added or removed are sent. Unless a cookie says otherwise it has
//!
//! - `HttpOnly`: scripts of the page do not see it;
//! - `SameSite=Lax`: other sites' pages send it only with links that are followed;
//! - `Path=/`;
//! - `Secure` where the request has come over TLS ([`Tls`]). A proxy that ends TLS in
//!   front of this server is not seen: say [`CookieJar::secure`] there.
//!
//! Values may be any text: they are percent-encoded, as are names. Of several cookies with one name
//! the first counts, which browsers send for the longest path (RFC 6265 section 5.4). What is no
//! cookie is passed over.
//!
//! A handler with a jar costs what [`Tls`] does, and a copy of the cookies.
//!
//! A cookie lasts until the browser ends, unless it has a `max_age`. The server remembers none: a
//! copy of an old cookie, signed or private too, is as good as the cookie. Where it has to end in
//! time, its value says when.

#[cfg(feature = "secure-cookies")]
mod keyed;

use std::convert::Infallible;

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::extract::peer::Tls;
use crate::extract::{Asks, FromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoHeaders, IntoResponse, InvalidHeader};

pub use cookie::{Cookie, Expiration, SameSite, time};
#[cfg(feature = "secure-cookies")]
pub use keyed::{HasKeys, Keys, PrivateJar, ShortSecret, SignedJar};

/// The cookies of a request, and those that the client is to keep: see the [module](self).
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_http::cookies::{Cookie, CookieJar, time};
///
/// fn visit(jar: CookieJar) -> (CookieJar, String) {
///     let visits = jar.value("visits").and_then(|visits| visits.parse().ok()).unwrap_or(0) + 1;
///     let visits_cookie = Cookie::build(("visits", visits.to_string()));
///     let jar = jar.add(visits_cookie.max_age(time::Duration::days(30)));
///     (jar, format!("visit {visits}\n"))
/// }
///
/// fn forget(jar: CookieJar) -> CookieJar {
///     jar.remove("visits")
/// }
///
/// let router: Router = Router::new().get("/", visit).post("/forget", forget);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CookieJar {
    jar: cookie::CookieJar,
    is_secure: bool,
}

impl CookieJar {
    /// The cookies of this request, for a layer.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let mut jar = cookie::CookieJar::new();
        let lines = request.headers().get_all(COOKIE).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        for cookie in lines.flat_map(Cookie::split_parse_encoded).flatten() {
            if jar.get(cookie.name()).is_none() {
                jar.add_original(cookie.into_owned());
            }
        }
        let is_secure = Tls::of(request).is_some();
        Self { jar, is_secure }
    }

    /// The cookie of this name: of the request, or one that was added since.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Cookie<'static>> {
        self.jar.get(name)
    }

    /// Its value.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.get(name).map(Cookie::value)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Cookie<'static>> {
        self.jar.iter()
    }

    /// Has the client keep a cookie: `("name", "value")`, or one with attributes of its own.
    #[expect(
        clippy::should_implement_trait,
        reason = "a jar is no sum of it and a cookie"
    )]
    #[must_use = "the jar has to be returned with the response"]
    pub fn add(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
        let cookie = with_defaults(cookie.into(), self.is_secure);
        self.jar.add(cookie);
        self
    }

    /// Has the client forget a cookie: `"name"`, or one with the path and the domain that it was
    /// added with. A client that has not sent it is told nothing.
    #[must_use = "the jar has to be returned with the response"]
    pub fn remove(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
        let cookie = with_defaults(cookie.into(), self.is_secure);
        self.jar.remove(cookie);
        self
    }

    /// Makes all cookies that are added from now on `Secure`: the client speaks TLS with a proxy in
    /// front of this server.
    #[must_use = "the jar has to be returned with the response"]
    pub fn secure(mut self) -> Self {
        self.is_secure = true;
        self
    }
}

/// The cookie with what it does not say: see the module.
fn with_defaults(mut cookie: Cookie<'static>, is_secure: bool) -> Cookie<'static> {
    if cookie.http_only().is_none() {
        cookie.set_http_only(true);
    }
    if cookie.same_site().is_none() {
        cookie.set_same_site(SameSite::Lax);
    }
    if cookie.path().is_none() {
        cookie.set_path("/");
    }
    if cookie.secure().is_none() && is_secure {
        cookie.set_secure(true);
    }
    cookie
}

impl<S> FromRequestParts<S> for CookieJar {
    type Rejection = Infallible;

    const ASKS: Asks = <Tls as FromRequestParts<S>>::ASKS;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(request))
    }
}

/// Beside other cookies of the response, and one line for each.
impl IntoHeaders for CookieJar {
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        for cookie in self.jar.delta() {
            let line = HeaderValue::try_from(cookie.encoded().to_string());
            let line = line.map_err(|reason| InvalidHeader::of(&SET_COOKIE, &reason))?;
            headers.append(SET_COOKIE, line);
        }
        Ok(())
    }
}

impl IntoResponse for CookieJar {
    fn into_response(self) -> Response {
        (self, ()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn request(lines: &[&str]) -> Request {
        let mut request = Request::default();
        for line in lines {
            request
                .headers_mut()
                .append(COOKIE, line.parse().expect("valid"));
        }
        request
    }

    /// What the client is told.
    pub(super) fn told(answer: impl IntoResponse) -> Vec<String> {
        let response = answer.into_response();
        let lines = response.headers().get_all(SET_COOKIE).iter();
        let mut lines: Vec<_> = lines
            .map(|line| line.to_str().expect("ASCII").to_owned())
            .collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn cookies_are_taken_from_every_line_and_the_first_of_a_name_counts() {
        let request = request(&["a=1; b=%C3%A9%3B; a=2", "c=\"x\"; no cookie; =; d=", "a=3"]);
        let jar = CookieJar::of(&request);
        let value = |name| jar.value(name);
        assert_eq!(value("a"), Some("1"));
        assert_eq!(value("b"), Some("é;"));
        assert_eq!(value("c"), Some("\"x\""));
        assert_eq!(value("d"), Some(""));
        assert_eq!(value("e"), None);
        assert_eq!(jar.iter().count(), 4);
        assert_eq!(told(jar), [""; 0], "what was sent is not sent back");
        let mut binary = Request::default();
        let line = HeaderValue::from_bytes(b"a=\xff").expect("valid");
        binary.headers_mut().append(COOKIE, line);
        assert_eq!(CookieJar::of(&binary).iter().count(), 0);
    }

    #[test]
    fn cookies_have_defaults_unless_they_say_otherwise() {
        let jar = CookieJar::default();
        let line = "a=1; HttpOnly; SameSite=Lax; Path=/";
        assert_eq!(told(jar.clone().add(("a", "1"))), [line]);
        let line = "a=1; HttpOnly; SameSite=Lax; Secure; Path=/";
        assert_eq!(told(jar.clone().secure().add(("a", "1"))), [line]);
        let cookie = Cookie::build(("a", "1"))
            .http_only(false)
            .same_site(SameSite::Strict);
        let cookie = cookie
            .path("/b")
            .secure(false)
            .max_age(time::Duration::seconds(7));
        let line = "a=1; SameSite=Strict; Path=/b; Max-Age=7";
        assert_eq!(told(jar.secure().add(cookie)), [line]);
    }

    #[test]
    fn cookies_are_secure_over_tls_and_the_jar_asks_for_it() {
        let mut over_tls = request(&[]);
        let terms = flatpath::TlsTerms::of_client("CN=a");
        over_tls.extensions_mut().insert(Tls(terms.into()));
        let line = "a=1; HttpOnly; SameSite=Lax; Secure; Path=/";
        assert_eq!(told(CookieJar::of(&over_tls).add(("a", "1"))), [line]);
        let asks = <CookieJar as FromRequestParts<()>>::ASKS;
        assert_eq!(asks, <Tls as FromRequestParts<()>>::ASKS);
        assert_ne!(asks, Asks::NOTHING);
    }

    #[test]
    fn no_value_adds_attributes_or_lines() {
        let jar = CookieJar::default().add(("a", "x; Domain=evil\r\nSet-Cookie: b=1"));
        let [line] = &told(jar)[..] else {
            panic!("one line")
        };
        let (value, attributes) = line.split_once(';').expect("attributes");
        assert_eq!(attributes, " HttpOnly; SameSite=Lax; Path=/");
        let back = CookieJar::of(&request(&[value]));
        assert_eq!(back.value("a"), Some("x; Domain=evil\r\nSet-Cookie: b=1"));
    }

    #[test]
    fn jars_stand_beside_each_other_and_forget() {
        let jar = || CookieJar::of(&request(&["a=1; b=2"]));
        let both = (
            jar().add(("c", "3")),
            (jar().remove("a").remove("z"), "content"),
        );
        let lines = told(both);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("a=; HttpOnly; SameSite=Lax; Path=/; Max-Age=0; Expires="));
        assert!(lines[1].starts_with("c=3; "));
        assert_eq!(jar().remove("a").value("a"), None);
        assert_eq!(told(jar().add(("c", "3")).remove("c")), [""; 0]);
    }
}
