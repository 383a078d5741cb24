//! `flatpath serve`: a directory over HTTP and NFS, echo, a relay and ingest, until a signal.
//!
//! Standard output carries one line per listener, `listening http 127.0.0.1:8080`, and then
//! `ready`; nothing else ever. Logs go to standard error.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};
use flatpath::limits::DESCRIPTORS_MIN;
use flatpath::{DriverChoice, Error, Limits, OperationMode, Running, Server, SignalWatch};
use flatpath_echo::Echo;
use flatpath_files::MountShares;
use flatpath_files::limits::CACHE_ENTRIES_MAX;
use flatpath_files::{Durability, Files, Hidden, WriteOptions, Writing};
use flatpath_http::Http;
use flatpath_ingest::Ingest;
use flatpath_nfs::Nfs;
use flatpath_relay::Relay;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::ingest;
use crate::memory::{Demands, Parts};
use crate::nfs;
use crate::relay::{self, Reporter};
use crate::report;
use crate::settings::{Accept, Driver, Settings, is_on};
use crate::watchdog::Watchdog;

/// Where HTTP is served when nothing else is named.
const HTTP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

const UNITS: &str = "SIZE: bytes, or a number with K, M, G or T for powers of 1024: 256M.
TIME: seconds, or a time with units: 0.5, 500ms, 5m, 1h 30m.
BOOL: true or false; true if left out.
An option may also come from the environment, as FLATPATH_ and its name in capitals:
FLATPATH_MAX_CONNECTIONS=1000. The command line replaces it, and it replaces the file.";

/// The command line of `serve`.
#[derive(Args, Debug)]
#[command(after_help = UNITS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,

    /// Read settings from this TOML file: the same names, without the leading dashes. The command
    /// line replaces what the file sets
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the server until it has drained. The arguments were made from `matches`.
pub(crate) fn run(arguments: Arguments, matches: &ArgMatches) -> Result<(), Failure> {
    // Before any thread is started.
    flatpath::memory::bound_arenas(ARENAS_MAX);
    let mut settings = arguments.settings;
    if let Some(path) = &arguments.config {
        settings = Settings::from_file(path)?.replaced_by(matches);
    }
    let parts = demands(&settings).divide()?;
    let nfs = settings.nfs.map(|_| nfs::open(&settings)).transpose()?;
    let port = nfs.as_ref().map(Nfs::port);
    let relay = relay::service(&settings);
    let (ingest, control) = settings
        .ingest
        .map(|_| ingest::open(&settings))
        .transpose()?
        .unzip();
    let reported = ingest.clone();
    let mut mounts = Vec::new();
    let server = server(&settings, &parts, nfs, ingest, &relay, &mut mounts)?;
    let report = report::start(reported, mounts).map_err(|cause| no_thread(&cause))?;
    let watchdog = Watchdog::start().map_err(|cause| no_thread(&cause))?;
    let watch = SignalWatch::begin()
        .and_then(|watch| watch.reporting(report))
        .map_err(|error| explain(&error))?;
    let limits = limits(&settings, &parts);
    let drain = limits.drain_delay.saturating_add(limits.drain_timeout);
    parts.log();
    let running = server.start().map_err(|error| explain(&error))?;
    let bound = running.addresses().iter().find(|bound| bound.name == "nfs");
    if let (Some(port), Some(bound)) = (port, bound) {
        port.announce(bound.address.port());
    }
    let registrar = bound
        .filter(|_| is_on(settings.nfs_register))
        .map(|bound| nfs::register(bound.address))
        .transpose()?;
    let has_relay = !settings.relay.is_empty();
    let reporter = has_relay.then(|| Reporter::start(running.handle(), relay.statistics()));
    announce(&running);
    let (mut draining, withdrawn) = registrar.unzip();
    let mut end_in_time = watchdog.on_stopping(drain);
    let outcome = watch.run_with(running, move |stopping| {
        end_in_time(stopping);
        drop(draining.take());
    });
    drop(reporter);
    if let Some(withdrawn) = withdrawn {
        nfs::await_withdrawal(withdrawn);
    }
    drop(control);
    outcome.map_err(|error| explain(&error))?;
    log::info!("stopped");
    Ok(())
}

