//! Many requests on one connection without waiting: answered in order, with bounded memory.

use flatpath_testkit::client::{Ending, request_bytes};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::reply::{self, Asked, Progress};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver};

each_driver!(
    requests_in_one_write_are_answered_in_order,
    requests_cut_anywhere_are_answered_in_order,
    nothing_after_connection_close_is_answered,
    a_fault_among_pipelined_requests_ends_the_connection_there,
    requests_without_reading_take_bounded_memory,
);

const FILES: usize = 10;

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new();
    for number in 0..FILES {
        // From files that are answered from memory to some that are streamed.
        site.write(
            &format!("{number}"),
            format!("{number}:").repeat(1 + number * number * 700),
        );
    }
    let server = Launch::serve(driver).directory(site.path()).start();
    (server, site)
}

fn expected(number: usize) -> String {
    format!("{number}:").repeat(1 + number * number * 700)
}

fn requests_in_one_write_are_answered_in_order(driver: Driver) {
    const REQUESTS: usize = 500;
    let (server, _site) = serve(driver);
    let number = |index: usize| index * 7 % FILES;
    let requests: Vec<u8> = (0..REQUESTS)
        .flat_map(|i| request_bytes("GET", &format!("/{}", number(i)), &[]))
        .collect();
    let mut receiver = server.client().patient(long_patience());
    let mut sender = receiver.twin();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(&requests));
        for index in 0..REQUESTS {
            let reply = receiver.reply();
            assert_eq!(reply.status, 200, "request {index}");
            assert!(
                reply.text() == expected(number(index)),
                "request {index} is out of order"
            );
        }
    });
    assert!(receiver.is_quiet(), "one reply for each request");
}

/// Wherever a packet ends, the requests are the same.
fn requests_cut_anywhere_are_answered_in_order(driver: Driver) {
    let (server, _site) = serve(driver);
    let one = request_bytes("GET", "/1", &[]);
    let requests = [one.as_slice(), &request_bytes("GET", "/2", &[])].concat();
    let mut client = server.client().patient(long_patience());
    for cut in 0..=requests.len() {
        client.send(&requests[..cut]);
        if cut >= one.len() {
            assert!(client.reply().text() == expected(1), "cut at {cut}");
        }
        client.send(&requests[cut..]);
        if cut < one.len() {
            assert!(client.reply().text() == expected(1), "cut at {cut}");
        }
        assert!(client.reply().text() == expected(2), "cut at {cut}");
    }
    assert!(client.is_quiet(), "one reply for each request");
}

/// RFC 9112, 9.6: "A server that receives a 'close' connection option … MUST NOT process any
/// further requests received on that connection."
fn nothing_after_connection_close_is_answered(driver: Driver) {
    let (server, _site) = serve(driver);
    let mut client = server.client();
    let requests = [
        request_bytes("GET", "/1", &[]),
        request_bytes("GET", "/2", &[("Connection", "close")]),
        request_bytes("GET", "/3", &[]),
    ];
    client.send(requests.concat());
    assert!(!client.reply().says_close());
    let last = client.reply();
    assert!(last.says_close() && last.text() == expected(2));
    client.expect_closed();
}

fn a_fault_among_pipelined_requests_ends_the_connection_there(driver: Driver) {
    let (server, _site) = serve(driver);
    let mut client = server.client();
    let good = request_bytes("GET", "/1", &[]);
    let bad = b"GET /1 HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n";
    client.send([good.as_slice(), &good, bad, &good].concat());
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.reply().status, 200);
    let refused = client.reply();
    assert!(refused.status == 400 && refused.says_close(), "{refused:?}");
    client.expect_closed();
}

/// The end of a head, and the body of each reply.
const REPLY_END: &str = "\r\n\r\n0:";

/// Checks that the bytes are one correct reply, and the one that was asked for.
fn check_reply(index: usize, bytes: &[u8]) {
    match reply::read(bytes, false, Asked::Any) {
        Ok(Progress::Whole(reply, taken)) => assert!(
            reply.status == 200 && reply.body == b"0:" && taken == bytes.len(),
            "request {index}: {reply:?}"
        ),
        other => panic!("request {index}: {other:?}"),
    }
}

fn requests_without_reading_take_bounded_memory(driver: Driver) {
    /// Their replies take five times the memory that the server may grow by.
    const REQUESTS: usize = 250_000;
    const CHUNK: usize = 1000;
    const GROWTH_BYTES_MAX: u64 = 8 << 20;
    let (server, _site) = serve(driver);
    assert_eq!(server.client().get("/0").text(), "0:");
    let before = server.process().memory_bytes();
    let mut receiver = server.client().patient(long_patience());
    let mut sender = receiver.twin();
    let chunk = request_bytes("GET", "/0", &[]).repeat(CHUNK);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..REQUESTS / CHUNK {
                sender.send(&chunk);
            }
            sender.finish();
        });
        let mut most = 0;
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            most = most.max(server.process().memory_bytes());
        }
        let growth = most.saturating_sub(before);
        assert!(!receiver.is_quiet(), "the first replies wait to be read");
        // Read on even when the bound is broken: the sender must come to its end.
        let mut last = Vec::new();
        for index in 0..REQUESTS {
            let mut reply = receiver.until(REPLY_END);
            // The same bytes again are as good: the date in them changes now and then.
            if reply != last {
                reply.extend_from_slice(REPLY_END.as_bytes());
                check_reply(index, &reply);
                reply.truncate(reply.len() - REPLY_END.len());
                last = reply;
            }
        }
        let (rest, ending) = receiver.rest();
        assert_eq!((rest.len(), ending), (0, Ending::Closed));
        assert!(
            growth <= GROWTH_BYTES_MAX,
            "{growth} bytes more for one client"
        );
    });
    let most = server.process().memory_bytes();
    let growth = most.saturating_sub(before);
    assert!(
        growth <= GROWTH_BYTES_MAX,
        "{growth} bytes more after all requests"
    );
}
