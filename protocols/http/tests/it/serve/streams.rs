//! Bodies that are read while they are sent.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flatpath::{DriverChoice, Handle, Limits, Server, ServerState};
use flatpath_http::{Body, Http, Request, Response};

use flatpath_testkit::client::{Client, Ending};
use flatpath_testkit::until_true;

use crate::on_each_driver;
use crate::serve::{get, serve, start};

on_each_driver!(
    streams_arrive_whole_in_every_framing,
    inline_handlers_may_stream_too,
    a_stream_that_breaks_off_looks_broken,
    a_slow_reader_holds_neither_a_worker_nor_much_memory,
    streams_go_on_when_memory_is_short,
    head_of_a_stream_has_no_body,
    a_stream_that_was_read_in_a_drain_is_followed_by_one_more_reply,
);

/// Counts up; breaks off at a given byte.
struct Source {
    at: u64,
    end: u64,
    piece: usize,
    breaks: Break,
    read: Arc<AtomicU64>,
    /// Every second read is interrupted, as if by a signal.
    interrupted: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Break {
    Never,
    Error,
    Panic,
}

impl Read for Source {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if !self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.at == self.end {
            match self.breaks {
                Break::Never => return Ok(0),
                Break::Error => return Err(io::Error::other("broken on purpose")),
                Break::Panic => panic!("this reader panics on purpose"),
            }
        }
        let left = usize::try_from(self.end - self.at).expect("it fits");
        let bytes = room.len().min(self.piece).min(left);
        for byte in &mut room[..bytes] {
            *byte = pattern(self.at);
            self.at += 1;
        }
        self.read.fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(bytes)
    }
}

fn pattern(at: u64) -> u8 {
    u8::try_from(at * 31 % 251).expect("a byte")
}

fn is_pattern(body: &[u8], bytes: u64) -> bool {
    body.len() as u64 == bytes && (0..).zip(body).all(|(at, byte)| *byte == pattern(at))
}

/// `/BYTES/PIECE/KIND`: this many bytes, read in pieces of that size, with their length (`t`) or
/// without (`u`), with a greater length (`m`), or broken off by an error (`e`) or a panic (`p`).
fn stream(request: &Request, read: &Arc<AtomicU64>) -> Response {
    let mut words = request.uri().path()[1..].split('/');
    let end: u64 = words
        .next()
        .and_then(|word| word.parse().ok())
        .expect("bytes");
    let piece = words
        .next()
        .and_then(|word| word.parse().ok())
        .expect("piece");
    let kind = words.next().expect("kind");
    let breaks = match kind {
        "e" => Break::Error,
        "p" => Break::Panic,
        _ => Break::Never,
    };
    let length = match kind {
        "t" => Some(end),
        "m" => Some(end + 1),
        _ => None,
    };
    let source = Source {
        at: 0,
        end,
        piece,
        breaks,
        read: Arc::clone(read),
        interrupted: false,
    };
    Response::new(Body::reader(source, length))
}

fn streaming() -> impl Fn(&Request) -> Response + Send + Sync + 'static {
    let read = Arc::new(AtomicU64::new(0));
    move |request| stream(request, &read)
}

fn all_framings(mut client: Client) {
    for bytes in [0, 1, 1000, 65_472, 65_473, 1_000_000, 5_000_000] {
        for piece in [100_000, 5000] {
            let stated = client.get(&format!("/{bytes}/{piece}/t"));
            assert_eq!(
                stated.field("content-length"),
                Some(bytes.to_string().as_str())
            );
            assert!(is_pattern(&stated.body, bytes), "{bytes} bytes");
            let chunked = client.get(&format!("/{bytes}/{piece}/u"));
            assert_eq!(chunked.field("transfer-encoding"), Some("chunked"));
            assert!(is_pattern(&chunked.body, bytes), "{bytes} bytes in chunks");
        }
    }
    let old = client.exchange("GET /1000000/7000/u HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(old.says_close() && old.field("transfer-encoding").is_none());
    assert!(is_pattern(&old.body, 1_000_000), "up to the close");
}

fn streams_arrive_whole_in_every_framing(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::pooled(streaming()));
    all_framings(Client::connect(address));
}

fn inline_handlers_may_stream_too(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::inline(streaming()));
    all_framings(Client::connect(address));
}

