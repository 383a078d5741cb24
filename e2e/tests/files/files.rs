//! What a directory over HTTP answers: methods, ranges, conditions, encodings, listings.

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use flatpath_testkit::noise;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver};

each_driver!(
    methods_and_their_answers,
    one_range_is_answered_with_exactly_its_bytes,
    several_ranges_are_answered_in_parts,
    ranges_that_cannot_be_are_refused_or_ignored,
    a_range_holds_only_for_the_version_it_names,
    conditions_save_the_body_or_refuse,
    precompressed_files_are_sent_to_who_takes_them,
    directories_redirect_list_and_have_an_index,
    hidden_files_are_served_only_when_asked,
    a_changed_file_is_served_changed,
    a_file_that_shrinks_in_mid_transfer_ends_the_connection,
    copies_on_two_servers_agree_on_portable_tags,
);

fn serve(driver: Driver, site: &Site) -> Server {
    site.settle();
    Launch::serve(driver).directory(site.path()).start()
}

fn methods_and_their_answers(driver: Driver) {
    let site = Site::new()
        .with("page.html", "<p>hello")
        .with("notes.txt", "text");
    let server = serve(driver, &site);
    let mut client = server.client();

    let page = client.get("/page.html");
    assert_eq!((page.status, page.text()), (200, "<p>hello"));
    let media = page.field("content-type").expect("a media type");
    assert!(media.starts_with("text/html"), "{media}");
    for name in ["date", "etag", "last-modified"] {
        assert!(page.field(name).is_some(), "{name} is missing: {page:?}");
    }
    assert_eq!(page.field("accept-ranges"), Some("bytes"));
    let notes = client.get("/notes.txt");
    assert!(
        notes
            .field("content-type")
            .is_some_and(|media| media.starts_with("text/plain"))
    );

    client.request("HEAD", "/page.html", &[]);
    let head = client.reply_to_head();
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("8"))
    );
    assert_eq!(head.field("etag"), page.field("etag"));

    for target in ["/page.html", "*"] {
        client.request("OPTIONS", target, &[]);
        let options = client.reply();
        assert!(matches!(options.status, 200 | 204), "{target}: {options:?}");
        let allowed = options.field("allow").expect("OPTIONS names the methods");
        assert!(
            ["GET", "HEAD", "OPTIONS"]
                .iter()
                .all(|name| allowed.contains(name)),
            "{allowed}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        client.request(method, "/page.html", &[("Content-Length", "0")]);
        let refused = client.reply();
        assert_eq!(refused.status, 405, "{method}");
        assert!(
            refused
                .field("allow")
                .is_some_and(|allowed| allowed.contains("GET"))
        );
    }
    assert_eq!(client.get("/missing").status, 404);
    assert_eq!(client.get("/page.html?query=ignored").status, 200);
    assert_eq!(
        client.get("/page.html").status,
        200,
        "the connection was kept throughout"
    );
}

fn one_range_is_answered_with_exactly_its_bytes(driver: Driver) {
    const LENGTH: usize = 100_000;
    let contents = noise(1, LENGTH);
    let site = Site::new().with("file", &contents);
    let server = serve(driver, &site);
    let mut client = server.client();
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99", 0, 99),
        ("bytes=99999-99999", 99_999, 99_999),
        ("bytes=99990-", 99_990, 99_999),
        ("bytes=-1", 99_999, 99_999),
        ("bytes=-500", 99_500, 99_999),
        ("bytes=0-", 0, 99_999),
        ("bytes=-200000", 0, 99_999),
        ("bytes=5000-200000", 5000, 99_999),
        ("bytes=4095-65536", 4095, 65_536),
    ] {
        let reply = client.ask("/file", &[("Range", range)]);
        assert_eq!(reply.status, 206, "{range}");
        let expected = format!("bytes {first}-{last}/{LENGTH}");
        assert_eq!(
            reply.field("content-range"),
            Some(expected.as_str()),
            "{range}"
        );
        assert!(reply.body == contents[first..=last], "{range}: other bytes");
    }
    client.request("HEAD", "/file", &[("Range", "bytes=0-9")]);
    let head = client.reply_to_head();
    // RFC 9110, 14.2: "A server MUST ignore a Range header field received with a request method
    // that is unrecognized or for which range handling is not defined." Only GET defines it.
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("100000"))
    );
}

