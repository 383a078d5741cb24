//! The application and its twin give the same replies: else the bench would compare other work.

#![forbid(unsafe_code)]

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use flatpath_test::{HttpClient, Reply, Requests, Socket, Wire};
use flatpath_testkit::child::{self, Child};
use serde_json::{Value, json};
use tempfile::TempDir;

const HARNESS: &str = env!("CARGO_BIN_EXE_flatpath-peers");
const PUBLIC: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/bookmarks/public"
);
const FORM: &str = "multipart/form-data; boundary=b";
const PART: &str = "--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n";
/// Headers whose values are to be the same. From which length on a body is compressed is the
/// library's affair; what it was before is compared.
const COMPARED: [&str; 8] = [
    "allow",
    "content-security-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "location",
    "referrer-policy",
    "x-content-type-options",
    "x-frame-options",
];

/// A server in a process of its own.
struct Twin {
    address: SocketAddr,
    process: Child,
    _directory: TempDir,
}

impl Twin {
    fn start(kind: &str) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut command = child::command(Path::new(HARNESS), &[]);
        command.args(["serve", kind, "--driver", "epoll", "--public", PUBLIC]);
        command
            .arg("--database")
            .arg(directory.path().join("bookmarks.db"));
        let mut process = Child::start(&mut command).expect("started");
        let address = process.listeners().expect("listening")[0].1;
        Self {
            address,
            process,
            _directory: directory,
        }
    }
}

