//! Memory taken by uploads that are refused before their body depends on how many connections there
//! are at once, never on how many uploads have been refused: the server recycles what it allocated
//! for them (jobs, buffers, requests), about 10 KiB for each connection of the largest burst.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use flatpath::{DriverChoice, Server};
use flatpath_files::{Files, WriteOptions, Writing};
use flatpath_http::Http;
use flatpath_testkit::{Driver, in_child};
use stats_alloc::Region;

use crate::ALLOCATOR;

/// Connections at once.
const CLIENTS: usize = 200;
/// Bursts, one after another: a leak of 2 KiB per refusal exceeds the bound.
const BURSTS: usize = 30;
/// What a connection of a burst may leave, with room for those of the burst before, which the
/// server may not have closed yet.
const BYTES_PER_CLIENT_MAX: isize = 48 * 1024;

const TUS: &str = "POST /new HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n\
    Content-Type: application/offset+octet-stream\r\n";

fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connected");
    let patience = Some(flatpath_testkit::patience());
    client.set_read_timeout(patience).expect("a deadline");
    client.write_all(request.as_bytes()).expect("sent");
    client
}

fn assert_status(mut client: TcpStream, status: &str) {
    let mut begin = vec![0; status.len()];
    // Unlike `read`, this continues after a signal.
    let outcome = client.read_exact(&mut begin);
    outcome.expect("a reply before the deadline");
    assert_eq!(String::from_utf8_lossy(&begin), status);
}

/// Refuses bursts of one upload; returns the bytes that are allocated afterwards and were not
/// before.
fn allocated_by(request: &str, status: &str, directory: &Path, choice: DriverChoice) -> isize {
    let options = WriteOptions {
        bytes_max: 1 << 20,
        unfinished_bytes_max: Some(1_000),
        ..WriteOptions::default()
    };
    let files = Files::open(directory).expect("the directory opens");
    let server = Server::new().driver(choice).listen(
        "127.0.0.1:0",
        Http::service(files.writable(Writing::Allowed(options))),
    );
    let running = server.start().expect("started");
    let address = running.addresses()[0].address;
    // Takes most of what unfinished uploads may have, so that the next one is refused.
    let body = "x".repeat(900);
    let first = format!("{TUS}Upload-Length: 901\r\nContent-Length: 900\r\n\r\n{body}");
    assert_status(send(address, &first), "HTTP/1.1 201 ");
    let region = Region::new(ALLOCATOR);
    for _ in 0..BURSTS {
        let clients: Vec<_> = (0..CLIENTS).map(|_| send(address, request)).collect();
        for client in clients {
            assert_status(client, status);
        }
    }
    let change = region.change();
    running.handle().drain();
    running.wait().expect("a clean end");
    let signed = |bytes: usize| isize::try_from(bytes).expect("less than half of the memory");
    signed(change.bytes_allocated) - signed(change.bytes_deallocated)
}

#[test]
fn refused_uploads_leave_nothing_behind() {
    if !in_child(concat!(
        module_path!(),
        "::refused_uploads_leave_nothing_behind"
    )) {
        return;
    }
    let long = "PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\nbegun";
    let hidden = "PUT /.new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000\r\n\r\nbegun";
    let full = format!("{TUS}Upload-Length: 500\r\nContent-Length: 500\r\n\r\nbegun");
    for (driver, choice) in [
        (Driver::Uring, DriverChoice::Uring),
        (Driver::Epoll, DriverChoice::Epoll),
    ] {
        if !driver.is_here() {
            continue;
        }
        for (request, status) in [
            (long, "HTTP/1.1 413 "),
            (hidden, "HTTP/1.1 403 "),
            (&full, "HTTP/1.1 507 "),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let bytes = allocated_by(request, status, directory.path(), choice);
            let per_client = bytes / isize::try_from(CLIENTS).expect("few");
            assert!(
                per_client <= BYTES_PER_CLIENT_MAX,
                "{status} on {choice:?}: {per_client} bytes for each connection of a burst"
            );
        }
    }
}
