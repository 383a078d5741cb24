//! Processes that a test or a bench starts, none of which outlives it.
//!
//! A process of [`command`] leads a process group of its own. A group, or a process without one, is
//! ended
//! - when its [`Child`] is dropped, also by a panic that unwinds;
//! - when a bench gets SIGINT, SIGTERM or SIGHUP (see [`end_all_on_signals`]);
//! - for a process of [`command`], when the bench itself is killed: the kernel sends SIGTERM to the
//!   leader (`setpriv --pdeathsig`). It does so when the *thread* that started the process ends, so
//!   start processes from a thread that outlives them.
//!
//! What a process prints is read to its end, so it never waits for a reader: standard output by
//! lines ([`Child::line`]), standard error into a log ([`Child::log`]).
//! A server is ready when it has printed `listening NAME ADDRESS`, and perhaps ` writable`, for
//! each listener and then `ready`, as `flatpath serve` does ([`Child::listeners`]), or when the
//! kernel lists its port ([`Child::await_port`]).
//!
//! Invariants
//! - I1: a group is in `LIVE` from before its first instruction until it was waited for.
//! - I2: once `INTERRUPTED` is set no group starts.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use procfs::net::{self, TcpState};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::deadline::{Deadline, LOOK_AGAIN};

/// How long a group may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// What a log that is not read yet may hold: the least that the kernel allows.
const UNREAD_BYTES: usize = 4096;
/// How much of the log of a failed process its error repeats.
const LOG_LINES_SHOWN: usize = 5;
/// Exit status after a signal, as shells report SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

static LIVE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A child process and everything it starts.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
    ended: Option<ExitStatus>,
    lines: Receiver<String>,
    log: Option<Log>,
}

/// A command that runs `program` on these cores (on all, if none is named), leads a process group
/// and ends with the bench. Needs `setpriv` and `taskset` (util-linux).
pub fn command(program: impl AsRef<OsStr>, cores: &[usize]) -> Command {
    let mut command = Command::new("setpriv");
    command.process_group(0).stdin(Stdio::piped());
    command.args(["--pdeathsig", "TERM", "--"]);
    if !cores.is_empty() {
        let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
        command.args(["taskset", "--cpu-list", &cores.join(",")]);
    }
    command.arg(program);
    command
}

