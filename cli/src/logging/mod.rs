//! The log of the command: one thread writes standard error, and no other thread waits for it.
//!
//! A line is filtered (`env_filter`: `--log`, else `RUST_LOG`) and formatted on the thread that has
//! something to say, and then queued. The writer thread takes it from there. A pipe that is full, a
//! terminal that was stopped or a slow disk therefore holds up the writer alone: neither a network
//! thread nor a worker, the thread that handles signals, or the end of the process.
//!
//! - Per message (file and line of the call) a burst passes, and then one line per second, which
//!   says how many were left out: see [`limiter`]. Not limited are `debug` and `trace`, which are
//!   asked for by hand, and [`REPORT`], which answers a signal.
//! - Lines for which the queue has no room are dropped; their number is written in their place:
//!   see [`queue`].
//! - Messages of panics pass through here too: the default hook writes from the thread that panics.
//! - The end of the process waits for what is queued, for [`FLUSH`] at most.
//!
//! Cost: a line that is left out takes one lock and one lookup and is not formatted; one that
//! passes is formatted, and copied once.

mod limiter;
mod queue;
mod sink;

use std::fmt::Display;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use env_filter::Filter;
use flatpath::lock::ReadWriteLock;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::units::similar;
use limiter::{Limiter, Verdict};
use queue::{Next, Patience, Queue};
use sink::Sink;

/// The target of lines that an operator asked for with a signal: never limited.
pub(crate) const REPORT: &str = "flatpath::report";

/// The longest that the end of the process waits for the writer.
const FLUSH: Patience = Patience {
    blocked: Duration::from_millis(200),
    most: Duration::from_secs(1),
};

/// The same where the process is late already.
const LATE_FLUSH: Patience = Patience {
    blocked: Duration::from_millis(50),
    most: Duration::from_millis(200),
};

/// The longest that a thread that panics waits for the writer, unless it is one of the server's
/// ([`SERVER_THREADS`]): its message may be the last of this process.
const PANIC_FLUSH: Patience = Patience {
    blocked: Duration::ZERO,
    most: Duration::from_millis(50),
};

/// How the names of the server's threads begin. They catch the panics of requests and continue, and
/// a network thread waits for nothing.
const SERVER_THREADS: &str = "flatpath-";

/// The levels without `--log` and `RUST_LOG`.
const LEVEL_DEFAULT: &str = "info";

/// The queue of this process, from [`start`] on.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// The filter, from [`start`] on.
static FILTER: OnceLock<Levels> = OnceLock::new();

/// A filter that can be replaced. It is asked for each record of a level that some target logs.
#[derive(Clone)]
struct Levels(Arc<ReadWriteLock<Filter>>);

impl Levels {
    fn new(filter: Filter) -> Levels {
        Levels(Arc::new(ReadWriteLock::new(filter)))
    }
}

/// The value of `--log`: a level, or `TARGET=LEVEL`, several with commas.
///
/// `RUST_LOG` may also name a target alone, for all its levels. Here that is refused: a level that
/// is mistyped would be the only target that is logged, and the log silent.
///
/// # Errors
/// It is neither; the nearest level is named.
pub(crate) fn levels(text: &str) -> Result<String, String> {
    const LEVELS: &str = "write error, warn, info, debug, trace or off, or TARGET=LEVEL";
    // After a slash comes a pattern of messages.
    let directives = text.split('/').next().unwrap_or_default().split(',');
    for directive in directives.map(str::trim).filter(|it| !it.is_empty()) {
        let level = directive.split_once('=').map_or(directive, |(_, it)| it);
        let level = level.trim();
        if level.parse::<LevelFilter>().is_err() {
            let hint = nearest(level).map_or(String::new(), |it| format!(", did you mean {it}?"));
            return Err(format!("\"{level}\" is not a level{hint}; {LEVELS}"));
        }
    }
    let read = env_filter::Builder::new().try_parse(text).map(|_| ());
    read.map_err(|cause| format!("{cause}; {LEVELS}"))?;
    Ok(text.into())
}

/// The level that was probably meant.
fn nearest(word: &str) -> Option<String> {
    /// From which similarity on clap suggests a flag, too.
    const SIMILAR: f64 = 0.7;
    let levels = LevelFilter::iter().map(|it| it.as_str().to_lowercase());
    similar(&word.to_lowercase(), levels, SIMILAR)
}

