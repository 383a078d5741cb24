//! Sites that are replaced while clients have connections and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath_http::{
    Disposition, Head, Hosts, Http, IntoResponse, LiveSites, LiveSitesHandle, Plan, Reply, Request,
    Response, Service, Sites, Turn, WorkerScope,
};
use flatpath_test::{Client, Conditions, TestServer, each_seed};

use crate::layers::{Places, Teller};
use crate::sites::{answers, ends, request};

const SEEDS: u64 = 10;

fn sites(all: &[(&str, &'static str)]) -> Sites {
    all.iter().fold(Sites::new(), |sites, (host, name)| {
        let added = sites.add(&[host.parse().expect("a pattern")], "/", Teller::new(name));
        added.expect("they do not conflict")
    })
}

fn server(seed: u64, sites: Sites) -> (TestServer, LiveSitesHandle) {
    let live = LiveSites::new(sites, Hosts::any());
    let handle = live.handle();
    let server = TestServer::new(Conditions::rough(seed), Http::service(live));
    (server, handle)
}

/// The end of the next answer on a connection that is kept.
fn next(server: &mut TestServer, client: &Client, path: &str, host: &str) -> String {
    client.write(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    let mut answer = String::new();
    while !answer.contains("\r\n\r\n") {
        answer += &server.read_line(client);
    }
    match answer.strip_prefix("HTTP/1.1 200 ") {
        Some(_) => server.read_line(client).trim_end().to_owned(),
        None => answer["HTTP/1.1 ".len()..][..3].to_owned(),
    }
}

#[test]
fn sim_every_request_after_a_change_has_the_new_sites() {
    each_seed(SEEDS, |seed| {
        let (mut server, handle) = server(seed, sites(&[("a.example", "a"), ("b.example", "b")]));
        let (kept, other) = (server.connect(), server.connect());
        for (client, host, name) in [(&kept, "a.example", "a"), (&other, "b.example", "b")] {
            for (path, place) in [("/inline", "inline [?]"), ("/x", "worker []")] {
                let found = next(&mut server, client, path, host);
                assert_eq!(found, format!("{name} {place} {path}"), "seed {seed}");
            }
        }
        handle.replace(
            sites(&[("a.example", "new"), ("c.example", "c")]),
            Hosts::any(),
        );
        for (path, place) in [("/inline", "inline [?]"), ("/x", "worker []")] {
            // The host is the one that this connection asked for before.
            let found = next(&mut server, &kept, path, "a.example");
            assert_eq!(found, format!("new {place} {path}"), "seed {seed}");
            let found = ends(&answers(
                &mut server,
                &request(&format!("GET {path}"), "c.example", ""),
            ));
            assert_eq!(found, [format!("c {place} {path}")]);
        }
        assert_eq!(
            next(&mut server, &other, "/inline", "b.example"),
            "421",
            "it is gone"
        );
    });
}

#[test]
fn sim_hosts_change_with_their_sites_also_the_one_that_was_asked_for_last() {
    each_seed(SEEDS, |seed| {
        let all = || sites(&[("*", "all")]);
        let (mut server, handle) = server(seed, all());
        let client = server.connect();
        assert_eq!(
            next(&mut server, &client, "/inline", "a.example"),
            "all inline [?] /inline"
        );
        handle.replace(all(), Hosts::local());
        assert_eq!(
            next(&mut server, &client, "/inline", "a.example"),
            "421",
            "seed {seed}"
        );
        let local = request("GET /x", "localhost", "");
        assert_eq!(ends(&answers(&mut server, &local)), ["all worker [] /x"]);
        let named = Hosts::local().and(["a.example".parse().expect("a pattern")]);
        handle.replace(all(), named);
        for (host, end) in [("a.example", "all worker [] /x"), ("b.example", "421")] {
            let found = ends(&answers(&mut server, &request("GET /x", host, "")));
            assert_eq!(found, [end], "seed {seed}: {host}");
        }
    });
}

/// What a worker leaves is for the caches of the sites that made it.
#[test]
fn sim_a_request_that_waits_ends_with_its_sites_and_leaves_nothing_to_others() {
    each_seed(SEEDS, |seed| {
        let places = Places::new();
        let old = Sites::new();
        let old = old.add(
            &["*".parse().expect("all")],
            "/",
            Teller::within("old", &places),
        );
        let (mut server, handle) = server(seed, old.expect("one"));
        let mut clients = Vec::new();
        while places.limit.figures().waiting == 0 {
            let client = server.connect();
            client.write(request("GET /x", "h", "").as_bytes());
            client.shutdown_write();
            clients.push(client);
            let inside = places.limit.figures().inside;
            server.run_until(|| {
                let figures = places.limit.figures();
                figures.waiting > 0 || figures.inside > inside
            });
        }
        handle.replace(sites(&[("*", "new")]), Hosts::any());
        let asked = ends(&answers(&mut server, &request("GET /notes", "h", "")));
        assert_eq!(asked, ["0 notes"], "its own state, seed {seed}");
        places.make_room();
        let last = clients.pop().expect("one waited");
        let answer = String::from_utf8(server.read_to_end(&last)).expect("ASCII");
        assert_eq!(ends(&answer), ["old worker [] /x"], "seed {seed}");
        let asked = ends(&answers(&mut server, &request("GET /notes", "h", "")));
        assert_eq!(asked, ["0 notes"], "seed {seed}");
        answers(&mut server, &request("GET /x", "h", ""));
        let asked = ends(&answers(&mut server, &request("GET /notes", "h", "")));
        assert_eq!(asked, ["1 notes"], "its own, seed {seed}");
    });
}

#[test]
fn sim_uploads_go_to_the_sites_of_their_time() {
    each_seed(SEEDS, |seed| {
        let (mut server, handle) = server(seed, sites(&[("a.example", "a")]));
        let put = request("PUT /upload", "a.example", "a body");
        assert_eq!(ends(&answers(&mut server, &put)), ["6"]);
        handle.replace(sites(&[("b.example", "b")]), Hosts::any());
        assert_eq!(ends(&answers(&mut server, &put)), ["421"], "seed {seed}");
        let put = request("PUT /upload?no", "b.example", "a body");
        assert_eq!(ends(&answers(&mut server, &put)), ["403"]);
    });
}

/// Answers each request inline with its name and what it gets; counts how often it is asked for a
/// plan.
struct Direct(&'static str, Arc<AtomicUsize>);

impl Service for Direct {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, _: &Head<'_>) -> Plan<'_> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Plan::default()
    }

    fn plans_inline(&self) -> bool {
        true
    }

    fn inline(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let answer = format!("{} {:?} {}\n", self.0, head.form(), head.target());
        reply.response(answer.into_response())
    }

    fn pooled(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        "on a worker\n".into_response()
    }
}

/// The way by the key of a site leads where the look-up does, also after a change.
#[test]
fn sim_a_service_that_plans_inline_is_asked_without_a_plan() {
    each_seed(SEEDS, |seed| {
        let plans = Arc::new(AtomicUsize::new(0));
        let sites = |all: &[(&str, &str, &'static str)]| {
            all.iter()
                .fold(Sites::new(), |sites, (host, prefix, name)| {
                    let hosts = [host.parse().expect("a pattern")];
                    let added = sites.add(&hosts, prefix, Direct(name, Arc::clone(&plans)));
                    added.expect("they do not conflict")
                })
        };
        let old = sites(&[
            ("a.b", "/", "old"),
            ("c.d", "/", "root"),
            ("c.d", "/x", "below"),
        ]);
        let (mut server, handle) = server(seed, old);
        let client = server.connect();
        let before = plans.load(Ordering::Relaxed);
        for (path, host, answer) in [
            ("/x/1", "a.b", "old Origin /x/1"),
            ("/x/2", "a.b", "old Origin /x/2"),
        ] {
            assert_eq!(
                next(&mut server, &client, path, host),
                answer,
                "seed {seed}"
            );
        }
        assert_eq!(plans.load(Ordering::Relaxed), before, "of no request");
        for (path, host, answer) in [
            ("/x/1", "c.d", "below Origin /1"),
            ("/1", "c.d", "root Origin /1"),
            ("http://a.b/1", "c.d", "old Origin /1"),
        ] {
            assert_eq!(
                next(&mut server, &client, path, host),
                answer,
                "seed {seed}"
            );
        }
        handle.replace(
            sites(&[("c.d", "/", "other"), ("a.b", "/", "new")]),
            Hosts::any(),
        );
        for _ in 0..2 {
            let answer = next(&mut server, &client, "/x", "a.b");
            assert_eq!(answer, "new Origin /x", "seed {seed}");
        }
    });
}
