//! What running layers at the head costs, and what follows of it: for connections, for layers that
//! need a body, and for time-outs. In the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{
    Answer, Deferred, Http, Layer, Needs, Next, Request, Router, TimeOut, WholeBody,
};
use flatpath_test::{Conditions, TestServer, each_seed};

use crate::at_head::{ASKS, Asks, BODY_TIMEOUT, Got, Talk, Version, guard, mark, router, server};

#[test]
fn sim_a_body_that_comes_with_its_head_costs_no_second_way_to_a_worker() {
    for version in [Version::Http1, Version::Http2] {
        for path in [
            "/buffered",
            "/inline",
            "/router/inside",
            "/bare/inside",
            "/none",
        ] {
            for split in [false, true] {
                let mut conditions = Conditions::calm(1);
                conditions.limits.body_timeout = BODY_TIMEOUT;
                let http = Http::service(router(&Got::default()));
                let mut server = TestServer::new(conditions, http);
                let asks = Asks {
                    path,
                    length: Some(4),
                    ..ASKS
                };
                let mut talk = Talk::new(&mut server, version);
                let before = server.statistics().jobs_dispatched;
                let (head, data) = (asks.head(version), asks.data(version, "abcd", true));
                match split {
                    false => talk.says(&mut server, &[head, data].concat()),
                    true => {
                        talk.says(&mut server, &head);
                        talk.says(&mut server, &data);
                    }
                }
                let status = if path == "/none" { 404 } else { 200 };
                assert_eq!(talk.heads(), [(status, Some(status))], "{version:?} {path}");
                let dispatched = server.statistics().jobs_dispatched - before;
                // What the head decides needs no second one.
                let expected = if split && path != "/none" { 2 } else { 1 };
                assert_eq!(dispatched, expected, "{version:?} {path}, split: {split}");
            }
        }
    }
}

#[test]
fn sim_a_refusal_at_the_head_of_a_short_body_keeps_the_connection() {
    each_seed(5, |seed| {
        let mut server = server(seed, router(&Got::default()));
        let mut talk = Talk::new(&mut server, Version::Http1);
        let head =
            |length| format!("PUT /buffered HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n");
        talk.says(&mut server, format!("{}\r\nab", head(4)).as_bytes());
        assert_eq!(talk.heads(), [(401, Some(401))], "seed {seed}");
        let next = format!("cd{}Authorization: me\r\n\r\nabcd", head(4));
        talk.says(&mut server, next.as_bytes());
        assert_eq!(
            talk.heads(),
            [(401, Some(401)), (200, Some(200))],
            "seed {seed}"
        );
        // A client that waits for 100 sends none of it.
        let last = format!("{}Expect: 100-continue\r\n\r\n", head(4));
        talk.says(&mut server, last.as_bytes());
        let heard = String::from_utf8_lossy(&talk.heard).into_owned();
        let answer = heard.rsplit("HTTP/1.1 ").next().expect("an answer");
        assert!(
            answer.starts_with("401") && answer.contains("Connection: close"),
            "{heard}"
        );
    });
}

/// Notes whether it sees the body.
#[derive(Clone)]
struct Sees(Needs, Arc<AtomicUsize>);

impl Layer for Sees {
    fn needs(&self) -> Needs {
        self.0
    }

    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let bytes = request.body().length().expect("in memory");
        self.1.fetch_add(bytes as usize, Ordering::Relaxed);
        next.run(request)
    }
}

