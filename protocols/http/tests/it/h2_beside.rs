//! Our server of HTTP/2 beside another one, that of the crate `h2`: what clients say that keep the
//! rules, in random order and pieces, and what of it is answered by both.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use flatpath_http::http::{Method, Response};
use flatpath_http::{Http, Router};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use h2::RecvStream;
use h2::server::{self, SendResponse};

use crate::h2_client::Pipe;
use crate::h2_frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, POST, PRIORITY,
    RESET, SETTINGS, WINDOW_UPDATE, frame, greeting, whole_frames,
};

const SEEDS: u64 = 60;
const STEPS: usize = 40;
const STREAMS: u32 = 12;
const LOOKS_MAX: usize = 1000;
const HELLO: &str = "hello";

/// What both answer on a stream: whether it has begun, the bytes of its body, and its end.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    has_begun: bool,
    body: Vec<u8>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Complete,
    Reset,
}

/// Answers by stream, PINGs that were answered, SETTINGS that were acknowledged, and GOAWAY.
type Heard = (BTreeMap<u32, Answer>, usize, usize, Option<Vec<u8>>);

fn heard(bytes: &[u8]) -> Heard {
    let (mut answers, mut pongs, mut told, mut goodbye) = (BTreeMap::new(), 0, 0, None);
    for frame in whole_frames(bytes) {
        let answer: &mut Answer = match frame.kind {
            HEADERS | DATA | RESET => answers.entry(frame.stream).or_default(),
            kind => {
                pongs += usize::from(kind == PING && frame.flags & ACK != 0);
                told += usize::from(kind == SETTINGS && frame.flags & ACK != 0);
                if kind == GOAWAY {
                    goodbye = Some(frame.payload[4..].to_vec());
                }
                continue;
            }
        };
        answer.has_begun |= frame.kind == HEADERS;
        match frame.kind {
            RESET => answer.end = Some(End::Reset),
            kind => {
                if kind == DATA {
                    answer.body.extend(frame.payload);
                }
                if frame.flags & END_STREAM != 0 {
                    answer.end = Some(End::Complete);
                }
            }
        }
    }
    (answers, pongs, told, goodbye)
}

/// What a client says, a part after the other.
struct Script {
    random: fastrand::Rng,
    /// Streams that a body may come on.
    open: Vec<u32>,
    next: u32,
}

impl Script {
    fn of(seed: u64) -> Vec<Vec<u8>> {
        let mut script = Script {
            random: fastrand::Rng::with_seed(seed),
            open: Vec::new(),
            next: 1,
        };
        let acknowledged = frame(SETTINGS, ACK, 0, &[]);
        let mut said = vec![[greeting(), acknowledged].concat()];
        said.extend((0..STEPS).map(|_| script.step()));
        // Nothing waits for a window or for a body.
        for stream in std::mem::take(&mut script.open) {
            said.push(frame(DATA, END_STREAM, stream, b"end"));
        }
        said.push(frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]));
        said
    }

    fn step(&mut self) -> Vec<u8> {
        match self.random.u8(..12) {
            0..=2 if self.next < 2 * STREAMS => self.asks(),
            3 => frame(PING, 0, 0, &[self.random.u8(..); 8]),
            4 => {
                let window = self.random.u16(..500).to_be_bytes();
                frame(SETTINGS, 0, 0, &[0, 4, 0, 0, window[0], window[1]])
            }
            5 => frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, self.random.u8(1..)]),
            6 => frame(PRIORITY, 0, self.next + 2, &[0, 0, 0, 0, 7]),
            7 => frame(0x42, self.random.u8(..), 0, b"unknown"),
            _ => self.goes_on(),
        }
    }

    fn asks(&mut self) -> Vec<u8> {
        let stream = self.next;
        self.next += 2 * self.random.u32(1..3);
        let (block, flags) = match self.random.bool() {
            true => (GET, END_STREAM),
            false => (POST, 0),
        };
        if flags == 0 {
            self.open.push(stream);
        }
        match self.random.bool() {
            true => frame(HEADERS, flags | END_HEADERS, stream, block),
            false => {
                let (first, rest) = block.split_at(self.random.usize(1..block.len()));
                let begin = frame(HEADERS, flags, stream, first);
                [begin, frame(CONTINUATION, END_HEADERS, stream, rest)].concat()
            }
        }
    }

    /// More of a body, its end, or a reset.
    fn goes_on(&mut self) -> Vec<u8> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let at = self.random.usize(..self.open.len());
        let stream = self.open[at];
        let body: Vec<u8> = (0..self.random.usize(..300))
            .map(|_| self.random.u8(b'a'..=b'z'))
            .collect();
        let ends = self.random.u8(..4) == 0;
        if ends {
            self.open.swap_remove(at);
        }
        let flags = if ends { END_STREAM } else { 0 };
        match self.random.u8(..8) {
            0 if ends => frame(RESET, 0, stream, &[0, 0, 0, 8]),
            1 if ends => {
                let end = frame(HEADERS, END_STREAM | END_HEADERS, stream, b"\x00\x01x\x01y");
                [frame(DATA, 0, stream, &body), end].concat()
            }
            2 => {
                let padded = [&[3], &body[..], &[0; 3]].concat();
                frame(DATA, flags | 0x8, stream, &padded)
            }
            _ => frame(DATA, flags, stream, &body),
        }
    }
}

