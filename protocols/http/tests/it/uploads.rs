//! How an upload ends: its sink is told once, whatever happens to the client, the body or the
//! server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{
    Http, IntoResponse, Payload, Response, Router, Sink, Upload, WorkerScope, routing,
};
use flatpath_test::{Client, Conditions, TestServer};

const SEEDS: u64 = 10;

/// What has happened to the upload, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, what: &'static str) {
        self.0.lock().expect("no panic").push(what);
    }

    fn get(&self) -> Vec<&'static str> {
        self.0.lock().expect("no panic").clone()
    }
}

/// Ends by itself at a `!`, panics at a `?`.
struct Noting(Log);

impl Sink for Noting {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        let has = |byte| piece.parts().any(|part| part.bytes().contains(&byte));
        assert!(!has(b'?'), "as it was told");
        match has(b'!') {
            true => Err(Box::new(StatusCode::BAD_REQUEST.into_response())),
            false => Ok(()),
        }
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.0.note("finished");
        StatusCode::CREATED.into_response()
    }

    fn abandoned(self: Box<Self>) {
        self.0.note("abandoned");
    }
}

/// A server whose uploads are noted, and a client that has begun one of ten bytes with these.
fn begun(seed: u64, path: &str, first: &str) -> (TestServer, Client, Log) {
    let log = Log::default();
    let noted = log.clone();
    let plain = move || {
        noted.note("opened");
        Upload::new(Noting(noted.clone()))
    };
    let (inner, act) = (plain.clone(), log.clone());
    let watched = move || {
        let act = act.clone();
        inner().if_abandoned(move || act.note("watched"))
    };
    let router = Router::new()
        .route("/plain", routing::put(plain).streamed())
        .route("/watched", routing::put(watched.clone()).streamed())
        .route("/short", routing::put(watched).body_bytes_max(9).streamed());
    let mut conditions = Conditions::rough(seed);
    conditions.limits.body_timeout = Duration::from_secs(5);
    conditions.limits.drain_timeout = Duration::from_secs(5);
    let mut server = TestServer::new(conditions, Http::service(router));
    let client = server.connect();
    let head = format!("PUT {path} HTTP/1.1\r\nHost: h\r\n");
    let framing = match path {
        // So that its length is not known before.
        "/short" => "Transfer-Encoding: chunked\r\n\r\n",
        _ => "Content-Length: 10\r\n\r\n",
    };
    client.write(format!("{head}{framing}{first}").as_bytes());
    let opened = log.clone();
    server.run_until(|| !opened.get().is_empty());
    // Its job is with a worker, on its way, or at home.
    (0..seed % 5).for_each(|_| server.turn());
    (server, client, log)
}

/// Begins an upload, ends it, and gives what its sink has learned once the server is gone.
fn learned(
    seed: u64,
    path: &str,
    first: &str,
    end: impl Fn(&mut TestServer, &Client),
) -> Vec<&'static str> {
    let (mut server, client, log) = begun(seed, path, first);
    end(&mut server, &client);
    let before = log.clone();
    server.run_until(|| before.get().len() > 1);
    client.abort();
    server.end();
    log.get()
}

#[test]
fn sim_a_sink_learns_that_its_upload_is_complete_or_broke_off() {
    type End = fn(&mut TestServer, &Client);
    let ends: [(&str, End, &str); 6] = [
        ("complete", |_, client| client.write(b"67890"), "finished"),
        ("its end", |_, client| client.shutdown_write(), "abandoned"),
        ("a reset", |_, client| client.abort(), "abandoned"),
        ("silence", |_, _| {}, "abandoned"),
        ("a drain", |server, _| server.drain(), "abandoned"),
        ("a stop", |server, _| server.force(), "abandoned"),
    ];
    for (name, end, expected) in ends {
        for seed in 0..SEEDS {
            let plain = learned(seed, "/plain", "12345", end);
            assert_eq!(plain, ["opened", expected], "{name}, seed {seed}");
            let watched = learned(seed, "/watched", "12345", end);
            let all = ["opened", expected, "watched"];
            let all = &all[..if expected == "finished" { 2 } else { 3 }];
            assert_eq!(watched, all, "{name}, seed {seed}");
        }
    }
}

#[test]
fn sim_a_sink_learns_of_a_body_that_is_longer_than_its_route_allows_or_breaks_its_framing() {
    for seed in 0..SEEDS {
        for rest in ["6\r\n123456\r\n", "no number\r\n"] {
            let end = |_: &mut TestServer, client: &Client| client.write(rest.as_bytes());
            let learned = learned(seed, "/short", "4\r\n1234\r\n", end);
            let expected = ["opened", "abandoned", "watched"];
            assert_eq!(learned, expected, "{rest:?}, seed {seed}");
        }
    }
}

#[test]
fn sim_a_sink_that_has_ended_its_upload_is_not_told_so() {
    for seed in 0..SEEDS {
        for (last, status) in [("!", "400"), ("?", "500")] {
            for path in ["/plain", "/watched"] {
                let (mut server, client, log) = begun(seed, path, "12345");
                client.write(format!("6789{last}").as_bytes());
                let reply = server.read_line(&client);
                assert!(reply.contains(status), "{path}, seed {seed}: {reply}");
                client.abort();
                server.end();
                assert_eq!(log.get(), ["opened"], "{path}, seed {seed}");
            }
        }
    }
}

/// Adds up what it is given.
struct Counting(Arc<AtomicUsize>);

impl Sink for Counting {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.0.fetch_add(piece.len(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        StatusCode::CREATED.into_response()
    }
}

#[test]
fn sim_what_has_gathered_of_an_upload_is_written_when_others_wait_for_memory() {
    const BUFFERS: usize = 64;
    const SENT: usize = 12_000;
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let upload = move || Upload::new(Counting(Arc::clone(&counter)));
    let router = Router::new()
        .route("/upload", routing::put(upload).streamed())
        .route("/reply", routing::get(|| "x".repeat(3000)));
    let mut conditions = Conditions::calm(1);
    conditions.limits.buffer_bytes_max = BUFFERS * 4096;
    let mut server = TestServer::new(conditions, Http::service(router));
    let client = server.connect();
    client.write(b"PUT /upload HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..SENT / 1000 {
        // Short and framed, so it is copied to where it waits.
        client.write(format!("3e8\r\n{}\r\n", "x".repeat(1000)).as_bytes());
        server.settle();
    }
    assert_eq!(written.load(Ordering::Relaxed), 0, "it waits to be more");
    // Replies that are not read take what there is, and more requests wait for it.
    server.world().set_window_bytes(1);
    let others: Vec<Client> = (0..2 * BUFFERS)
        .map(|_| {
            let other = server.connect();
            other.write(b"GET /reply HTTP/1.1\r\nHost: h\r\n\r\n");
            other
        })
        .collect();
    server.run_until(|| written.load(Ordering::Relaxed) == SENT);
    drop(others);
}
