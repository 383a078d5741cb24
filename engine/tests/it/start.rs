//! A start that fails half way leaves no thread behind. In a process of its own, whose threads it
//! counts.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Instant;

use flatpath::{Context, DriverChoice, Error, PerThread, Protocol, Received, Server};
use flatpath_testkit::in_child;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::lines::{Lines, on_both};

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

/// Starts a server that cannot start. Its threads are gone when that has failed, or a moment later:
/// the kernel lists a thread a little longer than the process can join it.
fn fails(server: Server) -> Error {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(server.start().map(drop));
    });
    let started = told
        .recv_timeout(patience())
        .expect("the start ends in time");
    let deadline = Instant::now() + patience();
    while !threads().is_empty() {
        assert!(Instant::now() < deadline, "left behind: {:?}", threads());
        std::thread::yield_now();
    }
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
