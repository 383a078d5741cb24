//! A job that asks a full limit twice, as a handler does that is wrapped by one that asks as well.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::lines::on_both;
use flatpath::blocking::{BlockingFigures, BlockingLimit, Entry, WaitLimits};
use flatpath::{Context, DriverChoice, Job, Protocol, Received, Server, WorkerScope};

use flatpath_testkit::patience;

/// `h` stays inside until the gate is open, anything else asks twice.
struct Asking {
    limit: BlockingLimit,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Protocol for Asking {
    type ThreadState = ();
    type Session = ();
    type Job = u8;

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let mut job = context.job().expect("there is room");
        *job = input[0];
        context.dispatch(job);
        Received::Consumed
    }

    fn run(&self, job: &mut u8, scope: &mut WorkerScope<'_>) {
        if *job == b'h' {
            let Entry::Entered(_inside) = self.limit.enter(scope) else {
                return;
            };
            let (open, opened) = &*self.gate;
            let open = open.lock().expect("sound");
            let (open, _) = opened
                .wait_timeout_while(open, patience(), |open| !*open)
                .expect("sound");
            assert!(*open, "the gate was never opened");
            return;
        }
        let _first = self.limit.enter(scope);
        let _second = self.limit.enter(scope);
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.write(b"d").expect("there is room");
        context.recycle(job);
    }
}

fn await_figures(limit: &BlockingLimit, what: &str, reached: impl Fn(BlockingFigures) -> bool) {
    let deadline = Instant::now() + patience();
    while !reached(limit.figures()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", limit.figures());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn gets_its_reply(choice: DriverChoice) {
    let limits = WaitLimits {
        waiting_max: 100,
        stuck_after: Duration::from_secs(3_600),
    };
    let limit = BlockingLimit::new("a mount", limits);
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let asking = Asking {
        limit: limit.clone(),
        gate: Arc::clone(&gate),
    };
    let server = Server::new().driver(choice).workers(2..=2);
    let running = server.listen("127.0.0.1:0", asking).start();
    let running = running.expect("started");
    let address = running.addresses()[0].address;
    let mut holder = TcpStream::connect(address).expect("connected");
    holder.write_all(b"h").expect("sent");
    await_figures(&limit, "the holder is inside", |it| it.inside == 1);
    let mut asking = TcpStream::connect(address).expect("connected");
    asking.write_all(b"q").expect("sent");
    await_figures(&limit, "the other waits", |it| it.waiting > 0);
    *gate.0.lock().expect("sound") = true;
    gate.1.notify_all();
    asking.set_read_timeout(Some(patience())).expect("set");
    let mut reply = [0];
    asking.read_exact(&mut reply).expect("a reply");
    await_figures(&limit, "no job is there", |it| {
        (it.inside, it.waiting) == (0, 0)
    });
    drop((holder, asking));
    running.handle().drain();
    running.wait().expect("ended");
}

#[test]
fn a_job_that_asks_a_full_limit_twice_gets_its_reply() {
    on_both(gets_its_reply);
}
