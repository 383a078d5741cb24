//! Connections that a protocol opens: what its sessions are called for, and when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::simulation::{Answer, Client, Conditions, Faults, SimulatedServer, Upstream};
use flatpath::{
    Connect, ConnectionHandle, Connector, Context, Event, Limits, ListenerLimits, Phase, Protocol,
    Received, Remote,
};
use flatpath_driver::simulation::{ClientState, each_seed};

pub(crate) const TURNS_MAX: usize = 100_000;

/// What has happened, in order.
pub(crate) type Heard = Arc<Lock<Vec<String>>>;

pub(crate) fn far_address() -> SocketAddr {
    "192.0.2.1:80".parse().expect("an address")
}

/// Opens a connection for each client, and writes down what becomes of it.
pub(crate) struct Calls {
    pub(crate) to: Remote,
    pub(crate) heard: Heard,
    pub(crate) connector: Connector<Called>,
    pub(crate) wish: fn(Connect) -> Connect,
}

impl Calls {
    pub(crate) fn new(to: impl Into<Remote>, wish: fn(Connect) -> Connect) -> (Calls, Heard) {
        let heard = Heard::default();
        let calls = Calls {
            to: to.into(),
            heard: Arc::clone(&heard),
            connector: Connector::new(Called),
            wish,
        };
        (calls, heard)
    }

    fn wish(&self, client: ConnectionHandle) -> Connect {
        let begun = Begun {
            heard: Arc::clone(&self.heard),
            client,
            again: None,
        };
        let wish = self.connector.to(self.to.clone(), || Some(begun));
        (self.wish)(wish)
    }
}

impl Protocol for Calls {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        for byte in input {
            let client = context.handle();
            match byte {
                b'c' => context.connect(self.wish(client)),
                // Another one, should the first fail.
                b'r' => {
                    let again = Some((self.connector.clone(), self.to.clone()));
                    let heard = Arc::clone(&self.heard);
                    let begun = Begun {
                        heard,
                        client,
                        again,
                    };
                    let wish = self.connector.to(self.to.clone(), || Some(begun));
                    context.connect(wish);
                }
                b'q' => {
                    context.connect(self.wish(client));
                    context.abort();
                }
                b'p' => {
                    let wish = self
                        .connector
                        .to(self.to.clone(), || panic!("as asked for"));
                    context.connect(wish);
                }
                _ => {}
            }
        }
        context.phase(Phase::Wait);
        Received::Consumed
    }
}

/// The far side's.
pub(crate) struct Called;

pub(crate) struct Begun {
    heard: Heard,
    client: ConnectionHandle,
    again: Option<(Connector<Called>, Remote)>,
}

impl Protocol for Called {
    type ThreadState = ();
    type Session = Option<Begun>;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let words = String::from_utf8_lossy(input).into_owned();
        match input {
            b"idle" => context.restart_phase(Phase::Idle),
            b"bye" => context.close_after_output(),
            _ => {}
        }
        begun(context).heard.lock().push(words);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        let words = match &event {
            Event::Connected => {
                let peer = context.peer().map(|peer| peer.to_string());
                let tls = context.tls().map(|terms| {
                    let resumed = if terms.is_resumed() { " resumed" } else { "" };
                    let protocol = terms.protocol().map(String::from_utf8_lossy);
                    let protocol = protocol.map(|it| format!(" {it}")).unwrap_or_default();
                    format!(" {}{protocol}{resumed}", terms.version())
                });
                context.write(b"ping\n").expect("a few bytes");
                assert!(!context.is_unix() && !context.may_start_tls());
                format!(
                    "connected {}{}",
                    peer.unwrap_or_default(),
                    tls.unwrap_or_default()
                )
            }
            Event::ConnectFailed(error) => {
                let again = context
                    .session
                    .as_mut()
                    .and_then(|begun| begun.again.take());
                if let Some((connector, to)) = again {
                    let begun = begun(context);
                    let (heard, client) = (Arc::clone(&begun.heard), begun.client.clone());
                    let again = None;
                    let begin = move || {
                        Some(Begun {
                            heard,
                            client,
                            again,
                        })
                    };
                    context.connect(connector.to(to, begin));
                }
                error.to_string()
            }
            Event::Secured => "secured".to_owned(),
            Event::Draining => "draining".to_owned(),
            Event::InputEnded(_) => "ended".to_owned(),
            Event::Expired(phase) => format!("expired {phase:?} {}", context.is_evicted()),
            _ => String::new(),
        };
        begun(context).heard.lock().push(words);
        event.by_default(context);
    }

    fn closed(
        &self,
        _: &mut (),
        begun: &mut Option<Begun>,
        _: Option<flatpath::access_log::LogEnd<'_>>,
    ) {
        let begun = begun.take().expect("every session has begun");
        begun.heard.lock().push("closed".to_owned());
    }
}

