//! Tunnels on streams of HTTP/2 (RFC 8441), as a crate of a protocol has them: a conversation of
//! lines, what of it has to wait, and how its stream ends.

use std::any::Any;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flatpath::access_log::LogFormat;
use flatpath::{DriverChoice, Phase, Received, Server, Stall};
use flatpath_http::http::{Method, Request as Asked, StatusCode};
use flatpath_http::{
    Http, Request, Response, Router, Service, Tunnel, TunnelStream, TunnelWork, tunnel,
};
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_testkit::Client;
use h2::Reason;
use h2::client::Builder;
use h2::ext::Protocol;

use crate::h2_client::Peer;
use crate::h2_frames::{END_HEADERS, END_STREAM, HEADERS, RESET, frame, greeting};
use crate::on_each_driver;
use crate::serve::admission::Kept;
use crate::serve::start;

const SEEDS: u64 = 20;

/// What a line holds.
const HELD_BYTES: usize = 64 * 1024;

on_each_driver!(the_log_says_200_of_a_tunnel_and_how_it_ended);

/// What tunnels were told, in its order.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("no panic").push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    pub(crate) fn has(&self, what: &str) -> bool {
        self.all().iter().any(|it| it == what)
    }
}

/// Answers lines: `work` by a worker, `close` and `abort` by the end of the stream, any other by
/// itself.
struct Lines {
    told: Told,
    /// A worker has something of it.
    is_working: bool,
    /// It does not end with its client, but with its second deadline.
    stays: bool,
    /// What it keeps of the server's memory.
    held: Vec<Bytes>,
}

/// What a line waits for.
struct Waits(Stall);

impl Drop for Lines {
    fn drop(&mut self) {
        self.told.note("dropped");
    }
}

impl Lines {
    /// Keeps some of the server's memory until it ends.
    fn hold(&mut self, stream: &mut TunnelStream<'_, '_>) -> Result<(), Waits> {
        let held = stream.io.hold(vec![0; HELD_BYTES].into());
        self.held.push(held.map_err(|_| Waits(Stall::Memory))?);
        stream.write(Bytes::from_static(b"held\n"));
        Ok(())
    }

    /// Answers a line, unless it has to wait.
    fn answer(&mut self, stream: &mut TunnelStream<'_, '_>, line: &[u8]) -> Result<(), Waits> {
        match line {
            b"work\n" if !stream.has_job() => {
                return Err(Waits(match stream.is_working() {
                    true => Stall::Body,
                    false => Stall::Jobs,
                }));
            }
            b"wait\n" if stream.has_output() => return Err(Waits(Stall::Output)),
            b"wait\n" => {
                self.told.note("all has left");
                stream.write(Bytes::from_static(b"waited\n"));
            }
            b"work\n" => {
                if std::mem::replace(&mut self.is_working, true) {
                    self.told.note("two at once");
                }
                stream.dispatch(Box::new(Work("")), true);
            }
            b"stay\n" => self.stays = true,
            b"close\n" => {
                stream.write(Bytes::from_static(b"bye\n"));
                stream.close();
            }
            b"abort\n" => {
                stream.write(Bytes::from_static(b"never sent\n"));
                stream.abort();
            }
            b"anew\n" => stream.restart_phase(Phase::Idle),
            b"hold\n" => self.hold(stream)?,
            b"take all\n" => while self.hold(stream).is_ok() {},
            b"push\n" => stream.phase(Phase::Push),
            b"body\n" => stream.phase(Phase::Body),
            line => stream.write(Bytes::copy_from_slice(line)),
        }
        Ok(())
    }
}

impl Tunnel for Lines {
    fn connected(&mut self, stream: &mut TunnelStream<'_, '_>) {
        self.told.note("connected");
        stream.write(Bytes::from_static(b"hello\n"));
        assert!(stream.has_output());
    }

