//! Requests that are tried on the network thread, on the simulated driver: when one is, when it
//! goes to a worker, and how a place loses the right. Whether a try took long, and whether the
//! thread slept in it, is said by the request.

use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use flatpath::prompt::PromptRight;
use flatpath::simulation::{Client, Conditions, SimulatedServer, World};
use flatpath::{Context, Job, Protocol, Received, WorkerScope};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Tries each byte: `.` takes no time, `u` a microsecond, `p` is preempted for ten milliseconds,
/// `s` sleeps as long, `h` hangs for four seconds, and `w` would wait, so that a worker
/// has to answer it. The reply is `t` for one that was answered by the try, `h` for one
/// that was handed over after it, else `j`.
#[derive(Clone)]
struct Tried {
    right: Arc<PromptRight>,
    world: Arc<OnceLock<World>>,
}

#[derive(Default)]
struct Reply(u8);

impl Tried {
    fn server() -> (SimulatedServer, Tried) {
        Tried::server_with(PromptRight::granted("the test"))
    }

    fn server_with(right: PromptRight) -> (SimulatedServer, Tried) {
        let tried = Tried {
            right: Arc::new(right),
            world: Arc::default(),
        };
        let server = SimulatedServer::new(Conditions::calm(1), tried.clone());
        assert!(tried.world.set(server.world().clone()).is_ok());
        (server, tried)
    }

    /// Answers, or does not.
    fn attempt(&self, byte: u8) -> bool {
        let world = self.world.get().expect("it is set before the first client");
        match byte {
            b'u' => world.advance(Duration::from_micros(1)),
            b'p' => world.advance(10 * MILLISECOND),
            b's' => world.sleep(10 * MILLISECOND),
            b'h' => world.sleep(4000 * MILLISECOND),
            _ => {}
        }
        byte != b'w'
    }
}

impl Protocol for Tried {
    type ThreadState = ();
    type Session = ();
    type Job = Reply;

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        for byte in input {
            let mut reply = b'j';
            if let Some(prompt) = context.prompt(&self.right) {
                let answered = self.attempt(*byte);
                context.tried(&self.right, prompt);
                if answered {
                    context.write(b"t").expect("room");
                    continue;
                }
                reply = b'h';
            }
            let mut job = context.job().expect("room for a job");
            job.0 = reply;
            context.dispatch(job);
        }
        Received::NeedMore {
            consumed: input.len(),
        }
    }

    fn run(&self, _job: &mut Reply, _scope: &mut WorkerScope<'_>) {}

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.write(&[job.0]).expect("room");
        context.recycle(job);
    }
}

/// What the server answers, once nothing more happens.
fn ask(server: &mut SimulatedServer, client: &Client, bytes: &[u8]) -> String {
    client.write(bytes);
    let mut heard = Vec::new();
    for _ in 0..1000 {
        server.turn();
        heard.extend(client.read_at_most(1000));
        if heard.len() >= bytes.len() {
            break;
        }
    }
    // Workers answer in any order.
    heard.sort_unstable();
    String::from_utf8(heard).expect("ASCII")
}

#[test]
fn sim_what_would_wait_is_handed_over_and_what_comes_with_it_too() {
    let (mut server, _) = Tried::server();
    let (first, second) = (server.connect(), server.connect());
    assert_eq!(ask(&mut server, &first, b"."), "t");
    assert_eq!(ask(&mut server, &first, b"w"), "h");
    assert_eq!(ask(&mut server, &first, b".w.."), "hjjt");
    assert_eq!(ask(&mut server, &second, b".."), "tt");
    assert_eq!(
        ask(&mut server, &first, b"."),
        "t",
        "nothing is out any more"
    );
}

#[test]
fn sim_another_connection_s_job_does_not_matter() {
    let (mut server, _) = Tried::server();
    let (first, second) = (server.connect(), server.connect());
    first.write(b"w");
    second.write(b".");
    let mut heard = Vec::new();
    for _ in 0..1000 {
        server.turn();
        heard.extend(second.read_at_most(10));
    }
    assert_eq!(heard, b"t");
}

