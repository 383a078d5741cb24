//! The server under test: `flatpath serve` with all its services, a server of the library in this
//! process, or nginx. A child is killed when it is dropped.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use flatpath::{DriverChoice, Limits, Protocol, Running};
use flatpath_bench_common::{nginx, tools};
use flatpath_http::sse::Broadcast;
use flatpath_http::{Http, IntoResponse, Request, Response, Route};
use flatpath_testkit::child::{Child, command, free_address};
use flatpath_testkit::fuse::{Content, Fuse, Pause};
use flatpath_testkit::mount;
use flatpath_testkit::scanner::Scanner;
use flatpath_websocket::{Message, Socket, WebSocket};
use rustix::process::Signal;

use super::mounts::SCANNED_FILES;
use super::troubles::{Home, Needs, Trouble};
use crate::Stage;

/// How long a server that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The file that the innocent ask for.
const HOT: &str = "hello.txt";
const HOT_PATH: &str = "/hello.txt";
/// The socket of the consumers, in the server's directory.
const INGEST: &str = "ingest";
/// A file that downloads take long for, sparse.
pub(super) const BIG_BYTES: u64 = 100 << 20;
/// What the innocent client of files reads: too large for the caches, so that it is streamed.
pub(super) const FILE_PATH: &str = "/file";
const FILE_BYTES: usize = 512 << 10;
/// The large files, each as long as its name says in MiB.
pub(super) const LARGE_MIB: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// All of the disk in the row of the full disk.
const DISK_BYTES: u64 = 4 << 20;
/// What is served, in the server's directory.
const DOCUMENTS: &str = "documents";
/// How long the scanner takes for each access: less than the longest wait that is allowed, because
/// it has to be found out.
const SCAN: Duration = Duration::from_millis(150);

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

    /// Those that can run here; a note tells which cannot.
    pub(super) fn available(notes: &mut Vec<String>) -> Vec<Self> {
        let mut all = vec![Self::Uring, Self::Epoll];
        match tools::NGINX.find() {
            Ok(_) => all.push(Self::Nginx),
            Err(missing) => notes.push(format!("no nginx beside it: {missing}")),
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
    /// By the name of the service.
    services: HashMap<String, SocketAddr>,
    pub(super) ingest_socket: PathBuf,
    pub(super) hot_path: &'static str,
    /// Answered by a worker; with nginx the same path, answered as it does.
    pub(super) pooled_path: &'static str,
    /// Whether a client that stores and reads files is among the innocent.
    pub(super) has_files: bool,
    /// What listeners at `/events` of the troubled listener get.
    pub(super) news: Broadcast,
    /// Makes the file system under `/mount` hang, where the trouble wants one.
    pub(super) hang: Option<Pause>,
    /// The connections that a trouble wishes are divided by this; see [`Arena::crowd`].
    divisor: usize,
}

impl Arena {
    /// A server that has only HTTP.
    fn of_http(http: SocketAddr, hot_path: &'static str, pooled_path: &'static str) -> Self {
        Self {
            http,
            troubled: http,
            services: HashMap::new(),
            ingest_socket: PathBuf::new(),
            hot_path,
            pooled_path,
            has_files: false,
            news: Broadcast::new(),
            hang: None,
            divisor: 1,
        }
    }

    /// How many connections a trouble gets that wishes `count`.
    pub(super) fn crowd(&self, count: usize) -> usize {
        (count / self.divisor).max(count.min(2))
    }

    /// The address of a service.
    pub(super) fn service(&self, name: &str) -> io::Result<SocketAddr> {
        let address = self.services.get(name).copied();
        address.ok_or_else(|| io::Error::other(format!("the server has no {name}")))
    }
}

/// A started server, and what it needs.
pub(super) struct Prepared {
    home: Started,
    pub(super) arena: Arena,
    mounted: Mounted,
    _directory: tempfile::TempDir,
}

enum Started {
    Child(Child),
    Here(Running, Arc<AtomicBool>),
}

/// Fields are dropped in this order.
#[derive(Default)]
struct Mounted {
    scanner: Option<Scanner>,
    at: Option<mount::Mounted>,
    hung: Option<Fuse>,
}

impl Prepared {
    /// Starts what a trouble needs, and the candidate; crowds are as large as this profile wants
    /// them.
    ///
    /// # Errors
    /// `Unsupported` for what this machine does not have; else a server that does not start.
    pub(super) fn start(
        stage: &Stage,
        candidate: Candidate,
        trouble: &Trouble,
    ) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let documents = directory.path().join(DOCUMENTS);
        fs::create_dir(&documents)?;
        fs::write(documents.join(HOT), "hello, innocent client\n")?;
        fs::write(documents.join(&FILE_PATH[1..]), vec![b'f'; FILE_BYTES])?;
        fs::File::create(documents.join("big"))?.set_len(BIG_BYTES)?;
        if trouble.needs == Needs::LargeFiles {
            for mib in LARGE_MIB {
                // Written, not sparse: all of it is in the kernel's cache.
                fs::write(documents.join(mib.to_string()), vec![b'l'; mib << 20])?;
            }
        }
        let mounted = mounted(directory.path(), trouble.needs).map_err(|cause| {
            io::Error::new(io::ErrorKind::Unsupported, format!("no mount: {cause}"))
        })?;
        let (home, mut arena) = match (trouble.home, candidate) {
            (_, Candidate::Nginx) => nginx(directory.path(), &documents, trouble)?,
            (Home::Library { buffer_bytes_max }, _) => here(candidate, buffer_bytes_max)?,
            (Home::Program(options), _) => {
                let mut command = serve(&stage.server, candidate, directory.path(), &documents);
                command.args(options);
                let process = match trouble.needs {
                    Needs::UnreadLog => Child::start_unread(&mut command)?,
                    _ => Child::start(&mut command)?,
                };
                child(process, directory.path())?
            }
        };
        arena.hang = mounted.hung.as_ref().map(Fuse::switch);
        arena.has_files = trouble.with_files;
        arena.divisor = stage.profile.pick(1, 1, 100);
        Ok(Self {
            home,
            arena,
            mounted,
            _directory: directory,
        })
    }

    /// Ends the server at once: how it drains is not measured here.
    pub(super) fn stop(self) {
        match self.home {
            Started::Child(process) => {
                process.signal(Signal::KILL);
                drop(self.mounted);
                match process.stop(PATIENCE) {
                    Ok(log) if std::env::var_os("NEIGHBOURS_TRACE").is_some() => complain(&log),
                    Ok(_) => {}
                    Err(error) => complain(&error.to_string()),
                }
            }
            Started::Here(running, release) => {
                // ORDER: Relaxed: the handlers look again and again.
                release.store(true, Ordering::Relaxed);
                running.handle().force();
                if let Err(error) = running.wait() {
                    complain(&error.to_string());
                }
            }
        }
    }
}

