//! The service from request bytes to reply bytes, without a server around it.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use flatpath::Pool;
use flatpath_http::{Service, Turn, trial};
use flatpath_structures::pool::{PoolConfig, Zero};

use crate::limits::{HOT_FILE_BYTES_MAX, RACY_NS};
use crate::{Files, FilesLane, Hidden};

/// Sunday, 06 Nov 1994 08:49:37 GMT.
const MODIFIED: Duration = Duration::from_secs(784_111_777);
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A folder, the service over it, and one network thread's lane.
struct Site {
    folder: tempfile::TempDir,
    files: Files,
    lane: FilesLane,
    pool: Pool,
    turn: u64,
}

/// Where an answer was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Network,
    Worker,
}

#[derive(Debug)]
struct Answer {
    by: By,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> &str {
        &self.head[9..12]
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The head's lines in a fixed order.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.head.lines().map(str::to_ascii_lowercase).collect();
        lines.sort();
        lines
    }
}

impl Site {
    fn new() -> Self {
        Self::with_pool(16 << 20)
    }

    fn with_pool(budget_bytes: usize) -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::create_dir(folder.path().join("served")).expect("mkdir");
        let files = Files::open(&folder.path().join("served")).expect("open");
        let lane = files.lane();
        let classes = vec![4 << 10, 16 << 10, 64 << 10];
        let pool = Pool::new(PoolConfig {
            classes,
            budget_bytes,
            zero: Zero::Never,
        });
        Self {
            folder,
            files,
            lane,
            pool,
            turn: 1,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("served").join(name)
    }

    /// Writes a file that was last modified in 1994.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write_old(&self.path(name), content.as_ref());
    }

    fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }

    fn ask(&mut self, method: &str, target: &str, fields: &str) -> Answer {
        self.turn += 1;
        self.ask_in_this_turn(method, target, fields)
    }

    fn ask_in_this_turn(&mut self, method: &str, target: &str, fields: &str) -> Answer {
        let turn = Turn {
            number: self.turn,
            now_ns: 0,
            wall_seconds: 784_200_000,
        };
        let input = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let input = input.as_bytes();
        let inline = trial::inline(&self.files, &mut self.lane, turn, input).expect("valid");
        let (by, bytes) = match inline {
            Some(bytes) => (By::Network, bytes),
            None => {
                let (request, _) = trial::request(input).expect("valid").expect("complete");
                let mut response = self.files.answerer(&self.pool).answer(&request);
                let mut note = std::mem::take(response.extensions_mut());
                self.files.settled(&mut self.lane, turn, &mut note);
                let encode = |head: &flatpath_http::Head<'_>| trial::encoded(head, turn, response);
                let bytes = trial::with_head(input, encode)
                    .expect("valid")
                    .expect("complete");
                (By::Worker, bytes)
            }
        };
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("ASCII");
        Answer {
            by,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// Asks twice; the second time the network thread must know the answer, and it must be the same.
    fn get_hot(&mut self, target: &str, fields: &str) -> Answer {
        let first = self.ask("GET", target, fields);
        let second = self.ask("GET", target, fields);
        assert_eq!(second.by, By::Network, "{target} {fields}");
        assert_eq!((second.lines(), &second.body), (first.lines(), &first.body));
        second
    }
}

fn write_old(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, content).expect("write");
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::UNIX_EPOCH + MODIFIED)
        .expect("set time");
}

/// Lets the last change be long enough ago for validators.
fn settle() {
    std::thread::sleep(Duration::from_nanos(RACY_NS) + Duration::from_millis(15));
}

#[test]
fn a_file_comes_with_type_length_and_validators() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    settle();
    let answer = site.get("/a.txt");
    assert_eq!((answer.status(), answer.text()), ("200", "content"));
    for (name, value) in [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", "7"),
        ("X-Content-Type-Options", "nosniff"),
        ("Last-Modified", DATE),
        ("Accept-Ranges", "bytes"),
        ("Vary", "accept-encoding"),
    ] {
        assert_eq!(answer.field(name), Some(value), "{name}");
    }
    assert!(answer.field("ETag").is_some_and(|tag| tag.starts_with('"')));
    assert_eq!(
        answer
            .head
            .to_ascii_lowercase()
            .matches("content-length")
            .count(),
        1
    );
}

