//! What goes wrong with servers and clients, step by step: who hears of it, and who does not.

use std::time::Duration;

use flatpath::simulation::Answer;
use flatpath_http::UpstreamLimits;
use flatpath_test::{Client, ClientState, Conditions, each_seed};

use super::rig::{Rig, SEEDS, get, ok, server_at};

const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";

fn rig(seed: u64, limits: UpstreamLimits) -> Rig {
    Rig::with(Conditions::calm(seed), limits, server_at(1), |it| it)
}

/// A connection that is idle after one request of this client.
fn idle(rig: &mut Rig, client: &Client) -> Client {
    client.write(get("/first").as_bytes());
    let peer = rig.accept();
    let _head = rig.head(&peer);
    peer.write(ok("first").as_bytes());
    assert_eq!(rig.status(client), 200);
    rig.server.settle();
    assert_eq!(rig.upstream.idle(), 1);
    peer
}

#[test]
fn sim_a_request_that_lost_the_race_is_sent_again_where_it_may_be() {
    for (request, is_sent_again) in [(get("/"), true), (POST.to_owned(), false)] {
        for resets in [true, false] {
            let mut rig = Rig::new(Conditions::calm(1));
            let client = rig.connect();
            let peer = idle(&mut rig, &client);
            client.write(request.as_bytes());
            let _sent = rig.head(&peer);
            match resets {
                true => peer.abort(),
                false => peer.shutdown_write(),
            }
            if !is_sent_again {
                assert_eq!(rig.status(&client), 502, "{resets}");
                rig.opens_none();
                continue;
            }
            let peer = rig.accept();
            assert!(rig.head(&peer).starts_with("GET / "), "the same again");
            peer.write(ok("again").as_bytes());
            assert_eq!(rig.status(&client), 200, "{resets}");
        }
    }
}

#[test]
fn sim_requests_and_the_end_of_their_connection_at_once_are_answered() {
    each_seed(60, |seed| {
        let mut rig = Rig::new(Conditions::calm(seed));
        let client = rig.connect();
        let peer = idle(&mut rig, &client);
        // Nothing of it is sent, or it is idempotent, whichever comes first.
        client.write(get("/raced").as_bytes());
        for _ in 0..seed % 7 {
            rig.server.turn();
        }
        peer.shutdown_write();
        let peer = rig.accept();
        assert!(rig.head(&peer).starts_with("GET /raced "));
        peer.write(ok("again").as_bytes());
        assert_eq!(rig.status(&client), 200);
    });
}

/// The other idle connections of a server that has just closed one are no better.
#[test]
fn sim_a_request_that_lost_the_race_gets_a_new_connection() {
    let mut rig = Rig::new(Conditions::calm(1));
    let [clients, peers] = rig.answered_at_once::<2>();
    assert_eq!(rig.upstream.idle(), 2);
    clients[0].write(get("/raced").as_bytes());
    rig.server.settle();
    let raced = peers.iter().find(|peer| !peer.read().is_empty());
    raced.expect("one of them was asked").abort();
    let peer = rig.accept();
    assert!(rig.head(&peer).starts_with("GET /raced "));
    peer.write(ok("again").as_bytes());
    assert_eq!(rig.status(&clients[0]), 200);
}

/// What has gone out of a body that passes is not there for another attempt.
#[test]
fn sim_a_request_whose_body_is_gone_is_not_sent_again() {
    let mut rig = Rig::new(Conditions::calm(1));
    let client = rig.connect();
    let peer = idle(&mut rig, &client);
    client.write(POST.replace("POST", "PUT").as_bytes());
    let _head = rig.head(&peer);
    assert_eq!(rig.text(&peer, 4), "body");
    peer.abort();
    assert_eq!(rig.status(&client), 502);
    rig.opens_none();
}

#[test]
fn sim_as_many_connections_are_kept_as_may_be() {
    let limits = UpstreamLimits {
        idle_max: 2,
        ..UpstreamLimits::default()
    };
    let mut rig = rig(1, limits);
    let [_clients, peers] = rig.answered_at_once::<4>();
    assert_eq!(rig.upstream.idle(), 2);
    let open = peers
        .iter()
        .filter(|peer| peer.state() == ClientState::Open);
    assert_eq!(open.count(), 2);
}

#[test]
fn sim_a_server_that_always_closes_is_not_asked_for_ever() {
    let mut rig = Rig::new(Conditions::calm(1));
    let client = rig.connect();
    client.write(get("/").as_bytes());
    for _ in 0..4 {
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.abort();
    }
    assert_eq!(rig.status(&client), 502);
    rig.opens_none();
}

