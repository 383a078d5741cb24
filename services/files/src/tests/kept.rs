//! What the network thread keeps, and that it is never out of date.

use http::StatusCode;

use super::*;
use crate::identity::{Identity, clock_of_files};
use crate::limits::RACY_NS;
use crate::{HeaderChange, Rules};

#[test]
fn a_file_written_this_moment_has_no_validators_and_is_not_kept() {
    let mut site = Site::new();
    // Again until both answers fall into the moment after the write.
    let deadline = std::time::Instant::now() + flatpath_testkit::patience();
    loop {
        fs::write(site.path("a.txt"), "content").expect("write");
        let answer = site.get("/a.txt");
        let again = site.get("/a.txt");
        // By the clock of its time: by another one a late tick makes it older when it is written.
        let found = rustix::fs::stat(site.path("a.txt")).expect("there");
        let changed = Identity::from_stat(&found).changed.to_system_time();
        let age = clock_of_files().duration_since(changed.expect("a time"));
        if age.unwrap_or_default() < Duration::from_nanos(RACY_NS) {
            assert_eq!(answer.header("ETag"), None);
            assert_eq!(answer.header("Last-Modified"), None);
            assert_eq!(again.by, By::Worker);
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "this machine is too slow to tell"
        );
    }
}

#[test]
fn conditions_are_decided_alike_by_worker_and_network_thread() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    wait_until_stable();
    let tag = site
        .get("/a.txt")
        .header("ETag")
        .expect("a tag")
        .to_string();
    for (headers, status) in [
        (format!("If-None-Match: {tag}\r\n"), "304"),
        (
            format!("If-None-Match: \"x\"\r\nIf-None-Match: W/{tag}\r\n"),
            "304",
        ),
        ("If-None-Match: \"x\"\r\n".to_string(), "200"),
        (format!("If-Modified-Since: {DATE}\r\n"), "304"),
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {DATE}\r\n"),
            "200",
        ),
        (format!("If-Match: {tag}\r\n"), "200"),
        ("If-Match: \"x\"\r\n".to_string(), "412"),
        (format!("If-Unmodified-Since: {DATE}\r\n"), "200"),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n".to_string(),
            "412",
        ),
    ] {
        let cached = site.ask("GET", "/a.txt", &headers);
        site.thread = site.files.thread_state();
        let read = site.ask("GET", "/a.txt", &headers);
        assert_eq!(
            (cached.status(), read.by),
            (status, By::Worker),
            "{headers}"
        );
        assert_eq!(cached.lines(), read.lines(), "{headers}");
        assert_eq!(cached.body, read.body, "{headers}");
        let by = if status == "412" {
            By::Worker
        } else {
            By::Network
        };
        assert_eq!(cached.by, by, "{headers}");
        if status == "304" {
            assert!(cached.body.is_empty() && cached.header("Content-Type").is_none());
            assert_eq!(cached.header("ETag"), Some(&*tag));
        }
        site.get("/a.txt");
    }
}

/// What a link leads to is looked up anew each time; a tag from before is not the new file's.
#[test]
fn what_a_link_led_to_is_not_kept_for_what_it_leads_to_now() {
    let mut site = Site::new();
    site.write("one/a.txt", "first");
    site.write("two/a.txt", "other");
    for (link, first, then) in [
        ("/file", "one/a.txt", "two/a.txt"),
        ("/folder/a.txt", "one", "two"),
    ] {
        let name = link[1..].split('/').next().expect("a name");
        symlink(first, site.path(name)).expect("linked");
        wait_until_stable();
        let ask = |site: &mut Site, headers: &str| {
            // By a try first, as a listener does; then by a worker.
            let answers = [
                site.ask("GET", link, headers),
                site.ask("GET", link, headers),
            ];
            let [one, other] = answers;
            assert_eq!((one.lines(), &one.body), (other.lines(), &other.body));
            other
        };
        let before = ask(&mut site, "");
        assert_eq!(before.text(), "first");
        let tag = before.header("etag").expect("a tag").to_owned();
        fs::remove_file(site.path(name)).expect("removed");
        symlink(then, site.path(name)).expect("linked");
        let known = format!("If-None-Match: {tag}\r\n");
        let after = ask(&mut site, &known);
        assert_eq!((after.status(), after.text()), ("200", "other"), "{link}");
    }
}

#[test]
fn a_304_is_answered_inline_though_no_200_ever_was() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    wait_until_stable();
    let headers = format!("If-Modified-Since: {DATE}\r\n");
    assert_eq!(site.ask("GET", "/a.txt", &headers).by, By::Worker);
    let second = site.ask("GET", "/a.txt", &headers);
    assert_eq!((second.status(), second.by), ("304", By::Network));
}

