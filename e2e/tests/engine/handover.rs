//! A server relieves another one under load, and no client notices.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use flatpath_testkit::client::request_bytes;
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::handovers;
use flatpath_testkit::reply::Asked;
use flatpath_testkit::skipped::not_run;
use flatpath_testkit::{
    Client, Driver, Launch, Over, Reply, Site, binary, each_driver, until_true,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use rustix::process::Signal;

each_driver!(
    servers_relieve_each_other_and_no_client_notices,
    what_a_dying_server_has_handed_over_is_served,
    listeners_may_change,
    listeners_at_any_free_port_are_told_apart,
    pairs_of_the_relay_stay_and_one_that_waits_is_told,
    a_new_server_with_more_threads_that_fails_loses_no_connection,
    a_process_that_hangs_keeps_no_other_from_taking_over,
    a_path_that_others_may_replace_is_refused,
    sockets_pass_to_and_from_no_other_user,
    files_of_unix_sockets_are_removed_by_whoever_is_last,
    a_file_that_another_process_has_put_at_a_path_is_never_removed,
    a_server_that_is_killed_leaves_the_path_to_the_next,
);

/// Far longer than a client of these tests may be asleep: what is asked on a kept connection by
/// then is answered.
const IDLE: &str = "60";

const LARGE_BYTES: usize = 4 << 20;

pub(crate) fn launch(driver: Driver, site: &Site, path: &Path) -> Launch {
    let flags = ["--drain-idle-timeout", IDLE, "--handover"];
    Launch::serve(driver)
        .with(flags)
        .with([path])
        .directory(site.path())
}

/// Comes again where a reply has said that it was the last of its connection.
fn go_on(client: &mut Client, reply: &Reply, connect: impl Fn() -> Client) {
    if reply.says_close() {
        client.expect_closed();
        *client = connect();
    }
}

/// Asks on kept connections: each is told with a reply when it is the last.
fn ask_on_kept(address: std::net::SocketAddr, is_over: &Over, asked: &AtomicUsize) {
    const KEPT: usize = 100;
    let connect = || Client::connect(address).patient(long_patience());
    let mut clients: Vec<Client> = (0..KEPT).map(|_| connect()).collect();
    while !is_over.is_set() {
        for client in &mut clients {
            let reply = client.get("/file");
            assert_eq!(reply.text(), "contents");
            asked.fetch_add(1, Ordering::Relaxed);
            go_on(client, &reply, connect);
        }
    }
}

fn ask_anew(address: std::net::SocketAddr, is_over: &Over, asked: &AtomicUsize) {
    while !is_over.is_set() {
        let mut client = Client::connect(address).patient(long_patience());
        let reply = client.ask("/file", &[("Connection", "close")]);
        assert_eq!(reply.text(), "contents");
        asked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Downloads that a handover comes into the middle of, on connections that are kept.
fn download_on_kept(address: std::net::SocketAddr, is_over: &Over, asked: &AtomicUsize) {
    // So narrow that a download takes a while.
    let connect = || Client::connect_with_window(address, 4_096).patient(long_patience());
    let mut client = connect();
    while !is_over.is_set() {
        let reply = client.get("/large");
        assert_eq!((reply.status, reply.body.len()), (200, LARGE_BYTES));
        asked.fetch_add(1, Ordering::Relaxed);
        go_on(&mut client, &reply, connect);
    }
}

/// Uploads, as well.
fn upload_on_kept(address: std::net::SocketAddr, is_over: &Over, asked: &AtomicUsize) {
    const PIECE: &[u8] = &[b'u'; 20_000];
    const PIECES: usize = 10;
    let connect = || Client::connect(address).patient(long_patience());
    let mut client = connect();
    let length = (PIECES * PIECE.len()).to_string();
    while !is_over.is_set() {
        client.request("PUT", "/uploaded", &[("Content-Length", &length)]);
        for _ in 0..PIECES {
            client.send(PIECE);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let reply = client.reply();
        assert!([201, 204].contains(&reply.status), "{}", reply.status);
        asked.fetch_add(1, Ordering::Relaxed);
        go_on(&mut client, &reply, connect);
    }
}

/// Uploads in parts, which continue where the last part ended, whoever serves.
fn upload_in_parts(address: std::net::SocketAddr, is_over: &Over, asked: &AtomicUsize) {
    const PART: &[u8] = &[b'p'; 5_000];
    const PARTS: usize = 8;
    let connect = || Client::connect(address).patient(long_patience());
    let mut client = connect();
    let mut ask = |method: &str, target: &str, more: &[(&str, &str)], body: &[u8]| {
        let length = body.len().to_string();
        let fixed = [("Tus-Resumable", "1.0.0"), ("Content-Length", &length)];
        client.request(method, target, &[&fixed, more].concat());
        client.send(body);
        let reply = client.reply();
        go_on(&mut client, &reply, connect);
        reply
    };
    let whole = (PARTS * PART.len()).to_string();
    while !is_over.is_set() {
        // The name is "parts".
        let named = [
            ("Upload-Length", &*whole),
            ("Upload-Metadata", "filename cGFydHM="),
        ];
        let created = ask("POST", "/", &named, b"");
        assert_eq!(created.status, 201);
        let upload = created.field("location").expect("a place").to_owned();
        for part in 0..PARTS {
            let offset = (part * PART.len()).to_string();
            let fields = [
                ("Content-Type", "application/offset+octet-stream"),
                ("Upload-Offset", &offset),
            ];
            assert_eq!(ask("PATCH", &upload, &fields, PART).status, 204);
        }
        let stored = ask("GET", "/parts", &[], b"");
        assert_eq!((stored.status, stored.body), (200, PART.repeat(PARTS)));
        asked.fetch_add(1, Ordering::Relaxed);
    }
}

/// With one network thread, then two, then what suits the machine.
fn servers_relieve_each_other_and_no_client_notices(driver: Driver) {
    let servers = handovers();
    let site = Site::new().with("file", "contents");
    site.write("large", "x".repeat(LARGE_BYTES));
    let run = Site::new();
    let start = |number: usize| {
        let threads = ["1", "2", "auto"][number % 3];
        let launch = launch(driver, &site, &run.at("next")).with(["--writable"]);
        launch.with(["--network-threads", threads]).start()
    };
    let mut current = start(0);
    let address = current.address("http");
    let is_over = Over::default();
    let [anew, kept, down, up, parts] = [const { AtomicUsize::new(0) }; 5];
    let counts = || [&anew, &kept, &down, &up, &parts].map(|count| count.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(scope.spawn(|| ask_anew(address, &is_over, &anew)));
        }
        for _ in 0..2 {
            clients.push(scope.spawn(|| ask_on_kept(address, &is_over, &kept)));
        }
        clients.push(scope.spawn(|| download_on_kept(address, &is_over, &down)));
        clients.push(scope.spawn(|| upload_on_kept(address, &is_over, &up)));
        clients.push(scope.spawn(|| upload_in_parts(address, &is_over, &parts)));
        let fails = || clients.iter().any(ScopedJoinHandle::is_finished);
        for number in 1..=servers {
            let before = counts();
            let next = start(number);
            assert_eq!(next.address("http"), address);
            std::mem::replace(&mut current, next).ended_well();
            until_true("clients to be served by the next", || {
                let mut served = counts().into_iter().zip(before).zip([10, 10, 1, 1, 1]);
                fails() || served.all(|((now, before), enough)| now > before + enough)
            });
        }
        is_over.set();
        for client in clients {
            client.join().expect("no request was lost");
        }
    });
    println!(
        "{servers} handovers; anew, kept, downloads, uploads, in parts: {:?}",
        counts()
    );
    current.terminate();
    current.ended_well();
    assert!(!run.at("next").exists());
}

/// One that the servers that are started meanwhile do not inherit.
fn packet_socket() -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// As a new server does, up to a point. What it reads has a deadline.
pub(crate) fn begin_as_new(path: &Path) -> OwnedFd {
    let socket = packet_socket();
    let socket = socket.expect("a socket");
    let patience = sockopt::Timeout::Recv;
    sockopt::set_socket_timeout(&socket, patience, Some(long_patience())).expect("a deadline");
    let address = SocketAddrUnix::new(path).expect("short");
    rustix::net::connect(&socket, &address).expect("a server waits there");
    socket
}

/// A server that is killed in the middle of handing over: one socket has gone across, with a
/// connection in it.
fn what_a_dying_server_has_handed_over_is_served(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let waiting = packet_socket();
    let waiting = waiting.expect("a socket");
    let at = SocketAddrUnix::new(&path).expect("short");
    rustix::net::bind(&waiting, &at).expect("free");
    rustix::net::listen(&waiting, 1).expect("it listens");
    let mut client = Client::connect(address).patient(long_patience());
    client.send(request_bytes("GET", "/file", &[]));
    let old = std::thread::spawn(move || {
        let peer = rustix::net::accept_with(&waiting, SocketFlags::CLOEXEC).expect("a new server");
        let line = format!("socket 0 flatpath http {address}");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets = [listener.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        let bytes = [std::io::IoSlice::new(line.as_bytes())];
        rustix::net::sendmsg(&peer, &bytes, &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
    });
    let at = address.to_string();
    let launch = Launch::new(binary::flatpath().to_path_buf())
        .with([
            "serve",
            "--driver",
            driver.name(),
            "--http",
            &at,
            "--handover",
        ])
        .with([&path])
        .directory(site.path());
    let mut server = launch.start();
    old.join().expect("it has handed over");
    let reply = client.try_reply(Asked::Any).expect("an answer");
    assert_eq!(reply.text(), "contents");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn listeners_may_change(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let at_path = format!("unix:{}", run.at("http").display());
    let first = launch(driver, &site, &path)
        .with(["--http", &at_path])
        .echo()
        .start();
    let (address, echo) = (first.address("http"), first.address("echo"));
    let next = launch(driver, &site, &path).with(["--http", &at_path, "--relay", "127.0.0.1:0"]);
    let mut next = next.start();
    first.ended_well();
    assert_eq!(next.address("http"), address);
    assert_eq!(next.client().get("/file").text(), "contents");
    next.await_log("no longer served: echo");
    assert!(std::net::TcpStream::connect(echo).is_err());
    assert!(std::net::TcpStream::connect(next.address("relay")).is_ok());
    assert!(std::os::unix::net::UnixStream::connect(run.at("http")).is_ok());
    next.terminate();
    assert_eq!(next.exit_status().code(), Some(0), "{}", next.log());
    assert!(
        !run.at("http").exists() && !path.exists(),
        "the last one tidies up"
    );
}

/// Both speak HTTP and were told the same; so were two of one server, in their order.
fn listeners_at_any_free_port_are_told_apart(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let start = || {
        let launch = launch(driver, &site, &path).with(["--admin", "127.0.0.1:0"]);
        launch.echo().start()
    };
    let first = start();
    let names = ["http", "admin", "echo"];
    let addresses = names.map(|name| first.address(name));
    let next = start();
    assert_eq!(names.map(|name| next.address(name)), addresses);
    first.ended_well();
    assert_eq!(next.client().get("/file").text(), "contents");
    let mut admin = Client::connect(addresses[1]);
    assert_eq!(admin.get("/readyz").status, 200);
}

/// A pair lives on in the old server until it ends; who waits there for a partner is disconnected,
/// because the partner would meet the new one.
fn pairs_of_the_relay_stay_and_one_that_waits_is_told(driver: Driver) {
    let site = Site::new();
    let run = Site::new();
    let path = run.at("next");
    let start = || {
        let launch = launch(driver, &site, &path).with(["--relay", "127.0.0.1:0"]);
        launch.start()
    };
    let first = start();
    let relay = first.address("relay");
    let ask = |token: char, side: u8| {
        let mut client = Client::connect(relay).patient(long_patience());
        let token = String::from(token).repeat(64);
        client.send(format!("please relay {token} for side {side:016}\n").as_bytes());
        client
    };
    let (mut one, mut other) = (ask('a', 1), ask('a', 2));
    assert_eq!(one.exactly(3), b"ok\n");
    assert_eq!(other.exactly(3), b"ok\n");
    let mut waiting = ask('b', 1);
    // It is known to wait: a pair that came later is connected.
    let (mut later, mut partner) = (ask('c', 1), ask('c', 2));
    assert_eq!(later.exactly(3), b"ok\n");
    assert_eq!(partner.exactly(3), b"ok\n");
    let next = start();
    assert_eq!(next.address("relay"), relay);
    waiting.expect_closed();
    for words in [b"hello", b"again"] {
        one.send(words);
        assert_eq!(other.exactly(5), words);
        other.send(words);
        assert_eq!(one.exactly(5), words);
    }
    // It comes again, and meets its partner in the new one.
    let (mut waiting, mut partner_of_it) = (ask('b', 1), ask('b', 2));
    assert_eq!(waiting.exactly(3), b"ok\n");
    assert_eq!(partner_of_it.exactly(3), b"ok\n");
    drop((one, later));
    other.expect_closed();
    partner.expect_closed();
    drop((other, partner));
    first.ended_well();
}

/// It has bound another socket of the address for its second thread, and fails after that.
fn a_new_server_with_more_threads_that_fails_loses_no_connection(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let server = launch(driver, &site, &path).start();
    let address = server.address("http");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = taken.local_addr().expect("bound").to_string();
    let (is_over, asked) = (Over::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let clients = [(); 2].map(|()| scope.spawn(|| ask_anew(address, &is_over, &asked)));
        let threads = ["--network-threads", "3", "--echo", &at];
        let failed = launch(driver, &site, &path).with(threads).try_start();
        assert!(failed.is_err(), "the address is taken");
        is_over.set();
        for client in clients {
            client.join().expect("no request was lost");
        }
    });
    assert!(asked.into_inner() > 0);
    let next = launch(driver, &site, &path).with(["--network-threads", "3"]);
    let next = next.start();
    server.ended_well();
    for _ in 0..20 {
        let mut client = Client::connect(address).patient(long_patience());
        assert_eq!(client.get("/file").text(), "contents");
    }
    drop(next);
}

/// Processes that connect and are silent, or hang with the sockets: the next one takes over.
fn a_process_that_hangs_keeps_no_other_from_taking_over(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let old = launch(driver, &site, &path).start();
    let silent: Vec<OwnedFd> = (0..20).map(|_| begin_as_new(&path)).collect();
    let hung = begin_as_new(&path);
    rustix::net::send(&hung, b"flatpath-handover 1", SendFlags::NOSIGNAL).expect("sent");
    old.await_log("another process takes over");
    let next = launch(driver, &site, &path).start();
    old.ended_well();
    assert_eq!(next.client().get("/file").text(), "contents");
    drop((silent, hung));
}

/// Who may write to the directory of the path decides what is there: it is refused by name.
fn a_path_that_others_may_replace_is_refused(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(run.path(), all).expect("changed");
    let refused = launch(driver, &site, &run.at("next")).try_start();
    let log = refused.err().expect("others may write there").log;
    let name = run.path().display().to_string();
    assert!(log.contains(&name) && log.contains("mode 0777"), "{log}");
}

/// As two users: neither side takes the other for its own, whichever of them is root's.
fn sockets_pass_to_and_from_no_other_user(driver: Driver) {
    const OTHER: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return not_run("it takes root to be two users");
    }
    let site = Site::new().with("file", "contents");
    let for_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path(), for_all.clone()).expect("changed");
    // Where the other user can run it.
    let program = site.at("flatpath");
    binary::copy_to(&program);
    let user = OTHER.to_string();
    let as_other = |path: &Path| {
        let by = ["--reuid", &user, "--regid", &user, "--clear-groups"];
        Launch::new(program.clone())
            .started_by("setpriv".into(), by)
            .with(["serve", "--http", "127.0.0.1:0", "--driver", driver.name()])
            .with([OsStr::new("--handover"), path.as_os_str()])
            .directory(site.path())
    };
    // Root's server, whose socket all may connect to.
    let run = Site::new();
    std::fs::set_permissions(run.path(), for_all).expect("changed");
    let path = run.at("next");
    let old = launch(driver, &site, &path).start();
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&path, open).expect("changed");
    let refused = as_other(&path).try_start().err().expect("refused");
    let words = format!("user {OTHER} is on the other side");
    assert!(refused.log.contains(&words), "{}", refused.log);
    old.await_log(&words);
    assert_eq!(old.client().get("/file").text(), "contents");
    // Another user's server, which waits for root's.
    let run = Site::new();
    std::os::unix::fs::chown(run.path(), Some(OTHER), Some(OTHER)).expect("changed");
    let path = run.at("next");
    let stranger = as_other(&path).start();
    let refused = launch(driver, &site, &path).try_start();
    let refused = refused.err().expect("refused").log;
    assert!(
        refused.contains(&format!("it belongs to user {OTHER}")),
        "{refused}"
    );
    drop((old, stranger));
}

/// A new server that fails to start removes nothing of the old one's, and one that no longer
/// listens at a path leaves no file there.
fn files_of_unix_sockets_are_removed_by_whoever_is_last(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let at_path = format!("unix:{}", run.at("http").display());
    let start = || launch(driver, &site, &path).with(["--http", &at_path]);
    let connects = || std::os::unix::net::UnixStream::connect(run.at("http")).is_ok();
    let first = start().start();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = taken.local_addr().expect("bound").to_string();
    let failed = start().with(["--echo", &at]).try_start();
    let failed = failed.err().expect("the address is taken");
    assert!(failed.log.contains(&at), "{}", failed.log);
    assert!(connects(), "the first one serves there");
    let next = start().start();
    first.ended_well();
    assert!(connects(), "the next one serves there");
    let last = launch(driver, &site, &path).start();
    next.ended_well();
    last.await_log("no longer served: http unix:");
    assert!(!run.at("http").exists());
    assert_eq!(last.client().get("/file").text(), "contents");
}

/// Another process has put its own socket in the place of the server's before the hand-over.
fn a_file_that_another_process_has_put_at_a_path_is_never_removed(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let at = run.at("http");
    let start = || {
        let launch = launch(driver, &site, &path);
        launch.with(["--http", &format!("unix:{}", at.display())])
    };
    let first = start().start();
    std::fs::rename(&at, run.at("moved")).expect("renamed");
    let _others = std::os::unix::net::UnixListener::bind(&at).expect("free");
    let next = start().start();
    first.ended_well();
    assert!(at.exists(), "it is not the first one's");
    next.await_log("another process has put its own file there");
    let last = launch(driver, &site, &path).start();
    next.ended_well();
    last.await_log("no longer served: http unix:");
    assert!(at.exists(), "it is nobody's of these");
    last.end();
    assert!(at.exists());
}

fn a_server_that_is_killed_leaves_the_path_to_the_next(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let mut killed = launch(driver, &site, &path).start();
    killed.process().signal(Signal::KILL);
    killed.exit_status();
    let server = launch(driver, &site, &path).start();
    assert_eq!(server.client().get("/file").text(), "contents");
    let next = launch(driver, &site, &path).start();
    server.ended_well();
    assert_eq!(next.client().get("/file").text(), "contents");
}
