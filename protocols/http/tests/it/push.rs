//! Bodies that are fed from elsewhere, on a simulated server: every order, every fault, every byte
//! that a waiting stream holds.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use allocation_counter::measure;
use flatpath::Limits;
use flatpath_http::{
    Body, Decoder, Framing, Head, Http, Piece, Request, Response, Route, Sender, Service,
    TrySendError,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_PLAIN: &[u8] = b"GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";

/// What may wait in a channel, in bytes.
const BYTES_MAX: usize = 10_000;

/// Hands a sender out for each request.
fn pushing(route: Route) -> (Http<impl Service>, Receiver<Sender>) {
    let (streams, taken) = mpsc::channel();
    let handler = move |request: Request| {
        if request.uri().path() == "/plain" {
            return Response::new("x".repeat(200).into());
        }
        let (sender, body) = Body::channel(BYTES_MAX);
        streams.send(sender).expect("the test is there");
        Response::new(body)
    };
    (Http::routed(move |_: &Head<'_>| route, handler), taken)
}

/// A client with its stream.
struct Stream {
    client: Client,
    sender: Option<Sender>,
    sent: Vec<u8>,
    arrived: Vec<u8>,
    is_cut: bool,
}

impl Stream {
    fn open(server: &mut TestServer, taken: &Receiver<Sender>) -> Stream {
        let client = server.connect();
        client.write(GET);
        let mut sender = None;
        server.run_until(|| {
            sender = taken.try_recv().ok();
            sender.is_some()
        });
        Stream {
            client,
            sender,
            sent: Vec::new(),
            arrived: Vec::new(),
            is_cut: false,
        }
    }

    fn send(&mut self, random: &mut fastrand::Rng) {
        let Some(sender) = &self.sender else {
            return;
        };
        let lengths = [0, 1, 100, 4000, 9000, 30_000];
        let bytes = lengths[random.usize(..lengths.len())];
        let piece: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        match sender.try_send(piece.clone()) {
            Ok(()) => self.sent.extend(piece),
            Err(TrySendError::Full(back)) => assert_eq!(back, piece),
            Err(TrySendError::Closed(_)) => panic!("its client is there"),
        }
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        match random.u8(..100) {
            0..60 => self.send(random),
            60 => self.sender = None,
            61 => {
                if let Some(sender) = self.sender.take() {
                    sender.abort();
                    self.is_cut = true;
                }
            }
            _ => {
                let bytes = random.usize(..20_000);
                self.arrived.extend(self.client.read_at_most(bytes));
            }
        }
    }

    /// The content that has arrived, and whether its end has.
    fn content(&self) -> (Vec<u8>, bool) {
        let Some(head) = self.arrived.windows(4).position(|four| four == b"\r\n\r\n") else {
            return (Vec::new(), false);
        };
        let mut rest = &self.arrived[head + 4..];
        let (mut decoder, mut content) = (Decoder::new(Framing::Chunked), Vec::new());
        loop {
            match decoder.next(&mut rest).expect("it is well formed") {
                Piece::Data(data) => content.extend_from_slice(data),
                Piece::More => return (content, false),
                Piece::End => return (content, true),
            }
        }
    }

    /// Reads to the end of the stream, or of the connection.
    fn finish(&mut self, server: &mut TestServer) {
        self.sender = None;
        server.run_until(|| {
            self.arrived.extend(self.client.read());
            self.client.state() != ClientState::Open || self.content().1
        });
        self.arrived.extend(self.client.read());
    }
}

#[test]
fn sim_what_is_sent_arrives_in_order_and_whole_or_visibly_cut() {
    each_seed(60, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let route = [Route::Inline, Route::Pooled][seed as usize % 2];
        let (http, taken) = pushing(route);
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut streams: Vec<_> = (0..4).map(|_| Stream::open(&mut server, &taken)).collect();
        for _ in 0..150 {
            let stream = random.usize(..streams.len());
            streams[stream].step(&mut random);
            for _ in 0..random.u8(..3) {
                server.turn();
            }
        }
        for mut stream in streams {
            stream.finish(&mut server);
            let (content, is_complete) = stream.content();
            assert_eq!(is_complete, !stream.is_cut);
            match stream.is_cut {
                true => assert_eq!(content, stream.sent[..content.len()]),
                false => assert_eq!(content, stream.sent),
            }
        }
    });
}

#[test]
fn sim_a_body_shorter_than_its_length_ends_with_its_connection() {
    each_seed(20, |seed| {
        let handler = |_: Request| {
            let (sender, body) = Body::channel(BYTES_MAX);
            sender.try_send("short").expect("there is room");
            let mut response = Response::new(body);
            let length = http::HeaderValue::from_static("100");
            response.headers_mut().insert("content-length", length);
            response
        };
        let mut server = TestServer::new(Conditions::rough(seed), Http::pooled(handler));
        let client = server.connect();
        // Kept open, the connection would make of the second reply the rest of the first.
        client.write(&[GET, GET].concat());
        let reply = server.read_to_end(&client);
        let heads = reply.windows(5).filter(|five| *five == b"HTTP/");
        assert!(heads.count() <= 1, "{}", String::from_utf8_lossy(&reply));
    });
}

#[test]
fn sim_a_client_that_is_gone_closes_its_sender() {
    each_seed(20, |seed| {
        let (http, taken) = pushing(Route::Inline);
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let stream = Stream::open(&mut server, &taken);
        match seed % 2 {
            0 => stream.client.abort(),
            _ => stream.client.shutdown_write(),
        }
        let sender = stream.sender.expect("it is open");
        server.run_until(|| sender.is_closed());
        assert_eq!(sender.try_send("x"), Err(TrySendError::Closed("x".into())));
    });
}

#[test]
fn sim_an_end_that_came_before_the_stream_closes_its_sender() {
    for requests in [1, 2] {
        each_seed(20, |seed| {
            let (http, taken) = pushing(Route::Pooled);
            let mut server = TestServer::new(Conditions::rough(seed), http);
            let client = server.connect();
            client.write(&[GET_PLAIN, GET][2 - requests..].concat());
            (0..20).for_each(|_| server.turn_without_workers());
            client.shutdown_write();
            (0..20).for_each(|_| server.turn_without_workers());
            let mut sender = None;
            server.run_until(|| {
                sender = sender.take().or_else(|| taken.try_recv().ok());
                sender.as_ref().is_some_and(Sender::is_closed)
            });
        });
    }
}

#[test]
fn sim_a_stream_that_has_ended_is_for_a_client_that_has_sent_its_end() {
    each_seed(20, |seed| {
        let handler = |_: Request| {
            let (sender, body) = Body::channel(BYTES_MAX);
            sender.try_send("all of it").expect("there is room");
            Response::new(body)
        };
        let mut server = TestServer::new(Conditions::rough(seed), Http::pooled(handler));
        let client = server.connect();
        client.write(GET);
        (0..20).for_each(|_| server.turn_without_workers());
        client.shutdown_write();
        (0..20).for_each(|_| server.turn_without_workers());
        let reply = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        assert!(reply.ends_with("9\r\nall of it\r\n0\r\n\r\n"), "{reply}");
    });
}

/// A few turns: less than the time after which holders of memory are ended for others.
fn pass(server: &mut TestServer) {
    for _ in 0..4 {
        server.turn();
    }
}

/// A server whose memory is taken by streams that are not read, and another stream, whose sender
/// has found none for its piece.
fn scarce() -> (TestServer, Vec<Stream>, Stream) {
    const BUFFERS: usize = 64;
    let (http, taken) = pushing(Route::Inline);
    let mut conditions = Conditions::calm(1);
    conditions.limits = Limits {
        buffer_bytes_max: BUFFERS * 4096,
        stall_timeout: Duration::from_secs(1),
        ..Limits::default()
    };
    let mut server = TestServer::new(conditions, http);
    let mut other = Stream::open(&mut server, &taken);
    server.settle();
    other.arrived.extend(other.client.read());
    server.world().set_window_bytes(1);
    let open = |_| Stream::open(&mut server, &taken);
    let hogs = (0..BUFFERS / 2 + 1).map(open).collect();
    pass(&mut server);
    assert!(
        !offer(&mut other, b'o'),
        "the heads of the others take all of it"
    );
    pass(&mut server);
    (server, hogs, other)
}

fn offer(stream: &mut Stream, byte: u8) -> bool {
    let sender = stream.sender.as_ref().expect("open");
    let is_taken = sender.try_send(vec![byte; 3000]).is_ok();
    if is_taken {
        stream.sent.extend([byte; 3000]);
    }
    is_taken
}

#[test]
fn sim_a_stream_that_finds_no_memory_goes_on_when_there_is_some() {
    let (mut server, hogs, mut other) = scarce();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let sender = other.sender.as_ref().expect("open");
    sender.on_event(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    pass(&mut server);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "there is no room yet");
    server.world().set_window_bytes(64 * 1024);
    for mut hog in hogs {
        hog.finish(&mut server);
        assert_eq!(hog.content(), (Vec::new(), true));
    }
    server.run_until(|| calls.load(Ordering::Relaxed) == 1);
    assert!(offer(&mut other, b'o'), "it is told of room");
    other.finish(&mut server);
    assert!(other.content() == (other.sent, true));
}

#[test]
fn sim_a_stream_that_finds_no_memory_for_long_is_cut_off() {
    let (mut server, _hogs, mut other) = scarce();
    let sender = other.sender.take().expect("open");
    server.run_until(|| sender.is_closed());
    server.run_until(|| other.client.state() == ClientState::Reset);
}

#[test]
fn a_stream_that_waits_is_a_few_hundred_bytes() {
    const STREAMS: usize = 16;
    const BYTES_MAX_EACH: i64 = 256;
    let (http, taken) = pushing(Route::Inline);
    let mut server = TestServer::new(Conditions::calm(1), http);
    let mut senders = Vec::with_capacity(4 * STREAMS);
    let mut measured = |rounds: usize| {
        let clients: Vec<_> = (0..STREAMS).map(|_| server.connect()).collect();
        let mut ask = |request: &[u8]| {
            for client in &clients {
                client.write(request);
                server.settle();
                client.read();
                senders.extend(taken.try_recv().ok());
            }
        };
        // What the simulated kernel keeps of each client doubles now and then.
        (0..rounds).for_each(|_| ask(GET_PLAIN));
        let held = measure(|| ask(GET)).bytes_current;
        (clients, held / STREAMS as i64)
    };
    // The first ones warm up what all share; what doubles does so in one of the others at most.
    let groups = [8, 8, 9, 10].map(&mut measured);
    let bytes = groups[1..].iter().map(|(_, bytes)| *bytes).min();
    let bytes = bytes.expect("three groups");
    assert_eq!(senders.len(), groups.len() * STREAMS);
    assert!(
        bytes <= BYTES_MAX_EACH,
        "a waiting stream holds {bytes} bytes"
    );
}

/// What wraps a handler reads the body of its reply, and must not take a part for the whole.
#[test]
fn a_body_that_breaks_off_is_no_shorter_one_to_who_reads_it() {
    for aborts in [false, true] {
        let (sender, body) = Body::channel(BYTES_MAX);
        sender.send("part").expect("room");
        let Body::Channel(mut receiver) = body else {
            panic!("it is fed from elsewhere");
        };
        let mut room = [0; 10];
        assert_eq!(receiver.read(&mut room).expect("it is there"), 4);
        if aborts {
            sender.abort();
            let broken = receiver.read(&mut room).expect_err("not its end");
            assert_eq!(broken.kind(), ErrorKind::UnexpectedEof);
        } else {
            drop(sender);
            assert_eq!(receiver.read(&mut room).expect("its end"), 0);
        }
    }
}
