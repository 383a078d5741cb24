//! For tests: a protocol that holds memory, and takes more of it, as its lines say.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flatpath::memory::{Buffer, Fragment, Wanted};
use flatpath::{
    Bytes, ConnectionHandle, Context, Event, Job, ListenerOptions, Phase, Protocol, Received,
    Stall, WorkerScope,
};

/// What a stream and a job take at a time, in bytes.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

/// Bytes of one large reply.
pub(crate) const LARGE_BYTES: usize = 256 * 1024;
static LARGE: [u8; LARGE_BYTES] = [b'.'; LARGE_BYTES];

/// | line     | what becomes of it                                           |
/// |----------|--------------------------------------------------------------|
/// | `hold N` | takes N of the smallest buffers and waits without a deadline |
/// | `lend N` | the same until others wait for memory                        |
/// | `bulk N` | the same with N chunks, without the reserve                  |
/// | `last`   | a job of it lasts as long as the connection                  |
/// | `keep`   | keeps the page of the line                                   |
/// | `free`   | drops them                                                   |
/// | `stream` | sends a chunk whenever little is queued, without end         |
/// | `large`  | sends [`LARGE_BYTES`] at once                                |
/// | `body`   | waits for more of a body; what is no whole line is left      |
/// | `wait`   | leaves all that follows until [`Hoard::wake`]                |
/// | `job`    | runs a job that takes a chunk; `ok` when it has one          |
/// | other    | `ok`, from constant memory                                   |
#[derive(Clone, Default)]
pub(crate) struct Hoard {
    chunks: Arc<AtomicUsize>,
    runs: Arc<AtomicUsize>,
    fair_bytes: Arc<AtomicUsize>,
    waiting: Arc<Mutex<Vec<ConnectionHandle>>>,
}

#[derive(Default)]
pub(crate) struct Session {
    held: Vec<Buffer>,
    /// What it holds is given back when others wait for memory.
    lends: bool,
    kept: Option<Fragment>,
    lasting: Vec<Job<Hoard>>,
    waits: bool,
}

#[derive(Default)]
pub(crate) struct Chunk(Option<Buffer>);

impl Hoard {
    /// Chunks that streams have made.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }

    /// How often jobs ran.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// What the last job had better have held, in bytes.
    pub(crate) fn fair_bytes(&self) -> usize {
        self.fair_bytes.load(Ordering::Relaxed)
    }

    /// Ends the waits of all lines `wait`.
    pub(crate) fn wake(&self) {
        for connection in self.waiting.lock().expect("no panic").drain(..) {
            connection.wake();
        }
    }

    fn send_chunk(&self, context: &mut Context<'_, Self>) {
        if let Some(mut chunk) = context.pool().for_bulk().take(CHUNK_BYTES) {
            chunk.advance(CHUNK_BYTES);
            context.write_buffer(chunk);
            self.chunks.fetch_add(1, Ordering::Relaxed);
        }
        context.notify_output_low();
    }

    fn obey(&self, line: &str, context: &mut Context<'_, Self>) {
        let (word, count) = line.split_once(' ').unwrap_or((line, "0"));
        match word {
            "hold" | "lend" | "bulk" => {
                context.session.lends = word == "lend";
                context.phase(Phase::Work);
                let count: usize = count.parse().expect("a number");
                let buffers = (0..count).map_while(|_| match word {
                    "bulk" => context.io.pool().for_bulk().take(CHUNK_BYTES),
                    _ => context.io.pool().take(1),
                });
                context.session.held.extend(buffers);
                assert_eq!(
                    context.session.held.len(),
                    count,
                    "the test asks for what there is"
                );
            }
            "last" => {
                let mut job = context.job().expect("few jobs are out");
                assert!(context.lasts(&mut job), "few last");
                context.session.lasting.push(job);
            }
            "keep" => {
                context.phase(Phase::Work);
                context.session.kept = context.retain(0..1);
                assert!(
                    context.session.kept.is_some(),
                    "the test asks for what there is"
                );
            }
            "free" => context.session.held.clear(),
            "large" => context.write_static(&LARGE),
            "body" => context.phase(Phase::Body),
            "wait" => {
                context.session.waits = true;
                let mut waiting = self.waiting.lock().expect("no panic");
                waiting.push(context.io.handle());
            }
            "stream" => {
                context.phase(Phase::Work);
                self.send_chunk(context);
            }
            "job" => {
                context.phase(Phase::Work);
                let job = context.job().expect("few jobs are out");
                context.dispatch(job);
            }
            _ => context.write_static(b"ok\n"),
        }
    }
}

impl Protocol for Hoard {
    type ThreadState = ();
    type Session = Session;
    type Job = Chunk;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            refusal: Bytes::from_static(b"full\n"),
            ..ListenerOptions::named("hoard")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let mut consumed = 0;
        while !context.session.waits
            && let Some(length) = input[consumed..].iter().position(|byte| *byte == b'\n')
        {
            let line = String::from_utf8_lossy(&input[consumed..consumed + length]).into_owned();
            self.obey(&line, context);
            consumed += length + 1;
        }
        match context.session.waits {
            true => Received::Blocked {
                consumed,
                on: Stall::Outside,
            },
            false => Received::NeedMore { consumed },
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(_) => context.close_after_output(),
            Event::OutputLow => self.send_chunk(context),
            Event::MemoryShort => {
                if context.session.lends {
                    context.session.held.clear();
                }
            }
            Event::Abandoned => context.session.held.clear(),
            Event::Woken => context.session.waits = false,
            other => other.by_default(context),
        }
    }

    fn run(&self, job: &mut Chunk, scope: &mut WorkerScope<'_>) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let fair_bytes = scope.pool().fair_bytes();
        self.fair_bytes.store(fair_bytes, Ordering::Relaxed);
        job.0 = scope.pool().for_bulk().take(CHUNK_BYTES);
    }

    fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
        if job.0.take().is_none() {
            return context.dispatch_with_memory(job, Wanted::Large, None);
        }
        context.recycle(job);
        context.write_static(b"ok\n");
    }
}