fn begun<'a>(context: &'a mut Context<'_, Called>) -> &'a mut Begun {
    context.session.as_mut().expect("every session has begun")
}

pub(crate) fn turns(server: &mut SimulatedServer, count: usize) {
    (0..count).for_each(|_| server.turn());
}

fn plain(wish: Connect) -> Connect {
    wish
}

/// A server, what it hears, and the one that it opens connections to.
fn served(conditions: Conditions, answer: Answer) -> (SimulatedServer, Heard, Upstream) {
    let (calls, heard) = Calls::new(far_address(), plain);
    let server = SimulatedServer::new(conditions, calls);
    let far = server.world().upstream(far_address(), answer);
    (server, heard, far)
}

fn told(server: &mut SimulatedServer, said: &[u8]) -> Client {
    let client = server.connect();
    client.write(said);
    turns(server, 10);
    client
}

fn finish(mut server: SimulatedServer, client: Client) {
    drop(client);
    server.force();
    server.end(TURNS_MAX);
}

const CONNECTED: &str = "connected 192.0.2.1:80";

#[test]
fn sim_a_connection_is_called_when_it_stands_and_closed_once() {
    let (mut server, heard, far) = served(Conditions::calm(1), Answer::Accepts);
    let client = told(&mut server, b"c");
    let peer = far.accept().expect("it stands");
    assert_eq!(peer.read(), b"ping\n");
    peer.write(b"bye");
    turns(&mut server, 10);
    assert_eq!(*heard.lock(), [CONNECTED, "bye", "closed"]);
    finish(server, client);
}

#[test]
fn sim_one_that_fails_is_told_why_and_nothing_else() {
    for (answer, words) in [
        (
            Answer::Refuses,
            "connecting failed: no process listens there",
        ),
        (
            Answer::IsSilent,
            "connecting failed: nothing came back in time",
        ),
    ] {
        let (mut server, heard, _far) = served(Conditions::calm(1), answer);
        let client = told(&mut server, b"c");
        if answer == Answer::IsSilent {
            assert!(heard.lock().is_empty());
            server.advance(Duration::from_secs(9));
            turns(&mut server, 10);
            assert!(heard.lock().is_empty(), "it has ten seconds");
            server.advance(Duration::from_secs(1));
            turns(&mut server, 10);
        }
        assert_eq!(*heard.lock(), [words, "closed"]);
        assert_eq!(client.state(), ClientState::Open, "its affair");
        finish(server, client);
    }
}

#[test]
fn sim_one_that_fails_may_wish_another() {
    let (mut server, heard, far) = served(Conditions::calm(1), Answer::Refuses);
    let client = told(&mut server, b"");
    client.write(b"r");
    while server.world().leaks().sockets.len() < 2 {
        server.turn();
    }
    // The first is on its way to be refused.
    far.answers(Answer::Accepts);
    turns(&mut server, 10);
    let words = "connecting failed: no process listens there";
    assert_eq!(*heard.lock(), [words, "closed", CONNECTED]);
    finish(server, client);
}

#[test]
fn sim_a_wish_outlives_the_connection_that_wished_it() {
    let (mut server, heard, _far) = served(Conditions::calm(1), Answer::Accepts);
    let client = told(&mut server, b"q");
    assert_eq!(client.state(), ClientState::Reset);
    assert_eq!(*heard.lock(), [CONNECTED]);
    finish(server, client);
}

#[test]
fn sim_a_session_that_panics_as_it_begins_opens_nothing() {
    let (mut server, heard, far) = served(Conditions::calm(1), Answer::Accepts);
    let client = told(&mut server, b"pc");
    assert_eq!(*heard.lock(), [CONNECTED], "the next one is opened");
    assert!(far.accept().is_some() && far.accept().is_none());
    finish(server, client);
}

/// More than a turn opens are wished in one call.
#[test]
fn sim_what_one_turn_does_not_open_the_next_does() {
    let (mut server, heard, _far) = served(Conditions::calm(1), Answer::Accepts);
    let client = told(&mut server, &[b'c'; 200]);
    assert_eq!(heard.lock().len(), 200);
    assert_eq!(server.statistics().connections_opened, 200);
    finish(server, client);
}

fn full(connections_max: usize) -> Conditions {
    Conditions {
        limits: Limits {
            connections_max,
            ..Limits::default()
        },
        ..Conditions::calm(1)
    }
}

#[test]
fn sim_one_that_waits_for_its_peer_keeps_its_place_and_an_idle_one_gives_it_up() {
    for is_idle in [false, true] {
        let (mut server, heard, far) = served(full(2), Answer::Accepts);
        let client = told(&mut server, b"c");
        let peer = far.accept().expect("it stands");
        peer.write(if is_idle { b"idle" } else { b"busy" });
        turns(&mut server, 10);
        server.advance(Duration::from_secs(20));
        turns(&mut server, 10);
        let newcomer = told(&mut server, b"");
        let last = heard.lock().last().cloned().expect("something");
        match is_idle {
            true => {
                assert_eq!(heard.lock()[2..], ["expired Idle true", "closed"]);
                assert_eq!(newcomer.state(), ClientState::Open);
            }
            false => {
                assert_eq!(last, "busy");
                assert_ne!(newcomer.state(), ClientState::Open, "there is no place");
            }
        }
        drop(newcomer);
        finish(server, client);
    }
}