fn several_ranges_are_answered_in_parts(driver: Driver) {
    let contents = noise(2, 50_000);
    let site = Site::new().with("file.txt", &contents);
    let server = serve(driver, &site);
    let mut client = server.client();
    let reply = client.ask("/file.txt", &[("Range", "bytes=0-9, 20000-39999,-5")]);
    assert_eq!(reply.status, 206);
    let media = reply.field("content-type").expect("a media type");
    let boundary = media
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("parts")
        .to_string();
    let parts = parts_of(&reply.body, boundary.trim_matches('"'));
    let expected: Vec<(&str, &[u8])> = vec![
        ("bytes 0-9/50000", &contents[..10]),
        ("bytes 20000-39999/50000", &contents[20_000..40_000]),
        ("bytes 49995-49999/50000", &contents[49_995..]),
    ];
    assert_eq!(parts.len(), expected.len());
    for (part, (range, bytes)) in parts.iter().zip(expected) {
        let head = part.0.to_ascii_lowercase();
        assert!(head.contains(&format!("content-range: {range}")), "{head}");
        assert!(head.contains("content-type: text/plain"), "{head}");
        assert!(part.1 == bytes, "{range}: other bytes");
    }
    assert_eq!(
        client.get("/file.txt").body.len(),
        50_000,
        "the connection was kept"
    );
}

/// Splits a multipart body into heads and bodies.
fn parts_of(body: &[u8], boundary: &str) -> Vec<(String, Vec<u8>)> {
    let (delimiter, end) = (format!("--{boundary}\r\n"), format!("\r\n--{boundary}"));
    let mut parts = Vec::new();
    let mut rest = body;
    if rest.starts_with(b"\r\n") {
        rest = &rest[2..];
    }
    while let Some(part) = rest.strip_prefix(delimiter.as_bytes()) {
        let head = position(part, b"\r\n\r\n").expect("a part has a head");
        let length = position(&part[head + 4..], end.as_bytes()).expect("a part has an end");
        let text = String::from_utf8(part[..head].to_vec()).expect("a head is text");
        parts.push((text, part[head + 4..head + 4 + length].to_vec()));
        rest = &part[head + 4 + length + 2..];
    }
    let last = format!("--{boundary}--");
    let closed = rest == last.as_bytes() || rest == format!("{last}\r\n").as_bytes();
    assert!(closed, "the body does not end with the last boundary");
    parts
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn ranges_that_cannot_be_are_refused_or_ignored(driver: Driver) {
    let site = Site::new().with("file", "0123456789").with("empty", "");
    let server = serve(driver, &site);
    let mut client = server.client();
    for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99-,100-"] {
        let reply = client.ask("/file", &[("Range", range)]);
        assert_eq!(reply.status, 416, "{range}");
        assert_eq!(reply.field("content-range"), Some("bytes */10"), "{range}");
    }
    for range in [
        "bytes=5-2",
        "bytes=a-b",
        "bytes=",
        "bytes=1",
        "lines=0-1",
        "bytes=+1-2",
        "0-1",
    ] {
        let reply = client.ask("/file", &[("Range", range)]);
        assert_eq!((reply.status, reply.text()), (200, "0123456789"), "{range}");
    }
    // One satisfiable range among unsatisfiable ones is enough.
    let reply = client.ask("/file", &[("Range", "bytes=50-60,2-3")]);
    assert_eq!(
        (reply.status, reply.field("content-range")),
        (206, Some("bytes 2-3/10"))
    );
    assert_eq!(client.get("/empty").body, b"");
    // No byte of an empty file can be sent: 416 says so, and 200 sends all there is.
    assert!(matches!(
        client.ask("/empty", &[("Range", "bytes=0-")]).status,
        200 | 416
    ));
    // Hundreds of tiny ranges are an attack; whatever the answer, it is not larger than the file
    // and its parts' heads would be many times over.
    let many = format!("bytes={}", vec!["0-0"; 500].join(","));
    let reply = client.ask("/file", &[("Range", &many)]);
    assert!(matches!(reply.status, 200 | 206 | 416), "{reply:?}");
    assert!(
        reply.body.len() < 4096,
        "{} bytes for a file of 10",
        reply.body.len()
    );
}

