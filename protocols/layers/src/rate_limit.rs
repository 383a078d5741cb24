//! A limit of the rate of requests, by client address.
//!
//! Each address has a theoretical arrival time (GCRA, the generic cell rate algorithm of ATM: a
//! leaky bucket as a meter; `rate`). A request moves it on by the time that one request is worth;
//! one that comes while it lies too far in the future is refused. So a limit is one number for an
//! address, and no thread fills buckets.
//!
//! | what                    | bound                                                          |
//! |-------------------------|----------------------------------------------------------------|
//! | addresses known at once | [`RateLimit::addresses_max`]; memory for all is taken at start |
//! | one address             | IPv4, or the first 64 bits of IPv6: one subscriber             |
//!
//! Cost: a hash, a lock of eight entries, and a look at these (`table`).

pub(crate) mod rate;
pub(crate) mod table;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use flatpath_http::{Answer, IntoResponse, Layer, Next, Peer, Request, Response};
use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::clock;
use rate::{Rate, whole_seconds};

/// The addresses that are known at once unless it is told otherwise: 544 KiB.
pub(crate) const ADDRESSES_MAX: usize = 16 * 1024;

/// Refuses requests of addresses that send more than a rate: 429, with `Retry-After` in seconds.
///
/// Requests without an address, as those by a Unix socket, are not limited. An address is known
/// while it has used some of its rate. When more of them are than there is room for, those that
/// have used least are forgotten, and have all of theirs again.
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::RateLimit;
///
/// // Ten at once, and then one each tenth of a second.
/// let limit = RateLimit::per_second(10);
/// let router: Router = Router::new().get("/", || "hello\n").layer(limit);
/// ```
pub struct RateLimit {
    rate: Rate,
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    address_of: Box<AddressOf>,
}

type AddressOf = dyn Fn(&Request) -> Option<IpAddr> + Send + Sync;

impl RateLimit {
    /// So many requests of an address in that time, all of them at once where its client likes.
    ///
    /// # Panics
    /// With 0 requests.
    #[must_use]
    #[track_caller]
    pub fn new(requests: u32, time: Duration) -> Self {
        assert!(
            requests > 0,
            "a rate limit of 0 requests refuses everything"
        );
        Self {
            rate: Rate::new(u64::from(requests), time, ADDRESSES_MAX),
            now: Box::new(clock::since_begun),
            address_of: Box::new(|request| Peer::of(request).map(|peer| peer.ip())),
        }
    }

    /// [`RateLimit::new`] of a second.
    ///
    /// # Panics
    /// With 0 requests.
    #[must_use]
    #[track_caller]
    pub fn per_second(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(1))
    }

    /// [`RateLimit::new`] of a minute.
    ///
    /// # Panics
    /// With 0 requests.
    #[must_use]
    #[track_caller]
    pub fn per_minute(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(60))
    }

    /// How many requests may come at once, from a client that has sent none for a while.
    ///
    /// # Panics
    /// With 0 requests.
    #[must_use]
    #[track_caller]
    pub fn burst(mut self, requests: u32) -> Self {
        assert!(requests > 0, "a burst of 0 requests refuses everything");
        self.rate = self.rate.burst(u64::from(requests));
        self
    }

    /// How many addresses are known at once, rounded up to a multiple of eight; each takes 34
    /// bytes, from the start. 16,384 unless set.
    #[must_use]
    pub fn addresses_max(mut self, addresses: usize) -> Self {
        self.rate = self.rate.addresses_max(addresses);
        self
    }

    /// Where the address comes from, in place of [`Peer`]. Do not take it from a header that
    /// clients may send themselves.
    #[must_use]
    pub fn by(
        mut self,
        address_of: impl Fn(&Request) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.address_of = Box::new(address_of);
        self
    }

    /// Another clock, for tests: the time since any beginning. It must not go back.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::Duration;
    ///
    /// let seconds = Arc::new(AtomicU64::new(0));
    /// let clock = Arc::clone(&seconds);
    /// let limit = flatpath_layers::RateLimit::per_second(10)
    ///     .clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
    /// ```
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.now = Box::new(now);
        self
    }

    /// Counts a request. The error is the time after which the next one is admitted.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<(), Duration> {
        self.rate.admit(address, (self.now)(), 1)
    }

    /// Continues what the same limit has counted.
    pub(crate) fn continuing(self, before: &Self) -> Self {
        let rate = self.rate.continuing(&before.rate);
        Self { rate, ..self }
    }
}

/// The refusal of an address that has used its rate (RFC 6585, 4).
pub(crate) fn too_many(wait: Duration) -> Response {
    let retry = [(RETRY_AFTER, whole_seconds(wait).to_string())];
    (StatusCode::TOO_MANY_REQUESTS, retry, "too many requests\n").into_response()
}

impl Layer for RateLimit {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let address = (self.address_of)(&request);
        match address.map_or(Ok(()), |address| self.admit(address)) {
            Ok(()) => next.run(request),
            Err(wait) => too_many(wait).into(),
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RateLimit")
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}
