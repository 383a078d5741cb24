//! A thousand handshakes are begun at once, again and again, while calm clients ask for a file.
//!
//! | interval | calm clients | newcomers | columns |
//! |---|---|---|---|
//! | alone | ask | none | `alone p99 us` |
//! | beside | ask | shake hands and go | `beside p99 us`, `handshakes/s` |
//!
//! The next thousand begin once all before have their handshake or have failed. Clients would be on
//! other machines: so in a full run the thread that takes latencies gets a core first
//! (`scheduling`). The newcomers get theirs as the server does: if they got one last, there would
//! be no storm where the cores are busy. A server that serves its own clients before newcomers
//! makes fewer handshakes meanwhile; `handshakes/s` says how many.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::servers::{ERRORS, Metric, Run};
use flatpath_bench_common::usage::Reading;

use super::calm::Calm;
use super::newcomers::{self, Counts, LOOK_EVERY, Newcomers};
use super::tls::Client;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

/// 99th percentile of the calm clients' requests: without newcomers, and beside them.
pub(crate) const ALONE: Metric = Metric::median("alone p99 us");
pub(crate) const BESIDE: Metric = Metric::median("beside p99 us");
/// Handshakes of newcomers that were completed.
pub(crate) const HANDSHAKES: Metric = Metric::median("handshakes/s");
/// Newcomers whose handshake failed.
const UNSHAKEN: Metric = Metric::sum("unshaken");

/// Of the newcomers, before the calm clients begin.
const SETTLE: Duration = Duration::from_millis(200);

/// This many calm clients, and newcomers at once. See the module.
pub(crate) struct Storms {
    pub(crate) calm: u32,
    pub(crate) newcomers: u32,
}

impl Load for Storms {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let (server, client) = (row.start(ground)?, Client::new(&ground.issued, &[])?);
        newcomers::warm_up(&client, server.address)?;
        Ok(Box::new(move || self.measure(ground, &server, &client)))
    }
}

impl Storms {
    fn measure(&self, ground: &Ground, server: &Server, client: &Client) -> io::Result<Run> {
        let (time, address, group) = (ground.time(), server.address, server.group());
        let (go, begins) = channel();
        // Begun here: a thread is scheduled like the one that starts it.
        let storm = Storm::begin(client, address, self.newcomers as usize, begins)?;
        let ask = move || {
            let mut calm = Calm::connect(client, address, self.calm)?;
            let alone = calm.ask(time)?;
            // It waits for nothing else.
            let _ = go.send(());
            let begun = Instant::now();
            thread::sleep(SETTLE);
            let before = Reading::take(Some(group))?;
            let beside = calm.ask(time)?;
            Ok((alone, beside, before.used()?, begun))
        };
        let (alone, beside, used, begun) = super::apart(!ground.pace.is_quick, ask)?;
        let (lasted, shaken) = (begun.elapsed(), storm.end()?);
        if shaken.served == 0 {
            return Err(io::Error::other("not one handshake: there was no storm"));
        }
        let run = vec![
            (ALONE, alone.quantile(0.99)),
            (BESIDE, beside.quantile(0.99)),
            (HANDSHAKES, shaken.served as f64 / lasted.as_secs_f64()),
            (UNSHAKEN, shaken.failed as f64),
            (ERRORS, (alone.failed + beside.failed) as f64),
        ];
        server.shown(&used, run)
    }
}

/// A thread of newcomers. Dropping this ends it, too.
struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Counts>>>,
}

impl Storm {
    /// They come when they are told to.
    fn begin(
        client: &Client,
        address: SocketAddr,
        count: usize,
        begins: Receiver<()>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, told) = (client.clone(), Arc::clone(&stop));
        let rage = move || {
            let newcomers = Newcomers::new(&client, address, None)?;
            match begins.recv() {
                Ok(()) => come_again_and_again(newcomers, count, &told),
                Err(_) => Ok(Counts::none()),
            }
        };
        let thread = thread::Builder::new()
            .name("newcomers".into())
            .spawn(rage)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// What came of them.
    fn end(mut self) -> io::Result<Counts> {
        let counts = self.join();
        counts.unwrap_or_else(|| Err(io::Error::other("the newcomers panicked")))
    }

    fn join(&mut self) -> Option<io::Result<Counts>> {
        // ORDER: the thread only has to see it some time; joining it orders the rest.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn come_again_and_again(
    mut newcomers: Newcomers,
    count: usize,
    stop: &AtomicBool,
) -> io::Result<Counts> {
    // ORDER: only to be seen some time.
    let is_over = || stop.load(Ordering::Relaxed);
    while !is_over() {
        newcomers.come(count)?;
        let (mut under_way, begin) = (count, Instant::now());
        while under_way > 0 && !is_over() {
            if begin.elapsed() > http::PATIENCE {
                newcomers.counts.failed += under_way as u64;
                break;
            }
            under_way -= newcomers.advance(LOOK_EVERY)?.len();
        }
    }
    Ok(newcomers.counts)
}

#[cfg(test)]
mod tests {
    use super::super::tls::tests::server;
    use super::*;
    use flatpath_testkit::Issued;

    #[test]
    fn newcomers_come_again_until_the_end() {
        let issued = Issued::for_localhost();
        let client = Client::new(&issued, &[]).expect("made");
        let address = server(&issued);
        let mut calm = Calm::connect(&client, address, 2).expect("established");
        let time = Duration::from_millis(200);
        calm.ask(time).expect("answered");
        let (go, begins) = channel();
        let storm = Storm::begin(&client, address, 5, begins).expect("a thread");
        go.send(()).expect("it waits");
        let counts = calm.ask(time).expect("answered");
        let shaken = storm.end().expect("ended");
        assert_eq!((counts.failed, shaken.failed), (0, 0));
        assert!(counts.served > 0 && shaken.served > 5, "{}", shaken.served);
    }
}
