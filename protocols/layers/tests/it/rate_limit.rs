//! Limits of rates, by a clock of the test's own.

use std::net::{IpAddr, SocketAddr};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flatpath_http::{Request, Router};
use flatpath_layers::RateLimit;
use flatpath_test::each_seed;

use crate::{Site, path};

/// A clock that tests turn on.
#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn advance(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).expect("short");
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let clock = self.clone();
        move || Duration::from_millis(clock.0.load(Ordering::Relaxed))
    }

    pub(crate) fn of(&self, limit: RateLimit) -> RateLimit {
        limit.clock(self.now())
    }
}

pub(crate) fn peer(text: &str, port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::new(text.parse().expect("an address"), port))
}

/// How many of so many requests are admitted now.
fn admitted(site: &mut Site, address: &str, requests: u16) -> u16 {
    let ask = |port| {
        site.ask_from(peer(address, 1000 + port), "GET /", &[], "")
            .status
    };
    let statuses: Vec<_> = (0..requests).map(ask).collect();
    assert!(
        statuses.iter().all(|it| [200, 429].contains(it)),
        "{statuses:?}"
    );
    let admitted = statuses.iter().filter(|it| **it == 200).count();
    u16::try_from(admitted).expect("few")
}

#[test]
fn sim_an_address_has_a_burst_and_then_its_rate() {
    each_seed(3, |seed| {
        let clock = Clock::default();
        let limit = clock.of(RateLimit::per_second(2).burst(5));
        let mut site = Site::new(seed, Router::new().get("/", path).layer(limit));
        let mut ask = |requests| admitted(&mut site, "192.0.2.1", requests);
        assert_eq!(ask(7), 5, "the burst");
        assert_eq!(ask(3), 0);
        clock.advance(Duration::from_millis(499));
        assert_eq!(ask(1), 0, "half a second is not over");
        clock.advance(Duration::from_millis(1));
        assert_eq!(ask(2), 1);
        clock.advance(Duration::from_secs(1));
        assert_eq!(ask(3), 2);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(ask(9), 5, "no more than the burst is saved up");
    });
}

#[test]
fn sim_a_refusal_says_when_to_come_again() {
    let clock = Clock::default();
    let limit = clock.of(RateLimit::new(2, Duration::from_secs(7)));
    let mut site = Site::new(1, Router::new().get("/", path).layer(limit));
    let mut ask = || site.ask_from(peer("192.0.2.1", 1), "GET /", &[], "");
    assert_eq!((ask().status, ask().status), (200, 200));
    let refused = ask();
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (429, Some("4"))
    );
    clock.advance(Duration::from_millis(2500));
    assert_eq!(ask().field("retry-after"), Some("1"));
    clock.advance(Duration::from_millis(999));
    assert_eq!(ask().field("retry-after"), Some("1"));
    clock.advance(Duration::from_millis(1));
    assert_eq!(ask().status, 200);
}

#[test]
fn sim_a_subscriber_is_one_address() {
    let limit = Clock::default().of(RateLimit::per_minute(2));
    let mut site = Site::new(2, Router::new().get("/", path).layer(limit));
    assert_eq!(admitted(&mut site, "2001:db8:0:1::1", 1), 1);
    assert_eq!(admitted(&mut site, "2001:db8:0:1:ffff::2", 2), 1);
    assert_eq!(
        admitted(&mut site, "2001:db8:0:2::1", 3),
        2,
        "another network"
    );
    assert_eq!(admitted(&mut site, "192.0.2.1", 1), 1);
    assert_eq!(
        admitted(&mut site, "::ffff:192.0.2.1", 2),
        1,
        "the same by IPv6"
    );
    assert_eq!(admitted(&mut site, "192.0.2.2", 3), 2, "the next one");
}

#[test]
fn sim_requests_without_an_address_are_not_limited_and_a_function_may_name_it() {
    let router = || Router::new().get("/", path);
    let mut site = Site::new(3, router().layer(RateLimit::per_minute(1)));
    assert_eq!(site.ask("GET /", &[]).status, 200);
    assert_eq!(site.ask("GET /", &[]).status, 200);
    let by = |request: &Request| -> Option<IpAddr> {
        request
            .headers()
            .get("x-client")?
            .to_str()
            .ok()?
            .parse()
            .ok()
    };
    let limit = Clock::default().of(RateLimit::per_minute(1).by(by));
    let mut site = Site::new(3, router().layer(limit));
    for (client, status) in [
        ("X-Client: 192.0.2.1", 200),
        ("X-Client: 192.0.2.1", 429),
        ("X-Client: 192.0.2.2", 200),
        ("X-Client: none", 200),
        ("X-Client: none", 200),
    ] {
        assert_eq!(site.ask("GET /", &[client]).status, status, "{client}");
    }
}

#[test]
fn sim_more_addresses_than_there_is_room_for_are_served() {
    let limit = Clock::default().of(RateLimit::per_minute(1).addresses_max(8));
    let mut site = Site::new(4, Router::new().get("/", path).layer(limit));
    for host in 1..=50 {
        let address = format!("192.0.2.{host}");
        assert_eq!(admitted(&mut site, &address, 2), 1, "{address}");
    }
}

#[test]
fn a_rate_of_nothing_is_refused() {
    assert!(catch_unwind(|| RateLimit::per_second(0)).is_err());
    assert!(catch_unwind(|| RateLimit::per_second(1).burst(0)).is_err());
}
