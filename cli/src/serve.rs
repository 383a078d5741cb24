//! `flatpath serve`: a directory over HTTP and NFS, echo, a relay and ingest, until a signal.
//!
//! Standard output carries one line per listener, `listening http 127.0.0.1:8080`, with ` writable`
//! where clients may change files, and then `ready`; nothing else ever. With TLS it is `https`, and
//! other protocols have ` tls` behind their address, or ` tls-offered` where clients may do without
//! (`--nfs-tls`). What answers datagrams has `-udp` behind its name. Logs go to standard error.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use flatpath::limits::DESCRIPTORS_MIN;
use flatpath::sockets::PassedSockets;
use flatpath::{
    DriverChoice, Error, Handle, Limits, OperationMode, Running, Server, SignalWatch, Stopping,
};
use flatpath_admin::Admin;
use flatpath_ingest::Ingest;
use flatpath_relay::Relay;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::access;
use crate::access_log::AccessLogs;
use crate::admin::AdminServer;
use crate::bounded_file;
use crate::config::Configuration;
use crate::control_group;
use crate::effect;
use crate::environment;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::listeners;
use crate::logging;
use crate::memory::{Demands, OccasionalNeeds, Parts};
use crate::nfs::Rpcbind;
use crate::owners;
use crate::passwords::PasswordChecks;
use crate::portmapper;
use crate::reach::Reach;
use crate::relay::Reporter;
use crate::reload::{DrainTimes, Reload};
use crate::report;
use crate::restart::{self, Restart};
use crate::roots::Roots;
use crate::service_manager::{Pulse, ServiceManager};
use crate::services::Services;
use crate::settings::{Accept, Compress, Driver, ListenerProtocol, Settings, is_on};
use crate::slow::SlowWatch;
use crate::tls::Renewal;
use crate::watchdog::Watchdog;

const UNITS: &str =
    "ADDR: HOST:PORT; PORT is 127.0.0.1:PORT, :PORT every IPv4 address, [::]:PORT every IPv6
address; unix:PATH is a socket of that name, fd:NAME one from a service manager.
SIZE: bytes, or a number with K, M, G or T for powers of 1024: 256M.
TIME: seconds, or a time with units: 0.5, 500ms, 5m, 1h 30m.
BOOL: true or false; true if left out.
An option may also come from the environment, as FLATPATH_ and its name in capitals:
FLATPATH_MAX_CONNECTIONS=1000. The command line replaces it, and it replaces the file.";

const CONFIG: &str = "Read settings from this TOML file: the same names, without the leading \
    dashes, and tables `[[listener]]`, `[[site]]` and `[[export]]`. The command line replaces what \
    the file sets";

/// The command line of `serve`.
pub(crate) fn command() -> Command {
    let config = Arg::new("config").long("config").value_name("FILE");
    let command = Command::new("serve").about(
        "Serve a directory over HTTP or NFS, echo, relay, or hand messages to other processes",
    );
    Settings::added_to(command)
        .arg(config.value_parser(value_parser!(PathBuf)).help(CONFIG))
        .after_help(UNITS)
}

