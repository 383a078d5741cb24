//! A drain at each step of each way in which a connection begins: a plain request, the header of a
//! load balancer, handshakes of TLS, TLS that a protocol begins, with a short request and a long
//! upload after it. For the server that hands over, a hand-over is this drain.
//!
//! Every message of a client is cut into two pieces, each of which is a step. The drain begins
//! before any of them, the client is delayed before that one, before all or before none, by less
//! than an idle connection has, and workers are slow or not. In every case the request is answered:
//! each phase is run through to its end, whatever comes between two of its steps.

use std::net::SocketAddr;

use crate::headers::line;
use crate::tls_client::{TlsClient, VERSIONS, client_config, server_config};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{
    Context, Event, Job, ListenerOptions, Phase, Protocol, Received, Stall, WorkerScope,
};
use flatpath_driver::simulation::{Client, ClientState, Fault, each_seed};

const TURNS_MAX: usize = 10_000;
/// More than the input that is kept of a connection, and than arrives in one turn.
const LONG: usize = 200_000;

/// One request for each connection, a line: `tls`, or `put N` followed by as many bytes. As HTTP
/// does, it lets a client that has asked for nothing yet ask within the time of an idle connection.
struct Uploads;

#[derive(Default)]
enum Session {
    #[default]
    Head,
    Part,
    Body {
        bytes: usize,
        left: usize,
    },
    AtWork,
    Answered,
}

impl Uploads {
    /// How much of the input it has taken.
    fn head(context: &mut Context<'_, Self>, input: &[u8]) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            if !input.is_empty() {
                *context.session = Session::Part;
                context.phase(Phase::Head);
            }
            return 0;
        };
        let line = std::str::from_utf8(&input[..end]).expect("text");
        match line.strip_prefix("put ") {
            Some(bytes) => {
                let bytes = bytes.parse().expect("a number");
                *context.session = Session::Body { bytes, left: bytes };
                context.restart_phase(Phase::Body);
            }
            None => {
                assert_eq!(line, "tls");
                *context.session = Session::Head;
                assert!(context.start_tls());
                context.write(b"begin\n").expect("room");
            }
        }
        end + 1
    }
}

impl Protocol for Uploads {
    type ThreadState = ();
    type Session = Session;
    type Job = usize;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            alpn: &["lines"],
            ..ListenerOptions::named("uploads")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            match *context.session {
                Session::Head | Session::Part => {
                    consumed += Self::head(context, rest);
                    if !matches!(context.session, Session::Body { .. }) {
                        return Received::NeedMore { consumed };
                    }
                }
                Session::Body { bytes, left } if left > rest.len() => {
                    let left = left - rest.len();
                    *context.session = Session::Body { bytes, left };
                    return Received::Consumed;
                }
                Session::Body { bytes, left } => {
                    let Some(mut job) = context.job() else {
                        let on = Stall::Jobs;
                        return Received::Blocked { consumed, on };
                    };
                    *job = bytes;
                    context.dispatch(job);
                    context.phase(Phase::Work);
                    *context.session = Session::AtWork;
                    consumed += left;
                }
                Session::AtWork | Session::Answered => return Received::NeedMore { consumed },
            }
        }
    }

    fn run(&self, _: &mut usize, _: &mut WorkerScope<'_>) {}

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        let reply = format!("done {}\n", *job);
        context.write(reply.as_bytes()).expect("room");
        context.recycle(job);
        *context.session = Session::Answered;
        context.close_lingering();
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Draining => {
                if matches!(context.session, Session::Head) {
                    context.restart_phase(Phase::Idle);
                }
            }
            other => other.by_default(context),
        }
    }
}

/// What comes before a request.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Header,
    Tls(usize),
    HeaderThenTls,
    StartsTls,
}

const WAYS: [Way; 6] = [
    Way::Plain,
    Way::Header,
    Way::Tls(0),
    Way::Tls(1),
    Way::HeaderThenTls,
    Way::StartsTls,
];

const BALANCER: &str = "10.1.2.3:4000";

impl Way {
    fn has_header(self) -> bool {
        matches!(self, Way::Header | Way::HeaderThenTls)
    }

    fn has_tls(self) -> bool {
        !matches!(self, Way::Plain | Way::Header)
    }

    fn conditions(self, seed: u64) -> Conditions {
        let mut conditions = Conditions::calm(seed);
        // A receive that is cancelled brings what has come till then: more than is kept.
        conditions.faults = conditions.faults.with(Fault::CancelRace, 1_000);
        conditions.driver.receive_buffer_bytes = 16 * 1024;
        conditions.driver.receive_buffers = 128;
        let networks = vec!["10.1.0.0/16".parse().expect("a network")];
        conditions.balancers = self.has_header().then_some(networks);
        conditions.tls = self.has_tls().then(server_config);
        conditions.starts_tls = matches!(self, Way::StartsTls);
        conditions
    }
}

/// A client's end: what it has to say next follows from what it has heard.
struct Talk {
    client: Client,
    tls: Option<TlsClient>,
    /// What it says before TLS, or altogether, the last message first.
    clear: Vec<Vec<u8>>,
    /// Whether the server has agreed to TLS.
    may_shake: bool,
    request: Option<Vec<u8>>,
    follows: Follows,
    heard: Vec<u8>,
}

/// When a client's request leaves, if it has a handshake to make first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// With the last of its messages.
    At,
    /// Behind that, while the server may be at work on it.
    Behind,
}

