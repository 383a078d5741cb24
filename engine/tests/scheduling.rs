//! The time slices of a server's threads. One test only, so that the threads of the process are its
//! own.

mod lines;

use std::time::{Duration, Instant};

use flatpath::Server;
use flatpath_driver::{ask_for_slice, slice_of};
use lines::{Lines, on_both};
use rustix::thread::Pid;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// As `limits.rs` has it, in nanoseconds.
const NETWORK_SLICE_NS: u64 = 2_100_000;

/// The slices of the threads of this process whose names begin so.
fn slices(name: &str) -> Vec<u64> {
    let mut slices = vec![];
    for task in std::fs::read_dir("/proc/self/task").expect("mounted") {
        let task = task.expect("readable").path();
        // A thread may end meanwhile.
        let Ok(comm) = std::fs::read_to_string(task.join("comm")) else {
            continue;
        };
        let number = task.file_name().and_then(|number| number.to_str());
        let number = number.and_then(|number| number.parse().ok());
        if comm.starts_with(name)
            && let Ok(slice_ns) = slice_of(number.and_then(Pid::from_raw))
        {
            slices.push(slice_ns);
        }
    }
    slices
}

/// Waits until there are `count` threads of this name, all with this slice.
fn await_slices(name: &str, count: usize, slice_ns: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = slices(name);
        if seen == vec![slice_ns; count] {
            return;
        }
        assert!(Instant::now() < deadline, "{name}: {seen:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn network_threads_have_short_slices_and_the_others_what_the_program_has() {
    let asking = std::thread::spawn(|| ask_for_slice(NETWORK_SLICE_NS));
    if let Err(cause) = asking.join().expect("no panic") {
        eprintln!("not run: {cause}");
        return;
    }
    let own = slice_of(None).expect("this thread lives");
    on_both(|choice| {
        let server = Server::new()
            .driver(choice)
            .network_threads(2)
            .workers(3..=3);
        let running = server.listen("127.0.0.1:0", Lines).start();
        let running = match running {
            Ok(running) => running,
            Err(error) => return eprintln!("not run with {choice:?}: {error}"),
        };
        await_slices("flatpath-net-", 2, NETWORK_SLICE_NS);
        await_slices("flatpath-worker", 3, own);
        assert_eq!(slice_of(None).expect("this thread lives"), own);
        running.handle().force();
        running.wait().expect("ends");
        // The kernel lists a thread a little longer than the process can join it.
        await_slices("flatpath-", 0, 0);
    });
}