fn of_ours(seed: u64, said: &[Vec<u8>]) -> Heard {
    let router = Router::new()
        .get("/", || HELLO)
        .post("/", |body: Bytes| body);
    let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
    let client = server.connect();
    let mut bytes = Vec::new();
    for part in said {
        if client.state() == ClientState::Open {
            client.write(part);
        }
        // What the client has not read holds back what follows it.
        for _ in 0..LOOKS_MAX {
            server.settle();
            match client.read() {
                more if more.is_empty() => break,
                more => bytes.extend(more),
            }
        }
    }
    heard(&bytes)
}

/// A request of the other one, whose body arrives.
struct Taken {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    is_get: bool,
    gathered: Vec<u8>,
}

impl Taken {
    /// True: it is done with.
    fn look(&mut self, context: &mut Context<'_>) -> bool {
        while let Poll::Ready(data) = self.body.poll_data(context) {
            match data {
                Some(Ok(data)) => {
                    self.gathered.extend_from_slice(&data);
                    let _released = self.body.flow_control().release_capacity(data.len());
                }
                Some(Err(_)) => return true,
                None => {
                    let body = match self.is_get {
                        true => HELLO.into(),
                        false => std::mem::take(&mut self.gathered),
                    };
                    let is_empty = body.is_empty();
                    if let Ok(mut stream) = self.respond.send_response(Response::new(()), is_empty)
                        && !is_empty
                    {
                        let _sent = stream.send_data(body.into(), true);
                    }
                    return true;
                }
            }
        }
        false
    }
}

fn of_theirs(said: &[Vec<u8>]) -> Heard {
    let pipe = Pipe::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut handshake = Some(server::Builder::new().handshake::<_, Bytes>(pipe.clone()));
    let (mut connection, mut taken) = (None, Vec::<Taken>::new());
    for part in said {
        pipe.0.borrow_mut().input.extend(part);
        for _ in 0..4 {
            if let Some(shaking) = &mut handshake
                && let Poll::Ready(shaken) = Pin::new(shaking).poll(&mut context)
            {
                (connection, handshake) = (shaken.ok(), None);
            }
            if let Some(open) = &mut connection {
                while let Poll::Ready(Some(Ok((request, respond)))) = open.poll_accept(&mut context)
                {
                    taken.push(Taken {
                        is_get: request.method() == Method::GET,
                        body: request.into_body(),
                        respond,
                        gathered: Vec::new(),
                    });
                }
            }
            taken.retain_mut(|it| !it.look(&mut context));
        }
    }
    let bytes = std::mem::take(&mut pipe.0.borrow_mut().output);
    heard(&bytes)
}

#[test]
fn model_a_client_that_keeps_the_rules_hears_the_same_from_another_server() {
    each_seed(SEEDS, |seed| {
        let said = Script::of(seed);
        let (mut ours, mut theirs) = (of_ours(seed, &said), of_theirs(&said));
        for (answers, ..) in [&mut ours, &mut theirs] {
            // Of a stream that its client has reset each may have said as much as it had.
            answers.retain(|_, it| it.end.is_some());
        }
        assert_eq!(ours, theirs);
        assert!(ours.0.len() > 1 && ours.3.is_none());
    });
}
