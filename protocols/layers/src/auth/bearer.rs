//! Tokens in `Authorization`, each of which stands for a sender (RFC 6750).

use std::fmt;

use flatpath_http::{Answer, Layer, Next, Request};
use http::header::{AUTHORIZATION, HeaderValue};

use super::secret::{SECRET_BYTES_MAX, Secret};
use super::{AuthUser, Check, admit, challenge, credentials, find, refuse};

/// Lets requests in that come with a token which is right: 401 for all others.
///
/// The name that the list has for the token is put into the request's extensions as [`AuthUser`].
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::BearerAuth;
///
/// let token = std::env::var("API_TOKEN").unwrap_or_else(|_| "for tests".to_owned());
/// let auth = BearerAuth::new("api", [(token, "deploy")]);
/// let router: Router = Router::new().get("/", || "hello\n").layer(auth);
/// ```
pub struct BearerAuth {
    without: HeaderValue,
    invalid: HeaderValue,
    check: Check<str>,
}

impl BearerAuth {
    /// Admits these tokens, each under a name. For more than a few dozen use
    /// [`checked`](Self::checked): each request is compared with all of them.
    ///
    /// # Panics
    /// If a token is empty or longer than 512 bytes, or the realm is not visible ASCII without
    /// quotes.
    #[must_use]
    #[track_caller]
    pub fn new<T: AsRef<str>, N: AsRef<str>>(
        realm: &str,
        tokens: impl IntoIterator<Item = (T, N)>,
    ) -> Self {
        let mut known = Vec::new();
        for (token, name) in tokens {
            let (token, name) = (token.as_ref(), name.as_ref());
            assert!(!token.is_empty(), "the token of {name:?} is empty");
            let Some(secret) = Secret::new(token.as_bytes()) else {
                panic!("the token of {name:?} is longer than {SECRET_BYTES_MAX} bytes");
            };
            known.push((secret, AuthUser(name.into())));
        }
        Self::checked(realm, move |token| {
            let token = Secret::new(token.as_bytes())?;
            find(&known, |known_token: &Secret| known_token.is(&token))
        })
    }

    /// Admits the tokens for which this function finds something, which is put into the request's
    /// extensions, for `Extension` arguments of handlers. It runs where the handler runs.
    ///
    /// ```
    /// use flatpath_layers::BearerAuth;
    ///
    /// #[derive(Clone)]
    /// struct Claims {
    ///     subject: String,
    /// }
    ///
    /// fn verify(token: &str) -> Option<Claims> {
    ///     # let _ = token;
    ///     None // With a crate for JSON Web Tokens, say.
    /// }
    ///
    /// let auth = BearerAuth::checked("api", verify);
    /// ```
    ///
    /// # Panics
    /// If the realm is not visible ASCII without quotes.
    #[must_use]
    #[track_caller]
    pub fn checked<U: Clone + Send + Sync + 'static>(
        realm: &str,
        check: impl Fn(&str) -> Option<U> + Send + Sync + 'static,
    ) -> Self {
        Self {
            without: challenge("Bearer", realm, ""),
            invalid: challenge("Bearer", realm, ", error=\"invalid_token\""),
            check: Box::new(move |token: &str, request: &mut Request| admit(check(token), request)),
        }
    }
}

impl Layer for BearerAuth {
    fn call(&self, mut request: Request, next: &Next<'_>) -> Answer {
        let token = credentials(&request, "Bearer").map(str::to_owned);
        if token.is_some_and(|token| (self.check)(&token, &mut request)) {
            return next.run(request);
        }
        // RFC 6750, 3.1: no error code where no authentication was tried.
        let challenge = match request.headers().contains_key(AUTHORIZATION) {
            true => &self.invalid,
            false => &self.without,
        };
        refuse(challenge.clone()).into()
    }
}

impl fmt::Debug for BearerAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("BearerAuth");
        shown
            .field("challenge", &self.without)
            .finish_non_exhaustive()
    }
}
