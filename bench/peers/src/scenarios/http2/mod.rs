//! HTTP/2: what a request costs alone and among others of its connection, and what a connection
//! that waits takes. Over TLS, as browsers speak it, and without, as services behind a balancer do.
//!
//! | file | what it has |
//! |---|---|
//! | `requests.rs` | the small file, driven by h2load |
//! | `waiting.rs` | memory of idle connections |
//! | `connection.rs` | the harness's own client |
//!
//! nginx serves HTTP/2 alone where it has no TLS; ours finds out what a client speaks. Certificate
//! and TLS are those of the scenario `https`.

mod connection;
mod requests;
mod waiting;

use std::io;
use std::net::TcpStream;

use flatpath_bench_common::h2load::{Counted, H2load, Load};
use flatpath_bench_common::http;
use flatpath_bench_common::report::BenchReport;
use flatpath_bench_common::wrk::Scheme;

use super::https::client::Client;
use crate::certificate::Pair;
use crate::kind::Kind;
use crate::server::{Server, Setup};
use crate::session::{Pinning, SMALL_PATH, Session, small_body};

use self::connection::{Connection, Stream};

/// All that take part somewhere.
pub(super) const KINDS: [Kind; 6] = [
    Kind::Http2Nginx,
    Kind::HttpsHyper,
    Kind::HttpsUring,
    Kind::HttpsEpoll,
    Kind::FlatpathUring,
    Kind::FlatpathEpoll,
];
/// Those of a table over TLS: first what the others are compared with.
const SECURED: [Kind; 4] = [
    Kind::Http2Nginx,
    Kind::HttpsHyper,
    Kind::HttpsUring,
    Kind::HttpsEpoll,
];
/// Those of a table without TLS.
const PLAIN: [Kind; 3] = [Kind::Http2Nginx, Kind::FlatpathUring, Kind::FlatpathEpoll];
/// `--memory` of ours: MiB, and connections for each MiB more. With the default it would end some
/// of ten thousand.
const MEMORY_MIB: u32 = 256;
const CONNECTIONS_PER_MIB: u32 = 8;
/// For warming up.
const WARM_UP_CONNECTIONS: u32 = 50;
const WARM_UP_SECONDS: u32 = 1;

pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let pair = session.pair()?;
    let bench = Bench {
        session,
        pair,
        client: Client::new(pair, &[b"h2"])?,
        h2load: H2load::prepare()?,
    };
    let mut reports = Vec::new();
    for scheme in [Scheme::Https, Scheme::Http] {
        reports.extend(requests::run(&bench, scheme)?);
        reports.push(waiting::run(&bench, scheme)?);
    }
    Ok(reports)
}

/// What all tables share.
struct Bench<'a> {
    session: &'a Session,
    pair: &'a Pair,
    client: Client,
    h2load: H2load,
}

impl Bench<'_> {
    /// Starts a server with room for `connections`, checks its reply for the small file, and warms
    /// it up.
    ///
    /// # Errors
    /// If it does not start, or replies otherwise.
    fn start(&self, kind: Kind, scheme: Scheme, connections: u32) -> io::Result<Server> {
        let setup = Setup {
            memory: Some(MEMORY_MIB + connections / CONNECTIONS_PER_MIB),
            ..self.session.setup(Pinning::Free, None, connections)
        };
        let setup = match scheme {
            Scheme::Http => setup,
            Scheme::Https => Setup {
                service: "https",
                pair: Some(self.pair),
                ..setup
            },
        };
        let server = Server::start(kind, &setup)?;
        self.check(&server, scheme)?;
        let warm_up = Load {
            connections: WARM_UP_CONNECTIONS,
            seconds: WARM_UP_SECONDS,
            ..self.load(&server, scheme)
        };
        self.drive(&warm_up)?;
        Ok(server)
    }

    /// One connection, one request at a time, for as long as the options say.
    fn load(&self, server: &Server, scheme: Scheme) -> Load {
        Load {
            scheme,
            address: server.address,
            path: SMALL_PATH,
            connections: 1,
            streams: 1,
            seconds: self.session.options.seconds(),
            cores: self.session.generator_cores(Pinning::Free),
        }
    }

    /// Runs h2load once.
    ///
    /// # Errors
    /// If it fails, or there was not one reply.
    fn drive(&self, load: &Load) -> io::Result<Counted> {
        let counted = self.h2load.run(load)?;
        match counted.requests {
            0 => Err(io::Error::other("not one reply")),
            _ => Ok(counted),
        }
    }

    /// Asks once, on a connection of its own, and checks the body: the bytes of head and body.
    ///
    /// # Errors
    /// No connection, another reply.
    fn check(&self, server: &Server, scheme: Scheme) -> io::Result<usize> {
        let socket = http::connect(server.address)?;
        let reply = self.connect(socket, scheme)?.ask(SMALL_PATH)?;
        if reply.body != small_body() {
            return Err(io::Error::other("the body is another one than expected"));
        }
        Ok(reply.bytes)
    }

    /// Begins HTTP/2.
    ///
    /// # Errors
    /// What rustls or the socket reports.
    fn connect(&self, socket: TcpStream, scheme: Scheme) -> io::Result<Connection> {
        let stream: Stream = match scheme {
            Scheme::Http => Box::new(socket),
            Scheme::Https => Box::new(self.client.secure(socket)?),
        };
        Connection::begin(stream, scheme)
    }
}

/// What a table calls it.
fn over(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Http => "HTTP/2 without TLS",
        Scheme::Https => "HTTP/2 over TLS",
    }
}

/// The servers of a table.
fn kinds(scheme: Scheme) -> &'static [Kind] {
    match scheme {
        Scheme::Http => &PLAIN,
        Scheme::Https => &SECURED,
    }
}

/// Those of a table which are ours.
fn ours(scheme: Scheme) -> impl Iterator<Item = Kind> {
    let kinds = kinds(scheme).iter().copied();
    kinds.filter(|kind| kind.is_flatpath_command())
}