#[test]
fn sim_what_is_no_reply_is_a_502_and_ends_its_connection() {
    for bad in [
        "rubbish\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let mut rig = Rig::new(Conditions::calm(1));
        let client = rig.connect();
        client.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(bad.as_bytes());
        assert_eq!(rig.status(&client), 502, "{bad:?}");
        rig.end(&peer);
        client.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(ok("well").as_bytes());
        assert_eq!(rig.status(&client), 200, "the client goes on");
    }
}

#[test]
fn sim_a_second_reply_reaches_no_client() {
    for is_together in [true, false] {
        let mut rig = Rig::new(Conditions::calm(1));
        let (one, other) = (rig.connect(), rig.connect());
        one.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        let smuggled = ok("smuggled");
        match is_together {
            true => peer.write([ok("own"), smuggled].concat().as_bytes()),
            false => {
                peer.write(ok("own").as_bytes());
                rig.server.settle();
                peer.write(smuggled.as_bytes());
            }
        }
        let _head = rig.head(&one);
        assert_eq!(rig.text(&one, 3), "own");
        rig.end(&peer);
        other.write(get("/other").as_bytes());
        let peer = rig.accept();
        assert!(rig.head(&peer).starts_with("GET /other "));
        peer.write(ok("right").as_bytes());
        let _head = rig.head(&other);
        assert_eq!(rig.text(&other, 5), "right");
    }
}

#[test]
fn sim_a_reply_that_is_cut_off_is_so_for_its_client() {
    for (framing, is_chunked) in [
        ("Content-Length: 100000", false),
        ("Transfer-Encoding: chunked", true),
    ] {
        let mut rig = Rig::new(Conditions::calm(1));
        let client = rig.connect();
        client.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        let body = if is_chunked { "3\r\nabc\r\n" } else { "abc" };
        peer.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}").as_bytes());
        let _head = rig.head(&client);
        assert_eq!(rig.text(&client, body.len()), body);
        peer.shutdown_write();
        let rest = rig.server.read_to_end(&client);
        assert_eq!(rest, b"", "no last chunk, and not the length");
    }
}

#[test]
fn sim_who_does_not_connect_is_a_502_or_in_time_a_504() {
    for (answer, status) in [
        (Answer::Refuses, 502),
        (Answer::IsSilent, 504),
        (Answer::Vanishes, 504),
        (Answer::ResetsAtFirstByte, 502),
    ] {
        let mut rig = rig(1, UpstreamLimits::default());
        rig.server.set_wait_max(Duration::from_secs(600));
        rig.far.answers(answer);
        let client = rig.connect();
        client.write(get("/").as_bytes());
        assert_eq!(rig.status(&client), status, "{answer:?}");
        rig.far.answers(Answer::Accepts);
    }
}

#[test]
fn sim_a_server_that_is_silent_or_stops_is_given_up_in_time() {
    let limits = UpstreamLimits {
        first_byte_timeout: Duration::from_secs(3),
        between_bytes_timeout: Duration::from_secs(2),
        reply_timeout: Some(Duration::from_secs(10)),
        ..UpstreamLimits::default()
    };
    for part in ["", "HTTP/1.1 200 OK\r\n"] {
        let mut rig = rig(1, limits.clone());
        let client = rig.connect();
        client.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(part.as_bytes());
        let began = rig.server.world().now();
        assert_eq!(rig.status(&client), 504, "{part:?}");
        let took = rig.server.world().now() - began;
        assert!((2..5).contains(&took.as_secs()), "{took:?}");
        rig.end(&peer);
    }
    // A byte a second: in time each, and too long in all.
    let mut rig = rig(1, limits);
    let client = rig.connect();
    client.write(get("/").as_bytes());
    let peer = rig.accept();
    let _head = rig.head(&peer);
    peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
    let _head = rig.head(&client);
    let began = rig.server.world().now();
    while client.state() == ClientState::Open {
        peer.write(b"x");
        rig.server.advance(Duration::from_secs(1));
        rig.server.settle();
        let _some = client.read();
        assert!(rig.server.world().now() - began < Duration::from_secs(20));
    }
    assert!(rig.server.world().now() - began >= Duration::from_secs(8));
}

#[test]
fn sim_a_client_that_is_gone_ends_the_request() {
    each_seed(SEEDS, |seed| {
        for step in 0..4 {
            let mut rig = Rig::new(Conditions::rough(seed));
            let client = rig.connect();
            client.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
            let peer = rig.accept();
            let _head = rig.head(&peer);
            if step > 0 {
                client.write(b"dy");
                let _body = rig.server.read_exact(&peer, 4);
            }
            if step > 1 {
                peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nsome");
                let _head = rig.head(&client);
            }
            match step {
                3 => client.shutdown_write(),
                _ => client.abort(),
            }
            rig.end(&peer);
            assert_eq!(rig.upstream.idle(), 0);
        }
    });
}

