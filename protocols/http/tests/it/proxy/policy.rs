//! Who waits, and for whom: limits of servers, the queue, those that are left out.

use std::time::Duration;

use flatpath::simulation::Answer;
use flatpath_http::{Balance, Http, Proxy, Upstream, UpstreamLimits};
use flatpath_test::{Client, Conditions, TestServer, each_seed};

use super::rig::{Rig, SEEDS, at, get, ok, server_at};

fn one_at_a_time(seed: u64, limits: UpstreamLimits) -> Rig {
    let server = server_at(1).in_flight_max(1);
    Rig::with(Conditions::calm(seed), limits, server, |it| it)
}

#[test]
fn sim_requests_wait_in_their_order_and_take_the_connection_that_comes_back() {
    each_seed(SEEDS, |seed| {
        let mut rig = one_at_a_time(seed, UpstreamLimits::default());
        let clients = rig.ask_in_order(10);
        assert_eq!(rig.upstream.waiting(), 9);
        let peer = rig.accept();
        for (number, client) in clients.iter().enumerate() {
            let head = rig.head(&peer);
            assert!(head.starts_with(&format!("GET /{number} ")), "{head}");
            peer.write(ok("turn").as_bytes());
            assert_eq!(rig.status(client), 200);
        }
        assert!(rig.far.accept().is_none(), "one connection for all");
    });
}

#[test]
fn sim_who_leaves_the_queue_is_left_out() {
    let mut rig = one_at_a_time(1, UpstreamLimits::default());
    let clients = rig.ask_in_order(3);
    let peer = rig.accept();
    let _head = rig.head(&peer);
    clients[1].abort();
    rig.server.settle();
    assert_eq!(rig.upstream.waiting(), 1);
    peer.write(ok("turn").as_bytes());
    assert!(rig.head(&peer).starts_with("GET /2 "));
}

#[test]
fn sim_who_finds_the_queue_full_or_waits_too_long_gets_a_503() {
    let limits = UpstreamLimits {
        queue_max: 1,
        queue_timeout: Duration::from_secs(3),
        ..UpstreamLimits::default()
    };
    let mut rig = one_at_a_time(1, limits);
    let clients = rig.ask_in_order(3);
    assert_eq!(rig.status(&clients[2]), 503);
    let began = rig.server.world().now();
    assert_eq!(rig.status(&clients[1]), 503);
    let took = rig.server.world().now() - began;
    assert!((2..5).contains(&took.as_secs()), "{took:?}");
    assert_eq!(rig.upstream.waiting(), 0);
    let peer = rig.accept();
    let _head = rig.head(&peer);
    peer.write(ok("first").as_bytes());
    assert_eq!(rig.status(&clients[0]), 200);
}

#[test]
fn sim_a_client_that_leaves_gives_its_server_to_the_next() {
    let mut rig = one_at_a_time(1, UpstreamLimits::default());
    let (one, other) = (rig.connect(), rig.connect());
    one.write(get("/one").as_bytes());
    rig.server.settle();
    other.write(get("/other").as_bytes());
    let peer = rig.accept();
    let _head = rig.head(&peer);
    one.abort();
    let peer = rig.accept();
    assert!(rig.head(&peer).starts_with("GET /other "));
    peer.write(ok("other").as_bytes());
    assert_eq!(rig.status(&other), 200);
}

#[test]
fn sim_who_leaves_in_its_turn_gives_that_to_the_next() {
    each_seed(60, |seed| {
        let mut rig = one_at_a_time(seed, UpstreamLimits::default());
        let clients = rig.ask_in_order(3);
        let peer = rig.accept();
        let _head = rig.head(&peer);
        clients[1].abort();
        for _ in 0..seed % 6 {
            rig.server.turn();
        }
        peer.write(ok("turn").as_bytes());
        assert_eq!(rig.status(&clients[0]), 200);
        // Over the same connection, or another one where that was given to who has left.
        let (far, mut peers, mut came) = (rig.far.clone(), vec![peer], Vec::new());
        rig.server.run_until(|| {
            peers.extend(far.accept());
            came.extend(peers.iter().flat_map(Client::read));
            came.windows(7).any(|words| words == b"GET /2 ")
        });
    });
}

#[test]
fn sim_no_worker_is_on_the_way() {
    let mut rig = Rig::new(Conditions::calm(1));
    let client = rig.connect();
    client.write(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    let (mut peer, mut asked, mut replied) = (None, Vec::new(), Vec::new());
    for _ in 0..1000 {
        rig.server.turn_without_workers();
        peer = peer.take().or_else(|| rig.far.accept());
        if let Some(peer) = &peer {
            let read = peer.read();
            let is_asked = !read.is_empty() && read.ends_with(b"body");
            asked.extend(read);
            if is_asked {
                peer.write(ok("through").as_bytes());
            }
        }
        replied.extend(client.read());
    }
    assert!(asked.ends_with(b"\r\n\r\nbody"));
    assert!(replied.ends_with(b"\r\n\r\nthrough"));
}

#[test]
fn sim_an_idle_connection_ends_in_time_and_with_the_server() {
    for drains in [false, true] {
        let mut rig = Rig::new(Conditions::calm(1));
        // A deadline is kept as the beginning of its phase, which is not before that of time.
        rig.server.advance(Duration::from_secs(3600));
        let client = rig.connect();
        client.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(ok("one").as_bytes());
        assert_eq!(rig.status(&client), 200);
        rig.server.settle();
        assert_eq!(rig.upstream.idle(), 1);
        let began = rig.server.world().now();
        if drains {
            rig.server.drain();
        }
        rig.end(&peer);
        let took = rig.server.world().now() - began;
        assert_eq!(took < Duration::from_secs(3), drains, "{took:?}");
        assert!(took < Duration::from_secs(6), "{took:?}");
        assert_eq!(rig.upstream.idle(), 0);
    }
}

/// Two servers of which the first refuses.
#[test]
fn sim_a_server_that_fails_is_left_out_and_its_requests_have_another() {
    each_seed(SEEDS, |seed| {
        let servers = [server_at(1), server_at(2)];
        let upstream = Upstream::new(
            "app",
            servers,
            Balance::RoundRobin,
            UpstreamLimits::default(),
        );
        let upstream = upstream.expect("two servers");
        let http = Http::service(Proxy::to(&upstream));
        let mut server = TestServer::new(Conditions::calm(seed), http);
        let _dead = server.world().upstream(at(1), Answer::Refuses);
        let well = server.world().upstream(at(2), Answer::Accepts);
        let client = server.connect();
        let mut peer: Option<Client> = None;
        for number in 0..10 {
            // Of a body that passes nothing is gone where nothing was connected.
            let request = match number % 2 {
                0 => get("/"),
                _ => String::from("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"),
            };
            client.write(request.as_bytes());
            let mut came = Vec::new();
            server.run_until(|| {
                peer = peer.take().or_else(|| well.accept());
                came.extend(peer.iter().flat_map(Client::read));
                came.ends_with(if number % 2 == 0 {
                    b"\r\n\r\n"
                } else {
                    b"body"
                })
            });
            if let Some(peer) = &peer {
                peer.write(ok("well").as_bytes());
            }
            let mut reply = String::new();
            while !reply.ends_with("\r\n\r\n") {
                reply += &server.read_line(&client);
            }
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
            let _body = server.read_exact(&client, 4);
        }
    });
}
