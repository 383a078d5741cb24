//! A team's day with the service, over real sockets and with both drivers.

use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;

use expect_test::expect;
use flatpath::{DriverChoice, Running, Server};
use flatpath_example_bookmarks::database::{Database, User};
use flatpath_example_bookmarks::{SIGN_INS_PER_MINUTE, hash, is_correct, service};
use flatpath_http::cookies::{Keys, SignedJar};
use flatpath_http::{Http, IntoResponse, Request};
use flatpath_test::{HttpClient, Reply, Requests, Socket, Wire};
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &[u8] = b"a secret of the tests, 32 bytes.";
const FEW: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");
const FORM: &str = "multipart/form-data; boundary=b";

/// A server with one user, `ada`, whose password is `lovelace`.
struct Team {
    directory: TempDir,
    running: Running,
}

impl Team {
    fn start(choice: DriverChoice) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let team = database(&directory);
        team.put_user("ada", ada()).expect("stored");
        let running = serve(team, choice);
        Self { directory, running }
    }

    fn address(&self) -> SocketAddr {
        self.running.addresses()[0].address
    }

    fn client(&self) -> HttpClient<Socket> {
        HttpClient::connect(self.address())
    }

    fn drain(self) -> TempDir {
        self.running.handle().drain();
        self.running.wait().expect("it ends");
        self.directory
    }
}

/// Made once, and cheaper than users of the program.
fn ada() -> &'static User {
    static ADA: OnceLock<User> = OnceLock::new();
    ADA.get_or_init(|| hash("lovelace", FEW).expect("randomness"))
}

fn database(directory: &TempDir) -> Database {
    Database::open(directory.path().join("bookmarks.db")).expect("a database")
}

fn serve(database: Database, choice: DriverChoice) -> Running {
    let public = Path::new(env!("CARGO_MANIFEST_DIR")).join("public");
    let service = Http::service(service(database, SECRET, &public).expect("a service"));
    let server = Server::new().driver(choice).listen("127.0.0.1:0", service);
    server.start().expect("start")
}

fn on_both(test: impl Fn(Team)) {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        test(Team::start(choice));
    }
}

/// The cookie of a new session.
fn sign_in(client: &mut impl Requests) -> String {
    let credentials = json!({"name": "ada", "password": "lovelace"});
    let reply = client.post("/api/session").json(&credentials).expect(204);
    let cookie = reply.field("set-cookie").expect("a session");
    assert!(
        cookie.contains("; HttpOnly; SameSite=Lax; Path=/; Max-Age=604800"),
        "{cookie}"
    );
    cookie.split(';').next().expect("a value").to_owned()
}

/// The cookie of a session, the same for all: the servers have one secret.
fn session(client: &mut impl Requests) -> &'static str {
    static SESSION: OnceLock<String> = OnceLock::new();
    SESSION.get_or_init(|| sign_in(client))
}

/// A cookie with this value, as the servers sign it.
fn signed(value: &str) -> String {
    let keys = Keys::new(SECRET).expect("long enough");
    let jar = SignedJar::of(&Request::default(), &keys).add(("session", value.to_owned()));
    let response = jar.into_response();
    let line = response.headers()["set-cookie"].to_str().expect("ASCII");
    line.split(';').next().expect("a value").to_owned()
}

fn draft(title: &str) -> Value {
    json!({"url": "https://www.rust-lang.org", "title": title, "tags": ["rust", title]})
}

/// A problem's detail.
fn detail(reply: &Reply) -> String {
    assert_eq!(
        reply.field("content-type"),
        Some("application/problem+json"),
        "{reply:?}"
    );
    let problem: Value = reply.json();
    assert_eq!(problem["status"], reply.status);
    problem["detail"].as_str().unwrap_or_default().to_owned()
}

fn titles(page: &Value) -> Vec<&str> {
    let bookmarks = page["bookmarks"].as_array().expect("a list").iter();
    bookmarks
        .map(|it| it["title"].as_str().expect("a title"))
        .collect()
}

