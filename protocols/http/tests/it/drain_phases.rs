//! A drain at each step of each way to ask: a plain request, an upload, one that awaits `100
//! Continue`, an upgrade, HTTP/2 from its preface and SETTINGS on. Every message of a client is cut
//! into pieces; the drain begins before any of them, the client is delayed before that one, before
//! all or before none, by less than an idle connection has, and workers are slow or not. In every
//! case the request is answered. For the server that hands over, a hand-over is this drain.

use bytes::Bytes;
use flatpath::{Context, Event, ListenerOptions, Phase, Protocol, Received, Successor};
use flatpath_http::{Http, Request, Router, routing, upgrade};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::h2_frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, POST, PREFACE, SETTINGS, frame, frames, whole_frames,
};

const TURNS_MAX: usize = 10_000;
const BODY_BYTES: usize = 20_000;

/// Sends back a line in capitals; told of a drain, it waits for one as long as it may.
struct Shout;

impl Protocol for Shout {
    type ThreadState = ();
    /// A part of a line has come.
    type Session = bool;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("shout")
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        *context.session = !input.ends_with(b"\n");
        if *context.session {
            context.phase(Phase::Head);
            return Received::NeedMore { consumed: 0 };
        }
        context.write(&input.to_ascii_uppercase()).expect("room");
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Draining => {
                if !*context.session {
                    context.restart_phase(Phase::Idle);
                }
            }
            other => other.by_default(context),
        }
    }
}

/// Answers with the length of the body, or upgrades.
fn http() -> impl Protocol {
    let shout = Successor::new(Shout);
    let upgrades = move |request: Request| {
        upgrade(&request, "shout", shout.begin(|| false)).unwrap_or_else(|it| *it)
    };
    let counts = |body: Bytes| format!("<{}>", body.len());
    let routes = Router::new()
        .get("/x", || "<0>")
        .route("/x", routing::put(counts))
        .post("/", counts)
        .get("/shout", upgrades);
    Http::service(routes)
}

/// What a client waits for before it says something.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    /// These words.
    Words(&'static str),
}

/// A message, and at how many bytes it is cut.
struct Message {
    after: After,
    bytes: Vec<u8>,
    cuts: &'static [usize],
}

fn message(after: After, bytes: &[u8], cuts: &'static [usize]) -> Message {
    Message {
        after,
        bytes: bytes.to_vec(),
        cuts,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Get,
    Put,
    Expect,
    Upgrade,
    Http2,
}

const WAYS: [Way; 5] = [Way::Get, Way::Put, Way::Expect, Way::Upgrade, Way::Http2];

const UPGRADED: &str = "101 Switching";

impl Way {
    fn messages(self) -> Vec<Message> {
        use After::{Nothing, Words};
        let body = [b'b'; BODY_BYTES];
        let put = format!("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: {BODY_BYTES}\r\n");
        match self {
            Way::Get => {
                let head = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
                vec![message(Nothing, head, &[2, 18])]
            }
            Way::Put => {
                let said = [put.as_bytes(), b"\r\n", &body].concat();
                vec![message(Nothing, &said, &[9, 300, 9_000])]
            }
            Way::Expect => {
                let head = format!("{put}Expect: 100-continue\r\n\r\n");
                let goes_on = Words("100 Continue\r\n\r\n");
                vec![
                    message(Nothing, head.as_bytes(), &[9]),
                    message(goes_on, &body, &[5_000]),
                ]
            }
            Way::Upgrade => {
                let head = b"GET /shout HTTP/1.1\r\nHost: h\r\n\
                    Connection: upgrade\r\nUpgrade: shout\r\n\r\n";
                vec![
                    message(Nothing, head, &[30]),
                    message(Words(UPGRADED), b"hello there\n", &[5]),
                ]
            }
            Way::Http2 => {
                let settings = frame(SETTINGS, 0, 0, &[]);
                let head = frame(HEADERS, END_HEADERS, 1, POST);
                let begins = frame(DATA, 0, 1, &body[..9_000]);
                let rest = frame(DATA, END_STREAM, 1, &body[9_000..18_000]);
                vec![
                    message(Nothing, PREFACE, &[2, 18]),
                    message(Nothing, &settings, &[4]),
                    message(Nothing, &head, &[9]),
                    message(Nothing, &begins, &[200]),
                    message(Nothing, &rest, &[]),
                ]
            }
        }
    }

    /// Whether the reply has come, whole; panics where it is a wrong one.
    fn is_answered(self, heard: &[u8]) -> bool {
        let text = String::from_utf8_lossy(heard);
        match self {
            Way::Get => text.ends_with("<0>"),
            Way::Put | Way::Expect => text.ends_with("<20000>"),
            Way::Upgrade => text.ends_with("HELLO THERE\n"),
            Way::Http2 => {
                assert!(
                    frames(heard)
                        .first()
                        .is_none_or(|(kind, _)| *kind == SETTINGS)
                );
                let mut frames = whole_frames(heard).into_iter();
                frames.any(|it| it.kind == DATA && it.stream == 1 && it.payload == b"<18000>")
            }
        }
    }
}

/// Before which pieces a client rests a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    None,
    AtDrain,
    Always,
}

