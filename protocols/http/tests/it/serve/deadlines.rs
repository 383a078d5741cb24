//! Clients that take too long.

use std::time::Duration;

use flatpath::{DriverChoice, Limits, Server};
use flatpath_http::{Http, Request, Response};
use flatpath_testkit::client::{Client, Ending};
use flatpath_testkit::until_true;

use crate::on_each_driver;
use crate::serve::{get, start};

on_each_driver!(
    a_head_that_takes_too_long_is_told_so,
    a_client_that_is_late_twice_is_counted_once,
    a_body_that_takes_too_long_is_told_so,
    a_connection_without_a_request_is_closed_without_a_word,
);

const SHORT_NS: u64 = 150_000_000;

fn hello(_: &Request) -> Response {
    Response::new("hello".into())
}

fn serve(choice: DriverChoice, limits: Limits) -> (flatpath::Running, std::net::SocketAddr) {
    start(
        Server::new().workers(1..=2).limits(limits),
        choice,
        Http::pooled(hello),
    )
}

fn a_head_that_takes_too_long_is_told_so(choice: DriverChoice) {
    let (_server, address) = serve(
        choice,
        Limits {
            head_timeout: Duration::from_nanos(SHORT_NS),
            ..Limits::default()
        },
    );
    let mut first = Client::connect(address);
    first.send("GET / HT");
    let reply = first.reply();
    assert!(reply.status == 408 && reply.says_close());
    let mut second = Client::connect(address);
    assert_eq!(second.get("/").text(), "hello");
    // Bytes that trickle in do not move the deadline.
    let mut sender = second.twin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in get("/a-long-path-that-comes-slowly").bytes() {
                let _ = sender.try_send([byte]);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(second.reply().status, 408);
    });
}

/// It gets a 408 for its late head, and then takes too long to close.
fn a_client_that_is_late_twice_is_counted_once(choice: DriverChoice) {
    let limits = Limits {
        head_timeout: Duration::from_nanos(SHORT_NS),
        linger_timeout: Duration::from_nanos(SHORT_NS),
        ..Limits::default()
    };
    let (server, address) = serve(choice, limits);
    let mut client = Client::connect(address);
    client.send("GET / HT");
    assert_eq!(client.reply().status, 408);
    let handle = server.handle();
    until_true("its close", || handle.statistics().connections_closed > 0);
    assert_eq!(handle.statistics().connections_expired(), 1);
}

fn a_body_that_takes_too_long_is_told_so(choice: DriverChoice) {
    let limits = Limits {
        body_timeout: Duration::from_nanos(SHORT_NS),
        ..Limits::default()
    };
    let (_server, address) = serve(choice, limits);
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
    let reply = client.reply();
    assert!(reply.status == 408 && reply.says_close());
}

fn a_connection_without_a_request_is_closed_without_a_word(choice: DriverChoice) {
    let limits = Limits {
        head_timeout: Duration::from_nanos(SHORT_NS),
        idle_timeout: Duration::from_nanos(SHORT_NS),
        ..Limits::default()
    };
    let (_server, address) = serve(choice, limits);
    assert_eq!(
        Client::connect(address).rest(),
        (Vec::new(), Ending::Closed)
    );
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").text(), "hello");
    assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
}
