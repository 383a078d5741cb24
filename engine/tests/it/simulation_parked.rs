//! Jobs that wait for what may block hold no worker, on the simulated driver: the jobs that their
//! listener holds back go on in their stead, at once.

use std::sync::Mutex;
use std::time::Duration;

use flatpath::blocking::{BlockingLimit, Entry, Permit, WaitLimits};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Context, Job, ListenerLimits, Protocol, Received, WorkerScope};

/// Half of them may be inside what blocks.
const WORKERS_MAX: u32 = 4;

/// One job for each byte, and one byte for each reply.
///
/// | byte  | its job                                         |
/// |-------|-------------------------------------------------|
/// | `k`   | enters the limit, and keeps the place from then |
/// | `e`   | enters the limit                                |
/// | other | nothing                                         |
struct Entering {
    limit: BlockingLimit,
    kept: Mutex<Vec<Permit>>,
}

impl Protocol for Entering {
    type ThreadState = ();
    type Session = ();
    type Job = u8;

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        for byte in input {
            let mut job = context.job().expect("room for a job");
            *job = *byte;
            context.dispatch(job);
        }
        Received::Consumed
    }

    fn run(&self, job: &mut u8, scope: &mut WorkerScope<'_>) {
        if !matches!(*job, b'k' | b'e') {
            return;
        }
        if let Entry::Entered(inside) = self.limit.enter(scope)
            && *job == b'k'
        {
            self.kept.lock().expect("sound").push(inside);
        }
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.write(&[*job]).expect("room");
        context.recycle(job);
    }
}

#[test]
fn sim_a_job_that_parks_lets_another_of_its_listener_go_at_once() {
    let limits = WaitLimits {
        waiting_max: 100,
        stuck_after: Duration::from_secs(3_600),
    };
    let limit = BlockingLimit::new("a mount", limits);
    let entering = Entering {
        limit: limit.clone(),
        kept: Mutex::default(),
    };
    let one = ListenerLimits {
        workers_max: Some(1),
        ..ListenerLimits::default()
    };
    let listeners = [one, ListenerLimits::default()];
    let mut server =
        SimulatedServer::with_limited(Conditions::calm(1), WORKERS_MAX, &listeners, entering);
    let turns = |server: &mut SimulatedServer| (0..50).for_each(|_| server.turn());
    let client = server.connect();
    client.write(b"kk");
    turns(&mut server);
    assert_eq!(client.read(), b"kk");
    // Both at once: the second is held back before the first runs.
    client.write(b"ex");
    while limit.figures().waiting == 0 {
        server.turn();
    }
    assert_eq!(
        server.statistics().held_back_share,
        2,
        "the second of each pair"
    );
    let jobs = server.handle().figures().jobs();
    assert_eq!((jobs.parked, jobs.held_back), (1, 0), "no turn is needed");
    turns(&mut server);
    assert_eq!(client.read(), b"x", "the other waits");
    server.force();
}