#[test]
fn sim_a_client_that_does_not_read_stops_its_server() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::calm(seed));
        let (slow, quick) = (rig.connect(), rig.connect());
        slow.write(get("/long").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        const BYTES: usize = 4 << 20;
        peer.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes());
        for _ in 0..BYTES / 65_536 {
            peer.write(&[b'x'; 65_536]);
        }
        let _head = rig.head(&slow);
        rig.server.settle();
        let held = rig.server.handle().pool_statistics().in_use_bytes;
        assert!(held < 1 << 20, "{held} bytes are held");
        quick.write(get("/short").as_bytes());
        let other = rig.accept();
        let _head = rig.head(&other);
        other.write(ok("quick").as_bytes());
        assert_eq!(rig.status(&quick), 200, "others go on");
        let body = rig.server.read_exact(&slow, BYTES);
        assert!(body.iter().all(|byte| *byte == b'x'));
        slow.write(get("/next").as_bytes());
        assert!(
            rig.head(&peer).starts_with("GET /next "),
            "the connection is kept"
        );
    });
}

#[test]
fn sim_a_server_that_does_not_read_stops_its_client() {
    let mut rig = Rig::new(Conditions::calm(3));
    let client = rig.connect();
    const BYTES: usize = 4 << 20;
    client
        .write(format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes());
    let peer = rig.accept();
    for _ in 0..BYTES / 65_536 {
        client.write(&[b'x'; 65_536]);
    }
    rig.server.settle();
    let held = rig.server.handle().pool_statistics().in_use_bytes;
    assert!(held < 1 << 20, "{held} bytes are held");
    let _head = rig.head(&peer);
    let body = rig.server.read_exact(&peer, BYTES);
    assert!(body.iter().all(|byte| *byte == b'x'));
    peer.write(ok("all").as_bytes());
    assert_eq!(rig.status(&client), 200);
}

#[test]
fn sim_a_reply_before_the_end_of_its_request_is_passed_and_the_last_one() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nsome");
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n");
        let head = rig.head(&client);
        assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
        assert!(head.contains("Connection: close\r\n"), "{head}");
        assert_eq!(rig.text(&client, 3), "no\n");
        rig.end(&client);
        rig.end(&peer);
    });
}

#[test]
fn sim_a_body_against_the_rules_is_refused_and_its_request_ended() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client
            .write(b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        let peer = rig.accept();
        let _head = rig.head(&peer);
        client.write(b"no chunk\r\n");
        assert_eq!(rig.status(&client), 400);
        rig.end(&peer);
        rig.end(&client);
    });
}

#[test]
fn sim_a_body_that_does_not_come_is_refused_in_time() {
    let mut rig = Rig::new(Conditions::calm(1));
    rig.server.set_wait_max(Duration::from_secs(600));
    let client = rig.connect();
    client.write(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nsome");
    let peer = rig.accept();
    let _head = rig.head(&peer);
    assert_eq!(rig.status(&client), 408);
    rig.end(&peer);
}

/// What a server and a proxy could read differently reaches no server.
#[test]
fn sim_smuggled_requests_reach_no_server() {
    for head in [
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\nbody",
        "GET / HTTP/1.1\r\nHost: h\r\n Folded: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\nC: d\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nHost: g\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /../../etc HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let mut rig = Rig::new(Conditions::calm(1));
        let client = rig.connect();
        client.write(head.as_bytes());
        let status = rig.status(&client);
        assert!((400..=505).contains(&status), "{head:?}: {status}");
        rig.opens_none();
    }
}

#[test]
fn sim_what_follows_a_request_is_another_one() {
    let mut rig = Rig::new(Conditions::calm(1));
    let client = rig.connect();
    // A body of a method that has none as a rule, whose bytes look like a request.
    client.write(
        b"GET /one HTTP/1.1\r\nHost: h\r\nContent-Length: 30\r\n\r\n\
          GET /admin HTTP/1.1\r\nHost: x\r\n",
    );
    let peer = rig.accept();
    let head = rig.head(&peer);
    assert!(head.ends_with("Content-Length: 30\r\n\r\n"), "{head}");
    assert_eq!(rig.text(&peer, 30).len(), 30);
    peer.write(ok("one").as_bytes());
    assert_eq!(rig.status(&client), 200);
}
