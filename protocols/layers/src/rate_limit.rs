//! A limit of the rate of requests, by client address.
//!
//! Each address has a theoretical arrival time (GCRA, the generic cell rate algorithm of ATM: a
//! leaky bucket as a meter). A request moves it on by the time that one request is worth; one that
//! comes while it lies too far in the future is refused. So a limit is one number for an address,
//! and no thread fills buckets.
//!
//! | what                    | bound                                                          |
//! |-------------------------|----------------------------------------------------------------|
//! | addresses known at once | [`RateLimit::addresses_max`]; memory for all is taken at start |
//! | one address             | IPv4, or the first 64 bits of IPv6: one subscriber             |
//!
//! Cost: a hash, a lock of eight entries, and a look at these (`table`).

mod table;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use flatpath::address_limit::subscriber;
use flatpath_http::{Answer, IntoAnswer, Layer, Next, Peer, Request};
use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::clock;
use table::Table;

/// The addresses that are known at once unless it is told otherwise: 544 KiB.
const ADDRESSES_MAX: usize = 16 * 1024;

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
    /// The time that one request is worth.
    interval_ns: u64,
    burst: u32,
    addresses_max: usize,
    table: Table,
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
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            interval_ns: (time_ns / u64::from(requests)).max(1),
            burst: requests,
            addresses_max: ADDRESSES_MAX,
            table: Table::new(ADDRESSES_MAX),
            now: Box::new(clock::since_now()),
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
        self.burst = requests;
        self
    }

    /// How many addresses are known at once, rounded up to a multiple of eight; each takes 34
    /// bytes, from the start. 16,384 unless set.
    #[must_use]
    pub fn addresses_max(mut self, addresses: usize) -> Self {
        self.addresses_max = addresses;
        self.table = Table::new(addresses);
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
    fn admit(&self, address: IpAddr) -> Result<(), Duration> {
        let now_ns = u64::try_from((self.now)().as_nanos()).unwrap_or(u64::MAX);
        let tolerance_ns = self.interval_ns.saturating_mul(u64::from(self.burst) - 1);
        self.table.update(address, |arrival_ns| {
            let ahead_ns = arrival_ns.saturating_sub(now_ns);
            match ahead_ns.checked_sub(tolerance_ns) {
                None | Some(0) => Ok(arrival_ns.max(now_ns).saturating_add(self.interval_ns)),
                Some(wait_ns) => Err(Duration::from_nanos(wait_ns)),
            }
        })
    }
}

impl Layer for RateLimit {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        // Its ports and its hosts do not count.
        let address = (self.address_of)(&request).map(|it| subscriber(SocketAddr::new(it, 0)));
        match address.map_or(Ok(()), |address| self.admit(address)) {
            Ok(()) => next.run(request),
            Err(wait) => {
                // Rounded up: who comes then is admitted.
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                let retry = [(RETRY_AFTER, seconds.to_string())];
                (StatusCode::TOO_MANY_REQUESTS, retry, "too many requests\n").into_answer()
            }
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RateLimit")
            .field("interval", &Duration::from_nanos(self.interval_ns))
            .field("burst", &self.burst)
            .field("addresses_max", &self.addresses_max)
            .finish_non_exhaustive()
    }
}
