//! What a reload changes, as a client sees it: each setting there and back again (A, B, A), the
//! settings of two tables of one protocol, and times of the drain that were raised.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::{Duration, Instant};

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::reply::Reply;
use flatpath_testkit::site::ADA;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until_true};
use rustix::process::Signal;

each_driver!(
    each_setting_changes_there_and_back_as_clients_see_it,
    two_tables_of_one_protocol_have_limits_of_their_own_there_and_back,
    a_drain_has_the_time_that_a_reload_gave_it,
);

/// Where a scene's lines stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Above,
    Site,
}

/// A setting, its lines at first and then, and what a client sees of each.
struct Scene {
    name: &'static str,
    at: At,
    lines: [&'static str; 2],
    sees: fn(&Seen<'_>) -> String,
    seen: [&'static str; 2],
}

/// A server as its clients see it.
struct Seen<'a> {
    server: &'a Server,
    run: &'a Site,
    /// Of which round: names that are used once.
    round: usize,
}

/// How often a client looks at most.
const TRIES: usize = 5;

/// What is longer than a deadline of `SHORT`.
const LONGER: Duration = Duration::from_millis(600);
const SHORT: &str = "0.1";

impl Seen<'_> {
    fn client(&self) -> Client {
        self.server.client()
    }

    fn ask(&self, line: &str, fields: &str, body: &str) -> Reply {
        let length = match body.is_empty() {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n{body}");
        self.client().exchange(head)
    }

    fn status(&self, line: &str) -> String {
        self.ask(line, "", "").status.to_string()
    }

    fn field(&self, line: &str, fields: &str, name: &str) -> String {
        let reply = self.ask(line, fields, "");
        reply.field(name).unwrap_or("none").to_owned()
    }

    fn put(&self, bytes: usize) -> String {
        match self.ask("PUT /put", "", &"x".repeat(bytes)).status {
            201 | 204 => "stored".into(),
            status => status.to_string(),
        }
    }

    fn begin_upload(&self, name: &str, bytes: usize) -> Reply {
        let fields = format!(
            "Tus-Resumable: 1.0.0\r\nUpload-Length: {bytes}\r\nUpload-Metadata: filename {name}\r\n"
        );
        self.ask("POST /", &format!("{fields}Content-Length: 0\r\n"), "")
    }

    fn end_upload(&self, reply: &Reply) {
        if let Some(place) = reply.field("location") {
            let ended = self.ask(&format!("DELETE {place}"), "Tus-Resumable: 1.0.0\r\n", "");
            assert_eq!(ended.status, 204, "{ended:?}");
        }
    }

    /// Whether a client is still served after it sent this and then nothing.
    fn stays(&self, mut client: Client, sent: &str) -> String {
        client.send(sent);
        match stays_quiet(&mut client) {
            true => "stays".into(),
            false => "ended".into(),
        }
    }

    /// A client of the relay that waits for its partner.
    fn relayed(&self, side: char) -> Client {
        let mut client = Client::connect(self.server.address("relay"));
        let (token, side) = ("a".repeat(64), side.to_string().repeat(16));
        client.send(format!("please relay {token} for side {side}\n"));
        client
    }
}

/// Whether nothing comes to a client, not even the end, for longer than a short deadline.
fn stays_quiet(client: &mut Client) -> bool {
    let begun = Instant::now();
    while client.is_quiet() {
        if begun.elapsed() > LONGER {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn idles(seen: &Seen<'_>) -> String {
    let mut client = seen.client();
    assert_eq!(client.get("/page").status, 200);
    seen.stays(client, "")
}

fn sends_half_a_body(seen: &Seen<'_>) -> String {
    let client = seen.client();
    let put = "PUT /half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx";
    seen.stays(client, put)
}

fn reads_late(seen: &Seen<'_>) -> String {
    let mut client = Client::connect_with_window(seen.server.address("http"), 4096);
    client.send("GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    thread::sleep(LONGER + LONGER);
    let (bytes, _) = client.rest();
    match bytes.len() > LARGE_BYTES {
        true => "whole".into(),
        false => "cut off".into(),
    }
}

const LARGE_BYTES: usize = 12 << 20;

fn scene(
    name: &'static str,
    at: At,
    lines: [&'static str; 2],
    seen: [&'static str; 2],
    sees: fn(&Seen<'_>) -> String,
) -> Scene {
    Scene {
        name,
        at,
        lines,
        sees,
        seen,
    }
}

#[rustfmt::skip]
fn of_files() -> Vec<Scene> {
    use At::Site;
    vec![
        scene("dir", Site, ["dir = \"site\"", "dir = \"other\""], ["site", "other"],
            |it| it.ask("GET /name", "", "").text().into()),
        scene("hidden", Site, ["", "hidden = true"], ["404", "200"], |it| it.status("GET /.dot")),
        scene("listing", Site, ["", "listing = \"off\""], ["200", "404"],
            |it| it.status("GET /sub/")),
        scene("archive", Site, ["", "archive = \"tar\""],
            ["text/html; charset=utf-8", "application/x-tar"],
            |it| it.field("GET /sub/?archive=tar", "", "content-type")),
        scene("compress", Site, ["", "compress = \"gzip\""], ["none", "gzip"],
            |it| it.field("GET /text.txt", "Accept-Encoding: gzip\r\n", "content-encoding")),
        scene("allow-origin", Site, ["", "allow-origin = \"http://a.example\""],
            ["none", "http://a.example"],
            |it| {
                let origin = "Origin: http://a.example\r\n";
                it.field("GET /page", origin, "access-control-allow-origin")
            }),
        scene("allow", Site, ["", "allow = \"192.0.2.0/24\""], ["200", "403"],
            |it| it.status("GET /page")),
        scene("deny", Site, ["", "deny = \"127.0.0.0/8\""], ["200", "403"],
            |it| it.status("GET /page")),
        scene("auth-file", Site, ["", "auth-file = \"users\""], ["200", "401"],
            |it| it.status("GET /page")),
        scene("rate", Site, ["", "rate = \"1/1h\""], ["200 200", "200 429"],
            |it| format!("{} {}", it.status("GET /page"), it.status("GET /page"))),
        scene("rate-bytes", Site, ["", "rate-bytes = \"1/1h\""], ["200 200", "200 429"],
            |it| format!("{} {}", it.status("GET /page"), it.status("GET /page"))),
        scene("etag", Site, ["", "etag = \"portable\""], ["differ", "same"], |it| {
            let tags = ["GET /copy", "GET /name"].map(|line| it.field(line, "", "etag"));
            let [one, other] = tags;
            assert_ne!(one, "none");
            if one == other { "same" } else { "differ" }.into()
        }),
    ]
}

#[rustfmt::skip]
fn of_uploads() -> Vec<Scene> {
    use At::Site;
    vec![
        scene("put-max", Site, ["writable = true", "writable = true\nput-max = \"1K\""],
            ["stored", "413"], |it| it.put(2_000)),
        scene("uploads-max", Site, ["writable = true", "writable = true\nuploads-max = 1"],
            ["201", "503"], |it| {
                let all = ["b25l", "dHdv"].map(|name| it.begin_upload(name, 2_000));
                all.iter().for_each(|reply| it.end_upload(reply));
                all[1].status.to_string()
            }),
        scene("uploads-bytes", Site,
            ["writable = true", "writable = true\nuploads-bytes = \"1K\""],
            ["201", "413"], |it| {
                let reply = it.begin_upload("b25l", 2_000);
                it.end_upload(&reply);
                reply.status.to_string()
            }),
        scene("upload-expires", Site,
            ["writable = true\nupload-expires = \"200d\"",
            "writable = true\nupload-expires = \"1h\""],
            ["in months", "soon"], |it| {
                // Of one that got a byte: others end after minutes.
                let begun = it.begin_upload("b25l", 2_000);
                let place = begun.field("location").expect("an address");
                let fields = "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n\
                              Content-Type: application/offset+octet-stream\r\n";
                let reply = it.ask(&format!("PATCH {place}"), fields, "x");
                it.end_upload(&begun);
                const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
                let month = |name| {
                    let date = reply.field(name).expect("a date");
                    let month = date.split(' ').nth(2).and_then(|month| MONTHS.find(month));
                    month.expect("a month") / 3
                };
                let months = (month("upload-expires") + 12 - month("date")) % 12;
                if months > 2 { "in months" } else { "soon" }.into()
            }),
        scene("writable", Site, ["", "writable = true"], ["405", "stored"], |it| it.put(10)),
    ]
}

#[rustfmt::skip]
fn of_sites() -> Vec<Scene> {
    use At::Site;
    vec![
        scene("access-log", Site, ["access-log = \"one.log\"", "access-log = \"two.log\""],
            ["one.log", "two.log"], |it| {
                let target = format!("/logged-{}", it.round);
                it.status(&format!("GET {target}"));
                let has = |name: &&str| {
                    let log = fs::read_to_string(it.run.at(name));
                    log.is_ok_and(|log| log.contains(&target))
                };
                let find = || ["one.log", "two.log"].into_iter().find(|name| has(name));
                until_true("the line of a log", || find().is_some());
                find().expect("it has the line").into()
            }),
        scene("names", Site, ["", "names = \"other.example\""], ["200", "421"],
            |it| it.status("GET /page")),
        scene("prefix", Site, ["", "prefix = \"/p\""], ["404", "200"],
            |it| it.status("GET /p/page")),
        scene("site.redirect", Site,
            ["", "[[site.redirect]]\nfrom = \"/old\"\nto = \"/page\""], ["404", "301"],
            |it| it.status("GET /old")),
        scene("site.header", Site,
            ["[[site.header]]\npath = \"/*\"\nset = { X-A = \"1\" }",
            "[[site.header]]\npath = \"/*\"\nset = { X-A = \"2\" }"], ["1", "2"],
            |it| it.field("GET /page", "", "x-a")),
        scene("site.error-pages", Site, ["", "[site.error-pages]\n404 = \"/name\""],
            ["built in", "site"], |it| {
                let reply = it.ask("GET /none", "", "");
                let is_built_in = reply.text().contains("404 Not Found");
                if is_built_in { "built in" } else { reply.text() }.into()
            }),
        scene("spa", Site, ["", "spa = \"/name\""], ["404", "200"], |it| it.status("GET /none")),
        scene("body-timeout", Site, ["writable = true", "writable = true\nbody-timeout = 0.1"],
            ["stays", "ended"], sends_half_a_body),
        scene("idle-timeout", Site, ["", "idle-timeout = 0.1"], ["stays", "ended"], idles),
        scene("write-timeout", Site, ["", "write-timeout = 0.1"], ["whole", "cut off"], reads_late),
    ]
}

#[rustfmt::skip]
fn of_connections() -> Vec<Scene> {
    use At::Above;
    vec![
        scene("head-timeout", Above, ["", "head-timeout = 0.1"], ["stays", "ended"],
            |it| it.stays(it.client(), "GET /page HTTP/1.1\r\n")),
        scene("idle-timeout", Above, ["", "idle-timeout = 0.1"], ["stays", "ended"], idles),
        scene("write-timeout", Above, ["", "write-timeout = 0.1"], ["whole", "cut off"],
            reads_late),
        scene("deny", Above, ["deny = \"192.0.2.0/24\"", "deny = \"127.0.0.0/8\""], ["200", "403"],
            |it| it.status("GET /page")),
        scene("relay-wait", Above, ["", "relay-wait = 0.1"], ["stays", "ended"],
            |it| it.stays(it.relayed('a'), "")),
        scene("relay-idle", Above, ["", "relay-idle = 0.1"], ["stays", "ended"], |it| {
            let (mut one, mut other) = (it.relayed('a'), it.relayed('b'));
            assert_eq!((one.exactly(3), other.exactly(3)), (b"ok\n".into(), b"ok\n".into()));
            it.stays(one, "")
        }),
        scene("connections-per-address", Above, ["", "connections-per-address = 1"],
            ["answered", "refused"], |it| {
                // It is no idle one, which would make room.
                let mut first = it.client();
                first.send("GET /page HTTP/1.1\r\n");
                let mut second = it.client();
                second.send("GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                let (bytes, _) = second.rest();
                match bytes.starts_with(b"HTTP/1.1 200 ") {
                    true => "answered",
                    false => "refused",
                }.into()
            }),
    ]
}

/// Settings that a reload changes and that are seen in another way than by such a scene.
const ELSEWHERE: [(&str, &str); 8] = [
    (
        "stat-age",
        "only files on mounts that may hang have it: hung_mount",
    ),
    (
        "durable",
        "it shows when power fails: services/files/tests/durable",
    ),
    ("workers-per-listener", "a number of workers: engine"),
    ("drain-delay", "below"),
    ("drain-idle-timeout", "drain"),
    ("drain-timeout", "below"),
    ("slow", "a line of the log: slow"),
    ("log", "lines of the log: reload"),
];

/// What the book says a reload changes.
fn reloaded_names() -> BTreeSet<String> {
    let page = |name: &str| {
        let path = format!("{}/../book/src/{name}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).expect("the book")
    };
    let (operate, configure) = (page("operate.md"), page("configure.md"));
    let lines = operate.lines().chain(configure.lines());
    let rows = lines.filter(|line| {
        let ends = [
            "| anywhere |",
            "| above the tables |",
            "| site |",
            "| listener and site |",
        ];
        ends.iter().any(|end| line.ends_with(end))
    });
    let named = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    named.map(str::to_owned).collect()
}

/// A site for whose sake the server sets memory aside at the start.
const OTHER: &str = "[[site]]\nnames = \"set.aside.example\"\ndir = \"other\"\narchive = \"tar\"\n\
    compress = \"gzip\"\nrate = \"9/s\"\nrate-bytes = \"9G/s\"\nauth-file = \"users\"\n\
    access-log = \"other.log\"\n";

struct Reloaded {
    run: Site,
    /// Hears of each reload that is done; the log leaves lines out that repeat.
    manager: UnixDatagram,
}

impl Reloaded {
    fn new() -> Self {
        let run = Site::new()
            .with("site/page", "flat path ".repeat(1000))
            .with("site/text.txt", "flat path ".repeat(1000))
            .with("site/name", "site")
            .with("site/copy", "copy")
            .with("site/.dot", "dot")
            .with("site/sub/file", "file")
            .with("site/large", vec![b'l'; LARGE_BYTES])
            .with("other/name", "other")
            .with("users", ADA);
        run.settle();
        let manager = UnixDatagram::bind(run.at("notify")).expect("a free path");
        let patience = Some(long_patience());
        manager.set_read_timeout(patience).expect("a deadline");
        Self { run, manager }
    }

    fn write(&self, at: At, lines: &str) {
        let (above, site) = match at {
            At::Above => (lines, ""),
            At::Site => ("", lines),
        };
        let usual = |line: &str, key: &str| match site.contains(key) {
            true => String::new(),
            false => format!("{line}\n"),
        };
        let names = usual("names = \"*\"", "names =");
        let dir = usual("dir = \"site\"", "dir =");
        let text = format!(
            "http = \"127.0.0.1:0\"\nrelay = \"127.0.0.1:0\"\n{above}\n\
             [[site]]\n{names}{dir}{site}\n{OTHER}"
        );
        let new = self.run.at("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.run.at("flatpath.toml")).expect("renamed");
    }

    fn start(&self, driver: Driver) -> Server {
        let launch = Launch::configured(driver, self.run.path());
        let launch = launch.variable("NOTIFY_SOCKET", self.run.at("notify"));
        let server = launch.start();
        self.await_ready();
        server
    }

    fn await_ready(&self) {
        let mut bytes = [0; 1_000];
        loop {
            let count = self.manager.recv(&mut bytes).expect("a datagram");
            if bytes[..count].starts_with(b"READY=1") {
                return;
            }
        }
    }

    fn hang_up(&self, server: &Server) {
        server.process().signal(Signal::HUP);
        self.await_ready();
    }
}

/// The expected one of what is seen, or the last.
fn until(seen: impl Iterator<Item = String>, expected: &str) -> String {
    let mut last = String::new();
    for it in seen {
        last = it;
        if last == expected {
            break;
        }
    }
    last
}

fn hang_up(server: &Server) {
    let count = || server.log().matches(" reloaded").count();
    let before = count();
    server.process().signal(Signal::HUP);
    until_true("a reload", || count() > before);
}

/// A server of its own for each part: most of what a scene takes is waiting.
fn each_setting_changes_there_and_back_as_clients_see_it(driver: Driver) {
    let parts = [of_files(), of_uploads(), of_sites(), of_connections()];
    let scenes = parts.iter().flatten();
    let mut seen: BTreeSet<_> = scenes.map(|it| it.name.to_owned()).collect();
    seen.extend(ELSEWHERE.map(|(name, _)| name.to_owned()));
    // Servers of sites: web, proxied.
    seen.extend(
        reloaded_names()
            .into_iter()
            .filter(|it| it.starts_with("proxy")),
    );
    let missing: Vec<_> = reloaded_names().difference(&seen).cloned().collect();
    assert_eq!(missing, Vec::<String>::new(), "settings without a scene");
    let wrong = thread::scope(|scope| {
        let parts = parts.map(|scenes| scope.spawn(move || wrong_scenes(driver, &scenes)));
        parts.map(|part| part.join().expect("it looks")).concat()
    });
    assert_eq!(wrong, Vec::<String>::new());
}

/// What clients of one server see that is not what it should be.
fn wrong_scenes(driver: Driver, scenes: &[Scene]) -> Vec<String> {
    let reloaded = Reloaded::new();
    reloaded.write(At::Site, "");
    let server = reloaded.start(driver);
    let mut wrong = Vec::new();
    for (number, scene) in scenes.iter().enumerate() {
        // From A, to B and back.
        for (round, which) in [0, 1, 0].into_iter().enumerate() {
            reloaded.write(scene.at, scene.lines[which]);
            reloaded.hang_up(&server);
            let round = 10 * number + round;
            let it = Seen {
                server: &server,
                run: &reloaded.run,
                round,
            };
            // A network thread takes a limit over in its next turn, and on a busy machine it may
            // look at a time-out later than the client does.
            let tries = (0..TRIES).map(|_| (scene.sees)(&it));
            let sees = until(tries, scene.seen[which]);
            if sees != scene.seen[which] {
                let (name, lines, right) = (scene.name, scene.lines[which], scene.seen[which]);
                wrong.push(format!(
                    "{name} {lines:?}, round {round}: {sees}, not {right}"
                ));
            }
        }
    }
    server.end();
    wrong
}

fn two_tables_of_one_protocol_have_limits_of_their_own_there_and_back(driver: Driver) {
    let run = Site::new().with("site/page", "page");
    let write = |settings: [&str; 2]| {
        let table = |address: &str, settings: &str| {
            format!(
                "[[listener]]\nprotocol = \"http\"\naddress = \"{address}\"\n\
                 dir = \"site\"\n{settings}\n"
            )
        };
        let [first, second] = settings;
        let text = table("127.0.0.1:0", first) + &table("127.0.0.2:0", second);
        let new = run.at("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, run.at("flatpath.toml")).expect("renamed");
    };
    write(["", ""]);
    let server = Launch::configured(driver, run.path()).start();
    let addresses: Vec<_> = server.listeners().iter().map(|(_, it)| *it).collect();
    let stays = |number: usize| {
        let host = addresses[number];
        let mut client = Client::connect(host);
        let reply = client.exchange(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(reply.status, 200);
        stays_quiet(&mut client)
    };
    let short = format!("idle-timeout = {SHORT}");
    for settings in [
        ["", &*short],
        [&short, ""],
        ["", ""],
        ["", &short],
        ["", ""],
    ] {
        write(settings);
        hang_up(&server);
        // Together, for the time that it takes.
        let stays = &stays;
        let stay: Vec<_> = thread::scope(|scope| {
            let both = [0, 1].map(|number| scope.spawn(move || stays(number)));
            both.into_iter()
                .map(|it| it.join().expect("it asks"))
                .collect()
        });
        assert_eq!(stay, settings.map(str::is_empty), "{settings:?}");
    }
    server.end();
}

/// Neither the network threads nor what watches over the end of the process have the old time.
fn a_drain_has_the_time_that_a_reload_gave_it(driver: Driver) {
    let reloaded = Reloaded::new();
    reloaded.write(At::Above, "drain-timeout = 0.1");
    let mut server = reloaded.start(driver);
    reloaded.write(At::Above, "drain-timeout = \"1h\"");
    reloaded.hang_up(&server);
    let mut client = Client::connect_with_window(server.address("http"), 4096);
    client.send("GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    until_true("the download to begin", || !client.is_quiet());
    server.terminate();
    // Longer than the time that was, and what the process has beyond it.
    thread::sleep(LONGER + LONGER);
    let (bytes, _) = client.rest();
    assert!(bytes.len() > LARGE_BYTES, "{} bytes", bytes.len());
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
    // And back: the time of the start is in force again.
    reloaded.write(At::Above, "drain-timeout = 0.1");
    let mut server = reloaded.start(driver);
    for lines in ["drain-timeout = \"1h\"", "drain-timeout = 0.1"] {
        reloaded.write(At::Above, lines);
        reloaded.hang_up(&server);
    }
    let mut client = Client::connect_with_window(server.address("http"), 4096);
    client.send("GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    until_true("the download to begin", || !client.is_quiet());
    server.terminate();
    let status = server.exit_status();
    assert!(
        client.rest().0.len() < LARGE_BYTES,
        "it was cut off: {status:?}"
    );
}