#[test]
fn a_file_written_this_moment_has_no_validators_and_is_not_kept() {
    let mut site = Site::new();
    // Again until both answers fall within two ticks of the write.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        fs::write(site.path("a.txt"), "content").expect("write");
        let written = std::time::Instant::now();
        let answer = site.get("/a.txt");
        let again = site.get("/a.txt");
        if written.elapsed() < Duration::from_nanos(RACY_NS) {
            assert_eq!(answer.field("ETag"), None);
            assert_eq!(answer.field("Last-Modified"), None);
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
fn head_has_the_head_of_get_and_no_body() {
    let mut site = Site::new();
    site.write("small", "content");
    site.write("large", vec![7; HOT_FILE_BYTES_MAX + 1]);
    settle();
    for target in ["/small", "/large", "/", "/none", "/small"] {
        let (get, head) = (site.ask("GET", target, ""), site.ask("HEAD", target, ""));
        assert_eq!(head.lines(), get.lines(), "{target}");
        assert!(head.body.is_empty() && !get.body.is_empty(), "{target}");
    }
    assert_eq!(site.ask("HEAD", "/small", "").by, By::Network);
}

#[test]
fn other_methods_are_told_which_there_are() {
    let mut site = Site::new();
    site.write("a", "content");
    for (method, status) in [
        ("OPTIONS", "204"),
        ("POST", "405"),
        ("DELETE", "405"),
        ("get", "405"),
    ] {
        for target in ["/a", "/", "/none"] {
            let answer = site.ask(method, target, "");
            assert_eq!(answer.status(), status, "{method} {target}");
            assert_eq!(answer.field("Allow"), Some("GET, HEAD, OPTIONS"));
        }
    }
    assert_eq!(site.ask("OPTIONS", "*", "").status(), "204");
    assert_eq!(fs::read(site.path("a")).expect("still there"), b"content");
}

#[test]
fn directories_are_redirected_to_their_slash_then_listed() {
    let mut site = Site::new();
    site.write("sub dir/a.txt", "content");
    let redirect = site.get("/sub%20dir?x=%2F&y");
    assert_eq!(redirect.status(), "301");
    assert_eq!(redirect.field("Location"), Some("/sub%20dir/?x=%2F&y"));
    let listing = site.get("/sub%20dir/");
    assert_eq!(listing.status(), "200");
    assert_eq!(
        listing.field("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    assert!(listing.text().contains("href=\"./a.txt\""));
    assert_eq!(
        site.get("/sub%20dir/a.txt/").status(),
        "404",
        "a file has no slash"
    );
    assert_eq!(
        site.get("//sub%20dir").status(),
        "404",
        "nor does a redirect lead elsewhere"
    );
}

#[test]
fn an_index_is_served_in_place_of_a_listing() {
    let mut site = Site::new();
    site.write("index.html", "root");
    site.write("sub/index.html", "sub");
    fs::create_dir_all(site.path("odd/index.html")).expect("mkdir");
    settle();
    assert_eq!(site.get_hot("/", "").text(), "root");
    let sub = site.get_hot("/sub/", "");
    assert_eq!(
        (sub.text(), sub.field("Content-Type")),
        ("sub", Some("text/html; charset=utf-8"))
    );
    assert!(
        site.get("/odd/").text().contains("index.html/"),
        "a directory is no index"
    );
    fs::remove_file(site.path("sub/index.html")).expect("remove");
    assert!(site.get("/sub/").text().contains("Index of /sub/"));
}

#[test]
fn what_is_not_served_is_not_found_in_every_spelling() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    site.write(".hidden", "content");
    fs::write(site.folder.path().join("secret"), "secret").expect("write");
    symlink("../secret", site.path("out")).expect("symlink");
    for (target, status) in [
        ("/none", "404"),
        ("/.hidden", "404"),
        ("/%2ehidden", "404"),
        ("/out", "404"),
        ("/../secret", "400"),
        ("/%2e%2e/secret", "400"),
        ("/..%2fsecret", "404"),
        ("/%252e%252e/secret", "404"),
        ("/a.txt%00", "400"),
        ("/a.txt/../../secret", "400"),
        ("http://h/../secret", "400"),
        ("http://h/a.txt", "200"),
    ] {
        let answer = site.get(target);
        assert_eq!(answer.status(), status, "{target}");
        assert!(
            !answer.text().contains("secret\n") && answer.body != b"secret",
            "{target}"
        );
        assert_eq!(answer.field("X-Content-Type-Options"), Some("nosniff"));
    }
}

#[test]
fn hidden_files_are_served_when_asked_for() {
    let mut site = Site::new();
    site.write(".hidden", "content");
    assert!(!site.get("/").text().contains(".hidden"));
    site.files = site.files.hidden(Hidden::Served);
    assert_eq!(site.get("/.hidden").text(), "content");
    assert!(site.get("/").text().contains(".hidden"));
}

#[test]
fn conditions_are_decided_alike_by_worker_and_network_thread() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    settle();
    let tag = site.get("/a.txt").field("ETag").expect("a tag").to_string();
    for (fields, status) in [
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
        let hot = site.ask("GET", "/a.txt", &fields);
        site.lane = site.files.lane();
        let cold = site.ask("GET", "/a.txt", &fields);
        assert_eq!((hot.status(), cold.by), (status, By::Worker), "{fields}");
        assert_eq!(hot.lines(), cold.lines(), "{fields}");
        assert_eq!(hot.body, cold.body, "{fields}");
        let by = if status == "412" {
            By::Worker
        } else {
            By::Network
        };
        assert_eq!(hot.by, by, "{fields}");
        if status == "304" {
            assert!(hot.body.is_empty() && hot.field("Content-Type").is_none());
            assert_eq!(hot.field("ETag"), Some(&*tag));
        }
        site.get("/a.txt");
    }
}

