//! Bodies kept by a protocol: budgets, stalls and checksums, over real sockets and in the
//! simulation.
//!
//! The protocol takes messages of a length (four bytes) and a body, keeps the body where it was
//! received, and a worker answers with its checksum. A body whose first byte is `H` is hoarded: the
//! payload outlives its request until the hoard is emptied.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::memory::{Payload, RegionConfig};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{
    Context, DriverChoice, DriverConfig, Job, Limits, ListenerOptions, Pages, Protocol, Received,
    Running, Server, Stall, WorkerScope,
};
use flatpath_driver::simulation::{
    Client as SimulatedClient, ClientState, Fault, Faults, Random, each_seed,
};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::skipped::cannot_run;
use flatpath_testkit::{patience, stretched, until_true};

use crate::lines::on_both;

/// See the module.
#[derive(Clone, Default)]
struct Tally {
    hoard: Arc<Lock<Vec<Payload>>>,
    pages: Option<RegionConfig>,
    /// Keeps whatever can be kept. Who needs a whole body before going on must not.
    insists: bool,
}

#[derive(Default)]
struct Session {
    left: usize,
    is_begun: bool,
    body: Payload,
}

#[derive(Default)]
struct Sum {
    body: Payload,
    sum: u64,
}

fn fnv(sum: u64, bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(sum, step)
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;

impl Protocol for Tally {
    type ThreadState = ();
    type Session = Session;
    type Job = Sum;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: self.pages.clone(),
            ..ListenerOptions::named("tally")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let (mut used, mut blocked) = (0, None);
        while used < input.len() {
            let rest = &input[used..];
            if !context.session.is_begun {
                let Some((head, _)) = rest.split_first_chunk::<4>() else {
                    break;
                };
                context.session.left = u32::from_be_bytes(*head) as usize;
                context.session.is_begun = true;
                context.receive_into(Pages::Listener);
                used += 4;
                continue;
            }
            let data = &rest[..rest.len().min(context.session.left)];
            let ends = data.len() == context.session.left;
            let job = if ends { context.job() } else { None };
            if ends && job.is_none() {
                blocked = Some(Stall::Jobs);
                break;
            }
            let pages_max = context.limits().pages_per_connection_max;
            let taken = if self.insists || context.held() + 1 < pages_max {
                context.io.retain_or_copy(data, &mut context.session.body)
            } else {
                context.io.copy(data, &mut context.session.body)
            };
            if taken.is_err() {
                if let Some(job) = job {
                    context.recycle(job);
                }
                blocked = Some(Stall::Memory);
                break;
            }
            context.session.left -= data.len();
            used += data.len();
            if let Some(mut job) = job {
                job.body = std::mem::take(&mut context.session.body);
                context.session.is_begun = false;
                context.receive_into(Pages::Common);
                context.dispatch(job);
            }
        }
        match blocked {
            Some(on) => Received::Blocked { consumed: used, on },
            None => Received::NeedMore { consumed: used },
        }
    }

    fn run(&self, job: &mut Sum, _scope: &mut WorkerScope<'_>) {
        job.sum = job
            .body
            .parts()
            .fold(FNV, |sum, part| fnv(sum, part.bytes()));
        let is_hoarded = job.body.parts().next().map(|part| part.bytes()[0]) == Some(b'H');
        let body = std::mem::take(&mut job.body);
        if is_hoarded {
            let mut hoard = self.hoard.lock();
            hoard.push(body);
        }
    }

    fn panicked(&self, job: &mut Sum) {
        job.body = Payload::new();
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        let sum = job.sum.to_be_bytes();
        context.write(&sum).expect("room for eight bytes");
        context.recycle(job);
    }

    fn retire(&self, (): &mut (), job: &mut Sum) {
        job.body = Payload::new();
    }
}

fn pages(pages: u32, page_bytes: u32, reserve_pages: u32) -> Option<RegionConfig> {
    Some(RegionConfig {
        pages,
        page_bytes,
        reserve_pages,
        ..RegionConfig::default()
    })
}

fn start(choice: DriverChoice, tally: &Tally, limits: Limits) -> Running {
    let server = Server::new().driver(choice).limits(limits);
    let server = server.listen("127.0.0.1:0", tally.clone());
    server.start().expect("it starts")
}

