//! Drain: what is in flight is finished, who is idle is let go, and there is an end to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatpath_testkit::client::{Ending, request_bytes};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::reply::Asked;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until};
use rustix::process::Signal;

each_driver!(
    requests_in_flight_are_answered_and_told_to_close,
    both_signals_drain_and_idle_connections_are_let_go,
    a_download_in_flight_is_finished,
    streams_of_events_end_at_once,
    new_connections_are_refused_while_others_finish,
    new_connections_are_served_while_the_drain_is_delayed,
    a_delayed_drain_ends_by_itself,
    no_request_is_lost_when_drained_under_load,
    a_second_signal_forces_the_end,
    a_drain_that_takes_too_long_is_forced,
    echo_connections_are_let_go,
);

fn await_active(client: &mut Client, count: usize) {
    until(&format!("{count} handlers to run"), || {
        (client.get("/active").text() == count.to_string()).then_some(())
    });
}

/// Clients whose handlers are running.
fn in_flight(server: &Server, count: usize, target: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for client in &mut clients {
        client.request("GET", target, &[]);
    }
    await_active(&mut server.client(), count);
    clients
}

fn requests_in_flight_are_answered_and_told_to_close(driver: Driver) {
    const CLIENTS: usize = 50;
    let mut server = Launch::handlers(driver)
        .with(["--workers", "2..64"])
        .start();
    let clients = in_flight(&server, CLIENTS, "/sleep/700");
    server.terminate();
    for mut client in clients {
        let reply = client.reply();
        assert_eq!(reply.text(), "slept 700");
        assert!(reply.says_close(), "{reply:?}");
        client.expect_closed();
    }
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn both_signals_drain_and_idle_connections_are_let_go(driver: Driver) {
    let site = Site::new().with("file", "contents");
    for signal in [Signal::TERM, Signal::INT] {
        // Half of the clients never say a word: they are accepted all the same.
        let mut server = Launch::serve(driver)
            .with(["--no-defer-accept"])
            .directory(site.path())
            .start();
        let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
        for client in &mut clients[..25] {
            assert_eq!(client.get("/file").text(), "contents");
        }
        server.process().signal(signal);
        for client in &mut clients {
            client.expect_closed();
        }
        assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
    }
}

fn a_download_in_flight_is_finished(driver: Driver) {
    const LENGTH: usize = 24 << 20;
    let site = Site::new().with("file", vec![b'f'; LENGTH]);
    let mut server = Launch::serve(driver).directory(site.path()).start();
    let mut client = server.client().patient(long_patience());
    client.request("GET", "/file", &[]);
    until("the download to begin", || {
        (!client.is_quiet()).then_some(())
    });
    server.terminate();
    server.await_log("drain");
    let reply = client.reply();
    assert!(
        reply.status == 200 && reply.body.len() == LENGTH,
        "{reply:?}"
    );
    client.expect_closed();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn streams_of_events_end_at_once(driver: Driver) {
    // A test that waits for it fails.
    let mut server = Launch::handlers(driver)
        .with(["--drain-timeout", "3600"])
        .start();
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        client.request("GET", "/events", &[]);
        assert!(client.is_open(), "the head of the stream");
    }
    server.terminate();
    for client in &mut clients {
        let (stream, ending) = client.rest();
        assert!(stream.ends_with(b"\r\n\r\n0\r\n\r\n"), "{stream:?}");
        assert_eq!(ending, Ending::Closed);
    }
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn new_connections_are_refused_while_others_finish(driver: Driver) {
    let mut server = Launch::handlers(driver)
        .with(["--workers", "2..64"])
        .start();
    let address = server.address("http");
    let mut clients = in_flight(&server, 1, "/sleep/3000");
    server.terminate();
    until("new connections to be refused", || {
        std::net::TcpStream::connect_timeout(&address, flatpath_testkit::patience()).err()
    });
    assert_eq!(
        clients[0].reply().text(),
        "slept 3000",
        "who was in is served to the end"
    );
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn new_connections_are_served_while_the_drain_is_delayed(driver: Driver) {
    const REQUESTS: usize = 200;
    let mut server = Launch::handlers(driver)
        .with(["--drain-delay", "3600"])
        .start();
    let mut kept = server.client();
    assert!(!kept.get("/hello").says_close());
    server.terminate();
    let address = server.address("http");
    until("replies to say that they are the last", || {
        let reply = Client::connect(address).get("/hello");
        reply.says_close().then_some(())
    });
    std::thread::scope(|scope| {
        for target in ["/hello", "/pooled", "/sleep/1", "/hello"] {
            scope.spawn(move || {
                for _ in 0..REQUESTS {
                    let mut client = Client::connect(address);
                    let reply = client.get(target);
                    assert!(reply.status == 200 && reply.says_close(), "{reply:?}");
                    client.expect_closed();
                }
            });
        }
    });
    assert!(kept.get("/hello").says_close());
    kept.expect_closed();
    server.force();
    assert!(server.exit_status().code().is_some(), "the second forces");
}

fn a_delayed_drain_ends_by_itself(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let mut server = Launch::serve(driver)
        .with(["--drain-delay", "50ms"])
        .directory(site.path())
        .start();
    let mut kept = server.client();
    assert_eq!(kept.get("/file").text(), "contents");
    server.terminate();
    kept.expect_closed();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

/// Clients go on asking while the server drains. A request that was sent is answered; only where
/// the server had closed an idle connection may a client find it closed, and then without one byte.
fn no_request_is_lost_when_drained_under_load(driver: Driver) {
    const CLIENTS: usize = 24;
    /// Half of the time for which a draining server keeps an idle connection.
    const IN_TIME: Duration = Duration::from_millis(250);
    let mut server = Launch::handlers(driver)
        .with(["--workers", "4..32"])
        .start();
    let address = server.address("http");
    let answered = AtomicUsize::new(0);
    let (told, found_closed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Connected before any load. A client that connects while the listener closes is refused or
    // reset, and on a busy machine a thread may take that long to begin. Its first answer shows
    // that the server has accepted it.
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(address);
            assert_eq!(client.get("/hello").text(), "hello");
            client
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, mut client) in clients.into_iter().enumerate() {
            let (answered, told, found_closed) = (&answered, &told, &found_closed);
            scope.spawn(move || {
                let target = ["/sleep/5", "/hello", "/pooled"][number % 3];
                let mut asked = Instant::now();
                loop {
                    if !client.is_quiet() {
                        client.expect_closed();
                        found_closed.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    let asked_before = std::mem::replace(&mut asked, Instant::now());
                    let sent = client.try_send(request_bytes("GET", target, &[]));
                    // A client that was not scheduled for as long as the server keeps an idle
                    // connection may send to one that is closed already.
                    let in_time = asked_before.elapsed() < IN_TIME;
                    let reply = match client.try_reply(Asked::Any) {
                        Ok(reply) => reply,
                        Err(_) if !in_time && client.rest().0.is_empty() => {
                            found_closed.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        Err(why) => panic!("a request of {target} was lost: {why}, {sent:?}"),
                    };
                    assert_eq!(reply.status, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                    if reply.says_close() {
                        told.fetch_add(1, Ordering::Relaxed);
                        client.expect_closed();
                        return;
                    }
                }
            });
        }
        until("some load", || {
            (answered.load(Ordering::Relaxed) > 500).then_some(())
        });
        server.terminate();
    });
    let (told, found_closed) = (told.into_inner(), found_closed.into_inner());
    assert_eq!(told + found_closed, CLIENTS);
    assert!(told > 0, "some were told with their last reply");
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn a_second_signal_forces_the_end(driver: Driver) {
    let mut server = Launch::handlers(driver)
        .with(["--drain-timeout", "3600"])
        .start();
    let mut clients = in_flight(&server, 2, "/never");
    // `timeout` of coreutils signals the process and its group: that is one signal.
    server.terminate();
    server.terminate();
    server.await_log("drain");
    for client in &mut clients {
        assert!(client.is_quiet(), "the first signal waits");
    }
    server.force();
    let status = server.exit_status();
    assert!(status.code().is_some(), "it ends by itself: {status}");
    for client in &mut clients {
        assert!(client.rest().0.is_empty());
    }
}

fn a_drain_that_takes_too_long_is_forced(driver: Driver) {
    let mut server = Launch::handlers(driver)
        .with(["--drain-timeout", "1"])
        .start();
    let mut clients = in_flight(&server, 2, "/never");
    server.terminate();
    let status = server.exit_status();
    assert!(status.code().is_some(), "it ends by itself: {status}");
    for client in &mut clients {
        assert!(client.rest().0.is_empty());
    }
}

fn echo_connections_are_let_go(driver: Driver) {
    let site = Site::new();
    let mut server = Launch::serve(driver).echo().directory(site.path()).start();
    let mut clients: Vec<Client> = (0..20).map(|_| server.echo_client()).collect();
    for client in &mut clients {
        client.send(b"hello");
        assert_eq!(client.exactly(5), b"hello");
    }
    server.terminate();
    for client in &mut clients {
        let (bytes, ending) = client.rest();
        assert!(bytes.is_empty() && ending == Ending::Closed);
    }
    drop(clients);
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}
