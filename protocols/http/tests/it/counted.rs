//! Requests are counted by the class of their reply's status, wherever the reply was made.

use flatpath_http::{Http, Request, Response};
use flatpath_test::{Conditions, TestServer, each_seed};

fn status(request: &Request) -> Response {
    let path = request.uri().path();
    assert!(path != "/panic", "as asked");
    let mut response = Response::new(path.to_owned().into());
    *response.status_mut() = path[1..].parse().expect("a status");
    response
}

/// The classes of what these requests got, one after the other on one connection.
fn counted(mut server: TestServer, requests: &[u8]) -> [u64; 5] {
    let client = server.connect();
    client.write(requests);
    server.read_to_end(&client);
    let requests = server.statistics().requests;
    std::array::from_fn(|class| requests[class])
}

const REQUESTS: &[u8] = b"GET /200 HTTP/1.1\r\nHost: h\r\n\r\n\
    HEAD /204 HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /304 HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /404 HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /503 HTTP/1.1\r\nHost: h\r\n\r\n\
    nonsense\r\n\r\n";

#[test]
fn replies_of_workers_and_of_the_network_thread_are_counted_by_class() {
    each_seed(20, |seed| {
        let pooled = TestServer::new(Conditions::rough(seed), Http::pooled(status));
        assert_eq!(counted(pooled, REQUESTS), [0, 2, 1, 2, 1], "seed {seed}");
        let inline = TestServer::new(Conditions::rough(seed), Http::inline(status));
        assert_eq!(counted(inline, REQUESTS), [0, 2, 1, 2, 1], "seed {seed}");
    });
}

#[test]
fn a_panic_is_counted_as_the_500_that_it_is() {
    let request = b"GET /panic HTTP/1.1\r\nHost: h\r\n\r\n";
    let pooled = TestServer::new(Conditions::calm(1), Http::pooled(status));
    assert_eq!(counted(pooled, request), [0, 0, 0, 0, 1]);
    let inline = TestServer::new(Conditions::calm(1), Http::inline(status));
    assert_eq!(counted(inline, request), [0, 0, 0, 0, 1]);
}
