//! The calls of a protocol for one connection: which come and in which order, and what the engine
//! does where the protocol has no answer of its own.

use std::sync::Arc;
use std::time::Duration;

use flatpath::access_log::LogEnd;
use flatpath::lock::Lock;
use flatpath::simulation::{Client, ClientState, Conditions, SimulatedServer};
use flatpath::{
    ConnectionHandle, Context, Event, Job, Phase, Protocol, Received, ThreadEvent, WorkerScope,
};

const TURNS_MAX: usize = 1_000;
const IDLE: Duration = Duration::from_secs(5);

/// Sends back what it gets, by a job, and notes each of its calls.
#[derive(Clone, Default)]
struct Notes(Arc<Lock<Vec<String>>>);

impl Notes {
    fn note(&self, call: impl Into<String>) {
        self.0.lock().push(call.into());
    }
}

impl Protocol for Notes {
    type ThreadState = ();
    type Session = ();
    type Job = Vec<u8>;

    fn thread_event(&self, (): &mut (), event: ThreadEvent<'_>) {
        assert!(matches!(event, ThreadEvent::TurnEnded), "it has no region");
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        self.note("received");
        let mut job = context.job().expect("few jobs");
        job.extend(input);
        context.dispatch(job);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        self.note(format!("{event:?}"));
        event.by_default(context);
    }

    fn run(&self, _: &mut Vec<u8>, _: &mut WorkerScope<'_>) {
        self.note("run");
    }

    fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
        self.note("finished");
        context.write(&job).expect("room");
        job.clear();
        context.recycle(job);
    }

    fn closed(&self, (): &mut (), (): &mut (), log: Option<LogEnd<'_>>) {
        assert!(log.is_none(), "there is no access log");
        self.note("closed");
    }
}

/// Has no answer of its own to anything, and gives away how it is woken.
#[derive(Clone, Default)]
struct Silent(Arc<Lock<Option<ConnectionHandle>>>);

impl Protocol for Silent {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, _: &[u8]) -> Received {
        *self.0.lock() = Some(context.handle());
        context.write_static(b"heard\n");
        context.notify_output_low();
        context.restart_phase(Phase::Idle);
        Received::Consumed
    }
}

fn turn_until(server: &mut SimulatedServer, what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..TURNS_MAX {
        if is_so() {
            return;
        }
        server.turn();
    }
    panic!("{what}: not so");
}

fn reads(server: &mut SimulatedServer, client: &Client, words: &[u8]) {
    let mut heard = Vec::new();
    turn_until(server, "a reply", || {
        heard.extend(client.read());
        heard == words
    });
}

#[test]
fn the_calls_of_a_connection_come_in_their_order() {
    let notes = Notes::default();
    let mut server = SimulatedServer::new(Conditions::calm(1), notes.clone());
    let client = server.connect();
    client.write(b"a");
    reads(&mut server, &client, b"a");
    client.shutdown_write();
    turn_until(&mut server, "its end", || {
        notes.0.lock().iter().any(|call| call == "closed")
    });
    (0..100).for_each(|_| server.turn());
    let calls = notes.0.lock().join(" ");
    assert_eq!(
        calls,
        "Connected received run finished InputEnded([]) closed"
    );
}

#[test]
fn what_has_no_answer_ends_a_connection_only_where_something_ends() {
    for end in ["input", "deadline", "drain"] {
        let silent = Silent::default();
        let mut conditions = Conditions::calm(1);
        conditions.limits.idle_timeout = IDLE;
        let mut server = SimulatedServer::new(conditions, silent.clone());
        let client = server.connect();
        client.write(b"hello");
        reads(&mut server, &client, b"heard\n");
        let handle = silent.0.lock().clone().expect("it has received");
        handle.wake();
        (0..100).for_each(|_| server.turn());
        assert_eq!(client.state(), ClientState::Open, "neither room nor a wake");
        match end {
            "input" => client.shutdown_write(),
            "deadline" => server.advance(2 * IDLE),
            _ => server.drain(),
        }
        turn_until(&mut server, end, || client.state() == ClientState::Finished);
    }
}
