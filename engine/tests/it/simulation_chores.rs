//! What a network thread does besides handling completions, each in turns in which nothing else is
//! due: a chore that is not found to be due then would wait for whatever comes next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::memory::Wanted;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::watch::WatchError;
use flatpath::{
    ConnectionHandle, Context, Event, Job, Limits, Phase, Protocol, Received, Stall, ThreadEvent,
    WorkerScope,
};
use flatpath_driver::Eventfd;
use flatpath_driver::simulation::{Client, ClientState, Random, each_seed};

/// The most that a wait lasts here: longer than all answers take, shorter than anything that is
/// done now and then whatever happens.
const STEP: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// One line, one thing that becomes due.
#[derive(Clone, Default)]
struct Chores(Arc<Outside>);

/// What a test sees of the protocol, and has it do.
#[derive(Default)]
struct Outside {
    /// Ends the stall of one that said `outside`.
    waker: OnceLock<ConnectionHandle>,
    /// What another thread might do after the chores of the turn in which one says `meanwhile`.
    meanwhile: Lock<Option<Box<dyn FnOnce() + Send>>>,
    /// A job has run.
    has_run: AtomicBool,
}

impl Chores {
    fn waker(&self) -> &ConnectionHandle {
        self.0.waker.get().expect("one is stalled")
    }
}

/// What the lines of one connection concern: the connection that said `here`.
#[derive(Default)]
struct Here {
    connection: Option<ConnectionHandle>,
    /// It is notified at the end of the turn.
    at_end: bool,
    is_meanwhile: bool,
}

impl Here {
    fn notify(&self) {
        self.connection.as_ref().expect("one has said here").wake();
    }
}

impl Protocol for Chores {
    type ThreadState = Here;
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        match input {
            b"here\n" => {
                context.thread.connection = Some(context.handle());
            }
            b"notify\n" => context.thread.notify(),
            b"notify at the end\n" => context.thread.at_end = true,
            b"memory\n" => {
                let job = context.job().expect("room for a job");
                context.dispatch_with_memory(job, Wanted::Small, None);
            }
            b"job\n" => {
                let job = context.job().expect("room for a job");
                context.dispatch(job);
            }
            b"meanwhile\n" => context.thread.is_meanwhile = true,
            b"outside\n" if self.0.waker.set(context.handle()).is_ok() => {
                return Received::Blocked {
                    consumed: 0,
                    on: Stall::Outside,
                };
            }
            b"outside\n" => context.write_static(b"resumed\n"),
            b"idle\n" => context.restart_phase(Phase::Idle),
            _ => panic!("no such line"),
        }
        Received::Consumed
    }

    fn run(&self, (): &mut (), _scope: &mut WorkerScope<'_>) {
        self.0.has_run.store(true, Ordering::Relaxed);
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.write_static(b"done\n");
        context.recycle(job);
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Woken => context.write_static(b"notified\n"),
            Event::Draining => context.write_static(b"draining\n"),
            other => other.by_default(context),
        }
    }

    fn thread_event(&self, here: &mut Here, event: ThreadEvent<'_>) {
        assert!(matches!(event, ThreadEvent::TurnEnded), "it has no region");
        if std::mem::take(&mut here.at_end) {
            here.notify();
        }
        if std::mem::take(&mut here.is_meanwhile)
            && let Some(act) = self.0.meanwhile.lock().take()
        {
            act();
        }
    }
}

/// A server with two clients, and nothing to do.
fn quiet() -> (SimulatedServer, [Client; 2]) {
    quiet_with(Chores::default())
}

fn quiet_with(protocol: Chores) -> (SimulatedServer, [Client; 2]) {
    let mut conditions = Conditions::calm(1);
    conditions.limits = Limits {
        connections_max: 10_000,
        head_timeout: 100 * SECOND,
        idle_timeout: SECOND / 4,
        ..Limits::default()
    };
    let mut server = SimulatedServer::new(conditions, protocol);
    server.world().set_step_max(STEP);
    let clients = [server.connect(), server.connect()];
    turns(&mut server, 50);
    clients[0].write(b"here\n");
    turns(&mut server, 50);
    (server, clients)
}

fn turns(server: &mut SimulatedServer, count: usize) {
    (0..count).for_each(|_| server.turn());
}