/// Runs the server until it has drained.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Failure> {
    before_threads();
    let passed = restart::passed_sockets()?;
    let manager = ServiceManager::from_environment();
    let silence = bounded_file::Watch::begin().map_err(no_thread)?;
    let (settings, file, listeners) = asked_for(arguments)?;
    let parts = divided(&settings, &listeners)?;
    let restart = Restart::begin(&settings, &passed)?;
    let access_logs = AccessLogs::of(&settings)?;
    let mut services = Services::with(&passed, &file, &listeners, (&parts, &access_logs))?;
    let add = |server, it: &Listener| it.add_to(server, &parts, &mut services);
    let server = listeners.iter().try_fold(server(&settings, &parts), add)?;
    let watchdog = Watchdog::start().map_err(no_thread)?;
    let admin = Admin::new();
    let watch = signals(&admin)?;
    let drain_times = DrainTimes::new(&settings.limits());
    let admin_server = start_admin(&admin, &settings, &passed)?;
    let server = access_logs.add_to(server).passed_sockets(&passed);
    let running = start(server, &listeners)?;
    refuse_strangers(&passed)?;
    tell_ports(&running, &services);
    access_logs.shown_by(&admin);
    let roots = attach(&admin, &running, &settings, &listeners, &mut services);
    let slow = SlowWatch::start(running.handle(), settings.slow).map_err(no_thread)?;
    let mut rpcbind = Rpcbind::begin(&running, &services, restart.takes_over())?;
    let reporters = reporters(&services, &running);
    let renewal = Renewal::begin(&services.certificates, reload_period(&settings));
    let pulse = Pulse::begin(&manager, running.handle()).map_err(no_thread)?;
    silence.serving();
    // Before the server before this one can end: it would be the manager's main process.
    manager.ready("Serving");
    let relieved = watchdog.on_stopping(drain_times.timeout());
    let handed_over = on_handover(&services, &rpcbind, relieved);
    let servers = handles(&running, admin_server.as_ref());
    let handover = restart.finish(&passed, servers, handed_over)?;
    // The server before this one has ended its part: this one stays.
    rpcbind.taken_over();
    announce(&running, &services, admin_server.as_ref());
    access_logs.begin();
    let withdraw = begin_orders(&listeners, &services, &rpcbind);
    let mut end_in_time = watchdog.on_stopping(drain_times.whole());
    let reload = Reload {
        path: arguments.get_one("config").cloned(),
        matches: arguments.clone(),
        started: file,
        listeners,
        server: running.handle(),
        drain_times,
        slow,
        admin,
        certificates: services.certificates.clone(),
        exports: std::mem::take(&mut services.exports),
        accesses: services.accesses.clone(),
        live: std::mem::take(&mut services.live),
        roots,
        parts,
        manager: manager.clone(),
    };
    let watch = watch.reloading(reload.on_signal(access_logs.reopener()));
    let outcome = watch.run_with(running, move |stopping| {
        end_in_time(stopping);
        manager.stopping();
        withdraw();
    });
    drop((handover, reporters, renewal, rpcbind));
    drop((services, pulse, silence));
    // The last one, so that it shows the end of the others.
    drop(admin_server);
    access_logs.end();
    outcome.map_err(|error| explain(&error))?;
    log::info!("stopped");
    Ok(())
}

/// What every thread inherits from the first. Without CAP_SYS_RESOURCE: with it ext4 enforces no
/// quota, neither of this process nor of the users it acts for, and nothing here needs it.
fn before_threads() {
    flatpath::memory::bound_arenas(ARENAS_MAX);
    let dropped = capabilities(None).and_then(|mut sets| {
        let has_it = sets.effective.contains(CapabilitySet::SYS_RESOURCE);
        sets.effective.remove(CapabilitySet::SYS_RESOURCE);
        // A sandbox may refuse the call to one that has none.
        if has_it {
            set_capabilities(None, sets)
        } else {
            Ok(())
        }
    });
    if let Err(cause) = dropped {
        log::warn!("file systems may not hold this server to quotas: {cause}");
    }
}

/// The settings, their file and the listeners, with a warning for each thing that is odd.
fn asked_for(arguments: &ArgMatches) -> Result<(Settings, Configuration, Vec<Listener>), Failure> {
    let (settings, file) = configured(arguments)?;
    let listeners = listeners::named_in(&settings, &file)?;
    warn(arguments, &listeners, &file);
    Ok((settings, file, listeners))
}

/// The settings of the command line over those of the file, and the file.
fn configured(arguments: &ArgMatches) -> Result<(Settings, Configuration), Failure> {
    let file = match arguments.get_one::<PathBuf>("config") {
        Some(path) => Configuration::from_file(path)?,
        None => Configuration::default(),
    };
    let settings = file.settings.clone().replaced_by(arguments);
    logging::set_levels(settings.log.as_deref());
    Ok((settings, file))
}

/// The parts of the memory, which the log shows.
fn divided(settings: &Settings, listeners: &[Listener]) -> Result<Parts, Failure> {
    let demands = demands(settings, listeners);
    let limit = control_group::memory_bytes();
    let warning = limit.and_then(|limit| control_group::warning(demands.bytes, limit));
    let parts = demands.divide()?;
    parts.log();
    if let Some(why) = warning {
        log::warn!("{why}");
    }
    Ok(parts)
}

/// Says what is allowed, and hardly meant.
fn warn(arguments: &ArgMatches, listeners: &[Listener], file: &Configuration) {
    effect::warn_of_flags(arguments, listeners);
    effect::warn(listeners, file);
    for line in owners::exposed(listeners, file) {
        log::warn!("{line}");
    }
    environment::warn_of_misspelt(&command());
}

/// Signals, from now on; SIGUSR1 asks for a report.
fn signals(admin: &Admin) -> Result<SignalWatch, Failure> {
    let report = report::start(admin.clone()).map_err(no_thread)?;
    let watch = SignalWatch::begin().and_then(|watch| watch.reporting(report));
    watch.map_err(|error| explain(&error))
}