#[test]
fn sim_a_layer_that_needs_the_body_gets_it_and_those_around_do_not_wait() {
    let signed = |request: Request, next: &Next<'_>| match request.body().to_bytes().first() {
        Some(b's') => Ok(next.run(request)),
        _ => Err(StatusCode::FORBIDDEN),
    };
    for version in [Version::Http1, Version::Http2] {
        each_seed(4, |seed| {
            let sees = |needs| Sees(needs, Arc::default());
            let (outer, body, inner) = (sees(Needs::Head), sees(Needs::Body), sees(Needs::Head));
            let router = Router::new()
                .put("/", |body: String| body)
                .layer(inner.clone())
                .layer(WholeBody(signed))
                .layer(body.clone())
                .layer(outer.clone())
                .layer(guard)
                .layer(mark);
            let mut server = server(seed, router);
            for (data, status) in [("signed", 200), ("forged", 403)] {
                for split in [false, true] {
                    let asks = Asks {
                        path: "/",
                        expects: split,
                        ..ASKS
                    };
                    let mut talk = Talk::new(&mut server, version);
                    let (head, data) = (asks.head(version), asks.data(version, data, true));
                    let mut expected = vec![(status, Some(status))];
                    if split {
                        talk.says(&mut server, &head);
                        talk.says(&mut server, &data);
                        expected.insert(0, (100, None));
                    } else {
                        talk.says(&mut server, &[head, data].concat());
                    }
                    assert_eq!(talk.heads(), expected, "{version:?} {split}, seed {seed}");
                }
            }
            let seen = [outer, body, inner].map(|it| it.1.load(Ordering::Relaxed));
            // A layer inside of what needs the body has it, too: two of the four were signed.
            assert_eq!(seen, [0, 4 * 6, 2 * 6], "seed {seed}");
        });
    }
}

#[test]
fn sim_a_body_that_is_late_is_within_its_time_once_it_is_there() {
    each_seed(5, |seed| {
        let slow = |_: String| {
            // The time-out answers.
            let (responder, deferred) = Deferred::new();
            std::mem::forget(responder);
            deferred
        };
        let time = Duration::from_millis(100);
        let router = Router::new()
            .put("/", slow)
            .layer(TimeOut::after(time))
            .layer(mark);
        let mut server = server(seed, router);
        let mut talk = Talk::new(&mut server, Version::Http1);
        talk.says(
            &mut server,
            b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n",
        );
        server.advance(10 * time);
        talk.listens(&mut server);
        assert_eq!(talk.heads(), [], "its time has not begun");
        talk.says(&mut server, b"abcd");
        server.advance(10 * time);
        talk.listens(&mut server);
        assert_eq!(talk.heads(), [(503, Some(503))], "seed {seed}");
    });
}

#[test]
fn sim_a_request_that_no_worker_takes_is_answered_in_time_after_its_body_was_waited_for() {
    for version in [Version::Http1, Version::Http2] {
        let time = Duration::from_millis(100);
        let (got, mut calls) = (Got::default(), 0);
        let taken = got.clone();
        let router = Router::new()
            .put("/", move |body: String| taken.take(body.len()))
            .layer(TimeOut::after(time));
        let mut server = server(1, router);
        let mut talk = Talk::new(&mut server, version);
        let asks = Asks {
            path: "/",
            length: Some(4),
            ..ASKS
        };
        talk.says(&mut server, &asks.head(version));
        talk.client.write(&asks.data(version, "abcd", true));
        while talk.heads().is_empty() {
            server.turn_without_workers();
            server.advance(time / 10);
            talk.heard.extend(talk.client.read());
            calls += 1;
            assert!(calls < 1000, "{version:?}: no answer");
        }
        assert_eq!(talk.heads(), [(503, None)], "{version:?}");
        server.settle();
        assert_eq!(got.0.load(Ordering::Relaxed), 0, "{version:?}");
    }
}

#[test]
fn sim_a_body_that_is_refused_while_a_worker_is_to_come_is_answered_through_the_layers() {
    for version in [Version::Http1, Version::Http2] {
        for path in ["/buffered", "/streamed", "/router/inside", "/bare/inside"] {
            for is_known in [true, false] {
                let got = Got::default();
                let mut server = server(1, router(&got));
                let mut talk = Talk::new(&mut server, version);
                let asks = Asks {
                    path,
                    is_known,
                    ..ASKS
                };
                talk.client.write(&asks.head(version));
                (0..20).for_each(|_| server.turn_without_workers());
                server.advance(2 * BODY_TIMEOUT);
                (0..20).for_each(|_| server.turn_without_workers());
                talk.listens(&mut server);
                // Who may not ask hears that, whatever the body is.
                let status = if is_known { 408 } else { 401 };
                assert_eq!(talk.heads(), [(status, Some(status))], "{version:?} {path}");
                assert_eq!(got.0.load(Ordering::Relaxed), 0, "{version:?} {path}");
            }
        }
    }
}
