//! Echo: whatever comes in goes out, in order, up to the last byte before the end.

use flatpath_testkit::client::Ending;
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver};

each_driver!(
    what_comes_in_goes_out,
    the_end_of_input_is_answered_with_the_end_of_output,
    a_large_transfer_arrives_whole_and_in_order,
    a_client_that_only_sends_is_held_back,
    both_listeners_serve_at_once,
);

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new().with("file", "contents");
    let server = Launch::serve(driver).directory(site.path()).echo().start();
    (server, site)
}

fn what_comes_in_goes_out(driver: Driver) {
    let (server, _site) = serve(driver);
    let mut client = server.echo_client();
    for length in [1, 2, 127, 128, 4096, 65_536, 65_537, 1] {
        let bytes = noise(length as u64, length);
        client.send(&bytes);
        assert!(
            client.exactly(length) == bytes,
            "{length} bytes came back changed"
        );
    }
    assert!(client.is_quiet(), "nothing but the echo comes");
}

fn the_end_of_input_is_answered_with_the_end_of_output(driver: Driver) {
    let (server, _site) = serve(driver);
    for length in [0, 1, 5000, 300_000] {
        let mut client = server.echo_client();
        let bytes = noise(length as u64, length);
        client.send(&bytes);
        client.finish();
        let (received, ending) = client.rest();
        assert!(
            received == bytes,
            "{} of {length} bytes came back",
            received.len()
        );
        assert_eq!(ending, Ending::Closed, "{length}");
    }
}

fn a_large_transfer_arrives_whole_and_in_order(driver: Driver) {
    const LENGTH: usize = 48 << 20;
    let (server, _site) = serve(driver);
    let bytes = noise(9, LENGTH);
    let mut receiver = server.echo_client().patient(long_patience());
    let mut sender = receiver.twin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.send(&bytes);
            sender.finish();
        });
        let (received, ending) = receiver.rest();
        assert_eq!((received.len(), ending), (LENGTH, Ending::Closed));
        assert!(received == bytes, "the bytes came back changed");
    });
}

/// Without reading its echo a client cannot make the server keep more and more of it.
fn a_client_that_only_sends_is_held_back(driver: Driver) {
    const LENGTH: usize = 64 << 20;
    const GROWTH_BYTES_MAX: u64 = 8 << 20;
    let (server, _site) = serve(driver);
    let before = server.process().memory_bytes();
    let bytes = noise(4, LENGTH);
    let mut receiver = server.echo_client().patient(long_patience());
    let mut sender = receiver.twin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.send(&bytes);
            sender.finish();
        });
        // The sender is stuck by then: its peer has read no byte.
        let mut most = 0;
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            most = most.max(server.process().memory_bytes());
        }
        let growth = most.saturating_sub(before);
        let (received, ending) = receiver.rest();
        assert!(
            growth <= GROWTH_BYTES_MAX,
            "{growth} bytes more for one client"
        );
        assert!(
            received == bytes && ending == Ending::Closed,
            "the bytes came back changed"
        );
    });
}

fn both_listeners_serve_at_once(driver: Driver) {
    let (server, _site) = serve(driver);
    let (mut echo, mut http) = (server.echo_client(), server.client());
    for round in 0..20 {
        let text = format!("round {round}");
        echo.send(text.as_bytes());
        assert_eq!(http.get("/file").text(), "contents");
        assert_eq!(echo.exactly(text.len()), text.as_bytes());
    }
}
