//! Responses that are made elsewhere, in simulations: whoever waits for them, and whatever ends
//! that.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flatpath_http::http::StatusCode;
use flatpath_http::{
    Answer, Deferred, Http, IntoResponse, Next, Parameters, Payload, Request, Responder, Response,
    Router, Sink, State, Upload, WorkerScope, routing,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::h2_client::Peer;

pub(crate) const SEEDS: u64 = 20;

/// The responders of all requests that wait, with what they asked for.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    responders: Arc<Mutex<Vec<(String, Responder)>>>,
    closed: Arc<AtomicUsize>,
}

impl Waiting {
    pub(crate) fn wait(&self, name: &str) -> Deferred {
        let (responder, deferred) = Deferred::new();
        let closed = Arc::clone(&self.closed);
        responder.on_close(move || {
            closed.fetch_add(1, Ordering::Relaxed);
        });
        let mut responders = self.responders.lock().expect("no panic");
        responders.push((name.to_owned(), responder));
        deferred
    }

    pub(crate) fn count(&self) -> usize {
        self.responders.lock().expect("no panic").len()
    }

    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }

    /// The responder of a request.
    pub(crate) fn take(&self, name: &str) -> Responder {
        let mut responders = self.responders.lock().expect("no panic");
        let at = responders.iter().position(|(known, _)| known == name);
        responders.swap_remove(at.expect("it waits")).1
    }

    /// Answers one that waits, which `pick` chooses, and every other one only once there is none.
    fn answer_one(&self, pick: usize) {
        let mut responders = self.responders.lock().expect("no panic");
        let at = pick % responders.len();
        let (name, responder) = responders.swap_remove(at);
        drop(responders);
        responder.send(format!("it is {name}")).expect("it waits");
    }
}

/// Its end is made elsewhere too.
pub(crate) struct Count(pub(crate) usize, pub(crate) Waiting);

impl Sink for Count {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.0 += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.1.wait(&format!("{} bytes", self.0)).into_response()
    }
}

fn routes(waiting: &Waiting) -> Router {
    let wait = |State(waiting): State<Waiting>, parameters: Parameters| {
        waiting.wait(parameters.get("name").unwrap_or_default())
    };
    let refuse = |_: Request| Err::<Deferred, _>(StatusCode::CONFLICT);
    let upload = |State(waiting): State<Waiting>| Upload::new(Count(0, waiting));
    let marks = |request: Request, next: &Next<'_>| -> Answer {
        let answer = next.run(request);
        assert!(answer.response().is_none(), "it is still to be made");
        answer.map(|response: Response| {
            let status = response.status().as_u16().to_string();
            ([("x-seen", status)], response)
        })
    };
    let fails = |request: Request, next: &Next<'_>| -> Answer {
        let fail = |_: Response| -> Response { panic_any("a layer panics on purpose") };
        next.run(request).map(fail)
    };
    Router::new()
        .get("/layered/{name}", wait)
        .route("/layered-inline/{name}", routing::get(wait).inline())
        .layer(marks)
        .route("/fails/{name}", routing::get(wait).layer(fails))
        .get("/pooled/{name}", wait)
        .post("/pooled/{name}", wait)
        .route("/inline/{name}", routing::get(wait).inline())
        .route("/prompt/{name}", routing::get(wait).prompt())
        .get("/refused", refuse)
        .route("/upload", routing::put(upload).streamed())
        .route("/streamed/{name}", routing::put(wait).streamed())
        .get("/now", || "now")
        .route("/now-inline", routing::get(|| "now").inline())
        .with_state(waiting.clone())
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// The last request of its connection.
fn get_last(path: &str) -> String {
    get(path).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
}

#[test]
fn sim_replies_that_are_made_elsewhere_keep_their_order() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        let paths = [
            "/pooled/a",
            "/now",
            "/inline/b",
            "/layered/c",
            "/now-inline",
            "/prompt/d",
            "/refused",
            "/layered-inline/e",
            "/now",
        ];
        let sent: Vec<_> = paths.iter().map(|path| get(path)).collect();
        client.write(sent.concat().as_bytes());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut made = 0;
        while made < 5 {
            server.run_until(|| waiting.count() > 0);
            (0..random.u8(..8)).for_each(|_| server.turn());
            waiting.answer_one(random.usize(..));
            made += 1;
        }
        client.write(get_last("/now").as_bytes());
        let replies = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        let mut rest = replies.as_str();
        for end in [
            "it is a",
            "now",
            "it is b",
            "it is c",
            "now",
            "it is d",
            "HTTP/1.1 409 ",
            "it is e",
            "now",
            "now",
        ] {
            let at = rest
                .find(end)
                .unwrap_or_else(|| panic!("seed {seed}: {end}: {replies}"));
            rest = &rest[at + end.len()..];
        }
        assert_eq!(
            replies.matches("X-Seen: 200\r\n").count(),
            2,
            "seed {seed}: {replies}"
        );
        assert_eq!(waiting.closed(), 0, "all have been answered");
    });
}

