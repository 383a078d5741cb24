//! Which site a request finds, and what conflicts.

use super::*;
use crate::{Http, testing};
use std::time::Duration;

const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::from_secs(0));

fn patterns(texts: &[&str]) -> Vec<HostPattern> {
    let parse = |text: &&str| text.parse().expect("a pattern");
    texts.iter().map(parse).collect()
}

/// A site that answers with its name and the path that it gets.
fn named(name: &'static str) -> impl Service {
    let answer = move |request: &Request| {
        let path = request.uri().path();
        Response::new(format!("{name} {path}").into())
    };
    Http::inline(answer).service
}

fn sites() -> Sites {
    let add = |sites: Sites, hosts: &[&str], prefix: &str, name| {
        let added = sites.add(&patterns(hosts), prefix, named(name));
        added.expect("they do not conflict")
    };
    let sites = add(Sites::new(), &["a.example", "*.a.example"], "/", "a");
    let sites = add(sites, &["a.example"], "/b", "ab");
    let sites = add(sites, &["a.example", "c.example"], "/b/c/", "abc");
    add(sites, &["*.b.a.example"], "/", "ba")
}

fn ask(sites: &Sites, target: &str, host: &str) -> String {
    let input = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut thread = Service::thread_state(sites);
    let answer = testing::inline(sites, &mut thread, TURN, input.as_bytes());
    let answer = answer.expect("valid").expect("inline");
    let answer = String::from_utf8(answer).expect("ASCII");
    let status = answer["HTTP/1.1 ".len()..][..3].to_owned();
    match status == "200" {
        true => answer.rsplit("\r\n").next().unwrap_or_default().to_owned(),
        false => status,
    }
}

#[test]
fn a_host_has_the_site_of_its_name_or_of_the_longest_domain() {
    let sites = sites();
    for (host, answer) in [
        ("a.example", "a /x"),
        ("A.Example.:8080", "a /x"),
        ("x.a.example", "a /x"),
        ("b.a.example", "a /x"),
        ("x.b.a.example", "ba /x"),
        ("c.example", "404"),
        ("d.example", "421"),
        ("xa.example", "421"),
        ("[::1]", "421"),
        ("192.0.2.1", "421"),
        ("xn--a.example", "421"),
    ] {
        assert_eq!(ask(&sites, "/x", host), answer, "{host}");
    }
    let sites = sites
        .add(&patterns(&["*"]), "/", named("rest"))
        .expect("new");
    for host in ["d.example", "[::1]:80", "192.0.2.1"] {
        assert_eq!(ask(&sites, "/x", host), "rest /x", "{host}");
    }
    assert_eq!(ask(&sites, "/x", "c.example"), "404", "it is known");
}

#[test]
fn the_host_of_an_absolute_target_is_the_one_that_counts() {
    let sites = sites();
    let answer = ask(&sites, "http://x.b.a.example/x", "a.example");
    assert_eq!(answer, "ba /x");
    assert_eq!(ask(&sites, "http://d.example/x", "a.example"), "421");
    assert_eq!(ask(&sites, "http://a.example", "d.example"), "a /");
}

#[test]
fn the_longest_prefix_counts_however_it_is_written() {
    let sites = sites();
    for (target, answer) in [
        ("/", "a /"),
        ("/b/x", "ab /x"),
        ("/%62/x", "ab /x"),
        ("/bx", "a /bx"),
        ("/B/x", "a /B/x"),
        ("/b/c/", "abc /"),
        ("/b/%63/x?y", "abc /x"),
        ("/%62/%63/x", "abc /x"),
        ("/b%2Fc/x", "a /b%2Fc/x"),
        ("/b/cx", "ab /cx"),
        ("/%2562/x", "a /%2562/x"),
    ] {
        assert_eq!(ask(&sites, target, "a.example"), answer, "{target}");
    }
    assert_eq!(mount::prefix_bytes("/b", "/b"), Some(2));
    assert_eq!(mount::prefix_bytes("/%6", "/b"), None);
    assert_eq!(mount::prefix_bytes("/b%", "/b"), None);
    assert_eq!(mount::prefix_bytes("*", ""), Some(0));
}

#[test]
fn the_prefix_alone_is_for_workers() {
    let sites = sites();
    let place = |target: &str| {
        let input = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        with_head(input.as_bytes(), |head| {
            matches!(Service::plan(&sites, head).place, crate::Place::Worker)
        })
    };
    assert_eq!(place("/b"), Ok(Some(true)));
    assert_eq!(place("/b/"), Ok(Some(false)));
}

#[test]
fn another_ones_key_counts_as_none() {
    let (one, other) = (sites(), sites());
    let SiteMatch::One(key) = one.site("x.b.a.example") else {
        panic!("it is known");
    };
    let find = |sites: &Sites, site| {
        let input = b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let found = with_head(input, |head| {
            let head = Head {
                site,
                ..head.clone()
            };
            match sites.find(&head) {
                Found::Service(at) => Some(at.number),
                Found::Nothing | Found::Unknown => None,
            }
        });
        found.expect("valid").expect("complete")
    };
    assert_eq!(find(&one, Some(key)), Some(3), "as it was looked up");
    assert_eq!(find(&other, Some(key)), Some(0));
    assert_eq!(find(&one, None), Some(0));
    assert_eq!(one.site("d.example"), SiteMatch::Unknown);
    assert_eq!(one.number_of("a.example:80", "/%62/x"), Some(1));
    assert_eq!(one.number_of("c.example", "/"), None);
}

#[test]
fn what_conflicts_or_is_no_prefix_is_refused() {
    let add = |hosts: &[&str], prefix: &str| {
        let added = sites().add(&patterns(hosts), prefix, named("new"));
        added.map(drop).map_err(|why| why.to_string())
    };
    let taken = "two sites have the host a.example and the prefix /b";
    assert_eq!(add(&["e.example", "A.example"], "/b/"), Err(taken.into()));
    let taken = "two sites have the host *.a.example and the prefix /";
    assert_eq!(add(&["*.a.example"], ""), Err(taken.into()));
    assert_eq!(add(&["*.a.example"], "/b"), Ok(()));
    for prefix in [
        "b", "/b//c", "//", "/.", "/a/../b", "/%62", "/a?", "/a\n", "/a\\b",
    ] {
        let why = add(&["e.example"], prefix).expect_err(prefix);
        assert!(why.contains("is no prefix"), "{why}");
    }
}
