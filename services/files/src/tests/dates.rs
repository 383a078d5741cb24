//! Files that are dated in the future, or not at all.

use super::*;
use crate::EntityTags;

fn write_at(site: &Site, name: &str, modified: SystemTime) {
    site.write(name, "0123456789");
    let file = fs::File::options().write(true).open(site.path(name));
    file.expect("open").set_modified(modified).expect("a time");
}

fn seconds_of(date: &str) -> u64 {
    let date = httpdate::parse_http_date(date).expect("a date");
    let since = date.duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

#[test]
fn a_file_dated_in_the_future_has_validators() {
    let mut site = Site::new();
    for (name, ahead) in [
        ("hour", 3_600),
        ("year", 32_000_000),
        ("far", 14_000_000_000),
    ] {
        write_at(&site, name, SystemTime::now() + Duration::from_secs(ahead));
    }
    wait_until_stable();
    for tags in [EntityTags::Exact, EntityTags::Portable] {
        site.files = site.files.entity_tags(tags);
        for name in ["/hour", "/year", "/far"] {
            let before = now();
            let answer = site.get(name);
            let tag = answer.header("ETag").expect("a tag").to_owned();
            let date = answer.header("Last-Modified").expect("a date").to_owned();
            // RFC 9110, 8.8.2.1: not later than the date of the message.
            let modified = seconds_of(&date);
            assert!((before - 2..=now()).contains(&modified), "{name} {date}");
            for (condition, status) in [
                (format!("If-None-Match: {tag}\r\n"), "304"),
                (format!("If-Match: {tag}\r\nRange: bytes=0-3\r\n"), "206"),
                (format!("If-Range: {tag}\r\nRange: bytes=0-3\r\n"), "206"),
                (format!("If-Range: {date}\r\nRange: bytes=0-3\r\n"), "200"),
            ] {
                let answer = site.ask("GET", name, &condition);
                assert_eq!(answer.status(), status, "{tags:?} {name} {condition}");
            }
        }
    }
}

/// What a client has with the date of a moment after the change is what there is.
#[test]
fn a_date_after_the_change_confirms_a_file_dated_in_the_future() {
    let mut site = Site::new();
    write_at(&site, "a", SystemTime::now() + Duration::from_secs(3_600));
    // Until the second of the change is over: its date is of one before.
    let changed = now();
    let deadline = std::time::Instant::now() + flatpath_testkit::patience();
    while now() < changed + 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "the clock stands still"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let date = site
        .get("/a")
        .header("Last-Modified")
        .expect("a date")
        .to_owned();
    let since = format!("If-Modified-Since: {date}\r\n");
    assert_eq!(site.ask("GET", "/a", &since).status(), "304");
    write_at(&site, "a", SystemTime::now() + Duration::from_secs(7_200));
    assert_eq!(
        site.ask("GET", "/a", &since).status(),
        "200",
        "it has changed"
    );
}

#[test]
fn a_time_at_the_epoch_is_no_date_and_the_answer_is_kept() {
    let mut site = Site::new();
    for (name, seconds) in [("zero", 0), ("nix", 1)] {
        write_at(
            &site,
            name,
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        );
    }
    wait_until_stable();
    for tags in [EntityTags::Exact, EntityTags::Portable] {
        site.files = site.files.entity_tags(tags);
        for name in ["/zero", "/nix"] {
            let answer = site.get_hot(name, "");
            assert_eq!(answer.header("Last-Modified"), None, "{tags:?} {name}");
            assert!(answer.header("ETag").is_some(), "{tags:?} {name}");
        }
    }
}

#[test]
fn a_range_beyond_the_end_says_on_what_the_length_depends() {
    let mut site = Site::new();
    site.write("a.css", "0123456789");
    site.write("a.css.gz", "01234");
    wait_until_stable();
    for (coding, length) in [
        ("", "bytes */10"),
        ("Accept-Encoding: gzip\r\n", "bytes */5"),
    ] {
        let answer = site.ask("GET", "/a.css", &format!("{coding}Range: bytes=50-\r\n"));
        assert_eq!(answer.status(), "416");
        assert_eq!(answer.header("Content-Range"), Some(length));
        assert_eq!(answer.header("Vary"), Some("accept-encoding"), "{coding}");
    }
}
