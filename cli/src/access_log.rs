//! `--access-log`: one thread writes the lines of all network threads to a file or to standard
//! output. Sites may have logs of their own, each with a thread of its own (`logs`): a disk that
//! hangs holds up its log alone.
//!
//! Each network thread has a *slot*: a buffer behind a lock that it only tries to take. The writer
//! sleeps until a slot is filled, lets others fill for [`GATHER`] or until one has
//! [`SLOT_BYTES_MUCH`], then takes what is in each by a swap and writes it. So it wakes some tens
//! of times a second under load, and at rest never.
//!
//! - No network thread waits: where the writer has the lock, or the slot is full
//!   ([`SLOT_BYTES_MAX`]), lines stay with the thread, which offers them again and drops what it
//!   has no room for. Dropped lines are counted ([`Counters::dropped`]).
//! - [`AccessLogs::reopener`] gives what SIGHUP calls: it sets a flag and wakes the writer. What
//!   was taken before is in the file that was renamed, all else in the new one.
//! - A file that was removed, alone or with its directory, is begun anew before the next lines are
//!   written, as these would be lost. Until that works they are dropped and counted. One that was
//!   only renamed keeps its lines until SIGHUP.
//! - What cannot be written (a full disk) is dropped and counted; the log has one line when it
//!   begins and one when writing works again. Nothing else of the server notices.
//! - At the end the writer writes what there is; the process waits for it, for [`END`] at most.
//!
//! Invariant: lines are whole, also in a file that was full: a line that was cut is ended. Two
//! processes may append to one file, as in a handover: a write ends with a line, and the kernel
//! keeps writes apart, those to a pipe up to [`PIPE_BYTES`]; so longer ones go in parts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Thread, park, park_timeout};
use std::time::{Duration, Instant};

use flatpath::episode::Episode;
use flatpath::lock::Lock;
use flatpath::metrics::Metric;

use crate::bounded_file;

mod logs;

pub(crate) use logs::AccessLogs;

/// How long lines gather before they are written together.
const GATHER: Duration = Duration::from_millis(100);

/// Bytes that one network thread may have waiting for the writer.
const SLOT_BYTES_MAX: usize = 1024 * 1024;

/// A slot with this much is not left to gather more.
const SLOT_BYTES_MUCH: usize = 128 * 1024;

/// `PIPE_BUF`: a write of at most this many bytes to a pipe is not mixed with others, and blocks
/// until there is room for all of it.
const PIPE_BYTES: usize = 4096;

/// The longest that the end of the process waits for the writer.
const END: Duration = Duration::from_secs(1);

/// Where `--access-log` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `-`
    Stdout,
    /// Appended to.
    File(PathBuf),
}

impl Target {
    /// The value of the option.
    pub(crate) fn of(path: &Path) -> Self {
        match path.as_os_str().as_encoded_bytes() {
            b"-" => Self::Stdout,
            _ => Self::File(path.into()),
        }
    }

    /// Its name in the log.
    fn name(&self) -> std::path::Display<'_> {
        match self {
            Self::Stdout => Path::new("-").display(),
            Self::File(path) => path.display(),
        }
    }

    fn open(&self) -> io::Result<Output> {
        let file = match self {
            Self::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Self::File(path) => open(path)?,
        };
        let is_pipe = file.metadata()?.file_type().is_fifo();
        Ok(Output { file, is_pipe })
    }
}

/// Opens a file to append to. A FIFO is opened whether it is read or not, and readers may change.
fn open(path: &Path) -> io::Result<File> {
    const READABLE_BY_GROUP: u32 = 0o640;
    let _reading = bounded_file::begin(path.display().to_string());
    let is_pipe = fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo());
    let mut options = OpenOptions::new();
    options.append(true).read(is_pipe).create(!is_pipe);
    options.mode(READABLE_BY_GROUP).open(path)
}

/// Where lines are written.
struct Output {
    file: File,
    is_pipe: bool,
}

