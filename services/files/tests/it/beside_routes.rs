//! A directory beside a router: what has no route is a file.

use std::time::{Duration, Instant};
use std::{fs, thread};

use flatpath_files::{Files, Pattern, Rules, WriteOptions, Writing};
use flatpath_http::{Answer, Http, Next, Request, Router, routing};
use flatpath_test::{Conditions, TestServer, each_seed};
use http::StatusCode;

#[test]
fn sim_what_has_no_route_is_a_file() {
    each_seed(10, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::write(directory.path().join("a.txt"), "a file\n").expect("written");
        fs::write(directory.path().join("time"), "hidden by a route\n").expect("written");
        let files = Files::open(directory.path()).expect("a directory");
        let routes = Router::new()
            .get("/time", || "noon\n")
            .route("/fast", routing::get(|| "fast\n").inline());
        let service = Http::service(routes.fallback_service(files));
        let mut server = TestServer::new(Conditions::rough(seed), service);
        // The second round is answered from the cache.
        for _ in 0..2 {
            for (path, status, end) in [
                ("/time", "200", "noon\n"),
                ("/fast", "200", "fast\n"),
                ("/a.txt", "200", "a file\n"),
                ("/b.txt", "404", ""),
                ("/../a.txt", "400", ""),
            ] {
                let client = server.connect();
                let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
                client.write(head.as_bytes());
                let reply = String::from_utf8(server.read_to_end(&client)).expect("UTF-8");
                let status = format!("HTTP/1.1 {status} ");
                let is_it = reply.starts_with(&status) && reply.ends_with(end);
                assert!(is_it, "seed {seed}: {path}: {reply}");
            }
        }
    });
}

/// The reply to a request that has this head but for its end, and this body.
fn reply_to(server: &mut TestServer, head: &str, body: &str) -> String {
    let client = server.connect();
    let length = body.len();
    let end = format!("Host: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    client.write(format!("{head}\r\n{end}").as_bytes());
    String::from_utf8(server.read_to_end(&client)).expect("UTF-8")
}

#[test]
fn sim_directories_are_mounted_below_prefixes() {
    each_seed(10, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::write(directory.path().join("a.txt"), "a file\n").expect("written");
        fs::create_dir(directory.path().join("sub")).expect("made");
        let open = || Files::open(directory.path()).expect("a directory");
        let marks = |request: Request, next: &Next<'_>| -> ([(&str, &str); 1], Answer) {
            ([("x-layer", "1")], next.run(request))
        };
        let writable = open().writable(Writing::Allowed(WriteOptions::default()));
        let router = Router::new()
            .nest_service("/layered", open())
            .layer(marks)
            .nest_service("/one", writable)
            .nest_service("/two/deep", open());
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        // The second round is answered from the cache.
        for (prefix, is_layered) in [("/one", false), ("/two/deep", false), ("/layered", true)] {
            for _ in 0..2 {
                for (path, status, part) in [
                    ("/a.txt", "200", "a file\n"),
                    ("/none", "404", "Not Found"),
                    ("/sub", "301", "Location: PREFIX/sub/\r\n"),
                    ("/sub?a=b", "301", "Location: PREFIX/sub/?a=b\r\n"),
                    ("", "301", "Location: PREFIX/\r\n"),
                    ("?a", "301", "Location: PREFIX/?a\r\n"),
                    ("/", "200", "href=\"./a.txt\""),
                    ("/none/./../a.txt", "200", "a file\n"),
                ] {
                    let head = format!("GET {prefix}{path} HTTP/1.1");
                    let reply = reply_to(&mut server, &head, "");
                    let part = part.replace("PREFIX", prefix);
                    let is_it = reply.starts_with(&format!("HTTP/1.1 {status} "))
                        && reply.contains(&part)
                        && reply.contains("X-Layer: 1\r\n") == is_layered;
                    assert!(is_it, "seed {seed}: {prefix}{path}: {reply}");
                }
            }
        }
        // Dots that lead from one to the other lead through the layers of that one.
        let reply = reply_to(&mut server, "GET /one/../layered/a.txt HTTP/1.1", "");
        assert!(reply.contains("X-Layer: 1\r\n"), "{reply}");
        assert!(reply.ends_with("a file\n"), "{reply}");
        let reply = reply_to(&mut server, "PUT /one/sub/new HTTP/1.1", "new\n");
        assert!(reply.starts_with("HTTP/1.1 201 "), "{reply}");
        let reply = reply_to(&mut server, "GET /two/deep/sub/new HTTP/1.1", "");
        assert!(reply.ends_with("new\n"), "{reply}");
        // An upload by tus is told where it goes on.
        let head = "POST /one/b.txt HTTP/1.1\r\nTus-Resumable: 1.0.0\r\nUpload-Length: 5";
        let reply = reply_to(&mut server, head, "");
        let address = reply
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        let address = address.unwrap_or_else(|| panic!("{reply}")).to_owned();
        assert!(address.starts_with("/one/"), "{address}");
        let head = format!(
            "PATCH {address} HTTP/1.1\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n\
             Content-Type: application/offset+octet-stream"
        );
        let reply = reply_to(&mut server, &head, "bytes");
        assert!(reply.starts_with("HTTP/1.1 204 "), "{reply}");
        let reply = reply_to(&mut server, "GET /two/deep/b.txt HTTP/1.1", "");
        assert!(reply.ends_with("\r\n\r\nbytes"), "{reply}");
    });
}

