//! Directories: as pages, as JSON, as archives, or not at all.

use flatpath_layers::Compression;

use super::*;
use crate::limits::{ARCHIVE_ZIP_ENTRIES_MAX, ARCHIVES_MAX};
use crate::{ArchiveFormat, Listing};

#[test]
fn a_listing_is_a_page_or_json_by_what_the_client_likes() {
    let mut site = Site::new();
    site.write("a.txt", "12345");
    for (accept, media) in [
        ("", "text/html; charset=utf-8"),
        (
            "Accept: text/html,*/*;q=0.8\r\n",
            "text/html; charset=utf-8",
        ),
        ("Accept: application/json\r\n", "application/json"),
    ] {
        let answer = site.ask("GET", "/", accept);
        assert_eq!(answer.header("Content-Type"), Some(media), "{accept}");
        assert_eq!(answer.header("Vary"), Some("accept"), "{accept}");
        assert_eq!(answer.header("Cache-Control"), Some("no-cache"));
        assert!(answer.text().contains("./a.txt"));
    }
    site.files = site.files.listing(Listing::Json);
    let answer = site.get("/");
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.header("Vary"), None);
}

#[test]
fn without_listings_a_directory_looks_as_if_it_were_not_there() {
    let mut site = Site::new();
    site.write("a.txt", "12345");
    site.write("sub/index.html", "index");
    site.files = site
        .files
        .listing(Listing::Off)
        .archives([ArchiveFormat::Tar]);
    for target in ["/", "/?archive=tar"] {
        assert_eq!(site.get(target).status(), "404", "{target}");
    }
    assert_eq!(site.get("/a.txt").status(), "200");
    assert_eq!(site.get("/sub/").text(), "index");
}

#[test]
fn a_readme_is_shown_below_the_entries() {
    let mut site = Site::new();
    site.write("sub/readme.md", "# Title <b>\n\nText");
    fs::write(site.folder.path().join("secret"), "secret").expect("write");
    fs::create_dir(site.path("other")).expect("mkdir");
    symlink("../../secret", site.path("other/README.md")).expect("symlink");
    let page = site.get("/sub/");
    let text = page.text();
    let shown = text.find("<h3>Title &lt;b&gt;</h3>\n<p>Text</p>");
    let shown = shown.expect("it is shown");
    assert!(text.find("</table>").is_some_and(|table| table < shown));
    assert!(!site.get("/other/").text().contains("secret"));
    assert!(!site.get("/").text().contains("<section"));
}

#[test]
fn a_listing_is_compressed_where_files_are() {
    let mut site = Site::new();
    for number in 0..100 {
        site.write(&format!("{number}.txt"), "x");
    }
    site.files = site.files.compress(Compression::new());
    let plain = site.get("/");
    let answer = site.ask("GET", "/", "Accept-Encoding: gzip\r\n");
    assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
    assert!(answer.body.len() < plain.body.len() / 2);
    for answer in [plain, answer] {
        let lines = answer.lines();
        for name in ["accept", "accept-encoding"] {
            assert!(lines.contains(&format!("vary: {name}")), "{lines:?}");
        }
    }
}

#[test]
fn an_archive_is_an_attachment_of_unknown_length() {
    let mut site = Site::new();
    site.write("sub/a.txt", "12345");
    assert!(
        site.get("/sub/?archive=tar").text().contains("<table>"),
        "not offered"
    );
    site.files = site
        .files
        .archives([ArchiveFormat::Tar, ArchiveFormat::Zip]);
    for (format, media) in [("tar", "application/x-tar"), ("zip", "application/zip")] {
        let target = format!("/sub/?archive={format}");
        let answer = site.ask("GET", &target, "");
        assert_eq!(answer.status(), "200");
        assert_eq!(answer.header("Content-Type"), Some(media));
        let file = format!("attachment; filename=\"sub.{format}\"");
        assert_eq!(answer.header("Content-Disposition"), Some(&*file));
        assert_eq!(answer.header("Content-Length"), None);
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        assert!(answer.content().windows(9).any(|it| it == b"sub/a.txt"));
        let head = site.ask("HEAD", &target, "");
        assert_eq!(head.lines(), answer.lines());
        assert!(head.body.is_empty());
        let part = site.ask("GET", &target, "Range: bytes=0-1\r\n");
        assert_eq!(part.status(), "200", "it has no parts");
        assert!(
            site.get("/sub/")
                .text()
                .contains(&format!("?archive={format}"))
        );
    }
    assert!(site.get("/sub/?archive=rar").text().contains("<table>"));
}

#[test]
fn an_archive_that_would_be_too_large_is_refused_before_its_first_byte() {
    let mut site = Site::new();
    site.files = site.files.archives([ArchiveFormat::Zip]);
    for number in 0..=ARCHIVE_ZIP_ENTRIES_MAX {
        fs::write(site.path(&number.to_string()), "").expect("write");
    }
    let refused = site.get("/?archive=zip");
    assert_eq!(refused.status(), "403");
    assert!(
        refused.text().contains("too many entries"),
        "{}",
        refused.text()
    );
    fs::remove_file(site.path("0")).expect("remove");
    assert_eq!(site.get("/?archive=zip").status(), "200");
}

#[test]
fn one_archive_more_than_may_be_made_at_a_time_has_to_wait() {
    let mut site = Site::new();
    site.write("a.txt", "12345");
    site.files = site.files.archives([ArchiveFormat::Zip]);
    let input = b"GET /?archive=zip HTTP/1.1\r\nHost: h\r\n\r\n";
    let (request, _) = testing::request(input).expect("valid").expect("complete");
    let mut made: Vec<_> = (0..ARCHIVES_MAX).map(|_| site.answer(&request)).collect();
    assert!(made.iter().all(|it| it.status() == 200));
    let busy = site.answer(&request);
    assert_eq!(busy.status(), 503);
    assert_eq!(busy.headers()["retry-after"], "1");
    // Its client has gone.
    made.pop();
    assert_eq!(site.answer(&request).status(), 200);
}
