//! A running server: started as its candidate needs it, known to listen, and ended when dropped.
//!
//! Most candidates say where they listen in the words of `flatpath serve`; the others get a free
//! port and are ready when the kernel lists it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flatpath_bench_common::nginx::{ACCESS_LOG, Config, Tls};
use flatpath_bench_common::servers::{GENERATOR, OTHERS, PEAK_MIB, Run};
use flatpath_bench_common::tools::{GANESHA, HAPROXY, LIGHTTPD, RPCBIND, SOCAT, Tool};
use flatpath_bench_common::usage::{self, Reading, Used};
use flatpath_testkit::child::{self, Child, free_address, is_listening};
use tempfile::TempDir;

use crate::ground::{Documents, Ground, Pinning};
use crate::instructions::{counted, this_program};
use crate::kind::{Kind, Program};

/// Few threads that may block: as many as the machine of the figures has cores.
pub(crate) const FEW_WORKERS: u32 = 4;
const SPARE_CONNECTIONS: u32 = 256;
/// The listener that shows metrics.
const ADMIN: &str = "admin";
/// As `ganesha.conf` says.
const GANESHA_NFS: ([u8; 4], u16) = ([127, 0, 0, 1], 22049);
const GANESHA_MOUNT: ([u8; 4], u16) = ([127, 0, 0, 1], 22050);
const RPCBIND_PORT: u16 = 111;
/// Where consumers attach, in a server's directory.
const INGEST_SOCKET: &str = "ingest";

/// What a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Http,
    Https,
    Nfs,
    Relay,
    Ingest,
}

/// What a candidate is started with.
#[derive(Clone, Debug)]
pub(crate) struct Needs {
    pub(crate) service: Service,
    /// On which cores.
    pub(crate) pinning: Pinning,
    /// Connections that must be possible; nothing for the server's own default.
    pub(crate) connections: Option<u32>,
    /// Threads that may block; nothing for each server's own default.
    pub(crate) workers: Option<u32>,
    /// Memory that ours may have, in MiB; nothing for its default.
    pub(crate) memory: Option<u32>,
    pub(crate) documents: Documents,
    /// The configuration of ours, or more lines of nginx' `server` block; `{place}` is the
    /// directory of all documents.
    pub(crate) settings: String,
    /// More arguments of the `flatpath` command.
    pub(crate) arguments: Vec<String>,
    /// Those that it has only where the options name none.
    pub(crate) unless_told: &'static [&'static str],
    /// The server that a proxy asks.
    pub(crate) upstream: Option<SocketAddr>,
    /// Time between two server-sent events.
    pub(crate) every: Duration,
    /// Which server of the `flatpath-peers` of another build.
    pub(crate) library: Option<Kind>,
    /// The driver, whatever the options say.
    pub(crate) driver: Option<&'static str>,
    /// Run under callgrind, which writes its counts here.
    pub(crate) counts: Option<PathBuf>,
    /// What another server keeps between its runs, so that its NFS handles are valid here too;
    /// without it the server begins anew.
    pub(crate) state: Option<PathBuf>,
}

impl Needs {
    /// A service on all cores, with room for `connections`, for probes and for those that are
    /// still closing.
    pub(crate) fn of(service: Service, connections: u32) -> Self {
        Self {
            service,
            pinning: Pinning::Free,
            connections: Some(connections + SPARE_CONNECTIONS),
            workers: None,
            memory: None,
            documents: Documents::Ordinary,
            settings: String::new(),
            arguments: Vec::new(),
            unless_told: &[],
            upstream: None,
            every: Duration::from_secs(1),
            library: None,
            driver: None,
            counts: None,
            state: None,
        }
    }

    /// What a table calls the number of threads that may block.
    pub(crate) fn pool(&self) -> String {
        match self.workers {
            Some(workers) => format!("{workers} workers"),
            None => "workers by default".into(),
        }
    }

