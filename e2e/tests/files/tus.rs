//! Resumable uploads: what survives a broken connection and a killed server, that uploads never
//! mix, and that other people's clients are served (tuspy, tus-js-client).
//!
//! The clients come from the package indexes of Python and node. `FLATPATH_TUSPY` is the directory
//! of a Python that has `tuspy`, `FLATPATH_TUS_JS` a directory whose `node_modules` has
//! `tus-js-client`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use flatpath_testkit::noise;
use flatpath_testkit::{Client, Driver, Launch, Reply, Server, Site, each_driver, tools, until};

each_driver!(
    an_upload_resumes_where_its_connection_broke,
    the_last_bytes_before_an_end_count,
    a_connection_that_fell_silent_locks_nothing,
    a_killed_server_tells_a_true_offset_when_it_is_back,
    uploads_of_one_file_at_once_never_mix,
    expired_uploads_are_removed,
    what_is_unfinished_is_never_served,
    tuspy_uploads_resumes_and_compares,
    tus_js_client_uploads_resumes_and_terminates,
);

const LENGTH: usize = 3_000_000;

fn serve(driver: Driver, site: &Site) -> Server {
    serve_with(driver, site, &[])
}

fn serve_with(driver: Driver, site: &Site, more: &[&str]) -> Server {
    Launch::serve(driver)
        .directory(site.path())
        .with(["--writable", "--put-max", "64M"])
        .with(more)
        .start()
}

/// A request without a body.
fn ask(client: &mut Client, method: &str, target: &str, fields: &[(&str, &str)]) -> Reply {
    let fixed = [("Tus-Resumable", "1.0.0"), ("Content-Length", "0")];
    client.request(method, target, &[&fixed, fields].concat());
    match method {
        "HEAD" => client.reply_to_head(),
        _ => client.reply(),
    }
}

/// Begins an upload of `length` bytes and returns its address.
fn create(client: &mut Client, target: &str, length: usize) -> String {
    let length = length.to_string();
    let reply = ask(client, "POST", target, &[("Upload-Length", &length)]);
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.field("location").expect("an address").to_owned()
}

/// Sends the head of a PATCH.
fn begin(client: &mut Client, address: &str, offset: usize, length: usize) {
    let (offset, length) = (offset.to_string(), length.to_string());
    let fields = [
        ("Tus-Resumable", "1.0.0"),
        ("Content-Type", "application/offset+octet-stream"),
        ("Upload-Offset", &offset),
        ("Content-Length", &length),
    ];
    client.request("PATCH", address, &fields);
}

fn patch(client: &mut Client, address: &str, offset: usize, bytes: &[u8]) -> u16 {
    begin(client, address, offset, bytes.len());
    client.send(bytes);
    client.reply().status
}

fn offset(server: &Server, address: &str) -> usize {
    let reply = ask(&mut server.client(), "HEAD", address, &[]);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    let offset = reply.field("upload-offset").expect("an offset");
    offset.parse().expect("a number")
}

/// Waits until part of a body has been written, and returns how much.
fn offset_beyond(server: &Server, address: &str, bytes: usize) -> usize {
    until("bytes arrive", || {
        let there = offset(server, address);
        (there > bytes).then_some(there)
    })
}

fn an_upload_resumes_where_its_connection_broke(driver: Driver) {
    let site = Site::new().with("file", "old");
    let server = serve(driver, &site);
    let body = noise(3, LENGTH);
    let address = create(&mut server.client(), "/file", LENGTH);
    let mut broken = server.client();
    begin(&mut broken, &address, 0, LENGTH);
    broken.send(&body[..1_200_000]);
    offset_beyond(&server, &address, 0);
    broken.reset();
    assert_eq!(patch(&mut server.client(), &address, LENGTH, b""), 409);
    // More of it may be on its way to the disk, which moves the offset once more.
    until("the rest is taken", || {
        let there = offset(&server, &address);
        assert!(there <= 1_200_000, "{there}");
        assert_eq!(std::fs::read(site.at("file")).expect("there"), b"old");
        let status = patch(&mut server.client(), &address, there, &body[there..]);
        assert!([204, 409].contains(&status), "{status}");
        (status == 204).then_some(())
    });
    assert!(std::fs::read(site.at("file")).expect("there") == body);
    assert_eq!(
        offset(&server, &address),
        LENGTH,
        "for a client that missed the answer"
    );
}

fn the_last_bytes_before_an_end_count(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let body = noise(6, 1_000);
    let address = create(&mut server.client(), "/file", body.len());
    // Each connection carries less than is worth a write while more may come.
    for start in [0, 300, 600] {
        let mut client = server.client();
        begin(&mut client, &address, start, body.len() - start);
        client.send(&body[start..start + 300]);
        client.finish();
        client.expect_closed();
        until("what was sent counts", || {
            (offset(&server, &address) == start + 300).then_some(())
        });
    }
    let mut client = server.client();
    assert_eq!(patch(&mut client, &address, 900, &body[900..]), 204);
    assert!(std::fs::read(site.at("file")).expect("there") == body);
}

fn a_connection_that_fell_silent_locks_nothing(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let body = noise(4, LENGTH);
    let address = create(&mut server.client(), "/file", LENGTH);
    let mut silent = server.client();
    begin(&mut silent, &address, 0, LENGTH);
    silent.send(&body[..1_000_000]);
    offset_beyond(&server, &address, 0);
    // Another connection continues at once, though the first is still open.
    until("the rest is taken", || {
        let there = offset(&server, &address);
        let status = patch(&mut server.client(), &address, there, &body[there..]);
        assert!([204, 409].contains(&status), "{status}");
        (status == 204).then_some(())
    });
    // What the first one still sends counts no more.
    silent.send(vec![b'x'; 1_000_000]);
    assert_eq!(silent.reply().status, 409);
    assert!(std::fs::read(site.at("file")).expect("there") == body);
}

