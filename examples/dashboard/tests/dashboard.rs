//! The dashboard on real sockets, with both drivers, and in the simulation.

use std::time::Duration;

use flatpath::{DriverChoice, Running, Server};
use flatpath_example_dashboard::{Dashboard, Sample};
use flatpath_test::{Client as SimulatedClient, Conditions, TestServer, each_seed};
use flatpath_testkit::websocket::{HANDSHAKE, TEXT, frame, next_frame, open};
use flatpath_testkit::{Client, drivers_here};
use serde_json::Value;

/// Nothing is measured a second time in this.
const HOUR: Duration = Duration::from_secs(3600);

fn serve(choice: DriverChoice, dashboard: &Dashboard) -> Running {
    let server = Server::new().driver(choice);
    let server = server.listen("127.0.0.1:0", dashboard.service());
    server.start().expect("it starts")
}

/// A client of the events.
struct Listener {
    client: Client,
    /// What of a chunk was not looked at yet.
    unread: String,
}

impl Listener {
    /// Back after the event with this id.
    fn open(running: &Running, last_id: Option<u64>) -> Self {
        let mut client = Client::connect(running.addresses()[0].address);
        let last_id = last_id.map(|id| id.to_string());
        let fields = last_id.as_deref().map(|id| ("Last-Event-ID", id));
        client.request("GET", "/events", fields.as_slice());
        let head = client.until("\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 200 "));
        let unread = String::new();
        Self { client, unread }
    }

    /// The next event: its id, which its data have as well, and its data.
    fn next(&mut self) -> (u64, Value) {
        loop {
            if let Some((event, rest)) = self.unread.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.unread = rest;
                // A comment keeps the connection alive.
                if !event.starts_with(':') {
                    return parsed(&event);
                }
                continue;
            }
            let length = self.client.line();
            let length = usize::from_str_radix(length.trim(), 16).expect("a chunk");
            let chunk = self.client.exactly(length);
            self.unread += &String::from_utf8(chunk).expect("UTF-8");
            assert_eq!(self.client.exactly(2), b"\r\n");
        }
    }

    fn next_of(&mut self, count: usize) -> Vec<(u64, Value)> {
        (0..count).map(|_| self.next()).collect()
    }
}

fn parsed(event: &str) -> (u64, Value) {
    let lines = event.split_once("\ndata: ");
    let (id, data) = lines.unwrap_or_else(|| panic!("no update: {event}"));
    let id = id.strip_prefix("id: ").expect("an id").parse();
    let data: Value = serde_json::from_str(data).expect("JSON");
    let id = id.expect("a number");
    assert_eq!(data["id"], id);
    (id, data)
}

fn socket(running: &Running) -> Client {
    let mut client = Client::connect(running.addresses()[0].address);
    open(&mut client, "/socket");
    client
}

/// The next message of a socket.
fn heard(client: &mut Client) -> Value {
    let (first, text) = next_frame(|bytes| client.exactly(bytes));
    assert_eq!(first, TEXT);
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn what_is_measured_comes_to_events_and_sockets_and_none_is_missed() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let dashboard = Dashboard::new(HOUR);
        let running = serve(choice, &dashboard);
        let meter = dashboard.start_meter().expect("it measures");
        // The first is there for all, however late they come.
        let mut leaver = Listener::open(&running, None);
        let mut stayer = Listener::open(&running, None);
        let mut viewer = socket(&running);
        let (first, update) = leaver.next();
        assert!(update["memory_bytes"].as_u64() > update["memory_used_bytes"].as_u64());
        assert!(update["memory_used_bytes"].as_u64() > Some(0));
        assert!(update["load"].as_f64() >= Some(0.0));
        assert_eq!(update["interval_ms"], 3_600_000);
        assert_eq!(
            (stayer.next(), heard(&mut viewer)),
            ((first, update.clone()), update)
        );
        // The next one would come in an hour.
        viewer.send(frame(TEXT, r#"{"interval_ms":50}"#));
        let (last_id, update) = leaver.next_of(3).pop().expect("three");
        assert_eq!((last_id, &update["interval_ms"]), (first + 3, &50.into()));
        drop(leaver);
        // It misses these.
        let all = stayer.next_of(8);
        let mut back = Listener::open(&running, Some(last_id));
        assert_eq!(back.next_of(5), all[3..]);
        let ids: Vec<u64> = all.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, (first + 1..=first + 8).collect::<Vec<_>>());
        // The socket has kept up, and has the same.
        for (_, update) in &all {
            assert_eq!(heard(&mut viewer), *update);
        }
        // One that comes now begins with the latest.
        let newest = heard(&mut socket(&running))["id"].as_u64().expect("an id");
        assert!(newest >= first + 8);
        drop(meter);
        running.handle().drain();
        drop((viewer, stayer, back));
        running.wait().expect("it ends");
    }
}

