//! TLS: what a request, a handshake and an idle connection cost, and how long clients wait while
//! others shake hands.
//!
//! | file | what it has |
//! |---|---|
//! | `requests.rs` | files on kept connections, driven by wrk |
//! | `handshakes.rs` | a full handshake for each request |
//! | `waiting.rs` | memory of idle connections |
//! | `storm.rs` | a thousand handshakes at once, beside calm clients |
//! | `client.rs` | the TLS of the harness's own clients |
//! | `newcomers.rs`, `calm.rs` | clients that come and go, and clients that stay |
//!
//! Every server has the same certificate and key, takes TLS 1.2 and 1.3, has tickets and no cache
//! of sessions. Among OpenSSL 3.0 and rustls all choose TLS 1.3, X25519 and AES-256-GCM.

mod calm;
pub(super) mod client;
mod handshakes;
mod newcomers;
mod requests;
mod storm;
mod waiting;

use std::io;

use flatpath_bench_common::http;
use flatpath_bench_common::report::BenchReport;

use crate::certificate::Pair;
use crate::kind::Kind;
use crate::server::{Server, Setup};
use crate::session::{Pinning, SMALL_PATH, Session, small_body};

use self::client::Client;

pub(super) const KINDS: [Kind; 4] = [
    Kind::HttpsNginx,
    Kind::HttpsHyper,
    Kind::HttpsUring,
    Kind::HttpsEpoll,
];
const OURS: [Kind; 2] = [Kind::HttpsUring, Kind::HttpsEpoll];

pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let pair = session.pair()?;
    let bench = Bench {
        session,
        pair,
        client: Client::new(pair, &[])?,
    };
    let mut reports = requests::run(&bench)?;
    reports.push(handshakes::run(&bench)?);
    reports.push(waiting::run(&bench)?);
    reports.push(storm::run(&bench)?);
    Ok(reports)
}

/// What all tables share.
struct Bench<'a> {
    session: &'a Session,
    pair: &'a Pair,
    client: Client,
}

impl Bench<'_> {
    /// Starts a server with room for `connections`, checks its reply for the small file, and warms
    /// it up.
    ///
    /// # Errors
    /// If it does not start, or replies otherwise.
    fn start(&self, kind: Kind, connections: u32) -> io::Result<Server> {
        let setup = Setup {
            service: "https",
            pair: Some(self.pair),
            ..self.session.setup(Pinning::Free, None, connections)
        };
        let server = Server::start(kind, &setup)?;
        self.check(&server, SMALL_PATH, &small_body())?;
        newcomers::warm_up(&self.client, server.address)?;
        Ok(server)
    }

    /// Asks once, on a connection of its own, and checks the body: the bytes of the reply.
    ///
    /// # Errors
    /// No handshake, another reply.
    fn check(&self, server: &Server, path: &str, body: &[u8]) -> io::Result<usize> {
        let socket = http::connect(server.address)?;
        http::check_by(&mut self.client.secure(socket)?, path, body)
    }
}
