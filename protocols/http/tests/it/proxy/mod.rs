//! A proxy between simulated clients and simulated servers: what passes, what fails, who waits.

mod faults;
mod policy;
mod rig;
mod serve;
mod upgrades;

use flatpath_http::http::{HeaderName, HeaderValue};
use flatpath_http::{ForwardedFields, HostField};
use flatpath_test::{Conditions, each_seed};

use crate::h2_client::Peer;
use rig::{Rig, SEEDS, get, ok, server_at};

#[test]
fn sim_requests_pass_over_one_connection_one_after_the_other() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(get("/a?b").as_bytes());
        let peer = rig.accept();
        let head = rig.head(&peer);
        assert!(
            head.starts_with("GET /a?b HTTP/1.1\r\nHost: h\r\nForwarded: for="),
            "{head}"
        );
        peer.write(ok("one").as_bytes());
        let reply = rig.head(&client);
        assert!(
            reply.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: "),
            "{reply}"
        );
        assert_eq!(rig.text(&client, 3), "one");
        for number in 0..3 {
            client.write(get("/again").as_bytes());
            assert!(rig.head(&peer).starts_with("GET /again "));
            let body = "x".repeat(number * 20_000);
            peer.write(ok(&body).as_bytes());
            let _head = rig.head(&client);
            assert!(rig.text(&client, body.len()) == body);
        }
        assert!(rig.far.accept().is_none());
    });
}

#[test]
fn sim_a_body_passes_as_it_arrives_both_ways() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(b"POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf ");
        let peer = rig.accept();
        let head = rig.head(&peer);
        assert!(head.ends_with("Content-Length: 10\r\n\r\n"), "{head}");
        assert_eq!(rig.text(&peer, 5), "half ", "before the rest is there");
        client.write(b"whole");
        assert_eq!(rig.text(&peer, 5), "whole");
        peer.write(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        let head = rig.head(&client);
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        let first = rig.server.read_line(&client);
        assert!(
            ["1\r\n", "2\r\n", "3\r\n"].contains(&&*first),
            "at once: {first}"
        );
        let bytes = first[..1].parse::<usize>().expect("a size");
        let mut data = rig.text(&client, bytes);
        assert_eq!(rig.text(&client, 2), "\r\n");
        peer.write(b"2\r\nde\r\n0\r\n\r\n");
        data += &rig.chunks(&client).0;
        assert_eq!(data, "abcde");
        client.write(get("/next").as_bytes());
        assert!(
            rig.head(&peer).starts_with("GET /next "),
            "the connection is kept"
        );
    });
}

#[test]
fn sim_chunks_and_trailers_pass_both_ways() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(
            b"POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
              4\r\nbody\r\n0\r\nX-Sum: 1\r\n\r\n",
        );
        let peer = rig.accept();
        let head = rig.head(&peer);
        assert!(
            head.contains("\r\nTE: trailers\r\nConnection: TE\r\n"),
            "{head}"
        );
        assert_eq!(
            rig.chunks(&peer),
            ("body".into(), "X-Sum: 1\r\n\r\n".into())
        );
        peer.write(
            b"HTTP/1.1 200 OK\r\nTrailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n\
              3\r\nabc\r\n0\r\nX-End: yes\r\n\r\n",
        );
        let head = rig.head(&client);
        assert!(
            head.contains("Trailer: x-end\r\n") || head.contains("Trailer: X-End\r\n"),
            "{head}"
        );
        assert_eq!(
            rig.chunks(&client),
            ("abc".into(), "X-End: yes\r\n\r\n".into())
        );
    });
}

#[test]
fn sim_replies_without_a_body_pass_as_they_are() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        let mut peer = None;
        for (method, reply, framing) in [
            (
                "HEAD",
                "200 OK\r\nContent-Length: 99\r\n",
                "Content-Length: 99\r\n",
            ),
            ("HEAD", "200 OK\r\n", "Transfer-Encoding: chunked\r\n"),
            ("GET", "204 No Content\r\n", ""),
            (
                "GET",
                "304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7\r\n",
                "Content-Length: 7\r\n",
            ),
            (
                "GET",
                "200 OK\r\nContent-Length: 0\r\n",
                "Content-Length: 0\r\n",
            ),
        ] {
            client.write(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
            let peer = peer.get_or_insert_with(|| rig.accept());
            assert!(rig.head(peer).starts_with(method));
            peer.write(format!("HTTP/1.1 {reply}\r\n").as_bytes());
            let head = rig.head(&client);
            assert!(head.contains(framing), "{method} {reply}: {head}");
            let has_framing = head.contains("Content-Length") || head.contains("Transfer-");
            assert_eq!(has_framing, !framing.is_empty(), "{method} {reply}: {head}");
        }
    });
}

#[test]
fn sim_a_body_until_the_end_of_its_connection_is_passed_to_that() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write(get("/").as_bytes());
        let peer = rig.accept();
        let _head = rig.head(&peer);
        peer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it");
        let head = rig.head(&client);
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        peer.shutdown_write();
        assert_eq!(rig.chunks(&client).0, "all of it");
        client.write(get("/next").as_bytes());
        let peer = rig.accept();
        assert!(
            rig.head(&peer).starts_with("GET /next "),
            "on another connection"
        );
    });
}

