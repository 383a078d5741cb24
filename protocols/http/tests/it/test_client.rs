//! The HTTP client of the test kit, against handlers: in the simulation, and on both drivers.

use expect_test::expect;
use flatpath::{DriverChoice, Server};
use flatpath_http::http::{HeaderMap, Method, StatusCode};
use flatpath_http::{Http, IntoResponse, Request, Router, Service, Upload, routing};
use flatpath_test::{Conditions, HttpClient, Requests, TestServer, each_seed};
use flatpath_testkit::drivers_here;

/// What a streamed upload has gathered.
fn gather() -> Upload {
    Upload::to(Vec::new(), |bytes: Vec<u8>| {
        Ok::<_, StatusCode>((StatusCode::CREATED, bytes))
    })
}

fn site() -> Http<impl Service> {
    let echo = |method: Method, headers: HeaderMap, body: String| {
        let name = headers.get("x-name").map(|name| name.as_bytes().to_vec());
        format!("{method} {name:?} {body}").into_response()
    };
    let router = Router::new()
        .get("/hello", |request: Request| {
            let query = request.uri().query().unwrap_or("world").to_owned();
            ([("x-b", "2"), ("x-a", "1")], format!("hello, {query}"))
        })
        .get("/last", || ([("connection", "close")], "bye"))
        .route("/echo", routing::any(echo))
        .route("/upload", routing::put(gather).streamed());
    Http::service(router)
}

/// A conversation that must be the same wherever it is held.
fn converse(client: &mut impl Requests) {
    assert_eq!(client.get("/hello?you").expect(200).text(), "hello, you");
    assert_eq!(client.head("/hello").expect(200).body, b"");
    let post = client.post("/echo").header("X-Name", "me").body("words");
    let name = format!("{:?}", Some(b"me".to_vec()));
    assert_eq!(post.expect(200).text(), format!("POST {name} words"));
    assert_eq!(client.delete("/echo").expect(200).text(), "DELETE None ");
    assert_eq!(client.patch("/echo").expect(200).text(), "PATCH None ");
    assert_eq!(
        client.request("PROPFIND", "/echo").expect(200).text(),
        "PROPFIND None "
    );
    client.get("/nothing").expect(404);
    let pieces = ["some", " ", "pieces"];
    for length in [None, Some(11)] {
        let mut upload = client.put("/upload").upload(length);
        pieces.iter().for_each(|piece| upload.piece(piece));
        assert_eq!(upload.finish().expect(201).text(), "some pieces");
    }
}

#[test]
fn sim_requests_follow_each_other_on_one_connection() {
    each_seed(30, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), site());
        converse(&mut server);
        assert_eq!(server.statistics().connections_accepted, 1);
        let (mut one, mut other) = (server.connect_http(), server.connect_http());
        converse(&mut one.on(&mut server));
        converse(&mut other.on(&mut server));
        assert_eq!(server.statistics().connections_accepted, 3);
    });
}

#[test]
fn sim_a_connection_that_has_ended_is_replaced() {
    let mut server = TestServer::new(Conditions::calm(1), site());
    for _ in 0..3 {
        assert_eq!(server.get("/last").expect(200).text(), "bye");
    }
    assert_eq!(server.statistics().connections_accepted, 3);
}

#[test]
fn sim_a_snapshot_of_a_reply_is_the_same_each_time() {
    let mut server = TestServer::new(Conditions::calm(1), site());
    expect![[r#"
        200
        content-length: 12
        content-type: text/plain; charset=utf-8
        date: [masked]
        x-a: 1
        x-b: [masked]

        hello, world"#]]
    .assert_eq(&server.get("/hello").send().snapshot(&["X-B"]));
}

#[test]
fn both_drivers_hold_the_same_conversation() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let server = Server::new().driver(choice).listen("127.0.0.1:0", site());
        let running = server.start().expect("it starts");
        let mut client = HttpClient::connect(running.addresses()[0].address);
        converse(&mut client);
        drop(client);
        running.handle().drain();
        running.wait().expect("it ends");
    }
}