#[test]
fn a_304_is_answered_inline_though_no_200_ever_was() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    settle();
    let fields = format!("If-Modified-Since: {DATE}\r\n");
    assert_eq!(site.ask("GET", "/a.txt", &fields).by, By::Worker);
    let second = site.ask("GET", "/a.txt", &fields);
    assert_eq!((second.status(), second.by), ("304", By::Network));
}

#[test]
fn one_range_is_a_part_several_are_multipart() {
    let mut site = Site::new();
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    site.write("a.bin", &content);
    site.write("small.txt", "0123456789");
    settle();
    site.get("/small.txt");
    let part = site.ask("GET", "/small.txt", "Range: bytes=2-4\r\n");
    assert_eq!((part.status(), part.text()), ("206", "234"));
    assert_eq!(part.field("Content-Range"), Some("bytes 2-4/10"));
    assert_eq!(part.field("Content-Length"), Some("3"));
    let last = site.ask("GET", "/a.bin", "Range: bytes=-70000\r\n");
    assert_eq!(last.body, content[30_000..]);
    let several = site.ask("GET", "/a.bin", "Range: bytes=0-9,99990-,50-59\r\n");
    assert_eq!(several.status(), "206");
    let media = several.field("Content-Type").expect("a type");
    let boundary = media
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("multipart");
    let part = |range: &str, bytes: &[u8]| {
        let media = "application/octet-stream";
        let head = format!("--{boundary}\r\nContent-Type: {media}\r\nContent-Range: {range}\r\n");
        [head.as_bytes(), b"\r\n", bytes, b"\r\n"].concat()
    };
    let expected = [
        part("bytes 0-9/100000", &content[..10]),
        part("bytes 99990-99999/100000", &content[99_990..]),
        part("bytes 50-59/100000", &content[50..60]),
        format!("--{boundary}--\r\n").into_bytes(),
    ];
    assert_eq!(several.body, expected.concat());
    assert_eq!(
        several.field("Content-Length"),
        Some(&*several.body.len().to_string())
    );
}

#[test]
fn ranges_that_cannot_be_had_are_416_and_those_that_do_not_count_are_ignored() {
    let mut site = Site::new();
    site.write("a.txt", "0123456789");
    site.write("empty", "");
    settle();
    let tag = site.get("/a.txt").field("ETag").expect("a tag").to_string();
    let beyond = site.ask("GET", "/a.txt", "Range: bytes=10-\r\n");
    assert_eq!(
        (beyond.status(), beyond.field("Content-Range")),
        ("416", Some("bytes */10"))
    );
    for fields in [
        "Range: lines=1-2\r\n",
        "Range: bytes=0-1\r\nRange: bytes=0-1\r\n",
    ] {
        assert_eq!(
            site.ask("GET", "/a.txt", fields).status(),
            "200",
            "{fields}"
        );
    }
    assert_eq!(
        site.ask("HEAD", "/a.txt", "Range: bytes=0-1\r\n").status(),
        "200"
    );
    assert_eq!(
        site.ask("GET", "/empty", "Range: bytes=0-\r\n").status(),
        "200"
    );
    for (if_range, status) in [
        (&*tag, "206"),
        ("\"x\"", "200"),
        (DATE, "206"),
        ("x", "200"),
    ] {
        let fields = format!("Range: bytes=0-1\r\nIf-Range: {if_range}\r\n");
        assert_eq!(
            site.ask("GET", "/a.txt", &fields).status(),
            status,
            "{fields}"
        );
    }
    let known = format!("Range: bytes=0-1\r\nIf-None-Match: {tag}\r\n");
    assert_eq!(site.ask("GET", "/a.txt", &known).status(), "304");
}