/// Shows the server from now on. The directories that are reasons not to be ready.
fn attach(
    admin: &Admin,
    running: &Running,
    settings: &Settings,
    listeners: &[Listener],
    services: &mut Services,
) -> Roots {
    admin.source(std::mem::take(&mut services.counting).source(running));
    admin.slow(settings.slow);
    let roots = Roots::default();
    roots.set(listeners);
    admin.ready_unless(roots.missing(&services.exports));
    admin.remarks(|| {
        let silent = bounded_file::silent().into_iter();
        silent
            .map(|what| format!("{what} does not answer: reloads wait"))
            .collect()
    });
    admin.attach(running.handle());
    roots
}

/// All servers of this process.
fn handles(running: &Running, admin: Option<&AdminServer>) -> Vec<Handle> {
    let admin = admin.map(AdminServer::handle);
    [running.handle()].into_iter().chain(admin).collect()
}

fn start_admin(
    admin: &Admin,
    settings: &Settings,
    passed: &PassedSockets,
) -> Result<Option<AdminServer>, Failure> {
    let at = settings.admin.clone();
    let admin = at.map(|at| AdminServer::start(admin, at, &settings.hosts, passed));
    admin.transpose().map_err(|error| explain(&error))
}

fn reporters(services: &Services, running: &Running) -> Vec<Reporter> {
    let relays = services.relays.iter().map(Relay::statistics);
    let reporters = relays.map(|statistics| Reporter::start(running.handle(), statistics));
    reporters.collect()
}

/// The steps when another process accepts in place of this one, before the drain.
fn on_handover(
    services: &Services,
    rpcbind: &Rpcbind,
    mut relieved: impl FnMut(Stopping) + Send + 'static,
) -> impl FnOnce() + Send + 'static {
    let (ingests, is_rpcbinds) = (services.ingests.clone(), rpcbind.handed_over());
    let certificates = services.certificates.clone();
    move || {
        certificates.hand_over();
        // ORDER: Relaxed: see `Rpcbind::register`.
        is_rpcbinds.store(true, Ordering::Relaxed);
        ingests.iter().for_each(Ingest::hand_over);
        relieved(Stopping::Draining);
    }
}

/// Orders certificates, now that the listeners answer. Returns the step when this process accepts
/// no more.
fn begin_orders(
    listeners: &[Listener],
    services: &Services,
    rpcbind: &Rpcbind,
) -> impl Fn() + Send + 'static {
    let (certificates, withdraw) = (services.certificates.clone(), rpcbind.withdrawal());
    certificates.order(Reach::of(listeners));
    move || {
        certificates.hand_over();
        withdraw();
    }
}

/// A socket that the service manager has passed, and that no listener is named for, is a mistake in
/// one of the two configurations: its clients would never be accepted.
fn refuse_strangers(passed: &PassedSockets) -> Result<(), Failure> {
    match passed.left().as_slice() {
        [] => Ok(()),
        left => Err(Failure::WrongUse(format!(
            "passed to this process, and named by no listener: {}; name each as --http, --echo or \
             --relay fd:NAME, or by its address",
            left.join(", ")
        ))),
    }
}