fn a_range_holds_only_for_the_version_it_names(driver: Driver) {
    let site = Site::new().with("file", "0123456789");
    let server = serve(driver, &site);
    let mut client = server.client();
    let whole = client.get("/file");
    let tag = whole.field("etag").expect("a tag").to_string();
    let reply = client.ask("/file", &[("Range", "bytes=0-1"), ("If-Range", &tag)]);
    assert_eq!((reply.status, reply.text()), (206, "01"));
    for other in ["\"another\"", "W/\"weak\"", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        let reply = client.ask("/file", &[("Range", "bytes=0-1"), ("If-Range", other)]);
        assert_eq!((reply.status, reply.body.len()), (200, 10), "{other}");
    }
}

fn conditions_save_the_body_or_refuse(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let server = serve(driver, &site);
    let mut client = server.client();
    let whole = client.get("/file");
    let tag = whole.field("etag").expect("a tag").to_string();
    let date = whole.field("last-modified").expect("a date").to_string();
    let old = "Thu, 01 Jan 1970 00:00:00 GMT";
    let mut status = |name: &str, value: &str| {
        let reply = client.ask("/file", &[(name, value)]);
        if reply.status == 304 {
            assert_eq!(
                reply.field("etag"),
                Some(tag.as_str()),
                "304 names the version"
            );
        }
        reply.status
    };
    assert_eq!(status("If-None-Match", &tag), 304);
    assert_eq!(status("If-None-Match", &format!("\"x\", {tag}")), 304);
    assert_eq!(
        status(
            "If-None-Match",
            &format!("W/{}", tag.trim_start_matches("W/"))
        ),
        304
    );
    assert_eq!(status("If-None-Match", "*"), 304);
    assert_eq!(status("If-None-Match", "\"x\""), 200);
    assert_eq!(status("If-Modified-Since", &date), 304);
    assert_eq!(status("If-Modified-Since", old), 200);
    assert_eq!(status("If-Modified-Since", "not a date"), 200);
    assert_eq!(status("If-Match", &tag), 200);
    assert_eq!(status("If-Match", "\"x\""), 412);
    assert_eq!(status("If-Unmodified-Since", &date), 200);
    assert_eq!(status("If-Unmodified-Since", old), 412);
    // RFC 9110, 13.1.3: "A recipient MUST ignore If-Modified-Since if the request contains an
    // If-None-Match header field".
    let both = [("If-None-Match", "\"x\""), ("If-Modified-Since", &date)];
    assert_eq!(client.ask("/file", &both).status, 200);
    client.request("HEAD", "/file", &[("If-None-Match", &tag)]);
    assert_eq!(client.reply_to_head().status, 304);
}