impl Child {
    /// Starts a command.
    ///
    /// # Errors
    /// What spawning reports, or `Interrupted` once the bench was told to stop.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = Self::spawn(command)?;
        child.read_log();
        Ok(child)
    }

    /// The same, but nothing reads its standard error, a pipe of one page, before
    /// [`read_log`](Self::read_log).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_unread(command: &mut Command) -> io::Result<Self> {
        let child = Self::spawn(command)?;
        if let Some(log) = &child.child.stderr {
            rustix::pipe::fcntl_setpipe_size(log, UNREAD_BYTES)?;
        }
        Ok(child)
    }

    fn spawn(command: &mut Command) -> io::Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // The lock is held across the start: a signal sees the group or prevents it (I1, I2).
        let mut live = live();
        refuse_if_interrupted()?;
        let mut child = command.spawn().map_err(|cause| {
            let program = command.get_program().display();
            io::Error::new(cause.kind(), format!("{program}: {cause}"))
        })?;
        live.push(child.id());
        drop(live);
        let lines = lines(child.stdout.take());
        Ok(Self {
            child,
            ended: None,
            lines,
            log: None,
        })
    }

    /// Its number, which is also that of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the leader still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.poll(), Ok(None))
    }

    /// Standard error so far, or as much of it as is read.
    pub fn log(&self) -> String {
        self.log.as_ref().map(Log::so_far).unwrap_or_default()
    }

    /// Begins to read a log that was left unread.
    pub fn read_log(&mut self) {
        if let Some(log) = self.child.stderr.take() {
            self.log = Some(Log::of(log));
        }
    }

    /// The log of a process that has ended, to its last line.
    pub fn whole_log(&mut self) -> String {
        self.read_log();
        self.log.as_ref().map(Log::whole).unwrap_or_default()
    }

    /// The lines of a process that has ended which nobody has taken.
    pub fn last_lines(&mut self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Sends a signal to the whole group.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            signal_group(self.id(), signal);
        }
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// It does not read any more.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.child.stdin.as_mut();
        let input = input.ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")
    }

    /// The next line that it prints.
    ///
    /// # Errors
    /// None comes within `limit`, or it has closed its output; with the end of its log.
    pub fn line(&mut self, limit: Duration) -> io::Result<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                let error = self.failure("was not ready in time");
                Err(io::Error::new(io::ErrorKind::TimedOut, error))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.failure("ended too early")),
        }
    }

    /// Waits until a server prints `ready`: the listeners that it named, of which there is one, but
    /// for those at paths.
    ///
    /// # Errors
    /// As [`line`](Self::line), or it names no listener, or prints anything else.
    pub fn listeners(&mut self) -> io::Result<Vec<(String, SocketAddr)>> {
        let deadline = Deadline::default();
        let (mut listeners, mut has_path) = (Vec::new(), false);
        loop {
            let line = self.line(deadline.left())?;
            match listener_of(&line) {
                Some(listener) => listeners.push(listener),
                // Who has named the path knows it.
                None if is_at_path(&line) => has_path = true,
                None if line == "ready" && (has_path || !listeners.is_empty()) => {
                    return Ok(listeners);
                }
                None => return Err(self.failure(&format!("printed {line:?} too early"))),
            }
        }
    }

    /// Waits until a server listens at this port, without connecting to it.
    ///
    /// # Errors
    /// It does not in time, or has ended; with the end of its log.
    pub fn await_port(&mut self, port: u16) -> io::Result<()> {
        let deadline = Deadline::default();
        while !is_listening(port) {
            if !self.is_running() {
                return Err(self.failure("ended too early"));
            }
            if deadline.is_over() {
                return Err(self.failure("was not ready in time"));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits for the leader to end by itself.
    ///
    /// # Errors
    /// `TimedOut` if it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let deadline = Deadline::after(limit);
        loop {
            if let Some(status) = self.poll()? {
                return Ok(status);
            }
            if deadline.is_over() {
                let what = "the process did not end";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits for it to end by itself, with success: all that it printed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), or its exit status with the end of its log.
    pub fn finish(mut self, limit: Duration) -> io::Result<String> {
        let status = self.wait(limit)?;
        let lines = self.last_lines();
        if !status.success() {
            return Err(self.failure(&format!("{status}: {}", lines.join("; "))));
        }
        Ok(lines.join("\n"))
    }

    /// Asks it to end and waits until it has: its log.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn stop(mut self, limit: Duration) -> io::Result<String> {
        self.signal(Signal::TERM);
        self.wait(limit)?;
        Ok(self.whole_log())
    }

    fn failure(&mut self, what: &str) -> io::Error {
        self.signal(Signal::KILL);
        let _ = self.wait(GRACE);
        let log = self.whole_log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("; ");
        let separator = if last.is_empty() { "" } else { ": " };
        io::Error::other(format!("{what}{separator}{last}"))
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

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.wait(GRACE).is_err() {
            self.signal(Signal::KILL);
            // Killed: only an uninterruptible system call can hold it; this wait is bounded too.
            let _ = self.wait(GRACE);
        }
    }
}

/// What a process writes to standard error, collected by a thread.
#[derive(Debug)]
struct Log {
    text: Arc<Mutex<String>>,
    ended: Receiver<()>,
}

impl Log {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let (sender, ended) = mpsc::channel::<()>();
        let into = Arc::clone(&text);
        thread::spawn(move || {
            // Dropped at the end: that is the signal.
            let _sender = sender;
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let mut text = into.lock().expect("no holder panics");
                text.push_str(&String::from_utf8_lossy(&line));
                text.push('\n');
            }
        });
        Self { text, ended }
    }

    fn so_far(&self) -> String {
        self.text.lock().expect("no holder panics").clone()
    }

    fn whole(&self) -> String {
        let _ = self.ended.recv_timeout(Deadline::default().left());
        self.so_far()
    }
}

fn lines(output: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let lines = output.into_iter().flat_map(|it| BufReader::new(it).lines());
        for line in lines.map_while(Result::ok) {
            // Without a receiver, reading continues.
            let _ = send.send(line);
        }
    });
    receive
}

/// `listening NAME ADDRESS`, and what its clients may do.
fn listener_of(line: &str) -> Option<(String, SocketAddr)> {
    let (name, rest) = line.strip_prefix("listening ")?.split_once(' ')?;
    let address = rest.split(' ').next()?;
    Some((name.to_owned(), address.parse().ok()?))
}

/// Whether a line names a listener at a path, `listening NAME unix:PATH`.
fn is_at_path(line: &str) -> bool {
    line.starts_with("listening ") && line.contains(" unix:")
}

/// Whether a socket listens at this port, of whatever address.
pub fn is_listening(port: u16) -> bool {
    let sockets = [net::tcp(), net::tcp6()].into_iter().flatten().flatten();
    let mut listeners = sockets.filter(|socket| socket.state == TcpState::Listen);
    listeners.any(|listener| listener.local_address.port() == port)
}