/// The longest wait until something holds.
fn longest_wait(server: &mut SimulatedServer, mut holds: impl FnMut() -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    let mut before = server.world().now();
    for _ in 0..1_000 {
        if holds() {
            return longest;
        }
        server.turn();
        let now = server.world().now();
        longest = longest.max(now - std::mem::replace(&mut before, now));
    }
    panic!("it never came");
}

#[test]
fn sim_a_connection_that_another_notifies_is_called() {
    let (mut server, [here, other]) = quiet();
    other.write(b"notify\n");
    turns(&mut server, 20);
    assert_eq!(here.read(), b"notified\n");
}

#[test]
fn sim_no_wait_lasts_while_one_is_notified_at_the_end_of_a_turn() {
    let (mut server, [here, other]) = quiet();
    other.write(b"notify at the end\n");
    let longest = longest_wait(&mut server, || here.read() == b"notified\n");
    assert!(longest < STEP, "a wait lasted {longest:?}");
}

#[test]
fn sim_a_job_that_waits_for_memory_is_run_although_nothing_else_happens() {
    let (mut server, [_here, other]) = quiet();
    other.write(b"memory\n");
    turns(&mut server, 50);
    assert_eq!(other.read(), b"done\n");
}

#[test]
fn sim_a_deadline_that_an_event_brings_forward_fires_although_nothing_else_happens() {
    let (mut server, [_here, other]) = quiet();
    // What is done once a second has just been done when the deadline begins.
    server.world().advance(2 * SECOND);
    turns(&mut server, 50);
    other.write(b"idle\n");
    turns(&mut server, 50);
    server.world().advance(SECOND / 2);
    turns(&mut server, 50);
    assert_ne!(
        other.state(),
        ClientState::Open,
        "the deadline did not fire"
    );
}

#[test]
fn sim_a_stall_that_another_thread_ends_is_over_although_nothing_else_happens() {
    let protocol = Chores::default();
    let (mut server, [_here, other]) = quiet_with(protocol.clone());
    other.write(b"outside\n");
    turns(&mut server, 50);
    assert!(other.read().is_empty());
    protocol.waker().wake();
    turns(&mut server, 50);
    assert_eq!(other.read(), b"notified\nresumed\n");
}

#[test]
fn sim_no_wait_lasts_when_a_stall_ends_after_the_chores() {
    let protocol = Chores::default();
    let (mut server, [here, other]) = quiet_with(protocol.clone());
    other.write(b"outside\n");
    turns(&mut server, 50);
    let waker = protocol.waker().clone();
    *protocol.0.meanwhile.lock() = Some(Box::new(move || waker.wake()));
    here.write(b"meanwhile\n");
    let longest = longest_wait(&mut server, || !other.read().is_empty());
    assert!(longest < STEP, "a wait lasted {longest:?}");
}

#[test]
fn sim_no_wait_lasts_when_the_drain_begins_after_the_chores() {
    let protocol = Chores::default();
    let (mut server, [here, other]) = quiet_with(protocol.clone());
    // One that has said nothing yet would be given time to.
    other.write(b"idle\n");
    turns(&mut server, 50);
    let handle = server.handle();
    *protocol.0.meanwhile.lock() = Some(Box::new(move || handle.drain()));
    here.write(b"meanwhile\n");
    let longest = longest_wait(&mut server, || other.read() == b"draining\n");
    assert!(longest < STEP, "a wait lasted {longest:?}");
}

#[test]
fn sim_no_wait_lasts_while_a_job_is_back() {
    let protocol = Chores::default();
    let (mut server, [_here, other]) = quiet_with(protocol.clone());
    for _ in 0..20 {
        other.write(b"job\n");
        while !protocol.0.has_run.swap(false, Ordering::Relaxed) {
            server.turn();
        }
        let longest = longest_wait(&mut server, || other.read() == b"done\n");
        assert!(longest < STEP, "a wait lasted {longest:?}");
    }
}