#[test]
fn sim_a_response_may_be_there_before_its_handler_returns() {
    each_seed(SEEDS, |seed| {
        let at_once = || {
            let (responder, deferred) = Deferred::new();
            responder.send("at once").expect("it waits");
            deferred
        };
        let router = Router::new()
            .get("/pooled", at_once)
            .route("/inline", routing::get(at_once).inline());
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        let client = server.connect();
        for path in ["/pooled", "/inline"] {
            client.write(get(path).as_bytes());
            while server.read_line(&client) != "\r\n" {}
            assert_eq!(server.read_exact(&client, 7), b"at once");
        }
    });
}

#[test]
fn sim_bodies_come_before_and_after() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        let length = 100_000;
        for (line, name) in [
            ("PUT /upload", "100000 bytes"),
            ("POST /pooled/whole", "whole"),
        ] {
            client.write(format!("{line} HTTP/1.1\r\nHost: h\r\n").as_bytes());
            client.write(format!("Content-Length: {length}\r\n\r\n").as_bytes());
            client.write(&vec![b'x'; length]);
            server.run_until(|| waiting.count() > 0);
            let body = vec![b'y'; 200_000];
            waiting.take(name).send(body).expect("it waits");
            while server.read_line(&client) != "\r\n" {}
            assert_eq!(server.read_exact(&client, 200_000), vec![b'y'; 200_000]);
        }
        // What answers without the body ends the connection after it.
        client.write(b"PUT /streamed/early HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
        server.run_until(|| waiting.count() > 0);
        waiting.take("early").send("early").expect("it waits");
        let reply = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        assert!(reply.ends_with("\r\n\r\nearly"), "seed {seed}: {reply}");
    });
}

#[test]
fn sim_a_client_that_goes_away_is_told_to_the_responder() {
    each_seed(2 * SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut clients = Vec::new();
        for path in ["/pooled/a", "/inline/b", "/layered/c", "/now"] {
            let client = server.connect();
            // Also where it has said that it asks for nothing more.
            let is_last = seed % 2 == 0;
            let asked = if is_last { get_last(path) } else { get(path) };
            client.write(asked.as_bytes());
            clients.push(client);
        }
        server.run_until(|| waiting.count() == 3);
        server.settle();
        assert!(!waiting.take("a").is_closed());
        // Dropped without a response: a 500, and no word of its client.
        let reply = |server: &mut TestServer, at: usize| server.read_line(&clients[at]);
        assert!(
            reply(&mut server, 0).starts_with("HTTP/1.1 500 "),
            "seed {seed}"
        );
        clients[1].shutdown_write();
        clients[2].abort();
        server.run_until(|| waiting.closed() == 2);
        for name in ["b", "c"] {
            let responder = waiting.take(name);
            assert!(responder.is_closed());
            let called = Arc::clone(&waiting.closed);
            responder.on_close(move || {
                called.fetch_add(1, Ordering::Relaxed);
            });
            responder.send("too late").expect_err("its client is gone");
        }
        assert_eq!(waiting.closed(), 4, "called at once");
    });
}

/// No matter how long it is served: bytes that mean nothing are no work for this server.
#[test]
fn sim_what_follows_the_last_request_is_not_received() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        client.write(get_last("/pooled/a").as_bytes());
        server.run_until(|| waiting.count() == 1);
        let said = [b'x'; 1000];
        for _ in 0..1000 {
            client.write(&said);
            server.turn();
        }
        let received = server.statistics().received_bytes;
        assert!(received < 100 * 1000, "seed {seed}: {received} bytes");
        waiting.take("a").send("all the same").expect("it waits");
        let reply = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        assert!(reply.ends_with("all the same"), "seed {seed}: {reply}");
    });
}

#[test]
fn sim_an_end_that_came_before_the_waiting_is_known() {
    let upload = "PUT /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
    for asked in [
        get("/pooled/a"),
        get_last("/pooled/a"),
        get("/layered/a"),
        get("/now") + &get("/pooled/a"),
        get("/pooled/a") + &get("/now"),
        upload.to_owned(),
    ] {
        each_seed(SEEDS, |seed| {
            let waiting = Waiting::default();
            let http = Http::service(routes(&waiting));
            let mut server = TestServer::new(Conditions::rough(seed), http);
            let client = server.connect();
            client.write(asked.as_bytes());
            (0..20).for_each(|_| server.turn_without_workers());
            client.shutdown_write();
            (0..20).for_each(|_| server.turn_without_workers());
            assert_eq!(waiting.count(), 0, "seed {seed}: no worker has begun");
            server.run_until(|| waiting.count() == 1 && waiting.closed() == 1);
        });
    }
}

