//! Handlers that block, panic, never return or stream: nobody but their own client notices.

use std::time::Duration;

use flatpath_testkit::client::request_bytes;
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::noise;
use flatpath_testkit::reply::Asked;
use flatpath_testkit::{Client, Driver, Launch, Server, each_driver, until};

each_driver!(
    a_panic_in_a_handler_is_answered_and_the_worker_lives,
    a_panic_on_the_network_thread_costs_its_own_connection_only,
    a_handler_that_never_returns_holds_nobody_up,
    a_client_that_leaves_its_handler_behind_changes_nothing,
    inline_and_pooled_replies_keep_the_order_of_requests,
    a_body_of_unknown_length_is_streamed_in_chunks,
    a_streamed_body_waits_for_a_slow_client,
    a_body_that_breaks_off_ends_the_connection,
    a_chunked_body_that_comes_byte_by_byte_is_received,
    a_client_that_expects_100_continue_gets_it,
    workers_grow_with_the_work_and_shrink_without_it,
);

fn serve(driver: Driver, flags: &[&str]) -> Server {
    Launch::handlers(driver).with(flags).start()
}

fn a_panic_in_a_handler_is_answered_and_the_worker_lives(driver: Driver) {
    const PANICS: usize = 30;
    let server = Launch::handlers(driver)
        .with(["--workers", "1..1"])
        .expecting_panics()
        .start();
    let workers = {
        assert_eq!(server.client().get("/pooled").text(), "pooled");
        server.process().workers()
    };
    let mut client = server.client();
    for _ in 0..PANICS {
        let reply = client.get("/panic");
        assert_eq!(reply.status, 500);
        assert!(
            !reply.text().contains("on purpose"),
            "the client is not told why: {reply:?}"
        );
        if reply.says_close() {
            client = server.client();
        }
        assert_eq!(
            server.client().get("/pooled").text(),
            "pooled",
            "the only worker lives"
        );
    }
    assert_eq!(
        server.process().workers(),
        workers,
        "no worker died, none was added"
    );
    assert!(
        server.log().contains("on purpose"),
        "the log says why:\n{}",
        server.log()
    );
}

fn a_panic_on_the_network_thread_costs_its_own_connection_only(driver: Driver) {
    let server = Launch::handlers(driver).expecting_panics().start();
    let mut neighbour = server.client();
    assert_eq!(neighbour.get("/hello").text(), "hello");
    for _ in 0..10 {
        let mut client = server.client();
        client.request("GET", "/panic-inline", &[]);
        // A 500, or the end of the connection: it cannot be in a known state.
        if let Ok(reply) = client.try_reply(Asked::Any) {
            assert_eq!(reply.status, 500);
        }
        assert_eq!(neighbour.get("/hello").text(), "hello");
        assert_eq!(neighbour.get("/pooled").text(), "pooled");
    }
}

fn a_handler_that_never_returns_holds_nobody_up(driver: Driver) {
    const STUCK: usize = 10;
    let server = serve(driver, &["--workers", "2..16"]);
    let stuck: Vec<Client> = (0..STUCK)
        .map(|_| {
            let mut client = server.client();
            client.request("GET", "/never", &[]);
            client
        })
        .collect();
    await_active(&server, STUCK);
    let mut client = server.client();
    for _ in 0..100 {
        assert_eq!(client.get("/hello").text(), "hello");
        assert_eq!(client.get("/pooled").text(), "pooled");
    }
    for mut client in stuck {
        assert!(client.is_quiet(), "it waits for its reply");
    }
}

/// Waits until so many handlers are running.
fn await_active(server: &Server, count: usize) {
    let mut client = server.client();
    until(&format!("{count} handlers to run"), || {
        (client.get("/active").text() == count.to_string()).then_some(())
    });
}

fn a_client_that_leaves_its_handler_behind_changes_nothing(driver: Driver) {
    const CLIENTS: usize = 20;
    let server = serve(driver, &["--workers", "2..32"]);
    assert_eq!(server.client().get("/pooled").text(), "pooled");
    for how in ["reset", "close"] {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for client in &mut clients {
            client.request("GET", "/sleep/300", &[]);
        }
        await_active(&server, CLIENTS);
        for client in clients {
            if how == "reset" {
                client.reset();
            }
        }
        // Their replies come back to connections that are gone.
        await_active(&server, 0);
        assert_eq!(server.client().get("/pooled").text(), "pooled", "{how}");
    }
}

fn inline_and_pooled_replies_keep_the_order_of_requests(driver: Driver) {
    const ROUNDS: usize = 30;
    let server = serve(driver, &["--workers", "4..8"]);
    let targets = [
        "/sleep/20",
        "/hello",
        "/sleep/1",
        "/number/7",
        "/pooled",
        "/hello",
        "/number/8",
    ];
    let texts = ["slept 20", "hello", "slept 1", "7", "pooled", "hello", "8"];
    let mut client = server.client().patient(long_patience());
    let requests: Vec<u8> = targets
        .iter()
        .flat_map(|target| request_bytes("GET", target, &[]))
        .collect();
    for _ in 0..ROUNDS {
        client.send(&requests);
    }
    for round in 0..ROUNDS {
        for text in texts {
            assert_eq!(client.reply().text(), text, "round {round}");
        }
    }
    assert!(client.is_quiet(), "one reply for each request");
}

