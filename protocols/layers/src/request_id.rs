//! Request ids: one name for a request in logs, in the response and at the services that it calls.
//!
//! Cost: two hashes and one allocation for an id that is made.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath_http::{Answer, Layer, Next, Request, RequestId, Response};
use http::header::{HeaderName, HeaderValue};

/// The longest id that is taken from a request, in bytes.
const TAKEN_BYTES_MAX: usize = 128;

/// Gives each request an id: a [`RequestId`] for handlers, layers and the access log, and the
/// header `X-Request-Id` of its response.
///
/// An id that is made has 32 hexadecimal digits. It is unique as far as 128 bits that nothing
/// predicts are, and tells nothing of time or of the number of requests.
///
/// ```
/// use flatpath_http::flatpath::Subnet;
/// use flatpath_http::{Peer, Request, Router};
/// use flatpath_layers::SetRequestId;
///
/// # fn main() -> Result<(), flatpath_http::flatpath::BadSubnet> {
/// let balancers: Subnet = "10.0.0.0/8".parse()?;
/// let by_balancer = move |request: &Request| {
///     Peer::of(request).is_some_and(|peer| balancers.contains(peer.ip()))
/// };
/// let ids = SetRequestId::new().trust(by_balancer);
/// let router: Router = Router::new().get("/", || "hello\n").layer(ids);
/// # Ok(())
/// # }
/// ```
pub struct SetRequestId {
    header: HeaderName,
    keys: [RandomState; 2],
    made: AtomicU64,
    trusts: Option<Box<Trusts>>,
}

type Trusts = dyn Fn(&Request) -> bool + Send + Sync;

impl SetRequestId {
    /// Makes an id for each request, whatever its client has sent.
    #[must_use]
    pub fn new() -> Self {
        Self {
            header: HeaderName::from_static("x-request-id"),
            keys: [RandomState::new(), RandomState::new()],
            made: AtomicU64::new(0),
            trusts: None,
        }
    }

    /// The header that has the id, in place of `X-Request-Id`.
    #[must_use]
    pub fn header(self, header: HeaderName) -> Self {
        Self { header, ..self }
    }

    /// Keeps the id that a request brings in the header, where this is true of the request: the
    /// ids of a proxy in front, not those of clients. An id that is not 1 to 128 visible ASCII
    /// characters is not kept.
    #[must_use]
    pub fn trust(self, trusts: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        let trusts: Option<Box<Trusts>> = Some(Box::new(trusts));
        Self { trusts, ..self }
    }

    fn kept(&self, request: &Request) -> Option<HeaderValue> {
        let mut values = request.headers().get_all(&self.header).iter();
        let id = values.next().filter(|_| values.next().is_none())?;
        let is_sound = (1..=TAKEN_BYTES_MAX).contains(&id.len())
            && id.as_bytes().iter().all(u8::is_ascii_graphic);
        let trusts = self.trusts.as_ref()?;
        (is_sound && trusts(request)).then(|| id.clone())
    }

    fn make(&self) -> HeaderValue {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(number));
        let id = HeaderValue::try_from(format!("{high:016x}{low:016x}"));
        id.unwrap_or(HeaderValue::from_static("-"))
    }
}

impl Default for SetRequestId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SetRequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SetRequestId");
        shown.field("header", &self.header).finish_non_exhaustive()
    }
}

impl Layer for SetRequestId {
    fn call(&self, mut request: Request, next: &Next<'_>) -> Answer {
        let id = self.kept(&request).unwrap_or_else(|| self.make());
        let named = RequestId::new(id.clone());
        request.extensions_mut().insert(named.clone());
        let header = self.header.clone();
        next.run(request).map(move |mut response: Response| {
            response.headers_mut().insert(header, id);
            response.extensions_mut().insert(named);
            response
        })
    }
}
