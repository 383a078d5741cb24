//! Files that are compressed for their answers.

use std::io::Read;

use flatpath_http::header_values::ContentCoding;
use flatpath_layers::Compression;
use http::StatusCode;

use super::*;
use crate::limits::{
    CACHE_COMPRESSED_BYTES_MAX, COMPRESS_FILE_BYTES_MAX, COMPRESS_WHOLE_BYTES_MAX,
};
use crate::rules::Rules;

const GZIP: &str = "Accept-Encoding: gzip\r\n";

fn site() -> Site {
    site_with(Compression::new())
}

fn site_with(compression: Compression) -> Site {
    let mut site = Site::new();
    site.files = site.files.compress(compression);
    site
}

/// Text that becomes a quarter, or less.
fn text(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.extend_from_slice(format!("{:08} flat flat path\n", random.u32(..)).as_bytes());
    }
    text.truncate(bytes);
    text
}

fn decoded(answer: &Answer) -> Vec<u8> {
    let encoded = answer.content();
    let mut content = Vec::new();
    let mut decoder: Box<dyn Read> = match answer.header("Content-Encoding") {
        None => return encoded,
        Some("gzip") => Box::new(flate2::read::GzDecoder::new(&*encoded)),
        Some("br") => Box::new(brotli::Decompressor::new(&*encoded, 4096)),
        Some(_) => Box::new(zstd::Decoder::new(&*encoded).expect("a decoder")),
    };
    decoder.read_to_end(&mut content).expect("it decodes");
    content
}

#[test]
fn a_small_file_is_compressed_once_for_each_coding_and_kept() {
    let mut site = site();
    let content = text(20_000);
    site.write("a.css", &content);
    wait_until_stable();
    let mut tags = std::collections::BTreeSet::new();
    for (accept, coding) in [
        ("", None),
        (GZIP, Some("gzip")),
        ("Accept-Encoding: br\r\n", Some("br")),
        ("Accept-Encoding: zstd\r\n", Some("zstd")),
        ("Accept-Encoding: gzip, deflate, br, zstd\r\n", Some("zstd")),
        ("Accept-Encoding: gzip;q=0.5, br\r\n", Some("br")),
        ("Accept-Encoding: identity, gzip;q=0.5\r\n", None),
        ("Accept-Encoding: gzip, identity;q=0\r\n", Some("gzip")),
        ("Accept-Encoding: deflate\r\n", None),
    ] {
        let answer = site.get_hot("/a.css", accept);
        assert_eq!(answer.header("Content-Encoding"), coding, "{accept}");
        assert!(decoded(&answer) == content, "{accept}");
        assert_eq!(answer.header("Vary"), Some("accept-encoding"), "{accept}");
        let length = answer.body.len().to_string();
        assert_eq!(answer.header("Content-Length"), Some(&*length), "{accept}");
        assert_eq!(answer.header("Last-Modified"), Some(DATE), "{accept}");
        let tag = answer.header("ETag").expect("a tag").to_owned();
        assert_eq!(tag.starts_with("W/\""), coding.is_some(), "{tag}");
        let ranges = answer.header("Accept-Ranges");
        assert_eq!(ranges.is_some(), coding.is_none(), "{accept}");
        if coding.is_some() {
            assert!(answer.body.len() < content.len() / 2, "{accept}");
        }
        tags.insert(tag);
    }
    assert_eq!(tags.len(), 4, "each form has its own tag");
}

#[test]
fn what_is_kept_becomes_invalid_with_its_file() {
    let mut site = site();
    let (old, new) = (text(5_000), text(6_000));
    site.write("sub/a.txt", &old);
    wait_until_stable();
    assert!(decoded(&site.get_hot("/sub/a.txt", GZIP)) == old);
    let tag = site.get_hot("/sub/a.txt", GZIP);
    let tag = tag.header("ETag").expect("a tag").to_owned();
    site.write("sub/a.txt", &new);
    wait_until_stable();
    let changed = site.get_hot("/sub/a.txt", GZIP);
    assert!(decoded(&changed) == new);
    assert_ne!(changed.header("ETag"), Some(&*tag));
    fs::remove_file(site.path("sub/a.txt")).expect("remove");
    assert_eq!(site.ask("GET", "/sub/a.txt", GZIP).status(), "404");
}

