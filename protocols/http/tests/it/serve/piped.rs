//! A body whose stream a worker has: it is stored whole, and its connection ends when it is to end,
//! wherever the worker is.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::memory::{Payload, Piped, RegionConfig};
use flatpath::{DriverChoice, Limits, Server, Turn, WorkerScope};
use flatpath_http::{
    BodyPlan, Disposition, Head, Http, Plan, Reply, Request, Response, Service, Sink,
    UploadDecision,
};
use flatpath_testkit::{Client, noise};

use crate::on_each_driver;
use crate::serve::{Door, start};

on_each_driver!(
    a_long_body_is_stored_whole_and_in_order,
    a_connection_ends_while_a_worker_has_its_stream,
);

/// Stores bodies. Pipes wait at the door.
#[derive(Clone, Default)]
struct Storing {
    door: Arc<Door>,
    pipes: Arc<AtomicUsize>,
    /// How long a piece takes that is no pipe. Meanwhile the body gathers in the socket, also where
    /// its client is slower than the server.
    pause: Duration,
}

impl Service for Storing {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        Response::default()
    }

    fn plan(&self, _: &Head<'_>) -> Plan<'_> {
        Plan {
            body: BodyPlan::Streamed,
            ..Plan::default()
        }
    }

    fn open(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        let file = rustix::fs::memfd_create("stored", rustix::fs::MemfdFlags::CLOEXEC);
        UploadDecision::Sink(Box::new(Stored {
            file: file.expect("a file").into(),
            storing: self.clone(),
        }))
    }

    fn region(&self) -> Option<RegionConfig> {
        Some(RegionConfig::default())
    }
}

struct Stored {
    file: File,
    storing: Storing,
}

impl Sink for Stored {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        std::thread::sleep(self.storing.pause);
        piece.write_to(&mut self.file).expect("a file in memory");
        Ok(())
    }

    fn takes_pipes(&self) -> bool {
        true
    }

    fn write_piped(
        &mut self,
        piped: &mut Piped,
        _: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.storing.pipes.fetch_add(1, Ordering::Relaxed);
        self.storing.door.pass();
        piped.write_to(&self.file).expect("a file in memory");
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        let mut stored = Vec::new();
        std::io::Seek::rewind(&mut self.file).expect("a file in memory");
        self.file
            .read_to_end(&mut stored)
            .expect("a file in memory");
        Response::new(stored.into())
    }
}

fn put(length: usize) -> String {
    format!("PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n")
}

fn a_long_body_is_stored_whole_and_in_order(choice: DriverChoice) {
    let storing = Storing::default();
    storing.door.open();
    let server = Server::new().workers(2..=4);
    let (_server, address) = start(server, choice, Http::service(storing.clone()));
    let mut client = Client::connect(address);
    for seed in 0..3 {
        let body = noise(seed, 20_000_000 + seed as usize);
        client.send(put(body.len()));
        client.send(&body);
        // The next one follows at once.
        assert!(client.reply().body == body);
    }
    assert!(storing.pipes.load(Ordering::Relaxed) > 0);
}

fn a_connection_ends_while_a_worker_has_its_stream(choice: DriverChoice) {
    let storing = Storing {
        pause: Duration::from_millis(10),
        ..Storing::default()
    };
    let limits = Limits {
        drain_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = Server::new().workers(2..=4).limits(limits);
    let (server, address) = start(server, choice, Http::service(storing.clone()));
    let mut client = Client::connect(address);
    let mut sending = client.twin();
    // At hand before the head: a client that pauses behind that is ended.
    let bytes = noise(1, 64_000).repeat(1_000);
    let sender = std::thread::spawn(move || {
        sending.send(put(bytes.len()));
        // Until the server ends the connection.
        sending.try_send(bytes).expect_err("it ends");
    });
    storing.door.until_waited(1);
    server.handle().drain();
    client.rest();
    sender.join().expect("it saw the end");
    storing.door.open();
}
