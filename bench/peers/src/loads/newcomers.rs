//! Clients that come, shake hands, ask once or not at all, and go: one thread, one epoll loop.
//!
//! Every handshake is a full one. A client that gets its reply closes, as wrk does, whether or not
//! the server was the first to do so.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flatpath_bench_common::measure::histogram;
use flatpath_bench_common::source::Source;
use flatpath_testkit::clients::{Clients, Connection};
use flatpath_testkit::tls::TlsClient;
use hdrhistogram::Histogram;
use rustix::net::SocketFlags;

use super::tls::{self, Client};
use crate::ground::SMALL_PATH;

/// No wait is longer than this, so that the end of a run is seen.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Uncounted traffic that fills caches, starts threads and grows pools.
const WARM_UP: Duration = Duration::from_millis(300);
const WARM_UP_CONNECTIONS: usize = 32;

/// What came of clients.
pub(crate) struct Counts {
    /// Those that got what they came for: a handshake, or a reply.
    pub(crate) served: u64,
    pub(crate) failed: u64,
    /// Of those that were served, in microseconds.
    pub(crate) latencies: Histogram<u64>,
}

/// Those that are there now, by their place.
pub(crate) struct Newcomers {
    client: Client,
    address: SocketAddr,
    /// Sent with the last message of the handshake; without it a client then goes.
    request: Option<Vec<u8>>,
    source: Source,
    clients: Clients,
    places: Vec<Option<Newcomer>>,
    pub(crate) counts: Counts,
}

struct Newcomer {
    wire: TlsClient,
    begun: Instant,
}

/// For so long, this many clients at a time that ask for the small file and close.
///
/// # Errors
/// If sockets cannot be made; a client that fails later is counted.
pub(crate) fn one_request_each(
    client: &Client,
    address: SocketAddr,
    connections: usize,
    time: Duration,
) -> io::Result<Counts> {
    let request =
        format!("GET {SMALL_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut newcomers = Newcomers::new(client, address, Some(request.into_bytes()))?;
    newcomers.come(connections)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        for place in newcomers.advance(LOOK_EVERY)? {
            let (wire, hello) = newcomers.hello();
            newcomers.enter(place, wire, hello)?;
        }
    }
    Ok(newcomers.counts)
}

/// Traffic that is not counted.
///
/// # Errors
/// If the server answers nothing.
pub(crate) fn warm_up(client: &Client, address: SocketAddr) -> io::Result<()> {
    let counts = one_request_each(client, address, WARM_UP_CONNECTIONS, WARM_UP)?;
    if counts.served == 0 {
        return Err(io::Error::other("answered nothing while warming up"));
    }
    Ok(())
}

impl Counts {
    pub(crate) fn none() -> Self {
        Self {
            served: 0,
            failed: 0,
            latencies: histogram(),
        }
    }

    pub(crate) fn serve(&mut self, begun: Instant) {
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros);
        self.served += 1;
    }

    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64
    }
}

impl Newcomers {
    /// None yet.
    ///
    /// # Errors
    /// What epoll reports.
    pub(crate) fn new(
        client: &Client,
        address: SocketAddr,
        request: Option<Vec<u8>>,
    ) -> io::Result<Self> {
        Ok(Self {
            client: client.clone(),
            address,
            request,
            source: Source::fresh(),
            clients: Clients::new()?,
            places: Vec::new(),
            counts: Counts::none(),
        })
    }

    /// Replaces all clients by `count` new ones that connect at once; their hellos are made before
    /// the first of them connects.
    ///
    /// # Errors
    /// If sockets cannot be made.
    pub(crate) fn come(&mut self, count: usize) -> io::Result<()> {
        self.clients.truncate(0);
        self.places.clear();
        let hellos: Vec<_> = (0..count).map(|_| self.hello()).collect();
        for (place, (wire, hello)) in hellos.into_iter().enumerate() {
            self.enter(place, wire, hello)?;
        }
        Ok(())
    }

    fn hello(&self) -> (TlsClient, Vec<u8>) {
        let mut wire = self.client.wire();
        if let Some(request) = &self.request {
            wire.say(request);
        }
        let hello = wire.take();
        (wire, hello)
    }

    fn enter(&mut self, place: usize, wire: TlsClient, hello: Vec<u8>) -> io::Result<()> {
        let begun = Instant::now();
        let socket = self.source.dial(self.address, SocketFlags::NONBLOCK)?;
        self.clients.insert(place, socket.into(), hello)?;
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(Newcomer { wire, begun });
        Ok(())
    }

    /// Waits at most for `limit`, and moves what can be moved: the places of those that have gone.
    ///
    /// # Errors
    /// What epoll reports.
    pub(crate) fn advance(&mut self, limit: Duration) -> io::Result<Vec<usize>> {
        let mut left = Vec::new();
        for place in self.clients.wait(limit)? {
            let (Some(connection), Some(Some(newcomer))) =
                (self.clients.get(place), self.places.get_mut(place))
            else {
                continue;
            };
            match newcomer.step(connection, self.request.is_some()) {
                Ok(false) if connection.end.is_none() => continue,
                Ok(true) => self.counts.serve(newcomer.begun),
                _ => self.counts.failed += 1,
            }
            self.places[place] = None;
            self.clients.close(place);
            left.push(place);
        }
        Ok(left)
    }
}

impl Newcomer {
    /// Whether it has what it came for.
    fn step(&mut self, connection: &mut Connection, asks: bool) -> io::Result<bool> {
        tls::step(&mut self.wire, connection)?;
        match asks {
            true => tls::is_answered(&self.wire),
            false => Ok(!self.wire.tls.is_handshaking()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tls::tests::server;
    use super::*;
    use flatpath_testkit::Issued;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// All come at once; what came of them.
    fn crowd(client: &Client, address: SocketAddr, count: usize) -> (u64, u64) {
        let mut newcomers = Newcomers::new(client, address, None).expect("none");
        newcomers.come(count).expect("sockets");
        let (mut left, begin) = (0, Instant::now());
        while left < count && begin.elapsed() < PATIENCE {
            left += newcomers.advance(LOOK_EVERY).expect("polled").len();
        }
        (newcomers.counts.served, newcomers.counts.failed)
    }

    #[test]
    fn each_shakes_hands_once() {
        let issued = Issued::for_localhost();
        let client = Client::new(&issued, &[]).expect("made");
        assert_eq!(crowd(&client, server(&issued), 30), (30, 0));
    }

    #[test]
    fn those_whose_server_goes_away_have_failed() {
        let issued = Issued::for_localhost();
        let client = Client::new(&issued, &[]).expect("made");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || listener.incoming().for_each(drop));
        assert_eq!(crowd(&client, address, 5), (0, 5));
    }

    #[test]
    fn every_request_has_a_connection_of_its_own() {
        let issued = Issued::for_localhost();
        let client = Client::new(&issued, &[]).expect("made");
        let address = server(&issued);
        // Double the time of each run: on a busy machine the first may end before anyone is served.
        let mut runs = (0..10).map(|run| {
            let time = Duration::from_millis(100 << run);
            one_request_each(&client, address, 2, time).expect("sockets")
        });
        let counts = runs.find(|counts| counts.served > 2).expect("served");
        assert_eq!(counts.failed, 0);
        assert!(counts.quantile(0.99) > 0.0);
    }
}
