//! `_redirects` and `_headers` of the root: read, seen when they change, and kept back.

use super::rules::{assert_met, site};
use super::*;
use crate::{RootFiles, Rules};

#[test]
fn files_of_the_root_are_rules_and_seen_when_they_change() {
    let rules = Rules::new().root_files(RootFiles::Read);
    let mut site = site(&["a", "b"], Ok(rules));
    assert_eq!(site.get_hot("/a", "").header("x-a"), None);
    site.write("_headers", "/*\n  X-A: 1\n");
    wait_until_stable();
    assert_eq!(site.get_hot("/a", "").header("x-a"), Some("1"));
    site.write("_headers", "/*\n  X-A: 2\n");
    assert_eq!(site.get("/a").header("x-a"), Some("2"), "at once");
    wait_until_stable();
    assert_eq!(site.get_hot("/a", "").header("x-a"), Some("2"));
    site.write("_redirects", "/a /b 301\n");
    assert_met(&mut site, "/a", "301", "/b");
    site.write("_redirects", "/a /c 301\n");
    assert_met(&mut site, "/a", "301", "/c");
    fs::remove_file(site.path("_redirects")).expect("remove");
    fs::rename(site.path("_headers"), site.path("other")).expect("rename");
    wait_until_stable();
    assert_eq!(site.get_hot("/a", "").header("x-a"), None);
}

#[test]
fn a_line_that_is_a_mistake_costs_no_other() {
    let rules = Rules::new().root_files(RootFiles::Read);
    let mut site = site(&["a", "b"], Ok(rules));
    site.write("_redirects", "/x\n/old /b 308\n/l /m\n/m /l\n");
    site.write("_headers", "/*\n  Content-Length: 1\n  X-A: 1\n");
    assert_met(&mut site, "/old", "308", "/b");
    assert_met(&mut site, "/l", "302", "/m");
    assert_eq!(
        site.get("/m").status(),
        "404",
        "the line that closes the circle"
    );
    assert_eq!(site.get("/b").header("x-a"), Some("1"));
    assert_eq!(site.get("/b").header("content-length"), Some("1"));
}

#[test]
fn files_of_the_root_are_neither_served_nor_listed_nor_too_long() {
    let read = || Ok(Rules::new().root_files(RootFiles::Read));
    let mut site = site(&["a", "sub/_headers"], read());
    site.write("_headers", "/*\n  X-A: 1\n");
    site.write("_redirects", "/b /_headers 200!\n/* /_redirects 200\n");
    for target in ["/_headers", "/_redirects", "/%5fheaders", "/b", "/none"] {
        assert_eq!(site.get(target).status(), "404", "{target}");
    }
    assert!(!site.get("/").text().contains("_headers"));
    assert_met(&mut site, "/sub/_headers", "200", "sub/_headers");
    site.write(
        "_headers",
        vec![b'#'; crate::limits::RULE_FILE_BYTES_MAX + 1],
    );
    assert_eq!(site.get("/a").header("x-a"), None);
    site.files = site.files.rules(Rules::new());
    assert_eq!(
        site.get("/_redirects").status(),
        "200",
        "a file like any other"
    );
}

/// A page that was set for every path would leave none over for those of the file.
#[test]
fn a_page_of_the_file_comes_before_one_that_was_set() {
    let rules = Rules::new().root_files(RootFiles::Read);
    let rules = rules.fallback("/*".parse().expect("a pattern"), "/all");
    let mut site = site(&["all", "app/page"], rules);
    site.write("_redirects", "/app/* /app/page 200\n");
    assert_met(&mut site, "/app/none", "200", "app/page");
    assert_met(&mut site, "/none", "200", "all");
}

#[test]
fn a_link_out_of_the_root_has_no_rules() {
    let rules = Rules::new().root_files(RootFiles::Read);
    let mut site = site(&["a", "inside"], Ok(rules));
    fs::write(site.folder.path().join("outside"), "/*\n  X-A: 1\n").expect("write");
    symlink("../outside", site.path("_headers")).expect("symlink");
    assert_eq!(site.get("/a").header("x-a"), None);
    fs::remove_file(site.path("_headers")).expect("remove");
    // As Kubernetes makes them: a link that stays inside.
    site.write("inside", "/*\n  X-A: 2\n");
    symlink("inside", site.path("_headers")).expect("symlink");
    assert_eq!(site.get("/a").header("x-a"), Some("2"));
    site.write("inside", "/*\n  X-A: 33\n");
    assert_eq!(site.get("/a").header("x-a"), Some("33"));
}

/// Its change time tells each change, whatever its date is.
#[test]
fn a_file_of_rules_that_is_dated_in_the_future_is_one_like_any_other() {
    let rules = Rules::new().root_files(RootFiles::Read);
    let mut site = site(&["a"], Ok(rules));
    for value in ["1", "2"] {
        site.write("_headers", format!("/*\n  X-A: {value}\n"));
        let file = fs::File::options()
            .write(true)
            .open(site.path("_headers"))
            .expect("open");
        let future = SystemTime::UNIX_EPOCH + Duration::from_secs(16_000_000_000);
        file.set_modified(future).expect("set time");
        wait_until_stable();
        assert_eq!(site.get_hot("/a", "").header("x-a"), Some(value));
    }
}

#[test]
fn two_edits_within_a_clock_tick_are_both_seen() {
    let rules = Rules::new().root_files(RootFiles::Read);
    let mut site = site(&["a"], Ok(rules));
    for round in 0..50 {
        for value in ["1", "2"] {
            let text = format!("/*\n  X-A: {value}\n");
            fs::write(site.path("_headers"), text).expect("write");
            assert_eq!(site.get("/a").header("x-a"), Some(value), "round {round}");
        }
    }
}
