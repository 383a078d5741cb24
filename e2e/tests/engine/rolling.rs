//! Three servers behind HAProxy are restarted one after the other, and no client sees an error:
//! a server that drains says at `/readyz` that it is not ready, and serves until HAProxy knows.
//!
//! HAProxy runs as `dist/haproxy/haproxy.cfg` says, and repeats nothing: neither a connection nor a
//! request. Clients that keep a connection are told by `Connection: close` to open another.
//!
//! The promise holds where the delay of the drain is longer than HAProxy takes to notice. On a
//! machine that is busy with other tests it may be shorter: then what clients have seen says
//! nothing, and it all begins anew with a longer one.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::client::request_bytes;
use flatpath_testkit::deadline::{long_patience, patience};
use flatpath_testkit::reply::Asked;
use flatpath_testkit::{
    Client, Driver, Launch, Over, Server, Site, binary, each_driver, tools, until_true,
};

each_driver!(no_client_sees_that_servers_behind_a_balancer_are_restarted);

const SERVERS: usize = 3;
/// Delays of a drain, in seconds, tried until HAProxy notices each drain within it.
const DRAIN_DELAYS: [u64; 3] = [1, 5, 25];
/// Of each kind.
const CLIENTS: usize = 2;

/// An address that stays free while its server restarts: connections of this machine begin at
/// 127.0.0.1, and nothing else has this one.
pub(crate) fn own_address() -> SocketAddr {
    static TAKEN: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = TAKEN.fetch_add(1, Ordering::Relaxed);
    let port = child::free_address().expect("an address").port();
    SocketAddr::from((Ipv4Addr::new(127, high | 128, low, number), port))
}

/// Where one server listens, before and after its restart.
struct Addresses {
    http: SocketAddr,
    admin: SocketAddr,
}

impl Addresses {
    fn new() -> Self {
        let http = own_address();
        let admin = SocketAddr::new(http.ip(), http.port() ^ 1);
        Self { http, admin }
    }
}

/// HAProxy, and where it takes requests, connections and questions.
struct Balancer {
    _process: Child,
    requests: SocketAddr,
    connections: SocketAddr,
    socket: std::path::PathBuf,
}

/// The shipped configuration with these servers, and a second front that passes bytes on.
fn configuration(balancer: (SocketAddr, SocketAddr), servers: &[Addresses]) -> String {
    let shipped = include_str!("../../../dist/haproxy/haproxy.cfg");
    let is_replaced = |line: &&str| line.trim_start().starts_with("server ");
    let kept: Vec<&str> = shipped.lines().filter(|line| !is_replaced(line)).collect();
    let (requests, connections) = balancer;
    let mut lines = String::new();
    for (number, Addresses { http, admin }) in servers.iter().enumerate() {
        writeln!(lines, "    server s{number} {http} port {}", admin.port()).expect("it grows");
    }
    let text = kept
        .join("\n")
        .replace("127.0.0.1:8080", &requests.to_string());
    let text = text.replace("defaults\n", "defaults\n    retries 0\n");
    let (_, defaults) = text.split_once("default-server ").expect("how to check");
    let defaults = defaults.lines().next().expect("a line");
    format!(
        "global\n    stats socket unix@stats\n{text}\n{lines}\
         frontend bytes\n    mode tcp\n    bind {connections}\n    default_backend bytes\n\
         backend bytes\n    mode tcp\n    option httpchk GET /readyz\n    \
         default-server {defaults}\n{lines}"
    )
}

impl Balancer {
    fn start(haproxy: &std::path::Path, run: &Site, servers: &[Addresses]) -> Self {
        let (requests, connections) = (own_address(), own_address());
        run.write(
            "haproxy.cfg",
            configuration((requests, connections), servers),
        );
        let mut command = Command::new(haproxy);
        command
            .args(["-db", "-f", "haproxy.cfg"])
            .current_dir(run.path());
        let mut process = Child::start(&mut command).expect("it starts");
        for address in [requests, connections] {
            process.await_port(address.port()).expect("it listens");
        }
        Self {
            _process: process,
            requests,
            connections,
            socket: run.at("stats"),
        }
    }

    /// These columns of `show stat` for each server, once per front.
    fn figures<const N: usize>(&self, columns: [&str; N]) -> Vec<[String; N]> {
        let mut socket = UnixStream::connect(&self.socket).expect("it listens");
        socket
            .set_read_timeout(Some(patience()))
            .expect("a deadline");
        socket.write_all(b"show stat\n").expect("sent");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("figures");
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let names = lines.next().expect("a head");
        let place = |name: &str| names.iter().position(|other| *other == name);
        let places = columns.map(|name| place(name).expect("a column"));
        let servers = lines.filter(|row| row.get(1).is_some_and(|name| name.starts_with('s')));
        let figures: Vec<_> = servers
            .map(|row| places.map(|place| row[place].to_string()))
            .collect();
        assert_eq!(figures.len(), 2 * SERVERS, "{text}");
        figures
    }

    /// Waits until no new request or connection comes to a server.
    fn await_down(&self, number: usize) {
        until_true("HAProxy to send no more to a server", || {
            let fronts = self.figures(["status"]);
            let mut of_server = fronts.iter().skip(number).step_by(SERVERS);
            of_server.all(|[status]| status.starts_with("DOWN"))
        });
    }

