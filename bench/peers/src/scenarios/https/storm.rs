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
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{ERRORS, Metric, Run};
use flatpath_bench_common::usage::Reading;

use super::calm::Asking;
use super::client::Client;
use super::newcomers::{Counts, LOOK_EVERY, Newcomers};
use super::{Bench, KINDS, OURS};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::common;

/// 99th percentile of the calm clients' requests: without newcomers, and beside them.
const ALONE: Metric = Metric::median("alone p99 us");
const BESIDE: Metric = Metric::median("beside p99 us");
/// Handshakes of newcomers that were completed.
const HANDSHAKES: Metric = Metric::median("handshakes/s");
/// Newcomers whose handshake failed.
const UNSHAKEN: Metric = Metric::sum("unshaken");

/// Calm clients.
const CALM: u32 = 50;
/// Newcomers at once.
const NEWCOMERS: u32 = 1000;
/// The same with `--quick`.
const NEWCOMERS_QUICK: u32 = 200;
/// Most of the latency without newcomers.
const RATIO_MAX: f64 = 2.0;
/// Of the newcomers, before the calm clients begin.
const SETTLE: Duration = Duration::from_millis(200);

pub(super) fn run(bench: &Bench<'_>) -> io::Result<BenchReport> {
    let session = bench.session;
    let newcomers = session.options.sized(NEWCOMERS, NEWCOMERS_QUICK);
    let name = format!("{CALM} calm clients over TLS, and {newcomers} handshakes at once");
    // Those of a thousand that are gone may still be closing when the next ones come.
    let start = |kind| bench.start(kind, CALM + 4 * newcomers);
    let turn = |_, server: &mut Server| measure(bench, server, newcomers as usize);
    let table = session.interleave(Scenario::Https, &name, &KINDS, start, turn)?;
    let table = table
        .with_ratio(BESIDE, Kind::HttpsNginx)
        .with_ratio(HANDSHAKES, Kind::HttpsNginx);
    let mut report = BenchReport::of_servers("https-storm", name, table);
    for ours in OURS {
        let wanted = Wanted::AtMost(RATIO_MAX);
        report.target_of((ours, BESIDE), Some((&ours, ALONE)), wanted);
    }
    Ok(report)
}

fn measure(bench: &Bench<'_>, server: &Server, newcomers: usize) -> io::Result<Run> {
    let options = &bench.session.options;
    let time = Duration::from_secs(options.seconds().into());
    let is_full = !options.common.quick;
    let calm = Asking::begin(&bench.client, server.address, CALM, is_full)?;
    let alone = calm.ask(time)?;
    let storm = Storm::begin(&bench.client, server.address, newcomers)?;
    thread::sleep(SETTLE);
    let before = Reading::take(Some(server.group()))?;
    let beside = calm.ask(time)?;
    let used = before.used()?;
    let (shaken, lasted) = storm.end()?;
    if shaken.served == 0 {
        return Err(io::Error::other("not one handshake: there was no storm"));
    }
    let mut run = vec![
        (ALONE, alone.quantile(0.99)),
        (BESIDE, beside.quantile(0.99)),
        (HANDSHAKES, shaken.served as f64 / lasted.as_secs_f64()),
        (UNSHAKEN, shaken.failed as f64),
        (ERRORS, (alone.failed + beside.failed) as f64),
    ];
    run.extend(common(server, &used)?);
    Ok(run)
}

/// A thread of newcomers. Dropping this ends it, too.
struct Storm {
    begun: Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Counts>>>,
}

impl Storm {
    fn begin(client: &Client, address: SocketAddr, count: usize) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, told) = (client.clone(), Arc::clone(&stop));
        let rage = move || {
            let newcomers = Newcomers::new(&client, address, None)?;
            come_again_and_again(newcomers, count, &told)
        };
        let builder = thread::Builder::new().name("newcomers".into());
        Ok(Self {
            begun: Instant::now(),
            stop,
            thread: Some(builder.spawn(rage)?),
        })
    }

    /// What came of them, and how long it lasted.
    fn end(mut self) -> io::Result<(Counts, Duration)> {
        let lasted = self.begun.elapsed();
        let counts = self.join();
        let counts = counts.ok_or_else(|| io::Error::other("the newcomers panicked"))??;
        Ok((counts, lasted))
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
    use super::super::client::tests::server;
    use super::*;
    use crate::certificate::Pair;

    #[test]
    fn newcomers_come_again_until_the_end() {
        let pair = Pair::make().expect("made");
        let client = Client::new(&pair, &[]).expect("made");
        let address = server(&pair);
        let calm = Asking::begin(&client, address, 2, false).expect("a thread");
        let time = Duration::from_millis(200);
        calm.ask(time).expect("answered");
        let storm = Storm::begin(&client, address, 5).expect("begun");
        let counts = calm.ask(time).expect("answered");
        let (shaken, lasted) = storm.end().expect("ended");
        assert_eq!((counts.failed, shaken.failed), (0, 0));
        assert!(counts.served > 0 && shaken.served > 5, "{}", shaken.served);
        assert!(lasted >= time);
    }
}
