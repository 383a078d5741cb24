//! Deadlines: who takes too long is let go, who is merely slow is not.
//!
//! The server gets short deadlines; the tests wait for what must happen and never measure when.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use flatpath_testkit::client::{Ending, request_bytes};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{Client, Deadline, Driver, Launch, Server, Site, each_driver, until};

each_driver!(
    a_head_that_trickles_in_meets_an_absolute_deadline,
    a_connection_that_says_nothing_is_let_go,
    an_idle_connection_is_let_go_without_a_word,
    a_busy_connection_outlives_every_deadline,
    a_body_below_the_minimum_rate_is_let_go,
    a_body_above_the_minimum_rate_is_received,
    a_client_that_reads_nothing_is_let_go,
    a_client_that_reads_slowly_is_not,
);

const LARGE: usize = 16 << 20;

fn serve(driver: Driver, flags: &[&str]) -> (Server, Site) {
    let site = Site::new().with("small", "small");
    site.write_hole("large", LARGE as u64);
    let server = Launch::serve(driver)
        .with(flags)
        .directory(site.path())
        .start();
    (server, site)
}

/// The connection ends, with a 408 or without a word, and not with a reset.
fn expect_let_go(client: &mut Client) {
    let (bytes, ending) = client.rest();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        bytes.is_empty() || text.starts_with("HTTP/1.1 408 "),
        "{text}"
    );
    assert_eq!(ending, Ending::Closed);
}

fn a_head_that_trickles_in_meets_an_absolute_deadline(driver: Driver) {
    let (server, _site) = serve(driver, &["--head-timeout", "1"]);
    let mut client = server.client();
    client.send(b"GET /small HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    let deadline = Deadline::default();
    // A byte long before each deadline: one that is moved by every byte would never pass.
    while client.is_quiet() && client.try_send(b"x").is_ok() {
        deadline.check("the head's deadline to pass");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (bytes, _) = client.rest();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        bytes.is_empty() || text.starts_with("HTTP/1.1 408 "),
        "{text}"
    );
    assert_eq!(server.client().get("/small").text(), "small");
}

fn a_connection_that_says_nothing_is_let_go(driver: Driver) {
    let (server, _site) = serve(driver, &["--head-timeout", "1"]);
    let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        expect_let_go(client);
    }
}

fn an_idle_connection_is_let_go_without_a_word(driver: Driver) {
    let (server, _site) = serve(driver, &["--idle-timeout", "1"]);
    let mut client = server.client();
    assert_eq!(client.get("/small").text(), "small");
    client.expect_closed();
}

fn a_busy_connection_outlives_every_deadline(driver: Driver) {
    const FOR: Duration = Duration::from_millis(2500);
    let (server, _site) = serve(
        driver,
        &[
            "--head-timeout",
            "1",
            "--idle-timeout",
            "1",
            "--write-timeout",
            "1",
        ],
    );
    let mut client = server.client();
    let start = Instant::now();
    while start.elapsed() < FOR {
        assert_eq!(client.get("/small").text(), "small");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn handlers(driver: Driver) -> Server {
    Launch::handlers(driver)
        .with(["--body-grace", "1", "--body-rate-min", "1000"])
        .start()
}

fn a_body_below_the_minimum_rate_is_let_go(driver: Driver) {
    let server = handlers(driver);
    let mut client = server.client();
    client.request("POST", "/echo", &[("Content-Length", "1000000")]);
    let deadline = Deadline::default();
    while client.is_quiet() && client.try_send(b"slow").is_ok() {
        deadline.check("the minimum rate to be asked for");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (bytes, _) = client.rest();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        bytes.is_empty() || text.starts_with("HTTP/1.1 408 "),
        "{text}"
    );
    assert_eq!(server.client().get("/hello").text(), "hello");
}

fn a_body_above_the_minimum_rate_is_received(driver: Driver) {
    const PIECES: usize = 60;
    let server = handlers(driver);
    let mut client = server.client();
    let piece = vec![b'p'; 2000];
    let length = (PIECES * piece.len()).to_string();
    client.request("POST", "/echo", &[("Content-Length", &length)]);
    // Twenty times the minimum rate, for three times the grace.
    for _ in 0..PIECES {
        client.send(&piece);
        std::thread::sleep(Duration::from_millis(50));
    }
    let reply = client.reply();
    assert_eq!(
        (reply.status, reply.body.len()),
        (200, PIECES * piece.len())
    );
}

fn a_client_that_reads_nothing_is_let_go(driver: Driver) {
    // Its kernel answers, so it has ten times as long.
    let (server, _site) = serve(driver, &["--write-timeout", "0.2"]);
    let sockets = || {
        let open = server.process().open_files();
        let is_socket = |path: &&PathBuf| path.to_string_lossy().starts_with("socket:");
        open.iter().filter(is_socket).count()
    };
    let before = sockets();
    assert_eq!(server.client().get("/small").text(), "small");
    let mut client = Client::connect_with_window(server.address("http"), 4096);
    client.send(request_bytes("GET", "/large", &[]));
    until("the download to begin", || {
        (!client.is_quiet()).then_some(())
    });
    until("the connection to be closed", || {
        (sockets() <= before).then_some(())
    });
    let (bytes, _) = client.rest();
    assert!(bytes.len() < LARGE, "the download was cut off");
}

fn a_client_that_reads_slowly_is_not(driver: Driver) {
    const STEP: usize = 128 * 1024;
    let (server, _site) = serve(driver, &["--write-timeout", "2"]);
    let mut client = Client::connect_with_window(server.address("http"), 4096);
    client = client.patient(long_patience());
    client.request("GET", "/large", &[("Connection", "close")]);
    let mut received = 0;
    while received + STEP < LARGE {
        received += client.exactly(STEP).len();
        std::thread::sleep(Duration::from_millis(20));
    }
    let (rest, ending) = client.rest();
    assert!(
        received + rest.len() > LARGE,
        "{} bytes of {LARGE}",
        received + rest.len()
    );
    assert_eq!(ending, Ending::Closed);
}