struct Case {
    way: Way,
    drain_at: usize,
    delay: Delay,
    slow_turns: usize,
}

/// Runs one case; whether the drain began before the client was answered.
fn run(seed: u64, case: &Case) -> bool {
    let Case {
        way,
        drain_at,
        delay,
        slow_turns,
    } = *case;
    let conditions = Conditions::rough(seed);
    let rests = conditions.limits.drain_idle_timeout * 4 / 5;
    let mut server = TestServer::new(conditions, http());
    let what = format!("{way:?}, drain at {drain_at}, {delay:?}, {slow_turns} slow turns");
    let client = server.connect();
    while server.statistics().connections_accepted == 0 {
        server.turn();
    }
    let mut heard = Vec::new();
    let (mut step, mut drains) = (0, false);
    for message in way.messages() {
        let is_due = |heard: &[u8]| match message.after {
            After::Nothing => true,
            After::Words(words) => String::from_utf8_lossy(heard).contains(words),
        };
        wait(&mut server, &client, &mut heard, &what, is_due);
        let mut from = 0;
        for to in message.cuts.iter().copied().chain([message.bytes.len()]) {
            let is_now = step == drain_at;
            if is_now {
                server.drain();
                drains = true;
            }
            if delay == Delay::Always || is_now && delay == Delay::AtDrain {
                (0..4).for_each(|_| server.turn());
                server.advance(rests);
                (0..4).for_each(|_| server.turn());
            }
            heard.extend(client.read());
            client.write(&message.bytes[from..to]);
            (0..slow_turns).for_each(|_| server.turn_without_workers());
            from = to;
            step += 1;
        }
    }
    wait(&mut server, &client, &mut heard, &what, |heard| {
        way.is_answered(heard)
    });
    drop(client);
    server.drain();
    drains
}

/// Lets the server run until what was heard is enough.
fn wait(
    server: &mut TestServer,
    client: &Client,
    heard: &mut Vec<u8>,
    what: &str,
    is_enough: impl Fn(&[u8]) -> bool,
) {
    for _ in 0..TURNS_MAX {
        // The state before the bytes: what is there at the end is read.
        let state = client.state();
        heard.extend(client.read());
        if is_enough(heard) {
            return;
        }
        let words = String::from_utf8_lossy(heard);
        assert_eq!(state, ClientState::Open, "{what}: ended after {words:?}");
        server.turn();
    }
    panic!("{what}: no end");
}

#[test]
fn sim_a_drain_at_each_step_of_each_request_loses_none() {
    each_seed(6, |seed| {
        for way in WAYS {
            for delay in [Delay::None, Delay::AtDrain, Delay::Always] {
                for slow_turns in [0, 6] {
                    let at = |drain_at| Case {
                        way,
                        drain_at,
                        delay,
                        slow_turns,
                    };
                    let steps = (0..).take_while(|step| run(seed, &at(*step))).count();
                    let pieces: usize = way.messages().iter().map(|it| it.cuts.len() + 1).sum();
                    assert_eq!(steps, pieces, "{way:?}");
                }
            }
        }
    });
}
