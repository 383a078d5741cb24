//! Functions of a program that signals call and that panic: the next signal is heard all the same.
//! In a process of its own, which it sends signals to.

use std::panic::resume_unwind;
use std::sync::mpsc::channel;

use flatpath::{Context, Protocol, Received, Server, SignalWatch};
use flatpath_testkit::in_child;
use rustix::process::{Signal, getpid, kill_process};

use flatpath_testkit::patience;

struct Silent;

impl Protocol for Silent {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::Consumed
    }
}

#[test]
fn a_function_for_a_signal_may_panic() {
    if !in_child(concat!(
        module_path!(),
        "::a_function_for_a_signal_may_panic"
    )) {
        return;
    }
    let (told, called) = channel();
    let again = told.clone();
    let watch = SignalWatch::begin().expect("watched").reporting(move |_| {
        let _ = told.send("report");
        resume_unwind(Box::new(1_u8));
    });
    let running = Server::new().listen("127.0.0.1:0", Silent);
    let running = running.start().expect("started");
    let (ended, end) = channel();
    let server = std::thread::spawn(move || {
        let outcome = watch.expect("watched").run_with(running, move |_| {
            let _ = again.send("stopping");
            resume_unwind(Box::new(2_u8));
        });
        let _ = ended.send(outcome.is_ok());
    });
    let raise = |signal| kill_process(getpid(), signal).expect("sent");
    for _ in 0..2 {
        raise(Signal::USR1);
        assert_eq!(called.recv_timeout(patience()), Ok("report"));
    }
    raise(Signal::TERM);
    assert_eq!(called.recv_timeout(patience()), Ok("stopping"));
    assert_eq!(
        end.recv_timeout(patience()),
        Ok(true),
        "the server has drained"
    );
    server.join().expect("no panic");
}
