//! The server under test: `flatpath serve` with all its services, a server of the library in this
//! process, or nginx. A child is killed when it is dropped.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flatpath::{DriverChoice, Running};
use flatpath_bench_common::fuse::{Content, Fuse, Pause};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::causes::handlers;
use super::troubles::{Home, Needs, Trouble};
use crate::accept::ServerProgram;
use crate::error::Error;
use flatpath_bench_common::profile::Profile;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// The file that the innocent ask for.
const HOT: &str = "hello.txt";
/// A file that downloads take long for, sparse.
pub(super) const BIG_BYTES: u64 = 100 << 20;
/// All of the disk in the row of the full disk.
const DISK_BYTES: u64 = 4 << 20;

/// What is measured beside a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    Uring,
    Epoll,
    Nginx,
}

impl Candidate {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uring => "io_uring",
            Self::Epoll => "epoll",
            Self::Nginx => "nginx",
        }
    }

    fn driver(self) -> DriverChoice {
        match self {
            Self::Uring => DriverChoice::Uring,
            Self::Epoll | Self::Nginx => DriverChoice::Epoll,
        }
    }

    /// Those that can run here; a note says which cannot.
    pub(super) fn available(program: &ServerProgram, notes: &mut Vec<String>) -> Vec<Self> {
        let mut all = vec![Self::Uring, Self::Epoll];
        if *program == ServerProgram::ThisProcess {
            return all;
        }
        match Command::new("nginx")
            .arg("-v")
            .stderr(Stdio::null())
            .status()
        {
            Ok(status) if status.success() => all.push(Self::Nginx),
            _ => notes.push("nginx is not installed (package nginx-light): not beside it".into()),
        }
        all
    }
}

/// Where everything is, for clients and troubles.
#[derive(Clone)]
pub(super) struct Arena {
    pub(super) http: SocketAddr,
    /// Where trouble over HTTP goes: the same, or another listener of the same server.
    pub(super) troubled: SocketAddr,
    pub(super) nfs: Option<SocketAddr>,
    pub(super) echo: Option<SocketAddr>,
    pub(super) relay: Option<SocketAddr>,
    pub(super) ingest: Option<SocketAddr>,
    pub(super) ingest_socket: PathBuf,
    pub(super) hot_path: &'static str,
    /// Answered by a worker; with nginx the same path, answered as it does.
    pub(super) pooled_path: Option<&'static str>,
    /// Makes the file system under `/mount` hang, where the trouble wants one.
    pub(super) hang: Option<Pause>,
    /// The connections that a trouble wishes are divided by this; see [`Arena::crowd`].
    divisor: usize,
}

impl Arena {
    /// How many connections a trouble gets that wishes `count`.
    pub(super) fn crowd(&self, count: usize) -> usize {
        (count / self.divisor).max(2)
    }
}

/// A started server, and what it needs.
pub(super) struct Prepared {
    home: Started,
    arena: Arena,
    _mounted: Option<Mounted>,
    _directory: tempfile::TempDir,
}

enum Started {
    Child(Child),
    Here(Running, Arc<AtomicBool>),
}

