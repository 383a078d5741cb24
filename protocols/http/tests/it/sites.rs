//! Several sites behind one listener, and clients that try to be taken for those of another.

use flatpath_http::http::Request as Asked;
use flatpath_http::{Http, Router, Sites};
use flatpath_test::{Conditions, TestServer, each_seed};

use crate::h2_client::Peer;
use crate::layers::Teller;

const SEEDS: u64 = 10;

fn sites() -> Sites {
    let pattern = |text: &str| text.parse().expect("a pattern");
    let add = |sites: Sites, host: &str, prefix: &str, name| {
        let added = sites.add(&[pattern(host)], prefix, Teller::new(name));
        added.expect("they do not conflict")
    };
    let sites = add(Sites::new(), "a.example", "/", "a");
    let sites = add(sites, "a.example", "/deep", "deep");
    add(sites, "*.example", "/", "rest")
}

fn server(seed: u64) -> TestServer {
    TestServer::new(Conditions::rough(seed), Http::service(sites()))
}

/// What a connection with this input gets.
pub(crate) fn answers(server: &mut TestServer, input: &str) -> String {
    let client = server.connect();
    client.write(input.as_bytes());
    client.shutdown_write();
    String::from_utf8(server.read_to_end(&client)).expect("ASCII")
}

pub(crate) fn request(line: &str, host: &str, body: &str) -> String {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// The last line of each answer, or its status if that is another than 200.
pub(crate) fn ends(answers: &str) -> Vec<String> {
    let answers = answers.split("HTTP/1.1 ").skip(1);
    let end = |answer: &str| match answer.strip_prefix("200 ") {
        Some(rest) => rest
            .trim_end()
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .into(),
        None => answer[..3].to_owned(),
    };
    answers.map(end).collect()
}

#[test]
fn sim_each_host_has_its_own_site_on_one_connection() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let all = [
            request("GET /inline", "a.example", ""),
            request("GET /x", "b.example", ""),
            request("GET /inline", "b.example", ""),
            request("GET /inline", "A.EXAMPLE:80", ""),
            request("POST /x", "a.example", "body"),
            request("GET /deep/x?q", "a.example", ""),
            request("GET /%64eep/inline", "a.example", ""),
            request("GET /deep?q", "a.example", ""),
            request("GET /deep/x", "b.example", ""),
        ];
        let expected = [
            "a inline [?] /inline",
            "rest worker [] /x",
            "rest inline [?] /inline",
            "a inline [?] /inline",
            "a worker [] /x body",
            "deep worker [/deep] /x?q",
            "deep inline [?] /inline",
            "deep bare [/deep] /?q",
            "rest worker [] /deep/x",
        ];
        for (one, end) in all.iter().zip(expected) {
            // A worker answers what comes after others; so each has a connection of its own, too.
            assert_eq!(
                ends(&answers(&mut server, one)),
                [end],
                "seed {seed}: {one}"
            );
        }
        let found = ends(&answers(&mut server, &all.concat()));
        let site = |end: &str| end.split(' ').next().map(str::to_owned);
        let sites: Vec<_> = found.iter().map(|end| site(end)).collect();
        let expected: Vec<_> = expected.iter().map(|end| site(end)).collect();
        assert_eq!(sites, expected, "seed {seed}");
    });
}

#[test]
fn sim_what_a_worker_leaves_is_its_own_sites() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        for (path, host) in [
            ("/x", "a.example"),
            ("/deep/x", "a.example"),
            ("/deep/y", "a.example"),
            ("/x", "b.example"),
        ] {
            let answer = answers(&mut server, &request(&format!("GET {path}"), host, ""));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        for (path, host, notes) in [
            ("/notes", "a.example", "1 notes"),
            ("/deep/notes", "a.example", "2 notes"),
            ("/notes", "c.example", "1 notes"),
        ] {
            let answer = answers(&mut server, &request(&format!("GET {path}"), host, ""));
            assert_eq!(ends(&answer), [notes], "seed {seed}: {host}{path}");
        }
    });
}