/// Starts the writer, and makes it the log of this process and of its panics. It logs the levels
/// that were chosen, or else those of `RUST_LOG`.
///
/// # Errors
/// The writer thread cannot be started.
pub(crate) fn start(chosen: Option<&str>) -> io::Result<()> {
    let queue = Arc::clone(QUEUE.get_or_init(Arc::default));
    let limiter = Arc::new(Limiter::default());
    let filter = Levels::new(filter(chosen));
    let _ = FILTER.set(filter.clone());
    let writer = Writer {
        sink: Sink::new(Arc::clone(&queue)),
        queue: Arc::clone(&queue),
        limiter: Arc::clone(&limiter),
        filter: filter.clone(),
    };
    std::thread::Builder::new()
        .name("flatpath-log".into())
        .spawn(move || writer.run())?;
    let level = filter.0.read().filter();
    let logger = Logger {
        filter,
        queue: Arc::clone(&queue),
        limiter: Arc::clone(&limiter),
    };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
    std::panic::set_hook(Box::new(move |info| note_panic(info, &queue, &limiter)));
    Ok(())
}

/// From now on logs these levels, or else those of `RUST_LOG`.
pub(crate) fn set_levels(chosen: Option<&str>) {
    let Some(levels) = FILTER.get() else {
        return;
    };
    let filter = filter(chosen);
    log::set_max_level(filter.filter());
    *levels.0.write() = filter;
}

/// Writes a line that is no log record, such as the reason why a command failed.
pub(crate) fn say(text: &str) {
    if let Some(queue) = QUEUE.get() {
        queue.push(format!("{text}\n"));
    }
}

/// Waits until everything queued is written; gives up early if standard error takes nothing.
pub(crate) fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH);
    }
}

/// The same, for a process that should have ended already.
pub(crate) fn finish_soon() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LATE_FLUSH);
    }
}

fn filter(chosen: Option<&str>) -> Filter {
    let variable = std::env::var("RUST_LOG").ok();
    let levels = chosen.or(variable.as_deref()).unwrap_or(LEVEL_DEFAULT);
    env_filter::Builder::new().parse(levels).build()
}

/// Characters that a terminal obeys, written out: text may have come from a client.
fn harmless(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for character in words.chars() {
        match character {
            '\n' | '\t' => text.push(character),
            control if control.is_control() => text.extend(control.escape_unicode()),
            other => text.push(other),
        }
    }
    text
}

/// `[2026-11-21T04:05:06Z INFO  flatpath::report] words`, with further lines of the words indented.
fn format(record: &Record<'_>, more: &dyn Display) -> String {
    let time = humantime::format_rfc3339_seconds(SystemTime::now());
    let (level, target) = (record.level(), record.target());
    let words = harmless(&format!("{}{more}", record.args())).replace('\n', "\n    ");
    format!("[{time} {level:<5} {target}] {words}\n")
}

/// The log of this process.
struct Logger {
    filter: Levels,
    queue: Arc<Queue>,
    limiter: Arc<Limiter>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.0.read().enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.filter.0.read().matches(record) {
            return;
        }
        if record.level() > Level::Info || record.target() == REPORT {
            return self.queue.push(format(record, &""));
        }
        let file = record.file().unwrap_or(record.target());
        let line = record.line().unwrap_or_default();
        match self
            .limiter
            .judge(record.level(), file, line, Instant::now())
        {
            Verdict::Pass { left_out } => {
                self.queue.push(format(record, &more_like_this(left_out)));
            }
            Verdict::LeaveOut { is_first: true } => self.queue.nudge(),
            Verdict::LeaveOut { is_first: false } => {}
        }
    }

    fn flush(&self) {}
}

fn more_like_this(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        left_out => format!(" (and {left_out} more like this)"),
    }
}

/// The hook for panics: the words of the default one, through the queue.
fn note_panic(info: &PanicHookInfo<'_>, queue: &Queue, limiter: &Limiter) {
    let (file, line, column) = info.location().map_or(("?", 0, 0), |location| {
        (location.file(), location.line(), location.column())
    });
    let left_out = match limiter.judge(Level::Error, file, line, Instant::now()) {
        Verdict::Pass { left_out } => left_out,
        Verdict::LeaveOut { is_first } => {
            if is_first {
                queue.nudge();
            }
            return;
        }
    };
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a payload that is not text");
    let more = more_like_this(left_out);
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let message = harmless(message);
    let mut text =
        format!("thread '{name}' panicked at {file}:{line}:{column}:\n{message}{more}\n");
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        text += &format!("{backtrace}\n");
    }
    queue.push(text);
    if !name.starts_with(SERVER_THREADS) {
        queue.flush(PANIC_FLUSH);
    }
}