enum Mounted {
    Hung(Fuse),
    Full(PathBuf),
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Self::Full(path) = self {
            let _ = rustix::mount::unmount(path.as_path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// This process takes as many descriptors as it may: troubles need thousands.
pub(super) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // The troubles are smaller then.
    let _ = setrlimit(Resource::Nofile, raised);
}

impl Prepared {
    /// Starts what a trouble needs, and the candidate.
    ///
    /// # Errors
    /// `Unavailable` for what this machine does not have; else a server that does not start.
    pub(super) fn start(
        program: &ServerProgram,
        candidate: Candidate,
        trouble: &Trouble,
    ) -> Result<Self, Error> {
        let directory = tempfile::tempdir()?;
        let documents = directory.path().join("documents");
        fs::create_dir(&documents)?;
        fs::write(documents.join(HOT), "hello, innocent client\n")?;
        fs::File::create(documents.join("big"))?.set_len(BIG_BYTES)?;
        let mounted = mounted(&documents, trouble.needs)?;
        let hang = match &mounted {
            Some(Mounted::Hung(hung)) => Some(hung.switch()),
            _ => None,
        };
        let (home, mut arena) = match (trouble.home, candidate, program) {
            (Home::Library, Candidate::Nginx, _) => {
                return Err(Error::Unavailable("nginx runs no handlers of ours".into()));
            }
            (Home::Library, ..) => here(candidate)?,
            (Home::Program(_), Candidate::Nginx, _) => {
                nginx(directory.path(), &documents, trouble)?
            }
            (Home::Program(options), _, ServerProgram::Program(program)) => {
                let log_is_read = trouble.needs != Needs::UnreadLog;
                let paths = (directory.path(), documents.as_path());
                child(program, candidate, paths, options, log_is_read)?
            }
            (Home::Program(_), _, ServerProgram::ThisProcess) => {
                return Err(Error::Unavailable("the command is not at hand".into()));
            }
        };
        arena.hang = hang;
        Ok(Self {
            home,
            arena,
            _mounted: mounted,
            _directory: directory,
        })
    }

    /// Where everything is, with crowds as large as this profile wants them.
    pub(super) fn arena(&self, profile: Profile) -> Arena {
        Arena {
            divisor: profile.pick(1, 1, 100),
            ..self.arena.clone()
        }
    }

    /// Ends the server at once: how it drains is not measured here.
    pub(super) fn stop(self) {
        match self.home {
            Started::Child(mut child) => {
                let _ = child.kill();
                drop(self._mounted);
                let _ = child.wait();
            }
            Started::Here(running, release) => {
                // ORDER: Relaxed: the handlers look again and again.
                release.store(true, std::sync::atomic::Ordering::Relaxed);
                running.handle().force();
                if let Err(error) = running.wait() {
                    log_line(&error.to_string());
                }
            }
        }
    }
}

fn log_line(text: &str) {
    eprintln!("the server under test: {text}");
}

fn mounted(documents: &Path, needs: Needs) -> Result<Option<Mounted>, Error> {
    let unavailable = |cause: std::io::Error| Error::Unavailable(format!("no mount: {cause}"));
    match needs {
        Needs::Nothing | Needs::UnreadLog => Ok(None),
        Needs::HungMount => {
            let path = documents.join("mount");
            let file = Content::new("file.txt", "on a file system of its own\n");
            Fuse::mount(&path, vec![file])
                .map(|hung| Some(Mounted::Hung(hung)))
                .map_err(unavailable)
        }
        Needs::FullDisk => {
            let path = documents.join("mount");
            fs::create_dir(&path)?;
            let options = std::ffi::CString::new(format!("size={DISK_BYTES}"))
                .map_err(std::io::Error::other)?;
            let flags = rustix::mount::MountFlags::NOSUID;
            rustix::mount::mount(
                "tmpfs",
                path.as_path(),
                "tmpfs",
                flags,
                Some(options.as_c_str()),
            )
            .map_err(|cause| unavailable(cause.into()))?;
            Ok(Some(Mounted::Full(path)))
        }
    }
}

fn child(
    program: &Path,
    candidate: Candidate,
    (directory, documents): (&Path, &Path),
    options: &[&str],
    log_is_read: bool,
) -> Result<(Started, Arena), Error> {
    let failed = |cause| Error::Server(format!("{}: {cause}", program.display()));
    let ingest_socket = directory.join("ingest");
    let driver = if candidate == Candidate::Uring {
        "uring"
    } else {
        "epoll"
    };
    let any = "127.0.0.1:0";
    let mut child = Command::new(program)
        .arg("serve")
        .arg(documents)
        .args(["--http", any, "--writable", "--nfs", any, "--echo", any])
        .args(["--relay", any, "--ingest", any, "--ingest-socket"])
        .arg(&ingest_socket)
        .args(["--ingest-memory", "64M", "--driver", driver, "--nfs-state"])
        .arg(directory)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if log_is_read && let Some(mut log) = child.stderr.take() {
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = log.read_to_end(&mut text);
            if std::env::var_os("NEIGHBOURS_TRACE").is_some() {
                log_line(&String::from_utf8_lossy(&text));
            }
        });
    }
    let Some(addresses) = child.stdout.take().and_then(listening) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::Server("it did not begin to listen".into()));
    };
    let of = |name: &str| {
        let found = addresses.iter().find(|(listener, _)| listener == name);
        found.map(|(_, address)| *address)
    };
    let http = of("http").ok_or_else(|| Error::Server("it has no HTTP listener".into()))?;
    let arena = Arena {
        http,
        troubled: http,
        nfs: of("nfs"),
        echo: of("echo"),
        relay: of("relay"),
        ingest: of("ingest"),
        ingest_socket,
        hot_path: "/hello.txt",
        pooled_path: Some("/absent"),
        hang: None,
        divisor: 1,
    };
    Ok((Started::Child(child), arena))
}

