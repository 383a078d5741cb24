//! PUT: what is stored, what is refused, what is left behind, and that no byte is copied on the
//! way.

use std::io::{Read as _, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flatpath::Server as Engine;
use flatpath_files::{Files, WriteOptions, Writing};
use flatpath_http::{Http, Payload, Request, Response};
use flatpath_testkit::noise;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, binary, each_driver};

use flatpath_e2e::choice;

each_driver!(
    files_are_made_and_replaced,
    bodies_of_any_framing_arrive_whole,
    conditions_guard_the_file,
    a_conditional_put_is_answered_with_the_tag_for_the_next,
    parts_are_refused_and_the_answer_names_what_resumes,
    files_put_at_once_are_never_seen_mixed_or_cut,
    the_umask_decides_the_mode_of_a_new_file,
    a_file_beyond_what_the_process_may_write_is_refused,
    what_must_not_be_written_is_refused,
    a_client_that_goes_away_leaves_nothing,
    a_body_beyond_the_limit_is_refused_before_it_is_sent,
    many_uploads_at_once_keep_within_their_pages,
    no_byte_is_copied_between_ring_and_file,
    a_handler_keeps_its_body_past_the_reply_and_on_another_thread,
);

fn serve(driver: Driver, site: &Site) -> Server {
    site.settle();
    Launch::serve(driver)
        .directory(site.path())
        .with(["--writable", "--put-max", "64M"])
        .start()
}

fn put(client: &mut Client, target: &str, fields: &[(&str, &str)], body: &[u8]) -> u16 {
    let length = body.len().to_string();
    let mut all = vec![("Content-Length", length.as_str())];
    all.extend_from_slice(fields);
    client.request("PUT", target, &all);
    client.send(body);
    client.reply().status
}

fn read(site: &Site, name: &str) -> Vec<u8> {
    std::fs::read(site.at(name)).expect("stored")
}

