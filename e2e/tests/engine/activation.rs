//! Sockets that a service manager has opened, Unix sockets, and what the manager hears from us.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;

use flatpath_testkit::client::request_bytes;
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{Client, Driver, Launch, Site, binary, child, each_driver, tools};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

each_driver!(
    a_directory_is_served_at_a_path,
    sockets_are_taken_by_name_and_by_address,
    what_nobody_names_and_what_was_not_passed_is_an_error,
    the_manager_is_told,
    systemd_starts_the_server_with_the_first_connection,
);

fn serve(driver: Driver) -> Launch {
    let program = binary::flatpath().to_path_buf();
    Launch::new(program).with(["serve", "--driver", driver.name()])
}

fn a_directory_is_served_at_a_path(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("http");
    let at = format!("unix:{}", path.display());
    let launch = || {
        let listeners = ["--http", &at, "--echo", &format!("{at}-echo")];
        serve(driver).with(listeners).directory(site.path())
    };
    let mut server = launch().start();
    for _ in 0..3 {
        let mut stream = UnixStream::connect(&path).expect("connected");
        let patience = Some(long_patience());
        stream.set_read_timeout(patience).expect("a deadline");
        let request = request_bytes("GET", "/file", &[("Connection", "close")]);
        stream.write_all(&request).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("text");
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("contents"));
    }
    let refused = launch()
        .try_start()
        .err()
        .expect("one server listens there");
    assert!(
        refused.log.contains("another process listens there"),
        "{}",
        refused.log
    );
    server.process().signal(Signal::KILL);
    server.exit_status();
    assert!(path.exists(), "nobody was left to remove it");
    let mut server = launch().start();
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
    assert!(!path.exists());
}

/// Sockets that share a free address, for a child to inherit.
fn sockets(count: usize) -> (Vec<OwnedFd>, SocketAddr) {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let open = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_port(true).expect("shared");
        socket.bind(&address.into()).expect("free");
        socket.listen(1_024).expect("it listens");
        let bound = socket.local_addr().expect("bound");
        // The first one chooses the port for all.
        address = bound.as_socket().expect("of IPv4");
        OwnedFd::from(socket)
    };
    ((0..count).map(open).collect(), address)
}

/// Starts a program as a service manager does: with these descriptors from 3 on.
fn passing(launch: Launch, sockets: &[OwnedFd], names: &str) -> Launch {
    let mut moves = String::new();
    for (socket, number) in sockets.iter().zip(3..) {
        fcntl_setfd(socket, FdFlags::empty()).expect("it is inherited");
        // To high numbers first: one of them may be in the way of another.
        moves += &format!("exec {}<&{}; ", number + 100, socket.as_raw_fd());
    }
    for number in (3..).take(sockets.len()) {
        moves += &format!("exec {number}<&{high} {high}<&-; ", high = number + 100);
    }
    let script = format!(
        "{moves} export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={names}; exec \"$@\"",
        sockets.len()
    );
    let bash = tools::find("bash").unwrap_or_else(|| PathBuf::from("bash"));
    launch.started_by(bash, ["-c", &script, "bash"])
}

fn sockets_are_taken_by_name_and_by_address(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let (mut passed, address) = sockets(2);
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = other.local_addr().expect("bound").to_string();
    passed.push(other.into());
    let launch = serve(driver)
        .with(["--http", "fd:web", "--echo", &at, "--network-threads", "2"])
        .directory(site.path());
    let mut server = passing(launch, &passed, "web:web:talk").start();
    assert_eq!(server.address("http"), address);
    for _ in 0..32 {
        assert_eq!(server.client().get("/file").text(), "contents");
    }
    let mut echo = server.echo_client();
    echo.send(b"hello");
    assert_eq!(echo.exactly(5), b"hello");
    drop(echo);
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
    // Here the sockets live on: whoever connects now waits for the next server.
    let mut client = Client::connect(address);
    client.request("GET", "/file", &[]);
    let launch = serve(driver).with(["--http", "fd:web"]);
    let mut server = passing(launch.directory(site.path()), &passed[..2], "web:web").start();
    assert_eq!(client.reply().text(), "contents");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn what_nobody_names_and_what_was_not_passed_is_an_error(driver: Driver) {
    let site = Site::new();
    let (passed, _) = sockets(1);
    let launch = serve(driver).with(["--http", "127.0.0.1:0"]);
    let launch = passing(launch.directory(site.path()), &passed, "web");
    let failed = launch.try_start().err().expect("nobody names web");
    assert_eq!(failed.status.code(), Some(2), "{}", failed.log);
    assert!(failed.log.contains("fd:web"), "{}", failed.log);
    // What is of another kind, or for another process, is named as that.
    let datagrams = [UdpSocket::bind("127.0.0.1:0").expect("a free port").into()];
    let launch = serve(driver).with(["--http", "fd:web"]);
    let launch = passing(launch.directory(site.path()), &datagrams, "web");
    let failed = launch.try_start().err().expect("it cannot listen there");
    assert_eq!(failed.status.code(), Some(1), "{}", failed.log);
    let words = "the socket that was passed under this name is one of datagrams";
    assert!(failed.log.contains(words), "{}", failed.log);
    let launch = serve(driver)
        .with(["--http", "fd:web"])
        .directory(site.path());
    let launch = launch
        .variable("LISTEN_PID", "1")
        .variable("LISTEN_FDS", "1");
    let failed = launch.try_start().err().expect("they are not for it");
    assert_eq!(failed.status.code(), Some(2), "{}", failed.log);
    let words = "LISTEN_PID=1 says that sockets were passed to that process";
    assert!(failed.log.contains(words), "{}", failed.log);
    let launch = serve(driver).with(["--http", "fd:missing"]);
    let failed = launch.directory(site.path()).try_start();
    let failed = failed.err().expect("nothing is passed");
    assert_eq!(failed.status.code(), Some(2), "{}", failed.log);
    assert!(failed.log.contains("fd:missing"), "{}", failed.log);
}

fn the_manager_is_told(driver: Driver) {
    let site = Site::new();
    let run = Site::new();
    let manager = UnixDatagram::bind(run.at("notify")).expect("a free path");
    manager
        .set_read_timeout(Some(long_patience()))
        .expect("a deadline");
    let told = || {
        let mut bytes = [0; 1_000];
        let count = manager.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let launch = Launch::serve(driver).variable("NOTIFY_SOCKET", run.at("notify"));
    let mut server = launch.directory(site.path()).start();
    let ready = told();
    assert!(ready.starts_with("READY=1\nMAINPID="), "{ready}");
    server.terminate();
    assert!(told().starts_with("STOPPING=1\n"));
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn systemd_starts_the_server_with_the_first_connection(driver: Driver) {
    let Some(activate) = tools::find("systemd-socket-activate") else {
        return;
    };
    let site = Site::new().with("file", "contents");
    let address = child::free_address().expect("an address");
    let launch = serve(driver)
        .with(["--http", "fd:web"])
        .directory(site.path());
    let at = address.to_string();
    let launch = launch.started_by(activate, ["--listen", &at, "--fdname=web", "--"]);
    let client = std::thread::spawn(move || {
        flatpath_testkit::until_true("the socket to listen", || {
            child::is_listening(address.port())
        });
        Client::connect(address).get("/file").text().to_owned()
    });
    let mut server = launch.start();
    assert_eq!(client.join().expect("a reply"), "contents");
    assert_eq!(server.address("http"), address);
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}