/// A server with these settings, without listeners, not started.
fn server(settings: &Settings, parts: &Parts) -> Server {
    let mut server = Server::new()
        .limits(limits(settings, parts))
        .driver_config(parts.driver.clone());
    if let Some(threads) = settings.network_threads {
        server = server.network_threads(threads);
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
    server.accept(match settings.accept {
        None | Some(Accept::Multishot) => OperationMode::Multishot,
        Some(Accept::Single) => OperationMode::Single,
    })
}

/// The default of `--tls-reload-seconds`.
const TLS_RELOAD_SECONDS: u64 = 60;

/// Heaps of the allocator for all threads: what they hand each other is pooled, so few are enough.
const ARENAS_MAX: u16 = 2;

/// The parts that `--memory` is divided among.
pub(crate) fn demands(settings: &Settings, listeners: &[Listener]) -> Demands {
    let count = |is_counted: fn(&Listener) -> bool| {
        let counted = listeners.iter().filter(|listener| is_counted(listener));
        counted.map(|listener| listener.addresses.len()).sum()
    };
    // Each has caches of its own, at each address.
    let directories = |is_counted: fn(&Settings) -> bool| {
        let over_http = listeners.iter().filter(|it| it.serves_over_http());
        let counted = over_http.map(|it| {
            let counted = it.directories().filter(|site| is_counted(&site.settings));
            it.addresses.len() * counted.count()
        });
        counted.sum()
    };
    let (rates, password_files) = access::tables(listeners);
    let default = Limits::default();
    let workers = settings.workers.as_ref();
    Demands {
        bytes: settings.memory.unwrap_or(default.buffer_bytes_max),
        network_threads: settings.network_threads.unwrap_or_default().count(),
        workers: workers.map_or(Server::WORKERS_MAX, |workers| *workers.end()),
        http: directories(|_| true),
        occasional: OccasionalNeeds {
            compresses: directories(|it| it.compress.iter().any(|it| *it != Compress::Off)) > 0,
            archives: directories(|it| !it.archive.is_empty()) > 0,
            check_bytes: access::check_bytes(listeners),
            checks_max: PasswordChecks::usual(),
        },
        writable: count(|it| it.serves_over_http() && it.is_writable()),
        nfs: count(|it| it.protocol == ListenerProtocol::Nfs),
        rates,
        password_files,
        portmappers: listeners.iter().map(|it| it.portmappers().len()).sum(),
        secured: listeners.iter().any(|it| it.tls.is_some()),
        connections: settings.max_connections,
        descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

fn limits(settings: &Settings, parts: &Parts) -> Limits {
    Limits {
        buffer_bytes_max: parts.buffers,
        connections_max: parts.connections_wished,
        in_flight_max: parts.in_flight_max,
        ..settings.limits()
    }
}

/// How often certificates are looked at, unless never.
fn reload_period(settings: &Settings) -> Option<Duration> {
    match settings.tls_reload_seconds {
        Some(0) => None,
        seconds => Some(Duration::from_secs(seconds.unwrap_or(TLS_RELOAD_SECONDS))),
    }
}

/// Starts it, with a failure in the words of what listens where that failed.
fn start(server: Server, listeners: &[Listener]) -> Result<Running, Failure> {
    let started = server.start();
    started.map_err(|error| portmapper::explain(&error, listeners, explain(&error)))
}

/// Tells those that name the ports of others, now that they are known.
fn tell_ports(running: &Running, services: &Services) {
    set_redirect(running, services);
    portmapper::announce(running, services);
}

/// Tells those that redirect where to.
fn set_redirect(running: &Running, services: &Services) {
    let to = services
        .redirect
        .and_then(|number| running.listeners().get(number));
    if let Some(address) = to.and_then(|bound| bound.address.internet()) {
        services.redirected.set_port(address.port());
    }
}

/// Announces the listeners. The program that reads them may have closed the pipe,
/// which is no reason not to serve.
fn announce(running: &Running, services: &Services, admin: Option<&AdminServer>) {
    let mut lines = String::new();
    for (number, bound) in running.listeners().iter().enumerate() {
        let (name, tls) = match (services.secured.contains(&number), bound.name) {
            (true, "http") => ("https", ""),
            (true, name) if services.offers_tls.contains(&number) => (name, " tls-offered"),
            (true, name) => (name, " tls"),
            (false, name) => (name, ""),
        };
        let rights = match services.writable.contains(&number) {
            true => " writable",
            false => "",
        };
        lines += &format!("listening {name} {}{tls}{rights}\n", bound.address);
    }
    lines += &portmapper::lines(running.datagram_listeners());
    for address in admin.into_iter().flat_map(AdminServer::addresses) {
        lines += &format!("listening admin {address}\n");
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

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn no_thread(cause: io::Error) -> Failure {
    Failure::Failed(format!("cannot start a thread: {cause}"))
}

/// An error of the engine in the words of the command line.
fn explain(error: &Error) -> Failure {
    match error {
        Error::Limits(what) => Failure::WrongUse(what.clone()),
        Error::Bind { address, cause } if cause.kind() == io::ErrorKind::AddrInUse => {
            let what = match address.internet() {
                Some(address) => format!("port {} is taken", address.port()),
                None => "another process listens there, or the file is no socket".into(),
            };
            Failure::Failed(format!(
                "cannot listen on {address}: {what}; stop the program that uses it, or name \
                 another with --http, --nfs, --echo, --relay, --ingest or --admin ADDR (port 0 \
                 picks a free one)"
            ))
        }
        Error::NotPassed { name, instead } => {
            let cure = instead.clone().unwrap_or_else(|| {
                format!(
                    "name the socket so in the service manager (FileDescriptorName={name} in \
                     systemd's socket unit)"
                )
            });
            Failure::WrongUse(format!(
                "fd:{name}: no socket of this name was passed to this process; {cure}"
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
