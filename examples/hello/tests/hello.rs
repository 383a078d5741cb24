//! The greeting on real sockets, with both drivers, and in the simulation.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath::{DriverChoice, Server};
use flatpath_example_hello::hello;
use flatpath_http::Http;
use flatpath_test::{Conditions, TestServer, each_seed};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const REQUEST: &[u8] = b"GET /you HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn a_client_is_greeted_over_real_sockets() {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let server = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Http::pooled(hello));
        let running = server.start().expect("start");
        let mut client = TcpStream::connect(running.addresses()[0].address).expect("connect");
        client.set_read_timeout(Some(PATIENCE)).expect("settable");
        client.write_all(REQUEST).expect("write");
        let mut reply = String::new();
        client.read_to_string(&mut reply).expect("read");
        assert!(reply.ends_with("\r\n\r\nhello, /you\n"), "{reply}");
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_a_client_is_greeted_whatever_the_kernel_does() {
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Http::pooled(hello));
        let client = server.connect();
        client.write(REQUEST);
        assert!(server.read_to_end(&client).ends_with(b"hello, /you\n"));
    });
}