/// Names in the directory, once `settled` accepts them.
fn names_when(site: &Site, settled: impl Fn(&[String]) -> bool) -> Vec<String> {
    let deadline = Instant::now() + flatpath_testkit::patience();
    loop {
        let entries = std::fs::read_dir(site.path()).expect("readable");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.into_string().expect("ASCII"))
            .collect();
        names.sort();
        if settled(&names) || Instant::now() > deadline {
            return names;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn files_are_made_and_replaced(driver: Driver) {
    let site = Site::new().with("old", "old content").with("sub/x", "");
    let server = serve(driver, &site);
    let mut client = server.client();
    assert_eq!(put(&mut client, "/new", &[], b"content"), 201);
    assert_eq!(read(&site, "new"), b"content");
    assert_eq!(put(&mut client, "/new", &[], b"other"), 204);
    assert_eq!(read(&site, "new"), b"other");
    assert_eq!(put(&mut client, "/sub/deep%20name", &[], b"1"), 201);
    assert_eq!(read(&site, "sub/deep name"), b"1");
    assert_eq!(put(&mut client, "/empty", &[], b""), 201);
    assert_eq!(read(&site, "empty"), b"");
    assert_eq!(put(&mut client, "/old", &[], b""), 204);
    assert_eq!(read(&site, "old"), b"");
    // The cache of hot files does not outlive the file.
    for round in 0..20 {
        let body = format!("round {round}");
        assert_eq!(put(&mut client, "/hot", &[], body.as_bytes()) / 100, 2);
        assert_eq!(client.get("/hot").text(), body);
    }
    client.request("OPTIONS", "/new", &[]);
    let options = client.reply();
    assert!(
        options
            .field("allow")
            .is_some_and(|all| all.contains("PUT"))
    );
    let names = names_when(&site, |_| true);
    assert_eq!(names, ["empty", "hot", "new", "old", "sub"]);
}

fn bodies_of_any_framing_arrive_whole(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let mut client = server.client();
    for (round, length) in [1, 100, 8191, 65_536, 1_000_000, 5_000_001]
        .into_iter()
        .enumerate()
    {
        let body = noise(round as u64, length);
        assert_eq!(put(&mut client, "/plain", &[], &body) / 100, 2);
        assert!(read(&site, "plain") == body, "{length} bytes with a length");

        client.request("PUT", "/chunked", &[("Transfer-Encoding", "chunked")]);
        let mut rest = &body[..];
        let mut size = 1;
        while !rest.is_empty() {
            let chunk = rest.len().min(size);
            client.send(format!("{chunk:x}\r\n").as_bytes());
            client.send(&rest[..chunk]);
            client.send(b"\r\n");
            rest = &rest[chunk..];
            size = (size * 7) % 100_003;
        }
        client.send(b"0\r\n\r\n");
        assert_eq!(client.reply().status / 100, 2);
        assert!(read(&site, "chunked") == body, "{length} bytes in chunks");
    }
    // One who asks first, and requests behind the body.
    client.request(
        "PUT",
        "/asked",
        &[("Content-Length", "5"), ("Expect", "100-continue")],
    );
    let go_on = client.exactly(b"HTTP/1.1 100 Continue\r\n\r\n".len());
    assert!(go_on.starts_with(b"HTTP/1.1 100 "));
    client.send(b"helloGET /asked HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply().status, 201);
    assert_eq!(client.reply().text(), "hello");
    // Two at once: the second waits for its turn.
    client.send(b"PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1");
    client.send(b"PUT /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n2");
    client.send(b"GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!([client.reply().status, client.reply().status], [201, 201]);
    assert_eq!(client.reply().text(), "2");
}

fn conditions_guard_the_file(driver: Driver) {
    let site = Site::new().with("file", "first");
    let server = serve(driver, &site);
    let mut client = server.client();
    let tag = client.get("/file").field("etag").expect("a tag").to_owned();
    // A refusal before the body ends the connection.
    let put = |target, field, value: &str| {
        put(&mut server.client(), target, &[(field, value)], b"second")
    };
    assert_eq!(put("/file", "If-None-Match", "*"), 412);
    assert_eq!(put("/file", "If-None-Match", &tag), 412);
    assert_eq!(put("/file", "If-Match", "\"other\""), 412);
    assert_eq!(put("/missing", "If-Match", "*"), 412);
    assert_eq!(read(&site, "file"), b"first");
    assert_eq!(put("/file", "If-Match", &tag), 204);
    assert_eq!(read(&site, "file"), b"second");
    assert_eq!(put("/file", "If-Match", &tag), 412, "it has changed");
    assert_eq!(put("/new", "If-None-Match", "*"), 201);
    assert_eq!(put("/new", "If-None-Match", "*"), 412);
    assert_eq!(names_when(&site, |_| true), ["file", "new"]);
}

fn a_conditional_put_is_answered_with_the_tag_for_the_next(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let mut client = server.client();
    let mut condition = ("If-None-Match", String::from("*"));
    for round in 0..5 {
        let body = format!("round {round}");
        let length = body.len().to_string();
        let fields = [(condition.0, &condition.1[..]), ("Content-Length", &length)];
        client.request("PUT", "/file", &fields);
        client.send(body.as_bytes());
        let reply = client.reply();
        assert_eq!(reply.status, if round == 0 { 201 } else { 204 });
        let tag = reply.field("etag").expect("a tag").to_owned();
        assert_eq!(client.get("/file").field("etag"), Some(&tag[..]));
        condition = ("If-Match", tag);
    }
}

fn parts_are_refused_and_the_answer_names_what_resumes(driver: Driver) {
    let site = Site::new().with("file", "old");
    let server = serve(driver, &site);
    for range in [
        "bytes 0-4/10",
        "bytes 0-4/5",
        "bytes */10",
        "bytes 5-4/9",
        "x",
    ] {
        for body in [&b"12345"[..], b""] {
            let mut client = server.client();
            let length = body.len().to_string();
            let fields = [("Content-Range", range), ("Content-Length", &length)];
            client.request("PUT", "/file", &fields);
            client.send(body);
            let reply = client.reply();
            assert_eq!(reply.status, 400, "{range}");
            assert!(reply.text().contains("tus"), "{}", reply.text());
        }
    }
    assert_eq!(names_when(&site, |_| true), ["file"]);
    assert_eq!(read(&site, "file"), b"old");
}

fn files_put_at_once_are_never_seen_mixed_or_cut(driver: Driver) {
    const LENGTH: usize = 300_000;
    let site = Site::new().with("file", "x".repeat(LENGTH));
    let server = serve(driver, &site);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = [b'A', b'B', b'C']
            .into_iter()
            .map(|letter| {
                let mut client = server.client();
                scope.spawn(move || {
                    let body = vec![letter; LENGTH];
                    for _ in 0..40 {
                        assert_eq!(put(&mut client, "/file", &[], &body), 204);
                    }
                })
            })
            .collect();
        // A client that breaks off, and one that sends parts.
        let address = server.address("http");
        let intruder = scope.spawn(move || {
            for _ in 0..40 {
                let mut client = Client::connect(address);
                client.request("PUT", "/file", &[("Content-Length", "300000")]);
                client.send(vec![b'y'; LENGTH - 1]);
                client.reset();
                let part = [("Content-Range", "bytes 0-4/10")];
                let mut client = Client::connect(address);
                assert_eq!(put(&mut client, "/file", &part, b"zzzzz"), 400);
            }
        });
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                let bytes = read(&site, "file");
                assert_eq!(bytes.len(), LENGTH);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                assert!(b"xABC".contains(&bytes[0]));
                looks += 1;
            }
        });
        let ends: Vec<_> = writers
            .into_iter()
            .chain([intruder])
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, Ordering::Relaxed);
        reader.join().expect("whole files only");
        for end in ends {
            end.expect("each is answered");
        }
    });
    assert_eq!(names_when(&site, |names| names.len() == 1), ["file"]);
}

