//! Long bodies that come to their sinks in pipes: whole and in order whatever comes short or late,
//! for fast clients alone, and with the ends that others have.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::memory::{Piped, RegionConfig};
use flatpath_http::http::StatusCode;
use flatpath_http::{
    BodyPlan, Disposition, Head, Http, IntoResponse, Payload, Plan, Reply, Request, Response,
    Service, Sink, Turn, UploadDecision, WorkerScope,
};
use flatpath_test::{Client, Conditions, TestServer};

const SEEDS: u64 = 20;
const LENGTH: usize = 3_000_000;

/// What all sinks of a server have come to.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicUsize; 5]>);

const PIPES: usize = 0;
const FINISHED: usize = 1;
const ABANDONED: usize = 2;
/// Short requests that were answered.
const ANSWERED: usize = 3;
/// Pipes after which a short request waited for the worker.
const WAITED: usize = 4;

impl Counts {
    fn add(&self, what: usize) {
        self.0[what].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, what: usize) -> usize {
        self.0[what].load(Ordering::Relaxed)
    }

    fn ended(&self) -> usize {
        self.get(FINISHED) + self.get(ABANDONED)
    }
}

/// Writes bodies to files; by its path one takes no pipes, fails or panics with the first one.
struct Storing(Counts);

impl Service for Storing {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        self.0.add(ANSWERED);
        Response::new("short".into())
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        Plan {
            body: match head.method() {
                "PUT" => BodyPlan::Streamed,
                _ => BodyPlan::default(),
            },
            ..Plan::default()
        }
    }

    fn open(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        let file = rustix::fs::memfd_create("stored", rustix::fs::MemfdFlags::CLOEXEC);
        UploadDecision::Sink(Box::new(Stored {
            file: File::from(file.expect("a file")),
            path: request.uri().path().to_owned(),
            counts: self.0.clone(),
            waited_at: None,
        }))
    }

    fn region(&self) -> Option<RegionConfig> {
        Some(RegionConfig::default())
    }
}

struct Stored {
    file: File,
    path: String,
    counts: Counts,
    /// How many short requests were answered when one waited after the last pipe.
    waited_at: Option<usize>,
}

impl Sink for Stored {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        let parts = piece.parts().map(|part| self.file.write_all(part.bytes()));
        parts.collect::<Result<(), _>>().expect("a file in memory");
        Ok(())
    }

    fn takes_pipes(&self) -> bool {
        self.path != "/by-pages"
    }

    fn write_piped(
        &mut self,
        piped: &mut Piped,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.counts.add(PIPES);
        let answered = self.counts.get(ANSWERED);
        assert_ne!(self.waited_at, Some(answered), "it waits still");
        self.waited_at = scope.others_wait().then_some(answered);
        if self.waited_at.is_some() {
            self.counts.add(WAITED);
        }
        match self.path.as_str() {
            "/full" => Err(Box::new(StatusCode::INSUFFICIENT_STORAGE.into_response())),
            "/panics" => panic!("as it was told"),
            _ => {
                piped.write_to(&self.file).expect("a file in memory");
                Ok(())
            }
        }
    }

    /// What was stored.
    fn finish(mut self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.counts.add(FINISHED);
        let mut all = Vec::new();
        self.file.rewind().expect("a file in memory");
        self.file.read_to_end(&mut all).expect("a file in memory");
        Response::new(all.into())
    }

    fn abandoned(self: Box<Self>) {
        self.counts.add(ABANDONED);
    }
}

fn pattern(length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(4) as u32).map(|word| word.wrapping_mul(0x9e37_79b1));
    let mut all: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    all.truncate(length);
    all
}

fn served(conditions: Conditions) -> (TestServer, Client, Counts) {
    let counts = Counts::default();
    let server = TestServer::new(conditions, Http::service(Storing(counts.clone())));
    let client = server.connect();
    (server, client, counts)
}

