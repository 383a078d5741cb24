//! A service with a guard around it: who gets to it, where it answers, and what is counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath_http::flatpath::blocking::{BlockingLimit, Entry, Permit, WaitLimits};
use flatpath_http::flatpath::{Subnet, WorkerScope};
use flatpath_http::http::StatusCode;
use flatpath_http::{
    Body, BodyPlan, Disposition, Head, Hosts, IntoResponse, LiveSites, Place, Plan, Reply, Request,
    Response, Router, Service, Sites, Turn, UploadDecision,
};
use flatpath_layers::{Access, Guard, RateLimit};
use flatpath_test::each_seed;

use crate::rate_limit::{Clock, peer};
use crate::{Count, Site, request};

const SEEDS: u64 = 5;

/// Answers with the thread that it runs on, and counts what reaches it.
#[derive(Clone, Default)]
pub(crate) struct Inside(Arc<AtomicUsize>);

impl Inside {
    pub(crate) fn seen(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn see(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Service for Inside {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        Plan {
            place: match head.path() {
                "/worker" => Place::Worker,
                _ => Place::Inline,
            },
            body: match head.path() {
                "/upload" => BodyPlan::Streamed,
                _ => BodyPlan::default(),
            },
            ..Plan::default()
        }
    }

    fn inline(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match head.path() {
            "/left" | "/upload" | "/read" => Disposition::Pooled,
            _ => {
                self.see();
                reply.response("network".into_response())
            }
        }
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        self.see();
        match request.uri().path() {
            "/read" => Response::new(Body::reader(&b"a worker"[..], None)),
            _ => "a worker".into_response(),
        }
    }

    fn open(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        self.see();
        UploadDecision::Sink(Box::new(Count::default()))
    }
}

fn networks(texts: &[&str]) -> Vec<Subnet> {
    let parse = |text: &&str| text.parse().expect("a network");
    texts.iter().map(parse).collect()
}

fn status(site: &mut Site, address: Option<&str>, line: &str) -> u16 {
    let peer = address.and_then(|address| peer(address, 1000));
    site.ask_from(peer, line, &[], "").status
}

const LINES: [&str; 5] = ["GET /", "GET /left", "GET /worker", "PUT /upload", "HEAD /"];

#[test]
fn sim_the_longest_network_decides_wherever_a_request_is_answered() {
    each_seed(SEEDS, |seed| {
        let access = Access::new()
            .allow(networks(&["10.0.0.0/8", "10.1.1.1", "2001:db8::/32"]))
            .deny(networks(&["10.1.0.0/16", "10.2.3.4"]));
        let inside = Inside::default();
        let mut site = Site::of(seed, Guard::new(inside.clone(), access));
        for line in LINES {
            for (address, expected) in [
                (Some("10.9.9.9"), 200),
                (Some("10.1.2.3"), 403),
                (Some("10.1.1.1"), 200),
                (Some("::ffff:10.1.2.3"), 403),
                (Some("10.2.3.4"), 403),
                (Some("10.2.3.5"), 200),
                (Some("2001:db8::1"), 200),
                (Some("192.0.2.1"), 403),
                (None, 403),
            ] {
                let before = inside.seen();
                let found = status(&mut site, address, line);
                assert_eq!(found, expected, "seed {seed}: {line} {address:?}");
                let reached = inside.seen() - before;
                assert_eq!(reached, usize::from(expected == 200), "{line} {address:?}");
            }
        }
    });
}

#[test]
fn sim_networks_that_are_only_denied_leave_the_others() {
    // The same network both ways is denied.
    let access = Access::new()
        .deny(networks(&["192.0.2.0/24"]))
        .allow(networks(&[]));
    let mut site = Site::of(1, Guard::new(Inside::default(), access));
    assert_eq!(status(&mut site, Some("192.0.2.1"), "GET /"), 403);
    assert_eq!(status(&mut site, Some("198.51.100.1"), "GET /"), 200);
    for (first, second) in [(true, false), (false, true)] {
        let mut access = Access::new();
        for allows in [first, second] {
            access = match allows {
                true => access.allow(networks(&["192.0.2.0/24"])),
                false => access.deny(networks(&["192.0.2.0/24"])),
            };
        }
        assert!(!access.admits(peer("192.0.2.1", 1).map(|it| it.ip())));
    }
}

#[test]
fn sim_what_is_inline_inside_stays_inline() {
    let access = Access::new()
        .deny(networks(&["192.0.2.0/24"]))
        .requests(RateLimit::per_second(100));
    let mut site = Site::of(1, Guard::new(Inside::default(), access));
    let mut text = |line| {
        site.ask_from(peer("10.0.0.1", 1), line, &[], "")
            .text()
            .to_owned()
    };
    assert_eq!(text("GET /"), "network");
    assert_eq!(text("GET /left"), "a worker");
    assert_eq!(text("GET /worker"), "a worker");
}

#[test]
fn sim_a_request_is_counted_once_wherever_it_is_answered() {
    for line in LINES {
        each_seed(SEEDS, |seed| {
            let limit = Clock::default().of(RateLimit::per_minute(3));
            let inside = Inside::default();
            let guard = Guard::new(inside.clone(), Access::new().requests(limit));
            let mut site = Site::of(seed, guard);
            let found: Vec<_> = (0..5)
                .map(|_| status(&mut site, Some("10.0.0.1"), line))
                .collect();
            assert_eq!(found, [200, 200, 200, 429, 429], "seed {seed}: {line}");
            assert_eq!(inside.seen(), 3);
            // One that has used up its own takes nothing from another.
            assert_eq!(status(&mut site, Some("10.0.0.2"), line), 200);
        });
    }
}

/// Those after the first are not offered inline.
#[test]
fn sim_requests_one_after_another_are_counted_once_each() {
    each_seed(20, |seed| {
        let limit = Clock::default().of(RateLimit::per_minute(4));
        let guard = Guard::new(Inside::default(), Access::new().requests(limit));
        let mut site = Site::of(seed, guard);
        let kept = "GET /worker HTTP/1.1\r\nHost: h\r\n\r\n".repeat(5);
        let input = [kept.as_bytes(), &request("GET /", &[], "")].concat();
        let answers = site.exchange(peer("10.0.0.1", 1), &input);
        let answers = String::from_utf8(answers).expect("ASCII");
        let statuses: Vec<_> = answers
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|it| &it[..3])
            .collect();
        let expected = ["200", "200", "200", "200", "429", "429"];
        assert_eq!(statuses, expected, "seed {seed}");
    });
}

#[test]
fn sim_a_refusal_says_when_to_come_again_and_its_body_is_no_request() {
    each_seed(SEEDS, |seed| {
        let clock = Clock::default();
        let limit = clock.of(RateLimit::new(1, Duration::from_secs(10)));
        let inside = Inside::default();
        let guard = Guard::new(inside.clone(), Access::new().requests(limit));
        let mut site = Site::of(seed, guard);
        let address = peer("10.0.0.1", 1);
        assert_eq!(site.ask_from(address, "GET /", &[], "").status, 200);
        clock.advance(Duration::from_millis(2500));
        let refused = site.ask_from(address, "GET /", &[], "");
        let field = refused.field("retry-after").map(str::to_owned);
        assert_eq!((refused.status, field.as_deref()), (429, Some("8")));
        let smuggled = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        for line in ["PUT /upload", "POST /worker", "POST /"] {
            let kept = format!(
                "{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{smuggled}",
                smuggled.len()
            );
            let input = [kept.as_bytes(), &request("GET /", &[], "")].concat();
            let answers = site.exchange(address, &input);
            let answers = String::from_utf8(answers).expect("ASCII");
            let count = answers.matches("HTTP/1.1 429 ").count();
            assert!(
                count <= 2 && !answers.contains(" 200 "),
                "{line}: {answers}"
            );
        }
        assert_eq!(inside.seen(), 1);
        clock.advance(Duration::from_millis(7500));
        assert_eq!(site.ask_from(address, "GET /", &[], "").status, 200);
    });
}

#[test]
fn sim_bytes_are_counted_wherever_they_come_from() {
    for (line, bytes) in [
        ("GET /", 7),
        ("GET /left", 8),
        ("GET /worker", 8),
        ("GET /read", 8),
    ] {
        each_seed(SEEDS, |seed| {
            let clock = Clock::default();
            // Three bodies, less a byte: the third goes beyond.
            let access = Access::new()
                .bytes(3 * bytes - 1, Duration::from_secs(60))
                .clock(clock.now());
            let mut site = Site::of(seed, Guard::new(Inside::default(), access));
            let mut ask = |address| status(&mut site, Some(address), line);
            let found = [(); 4].map(|()| ask("10.0.0.1"));
            assert_eq!(found, [200, 200, 200, 429], "seed {seed}: {line}");
            assert_eq!(ask("10.0.0.2"), 200, "another address");
            // More than a byte's time is over, and the one that was too many is paid for.
            clock.advance(Duration::from_secs(60 * 2 / (3 * bytes - 1) + 1));
            assert_eq!(ask("10.0.0.1"), 200);
        });
    }
    // No body, no bytes.
    let access = Access::new().bytes(1, Duration::from_secs(60));
    let mut site = Site::of(1, Guard::new(Inside::default(), access));
    for _ in 0..3 {
        assert_eq!(status(&mut site, Some("10.0.0.1"), "HEAD /"), 200);
    }
}

#[test]
fn sim_rules_are_replaced_while_a_connection_is_kept() {
    each_seed(SEEDS, |seed| {
        let clock = Clock::default();
        let limit = || clock.of(RateLimit::per_minute(4));
        let access = |denied: &[&str]| {
            let access = Access::new().deny(networks(denied));
            access.requests(limit())
        };
        let guard = Guard::new(Inside::default(), access(&[]));
        let handle = guard.handle();
        let mut site = Site::of(seed, guard);
        let client = site.0.connect_from(peer("10.0.0.1", 1));
        let mut ask = |path: &str| {
            client.write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
            let head = site.0.read_exact(&client, "HTTP/1.1 200".len());
            site.0.settle();
            client.read();
            String::from_utf8_lossy(&head["HTTP/1.1 ".len()..]).into_owned()
        };
        assert_eq!((ask("/"), ask("/worker")), ("200".into(), "200".into()));
        handle.replace(access(&["10.0.0.0/8"]));
        assert_eq!((ask("/"), ask("/worker")), ("403".into(), "403".into()));
        handle.replace(access(&[]));
        // What was counted still counts: two are left.
        let found = [ask("/"), ask("/worker"), ask("/"), ask("/worker")];
        assert_eq!(found, ["200", "200", "429", "429"], "seed {seed}");
        handle.replace(Access::new().requests(clock.of(RateLimit::per_minute(5))));
        assert_eq!(ask("/"), "200", "another limit begins anew");
    });
}

/// A layer makes workers answer, and sites pass on what was left.
#[test]
fn sim_nothing_leads_around_a_guard() {
    each_seed(SEEDS, |seed| {
        let limit = || Clock::default().of(RateLimit::per_minute(2));
        let guard = |inside: &Inside| {
            let access = Access::new().deny(networks(&["192.0.2.0/24"]));
            Guard::new(inside.clone(), access.requests(limit()))
        };
        let layered = |inside: &Inside| {
            let pass = |request: Request, next: &flatpath_http::Next<'_>| next.run(request);
            let router = Router::new().nest_service("/a", guard(inside));
            router.layer(pass)
        };
        let all = "*".parse().expect("a pattern");
        let (first, second, third) = (Inside::default(), Inside::default(), Inside::default());
        let sites = Sites::new()
            .add(std::slice::from_ref(&all), "/layered", layered(&first))
            .and_then(|sites| sites.add(std::slice::from_ref(&all), "/below", guard(&second)))
            .and_then(|sites| {
                let router = Router::new().nest_service("/a", guard(&third));
                sites.add(std::slice::from_ref(&all), "/", router)
            });
        let mut site = Site::of(seed, sites.expect("they fit"));
        for (prefix, inside) in [("/layered/a", first), ("/below", second), ("/a", third)] {
            for path in ["/", "/left", "/worker"] {
                let line = format!("GET {prefix}{path}");
                assert_eq!(status(&mut site, Some("192.0.2.1"), &line), 403, "{line}");
            }
            assert_eq!(inside.seen(), 0, "seed {seed}: {prefix}");
            for expected in [200, 200, 429] {
                let line = format!("GET {prefix}/left");
                assert_eq!(
                    status(&mut site, Some("10.0.0.1"), &line),
                    expected,
                    "{line}"
                );
            }
        }
    });
}

/// Each of them counts a request that goes from the network thread to a worker.
#[test]
fn sim_guards_around_each_other_count_a_request_once_each() {
    for line in LINES {
        each_seed(SEEDS, |seed| {
            let limited = |requests| {
                Access::new().requests(Clock::default().of(RateLimit::per_minute(requests)))
            };
            let inside = Inside::default();
            let inner = Guard::new(inside.clone(), limited(3));
            let guard = Guard::new(Guard::new(inner, limited(4)), limited(5));
            let mut site = Site::of(seed, guard);
            let found = [(); 4].map(|()| status(&mut site, Some("10.0.0.1"), line));
            assert_eq!(found, [200, 200, 200, 429], "seed {seed}: {line}");
            assert_eq!(inside.seen(), 3);
        });
    }
}

#[test]
fn sim_refusals_that_are_changed_keep_their_decision() {
    each_seed(SEEDS, |seed| {
        let access = Access::new().deny(networks(&["192.0.2.0/24"]));
        let access = access.requests(Clock::default().of(RateLimit::per_minute(2)));
        let inside = Inside::default();
        let guard = Guard::new(inside.clone(), access);
        let guard = guard.refusals(
            [StatusCode::TOO_MANY_REQUESTS],
            |inner, request, refusal, _| {
                assert_eq!(inner.seen(), 2, "it is given the service inside");
                let after = refusal.headers()["retry-after"].clone();
                let text = format!("not {}", request.uri().path());
                (refusal.status(), [("retry-after", after)], text).into_response()
            },
        );
        let mut site = Site::of(seed, guard);
        for line in ["GET /", "PUT /upload"] {
            assert_eq!(status(&mut site, Some("10.0.0.1"), line), 200, "{line}");
        }
        for (line, text) in [("GET /", "not /"), ("PUT /upload", "not /upload")] {
            let refused = site.ask_from(peer("10.0.0.1", 1), line, &[], "");
            assert_eq!((refused.status, refused.text()), (429, text), "seed {seed}");
            assert_eq!(refused.field("retry-after"), Some("30"));
            let denied = site.ask_from(peer("192.0.2.1", 1), line, &[], "");
            let told = (403, "your address is not admitted\n");
            assert_eq!((denied.status, denied.text()), told, "another status");
        }
        assert_eq!(inside.seen(), 2);
    });
}

/// The change has to wait for its turn, and the decision is not made again.
#[test]
fn sim_a_refusal_whose_change_waits_is_made_once() {
    each_seed(SEEDS, |seed| {
        let limits = WaitLimits {
            waiting_max: 10,
            stuck_after: Duration::from_secs(3600),
        };
        let limit = BlockingLimit::new("pages of a test", limits);
        let kept: Arc<Mutex<Vec<Permit>>> = Arc::default();
        let (pages, places) = (limit.clone(), Arc::clone(&kept));
        let clock = Clock::default();
        let access = Access::new().requests(clock.of(RateLimit::per_minute(1)));
        let guard = Guard::new(Inside::default(), access);
        let guard = guard.refusals(
            [StatusCode::TOO_MANY_REQUESTS],
            move |_, _, refusal, scope| {
                match pages.enter(scope) {
                    Entry::Entered(place) => places.lock().expect("no panic").push(place),
                    _ => return refusal,
                }
                (refusal.status(), "a page").into_response()
            },
        );
        let mut site = Site::of(seed, guard);
        assert_eq!(status(&mut site, Some("10.0.0.1"), "GET /"), 200);
        let mut clients = Vec::new();
        while limit.figures().waiting == 0 {
            let client = site.0.connect_from(peer("10.0.0.1", 1));
            client.write(&request("GET /", &[], ""));
            clients.push(client);
            let inside = limit.figures().inside;
            site.0.run_until(|| {
                let figures = limit.figures();
                figures.waiting > 0 || figures.inside > inside
            });
        }
        // What was refused stays so, though it would be admitted now.
        clock.advance(Duration::from_secs(120));
        kept.lock().expect("no panic").clear();
        for client in clients {
            let answer = String::from_utf8(site.0.read_to_end(&client)).expect("ASCII");
            assert!(answer.starts_with("HTTP/1.1 429 "), "seed {seed}: {answer}");
            assert!(answer.ends_with("a page"), "seed {seed}: {answer}");
        }
    });
}

/// A guard that comes with other sites knows who asks, also on a connection from before.
#[test]
fn sim_a_guard_of_later_sites_decides_on_connections_from_before() {
    each_seed(SEEDS, |seed| {
        let all = |service: Result<Guard<Inside>, Inside>| {
            let host = ["*".parse().expect("a pattern")];
            let added = match service {
                Ok(guard) => Sites::new().add(&host, "/", guard),
                Err(inside) => Sites::new().add(&host, "/", inside),
            };
            added.expect("one")
        };
        let live = LiveSites::new(all(Err(Inside::default())), Hosts::any());
        let handle = live.handle();
        let mut site = Site::of(seed, live);
        let clients = ["10.0.0.1", "192.0.2.1"].map(|it| site.0.connect_from(peer(it, 1)));
        let mut ask = |client: &flatpath_test::Client, path: &str| {
            client.write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
            let head = site.0.read_exact(client, "HTTP/1.1 200".len());
            site.0.settle();
            client.read();
            String::from_utf8_lossy(&head["HTTP/1.1 ".len()..]).into_owned()
        };
        for path in ["/", "/worker"] {
            assert_eq!(
                [ask(&clients[0], path), ask(&clients[1], path)],
                ["200", "200"]
            );
        }
        let access = Access::new().deny(networks(&["192.0.2.0/24"]));
        handle.replace(all(Ok(Guard::new(Inside::default(), access))), Hosts::any());
        for path in ["/", "/worker"] {
            let found = [ask(&clients[0], path), ask(&clients[1], path)];
            assert_eq!(found, ["200", "403"], "seed {seed}: {path}");
        }
        handle.replace(all(Err(Inside::default())), Hosts::any());
        assert_eq!(ask(&clients[1], "/"), "200");
    });
}