    /// The same for as many, near whose number a server closes what rests to have room for
    /// newcomers.
    pub(crate) fn of_crowd(service: Service, crowd: u32) -> Self {
        Self::of(service, crowd + crowd / 8)
    }
}

/// A server that accepts connections. Dropping it ends it.
pub(crate) struct Server {
    pub(crate) process: Child,
    /// Where the first listener is.
    pub(crate) address: SocketAddr,
    /// Where its metrics are, if it has any.
    pub(crate) admin: Option<SocketAddr>,
    /// Where its exports are mounted.
    pub(crate) mount: SocketAddr,
    /// The path of its export, as a client names it.
    pub(crate) export: String,
    /// Where a proxy connects to.
    pub(crate) target: Option<TcpListener>,
    /// The rpcbind that ganesha insists on.
    helper: Option<Child>,
    // Dropped after the process: nothing writes into them any more.
    home: TempDir,
    exported: Option<TempDir>,
}

impl Server {
    /// Starts the candidate.
    ///
    /// # Errors
    /// If it cannot be started or is not ready in time; the message ends with its own last words.
    pub(crate) fn start(ground: &Ground, kind: Kind, needs: &Needs) -> io::Result<Self> {
        let (home, exported) = (tempfile::tempdir()?, ground.exported(needs.documents)?);
        let documents = match &exported {
            Some(exported) => exported.path().to_path_buf(),
            None => ground.documents(needs.documents),
        };
        let state = needs.state.clone();
        let place = Place {
            ground,
            needs,
            kind,
            documents,
            state: state.unwrap_or_else(|| home.path().to_path_buf()),
        };
        let (certificate, key) = (&*ground.certificate(), &*ground.key());
        let tls = Tls { certificate, key };
        let mut server = match kind.program() {
            Program::Command(arguments) => Self::announced(&mut place.command(arguments)?, home)?,
            Program::Own if kind == Kind::Bare => place.relay(home)?,
            Program::Own | Program::OwnBefore => Self::announced(&mut place.own(), home)?,
            Program::Nginx(files, log) => {
                let config = Config {
                    directory: home.path(),
                    documents: &place.documents,
                    address: free_address()?,
                    connections: needs.connections.unwrap_or(0),
                    files,
                    access_log: log,
                    tls: (needs.service == Service::Https).then_some(tls),
                    http2: kind.speaks_http2(needs.service == Service::Https),
                    server: &ground.placed(&needs.settings),
                };
                let mut command = config.command(&ground.server_cores(needs.pinning))?;
                Self::at(&mut command, config.address, home)?
            }
            Program::Configured(tool, text) => place.configured(tool, text, home)?,
            Program::Ganesha => place.ganesha(home)?,
            Program::Python | Program::Socat | Program::Haproxy => place.relay(home)?,
        };
        server.exported = exported;
        Ok(server)
    }