fn head(path: &str, length: usize) -> Vec<u8> {
    format!("PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// The body of the next reply, which is a 200.
fn body(server: &mut TestServer, client: &Client) -> Vec<u8> {
    let status = server.read_line(client);
    assert!(status.contains(" 200 "), "{status}");
    let mut length = 0;
    loop {
        let line = server.read_line(client).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            return server.read_exact(client, length);
        }
    }
}

#[test]
fn sim_long_bodies_come_in_pipes_whole_and_in_order() {
    let mut pipes = 0;
    for seed in 0..SEEDS {
        let (mut server, client, counts) = served(Conditions::rough(seed));
        // The bytes after one body are the next request's.
        for length in [LENGTH + seed as usize, 1_000_000, 100, LENGTH] {
            client.write(&[head("/file", length), pattern(length)].concat());
        }
        client.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
        for length in [LENGTH + seed as usize, 1_000_000, 100, LENGTH] {
            let stored = body(&mut server, &client);
            assert!(stored == pattern(length), "seed {seed}, {length} bytes");
        }
        assert_eq!(body(&mut server, &client), b"short", "seed {seed}");
        pipes += counts.get(PIPES);
    }
    assert!(pipes > SEEDS as usize, "{pipes}");
}

#[test]
fn sim_a_fast_client_costs_a_worker_for_each_mebibyte() {
    let (mut server, client, counts) = served(Conditions::calm(1));
    client.write(&[head("/file", 16 << 20), pattern(16 << 20)].concat());
    assert!(body(&mut server, &client) == pattern(16 << 20));
    assert_eq!(counts.get(PIPES), 16);
    let statistics = server.statistics();
    let received = head("/file", 16 << 20).len() + (16 << 20);
    assert_eq!(
        statistics.received_bytes, received as u64,
        "each byte counts once"
    );
    // The worker fills the pipe again by itself.
    let jobs = statistics.jobs_dispatched;
    assert!(jobs < 8, "{jobs} hand-overs");
}

#[test]
fn sim_a_worker_that_others_wait_for_does_not_fill_its_pipe_again() {
    let mut waited = 0;
    for seed in 0..SEEDS / 2 {
        let (mut server, client, counts) = served(Conditions::calm(seed));
        client.write(&[head("/file", 4 << 20), pattern(4 << 20)].concat());
        let other = server.connect();
        for _ in 0..100 {
            other.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
            server.turn();
            other.read();
        }
        let stored = body(&mut server, &client);
        assert!(stored == pattern(4 << 20), "seed {seed}");
        waited += counts.get(WAITED);
    }
    assert!(waited > SEEDS as usize / 2, "{waited}");
}

#[test]
fn sim_neither_a_slow_client_nor_a_sink_that_takes_none_has_a_pipe() {
    let (mut server, client, counts) = served(Conditions::calm(1));
    client.write(&head("/file", LENGTH));
    for piece in pattern(LENGTH).chunks(20_000) {
        client.write(piece);
        server.settle();
    }
    assert!(body(&mut server, &client) == pattern(LENGTH));
    client.write(&[head("/by-pages", LENGTH), pattern(LENGTH)].concat());
    assert!(body(&mut server, &client) == pattern(LENGTH));
    assert_eq!(counts.get(PIPES), 0);
}

#[test]
fn sim_a_sink_that_fails_on_a_pipe_is_answered_for() {
    for seed in 0..SEEDS {
        for (path, status) in [("/full", " 507 "), ("/panics", " 500 ")] {
            let (mut server, client, counts) = served(Conditions::calm(seed));
            client.write(&[head(path, LENGTH), pattern(LENGTH)].concat());
            let reply = server.read_line(&client);
            assert!(reply.contains(status), "{path}, seed {seed}: {reply}");
            client.abort();
            server.end();
            assert_eq!((counts.get(PIPES), counts.ended()), (1, 0), "seed {seed}");
        }
    }
}

#[test]
fn sim_a_body_that_breaks_off_in_pipes_is_abandoned_once() {
    type End = fn(&mut TestServer, &Client);
    let ends: [(&str, End); 5] = [
        ("its end", |_, client| client.shutdown_write()),
        ("a reset", |_, client| client.abort()),
        ("silence", |_, _| {}),
        ("a drain", |server, _| server.drain()),
        ("a stop", |server, _| server.force()),
    ];
    let mut pipes = 0;
    for (name, end) in ends {
        for seed in 0..SEEDS {
            let mut conditions = Conditions::rough(seed);
            conditions.limits.body_timeout = Duration::from_secs(5);
            conditions.limits.drain_timeout = Duration::from_secs(5);
            let (mut server, client, counts) = served(conditions);
            let sent = pattern(LENGTH)[..LENGTH / 2 + seed as usize * 10_000].to_vec();
            client.write(&[head("/file", LENGTH), sent].concat());
            (0..seed * 3).for_each(|_| server.turn());
            let has_begun = counts.clone();
            if seed % 2 == 0 {
                server.run_until(|| has_begun.get(PIPES) > 0);
            }
            end(&mut server, &client);
            let ended = counts.clone();
            if seed % 2 == 0 {
                server.run_until(|| ended.ended() > 0);
            }
            client.abort();
            server.end();
            assert_eq!(counts.get(FINISHED), 0, "{name}, seed {seed}");
            assert!(counts.get(ABANDONED) <= 1, "{name}, seed {seed}");
            pipes += counts.get(PIPES);
        }
    }
    assert!(pipes > SEEDS as usize, "{pipes}");
}
