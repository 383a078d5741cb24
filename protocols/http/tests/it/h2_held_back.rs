//! Uploads over HTTP/2 that the server itself has held back for want of memory: that time is not
//! their clients', whose own silences count as before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flatpath::memory::Buffer;
use flatpath_http::http::StatusCode;
use flatpath_http::{
    BodyPlan, Disposition, Head, Http, IntoResponse, Payload, Plan, Reply, Request, Response,
    Service, Sink, Turn, UploadDecision, WorkerScope,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer};

use crate::h2_client::Peer;
use crate::h2_frames::{END_HEADERS, END_STREAM, GET, HEADERS, frame, frames, greeting};

/// Shorter than those that wait for memory are ended in.
const BODY_TIMEOUT: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(50);
/// Buffers that a stream and its reply have room in.
const ROOM: usize = 4;

/// Says how long a body is. At `/hoard` it takes all memory for buffers, and keeps it; at `/pieces`
/// it takes a body as it comes.
#[derive(Clone, Default)]
struct Hoarder(Arc<Mutex<Vec<Buffer>>>, Arc<AtomicUsize>);

impl Service for Hoarder {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let plan = Plan::default();
        match head.path() {
            "/pieces" => Plan {
                body: BodyPlan::Streamed,
                ..plan
            },
            _ => plan,
        }
    }

    fn open(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        UploadDecision::Sink(Box::new(Pieces(Arc::clone(&self.1))))
    }

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        if request.uri().path() == "/hoard" {
            let mut kept = self.0.lock().expect("no panic");
            while let Some(buffer) = scope.pool().take(4000) {
                kept.push(buffer);
            }
        }
        request.body().to_bytes().len().to_string().into_response()
    }
}

/// Counts what has come.
struct Pieces(Arc<AtomicUsize>);

impl Sink for Pieces {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.0.fetch_add(piece.len(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.0.load(Ordering::Relaxed).to_string().into_response()
    }
}

impl Hoarder {
    /// Takes all memory.
    fn hoard(&self, server: &mut TestServer) {
        let client = server.connect();
        client.write(b"GET /hoard HTTP/1.1\r\nHost: h\r\n\r\n");
        (0..40).for_each(|_| server.turn());
        assert!(self.0.lock().expect("no panic").len() > 100);
    }

    /// Gives so many buffers back.
    fn give_back_some(&self, count: usize) {
        let mut kept = self.0.lock().expect("no panic");
        let left = kept.len().saturating_sub(count);
        kept.truncate(left);
    }

    fn give_back(&self) {
        self.0.lock().expect("no panic").clear();
    }
}

fn server(hoarder: &Hoarder) -> TestServer {
    let mut conditions = Conditions::calm(7);
    conditions.limits.buffer_bytes_max = 1 << 20;
    conditions.limits.body_timeout = BODY_TIMEOUT;
    // What waits for memory is not refused meanwhile.
    conditions.limits.stall_timeout = Duration::from_secs(1000);
    TestServer::new(conditions, Http::service(hoarder.clone()))
}

/// Clients whose heads do not end, and hold what is left of memory.
fn hoard_rest(server: &mut TestServer) -> Vec<Client> {
    let mut clients = Vec::new();
    loop {
        let before = server.handle().pool_statistics().in_use_bytes;
        let client = server.connect();
        client.write(&[&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 3000]].concat());
        (0..4).for_each(|_| server.turn());
        clients.push(client);
        if server.handle().pool_statistics().in_use_bytes == before {
            return clients;
        }
    }
}

/// Lets time pass, a step at a time.
fn pass(server: &mut TestServer, peer: &mut Peer, time: Duration) {
    let begun = server.world().now();
    while server.world().now() - begun < time {
        server.advance(STEP);
        (0..4).for_each(|_| peer.step(server));
    }
}

