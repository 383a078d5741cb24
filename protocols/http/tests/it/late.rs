//! Time-outs while no worker is free, and clients that are gone, in simulations: what waits is
//! answered at its time and never run, whatever the protocol.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath::statistics::Statistics;
use flatpath_http::{
    Answer, ClientWatch, Http, Next, Request, Response, Router, State, TimeOut, routing,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::deferred::{SEEDS, get};
use crate::h2_client::Peer;

const TIME: Duration = Duration::from_millis(100);

/// How often handlers were called, and what they have to look whether their clients are gone.
#[derive(Clone, Default)]
struct Called {
    count: Arc<AtomicUsize>,
    watches: Arc<Mutex<Vec<ClientWatch>>>,
    /// What these said when the handlers were called.
    gone: Arc<Mutex<Vec<bool>>>,
}

impl Called {
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn call(&self) -> &'static str {
        self.count.fetch_add(1, Ordering::Relaxed);
        "called"
    }

    fn watch(&self) -> ClientWatch {
        let mut watches = self.watches.lock().expect("no panic");
        watches.pop().expect("a handler was called")
    }
}

/// A layer that says which status has passed it.
fn mark(request: Request, next: &Next<'_>) -> Answer {
    next.run(request).map(move |response: Response| {
        let seen = response.status().as_u16().to_string();
        ([("x-seen", seen)], response)
    })
}

fn http(called: &Called) -> Http<Router> {
    let call = |State(called): State<Called>| called.call();
    let watch = |watch: ClientWatch, State(called): State<Called>| {
        let is_gone = watch.is_gone();
        called.gone.lock().expect("no panic").push(is_gone);
        called.watches.lock().expect("no panic").push(watch);
        called.call()
    };
    let timed = routing::get(call).put(|State(called): State<Called>, _: String| called.call());
    let router = Router::new()
        .route("/timed", timed)
        .route("/watched", routing::get(watch))
        .layer(TimeOut::after(TIME))
        .layer(mark)
        .route("/bare", routing::get(call).layer(TimeOut::after(TIME)))
        .get("/untimed", call)
        .get("/seen", watch)
        .with_state(called.clone());
    Http::service(router)
}

/// Turns in which no worker takes anything, until so much time has passed.
fn without_workers(server: &mut TestServer, time: Duration) {
    let end = server.world().now() + time;
    while server.world().now() < end {
        server.advance(Duration::from_millis(5));
        server.turn_without_workers();
    }
}

/// What a client has read by now.
fn heard(client: &Client) -> String {
    String::from_utf8(client.read()).expect("ASCII")
}

