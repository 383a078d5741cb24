//! A running server: started, known to listen, and ended when dropped.
//!
//! Most candidates say where they listen in the words of `flatpath serve`; the others get a free
//! port and are ready when the kernel lists it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flatpath_bench_common::nginx::{ACCESS_LOG, AccessLog, Config, Files, Tls};
use flatpath_testkit::child::{self, Child, free_address};
use tempfile::TempDir;

use crate::certificate::Pair;
use crate::instructions::{counted, this_program};
use crate::kind::Kind;
use crate::session::Session;

/// The listener of the relay.
pub(crate) const RELAY: &str = "relay";
/// The listener that wants a place for its keys.
pub(crate) const NFS: &str = "nfs";
/// The listener that shows metrics.
const ADMIN: &str = "admin";

/// What every server of a case gets.
#[derive(Clone)]
pub(crate) struct Setup<'a> {
    /// Programs, and the options for all cases.
    pub(crate) session: &'a Session,
    /// `--driver` for everything that is Flatpath.
    pub(crate) driver: &'a str,
    /// Files to serve.
    pub(crate) documents: PathBuf,
    /// Threads that may block; nothing for each server's own default.
    pub(crate) workers: Option<u32>,
    /// Memory that ours may have, in MiB; nothing for its default.
    pub(crate) memory: Option<u32>,
    /// The cores to run on; all if empty.
    pub(crate) cores: Vec<usize>,
    /// Time between two server-sent events.
    pub(crate) every: Duration,
    /// Connections that must be possible.
    pub(crate) connections: u32,
    /// The file of settings of the `flatpath` command, which then names the files to serve.
    pub(crate) config: Option<PathBuf>,
    /// More arguments of the `flatpath` command.
    pub(crate) arguments: &'a [String],
    /// More lines of nginx' `server` block.
    pub(crate) nginx: &'a str,
    /// The listener of the `flatpath` command: `http`, `https`, `nfs`.
    pub(crate) service: &'static str,
    /// The certificate and key of servers over TLS.
    pub(crate) pair: Option<&'a Pair>,
    /// Which server of `--before-peers` to compare with.
    pub(crate) library: Option<Kind>,
    /// Run under callgrind, which writes its counts here.
    pub(crate) counts: Option<PathBuf>,
    /// What another server keeps between its runs, so that its NFS handles are valid here too;
    /// without it the server begins anew.
    pub(crate) state: Option<PathBuf>,
}

/// A server that accepts connections. Dropping it ends it.
pub(crate) struct Server {
    pub(crate) process: Child,
    /// Where the first listener is.
    pub(crate) address: SocketAddr,
    /// Where its metrics are, if it has any.
    pub(crate) admin: Option<SocketAddr>,
    // Dropped after the process: nothing writes into it any more.
    directory: TempDir,
}

impl Server {
    /// Starts a server of HTTP, NFS or an echo.
    ///
    /// # Errors
    /// If it cannot be started or is not ready in time; the message ends with its own last words.
    pub(crate) fn start(kind: Kind, setup: &Setup<'_>) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        if kind.is_nginx() {
            return start_nginx(kind, setup, directory);
        }
        let state = setup.state.as_deref().unwrap_or(directory.path());
        let mut command = command_of(kind, setup, state);
        Self::announced(&mut command, directory)
    }

    /// Starts a server that names its listeners.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn announced(command: &mut Command, directory: TempDir) -> io::Result<Self> {
        let mut process = Child::start(command)?;
        let listeners = process.listeners()?;
        let admin = listeners.iter().find(|(name, _)| name == ADMIN);
        Ok(Self {
            process,
            address: listeners[0].1,
            admin: admin.map(|(_, address)| *address),
            directory,
        })
    }

    /// Starts a server that was told its address.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn at(
        command: &mut Command,
        address: SocketAddr,
        directory: TempDir,
    ) -> io::Result<Self> {
        let mut process = Child::start(command)?;
        process.await_port(address.port())?;
        Ok(Self {
            process,
            address,
            admin: None,
            directory,
        })
    }

    /// Its access log, if it writes one.
    pub(crate) fn access_log(&self) -> PathBuf {
        self.directory.path().join(ACCESS_LOG)
    }

    /// What it keeps between its runs.
    pub(crate) fn state(&self) -> &Path {
        self.directory.path()
    }

    /// Its process group, for CPU time and memory.
    pub(crate) fn group(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// `TimedOut` if it does not end.
    pub(crate) fn finish(self, limit: Duration) -> io::Result<()> {
        self.process.stop(limit).map(drop)
    }
}

