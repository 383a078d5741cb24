//! Answers that are kept, and answers that are made for one request: which is which, whoever made
//! them, and that one of the second kind is never given again.

use super::prompt::{attempt_on, in_order};
use super::*;
use crate::{Pattern, Rules};

const BR: &str = "Accept-Encoding: br\r\n";
const SEVERAL: &str = "Accept-Encoding: gzip, br;q=0.5\r\n";

/// Whether the next request for the same is answered from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Kept,
    /// For one request: it is made again for the next one.
    Direct,
}
use Is::{Direct, Kept};

/// Method, target, headers.
type Case = (&'static str, &'static str, &'static str, Is);

const CASES: [Case; 23] = [
    ("GET", "/a.txt", "", Kept),
    ("HEAD", "/a.txt", "", Kept),
    ("GET", "/a.txt", BR, Kept),
    ("GET", "/sub/a.txt", "", Kept),
    ("GET", "/sub/", "", Kept),
    ("GET", "/coded.txt", BR, Kept),
    ("GET", "/coded.txt", "", Kept),
    ("GET", "/half.txt", "", Kept),
    // A link led to the form that is sent, to the file, or to its directory.
    ("GET", "/half.txt", BR, Direct),
    ("GET", "/link.txt", "", Direct),
    ("GET", "/linked/a.txt", "", Direct),
    ("GET", "/linked/", "", Direct),
    // No file, or not all of it.
    ("GET", "/a.txt", "Range: bytes=0-1\r\n", Direct),
    ("GET", "/a.txt", "If-Match: \"other\"\r\n", Direct),
    // A larger one is kept open.
    ("GET", "/large", "", Kept),
    ("GET", "/", "", Direct),
    ("GET", "/sub", "", Direct),
    // Nothing is there.
    ("GET", "/missing", "", Kept),
    ("HEAD", "/missing", "", Kept),
    ("GET", "/sub/missing", "", Kept),
    ("GET", "/linked/missing", "", Direct),
    // A file under the name of another.
    ("GET", "/app/any", "", Direct),
    ("OPTIONS", "/a.txt", "", Direct),
];

/// A content that differs by its number alone, and not in its length.
fn text(number: u8) -> Vec<u8> {
    format!("{number:03} flat path\n").repeat(60).into_bytes()
}

fn site(number: u8) -> Site {
    let mut site = Site::new();
    let app: Pattern = "/app/*".parse().expect("a pattern");
    let rules = Rules::new().fallback(app, "/page.html").expect("a rule");
    site.files = site.files.rules(rules);
    fill(&site, number);
    symlink("a.txt", site.path("link.txt")).expect("a link");
    symlink("sub", site.path("linked")).expect("a link");
    symlink("coded.txt.br", site.path("half.txt.br")).expect("a link");
    wait_until_stable();
    site
}

/// Writes all files, at the same time of 1994 whatever is in them.
fn fill(site: &Site, number: u8) {
    let names = ["a.txt", "sub/a.txt", "sub/index.html", "page.html"];
    let coded = ["coded.txt", "coded.txt.br", "half.txt"];
    for name in names.into_iter().chain(coded) {
        site.write(name, text(number));
    }
    site.write("large", text(number).repeat(CACHE_FILE_BYTES_MAX / 60));
}

/// As a listener has it answered: from the cache, by a try, by a worker. Whether it was the cache.
fn ask(site: &mut Site, (method, target, headers): (&str, &str, &str)) -> (bool, Answer) {
    site.turn += 1;
    let turn = Turn::new(site.turn, Duration::ZERO, Duration::from_secs(784_200_000));
    let input = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let inline = testing::inline(&site.files, &mut site.thread, turn, input.as_bytes());
    if inline.expect("valid").is_some() {
        return (true, site.ask_in_this_turn(method, target, headers));
    }
    let mut thread = std::mem::replace(&mut site.thread, site.files.thread_state());
    let tried = attempt_on(site, &mut thread, method, target, headers);
    site.thread = thread;
    let Some(bytes) = tried else {
        return (false, site.ask_in_this_turn(method, target, headers));
    };
    let (lines, body) = in_order(&bytes);
    let end = bytes.len() - body.len() - 4;
    let head = String::from_utf8(bytes[..end].to_vec()).expect("ASCII");
    let answer = Answer {
        by: By::Network,
        head,
        body,
    };
    assert_eq!(answer.lines(), lines);
    (false, answer)
}

/// What a worker answers that nothing was asked of before.
fn anew(site: &mut Site, (method, target, headers): (&str, &str, &str)) -> Answer {
    let fresh = site.files.thread_state();
    let own = std::mem::replace(&mut site.thread, fresh);
    let answer = site.ask_in_this_turn(method, target, headers);
    site.thread = own;
    assert_eq!(answer.by, By::Worker);
    answer
}

/// The first request is answered by a worker, or by a try if that can be; then all files change.
#[test]
fn what_is_kept_is_the_same_whoever_made_it() {
    let mut site = site(1);
    let can_try = !site.files.prompt_right_is_lost();
    let mut tried = 0;
    for (number, (method, target, headers, is)) in (2..).zip(CASES) {
        let asked = (method, target, headers);
        for by_worker in [true, false] {
            let what = format!("{method} {target} {headers}, by a worker: {by_worker}");
            site.thread = site.files.thread_state();
            let right = anew(&mut site, asked);
            let (is_kept, first) = match by_worker {
                true => (false, site.ask(method, target, headers)),
                false => ask(&mut site, asked),
            };
            assert!(!is_kept, "{what}: the cache was empty");
            tried += usize::from(!by_worker && first.by == By::Network);
            let (is_kept, second) = ask(&mut site, asked);
            assert_eq!(is_kept, is == Kept, "{what}");
            for answer in [&first, &second] {
                assert_eq!(answer.lines(), right.lines(), "{what}");
                assert_eq!(answer.body, right.body, "{what}");
            }
            // A tag of before is nobody's now.
            let tag = right.header("ETag").unwrap_or("\"none\"").to_owned();
            fill(&site, number);
            wait_until_stable();
            let known = format!("{headers}If-None-Match: {tag}\r\n");
            for headers in [headers, &known] {
                let asked = (method, target, headers);
                let (_, after) = ask(&mut site, asked);
                let right = anew(&mut site, asked);
                assert_eq!(after.lines(), right.lines(), "{what}, then {headers}");
                assert_eq!(after.body, right.body, "{what}, then {headers}");
                assert_ne!(after.status(), "304", "{what}");
            }
        }
    }
    assert!(!can_try || tried > 6, "{tried} were tried");
}

/// What is at a name.
#[derive(Clone, Copy, Debug)]
enum There {
    Nothing,
    File(u8),
    Link(&'static str),
    Directory,
}

const NAMES: [&str; 6] = [
    "a.txt",
    "a.txt.br",
    "a.txt.gz",
    "sub/a.txt",
    "sub/a.txt.br",
    "sub",
];

fn put(site: &Site, name: &str, there: There) {
    let path = site.path(name);
    if let Ok(before) = fs::symlink_metadata(&path) {
        match before.is_dir() {
            true => fs::remove_dir_all(&path).expect("removed"),
            false => fs::remove_file(&path).expect("removed"),
        }
    }
    match there {
        There::Nothing => {}
        There::File(number) => write_old(&path, &text(number)),
        There::Link(to) => symlink(site.path(to), &path).expect("a link"),
        There::Directory => {
            write_old(&path.join("a.txt"), &text(9));
            write_old(&path.join("a.txt.br"), &text(8));
        }
    }
}

fn is_link(site: &Site, name: &str) -> bool {
    fs::symlink_metadata(site.path(name)).is_ok_and(|it| it.is_symlink())
}

/// Names lead to files, other files, links and nothing, in any order; no answer is one of before.
#[test]
fn model_no_answer_is_another_than_that_of_who_looks_now() {
    let mut site = site(1);
    let mut random = fastrand::Rng::with_seed(54);
    let mut tags: Vec<String> = Vec::new();
    let (mut kept, mut unchanged) = (0, 0);
    site.write("stock/a.txt", text(7));
    for step in 0..80 {
        let name = NAMES[random.usize(..NAMES.len())];
        let is_directory = name == "sub";
        let has_parent = !name.starts_with("sub/") || site.path("sub").is_dir();
        if has_parent && !(name.starts_with("sub/") && is_link(&site, "sub")) {
            let there = match (random.u8(..4), is_directory) {
                (0, _) => There::Nothing,
                (1, true) => There::Link("stock"),
                (1, false) => There::Link(["stock/a.txt", "page.html"][random.usize(..2)]),
                (_, true) => There::Directory,
                (_, false) => There::File(random.u8(..4)),
            };
            put(&site, name, there);
            wait_until_stable();
        }
        for _ in 0..8 {
            let target = ["/a.txt", "/sub/a.txt"][random.usize(..2)];
            let mut headers = ["", BR, SEVERAL][random.usize(..3)].to_owned();
            if !tags.is_empty() && random.bool() {
                // One of the last, which may be of another name or another form.
                let tag = &tags[tags.len() - 1 - random.usize(..tags.len().min(4))];
                headers += &format!("If-None-Match: {tag}\r\n");
            }
            let asked = ("GET", target, &*headers);
            let (is_kept, answer) = ask(&mut site, asked);
            let right = anew(&mut site, asked);
            let what = format!("step {step}: {name}, {target} {headers}");
            assert_eq!(answer.lines(), right.lines(), "{what}");
            assert_eq!(answer.body, right.body, "{what}");
            let goes_by_link =
                is_link(&site, &target[1..]) || target.starts_with("/sub") && is_link(&site, "sub");
            assert!(!is_kept || !goes_by_link, "{what}: a link led to it");
            kept += u32::from(is_kept);
            unchanged += u32::from(answer.status() == "304");
            tags.extend(right.header("ETag").map(str::to_owned));
        }
    }
    assert!(kept > 100 && unchanged > 10, "{kept}, {unchanged}");
}