#[test]
fn a_sibling_that_comes_or_goes_is_noticed() {
    let mut site = Site::new();
    site.write("a.css", "plain");
    wait_until_stable();
    let accept = "Accept-Encoding: br, gzip\r\n";
    assert_eq!(site.get_hot("/a.css", accept).text(), "plain");
    site.write("a.css.gz", "gzip");
    wait_until_stable();
    assert_eq!(site.get_hot("/a.css", accept).text(), "gzip");
    site.write("a.css.br", "brotli");
    wait_until_stable();
    assert_eq!(site.get_hot("/a.css", accept).text(), "brotli");
    fs::remove_file(site.path("a.css.br")).expect("remove");
    assert_eq!(site.get_hot("/a.css", accept).text(), "gzip");
    fs::remove_file(site.path("a.css")).expect("remove");
    assert_eq!(site.ask("GET", "/a.css", accept).status(), "404");
}

#[test]
fn a_change_is_seen_by_the_next_turn_and_not_within_one() {
    let mut site = Site::new();
    site.write("sub/a.txt", "old");
    wait_until_stable();
    site.get_hot("/sub/a.txt", "");
    site.write("sub/a.txt", "new");
    let same_turn = site.ask_in_this_turn("GET", "/sub/a.txt", "");
    assert_eq!((same_turn.by, same_turn.text()), (By::Network, "old"));
    let next_turn = site.get("/sub/a.txt");
    assert_eq!((next_turn.by, next_turn.text()), (By::Worker, "new"));
}

#[test]
fn what_a_link_led_to_is_read_anew_each_time() {
    let mut site = Site::new();
    site.write("one/a.txt", "one");
    site.write("two/a.txt", "two");
    wait_until_stable();
    symlink("one", site.path("current")).expect("symlink");
    for _ in 0..3 {
        let answer = site.get("/current/a.txt");
        assert_eq!((answer.by, answer.text()), (By::Worker, "one"));
    }
    fs::remove_file(site.path("current")).expect("remove");
    symlink("two", site.path("current")).expect("symlink");
    assert_eq!(site.get("/current/a.txt").text(), "two");
}

#[test]
fn a_hot_file_moved_out_and_linked_to_is_gone() {
    let mut site = Site::new();
    site.write("sub/a.txt", "content");
    wait_until_stable();
    site.get_hot("/sub/a.txt", "");
    fs::rename(site.path("sub"), site.folder.path().join("outside")).expect("rename");
    symlink("../outside", site.path("sub")).expect("symlink");
    assert_eq!(site.get("/sub/a.txt").status(), "404");
}

/// The content of a file that is kept open, and no two bytes in a row alike.
fn long(salt: u8) -> Vec<u8> {
    let bytes = CACHE_FILE_BYTES_MAX + 1;
    (0..bytes).map(|at| (at % 251) as u8 ^ salt).collect()
}

#[test]
fn a_larger_file_is_kept_open_and_sent_in_whole_or_in_part_without_a_worker() {
    let mut site = Site::new();
    let largest_in_memory = vec![1; CACHE_FILE_BYTES_MAX];
    site.write("memory", &largest_in_memory);
    site.write("open", long(0));
    wait_until_stable();
    assert_eq!(site.get_hot("/memory", "").body, largest_in_memory);
    let whole = site.get_hot("/open", "");
    assert!(whole.body == long(0));
    for path in ["/memory", "/open"] {
        let all = site.get_hot(path, "").body;
        let answer = site.ask("GET", path, "Range: bytes=1000-60000\r\n");
        assert_eq!((answer.by, answer.status()), (By::Network, "206"), "{path}");
        assert!(answer.body == all[1000..=60_000], "{path}");
        let range = format!("bytes 1000-60000/{}", all.len());
        assert_eq!(answer.header("content-range"), Some(&*range));
        assert_eq!(answer.header("content-length"), Some("59001"));
        assert_eq!(answer.header("etag"), site.get(path).header("etag"));
        // Ignored.
        for range in [
            "bytes=x",
            "bytes=0-9\r\nRange: bytes=0-9",
            "bytes=0-9\r\nIf-Range: \"x\"",
        ] {
            let ignored = site.ask("GET", path, &format!("Range: {range}\r\n"));
            assert_eq!(
                (ignored.by, ignored.status()),
                (By::Network, "200"),
                "{path} {range}"
            );
            assert!(ignored.body == all, "{path} {range}");
        }
    }
}