#[test]
fn a_bookmark_lives_from_post_to_delete() {
    on_both(|team| {
        let mut client = team.client();
        let cookie = session(&mut client);
        let added = client
            .post("/api/bookmarks")
            .header("cookie", cookie)
            .json(&draft("one"));
        let added = added.expect(201);
        assert_eq!(added.field("location"), Some("/api/bookmarks/1"));
        let bookmark: Value = added.json();
        assert_eq!(
            (&bookmark["id"], &bookmark["added_by"]),
            (&json!(1), &json!("ada"))
        );
        let mut ask = |method: &str, path: &str, body: Option<Value>| {
            let request = client.request(method, path).header("cookie", cookie);
            match body {
                Some(body) => request.json(&body).send(),
                None => request.send(),
            }
        };
        let one = "/api/bookmarks/1";
        assert_eq!(ask("GET", one, None).expect(200).json::<Value>(), bookmark);
        let moved = json!({"url": "http://moved.example", "title": "two", "tags": ["two"]});
        let changed: Value = ask("PUT", one, Some(moved.clone())).expect(200).json();
        for (name, value) in moved.as_object().expect("an object") {
            assert_eq!(changed[name], *value);
        }
        for name in ["id", "added_by", "added_at"] {
            assert_eq!(changed[name], bookmark[name]);
        }
        assert_eq!(ask("GET", one, None).json::<Value>(), changed);
        assert_eq!(ask("DELETE", one, None).expect(204).body, b"");
        for (method, body) in [("GET", None), ("DELETE", None), ("PUT", Some(draft("x")))] {
            let reply = ask(method, one, body).expect(404);
            assert_eq!(detail(&reply), "there is no bookmark 1");
        }
        // Readers do not wait for the writer.
        assert!(team.directory.path().join("bookmarks.db-wal").exists());
        // Its number is not used again.
        let next: Value = ask("POST", "/api/bookmarks", Some(draft("x"))).json();
        assert_eq!(next["id"], 2);
        team.drain();
    });
}

#[test]
fn what_is_no_bookmark_is_refused_with_the_reason() {
    on_both(|team| {
        let mut client = team.client();
        let cookie = session(&mut client);
        let many = vec!["tag"; 21];
        for (body, status, reason) in [
            (
                json!({"url": "http:/a", "title": "a"}),
                422,
                "the url begins with http",
            ),
            (
                json!({"url": format!("http://{}", "a".repeat(2048)), "title": "a"}),
                422,
                "2048",
            ),
            (
                json!({"url": "http://a", "title": " "}),
                422,
                "the title is empty",
            ),
            (
                json!({"url": "http://a", "title": "a".repeat(501)}),
                422,
                "500 bytes",
            ),
            (
                json!({"url": "http://a", "title": "a", "tags": many}),
                422,
                "20 tags",
            ),
            (json!({"url": "http://a"}), 422, "missing field `title`"),
            (json!("http://a"), 422, "does not fit"),
        ] {
            for (method, path) in [("POST", "/api/bookmarks"), ("PUT", "/api/bookmarks/1")] {
                let request = client.request(method, path).header("cookie", cookie);
                let reply = request.json(&body).expect(status);
                assert!(detail(&reply).contains(reason), "{body}: {reply:?}");
            }
        }
        let post = client.post("/api/bookmarks").header("cookie", cookie);
        detail(
            &post
                .header("content-type", "application/json")
                .body("{")
                .expect(400),
        );
        detail(
            &client
                .post("/api/bookmarks")
                .header("cookie", cookie)
                .body("{}")
                .expect(415),
        );
        for path in [
            "/api/bookmarks/one",
            "/api/bookmarks?after=one",
            "/api/bookmarks?limit=-1",
        ] {
            detail(&client.get(path).header("cookie", cookie).expect(400));
        }
        let all: Value = client
            .get("/api/bookmarks")
            .header("cookie", cookie)
            .expect(200)
            .json();
        assert_eq!(all, json!({"bookmarks": [], "next": null}));
        team.drain();
    });
}

