//! A directory beside a router: what has no route is a file.

use std::fs;

use flatpath_files::Files;
use flatpath_http::{Http, Router, routing};
use flatpath_test::{Conditions, TestServer, each_seed};

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