#[test]
fn compressed_siblings_are_sent_to_those_who_take_them() {
    let mut site = Site::new();
    site.write("a.css", "plain");
    site.write("a.css.br", "brotli");
    site.write("a.css.gz", "gzip");
    site.write("lone.css.gz", "no file");
    settle();
    let mut tags = std::collections::BTreeSet::new();
    for (accept, text, encoding) in [
        ("", "plain", None),
        (
            "Accept-Encoding: gzip, deflate, br\r\n",
            "brotli",
            Some("br"),
        ),
        ("Accept-Encoding: gzip\r\n", "gzip", Some("gzip")),
        ("Accept-Encoding: identity, gzip;q=0.5\r\n", "plain", None),
    ] {
        let answer = site.get_hot("/a.css", accept);
        assert_eq!(
            (answer.text(), answer.field("Content-Encoding")),
            (text, encoding),
            "{accept}"
        );
        assert_eq!(
            answer.field("Content-Type"),
            Some("text/css; charset=utf-8")
        );
        assert_eq!(answer.field("Vary"), Some("accept-encoding"));
        tags.insert(answer.field("ETag").expect("a tag").to_string());
    }
    assert_eq!(tags.len(), 3, "each form has its own tag");
    let part = site.ask(
        "GET",
        "/a.css",
        "Accept-Encoding: br\r\nRange: bytes=0-1\r\n",
    );
    assert_eq!(
        (part.text(), part.field("Content-Encoding")),
        ("br", Some("br"))
    );
    let direct = site.get("/a.css.gz");
    assert_eq!(
        (direct.text(), direct.field("Content-Encoding")),
        ("gzip", None)
    );
    assert_eq!(
        site.ask("GET", "/lone.css", "Accept-Encoding: gzip\r\n")
            .status(),
        "404"
    );
    assert_eq!(
        site.ask("GET", "/lone.css.gz", "Accept-Encoding: *;q=0\r\n")
            .status(),
        "406"
    );
}

#[test]
fn a_sibling_that_comes_or_goes_is_noticed() {
    let mut site = Site::new();
    site.write("a.css", "plain");
    settle();
    let accept = "Accept-Encoding: br, gzip\r\n";
    assert_eq!(site.get_hot("/a.css", accept).text(), "plain");
    site.write("a.css.gz", "gzip");
    settle();
    assert_eq!(site.get_hot("/a.css", accept).text(), "gzip");
    site.write("a.css.br", "brotli");
    settle();
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
    settle();
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
    settle();
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
    settle();
    site.get_hot("/sub/a.txt", "");
    fs::rename(site.path("sub"), site.folder.path().join("outside")).expect("rename");
    symlink("../outside", site.path("sub")).expect("symlink");
    assert_eq!(site.get("/sub/a.txt").status(), "404");
}

#[test]
fn large_files_are_streamed_and_not_kept() {
    let mut site = Site::new();
    let largest_kept = vec![1; HOT_FILE_BYTES_MAX];
    let smallest_streamed = vec![2; HOT_FILE_BYTES_MAX + 1];
    site.write("kept", &largest_kept);
    site.write("streamed", &smallest_streamed);
    settle();
    assert_eq!(site.get_hot("/kept", "").body, largest_kept);
    for _ in 0..2 {
        let answer = site.get("/streamed");
        assert_eq!((answer.by, &answer.body), (By::Worker, &smallest_streamed));
    }
}

#[test]
fn without_buffers_small_files_are_streamed_too() {
    let mut site = Site::with_pool(4 << 10);
    let content = vec![7; 10_000];
    site.write("a", &content);
    settle();
    for _ in 0..2 {
        let answer = site.get("/a");
        assert_eq!((answer.by, &answer.body), (By::Worker, &content));
    }
}

#[test]
fn queries_do_not_matter_to_files() {
    let mut site = Site::new();
    site.write("a", "content");
    settle();
    site.get_hot("/a", "");
    let other = site.get("/a?version=2");
    assert_eq!((other.by, other.text()), (By::Network, "content"));
}

#[test]
fn stress_no_answer_is_older_than_its_request() {
    let mut site = Site::new();
    site.write("replaced", format!("{:020}", 0));
    site.write("rewritten", format!("{:020}", 0));
    settle();
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
        while failure.is_none() && (asked < 20_000 || inline < 100) && asked < 2_000_000 {
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
    settle();
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
        bodies.extend((0..10_000).map(|_| site.get("/sub/a.txt").body));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(bodies.iter().any(|body| body == b"inside"));
    assert!(
        bodies
            .iter()
            .all(|body| body == b"inside" || body == b"404 Not Found\n")
    );
}
