//! Another directory takes the place of the one that is served.

use std::sync::Arc;

use super::*;
use crate::{Owner, look_again, missing_directories};

/// The service again, once it has taken over what a test did to its path. What is asked wakes the
/// looks, so that no interval is waited for.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_true(what, || {
        look_again();
        is_so()
    });
}

fn version(site: &Site) -> u64 {
    site.files.versions().home()
}

/// Puts a directory with one file in the place of the one that is served, which stays as `old`.
fn replace(site: &Site, name: &str, content: &str) {
    let new = site.folder.path().join("new");
    fs::create_dir(&new).expect("mkdir");
    write_old(&new.join(name), content.as_bytes());
    fs::rename(site.path(""), site.folder.path().join("old")).expect("rename");
    fs::rename(new, site.path("")).expect("rename");
}

#[test]
fn what_was_cached_of_one_directory_is_not_answered_of_another() {
    let mut site = Site::new();
    site.write("a.txt", "one");
    wait_until_stable();
    assert_eq!(site.get_hot("/a.txt", "").text(), "one");
    let before = version(&site);
    replace(&site, "a.txt", "two");
    until("another version", || version(&site) > before);
    assert_eq!(site.get("/a.txt").text(), "two");
    wait_until_stable();
    assert_eq!(site.get_hot("/a.txt", "").text(), "two");
}

#[test]
fn an_answer_that_was_made_in_the_directory_before_is_not_cached() {
    let mut site = Site::new();
    site.write("a.txt", "one");
    wait_until_stable();
    let input = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    let (request, _) = testing::request(input).expect("valid").expect("complete");
    let mut response = site.answer(&request);
    let before = version(&site);
    replace(&site, "b.txt", "two");
    until("another version", || version(&site) > before);
    assert_eq!(site.get("/b.txt").text(), "two", "the thread has moved");
    let turn = Turn::new(site.turn, Duration::ZERO, Duration::from_secs(784_200_000));
    let mut note = std::mem::take(response.extensions_mut());
    assert!(!note.is_empty(), "it was to be kept");
    site.files.response_ready(&mut site.thread, turn, &mut note);
    assert_eq!(site.get("/a.txt").status(), "404");
}

#[test]
fn a_request_that_has_begun_ends_in_its_directory() {
    let site = Site::new();
    site.write("a.txt", "one");
    let (_, home) = site.files.home();
    let before = version(&site);
    replace(&site, "b.txt", "two");
    until("another version", || version(&site) > before);
    assert!(home.root.find(b"a.txt").is_ok() && home.root.find(b"b.txt").is_err());
    let (_, now) = site.files.home();
    assert!(now.root.find(b"b.txt").is_ok() && !Arc::ptr_eq(&home, &now));
    until("nothing else keeps it", || Arc::strong_count(&home) == 1);
}

/// A release that is to be removed is kept by no thread that nobody asks anything.
#[test]
fn what_was_replaced_is_taken_from_a_thread_that_is_idle() {
    let mut site = Site::new();
    site.write("a.txt", "one");
    wait_until_stable();
    assert_eq!(site.get_hot("/a.txt", "").text(), "one");
    let root = {
        let (_, home) = site.files.home();
        Arc::downgrade(&home.root)
    };
    assert!(root.strong_count() > 0, "it is served");
    replace(&site, "a.txt", "two");
    until("its root is closed", || root.strong_count() == 0);
    assert_eq!(site.get("/a.txt").text(), "two");
}

#[test]
fn a_directory_that_is_gone_is_named_until_it_is_back() {
    let mut site = Site::new();
    site.write("a.txt", "one");
    wait_until_stable();
    assert_eq!(site.get_hot("/a.txt", "").text(), "one");
    let (path, away) = (site.path(""), site.folder.path().join("away"));
    let path = std::path::absolute(path).expect("absolute");
    let is_missing = || missing_directories().iter().any(|(it, _)| *it == path);
    let before = version(&site);
    assert!(!is_missing());
    fs::rename(&path, &away).expect("rename");
    until("it is missed", is_missing);
    until("nothing is served", || version(&site) > before);
    let mut thread = site.files.thread_state();
    let turn = Turn::new(99, Duration::ZERO, Duration::from_secs(784_200_000));
    let input = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    for thread in [&mut thread, &mut site.thread] {
        let inline = testing::inline(&site.files, thread, turn, input).expect("valid");
        assert_eq!(inline, None, "a worker says 503");
    }
    let missed = version(&site);
    fs::rename(&away, &path).expect("rename");
    until("it is back", || version(&site) > missed && !is_missing());
    assert_eq!(site.get("/a.txt").text(), "one");
}

#[test]
fn what_an_owner_serves_by_now_is_the_owners() {
    let site = Site::new();
    for name in ["one", "two"] {
        site.write(&format!("releases/{name}/a.txt"), name);
    }
    let link = |to: &str| {
        symlink(to, site.path("next")).expect("symlink");
        fs::rename(site.path("next"), site.path("current")).expect("rename");
    };
    link("releases/one");
    let owner = Owner::of(&site.path("current")).expect("open");
    let files = Files::open(&site.path("")).expect("open");
    let files = files.beside(&[owner]).expect("few");
    let is_owned = |path: &str| {
        let (_, home) = files.home();
        let traced = crate::walk::trace(home.root.directory(), path.as_bytes(), None);
        let owners = home.owners.all();
        let mut places = traced.places.iter();
        places.any(|place| (1..=place.len()).any(|end| owners[0].is_at(&place[..end])))
    };
    assert!(is_owned("releases/one/a.txt") && !is_owned("releases/two/a.txt"));
    link("releases/two");
    until("the owner has moved", || is_owned("releases/two/a.txt"));
    assert!(is_owned("current/a.txt"));
    assert!(
        is_owned("releases/one/a.txt"),
        "what it had before stays its own"
    );
    // Its path is the owner's also while nothing is there.
    fs::remove_file(site.path("current")).expect("removed");
    until("it is missed", || {
        let missing = missing_directories();
        missing.iter().any(|(it, _)| *it == site.path("current"))
    });
    fs::create_dir(site.path("current")).expect("mkdir");
    assert!(is_owned("current/a.txt"));
}
