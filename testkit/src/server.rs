//! Starting the real server, watching it, and ending it.
//!
//! A [`Launch`] collects the command line; [`Launch::start`] waits for `ready` on standard output.
//! A dropped [`Server`] is killed. If its log holds a panic that the test did not announce, the
//! test fails: nothing that a client can do may panic the server.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::Signal;

use crate::deadline::{patience, until};
use crate::{Child, Client, Driver, MemoryGroup, Process, binary};

/// A command line being put together.
#[derive(Clone, Debug)]
#[must_use]
pub struct Launch {
    confine: Vec<OsString>,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    within: Option<PathBuf>,
    expects_panics: bool,
    leaves_log_unread: bool,
}

/// Why a server did not come up.
#[derive(Debug)]
pub struct NotStarted {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard error.
    pub log: String,
}

impl Launch {
    /// `flatpath serve --driver DRIVER --http 127.0.0.1:0`: add the directory and the rest.
    pub fn serve(driver: Driver) -> Self {
        Self::new(binary::flatpath().to_path_buf()).with([
            "serve",
            "--driver",
            driver.name(),
            "--http",
            "127.0.0.1:0",
        ])
    }

    /// `flatpath serve` with the settings of `flatpath.toml` in this directory, where it runs.
    pub fn configured(driver: Driver, directory: &Path) -> Self {
        let program = Self::new(binary::flatpath().to_path_buf());
        let program = program.with(["serve", "--driver", driver.name()]);
        program
            .with(["--config", "flatpath.toml"])
            .within(directory)
    }

    /// Another program that prints `listening NAME ADDR` and `ready` as `flatpath serve` does.
    pub fn new(program: PathBuf) -> Self {
        Self {
            confine: Vec::new(),
            program,
            arguments: Vec::new(),
            // Reasons and decisions are logged as information.
            environment: vec![("RUST_LOG".into(), "info".into())],
            within: None,
            expects_panics: false,
            leaves_log_unread: false,
        }
    }

    /// The test server of this package, whose handlers misbehave on request.
    pub fn handlers(driver: Driver) -> Self {
        Self::new(binary::helper("handlers")).with(["--driver", driver.name()])
    }

    /// Adds arguments.
    pub fn with<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(
            arguments
                .into_iter()
                .map(|argument| argument.as_ref().into()),
        );
        self
    }

    /// The program and its arguments, started by another program with these arguments first.
    pub fn started_by<A: AsRef<OsStr>>(
        mut self,
        program: PathBuf,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let own = std::mem::take(&mut self.arguments);
        let started = std::mem::replace(&mut self.program, program);
        self.with(arguments).with([started]).with(own)
    }

    /// Adds a variable to the environment.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it in a directory, which paths that are not absolute begin at.
    pub fn within(mut self, directory: &Path) -> Self {
        self.within = Some(directory.to_path_buf());
        self
    }

    /// Adds the directory to serve.
    pub fn directory(self, path: &Path) -> Self {
        self.with([path])
    }

    /// Adds a listener that echoes.
    pub fn echo(self) -> Self {
        self.with(["--echo", "127.0.0.1:0"])
    }

    /// Lets the server open at most `count` descriptors.
    pub fn descriptors(mut self, count: u64) -> Self {
        self.confine
            .extend(["--descriptors".into(), count.to_string().into()]);
        self
    }

    /// Lets the server write no file longer than `bytes`.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.confine
            .extend(["--file-size".into(), bytes.to_string().into()]);
        self
    }

    /// Runs the server in a control group.
    pub fn in_group(mut self, group: &MemoryGroup) -> Self {
        self.confine.extend(["--group".into(), group.path().into()]);
        self
    }

    /// Has the kernel refuse io_uring with the named error.
    pub fn refused_uring(mut self, error: &str) -> Self {
        self.confine.extend(["--refuse-uring".into(), error.into()]);
        self
    }

    /// A panic in the log is what this test is about.
    pub fn expecting_panics(mut self) -> Self {
        self.expects_panics = true;
        self
    }

    /// Reads nothing of the server's log before [`Server::read_log`], through a pipe that holds one
    /// page.
    pub fn leaving_log_unread(mut self) -> Self {
        self.leaves_log_unread = true;
        self
    }

    /// Adds the least `--memory` that the server takes with these arguments, and says how many
    /// bytes that is: little is left for buffers then.
    pub fn least_memory(self) -> (Self, u64) {
        let refused = self.clone().with(["--memory", "1"]).try_start();
        let log = refused.err().expect("one byte is too little").log;
        let words = log.split_once("at least ").expect("it names the least").1;
        let mebibytes = words.split_once('M').expect("in mebibytes").0;
        let bytes = mebibytes.parse::<u64>().expect("a number") << 20;
        (self.with(["--memory", &bytes.to_string()]), bytes)
    }

    /// The whole command, confined if need be.
    pub fn command(&self) -> Command {
        let mut command = if self.confine.is_empty() {
            Command::new(&self.program)
        } else {
            let mut command = Command::new(binary::helper("confine"));
            command.args(&self.confine).arg("--").arg(&self.program);
            command
        };
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned());
        if let Some(directory) = &self.within {
            command.current_dir(directory);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|failed| {
            panic!(
                "the server ended with {}; its log:\n{}",
                failed.status, failed.log
            )
        })
    }

    /// Starts it and waits until it is ready or has ended.
    ///
    /// # Errors
    /// It ended before it was ready.
    pub fn try_start(self) -> Result<Server, NotStarted> {
        let mut command = self.command();
        let child = match self.leaves_log_unread {
            true => Child::start_unread(&mut command),
            false => Child::start(&mut command),
        };
        let mut child = child.unwrap_or_else(|error| panic!("{error}"));
        let listeners = match child.listeners() {
            Ok(listeners) => listeners,
            Err(error) if error.kind() == ErrorKind::TimedOut => panic!("the server {error}"),
            Err(_) => {
                return Err(NotStarted {
                    status: ended(&mut child),
                    log: child.whole_log(),
                });
            }
        };
        Ok(Server {
            child,
            listeners,
            expects_panics: self.expects_panics,
        })
    }
}

