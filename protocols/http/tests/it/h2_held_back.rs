//! Uploads over HTTP/2 that the server itself has held back for want of memory: that time is not
//! their clients', whose own silences count as before.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flatpath::memory::Buffer;
use flatpath_http::http::StatusCode;
use flatpath_http::{
    Disposition, Head, Http, IntoResponse, Reply, Request, Response, Service, Turn, WorkerScope,
};
use flatpath_test::{Conditions, TestServer};

use crate::h2_client::Peer;

/// Shorter than those that wait for memory are ended in.
const BODY_TIMEOUT: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(50);

/// Says how long a body is. At `/hoard` it takes all memory for buffers, and keeps it.
#[derive(Clone, Default)]
struct Hoarder(Arc<Mutex<Vec<Buffer>>>);

impl Service for Hoarder {
    type ThreadState = ();

    fn thread_state(&self) {}

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

impl Hoarder {
    /// Takes all memory.
    fn hoard(&self, server: &mut TestServer) {
        let client = server.connect();
        client.write(b"GET /hoard HTTP/1.1\r\nHost: h\r\n\r\n");
        (0..40).for_each(|_| server.turn());
        assert!(self.0.lock().expect("no panic").len() > 100);
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
