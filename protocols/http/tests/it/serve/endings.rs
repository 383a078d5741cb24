//! Drain: what is in flight is finished, and clients are notified.

use std::sync::Arc;

use flatpath::{DriverChoice, Turn, WorkerScope};
use flatpath_http::{Disposition, Head, Http, Reply, Request, Response, Service};
use flatpath_testkit::client::{Client, Ending};

use crate::on_each_driver;
use crate::serve::{Door, get, post, serve};

on_each_driver!(
    a_worker_sees_that_the_server_drains,
    a_drain_finishes_what_is_in_flight_and_says_so,
    a_drain_closes_idle_connections_and_finishes_half_sent_requests,
);

fn behind_a_door() -> (
    Arc<Door>,
    impl Fn(&Request) -> Response + Send + Sync + 'static,
) {
    let door = Arc::new(Door::default());
    let guard = Arc::clone(&door);
    let handler = move |request: &Request| {
        if request.uri().path() == "/door" {
            guard.pass();
        }
        Response::new(request.uri().path().to_owned().into())
    };
    (door, handler)
}

fn a_drain_finishes_what_is_in_flight_and_says_so(choice: DriverChoice) {
    let (door, handler) = behind_a_door();
    let (server, address) = serve(choice, Http::pooled(handler));
    let mut client = Client::connect(address);
    client.send(get("/door") + &get("/after"));
    door.until_waited(1);
    // Until it is with a worker too, the second request may be one for another connection.
    let mut idle = Client::connect(address);
    assert_eq!(idle.get("/idle").text(), "/idle");
    server.handle().drain();
    assert_eq!(idle.rest(), (Vec::new(), Ending::Closed));
    door.open();
    let first = client.reply();
    assert_eq!(first.text(), "/door");
    assert!(!first.says_close(), "another reply follows");
    let second = client.reply();
    assert!(second.text() == "/after" && second.says_close());
    assert_eq!(client.rest().0, b"");
    server.wait().expect("the drain is complete");
}

fn a_drain_closes_idle_connections_and_finishes_half_sent_requests(choice: DriverChoice) {
    let (_door, handler) = behind_a_door();
    let (server, address) = serve(choice, Http::pooled(handler));
    let mut head = Client::connect(address);
    let mut body = Client::connect(address);
    let mut idle = Client::connect(address);
    for client in [&mut head, &mut body, &mut idle] {
        assert_eq!(client.get("/").text(), "/");
    }
    let (request, posted) = (get("/head"), post("/body", "hello"));
    head.send(&request[..10]);
    body.send(&posted[..posted.len() - 3]);
    // A request on another connection after theirs: they have arrived when it is answered.
    assert_eq!(Client::connect(address).get("/").text(), "/");
    server.handle().drain();
    assert_eq!(idle.rest(), (Vec::new(), Ending::Closed));
    head.send(&request[10..]);
    body.send(&posted[posted.len() - 3..]);
    for (client, path) in [(&mut head, "/head"), (&mut body, "/body")] {
        let reply = client.reply();
        assert!(reply.text() == path && reply.says_close());
        assert_eq!(client.rest().0, b"");
    }
    server.wait().expect("the drain is complete");
}

/// Runs until the server drains.
struct Lasting(Arc<Door>);

impl Service for Lasting {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, _: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let was_draining = scope.draining();
        self.0.open();
        while !scope.draining() {
            scope.pause();
        }
        Response::new(format!("{was_draining}, then true").into())
    }
}

fn a_worker_sees_that_the_server_drains(choice: DriverChoice) {
    let door = Arc::new(Door::default());
    let (server, address) = serve(choice, Http::service(Lasting(Arc::clone(&door))));
    let mut client = Client::connect(address);
    client.send(get("/"));
    door.pass();
    server.handle().drain();
    assert_eq!(client.reply().text(), "false, then true");
    server.wait().expect("it ends");
}