fn count_of(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn sim_a_request_that_waits_is_answered_at_its_time_and_never_run() {
    each_seed(SEEDS, |seed| {
        let called = Called::default();
        let mut server = TestServer::new(Conditions::rough(seed), http(&called));
        let client = server.connect();
        // The third has a body that comes later, and its time counts from then on.
        client.write(get("/timed").as_bytes());
        client.write(get("/untimed").as_bytes());
        client.write(b"PUT /timed HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
        without_workers(&mut server, 2 * TIME);
        let first = heard(&client);
        assert_eq!(count_of(&first, "503 Service"), 1, "seed {seed}: {first}");
        assert!(!first.contains("X-Seen"), "seed {seed}: no worker saw it");
        client.write(b"dy");
        without_workers(&mut server, 2 * TIME);
        assert_eq!(heard(&client), "", "seed {seed}: replies are in order");
        client.write(get("/seen").as_bytes());
        server.run_until(|| called.count() == 2);
        client.write(
            get("/untimed")
                .replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        );
        let rest = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        let replies = rest.split("HTTP/1.1 ").skip(1);
        let statuses: Vec<_> = replies.map(|reply| &reply[..3]).collect();
        assert_eq!(
            statuses,
            ["200", "503", "200", "200"],
            "seed {seed}: {rest}"
        );
        assert_eq!(called.count(), 3, "seed {seed}: what was late was not run");
    });
}

#[test]
fn sim_streams_that_wait_are_answered_at_their_time_and_never_run() {
    each_seed(SEEDS, |seed| {
        let called = Called::default();
        let mut server = TestServer::new(Conditions::rough(seed), http(&called));
        let mut peer = Peer::new(&mut server);
        let asked = ["/timed", "/untimed", "/timed"].map(|path| peer.get(path));
        let upload = peer.put("/timed", "body");
        let is_answered = |peer: &Peer, index: usize| peer.reply(index).end.is_some();
        for _ in 0..2_000 {
            server.advance(Duration::from_millis(1));
            peer.step_without_workers(&mut server);
        }
        let late = [asked[0], asked[2], upload];
        assert!(
            late.iter().all(|index| is_answered(&peer, *index)),
            "seed {seed}"
        );
        assert!(
            !is_answered(&peer, asked[1]),
            "seed {seed}: it has no time-out"
        );
        for index in late {
            let reply = peer.reply(index);
            assert_eq!(reply.status.map(|it| it.as_u16()), Some(503), "seed {seed}");
            assert!(reply.text().contains("took too long"), "seed {seed}");
        }
        peer.finish(&mut server);
        assert_eq!(peer.reply(asked[1]).text(), "called", "seed {seed}");
        assert_eq!(called.count(), 1, "seed {seed}");
        // The connection serves on.
        let now = peer.get("/timed");
        peer.finish(&mut server);
        assert_eq!(peer.reply(now).headers["x-seen"], "200", "seed {seed}");
    });
}

/// What is around a time-out has run for the first request, and what is inside waits for a worker.
fn until_inside_waits(server: &mut TestServer) {
    for _ in 0..10_000 {
        server.turn();
        if server.statistics().jobs_dispatched == 2 {
            return;
        }
    }
    panic!("the layers were not run");
}

#[test]
fn sim_what_a_layer_changes_waits_for_a_worker_for_a_while_and_goes_without_it_then() {
    let called = Called::default();
    let mut answered_without = 0;
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(Conditions::calm(seed), http(&called));
        let client = server.connect();
        client.write(get("/timed").as_bytes());
        until_inside_waits(&mut server);
        let before = called.count();
        without_workers(&mut server, 4 * TIME);
        let reply = heard(&client);
        if called.count() > before || reply.contains("200 OK") {
            // The worker of that turn took it at once.
            return;
        }
        assert!(reply.contains("503 Service"), "seed {seed}: {reply}");
        assert!(!reply.contains("X-Seen"), "seed {seed}: {reply}");
        answered_without += 1;
        let runs = called.count();
        (0..100).for_each(|_| server.turn());
        assert_eq!(called.count(), runs, "seed {seed}: it was late");
        client.write(get("/timed").as_bytes());
        while server.read_line(&client) != "\r\n" {}
    });
    assert!(answered_without > 0, "no seed had it wait");
}

#[test]
fn sim_the_time_counts_from_the_arrival_wherever_the_request_waits() {
    // What a worker is needed for goes without it a while later.
    let grace = TIME;
    for (path, ends_after) in [("/bare", TIME), ("/timed", TIME + grace)] {
        let called = Called::default();
        let mut has_waited = false;
        each_seed(SEEDS, |seed| {
            let mut server = TestServer::new(Conditions::calm(seed), http(&called));
            let client = server.connect();
            let before = called.count();
            client.write(get(path).as_bytes());
            server.turn_without_workers();
            let arrived = server.world().now();
            without_workers(&mut server, TIME * 8 / 10);
            assert_eq!(heard(&client), "", "seed {seed}: it is not late yet");
            until_inside_waits(&mut server);
            let waited = server.world().now() - arrived;
            let mut reply = String::new();
            while reply.is_empty() {
                without_workers(&mut server, Duration::from_millis(1));
                reply += &heard(&client);
            }
            let time = server.world().now() - arrived;
            if called.count() > before || waited >= TIME {
                return;
            }
            has_waited = true;
            assert!(reply.contains("503 Service"), "seed {seed}: {reply}");
            let late = time.saturating_sub(ends_after);
            assert!(time >= ends_after, "seed {seed}: {path} after {time:?}");
            assert!(late < TIME / 2, "seed {seed}: {path} after {time:?}");
        });
        assert!(has_waited, "{path}: no seed had it wait");
    }
}