fn message(first: u8, seed: u64, length: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (0..length as u64)
        .map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8)
        .collect();
    body[0] = first;
    body
}

struct Client(TcpStream);

impl Client {
    fn connect(running: &Running) -> Client {
        let stream = TcpStream::connect(running.addresses()[0].address).expect("listening");
        stream
            .set_read_timeout(Some(patience()))
            .expect("a time-out");
        stream
            .set_write_timeout(Some(patience()))
            .expect("a time-out");
        Client(stream)
    }

    fn send(&mut self, body: &[u8]) {
        let head = u32::try_from(body.len()).expect("short").to_be_bytes();
        self.0.write_all(&head).expect("sent");
        self.0.write_all(body).expect("sent");
    }

    fn sum(&mut self) -> u64 {
        let mut sum = [0; 8];
        self.0.read_exact(&mut sum).expect("an answer");
        u64::from_be_bytes(sum)
    }

    fn ask(&mut self, body: &[u8]) {
        self.send(body);
        assert_eq!(self.sum(), fnv(FNV, body), "{} bytes", body.len());
    }
}

#[test]
fn bodies_of_any_length_arrive_as_they_were_sent() {
    on_both(|choice| {
        let tally = Tally {
            pages: pages(64, 16 * 1024, 8),
            ..Tally::default()
        };
        let running = start(choice, &tally, Limits::default());
        let mut client = Client::connect(&running);
        for length in [1, 3, 100, 5000, 16_384, 100_000, 300_000] {
            client.ask(&message(b'x', length as u64, length));
        }
        drop(client);
    });
}

#[test]
fn who_keeps_too_much_stalls_and_nobody_else_feels_it() {
    on_both(|choice| {
        let tally = Tally {
            pages: pages(64, 4096, 16),
            insists: true,
            ..Tally::default()
        };
        let limits = Limits {
            pages_per_connection_max: 8,
            ..Limits::default()
        };
        let running = start(choice, &tally, limits);
        let mut greedy = Client::connect(&running);
        // Each answered before the next, so that each takes a page of its own.
        let body = message(b'H', 1, 100);
        (0..8).for_each(|_| greedy.ask(&body));
        let handle = running.handle();
        let stalls = || handle.statistics().pages_stalls;
        until_true("a stall", || stalls() == 1);
        let mut modest = Client::connect(&running);
        for round in 0..50 {
            modest.ask(&message(b'x', round, 20_000));
        }
        assert_eq!(stalls(), 1);
        // The hoard is emptied, and the connection continues.
        let hoard = std::mem::take(&mut *tally.hoard.lock());
        assert_eq!(hoard.len(), 8);
        for payload in &hoard {
            let kept: Vec<u8> = payload
                .parts()
                .flat_map(|part| part.bytes().to_vec())
                .collect();
            assert_eq!(kept, body, "kept past its reply");
        }
        drop(hoard);
        greedy.ask(&message(b'x', 7, 10_000));
    });
}

#[test]
fn a_region_that_is_used_up_copies_and_recovers() {
    on_both(|choice| {
        let tally = Tally {
            pages: pages(8, 4096, 4),
            ..Tally::default()
        };
        let running = start(choice, &tally, Limits::default());
        let handle = running.handle();
        for _ in 0..3 {
            let mut clients: Vec<Client> = (0..6).map(|_| Client::connect(&running)).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                client.ask(&message(b'H', number as u64, 30_000));
            }
            assert!(handle.statistics().body_bytes_copied > 0, "none was copied");
            tally.hoard.lock().clear();
        }
        let (kept, copied) = (
            handle.statistics().body_bytes_retained,
            handle.statistics().body_bytes_copied,
        );
        assert_eq!(
            kept + copied,
            3 * 6 * 30_000,
            "{kept} kept, {copied} copied"
        );
        let mut client = Client::connect(&running);
        client.ask(&message(b'x', 1, 4000));
        assert_eq!(handle.statistics().body_bytes_copied, copied, "kept again");
    });
}

