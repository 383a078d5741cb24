//! Slow and half-closed clients are served like any other, and hold nobody up.

use std::time::Duration;

use flatpath_testkit::client::{Ending, request_bytes};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, until};

use flatpath_testkit::h2_frames;

use crate::wide_sockets::unacknowledged;

each_driver!(
    a_request_that_comes_byte_by_byte_is_answered,
    a_client_that_finished_sending_gets_all_replies,
    a_client_that_finishes_within_a_request_is_closed,
    a_client_that_reads_slowly_gets_the_whole_file,
    slow_clients_do_not_hold_up_a_fast_one,
    of_a_file_that_nobody_reads_the_kernel_has_little,
);

const LARGE: usize = 4 << 20;

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new()
        .with("small", "small")
        .with("large", noise(5, LARGE));
    let server = Launch::serve(driver).directory(site.path()).start();
    (server, site)
}

fn a_request_that_comes_byte_by_byte_is_answered(driver: Driver) {
    let (server, _site) = serve(driver);
    let mut client = server.client();
    let request = request_bytes("GET", "/small", &[("Accept", "*/*"), ("X-Empty", "")]);
    for _ in 0..3 {
        client.trickle(&request, Duration::from_millis(1));
        assert_eq!(client.reply().text(), "small");
    }
}

fn a_client_that_finished_sending_gets_all_replies(driver: Driver) {
    let (server, site) = serve(driver);
    let large = std::fs::read(site.at("large")).expect("the file is there");
    let mut client = server.client();
    let requests = [
        request_bytes("GET", "/small", &[]),
        request_bytes("GET", "/large", &[]),
    ];
    client.send(requests.concat());
    client.finish();
    assert_eq!(client.reply().text(), "small");
    assert!(client.reply().body == large, "the large file differs");
    client.expect_closed();
}

fn a_client_that_finishes_within_a_request_is_closed(driver: Driver) {
    let (server, _site) = serve(driver);
    for sent in [
        "",
        "G",
        "GET /small HTTP/1.1\r\nHost: localhost\r\n",
        "\r\n",
    ] {
        let mut client = server.client();
        client.send(sent.as_bytes());
        client.finish();
        let (bytes, ending) = client.rest();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(ending, Ending::Closed, "{sent:?}");
        // A request that never ended may be answered with 400 and nothing else.
        assert!(
            bytes.is_empty() || text.starts_with("HTTP/1.1 400 "),
            "{sent:?}: {text}"
        );
    }
}

fn a_client_that_reads_slowly_gets_the_whole_file(driver: Driver) {
    const WINDOW: usize = 4096;
    const STEP: usize = 64 * 1024;
    let (server, site) = serve(driver);
    let large = std::fs::read(site.at("large")).expect("the file is there");
    let address = server.address("http");
    let mut client = flatpath_testkit::Client::connect_with_window(address, WINDOW);
    client = client.patient(long_patience());
    client.request("GET", "/large", &[("Connection", "close")]);
    let mut received = Vec::new();
    while received.len() < LARGE {
        received.extend(client.exactly(STEP));
        std::thread::sleep(Duration::from_millis(2));
    }
    received.extend(client.rest().0);
    let body = received.len() - LARGE;
    assert!(received[body..] == large, "the file differs");
}

/// A slow client holds no thread, whether the kernel sends or a worker: more of them than there are
/// workers change nothing.
fn slow_clients_do_not_hold_up_a_fast_one(driver: Driver) {
    const SLOW: usize = 200;
    let site = Site::new()
        .with("small", "small")
        .with("large", noise(5, LARGE));
    let server = Launch::serve(driver)
        .with(["--workers", "1..2"])
        .directory(site.path())
        .start();
    let downloads = [
        request_bytes("GET", "/large", &[]),
        h2_frames::download("/large"),
    ];
    let mut half = Vec::new();
    let mut unread = Vec::new();
    for number in 0..SLOW / 2 {
        let mut client = server.client();
        client.send(b"GET /small HTT");
        half.push(client);
        let address = server.address("http");
        let mut client = flatpath_testkit::Client::connect_with_window(address, 4096);
        client.send(&downloads[number % downloads.len()]);
        unread.push(client);
    }
    let mut fast = server.client();
    for _ in 0..50 {
        assert_eq!(fast.get("/small").text(), "small");
    }
    assert_eq!(fast.get("/large").body.len(), LARGE);
    for mut client in half {
        client.send(b"P/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.reply().text(), "small");
    }
}

/// What nobody reads is not copied: many downloads that begin together would keep a network thread
/// from everything else, and the kernel's memory is not the server's to bound.
fn of_a_file_that_nobody_reads_the_kernel_has_little(driver: Driver) {
    const WINDOW: usize = 4096;
    /// A few times what may be unsent, with what is on its way; unbounded it is 2.5 MB and more.
    const KERNEL_BYTES_MAX: usize = 600_000;
    let (server, _site) = serve(driver);
    let address = server.address("http");
    let mut client = flatpath_testkit::Client::connect_with_window(address, WINDOW);
    client.request("GET", "/large", &[]);
    let mut before = 0;
    let waits = until("the download to be stuck", || {
        let now = unacknowledged(&server).iter().map(|(_, bytes)| bytes).sum();
        let is_stuck = now > WINDOW && now == std::mem::replace(&mut before, now);
        std::thread::sleep(Duration::from_millis(50));
        is_stuck.then_some(now)
    });
    assert!(
        waits <= KERNEL_BYTES_MAX,
        "{waits} bytes wait in the kernel"
    );
}