fn precompressed_files_are_sent_to_who_takes_them(driver: Driver) {
    let site = Site::new()
        .with("app.js", "let plain;")
        .with("app.js.gz", "pretends to be gzip")
        .with("app.js.br", "pretends to be brotli")
        .with("only.css", "plain")
        .with("only.css.gz", "gzip");
    let server = serve(driver, &site);
    let mut client = server.client();
    let mut tags = Vec::new();
    for (accepted, coding, body) in [
        (None, None, "let plain;"),
        (Some("gzip"), Some("gzip"), "pretends to be gzip"),
        (Some("br"), Some("br"), "pretends to be brotli"),
        (Some("gzip, br"), Some("br"), "pretends to be brotli"),
        (Some("br;q=0, gzip"), Some("gzip"), "pretends to be gzip"),
        (Some("gzip;q=0"), None, "let plain;"),
        (Some("zstd"), None, "let plain;"),
        (Some("identity"), None, "let plain;"),
    ] {
        let fields: Vec<_> = accepted
            .iter()
            .map(|value| ("Accept-Encoding", *value))
            .collect();
        let reply = client.ask("/app.js", &fields);
        assert_eq!((reply.status, reply.text()), (200, body), "{accepted:?}");
        assert_eq!(reply.field("content-encoding"), coding, "{accepted:?}");
        let media = reply.field("content-type").unwrap_or_default();
        assert!(media.contains("javascript"), "{accepted:?}: {media}");
        let vary = reply.field("vary").unwrap_or_default().to_ascii_lowercase();
        assert!(
            vary.contains("accept-encoding"),
            "{accepted:?}: the answer depends on the field"
        );
        tags.push((coding, reply.field("etag").expect("a tag").to_string()));
    }
    tags.sort();
    tags.dedup();
    assert_eq!(
        tags.len(),
        3,
        "each encoding has one tag of its own: {tags:?}"
    );
    let reply = client.ask("/only.css", &[("Accept-Encoding", "br, gzip")]);
    assert_eq!(
        (reply.text(), reply.field("content-encoding")),
        ("gzip", Some("gzip"))
    );
}

fn directories_redirect_list_and_have_an_index(driver: Driver) {
    let site = Site::new()
        .with("list/one.txt", "1")
        .with("list/two & <three>.txt", "2")
        .with("list/deeper/file", "3")
        .with("list/.hidden", "4")
        .with("indexed/index.html", "the index")
        .with("indexed/other", "5");
    let server = serve(driver, &site);
    let mut client = server.client();

    let redirect = client.get("/list");
    assert!(matches!(redirect.status, 301 | 308), "{redirect:?}");
    let place = redirect
        .field("location")
        .expect("a redirect says where to");
    assert!(place.ends_with("/list/"), "{place}");

    let listing = client.get("/list/");
    assert_eq!(listing.status, 200);
    assert!(
        listing
            .field("content-type")
            .is_some_and(|media| media.starts_with("text/html"))
    );
    let text = listing.text();
    assert!(
        text.contains("one.txt") && text.contains("deeper/"),
        "{text}"
    );
    assert!(
        text.contains("two &amp; &lt;three&gt;.txt"),
        "names are escaped: {text}"
    );
    assert!(
        !text.contains("<three>") && !text.contains(".hidden"),
        "{text}"
    );
    let link = text
        .split("href=\"")
        .find(|link| link.contains("three"))
        .expect("a link");
    let link = link.split('"').next().unwrap_or_default();
    let link = link.replace("&amp;", "&");
    let target = if link.starts_with('/') {
        link
    } else {
        format!("/list/{}", link.trim_start_matches("./"))
    };
    assert_eq!(
        client.get(&target).text(),
        "2",
        "the link {target} leads to the file"
    );

    assert_eq!(client.get("/indexed/").text(), "the index");
    assert_eq!(
        client.get("/list/one.txt/").status,
        404,
        "a file is no directory"
    );
}