/// An address that was free a moment ago, for a server that cannot pick one itself. Its port is
/// below those that the kernel gives out (`ip_local_port_range`), or another socket might get it
/// meanwhile.
///
/// # Errors
/// No port is free.
pub fn free_address() -> io::Result<SocketAddr> {
    const TRIES: usize = 100;
    let mut bound = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..TRIES {
        let port = fastrand::u16(20_000..32_768);
        bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        if bound.is_ok() {
            break;
        }
    }
    bound?.local_addr()
}

/// From now on SIGINT, SIGTERM and SIGHUP end every group, and then this process.
///
/// The main thread gets time to notice (its children vanish, [`refuse_if_interrupted`] fails) and
/// to remove its temporary directories; after that, or at the second signal, the process exits.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn end_all_on_signals() -> io::Result<()> {
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

/// Fails once the bench was told to stop; every loop over runs asks.
///
/// # Errors
/// `Interrupted`, and nothing else.
pub fn refuse_if_interrupted() -> io::Result<()> {
    if INTERRUPTED.load(Ordering::Acquire) {
        return Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "interrupted by a signal",
        ));
    }
    Ok(())
}

fn kill_all_and_exit() -> ! {
    for id in live().iter() {
        signal_group(*id, Signal::KILL);
    }
    process::exit(EXIT_INTERRUPTED.into());
}

fn signal_group(id: u32, signal: Signal) {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    // Without a group of its own it is signalled alone. One that has ended by itself is as wanted.
    if let Some(pid) = pid
        && kill_process_group(pid, signal).is_err()
    {
        let _ = kill_process(pid, signal);
    }
}

fn live() -> MutexGuard<'static, Vec<u32>> {
    LIVE.lock().expect("no holder panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience;

    fn sleeper() -> Child {
        Child::start(command("sleep", &[]).arg("60")).expect("sleep starts")
    }

    fn shell(script: &str) -> Child {
        Child::start(command("sh", &[]).args(["-c", script])).expect("sh starts")
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
        let (send, receive) = mpsc::channel();
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
        let mut group = shell(script);
        let id = group.id();
        assert_eq!(group.line(patience()).expect("the trap is set"), "ready");
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

    #[test]
    fn a_command_runs_on_the_cores_it_was_given() {
        let mut pinned = command("sh", &[0]);
        pinned.args(["-c", "taskset --cpu-list --pid $$"]);
        let output = Child::start(&mut pinned)
            .expect("started")
            .finish(patience());
        let output = output.expect("success");
        assert!(output.ends_with(": 0"), "{output}");
    }

    #[test]
    fn listeners_are_those_named_before_ready() {
        let mut server = shell(
            "echo listening http 127.0.0.1:80; echo listening echo [::1]:7; echo ready; sleep 60",
        );
        let listeners = server.listeners().expect("ready");
        let expected = [("http", "127.0.0.1:80"), ("echo", "[::1]:7")];
        let expected = expected.map(|(name, at)| (name.to_owned(), at.parse().expect("valid")));
        assert_eq!(listeners, expected);
        let error = shell("echo listening http 127.0.0.1:80; echo words; sleep 60").listeners();
        let error = error.expect_err("not what a server prints").to_string();
        assert!(error.contains("words"), "{error}");
    }

    #[test]
    fn a_server_that_ends_early_repeats_its_log() {
        let error = shell("echo one >&2; echo two >&2").listeners();
        let error = error.expect_err("never ready");
        assert_eq!(error.to_string(), "ended too early: one; two");
        let error = shell("echo why >&2; sleep 0.05").await_port(1);
        assert!(
            error
                .expect_err("ended")
                .to_string()
                .ends_with("early: why")
        );
        assert!(shell("echo ready; sleep 60").listeners().is_err());
    }

    #[test]
    fn a_port_is_seen_once_a_server_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        assert!(is_listening(port));
        shell("sleep 60").await_port(port).expect("listening");
    }

    #[test]
    fn a_process_answers_and_ends() {
        let mut process = shell("read word; echo $word back; echo log >&2; read word");
        process.tell("there").expect("it reads");
        assert_eq!(process.line(patience()).expect("answered"), "there back");
        drop(process.child.stdin.take());
        assert!(process.wait(patience()).is_ok());
        assert_eq!(process.whole_log(), "log\n");
        let output = shell("echo a; echo b").finish(patience());
        assert_eq!(output.expect("success"), "a\nb");
        let failed = shell("echo a; echo b >&2; exit 3").finish(patience());
        let failed = failed.expect_err("not a success").to_string();
        assert!(
            failed.contains('3') && failed.ends_with(": a: b"),
            "{failed}"
        );
    }
}