#[test]
fn sim_no_wait_lasts_when_an_eventfd_is_watched_after_the_chores() {
    let protocol = Chores::default();
    let (mut server, [here, _other]) = quiet_with(protocol.clone());
    let is_signalled = Arc::new(AtomicBool::new(false));
    let signalled = Arc::clone(&is_signalled);
    // It is called when its watch begins, whatever was counted.
    let event = Eventfd::new().expect("a descriptor");
    let source = server
        .handle()
        .watch(event, move |_| signalled.store(true, Ordering::Relaxed));
    let source = Arc::new(source);
    let started = Arc::clone(&source);
    *protocol.0.meanwhile.lock() = Some(Box::new(move || started.start().expect("room")));
    here.write(b"meanwhile\n");
    let longest = longest_wait(&mut server, || is_signalled.load(Ordering::Relaxed));
    assert!(longest < STEP, "a wait lasted {longest:?}");
    source.stop();
}

#[test]
fn sim_a_watch_that_the_kernel_refused_is_tried_again() {
    let (mut server, _clients) = quiet();
    let heard = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&heard);
    let source = server.handle().watch(Eventfd::simulated(), move |more| {
        counted.fetch_add(more, Ordering::Relaxed);
    });
    server.world().refuse_watches(1);
    source.start().expect("room");
    source.eventfd().write(1).expect("room");
    turns(&mut server, 50);
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    source.stop();
}

#[test]
fn sim_a_thread_that_ends_before_its_time_watches_nothing_from_then_on() {
    let (server, _clients) = quiet();
    let source = server.handle().watch(Eventfd::simulated(), |_| ());
    drop(server);
    assert_eq!(source.start(), Err(WatchError::ShutDown));
}

/// What is done once a second has just been done when the limits change.
fn shorten_head_timeout(server: &mut SimulatedServer) {
    server.world().advance(2 * SECOND);
    turns(server, 50);
    let limits = Limits {
        head_timeout: 2 * SECOND,
        ..Limits::default()
    };
    server.handle().change_limits(&limits, &[]);
    turns(server, 50);
}

#[test]
fn sim_limits_that_change_hold_although_nothing_else_happens() {
    let (mut server, [here, _other]) = quiet();
    shorten_head_timeout(&mut server);
    assert_ne!(
        here.state(),
        ClientState::Open,
        "its time is over by the new measure"
    );
}

#[test]
fn sim_limits_that_change_hold_for_the_last_of_many_although_nothing_else_happens() {
    // More than are looked at in one turn.
    const OTHERS: usize = 1_024;
    let (mut server, clients) = quiet();
    let others: Vec<Client> = (0..OTHERS).map(|_| server.connect()).collect();
    turns(&mut server, 200);
    let last = server.connect();
    turns(&mut server, 50);
    drop((clients, others));
    shorten_head_timeout(&mut server);
    assert_ne!(last.state(), ClientState::Open);
}

#[test]
fn sim_a_reply_that_was_sent_is_noted_soon_although_nothing_else_happens() {
    let (mut server, [_here, other]) = quiet();
    // What is done once a second has just been done when the reply goes out.
    server.world().advance(2 * SECOND);
    turns(&mut server, 50);
    other.write(b"job\n");
    longest_wait(&mut server, || other.read() == b"done\n");
    server.world().set_step_max(100 * SECOND);
    let before = server.world().now();
    while server.world().now() == before {
        server.turn();
    }
    let waited = server.world().now() - before;
    assert!(waited <= SECOND / 20, "a wait lasted {waited:?}");
}

#[test]
fn sim_a_watch_that_is_stopped_and_started_again_is_watched_whatever_comes_late() {
    each_seed(50, |seed| {
        let conditions = Conditions::rough(seed);
        let mut server = SimulatedServer::new(conditions, Chores::default());
        let mut random = Random::new(seed);
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let source = server.handle().watch(Eventfd::simulated(), move |more| {
            counted.fetch_add(more, Ordering::Relaxed);
        });
        for round in 1..=20 {
            source.start().expect("room");
            turns(&mut server, random.below(4));
            source.stop();
            turns(&mut server, random.below(4));
            source.start().expect("room");
            // It is called at its start; what is written later only its watch finds.
            turns(&mut server, 20);
            source.eventfd().write(1).expect("room");
            turns(&mut server, 200);
            let heard = count.load(Ordering::Relaxed);
            assert_eq!(heard, round, "round {round}");
            source.stop();
            turns(&mut server, random.below(4));
        }
    });
}