fn hidden_files_are_served_only_when_asked(driver: Driver) {
    let site = Site::new()
        .with(".secret", "s")
        .with(".git/config", "c")
        .with(".well-known/acme-challenge/token", "t")
        .with("plain", "p");
    let server = serve(driver, &site);
    let mut client = server.client();
    let challenge = "/.well-known/acme-challenge/token";
    assert_eq!(client.get(challenge).text(), "t");
    assert!(!client.get("/").text().contains("well-known"));
    for target in ["/.secret", "/.git/config", "/%2esecret", "/.git/"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/plain").status, 200);
    let asked = Launch::serve(driver)
        .with(["--hidden"])
        .directory(site.path())
        .start();
    let mut client = asked.client();
    assert_eq!(client.get("/.secret").text(), "s");
    assert_eq!(client.get("/.git/config").text(), "c");
}

fn a_changed_file_is_served_changed(driver: Driver) {
    let site = Site::new().with("file", "first");
    let server = serve(driver, &site);
    let mut client = server.client();
    let ask = |client: &mut Client| {
        let reply = client.get("/file");
        (
            reply.text().to_string(),
            reply.field("etag").map(String::from),
        )
    };
    let first = ask(&mut client);
    assert!(
        first.1.is_some() && ask(&mut client) == first,
        "unchanged, and so is its tag"
    );
    // Written in place with the same length, then replaced by a rename, then removed.
    site.write("file", "secon");
    let second = ask(&mut client);
    assert_eq!(second.0, "secon");
    assert_ne!(
        second.1, first.1,
        "another version has another tag, or none yet"
    );
    site.write("new", "third one");
    fs::rename(site.at("new"), site.at("file")).expect("a rename in one directory");
    assert_eq!(ask(&mut client).0, "third one");
    fs::remove_file(site.at("file")).expect("the file is there");
    assert_eq!(client.get("/file").status, 404);
}

fn a_file_that_shrinks_in_mid_transfer_ends_the_connection(driver: Driver) {
    const LENGTH: usize = 64 << 20;
    let site = Site::new().with("file", "contents");
    let large = fs::File::create(site.at("large")).expect("a file can be made");
    large.set_len(LENGTH as u64).expect("a sparse file");
    let server = serve(driver, &site);
    let mut client = server.client();
    client.request("GET", "/large", &[]);
    assert_eq!(client.reply_to_head().status, 200);
    large.set_len(1_000).expect("shrunk");
    // A reset is as good an end as a close: both say that something is missing.
    let (body, _) = client.rest();
    assert!(body.len() < LENGTH, "bytes were made up");
    assert!(body.iter().all(|byte| *byte == 0));
    assert_eq!(server.client().get("/file").text(), "contents");
}

/// A server of a copy, whose files were changed at this second.
fn copy(driver: Driver, seconds: u64, options: &[&str]) -> (Site, Server) {
    let site = Site::new()
        .with("file", "0123456789")
        .with("more", "0123456789ab");
    site.settle_at(UNIX_EPOCH + Duration::from_secs(seconds));
    let launch = Launch::serve(driver).with(options).directory(site.path());
    (site, launch.start())
}

fn copies_on_two_servers_agree_on_portable_tags(driver: Driver) {
    const TIME: u64 = 1_600_000_000;
    let portable = &["--etag", "portable"][..];
    let [one, two, later] = [TIME, TIME, TIME + 1].map(|time| copy(driver, time, portable));
    let exact = copy(driver, TIME, &[]);
    let tag_of = |(_, server): &(Site, Server), target| {
        let reply = server.client().get(target);
        reply.field("etag").expect("a tag").to_owned()
    };
    let tag = tag_of(&one, "/file");
    assert_eq!(tag, format!("\"{TIME:x}-a\""));
    assert_eq!(tag_of(&two, "/file"), tag);
    for other in [
        tag_of(&later, "/file"),
        tag_of(&exact, "/file"),
        tag_of(&one, "/more"),
    ] {
        assert_ne!(other, tag);
    }
    let ask = |(_, server): &(Site, Server), condition, range: &str| {
        let mut client = server.client();
        let mut headers = vec![(condition, &*tag)];
        if !range.is_empty() {
            headers.push(("Range", range));
        }
        client.request("GET", "/file", &headers);
        let reply = client.reply();
        (reply.status, reply.text().to_owned())
    };
    // Once from a worker, and once from the cache.
    for _ in 0..2 {
        assert_eq!(ask(&two, "If-None-Match", ""), (304, String::new()));
        assert_eq!(ask(&two, "If-Match", ""), (200, "0123456789".into()));
        assert_eq!(ask(&two, "If-Range", "bytes=7-"), (206, "789".into()));
        assert_eq!(ask(&later, "If-None-Match", "").0, 200);
        assert_eq!(ask(&later, "If-Match", "").0, 412);
        assert_eq!(
            ask(&later, "If-Range", "bytes=7-"),
            (200, "0123456789".into())
        );
    }
}