#[test]
fn sim_a_client_that_waits_to_send_hears_what_the_server_says() {
    each_seed(SEEDS, |seed| {
        for is_wanted in [true, false] {
            let mut rig = Rig::new(Conditions::rough(seed));
            let client = rig.connect();
            client.write(
                b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
            );
            let peer = rig.accept();
            let head = rig.head(&peer);
            assert!(head.contains("Expect: 100-continue\r\n"), "{head}");
            rig.server.settle();
            assert_eq!(client.read(), b"", "nobody has said so");
            if !is_wanted {
                peer.write(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n");
                let head = rig.head(&client);
                assert!(head.starts_with("HTTP/1.1 417 "), "{head}");
                assert!(head.contains("Connection: close\r\n"), "{head}");
                rig.end(&client);
                continue;
            }
            peer.write(b"HTTP/1.1 100 Continue\r\n\r\n");
            assert_eq!(rig.head(&client), "HTTP/1.1 100 Continue\r\n\r\n");
            client.write(b"body");
            assert_eq!(rig.text(&peer, 4), "body");
            peer.write(ok("done").as_bytes());
            assert_eq!(rig.status(&client), 200);
        }
    });
}

#[test]
fn sim_interim_replies_stay_here() {
    let mut rig = Rig::new(Conditions::calm(1));
    let client = rig.connect();
    client.write(get("/").as_bytes());
    let peer = rig.accept();
    let _head = rig.head(&peer);
    peer.write(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n");
    peer.write(ok("done").as_bytes());
    assert_eq!(rig.status(&client), 200);
}

#[test]
fn sim_what_an_operator_chooses_is_sent() {
    let name = HeaderName::from_static;
    let mut rig = Rig::with(
        Conditions::calm(1),
        flatpath_http::UpstreamLimits::default(),
        server_at(1),
        |proxy| {
            proxy
                .host(HostField::Server)
                .forwarded(ForwardedFields::None)
                .set_request(name("x-in"), HeaderValue::from_static("1"))
                .remove_request(name("cookie"))
                .set_reply(name("x-out"), HeaderValue::from_static("2"))
                .remove_reply(name("server"))
        },
    );
    let client = rig.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: h\r\nCookie: a\r\nX-In: 9\r\n\r\n");
    let peer = rig.accept();
    let head = "GET / HTTP/1.1\r\nHost: 192.0.2.1:80\r\nX-In: 1\r\n\r\n";
    assert_eq!(rig.head(&peer), head);
    peer.write(b"HTTP/1.1 200 OK\r\nServer: s\r\nX-Out: 1\r\nContent-Length: 0\r\n\r\n");
    let head = rig.head(&client);
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nX-Out: 2\r\nContent-Length: 0\r\n"),
        "{head}"
    );
}

#[test]
fn sim_a_proxy_within_layers_gets_bodies_whole() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::layered(Conditions::rough(seed));
        let client = rig.connect();
        client.write(b"POST /app/up?q HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
        rig.opens_none();
        client.write(b"dy");
        let peer = rig.accept();
        let head = rig.head(&peer);
        assert!(
            head.starts_with("POST /up?q HTTP/1.1\r\nHost: h\r\n"),
            "{head}"
        );
        assert_eq!(rig.text(&peer, 4), "body");
        peer.write(ok("done").as_bytes());
        let head = rig.head(&client);
        assert!(head.contains("X-Layer: seen\r\n"), "{head}");
        assert_eq!(rig.text(&client, 4), "done");
        client.write(b"POST /app/up HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
        assert_eq!(rig.status(&client), 413);
    });
}

#[test]
fn sim_pipelined_requests_are_answered_in_their_order() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let client = rig.connect();
        client.write([get("/1"), get("/2")].concat().as_bytes());
        let (first, other) = (rig.accept(), rig.accept());
        let (one, two) = match rig.head(&first).starts_with("GET /1 ") {
            true => (first, other),
            false => (other, first),
        };
        two.write(ok("two").as_bytes());
        rig.server.settle();
        one.write(ok("one").as_bytes());
        for expected in ["one", "two"] {
            let _head = rig.head(&client);
            assert_eq!(rig.text(&client, 3), expected);
        }
    });
}

#[test]
fn sim_streams_of_http2_are_passed_on() {
    each_seed(SEEDS, |seed| {
        let mut rig = Rig::new(Conditions::rough(seed));
        let mut client = Peer::new(&mut rig.server);
        let index = client.put("/up", "a body");
        client.until(&mut rig.server, {
            let far = rig.far.clone();
            let (mut peer, mut came) = (None, Vec::new());
            move |_| {
                peer = peer.take().or_else(|| far.accept());
                let Some(peer) = &peer else {
                    return false;
                };
                came.extend(peer.read());
                let is_whole = came.ends_with(b"Content-Length: 6\r\n\r\na body");
                if is_whole {
                    peer.write(ok("through").as_bytes());
                }
                is_whole
            }
        });
        client.finish(&mut rig.server);
        assert_eq!(client.reply(index).text(), "through");
    });
}