#[test]
fn sim_a_turn_tries_a_bounded_number_and_for_a_bounded_time() {
    let (mut server, _) = Tried::server();
    let client = server.connect();
    let heard = ask(&mut server, &client, &[b'.'; 40]);
    let tried = heard.bytes().filter(|byte| *byte == b't').count();
    assert!((1..40).contains(&tried), "{heard}");
    // One that takes long is the last of its turn.
    assert_eq!(ask(&mut server, &client, b"p.."), "jjt");
    assert_eq!(ask(&mut server, &client, b"."), "t");
}

#[test]
fn sim_a_place_that_made_the_thread_sleep_loses_the_right() {
    let (mut server, tried) = Tried::server();
    let client = server.connect();
    assert_eq!(ask(&mut server, &client, b"s"), "t");
    assert!(!tried.right.is_lost(), "it is on trial");
    assert_eq!(ask(&mut server, &client, b"s"), "t");
    assert!(tried.right.is_lost());
    assert_eq!(ask(&mut server, &client, b"."), "j", "workers answer");
}

#[test]
fn sim_a_thread_that_was_preempted_keeps_every_right() {
    let (mut server, tried) = Tried::server();
    let client = server.connect();
    for _ in 0..200 {
        assert_eq!(ask(&mut server, &client, b"p"), "t");
    }
    assert!(!tried.right.is_lost());
    // A trial ends: then one long try alone proves nothing again.
    for _ in 0..200 {
        assert_eq!(ask(&mut server, &client, b"u"), "t");
    }
    assert_eq!(ask(&mut server, &client, b"s"), "t");
    assert!(!tried.right.is_lost());
}

#[test]
fn sim_one_try_that_hangs_among_short_ones_costs_the_right_until_a_pause_is_over() {
    let (mut server, tried) = Tried::server();
    // A client each time, since one that is silent for so long is disconnected.
    let after = |server: &mut SimulatedServer, wait: Duration, bytes: &[u8]| {
        server.world().advance(wait);
        let client = server.connect();
        ask(server, &client, bytes)
    };
    for pause_s in [10, 20, 40] {
        let client = server.connect();
        // As many short ones as end a trial.
        for _ in 0..200 {
            assert_eq!(ask(&mut server, &client, b"u"), "t");
        }
        assert_eq!(ask(&mut server, &client, b"h"), "t");
        assert!(tried.right.is_lost(), "it hung once");
        let most = Duration::from_secs(pause_s - 1);
        assert_eq!(after(&mut server, most, b"h"), "j", "workers answer");
        let rest = Duration::from_secs(2);
        assert_eq!(after(&mut server, rest, b"."), "t", "it is tried again");
    }
    assert_eq!(after(&mut server, MILLISECOND, b"h"), "t");
    // On trial, so that a short sleep is enough.
    assert_eq!(after(&mut server, Duration::from_secs(81), b"s"), "t");
    assert!(tried.right.is_lost());
}

#[test]
fn sim_workers_answer_until_a_look_at_the_place_was_quick() {
    let (open, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let look = move || {
        let _closed = wait.lock().expect("sound").recv();
        Ok(())
    };
    let (mut server, tried) = Tried::server_with(PromptRight::unproven("the test", look));
    let client = server.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut server, &client, b"."), "j", "the look hangs");
    }
    assert!(!tried.right.is_lost());
    drop(open);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut heard = "j".to_owned();
    while heard == "j" {
        assert!(Instant::now() < deadline, "it is not proven");
        // The look hung by the real clock, and may have cost the right for a while.
        server.world().advance(Duration::from_secs(3600));
        let client = server.connect();
        heard = ask(&mut server, &client, b".");
    }
    assert_eq!(heard, "t");
}
