//! A start that fails half way leaves no thread behind, and neither does an end, whatever workers
//! are at. In processes of their own, whose threads they count.

use std::net::TcpStream;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Instant;

use flatpath::{Context, DriverChoice, Error, PerThread, Protocol, Received, Server};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::in_child;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::lines::{Client, Lines, on_both};

use flatpath_testkit::patience;

/// Panics on the second network thread that makes its state.
#[derive(Default)]
struct Faulty(AtomicUsize);

struct State;

impl PerThread<Faulty> for State {
    fn new(faulty: &Faulty) -> State {
        if faulty.0.fetch_add(1, Relaxed) == 1 {
            resume_unwind(Box::new("as asked"));
        }
        State
    }
}

impl Protocol for Faulty {
    type ThreadState = State;
    type Session = ();
    type Job = ();

    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::NeedMore { consumed: 0 }
    }
}

/// Threads of servers in this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("mounted");
    let names = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("flatpath-"));
    names.collect()
}

/// Threads of servers go, at the latest a moment after those who wait for them: the kernel lists a
/// thread a little longer than the process can join it.
fn threads_go() {
    let deadline = Instant::now() + patience();
    while !threads().is_empty() {
        assert!(Instant::now() < deadline, "left behind: {:?}", threads());
        std::thread::yield_now();
    }
}

/// Starts a server that cannot start. Its threads are gone when that has failed.
fn fails(server: Server) -> Error {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(server.start().map(drop));
    });
    let started = told
        .recv_timeout(patience())
        .expect("the start ends in time");
    threads_go();
    started.expect_err("it cannot start")
}

/// Bytes of address space that the process has now.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("mounted");
    let pages = pages.split(' ').next().expect("a word");
    pages.parse::<u64>().expect("a number") * 4096
}

#[test]
fn a_start_that_fails_half_way_leaves_no_thread() {
    if !in_child(concat!(
        module_path!(),
        "::a_start_that_fails_half_way_leaves_no_thread"
    )) {
        return;
    }
    on_both(|choice| {
        let server = Server::new().driver(choice).network_threads(3);
        let error = fails(server.listen("127.0.0.1:0", Faulty::default()));
        assert!(matches!(error, Error::Driver(_)), "{error:?}");
    });
    // Address space for the stacks of some of the workers only.
    let before = getrlimit(Resource::As);
    let some = address_space() + (64 << 20);
    let few = Rlimit {
        current: Some(some),
        ..before
    };
    setrlimit(Resource::As, few).expect("lowered");
    let server = Server::new().driver(DriverChoice::Epoll).workers(100..=100);
    let error = fails(server.listen("127.0.0.1:0", Lines));
    setrlimit(Resource::As, before).expect("raised again");
    assert!(matches!(error, Error::Thread(_)), "{error:?}");
}

/// The end wakes each worker, also one that is about to sleep or was started a moment ago. One that
/// is not back within its time is reported; had its wake been lost, it would never go.
#[test]
fn an_end_wakes_every_worker_whatever_it_is_at() {
    if !in_child(concat!(
        module_path!(),
        "::an_end_wakes_every_worker_whatever_it_is_at"
    )) {
        return;
    }
    let ends = if is_slow() { 20 } else { 60 };
    on_both(|choice| {
        for number in 0..ends {
            let server = Server::new().driver(choice).workers(1..=1 + number % 4);
            let server = server.listen("127.0.0.1:0", Lines);
            let running = server.start().expect("it starts");
            let client = TcpStream::connect(running.addresses()[0].address).expect("it listens");
            let mut client = Client::of(client);
            // The last jobs end, or begin, as the server does.
            client.say(&"work 1\n".repeat(1 + number as usize % 7));
            assert_eq!(client.line(), "done 1\n");
            match number % 2 {
                0 => running.handle().drain(),
                _ => running.handle().force(),
            }
            match running.wait() {
                Ok(()) | Err(Error::LeftBehind { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            threads_go();
        }
    });
}
