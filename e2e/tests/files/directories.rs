//! Directories as archives and listings, and files compressed while they are served, with the
//! programs that people use: curl, tar, unzip.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::site::files_below;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, noise, tools, until};

each_driver!(
    curl_gets_what_was_compressed_and_the_same_bytes,
    tar_and_unzip_make_the_tree_again,
    a_client_that_goes_away_in_the_middle_ends_the_work,
    a_large_directory_has_pages_that_lead_through_all_of_it,
    listings_are_as_the_option_says,
);

/// Longest file that is compressed at once.
const WHOLE: usize = 1 << 20;

fn serve(driver: Driver, site: &Site, options: &[&str]) -> Server {
    site.settle();
    let launch = Launch::serve(driver).directory(site.path());
    launch.with(options).start()
}

fn run(program: PathBuf, arguments: &[&str], directory: &Path) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    let output = tools::run(&mut command, patience());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

/// Lines that can be compressed well.
fn text(bytes: usize) -> Vec<u8> {
    let lines = noise(3, bytes / 16);
    let mut text: Vec<u8> = lines
        .iter()
        .flat_map(|byte| format!("the flat path {byte:03}\n").into_bytes())
        .collect();
    text.truncate(bytes);
    text
}

fn curl_gets_what_was_compressed_and_the_same_bytes(driver: Driver) {
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let site = Site::new()
        .with("small.css", text(20_000))
        .with("long.txt", text(WHOLE + 100_000))
        .with("noise.bin", noise(1, 20_000));
    let server = serve(driver, &site, &["--compress", "gzip"]);
    let into = Site::new();
    for (name, coding) in [
        ("small.css", Some("gzip")),
        ("small.css", Some("gzip")),
        ("long.txt", Some("gzip")),
        ("noise.bin", None),
    ] {
        let url = format!("http://{}/{name}", server.address("http"));
        let arguments = [
            "--no-progress-meter",
            "--fail",
            "--compressed",
            "-o",
            "got",
            &url,
        ];
        run(curl.clone(), &arguments, into.path());
        let (got, sent) = (std::fs::read(into.at("got")), std::fs::read(site.at(name)));
        assert!(got.expect("written") == sent.expect("written"), "{name}");
        let mut client = server.client();
        let reply = client.ask(&format!("/{name}"), &[("Accept-Encoding", "gzip")]);
        assert_eq!(reply.field("content-encoding"), coding, "{name}");
        assert_eq!(reply.field("vary"), Some("accept-encoding"), "{name}");
        client.request("HEAD", &format!("/{name}"), &[("Accept-Encoding", "gzip")]);
        let head = client.reply_to_head();
        for field in [
            "etag",
            "content-length",
            "content-encoding",
            "accept-ranges",
        ] {
            assert_eq!(head.field(field), reply.field(field), "{name}: {field}");
        }
    }
}

fn tar_and_unzip_make_the_tree_again(driver: Driver) {
    let (Some(curl), Some(tar), Some(unzip)) = (
        tools::find("curl"),
        tools::find("tar"),
        tools::find("unzip"),
    ) else {
        return;
    };
    let deep = "directory-with-a-name-of-some-length/".repeat(6);
    let site = Site::new()
        .with("tree/empty", "")
        .with("tree/large.bin", noise(5, 3_000_000))
        .with("tree/with space.txt", "space")
        .with("tree/Ünïcode.txt", "letters")
        .with(&format!("tree/{deep}deep.txt"), "deep")
        .with("tree/.hidden", "hidden");
    let server = serve(driver, &site, &["--archive", "tar,zip"]);
    std::fs::remove_file(site.at("tree/.hidden")).expect("it was served to none");
    site.write("tree/.hidden", "hidden");
    let into = Site::new();
    for format in ["tar", "zip"] {
        let directory = into.at(format);
        std::fs::create_dir(&directory).expect("mkdir");
        let address = server.address("http");
        let url = format!("http://{address}/tree/?archive={format}");
        let arguments = ["--no-progress-meter", "--fail", "-OJ", &url];
        run(curl.clone(), &arguments, &directory);
        match format {
            "tar" => run(tar.clone(), &["xf", "tree.tar"], &directory),
            _ => run(unzip.clone(), &["-q", "tree.zip"], &directory),
        }
        std::fs::remove_file(site.at("tree/.hidden")).expect("it is there");
        let (got, sent) = (
            files_below(&directory.join("tree")),
            files_below(&site.at("tree")),
        );
        assert_eq!(got.len(), sent.len(), "{format}");
        for (got, sent) in got.iter().zip(&sent) {
            assert!(got == sent, "{format}: {}", sent.0.display());
        }
        site.write("tree/.hidden", "hidden");
    }
}

fn a_client_that_goes_away_in_the_middle_ends_the_work(driver: Driver) {
    let site = Site::new();
    site.write_hole("tree/sparse.txt", 1 << 40);
    site.write_hole("long.txt", 64 << 20);
    let options = ["--archive", "tar,zip", "--compress", "zstd"];
    let server = serve(driver, &site, &options);
    for target in ["/tree/?archive=tar", "/tree/?archive=zip", "/long.txt"] {
        // More often than may be made at a time: each gives its place back.
        for _ in 0..6 {
            let mut client = server.client();
            client.request("GET", target, &[("Accept-Encoding", "zstd")]);
            let head = String::from_utf8(client.until("\r\n\r\n")).expect("ASCII");
            assert!(head.starts_with("HTTP/1.1 200"), "{target}: {head}");
            client.exactly(500);
            client.reset();
            until("the file to be closed", || {
                let open = server.process().open_files();
                let is_ours = |it: &PathBuf| it.ends_with("sparse.txt") || it.ends_with("long.txt");
                (!open.iter().any(is_ours)).then_some(())
            });
        }
    }
}

fn a_large_directory_has_pages_that_lead_through_all_of_it(driver: Driver) {
    const FILES: usize = 20_500;
    let site = Site::new().with("empty", "");
    for number in 1..FILES {
        std::fs::hard_link(site.at("empty"), site.at(&format!("{number}.txt"))).expect("link");
    }
    let server = serve(driver, &site, &[]);
    let mut client = server.client();
    let (mut names, mut target) = (BTreeSet::new(), "/".to_string());
    for page in 1.. {
        let reply = client.ask(&target, &[("Accept", "application/json")]);
        let text = reply.text();
        let found = text.split("\"name\":\"").skip(1);
        names.extend(found.map(|it| it.split('"').next().expect("a name").to_string()));
        let next = reply.field("link").and_then(|links| {
            let link = links.split(", ").find(|link| link.contains("next"))?;
            link.strip_prefix('<')?
                .split_once('>')
                .map(|it| it.0.to_string())
        });
        let Some(query) = next else {
            assert_eq!(page, 3);
            break;
        };
        target = format!("/{query}");
    }
    assert_eq!(names.len(), FILES);
}

fn listings_are_as_the_option_says(driver: Driver) {
    let site = Site::new().with("a.txt", "12345");
    for (option, status, media) in [
        ("on", 200, "text/html; charset=utf-8"),
        ("json", 200, "application/json"),
        ("off", 404, "text/html; charset=utf-8"),
    ] {
        let server = serve(driver, &site, &["--listing", option]);
        let reply = server.client().get("/");
        assert_eq!(reply.status, status, "{option}");
        assert_eq!(reply.field("content-type"), Some(media), "{option}");
    }
}
