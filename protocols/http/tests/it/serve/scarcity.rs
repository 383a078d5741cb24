//! Slow clients by the dozen, where places for requests and memory are few: the others are
//! answered, by workers too.

use std::io;
use std::net::SocketAddr;

use flatpath::memory::Payload;
use flatpath::{DriverChoice, Limits, Server, Turn, WorkerScope};
use flatpath_http::{
    Body, BodyPlan, Disposition, Head, Http, Plan, Reply, Request, Response, Service, Sink,
    UploadDecision,
};
use flatpath_testkit::Client;

use crate::on_each_driver;
use crate::serve::{get, start};

on_each_driver!(
    slow_streams_leave_places_to_short_requests,
    slow_uploads_leave_places_to_short_requests,
    what_is_asked_behind_a_slow_stream_leaves_places_too,
    slow_uploads_hold_no_memory_for_their_replies,
    requests_of_one_address_that_last_leave_places_to_those_of_others,
    replies_in_memory_that_are_not_read_are_within_the_budget,
);

/// `/stream` has no end, uploads are counted, anything else is a short answer; all by workers.
struct Mixed;

impl Service for Mixed {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        Response::new(match request.uri().path() {
            "/stream" => Body::reader(io::repeat(b'x'), Some(1 << 40)),
            _ => "short".into(),
        })
    }

    fn plan(&self, _: &Head<'_>) -> Plan<'_> {
        Plan {
            body: BodyPlan::Streamed,
            ..Plan::default()
        }
    }

    fn open(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        UploadDecision::Sink(Box::new(Count(0)))
    }
}

struct Count(usize);

impl Sink for Count {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.0 += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        Response::new(self.0.to_string().into())
    }
}

/// Requests that may be in flight at once where that is what is scarce.
const PLACES: usize = 16;
/// Of them, those that may last as long as their clients take.
const LASTING: usize = PLACES / 4 * 3;

fn few_places() -> Server {
    let limits = Limits {
        in_flight_max: PLACES,
        ..Limits::default()
    };
    Server::new().workers(2..=4).limits(limits)
}

/// A new client, and one that has a connection already, get what a worker answers.
fn check_others(address: SocketAddr, kept: &mut Client) {
    for _ in 0..3 {
        for client in [&mut *kept, &mut Client::connect(address)] {
            let reply = client.get("/other");
            assert_eq!((reply.status, reply.text()), (200, "short"));
        }
    }
}

fn slow_streams_leave_places_to_short_requests(choice: DriverChoice) {
    let (_server, address) = start(few_places(), choice, Http::service(Mixed));
    let mut kept = Client::connect(address);
    let mut slow: Vec<Client> = (0..PLACES).map(|_| Client::connect(address)).collect();
    let mut statuses: Vec<u16> = Vec::new();
    for client in &mut slow {
        client.send(get("/stream"));
        statuses.push(client.reply_to_head().status);
    }
    check_others(address, &mut kept);
    let streams = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(streams, LASTING, "the others are refused: {statuses:?}");
    drop(slow);
    // Their places come back.
    let mut last = Client::connect(address);
    for _ in 0..1_000 {
        last.send(get("/stream"));
        if last.reply_to_head().status == 200 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        last = Client::connect(address);
    }
    panic!("no place has come back");
}