impl Talk {
    fn new(server: &SimulatedServer, case: &Case) -> Talk {
        let Case {
            way,
            bytes,
            follows,
            ..
        } = *case;
        let peer: SocketAddr = BALANCER.parse().expect("an address");
        let mut request = format!("put {bytes}\n").into_bytes();
        request.resize(request.len() + bytes, b'u');
        let mut talk = Talk {
            client: server.connect_from(Some(peer)),
            tls: None,
            clear: Vec::new(),
            may_shake: !matches!(way, Way::StartsTls),
            request: None,
            follows,
            heard: Vec::new(),
        };
        if way.has_tls() {
            let version = if let Way::Tls(version) = way {
                version
            } else {
                1
            };
            let mut tls = TlsClient::new(&client_config(VERSIONS[version]));
            tls.tls.set_buffer_limit(None);
            talk.tls = Some(tls);
            talk.request = Some(request);
        } else {
            talk.clear.push(request);
        }
        if matches!(way, Way::StartsTls) {
            talk.clear.push(b"tls\n".to_vec());
        }
        if way.has_header() {
            talk.clear.push(line(peer));
        }
        talk
    }

    /// What it says next, if it has something to say.
    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(said) = self.clear.pop() {
            return Some(said);
        }
        let tls = self.tls.as_mut().filter(|_| self.may_shake)?;
        if self.follows == Follows::At
            && let Some(request) = self.request.take()
        {
            tls.say(&request);
        }
        let said = tls.take();
        if !said.is_empty() || tls.tls.is_handshaking() {
            return Some(said).filter(|said| !said.is_empty());
        }
        tls.say(&self.request.take()?);
        Some(tls.take())
    }

    fn listen(&mut self) {
        let bytes = self.client.read();
        match &mut self.tls {
            Some(tls) if self.may_shake => {
                tls.feed(&bytes);
                self.heard.append(&mut tls.heard);
            }
            Some(_) => {
                self.heard.extend(bytes);
                if self.heard == b"begin\n" {
                    self.heard.clear();
                    self.may_shake = true;
                }
            }
            None => self.heard.extend(bytes),
        }
    }

    fn why(&self) -> Option<&String> {
        self.tls.as_ref().and_then(|tls| tls.broken.as_ref())
    }
}

/// Before which pieces a client rests a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    None,
    AtDrain,
    Always,
}

impl Delay {
    /// In fifths of the time of an idle connection: a message has two pieces.
    fn fifths(self, is_now: bool) -> u32 {
        match self {
            Delay::Always => 2,
            Delay::AtDrain if is_now => 4,
            Delay::AtDrain | Delay::None => 0,
        }
    }
}

/// Turns that no worker does anything in, after each piece, and another after each message; or
/// workers are quick.
const SLOW_WORKERS: [Option<usize>; 3] = [None, Some(0), Some(6)];

#[derive(Clone, Copy, Debug)]
struct Case {
    way: Way,
    bytes: usize,
    follows: Follows,
    drain_at: usize,
    delay: Delay,
    slow_turns: Option<usize>,
}

/// Runs one case; whether the drain began before the client was answered.
fn run(seed: u64, case: &Case) -> bool {
    let mut server = SimulatedServer::new(case.way.conditions(seed), Uploads);
    let mut talk = Talk::new(&server, case);
    let fifth = Conditions::calm(seed).limits.drain_idle_timeout / 5;
    let owed = format!("done {}\n", case.bytes).into_bytes();
    let (mut step, mut drains) = (0, false);
    // It is accepted: one that waits in the backlog is for another process that has the socket.
    (0..4).for_each(|_| server.turn());
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "seed {seed}, {case:?}: no end");
        talk.listen();
        if talk.heard == owed {
            break;
        }
        let state = talk.client.state();
        let is_open = state == ClientState::Open;
        assert!(
            is_open,
            "seed {seed}, {case:?}: {state:?}, {:?}",
            talk.why()
        );
        let said = talk.next();
        let is_slow = said.is_some() && case.slow_turns.is_some();
        if let Some(said) = said {
            let half = said.len() / 2;
            for piece in [&said[..half], &said[half..]] {
                let is_now = step == case.drain_at;
                if is_now {
                    server.drain();
                    drains = true;
                }
                let fifths = case.delay.fifths(is_now);
                if fifths > 0 {
                    (0..4).for_each(|_| server.turn());
                    server.advance(fifth * fifths);
                    (0..4).for_each(|_| server.turn());
                }
                talk.client.write(piece);
                (0..case.slow_turns.unwrap_or(0)).for_each(|_| server.turn_without_workers());
                step += 1;
            }
        }
        match is_slow {
            true => server.turn_without_workers(),
            false => server.turn(),
        }
    }
    let statistics = server.statistics();
    let broken = [
        statistics.tls_unshaken,
        statistics.tls_refused,
        statistics.tls_none,
    ];
    assert_eq!(broken, [0; 3], "seed {seed}, {case:?}");
    drop(talk);
    server.drain();
    server.end(TURNS_MAX);
    drains
}

#[test]
fn sim_a_drain_at_each_step_of_each_beginning_loses_no_request() {
    each_seed(2, |seed| {
        for case in cases() {
            let at = |drain_at| Case { drain_at, ..case };
            let steps = (0..).take_while(|step| run(seed, &at(*step))).count();
            let least = if case.way.has_tls() { 4 } else { 2 };
            assert!(steps >= least, "{case:?}: {steps} steps");
        }
    });
}

/// All but for the step at which the drain begins.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for way in WAYS {
        for (bytes, follows) in [
            (1, Follows::At),
            (LONG, Follows::At),
            (LONG, Follows::Behind),
        ] {
            for delay in [Delay::None, Delay::AtDrain, Delay::Always] {
                for slow_turns in SLOW_WORKERS {
                    let drain_at = 0;
                    cases.push(Case {
                        way,
                        bytes,
                        follows,
                        drain_at,
                        delay,
                        slow_turns,
                    });
                }
            }
        }
    }
    cases
}