#[test]
fn sim_places_of_requests_that_were_late_are_free_again() {
    let called = Called::default();
    let mut conditions = Conditions::calm(1);
    conditions.limits.in_flight_max = 4;
    let mut server = TestServer::new(conditions, http(&called));
    for round in 1..5 {
        let clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for client in &clients {
            client.write(get("/timed").as_bytes());
        }
        without_workers(&mut server, 2 * TIME);
        for client in &clients {
            let reply = heard(client);
            assert!(reply.contains("503 Service"), "round {round}: {reply}");
        }
        // The workers find nothing to do, and what they found is back.
        (0..50).for_each(|_| server.turn());
        let Statistics { jobs_stalls, .. } = server.statistics();
        assert_eq!(jobs_stalls, 0, "round {round}");
    }
    assert_eq!(called.count(), 0);
}

#[test]
fn sim_a_handler_learns_that_its_client_is_gone() {
    let leaves: [fn(&Client); 3] = [Client::shutdown_write, Client::abort, |_| {}];
    for (way, leave) in leaves.into_iter().enumerate() {
        for headers in ["", "Connection: close\r\n"] {
            each_seed(SEEDS, |seed| {
                let called = Called::default();
                let mut server = TestServer::new(Conditions::rough(seed), http(&called));
                let client = server.connect();
                let request = format!("GET /seen HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
                client.write(request.as_bytes());
                (0..20).for_each(|_| server.turn_without_workers());
                leave(&client);
                (0..20).for_each(|_| server.turn_without_workers());
                // A worker comes to it only now.
                server.run_until(|| called.count() == 1);
                let is_gone = called.watch().is_gone();
                assert_eq!(is_gone, way < 2, "seed {seed}: way {way} {headers}");
                let is_served = way != 1;
                if is_served {
                    let line = server.read_line(&client);
                    assert!(line.contains("200 OK"), "seed {seed}: way {way}: {line}");
                }
            });
        }
    }
}

#[test]
fn sim_the_handler_of_a_listener_learns_it_too() {
    let called = Called::default();
    let state = called.clone();
    let handler = move |watch: ClientWatch, _: String| {
        state.watches.lock().expect("no panic").push(watch);
        state.call()
    };
    for (leaves, body) in [(false, 0), (true, 0), (true, 4)] {
        let mut server = TestServer::new(Conditions::calm(1), Http::pooled(handler.clone()));
        let client = server.connect();
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {body}\r\n\r\n");
        client.write(head.as_bytes());
        client.write(&b"body"[..body]);
        (0..20).for_each(|_| server.turn_without_workers());
        if leaves {
            client.shutdown_write();
        }
        (0..20).for_each(|_| server.turn_without_workers());
        let before = called.count();
        server.run_until(|| called.count() > before);
        assert_eq!(called.watch().is_gone(), leaves, "{body}");
        while server.read_line(&client) != "\r\n" {}
    }
}

#[test]
fn sim_a_handler_learns_that_its_stream_is_reset_and_no_other_is() {
    each_seed(SEEDS, |seed| {
        let called = Called::default();
        let mut server = TestServer::new(Conditions::rough(seed), http(&called));
        let mut peer = Peer::new(&mut server);
        let (first, second) = (peer.get("/seen"), peer.get("/seen"));
        (0..30).for_each(|_| peer.step_without_workers(&mut server));
        peer.reset(first);
        (0..30).for_each(|_| peer.step_without_workers(&mut server));
        peer.until(&mut server, |peer| peer.reply(second).end.is_some());
        peer.until(&mut server, |_| called.count() == 2);
        let gone = called.gone.lock().expect("no panic");
        let gone = gone.iter().filter(|is_gone| **is_gone);
        assert_eq!(gone.count(), 1, "seed {seed}");
        assert_eq!(peer.reply(second).text(), "called", "seed {seed}");
    });
}

#[test]
fn sim_a_handler_learns_that_a_time_out_has_answered() {
    let called = Called::default();
    let mut server = TestServer::new(Conditions::calm(1), http(&called));
    let client = server.connect();
    client.write(get("/watched").as_bytes());
    server.run_until(|| called.count() == 1);
    // Its response is made: nothing that it could do would change that.
    assert!(called.watch().is_gone());
    while server.read_line(&client) != "\r\n" {}
    assert_ne!(client.state(), ClientState::Reset);
}