/// Waits for `ready` and returns the listeners that were named before.
fn listening(output: impl Read + Send + 'static) -> Option<Vec<(String, SocketAddr)>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut addresses = Vec::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line == "ready" {
                let _ = sender.send(addresses);
                return;
            }
            let mut words = line.split(' ').skip(1);
            if let (Some(name), Some(address)) = (words.next(), words.next())
                && let Ok(address) = address.parse()
            {
                addresses.push((name.to_owned(), address));
            }
        }
    });
    receiver.recv_timeout(PATIENCE).ok()
}

/// A server of the library with handlers that are in trouble.
fn here(candidate: Candidate) -> Result<(Started, Arena), Error> {
    let failed = |error: flatpath::Error| Error::Server(error.to_string());
    let release = Arc::new(AtomicBool::new(false));
    let server = flatpath::Server::new()
        .listen("127.0.0.1:0", handlers(&release))
        .listen("127.0.0.1:0", handlers(&release))
        .driver(candidate.driver());
    let running = server.start().map_err(failed)?;
    let address = |index: usize| running.addresses().get(index).map(|bound| bound.address);
    let http = address(0).ok_or_else(|| Error::Server("it listens nowhere".into()))?;
    let arena = Arena {
        http,
        troubled: address(1).unwrap_or(http),
        nfs: None,
        echo: None,
        relay: None,
        ingest: None,
        ingest_socket: PathBuf::new(),
        hot_path: "/inline",
        pooled_path: Some("/pooled"),
        hang: None,
        divisor: 1,
    };
    Ok((Started::Here(running, release), arena))
}

fn nginx(directory: &Path, documents: &Path, trouble: &Trouble) -> Result<(Started, Arena), Error> {
    // nginx cannot pick a port: one that was free a moment ago has to do.
    let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let directory = directory.display();
    let documents = documents.display();
    let places = trouble.places;
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(20_000);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path \"{directory}/{name}\";\n"))
        .collect();
    let user = if rustix::process::geteuid().is_root() {
        "user root;\n"
    } else {
        ""
    };
    let text = format!(
        "{user}daemon off;\nworker_processes 1;\nworker_rlimit_nofile {descriptors};\n\
         pid \"{directory}/nginx.pid\";\nerror_log /dev/null crit;\n\
         events {{ worker_connections {places}; }}\nhttp {{\n{temporary}access_log off;\n\
         keepalive_requests 1000000000;\ntypes {{ text/plain txt; }}\nserver {{\n\
         listen {http} backlog=4096;\nroot \"{documents}\";\ndav_methods PUT;\n\
         client_max_body_size 0;\n}}\n}}\n"
    );
    let file = Path::new(&directory.to_string()).join("nginx.conf");
    fs::write(&file, text)?;
    let child = Command::new("nginx")
        .args(["-e", "/dev/null", "-c"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|cause| Error::Server(format!("nginx: {cause}")))?;
    let arena = Arena {
        http,
        troubled: http,
        nfs: None,
        echo: None,
        relay: None,
        ingest: None,
        ingest_socket: PathBuf::new(),
        hot_path: "/hello.txt",
        pooled_path: Some("/absent"),
        hang: None,
        divisor: 1,
    };
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(http).is_err() {
        if Instant::now() > deadline {
            return Err(Error::Server("nginx did not begin to listen".into()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok((Started::Child(child), arena))
}
