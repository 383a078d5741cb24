//! After warm-up a request allocates nothing: every allocation of the whole process is counted
//! while a client that allocates nothing itself asks for hot files, inline replies and pooled
//! replies.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath::{DriverChoice, Running, Server};
use flatpath_files::Files;
use flatpath_http::{Http, Request, Response};
use flatpath_testkit::{Driver, in_child};
use stats_alloc::Region;

use crate::ALLOCATOR;

const WARM_UP: usize = 3000;
const COUNTED: usize = 1000;
const RUNS: usize = 9;

fn hello(_request: &Request) -> Response {
    Response::new("hello\n".into())
}

/// A request as browsers and tools send them, with names the http crate knows.
fn request(path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\n\r\n"
    )
    .into_bytes()
}

/// Sends one request and reads its reply, without an allocation of its own.
fn exchange(stream: &mut TcpStream, request: &[u8], end: &[u8], buffer: &mut [u8]) {
    stream.write_all(request).expect("sent");
    let mut length = 0;
    loop {
        let count = match stream.read(&mut buffer[length..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome.expect("a reply before the deadline"),
        };
        assert!(count > 0, "the server closed");
        length += count;
        if buffer[..length].ends_with(end) {
            assert!(
                buffer.starts_with(b"HTTP/1.1 200 OK\r\n"),
                "not the reply asked for"
            );
            return;
        }
    }
}

/// Allocations over a counted run, after a warm-up: the least of some runs, because other threads
/// of the process allocate now and then, such as the housekeeper.
fn allocations(running: &Running, path: &str, end: &[u8]) -> usize {
    let mut stream = TcpStream::connect(running.addresses()[0].address).expect("connected");
    stream
        .set_read_timeout(Some(flatpath_testkit::patience()))
        .expect("a deadline");
    let request = request(path);
    let mut buffer = vec![0; 64 * 1024];
    for _ in 0..WARM_UP {
        exchange(&mut stream, &request, end, &mut buffer);
    }
    let runs = (0..RUNS).map(|_| {
        let region = Region::new(ALLOCATOR);
        for _ in 0..COUNTED {
            exchange(&mut stream, &request, end, &mut buffer);
        }
        let change = region.change();
        change.allocations + change.reallocations
    });
    runs.min().expect("some runs")
}

fn finish(running: Running) {
    running.handle().drain();
    running.wait().expect("a clean end");
}

fn check(name: &str, server: Server, choice: DriverChoice) {
    let running = server.start().expect("started");
    let count = allocations(&running, "/", b"hello\n");
    assert_eq!(count, 0, "{name} on {choice:?}, {COUNTED} requests");
    finish(running);
}

#[test]
fn after_warm_up_no_request_allocates() {
    if !in_child(concat!(
        module_path!(),
        "::after_warm_up_no_request_allocates"
    )) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("small.txt"), "a small file\n").expect("written");
    let past = std::time::SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::options()
        .write(true)
        .open(directory.path().join("small.txt"))
        .and_then(|file| file.set_modified(past))
        .expect("an older file");
    for (driver, choice) in [
        (Driver::Uring, DriverChoice::Uring),
        (Driver::Epoll, DriverChoice::Epoll),
    ] {
        if !driver.is_here() {
            continue;
        }
        let files = Files::open(directory.path()).expect("the directory opens");
        let server = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Http::service(files));
        let running = server.start().expect("started");
        let count = allocations(&running, "/small.txt", b"a small file\n");
        assert_eq!(count, 0, "hot file on {choice:?}, {COUNTED} requests");
        finish(running);

        let server = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Http::inline(hello));
        check("inline", server, choice);
        let server = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Http::pooled(hello));
        check("pooled", server, choice);
    }
}
