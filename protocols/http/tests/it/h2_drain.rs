//! A drain that finds a client of HTTP/2 which has asked for nothing yet. The client is the `h2`
//! crate's, which answers PING and asks for nothing more after GOAWAY, as clients do (RFC 9113
//! section 6.8).

use std::time::Duration;

use flatpath_http::{Http, Router};
use flatpath_test::{Conditions, TestServer, each_seed};

use crate::h2_client::Peer;

const SEEDS: u64 = 40;

fn hello() -> Http<impl flatpath_http::Service> {
    Http::service(Router::new().get("/hello", || "hello"))
}

/// How the state of before ends that the client finds the server in.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// The drain is announced, and begins later.
    Announced,
    Drains,
}

const TOLD: [Told; 2] = [Told::Announced, Told::Drains];

fn drained(seed: u64, told: Told) -> (TestServer, Duration) {
    let mut conditions = Conditions::rough(seed);
    conditions.limits.drain_delay = match told {
        Told::Announced => Duration::from_secs(20),
        Told::Drains => Duration::ZERO,
    };
    let idle = conditions.limits.drain_idle_timeout;
    (TestServer::new(conditions, hello()), idle)
}

/// A client that has been greeted.
fn greeted(server: &mut TestServer) -> Peer {
    let mut peer = Peer::new(server);
    while server.statistics().connections_accepted == 0 {
        peer.step(server);
    }
    (0..8).for_each(|_| peer.step(server));
    peer
}

/// It has its connection, and its request is under way.
#[test]
fn sim_the_first_request_of_a_client_that_came_before_the_drain_is_answered() {
    each_seed(SEEDS, |seed| {
        for told in TOLD {
            let (mut server, idle) = drained(seed, told);
            let mut peer = greeted(&mut server);
            server.drain();
            (0..8).for_each(|_| peer.step(&mut server));
            server.advance(idle * 4 / 5);
            (0..8).for_each(|_| peer.step(&mut server));
            let reply = peer.fetch(&mut server, "/hello");
            assert_eq!((reply.text(), reply.end), ("hello", Some(Ok(()))));
            // And is the last.
            peer.until(&mut server, |peer| peer.end.is_some());
            assert_eq!(peer.end, Some(Ok(())), "by GOAWAY without an error");
        }
    });
}

/// A client that keeps a connection for later does not hold the drain up, and is told in time.
#[test]
fn sim_a_client_that_asks_for_nothing_is_told_and_ends() {
    each_seed(SEEDS, |seed| {
        let (mut server, idle) = drained(seed, Told::Drains);
        let mut peer = greeted(&mut server);
        let began = server.world().now();
        server.drain();
        peer.until(&mut server, |peer| peer.end.is_some());
        assert_eq!(peer.end, Some(Ok(())), "by GOAWAY without an error");
        let lasted = server.world().now() - began;
        assert!(lasted >= idle, "it ended after {lasted:?}");
        assert!(lasted < idle * 2, "it ended after {lasted:?}");
    });
}

/// Nor does one whose kernel acknowledges everything, and which answers nothing.
#[test]
fn sim_a_client_that_answers_nothing_ends_soon() {
    let (mut server, idle) = drained(1, Told::Drains);
    let peer = greeted(&mut server);
    let began = server.world().now();
    server.drain();
    let heard = server.read_to_end(&peer.client);
    let lasted = server.world().now() - began;
    assert!(lasted < idle * 4, "it ended after {lasted:?}");
    assert!(!heard.is_empty());
}
