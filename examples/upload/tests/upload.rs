//! The example service on real sockets, with both drivers, and in the simulation.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use flatpath_example_upload::uploads;
use flatpath_http::Http;
use flatpath_http::flatpath::{DriverChoice, Server};
use flatpath_test::{Conditions, TestServer, each_seed};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const BODY_BYTES: usize = 3_000_000;

fn put(path: &str, bytes: usize) -> String {
    format!("PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n")
}

/// A greeting, an upload, the file, and something that is not there, on one connection.
fn requests() -> Vec<u8> {
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let file = "GET /files/a%20b HTTP/1.1\r\nHost: h\r\n\r\n";
    let none = "GET /files/c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let body = vec![b'x'; BODY_BYTES];
    let put = put("/files/a%20b", BODY_BYTES);
    [
        get.as_bytes(),
        put.as_bytes(),
        &body,
        file.as_bytes(),
        none.as_bytes(),
    ]
    .concat()
}

fn check(replies: &str, directory: &Path, what: &str) {
    let bodies: Vec<&str> = replies.split("\r\n\r\n").collect();
    assert_eq!(bodies.len(), 5, "{what}");
    assert!(
        bodies[1].starts_with("hello\nHTTP/1.1 201 "),
        "{what}: {}",
        bodies[1]
    );
    assert!(
        bodies[2].starts_with("3000000\nHTTP/1.1 200 "),
        "{what}: {}",
        bodies[2]
    );
    let (content, last) = bodies[3].split_at(BODY_BYTES);
    assert!(content.bytes().all(|byte| byte == b'x'), "{what}");
    assert!(last.starts_with("HTTP/1.1 404 "), "{what}: {last}");
    assert_eq!(names(directory), ["a b"], "{what}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("UTF-8");
    entries
        .map(|entry| name(entry.expect("an entry")))
        .collect()
}

#[test]
fn an_upload_is_on_disk_over_real_sockets() {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let service = Http::service(uploads(directory.path().to_owned()));
        let server = Server::new().driver(choice).listen("127.0.0.1:0", service);
        let running = server.start().expect("start");
        let address = running.addresses()[0].address;
        let mut client = TcpStream::connect(address).expect("connect");
        client.set_read_timeout(Some(PATIENCE)).expect("settable");
        client.set_write_timeout(Some(PATIENCE)).expect("settable");
        client.write_all(&requests()).expect("write");
        let mut replies = String::new();
        client.read_to_string(&mut replies).expect("read");
        check(&replies, directory.path(), running.driver());
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_an_upload_is_on_disk_whatever_the_kernel_does() {
    each_seed(5, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let service = Http::service(uploads(directory.path().to_owned()));
        let mut server = TestServer::new(Conditions::rough(seed), service);
        let client = server.connect();
        client.write(&requests());
        let replies = server.read_to_end(&client);
        let replies = std::str::from_utf8(&replies).expect("ASCII");
        check(replies, directory.path(), &format!("seed {seed}"));
    });
}

#[test]
fn sim_what_breaks_off_or_leads_elsewhere_leaves_nothing() {
    each_seed(20, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let service = Http::service(uploads(directory.path().to_owned()));
        let mut server = TestServer::new(Conditions::rough(seed), service);
        let broken = server.connect();
        broken.write(put("/files/a", BODY_BYTES).as_bytes());
        broken.write(&[b'x'; 100_000]);
        broken.shutdown_write();
        server.read_to_end(&broken);
        // Of the first the router itself says that it is no name.
        for (path, status) in [
            ("/files/a%00", "400"),
            ("/files/a%2Fb", "403"),
            ("/files/.hidden", "403"),
        ] {
            let client = server.connect();
            client.write(put(path, 1).as_bytes());
            client.write(b"x");
            let reply = server.read_to_end(&client);
            let line = format!("HTTP/1.1 {status} ");
            assert!(reply.starts_with(line.as_bytes()), "seed {seed}: {path}");
        }
        server.settle();
        assert_eq!(names(directory.path()), [""; 0], "seed {seed}");
    });
}
