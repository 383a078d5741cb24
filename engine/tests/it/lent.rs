//! A job that one connection asked for and another one dispatches belongs to the latter.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::lines::on_both;
use flatpath::{Context, Job, Protocol, Received, Server, WorkerScope};

use flatpath_testkit::patience;

/// `k` puts a job by for whichever connection says `d` next; it is answered when it is done.
struct Lends;

impl Protocol for Lends {
    type ThreadState = Option<Job<Lends>>;
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if input.starts_with(b"k") {
            *context.thread = context.job();
            context.write(b"k").expect("room");
        } else if let Some(job) = context.thread.take() {
            context.dispatch(job);
        }
        Received::Consumed
    }

    fn run(&self, (): &mut (), _: &mut WorkerScope<'_>) {}

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        assert_eq!(context.jobs_out(), 0);
        context.write(b"d").expect("room");
        context.recycle(job);
    }
}

#[test]
fn a_job_comes_back_to_the_connection_that_dispatched_it() {
    on_both(|choice| {
        let server = Server::new().driver(choice).listen("127.0.0.1:0", Lends);
        let running = server.start().expect("started");
        let mut clients = [(); 2].map(|()| {
            let address = running.addresses()[0].address;
            let client = TcpStream::connect(address).expect("connected");
            client.set_read_timeout(Some(patience())).expect("set");
            client
        });
        for _ in 0..3 {
            for (client, word) in clients.iter_mut().zip([b"k", b"d"]) {
                client.write_all(word).expect("written");
                let mut answer = [0];
                client.read_exact(&mut answer).expect("an answer");
                assert_eq!(&answer, word);
            }
        }
        drop(clients);
        running.handle().drain();
        running.wait().expect("a clean end");
    });
}
