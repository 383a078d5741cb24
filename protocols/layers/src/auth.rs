//! Who sends a request: passwords and tokens (RFC 9110, 11).
//!
//! | layer          | scheme              | refuses with 401 and                                |
//! |----------------|---------------------|-----------------------------------------------------|
//! | [`BasicAuth`]  | `Basic` (RFC 7617)  | `Basic realm="...", charset="UTF-8"`                |
//! | [`BearerAuth`] | `Bearer` (RFC 6750) | `Bearer realm="..."`, of a bad token with its error |
//!
//! Names and secrets that the program lists are compared in a time that depends on none of them:
//! each request is compared with every entry, and an entry with all of `SECRET_BYTES_MAX`.
//! Where the program checks by a function of its own, how it compares is its own affair.
//!
//! Without TLS both schemes show their secrets to all who see the connection.
//!
//! Cost: some 1,000 bytes compared for each entry of a list.

mod basic;
mod bearer;
mod secret;

use std::fmt;
use std::sync::Arc;

use flatpath_http::{IntoResponse, Request, Response};
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use subtle::Choice;

pub use basic::BasicAuth;
#[cfg(feature = "htpasswd")]
pub(crate) use basic::Sent;
pub use bearer::BearerAuth;

/// The name under which a layer's list has the sender of a request: an extension of the request.
///
/// ```
/// use flatpath_http::{Extension, Router};
/// use flatpath_layers::{AuthUser, BasicAuth};
///
/// fn greet(Extension(user): Extension<AuthUser>) -> String {
///     format!("hello, {user}\n")
/// }
///
/// let auth = BasicAuth::new("staff", [("ada", "a long password")]);
/// let router: Router = Router::new().get("/", greet).layer(auth);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthUser(Arc<str>);

impl AuthUser {
    #[cfg(feature = "htpasswd")]
    pub(crate) fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuthUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a check of credentials ends with: the request with what is known of its sender.
type Check<C> = Box<dyn Fn(&C, &mut Request) -> bool + Send + Sync>;

/// The entry of a list whose secrets `is_it` finds right. It is asked for all entries, whatever
/// came before.
fn find<K>(known: &[(K, AuthUser)], is_it: impl Fn(&K) -> Choice) -> Option<AuthUser> {
    let mut found = None;
    for (secrets, user) in known {
        if is_it(secrets).into() {
            found = Some(user.clone());
        }
    }
    found
}

/// Puts what is known of a sender into the request; false if nothing is.
fn admit<U: Clone + Send + Sync + 'static>(user: Option<U>, request: &mut Request) -> bool {
    let user = user.map(|user| request.extensions_mut().insert(user));
    user.is_some()
}

/// The challenge of a realm.
#[track_caller]
pub(crate) fn challenge(scheme: &str, realm: &str, parameters: &str) -> HeaderValue {
    let is_plain = |it: char| it == ' ' || it.is_ascii_graphic() && it != '"' && it != '\\';
    assert!(
        realm.chars().all(is_plain),
        "a realm is ASCII without quotes, backslashes and line ends: {realm:?}"
    );
    let challenge = HeaderValue::try_from(format!("{scheme} realm=\"{realm}\"{parameters}"));
    challenge.unwrap_or(HeaderValue::from_static("Basic"))
}

/// What follows a scheme in `Authorization`: `None` also where the header is there twice.
fn credentials<'a>(request: &'a Request, scheme: &str) -> Option<&'a str> {
    let values = request.headers().get_all(AUTHORIZATION).iter();
    credentials_of(only(values.map(HeaderValue::as_bytes))?, scheme)
}

/// The value that is alone.
pub(crate) fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let value = values.next();
    value.filter(|_| values.next().is_none())
}

/// What follows a scheme in a value of `Authorization`.
fn credentials_of<'a>(value: &'a [u8], scheme: &str) -> Option<&'a str> {
    // As `HeaderValue::to_str`.
    let is_visible = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let value = std::str::from_utf8(value).ok();
    let value = value.filter(|value| value.as_bytes().iter().all(is_visible))?;
    let (named, rest) = value.split_once(' ')?;
    // RFC 9110, 11.1: the scheme is compared without regard to case, and spaces follow it.
    named
        .eq_ignore_ascii_case(scheme)
        .then(|| rest.trim_matches(' '))
}

pub(crate) fn refuse(challenge: HeaderValue) -> Response {
    let challenge = [(WWW_AUTHENTICATE, challenge)];
    (StatusCode::UNAUTHORIZED, challenge, "not authorized\n").into_response()
}