/// A server with these settings, not started.
fn server(
    settings: &Settings,
    parts: &Parts,
    nfs: Option<Nfs>,
    ingest: Option<Ingest>,
    relay: &Relay,
    mounts: &mut Vec<MountShares>,
) -> Result<Server, Failure> {
    let http = http_addresses(settings);
    if http.is_empty()
        && settings.nfs.is_none()
        && let Some(dir) = &settings.dir
    {
        return Err(Failure::WrongUse(format!(
            "{} would be served over HTTP, but only --echo, --relay or --ingest names a listener: \
             add --http ADDR, or leave DIR out",
            dir.display()
        )));
    }
    let mut server = Server::new()
        .limits(limits(settings, parts))
        .driver_config(parts.driver.clone());
    let behind = |server: Server| match &settings.proxy_from[..] {
        [] => server,
        networks => server.behind_proxy(networks.iter().copied()),
    };
    for &address in http {
        let files = files(settings, parts)?;
        mounts.push(files.mount_shares());
        server = behind(server.listen(address, Http::service(files)));
    }
    if let (Some(address), Some(nfs)) = (settings.nfs, nfs) {
        let protocol = nfs
            .protocol()
            .bounded(parts.nfs_page_bytes, parts.nfs_replies);
        server = behind(server.listen(address, protocol));
    }
    if let (Some(address), Some(ingest)) = (settings.ingest, ingest) {
        server = behind(server.listen(address, ingest));
    }
    for &address in &settings.echo {
        server = behind(server.listen(address, Echo));
    }
    for &address in &settings.relay {
        server = behind(server.listen(address, relay.clone()));
    }
    if let Some(count) = settings.network_threads {
        server = server.network_threads(count);
    }
    if let Some(workers) = &settings.workers {
        server = server.workers(workers.clone());
    }
    server = server.driver(match settings.driver {
        None | Some(Driver::Auto) => DriverChoice::Auto,
        Some(Driver::Uring) => DriverChoice::Uring,
        Some(Driver::Epoll) => DriverChoice::Epoll,
    });
    server = server.defer_accept(!is_on(settings.no_defer_accept));
    Ok(server.accept(match settings.accept {
        None | Some(Accept::Multishot) => OperationMode::Multishot,
        Some(Accept::Single) => OperationMode::Single,
    }))
}

/// Where HTTP is served.
fn http_addresses(settings: &Settings) -> &[SocketAddr] {
    let is_default = settings.http.is_empty()
        && settings.echo.is_empty()
        && settings.relay.is_empty()
        && settings.nfs.is_none()
        && settings.ingest.is_none();
    if is_default {
        &[HTTP_DEFAULT]
    } else {
        settings.http.as_slice()
    }
}

fn files(settings: &Settings, parts: &Parts) -> Result<Files, Failure> {
    let dir = settings.dir.as_deref().unwrap_or(Path::new("."));
    let files = Files::open(dir).map_err(|cause| {
        let dir = dir.display();
        Failure::WrongUse(format!(
            "cannot serve directory {dir}: {cause}; name a readable directory"
        ))
    })?;
    let files = files.cache(CACHE_ENTRIES_MAX, parts.cache_each);
    let files = match settings.stat_age {
        Some(age) => files.stat_age(age),
        None => files,
    };
    let files = files.writable(match is_on(settings.writable) {
        true => Writing::Allowed(write_options(settings)),
        false => Writing::Refused,
    });
    Ok(files.hidden(match is_on(settings.hidden) {
        true => Hidden::Served,
        false => Hidden::Refused,
    }))
}

fn write_options(settings: &Settings) -> WriteOptions {
    let usual = WriteOptions::default();
    WriteOptions {
        bytes_max: settings.put_max.unwrap_or(usual.bytes_max),
        durability: match is_on(settings.durable) {
            true => Durability::Disk,
            false => Durability::Kernel,
        },
        unfinished_max: settings.uploads_max.unwrap_or(usual.unfinished_max),
        unfinished_bytes_max: settings.uploads_bytes,
        expires: settings.upload_expires.unwrap_or(usual.expires),
    }
}

