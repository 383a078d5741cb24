//! Clients that vanish at every possible moment leave nothing behind.

use flatpath_testkit::client::request_bytes;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until};

each_driver!(
    a_reset_at_every_byte_of_a_request_leaves_nothing_behind,
    a_close_at_every_byte_of_a_request_leaves_nothing_behind,
    a_reset_at_many_bytes_of_a_reply_leaves_nothing_behind,
    connections_reset_before_they_are_accepted_change_nothing,
    echo_survives_resets_in_mid_stream,
);

const LARGE: usize = 2 << 20;

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new()
        .with("small", "small")
        .with("large", vec![b'x'; LARGE]);
    // What has just changed is not kept open.
    site.settle();
    let server = Launch::serve(driver).directory(site.path()).echo().start();
    (server, site)
}

/// Runs `attack`, then sees that the server still serves and has no descriptor more than before.
fn leaves_nothing_behind(server: &Server, attack: impl FnOnce()) {
    // Warm: what is opened once stays open for a while.
    assert_eq!(server.client().get("/small").text(), "small");
    assert_eq!(server.client().get("/large").body.len(), LARGE);
    let before = server.settled_descriptors();
    attack();
    assert_eq!(server.client().get("/small").text(), "small");
    until("the descriptors of vanished clients to be closed", || {
        (server.process().descriptors() <= before).then_some(())
    });
    let log = server.log().to_lowercase();
    assert!(
        !log.contains("error"),
        "a client that goes away is no error:\n{log}"
    );
}

fn a_reset_at_every_byte_of_a_request_leaves_nothing_behind(driver: Driver) {
    let (server, _site) = serve(driver);
    for target in ["/small", "/large"] {
        let request = request_bytes("GET", target, &[("Accept", "*/*")]);
        leaves_nothing_behind(&server, || {
            for sent in 0..=request.len() {
                let mut client = server.client();
                client.send(&request[..sent]);
                client.reset();
            }
        });
    }
}

fn a_close_at_every_byte_of_a_request_leaves_nothing_behind(driver: Driver) {
    let (server, _site) = serve(driver);
    let request = request_bytes("GET", "/large", &[("Accept", "*/*")]);
    leaves_nothing_behind(&server, || {
        for sent in 0..=request.len() {
            server.client().send(&request[..sent]);
        }
    });
}

fn a_reset_at_many_bytes_of_a_reply_leaves_nothing_behind(driver: Driver) {
    const STEPS: usize = 60;
    let (server, _site) = serve(driver);
    leaves_nothing_behind(&server, || {
        for step in 0..STEPS {
            let mut client = server.client();
            client.request("GET", "/large", &[]);
            client.request("GET", "/large", &[]);
            // Byte by byte through the head, then further and further into the body.
            let received = if step < 40 {
                step * 6
            } else {
                (step - 39) * LARGE / 21
            };
            let _ = client.exactly(received);
            client.reset();
        }
    });
}

fn connections_reset_before_they_are_accepted_change_nothing(driver: Driver) {
    const CONNECTIONS: usize = 500;
    let (server, _site) = serve(driver);
    let address = server.address("http");
    leaves_nothing_behind(&server, || {
        for _ in 0..CONNECTIONS {
            Client::connect(address).reset();
        }
    });
}

fn echo_survives_resets_in_mid_stream(driver: Driver) {
    const CONNECTIONS: usize = 100;
    let (server, _site) = serve(driver);
    let bytes = vec![b'e'; 200_000];
    leaves_nothing_behind(&server, || {
        for index in 0..CONNECTIONS {
            let mut client = server.echo_client();
            client.send(&bytes[..index * 1000]);
            let _ = client.exactly(index * 500);
            client.reset();
        }
    });
    let mut client = server.echo_client();
    client.send(b"still here");
    assert_eq!(client.exactly(10), b"still here");
}