#[test]
fn sim_a_name_that_nothing_has_is_answered_by_a_page_or_an_application() {
    each_seed(10, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::write(directory.path().join("a.txt"), "a file\n").expect("written");
        fs::write(directory.path().join("lost.html"), "lost\n").expect("written");
        let open = |rules: Rules| {
            let files = Files::open(directory.path()).expect("a directory");
            files.rules(rules)
        };
        let page = Rules::new().error_page(StatusCode::NOT_FOUND, "lost.html");
        let app = |file| Rules::new().fallback(Pattern::any(), file).expect("a rule");
        let router = Router::new()
            .nest_service("/page", open(page.expect("a rule")))
            .nest_service("/app", open(app("/lost.html")))
            .nest_service("/none", open(app("/none.html")));
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        for _ in 0..2 {
            for (head, status, end) in [
                ("GET /page/a.txt", "200", "a file\n"),
                ("GET /page/b", "404", "\r\n\r\nlost\n"),
                ("GET /page/b/c/", "404", "\r\n\r\nlost\n"),
                ("HEAD /page/b", "404", "\r\n\r\n"),
                ("DELETE /page/b", "405", ""),
                ("GET /app/b", "200", "\r\n\r\nlost\n"),
                ("GET /app/a.txt", "200", "a file\n"),
                ("GET /none/b", "404", ""),
            ] {
                let reply = reply_to(&mut server, &format!("{head} HTTP/1.1"), "");
                let is_it = reply.starts_with(&format!("HTTP/1.1 {status} "));
                assert!(
                    is_it && reply.ends_with(end),
                    "seed {seed}: {head}: {reply}"
                );
                let is_page = head.contains("page/b") && status == "404";
                assert!(!is_page || !reply.contains("ETag:"), "{head}: {reply}");
            }
        }
        // Conditions are of the application's page, and never of a page for what is not there.
        // A file that has only just changed has no validators.
        let deadline = Instant::now() + flatpath_testkit::patience();
        let tag = loop {
            let reply = reply_to(&mut server, "GET /app/b HTTP/1.1", "");
            let tag = reply.lines().find_map(|line| line.strip_prefix("ETag: "));
            match tag {
                Some(tag) => break tag.to_owned(),
                None => assert!(Instant::now() < deadline, "seed {seed}: {reply}"),
            }
            thread::sleep(Duration::from_millis(1));
        };
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nIf-None-Match: {tag}");
        let reply = reply_to(&mut server, &ask("/app/c"), "");
        assert!(reply.starts_with("HTTP/1.1 304 "), "{reply}");
        let reply = reply_to(&mut server, &ask("/page/c"), "");
        assert!(
            reply.starts_with("HTTP/1.1 404 ") && reply.ends_with("lost\n"),
            "{reply}"
        );
        // What comes to be there is served.
        fs::write(directory.path().join("b"), "it is here\n").expect("written");
        for path in ["/app/b", "/page/b"] {
            let reply = reply_to(&mut server, &format!("GET {path} HTTP/1.1"), "");
            assert!(
                reply.ends_with("it is here\n"),
                "seed {seed}: {path}: {reply}"
            );
        }
    });
}
