//! The housekeeper: one thread of the process for small, regular work that never waits.
//!
//! A [`Task`] is a function that the thread calls when its time has come, when a descriptor reports
//! an event, or when it is woken. Tasks run one after the other, so none may block: what asks a
//! file system, or waits for a peer, has a thread of its own (for as long as it takes, if it is
//! rare). A task that panics has ended; the log says which.
//!
//! The thread, `flatpath-keeper`, starts with the first task and ends with the last.
//!
//! | may run beside | begin | wake, drop of a task | the thread |
//! |----------------|-------|----------------------|------------|
//! | begin          | yes   | yes                  | yes        |
//! | wake, drop     | yes   | yes                  | yes        |
//!
//! Dropping a [`Task`] does not wait: the function may run once more at the same time, and is
//! dropped on the thread.
//!
//! Cost: one poll(2) for each time that something is due; nothing in between.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flatpath_structures::lock::Lock;
use flatpath_structures::panics::{contain, drop_contained};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::server::threads;

/// The name of the thread.
const NAME: &str = "flatpath-keeper";

/// Before the next look, if the kernel refuses to wait.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// For the first time, or its time has come.
    Time,
    /// [`Task::wake`] was called since it ran last.
    Woken,
    /// The descriptor has reported an event.
    Descriptor,
}

/// When a task runs again, at the latest: a wake-up or its descriptor may come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// After this time.
    After(Duration),
    /// When it is woken, or its descriptor reports an event.
    WhenWoken,
    /// Never.
    Ended,
}

/// A task of the housekeeper, which ends when this is dropped.
#[derive(Debug)]
pub struct Task {
    entry: Arc<Entry>,
    keeper: Arc<Keeper>,
}

impl Task {
    /// Begins a task, which runs for the first time at once. It must not block.
    ///
    /// # Errors
    /// The process has no descriptor or no thread left.
    pub fn begin(
        name: &'static str,
        act: impl FnMut(Cause) -> Next + Send + 'static,
    ) -> io::Result<Task> {
        Keeper::of_process()?.begin(name, None, Box::new(act))
    }

    /// The same, and the task also runs for an event of the descriptor: one of `events`, an error
    /// or a hang-up. It has to take the event away, or runs again at once.
    ///
    /// # Errors
    /// As [`Task::begin`].
    pub fn watching(
        name: &'static str,
        descriptor: OwnedFd,
        events: PollFlags,
        act: impl FnMut(Cause) -> Next + Send + 'static,
    ) -> io::Result<Task> {
        Keeper::of_process()?.begin(name, Some((descriptor, events)), Box::new(act))
    }

    /// Runs the task soon, on the housekeeper's thread. Several wake-ups before it runs are one.
    /// Never waits.
    pub fn wake(&self) {
        // ORDER: Release: what the caller wrote before is seen by the run that this asks for.
        self.entry.is_woken.store(true, Ordering::Release);
        self.keeper.wake();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // ORDER: Relaxed: the flag alone counts.
        self.entry.has_ended.store(true, Ordering::Relaxed);
        self.keeper.wake();
    }
}

type Act = Box<dyn FnMut(Cause) -> Next + Send>;

/// What a task and the thread share.
#[derive(Debug)]
struct Entry {
    name: &'static str,
    watched: Option<(OwnedFd, PollFlags)>,
    is_woken: AtomicBool,
    has_ended: AtomicBool,
}

/// A task on the thread.
struct Running {
    entry: Arc<Entry>,
    act: Act,
    due: Option<Instant>,
}

impl Running {
    fn cause(&self, is_reported: bool, now: Instant) -> Option<Cause> {
        // ORDER: Acquire pairs with the Release in `wake`.
        let is_woken = self.entry.is_woken.swap(false, Ordering::Acquire);
        match self.due {
            _ if is_reported => Some(Cause::Descriptor),
            _ if is_woken => Some(Cause::Woken),
            Some(due) if due <= now => Some(Cause::Time),
            _ => None,
        }
    }

    fn run(&mut self, cause: Cause) {
        let next = contain(|| (self.act)(cause)).unwrap_or_else(|| {
            log::error!(
                "the housekeeper's task {} panicked and has ended",
                self.entry.name
            );
            Next::Ended
        });
        self.due = match next {
            Next::After(time) => Instant::now().checked_add(time),
            Next::WhenWoken => None,
            Next::Ended => {
                // ORDER: Relaxed: the flag alone counts.
                self.entry.has_ended.store(true, Ordering::Relaxed);
                None
            }
        };
    }
}

/// The thread, if it runs, and the way to it.
#[derive(Debug)]
struct Keeper {
    wakes: OwnedFd,
    newcomers: Lock<Newcomers>,
}

#[derive(Default)]
struct Newcomers {
    tasks: Vec<Running>,
    /// Whether a thread takes them.
    has_thread: bool,
}

impl std::fmt::Debug for Newcomers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} tasks", self.tasks.len())
    }
}

impl Keeper {
    fn new() -> io::Result<Arc<Keeper>> {
        Ok(Arc::new(Keeper {
            wakes: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            newcomers: Lock::default(),
        }))
    }

    /// The one of this process.
    fn of_process() -> io::Result<Arc<Keeper>> {
        static KEEPER: Lock<Option<Arc<Keeper>>> = Lock::new(None);
        let mut keeper = KEEPER.lock();
        match &*keeper {
            Some(keeper) => Ok(Arc::clone(keeper)),
            None => Ok(Arc::clone(keeper.insert(Keeper::new()?))),
        }
    }

