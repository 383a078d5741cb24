//! A handler answers 101 and another protocol goes on: in the simulation and on both drivers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use flatpath::{
    Context, DriverChoice, Event, ListenerOptions, Protocol, Received, Server, Successor,
};
use flatpath_http::{Body, Head, Http, Request, Response, Route, http::StatusCode, upgrade};
use flatpath_test::{Conditions, TestServer, each_seed};

use flatpath_testkit::patience;

use crate::on_each_driver;

/// Says where it was asked for, then sends back what it gets in capitals.
struct Shout;

impl Protocol for Shout {
    type ThreadState = ();
    type Session = String;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("shout")
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => {
                let path = std::mem::take(context.session);
                context.write(path.as_bytes()).expect("room");
            }
            other => other.by_default(context),
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let output = input.to_ascii_uppercase();
        context.write(&output).expect("room");
        Received::Consumed
    }
}

fn http(route: Route) -> impl Protocol {
    let shout = Successor::new(Shout);
    let handler = move |request: Request| {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/plain" => Response::new("plain\n".into()),
            "/forged" => {
                // It answers whoever asks as if it had asked for it.
                let mut asking = Request::new(Body::Empty);
                let headers = asking.headers_mut();
                headers.insert("connection", "upgrade".parse().expect("a value"));
                headers.insert("upgrade", "shout".parse().expect("a value"));
                upgrade(&asking, "shout", shout.begin(|| path)).expect("it is asked for")
            }
            "/bare" => {
                let mut response = Response::new(Body::Empty);
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response
            }
            _ => upgrade(&request, "shout", shout.begin(|| path)).unwrap_or_else(|it| *it),
        }
    };
    Http::routed(move |_: &Head<'_>| route, handler)
}

fn asking(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: x, Upgrade\r\nUpgrade: a, Shout\r\n\r\n")
}

fn with_header(header: &str) -> String {
    asking("/a").replace("Host: h", &format!("Host: h\r\n{header}"))
}

const WRONGLY_ASKED: &str =
    "an upgrade is asked for without a body and without `Connection: close`\n";

const PLAIN: &str = "GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";

/// Status codes of the replies, and what comes after the last head.
fn outline(reply: &[u8]) -> (Vec<String>, String) {
    let text = String::from_utf8(reply.to_vec()).expect("text");
    let codes = text
        .match_indices("HTTP/1.1 ")
        .map(|(at, word)| text[at + word.len()..].chars().take(3).collect());
    let rest = text.rsplit("\r\n\r\n").next().unwrap_or_default();
    (codes.collect(), rest.to_owned())
}

/// What is sent, the status codes of the replies to it, and what comes after the last head.
fn exchanges() -> Vec<(String, Vec<&'static str>, &'static str)> {
    let long = "x".repeat(30_000);
    let shouted: &str = Box::leak(format!("/a{}", "X".repeat(30_000)).into_boxed_str());
    vec![
        (asking("/a"), vec!["101"], "/a"),
        (
            asking("/a") + "hello GET / HTTP/1.1",
            vec!["101"],
            "/aHELLO GET / HTTP/1.1",
        ),
        (asking("/a") + &long, vec!["101"], shouted),
        // Replies before it go out first; what follows belongs to the new protocol.
        (
            PLAIN.repeat(3) + &asking("/b") + "c",
            vec!["200", "200", "200", "101"],
            "/bC",
        ),
        // It is not taken up: what follows is HTTP.
        (asking("/plain") + PLAIN, vec!["200", "200"], "plain\n"),
        (
            PLAIN.replace("plain", "a"),
            vec!["426"],
            "This is spoken in shout only.\n",
        ),
        (
            asking("/a").replace("1.1", "1.0"),
            vec!["426"],
            "This is spoken in shout only.\n",
        ),
        (
            asking("/a").replace("Shout", "other"),
            vec!["426"],
            "This is spoken in shout only.\n",
        ),
        (
            PLAIN.replace("plain", "forged"),
            vec!["500"],
            "The request could not be handled.\n",
        ),
        (asking("/bare"), vec!["500"], ""),
        (
            asking("/a").replace("x, Upgrade", "close, upgrade"),
            vec!["400"],
            WRONGLY_ASKED,
        ),
        (
            with_header("Content-Length: 5") + "hello",
            vec!["400"],
            WRONGLY_ASKED,
        ),
        (
            with_header("Transfer-Encoding: chunked") + "0\r\n\r\n",
            vec!["400"],
            WRONGLY_ASKED,
        ),
        (with_header("Content-Length: 0") + "a", vec!["101"], "/aA"),
    ]
}

#[test]
fn sim_the_next_protocol_takes_over_where_http_ends() {
    each_seed(40, |seed| {
        for (sent, codes, rest) in exchanges() {
            let route = [Route::Inline, Route::Pooled][seed as usize % 2];
            let mut server = TestServer::new(Conditions::rough(seed), http(route));
            let client = server.connect();
            for piece in sent.as_bytes().chunks(1 + seed as usize * 7) {
                client.write(piece);
            }
            let mut reply = Vec::new();
            server.run_until(|| {
                reply.extend(client.read());
                let (found, end) = outline(&reply);
                found == codes && end == rest
            });
            client.shutdown_write();
            let end = server.read_to_end(&client);
            assert!(
                end.is_empty(),
                "seed {seed}: {end:?} behind the reply to {sent:?}"
            );
        }
    });
}

#[test]
fn sim_a_client_that_can_send_no_more_has_made_a_mistake() {
    each_seed(40, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), http(Route::Pooled));
        let client = server.connect();
        client.write(asking("/a").as_bytes());
        client.shutdown_write();
        let (codes, _) = outline(&server.read_to_end(&client));
        // Its end may come after the connection was handed over.
        assert!(
            codes == ["400"] || codes == ["101"],
            "seed {seed}: {codes:?}"
        );
    });
}

on_each_driver!(the_next_protocol_takes_over);

fn the_next_protocol_takes_over(choice: DriverChoice) {
    for route in [Route::Pooled, Route::Inline] {
        let server = Server::new().driver(choice);
        let server = server.listen("127.0.0.1:0", http(route));
        let running = server.start().expect("start");
        for (sent, codes, rest) in exchanges() {
            let mut client = TcpStream::connect(running.addresses()[0].address).expect("open");
            client.set_read_timeout(Some(patience())).expect("settable");
            client.write_all(sent.as_bytes()).expect("it reads");
            let mut reply = Vec::new();
            while outline(&reply)
                != (
                    codes.iter().map(|it| (*it).to_owned()).collect(),
                    rest.into(),
                )
            {
                let mut bytes = [0; 4096];
                let count = client.read(&mut bytes).expect("within the time");
                assert!(count > 0, "{choice:?}: {:?} to {sent:?}", outline(&reply));
                reply.extend_from_slice(&bytes[..count]);
            }
            if codes.contains(&"101") {
                let text = String::from_utf8_lossy(&reply);
                let head = text.split("HTTP/1.1 101 ").nth(1).unwrap_or_default();
                assert!(head.contains("\r\nConnection: Upgrade\r\n"), "{head}");
                assert!(head.contains("\r\nUpgrade: shout\r\n"), "{head}");
                assert!(!head.contains("Content-Length"), "{head}");
            }
            client.shutdown(Shutdown::Write).expect("open");
        }
        running.handle().drain();
        running.wait().expect("it ends");
    }
}