#[test]
fn a_sibling_that_was_compressed_before_wins() {
    let mut site = site();
    site.write("a.css", text(5_000));
    wait_until_stable();
    let all = "Accept-Encoding: gzip, br, zstd\r\n";
    assert_eq!(
        site.get_hot("/a.css", all).header("Content-Encoding"),
        Some("zstd")
    );
    for (sibling, coding) in [
        ("a.css.gz", "gzip"),
        ("a.css.br", "br"),
        ("a.css.zst", "zstd"),
    ] {
        site.write(sibling, sibling);
        wait_until_stable();
        let answer = site.get_hot("/a.css", all);
        assert_eq!(answer.text(), sibling);
        assert_eq!(answer.header("Content-Encoding"), Some(coding));
        let tag = answer.header("ETag").expect("a tag");
        assert!(tag.starts_with('"'), "as strong as that of any file");
        let part = format!("{all}Range: bytes=0-1\r\n");
        assert_eq!(site.ask("GET", "/a.css", &part).text(), "a.");
    }
}

#[test]
fn what_is_not_worth_it_is_sent_as_it_is_and_kept() {
    let mut site = site();
    let mut noise = vec![0; 5_000];
    fastrand::Rng::with_seed(3).fill(&mut noise);
    site.write("short.txt", text(1_023));
    site.write("a.png", text(5_000));
    site.write("a.svgz", text(5_000));
    site.write("noise.txt", &noise);
    wait_until_stable();
    for (target, coding) in [
        ("/short.txt", None),
        ("/a.png", None),
        ("/a.svgz", Some("gzip")),
        ("/noise.txt", None),
    ] {
        let answer = site.get_hot(target, GZIP);
        assert_eq!(answer.header("Content-Encoding"), coding, "{target}");
        assert_eq!(answer.header("Accept-Ranges"), Some("bytes"), "{target}");
        let file = fs::read(site.path(&target[1..])).expect("read");
        assert!(answer.body == file, "{target}");
    }
    let only = "Accept-Encoding: gzip, identity;q=0\r\n";
    for target in ["/noise.txt", "/a.png"] {
        assert_eq!(site.ask("GET", target, only).status(), "406", "{target}");
    }
}

/// One file does not take the room of many.
#[test]
fn what_is_long_when_it_is_compressed_is_not_kept() {
    let mut site = site();
    let mut content = vec![0; 900_000];
    // Six bits of eight.
    let mut random = fastrand::Rng::with_seed(4);
    content.fill_with(|| b' ' + random.u8(..64));
    site.write("a.txt", &content);
    wait_until_stable();
    for _ in 0..2 {
        let answer = site.ask("GET", "/a.txt", GZIP);
        assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
        assert!(answer.body.len() > CACHE_COMPRESSED_BYTES_MAX);
        assert_eq!(answer.by, By::Worker);
    }
}

#[test]
fn a_long_file_is_compressed_while_it_is_sent_and_a_longer_one_not() {
    let mut site = site();
    let content = text(COMPRESS_WHOLE_BYTES_MAX as usize + 1);
    site.write("long.txt", &content);
    site.write("longer.txt", "");
    let file = fs::File::options()
        .write(true)
        .open(site.path("longer.txt"));
    file.expect("open")
        .set_len(COMPRESS_FILE_BYTES_MAX + 1)
        .expect("it is sparse");
    wait_until_stable();
    for coding in ["gzip", "br", "zstd"] {
        let accept = format!("Accept-Encoding: {coding}\r\n");
        for _ in 0..2 {
            let answer = site.ask("GET", "/long.txt", &accept);
            assert_eq!(answer.by, By::Worker);
            assert_eq!(answer.header("Content-Encoding"), Some(coding));
            assert_eq!(answer.header("Content-Length"), None);
            assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"));
            assert!(decoded(&answer) == content, "{coding}");
            assert!(
                answer
                    .header("ETag")
                    .is_some_and(|it| it.ends_with(&format!("-{coding}\"")))
            );
        }
    }
    let longer = site.ask("HEAD", "/longer.txt", GZIP);
    assert_eq!(longer.header("Content-Encoding"), None);
    assert_eq!(longer.header("Accept-Ranges"), Some("bytes"));
}