#[test]
fn sim_uploads_go_to_their_site() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let put = request("PUT /deep/upload", "a.example", "a body");
        assert_eq!(ends(&answers(&mut server, &put)), ["6"]);
        let put = request("PUT /deep/upload?no", "a.example", "a body");
        assert_eq!(ends(&answers(&mut server, &put)), ["403"]);
    });
}

#[test]
fn sim_a_host_without_a_site_is_misdirected_and_the_last() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let get = |host| request("GET /inline", host, "");
        let input = get("a.example") + &get("evil.test") + &get("a.example");
        let answer = answers(&mut server, &input);
        assert_eq!(
            ends(&answer),
            ["a inline [?] /inline", "421"],
            "seed {seed}"
        );
        assert!(!answer.contains("evil"), "nothing of the request: {answer}");
        for host in [
            "evil.test",
            "[::1]",
            "192.0.2.1",
            "example",
            "a.example.test",
        ] {
            assert_eq!(ends(&answers(&mut server, &get(host))), ["421"], "{host}");
        }
        let old = "GET /inline HTTP/1.0\r\n\r\n";
        assert_eq!(ends(&answers(&mut server, old)), ["421"]);
    });
}

/// RFC 9112 section 3.2.2, on the network thread and on a worker.
#[test]
fn sim_an_absolute_target_names_the_host_whatever_its_header_says() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        for (target, host, end) in [
            ("http://a.example/x", "b.example", "a worker [] /x"),
            (
                "http://b.example/inline",
                "a.example",
                "rest inline [?] /inline",
            ),
            (
                "http://a.example/deep/x",
                "b.example",
                "deep worker [/deep] /x",
            ),
            ("http://evil.test/x", "a.example", "421"),
        ] {
            let input = request("GET /inline", "a.example", "")
                + &request(&format!("GET {target}"), host, "");
            let found = ends(&answers(&mut server, &input));
            assert_eq!(
                found.last().map(|it| &**it),
                Some(end),
                "seed {seed}: {target}"
            );
        }
        for host in [
            "a.example\r\nHost: b.example",
            "a.example, b.example",
            "a.example/b",
        ] {
            let found = ends(&answers(&mut server, &request("GET /x", host, "")));
            assert_eq!(found, ["400"], "{host:?}");
        }
    });
}

/// In a router nothing has looked the host up before.
#[test]
fn sim_sites_inside_another_service_look_their_host_up() {
    each_seed(SEEDS, |seed| {
        let router = Router::new().nest_service("/in", sites());
        let inner = Sites::new().add(&["*".parse().expect("a pattern")], "/", router);
        let http = Http::service(inner.expect("one"));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        for (path, host, end) in [
            ("/in/inline", "a.example", "a inline [?] /inline"),
            ("/in/inline", "b.example", "rest inline [?] /inline"),
            ("/in/x", "a.example", "a worker [/in] /x"),
            ("/in/inline", "evil.test", "421"),
            ("/in/x", "evil.test", "421"),
        ] {
            let answer = answers(&mut server, &request(&format!("GET {path}"), host, ""));
            assert_eq!(ends(&answer), [end], "seed {seed}: {host}{path}");
        }
    });
}

#[test]
fn sim_streams_of_http2_have_their_sites() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        for (host, status, text) in [
            ("a.example", 200, "a inline [?] /inline\n"),
            ("b.example:443", 200, "rest inline [?] /inline\n"),
            ("evil.test", 421, ""),
            ("a.example", 200, "a inline [?] /inline\n"),
        ] {
            let request = Asked::get(format!("http://{host}/inline"));
            let index = peer.ask(request.body(()).expect("a request"), None);
            peer.finish(&mut server);
            let reply = peer.reply(index);
            assert_eq!(reply.status.map(|it| it.as_u16()), Some(status), "{host}");
            if status == 200 {
                assert_eq!(reply.text(), text, "seed {seed}");
            }
        }
    });
}