fn command_of(kind: Kind, setup: &Setup<'_>, state: &Path) -> Command {
    if !kind.is_flatpath_command() {
        return own_command(kind, setup, state);
    }
    let options = &setup.session.options;
    let program = match (kind, &options.before) {
        (Kind::FlatpathBefore, Some(before)) => before,
        _ => &setup.session.flatpath,
    };
    let mut command = launched(program, setup);
    command.arg("serve");
    match kind {
        Kind::EchoSingle => command.args(["--echo", "127.0.0.1:0", "--accept", "single"]),
        Kind::EchoMultishot => command.args(["--echo", "127.0.0.1:0", "--accept", "multishot"]),
        _ => match &setup.config {
            Some(file) => command.arg("--config").arg(file),
            // A relay serves no files.
            None if setup.service == RELAY => &mut command,
            None => command.arg(&setup.documents),
        }
        .args([&format!("--{}", setup.service), "127.0.0.1:0"]),
    };
    command.args(setup.arguments);
    if setup.service == NFS {
        // The load calls as root, and the documents are this user's alone.
        command.args(["--no-root-squash", "--writable"]);
        command.arg("--nfs-state").arg(state);
    }
    if let Some(pair) = setup.pair {
        command.arg("--tls-cert").arg(&pair.certificate);
        command.arg("--tls-key").arg(&pair.key);
    }
    if kind == Kind::FlatpathPut {
        command.arg("--writable");
    }
    if kind.logs() {
        command.arg("--access-log").arg(state.join(ACCESS_LOG));
    }
    if kind == Kind::FlatpathLogJson {
        command.args(["--access-log-format", "json"]);
    }
    if kind.is_scraped() {
        command.args(["--admin", "127.0.0.1:0"]);
    }
    command.args(["--driver", kind.driver().unwrap_or(setup.driver)]);
    command.args(["--max-connections", &setup.connections.to_string()]);
    if let Some(mebibytes) = setup.memory {
        command.args(["--memory", &format!("{mebibytes}M")]);
    }
    if let Some(workers) = setup.workers {
        command.args(["--workers", &format!("{workers}..{workers}")]);
    }
    command.args(&options.serve);
    command
}

/// The program on its cores, by itself or under callgrind.
fn launched(program: impl AsRef<Path>, setup: &Setup<'_>) -> Command {
    match &setup.counts {
        Some(counts) => counted(program.as_ref(), counts, &setup.cores),
        None => child::command(program.as_ref(), &setup.cores),
    }
}

/// The servers inside this binary are started as `flatpath-peers serve KIND`.
fn own_command(kind: Kind, setup: &Setup<'_>, state: &Path) -> Command {
    let before = setup
        .library
        .zip(setup.session.options.before_peers.as_ref());
    let (mut command, kind) = match (kind, before) {
        (Kind::LibraryBefore, Some((library, peers))) => (launched(peers, setup), library),
        _ => (launched(this_program(), setup), kind),
    };
    command.args(["serve", &kind.to_string()]);
    command.args(["--driver", kind.driver().unwrap_or(setup.driver)]);
    command.args(["--max-connections", &setup.connections.to_string()]);
    if let Some(workers) = setup.workers {
        command.args(["--workers", &workers.to_string()]);
    }
    if kind.is_sse() {
        let every = setup.every.as_millis().to_string();
        command.args(["--every-ms", &every]);
    }
    if kind.has_database() {
        command.arg("--database").arg(state.join("items.db"));
    }
    if kind.is_app() {
        command.arg("--public").arg(&setup.documents);
    }
    if let Some(pair) = setup.pair {
        command.arg("--certificate").arg(&pair.certificate);
        command.arg("--key").arg(&pair.key);
    }
    command
}

fn start_nginx(kind: Kind, setup: &Setup<'_>, directory: TempDir) -> io::Result<Server> {
    let config = Config {
        directory: directory.path(),
        documents: &setup.documents,
        address: free_address()?,
        connections: setup.connections,
        files: match kind {
            Kind::NginxTuned => Files::Tuned,
            Kind::Http2Nginx => Files::Streamed,
            Kind::NginxDav => Files::Stored,
            Kind::NginxDavTuned => Files::StoredTuned,
            _ => Files::Debian,
        },
        access_log: match kind {
            Kind::NginxLog => AccessLog::Lines,
            Kind::NginxLogBuffered => AccessLog::Buffered,
            _ => AccessLog::Off,
        },
        tls: setup.pair.map(|pair| Tls {
            certificate: &pair.certificate,
            key: &pair.key,
        }),
        http2: kind == Kind::Http2Nginx,
        server: setup.nginx,
    };
    let (mut command, address) = (config.command(&setup.cores)?, config.address);
    Server::at(&mut command, address, directory)
}
