//! What the protocol does otherwise for one site than for another, on a simulated server.

use std::time::Duration;

use flatpath::ListenerLimits;
use flatpath_http::{Http, Origins, SiteTerms, Sites};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::h2_frames::{END_HEADERS, HEADERS, frame, greeting, whole_frames};
use crate::layers::Teller;
use crate::sites::{answers, ends, request};

const SEEDS: u64 = 10;

/// Sites with these terms, `a.example` and so on.
fn sites(terms: [SiteTerms; 3]) -> Sites {
    let add = |sites: Sites, (name, terms)| {
        let host = format!("{name}.example").parse().expect("a host");
        let added = sites.add(&[host], "/", Teller::new(name));
        added.expect("they do not conflict").terms(terms)
    };
    ["a", "b", "c"]
        .into_iter()
        .zip(terms)
        .fold(Sites::new(), add)
}

fn idle(seconds: u64, body_seconds: u64) -> SiteTerms {
    SiteTerms::new().timeouts(ListenerLimits {
        idle_timeout: Some(Duration::from_secs(seconds)),
        body_timeout: Some(Duration::from_secs(body_seconds)),
        ..ListenerLimits::default()
    })
}

/// Reads a reply, whose body is a line.
fn await_reply(server: &mut TestServer, client: &Client) {
    let mut read = String::new();
    while !read.contains("\r\n\r\n") || read.ends_with("\r\n") {
        read += &server.read_line(client);
    }
}

fn is_open(client: &Client) -> bool {
    client.state() == ClientState::Open
}

#[test]
fn sim_a_connection_has_the_deadlines_of_the_site_of_its_last_request() {
    // Answered by a network thread, and by a worker.
    for path in ["/inline", "/x"] {
        each_seed(SEEDS, |seed| {
            let terms = [idle(8, 60), idle(30, 60), SiteTerms::new()];
            let mut server = TestServer::new(Conditions::rough(seed), Http::service(sites(terms)));
            let ask = |server: &mut TestServer, hosts: &[&str]| {
                let client = server.connect();
                for host in hosts {
                    client.write(request(&format!("GET {path}"), host, "").as_bytes());
                    await_reply(server, &client);
                }
                client
            };
            let others = [
                ask(&mut server, &["a.example", "b.example"]),
                ask(&mut server, &["a.example", "c.example"]),
                ask(&mut server, &["c.example"]),
            ];
            let hasty = ask(&mut server, &["c.example", "a.example"]);
            server.run_until(|| !is_open(&hasty));
            assert!(others.iter().all(is_open), "seed {seed}, {path}");
            // The next is the one of b: those of c have the 75 seconds of the listener.
            server.run_until(|| !is_open(&others[0]));
            assert!(others[1..].iter().all(is_open), "seed {seed}, {path}");
        });
    }
}

/// The wheel holds the time of a body, which is longer, and less than the listener's shortest one.
#[test]
fn sim_a_deadline_that_is_shorter_than_all_of_the_listener_is_kept_too() {
    each_seed(SEEDS, |seed| {
        let terms = [idle(1, 10), idle(5, 10), SiteTerms::new()];
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(sites(terms)));
        let (late, other) = (server.connect(), server.connect());
        let post = request("POST /x", "a.example", "body");
        let (begin, rest) = post.split_at(post.len() - 2);
        late.write(begin.as_bytes());
        server.settle();
        other.write(request("GET /x", "b.example", "").as_bytes());
        late.write(rest.as_bytes());
        await_reply(&mut server, &other);
        await_reply(&mut server, &late);
        server.run_until(|| !is_open(&late));
        assert!(is_open(&other), "seed {seed}");
    });
}

/// Over HTTP/2, whose streams have deadlines each: that of the site, not of the listener.
#[test]
fn sim_an_upload_over_http2_has_the_deadline_of_its_site() {
    const HEAD: &[u8] = b"\x83\x86\x84\x41\x09a.example";
    for (body_seconds, until_seconds) in [(10, 10), (100, 100)] {
        let terms = [idle(200, body_seconds), SiteTerms::new(), SiteTerms::new()];
        let mut server = TestServer::new(Conditions::calm(1), Http::service(sites(terms)));
        server.set_wait_max(Duration::from_secs(300));
        let client = server.connect();
        client.write(&greeting());
        client.write(&frame(HEADERS, END_HEADERS, 1, HEAD));
        server.settle();
        let begun = server.world().now();
        let mut heard = Vec::new();
        server.run_until(|| {
            heard.extend(client.read());
            whole_frames(&heard).iter().any(|it| it.stream == 1)
        });
        let waited = (server.world().now() - begun).as_secs();
        let is_due = (until_seconds - 1..=until_seconds + 1).contains(&waited);
        assert!(is_due, "{waited} seconds instead of {until_seconds}");
    }
}

#[test]
fn sim_each_site_has_its_origins() {
    each_seed(SEEDS, |seed| {
        let app = Origins::own().and(["https://app.example".parse().expect("an origin")]);
        let any = SiteTerms::new().origins(Origins::any());
        let terms = [SiteTerms::new().origins(app), any, SiteTerms::new()];
        let http = Http::service(sites(terms)).origins(Origins::own());
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut status = |host: &str, origin: &str| {
            let line = format!("POST /x HTTP/1.1\r\nHost: {host}.example\r\nOrigin: {origin}\r\n");
            let answers = answers(&mut server, &format!("{line}Content-Length: 0\r\n\r\n"));
            ends(&answers).concat()
        };
        for (host, origin, is_served) in [
            ("a", "https://app.example", true),
            ("a", "https://evil.example", false),
            ("b", "https://evil.example", true),
            ("c", "https://app.example", false),
            ("c", "http://c.example", true),
        ] {
            let end = status(host, origin);
            assert_eq!(
                end != "403",
                is_served,
                "seed {seed}: {host} {origin}: {end}"
            );
        }
    });
}
