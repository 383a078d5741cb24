//! The layers as clients see them: in the simulation, and with curl on both drivers.

mod auth;
mod body_etag;
mod compression;
mod cors;
mod curl;
mod guard;
mod htpasswd;
mod identity;
mod rate_limit;
mod route_metrics;
mod tower;
mod tracing_span;

use std::net::SocketAddr;

use flatpath_http::{Http, Request, Response, Router, Service, Sink, Upload, WorkerScope};
use flatpath_test::{Conditions, TestServer};
use flatpath_testkit::reply::{Asked, Progress, Reply, read};

/// A router that is served, in the simulation.
struct Site(TestServer);

impl Site {
    fn new(seed: u64, router: Router) -> Self {
        Self::of(seed, router)
    }

    /// The same of any service.
    fn of(seed: u64, service: impl Service) -> Self {
        Self(TestServer::new(
            Conditions::rough(seed),
            Http::service(service),
        ))
    }

    /// The reply to the one request of a connection: a line such as `GET /a`, and lines of headers.
    fn ask(&mut self, line: &str, headers: &[&str]) -> Reply {
        self.ask_from(None, line, headers, "")
    }

    fn ask_from(
        &mut self,
        peer: Option<SocketAddr>,
        line: &str,
        headers: &[&str],
        body: &str,
    ) -> Reply {
        let bytes = self.exchange(peer, &request(line, headers, body));
        let asked = if line.starts_with("HEAD ") {
            Asked::Head
        } else {
            Asked::Any
        };
        match read(&bytes, true, asked) {
            Ok(Progress::Whole(reply, length)) if length == bytes.len() => reply,
            other => panic!("{line}: {other:?}: {}", String::from_utf8_lossy(&bytes)),
        }
    }

    /// All that a connection gets for this input.
    fn exchange(&mut self, peer: Option<SocketAddr>, input: &[u8]) -> Vec<u8> {
        let client = self.0.connect_from(peer);
        client.write(input);
        self.0.read_to_end(&client)
    }
}

/// The last request of a connection.
fn request(line: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut head = format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
    for header in headers {
        head += &format!("{header}\r\n");
    }
    let length = body.len();
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into()
}

/// All values of a header, in one text.
fn all(reply: &Reply, name: &str) -> String {
    let named = reply
        .fields
        .iter()
        .filter(|(other, _)| other.eq_ignore_ascii_case(name));
    named
        .map(|(_, value)| value.as_str())
        .collect::<Vec<_>>()
        .join("|")
}

/// An upload that is answered with its length.
#[derive(Default)]
struct Count(usize);

impl Sink for Count {
    fn write(
        &mut self,
        piece: &mut flatpath_http::Payload,
        _: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.0 += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        Response::new(format!("{} bytes", self.0).into())
    }
}

fn upload() -> Upload {
    Upload::new(Count::default())
}

/// What a layer that only counts or marks passes on.
fn path(request: Request) -> String {
    request.uri().path().to_owned()
}