fn a_stream_that_breaks_off_looks_broken(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::pooled(streaming()));
    for kind in ["m", "e", "p"] {
        for bytes in [0, 10, 200_000] {
            let mut client = Client::connect(address);
            client.send(get(&format!("/{bytes}/50000/{kind}")));
            let head = client.reply_to_head();
            assert_eq!(head.status, 200);
            let (body, _) = client.rest();
            match head.field("content-length") {
                Some(length) => assert!((body.len() as u64) < length.parse().expect("a number")),
                None => assert!(!body.ends_with(b"0\r\n\r\n"), "a last chunk would be a lie"),
            }
        }
        let mut old = Client::connect(address);
        old.send(format!("GET /300000/50000/{kind} HTTP/1.0\r\n\r\n"));
        if kind != "m" {
            assert_eq!(
                old.rest().1,
                Ending::Reset,
                "a close would be the end of the body"
            );
        }
    }
    assert_eq!(
        Client::connect(address).get("/5/5/t").body.len(),
        5,
        "the server lives"
    );
}

fn a_slow_reader_holds_neither_a_worker_nor_much_memory(choice: DriverChoice) {
    const LARGE: u64 = 1 << 40;
    let read = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&read);
    let http = Http::pooled(move |request: &Request| stream(request, &counter));
    let (_server, address) = start(Server::new().workers(1..=1), choice, http);
    let mut slow: Vec<Client> = (0..5).map(|_| Client::connect(address)).collect();
    for client in &mut slow {
        client.send(get(&format!("/{LARGE}/100000/t")));
        assert_eq!(client.reply_to_head().status, 200);
    }
    let mut other = Client::connect(address);
    let mut before = 0;
    loop {
        assert!(
            is_pattern(&other.get("/1000/1000/t").body, 1000),
            "the one worker is free"
        );
        std::thread::sleep(Duration::from_millis(50));
        let now = read.load(Ordering::SeqCst);
        // What the sockets and the output hold is read; then only our own requests are.
        if now - before <= 2000 {
            break;
        }
        before = now;
    }
    assert!(
        before < 5 * 64 * 1024 * 1024,
        "{before} bytes were read for clients that read none"
    );
}

fn streams_go_on_when_memory_is_short(choice: DriverChoice) {
    let limits = Limits {
        buffer_bytes_max: 96 * 1024,
        ..Limits::default()
    };
    let server = Server::new().workers(2..=4).limits(limits);
    let (_server, address) = start(server, choice, Http::pooled(streaming()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for _ in 0..3 {
                    assert!(is_pattern(&client.get("/300000/100000/u").body, 300_000));
                }
            });
        }
    });
}

fn head_of_a_stream_has_no_body(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::pooled(streaming()));
    let mut client = Client::connect(address);
    client.send("HEAD /1000/1000/t HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.reply_to_head().field("content-length"), Some("1000"));
    client.send("HEAD /1000/1000/u HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(
        client.reply_to_head().field("transfer-encoding"),
        Some("chunked")
    );
    assert!(is_pattern(&client.get("/5/5/t").body, 5));
}

/// What is left of a mebibyte: the second half of it is read when the server drains.
struct ByDrain(Handle, usize);

const MEBIBYTE: usize = 1 << 20;

impl Read for ByDrain {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.1 <= MEBIBYTE / 2 {
            until_true("the drain", || self.0.state() >= ServerState::Draining);
        }
        let bytes = room.len().min(self.1);
        room[..bytes].fill(b'x');
        self.1 -= bytes;
        Ok(bytes)
    }
}

fn a_stream_that_was_read_in_a_drain_is_followed_by_one_more_reply(choice: DriverChoice) {
    let limits = Limits {
        // The client takes its time: a test that waits for this fails.
        drain_idle_timeout: Duration::from_secs(600),
        drain_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let handle = Arc::new(OnceLock::<Handle>::new());
    let server_handle = Arc::clone(&handle);
    let http = Http::pooled(move |_: Request| {
        let handle = server_handle.get().expect("set before the first request");
        let source = ByDrain(handle.clone(), MEBIBYTE);
        Response::new(Body::reader(source, Some(MEBIBYTE as u64)))
    });
    let (server, address) = start(Server::new().limits(limits), choice, http);
    assert!(handle.set(server.handle()).is_ok());
    let mut client = Client::connect(address);
    client.send(get("/"));
    assert!(!client.reply_to_head().says_close(), "nothing drains yet");
    server.handle().drain();
    assert_eq!(client.exactly(MEBIBYTE), vec![b'x'; MEBIBYTE]);
    let next = client.get("/");
    assert!(next.body.len() == MEBIBYTE && next.says_close());
    assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
    server.wait().expect("ends");
}
