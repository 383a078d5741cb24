//! A load generator for HTTP: two kinds of requests, a histogram for each.
//!
//! wrk keeps one histogram for everything; the sleepers' scenario asks how long the *other*
//! requests take. One thread, one request at a time per connection, like wrk.
//!
//! | rate | a connection sends its next request |
//! |---|---|
//! | as fast as it goes | when its reply is there |
//! | paced | when its reply is there and the clock grants the whole generator another request |
//!
//! Latency runs from the write of a request to the read of the last byte of its reply. Requests
//! under way at the end are not counted.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flatpath_testkit::clients::Clients;
use hdrhistogram::Histogram;
use rustix::net::SocketFlags;

use crate::http;
use crate::measure::histogram;
use crate::source::Source;

/// No wait is longer than this, so that the end of a run is seen.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SEED: u64 = 1;
/// Uncounted traffic that fills caches, starts threads and grows pools.
const WARM_UP: Duration = Duration::from_millis(300);
const WARM_UP_CONNECTIONS: usize = 32;

#[derive(Clone, Debug)]
pub struct Plan {
    pub address: SocketAddr,
    /// Connections at once.
    pub connections: usize,
    /// Not counted: until caches, threads and connections are there.
    pub settle: Duration,
    pub counted: Duration,
    pub quick_path: String,
    pub sleep_path: String,
    /// How many of a thousand requests are others.
    pub sleepers_per_mille: u32,
    /// All connections together; nothing for as fast as it goes.
    pub requests_per_second: Option<f64>,
}

pub struct Counted {
    /// Latencies of the quick requests, in microseconds.
    pub quick: Histogram<u64>,
    pub sleepers: Histogram<u64>,
    /// Broken connections and replies that are not 200.
    pub errors: u64,
    pub elapsed: Duration,
}

impl Counted {
    /// Replies per second, of both kinds.
    pub fn requests_per_second(&self) -> f64 {
        self.requests() as f64 / self.elapsed.as_secs_f64()
    }

    /// Replies of both kinds.
    pub fn requests(&self) -> u64 {
        self.quick.len() + self.sleepers.len()
    }
}

/// Runs the plan. `counting` is called at the moment the counting begins.
///
/// # Errors
/// If the first connections cannot be made;
/// connections that break later are counted and made again.
pub fn run(plan: &Plan, counting: impl FnOnce() -> io::Result<()>) -> io::Result<Counted> {
    let mut crowd = Crowd::connect(plan)?;
    crowd.drive(Instant::now() + plan.settle)?;
    crowd.forget_counts();
    counting()?;
    let begin = Instant::now();
    crowd.drive(begin + plan.counted)?;
    let [quick, sleepers] = crowd.latencies;
    Ok(Counted {
        quick,
        sleepers,
        errors: crowd.errors,
        elapsed: begin.elapsed(),
    })
}

/// Traffic that is not counted, a tenth of it for `sleep_path`.
///
/// # Errors
/// If the server answers nothing.
pub fn warm_up(address: SocketAddr, quick_path: &str, sleep_path: &str) -> io::Result<()> {
    let plan = Plan {
        address,
        connections: WARM_UP_CONNECTIONS,
        settle: Duration::ZERO,
        counted: WARM_UP,
        quick_path: quick_path.to_owned(),
        sleep_path: sleep_path.to_owned(),
        sleepers_per_mille: 100,
        requests_per_second: None,
    };
    if run(&plan, || Ok(()))?.requests() == 0 {
        return Err(io::Error::other("answered nothing while warming up"));
    }
    Ok(())
}

/// Index into requests and histograms.
#[derive(Clone, Copy, Debug)]
enum Sort {
    Quick = 0,
    Sleeper = 1,
}

struct Crowd<'a> {
    plan: &'a Plan,
    source: Source,
    clients: Clients,
    /// By connection: the request under way.
    asked: Vec<Option<(Sort, Instant)>>,
    pacing: Option<Pacing>,
    /// Connections without a request under way.
    idle: VecDeque<usize>,
    requests: [Vec<u8>; 2],
    latencies: [Histogram<u64>; 2],
    errors: u64,
    random: fastrand::Rng,
}

impl<'a> Crowd<'a> {
    fn connect(plan: &'a Plan) -> io::Result<Self> {
        let mut crowd = Self {
            plan,
            source: Source::fresh(),
            clients: Clients::new()?,
            asked: vec![None; plan.connections],
            pacing: plan.requests_per_second.map(Pacing::begin),
            idle: (0..plan.connections).collect(),
            requests: [
                http::request(&plan.quick_path),
                http::request(&plan.sleep_path),
            ],
            latencies: [histogram(), histogram()],
            errors: 0,
            random: fastrand::Rng::with_seed(SEED),
        };
        for index in 0..plan.connections {
            crowd.dial(index)?;
        }
        Ok(crowd)
    }

    fn dial(&mut self, index: usize) -> io::Result<()> {
        // Loopback connects at once or is refused; the first write finds out.
        let socket = self.source.dial(self.plan.address, SocketFlags::NONBLOCK)?;
        self.clients.insert(index, socket.into(), Vec::new())
    }

    fn forget_counts(&mut self) {
        self.latencies.iter_mut().for_each(Histogram::reset);
        self.errors = 0;
    }

