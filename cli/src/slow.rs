//! `--slow`: names handlers in the log that run for long, while they still run.
//!
//! The housekeeper looks at what runs, without a lock and without the handlers' doing, four times
//! within the time that makes one slow. Each run is named once, and once more when it is over.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flatpath::Handle;
use flatpath::figures::RunningHandler;
use flatpath::housekeeper::{Next, Task};

/// Looks are at least and at most so far apart.
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The run of a handler: its thread, whether that is a network thread, and when it began.
type Run = (u32, bool, Duration);

/// The task that looks, until this is dropped.
pub(crate) struct SlowWatch {
    /// The time from which a handler is slow, in nanoseconds; `u64::MAX` for never.
    slow_ns: Arc<AtomicU64>,
    task: Task,
}

impl SlowWatch {
    /// One that does what [`SlowWatch::set`] says.
    ///
    /// # Errors
    /// The housekeeper cannot be started.
    pub(crate) fn start(server: Handle, slow: Option<Duration>) -> io::Result<SlowWatch> {
        let slow_ns = Arc::new(AtomicU64::new(nanoseconds(slow)));
        let (limit, mut named) = (Arc::clone(&slow_ns), HashMap::new());
        let task = Task::begin("slow handlers", move |_| {
            // ORDER: Relaxed: a number by itself.
            match limit.load(Ordering::Relaxed) {
                u64::MAX => Next::WhenWoken,
                slow_ns => {
                    let slow = Duration::from_nanos(slow_ns);
                    look(&server, slow, &mut named);
                    Next::After((slow / 4).clamp(LOOK_MIN, LOOK_MAX))
                }
            }
        });
        Ok(SlowWatch {
            slow_ns,
            task: task?,
        })
    }

    /// From now on names what runs for longer than this; nothing with `None`.
    pub(crate) fn set(&self, slow: Option<Duration>) {
        // ORDER: Relaxed: a number by itself.
        self.slow_ns.store(nanoseconds(slow), Ordering::Relaxed);
        self.task.wake();
    }
}

fn nanoseconds(slow: Option<Duration>) -> u64 {
    let slow_ns = slow.map(|slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX));
    slow_ns.unwrap_or(u64::MAX)
}

/// Names what has become slow since the last look, and what is over.
fn look(server: &Handle, slow: Duration, named: &mut HashMap<Run, String>) {
    let running = server.handlers(slow);
    let runs: Vec<Run> = running.iter().map(run_of).collect();
    named.retain(|run, words| {
        let runs_on = runs.contains(run);
        if !runs_on {
            log::info!("{words}: has returned");
        }
        runs_on
    });
    for handler in &running {
        named.entry(run_of(handler)).or_insert_with(|| {
            let words = words(server, handler);
            log::warn!("{words}: runs for {:.1} s", handler.age.as_secs_f64());
            words
        });
    }
}

fn run_of(handler: &RunningHandler) -> Run {
    (handler.thread, handler.is_inline, handler.since)
}

/// Whose handler it is, and where it runs.
fn words(server: &Handle, handler: &RunningHandler) -> String {
    let figures = server.figures();
    let listener = figures.listeners.get(handler.listener);
    let listener = listener.map_or("?".into(), |listener| {
        format!("{} {}", listener.name, listener.address)
    });
    match handler.is_inline {
        true => format!(
            "slow handler of {listener}, inline on network thread {}",
            handler.thread
        ),
        false => {
            let wchan = format!("/proc/self/task/{}/wchan", handler.thread);
            let sleeps_in = std::fs::read_to_string(wchan).unwrap_or_default();
            let place = match sleeps_in.trim() {
                "" | "0" => String::new(),
                function => format!(" in {function}"),
            };
            format!(
                "slow handler of {listener}, worker {}{place}",
                handler.thread
            )
        }
    }
}