/// What `/stream/LENGTH` sends.
fn stream(length: usize) -> Vec<u8> {
    noise(length as u64, length)
}

fn a_body_of_unknown_length_is_streamed_in_chunks(driver: Driver) {
    let server = serve(driver, &[]);
    let mut client = server.client();
    for length in [0, 1, 1000, 262_144, 1_000_001] {
        let reply = client.get(&format!("/stream/{length}"));
        assert_eq!(
            reply.field("transfer-encoding"),
            Some("chunked"),
            "{length}"
        );
        assert!(reply.body == stream(length), "{length} bytes came changed");
    }
    client.request("HEAD", "/stream/1000", &[]);
    assert_eq!(client.reply_to_head().status, 200);
    assert_eq!(
        client.get("/hello").text(),
        "hello",
        "the connection was kept"
    );
    // To a client that does not know chunks the end of the connection is the end of the body.
    client.send(b"GET /stream/1000000 HTTP/1.0\r\n\r\n");
    let reply = client.reply();
    assert!(
        reply.ends_with_connection && reply.field("transfer-encoding").is_none(),
        "{reply:?}"
    );
    assert!(reply.body == stream(1_000_000));
}

fn a_streamed_body_waits_for_a_slow_client(driver: Driver) {
    const LENGTH: usize = 48 << 20;
    const GROWTH_BYTES_MAX: u64 = 8 << 20;
    let server = serve(driver, &[]);
    assert_eq!(server.client().get("/stream/1000000").body.len(), 1_000_000);
    let before = server.process().memory_bytes();
    let mut client = server.client().patient(long_patience());
    client.request("GET", &format!("/zeros/{LENGTH}"), &[]);
    until("the stream to begin", || (!client.is_quiet()).then_some(()));
    let mut most = 0;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        most = most.max(server.process().memory_bytes());
    }
    // A waiting stream holds no worker.
    assert_eq!(server.client().get("/pooled").text(), "pooled");
    let growth = most.saturating_sub(before);
    assert!(
        growth <= GROWTH_BYTES_MAX,
        "{growth} bytes more for one client"
    );
    assert_eq!(client.reply().body.len(), LENGTH);
}

/// A reader that fails half-way: the client must see that the body is not whole.
fn a_body_that_breaks_off_ends_the_connection(driver: Driver) {
    let server = serve(driver, &[]);
    for target in ["/broken/chunked", "/broken/length"] {
        let mut client = server.client();
        client.request("GET", target, &[]);
        let outcome = client.try_reply(Asked::Any);
        let honest = match &outcome {
            Ok(reply) => reply.status == 500,
            Err(why) => why.contains("ended"),
        };
        assert!(honest, "{target}: {outcome:?}");
        assert_eq!(server.client().get("/pooled").text(), "pooled");
    }
}

fn a_chunked_body_that_comes_byte_by_byte_is_received(driver: Driver) {
    let server = serve(driver, &[]);
    let mut client = server.client();
    let head = request_bytes("POST", "/echo", &[("Transfer-Encoding", "chunked")]);
    let body = b"5\r\nhello\r\n1;name=value\r\n,\r\n00006\r\n world\r\n0\r\nTrailer: x\r\n\r\n";
    for _ in 0..2 {
        client.trickle(&head, Duration::from_millis(1));
        client.trickle(body, Duration::from_millis(1));
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, "hello, world"));
    }
    // And all at once, with the next request behind it.
    client.send([head.as_slice(), body, &request_bytes("GET", "/hello", &[])].concat());
    assert_eq!(client.reply().text(), "hello, world");
    assert_eq!(client.reply().text(), "hello");
}

fn a_client_that_expects_100_continue_gets_it(driver: Driver) {
    let server = serve(driver, &[]);
    let mut client = server.client();
    let fields = [("Expect", "100-continue"), ("Content-Length", "5")];
    for _ in 0..2 {
        client.request("POST", "/echo", &fields);
        assert_eq!(client.reply().status, 100);
        client.send(b"hello");
        assert_eq!(client.reply().text(), "hello");
    }
    // A body that is there already needs no invitation, though one does no harm.
    client.send([request_bytes("POST", "/echo", &fields).as_slice(), b"again"].concat());
    let mut reply = client.reply();
    if reply.status == 100 {
        reply = client.reply();
    }
    assert_eq!(reply.text(), "again");
}

fn workers_grow_with_the_work_and_shrink_without_it(driver: Driver) {
    const BUSY: usize = 12;
    const LEAST: usize = 2;
    let server = serve(driver, &["--workers", "2..16"]);
    // A thread sets its name itself, so one that has not run yet is not seen. More than the least
    // may run already if the first one was slow to take the request.
    assert_eq!(server.client().get("/pooled").text(), "pooled");
    until("the first workers to run", || {
        (server.process().workers().len() >= LEAST).then_some(())
    });
    let mut clients: Vec<Client> = (0..BUSY).map(|_| server.client()).collect();
    for client in &mut clients {
        client.request("GET", "/sleep/1500", &[]);
    }
    // All run at once: that takes a worker each.
    await_active(&server, BUSY);
    assert!(server.process().workers().len() >= BUSY);
    for client in &mut clients {
        assert_eq!(client.reply().text(), "slept 1500");
    }
    until("idle workers to end", || {
        (server.process().workers().len() <= LEAST).then_some(())
    });
    assert_eq!(server.client().get("/pooled").text(), "pooled");
}