fn complain(text: &str) {
    eprintln!("the server under test: {text}");
}

fn mounted(directory: &Path, needs: Needs) -> io::Result<Mounted> {
    let at = directory.join(DOCUMENTS).join("mount");
    let hung = |at: &Path| {
        let file = Content::new("file.txt", "on a file system of its own\n");
        Fuse::mount(at, vec![file]).map(Some)
    };
    let mut mounted = Mounted::default();
    match needs {
        Needs::Nothing | Needs::LargeFiles | Needs::UnreadLog => {}
        Needs::HungMount => mounted.hung = hung(&at)?,
        Needs::HungLayer => {
            let [layer, empty] = ["layer", "empty"].map(|name| directory.join(name));
            mounted.hung = hung(&layer)?;
            fs::create_dir(&empty)?;
            fs::create_dir(&at)?;
            mounted.at = Some(mount::Mounted::overlay_at(&at, &layer, &empty)?);
        }
        Needs::FullDisk => {
            fs::create_dir(&at)?;
            let size = format!("size={DISK_BYTES}");
            mounted.at = Some(mount::Mounted::new(&at, c"tmpfs", size.as_bytes())?);
        }
        Needs::Scanned => {
            fs::create_dir(&at)?;
            mounted.at = Some(mount::Mounted::new(&at, c"tmpfs", b"size=1m")?);
            for number in 0..SCANNED_FILES {
                fs::write(at.join(format!("file-{number}")), "scanned\n")?;
            }
            mounted.scanner = Some(Scanner::watch(&at, SCAN)?);
        }
    }
    Ok(mounted)
}

