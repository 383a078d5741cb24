//! Clients and servers that go on in another protocol, through a proxy.

use std::time::Duration;

use flatpath_http::UpstreamLimits;
use flatpath_test::{Client, ClientState, Conditions, each_seed};

use super::rig::{Rig, SEEDS, get, ok, server_at};

/// A request that offers these protocols.
fn offers(protocols: &str) -> String {
    format!("GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: {protocols}\r\n\r\n")
}

fn switches(protocol: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\
         X-Key: 7\r\n\r\n"
    )
}

/// A client that offers a protocol `x`, and its server, which has just switched to it.
fn switching(rig: &mut Rig) -> (Client, Client) {
    let client = rig.connect();
    client.write(offers("x").as_bytes());
    let peer = rig.accept();
    let _head = rig.head(&peer);
    peer.write(switches("x").as_bytes());
    (client, peer)
}

/// The same, once the client knows.
fn switched(rig: &mut Rig) -> (Client, Client) {
    let (client, peer) = switching(rig);
    assert!(rig.head(&client).starts_with("HTTP/1.1 101 "));
    (client, peer)
}

#[test]
fn sim_what_was_said_before_the_switch_passes_first_and_then_all_until_both_have_ended() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(format!("{}early", offers("WebSocket, h2c")).as_bytes());
        let peer = rig.accept();
        let head = rig.head(&peer);
        assert!(
            head.ends_with("Upgrade: WebSocket\r\nConnection: upgrade\r\n\r\n"),
            "{head}"
        );
        peer.write(format!("{}first", switches("websocket")).as_bytes());
        let head = rig.head(&client);
        assert!(head.starts_with("HTTP/1.1 101 Switching"), "{head}");
        for line in ["upgrade: websocket", "connection: upgrade", "x-key: 7"] {
            let mut lines = head.lines();
            assert!(lines.any(|it| it.eq_ignore_ascii_case(line)), "{head}");
        }
        assert_eq!(rig.text(&client, 5), "first");
        assert_eq!(rig.text(&peer, 5), "early");
        let long = "x".repeat(200_000);
        client.write(long.as_bytes());
        assert!(rig.text(&peer, long.len()) == long);
        peer.write(long.as_bytes());
        assert!(rig.text(&client, long.len()) == long);
        // Each end passes by itself.
        client.write(b"last");
        client.shutdown_write();
        assert_eq!(rig.server.read_to_end(&peer), b"last");
        peer.write(b"and this");
        peer.shutdown_write();
        assert_eq!(rig.server.read_to_end(&client), b"and this");
    });
}

#[test]
fn sim_any_other_status_is_a_reply_and_both_connections_go_on() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(format!("{}{}", offers("x"), get("/after")).as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(rig.status(&client), 403);
        assert!(rig.head(&peer).starts_with("GET /after "));
        peer.write(ok("yes").as_bytes());
        assert_eq!(rig.status(&client), 200);
    });
}

#[test]
fn sim_a_switch_to_what_was_not_offered_is_a_502() {
    for (request, reply) in [
        (get("/"), switches("x")),
        (offers("x"), switches("y")),
        (offers("x"), switches("x, y")),
        (offers("h2c"), switches("h2c")),
        (
            offers("x"),
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n".into(),
        ),
    ] {
        let mut rig = Rig::new(Conditions::calm(1));
        let client = rig.connect();
        client.write(request.as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(reply.as_bytes());
        assert_eq!(rig.status(&client), 502, "{request}{reply}");
        rig.end(&peer);
    }
}

#[test]
fn sim_what_is_not_offered_to_servers_is_asked_without_it() {
    let body = "POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\
                Content-Length: 2\r\n\r\nhi";
    let closes = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade, close\r\nUpgrade: x\r\n\r\n";
    let unnamed = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\n\r\n";
    for request in [&*offers("h2c, HTTP/2.0"), body, closes, unnamed] {
        let mut rig = Rig::new(Conditions::calm(1));
        let client = rig.connect();
        client.write(request.as_bytes());
        let peer = rig.accept();
        let head = rig.head(&peer).to_ascii_lowercase();
        assert!(!head.contains("upgrade"), "{head}");
        peer.write(ok("well").as_bytes());
        assert_eq!(rig.status(&client), 200, "{request}");
    }
}

#[test]
fn sim_the_end_of_one_is_the_end_of_the_other() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::calm(seed));
        let (client, peer) = switched(&mut rig);
        client.abort();
        rig.end(&peer);
        let (client, peer) = switched(&mut rig);
        peer.abort();
        rig.end(&client);
        // A client that is gone before the switch, however near to it.
        let (client, peer) = switching(&mut rig);
        (0..seed).for_each(|_| rig.server.turn());
        client.abort();
        rig.end(&peer);
        // A server that is gone with its reply.
        let (client, peer) = switching(&mut rig);
        (0..seed).for_each(|_| rig.server.turn());
        peer.abort();
        rig.end(&client);
    });
}

#[test]
fn sim_a_pair_has_its_server_until_it_ends_and_ends_when_nothing_passes() {
    let limits = UpstreamLimits {
        upgraded_timeout: Duration::from_secs(100),
        queue_timeout: Duration::from_secs(1000),
        ..UpstreamLimits::default()
    };
    let server = server_at(1).in_flight_max(1);
    let mut rig = Rig::with(Conditions::calm(1), limits, server, |it| it);
    let (client, peer) = switched(&mut rig);
    let other = rig.connect();
    other.write(get("/waits").as_bytes());
    rig.opens_none();
    assert_eq!(rig.upstream.waiting(), 1);
    for _ in 0..3 {
        rig.server.advance(Duration::from_secs(60));
        client.write(b"still here");
        assert_eq!(rig.text(&peer, 10), "still here");
    }
    assert_eq!(client.state(), ClientState::Open);
    rig.server.advance(Duration::from_secs(101));
    rig.end(&peer);
    rig.end(&client);
    let peer = rig.accept();
    assert!(rig.head(&peer).starts_with("GET /waits "));
    peer.write(ok("").as_bytes());
    assert_eq!(rig.status(&other), 200);
}

#[test]
fn sim_a_switch_passes_through_layers() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::layered(Conditions::rough(seed));
        let client = rig.connect();
        client.write(format!("{}early", offers("x").replace("/chat", "/app/chat")).as_bytes());
        let peer = rig.accept();
        let head = rig.head(&peer);
        assert!(head.starts_with("GET /chat "), "{head}");
        peer.write(switches("x").as_bytes());
        let head = rig.head(&client).to_ascii_lowercase();
        assert!(head.contains("x-layer: seen"), "{head}");
        assert_eq!(rig.text(&peer, 5), "early");
    });
}

#[test]
fn sim_a_drain_leaves_a_pair_its_time() {
    let mut rig = Rig::new(Conditions::calm(1));
    let (client, peer) = switched(&mut rig);
    rig.server.drain();
    // The drain is seen.
    rig.server.turn();
    rig.server.turn();
    client.write(b"on");
    assert_eq!(rig.text(&peer, 2), "on");
    peer.shutdown_write();
    client.shutdown_write();
    rig.end(&client);
}