    fn drive(&mut self, end: Instant) -> io::Result<()> {
        while Instant::now() < end {
            self.send_what_may_be_sent();
            let pause = self.pacing.as_ref().filter(|_| !self.idle.is_empty());
            let pause = pause.map_or(LOOK_EVERY, |pacing| pacing.pause().min(LOOK_EVERY));
            for index in self.clients.wait(pause)? {
                self.received(index);
            }
        }
        Ok(())
    }

    fn send_what_may_be_sent(&mut self) {
        // Bounded: a connection that fails again goes to the back, and each gets one try.
        for _ in 0..self.idle.len() {
            if self
                .pacing
                .as_mut()
                .is_some_and(|pacing| !pacing.may_send())
            {
                return;
            }
            let Some(index) = self.idle.pop_front() else {
                return;
            };
            let sort = self.next_sort();
            self.asked[index] = Some((sort, Instant::now()));
            match self.clients.get(index) {
                Some(connection) => connection.send(self.requests[sort as usize].clone()),
                None => self.broken(index),
            }
        }
    }

    /// A fixed sequence: every server gets the same one.
    fn next_sort(&mut self) -> Sort {
        if self.random.u32(..1000) < self.plan.sleepers_per_mille {
            Sort::Sleeper
        } else {
            Sort::Quick
        }
    }

    fn received(&mut self, index: usize) {
        let Some(connection) = self.clients.get(index) else {
            return;
        };
        let framed = http::frame(&connection.received);
        match (framed, self.asked[index]) {
            _ if connection.end.is_some() => self.broken(index),
            (Ok(None), _) => {}
            (Ok(Some(framed)), Some((sort, sent)))
                if framed.status == 200 && framed.bytes() == connection.received.len() =>
            {
                connection.received.clear();
                self.asked[index] = None;
                let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.latencies[sort as usize].saturating_record(micros);
                self.idle.push_back(index);
            }
            _ => self.broken(index),
        }
    }

    /// Counts an error and connects anew; if even that fails, the next request tries again.
    fn broken(&mut self, index: usize) {
        self.errors += 1;
        self.asked[index] = None;
        self.clients.close(index);
        // What cannot be dialled is an error again when its turn comes.
        let _ = self.dial(index);
        if !self.idle.contains(&index) {
            self.idle.push_back(index);
        }
    }
}

struct Pacing {
    begin: Instant,
    requests_per_second: f64,
    sent: u64,
}

impl Pacing {
    fn begin(requests_per_second: f64) -> Self {
        Self {
            begin: Instant::now(),
            requests_per_second: requests_per_second.max(1.0),
            sent: 0,
        }
    }

    /// Until the next request may be sent.
    fn pause(&self) -> Duration {
        let due = (self.sent + 1) as f64 / self.requests_per_second;
        Duration::from_secs_f64(due).saturating_sub(self.begin.elapsed())
    }

    /// Whether another one may be sent now, which it then is.
    fn may_send(&mut self) -> bool {
        let may = self.pause() == Duration::ZERO;
        self.sent += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// A thread per connection that answers each read with the reply.
    fn server(reply: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(mut socket) = socket else { return };
                thread::spawn(move || {
                    let mut request = [0; 1024];
                    while let Ok(1..) = socket.read(&mut request) {
                        if socket.write_all(reply).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    fn plan(address: SocketAddr, requests_per_second: Option<f64>) -> Plan {
        Plan {
            address,
            connections: 4,
            settle: Duration::from_millis(20),
            counted: Duration::from_millis(100),
            quick_path: "/quick".into(),
            sleep_path: "/sleep".into(),
            sleepers_per_mille: 100,
            requests_per_second,
        }
    }

    #[test]
    fn both_sorts_are_counted_apart_and_near_their_share() {
        let mut begun = false;
        let counted = run(&plan(server(REPLY), None), || {
            begun = true;
            Ok(())
        })
        .expect("counted");
        assert!(begun);
        assert_eq!(counted.errors, 0);
        assert!(
            counted.quick.len() > 4 * counted.sleepers.len(),
            "the quick ones are nine tenths"
        );
        assert!(!counted.sleepers.is_empty());
        assert!(counted.requests_per_second() > 0.0);
    }

    #[test]
    fn a_paced_run_sends_no_more_than_it_was_granted() {
        let counted = run(&plan(server(REPLY), Some(500.0)), || Ok(())).expect("counted");
        assert!(counted.requests() > 0);
        // 50 in the counted time; what the settling left over and a late end come on top.
        let granted = 500.0 * (counted.elapsed.as_secs_f64() + 0.02) + 4.0;
        assert!(counted.requests() <= granted.ceil() as u64);
    }

    #[test]
    fn replies_that_are_not_200_are_errors() {
        let refusing = server(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        let counted = run(&plan(refusing, None), || Ok(())).expect("counted");
        assert_eq!(counted.requests(), 0);
        assert!(counted.errors > 0);
    }

    #[test]
    fn the_sequence_of_sorts_is_the_same_for_every_server() {
        let plan = plan(server(REPLY), None);
        let sequence = || {
            let mut crowd = Crowd::connect(&plan).expect("connected");
            (0..1000)
                .map(|_| crowd.next_sort() as usize)
                .collect::<Vec<_>>()
        };
        let first = sequence();
        assert_eq!(first, sequence());
        let sleepers: usize = first.iter().sum();
        assert!((50..200).contains(&sleepers), "{sleepers} of 1000");
    }
}