/// One upload waits for memory, and with it the whole connection is not read. Another one of it has
/// nothing on its way: nothing but the time that stood still speaks for that one.
#[test]
fn sim_the_time_for_which_memory_was_short_is_not_a_clients() {
    for is_slow in [false, true] {
        let hoarder = Hoarder::default();
        let mut server = server(&hoarder);
        let mut peer = Peer::new(&mut server);
        let beside = peer.put("/beside", Bytes::new());
        let upload = peer.put("/upload", Bytes::new());
        peer.feed(beside, &[b'a'; 1000], false);
        peer.feed(upload, &[b'a'; 1000], false);
        (0..20).for_each(|_| peer.step(&mut server));
        hoarder.hoard(&mut server);
        // There is no memory for this. It waits for three times as long as a client may.
        peer.feed(upload, &[b'b'; 50_000], true);
        pass(&mut server, &mut peer, 3 * BODY_TIMEOUT);
        let stalls = server.statistics().memory_stalls;
        assert!(stalls > 0, "memory was not short");
        assert!(peer.reply(upload).status.is_none());
        hoarder.give_back();
        // Less than the client may be silent, then more.
        pass(&mut server, &mut peer, BODY_TIMEOUT - 3 * STEP);
        assert!(peer.reply(beside).status.is_none(), "it has its own time");
        if is_slow {
            pass(&mut server, &mut peer, BODY_TIMEOUT);
            let status = peer.reply(beside).status;
            assert_eq!(status, Some(StatusCode::REQUEST_TIMEOUT));
            continue;
        }
        peer.feed(beside, &[b'c'; 1000], true);
        (0..100).for_each(|_| peer.step(&mut server));
        for (stream, length) in [(upload, "51000"), (beside, "2000")] {
            let reply = peer.reply(stream);
            assert_eq!(reply.status, Some(StatusCode::OK));
            assert_eq!(reply.text(), length);
        }
    }
}

/// What has gathered of an upload is written when others want its memory, and its end waits for
/// memory by itself.
#[test]
fn sim_an_upload_gives_way_to_others_and_ends_when_there_is_memory() {
    const BYTES: usize = 50_000;
    let hoarder = Hoarder::default();
    let mut server = server(&hoarder);
    let mut peer = Peer::new(&mut server);
    let upload = peer.put("/pieces", Bytes::new());
    peer.feed(upload, &[b'a'; BYTES], false);
    (0..40).for_each(|_| peer.step(&mut server));
    let taken = || hoarder.1.load(Ordering::Relaxed);
    assert_eq!(taken(), 0, "it waits for more");
    hoarder.hoard(&mut server);
    let other = server.connect();
    other.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    (0..40).for_each(|_| peer.step(&mut server));
    assert_eq!(taken(), BYTES, "another wants its memory");
    hoarder.hoard(&mut server);
    let rest = hoard_rest(&mut server);
    peer.feed(upload, b"", true);
    (0..40).for_each(|_| peer.step(&mut server));
    assert!(peer.reply(upload).status.is_none(), "there is memory left");
    drop(rest);
    hoarder.give_back();
    peer.until(&mut server, |peer| peer.reply(upload).end.is_some());
    assert_eq!(peer.reply(upload).text(), BYTES.to_string());
}

/// A request that finds no memory waits for the job of its own connection, which makes room: that
/// is no wait for memory, whose time ends a connection.
#[test]
fn sim_a_request_without_memory_waits_for_the_job_of_its_connection() {
    const STALL_TIMEOUT: Duration = Duration::from_secs(2);
    let hoarder = Hoarder::default();
    let mut conditions = Conditions::calm(7);
    conditions.limits.buffer_bytes_max = 1 << 20;
    conditions.limits.stall_timeout = STALL_TIMEOUT;
    let mut server = TestServer::new(conditions, Http::service(hoarder.clone()));
    let client = server.connect();
    let get = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
    client.write(&greeting());
    (0..20).for_each(|_| server.turn());
    hoarder.hoard(&mut server);
    // Enough for a stream and its reply, and not for several.
    hoarder.give_back_some(ROOM);
    client.write(&get(1));
    (0..20).for_each(|_| server.turn_without_workers());
    client.write(&get(3));
    (0..20).for_each(|_| server.turn_without_workers());
    assert!(server.statistics().pipeline_stalls > 0, "it waits");
    server.advance(2 * STALL_TIMEOUT);
    (0..20).for_each(|_| server.turn_without_workers());
    assert_eq!(client.state(), ClientState::Open);
    hoarder.give_back();
    let mut heard = Vec::new();
    server.run_until(|| {
        heard.extend(client.read());
        let heads = frames(&heard);
        heads.iter().filter(|(kind, _)| *kind == HEADERS).count() == 2
    });
}
