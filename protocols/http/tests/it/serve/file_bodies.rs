//! Files as bodies of the library: whole and in part, in order with other replies, and cut short.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use flatpath::DriverChoice;
use flatpath_http::{Body, Http, Request, Response};

use flatpath_testkit::client::Client;
use flatpath_testkit::{Site, noise};

use crate::on_each_driver;
use crate::serve::{get, serve};

on_each_driver!(
    a_file_is_a_body_whole_and_in_part,
    what_a_request_says_of_ranges_is_for_its_handler,
    replies_with_files_come_in_their_order,
    a_file_that_is_cut_short_ends_its_connection_and_no_other,
);

/// More than a window of what is sent, and more than lies in sockets.
const FILE_BYTES: usize = 24 << 20;

/// A site with one file, and its content.
fn site() -> (Site, Vec<u8>) {
    let content = noise(1, FILE_BYTES);
    (
        Site::new().with("file", &content).with("empty", ""),
        content,
    )
}

/// `/`: all of the file. `/START-END`: these bytes of it. `/empty`: an empty file.
fn files(site: &Site) -> impl Fn(&Request) -> Response + Send + Sync + 'static {
    let (file, empty) = (site.at("file"), site.at("empty"));
    let open = |path: &PathBuf| File::open(path).expect("it is there");
    move |request| {
        let body = match &request.uri().path()[1..] {
            "" => Body::file(open(&file)),
            "empty" => Body::file(open(&empty)),
            part => {
                let (start, end) = part.split_once('-').expect("two numbers");
                let number = |text: &str| text.parse().expect("a number");
                Body::file_range(open(&file), number(start)..number(end))
            }
        };
        Response::new(body.expect("a regular file"))
    }
}

fn a_file_is_a_body_whole_and_in_part(choice: DriverChoice) {
    let (site, content) = site();
    let (_server, address) = serve(choice, Http::pooled(files(&site)));
    let mut client = Client::connect(address);
    let parts = [
        ("/", &content[..]),
        ("/empty", &[]),
        ("/0-0", &[]),
        ("/5-1000", &content[5..1000]),
        ("/7-8199", &content[7..8199]),
        ("/7-8200", &content[7..8200]),
        ("/4096-3000000", &content[4096..3_000_000]),
        // Up to the end, and past it.
        ("/25165800-99999999", &content[25_165_800..]),
        ("/99999998-99999999", &[]),
    ];
    for (target, expected) in parts {
        let reply = client.get(target);
        let length = expected.len().to_string();
        assert_eq!(reply.field("content-length"), Some(&*length), "{target}");
        assert!(reply.body == expected, "{target}");
        client.request("HEAD", target, &[]);
        let head = client.reply_to_head();
        assert_eq!(head.field("content-length"), Some(&*length), "{target}");
    }
    let directory = File::open(site.path()).expect("it is there");
    assert!(Body::file(directory).is_err(), "only files are bodies");
}

fn what_a_request_says_of_ranges_is_for_its_handler(choice: DriverChoice) {
    let (site, content) = site();
    let (_server, address) = serve(choice, Http::pooled(files(&site)));
    let mut client = Client::connect(address);
    for fields in [
        &[("Range", "bytes=5-9")][..],
        &[("Range", "bytes=0-1,5-9")],
        &[("Range", "bytes=99999999-")],
        &[("Range", "bytes=5-9"), ("If-Range", "\"other\"")],
        &[("If-None-Match", "*")],
    ] {
        let reply = client.ask("/", fields);
        assert_eq!(reply.status, 200, "{fields:?}");
        assert!(reply.body == content, "{fields:?}");
        assert_eq!(reply.field("accept-ranges"), None);
    }
}

fn replies_with_files_come_in_their_order(choice: DriverChoice) {
    let (site, content) = site();
    let (_server, address) = serve(choice, Http::pooled(files(&site)));
    let mut client = Client::connect(address);
    let targets = ["/0-3000000", "/1-2", "/empty", "/", "/10-20"];
    let requests: String = targets.iter().map(|target| get(target)).collect();
    client.send(requests);
    for expected in [0..3_000_000, 1..2, 0..0, 0..FILE_BYTES, 10..20] {
        assert!(
            client.reply().body == content[expected.clone()],
            "{expected:?}"
        );
    }
}

fn a_file_that_is_cut_short_ends_its_connection_and_no_other(choice: DriverChoice) {
    let (site, content) = site();
    let (_server, address) = serve(choice, Http::pooled(files(&site)));
    let mut neighbour = Client::connect(address);
    let mut client = Client::connect_with_window(address, 4096);
    client.send(get("/"));
    assert_eq!(client.reply_to_head().status, 200);
    let file = OpenOptions::new().write(true).open(site.at("file"));
    let file = file.expect("it is ours");
    file.set_len(1_000).expect("cut");
    let (received, _) = client.rest();
    assert!(received.len() < FILE_BYTES, "nothing is made up");
    // Where it was cut, the kernel has zeros in the pages that are on their way.
    let mut pairs = received.iter().zip(&content);
    assert!(pairs.all(|(byte, old)| byte == old || *byte == 0));
    assert!(neighbour.get("/").body == content[..1_000]);
}
