//! The example service on real sockets, with both drivers, and in the simulation.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath_example_upload::Counter;
use flatpath_http::Http;
use flatpath_http::flatpath::{DriverChoice, Server};
use flatpath_test::{Conditions, TestServer, each_seed};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const BODY_BYTES: usize = 3_000_000;

/// A greeting, an upload, and something that is not allowed, on one connection.
fn requests() -> Vec<u8> {
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let put = format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let delete = "DELETE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let body = vec![b'x'; BODY_BYTES];
    [get.as_bytes(), put.as_bytes(), &body, delete.as_bytes()].concat()
}

fn check(replies: &str, what: &str) {
    let bodies: Vec<&str> = replies.split("\r\n\r\n").collect();
    assert_eq!(bodies.len(), 4, "{what}: {replies}");
    assert!(bodies[1].starts_with("hello\n"), "{what}: {replies}");
    assert!(bodies[2].starts_with("3000000\n"), "{what}: {replies}");
    assert!(bodies[2].contains(" 405 "), "{what}: {replies}");
}

#[test]
fn an_upload_is_counted_over_real_sockets() {
    for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
        let running = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Http::service(Counter))
            .start()
            .expect("start");
        let address = running.addresses()[0].address;
        let mut client = TcpStream::connect(address).expect("connect");
        client.set_read_timeout(Some(PATIENCE)).expect("settable");
        client.set_write_timeout(Some(PATIENCE)).expect("settable");
        client.write_all(&requests()).expect("write");
        let mut replies = String::new();
        client.read_to_string(&mut replies).expect("read");
        check(&replies, running.driver());
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_an_upload_is_counted_whatever_the_kernel_does() {
    each_seed(5, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(Counter));
        let client = server.connect();
        client.write(&requests());
        let replies = server.read_to_end(&client);
        check(
            std::str::from_utf8(&replies).expect("ASCII"),
            &format!("seed {seed}"),
        );
    });
}
