//! A running server: started, known to answer, and ended when dropped.
//!
//! Every server but nginx says where it listens in the words of `flatpath serve`: one line
//! `listening NAME ADDRESS` per listener and then `ready` on standard output. nginx gets a free
//! port and is ready when it accepts a connection.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;
use tempfile::TempDir;

use crate::children::Group;
use crate::launch;
use crate::nginx;
use crate::tools::Tool;

/// How long a server may take until it accepts connections: callgrind needs seconds.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Between picking a free port and nginx taking it, somebody else may: so many tries.
const PORT_TRIES: u32 = 3;
/// How much of a failed server's log goes into the message.
const LOG_LINES_SHOWN: usize = 5;

/// The listener that wants a place for its keys.
pub(crate) const NFS: &str = "nfs";

/// A server the harness can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// nginx as Debian configures it for files: sendfile, one worker process.
    Nginx,
    /// The cheapest way found for a small file: no sendfile, descriptors kept open.
    NginxTuned,
    /// nginx with WebDAV's PUT, as Debian configures it.
    NginxDav,
    /// The same with a body buffer of 1 MiB.
    NginxDavTuned,
    /// The `flatpath` command.
    Flatpath,
    /// The `flatpath` command on io_uring, whatever `--driver` says.
    FlatpathUring,
    /// The same on epoll.
    FlatpathEpoll,
    /// The `flatpath` command with `--writable`.
    FlatpathPut,
    /// A fixed reply through the library, on the network thread.
    FlatpathInline,
    /// The same reply through workers, so that it may block.
    FlatpathPooled,
    /// That on io_uring, whatever `--driver` says.
    PooledUring,
    /// That on epoll.
    PooledEpoll,
    /// `/sleep` through workers, the rest on the network thread.
    FlatpathRouted,
    /// tokio and hyper on one thread.
    Hyper,
    /// Two tokio threads, and every request through `spawn_blocking`.
    HyperBlocking,
    /// The same, but only `/sleep` through `spawn_blocking`.
    HyperRouted,
    /// `tiny_http` with a fixed number of threads.
    TinyHttp,
    /// `flatpath serve --echo --accept single`.
    EchoSingle,
    /// `flatpath serve --echo --accept multishot`.
    EchoMultishot,
    /// An echo on one tokio thread.
    TokioEcho,
    /// The `flatpath` command of `--before`.
    FlatpathBefore,
    /// A fixed reply through the library of `--before-peers`.
    LibraryBefore,
}

impl Kind {
    /// Its name in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::NginxTuned => "nginx tuned",
            Self::NginxDav => "nginx dav",
            Self::NginxDavTuned => "nginx dav tuned",
            Self::Flatpath => "flatpath",
            Self::FlatpathUring => "flatpath io_uring",
            Self::FlatpathEpoll => "flatpath epoll",
            Self::FlatpathPut => "flatpath --writable",
            Self::FlatpathInline => "flatpath inline",
            Self::FlatpathPooled => "flatpath pooled",
            Self::PooledUring => "pooled io_uring",
            Self::PooledEpoll => "pooled epoll",
            Self::FlatpathRouted => "flatpath routed",
            Self::Hyper => "hyper",
            Self::HyperBlocking => "hyper spawn_blocking",
            Self::HyperRouted => "hyper routed",
            Self::TinyHttp => "tiny_http",
            Self::EchoSingle => "flatpath --accept single",
            Self::EchoMultishot => "flatpath --accept multishot",
            Self::TokioEcho => "tokio echo",
            Self::FlatpathBefore => "flatpath before",
            Self::LibraryBefore => "library before",
        }
    }

    /// The name by which the command line knows it.
    pub(crate) fn argument(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it is the `flatpath` command, which may have to be built.
    pub(crate) fn is_flatpath_command(self) -> bool {
        matches!(
            self,
            Self::Flatpath
                | Self::FlatpathBefore
                | Self::FlatpathUring
                | Self::FlatpathEpoll
                | Self::FlatpathPut
                | Self::EchoSingle
                | Self::EchoMultishot
        )
    }

    /// Whether it is of the build that this one is compared with.
    pub(crate) fn is_before(self) -> bool {
        matches!(self, Self::FlatpathBefore | Self::LibraryBefore)
    }

    /// The driver that it is about, whatever `--driver` says.
    fn driver(self) -> Option<&'static str> {
        match self {
            Self::FlatpathUring | Self::PooledUring => Some("uring"),
            Self::FlatpathEpoll | Self::PooledEpoll => Some("epoll"),
            _ => None,
        }
    }

    /// Whether it is nginx, which may have to be installed.
    pub(crate) fn is_nginx(self) -> bool {
        matches!(
            self,
            Self::Nginx | Self::NginxTuned | Self::NginxDav | Self::NginxDavTuned
        )
    }
}