/// The lines of a head and its body, with `B` for the boundary, which is another each time.
fn without_boundary(answer: &Answer) -> (Vec<String>, String) {
    let media = answer.header("content-type").unwrap_or_default();
    let boundary = media.split_once("boundary=").map(|(_, boundary)| boundary);
    let body: String = answer.body.iter().copied().map(char::from).collect();
    match boundary {
        None => (answer.lines(), body),
        Some(boundary) => {
            let lines = answer.lines().into_iter();
            let lines = lines.map(|line| line.replace(boundary, "B")).collect();
            (lines, body.replace(boundary, "B"))
        }
    }
}

#[test]
fn parts_are_answered_alike_by_worker_and_network_thread() {
    let mut site = Site::new();
    for (name, content) in [("memory", vec![7; 5_000]), ("open", long(0))] {
        site.write(name, &content);
        site.write(&format!("{name}.gz"), [content, long(1)].concat());
    }
    wait_until_stable();
    for path in ["/memory", "/open"] {
        for (range, status) in [
            ("bytes=0-9,100-109", "206"),
            ("bytes=100-109,0-9,-1", "206"),
            ("bytes=0-9,5-20", "206"),
            ("bytes=99999999-", "416"),
            ("bytes=-0", "416"),
            ("bytes=0-,1-", "206"),
        ] {
            for coding in ["", "Accept-Encoding: gzip\r\n"] {
                let headers = format!("Range: {range}\r\n{coding}");
                site.thread = site.files.thread_state();
                let first = site.ask("GET", path, &headers);
                assert_eq!((first.by, first.status()), (By::Worker, status), "{range}");
                site.get_hot(path, coding);
                let hot = site.ask("GET", path, &headers);
                assert_eq!(hot.by, By::Network, "{path} {range}");
                assert_eq!(without_boundary(&hot), without_boundary(&first), "{range}");
                assert_eq!(hot.header("vary"), Some("accept-encoding"));
                // Of HEAD there are no parts.
                let head = site.ask("HEAD", path, &headers);
                assert_eq!((head.by, head.status()), (By::Network, "200"));
                assert!(head.body.is_empty());
            }
        }
    }
}

/// Rules change types and other headers of parts, and what is said of parts that are not there.
#[test]
fn parts_are_as_the_rules_say_wherever_they_are_answered() {
    let any = || "/*".parse().expect("a pattern");
    let set = |name, value| HeaderChange::set(name, value).expect(name);
    let append = |name, value| HeaderChange::append(name, value).expect(name);
    let of_headers = |changes: Vec<HeaderChange>| Rules::new().headers(any(), changes);
    let of_page = Rules::new().error_page(StatusCode::RANGE_NOT_SATISFIABLE, "/416.txt");
    for rules in [
        of_headers(vec![set("Content-Type", "text/x"), set("X-A", "1")]),
        of_headers(vec![append("Content-Type", "text/x")]),
        of_headers(vec![HeaderChange::remove("Content-Type").expect("a name")]),
        of_page,
    ] {
        let mut site = Site::new();
        site.files = site.files.rules(rules.expect("rules"));
        site.write("416.txt", "no such part");
        site.write("open", long(0));
        wait_until_stable();
        for (range, status) in [("0-9,100-109", "206"), ("5-9", "206"), ("9999999-", "416")] {
            let headers = format!("Range: bytes={range}\r\n");
            site.thread = site.files.thread_state();
            let first = site.ask("GET", "/open", &headers);
            assert_eq!((first.by, first.status()), (By::Worker, status), "{range}");
            site.get_hot("/open", "");
            let hot = site.ask("GET", "/open", &headers);
            assert_eq!(without_boundary(&hot), without_boundary(&first), "{range}");
        }
    }
}

#[test]
fn what_has_no_byte_of_a_larger_file_needs_no_open_one() {
    let mut site = Site::new();
    site.write("open", long(0));
    wait_until_stable();
    let beyond = "Range: bytes=99999999-\r\n";
    assert_eq!(site.ask("GET", "/open", beyond).by, By::Worker);
    assert_eq!(site.ask("GET", "/open", beyond).by, By::Network);
    for (method, headers) in [("GET", beyond), ("HEAD", "")] {
        site.get_hot("/open", "");
        let (_, home) = site.files.home();
        let kept = home.kept.as_ref().expect("files are kept open");
        let closed = kept.take_unasked().len() + kept.take_unasked().len();
        assert_eq!(closed, 1);
        assert_eq!(site.ask(method, "/open", headers).by, By::Network);
        assert_eq!(site.get("/open").by, By::Worker, "it was closed");
    }
}