    fn received(&mut self, stream: &mut TunnelStream<'_, '_>, input: &[u8]) -> Received {
        let mut consumed = 0;
        for line in input.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            if let Err(Waits(on)) = self.answer(stream, line) {
                return Received::Blocked { consumed, on };
            }
            consumed += line.len();
        }
        Received::NeedMore { consumed }
    }

    fn input_ended(&mut self, stream: &mut TunnelStream<'_, '_>) {
        self.told.note("input ended");
        if self.stays {
            return;
        }
        stream.write(Bytes::from_static(b"end\n"));
        stream.close();
    }

    fn finished(&mut self, stream: &mut TunnelStream<'_, '_>, work: Box<dyn TunnelWork>) {
        let work = work.into_any().downcast::<Work>().expect("it is ours");
        self.is_working = false;
        stream.write(Bytes::from_static(work.0.as_bytes()));
    }

    fn woken(&mut self, stream: &mut TunnelStream<'_, '_>) {
        if !stream.has_output() {
            self.told.note("woken");
        }
    }

    fn draining(&mut self, stream: &mut TunnelStream<'_, '_>) {
        self.told.note("draining");
        stream.write(Bytes::from_static(b"leaving\n"));
        stream.close();
    }

    fn expired(&mut self, stream: &mut TunnelStream<'_, '_>, phase: Phase) {
        self.told.note(format!("{phase:?} is over"));
        match phase {
            Phase::Push => stream.write(Bytes::from_static(b"still here\n")),
            _ if std::mem::take(&mut self.stays) => {}
            _ => stream.close(),
        }
    }
}

