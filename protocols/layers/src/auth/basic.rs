//! Names and passwords in `Authorization` (RFC 7617).

use std::fmt;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use flatpath_http::{Answer, Layer, Next, Request};
use http::header::HeaderValue;

use super::secret::{SECRET_BYTES_MAX, Secret};
use super::{AuthUser, Check, admit, challenge, credentials, find, refuse};

/// Some clients leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Lets requests in that come with a name and a password which are right: 401 for all others, for
/// which a browser asks its user.
///
/// The name is put into the request's extensions as [`AuthUser`].
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::BasicAuth;
///
/// let auth = BasicAuth::new("staff", [("ada", "a long password"), ("bob", "another one")]);
/// let router: Router = Router::new().get("/", || "hello\n").layer(auth);
/// ```
pub struct BasicAuth {
    challenge: HeaderValue,
    check: Check<Sent>,
}

/// A name and a password as they were sent.
pub(crate) struct Sent {
    pub(crate) name: String,
    pub(crate) password: String,
}

impl BasicAuth {
    /// Admits these names with these passwords. For more than a few dozen use
    /// [`checked`](Self::checked): each request is compared with all of them.
    ///
    /// # Panics
    /// If a name has a colon, a name or a password is longer than 512 bytes, or the realm is not
    /// visible ASCII without quotes.
    #[must_use]
    #[track_caller]
    pub fn new<N: AsRef<str>, P: AsRef<str>>(
        realm: &str,
        users: impl IntoIterator<Item = (N, P)>,
    ) -> Self {
        let mut known = Vec::new();
        for (name, password) in users {
            let (name, password) = (name.as_ref(), password.as_ref());
            assert!(
                !name.contains(':'),
                "a name has no colon (RFC 7617, 2): {name:?}"
            );
            let secrets = Secret::new(name.as_bytes()).zip(Secret::new(password.as_bytes()));
            let Some(secrets) = secrets else {
                panic!("the name or the password of {name:?} is above {SECRET_BYTES_MAX} bytes");
            };
            known.push((secrets, AuthUser(name.into())));
        }
        Self::checked(realm, move |name, password| {
            let (name, password) =
                Secret::new(name.as_bytes()).zip(Secret::new(password.as_bytes()))?;
            find(&known, |(known_name, known_password)| {
                known_name.is(&name) & known_password.is(&password)
            })
        })
    }

    /// Admits what this function finds: it gets the name and the password, and what it returns is
    /// put into the request's extensions, for `Extension` arguments of handlers. It runs where the
    /// handler runs: look passwords up, and hash them, on workers alone.
    ///
    /// ```
    /// use flatpath_layers::BasicAuth;
    ///
    /// #[derive(Clone)]
    /// struct Account(u64);
    ///
    /// fn look_up(name: &str, password: &str) -> Option<Account> {
    ///     # let _ = (name, password);
    ///     None // In a database, by a hash that is slow.
    /// }
    ///
    /// let auth = BasicAuth::checked("staff", look_up);
    /// ```
    ///
    /// # Panics
    /// If the realm is not visible ASCII without quotes.
    #[must_use]
    #[track_caller]
    pub fn checked<U: Clone + Send + Sync + 'static>(
        realm: &str,
        check: impl Fn(&str, &str) -> Option<U> + Send + Sync + 'static,
    ) -> Self {
        Self {
            challenge: challenge("Basic", realm, ", charset=\"UTF-8\""),
            check: Box::new(move |sent: &Sent, request: &mut Request| {
                admit(check(&sent.name, &sent.password), request)
            }),
        }
    }
}

impl Sent {
    fn by(request: &Request) -> Option<Self> {
        Self::decode(credentials(request, "Basic")?)
    }

    /// Those of a value of `Authorization`.
    #[cfg(feature = "htpasswd")]
    pub(crate) fn of(value: &[u8]) -> Option<Self> {
        Self::decode(super::credentials_of(value, "Basic")?)
    }

    fn decode(text: &str) -> Option<Self> {
        let decoded = BASE64.decode(text).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (name, password) = text.split_once(':')?;
        // RFC 7617, 2: neither has control characters.
        let is_sound = !text.chars().any(char::is_control);
        is_sound.then(|| Self {
            name: name.to_owned(),
            password: password.to_owned(),
        })
    }
}

impl Layer for BasicAuth {
    fn call(&self, mut request: Request, next: &Next<'_>) -> Answer {
        match Sent::by(&request).is_some_and(|sent| (self.check)(&sent, &mut request)) {
            true => next.run(request),
            false => refuse(self.challenge.clone()).into(),
        }
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("BasicAuth");
        shown
            .field("challenge", &self.challenge)
            .finish_non_exhaustive()
    }
}