/// A running server.
pub struct Server {
    child: Child,
    listeners: Vec<(String, SocketAddr)>,
    expects_panics: bool,
}

impl Server {
    /// Where the only listener of that name is.
    pub fn address(&self, name: &str) -> SocketAddr {
        let known = &self.listeners;
        let mut found = known.iter().filter(|(other, _)| other == name);
        let first = found.next();
        assert!(found.next().is_none(), "listeners share the name {name}");
        first
            .unwrap_or_else(|| panic!("no listener {name} among {known:?}"))
            .1
    }

    /// What it listens on, by name, as it said so.
    pub fn listeners(&self) -> &[(String, SocketAddr)] {
        &self.listeners
    }

    /// A new connection to the HTTP listener.
    pub fn client(&self) -> Client {
        Client::connect(self.address("http"))
    }

    /// A new connection to the echo listener.
    pub fn echo_client(&self) -> Client {
        Client::connect(self.address("echo"))
    }

    /// The server's process.
    pub fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    /// Its number of open descriptors, once connections that were closed have been noticed.
    pub fn settled_descriptors(&self) -> usize {
        const SAME: u32 = 20;
        let (mut last, mut same) = (0, 0);
        until("the number of descriptors to settle", || {
            let now = self.process().descriptors();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            (same >= SAME).then_some(now)
        })
    }

    /// Standard error so far.
    pub fn log(&self) -> String {
        self.child.log()
    }

    /// Begins to read a log that was left unread.
    pub fn read_log(&mut self) {
        self.child.read_log();
    }

    /// Waits until the log holds `words`.
    pub fn await_log(&self, words: &str) {
        until(&format!("{words:?} in the log"), || {
            self.log().contains(words).then_some(())
        });
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.process().signal(Signal::TERM);
    }

    /// Sends SIGINT, which after SIGTERM cuts off what is left.
    pub fn force(&self) {
        self.process().signal(Signal::INT);
    }

    /// Ends it with SIGTERM and expects success, and nothing more on standard output; the whole
    /// log.
    pub fn end(mut self) -> String {
        self.terminate();
        let status = self.exit_status();
        let log = self.child.whole_log();
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!(self.child.last_lines(), Vec::<String>::new());
        log
    }

    /// Waits for its end by itself, as that of one that was relieved, which is a success.
    pub fn ended_well(mut self) {
        assert_eq!(self.exit_status().code(), Some(0), "{}", self.log());
    }

    /// Waits for the end of the process.
    pub fn exit_status(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }
}

/// Waits for the end of a server.
fn ended(child: &mut Child) -> ExitStatus {
    let status = child.wait(patience());
    status.unwrap_or_else(|error| panic!("{error}; the server's log:\n{}", child.log()))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.signal(Signal::KILL);
        let _ = self.child.wait(patience());
        let log = self.child.whole_log();
        if std::thread::panicking() {
            eprintln!("--- the server's log:\n{log}---");
            return;
        }
        let panicked = log.contains("panicked at");
        assert!(
            self.expects_panics || !panicked,
            "the server panicked; its log:\n{log}"
        );
    }
}

/// How often servers relieve each other in a test of that: three times, or as often as
/// `FLATPATH_HANDOVERS` says.
///
/// # Panics
/// The variable is no number.
pub fn handovers() -> usize {
    let named = std::env::var("FLATPATH_HANDOVERS");
    named.map_or(3, |count| count.parse().expect("a number"))
}