impl Output {
    /// Whether it is a file that has no name any more.
    fn is_removed(&self) -> bool {
        let found = self.file.metadata();
        found.is_ok_and(|found| found.is_file() && found.nlink() == 0)
    }

    /// Writes from the front of `left`, and leaves what is not written.
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()> {
        while !left.is_empty() {
            let bytes = if self.is_pipe {
                part_bytes(left)
            } else {
                left.len()
            };
            match self.file.write(&left[..bytes]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *left = &left[count..],
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}

/// Bytes of the lines from the front on that fit into one write to a pipe; of one line at least.
fn part_bytes(lines: &[u8]) -> usize {
    let ends_line = |byte: &u8| *byte == b'\n';
    let front = &lines[..lines.len().min(PIPE_BYTES)];
    let end = front.iter().rposition(ends_line);
    let end = end.or_else(|| lines.iter().position(ends_line));
    end.map_or(lines.len(), |end| end + 1)
}

fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Counts of lines.
#[derive(Debug, Default)]
struct Counters {
    written: AtomicU64,
    /// For want of room, or because they could not be written.
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    slots: Lock<Vec<Arc<Lock<Vec<u8>>>>>,
    /// There are lines that the writer has not taken. Cleared before it looks into the slots, whose
    /// locks order the rest.
    has_lines: AtomicBool,
    /// There are many.
    hurries: AtomicBool,
    reopens: AtomicBool,
    /// No site has it any more.
    closes: AtomicBool,
    ends: AtomicBool,
    /// The writer, once it runs. It parks while none of the above is set.
    writer: OnceLock<Thread>,
    /// Those of all logs.
    counters: Arc<Counters>,
}

impl Shared {
    /// Sets one of the flags, and wakes the writer for it.
    fn set(&self, flag: &AtomicBool) {
        if !flag.swap(true, Ordering::Relaxed)
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }
}

/// One access log.
struct AccessLog {
    shared: Arc<Shared>,
    opened: Option<(Target, Output)>,
    /// Disconnected when the writer has ended.
    ended: Option<Receiver<()>>,
}

/// The lines of one network thread for one log.
struct Slot {
    shared: Arc<Shared>,
    lines: Arc<Lock<Vec<u8>>>,
}

impl Slot {
    fn of(shared: &Arc<Shared>) -> Self {
        let lines = Arc::new(Lock::new(Vec::new()));
        shared.slots.lock().push(Arc::clone(&lines));
        Self {
            shared: Arc::clone(shared),
            lines,
        }
    }

    fn write(&mut self, lines: &mut Vec<u8>) {
        let Some(mut slot) = self.lines.try_lock() else {
            return;
        };
        if slot.len() + lines.len() > SLOT_BYTES_MAX {
            return;
        }
        slot.extend_from_slice(lines);
        lines.clear();
        let has_much = slot.len() >= SLOT_BYTES_MUCH;
        drop(slot);
        self.shared.set(&self.shared.has_lines);
        if has_much {
            self.shared.set(&self.shared.hurries);
        }
    }
}

impl AccessLog {
    fn open(target: Target, counters: &Arc<Counters>) -> io::Result<Self> {
        let output = target.open()?;
        let shared = Shared {
            counters: Arc::clone(counters),
            ..Shared::default()
        };
        Ok(Self {
            shared: Arc::new(shared),
            opened: Some((target, output)),
            ended: None,
        })
    }

    /// Starts to write: after the lines that announce the listeners.
    ///
    /// # Errors
    /// The thread cannot be started.
    fn begin(&mut self) -> io::Result<()> {
        self.begin_with(GATHER)
    }

    fn begin_with(&mut self, gather: Duration) -> io::Result<()> {
        let Some((target, output)) = self.opened.take() else {
            return Ok(());
        };
        let mut writer = Writer {
            shared: Arc::clone(&self.shared),
            target,
            output: Some(output),
            failing: Episode::until_ended(),
            removed: Episode::until_ended(),
            is_cut: false,
            gather,
            lines: Vec::new(),
        };
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("flatpath-access".into());
        let thread = thread.spawn(move || {
            writer.run();
            drop(end);
        })?;
        // Before it parks for the first time it finds what was set by then.
        let is_first = self.shared.writer.set(thread.thread().clone()).is_ok();
        debug_assert!(is_first, "one writer");
        thread.thread().unpark();
        self.ended = Some(ended);
        Ok(())
    }

    /// Waits until what there is was written, after [`Shared::ends`] was set. The server has ended.
    fn await_end(self) {
        let Some(ended) = self.ended else {
            return;
        };
        if ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            log::warn!("access log: flush timed out, lines are lost");
        }
    }
}

#[rustfmt::skip]
const METRICS: &[Metric<Counters>] = &[
    Metric::counter("flatpath_access_log_lines_total",
        "Lines written to the access log.", &[],
        |it, out| out.put(&[], it.written.load(Ordering::Relaxed))),
    Metric::counter("flatpath_access_log_dropped_lines_total",
        "Lines of the access log without room, or that could not be written.", &[],
        |it, out| out.put(&[], it.dropped.load(Ordering::Relaxed))),
];

struct Writer {
    shared: Arc<Shared>,
    target: Target,
    /// None while no site has the log.
    output: Option<Output>,
    /// Writing does not work.
    failing: Episode,
    /// The file was removed, and cannot be begun anew.
    removed: Episode,
    /// The last write ended within a line.
    is_cut: bool,
    /// [`GATHER`]
    gather: Duration,
    lines: Vec<u8>,
}

impl Writer {
    fn run(&mut self) {
        loop {
            while !self.is_due() && !self.shared.has_lines.load(Ordering::Relaxed) {
                park();
            }
            let full = Instant::now() + self.gather;
            while !self.is_due() && Instant::now() < full {
                park_timeout(full.saturating_duration_since(Instant::now()));
            }
            let ends = self.shared.ends.load(Ordering::Relaxed);
            let closes = self.shared.closes.swap(false, Ordering::Relaxed);
            let reopens = self.shared.reopens.swap(false, Ordering::Relaxed);
            self.shared.has_lines.store(false, Ordering::Relaxed);
            self.shared.hurries.store(false, Ordering::Relaxed);
            self.take_all();
            if closes {
                self.output = None;
            }
            if reopens {
                self.reopen();
            }
            if ends {
                return;
            }
        }
    }

    /// Whether more is to be done than to wait for lines.
    fn is_due(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let shared = &*self.shared;
        let is_asked = is_set(&shared.reopens) || is_set(&shared.closes);
        is_set(&shared.ends) || is_asked || is_set(&shared.hurries)
    }

    /// Writes what is in the slots.
    fn take_all(&mut self) {
        let slots = self.shared.slots.lock().clone();
        for slot in slots {
            let mut lines = std::mem::take(&mut self.lines);
            std::mem::swap(&mut *slot.lock(), &mut lines);
            self.write(&lines);
            lines.clear();
            self.lines = lines;
        }
    }

    fn write(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let is_open = self.replace_removed();
        let mut left = lines;
        let outcome = match &mut self.output {
            Some(output) if is_open => {
                let ended = end_cut(&mut self.is_cut, output);
                ended.and_then(|()| output.write(&mut left))
            }
            // The log has a line for it.
            _ => Ok(()),
        };
        let (written, unwritten) = lines.split_at(lines.len() - left.len());
        self.is_cut |= !written.is_empty() && !written.ends_with(b"\n");
        let Counters {
            written: good,
            dropped,
        } = &*self.shared.counters;
        good.fetch_add(count_lines(written), Ordering::Relaxed);
        dropped.fetch_add(count_lines(unwritten), Ordering::Relaxed);
        match outcome {
            Err(cause) if self.failing.begins() => {
                log::error!("access log: cannot be written, lines are lost: {cause}");
            }
            Ok(()) if !written.is_empty() && self.failing.end().is_some() => {
                log::info!("access log: it can be written again");
            }
            _ => {}
        }
    }

    /// Begins a file anew that has no name any more. False: it cannot be.
    fn replace_removed(&mut self) -> bool {
        if !self.output.as_ref().is_some_and(Output::is_removed) {
            return true;
        }
        let name = self.target.name();
        match self.target.open() {
            Ok(output) => {
                log::warn!("access log {name}: it was removed, and is begun anew");
                self.take(output);
                true
            }
            Err(cause) => {
                if self.removed.begins() {
                    log::error!(
                        "access log {name}: it was removed, and cannot be begun anew: {cause}; \
                         lines are lost until it can"
                    );
                }
                false
            }
        }
    }

    fn take(&mut self, output: Output) {
        self.output = Some(output);
        self.is_cut = false;
        self.failing.end();
        self.removed.end();
    }

    fn reopen(&mut self) {
        let name = self.target.name();
        match self.target.open() {
            Ok(output) => {
                log::info!("access log {name}: opened again");
                self.take(output);
            }
            // Better the old file than none.
            Err(cause) => log::error!(
                "access log {name}: cannot be opened again: {cause}; lines go to the file before"
            ),
        }
    }
}

/// Ends a line that was cut.
fn end_cut(is_cut: &mut bool, output: &mut Output) -> io::Result<()> {
    if *is_cut {
        output.write(&mut &b"\n"[..])?;
        *is_cut = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_written_without_delay_and_nothing_of_it_is_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access");
        let target = Target::File(path.clone());
        let mut log = AccessLog::open(target, &Arc::default()).expect("opened");
        // No line is written because of the time.
        log.begin_with(Duration::from_secs(3600)).expect("started");
        let mut output = Slot::of(&log.shared);
        let mut lines = Vec::new();
        let (mut said, deadline) = (0, Instant::now() + Duration::from_secs(60));
        while said < 20 * SLOT_BYTES_MAX || !lines.is_empty() {
            assert!(Instant::now() < deadline, "the writer takes nothing");
            if lines.is_empty() {
                lines.extend_from_slice(&[b'x'; 8191]);
                lines.push(b'\n');
                said += lines.len();
            }
            output.write(&mut lines);
        }
        log.shared.set(&log.shared.ends);
        log.await_end();
        assert_eq!(fs::read(path).expect("written").len(), said);
    }

    #[test]
    fn a_file_that_was_removed_is_begun_anew_and_lines_without_one_are_counted() {
        let folder = tempfile::tempdir().expect("a directory");
        let directory = folder.path().join("logs");
        fs::create_dir(&directory).expect("made");
        let path = directory.join("access");
        let target = Target::File(path.clone());
        let output = target.open().expect("opened");
        let shared = Arc::new(Shared::default());
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            target,
            output: Some(output),
            failing: Episode::until_ended(),
            removed: Episode::until_ended(),
            is_cut: false,
            gather: GATHER,
            lines: Vec::new(),
        };
        let mut write = |line: &str| {
            writer.write(line.as_bytes());
            let counters = &shared.counters;
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (count(&counters.written), count(&counters.dropped))
        };
        let found = |path: &Path| fs::read_to_string(path).expect("there");
        assert_eq!(write("one\n"), (1, 0));
        let renamed = directory.join("access.1");
        fs::rename(&path, &renamed).expect("renamed");
        assert_eq!(write("two\n"), (2, 0));
        assert_eq!(found(&renamed), "one\ntwo\n", "it is left at SIGHUP");
        fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(write("three\n"), (2, 1));
        fs::create_dir(&directory).expect("made");
        assert_eq!(write("four\n"), (3, 1));
        assert_eq!(found(&path), "four\n");
        fs::remove_file(&path).expect("removed");
        assert_eq!(write("five\n"), (4, 1));
        assert_eq!(found(&path), "five\n");
    }
}
