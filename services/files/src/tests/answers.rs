//! What is answered to which request.

use super::*;
use crate::{WriteOptions, Writing};

#[test]
fn a_file_comes_with_type_length_and_validators() {
    let mut site = Site::new();
    site.write("a.txt", "content");
    wait_until_stable();
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
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert!(
        answer
            .header("ETag")
            .is_some_and(|tag| tag.starts_with('"'))
    );
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
fn head_has_the_head_of_get_and_no_body() {
    let mut site = Site::new();
    site.write("small", "content");
    site.write("large", vec![7; CACHE_FILE_BYTES_MAX + 1]);
    wait_until_stable();
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
            assert_eq!(answer.header("Allow"), Some("GET, HEAD, OPTIONS"));
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
    assert_eq!(redirect.header("Location"), Some("/sub%20dir/?x=%2F&y"));
    let listing = site.get("/sub%20dir/");
    assert_eq!(listing.status(), "200");
    assert_eq!(
        listing.header("Content-Type"),
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
    wait_until_stable();
    assert_eq!(site.get_hot("/", "").text(), "root");
    let sub = site.get_hot("/sub/", "");
    assert_eq!(
        (sub.text(), sub.header("Content-Type")),
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
        ("/a.txt/../secret", "404"),
        ("/none/%2e%2e/.hidden", "404"),
        ("/none/./%2E./a.txt", "200"),
        ("/..%2fsecret", "404"),
        ("/%252e%252e/secret", "404"),
        ("/a.txt%00", "400"),
        ("http://h/a.txt", "200"),
    ] {
        let answer = site.get(target);
        assert_eq!(answer.status(), status, "{target}");
        assert!(
            !answer.text().contains("secret\n") && answer.body != b"secret",
            "{target}"
        );
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
    }
    // What leads above the root does not get as far as here.
    for target in [
        "/../secret",
        "/%2e%2e/a",
        "/a.txt/../../secret",
        "http://h/../a.txt",
    ] {
        let input = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let refused = testing::request(input.as_bytes()).map(drop);
        assert_eq!(refused, Err(flatpath_http::Fault::DotSegments), "{target}");
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
fn one_range_is_a_part_several_are_multipart() {
    let mut site = Site::new();
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    site.write("a.bin", &content);
    site.write("small.txt", "0123456789");
    wait_until_stable();
    site.get("/small.txt");
    let part = site.ask("GET", "/small.txt", "Range: bytes=2-4\r\n");
    assert_eq!((part.status(), part.text()), ("206", "234"));
    assert_eq!(part.header("Content-Range"), Some("bytes 2-4/10"));
    assert_eq!(part.header("Content-Length"), Some("3"));
    let last = site.ask("GET", "/a.bin", "Range: bytes=-70000\r\n");
    assert_eq!(last.body, content[30_000..]);
    let several = site.ask("GET", "/a.bin", "Range: bytes=0-9,99990-,50-59\r\n");
    assert_eq!(several.status(), "206");
    let media = several.header("Content-Type").expect("a type");
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
        several.header("Content-Length"),
        Some(&*several.body.len().to_string())
    );
}

#[test]
fn ranges_that_cannot_be_had_are_416_and_those_that_do_not_count_are_ignored() {
    let mut site = Site::new();
    site.write("a.txt", "0123456789");
    site.write("empty", "");
    wait_until_stable();
    let tag = site
        .get("/a.txt")
        .header("ETag")
        .expect("a tag")
        .to_string();
    let beyond = site.ask("GET", "/a.txt", "Range: bytes=10-\r\n");
    assert_eq!(
        (beyond.status(), beyond.header("Content-Range")),
        ("416", Some("bytes */10"))
    );
    for headers in [
        "Range: lines=1-2\r\n",
        "Range: bytes=0-1\r\nRange: bytes=0-1\r\n",
    ] {
        assert_eq!(
            site.ask("GET", "/a.txt", headers).status(),
            "200",
            "{headers}"
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
        let headers = format!("Range: bytes=0-1\r\nIf-Range: {if_range}\r\n");
        assert_eq!(
            site.ask("GET", "/a.txt", &headers).status(),
            status,
            "{headers}"
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
    wait_until_stable();
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
            (answer.text(), answer.header("Content-Encoding")),
            (text, encoding),
            "{accept}"
        );
        assert_eq!(
            answer.header("Content-Type"),
            Some("text/css; charset=utf-8")
        );
        assert_eq!(answer.header("Vary"), Some("accept-encoding"));
        tags.insert(answer.header("ETag").expect("a tag").to_string());
    }
    assert_eq!(tags.len(), 3, "each form has its own tag");
    let part = site.ask(
        "GET",
        "/a.css",
        "Accept-Encoding: br\r\nRange: bytes=0-1\r\n",
    );
    assert_eq!(
        (part.text(), part.header("Content-Encoding")),
        ("br", Some("br"))
    );
    let direct = site.get("/a.css.gz");
    assert_eq!(
        (direct.text(), direct.header("Content-Encoding")),
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

/// It was planned for a service that this one has replaced, and would be an empty file.
#[test]
fn a_body_that_came_with_its_request_is_not_written() {
    let mut site = Site::new();
    site.files = site
        .files
        .writable(Writing::Allowed(WriteOptions::default()));
    for (line, body, writes) in [
        ("PUT /a", "", true),
        ("PUT /a", "x", false),
        ("GET /a", "", false),
    ] {
        let length = body.len();
        let input = format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}");
        let request = testing::request(input.as_bytes()).expect("valid");
        let (request, _) = request.expect("complete");
        assert_eq!(site.files.writes(&request), writes, "{line} {body:?}");
    }
}