/// What is compared of a reply: not the words in which an extractor refuses.
fn told(what: &str, reply: &Reply) -> String {
    let of_type = reply.field("content-type").unwrap_or_default();
    let of_type = of_type.split(';').next().unwrap_or_default();
    let mut text = format!("{what}: {} {of_type}\n", reply.status);
    for name in COMPARED {
        let mut names: Vec<_> = reply.field(name).unwrap_or_default().split(',').collect();
        if name == "allow" {
            names.iter_mut().for_each(|it| *it = it.trim());
            names.sort_unstable();
            // Ours answers OPTIONS.
            names.retain(|it| *it != "OPTIONS");
        }
        text += &format!("  {name}: {}\n", names.join(",").to_ascii_lowercase());
    }
    assert!(
        reply.field("x-request-id").is_some_and(|id| id.len() >= 32),
        "{reply:?}"
    );
    let mut body = Vec::new();
    match reply.field("content-encoding") {
        Some("gzip") => {
            let mut decoder = flate2::read::GzDecoder::new(&*reply.body);
            decoder.read_to_end(&mut body).expect("gzip");
        }
        _ => body.clone_from(&reply.body),
    }
    text += &match serde_json::from_slice::<Value>(&body) {
        Ok(value) if of_type == "application/problem+json" => {
            format!("{} {}", value["status"], value["title"])
        }
        Ok(mut value) => {
            forget_times(&mut value);
            value.to_string()
        }
        Err(_) => String::from_utf8(body).expect("text"),
    };
    text
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("added_at");
            members.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// The session's cookie, with what is compared of its line.
fn cookie(reply: &Reply) -> (String, String) {
    let line = reply.field("set-cookie").expect("a cookie");
    let (cookie, attributes) = line.split_once("; ").expect("attributes");
    let mut attributes: Vec<_> = attributes
        .split("; ")
        .filter(|it| !it.contains("xpires="))
        .collect();
    attributes.sort_unstable();
    (cookie.to_owned(), attributes.join("; "))
}

/// The lines of the events that were received, when this one is there.
fn events(socket: &mut Socket, last: &str) -> Vec<String> {
    let mut received = String::new();
    while !received.contains(last) || !received.ends_with("\n\n\r\n") {
        let bytes = socket
            .receive()
            .unwrap_or_else(|| panic!("ended without {last}: {received}"));
        received.push_str(std::str::from_utf8(&bytes).expect("text"));
    }
    let is_field = |line: &&str| {
        ["event:", "id:", "data:"]
            .iter()
            .any(|it| line.starts_with(it))
    };
    let lines = received.lines().filter(is_field);
    let lines = lines.map(|line| match line.strip_prefix("data: {") {
        Some(json) => {
            let mut value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
            forget_times(&mut value);
            format!("data: {value}")
        }
        None => line.trim_end().to_owned(),
    });
    let mut lines: Vec<_> = lines.collect();
    // Their order within an event means nothing.
    lines.sort_unstable();
    lines
}

/// A client with a session, and what was answered so far.
struct Day {
    address: SocketAddr,
    client: HttpClient<Socket>,
    session: String,
    seen: Vec<String>,
}

const ONE: &str = "/api/bookmarks/1";
const ALL: &str = "/api/bookmarks";
const TYPED: [(&str, &str); 1] = [("content-type", "application/json")];

fn draft(title: &str) -> Value {
    json!({"url": "https://a.example", "title": title, "tags": ["a"]})
}

impl Day {
    fn begin(twin: &Twin) -> Self {
        let mut day = Self {
            address: twin.address,
            client: HttpClient::connect(twin.address),
            session: String::new(),
            seen: Vec::new(),
        };
        for path in [ALL, ONE, "/api/events"] {
            day.ask("GET", path, &[], b"");
        }
        let mut sign_in = |password: &str| {
            let body = json!({"name": "ada", "password": password}).to_string();
            day.ask("POST", "/api/session", &TYPED, body.as_bytes())
        };
        sign_in("byron");
        let (session, attributes) = cookie(&sign_in("lovelace"));
        day.seen.push(attributes);
        day.session = format!("{session}x");
        day.ask("GET", ALL, &[], b"");
        day.session = session;
        day
    }

    fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Reply {
        let request = self.client.request(method, path).body(body);
        let request = request.header("cookie", &self.session);
        let fields = fields.iter();
        let with = fields.fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let reply = with.send();
        let about = String::from_utf8_lossy(&body[..body.len().min(100)]);
        self.seen
            .push(told(&format!("{method} {path} {about}"), &reply));
        reply
    }

    /// Sends a request that is refused before its body is read. hyper closes the connection after
    /// such a reply if the body did not arrive with the head, so the next request has a new one.
    fn ask_in_vain(&mut self, method: &str, fields: &[(&str, &str)]) {
        self.ask(method, ALL, fields, b"{}");
        self.client = HttpClient::connect(self.address);
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) {
        self.ask(method, path, &TYPED, body.to_string().as_bytes());
    }

    fn bookmarks(&mut self) {
        self.send("POST", ALL, &draft("one"));
        self.send("POST", ALL, &draft(" "));
        self.send("POST", ALL, &json!({"url": "ftp://a", "title": "a"}));
        self.send("POST", ALL, &json!({"url": "https://a.example"}));
        self.send("PUT", ONE, &draft("two"));
        self.send("PUT", "/api/bookmarks/9", &draft("two"));
        self.ask("POST", ALL, &TYPED, b"{");
        self.ask_in_vain("POST", &[]);
        self.ask_in_vain("PUT", &TYPED);
        for path in [
            ONE,
            ALL,
            "/api/bookmarks/9",
            "/api/bookmarks/one",
            "/api/bookmarks?after=one",
            "/api/nothing",
            "/",
            "/app.js",
            "/nothing",
        ] {
            self.ask("GET", path, &[], b"");
        }
    }

    fn imports(&mut self) {
        let titles = (0..120).map(|number| draft(&format!("title {number}")));
        let drafts = Value::from(titles.collect::<Vec<_>>());
        let form = [("content-type", FORM)];
        for file in [drafts, json!("none")] {
            let body = format!("{PART}{file}\r\n--b--\r\n");
            self.ask("POST", "/api/import", &form, body.as_bytes());
        }
        self.ask("POST", "/api/import", &form, b"--b--\r\n");
        let gzip = [("accept-encoding", "gzip")];
        for query in [
            "limit=100",
            "limit=1000&after=10",
            "after=100&tag=a",
            "tag=b",
        ] {
            self.ask("GET", &format!("{ALL}?{query}"), &gzip, b"");
        }
    }

    fn listen(&self, last: u32) -> Socket {
        let mut socket = Socket::connect(self.address);
        let cookie = &self.session;
        let head = format!("GET /api/events HTTP/1.1\r\nHost: h\r\nCookie: {cookie}\r\n");
        socket.send(format!("{head}Last-Event-ID: {last}\r\n\r\n").as_bytes());
        socket
    }

    /// The last bookmark has the number 122.
    fn end(mut self) -> Vec<String> {
        let mut late = self.listen(1);
        self.send("POST", ALL, &draft("last"));
        self.ask("DELETE", ONE, &[], b"");
        self.ask("DELETE", ONE, &[], b"");
        let out = self.ask("DELETE", "/api/session", &[], b"");
        // What else a cookie says that is over means nothing.
        let (over, about) = cookie(&out);
        assert!(
            about.contains("Max-Age=0") && about.contains("Path=/"),
            "{about}"
        );
        self.seen.push(over);
        self.seen.extend(events(&mut late, "id: 122"));
        // An event that never was.
        self.seen.extend(events(&mut self.listen(77), "id: 122"));
        self.seen
    }
}

/// Everything that is asked, with what came back.
fn day(twin: &Twin) -> Vec<String> {
    let mut day = Day::begin(twin);
    day.bookmarks();
    day.imports();
    day.end()
}

#[test]
fn the_application_and_its_twin_give_the_same_replies() {
    let [ours, axum] = ["app-epoll", "app-axum"].map(Twin::start);
    let (ours_seen, axum_seen) = (day(&ours), day(&axum));
    for (ours, axum) in ours_seen.iter().zip(&axum_seen) {
        assert_eq!(ours, axum);
    }
    assert_eq!(ours_seen.len(), axum_seen.len());
}

#[test]
fn both_end_when_asked_to_although_clients_listen() {
    for kind in ["app-epoll", "app-axum"] {
        let twin = Twin::start(kind);
        let mut client = HttpClient::connect(twin.address);
        let credentials = json!({"name": "ada", "password": "lovelace"});
        let (session, _) = cookie(&client.post("/api/session").json(&credentials).expect(204));
        let mut socket = Socket::connect(twin.address);
        let head = format!("GET /api/events HTTP/1.1\r\nHost: h\r\nCookie: {session}\r\n\r\n");
        socket.send(head.as_bytes());
        assert!(
            socket
                .receive()
                .is_some_and(|head| head.starts_with(b"HTTP/1.1 200 "))
        );
        drop(client);
        let ended = twin.process.stop(std::time::Duration::from_secs(30));
        ended.unwrap_or_else(|error| panic!("{kind}: {error}"));
        while socket.receive().is_some() {}
    }
}
