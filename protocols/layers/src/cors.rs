//! Cross-origin resource sharing: which pages of other origins may read responses (Fetch standard,
//! 3.2; <https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! | request                                              | answer                              |
//! |------------------------------------------------------|-------------------------------------|
//! | `OPTIONS`, `Origin`, `Access-Control-Request-Method` | 204 by the layer: a preflight       |
//! | any other                                            | the handler's, with the headers     |
//!
//! A response names the origin that asked, and so depends on it (`Vary`), unless every origin is
//! allowed, without credentials: then it is `*` for all. Whatever is not allowed gets the same
//! response without the headers, and the browser keeps it from the page.
//!
//! What it does not do: keep a page from sending what a form could send, too. For that there is
//! [`Http::origins`](flatpath_http::Http::origins).
//!
//! Cost: one look at `Origin`; a comparison for each allowed origin.

use std::fmt;
use std::time::Duration;

use flatpath_http::{Answer, Layer, Next, OriginPattern, Request, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use http::{Method, StatusCode};

use crate::vary;

/// Lets pages of other origins read responses.
///
/// It belongs around all others, so added last: then refusals of the layers inside have the headers
/// too, and preflights, which have no credentials, do not meet authentication.
///
/// ```
/// use std::time::Duration;
///
/// use flatpath_http::http::Method;
/// use flatpath_http::http::header::{AUTHORIZATION, CONTENT_TYPE};
/// use flatpath_http::{InvalidOrigin, Router};
/// use flatpath_layers::Cors;
///
/// # fn main() -> Result<(), InvalidOrigin> {
/// let cors = Cors::origins(["https://app.example.org".parse()?])
///     .methods([Method::GET, Method::PUT])
///     .headers([AUTHORIZATION, CONTENT_TYPE])
///     .credentials()
///     .max_age(Duration::from_secs(3600));
/// let router: Router = Router::new().get("/", || "hello\n").layer(cors);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cors {
    origins: Allowed,
    methods: List,
    headers: List,
    exposed: List,
    has_credentials: bool,
    max_age: Option<HeaderValue>,
}

/// Which origins.
enum Allowed {
    Any,
    Named(Vec<OriginPattern>),
    Where(Box<IsAllowed>),
}

type IsAllowed = dyn Fn(&[u8]) -> bool + Send + Sync;

/// What a header lists.
#[derive(Debug)]
enum List {
    /// `*`.
    Any,
    /// What the request asks for.
    Mirrored,
    /// This; an empty value is not sent.
    Named(HeaderValue),
}

impl Cors {
    /// Allows every origin.
    #[must_use]
    pub fn any() -> Self {
        Self::new(Allowed::Any)
    }

    /// Allows these origins; `*` among them is every one.
    #[must_use]
    pub fn origins(origins: impl IntoIterator<Item = OriginPattern>) -> Self {
        let named: Vec<_> = origins.into_iter().collect();
        match named.iter().any(OriginPattern::is_any) {
            true => Self::any(),
            false => Self::new(Allowed::Named(named)),
        }
    }

