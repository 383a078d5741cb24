//! What is shown of a server whose network thread a handler blocks. On both drivers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flatpath_admin::Admin;
use flatpath_admin::flatpath::metrics::{Kind, Metric, read};
use flatpath_admin::flatpath::{
    Context, DriverChoice, ListenerOptions, Protocol, Received, Server,
};
use flatpath_testkit::{drivers_here, until};
use serde_json::Value;

use crate::get::get;

/// The first byte of each connection blocks its network thread until the test lets go.
struct Blocks(Arc<AtomicBool>);

impl Protocol for Blocks {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("blocks")
    }

    fn received(&self, context: &mut Context<'_, Self>, _: &[u8]) -> Received {
        until("the test to let go", || {
            self.0.load(Ordering::Acquire).then_some(())
        });
        context.close_after_output();
        Received::Consumed
    }
}

/// Lets go also when the test fails.
struct LetGo(Arc<AtomicBool>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn status(address: SocketAddr) -> Value {
    let reply = get(address, "/status.json");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let media_type = "\r\nContent-Type: application/json\r\n";
    assert!(head.contains(media_type), "{head}");
    serde_json::from_str(body).expect("it is JSON")
}

/// The value of a sample.
fn value(metrics: &str, sample: &str) -> f64 {
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(sample)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{sample} is not in {metrics}"))
}

fn a_stuck_network_thread_is_shown(choice: DriverChoice) {
    let is_over = Arc::new(AtomicBool::new(false));
    let let_go = LetGo(Arc::clone(&is_over));
    let admin = Admin::new();
    let beside = admin.serve("127.0.0.1:0").expect("started");
    let address = beside.addresses()[0].address;
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503 "));
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(value(&get(address, "/metrics"), "flatpath_ready") < 0.5);
    assert_eq!(status(address)["state"], "starting");
    admin.slow(Some(Duration::from_millis(50)));
    let server = Server::new().driver(choice);
    let server = server.listen("127.0.0.1:0", Blocks(Arc::clone(&is_over)));
    let running = server.start().expect("started");
    admin.attach(running.handle());
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(value(&get(address, "/metrics"), "flatpath_ready") > 0.5);
    let is_lost = Arc::new(AtomicBool::new(true));
    let lost = Arc::clone(&is_lost);
    let reasons = move || Vec::from_iter(lost.load(Ordering::Relaxed).then(|| "lost".to_owned()));
    admin.ready_unless(reasons);
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503 "));
    assert!(value(&get(address, "/metrics"), "flatpath_ready") < 0.5);
    is_lost.store(false, Ordering::Relaxed);
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(value(&get(address, "/metrics"), "flatpath_ready") > 0.5);
    let mut client = TcpStream::connect(running.addresses()[0].address).expect("connected");
    client.write_all(b"x").expect("written");
    let age = "flatpath_turn_age_seconds{thread=\"0\"}";
    let metrics = until("the turn to get old", || {
        let metrics = get(address, "/metrics");
        (value(&metrics, age) >= 0.1).then_some(metrics)
    });
    let bound = running.addresses()[0].address;
    let slow = format!("flatpath_slow_handlers{{listener=\"blocks\",address=\"{bound}\"}}");
    assert!(value(&metrics, &slow) > 0.5);
    let shown = status(address);
    assert_eq!(shown["state"], "running");
    assert_eq!(shown["turns"][0]["listener"], "blocks");
    assert_eq!(shown["slow_handlers"][0]["address"], bound.to_string());
    assert_eq!(shown["slow_handlers"][0]["inline"], true);
    drop(let_go);
    until("the network thread to wait", || {
        (value(&get(address, "/metrics"), age) < 0.01).then_some(())
    });
    let handle = running.handle();
    handle.drain();
    // Seen from the moment on, whatever the network threads are at.
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503 "));
    running.wait().expect("a clean end");
    let ended = get(address, "/metrics");
    assert!(ended.contains("\nflatpath_ready 0\n"), "{ended}");
    assert_eq!(status(address)["state"], "draining");
    drop(beside);
}

#[test]
fn a_scrape_shows_a_network_thread_that_is_stuck() {
    let drivers = drivers_here(DriverChoice::Uring, DriverChoice::Epoll);
    let tests =
        drivers.map(|choice| thread::spawn(move || a_stuck_network_thread_is_shown(choice)));
    for test in tests.collect::<Vec<_>>() {
        test.join().expect("it holds");
    }
}

#[test]
fn what_is_not_there_is_not_found_and_nothing_can_be_changed() {
    let admin = Admin::new();
    let beside = admin.serve("127.0.0.1:0").expect("started");
    let address = beside.addresses()[0].address;
    assert!(get(address, "/x").starts_with("HTTP/1.1 404 "));
    let mut client = TcpStream::connect(address).expect("connected");
    let request = b"DELETE /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.write_all(request).expect("written");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("an answer");
    assert!(reply.starts_with("HTTP/1.1 405 "), "{reply}");
    assert!(reply.contains("\r\nAllow: GET, HEAD\r\n"), "{reply}");
}

/// A metric of the program's own.
const LOGINS: &[Metric<u64>] = &[Metric::counter(
    "app_logins_total",
    "Logins.",
    &["by"],
    |it, out| out.put(&["\"key\""], *it),
)];

#[test]
fn a_row_of_a_table_is_in_every_answer() {
    let admin = Admin::new();
    admin.source(|| read(LOGINS, &3));
    let beside = admin.serve("127.0.0.1:0").expect("started");
    let address = beside.addresses()[0].address;
    let metrics = get(address, "/metrics");
    let expected = "# HELP app_logins_total Logins.\n# TYPE app_logins_total counter\n\
                    app_logins_total{by=\"\\\"key\\\"\"} 3\n";
    assert!(metrics.ends_with(expected), "{metrics}");
    let shown = status(address);
    let logins = &shown["metrics"]["app_logins_total"];
    assert_eq!(logins["help"], "Logins.");
    assert_eq!(logins["samples"][0]["labels"]["by"], "\"key\"");
    assert_eq!(logins["samples"][0]["value"], 3);
}

/// Text and JSON have the metrics of the tables, each once, and no other; their names say what they
/// are.
#[test]
fn the_answers_have_what_the_tables_have() {
    let admin = Admin::new();
    let server = Server::new().listen("127.0.0.1:0", Blocks(Arc::default()));
    let running = server.start().expect("started");
    admin.attach(running.handle());
    let beside = admin.serve("127.0.0.1:0").expect("started");
    let address = beside.addresses()[0].address;
    let families = admin.metrics();
    let mut names: Vec<_> = families.iter().map(|family| family.name).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    for family in &families {
        let is_counter = family.kind == Kind::Counter;
        assert_eq!(
            family.name.ends_with("_total"),
            is_counter,
            "{}",
            family.name
        );
        assert!(
            family.help.ends_with('.') && !family.help.contains('\n'),
            "{}",
            family.help
        );
        let count = family.labels.len();
        assert!(
            family.samples.iter().all(|it| it.labels.len() == count),
            "{}",
            family.name
        );
    }
    let text = get(address, "/metrics");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut told: Vec<_> = types.filter_map(|line| line.split(' ').next()).collect();
    told.sort_unstable();
    assert_eq!(told, names);
    let shown = status(address);
    let mut told: Vec<_> = shown["metrics"]
        .as_object()
        .expect("an object")
        .keys()
        .collect();
    told.sort_unstable();
    assert_eq!(told, names);
}
