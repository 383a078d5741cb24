//! Answers of the network thread from what the kernel has at hand: the same as a worker's, or none.

use flatpath_testkit::mount::Mounted;
use flatpath_testkit::skipped::not_offered;

use super::*;

/// What a try answers, if it answers, on a thread whose cache is empty.
fn attempt(site: &Site, method: &str, target: &str, headers: &str) -> Option<Vec<u8>> {
    let mut thread = site.files.thread_state();
    attempt_on(site, &mut thread, method, target, headers)
}

pub(super) fn attempt_on(
    site: &Site,
    thread: &mut FilesState,
    method: &str,
    target: &str,
    headers: &str,
) -> Option<Vec<u8>> {
    let turn = Turn::new(site.turn, Duration::ZERO, Duration::from_secs(784_200_000));
    let input = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let pool = (&site.pool).into();
    // Which is always asked first, and has the home.
    testing::inline(&site.files, thread, turn, input.as_bytes()).expect("valid");
    testing::prompt(&site.files, thread, turn, input.as_bytes(), pool).expect("valid")
}

/// The bytes of an answer with the head's lines in a fixed order.
pub(super) fn in_order(bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let end = bytes
        .windows(4)
        .position(|it| it == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).expect("ASCII");
    let mut lines: Vec<_> = head.lines().map(str::to_ascii_lowercase).collect();
    lines.sort();
    (lines, bytes[end + 4..].to_vec())
}

#[test]
fn what_is_at_hand_is_answered_as_by_a_worker() {
    let mut site = Site::new();
    if site.files.prompt_right_is_lost() {
        return not_offered(
            "no local file system, or openat2 does not look alone",
            (5, 12),
        );
    }
    site.write("a.txt", "content");
    site.write("sub/index.html", "index");
    site.write("b.txt.br", "squeezed");
    site.write("b.txt", "content");
    wait_until_stable();
    let tag = site.get("/a.txt").header("etag").expect("a tag").to_owned();
    let unchanged = format!("If-None-Match: {tag}\r\n");
    for (method, target, headers) in [
        ("GET", "/a.txt", ""),
        ("HEAD", "/a.txt", ""),
        ("GET", "/a.txt", &*unchanged),
        ("HEAD", "/a.txt", &unchanged),
        ("GET", "/a.txt", "If-Match: \"other\"\r\n"),
        ("GET", "/b.txt", "Accept-Encoding: br\r\n"),
        ("GET", "/sub/", ""),
        ("GET", "/sub", ""),
        ("GET", "/missing", ""),
        ("GET", "/sub/missing/deeper", ""),
        ("GET", "/.hidden", ""),
    ] {
        let right = site.ask(method, target, headers);
        let found = attempt(&site, method, target, headers);
        // The kernel may have dropped a name meanwhile; the worker's look brought it back.
        let found = found.or_else(|| attempt(&site, method, target, headers));
        let (lines, body) = in_order(&found.unwrap_or_else(|| panic!("{method} {target}")));
        assert_eq!(
            (lines, body),
            (right.lines(), right.body),
            "{method} {target} {headers}"
        );
    }
}

#[test]
fn an_answer_at_hand_fills_the_cache() {
    let site = Site::new();
    if site.files.prompt_right_is_lost() {
        return not_offered(
            "no local file system, or openat2 does not look alone",
            (5, 12),
        );
    }
    site.write("a.txt", "content");
    wait_until_stable();
    // The first read of a file sets its time of access, which a try leaves to workers.
    fs::read(site.path("a.txt")).expect("readable");
    let mut thread = site.files.thread_state();
    let turn = Turn::new(9, Duration::ZERO, Duration::from_secs(784_200_000));
    let input = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    let inline =
        |thread: &mut FilesState| testing::inline(&site.files, thread, turn, input).expect("valid");
    assert_eq!(inline(&mut thread), None, "it is cold");
    let first = attempt_on(&site, &mut thread, "GET", "/a.txt", "");
    let second = inline(&mut thread).expect("it is hot");
    assert_eq!(in_order(&first.expect("at hand")), in_order(&second));
}

#[test]
fn what_would_wait_or_take_long_is_left_to_workers() {
    let mut site = Site::new();
    site.write("large", "x".repeat(CACHE_FILE_BYTES_MAX + 1));
    site.write("sub/a.txt", "content");
    site.get("/large");
    for (method, target, headers) in [
        ("GET", "/large", ""),
        ("GET", "/", ""),
        ("GET", "/sub/", ""),
        ("OPTIONS", "/", ""),
        ("DELETE", "/sub/a.txt", ""),
    ] {
        site.ask(method, target, headers);
        let found = attempt(&site, method, target, headers);
        assert_eq!(found, None, "{method} {target}");
    }
    assert!(site.ask("HEAD", "/large", "").status() == "200");
}

#[test]
fn a_name_that_is_not_cached_is_left_to_a_worker() {
    let site = Site::new();
    // No look has gone that way, and so the kernel has not cached that there is nothing.
    let never = format!("/{}", fastrand::u64(..));
    assert_eq!(attempt(&site, "GET", &never, ""), None);
}

/// Whether the network thread tries to answer.
fn is_tried(site: &Site, method: &str, headers: &str) -> bool {
    let mut thread = site.files.thread_state();
    let turn = Turn::new(site.turn, Duration::ZERO, Duration::from_secs(784_200_000));
    let input = format!("{method} /a.txt HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let tried = testing::is_tried(&site.files, &mut thread, turn, input.as_bytes());
    tried.expect("valid")
}

#[test]
fn data_that_a_file_system_never_tells_of_is_not_tried_again() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    let Some(overlay) = Mounted::overlay(&site.path("")) else {
        return;
    };
    site.files = Files::open(overlay.path()).expect("open");
    wait_until_stable();
    let tag = site.get("/a.txt").header("etag").expect("a tag").to_owned();
    let unchanged = format!("If-None-Match: {tag}\r\n");
    let tries = (0..5).filter(|_| {
        let is_tried = is_tried(&site, "GET", "");
        assert!(!is_tried || attempt(&site, "GET", "/a.txt", "").is_none());
        is_tried
    });
    assert_eq!(tries.count(), 1, "the first is refused");
    // What needs no data is.
    for (method, headers) in [("HEAD", ""), ("GET", &*unchanged)] {
        assert!(is_tried(&site, method, headers));
        let answered = attempt(&site, method, "/a.txt", headers);
        assert!(answered.is_some(), "{method} {headers}");
    }
}