#[test]
fn head_has_the_head_of_get() {
    let mut site = site();
    site.write("small.txt", text(5_000));
    site.write("long.txt", text(COMPRESS_WHOLE_BYTES_MAX as usize + 1));
    wait_until_stable();
    for target in ["/small.txt", "/long.txt"] {
        let head = site.ask("HEAD", target, GZIP);
        let get = site.ask("GET", target, GZIP);
        assert_eq!(head.lines(), get.lines(), "{target}");
        assert!(head.body.is_empty() && !get.body.is_empty(), "{target}");
    }
    let part = format!("{GZIP}Range: bytes=0-9\r\n");
    let head = site.ask("HEAD", "/small.txt", &part);
    assert_eq!(
        head.header("Content-Encoding"),
        Some("gzip"),
        "HEAD has no ranges"
    );
}

#[test]
fn a_part_is_of_the_file_as_it_is() {
    let mut site = site();
    let content = text(5_000);
    site.write("a.txt", &content);
    wait_until_stable();
    let whole = site.get_hot("/a.txt", GZIP);
    let coded = whole.header("ETag").expect("a tag").to_owned();
    let plain = site.get_hot("/a.txt", "");
    let plain = plain.header("ETag").expect("a tag").to_owned();
    for (if_range, status) in [(None, "206"), (Some(&plain), "206"), (Some(&coded), "200")] {
        let condition = if_range.map(|tag| format!("If-Range: {tag}\r\n"));
        let headers = format!(
            "{GZIP}Range: bytes=10-19\r\n{}",
            condition.unwrap_or_default()
        );
        let answer = site.ask("GET", "/a.txt", &headers);
        assert_eq!(answer.status(), status, "{if_range:?}");
        assert_eq!(answer.header("Content-Encoding"), None);
        assert_eq!(answer.header("ETag"), Some(&*plain));
        let expected = if status == "206" {
            &content[10..20]
        } else {
            &content[..]
        };
        assert!(answer.body == expected, "{if_range:?}");
    }
}

#[test]
fn conditions_know_the_tag_of_the_coding() {
    let mut site = site();
    for (name, bytes) in [
        ("/small.txt", 5_000),
        ("/long.txt", COMPRESS_WHOLE_BYTES_MAX as usize + 1),
    ] {
        site.write(&name[1..], text(bytes));
        wait_until_stable();
        let tag = |answer: Answer| answer.header("ETag").expect("a tag").to_owned();
        let coded = tag(site.ask("HEAD", name, GZIP));
        let plain = tag(site.ask("HEAD", name, ""));
        for (accept, own, other) in [(GZIP, &coded, &plain), ("", &plain, &coded)] {
            let ask = |site: &mut Site, condition: &str, tag: &str| {
                site.ask("GET", name, &format!("{accept}{condition}: {tag}\r\n"))
            };
            let known = ask(&mut site, "If-None-Match", own);
            assert_eq!(
                (known.status(), known.header("ETag")),
                ("304", Some(&**own))
            );
            assert_eq!(known.header("Vary"), Some("accept-encoding"));
            assert!(known.body.is_empty());
            assert_eq!(ask(&mut site, "If-None-Match", other).status(), "200");
            assert_eq!(ask(&mut site, "If-Match", other).status(), "412");
            assert_eq!(ask(&mut site, "If-Modified-Since", DATE).status(), "304");
        }
        let matched = site.ask("GET", name, &format!("If-Match: {plain}\r\n"));
        assert_eq!(matched.status(), "200");
    }
}

