//! Names with nothing there, answered by the network thread: for as long as nothing is there.

use http::StatusCode;

use super::*;
use crate::cache::NewEntry;
use crate::limits::CACHE_ABSENT_DIVISOR;
use crate::{HeaderChange, Pattern, Rules};

/// Who answers the second request for each, and that it is the same 404.
fn by_of_second(site: &mut Site, target: &str) -> By {
    let first = site.get(target);
    let second = site.get(target);
    assert_eq!(first.status(), "404", "{target}");
    assert_eq!(
        (first.lines(), first.body),
        (second.lines(), second.body),
        "{target}"
    );
    second.by
}

#[test]
fn a_name_is_absent_until_something_comes_and_again_when_it_goes() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    site.write("sub/b.txt", "content");
    for missing in ["new", "sub/new", "none/new", "sub/none/deeper/new"] {
        let target = format!("/{missing}");
        assert_eq!(by_of_second(&mut site, &target), By::Network, "{target}");
        site.write(missing, "it came");
        assert_eq!(site.get(&target).text(), "it came");
        fs::remove_file(site.path(missing)).expect("remove");
        assert_eq!(site.get(&target).status(), "404");
        assert_eq!(by_of_second(&mut site, &target), By::Network, "{target}");
    }
    assert_eq!(by_of_second(&mut site, "/.hidden"), By::Network);
    // Where a file is in the place of a directory, and the other way around.
    assert_eq!(by_of_second(&mut site, "/a.txt/new"), By::Network);
    assert_eq!(by_of_second(&mut site, "/a.txt/"), By::Network);
    fs::remove_file(site.path("a.txt")).expect("remove");
    site.write("a.txt/new", "it came");
    site.write("a.txt/index.html", "index");
    assert_eq!(site.get("/a.txt/new").text(), "it came");
    assert_eq!(site.get("/a.txt/").text(), "index");
}

#[test]
fn conditions_and_ranges_say_nothing_of_what_is_not_there() {
    let mut site = Site::new();
    let plain = site.get_hot("/new", "");
    for headers in [
        "If-None-Match: *\r\n",
        "If-None-Match: \"x\"\r\n",
        "If-Match: *\r\n",
        "If-Modified-Since: Sun, 06 Nov 2044 08:49:37 GMT\r\n",
        "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Range: bytes=0-0\r\n",
        "Range: bytes=900-\r\n",
    ] {
        let answer = site.get_hot("/new", headers);
        assert_eq!(
            (answer.lines(), &answer.body),
            (plain.lines(), &plain.body),
            "{headers}"
        );
    }
    let head = site.ask("HEAD", "/new", "");
    assert_eq!((head.by, head.lines()), (By::Network, plain.lines()));
    assert!(head.body.is_empty());
    for method in ["OPTIONS", "DELETE"] {
        assert_eq!(site.ask(method, "/new", "").by, By::Worker, "{method}");
    }
}

#[test]
fn what_a_link_may_lead_to_is_looked_at_by_workers() {
    let mut site = Site::new();
    site.write("sub/a.txt", "content");
    symlink("nowhere", site.path("link")).expect("link");
    assert_eq!(by_of_second(&mut site, "/link"), By::Worker);
    site.write("nowhere", "it came");
    assert_eq!(site.get("/link").text(), "it came");
    symlink("sub", site.path("way")).expect("link");
    assert_eq!(by_of_second(&mut site, "/way/new"), By::Worker);
    // A directory that becomes a link to one that has the name.
    assert_eq!(by_of_second(&mut site, "/sub/new"), By::Network);
    site.write("other/new", "of the other");
    fs::rename(site.path("sub"), site.path("moved")).expect("rename");
    symlink("other", site.path("sub")).expect("link");
    assert_eq!(site.get("/sub/new").text(), "of the other");
}

#[test]
fn rules_that_look_at_more_than_the_name_leave_it_to_workers() {
    let any = Pattern::any;
    let header = HeaderChange::set("x-site", "1").expect("valid");
    let of_headers = Rules::new().headers(any(), [header]).expect("a rule");
    let with_fallback = Rules::new().fallback(any(), "/none.html").expect("a rule");
    let with_page = Rules::new().error_page(StatusCode::NOT_FOUND, "/404.html");
    for (rules, by) in [
        (of_headers, By::Network),
        (with_fallback, By::Worker),
        (with_page.expect("a rule"), By::Worker),
    ] {
        let mut site = Site::new();
        site.write("404.html", "a page");
        site.files = Files::open(&site.path("")).expect("open").rules(rules);
        site.thread = site.files.thread_state();
        assert_eq!(by_of_second(&mut site, "/new"), by);
        if by == By::Network {
            assert_eq!(site.get("/new").header("x-site"), Some("1"));
        }
    }
}

#[test]
fn names_that_are_made_up_take_no_room_from_files() {
    let mut site = Site::new();
    let (entries, bytes) = (2 * CACHE_ABSENT_DIVISOR, 16 << 20);
    site.files = Files::open(&site.path(""))
        .expect("open")
        .cache(entries, bytes);
    site.thread = site.files.thread_state();
    for number in 0..entries {
        site.write(&number.to_string(), "content");
    }
    wait_until_stable();
    for number in 0..entries {
        site.get(&format!("/{number}"));
    }
    for number in 0..4 * entries {
        site.get(&format!("/made-up-{number}"));
    }
    let kept = |site: &mut Site, name: &str| {
        let turn = Turn::new(site.turn, Duration::ZERO, Duration::from_secs(784_200_000));
        let input = format!("GET /{name} HTTP/1.1\r\nHost: h\r\n\r\n");
        let inline = testing::inline(&site.files, &mut site.thread, turn, input.as_bytes());
        inline.expect("valid").is_some()
    };
    for number in 0..entries {
        assert!(kept(&mut site, &number.to_string()), "{number}");
    }
    let absent = (0..4 * entries).filter(|it| kept(&mut site, &format!("made-up-{it}")));
    assert!((1..=2).contains(&absent.count()));
}

#[test]
fn what_may_be_missing_on_another_mount_is_not_kept() {
    let site = Site::new();
    let input = b"GET /new HTTP/1.1\r\nHost: h\r\n\r\n";
    let (request, _) = testing::request(input).expect("valid").expect("complete");
    let (version, home) = site.files.home();
    let stay = Stay {
        version,
        home: &home,
    };
    for (reach, is_kept) in [(Reach::OwnMount, true), (Reach::Everywhere, false)] {
        let asker = Asker::default();
        let resources = ((&site.pool).into(), None);
        let answerer = site.files.answerer(stay, resources, (reach, &asker), None);
        let response = answerer.answer(&request).expect("within that reach");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let entry = response.extensions().get::<NewEntry>();
        assert_eq!(entry.is_some(), is_kept, "{reach:?}");
    }
}