#[test]
fn sim_an_idle_client_gives_its_place_up_to_one_that_is_opened() {
    let (mut server, heard, _far) = served(full(2), Answer::Accepts);
    let idle = told(&mut server, b"");
    server.advance(Duration::from_secs(20));
    let client = told(&mut server, b"c");
    assert_eq!(*heard.lock(), [CONNECTED]);
    assert_ne!(idle.state(), ClientState::Open);
    // All that are there are busy.
    client.write(b"c");
    turns(&mut server, 10);
    let words = "not connected: this server has as many connections as it may";
    assert_eq!(heard.lock()[1..], [words, "closed"]);
    assert_eq!(server.statistics().connect_no_place, 1);
    finish(server, client);
}

#[test]
fn sim_it_is_no_client_of_its_listener_and_of_no_address() {
    let (calls, heard) = Calls::new(far_address(), plain);
    let bounds = [ListenerLimits {
        connections_max: Some(1),
        ..ListenerLimits::default()
    }];
    let mut conditions = Conditions::calm(1);
    conditions.limits.connections_per_address = 1;
    let mut server = SimulatedServer::with_limited(conditions, 1, &bounds, calls);
    server.world().upstream(far_address(), Answer::Accepts);
    let client = server.connect_from(Some(far_address()));
    client.write(b"ccc");
    turns(&mut server, 10);
    assert_eq!(*heard.lock(), [CONNECTED; 3]);
    assert_eq!(client.state(), ClientState::Open);
    // Limits that are taken over later leave it as it is.
    turns(&mut server, 10);
    assert_eq!(server.statistics().refused_address, 0);
    drop(client);
    server.force();
    server.end(TURNS_MAX);
}

#[test]
fn sim_a_peer_that_says_nothing_is_awaited_for_the_time_of_a_wait() {
    let (mut server, heard, _far) = served(Conditions::calm(1), Answer::Accepts);
    let client = told(&mut server, b"c");
    server.advance(Limits::default().wait_timeout);
    turns(&mut server, 10);
    assert_eq!(*heard.lock(), [CONNECTED, "expired Wait false", "closed"]);
    finish(server, client);
}

/// Before it stands its session hears of no drain.
#[test]
fn sim_a_drain_is_heard_of_after_the_connection_stands() {
    let slow = Answer::AcceptsAfter(Duration::from_millis(200));
    let (mut server, heard, far) = served(Conditions::calm(1), slow);
    let client = told(&mut server, b"c");
    server.drain();
    turns(&mut server, 20);
    assert!(heard.lock().is_empty(), "{:?}", heard.lock());
    server.advance(Duration::from_millis(200));
    turns(&mut server, 10);
    assert_eq!(*heard.lock(), [CONNECTED]);
    far.accept().expect("it stands").write(b"told");
    turns(&mut server, 10);
    assert_eq!(*heard.lock(), [CONNECTED, "told", "draining", "closed"]);
    // A request that is under way may still need one.
    drop(client);
    server.end(TURNS_MAX);
}

#[test]
fn sim_force_ends_what_is_under_way_and_what_is_wished_then() {
    let (mut server, heard, _far) = served(Conditions::calm(1), Answer::IsSilent);
    let client = told(&mut server, b"c");
    server.force();
    server.end(TURNS_MAX);
    let words = "connecting failed: this server is being ended";
    assert_eq!(*heard.lock(), [words, "closed"]);
    drop(client);
}

/// Whatever goes wrong: each connection has one first event, and is closed once.
#[test]
fn sim_each_connection_has_one_beginning_and_one_end() {
    each_seed(300, |seed| {
        let conditions = Conditions {
            faults: Faults::mixed(seed),
            ..Conditions::calm(seed)
        };
        let slow = Answer::AcceptsAfter(Duration::from_millis(seed % 50));
        let (mut server, heard, far) = served(conditions, slow);
        let clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for client in &clients {
            client.write(b"crc");
        }
        for turn in 0..200 {
            server.turn();
            if let Some(peer) = far.accept()
                && turn % 2 == 0
            {
                peer.write(b"told");
            }
        }
        server.force();
        server.end(TURNS_MAX);
        let heard = heard.lock();
        let begun = heard.iter().filter(|words| {
            let words = words.as_str();
            words == CONNECTED || words.starts_with("connecting") || words.starts_with("not ")
        });
        let closed = heard.iter().filter(|words| *words == "closed");
        assert_eq!(begun.count(), closed.count(), "seed {seed}: {heard:?}");
    });
}
