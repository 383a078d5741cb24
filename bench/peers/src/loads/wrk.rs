//! One request again and again, driven by wrk. It is asked once before each run: a server that has
//! gone wrong must not be timed.

use std::io::{self, Read, Write};

use flatpath_bench_common::generator;
use flatpath_bench_common::http;
use flatpath_bench_common::report::Table;
use flatpath_bench_common::servers::{CPU, ERRORS, Metric, P50, P99, RATE, REPLY_BYTES, Run};
use flatpath_bench_common::tools::{self, Tool};
use flatpath_bench_common::usage;
use flatpath_bench_common::wrk::{self, Lifetime, Scheme};
use serde_json::Value;

use super::newcomers;
use super::tls::Client;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::{Server, Service};

/// Connections the whole machine accepted meanwhile.
const ACCEPTED: Metric = Metric::median("accepted");
/// How many of the connections were being answered at any time.
const ANSWERED: Metric = Metric::median("answered");
/// Sockets that earlier runs have left in TIME_WAIT.
const TIME_WAIT: Metric = Metric::median("TIME_WAIT before");

/// Fewer connections than this share answered at a time means that others starve; wrk itself
/// keeps about half of them busy when it is the slower side.
const ANSWERED_SHARE: f64 = 0.2;
/// More connections than this share of the requests are no accident.
const DROPPED_SHARE: f64 = 0.01;

/// See the module.
#[derive(Clone)]
pub(crate) struct Wrk {
    pub(crate) request: Request,
    pub(crate) connections: u32,
    pub(crate) lifetime: Lifetime,
}

/// What is asked.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) path: &'static str,
    /// What is read to warm a server up.
    pub(crate) before: &'static str,
    /// What is posted; without it the path is read.
    pub(crate) json: Option<&'static str>,
    /// Lines of the head beside the usual ones.
    pub(crate) headers: Vec<String>,
    pub(crate) expected: Expected,
}

/// What a reply must be.
#[derive(Clone)]
pub(crate) enum Expected {
    /// 200 with this body.
    Body(Vec<u8>),
    /// This status, with JSON of which this is true.
    Json(u16, fn(&Value) -> bool),
    /// This status, and a head with these words in lower case, however the body is framed.
    Head(u16, &'static str),
}

impl Request {
    /// A path, and the body of its reply.
    pub(crate) fn of(path: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            path,
            before: path,
            json: None,
            headers: Vec::new(),
            expected: Expected::Body(body.into()),
        }
    }

    /// The status of its reply.
    fn status(&self) -> u16 {
        match self.expected {
            Expected::Body(_) => 200,
            Expected::Json(status, _) | Expected::Head(status, _) => status,
        }
    }

    /// Asks once: the bytes of the reply.
    ///
    /// # Errors
    /// `InvalidData` for another reply; what the socket reports otherwise.
    pub(crate) fn check(&self, socket: &mut (impl Read + Write)) -> io::Result<usize> {
        if let Expected::Head(status, words) = self.expected {
            let mut reply = Vec::new();
            socket.write_all(&self.bytes("Connection: close\r\n"))?;
            socket.read_to_end(&mut reply)?;
            let head = String::from_utf8_lossy(&reply).to_ascii_lowercase();
            let is_it = head.starts_with(&format!("http/1.1 {status} ")) && head.contains(words);
            return is_it.then_some(reply.len()).ok_or_else(|| other(&reply));
        }
        let (received, framed) = http::exchange(socket, &self.bytes(""))?;
        let body = &received[framed.body.clone()];
        let is_it = match &self.expected {
            Expected::Body(expected) => framed.status == 200 && body == expected,
            Expected::Json(status, is_it) => {
                framed.status == *status && is_it(&serde_json::from_slice(body)?)
            }
            Expected::Head(..) => false,
        };
        is_it
            .then_some(framed.bytes())
            .ok_or_else(|| other(&received))
    }

