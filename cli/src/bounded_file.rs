//! Files that a user names and that are read as a whole: no longer than a bound, whatever they are,
//! and opened without waiting ([`regular_file`]).
//!
//! A reload, or a look at certificates, reads on a thread of its own, and may still wait for ever:
//! for a disk, or for another machine. So each such thread says what it is at ([`begin`]), and a
//! task of the housekeeper says in the log what has not answered for [`SILENT_AFTER`], once, and
//! again when it has. Meanwhile `/readyz` says it ([`silent`]), and so does the log of each reload
//! that has to wait behind it. What is served stays as it is.
//!
//! So does the main thread before the server serves: [`Watch::begin`] is the first thing that it
//! does, and until [`Watch::serving`] it is the start that waits.
//!
//! | may run beside     | begin, the end | silent, the task |
//! |--------------------|----------------|------------------|
//! | begin, the end     | yes            | yes              |
//! | silent, the task   | yes            | yes              |

use std::fs::Metadata;
use std::io::{self, Read};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use flatpath::housekeeper::{Next, Task};
use flatpath::lock::Lock;
use flatpath::regular_file;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What has not answered for this long is told.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Between two looks, while anything is read.
const LOOK: Duration = Duration::from_secs(1);

/// The content of a file.
///
/// # Errors
/// It cannot be read, is no regular file, or is too long.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let _reading = begin(path.display().to_string());
    let mut content = Vec::new();
    regular_file::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it is larger than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::other(why));
    }
    Ok(content)
}

/// What threads are at now, the innermost of each last.
static NOW: Lock<Vec<Entry>> = Lock::new(Vec::new());

/// Whether the server serves, so that what waits is a reload.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The task, while there is one.
static TASK: Lock<Option<Task>> = Lock::new(None);

struct Entry {
    thread: ThreadId,
    what: String,
    /// Of what is within it, when the last of that ended.
    since: Instant,
    is_told: bool,
}

/// What this thread is at, until it is dropped. Those of one thread end in the reverse order.
#[must_use]
pub(crate) struct Reading(());

/// This thread asks a file system about something from now on, and may wait.
pub(crate) fn begin(what: String) -> Reading {
    NOW.lock().push(Entry {
        thread: thread::current().id(),
        what,
        since: Instant::now(),
        is_told: false,
    });
    if let Some(task) = &*TASK.lock() {
        task.wake();
    }
    Reading(())
}

impl Drop for Reading {
    fn drop(&mut self) {
        let own = thread::current().id();
        let mut now = NOW.lock();
        let of_own = |entry: &Entry| entry.thread == own;
        let ended = now.iter().rposition(of_own).map(|at| now.remove(at));
        if let Some(around) = now.iter_mut().rfind(|it| of_own(it)) {
            around.since = Instant::now();
        }
        drop(now);
        if let Some(Entry { what, .. }) = ended.filter(|it| it.is_told) {
            log::info!("{what} has answered");
        }
    }
}

/// What is innermost of each thread.
fn innermost(now: &mut [Entry]) -> impl Iterator<Item = &mut Entry> {
    let threads: Vec<ThreadId> = now.iter().map(|it| it.thread).collect();
    let is_last = move |at: usize| !threads[at + 1..].contains(&threads[at]);
    now.iter_mut()
        .enumerate()
        .filter(move |(at, _)| is_last(*at))
        .map(|(_, entry)| entry)
}

/// What has been told to be silent, and is.
pub(crate) fn silent() -> Vec<String> {
    let mut now = NOW.lock();
    let told = innermost(&mut now).filter(|it| it.is_told);
    told.map(|it| it.what.clone()).collect()
}

/// Looks at all of it.
fn look(at: Instant) -> Next {
    let mut now = NOW.lock();
    let mut news = Vec::new();
    for entry in innermost(&mut now) {
        let is_silent = at.saturating_duration_since(entry.since) >= SILENT_AFTER;
        if is_silent && !mem::replace(&mut entry.is_told, true) {
            news.push(entry.what.clone());
        }
    }
    let next = match now.is_empty() {
        true => Next::WhenWoken,
        false => Next::After(LOOK),
    };
    drop(now);
    // ORDER: Relaxed: it decides on words, and publishes nothing.
    let follows = match SERVES.load(Ordering::Relaxed) {
        true => "what is served stays as it is, and no reload is done before it answers",
        false => "the start waits for it, and nothing is served yet",
    };
    for what in news {
        let seconds = SILENT_AFTER.as_secs();
        log::error!(
            "{what} has not answered for {seconds} s: a disk, a mount or another machine hangs; \
             {follows}"
        );
    }
    next
}

/// Tells of what is silent, until it is dropped.
pub(crate) struct Watch(());

impl Watch {
    pub(crate) fn begin() -> io::Result<Watch> {
        let task = Task::begin("files of the configuration", |_| look(Instant::now()))?;
        *TASK.lock() = Some(task);
        Ok(Watch(()))
    }

    /// The server serves: what waits from now on is a reload.
    pub(crate) fn serving(&self) {
        // ORDER: Relaxed: see `look`.
        SERVES.store(true, Ordering::Relaxed);
    }
}

/// What this path leads to, without links.
///
/// # Errors
/// Those of realpath(3).
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    let _reading = begin(path.display().to_string());
    path.canonicalize()
}

/// What is at this path, or where its links lead.
///
/// # Errors
/// Those of stat(2).
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    let _reading = begin(path.display().to_string());
    path.metadata()
}

impl Drop for Watch {
    fn drop(&mut self) {
        let task = TASK.lock().take();
        drop(task); // After the unlock.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_silent_is_told_by_its_innermost_name_until_it_answers() {
        let own = |what: &str| silent().iter().any(|it| it == what);
        let outer = begin("an outer one".into());
        let begun = Instant::now();
        let inner = begin("an inner one".into());
        assert_eq!(look(begun), Next::After(LOOK));
        assert!(!own("an inner one"), "it has just begun");
        look(begun + SILENT_AFTER + LOOK);
        assert!(own("an inner one") && !own("an outer one"));
        // What ends within it is a sign of life.
        thread::sleep(Duration::from_millis(2));
        drop(inner);
        look(begun + SILENT_AFTER);
        assert!(!own("an inner one") && !own("an outer one"));
        look(Instant::now() + SILENT_AFTER);
        assert!(own("an outer one"));
        drop(outer);
        assert!(!own("an outer one"));
    }
}