fn the_umask_decides_the_mode_of_a_new_file(driver: Driver) {
    let site = Site::new().with("old", "x");
    let old = std::fs::Permissions::from_mode(0o604);
    std::fs::set_permissions(site.at("old"), old).expect("ours");
    for (umask, mode) in [("077", 0o600), ("002", 0o664)] {
        let server = Launch::new("/bin/sh".into())
            .with(["-c", "umask $0; exec \"$@\"", umask])
            .with([binary::flatpath()])
            .with(["serve", "--http", "127.0.0.1:0", "--driver", driver.name()])
            .directory(site.path())
            .with(["--writable"])
            .start();
        let mut client = server.client();
        let name = format!("new{umask}");
        assert_eq!(put(&mut client, &format!("/{name}"), &[], b"x"), 201);
        assert_eq!(put(&mut client, "/old", &[], b"y"), 204);
        let mode_of = |name: &str| {
            let metadata = std::fs::metadata(site.at(name)).expect("stored");
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(mode_of(&name), mode, "umask {umask}");
        assert_eq!(mode_of("old"), 0o604, "a replaced file keeps its mode");
    }
}

fn a_file_beyond_what_the_process_may_write_is_refused(driver: Driver) {
    let site = Site::new();
    // Blocks of 512 bytes.
    let server = Launch::new("/bin/sh".into())
        .with(["-c", "ulimit -f 1000; exec \"$@\"", "sh"])
        .with([binary::flatpath()])
        .with(["serve", "--http", "127.0.0.1:0", "--driver", driver.name()])
        .directory(site.path())
        .with(["--writable"])
        .start();
    let body = noise(2, 3_000_000);
    let mut client = server.client();
    let length = body.len().to_string();
    client.request("PUT", "/file", &[("Content-Length", &length)]);
    // It may be refused before all of it is sent.
    let _ = client.try_send(&body);
    assert_eq!(client.reply().status, 413);
    let within = &body[..400_000];
    assert_eq!(put(&mut server.client(), "/file", &[], within), 201);
    assert!(read(&site, "file") == within);
}

fn what_must_not_be_written_is_refused(driver: Driver) {
    let site = Site::new().with("sub/file", "").with("file", "x");
    let server = serve(driver, &site);
    std::os::unix::fs::symlink("/tmp", site.at("out")).expect("a link");
    std::os::unix::fs::symlink("file", site.at("link")).expect("a link");
    for (target, status) in [
        ("/.hidden", 403),
        ("/sub/.hidden", 403),
        ("/.flatpath-put-file", 403),
        ("/sub", 409),
        ("/sub/", 409),
        ("/", 409),
        ("/none/file", 409),
        ("/file/x", 409),
        ("/out/escaped", 409),
        ("/link", 409),
        ("/../escaped", 400),
        ("/%2e%2e/escaped", 400),
    ] {
        for body in [&b"x"[..], b""] {
            let mut client = server.client();
            assert_eq!(put(&mut client, target, &[], body), status, "{target}");
        }
    }
    let mut client = server.client();
    assert_eq!(
        put(&mut client, "/z", &[("Content-Encoding", "gzip")], b"x"),
        415
    );
    assert_eq!(names_when(&site, |_| true), ["file", "link", "out", "sub"]);
    assert_eq!(read(&site, "file"), b"x");
}

fn a_client_that_goes_away_leaves_nothing(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let before = server.settled_descriptors();
    let body = noise(1, 2_000_000);
    for (round, sent) in [0, 1, 70_000, 300_000, 1_999_999].into_iter().enumerate() {
        let mut client = server.client();
        client.request("PUT", "/file", &[("Content-Length", "2000000")]);
        client.send(&body[..sent]);
        if round % 2 == 0 {
            client.reset();
        } else {
            client.finish();
            client.expect_closed();
        }
    }
    // Broken framing in the middle of a body is answered.
    let mut client = server.client();
    client.request("PUT", "/file", &[("Transfer-Encoding", "chunked")]);
    client.send(b"3\r\nabc\r\nnonsense\r\n");
    assert_eq!(client.reply().status, 400);
    drop(client);
    assert!(names_when(&site, <[String]>::is_empty).is_empty());
    let deadline = Instant::now() + flatpath_testkit::patience();
    // A pipe stays for the next one.
    while server.settled_descriptors() > before + 1 + 2 {
        assert!(Instant::now() < deadline, "descriptors stay open");
    }
    // And the pages are back: another one goes through.
    assert_eq!(put(&mut server.client(), "/file", &[], &body), 201);
    assert!(read(&site, "file") == body);
}

fn a_body_beyond_the_limit_is_refused_before_it_is_sent(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let mut client = server.client();
    let fields = [("Content-Length", "67108865"), ("Expect", "100-continue")];
    client.request("PUT", "/file", &fields);
    let refused = client.reply();
    assert_eq!(refused.status, 413);
    assert!(refused.says_close());
    assert!(names_when(&site, <[String]>::is_empty).is_empty());
}

fn many_uploads_at_once_keep_within_their_pages(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let body = noise(9, 3_000_000);
    std::thread::scope(|scope| {
        for number in 0..24 {
            let (mut client, body) = (server.client(), &body);
            scope.spawn(move || {
                let status = put(&mut client, &format!("/file{number}"), &[], body);
                assert_eq!(status, 201);
            });
        }
        // Others do not feel it.
        let mut client = server.client();
        for _ in 0..50 {
            assert_eq!(client.get("/missing").status, 404);
        }
    });
    for number in 0..24 {
        assert!(read(&site, &format!("file{number}")) == body);
    }
}

fn no_byte_is_copied_between_ring_and_file(driver: Driver) {
    const LENGTH: usize = 20_000_000;
    let site = Site::new();
    let files = Files::open(site.path()).expect("a directory");
    let http = Http::service(files.writable(Writing::Allowed(WriteOptions::default())));
    let running = Engine::new()
        .driver(choice(driver))
        .listen("127.0.0.1:0", http)
        .start()
        .expect("started");
    let address = running.addresses()[0].address;
    let body = noise(4, LENGTH);
    let mut stream = TcpStream::connect(address).expect("listening");
    let head = format!("PUT /file HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&body).expect("sent");
    let mut reply = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut reply).expect("a reply");
    assert_eq!(&reply, b"HTTP/1.1 201");
    assert!(read(&site, "file") == body);
    let handle = running.handle();
    let statistics = handle.statistics();
    let (kept, moved) = (statistics.body_bytes_retained, statistics.body_bytes_moved);
    assert_eq!(kept + moved, LENGTH as u64);
    // How much is moved depends on how fast the client is: tests of the protocol say when it is.
    assert_eq!(statistics.body_bytes_copied, 0);
}

fn a_handler_keeps_its_body_past_the_reply_and_on_another_thread(driver: Driver) {
    const LENGTH: usize = 200_000;
    let (keep, kept) = std::sync::mpsc::sync_channel::<Payload>(10);
    let handler = move |request: &Request| {
        let payload = request.body().payload().expect("a large body");
        keep.send(payload.clone()).expect("somebody takes it");
        Response::new(payload.len().to_string().into())
    };
    let running = Engine::new()
        .driver(choice(driver))
        .listen("127.0.0.1:0", Http::pooled(handler))
        .start()
        .expect("started");
    let mut client = Client::connect(running.addresses()[0].address);
    let bodies: Vec<Vec<u8>> = (0..8).map(|seed| noise(seed, LENGTH)).collect();
    let length = LENGTH.to_string();
    for body in &bodies {
        client.request("POST", "/", &[("Content-Length", &length)]);
        client.send(body);
        assert_eq!(client.reply().text(), length);
    }
    drop(client);
    for body in bodies {
        let mut payload = kept.recv().expect("eight were sent");
        let mut found = Vec::new();
        payload.read_to_end(&mut found).expect("in memory");
        assert!(found == body);
    }
    let handle = running.handle();
    assert!(handle.statistics().body_bytes_retained > 0);
}
