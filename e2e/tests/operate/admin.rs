//! Metrics and health checks of the command: what `--admin` shows, and what others make of it.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use flatpath_testkit::child::free_address;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, tools, until};

each_driver!(
    promtool_accepts_a_scrape_under_load,
    metrics_count_what_clients_did,
    metrics_count_what_services_did,
    readiness_ends_with_the_first_signal_and_metrics_last,
    a_server_that_takes_over_answers_at_the_same_address,
);

/// A server of every kind of listener, with the page `hello`.
fn serve(driver: Driver, site: &Site) -> Server {
    let socket = site.at("ingest.socket");
    Launch::serve(driver)
        .directory(site.path())
        .echo()
        .with(["--writable", "--nfs", "127.0.0.1:0"])
        .with(["--relay", "127.0.0.1:0"])
        .with(["--ingest", "127.0.0.1:0", "--ingest-memory", "8M"])
        .with(["--ingest-socket".as_ref(), socket.as_os_str()])
        .with(["--admin", "127.0.0.1:0", "--network-threads", "2"])
        .with(["--nfs-state", state_of(site).as_str()])
        .start()
}

/// Beside the directory that is exported.
fn state_of(site: &Site) -> String {
    format!("{}.state", site.path().display())
}

fn scrape(admin: SocketAddr) -> String {
    let mut client = Client::connect(admin);
    let reply = client.get("/metrics");
    let media_type = reply.field("content-type");
    assert_eq!(media_type, Some("text/plain; version=0.0.4; charset=utf-8"));
    reply.text().to_owned()
}

/// The sum of a family's samples that have all of these labels.
fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = metrics.lines().filter_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let (found, own) = sample.split_once('{').unwrap_or((sample, ""));
        let has_all = labels.iter().all(|label| own.contains(label));
        (found == name && has_all).then(|| value.parse::<f64>().expect("a number"))
    });
    samples.sum()
}

/// The names of all families.
fn families(metrics: &str) -> BTreeSet<String> {
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| line.split(' ').next().expect("a name").to_owned())
        .collect()
}

fn promtool_accepts_a_scrape_under_load(driver: Driver) {
    let Some(promtool) = tools::find("promtool") else {
        return;
    };
    let site = Site::new().with("hello", "hello");
    let server = serve(driver, &site);
    let admin = server.address("admin");
    let clients: Vec<Client> = (0..50)
        .map(|number| {
            let mut client = server.client();
            for _ in 0..number % 7 {
                assert_eq!(client.get("/hello").status, 200);
            }
            client.request("GET", "/nowhere", &[]);
            client
        })
        .collect();
    let metrics = scrape(admin);
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    let mut input = check.stdin.take().expect("piped");
    input.write_all(metrics.as_bytes()).expect("it reads");
    drop(input);
    let output = check.wait_with_output().expect("it ends");
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{said}");
    drop(clients);
}

fn metrics_count_what_clients_did(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let server = serve(driver, &site);
    let admin = server.address("admin");
    let before = scrape(admin);
    assert!(sum(&before, "flatpath_connections", &[]) < 0.5, "{before}");
    let mut client = server.client();
    for (target, status) in [("/hello", 200), ("/hello", 200), ("/nowhere", 404)] {
        assert_eq!(client.get(target).status, status);
    }
    let mut echo = server.echo_client();
    echo.send(b"12345");
    assert_eq!(echo.exactly(5), b"12345");
    let http = "listener=\"http\"";
    let metrics = until("all is counted", || {
        let metrics = scrape(admin);
        let sent = sum(
            &metrics,
            "flatpath_sent_bytes_total",
            &["listener=\"echo\""],
        );
        let replied = sum(
            &metrics,
            "flatpath_requests_total",
            &[http, "class=\"4xx\""],
        );
        (sent > 4.5 && replied > 0.5).then_some(metrics)
    });
    for (name, labels, expected) in [
        ("flatpath_connections", vec![http], 1.0),
        ("flatpath_connections_accepted_total", vec![http], 1.0),
        ("flatpath_requests_total", vec![http, "class=\"2xx\""], 2.0),
        ("flatpath_requests_total", vec![http, "class=\"4xx\""], 1.0),
        ("flatpath_requests_total", vec![http, "class=\"5xx\""], 0.0),
        (
            "flatpath_received_bytes_total",
            vec!["listener=\"echo\""],
            5.0,
        ),
        ("flatpath_ready", vec![], 1.0),
        (
            "flatpath_network_thread_info",
            vec![driver_label(driver)],
            2.0,
        ),
        ("flatpath_descriptors", vec!["purpose=\"connections\""], 2.0),
    ] {
        let found = sum(&metrics, name, &labels);
        assert!(
            (found - expected).abs() < 0.1,
            "{name} {labels:?}: {found}\n{metrics}"
        );
    }
    assert!(sum(&metrics, "flatpath_turn_seconds_count", &[]) >= 2.0);
}