    fn bytes(&self, more: &str) -> Vec<u8> {
        let method = if self.json.is_some() { "POST" } else { "GET" };
        let mut head = format!(
            "{method} {} HTTP/1.1\r\nHost: localhost\r\n{more}",
            self.path
        );
        for header in &self.headers {
            head += &format!("{header}\r\n");
        }
        let body = self.json.unwrap_or_default();
        if self.json.is_some() {
            let length = body.len();
            head += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        format!("{head}\r\n{body}").into_bytes()
    }
}

impl Wrk {
    /// A request on this many connections that are kept.
    pub(crate) fn kept(request: Request, connections: u32) -> Self {
        Self {
            request,
            connections,
            lifetime: Lifetime::KeepAlive,
        }
    }

    /// Asks a server once: the bytes of its reply.
    ///
    /// # Errors
    /// Another reply than expected.
    pub(crate) fn check(&self, server: &Server, client: Option<&Client>) -> io::Result<usize> {
        let socket = http::connect(server.address)?;
        match client {
            Some(client) => self.request.check(&mut client.secure(socket)?),
            None => self.request.check(&mut { socket }),
        }
    }

    /// What makes a run of a server that is there.
    ///
    /// # Errors
    /// No wrk.
    pub(crate) fn turns<'a>(
        self,
        ground: &'a Ground,
        row: &'a Row,
        server: Server,
    ) -> io::Result<Turn<'a>> {
        let wrk = wrk::Wrk::prepare(ground.programs.wrk_threads)?;
        let client = secured(ground, row)?;
        Ok(Box::new(move || {
            let reply_bytes = self.check(&server, client.as_ref())?;
            let load = wrk::Load {
                scheme: if client.is_some() {
                    Scheme::Https
                } else {
                    Scheme::Http
                },
                address: server.address,
                path: self.request.path.to_owned(),
                json: self.request.json.map(str::to_owned),
                headers: self.request.headers.clone(),
                connections: self.connections,
                seconds: ground.pace.seconds,
                lifetime: self.lifetime,
                cores: ground.generator_cores(row.needs.pinning),
            };
            let (time_wait, accepted) = (usage::time_wait()?, usage::accepted()?);
            let (counted, used) = server.watch(|| wrk.run(&load))?;
            let accepted = usage::accepted()?.saturating_sub(accepted);
            if counted.requests == 0 {
                return Err(io::Error::other("not one reply"));
            }
            let mut run: Run = vec![
                (RATE, counted.requests_per_second()),
                (CPU, used.server_micros_over(counted.requests)),
                (P50, counted.p50_micros as f64),
                (P99, counted.p99_micros as f64),
                (ERRORS, counted.errors(self.request.status()) as f64),
                (ACCEPTED, accepted as f64),
                (ANSWERED, counted.answered()),
                (REPLY_BYTES, reply_bytes as f64),
            ];
            run = server.shown(&used, run)?;
            if self.lifetime == Lifetime::Close {
                run.push((TIME_WAIT, time_wait as f64));
            }
            Ok(run)
        }))
    }

    /// A connection that never gets its reply.
    fn starved(&self, table: &Table, server: &str) -> Option<String> {
        let connections = f64::from(self.connections);
        let answered = table.of(server, ANSWERED)?;
        let few = self.lifetime == Lifetime::KeepAlive && answered < ANSWERED_SHARE * connections;
        few.then(|| {
            format!(
                "{server}: some {answered:.0} of {connections} connections were answered at a time"
            )
        })
    }

    /// A connection the server closes instead of replying: wrk silently makes another.
    fn dropped(&self, table: &Table, server: &str, seconds: u32) -> Option<String> {
        let requests = table.of(server, RATE)? * f64::from(seconds);
        let connections = f64::from(self.connections);
        let needed = match self.lifetime {
            Lifetime::KeepAlive => connections,
            Lifetime::Close => connections + requests,
        };
        let more = table.of(server, ACCEPTED)? - needed;
        (more > connections.max(requests * DROPPED_SHARE)).then(|| {
            format!(
                "{server}: {more:.0} connections more than needed; it, or another program, closes"
            )
        })
    }

    /// What wrk does not count as an error.
    pub(crate) fn remarks_of(&self, seconds: u32, table: &mut Table) -> Vec<String> {
        let servers = || table.rows.iter().map(|row| row.labels[0].as_str());
        let starved = servers().filter_map(|server| self.starved(table, server));
        let dropped = servers().filter_map(|server| self.dropped(table, server, seconds));
        let remarks = starved.chain(dropped).collect();
        table.drop_column(ACCEPTED);
        table.drop_column(ANSWERED);
        remarks
    }
}