#[test]
fn an_import_is_read_page_by_page_and_compressed_where_the_client_likes() {
    on_both(|team| {
        let mut client = team.client();
        let cookie = session(&mut client);
        let mut import = |file: &Value| {
            let request = client.post("/api/import").header("cookie", cookie);
            let part =
                "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
            // Longer than the body of another route may be.
            let space = " ".repeat(2 << 20);
            let form = format!("{part}{space}{file}\r\n--b--\r\n");
            request.header("content-type", FORM).body(form).send()
        };
        let drafts: Vec<_> = (1..=120).map(|number| draft(&number.to_string())).collect();
        let imported = import(&json!(drafts)).expect(201);
        assert_eq!(imported.json::<Value>(), json!({"added": 120}));
        // All or none.
        let broken = import(&json!([draft("good"), {"url": "bad", "title": "bad"}])).expect(422);
        assert_eq!(detail(&broken), "the url begins with http:// or https://");
        detail(&import(&json!("none")).expect(422));
        assert_eq!(
            import(&json!([])).expect(201).json::<Value>(),
            json!({"added": 0})
        );

        let mut page = |query: &str| -> Value {
            let request = client.get(&format!("/api/bookmarks?{query}"));
            request.header("cookie", cookie).expect(200).json()
        };
        let first = page("");
        assert_eq!((titles(&first).len(), &first["next"]), (50, &json!(50)));
        let last = page("after=50&limit=1000");
        assert_eq!((titles(&last).len(), &last["next"]), (70, &json!(null)));
        assert_eq!((titles(&last)[0], titles(&last)[69]), ("51", "120"));
        assert_eq!(titles(&page("after=119&limit=0")), ["120"]);
        assert_eq!(titles(&page("tag=77")), ["77"]);
        assert_eq!(page("tag=7%25")["bookmarks"], json!([]));

        let list = client
            .get("/api/bookmarks?limit=100")
            .header("cookie", cookie);
        let compressed = list.header("accept-encoding", "gzip").expect(200);
        assert_eq!(compressed.field("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&*compressed.body);
        decoder.read_to_string(&mut text).expect("gzip");
        let plain = client
            .get("/api/bookmarks?limit=100")
            .header("cookie", cookie)
            .expect(200);
        assert_eq!(
            (plain.field("content-encoding"), plain.text()),
            (None, &*text)
        );
        assert!(
            compressed.body.len() < plain.body.len() / 3,
            "{}",
            compressed.body.len()
        );

        let form = client.post("/api/import").header("cookie", cookie);
        let empty = form
            .header("content-type", FORM)
            .body("--b--\r\n")
            .expect(422);
        assert_eq!(detail(&empty), "the form has no field `file`");
        let head = client.post("/api/import").header("cookie", cookie);
        let head = head.header("content-type", FORM);
        assert_eq!(head.upload(Some((16 << 20) + 1)).refused().status, 413);
        // Else the server waits a while for what this client may still send.
        drop(client);
        team.drain();
    });
}

#[test]
fn only_those_who_are_signed_in_see_and_change_bookmarks() {
    on_both(|team| {
        let mut client = team.client();
        let cookie = sign_in(&mut client);
        let (name, value) = cookie.split_once('=').expect("a value");
        let last = value.chars().next_back().expect("a character");
        let changed = format!("{name}={}x{last}", &value[..value.len() - 1]);
        let over = signed("1000000000.ada");
        for cookie in ["", "session=", "session=9999999999.ada", &*changed, &*over] {
            for (method, path) in [
                ("GET", "/api/bookmarks"),
                ("POST", "/api/bookmarks"),
                ("GET", "/api/bookmarks/1"),
                ("PUT", "/api/bookmarks/1"),
                ("DELETE", "/api/bookmarks/1"),
                ("POST", "/api/import"),
                ("GET", "/api/events"),
            ] {
                let request = client.request(method, path).header("cookie", cookie);
                let reply = request.json(&draft("a")).expect(401);
                assert_eq!(detail(&reply), "sign in first");
            }
        }
        let later = signed("9999999999.ada");
        let request = client.get("/api/bookmarks").header("cookie", &later);
        request.expect(200);
        let out = client
            .delete("/api/session")
            .header("cookie", &cookie)
            .expect(204);
        let gone = out.field("set-cookie").expect("a cookie that has expired");
        assert!(
            gone.starts_with("session=; ") && gone.contains("Max-Age=0"),
            "{gone}"
        );
        team.drain();
    });
}

#[test]
fn guesses_of_passwords_are_refused_and_limited() {
    let team = Team::start(DriverChoice::Auto);
    let mut client = team.client();
    let mut guess = |name: &str, password: &str| {
        let guess = json!({"name": name, "password": password});
        client.post("/api/session").json(&guess).send()
    };
    for (name, password) in [("ada", "byron"), ("bob", "lovelace"), ("ada", "")] {
        let reply = guess(name, password).expect(401);
        assert_eq!(detail(&reply), "wrong name or password");
        assert_eq!(reply.field("set-cookie"), None);
    }
    // What is no guess counts as well, and costs no time.
    let post = |_| client.post("/api/session").send().status;
    let statuses: Vec<u16> = (3..SIGN_INS_PER_MINUTE + 1).map(post).collect();
    let (limited, admitted) = statuses.split_last().expect("some");
    assert!(admitted.iter().all(|status| *status == 415), "{statuses:?}");
    assert_eq!(*limited, 429);
    detail(&client.post("/api/session").expect(429));
    // The limit is that of signing in.
    client.get("/").expect(200);
    team.drain();
}

#[test]
fn passwords_are_those_that_were_set() {
    let user = ada();
    assert!(is_correct("lovelace", Some(user)));
    assert!(!is_correct("Lovelace", Some(user)) && !is_correct("lovelace", None));
    let again = hash("lovelace", FEW).expect("randomness");
    assert!(user.salt != again.salt && user.hash != again.hash);
}

/// Reads on until this was received.
fn await_text(socket: &mut Socket, received: &mut String, text: &str) {
    while !received.contains(text) {
        let bytes = socket.receive();
        let bytes = bytes.unwrap_or_else(|| panic!("ended without {text}: {received}"));
        received.push_str(std::str::from_utf8(&bytes).expect("text"));
    }
}

#[test]
fn listeners_get_what_is_added_and_what_they_missed() {
    on_both(|team| {
        let mut client = team.client();
        let cookie = session(&mut client);
        let listen = |last: &str| {
            let mut socket = Socket::connect(team.address());
            let request = format!("GET /api/events HTTP/1.1\r\nHost: h\r\nCookie: {cookie}\r\n");
            socket.send(format!("{request}{last}\r\n").as_bytes());
            let mut received = String::new();
            await_text(&mut socket, &mut received, "\r\n\r\n");
            assert!(received.contains("text/event-stream"), "{received}");
            (socket, received)
        };
        let (mut listener, mut received) = listen("");
        for title in ["one", "two"] {
            let post = client.post("/api/bookmarks").header("cookie", cookie);
            let bookmark = post.json(&draft(title)).expect(201);
            let event = format!("\ndata: {}\n", bookmark.text());
            await_text(&mut listener, &mut received, &event);
        }
        assert!(received.contains("event: added\nid: 1\n"), "{received}");
        let file = json!([draft("three"), draft("four")]);
        let part = "--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n";
        let import = client.post("/api/import").header("cookie", cookie);
        let form = format!("{part}{file}\r\n--b--");
        import.header("content-type", FORM).body(form).expect(201);
        let imported = "event: imported\nid: 4\ndata: {\"added\":2}\n";
        await_text(&mut listener, &mut received, imported);

        let (mut late, mut received) = listen("Last-Event-ID: 1\r\n");
        await_text(&mut late, &mut received, imported);
        assert!(
            received.contains("id: 2\n") && !received.contains("id: 1\n"),
            "{received}"
        );
        // A drain ends the streams.
        team.running.handle().drain();
        while late.receive().is_some() {}
        team.drain();
    });
}

#[test]
fn sessions_and_bookmarks_survive_a_restart() {
    let team = Team::start(DriverChoice::Auto);
    let mut client = team.client();
    let cookie = session(&mut client);
    let add = client.post("/api/bookmarks").header("cookie", cookie);
    add.json(&draft("kept")).expect(201);
    let directory = team.drain();
    let running = serve(database(&directory), DriverChoice::Auto);
    let team = Team { directory, running };
    let mut client = team.client();
    let found: Value = client
        .get("/api/bookmarks/1")
        .header("cookie", cookie)
        .expect(200)
        .json();
    assert_eq!(found["title"], "kept");
    team.drain();
}

#[test]
fn pages_are_files_and_each_reply_has_its_headers() {
    on_both(|team| {
        let mut client = team.client();
        for (path, of_type) in [
            ("/", "text/html; charset=utf-8"),
            ("/app.js", "text/javascript"),
        ] {
            let file = client.get(path).expect(200);
            let sent = file.field("content-type").expect("a type");
            assert!(sent.starts_with(of_type), "{path}: {sent}");
        }
        let page = client.get("/nothing").expect(404);
        assert!(page.text().contains("There is nothing here"), "{page:?}");
        let unknown = client.get("/api/nothing").expect(404);
        let other = client.get("/api/nothing").expect(404);
        assert_ne!(unknown.field("x-request-id"), other.field("x-request-id"));
        expect![[r#"
            404
            content-length: 34
            content-security-policy: base-uri 'self'; frame-ancestors 'none'; object-src 'none'
            content-type: application/problem+json
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: [masked]
            referrer-policy: strict-origin-when-cross-origin
            x-content-type-options: nosniff
            x-frame-options: DENY
            x-request-id: [masked]

            {"status":404,"title":"Not Found"}"#]]
        .assert_eq(&unknown.snapshot(&["x-request-id"]));
        let refused = client.put("/api/bookmarks").expect(405);
        assert_eq!(refused.field("allow"), Some("GET, POST, HEAD, OPTIONS"));
        detail(&refused);
        team.drain();
    });
}
