//! Where a request comes from, for handlers on workers and on the network thread, and for layers.

use std::net::SocketAddr;

use flatpath_http::Bytes;
use flatpath_http::{Answer, ForwardedHeader, Http, Next, Peer, Request, Router, Upload, routing};
use flatpath_test::{Client, Conditions, TestServer};

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn tell(Peer(client): Peer) -> String {
    format!("{client}\n")
}

fn tell_if(client: Option<Peer>) -> String {
    format!("{client:?}\n")
}

/// As a header, so that the answer inside it is seen too.
fn note(request: Request, next: &Next<'_>) -> ([(&'static str, String); 1], Answer) {
    let client = format!("{:?}", Peer::of(&request));
    ([("x-client", client)], next.run(request))
}

fn routes() -> Router {
    let with_body = |Peer(client): Peer, body: Bytes| format!("{client} {}\n", body.len());
    let upload = |Peer(client): Peer| Upload::to(Vec::new(), move |_| format!("{client}\n"));
    Router::new()
        .get("/layered", || "inside\n")
        .layer(note)
        .get("/pooled", tell)
        .route("/inline", routing::get(tell).inline())
        .route("/if", routing::get(tell_if).inline())
        .post("/body", with_body)
        .route("/upload", routing::put(upload).streamed())
        .get("/none", |request: &Request| {
            format!("{:?}\n", Peer::of(request))
        })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// The last line of the answer to one request.
fn asked(server: &mut TestServer, client: &Client, request: &str) -> String {
    client.write(request.as_bytes());
    while server.read_line(client) != "\r\n" {}
    server.read_line(client)
}

#[test]
fn sim_handlers_are_told_who_asks_wherever_they_run() {
    for seed in 0..10 {
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(routes()));
        let texts = ["192.0.2.1:4000", "[2001:db8::1]:5000"];
        let clients = texts.map(|text| server.connect_from(Some(address(text))));
        // What one has left in a request must not be the other's.
        for _ in 0..3 {
            for (text, client) in texts.iter().zip(&clients) {
                for path in ["/pooled", "/inline"] {
                    let told = asked(&mut server, client, &get(path));
                    assert_eq!(told, format!("{text}\n"), "{path}, seed {seed}");
                }
                let told = asked(&mut server, client, &get("/if"));
                assert_eq!(told, format!("Some(Peer({text}))\n"), "seed {seed}");
                let head = "HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
                let told = asked(&mut server, client, &format!("POST /body {head}"));
                assert_eq!(told, format!("{text} 4\n"), "seed {seed}");
                let told = asked(&mut server, client, &format!("PUT /upload {head}"));
                assert_eq!(told, format!("{text}\n"), "seed {seed}");
                // It has not asked.
                let told = asked(&mut server, client, &get("/none"));
                assert_eq!(told, "None\n", "seed {seed}");
            }
        }
    }
}

#[test]
fn sim_a_layer_is_told_who_asks() {
    let mut server = TestServer::new(Conditions::rough(1), Http::service(routes()));
    let client = server.connect_from(Some(address("192.0.2.1:4000")));
    client.write(get("/layered").as_bytes());
    let mut head = Vec::new();
    while head.last().is_none_or(|line| line != "\r\n") {
        head.push(server.read_line(&client));
    }
    let expected = "X-Client: Some(192.0.2.1:4000)\r\n".to_owned();
    assert!(head.contains(&expected), "{head:?}");
    assert_eq!(server.read_line(&client), "inside\n");
}

#[test]
fn sim_a_client_without_an_address_is_refused_or_none() {
    let mut server = TestServer::new(Conditions::rough(2), Http::service(routes()));
    let client = server.connect_from(None);
    assert_eq!(asked(&mut server, &client, &get("/if")), "None\n");
    client.write(get("/pooled").as_bytes());
    assert!(server.read_line(&client).contains(" 500 "));
}

/// A handler alone, without a router.
#[test]
fn sim_a_handler_alone_is_told_too() {
    for http in [Http::pooled(tell), Http::inline(tell)] {
        let mut server = TestServer::new(Conditions::rough(3), http);
        let client = server.connect_from(Some(address("192.0.2.1:4000")));
        assert_eq!(asked(&mut server, &client, &get("/")), "192.0.2.1:4000\n");
    }
}

#[test]
fn sim_behind_a_balancer_it_is_the_client_that_the_balancer_names() {
    let mut conditions = Conditions::rough(4);
    conditions.balancers = Some(vec!["192.0.2.0/24".parse().expect("a network")]);
    let mut server = TestServer::new(conditions, Http::service(routes()));
    let client = server.connect_from(Some(address("192.0.2.1:4000")));
    client.write(b"PROXY TCP4 198.51.100.7 192.0.2.9 4711 80\r\n");
    for path in ["/pooled", "/inline"] {
        let told = asked(&mut server, &client, &get(path));
        assert_eq!(told, "198.51.100.7:4711\n", "{path}");
    }
}

#[test]
fn sim_behind_proxies_each_request_has_the_client_that_they_name() {
    let networks = ["192.0.2.0/24".parse().expect("a network")];
    let http = Http::service(routes()).behind_proxies(ForwardedHeader::Forwarded, networks);
    let mut server = TestServer::new(Conditions::rough(5), http);
    let proxy = server.connect_from(Some(address("192.0.2.1:4000")));
    let stranger = server.connect_from(Some(address("203.0.113.9:5000")));
    let mut told = |client: &Client, path: &str, value: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nForwarded: {value}\r\n\r\n");
        asked(&mut server, client, &head)
    };
    for path in ["/pooled", "/inline"] {
        // What was found for one request is not believed for the next.
        for (value, client) in [
            ("for=6.6.6.6, for=198.51.100.7", "198.51.100.7:0"),
            (
                "for=\"[2001:db8::1]:80\", for=192.0.2.2",
                "[2001:db8::1]:80",
            ),
            ("for=unknown", "192.0.2.1:4000"),
        ] {
            assert_eq!(told(&proxy, path, value), format!("{client}\n"), "{path}");
            assert_eq!(told(&stranger, path, value), "203.0.113.9:5000\n", "{path}");
        }
    }
}
