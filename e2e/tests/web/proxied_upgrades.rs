//! `--proxy`: a client and a server that go on in another protocol, over sockets; with TLS on both
//! sides as well.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::https::Certificates;
use flatpath_testkit::tls::{self, VERSIONS};
use flatpath_testkit::{Driver, Launch, Site, each_driver, https, until_true};
use rustix::process::Signal;

each_driver!(
    what_was_said_early_passes_first_and_then_all,
    tls_on_both_sides_passes_as_well,
    the_end_of_one_is_the_end_of_the_other,
    a_drain_waits_for_a_pair,
);

const ASKS: &str =
    "GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
const SWITCHES: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";

/// Reads up to the end of a head.
fn head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).expect("read"), 1, "within a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn exactly(stream: &mut impl Read, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read).expect("read");
    read
}

/// A server whose next connection switches, and is handed to a function.
fn server(act: fn(TcpStream)) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("an address");
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.set_read_timeout(Some(patience())).expect("set");
        let head = head(&mut stream);
        assert!(
            head.contains("Upgrade: x\r\nConnection: upgrade\r\n"),
            "{head}"
        );
        stream.write_all(SWITCHES.as_bytes()).expect("written");
        act(stream);
    });
    (at, serving)
}

fn front(driver: Driver, to: SocketAddr, run: &Site) -> flatpath_testkit::Server {
    run.write(
        "flatpath.toml",
        format!("http = \"127.0.0.1:0\"\nproxy = \"http://{to}\"\n"),
    );
    Launch::configured(driver, run.path()).start()
}

/// Says something at once, and sends back what comes, to its end.
fn echo(mut stream: TcpStream) {
    stream.write_all(b"first").expect("written");
    let mut to = stream.try_clone().expect("cloned");
    std::io::copy(&mut stream, &mut to).expect("copied");
    to.shutdown(Shutdown::Write).expect("ended");
}

fn what_was_said_early_passes_first_and_then_all(driver: Driver) {
    let (run, (at, serving)) = (Site::new(), server(echo));
    let front = front(driver, at, &run);
    let mut client = front.client();
    client.send(format!("{ASKS}early"));
    let head = client.until("\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(client.exactly(10), b"firstearly");
    let large = https::content(3_000_000);
    let mut twin = client.twin();
    let (said, sending) = (
        large.clone(),
        std::thread::spawn(move || twin.exactly(3_000_000)),
    );
    client.send(&said);
    assert!(sending.join().expect("read") == large);
    client.finish();
    client.expect_closed();
    serving.join().expect("it ended as it should");
    front.end();
}

fn tls_on_both_sides_passes_as_well(driver: Driver) {
    let run = Site::new();
    let certificates = Certificates::default();
    certificates.make("server", &["localhost", "127.0.0.1"]);
    // In the middle: TLS to a server that has it, which asks the one that switches.
    let (at, serving) = server(echo);
    let behind = https::launch(driver)
        .with(certificates.options(&["server"]))
        .with(["--proxy", &format!("http://{at}")])
        .start();
    let front = https::launch(driver)
        .with(certificates.options(&["server"]))
        .with(["--proxy", &format!("https://{}", behind.address("https"))])
        .with(["--proxy-tls-ca".into(), certificates.at("server.crt")])
        .start();
    let pem = std::fs::read_to_string(certificates.at("server.crt")).expect("it is there");
    for version in VERSIONS.iter().take(1) {
        let config = Arc::new(tls::client_config(&pem, None, &[*version]));
        let stream = TcpStream::connect(front.address("https")).expect("connected");
        stream.set_read_timeout(Some(patience())).expect("set");
        let mut client = tls::handshake(&config, stream).expect("a handshake");
        client
            .write_all(format!("{ASKS}early").as_bytes())
            .expect("written");
        assert!(head(&mut client).starts_with("HTTP/1.1 101 "));
        assert_eq!(exactly(&mut client, 10), b"firstearly");
        let large = https::content(300_000);
        for _ in 0..3 {
            client.write_all(&large).expect("written");
            assert!(exactly(&mut client, large.len()) == large);
        }
        client.conn.send_close_notify();
        client.flush().expect("written");
        let mut rest = Vec::new();
        assert_eq!(
            client.read_to_end(&mut rest).expect("an end that is told"),
            0
        );
    }
    serving.join().expect("it ended as it should");
    drop(run);
    front.end();
    behind.end();
}

fn the_end_of_one_is_the_end_of_the_other(driver: Driver) {
    // The server is gone in the middle.
    let (run, (at, serving)) = (Site::new(), server(|stream| drop(exactly(&mut &stream, 2))));
    let front_of_it = front(driver, at, &run);
    let mut client = front_of_it.client();
    client.send(ASKS);
    client.until("\r\n\r\n");
    client.send("hi and more");
    let (_, _ending) = client.rest();
    serving.join().expect("it read");
    front_of_it.end();
    // The client is.
    let (at, serving) = server(|mut stream| {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_err() || rest == b"hi", "{ended:?} {rest:?}");
    });
    let front_of_it = front(driver, at, &run);
    let mut client = front_of_it.client();
    client.send(ASKS);
    client.until("\r\n\r\n");
    client.send("hi");
    client.reset();
    serving.join().expect("it was told");
    front_of_it.end();
}

fn a_drain_waits_for_a_pair(driver: Driver) {
    let (run, (at, serving)) = (Site::new(), server(echo));
    let front = front(driver, at, &run);
    let mut client = front.client();
    client.send(ASKS);
    client.until("\r\n\r\n");
    assert_eq!(client.exactly(5), b"first");
    front.process().signal(Signal::TERM);
    until_true("it accepts no more", || {
        TcpStream::connect(front.address("http")).is_err()
    });
    client.send("on");
    assert_eq!(client.exactly(2), b"on");
    client.finish();
    client.expect_closed();
    serving.join().expect("it ended as it should");
    front.end();
}