    /// Allows the origins for which this is true. It gets the value of `Origin`, as in
    /// `https://app.example.org`, or `null`.
    ///
    /// ```
    /// let of_ours = |origin: &[u8]| {
    ///     origin.starts_with(b"https://") && origin.ends_with(b".example.org")
    /// };
    /// let cors = flatpath_layers::Cors::matching(of_ours);
    /// ```
    #[must_use]
    pub fn matching(is_allowed: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Allowed::Where(Box::new(is_allowed)))
    }

    fn new(origins: Allowed) -> Self {
        Self {
            origins,
            methods: List::of(&[]),
            headers: List::of(&[]),
            exposed: List::of(&[]),
            has_credentials: false,
            max_age: None,
        }
    }

    /// Allows these methods, besides GET, HEAD and POST, which a browser sends without asking.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods: Vec<_> = methods.into_iter().collect();
        self.methods = List::of(&methods.iter().map(Method::as_str).collect::<Vec<_>>());
        self
    }

    /// Allows every method.
    ///
    /// # Panics
    /// With [`credentials`](Self::credentials).
    #[must_use]
    #[track_caller]
    pub fn any_method(mut self) -> Self {
        self.methods = List::Any;
        self.checked()
    }

    /// Allows these headers of requests, besides those that a form sends, too.
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers = List::of_names(headers);
        self
    }

    /// Allows every header of requests but `Authorization`, which has to be named.
    ///
    /// # Panics
    /// With [`credentials`](Self::credentials).
    #[must_use]
    #[track_caller]
    pub fn any_header(mut self) -> Self {
        self.headers = List::Any;
        self.checked()
    }

    /// Allows the headers that the browser asks for, whatever they are, with credentials too.
    #[must_use]
    pub fn mirrored_headers(mut self) -> Self {
        self.headers = List::Mirrored;
        self
    }

    /// Shows these headers of responses to pages, besides `Cache-Control`, `Content-Type` and a few
    /// others that they see in any case.
    #[must_use]
    pub fn expose(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.exposed = List::of_names(headers);
        self
    }

    /// Shows every header of responses to pages.
    ///
    /// # Panics
    /// With [`credentials`](Self::credentials).
    #[must_use]
    #[track_caller]
    pub fn expose_any(mut self) -> Self {
        self.exposed = List::Any;
        self.checked()
    }

    /// Lets pages send cookies, passwords and certificates of their users, and read the responses
    /// to that. Name the origins: a page of any of them acts for its user.
    ///
    /// # Panics
    /// With every origin, method, header of requests or exposed header: for requests with
    /// credentials `*` is no wildcard (Fetch standard, 3.2.5).
    #[must_use]
    #[track_caller]
    pub fn credentials(mut self) -> Self {
        self.has_credentials = true;
        self.checked()
    }

    /// How long a browser may keep the answer to a preflight: 5 seconds without this. Browsers have
    /// bounds of their own, of hours.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(HeaderValue::from(age.as_secs()));
        self
    }

    #[track_caller]
    fn checked(self) -> Self {
        let wildcard = match () {
            () if matches!(self.origins, Allowed::Any) => Some("origin"),
            () if matches!(self.methods, List::Any) => Some("method"),
            () if matches!(self.headers, List::Any) => Some("header"),
            () if matches!(self.exposed, List::Any) => Some("exposed header"),
            () => None,
        };
        if let Some(what) = wildcard.filter(|_| self.has_credentials) {
            panic!("CORS: with credentials a browser does not take * for every {what}; name them");
        }
        self
    }

    /// What a service that adds the headers by itself says to a preflight from an origin that is
    /// allowed. `None` of any other request.
    #[must_use]
    pub fn preflight_of(&self, request: &Request) -> Option<Response> {
        let is_answered = is_preflight(request) && self.allowed(request).is_some();
        is_answered.then(|| self.preflight(request))
    }

    /// The headers that such a service adds to its response to this request, whatever that is; none
    /// where the origin is not allowed. `Vary` is among them if other origins get others.
    #[must_use]
    pub fn granted(&self, request: &Request) -> HeaderMap {
        let mut granted = self.grant(request);
        if granted.is_empty() {
            return granted;
        }
        granted.extend(
            self.exposed
                .value(None)
                .map(|it| (ACCESS_CONTROL_EXPOSE_HEADERS, it)),
        );
        if self.depends_on_origin() {
            granted.insert(VARY, HeaderValue::from(ORIGIN));
        }
        granted
    }

    /// The value of `Access-Control-Allow-Origin` for a request.
    fn allowed(&self, request: &Request) -> Option<HeaderValue> {
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let origin = origins.next().filter(|_| origins.next().is_none());
        match &self.origins {
            // The same for all, so that caches need not keep one for each origin.
            Allowed::Any => Some(HeaderValue::from_static("*")),
            Allowed::Named(named) => origin
                .filter(|origin| named.iter().any(|it| it.matches(origin.as_bytes())))
                .cloned(),
            Allowed::Where(is_allowed) => origin
                .filter(|origin| is_allowed(origin.as_bytes()))
                .cloned(),
        }
    }

    /// What the response to this request grants, whoever makes it; nothing where its origin is not
    /// allowed.
    fn grant(&self, request: &Request) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(origin) = self.allowed(request) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            if self.has_credentials {
                let yes = HeaderValue::from_static("true");
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
            }
        }
        headers
    }

    /// Whether another origin may get another response.
    fn depends_on_origin(&self) -> bool {
        !matches!(self.origins, Allowed::Any)
    }

    fn preflight(&self, request: &Request) -> Response {
        let mut headers = self.grant(request);
        let asked = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS);
        if !headers.is_empty() {
            let methods = self.methods.value(None);
            let named = self.headers.value(asked);
            for (name, value) in [
                (ACCESS_CONTROL_ALLOW_METHODS, methods),
                (ACCESS_CONTROL_ALLOW_HEADERS, named),
                (ACCESS_CONTROL_MAX_AGE, self.max_age.clone()),
            ] {
                headers.extend(value.map(|value| (name, value)));
            }
        }
        if self.depends_on_origin() {
            vary::add(&mut headers, &ORIGIN);
        }
        if matches!(self.headers, List::Mirrored) {
            vary::add(&mut headers, &ACCESS_CONTROL_REQUEST_HEADERS);
        }
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        *response.headers_mut() = headers;
        response
    }
}

impl Layer for Cors {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        if is_preflight(&request) {
            return self.preflight(&request).into();
        }
        let mut granted = self.grant(&request);
        if let Some(exposed) = self.exposed.value(None).filter(|_| !granted.is_empty()) {
            granted.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        let depends_on_origin = self.depends_on_origin();
        next.run(request).map(move |mut response: Response| {
            let headers = response.headers_mut();
            // What a handler grants by itself is not to go beyond this.
            for name in [
                ACCESS_CONTROL_ALLOW_ORIGIN,
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                ACCESS_CONTROL_EXPOSE_HEADERS,
            ] {
                headers.remove(name);
            }
            headers.extend(granted);
            if depends_on_origin {
                vary::add(headers, &ORIGIN);
            }
            response
        })
    }
}

fn is_preflight(request: &Request) -> bool {
    let asks = |name| request.headers().contains_key(name);
    request.method() == Method::OPTIONS && asks(ORIGIN) && asks(ACCESS_CONTROL_REQUEST_METHOD)
}

impl List {
    fn of(names: &[&str]) -> Self {
        // Names and methods are tokens, so it is a value.
        let value = HeaderValue::try_from(names.join(", "));
        Self::Named(value.unwrap_or(HeaderValue::from_static("")))
    }

    fn of_names(names: impl IntoIterator<Item = HeaderName>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        Self::of(&names.iter().map(HeaderName::as_str).collect::<Vec<_>>())
    }

    /// The header's value, where it is to be sent.
    fn value(&self, asked: Option<&HeaderValue>) -> Option<HeaderValue> {
        match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::Mirrored => asked.cloned(),
            Self::Named(value) => Some(value).filter(|value| !value.is_empty()).cloned(),
        }
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Named(named) => formatter.debug_list().entries(named).finish(),
            Self::Where(_) => formatter.write_str("(a function)"),
        }
    }
}