/// The only thread that touches standard error.
struct Writer {
    sink: Sink,
    queue: Arc<Queue>,
    limiter: Arc<Limiter>,
    filter: Levels,
}

impl Writer {
    fn run(mut self) {
        loop {
            match self.queue.next() {
                // A line that standard error refuses is lost: there is nowhere to report it.
                Next::Line(line) => drop(self.sink.write_all(line.as_bytes())),
                Next::Dropped(count) => self.say(
                    Level::Warn,
                    format_args!("{count} lines were dropped: standard error did not take them"),
                ),
                Next::Nudged { is_ending } => self.report_left_out(is_ending),
            }
        }
    }

    /// Writes how many lines were left out by messages that have not come again since.
    fn report_left_out(&mut self, is_ending: bool) {
        let now = Instant::now();
        for left in self.limiter.take_quiet(now, is_ending) {
            let (count, message) = (left.count, left.message);
            self.say(
                left.level,
                format_args!("{count} more lines like the last one of {message} were left out"),
            );
        }
        if !is_ending && self.limiter.has_left_out() {
            self.queue.nudge_later();
        }
    }

    fn say(&mut self, level: Level, args: std::fmt::Arguments<'_>) {
        let record = Record::builder()
            .level(level)
            .target("flatpath::log")
            .args(args)
            .build();
        if self.filter.0.read().matches(&record) {
            drop(self.sink.write_all(format(&record, &"").as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_rust_log() {
        for text in ["off", "debug", "warn,flatpath::report=info"] {
            assert_eq!(levels(text).as_deref(), Ok(text));
        }
        assert!(levels("flatpath=loud").is_err_and(|why| why.contains("debug, trace or off")));
    }

    #[test]
    fn a_word_that_is_not_a_level_is_refused_with_the_nearest_level() {
        for (text, nearest) in [
            ("inof", "info"),
            ("Warning", "warn"),
            ("warn,flatpath_http=debg", "debug"),
            ("eror,flatpath=info", "error"),
        ] {
            let why = levels(text).expect_err(text);
            assert!(why.contains(&format!("did you mean {nearest}?")), "{why}");
        }
        for text in ["loud", "flatpath_http"] {
            let why = levels(text).expect_err(text);
            assert!(why.contains("is not a level; write error"), "{why}");
        }
        for text in ["INFO", " warn , flatpath=debug", "info,"] {
            assert_eq!(levels(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_record_has_time_level_and_target_and_no_line_that_looks_like_another_record() {
        let args = format_args!("one\n[two]");
        let record = Record::builder()
            .level(Level::Warn)
            .target("a")
            .args(args)
            .build();
        let line = format(&record, &" more");
        let (time, rest) = line.split_at("[2026-11-21T04:05:06Z".len());
        assert!(humantime::parse_rfc3339(&time[1..]).is_ok(), "{line}");
        assert_eq!(rest, " WARN  a] one\n    [two] more\n");
    }

    #[test]
    fn no_words_move_the_cursor_of_a_terminal() {
        let args = format_args!("\u{1b}[2J \u{9b}2J \r \u{7f} \t é\u{a0}");
        let record = Record::builder().level(Level::Warn).args(args).build();
        let line = format(&record, &"");
        let end = "\\u{1b}[2J \\u{9b}2J \\u{d} \\u{7f} \t é\u{a0}\n";
        assert!(line.ends_with(end), "{line:?}");
    }

    #[test]
    fn a_message_in_a_flood_is_formatted_with_the_number_of_those_left_out() {
        let queue = Arc::new(Queue::default());
        let logger = Logger {
            filter: Levels::new(filter(Some("info"))),
            queue: Arc::clone(&queue),
            limiter: Arc::default(),
        };
        let log = |level: Level, target: &str, line: u32| {
            let record = Record::builder()
                .level(level)
                .target(target)
                .file(Some("a.rs"))
                .line(Some(line))
                .args(format_args!("words"))
                .build();
            logger.log(&record);
        };
        for _ in 0..2_000 {
            log(Level::Info, "a", 1);
            log(Level::Info, REPORT, 2);
            log(Level::Debug, "a", 3);
        }
        let mut lines = Vec::new();
        while let Some(Next::Line(line)) = queue.try_next() {
            lines.push(line);
        }
        let of = |target: &str| lines.iter().filter(|line| line.contains(target)).count();
        assert_eq!(of(REPORT), 2_000, "what was asked for is not limited");
        assert!(of(" a]") >= 16, "a burst passes");
        assert!(of(" a]") < 1_000, "a flood does not");
        assert!(lines.iter().all(|line| line.ends_with('\n')));
    }
}