    /// Starts the server of NFS that reports what dispatch costs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn observed(ground: &Ground, workers: u32) -> io::Result<Self> {
        let exported = ground.exported(Documents::Memory)?;
        let mut command = child::command(this_program(), &[]);
        command.arg("observed");
        command.args(exported.as_ref().map(TempDir::path));
        command.args([&workers.to_string(), &ground.programs.driver]);
        let mut server = Self::announced(&mut command, tempfile::tempdir()?)?;
        server.exported = exported;
        Ok(server)
    }

    /// Starts a server that names its listeners.
    fn announced(command: &mut Command, home: TempDir) -> io::Result<Self> {
        let mut process = Child::start(command)?;
        let listeners = process.listeners()?;
        let admin = listeners.iter().find(|(name, _)| name == ADMIN);
        let mut server = Self::of(process, listeners[0].1, home);
        server.admin = admin.map(|(_, address)| *address);
        Ok(server)
    }

    /// Starts a server that was told its address.
    fn at(command: &mut Command, address: SocketAddr, home: TempDir) -> io::Result<Self> {
        let mut process = Child::start(command)?;
        process.await_port(address.port())?;
        Ok(Self::of(process, address, home))
    }

    fn of(process: Child, address: SocketAddr, home: TempDir) -> Self {
        Self {
            process,
            address,
            admin: None,
            mount: address,
            export: "/".into(),
            target: None,
            helper: None,
            home,
            exported: None,
        }
    }

    /// Does the work: what came of it, and what was used meanwhile.
    ///
    /// # Errors
    /// Those of the work; if the server is gone.
    pub(crate) fn watch<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Used)> {
        let before = Reading::take(Some(self.group()))?;
        let done = work()?;
        Ok((done, before.used()?))
    }

    /// These figures, and those that every table shows.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn shown(&self, used: &Used, figures: Run) -> io::Result<Run> {
        let mut run = figures;
        run.push((PEAK_MIB, self.memory()?.peak_kib as f64 / 1024.0));
        run.push((GENERATOR, used.generator_percent()));
        run.push((OTHERS, used.others_percent()));
        Ok(run)
    }

    /// Memory of all its processes.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn memory(&self) -> io::Result<usage::Memory> {
        usage::group_memory(self.group())
    }

    /// Open descriptors of all its processes.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn descriptors(&self) -> io::Result<usize> {
        usage::group_descriptors(self.group())
    }

    /// Bytes that all its processes had read from disks.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn read_bytes(&self) -> io::Result<u64> {
        usage::group_read_bytes(self.group())
    }

    /// CPU time of its threads, in nanoseconds.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn threads(&self) -> io::Result<usage::ThreadTimes> {
        usage::thread_times(self.group())
    }

    /// Its access log, if it writes one.
    pub(crate) fn access_log(&self) -> PathBuf {
        self.home.path().join(ACCESS_LOG)
    }

    /// Where consumers attach.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join(INGEST_SOCKET)
    }

    /// What it keeps between its runs.
    pub(crate) fn state(&self) -> &Path {
        self.home.path()
    }

    /// What it exports, if that is a directory of its own.
    pub(crate) fn exported(&self) -> &Path {
        self.exported.as_ref().map_or(Path::new("/"), TempDir::path)
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

/// What commands are made of.
struct Place<'a> {
    ground: &'a Ground,
    needs: &'a Needs,
    kind: Kind,
    documents: PathBuf,
    /// Of what the server keeps.
    state: PathBuf,
}

