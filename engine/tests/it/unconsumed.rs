//! A protocol that consumes nothing costs a bounded buffer: its connection is cut. On both drivers.

use std::io::{Read, Write};

use crate::gate::{client, patience};
use crate::lines::on_both;
use flatpath::{Context, Job, Protocol, Received, Server, WorkerScope};

/// Always wants more.
struct Insatiable;

impl Protocol for Insatiable {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::NeedMore { consumed: 0 }
    }

    fn run(&self, (): &mut (), _: &mut WorkerScope<'_>) {}

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.recycle(job);
    }
}

#[test]
fn a_connection_whose_input_is_never_consumed_is_cut() {
    on_both(|choice| {
        let server = Server::new().driver(choice);
        let server = server.listen("127.0.0.1:0", Insatiable);
        let running = server.start().expect("started");
        let mut client = client(running.addresses()[0].address);
        client.set_write_timeout(Some(patience())).expect("set");
        // More than the sockets' buffers take.
        let written = client.write_all(&vec![0; 64 << 20]);
        let ended = written.and_then(|()| client.read(&mut [0]));
        let kind = ended.expect_err("it was cut").kind();
        let cut = [
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::BrokenPipe,
        ];
        assert!(cut.contains(&kind), "{kind:?}");
    });
}
