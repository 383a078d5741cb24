//! The small file by HTTP/2 on kept connections, or what is not there, driven by h2load, and
//! connections that asked once by it.

use std::io;
use std::net::TcpStream;

use flatpath_bench_common::h2load::{self, Amount, Class, Counted, H2load};
use flatpath_bench_common::http;
use flatpath_bench_common::servers::{CPU, ERRORS, P50, P99, RATE, REPLY_BYTES};
use flatpath_bench_common::tools::{self, Tool};
use flatpath_bench_common::wrk::Scheme;

use super::http2::{Connection, STATUS_200, STATUS_404, Stream};
use super::idle;
use super::tls::Client;
use crate::comparison::{Load, Row, Turn};
use crate::ground::{Ground, SMALL_PATH, small_body};
use crate::server::{Server, Service};

/// For warming up.
const WARM_UP_CONNECTIONS: u32 = 50;
const WARM_UP_SECONDS: u32 = 1;

/// This many connections, and requests at once on each.
pub(crate) struct Streams {
    pub(crate) connections: u32,
    pub(crate) streams: u32,
    pub(crate) asked: Asked,
}

/// What is asked for, again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Small,
    /// What no server has.
    Absent,
}

impl Asked {
    fn path(self) -> &'static str {
        match self {
            Self::Small => SMALL_PATH,
            Self::Absent => "/absent",
        }
    }
}

/// This many connections that asked once and wait.
pub(crate) struct Waiting(pub(crate) u32);

impl Load for Streams {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let (server, clients) = start(ground, row, self.asked)?;
        Ok(Box::new(move || {
            let reply_bytes = clients.check(&server)?;
            let load = h2load::Load {
                connections: self.connections,
                streams: self.streams,
                amount: Amount::Seconds(ground.pace.seconds),
                ..clients.load(&server)
            };
            let (counted, used) = server.watch(|| clients.drive(&load))?;
            let quantile = |it| counted.latencies.value_at_quantile(it) as f64;
            let run = vec![
                (
                    RATE,
                    counted.requests as f64 / f64::from(ground.pace.seconds),
                ),
                (CPU, used.server_micros_over(counted.requests)),
                (P50, quantile(0.5)),
                (P99, quantile(0.99)),
                (ERRORS, counted.errors as f64),
                (REPLY_BYTES, reply_bytes as f64),
            ];
            server.shown(&used, run)
        }))
    }

    fn tools(&self) -> &'static [Tool] {
        &[tools::H2LOAD]
    }
}

impl Load for Waiting {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || {
            let (server, clients) = start(ground, row, Asked::Small)?;
            let connect = || -> io::Result<Vec<_>> {
                let crowd = idle::connect(server.address, self.0)?.into_iter();
                crowd.map(|socket| clients.connect(socket)).collect()
            };
            idle::of_crowd(&server, connect, |connection: &mut Connection| {
                connection.ask(SMALL_PATH, STATUS_200).map(drop)
            })
        }))
    }

    fn tools(&self) -> &'static [Tool] {
        &[tools::H2LOAD]
    }
}

/// What a server is asked with, and for.
struct Clients {
    asked: Asked,
    scheme: Scheme,
    client: Client,
    h2load: H2load,
}

/// Starts a server, checks its reply, and warms it up.
fn start(ground: &Ground, row: &Row, asked: Asked) -> io::Result<(Server, Clients)> {
    let server = row.start(ground)?;
    let clients = Clients {
        asked,
        scheme: match row.needs.service {
            Service::Https => Scheme::Https,
            _ => Scheme::Http,
        },
        client: Client::new(&ground.issued, &[b"h2"])?,
        h2load: H2load::prepare()?,
    };
    clients.check(&server)?;
    clients.drive(&clients.load(&server))?;
    Ok((server, clients))
}

impl Clients {
    /// What warms a server up.
    fn load(&self, server: &Server) -> h2load::Load {
        h2load::Load {
            scheme: self.scheme,
            address: server.address,
            path: self.asked.path().to_owned(),
            wanted: match self.asked {
                Asked::Small => Class::Success,
                Asked::Absent => Class::ClientError,
            },
            connections: WARM_UP_CONNECTIONS,
            streams: 1,
            amount: Amount::Seconds(WARM_UP_SECONDS),
            cores: Vec::new(),
        }
    }

    /// Runs h2load once.
    fn drive(&self, load: &h2load::Load) -> io::Result<Counted> {
        let counted = self.h2load.run(load)?;
        match counted.requests {
            0 => Err(io::Error::other("not one reply")),
            _ => Ok(counted),
        }
    }

    /// Asks once, on a connection of its own, and checks the body: the bytes of head and body.
    fn check(&self, server: &Server) -> io::Result<usize> {
        let socket = http::connect(server.address)?;
        let status = match self.asked {
            Asked::Small => STATUS_200,
            Asked::Absent => STATUS_404,
        };
        let reply = self.connect(socket)?.ask(self.asked.path(), status)?;
        if self.asked == Asked::Small && reply.body != small_body() {
            return Err(io::Error::other("the body is another one than expected"));
        }
        Ok(reply.bytes)
    }

    /// Begins HTTP/2.
    fn connect(&self, socket: TcpStream) -> io::Result<Connection> {
        let stream: Stream = match self.scheme {
            Scheme::Http => Box::new(socket),
            Scheme::Https => Box::new(self.client.secure(socket)?),
        };
        Connection::begin(stream, self.scheme)
    }
}
