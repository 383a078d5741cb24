//! Streams on the simulated driver while memory runs short: what they hold, and who runs for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Buffer, Context, Job, Limits, Phase, Protocol, WorkerScope};

const SECOND: u64 = 1_000_000_000;

/// Memory without the reserve, in bytes.
const MEMORY_BYTES: usize = 7 * 1024 * 1024;
/// What a stream takes at a time, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// | line     | what becomes of it                                    |
/// |----------|-------------------------------------------------------|
/// | `hold N` | takes N buffers of 16 KiB                             |
/// | `free`   | drops them                                            |
/// | `stream` | sends a chunk whenever little is queued, for ever     |
/// | `job`    | runs a job that takes a chunk; `ok` when it has one   |
struct Streams {
    chunks: Arc<AtomicUsize>,
    runs: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Session {
    held: Vec<Buffer>,
}

#[derive(Default)]
struct Chunk(Option<Buffer>);

impl Streams {
    fn send_chunk(&self, context: &mut Context<'_, Self>) {
        if let Some(mut chunk) = context.pool().for_bulk().take(CHUNK_BYTES) {
            chunk.advance(CHUNK_BYTES);
            context.write_buffer(chunk);
            self.chunks.fetch_add(1, Ordering::Relaxed);
        }
        context.notify_drained();
    }
}

impl Protocol for Streams {
    type Lane = ();
    type Session = Session;
    type Job = Chunk;

    fn name(&self) -> &'static str {
        "streams"
    }

    fn lane(&self) {}

    fn received(
        &self,
        (): &mut (),
        session: &mut Session,
        context: &mut Context<'_, Self>,
        input: &[u8],
    ) -> usize {
        let line = String::from_utf8_lossy(input).into_owned();
        context.phase(Phase::Work);
        match line.trim_end().split_once(' ') {
            Some((_, count)) => {
                let count: usize = count.parse().expect("a number");
                let buffers = (0..count).map_while(|_| context.pool().for_bulk().take(CHUNK_BYTES));
                session.held.extend(buffers);
                assert_eq!(session.held.len(), count, "the test asks for what there is");
            }
            None if line == "free\n" => session.held.clear(),
            None if line == "stream\n" => self.send_chunk(context),
            None => {
                let job = context.job().expect("few jobs are out");
                context.dispatch(job);
            }
        }
        input.len()
    }

    fn input_ended(
        &self,
        (): &mut (),
        _session: &mut Session,
        context: &mut Context<'_, Self>,
        _left: &[u8],
    ) {
        context.close_after_output();
    }

    fn drained(&self, (): &mut (), _: &mut Session, context: &mut Context<'_, Self>) {
        self.send_chunk(context);
    }

    fn run(&self, job: &mut Chunk, scope: &mut WorkerScope<'_>) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        job.0 = scope.pool().for_bulk().take(CHUNK_BYTES);
    }

    fn finished(
        &self,
        (): &mut (),
        _session: &mut Session,
        context: &mut Context<'_, Self>,
        mut job: Job<Self>,
    ) {
        if job.0.take().is_none() {
            return context.dispatch_with_memory(job);
        }
        context.recycle(job);
        context.write_static(b"ok\n");
    }
}

/// A server, how many chunks streams have made, and how often jobs ran.
struct Site {
    server: SimulatedServer,
    chunks: Arc<AtomicUsize>,
    runs: Arc<AtomicUsize>,
}

impl Site {
    fn new() -> Site {
        let mut conditions = Conditions::calm(7);
        conditions.limits = Limits {
            buffer_bytes_max: MEMORY_BYTES / 7 * 8,
            write_ns_max: 1_000 * SECOND,
            ..Limits::default()
        };
        let (chunks, runs) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let protocol = Streams {
            chunks: Arc::clone(&chunks),
            runs: Arc::clone(&runs),
        };
        Site {
            server: SimulatedServer::new(conditions, protocol),
            chunks,
            runs,
        }
    }

    /// Holds that many buffers, in shares that stall none of the holders.
    fn hold(&mut self, buffers: usize) -> Vec<flatpath_driver::simulation::Client> {
        let mut left = buffers;
        let mut holders = Vec::new();
        while left > 0 {
            let client = self.server.connect();
            client.write(format!("hold {}\n", left.min(64)).as_bytes());
            left -= left.min(64);
            holders.push(client);
            self.pass(1);
        }
        holders
    }

    fn pass(&mut self, steps: u64) {
        for _ in 0..steps {
            self.server.world().advance(SECOND / 100);
            (0..8).for_each(|_| self.server.turn());
        }
    }
}

#[test]
fn sim_a_job_without_memory_waits_without_a_worker() {
    let mut site = Site::new();
    let holders = site.hold(MEMORY_BYTES / CHUNK_BYTES);
    let waits = site.server.connect();
    waits.write(b"job\n");
    site.pass(200);
    assert_eq!(site.runs.load(Ordering::Relaxed), 1, "there is no memory");
    assert_eq!(waits.read(), b"");
    holders[0].write(b"free\n");
    site.pass(20);
    assert_eq!(waits.read(), b"ok\n");
    assert_eq!(site.runs.load(Ordering::Relaxed), 2);
}

#[test]
fn sim_a_stream_that_is_not_read_holds_little_while_memory_is_short() {
    for (held_part, chunks) in [(0, 5), (80, 1)] {
        let mut site = Site::new();
        let _holders = site.hold(MEMORY_BYTES / CHUNK_BYTES * held_part / 100);
        let stream = site.server.connect();
        site.server.world().set_window_bytes(1);
        stream.write(b"stream\n");
        site.pass(50);
        let made = site.chunks.load(Ordering::Relaxed);
        assert_eq!(made, chunks, "with {held_part} % in use");
    }
}