impl Place<'_> {
    /// `flatpath serve`.
    fn command(&self, arguments: &[&str]) -> io::Result<Command> {
        let (ground, needs, state) = (self.ground, self.needs, &self.state);
        let programs = &ground.programs;
        let program = match (self.kind, &programs.before) {
            (Kind::FlatpathBefore, Some(before)) => before,
            _ => &programs.flatpath,
        };
        let mut command = self.launched(program);
        command.arg("serve");
        match needs.service {
            Service::Http | Service::Https if needs.upstream.is_some() => {}
            Service::Http | Service::Https | Service::Nfs if needs.settings.is_empty() => {
                command.arg(&self.documents);
            }
            Service::Http | Service::Https | Service::Nfs => {
                let file = state.join("settings.toml");
                fs::write(&file, ground.placed(&needs.settings))?;
                command.arg("--config").arg(file);
            }
            Service::Relay | Service::Ingest => {}
        }
        command.args([needs.service.flag(), "127.0.0.1:0"]);
        match needs.service {
            // The load calls as root, and the documents are this user's alone.
            Service::Nfs => {
                command.args(["--no-root-squash", "--writable", "--nfs-state"]);
                command.arg(state);
            }
            Service::Https => {
                command.arg("--tls-cert").arg(ground.certificate());
                command.arg("--tls-key").arg(ground.key());
            }
            Service::Ingest => {
                command
                    .arg("--ingest-socket")
                    .arg(state.join(INGEST_SOCKET));
                command.env("RUST_LOG", "warn");
            }
            Service::Http | Service::Relay => {}
        }
        let state = state.display().to_string();
        let upstream = needs.upstream.map(|it| it.to_string()).unwrap_or_default();
        let filled = arguments.iter().map(|it| it.replace("{state}", &state));
        command.args(filled.map(|it| it.replace("{upstream}", &upstream)));
        command.args(&needs.arguments);
        command.args(["--driver", self.driver()]);
        if let Some(connections) = needs.connections {
            command.args(["--max-connections", &connections.to_string()]);
        }
        if let Some(mebibytes) = needs.memory {
            command.args(["--memory", &format!("{mebibytes}M")]);
        }
        if let Some(workers) = needs.workers {
            command.args(["--workers", &format!("{workers}..{workers}")]);
        }
        match &programs.serve[..] {
            [] => command.args(needs.unless_told),
            told => command.args(told),
        };
        Ok(command)
    }

    fn driver(&self) -> &str {
        let of_all = self.needs.driver.unwrap_or(&self.ground.programs.driver);
        self.kind.driver().unwrap_or(of_all)
    }

    /// The program on its cores, by itself or under callgrind.
    fn launched(&self, program: impl AsRef<Path>) -> Command {
        let cores = self.ground.server_cores(self.needs.pinning);
        match &self.needs.counts {
            Some(counts) => counted(program.as_ref(), counts, &cores),
            None => child::command(program.as_ref(), &cores),
        }
    }

    /// The servers inside this binary are started as `flatpath-peers serve KIND`.
    fn own(&self) -> Command {
        let (ground, needs) = (self.ground, self.needs);
        let before = needs.library.zip(ground.programs.before_peers.as_ref());
        let before = before.filter(|_| self.kind == Kind::LibraryBefore);
        let (mut command, kind) = match before {
            Some((library, peers)) => (self.launched(peers), library),
            None => (self.launched(this_program()), self.kind),
        };
        command.args(["serve", &kind.to_string(), "--driver", self.driver()]);
        if let Some(connections) = needs.connections {
            command.args(["--max-connections", &connections.to_string()]);
        }
        if let Some(workers) = needs.workers {
            command.args(["--workers", &workers.to_string()]);
        }
        if before.is_none() {
            command.args(["--every-ms", &needs.every.as_millis().to_string()]);
            command.arg("--database").arg(self.state.join("items.db"));
            command.arg("--socket").arg(self.state.join(INGEST_SOCKET));
            command.arg("--public").arg(&self.documents);
            command.arg("--certificate").arg(ground.certificate());
            command.arg("--key").arg(ground.key());
        }
        command
    }

    /// A relay, with its own address; socat and haproxy also get that of the target.
    fn relay(&self, home: TempDir) -> io::Result<Server> {
        let address = free_address()?;
        let target = match self.kind {
            Kind::Socat | Kind::Haproxy => Some(TcpListener::bind("127.0.0.1:0")?),
            _ => None,
        };
        let to = target.as_ref().map(TcpListener::local_addr).transpose()?;
        let (to, port) = (to.unwrap_or(address), address.port());
        let mut command = match self.kind {
            Kind::Python => {
                let directory = self.ground.programs.python.clone().unwrap_or_default();
                let mut command = child::command(directory.join("twist"), &[]);
                command.args(["--log-level=error", "transitrelay"]);
                let interface = "interface=127.0.0.1:backlog=4096";
                command.arg(format!("--port=tcp:{port}:{interface}"));
                command
            }
            Kind::Socat => {
                let mut command = child::command(SOCAT.find()?, &[]);
                command.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr"));
                command.arg(format!("TCP:{to}"));
                command
            }
            Kind::Haproxy => {
                let file = home.path().join("haproxy.cfg");
                fs::write(&file, haproxy(address, to))?;
                let mut command = child::command(HAPROXY.find()?, &[]);
                command.args(["-db", "-f"]).arg(file);
                command
            }
            _ => {
                let mut command = self.own();
                command.args(["--address", &address.to_string()]);
                command
            }
        };
        command.current_dir(home.path());
        let mut server = Server::at(&mut command, address, home)?;
        server.target = target;
        Ok(server)
    }

    /// Lines that begin with `{tls}` are for TLS, with `{clear}` for none, with `{root}` for root.
    fn configured(&self, tool: Tool, text: &str, home: TempDir) -> io::Result<Server> {
        let (ground, address) = (self.ground, free_address()?);
        let is_root = rustix::process::geteuid().is_root();
        let lines = [
            ("{tls}", self.needs.service == Service::Https),
            ("{clear}", self.needs.service != Service::Https),
            ("{root}", is_root),
        ];
        let connections = self.needs.connections.unwrap_or(0);
        let mut filled = String::new();
        for line in text.lines() {
            let marked = lines.iter().find(|(mark, _)| line.starts_with(mark));
            match marked {
                None => filled += line,
                Some((mark, true)) => filled += &line[mark.len()..],
                Some((_, false)) => continue,
            }
            filled += "\n";
        }
        for (place, value) in [
            ("{ip}", address.ip().to_string()),
            ("{port}", address.port().to_string()),
            ("{documents}", self.documents.display().to_string()),
            ("{connections}", connections.to_string()),
            // Of each the socket, and the file.
            (
                "{descriptors}",
                (2 * connections + SPARE_CONNECTIONS).to_string(),
            ),
            ("{certificate}", ground.certificate().display().to_string()),
            ("{key}", ground.key().display().to_string()),
            ("{pair}", ground.pair()?.display().to_string()),
            ("{home}", home.path().display().to_string()),
            (
                "{upstream}",
                self.needs
                    .upstream
                    .map(|it| it.to_string())
                    .unwrap_or_default(),
            ),
        ] {
            filled = filled.replace(place, &value);
        }
        let file = home.path().join("server.conf");
        fs::write(&file, filled)?;
        let cores = ground.server_cores(self.needs.pinning);
        let mut command = child::command(tool.find()?, &cores);
        // All stay in the foreground.
        let option = match tool {
            LIGHTTPD => "-Df",
            HAPROXY => "-f",
            _ => "-c",
        };
        Server::at(command.arg(option).arg(file), address, home)
    }

    fn ganesha(&self, home: TempDir) -> io::Result<Server> {
        let (file, pid) = (home.path().join("ganesha.conf"), home.path().join("pid"));
        let export = self.documents.display().to_string();
        let text = include_str!("candidates/ganesha.conf").replace("/dev/shm/peer", &export);
        fs::write(&file, text)?;
        fs::create_dir_all("/run/ganesha")?;
        let helper = match is_listening(RPCBIND_PORT) {
            true => None,
            false => {
                let mut process = Child::start(child::command(RPCBIND.find()?, &[]).arg("-f"))?;
                process.await_port(RPCBIND_PORT)?;
                Some(process)
            }
        };
        let mut command = child::command(GANESHA.find()?, &[]);
        command.arg("-F").arg("-f").arg(&file).arg("-p").arg(&pid);
        command.args(["-L", "/dev/stderr"]);
        let mut server = Server::at(&mut command, GANESHA_NFS.into(), home)?;
        server.mount = GANESHA_MOUNT.into();
        server.process.await_port(server.mount.port())?;
        (server.export, server.helper) = (export, helper);
        Ok(server)
    }
}

impl Service {
    /// The option of `flatpath serve`.
    fn flag(self) -> &'static str {
        match self {
            Self::Http => "--http",
            Self::Https => "--https",
            Self::Nfs => "--nfs",
            Self::Relay => "--relay",
            Self::Ingest => "--ingest",
        }
    }
}

fn haproxy(from: SocketAddr, to: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 1000\n\
         defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         listen relay\n  bind {from}\n  server target {to}\n"
    )
}