    fn begin(
        self: Arc<Keeper>,
        name: &'static str,
        watched: Option<(OwnedFd, PollFlags)>,
        act: Act,
    ) -> io::Result<Task> {
        let entry = Arc::new(Entry {
            name,
            watched,
            is_woken: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let running = Running {
            entry: Arc::clone(&entry),
            act,
            due: Some(Instant::now()),
        };
        let mut newcomers = self.newcomers.lock();
        if !newcomers.has_thread {
            let keeper = Arc::clone(&self);
            threads::start(NAME.into(), move || keeper.run())?;
            newcomers.has_thread = true;
        }
        newcomers.tasks.push(running);
        drop(newcomers);
        self.wake();
        Ok(Task {
            entry,
            keeper: self,
        })
    }

    fn wake(&self) {
        // An eventfd takes a one unless its count is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wakes, &1_u64.to_ne_bytes());
    }

    fn run(&self) {
        let mut tasks: Vec<Running> = Vec::new();
        loop {
            let has_ended = |it: &mut Running| it.entry.has_ended.load(Ordering::Relaxed);
            tasks.extract_if(.., has_ended).for_each(drop_contained);
            let mut newcomers = self.newcomers.lock();
            tasks.append(&mut newcomers.tasks);
            if tasks.is_empty() {
                newcomers.has_thread = false;
                return;
            }
            drop(newcomers);
            let reported = self.wait(&tasks);
            let now = Instant::now();
            for (task, is_reported) in tasks.iter_mut().zip(reported) {
                if !task.entry.has_ended.load(Ordering::Relaxed)
                    && let Some(cause) = task.cause(is_reported, now)
                {
                    task.run(cause);
                }
            }
        }
    }

    /// Sleeps until a task is due; for each, whether its descriptor has reported an event.
    fn wait(&self, tasks: &[Running]) -> Vec<bool> {
        let mut polled = vec![PollFd::new(&self.wakes, PollFlags::IN)];
        let watched = tasks.iter().filter_map(|task| task.entry.watched.as_ref());
        polled.extend(watched.map(|(descriptor, events)| PollFd::new(descriptor, *events)));
        let due = tasks.iter().filter_map(|task| task.due).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                log::error!("the housekeeper cannot wait: {errno}");
                std::thread::sleep(PAUSE);
            }
        }
        let mut reports = polled.iter().map(|it| !it.revents().is_empty());
        if reports.next() == Some(true) {
            let _ = rustix::io::read(&self.wakes, &mut [0_u8; 8]);
        }
        let reported = tasks.iter().map(|task| match task.entry.watched {
            Some(_) => reports.next().unwrap_or(false),
            None => false,
        });
        reported.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    use flatpath_testkit::patience;

    /// A task that tells why it runs.
    fn told(keeper: &Arc<Keeper>, next: Next) -> (Task, Receiver<Cause>) {
        let (tell, causes) = channel();
        let act = move |cause| {
            let _ = tell.send(cause);
            next
        };
        let task = Arc::clone(keeper).begin("test", None, Box::new(act));
        (task.expect("a thread"), causes)
    }

    #[test]
    fn a_task_runs_at_once_and_whenever_it_is_woken() {
        let keeper = Keeper::new().expect("a descriptor");
        let (task, causes) = told(&keeper, Next::WhenWoken);
        assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Time));
        for _ in 0..3 {
            task.wake();
            assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Woken));
        }
    }

    #[test]
    fn a_task_runs_again_when_its_time_has_come() {
        let keeper = Keeper::new().expect("a descriptor");
        let (_task, causes) = told(&keeper, Next::After(Duration::from_millis(1)));
        for _ in 0..3 {
            assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Time));
        }
    }

    #[test]
    fn a_descriptor_runs_its_task() {
        let keeper = Keeper::new().expect("a descriptor");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let watched = reader.try_clone().expect("the same");
        let (tell, causes) = channel();
        let act = move |cause| {
            if cause == Cause::Descriptor {
                let _ = rustix::io::read(&reader, &mut [0_u8; 8]);
            }
            let _ = tell.send(cause);
            Next::WhenWoken
        };
        let watched = Some((watched, PollFlags::IN));
        let _task = Arc::clone(&keeper)
            .begin("test", watched, Box::new(act))
            .expect("a thread");
        assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Time));
        rustix::io::write(&writer, b"x").expect("written");
        assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Descriptor));
    }

    #[test]
    fn the_thread_ends_with_the_last_task_and_starts_with_the_next() {
        let keeper = Keeper::new().expect("a descriptor");
        for _ in 0..3 {
            let (first, causes) = told(&keeper, Next::WhenWoken);
            let (second, others) = told(&keeper, Next::Ended);
            assert_eq!(others.recv_timeout(patience()), Ok(Cause::Time));
            assert!(
                others.recv_timeout(patience()).is_err(),
                "it has ended and is dropped"
            );
            assert!(keeper.newcomers.lock().has_thread);
            drop(second);
            drop(first);
            while causes.recv_timeout(patience()).is_ok() {}
        }
    }

    #[test]
    fn a_task_that_panics_leaves_the_others() {
        let keeper = Keeper::new().expect("a descriptor");
        let broken = Box::new(|_| panic!("as a test"));
        let _broken = Arc::clone(&keeper)
            .begin("broken", None, broken)
            .expect("a thread");
        let (task, causes) = told(&keeper, Next::WhenWoken);
        assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Time));
        task.wake();
        assert_eq!(causes.recv_timeout(patience()), Ok(Cause::Woken));
    }
}