#[test]
fn thousands_of_connections_get_the_checksums_of_what_they_sent() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let connections: usize = if is_slow() { 2_000 } else { 10_000 };
    // Both ends of a connection are in this process.
    let descriptors = 2 * connections as u64 + 200;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if room < descriptors {
        return cannot_run(&format!(
            "{descriptors} descriptors are needed, {room} are allowed"
        ));
    }
    on_both(|choice| {
        let tally = Tally {
            pages: pages(256, 4096, 64),
            ..Tally::default()
        };
        // All connect before the first says anything.
        let limits = Limits::default();
        let limits = Limits {
            head_timeout: stretched(limits.head_timeout),
            idle_timeout: stretched(limits.idle_timeout),
            ..limits
        };
        let running = start(choice, &tally, limits);
        let mut clients: Vec<Client> = Vec::new();
        for number in 0..connections {
            clients.push(Client::connect(&running));
            if number % 1000 == 999 {
                until_true("accepts", || {
                    running.handle().statistics().connections_accepted > number as u64
                });
            }
        }
        let body = |number: usize| message(b'x', number as u64, 1 + number % 3000);
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(&body(number));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.sum(), fnv(FNV, &body(number)), "connection {number}");
        }
        assert_eq!(running.handle().statistics().connections_expired(), 0);
    });
}

/// A client that sends its bodies in pieces of any size.
struct Talker {
    client: SimulatedClient,
    script: Vec<u8>,
    said: usize,
    heard: Vec<u8>,
    sums: Vec<u64>,
}

impl Talker {
    fn new(server: &SimulatedServer, dice: &mut Random) -> Talker {
        let (mut script, mut sums) = (vec![], vec![]);
        for _ in 0..=dice.below(4) {
            let body = message(b'x', dice.up_to(1000), 1 + dice.below(5000));
            script.extend((body.len() as u32).to_be_bytes());
            script.extend_from_slice(&body);
            sums.push(fnv(FNV, &body));
        }
        // Workers may overtake each other.
        sums.sort_unstable();
        Talker {
            client: server.connect(),
            script,
            said: 0,
            heard: vec![],
            sums,
        }
    }

    /// Says and hears a little. True when every answer is there.
    fn step(&mut self, dice: &mut Random, seed: u64) -> bool {
        let count = (1 + dice.below(300)).min(self.script.len() - self.said);
        self.client
            .write(&self.script[self.said..self.said + count]);
        self.said += count;
        self.heard.extend(self.client.read());
        assert_eq!(self.client.state(), ClientState::Open, "seed {seed}");
        if self.heard.len() < 8 * self.sums.len() {
            return false;
        }
        let sums = self.heard.chunks(8);
        let mut sums: Vec<u64> = sums
            .map(|sum| u64::from_be_bytes(sum.try_into().expect("eight")))
            .collect();
        sums.sort_unstable();
        assert_eq!(sums, self.sums, "seed {seed}");
        self.client.shutdown_write();
        true
    }
}

fn conditions(seed: u64, dice: &mut Random) -> Conditions {
    let faults = Faults::none()
        .with(Fault::ShortReceive, dice.below(400) as u16)
        .with(Fault::NoBuffer, dice.below(100) as u16)
        .with(Fault::Late, dice.below(300) as u16)
        .with(Fault::EarlyEnd, dice.below(200) as u16)
        .late_by(Duration::from_millis(1));
    Conditions {
        faults,
        driver: DriverConfig {
            receive_buffers: 8,
            receive_buffer_bytes: 256,
            ..DriverConfig::default()
        },
        limits: Limits {
            pages_per_connection_max: 1 + dice.below(40) as u32,
            ..Limits::default()
        },
        ..Conditions::calm(seed)
    }
}

#[test]
fn sim_bodies_are_whole_under_every_fault_and_all_pages_come_back() {
    const TURNS_MAX: usize = 200_000;
    each_seed(150, |seed| {
        let mut dice = Random::new(seed);
        let conditions = conditions(seed, &mut dice);
        let tally = Tally {
            pages: pages(2 << dice.below(4), 64 << dice.below(5), 1),
            ..Tally::default()
        };
        let mut server = SimulatedServer::new(conditions, tally);
        let mut talkers: Vec<Talker> = (0..=dice.below(6))
            .map(|_| Talker::new(&server, &mut dice))
            .collect();
        let mut turns = 0;
        while !talkers.is_empty() {
            turns += 1;
            assert!(turns < TURNS_MAX, "seed {seed}: a client still waits");
            server.turn();
            talkers.retain_mut(|talker| !talker.step(&mut dice, seed));
        }
        server.drain();
        server.end(TURNS_MAX);
    });
}