/// Each form has a tag of its own, and so have the answers that are kept: by whatever thread, and
/// for whichever form was asked for before.
#[test]
fn no_form_of_a_file_is_known_by_the_tag_of_another() {
    let forms = ["", "br", "gzip", "zstd"].map(|it| format!("Accept-Encoding: {it}\r\n"));
    for has_siblings in [false, true] {
        let mut site = site();
        site.write("a.txt", text(5_000));
        if has_siblings {
            for suffix in ["br", "gz", "zst"] {
                // As long as the file, so that the tag is not of the length alone.
                site.write(&format!("a.txt.{suffix}"), text(5_000));
            }
        }
        wait_until_stable();
        let tags = forms.clone().map(|form| {
            let hot = site.get_hot("/a.txt", &form);
            hot.header("ETag").expect("a tag").to_owned()
        });
        for (form, own) in forms.iter().zip(&tags) {
            for tag in &tags {
                let headers = format!("{form}If-None-Match: {tag}\r\n");
                let by_network = site.ask("GET", "/a.txt", &headers);
                let fresh = site.files.thread_state();
                let kept = std::mem::replace(&mut site.thread, fresh);
                let by_worker = site.ask("GET", "/a.txt", &headers);
                site.thread = kept;
                assert_eq!((by_network.by, by_worker.by), (By::Network, By::Worker));
                let expected = if tag == own { "304" } else { "200" };
                for answer in [&by_network, &by_worker] {
                    let what = format!("{form} {tag}: {:?}", answer.head);
                    assert_eq!(answer.status(), expected, "{what}");
                    assert_eq!(answer.header("ETag"), Some(&**own), "{what}");
                }
            }
        }
    }
}

#[test]
fn beyond_the_bound_files_are_sent_as_they_are_and_that_is_not_kept() {
    let compression = Compression::new().streams_max(1);
    let mut site = site_with(compression.clone());
    let content = text(5_000);
    site.write("a.txt", &content);
    site.write("long.txt", text(COMPRESS_WHOLE_BYTES_MAX as usize + 1));
    wait_until_stable();
    let taken = compression
        .begin(ContentCoding::Gzip, None)
        .expect("the first");
    for _ in 0..2 {
        let answer = site.ask("GET", "/a.txt", GZIP);
        assert_eq!(
            (answer.by, answer.header("Content-Encoding")),
            (By::Worker, None)
        );
        assert!(answer.body == content);
        assert_eq!(answer.header("Vary"), Some("accept-encoding"));
    }
    let long = site.ask("GET", "/long.txt", GZIP);
    assert_eq!(
        (long.status(), long.header("Content-Encoding")),
        ("200", None)
    );
    let only = "Accept-Encoding: gzip, identity;q=0\r\n";
    let refused = site.ask("GET", "/a.txt", only);
    assert_eq!(
        (refused.status(), refused.header("Retry-After")),
        ("503", Some("1"))
    );
    drop(taken);
    assert_eq!(
        site.get_hot("/a.txt", GZIP).header("Content-Encoding"),
        Some("gzip")
    );
    let long = site.ask("GET", "/long.txt", GZIP);
    assert_eq!(long.header("Content-Encoding"), Some("gzip"));
}

#[test]
fn a_network_thread_compresses_nothing() {
    let mut site = site();
    site.write("a.txt", text(5_000));
    wait_until_stable();
    let (request, _) =
        testing::request(format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{GZIP}\r\n").as_bytes())
            .expect("valid")
            .expect("complete");
    let (asker, (version, home)) = (Asker::default(), site.files.home());
    let stay = Stay {
        version,
        home: &home,
    };
    let within = (Reach::AtHand, &asker);
    let resources = ((&site.pool).into(), None);
    let answerer = site.files.answerer(stay, resources, within, None);
    assert!(answerer.answer(&request).is_none());
    assert_eq!(site.ask("GET", "/a.txt", GZIP).by, By::Worker);
}

#[test]
fn a_page_for_what_is_not_there_is_not_compressed_each_time() {
    let mut site = site();
    let rules = Rules::new().error_page(StatusCode::NOT_FOUND, "/404.html");
    site.files = site.files.rules(rules.expect("a page"));
    site.write("404.html", text(5_000));
    let answer = site.ask("GET", "/none", GZIP);
    assert_eq!(
        (answer.status(), answer.header("Content-Encoding")),
        ("404", None)
    );
}

#[test]
fn without_it_nothing_is_compressed() {
    let mut site = Site::new();
    site.write("a.txt", text(5_000));
    site.write("a.txt.zst", "no form");
    wait_until_stable();
    let answer = site.get_hot("/a.txt", "Accept-Encoding: gzip, br, zstd\r\n");
    assert_eq!(
        (answer.header("Content-Encoding"), answer.body.len()),
        (None, 5_000)
    );
    let listing = site.ask("GET", "/", GZIP);
    assert_eq!(listing.header("Content-Encoding"), None);
}