fn begun_uploads(address: SocketAddr, count: usize) -> Vec<Client> {
    let begin = |_| {
        let mut client = Client::connect(address);
        client.send("PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
        client
    };
    (0..count).map(begin).collect()
}

fn slow_uploads_leave_places_to_short_requests(choice: DriverChoice) {
    let (_server, address) = start(few_places(), choice, Http::service(Mixed));
    let mut kept = Client::connect(address);
    let mut slow = begun_uploads(address, PLACES);
    check_others(address, &mut kept);
    // Those for which there was no place yet wait for it.
    slow.iter_mut().for_each(|client| client.send("67890"));
    for client in &mut slow {
        assert_eq!(client.reply().text(), "10");
    }
}

fn what_is_asked_behind_a_slow_stream_leaves_places_too(choice: DriverChoice) {
    let (_server, address) = start(few_places(), choice, Http::service(Mixed));
    let mut kept = Client::connect(address);
    let mut slow: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    for client in &mut slow {
        client.send([get("/stream"), get("/other").repeat(8)].concat());
        let status = client.reply_to_head().status;
        assert!(matches!(status, 200 | 503), "{status}");
    }
    check_others(address, &mut kept);
}

fn slow_uploads_hold_no_memory_for_their_replies(choice: DriverChoice) {
    // Of the smallest buffers, 256 in all, and more uploads than that.
    const UPLOADS: usize = 400;
    let limits = Limits {
        buffer_bytes_max: 1024 * 1024,
        ..Limits::default()
    };
    let server = Server::new().workers(2..=4).limits(limits);
    let (server, address) = start(server, choice, Http::service(Mixed));
    let mut kept = Client::connect(address);
    let mut slow: Vec<Client> = Vec::new();
    for _ in 0..UPLOADS {
        let mut client = Client::connect(address);
        client.send("PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
        slow.push(client);
    }
    check_others(address, &mut kept);
    for client in &mut slow {
        client.send("12345");
        assert_eq!(client.reply().text(), "5");
    }
    assert_eq!(server.handle().statistics().connections_ended_for_memory, 0);
}

/// A client of an address of this machine, which has sent a request.
fn from(host: &str, to: SocketAddr, method: &str, target: &str) -> Client {
    let from = SocketAddr::new(host.parse().expect("an address"), 0);
    let mut client = Client::connect_from(from, to);
    let length = [("Content-Length", "5")];
    let is_upload = method == "PUT";
    client.request(method, target, if is_upload { &length } else { &[] });
    client
}

fn is_begun(client: &mut Client) -> bool {
    client.exactly("HTTP/1.1 200".len()).ends_with(b"200")
}

/// What an address has had longest ends for others, and no more than that.
fn requests_of_one_address_that_last_leave_places_to_those_of_others(choice: DriverChoice) {
    const OTHERS: usize = 4;
    let (server, address) = start(few_places(), choice, Http::service(Mixed));
    let crowd = (0..PLACES).map(|_| from("127.0.66.1", address, "GET", "/stream"));
    let mut crowd: Vec<_> = crowd.collect();
    let begun: Vec<bool> = crowd.iter_mut().map(is_begun).collect();
    let count = begun.iter().filter(|begun| **begun).count();
    assert_eq!(count, LASTING, "alone it has all");
    assert_eq!(
        server.handle().statistics().connections_ended_for_address,
        0
    );

    let mut others = Vec::new();
    for host in 1..=OTHERS {
        let host = format!("127.0.77.{host}");
        let mut stream = from(&host, address, "GET", "/stream");
        assert!(is_begun(&mut stream), "{host}");
        others.push(stream);
        let mut upload = from(&host, address, "PUT", "/upload");
        upload.send(b"12345");
        assert_eq!(upload.reply().text(), "5", "{host}");
    }
    let mut more = from("127.0.66.1", address, "GET", "/stream");
    assert!(!is_begun(&mut more), "its address has its share");
    let ended = server.handle().statistics().connections_ended_for_address;
    // Half of all is its own whatever others want.
    let most = (LASTING - LASTING / 2) as u64;
    assert!((OTHERS as u64..=most).contains(&ended), "{ended} are ended");
    for stream in &mut others {
        stream.exactly(1024);
        assert!(stream.is_open());
    }
}

fn replies_in_memory_that_are_not_read_are_within_the_budget(choice: DriverChoice) {
    const BUDGET: usize = 16 << 20;
    const BYTES: usize = 2 << 20;
    const CLIENTS: usize = 24;
    let limits = Limits {
        buffer_bytes_max: BUDGET,
        ..Limits::default()
    };
    let server = Server::new().workers(2..=4).limits(limits);
    let http = Http::pooled(|request: &Request| match request.uri().path() {
        "/long" => Response::new(vec![b'x'; BYTES].into()),
        _ => Response::new("short".into()),
    });
    let (server, address) = start(server, choice, http);
    let mut kept = Client::connect(address);
    let mut slow: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    let mut statuses = Vec::new();
    for client in &mut slow {
        client.send(get("/long"));
        statuses.push(client.reply_to_head().status);
    }
    let begun = statuses.iter().filter(|status| **status == 200).count();
    assert!((4..8).contains(&begun), "{statuses:?}");
    assert_eq!(
        statuses.iter().filter(|it| **it == 503).count(),
        CLIENTS - begun
    );
    let charged = server.handle().pool_statistics().charged_bytes;
    assert!((begun * BYTES..=BUDGET).contains(&charged), "{charged}");
    check_others(address, &mut kept);
    for (client, status) in slow.iter_mut().zip(statuses) {
        if status == 200 {
            assert_eq!(client.exactly(BYTES).len(), BYTES);
        }
    }
    // What was sent is charged no more: there is memory for others.
    let mut last = Client::connect(address);
    last.send(get("/long"));
    let reply = last.reply();
    assert_eq!((reply.status, reply.body.len()), (200, BYTES));
}