#[test]
fn sim_a_response_that_is_there_is_for_a_client_that_has_sent_its_end() {
    each_seed(SEEDS, |seed| {
        let at_once = || {
            let (responder, deferred) = Deferred::new();
            responder.send("at once").expect("it waits");
            deferred
        };
        let http = Http::service(Router::new().get("/", at_once));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        client.write(get("/").as_bytes());
        (0..20).for_each(|_| server.turn_without_workers());
        client.shutdown_write();
        (0..20).for_each(|_| server.turn_without_workers());
        let reply = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        assert!(reply.ends_with("\r\n\r\nat once"), "seed {seed}: {reply}");
    });
}

#[test]
fn sim_a_layer_that_fails_later_costs_its_request_alone() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        client.write(get("/fails/a").as_bytes());
        server.run_until(|| waiting.count() == 1);
        waiting.take("a").send("a").expect("it waits");
        let reply = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        assert!(reply.starts_with("HTTP/1.1 500 "), "seed {seed}: {reply}");
    });
}

#[test]
fn sim_a_drain_waits_for_responses_and_its_end_cuts_them_off() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let clients = ["/pooled/a", "/inline/b"].map(|path| {
            let client = server.connect();
            client.write(get(path).as_bytes());
            client
        });
        server.run_until(|| waiting.count() == 2);
        server.settle();
        server.drain();
        (0..20).for_each(|_| server.turn());
        waiting.take("a").send("in time").expect("it waits");
        let reply = String::from_utf8(server.read_to_end(&clients[0])).expect("ASCII");
        assert!(reply.ends_with("\r\n\r\nin time"), "seed {seed}: {reply}");
        assert!(
            reply.contains("Connection: close\r\n"),
            "seed {seed}: {reply}"
        );
        server.run_until(|| clients[1].state() != ClientState::Open);
        server.run_until(|| waiting.closed() == 1);
    });
}

#[test]
fn sim_as_many_wait_as_requests_may_last() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 16;
        let mut server = TestServer::new(conditions, http);
        let mut clients = Vec::new();
        // Each asks for one after the other, which is due later.
        for _ in 0..64 {
            let client = server.connect();
            client.write([get("/pooled/a"), get("/inline/b")].concat().as_bytes());
            clients.push(client);
        }
        // Some are refused; or those that have waited longest are ended for others.
        let mut refused = 0;
        server.run_until(|| {
            let read = clients.iter().map(Client::read);
            let refusals = read.filter(|reply| reply.starts_with(b"HTTP/1.1 503 "));
            refused += refusals.count();
            refused + waiting.closed() >= 16
        });
        // Others are answered all the same.
        let other = server.connect();
        other.write(get("/now").as_bytes());
        let line = server.read_line(&other);
        assert!(line.starts_with("HTTP/1.1 200 "), "seed {seed}: {line}");
    });
}

#[test]
fn streams_wait_each_for_its_own() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(routes(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut peer = Peer::new(&mut server);
        let names = ["a", "b", "c", "d", "e"];
        let kinds = ["pooled", "inline", "layered", "layered-inline", "prompt"];
        let asked: Vec<_> = names
            .iter()
            .zip(kinds)
            .map(|(name, kind)| peer.get(&format!("/{kind}/{name}")))
            .collect();
        let upload = peer.put("/upload", vec![b'x'; 50_000]);
        peer.until(&mut server, |_| waiting.count() == 6);
        // The second is reset: its responder is told, and no other.
        peer.reset(asked[1]);
        peer.until(&mut server, |_| waiting.closed() == 1);
        let responder = waiting.take("b");
        responder.send("too late").expect_err("its stream is reset");
        for (at, name) in [(4, "e"), (0, "a"), (3, "d"), (2, "c")] {
            waiting
                .take(name)
                .send(format!("it is {name}"))
                .expect("it waits");
            peer.until(&mut server, |peer| peer.reply(asked[at]).end.is_some());
            let reply = peer.reply(asked[at]);
            assert_eq!(reply.text(), format!("it is {name}"), "seed {seed}");
            let is_marked = reply.headers.contains_key("x-seen");
            assert_eq!(
                is_marked,
                kinds[at].starts_with("layered"),
                "seed {seed}: {name}"
            );
        }
        drop(waiting.take("50000 bytes"));
        peer.finish(&mut server);
        assert_eq!(
            peer.reply(upload).status,
            Some(StatusCode::INTERNAL_SERVER_ERROR)
        );
        assert_eq!(waiting.closed(), 1, "seed {seed}");
    });
}