fn serve(program: &Path, candidate: Candidate, directory: &Path, documents: &Path) -> Command {
    let any = "127.0.0.1:0";
    let driver = match candidate {
        Candidate::Uring => "uring",
        Candidate::Epoll | Candidate::Nginx => "epoll",
    };
    let mut command = command(program, &[]);
    command
        .arg("serve")
        .arg(documents)
        .args(["--http", any, "--writable", "--nfs", any, "--echo", any])
        .args(["--relay", any, "--ingest", any, "--ingest-socket"])
        .arg(directory.join(INGEST))
        .args(["--ingest-memory", "64M", "--driver", driver])
        .arg("--nfs-state")
        .arg(directory);
    command
}

fn child(mut process: Child, directory: &Path) -> io::Result<(Started, Arena)> {
    let services: HashMap<String, SocketAddr> = process.listeners()?.into_iter().collect();
    let http = services.get("http").copied();
    let http = http.ok_or_else(|| io::Error::other("it has no HTTP listener"))?;
    let arena = Arena {
        services,
        ingest_socket: directory.join(INGEST),
        ..Arena::of_http(http, HOT_PATH, "/absent")
    };
    Ok((Started::Child(process), arena))
}

/// A server of the library with handlers that are in trouble, and this budget for its buffers.
fn here(candidate: Candidate, buffer_bytes_max: Option<usize>) -> io::Result<(Started, Arena)> {
    let release = Arc::new(AtomicBool::new(false));
    let news = Broadcast::new();
    let mut limits = Limits::default();
    limits.buffer_bytes_max = buffer_bytes_max.unwrap_or(limits.buffer_bytes_max);
    let server = flatpath::Server::new()
        .limits(limits)
        .listen("127.0.0.1:0", handlers(&release, &news))
        .listen("127.0.0.1:0", handlers(&release, &news))
        .driver(match candidate {
            Candidate::Uring => DriverChoice::Uring,
            Candidate::Epoll | Candidate::Nginx => DriverChoice::Epoll,
        });
    let running = server.start().map_err(io::Error::other)?;
    let [http, troubled] = [0, 1].map(|index| running.addresses()[index].address);
    let arena = Arena {
        troubled,
        news,
        ..Arena::of_http(http, "/inline", "/pooled")
    };
    Ok((Started::Here(running, release), arena))
}

/// `/inline` is answered at once, everything else by a worker. `/block` does not come back before
/// `release`, `/panic` panics, `/events` sends the news, and `/echo` is a WebSocket that echoes.
fn handlers(release: &Arc<AtomicBool>, news: &Broadcast) -> impl Protocol + use<> {
    let (release, news) = (Arc::clone(release), news.clone());
    let sockets = WebSocket::pooled();
    let echo = |socket: &Socket, message: Message| {
        // An error means that the client is gone.
        let _ = socket.send(message);
    };
    Http::routed(
        |head| match head.path() {
            "/inline" => Route::Inline,
            _ => Route::Pooled,
        },
        move |request: &Request| {
            match request.uri().path() {
                // ORDER: Relaxed: looked at again and again.
                "/block" => {
                    while !release.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
                "/panic" => std::panic::resume_unwind(Box::new("on purpose")),
                "/events" => return news.response(),
                "/echo" => return sockets.accept(request, echo).into_response(),
                _ => {}
            }
            Response::new("ok\n".into())
        },
    )
}

fn nginx(directory: &Path, documents: &Path, trouble: &Trouble) -> io::Result<(Started, Arena)> {
    let http = free_address()?;
    let config = nginx::Config {
        directory,
        documents,
        address: http,
        connections: nginx::connections_of(trouble.places),
        files: nginx::Files::Stored,
        access_log: nginx::AccessLog::Off,
        tls: None,
        http2: false,
        server: "",
    };
    let mut process = Child::start(&mut config.command(&[])?)?;
    process.await_port(http.port())?;
    let arena = Arena::of_http(http, HOT_PATH, "/absent");
    Ok((Started::Child(process), arena))
}