struct Work(&'static str);

impl TunnelWork for Work {
    fn run(&mut self) {
        self.0 = "worked\n";
    }

    fn panicked(&mut self) {
        self.0 = "panicked\n";
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

pub(crate) fn service(told: &Told) -> Http<impl Service> {
    let told = told.clone();
    let lines = move |request: Request| -> Response {
        let lines = Lines {
            told: told.clone(),
            is_working: false,
            stays: false,
            held: Vec::new(),
        };
        let opened = tunnel(&request, "lines", Box::new(lines));
        opened.unwrap_or_else(|refusal| *refusal)
    };
    let router = Router::new()
        .get("/lines", lines)
        .get("/page", || "page")
        .post("/count", |body: Bytes| body.len().to_string());
    Http::service(router)
}

pub(crate) fn asked(path: &str) -> Asked<()> {
    let asked = Asked::builder().method(Method::CONNECT);
    let asked = asked.uri(format!("http://h{path}"));
    let asked = asked.extension(Protocol::from_static("lines"));
    asked.body(()).expect("a request")
}

/// A tunnel that has begun, in a server.
pub(crate) struct Talk {
    pub(crate) server: TestServer,
    pub(crate) peer: Peer,
    pub(crate) index: usize,
    pub(crate) told: Told,
}

impl Talk {
    pub(crate) fn begin(conditions: Conditions) -> Talk {
        let told = Told::default();
        let mut server = TestServer::new(conditions, service(&told));
        let mut peer = Peer::new(&mut server);
        let index = peer.ask(asked("/lines"), Some(Bytes::new()));
        let mut talk = Talk {
            server,
            peer,
            index,
            told,
        };
        talk.until_heard("hello\n");
        talk
    }

    pub(crate) fn say(&mut self, words: &str) {
        self.peer.feed(self.index, words.as_bytes(), false);
    }

    pub(crate) fn until_heard(&mut self, words: &str) {
        let index = self.index;
        let heard = |peer: &Peer| peer.reply(index).text().len() >= words.len();
        self.peer.until(&mut self.server, heard);
        assert_eq!(self.peer.reply(index).text(), words);
    }

    pub(crate) fn until_told(&mut self, what: &str) {
        let told = self.told.clone();
        self.peer.until(&mut self.server, |_| told.has(what));
    }

    fn end(&mut self) -> Result<(), Option<Reason>> {
        let index = self.index;
        let has_ended = |peer: &Peer| peer.reply(index).end.is_some();
        self.peer.until(&mut self.server, has_ended);
        self.peer.reply(index).end.expect("it has ended")
    }
}

#[test]
fn sim_a_tunnel_is_a_200_without_the_fields_of_a_connection() {
    each_seed(SEEDS, |seed| {
        let mut talk = Talk::begin(Conditions::rough(seed));
        let reply = talk.peer.reply(talk.index);
        assert_eq!(reply.status, Some(StatusCode::OK));
        for name in [
            "upgrade",
            "connection",
            "content-length",
            "transfer-encoding",
        ] {
            assert!(!reply.headers.contains_key(name), "{name}");
        }
        talk.say("close\n");
        assert_eq!(talk.end(), Ok(()));
        talk.until_told("dropped");
    });
}

#[test]
fn sim_what_is_left_of_lines_waits_for_the_rest_and_for_workers() {
    each_seed(SEEDS, |seed| {
        let mut talk = Talk::begin(Conditions::rough(seed));
        let said = "one\ntwo\nwork\nthree\nwork\nwork\nfour\n";
        let heard = "hello\none\ntwo\nworked\nthree\nworked\nworked\nfour\n";
        let piece_bytes = [1, 2, 3, 5, 8, said.len()][seed as usize % 6];
        for piece in said.as_bytes().chunks(piece_bytes) {
            talk.say(std::str::from_utf8(piece).expect("ASCII"));
            if seed % 2 == 0 {
                talk.peer.step(&mut talk.server);
            }
        }
        let index = talk.index;
        let is_whole = |peer: &Peer| peer.reply(index).body.len() >= heard.len();
        talk.peer.until(&mut talk.server, is_whole);
        let mut words: Vec<_> = talk.peer.reply(index).text().lines().collect();
        // What a worker has may be answered after what follows it.
        let others: Vec<_> = words.extract_if(.., |it| *it != "worked").collect();
        assert_eq!(others, ["hello", "one", "two", "three", "four"], "{seed}");
        assert_eq!(words.len(), 3);
        talk.until_told("woken");
        assert!(!talk.told.has("two at once"), "one thing is with a worker");
    });
}

#[test]
fn sim_what_is_said_before_it_begins_comes_first_and_its_end_last() {
    each_seed(SEEDS, |seed| {
        let told = Told::default();
        let mut server = TestServer::new(Conditions::rough(seed), service(&told));
        let mut peer = Peer::new(&mut server);
        let index = peer.ask(asked("/lines"), Some(Bytes::new()));
        peer.feed(index, b"ear", false);
        (0..20).for_each(|_| peer.step_without_workers(&mut server));
        peer.feed(index, b"ly\nlate\nbeginning of", true);
        (0..20).for_each(|_| peer.step_without_workers(&mut server));
        peer.finish(&mut server);
        let reply = peer.reply(index);
        assert_eq!(reply.text(), "hello\nearly\nlate\nend\n", "seed {seed}");
        assert_eq!(reply.end, Some(Ok(())));
        let ends = told.all().iter().filter(|it| *it == "input ended").count();
        assert_eq!(ends, 1, "seed {seed}");
    });
}

/// What one conversation says, less than a stream may without windows. Eight times as much is more
/// than a connection may.
const MUCH: usize = 200_000;

/// Has eight conversations on a connection, and looks that it can be used after them.
#[track_caller]
fn eight_times(act: impl Fn(&mut TestServer, &mut Peer)) {
    let mut server = TestServer::new(Conditions::calm(1), service(&Told::default()));
    // What one reply takes of it is not given back where the client does not read.
    let mut builder = Builder::new();
    builder.initial_connection_window_size(1 << 24);
    let mut peer = Peer::with(&mut server, &builder);
    for _ in 0..8 {
        act(&mut server, &mut peer);
        (0..10).for_each(|_| peer.step(&mut server));
    }
    let upload = Asked::post("http://h/count").body(()).expect("a request");
    let index = peer.ask(upload, Some(Bytes::new()));
    peer.feed(index, &[b'x'; MUCH], true);
    peer.until(&mut server, |peer| peer.reply(index).end.is_some());
    let reply = peer.reply(index);
    let outcome = (reply.end, reply.status, reply.text(), peer.end);
    let count = MUCH.to_string();
    assert_eq!(outcome, (Some(Ok(())), Some(StatusCode::OK), &*count, None));
}

/// Asks for a tunnel and says much to it before it can begin.
fn say_early(server: &mut TestServer, peer: &mut Peer, path: &str) -> usize {
    let index = peer.ask(asked(path), Some(Bytes::new()));
    peer.feed(index, &[b'x'; MUCH], false);
    (0..20).for_each(|_| peer.step_without_workers(server));
    index
}

#[test]
fn sim_windows_are_given_back_for_what_is_taken() {
    eight_times(|server, peer| {
        let index = peer.ask(asked("/lines"), Some(Bytes::new()));
        let line = "x".repeat(999) + "\n";
        (0..MUCH / 1000).for_each(|_| peer.feed(index, line.as_bytes(), false));
        peer.feed(index, b"close\n", false);
        peer.until(server, |peer| peer.reply(index).end.is_some());
        assert_eq!(peer.reply(index).body.len(), MUCH + "hello\nbye\n".len());
    });
}

#[test]
fn sim_windows_are_given_back_for_what_is_said_to_no_tunnel() {
    eight_times(|server, peer| {
        let index = say_early(server, peer, "/page");
        peer.until(server, |peer| peer.reply(index).end.is_some());
        assert_eq!(peer.reply(index).status, Some(StatusCode::NOT_IMPLEMENTED));
    });
}

#[test]
fn sim_windows_are_given_back_for_a_tunnel_that_is_reset_before_it_begins() {
    eight_times(|server, peer| {
        let index = say_early(server, peer, "/lines");
        peer.reset(index);
    });
}

#[test]
fn sim_windows_are_given_back_for_what_a_tunnel_left_that_is_reset() {
    eight_times(|server, peer| {
        let index = say_early(server, peer, "/lines");
        peer.until(server, |peer| peer.reply(index).status.is_some());
        peer.reset(index);
    });
}

#[test]
fn sim_windows_are_given_back_for_what_is_said_to_a_tunnel_that_has_ended() {
    eight_times(|server, peer| {
        peer.reads = false;
        let index = peer.ask(asked("/lines"), Some(Bytes::new()));
        peer.feed(index, &[&[b'x'; 100_000][..], b"\nclose\n"].concat(), false);
        (0..20).for_each(|_| peer.step(server));
        peer.feed(index, &[b'x'; MUCH], false);
        (0..20).for_each(|_| peer.step(server));
        assert_eq!(peer.reply(index).end, None, "its words wait");
        assert!(peer.reply(index).body.len() < 100_000, "its words wait");
        peer.reset(index);
        peer.reads = true;
    });
}

#[test]
fn sim_a_line_may_wait_until_what_was_said_has_left() {
    each_seed(SEEDS, |seed| {
        let mut talk = Talk::begin(Conditions::rough(seed));
        talk.say("one\nwait\ntwo\nwait\nthree\n");
        talk.until_heard("hello\none\nwaited\ntwo\nwaited\nthree\n");

        // It has not while the window of its client is full.
        let mut talk = Talk::begin(Conditions::rough(seed));
        talk.peer.reads = false;
        talk.say(&("x".repeat(100_000) + "\nwait\n"));
        (0..100).for_each(|_| talk.peer.step(&mut talk.server));
        assert!(!talk.told.has("all has left"), "seed {seed}");
    });
}

#[test]
fn a_connection_of_http_1_is_no_tunnel() {
    let mut server = TestServer::new(Conditions::calm(1), service(&Told::default()));
    let client = server.connect();
    client.write(b"GET /lines HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\n");
    client.write(b"Upgrade: lines\r\n\r\n");
    let line = server.read_line(&client);
    assert!(line.starts_with("HTTP/1.1 426 "), "{line}");
}

#[test]
fn sim_the_end_of_a_client_is_told_once() {
    let mut talk = Talk::begin(Conditions::calm(1));
    talk.say("stay\n");
    talk.peer.feed(talk.index, b"", true);
    talk.until_told("input ended");
    for _ in 0..3 {
        let page = talk.peer.get("/page");
        let has_ended = |peer: &Peer| peer.reply(page).end.is_some();
        talk.peer.until(&mut talk.server, has_ended);
    }
    assert_eq!(talk.end(), Ok(()));
    let told = talk.told.all();
    assert_eq!(told.iter().filter(|it| *it == "input ended").count(), 1);
    let deadlines = told.iter().filter(|it| *it == "Idle is over").count();
    assert_eq!(deadlines, 2, "{told:?}");
}

#[test]
fn sim_a_tunnel_that_begins_in_a_drain_is_told_of_it() {
    let told = Told::default();
    let mut server = TestServer::new(Conditions::calm(1), service(&told));
    let mut peer = Peer::new(&mut server);
    let index = peer.ask(asked("/lines"), Some(Bytes::new()));
    (0..20).for_each(|_| peer.step_without_workers(&mut server));
    server.drain();
    (0..20).for_each(|_| peer.step_without_workers(&mut server));
    peer.until(&mut server, |peer| peer.reply(index).end.is_some());
    assert_eq!(peer.reply(index).text(), "hello\nleaving\n");
}

#[test]
fn sim_a_tunnel_ends_its_stream_after_its_words_or_by_a_reset() {
    each_seed(SEEDS, |seed| {
        let mut talk = Talk::begin(Conditions::rough(seed));
        talk.say("close\nunheard\n");
        assert_eq!(talk.end(), Ok(()));
        let text = talk.peer.reply(talk.index).text();
        assert!(text.starts_with("hello\nbye\n"), "{text}");

        let mut talk = Talk::begin(Conditions::rough(seed));
        talk.say("abort\n");
        assert_eq!(talk.end(), Err(Some(Reason::CANCEL)));
        assert_eq!(talk.peer.reply(talk.index).text(), "hello\n");

        let mut talk = Talk::begin(Conditions::rough(seed));
        talk.say("work\n");
        talk.peer.step_without_workers(&mut talk.server);
        talk.peer.reset(talk.index);
        talk.until_told("dropped");
        let page = talk.peer.get("/page");
        talk.peer
            .until(&mut talk.server, |peer| peer.reply(page).end.is_some());
        assert_eq!(talk.peer.reply(page).text(), "page");
    });
}

#[test]
fn sim_a_drain_and_a_deadline_are_told_to_it() {
    let mut talk = Talk::begin(Conditions::calm(1));
    talk.server.drain();
    assert_eq!(talk.end(), Ok(()));
    assert_eq!(talk.peer.reply(talk.index).text(), "hello\nleaving\n");
    assert!(talk.told.has("draining"));

    for (words, told) in [("", "Idle is over"), ("body\n", "Body is over")] {
        let mut talk = Talk::begin(Conditions::calm(1));
        talk.say(words);
        assert_eq!(talk.end(), Ok(()));
        assert!(talk.told.has(told), "{:?}", talk.told.all());
    }

    let mut talk = Talk::begin(Conditions::calm(1));
    talk.say("push\n");
    talk.until_heard("hello\nstill here\n");
    assert!(!talk.told.has("Idle is over"), "{:?}", talk.told.all());
}

/// `CONNECT` for the protocol `lines`, as a block.
fn block() -> Vec<u8> {
    let mut block = vec![0x86];
    for (name, value) in [
        (":method", "CONNECT"),
        (":protocol", "lines"),
        (":path", "/lines"),
        (":authority", "h"),
    ] {
        for text in [name, value] {
            if text == name {
                block.push(0);
            }
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend(text.as_bytes());
        }
    }
    block
}

fn the_log_says_200_of_a_tunnel_and_how_it_ended(choice: DriverChoice) {
    let kept = Kept::default();
    let server = Server::new().workers(2..=4);
    let server = server.access_log(LogFormat::Json, Arc::new(kept.clone()));
    let (_server, address) = start(server, choice, service(&Told::default()));
    for (words, is_aborted) in [("close\n", false), ("abort\n", true)] {
        let mut client = Client::connect(address);
        client.send(greeting());
        client.send(frame(HEADERS, END_HEADERS, 1, &block()));
        client.send(frame(0, 0, 1, words.as_bytes()));
        loop {
            let head = client.exactly(9);
            let bytes = usize::from(head[1]) << 8 | usize::from(head[2]);
            drop(client.exactly(bytes));
            if head[3] == RESET || head[3] == 0 && head[4] & END_STREAM != 0 {
                break;
            }
        }
        client.send(frame(RESET, 0, 1, &[0, 0, 0, 8]));
        let line = kept.line();
        assert!(line.contains("\"status\":200"), "{line}");
        assert!(
            line.contains(&format!("\"aborted\":{is_aborted}")),
            "{line}"
        );
    }
}