/// What every server of a case gets.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The `flatpath` command.
    pub(crate) flatpath: PathBuf,
    /// `--driver` for everything that is Flatpath.
    pub(crate) driver: String,
    /// Files to serve.
    pub(crate) documents: PathBuf,
    /// Threads that may block; nothing for each server's own default.
    pub(crate) workers: Option<u32>,
    /// The cores to run on; all if empty.
    pub(crate) cores: Vec<usize>,
    /// Connections that must be possible.
    pub(crate) connections: u32,
    /// The listener of the `flatpath` command: `http`, `nfs`.
    pub(crate) service: &'static str,
    /// The build to compare with, and its `flatpath-peers`.
    pub(crate) before: Before,
    /// Run under callgrind, which writes its counts here.
    pub(crate) counts: Option<PathBuf>,
}

/// Programs of the build to compare with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// `flatpath`
    pub(crate) flatpath: PathBuf,
    /// `flatpath-peers`
    pub(crate) peers: PathBuf,
    /// Which of its servers.
    pub(crate) library: Option<Kind>,
}

/// A server that accepts connections. Dropping it ends it.
pub(crate) struct Server {
    kind: Kind,
    group: Group,
    address: SocketAddr,
    // Dropped after `group`: nothing writes into it any more.
    _directory: TempDir,
}

impl Server {
    /// Starts a server and waits until it accepts.
    ///
    /// # Errors
    /// If it cannot be started or is not ready in time; the message ends with its own last words.
    pub(crate) fn start(kind: Kind, setup: &Setup) -> io::Result<Self> {
        if kind.is_nginx() {
            return start_nginx(kind, setup);
        }
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("log");
        let mut command = command_of(kind, setup, directory.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let mut group = Group::start(&mut command)?;
        let lines = lines_of(&mut group)?;
        match await_ready(&lines) {
            Ok(address) => Ok(Self {
                kind,
                group,
                address,
                _directory: directory,
            }),
            Err(error) => Err(with_log(&error, &log)),
        }
    }

    /// Which one it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// `TimedOut` if it does not end.
    pub(crate) fn finish(mut self, limit: Duration) -> io::Result<()> {
        self.group.signal(Signal::TERM);
        self.group.wait(limit).map(drop)
    }

    /// Its process group, for CPU time and memory.
    pub(crate) fn group(&self) -> u32 {
        self.group.id()
    }
}

fn command_of(kind: Kind, setup: &Setup, state: &Path) -> Command {
    if !kind.is_flatpath_command() {
        return own_command(kind, setup);
    }
    let program = match kind {
        Kind::FlatpathBefore => &setup.before.flatpath,
        _ => &setup.flatpath,
    };
    let mut command = launched(program, setup);
    command.arg("serve");
    match kind {
        Kind::EchoSingle => command.args(["--echo", "127.0.0.1:0", "--accept", "single"]),
        Kind::EchoMultishot => command.args(["--echo", "127.0.0.1:0", "--accept", "multishot"]),
        _ => command
            .arg(&setup.documents)
            .args([&format!("--{}", setup.service), "127.0.0.1:0"]),
    };
    if setup.service == NFS {
        // The load calls as root, and the documents are this user's alone.
        command.arg("--no-root-squash");
        command.arg("--nfs-state").arg(state);
    }
    if kind == Kind::FlatpathPut {
        command.arg("--writable");
    }
    command.args(["--driver", kind.driver().unwrap_or(&setup.driver)]);
    command.args(["--max-connections", &setup.connections.to_string()]);
    if let Some(workers) = setup.workers {
        command.args(["--workers", &format!("{workers}..{workers}")]);
    }
    command
}

/// The program on its cores, by itself or under callgrind.
fn launched(program: &Path, setup: &Setup) -> Command {
    match &setup.counts {
        Some(counts) => launch::counted(program, counts, &setup.cores),
        None => launch::command(program, &setup.cores),
    }
}

/// The servers inside this binary are started as `flatpath-peers serve KIND`.
fn own_command(kind: Kind, setup: &Setup) -> Command {
    let (program, kind) = match (kind, setup.before.library) {
        (Kind::LibraryBefore, Some(library)) => (&*setup.before.peers, library),
        _ => (Path::new("/proc/self/exe"), kind),
    };
    let mut command = launched(program, setup);
    command.arg("serve").arg(kind.argument());
    command.args(["--driver", kind.driver().unwrap_or(&setup.driver)]);
    command.args(["--max-connections", &setup.connections.to_string()]);
    if let Some(workers) = setup.workers {
        command.args(["--workers", &workers.to_string()]);
    }
    command
}

/// Reads the server's output to its end, so that the server never waits for a reader.
fn lines_of(group: &mut Group) -> io::Result<Receiver<String>> {
    let output = group.leader().stdout.take();
    let output = output.ok_or_else(|| io::Error::other("the output is not piped"))?;
    let (send, receive) = mpsc::channel();
    thread::Builder::new()
        .name("server output".into())
        .spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // After `ready` nobody listens any more; reading goes on.
                let _ = send.send(line);
            }
        })?;
    Ok(receive)
}