#[test]
fn commands_that_make_no_sense_change_nothing_and_their_client_learns_why() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let dashboard = Dashboard::new(HOUR);
        let running = serve(choice, &dashboard);
        let (mut viewer, mut other) = (socket(&running), socket(&running));
        let mut refused = |command: &str, why: &str| {
            viewer.send(frame(TEXT, command));
            let error = heard(&mut viewer)["error"].to_string();
            assert!(error.contains(why), "{command}: {error}");
        };
        refused("faster", "expected ident");
        refused("{}", "missing field `interval_ms`");
        refused(r#"{"interval_ms":49}"#, "50 to 3600000");
        refused(r#"{"interval_ms":3600001}"#, "50 to 3600000");
        refused(r#"{"interval_ms":100,"for":"me"}"#, "unknown field `for`");
        // A frame of bytes.
        viewer.send(frame(0x82, r#"{"interval_ms":100}"#));
        assert_eq!(heard(&mut viewer)["error"], "text only");
        dashboard.publish(&Sample::default());
        for client in [&mut viewer, &mut other] {
            assert_eq!(heard(client)["interval_ms"], 3_600_000);
        }
        running.handle().drain();
        drop((viewer, other));
        running.wait().expect("it ends");
    }
}

#[test]
fn the_page_is_there_and_pages_of_other_servers_get_no_socket() {
    let running = serve(DriverChoice::Epoll, &Dashboard::new(HOUR));
    let mut client = Client::connect(running.addresses()[0].address);
    let page = client.get("/");
    assert!(page.text().contains("new EventSource(\"events\")"));
    assert!(page.text().contains("new WebSocket("));
    let foreign = [&HANDSHAKE[..], &[("Origin", "https://elsewhere.example")]].concat();
    client.request("GET", "/socket", &foreign);
    assert_eq!(client.reply().status, 403);
    drop(client);
    running.handle().drain();
    running.wait().expect("it ends");
}

/// Whether what was published last has come to a simulated listener, and which ids came before it.
fn ids_up_to(server: &mut TestServer, client: &SimulatedClient, last: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    while ids.last() != Some(&last) {
        let line = server.read_line(client);
        ids.extend(
            line.strip_prefix("id: ")
                .map(|id| id.trim().parse::<u64>().expect("an id")),
        );
    }
    ids
}

#[test]
fn sim_a_client_that_comes_back_again_and_again_misses_nothing() {
    each_seed(30, |seed| {
        let dashboard = Dashboard::new(HOUR);
        let mut server = TestServer::new(Conditions::rough(seed), dashboard.service());
        let publish = || dashboard.publish(&Sample::default());
        publish();
        let viewer = server.connect();
        viewer.write(b"GET /socket HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in HANDSHAKE {
            viewer.write(format!("{name}: {value}\r\n").as_bytes());
        }
        viewer.write(b"\r\n");
        while server.read_line(&viewer) != "\r\n" {}
        let latest = |server: &mut TestServer| {
            let (_, text) = next_frame(|bytes| server.read_exact(&viewer, bytes));
            let update: Value = serde_json::from_slice(&text).expect("JSON");
            update["id"].as_u64().expect("an id")
        };
        let first = latest(&mut server);
        let mut seen = vec![first];
        for round in 0..4 {
            for _ in 0..=round {
                publish();
            }
            let last = (0..=round)
                .map(|_| latest(&mut server))
                .last()
                .expect("one");
            let client = server.connect();
            let back = seen[seen.len() - 1];
            client.write(
                format!("GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {back}\r\n\r\n")
                    .as_bytes(),
            );
            seen.extend(ids_up_to(&mut server, &client, last));
        }
        assert_eq!(seen, (first..=first + 10).collect::<Vec<_>>());
    });
}