/// Heaps of the allocator for all threads: what they hand each other is pooled, so few are enough.
const ARENAS_MAX: u16 = 2;

/// What `--memory` is to be divided among.
fn demands(settings: &Settings) -> Demands {
    let default = Limits::default();
    let workers = settings.workers.as_ref();
    Demands {
        bytes: settings.memory.unwrap_or(default.buffer_bytes_max),
        network_threads: settings.network_threads.unwrap_or(1),
        workers: workers.map_or(Server::WORKERS_MAX, |workers| *workers.end()),
        http: http_addresses(settings).len(),
        writable: is_on(settings.writable),
        nfs: settings.nfs.is_some(),
        connections: settings.max_connections,
        descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

fn limits(settings: &Settings, parts: &Parts) -> Limits {
    let mut limits = Limits {
        buffer_bytes_max: parts.buffers,
        connections_max: parts.connections_wished,
        in_flight_max: parts.in_flight_max,
        ..Limits::default()
    };
    if let Some(count) = settings.workers_per_listener {
        limits.workers_per_listener = count;
    }
    if let Some(count) = settings.connections_per_address {
        limits.connections_per_address = count;
    }
    for (time, limit) in [
        (settings.head_timeout, &mut limits.head_timeout),
        (settings.body_timeout, &mut limits.body_timeout),
        (settings.idle_timeout, &mut limits.idle_timeout),
        (settings.write_timeout, &mut limits.write_timeout),
        (settings.drain_delay, &mut limits.drain_delay),
        (settings.drain_idle_timeout, &mut limits.drain_idle_timeout),
        (settings.drain_timeout, &mut limits.drain_timeout),
        (settings.relay_wait, &mut limits.wait_timeout),
        (settings.relay_idle, &mut limits.spliced_timeout),
    ] {
        if let Some(time) = time {
            *limit = time;
        }
    }
    limits
}

/// Announces the listeners. The program that reads them may have closed the pipe,
/// which is no reason not to serve.
fn announce(running: &Running) {
    let mut lines = String::new();
    for bound in running.addresses() {
        lines += &format!("listening {} {}\n", bound.name, bound.address);
    }
    lines += "ready\n";
    let mut output = io::stdout().lock();
    let written = output
        .write_all(lines.as_bytes())
        .and_then(|()| output.flush());
    if let Err(cause) = written {
        log::warn!("standard output is closed: {cause}");
    }
}

fn no_thread(cause: &io::Error) -> Failure {
    Failure::Failed(format!("cannot start a thread: {cause}"))
}

/// An error of the engine in the words of the command line.
fn explain(error: &Error) -> Failure {
    match error {
        Error::Limits(what) => Failure::WrongUse(what.clone()),
        Error::Bind { address, cause } if cause.kind() == io::ErrorKind::AddrInUse => {
            let port = address.port();
            Failure::Failed(format!(
                "cannot listen on {address}: port {port} is taken; stop the program that uses it, \
                 or name another with --http, --nfs, --echo, --relay or --ingest ADDR (port 0 \
                 picks a free one)"
            ))
        }
        Error::Bind { address, cause } if cause.kind() == io::ErrorKind::PermissionDenied => {
            Failure::Failed(format!(
                "cannot listen on {address}: {cause}; ports below 1024 need CAP_NET_BIND_SERVICE, \
                 any other can be named with --http, --nfs, --echo or --relay ADDR"
            ))
        }
        Error::Signals(cause) if cause.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            Failure::Failed(format!(
                "the process may open {descriptors} descriptors, and needs {DESCRIPTORS_MIN} at \
                 least (raise it with ulimit -n or LimitNOFILE=)"
            ))
        }
        Error::Uring(refusal) => Failure::Failed(format!(
            "--driver uring: {refusal}; or let --driver auto choose epoll"
        )),
        other => Failure::Failed(other.to_string()),
    }
}