    fn await_all_up(&self) {
        until_true("HAProxy to send requests to each server", || {
            self.figures(["status"])
                .iter()
                .all(|[status]| status == "UP")
        });
    }
}

fn serve((driver, delay): (Driver, Duration), site: &Site, addresses: &Addresses) -> Server {
    let (http, admin) = (addresses.http.to_string(), addresses.admin.to_string());
    let delay = format!("{}s", delay.as_secs());
    Launch::new(binary::flatpath().to_path_buf())
        .with(["serve", "--driver", driver.name(), "--http", &http])
        .with(["--admin", &admin, "--drain-delay", &delay])
        .directory(site.path())
        .start()
}

/// One client: a connection for each request, or one for as long as the server keeps it. A
/// connection without a request for most of the delay may be closed: that client asks again.
///
/// # Errors
/// What it has seen that no client should.
fn ask(
    address: SocketAddr,
    (is_kept, delay): (bool, Duration),
    is_over: &Over,
    asked: &AtomicUsize,
) -> Result<(), String> {
    let open = || {
        let since = Instant::now();
        (Client::connect(address).patient(long_patience()), since)
    };
    let mut kept: Option<(Client, Instant)> = None;
    while !is_over.is_set() {
        let (mut client, since) = kept.take().unwrap_or_else(open);
        let sent = client.try_send(request_bytes("GET", "/file", &[]));
        let reply = sent.map_err(|error| error.to_string());
        let reply = match reply.and_then(|()| client.try_reply(Asked::Any)) {
            Err(_) if since.elapsed() > delay / 2 => continue,
            reply => reply?,
        };
        if (reply.status, reply.text()) != (200, "contents") {
            return Err(format!("{reply:?}"));
        }
        asked.fetch_add(1, Ordering::Relaxed);
        if reply.says_close() {
            client.expect_closed();
        } else if is_kept {
            kept = Some((client, Instant::now()));
        }
    }
    Ok(())
}

/// What came of one run.
enum Run {
    /// HAProxy knew of each drain in time, and no client saw an error.
    Unnoticed,
    /// It did not, so clients may have.
    TooLate,
}

fn no_client_sees_that_servers_behind_a_balancer_are_restarted(driver: Driver) {
    let Some(haproxy) = tools::find("haproxy") else {
        return;
    };
    let goes_unnoticed = |seconds: u64| {
        let delay = Duration::from_secs(seconds);
        matches!(restart_each((driver, delay), &haproxy), Run::Unnoticed)
    };
    let in_time = DRAIN_DELAYS.into_iter().any(goes_unnoticed);
    assert!(in_time, "HAProxy never knew in time");
}

fn restart_each((driver, delay): (Driver, Duration), haproxy: &std::path::Path) -> Run {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let addresses = [(); SERVERS].map(|()| Addresses::new());
    let start = |addresses| serve((driver, delay), &site, addresses);
    let mut servers: Vec<Server> = addresses.iter().map(start).collect();
    let balancer = Balancer::start(haproxy, &run, &addresses);
    balancer.await_all_up();
    let is_over = Over::default();
    let asked: Vec<AtomicUsize> = (0..4 * CLIENTS).map(|_| AtomicUsize::new(0)).collect();
    let seen = std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let clients: Vec<_> = asked
            .iter()
            .enumerate()
            .map(|(number, asked)| {
                let address = [balancer.requests, balancer.connections][number % 2];
                let is_kept = number % 4 < 2;
                let is_over = &is_over;
                scope.spawn(move || ask(address, (is_kept, delay), is_over, asked))
            })
            .collect();
        let has_failed = || clients.iter().any(ScopedJoinHandle::is_finished);
        let mut restarts = servers.iter_mut().zip(&addresses).enumerate();
        let in_time = restarts.all(|(number, (server, addresses))| {
            let told = Instant::now();
            server.terminate();
            balancer.await_down(number);
            if told.elapsed() >= delay {
                return false;
            }
            assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
            *server = start(addresses);
            balancer.await_all_up();
            let before: Vec<_> = asked.iter().map(|it| it.load(Ordering::Relaxed)).collect();
            let goes_on = |(asked, before): (&AtomicUsize, &usize)| {
                asked.load(Ordering::Relaxed) > before + 10
            };
            until_true("each client to be answered", || {
                has_failed() || asked.iter().zip(&before).all(goes_on)
            });
            true
        });
        is_over.set();
        let seen: Vec<_> = clients.into_iter().map(ScopedJoinHandle::join).collect();
        let seen = seen.into_iter().map(|it| it.expect("no panic"));
        in_time.then(|| seen.collect::<Result<(), String>>())
    });
    match seen {
        None => return Run::TooLate,
        Some(seen) => seen.expect("no client sees an error"),
    }
    for figures in balancer.figures(["econ", "eresp", "wretr", "wredis"]) {
        assert_eq!(
            figures,
            ["0"; 4].map(String::from),
            "errors and repetitions"
        );
    }
    Run::Unnoticed
}
