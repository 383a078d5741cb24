//! Child processes that cannot be left behind.
//!
//! Every server and load generator is the leader of its own process group. The group is ended
//! - when its [`Group`] is dropped, also by a panic that unwinds;
//! - when the harness gets SIGINT, SIGTERM or SIGHUP (see [`end_all_on_signals`]);
//! - when the harness itself is killed: the launcher asks the kernel for that (see `launch.rs`).
//!
//! Invariants
//! - I1: a group is in `LIVE` from before its first instruction until it was waited for.
//! - I2: once `INTERRUPTED` is set no group starts.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use std::os::unix::process::CommandExt;

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a group may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How often a wait with a deadline looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Exit status after a signal, as shells report SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

static LIVE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A child process and everything it starts.
pub(crate) struct Group {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Group {
    /// Starts the command as leader of a new process group.
    ///
    /// # Errors
    /// What spawning reports, or `Interrupted` once the harness was told to stop.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        // The lock is held across the start: a signal sees the group or prevents it (I1, I2).
        let mut live = live();
        refuse_if_interrupted()?;
        let child = command.process_group(0).spawn()?;
        live.push(child.id());
        Ok(Self { child, ended: None })
    }

    /// The number of the group, which is also the process number of its leader.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The leader, for its pipes.
    pub(crate) fn leader(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether the leader still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.poll(), Ok(None))
    }

    /// Waits for the leader to end by itself.
    ///
    /// # Errors
    /// `TimedOut` if it still runs after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the process did not end",
                ));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            signal_group(self.id(), signal);
        }
    }

    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            // Reaping under the lock: the number cannot be reused while it is in `LIVE`.
            let mut live = live();
            self.ended = self.child.try_wait()?;
            if self.ended.is_some() {
                live.retain(|id| *id != self.child.id());
            }
        }
        Ok(self.ended)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.wait(GRACE).is_err() {
            self.signal(Signal::KILL);
            // Killed: only an uninterruptible system call can hold it; this wait is bounded too.
            let _ = self.wait(GRACE);
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP end every group, and then this process.
///
/// The main thread gets time to notice (its children vanish, [`refuse_if_interrupted`] fails) and
/// to remove its temporary directories; after that, or at the second signal, the process exits.
///
/// # Errors
/// If the handlers cannot be installed.
pub(crate) fn end_all_on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut arrivals = signals.forever();
            if arrivals.next().is_none() {
                return;
            }
            INTERRUPTED.store(true, Ordering::Release);
            for id in live().iter() {
                signal_group(*id, Signal::TERM);
            }
            thread::spawn(|| {
                thread::sleep(GRACE);
                kill_all_and_exit();
            });
            if arrivals.next().is_some() {
                kill_all_and_exit();
            }
        })?;
    Ok(())
}

/// Fails once the harness was told to stop; every loop over runs asks.
///
/// # Errors
/// `Interrupted`, and nothing else.
pub(crate) fn refuse_if_interrupted() -> io::Result<()> {
    if INTERRUPTED.load(Ordering::Acquire) {
        return Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "interrupted by a signal",
        ));
    }
    Ok(())
}

/// The status to exit with when [`refuse_if_interrupted`] was the cause.
pub(crate) fn exit_status_of(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::Interrupted {
        130
    } else {
        1
    }
}

fn kill_all_and_exit() -> ! {
    for id in live().iter() {
        signal_group(*id, Signal::KILL);
    }
    std::process::exit(EXIT_INTERRUPTED);
}

fn signal_group(id: u32, signal: Signal) {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // ESRCH: the group ended by itself, which is what was wanted.
        let _ = kill_process_group(pid, signal);
    }
}

fn live() -> MutexGuard<'static, Vec<u32>> {
    // A panic while the list was held leaves it usable: it holds plain numbers.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Group {
        Group::start(Command::new("sleep").arg("60")).expect("sleep starts")
    }

    fn exists(id: u32) -> bool {
        std::path::Path::new(&format!("/proc/{id}")).exists()
    }

    #[test]
    fn a_dropped_group_is_gone() {
        let mut group = sleeper();
        let id = group.id();
        assert!(group.is_running());
        drop(group);
        assert!(!exists(id));
        assert!(!live().contains(&id));
    }

    #[test]
    fn a_panic_ends_the_group_too() {
        let (send, receive) = std::sync::mpsc::channel();
        let outcome = thread::spawn(move || {
            let group = sleeper();
            send.send(group.id()).expect("the test listens");
            std::panic::resume_unwind(Box::new("on purpose"));
        })
        .join();
        assert!(outcome.is_err());
        assert!(!exists(receive.recv().expect("the group started")));
    }

    #[test]
    fn a_group_that_ignores_sigterm_is_killed() {
        // `exec` keeps one process; the ignored signal is inherited by it.
        let script = "trap '' TERM; echo ready; exec sleep 60";
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdout(std::process::Stdio::piped());
        let mut group = Group::start(&mut command).expect("sh starts");
        let id = group.id();
        let mut line = [0; 6];
        let output = group.leader().stdout.as_mut().expect("piped");
        io::Read::read_exact(output, &mut line).expect("the trap is set");
        drop(group);
        assert!(!exists(id));
    }

    #[test]
    fn waiting_has_a_deadline() {
        let mut group = sleeper();
        let error = group
            .wait(Duration::from_millis(20))
            .expect_err("it sleeps a minute");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
