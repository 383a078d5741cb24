//! Calls of one connection run side by side: one that waits, as for a slow disk, holds up nothing.
//!
//! The program here waits until the test lets it continue, so the order of replies is the test's.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use flatpath::memory::PoolHandle;
use flatpath::{DriverChoice, Server};
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Arguments, Call, CallOutcome, Programs, Reply, Route, Rpc};
use flatpath_testkit::deadline::{long_patience, until};
use flatpath_testkit::nfs::{self, Connection, Words};
use flatpath_testkit::{Driver, each_driver};

each_driver!(
    replies_overtake_those_that_wait,
    other_connections_are_served_while_one_waits,
    a_call_repeated_while_it_is_executed_is_executed_and_answered_once,
);

/// Workers, one less than which wait at most.
const WORKERS: u32 = 8;

#[derive(Default)]
struct Gate {
    open: Mutex<HashSet<u32>>,
    opened: Condvar,
    /// Calls of procedure 3 that were executed.
    executed: AtomicU32,
}

impl Gate {
    fn open(&self, number: u32) {
        self.open.lock().expect("no panic").insert(number);
        self.opened.notify_all();
    }

    /// Until `number` was opened; false when that takes too long.
    fn pass(&self, number: u32) -> bool {
        let open = self.open.lock().expect("no panic");
        let wait = self
            .opened
            .wait_timeout_while(open, long_patience(), |open| !open.contains(&number));
        !wait.expect("no panic").1.timed_out()
    }
}

/// Procedure 1 waits at the gate of its argument and answers with it; 2 answers at once; 3 is like
/// 1, and is not to be executed twice.
struct Waiting(Arc<Gate>);

impl Programs for Waiting {
    fn name(&self) -> &'static str {
        "waiting"
    }

    fn route(&self, call: &Call) -> Route {
        if call.procedure == 3 {
            Route::Once
        } else {
            Route::Pooled
        }
    }

    fn inline(&self, _: &Call, _: Arguments<'_>, _: &mut Writer<'_>) -> CallOutcome {
        CallOutcome::SystemError
    }

    fn pooled(
        &self,
        call: &Call,
        mut arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let Ok(number) = arguments.reader.u32() else {
            return CallOutcome::GarbageArguments;
        };
        if call.procedure == 3 {
            // ORDER: Relaxed: the reply that is read before the count is read orders it.
            self.0.executed.fetch_add(1, Ordering::Relaxed);
        }
        if call.procedure != 2 && !self.0.pass(number) {
            return CallOutcome::SystemError;
        }
        match reply.write(4, pool, |writer| writer.u32(number)) {
            Ok(()) => CallOutcome::Results,
            Err(_) => CallOutcome::SystemError,
        }
    }
}

fn serve(driver: Driver) -> (flatpath::Running, Arc<Gate>) {
    serve_with(WORKERS, driver)
}

fn serve_with(workers: u32, driver: Driver) -> (flatpath::Running, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let server = Server::new()
        .driver(choice)
        .workers(workers..=workers)
        .listen("127.0.0.1:0", Rpc::new(Waiting(Arc::clone(&gate))));
    (server.start().expect("a server"), gate)
}

/// A call of the server above.
fn call(procedure: u32, number: u32) -> nfs::Call {
    nfs::Call::nfs(procedure, Words::default().word(number))
}

fn waiting(number: u32) -> Vec<u8> {
    call(1, number).record(number)
}

fn replies_overtake_those_that_wait(driver: Driver) {
    let (running, gate) = serve(driver);
    let mut client = Connection::open(running.addresses()[0].address);
    // One write: they arrive together and in this order.
    let calls: Vec<u8> = (1..WORKERS).flat_map(waiting).collect();
    client.send(&calls);
    for number in (1..WORKERS).rev() {
        // Sent after all of them, answered before any.
        let quick = client.call(&call(2, 1000 + number));
        assert_eq!(quick.word(0), 1000 + number);
        gate.open(number);
        let reply = client.reply();
        assert_eq!((reply.xid, reply.word(0)), (number, number));
    }
}

fn other_connections_are_served_while_one_waits(driver: Driver) {
    let (running, gate) = serve(driver);
    let address = running.addresses()[0].address;
    let mut slow = Connection::open(address);
    let calls: Vec<u8> = (1..WORKERS).flat_map(waiting).collect();
    slow.send(&calls);
    for number in 0..100 {
        let mut other = Connection::open(address);
        let quick = other.call(&call(2, number));
        assert_eq!(quick.word(0), number);
    }
    (1..WORKERS).for_each(|number| gate.open(number));
    let mut answered: Vec<u32> = (1..WORKERS).map(|_| slow.reply().xid).collect();
    answered.sort_unstable();
    assert_eq!(answered, (1..WORKERS).collect::<Vec<u32>>());
}

fn a_call_repeated_while_it_is_executed_is_executed_and_answered_once(driver: Driver) {
    // Of two workers one is at the gate, so the other takes what is sent in order: an answer to
    // a reply to what was sent after a repetition proves that the repetition was dropped.
    let (running, gate) = serve_with(2, driver);
    let address = running.addresses()[0].address;
    let (mut client, mut other) = (Connection::open(address), Connection::open(address));
    let record = call(3, 7).record(7);
    client.send(&[record.clone(), record.clone(), record.clone()].concat());
    let quick = client.call(&call(2, 1));
    assert_eq!(quick.word(0), 1);
    // Its reply would not come; from another port it is the same call, as the connection broke.
    client.reset();
    other.send(&record);
    let quick = other.call(&call(2, 2));
    assert_eq!(quick.word(0), 2);
    gate.open(7);
    // A repetition is dropped while the call runs.
    let first = until("an answer to repeat", || {
        other.send(&[record.clone(), call(2, 8).record(8)].concat());
        let first = other.reply();
        (first.xid == 7).then_some(first)
    });
    assert_eq!(first.word(0), 7);
    assert_eq!(gate.executed.load(Ordering::Relaxed), 1);
}