fn a_killed_server_tells_a_true_offset_when_it_is_back(driver: Driver) {
    let site = Site::new();
    let body = noise(5, LENGTH);
    let server = serve(driver, &site);
    let address = create(&mut server.client(), "/file", LENGTH);
    let mut client = server.client();
    begin(&mut client, &address, 0, LENGTH);
    client.send(&body[..2_000_000]);
    let before = offset_beyond(&server, &address, 0);
    drop(server);
    let server = serve(driver, &site);
    let there = offset(&server, &address);
    assert!((before..=2_000_000).contains(&there), "{before} {there}");
    assert!(!site.at("file").exists());
    let mut client = server.client();
    assert_eq!(patch(&mut client, &address, there, &body[there..]), 204);
    assert!(std::fs::read(site.at("file")).expect("there") == body);
}

fn uploads_of_one_file_at_once_never_mix(driver: Driver) {
    const SIZE: usize = 600_000;
    let site = Site::new().with("file", "x".repeat(SIZE));
    let server = serve(driver, &site);
    let http = server.address("http");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = [b'A', b'B', b'C']
            .into_iter()
            .map(|letter| {
                scope.spawn(move || {
                    let body = vec![letter; SIZE];
                    let mut client = Client::connect(http);
                    for round in 0..12 {
                        let address = create(&mut client, "/file", SIZE);
                        // In two parts, one of them broken off now and then.
                        if round % 3 == 0 {
                            let mut broken = Client::connect(http);
                            begin(&mut broken, &address, 0, SIZE);
                            broken.send(&body[..300_000]);
                            broken.reset();
                        }
                        until("the upload is complete", || {
                            let reply = ask(&mut client, "HEAD", &address, &[]);
                            let there = reply.field("upload-offset").expect("an offset");
                            let there: usize = there.parse().expect("a number");
                            let end = SIZE.min(there + SIZE / 2);
                            match patch(&mut client, &address, there, &body[there..end]) {
                                204 => (end == SIZE).then_some(()),
                                409 => {
                                    // What broke off was still on its way.
                                    client = Client::connect(http);
                                    None
                                }
                                other => panic!("{other}"),
                            }
                        });
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                let bytes = std::fs::read(site.at("file")).expect("there");
                assert_eq!(bytes.len(), SIZE);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "mixed");
                looks += 1;
            }
        });
        let ends: Vec<_> = writers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, Ordering::Relaxed);
        reader.join().expect("whole files only");
        for end in ends {
            end.expect("each is answered");
        }
    });
}

fn expired_uploads_are_removed(driver: Driver) {
    let site = Site::new();
    let server = serve_with(driver, &site, &["--upload-expires", "1"]);
    let mut client = server.client();
    let address = create(&mut client, "/file", 10);
    begin(&mut client, &address, 0, 5);
    client.send(b"01234");
    let reply = client.reply();
    // On a busy machine it may be gone already.
    assert!([204, 404, 410].contains(&reply.status));
    if reply.status == 204 {
        let expires = reply.field("upload-expires").expect("a date");
        assert!(expires.ends_with("GMT"), "{expires}");
    }
    until("nothing is left", || {
        let mut entries = std::fs::read_dir(site.path()).expect("readable");
        entries.next().is_none().then_some(())
    });
    assert_eq!(ask(&mut server.client(), "HEAD", &address, &[]).status, 404);
}

fn what_is_unfinished_is_never_served(driver: Driver) {
    let site = Site::new();
    let server = serve_with(driver, &site, &["--hidden"]);
    let mut client = server.client();
    let address = create(&mut client, "/file", 10);
    assert_eq!(patch(&mut client, &address, 0, b"01234"), 204);
    let number = address.rsplit('/').next().expect("a number");
    let hidden = format!("/.flatpath-upload-{number}");
    assert!(site.at(&hidden[1..]).exists());
    for target in [&hidden[..], &address, "/.flatpath-uploads/", "/file"] {
        assert_eq!(server.client().get(target).status, 404, "{target}");
    }
    let listing = client.get("/");
    assert_eq!(listing.status, 200);
    assert!(!listing.text().contains("flatpath-upload"));
}

/// Runs a client's program against a server of its own, and compares what it uploaded.
fn run_client(driver: Driver, command: &mut Command) {
    let site = Site::new();
    let source = Site::new();
    let body = noise(8, LENGTH);
    std::fs::write(source.at("source"), &body).expect("written");
    let server = serve(driver, &site);
    let url = format!("http://{}/", server.address("http"));
    command.arg(url).arg(source.at("source"));
    let output = tools::run(command, flatpath_testkit::deadline::long_patience());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (told, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}\n{errors}");
    let names: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("stored "))
        .collect();
    assert!(!names.is_empty(), "{told}");
    for name in names {
        let stored = std::fs::read(site.at(name)).expect("stored");
        assert!(stored == body, "{name} differs");
    }
    assert!(!site.at("terminated").exists());
}

fn client_program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

fn tuspy_uploads_resumes_and_compares(driver: Driver) {
    let Some(programs) = tools::installed("FLATPATH_TUSPY") else {
        return;
    };
    let mut command = Command::new(programs.join("python3"));
    run_client(driver, command.arg(client_program("tuspy_client.py")));
}

fn tus_js_client_uploads_resumes_and_terminates(driver: Driver) {
    let (Some(home), Some(node)) = (tools::installed("FLATPATH_TUS_JS"), tools::find("node"))
    else {
        return;
    };
    let mut command = Command::new(node);
    command.env("NODE_PATH", home.join("node_modules"));
    run_client(driver, command.arg(client_program("tus_js_client.cjs")));
}