fn metrics_count_what_services_did(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let server = serve(driver, &site);
    let admin = server.address("admin");
    let mut rude = Client::connect(server.address("relay"));
    rude.send(b"please\n");
    assert_eq!(rude.rest().0, b"bad handshake\n");
    let mut alone = Client::connect(server.address("relay"));
    let token = "ab".repeat(32);
    alone.send(format!("please relay {token} for side 0000000000000001\n").as_bytes());
    let mut producer = Client::connect(server.address("ingest"));
    producer.send([0, 0, 0, 4]);
    let relay = format!("address=\"{}\"", server.address("relay"));
    let ingest = format!("address=\"{}\"", server.address("ingest"));
    for (name, labels) in [
        (
            "flatpath_relay_clients_unserved_total",
            vec![relay.as_str(), "reason=\"bad_handshake\""],
        ),
        ("flatpath_relay_clients_unserved_total", vec![]),
        ("flatpath_relay_clients_waiting", vec![relay.as_str()]),
        ("flatpath_ingest_producers", vec![ingest.as_str()]),
    ] {
        until(name, || {
            let found = sum(&scrape(admin), name, &labels);
            assert!(found < 1.5, "{name} {labels:?}: {found}");
            (found > 0.5).then_some(())
        });
    }
}

fn driver_label(driver: Driver) -> &'static str {
    match driver {
        Driver::Uring => "driver=\"uring\"",
        Driver::Epoll => "driver=\"epoll\"",
    }
}

fn readiness_ends_with_the_first_signal_and_metrics_last(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let mut server = Launch::serve(driver)
        .directory(site.path())
        .with(["--admin", "127.0.0.1:0", "--drain-delay", "1h"])
        .start();
    let admin = server.address("admin");
    let status = |target: &str| Client::connect(admin).get(target).status;
    assert_eq!((status("/healthz"), status("/readyz")), (200, 200));
    server.terminate();
    until("it is not ready", || {
        (status("/readyz") == 503).then_some(())
    });
    // Still served, and healthy.
    assert_eq!(server.client().get("/hello").status, 200);
    assert_eq!(status("/healthz"), 200);
    assert!(sum(&scrape(admin), "flatpath_ready", &[]) < 0.5);
    server.force();
    server.exit_status();
}

fn a_server_that_takes_over_answers_at_the_same_address(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let run = Site::new();
    let path = run.at("next").display().to_string();
    let admin = free_address().expect("a free port");
    let start = || {
        Launch::serve(driver)
            .directory(site.path())
            .with(["--admin", &admin.to_string(), "--handover", path.as_str()])
            .start()
    };
    let mut first = start();
    let _second = start();
    assert!(first.exit_status().success(), "{}", first.log());
    assert!(sum(&scrape(admin), "flatpath_ready", &[]) > 0.5);
}

/// Every name that is exported is in the book's table, and no other.
#[test]
fn the_book_has_a_line_for_each_metric() {
    let site = Site::new().with("hello", "hello");
    let server = serve(Driver::Epoll, &site);
    let exported = families(&scrape(server.address("admin")));
    let book = include_str!("../../../book/src/operate.md");
    let lines = book.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<String> = lines
        .filter_map(|line| line.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.starts_with("flatpath_") || name.starts_with("process_"))
        .collect();
    let missing: Vec<_> = exported.difference(&told).collect();
    let others: Vec<_> = told.difference(&exported).collect();
    assert!(missing.is_empty(), "not in the book: {missing:?}");
    assert!(others.is_empty(), "only in the book: {others:?}");
}
