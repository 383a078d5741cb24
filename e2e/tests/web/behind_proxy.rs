//! `--proxy-from` with real balancers: HAProxy with both versions of the PROXY protocol and its
//! health checks, and curl as the first of a chain.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, tools, until_true};

each_driver!(
    haproxy_names_the_client_in_both_versions,
    curl_names_the_client,
    who_may_open_a_unix_socket_may_send_the_header,
    without_the_header_or_from_elsewhere_nothing_is_served,
);

fn serve(driver: Driver, site: &Site, options: &[&str]) -> Server {
    let launch = Launch::serve(driver).directory(site.path()).echo();
    launch.with(options).start()
}

/// HAProxy before the echo service, with this option for its server line.
fn haproxy(directory: &Path, server: &str, option: &str) -> Option<(Child, SocketAddr)> {
    let program = tools::find("haproxy")?;
    let address = child::free_address().expect("an address");
    let configuration = format!(
        "global\n    stats socket {socket} level admin\n\
         defaults\n    mode tcp\n    timeout connect 60s\n\
         \x20   timeout client 60s\n    timeout server 60s\n    timeout check 60s\n\
         frontend f\n    bind {address}\n    default_backend b\n\
         backend b\n    option tcp-check\n\
         \x20   tcp-check send check\n    tcp-check expect string check\n\
         \x20   server s {server} check inter 100ms check-send-proxy {option}\n",
        socket = directory.join("stats").display(),
    );
    let file = directory.join("haproxy.cfg");
    fs::write(&file, configuration).expect("written");
    let mut command = child::command(program, &[]);
    command.args(["-db", "-f"]).arg(&file);
    let mut balancer = Child::start(&mut command).expect("it starts");
    balancer.await_port(address.port()).expect("it listens");
    Some((balancer, address))
}

fn echoes(client: &mut Client, words: &[u8]) {
    client.send(words);
    assert_eq!(client.exactly(words.len()), words);
}

fn haproxy_names_the_client_in_both_versions(driver: Driver) {
    for option in [
        "send-proxy",
        "send-proxy-v2",
        "send-proxy-v2 proxy-v2-options crc32c,unique-id",
    ] {
        let (site, directory) = (Site::new(), tempfile::tempdir().expect("a directory"));
        // To the server all connections come from 127.0.0.1. Each client has one place.
        let options = [
            "--proxy-from",
            "127.0.0.1",
            "--connections-per-address",
            "1",
        ];
        let server = serve(driver, &site, &options);
        let echo = server.address("echo");
        let Some((balancer, address)) = haproxy(directory.path(), &echo.to_string(), option) else {
            return;
        };
        let mut clients: Vec<Client> = Vec::new();
        for host in 2..6 {
            let mut client = Client::connect_from(of_host(host), address);
            echoes(&mut client, b"hello");
            clients.push(client);
        }
        // Checks come from the balancer itself, and are served.
        std::thread::sleep(Duration::from_millis(600));
        for client in &mut clients {
            echoes(client, b"still there");
        }
        let log = balancer.log();
        assert!(!log.contains("DOWN"), "{option}: {log}");
        assert!(
            !server.log().contains("PROXY"),
            "{option}: {}",
            server.log()
        );
    }
}

fn of_host(host: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], 0))
}

fn curl_names_the_client(driver: Driver) {
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let site = Site::new().with("file", "contents");
    let server = serve(driver, &site, &["--proxy-from", "127.0.0.0/8"]);
    let url = format!("http://{}/file", server.address("http"));
    let mut command = std::process::Command::new(curl);
    command.args(["--silent", "--show-error", "--haproxy-protocol", &url]);
    let output = tools::run(&mut command, flatpath_testkit::patience());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "contents");
}

/// Its permissions decide; the header is required all the same.
fn who_may_open_a_unix_socket_may_send_the_header(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let directory = tempfile::tempdir().expect("a directory");
    let (http, echo) = (directory.path().join("http"), directory.path().join("echo"));
    let at = |path: &Path| format!("unix:{}", path.display());
    let server = Launch::serve(driver)
        .with([
            "--proxy-from",
            "192.0.2.1",
            "--connections-per-address",
            "1",
        ])
        .with(["--http", &at(&http), "--echo", &at(&echo)])
        .directory(site.path())
        .start();
    let mut plain = UnixStream::connect(&http).expect("connected");
    let patience = Some(long_patience());
    plain.set_read_timeout(patience).expect("a deadline");
    plain
        .write_all(b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard);
    assert_eq!(heard, b"", "without the header nothing is served");
    if let Some(curl) = tools::find("curl") {
        let mut command = std::process::Command::new(curl);
        command.args([
            "--silent",
            "--show-error",
            "--haproxy-protocol",
            "--unix-socket",
        ]);
        command.arg(&http).arg("http://localhost/file");
        let output = tools::run(&mut command, flatpath_testkit::patience());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "contents");
    }
    for option in ["send-proxy", "send-proxy-v2"] {
        let socket = format!("unix@{}", echo.display());
        let Some((_balancer, address)) = haproxy(directory.path(), &socket, option) else {
            return;
        };
        let connect = |host| Client::connect_from(of_host(host), address);
        let mut clients = [2, 3].map(connect);
        for client in &mut clients {
            echoes(client, b"hello");
        }
        // Each client has one place: this one's first connection pays for its second.
        echoes(&mut connect(2), b"again");
        clients[0].expect_closed();
        echoes(&mut clients[1], b"still there");
    }
    drop(server);
}

fn without_the_header_or_from_elsewhere_nothing_is_served(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let server = serve(driver, &site, &["--proxy-from", "127.0.0.1"]);
    let request = b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n";
    let http = server.address("http");
    let mut client = Client::connect(http);
    client.send([&header[..], request].concat());
    assert_eq!(client.reply().text(), "contents");
    let mut plain = Client::connect(http);
    plain.send(request);
    assert_eq!(plain.rest().0, b"");
    let mut stranger = Client::connect_from(of_host(9), http);
    let _ = stranger.try_send([&header[..], request].concat());
    assert_eq!(stranger.rest().0, b"");
    until_true("a line in the log", || {
        server.log().contains("connection from 127.0.0.")
    });
}