impl Load for Wrk {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        let client = secured(ground, row)?;
        self.check(&server, client.as_ref())?;
        match (&self.request.expected, client) {
            (_, Some(client)) => newcomers::warm_up(&client, server.address)?,
            // Asked often enough that caches are filled.
            (Expected::Head(..), None) => {
                for _ in 0..2 {
                    self.check(&server, None)?;
                }
            }
            _ => {
                let path = self.request.before;
                generator::warm_up(server.address, path, path)?;
            }
        }
        self.clone().turns(ground, row, server)
    }

    fn tools(&self) -> &'static [Tool] {
        &[tools::WRK]
    }

    fn remarks(&self, ground: &Ground, table: &mut Table) -> Vec<String> {
        self.remarks_of(ground.pace.seconds, table)
    }
}

/// A client of TLS, where that is spoken.
fn secured(ground: &Ground, row: &Row) -> io::Result<Option<Client>> {
    let is_secured = row.needs.service == Service::Https;
    is_secured
        .then(|| Client::new(&ground.issued, &[]))
        .transpose()
}

fn other(reply: &[u8]) -> io::Error {
    let begin = String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned();
    let message = format!("another reply than expected: {begin}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_bench_common::servers::interleave;

    fn seen(lifetime: Lifetime, answered: f64, accepted: f64) -> Vec<String> {
        let load = Wrk {
            lifetime,
            ..Wrk::kept(Request::of("/", ""), 50)
        };
        let run = [(RATE, 10_000.0), (ANSWERED, answered), (ACCEPTED, accepted)];
        let turn = |_, (): &mut ()| Ok(run.to_vec());
        let table = interleave("a test", 1, &["tiny-http"], |_| Ok(()), turn);
        load.remarks_of(2, &mut table.expect("no signal"))
    }

    #[test]
    fn starving_connections_are_noticed() {
        assert_eq!(seen(Lifetime::KeepAlive, 25.0, 50.0), [""; 0]);
        let notes = seen(Lifetime::KeepAlive, 4.0, 50.0);
        assert_eq!(
            notes,
            ["tiny-http: some 4 of 50 connections were answered at a time"]
        );
    }

    #[test]
    fn connections_that_were_dropped_are_noticed() {
        assert_eq!(seen(Lifetime::Close, 4.0, 20_051.0), [""; 0]);
        for (lifetime, accepted) in [(Lifetime::KeepAlive, 1050.0), (Lifetime::Close, 21_050.0)] {
            let notes = seen(lifetime, 25.0, accepted);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].starts_with("tiny-http: 1000 connections more than needed"));
        }
    }

    /// Whether a reply is what the request expects.
    fn takes(request: &Request, reply: &'static str) -> bool {
        struct Script(&'static [u8]);
        impl Read for Script {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.read(buffer)
            }
        }
        impl Write for Script {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let bytes = request.check(&mut Script(reply.as_bytes()));
        bytes.is_ok_and(|bytes| bytes == reply.len())
    }

    #[test]
    fn a_reply_must_have_the_status_and_what_else_is_expected() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\": 1}";
        let created = "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"a\": 1}";
        let of = |expected| Request {
            expected,
            ..Request::of("/", "")
        };
        let body = Request::of("/", *b"{\"a\": 1}");
        assert!(takes(&body, ok) && !takes(&body, created));
        assert!(!takes(&Request::of("/", "other"), ok));
        let json = of(Expected::Json(201, |it| it["a"] == 1));
        assert!(takes(&json, created) && !takes(&json, ok));
        assert!(!takes(&of(Expected::Json(201, |it| it["a"] == 2)), created));
        assert!(takes(
            &of(Expected::Head(201, "content-length: 8")),
            created
        ));
        assert!(!takes(&of(Expected::Head(200, "")), created));
        assert!(!takes(&of(Expected::Head(200, "gzip")), ok));
    }
}