fn await_ready(lines: &Receiver<String>) -> io::Result<SocketAddr> {
    let deadline = Instant::now() + START_LIMIT;
    let mut address = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => io::Error::other("was not ready in time"),
            mpsc::RecvTimeoutError::Disconnected => io::Error::other("ended before it was ready"),
        })?;
        if line == "ready" {
            return address.ok_or_else(|| io::Error::other("is ready but named no listener"));
        }
        address = address.or_else(|| listener_of(&line));
    }
}

/// `listening NAME ADDRESS`
fn listener_of(line: &str) -> Option<SocketAddr> {
    let mut words = line.split(' ');
    (words.next()? == "listening").then_some(())?;
    words.nth(1)?.parse().ok()
}

fn start_nginx(kind: Kind, setup: &Setup) -> io::Result<Server> {
    let program = Tool::Nginx.find()?;
    let mut failure = io::Error::other("no port was tried");
    for _ in 0..PORT_TRIES {
        match try_nginx(kind, setup, &program) {
            Ok(server) => return Ok(server),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn try_nginx(kind: Kind, setup: &Setup, program: &Path) -> io::Result<Server> {
    let directory = tempfile::tempdir()?;
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let config = nginx::Config {
        directory: directory.path(),
        documents: &setup.documents,
        address,
        connections: setup.connections,
        files: match kind {
            Kind::NginxTuned => nginx::Files::Tuned,
            Kind::NginxDav => nginx::Files::Stored,
            Kind::NginxDavTuned => nginx::Files::StoredTuned,
            _ => nginx::Files::Debian,
        },
        as_root: rustix::process::geteuid().is_root(),
    };
    let file = directory.path().join("nginx.conf");
    fs::write(&file, config.render())?;
    let log = directory.path().join("error.log");
    let mut command = launch::command(program, &setup.cores);
    command
        .arg("-p")
        .arg(directory.path())
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg(&log);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut group = Group::start(&mut command)?;
    match await_accept(&mut group, address) {
        Ok(()) => Ok(Server {
            kind,
            group,
            address,
            _directory: directory,
        }),
        Err(error) => Err(with_log(&error, &log)),
    }
}

fn await_accept(group: &mut Group, address: SocketAddr) -> io::Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while Instant::now() < deadline {
        if !group.is_running() {
            return Err(io::Error::other("ended before it was ready"));
        }
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("was not ready in time"))
}

fn with_log(error: &io::Error, log: &Path) -> io::Error {
    let mut text = String::new();
    let _ = File::open(log).and_then(|mut file| file.read_to_string(&mut text));
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("; ");
    let separator = if last.is_empty() { "" } else { ": " };
    io::Error::new(error.kind(), format!("{error}{separator}{last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(lines: &[&str]) -> Receiver<String> {
        let (send, receive) = mpsc::channel();
        for line in lines {
            send.send((*line).to_owned()).expect("the receiver lives");
        }
        receive
    }

    #[test]
    fn the_first_listener_is_the_one_that_is_driven() {
        let lines = sent(&[
            "listening http 127.0.0.1:80",
            "listening echo 127.0.0.1:7",
            "ready",
        ]);
        let address = await_ready(&lines).expect("ready");
        assert_eq!(address, SocketAddr::from(([127, 0, 0, 1], 80)));
    }

    #[test]
    fn a_server_that_ends_early_is_an_error() {
        let error = await_ready(&sent(&["listening http 127.0.0.1:80"])).expect_err("no ready");
        assert_eq!(error.to_string(), "ended before it was ready");
    }

    #[test]
    fn ready_without_a_listener_is_an_error() {
        assert!(await_ready(&sent(&["ready"])).is_err());
    }

    #[test]
    fn other_lines_name_no_listener() {
        assert_eq!(listener_of("listening http nowhere"), None);
        assert_eq!(listener_of("listens http 127.0.0.1:80"), None);
        assert_eq!(listener_of(""), None);
    }

    #[test]
    fn a_failed_server_speaks_its_last_words() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let log = directory.path().join("log");
        fs::write(&log, "one\ntwo\n").expect("written");
        let error = with_log(&io::Error::other("was not ready in time"), &log);
        assert_eq!(error.to_string(), "was not ready in time: one; two");
    }

    #[test]
    fn every_kind_has_its_own_label_and_argument() {
        use clap::ValueEnum;
        use std::collections::BTreeSet;
        let kinds = Kind::value_variants();
        let labels: BTreeSet<_> = kinds.iter().map(|kind| kind.label()).collect();
        let arguments: BTreeSet<_> = kinds.iter().map(|kind| kind.argument()).collect();
        assert_eq!((labels.len(), arguments.len()), (kinds.len(), kinds.len()));
    }
}