#[test]
fn a_part_of_a_larger_file_has_it_kept_open() {
    let mut site = Site::new();
    site.write("open", long(0));
    wait_until_stable();
    let first = site.ask("GET", "/open", "Range: bytes=5-9\r\n");
    assert_eq!((first.by, first.status()), (By::Worker, "206"));
    let again = site.ask("GET", "/open", "Range: bytes=5-9\r\n");
    assert_eq!((again.by, &again.body[..]), (By::Network, &long(0)[5..10]));
    assert!(site.get("/open").body == long(0));
}

#[test]
fn a_file_that_is_kept_open_is_never_sent_for_another_one() {
    let mut site = Site::new();
    site.write("open", long(0));
    wait_until_stable();
    assert!(site.get_hot("/open", "").body == long(0));
    site.write("other", long(1));
    fs::rename(site.path("other"), site.path("open")).expect("rename");
    assert!(site.get("/open").body == long(1), "replaced");
    wait_until_stable();
    assert!(site.get_hot("/open", "").body == long(1));
    site.write("open", [long(2), long(3)].concat());
    assert!(
        site.get("/open").body == [long(2), long(3)].concat(),
        "written anew, and grown"
    );
    wait_until_stable();
    site.get_hot("/open", "");
    fs::remove_file(site.path("open")).expect("remove");
    assert_eq!(site.get("/open").status(), "404");
}

#[test]
fn without_buffers_small_files_are_streamed_too() {
    let mut site = Site::with_pool(4 << 10);
    let content = vec![7; 10_000];
    site.write("a", &content);
    wait_until_stable();
    for _ in 0..2 {
        let answer = site.get("/a");
        assert_eq!((answer.by, &answer.body), (By::Worker, &content));
    }
}

#[test]
fn queries_do_not_matter_to_files() {
    let mut site = Site::new();
    site.write("a", "content");
    wait_until_stable();
    site.get_hot("/a", "");
    let other = site.get("/a?version=2");
    assert_eq!((other.by, other.text()), (By::Network, "content"));
}

#[test]
fn stress_no_answer_is_older_than_its_request() {
    let mut site = Site::new();
    site.write("replaced", format!("{:020}", 0));
    site.write("rewritten", format!("{:020}", 0));
    wait_until_stable();
    let (replaced, rewritten) = (site.path("replaced"), site.path("rewritten"));
    let published = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let mut failure = None;
    let mut inline = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options()
                .write(true)
                .open(&rewritten)
                .expect("open");
            let staging = replaced.with_extension("new");
            for version in 1_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let text = format!("{version:020}");
                file.write_all_at(text.as_bytes(), 0).expect("write");
                // Its date back to 1994: only the change time tells one version from another.
                file.set_modified(SystemTime::UNIX_EPOCH + MODIFIED)
                    .expect("set time");
                write_old(&staging, text.as_bytes());
                fs::rename(&staging, &replaced).expect("rename");
                published.store(version, Ordering::Release);
                // Long pauses now and then, so that the cache gets its chance.
                let pause = if version % 16 == 0 { 60 } else { version % 4 };
                std::thread::sleep(Duration::from_millis(pause));
            }
        });
        let mut asked = 0;
        let enough = if is_slow() { 4_000 } else { 20_000 };
        while failure.is_none() && (asked < enough || inline < 100) && asked < 2_000_000 {
            for target in ["/replaced", "/rewritten"] {
                asked += 1;
                let floor = published.load(Ordering::Acquire);
                let answer = site.get(target);
                inline += u64::from(answer.by == By::Network);
                let version = answer.text().parse::<u64>();
                if version.as_ref().is_ok_and(|version| *version < floor) || version.is_err() {
                    failure = Some(format!("{target}: {answer:?} though {floor} was published"));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(failure, None);
    assert!(inline > 0, "the cache was never used");
}

#[test]
fn stress_a_folder_swapped_for_a_link_is_never_served_from_outside() {
    let mut site = Site::new();
    site.write("sub/a.txt", "inside");
    symlink("../outside", site.path("evil")).expect("symlink");
    write_old(&site.folder.path().join("outside/a.txt"), b"outside");
    wait_until_stable();
    let (sub, evil) = (site.path("sub"), site.path("evil"));
    let stop = AtomicBool::new(false);
    let mut bodies = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &sub, CWD, &evil, RenameFlags::EXCHANGE).expect("exchange");
            }
        });
        let count = if is_slow() { 2_000 } else { 10_000 };
        bodies.extend((0..count).map(|_| site.get("/sub/a.txt").body));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(bodies.iter().any(|body| body == b"inside"));
    assert!(
        bodies
            .iter()
            .all(|body| body == b"inside" || body.starts_with(b"<!DOCTYPE html>"))
    );
}
